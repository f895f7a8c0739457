//! Cuts an endless row of jobs into sub-batches: large enough to keep lanes and threads busy, small enough for the
//! memory budget and for results to come out soon.

use std::iter::{Enumerate, Fuse};
use std::time::Duration;

/// What a sub-batch may not exceed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Bytes: the program, and for every job its output and what it owns.
    pub memory: u64,
    /// Jobs.
    pub jobs: usize,
    /// Predicted time; but `least` jobs are always taken together.
    pub time: Duration,
    /// Jobs that it takes to keep every thread busy.
    pub least: usize,
}

/// What the planner knows of jobs.
pub trait Weigh<J> {
    /// Jobs of one group run in one program.
    type Group: PartialEq;
    /// The group of a job; `None` if it needs no program, because its input is bad.
    fn group(&self, job: &J) -> Option<Self::Group>;
    /// Bytes that the job and its output take while its sub-batch is worked on.
    fn held(&self, job: &J) -> u64;
    /// Bytes of the program for up to `jobs` jobs of a group.
    fn program(&self, group: &Self::Group, jobs: usize) -> u64;
    /// Predicted time of one job in a full sub-batch.
    fn seconds(&self, group: &Self::Group) -> f64;
}

/// A number of jobs that a program is prepared for: one of few, so that programs can be used again.
pub fn bucket(jobs: usize) -> usize {
    jobs.next_power_of_two()
}

/// What comes out of [`SubBatches`], each job with its index.
#[derive(Debug, PartialEq)]
pub enum SubBatch<J> {
    /// Jobs to be worked on together, and the bytes that they and their outputs take.
    Run(Vec<(usize, J)>, u64),
    /// A job that exceeds the budget by itself, and the bytes that it needs.
    TooLarge(usize, J, u64),
}

/// An iterator of sub-batches. It takes one job more from its source than the sub-batch that it gives out, at most.
pub struct SubBatches<I: Iterator, W> {
    jobs: Fuse<Enumerate<I>>,
    /// Taken from the source, but too much for the sub-batch before.
    waiting: Option<(usize, I::Item)>,
    weigh: W,
    bounds: Bounds,
}

/// The jobs of one group in the sub-batch that is being filled.
struct Part<G> {
    group: G,
    jobs: usize,
    seconds: f64,
    /// Bytes of the program for bucket(jobs) jobs.
    program: u64,
}

impl<I: Iterator, W: Weigh<I::Item>> SubBatches<I, W> {
    /// Cuts `jobs`.
    pub fn new(jobs: I, weigh: W, bounds: Bounds) -> SubBatches<I, W> {
        SubBatches { jobs: jobs.enumerate().fuse(), waiting: None, weigh, bounds }
    }

    /// Adds a job to the parts and gives the bytes that all of them then need: programs run one after the other.
    fn add(&self, parts: &mut Vec<Part<W::Group>>, job: &I::Item) -> u64 {
        if let Some(group) = self.weigh.group(job) {
            let at = parts.iter().position(|part| part.group == group).unwrap_or_else(|| {
                let seconds = self.weigh.seconds(&group);
                parts.push(Part { group, jobs: 0, seconds, program: 0 });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.jobs += 1;
            // A bucket is left when its power of two is passed.
            if (part.jobs - 1).is_power_of_two() || part.jobs == 1 {
                part.program = self.weigh.program(&part.group, bucket(part.jobs));
            }
        }
        parts.iter().map(|part| part.program).max().unwrap_or(0)
    }
}

impl<I: Iterator, W: Weigh<I::Item>> Iterator for SubBatches<I, W> {
    type Item = SubBatch<I::Item>;

    fn next(&mut self) -> Option<SubBatch<I::Item>> {
        let (mut taken, mut parts, mut held) = (Vec::new(), Vec::new(), 0u64);
        while let Some((index, job)) = self.waiting.take().or_else(|| self.jobs.next()) {
            let with_job = held.saturating_add(self.weigh.held(&job));
            let needs = with_job.saturating_add(self.add(&mut parts, &job));
            if needs > self.bounds.memory {
                if taken.is_empty() {
                    return Some(SubBatch::TooLarge(index, job, needs));
                }
                self.waiting = Some((index, job));
                break;
            }
            held = with_job;
            taken.push((index, job));
            let seconds: f64 = parts.iter().map(|part| part.jobs as f64 * part.seconds).sum();
            let long = seconds >= self.bounds.time.as_secs_f64() && taken.len() >= self.bounds.least;
            if taken.len() >= self.bounds.jobs || long {
                break;
            }
        }
        (!taken.is_empty()).then_some(SubBatch::Run(taken, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A job is (group, bytes); a program takes 100 bytes and 10 a job; a job of group 9 takes a second, others none.
    struct Fake;
    impl Weigh<(u8, u64)> for Fake {
        type Group = u8;
        fn group(&self, job: &(u8, u64)) -> Option<u8> {
            (job.0 > 0).then_some(job.0)
        }
        fn held(&self, job: &(u8, u64)) -> u64 {
            job.1
        }
        fn program(&self, _: &u8, jobs: usize) -> u64 {
            assert!(jobs.is_power_of_two());
            100 + 10 * jobs as u64
        }
        fn seconds(&self, group: &u8) -> f64 {
            f64::from(u8::from(*group == 9))
        }
    }

    const WIDE: Bounds = Bounds { memory: u64::MAX, jobs: usize::MAX, time: Duration::MAX, least: 1 };

    fn sizes(jobs: &[(u8, u64)], bounds: Bounds) -> Vec<usize> {
        let mut next = 0;
        SubBatches::new(jobs.iter().copied(), Fake, bounds)
            .map(|sub| {
                let (indices, size): (Vec<usize>, usize) = match sub {
                    SubBatch::Run(jobs, held) => {
                        assert_eq!(held, jobs.iter().map(|(_, job)| job.1).sum::<u64>());
                        (jobs.iter().map(|(i, _)| *i).collect(), jobs.len())
                    }
                    SubBatch::TooLarge(index, ..) => (vec![index], 0),
                };
                assert_eq!(indices, (next..next + indices.len()).collect::<Vec<_>>(), "every job once, in order");
                next += indices.len();
                size
            })
            .collect()
    }

    #[test]
    fn memory_jobs_and_time_bound_a_sub_batch() {
        assert_eq!(sizes(&[], WIDE), []);
        assert_eq!(sizes(&[(1, 5); 7], WIDE), [7]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { jobs: 3, ..WIDE }), [3, 3, 1]);
        // 100 + 10·4 + 4·5 = 160 fits; the fifth job needs a program for eight.
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 160, ..WIDE }), [4, 3]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 159, ..WIDE }), [3, 3, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), ..WIDE }), [2, 2, 2, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), least: 4, ..WIDE }), [4, 3]);
    }

    #[test]
    fn groups_share_the_budget_and_bad_jobs_cost_no_program() {
        // Two programs of two jobs each, one after the other: 120 bytes, not 240.
        assert_eq!(sizes(&[(1, 0), (2, 0), (1, 0), (2, 0)], Bounds { memory: 120, ..WIDE }), [4]);
        assert_eq!(sizes(&[(0, 50), (0, 50), (0, 50)], Bounds { memory: 100, ..WIDE }), [2, 1]);
    }

    #[test]
    fn a_job_too_large_by_itself_is_set_aside() {
        let jobs = [(1, 1), (1, 900), (1, 1), (1, 900)];
        assert_eq!(sizes(&jobs, Bounds { memory: 200, ..WIDE }), [1, 0, 1, 0]);
        let mut subs = SubBatches::new(jobs.iter().copied(), Fake, Bounds { memory: 200, ..WIDE });
        assert_eq!(subs.nth(1), Some(SubBatch::TooLarge(1, (1, 900), 1010)));
    }

    #[test]
    fn the_source_is_read_no_further_than_needed() {
        let pulled = Cell::new(0);
        let source = (0..1000).map(|_| {
            pulled.set(pulled.get() + 1);
            (1, 5)
        });
        let mut subs = SubBatches::new(source, Fake, Bounds { memory: 160, ..WIDE });
        for round in 1..=10 {
            subs.next();
            assert_eq!(pulled.get(), 4 * round + 1);
        }
    }
}
