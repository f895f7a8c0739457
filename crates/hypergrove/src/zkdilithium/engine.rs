//! Batches of zkDilithium, over the scheduler that SLH-DSA's go through too.

use super::blocks::{KeygenJob, Listed};
use super::{JobMessage, SignJob, Signature, SigningKey, VerifyJob, VerifyingKey};
use crate::block::Job;
use crate::flow::Flow;
use crate::run::host_isa;
use crate::{Error, Fault, Isa, Rates, Stats};
use hypergrove_cpu::Cpu;
use hypergrove_engine::programs::Group;
use hypergrove_engine::scheduler::{Scheduler, Worker};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{
    Axis, Backend, Device, Policy, THREADS, Timing, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify,
};
use hypergrove_zkdilithium::Op;
use hypergrove_zkdilithium::params::{SEED_BYTES, SIG_BYTES, SK_BYTES};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Builds an [`Engine`]: devices, threads, memory and checks. See [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    isa: Option<Isa>,
    threads: Option<usize>,
    devices: Vec<(Arc<dyn Backend>, u32)>,
    policy: Policy,
    verify_signatures: bool,
    redundant: bool,
    device_timeout: Option<Duration>,
    memory_budget: Option<u64>,
    queue: Option<(usize, u64)>,
}

impl EngineBuilder {
    /// Sets the CPU's instruction set; by default that of the CPU among the named devices, or the fastest one.
    pub fn isa(mut self, isa: Isa) -> EngineBuilder {
        self.isa = Some(isa);
        self
    }
    /// Sets the number of CPU threads, at most 65,535; by default as many as the operating system offers. With 1, the CPU works on the calling thread.
    pub fn threads(mut self, threads: usize) -> EngineBuilder {
        self.threads = Some(threads);
        self
    }
    /// Sets the devices, each by its backend and index; by default the CPU. Several devices share each batch by their speed. If one
    /// fails, the others do its jobs.
    pub fn devices(mut self, devices: Vec<(Arc<dyn Backend>, u32)>) -> EngineBuilder {
        self.devices = devices;
        self
    }
    /// Sets the policy of GPUs. A policy changes the time, never a result: see [`Engine::space`].
    pub fn policy(mut self, policy: Policy) -> EngineBuilder {
        self.policy = policy;
        self
    }
    /// Sets whether the engine verifies every signature before it returns it. By default it does not: this costs a verification. A
    /// device that computes wrongly could reveal a secret by a signature, and nothing else detects that while signing.
    pub fn verify_signatures(mut self, verify: bool) -> EngineBuilder {
        self.verify_signatures = verify;
        self
    }
    /// Sets whether the engine computes keys, signatures and verdicts twice and compares them before it returns them. By default it
    /// does not: this takes twice the time. For the second computation, the CPU expands a signing key again, and every job has another
    /// place on the device: another lane of a vector, another thread of a GPU.
    pub fn redundant(mut self, redundant: bool) -> EngineBuilder {
        self.redundant = redundant;
        self
    }
    /// Sets how long the engine waits for a GPU, at least, before the GPU counts as hung: see [`crate::EngineBuilder::device_timeout`].
    pub fn device_timeout(mut self, timeout: Duration) -> EngineBuilder {
        self.device_timeout = Some(timeout);
        self
    }
    /// Bytes of the host's memory for a call: what the CPU's threads work in, and the results; otherwise as many as it takes.
    /// A call that needs more is refused before it takes any. Messages, what keys keep of themselves, and the pinned
    /// memory of GPUs do not count.
    ///
    /// Calls that hand results to a sink keep within this whatever their number of jobs, and what jobs own of messages and
    /// signatures counts too; unless chosen it is [`MEMORY_BUDGET`](crate::MEMORY_BUDGET), or
    /// [`DEVICE_MEMORY_BUDGET`](crate::DEVICE_MEMORY_BUDGET) with a GPU.
    pub fn memory_budget(mut self, bytes: u64) -> EngineBuilder {
        self.memory_budget = Some(bytes);
        self
    }
    /// Sets how much the queue of tickets holds: see [`crate::EngineBuilder::queue`].
    pub fn queue(mut self, jobs: usize, bytes: u64) -> EngineBuilder {
        self.queue = Some((jobs, bytes));
        self
    }
    /// Builds the engine. It prepares devices and starts threads at the first call.
    pub fn build(self) -> Result<Engine, Error> {
        let lacking =
            |isa: Isa| Error::Unsupported { device: "this CPU".into(), what: format!("{} instructions", isa.name()) };
        let cpu: Arc<dyn Backend> = match self.isa {
            Some(isa) => Arc::new(Cpu::with(isa).ok_or_else(|| lacking(isa))?),
            None => Arc::new(Cpu::new()),
        };
        let mut devices = if self.devices.is_empty() { vec![(cpu.clone(), 0)] } else { self.devices };
        for (backend, _) in &mut devices {
            if self.isa.is_some() && backend.name() == cpu.name() {
                *backend = cpu.clone();
            }
        }
        let mut builder = crate::Engine::builder().devices(devices).zkdilithium_policy(self.policy);
        builder = builder.verify_signatures(self.verify_signatures).redundant(self.redundant);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(bytes) = self.memory_budget {
            builder = builder.memory_budget(bytes);
        }
        if let Some(timeout) = self.device_timeout {
            builder = builder.device_timeout(timeout);
        }
        if let Some((jobs, bytes)) = self.queue {
            builder = builder.queue(jobs, bytes);
        }
        Ok(builder.build()?.zkdilithium())
    }
}

/// Makes keys, signs and verifies in batches, on the CPU or on the devices that are named. A clone is cheap. An engine from
/// [`Engine::zkdilithium`](crate::Engine::zkdilithium) shares the devices, threads and queues of its SLH-DSA engine.
#[derive(Clone)]
pub struct Engine(pub(super) crate::Engine);

impl crate::Engine {
    /// The same engine for zkDilithium. The calls of both share the devices.
    pub fn zkdilithium(&self) -> Engine {
        Engine(self.clone())
    }
}

impl Engine {
    /// Makes an engine on the CPU, with the fastest instruction set and as many threads as the operating system offers.
    pub fn new() -> Result<Engine, Error> {
        Engine::builder().build()
    }
    /// Begins to build an engine with chosen devices, instruction set and threads.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }
    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.0.0.scheduler
    }
    fn is_redundant(&self) -> bool {
        self.scheduler().options.redundant
    }
    /// The CPU's instruction set.
    pub fn isa(&self) -> Isa {
        host_isa(self.scheduler())
    }
    /// The number of CPU threads.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }
    /// How long the engine waits for a GPU, at least: see [`crate::EngineBuilder::device_timeout`].
    pub fn device_timeout(&self) -> Duration {
        self.0.device_timeout()
    }
    /// The devices that the engine uses, without those that it disabled.
    pub fn devices(&self) -> Vec<Device> {
        self.0.devices()
    }
    /// Failures of devices so far. If there was another device, it did the work, and the call went on.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.faults()
    }
    /// Counters: what the engine did so far, and what it does now.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
    /// Warnings, one line each: what the [backends](Backend::notices) of its devices have left out so far.
    pub fn notices(&self) -> Vec<String> {
        self.0.notices()
    }
    /// The axes of a policy for GPUs; empty on the CPU.
    pub fn space(&self) -> Result<Vec<Axis>, Error> {
        let of = |worker: &Worker| {
            let space = self.ask_program(worker, Op::Sign, |program| program.space())?;
            Ok(space.into_iter().filter(|axis| axis.name != THREADS).collect::<Vec<_>>())
        };
        let spaces = self.scheduler().live().map(of).collect::<Result<Vec<_>, Error>>()?;
        Ok(spaces.into_iter().find(|space| !space.is_empty()).unwrap_or_default())
    }
    fn group(&self, op: Op) -> Group {
        Group { kind: Kind::zkdilithium(op), threads: self.threads() }
    }
    /// What a device's program answers.
    fn ask_program<T: Send>(
        &self,
        worker: &Worker,
        op: Op,
        ask: impl Fn(&dyn ZkDilithium) -> T + Send + Sync,
    ) -> Result<T, Error> {
        worker.programs.ask(self.group(op), |ZkDilithiumProgram(program)| ask(&**program))
    }
    /// The number of jobs of one call that keeps the engine busy, within the memory budget; at least one.
    pub fn jobs_to_fill(&self, op: Op) -> Result<usize, Error> {
        let of = |worker: &Worker| {
            self.ask_program(worker, op, |program| program.jobs(op) * program.queue(op).max(1) as usize)
        };
        let jobs = self.scheduler().live().map(of).sum::<Result<usize, Error>>()?;
        let fixed = self.bytes(op, 0);
        let each = self.bytes(op, 1) - fixed;
        let fit = self.memory_budget().map(|budget| budget.saturating_sub(fixed) / each);
        Ok(fit.map_or(jobs, |fit| jobs.min(usize::try_from(fit).unwrap_or(usize::MAX))).max(1))
    }
    /// The memory budget of a call in bytes, if there is a limit.
    pub fn memory_budget(&self) -> Option<u64> {
        let options = &self.scheduler().options;
        options.is_memory_chosen.then_some(options.memory_budget)
    }
    /// Bytes of the host's memory that a call takes whose so many jobs are at hand: see [`EngineBuilder::memory_budget`].
    pub fn bytes(&self, op: Op, jobs: usize) -> u64 {
        let times = 1 + usize::from(self.is_redundant());
        let each = match op {
            Op::Keygen => SK_BYTES * times + size_of::<SigningKey>(),
            Op::Sign => SIG_BYTES * times + size_of::<(SignJob<'_>, Result<Signature, Error>, [ZkSign<'_>; 2])>(),
            Op::Verify => size_of::<(VerifyJob<'_>, Result<bool, Error>, [ZkVerify<'_>; 2])>(),
        };
        let of = |worker: &Worker| worker.programs.facts(self.group(op)).map_or(0, |facts| facts.fixed_bytes());
        let programs: u64 = self.scheduler().live().map(of).sum();
        programs * times as u64 + (each * jobs) as u64
    }
    /// Asks for the memory of a call.
    fn ask(&self, op: Op, jobs: usize) -> Result<(), Error> {
        let Some(has) = self.memory_budget() else { return Ok(()) };
        match self.bytes(op, jobs) {
            needs if needs > has => Err(Error::OutOfMemory { device: self.0.device().id(), needs, has }),
            _ => Ok(()),
        }
    }
    /// The number of jobs that one program takes together, if the engine has one GPU and nothing else.
    pub fn jobs_per_program(&self, op: Op) -> Result<Option<usize>, Error> {
        let live: Vec<&Worker> = self.scheduler().live().collect();
        match live[..] {
            [worker] if worker.has_memory() => self.ask_program(worker, op, |program| program.jobs(op)).map(Some),
            _ => Ok(None),
        }
    }
    /// The peak rate of each device, in compressions a second; `None` if its backend does not know.
    pub fn rates(&self) -> Vec<(Device, Option<Rates>)> {
        self.0.rates()
    }
    /// Poseidon permutations a second that the arithmetic of these devices allows; of the CPU's threads at so many
    /// cycles a second. `None` where that is not known.
    pub fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        let of = |worker: &Worker| self.ask_program(worker, Op::Sign, |program| program.poseidon_rate(clock));
        self.scheduler().live().map(of).sum()
    }
    /// Where the devices' time went, summed over all programs that ran so far; of those that ran concurrently each counts.
    pub fn timing(&self) -> Timing {
        self.0.timing()
    }

    /// Makes a key from the operating system's randomness.
    pub fn generate(&self) -> Result<SigningKey, Error> {
        self.0.0.one(KeygenJob(None))
    }

    /// Makes `count` keys from the operating system's randomness. `sink` gets each key with its number. It may stop the call by
    /// [`ControlFlow::Break`].
    pub fn generate_batch<F: Flow>(
        &self,
        count: usize,
        mut sink: impl FnMut(usize, SigningKey) -> F,
    ) -> Result<(), Error> {
        self.generate_all(count, &mut |index, key| sink(index, key).flow())
    }

    fn generate_all(
        &self,
        count: usize,
        sink: &mut dyn FnMut(usize, SigningKey) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.0.each(&mut (0..count).map(|_| KeygenJob(None)), sink)
    }

    /// Makes the keys of these seeds, in their order. Each key has memory of its own, whose allocation limits a GPU:
    /// [`Engine::keygen_rows_from_seeds`] makes many keys faster.
    pub fn from_seeds(&self, seeds: &[[u8; SEED_BYTES]]) -> Result<Vec<SigningKey>, Error> {
        self.ask(Op::Keygen, seeds.len())?;
        let jobs: Vec<KeygenJob<'_>> = seeds.iter().map(|seed| KeygenJob(Some(seed))).collect();
        self.0.0.all(&mut jobs.iter().map(Listed))
    }

    /// Signs one message. The error is [`Error::KeyDamaged`] for a damaged key.
    pub fn sign<'a>(&self, key: &'a SigningKey, message: impl Into<JobMessage<'a>>) -> Result<Signature, Error> {
        self.0.0.one(SignJob::new(key, message))
    }

    /// Signs any number of messages in bounded memory.
    ///
    /// `sink` gets the index and the result of each job, in order, on this thread, as soon as they are known. It may stop the call by
    /// [`ControlFlow::Break`]. A thread of its own takes jobs from the iterator, at most one chunk before the devices need them, so an
    /// iterator that blocks delays no result. With one thread and only the CPU, this thread takes the jobs, a chunk at a time.
    ///
    /// A job with a damaged key gets an error, and the others go on. If the last device fails, the call ends with an error. The call
    /// waits until the iterator's `next` has returned.
    pub fn sign_batch<'a, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = SignJob<'a>, IntoIter: Send>,
        mut sink: impl FnMut(usize, Result<Signature, Error>) -> F,
    ) -> Result<(), Error> {
        self.sign_all(&mut jobs.into_iter(), &mut |index, signature| sink(index, signature).flow())
    }

    /// Signs all these jobs, and returns a result for each, in their order. See [`Engine::sign_batch`].
    pub fn sign_batch_to_vec<'a>(
        &self,
        jobs: impl IntoIterator<Item = SignJob<'a>>,
    ) -> Result<Vec<Result<Signature, Error>>, Error> {
        self.sign_list(&jobs.into_iter().collect::<Vec<_>>())
    }

    /// Verifies one signature: `true` if the key signed this message. A signature of another length is not valid. See
    /// [`VerifyingKey::is_valid`].
    pub fn verify<'a>(
        &self,
        key: &'a VerifyingKey,
        message: impl Into<JobMessage<'a>>,
        signature: &'a [u8],
    ) -> Result<bool, Error> {
        self.0.0.one(VerifyJob::new(key, message, signature))
    }

    /// Verifies any number of signatures in bounded memory. `sink` gets the index and the verdict of each job, in order; all else is as
    /// in [`Engine::sign_batch`].
    pub fn verify_batch<'a, F: Flow>(
        &self,
        jobs: impl IntoIterator<Item = VerifyJob<'a>, IntoIter: Send>,
        mut sink: impl FnMut(usize, Result<bool, Error>) -> F,
    ) -> Result<(), Error> {
        self.verify_all(&mut jobs.into_iter(), &mut |index, verdict| sink(index, verdict).flow())
    }

    /// Verifies all these jobs, and returns a verdict for each, in their order. See [`Engine::verify_batch`].
    pub fn verify_batch_to_vec<'a>(
        &self,
        jobs: impl IntoIterator<Item = VerifyJob<'a>>,
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        self.verify_list(&jobs.into_iter().collect::<Vec<_>>())
    }
}

/// Not generic, as in [`crate::Engine`].
impl Engine {
    fn sign_all<'a>(
        &self,
        jobs: &mut (dyn Iterator<Item = SignJob<'a>> + Send),
        sink: &mut dyn FnMut(usize, Result<Signature, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.0.feed(jobs, sink)
    }

    fn verify_all<'a>(
        &self,
        jobs: &mut (dyn Iterator<Item = VerifyJob<'a>> + Send),
        sink: &mut dyn FnMut(usize, Result<bool, Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.0.feed(jobs, sink)
    }

    fn sign_list(&self, jobs: &[SignJob<'_>]) -> Result<Vec<Result<Signature, Error>>, Error> {
        self.to_vec(Op::Sign, jobs)
    }

    fn verify_list(&self, jobs: &[VerifyJob<'_>]) -> Result<Vec<Result<bool, Error>>, Error> {
        self.to_vec(Op::Verify, jobs)
    }

    fn to_vec<J: Job>(&self, op: Op, jobs: &[J]) -> Result<Vec<Result<J::Out, Error>>, Error> {
        self.ask(op, jobs.len())?;
        self.0.0.to_vec(jobs.iter().map(Listed).collect())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices().iter().map(Device::id).collect();
        f.debug_struct("Engine").field("devices", &devices).field("threads", &self.threads()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zkdilithium::{Message, only};
    use hypergrove_engine::{Reference, SelfTest, ZkDilithium, ZkDilithiumPrograms, capabilities, forward};
    use hypergrove_zkdilithium::{SignatureBytes, SigningKeyBytes, Trace, VerifyingKey as RawVerifyingKey, reference};
    use rayon::ThreadPoolBuilder;
    use rayon::prelude::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that compute what the reference does, three jobs at a time, until they fail or lie: each bit is a device's.
    #[derive(Clone, Default)]
    struct Mock {
        fails: Arc<AtomicU32>,
        lies: Arc<AtomicU32>,
        runs: Arc<Mutex<Vec<(u32, usize)>>>,
        /// Programs that verify: now, and at most so far.
        together: Arc<(Mutex<(usize, usize)>, Condvar)>,
        /// Whether each waits for another.
        waits: Arc<AtomicBool>,
        /// Whether a device has room for one program alone; programs that were made or refused, and those that live.
        is_small: Arc<AtomicBool>,
        made: Arc<AtomicU32>,
        live: Arc<AtomicU32>,
        /// Whether keys take their time, so that programs overlap.
        is_slow: Arc<AtomicBool>,
    }

    struct MockProgram(u32, Mock);

    impl MockProgram {
        fn begin(&self, jobs: usize) -> Result<Timing, Error> {
            lock(&self.1.runs).push((self.0, jobs));
            match self.is_in(&self.1.fails) {
                true => Err(Error::Device { device: format!("mock:{}", self.0), what: "no answer".into() }),
                false => Ok(Timing { execute: Duration::from_micros(1), ..Timing::default() }),
            }
        }
        fn is_in(&self, devices: &AtomicU32) -> bool {
            devices.load(Relaxed) >> self.0 & 1 == 1
        }
    }

    impl Drop for MockProgram {
        fn drop(&mut self) {
            self.1.live.fetch_sub(1, Relaxed);
        }
    }

    impl ZkDilithium for MockProgram {
        fn space(&self) -> Vec<Axis> {
            Vec::new()
        }
        fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
            Some(100.0)
        }
        fn uses_expanded_keys(&self) -> bool {
            false
        }
        fn jobs(&self, _: Op) -> usize {
            3
        }
        fn queue(&self, _: Op) -> u32 {
            2
        }
        fn bytes(&self) -> u64 {
            0
        }
        /// The reference has one place.
        fn elsewhere(&mut self, _: bool) {}
        hypergrove_engine::forward!(self => self; no_time_limit);

        fn keygen(&mut self, seeds: &[[u8; 32]], keys: &mut [&mut SigningKeyBytes]) -> Result<Timing, Error> {
            for (seed, key) in seeds.iter().zip(keys) {
                key.copy_from_slice(reference::keygen(seed).secret_bytes());
            }
            if self.1.is_slow.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.begin(seeds.len())
        }
        fn sign(&mut self, jobs: &[ZkSign<'_>], signatures: &mut [&mut SignatureBytes]) -> Result<Timing, Error> {
            for (job, signature) in jobs.iter().zip(signatures) {
                let made = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
                signature.copy_from_slice(made.as_bytes());
                signature[700] ^= u8::from(self.is_in(&self.1.lies));
            }
            self.begin(jobs.len())
        }
        fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
            let judge = |key: &RawVerifyingKey, job: &ZkVerify<'_>| {
                reference::verify(&key.expand(), job.message, job.signature, &mut Trace::default())
            };
            out.extend(jobs.iter().map(|job| judge(job.key, job)));
            if self.1.waits.load(Relaxed) {
                let (count, changed) = &*self.1.together;
                let mut now = lock(count);
                now.0 += 1;
                now.1 = now.1.max(now.0);
                changed.notify_all();
                let met = changed.wait_timeout_while(now, Duration::from_secs(10), |now| now.1 < 2);
                met.unwrap_or_else(PoisonError::into_inner).0.0 -= 1;
            }
            self.begin(jobs.len())
        }
    }

    impl Backend for Mock {
        fn name(&self) -> &'static str {
            "mock"
        }
        fn devices(&self) -> Result<Vec<Device>, Error> {
            let cpu = only(Cpu::new().devices()?);
            Ok((0..2)
                .map(|index| Device { backend: "mock", index, queue: 2, memory: 1 << 30, ..cpu.clone() })
                .collect())
        }
        fn self_test(&self) -> SelfTest {
            SelfTest::Off
        }
        forward!(self => Reference; absent, notices, rates, clock, fingerprint, free);
        capabilities!(has zkdilithium; lacks slh_dsa, sha256, host_memory;);
    }

    impl ZkDilithiumPrograms for Mock {
        fn prepare(&self, device: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
            self.made.fetch_add(1, Relaxed);
            if self.live.fetch_add(1, Relaxed) > 0 && self.is_small.load(Relaxed) {
                self.live.fetch_sub(1, Relaxed);
                return Err(Error::OutOfMemory { device: device.id(), needs: 2, has: 1 });
            }
            Ok(Box::new(MockProgram(device.index, self.clone())))
        }
    }

    fn mocks(mock: &Mock) -> Vec<(Arc<dyn Backend>, u32)> {
        let backend: Arc<dyn Backend> = Arc::new(mock.clone());
        vec![(backend.clone(), 0), (backend, 1)]
    }

    fn seeds(count: u8) -> Vec<[u8; 32]> {
        (0..count).map(|i| [i; 32]).collect()
    }

    fn are_keys_of(keys: &[SigningKey], seeds: &[[u8; 32]]) {
        assert_eq!(keys.len(), seeds.len());
        assert!(seeds.iter().zip(keys).all(|(seed, key)| *key.as_ref() == reference::keygen(seed)));
    }

    /// Keys that an engine makes in one piece of memory.
    fn keys_of_rows(engine: &Engine, seeds: &[[u8; 32]]) -> Result<Vec<SigningKey>, Error> {
        let mut keys = vec![0; seeds.len() * SK_BYTES];
        let made = engine.keygen_rows_from_seeds(seeds, &mut keys, None);
        assert!(made.is_ok() || keys.iter().all(|byte| *byte == 0), "after an error there are no keys");
        made.map(|()| keys.chunks(SK_BYTES).map(|key| SigningKey::from_bytes(key).unwrap()).collect())
    }

    /// Which device takes what is chance: in some call each has its turn.
    fn in_the_end(happened: impl FnMut() -> bool) {
        assert!(std::iter::repeat_with(happened).take(100).any(|happened| happened));
    }

    #[test]
    fn devices_share_jobs_and_results_come_in_order() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)).threads(2).verify_signatures(true).build().unwrap();
        assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["mock:0", "mock:1"]);
        assert_eq!((engine.jobs_to_fill(Op::Sign).unwrap(), engine.poseidon_rate(None).unwrap()), (12, Some(200.0)));
        let keys = engine.from_seeds(&seeds(10)).unwrap();
        are_keys_of(&keys, &seeds(10));
        let runs = std::mem::take(&mut *lock(&mock.runs));
        assert!(runs.iter().all(|(_, jobs)| *jobs <= 3));
        assert_eq!(engine.timing().execute, Duration::from_micros(runs.len() as u64));
        let jobs = keys[..4].iter().map(|key| SignJob::new(key, b"m"));
        let signatures: Vec<_> = engine.sign_batch_to_vec(jobs).unwrap().into_iter().flatten().collect();
        assert!(lock(&mock.runs).iter().all(|(_, jobs)| *jobs == 2), "few jobs are spread over devices");
        for (key, signature) in keys.iter().zip(&signatures) {
            assert!(key.verifying_key().is_valid(Message::Bytes(b"m"), signature.as_bytes()));
        }
        assert!(engine.sign_batch_to_vec([]).unwrap().is_empty());
        for count in [20, 7, 0, 23] {
            are_keys_of(&keys_of_rows(&engine, &seeds(count)).unwrap(), &seeds(count));
        }
        assert!(engine.faults().is_empty());
    }

    /// A GPU and the CPU: what each made is in its place, and both made some.
    #[test]
    fn the_cpu_takes_part() {
        let mock = Mock::default();
        let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
        let devices = vec![mocks(&mock)[1].clone(), (cpu, 0)];
        let engine = Engine::builder().devices(devices).threads(1).build().unwrap();
        assert_eq!(engine.jobs_to_fill(Op::Verify).unwrap(), 6 + 512);
        in_the_end(|| {
            lock(&mock.runs).clear();
            are_keys_of(&engine.from_seeds(&seeds(200)).unwrap(), &seeds(200));
            (1..200).contains(&lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>())
        });
        // Where it was faster without, the CPU takes no part.
        for _ in 0..2 {
            engine.scheduler().know_pace(Kind::zkdilithium(Op::Keygen), 20, true, 1e11);
            engine.scheduler().know_pace(Kind::zkdilithium(Op::Keygen), 20, false, 1e12);
        }
        lock(&mock.runs).clear();
        are_keys_of(&engine.from_seeds(&seeds(20)).unwrap(), &seeds(20));
        assert_eq!(lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>(), 20);
        // What fails leaves all to the other.
        mock.fails.store(0b10, Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.from_seeds(&seeds(200)).unwrap(), &seeds(200));
            !engine.faults().is_empty()
        });
        // Both of its programs in flight may have failed.
        let faults = engine.faults();
        assert!(faults.len() <= 2 && faults.iter().all(|fault| fault.device.id() == "mock:1"), "{faults:?}");
        lock(&mock.runs).clear();
        are_keys_of(&engine.from_seeds(&seeds(20)).unwrap(), &seeds(20));
        assert!(lock(&mock.runs).is_empty(), "it was disabled");
    }

    /// Two programs of one device: neither asks the other anything that it could only answer when it is done.
    #[test]
    fn programs_of_a_device_are_in_flight_together() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
        let key = SigningKey::from_seed(&[7; 32]);
        let (signature, public) = (key.sign_message(Message::Bytes(b"m")).unwrap(), key.verifying_key());
        let job = VerifyJob::new(&public, b"m", signature.as_bytes());
        mock.waits.store(true, Relaxed);
        assert_eq!(engine.verify_batch_to_vec(vec![job; 12]).unwrap(), [const { Ok(true) }; 12]);
        assert_eq!(lock(&mock.together.0).1, 2);
    }

    #[test]
    fn a_device_without_room_for_a_second_program_goes_on_with_one() {
        let mock = Mock::default();
        mock.is_small.store(true, Relaxed);
        mock.is_slow.store(true, Relaxed);
        let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
        in_the_end(|| {
            are_keys_of(&engine.from_seeds(&seeds(12)).unwrap(), &seeds(12));
            mock.made.load(Relaxed) > 1
        });
        assert!(engine.faults().is_empty());
        // What took the room may go.
        mock.is_small.store(false, Relaxed);
        let made = mock.made.load(Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.from_seeds(&seeds(12)).unwrap(), &seeds(12));
            mock.made.load(Relaxed) > made
        });
    }

    /// A thread of the caller's pool that waits for one call may begin with the next.
    #[test]
    fn calls_from_a_pool_do_not_wait_for_themselves() {
        let engine = Engine::builder().devices(mocks(&Mock::default())[..1].to_vec()).threads(1).build().unwrap();
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| {
            (0..16u8).into_par_iter().for_each(|_| are_keys_of(&engine.from_seeds(&seeds(2)).unwrap(), &seeds(2)));
        });
    }

    #[test]
    fn the_part_of_one_that_fails_is_done_by_another() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
        mock.fails.store(0b01, Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.from_seeds(&seeds(11)).unwrap(), &seeds(11));
            !engine.faults().is_empty()
        });
        let faults = engine.faults();
        assert!(faults.iter().all(|fault| fault.device.id() == "mock:0" && fault.jobs > 0), "{faults:?}");
        in_the_end(|| {
            let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
            are_keys_of(&keys_of_rows(&engine, &seeds(11)).unwrap(), &seeds(11));
            !engine.faults().is_empty()
        });
        mock.fails.store(0b11, Relaxed);
        assert!(keys_of_rows(&engine, &seeds(11)).is_err());
        let why = engine.from_seeds(&seeds(11)).unwrap_err();
        assert!(matches!(&why, Error::Device { device, what } if device == "mock:1" && what == "no answer"), "{why}");
        mock.fails.store(0, Relaxed);
        are_keys_of(&engine.from_seeds(&seeds(2)).unwrap(), &seeds(2));
    }

    #[test]
    fn wrong_signatures_are_withheld_and_made_again() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)).threads(1).verify_signatures(true).build().unwrap();
        let key = SigningKey::from_seed(&[7; 32]);
        let jobs = vec![SignJob::new(&key, b"m"); 9];
        let right = key.sign_message(Message::Bytes(b"m"));
        mock.lies.store(0b01, Relaxed);
        in_the_end(|| {
            assert_eq!(engine.sign_batch_to_vec(jobs.clone()).unwrap(), vec![right.clone(); 9]);
            !engine.faults().is_empty()
        });
        let faults = engine.faults();
        let is_lie = |fault: &Fault| matches!(fault.error, Error::Inconsistent { .. }) && fault.device.index == 0;
        assert!(faults.len() <= 2 && faults.iter().all(is_lie), "{faults:?}");
        // Those of an iterator too.
        in_the_end(|| {
            let engine = Engine::builder().devices(mocks(&mock)).threads(2).verify_signatures(true).build().unwrap();
            let mut signatures = Vec::new();
            engine.sign_batch(jobs.clone(), |_, signature| signatures.push(signature)).unwrap();
            assert_eq!(signatures, vec![right.clone(); 9]);
            !engine.faults().is_empty()
        });
        mock.lies.store(0b11, Relaxed);
        assert!(
            matches!(engine.sign_batch_to_vec(jobs), Err(Error::Inconsistent { .. })),
            "the last one's lie ends the call"
        );
    }

    #[test]
    fn what_cannot_be_an_engine_is_refused() {
        let mock: Arc<dyn Backend> = Arc::new(Mock::default());
        let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
        let refused = |devices| Engine::builder().devices(devices).build().unwrap_err().to_string();
        assert!(refused(vec![(mock.clone(), 2)]).contains("it has 2 devices"));
        assert!(refused(vec![(mock.clone(), 0), (mock, 0)]).contains("named twice"));
        assert!(refused(vec![(cpu.clone(), 0), (cpu.clone(), 0)]).contains("named twice"));
        assert!(refused(vec![(cpu.clone(), 1)]).contains("it has 1 devices"));
        let engine = Engine::builder().devices(vec![(cpu, 0)]).threads(1).build().unwrap();
        assert_eq!(engine.devices()[0].id(), "cpu:0");
        let reference: Arc<dyn Backend> = Arc::new(hypergrove_engine::Reference);
        let engine = Engine::builder().devices(vec![(reference, 0)]).build().unwrap();
        let why = engine.from_seeds(&[[0; 32]]).unwrap_err().to_string();
        assert_eq!(why, "reference:0 cannot execute zkDilithium");
    }
}
