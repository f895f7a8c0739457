//! The list of kernels. The build script has this file too.

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
            pub(crate) fn entry(self) -> &'static str {
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
    /// As `Climb`, two threads for each hash of SHA-512.
    ClimbPaired "climb_paired";
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
    /// R, and what messages' digests select.
    Digest "digest";
    /// Whether signatures that were computed twice are the same.
    Compare "compare";
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
    /// zkDilithium: Poseidon's sponge on tensor cores.
    ZkTensor "zk_tensor";
    /// zkDilithium: the same for few instances.
    ZkTensorFew "zk_tensor_few";
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
    /// The name of its scheme, if that is another than SLH-DSA.
    pub fn other_scheme(self) -> Option<&'static str> {
        self.is_zk().then_some(hypergrove_zkdilithium::params::NAME)
    }
    /// Whether it is for threads that are lanes of a CPU's vectors: no GPU runs it.
    pub fn is_for_cpu(self) -> bool {
        matches!(self, Kernel::LeafSolo | Kernel::ForsSolo | Kernel::ClimbSolo | Kernel::ForsClimbSolo)
    }
    /// Whether it needs tensor cores, which only CUDA's devices have: neither the host nor Vulkan runs it.
    pub fn needs_tensor_cores(self) -> bool {
        matches!(self, Kernel::ZkTensor | Kernel::ZkTensorFew)
    }
    /// Whether there is a Vulkan module of it. zkDilithium's kernels have none. Nor have those whose blocks share more than 16 kB, which not every
    /// device has: kernels for few signatures, and `Links`, which goes on from them. With `ClimbPaired` lavapipe computes wrong roots. There is
    /// a kernel that does the same for each of these.
    pub fn has_module(self) -> bool {
        use Kernel::{ClimbPaired, ForsPkWide, LeafWide, Links, XmssWide};
        !(self.is_zk() || matches!(self, XmssWide | ForsPkWide | LeafWide | Links | ClimbPaired))
    }
}

/// The headers of host/kernels.cpp and host/zk.cpp, by their names: the files of their kernels, and a case of a `switch` for each.
pub fn host_headers() -> [(&'static str, String); 2] {
    let list = |is_zk| {
        let kernels = Kernel::ALL.iter().filter(move |kernel| kernel.is_zk() == is_zk && !kernel.needs_tensor_cores());
        let files = kernels.clone().map(|kernel| format!("#include \"entry/{}.k\"\n", kernel.name()));
        let cases = kernels.map(|kernel| format!(" CASE({}, {})", *kernel as u32, kernel.name()));
        format!("{}#define CASES{}\n", files.collect::<String>(), cases.collect::<String>())
    };
    [("slh_dsa.h", list(false)), ("zkdilithium.h", list(true))]
}
