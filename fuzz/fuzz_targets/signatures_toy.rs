#![no_main]

hypergrove_fuzz::target!("signatures_toy");
