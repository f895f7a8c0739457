//! Tests that a device hashes messages as the host does.

use super::*;
use crate::host::HostGpu;
use crate::tests::device_bytes;
use hypergrove_engine::Policy;
use hypergrove_fips205::MPrime;
use hypergrove_testkit::digests::{DigestJobs, KEYS, text};
use hypergrove_testkit::toys::{TOY_SHA2_16, every_set};
use std::sync::atomic::Ordering::Relaxed;

/// A batch whose messages the device hashes.
fn hashed<'r>(program: &GpuProgram<HostGpu>, digests: &'r DigestJobs<'_>, batch: Batch<'r>) -> Inputs<'r> {
    let words = program.shape.message_words(digests.longest());
    Inputs { batch, nodes: &[], stored: false, messages: Some((digests, words)) }
}

/// The test covers every set, and messages from no bytes to several blocks of each hash function, with every length around a block's end.
#[test]
fn a_device_hashes_messages_as_the_host_does() {
    const BUDGET: u64 = 256 << 20;
    let (gpu, cache) = (Arc::new(HostGpu::new(false)), Arc::new(NodesCache::new(0)));
    let policy = GpuPolicy::of(&Policy(vec![("digest", 1024)])).unwrap();
    let (text, mut seen) = (text(), 0);
    for (p, op) in every_set().flat_map(|p| [(p, Op::Sign), (p, Op::Verify)]) {
        // A signature of a set with one tree takes gigabytes.
        if op == Op::Sign && p.a > 20 {
            continue;
        }
        let jobs = 96;
        let Ok(mut program) = GpuProgram::new(&gpu, &cache, &Plan::new(p, op), jobs, BUDGET, policy) else {
            panic!("{p} {op:?}");
        };
        let (jobs, sig) = (program.layout.jobs.min(jobs), p.sig_bytes());
        for first in [0, 96, 192] {
            let mut digests = DigestJobs::new(p, op, (jobs, first), &text);
            let keys = digests.keys();
            let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
            let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
            let pass = program.lay_out(&hashed(&program, &digests, batch), &PassJobs::of(0..jobs));
            // R, with which a signature begins, is copied through the part for roots, which nothing else needs here.
            let (part, n) = (program.layout.roots, p.n);
            let steps = PassSteps { program: &program, pass };
            let (sigs, steps) = (steps.signatures(), steps.positions());
            let submit = |program: &mut GpuProgram<HostGpu>, steps: &[Step]| {
                program.queue.submit(&program.kernels, steps).unwrap();
                program.queue.wait().unwrap();
            };
            let on_host = program.on_host(part);
            let at = |job: usize| (sigs + (job * sig) as u64, on_host + (job * n) as u64);
            if op == Op::Verify {
                for job in 0..jobs {
                    let r = digests.r(job);
                    program.bytes(part)[job * n..][..n].copy_from_slice(&r);
                }
                let ups: Vec<_> = (0..jobs).map(at).map(|(to, from)| Step::Upload { to, from, bytes: n }).collect();
                submit(&mut program, &ups);
            }
            submit(&mut program, &steps);
            let downs: Vec<_> = (0..jobs).map(at).map(|(from, to)| Step::Download { to, from, bytes: n }).collect();
            submit(&mut program, &downs);
            for (job, r) in program.view(part, jobs * n).chunks_exact(n).enumerate() {
                assert!(r == digests.r(job), "{p} {op:?}: R of message {}", first + job);
            }
            let (part, row) = (program.layout.positions, 4 * (JOB_WORDS + p.k));
            let down = program.download(part, jobs * row);
            submit(&mut program, &[down]);
            for (job, position) in digests.positions().unwrap().iter().enumerate() {
                let words: Vec<u32> = program.view(part, jobs * row)[job * row..][..row]
                    .chunks_exact(4)
                    .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                    .collect();
                let Position { idx_tree, idx_leaf, fors } = position;
                let expected =
                    [&[key_of[job], (idx_tree >> 32) as u32, *idx_tree as u32, *idx_leaf], &fors[..]].concat();
                assert!(words == expected, "{p} {op:?}: position of message {}", first + job);
                seen += 1;
            }
        }
    }
    assert!(seen > 3000, "{seen}");
}

/// Several threads lay out rows and keys if there are many.
#[test]
fn threads_lay_messages_out_as_one_does() {
    let (p, text, jobs) = (&TOY_SHA2_16, text(), 600);
    let (gpu, cache) = (Arc::new(HostGpu::new(false)), Arc::new(NodesCache::new(0)));
    let digests = DigestJobs::new(p, Op::Sign, (jobs, 0), &text);
    // Jobs have their keys in no order, and some keys have one job.
    let key_of: Vec<u32> = (0..jobs as u32).map(|job| if job % 5 == 0 { 700 - job } else { job % 3 }).collect();
    let keys: Vec<_> = (0..=700).map(|key| digests.key(key)).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    let lay_out = |threads: u32| {
        let policy = GpuPolicy::of(&Policy(vec![("digest", 1024), (hypergrove_engine::THREADS, threads)])).unwrap();
        let mut program = GpuProgram::new(&gpu, &cache, &Plan::new(p, Op::Sign), jobs, 256 << 20, policy).unwrap();
        assert_eq!((program.layout.jobs, in_threads(program.shape.policy.threads)), (jobs, threads > 1));
        let pass = program.lay_out(&hashed(&program, &digests, batch), &PassJobs::of(0..jobs));
        let (seeds, messages) = (program.layout.seeds, program.layout.messages);
        (pass, program.bytes(seeds).to_vec(), program.bytes(messages).to_vec())
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let laid_out = pool.install(|| [1, 2].map(lay_out));
    assert!(laid_out[0] == laid_out[1] && laid_out[0].0.keys > 100);
}

/// No key has its usual place if jobs are moved, even if jobs share it, unless it is the only one.
#[test]
fn keys_of_moved_jobs_have_other_places() {
    let (p, text, jobs) = (&TOY_SHA2_16, text(), 20);
    let (gpu, cache) = (Arc::new(HostGpu::new(false)), Arc::new(NodesCache::new(0)));
    let mut program =
        GpuProgram::new(&gpu, &cache, &Plan::new(p, Op::Sign), jobs, 64 << 20, GpuPolicy::default()).unwrap();
    let digests = DigestJobs::new(p, Op::Sign, (jobs, 0), &text);
    let keys: Vec<_> = (0..jobs).map(|key| digests.key(key)).collect();
    for key_of in [&[0, 0, 1][..], &[0, 1, 0], &[2, 1, 1, 0, 2], &[3, 3], &[5, 4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 5]] {
        let batch = Batch { keys: &keys, key_of, positions: &[], signatures: &[] };
        let mut numbers = |moved| {
            let jobs = PassJobs { moved, ..PassJobs::of(0..key_of.len()) };
            let (distinct, numbers) = program.put_keys(&batch, &jobs, &[]);
            assert!(distinct.iter().enumerate().all(|(number, key)| numbers[*key] == number as u32));
            numbers
        };
        let (usual, moved) = (numbers(false), numbers(true));
        let is_only = key_of.iter().all(|key| *key == key_of[0]);
        let moves = |key: &u32| usual[*key as usize] != moved[*key as usize];
        assert!(key_of.iter().all(|key| moves(key) != is_only), "{key_of:?}");
    }
}

#[test]
fn a_key_that_messages_are_hashed_with_is_wiped() {
    let (p, text, jobs) = (&TOY_SHA2_16, text(), 20);
    let (gpu, cache) = (Arc::new(HostGpu::new(true)), Arc::new(NodesCache::new(0)));
    let policy = GpuPolicy::of(&Policy(vec![("digest", 512)])).unwrap();
    let mut program = GpuProgram::new(&gpu, &cache, &Plan::new(p, Op::Sign), jobs, 64 << 20, policy).unwrap();
    let mut digests = DigestJobs::new(p, Op::Sign, (jobs, 0), &text);
    let keys = digests.keys();
    let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    let mut out = vec![0; jobs * p.sig_bytes()];
    let work = Work { digests: Some(&mut digests), places: Places::Both, ..Work::of(&batch) };
    program.run(work, &mut [&mut out]).unwrap();
    assert!(!digests.is_queried);
    // Without this, dropping the program would wipe all memory.
    gpu.submissions.store(0, Relaxed);
    drop(program);
    gpu.submissions.store(u64::MAX, Relaxed);
    let freed = gpu.freed.lock().unwrap();
    let holds = |bytes: &[u8]| freed.iter().any(|memory| memory.windows(p.n).any(|window| window == bytes));
    assert!(keys.iter().all(|key| !holds(key.sk_prf) && !holds(key.sk_seed)), "SK.prf and SK.seed");
    assert!((0..jobs).all(|job| !holds(digests.opt_rand(job))), "opt_rand");
    assert!(holds(&out[p.n..2 * p.n]), "a signature is not secret");
}

/// Messages of which the host reports whether it was late, and counts the questions for positions.
struct Counted<'a> {
    digests: DigestJobs<'a>,
    is_late: bool,
    queries: usize,
}

impl Digests for Counted<'_> {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        self.queries += 1;
        self.digests.positions()
    }
    fn longest(&self) -> usize {
        self.digests.longest()
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        self.digests.m_prime(job)
    }
    fn opt_rand(&self, job: usize) -> &[u8] {
        self.digests.opt_rand(job)
    }
    fn host_is_late(&self) -> bool {
        self.is_late
    }
}

/// While a device fetches many signatures, the host hashes their messages. If the host was late, the device hashes them.
#[test]
fn the_device_hashes_for_a_host_that_was_late() {
    let gpu = Arc::new(HostGpu::new(false));
    let (p, text, all) = (&TOY_SHA2_16, text(), MOST_IN_COLUMNS + 16);
    let (plan, cache) = (Plan::new(p, Op::Verify), Arc::new(NodesCache::new(0)));
    let policy = GpuPolicy::of(&Policy(vec![("digest", 1024)])).unwrap();
    let mut reached = gpu.alloc_reached(all * p.sig_bytes()).unwrap().unwrap();
    let digests = DigestJobs::new(p, Op::Verify, (all, 0), &text);
    for (job, row) in reached.bytes_mut().chunks_exact_mut(p.sig_bytes()).enumerate() {
        row[..p.n].copy_from_slice(&digests.r(job));
    }
    let ordinary = reached.bytes().to_vec();
    let (keys, key_of) = (digests.keys(), (0..all).map(|job| (job % KEYS) as u32).collect::<Vec<_>>());
    // A program for all jobs makes one pass, the other two.
    for budget in [device_bytes(&plan, all, policy, &gpu.facts), device_bytes(&plan, all / 2, policy, &gpu.facts)] {
        let mut program = GpuProgram::new(&gpu, &cache, &plan, all, budget, policy).unwrap();
        // How often the host is asked for positions, and whether it was late.
        let mut run = |signatures: &[u8], first, is_late| {
            let signatures: Vec<&[u8]> = signatures.chunks_exact(p.sig_bytes()).collect();
            let jobs = signatures.len();
            let mut digests = DigestJobs::new(p, Op::Verify, (jobs, first), &text);
            let batch = Batch { keys: &keys, key_of: &key_of[..jobs], positions: &[], signatures: &signatures };
            let [mut expected, mut out] = [(); 2].map(|()| vec![0; jobs * p.n]);
            let with_positions = Batch { positions: &digests.positions().unwrap(), ..batch };
            program.run(Work::of(&with_positions), &mut [&mut expected]).unwrap();
            let mut digests = Counted { digests, is_late, queries: 0 };
            let work = Work { digests: Some(&mut digests), ..Work::of(&batch) };
            let timing = program.run(work, &mut [&mut out]).unwrap();
            assert!(out == expected);
            (digests.queries, timing.host_was_late)
        };
        let fetched = reached.bytes();
        // The device takes long to fetch, so the host has the positions in time.
        gpu.delay.store(5000, Relaxed);
        assert_eq!(run(fetched, 0, false), (1, Some(false)));
        gpu.delay.store(0, Relaxed);
        // The device takes no time, so the host is late.
        assert!((0..100).map(|_| run(fetched, 0, false)).any(|found| found == (1, Some(true))));
        assert_eq!(run(fetched, 0, true), (0, Some(false)));
        // The device does not hash messages that are too long for it.
        let (queries, was_late) = run(fetched, 1024, true);
        assert!(queries == 1 && was_late.is_some());
        // The host has no time if the signatures are few, or if it has to copy them.
        assert_eq!(run(&fetched[..MOST_IN_COLUMNS * p.sig_bytes()], 0, false), (0, None));
        assert_eq!(run(&ordinary, 0, false), (0, None));
    }
}
