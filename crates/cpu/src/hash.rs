//! SHA-256 of many messages, spread over threads.

use hypergrove_engine::{Axis, Error, Hasher, Messages, Timing};
use hypergrove_lanes::Sha256;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// Messages of a task that fill a thread's lanes several times over, so that sorting and the last lanes cost little.
const TASK: usize = 256;

pub(crate) struct CpuHasher {
    pub(crate) hash: Box<dyn Sha256>,
    pub(crate) threads: usize,
}

impl CpuHasher {
    /// Messages of a task. The lanes of all threads are full if there are enough messages for that.
    fn task(&self, messages: usize) -> usize {
        let share = messages.div_ceil(self.threads);
        TASK.min(share.div_ceil(4)).max(self.hash.lanes()).min(share).max(1)
    }
}

impl Hasher for CpuHasher {
    fn space(&self) -> Vec<Axis> {
        vec![Axis::threads()]
    }

    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        messages.check(digests)?;
        let start = Instant::now();
        let task = if self.threads > 1 { self.task(messages.len()) } else { TASK };
        let one = |(number, digests): (usize, &mut [[u8; 32]])| {
            let rows: Vec<&[u8]> = (0..digests.len()).map(|i| messages.get(number * task + i)).collect();
            self.hash.hash(&rows, digests);
        };
        if self.threads > 1 {
            digests.par_chunks_mut(task).enumerate().for_each(one);
        } else {
            digests.chunks_mut(task).enumerate().for_each(one);
        }
        Ok(Timing { execute: start.elapsed(), ..Timing::default() })
    }
    fn time_limit(&mut self, _: Option<Duration>) {}
}
