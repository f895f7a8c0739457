//! Programs for plans of SLH-DSA: what a backend prepares, and what a batch is.

use crate::Error;
use crate::device::{Abilities, Axis, Device, Places, Policy, THREADS, Timing};
use hypergrove_fips205::plan::{Plan, Slot};
use hypergrove_fips205::{MPrime, Params, Position};
use rayon::prelude::*;
use std::borrow::Cow;
use std::time::Duration;

/// The bytes of one key that a batch needs.
#[derive(Clone, Copy, Default)]
pub struct Key<'a> {
    /// PK.seed, n bytes.
    pub pk_seed: &'a [u8],
    /// PK.root, n bytes; empty if the batch has positions.
    pub pk_root: &'a [u8],
    /// SK.seed, n bytes; empty when verifying. Secret.
    pub sk_seed: &'a [u8],
    /// SK.prf, n bytes; empty when verifying, and if the batch has positions. Secret.
    pub sk_prf: &'a [u8],
    /// Nodes of the top layers, as [`Op::Cache`](hypergrove_fips205::Op) puts them out; empty if the plan caches none.
    pub cached_nodes: &'a [u8],
    /// The id of `cached_nodes`, by which a backend may keep its own copy between batches: keys with equal ids have equal nodes, whatever else
    /// differs. 0 if there are no nodes, or if no later batch will use them.
    pub cached_id: u64,
}

impl<'a> Key<'a> {
    /// PK.seed and SK.seed, for a batch with positions.
    pub fn of_seeds(pk_seed: &'a [u8], sk_seed: &'a [u8]) -> Key<'a> {
        Key { pk_seed, sk_seed, ..Key::default() }
    }
}

/// From this many positions on, the threads of the current pool check them together: checking fewer takes no longer than waking the threads.
const MANY_POSITIONS: usize = 2048;

/// Jobs submitted together. Every list but `keys` has one entry a job, or is empty if the op does not need it.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The keys of the batch.
    pub keys: &'a [Key<'a>],
    /// The index in `keys` of each job's key.
    pub key_of: &'a [u32],
    /// The position that each message's digest selects (sign, verify).
    pub positions: &'a [Position],
    /// The signatures to verify, each `sig_bytes` long.
    pub signatures: &'a [&'a [u8]],
}

impl Batch<'_> {
    /// Jobs in the batch.
    pub fn len(&self) -> usize {
        self.key_of.len()
    }
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.key_of.is_empty()
    }
    /// Checks every length against the plan, the output's `out` bytes too, and every position, so that backends may index freely.
    pub fn check(&self, plan: &Plan, out: usize) -> Result<(), Error> {
        self.check_all_but_positions(plan, out)?;
        self.check_positions(plan)
    }

    /// Checks as [`check`](Batch::check) does, but not the positions, for a program that computes positions by itself.
    pub fn check_all_but_positions(&self, plan: &Plan, out: usize) -> Result<(), Error> {
        use hypergrove_fips205::Op;
        let (p, jobs): (&Params, usize) = (plan.params, self.len());
        let signs = plan.op == Op::Sign;
        for key in self.keys {
            Error::check_length("PK.seed", p.n, key.pk_seed.len())?;
            Error::check_length("SK.seed", if plan.op == Op::Verify { 0 } else { p.n }, key.sk_seed.len())?;
            let nodes = if signs { hypergrove_fips205::plan::cache_bytes(p, plan.cached_layers) } else { Some(0) };
            Error::check_length("the cached nodes", nodes.unwrap_or(usize::MAX), key.cached_nodes.len())?;
        }
        if let Some(bad) = self.key_of.iter().find(|k| **k as usize >= self.keys.len()) {
            return Err(Error::Value { what: format!("key {bad} of a batch with {} keys", self.keys.len()) });
        }
        Error::check_length(
            "the list of signatures",
            if plan.op == Op::Verify { jobs } else { 0 },
            self.signatures.len(),
        )?;
        let size = p.sig_bytes();
        self.signatures.iter().try_for_each(|signature| Error::check_length("a signature", size, signature.len()))?;
        Error::check_length("the output", jobs * plan.out_bytes(), out)
    }

    /// Checks the positions alone.
    pub fn check_positions(&self, plan: &Plan) -> Result<(), Error> {
        use hypergrove_fips205::Op;
        let (p, jobs): (&Params, usize) = (plan.params, self.len());
        let positions = if matches!(plan.op, Op::Sign | Op::Verify) { jobs } else { 0 };
        Error::check_length("the list of positions", positions, self.positions.len())?;
        let fits = |number: u64, bits: usize| bits >= 64 || number >> bits == 0;
        let is_right = |Position { fors, idx_tree, idx_leaf }: &Position| {
            fors.len() == p.k
                && fits(*idx_tree, p.h - p.hp)
                && fits(u64::from(*idx_leaf), p.hp)
                && fors.iter().all(|leaf| fits(u64::from(*leaf), p.a))
        };
        let wrong = match rayon::current_thread_index() {
            Some(_) if self.positions.len() >= MANY_POSITIONS => {
                self.positions.par_iter().with_min_len(MANY_POSITIONS / 4).find_first(|position| !is_right(position))
            }
            _ => self.positions.iter().find(|position| !is_right(position)),
        };
        if let Some(Position { fors, idx_tree, idx_leaf }) = wrong {
            Error::check_length("a position's list of FORS leaves", p.k, fors.len())?;
            return Err(Error::Value {
                what: format!("a position outside the trees of {p}: {idx_tree}, {idx_leaf}, {fors:?}"),
            });
        }
        Ok(())
    }
}

/// Jobs of a full program for each thread. At a chunk's end all threads wait for the last one, which takes a millisecond or two. (16 cores that verify
/// 16,384 rows of 128s reach 56 % of 16 engines of one thread each with 64 jobs a thread, 91 % with 256 and 97 % with 1,024.)
const JOBS_OF_A_THREAD: usize = 1024;

/// Prepares plans of SLH-DSA for the devices of a backend.
pub trait SlhDsaPrograms: Send + Sync {
    /// The axes that can be tuned for this plan. `Err(Unsupported)` declines the plan.
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error>;
    /// Jobs of one program that fill the device: more jobs make it no faster. For a device with memory of its own, programs are made for that many
    /// jobs if there are as many. For other devices programs may be smaller, so that results come out sooner. By default the device computes on as many
    /// of the host's threads as the policy has: the jobs fill the widest lanes of every thread several times over. They are so many that handing results
    /// out costs little, even if a job takes only microseconds.
    fn jobs(&self, _device: &Device, _plan: &Plan, policy: &Policy) -> usize {
        JOBS_OF_A_THREAD * policy.get(THREADS).unwrap_or(1) as usize
    }
    /// Compiles the code that [`prepare`](SlhDsaPrograms::prepare) would compile for the same arguments, and does nothing more. So the code of
    /// several policies may be compiled concurrently before each of them is prepared. `prepare` reports code that cannot be compiled.
    /// By default all code is compiled already.
    fn compile(&self, _device: &Device, _plan: &Plan, _batch: usize, _policy: &Policy) {}
    /// Programs of this plan in flight that keep the device busy, at most [`Device::queue`].
    fn queue(&self, device: &Device, _plan: &Plan) -> u32 {
        device.queue
    }
    /// The abilities of programs of this plan.
    fn abilities(&self, _device: &Device, _plan: &Plan) -> Abilities {
        Abilities::NONE
    }
    /// Bytes of the host's memory that a program prepared for batches of up to `batch` jobs holds, scratch of all its threads included. The batch
    /// itself and its output are the caller's, and the device's own memory does not count. The call is cheap, because planning makes it often.
    fn bytes(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64;
    /// Prepares a program for batches of up to `batch` jobs, and allocates all that can be allocated. If the device's own memory does not suffice,
    /// `Err(OutOfMemory)` makes the caller try fewer jobs.
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error>;
}

/// Checks roots that a device computed: the index of the first job, and n bytes for each job. An error says what is wrong with them.
pub type Accept<'a> = &'a mut (dyn FnMut(usize, &[u8]) -> Result<(), Error> + Send);

/// The messages of a batch, of which a program needs the positions (FIPS 205, Algorithm 19, lines 1 to 10, and Algorithm 20, lines 4 to 11).
pub trait Digests: Send + Sync {
    /// Computes the positions of the jobs on the host, in the order of the jobs; when signing, R too. A program asks once for each of the
    /// [`Places`] where it computes the jobs. It is an error if a second answer differs from the first.
    fn positions(&mut self) -> Result<Vec<Position>, Error>;
    /// Bytes of the longest message that is hashed, no fewer than M′ has, including a message that is pre-hashed. `usize::MAX` if a program with a
    /// limit must not hash the messages.
    fn longest(&self) -> usize;
    /// A job's M′, if [`longest`](Digests::longest) is less than `usize::MAX`.
    fn m_prime(&self, job: usize) -> MPrime<'_>;
    /// The position of a job that is verified, from R of its signature and its key. For all jobs.
    fn position(&self, p: &Params, job: usize, r: &[u8], key: &Key<'_>) -> Position {
        Position::of(p, r, key.pk_seed, key.pk_root, &self.m_prime(job))
    }
    /// A job's opt_rand, n bytes; none when verifying.
    fn opt_rand(&self, job: usize) -> &[u8];
    /// Whether the device had its signatures in earlier batches before the host had computed the positions.
    fn host_is_late(&self) -> bool {
        false
    }
}

/// A run of a program: a batch, and all that the program has to know of it.
pub struct Work<'a> {
    /// The jobs. They have positions unless there are `digests`.
    pub batch: Batch<'a>,
    /// The messages from which positions follow.
    pub digests: Option<&'a mut dyn Digests>,
    /// When signing, checks the roots of the highest trees that were grown before the run ends. A program that
    /// [holds](Abilities::holds) results back writes none before.
    pub accept: Option<Accept<'a>>,
    /// Where the jobs are computed.
    pub places: Places,
}

impl<'a> Work<'a> {
    /// A run of a batch with positions, in the usual places. Any root is accepted.
    pub fn of(batch: &Batch<'a>) -> Work<'a> {
        Work { batch: *batch, digests: None, accept: None, places: Places::Usual }
    }

    /// The batch's positions, or those that the host computes.
    pub fn positions(&mut self) -> Result<Cow<'a, [Position]>, Error> {
        match &mut self.digests {
            Some(digests) => digests.positions().map(Cow::Owned),
            None => Ok(Cow::Borrowed(self.batch.positions)),
        }
    }

    /// Has the roots of the top trees checked, given the roots of all layers of each job.
    pub fn accept_top_roots(&mut self, p: &Params, roots: &[u8]) -> Result<(), Error> {
        let Some(accept) = &mut self.accept else { return Ok(()) };
        let of_job = roots.len() / self.batch.len().max(1);
        let tops: Vec<u8> =
            roots.chunks_exact(of_job.max(1)).flat_map(|roots| &roots[of_job - p.n..]).copied().collect();
        accept(0, &tops)
    }
}

/// A plan prepared for one device.
pub trait Program: Send {
    /// The plan.
    fn plan(&self) -> &Plan;
    /// Bytes of the longest message that the device hashes by itself; `usize::MAX` if there is no limit, 0 if the host hashes all messages, as by
    /// default.
    fn hashes(&self) -> usize {
        0
    }
    /// Makes tests of the device that were not made yet and that a batch of so many jobs needs. By default there are none. Afterwards
    /// [`hashes`](Program::hashes) is 0 if there was no memory for a test of hashing.
    fn prove(&mut self, _jobs: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Runs a batch. `out` takes [`Plan::out_bytes`] a job, in the order of the jobs, in one part of memory or several. R of a signature is undefined
    /// if the host computes the positions. After an error nothing of the batch is left on the device, but some of it may be in `out`.
    fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error>;
    /// Sets how long a wait for the device may take from now on; `None` sets no limit. When the time is over, the program gives the device up: this
    /// run and all later ones on the device fail. Until the first call the limit is [`DEVICE_TIMEOUT`](crate::DEVICE_TIMEOUT). A program that computes on the host's threads
    /// has no limit.
    fn time_limit(&mut self, limit: Option<Duration>);
    /// An intermediate value of the last run, for checks alone: all of job 0's bytes, then job 1's; roots layer by layer from the lowest. `None` if
    /// the program does not keep the value. A device's program copies it from the device.
    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error>;
}

impl<'p> dyn Program + 'p {
    /// Runs a batch with positions, in the usual places, into one part of memory.
    pub fn run_batch(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        self.run(Work::of(batch), &mut [out])
    }
}
