//! Which process this is. A forked child is another process than its parent, even if it has the parent's number: the first process of a container may
//! fork into another PID namespace, and the system gives numbers again.
//!
//! A word of memory says that the process is known. A fork clears the word in the child, in two ways, each of which suffices:
//! * The kernel wipes the word's page in every child that has memory of its own (`MADV_WIPEONFORK`), also after a `clone` that the C library does not
//!   see. Linux has this since 4.14; some sandboxes and other systems lack it.
//! * `fork` of the C library calls a handler.
//!
//! A child of `vfork` or `posix_spawn` shares its parent's memory until it runs another program, and counts as its parent.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// A process. No process compares equal to one that it was forked from, directly or not. The question costs a look at memory, and no system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(pub(crate) u64);

/// The number of this process; 0 until the process is known, and after a fork. Nobody frees its memory.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The latest number that this process, or one that it was forked from, has had. A fork keeps it. A thread raises it before the thread stores the new
/// number anywhere else: so of all numbers in the memory that a child has from its parent, none is later.
static LATEST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// This process.
    #[inline]
    pub fn current() -> Process {
        // SAFETY: the pointer is null, or `make` gave it, and nobody frees its memory.
        let number = unsafe { NUMBER.load(Acquire).as_ref() };
        match number.map_or(0, |number| number.load(Relaxed)) {
            0 => Process::begin(),
            known => Process(known),
        }
    }

    /// Gives the process a number. No lock is held meanwhile, since a fork would keep it for ever.
    #[cold]
    fn begin() -> Process {
        let mut number = NUMBER.load(Acquire);
        if number.is_null() {
            let made = make();
            number = match NUMBER.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
                Ok(_) => made,
                // Another thread was faster. The page that this one made stays unused.
                Err(others) => others,
            };
        }
        // SAFETY: `make` gave the pointer, and nobody frees its memory.
        let number = unsafe { &*number };
        // The numbers are compared, and no other memory is read by what they say: their order among themselves suffices.
        let new = LATEST.fetch_add(1, Relaxed) + 1;
        Process(number.compare_exchange(0, new, Relaxed, Relaxed).err().unwrap_or(new))
    }
}

/// Memory for the number, which a fork clears in the child.
fn make() -> *mut AtomicU64 {
    static ORDINARY: AtomicU64 = AtomicU64::new(0);
    // Miri knows neither the handler nor the wiping, and forks nothing.
    #[cfg(all(unix, not(miri)))]
    // SAFETY: the handler may run in a child of a process with several threads: it does nothing but store a number. Where the C library can unload this
    // library, it forgets the handler then. If it does not take the handler, for want of memory, the page's wiping is left.
    let _ = unsafe { nix::libc::pthread_atfork(None, None, Some(forked)) };
    wiped_page().unwrap_or(&raw const ORDINARY as *mut AtomicU64)
}

/// A page that the kernel wipes in a forked child, if it does so.
#[cfg(all(target_os = "linux", not(miri)))]
fn wiped_page() -> Option<*mut AtomicU64> {
    use nix::libc::{MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, madvise, mmap};
    // The kernel rounds the size up to a page.
    let (size, access) = (size_of::<AtomicU64>(), PROT_READ | PROT_WRITE);
    // SAFETY: a new mapping, which overlaps no other.
    let page = unsafe { mmap(ptr::null_mut(), size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
    if page == MAP_FAILED {
        return None;
    }
    // SAFETY: the page is ours. A kernel that does not know the advice leaves the page as it is, and the handler clears the number.
    let _ = unsafe { madvise(page, size, MADV_WIPEONFORK) };
    Some(page.cast())
}

#[cfg(any(not(target_os = "linux"), miri))]
fn wiped_page() -> Option<*mut AtomicU64> {
    None
}

/// Clears the number in a forked child.
#[cfg(all(unix, not(miri)))]
extern "C" fn forked() {
    // SAFETY: as in `Process::current`.
    if let Some(number) = unsafe { NUMBER.load(Acquire).as_ref() } {
        number.store(0, Relaxed);
    }
}
