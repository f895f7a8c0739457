//! The queue's state, which dispatchers, tickets and the engine share: what is queued and what runs.

use super::deadlines::{Clock, Deadlines};
use super::line::{Line, LineId, Patience, TakenBatch, whole};
use super::waiting::PlaceInLine;
use super::{Size, cancelled, quietly};
use crate::scheduler::permits::lock;
use crate::scheduler::stats::TicketCounters;
use crate::scheduler::{Scheduler, Worker};
use crate::{Error, Process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The jobs that are queued, and the threads that work on them.
#[derive(Default)]
pub(super) struct State {
    pub(super) lines: Vec<Line>,
    /// The line whose turn it is.
    pub(super) next: usize,
    /// Jobs in the queue, and those about to enter it; bytes that they own.
    pub(super) jobs: usize,
    pub(super) bytes: u64,
    /// Jobs in lines.
    pub(super) queued: usize,
    /// Batches that run, their jobs, and tickets whose jobs run on the threads that wait for them.
    pub(super) running: usize,
    pub(super) taken: usize,
    pub(super) alone: usize,
    /// Tickets of the latest batch.
    pub(super) latest: usize,
    /// Dispatchers: all, those that sleep, those that were notified or started and did not look yet, and those that notify waiters.
    pub(super) dispatchers: usize,
    pub(super) asleep: usize,
    /// Of the dispatchers that sleep, those that look when a line's jobs have waited long enough for others.
    pub(super) timed: usize,
    pub(super) notified: usize,
    pub(super) started: usize,
    pub(super) telling: usize,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Whether the queue takes no more jobs, and whether the engine is gone.
    pub(super) is_closed: bool,
    pub(super) is_gone: bool,
    /// Tasks that wait for room, by number, and the latest number.
    pub(super) rooms: BTreeMap<u64, Waker>,
    pub(super) latest_room: u64,
    /// Threads that wait for `changed`.
    blocked: usize,
}

impl State {
    pub(super) fn is_quiet(&self) -> bool {
        self.jobs == 0 && self.running == 0 && self.alone == 0 && self.telling == 0
    }

    /// Counts jobs out of the queue's capacity.
    fn count_out(&mut self, size: Size) {
        self.jobs -= size.jobs;
        self.bytes -= size.bytes;
    }

    /// How long all jobs still wait for others; `None` if some may begin, or if there are none. Jobs that waited long enough, and may
    /// not begin yet, begin when others come or end.
    pub(super) fn waits(&self, patience: Patience) -> Option<Duration> {
        let lines = self.lines.iter().filter(|line| line.entries.len() > 0);
        let lines = lines.filter(|line| line.may_begin() || line.waits(patience).is_some());
        lines.map(|line| line.waits(patience)).min().flatten()
    }

    /// Takes a batch out of the queue: from the line whose turn it is and whose jobs wait for no others. With `all`, takes all jobs of a line.
    pub(super) fn take(&mut self, all: bool, slots: usize, patience: Option<Patience>) -> Option<TakenBatch> {
        let in_flight = self.queued + self.taken;
        for at in (self.next..self.lines.len()).chain(0..self.next) {
            let line = &mut self.lines[at];
            if !(all || line.may_begin()) || patience.is_some_and(|patience| line.waits(patience).is_some()) {
                continue;
            }
            let most = match line.of_threads() {
                _ if all => usize::MAX,
                // Each thread takes its share of all jobs; jobs that waited for each other stay together. (64 jobs of 128s, two threads: a caller
                // that holds all tickets gets 88,700 to 90,300/s. With shares for three threads, whose batches fill lanes less, it gets 85,800 to
                // 88,200.)
                Some(few) if line.entries.jobs() < line.limits.most => {
                    match patience.is_some() || line.by_all_threads {
                        true => few,
                        false => whole(few.min(in_flight.div_ceil(slots)), line.limits.lanes),
                    }
                }
                // Jobs that waited for each other stay together here, too.
                _ if line.devices() > 1 && patience.is_none() => {
                    let all = line.entries.jobs() + line.taken;
                    line.limits.most.min(all.div_ceil(line.limits.slots.saturating_sub(1).max(1))).max(1)
                }
                _ => line.limits.most,
            };
            let (entries, jobs) = line.entries.take(most, line.taker(slots));
            if !entries.is_empty() {
                if !all {
                    line.running += 1;
                    line.taken += jobs;
                }
                let batch = TakenBatch { line_id: line.id, jobs, entries, begin: line.begin };
                self.queued -= jobs;
                self.next = (at + 1) % self.lines.len();
                return Some(batch);
            }
        }
        None
    }
}

/// The state that dispatchers, tickets and the engine share.
pub(super) struct Shared {
    pub(super) scheduler: Arc<Scheduler>,
    /// The most jobs and bytes in the queue.
    pub(super) capacity: (usize, u64),
    /// The longest time that a job waits for others though it could begin.
    pub(super) max_delay: Duration,
    pub(super) state: Mutex<State>,
    /// Whether the queue is open and half empty at least. Then submitters need not reserve a place under the lock before they make their jobs. Set under
    /// the lock.
    pub(super) has_much_room: AtomicBool,
    /// Whether the engine has other work than the job of a thread that waits, so that the thread need not look under the lock. Set under the lock.
    pub(super) is_busy: AtomicBool,
    /// Dispatchers sleep on `work`, and other threads are blocked on `changed`.
    pub(super) work: Condvar,
    pub(super) changed: Condvar,
    pub(super) deadlines: Deadlines,
    /// The clock by which deadlines pass and jobs wait for others.
    pub(super) clock: Clock,
    pub(super) counters: TicketCounters,
    /// The process whose threads the dispatchers are.
    pub(super) process: OnceLock<Process>,
}

/// Sets a flag that all cores read, and that seldom changes: a write would take its cache line from them.
pub(super) fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Relaxed) != value {
        flag.store(value, Relaxed);
    }
}

impl Shared {
    /// Gives an error in a process that was forked off, where there are no dispatchers and locks may be held for ever.
    pub(super) fn same_process(&self) -> Result<(), Error> {
        self.is_process(Process::current())
    }

    pub(super) fn is_process(&self, process: Process) -> Result<(), Error> {
        let first = self.process.get();
        if first.is_some_and(|first| *first != process) { Err(Error::of_parent()) } else { Ok(()) }
    }

    /// The most batches that run at a time.
    pub(super) fn slots(&self) -> usize {
        if self.scheduler.is_host_alone() {
            return self.scheduler.options.threads;
        }
        let of = |worker: &Worker| if worker.is_host() { 1 } else { worker.queue() };
        self.scheduler.live().map(of).sum::<usize>().max(1)
    }

    pub(super) fn has_room(&self, state: &State) -> bool {
        state.jobs == 0 || (state.jobs < self.capacity.0 && state.bytes < self.capacity.1)
    }

    /// Locks the queue of this process, unless it takes no more jobs.
    pub(super) fn open(&self, process: Process) -> Result<MutexGuard<'_, State>, Error> {
        self.scheduler.same_process_as(process)?;
        self.is_process(process)?;
        let state = lock(&self.state);
        match state.is_closed {
            true => Err(cancelled("the engine takes no more tickets: it was drained")),
            false => Ok(state),
        }
    }

    /// Counts a job in.
    pub(super) fn count_in(&self, state: &mut State, size: Size) {
        state.jobs += size.jobs;
        state.bytes += size.bytes;
        self.note_room(state);
    }

    /// Counts jobs that left the queue out of its capacity.
    pub(super) fn count_out(&self, size: Size) {
        let mut state = lock(&self.state);
        state.count_out(size);
        self.release(state);
    }

    /// Tells submitters whether there is much room.
    fn note_room(&self, state: &State) {
        let (jobs, bytes) = self.capacity;
        let is_half_empty = state.jobs < jobs / 2 && state.bytes < bytes / 2;
        set(&self.has_much_room, is_half_empty && !state.is_closed && state.dispatchers > 0);
    }

    /// Counts out a job that left the queue without a batch.
    pub(super) fn left(&self, line_id: LineId, size: Size, place: &PlaceInLine) {
        let mut state = lock(&self.state);
        state.count_out(size);
        let State { lines, queued, .. } = &mut *state;
        if let Some(line) = lines.iter_mut().find(|line| line.id == line_id)
            && line.entries.withdraw(size.jobs, place)
        {
            *queued -= size.jobs;
            line.entries.tidy();
        }
        self.release(state);
    }

    /// Releases the lock, and notifies those who wait that the queue changed.
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>) {
        let is_over = state.is_closed || self.has_room(&state);
        self.note_room(&state);
        let rooms = if is_over { std::mem::take(&mut state.rooms) } else { BTreeMap::new() };
        let is_blocked = state.blocked > 0;
        drop(state);
        if is_blocked {
            self.changed.notify_all();
        }
        rooms.into_values().for_each(|waker| quietly(|| waker.wake()));
    }

    /// Blocks until `is_so` holds, or until the time is over. Gives whether it holds.
    pub(super) fn wait_until<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        until: Option<Instant>,
        is_so: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'s, State>, bool) {
        state.blocked += 1;
        let goes_on = |state: &mut State| !is_so(state);
        let mut state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => self.changed.wait_while(state, goes_on).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.blocked -= 1;
        let is_so = is_so(&state);
        (state, is_so)
    }
}
