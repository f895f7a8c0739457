//! Plain WOTS over SHA-256: the scheme's arithmetic, which is also its reference. A key signs one message.

use sha2::{Digest, Sha256};

/// Bytes of a hash.
pub(crate) const N: usize = 32;
/// Steps of a chain, one less than the values of a digit.
const STEPS: usize = 15;
/// Digits of a message's hash, and of their checksum.
const CHAINS: usize = 2 * N + 3;
/// Bytes of a signature.
pub(crate) const SIGNATURE: usize = CHAINS * N;

fn hash(parts: &[&[u8]]) -> [u8; N] {
    parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

fn chain(start: [u8; N], steps: usize) -> [u8; N] {
    (0..steps).fold(start, |value, _| hash(&[&value]))
}

/// How far each chain goes for a message.
fn digits(message: &[u8]) -> [usize; CHAINS] {
    let hash = hash(&[message]);
    let mut digits = [0; CHAINS];
    for (pair, byte) in digits.chunks_mut(2).zip(hash) {
        pair.copy_from_slice(&[usize::from(byte >> 4), usize::from(byte & 15)]);
    }
    let checksum: usize = digits[..2 * N].iter().map(|digit| STEPS - digit).sum();
    digits[2 * N..].copy_from_slice(&[checksum >> 8, checksum >> 4 & 15, checksum & 15]);
    digits
}

fn secret(seed: &[u8], number: usize) -> [u8; N] {
    hash(&[seed, &[number as u8]])
}

/// The public key of a seed.
pub(crate) fn public(seed: &[u8]) -> [u8; N] {
    let ends: Vec<[u8; N]> = (0..CHAINS).map(|number| chain(secret(seed, number), STEPS)).collect();
    hash(&[ends.as_flattened()])
}

/// Signs a message.
pub(crate) fn sign(seed: &[u8], message: &[u8], signature: &mut [u8]) {
    for ((number, digit), to) in digits(message).into_iter().enumerate().zip(signature.chunks_exact_mut(N)) {
        to.copy_from_slice(&chain(secret(seed, number), digit));
    }
}

/// Whether a signature is that of a message.
pub(crate) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (values, digits) = (signature.as_chunks().0, digits(message));
    let ends: Vec<[u8; N]> = values.iter().zip(digits).map(|(value, digit)| chain(*value, STEPS - digit)).collect();
    signature.len() == SIGNATURE && hash(&[ends.as_flattened()]) == *public
}
