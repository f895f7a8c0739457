#![no_main]

hypergrove_fuzz::target!("key_file");
