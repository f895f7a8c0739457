//! Permits on a device: first come first served, chunk by chunk, single jobs concurrently with chunks.
//!
//! All calls of an engine share its devices. Before a call runs anything on a device, it takes a permit. A permit lasts for one
//! chunk, so that calls take permits chunk by chunk. Single jobs have permits of their own, and wait for other single jobs alone: the
//! device, or the operating system, shares its time out among them and the chunks.

use super::sync::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Wakes a call that waits: for permits, for jobs of its source, or for chunks that are done.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<Signaled>,
    changed: Condvar,
}

#[derive(Default)]
struct Signaled {
    /// The number of events so far.
    events: u64,
    /// Permits that were granted: their device's number and slot.
    granted: Vec<(usize, usize)>,
}

impl Signal {
    /// Counts an event that the call may wait for, and wakes the call.
    pub(crate) fn notify(&self) {
        lock(&self.state).events += 1;
        self.changed.notify_all();
    }

    fn grant(&self, device: usize, slot: usize) {
        let mut state = lock(&self.state);
        state.granted.push((device, slot));
        state.events += 1;
        self.changed.notify_all();
    }

    /// The number of events so far. Read it before you look at what you wait for, and give it to [`wait`](Signal::wait): then no event in between is missed.
    pub(crate) fn events(&self) -> u64 {
        lock(&self.state).events
    }

    /// Takes the permits that were granted and not taken yet.
    pub(crate) fn take_granted(&self) -> Vec<(usize, usize)> {
        std::mem::take(&mut lock(&self.state).granted)
    }

    /// Waits until there are more events than `seen`, or until the time `most` is over.
    pub(crate) fn wait(&self, seen: u64, most: Option<Duration>) {
        let state = lock(&self.state);
        match most {
            None => drop(self.changed.wait_while(state, |state| state.events == seen)),
            Some(most) => drop(self.changed.wait_timeout_while(state, most, |state| state.events == seen)),
        }
    }
}

/// Who waits for a permit.
struct Waiter {
    signal: Arc<Signal>,
    /// The number by which its call knows the device.
    device: usize,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// Slots that nobody uses, and single jobs that may begin.
    slots: Vec<usize>,
    singles: usize,
    /// By the numbers of their requests, which are in the order of arrival.
    waiting_singles: BTreeMap<u64, Waiter>,
    waiting_chunks: BTreeMap<u64, Waiter>,
    /// Numbers given to requests so far.
    requests: u64,
    waits: Waits,
}

/// How long chunks and single jobs waited for permits of a device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Waits {
    /// The number of permits that were given.
    pub permits: u64,
    /// How many of them had to be waited for.
    pub waited: u64,
    /// The sum of all waiting times.
    pub time: Duration,
    /// The longest wait.
    pub longest: Duration,
}

/// The permits of a device.
pub(crate) struct Permits {
    state: Mutex<State>,
    /// All slots, and all single jobs at a time.
    most: (usize, usize),
}

/// A place in the queue for a chunk's permit.
pub(crate) type Request = u64;

/// The right to use a slot of a device, until this is dropped.
pub(crate) struct Permit<'a> {
    permits: &'a Permits,
    /// The slot; `None` for a single job.
    pub(crate) slot: Option<usize>,
    /// Whether others use the device too, or wait for it.
    pub(crate) crowded: bool,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.permits.state);
        match self.slot {
            Some(slot) => state.slots.push(slot),
            None => state.singles += 1,
        }
        self.permits.serve(&mut state);
    }
}

impl Permits {
    /// Permits for so many chunks at a time, and for so many single jobs.
    pub(crate) fn new(chunks: usize, singles: usize) -> Permits {
        let most = (chunks.max(1), singles.max(1));
        let state = State { slots: (0..most.0).rev().collect(), singles: most.1, ..State::default() };
        Permits { state: Mutex::new(state), most }
    }

    /// The number of chunks at a time.
    pub(crate) fn slots(&self) -> usize {
        self.most.0
    }

    /// The number of permits in use, and of those waited for.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let used = self.most.0 - state.slots.len() + self.most.1 - state.singles;
        (used, state.waiting_singles.len() + state.waiting_chunks.len())
    }

    /// How long permits were waited for so far.
    pub(crate) fn waits(&self) -> Waits {
        lock(&self.state).waits
    }

    /// Waits for a permit for a single job. `patience` says before each wait how long that wait may take (`None`: any time), or ends the waiting with an
    /// error. It is not asked if there is a permit now.
    pub(crate) fn single<E>(&self, patience: impl Fn() -> Result<Option<Duration>, E>) -> Result<Permit<'_>, E> {
        let mut state = lock(&self.state);
        let used = self.most.0 - state.slots.len() + self.most.1 - state.singles;
        let crowded = used > 0;
        if state.singles > 0 && state.waiting_singles.is_empty() {
            state.waits.permits += 1;
            state.singles -= 1;
            return Ok(Permit { permits: self, slot: None, crowded });
        }
        let signal = Arc::new(Signal::default());
        state.requests += 1;
        let request = state.requests;
        state.waiting_singles.insert(request, Waiter { signal: signal.clone(), device: 0, since: Instant::now() });
        drop(state);
        loop {
            let seen = signal.events();
            if signal.take_granted().pop().is_some() {
                return Ok(Permit { permits: self, slot: None, crowded: true });
            }
            match patience() {
                Ok(most) => signal.wait(seen, most),
                Err(why) => {
                    let was_granted = lock(&self.state).waiting_singles.remove(&request).is_none();
                    if was_granted {
                        // The permit goes to the next one.
                        drop(Permit { permits: self, slot: None, crowded: true });
                    }
                    return Err(why);
                }
            }
        }
    }

    /// A permit for a chunk, if there is one now; otherwise `signal` reports it later, with `device`. A call that comes back gives its request, and
    /// gets back its place in the queue.
    pub(crate) fn chunk(
        &self,
        signal: &Arc<Signal>,
        device: usize,
        request: Option<Request>,
    ) -> Result<Permit<'_>, Request> {
        let mut state = lock(&self.state);
        let request = request.unwrap_or_else(|| {
            state.requests += 1;
            state.requests
        });
        let is_next = state.waiting_chunks.first_key_value().is_none_or(|(first, _)| request < *first);
        if is_next && !state.slots.is_empty() {
            state.waits.permits += 1;
            let slot = state.slots.pop();
            return Ok(Permit { permits: self, slot, crowded: false });
        }
        state.waiting_chunks.insert(request, Waiter { signal: signal.clone(), device, since: Instant::now() });
        self.serve(&mut state);
        Err(request)
    }

    /// Takes a request back; `false` if the permit was granted meanwhile.
    pub(crate) fn withdraw(&self, request: Request) -> bool {
        lock(&self.state).waiting_chunks.remove(&request).is_some()
    }

    /// The permit of which a call was notified.
    pub(crate) fn granted(&self, slot: usize) -> Permit<'_> {
        Permit { permits: self, slot: Some(slot), crowded: true }
    }

    /// Gives free permits to those who wait.
    fn serve(&self, state: &mut State) {
        while state.singles > 0 {
            let Some((_, waiter)) = state.waiting_singles.pop_first() else { break };
            state.singles -= 1;
            state.waits.served(&waiter);
            waiter.signal.grant(waiter.device, 0);
        }
        while !state.slots.is_empty() {
            let Some((_, waiter)) = state.waiting_chunks.pop_first() else { break };
            let slot = state.slots.pop().expect("there is one");
            state.waits.served(&waiter);
            waiter.signal.grant(waiter.device, slot);
        }
    }
}

impl Waits {
    fn served(&mut self, waiter: &Waiter) {
        let waited = waiter.since.elapsed();
        self.permits += 1;
        self.waited += 1;
        self.time += waited;
        self.longest = self.longest.max(waited);
    }
}

/// Locks even after a panic in another thread, which leaves the locked data whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread::{scope, sleep};

    fn until(happened: impl Fn() -> bool) {
        while !happened() {
            sleep(Duration::from_millis(1));
        }
    }

    fn single(permits: &Permits) -> Permit<'_> {
        let Ok(permit) = permits.single(|| Ok::<_, Infallible>(None));
        permit
    }

    #[test]
    fn chunks_come_in_order_and_keep_their_place() {
        let permits = Permits::new(1, 1);
        let calls = [(); 3].map(|()| Arc::new(Signal::default()));
        let Ok(first) = permits.chunk(&calls[0], 7, None) else { panic!("nobody is there") };
        assert_eq!(first.slot, Some(0));
        let [a, b] = [1, 2].map(|call: usize| permits.chunk(&calls[call], call, None).err().unwrap());
        assert!(a < b && permits.load() == (1, 2));
        // A call that goes away for a while comes back to its place.
        assert!(permits.withdraw(a));
        assert_eq!(permits.chunk(&calls[1], 1, Some(a)).err(), Some(a));
        drop(first);
        assert_eq!((calls[1].take_granted(), calls[2].take_granted()), (vec![(1, 0)], vec![]));
        assert!(!permits.withdraw(a), "it was granted");
        drop(permits.granted(0));
        assert_eq!(calls[2].take_granted(), [(2, 0)]);
        drop(permits.granted(0));
        assert_eq!((permits.load(), permits.waits().permits, permits.waits().waited), ((0, 0), 3, 2));
    }

    #[test]
    fn single_jobs_run_concurrently_with_chunks() {
        let permits = Permits::new(1, 2);
        let call = Arc::new(Signal::default());
        let chunk = permits.chunk(&call, 0, None).ok().unwrap();
        let (a, b) = (single(&permits), single(&permits));
        assert!(a.slot.is_none() && a.crowded && b.crowded);
        let most = AtomicUsize::new(0);
        scope(|scope| {
            scope.spawn(|| {
                drop(single(&permits));
                most.fetch_add(1, SeqCst);
            });
            until(|| permits.load().1 == 1);
            assert_eq!(most.load(SeqCst), 0, "two at a time");
            drop(a);
        });
        drop((b, chunk));
        assert_eq!((permits.load(), most.load(SeqCst)), ((0, 0), 1));
        assert!(!single(&permits).crowded);
    }

    #[test]
    fn a_single_job_that_gives_up_leaves_the_queue() {
        let permits = Permits::new(1, 1);
        let first = single(&permits);
        assert_eq!(permits.single(|| Err("at once")).err(), Some("at once"));
        assert_eq!(permits.load(), (1, 0));
        let looks = AtomicUsize::new(0);
        let patience = || match looks.fetch_add(1, SeqCst) {
            0..3 => Ok(Some(Duration::from_millis(1))),
            _ => Err("after three waits"),
        };
        assert_eq!(permits.single(patience).err(), Some("after three waits"));
        // The permit is granted while the one that waits for it gives up: the next one gets it.
        let first = std::cell::Cell::new(Some(first));
        let gives_up = || {
            drop(first.take());
            Err("too late")
        };
        assert_eq!(permits.single(gives_up).err(), Some("too late"));
        assert_eq!(permits.load(), (0, 0));
        assert!(permits.single(|| Err("nobody waits")).is_ok());
    }
}
