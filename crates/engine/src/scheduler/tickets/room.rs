//! Waiting until the queue has room again.

use super::state::{Shared, State};
use super::{cancelled, gone};
use crate::Error;
use crate::scheduler::permits::lock;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

/// A future that is ready when the queue has room again. Another caller may take the room first.
#[must_use = "it does nothing unless it is awaited or waited for"]
pub struct Room {
    pub(super) shared: Weak<Shared>,
    /// The number by which the queue knows the task.
    pub(super) number: Option<u64>,
}

impl Room {
    /// Whether there is room, or an error if there never will be; `None` if there is no room now.
    fn look(shared: &Shared, state: &State) -> Option<Result<(), Error>> {
        match state.is_closed {
            true => Some(Err(if state.is_gone { gone() } else { cancelled("the engine was drained") })),
            false => shared.has_room(state).then_some(Ok(())),
        }
    }

    /// Blocks this thread until there is room. Do not call this in a ticket's callback, whose thread may have to make the room.
    pub fn wait(self) -> Result<(), Error> {
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        shared.same_process()?;
        let state = lock(&shared.state);
        if let Some(known) = Room::look(&shared, &state) {
            return known;
        }
        shared.in_callback()?;
        let (state, _) = shared.wait_until(state, None, |state| Room::look(&shared, state).is_some());
        Room::look(&shared, &state).unwrap_or(Ok(()))
    }
}

impl Future for Room {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(Err(gone())) };
        shared.same_process()?;
        let waker = context.waker().clone();
        let mut state = lock(&shared.state);
        if let Some(known) = Room::look(&shared, &state) {
            return Poll::Ready(known);
        }
        let number = self.number.unwrap_or_else(|| {
            state.latest_room += 1;
            state.latest_room
        });
        let before = state.rooms.insert(number, waker);
        drop(state);
        drop(before);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if let Some(shared) = self.shared.upgrade()
            && shared.same_process().is_ok()
        {
            let before = lock(&shared.state).rooms.remove(&number);
            drop(before);
        }
    }
}
