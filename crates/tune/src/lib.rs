//! Policy as knowledge: how time depends on parallelism, modelled; the best policy, searched; and what was found, kept.
#![forbid(unsafe_code)]

pub mod model;
