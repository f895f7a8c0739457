//! Work that a pool's threads share: groups of jobs in one queue.

use rayon::prelude::*;
use std::iter;
use std::sync::{Mutex, PoisonError};

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
    let threads = tasks.len().min(rayon::current_num_threads());
    by_threads(threads, tasks, |next| {
        while let Some(task) = next() {
            work(task);
        }
    });
}

/// Runs `work` on so many threads of rayon's current pool, or on this thread if it is one. They take tasks by the function that they get, in the
/// tasks' order, until none is left.
pub(crate) fn by_threads<T: Send>(threads: usize, tasks: Vec<T>, work: impl Fn(&dyn Fn() -> Option<T>) + Sync) {
    let tasks = Mutex::new(tasks.into_iter());
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    match threads {
        1 => work(&next),
        _ => (0..threads).into_par_iter().with_max_len(1).for_each(|_| work(&next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn each_task_runs_once() {
        let done = Mutex::new(Vec::new());
        each((0..1000).collect(), |task: usize| done.lock().expect("no panic").push(task));
        let mut done = done.into_inner().expect("no panic");
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1000));
        each(Vec::<usize>::new(), |_| panic!("there is none"));
    }
}
