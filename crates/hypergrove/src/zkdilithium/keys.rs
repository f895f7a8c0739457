//! Private keys of a batch in one piece of memory.

use super::SigningKey;
use hypergrove_zkdilithium::SigningKeyBytes;
use hypergrove_zkdilithium::params::SK_BYTES;
use std::fmt;
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The bytes of private keys, one after another, in memory that the next batch can use again: millions of keys need no allocation for
/// each ([`Engine::from_seeds_into`](super::Engine::from_seeds_into)). They are wiped on drop and compared in constant time. `Debug`
/// does not show them.
#[derive(Default)]
pub struct SigningKeys {
    /// Room for keys. Never grown in place, which could leave secrets behind.
    words: Vec<u64>,
    len: usize,
    /// Words that may hold secrets, the first so many; zeros follow.
    used: usize,
}

impl SigningKeys {
    /// No keys, and no memory.
    pub fn new() -> SigningKeys {
        SigningKeys::default()
    }
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bytes of each key: ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t. Secret.
    pub fn secret_bytes(&self) -> &[SigningKeyBytes] {
        bytes_of(self.keys())
    }
    /// A copy of the key with this number; `None` if there are fewer keys.
    pub fn get(&self, number: usize) -> Option<SigningKey> {
        self.secret_bytes().get(number).map(of_bytes)
    }
    /// The bytes of all keys, one after the other. Secret.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SigningKey> {
        self.secret_bytes().iter().map(of_bytes)
    }
    /// Wipes and removes all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.room(0);
    }

    /// Keys that the memory has room for.
    pub(super) fn most(&self) -> usize {
        self.words.len() / WORDS
    }

    fn keys(&self) -> &[u64] {
        &self.words[..self.len * WORDS]
    }

    /// Room for so many keys, in the place of those there were; until they have [come](SigningKeys::come), there are none. The
    /// memory for more is zeros that nobody has touched yet: the threads that write keys do so first.
    pub(super) fn room(&mut self, keys: usize) -> &mut [SigningKeyBytes] {
        self.len = 0;
        let (words, used) = (keys * WORDS, self.used);
        if words > self.words.len() {
            self.words[..used].zeroize();
            // Freed before there is more.
            self.words = Vec::new();
            self.words = vec![0; words];
        } else if words < used {
            self.words[words..used].zeroize();
        }
        self.used = words;
        bytemuck::cast_slice_mut(&mut self.words[..words]).as_chunks_mut().0
    }

    /// What is in the room that was given.
    pub(super) fn room_again(&self) -> &[SigningKeyBytes] {
        bytes_of(&self.words[..self.used])
    }

    /// All that there was room for.
    pub(super) fn come(&mut self) {
        self.len = self.used / WORDS;
    }
}

/// Words of a key.
const WORDS: usize = SK_BYTES / 8;

fn bytes_of(words: &[u64]) -> &[SigningKeyBytes] {
    bytemuck::cast_slice(words).as_chunks().0
}

fn of_bytes(bytes: &SigningKeyBytes) -> SigningKey {
    SigningKey::from_bytes(bytes).expect("a key's bytes")
}

impl ConstantTimeEq for SigningKeys {
    /// Their number is no secret.
    fn ct_eq(&self, other: &SigningKeys) -> Choice {
        self.keys().ct_eq(other.keys())
    }
}

impl PartialEq for SigningKeys {
    fn eq(&self, other: &SigningKeys) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for SigningKeys {}

impl Drop for SigningKeys {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ZeroizeOnDrop for SigningKeys {}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeys").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zkdilithium::Engine;

    #[test]
    fn memory_is_used_again_and_what_is_not_used_is_wiped() {
        let engine = Engine::builder().threads(2).build().unwrap();
        let seeds: Vec<[u8; 32]> = (0..20).map(|i| [i; 32]).collect();
        let expected = engine.from_seeds(&seeds).unwrap();
        let mut keys = SigningKeys::new();
        engine.from_seeds_into(&seeds, &mut keys).unwrap();
        assert!(keys.iter().eq(expected.iter().cloned()) && keys.len() == 20);
        let place = keys.words.as_ptr();
        engine.from_seeds_into(&seeds[7..12], &mut keys).unwrap();
        assert!((0..6).all(|i| keys.get(i) == expected[7..12].get(i).cloned()));
        assert_eq!(keys.secret_bytes()[4], **expected[11].to_bytes());
        assert!(keys.words[5 * WORDS..].iter().all(|word| *word == 0));
        assert_eq!((place, keys.words.len()), (keys.words.as_ptr(), 20 * WORDS));
        keys.clear();
        assert!(keys.is_empty() && keys.words.iter().all(|word| *word == 0) && keys.get(0).is_none());
        assert_eq!(keys, SigningKeys::new());
        // Half made: nobody sees them, and they are wiped.
        keys.room(3)[1] = [7; SK_BYTES];
        assert!(keys.is_empty());
        keys.clear();
        assert!(keys.words.iter().all(|word| *word == 0));
    }
}
