//! The devices of an engine, and how they share the jobs of a call.

use hypergrove_engine::scheduler::{Fault, is_fault};
use crate::{Error, Work};
use hypergrove_engine::{Axis, Backend, Device, Policy, Timing, ZkDilithium};
use hypergrove_zkdilithium::Op;
use rayon::ThreadPool;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Instant;

/// Jobs of a piece for each of the CPU's threads, where other devices wait for the end of the piece.
const JOBS_BESIDE_OTHERS: usize = 128;

/// Programs of a device in flight, at most; how many of them are used, each program says.
pub(super) const MOST_HANDS: usize = 3;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device of an engine.
pub(super) struct Worker {
    pub(super) device: Device,
    pub(super) hands: Vec<Hand>,
    is_cpu: bool,
    /// Whether its programs compute everything twice.
    redundant: bool,
    facts: OnceLock<Facts>,
    /// Jobs a second of each operation, as last measured; zero before that. The bits of an `f64`.
    speeds: [AtomicU64; 3],
    state: AtomicU8,
}

/// It failed, and another one took its part.
const LOST: u8 = 1;
/// The same, and it was by wrong results.
const WRONG: u8 = 2;

/// What a device's programs are like.
struct Facts {
    space: Vec<Axis>,
    /// Jobs at a time, of each operation.
    jobs: [usize; 3],
    /// Programs that keep the device busy, of each operation.
    queue: [u32; 3],
    /// Bytes of the host's memory that a program works in.
    bytes: u64,
    poseidon_rate: Option<f64>,
}

/// A program, made at its first use.
pub(super) struct Hand {
    backend: Arc<dyn Backend>,
    policy: Policy,
    /// The CPU's threads, or what copies for a GPU's program; without, the calling thread. One pool for several would have a
    /// thread that waits for one's copies begin with another's pass.
    pool: Option<ThreadPool>,
    program: Mutex<Option<Box<dyn ZkDilithium>>>,
    /// The device had no room for it in this call.
    is_refused: AtomicBool,
}

impl Hand {
    pub(super) fn new(backend: &Arc<dyn Backend>, policy: &Policy, pool: Option<ThreadPool>) -> Hand {
        Hand {
            backend: backend.clone(),
            policy: policy.clone(),
            pool,
            program: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }
    fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }
}

/// Where a piece is computed.
pub(super) struct On<'a> {
    pub(super) device: &'a Device,
    /// Threads of the current pool; with one, nothing is left to any pool.
    pub(super) threads: usize,
    pub(super) program: &'a mut dyn ZkDilithium,
}

impl On<'_> {
    /// Runs work that puts its jobs in other places.
    pub(super) fn elsewhere<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.program.elsewhere(true);
        let done = work(self);
        self.program.elsewhere(false);
        done
    }
    /// An error if results differ from those of the second time.
    pub(super) fn compare<T: PartialEq>(&self, what: &str, first: &[T], second: &[T]) -> Result<(), Error> {
        let differs = first.iter().zip(second).position(|(a, b)| a != b);
        match differs.or((first.len() != second.len()).then_some(0)) {
            None => Ok(()),
            Some(job) => Err(Error::Inconsistent {
                device: self.device.id(),
                what: format!("the {what} of job {job} differs when it is computed again"),
            }),
        }
    }
}

/// Jobs in a row, of which anyone can take some.
pub(super) trait Jobs: Send + Sized {
    fn len(&self) -> usize;
    /// The first so many, and the others.
    fn split_at(self, at: usize) -> (Self, Self);
}

impl<T: Sync> Jobs for &[T] {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn split_at(self, at: usize) -> (Self, Self) {
        (*self).split_at(at)
    }
}

/// Jobs of a call, and the number of the first.
struct Part<J> {
    from: usize,
    jobs: J,
}

/// A part that is done, and who did it.
struct Piece<J, R> {
    part: Part<J>,
    results: Vec<R>,
    worker: usize,
}

impl Worker {
    pub(super) fn new(device: Device, hands: Vec<Hand>, is_cpu: bool, redundant: bool) -> Worker {
        let (facts, speeds, state) = Default::default();
        Worker { device, hands, is_cpu, redundant, facts, speeds, state }
    }

    /// Whether it failed, and another one took its part.
    pub(super) fn is_aside(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    /// Whether what it has computed cannot be trusted.
    fn is_wrong(&self) -> bool {
        self.state.load(Relaxed) == WRONG
    }

    fn with<R>(&self, hand: &Hand, run: impl FnOnce(&mut dyn ZkDilithium) -> Result<R, Error>) -> Result<R, Error> {
        let make = || hand.backend.zkdilithium_on(&self.device)?.prepare(&self.device, &hand.policy);
        if self.is_cpu {
            // Calls of several threads compute at the same time, each by a program of its own. No lock is held meanwhile: a
            // thread of the caller's pool that waits here may begin with another call.
            let idle = lock(&hand.program).take();
            let mut program = idle.map_or_else(make, Ok)?;
            let done = run(&mut *program)?;
            *lock(&hand.program) = Some(program);
            return Ok(done);
        }
        let mut program = lock(&hand.program);
        if program.is_none() {
            *program = Some(make()?);
        }
        let done = run(&mut **program.as_mut().expect("it was made"));
        // One that failed is not used again, and wipes what it holds.
        if done.as_ref().is_err_and(is_fault) {
            *program = None;
        }
        done
    }

    /// What its programs are like. Asked of the first one before any runs, for a GPU's program that runs can be asked nothing.
    fn facts(&self) -> Result<&Facts, Error> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let facts = self.with(&self.hands[0], |program| {
            let ops = [Op::Keygen, Op::Sign, Op::Verify];
            let (jobs, queue) = (ops.map(|op| program.jobs(op)), ops.map(|op| program.queue(op)));
            program.elsewhere(self.redundant);
            let bytes = program.bytes();
            program.elsewhere(false);
            Ok(Facts { space: program.space(), jobs, queue, bytes, poseidon_rate: program.poseidon_rate(None) })
        })?;
        // Another thread may have been first, with the same.
        Ok(self.facts.get_or_init(|| facts))
    }

    /// What can be chosen by a policy; nothing on the CPU.
    pub(super) fn space(&self) -> Result<Vec<Axis>, Error> {
        Ok(if self.is_cpu { Vec::new() } else { self.facts()?.space.clone() })
    }
    /// Jobs that a program takes at a time; `None` for the CPU.
    pub(super) fn program(&self, op: Op) -> Result<Option<usize>, Error> {
        Ok(if self.is_cpu { None } else { Some(self.facts()?.jobs[op as usize]) })
    }
    /// Jobs at a time, and how many times that keeps the device busy.
    pub(super) fn jobs(&self, op: Op) -> Result<(usize, usize), Error> {
        let Facts { jobs, queue, .. } = self.facts()?;
        Ok((jobs[op as usize], self.hands.len().min(queue[op as usize] as usize)))
    }
    /// All programs have the same backend.
    pub(super) fn notices(&self) -> Vec<String> {
        self.hands[0].backend.notices()
    }
    /// Poseidon permutations a second; of the CPU's threads at so many cycles a second.
    pub(super) fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        match self.is_cpu {
            true => self.with(&self.hands[0], |program| Ok(program.poseidon_rate(clock))),
            false => Ok(self.facts()?.poseidon_rate),
        }
    }
    /// Bytes of the host's memory that all threads of the CPU work in. Of a CPU that fails its self-test none: no call will
    /// take any.
    pub(super) fn bytes(&self) -> u64 {
        if self.is_cpu { self.facts().map_or(0, |facts| facts.bytes) } else { 0 }
    }
    /// Compressions a second, if its backend knows.
    pub(super) fn rates(&self) -> Option<Work> {
        self.hands[0].backend.rates(&self.device)
    }

    /// Takes note of jobs a second.
    pub(super) fn know_speed(&self, op: Op, speed: f64) {
        self.speeds[op as usize].store(speed.to_bits(), Relaxed);
    }

    fn speed(&self, op: Op) -> f64 {
        f64::from_bits(self.speeds[op as usize].load(Relaxed))
    }
}

/// Jobs of a call that nobody has taken yet.
struct Open<J> {
    parts: Vec<Part<J>>,
}

impl<J: Jobs> Open<J> {
    fn take(&mut self, most: usize) -> Option<Part<J>> {
        let Part { from, jobs } = self.parts.pop()?;
        let most = most.max(1);
        if jobs.len() <= most {
            return Some(Part { from, jobs });
        }
        let (jobs, others) = jobs.split_at(most);
        self.parts.push(Part { from: from + most, jobs: others });
        Some(Part { from, jobs })
    }
}

/// How fast calls are in which GPUs and the CPU could take part, by the operation and the power of two of their jobs,
/// without the CPU and with it. The threads that it computes on are missed where GPUs' results are copied: which is
/// faster is measured.
#[derive(Default)]
pub(super) struct Paces(Mutex<BTreeMap<(usize, u32), [Pace; 2]>>);

#[derive(Clone, Copy, Default)]
struct Pace {
    calls: u32,
    /// Jobs a second of the last one.
    latest: f64,
}

/// Calls of a kind after which the slower way is tried again: messages may have become longer.
const AGAIN: u32 = 16;

impl Paces {
    pub(super) fn know(&self, op: Op, jobs: usize, with_cpu: bool, latest: f64) {
        let mut paces = lock(&self.0);
        let pace = &mut paces.entry((op as usize, jobs.ilog2())).or_default()[usize::from(with_cpu)];
        *pace = Pace { calls: pace.calls + 1, latest };
    }
    /// Whether the CPU shall take part.
    fn is_cpu_wanted(&self, op: Op, jobs: usize) -> bool {
        let [without, with] = lock(&self.0).get(&(op as usize, jobs.ilog2())).copied().unwrap_or_default();
        // The first call of each way may have had programs to make.
        if with.calls.min(without.calls) < 2 {
            return with.calls <= without.calls;
        }
        let is_due = (with.calls + without.calls).is_multiple_of(AGAIN);
        (with.latest >= without.latest) != is_due
    }
}

/// What the workers of a call share.
pub(super) struct Crew<'a> {
    pub(super) workers: &'a [Worker],
    pub(super) paces: &'a Paces,
    pub(super) timing: &'a Mutex<Timing>,
    pub(super) faults: &'a Mutex<Vec<Fault>>,
}

impl Crew<'_> {
    /// Has all workers take jobs until none are left; gives the results in the order of the jobs. What a device lost that
    /// failed, others do; the failure of the last one is the call's.
    pub(super) fn share<J: Jobs, R: Send>(
        &self,
        op: Op,
        jobs: J,
        run: impl Fn(&mut On<'_>, &mut J, &mut Vec<R>) -> Result<Timing, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let (total, began) = (jobs.len(), Instant::now());
        // What took a device's room may have gone since the last call.
        for worker in self.workers {
            worker.hands.iter().for_each(|hand| hand.is_refused.store(false, Relaxed));
        }
        let choice = (total > 0 && self.is_cpu_open(op)).then(|| self.paces.is_cpu_wanted(op, total));
        let mut done: Vec<Piece<J, R>> = Vec::new();
        let mut open = Vec::from_iter((jobs.len() > 0).then_some(Part { from: 0, jobs }));
        while !open.is_empty() {
            let live = self.live(choice.unwrap_or(true));
            let round = Round {
                crew: self,
                op,
                live: &live,
                left: open.iter().map(|part| part.jobs.len()).sum(),
                open: Mutex::new(Open { parts: std::mem::take(&mut open) }),
                done: Mutex::new(std::mem::take(&mut done)),
                lost: Mutex::default(),
                refused: Mutex::default(),
                run: &run,
            };
            let turns = round.all_turns();
            match &turns[..] {
                [turn] if self.workers[turn.worker].is_cpu => round.work(turn),
                // Not on this thread: if it is one of a pool, it may begin with another call while it waits here, and wait for
                // a program that it holds itself.
                turns => std::thread::scope(|scope| {
                    let round = &round;
                    let start = |turn| Builder::new().spawn_scoped(scope, move || round.work(turn)).err();
                    let refused: Vec<_> = turns.iter().filter_map(start).collect();
                    // Without a thread that cannot be had, the others do its part.
                    if let (Some(why), true) = (refused.first(), refused.len() == turns.len()) {
                        lock(&round.refused).get_or_insert(Error::no_threads(turns.len(), why));
                    }
                }),
            }
            if let Some(why) = lock(&round.refused).take() {
                return Err(why);
            }
            open = std::mem::take(&mut lock(&round.lost));
            open.append(&mut lock(&round.open).parts);
            done = std::mem::take(&mut lock(&round.done));
            // Also what another call found to be wrong.
            let withdrawn = done.extract_if(.., |piece| self.workers[piece.worker].is_wrong());
            open.extend(withdrawn.map(|piece| piece.part));
        }
        if let Some(with_cpu) = choice.filter(|_| self.is_cpu_open(op)) {
            self.paces.know(op, total, with_cpu, total as f64 / began.elapsed().as_secs_f64().max(1e-9));
        }
        done.sort_by_key(|piece| piece.part.from);
        Ok(done.into_iter().flat_map(|piece| piece.results).collect())
    }

    fn there(&self) -> impl Iterator<Item = usize> {
        (0..self.workers.len()).filter(|number| !self.workers[*number].is_aside())
    }

    /// Whether it is a choice that the CPU takes part, all that might do having shown how fast they are.
    fn is_cpu_open(&self, op: Op) -> bool {
        let cpus = self.there().filter(|number| self.workers[*number].is_cpu).count();
        cpus > 0 && cpus < self.there().count() && self.there().all(|number| self.workers[number].speed(op) > 0.0)
    }

    /// Who takes part: the CPU, unless it alone is left, if it shall.
    fn live(&self, with_cpu: bool) -> Vec<usize> {
        let gpus: Vec<_> = self.there().filter(|number| !self.workers[*number].is_cpu).collect();
        if with_cpu || gpus.is_empty() { self.there().collect() } else { gpus }
    }

    /// The part of all jobs that one of these workers would have if all ended together; `None` before all speeds are known.
    fn part(&self, op: Op, live: &[usize], number: usize) -> Option<f64> {
        let speeds = live.iter().map(|number| self.workers[*number].speed(op));
        speeds.clone().all(|speed| speed > 0.0).then(|| self.workers[number].speed(op) / speeds.sum::<f64>())
    }
}

/// One hand of a worker that takes part in a round.
struct Turn {
    worker: usize,
    hand: usize,
    /// Its place among the hands of this worker that take part, and how many these are.
    place: usize,
    of: usize,
    /// Jobs that it takes at a time, at most.
    most: usize,
}

/// A row of jobs on its way through the devices that work.
struct Round<'a, J, R, F> {
    crew: &'a Crew<'a>,
    op: Op,
    live: &'a [usize],
    left: usize,
    open: Mutex<Open<J>>,
    done: Mutex<Vec<Piece<J, R>>>,
    lost: Mutex<Vec<Part<J>>>,
    refused: Mutex<Option<Error>>,
    run: &'a F,
}

impl<J: Jobs, R: Send, F: Fn(&mut On<'_>, &mut J, &mut Vec<R>) -> Result<Timing, Error> + Sync> Round<'_, J, R, F> {
    /// A worker's part of all jobs: by measured speeds, before these by heads.
    fn share(&self, number: usize) -> usize {
        let part = self.crew.part(self.op, self.live, number).unwrap_or(1.0 / self.live.len() as f64);
        ((self.left as f64 * part).ceil() as usize).max(1)
    }

    /// The hands that take part. Devices that are not ready yet get ready side by side.
    fn all_turns(&self) -> Vec<Turn> {
        let is_ready = |number: &usize| self.crew.workers[*number].facts.get().is_some();
        if self.live.iter().all(is_ready) {
            return self.live.iter().flat_map(|number| self.turns(*number)).collect();
        }
        let [first, others @ ..] = self.live else { return Vec::new() };
        std::thread::scope(|scope| {
            let start = |number| (number, Builder::new().spawn_scoped(scope, move || self.turns(number)));
            let others: Vec<_> = others.iter().copied().map(start).collect();
            let others = others.into_iter().map(|(number, other)| match other {
                Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // Without a thread, one after the other.
                Err(_) => self.turns(number),
            });
            std::iter::once(self.turns(*first)).chain(others).flatten().collect()
        })
    }

    /// The hands of a worker that take part: more than one if there is work for it.
    fn turns(&self, number: usize) -> Vec<Turn> {
        let worker = &self.crew.workers[number];
        match worker.jobs(self.op) {
            Ok((jobs, hands)) => {
                let all = worker.hands.iter().enumerate().filter(|(_, hand)| !hand.is_refused.load(Relaxed));
                let mut hands: Vec<_> = all.map(|(hand, _)| hand).take(hands).collect();
                if self.share(number) <= jobs {
                    hands.truncate(1);
                }
                let of = hands.len();
                // The CPU is no faster for pieces; they are for others to have their share.
                let most = match (worker.is_cpu, self.live.len()) {
                    (true, 1) => self.left,
                    (true, _) => JOBS_BESIDE_OTHERS * worker.hands[0].threads(),
                    (false, _) => jobs,
                };
                let turn = |(place, hand)| Turn { worker: number, hand, place, of, most };
                hands.into_iter().enumerate().map(turn).collect()
            }
            Err(why) => {
                self.fail(number, why, None);
                Vec::new()
            }
        }
    }

    /// One hand of a worker: piece after piece.
    fn work(&self, turn: &Turn) {
        let (number, worker) = (turn.worker, &self.crew.workers[turn.worker]);
        // Hands that begin together with as much to do would also fetch together, and the device would wait.
        let mut first = (turn.place + 1) as f64 / turn.of as f64;
        while lock(&self.refused).is_none() && !worker.is_aside() {
            let most = (turn.most.min(self.share(number)) as f64 * first).ceil() as usize;
            first = 1.0;
            let Some(mut part) = lock(&self.open).take(most) else { return };
            let (count, jobs) = (part.jobs.len(), &mut part.jobs);
            let (mut results, began) = (Vec::with_capacity(count), Instant::now());
            let device = &worker.device;
            let hand = &worker.hands[turn.hand];
            let ended = worker.with(hand, |program| {
                let mut on = On { device, threads: hand.threads(), program };
                let mut run = || (self.run)(&mut on, jobs, &mut results);
                match &hand.pool {
                    Some(pool) => pool.install(run),
                    None => run(),
                }
            });
            let took = match ended {
                Ok(took) => took,
                // A device that has no room for one more program goes on with the others.
                Err(Error::OutOfMemory { .. }) if self.refuse(turn) => return lock(&self.open).parts.push(part),
                Err(why) => return self.fail(number, why, Some(part)),
            };
            // A tail takes as long as a piece.
            if count == most || worker.speed(self.op) == 0.0 {
                let speed = turn.of as f64 * count as f64 / began.elapsed().as_secs_f64().max(1e-9);
                worker.know_speed(self.op, speed);
            }
            *lock(self.crew.timing) += &took;
            let mut done = lock(&self.done);
            // Another hand may have found the device wrong while this one computed.
            if worker.is_aside() {
                lock(&self.lost).push(part);
                return;
            }
            done.push(Piece { part, results, worker: number });
        }
    }

    /// Does without a program for which a device has no room, unless it is the last one.
    fn refuse(&self, turn: &Turn) -> bool {
        let programs = &self.crew.workers[turn.worker].hands;
        // Under a lock: of two that are refused at once, one stays.
        let _one_at_a_time = lock(self.crew.faults);
        let is_last = programs.iter().filter(|hand| !hand.is_refused.load(Relaxed)).count() == 1;
        if !is_last {
            programs[turn.hand].is_refused.store(true, Relaxed);
        }
        !is_last
    }

    /// A worker failed, and the piece that it lost is open again. Where no other is left, or the call is to blame, the error
    /// ends the call.
    fn fail(&self, number: usize, why: Error, lost: Option<Part<J>>) {
        let workers = self.crew.workers;
        // Under this lock: of two that fail at once, one stays.
        let mut faults = lock(self.crew.faults);
        let others = workers.iter().enumerate().any(|(other, worker)| other != number && !worker.is_aside());
        if !others || !is_fault(&why) {
            lock(&self.refused).get_or_insert(why);
            return;
        }
        let state = if matches!(why, Error::Inconsistent { .. }) { WRONG } else { LOST };
        workers[number].state.fetch_max(state, Relaxed);
        faults.push(Fault {
            device: workers[number].device.clone(),
            error: why,
            jobs: lost.as_ref().map_or(0, |part| part.jobs.len()),
        });
        lock(&self.lost).extend(lost);
    }
}
