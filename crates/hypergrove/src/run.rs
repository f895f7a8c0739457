//! Jobs of one group on one device: the host's share of them, their program, and the checks of what comes out.

use crate::engine::{Inner, wrong_root};
use crate::jobs::{Job, random};
use crate::keys::SigningKey;
use crate::worker::Worker;
use hypergrove_cpu::Cpu;
use hypergrove_engine::programs::Facts;
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, Program, SlhDsaPrograms, THREADS};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_taint::declassify;
use rayon::ThreadPool;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// Jobs that failed by themselves, by their places, and why.
pub(crate) type Failed = BTreeMap<usize, Error>;

/// Jobs of one group being worked on.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) engine: &'a Inner,
    pub(crate) worker: &'a Worker,
    pub(crate) facts: &'a Arc<Facts>,
    /// Bytes for the program, and for all programs of the device.
    pub(crate) room: (u64, u64),
    /// Threads; without, all is done on the calling one.
    pub(crate) pool: Option<&'a ThreadPool>,
    /// Whether programs put jobs in other places than usual: the second time that a redundant engine computes them.
    pub(crate) elsewhere: bool,
}

impl Run<'_> {
    pub(crate) fn plan(&self) -> &Plan {
        &self.facts.plan
    }

    /// Does the host's share of every job, given its index and its `size` bytes of the output.
    pub(crate) fn each<J: Sync, T: Send>(
        &self,
        jobs: &[&J],
        out: &mut [u8],
        size: usize,
        work: impl Fn(usize, &J, &mut [u8]) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        match self.pool {
            Some(pool) if jobs.len() > 1 => {
                let pairs = jobs.par_iter().zip(out.par_chunks_exact_mut(size)).enumerate();
                pool.install(|| pairs.map(|(i, (job, out))| work(i, job, out)).collect())
            }
            _ => {
                let pairs = jobs.iter().zip(out.chunks_exact_mut(size)).enumerate();
                pairs.map(|(i, (job, out))| work(i, job, out)).collect()
            }
        }
    }

    /// The jobs' output; what a failed run or job left behind is wiped. Where the device's memory does not suffice for all,
    /// they are done in parts.
    pub(crate) fn output<J: Job>(&self, jobs: &[&J], out: &mut [u8]) -> Result<Failed, Error> {
        let (mut done, size) = (self.computed(jobs, out), self.plan().out_bytes());
        if matches!(done, Err(Error::OutOfMemory { .. })) && jobs.len() > 1 && self.worker.has_memory() {
            self.facts.limit(jobs.len().div_ceil(2));
            out.zeroize();
            let (mut at, mut all) = (0, Failed::new());
            done = loop {
                if at == jobs.len() {
                    break Ok(all);
                }
                let end = jobs.len().min(at + self.facts.most());
                match self.output(&jobs[at..end], &mut out[at * size..end * size]) {
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

    /// What the jobs give; with redundancy, what they give both times.
    fn computed<J: Job>(&self, jobs: &[&J], out: &mut [u8]) -> Result<Failed, Error> {
        let mut fresh = Zeroizing::new(vec![0; if J::OP == Op::Sign { jobs.len() * self.plan().params.n } else { 0 }]);
        if jobs.iter().any(|job| job.is_hedged()) {
            random(&mut fresh)?;
        }
        let mut failed = J::run(self, jobs, &fresh, out)?;
        if self.engine.redundant {
            // From the keys and messages on: R, the digests and the keys' layout are made anew, as is all that follows.
            let mut second = Zeroizing::new(vec![0; out.len()]);
            failed.extend(J::run(&Run { elsewhere: true, ..*self }, jobs, &fresh, &mut second)?);
            self.compare(out, &second, &failed)?;
        }
        Ok(failed)
    }

    /// An error if the jobs that did not fail gave other bytes when they were computed again.
    fn compare(&self, first: &[u8], second: &[u8], failed: &Failed) -> Result<(), Error> {
        let (plan, size) = (self.plan(), self.plan().out_bytes());
        let mut pairs = first.chunks_exact(size).zip(second.chunks_exact(size)).enumerate();
        let Some((job, (first, second))) = pairs.find(|(job, (a, b))| a != b && !failed.contains_key(job)) else {
            return Ok(());
        };
        let r = plan.params.r_range();
        let (device, what) = match plan.op {
            Op::Sign if first[r.clone()] != second[r] => ("host".into(), "R".into()),
            op => (self.worker.device().id(), format!("the output of {op:?}")),
        };
        Err(Error::Inconsistent { device, what: format!("{what} of job {job} differs when it is computed again") })
    }

    /// Runs the group's program. With `roots`, gives the roots of the trees that it grew, if the program keeps them.
    pub(crate) fn program(&self, batch: &Batch<'_>, out: &mut [u8], roots: bool) -> Result<Option<Vec<u8>>, Error> {
        let mut compute = |program: &mut dyn Program| {
            program.elsewhere(self.elsewhere);
            let timing = program.run(batch, out)?;
            self.engine.note(&timing);
            // Signatures, nodes and roots are public; those that fail a check are wiped before anyone sees them.
            declassify(out);
            Ok(if roots { read(program, Slot::XmssRoots) } else { None })
        };
        let pool = self.pool.filter(|_| self.facts.uses_threads());
        let room_for = self.engine.room_for(batch.len());
        self.worker.programs.with(self.facts, room_for, self.room, |program, policy| {
            let threads = policy.get(THREADS).map_or(1, |threads| threads as usize);
            match pool {
                // What a device apart does with the host's threads needs no pool of its own.
                Some(pool) if threads == pool.current_num_threads() || self.worker.is_apart() => {
                    pool.install(|| compute(program))
                }
                Some(_) if threads > 1 => self.engine.narrow_pool(threads)?.install(|| compute(program)),
                _ => compute(program),
            }
        })
    }

    /// The jobs whose keys are damaged, given the root that the device found for each job's key. If a key is sound, the
    /// device is wrong.
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
                return Err(Error::Inconsistent { device: self.worker.device().id(), what });
            }
            failed.insert(job, wrong_root(key));
        }
        Ok(failed)
    }

    /// PK.root of a key's seeds by the host's lanes, in a program of its own: whichever of key and device is wrong, the
    /// host is asked in another way than the device was.
    fn root_on_host(&self, key: &SigningKey) -> Result<Vec<u8>, Error> {
        let cpu = Cpu::with(self.engine.isa()).expect("detected");
        let (plan, threads) =
            (Plan::new(key.params(), Op::Keygen), self.pool.map_or(1, ThreadPool::current_num_threads));
        let policy = Policy(vec![(THREADS, threads as u32)]);
        let mut program = cpu.prepare(&cpu.devices()?[0], &plan, 1, &policy)?;
        let key = key.as_ref();
        let key = Key { pk_seed: key.pk_seed(), sk_seed: key.sk_seed(), cached_nodes: &[], cached_id: 0 };
        let batch = Batch { keys: &[key], key_of: &[0], positions: &[], signatures: &[] };
        let mut root = vec![0; plan.out_bytes()];
        let mut run = || program.run(&batch, &mut root);
        match self.pool {
            Some(pool) => pool.install(run)?,
            None => run()?,
        };
        Ok(root)
    }
}

/// What a slot holds that a signature shows: roots of trees.
fn read(program: &dyn Program, slot: Slot) -> Option<Vec<u8>> {
    let value = program.read(slot)?;
    declassify(&value[..]);
    Some(value)
}
