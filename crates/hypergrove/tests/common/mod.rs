//! Devices that compute what the reference does, take their time, and fail on request.
#![allow(dead_code, reason = "each test file uses some of it")]

use hypergrove::backend::*;
use hypergrove::rows::{Column, Offsets};
use hypergrove::*;
use hypergrove_fips205::reference::{slh_keygen_internal, slh_sign};
use hypergrove_testkit::toys::TOY_SHA2_16;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const P: &Params = &TOY_SHA2_16;
pub(crate) const PURE: Mode<'static> = Mode::Pure { context: b"" };

pub(crate) fn key(of: u8) -> SigningKey {
    slh_keygen_internal(P, &[of; 16], &[of ^ 0x55; 16], &[of ^ 0xaa; 16]).into()
}

pub(crate) fn message(i: usize) -> Vec<u8> {
    format!("message {i}").into_bytes()
}

pub(crate) fn job(key: &SigningKey, i: usize) -> SignJob<'_> {
    SignJob::new(key, message(i)).deterministic()
}

/// A run of a program, about to be answered.
pub(crate) struct Call<'a> {
    pub(crate) device: u32,
    /// Runs of this device so far.
    pub(crate) nth: usize,
    pub(crate) op: Op,
    pub(crate) out: &'a mut [u8],
}

impl Call<'_> {
    pub(crate) fn fails<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::Device { device: format!("mock:{}", self.device), what: what.into() })
    }
}

pub(crate) type Answer = dyn Fn(Call<'_>) -> Result<(), Error> + Send + Sync;

/// The record of a mock.
#[derive(Default)]
pub(crate) struct Log {
    /// Device and jobs of each run, in order of their ends.
    pub(crate) runs: Mutex<Vec<(u32, usize)>>,
    /// Runs of each device: ever, now, and at most at a time.
    pub(crate) counts: [(AtomicUsize, AtomicUsize, AtomicUsize); 4],
    pub(crate) prepared: AtomicUsize,
    /// Programs that the device's memory did not suffice for.
    pub(crate) refused: AtomicUsize,
    /// Bytes of programs that live.
    pub(crate) bytes: AtomicU64,
    pub(crate) cached_ids: Mutex<HashSet<u64>>,
    /// Devices, and the limits that their waits were given.
    pub(crate) limits: Mutex<Vec<(u32, Option<Duration>)>>,
}

/// Devices that compute what the reference does, then take their time.
#[derive(Clone)]
pub(crate) struct Mock {
    pub(crate) name: &'static str,
    pub(crate) count: u32,
    pub(crate) queue: u32,
    pub(crate) memory: u64,
    /// Jobs that fill a device.
    pub(crate) jobs: usize,
    /// Jobs that a device's memory suffices for.
    pub(crate) capacity: usize,
    /// Bytes that a program takes of the host, for each job.
    pub(crate) bytes: u64,
    /// Time of a job on each device.
    pub(crate) delay: [Duration; 4],
    /// It computes nothing, to measure the way there.
    pub(crate) is_idle: bool,
    /// The answer after a run.
    pub(crate) answer: Arc<Answer>,
    /// Batches of which it gives a wrong root before it hands them out.
    pub(crate) wrong_roots: Arc<AtomicUsize>,
    /// Device 0 declines SHAKE.
    pub(crate) picky: bool,
    /// Whether its devices may be chosen without being named, and what device 0 is known by.
    pub(crate) automatic: bool,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) log: Arc<Log>,
}

pub(crate) fn mock(count: u32, queue: u32) -> Mock {
    Mock {
        name: "mock",
        count,
        queue,
        memory: 0,
        jobs: 8,
        capacity: usize::MAX,
        bytes: 0,
        delay: [Duration::from_micros(100); 4],
        is_idle: false,
        answer: Arc::new(|_| Ok(())),
        wrong_roots: Arc::default(),
        picky: false,
        automatic: true,
        uuid: None,
        log: Arc::default(),
    }
}

impl Mock {
    pub(crate) fn answering(self, answer: impl Fn(Call<'_>) -> Result<(), Error> + Send + Sync + 'static) -> Mock {
        Mock { answer: Arc::new(answer), ..self }
    }
    pub(crate) fn builder(&self) -> EngineBuilder {
        let backend: Arc<dyn Backend> = Arc::new(self.clone());
        Engine::builder().devices((0..self.count).map(|i| (backend.clone(), i)).collect()).threads(2)
    }
    pub(crate) fn engine(&self) -> Engine {
        self.builder().build().unwrap()
    }
    /// Jobs that each device ran.
    pub(crate) fn shares(&self) -> [usize; 4] {
        let mut shares = [0; 4];
        self.log.runs.lock().unwrap().iter().for_each(|(device, jobs)| shares[*device as usize] += jobs);
        shares
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
            ..Reference.devices().unwrap().remove(0)
        };
        Ok((0..self.count).map(of).collect())
    }
    forward!(self => Reference; self_test, absent, notices, rates, clock, fingerprint, free);
    capabilities!(has slh_dsa, host_memory;);
}

/// Memory of its devices' host, if they have memory of their own.
impl HostMemory for Mock {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn ReachableMemory>, Error> {
        match self.memory {
            0 => Err(Error::Unsupported { device: self.name.into(), what: "memory of the host".into() }),
            _ => Ok(Box::new(Page(vec![0; bytes]))),
        }
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

    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        if self.picky && device.index == 0 && plan.params.family == Family::Shake {
            return Err(Error::Unsupported { device: device.id(), what: "SHAKE".into() });
        }
        Ok(Vec::new())
    }
    fn jobs(&self, _: &Device, _: &Plan, _: &Policy) -> usize {
        self.jobs
    }
    fn bytes(&self, _: &Device, _: &Plan, batch: usize, _: &Policy) -> u64 {
        self.bytes * batch as u64
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        if batch > self.capacity {
            self.log.refused.fetch_add(1, SeqCst);
            return Err(Error::OutOfMemory { device: device.id(), needs: batch as u64, has: self.capacity as u64 });
        }
        self.log.prepared.fetch_add(1, SeqCst);
        let bytes = self.bytes * batch as u64;
        self.log.bytes.fetch_add(bytes, SeqCst);
        let program = SlhDsaPrograms::prepare(&Reference, device, plan, batch, policy)?;
        Ok(Box::new(MockProgram { mock: self.clone(), device: device.index, batch, bytes, elsewhere: false, program }))
    }
}

pub(crate) struct MockProgram {
    pub(crate) mock: Mock,
    pub(crate) device: u32,
    pub(crate) batch: usize,
    pub(crate) bytes: u64,
    pub(crate) elsewhere: bool,
    pub(crate) program: Box<dyn Program>,
}

impl Drop for MockProgram {
    fn drop(&mut self) {
        self.mock.log.bytes.fetch_sub(self.bytes, SeqCst);
    }
}

impl Program for MockProgram {
    fn plan(&self) -> &Plan {
        self.program.plan()
    }
    fn run(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        assert!(batch.len() <= self.batch, "{} jobs in a program for {}", batch.len(), self.batch);
        if self.mock.is_idle {
            return Ok(Timing::default());
        }
        let log = &self.mock.log;
        log.cached_ids.lock().unwrap().extend(batch.keys.iter().map(|key| key.cached_id));
        let (ever, now, most) = &log.counts[self.device as usize];
        let nth = ever.fetch_add(1, SeqCst);
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        let timing = self.program.run(batch, out);
        std::thread::sleep(self.mock.delay[self.device as usize] * batch.len() as u32);
        now.fetch_sub(1, SeqCst);
        let (device, op) = (self.device, self.plan().op);
        // The device's places are those of its output.
        let moved = if self.elsewhere { out.len() / 2 } else { 0 };
        out.rotate_right(moved);
        (self.mock.answer)(Call { device, nth, op, out })?;
        out.rotate_left(moved);
        log.runs.lock().unwrap().push((device, batch.len()));
        timing
    }
    /// As a GPU does: signatures leave the device when their roots were accepted.
    fn run_held(
        &mut self,
        batch: &Batch<'_>,
        digests: &mut dyn Digests,
        rows: &mut [&mut [u8]],
        accept: Accept<'_>,
        twice: bool,
    ) -> Option<Result<Timing, Error>> {
        let (p, op) = (self.plan().params, self.plan().op);
        if op != Op::Sign || self.elsewhere || self.mock.memory == 0 {
            return None;
        }
        let batch = &Batch { positions: &digests.positions(), ..*batch };
        let mut out = vec![0; batch.len() * p.sig_bytes()];
        let done = self.run(batch, &mut out).and_then(|timing| {
            if !self.mock.is_idle {
                let roots = self.read(Slot::XmssRoots).unwrap();
                let mut roots: Vec<u8> = roots
                    .chunks_exact(roots.len() / batch.len())
                    .flat_map(|roots| &roots[roots.len() - p.n..])
                    .copied()
                    .collect();
                let is_wrong = self.mock.wrong_roots.try_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
                *roots.last_mut().unwrap() ^= u8::from(is_wrong);
                accept(&roots)?;
            }
            if twice {
                let mut again = vec![0; out.len()];
                self.elsewhere = true;
                let positions = digests.positions_again()?;
                let done = self.run(&Batch { positions: &positions, ..*batch }, &mut again);
                self.elsewhere = false;
                done?;
                let size = p.sig_bytes();
                let differs = out.chunks_exact(size).zip(again.chunks_exact(size)).position(|(a, b)| a != b);
                if let Some(job) = differs {
                    return Err(Error::differs(format!("mock:{}", self.device), "the output of Sign", job));
                }
            }
            let mut from = out.chunks_exact(p.sig_bytes());
            for to in rows.iter_mut().flat_map(|rows| rows.chunks_exact_mut(p.sig_bytes())) {
                to[p.n..].copy_from_slice(&from.next().unwrap()[p.n..]);
            }
            Ok(timing)
        });
        Some(done)
    }
    /// As a GPU does: positions are computed meanwhile.
    fn run_fetched(
        &mut self,
        batch: &Batch<'_>,
        digests: &mut dyn Digests,
        out: &mut [u8],
    ) -> Option<Result<Timing, Error>> {
        if self.plan().op != Op::Verify || self.elsewhere || self.mock.memory == 0 {
            return None;
        }
        Some(self.run(&Batch { positions: &digests.positions(), ..*batch }, out))
    }
    fn most_hashed(&self) -> usize {
        0
    }
    fn elsewhere(&mut self, elsewhere: bool) {
        self.elsewhere = elsewhere;
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        // Of many runs, a list would grow.
        if !self.mock.is_idle {
            self.mock.log.limits.lock().unwrap().push((self.device, limit));
        }
    }
    fn read(&self, slot: Slot) -> Option<Vec<u8>> {
        self.program.read(slot)
    }
}

/// The facts that doubles of zkDilithium's programs share: nothing to choose, no memory, and two programs in flight.
#[allow(unused_macros, reason = "some test files use it")]
macro_rules! zk_facts {
    () => {
        fn space(&self) -> Vec<hypergrove::backend::Axis> {
            Vec::new()
        }
        fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
            None
        }
        fn uses_expanded_keys(&self) -> bool {
            false
        }
        fn queue(&self, _: hypergrove_zkdilithium::Op) -> u32 {
            2
        }
        fn bytes(&self) -> u64 {
            0
        }
        fn time_limit(&mut self, _: Option<std::time::Duration>) {}
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use zk_facts;

/// Signs messages 0 to `count`, deterministically; every signature that comes out is right, and in its place.
pub(crate) fn sign(engine: &Engine, key: &SigningKey, count: usize) -> (Result<(), Error>, usize) {
    let mut next = 0;
    let done = engine.sign_batch((0..count).map(|i| job(key, i)), |index, signature| {
        assert_eq!(index, next, "results in order, each once");
        let expected = slh_sign(&message(index), b"", key.as_ref(), None).unwrap();
        assert!(signature.unwrap().as_bytes() == expected.as_bytes(), "signature {index}");
        next += 1;
    });
    (done, next)
}

/// Prints what the way of a job to a device that computes nothing and back costs, three times. Each way verifies so many
/// signatures and gives the number of valid ones: there are none.
pub(crate) fn tell_the_way(count: i32, ways: &[(&str, &dyn Fn() -> usize)]) {
    for (way, verify) in [ways; 3].concat() {
        let began = Instant::now();
        assert_eq!(verify(), 0);
        println!("checked: {way}: {:.0} ns", began.elapsed().as_secs_f64() * 1e9 / f64::from(count));
    }
}

/// Values as a column of every kind: packed if they have one length, with room between them, with offsets, and as slices.
pub(crate) fn columns<T>(values: &[Vec<u8>], mut with: impl FnMut(&str, Column<'_>) -> T) -> Vec<T> {
    let (bytes, rows) = (values.concat(), values.len());
    let mut ends = vec![0];
    for value in values {
        ends.push(ends[ends.len() - 1] + value.len());
    }
    let small: Vec<i32> = ends.iter().map(|end| *end as i32).collect();
    let large: Vec<i64> = ends.iter().map(|end| *end as i64).collect();
    let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let mut done = vec![
        with("offsets of 32 bits", Column::Variable { bytes: &bytes, offsets: Offsets::I32(&small) }),
        with("offsets of 64 bits", Column::Variable { bytes: &bytes, offsets: Offsets::I64(&large) }),
        with("slices", Column::Slices(&slices)),
    ];
    let width = values.first().map_or(1, Vec::len);
    if values.iter().all(|value| value.len() == width) {
        done.push(with("packed", Column::Packed { bytes: &bytes, width, stride: width, rows }));
        // The bytes between the values identify the row to its owner, say; the last one needs nothing after it.
        let mut spaced: Vec<u8> = values.iter().flat_map(|value| [&value[..], &[0xff; 5]].concat()).collect();
        spaced.truncate(spaced.len().saturating_sub(5));
        done.push(with("spaced", Column::Packed { bytes: &spaced, width, stride: width + 5, rows }));
    }
    done
}
