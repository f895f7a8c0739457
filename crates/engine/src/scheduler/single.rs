//! Single jobs, and batches of one of the host's threads: calls of one block, which need no chunks.

use super::blocks::{Blocks, Client, Members};
use super::memory::check_memory;
use super::options::Ends;
use super::outside::outside_pools;
use super::worker::{Worker, is_broken, is_fault};
use super::{Job, Place, Scale, Scheduler, Sink};
use crate::planner::Block;
use crate::scheme::Group;
use crate::scheme::Kind;
use crate::trace::Step;
use crate::{Error, Places};
use rayon::ThreadPool;
use std::time::Instant;

/// If one job needs more bytes than these, the operating system is asked whether it gives them. A caller may choose a large budget, and layers to be
/// cached that take terabytes.
const MUCH: u64 = 256 << 20;

/// How a job fails on a device.
enum Failure {
    /// The device failed.
    Device(Error),
    /// No device can do the job.
    Job(Error),
}

impl Scheduler {
    /// Runs one job on the device that suits it, concurrently with the chunks of batches; with `rather` on that device, as long as it works.
    pub fn one<J: Job>(&self, rather: Option<&Worker>, job: J) -> Result<J::Out, Error> {
        self.same_process()?;
        let (kind, size, ends) = (job.kind()?, (job.count(), job.owned()), self.ends());
        let (blocks, mut first) = (Blocks::one(Members::One(job)), None);
        self.trace_of_call().step(Step::Call, size.0, || -> Result<(), Error> {
            loop {
                let (worker, group) = self.device_for_one(rather, kind);
                match self.one_on(worker, size, group, (&blocks, &ends)) {
                    Ok(()) => return Ok(()),
                    Err(why) => self.after(worker, why, 1, &mut first)?,
                }
            }
        })?;
        blocks.only()
    }

    /// Runs jobs of one kind that waited for each other as a batch of one of the host's threads, if the host alone computes. Other such batches run at
    /// the same time: no thread waits for another one's share. Returns the jobs if [`run`](Scheduler::run) has to do them.
    pub(super) fn run_on_thread<J: Job>(
        &self,
        jobs: Vec<J>,
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<Option<Vec<J>>, Error> {
        let Some((kind, (count, owned))) = self.batch_of_thread(&jobs) else { return Ok(Some(jobs)) };
        self.same_process()?;
        let (host, blocks, ends) = (self.first(), Blocks::one(Members::Many(jobs)), self.ends());
        match self.one_on(host, (count, owned), Group { kind, threads: 1 }, (&blocks, &ends)) {
            Ok(()) => {
                let _ = blocks.hand_out(0, None, sink);
                return Ok(None);
            }
            // Jobs that do not fit the memory are cut into chunks.
            Err(Failure::Job(Error::OutOfMemory { .. }) | Failure::Device(Error::OutOfMemory { .. })) => {}
            Err(why) => self.after(host, why, count, &mut None)?,
        }
        Ok(Some(blocks.into_jobs()))
    }

    /// Counts so many jobs that failed on a device, so that another device does them. Gives an error if there is no other device, or if the jobs are
    /// to blame. `first` is the first failure of a device.
    fn after(&self, worker: &Worker, why: Failure, jobs: usize, first: &mut Option<Error>) -> Result<(), Error> {
        let why = match why {
            Failure::Job(why) => return Err(why),
            Failure::Device(why) => why,
        };
        let first = first.get_or_insert_with(|| why.clone());
        if !self.fault(worker, why, jobs) {
            return Err(first.clone());
        }
        self.counters.again.add(jobs as u64);
        Ok(())
    }

    /// The device for a single job, and the job's group there. A single verification is a chain of dependent steps, and the host's share of any single
    /// job for a discrete device is small. More threads would only add their hand-over.
    fn device_for_one<'w>(&'w self, rather: Option<&'w Worker>, kind: Kind) -> (&'w Worker, Group) {
        let group = |worker: &Worker| Group { kind, threads: self.threads_for(worker, kind, 1) };
        let takes = |worker: &&Worker| worker.takes(group(worker));
        let rather = rather.filter(|worker| !worker.is_disabled() && takes(worker));
        let faster = rather.or_else(|| self.suited_alone(kind).filter(takes));
        let worker = faster.or_else(|| self.live().find(takes));
        let worker = worker.unwrap_or_else(|| self.first());
        (worker, group(worker))
    }

    /// Runs one block on a device. It is the client's number 0, counts for `count` jobs and owns `owned` bytes.
    fn one_on(
        &self,
        worker: &Worker,
        (count, owned): (usize, usize),
        group: Group,
        (client, ends): (&dyn Client, &Ends<'_>),
    ) -> Result<(), Failure> {
        // With one thread each caller has the host to itself, on a thread of its own.
        let permit = (!self.shares_nothing(worker)).then(|| {
            self.counters.singles.add(1);
            let patience = || ends.check().map(|()| ends.wait(None));
            self.trace_of_call().step(Step::WaitForPermit, count, || worker.permits.single(patience))
        });
        let permit = permit.transpose().map_err(Failure::Job)?;
        ends.check().map_err(Failure::Job)?;
        // While others compute, one thread for each job is as fast, and fair.
        let is_crowded = worker.is_host() && permit.as_ref().is_some_and(|permit| permit.crowded);
        let group = if is_crowded { Group { threads: 1, ..group } } else { group };
        let facts = match worker.programs.facts(group) {
            Ok(facts) => facts,
            Err(why) if is_broken(&why) => return Err(Failure::Device(why)),
            Err(why) => return Err(Failure::Job(why)),
        };
        let held = (owned + client.output(0, &facts) * self.work.checks.copies()) as u64;
        let needs = held.saturating_add(Scale { scheduler: self, worker }.bytes(group, 1));
        let memory = self.memory_alone(owned);
        if needs > memory {
            return Err(Failure::Job(self.out_of_memory(worker, needs)));
        }
        if needs > MUCH
            && let Err(why) = check_memory(needs)
        {
            return Err(Failure::Job(why));
        }
        let room = (memory - held, memory - held);
        let blocks = [(0, Block { group: Ok(group), held, count })];
        let trace = self.trace_of_chunk();
        let run = |pool: Option<&ThreadPool>| {
            let place = Place { scheduler: self, worker, room, pool, threads: group.threads, places: Places::Usual };
            trace.step(Step::Chunk, count, || client.run(&place, &blocks, &mut Vec::new()))
        };
        let began = Instant::now();
        let done = match (group.threads, &permit) {
            (_, None) => run(None),
            (1, _) => outside_pools(worker.is_host(), |_| run(None)),
            _ => outside_pools(worker.is_host(), |is_outside| match is_outside {
                true => self.with_pool(worker, 0, run),
                false => run(None),
            }),
        };
        self.counters.chunk(count, began.elapsed());
        drop(permit);
        done.map_err(|why| if is_fault(&why) { Failure::Device(why) } else { Failure::Job(why) })
    }

    /// The kind of these jobs, the rows that they have and the bytes that they own, if a thread of the host is to do them.
    fn batch_of_thread<J: Job>(&self, jobs: &[J]) -> Option<(Kind, (usize, usize))> {
        if !self.is_host_alone() {
            return None;
        }
        let kind = jobs.first()?.kind().ok()?;
        let size = jobs.iter().fold((0, 0), |(count, owned), job| (count + job.count(), owned + job.owned()));
        let group = Group { kind, threads: self.options.threads };
        // A flood goes to other devices too. It has about as many jobs as was predicted when they were taken out of the queue.
        let is_flood = self.jobs_to_wake(group).is_some_and(|jobs| size.0 >= jobs / 2);
        (size.0 > 1 && !is_flood).then_some((kind, size))
    }
}
