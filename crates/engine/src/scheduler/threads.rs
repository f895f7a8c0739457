//! The threads of an engine. If the system starts fewer than the engine wants, the work goes on with those that there are and with the callers' own, and
//! a notice says so.

use super::{Place, Scheduler, Worker, lock};
use crate::scheme::Kind;
use crate::{Error, Places, Process};
use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;

/// The scopes of a device's slots.
pub(super) type Scopes<'x, 'a> = [Vec<&'x rayon::Scope<'a>>];

/// Threads of a slot, at most. The host's work for a chunk is short, and to wake more threads takes longer than it. (One H100 in a host of 64 cores
/// verifies 5.7 million signatures of 128s a second with 8 threads or 16, and 3.2 to 3.6 million with 64.)
const THREADS_OF_A_SLOT: usize = 16;

/// Threads of each slot, where so many threads work for so many devices other than the host.
fn threads_of_slot(threads: usize, devices: usize) -> usize {
    match threads {
        1 => 1,
        _ => threads.div_ceil(devices.max(1)).clamp(2, THREADS_OF_A_SLOT),
    }
}

impl Scheduler {
    /// Whether chunks for this device are run by the thread that calls.
    pub(crate) fn works_on_calling_thread(&self, worker: &Worker) -> bool {
        self.shares_nothing(worker) || worker.lacks_threads(&self.pool)
    }

    /// Whether the calls on this device share neither threads nor permits.
    pub(super) fn shares_nothing(&self, worker: &Worker) -> bool {
        self.options.threads == 1 && worker.is_host()
    }

    /// Threads for so many jobs on a device.
    pub fn threads_for(&self, worker: &Worker, kind: Kind, jobs: usize) -> usize {
        if jobs == 1 && (kind.habits().is_chain || worker.is_discrete()) { 1 } else { self.options.threads }
    }

    /// Runs `work` with the threads of a slot, or with none if the engine has one thread, or the system starts no others.
    ///
    /// All of the host's own programs share one pool. On other devices each slot has a pool of its own, because a program there blocks the thread
    /// that waits for it. A thread that waits for others of its pool may begin with whatever else the pool has to do, such as another such program.
    pub(crate) fn with_pool<R>(
        &self,
        worker: &Worker,
        slot: usize,
        work: impl FnOnce(Option<&ThreadPool>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.options.threads {
            1 => work(None),
            _ => work(worker.pool(self, slot)?),
        }
    }

    /// Threads of a slot of a device other than the host.
    fn threads_of_slot(&self) -> usize {
        threads_of_slot(self.options.threads, self.all().filter(|worker| !worker.is_host()).count())
    }

    /// The host's threads.
    fn pool(&self) -> Result<Option<&ThreadPool>, Error> {
        self.same_process()?;
        // A single thread would do no more than the one that calls.
        Ok(self.pool.get_or_init(|| self.new_pool(self.options.threads, 2)).as_ref())
    }

    /// A place of the host, for work that no program does, such as copies for any device: with one thread, or with all of the engine's if `threads` is more.
    /// Its device has memory of its own, if there is such a device.
    pub fn host_place(&self, threads: usize) -> Result<Place<'_>, Error> {
        let worker = self.live().find(|worker| worker.has_memory()).unwrap_or_else(|| self.first());
        let threads = threads.min(self.options.threads);
        let pool = if threads > 1 { self.pool()? } else { None };
        Ok(Place { scheduler: self, worker, room: (0, 0), pool, threads, places: Places::Usual })
    }

    /// A pool of so many threads, fewer than the engine has; `None` if the system does not start as many.
    pub(super) fn narrow_pool(&self, threads: usize) -> Option<Arc<ThreadPool>> {
        let mut all = lock(&self.narrow);
        if let Some(pool) = all.iter().find(|pool| pool.current_num_threads() == threads) {
            return Some(pool.clone());
        }
        // The system is not asked again and again.
        let pool = self.notice().is_none().then(|| self.new_pool(threads, threads)).flatten()?;
        all.push_mut(Arc::new(pool)).clone().into()
    }

    /// Gives an error in a forked process. After a fork the child has none of its parent's threads, and permits that they held are never given back.
    /// Calls that run on the calling thread alone need neither.
    pub(super) fn same_process(&self) -> Result<(), Error> {
        self.same_process_as(Process::current())
    }

    /// Does as [`Scheduler::same_process`] does, for a caller that knows its process. The first process that calls this is the scheduler's, so whoever does
    /// no job must not call it.
    pub(super) fn same_process_as(&self, process: Process) -> Result<(), Error> {
        if self.all().all(|worker| self.shares_nothing(worker)) {
            return Ok(());
        }
        match *self.process.get_or_init(|| process) {
            first if first != process => Err(Error::of_parent()),
            _ => Ok(()),
        }
    }

    /// Runs `body` with a scope in the threads of every slot of these devices.
    pub(super) fn with_scopes<'a, R>(
        &'a self,
        devices: &[&'a Worker],
        body: &mut dyn FnMut(&Scopes<'_, 'a>) -> R,
    ) -> Result<R, Error> {
        let mut pools = Vec::new();
        for (device, worker) in devices.iter().enumerate() {
            if !self.works_on_calling_thread(worker) {
                let all =
                    (0..worker.permits.slots()).map(|slot| worker.pool(self, slot)).collect::<Result<Vec<_>, _>>()?;
                // If one slot has no threads, the calling thread runs the chunks of all.
                pools.extend(
                    all.into_iter().collect::<Option<Vec<_>>>().into_iter().flatten().map(|pool| (device, pool)),
                );
            }
        }
        let no_scopes: Vec<Vec<&rayon::Scope<'a>>> = devices.iter().map(|_| Vec::new()).collect();
        Ok(nest(&pools, &no_scopes, body))
    }

    /// A pool of so many threads, or of as many as the system starts; `None` if they are fewer than `least`.
    fn new_pool(&self, threads: usize, least: usize) -> Option<ThreadPool> {
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

impl Worker {
    /// The threads that run the chunks of a slot; `None` if the calling thread does, because the system starts none.
    pub(super) fn pool<'a>(&'a self, scheduler: &'a Scheduler, slot: usize) -> Result<Option<&'a ThreadPool>, Error> {
        match &self.pools {
            None => scheduler.pool(),
            Some(pools) => {
                scheduler.same_process()?;
                let threads = scheduler.threads_of_slot();
                Ok(pools[slot].get_or_init(|| scheduler.new_pool(threads, 1)).as_ref())
            }
        }
    }
}

/// Opens a scope in the first pool, and within it in the others.
fn nest<'a, R>(
    pools: &[(usize, &'a ThreadPool)],
    scopes: &Scopes<'_, 'a>,
    body: &mut dyn FnMut(&Scopes<'_, 'a>) -> R,
) -> R {
    let Some(((device, pool), others)) = pools.split_first() else { return body(scopes) };
    pool.in_place_scope(|scope| {
        let mut scopes: Vec<Vec<&rayon::Scope<'a>>> = scopes.to_vec();
        scopes[*device].push(scope);
        nest(others, &scopes, body)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::scheduler;
    use super::*;

    #[test]
    fn a_forked_process_gets_an_error_as_it_has_no_threads() {
        let scheduler = scheduler(2);
        // As if the parent process had started the threads.
        scheduler.process.set(Process(u64::MAX)).unwrap();
        let why = scheduler.pool().unwrap_err();
        assert!(why.to_string().contains("make a new engine"), "{why}");
        assert!(scheduler.with_pool(&scheduler.workers[0], 0, |_| Ok(())).is_err());
        // An engine that needs no threads goes on.
        let alone = super::super::tests::scheduler(1);
        assert_eq!(alone.with_pool(&alone.workers[0], 0, |pool| Ok(pool.is_none())), Ok(true));
    }

    #[test]
    fn devices_share_the_threads_and_none_has_too_many() {
        let shares = [(1, 1), (2, 4), (16, 1), (64, 1), (64, 4), (64, 8)];
        assert_eq!(shares.map(|(threads, devices)| threads_of_slot(threads, devices)), [1, 2, 16, 16, 16, 8]);
    }
}
