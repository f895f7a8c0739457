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
    /// Whether every signature is verified before it is handed out (not the default: it costs a verification). A device
    /// that computes wrongly could let a secret out with a signature; nothing that is signed shows it otherwise.
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
        self.hands.iter().map(|hand| hand.with(|program| Ok(program.jobs(op)))).sum()
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
    /// Poseidon permutations a second that the arithmetic of these devices allows; of the CPU's threads at so many
    /// cycles a second. `None` where that is not known.
    pub fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        if self.hands.is_empty() {
            let known = clock.zip(self.lanes.poseidon_cycles());
            return Ok(known.map(|(clock, cycles)| self.threads() as f64 * clock / cycles));
        }
        // Each device once.
        let hands = &self.hands[..self.devices.len()];
        hands.iter().map(|hand| hand.with(|program| Ok(program.poseidon_rate()))).sum()
    }
    /// Where the devices' time went, summed over all programs that ran so far; of those that ran side by side each
    /// counts.
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
        Ok(self.pool.install(|| keys.into_par_iter().map(SigningKey::from).collect()))
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
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        // What one program takes is not cut, but spread over devices.
        let share = jobs.len().div_ceil(self.devices.len());
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Ok(Vec::new()));
        let work = |hand: &Hand| -> Result<(), Error> {
            loop {
                let ended = hand.with(|program| {
                    let piece = share.min(program.jobs(op));
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
        // More than one program of a device, if there is work for it.
        let (first, more) = self.hands.split_at(self.devices.len());
        let more = if first[0].with(|program| Ok(share > program.jobs(op)))? { more } else { &[] };
        std::thread::scope(|scope| {
            for hand in first.iter().chain(more) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zkdilithium::{Message, only};
    use hypergrove_engine::Program;
    use hypergrove_fips205::plan::Plan;
    use hypergrove_zkdilithium::{Trace, VerifyingKey as RawVerifyingKey, reference};
    use std::sync::atomic::AtomicBool;

    /// Devices that compute what the reference does, three jobs at a time, until they fail or lie.
    #[derive(Default)]
    struct Mock {
        fails: Arc<AtomicBool>,
        lies: Arc<AtomicBool>,
        runs: Arc<Mutex<Vec<(u32, usize)>>>,
    }

    struct MockProgram(u32, Arc<AtomicBool>, Arc<AtomicBool>, Arc<Mutex<Vec<(u32, usize)>>>);

    impl MockProgram {
        fn begin(&self, jobs: usize) -> Result<Timing, Error> {
            lock(&self.3).push((self.0, jobs));
            match self.1.load(Relaxed) {
                true => Err(Error::Device { device: format!("mock:{}", self.0), what: "no answer".into() }),
                false => Ok(Timing::default()),
            }
        }
    }

    impl ZkDilithium for MockProgram {
        fn space(&self) -> Vec<Axis> {
            Vec::new()
        }
        fn poseidon_rate(&self) -> Option<f64> {
            Some(100.0)
        }
        fn jobs(&self, _: Op) -> usize {
            3
        }
        fn keygen(
            &mut self,
            seeds: &[[u8; 32]],
            out: &mut Vec<hypergrove_zkdilithium::SigningKey>,
        ) -> Result<Timing, Error> {
            out.extend(seeds.iter().map(reference::keygen));
            self.begin(seeds.len())
        }
        fn sign(&mut self, jobs: &[ZkSign<'_>], out: &mut Vec<Signature>) -> Result<Timing, Error> {
            for job in jobs {
                let signature = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
                let mut bytes = signature.into_bytes();
                bytes[700] ^= u8::from(self.2.load(Relaxed));
                out.push(Signature::from_bytes(bytes).unwrap());
            }
            self.begin(jobs.len())
        }
        fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
            let judge = |key: &RawVerifyingKey, job: &ZkVerify<'_>| {
                reference::verify(&key.expand(), job.message, job.signature, &mut Trace::default())
            };
            out.extend(jobs.iter().map(|job| judge(job.key, job)));
            self.begin(jobs.len())
        }
    }

    impl Backend for Mock {
        fn name(&self) -> &'static str {
            "mock"
        }
        fn devices(&self) -> Result<Vec<Device>, Error> {
            let cpu = only(Cpu::new().devices()?);
            Ok((0..2).map(|index| Device { backend: "mock", index, ..cpu.clone() }).collect())
        }
        fn space(&self, device: &Device, _: &Plan) -> Result<Vec<Axis>, Error> {
            Err(Error::Unsupported { device: device.id(), what: "a plan".into() })
        }
        fn bytes(&self, _: &Device, _: &Plan, _: usize, _: &Policy) -> u64 {
            0
        }
        fn prepare(&self, device: &Device, _: &Plan, _: usize, _: &Policy) -> Result<Box<dyn Program>, Error> {
            Err(Error::Unsupported { device: device.id(), what: "a plan".into() })
        }
        fn zkdilithium(&self, device: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
            let Mock { fails, lies, runs } = self;
            Ok(Box::new(MockProgram(device.index, fails.clone(), lies.clone(), runs.clone())))
        }
    }

    #[test]
    fn devices_share_jobs_and_results_come_in_order() {
        let mock = Arc::new(Mock::default());
        let both = vec![(mock.clone() as Arc<dyn Backend>, 0), (mock.clone() as _, 1)];
        let engine = Engine::builder().devices(both.clone()).threads(2).verify_signatures(true).build().unwrap();
        assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["mock:0", "mock:1"]);
        assert_eq!((engine.filling(Op::Sign).unwrap(), engine.poseidon_rate(None).unwrap()), (12, Some(200.0)));
        let seeds: Vec<_> = (0..10).map(|i| [i; 32]).collect();
        let keys = engine.keygen_batch(&seeds).unwrap();
        for (seed, key) in seeds.iter().zip(&keys) {
            assert_eq!(*key.as_ref(), reference::keygen(seed));
        }
        assert!(lock(&mock.runs).iter().all(|(_, jobs)| *jobs <= 3));
        lock(&mock.runs).clear();
        let jobs: Vec<_> = keys[..4].iter().map(|key| SignJob { key, message: Message::Bytes(b"m") }).collect();
        let signatures = engine.sign_batch(&jobs).unwrap();
        assert!(lock(&mock.runs).iter().all(|(_, jobs)| *jobs == 2), "few jobs are spread over devices");
        for (key, signature) in keys.iter().zip(&signatures) {
            assert!(key.verifying_key().is_valid(Message::Bytes(b"m"), signature.as_bytes()));
        }
        assert!(engine.sign_batch(&[]).unwrap().is_empty());

        mock.lies.store(true, Relaxed);
        assert!(matches!(engine.sign_batch(&jobs), Err(Error::Inconsistent { .. })), "a wrong signature is withheld");
        mock.lies.store(false, Relaxed);
        mock.fails.store(true, Relaxed);
        let why = engine.keygen_batch(&seeds).unwrap_err();
        assert!(matches!(&why, Error::Device { what, .. } if what == "no answer"), "{why}");
    }

    #[test]
    fn what_cannot_be_an_engine_is_refused() {
        let mock: Arc<dyn Backend> = Arc::new(Mock::default());
        let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
        let refused = |devices| Engine::builder().devices(devices).build().unwrap_err().to_string();
        assert!(refused(vec![(mock.clone(), 2)]).contains("it has 2 devices"));
        assert!(refused(vec![(mock.clone(), 0), (mock.clone(), 0)]).contains("named twice"));
        assert!(refused(vec![(mock, 0), (cpu.clone(), 0)]).contains("together"));
        let engine = Engine::builder().devices(vec![(cpu, 0)]).threads(1).build().unwrap();
        assert_eq!(engine.devices()[0].id(), "cpu:0");
        let reference: Arc<dyn Backend> = Arc::new(crate::Reference);
        let engine = Engine::builder().devices(vec![(reference, 0)]).build().unwrap();
        let why = engine.keygen_batch(&[[0; 32]]).unwrap_err().to_string();
        assert_eq!(why, "reference:0 cannot execute zkDilithium");
    }
}
