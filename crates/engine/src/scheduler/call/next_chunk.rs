//! Which chunk a call starts next, and on which device.

use super::{Call, CallDevice};
use crate::Error;
use crate::planner::{Block, SubBatch};
use crate::scheduler::blocks::{Numbered, counted};
use crate::scheduler::permits::Permit;
use crate::scheduler::producer::{Readiness, patience};
use crate::scheduler::{Scale, Worker};
use crate::scheme::{FirstChunks, Group};
use std::time::Duration;

/// In a long call, a GPU's first chunk has a full program's jobs divided by this where chunks begin small, and each later chunk is twice the
/// one before. (On an H200, calls of 262,144 rows of 128f: 1.94 M/s; 1.76 M/s if all chunks are full.)
const FIRST_CHUNK: usize = 8;

/// A device leaves no fewer rows to others than its own divided by this.
const LEAST_REST: usize = 8;

/// A chunk that is about to start.
pub(super) struct Chunk<'a> {
    pub(super) device: usize,
    pub(super) permit: Permit<'a>,
    pub(super) jobs: Numbered,
    /// Bytes for the chunk's program, and for all programs of its device.
    pub(super) room: (u64, u64),
}

/// The next step of a call.
pub(super) enum Next<'a> {
    /// A chunk is to run.
    Chunk(Chunk<'a>),
    /// A job was refused.
    Refused,
    /// No chunk can start, at least until something happens. If jobs are missing, this has the time to wait for them, if that is limited.
    Later(Option<Option<Duration>>),
    /// Other devices take over.
    Devices(Vec<&'a Worker>),
}

impl<'a> Call<'a> {
    /// The next chunk, if a device has room for it.
    pub(super) fn next_chunk(&mut self) -> Next<'a> {
        if let Some(chunk) = self.chunk.take() {
            return Next::Chunk(chunk);
        }
        // Once the call has ended, only earlier jobs whose results were lost are done again.
        let is_again = |call: &Self| call.jobs.waiting().is_some_and(|(index, _)| *index < call.fresh);
        if self.end.is_none()
            && !is_again(self)
            && let Some(producer) = self.producer
        {
            // As many jobs as fill the largest chunk may be taken ahead.
            let group = self.jobs.peek().and_then(|(_, block)| block.group.as_ref().ok().copied());
            let most = group.and_then(|_| self.devices.iter().map(|device| device.worker.most(group)).max());
            let in_flight = self.devices.iter().map(|device| device.jobs).sum();
            let others = self.jobs.rows_waiting();
            // A chunk of a discrete device is a full program; chunks of other devices are small.
            let discrete = self.devices.iter().map(|device| device.worker).filter(|worker| worker.has_memory());
            let longest = group.and_then(|group| discrete.filter_map(|worker| worker.full(group)).reduce(f64::max));
            let longest = longest.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            if let Readiness::Later(wait) = producer.readiness(others, in_flight, most, patience(longest)) {
                return Next::Later(Some(wait));
            }
        }
        let head = if self.end.is_some() { self.jobs.waiting() } else { self.jobs.peek() };
        let Some((index, block)) = head else { return Next::Later(None) };
        let (index, group) = (*index, block.group.as_ref().ok().copied());
        let most = self.end.as_ref().map_or(usize::MAX, |(end, _)| end.saturating_sub(index));
        // Refused jobs hold nothing, but their errors wait to be handed out too. The next job to hand out is never kept waiting.
        if most == 0 || self.whole || (index > self.next && self.is_full()) {
            return Next::Later(None);
        }
        if self.may_switch && self.is_idle() {
            let suited = self.scheduler.suited(group, self.jobs.left());
            let same = |worker: &&Worker| std::ptr::eq(*worker, self.devices[0].worker);
            if suited.workers.len() != self.devices.len() || !suited.workers.iter().all(same) {
                // Results of the devices that the call began with are handed out first.
                return match self.is_empty() {
                    true => Next::Devices(suited.workers),
                    false => Next::Later(None),
                };
            }
        }
        let able = |device: &CallDevice<'_>| {
            !device.worker.is_disabled() && group.is_none_or(|group| device.worker.takes(group))
        };
        if !self.devices.iter().any(able) {
            let takes = |worker: &&Worker| group.is_none_or(|group| worker.takes(group));
            let others: Vec<_> = self.scheduler.live().filter(|worker| self.has_not(worker)).filter(takes).collect();
            // The devices that the call began with are gone: other devices go on, if there are any.
            return match (others.is_empty(), self.is_idle()) {
                (true, _) => self.refuse_head(group),
                (false, true) => Next::Devices(others),
                (false, false) => Next::Later(None),
            };
        }
        for device in 0..self.devices.len() {
            let it = &self.devices[device];
            if able(it)
                && it.chunks < it.worker.queue_of(group)
                && let Some(next) = self.cut(device, index, group, most)
            {
                return next;
            }
        }
        Next::Later(None)
    }

    /// Refuses the next job, which no device can do.
    fn refuse_head(&mut self, group: Option<Group>) -> Next<'a> {
        let live: Vec<&Worker> = self.scheduler.live().collect();
        let why = group.map(|group| self.scheduler.facts(&live, group).map(drop)).unwrap_or(Ok(()));
        let Some((index, block)) = self.jobs.pop() else { return Next::Later(None) };
        let lost = self.first.clone().unwrap_or_else(|| Error::Device {
            device: "every device that could have done this job".into(),
            what: "in another call".into(),
        });
        self.refuse(index, block.count, why.err().unwrap_or(lost));
        Next::Refused
    }

    /// The most jobs that this device should take, so that all devices come to an end together. 0 if fewer than `least` are left for a busy device.
    fn wanted(&self, device: &CallDevice<'_>, group: Option<Group>, least: usize) -> usize {
        let live = || self.devices.iter().filter(|device| !device.worker.is_disabled());
        let (Some(group), Some(left), 2..) = (group, self.jobs.left(), live().count()) else { return usize::MAX };
        let all = left.saturating_add(live().map(|device| device.jobs).sum()) as f64;
        let speed = |device: &CallDevice<'_>| self.scheduler.speed_of_model(device.worker, group);
        let total: f64 = live().filter_map(speed).sum();
        let (own, fastest) = (speed(device).unwrap_or(0.0), live().filter_map(speed).fold(0.0, f64::max));
        let share = (all * own / total).ceil() as usize;
        // Else a call of few messages would take as long as the slowest device needs for its least chunk.
        let is_late = || {
            let jobs = left.min(least.max(1));
            let times = device.worker.programs.facts(group).map_or(Vec::new(), |facts| facts.times());
            // Each job of a larger batch takes less time, or as much. Smaller batches say nothing: a GPU would never get a large one.
            let larger = times.into_iter().find(|(batch, _)| *batch >= jobs);
            let least_time = larger.map(|(batch, seconds)| seconds * jobs as f64 / batch as f64);
            own < fastest && least_time.is_some_and(|seconds| seconds > all / fastest)
        };
        match share.saturating_sub(device.jobs) {
            // A device that has nothing to do does not wait, unless the fastest one does all that is left sooner.
            few if few < least => {
                if device.chunks == 0 && !is_late() {
                    least.max(1)
                } else {
                    0
                }
            }
            // A rest that is too small for a chunk goes along.
            share if left.saturating_sub(share) < share / LEAST_REST => left,
            share => share,
        }
    }

    /// Takes a permit on a device and cuts a chunk for it. `None` if the device should take none now.
    fn cut(&mut self, device: usize, index: usize, group: Option<Group>, most: usize) -> Option<Next<'a>> {
        let (scheduler, worker) = (self.scheduler, self.devices[device].worker);
        let scale = Scale { scheduler, worker };
        let others = self.devices.iter().map(|device| device.worker);
        let others = others.filter(|other| !other.is_disabled() && !std::ptr::eq(*other, worker));
        let mut bounds = scale.bounds(self.slot, group, others);
        let wanted = self.wanted(&self.devices[device], group, bounds.least).min(most);
        if wanted == 0 {
            return None;
        }
        bounds.jobs = bounds.jobs.min(wanted);
        let it = &self.devices[device];
        let queue = worker.queue_of(group);
        let is_long = wanted.min(self.jobs.left().unwrap_or(usize::MAX)) > worker.most(group);
        match group.map(|group| group.kind.habits().first_chunks) {
            Some(FirstChunks::Doubling)
                if worker.has_memory() && self.producer.is_none() && self.has_room_for_sizes(&scale, group) =>
            {
                let share = FIRST_CHUNK >> it.begun.min(FIRST_CHUNK.ilog2() as usize);
                if share > 1 && (is_long || it.begun > 0) {
                    bounds.jobs = bounds.jobs.min(worker.most(group).div_ceil(share));
                }
            }
            Some(FirstChunks::Staggered) if is_long && it.begun < queue => {
                bounds.jobs = (bounds.jobs * (it.begun + 1)).div_ceil(queue);
            }
            _ => {}
        }
        let permit = self.devices[device].permit(&self.signal, device)?;
        let client = self.client;
        let cut_block = |first: usize, block: &Block, rows: usize| client.cut(first, block, rows);
        let mut cut = self.jobs.cut(&scale, &cut_block, bounds);
        if let Some(SubBatch::TooLarge(first, block, needs)) = cut {
            let memory = scheduler.memory_alone(self.client.owned(first));
            if block.group.is_err() || needs > memory {
                let why = block.group.err().unwrap_or_else(|| scheduler.out_of_memory(worker, needs));
                self.fresh = self.fresh.max(first + block.count);
                self.refuse(first, block.count, why);
                return Some(Next::Refused);
            }
            self.jobs.give_back(vec![(first, block)]);
            // The block gets the whole budget, once no other chunk takes any of it.
            if index > self.next || self.devices.iter().any(|device| device.chunks > 0) {
                return None;
            }
            self.devices.iter_mut().for_each(|device| device.spare.clear());
            (bounds.memory, bounds.jobs, self.whole) = (memory, 1, true);
            cut = self.jobs.cut(&scale, &cut_block, bounds);
        }
        let Some(SubBatch::Run(jobs, held)) = cut else { return None };
        self.fresh = self.fresh.max(jobs[0].0 + counted(&jobs));
        self.held.insert(jobs[0].0, held);
        // Programs that wait for their next chunk stay as long as they and outputs of the largest size fit.
        let largest = self.held.values().copied().max().unwrap_or(held);
        let all = match self.whole {
            true => bounds.memory - held,
            false => self.slot.saturating_sub(largest) * worker.queue_of(self.group) as u64,
        };
        Some(Next::Chunk(Chunk { device, permit, jobs, room: (bounds.memory - held, all) }))
    }

    /// Whether the memory suffices for chunks of several sizes. Each size has a program of its own, and all of them together take twice the memory of a
    /// full one. Programs that do not fit are made anew for each chunk. (Verifying 128f, four H100 with 2 GiB in all: 4.2 M/s; 1.4 M/s if there are
    /// chunks of several sizes even so.)
    fn has_room_for_sizes(&self, scale: &Scale<'_>, group: Option<Group>) -> bool {
        group.is_none_or(|group| 2 * scale.bytes(group, scale.worker.most(Some(group))) <= self.slot)
    }
}
