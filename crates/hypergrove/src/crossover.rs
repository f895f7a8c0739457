//! Which devices a row of jobs goes to, where the caller leaves that open: the host, or others once they are worth it.
//!
//! What is done within [`WAKE`] on the host stays there, and no driver is asked. For more, the others are woken. Whoever
//! has done such jobs before is judged by that, or by its table; a device that is not known gets a share beside the host,
//! and is known then. So the crossover is where measured times meet.

use crate::engine::Inner;
use crate::worker::Worker;
use hypergrove_engine::programs::{Group, Programs};
use hypergrove_engine::{Backend, Device, PolicySource, SelfTested};
use hypergrove_tune::model::{Sample, Shape, line};
use std::sync::{Arc, OnceLock};

/// Seconds of work on the host by which others are worth waking: to ask a driver and to compile the kernels of an
/// operation takes about as long (docs/cuda.md).
const WAKE: f64 = 0.5;

/// Backends whose devices are woken.
pub type Wake = Arc<dyn Fn() -> Vec<Arc<dyn Backend>> + Send + Sync>;

/// Devices that sleep until they are worth it.
pub(crate) struct Sleeping {
    pub(crate) wake: Wake,
    pub(crate) workers: OnceLock<Vec<Worker>>,
}

/// Where a row goes.
pub(crate) struct Suited<'a> {
    pub(crate) workers: Vec<&'a Worker>,
    /// For people.
    pub(crate) why: String,
}

/// Seconds of so many jobs in one row, if that is known.
pub(crate) fn seconds(worker: &Worker, group: Group, jobs: usize) -> Option<f64> {
    let facts = worker.programs.facts(group).ok()?;
    let (program, times) = (jobs.clamp(1, facts.most()), facts.times());
    let total = jobs as f64;
    if let Some(measured) = facts.measured_at(program) {
        return Some(measured * total);
    }
    let samples = times
        .iter()
        .map(|(jobs, seconds)| (*jobs as f64, Sample { shape: Shape::threads(1), seconds: *seconds, sigma: 0.0 }));
    let samples: Vec<_> = samples.collect();
    let by_line = || line(&samples, program as f64).map(|estimate| estimate.seconds / program as f64 * total);
    if samples.len() > 1 {
        return by_line();
    }
    let choice = worker.programs.choice(&facts, program);
    let foreseen = choice.seconds.filter(|_| choice.source != PolicySource::Default);
    foreseen.map(|(seconds, _)| seconds * total).or_else(by_line)
}

impl Inner {
    /// Whether other devices may be brought in.
    pub(crate) fn may_choose(&self) -> bool {
        self.sleeping.is_some()
    }

    /// The devices that sleep, woken.
    fn others(&self) -> &[Worker] {
        let Some(Sleeping { wake, workers }) = &self.sleeping else { return &[] };
        workers.get_or_init(|| {
            let mut all: Vec<(Device, Arc<dyn Backend>)> = Vec::new();
            for backend in wake() {
                for device in backend.devices().unwrap_or_default() {
                    // One that an earlier backend reaches too is that backend's.
                    let seen = device.uuid.is_some() && all.iter().any(|(other, _)| other.uuid == device.uuid);
                    if device.automatic && !seen {
                        all.push((device, backend.clone()));
                    }
                }
            }
            let share = self.memory_with_others() / (2 * all.len().max(1)) as u64;
            let worker = |(device, backend)| Worker::new(self.programs(backend, device, share));
            all.into_iter().map(worker).collect()
        })
    }

    pub(crate) fn awake(&self) -> &[Worker] {
        self.sleeping.as_ref().and_then(|sleeping| sleeping.workers.get()).map_or(&[], Vec::as_slice)
    }

    /// Programs with what the tables know of their device.
    pub(crate) fn programs(&self, backend: Arc<dyn Backend>, device: Device, share: u64) -> Programs {
        let known = crate::engine::know(&self.tables, &backend, &device, &self.notices);
        Programs::new(SelfTested::of(backend), device, share, Some(known))
    }

    /// The devices for a row of `left` jobs more, of this group at first; `None` if nobody knows how many.
    pub(crate) fn suited(&self, group: Option<Group>, left: Option<usize>) -> Suited<'_> {
        let host = &self.workers[0];
        let stay = |why: String| Suited { workers: vec![host], why };
        if !self.may_choose() {
            return Suited { workers: self.live().collect(), why: String::new() };
        }
        let Some(group) = group else { return stay(String::new()) };
        let left = left.unwrap_or(usize::MAX);
        let of_host =
            if host.is_aside() || !host.takes(group) { Some(f64::INFINITY) } else { seconds(host, group, left) };
        // The first jobs tell.
        let Some(of_host) = of_host else { return stay("the host, until it is known how fast it is".into()) };
        if of_host < WAKE && self.awake().is_empty() {
            return stay(format!(
                "{} does it in {:.2} ms, before another device would be ready",
                host.device().id(),
                1e3 * of_host
            ));
        }
        let able: Vec<&Worker> =
            self.others().iter().filter(|worker| !worker.is_aside() && worker.takes(group)).collect();
        if able.is_empty() {
            return stay("there is no other device".into());
        }
        let rates: Option<Vec<f64>> = able.iter().map(|w| seconds(w, group, left).map(|s| left as f64 / s)).collect();
        // The fastest leads.
        let hosts = [host].into_iter().filter(|host| !host.is_aside() && host.takes(group));
        let both = || able.iter().copied().chain(hosts.clone()).collect();
        let Some(rates) = rates else {
            return Suited { workers: both(), why: "all devices, until it is known which are fast".into() };
        };
        let (theirs, ours) = (rates.iter().sum::<f64>(), left as f64 / of_host);
        let compared =
            format!("{theirs:.0} jobs a second by {} devices, {ours:.0} by {}", able.len(), host.device().id());
        // The host stays also where it helps little: should the others fail, it goes on.
        if theirs <= ours { stay(compared) } else { Suited { workers: both(), why: compared } }
    }

    /// The device for a single job: the host, unless another one that is awake is known to be faster.
    pub(crate) fn suited_alone(&self, group: Group) -> Option<&Worker> {
        let host = seconds(self.workers.first()?, group, 1)?;
        let timed = self.awake().iter().filter(|w| !w.is_aside()).filter_map(|w| Some((seconds(w, group, 1)?, w)));
        timed.filter(|(seconds, _)| *seconds < host).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, worker)| worker)
    }

    /// Jobs from which on other devices are faster than the host, of those that are awake and known.
    pub(crate) fn crossover(&self, group: Group) -> Option<usize> {
        let host = self.workers.first()?;
        (0..24).map(|log| 1usize << log).find(|jobs| {
            let ours = seconds(host, group, *jobs);
            let theirs = self.awake().iter().filter_map(|worker| seconds(worker, group, *jobs)).reduce(f64::min);
            theirs.zip(ours).is_some_and(|(theirs, ours)| theirs < ours)
        })
    }
}
