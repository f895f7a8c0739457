//! hypergrove
fn main() {}
