//! zkDilithium by the batch: as many instances in parallel as there are lanes.
//!
//! A lane of signing is one attempt at a signature. With many open messages, each has one lane. With fewer messages than lanes, the other
//! lanes run ahead with later κ of the same messages, and the smallest κ that passes gives the signature. A message that is done makes room
//! for the next at once.

mod keygen;
mod lanes;
mod program;
mod sign;
mod verify;

use crate::share::{self, Next, Offer};
use hypergrove_engine::trace::{Step, TraceContext};
use hypergrove_engine::wiped;
use hypergrove_lanes::{Constants, Isa, Lattice, Width, lattice};
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::keys::DecodedSignature;
use hypergrove_zkdilithium::params::{SEED_BYTES, ZETA};
use hypergrove_zkdilithium::poseidon::{ANTIDIAGONALS, ROUND_CONSTANTS, hankel_factors};
use hypergrove_zkdilithium::{
    ExpandedSigningKey, ExpandedVerifyingKey, Signature, SignatureBytes, SigningKey, SigningKeyBytes,
};
use lanes::{Lanes, Scratch};
pub use program::LatticeWrapper;
use sign::SignTask;
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroize;

/// zkDilithium by one instruction set.
pub struct ZkDilithium {
    isa: Isa,
    /// Whether only the calling thread computes.
    alone: bool,
    /// Arithmetic for few jobs, and for many.
    narrow: Box<dyn Lattice>,
    wide: Box<dyn Lattice>,
    scratch: [Pool; 2],
    /// Instances are moved by so many lanes.
    turn: usize,
}

type Pool = Mutex<Vec<Scratch>>;

/// A signature that is to be made.
#[derive(Clone, Copy)]
pub struct Sign<'a> {
    /// The key that signs.
    pub key: &'a ExpandedSigningKey,
    /// The message that is signed.
    pub message: Message<'a>,
}

/// A signature that is to be verified.
#[derive(Clone, Copy)]
pub struct Verify<'a> {
    /// The key that should have signed.
    pub key: &'a ExpandedVerifyingKey,
    /// The message that should be signed.
    pub message: Message<'a>,
    /// The signature, of any length.
    pub signature: &'a [u8],
}

impl ZkDilithium {
    /// Computes by this instruction set. `None` if the CPU lacks it.
    pub fn with(isa: Isa) -> Option<ZkDilithium> {
        let round_constants: Vec<u32> = ROUND_CONSTANTS.iter().flatten().map(|x| x.value()).collect();
        let matrix: Vec<u32> = hankel_factors().iter().map(|x| x.value()).collect();
        let antidiagonals: Vec<u32> = ANTIDIAGONALS.iter().map(|x| x.value()).collect();
        let constants =
            Constants { zeta: ZETA, round_constants: &round_constants, matrix: &matrix, antidiagonals: &antidiagonals };
        Some(ZkDilithium {
            isa,
            alone: false,
            narrow: lattice(isa, Width::Narrow, &constants)?,
            wide: lattice(isa, Width::Wide, &constants)?,
            scratch: Default::default(),
            turn: 0,
        })
    }
    /// Computes every instance in the next lane. The results differ from the usual ones if a lane is faulty.
    #[must_use]
    pub fn relocated(self) -> ZkDilithium {
        ZkDilithium { turn: 1, ..self }
    }
    /// Computes over other arithmetic, for tests that put faults in.
    #[doc(hidden)]
    #[must_use]
    pub fn over(self, wrap: &dyn Fn(Box<dyn Lattice>) -> Box<dyn Lattice>) -> ZkDilithium {
        ZkDilithium { narrow: wrap(self.narrow), wide: wrap(self.wide), ..self }
    }
    /// Computes on the calling thread alone, even if it belongs to a pool.
    #[must_use]
    pub fn alone(self) -> ZkDilithium {
        ZkDilithium { alone: true, ..self }
    }
    /// Instances of the narrowest group.
    #[doc(hidden)]
    pub fn lanes(&self) -> usize {
        self.narrow.lanes()
    }
    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes that each thread works in: scratch for lanes of either width, and the decoded signatures of a group's jobs.
    pub fn thread_bytes(&self) -> usize {
        let scratch = [&self.narrow, &self.wide].map(|lattice| Scratch::bytes(lattice.lanes()));
        scratch.iter().sum::<usize>() + MOST * size_of::<DecodedSignature>()
    }

    /// Cycles of a core for a Poseidon permutation, at least: 21 rounds of 897 operations on the multiply-add pipes, two of them a cycle. They
    /// serve as many states as a vector has lanes (docs/zkdilithium.md). `None` for CPUs with other pipes.
    pub fn poseidon_cycles(&self) -> Option<f64> {
        #[cfg(target_arch = "x86_64")]
        let lanes = match self.isa {
            Isa::Avx512 | Isa::Avx512Sha => Some(8.0),
            Isa::Avx2 | Isa::Avx2Sha => Some(4.0),
            Isa::Portable => None,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let lanes = None;
        lanes.map(|lanes: f64| 21.0 * 897.0 / 2.0 / lanes)
    }

    /// The keys of these seeds, in their order.
    pub fn keygen(&self, seeds: &[[u8; SEED_BYTES]]) -> Vec<SigningKey> {
        let mut keys: Vec<SigningKey> = seeds.iter().map(|_| SigningKey::zeros()).collect();
        self.keygen_into(seeds, &mut keys.iter_mut().map(SigningKey::secret_bytes_mut).collect::<Vec<_>>());
        keys
    }
    /// Writes the keys of these seeds to the caller's memory, which has a place for each seed.
    pub fn keygen_into(&self, seeds: &[[u8; SEED_BYTES]], keys: &mut [&mut SigningKeyBytes]) {
        assert_eq!(seeds.len(), keys.len(), "a place for each seed");
        let sizes = share::sizes(seeds.len(), self.threads(), self.wide.lanes(), MOST);
        self.in_wiped_lanes(seeds.len(), groups(sizes, seeds, keys).collect(), |lanes, next, _| {
            let mut count = 0;
            while let Some((seeds, keys)) = next() {
                lanes.keygen(seeds, keys);
                count += seeds.len();
            }
            count
        });
    }
    /// The signatures, in the order of the jobs.
    pub fn sign(&self, jobs: &[Sign<'_>]) -> Vec<Signature> {
        let mut signatures: Vec<Signature> = jobs.iter().map(|_| Signature::zeros()).collect();
        self.sign_into(jobs, &mut signatures.iter_mut().map(Signature::bytes_mut).collect::<Vec<_>>());
        signatures
    }
    /// Writes the signatures to the caller's memory, which has a place for each job.
    pub fn sign_into(&self, jobs: &[Sign<'_>], signatures: &mut [&mut SignatureBytes]) {
        assert_eq!(jobs.len(), signatures.len(), "a place for each job");
        let sizes = share::sizes(jobs.len(), self.threads(), LEAST_TO_SIGN, MOST);
        let tasks = groups(sizes, jobs, signatures).map(SignTask::Group).collect();
        self.in_wiped_lanes(jobs.len(), tasks, |lanes, next, offer| lanes.sign(next, offer));
    }
    /// The verdicts, in the order of the jobs.
    pub fn verify(&self, jobs: &[Verify<'_>]) -> Vec<bool> {
        let (mut verdicts, threads, trace) = (vec![false; jobs.len()], self.threads(), TraceContext::current());
        let sizes = share::sizes(jobs.len(), threads, self.wide.lanes(), MOST);
        share::by_threads(threads, groups(sizes, jobs, &mut verdicts).collect(), |next, _| {
            while let Some((jobs, places)) = next() {
                let verify = || self.on_lanes(jobs.len(), |lanes| lanes.verify(jobs, places));
                trace.step(Step::Group, jobs.len(), verify);
            }
        });
        verdicts
    }

    /// Shares tasks of so many jobs out among the threads of the current pool. Outside of any pool, the calling thread does all of them. Wiping the lanes
    /// takes as long as making a key, so a thread wipes them once, after its last task. `work` gives its number of jobs.
    fn in_wiped_lanes<T: Send>(
        &self,
        jobs: usize,
        tasks: Vec<T>,
        work: impl Fn(&mut Lanes<'_>, Next<'_, T>, Offer<'_, T>) -> usize + Sync,
    ) {
        let (threads, trace) = (self.threads(), TraceContext::current());
        share::by_threads(threads, tasks, |next, offer| {
            let each = jobs.div_ceil(threads);
            let mut run = |lanes: &mut Lanes<'_>| {
                let count = wiped(|| work(lanes, next, offer));
                lanes.s.zeroize();
                count
            };
            trace.counted(Step::Group, || (self.on_lanes(each, &mut run), ()));
        });
    }

    /// Threads of the pool that this thread belongs to; 1 if it belongs to none, or computes alone. Outside of any pool rayon would start its
    /// global pool, which nobody wants, and which panics if it cannot start threads.
    fn threads(&self) -> usize {
        rayon::current_thread_index().filter(|_| !self.alone).map_or(1, |_| rayon::current_num_threads())
    }

    /// Runs work on this thread, with lanes for so many jobs. Afterwards the lanes keep what the work left in them.
    fn on_lanes<R>(&self, jobs: usize, run: impl FnOnce(&mut Lanes<'_>) -> R) -> R {
        let wide = jobs >= self.wide.lanes();
        let (lattice, pool) = if wide { (&self.wide, &self.scratch[1]) } else { (&self.narrow, &self.scratch[0]) };
        let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_else(|| Scratch::new(lattice.lanes()));
        let result = run(&mut Lanes { lattice: &**lattice, lanes: lattice.lanes(), turn: self.turn, s: &mut scratch });
        lock().push(scratch);
        result
    }
}

/// Groups of these sizes of jobs and of their places.
fn groups<'a, J, T>(
    sizes: impl Iterator<Item = usize>,
    mut jobs: &'a [J],
    mut places: &'a mut [T],
) -> impl Iterator<Item = (&'a [J], &'a mut [T])> {
    sizes.map(move |size| {
        let group = jobs.split_off(..size).expect("no more than are left");
        (group, places.split_off_mut(..size).expect("a place for each job"))
    })
}

/// Jobs of a group, at most: more jobs make it no faster, but keep threads waiting for its end.
const MOST: usize = 256;
/// Jobs of a group to sign, at least. A thread begins its next group while jobs of the one before are open, so small groups leave no lanes
/// without an attempt.
const LEAST_TO_SIGN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Gives half of the open messages away at every offer, and checks that the signatures are those of one thread.
    #[test]
    fn open_messages_are_signed_by_whoever_has_them() {
        let zk = ZkDilithium::with(Isa::fastest()).expect("available");
        let keys = zk.keygen(&[[3; SEED_BYTES], [4; SEED_BYTES]]);
        let keys: Vec<_> = keys.iter().map(SigningKey::expand).collect();
        let messages: Vec<[u8; 2]> = (0..40u8).map(|i| [i, 1]).collect();
        let keys_in_turn = keys.iter().cycle();
        let jobs =
            messages.iter().zip(keys_in_turn).map(|(message, key)| Sign { key, message: Message::Bytes(message) });
        let jobs: Vec<Sign<'_>> = jobs.collect();
        let right = zk.sign(&jobs);
        for lanes in [zk.narrow.lanes(), zk.wide.lanes()] {
            let mut signatures: Vec<Signature> = jobs.iter().map(|_| Signature::zeros()).collect();
            let mut places: Vec<_> = signatures.iter_mut().map(Signature::bytes_mut).collect();
            let sizes = [25, 4, 11].into_iter();
            let tasks = RefCell::new(groups(sizes, &jobs, &mut places).map(SignTask::Group).collect::<Vec<_>>());
            let (mut threads, mut count) = (0, 0);
            while !tasks.borrow().is_empty() {
                threads += 1;
                // Each thread begins with one task, and finds no other.
                let mut task = tasks.borrow_mut().pop();
                let offer = |half: &mut dyn FnMut() -> _| tasks.borrow_mut().push(half());
                count += zk.on_lanes(lanes, |lanes| lanes.sign(&mut || task.take(), &offer));
            }
            drop(tasks);
            assert!(signatures == right, "{lanes} lanes");
            assert_eq!(count, jobs.len());
            assert!(threads > 10, "{threads}");
        }
    }
}
