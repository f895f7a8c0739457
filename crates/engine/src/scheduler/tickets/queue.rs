//! The queue of an engine: it takes jobs in, if there is room, and gives tickets for them.

use super::batch::begin;
use super::deadlines::{Clock, Deadlines};
use super::dispatch::Alone;
use super::entry::Entry;
use super::line::Line;
use super::state::{Shared, State};
use super::waiting::{PlaceInLine, Waiting, core_among};
use super::{Queued, Room, Size, Ticket, cancelled};
use crate::scheduler::cell::{Cell, Wake};
use crate::scheduler::permits::lock;
use crate::scheduler::scale::BatchLimits;
use crate::scheduler::stats::{TicketCounters, TicketStats};
use crate::scheduler::{CancelToken, Scheduler, WorkOptions};
use crate::{Error, Process};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::current;
use std::time::{Duration, Instant};

/// The most jobs of a line's first batch: how many pay is known afterwards.
const FIRST_BATCH: usize = 256;

/// A job that takes no more than one part in so many of the queue's capacity is small.
const SMALL: u64 = 1024;

/// How much of the queue was reserved for a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reserved {
    /// A place.
    Place,
    /// A place, in a queue for which the system started no thread: the submitter does the job.
    PlaceWithoutDispatcher,
    /// Nothing: there is so much room, and the job is so small, that a place is taken when the job is added. Hundreds of threads that add such jobs at
    /// the same time still find room.
    Nothing,
}

impl Shared {
    /// Reserves a place in the queue for a job, in this process.
    fn reserve(self: &Arc<Self>, process: Process, size: Size) -> Result<Reserved, Error> {
        let (jobs, bytes) = self.capacity;
        let is_small = size.jobs <= jobs / SMALL as usize && size.bytes <= bytes / SMALL;
        if is_small && self.has_much_room.load(Relaxed) {
            self.scheduler.same_process_as(process)?;
            self.is_process(process)?;
            return Ok(Reserved::Nothing);
        }
        let mut state = self.open(process)?;
        // If there is room, no job is too large: a large one would wait for ever while smaller ones come.
        if !self.has_room(&state) {
            return Err(Error::QueueFull { jobs, bytes });
        }
        if state.dispatchers == 0 {
            self.start(&mut state);
        }
        self.count_in(&mut state, size);
        Ok(if state.dispatchers == 0 { Reserved::PlaceWithoutDispatcher } else { Reserved::Place })
    }

    /// Adds a job, for which there may be a place already. If not, and the queue was closed meanwhile, this is an error.
    fn add<J: Queued>(self: &Arc<Self>, entry: Arc<Entry<J>>, process: Process, has_place: bool) -> Result<(), Error> {
        let mut state = if has_place { lock(&self.state) } else { self.open(process)? };
        if !has_place {
            self.count_in(&mut state, entry.size);
        }
        let known = state.lines.iter().position(|line| line.id == entry.line_id());
        let at = known.unwrap_or_else(|| {
            let (most, of_thread, slots) = match self.scheduler.is_host_alone() {
                true => (usize::MAX, Some(1), self.slots()),
                false => (FIRST_BATCH, None, usize::MAX),
            };
            let limits = BatchLimits { most, of_thread, lanes: 1, slots, devices: 1 };
            let (id, entries, by_all_threads) = (entry.line_id(), Waiting::default(), J::BY_ALL_THREADS);
            state.lines.push(Line { id, limits, running: 0, taken: 0, entries, by_all_threads, begin: begin::<J> });
            state.lines.len() - 1
        });
        state.queued += entry.size.jobs;
        let (jobs, since) = (entry.size.jobs, entry.since);
        state.lines[at].entries.push(entry, jobs, since);
        let wakes = self.rouse(&mut state);
        drop(state);
        self.wake(wakes);
        Ok(())
    }
}

/// The queue of an engine.
pub struct Queue(pub(super) Arc<Shared>);

impl Queue {
    /// A queue with room for so many jobs, which own so many bytes. A job that could begin waits for others, but no longer than
    /// `max_delay`. Threads start with the first job.
    pub fn new(scheduler: Arc<Scheduler>, jobs: usize, bytes: u64, max_delay: Duration) -> Queue {
        Queue::with_clock(scheduler, (jobs, bytes), max_delay, Box::new(Instant::now))
    }

    pub(super) fn with_clock(
        scheduler: Arc<Scheduler>,
        capacity: (usize, u64),
        max_delay: Duration,
        clock: Clock,
    ) -> Queue {
        Queue(Arc::new(Shared {
            scheduler,
            capacity,
            max_delay,
            state: Mutex::default(),
            has_much_room: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            work: Condvar::new(),
            changed: Condvar::new(),
            deadlines: Deadlines::default(),
            clock,
            counters: TicketCounters::default(),
            process: OnceLock::new(),
        }))
    }

    /// Queues a job of this size, for work with these options. `make` is called only if there is room.
    pub fn submit<J: Queued>(
        &self,
        work: &WorkOptions,
        size: Size,
        make: impl FnOnce() -> J,
    ) -> Result<Ticket<J::Out>, Error> {
        let (shared, process) = (&self.0, Process::current());
        // Every job counts, because the queue does not wait for jobs that count for nothing.
        let size = Size { jobs: size.jobs.max(1), ..size };
        let reserved = shared.reserve(process, size).inspect_err(|_| shared.counters.refused.add(1))?;
        let has_place = reserved != Reserved::Nothing;
        shared.counters.submitted.add(1);
        let job = make();
        let requested = job.kind();
        // A job that no program does enters no line.
        let kind = requested.as_ref().ok().copied();
        let (cell, since) = (Cell::new(), (shared.clock)());
        let has_cores = !J::BY_ALL_THREADS && shared.scheduler.is_host_alone();
        let core = if has_cores { core_among(shared.scheduler.options.threads) } else { 0 };
        // A time that is too far away for the clock is no limit. A result that comes later is not given, even if the ticket is not watched yet.
        let until = work.until(since);
        let (deadline, of, place) = (Mutex::new(until), Arc::downgrade(shared), PlaceInLine::new(core));
        let job = Mutex::new(Some(job));
        let (checks, cancel) = (work.checks, work.cancel.clone());
        let entry = Arc::new(Entry { job, cell, place, kind, checks, cancel, size, since, deadline, shared: of });
        let is_cancelled = entry.is_cancelled();
        let added = requested.and_then(|_| match is_cancelled {
            true => Err(CancelToken::error()),
            false => shared.add(entry.clone(), process, has_place),
        });
        if let Err(why) = added {
            drop(entry.take());
            let resolved = match is_cancelled {
                true => entry.set_error(why, |counters| &counters.cancelled),
                false => entry.cell.resolve(Err(why)),
            };
            let Ok(Wake::Nobody) = resolved else { unreachable!("nobody has the ticket yet") };
            if has_place {
                shared.count_out(size);
            }
        }
        if reserved == Reserved::PlaceWithoutDispatcher {
            shared.run_here(lock(&shared.state), &*entry);
        }
        let ticket = Ticket::new(entry, process);
        Ok(if let Some(until) = until { ticket.deadline(until) } else { ticket })
    }

    /// Calls `work`, which does one job, on this thread if the engine has nothing else to do; otherwise gives `None`. For the counters it is a
    /// ticket that did not wait.
    pub fn run_alone<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        let shared = &self.0;
        if shared.is_busy.load(Relaxed) {
            return Ok(None);
        }
        let mut state = shared.open(Process::current())?;
        if !shared.is_idle(&state, 0) {
            return Ok(None);
        }
        state.alone += 1;
        drop(state);
        let (_alone, began) = (Alone(shared), Instant::now());
        let out = work();
        shared.counters.submitted.add(1);
        shared.counters.waited(&[Duration::ZERO]);
        shared.counters.batch(1, 1, began.elapsed());
        Ok(Some(out))
    }

    /// Resolves when the queue has room again.
    pub fn ready(&self) -> Room {
        Room { shared: Arc::downgrade(&self.0), number: None }
    }

    /// Takes no more jobs, and waits for those that it has. Jobs that have not begun at `until` are cancelled.
    pub fn drain(&self, until: Instant) -> Result<(), Error> {
        let shared = &self.0;
        shared.same_process()?;
        shared.in_callback()?;
        let mut state = lock(&shared.state);
        state.is_closed = true;
        // From now on, jobs do not wait for others.
        let wakes = shared.rouse(&mut state);
        shared.release(state);
        shared.wake(wakes);
        let (mut state, is_quiet) = shared.wait_until(lock(&shared.state), Some(until), State::is_quiet);
        if is_quiet {
            return Ok(());
        }
        while let Some(batch) = state.take(true, 1, None) {
            drop(state);
            state = shared.refuse(batch, cancelled("the engine was drained, and the time for it was over"));
        }
        Err(Error::DeadlineExceeded)
    }

    /// The counters of the queue.
    pub fn stats(&self) -> TicketStats {
        let mut stats = self.0.counters.stats();
        if self.0.same_process().is_ok() {
            let state = lock(&self.0.state);
            (stats.queued, stats.queued_bytes, stats.running) =
                (state.queued, state.bytes, state.running + state.alone);
        }
        stats
    }
}

impl Drop for Queue {
    /// Jobs that run are completed, the others are cancelled.
    fn drop(&mut self) {
        let shared = &self.0;
        if shared.same_process().is_err() {
            return;
        }
        shared.deadlines.end();
        let mut state = lock(&shared.state);
        (state.is_closed, state.is_gone) = (true, true);
        let threads = std::mem::take(&mut state.threads);
        shared.release(state);
        shared.work.notify_all();
        // In a callback this thread is one of these threads, which then end by themselves.
        if !threads.iter().any(|thread| thread.thread().id() == current().id()) {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}
