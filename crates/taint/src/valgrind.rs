//! Valgrind's client requests: an instruction sequence that does nothing on a CPU, and that Valgrind takes for a call.
//! The sequence and the numbers are those of Valgrind's `valgrind.h` and `memcheck.h`.

use core::arch::asm;

const RUNNING_ON_VALGRIND: u64 = 0x1001;
const COUNT_ERRORS: u64 = 0x1201;
/// Requests to the tool Memcheck.
const MEMCHECK: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16;
const MAKE_MEM_UNDEFINED: u64 = MEMCHECK + 1;
const MAKE_MEM_DEFINED: u64 = MEMCHECK + 2;
const GET_VBITS: u64 = MEMCHECK + 8;

/// Valgrind's answer, or 0 without Valgrind.
#[inline(always)]
fn request(number: u64, address: u64, second: u64, third: u64) -> u64 {
    let arguments = [number, address, second, third, 0, 0];
    let answer;
    // SAFETY: rdi is rotated by 128 bits in all, which leaves it as it was, and rbx is exchanged with itself. Under Valgrind
    // the sequence reads the six arguments and writes rdx; the requests of this file change only what Valgrind knows of
    // memory, but for GET_VBITS, whose caller gives it room.
    unsafe {
        asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") 0u64 => answer, options(nostack)
        );
    }
    answer
}

fn place<T: ?Sized>(value: *const T) -> u64 {
    value.cast::<u8>().expose_provenance() as u64
}

#[inline(always)]
pub(crate) fn make_undefined<T: ?Sized>(value: &mut T) {
    request(MAKE_MEM_UNDEFINED, place(value), size_of_val(value) as u64, 0);
}

#[inline(always)]
pub(crate) fn make_defined<T: ?Sized>(value: &T) {
    request(MAKE_MEM_DEFINED, place(value), size_of_val(value) as u64, 0);
}

pub(crate) fn is_defined(bytes: &[u8]) -> bool {
    let mut undefined = [0u8; 64];
    bytes.chunks(undefined.len()).all(|bytes| {
        request(GET_VBITS, place(bytes), place(&raw mut undefined), bytes.len() as u64);
        undefined[..bytes.len()].iter().all(|bits| *bits == 0)
    })
}

pub(crate) fn reports() -> Option<u64> {
    (request(RUNNING_ON_VALGRIND, 0, 0, 0) > 0).then(|| request(COUNT_ERRORS, 0, 0, 0))
}
