#![no_main]

hypergrove_fuzz::target!("zkdilithium_keys");
