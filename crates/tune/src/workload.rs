//! The batch that is timed. It is the same for every policy, and all answers have to be equal.

use crate::search::{Lab, Stop};
use crate::trial::{Place, Trial, TrialJobs};
use hypergrove_engine::{Backend, Device, Error, Policy, THREADS, Timing};
use hypergrove_fips205::plan::Plan;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Programs that are kept prepared while their policies take turns.
const PREPARED: usize = 6;
/// Signatures that a verified batch consists of, over and over.
const DISTINCT: usize = 256;
/// Signing on hosts is slow: a batch of verifications there has fewer of them.
const DISTINCT_ON_HOSTS: usize = 16;

/// A batch, and the programs that compute it.
pub struct Workload {
    backend: Arc<dyn Backend>,
    device: Device,
    timeout: Duration,
    jobs: TrialJobs,
    count: usize,
    prepared: Vec<Trial>,
}

impl Workload {
    /// A batch of `count` jobs: `base` has the number of threads, where the space has that. `timeout` is that of [`Place`].
    pub fn new(
        backend: &Arc<dyn Backend>,
        device: &Device,
        timeout: Duration,
        plan: &Plan,
        count: usize,
        base: &Policy,
    ) -> Result<Workload, Error> {
        let is_host = device.memory == 0 || !device.automatic;
        let distinct = if is_host { DISTINCT_ON_HOSTS } else { DISTINCT };
        let threads = base.get(THREADS).unwrap_or(1) as usize;
        let place = Place { backend: &**backend, device, timeout };
        let jobs = TrialJobs::new(place, plan.clone(), count, distinct, threads)?;
        Ok(Workload { backend: backend.clone(), device: device.clone(), timeout, jobs, count, prepared: Vec::new() })
    }

    /// One run: seconds end to end, and what the program reports.
    pub fn run(&mut self, policy: &Policy) -> Result<(f64, Timing), Error> {
        let mut trial = match self.prepared.iter().position(|trial| trial.policy() == policy) {
            Some(at) => self.prepared.remove(at),
            None => {
                let mut trial = self.prepare(policy)?;
                // Its first run allocates, records and warms up; its answer is compared.
                trial.run(&self.jobs, self.count)?;
                trial
            }
        };
        let done = trial.time(&self.jobs, self.count);
        // The one that ran last stays longest.
        self.prepared.push(trial);
        done.map(|(time, timing)| (time.max(Duration::from_nanos(1)).as_secs_f64(), timing))
    }

    /// Compiles, on all cores, what these policies need and is not there yet.
    fn expect(&self, policies: &[Policy]) {
        let Workload { backend, device, jobs, count, prepared, .. } = self;
        let (Some(programs), plan) = (backend.slh_dsa(), jobs.plan()) else { return };
        std::thread::scope(|scope| {
            for policy in policies.iter().filter(|policy| !prepared.iter().any(|trial| trial.policy() == *policy)) {
                let compile = || programs.compile(device, plan, *count, policy);
                // Without a thread that cannot be had, it is compiled when it is prepared.
                let _ = std::thread::Builder::new().spawn_scoped(scope, compile);
            }
        });
    }

    /// Where memory does not suffice, programs that wait make way.
    fn prepare(&mut self, policy: &Policy) -> Result<Trial, Error> {
        if self.prepared.len() >= PREPARED {
            self.prepared.remove(0);
        }
        let place = Place { backend: &*self.backend, device: &self.device, timeout: self.timeout };
        loop {
            match Trial::new(place, self.jobs.plan(), self.count, policy) {
                Err(Error::OutOfMemory { .. }) if !self.prepared.is_empty() => drop(self.prepared.remove(0)),
                prepared => return prepared,
            }
        }
    }
}

/// A workload that is timed until its time is over. On a device with memory of its own the kernels' time counts, if they say
/// what they took: what the host does meanwhile is the same under almost every policy, and varies by more than policies differ. Of a few jobs
/// their time may be the host's, with some microseconds of the host in it ([`Timing::execute`]).
pub struct Timed<'a> {
    workload: &'a mut Workload,
    /// When to stop.
    pub until: Instant,
    by_kernels: Option<bool>,
}

impl Timed<'_> {
    /// Times this workload, until then.
    pub fn new(workload: &mut Workload, until: Instant) -> Timed<'_> {
        Timed { workload, until, by_kernels: None }
    }
}

impl Lab for Timed<'_> {
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        if Instant::now() >= self.until {
            return Err(Stop::Budget);
        }
        match self.workload.run(policy) {
            Ok((seconds, timing)) => {
                let is_discrete = self.workload.device.memory > 0;
                let by_kernels = *self.by_kernels.get_or_insert(is_discrete && !timing.execute.is_zero());
                Ok(Some(if by_kernels { timing.execute.as_secs_f64() } else { seconds }))
            }
            Err(Error::OutOfMemory { .. } | Error::Unsupported { .. } | Error::Value { .. }) => Ok(None),
            Err(why) => Err(Stop::Failed(why)),
        }
    }

    fn expect(&mut self, policies: &[Policy]) {
        if Instant::now() < self.until {
            self.workload.expect(policies);
        }
    }
}
