//! Joining of jobs to blocks, and what the planner needs to know of the jobs.

use super::blocks::{Blocks, Members, OpenBlock};
use super::{Job, Scale, Scheduler, Worker, slots};
use crate::Error;
use crate::planner::Block;
use crate::scheme::Kind;
use crate::scheme::{Group, GroupFacts};
use std::sync::Arc;

/// The most jobs of a block.
const MOST_OF_A_BLOCK: usize = 256;
/// The fewest blocks of a device's chunk, so that it is not much longer than it should be.
const BLOCKS_OF_A_CHUNK: usize = 8;

/// The fewest shares of the memory if devices may take over that are initialised lazily. A block must then fit a chunk's share with eight GPUs, which
/// have 25 chunks between source and sink.
const SLOTS_OF_MANY: u64 = 4;

/// Jobs of a block, given those of a chunk.
fn block_of(chunk: usize) -> usize {
    (chunk / BLOCKS_OF_A_CHUNK).clamp(1, MOST_OF_A_BLOCK)
}

impl Scheduler {
    /// Fails if no device does work of this kind.
    pub fn check_kind(&self, kind: Kind) -> Result<(), Error> {
        self.same_process()?;
        let group = Group { kind, threads: self.options.threads };
        Classifier::new(self, self.devices().0, None).learn(group).map(drop)
    }
}

/// Joins jobs that are at hand to blocks.
pub(super) struct Joined<'a, J: Job, I> {
    pub(super) jobs: I,
    /// The rows that are left, if their number is known. Otherwise each job has one row.
    pub(super) left: Option<usize>,
    pub(super) classifier: Classifier<'a>,
    /// A job that was taken, and is in no block yet.
    pub(super) head: Option<OpenBlock<J>>,
    pub(super) blocks: &'a Blocks<J>,
}

impl<J: Job, I: Iterator<Item = J>> Iterator for Joined<'_, J, I> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let mut block = match self.head.take() {
            Some(head) => head,
            None => self.classifier.classify(self.jobs.next()?),
        };
        while block.has_room() {
            let Some(job) = self.jobs.next() else { break };
            if let Some(unjoined) = self.classifier.join(&mut block, job) {
                self.head = Some(unjoined);
                break;
            }
        }
        self.left = self.left.map(|left| left.saturating_sub(block.count));
        Some(self.blocks.add(block))
    }

    /// Counts rows.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let of_jobs = || Some(self.jobs.size_hint().1?.saturating_add(usize::from(self.head.is_some())));
        (0, self.left.or_else(of_jobs))
    }
}

/// Finds out for each job the facts that the planner needs.
pub(super) struct Classifier<'a> {
    scheduler: &'a Scheduler,
    devices: Vec<&'a Worker>,
    /// Jobs of the call, at most.
    total: Option<usize>,
    /// Bytes of a block's jobs and their outputs, at most.
    memory: u64,
    /// The facts about the last job's group, which the next job most often shares.
    last: Option<(Group, Result<Known, Error>)>,
}

/// The facts about a group, and the size of its blocks.
struct Known {
    facts: Arc<GroupFacts>,
    /// Jobs and bytes of a block, at most.
    block: (usize, u64),
}

impl<'a> Classifier<'a> {
    pub(super) fn new(scheduler: &'a Scheduler, devices: Vec<&'a Worker>, total: Option<usize>) -> Classifier<'a> {
        // Many lazily initialised devices may take over.
        let least = if scheduler.lazy.is_some() { SLOTS_OF_MANY } else { 1 };
        let slots = (slots(scheduler.sharing(&devices).map(|worker| worker.queue() as u64)) + 1).max(least);
        let memory = scheduler.memory_budget() / slots / BLOCKS_OF_A_CHUNK as u64;
        Classifier { scheduler, devices, total, memory, last: None }
    }

    pub(super) fn classify<J: Job>(&mut self, job: J) -> OpenBlock<J> {
        let (group, held, limits) = self.classify_kind(job.kind(), job.owned(), &|facts| job.output(facts));
        let count = job.count();
        OpenBlock { jobs: Members::One(job), group, held, count, limits }
    }

    /// The group of a job, the bytes that it and its output take, and the most jobs and bytes of a block of such jobs.
    fn classify_kind(
        &mut self,
        kind: Result<Kind, Error>,
        owned: usize,
        output: &dyn Fn(&GroupFacts) -> usize,
    ) -> (Result<Group, Error>, u64, (usize, u64)) {
        let threads = self.scheduler.options.threads;
        let known = kind.and_then(|kind| {
            let group = Group { kind, threads };
            let Known { facts, block } = self.known(group).as_ref().map_err(Clone::clone)?;
            Ok((group, output(facts), *block))
        });
        match known {
            Ok((group, output, block)) => (Ok(group), self.held(owned, output), block),
            Err(why) => (Err(why), self.held(owned, 0), (1, 0)),
        }
    }

    /// Bytes that a job and its output take.
    fn held(&self, owned: usize, output: usize) -> u64 {
        (owned + output * self.scheduler.work.checks.copies()) as u64
    }

    /// Adds a job to the block whose jobs were classified last; gives it back if it does not join. A job that joins needs no [`OpenBlock`] of its
    /// own: making one takes longer than all else that is done for a job of a list.
    fn join<J: Job>(&mut self, block: &mut OpenBlock<J>, job: J) -> Option<OpenBlock<J>> {
        let job = match &self.last {
            Some((group, Ok(known))) if job.kind().is_ok_and(|kind| kind == group.kind) => {
                let held = self.held(job.owned(), job.output(&known.facts));
                block.take(job, held)?
            }
            _ => job,
        };
        Some(self.classify(job))
    }

    /// The facts about a group. If all devices decline it, the error is the first device's.
    fn known(&mut self, group: Group) -> &Result<Known, Error> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != group) {
            let known = self.learn(group).map(|facts| Known { facts, block: self.block(group) });
            self.last = Some((group, known));
        }
        &self.last.as_ref().expect("it was learned").1
    }

    /// Jobs and bytes of a block that suits every device: a share of a chunk. The block and a program for so many jobs fit what a chunk
    /// may take.
    fn block(&self, group: Group) -> (usize, u64) {
        let of = |worker: &&Worker| {
            let scale = Scale { scheduler: self.scheduler, worker };
            let bounds = scale.bounds(0, Some(group), std::iter::empty());
            let of_time = bounds.time.as_secs_f64() / worker.speed(group).map_or(1.0, |speed| 1.0 / speed);
            let chunk = (of_time as usize).min(worker.most(Some(group)));
            let mut block = block_of(chunk);
            // Programs that are not sized are as large for one job as for many.
            let program = self.memory.max(scale.bytes(group, 1));
            while block > 1 && scale.bytes(group, block) > program {
                block /= 2;
            }
            let room = (self.memory * BLOCKS_OF_A_CHUNK as u64).saturating_sub(scale.bytes(group, block));
            (block, room.min(self.memory))
        };
        let of_devices = self.scheduler.live().filter(|worker| worker.takes(group)).map(|worker| of(&worker));
        let (block, memory) = of_devices.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap_or((1, 0));
        // Few jobs are shared out among the devices too.
        let share = self.total.map_or(usize::MAX, |total| total / self.devices.len() / BLOCKS_OF_A_CHUNK);
        (block.min(share).max(1), memory)
    }

    fn learn(&self, group: Group) -> Result<Arc<GroupFacts>, Error> {
        self.scheduler.disable_broken(&self.devices, group);
        let mut known = self.scheduler.facts(&self.devices, group);
        if known.is_err() {
            // Devices that were initialised meanwhile may take the group.
            known = self.scheduler.facts(&self.scheduler.live().collect::<Vec<_>>(), group).or(known);
        }
        known
    }
}
