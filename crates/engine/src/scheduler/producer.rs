//! Jobs of a caller's iterator, taken ahead on a thread of their own, so that an iterator that blocks holds no result back.

use super::Job;
use super::blocks::OpenBlock;
use super::permits::{Signal, lock};
use super::sync::{AtomicU64, Condvar, Mutex};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Time without a new job after which the jobs at hand are started although they fill no chunk.
const QUIET: Duration = Duration::from_micros(200);
/// Time after which the jobs at hand are started although more keep coming, if no more jobs than these are in flight. The time is this, or a share of
/// the time that a device takes for a full chunk. So chunks grow as long as the iterator is faster than the devices, and no device waits until the
/// iterator has filled the first chunk. Chunks that are cut too early are small, and a GPU is slower in small ones.
const PATIENCE: Duration = Duration::from_millis(1);
const PATIENCE_OF_A_CHUNK: u32 = 8;

/// The longest time to wait, given the time of a full chunk.
pub(super) fn patience(chunk: Option<Duration>) -> Duration {
    chunk.map_or(PATIENCE, |chunk| (chunk / PATIENCE_OF_A_CHUNK).clamp(PATIENCE, LONGEST / PATIENCE_OF_A_CHUNK))
}

/// Time after which the jobs at hand are started in any case.
const LONGEST: Duration = Duration::from_millis(100);

/// Whether the jobs at hand may be started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Readiness {
    /// They may: they fill a chunk, no more will come, or the iterator takes its time.
    Ready,
    /// More jobs may come at any moment. The jobs at hand may be started after this time; `None` if no jobs are at hand.
    Later(Option<Duration>),
}

/// Jobs between an iterator and the call that takes them. A job passes one lock on its way, and nothing else that both threads write: anything more
/// would cost as much as a GPU takes for a verification.
pub(super) struct Producer<J> {
    state: Mutex<State<J>>,
    has_room: Condvar,
    signal: Arc<Signal>,
    started: Started,
}

/// Jobs that the call has taken and the producer has not counted yet, and their bytes. They lie in cache lines that the producer's thread never looks at.
#[derive(Default)]
#[repr(align(128))]
struct Started(AtomicU64, AtomicU64);

struct State<J> {
    /// The jobs at hand, in blocks.
    jobs: VecDeque<OpenBlock<J>>,
    /// Whether the iterator has no more jobs.
    ended: bool,
    /// Whether the call takes no more jobs.
    stopped: bool,
    /// Whether the thread waits for room.
    is_full: bool,
    /// The most that may be taken ahead: jobs, and bytes that they and their outputs take.
    most: (usize, u64),
    /// Jobs and bytes that were taken from the iterator, and not by the call yet.
    ahead: (usize, u64),
    /// Bytes of the largest job so far: there must be room for another job as large.
    largest: u64,
    /// Jobs that came so far.
    came: u64,
    /// How many jobs had come when the call last looked, and the time since which no more came.
    seen: (u64, Instant),
    /// When the call first saw the jobs that wait.
    first: Option<Instant>,
    panic: Option<Box<dyn Any + Send>>,
}

/// A producer, as a call sees it.
pub(super) trait Produces {
    /// The signal that is raised when something happens that the call may wait for.
    fn signal(&self) -> Arc<Signal>;
    /// Takes no more jobs. If the iterator is computing a job, its thread still waits for that job.
    fn stop(&self);
    /// Whether the jobs at hand may be started. `others` are the jobs that the call has taken and not started, without those in flight. From now on,
    /// up to `most` jobs may be taken ahead, and they are started after `patience`.
    fn readiness(&self, others: usize, in_flight: usize, most: Option<usize>, patience: Duration) -> Readiness;
}

impl<J> State<J> {
    fn is_full(&self) -> bool {
        let (jobs, bytes) = self.ahead;
        jobs >= self.most.0 || (jobs > 0 && bytes + self.largest > self.most.1)
    }
}

impl<J: Job> Producer<J> {
    pub(super) fn new(jobs: usize, bytes: u64) -> Producer<J> {
        let state = State {
            jobs: VecDeque::new(),
            ended: false,
            stopped: false,
            is_full: false,
            most: (jobs, bytes),
            ahead: (0, 0),
            largest: 0,
            came: 0,
            seen: (0, Instant::now()),
            first: None,
            panic: None,
        };
        let (has_room, signal, started) = (Condvar::new(), Arc::default(), Started::default());
        Producer { state: Mutex::new(state), has_room, signal, started }
    }

    /// Takes jobs from the iterator until it ends or the call does.
    pub(super) fn pull(&self, mut jobs: impl Iterator<Item = OpenBlock<J>>) {
        let panic = catch_unwind(AssertUnwindSafe(|| jobs.all(|job| self.put(job)))).err();
        let mut state = lock(&self.state);
        (state.ended, state.panic) = (true, panic);
        drop(state);
        self.signal.notify();
    }

    /// Adds a job, and waits until there is room for the next one. Gives whether more jobs are wanted.
    fn put(&self, job: OpenBlock<J>) -> bool {
        let mut state = lock(&self.state);
        let (jobs, bytes) = state.ahead;
        state.ahead = (jobs + job.count, bytes + job.held);
        state.largest = state.largest.max(job.held);
        state.came += 1;
        let is_first = state.jobs.is_empty();
        let unjoined = match state.jobs.back_mut() {
            Some(block) => block.join(job),
            None => Some(job),
        };
        state.jobs.extend(unjoined);
        if is_first {
            self.signal.notify();
        }
        if state.is_full() {
            state.is_full = true;
            self.signal.notify();
            let waits = |state: &mut State<J>| !state.stopped && state.is_full();
            state = self.has_room.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            state.is_full = false;
        }
        !state.stopped
    }
}

impl<J> Produces for Producer<J> {
    fn signal(&self) -> Arc<Signal> {
        self.signal.clone()
    }

    fn stop(&self) {
        lock(&self.state).stopped = true;
        self.has_room.notify_all();
    }

    fn readiness(&self, others: usize, in_flight: usize, most: Option<usize>, patience: Duration) -> Readiness {
        let mut state = lock(&self.state);
        let (jobs, bytes) = state.ahead;
        let (started, of_bytes) = (self.started.0.swap(0, Relaxed), self.started.1.swap(0, Relaxed));
        state.ahead = (jobs - started as usize, bytes - of_bytes);
        state.most.0 = most.unwrap_or(state.most.0);
        let is_full = state.is_full();
        if state.is_full && !is_full {
            self.has_room.notify_all();
        }
        if state.ended || is_full {
            return Readiness::Ready;
        }
        if state.ahead.0 == 0 && others == 0 {
            return Readiness::Later(None);
        }
        let now = Instant::now();
        if state.seen.0 != state.came {
            state.seen = (state.came, now);
        }
        let (quiet, waiting) = (now - state.seen.1, now - *state.first.get_or_insert(now));
        let is_enough = waiting >= patience && (state.ahead.0 + others >= in_flight || waiting >= LONGEST);
        if quiet >= QUIET || is_enough { Readiness::Ready } else { Readiness::Later(Some(QUIET - quiet)) }
    }
}

/// The jobs that a [`Producer`] has at hand. `None` means that there are none for now, or no more at all.
pub(super) struct ProducedJobs<'a, J> {
    pub(super) producer: &'a Producer<J>,
    /// Jobs that were taken from the producer all together.
    pub(super) jobs: VecDeque<OpenBlock<J>>,
    /// The most jobs that may still come, as the iterator promised.
    pub(super) most: Option<usize>,
}

impl<J: Job> Iterator for ProducedJobs<'_, J> {
    type Item = OpenBlock<J>;

    fn next(&mut self) -> Option<OpenBlock<J>> {
        if self.jobs.is_empty() {
            let mut state = lock(&self.producer.state);
            std::mem::swap(&mut self.jobs, &mut state.jobs);
            state.first = None;
            if let Some(panic) = state.panic.take_if(|_| self.jobs.is_empty()) {
                drop(state);
                resume_unwind(panic);
            }
        }
        let job = self.jobs.pop_front()?;
        // No other thread writes these two numbers.
        let Started(jobs, bytes) = &self.producer.started;
        jobs.store(jobs.load(Relaxed) + job.count as u64, Relaxed);
        bytes.store(bytes.load(Relaxed) + job.held, Relaxed);
        self.most = self.most.map(|most| most.saturating_sub(job.count));
        Some(job)
    }

    /// Counts jobs, which are no fewer than blocks.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let state = lock(&self.producer.state);
        let there = state.ahead.0 - self.producer.started.0.load(Relaxed) as usize;
        // One panic is left to be handed on.
        let panics = usize::from(state.panic.is_some());
        (0, if state.ended { Some(there + panics) } else { self.most })
    }
}
