//! Many callers that bring one job each under the stopwatch: how many jobs are done a second, and how long each caller waits.

use super::{DISTINCT, MESSAGE_BYTES, Timed, Times, message, record_of_op, sign_all, wrong};
use crate::failure::Failure;
use hypergrove::{
    Device, Engine, Error, GenerateJob, Mode, Op, Params, Randomizer, Seeds, SignJob, SlhDsa, Ticket, VerifyJob,
};
use hypergrove_records::record::Record;
use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, scope, sleep};
use std::time::{Duration, Instant};

/// A window of the warm-up, at most. Programs are prepared meanwhile, and batches find their size.
const WARM_UP: Duration = Duration::from_millis(300);
/// The most windows of the warm-up. It ends with the first window that has at most a tenth more results than the best one before. (Four H100 prepare
/// programs for 2 s until 16,384 callers have their full rate.)
const WARM_UPS: usize = 16;
/// Results that are timed at least; with more callers, as many as there are callers.
const LEAST: usize = 3;
/// How often is looked whether there are so many.
const LOOK: Duration = Duration::from_millis(1);
/// Waits that a record keeps of all that were timed.
const KEPT: usize = 999;
/// Memory for the stack of a caller's thread: there may be thousands.
const STACK: usize = 1 << 20;

/// How callers bring their jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerKind {
    /// Each is a thread that submits a job and waits for its ticket.
    Waiting,
    /// So many threads hold the tickets of all.
    Held(usize),
    /// Each is a thread that calls the engine without a ticket.
    Direct,
}

impl CallerKind {
    pub(crate) fn name(self) -> String {
        match self {
            CallerKind::Waiting => "a thread each".into(),
            CallerKind::Held(1) => "held by 1 thread".into(),
            CallerKind::Held(threads) => format!("held by {threads} threads"),
            CallerKind::Direct => "without tickets".into(),
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct CallersQuestion {
    pub(crate) params: &'static Params,
    pub(crate) op: Op,
    pub(crate) cached_layers: usize,
    pub(crate) callers: usize,
    pub(crate) way: CallerKind,
    pub(crate) budget: Duration,
}

/// The jobs of a question by their numbers: how each is queued, or done without a ticket, and what it gives.
struct KnownJobs<'k, T> {
    submit: &'k (dyn Fn(usize) -> Result<Ticket<T>, Error> + Sync),
    call: &'k (dyn Fn(usize) -> Result<T, Error> + Sync),
    gives: &'k [T],
}

/// When jobs are counted: those that begin and end meanwhile.
#[derive(Default)]
struct Window {
    is_open: AtomicBool,
    is_over: AtomicBool,
    /// All results, and those that are counted.
    results: AtomicUsize,
    counted: AtomicUsize,
    /// A caller failed: nothing more is counted.
    failed: AtomicBool,
}

impl Window {
    /// Waits until results come at the full rate. `budget` is the time that is counted afterwards.
    fn warm_up(&self, budget: Duration) {
        let (mut best, mut before) = (0, 0);
        for _ in 0..WARM_UPS {
            sleep(WARM_UP.min(budget));
            let results = self.results.load(Relaxed);
            let of_window = results - before;
            if self.failed.load(Relaxed) || (best > 0 && of_window <= best + best / 10) {
                break;
            }
            (best, before) = (best.max(of_window), results);
        }
    }
}

/// One thread's jobs: the seconds of each that was counted.
fn caller<T: PartialEq>(
    work: &KnownJobs<'_, T>,
    way: CallerKind,
    tickets: usize,
    window: &Window,
) -> Result<Vec<f64>, Failure> {
    let is_right = |i: usize, result: T| result == work.gives[i % DISTINCT];
    let (mut waits, mut i, mut held) = (Vec::new(), 0, VecDeque::with_capacity(tickets));
    while !window.is_over.load(Relaxed) {
        let is_counted = window.is_open.load(Relaxed);
        let (began, is_right) = if way == CallerKind::Direct {
            i += 1;
            (Instant::now(), is_right(i, (work.call)(i % DISTINCT)?))
        } else {
            while held.len() < tickets {
                held.push_back((i, Instant::now(), (work.submit)(i % DISTINCT)?));
                i += 1;
            }
            let (i, began, ticket) = held.pop_front().expect("there is one");
            (began, is_right(i, ticket.wait()?))
        };
        if !is_right {
            return Err(wrong("a result of one of many callers"));
        }
        window.results.fetch_add(1, Relaxed);
        if is_counted {
            waits.push(began.elapsed().as_secs_f64());
            window.counted.fetch_add(1, Relaxed);
        }
    }
    for (.., ticket) in held {
        ticket.wait()?;
    }
    Ok(waits)
}

/// Measures. An answer that is wrong is an error.
pub(crate) fn measure(engine: &Engine, question: CallersQuestion) -> Result<Record, Failure> {
    let CallersQuestion { params, op, cached_layers, .. } = question;
    let (params, mode) = (SlhDsa::from(params), Mode::default());
    if op == Op::Keygen {
        let seeds: Vec<Seeds> = (0..DISTINCT).map(|number| params.seeds(number)).collect();
        let work = KnownJobs {
            submit: &|i| Ok(engine.submit(GenerateJob::from_seeds(params, seeds[i].clone()))?),
            call: &|i| Ok(engine.from_seeds(params, slice::from_ref(&seeds[i]))?.remove(0)),
            gives: &engine.from_seeds(params, &seeds)?,
        };
        return timed(engine, question, &work);
    }
    let key = engine.from_seeds(params, &[params.seeds(0)])?.remove(0);
    let key = engine.cache(&key, if op == Op::Sign { cached_layers } else { 1 })?;
    let messages: Vec<Vec<u8>> = (0..DISTINCT).map(message).collect();
    let signatures = sign_all::<SlhDsa>(engine, &key, &messages)?;
    super::check(engine, params, &key, &messages, &signatures)?;
    if op == Op::Sign {
        let key = Arc::new(key);
        let work = KnownJobs {
            submit: &|i| Ok(engine.submit(SignJob::new(key.clone(), messages[i].clone()).deterministic())?),
            call: &|i| engine.sign(&key, mode, &messages[i], Randomizer::Deterministic),
            gives: &signatures,
        };
        return timed(engine, question, &work);
    }
    let key = Arc::new(key.verifying_key());
    let work = KnownJobs {
        submit: &|i| Ok(engine.submit(VerifyJob::new(key.clone(), &messages[i], signatures[i].as_bytes()))?),
        call: &|i| engine.verify(&key, mode, &messages[i], signatures[i].as_bytes()),
        gives: &[true; DISTINCT],
    };
    timed(engine, question, &work)
}

/// Has the callers bring these jobs, and times each job from its submission to its result.
fn timed<T: PartialEq + Sync>(
    engine: &Engine,
    question: CallersQuestion,
    work: &KnownJobs<'_, T>,
) -> Result<Record, Failure> {
    let CallersQuestion { params, op, cached_layers, callers, way, budget } = question;
    let threads = if let CallerKind::Held(threads) = way { threads.min(callers) } else { callers };
    let window = Window::default();
    let (mut waits, mut took) = (Vec::new(), Duration::ZERO);
    let batches = || engine.stats().tickets.batch_sizes.iter().sum::<u64>();
    // From the first submission to the last result: a batch that ends at the edge of a window would count on one side alone.
    let (submitted, before) = (engine.stats().tickets.submitted, batches());
    scope(|scope| {
        let window = &window;
        let spawn = |number: usize| {
            let tickets = callers / threads + usize::from(number < callers % threads);
            let body = move || caller(work, way, tickets, window).inspect_err(|_| window.failed.store(true, Relaxed));
            Builder::new().stack_size(STACK).spawn_scoped(scope, body)
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        window.failed.fetch_or(all.iter().any(Result::is_err), Relaxed);
        window.warm_up(budget);
        let began = Instant::now();
        window.is_open.store(true, Relaxed);
        sleep(budget);
        while window.counted.load(Relaxed) < callers.max(LEAST) && !window.failed.load(Relaxed) {
            sleep(LOOK);
        }
        took = began.elapsed();
        window.is_over.store(true, Relaxed);
        for thread in all {
            let thread = thread.map_err(|why| Failure::new(format!("{threads} threads for callers: {why}")))?;
            waits.extend(thread.join().map_err(|_| wrong("a caller panicked"))??);
        }
        Ok::<(), Failure>(())
    })?;
    let (jobs, batches) = (engine.stats().tickets.submitted - submitted, batches() - before);
    // Without tickets, each job is a batch.
    let batch = if batches > 0 { jobs as f64 / batches as f64 } else { 1.0 };
    let ops_per_s = waits.len() as f64 / took.as_secs_f64();
    let waits = Times::new(waits);
    let all = waits.all();
    // So large a share of the jobs waits no longer.
    let quantile = |share: f64| all[((all.len() - 1) as f64 * share).ceil() as usize];
    let kept = (0..KEPT.min(all.len())).map(|i| all[i * (all.len() - 1) / (KEPT.min(all.len()) - 1).max(1)]);
    Ok(Record {
        batch: callers,
        callers: Some(callers),
        batched: Some(batch),
        shape: Some(format!("{callers} callers, {}", way.name())),
        cached_layers,
        devices: engine.devices().iter().map(Device::id).collect(),
        threads: engine.threads(),
        ops_per_s,
        p99_s: Some(quantile(0.99)),
        p999_s: Some(quantile(0.999)),
        message_bytes: MESSAGE_BYTES,
        verified: true,
        times_s: kept.collect(),
        ..record_of_op(engine.device(), params, op).timed(&waits)
    })
}
