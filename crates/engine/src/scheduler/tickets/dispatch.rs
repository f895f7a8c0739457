//! Running and waking: dispatchers, which are threads that run batches and notify those who wait for results, and threads that run a job without one.

use super::entry::Holds;
use super::gone;
use super::line::{Begun, LineId, Patience, TakenBatch, Tell, with_checks};
use super::state::{Shared, State, set};
use crate::scheduler::permits::lock;
use crate::{Error, Process};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{Builder, yield_now};
use std::time::Duration;

thread_local! {
    /// The queue whose callbacks this thread calls.
    static SERVES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Shared {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// Whether this thread calls this queue's callbacks. Such a thread must not wait for anything that callbacks hold up.
    fn is_served_here(self: &Arc<Self>) -> bool {
        SERVES.get() == self.address()
    }

    pub(super) fn in_callback(self: &Arc<Self>) -> Result<(), Error> {
        match self.is_served_here() {
            true => Err(Error::Value {
                what: "a ticket's callback waits for the engine that called it; let the callback return first".into(),
            }),
            false => Ok(()),
        }
    }

    /// Starts a dispatcher, if the system starts a thread.
    pub(super) fn start(self: &Arc<Self>, state: &mut State) {
        self.process.get_or_init(Process::current);
        if self.spawn(state, "hypergrove-tickets", |shared| shared.serve()) {
            state.dispatchers += 1;
            state.started += 1;
        }
    }

    /// Starts a thread. Gives whether the system did.
    pub(super) fn spawn(self: &Arc<Self>, state: &mut State, name: &str, work: fn(&Arc<Shared>)) -> bool {
        let shared = self.clone();
        let body = move || {
            SERVES.set(shared.address());
            work(&shared);
        };
        let thread = Builder::new().name(name.into()).spawn(body);
        let thread = thread.inspect_err(|why| self.scheduler.note_threads(1, 0, why)).ok();
        let is_started = thread.is_some();
        state.threads.extend(thread);
        is_started
    }

    /// How long jobs wait for others, and the time now; `None` if no job waits.
    fn patience(&self, state: &State) -> Option<Patience> {
        let is_none = self.max_delay.is_zero() || state.is_closed;
        (!is_none).then(|| (self.max_delay, (self.clock)()))
    }

    /// Starts a dispatcher, if a batch could begin. Gives whether one that sleeps is to be woken instead, after the lock is released, because a woken
    /// dispatcher takes the lock first.
    #[must_use]
    pub(super) fn rouse(self: &Arc<Self>, state: &mut State) -> bool {
        if state.queued == 0 || !state.lines.iter().any(|line| line.may_begin()) {
            return false;
        }
        let slots = self.slots();
        if state.running + state.notified + state.started >= slots {
            return false;
        }
        // One dispatcher that looks in time suffices, since later jobs wait longer.
        if state.timed > 0 && self.patience(state).is_some_and(|patience| state.waits(patience).is_some()) {
            return false;
        }
        if state.asleep > 0 {
            state.asleep -= 1;
            state.notified += 1;
            return true;
        }
        if state.dispatchers < slots + usize::from(state.telling > 0) {
            // One dispatcher works while another notifies waiters. If it cannot be started, others do both.
            self.start(state);
        }
        false
    }

    /// Wakes a dispatcher if [`Shared::rouse`] says so.
    pub(super) fn wake(&self, wakes: bool) {
        if wakes {
            self.work.notify_one();
        }
    }

    /// Does the work of a dispatcher until the engine is gone.
    fn serve(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.started -= 1;
        loop {
            let (slots, all, patience) = (self.slots(), state.is_gone, self.patience(&state));
            let is_free = all || state.running < slots;
            let batch = if is_free { state.take(all, slots, patience) } else { None };
            state = match batch {
                Some(batch) if all => {
                    drop(state);
                    self.refuse(batch, gone())
                }
                Some(TakenBatch { line_id, jobs, entries, begin }) => {
                    state.running += 1;
                    state.taken += jobs;
                    set(&self.is_busy, true);
                    // This thread may be the dispatcher that was to look at the other lines, or may have left jobs for other devices.
                    let wakes = (patience.is_some() || !self.scheduler.is_host_alone()) && self.rouse(&mut state);
                    drop(state);
                    self.wake(wakes);
                    // Not under the lock, for which submitters would wait meanwhile.
                    let Begun { size, tickets, finish } = begin(entries, &self.counters);
                    self.count_out(size);
                    let tell = finish(Ok(&self.scheduler), &self.counters);
                    self.complete((line_id, jobs, tickets), tell)
                }
                None if state.is_gone => break,
                None => {
                    let rest = patience.filter(|_| is_free).and_then(|patience| state.waits(patience));
                    self.sleep(state, rest)
                }
            };
        }
    }

    /// Lets a dispatcher sleep until it is woken, or for the time `most`.
    fn sleep<'s>(&'s self, mut state: MutexGuard<'s, State>, most: Option<Duration>) -> MutexGuard<'s, State> {
        let sleeps = |state: &mut State| state.notified == 0 && !state.is_gone;
        state.asleep += 1;
        let mut state = match most {
            None => self.work.wait_while(state, sleeps).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                state.timed += 1;
                let waited = self.work.wait_timeout_while(state, most, sleeps);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.timed -= 1;
                state
            }
        };
        // Whoever wakes a dispatcher counts it as notified; another dispatcher may be the one that wakes up.
        match state.notified {
            0 => state.asleep -= 1,
            _ => state.notified -= 1,
        }
        state
    }

    /// Sets an error as the result of a batch's jobs.
    pub(super) fn refuse(&self, batch: TakenBatch, why: Error) -> MutexGuard<'_, State> {
        let Begun { size, finish, .. } = (batch.begin)(batch.entries, &self.counters);
        (finish(Err(why), &self.counters).tell)();
        self.count_out(size);
        lock(&self.state)
    }

    /// Notifies the waiters of a batch that ran, when its slot is free again. The batch had so many jobs in its line, and so many tickets.
    fn complete(
        self: &Arc<Self>,
        (line_id, jobs, tickets): (LineId, usize, usize),
        tell: Tell,
    ) -> MutexGuard<'_, State> {
        let kind = line_id.0.expect("the jobs of a line have a kind");
        let limits = with_checks(&self.scheduler, line_id.1, |scheduler| scheduler.batch_limits(kind));
        let mut state = lock(&self.state);
        if let Some(line) = state.lines.iter_mut().find(|line| line.id == line_id) {
            line.limits = limits;
            line.running -= 1;
            line.taken -= jobs;
        }
        state.running -= 1;
        state.taken -= jobs;
        state.latest = tickets;
        set(&self.is_busy, state.running > 0 || state.latest > 1);
        // On the host this thread goes on itself: another dispatcher would take the core of the threads that are notified, which bring the next jobs.
        // Results that code of others waits for must not wait for this thread.
        let others_go_on = tell.runs_code_of_others || !self.scheduler.is_host_alone();
        state.telling += usize::from(others_go_on);
        let wakes = others_go_on && self.rouse(&mut state);
        drop(state);
        self.wake(wakes);
        (tell.tell)();
        if !others_go_on {
            // Most of the threads that were notified wait for this core.
            yield_now();
        }
        let mut state = lock(&self.state);
        state.telling -= usize::from(others_go_on);
        self.release(state);
        lock(&self.state)
    }

    /// Whether a thread that brings `jobs` jobs, which wait in the queue or do not enter it, computes them itself: the engine has nothing else to do,
    /// so another thread would only have to be woken.
    pub(super) fn is_idle(&self, state: &State, jobs: usize) -> bool {
        let threads = self.scheduler.options.threads;
        let is_idle = self.max_delay.is_zero() && state.queued == jobs && state.running == 0 && state.alone < threads;
        // Many callers are faster together. A thread of a pool would have to hand the job over.
        is_idle && state.latest <= 1 && rayon::current_thread_index().is_none()
    }

    /// Computes the ticket's result on this thread, if that is best. In a callback there may be no other thread that could compute it.
    pub(super) fn alone<T>(self: &Arc<Self>, entry: &Arc<dyn Holds<T>>) {
        if self.is_busy.load(Relaxed) && !self.is_served_here() {
            return;
        }
        let state = lock(&self.state);
        // A deadline and a canceller refer to the entry. They may end the ticket while the job runs, and this thread returns then.
        let may_end_early = || Arc::weak_count(entry) > 0;
        if !self.is_served_here() && (!self.is_idle(&state, entry.jobs()) || may_end_early()) {
            return;
        }
        self.run_here(state, &**entry);
    }

    /// Runs a ticket's job on this thread. Whoever drains the queue waits for this thread meanwhile.
    pub(super) fn run_here<T>(&self, mut state: MutexGuard<'_, State>, entry: &dyn Holds<T>) {
        state.alone += 1;
        drop(state);
        let _alone = Alone(self);
        entry.run_here(self);
    }
}

/// A job that runs on the thread that submitted it, or that waits for it.
pub(super) struct Alone<'a>(pub(super) &'a Shared);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.alone -= 1;
        self.0.release(state);
    }
}
