//! Work that a pool's threads share: groups of jobs in one queue.

use rayon::Scope;
use rayon::prelude::*;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

/// The sizes of groups of so many jobs, of which a thread does one after the other. A group has a thread's share of the jobs that are left, from `least`
/// to `most`, and at first no more than half of a thread's share of all, because some threads are slower than others. So the last groups are small and
/// all threads end at about the same time. A single thread gets groups of `most` jobs.
pub(crate) fn sizes(jobs: usize, threads: usize, least: usize, most: usize) -> impl Iterator<Item = usize> + use<> {
    let (mut left, least) = (jobs, jobs.div_ceil(threads).clamp(1, least.min(most)));
    let most = if threads == 1 { most } else { most.min(jobs / (2 * threads)).max(least) };
    iter::from_fn(move || {
        // Powers of two fill lanes.
        let share = 1 << (left / threads).clamp(least, most).ilog2();
        let size = if threads == 1 { most } else { share }.min(left);
        left -= size;
        (size > 0).then_some(size)
    })
}

/// Runs tasks on the threads of rayon's current pool: each takes the next one, in their order, until none is left. If rayon divided them instead, the
/// last task of a thread could be a large one.
pub(crate) fn each<T: Send>(tasks: Vec<T>, work: impl Fn(T) + Sync) {
    by_threads(rayon::current_num_threads(), tasks, |next, _| {
        while let Some(task) = next() {
            work(task);
        }
    });
}

/// Gives the next task, if one is left.
pub(crate) type Next<'n, T> = &'n mut dyn FnMut() -> Option<T>;

/// Calls its argument for half of the current task if a thread has no task, and gives the half to that thread.
pub(crate) type Offer<'o, T> = &'o dyn Fn(&mut dyn FnMut() -> T);

/// Runs `work` on so many threads of rayon's current pool, or on this thread if one suffices. They take tasks in the tasks' order, until none is left. Then
/// threads that still work can give halves of their tasks to the others. So tasks may be large, and all threads still end at about the same time.
pub(crate) fn by_threads<T: Send>(threads: usize, tasks: Vec<T>, work: impl Fn(Next<'_, T>, Offer<'_, T>) + Sync) {
    let runs = threads.min(tasks.len());
    let all = Shared { tasks: Mutex::new(tasks.into_iter()), threads, busy: AtomicUsize::new(runs), work };
    match runs {
        0 => {}
        1 => (all.work)(&mut || all.next(), &|_| ()),
        _ => rayon::scope(|scope| (0..runs).into_par_iter().with_max_len(1).for_each(|_| all.run(scope, None))),
    }
}

/// Tasks that threads share.
struct Shared<T, W> {
    tasks: Mutex<IntoIter<T>>,
    threads: usize,
    /// Threads that have a task or look for one, and those that rayon has not started yet.
    busy: AtomicUsize,
    work: W,
}

impl<T: Send, W: Fn(Next<'_, T>, Offer<'_, T>) + Sync> Shared<T, W> {
    fn next(&self) -> Option<T> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Works on the half of a task that another thread gave, and then on tasks until none is left.
    fn run<'s>(&'s self, scope: &Scope<'s>, mut given: Option<T>)
    where
        T: 's,
    {
        let offer = |half: &mut dyn FnMut() -> T| {
            let one_more = |busy| (busy < self.threads).then_some(busy + 1);
            if self.busy.fetch_update(Relaxed, Relaxed, one_more).is_ok() {
                let half = half();
                scope.spawn(move |scope| self.run(scope, Some(half)));
            }
        };
        (self.work)(&mut || given.take().or_else(|| self.next()), &offer);
        self.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::replace;
    use std::sync::Barrier;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn the_last_groups_are_small() {
        let of = |jobs, threads| sizes(jobs, threads, 4, 32).collect::<Vec<_>>();
        assert_eq!(of(70, 1), [32, 32, 6]);
        assert_eq!(of(70, 2), [16, 16, 16, 8, 4, 4, 4, 2]);
        assert_eq!(of(4, 4), [1; 4]);
        assert_eq!(of(7, 4), [2, 2, 2, 1]);
        assert!(of(0, 16).is_empty());
        let many = of(1024, 16);
        assert!(many.is_sorted_by(|a, b| a >= b) && many.iter().sum::<usize>() == 1024);
        assert_eq!([32, 16, 8, 4].map(|size| many.iter().filter(|of| **of == size).count()), [17, 15, 15, 30]);
        assert_eq!(sizes(9, 2, 4, 1).collect::<Vec<_>>(), [1; 9]);
    }

    #[test]
    fn threads_without_tasks_get_halves_of_others() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
        let (done, others) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let start = Instant::now();
        pool.install(|| {
            by_threads(3, vec![0..1000, 1000..1001], |next, offer| {
                while let Some(mut task) = next() {
                    while let Some(number) = task.next() {
                        // The first task waits at its first number until two other runs have done numbers of it.
                        while number == 0 && others.load(Relaxed) < 2 && start.elapsed() < Duration::from_secs(30) {
                            offer(&mut || {
                                let middle = task.start + task.len() / 2;
                                middle..replace(&mut task.end, middle)
                            });
                            thread::yield_now();
                        }
                        done.lock().expect("no panic").push(number);
                    }
                    others.fetch_add(usize::from(task.end < 1001), Relaxed);
                }
            });
        });
        assert!(others.into_inner() > 2, "two halves were done elsewhere");
        let mut done = done.into_inner().expect("no panic");
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1001));
    }

    #[test]
    fn nobody_gets_a_half_while_all_threads_have_tasks() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
        let both = Barrier::new(2);
        pool.install(|| {
            by_threads(2, vec![0, 1], |next, offer| {
                while next().is_some() {
                    both.wait();
                    offer(&mut || panic!("both threads have a task"));
                    both.wait();
                }
            });
        });
        by_threads(1, vec![7], |next, offer| {
            assert_eq!(next(), Some(7));
            offer(&mut || panic!("there is no other thread"));
            assert_eq!(next(), None);
        });
        by_threads(0, Vec::<()>::new(), |_, _| panic!("there is no task"));
    }

    #[test]
    fn each_task_runs_once() {
        let done = Mutex::new(Vec::new());
        each((0..1000).collect(), |task: usize| done.lock().expect("no panic").push(task));
        let mut done = done.into_inner().expect("no panic");
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1000));
        each(Vec::<usize>::new(), |_| panic!("there is none"));
    }
}
