//! The jobs of a line that wait, apart by the cores of the threads that brought them.
//!
//! Where the host is the only device, a dispatcher first takes the jobs that threads on its own core brought. These threads sleep there, so they are
//! woken there. To wake a thread on another core interrupts that core, which costs more than the thread's own work. (32 callers that verify
//! SHA2-128s on two cores: 39,500/s, in one queue 33,500/s; docs/lab/2026-11-28-tickets-by-core.md.)

use super::Queued;
use super::batch::TakenJobs;
use super::entry::Entry;
use super::line::{Entries, PlaceInLine, TakenBatch, Taker};
use crate::scheduler::Checks;
use std::any::TypeId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The entries of a line.
pub(super) struct Waiting<J: Queued> {
    cores: Vec<OfCore<J>>,
    len: usize,
    /// The jobs that all entries count for, without those whose job was withdrawn.
    jobs: usize,
    /// The number of the next entry that joins the line.
    next: u64,
}

/// The entries that threads of one core submitted.
struct OfCore<J: Queued> {
    entries: VecDeque<InLine<J>>,
    /// The number of the first entry. If there is none, greater than all numbers.
    first: u64,
}

struct InLine<J: Queued> {
    entry: Arc<Entry<J>>,
    /// The jobs that it counts for.
    jobs: usize,
    number: u64,
}

impl<J: Queued> OfCore<J> {
    const EMPTY: u64 = u64::MAX;

    fn note_first(&mut self) {
        self.first = self.entries.front().map_or(OfCore::<J>::EMPTY, |first| first.number);
    }
}

impl<J: Queued> Default for Waiting<J> {
    fn default() -> Waiting<J> {
        Waiting { cores: Vec::new(), len: 0, jobs: 0, next: 0 }
    }
}

impl<J: Queued> Waiting<J> {
    pub(super) fn push(&mut self, entry: Arc<Entry<J>>) {
        let (core, jobs, number) = (entry.place.core, entry.size.jobs, self.next);
        entry.place.set(number);
        (self.len, self.jobs, self.next) = (self.len + 1, self.jobs + jobs, number + 1);
        if self.cores.len() <= core {
            self.cores.resize_with(core + 1, || OfCore { entries: VecDeque::new(), first: OfCore::<J>::EMPTY });
        }
        let of = &mut self.cores[core];
        of.entries.push_back(InLine { entry, jobs, number });
        of.note_first();
    }

    /// The entries to go on with: those of this core, unless there are none, or the oldest entry came more than
    /// `overtaken` entries before them.
    fn next_of(&mut self, core: usize, overtaken: u64) -> Option<&mut OfCore<J>> {
        let first = |at: usize| self.cores.get(at).map_or(OfCore::<J>::EMPTY, |of| of.first);
        let oldest = (0..self.cores.len()).min_by_key(|at| first(*at))?;
        let is_fair = first(core) != OfCore::<J>::EMPTY && first(core) - first(oldest) <= overtaken;
        let of = &mut self.cores[if is_fair { core } else { oldest }];
        (!of.entries.is_empty()).then_some(of)
    }
}

impl<J: Queued> Entries for Waiting<J> {
    fn take(&mut self, most: usize, taker: Taker, withdrawn: &mut usize) -> Option<Box<dyn TakenBatch>> {
        let line_id = (None, Checks::default(), TypeId::of::<J>());
        let mut batch = TakenJobs { line_id, entries: Vec::new(), size: 0, jobs: Vec::new(), cancelled: Vec::new() };
        let (mut taken, mut is_full) = (0, false);
        while !is_full && let Some(of) = self.next_of(taker.core, 2 * taker.in_flight as u64) {
            while batch.size < most
                && let Some(InLine { entry, jobs, .. }) = of.entries.front()
            {
                let is_withdrawn = *withdrawn > 0 && entry.place.is_withdrawn();
                // A job that counts for many waits for the next batch, unless it is alone.
                if !is_withdrawn && batch.size > 0 && batch.size.saturating_add(*jobs) > most {
                    is_full = true;
                    break;
                }
                let Some(InLine { entry, jobs, .. }) = of.entries.pop_front() else { break };
                taken += 1;
                if is_withdrawn {
                    *withdrawn -= 1;
                } else {
                    batch.size += jobs;
                    batch.entries.push(entry);
                }
            }
            is_full |= batch.size >= most;
            of.note_first();
        }
        self.len -= taken;
        self.jobs -= batch.size;
        batch.line_id = batch.entries.last()?.line_id();
        Some(Box::new(batch))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn jobs(&self) -> usize {
        self.jobs
    }

    fn by_all_threads(&self) -> bool {
        J::BY_ALL_THREADS
    }

    fn withdraw(&mut self, jobs: usize, place: &PlaceInLine) -> bool {
        let is_here = self.cores.get(place.core).is_some_and(|of| place.get() >= of.first);
        if is_here {
            place.set(PlaceInLine::WITHDRAWN);
            self.jobs -= jobs;
        }
        is_here
    }

    fn since(&self) -> Option<Instant> {
        let oldest = self.cores.iter().min_by_key(|of| of.first)?;
        oldest.entries.front().map(|first| first.entry.since)
    }

    fn compact(&mut self) {
        for of in &mut self.cores {
            of.entries.retain(|waits| !waits.entry.place.is_withdrawn());
            of.note_first();
        }
        self.len = self.cores.iter().map(|of| of.entries.len()).sum();
    }
}
