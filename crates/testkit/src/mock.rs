//! The double of a backend for tests. It computes what another backend computes, takes its time, and follows a script.

use hypergrove_engine::{
    Abilities, Axis, Backend, Batch, Device, Error, Hasher, HostMemory, Messages, Places, Policy, Program,
    ReachableMemory, Reference, SelfTest, Sha256Programs, SlhDsaPrograms, Timing, Work, ZkDilithium,
    ZkDilithiumPrograms, ZkSign, ZkVerify, forward,
};
use hypergrove_fips205::plan::{Op, Plan, Rates, Slot};
use hypergrove_zkdilithium::{Message, Op as ZkOp, SignatureBytes, SigningKeyBytes, Trace, reference};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// A capability of a backend.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Capability {
    /// Plans of SLH-DSA.
    SlhDsa,
    /// SHA-256 of messages.
    Sha256,
    /// zkDilithium.
    ZkDilithium,
    /// Memory of the host that devices reach.
    HostMemory,
}

/// A run of a program, about to be answered.
pub struct Call<'a> {
    /// The devices.
    pub mock: &'a Mock,
    /// The index of the device.
    pub device: u32,
    /// Runs of this device so far.
    pub nth: usize,
    /// The operation; `None` for SHA-256 of messages.
    pub op: Option<Op>,
    /// The plan of SLH-DSA.
    pub plan: Option<&'a Plan>,
    /// The number of jobs.
    pub jobs: usize,
    /// The policy of the program.
    pub policy: &'a Policy,
    /// The limit of the program's waits.
    pub limit: Option<Duration>,
    /// The results of all jobs, one after the other; of zkDilithium's verdicts one byte each.
    pub out: &'a mut [u8],
    /// The times that the program reports.
    pub timing: &'a mut Timing,
}

impl Call<'_> {
    /// The error of a device that fails.
    pub fn fails<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::Device { device: format!("{}:{}", self.mock.name, self.device), what: what.into() })
    }
}

/// A program, about to be prepared.
pub struct Preparation<'a> {
    /// The device.
    pub device: &'a Device,
    /// The plan of SLH-DSA.
    pub plan: Option<&'a Plan>,
    /// The most jobs of a run.
    pub batch: usize,
    /// The policy.
    pub policy: &'a Policy,
    /// Other programs that live.
    pub live: usize,
}

/// Answers a run.
pub type Answer = dyn Fn(Call<'_>) -> Result<(), Error> + Send + Sync;
/// Prepares a program, or says why the device does not.
pub type Prepare = dyn Fn(Preparation<'_>) -> Result<(), Error> + Send + Sync;
/// Gives the axes of a plan, or says why the device declines it.
pub type Space = dyn Fn(&Device, &Plan) -> Result<Vec<Axis>, Error> + Send + Sync;
/// Changes a value that a program keeps for checks.
pub type Kept = dyn Fn(Slot, &mut [u8]) + Send + Sync;

/// The record of a mock.
#[derive(Default)]
pub struct Log {
    /// Device and jobs of each run, in order of their ends.
    pub runs: Mutex<Vec<(u32, usize)>>,
    /// Runs of each device: ever, now, and at most at a time.
    pub counts: [(AtomicUsize, AtomicUsize, AtomicUsize); 4],
    /// Programs that were prepared.
    pub prepared: AtomicUsize,
    /// Programs that the device's memory did not suffice for.
    pub refused: AtomicUsize,
    /// Programs that live.
    pub live: AtomicUsize,
    /// Bytes of programs that live.
    pub bytes: AtomicU64,
    /// The ids of cached nodes that batches had.
    pub cached_ids: Mutex<HashSet<u64>>,
    /// Devices, and the limits that their waits were given.
    pub limits: Mutex<Vec<(u32, Option<Duration>)>>,
    /// The addresses of zkDilithium's signatures, run by run.
    pub places: Mutex<Vec<Vec<usize>>>,
}

/// Devices that compute what another backend does, then take their time, and answer as a script says.
#[derive(Clone)]
pub struct Mock {
    /// The name of the backend.
    pub name: &'static str,
    /// The number of devices.
    pub count: u32,
    /// See [`Device::queue`].
    pub queue: u32,
    /// See [`Device::memory`].
    pub memory: u64,
    /// Whether a device reaches memory of the host.
    pub reaching: fn(&Device) -> bool,
    /// Whether its devices may be chosen without being named.
    pub automatic: bool,
    /// The number by which device 0 is known.
    pub uuid: Option<[u8; 16]>,
    /// Changes other facts about a device.
    pub facts: fn(Device) -> Device,
    /// The capabilities of the backend.
    pub has: &'static [Capability],
    /// See [`Backend::self_test`].
    pub self_test: SelfTest,
    /// See [`Backend::notices`].
    pub notices: Vec<String>,
    /// See [`Backend::fingerprint`].
    pub fingerprint: &'static str,
    /// See [`Backend::rates`].
    pub rates: Option<Rates>,
    /// See [`ZkDilithium::poseidon_rate`].
    pub poseidon_rate: Option<f64>,
    /// The backend whose devices these are, and that computes. The reference computes zkDilithium.
    pub backend: Arc<dyn Backend>,
    /// Jobs that fill a device.
    pub jobs: usize,
    /// Jobs that a device's memory suffices for.
    pub capacity: usize,
    /// Bytes of the longest message that a device hashes.
    pub longest: usize,
    /// Bytes that a program takes of the host, for each job.
    pub bytes: u64,
    /// Time of a job on each device.
    pub delay: [Duration; 4],
    /// It computes nothing, to measure the way there.
    pub is_idle: bool,
    /// The script for the axes of a plan.
    pub space: Arc<Space>,
    /// The script before a program is prepared.
    pub prepare: Arc<Prepare>,
    /// The script after a run.
    pub answer: Arc<Answer>,
    /// The script for values that programs keep for checks.
    pub kept: Arc<Kept>,
    /// Batches of which it gives a wrong root before it hands them out.
    pub wrong_roots: Arc<AtomicUsize>,
    /// The record of what happened.
    pub log: Arc<Log>,
}

/// Devices that compute what the reference does, `queue` programs at a time.
pub fn mock(count: u32, queue: u32) -> Mock {
    Mock {
        name: "mock",
        count,
        queue,
        memory: 0,
        reaching: |_| true,
        automatic: true,
        uuid: None,
        facts: |device| device,
        has: &[Capability::SlhDsa, Capability::HostMemory],
        self_test: SelfTest::Off,
        notices: Vec::new(),
        fingerprint: "",
        rates: None,
        poseidon_rate: None,
        backend: Arc::new(Reference),
        jobs: 8,
        capacity: usize::MAX,
        longest: usize::MAX,
        bytes: 0,
        delay: [Duration::from_micros(100); 4],
        is_idle: false,
        space: Arc::new(|_, _| Ok(Vec::new())),
        prepare: Arc::new(|_| Ok(())),
        answer: Arc::new(|_| Ok(())),
        kept: Arc::new(|_, _| ()),
        wrong_roots: Arc::default(),
        log: Arc::default(),
    }
}

impl Mock {
    /// Sets the script after a run.
    #[must_use]
    pub fn answering(self, answer: impl Fn(Call<'_>) -> Result<(), Error> + Send + Sync + 'static) -> Mock {
        Mock { answer: Arc::new(answer), ..self }
    }
    /// Sets the script before a program is prepared.
    #[must_use]
    pub fn preparing(self, prepare: impl Fn(Preparation<'_>) -> Result<(), Error> + Send + Sync + 'static) -> Mock {
        Mock { prepare: Arc::new(prepare), ..self }
    }
    /// Sets the axes of plans.
    #[must_use]
    pub fn with_space(
        self,
        space: impl Fn(&Device, &Plan) -> Result<Vec<Axis>, Error> + Send + Sync + 'static,
    ) -> Mock {
        Mock { space: Arc::new(space), ..self }
    }
    /// Some of its devices, as an engine's builder takes them.
    pub fn on(&self, devices: impl IntoIterator<Item = u32>) -> Vec<(Arc<dyn Backend>, u32)> {
        let backend: Arc<dyn Backend> = Arc::new(self.clone());
        devices.into_iter().map(|index| (backend.clone(), index)).collect()
    }
    /// Runs of all devices.
    pub fn runs(&self) -> usize {
        self.log.counts.iter().map(|(ever, ..)| ever.load(SeqCst)).sum()
    }
    /// Jobs that each device ran.
    pub fn shares(&self) -> [usize; 4] {
        let mut shares = [0; 4];
        self.log.runs.lock().unwrap().iter().for_each(|(device, jobs)| shares[*device as usize] += jobs);
        shares
    }
    fn has(&self, capability: Capability) -> bool {
        self.has.contains(&capability)
    }
    /// Begins a program for a plan, if it is one of SLH-DSA, and so many jobs.
    pub fn begin(&self, device: &Device, plan: Option<&Plan>, batch: usize, policy: &Policy) -> Result<Running, Error> {
        if batch > self.capacity {
            self.log.refused.fetch_add(1, SeqCst);
            return Err(Error::OutOfMemory { device: device.id(), needs: batch as u64, has: self.capacity as u64 });
        }
        let (mock, bytes, live) = (self.clone(), self.bytes * batch as u64, self.log.live.fetch_add(1, SeqCst));
        self.log.bytes.fetch_add(bytes, SeqCst);
        let (of, index, policy_of) = (plan.cloned(), device.index, policy.clone());
        let running = Running { mock, device: index, plan: of, bytes, policy: policy_of, limit: None };
        (self.prepare)(Preparation { device, plan, batch, policy, live })?;
        self.log.prepared.fetch_add(1, SeqCst);
        Ok(running)
    }
}

impl Backend for Mock {
    fn name(&self) -> &'static str {
        self.name
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        let of = |index| Device {
            backend: self.name,
            index,
            queue: self.queue,
            memory: self.memory,
            automatic: self.automatic,
            uuid: self.uuid.filter(|_| index == 0),
            ..self.backend.devices().expect("devices").remove(0)
        };
        Ok((0..self.count).map(of).map(self.facts).collect())
    }
    fn self_test(&self) -> SelfTest {
        self.self_test
    }
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }
    fn rates(&self, _: &Device) -> Option<Rates> {
        self.rates
    }
    fn fingerprint(&self, _: &Device) -> String {
        self.fingerprint.into()
    }
    forward!(self => self.backend; absent, clock, free);

    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        self.has(Capability::SlhDsa).then_some(self)
    }
    fn sha256(&self) -> Option<&dyn Sha256Programs> {
        self.has(Capability::Sha256).then_some(self)
    }
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms> {
        self.has(Capability::ZkDilithium).then_some(self)
    }
    fn host_memory(&self) -> Option<&dyn HostMemory> {
        self.has(Capability::HostMemory).then_some(self)
    }
}

/// Memory of its devices' host, if they have memory of their own.
impl HostMemory for Mock {
    fn allocate(&self, device: &Device, bytes: usize) -> Result<Box<dyn ReachableMemory>, Error> {
        if self.memory == 0 || !(self.reaching)(device) {
            return Err(Error::Unsupported { device: self.name.into(), what: "memory of the host".into() });
        }
        Ok(Box::new(Page(vec![0; bytes])))
    }
    fn reaches(&self, device: &Device, _: &dyn ReachableMemory) -> bool {
        (self.reaching)(device)
    }
}

struct Page(Vec<u8>);

impl ReachableMemory for Page {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl SlhDsaPrograms for Mock {
    forward!(self => Reference; compile, queue);

    /// Those of a GPU, if it has memory of its own.
    fn abilities(&self, _: &Device, plan: &Plan) -> Abilities {
        let holds = self.memory > 0;
        Abilities { holds, compares: if holds && plan.op == Op::Sign { 1 } else { usize::MAX } }
    }
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        (self.space)(device, plan)
    }
    fn jobs(&self, _: &Device, _: &Plan, _: &Policy) -> usize {
        self.jobs
    }
    fn bytes(&self, _: &Device, _: &Plan, batch: usize, _: &Policy) -> u64 {
        self.bytes * batch as u64
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let running = self.begin(device, Some(plan), batch, policy)?;
        let program = self.backend.slh_dsa_on(device)?.prepare(device, plan, batch, policy)?;
        Ok(Box::new(MockProgram { running, batch, program }))
    }
}

impl Sha256Programs for Mock {
    fn longest(&self, _: &Device, _: &Policy) -> Result<usize, Error> {
        Ok(self.longest)
    }
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        let running = self.begin(device, None, 1, policy)?;
        Ok(Box::new(MockHasher(running, self.backend.sha256_on(device)?.prepare(device, policy)?)))
    }
}

impl ZkDilithiumPrograms for Mock {
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(Box::new(self.begin(device, None, 1, policy)?))
    }
}

/// A program that was prepared. By itself it is one of zkDilithium; a scheme of the tests may make it one of its own.
pub struct Running {
    mock: Mock,
    device: u32,
    plan: Option<Plan>,
    bytes: u64,
    policy: Policy,
    limit: Option<Duration>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.mock.log.live.fetch_sub(1, SeqCst);
        self.mock.log.bytes.fetch_sub(self.bytes, SeqCst);
    }
}

impl Running {
    /// Computes, takes its time, and answers as the script says.
    fn run(
        &mut self,
        (op, jobs, places): (Option<Op>, usize, Places),
        out: &mut [u8],
        compute: impl FnOnce(&mut [u8]) -> Result<Timing, Error>,
    ) -> Result<Timing, Error> {
        let Running { mock, device, plan, policy, limit, .. } = &*self;
        let (ever, now, most) = &mock.log.counts[*device as usize];
        let nth = ever.fetch_add(1, SeqCst);
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        let computed = compute(out);
        std::thread::sleep(mock.delay[*device as usize] * jobs as u32);
        now.fetch_sub(1, SeqCst);
        let mut timing = computed?;
        // The device's places are those of its output.
        let moved = if places == Places::Usual { 0 } else { out.len() / 2 };
        out.rotate_right(moved);
        let (device, plan, limit, timing_of) = (*device, plan.as_ref(), *limit, &mut timing);
        (mock.answer)(Call { mock, device, nth, op, plan, jobs, policy, limit, out, timing: timing_of })?;
        out.rotate_left(moved);
        mock.log.runs.lock().unwrap().push((device, jobs));
        Ok(timing)
    }

    /// Sets the limit of the program's waits.
    pub fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
        // Of many runs, a list would grow.
        if !self.mock.is_idle {
            self.mock.log.limits.lock().unwrap().push((self.device, limit));
        }
    }

    /// Writes what a scheme computes for each job to its place. All places have one size.
    pub fn write(
        &mut self,
        (op, places): (Op, Places),
        to: &mut [impl AsMut<[u8]>],
        compute: impl Fn(usize, &mut [u8]),
    ) -> Result<Timing, Error> {
        let Some(size) = to.first_mut().map(|to| to.as_mut().len()).filter(|_| !self.mock.is_idle) else {
            return Ok(Timing::default());
        };
        let mut all = vec![0; size * to.len()];
        let timing = self.run((Some(op), to.len(), places), &mut all, |all| {
            all.chunks_exact_mut(size).enumerate().for_each(|(job, out)| compute(job, out));
            Ok(Timing::default())
        })?;
        to.iter_mut().zip(all.chunks_exact(size)).for_each(|(to, made)| to.as_mut().copy_from_slice(made));
        Ok(timing)
    }
}

/// The bytes that the reference of zkDilithium computes from this input. A signature takes it some milliseconds, and tests have doubles make the same
/// signatures for each kind of engine and of column: this process computes each once. Other inputs have the same number by a chance of 2^−64 or so.
fn once(input: impl Hash, compute: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    static KNOWN: LazyLock<Mutex<HashMap<u64, Vec<u8>>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let number = hasher.finish();
    if let Some(made) = known().get(&number) {
        return made.clone();
    }
    // Without the lock: doubles compute at the same time.
    let made = compute();
    known().insert(number, made.clone());
    made
}

/// A message as what is hashed of it.
struct Words<'a>(Message<'a>);

impl Hash for Words<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
        match self.0 {
            Message::Bytes(bytes) => bytes.hash(state),
            Message::Block(elements) | Message::Mu(elements) => elements.hash(state),
        }
    }
}

struct MockProgram {
    running: Running,
    batch: usize,
    program: Box<dyn Program>,
}

impl MockProgram {
    /// Computes a batch in the device's own memory.
    fn compute(&mut self, batch: &Batch<'_>, places: Places) -> Result<(Vec<u8>, Timing), Error> {
        let mut out = vec![0; batch.len() * self.plan().out_bytes()];
        let work = (Some(self.program.plan().op), batch.len(), places);
        let timing = self.running.run(work, &mut out, |out| self.program.run_batch(batch, out))?;
        Ok((out, timing))
    }
}

impl Program for MockProgram {
    fn plan(&self) -> &Plan {
        self.program.plan()
    }
    /// As a GPU does, if it has memory of its own: positions are computed first, and signatures leave the device when their roots were accepted and,
    /// in both places, the results agree.
    fn run(&mut self, mut work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        let jobs = work.batch.len();
        assert!(jobs <= self.batch, "{jobs} jobs in a program for {}", self.batch);
        let (p, op, mock) = (self.plan().params, self.plan().op, self.running.mock.clone());
        if mock.is_idle {
            return Ok(Timing::default());
        }
        mock.log.cached_ids.lock().unwrap().extend(work.batch.keys.iter().map(|key| key.cached_id));
        let positions = work.positions()?;
        let places = work.places;
        let is_both = places == Places::Both;
        let again = if is_both { work.positions()? } else { Default::default() };
        let batch = Batch { positions: &positions, ..work.batch };
        batch.check(self.plan(), out.iter().map(|part| part.len()).sum())?;
        let (made, timing) = self.compute(&batch, if is_both { Places::Usual } else { places })?;
        if op == Op::Sign && work.accept.is_some() {
            let mut roots = self.read(Slot::XmssRoots)?.unwrap();
            let is_wrong = mock.wrong_roots.try_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            *roots.last_mut().unwrap() ^= u8::from(is_wrong);
            work.accept_top_roots(p, &roots)?;
        }
        let size = self.plan().out_bytes();
        if is_both {
            let (second, _) = self.compute(&Batch { positions: &again, ..batch }, Places::Other)?;
            let mut rows = made.chunks_exact(size).zip(second.chunks_exact(size));
            if let Some(job) = rows.position(|(a, b)| a != b) {
                let device = format!("{}:{}", mock.name, self.running.device);
                return Err(Error::differs(device, "the output of Sign", job));
            }
        }
        let host_makes = if op == Op::Sign { p.n } else { 0 };
        let rows = out.iter_mut().flat_map(|part| part.chunks_exact_mut(size));
        rows.zip(made.chunks_exact(size)).for_each(|(to, row)| to[host_makes..].copy_from_slice(&row[host_makes..]));
        Ok(timing)
    }

    fn time_limit(&mut self, limit: Option<Duration>) {
        self.running.set_limit(limit);
    }
    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        let mut value = self.program.read(slot)?;
        if let Some(value) = &mut value {
            (self.running.mock.kept)(slot, value);
        }
        Ok(value)
    }
}

struct MockHasher(Running, Box<dyn Hasher>);

impl Hasher for MockHasher {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let MockHasher(running, hasher) = self;
        running.run((None, messages.len(), Places::Usual), digests.as_flattened_mut(), |digests| {
            hasher.run(messages, digests.as_chunks_mut().0)
        })
    }
    fn resident(
        &mut self,
        messages: Messages<'_>,
        _: usize,
        _: usize,
        digests: &mut [[u8; 32]],
    ) -> Result<Option<Vec<Duration>>, Error> {
        self.run(messages, digests).map(|_| None)
    }
    fn link(&mut self) -> Result<Option<f64>, Error> {
        Ok(None)
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        self.0.set_limit(limit);
    }
}

impl ZkDilithium for Running {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
        self.mock.poseidon_rate
    }
    fn uses_expanded_keys(&self) -> bool {
        false
    }
    fn jobs(&self, _: ZkOp) -> usize {
        self.mock.jobs
    }
    fn queue(&self, _: ZkOp) -> u32 {
        2
    }
    fn bytes(&self) -> u64 {
        0
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        self.set_limit(limit);
    }
    fn keygen(
        &mut self,
        seeds: &[[u8; 32]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        self.write((Op::Keygen, places), keys, |i, key| {
            key.copy_from_slice(reference::keygen(&seeds[i]).secret_bytes())
        })
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        if !self.mock.is_idle {
            let addresses = signatures.iter().map(|signature| signature.as_ptr().addr()).collect();
            self.mock.log.places.lock().unwrap().push(addresses);
        }
        self.write((Op::Sign, places), signatures, |i, signature| {
            let job = &jobs[i];
            let made = once(("sign", job.key.secret_bytes(), Words(job.message)), || {
                Vec::from(reference::sign(&job.key.expand(), job.message, &mut Trace::default()))
            });
            signature.copy_from_slice(&made);
        })
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error> {
        if self.mock.is_idle {
            out.resize(out.len() + jobs.len(), false);
            return Ok(Timing::default());
        }
        let mut verdicts = vec![0; jobs.len()];
        let timing = self.run((Some(Op::Verify), jobs.len(), places), &mut verdicts, |verdicts| {
            for (job, verdict) in jobs.iter().zip(verdicts) {
                *verdict = once(("verify", job.key.as_bytes(), Words(job.message), job.signature), || {
                    let valid = reference::verify(&job.key.expand(), job.message, job.signature, &mut Trace::default());
                    vec![u8::from(valid)]
                })[0];
            }
            Ok(Timing::default())
        })?;
        out.extend(verdicts.iter().map(|verdict| *verdict != 0));
        Ok(timing)
    }
}
