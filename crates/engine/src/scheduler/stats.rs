//! What the scheduler counts, always.

use super::turns::Waits;
use super::{Scheduler, Worker};
use crate::{Device, Timing};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What an engine did so far, and what it does now; see [`Scheduler::stats`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// Chunks that ran: jobs that a device was given together. A single job is a chunk of its own.
    pub chunks: u64,
    /// Jobs of these chunks.
    pub jobs: u64,
    /// Chunks by their size: entry i counts those of 2^i jobs up to twice as many.
    pub chunk_sizes: Vec<u64>,
    /// Single jobs, which run concurrently with the chunks of batches.
    pub single_jobs: u64,
    /// Time that chunks took from their start to their results on the host, all of them together.
    pub run_time: Duration,
    /// Where the devices' time went, all programs together.
    pub device: Timing,
    /// Failures of devices.
    pub faults: u64,
    /// Jobs that were done again after a failure.
    pub retried_jobs: u64,
    /// Bytes that callers have of [`Scheduler::memory`], and bytes that are kept for the next call of it.
    pub memory_in_use: u64,
    /// See [`memory_in_use`](Stats::memory_in_use).
    pub memory_idle: u64,
    /// Each device.
    pub devices: Vec<DeviceStats>,
}

/// What a device does for the calls of an engine.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceStats {
    /// The device.
    pub device: Device,
    /// Whether it failed and is not used any more.
    pub is_disabled: bool,
    /// Chunks that run now.
    pub running: usize,
    /// Chunks that wait for their turn now.
    pub waiting: usize,
    /// How long turns were waited for.
    pub waits: Waits,
}

/// Counters that any thread adds to.
#[derive(Default)]
pub(crate) struct Counters {
    chunks: AtomicU64,
    jobs: AtomicU64,
    sizes: [AtomicU64; 32],
    singles: AtomicU64,
    nanoseconds: AtomicU64,
    faults: AtomicU64,
    again: AtomicU64,
}

impl Counters {
    pub(crate) fn chunk(&self, jobs: usize, took: Duration) {
        self.chunks.fetch_add(1, Relaxed);
        self.jobs.fetch_add(jobs as u64, Relaxed);
        self.sizes[(jobs.max(1).ilog2() as usize).min(31)].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn single(&self) {
        self.singles.fetch_add(1, Relaxed);
    }

    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    pub(crate) fn again(&self, jobs: usize) {
        self.again.fetch_add(jobs as u64, Relaxed);
    }
}

impl Scheduler {
    /// What this engine did so far.
    pub fn stats(&self) -> Stats {
        let it = &self.counters;
        let mut chunk_sizes: Vec<u64> = it.sizes.iter().map(|count| count.load(Relaxed)).collect();
        chunk_sizes.truncate(chunk_sizes.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        let device = |worker: &Worker| {
            let (running, waiting) = worker.turns.load();
            let (device, waits) = (worker.device().clone(), worker.turns.waits());
            DeviceStats { device, is_disabled: worker.is_disabled(), running, waiting, waits }
        };
        let (memory_in_use, memory_idle) = self.memory.stats();
        Stats {
            memory_in_use,
            memory_idle,
            chunks: it.chunks.load(Relaxed),
            jobs: it.jobs.load(Relaxed),
            chunk_sizes,
            single_jobs: it.singles.load(Relaxed),
            run_time: Duration::from_nanos(it.nanoseconds.load(Relaxed)),
            device: self.timing(),
            faults: it.faults.load(Relaxed),
            retried_jobs: it.again.load(Relaxed),
            devices: self.all().map(device).collect(),
        }
    }
}
