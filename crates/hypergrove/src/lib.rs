//! hypergrove
