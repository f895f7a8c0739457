//! The threads of an engine. If the system starts fewer than the engine wants, the work goes on with those that there are and with the callers' own, and
//! a notice says so.

use super::{Scheduler, lock};
use crate::Error;
use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};
use std::fmt::Display;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;

impl Scheduler {
    /// A pool of so many threads, or of as many as the system starts; `None` if they are fewer than `least`.
    pub(super) fn new_pool(&self, threads: usize, least: usize) -> Option<ThreadPool> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (number, mut wanted) = (NUMBER.fetch_add(1, Relaxed), threads);
        while wanted >= least {
            let mut started = Vec::new();
            let start = |thread: ThreadBuilder| {
                let builder = Builder::new().name(format!("hypergrove-{number}-{}", thread.index()));
                started.push(builder.spawn(|| thread.run())?);
                Ok(())
            };
            match ThreadPoolBuilder::new().num_threads(wanted).spawn_handler(start).build() {
                Ok(pool) => return Some(pool),
                Err(why) => {
                    self.note_threads(threads, started.len(), &why);
                    wanted = started.len().min(wanted - 1);
                    // The next attempt can have the threads of this one once they have ended.
                    started.into_iter().for_each(|thread| drop(thread.join()));
                }
            }
        }
        None
    }

    /// Makes a notice, the first time that threads could not be started.
    pub(super) fn note_threads(&self, wanted: usize, started: usize, why: &dyn Display) {
        self.notice.get_or_init(|| {
            format!(
                "{started} of {wanted} threads could be started: {why}; the work goes on with these and with the threads that call; \
                 to have more, raise the limit of processes (`ulimit -u`, or `pids.max` of the control group)"
            )
        });
    }

    /// The notice that the system did not start all threads, if it did not.
    pub fn notice(&self) -> Option<&str> {
        self.notice.get().map(String::as_str)
    }
}

/// Runs `work`, which holds a permit or a lock, on a thread that belongs to no pool. A thread of a pool that waits for others may
/// begin with whatever else its pool has to do: with another call, say, which then waits for the permit that it holds itself. `work` gets whether its
/// thread belongs to no pool. If no thread can be started, it runs in the pool if it `may_stay`, and must wait for no others there.
pub(crate) fn outside_pools<R: Send>(
    may_stay: bool,
    work: impl FnOnce(bool) -> Result<R, Error> + Send,
) -> Result<R, Error> {
    if rayon::current_thread_index().is_none() {
        return work(true);
    }
    let work = Mutex::new(Some(work));
    let run = |is_outside| lock(&work).take().expect("it runs once")(is_outside);
    std::thread::scope(|scope| {
        let thread = Builder::new().name("hypergrove-call".into()).spawn_scoped(scope, || run(true));
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) if may_stay => run(false),
            Err(why) => Err(Error::no_threads(1, why)),
        }
    })
}
