//! The traits that a backend implements, and their types. A backend prepares plans for a device; the prepared programs run batches.

use crate::{Error, Hasher, SelfTest, ZkDilithium};
use hypergrove_fips205::plan::{Plan, Rates, Slot};
use hypergrove_fips205::{MPrime, Params, Position};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::AddAssign;
use std::time::Duration;

/// A device that computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// The name of its backend, for example `cuda`.
    pub backend: &'static str,
    /// The device's number among the devices of its backend, from 0.
    pub index: u32,
    /// The name that its maker gave it.
    pub name: String,
    /// The instruction set of a CPU, or the driver of a GPU.
    pub detail: String,
    /// The number of cores of a CPU, or of SMs or compute units of a GPU.
    pub cores: u32,
    /// Bytes of the device's own memory; 0 if it uses the host's memory.
    pub memory: u64,
    /// The most programs in flight that keep the device busier than fewer would; 1 if one program uses all of it.
    pub queue: u32,
    /// A number that no other device has, if the device has such a number. It shows whether two backends reach the same device.
    pub uuid: Option<[u8; 16]>,
    /// Whether the engine may choose the device by itself. A caller must name a CPU that a GPU's driver offers as a device.
    pub automatic: bool,
}

impl Device {
    /// The backend and the index, as errors and command lines name the device: `cuda:0`.
    pub fn id(&self) -> String {
        format!("{}:{}", self.backend, self.index)
    }

    /// Compressions a second that the engine assumes until it has measured a run; `threads` are the host's threads. The number is low on purpose, so
    /// that the first results come soon.
    pub fn guessed_rate(&self, threads: usize) -> f64 {
        match self.memory {
            0 => RATE_OF_A_THREAD * threads as f64,
            _ => RATE_OF_A_UNIT * f64::from(self.cores.max(1)),
        }
    }
}

/// Compressions a second of a host's thread, and of a compute unit; see [`Device::guessed_rate`].
const RATE_OF_A_THREAD: f64 = 1e7;
const RATE_OF_A_UNIT: f64 = 5e7;

/// The name of the axis that the engine itself sets, if a backend's space has it: the host threads that a program may use. With 1 a program runs on
/// the calling thread and touches no thread pool; with more, `run` is called inside a pool. Programs of the host itself share that pool. On any other
/// device each run in flight has a pool of its own, which may be smaller.
pub const THREADS: &str = "threads";

/// The name of the axis that makes a program time each of its stages alone, if its backend can: 1 for yes. No space has this axis, because with it
/// nothing runs concurrently, and a run takes longer than necessary.
pub const STAGES: &str = "stages";

/// How long a wait for a device may take, at least, before the device counts as hung: see [`Program::time_limit`].
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);

/// A device is hung when a wait for it takes more than this many times the predicted time of its jobs. The prediction may be a guess, and other
/// programs may use the device too.
const HUNG: f64 = 100.0;

/// How long a wait for a device may take if its jobs are predicted to take `seconds`, and never less than `least`. `None` means no limit, as does
/// `Duration::MAX`. For [`Program::time_limit`].
pub fn time_limit(seconds: f64, least: Duration) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(HUNG * seconds).unwrap_or(Duration::MAX);
    Some(limit.max(least)).filter(|limit| *limit < Duration::MAX)
}

/// One choice of a policy, and its possible values. The tuner does not know the meaning of the values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Axis {
    /// The name of the axis.
    pub name: &'static str,
    /// The values that the axis may have, in order.
    pub values: Cow<'static, [u32]>,
    /// Whether a tuner may choose the value. It may not if a value gives up a check, or exists only for comparison.
    pub tuned: bool,
}

impl Axis {
    /// An axis whose value a tuner may choose.
    pub fn new(name: &'static str, values: &'static [u32]) -> Axis {
        Axis { name, values: Cow::Borrowed(values), tuned: true }
    }
    /// The axis [`THREADS`], with values from 1 to the number of the host's cores.
    pub fn threads() -> Axis {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Axis { name: THREADS, values: Cow::Owned((1..=cores).collect()), tuned: true }
    }
}

/// How a device divides the work: a value for some axes. The other axes have the backend's defaults.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Policy(pub Vec<(&'static str, u32)>);

impl Policy {
    /// The value chosen for an axis.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.iter().find(|(axis, _)| *axis == name).map(|(_, value)| *value)
    }

    /// This policy, with `value` for the axis `name`.
    #[must_use]
    pub fn with(&self, name: &'static str, value: u32) -> Policy {
        let others = self.0.iter().copied().filter(|(axis, _)| *axis != name);
        Policy(others.chain([(name, value)]).collect())
    }
}

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
            length("PK.seed", p.n, key.pk_seed.len())?;
            length("SK.seed", if plan.op == Op::Verify { 0 } else { p.n }, key.sk_seed.len())?;
            let nodes = if signs { hypergrove_fips205::plan::cache_bytes(p, plan.cached_layers) } else { Some(0) };
            length("the cached nodes", nodes.unwrap_or(usize::MAX), key.cached_nodes.len())?;
        }
        if let Some(bad) = self.key_of.iter().find(|k| **k as usize >= self.keys.len()) {
            return Err(Error::Value { what: format!("key {bad} of a batch with {} keys", self.keys.len()) });
        }
        length("the list of signatures", if plan.op == Op::Verify { jobs } else { 0 }, self.signatures.len())?;
        let size = p.sig_bytes();
        self.signatures.iter().try_for_each(|signature| length("a signature", size, signature.len()))?;
        length("the output", jobs * plan.out_bytes(), out)
    }

    /// Checks the positions alone.
    pub fn check_positions(&self, plan: &Plan) -> Result<(), Error> {
        use hypergrove_fips205::Op;
        let (p, jobs): (&Params, usize) = (plan.params, self.len());
        let positions = if matches!(plan.op, Op::Sign | Op::Verify) { jobs } else { 0 };
        length("the list of positions", positions, self.positions.len())?;
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
            length("a position's list of FORS leaves", p.k, fors.len())?;
            return Err(Error::Value {
                what: format!("a position outside the trees of {p}: {idx_tree}, {idx_leaf}, {fors:?}"),
            });
        }
        Ok(())
    }
}

fn length(what: &'static str, want: usize, got: usize) -> Result<(), Error> {
    if want == got { Ok(()) } else { Err(Error::Length { what, want, got }) }
}

/// The times of the parts of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timing {
    /// The time of copying to the device.
    pub upload: Duration,
    /// The time of computing on the device. For a few jobs it may last from their submission until the host noticed that they were done.
    pub execute: Duration,
    /// The time of copying from the device.
    pub download: Duration,
    /// The time of each stage alone, in the order in which the stages ran; empty unless the policy asked for the times by [`STAGES`].
    pub stages: Vec<StageTime>,
    /// Whether the device had all signatures before the host had computed the positions; `None` unless the device fetched many signatures by
    /// itself.
    pub host_was_late: Option<bool>,
}

/// Adds up the times. The other fields belong to one run, and stay.
impl AddAssign<&Timing> for Timing {
    fn add_assign(&mut self, more: &Timing) {
        self.upload += more.upload;
        self.execute += more.execute;
        self.download += more.download;
    }
}

/// How long a stage of a run took by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageTime {
    /// The name of the GPU's kernel or of the CPU's stage.
    pub name: &'static str,
    /// Blocks of threads; 1 on a CPU.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The time from the stage's begin to its end.
    pub time: Duration,
}

/// The devices of one kind: facts about them, and their capabilities, by which callers ask for programs. A backend that lacks a capability answers
/// `None`. No method has a default, so that a backend that wraps another one must forward each.
pub trait Backend: Send + Sync {
    /// The backend's name: `cpu`, `cuda`, `vulkan`, `reference`.
    fn name(&self) -> &'static str;
    /// The devices that are there now.
    fn devices(&self) -> Result<Vec<Device>, Error>;
    /// Which known answers an engine asks for before it uses a device.
    fn self_test(&self) -> SelfTest;
    /// Why there are no devices: no driver, no hardware. `None` if there are devices, or if no reason is known.
    fn absent(&self) -> Option<String>;
    /// Notices for the user about what the backend has done and left out so far, one line each. For example, it did not read a cache of compiled code that
    /// other users can write to.
    fn notices(&self) -> Vec<String>;
    /// The most compressions a second that the whole device can compute, which no plan can exceed. They are measured by this call, or follow from the
    /// device's model. `None` if they are not known.
    fn rates(&self, device: &Device) -> Option<Rates>;
    /// Cycles a second of the device, at most; `None` if the number is not known.
    fn clock(&self, device: &Device) -> Option<f64>;
    /// Names what measured times depend on, apart from the choices that a policy can make: the kernels' sources, and the default policy. A tuning table with
    /// another fingerprint is stale.
    fn fingerprint(&self, device: &Device) -> String;
    /// Bytes of the device's own memory that are free now; `None` if it has none, or does not report them.
    fn free(&self, device: &Device) -> Option<u64>;

    /// Plans of SLH-DSA.
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms>;
    /// SHA-256 of messages.
    fn sha256(&self) -> Option<&dyn Sha256Programs>;
    /// zkDilithium.
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms>;
    /// Memory of the host that devices reach by themselves.
    fn host_memory(&self) -> Option<&dyn HostMemory>;
}

/// Allocates memory of the host that devices of a backend reach by themselves, because it is pinned and mapped by them. No thread has to
/// copy the contents. The memory keeps the driver's objects that it needs for as long as it lives.
pub trait HostMemory: Send + Sync {
    /// Allocates zeroed memory that this device reaches. `Err(Unsupported)` if it reaches no memory of the host but what its programs allocate.
    fn allocate(&self, device: &Device, bytes: usize) -> Result<Box<dyn ReachableMemory>, Error>;
    /// Whether a device of the backend reaches memory that was allocated for one of them.
    fn reaches(&self, device: &Device, memory: &dyn ReachableMemory) -> bool;
}

/// Memory from a [`HostMemory`]. Dropping it does not wipe it: whoever drops it must have wiped it.
pub trait ReachableMemory: Send + Sync {
    /// All of the memory, to read.
    fn bytes(&self) -> &[u8];
    /// All of the memory, to change.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Programs of zkDilithium that a device with a queue has in flight, at most.
const MOST_IN_FLIGHT: usize = 4;

/// Gives a capability or the error that a device lacks it, and the number of programs that a device has in flight.
impl<'b> dyn Backend + 'b {
    /// [`Backend::slh_dsa`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn slh_dsa_on(&self, device: &Device) -> Result<&dyn SlhDsaPrograms, Error> {
        supported(self.slh_dsa(), device, "SLH-DSA")
    }
    /// [`Backend::sha256`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn sha256_on(&self, device: &Device) -> Result<&dyn Sha256Programs, Error> {
        supported(self.sha256(), device, "SHA-256 of messages")
    }
    /// [`Backend::zkdilithium`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn zkdilithium_on(&self, device: &Device) -> Result<&dyn ZkDilithiumPrograms, Error> {
        supported(self.zkdilithium(), device, "zkDilithium")
    }

    /// The most programs in flight that any scheme needs to keep a device busy: [`Device::queue`], or more where a scheme needs more.
    pub(crate) fn most_in_flight(&self, device: &Device) -> usize {
        let of_zkdilithium = if self.zkdilithium().is_some() && device.queue > 1 { MOST_IN_FLIGHT } else { 1 };
        (device.queue.max(1) as usize).max(of_zkdilithium)
    }
}

fn supported<T>(capability: Option<T>, device: &Device, what: &str) -> Result<T, Error> {
    capability.ok_or_else(|| Error::Unsupported { device: device.id(), what: what.into() })
}

/// Prepares plans of SLH-DSA for the devices of a backend.
pub trait SlhDsaPrograms: Send + Sync {
    /// The axes that can be tuned for this plan. `Err(Unsupported)` declines the plan.
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error>;
    /// Jobs of one program that fill the device: more jobs make it no faster. For a device with memory of its own, programs are made for that many
    /// jobs if there are as many. For other devices programs may be smaller, so that results come out sooner. See [`jobs_on_threads`] for devices
    /// that compute on the host's threads.
    fn jobs(&self, device: &Device, plan: &Plan, policy: &Policy) -> usize;
    /// Compiles the code that [`prepare`](SlhDsaPrograms::prepare) would compile for the same arguments, and does nothing more. So the code of
    /// several policies may be compiled concurrently before each of them is prepared. `prepare` reports code that cannot be compiled.
    fn compile(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy);
    /// Programs of this plan in flight that keep the device busy, at most [`Device::queue`].
    fn queue(&self, device: &Device, plan: &Plan) -> u32;
    /// The abilities of programs of this plan.
    fn abilities(&self, device: &Device, plan: &Plan) -> Abilities;
    /// Bytes of the host's memory that a program prepared for batches of up to `batch` jobs holds, scratch of all its threads included. The batch
    /// itself and its output are the caller's, and the device's own memory does not count. The call is cheap, because planning makes it often.
    fn bytes(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64;
    /// Prepares a program for batches of up to `batch` jobs, and allocates all that can be allocated. If the device's own memory does not suffice,
    /// `Err(OutOfMemory)` makes the caller try fewer jobs.
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error>;
}

/// Jobs of a full program for each thread. At a chunk's end all threads wait for the last one, which takes a millisecond or two. (16 cores that verify
/// 16,384 rows of 128s reach 56 % of 16 engines of one thread each with 64 jobs a thread, 91 % with 256 and 97 % with 1,024.)
const OF_A_THREAD: usize = 1024;

/// Gives [`SlhDsaPrograms::jobs`] of a device that computes on as many of the host's threads as the policy has. The jobs fill the widest lanes of
/// every thread several times over. They are so many that handing results out costs little, even if a job takes only microseconds.
pub fn jobs_on_threads(policy: &Policy) -> usize {
    OF_A_THREAD * policy.get(THREADS).unwrap_or(1) as usize
}

/// Prepares the devices of a backend for SHA-256 of messages. There is no plan, because hashing has no stages, keys, slots or checks.
pub trait Sha256Programs: Send + Sync {
    /// Bytes that a message may have; `usize::MAX` if there is no limit.
    fn longest(&self, device: &Device, policy: &Policy) -> Result<usize, Error>;
    /// Prepares a hasher on a device. `Err(Unsupported)` declines the device.
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error>;
}

/// Prepares the devices of a backend for zkDilithium, whose keys and stages differ from those of plans.
pub trait ZkDilithiumPrograms: Send + Sync {
    /// Prepares zkDilithium on a device. `Err(Unsupported)` declines the device.
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error>;
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

/// Where on a device the jobs of a run are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Places {
    /// Every job in its usual place.
    #[default]
    Usual,
    /// Every job in another place than usual, a single job too: another lane of a vector, another thread. A batch that is run both ways gives
    /// different bytes if one place is faulty. [`Program::read`] means nothing after such a run. The error is `OutOfMemory` if there is no room for
    /// another place. If there is only one place, it is the usual one: in the reference, for cached nodes on a GPU, and for a key that all jobs share.
    Other,
    /// First in the usual places, then in others, both times from the keys and messages on. The device compares the results, and none leaves it
    /// unless all agree; [`Error::differs`] names the result that differs. Only for programs with this [ability](Abilities::compares). The error is
    /// `OutOfMemory` if there is no room for both results.
    Both,
}

/// The abilities of the programs of a kind of work on a device, which the scheduler knows before a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Whether a program may write straight to the caller's memory: no result gets there before the checks that the run makes of it have passed. A
    /// run of several passes makes them pass by pass.
    pub holds: bool,
    /// The fewest jobs that a program computes in [`Places::Both`]; `usize::MAX` if it does not.
    pub compares: usize,
}

impl Abilities {
    /// Those of a program that writes results as it computes them, and leaves comparisons to the host.
    pub const NONE: Abilities = Abilities { holds: false, compares: usize::MAX };
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
    /// run and all later ones on the device fail. Until the first call the limit is [`DEVICE_TIMEOUT`]. A program that computes on the host's threads
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
