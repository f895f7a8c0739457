//! The jobs of a call: the scheduler knows blocks of them by their numbers, and only this module knows their type.

use super::permits::lock;
use super::worker::QueuedJob;
use super::{Job, Place};
use crate::Error;
use crate::programs::{Group, GroupFacts};
use std::collections::VecDeque;
use std::sync::Mutex;

/// A block of jobs, as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct QueuedBlock {
    /// Which program does the jobs, or why none can.
    pub group: Result<Group, Error>,
    /// Bytes that the jobs and their outputs take while they are worked on.
    pub held: u64,
    /// Jobs of the block.
    pub count: usize,
}

/// Blocks with their numbers.
pub(super) type Numbered = Vec<(usize, QueuedBlock)>;

/// Jobs of all these blocks.
pub(super) fn counted(blocks: &[(usize, QueuedBlock)]) -> usize {
    blocks.iter().map(|(_, block)| block.count).sum()
}

/// A block that is being run.
pub struct Block<J> {
    /// The jobs.
    pub job: J,
    /// Which program does them, or why none can.
    pub group: Result<Group, Error>,
    /// How many they are.
    pub count: usize,
}

/// What the scheduler does with blocks of any jobs.
pub(super) trait Client: Sync {
    /// Bytes that the jobs of a block own.
    fn owned(&self, number: usize) -> usize;
    /// Bytes of the output of a block, by what is known of its group.
    fn output(&self, number: usize, facts: &GroupFacts) -> usize;
    /// Runs blocks together, and keeps their results. After an error there are none.
    fn run(&self, place: &Place<'_>, blocks: &[(usize, QueuedBlock)], memory: &mut Vec<u8>) -> Result<(), Error>;
    /// Does away with results of blocks, which are to be run again.
    fn discard(&self, blocks: &[(usize, QueuedBlock)]);
}

/// The blocks of a call that nobody has the results of yet.
pub(super) struct Blocks<J: Job>(Mutex<Table<J>>);

struct Table<J: Job> {
    /// The number of the first.
    first: usize,
    states: VecDeque<State<J>>,
}

/// What becomes of a block.
enum State<J: Job> {
    Waits(J),
    Runs,
    Done(J, Result<J::Out, Error>),
    /// Its result was taken.
    Gone,
}

impl<J: Job> Default for Blocks<J> {
    fn default() -> Blocks<J> {
        Blocks(Mutex::new(Table { first: 0, states: VecDeque::new() }))
    }
}

impl<J: Job> Table<J> {
    fn replace(&mut self, number: usize, state: State<J>) -> State<J> {
        std::mem::replace(&mut self.states[number - self.first], state)
    }
}

impl<J: Job> Blocks<J> {
    /// One block alone, whose number is 0.
    pub(super) fn one(job: J) -> Blocks<J> {
        Blocks(Mutex::new(Table { first: 0, states: VecDeque::from([State::Waits(job)]) }))
    }

    /// Takes the next block in. Numbers are those of the order in which blocks come.
    pub(super) fn add(&self, next: QueuedJob<J>) -> QueuedBlock {
        let QueuedJob { job, group, held, count, .. } = next;
        lock(&self.0).states.push_back(State::Waits(job));
        QueuedBlock { group, held, count }
    }

    /// Takes the result of a block, or gives `refused` where it was not run.
    pub(super) fn take(&self, number: usize, refused: Option<Error>) -> Result<J::Out, Error> {
        let mut table = lock(&self.0);
        let state = table.replace(number, State::Gone);
        while matches!(table.states.front(), Some(State::Gone)) {
            table.states.pop_front();
            table.first += 1;
        }
        drop(table);
        match (state, refused) {
            (_, Some(why)) => Err(why),
            (State::Done(_, result), None) => result,
            (_, None) => unreachable!("a block has a result before it is handed out"),
        }
    }
}

impl<J: Job> Client for Blocks<J> {
    fn owned(&self, number: usize) -> usize {
        let table = lock(&self.0);
        match &table.states[number - table.first] {
            State::Waits(job) => job.owned(),
            _ => 0,
        }
    }

    fn output(&self, number: usize, facts: &GroupFacts) -> usize {
        let table = lock(&self.0);
        match &table.states[number - table.first] {
            State::Waits(job) => job.output(facts),
            _ => 0,
        }
    }

    fn run(&self, place: &Place<'_>, numbered: &[(usize, QueuedBlock)], memory: &mut Vec<u8>) -> Result<(), Error> {
        let mut table = lock(&self.0);
        let take = |(number, block): &(usize, QueuedBlock)| match table.replace(*number, State::Runs) {
            State::Waits(job) => Block { job, group: block.group.clone(), count: block.count },
            _ => unreachable!("a block waits before it is run"),
        };
        let mut blocks: Vec<Block<J>> = numbered.iter().map(take).collect();
        drop(table);
        let results = J::run(place, &mut blocks, memory).and_then(|results| match results.len() == blocks.len() {
            true => Ok(results),
            false => {
                let what = format!("it gave {} results for {} jobs", results.len(), blocks.len());
                results.into_iter().flatten().for_each(J::discard);
                Err(Error::Inconsistent { device: place.worker.device().id(), what })
            }
        });
        let mut table = lock(&self.0);
        match results {
            Ok(results) => {
                for (((number, _), block), result) in numbered.iter().zip(blocks).zip(results) {
                    table.replace(*number, State::Done(block.job, result));
                }
                Ok(())
            }
            Err(why) => {
                for ((number, _), block) in numbered.iter().zip(blocks) {
                    table.replace(*number, State::Waits(block.job));
                }
                Err(why)
            }
        }
    }

    fn discard(&self, blocks: &[(usize, QueuedBlock)]) {
        for (number, _) in blocks {
            let mut table = lock(&self.0);
            let state = table.replace(*number, State::Runs);
            let (waits, result) = match state {
                State::Done(job, result) => (State::Waits(job), Some(result)),
                other => (other, None),
            };
            table.replace(*number, waits);
            drop(table);
            if let Some(Ok(result)) = result {
                J::discard(result);
            }
        }
    }
}

impl<J: Job> Drop for Blocks<J> {
    /// Results that were not taken are nobody's.
    fn drop(&mut self) {
        let table = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for state in table.states.drain(..) {
            if let State::Done(_, Ok(result)) = state {
                J::discard(result);
            }
        }
    }
}
