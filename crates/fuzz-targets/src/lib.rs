#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod checks;
mod documents;
mod keys;
mod lists;
mod signatures;
mod zkdilithium;

pub use checks::{Extent, brief, of_tool};
pub use lists::lists;

use peak_alloc::PeakAlloc;
use std::hash::{DefaultHasher, Hasher};

/// A fuzz target.
pub struct Target {
    /// Its name: that of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// The body. It panics at a fault.
    pub run: fn(&[u8], Extent),
    /// Bytes of the heap that reading may take for each byte of the input, in addition to [`HEAP`]. `None` if the target computes.
    pub heap: Option<usize>,
}

/// Bytes of the heap that reading any input may take.
pub const HEAP: usize = 256 << 10;
/// One of so many inputs is used when a target is fuzzed.
const USED: u64 = 4096;
/// The targets of what the library, its file formats and the lab read. The tool has more.
#[rustfmt::skip]
pub static TARGETS: &[Target] = &[
    Target { name: "control",                run: control,                 heap: Some(16) },
    Target { name: "pkcs8",                  run: keys::pkcs8,             heap: Some(16) },
    Target { name: "spki",                   run: keys::spki,              heap: Some(16) },
    Target { name: "zkdilithium_keys",       run: zkdilithium::keys,       heap: Some(64) },
    Target { name: "zkdilithium_signatures", run: zkdilithium::signatures, heap: None },
    Target { name: "signatures_toy",         run: signatures::toy,         heap: None },
    Target { name: "signatures_real",        run: signatures::real,        heap: None },
    Target { name: "envelope",               run: lists::envelope,         heap: Some(16) },
    Target { name: "signers",                run: lists::signers,          heap: Some(64) },
    Target { name: "tables",                 run: documents::tables,       heap: Some(1024) },
    Target { name: "journal",                run: documents::journal,      heap: Some(256) },
    Target { name: "records",                run: documents::records,      heap: Some(512) },
    Target { name: "acvp",                   run: documents::acvp,         heap: Some(512) },
    Target { name: "kat",                    run: zkdilithium::kat,        heap: Some(512) },
];

impl Target {
    /// An input of many: a few of them are used, of the others the use of the heap is measured. A fault panics.
    pub fn fuzz(&self, data: &[u8], heap: &PeakAlloc) {
        let mut hash = DefaultHasher::new();
        hash.write(data);
        match hash.finish().is_multiple_of(USED) {
            true => (self.run)(data, Extent::Use),
            false => self.read(data, heap),
        }
    }

    /// An input of the corpus: all is done. A fault panics.
    pub fn replay(&self, data: &[u8], heap: &PeakAlloc) {
        self.read(data, heap);
        (self.run)(data, Extent::Use);
    }

    fn read(&self, data: &[u8], heap: &PeakAlloc) {
        heap.reset_peak_usage();
        let before = heap.current_usage();
        (self.run)(data, Extent::Read);
        let (used, most) = (heap.peak_usage().saturating_sub(before), self.heap.map(|each| HEAP + each * data.len()));
        assert!(
            most.is_none_or(|most| used <= most),
            "{}: {used} bytes of the heap for an input of {} bytes, {most:?} are allowed",
            self.name,
            data.len()
        );
    }
}

/// Faults that are there to be found: by the fuzzer, which shows that it searches, and by the tests.
fn control(data: &[u8], _: Extent) {
    // Letter by letter: each one that is right is another branch.
    let right = data.iter().zip(b"fault").take_while(|(byte, letter)| byte == letter).count();
    assert!(right < 5, "the planted fault");
    if data == b"heap" {
        std::hint::black_box(vec![1; 2 * HEAP]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ALLOCATOR: PeakAlloc = PeakAlloc;

    #[test]
    fn inputs_are_read_and_a_share_is_used() {
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        static SEEN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let run = |_: &[u8], extent| {
            SEEN[usize::from(extent == Extent::Use)].fetch_add(1, Relaxed);
        };
        let target = Target { name: "counted", run, heap: None };
        (0..20_000u32).for_each(|input| target.fuzz(&input.to_le_bytes(), &ALLOCATOR));
        let [read, used] = [SEEN[0].load(Relaxed), SEEN[1].load(Relaxed)];
        assert_eq!(read + used, 20_000);
        assert!((1..20).contains(&used), "{used} of 20,000 inputs were used");
    }
}
