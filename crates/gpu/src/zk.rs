//! zkDilithium on a GPU: keys made ready there, and streams of launches for passes of jobs.
//!
//! A pass has as many jobs as memory holds. Signing goes in rounds of attempts: one for each open job, and several with rising κ where one
//! leaves the device idle. The host reads which attempts passed, and lays out the next round. See docs/zkdilithium.md.

mod keygen;
mod pass;
#[cfg(test)]
mod primitives;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

use crate::backend::Gpus;
use crate::gpu::{Gpu, Launch, Queue, Step, WaitLimit};
use crate::policy::Accepted::{Between, Listed};
use crate::policy::{PolicyAxis, axis, with_threads, with_values};
use crate::program::wait_limit;
use crate::ring::in_threads;
use hypergrove_engine::{
    Axis, Device, Error, Places, Policy, Timing, ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkDilithiumPrograms, ZkSign,
    ZkVerify,
};
use hypergrove_fips205::Family;
use hypergrove_kernels::arguments::Arguments;
use hypergrove_kernels::{Config, FP64, Kernel, MAX_THREADS, TENSOR_FORMS};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{Message, Op, SignatureBytes, SigningKeyBytes};
use pass::Memory;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One program of zkDilithium may take one part in so many of a device's memory: four are in flight.
const ZK_PROGRAM_SHARE: u64 = 5;

/// Choices for zkDilithium that change time and memory, never bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZkPolicy {
    /// Host threads that copy keys and signatures.
    pub threads: usize,
    /// Whether Poseidon sums products in doubles, if it uses no tensor cores.
    pub fp64: u32,
    /// How Poseidon uses tensor cores: one of [`TENSOR_FORMS`].
    pub tensor: u32,
    /// Threads of a block.
    pub block: u32,
    /// Threads of a compute unit that Poseidon's registers leave room for. So many attempts run concurrently on it: for open jobs, or with later
    /// κ for the same jobs.
    pub fill: u32,
    /// Attempts at one signature in a round, at most, if that fills the device.
    pub width: u32,
    /// Jobs of a pass, at most.
    pub pass: u32,
}

impl Default for ZkPolicy {
    fn default() -> ZkPolicy {
        ZkPolicy { threads: 1, fp64: FP64, tensor: 0, block: 128, fill: 256, width: 16, pass: 1 << 16 }
    }
}

static AXES: [PolicyAxis<ZkPolicy>; 6] = [
    axis!(fp64, [0, 1], Between(0, 1)),
    axis!(tensor, TENSOR_FORMS, Listed),
    axis!(block, [32, 64, 128, 256], Between(1, MAX_THREADS)),
    axis!(fill, [128, 256, 384, 512], Between(1, 2048)),
    axis!(width, [1, 4, 16, 64], Between(1, 1 << 14)),
    axis!(pass, [1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18], Between(1, 1 << 20)),
];

/// Cycles of a compute unit for a permutation, at least: 21 rounds of 1,657 slots of the integer multipliers, of
/// 889 operations in doubles, or with tensor cores of 540 slots, 64 lanes a cycle each (docs/zkdilithium.md).
const POSEIDON_CYCLES: [f64; 3] = [21.0 * 1657.0 / 64.0, 21.0 * 889.0 / 64.0, 21.0 * 540.0 / 64.0];

/// States of a compute unit up to which a quad of threads has one state: four warps, which run concurrently, have eight quads each.
const ONE_STATE_A_QUAD: usize = 32;

/// Programs in flight, for each operation: while the host lays one out or takes its results, the GPU computes others. (An H200 with 16
/// cores makes 11.7 million private keys a second with four, 11.1 with three, in passes of 32,768. It verifies 11.0 million signatures with three, 9.4
/// with two. It signs equally fast with two to four.)
const QUEUE: [u32; 3] = [4, 3, 3];

/// Private keys of a pass, at most: the link has nothing to do while the first ones are computed. (An H200 makes 12.8 million a second, 12.4
/// with twice as many.)
const MADE_KEYS: usize = 1 << 14;

impl ZkPolicy {
    /// This policy with the named values.
    pub(crate) fn with(self, policy: &Policy) -> Result<ZkPolicy, Error> {
        with_values(self, |out| &mut out.threads, &AXES, policy, "zkDilithium on a GPU")
    }

    fn config(&self) -> Config {
        Config { family: Family::Shake, n: 16, defines: vec![("FP64", self.fp64), ("TENSOR", self.tensor)] }
    }
}

/// Limits of one pass.
#[derive(Clone, Copy, Debug)]
struct Limits {
    jobs: usize,
    /// Distinct keys of jobs, and (in `made`) private keys that a pass makes.
    keys: usize,
    made: usize,
    attempts: usize,
    /// Bytes of messages. A longer message gets a pass of its own.
    messages: usize,
}

pub(crate) struct ZkGpu<G: Gpu> {
    gpu: Arc<G>,
    policy: ZkPolicy,
    kernels: G::Kernels,
    limits: Limits,
    memory: Memory<G>,
    timing: Timing,
    /// The limit of waits for the device.
    limit: WaitLimit,
}

impl<G: Gpu> ZkGpu<G> {
    pub(crate) fn new(gpu: &Arc<G>, policy: ZkPolicy, budget: u64) -> Result<ZkGpu<G>, Error> {
        // Attempts that fill the device once.
        let wave = (gpu.facts().compute_units * policy.fill) as usize;
        // All limits are halved until a pass fits the budget.
        let mut halved = 0;
        let limits = loop {
            let of = |count: usize| (count >> halved).max(1);
            let limits = Limits {
                jobs: of(policy.pass as usize),
                keys: of(1 << 15),
                made: of(MADE_KEYS),
                attempts: of(2 * wave.max(1)),
                messages: of(256 << 20),
            };
            let needs = pass::most_bytes(limits) as u64;
            if needs <= budget {
                break limits;
            }
            if limits.jobs.max(limits.keys).max(limits.attempts) == 1 {
                return Err(Error::OutOfMemory { device: gpu.facts().id.clone(), needs, has: budget });
            }
            halved += 1;
        };
        let of_form = |kernel: Kernel| match policy.tensor {
            0 => !kernel.needs_tensor_cores(),
            _ => kernel != Kernel::ZkSponge,
        };
        let wanted = Kernel::ALL.iter().filter(|kernel| kernel.is_zk() && of_form(**kernel));
        let wanted: Vec<_> = wanted.map(|kernel| (*kernel, policy.block)).collect();
        let kernels = gpu.kernels(&policy.config(), &wanted)?;
        let memory = Memory::new(gpu)?;
        let (timing, limit) = (Timing::default(), WaitLimit::default());
        let mut zk = ZkGpu { gpu: gpu.clone(), policy, kernels, limits, memory, timing, limit };
        zk.time_limit(limit.time);
        Ok(zk)
    }

    /// A launch of `total` threads.
    fn threads<A: Arguments>(&self, total: usize, arguments: A) -> Step {
        let (threads, args) = (self.policy.block, arguments.args(total as u32));
        let blocks = total.div_ceil(threads as usize).max(1) as u32;
        Step::Launch(Launch { kernel: A::KERNEL, blocks, threads, args })
    }
    /// A launch of Poseidon's sponge for `total` states. A state has a thread, or four with tensor cores, which have two states each if there are enough.
    /// Blocks are small: threads take long, and small blocks are spread evenly over the compute units, so that all end together. Only if four warps
    /// multiply together and all compute units are full, blocks are large, because each has the operands in its memory.
    fn sponge<A: Arguments>(&self, total: usize, arguments: A) -> Step {
        let units = self.gpu.facts().compute_units as usize;
        let threads = match self.policy.tensor {
            0 => self.policy.block.min(64),
            1 => 64,
            _ if total <= 128 * units => 128,
            _ => 256,
        };
        let (kernel, states) = match self.policy.tensor {
            0 => (Kernel::ZkSponge, threads),
            _ if total <= ONE_STATE_A_QUAD * units => (Kernel::ZkTensorFew, threads / 4),
            _ => (Kernel::ZkTensor, threads / 2),
        };
        let blocks = total.div_ceil(states as usize).max(1) as u32;
        Step::Launch(Launch { kernel, blocks, threads, args: arguments.args(total as u32) })
    }
    /// A launch of one block for each of `total` items, but of no more blocks than every GPU allows. If there are more items, each block takes several.
    fn blocks<A: Arguments>(&self, total: usize, arguments: A) -> Step {
        let (blocks, threads) = (total.clamp(1, 65_535) as u32, self.policy.block);
        Step::Launch(Launch { kernel: A::KERNEL, blocks, threads, args: arguments.args(total as u32) })
    }

    /// Submits steps, waits for them, and counts their time.
    fn run(&mut self, steps: &[Step]) -> Result<(), Error> {
        self.memory.wait_for_wipe()?;
        self.memory.queue.submit(&self.kernels, steps)?;
        if let Some(took) = self.memory.queue.wait()? {
            self.timing += &took;
        }
        Ok(())
    }

    /// Runs one pass after the other until all jobs are done. `cut` says how many of the jobs that are left the next pass takes, at least one. Returns the
    /// time that the passes took.
    fn passes<J>(
        &mut self,
        jobs: &[J],
        secret: bool,
        cut: impl Fn(&Limits, &[J]) -> usize,
        mut pass: impl FnMut(&mut Self, &[J]) -> Result<(), Error>,
    ) -> Result<Timing, Error> {
        if let Some(why) = self.gpu.hung() {
            return Err(why);
        }
        let mut rest = jobs;
        self.timing = Timing::default();
        while !rest.is_empty() {
            let now = rest.split_off(..cut(&self.limits, rest)).expect("no more than are left");
            let done = pass(self, now);
            // After a failure everything is wiped at once. Secrets are wiped after success too, but the host does not wait for it.
            let parallel = in_threads(self.policy.threads);
            let wiped = match (&done, secret) {
                (Ok(()), false) => Ok(()),
                (done, _) => self.memory.wipe(&self.kernels, parallel, done.is_err()),
            };
            done.and(wiped)?;
        }
        Ok(std::mem::take(&mut self.timing))
    }
}

impl<G: Gpu> Drop for ZkGpu<G> {
    fn drop(&mut self) {
        // If the device fails now, nothing on it can be wiped any more.
        let _ = self.memory.wipe(&self.kernels, false, true);
    }
}

/// Distinct keys, identified by their place in memory. Many jobs with one key are the usual case, so the last key is found without a search.
struct DistinctKeys<'a, K> {
    keys: Vec<&'a K>,
    numbers: BTreeMap<*const K, u32>,
    last: Option<(*const K, u32)>,
}

impl<'a, K> DistinctKeys<'a, K> {
    fn new() -> DistinctKeys<'a, K> {
        DistinctKeys { keys: Vec::new(), numbers: BTreeMap::new(), last: None }
    }
    /// A table that begins with `pad` times the first key. [`number`](DistinctKeys::number) does not find these.
    fn padded(pad: usize, first: &'a K) -> DistinctKeys<'a, K> {
        DistinctKeys { keys: vec![first; pad], ..DistinctKeys::new() }
    }
    /// The number of a key, which is added if it is new.
    fn number(&mut self, key: &'a K) -> u32 {
        let place = std::ptr::from_ref(key);
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == place) {
            return number;
        }
        let number = *self.numbers.entry(place).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        });
        self.last = Some((place, number));
        number
    }
}

/// A launch on the side stream instead of the main one.
fn on_side(step: Step) -> Step {
    match step {
        Step::Launch(launch) => Step::SideLaunch(launch),
        other => other,
    }
}

/// The number of unwanted jobs, keys and attempts that come first in a pass, so that no wanted one has its usual place.
fn pad(places: Places) -> usize {
    usize::from(places == Places::Other)
}

/// The results of `of` for all jobs, with `pad` times the first job's in front. The threads of the current pool compute them if `parallel`.
fn padded<J: Sync, T: Send>(pad: usize, jobs: &[J], parallel: bool, of: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let (count, one) = (pad + jobs.len(), |i: usize| of(&jobs[i.saturating_sub(pad)]));
    match parallel && count > ZK_JOBS_OF_A_THREAD {
        true => (0..count).into_par_iter().with_min_len(ZK_JOBS_OF_A_THREAD).map(one).collect(),
        false => (0..count).map(one).collect(),
    }
}

/// How many jobs the next pass takes: as many as the limits allow, one at least.
fn cut<'a, K: 'a>(limits: &Limits, jobs: impl Iterator<Item = (&'a K, Message<'a>)>) -> usize {
    let (mut keys, mut bytes, mut count) = (DistinctKeys::new(), 0, 0);
    for (key, message) in jobs {
        keys.number(key);
        bytes += message_words(&message) * 4;
        let fits = count < limits.jobs && keys.keys.len() <= limits.keys && bytes <= limits.messages;
        if count > 0 && !fits {
            break;
        }
        count += 1;
    }
    count
}

/// Words that a message takes on the device.
fn message_words(message: &Message<'_>) -> usize {
    match message {
        Message::Bytes(bytes) => bytes.len().div_ceil(4),
        Message::Block(elements) | Message::Mu(elements) => elements.len(),
    }
}

impl<G: Gpu> ZkDilithiumPrograms for Gpus<G> {
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        let (gpu, _) = self.gpu(device)?;
        let forms = gpu.tensor_forms();
        let tensor = forms[forms.len() - 1];
        let default = ZkPolicy { fp64: gpu.has_fast_doubles().into(), tensor, ..ZkPolicy::default() };
        // Whole waves, and a program's attempts at most: long calls have several programs, which compute while others' hosts look at results.
        let pass = (2 * gpu.facts().compute_units * default.fill).max(default.pass);
        let policy = ZkPolicy { pass, ..default }.with(policy)?;
        if !forms.contains(&policy.tensor) {
            let what = format!("policy axis tensor is {}, {} has {forms:?}", policy.tensor, gpu.facts().id);
            return Err(Error::Value { what });
        }
        Ok(Box::new(ZkGpu::new(gpu, policy, gpu.facts().memory / ZK_PROGRAM_SHARE)?))
    }
}

impl<G: Gpu> ZkDilithium for ZkGpu<G> {
    fn space(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = with_threads(&AXES).collect();
        axes.iter_mut()
            .filter(|axis| axis.name == "tensor")
            .for_each(|axis| axis.values = self.gpu.tensor_forms().into());
        axes
    }
    /// The argument does not matter: a GPU reports its own clock.
    fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
        let facts = self.gpu.facts();
        let form = if self.policy.tensor > 0 { 2 } else { self.policy.fp64 as usize };
        let known = facts.clock > 0 && facts.rates.is_some() && (form != 1 || self.gpu.has_fast_doubles());
        let cycles = f64::from(facts.compute_units) * facts.clock as f64;
        known.then_some(cycles / POSEIDON_CYCLES[form])
    }
    fn uses_expanded_keys(&self) -> bool {
        false
    }
    fn queue(&self, op: Op) -> u32 {
        QUEUE[op as usize]
    }
    fn bytes(&self) -> u64 {
        0
    }
    fn jobs(&self, op: Op) -> usize {
        match op {
            Op::Keygen => self.limits.made,
            Op::Sign => self.limits.jobs,
            Op::Verify => self.limits.attempts,
        }
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        self.limit = wait_limit("zkDilithium", limit, self.gpu.facts());
        self.memory.queue.limit(self.limit);
    }
    fn keygen(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let cut = |limits: &Limits, seeds: &[_]| limits.made.min(seeds.len());
        self.memory.queue.takes_turns(true);
        let mut keys = keys;
        self.passes(seeds, true, cut, |zk, seeds| {
            zk.keygen_pass(seeds, keys.split_off_mut(..seeds.len()).expect("a key for each seed"), pad(places))
        })
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let cut = |limits: &Limits, jobs: &[ZkSign<'_>]| cut(limits, jobs.iter().map(|job| (job.key, job.message)));
        let mut left = signatures;
        self.memory.queue.takes_turns(false);
        self.passes(jobs, true, cut, |zk, jobs| {
            zk.sign_pass(jobs, left.split_off_mut(..jobs.len()).expect("a signature for each job"), pad(places))
        })
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error> {
        let cut = |limits: &Limits, jobs: &[ZkVerify<'_>]| {
            cut(limits, jobs.iter().map(|job| (job.key, job.message))).min(limits.attempts)
        };
        let before = out.len();
        self.memory.queue.takes_turns(false);
        let verify = |zk: &mut Self, jobs: &[_]| zk.verify_pass(jobs, out, pad(places));
        self.passes(jobs, false, cut, verify).inspect_err(|_| out.truncate(before))
    }
}
