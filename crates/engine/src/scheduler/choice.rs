//! The choice of a batch's devices, if the caller leaves that open: the host, or other devices once they are worth it.
//!
//! Work that the host does within [`WAKE`] stays there, and no driver is asked. For more work, the other devices are initialised. A device that has
//! done such jobs before is judged by their times, or by its table. An unknown device gets chunks while the host has some too, and is known
//! afterwards. So the crossover is where measured times meet.

use super::permits::lock;
use super::worker::{Lazy, Worker};
use super::{Job, Scheduler};
use crate::scheme::Group;
use crate::scheme::Kind;
use crate::{Backend, Device};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// From this many seconds of work on the host on, other devices are worth initialising: asking a driver and compiling the kernels of an operation
/// takes about as long (docs/cuda.md).
const WAKE: f64 = 0.5;

/// The devices that a batch goes to.
pub struct DeviceChoice<'a> {
    /// The devices, the fastest first.
    pub workers: Vec<&'a Worker>,
    /// Why it goes there, for people.
    pub why: String,
}

/// A device's booking for one batch, until it is dropped.
pub(super) struct Booked<'a> {
    /// The device.
    pub(super) worker: &'a Worker,
    nanoseconds: u64,
}

impl Drop for Booked<'_> {
    fn drop(&mut self) {
        self.worker.booked.fetch_sub(self.nanoseconds, Relaxed);
    }
}

impl Scheduler {
    /// The device for a batch of jobs of one kind, where several discrete devices can do it and one of them is the fastest: the one that is predicted
    /// to be done first, after the batches that it has. `None` otherwise.
    ///
    /// The whole batch goes there. Parts on all devices would be small, and each device would have parts of many batches
    /// (docs/lab/2026-11-27-four-gpus.md).
    pub(super) fn device_of_batch<J: Job>(&self, jobs: &[J]) -> Option<Booked<'_>> {
        // Most engines have one GPU: their jobs need not be counted.
        self.live().filter(|worker| worker.is_discrete()).nth(1)?;
        let kind = jobs.first()?.kind().ok()?;
        let group = Group { kind, threads: self.options.threads };
        let count = jobs.iter().map(Job::count).sum();
        let mut workers = self.suited(Some(group), Some(count)).workers;
        self.disable_broken(&workers, group);
        let fastest = |workers: &[&Worker]| workers.iter().filter_map(|worker| worker.speed(group)).fold(0.0, f64::max);
        let of_all = fastest(&workers);
        workers.retain(|worker| worker.is_discrete() && !worker.is_disabled() && worker.takes(group));
        // A host that is faster than each of them does its part of every batch.
        if workers.len() < 2 || fastest(&workers) < of_all {
            return None;
        }
        let _choosing = lock(&self.choosing);
        let done = workers.into_iter().map(|worker| {
            let speed = self.speed_of_model(worker, group).unwrap_or(f64::INFINITY);
            let nanoseconds = 1e9 * count as f64 / speed * worker.cost(group, self.work.checks);
            (worker.booked.load(Relaxed).saturating_add(nanoseconds as u64), nanoseconds as u64, worker)
        });
        let (_, nanoseconds, worker) = done.min_by_key(|(done, ..)| *done)?;
        worker.booked.fetch_add(nanoseconds, Relaxed);
        Some(Booked { worker, nanoseconds })
    }

    /// The devices that are initialised lazily, after initialising them if necessary.
    pub(super) fn others(&self) -> &[Worker] {
        let Some(Lazy { wake, workers, busy }) = &self.lazy else { return &[] };
        let _busy = lock(busy);
        workers.get_or_init(|| {
            let mut all: Vec<(Arc<dyn Backend>, Device)> = Vec::new();
            for backend in wake() {
                for device in backend.devices().unwrap_or_default() {
                    // A device that an earlier backend reaches too is that backend's.
                    let seen = device.uuid.is_some() && all.iter().any(|(_, other)| other.uuid == device.uuid);
                    if device.automatic && !seen {
                        all.push((backend.clone(), device));
                    }
                }
            }
            let budget = self.options.memory.of(all.iter().map(|(_, device)| device));
            let share = budget / (2 * all.len().max(1)) as u64;
            let (threads, know, policy) = (self.options.threads, &self.know, &self.policy);
            all.into_iter().map(|device| Worker::new(device, share, false, threads, know, policy)).collect()
        })
    }

    /// The devices for `left` more jobs, the first of which are of this group; `left` is `None` if nobody knows how many.
    pub fn suited(&self, group: Option<Group>, left: Option<usize>) -> DeviceChoice<'_> {
        let host = &self.workers[0];
        let stay = |why: String| DeviceChoice { workers: vec![host], why };
        if self.lazy.is_none() {
            return DeviceChoice { workers: self.live().collect(), why: String::new() };
        }
        let Some(group) = group else { return stay(String::new()) };
        let left = left.unwrap_or(usize::MAX);
        let of_host = match host.is_disabled() || !host.takes(group) {
            true => Some(f64::INFINITY),
            false => host.seconds(group, left),
        };
        // The first jobs will show how fast the host is.
        let Some(of_host) = of_host else { return stay("the host, until it is known how fast it is".into()) };
        if of_host < WAKE && self.initialised().is_empty() {
            return stay(format!(
                "{} does it in {:.2} ms, before another device would be ready",
                host.device().id(),
                1e3 * of_host
            ));
        }
        let able: Vec<&Worker> =
            self.others().iter().filter(|worker| !worker.is_disabled() && worker.takes(group)).collect();
        if able.is_empty() {
            return stay("there is no other device".into());
        }
        let rates: Option<Vec<f64>> =
            able.iter().map(|worker| worker.seconds(group, left).map(|seconds| left as f64 / seconds)).collect();
        let hosts = [host].into_iter().filter(|host| !host.is_disabled() && host.takes(group));
        let both = || able.iter().copied().chain(hosts.clone()).collect();
        let Some(rates) = rates else {
            return DeviceChoice { workers: both(), why: "all devices, until it is known which are fast".into() };
        };
        let (theirs, ours) = (rates.iter().sum::<f64>(), left as f64 / of_host);
        let compared =
            format!("{theirs:.0} jobs a second by {} devices, {ours:.0} by {}", able.len(), host.device().id());
        // The host stays even if it helps little: should the other devices fail, it goes on.
        if theirs <= ours { stay(compared) } else { DeviceChoice { workers: both(), why: compared } }
    }

    /// Jobs for which other devices are initialised, if they are not yet: one, if a single job takes that long.
    pub(super) fn jobs_to_wake(&self, group: Group) -> Option<usize> {
        self.lazy.as_ref().filter(|lazy| lazy.workers.get().is_none())?;
        let each = self.workers[0].programs.facts(group).ok()?.seconds();
        Some(((2.0 * WAKE / each) as usize).max(1))
    }

    /// Whether the host takes part in so many jobs together with discrete devices. `None` if there is no such choice, or if the speed of some device
    /// is not known.
    pub(super) fn wants_host(&self, devices: &[&Worker], kind: Kind, jobs: usize) -> Option<bool> {
        let group = Group { kind, threads: self.options.threads };
        let hosts = devices.iter().filter(|worker| !worker.is_discrete()).count();
        let is_known = |worker: &&Worker| worker.programs.facts(group).is_ok_and(|facts| !facts.times().is_empty());
        let is_choice = hosts > 0 && hosts < devices.len() && devices.iter().all(is_known);
        is_choice.then(|| self.rates.wants_host(kind, jobs))
    }

    /// Records that so many jobs ran at `latest` jobs a second, with the host or without.
    #[doc(hidden)]
    pub fn know_pace(&self, kind: Kind, jobs: usize, with_host: bool, latest: f64) {
        self.rates.know(kind, jobs, with_host, latest);
    }

    /// The device for a single job: the host, unless another one that is initialised is known to be faster.
    pub fn suited_alone(&self, kind: Kind) -> Option<&Worker> {
        let seconds = |worker: &Worker| worker.seconds(Group { kind, threads: self.threads_for(worker, kind, 1) }, 1);
        let others = self.initialised();
        if others.is_empty() {
            return None;
        }
        let host = seconds(self.workers.first()?)?;
        let timed = others.iter().filter(|worker| !worker.is_disabled()).filter_map(|w| Some((seconds(w)?, w)));
        timed.filter(|(seconds, _)| *seconds < host).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, worker)| worker)
    }

    /// The number of jobs, a power of two, from which on an initialised device of known speed is faster than the host.
    pub fn crossover(&self, group: Group) -> Option<usize> {
        let host = self.workers.first()?;
        (0..24).map(|log| 1usize << log).find(|jobs| {
            let ours = host.seconds(group, *jobs);
            let theirs = self.initialised().iter().filter_map(|worker| worker.seconds(group, *jobs)).reduce(f64::min);
            theirs.zip(ours).is_some_and(|(theirs, ours)| theirs < ours)
        })
    }
}
