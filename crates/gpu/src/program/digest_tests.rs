//! Tests that a device hashes messages as the host does.

use super::*;
use crate::host::HostGpu;
use hypergrove_engine::Policy;
use hypergrove_testkit::digests::{DigestJobs, KEYS, text};
use hypergrove_testkit::toys::{TOY_SHA2_16, every_set};
use std::sync::atomic::Ordering::Relaxed;

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
            let keys: Vec<_> = (0..KEYS)
                .map(|key| Key { pk_seed: digests.pk_seed(key), sk_seed: &[], cached_nodes: &[], cached_id: 0 })
                .collect();
            let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
            let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
            let words = program.message_words(&digests, &batch).unwrap();
            program.lay_out(&batch, 0..jobs, &[], Some((&digests, words)));
            // R, with which a signature begins, is copied through the part for roots, which nothing else needs here.
            let (part, n) = (program.layout.roots, p.n);
            let sigs = program.signatures();
            let steps = program.positions(jobs);
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
                assert!(r == digests.r(job), "{p} {op:?}: R of {} bytes", digests.hashed_bytes(job));
            }
            let (part, row) = (program.layout.positions, 4 * (JOB_WORDS + p.k));
            let down = program.download(part, jobs * row);
            submit(&mut program, &[down]);
            for (job, position) in digests.positions().iter().enumerate() {
                let words: Vec<u32> = program.view(part, jobs * row)[job * row..][..row]
                    .chunks_exact(4)
                    .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                    .collect();
                let Position { idx_tree, idx_leaf, fors } = position;
                let expected =
                    [&[key_of[job], (idx_tree >> 32) as u32, *idx_tree as u32, *idx_leaf], &fors[..]].concat();
                assert!(words == expected, "{p} {op:?}: positions of {} bytes", digests.hashed_bytes(job));
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
    let keys: Vec<_> = (0..=700)
        .map(|key| Key { pk_seed: digests.pk_seed(key % KEYS), sk_seed: &text[..p.n], cached_nodes: &[], cached_id: 0 })
        .collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    let lay_out = |threads: u32| {
        let policy = GpuPolicy::of(&Policy(vec![("digest", 1024), (hypergrove_engine::THREADS, threads)])).unwrap();
        let mut program = GpuProgram::new(&gpu, &cache, &Plan::new(p, Op::Sign), jobs, 256 << 20, policy).unwrap();
        assert_eq!((program.layout.jobs, in_threads(program.shape.policy.threads)), (jobs, threads > 1));
        let words = program.message_words(&digests, &batch).unwrap();
        let distinct = program.lay_out(&batch, 0..jobs, &[], Some((&digests, words)));
        let (seeds, messages) = (program.layout.seeds, program.layout.messages);
        (words, distinct, program.bytes(seeds).to_vec(), program.bytes(messages).to_vec())
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let laid_out = pool.install(|| [1, 2].map(lay_out));
    assert!(laid_out[0] == laid_out[1] && laid_out[0].1 > 100);
}

#[test]
fn a_key_that_messages_are_hashed_with_is_wiped() {
    let (p, text, jobs) = (&TOY_SHA2_16, text(), 20);
    let (gpu, cache) = (Arc::new(HostGpu::new(true)), Arc::new(NodesCache::new(0)));
    let policy = GpuPolicy::of(&Policy(vec![("digest", 512)])).unwrap();
    let mut program = GpuProgram::new(&gpu, &cache, &Plan::new(p, Op::Sign), jobs, 64 << 20, policy).unwrap();
    let mut digests = DigestJobs::new(p, Op::Sign, (jobs, 0), &text);
    let keys: Vec<_> = (0..KEYS)
        .map(|key| Key {
            pk_seed: digests.pk_seed(key),
            sk_seed: &text[3000..][..p.n],
            cached_nodes: &[],
            cached_id: 0,
        })
        .collect();
    let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    let mut out = vec![0; jobs * p.sig_bytes()];
    program.run_held(&batch, &mut digests, &mut [&mut out[..]], &mut |_| Ok(()), true).unwrap().unwrap();
    assert!(!digests.is_queried);
    // Without this, dropping the program would wipe all memory.
    gpu.submissions.store(0, Relaxed);
    drop(program);
    gpu.submissions.store(u64::MAX, Relaxed);
    let freed = gpu.freed.lock().unwrap();
    let holds = |bytes: &[u8]| freed.iter().any(|memory| memory.windows(p.n).any(|window| window == bytes));
    assert!((0..KEYS).all(|job| !holds(digests.sk_prf(job))), "SK.prf");
    assert!((0..jobs).all(|job| !holds(digests.opt_rand(job))), "opt_rand");
    assert!(holds(&out[p.n..2 * p.n]), "a signature is not secret");
}

/// While a device fetches many signatures, the host hashes their messages. If the host was late, the device hashes those of later batches.
#[test]
fn the_device_hashes_for_a_host_that_was_late() {
    let (gpu, cache) = (Arc::new(HostGpu::new(false)), Arc::new(NodesCache::new(0)));
    let policy = GpuPolicy::of(&Policy(vec![("digest", 1024)])).unwrap();
    let (p, op, text, jobs) = (&TOY_SHA2_16, Op::Verify, text(), MOST_IN_COLUMNS + 16);
    let mut program = GpuProgram::new(&gpu, &cache, &Plan::new(p, op), jobs, 256 << 20, policy).unwrap();
    let mut digests = DigestJobs::new(p, op, (jobs, 0), &text);
    let keys: Vec<_> = (0..KEYS)
        .map(|key| Key { pk_seed: digests.pk_seed(key), sk_seed: &[], cached_nodes: &[], cached_id: 0 })
        .collect();
    let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
    let mut reached = gpu.alloc_reached(jobs * p.sig_bytes()).unwrap().unwrap();
    for (job, row) in reached.bytes_mut().chunks_exact_mut(p.sig_bytes()).enumerate() {
        row[..p.n].copy_from_slice(&digests.r(job));
    }
    let signatures: Vec<&[u8]> = reached.bytes().chunks_exact(p.sig_bytes()).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &signatures };
    let mut expected = vec![0; jobs * p.n];
    program.run(&Batch { positions: &digests.positions(), ..batch }, &mut expected).unwrap();
    let hashed_by_host = |program: &mut GpuProgram<HostGpu>, digests: &mut DigestJobs<'_>, expected: &[u8]| {
        digests.is_queried = false;
        let mut out = vec![0; jobs * p.n];
        program.run_fetched(&batch, digests, &mut out).unwrap().unwrap();
        assert!(out == expected);
        digests.is_queried
    };
    // This host is never late, whatever it does.
    program.late = Duration::ZERO;
    assert!((0..3).all(|_| hashed_by_host(&mut program, &mut digests, &expected)));
    // This host is always late.
    program.late = Duration::MAX;
    let by_host: Vec<bool> =
        (0..=HASHED_AFTER_LATE + 1).map(|_| hashed_by_host(&mut program, &mut digests, &expected)).collect();
    let runs: Vec<usize> = (0..by_host.len()).filter(|run| by_host[*run]).collect();
    assert_eq!(runs, [0, by_host.len() - 1]);
    // The host hashes messages that are too long for the device.
    let mut digests = DigestJobs::new(p, op, (jobs, 1024), &text);
    program.run(&Batch { positions: &digests.positions(), ..batch }, &mut expected).unwrap();
    assert!((0..2).all(|_| hashed_by_host(&mut program, &mut digests, &expected)));
}
