#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod arguments;
mod defines;
mod headers;
mod kernel;
#[cfg(feature = "ready")]
mod ready;
pub mod zk;
mod zk_constants;

pub use defines::{
    CHAINS_BLOCKS, FP64, HASH_BLOCKS, IMAD, KECCAK_BLOCKS, MAX_THREADS, TENSOR_FORMS, UNROLLED, number as family_number,
};
use headers::number_after;
use hypergrove_fips205::{AdrsType, Family};
pub use kernel::{Kernel, host_headers};
use std::sync::LazyLock;

macro_rules! sources {
    ($($path:literal)*) => { &[$(($path, include_str!(concat!("../", $path))),)*] };
}

/// Every file that a kernel may include.
static SOURCES: &[(&str, &str)] = sources! {
    "dialect.h" "args.h" "family.h"
    "hash/k256.h" "hash/sha256.h" "hash/sha512.h" "hash/keccak.h" "hash/sha2.h" "hash/shake.h"
    "stage/place.h" "stage/climb.h" "stage/treehash.h" "stage/wide.h" "stage/solo.h"
    "zk/field.h" "zk/ntt.h" "zk/poseidon.h" "zk/tensor.h" "zk/tensor_sponge.h" "zk/sponge.h" "zk/shake.h" "zk/layout.h" "zk/vector.h"
    "zk/attempt.h"
};

/// Headers that are generated.
static GENERATED: LazyLock<[(&str, String); 4]> = LazyLock::new(zk_constants::headers);

/// The headers that are generated, by the paths that kernels include.
pub fn generated_headers() -> &'static [(&'static str, String)] {
    &*GENERATED
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// The arguments of every kernel; `args.h` says what each is. Addresses are the device's.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(C)]
        pub struct Args { $($(#[$doc])* pub $name: $kind,)* }

        const FIELDS: &[(&str, usize)] = &[$((stringify!($name), size_of::<$kind>()),)*];
    };
}

arguments! {
    /// The keys, `KEY_WORDS` each.
    keys: u64,
    /// The jobs: key, idx_tree (high, low), idx_leaf, the revealed leaf of each FORS tree.
    jobs: u64,
    /// WOTS+ chain values, one a chain.
    ends: u64,
    /// All values of the revealed leaves' chains.
    trace: u64,
    /// Tree nodes, row by row.
    nodes: u64,
    /// The kernel's output.
    outs: u64,
    /// d + 1 nodes a job: what layer 0 signs, then the root of each layer.
    roots: u64,
    /// Signatures.
    sigs: u64,
    /// Which checks failed, and which roots passed.
    flag: u64,
    /// Threads' worth of work.
    total: u32,
    /// Leaves, units or trees: see each kernel.
    count: u32,
    /// k, a, h′ and d, eight bits each.
    shape0: u32,
    /// len, len1 and lg_w, eight bits each.
    shape1: u32,
    /// The first layer.
    layer0: u32,
    /// Layers a job.
    layers: u32,
    /// Height of the nodes that are given.
    base: u32,
    /// Levels to go up.
    up: u32,
    /// log₂ of the nodes that a block works on at a time; of `complete` the number of chains.
    chunk: u32,
    /// Number of the first tree.
    first: u32,
    /// See [`flags`].
    flags: u32,
    /// 1, which the compiler does not know.
    one: u32,
    /// Leaves before the first that is worked on.
    skip: u32,
    /// (job, layer) pairs whose chain values are kept.
    rows: u32,
}
const _: () = assert!(headers::lists_fields(include_str!("../args.h"), FIELDS), "`Args` has other fields than args.h");
const _: () = assert!(size_of::<Args>() == 128, "push constants hold no more");

/// Bits of [`Args::flags`].
pub mod flags {
    crate::headers::defined! { "args.h":
        /// Authentication paths go to the signatures.
        REVEAL: u32;
        /// All nodes go to `trace`, laid out as cached nodes.
        KEEP: u32;
        /// Values of the revealed leaves' chains are kept.
        TRACE: u32;
        /// Of each tree the revealed leaf alone.
        ONLY: u32;
        /// The trees of one layer of key 0, from number `first` on.
        ALL_TREES: u32;
        /// Of each tree the revealed leaf alone, up to the message's digits.
        REPLAY: u32;
        /// Roots are compared with those that are there.
        COMPARE: u32;
        /// One tree a key, tree 0 of its layer.
        EACH_KEY: u32;
        /// Roots go out as bytes, one after the other: of trees to `roots`, of signatures to `outs` too.
        TOPS: u32;
        /// Messages lie where a table says.
        SPANS: u32;
        /// Messages begin at multiples of 16 bytes.
        QUADS: u32;
        /// R is made.
        SIGN: u32;
    }
}

mod sizes {
    crate::headers::defined! { "args.h":
        /// Words of a key on the device.
        KEY_WORDS: usize;
        /// Words of a job on the device before its k FORS leaves.
        JOB_WORDS: usize;
        /// Words of a job that [`Kernel::Digest`](crate::Kernel::Digest) has for itself.
        BETWEEN: usize;
    }
}
pub use sizes::{BETWEEN, JOB_WORDS, KEY_WORDS};

/// Words of a block's tile of nodes.
pub const TILE_WORDS: usize = number_after(include_str!("../stage/treehash.h"), "SHARED(tile, ") as usize;
/// Leaves that a block of the cooperative kernels works on at a time.
pub const COOPERATIVE_ROWS: u32 = number_after(include_str!("../stage/wide.h"), "#define WIDE_ROWS ");
/// Rows of a block of [`Kernel::ClimbPaired`], at most.
pub const PAIRED_ROWS: u32 = number_after(include_str!("../entry/climb_paired.k"), "#define PAIRS ");
/// Levels that a thread of `LeafSolo` goes up, at most.
pub const CPU_LEAF_LEVELS: u32 = 3;
/// Levels that a thread of `ForsSolo` goes up.
pub const CPU_FORS_LEVELS: u32 = number_after(include_str!("../entry/fors_solo.k"), "#define MOST_UP ");

/// Bytes of a block's memory that a kernel gets at its launch, in addition to its own: the operands that four warps multiply by.
pub fn launch_memory(kernel: Kernel, config: &Config) -> u32 {
    const STEP_BYTES: u32 = number_after(include_str!("../zk/tensor.h"), "#define STEP_BYTES ");
    let steps = 3 + hypergrove_zkdilithium::params::ROUNDS as u32;
    if is_by_warpgroups(kernel, config) { steps * STEP_BYTES } else { 0 }
}

/// Whether a kernel has instructions of compute capability 9.0 alone, which no later device has.
pub fn is_by_warpgroups(kernel: Kernel, config: &Config) -> bool {
    kernel.needs_tensor_cores() && config.defines.contains(&("TENSOR", 2))
}

/// FIPS 205's types of addresses have the same numbers in kernels.
const _: () = {
    const fn kernels_have(kind: AdrsType, define: &str) -> bool {
        kind as u32 == number_after(include_str!("../stage/place.h"), define)
    }
    assert!(kernels_have(AdrsType::WotsHash, "#define WOTS_HASH "));
    assert!(kernels_have(AdrsType::WotsPk, "#define WOTS_PK "));
    assert!(kernels_have(AdrsType::Tree, "#define TREE "));
    assert!(kernels_have(AdrsType::ForsTree, "#define FORS_TREE "));
    assert!(kernels_have(AdrsType::ForsRoots, "#define FORS_ROOTS "));
    assert!(kernels_have(AdrsType::WotsPrf, "#define WOTS_PRF "));
    assert!(kernels_have(AdrsType::ForsPrf, "#define FORS_PRF "));
};

/// The parameters that a build of a kernel is specialised for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The hash family.
    pub family: Family,
    /// Bytes of a node.
    pub n: usize,
    /// Choices of a policy that the compiler must know: `CHAINS_BLOCKS`, the blocks of [`MAX_THREADS`] that the chain
    /// kernel's registers leave room for; `IMAD`, a mask for `ADD` in `dialect.h`; `UNROLLED`, whether the rounds of
    /// SHA-512 and Keccak are; `FP64`, whether Poseidon sums products in doubles, and `TENSOR`, one of [`TENSOR_FORMS`], for
    /// which the kernels of the scheme with Poseidon ask (they know no family and no n either); of SHA-256 of messages, which knows no family and no n, `MAX_THREADS` and
    /// `MIN_BLOCKS`, the blocks of that size that its registers leave room for. The kernel's output depends on none of the choices.
    pub defines: Vec<(&'static str, u32)>,
}

/// The configurations that the default policies ask for: those that [`ready()`] has, where the build made them.
pub fn default_configs(family: Family, n: usize) -> Vec<Config> {
    defines::DEFAULTS.iter().map(|choices| Config { family, n, defines: choices.to_vec() }).collect()
}

/// The whole source of a kernel, without includes. Of choices that make no difference to it, it is the same.
pub fn source(kernel: Kernel, config: &Config) -> String {
    let mut text = String::new();
    for (name, value) in defines::defines(kernel, config.family, config.n, &config.defines) {
        text += &format!("#define {name} {value}\n");
    }
    let mut included = Vec::new();
    include(kernel.entry(), &mut included, &mut text);
    text
}

/// The name of a kernel's Vulkan module: no choice of a policy makes a difference to it.
pub fn module_name(kernel: Kernel, family: Family, n: usize) -> String {
    let [_, (_, n), ..] = defines::defines(kernel, family, n, &[]);
    format!("{}-{}-{n}", kernel.name(), defines::name(defines::family_of(kernel, family)))
}

/// The tables of constants, in order. To Vulkan they are one uniform buffer: a table in a module is copied by each thread,
/// and then LLVM takes minutes for a kernel.
pub fn tables() -> impl Iterator<Item = (&'static str, Vec<u32>)> {
    let all = SOURCES.iter().flat_map(|(_, text)| text.split("\nCONST_U32(").skip(1));
    all.filter_map(|table| {
        let (name, rest) = table.split_once(',')?;
        let (_, rest) = rest.split_once(")\n")?;
        let literals = rest.split_once("CONST_END")?.0.split(',').map(str::trim);
        let words = literals.map(|word| u32::from_str_radix(word.strip_prefix("0x")?.strip_suffix('u')?, 16).ok());
        Some((name, words.collect::<Option<_>>()?))
    })
}

/// The whole source in GLSL of that module.
pub fn glsl(kernel: Kernel, family: Family, n: usize) -> String {
    let mut text = "#version 460\n".to_owned();
    for (name, value) in defines::defines(kernel, family, n, &[]) {
        text += &format!("#define {name} {value}\n");
    }
    let mut included = Vec::new();
    include("#include \"dialect.h\"\n", &mut included, &mut text);
    let members = tables().map(|(name, words)| format!("uint {name}[{}];", words.len())).collect::<Vec<_>>().join(" ");
    text += &format!("layout(set = 0, binding = 0, scalar) uniform Tables {{ {members} }};\n");
    let mut rest = String::new();
    include(kernel.entry(), &mut included, &mut rest);
    let mut in_table = false;
    for line in rest.lines() {
        in_table |= line.starts_with("CONST_U32(");
        if !in_table {
            text += line;
            text.push('\n');
        }
        in_table &= line != "CONST_END";
    }
    text
}

/// SHA-256 of every file of SLH-DSA and SHA-256 that GPUs use, in hexadecimal: what measured times in tables depend on. Of the
/// build, since hashing 78 kB at each start took 10 to 14 ms on an Emerald Rapids host.
pub const FINGERPRINT: &str = env!("HYPERGROVE_KERNELS");
/// SHA-256 of the files that only [kernels for CPUs](Kernel::is_for_cpu) use, in hexadecimal: CPUs' times depend on both hashes.
pub const CPU_FINGERPRINT: &str = env!("HYPERGROVE_KERNELS_CPU");

/// Ready machine code for a device of this compute capability, if this build has it: feature `ready`.
pub fn ready(kernel: Kernel, config: &Config, capability: (u32, u32)) -> Option<&'static [u8]> {
    #[cfg(feature = "ready")]
    return ready::find(kernel, config, capability);
    #[cfg(not(feature = "ready"))]
    {
        let _ = (kernel, config, capability);
        None
    }
}

/// Every header is included once: their guards would drop it the second time.
fn include(from: &str, included: &mut Vec<&'static str>, text: &mut String) {
    for line in from.lines() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(path) => {
                let generated = GENERATED.iter().map(|(path, text)| (*path, text.as_str()));
                let mut all = SOURCES.iter().copied().chain(generated);
                let (path, body) = all.find(|(name, _)| *name == path).expect("all headers are listed");
                if !included.contains(&path) {
                    included.push(path);
                    include(body, included, text);
                }
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_whole() {
        for &family in Family::ALL {
            for kernel in Kernel::ALL {
                let config = Config { family, n: 16, defines: vec![("IMAD", 3)] };
                let imad = match defines::family_of(*kernel, family) {
                    Family::Sha2 if *kernel != Kernel::Compare => 3,
                    _ => 0,
                };
                let text = source(*kernel, &config);
                assert!(!text.contains("#include \""), "{kernel:?}");
                assert!(
                    text.contains(&format!("KERNEL({})", kernel.name()))
                        && text.contains(&format!("#define IMAD {imad}\n"))
                );
            }
        }
    }

    #[test]
    fn tables_are_whole() {
        let sizes: Vec<_> = tables().map(|(name, words)| (name, words.len())).collect();
        assert_eq!(sizes, [("K256", 64), ("K512", 160), ("KECCAK_RC", 48)]);
        for kernel in Kernel::ALL {
            let text = glsl(*kernel, Family::Sha2, 24);
            assert!(!text.contains("\nCONST_U32(") && !text.contains("0x428a2f98u, 0x"), "{kernel:?} has a table");
        }
    }

    #[test]
    fn threads_have_room_for_their_levels() {
        assert!(Kernel::LeafSolo.entry().contains(&format!(" stack[{CPU_LEAF_LEVELS} * NW]")));
    }

    /// Only the files listed here use the macros of the choices, as `defines` assumes.
    #[test]
    fn choices_change_only_listed_files() {
        let entries = Kernel::ALL.iter().map(|kernel| (kernel.name(), kernel.entry()));
        for (path, text) in SOURCES.iter().copied().chain(entries) {
            let uses = |word| {
                text.match_indices(word).any(|(at, _)| !text[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric()))
            };
            assert!(!uses("ADD(") && !uses("SHIFT(") || ["hash/sha256.h", "dialect.h"].contains(&path), "{path}: IMAD");
            assert!(
                !uses("ROLL_64") || ["hash/sha512.h", "hash/keccak.h", "dialect.h"].contains(&path),
                "{path}: UNROLLED"
            );
        }
        let with = |family, n, defines| source(Kernel::Xmss, &Config { family, n, defines });
        assert_eq!(with(Family::Shake, 16, vec![("IMAD", 3)]), with(Family::Shake, 16, vec![("CHAINS_BLOCKS", 6)]));
        assert_eq!(with(Family::Sha2, 16, vec![("UNROLLED", 1)]), with(Family::Sha2, 16, vec![]));
        assert_ne!(with(Family::Sha2, 24, vec![("UNROLLED", 1)]), with(Family::Sha2, 24, vec![]));
    }
}
