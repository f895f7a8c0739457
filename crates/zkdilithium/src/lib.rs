#![doc = include_str!("../README.md")]
//!
//! # Index of the scheme's functions
//!
//! | function | here |
//! |---|---|
//! | Gen, Sign, Verify | [`reference::keygen`], [`reference::sign`], [`reference::verify`] |
//! | NTT, INTT | [`ntt::ntt`], [`ntt::intt`] |
//! | Decompose, HighPart, LowPart, ‖·‖ | [`ring::decompose`], [`ring::RingElement::norm`] |
//! | fe24, eta3, g18, bytesToFes | [`pack`] |
//! | ExpandA, ExpandS, ExpandY | [`sample::expand_a`], [`sample::expand_s`], [`sample::expand_y`] |
//! | Poseidon, its sponge | [`poseidon::permute`], [`poseidon::Sponge`] |
//! | μ, com, Ball | [`Message::mu`], [`digest::com`], [`sample::ball`] |
//! | the cost of an operation | [`Op::work`] |
//! | w and its quotient, for circuits | [`witness::Witness`] |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod digest;
pub mod field;
pub mod keys;
pub mod ntt;
pub mod pack;
pub mod params;
#[cfg(feature = "pem")]
mod pem;
pub mod poseidon;
pub mod reference;
pub mod ring;
pub mod sample;
pub mod trace;
pub mod witness;
pub mod work;

pub use digest::Message;
pub use field::Fe;
pub use keys::{
    ExpandedSigningKey, ExpandedVerifyingKey, KeyError, Signature, SignatureBytes, SigningKey, SigningKeyBytes,
    VerifyingKey,
};
#[cfg(feature = "pem")]
pub use pem::{PRIVATE_LABEL, PUBLIC_LABEL, is_pem_of_zkdilithium};
pub use trace::Trace;
pub use work::{Op, Work};
