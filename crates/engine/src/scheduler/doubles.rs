//! Calls that share devices which compute next to nothing: few enough steps for Miri and ThreadSanitizer to follow all threads.

use super::tests::{Nothing, UNMEASURED, light};
use super::*;
use crate::scheme::Kind;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Bytes that a job says it owns: so many that chunks have few jobs.
const OWNED: usize = 10_000;
/// About how many jobs the memory for a chunk suffices for.
const IN_A_CHUNK: u64 = 4;

/// Jobs of a call, and the most chunks that a device runs at a time: Miri takes seconds for some of them.
const JOBS: u64 = if cfg!(miri) { 12 } else { 40 };
const QUEUE: u32 = if cfg!(miri) { 1 } else { 2 };

/// The answer of a device to its `nth` run.
type Answer = fn(scheduler: &Scheduler, device: u32, nth: usize) -> Result<(), Error>;

/// Devices that square numbers, and counts of their runs and of discarded results.
struct Devices {
    scheduler: Scheduler,
    answer: Answer,
    runs: [AtomicUsize; 2],
    discarded: AtomicUsize,
}

/// A job: to square a number that its caller owns.
struct Number<'a>(&'a u64, &'a Devices);

/// The square of a number.
struct Square<'a>(u64, &'a Devices);

impl<'a> Job for Number<'a> {
    type Out = Square<'a>;

    const JOINS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(light(UNMEASURED))
    }
    fn owned(&self) -> usize {
        OWNED
    }
    fn output(&self, _: &GroupFacts) -> usize {
        size_of::<u64>()
    }
    fn run(
        Run { place, .. }: &Run<'_>,
        jobs: &mut [&mut Self],
        memory: &mut Vec<u8>,
    ) -> Result<Outcomes<Square<'a>>, Error> {
        let devices = jobs[0].1;
        let device = place.worker.device().index;
        let nth = devices.runs[device as usize].fetch_add(1, SeqCst);
        memory.resize(jobs.len() * size_of::<u64>(), 0);
        let squares = jobs.iter().map(|job| *job.0).zip(memory.chunks_exact_mut(size_of::<u64>()));
        let square = |(number, out): (u64, &mut [u8])| {
            out.copy_from_slice(&number.pow(2).to_le_bytes());
            Ok(())
        };
        place.each_of(squares.collect(), &square)?;
        (devices.answer)(place.scheduler, device, nth)?;
        let squares = memory.chunks_exact(size_of::<u64>());
        let squares = squares.map(|bytes| Square(u64::from_le_bytes(bytes.try_into().unwrap()), devices));
        Ok(squares.collect::<Vec<_>>().into())
    }
    fn discard(out: Square<'a>) {
        out.1.discarded.fetch_add(1, SeqCst);
    }
}

impl Devices {
    /// Two devices, each with `queue` chunks at a time.
    fn new(queue: u32, answer: Answer) -> Devices {
        Devices::with_queues([queue; 2], answer)
    }

    /// Two devices with so many chunks at a time. With one, the first is the host.
    fn with_queues(queues: [u32; 2], answer: Answer) -> Devices {
        let backend: Arc<dyn Backend> = Arc::new(crate::Reference);
        let device = backend.devices().unwrap().remove(0);
        let device = |index: u32| (backend.clone(), Device { index, queue: queues[index as usize], ..device.clone() });
        let memory_budget = IN_A_CHUNK * OWNED as u64 * (slots(queues.map(u64::from).into_iter()) + 1);
        let options = (super::tests::options(2, memory_budget), WorkOptions::default());
        let know: KnowledgeSource = Arc::new(|_, _| Arc::new(Nothing));
        let scheduler = Scheduler::new([0, 1].map(device).into(), None, options, know, Default::default());
        Devices { scheduler, answer, runs: Default::default(), discarded: AtomicUsize::new(0) }
    }

    /// Squares these numbers, from a source that may block or that does not; every square comes out, in its place.
    fn square(&self, numbers: &[u64], may_block: bool) {
        let mut next = 0;
        let mut jobs = numbers.iter().map(|number| Number(number, self));
        let mut sink = |count, square: Result<Square<'_>, Error>| {
            assert_eq!((count, square.unwrap().0), (1, numbers[next].pow(2)));
            next += 1;
            ControlFlow::Continue(())
        };
        let done = match may_block {
            true => self.scheduler.run_blocking(&mut jobs, &mut sink),
            false => self.scheduler.run(None, None, &mut jobs, &mut sink),
        };
        assert_eq!((done, next), (Ok(()), numbers.len()));
    }

    /// Whether no permit is taken and none is waited for.
    fn is_idle(&self) -> bool {
        self.scheduler.all().all(|worker| worker.permits.load() == (0, 0))
    }
}

#[test]
fn batches_and_single_jobs_share_devices() {
    for queue in 1..=QUEUE {
        let devices = Devices::new(queue, |_, _, _| Ok(()));
        let numbers: Vec<u64> = (0..JOBS).collect();
        std::thread::scope(|scope| {
            for may_block in [false, true] {
                let (devices, numbers) = (&devices, &numbers);
                scope.spawn(move || devices.square(numbers, may_block));
            }
            for number in &numbers[..2] {
                assert_eq!(devices.scheduler.one(None, Number(number, &devices)).unwrap().0, number * number);
            }
        });
        assert_eq!((devices.is_idle(), devices.discarded.load(SeqCst)), (true, 0));
    }
}

#[test]
fn what_a_device_loses_is_done_again() {
    let dead: Answer = |_, device, _| match device {
        0 => Err(Error::Device { device: "0".into(), what: "dead".into() }),
        _ => Ok(()),
    };
    // Results of the second device wait for the first one's until their device is found out.
    let lying: Answer = |scheduler, device, nth| {
        while (device, nth) == (0, 0) && scheduler.faults().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match (device, nth) {
            (1, 1..) => Err(Error::Inconsistent { device: "1".into(), what: "a check".into() }),
            _ => Ok(()),
        }
    };
    for (answer, left) in [(dead, 1), (lying, 0)] {
        let devices = Devices::new(QUEUE, answer);
        let numbers: Vec<u64> = (0..JOBS).collect();
        devices.square(&numbers, false);
        let live: Vec<u32> = devices.scheduler.live().map(|worker| worker.device().index).collect();
        assert_eq!((live, devices.is_idle()), (vec![left], true));
        assert_eq!(devices.discarded.load(SeqCst) > 0, left == 0, "only a device that lies has its results withdrawn");
    }
}

#[test]
fn a_sink_ends_the_call_or_panics() {
    let devices = Devices::new(QUEUE, |_, _, _| Ok(()));
    let number = 7;
    let mut taken = 0;
    let mut sink = |count, _: Result<Square<'_>, Error>| {
        taken += count;
        if taken == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let endless = || std::iter::repeat_with(|| Number(&number, &devices));
    assert_eq!(devices.scheduler.run_blocking(&mut endless(), &mut sink), Ok(()));
    assert_eq!((taken, devices.is_idle()), (3, true));
    let mut panics = |_, _: Result<Square<'_>, Error>| panic!("a fault of the sink");
    let call = || devices.scheduler.run_blocking(&mut endless(), &mut panics);
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!((panic.downcast_ref(), devices.is_idle()), (Some(&"a fault of the sink"), true));
    devices.square(&[1, 2, 3], true);
}

/// Cancelled work does not begin again, even if a device loses what it had begun.
#[test]
fn what_a_device_loses_of_cancelled_work_is_not_done_again() {
    let answer: Answer = |scheduler, device, nth| {
        let until = |happened: &dyn Fn() -> bool| {
            while !happened() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        if (device, nth) != (0, 0) {
            until(&|| !scheduler.faults().is_empty());
            return Ok(());
        }
        // The other device has its chunk, too.
        until(&|| scheduler.workers()[1].permits.load().0 > 0);
        scheduler.work.cancel.as_ref().unwrap().cancel();
        Err(Error::Device { device: "0".into(), what: "dead".into() })
    };
    let mut devices = Devices::new(1, answer);
    let work = WorkOptions { cancel: Some(CancelToken::default()), ..WorkOptions::default() };
    devices.scheduler = devices.scheduler.with(work);
    let numbers: Vec<u64> = (0..JOBS).collect();
    let mut jobs = numbers.iter().map(|number| Number(number, &devices));
    let done = devices.scheduler.run(None, None, &mut jobs, &mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(done, Err(Error::Cancelled { .. })), "{done:?}");
    let runs = devices.runs.each_ref().map(|runs| runs.load(SeqCst));
    assert_eq!((runs[0], devices.scheduler.faults().len(), devices.is_idle()), (1, 1, true));
    assert!(runs[1] <= 1, "the lost chunk was done again");
}

/// Whether the host takes part in calls is decided by the times of calls without more checks.
#[test]
fn calls_with_more_checks_are_not_measured() {
    let devices = Devices::with_queues([1, 2], |_, _, _| Ok(()));
    let kind = light(UNMEASURED);
    for worker in devices.scheduler.workers() {
        let facts = worker.programs.facts(Group { kind, threads: 2 }).unwrap();
        facts.record(1, std::time::Duration::from_millis(1));
    }
    let number = 7;
    let measured = |checks: Checks| {
        let scheduler = devices.scheduler.with(WorkOptions { checks, ..WorkOptions::default() });
        let mut jobs = (0..JOBS).map(|_| Number(&number, &devices));
        assert_eq!(scheduler.run(None, None, &mut jobs, &mut |_, _| ControlFlow::Continue(())), Ok(()));
        scheduler.rates.of(kind, JOBS as usize, |rates| rates.iter().map(|rate| rate.calls).sum::<u32>())
    };
    let plain = Checks::default();
    assert_eq!(measured(plain), 1);
    assert_eq!(measured(Checks { redundant: true, ..plain }), 1);
    assert_eq!(measured(Checks { verify_signatures: true, ..plain }), 1);
    assert_eq!(measured(Checks { check_roots: false, ..plain }), 2);
}
