//! The parts that every fuzz target is made of.
#![forbid(unsafe_code)]

pub use hypergrove_cli;
pub use libfuzzer_sys;
pub use peak_alloc;

/// The fuzz target of this name among `hypergrove_cli::fuzz::targets`, its use of the heap measured.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        #[global_allocator]
        static HEAP: $crate::peak_alloc::PeakAlloc = $crate::peak_alloc::PeakAlloc;

        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            static TARGET: std::sync::LazyLock<&$crate::hypergrove_cli::fuzz::Target> =
                std::sync::LazyLock::new(|| $crate::hypergrove_cli::fuzz::target($name).expect("a target's name"));
            TARGET.fuzz(data, &HEAP);
        });
    };
}
