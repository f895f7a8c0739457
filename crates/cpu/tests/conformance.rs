//! Every instruction set that this machine has against the reference.

use hypergrove_cpu::{Cpu, Isa};
use hypergrove_testkit::{backend_tests, suite};

#[cfg(target_arch = "x86_64")]
backend_tests!(avx512_sha, Cpu::with(Isa::Avx512Sha));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx512, Cpu::with(Isa::Avx512));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx2_sha, Cpu::with(Isa::Avx2Sha));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx2, Cpu::with(Isa::Avx2));
#[cfg(target_arch = "aarch64")]
backend_tests!(neon, Cpu::with(Isa::Neon));
backend_tests!(portable, Cpu::with(Isa::Portable));

#[test]
fn known_answers_of_every_set() {
    suite::known_answers_of_every_set(&Cpu::new());
}
