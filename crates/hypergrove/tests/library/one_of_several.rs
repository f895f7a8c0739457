//! One of several GPUs hangs, fails or is wrong in the middle of work: nothing is lost, and only that one is blamed.

use crate::common::{P, PURE};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::*;
use hypergrove_fips205::Params;
use hypergrove_testkit::faults::{Faults, random};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits of waits for a GPU that hangs. Tests wait for it.
const PATIENCE: Duration = Duration::from_millis(300);

/// Bytes of a message.
const MESSAGE: usize = 24;

/// The number of the GPU with a fault.
const FAULTY: usize = 1;

/// GPUs, and the faults of each.
type Gpus = (Arc<dyn Backend>, Vec<Arc<Faults>>);

/// GPUs, and work that keeps all of them busy.
struct Kind {
    /// Makes them anew, since a GPU that hung is not used again.
    gpus: fn() -> Gpus,
    set: &'static Params,
    jobs: usize,
    /// Bytes for chunks: with few, doubles of GPUs get small chunks, and all of them get some.
    memory: u64,
    /// Calls that a time is taken of.
    calls: u32,
    /// Whether each fault is tried with each way to have messages signed, not only with one.
    all_ways: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Hangs,
    Fails,
    IsWrong,
}

/// A way to have messages signed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Rows,
    Jobs,
    Tickets,
}

impl Kind {
    /// Signs all messages and compares the signatures with those of the CPU. Rows may lie in memory that the GPUs reach.
    fn sign(
        &self,
        (way, is_reached): (Way, bool),
        engine: &Engine,
        key: &Arc<SigningKey>,
        messages: &[u8],
        right: &[u8],
    ) {
        let job = |message: &[u8]| SignJob::new(key.clone(), message.to_vec()).deterministic();
        let jobs = messages.chunks(MESSAGE).map(job);
        let right_ones = right.chunks(self.set.sig_bytes());
        match way {
            Way::Rows => {
                let (mut reached, mut ordinary);
                let signatures = if is_reached {
                    reached = engine.memory(right.len()).unwrap();
                    &mut reached[..]
                } else {
                    ordinary = vec![0; right.len()];
                    &mut ordinary[..]
                };
                sign_rows(engine, key, messages, signatures);
                assert!(*signatures == *right);
            }
            Way::Jobs => {
                let signed = engine.sign_batch_to_vec(jobs).unwrap();
                assert!(signed.into_iter().map(|signature| signature.unwrap().into_bytes()).eq(right_ones));
            }
            Way::Tickets => {
                let tickets: Vec<_> = jobs.map(|job| engine.submit(job).unwrap()).collect();
                let signed = tickets.into_iter().map(|ticket| ticket.wait().unwrap().into_bytes());
                assert!(signed.eq(right_ones));
            }
        }
    }

    /// Injects each fault while messages are signed: in each way, or in one.
    fn run(&self) {
        let sound = Engine::builder().backend(Arc::new(Cpu::new())).build().unwrap();
        let key = Arc::new(sound.generate(self.set).unwrap());
        let messages: Vec<u8> =
            (0..self.jobs as u64).flat_map(|i| [i; MESSAGE / 8]).flat_map(u64::to_le_bytes).collect();
        let mut right = vec![0; self.jobs * self.set.sig_bytes()];
        sign_rows(&sound, &key, &messages, &mut right);
        let ways = [Way::Tickets, Way::Jobs, Way::Rows];
        for (fault, one_way) in [Fault::Hangs, Fault::Fails, Fault::IsWrong].into_iter().zip(ways) {
            for way in ways.into_iter().filter(|way| self.all_ways || *way == one_way) {
                self.inject(fault, way, &key, &messages, &right);
            }
        }
    }

    /// Has the faulty GPU of new ones fail so while messages are signed, and prints the times of calls before and after that.
    fn inject(&self, fault: Fault, way: Way, key: &Arc<SigningKey>, messages: &[u8], right: &[u8]) {
        let (backend, all_faults) = (self.gpus)();
        let (faults, count, id) =
            (&all_faults[FAULTY], all_faults.len(), backend.devices().unwrap()[FAULTY].id().to_owned());
        let devices = (0..count).map(|device| (backend.clone(), device as u32)).collect();
        let builder = Engine::builder().devices(devices).memory_budget(self.memory);
        let engine = builder.verify_signatures(fault == Fault::IsWrong).build().unwrap();
        // A call waits for a GPU that may still write to the caller's memory; see the module `hang`.
        let is_reached = fault != Fault::Hangs;
        let sign = || self.sign((way, is_reached), &engine, key, messages, right);
        // The shortest time of a call, after some that no time is taken of.
        let time = || {
            (1..self.calls).for_each(|_| sign());
            let one = |_| {
                let began = Instant::now();
                sign();
                began.elapsed()
            };
            (0..self.calls).map(one).min().unwrap()
        };
        let (all, mut state) = (time(), 5);
        assert_eq!(engine.faults(), []);
        match fault {
            Fault::Hangs => faults.hang_after(1, PATIENCE),
            Fault::Fails => faults.fail_after(1),
            Fault::IsWrong => {}
        }
        // A short call may go past a GPU, and a flipped bit may be one that nothing reads.
        let is_blamed = (0..50).any(|_| {
            match fault {
                Fault::IsWrong => {
                    let (sites, ()) = faults.survey(sign);
                    if !sites.is_empty() {
                        let site = sites[random(&mut state) as usize % sites.len()];
                        faults.flip(site, random(&mut state), sign);
                    }
                }
                _ => sign(),
            }
            !engine.faults().is_empty()
        });
        assert!(is_blamed, "{fault:?}, {way:?}: no fault was seen");
        let expected = if fault == Fault::IsWrong { ErrorKind::Withheld } else { ErrorKind::DeviceFailed };
        for blamed in engine.faults() {
            assert_eq!((blamed.device.id(), blamed.error.kind()), (id.clone(), expected), "{fault:?}, {way:?}");
        }
        assert_eq!(engine.devices().len(), count - 1);
        let rest = time();
        let rate = all.as_secs_f64() / rest.as_secs_f64() * count as f64 / (count - 1) as f64;
        println!(
            "{id} {fault:?}, {way:?}, {} signatures: {all:.1?}; without it {rest:.1?}, {rate:.2} of the others' rate",
            self.jobs
        );
        drop((engine, backend));
        faults.go_on().unwrap();
    }
}

fn sign_rows(engine: &Engine, key: &SigningKey, messages: &[u8], signatures: &mut [u8]) {
    let rows = messages.len() / MESSAGE;
    let keys = RowSigningKeys::One(key);
    let columns = SignRows {
        keys,
        mode: PURE,
        messages: Column::packed(messages, MESSAGE),
        randomizer: Randomizer::Deterministic,
    };
    let mut statuses = vec![RowStatus::default(); rows];
    engine.sign_rows(&columns, signatures, &mut statuses).unwrap();
    assert!(statuses.iter().all(|status| *status == RowStatus::Signed));
}

#[test]
fn nothing_is_lost_with_doubles_of_gpus() {
    Kind {
        gpus: || crate::hang::doubles(4),
        set: P,
        jobs: 64,
        memory: 1 << 20,
        calls: 1,
        all_ways: hypergrove_testkit::all(),
    }
    .run();
}

/// Memory that a GPU which hangs may still use is never freed, so this test holds much memory until it ends.
#[cfg(feature = "cuda")]
#[test]
fn nothing_is_lost_with_gpus() {
    fn gpus() -> Gpus {
        let with_faults = hypergrove_testkit::faults::WithFaultsOfEach::default();
        let cache = std::env::temp_dir().join("hypergrove-test-kernels");
        let backend = hypergrove_cuda::backend_with(Some(&cache), &with_faults);
        (Arc::new(backend), with_faults.0.into_inner().unwrap())
    }
    match gpus().1.len() {
        count @ (0 | 1) => println!("skipped: cuda: one of several GPUs is to have a fault, and there are {count}"),
        count => Kind {
            gpus,
            set: &SLH_DSA_SHA2_128F,
            jobs: 4096 * count,
            memory: (2 << 30) * count as u64,
            calls: 4,
            all_ways: true,
        }
        .run(),
    }
}
