//! The jobs of a line that wait, apart by the cores of the threads that brought them.
//!
//! Where the host is the only device, a dispatcher first takes the jobs that threads on its own core brought. These threads sleep there, so they are
//! woken there. To wake a thread on another core interrupts that core, which costs more than the thread's own work. (32 callers that verify
//! SHA2-128s on two cores: 39,500/s, in one queue 33,500/s; docs/lab/2026-11-28-tickets-by-core.md.)

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Withdrawn jobs leave their entries in the line until these are more than this number, and more than half of the line.
const FEW: usize = 64;

/// An entry of the queue, whatever the type of its job.
pub(super) trait AnyEntry: Send + Sync {
    fn place(&self) -> &PlaceInLine;
    /// Ends the job because its deadline passed.
    fn expire(&self);
    /// Ends the job because it is cancelled.
    fn cancel(&self);
    /// The entry, for those who know the type of its job.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The place of an entry in its line. It changes under the queue's lock alone. So a batch is taken out of a line without a look at each of its entries,
/// which are in the caches of the threads that submitted them.
pub(super) struct PlaceInLine {
    /// The core of the thread that submitted it.
    pub(super) core: usize,
    number: AtomicU64,
}

impl PlaceInLine {
    /// The number of an entry whose job was withdrawn while it was in the line.
    const WITHDRAWN: u64 = u64::MAX;

    pub(super) fn new(core: usize) -> PlaceInLine {
        PlaceInLine { core, number: AtomicU64::new(0) }
    }

    fn is_withdrawn(&self) -> bool {
        self.number.load(Relaxed) == PlaceInLine::WITHDRAWN
    }
}

/// The core on which this thread runs, as one of `number`. It may run on another one right afterwards. Only Linux tells; elsewhere all threads have
/// core 0, and jobs go in the order in which they came. (`nix` asks the C library. `rustix` reads the vDSO by itself, and crashes under Valgrind.)
pub(super) fn core_among(number: usize) -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    return nix::sched::sched_getcpu().unwrap_or(0) % number.max(1);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = number;
        0
    }
}

/// The dispatcher that takes a batch.
#[derive(Clone, Copy)]
pub(super) struct Taker {
    /// Its core.
    pub(super) core: usize,
    /// Jobs of the line that wait or run.
    pub(super) in_flight: usize,
}

/// The entries of a line.
#[derive(Default)]
pub(super) struct Waiting {
    cores: Vec<OfCore>,
    /// Entries, and those of them whose job was withdrawn.
    len: usize,
    withdrawn: usize,
    /// The jobs that all entries count for, without those whose job was withdrawn.
    jobs: usize,
    /// The number of the next entry that joins the line.
    next: u64,
}

/// The entries that threads of one core submitted.
struct OfCore {
    entries: VecDeque<InLine>,
    /// The number of the first entry. If there is none, greater than all numbers.
    first: u64,
}

struct InLine {
    entry: Arc<dyn AnyEntry>,
    /// The jobs that it counts for.
    jobs: usize,
    since: Instant,
    number: u64,
}

impl OfCore {
    const EMPTY: u64 = u64::MAX;

    fn note_first(&mut self) {
        self.first = self.entries.front().map_or(OfCore::EMPTY, |first| first.number);
    }
}

impl Waiting {
    /// Adds an entry that counts for so many jobs, and waits since this time.
    pub(super) fn push(&mut self, entry: Arc<dyn AnyEntry>, jobs: usize, since: Instant) {
        let (place, number) = (entry.place(), self.next);
        let core = place.core;
        place.number.store(number, Relaxed);
        (self.len, self.jobs, self.next) = (self.len + 1, self.jobs + jobs, number + 1);
        if self.cores.len() <= core {
            self.cores.resize_with(core + 1, || OfCore { entries: VecDeque::new(), first: OfCore::EMPTY });
        }
        let of = &mut self.cores[core];
        of.entries.push_back(InLine { entry, jobs, since, number });
        of.note_first();
    }

    /// The entries to go on with: those of this core, unless there are none, or the oldest entry came more than
    /// `overtaken` entries before them.
    fn next_of(&mut self, core: usize, overtaken: u64) -> Option<&mut OfCore> {
        let first = |at: usize| self.cores.get(at).map_or(OfCore::EMPTY, |of| of.first);
        let oldest = (0..self.cores.len()).min_by_key(|at| first(*at))?;
        let is_fair = first(core) != OfCore::EMPTY && first(core) - first(oldest) <= overtaken;
        let of = &mut self.cores[if is_fair { core } else { oldest }];
        (!of.entries.is_empty()).then_some(of)
    }

    /// Takes the entries of a batch of at most `most` jobs out of the line, or one that counts for more, and gives the number of jobs too: first those
    /// of the taker's core, unless the oldest entry came more than twice as many entries before them as are in flight.
    pub(super) fn take(&mut self, most: usize, taker: Taker) -> (Vec<Arc<dyn AnyEntry>>, usize) {
        let (mut entries, mut size, mut taken, mut withdrawn) = (Vec::new(), 0usize, 0, 0);
        let (all_withdrawn, mut is_full) = (self.withdrawn, false);
        while !is_full && let Some(of) = self.next_of(taker.core, 2 * taker.in_flight as u64) {
            while size < most
                && let Some(InLine { entry, jobs, .. }) = of.entries.front()
            {
                let is_withdrawn = withdrawn < all_withdrawn && entry.place().is_withdrawn();
                // A job that counts for many waits for the next batch, unless it is alone.
                if !is_withdrawn && size > 0 && size.saturating_add(*jobs) > most {
                    is_full = true;
                    break;
                }
                let Some(InLine { entry, jobs, .. }) = of.entries.pop_front() else { break };
                taken += 1;
                if is_withdrawn {
                    withdrawn += 1;
                } else {
                    size += jobs;
                    entries.push(entry);
                }
            }
            is_full |= size >= most;
            of.note_first();
        }
        self.len -= taken;
        self.withdrawn -= withdrawn;
        self.jobs -= size;
        (entries, size)
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Jobs that the entries count for.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Counts out a job that was withdrawn and counts for so many, if its entry is in the line. Gives whether it is.
    pub(super) fn withdraw(&mut self, jobs: usize, place: &PlaceInLine) -> bool {
        let is_here = self.cores.get(place.core).is_some_and(|of| place.number.load(Relaxed) >= of.first);
        if is_here {
            place.number.store(PlaceInLine::WITHDRAWN, Relaxed);
            (self.jobs, self.withdrawn) = (self.jobs - jobs, self.withdrawn + 1);
        }
        is_here
    }

    /// When the first job was submitted.
    pub(super) fn since(&self) -> Option<Instant> {
        let oldest = self.cores.iter().min_by_key(|of| of.first)?;
        oldest.entries.front().map(|first| first.since)
    }

    /// Removes entries whose job was withdrawn, once they are many.
    pub(super) fn tidy(&mut self) {
        if self.jobs == 0 || (self.withdrawn > FEW && self.withdrawn > self.len / 2) {
            self.compact();
        }
    }

    /// Removes entries whose job was withdrawn.
    pub(super) fn compact(&mut self) {
        for of in &mut self.cores {
            of.entries.retain(|waits| !waits.entry.place().is_withdrawn());
            of.note_first();
        }
        self.len = self.cores.iter().map(|of| of.entries.len()).sum();
        self.withdrawn = 0;
    }
}
