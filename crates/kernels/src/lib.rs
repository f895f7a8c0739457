#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "host"), forbid(unsafe_code))]

mod constants;
mod defines;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "ready")]
mod ready;
pub mod zk;

pub use defines::{CHAINS_BLOCKS, FP64, HASH_BLOCKS, IMAD, MAX_THREADS, UNROLLED};
use hypergrove_fips205::{Family, Params};
use std::sync::LazyLock;

macro_rules! sources {
    ($($path:literal)*) => { &[$(($path, include_str!(concat!("../", $path))),)*] };
}

/// Every file that a kernel may include.
static SOURCES: &[(&str, &str)] = sources! {
    "dialect.h" "args.h" "family.h"
    "hash/k256.h" "hash/sha256.h" "hash/sha512.h" "hash/keccak.h" "hash/sha2.h" "hash/shake.h"
    "stage/place.h" "stage/climb.h" "stage/treehash.h" "stage/wide.h" "stage/solo.h"
    "zk/field.h" "zk/ntt.h" "zk/poseidon.h" "zk/shake.h" "zk/layout.h" "zk/vector.h" "zk/attempt.h"
};

/// Headers that are generated.
static GENERATED: LazyLock<[(&str, String); 3]> = LazyLock::new(constants::headers);

macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// A kernel; its file is `entry/<name>.k`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Kernel { $($(#[$doc])* $variant,)* }

        impl Kernel {
            /// All kernels, in order.
            pub const ALL: &[Kernel] = &[$(Kernel::$variant,)*];
            /// The name of its entry point.
            pub fn name(self) -> &'static str {
                match self { $(Kernel::$variant => $name,)* }
            }
            fn entry(self) -> &'static str {
                match self { $(Kernel::$variant => include_str!(concat!("../entry/", $name, ".k")),)* }
            }
        }
    };
}

kernels! {
    /// Keys laid out, with the hash states after PK.seed.
    Keys "keys";
    /// WOTS+ chains from their secrets, to their ends or to a digit.
    Chains "chains";
    /// WOTS+ chains from a signature's values to their ends.
    Complete "complete";
    /// XMSS leaves from chain ends, and subtrees above.
    Xmss "xmss";
    /// XMSS subtrees above given nodes.
    XmssAbove "xmss_above";
    /// FORS leaves, and subtrees above.
    Fors "fors";
    /// FORS subtrees above given nodes.
    ForsAbove "fors_above";
    /// PK_FORS from the roots.
    ForsPk "fors_pk";
    /// WOTS+ signatures out of kept chain values.
    Select "wots_select";
    /// FORS roots from a signature.
    ForsClimb "fors_climb";
    /// XMSS roots from chain ends and a signature's path.
    Climb "climb";
    /// Paths and roots out of cached nodes.
    Cached "cached";
    /// As `Xmss`, for little work.
    XmssWide "xmss_wide";
    /// As `ForsPk`, for few jobs.
    ForsPkWide "fors_pk_wide";
    /// Revealed leaves once more, for the check of few signatures.
    LeafWide "leaf_wide";
    /// WOTS+ signatures out of kept chain values, and their check, for few signatures.
    Links "links";
    /// SHA-256 of messages.
    Sha256 "sha256";
    /// WOTS+ signatures that never change, kept and taken out.
    Stored "stored";
    /// XMSS leaves, and levels above: by threads that are lanes of a CPU's vectors, as the next three.
    LeafSolo "leaf_solo";
    /// FORS leaves, and levels above.
    ForsSolo "fors_solo";
    /// As `Complete` and `Climb`.
    ClimbSolo "climb_solo";
    /// As `ForsClimb`.
    ForsClimbSolo "fors_climb_solo";
    /// zkDilithium: ρ, ρ′ and `key` of seeds.
    ZkSeed "zk_seed";
    /// zkDilithium: ExpandA.
    ZkMatrix "zk_matrix";
    /// zkDilithium: ExpandS.
    ZkShort "zk_short";
    /// zkDilithium: t, and private keys but for tr.
    ZkPublic "zk_public";
    /// zkDilithium: tr.
    ZkTr "zk_tr";
    /// zkDilithium: keys' bytes made ready.
    ZkKeys "zk_keys";
    /// zkDilithium: Poseidon's sponge.
    ZkSponge "zk_sponge";
    /// zkDilithium: ρ″.
    ZkRho2 "zk_rho2";
    /// zkDilithium: ExpandY.
    ZkMask "zk_mask";
    /// zkDilithium: w and w₁.
    ZkCommit "zk_commit";
    /// zkDilithium: both norms, and the signature if they pass.
    ZkRespond "zk_respond";
    /// zkDilithium: the first attempt of each job that passes.
    ZkSelect "zk_select";
}

impl Kernel {
    /// Whether it is one of zkDilithium's.
    pub fn is_zk(self) -> bool {
        self >= Kernel::ZkSeed
    }
    /// Whether it is for threads that are lanes of a CPU's vectors: no GPU runs it.
    pub fn is_solo(self) -> bool {
        matches!(self, Kernel::LeafSolo | Kernel::ForsSolo | Kernel::ClimbSolo | Kernel::ForsClimbSolo)
    }
    /// Whether there is a Vulkan module of it. Not of those whose blocks share more than 16 kB, which not every device has:
    /// kernels for few signatures, and `Links`, which goes on from them; there is a kernel that does the same for each. And
    /// not of zkDilithium's.
    pub fn has_module(self) -> bool {
        !(self.is_zk() || matches!(self, Kernel::XmssWide | Kernel::ForsPkWide | Kernel::LeafWide | Kernel::Links))
    }
}

/// The arguments of every kernel; `args.h` says what each is. Addresses are the device's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Args {
    /// The keys, `KEY_WORDS` each.
    pub keys: u64,
    /// The jobs: key, idx_tree (high, low), idx_leaf, the revealed leaf of each FORS tree.
    pub jobs: u64,
    /// WOTS+ chain values, one a chain.
    pub ends: u64,
    /// All values of the revealed leaves' chains.
    pub trace: u64,
    /// Tree nodes, row by row.
    pub nodes: u64,
    /// What the kernel puts out.
    pub outs: u64,
    /// d + 1 nodes a job: what layer 0 signs, then the root of each layer.
    pub roots: u64,
    /// Signatures.
    pub sigs: u64,
    /// Which checks failed, and which roots passed.
    pub flag: u64,
    /// Threads' worth of work.
    pub total: u32,
    /// Leaves, units or trees: see each kernel.
    pub count: u32,
    /// k, a, h′ and d, eight bits each.
    pub shape0: u32,
    /// len, len1 and lg_w, eight bits each.
    pub shape1: u32,
    /// The first layer.
    pub layer0: u32,
    /// Layers a job.
    pub layers: u32,
    /// Height of the nodes that are given.
    pub base: u32,
    /// Levels to go up.
    pub up: u32,
    /// log₂ of the nodes that a block works on at a time.
    pub chunk: u32,
    /// Number of the first tree.
    pub first: u32,
    /// See [`flags`].
    pub flags: u32,
    /// 1, which the compiler does not know.
    pub one: u32,
    /// Leaves before the first that is worked on.
    pub skip: u32,
    /// (job, layer) pairs whose chain values are kept.
    pub rows: u32,
}
const _: () = assert!(size_of::<Args>() == 128, "args.h says so, and push constants hold no more");

impl Args {
    /// The shape of a set; all else 0.
    pub fn new(p: &Params) -> Args {
        let pack = |bytes: [usize; 4]| u32::from_le_bytes(bytes.map(|b| u8::try_from(b).expect("below 256")));
        let shape0 = pack([p.k, p.a, p.hp, p.d]);
        Args { shape0, shape1: pack([p.len(), p.len1(), p.lg_w, 0]), layers: 1, one: 1, ..Args::default() }
    }
}

/// Bits of [`Args::flags`]; see `args.h`.
pub mod flags {
    /// Authentication paths go to the signatures.
    pub const REVEAL: u32 = 1;
    /// All nodes go to `trace`, laid out as cached nodes.
    pub const KEEP: u32 = 2;
    /// Values of the revealed leaves' chains are kept.
    pub const TRACE: u32 = 8;
    /// Of each tree the revealed leaf alone.
    pub const ONLY: u32 = 16;
    /// The trees of one layer of key 0, from number `first` on.
    pub const ALL_TREES: u32 = 32;
    /// Of each tree the revealed leaf alone, up to the message's digits.
    pub const REPLAY: u32 = 64;
    /// Roots are compared with those that are there.
    pub const COMPARE: u32 = 256;
    /// One tree a key, tree 0 of its layer.
    pub const EACH_KEY: u32 = 512;
    /// Roots go to `roots` as bytes, one after the other.
    pub const TOPS: u32 = 1024;
    /// What else is asked for goes to the host's memory.
    pub const COPY: u32 = 2048;
    /// Messages lie where a table says.
    pub const SPANS: u32 = 4096;
    /// Messages begin at multiples of 16 bytes.
    pub const QUADS: u32 = 8192;
}

/// Words of a key on the device.
pub const KEY_WORDS: usize = 42;
/// Words of a job on the device before its k FORS leaves.
pub const JOB_WORDS: usize = 4;
/// Words of a block's tile of nodes.
pub const TILE_WORDS: usize = 4096;

/// What a build of a kernel is specialised for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The hash family.
    pub family: Family,
    /// Bytes of a node.
    pub n: usize,
    /// Choices of a policy that the compiler must know: `CHAINS_BLOCKS`, the blocks of [`MAX_THREADS`] that the chain
    /// kernel's registers leave room for; `IMAD`, a mask for `ADD` in `dialect.h`; `UNROLLED`, whether the rounds of
    /// SHA-512 and Keccak are; `FP64`, whether Poseidon sums products in doubles, for which zkDilithium's kernels (they
    /// know no family and no n either) ask; of SHA-256 of messages, which knows no family and no n, `MAX_THREADS` and
    /// `MIN_BLOCKS`, the blocks of that size that its registers leave room for. The same bytes come out with any.
    pub defines: Vec<(&'static str, u32)>,
}

/// What the default policies ask for: what [`ready`] has, where the build made it.
pub fn default_configs(family: Family, n: usize) -> Vec<Config> {
    defines::DEFAULTS.iter().map(|choices| Config { family, n, defines: choices.to_vec() }).collect()
}

/// The whole source of a kernel, without includes. Of choices that make no difference to it, it is the same.
pub fn source(kernel: Kernel, config: &Config) -> String {
    let mut text = String::new();
    for (name, value) in defines::defines(kernel.name(), number(config.family), config.n, &config.defines) {
        text += &format!("#define {name} {value}\n");
    }
    let mut included = Vec::new();
    include(kernel.entry(), &mut included, &mut text);
    text
}

/// The name of a kernel's Vulkan module: no choice of a policy makes a difference to it.
pub fn module_name(kernel: Kernel, family: Family, n: usize) -> String {
    let [(_, number), (_, n), ..] = defines::defines(kernel.name(), number(family), n, &[]);
    let name = defines::FAMILIES.iter().find(|(other, _)| *other == number).expect("all numbers are listed").1;
    format!("{}-{name}-{n}", kernel.name())
}

/// What kernels call a family.
fn number(family: Family) -> u32 {
    match family {
        Family::Sha2 => defines::SHA2,
        Family::Shake => defines::SHAKE,
    }
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
    for (name, value) in defines::defines(kernel.name(), number(family), n, &[]) {
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
/// The same of the files that only [solo](Kernel::is_solo) kernels use: CPUs' times depend on both.
pub const SOLO_FINGERPRINT: &str = env!("HYPERGROVE_KERNELS_SOLO");

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
                let imad = if !kernel.is_zk() && (family == Family::Sha2 || *kernel == Kernel::Sha256) { 3 } else { 0 };
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

    /// What `defines` takes for granted.
    #[test]
    fn choices_make_no_difference_elsewhere() {
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
