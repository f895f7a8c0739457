//! Rows of jobs on their way through the devices: alone on one, or many in flight on several.

use crate::engine::{Inner, slots};
use crate::jobs::Job;
use crate::run::Run;
use crate::worker::{Asked, Scale, Worker, is_fault};
use hypergrove_engine::planner::{Bounds, SubBatch, SubBatches};
use hypergrove_engine::programs::{Facts, Group};
use hypergrove_engine::{Error, ErrorKind};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope, scope};
use zeroize::Zeroize;

/// Results that are handed out before the devices are looked after again.
const AT_A_TIME: usize = 256;

/// Jobs whose results one thread takes from the output, at least: what handing them over costs is little then.
const SHARE: usize = 64;

/// Results of jobs.
type Results<J> = Vec<Result<<J as Job>::Out, Error>>;

/// Jobs with their indices.
type Jobs<J> = Vec<(usize, Asked<J>)>;

/// Learns of each job what the planner must know.
struct Asker<'a> {
    engine: &'a Inner,
    live: &'a [&'a Worker],
    threads: usize,
    /// How often an output is held in memory: more often once other devices take part.
    copies: &'a Cell<usize>,
    /// What is known of the last job's group, which the next job most often shares: bytes of output.
    last: Option<(Group, Result<usize, Error>)>,
}

impl Asker<'_> {
    fn ask<J: Job>(&mut self, job: J) -> Asked<J> {
        let threads = self.threads;
        let asked = job.ask().map(|(params, cached_layers)| Group { params, op: J::OP, cached_layers, threads });
        let known = asked.and_then(|group| Ok((group, self.out_bytes(group)?)));
        let out = known.as_ref().map_or(0, |(_, out)| *out);
        Asked { held: (job.owned() + out * self.copies.get()) as u64, group: known.map(|(group, _)| group), job }
    }

    /// The error is the first device's, if all decline.
    fn out_bytes(&mut self, group: Group) -> Result<usize, Error> {
        if let Some((_, known)) = self.last.as_ref().filter(|(last, _)| *last == group) {
            return known.clone();
        }
        let known = match self.engine.facts(self.live, group) {
            Ok(facts) => Ok(facts.plan.out_bytes()),
            Err(why) => Err(why),
        };
        self.last = Some((group, known.clone()));
        known
    }
}

/// Where a job's output lies, or why there is none.
type Share = Result<Range<usize>, Error>;

/// Takes a job's result from its share of the output.
fn finish<J: Job>(asked: &Asked<J>, share: &Share, out: &[u8]) -> Result<J::Out, Error> {
    share.clone().map(|share| asked.job.finish(Cow::Borrowed(&out[share])))
}

impl Inner {
    /// What the first device that executes the group knows of it, or why the first device does not.
    fn facts(&self, live: &[&Worker], group: Group) -> Result<Arc<Facts>, Error> {
        let mut declined = None;
        for worker in live {
            match worker.programs.facts(group) {
                Ok(facts) => return Ok(facts),
                Err(why) => declined = declined.or(Some(why)),
            }
        }
        Err(declined.unwrap_or(Error::Value { what: "there is no device".into() }))
    }

    pub(crate) fn out_of_memory(&self, worker: &Worker, needs: u64) -> Error {
        Error::OutOfMemory { device: worker.device().id(), needs, has: self.memory_budget() }
    }

    /// How often a row's outputs are held in memory.
    pub(crate) fn copies(&self, live: &[&Worker]) -> usize {
        // Beside those at hand there are results that are taken from them, unless that is done one by one.
        1 + usize::from(self.redundant) + usize::from(!alone(live))
    }

    /// One job, on the first device that can do it.
    pub(crate) fn one<J: Job>(&self, job: J) -> Result<J::Out, Error> {
        let mut first = None;
        loop {
            let live: Vec<&Worker> = self.live().collect();
            let takes = |worker: &&&Worker| self.ask_one(worker, &job).is_ok_and(|group| worker.takes(group));
            let faster = self.ask_one(live[0], &job).ok().and_then(|group| self.suited_alone(group));
            let faster = faster.filter(|worker| takes(&worker));
            let worker = faster.as_ref().or(live.iter().find(takes)).unwrap_or(&live[0]);
            match self.try_one(worker, &job) {
                Err(Tried::Fault(why)) => {
                    let first = first.get_or_insert_with(|| why.clone());
                    if !self.fault(worker, why, 1) {
                        return Err(first.clone());
                    }
                }
                Err(Tried::Refused(why)) => return Err(why),
                Ok(out) => return Ok(out),
            }
        }
    }

    fn ask_one<J: Job>(&self, worker: &Worker, job: &J) -> Result<Group, Error> {
        let threads = self.threads_for(worker, J::OP, 1);
        job.ask().map(|(params, cached_layers)| Group { params, op: J::OP, cached_layers, threads })
    }

    fn try_one<J: Job>(&self, worker: &Worker, job: &J) -> Result<J::Out, Tried> {
        let refused = Tried::Refused;
        let group = self.ask_one(worker, job).map_err(refused)?;
        let facts = worker.programs.facts(group).map_err(refused)?;
        let size = facts.plan.out_bytes();
        let held = (job.owned() + size * (1 + usize::from(self.redundant))) as u64;
        let needs = held.saturating_add(Scale { engine: self, worker }.bytes(group, 1));
        let memory = self.memory_alone(job.owned());
        if needs > memory {
            return Err(refused(self.out_of_memory(worker, needs)));
        }
        let (mut out, room) = (vec![0; size], memory - held);
        let done = self.with_pool(worker, group.threads, |pool| {
            Run { engine: self, worker, facts: &facts, room: (room, room), pool, elsewhere: false }
                .output(&[job], &mut out)
        });
        match done {
            Ok(mut failed) => match failed.remove(&0) {
                None => Ok(job.finish(Cow::Owned(out))),
                Some(why) => Err(refused(why)),
            },
            Err(why) if is_fault(&why) => Err(Tried::Fault(why)),
            Err(why) => Err(refused(why)),
        }
    }

    /// Any number of jobs.
    pub(crate) fn stream<J: Job>(
        &self,
        jobs: impl Iterator<Item = J>,
        mut sink: impl FnMut(usize, Result<J::Out, Error>),
    ) -> Result<(), Error> {
        let live: Vec<&Worker> = self.live().collect();
        if self.may_choose() && !self.workers[0].is_aside() {
            return self.stream_with(&[&self.workers[0]], jobs, sink, true);
        }
        if alone(&live) {
            return self.stream_on(&live, jobs, sink);
        }
        // A job alone needs no thread of its own, which takes longer to start than a GPU to sign.
        let mut jobs = jobs.fuse();
        let first = jobs.next();
        let second = first.as_ref().and_then(|_| jobs.next());
        match (first, second) {
            (Some(job), None) if job.ask().is_ok() => match self.one(job) {
                Err(why) if !matches!(why.kind(), ErrorKind::OutOfMemory | ErrorKind::KeyDamaged) => Err(why),
                result => {
                    sink(0, result);
                    Ok(())
                }
            },
            (first, second) => self.stream_on(&live, first.into_iter().chain(second).chain(jobs), sink),
        }
    }

    /// Any number of jobs, on these devices.
    pub(crate) fn stream_on<J: Job>(
        &self,
        live: &[&Worker],
        jobs: impl Iterator<Item = J>,
        sink: impl FnMut(usize, Result<J::Out, Error>),
    ) -> Result<(), Error> {
        self.stream_with(live, jobs, sink, false)
    }

    /// The same; `choose` if other devices may take over.
    fn stream_with<J: Job>(
        &self,
        live: &[&Worker],
        jobs: impl Iterator<Item = J>,
        mut sink: impl FnMut(usize, Result<J::Out, Error>),
        choose: bool,
    ) -> Result<(), Error> {
        let copies = Cell::new(self.copies(live));
        let mut asker = Asker { engine: self, live, threads: self.threads, copies: &copies, last: None };
        let mut row = SubBatches::new(jobs.map(|job| asker.ask(job)));
        if !alone(live) {
            return self.in_flight(live, row, 0, sink);
        }
        let worker = live[0];
        let mut others = None;
        self.with_pool(worker, self.threads, |pool| {
            let decide = |row: &SubBatches<_>, group| {
                let suited = if choose { self.suited(group, row.left()).workers } else { Vec::new() };
                others = Some(suited).filter(|suited| !suited.is_empty() && !is_only(suited, worker));
                others.is_some()
            };
            self.one_by_one(worker, pool, &mut row, &mut sink, decide)
        })?;
        let Some(next) = row.waiting().map(|(index, _)| *index) else { return Ok(()) };
        let others = others.unwrap_or_else(|| self.live().collect());
        copies.set(self.copies(&others));
        self.in_flight(&others, row, next, sink)
    }

    /// One sub-batch after the other, all on the calling thread, until `others` says that the rest is for other devices, or
    /// until the device fails and there are others.
    fn one_by_one<J: Job, I: Iterator<Item = Asked<J>>>(
        &self,
        worker: &Worker,
        pool: Option<&ThreadPool>,
        row: &mut SubBatches<I>,
        mut sink: impl FnMut(usize, Result<J::Out, Error>),
        mut others: impl FnMut(&SubBatches<I>, Option<Group>) -> bool,
    ) -> Result<(), Error> {
        let (scale, mut out) = (Scale { engine: self, worker }, Vec::new());
        while let Some((_, head)) = row.peek() {
            let group = head.group.as_ref().ok().copied();
            // Another call may have found it wrong.
            if worker.is_aside() || others(row, group) {
                break;
            }
            let mut bounds = scale.bounds(self.memory_budget(), group, std::iter::empty());
            let mut cut = row.cut(&scale, bounds);
            if let Some(SubBatch::TooLarge(index, asked, needs)) = cut {
                bounds = Bounds { memory: self.memory_alone(asked.job.owned()), jobs: 1, ..bounds };
                if asked.group.is_err() || needs > bounds.memory {
                    sink(index, Err(asked.group.err().unwrap_or_else(|| self.out_of_memory(worker, needs))));
                    continue;
                }
                row.give_back(vec![(index, asked)]);
                cut = row.cut(&scale, bounds);
            }
            match cut {
                Some(SubBatch::Run(jobs, held)) => {
                    let room = bounds.memory - held;
                    let shares = match self.outputs(worker, pool, &jobs, (room, room), &mut out) {
                        Ok(_) if worker.is_wrong() => {
                            out.zeroize();
                            row.give_back(jobs);
                            break;
                        }
                        Ok(shares) => shares,
                        Err(why) if is_fault(&why) && self.fault(worker, why.clone(), jobs.len()) => {
                            row.give_back(jobs);
                            break;
                        }
                        Err(why) => return Err(why),
                    };
                    for ((index, asked), share) in jobs.iter().zip(&shares) {
                        sink(*index, finish(asked, share, &out));
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The jobs' output, group by group, and each job's share of it. After an error, none is left.
    fn outputs<J: Job>(
        &self,
        worker: &Worker,
        pool: Option<&ThreadPool>,
        jobs: &[(usize, Asked<J>)],
        room: (u64, u64),
        out: &mut Vec<u8>,
    ) -> Result<Vec<Share>, Error> {
        let mut parts: Vec<(Group, Arc<Facts>, Vec<&J>)> = Vec::new();
        let mut places = Vec::with_capacity(jobs.len());
        for (_, asked) in jobs {
            places.push(match &asked.group {
                Err(why) => Err(why.clone()),
                Ok(group) => {
                    let part = match parts.iter().position(|(other, ..)| other == group) {
                        Some(part) => part,
                        None => {
                            parts.push((*group, worker.programs.facts(*group)?, Vec::new()));
                            parts.len() - 1
                        }
                    };
                    let members = &mut parts[part].2;
                    members.push(&asked.job);
                    Ok((part, members.len() - 1))
                }
            });
        }
        let mut starts = vec![0];
        for (_, facts, members) in &parts {
            starts.push(starts[starts.len() - 1] + members.len() * facts.plan.out_bytes());
        }
        let total = starts[parts.len()];
        if out.len() < total {
            // Zeros that nobody writes; what was there before is overwritten by the programs.
            *out = vec![0; total];
        }
        let mut failed = Vec::with_capacity(parts.len());
        for (i, (_, facts, members)) in parts.iter().enumerate() {
            let run = Run { engine: self, worker, facts, room, pool, elsewhere: false };
            match run.output(members, &mut out[starts[i]..starts[i + 1]]) {
                Ok(of_part) => failed.push(of_part),
                Err(why) => {
                    out.zeroize();
                    return Err(why);
                }
            }
        }
        let share = |place: Result<(usize, usize), Error>| {
            let (part, nth) = place?;
            let size = parts[part].1.plan.out_bytes();
            let whole = starts[part] + nth * size..starts[part] + (nth + 1) * size;
            failed[part].remove(&nth).map_or(Ok(whole), Err)
        };
        Ok(places.into_iter().map(share).collect())
    }

    /// A sub-batch on its own thread: its results, taken from the output by all threads.
    fn work<J: Job>(&self, worker: &Worker, jobs: Jobs<J>, room: (u64, u64), out: &mut Vec<u8>) -> Done<J> {
        let done = self.with_pool(worker, self.threads, |pool| {
            let shares = self.outputs(worker, pool, &jobs, room, out)?;
            let take = |((_, asked), share): (&(usize, Asked<J>), &Share)| finish(asked, share, out);
            Ok(match pool {
                Some(pool) if jobs.len() > SHARE => {
                    let pairs = jobs.par_iter().zip(&shares).with_min_len(SHARE);
                    pool.install(|| pairs.map(take).collect())
                }
                _ => jobs.iter().zip(&shares).map(take).collect(),
            })
        });
        match done {
            Ok(results) => Done::Ready(results, jobs),
            Err(why) => Done::Failed(why, jobs),
        }
    }

    /// As many sub-batches at a time as keep the devices busy, each on a thread of its own, while the calling thread
    /// takes jobs from their source and hands results out.
    fn in_flight<J: Job, I: Iterator<Item = Asked<J>>>(
        &self,
        live: &[&Worker],
        row: SubBatches<I>,
        next: usize,
        mut sink: impl FnMut(usize, Result<J::Out, Error>),
    ) -> Result<(), Error> {
        let slots = slots(live.iter().map(|worker| worker.queue() as u64));
        let lanes = live.iter().map(|worker| Lane { worker, flying: 0, jobs: 0, spare: Vec::new() });
        let mut flight = Flight {
            engine: self,
            lanes: lanes.collect(),
            row,
            slots: slots as usize,
            slot: self.memory_budget() / slots,
            held: BTreeMap::new(),
            whole: false,
            ready: BTreeMap::new(),
            current: None,
            next,
            first: None,
            end: None,
        };
        scope(|scope| {
            let (sender, landed) = channel();
            loop {
                flight.withdraw_wrong();
                while flight.start(scope, &sender) {}
                if flight.hand_out(&mut sink) {
                    landed.try_iter().for_each(|landed| flight.land(landed));
                } else if flight.lanes.iter().all(|lane| lane.flying == 0) {
                    return flight.finish();
                } else if let Ok(one) = landed.recv() {
                    flight.land(one);
                }
            }
        })
    }
}

fn is_only(workers: &[&Worker], worker: &Worker) -> bool {
    matches!(workers, [one] if std::ptr::eq(*one, worker))
}

/// Whether there is nothing to do at a time but one thing.
fn alone(live: &[&Worker]) -> bool {
    live.len() == 1 && live[0].queue() == 1
}

/// Why a job was not done.
enum Tried {
    /// The device failed.
    Fault(Error),
    /// Whatever device tries, it cannot be done.
    Refused(Error),
}

/// What became of a sub-batch.
enum Done<J: Job> {
    Ready(Results<J>, Jobs<J>),
    Failed(Error, Jobs<J>),
    Panicked(Box<dyn Any + Send>),
}

/// A sub-batch that is back.
struct Landed<J: Job> {
    lane: usize,
    first: usize,
    jobs: usize,
    /// The output, for the next one.
    out: Vec<u8>,
    done: Done<J>,
}

/// Results that wait for those of earlier jobs, or are being handed out.
struct Ready<J: Job> {
    results: <Results<J> as IntoIterator>::IntoIter,
    /// The device that they come from, and their jobs: should it turn out to compute wrongly, they are done again. `None`
    /// for errors that no device made.
    from: Option<(usize, Jobs<J>)>,
}

/// A device, and what it is busy with.
struct Lane<'a> {
    worker: &'a Worker,
    /// Sub-batches.
    flying: usize,
    /// Their jobs.
    jobs: usize,
    /// Output buffers: what one of them holds was zeroed by the operating system once, not for every sub-batch.
    spare: Vec<Vec<u8>>,
}

/// A row of which several sub-batches are in flight.
struct Flight<'a, J: Job, I: Iterator<Item = Asked<J>>> {
    engine: &'a Inner,
    lanes: Vec<Lane<'a>>,
    row: SubBatches<I>,
    /// Sub-batches that there may be between the row and the sink, and bytes that each may take.
    slots: usize,
    slot: u64,
    /// The sub-batches between the row and the sink, by their first job: bytes of their jobs and outputs.
    held: BTreeMap<usize, u64>,
    /// One of them takes the whole budget.
    whole: bool,
    /// Results that wait for those of earlier jobs, by their first job.
    ready: BTreeMap<usize, Ready<J>>,
    /// Results that are being handed out, and the first of them.
    current: Option<(usize, Ready<J>)>,
    /// The next job whose result is handed out.
    next: usize,
    /// The first failure of a device.
    first: Option<Error>,
    /// The call fails with this error, the results from this job on are not handed out.
    end: Option<(usize, Error)>,
}

impl<'a, J: Job, I: Iterator<Item = Asked<J>>> Flight<'a, J, I> {
    /// Starts a sub-batch, if a device has room for it.
    fn start<'s>(&mut self, scope: &'s Scope<'s, '_>, sender: &Sender<Landed<J>>) -> bool
    where
        'a: 's,
        J: 's,
    {
        // Once the call has failed, only what earlier jobs lost is done again.
        let head = if self.end.is_some() { self.row.waiting() } else { self.row.peek() };
        let Some((index, asked)) = head else { return false };
        let (index, group) = (*index, asked.group.as_ref().ok().copied());
        let most = self.end.as_ref().map_or(usize::MAX, |(end, _)| end.saturating_sub(index));
        // Refused jobs hold nothing, but their errors wait to be handed out too. What comes next is never kept waiting.
        let full = self.held.len() >= self.slots || self.ready.len() >= self.slots;
        if most == 0 || self.whole || (full && index > self.next) {
            return false;
        }
        let able = |lane: &Lane<'_>| !lane.worker.is_aside() && group.is_none_or(|group| lane.worker.takes(group));
        if !self.lanes.iter().any(able) {
            // Those that could have done it are gone.
            let live: Vec<&Worker> = self.engine.live().collect();
            let why = group.map(|group| self.engine.facts(&live, group).map(drop)).unwrap_or(Ok(()));
            return self.row.pop().is_some_and(|(index, _)| {
                let lost = self.first.clone().unwrap_or_else(|| Error::Device {
                    device: "every device that could have done this job".into(),
                    what: "in another call".into(),
                });
                self.refuse(index, why.err().unwrap_or(lost));
                true
            });
        }
        (0..self.lanes.len()).any(|lane| {
            let it = &self.lanes[lane];
            able(it) && it.flying < it.worker.queue_of(group) && self.start_on(lane, index, group, most, scope, sender)
        })
    }

    /// Jobs that this device should take at least and at most, so that all devices come to an end at a time.
    fn wanted(&self, lane: &Lane<'_>, group: Option<Group>, least: usize) -> usize {
        let live = || self.lanes.iter().filter(|lane| !lane.worker.is_aside());
        let (Some(group), Some(left), 2..) = (group, self.row.left(), live().count()) else { return usize::MAX };
        let all = left.saturating_add(live().map(|lane| lane.jobs).sum()) as f64;
        let total: f64 = live().filter_map(|lane| lane.worker.speed(group)).sum();
        let share = (all * lane.worker.speed(group).unwrap_or(0.0) / total).ceil() as usize;
        match share.saturating_sub(lane.jobs) {
            // A device that has nothing to do does not wait.
            few if few < least && lane.flying == 0 => least.max(1),
            few if few < least => 0,
            share => share,
        }
    }

    fn start_on<'s>(
        &mut self,
        lane: usize,
        index: usize,
        group: Option<Group>,
        most: usize,
        scope: &'s Scope<'s, '_>,
        sender: &Sender<Landed<J>>,
    ) -> bool
    where
        'a: 's,
        J: 's,
    {
        let (engine, worker) = (self.engine, self.lanes[lane].worker);
        let scale = Scale { engine, worker };
        let others = self.lanes.iter().map(|lane| lane.worker);
        let others = others.filter(|other| !other.is_aside() && !std::ptr::eq(*other, worker));
        let mut bounds = scale.bounds(self.slot, group, others);
        let wanted = self.wanted(&self.lanes[lane], group, bounds.least).min(most);
        if wanted == 0 {
            return false;
        }
        bounds.jobs = bounds.jobs.min(wanted);
        let mut cut = self.row.cut(&scale, bounds);
        if let Some(SubBatch::TooLarge(first, asked, needs)) = cut {
            let memory = engine.memory_alone(asked.job.owned());
            if asked.group.is_err() || needs > memory {
                let why = asked.group.err().unwrap_or_else(|| engine.out_of_memory(worker, needs));
                self.refuse(first, why);
                return true;
            }
            self.row.give_back(vec![(first, asked)]);
            // It gets the whole budget, when nothing else takes of it.
            if index > self.next || self.lanes.iter().any(|lane| lane.flying > 0) {
                return false;
            }
            self.lanes.iter_mut().for_each(|lane| lane.spare.clear());
            (bounds.memory, bounds.jobs, self.whole) = (memory, 1, true);
            cut = self.row.cut(&scale, bounds);
        }
        let Some(SubBatch::Run(jobs, held)) = cut else { return false };
        let (first, count) = (jobs[0].0, jobs.len());
        self.held.insert(first, held);
        // Programs that wait for their next sub-batch stay as long as they fit beside outputs of the largest size.
        let largest = self.held.values().copied().max().unwrap_or(held);
        let all = match self.whole {
            true => bounds.memory - held,
            false => self.slot.saturating_sub(largest) * worker.queue() as u64,
        };
        let room = (bounds.memory - held, all);
        let it = &mut self.lanes[lane];
        (it.flying, it.jobs) = (it.flying + 1, it.jobs + count);
        let (mut out, sender) = (it.spare.pop().unwrap_or_default(), sender.clone());
        let fly = move || {
            let done = catch_unwind(AssertUnwindSafe(|| engine.work(worker, jobs, room, &mut out)));
            let done = done.unwrap_or_else(Done::Panicked);
            // Nobody waits only if the calling thread panics.
            let _ = sender.send(Landed { lane, first, jobs: count, out, done });
        };
        if let Err(why) = Builder::new().spawn_scoped(scope, fly) {
            let it = &mut self.lanes[lane];
            (it.flying, it.jobs) = (it.flying - 1, it.jobs - count);
            self.held.remove(&first);
            self.fail(first, Error::no_threads(1, why));
        }
        true
    }

    /// The job's result is an error.
    fn refuse(&mut self, index: usize, why: Error) {
        self.ready.insert(index, Ready { results: vec![Err(why)].into_iter(), from: None });
    }

    /// What came from devices that turned out to compute wrongly, in this call or in another, is done again.
    fn withdraw_wrong(&mut self) {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].worker.is_wrong() {
                self.withdraw(lane);
            }
        }
    }

    /// What came from this device and was not handed out yet is done again.
    fn withdraw(&mut self, lane: usize) {
        let is_its = |ready: &Ready<J>| ready.from.as_ref().is_some_and(|(from, _)| *from == lane);
        let current = self.current.take_if(|(_, ready)| is_its(ready));
        let waiting = self.ready.extract_if(.., |_, ready| is_its(ready));
        for (first, ready) in current.into_iter().chain(waiting).collect::<Vec<_>>() {
            self.held.remove(&first);
            self.whole = false;
            let (left, (_, mut jobs)) = (ready.results.len(), ready.from.expect("it is of that device"));
            ready.results.flatten().for_each(J::discard);
            jobs.drain(..jobs.len() - left);
            self.row.give_back(jobs);
        }
    }

    /// The call fails, results before this job are handed out.
    fn fail(&mut self, first: usize, why: Error) {
        if self.end.as_ref().is_none_or(|(end, _)| first < *end) {
            self.end = Some((first, why));
        }
    }

    fn land(&mut self, landed: Landed<J>) {
        let Landed { lane, first, jobs: count, mut out, done } = landed;
        let it = &mut self.lanes[lane];
        (it.flying, it.jobs) = (it.flying - 1, it.jobs - count);
        let worker = it.worker;
        // Its device failed meanwhile at another one: its results are not trusted.
        let is_doubted = worker.is_aside();
        if is_doubted {
            out.zeroize();
        }
        it.spare.push(out);
        let (why, jobs) = match done {
            Done::Ready(results, jobs) if is_doubted => {
                results.into_iter().flatten().for_each(J::discard);
                (None, jobs)
            }
            Done::Ready(results, jobs) => {
                self.ready.insert(first, Ready { results: results.into_iter(), from: Some((lane, jobs)) });
                return;
            }
            Done::Panicked(with) => resume_unwind(with),
            Done::Failed(why, jobs) => (Some(why), jobs),
        };
        self.held.remove(&first);
        self.whole = false;
        match why {
            Some(why) if !is_fault(&why) => self.fail(first, why),
            Some(why) => {
                let earliest = self.first.get_or_insert_with(|| why.clone()).clone();
                if self.engine.fault(worker, why, count) {
                    self.row.give_back(jobs);
                } else {
                    self.fail(first, earliest);
                }
            }
            None => self.row.give_back(jobs),
        }
    }

    /// Hands some results out, if it is their turn.
    fn hand_out(&mut self, sink: &mut impl FnMut(usize, Result<J::Out, Error>)) -> bool {
        if self.current.is_none() {
            self.current = self.ready.remove(&self.next).map(|ready| (self.next, ready));
        }
        let Some((first, Ready { results, .. })) = &mut self.current else { return false };
        for result in results.by_ref().take(AT_A_TIME) {
            sink(self.next, result);
            self.next += 1;
        }
        if results.len() == 0 {
            if self.held.remove(first).is_some() {
                self.whole = false;
            }
            self.current = None;
        }
        true
    }

    /// Nothing is in flight any more.
    fn finish(self) -> Result<(), Error> {
        let Some((_, why)) = self.end else { return Ok(()) };
        self.ready.into_values().flat_map(|ready| ready.results).flatten().for_each(J::discard);
        self.lanes.into_iter().flat_map(|lane| lane.spare).for_each(|mut out| out.zeroize());
        Err(why)
    }
}
