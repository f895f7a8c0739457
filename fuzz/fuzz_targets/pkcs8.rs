#![no_main]

hypergrove_fuzz::target!("pkcs8");
