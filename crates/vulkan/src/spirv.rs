//! The kernels' modules, and the hints by which drivers compile them.

use hypergrove_fips205::Family;
use hypergrove_kernels::{Config, Kernel};
use miniz_oxide::inflate::decompress_to_vec_with_limit;

// This defines `MODULES`: names and files, sorted by name.
include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// SPIR-V's first word, and how many words come before the first instruction.
const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;
/// An instruction whose operands are the block after a loop, the loop's continuation, and a hint for the driver.
const LOOP_MERGE: u32 = 246;
const UNROLL: u32 = 1;
const DONT_UNROLL: u32 = 2;

/// The source of a pipeline, which lacks only the size of blocks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Module {
    name: String,
    unrolled: bool,
    /// The additions that run on the multiply-add pipe (`ADD` in dialect.h).
    pub(crate) imad: u32,
}

impl Module {
    /// A kernel's module. `None` if [there is none](Kernel::has_module).
    pub(crate) fn of(kernel: Kernel, config: &Config) -> Option<Module> {
        let unrolled = config.defines.contains(&("UNROLLED", 1));
        let imad = config.defines.iter().find(|(name, _)| *name == "IMAD").map_or(0, |(_, imad)| *imad);
        // SHAKE has no such additions.
        let imad = if config.family == Family::Sha2 { imad } else { 0 };
        let name = || hypergrove_kernels::module_name(kernel, config.family, config.n);
        kernel.has_module().then(|| Module { name: name(), unrolled, imad })
    }

    /// The module's words. The error is for a build without the module, or with a damaged one.
    pub(crate) fn code(&self) -> Result<Vec<u32>, String> {
        let missing = || format!("this build has no module {}", self.name);
        let at = MODULES.binary_search_by(|(name, _)| (*name).cmp(&self.name)).map_err(|_| missing())?;
        let mut words = unpacked(MODULES[at].1).ok_or_else(|| format!("{} is damaged in this build", self.name))?;
        match hint(&mut words, if self.unrolled { UNROLL } else { DONT_UNROLL }) {
            Some(_) => Ok(words),
            None => Err(format!("{} is no SPIR-V", self.name)),
        }
    }
}

/// The words of a module that `cargo xtask shaders` packed: gzip (RFC 1952) without optional fields, whose trailer ends with the
/// length. `None` if it is damaged.
fn unpacked(file: &[u8]) -> Option<Vec<u32>> {
    let (head, rest) = file.split_first_chunk::<10>()?;
    let (deflated, trailer) = rest.split_last_chunk::<8>()?;
    let [.., a, b, c, d] = *trailer;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let bytes = decompress_to_vec_with_limit(deflated, length).ok()?;
    let is_whole = head.starts_with(&[0x1f, 0x8b, 8, 0]) && bytes.len() == length;
    is_whole.then(|| bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// Writes the hint `control` to every loop without a hint: these are the loops over a hash's rounds (`dialect.h`). Returns their number; `None`
/// if the words are no module.
fn hint(words: &mut [u32], control: u32) -> Option<usize> {
    let (mut at, mut hinted) = (HEADER, 0);
    if words.first() != Some(&MAGIC) {
        return None;
    }
    while at < words.len() {
        let (length, code) = ((words[at] >> 16) as usize, words[at] & 0xffff);
        let instruction = words.get_mut(at..at + length).filter(|words| !words.is_empty())?;
        if let (LOOP_MERGE, [_, _, _, wanted @ 0, ..]) = (code, instruction) {
            *wanted = control;
            hinted += 1;
        }
        at += length;
    }
    Some(hinted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_module_that_fits_any_device() {
        for &family in Family::ALL {
            for n in [16, 24, 32] {
                for kernel in Kernel::ALL.iter().copied().filter(|kernel| kernel.has_module()) {
                    for unrolled in [0, 1] {
                        let config = Config { family, n, defines: vec![("UNROLLED", unrolled)] };
                        let words = Module::of(kernel, &config).unwrap().code().unwrap();
                        let left = hint(&mut words.clone(), DONT_UNROLL).unwrap();
                        assert_eq!(left, 0, "{kernel:?}: a loop without a hint");
                    }
                }
            }
        }
        assert!(Module { name: "chains".into(), unrolled: false, imad: 0 }.code().is_err());
    }

    #[test]
    fn rounds_are_the_loops_without_a_hint() {
        let rounds = |kernel: Kernel| {
            let name = hypergrove_kernels::module_name(kernel, Family::Sha2, 16);
            let file = MODULES.iter().find(|(other, _)| *other == name).unwrap().1;
            hint(&mut unpacked(file).unwrap(), UNROLL).unwrap()
        };
        assert_eq!(rounds(Kernel::Select), 0);
        assert_eq!(rounds(Kernel::ForsPk), 1);
        assert_eq!(rounds(Kernel::Chains), 1, "of secrets; steps have no loop");
        assert_eq!(rounds(Kernel::Climb), 2);
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert_eq!(hint(&mut [], UNROLL), None);
        assert_eq!(hint(&mut [MAGIC, 0, 0, 0, 0, 0], UNROLL), None, "an instruction of no words");
        assert_eq!(hint(&mut [MAGIC, 0, 0, 0, 0, 9 << 16], UNROLL), None, "one that runs past the end");
        let mut words = [MAGIC, 0, 0, 0, 0, 4 << 16 | LOOP_MERGE, 1, 2, 0, 4 << 16 | LOOP_MERGE, 1, 2, 2];
        assert_eq!(hint(&mut words, UNROLL), Some(1));
        assert_eq!(words[8..], [UNROLL, 4 << 16 | LOOP_MERGE, 1, 2, 2]);
    }
}
