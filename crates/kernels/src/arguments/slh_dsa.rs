//! The arguments of SLH-DSA's kernels. Arguments that several kernels read alike are a group.

use super::{Arguments, arguments, flag};
use crate::flags::{ALL_TREES, EACH_KEY, KEEP, ONLY, REPLAY, REVEAL, TOPS, TRACE};
use crate::{Args, Kernel};
use hypergrove_fips205::Params;

/// The arguments about jobs, which every kernel of a set reads.
#[derive(Clone, Copy, Debug)]
pub struct JobArguments {
    /// The set.
    pub params: &'static Params,
    /// `KEY_WORDS` words a key.
    pub keys: u64,
    /// `JOB_WORDS + k` words a job: its key, and what it selects.
    pub jobs: u64,
}

impl JobArguments {
    fn put(self, args: &mut Args) {
        let p = self.params;
        let pack = |bytes: [usize; 4]| u32::from_le_bytes(bytes.map(|b| u8::try_from(b).expect("below 256")));
        (args.shape0, args.shape1) = (pack([p.k, p.a, p.hp, p.d]), pack([p.len(), p.len1(), p.lg_w, 0]));
        (args.keys, args.jobs) = (self.keys, self.jobs);
    }
}

/// Layers of each job.
#[derive(Clone, Copy, Debug)]
pub struct Layers {
    /// The lowest.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Layers {
    fn put(self, args: &mut Args) {
        (args.layer0, args.layers) = (self.first, self.count);
    }
}

/// Which XMSS trees are grown.
#[derive(Clone, Copy, Debug)]
pub enum Trees {
    /// Those that jobs select in some layers.
    Selected(Layers),
    /// Tree 0 of a layer, once for each key.
    OfKeys {
        /// The layer.
        layer: u32,
    },
    /// Trees of a layer of the first key.
    OfLayer {
        /// The layer.
        layer: u32,
        /// Number of the first tree.
        first: u32,
    },
}

impl Trees {
    fn put(self, args: &mut Args) {
        let (layers, flags) = match self {
            Trees::Selected(layers) => (layers, 0),
            Trees::OfKeys { layer } => (Layers { first: layer, count: 1 }, EACH_KEY),
            Trees::OfLayer { layer, first } => {
                args.first = first;
                (Layers { first: layer, count: 1 }, ALL_TREES)
            }
        };
        layers.put(args);
        args.flags |= flags;
    }
}

/// Where values of the revealed leaves' chains are kept.
#[derive(Clone, Copy, Debug)]
pub struct KeptChains {
    /// All values: word planes.
    pub values: u64,
    /// (job, layer) pairs that have chains there.
    pub units: u32,
}

impl KeptChains {
    fn put(self, args: &mut Args) {
        (args.trace, args.rows) = (self.values, self.units);
        args.flags |= TRACE;
    }
}

/// Where the nodes of XMSS trees go.
#[derive(Clone, Copy, Debug)]
pub struct Destinations {
    /// The highest nodes of a launch, unless they are roots.
    pub nodes: u64,
    /// Roots.
    pub roots: Roots,
    /// Signatures, which get the authentication paths.
    pub paths: Option<u64>,
    /// All nodes, laid out as cached nodes.
    pub all: Option<u64>,
}

/// Where roots go.
#[derive(Clone, Copy, Debug)]
pub enum Roots {
    /// To what the next layer signs: d + 1 nodes a job.
    Signed(u64),
    /// One after the other, as bytes.
    Bytes(u64),
}

impl Destinations {
    fn put(self, args: &mut Args) {
        args.outs = self.nodes;
        match self.roots {
            Roots::Signed(roots) => args.roots = roots,
            Roots::Bytes(roots) => {
                args.roots = roots;
                args.flags |= TOPS;
            }
        }
        if let Some(signatures) = self.paths {
            args.sigs = signatures;
            args.flags |= REVEAL;
        }
        if let Some(all) = self.all {
            args.trace = all;
            args.flags |= KEEP;
        }
    }
}

/// How blocks reduce nodes.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// The nodes' height.
    pub base: u32,
    /// How many there are.
    pub count: u32,
    /// log₂ of those that a block takes at a time.
    pub chunk: u32,
    /// Levels to go up.
    pub up: u32,
}

impl Tiles {
    fn put(self, args: &mut Args) {
        (args.base, args.count, args.chunk, args.up) = (self.base, self.count, self.chunk, self.up);
    }
}

/// From a signature's chains up to the roots.
#[derive(Clone, Copy, Debug)]
pub struct Climbing {
    /// The jobs.
    pub jobs: JobArguments,
    /// Their layers.
    pub layers: Layers,
    /// Signatures.
    pub signatures: u64,
    /// PK_FORS and the layers' roots: d + 1 nodes a job.
    pub roots: u64,
    /// Where it is noted that a root is the one at `roots`; without it roots are stored there.
    pub agrees: Option<u64>,
    /// Where roots go as bytes too, one a job, if there is one layer.
    pub tops: Option<u64>,
}

impl Climbing {
    fn put(self, args: &mut Args) {
        self.jobs.put(args);
        self.layers.put(args);
        (args.sigs, args.roots) = (self.signatures, self.roots);
        if let Some(flag) = self.agrees {
            args.flag = flag;
            args.flags |= crate::flags::COMPARE;
        }
        if let Some(tops) = self.tops {
            args.outs = tops;
            args.flags |= TOPS;
        }
    }
}

arguments! {
    /// Keys laid out. A thread a key.
    LayOutKeys for Keys => {
        /// Of each key both seeds and the address of its cached nodes.
        seeds: u64 => nodes,
        /// `KEY_WORDS` words a key.
        keys: u64 => keys,
    }
    /// R, and what a message's digest selects. A thread a job.
    HashMessages for Digest => {
        /// The digest's selection goes to their `jobs`.
        jobs: JobArguments => group,
        /// `BETWEEN` words a job, then the jobs' rows, then the keys'.
        messages: u64 => nodes,
        /// Words of a job's row.
        row_words: u32 => count,
        /// Where R goes or comes from.
        signatures: u64 => sigs,
        /// Whether R is made.
        makes_r: bool => flags: SIGN,
    }
    /// Whether signatures that were computed twice are the same. A block a job.
    CompareSignatures for Compare => {
        /// The first time's signatures.
        first: u64 => sigs,
        /// The second time's: each job's lies in the place before its own, the first job's in the last.
        second: u64 => outs,
        /// Words of a signature.
        words: u32 => count,
        /// Words that each begins with and that are not compared.
        skip: u32 => skip,
        /// Where it is noted that a job's signatures agree.
        agrees: u64 => flag,
    }
    /// All chains of leaves, to their ends. A thread a chain.
    GrowChains for Chains => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The leaves' trees.
        trees: Trees => group,
        /// Leaves before the first.
        skip: u32 => skip,
        /// Leaves.
        leaves: u32 => count,
        /// The chains' ends.
        ends: u64 => ends,
        /// The revealed leaves' values, if they are kept.
        kept: Option<KeptChains> => groups,
    }
    /// The chains of revealed leaves alone, to their ends. A thread a chain.
    KeepChains for Chains, flags of _it: ONLY => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// The chains' ends.
        ends: u64 => ends,
        /// Their values.
        kept: KeptChains => group,
    }
    /// The chains of revealed leaves, to the digits of what they sign. A thread a chain.
    SignChains for Chains, flags of _it: REPLAY => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// PK_FORS and the layers' roots, which are signed: d + 1 nodes a job.
        roots: u64 => roots,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// Chains from a signature's values to their ends. A thread a chain.
    CompleteChains for Complete => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// How many chains a block sorts at a time.
        chunk: u32 => chunk,
        /// PK_FORS and the layers' roots, which were signed: d + 1 nodes a job.
        roots: u64 => roots,
        /// Signatures.
        signatures: u64 => sigs,
        /// The chains' ends.
        ends: u64 => ends,
    }
    /// XMSS leaves from their chains' ends, and levels above them. A block a tile.
    XmssLeaves for Xmss => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The leaves' trees.
        trees: Trees => group,
        /// Leaves before the first.
        skip: u32 => skip,
        /// The leaves.
        tiles: Tiles => group,
        /// The chains' ends.
        ends: u64 => ends,
        /// Where nodes go.
        to: Destinations => group,
    }
    /// XMSS nodes, and levels above them. A block a tile.
    XmssNodes for XmssAbove => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The nodes' trees.
        trees: Trees => group,
        /// The nodes.
        tiles: Tiles => group,
        /// Where the nodes are.
        nodes: u64 => nodes,
        /// Where nodes above go.
        to: Destinations => group,
    }
    /// XMSS leaves from their secrets, and levels above them. A thread 2^`up` leaves.
    XmssOnCpu for LeafSolo => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The leaves' trees.
        trees: Trees => group,
        /// Leaves before the first.
        skip: u32 => skip,
        /// Levels to go up.
        up: u32 => up,
        /// Where nodes go.
        to: Destinations => group,
    }
    /// FORS secrets and leaves, and levels above them. A block a tile.
    ForsLeaves for Fors, flags of _it: REVEAL => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The leaves.
        tiles: Tiles => group,
        /// The highest nodes, unless they are roots.
        to: u64 => outs,
        /// k roots a job.
        roots: u64 => roots,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// FORS nodes, and levels above them. A block a tile.
    ForsNodes for ForsAbove, flags of _it: REVEAL => {
        /// The jobs.
        jobs: JobArguments => group,
        /// The nodes.
        tiles: Tiles => group,
        /// Where the nodes are.
        nodes: u64 => nodes,
        /// The highest nodes, unless they are roots.
        to: u64 => outs,
        /// k roots a job.
        roots: u64 => roots,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// FORS leaves and levels above them. A thread 2^`up` leaves.
    ForsLeavesOnCpu for ForsSolo => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Levels to go up.
        up: u32 => up,
        /// The highest nodes.
        to: u64 => outs,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// PK_FORS. A thread a job.
    HashForsRoots for ForsPk => {
        /// The jobs.
        jobs: JobArguments => group,
        /// k roots a job.
        fors_roots: u64 => nodes,
        /// PK_FORS and the layers' roots: PK_FORS is the first node of each job.
        roots: u64 => roots,
    }
    /// FORS roots from signatures. A thread a (job, tree).
    ClimbFors for ForsClimb => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Signatures.
        signatures: u64 => sigs,
        /// k roots a job.
        fors_roots: u64 => roots,
    }
    /// From the ends of a signature's chains to roots. A thread a (job, layer).
    ClimbFromEnds for Climb => {
        /// The jobs, their layers, signatures and roots.
        climbing: Climbing => group,
        /// The chains' ends.
        ends: u64 => ends,
    }
    /// As [`ClimbFromEnds`], with two threads a (job, layer).
    ClimbInPairs for ClimbPaired => {
        /// The jobs, their layers, signatures and roots.
        climbing: Climbing => group,
        /// The chains' ends.
        ends: u64 => ends,
    }
    /// From a signature's chain values to roots. A thread a (job, layer).
    ClimbFromValues for ClimbSolo => {
        /// The jobs, their layers, signatures and roots.
        climbing: Climbing => group,
    }
    /// Paths and roots out of cached nodes. A thread a (job, layer).
    ReadCached for Cached => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// PK_FORS and the layers' roots: d + 1 nodes a job.
        roots: u64 => roots,
        /// Signatures, which get the paths.
        signatures: u64 => sigs,
    }
    /// WOTS+ signatures of cached roots, to their rows behind the nodes. A block a (job, layer).
    StoreSignatures for Stored, flags of _it: KEEP => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// Where rows begin behind the nodes' address, in 64 words.
        rows_at: u32 => base,
        /// Signatures.
        signatures: u64 => sigs,
    }
    /// WOTS+ signatures of cached roots, from their rows. A block a (job, layer).
    FetchSignatures for Stored => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// Where rows begin behind the nodes' address, in 64 words.
        rows_at: u32 => base,
        /// Signatures whose authentication paths are there.
        paths: u64 => sigs,
        /// Signatures that get the WOTS+ signatures.
        signatures: u64 => outs,
        /// Where it is noted that a row's sum is right.
        agrees: u64 => flag,
    }
    /// The revealed leaves from the ends of their kept chains. A block a (job, layer).
    LeavesAgain for LeafWide => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// All values of their chains.
        values: u64 => trace,
        /// The leaves.
        leaves: u64 => outs,
    }
    /// WOTS+ signatures out of kept chain values, and their check. A thread a (step, chain, job and layer), with `compares` one a
    /// (job, layer); more threads copy a word each, of the roots, then of what else signatures have.
    LinkChains for Links => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// All values of their chains.
        values: u64 => trace,
        /// The leaves that the last values make.
        leaves: u64 => nodes,
        /// PK_FORS and the layers' roots: d + 1 nodes a job.
        roots: u64 => roots,
        /// Signatures, which have all but the WOTS+ signatures.
        signatures: u64 => sigs,
        /// Signatures on the host, which get the WOTS+ signatures.
        to: u64 => ends,
        /// Where words at `roots` go.
        roots_to: u64 => outs,
        /// How many.
        root_words: u32 => chunk,
        /// Where it is noted that a chain is wrong, or that a root is right.
        agrees: u64 => flag,
        /// Whether values and roots are compared.
        compares: bool => flags: COMPARE,
    }
    /// WOTS+ signatures out of kept chain values. A thread a (chain, job and layer).
    SelectValues for Select => {
        /// The jobs.
        jobs: JobArguments => group,
        /// Their layers.
        layers: Layers => group,
        /// (job, layer) pairs.
        units: u32 => count,
        /// All values of their chains.
        values: u64 => trace,
        /// PK_FORS and the layers' roots, which are signed: d + 1 nodes a job.
        roots: u64 => roots,
        /// Signatures.
        signatures: u64 => sigs,
    }
}

/// The arguments of `A`, for the kernel whose blocks work together on little work.
#[derive(Clone, Copy, Debug)]
pub struct Cooperative<A>(pub A);

/// The arguments of `A`, for the kernel whose threads are lanes of a CPU's vectors.
#[derive(Clone, Copy, Debug)]
pub struct OnCpu<A>(pub A);

macro_rules! same_arguments {
    ($($other:ident<$name:ident> for $kernel:ident;)*) => {$(
        impl Arguments for $other<$name> {
            const KERNEL: Kernel = Kernel::$kernel;
            fn args(self, total: u32) -> Args {
                self.0.args(total)
            }
        }
    )*};
}

same_arguments! {
    Cooperative<XmssLeaves> for XmssWide;
    Cooperative<HashForsRoots> for ForsPkWide;
    OnCpu<ClimbFors> for ForsClimbSolo;
}
