//! The result of a ticket: set once, by the first thread that tries, and taken once.

use super::permits::lock;
use super::sync::{Condvar, Mutex, MutexGuard};
use crate::Error;
use std::mem::replace;
use std::sync::PoisonError;
use std::task::{Poll, Waker};
use std::time::Instant;

/// The function that a ticket's holder wants called with the result.
pub(super) type Callback<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// The next action of the thread that gets a result: it wakes another thread.
pub(super) type Then = Box<dyn FnOnce() + Send>;

enum State<T> {
    Pending(Wake<T>),
    Resolved(Result<T, Error>, Option<Then>),
    /// The result was taken, or nobody wants it.
    Over,
}

/// Who waits for the result. [`Cell::wake`] notifies them, which runs code of others, so no lock may be held.
#[must_use]
pub(super) enum Wake<T> {
    /// Nobody waits.
    Nobody,
    /// A thread that is blocked.
    Thread,
    /// The task that polled.
    Task(Waker),
    /// The function to call. Its ticket is gone, so nobody else takes the result.
    Callback(Callback<T>),
}

/// The place of a result that may not be there yet.
pub(super) struct Cell<T> {
    state: Mutex<State<T>>,
    resolved: Condvar,
}

/// The waiter to notify of a result that was accepted, or the result itself, if there was one already or nobody wants it.
pub(super) type Resolved<T> = Result<Wake<T>, Result<T, Error>>;

impl<T> Cell<T> {
    pub(super) fn new() -> Cell<T> {
        Cell { state: Mutex::new(State::Pending(Wake::Nobody)), resolved: Condvar::new() }
    }

    /// Sets the result, if there is none.
    pub(super) fn resolve(&self, result: Result<T, Error>) -> Resolved<T> {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Pending(_)) {
            return Err(result);
        }
        let State::Pending(wake) = replace(&mut *state, State::Resolved(result, None)) else {
            unreachable!("it was looked at")
        };
        Ok(wake)
    }

    /// Notifies the waiter.
    pub(super) fn wake(&self, wake: Wake<T>) {
        match wake {
            Wake::Nobody => {}
            Wake::Thread => self.wake_thread(None),
            Wake::Task(waker) => waker.wake(),
            Wake::Callback(callback) => drop(self.take().map(callback)),
        }
    }

    /// Wakes the thread that is blocked, which then does the rest. If that thread has its result already, this thread does the rest.
    pub(super) fn wake_thread(&self, then: Option<Then>) {
        let mut state = lock(&self.state);
        if let State::Resolved(_, next) = &mut *state {
            *next = then;
            drop(state);
            return self.resolved.notify_all();
        }
        drop(state);
        then.into_iter().for_each(|then| then());
    }

    /// Whether the result is there, was taken, or is no longer wanted.
    pub(super) fn is_resolved(&self) -> bool {
        !matches!(*lock(&self.state), State::Pending(_))
    }

    /// Takes the result, if it is there.
    pub(super) fn take(&self) -> Option<Result<T, Error>> {
        take(lock(&self.state))
    }

    /// Waits for the result, until the time `until` if it is given. `None` if the result is not there then, or was taken before.
    pub(super) fn wait(&self, until: Option<Instant>) -> Option<Result<T, Error>> {
        let mut state = lock(&self.state);
        if let State::Pending(waiter) = &mut *state {
            let before = replace(waiter, Wake::Thread);
            let is_pending = |state: &mut State<T>| matches!(state, State::Pending(_));
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.resolved.wait_while(state, is_pending).unwrap_or_else(PoisonError::into_inner),
                Some(most) => {
                    drop(self.resolved.wait_timeout_while(state, most, is_pending));
                    lock(&self.state)
                }
            };
            if let State::Pending(waiter) = &mut *state {
                *waiter = Wake::Nobody;
            }
            let result = take(state);
            // Dropping a task's waker may run anybody's code, so no lock is held.
            drop(before);
            return result;
        }
        take(state)
    }

    /// Takes the result, or has it wake `waker` later. `None` if the result was taken before.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Option<Result<T, Error>>> {
        let mut state = lock(&self.state);
        let State::Pending(waiter) = &mut *state else { return Poll::Ready(take(state)) };
        let before = match waiter {
            Wake::Task(known) if known.will_wake(waker) => None,
            _ => Some(replace(waiter, Wake::Task(waker.clone()))),
        };
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Has `callback` called with the result. If the result is there already, gives back the callback and the result. Nobody but the callback gets
    /// the result.
    pub(super) fn on_done(&self, callback: Callback<T>) -> Option<(Callback<T>, Result<T, Error>)> {
        let mut state = lock(&self.state);
        if let State::Pending(waiter) = &mut *state {
            let before = replace(waiter, Wake::Callback(callback));
            drop(state);
            drop(before);
            return None;
        }
        take(state).map(|result| (callback, result))
    }

    /// Records that nobody wants the result any more. Gives the result, if it is there.
    pub(super) fn abandon(&self) -> Option<Result<T, Error>> {
        let mut state = lock(&self.state);
        if let State::Pending(_) = *state {
            let before = replace(&mut *state, State::Over);
            drop(state);
            drop(before);
            return None;
        }
        take(state)
    }
}

fn take<T>(mut state: MutexGuard<'_, State<T>>) -> Option<Result<T, Error>> {
    let State::Resolved(..) = *state else { return None };
    let State::Resolved(result, then) = replace(&mut *state, State::Over) else { unreachable!("it was looked at") };
    drop(state);
    then.into_iter().for_each(|then| then());
    Some(result)
}
