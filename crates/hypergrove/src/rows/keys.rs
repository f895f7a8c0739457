//! Rows of keys, for any scheme: a column of private keys and one of public keys.

use super::block::{Cut, run_calls};
use super::{Progress, RowsCall};
use crate::Error;
use crate::jobs::check_length;
use crate::run::Run;
use hypergrove_engine::programs::GroupFacts;
use hypergrove_engine::scheduler::{Block, Job, Options, Place, Scheduler};
use hypergrove_engine::scheme::Kind;
use std::mem;
use std::ops::ControlFlow;
use zeroize::Zeroize;

/// The keys of a scheme and set, as columns have them.
pub(crate) trait KeySet: Copy + Send + Sync {
    fn kind(&self) -> Kind;
    /// Bytes of a seed, of a private key and of a public key.
    fn sizes(&self) -> [usize; 3];
    /// Bytes of memory for a key besides the caller's, also for what is kept of the key meanwhile.
    fn held(facts: &GroupFacts, options: &Options) -> usize;
    /// Makes the keys of these columns. `memory` is kept between chunks.
    fn make(&self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], memory: &mut Vec<u8>) -> Result<(), Error>;
}

/// Successive keys: where their seeds are, and where they go.
pub(crate) struct KeyColumns<'a> {
    /// Without seeds the keys come from the operating system's randomness.
    pub(crate) seeds: Option<&'a [u8]>,
    pub(crate) private: &'a mut [u8],
    pub(crate) public: Option<&'a mut [u8]>,
}

/// The keys that columns of so many bytes have room for, and the bytes of all columns; or which column does not fit.
pub(super) fn check_keys(set: impl KeySet, bytes: [Option<usize>; 3]) -> Result<(usize, usize), Error> {
    let [seed, private, public] = set.sizes();
    let [seeds, all, publics] = bytes;
    let rows = all.unwrap_or(0) / private;
    check_length("the column of private keys", rows * private, all.unwrap_or(0))?;
    publics.map_or(Ok(()), |bytes| check_length("the column of public keys", rows * public, bytes))?;
    seeds.map_or(Ok(()), |bytes| check_length("the seeds", rows * seed, bytes))?;
    Ok((rows, bytes.into_iter().flatten().sum()))
}

impl KeyColumns<'_> {
    /// The keys that there is room for, or which column does not fit.
    fn rows(&self, set: impl KeySet) -> Result<usize, Error> {
        let public = self.public.as_ref().map(|public| public.len());
        Ok(check_keys(set, [self.seeds.map(<[u8]>::len), Some(self.private.len()), public])?.0)
    }

    /// The same columns, lent.
    pub(crate) fn lend(&mut self) -> KeyColumns<'_> {
        KeyColumns { seeds: self.seeds, private: self.private, public: self.public.as_deref_mut() }
    }
}

/// A call that makes keys. The memory for them is wiped on drop unless all of them are there.
pub(crate) struct KeyCall<'a, K> {
    set: K,
    columns: KeyColumns<'a>,
    are_whole: bool,
}

impl<'a, K: KeySet> KeyCall<'a, K> {
    pub(crate) fn new(set: K, columns: KeyColumns<'a>) -> Result<KeyCall<'a, K>, Error> {
        let call = KeyCall { set, columns, are_whole: false };
        call.columns.rows(set).map(|_| call)
    }
}

impl<K> Drop for KeyCall<'_, K> {
    fn drop(&mut self) {
        if !self.are_whole {
            self.columns.private.zeroize();
            self.columns.public.as_deref_mut().unwrap_or_default().zeroize();
        }
    }
}

impl<K: KeySet> RowsCall for KeyCall<'_, K> {
    /// An error ends all calls.
    fn run(scheduler: &Scheduler, calls: &mut [Self], progress: Progress<'_>) -> Result<(), Error> {
        let Some(KeyCall { set, .. }) = calls.first() else { return Ok(()) };
        let (set, options) = (*set, &scheduler.options);
        let mut left: Vec<usize> = calls.iter().map(|call| call.columns.rows(set)).collect::<Result<_, _>>()?;
        let block = scheduler.block_size(set.kind(), left.iter().sum(), |facts| K::held(facts, options))?;
        let lent = calls.iter_mut().zip(&left).map(|(KeyCall { columns, are_whole, .. }, left)| {
            *are_whole = *left == 0;
            (KeyBlock { set, columns: columns.lend(), options: *options }, are_whole)
        });
        let (blocks, mut are_whole): (Vec<_>, Vec<_>) = lent.unzip();
        let (mut made, mut failed) = (0, Ok(()));
        let done = run_calls(scheduler, blocks, block, &mut |call, count, done| {
            if let Err(why) = done {
                failed = Err(why);
                return ControlFlow::Break(());
            }
            left[call] -= count;
            made += count;
            let flow = progress(made);
            *are_whole[call] = left[call] == 0 && flow.is_continue();
            flow
        });
        done.and(failed)
    }

    fn result(self, all: &Result<(), Error>) -> Result<(), Error> {
        if self.are_whole { Ok(()) } else { all.clone() }
    }
}

/// Successive keys of a call, as the scheduler sees them.
struct KeyBlock<'a, K> {
    set: K,
    columns: KeyColumns<'a>,
    options: Options,
}

impl<K: KeySet> Cut for KeyBlock<'_, K> {
    fn cut(&mut self, jobs: usize) -> Self {
        let ([seed, private, public], columns) = (self.set.sizes(), &mut self.columns);
        let (seeds, other_seeds) = columns.seeds.map(|seeds| seeds.split_at(jobs * seed)).unzip();
        let (private, other_private) = mem::take(&mut columns.private).split_at_mut(jobs * private);
        let (public, other_public) = columns.public.take().map(|all| all.split_at_mut(jobs * public)).unzip();
        *columns = KeyColumns { seeds: other_seeds, private: other_private, public: other_public };
        KeyBlock { columns: KeyColumns { seeds, private, public }, ..*self }
    }
}

impl<K: KeySet> Job for KeyBlock<'_, K> {
    type Out = ();

    fn ask(&self) -> Result<Kind, Error> {
        Ok(self.set.kind())
    }

    fn count(&self) -> usize {
        self.columns.private.len() / self.set.sizes()[1]
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        self.count() * K::held(facts, &self.options)
    }

    fn run(
        place: &Place<'_>,
        blocks: &mut [Block<Self>],
        memory: &mut Vec<u8>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        // All blocks are of one kind, and so of one group.
        let (set, group) = match blocks.first() {
            Some(Block { job, group: Ok(group), .. }) => (job.set, *group),
            _ => return Ok(blocks.iter().map(|block| block.group.clone().map(drop)).collect()),
        };
        let facts = place.worker.programs.facts(group)?;
        let mut keys: Vec<KeyColumns<'_>> = blocks.iter_mut().map(|block| block.job.columns.lend()).collect();
        set.make(&Run { place: *place, facts: &facts }, &mut keys, memory)?;
        Ok(blocks.iter().map(|_| Ok(())).collect())
    }

    fn discard((): ()) {}
}
