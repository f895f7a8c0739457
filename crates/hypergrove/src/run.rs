//! Jobs of one group on one device: the host's share of them, their program, and the checks of what comes out.

use crate::engine::{Inner, wrong_root};
use crate::jobs::Job;
use crate::keys::SigningKey;
use crate::worker::Worker;
use hypergrove_cpu::Cpu;
use hypergrove_engine::programs::Facts;
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, Program, THREADS};
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
        let (mut done, size) = (J::run(self, jobs, out), self.plan().out_bytes());
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

    /// Runs the group's program. With `roots`, gives the roots of the trees that it grew, if the program keeps them.
    pub(crate) fn program(&self, batch: &Batch<'_>, out: &mut [u8], roots: bool) -> Result<Option<Vec<u8>>, Error> {
        let mut compute = |program: &mut dyn Program| {
            let timing = program.run(batch, out)?;
            self.engine.note(&timing);
            // Signatures, nodes and roots are public; those that fail a check are wiped before anyone sees them.
            declassify(out);
            let grown = if roots { read(program, Slot::XmssRoots) } else { None };
            if self.engine.redundant {
                self.again(program, batch, out)?;
            }
            Ok(grown)
        };
        let pool = self.pool.filter(|_| self.facts.uses_threads());
        self.worker.programs.with(self.facts, batch.len(), self.room, |program, policy| {
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

    /// Computes a batch once more, its jobs moved round by half so that other lanes work on each, and compares.
    fn again(&self, program: &mut dyn Program, batch: &Batch<'_>, out: &[u8]) -> Result<(), Error> {
        const SLOTS: [Slot; 2] = [Slot::ForsPk, Slot::XmssRoots];
        let (plan, jobs, size) = (self.plan(), batch.len(), self.plan().out_bytes());
        let by = jobs / 2;
        let (key_of, positions) = (moved(batch.key_of, by), moved(batch.positions, by));
        let signatures = moved(batch.signatures, by);
        let again = Batch { keys: batch.keys, key_of: &key_of, positions: &positions, signatures: &signatures };
        let first = SLOTS.map(|slot| read(program, slot));
        let mut second = Zeroizing::new(vec![0; out.len()]);
        if plan.op == Op::Sign {
            // R is the host's.
            for (to, from) in second.chunks_exact_mut(size).zip(out.chunks_exact(size).cycle().skip(by)) {
                to[plan.params.r_range()].copy_from_slice(&from[plan.params.r_range()]);
            }
        }
        program.run(&again, &mut second)?;
        // As the first output is.
        declassify(&second[..]);
        let agree = |what: &str, first: &[u8], second: &[u8]| {
            let each = (first.len() / jobs.max(1)).max(1);
            let mut pairs = first.chunks(each).cycle().skip(by).zip(second.chunks(each));
            let differs = pairs.position(|(a, b)| a != b).map(|at| (at + by) % jobs);
            match differs.or((first.len() != second.len()).then_some(0)) {
                None => Ok(()),
                Some(job) => Err(Error::Inconsistent {
                    device: self.worker.device().id(),
                    what: format!("{what} of job {job} differs when it is computed again"),
                }),
            }
        };
        for (slot, first) in SLOTS.into_iter().zip(first) {
            if let (Some(first), Some(second)) = (first, read(program, slot)) {
                agree(&format!("{slot:?}"), &first, &second)?;
            }
        }
        agree(&format!("the output of {:?}", plan.op), out, &second)
    }
}

/// What a slot holds that a signature shows: roots, or the FORS public key.
fn read(program: &dyn Program, slot: Slot) -> Option<Vec<u8>> {
    let value = program.read(slot)?;
    declassify(&value[..]);
    Some(value)
}

/// A list whose entry 0 is entry `by` of the other, and so on around.
fn moved<T: Clone>(list: &[T], by: usize) -> Vec<T> {
    list.iter().cycle().skip(by).take(list.len()).cloned().collect()
}
