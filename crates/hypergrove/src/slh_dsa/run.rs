//! Jobs of one group of SLH-DSA on one device: the host's part of their work, their program, and the checks of their results.

use crate::engine::wrong_root;
use crate::keys::SigningKey;
use crate::random_by_threads;
use crate::scheme::Failed;
use hypergrove_cpu::{Cpu, Isa};
use hypergrove_engine::planner::bucket;
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::{Place, Run, Scheduler};
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, SlhDsaPrograms, THREADS};
use hypergrove_fips205::plan::{Op, Plan};
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

    /// Computes the output of so many jobs, and wipes what a failed run or job left there. A redundant engine computes it twice and compares both. If
    /// the device's memory does not suffice for all jobs, they run in parts.
    pub(crate) fn output(
        &self,
        jobs: usize,
        is_hedged: bool,
        compute: Compute<'_>,
        out: &mut [u8],
    ) -> Result<Failed, Error> {
        let (size, n) = (self.plan().out_bytes(), self.plan().params.n);
        let mut fresh = Zeroizing::new(vec![0; if self.plan().op == Op::Sign { jobs * n } else { 0 }]);
        if is_hedged && let Err(why) = random_by_threads(&self.place, &mut fresh) {
            out.zeroize();
            return Err(why);
        }
        let (mut start, mut most, mut all) = (0, jobs, Failed::new());
        while start < jobs {
            let part = start..jobs.min(start + most);
            let fresh = fresh.get(part.start * n..part.end * n).unwrap_or_default();
            let first = &mut out[part.start * size..part.end * size];
            let done = compute(self, part.clone(), fresh, first).and_then(|mut failed| {
                // The second computation begins with the keys and messages: R, the digests, the keys' layout and all that follows are made anew.
                if let Some(place) = self.place.second() {
                    let mut second = vec![0; first.len()];
                    let again = compute(&PlanRun { place, facts: self.facts }, part.clone(), fresh, &mut second);
                    let compared = again.and_then(|again| {
                        failed.extend(again);
                        self.compare(first, &second, &failed)
                    });
                    // A second output that equals the first is not wiped, because the caller gets these bytes anyway.
                    if compared.is_err() || !failed.is_empty() {
                        second.zeroize();
                    }
                    compared?;
                }
                Ok(failed)
            });
            match done {
                Ok(failed) => {
                    failed.keys().for_each(|job| first[job * size..(job + 1) * size].zeroize());
                    all.extend(failed.into_iter().map(|(job, why)| (part.start + job, why)));
                    start = part.end;
                }
                Err(Error::OutOfMemory { .. }) if part.len() > 1 && self.place.worker.has_memory() => {
                    first.zeroize();
                    self.facts.limit(bucket(part.len()) / 2);
                    most = self.facts.most();
                }
                Err(why) => {
                    out.zeroize();
                    return Err(why);
                }
            }
        }
        Ok(all)
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
