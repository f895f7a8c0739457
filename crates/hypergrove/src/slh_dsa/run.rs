//! Jobs of one group of SLH-DSA on one device: the host's part of their work, their program, and the checks of their results.

use crate::engine::wrong_root;
use crate::keys::SigningKey;
use crate::random_by_threads;
use crate::scheme::Failed;
use hypergrove_cpu::{Cpu, Isa};
use hypergrove_engine::planner::bucket;
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::{Place, Run, Scheduler};
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, SlhDsaProgram, SlhDsaPrograms, THREADS};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_taint::declassify;
use rayon::ThreadPool;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use zeroize::{Zeroize, Zeroizing};

/// The fewest jobs whose outputs one thread compares.
const SHARE: usize = 64;

/// Computes a range of jobs into their output, given n fresh random bytes for each job that signs. A job that is to blame itself fails alone; an
/// error is that of all jobs.
pub(crate) type Compute<'w> = &'w dyn Fn(&PlanRun<'_>, Range<usize>, &[u8], &mut [u8]) -> Result<Failed, Error>;

/// The instruction set of the engine's CPU, or the fastest of this host if the engine has no CPU.
pub(crate) fn host_isa(scheduler: &Scheduler) -> Isa {
    static FASTEST: OnceLock<Isa> = OnceLock::new();
    let named = scheduler.workers().iter().find(|worker| worker.device().backend == Cpu::NAME);
    let isa = named.and_then(|worker| Isa::by_name(&worker.device().detail));
    isa.unwrap_or_else(|| *FASTEST.get_or_init(Isa::fastest))
}

/// A run of jobs of one group: their plan, and the checks of their results.
#[derive(Clone, Copy)]
pub(crate) struct PlanRun<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) facts: &'a Arc<GroupFacts>,
}

impl<'a> PlanRun<'a> {
    pub(super) fn of(run: &Run<'a>) -> PlanRun<'a> {
        PlanRun { place: run.place, facts: run.facts }
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.facts.plan()
    }

    /// Whether the jobs are computed for the second time.
    pub(crate) fn is_second(&self) -> bool {
        self.place.relocated
    }

    /// Computes the jobs' output, and wipes what a failed run or job left there. If the device's memory does not suffice for all jobs, they run
    /// in parts.
    pub(crate) fn output(
        &self,
        jobs: Range<usize>,
        is_hedged: bool,
        compute: Compute<'_>,
        out: &mut [u8],
    ) -> Result<Failed, Error> {
        let (mut done, size) = (self.computed(jobs.clone(), is_hedged, compute, out), self.plan().out_bytes());
        if matches!(done, Err(Error::OutOfMemory { .. })) && jobs.len() > 1 && self.place.worker.has_memory() {
            self.facts.limit(bucket(jobs.len()) / 2);
            out.zeroize();
            let (mut at, mut all) = (0, Failed::new());
            done = loop {
                if at == jobs.len() {
                    break Ok(all);
                }
                let end = jobs.len().min(at + self.facts.most());
                let part = jobs.start + at..jobs.start + end;
                match self.output(part, is_hedged, compute, &mut out[at * size..end * size]) {
                    Ok(failed) => all.extend(failed.into_iter().map(|(job, why)| (at + job, why))),
                    Err(why) => break Err(why),
                }
                at = end;
            };
        }
        match &done {
            Ok(failed) => failed.keys().for_each(|job| out[job * size..(job + 1) * size].zeroize()),
            Err(_) => out.zeroize(),
        }
        done
    }

    /// Computes the jobs' output. A redundant engine computes it twice and compares both.
    fn computed(
        &self,
        jobs: Range<usize>,
        is_hedged: bool,
        compute: Compute<'_>,
        out: &mut [u8],
    ) -> Result<Failed, Error> {
        let signs = self.plan().op == Op::Sign;
        let mut fresh = Zeroizing::new(vec![0; if signs { jobs.len() * self.plan().params.n } else { 0 }]);
        if is_hedged {
            random_by_threads(&self.place, &mut fresh)?;
        }
        let mut first = Some(out);
        let work = |place: &Place<'_>| {
            let run = PlanRun { place: *place, facts: self.facts };
            // The second computation begins with the keys and messages: R, the digests, the keys' layout and all that follows are made anew.
            match first.take() {
                Some(out) => compute(&run, jobs.clone(), &fresh, out).map(|failed| (failed, Output::Caller(out))),
                None => {
                    let mut second = vec![0; jobs.len() * self.plan().out_bytes()];
                    let done = compute(&run, jobs.clone(), &fresh, &mut second).inspect_err(|_| second.zeroize());
                    done.map(|failed| (failed, Output::Own(second)))
                }
            }
        };
        let done = self.place.checked(work, |(failed, first), second| {
            let (again, mut second) = second?;
            failed.extend(again);
            // A second output that equals the first is not wiped, because the caller gets these bytes anyway.
            let is_same = self.compare(first.bytes(), second.bytes(), failed);
            if is_same.is_err() || !failed.is_empty() {
                second.wipe();
            }
            is_same
        });
        done.map(|(failed, _)| failed)
    }

    /// Fails if a job that did not fail gave other bytes in its second computation. The host is blamed for R, else the device.
    fn compare(&self, first: &[u8], second: &[u8], failed: &Failed) -> Result<(), Error> {
        let (plan, size) = (self.plan(), self.plan().out_bytes());
        let of = |job: usize| job * size..(job + 1) * size;
        let differs = |job: usize| first[of(job)] != second[of(job)] && !failed.contains_key(&job);
        let Some(job) = self.place.find(first.len() / size, SHARE, &differs) else { return Ok(()) };
        let (first, second) = (&first[of(job)], &second[of(job)]);
        let r = plan.params.r_range();
        Err(match plan.op {
            Op::Sign if first[r.clone()] != second[r] => Error::differs("host".into(), "R", job),
            op => Error::differs(self.place.worker.device().id(), &format!("the output of {op:?}"), job),
        })
    }

    /// Runs the group's program. With `roots`, returns the roots of the trees that the program grew, if it keeps them.
    pub(crate) fn program(&self, batch: &Batch<'_>, out: &mut [u8], roots: bool) -> Result<Option<Vec<u8>>, Error> {
        self.place.program(self.facts, batch.len(), |SlhDsaProgram(program)| {
            let timing = program.run(batch, out)?;
            // Signatures, nodes and roots are public; those that fail a check are wiped before anyone sees them.
            declassify(out);
            let roots = if roots { program.read(Slot::XmssRoots) } else { None };
            if let Some(roots) = &roots {
                declassify(&roots[..]);
            }
            Ok((roots, timing))
        })
    }

    /// Compares the root that the device found for each job with PK.root of the job's key. Returns the jobs whose keys are damaged. If the key
    /// is sound, the device is wrong: that is an error.
    pub(crate) fn compare_roots<'r, 'k>(
        &self,
        roots: impl Iterator<Item = &'r [u8]>,
        keys: impl Iterator<Item = &'k SigningKey>,
        what: &str,
    ) -> Result<Failed, Error> {
        let mut failed = Failed::new();
        for (job, (root, key)) in roots.zip(keys).enumerate() {
            if root == key.as_ref().pk_root() {
                continue;
            }
            if !key.is_unchanged() {
                failed.insert(job, Error::changed(key.params().name));
                continue;
            }
            if key.is_sound(|| self.root_on_host(key))? {
                let what = format!("{what} of job {job} is not its key's PK.root, which the host computes");
                return Err(Error::Inconsistent { device: self.place.worker.device().id(), what });
            }
            failed.insert(job, wrong_root(key));
        }
        Ok(failed)
    }

    /// Computes PK.root from a key's seeds, with the host's lanes and in a separate program. This decides whether the key or the device is
    /// wrong, so the host computes in another way than the device did.
    fn root_on_host(&self, key: &SigningKey) -> Result<Vec<u8>, Error> {
        let cpu = Cpu::with(host_isa(self.place.scheduler)).expect("detected");
        let pool = self.place.pool;
        let (plan, threads) = (Plan::new(key.params(), Op::Keygen), pool.map_or(1, ThreadPool::current_num_threads));
        let policy = Policy(vec![(THREADS, threads as u32)]);
        let mut program = cpu.prepare(&cpu.devices()?[0], &plan, 1, &policy)?;
        let key = key.as_ref();
        let key = Key { pk_seed: key.pk_seed(), sk_seed: key.sk_seed(), cached_nodes: &[], cached_id: 0 };
        let batch = Batch { keys: &[key], key_of: &[0], positions: &[], signatures: &[] };
        let mut root = vec![0; plan.out_bytes()];
        self.place.install(&mut || program.run(&batch, &mut root).map(drop))?;
        Ok(root)
    }
}

/// Where an output lies: the first in the caller's memory, the second in separate memory.
enum Output<'o> {
    Caller(&'o mut [u8]),
    Own(Vec<u8>),
}

impl Output<'_> {
    fn wipe(&mut self) {
        match self {
            Output::Caller(bytes) => bytes.zeroize(),
            Output::Own(bytes) => bytes.zeroize(),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Output::Caller(bytes) => bytes,
            Output::Own(bytes) => bytes,
        }
    }
}
