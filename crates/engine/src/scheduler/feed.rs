//! Jobs of a caller's iterator, taken ahead on a thread of their own: an iterator that blocks holds no result back.

use super::turns::{Signal, lock};
use super::worker::Asked;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time without a new job after which those at hand are started although they fill no chunk.
const QUIET: Duration = Duration::from_micros(200);
/// Time after which they are started although more keep coming: the largest chunks of a GPU take half of it to be taken.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether the jobs at hand may be started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Supply {
    /// They may: they fill a chunk, there are no more, or the iterator takes its time.
    Ready,
    /// More may come at any moment: they may be started after so long.
    Later(Option<Duration>),
}

/// Jobs between an iterator and the call that takes them.
pub(super) struct Feed<J> {
    state: Mutex<State<J>>,
    has_room: Condvar,
    signal: Arc<Signal>,
    /// What may be taken ahead: jobs, and bytes that they and their outputs take.
    most: (AtomicUsize, AtomicU64),
    /// What is.
    taken: (AtomicUsize, AtomicU64),
    /// Bytes of the largest job so far: there is to be room for another one like it.
    largest: AtomicU64,
}

struct State<J> {
    jobs: VecDeque<Asked<J>>,
    /// The iterator has no more jobs.
    ended: bool,
    /// The call takes no more.
    stopped: bool,
    /// The thread waits for room.
    is_full: bool,
    /// When the last job came, and the first of those that wait.
    last: Instant,
    first: Option<Instant>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<J> Feed<J> {
    pub(super) fn new(signal: Arc<Signal>, jobs: usize, bytes: u64) -> Feed<J> {
        let state = State {
            jobs: VecDeque::new(),
            ended: false,
            stopped: false,
            is_full: false,
            last: Instant::now(),
            first: None,
            panic: None,
        };
        Feed {
            state: Mutex::new(state),
            has_room: Condvar::new(),
            signal,
            most: (AtomicUsize::new(jobs), AtomicU64::new(bytes)),
            taken: (AtomicUsize::new(0), AtomicU64::new(0)),
            largest: AtomicU64::new(0),
        }
    }

    /// Takes jobs from the iterator until it ends or the call does.
    pub(super) fn pull(&self, jobs: &mut dyn Iterator<Item = Asked<J>>) {
        loop {
            let next = catch_unwind(AssertUnwindSafe(|| jobs.next()));
            let mut state = lock(&self.state);
            match next {
                Ok(Some(job)) => {
                    self.taken.0.fetch_add(1, SeqCst);
                    self.taken.1.fetch_add(job.held, SeqCst);
                    self.largest.fetch_max(job.held, SeqCst);
                    state.jobs.push_back(job);
                    state.last = Instant::now();
                    if state.first.is_none() {
                        state.first = Some(state.last);
                        self.signal.notify();
                    }
                }
                Ok(None) => state.ended = true,
                Err(panic) => (state.ended, state.panic) = (true, Some(panic)),
            }
            if !state.ended && self.is_full() {
                state.is_full = true;
                self.signal.notify();
                let waits = |state: &mut State<J>| !state.stopped && self.is_full();
                state = self.has_room.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
                state.is_full = false;
            }
            if state.ended || state.stopped {
                state.ended = true;
                return self.signal.notify();
            }
        }
    }

    fn is_full(&self) -> bool {
        let (jobs, bytes) = (self.taken.0.load(SeqCst), self.taken.1.load(SeqCst));
        let with_next = bytes + self.largest.load(SeqCst);
        jobs >= self.most.0.load(SeqCst) || (jobs > 0 && with_next > self.most.1.load(SeqCst))
    }

    /// No more jobs are wanted; one that the iterator is asked for is still waited for.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.has_room.notify_all();
    }

    /// So many jobs may be taken ahead.
    pub(super) fn allow(&self, jobs: usize) {
        if self.most.0.swap(jobs, SeqCst) < jobs {
            let _state = lock(&self.state);
            self.has_room.notify_all();
        }
    }

    /// Whether the jobs at hand may be started; `others` are those that the call has taken and not started.
    pub(super) fn supply(&self, others: usize) -> Supply {
        let (state, is_full) = (lock(&self.state), self.is_full());
        if state.is_full && !is_full {
            self.has_room.notify_all();
        }
        if state.ended || is_full {
            return Supply::Ready;
        }
        if self.taken.0.load(SeqCst) == 0 && others == 0 {
            return Supply::Later(None);
        }
        let (quiet, waiting) = (state.last.elapsed(), state.first.map_or(Duration::ZERO, |first| first.elapsed()));
        if quiet >= QUIET || waiting >= PATIENCE { Supply::Ready } else { Supply::Later(Some(QUIET - quiet)) }
    }
}

/// What a [`Feed`] has at hand: `None` for now, or for good.
pub(super) struct Fed<'a, J> {
    pub(super) feed: &'a Feed<J>,
    /// Taken from the feed all together.
    pub(super) jobs: VecDeque<Asked<J>>,
    /// Jobs that the iterator promised at most.
    pub(super) most: Option<usize>,
}

impl<J> Iterator for Fed<'_, J> {
    type Item = Asked<J>;

    fn next(&mut self) -> Option<Asked<J>> {
        if self.jobs.is_empty() {
            let mut state = lock(&self.feed.state);
            std::mem::swap(&mut self.jobs, &mut state.jobs);
            state.first = None;
            if let Some(panic) = state.panic.take_if(|_| self.jobs.is_empty()) {
                drop(state);
                resume_unwind(panic);
            }
        }
        let job = self.jobs.pop_front()?;
        self.feed.taken.0.fetch_sub(1, SeqCst);
        self.feed.taken.1.fetch_sub(job.held, SeqCst);
        self.most = self.most.map(|most| most.saturating_sub(1));
        Some(job)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let state = lock(&self.feed.state);
        let there = self.jobs.len() + state.jobs.len();
        // One panic is left to be handed on.
        let panics = usize::from(state.panic.is_some());
        (there, if state.ended { Some(there + panics) } else { self.most })
    }
}
