//! How the best policy is looked for: every search asks a [`Lab`] for times, and is over when the lab says so.
//!
//! A search does the same again when it gets the same times, so that one that was interrupted is taken up by giving it
//! what was measured already.

pub mod descent;
pub mod grid;
pub mod halving;
mod lab;

pub(crate) use lab::distinct;
pub use lab::{Lab, PolicyTimes, Search, SearchFn, Stop, median, same, spread};

/// All searches, the default first. The one place where they are listed.
pub static SEARCHES: &[Search] = &[descent::SEARCH, grid::SEARCH];
