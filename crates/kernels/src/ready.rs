//! Fatbins that the build made: machine code of several architectures, and PTX for others.

use crate::defines::{Defines, defines};
use crate::{Config, Kernel};

/// A driver may read words of it.
#[repr(align(64))]
struct Aligned<Bytes: ?Sized>(Bytes);

struct Image {
    kernel: Kernel,
    defines: Defines,
    /// Those of which there is machine code: 90 for compute capability 9.0.
    architectures: &'static [u32],
    /// That of the PTX, from which the driver of a later device makes its own code.
    ptx: u32,
    code: &'static Aligned<[u8]>,
}

// `IMAGES`.
include!(concat!(env!("OUT_DIR"), "/ready.rs"));

pub(crate) fn find(kernel: Kernel, config: &Config, capability: (u32, u32)) -> Option<&'static [u8]> {
    let wanted = defines(kernel, config.family, config.n, &config.defines);
    let image = IMAGES.iter().find(|image| image.kernel == kernel && image.defines == wanted)?;
    covers(image.architectures, image.ptx, capability).then_some(&image.code.0)
}

/// Machine code runs on later devices of its major version; PTX is compiled by the driver of any later one.
fn covers(architectures: &[u32], ptx: u32, (major, minor): (u32, u32)) -> bool {
    let runs = |made: u32| made / 10 == major && made % 10 <= minor;
    architectures.iter().copied().any(runs) || ptx <= major * 10 + minor
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_fips205::Family;

    #[test]
    fn every_default_is_ready() {
        if IMAGES.is_empty() {
            return println!("skipped: ready kernels: built with HYPERGROVE_NVCC=none");
        }
        for &family in Family::ALL {
            for n in [16, 24, 32] {
                for config in crate::default_configs(family, n) {
                    for &kernel in Kernel::ALL {
                        for capability in [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 3), (11, 0), (12, 0)] {
                            let runs = match kernel.needs_tensor_cores() {
                                true if crate::is_by_warpgroups(kernel, &config) => capability == (9, 0),
                                is_newer => !is_newer || capability >= (8, 0),
                            };
                            if !runs {
                                assert!(crate::ready(kernel, &config, capability).is_none());
                                continue;
                            }
                            let code = crate::ready(kernel, &config, capability);
                            let code = code.unwrap_or_else(|| panic!("{kernel:?} {config:?} {capability:?}"));
                            assert!(code.starts_with(&0xba55_ed50u32.to_le_bytes()), "a fatbin's first word");
                            assert_eq!(code.as_ptr() as usize % 64, 0);
                        }
                        assert!(crate::ready(kernel, &config, (7, 0)).is_none());
                    }
                    let other = Config { defines: vec![("CHAINS_BLOCKS", 6)], ..config };
                    assert!(crate::ready(Kernel::Chains, &other, (9, 0)).is_none());
                }
            }
        }
    }

    #[test]
    fn devices_that_code_covers() {
        let covers = |capability| covers(&[80, 90], 90, capability);
        for good in [(8, 0), (8, 9), (9, 0), (9, 1), (13, 0)] {
            assert!(covers(good), "{good:?}");
        }
        for bad in [(7, 0), (7, 5)] {
            assert!(!covers(bad), "{bad:?}");
        }
    }
}
