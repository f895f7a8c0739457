#![no_main]

hypergrove_fuzz::target!("envelope");
