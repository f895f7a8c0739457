//! What secrets leave behind on the stack.

use zeroize::zeroize_stack;

/// Bytes below a frame that are wiped. The deepest work with secrets, making a key of a lattice ready, takes half of them
/// when it is optimised.
const DEPTH: usize = 64 << 10;

/// Does work with secrets, and then wipes what it used of this thread's stack: there the compiler keeps what it has no
/// register for, and no destructor reaches that. It takes a microsecond.
///
/// What `work` returns is moved through the stack that stays: secrets in it must be in boxes.
pub fn wiped<R>(work: impl FnOnce() -> R) -> R {
    // A frame of its own, or what it used would not lie below this one.
    #[inline(never)]
    fn below<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    let done = below(work);
    zeroize_stack::<DEPTH>();
    done
}
