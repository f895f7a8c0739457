//! Jobs that join in the scheduler, and their results, which leave it one by one.

use hypergrove_engine::Error;
use std::ops::ControlFlow;

/// Jobs that a block has room for before it grows: as many as most blocks have.
const ROOM: usize = 128;

/// A job alone, or a block of jobs of one kind.
pub(crate) enum Block<J> {
    One(J),
    Many(Vec<J>),
}

impl<J> Block<J> {
    pub(crate) fn jobs(&self) -> &[J] {
        match self {
            Block::One(job) => std::slice::from_ref(job),
            Block::Many(jobs) => jobs,
        }
    }

    /// Takes jobs in after those that are there.
    #[inline]
    pub(crate) fn join(&mut self, next: Block<J>) {
        match (&mut *self, next) {
            (Block::Many(jobs), Block::One(job)) => jobs.push(job),
            (Block::Many(jobs), Block::Many(more)) => jobs.extend(more),
            (Block::One(_), next) => {
                let first = std::mem::replace(self, Block::Many(Vec::with_capacity(ROOM)));
                self.join(first);
                self.join(next);
            }
        }
    }
}

/// Hands blocks' results out one by one, each with its job's index. If that ends the call, nobody gets the others.
pub(crate) fn one_by_one<T, R: IntoIterator<Item = Result<T, Error>>>(
    discard: fn(T),
    mut sink: impl FnMut(usize, Result<T, Error>) -> ControlFlow<()>,
) -> impl FnMut(usize, Result<R, Error>) -> ControlFlow<()> {
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
