#![doc = include_str!("../README.md")]
//!
//! # Index of the standard's algorithms
//!
//! | algorithm | function |
//! |---|---|
//! | 1 gen_len₂ | [`reference::gen_len2`], [`Params::len2`] |
//! | 2 toInt | [`reference::to_int`] |
//! | 3 toByte | [`reference::to_byte`] |
//! | 4 base_2^b | [`reference::base_2b`] |
//! | 5 chain | [`reference::wots_chain`] |
//! | 6 wots_pkGen | [`reference::wots_pk_gen`] |
//! | 7 wots_sign | [`reference::wots_sign`] |
//! | 8 wots_pkFromSig | [`reference::wots_pk_from_sig`] |
//! | 9 xmss_node | [`reference::xmss_node`] |
//! | 10 xmss_sign | [`reference::xmss_sign`] |
//! | 11 xmss_pkFromSig | [`reference::xmss_pk_from_sig`] |
//! | 12 ht_sign | [`reference::ht_sign`] |
//! | 13 ht_verify | [`reference::ht_verify`] |
//! | 14 fors_skGen | [`reference::fors_sk_gen`] |
//! | 15 fors_node | [`reference::fors_node`] |
//! | 16 fors_sign | [`reference::fors_sign`] |
//! | 17 fors_pkFromSig | [`reference::fors_pk_from_sig`] |
//! | 18 slh_keygen_internal | [`reference::slh_keygen_internal`] |
//! | 19 slh_sign_internal | [`reference::slh_sign_internal`]; the digest's indices: [`Position::split`] |
//! | 20 slh_verify_internal | [`reference::slh_verify_internal`] |
//! | 21 slh_keygen | [`reference::slh_keygen`] |
//! | 22 slh_sign | [`reference::slh_sign`]; M′: [`MPrime::new`] |
//! | 23 hash_slh_sign | [`reference::hash_slh_sign`] |
//! | 24 slh_verify | [`reference::slh_verify`] |
//! | 25 hash_slh_verify | [`reference::hash_slh_verify`] |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod adrs;
mod blockwise;
pub mod digest;
#[cfg(feature = "pkcs8")]
mod encoding;
#[cfg(feature = "encryption")]
mod encrypted;
#[cfg(feature = "pkcs8")]
mod fields;
pub mod geometry;
pub mod keys;
pub mod params;
pub mod plan;
#[doc(hidden)]
pub mod quote;
pub mod reference;
pub mod sha2;

pub use adrs::{Adrs, AdrsType};
pub use digest::{MAX_CONTEXT, MPrime, MessageError, Mode, PreHash, PreHasher, UnknownHash};
#[cfg(feature = "encryption")]
pub use encrypted::{EncryptedSigningKey, PassphraseKdf};
pub use geometry::{ForsLeaves, Position};
pub use keys::{KeyError, MAX_N, Signature, SigningKey, VerifyingKey};
pub use params::*;
pub use plan::{Op, Plan, Rates, Work};
