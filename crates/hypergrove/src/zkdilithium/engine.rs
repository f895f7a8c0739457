//! Batches, on the CPU's lanes or on GPUs.

use super::{SignJob, Signature, SigningKey, VerifyJob, VerifyingKey};
use crate::{Error, Isa, Work};
use hypergrove_cpu::Cpu;
use hypergrove_cpu::zk::{Sign, Verify, ZkDilithium as Lanes};
use hypergrove_engine::{Axis, Backend, Device, Policy, THREADS, Timing, ZkDilithium, ZkSign, ZkVerify};
use hypergrove_zkdilithium::Op;
use hypergrove_zkdilithium::params::SEED_BYTES;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Programs of a device in flight: while the host lays one out or takes its results, the device computes the other.
const HANDS: usize = 2;
/// Jobs of one call for each thread that keep lanes filled.
const JOBS_OF_A_THREAD: usize = 512;

/// What an engine shall be; see [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    isa: Option<Isa>,
    threads: Option<usize>,
    devices: Vec<(Arc<dyn Backend>, u32)>,
    policy: Policy,
    verify_signatures: bool,
}

impl EngineBuilder {
    /// The CPU's instruction set; otherwise the one that is fastest here.
    pub fn isa(mut self, isa: Isa) -> EngineBuilder {
        self.isa = Some(isa);
        self
    }
    /// Host threads; otherwise as many as the operating system offers.
    pub fn threads(mut self, threads: usize) -> EngineBuilder {
        self.threads = Some(threads);
        self
    }
    /// Devices, each by its backend and index; otherwise the CPU. Batches are split over several GPUs by their speed.
    pub fn devices(mut self, devices: Vec<(Arc<dyn Backend>, u32)>) -> EngineBuilder {
        self.devices = devices;
        self
    }
    /// Choices that change the time which GPUs take, never bytes: see [`Engine::space`].
    pub fn policy(mut self, policy: Policy) -> EngineBuilder {
        self.policy = policy;
        self
    }
    /// Whether every signature is verified before it is handed out (not the default: it costs a verification). A device that
    /// computes wrongly could let a secret out with a signature; nothing that is signed shows it otherwise.
    pub fn verify_signatures(mut self, verify: bool) -> EngineBuilder {
        self.verify_signatures = verify;
        self
    }
    /// The engine. Its threads are started now; devices are made ready at their first use.
    pub fn build(self) -> Result<Engine, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::Value { what: "an engine with 0 threads; use 1 or more".into() }),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let isa = self.isa.unwrap_or_else(Isa::fastest);
        let lacking = || Error::Value { what: format!("this CPU lacks {}", isa.name()) };
        let (lanes, cpu) = (Lanes::with(isa).ok_or_else(lacking)?, Cpu::with(isa).ok_or_else(lacking)?);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("zkdilithium-{i}")).build();
        let refused = |why| Error::Value { what: format!("{threads} threads could not be started: {why}; use fewer") };
        let pool = pool.map_err(refused)?;
        let is_cpu = |(backend, _): &(Arc<dyn Backend>, u32)| backend.name() == cpu.name();
        let (mut devices, mut hands) = (Vec::new(), Vec::new());
        if self.devices.iter().all(is_cpu) {
            devices = cpu.devices()?;
        } else if self.devices.iter().any(is_cpu) {
            let what = "zkDilithium on GPUs and the CPU together; name either".into();
            return Err(Error::Value { what });
        }
        for (backend, index) in self.devices.into_iter().filter(|device| !is_cpu(device)) {
            let there = backend.devices()?;
            let none = || format!("device {index} of {}: it has {} devices", backend.name(), there.len());
            let device = there.iter().find(|device| device.index == index);
            let device = device.ok_or_else(|| Error::Value { what: none() })?.clone();
            if devices.contains(&device) {
                return Err(Error::Value { what: format!("{} is named twice; name each device once", device.id()) });
            }
            let policy = Policy([&[(THREADS, threads as u32)], &self.policy.0[..]].concat());
            let hand = || Hand {
                backend: backend.clone(),
                device: device.clone(),
                policy: policy.clone(),
                program: Mutex::default(),
            };
            // The first of each device come first: what is few is spread over devices.
            hands.insert(devices.len(), hand());
            hands.extend((1..if threads > 1 { HANDS } else { 1 }).map(|_| hand()));
            devices.push(device);
        }
        let (timing, verify_signatures) = (Mutex::default(), self.verify_signatures);
        Ok(Engine { lanes, pool, hands, devices, verify_signatures, timing })
    }
}

/// Makes keys, signs and verifies by the batch, on threads of its own: on the CPU, or on the GPUs that are named.
pub struct Engine {
    lanes: Lanes,
    pool: ThreadPool,
    hands: Vec<Hand>,
    devices: Vec<Device>,
    verify_signatures: bool,
    timing: Mutex<Timing>,
}

/// A program of a device, made at its first use.
struct Hand {
    backend: Arc<dyn Backend>,
    device: Device,
    policy: Policy,
    program: Mutex<Option<Box<dyn ZkDilithium>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hand {
    fn with<R>(&self, run: impl FnOnce(&mut dyn ZkDilithium) -> Result<R, Error>) -> Result<R, Error> {
        let mut program = lock(&self.program);
        if program.is_none() {
            *program = Some(self.backend.zkdilithium(&self.device, &self.policy)?);
        }
        run(&mut **program.as_mut().expect("it was made"))
    }
}

impl Engine {
    /// On the CPU, by the instruction set that is fastest here, with as many threads as the operating system offers.
    pub fn new() -> Result<Engine, Error> {
        Engine::builder().build()
    }
    /// Chooses devices, instruction set and threads.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }
    /// The CPU's instruction set.
    pub fn isa(&self) -> Isa {
        self.lanes.isa()
    }
    /// Host threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
    /// What computes.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
    /// What can be chosen by a policy; nothing on the CPU.
    pub fn space(&self) -> Result<Vec<Axis>, Error> {
        self.hands.first().map_or(Ok(Vec::new()), |hand| hand.with(|program| Ok(program.space())))
    }
    /// Jobs of one call that keep the engine busy.
    pub fn filling(&self, op: Op) -> Result<usize, Error> {
        if self.hands.is_empty() {
            return Ok(JOBS_OF_A_THREAD * self.threads());
        }
        self.hands.iter().map(|hand| hand.with(|program| Ok(2 * program.jobs(op)))).sum()
    }
    /// Jobs that one program of a device takes at a time; `None` on the CPU.
    pub fn program(&self, op: Op) -> Result<Option<usize>, Error> {
        self.hands.first().map(|hand| hand.with(|program| Ok(program.jobs(op)))).transpose()
    }
    /// What each device could hash at most, if its backend knows: compressions a second.
    pub fn rates(&self) -> Vec<(Device, Option<Work>)> {
        let known = |device: &Device| {
            let hand = self.hands.iter().find(|hand| hand.device == *device)?;
            hand.backend.rates(device)
        };
        self.devices.iter().map(|device| (device.clone(), known(device))).collect()
    }
    /// Poseidon permutations a second that the arithmetic of these devices allows; of the CPU's threads at so many cycles a
    /// second. `None` where that is not known.
    pub fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        if self.hands.is_empty() {
            let known = clock.zip(self.lanes.poseidon_cycles());
            return Ok(known.map(|(clock, cycles)| self.threads() as f64 * clock / cycles));
        }
        // Each device once.
        let hands = &self.hands[..self.devices.len()];
        hands.iter().map(|hand| hand.with(|program| Ok(program.poseidon_rate()))).sum()
    }
    /// Where the devices' time went, summed over all programs that ran so far; of those that ran side by side each counts.
    pub fn timing(&self) -> Timing {
        lock(&self.timing).clone()
    }

    /// The keys of these seeds, in their order.
    pub fn keygen_batch(&self, seeds: &[[u8; SEED_BYTES]]) -> Result<Vec<SigningKey>, Error> {
        let keys = if self.hands.is_empty() {
            self.pool.install(|| self.lanes.keygen(seeds))
        } else {
            self.share(Op::Keygen, seeds, |program, seeds, out| program.keygen(seeds, out))?
        };
        Ok(keys.into_iter().map(SigningKey::from).collect())
    }

    /// The signatures, in the order of the jobs.
    pub fn sign_batch<'a>(&self, jobs: &[SignJob<'a>]) -> Result<Vec<Signature>, Error> {
        let signatures = if self.hands.is_empty() {
            let job = |job: &SignJob<'a>| Sign { key: job.key.expanded(), message: job.message };
            self.pool.install(|| self.lanes.sign(&jobs.par_iter().map(job).collect::<Vec<_>>()))
        } else {
            let job = |job: &SignJob<'a>| ZkSign { key: job.key.as_ref(), message: job.message };
            self.share(Op::Sign, jobs, |program, jobs, out| {
                program.sign(&jobs.iter().map(job).collect::<Vec<_>>(), out)
            })?
        };
        if self.verify_signatures {
            self.check(jobs, &signatures)?;
        }
        Ok(signatures)
    }

    /// The verdicts, in the order of the jobs.
    pub fn verify_batch<'a>(&self, jobs: &[VerifyJob<'a>]) -> Result<Vec<bool>, Error> {
        if self.hands.is_empty() {
            let job = |job: &VerifyJob<'a>| {
                let VerifyJob { key, message, signature } = *job;
                Verify { key: key.expanded(), message, signature }
            };
            return Ok(self.pool.install(|| self.lanes.verify(&jobs.par_iter().map(job).collect::<Vec<_>>())));
        }
        let job = |job: &VerifyJob<'a>| {
            let VerifyJob { key, message, signature } = *job;
            ZkVerify { key: key.as_ref(), message, signature }
        };
        self.share(Op::Verify, jobs, |program, jobs, out| {
            program.verify(&jobs.iter().map(job).collect::<Vec<_>>(), out)
        })
    }

    /// An error if one of the signatures does not verify.
    fn check(&self, jobs: &[SignJob<'_>], signatures: &[Signature]) -> Result<(), Error> {
        let mut keys: HashMap<*const SigningKey, VerifyingKey> = HashMap::new();
        for job in jobs {
            keys.entry(job.key).or_insert_with(|| job.key.verifying_key());
        }
        let mut checks = Vec::with_capacity(jobs.len());
        for (SignJob { key, message }, signature) in jobs.iter().zip(signatures) {
            let key = &keys[&std::ptr::from_ref(*key)];
            checks.push(VerifyJob { key, message: *message, signature: signature.as_bytes() });
        }
        if self.verify_batch(&checks)?.iter().all(|valid| *valid) {
            return Ok(());
        }
        let what = "a signature that it made does not verify".into();
        Err(Error::Inconsistent { device: self.devices[0].id(), what })
    }

    /// Has the programs of all devices take jobs until none are left.
    fn share<J: Sync, R: Send>(
        &self,
        op: Op,
        jobs: &[J],
        run: impl Fn(&mut dyn ZkDilithium, &[J], &mut Vec<R>) -> Result<Timing, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        /// Parts of a full program that are not cut smaller.
        const PARTS: usize = 4;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Ok(Vec::new()));
        let work = |hand: &Hand| -> Result<(), Error> {
            loop {
                let ended = hand.with(|program| {
                    let most = program.jobs(op);
                    let piece = jobs.len().div_ceil(self.hands.len()).clamp(most.div_ceil(PARTS), most);
                    let from = next.fetch_add(piece, Relaxed).min(jobs.len());
                    let piece = &jobs[from..jobs.len().min(from + piece)];
                    if piece.is_empty() || lock(&done).is_err() {
                        return Ok(true);
                    }
                    let mut out = Vec::with_capacity(piece.len());
                    let took = self.pool.install(|| run(program, piece, &mut out))?;
                    let mut timing = lock(&self.timing);
                    timing.upload += took.upload;
                    timing.execute += took.execute;
                    timing.download += took.download;
                    if let Ok(done) = &mut *lock(&done) {
                        done.push((from, out));
                    }
                    Ok(false)
                })?;
                if ended {
                    return Ok(());
                }
            }
        };
        std::thread::scope(|scope| {
            for hand in &self.hands {
                scope.spawn(|| {
                    if let Err(why) = work(hand) {
                        *lock(&done) = Err(why);
                    }
                });
            }
        });
        let mut parts: Vec<(usize, Vec<R>)> = done.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        parts.sort_by_key(|(from, _)| *from);
        Ok(parts.into_iter().flat_map(|(_, results)| results).collect())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices.iter().map(Device::id).collect();
        f.debug_struct("Engine").field("devices", &devices).field("threads", &self.threads()).finish()
    }
}
