//! The schemes of this crate, as the scheduler knows them: their kinds of work, and the factories of their programs.

mod sha256;
mod slh_dsa;
mod zkdilithium;

pub use sha256::HashProgram;
pub use slh_dsa::SlhDsaProgram;
pub use zkdilithium::ZkDilithiumProgram;
