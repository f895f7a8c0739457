//! What is known of plans on one device, and their prepared programs between two runs: a second call prepares nothing.

use crate::backend::THREADS;
use crate::planner::bucket;
use crate::{Backend, Device, Error, Policy, Program};
use hypergrove_fips205::Params;
use hypergrove_fips205::plan::{Op, Plan, Work, cache_bytes};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Idle programs that are kept; the memory budget usually holds fewer.
const MOST_IDLE: usize = 16;

/// Compressions a second and thread that are taken for granted until a run was measured: low on purpose, so that the
/// first results come soon.
const FIRST_GUESS: f64 = 1e7;

/// Jobs that can run in one program.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The set.
    pub params: &'static Params,
    /// The op.
    pub op: Op,
    /// Top layers whose nodes come with the keys, or are to be cached.
    pub cached_layers: usize,
    /// Host threads.
    pub threads: usize,
}

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        std::ptr::eq(self.params, other.params)
            && (self.op, self.cached_layers, self.threads) == (other.op, other.cached_layers, other.threads)
    }
}

/// What is known of a group on this device.
#[derive(Debug)]
pub struct Facts {
    /// The group.
    pub group: Group,
    /// Its plan.
    pub plan: Plan,
    /// The policy of its programs.
    pub policy: Policy,
    work: OnceLock<Work>,
    /// Seconds a job, by the logarithm of the bucket; 0 where none ran yet.
    measured: Mutex<[f64; usize::BITS as usize]>,
}

impl PartialEq for Facts {
    fn eq(&self, other: &Facts) -> bool {
        self.group == other.group
    }
}

impl Facts {
    /// Compressions of one job.
    pub fn work(&self) -> &Work {
        self.work.get_or_init(|| self.plan.work())
    }

    /// Takes note of a run.
    pub fn record(&self, jobs: usize, took: Duration) {
        let seconds = took.as_secs_f64().max(1e-9) / jobs.max(1) as f64;
        let old = &mut lock(&self.measured)[bucket(jobs).ilog2() as usize];
        *old = if *old == 0.0 { seconds } else { (*old + seconds) / 2.0 };
    }

    /// Seconds a job, as measured in batches of about this size, else in the largest that ran.
    pub fn measured(&self, jobs: usize) -> Option<f64> {
        let measured = lock(&self.measured);
        let at = bucket(jobs).ilog2() as usize;
        [measured[at]].into_iter().chain(measured.iter().rev().copied()).find(|seconds| *seconds > 0.0)
    }

    /// Seconds a job of a large batch: measured, or a guess.
    pub fn seconds(&self) -> f64 {
        self.measured(1 << (usize::BITS - 1)).unwrap_or_else(|| {
            let Work { sha256, sha512, keccak } = self.work();
            (sha256 + sha512 + keccak) / (FIRST_GUESS * self.group.threads as f64)
        })
    }
}

/// A program and what it was prepared for.
pub struct Prepared {
    /// What is known of its group.
    pub facts: Arc<Facts>,
    /// The program.
    pub program: Box<dyn Program>,
    bucket: usize,
    bytes: u64,
}

/// The plans of one device.
pub struct Programs {
    backend: Arc<dyn Backend>,
    device: Device,
    /// Bytes that idle programs may hold.
    budget: u64,
    known: Mutex<Vec<Arc<Facts>>>,
    /// The one that ran last is last.
    idle: Mutex<Vec<Prepared>>,
}

impl Programs {
    /// Nothing is prepared yet.
    pub fn new(backend: Arc<dyn Backend>, device: Device, budget: u64) -> Programs {
        Programs { backend, device, budget, known: Mutex::default(), idle: Mutex::default() }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Plans a group, at its first mention. `Unsupported` if the backend declines it.
    pub fn facts(&self, group: Group) -> Result<Arc<Facts>, Error> {
        let mut known = lock(&self.known);
        if let Some(facts) = known.iter().find(|facts| facts.group == group) {
            return Ok(facts.clone());
        }
        let plan = plan(group)?;
        let space = self.backend.space(&self.device, &plan)?;
        let threads = space.iter().any(|axis| axis.name == THREADS).then_some((THREADS, group.threads as u32));
        let policy = Policy(threads.into_iter().collect());
        let facts = Arc::new(Facts {
            group,
            plan,
            policy,
            work: OnceLock::new(),
            measured: Mutex::new([0.0; usize::BITS as usize]),
        });
        known.push(facts.clone());
        Ok(facts)
    }

    /// All groups that were planned so far.
    pub fn known(&self) -> Vec<Arc<Facts>> {
        lock(&self.known).clone()
    }

    /// Bytes of a program for up to `jobs` jobs.
    pub fn bytes(&self, facts: &Facts, jobs: usize) -> u64 {
        self.backend.bytes(&self.device, &facts.plan, bucket(jobs), &facts.policy)
    }

    /// A program for up to `jobs` jobs, for the caller alone: an idle one, or a new one. Idle programs make way until
    /// all together take at most `room` bytes.
    pub fn take(&self, facts: &Arc<Facts>, jobs: usize, room: u64) -> Result<Prepared, Error> {
        let bucket = bucket(jobs);
        let found = {
            let mut idle = lock(&self.idle);
            let at = idle.iter().rposition(|old| old.bucket == bucket && old.facts.group == facts.group);
            at.map(|at| idle.remove(at))
        };
        let bytes = found.as_ref().map_or_else(|| self.bytes(facts, jobs), |found| found.bytes);
        let Some(others) = room.checked_sub(bytes) else {
            return Err(Error::OutOfMemory { device: self.device.name.clone(), needs: bytes, has: room });
        };
        self.shrink(others);
        match found {
            Some(found) => Ok(found),
            None => {
                let program = self.backend.prepare(&self.device, &facts.plan, bucket, &facts.policy)?;
                Ok(Prepared { facts: facts.clone(), program, bucket, bytes })
            }
        }
    }

    /// Gives a program back that ran well; one that failed is dropped instead.
    pub fn put(&self, program: Prepared) {
        lock(&self.idle).push(program);
        self.shrink(self.budget);
    }

    /// Drops the programs that ran longest ago until the idle ones hold at most `bytes`.
    fn shrink(&self, bytes: u64) {
        let dropped: Vec<Prepared> = {
            let mut idle = lock(&self.idle);
            let (mut held, mut kept) = (0, 0);
            for program in idle.iter().rev().take(MOST_IDLE) {
                held += program.bytes;
                if held > bytes {
                    break;
                }
                kept += 1;
            }
            let surplus = idle.len() - kept;
            idle.drain(..surplus).collect()
        };
        // Wiping takes a while: not under the lock.
        drop(dropped);
    }
}

/// A panic in another thread leaves these lists whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plan(group: Group) -> Result<Plan, Error> {
    let Group { params: p, op, cached_layers: layers, .. } = group;
    let possible = match op {
        Op::Sign => layers == 0 || layers <= p.d && cache_bytes(p, layers).is_some(),
        Op::Cache => (1..=p.d).contains(&layers) && p.hp * (layers - 1) < 32 && cache_bytes(p, layers).is_some(),
        Op::Keygen | Op::Verify => layers == 0,
    };
    if !possible {
        let what = format!("{layers} cached layers of {p}, which has {} of {} trees each; ask for fewer", p.d, p.hp);
        return Err(Error::Value { what });
    }
    Ok(match op {
        Op::Cache => Plan::cache(p, layers),
        Op::Sign => Plan::new(p, op).with_cached_layers(layers),
        Op::Keygen | Op::Verify => Plan::new(p, op),
    })
}
