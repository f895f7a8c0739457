#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod acvp;
pub mod zkdilithium;
