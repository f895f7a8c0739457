#![doc = include_str!("../README.md")]

use hypergrove_fips205::Family;
use hypergrove_kernels::{Args, Config, Kernel};

macro_rules! host {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $(fn $name(kernel: u32, blocks: u32, threads: u32, args: *const Args, size: usize) -> i32;)*
        }
    };
}
host! { hypergrove_sha2_16 hypergrove_sha2_24 hypergrove_sha2_32 hypergrove_shake_16 hypergrove_shake_24 hypergrove_shake_32 hypergrove_zk_integers hypergrove_zk_doubles }

/// Runs a kernel on the calling thread, block after block.
///
/// # Safety
///
/// Every address in `args` that the kernel uses is that of host memory large enough for it and used by nobody else.
pub unsafe fn launch(config: &Config, kernel: Kernel, blocks: u32, threads: u32, args: &Args) {
    let run = match (config.family, config.n) {
        _ if kernel.is_zk() && config.defines.contains(&("FP64", 1)) => hypergrove_zk_doubles,
        _ if kernel.is_zk() => hypergrove_zk_integers,
        (Family::Sha2, 16) => hypergrove_sha2_16,
        (Family::Sha2, 24) => hypergrove_sha2_24,
        (Family::Sha2, _) => hypergrove_sha2_32,
        (Family::Shake, 16) => hypergrove_shake_16,
        (Family::Shake, 24) => hypergrove_shake_24,
        (Family::Shake, _) => hypergrove_shake_32,
    };
    // SAFETY: the function is what build.rs compiled from host/kernels.cpp and host/zk.cpp with this signature; the caller vouches for
    // the addresses.
    let failed = unsafe { run(kernel as u32, blocks, threads, args, size_of::<Args>()) };
    assert!(
        failed == 0,
        "{kernel:?}: {}",
        ["", "no such kernel", "threads met no common barrier", "arguments"][failed as usize]
    );
}
