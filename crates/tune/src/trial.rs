//! One program under one policy, with jobs whose right answers are known.

use hypergrove_engine::{Backend, Batch, Device, Error, Key, Policy, Program, THREADS, Timing, time_limit};
use hypergrove_fips205::plan::{Op, Plan, cache_bytes};
use hypergrove_fips205::{Params, Position, PreHash, reference};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Identities of nodes, far from those of keys.
static NODES: AtomicU64 = AtomicU64::new(1 << 63);

/// Bytes that one thread clears or compares at a time.
const PART: usize = 1 << 20;

/// Where trials take place.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The backend.
    pub backend: &'a dyn Backend,
    /// One of its devices.
    pub device: &'a Device,
    /// How long a wait for the device may take, at least: see [`time_limit`].
    pub timeout: Duration,
}

impl Place<'_> {
    /// The policy with as many host threads as are asked for, if programs of this plan have a use for them.
    pub fn with_threads(&self, plan: &Plan, policy: &Policy, threads: usize) -> Result<Policy, Error> {
        let mut policy = policy.clone();
        let space = self.backend.slh_dsa_on(self.device)?.space(self.device, plan)?;
        let has = space.iter().any(|axis| axis.name == THREADS);
        if has && policy.get(THREADS).is_none() {
            policy.0.push((THREADS, threads as u32));
        }
        Ok(policy)
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Inconsistent { device: self.device.id(), what: what.into() }
    }
}

/// Jobs and their answers: whatever the policy, a program has to give these bytes.
pub struct TrialJobs {
    plan: Plan,
    /// A key a job for key generation, else one.
    seeds: Vec<[Vec<u8>; 2]>,
    nodes: Vec<u8>,
    /// The id by which devices know the nodes; 0 for none.
    nodes_id: u64,
    positions: Vec<Position>,
    signatures: Vec<u8>,
    answers: Vec<u8>,
}

impl TrialJobs {
    /// So many jobs; of signatures that are verified only `distinct` differ. Signatures that are made verify, by the device and in
    /// part by the reference, and not with one bit changed; keys are in part made again by the reference.
    pub fn new(
        place: Place<'_>,
        plan: Plan,
        count: usize,
        distinct: usize,
        threads: usize,
    ) -> Result<TrialJobs, Error> {
        let p = plan.params;
        let seed = |which: u8, number: usize| -> Vec<u8> {
            (0..p.n).map(|i| (number as u64).to_le_bytes().get(i).copied().unwrap_or(which)).collect()
        };
        let keys = if plan.op == Op::Keygen { count } else { 1 };
        let seeds: Vec<_> = (0..keys).map(|number| [seed(1, number), seed(3, number)]).collect();
        let digest = |number: usize| PreHash::Sha3_512.hash(&[&(number as u64).to_le_bytes()])[..p.m].to_vec();
        let needs = matches!(plan.op, Op::Sign | Op::Verify);
        let positions = (0..if needs { count } else { 0 }).map(|number| Position::split(p, &digest(number))).collect();
        let mut jobs = TrialJobs::unanswered(plan, seeds, positions);
        match jobs.plan.op {
            Op::Keygen => {
                jobs.answers = jobs.compute(place, count, threads)?;
                for number in [0, count - 1] {
                    let [sk_seed, pk_seed] = &jobs.seeds[number];
                    if jobs.answers[number * p.n..][..p.n] != reference::pk_root(p, sk_seed, pk_seed) {
                        return Err(place.wrong("the reference makes another key from the same seeds"));
                    }
                }
            }
            Op::Sign => {
                if jobs.plan.cached_layers > 0 {
                    jobs.nodes = jobs.grow_nodes(place, threads)?;
                    jobs.nodes_id = NODES.fetch_add(1, Relaxed);
                }
                jobs.answers = jobs.compute(place, count, threads)?;
                TrialJobs::of_signatures(p, &jobs, &jobs.answers)?.check(place, threads)?;
            }
            Op::Verify => {
                let distinct = distinct.clamp(1, count);
                let signed = TrialJobs::new(place, Plan::new(p, Op::Sign), distinct, distinct, threads)?;
                jobs.positions = signed.positions.iter().cycle().take(count).copied().collect();
                jobs.signatures = signed.answers.chunks(p.sig_bytes()).cycle().take(count).flatten().copied().collect();
                jobs.answers = signed.root().repeat(count);
            }
            Op::Cache => jobs.answers = jobs.grow_nodes(place, threads)?,
        }
        Ok(jobs)
    }

    /// Jobs without nodes, signatures and answers.
    fn unanswered(plan: Plan, seeds: Vec<[Vec<u8>; 2]>, positions: Vec<Position>) -> TrialJobs {
        let (nodes, signatures, answers) = (Vec::new(), Vec::new(), Vec::new());
        TrialJobs { plan, seeds, nodes, nodes_id: 0, positions, signatures, answers }
    }

    /// The plan of the jobs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The verification of what another plan signed.
    fn of_signatures(p: &'static Params, signed: &TrialJobs, signatures: &[u8]) -> Result<TrialJobs, Error> {
        let count = signatures.len() / p.sig_bytes();
        let positions = signed.positions[..count].to_vec();
        let jobs = TrialJobs::unanswered(Plan::new(p, Op::Verify), signed.seeds.clone(), positions);
        Ok(TrialJobs { signatures: signatures.to_vec(), answers: signed.root().repeat(count), ..jobs })
    }

    /// PK.root of the one key, by the reference.
    fn root(&self) -> Vec<u8> {
        let [sk_seed, pk_seed] = &self.seeds[0];
        reference::pk_root(self.plan.params, sk_seed, pk_seed)
    }

    fn grow_nodes(&self, place: Place<'_>, threads: usize) -> Result<Vec<u8>, Error> {
        let p = self.plan.params;
        let plan = Plan::cache(p, self.plan.cached_layers);
        let grown = TrialJobs::unanswered(plan, self.seeds.clone(), Vec::new());
        let nodes = grown.compute(place, 1, threads)?;
        // The root of the top tree follows that tree's other nodes.
        let root = &nodes[((2 << p.hp) - 2) * p.n..][..p.n];
        if *root != *self.root() || Some(nodes.len()) != cache_bytes(p, self.plan.cached_layers) {
            return Err(place.wrong("the cached nodes do not lead to the key's root"));
        }
        Ok(nodes)
    }

    /// The output by the default policy.
    fn compute(&self, place: Place<'_>, count: usize, threads: usize) -> Result<Vec<u8>, Error> {
        let policy = place.with_threads(&self.plan, &Policy::default(), threads)?;
        let mut trial = Trial::new(place, &self.plan, count, &policy)?;
        let mut out = vec![0; count * self.plan.out_bytes()];
        trial.once(self, count, &mut out)?;
        Ok(out)
    }

    /// All signatures lead to the root, two of them by the reference too; with one bit changed, one does not.
    fn check(mut self, place: Place<'_>, threads: usize) -> Result<(), Error> {
        let (p, count) = (self.plan.params, self.positions.len());
        if self.compute(place, count, threads)? != self.answers {
            return Err(place.wrong("a signature that was just made does not verify"));
        }
        for number in [0, count - 1] {
            let signature = &self.signatures[number * p.sig_bytes()..][..p.sig_bytes()];
            let implied = reference::implied_by(p, &self.positions[number], signature, &self.seeds[0][1]);
            if implied.xmss_roots[(p.d - 1) * p.n..] != self.answers[..p.n] {
                return Err(place.wrong("the reference refuses a signature that was just made"));
            }
        }
        self.signatures[p.sig_bytes() / 2] ^= 1;
        if self.compute(place, 1, threads)? == self.answers[..p.n] {
            return Err(place.wrong("a changed signature verifies"));
        }
        Ok(())
    }

    fn with_batch<R>(&self, count: usize, use_it: impl FnOnce(&Batch<'_>) -> R) -> R {
        let verifies = self.plan.op == Op::Verify;
        let distinct = if self.plan.op == Op::Keygen { count } else { 1 };
        let keys: Vec<Key<'_>> = self.seeds[..distinct]
            .iter()
            .map(|[sk_seed, pk_seed]| Key {
                cached_nodes: &self.nodes,
                cached_id: self.nodes_id,
                ..Key::of_seeds(pk_seed, if verifies { &[] } else { sk_seed })
            })
            .collect();
        let key_of: Vec<u32> = (0..count as u32).map(|job| if distinct > 1 { job } else { 0 }).collect();
        let signatures: Vec<&[u8]> = if verifies {
            self.signatures.chunks(self.plan.params.sig_bytes()).take(count).collect()
        } else {
            Vec::new()
        };
        let positions = if self.positions.is_empty() { &[][..] } else { &self.positions[..count] };
        use_it(&Batch { keys: &keys, key_of: &key_of, positions, signatures: &signatures })
    }
}

/// A prepared program.
pub struct Trial {
    program: Box<dyn Program>,
    pool: Option<ThreadPool>,
    out: Vec<u8>,
    device: String,
    policy: Policy,
}

impl Trial {
    /// Prepares one for up to `most` jobs.
    pub fn new(place: Place<'_>, plan: &Plan, most: usize, policy: &Policy) -> Result<Trial, Error> {
        let mut program = place.backend.slh_dsa_on(place.device)?.prepare(place.device, plan, most, policy)?;
        // Nobody has measured this policy, and some are very slow: the guess is what a slow device takes.
        let threads = policy.get(THREADS).unwrap_or(1) as usize;
        let seconds = plan.work().compressions() * most as f64 / place.device.guessed_rate(threads);
        program.time_limit(time_limit(seconds, place.timeout));
        let pool = match policy.get(THREADS) {
            Some(threads @ 2..) => {
                let pool = ThreadPoolBuilder::new().num_threads(threads as usize).build();
                Some(pool.map_err(|why| Error::no_threads(threads as usize, why))?)
            }
            _ => None,
        };
        Ok(Trial { program, pool, out: Vec::new(), device: place.device.id(), policy: policy.clone() })
    }

    fn once(&mut self, jobs: &TrialJobs, count: usize, out: &mut [u8]) -> Result<(Duration, Timing), Error> {
        let (program, pool) = (&mut self.program, &self.pool);
        jobs.with_batch(count, |batch| {
            let start = Instant::now();
            let timing = match pool {
                Some(pool) => pool.install(|| program.run_batch(batch, out)),
                None => program.run_batch(batch, out),
            }?;
            Ok((start.elapsed(), timing))
        })
    }

    /// The policy that it runs under.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Runs the first `count` jobs: the time of the whole run, and where it went. The answer is not looked at.
    pub fn time(&mut self, jobs: &TrialJobs, count: usize) -> Result<(Duration, Timing), Error> {
        let mut out = std::mem::take(&mut self.out);
        out.resize(count * jobs.plan.out_bytes(), 0);
        let done = self.once(jobs, count, &mut out);
        self.out = out;
        done
    }

    /// Runs and times the first `count` jobs like [`time`](Trial::time); a wrong answer is an error.
    pub fn run(&mut self, jobs: &TrialJobs, count: usize) -> Result<(Duration, Timing), Error> {
        let mut out = std::mem::take(&mut self.out);
        // The output of an earlier run must not pass for an answer. A large batch of signatures is a gigabyte.
        out.resize(count * jobs.plan.out_bytes(), 0);
        out.par_chunks_mut(PART).for_each(|part| part.fill(0));
        let done = self.once(jobs, count, &mut out);
        let right =
            out.par_chunks(PART).zip(jobs.answers.par_chunks(PART)).all(|(got, right)| *got == right[..got.len()]);
        self.out = out;
        if done.is_ok() && !right {
            let axes: Vec<_> = self.policy.0.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
            let what = format!("with {} the answer is another than by default", axes.join(", "));
            return Err(Error::Inconsistent { device: self.device.clone(), what });
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_engine::{DEVICE_TIMEOUT, Reference};
    use hypergrove_testkit::toys::TOY_SHA2_16;

    #[test]
    fn answers_are_checked() {
        let device = Reference.devices().unwrap().remove(0);
        let place = Place { backend: &Reference, device: &device, timeout: DEVICE_TIMEOUT };
        let plans = [Op::Keygen, Op::Sign, Op::Verify].map(|op| Plan::new(&TOY_SHA2_16, op));
        for plan in plans.into_iter().chain([Plan::new(&TOY_SHA2_16, Op::Sign).with_cached_layers(2)]) {
            let mut jobs = TrialJobs::new(place, plan.clone(), 3, 2, 2).unwrap();
            let policy = place.with_threads(&plan, &Policy::default(), 2).unwrap();
            let mut trial = Trial::new(place, &plan, 4, &policy).unwrap();
            for count in [1, 3] {
                let (time, timing) = trial.run(&jobs, count).unwrap();
                assert!(timing.execute <= time && timing.stages.is_empty());
            }
            // A signature's R is the host's.
            let at = 2 * plan.out_bytes() + if plan.op == Op::Sign { plan.params.n } else { 0 };
            jobs.answers[at] ^= 1;
            trial.run(&jobs, 2).unwrap();
            assert!(matches!(trial.run(&jobs, 3), Err(Error::Inconsistent { .. })));
            trial.time(&jobs, 3).unwrap();
        }
    }
}
