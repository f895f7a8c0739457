//! Work on a thread that belongs to no pool.

use super::lock;
use crate::Error;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::Builder;

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
