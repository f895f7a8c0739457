//! Memory that is not Rust's alone: buffers of Python objects, tensors of DLPack, Arrow arrays, and the arrays that Python gets. The
//! package's only `unsafe`: so `interpreter`, which calls Python's C interface, and `descriptor` are here too.
//!
//! A reference of Rust promises that nobody writes meanwhile. Rows are slices, so memory becomes a slice only where that holds:
//!
//! * `bytes` of Python never change: `PyBackedBytes` for one, `list` for many;
//! * Arrow arrays never change once they are exported: their interface demands it (`arrow`);
//! * an [`Array`](array::Array) knows its views: without any, a call borrows it, and views are refused until the call ends. It also knows
//!   the Arrow arrays that share its memory: as long as there are any, nobody may write to it.
//!
//! Whatever else has a buffer, or is a tensor, may be written by another thread at any time. Such memory is never a slice: it is
//! copied by loads that may race (`buffer`, `racing`), when the engine asks for the rows of a chunk (`held`).
#![allow(unsafe_code)]

pub(crate) mod array;
pub(crate) mod arrow;
pub(crate) mod buffer;
pub(crate) mod descriptor;
mod dlpack;
pub(crate) mod interpreter;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod racing;
mod tensor;
