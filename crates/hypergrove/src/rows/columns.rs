//! The columns of calls, as callers describe them.

use super::column::Column;
use super::status::RowStatus;
use crate::types::{SchemeTypes, copied};
use std::fmt;

/// The private keys of [`Engine::sign_rows`](crate::Engine::sign_rows). All keys of SLH-DSA must be of one set and have the same number of cached layers.
#[derive(Debug)]
pub enum RowSigningKeys<'a, K = crate::SigningKey> {
    /// One key for all rows.
    One(&'a K),
    /// Row i is signed by `keys[of[i]]`.
    Table {
        /// The keys, at least one.
        keys: &'a [K],
        /// The index of each row's key.
        of: &'a [u32],
    },
}

impl<K> Clone for RowSigningKeys<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for RowSigningKeys<'_, K> {}

/// The public keys of [`Engine::verify_rows`](crate::Engine::verify_rows), keys `K` of a scheme `S`. All must be of one set.
#[derive(Debug)]
pub enum RowVerifyingKeys<'a, K = crate::VerifyingKey, P = &'static crate::Params> {
    /// One key for all rows.
    One(&'a K),
    /// Row i is verified with `keys[of[i]]`.
    Table {
        /// The keys, at least one.
        keys: &'a [K],
        /// The index of each row's key.
        of: &'a [u32],
    },
    /// One public key for each row, in bytes. A key that differs from the key of the row before is prepared anew, which may take memory.
    Encoded {
        /// The set of the keys.
        params: P,
        /// The keys.
        keys: Column<'a>,
    },
}

impl<K, P: Copy> Clone for RowVerifyingKeys<'_, K, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Copy> Copy for RowVerifyingKeys<'_, K, P> {}

/// Messages to be signed, with a scheme `S`; see [`Engine::sign_rows`](crate::Engine::sign_rows). [`SignRows`](super::SignRows) is SLH-DSA's.
#[derive(Debug)]
pub struct MessageRows<'a, S: SchemeTypes> {
    /// The keys.
    pub keys: RowSigningKeys<'a, S::SigningKey>,
    /// How messages are signed.
    pub mode: S::Mode<'a>,
    /// One message for each row.
    pub messages: S::RowMessages<'a>,
    /// Where the randomness comes from. [`Randomizer::Given`](crate::Randomizer::Given) must have n bytes for each row.
    pub randomizer: S::Randomizer<'a>,
}

/// Signatures to be verified, with a scheme `S`; see [`Engine::verify_rows`](crate::Engine::verify_rows). [`VerifyRows`](super::VerifyRows) is SLH-DSA's.
#[derive(Debug)]
pub struct SignatureRows<'a, S: SchemeTypes> {
    /// The keys.
    pub keys: RowVerifyingKeys<'a, S::VerifyingKey, S::Set>,
    /// How messages were signed.
    pub mode: S::Mode<'a>,
    /// One message for each row.
    pub messages: S::RowMessages<'a>,
    /// One signature for each row.
    pub signatures: Column<'a>,
}

/// A call of rows, with a scheme `S`: the arguments of [`Engine::sign_rows`](crate::Engine::sign_rows) and similar calls. [`RowCall`](super::RowCall) is SLH-DSA's.
#[non_exhaustive]
pub enum CallColumns<'m, 'a, S: SchemeTypes> {
    /// [`Engine::sign_rows`](crate::Engine::sign_rows).
    Sign {
        /// The keys and messages.
        rows: MessageRows<'a, S>,
        /// Memory for the signatures.
        signatures: &'m mut [u8],
        /// Memory for the status of each row.
        statuses: &'m mut [RowStatus],
    },
    /// [`Engine::verify_rows`](crate::Engine::verify_rows).
    Verify {
        /// The keys, messages and signatures.
        rows: SignatureRows<'a, S>,
        /// Memory for the status of each row.
        statuses: &'m mut [RowStatus],
    },
    /// [`Engine::keygen_rows`](crate::Engine::keygen_rows), or with seeds [`Engine::keygen_rows_from_seeds`](crate::Engine::keygen_rows_from_seeds).
    Keygen {
        /// The set of the keys.
        params: S::Set,
        /// The seeds. Without them the keys come from the operating system's randomness.
        seeds: Option<&'a [u8]>,
        /// Memory for the private keys.
        private: &'m mut [u8],
        /// Memory for the public keys, if they are wanted.
        public: Option<&'m mut [u8]>,
    },
}

/// Leaves the columns out, because they may hold seeds and private keys.
impl<S: SchemeTypes> fmt::Debug for CallColumns<'_, '_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallColumns").finish_non_exhaustive()
    }
}

copied! {
    ['a] MessageRows<'a, S>;
    ['a] SignatureRows<'a, S>;
}
