#![doc = include_str!("../README.md")]

#[cfg(target_endian = "big")]
compile_error!("addresses are read as pairs of little-endian words: big-endian machines are not supported");

mod arch;
mod batch;
mod field;
mod keccak;
mod lattice;
mod ntt;
mod poseidon;
mod rates;
#[cfg(unoptimised)]
mod room;
mod sample;
mod sha2;
mod sha256;
mod simd;

pub use lattice::{Constants, Factors, Lattice, Rows, Shake};
pub use rates::rates;
pub use sample::SLACK;
pub use sha256::{MessagePart, SHA256_START, Sha256};

use hypergrove_fips205::Family;
pub use hypergrove_fips205::digest::BlockHash;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The eight words of an ADRS (FIPS 205, 4.2).
pub type AdrsWords = [u32; 8];

/// One key, prepared for hashing: its seeds, and the hash states after the block that PK.seed fills alone.
pub struct KeyState {
    pk_seed: [u8; 32],
    sk_seed: [u8; 32],
    mid256: [u32; 8],
    mid512: [u64; 8],
}

impl Drop for KeyState {
    fn drop(&mut self) {
        let KeyState { pk_seed, sk_seed, mid256, mid512 } = self;
        pk_seed.zeroize();
        sk_seed.zeroize();
        mid256.zeroize();
        mid512.zeroize();
    }
}

impl ZeroizeOnDrop for KeyState {}

impl KeyState {
    /// Prepares a key from PK.seed and SK.seed, n bytes each. Only key generation and signing need SK.seed; otherwise it may be empty.
    pub fn new(pk_seed: &[u8], sk_seed: &[u8]) -> KeyState {
        let pad = |seed: &[u8]| {
            let mut padded = [0; 32];
            padded[..seed.len()].copy_from_slice(seed);
            padded
        };
        let (mid256, mid512) = sha2::midstates(pk_seed);
        KeyState { pk_seed: pad(pk_seed), sk_seed: pad(sk_seed), mid256, mid512 }
    }
}

/// The keys of a call's jobs.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// One key for all jobs.
    One(&'a KeyState),
    /// Each job has the key `keys[of[job]]`.
    Of {
        /// The keys.
        keys: &'a [KeyState],
        /// The key of each job.
        of: &'a [u32],
    },
}

/// The steps that jobs take along chains of w values.
#[derive(Clone, Copy)]
pub enum Steps<'a> {
    /// From the first value to the last.
    All,
    /// From value `start[job]` to the last, for verification. The starts are public.
    From(&'a [u8]),
    /// From the first value to value `end[job]`, for signing. The ends are public, since the signature shows them.
    To(&'a [u8]),
}

/// Memory in which all values of some chains are kept.
pub struct Trace<'a> {
    /// For each job the number of its chain in `out`, or [`Trace::NONE`].
    pub chains: &'a [u32],
    /// The values: value i of chain c begins at byte (c·w + i)·n.
    pub out: &'a mut [u8],
}

impl Trace<'_> {
    /// Marks a job whose values are not kept.
    pub const NONE: u32 = u32::MAX;
}

/// PRF, F, H and T_l of one family and n, over batches (FIPS 205, 11.1 and 11.2).
///
/// Job i has address `adrs[i]`, and row i, of n bytes, of `nodes` and `out` (for T_l, l rows of `nodes`). Slices must have exactly as many rows
/// as there are addresses; anything else panics. Running time depends on the number of jobs and on [`Steps`], never on seeds or nodes.
pub trait TweakableHash: Send + Sync {
    /// n, in bytes.
    fn n(&self) -> usize;
    /// Jobs that fill the widest group of lanes. Fewer jobs take as long.
    fn lanes(&self) -> usize;
    /// PRF(PK.seed, SK.seed, ADRS).
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]);
    /// F(PK.seed, ADRS, node), in place.
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]);
    /// H (l = 2) and T_l(PK.seed, ADRS, l nodes).
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]);
    /// chain (FIPS 205, Algorithm 5) in place, w values a chain; `adrs` has hash address 0.
    fn chain(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        w: usize,
        steps: Steps<'_>,
        nodes: &mut [u8],
        trace: Option<Trace<'_>>,
    );
    /// Runs a bare primitive `calls` times on [`lanes`](Self::lanes)-many states in registers, for [`rates()`] to time. Returns how many
    /// compressions that were.
    #[doc(hidden)]
    fn primitive(&self, which: Primitive, calls: u64) -> u64;
}

/// Implements [`BlockHash`] by one instruction set.
struct OneMessage<T>(T);

impl<T: simd::Simd> BlockHash for OneMessage<T> {
    #[inline(never)]
    fn sha512(&self, state: &mut [u64; 8], blocks: &[[u8; 128]]) {
        self.0.sha512_blocks(state, blocks);
    }
    #[inline(never)]
    fn keccak(&self, state: &mut [u64; 25], rate: usize, blocks: &[u8]) {
        assert!(rate.is_multiple_of(8) && (8..=200).contains(&rate), "a rate is a number of whole words of the state");
        keccak::absorb(self.0, state, rate, blocks);
    }
}

/// The primitives that [`rates()`] measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
pub enum Primitive {
    Sha256,
    Sha512,
    Keccak,
}

/// An implementation that needs no more stack than a thread has. With optimisation, every implementation is one already.
#[cfg(not(unoptimised))]
fn with_room<T: ?Sized>(implementation: Box<T>) -> Box<T> {
    implementation
}
#[cfg(unoptimised)]
use room::with_room;

macro_rules! isas {
    ($($(#[$meta:meta])* $isa:ident = $name:literal: $token:path;)*) => {
        /// The instruction sets.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Isa {
            $($(#[$meta])* #[doc = concat!("`", $name, "`: see ", stringify!($token))] $isa,)*
        }
        impl Isa {
            /// Every set of this architecture, whether the CPU has it or not.
            pub const ALL: &[Isa] = &[$($(#[$meta])* Isa::$isa,)*];
            /// The set's name on the command line.
            pub fn name(self) -> &'static str {
                match self { $($(#[$meta])* Isa::$isa => $name,)* }
            }
            /// Whether this CPU has the set.
            pub fn detect(self) -> bool {
                use simd::Simd;
                match self { $($(#[$meta])* Isa::$isa => <$token>::detect().is_some(),)* }
            }
        }
        /// The hash functions of a family and n ∈ {16, 24, 32} by an instruction set; `None` if the CPU lacks it.
        pub fn tweakable_hash(isa: Isa, family: Family, n: usize) -> Option<Box<dyn TweakableHash>> {
            use simd::Simd;
            match isa { $($(#[$meta])* Isa::$isa => instance(<$token>::detect()?, family, n),)* }.map(with_room)
        }
        /// SHA-256 of messages by an instruction set; `None` if the CPU lacks it.
        pub fn sha256(isa: Isa) -> Option<Box<dyn Sha256>> {
            use simd::Simd;
            Some(with_room(match isa { $($(#[$meta])* Isa::$isa => Box::new(sha256::Messages(<$token>::detect()?)),)* }))
        }
        /// Hash functions of one message by an instruction set; `None` if the CPU lacks it.
        pub fn block_hash(isa: Isa) -> Option<Box<dyn BlockHash>> {
            use simd::Simd;
            Some(with_room(match isa { $($(#[$meta])* Isa::$isa => one_message(<$token>::detect()?),)* }))
        }
        /// Lattice arithmetic by an instruction set, in the narrowest or the fastest groups; `None` if the CPU lacks
        /// it.
        pub fn lattice(isa: Isa, width: Width, constants: &Constants<'_>) -> Option<Box<dyn Lattice>> {
            use simd::Simd;
            match isa { $($(#[$meta])* Isa::$isa => arithmetic(<$token>::detect()?, width, constants),)* }.map(with_room)
        }
    };
}

isas! {
    #[cfg(target_arch = "x86_64")]
    Avx512Sha = "avx512-sha": arch::avx512::Avx512Sha;
    #[cfg(target_arch = "x86_64")]
    Avx512 = "avx512": arch::avx512::Avx512;
    #[cfg(target_arch = "x86_64")]
    Avx2Sha = "avx2-sha": arch::avx2::Avx2Sha;
    #[cfg(target_arch = "x86_64")]
    Avx2 = "avx2": arch::avx2::Avx2;
    #[cfg(target_arch = "aarch64")]
    Neon = "neon": arch::neon::Neon;
    Portable = "portable": arch::portable::Portable;
}

impl Isa {
    /// The set of this name.
    pub fn by_name(name: &str) -> Option<Isa> {
        Isa::ALL.iter().copied().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }
    /// The sets that this CPU has, usually the fastest first. [`Isa::fastest`] measures which one it is.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.iter().copied().filter(|isa| isa.detect()).collect()
    }
}

impl Isa {
    /// The set that computes F along chains fastest on this CPU. Measuring takes about 0.2 ms for each set that the CPU has. The fastest set
    /// depends on ports and latencies, which no feature flag reports.
    pub fn fastest() -> Isa {
        let (jobs, n) = (64, 16);
        let key = KeyState::new(&[1; 16], &[]);
        let adrs: Vec<AdrsWords> = (0..jobs).map(|i| [0, 0, 0, 0, 0, 0, i, 0]).collect();
        let mut nodes = vec![2; jobs as usize * n];
        let mut race = |isa: Isa| {
            let hash = tweakable_hash(isa, Family::Sha2, n).expect("available");
            let mut best = std::time::Duration::MAX;
            for _ in 0..4 {
                let start = std::time::Instant::now();
                hash.chain(Keys::One(&key), &adrs, 32, Steps::All, &mut nodes, None);
                best = best.min(start.elapsed());
            }
            best
        };
        // Sets that cannot win are not measured: the portable code, and AVX-512 without SHA instructions if the CPU has them.
        let mut racers = Isa::available();
        #[cfg(target_arch = "x86_64")]
        if racers.contains(&Isa::Avx512Sha) {
            racers.retain(|isa| *isa != Isa::Avx512);
        }
        racers.retain(|isa| *isa != Isa::Portable);
        racers.into_iter().min_by_key(|isa| race(*isa)).unwrap_or(Isa::Portable)
    }
}

/// The implementations. Only the family, and n for SHA-256's chains, are fixed at compile time; all else that depends on a parameter set is a
/// run-time value.
fn instance<T: simd::Simd>(token: T, family: Family, n: usize) -> Option<Box<dyn TweakableHash>> {
    Some(match (family, n) {
        (Family::Sha2, 16) => Box::new(sha2::Sha2::<T, 16>(token)),
        (Family::Sha2, 24) => Box::new(sha2::Sha2::<T, 24>(token)),
        (Family::Sha2, 32) => Box::new(sha2::Sha2::<T, 32>(token)),
        (Family::Shake, 16 | 24 | 32) => Box::new(keccak::Shake { token: token.plain(), n }),
        (Family::Sha2 | Family::Shake, _) => return None,
    })
}

/// Compiled without SHA instructions, which neither SHA-512 nor Keccak uses.
fn one_message<T: simd::Simd>(token: T) -> Box<dyn BlockHash> {
    Box::new(OneMessage(token.plain()))
}

fn arithmetic<T: simd::Simd>(token: T, width: Width, constants: &Constants<'_>) -> Option<Box<dyn Lattice>> {
    Some(match width {
        Width::Narrow => Box::new(lattice::VectorLattice::<T::Plain, <T::Plain as simd::Simd>::Doubles>::new(
            token.plain(),
            constants,
        )),
        Width::Wide => Box::new(lattice::VectorLattice::<T::Plain, <T::Plain as simd::Simd>::DoublesWide>::new(
            token.plain(),
            constants,
        )),
    })
}

/// How many jobs run in parallel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// One vector, which takes the least time for few jobs.
    Narrow,
    /// As many vectors as are fastest for many jobs.
    Wide,
}
