//! The devices of an engine, and how they share the jobs of a call.

use crate::worker::{Fault, is_fault};
use crate::{Error, Work};
use hypergrove_cpu::zk::ZkDilithium as Lanes;
use hypergrove_engine::{Axis, Backend, Device, Policy, Timing, ZkDilithium};
use hypergrove_zkdilithium::Op;
use rayon::ThreadPool;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Jobs of one call for each thread that keep lanes filled, and those of a piece where others wait for its end.
const JOBS_OF_A_THREAD: usize = 512;
const JOBS_BESIDE_OTHERS: usize = 128;
/// The CPU takes no part in what GPUs do if its part by speed is smaller: they need its threads more.
const WORTH: f64 = 1.0 / 16.0;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device of an engine.
pub(super) struct Worker {
    pub(super) device: Device,
    pub(super) hands: Hands,
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
    poseidon_rate: Option<f64>,
}

/// What computes on a device.
pub(super) enum Hands {
    /// The CPU's lanes, on threads of their own.
    Lanes(Lanes, ThreadPool),
    /// Programs of a GPU in flight.
    Programs(Vec<Hand>),
}

/// A program of a GPU, made at its first use.
pub(super) struct Hand {
    backend: Arc<dyn Backend>,
    policy: Policy,
    /// What copies for it. One pool for several would have a thread that waits for one's copies begin with another's pass.
    pool: ThreadPool,
    program: Mutex<Option<Box<dyn ZkDilithium>>>,
    /// The device had no room for it.
    is_refused: AtomicBool,
}

impl Hand {
    pub(super) fn new(backend: &Arc<dyn Backend>, policy: &Policy, pool: ThreadPool) -> Hand {
        Hand {
            backend: backend.clone(),
            policy: policy.clone(),
            pool,
            program: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }
}

/// Where a piece is computed.
pub(super) struct On<'a> {
    pub(super) device: &'a Device,
    pub(super) by: By<'a>,
}

/// What computes a piece.
pub(super) enum By<'a> {
    Lanes(&'a Lanes),
    Program(&'a mut dyn ZkDilithium),
}

/// Results of a piece, where they begin, and who made them.
struct Piece<R> {
    from: usize,
    results: Vec<R>,
    worker: usize,
}

impl<R> Piece<R> {
    fn place(&self) -> Range<usize> {
        self.from..self.from + self.results.len()
    }
}

impl Worker {
    pub(super) fn new(device: Device, hands: Hands) -> Worker {
        Worker { device, hands, facts: OnceLock::new(), speeds: Default::default(), state: AtomicU8::new(0) }
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
        let mut program = lock(&hand.program);
        if program.is_none() {
            *program = Some(hand.backend.zkdilithium(&self.device, &hand.policy)?);
        }
        let done = run(&mut **program.as_mut().expect("it was made"));
        // One that failed is not used again, and wipes what it holds.
        if done.as_ref().is_err_and(is_fault) {
            *program = None;
        }
        done
    }

    /// What its programs are like; `None` for the CPU. Asked of the first one before any runs, for a program that runs can
    /// be asked nothing.
    fn facts(&self) -> Result<Option<&Facts>, Error> {
        let Hands::Programs(hands) = &self.hands else { return Ok(None) };
        if self.facts.get().is_none() {
            let facts = self.with(&hands[0], |program| {
                let jobs = [Op::Keygen, Op::Sign, Op::Verify].map(|op| program.jobs(op));
                Ok(Facts { space: program.space(), jobs, poseidon_rate: program.poseidon_rate() })
            })?;
            // Another thread may have been first, with the same.
            let _ = self.facts.set(facts);
        }
        Ok(self.facts.get())
    }

    /// What can be chosen by a policy; nothing on the CPU.
    pub(super) fn space(&self) -> Result<Vec<Axis>, Error> {
        Ok(self.facts()?.map_or(Vec::new(), |facts| facts.space.clone()))
    }
    /// Jobs that a program takes at a time; `None` for the CPU.
    pub(super) fn program(&self, op: Op) -> Result<Option<usize>, Error> {
        Ok(self.facts()?.map(|facts| facts.jobs[op as usize]))
    }
    /// Jobs at a time, and how many times that keeps the device busy.
    pub(super) fn jobs(&self, op: Op) -> Result<(usize, usize), Error> {
        Ok(match (&self.hands, self.program(op)?) {
            (Hands::Programs(hands), Some(jobs)) => (jobs, hands.len()),
            (Hands::Lanes(_, pool), _) => (JOBS_OF_A_THREAD * pool.current_num_threads(), 1),
            (Hands::Programs(_), None) => unreachable!("a GPU has programs"),
        })
    }
    /// Poseidon permutations a second; of the CPU's threads at so many cycles a second.
    pub(super) fn poseidon_rate(&self, clock: Option<f64>) -> Result<Option<f64>, Error> {
        match &self.hands {
            Hands::Lanes(lanes, pool) => {
                let known = clock.zip(lanes.poseidon_cycles());
                Ok(known.map(|(clock, cycles)| pool.current_num_threads() as f64 * clock / cycles))
            }
            Hands::Programs(_) => Ok(self.facts()?.and_then(|facts| facts.poseidon_rate)),
        }
    }
    /// Compressions a second of a GPU, if its backend knows.
    pub(super) fn rates(&self) -> Option<Work> {
        let Hands::Programs(hands) = &self.hands else { return None };
        hands[0].backend.rates(&self.device)
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
struct Open {
    parts: Vec<Range<usize>>,
}

impl Open {
    fn take(&mut self, most: usize) -> Option<Range<usize>> {
        let part = self.parts.last_mut()?;
        let taken = part.start..part.end.min(part.start + most.max(1));
        part.start = taken.end;
        if part.start == part.end {
            self.parts.pop();
        }
        Some(taken)
    }
}

/// What the workers of a call share.
pub(super) struct Crew<'a> {
    pub(super) workers: &'a [Worker],
    pub(super) timing: &'a Mutex<Timing>,
    pub(super) faults: &'a Mutex<Vec<Fault>>,
}

impl Crew<'_> {
    /// Has all workers take jobs until none are left. What a device lost that failed, others do; the failure of the last
    /// one is the call's.
    pub(super) fn share<J: Sync, R: Send>(
        &self,
        op: Op,
        jobs: &[J],
        run: impl Fn(&mut On<'_>, &[J], &mut Vec<R>) -> Result<Timing, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let mut done: Vec<Piece<R>> = Vec::new();
        let mut open = Vec::from_iter((!jobs.is_empty()).then_some(0..jobs.len()));
        while !open.is_empty() {
            let live = self.live(op);
            let round = Round {
                crew: self,
                op,
                jobs,
                live: &live,
                left: open.iter().map(ExactSizeIterator::len).sum(),
                open: Mutex::new(Open { parts: std::mem::take(&mut open) }),
                done: Mutex::new(std::mem::take(&mut done)),
                lost: Mutex::default(),
                refused: Mutex::default(),
                run: &run,
            };
            let turns = round.all_turns();
            match &turns[..] {
                [turn] if matches!(self.workers[turn.worker].hands, Hands::Lanes(..)) => round.work(turn),
                // Not on this thread: if it is one of a pool, it may begin with another call while it waits here, and wait for
                // a program that it holds itself.
                turns => std::thread::scope(|scope| {
                    for turn in turns {
                        scope.spawn(|| round.work(turn));
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
            open.extend(withdrawn.map(|piece| piece.place()));
        }
        done.sort_by_key(|piece| piece.from);
        Ok(done.into_iter().flat_map(|piece| piece.results).collect())
    }

    /// Who takes part.
    fn live(&self, op: Op) -> Vec<usize> {
        let all: Vec<usize> = (0..self.workers.len()).filter(|i| !self.workers[*i].is_aside()).collect();
        let is_worth = |number: usize| self.part(op, &all, number).is_none_or(|part| part >= WORTH);
        let takes_part = |number: &usize| !matches!(self.workers[*number].hands, Hands::Lanes(..)) || is_worth(*number);
        all.iter().copied().filter(takes_part).collect()
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
    /// Hands of this worker that take part.
    of: usize,
    /// Jobs that it takes at a time, at most.
    most: usize,
}

/// A row of jobs on its way through the devices that work.
struct Round<'a, J, R, F> {
    crew: &'a Crew<'a>,
    op: Op,
    jobs: &'a [J],
    live: &'a [usize],
    left: usize,
    open: Mutex<Open>,
    done: Mutex<Vec<Piece<R>>>,
    lost: Mutex<Vec<Range<usize>>>,
    refused: Mutex<Option<Error>>,
    run: &'a F,
}

impl<J: Sync, R: Send, F: Fn(&mut On<'_>, &[J], &mut Vec<R>) -> Result<Timing, Error> + Sync> Round<'_, J, R, F> {
    /// A worker's part of all jobs: by measured speeds, before these by heads.
    fn share(&self, number: usize) -> usize {
        let part = self.crew.part(self.op, self.live, number).unwrap_or(1.0 / self.live.len() as f64);
        ((self.left as f64 * part).ceil() as usize).max(1)
    }

    /// The hands that take part. Devices that are not ready yet get ready side by side.
    fn all_turns(&self) -> Vec<Turn> {
        let is_ready = |number: &usize| match &self.crew.workers[*number] {
            Worker { hands: Hands::Programs(_), facts, .. } => facts.get().is_some(),
            _ => true,
        };
        if self.live.iter().all(is_ready) {
            return self.live.iter().flat_map(|number| self.turns(*number)).collect();
        }
        let [first, others @ ..] = self.live else { return Vec::new() };
        std::thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|number| scope.spawn(|| self.turns(*number))).collect();
            let others = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            std::iter::once(self.turns(*first)).chain(others).flatten().collect()
        })
    }

    /// The hands of a worker that take part: more than one if there is work for it.
    fn turns(&self, number: usize) -> Vec<Turn> {
        let worker = &self.crew.workers[number];
        match worker.jobs(self.op) {
            Ok((jobs, hands)) => {
                let hands = match &worker.hands {
                    Hands::Programs(hands) => hands.iter().take_while(|hand| !hand.is_refused.load(Relaxed)).count(),
                    Hands::Lanes(..) => hands,
                };
                let of = if self.share(number) > jobs { hands } else { 1 };
                // The CPU is no faster for pieces; they are for others to have their share.
                let most = match (&worker.hands, self.live.len()) {
                    (Hands::Lanes(..), 1) => self.left,
                    (Hands::Lanes(_, pool), _) => JOBS_BESIDE_OTHERS * pool.current_num_threads(),
                    (Hands::Programs(_), _) => jobs,
                };
                (0..of).map(|hand| Turn { worker: number, hand, of, most }).collect()
            }
            Err(why) => {
                self.fail(number, why, 0..0);
                Vec::new()
            }
        }
    }

    /// One hand of a worker: piece after piece.
    fn work(&self, turn: &Turn) {
        let (number, worker) = (turn.worker, &self.crew.workers[turn.worker]);
        // Hands that begin together with as much to do would also fetch together, and the device would wait.
        let mut part = (turn.hand + 1) as f64 / turn.of as f64;
        while lock(&self.refused).is_none() && !worker.is_aside() {
            let most = (turn.most.min(self.share(number)) as f64 * part).ceil() as usize;
            part = 1.0;
            let Some(taken) = lock(&self.open).take(most) else { return };
            let jobs = &self.jobs[taken.clone()];
            let (mut results, began) = (Vec::with_capacity(jobs.len()), Instant::now());
            let device = &worker.device;
            let ended = match &worker.hands {
                Hands::Lanes(lanes, pool) => {
                    pool.install(|| (self.run)(&mut On { device, by: By::Lanes(lanes) }, jobs, &mut results))
                }
                Hands::Programs(programs) => worker.with(&programs[turn.hand], |program| {
                    programs[turn.hand]
                        .pool
                        .install(|| (self.run)(&mut On { device, by: By::Program(program) }, jobs, &mut results))
                }),
            };
            let took = match ended {
                Ok(took) => took,
                // A device that has no room for one more program goes on with the first.
                Err(Error::OutOfMemory { .. }) if turn.hand > 0 => {
                    if let Hands::Programs(programs) = &worker.hands {
                        programs[turn.hand].is_refused.store(true, Relaxed);
                    }
                    return lock(&self.open).parts.push(taken);
                }
                Err(why) => return self.fail(number, why, taken),
            };
            // A tail takes as long as a piece.
            if jobs.len() == most || worker.speed(self.op) == 0.0 {
                let speed = turn.of as f64 * jobs.len() as f64 / began.elapsed().as_secs_f64().max(1e-9);
                worker.know_speed(self.op, speed);
            }
            *lock(self.crew.timing) += &took;
            let mut done = lock(&self.done);
            // Another hand may have found the device wrong while this one computed.
            if worker.is_aside() {
                lock(&self.lost).push(taken);
                return;
            }
            done.push(Piece { from: taken.start, results, worker: number });
        }
    }

    /// A worker failed, and the piece that it lost is open again. Where no other is left, or the call is to blame, the error
    /// ends the call.
    fn fail(&self, number: usize, why: Error, lost: Range<usize>) {
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
        faults.push(Fault { device: workers[number].device.clone(), error: why, jobs: lost.len() });
        if !lost.is_empty() {
            lock(&self.lost).push(lost);
        }
    }
}
