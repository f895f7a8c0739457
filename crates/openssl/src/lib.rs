#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod algorithms;
mod codec;
mod failure;
mod key;
mod numbers;
mod provider;
mod signature;
mod tables;
