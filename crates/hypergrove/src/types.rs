//! The types of a signature scheme, of which jobs and columns are made.

use crate::Error;
use signature::Keypair;
use std::fmt::Debug;
use std::ptr;
use zeroize::Zeroize;

/// The types of a signature scheme. A value of the type is one of its parameter sets.
pub trait SchemeTypes: Copy + PartialEq + Debug + Send + Sync + 'static {
    /// A parameter set, as callers name it. (SLH-DSA's set is a reference. The reference must not be the scheme itself: the compiler would not
    /// see that futures with its jobs are `Send`.)
    type Set: Copy + Debug + Send + Sync + 'static;
    /// A private key.
    type SigningKey: SchemeKey<Self> + Keypair<VerifyingKey = Self::VerifyingKey>;
    /// A public key.
    type VerifyingKey: SchemeKey<Self>;
    /// A signature.
    type Signature: Into<Vec<u8>> + Send + 'static;
    /// The seeds that a key is made from.
    type Seeds: Clone + Zeroize + Send + Sync + 'static;
    /// How a message is signed; `()` if there is only one way.
    type Mode<'a>: Copy + Default + Debug + Send + Sync;
    /// Where the randomness of a signature comes from; `()` if there is none.
    type Randomizer<'a>: Copy + Default + Debug + Send + Sync;
    /// A message.
    type Message<'a>: Copy + Send + Sync;
    /// The message of a job, which the job may own.
    type JobMessage<'a>: Clone + Debug + Send + Sync;
    /// The messages of rows.
    type RowMessages<'a>: Copy + Debug + Send + Sync;
    /// The mode, the message and the randomizer of a job, which the job may own.
    #[doc(hidden)]
    type Input<'a>: Send + Sync;
}

/// A key of a scheme, private or public.
pub trait SchemeKey<S: SchemeTypes>: Clone + Debug + Send + Sync + 'static {
    /// The parameter set.
    #[doc(hidden)]
    fn scheme(&self) -> S;
    /// The key of these bytes, which are as many as a key of the set has. The engine made them, or a column has them.
    #[doc(hidden)]
    fn of_bytes(scheme: S, bytes: &[u8]) -> Self;
    /// The number of layers whose nodes the key has; 0 where a scheme has none.
    #[doc(hidden)]
    fn cached_layers(&self) -> usize {
        0
    }
    /// The mode of a job that names none.
    #[doc(hidden)]
    fn usual_mode<'a>(&self) -> S::Mode<'a>
    where
        'a: 'a,
    {
        S::Mode::default()
    }
    /// Checks that the key is meant for a mode.
    #[doc(hidden)]
    fn check_mode(&self, _mode: S::Mode<'_>) -> Result<(), Error> {
        Ok(())
    }
    /// Checks the mode and the message of a job with this key.
    #[doc(hidden)]
    fn check_job(&self, _mode: S::Mode<'_>, _message: S::Message<'_>) -> Result<(), Error> {
        Ok(())
    }
    /// The distinct keys of jobs, and the index of each job's key. Successive jobs whose key lies at the same address share one key, unless the
    /// scheme compares keys by their content.
    #[doc(hidden)]
    fn distinct<'k>(keys: &mut dyn Iterator<Item = &'k Self>) -> (Vec<&'k Self>, Vec<u32>) {
        in_succession(keys, |a, b| ptr::eq(a, b))
    }
}

/// Implements `Copy` for types of any scheme. A derived implementation would require that keys are `Copy` too.
macro_rules! copied {
    ($([$($lifetime:lifetime)*] $copied:ty;)*) => {$(
        impl<$($lifetime,)* S: $crate::types::SchemeTypes> Clone for $copied {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($lifetime,)* S: $crate::types::SchemeTypes> Copy for $copied {}
    )*};
}
pub(crate) use copied;

/// The distinct keys of some rows, and the index of each row's key. Successive equal keys count once.
pub(crate) fn in_succession<K: Copy>(
    keys: impl Iterator<Item = K>,
    is_same: impl Fn(K, K) -> bool,
) -> (Vec<K>, Vec<u32>) {
    let mut distinct: Vec<K> = Vec::new();
    let key_of = keys
        .map(|key| {
            if distinct.last().is_none_or(|last| !is_same(*last, key)) {
                distinct.push(key);
            }
            distinct.len() as u32 - 1
        })
        .collect();
    (distinct, key_of)
}
