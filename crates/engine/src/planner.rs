//! Cuts an endless stream of jobs into sub-batches: large enough to keep lanes and threads busy, small enough for the
//! memory budget and for results to come out soon.

use std::collections::VecDeque;
use std::iter::Enumerate;
use std::time::Duration;

/// The limits of a sub-batch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Bytes of the program, and of every job's output and own memory.
    pub memory: u64,
    /// Jobs.
    pub jobs: usize,
    /// Predicted time; but `least` jobs are taken together even if they take longer.
    pub time: Duration,
    /// Jobs that suffice to keep the device busy.
    pub least: usize,
}

/// Weighs jobs for the planner, on the device that the sub-batch is for.
pub trait Weigh<J> {
    /// The group of a job. Jobs of one group run in one program.
    type Group: PartialEq;
    /// The number of jobs that `job` counts for: it may be a block of many.
    fn count(&self, job: &J) -> usize;
    /// The group of a job; `None` if it needs no program, because its input is bad.
    fn group(&self, job: &J) -> Option<Self::Group>;
    /// Bytes that the job and its output take while its sub-batch is worked on.
    fn held(&self, job: &J) -> u64;
    /// Whether the device executes this group.
    fn takes(&self, group: &Self::Group) -> bool;
    /// Jobs of this group that one program takes.
    fn most(&self, group: &Self::Group) -> usize;
    /// Bytes of the program for up to `jobs` jobs of a group.
    fn program(&self, group: &Self::Group, jobs: usize) -> u64;
    /// Predicted time of one job in a full sub-batch.
    fn seconds(&self, group: &Self::Group) -> f64;
}

/// The number of jobs for which a program is prepared: the next power of two, so that few different programs are used again.
pub fn bucket(jobs: usize) -> usize {
    jobs.next_power_of_two()
}

/// An output of [`SubBatches`], each job with its index.
#[derive(Debug, PartialEq)]
pub enum SubBatch<J> {
    /// Jobs to be worked on together, their indices without gaps, and the bytes that they and their outputs take.
    Run(Vec<(usize, J)>, u64),
    /// A job that exceeds the memory by itself, and the bytes that it needs.
    TooLarge(usize, J, u64),
}

/// A stream of jobs that is cut into sub-batches. It takes at most one job more from its source than it gives out. The source may have no job now and
/// another one later.
pub struct SubBatches<I: Iterator> {
    jobs: Enumerate<I>,
    /// Jobs that were taken from the source and not given out, or were given back, in order.
    waiting: VecDeque<(usize, I::Item)>,
}

/// The jobs of one group in the sub-batch that is being filled.
struct GroupJobs<G> {
    group: G,
    /// The number that its jobs count for.
    jobs: usize,
    /// The most that one program takes.
    most: usize,
    /// Seconds a job.
    seconds: f64,
    /// Bytes of the program for bucket(jobs) jobs.
    program: u64,
}

impl<I: Iterator> SubBatches<I> {
    /// A stream that takes its jobs from `jobs`.
    pub fn new(jobs: I) -> SubBatches<I> {
        SubBatches { jobs: jobs.enumerate(), waiting: VecDeque::new() }
    }

    /// The next job of those that were taken from the source already.
    pub fn waiting(&self) -> Option<&(usize, I::Item)> {
        self.waiting.front()
    }

    /// The next job, which stays in the stream.
    pub fn peek(&mut self) -> Option<&(usize, I::Item)> {
        if self.waiting.is_empty() {
            self.waiting.extend(self.jobs.next());
        }
        self.waiting.front()
    }

    /// Takes the next job out of the stream.
    pub fn pop(&mut self) -> Option<(usize, I::Item)> {
        self.waiting.pop_front().or_else(|| self.jobs.next())
    }

    /// All jobs that were taken from the source and not given out.
    pub fn all_waiting(&self) -> impl Iterator<Item = &(usize, I::Item)> {
        self.waiting.iter()
    }

    /// No more jobs than this are left in the source, if the source says so.
    pub fn left_in_source(&self) -> Option<usize> {
        self.jobs.size_hint().1
    }

    /// The most jobs that are left in the stream, if the source says how many it has left at most.
    pub fn left(&self) -> Option<usize> {
        self.left_in_source().map(|left| left.saturating_add(self.waiting.len()))
    }

    /// Takes jobs back that were given out, to be given out again. They follow each other, as [`cut`](SubBatches::cut) gives them.
    pub fn give_back(&mut self, jobs: Vec<(usize, I::Item)>) {
        let Some((first, _)) = jobs.first() else { return };
        let at = self.waiting.partition_point(|(index, _)| index < first);
        let later = self.waiting.split_off(at);
        self.waiting.extend(jobs);
        self.waiting.extend(later);
    }

    /// Adds a job to the parts. Gives the bytes of the largest program, since the programs of a sub-batch run one after the other, and whether the job's program takes
    /// no more jobs. `None` if the device does not execute the job, or if its program has no room for it.
    fn add<W: Weigh<I::Item>>(weigh: &W, parts: &mut Vec<GroupJobs<W::Group>>, job: &I::Item) -> Option<(u64, bool)> {
        let mut full = false;
        // A job without a group is a bad one, whose error is its result: it fits anywhere.
        if let Some(group) = weigh.group(job) {
            let at = match parts.iter().position(|part| part.group == group) {
                Some(at) => at,
                None if weigh.takes(&group) => {
                    let (seconds, most) = (weigh.seconds(&group), weigh.most(&group));
                    parts.push(GroupJobs { group, jobs: 0, most, seconds, program: 0 });
                    parts.len() - 1
                }
                None => return None,
            };
            let part = &mut parts[at];
            let before = part.jobs;
            // A single job fits, however many it counts for.
            if before > 0 && before + weigh.count(job) > part.most {
                return None;
            }
            part.jobs += weigh.count(job);
            full = part.jobs >= part.most;
            if before == 0 || bucket(before) != bucket(part.jobs) {
                part.program = weigh.program(&part.group, bucket(part.jobs));
            }
        }
        Some((parts.iter().map(|part| part.program).max().unwrap_or(0), full))
    }

    /// The next sub-batch, whose jobs follow each other: between them there can be jobs that are still given out. `TooLarge` if the first job exceeds the
    /// memory by itself. `None` if there are no more jobs, or the next one is not for this device.
    pub fn cut<W: Weigh<I::Item>>(&mut self, weigh: &W, bounds: Bounds) -> Option<SubBatch<I::Item>> {
        let (mut taken, mut parts, mut held) = (Vec::<(usize, I::Item)>::new(), Vec::new(), 0u64);
        let mut counted = 0;
        while let Some((index, job)) = self.pop() {
            let is_too_many = counted > 0 && weigh.count(&job) > bounds.jobs - counted;
            let follows = !is_too_many && taken.last().is_none_or(|(last, _)| last + 1 == index);
            let Some((programs, full)) = follows.then(|| Self::add(weigh, &mut parts, &job)).flatten() else {
                self.waiting.push_front((index, job));
                break;
            };
            let with_job = held.saturating_add(weigh.held(&job));
            let needs = with_job.saturating_add(programs);
            if needs > bounds.memory {
                if taken.is_empty() {
                    return Some(SubBatch::TooLarge(index, job, needs));
                }
                self.waiting.push_front((index, job));
                break;
            }
            held = with_job;
            counted += weigh.count(&job);
            taken.push((index, job));
            let seconds: f64 = parts.iter().map(|part| part.jobs as f64 * part.seconds).sum();
            let long = seconds >= bounds.time.as_secs_f64() && counted >= bounds.least;
            if full || long || counted >= bounds.jobs {
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

    /// A job is (group, bytes); a program takes 100 bytes and 10 a job; a job of group 9 takes a second, others none;
    /// two jobs of group 7 fill a program; the device declines group 8.
    struct Fake;
    impl Weigh<(u8, u64)> for Fake {
        type Group = u8;
        fn count(&self, _: &(u8, u64)) -> usize {
            1
        }
        fn group(&self, job: &(u8, u64)) -> Option<u8> {
            (job.0 > 0).then_some(job.0)
        }
        fn held(&self, job: &(u8, u64)) -> u64 {
            job.1
        }
        fn takes(&self, group: &u8) -> bool {
            *group != 8
        }
        fn most(&self, group: &u8) -> usize {
            if *group == 7 { 2 } else { usize::MAX }
        }
        fn program(&self, _: &u8, jobs: usize) -> u64 {
            assert!(jobs.is_power_of_two());
            100 + 10 * jobs as u64
        }
        fn seconds(&self, group: &u8) -> f64 {
            f64::from(u8::from(*group == 9))
        }
    }

    const UNBOUNDED: Bounds = Bounds { memory: u64::MAX, jobs: usize::MAX, time: Duration::MAX, least: 1 };

    fn sizes(jobs: &[(u8, u64)], bounds: Bounds) -> Vec<usize> {
        let (mut next, mut subs) = (0, SubBatches::new(jobs.iter().copied()));
        std::iter::from_fn(|| subs.cut(&Fake, bounds))
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
        assert_eq!(sizes(&[], UNBOUNDED), [0; 0]);
        assert_eq!(sizes(&[(1, 5); 7], UNBOUNDED), [7]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { jobs: 3, ..UNBOUNDED }), [3, 3, 1]);
        // 100 + 10·4 + 4·5 = 160 fits; the fifth job needs a program for eight.
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 160, ..UNBOUNDED }), [4, 3]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 159, ..UNBOUNDED }), [3, 3, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), ..UNBOUNDED }), [2, 2, 2, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), least: 4, ..UNBOUNDED }), [4, 3]);
    }

    #[test]
    fn groups_share_the_budget_and_bad_jobs_cost_no_program() {
        // Two programs of two jobs each, one after the other: 120 bytes, not 240.
        assert_eq!(sizes(&[(1, 0), (2, 0), (1, 0), (2, 0)], Bounds { memory: 120, ..UNBOUNDED }), [4]);
        assert_eq!(sizes(&[(0, 50), (0, 50), (0, 50)], Bounds { memory: 100, ..UNBOUNDED }), [2, 1]);
    }

    #[test]
    fn a_job_too_large_by_itself_is_refused() {
        let jobs = [(1, 1), (1, 900), (1, 1), (1, 900)];
        assert_eq!(sizes(&jobs, Bounds { memory: 200, ..UNBOUNDED }), [1, 0, 1, 0]);
        let mut subs = SubBatches::new(jobs.iter().copied());
        let bounds = Bounds { memory: 200, ..UNBOUNDED };
        subs.cut(&Fake, bounds);
        assert_eq!(subs.cut(&Fake, bounds), Some(SubBatch::TooLarge(1, (1, 900), 1010)));
    }

    #[test]
    fn programs_and_devices_bound_a_sub_batch() {
        assert_eq!(sizes(&[(7, 0); 5], UNBOUNDED), [2, 2, 1]);
        assert_eq!(sizes(&[(7, 0), (1, 0), (1, 0), (7, 0), (1, 0)], UNBOUNDED), [4, 1]);
        // The job that the device declines stays first, for another device.
        let mut subs = SubBatches::new([(1, 0), (1, 0), (8, 0)].into_iter());
        assert!(matches!(subs.cut(&Fake, UNBOUNDED), Some(SubBatch::Run(jobs, 0)) if jobs.len() == 2));
        assert_eq!((subs.cut(&Fake, UNBOUNDED), subs.waiting()), (None, Some(&(2, (8, 0)))));
    }

    #[test]
    fn what_is_given_back_comes_again_and_first() {
        let mut subs = SubBatches::new((0..10).map(|i| (1, i)));
        let bounds = Bounds { jobs: 3, ..UNBOUNDED };
        let cut = |subs: &mut SubBatches<_>| match subs.cut(&Fake, bounds) {
            Some(SubBatch::Run(jobs, _)) => jobs,
            other => panic!("{other:?}"),
        };
        let [first, second, third] = [(); 3].map(|()| cut(&mut subs));
        assert_eq!(subs.left(), Some(1));
        subs.give_back(third);
        subs.give_back(first);
        assert_eq!((subs.left(), subs.waiting()), (Some(7), Some(&(0, (1, 0)))));
        // No sub-batch skips over jobs that are still out.
        let indices = |jobs: Vec<(usize, (u8, u64))>| jobs.iter().map(|job| job.0).collect::<Vec<_>>();
        assert_eq!(indices(cut(&mut subs)), [0, 1, 2]);
        subs.give_back(second[1..].to_vec());
        assert_eq!(subs.peek(), Some(&(4, (1, 4))));
        assert_eq!(indices(cut(&mut subs)), [4, 5, 6]);
        assert_eq!(indices(cut(&mut subs)), [7, 8, 9]);
        assert_eq!(subs.peek(), None);
        assert_eq!(subs.cut(&Fake, bounds), None);
    }

    #[test]
    fn the_source_is_read_no_further_than_needed() {
        let pulled = Cell::new(0);
        let source = (0..1000).map(|_| {
            pulled.set(pulled.get() + 1);
            (1, 5)
        });
        let mut subs = SubBatches::new(source);
        for round in 1..=10 {
            subs.cut(&Fake, Bounds { memory: 160, ..UNBOUNDED });
            assert_eq!(pulled.get(), 4 * round + 1);
        }
    }
}
