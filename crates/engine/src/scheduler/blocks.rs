//! The jobs of a call. The scheduler knows blocks of them by their numbers, and only this module knows the jobs' type.

use super::permits::lock;
use super::{Job, Outcomes, Place, Run, Sink};
use crate::Error;
use crate::planner::Block;
use crate::scheme::{Group, GroupFacts};
use std::collections::VecDeque;
use std::mem::replace;
use std::ops::ControlFlow;
use std::slice;
use std::sync::Mutex;
use zeroize::Zeroize;

/// Blocks, each with the number of its first row.
pub(super) type Numbered = Vec<(usize, Block)>;

/// The number of rows of all these blocks.
pub(super) fn counted(blocks: &[(usize, Block)]) -> usize {
    blocks.iter().map(|(_, block)| block.count).sum()
}

/// The capacity that a block of several jobs begins with, which suffices for the usual block.
const FIRST_CAPACITY: usize = 128;

/// The jobs of a block. A single one takes no memory of its own.
pub(super) enum Members<J> {
    One(J),
    Many(Vec<J>),
}

impl<J> Members<J> {
    pub(super) fn push(&mut self, next: J) {
        if let Members::Many(all) = self {
            return all.push(next);
        }
        if let Members::One(first) = replace(self, Members::Many(Vec::with_capacity(FIRST_CAPACITY))) {
            self.push(first);
            self.push(next);
        }
    }

    /// Appends jobs.
    fn append(&mut self, next: Members<J>) {
        match next {
            Members::One(next) => self.push(next),
            Members::Many(next) => next.into_iter().for_each(|next| self.push(next)),
        }
    }

    pub(super) fn as_slice(&self) -> &[J] {
        match self {
            Members::One(one) => slice::from_ref(one),
            Members::Many(all) => all,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [J] {
        match self {
            Members::One(one) => slice::from_mut(one),
            Members::Many(all) => all,
        }
    }
}

/// A block that other jobs may join, until a call takes it.
pub(super) struct OpenBlock<J> {
    pub(super) jobs: Members<J>,
    /// The group whose program does the jobs, or why none can.
    pub(super) group: Result<Group, Error>,
    /// Bytes that the jobs and their outputs take while they are worked on.
    pub(super) held: u64,
    /// The number of jobs that the members count for; a member may count for several.
    pub(super) count: usize,
    /// The most jobs that the block may count for, and the most bytes of the block.
    pub(super) limits: (usize, u64),
}

impl<J: Job> OpenBlock<J> {
    /// Whether another job may join, if its bytes fit.
    pub(super) fn has_room(&self) -> bool {
        J::JOINS && self.group.is_ok() && self.count < self.limits.0
    }

    /// Takes other jobs into the block; gives them back if they are of another group, or if the block would be too large.
    pub(super) fn join(&mut self, next: OpenBlock<J>) -> Option<OpenBlock<J>> {
        let is_alike = self.group.as_ref().is_ok_and(|group| next.group.as_ref() == Ok(group));
        if !is_alike || !self.takes(next.count, next.held) {
            return Some(next);
        }
        self.jobs.append(next.jobs);
        None
    }

    /// Takes another job of the block's group, which holds `held` bytes, into the block; gives it back if the block would be too large.
    #[inline]
    pub(super) fn take(&mut self, next: J, held: u64) -> Option<J> {
        if !self.takes(next.count(), held) {
            return Some(next);
        }
        self.jobs.push(next);
        None
    }

    /// Whether there is room for jobs that count for `count` and hold `held` bytes. If so, they count from now on.
    fn takes(&mut self, count: usize, held: u64) -> bool {
        let (held, count) = (self.held.saturating_add(held), self.count + count);
        let has_room = J::JOINS && count <= self.limits.0 && held <= self.limits.1;
        if has_room {
            (self.held, self.count) = (held, count);
        }
        has_room
    }
}

/// The operations by which the scheduler handles blocks of any type of job.
pub(super) trait Client: Sync {
    /// Cuts a block: see [`Cut`](crate::planner::Cut).
    fn cut(&self, first: usize, block: &Block, rows: usize) -> Option<(Block, Block)>;
    /// Bytes that the jobs of the block own whose first row has this number.
    fn owned(&self, first: usize) -> usize;
    /// Bytes of the output of a block, computed from the facts about its group.
    fn output(&self, first: usize, facts: &GroupFacts) -> usize;
    /// Runs blocks together, and keeps their results. After an error there are no results.
    fn run(&self, place: &Place<'_>, blocks: &[(usize, Block)], memory: &mut Vec<u8>) -> Result<(), Error>;
    /// Discards the results of blocks that are to be run again.
    fn discard(&self, blocks: &[(usize, Block)]);
}

/// The blocks of a call whose results nobody has yet.
pub(super) struct Blocks<J: Job>(Mutex<Table<J>>);

struct Table<J: Job> {
    /// The blocks in their order, each with the number of its first row. Results are handed out from the front.
    slots: VecDeque<(usize, Slot<J>)>,
    /// The number of the next row.
    next: usize,
}

/// The place of a block.
struct Slot<J: Job> {
    /// The jobs, unless they run.
    jobs: Option<Members<J>>,
    /// A result for each job, once they have run.
    done: Option<Outcomes<J::Out>>,
}

impl<J: Job> Drop for Slot<J> {
    /// Discards results that were not taken.
    fn drop(&mut self) {
        self.done.take().into_iter().for_each(discard_all::<J>);
    }
}

impl<J: Job> Default for Blocks<J> {
    fn default() -> Blocks<J> {
        Blocks(Mutex::new(Table { slots: VecDeque::new(), next: 0 }))
    }
}

impl<J: Job> Table<J> {
    /// The index of the block whose first row has this number.
    fn find(&self, first: usize) -> usize {
        self.slots.partition_point(|(other, _)| *other < first)
    }

    fn slot(&mut self, first: usize) -> &mut Slot<J> {
        let at = self.find(first);
        &mut self.slots[at].1
    }

    fn add(&mut self, jobs: Members<J>, count: usize) {
        self.slots.push_back((self.next, Slot { jobs: Some(jobs), done: None }));
        self.next += count;
    }

    fn remove(&mut self, first: usize) -> Slot<J> {
        let at = self.find(first);
        self.slots.remove(at).expect("a block is handed out once").1
    }
}

/// Discards results that nobody gets.
fn discard_all<J: Job>(outcomes: Outcomes<J::Out>) {
    outcomes.results.into_iter().for_each(J::discard);
}

impl<J: Job> Blocks<J> {
    /// A single block, whose number is 0.
    pub(super) fn one(jobs: Members<J>) -> Blocks<J> {
        let mut table = Table { slots: VecDeque::new(), next: 0 };
        table.add(jobs, 0);
        Blocks(Mutex::new(table))
    }

    /// Adds the next block. Rows are numbered in the order in which they come.
    pub(super) fn add(&self, next: OpenBlock<J>) -> Block {
        let OpenBlock { jobs, group, held, count, .. } = next;
        lock(&self.0).add(jobs, count);
        Block { group, held, count }
    }

    /// Hands out the results of a block, each with the number of jobs that it counts for. A block that no device does gives its error instead.
    /// If the sink ends the call, the other results are discarded.
    pub(super) fn hand_out(
        &self,
        first: usize,
        refused: Option<Error>,
        sink: &mut Sink<'_, J::Out>,
    ) -> ControlFlow<()> {
        let mut slot = lock(&self.0).remove(first);
        let jobs = slot.jobs.take().expect("a block does not run when it is handed out");
        let mut flow = ControlFlow::Continue(());
        if let Some(why) = refused {
            jobs.as_slice().iter().try_for_each(|job| sink(job.count(), Err(why.clone())))?;
            return flow;
        }
        let Outcomes { results, mut failed } =
            slot.done.take().expect("a block has results before they are handed out");
        let mut results = results.into_iter();
        for (number, job) in jobs.as_slice().iter().enumerate() {
            let failed = failed.remove(&number);
            let outcome = match (results.next(), failed) {
                (Some(result), None) => Ok(result),
                (result, why) => {
                    result.into_iter().for_each(J::discard);
                    Err(why.expect("a result or an error for each job"))
                }
            };
            match flow {
                ControlFlow::Continue(()) => flow = sink(job.count(), outcome),
                ControlFlow::Break(()) => drop(outcome.map(J::discard)),
            }
        }
        flow
    }

    /// The jobs of a single block that was not run.
    pub(super) fn into_jobs(self) -> Vec<J> {
        match lock(&self.0).remove(0).jobs.take() {
            Some(Members::Many(jobs)) => jobs,
            Some(Members::One(job)) => vec![job],
            None => Vec::new(),
        }
    }

    /// The result of a job that is a call by itself.
    pub(super) fn only(self) -> Result<J::Out, Error> {
        let mut only = None;
        let _ = self.hand_out(0, None, &mut |_, result| {
            only = Some(result);
            ControlFlow::Continue(())
        });
        only.expect("a result for the job")
    }
}

/// The distinct groups of blocks, and for each block the index of its group; `None` for a block that no device does.
fn groups_of(numbered: &[(usize, Block)]) -> (Vec<Group>, Vec<Option<usize>>) {
    let mut groups: Vec<Group> = Vec::new();
    let number = |(_, block): &(usize, Block)| {
        let group = *block.group.as_ref().ok()?;
        Some(groups.iter().position(|other| *other == group).unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        }))
    };
    let numbers = numbered.iter().map(number).collect();
    (groups, numbers)
}

/// Gives each block the outcomes of its jobs. `all` has a result for each job of all blocks, in order.
fn share_out<J: Job>(all: Outcomes<J::Out>, blocks: Vec<(&mut Members<J>, &mut Outcomes<J::Out>)>) {
    let Outcomes { results, mut failed } = all;
    let (mut results, mut start) = (results.into_iter(), 0);
    for (jobs, outcomes) in blocks {
        let end = start + jobs.as_slice().len();
        let later = failed.split_off(&end);
        let of_block = replace(&mut failed, later);
        outcomes.failed = of_block.into_iter().map(|(job, why)| (job - start, why)).collect();
        outcomes.results = results.by_ref().take(end - start).collect();
        start = end;
    }
}

impl<J: Job> Client for Blocks<J> {
    fn cut(&self, first: usize, block: &Block, rows: usize) -> Option<(Block, Block)> {
        let mut table = lock(&self.0);
        let at = table.find(first);
        let Some(Members::One(job)) = &mut table.slots[at].1.jobs else { return None };
        let of_results = u128::from(block.held.saturating_sub(job.owned() as u64));
        let front = job.cut(rows)?;
        let part = |job: &J| {
            let of_results = (of_results * job.count() as u128).div_ceil(block.count as u128) as u64;
            Block { held: of_results.saturating_add(job.owned() as u64), count: job.count(), ..block.clone() }
        };
        let parts = (part(&front), part(job));
        let front = Slot { jobs: Some(Members::One(front)), done: None };
        table.slots.insert(at, (first, front));
        table.slots[at + 1].0 += parts.0.count;
        Some(parts)
    }

    fn owned(&self, first: usize) -> usize {
        let mut table = lock(&self.0);
        table.slot(first).jobs.iter().flat_map(Members::as_slice).map(J::owned).sum()
    }

    fn output(&self, first: usize, facts: &GroupFacts) -> usize {
        let mut table = lock(&self.0);
        table.slot(first).jobs.iter().flat_map(Members::as_slice).map(|job| job.output(facts)).sum()
    }

    fn run(&self, place: &Place<'_>, numbered: &[(usize, Block)], memory: &mut Vec<u8>) -> Result<(), Error> {
        let mut table = lock(&self.0);
        let take =
            |(number, _): &(usize, Block)| table.slot(*number).jobs.take().expect("a block waits before it is run");
        let mut blocks: Vec<Members<J>> = numbered.iter().map(take).collect();
        drop(table);
        let (groups, group_of) = groups_of(numbered);
        // A block that no device does has none: its error is handed out.
        let mut all: Vec<Outcomes<J::Out>> = numbered.iter().map(|_| Vec::new().into()).collect();
        // Each of several groups has memory of its own. After an error of one group, the memory of all is wiped.
        let mut others: Vec<Vec<u8>> = vec![Vec::new(); groups.len().saturating_sub(1)];
        let done = groups.into_iter().enumerate().try_for_each(|(nth, group)| {
            let memory = if nth == 0 { &mut *memory } else { &mut others[nth - 1] };
            let facts = place.worker.programs.facts(group)?;
            let mut members = Vec::with_capacity(blocks.len());
            let of_all = blocks.iter_mut().zip(&mut all).zip(&group_of);
            members.extend(of_all.filter_map(|(block, of)| (*of == Some(nth)).then_some(block)));
            let wanted = members.iter().map(|(jobs, _)| jobs.as_slice().len()).sum();
            let mut jobs: Vec<&mut J> = Vec::with_capacity(wanted);
            members.iter_mut().for_each(|(of_block, _)| jobs.extend(of_block.as_mut_slice()));
            let outcomes = J::run(&Run { place: *place, facts: &facts }, &mut jobs, memory)?;
            if outcomes.results.len() != wanted {
                let what = format!("it gave {} results for {wanted} jobs", outcomes.results.len());
                discard_all::<J>(outcomes);
                return Err(Error::Inconsistent { device: place.worker.device().id(), what });
            }
            share_out::<J>(outcomes, members);
            Ok(())
        });
        if done.is_err() {
            all.drain(..).for_each(discard_all::<J>);
            memory.zeroize();
            others.iter_mut().for_each(Zeroize::zeroize);
        }
        let (mut outcomes, mut table) = (all.into_iter(), lock(&self.0));
        for ((number, _), jobs) in numbered.iter().zip(blocks) {
            let slot = table.slot(*number);
            (slot.jobs, slot.done) = (Some(jobs), outcomes.next());
        }
        done
    }

    fn discard(&self, blocks: &[(usize, Block)]) {
        for (number, _) in blocks {
            let results = lock(&self.0).slot(*number).done.take();
            results.into_iter().for_each(discard_all::<J>);
        }
    }
}
