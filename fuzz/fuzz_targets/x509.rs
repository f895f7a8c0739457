#![no_main]

hypergrove_fuzz::target!("x509");
