//! Times of stages, if a policy wants them.

use hypergrove_engine::StageTime;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The clock is stopped, unless stages run one after the other to be timed.
#[derive(Default)]
pub(crate) struct Clock(Option<Mutex<Laps>>);

struct Laps {
    last: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Clock {
    pub(crate) fn new(runs: bool) -> Clock {
        Clock(runs.then(|| Mutex::new(Laps { last: Instant::now(), times: Vec::new() })))
    }

    pub(crate) fn runs(&self) -> bool {
        self.0.is_some()
    }

    /// A stage begins.
    pub(crate) fn start(&self) {
        self.with(|laps| laps.last = Instant::now());
    }

    /// Ends the current stage, under this name, and begins another. The times of equal names are added.
    pub(crate) fn lap(&self, name: &'static str) {
        self.with(|laps| {
            let took = laps.last.elapsed();
            match laps.times.iter_mut().find(|(other, _)| *other == name) {
                Some((_, time)) => *time += took,
                None => laps.times.push((name, took)),
            }
            laps.last = Instant::now();
        });
    }

    fn with(&self, change: impl FnOnce(&mut Laps)) {
        if let Some(laps) = &self.0 {
            change(&mut laps.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The times of all stages, of which each had so many threads.
    pub(crate) fn stages(self, threads: usize) -> Vec<StageTime> {
        let laps = self.0.map(|laps| laps.into_inner().unwrap_or_else(PoisonError::into_inner));
        let times = laps.into_iter().flat_map(|laps| laps.times);
        times.map(|(name, time)| StageTime { name, blocks: 1, threads: threads as u32, time }).collect()
    }
}
