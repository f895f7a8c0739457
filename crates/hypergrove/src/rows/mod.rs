//! Rows: batches as columns. No object is made for a job, and results go into the caller's memory.

mod block;
mod call;
pub(crate) mod column;
pub(crate) mod columns;
mod engine;
pub(crate) mod foreign;
mod inputs;
mod results;
mod set;
pub(crate) mod status;

pub(crate) use call::{CallOfRows, run_calls};
pub use column::{Column, ForeignRows, Offsets};
pub use columns::{CallColumns, MessageRows, RowSigningKeys, RowVerifyingKeys, SignatureRows};
pub(crate) use foreign::{ForeignColumn, copies_at_a_time, copy_columns};
pub use foreign::{ForeignMemory, RowMemory};
pub use hypergrove_engine::scheduler::Memory;
pub(crate) use results::Results;
pub use set::{RowCall, RowSet};
pub use status::RowStatus;

/// SLH-DSA's [`MessageRows`].
pub type SignRows<'a> = MessageRows<'a, crate::SlhDsa>;
/// SLH-DSA's [`SignatureRows`].
pub type VerifyRows<'a> = SignatureRows<'a, crate::SlhDsa>;
