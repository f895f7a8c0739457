//! What is timed: a batch that is the same for every policy, whose answers all have to be equal.

use crate::search::{Lab, Stop};
use hypergrove_engine::{Backend, Batch, Device, Error, Key, Policy, Program, THREADS, Timing};
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::{Params, Position};
use rayon::{ThreadPool, ThreadPoolBuilder};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Programs that are kept prepared while their policies take turns.
const PREPARED: usize = 6;
/// Signatures that a verified batch consists of, over and over.
const DISTINCT: usize = 256;
/// Signing on hosts is slow: a batch of verifications there has fewer of them.
const DISTINCT_ON_HOSTS: usize = 16;

/// A batch, and what it leads to.
pub struct Workload {
    backend: Arc<dyn Backend>,
    device: Device,
    plan: Plan,
    jobs: usize,
    seeds: Vec<(Vec<u8>, Vec<u8>)>,
    key_of: Vec<u32>,
    positions: Vec<Position>,
    /// Those that are verified.
    signatures: Vec<Vec<u8>>,
    out: Vec<u8>,
    /// SHA-256 of the default policy's answer.
    answer: [u8; 32],
    prepared: Vec<(Policy, Box<dyn Program>)>,
    /// Threads for programs of the host that use several: the pools that policies asked for so far.
    pools: Vec<ThreadPool>,
}

/// Bytes without structure: SHA-256 of their number, for ever the same.
fn noise(bytes: usize, salt: &str, number: usize) -> Vec<u8> {
    let block = |i: usize| Sha256::digest(format!("hypergrove tune {salt} {number} {i}"));
    (0..bytes.div_ceil(32)).flat_map(block).take(bytes).collect()
}

fn positions(p: &Params, count: usize) -> Vec<Position> {
    (0..count).map(|number| Position::split(p, &noise(p.m, "digest", number))).collect()
}

fn pool(threads: usize) -> Result<ThreadPool, Error> {
    ThreadPoolBuilder::new().num_threads(threads).build().map_err(|why| Error::Device {
        device: "the host".into(),
        what: format!("{threads} threads could not be started: {why}"),
    })
}

impl Workload {
    /// A batch of `jobs` jobs, and the answer that the default policy gives: `base` has the number of threads, where the
    /// space has that.
    pub fn new(
        backend: &Arc<dyn Backend>,
        device: &Device,
        plan: &Plan,
        jobs: usize,
        base: &Policy,
    ) -> Result<Workload, Error> {
        let p = plan.params;
        let keys = if plan.op == Op::Keygen { jobs } else { 1 };
        let seeds = (0..keys).map(|number| (noise(p.n, "PK.seed", number), noise(p.n, "SK.seed", number))).collect();
        let most = if device.memory == 0 { DISTINCT_ON_HOSTS } else { DISTINCT };
        let distinct = if plan.op == Op::Verify { jobs.min(most) } else { jobs };
        let some = if plan.op == Op::Keygen { Vec::new() } else { positions(p, distinct) };
        let mut work = Workload {
            backend: backend.clone(),
            device: device.clone(),
            plan: plan.clone(),
            jobs,
            seeds,
            key_of: if plan.op == Op::Keygen { (0..jobs as u32).collect() } else { vec![0; jobs] },
            signatures: Vec::new(),
            positions: some.iter().cycle().take(if some.is_empty() { 0 } else { jobs }).cloned().collect(),
            out: vec![0; jobs * plan.out_bytes()],
            answer: [0; 32],
            prepared: Vec::new(),
            pools: Vec::new(),
        };
        if plan.op == Op::Verify {
            let mut sign = Workload::new(backend, device, &Plan::new(p, Op::Sign), distinct, base)?;
            sign.run(base)?;
            let made: Vec<Vec<u8>> = sign.out.chunks_exact(p.sig_bytes()).map(<[u8]>::to_vec).collect();
            work.signatures = made;
        }
        work.run(base)?;
        work.answer = Sha256::digest(&work.out).into();
        if plan.op == Op::Verify && !work.out.chunks_exact(p.n).all(|root| root == &work.out[..p.n]) {
            let what = format!("signatures of one {p} key lead to different roots");
            return Err(Error::Inconsistent { device: device.id(), what });
        }
        Ok(work)
    }

    /// Jobs of the batch.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// One run, whole and untimed parts apart: seconds from host to host, and what the program says.
    pub fn run(&mut self, policy: &Policy) -> Result<(f64, Timing), Error> {
        let at = match self.prepared.iter().position(|(other, _)| other == policy) {
            Some(at) => at,
            None => {
                let program = self.prepare(policy)?;
                self.prepared.push((policy.clone(), program));
                let last = self.prepared.len() - 1;
                // Its first run allocates, records and warms up; its answer is compared below.
                self.go(last)?;
                if self.answer != [0; 32] && self.answer != <[u8; 32]>::from(Sha256::digest(&self.out)) {
                    let axes: Vec<_> = policy.0.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
                    let what = format!("with {} the answer is another", axes.join(", "));
                    return Err(Error::Inconsistent { device: self.device.id(), what });
                }
                last
            }
        };
        // The one that ran last stays longest.
        let used = self.prepared.remove(at);
        self.prepared.push(used);
        self.go(self.prepared.len() - 1)
    }

    /// Where memory does not suffice, programs that wait make way.
    fn prepare(&mut self, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        if self.prepared.len() >= PREPARED {
            self.prepared.remove(0);
        }
        loop {
            match self.backend.prepare(&self.device, &self.plan, self.jobs, policy) {
                Err(Error::OutOfMemory { .. }) if !self.prepared.is_empty() => drop(self.prepared.remove(0)),
                prepared => return prepared,
            }
        }
    }

    fn go(&mut self, at: usize) -> Result<(f64, Timing), Error> {
        let secret = self.plan.op != Op::Verify;
        let keys: Vec<Key<'_>> = self
            .seeds
            .iter()
            .map(|(pk_seed, sk_seed)| Key {
                pk_seed,
                sk_seed: if secret { sk_seed } else { &[] },
                cached_nodes: &[],
                cached_id: 0,
            })
            .collect();
        let signatures: Vec<&[u8]> = match self.plan.op {
            Op::Verify => self.signatures.iter().cycle().take(self.jobs).map(Vec::as_slice).collect(),
            _ => Vec::new(),
        };
        let batch = Batch { keys: &keys, key_of: &self.key_of, positions: &self.positions, signatures: &signatures };
        let (policy, program) = &mut self.prepared[at];
        let threads = policy.get(THREADS).unwrap_or(1) as usize;
        let pool = match threads {
            1 => None,
            _ => Some(match self.pools.iter().position(|pool| pool.current_num_threads() == threads) {
                Some(at) => &self.pools[at],
                None => {
                    self.pools.push(pool(threads)?);
                    &self.pools[self.pools.len() - 1]
                }
            }),
        };
        let start = Instant::now();
        let timing = match pool {
            Some(pool) => pool.install(|| program.run(&batch, &mut self.out)),
            None => program.run(&batch, &mut self.out),
        }?;
        Ok((start.elapsed().max(Duration::from_nanos(1)).as_secs_f64(), timing))
    }
}

/// A workload that is timed until its time is over.
pub struct Timed<'a> {
    /// The workload.
    pub workload: &'a mut Workload,
    /// When to stop.
    pub until: Instant,
}

impl Lab for Timed<'_> {
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        if Instant::now() >= self.until {
            return Err(Stop::Budget);
        }
        match self.workload.run(policy) {
            Ok((seconds, _)) => Ok(Some(seconds)),
            Err(Error::OutOfMemory { .. } | Error::Unsupported { .. } | Error::Value { .. }) => Ok(None),
            Err(why) => Err(Stop::Failed(why)),
        }
    }
}
