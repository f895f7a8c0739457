//! The places where jobs run, and the work that threads share there.

use super::permits::lock;
use super::{Scheduler, Worker};
use crate::scheme::Prepared;
use crate::scheme::{Group, GroupFacts};
use crate::trace::{Step, TraceContext};
use crate::{Error, Places, THREADS, Timing, time_limit};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::iter::repeat_with;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

/// Runs a program in the given places of its device. Gives the time that this took.
pub type RunProgram<'w> = &'w mut (dyn FnMut(&mut dyn Prepared, Places) -> Result<Timing, Error> + Send);

/// Runs the next slice of the task with this number, and hands out its results. Gives `Break` when the task is done.
type SliceOfTask<'w, T> = &'w (dyn Fn(usize, &mut dyn FnMut(T)) -> ControlFlow<()> + Sync);

/// About how many ranges of shared work each thread has: a thread that is done early takes some of the others' ranges.
const RANGES_OF_A_THREAD: usize = 8;

/// The size of a range if a pool's threads share `count` numbers: `least` or more.
fn range_size(pool: &ThreadPool, count: usize, least: usize) -> usize {
    count.div_ceil(RANGES_OF_A_THREAD * pool.current_num_threads()).max(least).max(1)
}

/// A place where jobs run: a slot of a device.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The scheduler of the place.
    pub scheduler: &'a Scheduler,
    /// The device.
    pub worker: &'a Worker,
    /// Bytes for a program, and for all idle programs of the device.
    pub room: (u64, u64),
    /// Threads for the work that the host does for a program; `None` if the calling thread does all of it.
    pub pool: Option<&'a ThreadPool>,
    /// The number of threads that programs of the host may use here.
    pub threads: usize,
    /// Where on the device programs compute jobs.
    pub places: Places,
}

/// A message from a slice of a task to the thread that takes results.
enum FromSlice<T> {
    Result(T),
    /// The slice ended, and its task goes on with this sender. The call ends when no task has a sender.
    GoesOn(usize, Sender<FromSlice<T>>),
}

/// The place where jobs of one group run, and the facts about the group.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The place.
    pub place: Place<'a>,
    /// The facts about the group on the place's device.
    pub facts: &'a Arc<GroupFacts>,
}

impl Place<'_> {
    /// Runs `work` on ranges that make up `0..count`, on the threads that there are. Ranges have `least` numbers or more, but for the last.
    ///
    /// Rayon is compiled here once, and in [`Place::map_in_place`] for each type of results.
    pub fn ranges(&self, count: usize, least: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let Some(pool) = self.pool.filter(|_| count > least) else { return work(0..count) };
        let size = range_size(pool, count, least);
        let ranges = (0..count.div_ceil(size)).into_par_iter();
        pool.install(|| ranges.for_each(|i| work(i * size..count.min((i + 1) * size))));
    }

    /// Computes `work` for each number below `count`. A thread does `least` numbers or more. One thread moves all results at the end: for many large
    /// values, [`Place::map_in_place`] is faster.
    pub fn map<T: Send>(&self, count: usize, least: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
        let Some(pool) = self.pool.filter(|_| count > least) else { return (0..count).map(work).collect() };
        let size = range_size(pool, count, least);
        let mut all: Vec<Option<T>> = repeat_with(|| None).take(count).collect();
        let make = |(range, to): (usize, &mut [Option<T>])| {
            to.iter_mut().zip(range * size..).for_each(|(to, number)| *to = Some(work(number)));
            Ok(())
        };
        self.each_of(all.chunks_mut(size).enumerate().collect(), &make).expect("none of them fails");
        all.into_iter().map(|made| made.expect("a thread made it")).collect()
    }

    /// Computes as [`Place::map`] does, without a copy. It takes ten times as long to compile for each type.
    pub fn map_in_place<T: Send>(&self, count: usize, least: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
        match self.pool {
            Some(pool) if count > least => {
                pool.install(|| (0..count).into_par_iter().with_min_len(least).map(work).collect())
            }
            _ => (0..count).map(work).collect(),
        }
    }

    /// The first number below `count` for which `is_found` holds. A thread asks for `least` of them or more.
    pub fn find(&self, count: usize, least: usize, is_found: &(dyn Fn(usize) -> bool + Sync)) -> Option<usize> {
        let first = AtomicUsize::new(usize::MAX);
        self.ranges(count, least, &|range| {
            let goes_on = |i: &usize| *i < first.load(Relaxed);
            if let Some(found) = range.take_while(goes_on).find(|i| is_found(*i)) {
                first.fetch_min(found, Relaxed);
            }
        });
        Some(first.into_inner()).filter(|first| *first < usize::MAX)
    }

    /// Does the host's share of each item, until one fails.
    pub fn each_of<T: Send>(&self, all: Vec<T>, work: &(dyn Fn(T) -> Result<(), Error> + Sync)) -> Result<(), Error> {
        if self.pool.is_none() || all.len() < 2 {
            return all.into_iter().try_for_each(work);
        }
        let (slots, failed) = (all.into_iter().map(|one| Mutex::new(Some(one))).collect::<Vec<_>>(), OnceLock::new());
        self.ranges(slots.len(), 1, &|range| {
            let taken = slots[range].iter().take_while(|_| failed.get().is_none()).filter_map(|slot| lock(slot).take());
            if let Some(why) = taken.map(work).find_map(Result::err) {
                let _ = failed.set(why);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Runs tasks concurrently, slice by slice. The calling thread starts each slice anew, behind the work that other calls have brought meanwhile: so a
    /// long task does not keep a thread. The task is done when a slice gives `Break`. `take` gets all results on the calling thread.
    pub fn in_slices<T: Send>(&self, tasks: usize, slice: SliceOfTask<'_, T>, take: &mut dyn FnMut(T)) {
        // A thread of the pool must not wait here for its tasks: if all its threads did, none would run them.
        let Some(pool) = self.pool.filter(|pool| tasks > 1 && pool.current_thread_index().is_none()) else {
            return (0..tasks).for_each(|task| while slice(task, take).is_continue() {});
        };
        pool.in_place_scope(|scope| {
            let start = |task, sender: Sender<FromSlice<T>>| {
                scope.spawn(move |_| {
                    // Sending fails only if the calling thread panicked. Then no task goes on.
                    let send = |message| drop(sender.send(message));
                    if slice(task, &mut |result| send(FromSlice::Result(result))).is_continue() {
                        send(FromSlice::GoesOn(task, sender.clone()));
                    }
                });
            };
            let (sender, messages) = channel();
            (0..tasks).for_each(|task| start(task, sender.clone()));
            // There are no more messages once the last task has dropped its sender.
            drop(sender);
            messages.into_iter().for_each(|message| match message {
                FromSlice::Result(result) => take(result),
                FromSlice::GoesOn(task, sender) => start(task, sender),
            });
        });
    }

    /// Runs `work` in the place's pool, so that its parallel parts use that pool.
    pub fn install(&self, work: &mut (dyn FnMut() -> Result<(), Error> + Send)) -> Result<(), Error> {
        match self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Runs `work` with exclusive use of a program for jobs of a group, in the threads that the program's policy asks for, and adds the time
    /// that `work` gives to the engine's. [`typed`](crate::programs::typed) gives `work` the program as its scheme's own type. Tests of the device
    /// that so many jobs need are made before. A program that failed is not used again, unless it only lacks the memory to compute in both places.
    pub fn program(&self, facts: &GroupFacts, jobs: usize, work: RunProgram<'_>) -> Result<(), Error> {
        let Place { scheduler, worker, room, pool, places, .. } = *self;
        // Without a pool, a program for several threads would look for threads elsewhere.
        let lacks_threads = pool.is_none() && (worker.is_host() || scheduler.works_on_calling_thread(worker));
        let alone = match facts.group.threads > 1 && lacks_threads {
            true => Some(worker.programs.facts(Group { threads: 1, ..facts.group })?),
            false => None,
        };
        let facts = alone.as_deref().unwrap_or(facts);
        let mut lent = worker.programs.lend(facts, scheduler.work.checks.room_for(jobs), room)?;
        let threads = lent.policy.get(THREADS).map_or(1, |threads| threads as usize);
        let trace = TraceContext::current();
        let mut compute = || {
            lent.prove()?;
            let program = &mut *lent.program;
            if !worker.is_host() {
                let seconds = facts.measured(jobs).unwrap_or_else(|| facts.seconds());
                program.time_limit(time_limit(seconds * jobs as f64, scheduler.options.device_timeout));
            }
            trace.step(Step::Program, jobs, || work(program, places))
        };
        let timing = match pool.filter(|_| facts.uses_threads()) {
            // Only the host's own programs need a pool of as many threads as their policy has.
            Some(pool) if threads >= pool.current_num_threads() || !worker.is_host() => pool.install(compute),
            Some(pool) if threads > 1 => match scheduler.narrow_pool(threads) {
                Some(narrow) => narrow.install(compute),
                None => pool.install(compute),
            },
            _ => compute(),
        };
        if matches!((&timing, places), (Err(Error::OutOfMemory { .. }), Places::Both)) {
            lent.make_idle();
            return timing.map(drop);
        }
        let timing = timing?;
        *lock(&scheduler.timing) += &timing;
        lent.give_back(places, &timing);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::scheduler;
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;
    use std::thread::{scope, yield_now};

    #[test]
    fn between_slices_other_calls_get_the_threads() {
        for threads in [1, 2] {
            let (scheduler, other_is_done, mut results) =
                (scheduler(threads), AtomicBool::new(threads == 1), Vec::new());
            let place = scheduler.host_place(usize::MAX).unwrap();
            // The tasks go on until the other call is done, which needs a thread of theirs.
            let slice = |task: usize, done: &mut dyn FnMut(usize)| {
                done(task);
                yield_now();
                if other_is_done.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            scope(|scope| {
                scope.spawn(|| {
                    place.ranges(16, 1, &|_| ());
                    other_is_done.store(true, Relaxed);
                });
                place.in_slices(2, &slice, &mut |task| results.push(task));
            });
            assert!([0, 1].iter().all(|task| results.contains(task)), "{threads} threads");
            // A thread of the pool does all by itself.
            let mut alone = Vec::new();
            let done = place.install(&mut || {
                place.in_slices(2, &slice, &mut |task| alone.push(task));
                Ok(())
            });
            assert_eq!((done, alone), (Ok(()), vec![0, 1]), "{threads} threads");
        }
    }

    #[test]
    fn a_panic_ends_the_slices() {
        let scheduler = scheduler(2);
        let place = scheduler.host_place(usize::MAX).unwrap();
        let endless = |task: usize, done: &mut dyn FnMut(usize)| {
            done(task);
            ControlFlow::Continue(())
        };
        let takes = AssertUnwindSafe(|| place.in_slices(2, &endless, &mut |_| panic!("a fault of the sink")));
        assert_eq!(catch_unwind(takes).unwrap_err().downcast_ref(), Some(&"a fault of the sink"));
        let fails = |task: usize, _: &mut dyn FnMut(usize)| match task {
            0 => ControlFlow::Break(()),
            _ => panic!("a fault of a reader"),
        };
        let runs = AssertUnwindSafe(|| place.in_slices(2, &fails, &mut |_| ()));
        assert_eq!(catch_unwind(runs).unwrap_err().downcast_ref(), Some(&"a fault of a reader"));
    }
}
