//! Jobs of any scheme, as the scheduler sees them: in blocks. Their results leave it one by one.

use crate::run::Run;
use hypergrove_engine::Error;
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheduler::{self, Place};
use hypergrove_engine::scheme::Kind;
use std::ops::ControlFlow;
use zeroize::Zeroize;

/// A job of some scheme: a signature to be made or verified, a key to be made or checked.
pub(crate) trait Job: Send + Sync + Sized {
    /// What comes of it.
    type Out: Send;
    /// What kind of program does it, or what is wrong with it.
    fn kind(&self) -> Result<Kind, Error>;
    /// Bytes that it owns.
    fn owned(&self) -> usize;
    /// Bytes of memory that its output takes.
    fn output(facts: &GroupFacts) -> usize;
    /// Runs jobs of one group: a result for each, in their order. A job that is to blame itself has an error of its own; an error of all is
    /// the device's or the call's. `memory` is kept between chunks; after an error it holds nothing of them.
    fn run(run: &Run<'_>, jobs: &[&Self], memory: &mut Vec<u8>) -> Result<Vec<Result<Self::Out, Error>>, Error>;
    /// Does away with a result that nobody gets.
    fn discard(out: Self::Out) {
        drop(out);
    }
}

/// Jobs that a block has room for before it grows: as many as most blocks have.
const ROOM: usize = 128;

/// A job alone, or a block of jobs of one kind.
pub(crate) enum Block<J> {
    One(J),
    Many(Vec<J>),
}

impl<J> Block<J> {
    fn jobs(&self) -> &[J] {
        match self {
            Block::One(job) => std::slice::from_ref(job),
            Block::Many(jobs) => jobs,
        }
    }
}

impl<J: Job> scheduler::Job for Block<J> {
    type Out = Vec<Result<J::Out, Error>>;

    fn ask(&self) -> Result<Kind, Error> {
        // A block's jobs are alike.
        self.jobs()[0].kind()
    }

    fn count(&self) -> usize {
        self.jobs().len()
    }

    /// Takes jobs in after those that are there.
    #[inline]
    fn join(&mut self, next: Self) -> Option<Self> {
        match (&mut *self, next) {
            (Block::Many(jobs), Block::One(job)) => jobs.push(job),
            (Block::Many(jobs), Block::Many(more)) => jobs.extend(more),
            (Block::One(_), next) => {
                let first = std::mem::replace(self, Block::Many(Vec::with_capacity(ROOM)));
                self.join(first);
                self.join(next);
            }
        }
        None
    }

    fn owned(&self) -> usize {
        self.jobs().iter().map(J::owned).sum()
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.count() * J::output(facts)
    }

    fn run(
        place: &Place<'_>,
        blocks: &mut [scheduler::Block<Self>],
        memory: &mut Vec<u8>,
    ) -> Result<Vec<Result<Self::Out, Error>>, Error> {
        let mut groups: Vec<(Group, Vec<usize>)> = Vec::new();
        let mut results: Vec<Result<Self::Out, Error>> = Vec::with_capacity(blocks.len());
        for (number, block) in blocks.iter().enumerate() {
            results.push(block.group.clone().map(|_| Vec::new()));
            let Ok(group) = block.group else { continue };
            match groups.iter_mut().find(|(other, _)| *other == group) {
                Some((_, members)) => members.push(number),
                None => groups.push((group, vec![number])),
            }
        }
        // Of several groups each has memory of its own: after an error of one, nothing is left of the others either.
        let mut others: Vec<Vec<u8>> = vec![Vec::new(); groups.len().saturating_sub(1)];
        let run_all = || {
            let memories = std::iter::once(&mut *memory).chain(&mut others);
            for ((group, members), memory) in groups.into_iter().zip(memories) {
                let facts = place.worker.programs.facts(group)?;
                let jobs: Vec<&J> = members.iter().flat_map(|number| blocks[*number].job.jobs()).collect();
                let of_jobs = J::run(&Run { place: *place, facts: &facts }, &jobs, memory)?;
                assert_eq!(of_jobs.len(), jobs.len(), "a result for each job");
                if let [only] = members[..] {
                    results[only] = Ok(of_jobs);
                    continue;
                }
                let mut of_jobs = of_jobs.into_iter();
                for number in members {
                    results[number] = Ok(of_jobs.by_ref().take(blocks[number].count).collect());
                }
            }
            Ok(())
        };
        if let Err(why) = run_all() {
            results.into_iter().flatten().for_each(Self::discard);
            memory.zeroize();
            others.iter_mut().for_each(Zeroize::zeroize);
            return Err(why);
        }
        Ok(results)
    }

    fn discard(results: Self::Out) {
        results.into_iter().flatten().for_each(J::discard);
    }
}

/// Results of a block's jobs.
type Results<T> = Vec<Result<T, Error>>;

/// Hands blocks' results out one by one, each with its job's index. If that ends the call, nobody gets the others.
pub(crate) fn one_by_one<T>(
    discard: fn(T),
    mut sink: impl FnMut(usize, Result<T, Error>) -> ControlFlow<()>,
) -> impl FnMut(usize, Result<Results<T>, Error>) -> ControlFlow<()> {
    let mut indices = 0..;
    let mut hand_out = move |result| sink(indices.next().expect("they do not end"), result);
    move |count, results| match results {
        Ok(results) => {
            let mut results = results.into_iter();
            let flow = results.by_ref().try_for_each(&mut hand_out);
            results.flatten().for_each(discard);
            flow
        }
        Err(why) => (0..count).try_for_each(|_| hand_out(Err(why.clone()))),
    }
}
