//! Randomness from the operating system.

use hypergrove_engine::Error;
use hypergrove_engine::scheduler::Place;
use hypergrove_taint::classify;

/// Secret bytes from the operating system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|_| Error::Randomness)?;
    classify(bytes);
    Ok(())
}

/// The random bytes of one request to the operating system, if several threads make requests. A kernel makes some hundred megabytes a second for
/// each thread, which is less than GPUs use.
const RANDOM_BYTES: usize = 4 << 10;

/// Up to this many bytes, one thread draws alone: when it is done, other threads would only have begun.
const FEW_BYTES: usize = 16 << 10;

/// Secret bytes from the operating system, drawn by the threads of `place`.
pub(crate) fn random_by_threads(place: &Place<'_>, bytes: &mut [u8]) -> Result<(), Error> {
    if bytes.len() <= FEW_BYTES {
        return random(bytes);
    }
    place.each_of(bytes.chunks_mut(RANDOM_BYTES).collect(), &random)
}
