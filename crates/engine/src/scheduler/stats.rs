//! The scheduler's counters, which always count.

use super::permits::Waits;
use crate::{Device, Timing};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of an engine: what it did so far, and what it does now. See [`Scheduler::stats`](super::Scheduler::stats).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// Chunks that ran. A chunk is the jobs that a device computes together; a single job is a chunk of its own.
    pub chunks: u64,
    /// Jobs in these chunks.
    pub jobs: u64,
    /// Chunks by size: entry i counts chunks of 2^i to 2^(i+1) − 1 jobs.
    pub chunk_sizes: Vec<u64>,
    /// Single jobs, which run concurrently with the chunks of batches.
    pub single_jobs: u64,
    /// The sum of the times from a chunk's start until its results were on the host.
    pub run_time: Duration,
    /// Where the devices' time went, summed over all programs.
    pub device: Timing,
    /// Failures of devices.
    pub faults: u64,
    /// Jobs that were done again after a failure.
    pub retried_jobs: u64,
    /// Jobs that were computed twice, and whose results agreed.
    pub redundant_jobs: u64,
    /// Bytes of [`Scheduler::memory`](super::Scheduler::memory) that callers hold now.
    pub memory_in_use: u64,
    /// Bytes of [`Scheduler::memory`](super::Scheduler::memory) that are kept for the next caller.
    pub memory_idle: u64,
    /// The counters of each device.
    pub devices: Vec<DeviceStats>,
    /// The counters of the queue of tickets.
    pub tickets: TicketStats,
}

/// Counters of an engine's queue of tickets. In histograms, entry i counts values from 2^i to 2^(i+1) − 1.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TicketStats {
    /// Jobs that wait now. A set of rows counts as its rows.
    pub queued: usize,
    /// Bytes that the waiting jobs own.
    pub queued_bytes: u64,
    /// Batches that run now. A job that its waiting thread computes counts as a batch.
    pub running: usize,
    /// Jobs that were accepted.
    pub submitted: u64,
    /// Jobs that were refused, mostly because the queue was full.
    pub refused: u64,
    /// Tickets that were cancelled: dropped before their job began, or ended by a [`Canceller`](super::Canceller).
    pub cancelled: u64,
    /// Tickets whose deadline passed.
    pub expired: u64,
    /// Batches by their jobs. A set of rows counts as its rows.
    pub batch_sizes: Vec<u64>,
    /// Tickets by the nanoseconds from their submission to the start of their batch.
    pub waits: Vec<u64>,
    /// Tickets by the nanoseconds that their batch took.
    pub service_times: Vec<u64>,
}

/// The state of a device, and its work for the calls of an engine.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceStats {
    /// The device.
    pub device: Device,
    /// Whether it failed and is not used any more.
    pub is_disabled: bool,
    /// Chunks that run now.
    pub running: usize,
    /// Chunks that wait for their permit now.
    pub waiting: usize,
    /// How long permits of the device were waited for.
    pub waits: Waits,
}

/// A number that any thread adds to.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of chunks, single jobs and faults.
#[derive(Default)]
pub(crate) struct Counters {
    pub(super) chunks: Counter,
    pub(super) jobs: Counter,
    pub(super) sizes: Histogram,
    pub(super) singles: Counter,
    pub(super) nanoseconds: Counter,
    pub(super) faults: Counter,
    /// Jobs that were done again.
    pub(super) again: Counter,
    /// Jobs that were computed twice.
    pub(super) twice: Counter,
}

impl Counters {
    pub(super) fn chunk(&self, jobs: usize, took: Duration) {
        self.chunks.add(1);
        self.jobs.add(jobs as u64);
        self.sizes.add(jobs as u64, 1);
        self.nanoseconds.add(nanoseconds(took));
    }
}

/// A histogram that any thread adds to.
pub(super) struct Histogram([Counter; 64]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([const { Counter(AtomicU64::new(0)) }; 64])
    }
}

impl Histogram {
    fn bucket(value: u64) -> usize {
        value.max(1).ilog2() as usize
    }

    fn add(&self, value: u64, times: u64) {
        self.0[Histogram::bucket(value)].add(times);
    }

    /// The entries up to the last one that is not zero.
    pub(super) fn read(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = self.0.iter().map(Counter::read).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        counts
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Counters of tickets.
#[derive(Default)]
pub(super) struct TicketCounters {
    pub(super) submitted: Counter,
    pub(super) refused: Counter,
    pub(super) cancelled: Counter,
    pub(super) expired: Counter,
    sizes: Histogram,
    waits: Histogram,
    service: Histogram,
}

impl TicketCounters {
    /// Adds the waiting times of a batch together, because other threads add to the same counters.
    pub(super) fn waited(&self, times: &[Duration]) {
        let mut counts = [0; 64];
        times.iter().for_each(|time| counts[Histogram::bucket(nanoseconds(*time))] += 1);
        let counted = self.waits.0.iter().zip(counts).filter(|(_, count)| *count > 0);
        counted.for_each(|(all, count)| all.add(count));
    }

    pub(super) fn batch(&self, jobs: usize, tickets: usize, took: Duration) {
        self.sizes.add(jobs as u64, 1);
        self.service.add(nanoseconds(took), tickets as u64);
    }

    /// All counters but those that the queue itself keeps.
    pub(super) fn stats(&self) -> TicketStats {
        TicketStats {
            submitted: self.submitted.read(),
            refused: self.refused.read(),
            cancelled: self.cancelled.read(),
            expired: self.expired.read(),
            batch_sizes: self.sizes.read(),
            waits: self.waits.read(),
            service_times: self.service.read(),
            ..TicketStats::default()
        }
    }
}
