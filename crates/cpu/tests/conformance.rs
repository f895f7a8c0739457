//! Every instruction set that this machine has against the reference.

use hypergrove_cpu::{Cpu, Isa};
use hypergrove_testkit::{backend_tests, suite};

fn cpu(isa: Isa) -> Option<Box<Cpu>> {
    Cpu::with(isa).map(Box::new)
}

#[cfg(target_arch = "x86_64")]
backend_tests!(avx512_sha, cpu(Isa::Avx512Sha));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx512, cpu(Isa::Avx512));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx2_sha, cpu(Isa::Avx2Sha));
#[cfg(target_arch = "x86_64")]
backend_tests!(avx2, cpu(Isa::Avx2));
#[cfg(target_arch = "aarch64")]
backend_tests!(neon, cpu(Isa::Neon));
backend_tests!(portable, cpu(Isa::Portable));

#[test]
fn known_answers_of_every_set() {
    suite::known_answers_of_every_set(&Cpu::new());
}
