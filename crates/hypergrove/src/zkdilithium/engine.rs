//! Batches, on the CPU's lanes, on GPUs, or on both.

use super::worker::{Crew, Hand, Jobs, MOST_HANDS, On, Paces, Worker, lock};
use super::{SignJob, Signature, SigningKey, SigningKeys, VerifyJob, VerifyingKey};
use crate::Fault;
use crate::{Error, Isa, Work};
use hypergrove_cpu::Cpu;
use hypergrove_engine::{Axis, Backend, Device, Policy, SelfTested, THREADS, Timing, ZkSign, ZkVerify};
use hypergrove_zkdilithium::params::{SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SigningKeyWords};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use zeroize::Zeroize;

/// Keys that one thread copies at a time, 62 kB.
const SHARE: usize = 16;

/// Seeds, and where their keys go.
struct Seeds<'a> {
    seeds: &'a [[u8; SEED_BYTES]],
    keys: &'a mut [SigningKeyWords],
}

impl Jobs for Seeds<'_> {
    fn len(&self) -> usize {
        self.seeds.len()
    }
    fn split_at(self, at: usize) -> (Self, Self) {
        let (seeds, keys) = (self.seeds.split_at(at), self.keys.split_at_mut(at));
        (Seeds { seeds: seeds.0, keys: keys.0 }, Seeds { seeds: seeds.1, keys: keys.1 })
    }
}

/// What an engine shall be; see [`Engine::builder`].
#[derive(Clone, Default)]
pub struct EngineBuilder {
    isa: Option<Isa>,
    threads: Option<usize>,
    devices: Vec<(Arc<dyn Backend>, u32)>,
    policy: Policy,
    verify_signatures: bool,
    redundant: bool,
    memory_budget: Option<u64>,
}

impl EngineBuilder {
    /// The CPU's instruction set; otherwise that of the CPU among the devices that are named, or the one that is fastest here.
    pub fn isa(mut self, isa: Isa) -> EngineBuilder {
        self.isa = Some(isa);
        self
    }
    /// Host threads; otherwise as many as the operating system offers. With 1, the CPU works on the calling thread.
    pub fn threads(mut self, threads: usize) -> EngineBuilder {
        self.threads = Some(threads);
        self
    }
    /// Devices, each by its backend and index; otherwise the CPU. Batches are split over several by their speed; what one
    /// fails to do, others do.
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
    /// Whether keys, signatures and verdicts are computed twice and compared before they are handed out (not the default: it
    /// takes twice the time). The CPU expands a signing key once more for the second time. Every job has another place then:
    /// another lane of a vector, another thread of a GPU.
    pub fn redundant(mut self, redundant: bool) -> EngineBuilder {
        self.redundant = redundant;
        self
    }
    /// Bytes of the host's memory for a call: what the CPU's threads work in, and the results; otherwise as many as it takes.
    /// A call that needs more is refused before it takes any. Messages, what keys keep of themselves, and the pinned
    /// memory of GPUs do not count.
    pub fn memory_budget(mut self, bytes: u64) -> EngineBuilder {
        self.memory_budget = Some(bytes);
        self
    }
    /// The engine. Its threads are started now; devices are tested and made ready at their first use.
    pub fn build(self) -> Result<Engine, Error> {
        let threads = match self.threads {
            Some(0) => return Err(Error::Value { what: "an engine with 0 threads; use 1 or more".into() }),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let lacking =
            |isa: Isa| Error::Unsupported { device: "this CPU".into(), what: format!("{} instructions", isa.name()) };
        let cpu = match self.isa {
            Some(isa) => Cpu::with(isa).ok_or_else(|| lacking(isa))?,
            None => Cpu::new(),
        };
        let (mut isa, cpu): (Isa, Arc<dyn Backend>) = (cpu.isa(), Arc::new(cpu));
        let pool = |name: &'static str| {
            let named = ThreadPoolBuilder::new().num_threads(threads).thread_name(move |i| format!("{name}-{i}"));
            named.build().map_err(|why| Error::no_threads(threads, why))
        };
        let of_threads = Policy(vec![(THREADS, threads as u32)]);
        let policy = Policy([&of_threads.0[..], &self.policy.0[..]].concat());
        let named = if self.devices.is_empty() { vec![(cpu.clone(), 0)] } else { self.devices };
        let mut workers: Vec<Worker> = Vec::new();
        for (backend, index) in named {
            let is_cpu = backend.name() == cpu.name();
            let backend = SelfTested::of(if is_cpu && self.isa.is_some() { cpu.clone() } else { backend });
            let there = backend.devices()?;
            let none = || format!("device {index} of {}: it has {} devices", backend.name(), there.len());
            let device = there.iter().find(|device| device.index == index);
            let device = device.ok_or_else(|| Error::Value { what: none() })?.clone();
            if workers.iter().any(|worker| worker.device == device) {
                return Err(Error::Value { what: format!("{} is named twice; name each device once", device.id()) });
            }
            let hands = if is_cpu {
                isa = Isa::by_name(&device.detail).unwrap_or(isa);
                let pool = if threads == 1 { None } else { Some(pool("zkdilithium-lanes")?) };
                vec![Hand::new(&backend, &of_threads, pool)]
            } else {
                let hands = 0..if threads > 1 { MOST_HANDS } else { 1 };
                let hand = |_| Ok(Hand::new(&backend, &policy, Some(pool("zkdilithium-copies")?)));
                hands.map(hand).collect::<Result<_, Error>>()?
            };
            workers.push(Worker::new(device, hands, is_cpu, self.redundant));
        }
        let devices = workers.iter().map(|worker| worker.device.clone()).collect();
        let (verify_signatures, redundant, memory_budget) =
            (self.verify_signatures, self.redundant, self.memory_budget);
        let (paces, timing, faults) = Default::default();
        Ok(Engine {
            isa,
            threads,
            workers,
            devices,
            verify_signatures,
            redundant,
            memory_budget,
            paces,
            timing,
            faults,
        })
    }
}

/// Makes keys, signs and verifies by the batch, on threads of its own: on the CPU, or on the devices that are named.
pub struct Engine {
    isa: Isa,
    threads: usize,
    workers: Vec<Worker>,
    devices: Vec<Device>,
    verify_signatures: bool,
    redundant: bool,
    memory_budget: Option<u64>,
    paces: Paces,
    timing: Mutex<Timing>,
    faults: Mutex<Vec<Fault>>,
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
        self.isa
    }
    /// Host threads.
    pub fn threads(&self) -> usize {
        self.threads
    }
    /// What computes.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
    /// Failures of devices so far that ended no call, since others did in their place what was lost.
    pub fn faults(&self) -> Vec<Fault> {
        lock(&self.faults).clone()
    }
    /// What its devices' [backends](Backend::notices) have left out so far: a line each.
    pub fn notices(&self) -> Vec<String> {
        let mut all = Vec::new();
        for notice in self.workers.iter().flat_map(Worker::notices) {
            if !all.contains(&notice) {
                all.push(notice);
            }
        }
        all
    }
    /// What can be chosen by a policy for GPUs; nothing on the CPU.
    pub fn space(&self) -> Result<Vec<Axis>, Error> {
        let spaces = self.workers.iter().map(Worker::space).collect::<Result<Vec<_>, Error>>()?;
        Ok(spaces.into_iter().find(|space| !space.is_empty()).unwrap_or_default())
    }
    /// Jobs of one call that keep the engine busy, as far as the memory budget allows: one at least.
    pub fn jobs_to_fill(&self, op: Op) -> Result<usize, Error> {
        let jobs = self.workers.iter().map(|worker| worker.jobs(op).map(|(jobs, times)| jobs * times));
        let (jobs, fixed) = (jobs.sum::<Result<usize, Error>>()?, self.bytes(op, 0));
        let each = self.bytes(op, 1) - fixed;
        let fit = self.memory_budget.map(|budget| budget.saturating_sub(fixed) / each);
        Ok(fit.map_or(jobs, |fit| jobs.min(usize::try_from(fit).unwrap_or(usize::MAX))).max(1))
    }
    /// Bytes of the host's memory for a call, if there is a limit.
    pub fn memory_budget(&self) -> Option<u64> {
        self.memory_budget
    }
    /// Bytes of the host's memory that a call of so many jobs takes: see [`EngineBuilder::memory_budget`].
    pub fn bytes(&self, op: Op, jobs: usize) -> u64 {
        let each = match op {
            Op::Keygen => SK_BYTES * (1 + usize::from(self.redundant)) + size_of::<SigningKey>(),
            Op::Sign => {
                SIG_BYTES * (1 + usize::from(self.redundant))
                    + size_of::<Result<Signature, Error>>()
                    + 2 * size_of::<ZkSign<'_>>()
            }
            Op::Verify => size_of::<bool>() + 2 * size_of::<ZkVerify<'_>>(),
        };
        self.workers.iter().map(Worker::bytes).sum::<u64>() + (each * jobs) as u64
    }
    /// Asks for the memory of a call.
    fn ask(&self, op: Op, jobs: usize) -> Result<(), Error> {
        match (self.memory_budget, self.bytes(op, jobs)) {
            (Some(has), needs) if needs > has => Err(Error::OutOfMemory { device: self.devices[0].id(), needs, has }),
            _ => Ok(()),
        }
    }
    /// Jobs that one program takes at a time, where one GPU alone computes.
    pub fn jobs_per_program(&self, op: Op) -> Result<Option<usize>, Error> {
        match &self.workers[..] {
            [worker] => worker.program(op),
            _ => Ok(None),
        }
    }
    /// What each device could hash at most, if its backend knows: compressions a second.
    pub fn rates(&self) -> Vec<(Device, Option<Work>)> {
        self.workers.iter().map(|worker| (worker.device.clone(), worker.rates())).collect()
    }
    /// Poseidon permutations a second that the arithmetic of these devices allows; of the CPU's threads at so many
    /// cycles a second. `None` where that is not known.
    pub fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        self.workers.iter().map(|worker| worker.poseidon_rate(clock)).sum()
    }
    /// Where the devices' time went, summed over all programs that ran so far; of those that ran side by side each
    /// counts.
    pub fn timing(&self) -> Timing {
        lock(&self.timing).clone()
    }

    /// The keys of these seeds, in their order, each with memory of its own. For a GPU that memory is the limit: see
    /// [`Engine::keygen_into`].
    pub fn keygen_batch(&self, seeds: &[[u8; SEED_BYTES]]) -> Result<Vec<SigningKey>, Error> {
        self.ask(Op::Keygen, seeds.len())?;
        self.crew().share(Op::Keygen, seeds, |on, seeds, out| {
            let first = out.len();
            let mut took = keygen(on, self.threads, seeds, out)?;
            if self.redundant {
                let mut second = Vec::with_capacity(seeds.len());
                took += &on.elsewhere(|on| keygen(on, self.threads, seeds, &mut second))?;
                on.compare("key", &out[first..], &second).inspect_err(|_| out.truncate(first))?;
            }
            Ok(took)
        })
    }

    /// The keys of these seeds, in their order, in the place of those that `keys` held. Memory is taken only where they are
    /// more than ever before; after an error there are none.
    pub fn keygen_into(&self, seeds: &[[u8; SEED_BYTES]], keys: &mut SigningKeys) -> Result<(), Error> {
        self.ask(Op::Keygen, seeds.len()).inspect_err(|_| keys.clear())?;
        let done = self.crew().share(Op::Keygen, Seeds { seeds, keys: keys.room(seeds.len()) }, |on, jobs, _| {
            let Seeds { seeds, keys } = jobs;
            let mut took = keygen_into(on, self.threads, seeds, keys)?;
            if self.redundant {
                let mut second = SigningKeys::new();
                took += &on.elsewhere(|on| keygen_into(on, self.threads, seeds, second.room(seeds.len())))?;
                on.compare("key", keys, second.room_again())?;
            }
            Ok(took)
        });
        match done {
            Ok(nothing) => {
                let _: Vec<()> = nothing;
                keys.come();
                Ok(())
            }
            Err(why) => {
                keys.clear();
                Err(why)
            }
        }
    }

    /// The signatures, in the order of the jobs; for a job whose key is damaged, the error that says so.
    pub fn sign_batch(&self, jobs: &[SignJob<'_>]) -> Result<Vec<Result<Signature, Error>>, Error> {
        self.ask(Op::Sign, jobs.len())?;
        self.crew().share(Op::Sign, jobs, |on, jobs, out| {
            let of_keys: Vec<_> = jobs.chunk_by(|a, b| std::ptr::eq(a.key, b.key)).collect();
            let expands = on.program.uses_expanded_keys();
            let checked = each(on.threads, &of_keys, |jobs| match expands {
                true => jobs[0].key.expanded().map(drop),
                false => jobs[0].key.check_again(),
            });
            let good = || of_keys.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()).map(|(jobs, _)| *jobs);
            let good = if good().count() == of_keys.len() {
                Cow::Borrowed(*jobs)
            } else {
                good().flatten().copied().collect()
            };
            let mut signatures = Vec::with_capacity(good.len());
            let mut took = sign(on, &good, &mut signatures)?;
            // A faulty one can tell the key.
            let wipe = |signatures: &mut Vec<Signature>| {
                signatures.drain(..).for_each(|signature| signature.into_bytes().zeroize());
            };
            if self.redundant {
                let mut second = Vec::with_capacity(good.len());
                let again = on.elsewhere(|on| sign(on, &good, &mut second));
                let compared = again.and_then(|took| on.compare("signature", &signatures, &second).map(|()| took));
                wipe(&mut second);
                took += &compared.inspect_err(|_| wipe(&mut signatures))?;
            }
            if self.verify_signatures {
                took += &check(on, &good, &signatures).inspect_err(|_| wipe(&mut signatures))?;
            }
            let mut signatures = signatures.into_iter();
            for (jobs, checked) in of_keys.iter().zip(checked) {
                match checked {
                    Ok(()) => out.extend(signatures.by_ref().take(jobs.len()).map(Ok)),
                    Err(why) => out.extend(std::iter::repeat_n(Err(why), jobs.len())),
                }
            }
            Ok(took)
        })
    }

    /// The verdicts, in the order of the jobs.
    pub fn verify_batch(&self, jobs: &[VerifyJob<'_>]) -> Result<Vec<bool>, Error> {
        self.ask(Op::Verify, jobs.len())?;
        self.crew().share(Op::Verify, jobs, |on, jobs, out| {
            let first = out.len();
            let mut took = verify(on, jobs, out)?;
            if self.redundant {
                let mut second = Vec::with_capacity(jobs.len());
                took += &on.elsewhere(|on| verify(on, jobs, &mut second))?;
                on.compare("verdict", &out[first..], &second).inspect_err(|_| out.truncate(first))?;
            }
            Ok(took)
        })
    }

    fn crew(&self) -> Crew<'_> {
        Crew { workers: &self.workers, paces: &self.paces, timing: &self.timing, faults: &self.faults }
    }
}

fn keygen(
    on: &mut On<'_>,
    threads: usize,
    seeds: &[[u8; SEED_BYTES]],
    out: &mut Vec<SigningKey>,
) -> Result<Timing, Error> {
    on.program.keygen(seeds, &mut |keys| match threads {
        1 => out.extend(keys.iter().map(SigningKey::from_words)),
        _ => out.par_extend(keys.par_iter().with_min_len(SHARE).map(SigningKey::from_words)),
    })
}

fn keygen_into(
    on: &mut On<'_>,
    threads: usize,
    seeds: &[[u8; SEED_BYTES]],
    keys: &mut [SigningKeyWords],
) -> Result<Timing, Error> {
    let mut rest = keys;
    on.program.keygen(seeds, &mut |arrived| {
        let (to, others) = std::mem::take(&mut rest).split_at_mut(arrived.len());
        rest = others;
        match threads {
            1 => to.copy_from_slice(arrived),
            _ => (to.par_chunks_mut(SHARE).zip(arrived.par_chunks(SHARE)))
                .for_each(|(to, from)| to.copy_from_slice(from)),
        }
    })
}

/// By keys that were checked, and expanded if the program uses that.
fn sign<'a>(on: &mut On<'_>, jobs: &[SignJob<'a>], out: &mut Vec<Signature>) -> Result<Timing, Error> {
    let expands = on.program.uses_expanded_keys();
    let job = |&SignJob { key, message }: &SignJob<'a>| ZkSign {
        key: key.as_ref(),
        expanded: expands.then(|| key.made()),
        message,
    };
    on.program.sign(&jobs.iter().map(job).collect::<Vec<_>>(), out)
}

fn verify<'a>(on: &mut On<'_>, jobs: &[VerifyJob<'a>], out: &mut Vec<bool>) -> Result<Timing, Error> {
    let expands = on.program.uses_expanded_keys();
    if expands {
        let of_keys: Vec<_> = jobs.chunk_by(|a, b| std::ptr::eq(a.key, b.key)).collect();
        each(on.threads, &of_keys, |jobs| {
            jobs[0].key.expanded();
        });
    }
    let job = |&VerifyJob { key, message, signature }: &VerifyJob<'a>| ZkVerify {
        key: key.as_ref(),
        expanded: expands.then(|| key.expanded()),
        message,
        signature,
    };
    on.program.verify(&jobs.iter().map(job).collect::<Vec<_>>(), out)
}

/// What `work` makes of each, on so many threads of the current pool: with one, on this.
fn each<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    match threads {
        1 => items.iter().map(work).collect(),
        _ => items.par_iter().map(work).collect(),
    }
}

/// An error if one of the signatures does not verify.
fn check(on: &mut On<'_>, jobs: &[SignJob<'_>], signatures: &[Signature]) -> Result<Timing, Error> {
    let mut public: BTreeMap<*const SigningKey, VerifyingKey> = BTreeMap::new();
    for job in jobs {
        public.entry(job.key).or_insert_with(|| job.key.verifying_key());
    }
    let mut checks = Vec::with_capacity(jobs.len());
    for (SignJob { key, message }, signature) in jobs.iter().zip(signatures) {
        let key = &public[&std::ptr::from_ref(*key)];
        checks.push(VerifyJob { key, message: *message, signature: signature.as_bytes() });
    }
    let mut verdicts = Vec::with_capacity(checks.len());
    let took = verify(on, &checks, &mut verdicts)?;
    if verdicts.len() == jobs.len() && !verdicts.contains(&false) {
        return Ok(took);
    }
    let what = "a signature that it made does not verify".into();
    Err(Error::Inconsistent { device: on.device.id(), what })
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices.iter().map(Device::id).collect();
        f.debug_struct("Engine").field("devices", &devices).field("threads", &self.threads).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zkdilithium::{Message, only};
    use hypergrove_engine::{Reference, SelfTest, ZkDilithium, ZkDilithiumPrograms, capabilities, forward};
    use hypergrove_zkdilithium::{Trace, VerifyingKey as RawVerifyingKey, reference};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    use std::sync::{Condvar, PoisonError};
    use std::time::Duration;

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
        /// Whether a device has room for one program alone; programs that were made or refused.
        is_small: Arc<AtomicBool>,
        made: Arc<AtomicU32>,
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

        fn keygen(&mut self, seeds: &[[u8; 32]], take: &mut dyn FnMut(&[SigningKeyWords])) -> Result<Timing, Error> {
            let words = |seed| {
                let mut words: SigningKeyWords = [0; SK_BYTES / 8];
                bytemuck::cast_slice_mut(&mut words).copy_from_slice(reference::keygen(seed).secret_bytes());
                words
            };
            let keys: Vec<_> = seeds.iter().map(words).collect();
            // Not all together, as they may arrive.
            keys.chunks(2).for_each(take);
            self.begin(seeds.len())
        }
        fn sign(&mut self, jobs: &[ZkSign<'_>], out: &mut Vec<Signature>) -> Result<Timing, Error> {
            for job in jobs {
                let signature = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
                let mut bytes = signature.into_bytes();
                bytes[700] ^= u8::from(self.is_in(&self.1.lies));
                out.push(Signature::from_bytes(bytes).unwrap());
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
            Ok((0..2).map(|index| Device { backend: "mock", index, ..cpu.clone() }).collect())
        }
        fn self_test(&self) -> SelfTest {
            SelfTest::Off
        }
        forward!(self => Reference; absent, notices, rates, clock, fingerprint, free);
        capabilities!(has zkdilithium; lacks slh_dsa, sha256;);
    }

    impl ZkDilithiumPrograms for Mock {
        fn prepare(&self, device: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
            if self.made.fetch_add(1, Relaxed) > 0 && self.is_small.load(Relaxed) {
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

    /// Keys that an engine makes in memory which it has used before.
    fn keys_into(engine: &Engine, seeds: &[[u8; 32]], keys: &mut SigningKeys) -> Vec<SigningKey> {
        engine.keygen_into(seeds, keys).unwrap();
        keys.iter().collect()
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
        let keys = engine.keygen_batch(&seeds(10)).unwrap();
        are_keys_of(&keys, &seeds(10));
        let runs = std::mem::take(&mut *lock(&mock.runs));
        assert!(runs.iter().all(|(_, jobs)| *jobs <= 3));
        assert_eq!(engine.timing().execute, Duration::from_micros(runs.len() as u64));
        let jobs: Vec<_> = keys[..4].iter().map(|key| SignJob { key, message: Message::Bytes(b"m") }).collect();
        let signatures: Vec<_> = engine.sign_batch(&jobs).unwrap().into_iter().flatten().collect();
        assert!(lock(&mock.runs).iter().all(|(_, jobs)| *jobs == 2), "few jobs are spread over devices");
        for (key, signature) in keys.iter().zip(&signatures) {
            assert!(key.verifying_key().is_valid(Message::Bytes(b"m"), signature.as_bytes()));
        }
        assert!(engine.sign_batch(&[]).unwrap().is_empty());
        let mut keys = SigningKeys::new();
        for count in [20, 7, 0, 23] {
            are_keys_of(&keys_into(&engine, &seeds(count), &mut keys), &seeds(count));
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
        assert_eq!(engine.jobs_to_fill(Op::Verify).unwrap(), 3 + 512);
        in_the_end(|| {
            lock(&mock.runs).clear();
            are_keys_of(&engine.keygen_batch(&seeds(200)).unwrap(), &seeds(200));
            (1..200).contains(&lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>())
        });
        // Where it was faster without, the CPU takes no part.
        for _ in 0..2 {
            engine.paces.know(Op::Keygen, 20, true, 1e11);
            engine.paces.know(Op::Keygen, 20, false, 1e12);
        }
        lock(&mock.runs).clear();
        are_keys_of(&engine.keygen_batch(&seeds(20)).unwrap(), &seeds(20));
        assert_eq!(lock(&mock.runs).iter().map(|(_, jobs)| jobs).sum::<usize>(), 20);
        // What fails leaves all to the other.
        mock.fails.store(0b10, Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.keygen_batch(&seeds(200)).unwrap(), &seeds(200));
            !engine.faults().is_empty()
        });
        assert_eq!(engine.faults().iter().map(|fault| fault.device.id()).collect::<Vec<_>>(), ["mock:1"]);
        lock(&mock.runs).clear();
        are_keys_of(&engine.keygen_batch(&seeds(20)).unwrap(), &seeds(20));
        assert!(lock(&mock.runs).is_empty(), "it was set aside");
    }

    /// Two programs of one device: neither asks the other anything that it could only answer when it is done.
    #[test]
    fn programs_of_a_device_are_in_flight_together() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
        let key = SigningKey::from_seed(&[7; 32]);
        let (signature, public) = (key.sign_message(Message::Bytes(b"m")).unwrap(), key.verifying_key());
        let job = VerifyJob { key: &public, message: Message::Bytes(b"m"), signature: signature.as_bytes() };
        mock.waits.store(true, Relaxed);
        assert_eq!(engine.verify_batch(&[job; 12]).unwrap(), [true; 12]);
        assert_eq!(lock(&mock.together.0).1, 2);
    }

    #[test]
    fn a_device_without_room_for_a_second_program_goes_on_with_one() {
        let mock = Mock::default();
        mock.is_small.store(true, Relaxed);
        let engine = Engine::builder().devices(mocks(&mock)[..1].to_vec()).threads(2).build().unwrap();
        in_the_end(|| {
            are_keys_of(&engine.keygen_batch(&seeds(12)).unwrap(), &seeds(12));
            mock.made.load(Relaxed) > 1
        });
        assert!(engine.faults().is_empty());
        // What took the room may go.
        mock.is_small.store(false, Relaxed);
        let made = mock.made.load(Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.keygen_batch(&seeds(12)).unwrap(), &seeds(12));
            mock.made.load(Relaxed) > made
        });
    }

    /// A thread of the caller's pool that waits for one call may begin with the next.
    #[test]
    fn calls_from_a_pool_do_not_wait_for_themselves() {
        let engine = Engine::builder().devices(mocks(&Mock::default())[..1].to_vec()).threads(1).build().unwrap();
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| {
            (0..16u8).into_par_iter().for_each(|_| are_keys_of(&engine.keygen_batch(&seeds(2)).unwrap(), &seeds(2)));
        });
    }

    #[test]
    fn the_part_of_one_that_fails_is_done_by_another() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
        mock.fails.store(0b01, Relaxed);
        in_the_end(|| {
            are_keys_of(&engine.keygen_batch(&seeds(11)).unwrap(), &seeds(11));
            !engine.faults().is_empty()
        });
        let faults = engine.faults();
        assert!(faults.iter().all(|fault| fault.device.id() == "mock:0" && fault.jobs > 0), "{faults:?}");
        let mut into = SigningKeys::new();
        in_the_end(|| {
            let engine = Engine::builder().devices(mocks(&mock)).threads(2).build().unwrap();
            are_keys_of(&keys_into(&engine, &seeds(11), &mut into), &seeds(11));
            !engine.faults().is_empty()
        });
        mock.fails.store(0b11, Relaxed);
        assert!(engine.keygen_into(&seeds(11), &mut into).is_err() && into.is_empty());
        let why = engine.keygen_batch(&seeds(11)).unwrap_err();
        assert!(matches!(&why, Error::Device { device, what } if device == "mock:1" && what == "no answer"), "{why}");
        mock.fails.store(0, Relaxed);
        are_keys_of(&engine.keygen_batch(&seeds(2)).unwrap(), &seeds(2));
    }

    #[test]
    fn wrong_signatures_are_withheld_and_made_again() {
        let mock = Mock::default();
        let engine = Engine::builder().devices(mocks(&mock)).threads(1).verify_signatures(true).build().unwrap();
        let key = SigningKey::from_seed(&[7; 32]);
        let jobs = vec![SignJob { key: &key, message: Message::Bytes(b"m") }; 9];
        let right = key.sign_message(Message::Bytes(b"m"));
        mock.lies.store(0b01, Relaxed);
        in_the_end(|| {
            assert_eq!(engine.sign_batch(&jobs).unwrap(), vec![right.clone(); 9]);
            !engine.faults().is_empty()
        });
        let faults = engine.faults();
        assert!(matches!(&faults[..], [Fault { error: Error::Inconsistent { .. }, device, .. }] if device.index == 0));
        mock.lies.store(0b11, Relaxed);
        assert!(
            matches!(engine.sign_batch(&jobs), Err(Error::Inconsistent { .. })),
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
        let reference: Arc<dyn Backend> = Arc::new(crate::Reference);
        let engine = Engine::builder().devices(vec![(reference, 0)]).build().unwrap();
        let why = engine.keygen_batch(&[[0; 32]]).unwrap_err().to_string();
        assert_eq!(why, "reference:0 cannot execute zkDilithium");
    }
}
