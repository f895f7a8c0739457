//! Wiping the stack after work with secrets.

use zeroize::zeroize_stack;

/// Bytes below a frame that are wiped. The deepest work with secrets, making a key of a lattice ready, takes half of them
/// when it is optimised.
const DEPTH: usize = 64 << 10;

/// Does work with secrets, and then wipes the part of this thread's stack that it used. The compiler keeps values there for which it has no register,
/// and no destructor reaches them. Wiping takes a microsecond.
///
/// The result of `work` moves through the part of the stack that is not wiped, so secrets in it must be in boxes.
pub fn wiped<R>(work: impl FnOnce() -> R) -> R {
    // `work` gets a frame of its own; otherwise the stack that it used would not lie below this frame.
    #[inline(never)]
    fn below<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    let done = below(work);
    zeroize_stack::<DEPTH>();
    done
}
