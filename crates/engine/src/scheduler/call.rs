//! A call's way through the devices: its jobs are cut into chunks, the chunks take permits on devices, and results are put in order.

mod next_chunk;

use super::blocks::{Client, Numbered, counted};
use super::options::Ends;
use super::permits::{Permit, Request, Signal, lock};
use super::producer::Produces;
use super::threads::Scopes;
use super::worker::{Worker, is_fault};
use super::{Place, Scheduler, slots};
use crate::planner::{Block, SubBatches};
use crate::scheme::Group;
use crate::trace::{self, Step, TraceContext};
use crate::{Error, Places};
use next_chunk::{Chunk, Next};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::vec;
use zeroize::Zeroize;

/// Results that wait for those of an earlier chunk may take this share of the budget. If they take more, then as many chunks as the call has slots may
/// be in flight or wait, and the next one begins when the earliest is done. (Calls of 2,097,152 rows that verify 128s, four H100: 15.7 M/s, and
/// 12.9 M/s if that limit always holds.)
const WAITING_SHARE: u64 = 16;
/// The most chunks whose results wait, however little they take: if their device turns out to compute wrongly, they are done again.
const MOST_WAITING: usize = 256;

/// Jobs of a call of one chunk, at most, for which the thread that calls does the host's share for a GPU alone. (On an H200, calls of
/// 64 rows that sign with 128f: 82,000/s, with other threads 71,000/s. Waking a thread takes 0.1 ms, hashing for one
/// signature 1 µs.)
const JOBS_ON_CALLING_THREAD: usize = 128;

/// Results that are handed out before the call looks after its devices again.
const AT_A_TIME: usize = 256;

/// Takes a block that has results: the number of its first row, and its error if no device does it.
pub(super) type BlockSink<'s> = dyn FnMut(usize, Option<Error>) -> ControlFlow<()> + 's;

/// The outcome of a chunk.
enum ChunkOutcome {
    Done(Numbered),
    Failed(Error, Numbered),
    Panicked(Box<dyn Any + Send>),
}

/// A chunk that is completed.
struct Completed {
    device: usize,
    first: usize,
    jobs: usize,
    /// Memory for the device's next chunk.
    spare: Vec<u8>,
    done: ChunkOutcome,
}

/// Blocks whose results wait for those of earlier blocks, or are being handed out.
struct WaitingResults {
    blocks: vec::IntoIter<(usize, Block)>,
    /// The device that the results come from: should it turn out to compute wrongly, the blocks are done again.
    from: Option<usize>,
}

/// A device, and its work for this call.
struct CallDevice<'a> {
    worker: &'a Worker,
    /// Chunks in flight, and their jobs.
    chunks: usize,
    jobs: usize,
    /// Chunks that the device began so far.
    begun: usize,
    /// The permit that the call waits for.
    request: Option<Request>,
    /// The place in the queue that the call left for a while.
    place: Option<Request>,
    /// Slots that were granted and that no chunk uses yet.
    granted: Vec<usize>,
    /// Output buffers for later chunks. The operating system zeroed each of them once, not for every chunk.
    spare: Vec<Vec<u8>>,
}

impl Drop for CallDevice<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<'a> CallDevice<'a> {
    fn new(worker: &'a Worker) -> CallDevice<'a> {
        CallDevice {
            worker,
            chunks: 0,
            jobs: 0,
            begun: 0,
            request: None,
            place: None,
            granted: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Returns the slots that were granted.
    fn give_up(&mut self) {
        for slot in self.granted.drain(..) {
            drop(self.worker.permits.granted(slot));
        }
    }

    /// A permit, if there is one now.
    fn permit(&mut self, signal: &Arc<Signal>, number: usize) -> Option<Permit<'a>> {
        if let Some(slot) = self.granted.pop() {
            return Some(self.worker.permits.granted(slot));
        }
        if self.request.is_some() {
            return None;
        }
        match self.worker.permits.chunk(signal, number, self.place.take()) {
            Ok(permit) => Some(permit),
            Err(request) => {
                self.request = Some(request);
                None
            }
        }
    }
}

/// A call whose chunks are in flight.
pub(super) struct Call<'a> {
    scheduler: &'a Scheduler,
    client: &'a dyn Client,
    signal: Arc<Signal>,
    completed: Arc<Mutex<Vec<Completed>>>,
    devices: Vec<CallDevice<'a>>,
    /// Whether other devices may take over.
    may_switch: bool,
    jobs: SubBatches<&'a mut BlockSource<'a>>,
    producer: Option<&'a dyn Produces>,
    /// The first job that was never part of a chunk.
    fresh: usize,
    /// A chunk that waits for scopes.
    chunk: Option<Chunk<'a>>,
    /// The group of all jobs, if they are known to have one group.
    group: Option<Group>,
    /// The chunks that may be between the source and the sink, the bytes that each may take, and the bytes up to which results that wait for others
    /// do not count among these chunks.
    slots: usize,
    slot: u64,
    waiting: u64,
    /// The chunks between the source and the sink, by their first job: bytes of their jobs and outputs.
    held: BTreeMap<usize, u64>,
    /// Whether one of these chunks takes the whole budget.
    whole: bool,
    /// Results that wait for those of earlier jobs, by their first job.
    ready: BTreeMap<usize, WaitingResults>,
    /// Results that are being handed out, and the first of them.
    current: Option<(usize, WaitingResults)>,
    /// The next job whose result is handed out.
    next: usize,
    /// Jobs whose results were handed out.
    handed_out: usize,
    /// The first failure of a device.
    first: Option<Error>,
    /// The call ends with this error, or without one; the results from this job on are not handed out.
    end: Option<(usize, Result<(), Error>)>,
    /// When no more of its work begins.
    ends: Ends<'a>,
}

/// The source of blocks. By `size_hint` it says how many rows there are at most.
pub(super) type BlockSource<'a> = dyn Iterator<Item = Block> + 'a;

impl<'a> Call<'a> {
    /// A call for the client's blocks. `producer` is where they come from, if they are taken ahead.
    pub(super) fn new(
        scheduler: &'a Scheduler,
        (devices, may_switch): (Vec<&'a Worker>, bool),
        client: &'a dyn Client,
        jobs: &'a mut BlockSource<'a>,
        producer: Option<&'a dyn Produces>,
    ) -> Call<'a> {
        let mut call = Call {
            scheduler,
            client,
            signal: producer.map_or_else(Arc::default, Produces::signal),
            completed: Arc::default(),
            devices: devices.into_iter().map(CallDevice::new).collect(),
            may_switch,
            jobs: SubBatches::new(jobs),
            producer,
            fresh: 0,
            chunk: None,
            group: None,
            slots: 0,
            slot: 0,
            waiting: 0,
            held: BTreeMap::new(),
            whole: false,
            ready: BTreeMap::new(),
            current: None,
            next: 0,
            handed_out: 0,
            first: None,
            end: None,
            ends: scheduler.ends(),
        };
        call.share_memory();
        call
    }

    /// Shares the memory budget out among the chunks in flight, the chunks that wait to be handed out if several may be in flight, and those that are
    /// taken ahead.
    fn share_memory(&mut self) {
        // A source that may block is not asked.
        let group = match self.producer {
            None => self.jobs.peek().and_then(|(_, block)| block.group.as_ref().ok().copied()),
            Some(_) => None,
        };
        self.group = group.filter(|group| group.kind.habits().comes_alone);
        let workers: Vec<&Worker> = self.devices.iter().map(|device| device.worker).collect();
        let slots = slots(self.scheduler.sharing(&workers).map(|worker| worker.queue_of(self.group) as u64));
        let all = slots + u64::from(self.producer.is_some());
        let slot = self.scheduler.memory_budget() / all;
        let for_waiting = if slots > 1 { slot / WAITING_SHARE } else { 0 };
        (self.slots, self.slot, self.waiting) = (slots as usize, slot - for_waiting, slots * for_waiting);
    }

    /// Goes on with these devices. Those that the call began with stay while their results are in use.
    fn switch_to(&mut self, workers: Vec<&'a Worker>) {
        self.may_switch = false;
        if self.is_empty() {
            self.devices.clear();
        }
        let others: Vec<_> = workers.into_iter().filter(|worker| self.has_not(worker)).collect();
        self.devices.extend(others.into_iter().map(CallDevice::new));
        self.share_memory();
    }

    /// Runs all jobs: starts chunks, takes those that are completed, and hands results out, until there is nothing left to do. Chunks run in `scopes`,
    /// which are those of the devices' slots. Without scopes, the first chunk that needs one makes the call go on within scopes. Gives the number of
    /// jobs whose results were handed out.
    pub(super) fn run(
        &mut self,
        mut scopes: Option<&Scopes<'_, 'a>>,
        sink: &mut BlockSink<'_>,
    ) -> (usize, Result<(), Error>) {
        'devices: loop {
            let seen = self.signal.events();
            self.withdraw_wrong();
            self.take_grants();
            if let Err(why) = self.ends.check() {
                // Chunks that began are completed and handed out. Jobs that a device lost are not done again.
                let lost = self.jobs.waiting().map_or(self.fresh, |(index, _)| *index);
                self.end(lost.min(self.fresh), Err(why));
            }
            let later = loop {
                match self.next_chunk() {
                    Next::Chunk(chunk) => {
                        if !self.launch(chunk, scopes) {
                            let workers: Vec<&'a Worker> = self.devices.iter().map(|device| device.worker).collect();
                            let done = self.scheduler.with_scopes(&workers, &mut |scopes| self.run(Some(scopes), sink));
                            return done.unwrap_or_else(|why| (self.handed_out, Err(why)));
                        }
                    }
                    Next::Refused => {}
                    Next::Devices(workers) => {
                        // These devices have no scopes yet.
                        scopes = None;
                        self.switch_to(workers);
                        continue 'devices;
                    }
                    Next::Later(later) => break later,
                }
            };
            // Other calls may use slots that were granted to this call and have no use now.
            self.devices.iter_mut().for_each(CallDevice::give_up);
            let is_due = self.current.is_some() || self.ready.contains_key(&self.next);
            if is_due && self.step_aside() {
                self.hand_out(sink);
            } else if !is_due && self.is_idle() && later.is_none() {
                return (self.handed_out, self.finish());
            } else if !is_due && lock(&self.completed).is_empty() {
                let in_flight = self.devices.iter().map(|device| device.jobs).sum();
                let reason = match (in_flight, &later) {
                    (0, Some(_)) => Step::WaitForJobs,
                    (0, None) => Step::WaitForPermit,
                    _ => Step::WaitForChunks,
                };
                let most = if self.end.is_some() { later.flatten() } else { self.ends.wait(later.flatten()) };
                trace::step(reason, in_flight, || self.signal.wait(seen, most));
            }
            let completed = std::mem::take(&mut *lock(&self.completed));
            completed.into_iter().for_each(|one| self.complete(one));
        }
    }

    /// Whether no results wait.
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.current.is_none()
    }

    /// Whether no chunk may begin but that of the next job to hand out.
    fn is_full(&self) -> bool {
        self.ready.len() >= MOST_WAITING.max(self.slots)
            || (self.held.len() >= self.slots && self.bytes_waiting() > self.waiting)
    }

    /// Bytes of chunks that are computed, and whose results wait or are being handed out.
    fn bytes_waiting(&self) -> u64 {
        let of_chunk = |first: &usize| self.held.get(first).copied().unwrap_or(0);
        self.ready.keys().chain(self.current.iter().map(|(first, _)| first)).map(of_chunk).sum()
    }

    /// Whether nothing is in flight and no permit is waited for.
    fn is_idle(&self) -> bool {
        self.devices.iter().all(|device| device.chunks == 0 && device.request.is_none())
    }

    fn take_grants(&mut self) {
        for (number, slot) in self.signal.take_granted() {
            let device = &mut self.devices[number];
            device.request = None;
            device.granted.push(slot);
        }
    }

    /// Leaves the queues while results are handed out, so that the sink may use the engine too. Gives whether nothing was granted meanwhile.
    fn step_aside(&mut self) -> bool {
        for device in &mut self.devices {
            if let Some(request) = device.request.take_if(|request| device.worker.permits.withdraw(*request)) {
                device.place = Some(request);
            }
        }
        self.devices.iter().all(|device| device.request.is_none() && device.granted.is_empty())
    }

    fn has_not(&self, worker: &Worker) -> bool {
        !self.devices.iter().any(|device| std::ptr::eq(device.worker, worker))
    }

    /// Runs a chunk in the threads of its slot, or on the calling thread if it is the only chunk. Gives `false` if it waits for scopes of these threads.
    fn launch(&mut self, chunk: Chunk<'a>, scopes: Option<&Scopes<'_, 'a>>) -> bool {
        let (scheduler, worker) = (self.scheduler, self.devices[chunk.device].worker);
        let is_only = self.is_idle() && self.jobs.left() == Some(0);
        // A thread of the caller's pool could begin with another call while it waits for ours, and wait for its own permit.
        let is_free = rayon::current_thread_index().is_none();
        let is_here = (is_only && is_free) || scheduler.works_on_calling_thread(worker);
        if !is_here && scopes.is_none() {
            self.chunk = Some(chunk);
            return false;
        }
        let Chunk { device, permit, jobs, room } = chunk;
        let slot = permit.slot.expect("a chunk's permit has a slot");
        let (first, count) = (jobs[0].0, counted(&jobs));
        let it = &mut self.devices[device];
        (it.chunks, it.jobs, it.begun) = (it.chunks + 1, it.jobs + count, it.begun + 1);
        let mut spare = it.spare.pop().unwrap_or_default();
        let (client, completed, signal) = (self.client, self.completed.clone(), self.signal.clone());
        let trace = scheduler.trace_of_chunk();
        let run = move || {
            let began = Instant::now();
            let done = catch_unwind(AssertUnwindSafe(|| {
                let threads = scheduler.options.threads;
                let mut work = |pool: Option<&rayon::ThreadPool>| {
                    let place = Place { scheduler, worker, room, pool, threads, places: Places::Usual };
                    trace.step(Step::Chunk, count, || client.run(&place, &jobs, &mut spare))
                };
                match (is_here, count) {
                    // Waking the slot's threads takes longer than the work that they would share.
                    (true, ..=JOBS_ON_CALLING_THREAD) if worker.has_memory() => {
                        scheduler.same_process().and_then(|()| work(None))
                    }
                    // The threads are woken once, not for each step that they share.
                    (true, _) => scheduler.with_pool(worker, slot, |pool| match pool {
                        Some(pool) => trace::step(Step::WaitForChunks, count, || pool.install(|| work(Some(pool)))),
                        None => work(None),
                    }),
                    (false, _) => scheduler.with_pool(worker, slot, work),
                }
            }));
            let done = match done {
                Ok(Ok(())) => ChunkOutcome::Done(jobs),
                Ok(Err(why)) => ChunkOutcome::Failed(why, jobs),
                Err(panic) => ChunkOutcome::Panicked(panic),
            };
            drop(permit);
            scheduler.counters.chunk(count, began.elapsed());
            lock(&completed).push(Completed { device, first, jobs: count, spare, done });
            signal.notify();
        };
        match scopes.filter(|_| !is_here) {
            Some(scopes) => scopes[device][slot].spawn(move |_| run()),
            None => run(),
        }
        true
    }

    /// Sets an error as the result of a block.
    fn refuse(&mut self, index: usize, count: usize, why: Error) {
        let block = Block { group: Err(why), held: 0, count };
        self.ready.insert(index, WaitingResults { blocks: vec![(index, block)].into_iter(), from: None });
    }

    /// Does blocks again whose results came from devices that turned out to compute wrongly, in this call or in another.
    fn withdraw_wrong(&mut self) {
        for device in 0..self.devices.len() {
            if self.devices[device].worker.is_wrong() {
                self.withdraw(device);
            }
        }
    }

    /// Does blocks again whose results came from this device and were not handed out yet.
    fn withdraw(&mut self, device: usize) {
        let is_its = |ready: &WaitingResults| ready.from == Some(device);
        let current = self.current.take_if(|(_, ready)| is_its(ready));
        let waiting = self.ready.extract_if(.., |_, ready| is_its(ready));
        for (first, ready) in current.into_iter().chain(waiting).collect::<Vec<_>>() {
            self.held.remove(&first);
            self.whole = false;
            self.again(ready.blocks.collect());
        }
    }

    /// Gives jobs back, without their results, so that other devices do them.
    fn again(&mut self, jobs: Numbered) {
        self.client.discard(&jobs);
        self.scheduler.counters.again.add(counted(&jobs) as u64);
        self.jobs.give_back(jobs);
    }

    /// Ends the call. Results before the job `first` are still handed out.
    fn end(&mut self, first: usize, with: Result<(), Error>) {
        if self.end.as_ref().is_none_or(|(end, _)| first < *end) {
            self.end = Some((first, with));
        }
        if let Some(producer) = self.producer {
            producer.stop();
        }
    }

    fn complete(&mut self, completed: Completed) {
        let Completed { device, first, jobs: count, mut spare, done } = completed;
        let it = &mut self.devices[device];
        (it.chunks, it.jobs) = (it.chunks - 1, it.jobs - count);
        let worker = it.worker;
        // The device failed meanwhile at another chunk: the results of this one are not trusted.
        let is_doubted = worker.is_disabled();
        if is_doubted {
            spare.zeroize();
        }
        it.spare.push(spare);
        let (why, jobs) = match done {
            ChunkOutcome::Done(jobs) if is_doubted => (None, jobs),
            ChunkOutcome::Done(blocks) => {
                self.ready.insert(first, WaitingResults { blocks: blocks.into_iter(), from: Some(device) });
                return;
            }
            ChunkOutcome::Panicked(with) => resume_unwind(with),
            ChunkOutcome::Failed(why, jobs) => (Some(why), jobs),
        };
        self.held.remove(&first);
        self.whole = false;
        match why {
            Some(why) if !is_fault(&why) => self.end(first, Err(why)),
            Some(why) => {
                let earliest = self.first.get_or_insert_with(|| why.clone()).clone();
                if self.scheduler.fault(worker, why, count) {
                    self.again(jobs);
                } else {
                    self.end(first, Err(earliest));
                }
            }
            None => self.again(jobs),
        }
    }

    /// Hands some results out.
    fn hand_out(&mut self, sink: &mut BlockSink<'_>) {
        if self.current.is_none() {
            self.current = self.ready.remove(&self.next).map(|ready| (self.next, ready));
        }
        let Some((first, ready)) = &mut self.current else { return };
        let (handed_out, goes_on) = TraceContext::current().counted(Step::HandOut, || {
            let (mut goes_on, mut handed_out) = (true, 0);
            while goes_on && handed_out < AT_A_TIME {
                let Some((number, block)) = ready.blocks.next() else { break };
                goes_on = sink(number, block.group.err()).is_continue();
                handed_out += block.count;
                self.next += block.count;
            }
            (handed_out, goes_on)
        });
        self.handed_out += handed_out;
        if ready.blocks.len() == 0 || !goes_on {
            if self.held.remove(first).is_some() {
                self.whole = false;
            }
            self.current = None;
        }
        if !goes_on {
            // Results of chunks that are still in flight are not handed out, whatever the chunks' outcome.
            self.end(0, Ok(()));
            self.next = usize::MAX;
        }
    }

    /// Ends the call when nothing is in flight any more. The client discards results that were not handed out.
    fn finish(&mut self) -> Result<(), Error> {
        let Some((_, how)) = self.end.take() else { return Ok(()) };
        for device in &mut self.devices {
            device.spare.iter_mut().for_each(|spare| spare.zeroize());
        }
        how
    }
}

impl Drop for Call<'_> {
    /// Stops the producer, waits for no permit any more and keeps none, even if the sink panicked.
    fn drop(&mut self) {
        if let Some(producer) = self.producer {
            producer.stop();
        }
        for device in &mut self.devices {
            if let Some(request) = device.request.take() {
                device.worker.permits.withdraw(request);
            }
        }
        self.take_grants();
    }
}
