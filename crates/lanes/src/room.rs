//! Stacks for code that was compiled without optimisation.
//!
//! Every hash function is one large function with all its vectors in variables. With optimisation, variables live in registers.
//! Without optimisation each has a place of its own in the frame, and the frame is larger than a thread's stack of 2 MiB.
//! Only such builds have this module: programs in Cargo's dev profile that give no profile for this crate. They run every
//! batch on a thread of its own with a stack that is large enough; next to the batch the thread costs little.

use crate::{
    AdrsWords, BlockHash, Factors, Keys, Lattice, MessagePart, Primitive, Sha256, Shake, Steps, Trace, TweakableHash,
};

/// The largest frame measured has 3.3 MB: AVX-512, opt-level 0. Only the used part of a stack takes memory.
const STACK: usize = 32 << 20;

/// An implementation whose batches run on threads with a large stack.
pub(crate) fn with_room<T: ?Sized + NeedsRoom>(implementation: Box<T>) -> Box<T> {
    T::with_room(implementation)
}

pub(crate) trait NeedsRoom {
    fn with_room(implementation: Box<Self>) -> Box<Self>;
}

struct Roomy<T: ?Sized>(Box<T>);

/// Runs `work` on a thread with a large stack, and passes on its result or its panic.
fn run<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.expect("unoptimised code needs a thread of its own, which could not be started");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Passes methods on to the implementation: those of the first list as they are, those of the second on threads with a large stack.
macro_rules! roomy {
    ($trait:ident: $($plain:ident)*; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        impl NeedsRoom for dyn $trait {
            fn with_room(implementation: Box<dyn $trait>) -> Box<dyn $trait> {
                Box::new(Roomy(implementation))
            }
        }
        impl $trait for Roomy<dyn $trait> {
            $(fn $plain(&self) -> usize {
                self.0.$plain()
            })*
            $(fn $name(&self, $($arg: $type),*) $(-> $out)? {
                run(|| self.0.$name($($arg),*))
            })*
        }
    };
}

roomy! {
    TweakableHash: n lanes;
    fn prf(keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]);
    fn f(keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]);
    fn t_l(keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]);
    fn chain(keys: Keys<'_>, adrs: &[AdrsWords], w: usize, steps: Steps<'_>, nodes: &mut [u8], trace: Option<Trace<'_>>);
    fn primitive(which: Primitive, calls: u64) -> u64;
}

roomy! {
    Sha256: lanes;
    fn hash(messages: &[&[u8]], digests: &mut [[u8; 32]]);
    fn absorb(parts: &mut [MessagePart<'_>]);
}

roomy! {
    BlockHash:;
    fn sha512(state: &mut [u64; 8], blocks: &[[u8; 128]]);
    fn keccak(state: &mut [u64; 25], rate: usize, blocks: &[u8]);
}

roomy! {
    Lattice: lanes;
    fn rows(columns: &[i32], rows: &mut [f64]);
    fn columns(rows: &[f64], columns: &mut [i32]);
    fn uniform(stream: &[u8], out: &mut [i32]) -> bool;
    fn short(stream: &[u8], out: &mut [i32]) -> bool;
    fn pack_short(numbers: &[i32], out: &mut [u8]);
    fn ntt(polynomials: &mut [f64]);
    fn intt(polynomials: &mut [f64]);
    fn dot(factors: Factors<'_>, values: &[f64], out: &mut [f64]);
    fn dot_columns(factors: &[i32], values: &[f64], out: &mut [f64]);
    fn add(a: &mut [f64], b: &[f64]);
    fn add_norms(a: &mut [f64], b: &[f64], norms: &mut [f64]);
    fn high_parts(polynomials: &[f64], out: &mut [f64]);
    fn low_norms(a: &[f64], b: &[f64], norms: &mut [f64]);
    fn absorb(instances: usize, states: &mut [f64], elements: &[f64]);
    fn permute(instances: usize, states: &mut [f64]);
    fn squeeze(states: &[f64], out: &mut [f64]);
    fn shake(shake: Shake, inputs: &[u8], input_bytes: usize, outputs: &mut [u8], blocks: usize);
}
