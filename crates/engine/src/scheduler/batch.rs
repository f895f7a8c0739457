//! Calls with any number of jobs, from a source that is at hand or one that may block.

use super::blocks::Blocks;
use super::call::{BlockSource, Call};
use super::joining::{Classifier, Joined};
use super::permits::lock;
use super::producer::{ProducedJobs, Producer};
use super::{Job, Scheduler, Sink, Worker, slots};
use crate::Error;
use crate::trace::Step;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread::Builder;
use std::time::Instant;

/// Jobs that may be taken ahead before it is known how many fill a chunk.
const FIRST_AHEAD: usize = 1024;

impl Scheduler {
    /// Runs any number of jobs that are at hand, whose source does not block: on the device `on` alone, or on all devices. `total` is the number
    /// of their rows; without it each job is one row. Results are handed out in order, on this thread.
    pub fn run<'a, J: Job + 'a>(
        &'a self,
        on: Option<&'a Worker>,
        total: Option<usize>,
        jobs: &mut dyn Iterator<Item = J>,
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<(), Error> {
        self.same_process()?;
        let (mut devices, may_switch) = on.map_or_else(|| self.devices(), |only| (vec![only], false));
        let mut jobs = jobs.fuse();
        // A single job has permits of its own.
        let first = jobs.next();
        let second = first.as_ref().and_then(|_| jobs.next());
        match (first, second) {
            (Some(job), None)
                if job.count() == 1 && job.kind().is_ok() && [1, self.live().count()].contains(&devices.len()) =>
            {
                let rather = if devices.len() < self.live().count() { Some(devices[0]) } else { None };
                let result = self.one(rather, job);
                if let Err(why) = &result
                    && !why.kind().is_of_job()
                {
                    return Err(why.clone());
                }
                let _ = sink(1, result);
                Ok(())
            }
            (first, second) => {
                let kind = first.as_ref().and_then(|job| job.kind().ok());
                let jobs = first.into_iter().chain(second).chain(jobs);
                let (left, total) = (total, total.or(jobs.size_hint().1));
                let with_host = kind.zip(total).and_then(|(kind, total)| self.wants_host(&devices, kind, total));
                devices.retain(|worker| with_host != Some(false) || worker.is_discrete());
                let (blocks, began) = (Blocks::default(), Instant::now());
                let classifier = Classifier::new(self, devices.clone(), total);
                let mut source = Joined { jobs, left, classifier, head: None, blocks: &blocks };
                let mut sink = |first, refused| blocks.hand_out(first, refused, sink);
                let mut call = Call::new(self, (devices, may_switch), &blocks, &mut source, None);
                self.trace_of_call().counted(Step::Call, || call.run(None, &mut sink)).1?;
                // Calls with more checks take longer, which says nothing about the others.
                if let (Some(kind), Some(total), Some(with_host)) = (kind, total, with_host)
                    && self.work.checks.are_plain()
                {
                    self.rates.know(kind, total, with_host, total as f64 / began.elapsed().as_secs_f64().max(1e-9));
                }
                Ok(())
            }
        }
    }

    /// Whether a thread of its own should take the jobs of a source that may block, of which there are at most so many; see
    /// [`run_blocking`](Scheduler::run_blocking). If the host has one thread, this thread takes jobs too, a chunk at a time.
    pub fn pulls_ahead(&self, most: Option<usize>) -> bool {
        let is_here = self.devices().0.into_iter().all(|worker| self.works_on_calling_thread(worker));
        !is_here && most.is_none_or(|most| most > 1)
    }

    /// Runs any number of jobs of a source that may block. A thread of its own takes them, so that results are handed out as soon as they are there,
    /// in order, on this thread.
    pub fn run_blocking<'a, J: Job + 'a>(
        &'a self,
        jobs: &mut (dyn Iterator<Item = J> + Send),
        sink: &mut Sink<'_, J::Out>,
    ) -> Result<(), Error> {
        self.same_process()?;
        let (most, (devices, may_switch)) = (jobs.size_hint().1, self.devices());
        let slots = slots(devices.iter().map(|worker| worker.queue() as u64)) + 1;
        let producer = Producer::new(FIRST_AHEAD, self.memory_budget() / slots);
        let jobs = Mutex::new(jobs);
        std::thread::scope(|scope| {
            let mut classifier = Classifier::new(self, devices.clone(), most);
            let (producer, jobs) = (&producer, &jobs);
            let pull = move || producer.pull((&mut **lock(jobs)).map(|job| classifier.classify(job)));
            let thread = Builder::new().name("hypergrove-producer".into()).spawn_scoped(scope, pull);
            if let Err(why) = thread {
                // This thread waits for the source while it computes nothing.
                self.note_threads(1, 0, &why);
                return self.run(None, None, &mut **lock(jobs), sink);
            }
            let blocks = Blocks::default();
            let mut source = ProducedJobs { producer, jobs: VecDeque::new(), most }.map(|job| blocks.add(job));
            let mut sink = |first, refused| blocks.hand_out(first, refused, sink);
            let source: &mut BlockSource<'_> = &mut source;
            let mut call = Call::new(self, (devices, may_switch), &blocks, source, Some(producer));
            self.trace_of_call().counted(Step::Call, || call.run(None, &mut sink)).1
        })
    }
}
