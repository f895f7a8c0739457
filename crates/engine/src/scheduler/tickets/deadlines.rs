//! Deadlines of tickets, on a thread that starts with the first of them.

use super::waiting::AnyEntry;
use crate::scheduler::permits::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

/// A clock: [`Instant::now`], or one that a test sets. It never goes back, as no `Instant` does. It may stand still, or jump far ahead, as some
/// systems' clocks do when the machine has slept.
pub(super) type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// A deadline, and a number that no other deadline has.
pub(super) type When = (Instant, u64);

#[derive(Default)]
struct State {
    waiting: BTreeMap<When, Weak<dyn AnyEntry>>,
    /// The number of deadlines so far.
    count: u64,
    /// Whether the thread has started.
    is_watched: bool,
    /// Whether the engine is gone.
    is_over: bool,
}

#[derive(Default)]
pub(super) struct Deadlines {
    state: Mutex<State>,
    changed: Condvar,
}

impl Deadlines {
    /// Adds a deadline, and has the thread started if there is none yet. `start` gives whether there is one. Without it, a deadline that passed is noticed
    /// when the result comes.
    pub(super) fn add(&self, at: Instant, of: Weak<dyn AnyEntry>, start: impl FnOnce() -> bool) -> When {
        let mut state = lock(&self.state);
        state.is_watched = state.is_watched || start();
        state.count += 1;
        let when = (at, state.count);
        let is_next = state.waiting.first_key_value().is_none_or(|(first, _)| when < *first);
        state.waiting.insert(when, of);
        if is_next {
            self.changed.notify_one();
        }
        when
    }

    /// Removes a deadline that its job needs no more.
    pub(super) fn remove(&self, when: When) {
        lock(&self.state).waiting.remove(&when);
    }

    /// Ends jobs whose deadlines pass, until the engine is gone.
    pub(super) fn watch(&self, clock: &Clock) {
        let mut state = lock(&self.state);
        while !state.is_over {
            let now = clock();
            let first = state.waiting.first_key_value().map(|(when, _)| *when);
            state = match first {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((at, _)) if at > now => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(when) => {
                    let expired = state.waiting.remove(&when);
                    drop(state);
                    if let Some(expired) = expired.and_then(|expired| expired.upgrade()) {
                        expired.expire();
                    }
                    lock(&self.state)
                }
            };
        }
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}
