//! The conformance suite on kernels that run on the host, and tests that need a GPU which fails on command.

use crate::backend::{Gpus, PROGRAM_SHARE};
use crate::gpu::{Facts, Gpu, Queue, SLOTS, Step};
use crate::host::{HostGpu, Planted, REVEALED, TREE};
use crate::nodes::NodesCache;
use crate::policy::GpuPolicy;
use crate::program::{GpuProgram, Shape};
use crate::ring::{Ring, Slots};
use hypergrove_engine::{
    Abilities, Backend, Batch, Device, Digests, Error, Key, Messages, Places, Policy, Program, Reference, SelfTested,
    SlhDsaPrograms, Work,
};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::{
    Family, MPrime, Params, Position, SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S, SLH_DSA_SHA2_192F, SLH_DSA_SHA2_256F,
    SLH_DSA_SHAKE_128F, SLH_DSA_SHAKE_192F,
};
use hypergrove_kernels::{Config, Kernel};
use hypergrove_testkit::digests::{DigestJobs, KEYS, text};
use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHA2_24};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn gpus(gpu: impl Into<Arc<HostGpu>>) -> Gpus<HostGpu> {
    Gpus::new("host", Ok(vec![gpu.into()]), None)
}

/// A backend and its first device.
fn device(gpu: impl Into<Arc<HostGpu>>) -> (Gpus<HostGpu>, Device) {
    let gpus = gpus(gpu);
    let device = gpus.devices().unwrap().remove(0);
    (gpus, device)
}

/// Bytes of device memory for a pass of `jobs` jobs.
pub(crate) fn device_bytes(plan: &Plan, jobs: usize, policy: GpuPolicy, facts: &Facts) -> u64 {
    Shape::new(plan, policy, u64::MAX, facts).layout(jobs).device as u64
}

hypergrove_testkit::backend_tests!(kernels_on_the_host, Some(Box::new(gpus(HostGpu::new(false)))));

/// A batch of one job of the first toy set.
fn one<R>(run: impl FnOnce(&Plan, &Batch<'_>) -> R) -> R {
    many(1, run)
}

/// A batch of the same job many times.
fn many<R>(jobs: usize, run: impl FnOnce(&Plan, &Batch<'_>) -> R) -> R {
    let p = &TOY_SHA2_16;
    let keys = [Key::of_seeds(&[1; 16], &SK_SEED)];
    let position = Position { fors: [1, 2, 3, 4].into_iter().collect(), idx_tree: TREE, idx_leaf: REVEALED as u32 };
    let (key_of, positions) = (vec![0; jobs], vec![position; jobs]);
    run(&Plan::new(p, Op::Sign), &Batch { keys: &keys, key_of: &key_of, positions: &positions, signatures: &[] })
}

/// Known positions of unknown messages.
struct Known(Vec<Position>);

impl Digests for Known {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        Ok(self.0.clone())
    }
    fn longest(&self) -> usize {
        usize::MAX
    }
    fn m_prime(&self, _: usize) -> MPrime<'_> {
        unreachable!("it is too long")
    }
    fn opt_rand(&self, _: usize) -> &[u8] {
        unreachable!("as above")
    }
}

const SK_SEED: [u8; 16] = *b"no one may know.";

fn contains(memory: &[u8], secret: &[u8]) -> bool {
    memory.windows(secret.len()).any(|window| window == secret)
}

#[test]
fn secrets_are_wiped_on_the_device_and_in_pinned_memory() {
    let gpu = Arc::new(HostGpu::new(true));
    let (gpus, device) = device(gpu.clone());
    let mut signature = vec![0; TOY_SHA2_16.sig_bytes()];
    let (prf, chains) = one(|plan, batch| {
        let mut program = gpus.prepare(&device, plan, 1, &Policy::default()).unwrap();
        program.run_batch(batch, &mut signature).unwrap();
        // Without this, dropping the program would wipe all memory. The test looks at what the pass itself has wiped.
        gpu.submissions.store(0, Ordering::Relaxed);
        drop(program);
        // The first value of the first revealed chain, and the secret of a leaf that was not revealed.
        let p = plan.params;
        let hash = |adrs: hypergrove_fips205::Adrs| hypergrove_fips205::reference::prf(p, &[1; 16], &SK_SEED, adrs);
        use hypergrove_fips205::{Adrs, AdrsType};
        let wots = |chain| hash(Adrs::new(0, 2, AdrsType::WotsPrf).key_pair(3).chain(chain)).to_vec();
        (hash(Adrs::new(0, 2, AdrsType::ForsPrf).key_pair(3).node(0, 0)).to_vec(), [wots(0), wots(7)])
    });
    let freed = gpu.freed.lock().unwrap();
    assert!(freed.len() >= 2, "device memory and host memory");
    for memory in freed.iter() {
        let swapped: Vec<u8> = memory.chunks_exact(4).flat_map(|word| [word[3], word[2], word[1], word[0]]).collect();
        for memory in [memory, &swapped] {
            assert!(!contains(memory, &SK_SEED), "SK.seed");
            assert!(!contains(memory, &prf), "a FORS secret");
            // A chain's first value is public where its digit is 0: then the signature shows it.
            for chain in chains.iter().filter(|chain| !contains(&signature, chain)) {
                assert!(!contains(memory, chain), "a WOTS+ secret");
            }
        }
    }
    gpu.submissions.store(u64::MAX, Ordering::Relaxed);
    // The scan finds bytes that are there.
    assert!(freed.iter().any(|memory| contains(memory, &signature[16..32])), "the signature is not secret");
}

#[test]
fn a_dropped_program_leaves_nothing() {
    let gpu = Arc::new(HostGpu::new(true));
    let (gpus, device) = device(gpu.clone());
    one(|plan, batch| {
        let mut program = gpus.prepare(&device, plan, 1, &Policy::default()).unwrap();
        program.run_batch(batch, &mut vec![0; TOY_SHA2_16.sig_bytes()]).unwrap();
    });
    let freed = gpu.freed.lock().unwrap();
    let pinned_and_device = freed.iter().filter(|memory| memory.len() > TOY_SHA2_16.sig_bytes()).count();
    assert!(
        pinned_and_device >= 2 && freed.iter().all(|memory| memory[..memory.len() - 8].iter().all(|byte| *byte == 0))
    );
}

#[test]
fn a_lost_device_is_an_error_with_its_name_and_gives_nothing() {
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    one(|plan, batch| {
        let mut program = gpus.prepare(&device, plan, 1, &Policy::default()).unwrap();
        let mut out = vec![0; TOY_SHA2_16.sig_bytes()];
        gpu.submissions.store(0, Ordering::Relaxed);
        let why = program.run_batch(batch, &mut out).unwrap_err();
        assert!(matches!(&why, Error::Device { device, .. } if device == "host:0"), "{why}");
        assert!(out.iter().all(|byte| *byte == 0), "no part of a signature");
        gpu.submissions.store(u64::MAX, Ordering::Relaxed);
        program.run_batch(batch, &mut out).unwrap();
    });
}

/// One bit of the kernels' results is changed before the check reads them: no signature is handed out, and nothing stays.
#[test]
fn a_signature_that_fails_its_check_is_withheld_and_wiped() {
    for jobs in [1, 40] {
        let gpu = Arc::new(HostGpu::new(true));
        let (gpus, device) = device(gpu.clone());
        many(jobs, |plan, batch| {
            let mut program = gpus.prepare(&device, plan, jobs, &Policy::default()).unwrap();
            let mut right = vec![0; jobs * TOY_SHA2_16.sig_bytes()];
            program.run_batch(batch, &mut right).unwrap();
            let mut hits = Vec::new();
            for kernel in [Kernel::Xmss, Kernel::XmssWide, Kernel::Select, Kernel::Chains] {
                gpu.fault.store(kernel as u32, Ordering::Relaxed);
                let mut out = vec![0; right.len()];
                let result = program.run_batch(batch, &mut out);
                let hit = gpu.fault.swap(u32::MAX, Ordering::Relaxed) == u32::MAX;
                if !hit {
                    continue;
                }
                hits.push(kernel);
                match result {
                    Err(Error::Inconsistent { .. }) => assert!(out.iter().all(|byte| *byte == 0), "{kernel:?}"),
                    other => panic!("{kernel:?}, {jobs} jobs: a fault gave {other:?}"),
                }
            }
            let all = if jobs == 1 {
                &[Kernel::XmssWide, Kernel::Chains][..]
            } else {
                &[Kernel::Xmss, Kernel::Select, Kernel::Chains]
            };
            assert_eq!(hits, all);
            let mut again = vec![0; right.len()];
            program.run_batch(batch, &mut again).unwrap();
            assert!(again == right, "right again after faults");
        });
    }
}

/// This crate's tests rely on this: the double of a GPU catches references to bytes that are the device's.
#[test]
fn bytes_of_the_host_are_the_devices_while_they_are_copied() {
    let gpu = Arc::new(HostGpu::new(false));
    let (device, mut host) = (gpu.alloc(64).unwrap(), gpu.alloc_host(64).unwrap());
    let config = Config { family: Family::Sha2, n: 16, defines: Vec::new() };
    let (kernels, mut queue) = (gpu.kernels(&config, &[]).unwrap(), gpu.queue().unwrap());
    let (there, here) = (HostGpu::address(&device), HostGpu::host_address(&host));
    HostGpu::host_write(&host, 0, &[7; 16]);
    queue.submit(&kernels, &[Step::Upload { to: there, from: here, bytes: 16 }]).unwrap();
    queue.mark(3).unwrap();
    queue.submit(&kernels, &[Step::Download { to: here + 32, from: there, bytes: 16 }]).unwrap();
    assert_eq!(HostGpu::host_view(&host, 0..32), [[7; 16], [0; 16]].concat(), "what is only read may be read");
    let mut caught = |range: Range<usize>| {
        let view = catch_unwind(AssertUnwindSafe(|| HostGpu::host_view(&host, range.clone()).len())).is_err();
        let write =
            catch_unwind(AssertUnwindSafe(|| HostGpu::host_write(&host, range.start, &[0][..range.len().min(1)])));
        let bytes = catch_unwind(AssertUnwindSafe(|| HostGpu::host_bytes(&mut host, range.clone()).len()));
        (view, write.is_err(), bytes.is_err())
    };
    assert_eq!(caught(0..16), (false, true, true), "uploaded");
    assert_eq!(caught(47..48), (true, true, true), "downloaded");
    assert_eq!((caught(0..64), caught(16..33)), ((true, true, true), (true, false, true)));
    assert_eq!((caught(16..32), caught(48..64)), ((false, false, false), (false, false, false)), "other bytes");
    queue.wait_for(3).unwrap();
    assert_eq!((caught(0..16), caught(47..48)), ((false, false, false), (true, true, true)));
    queue.wait().unwrap();
    assert_eq!(caught(0..64), (false, false, false));
    assert_eq!(HostGpu::host_view(&host, 33..48), [7; 15]);
}

/// There are more rows than the ring has slots for, so that all slots are used again while copies are under way.
#[test]
fn rows_go_through_the_ring_while_others_are_under_way() {
    let gpu = Arc::new(HostGpu::new(false));
    let config = Config { family: Family::Sha2, n: 16, defines: Vec::new() };
    let (kernels, mut queue) = (gpu.kernels(&config, &[]).unwrap(), gpu.queue().unwrap());
    let (row, skip) = (40, 3);
    for (rows, parallel) in [(1, false), (SLOTS, false), (100, false), (1, true), (101, true), (500, true)] {
        let slots = Slots::new(rows, row);
        let (at, bytes) = (256, slots.all_bytes());
        let (device, host) = (gpu.alloc(rows * row).unwrap(), gpu.alloc_host(at + bytes + 8).unwrap());
        HostGpu::host_write(&host, at + bytes, &[9; 8]);
        let all: Vec<u8> = (0..rows * row).map(|i| (i % 251) as u8).collect();
        let mut ring = Ring::<HostGpu> { queue: &mut queue, kernels: &kernels, host: &host, at, slots, parallel };
        ring.send(&all.chunks(row).collect::<Vec<_>>(), HostGpu::address(&device)).unwrap();
        // The places have several sizes.
        let mut out = vec![0; all.len()];
        let (first, others) = out.split_at_mut(rows / 3 * row);
        let places = [first].into_iter().chain(others.chunks_mut(7 * row));
        ring.receive(places, skip, HostGpu::address(&device)).unwrap();
        let skipped = out.chunks(row).zip(all.chunks(row)).all(|(a, b)| a[..skip] == [0; 3] && a[skip..] == b[skip..]);
        assert!(skipped, "{rows} rows, {parallel}");
        queue.wait().unwrap();
        assert_eq!(HostGpu::host_view(&host, at + bytes..at + bytes + 8), [9; 8], "what lies behind the ring");
    }
}

/// A device for programs of which a pass takes no more jobs than this, twice if they sign.
fn narrow(plan: &Plan, jobs: usize) -> Arc<HostGpu> {
    let mut gpu = HostGpu::new(true);
    let (second, policy) = ((jobs * TOY_SHA2_16.sig_bytes()) as u64, GpuPolicy { digest: 512, ..GpuPolicy::default() });
    gpu.facts.memory = PROGRAM_SHARE * (device_bytes(plan, jobs, policy, &gpu.facts) + second);
    Arc::new(gpu)
}

/// Whether all of freed memory has these values. (Memory is allocated in whole words, of which the last one may not be the program's.)
fn all(freed: &[Vec<u8>], values: &[u8]) -> bool {
    freed.iter().all(|memory| {
        values.iter().any(|value| memory[..memory.len().saturating_sub(8)].iter().all(|byte| byte == value))
    })
}

/// Runs into three parts: one row that the device reaches, ten rows that it does not reach, and the rest, which it reaches. There is 7 where nothing
/// was written.
fn in_parts(gpu: &Arc<HostGpu>, program: &mut dyn Program, work: Work<'_>) -> (Result<(), Error>, Vec<u8>) {
    let size = program.plan().out_bytes();
    let mut reached = gpu.alloc_reached((work.batch.len() - 10) * size).unwrap().unwrap();
    reached.bytes_mut().fill(7);
    let mut ordinary = vec![7; 10 * size];
    let (first, last) = reached.bytes_mut().split_at_mut(size);
    let done = program.run(work, &mut [first, &mut ordinary, last]);
    (done.map(drop), [&reached.bytes()[..size], &ordinary, &reached.bytes()[size..]].concat())
}

/// Signatures go into parts of memory that the device reaches and of other memory. None goes there before the roots of its pass were accepted, and
/// refused signatures leave nothing on the device. Few signatures, which the kernels write to the host's memory, are held back, too.
#[test]
fn signatures_are_held_back_until_they_are_accepted() {
    let p = &TOY_SHA2_16;
    let size = p.sig_bytes();
    // The jobs, and the jobs of a pass.
    for (jobs, of_pass) in [(40, 40), (40, 20), (50, 17), (15, 15), (15, 8), (11, 1)] {
        many(jobs, |plan, batch| {
            let gpu = narrow(plan, of_pass);
            let (gpus, device) = device(gpu.clone());
            let mut program = gpus.prepare(&device, plan, of_pass, &Policy::default()).unwrap();
            let mut expected = vec![7; jobs * size];
            let (whole, first) = self::device(HostGpu::new(false));
            let mut in_one_pass = whole.prepare(&first, plan, jobs, &Policy::default()).unwrap();
            in_one_pass.run_batch(batch, &mut expected).unwrap();
            let roots = in_one_pass.read(Slot::XmssRoots).unwrap().unwrap();
            let highest: Vec<u8> =
                roots.chunks_exact(p.d * p.n).flat_map(|of_job| &of_job[(p.d - 1) * p.n..]).copied().collect();
            let (bare, mut positions) = (Batch { positions: &[], ..*batch }, Known(batch.positions.to_vec()));
            // R has no meaning in memory that the device reaches.
            let without_r = |mut rows: Vec<u8>| {
                rows.chunks_exact_mut(size).for_each(|row| row[..p.n].fill(7));
                rows
            };

            let (mut firsts, mut seen) = (Vec::new(), Vec::new());
            let mut accept = |first: usize, roots: &[u8]| {
                firsts.push(first);
                seen.extend_from_slice(roots);
                Ok(())
            };
            let work = Work { digests: Some(&mut positions), accept: Some(&mut accept), ..Work::of(&bare) };
            let (done, rows) = in_parts(&gpu, &mut *program, work);
            assert!(done.is_ok() && without_r(rows) == expected && seen == highest, "{jobs} by {of_pass}");
            let step = jobs.div_ceil(jobs.div_ceil(of_pass));
            assert_eq!(firsts, (0..jobs).step_by(step).collect::<Vec<_>>());

            // The roots of the first pass are refused, then those of the last.
            for refused in [0, firsts[firsts.len() - 1]] {
                gpu.freed.lock().unwrap().clear();
                let mut refuse = |first: usize, _: &[u8]| match first < refused {
                    true => Ok(()),
                    false => Err(Error::Value { what: format!("refused {first}") }),
                };
                let work = Work { digests: Some(&mut positions), accept: Some(&mut refuse), ..Work::of(&bare) };
                let (done, rows) = in_parts(&gpu, &mut *program, work);
                assert_eq!(done, Err(Error::Value { what: format!("refused {refused}") }));
                let rows = without_r(rows);
                let (first, last) = rows.split_at(refused * size);
                assert!(
                    *first == expected[..refused * size] && last.iter().all(|byte| *byte == 7),
                    "{jobs} by {of_pass}"
                );
                // Dropping wipes too, but cannot now.
                gpu.submissions.store(0, Ordering::Relaxed);
                drop(program);
                gpu.submissions.store(u64::MAX, Ordering::Relaxed);
                let freed = gpu.freed.lock().unwrap();
                // The rows themselves, and the memory on the device and on the host.
                assert!(freed.len() == 3 && all(&freed[1..], &[0]), "{jobs} by {of_pass}");
                program = gpus.prepare(&device, plan, of_pass, &Policy::default()).unwrap();
            }
        });
    }
}

/// Parts of the wrong length, all together or one of them, get nothing.
#[test]
fn parts_have_whole_results() {
    let size = TOY_SHA2_16.sig_bytes();
    many(40, |plan, batch| {
        let (gpus, device) = device(HostGpu::new(false));
        let mut program = gpus.prepare(&device, plan, 40, &Policy::default()).unwrap();
        for lengths in [[10 * size, 29 * size], [10 * size, 31 * size], [10 * size + 1, 30 * size - 1]] {
            let [mut first, mut last] = lengths.map(|bytes| vec![7; bytes]);
            let done = program.run(Work::of(batch), &mut [&mut first, &mut last]);
            assert!(matches!(done, Err(Error::Length { .. })), "{done:?}");
            assert!(first.iter().chain(&last).all(|byte| *byte == 7));
        }
        let cache = Plan::cache(plan.params, 1);
        let mut program = gpus.prepare(&device, &cache, 2, &Policy::default()).unwrap();
        let two = Batch { key_of: &[0, 0], positions: &[], ..*batch };
        let [mut first, mut last] = [(); 2].map(|()| vec![7; cache.out_bytes()]);
        assert!(program.run(Work::of(&two), &mut [&mut first, &mut last]).is_err());
        let mut both = vec![7; 2 * cache.out_bytes()];
        program.run_batch(&two, &mut both).unwrap();
        let (first, last) = both.split_at(cache.out_bytes());
        assert!(first == last);
    });
}

/// Jobs of the tests that compute twice. They have several keys, and the device hashes their messages if the policy says so.
const TWICE: usize = 40;

/// Gives `work` a program that signs these jobs, the batch and digests for it, and their signatures as the device makes them: without R
/// if the host makes it.
fn signed_twice(
    gpu: &Arc<HostGpu>,
    digest: u32,
    work: impl FnOnce(&mut dyn Program, &Batch<'_>, DigestJobs<'_>, &[u8]),
) {
    let (p, text) = (&TOY_SHA2_16, text());
    let plan = Plan::new(p, Op::Sign);
    let (gpus, device) = device(gpu.clone());
    let mut digests = DigestJobs::new(p, Op::Sign, (TWICE, 0), &text);
    let keys = digests.keys();
    let key_of: Vec<u32> = (0..TWICE).map(|job| (job % KEYS) as u32).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    let prepare = || gpus.prepare(&device, &plan, TWICE, &Policy(vec![("digest", digest)])).unwrap();
    let mut expected = vec![7; TWICE * p.sig_bytes()];
    prepare().run_batch(&Batch { positions: &digests.positions().unwrap(), ..batch }, &mut expected).unwrap();
    for (job, row) in expected.chunks_exact_mut(p.sig_bytes()).enumerate().filter(|_| digest > 0) {
        row[..p.n].copy_from_slice(&digests.r(job));
    }
    gpu.freed.lock().unwrap().clear();
    work(&mut *prepare(), &batch, digests, &expected);
}

/// Signs in these places, into memory that the device reaches and other memory. Returns the result and the rows. If the host makes R, R is
/// overwritten, because it has no meaning in memory that the device reaches.
fn signed(
    gpu: &Arc<HostGpu>,
    program: &mut dyn Program,
    batch: &Batch<'_>,
    digests: &mut dyn Digests,
    (hashes, places): (bool, Places),
) -> (Result<(), Error>, Vec<u8>) {
    let (n, size) = (TOY_SHA2_16.n, TOY_SHA2_16.sig_bytes());
    let (done, mut rows) = in_parts(gpu, program, Work { digests: Some(digests), places, ..Work::of(batch) });
    if !hashes {
        rows.chunks_exact_mut(size).for_each(|row| row[..n].fill(7));
    }
    (done, rows)
}

/// One bit is changed in either pass, behind all other checks. The difference is found and named, no signature is handed out, and nothing stays.
#[test]
fn a_fault_in_either_time_is_found_on_the_device() {
    fn row(args: &hypergrove_kernels::Args, job: u64) -> u64 {
        args.sigs + job * TOY_SHA2_16.sig_bytes() as u64
    }
    const SIGNATURE: &str = "the output of Sign";
    // The bits are in these words. Digest: R. Fors: a secret that the signature reveals. Climb, which checks layers: the signature's last
    // word, and the highest root.
    type Word = fn(&hypergrove_kernels::Args) -> u64;
    let faults: [(Kernel, u32, &str, [usize; 2], Word); 6] = [
        (Kernel::Digest, 512, SIGNATURE, [0, 1], |args| row(args, 0)),
        (Kernel::Fors, 512, SIGNATURE, [0, 1], |args| row(args, 0) + 16),
        (Kernel::Fors, 0, SIGNATURE, [5, 6], |args| row(args, 5) + 16),
        (Kernel::Climb, 0, SIGNATURE, [11, 12], |args| row(args, 12) - 4),
        (Kernel::Climb, 0, SIGNATURE, [39, 0], |args| row(args, 40) - 4),
        (Kernel::Climb, 512, "the top tree's root", [38, 39], |args| {
            let d = u64::from(args.shape0 >> 24);
            args.roots + (38 * (d + 1) + d) * 16
        }),
    ];
    for ((kernel, digest, result, jobs, word), spared) in faults.into_iter().flat_map(|fault| [(fault, 0), (fault, 1)])
    {
        let gpu = Arc::new(HostGpu::new(true));
        signed_twice(&gpu, digest, |program, batch, mut digests, expected| {
            let plant = || *gpu.planted.lock().unwrap() = Some(Planted { kernel, spared, word });
            let both = (digest > 0, Places::Both);
            let fails = |(done, rows): (Result<(), Error>, Vec<u8>)| {
                let what = format!("{result} of job {} differs when it is computed again", jobs[spared as usize]);
                assert_eq!(done, Err(Error::Inconsistent { device: "host:0".into(), what }));
                assert!(rows.iter().all(|byte| *byte == 7), "{kernel:?}: nothing leaves");
                assert!(gpu.planted.lock().unwrap().is_none());
            };
            plant();
            fails(signed(&gpu, program, batch, &mut digests, both));
            let (done, rows) = signed(&gpu, program, batch, &mut digests, both);
            assert!(done.is_ok() && rows == expected, "right again after a fault");
            gpu.freed.lock().unwrap().clear();
            plant();
            fails(signed(&gpu, program, batch, &mut digests, both));
            // Dropping wipes too, but cannot now.
            gpu.submissions.store(0, Ordering::Relaxed);
        });
        gpu.submissions.store(u64::MAX, Ordering::Relaxed);
        let freed = gpu.freed.lock().unwrap();
        // The rows, both memories of the device, and one of the host.
        assert!(freed.len() == 4 && all(&freed, &[0, 7]), "{kernel:?}: nothing stays");
    }
}

/// A batch takes several passes, each of them twice: roots are accepted once for each range of jobs, and a fault of the second range in either time
/// is found before the range's signatures leave.
#[test]
fn several_passes_are_computed_twice() {
    let (p, half) = (&TOY_SHA2_16, TWICE / 2);
    for digest in [0, 512] {
        let gpu = narrow(&Plan::new(p, Op::Sign), half);
        signed_twice(&gpu, digest, |program, batch, mut digests, expected| {
            let both = (digest > 0, Places::Both);
            for _ in 0..2 {
                let (done, rows) = signed(&gpu, program, batch, &mut digests, both);
                assert_eq!(done, Ok(()));
                assert!(rows == expected);
            }
            let mut firsts = Vec::new();
            let mut accept = |first: usize, roots: &[u8]| {
                firsts.push((first, roots.len() / p.n));
                Ok(())
            };
            let work = Work {
                digests: Some(&mut digests),
                accept: Some(&mut accept),
                places: Places::Both,
                ..Work::of(batch)
            };
            program.run(work, &mut [&mut vec![0; expected.len()]]).unwrap();
            assert_eq!(firsts, [(0, half), (half, half)]);
            for (spared, job) in [(2, half + 5), (3, half + 6)] {
                let word = |args: &hypergrove_kernels::Args| args.sigs + 5 * TOY_SHA2_16.sig_bytes() as u64 + 16;
                *gpu.planted.lock().unwrap() = Some(Planted { kernel: Kernel::Fors, spared, word });
                let (done, rows) = signed(&gpu, program, batch, &mut digests, both);
                assert_eq!(done, Err(Error::differs("host:0".into(), "the output of Sign", job)));
                let (first, last) = rows.split_at(half * p.sig_bytes());
                assert!(first == &expected[..first.len()] && last.iter().all(|byte| *byte == 7));
            }
            gpu.submissions.store(0, Ordering::Relaxed);
        });
        gpu.submissions.store(u64::MAX, Ordering::Relaxed);
        // The last memory that was freed is the program's.
        let freed = gpu.freed.lock().unwrap();
        assert!(all(&freed[freed.len() - 3..], &[0]), "nothing stays");
    }
}

/// The device compares only in passes of more than a few jobs. For fewer, the caller knows at once that it has to compare.
#[test]
fn few_signatures_are_left_to_the_host_to_compare() {
    let (p, size) = (&TOY_SHA2_16, TOY_SHA2_16.sig_bytes());
    let plan = Plan::new(p, Op::Sign);
    // Jobs, jobs of a pass, and whether the device compares.
    for (jobs, of_pass, compares) in [(1, 40, false), (16, 40, false), (17, 40, true), (33, 20, false), (35, 34, true)]
    {
        many(jobs, |_, batch| {
            let gpu = narrow(&plan, of_pass);
            let (gpus, device) = device(gpu.clone());
            assert_eq!(gpus.abilities(&device, &plan), Abilities { holds: true, compares: 17 });
            let mut program = gpus.prepare(&device, &plan, of_pass, &Policy::default()).unwrap();
            let [mut expected, mut rows] = [(); 2].map(|()| vec![7; jobs * size]);
            program.run_batch(batch, &mut expected).unwrap();
            let mut accept = |_: usize, _: &[u8]| if compares { Ok(()) } else { unreachable!("nothing is computed") };
            let work = Work { accept: Some(&mut accept), places: Places::Both, ..Work::of(batch) };
            let done = program.run(work, &mut [&mut rows]);
            assert_eq!(done.is_ok(), compares, "{jobs} by {of_pass}: {done:?}");
            assert!(compares || matches!(done, Err(Error::OutOfMemory { .. })) && rows.iter().all(|byte| *byte == 7));
            assert!(!compares || rows == expected);
        });
    }
    for op in [Op::Keygen, Op::Verify] {
        let (gpus, device) = device(HostGpu::new(false));
        let never = Abilities { holds: true, compares: usize::MAX };
        assert_eq!(gpus.abilities(&device, &Plan::new(p, op)), never);
    }
}

/// Jobs in other places give the same results, wherever these go, in one pass and in several. A program for one job has no other place.
#[test]
fn moved_jobs_have_their_results_in_order() {
    let (p, text) = (&TOY_SHA2_16, text());
    let digests = DigestJobs::new(p, Op::Sign, (TWICE, 0), &text);
    let keys: Vec<_> = digests.keys().iter().map(|key| Key::of_seeds(key.pk_seed, key.sk_seed)).collect();
    let public: Vec<_> = keys.iter().map(|key| Key::of_seeds(key.pk_seed, &[])).collect();
    let key_of: Vec<u32> = (0..TWICE).map(|job| (job % KEYS) as u32).collect();
    let positions = DigestJobs::new(p, Op::Sign, (TWICE, 0), &text).positions().unwrap();
    let bytes: Vec<u8> = (0..TWICE * p.sig_bytes()).map(|i| ((i * i) >> 3) as u8).collect();
    let signatures: Vec<&[u8]> = bytes.chunks_exact(p.sig_bytes()).collect();
    for (op, jobs, of_pass) in [Op::Sign, Op::Verify, Op::Keygen].into_iter().flat_map(|op| {
        [(40, 40), (40, 20), (39, 17), (33, 32), (12, 12), (15, 7), (13, 2), (11, 1)].map(|(a, b)| (op, a, b))
    }) {
        let (plan, what) = (Plan::new(p, op), format!("{op:?} of {jobs} by {of_pass}"));
        let gpu = narrow(&plan, of_pass);
        let (gpus, device) = device(gpu.clone());
        let batch = Batch {
            keys: if op == Op::Verify { &public } else { &keys },
            key_of: &key_of[..jobs],
            positions: if op == Op::Keygen { &[] } else { &positions[..jobs] },
            signatures: if op == Op::Verify { &signatures[..jobs] } else { &[] },
        };
        let mut program = gpus.prepare(&device, &plan, of_pass, &Policy::default()).unwrap();
        let mut run = |places| {
            let mut accepted = Vec::new();
            let mut accept = |first: usize, roots: &[u8]| {
                accepted.push((first, roots.to_vec()));
                Ok(())
            };
            let work = Work { accept: Some(&mut accept), places, ..Work::of(&batch) };
            let (done, mut rows) = in_parts(&gpu, &mut *program, work);
            if op == Op::Sign {
                rows.chunks_exact_mut(p.sig_bytes()).for_each(|row| row[..p.n].fill(7));
            }
            let roots: usize = accepted.iter().map(|(_, roots)| roots.len()).sum();
            assert!(done.is_err() || roots == if op == Op::Sign { jobs * p.n } else { 0 }, "{what}");
            (done, (rows, accepted))
        };
        let (done, expected) = run(Places::Usual);
        assert!(done.is_ok(), "{what}");
        let (done, moved) = run(Places::Other);
        match of_pass {
            1 => assert!(matches!(done, Err(Error::OutOfMemory { .. })), "{what}: {done:?}"),
            _ => assert!(done.is_ok() && moved == expected, "{what}: {done:?}"),
        }
    }
}

/// Runs of each kind are recorded when they are repeated, and no recording is used for another kind. Every run has its jobs in another order, so that
/// results of an earlier run are wrong.
#[test]
fn runs_that_compute_twice_are_told_from_others() {
    use Places::{Both, Other, Usual};
    let (gpu, size) = (Arc::new(HostGpu::new(false)), TOY_SHA2_16.sig_bytes());
    signed_twice(&gpu, 0, |program, batch, mut digests, expected| {
        let (mut key_of, mut expected) = (batch.key_of.to_vec(), expected.to_vec());
        let mut known = Known(digests.positions().unwrap());
        let kinds = [[Both, Usual, Other], [Other, Usual, Both], [Usual, Usual, Both], [Other, Both, Other]].concat();
        for places in kinds.into_iter().flat_map(|places| [places; 3]) {
            key_of.rotate_left(1);
            known.0.rotate_left(1);
            expected.rotate_left(size);
            let batch = Batch { key_of: &key_of, ..*batch };
            let (done, rows) = signed(&gpu, program, &batch, &mut known, (false, places));
            assert_eq!(done, Ok(()), "{places:?}");
            assert!(rows == expected, "{places:?}");
        }
    });
}

/// Signatures that were not compared have not passed, even if those of the run before have.
#[test]
fn a_comparison_that_did_not_run_is_noticed() {
    for digest in [0, 512] {
        let gpu = Arc::new(HostGpu::new(false));
        signed_twice(&gpu, digest, |program, batch, mut digests, expected| {
            let both = (digest > 0, Places::Both);
            let (done, rows) = signed(&gpu, program, batch, &mut digests, both);
            assert!(done.is_ok() && rows == expected);
            gpu.skip.store(Kernel::Compare as u32, Ordering::Relaxed);
            let (done, rows) = signed(&gpu, program, batch, &mut digests, both);
            assert!(matches!(done, Err(Error::Inconsistent { .. })), "{done:?}");
            assert!(rows.iter().all(|byte| *byte == 7));
            assert_eq!(gpu.skip.load(Ordering::Relaxed), u32::MAX);
        });
    }
}

/// Digests whose positions the host fails to compute, after so many successes.
struct Fickle<'a> {
    digests: DigestJobs<'a>,
    successes: usize,
}

impl Digests for Fickle<'_> {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        self.successes = self.successes.checked_sub(1).ok_or_else(|| Error::differs("host".into(), "R", 3))?;
        self.digests.positions()
    }
    fn longest(&self) -> usize {
        usize::MAX
    }
    fn m_prime(&self, _: usize) -> MPrime<'_> {
        unreachable!("it is too long")
    }
    fn opt_rand(&self, _: usize) -> &[u8] {
        unreachable!("as above")
    }
}

/// The host computes the positions once for each of the places, however many passes there are.
#[test]
fn an_error_of_the_host_ends_a_run() {
    for ((successes, places), of_pass) in [
        (0, Places::Usual),
        (0, Places::Both),
        (1, Places::Both),
        (1, Places::Usual),
        (1, Places::Other),
        (2, Places::Both),
    ]
    .into_iter()
    .flat_map(|run| [(run, TWICE), (run, TWICE / 2)])
    {
        let gpu = narrow(&Plan::new(&TOY_SHA2_16, Op::Sign), of_pass);
        let is_enough = successes > usize::from(places == Places::Both);
        signed_twice(&gpu, 0, |program, batch, digests, expected| {
            let mut digests = Fickle { digests, successes };
            let (done, rows) = signed(&gpu, program, batch, &mut digests, (false, places));
            assert_eq!(digests.successes, 0);
            if is_enough {
                assert_eq!(done, Ok(()), "{places:?}");
                assert!(rows == expected, "{places:?}");
            } else {
                assert_eq!(done, Err(Error::differs("host".into(), "R", 3)));
                assert!(rows.iter().all(|byte| *byte == 7));
            }
            gpu.submissions.store(0, Ordering::Relaxed);
        });
        gpu.submissions.store(u64::MAX, Ordering::Relaxed);
        assert!(is_enough || all(&gpu.freed.lock().unwrap(), &[0, 7]), "{successes} {places:?}");
    }
}

/// A program takes memory for second signatures at the first run that needs it, if the budget has room, and wipes that memory.
#[test]
fn a_program_takes_memory_for_second_signatures_when_they_are_wanted() {
    let (plan, jobs) = (Plan::new(&TOY_SHA2_16, Op::Sign), TWICE);
    let more = (jobs * TOY_SHA2_16.sig_bytes()) as u64;
    let needs = device_bytes(&plan, jobs, GpuPolicy::default(), &HostGpu::new(false).facts) + more;
    for (budget, most, fits) in [(needs, u64::MAX, true), (needs - 1, u64::MAX, false), (needs, more - 1, false)] {
        let mut gpu = HostGpu::new(true);
        gpu.facts.memory = budget * PROGRAM_SHARE;
        let gpu = Arc::new(gpu);
        signed_twice(&gpu, 0, |program, batch, mut digests, expected| {
            gpu.most.store(most, Ordering::Relaxed);
            let mut rows = vec![7; expected.len()];
            digests.is_queried = false;
            let mut run = |rows: &mut [u8], places| {
                let work = Work { digests: Some(&mut digests), places, ..Work::of(batch) };
                let done = program.run(work, &mut [rows]);
                (done, std::mem::take(&mut digests.is_queried))
            };
            let (done, queried) = run(&mut rows, Places::Both);
            assert_eq!((done.is_ok(), queried), (fits, fits), "{done:?}");
            assert!(fits || matches!(done, Err(Error::OutOfMemory { .. })), "{done:?}");
            assert!(fits || rows.iter().all(|byte| *byte == 7), "nothing has happened");
            let (done, queried) = run(&mut rows, Places::Usual);
            assert!(done.is_ok() && queried && rows == expected);
        });
        let freed = gpu.freed.lock().unwrap();
        assert_eq!(freed.len(), if fits { 3 } else { 2 });
        assert!(freed.iter().all(|memory| memory[..memory.len() - 8].iter().all(|byte| *byte == 0)));
    }
}

/// The device fetches signatures from memory that it reaches, by one copy for each run. Signatures with many gaps go through the ring.
#[test]
fn signatures_are_fetched_from_where_they_lie() {
    let p = &TOY_SHA2_16;
    let (jobs, size) = (64, p.sig_bytes());
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    let keys = [Key::of_seeds(&[1; 16], &[])];
    let position = Position { fors: [1, 2, 3, 4].into_iter().collect(), idx_tree: TREE, idx_leaf: REVEALED as u32 };
    let (key_of, positions) = (vec![0; jobs], vec![position; jobs]);
    let bytes: Vec<u8> = (0..jobs * size).map(|i| ((i * i) >> 3) as u8).collect();
    let mut reached = gpu.alloc_reached(jobs * size).unwrap().unwrap();
    reached.bytes_mut().copy_from_slice(&bytes);
    assert!(gpu.reaches(reached.bytes().as_ptr() as u64, jobs * size));
    assert!(!gpu.reaches(reached.bytes().as_ptr() as u64, jobs * size + 1) && !gpu.reaches(bytes.as_ptr() as u64, 1));
    let mut program = gpus.prepare(&device, &Plan::new(p, Op::Verify), jobs, &Policy::default()).unwrap();
    // Verifies in several ways. None of the signatures is copied by the host if the device fetches them.
    let mut roots = |signatures: &[&[u8]], fetches: bool| {
        let jobs = signatures.len();
        let (key_of, positions) = (&key_of[..jobs], &positions[..jobs]);
        let batch = Batch { keys: &keys, key_of, positions, signatures };
        let mut out = vec![0; jobs * p.n];
        let before = gpu.staged.load(Ordering::Relaxed);
        program.run_batch(&batch, &mut out).unwrap();
        let staged = gpu.staged.load(Ordering::Relaxed) - before;
        assert_eq!(staged < (jobs * size) as u64, fetches);
        let (mut again, bare) = (vec![0; jobs * p.n], Batch { positions: &[], ..batch });
        for places in [Places::Usual, Places::Other] {
            let mut known = Known(positions.to_vec());
            let work = Work { digests: Some(&mut known), places, ..Work::of(&bare) };
            program.run(work, &mut [&mut again]).unwrap();
            assert!(again == out, "{places:?}");
        }
        let mut fewer = Known(positions[1..].to_vec());
        let work = Work { digests: Some(&mut fewer), ..Work::of(&bare) };
        let why = program.run(work, &mut [&mut again]).unwrap_err();
        assert!(why.to_string().contains("positions"), "{why}");
        // No copy is under way.
        gpu.check_host(signatures[0].as_ptr() as u64, size, true);
        out
    };
    let ordinary: Vec<&[u8]> = bytes.chunks(size).collect();
    let expected = roots(&ordinary, false);
    let here: Vec<&[u8]> = reached.bytes().chunks(size).collect();
    assert!(roots(&here, true) == expected);
    // These are so few that the device begins when it has their first columns.
    assert!(roots(&here[..40], true) == expected[..40 * p.n]);
    let mut mixed = here.clone();
    mixed[30] = ordinary[30];
    assert!(roots(&mixed, false) == expected);
    // Two halves take two copies, and rows in reverse order would take one for each.
    let halves = [&here[32..], &here[..32]].concat();
    assert!(roots(&halves[12..52], true) == [&expected[44 * p.n..], &expected[..20 * p.n]].concat());
    assert!(roots(&halves, true) == [&expected[32 * p.n..], &expected[..32 * p.n]].concat());
    let backwards: Vec<&[u8]> = here.iter().rev().copied().collect();
    let expected: Vec<u8> = expected.chunks(p.n).rev().flatten().copied().collect();
    assert!(roots(&backwards, false) == expected);
    // A device that is lost uses none of the caller's memory any more, whatever it was doing.
    let few = Batch { keys: &keys, key_of: &key_of[..40], positions: &[], signatures: &here[..40] };
    for left in 0..5 {
        let mut program = gpus.prepare(&device, &Plan::new(p, Op::Verify), jobs, &Policy::default()).unwrap();
        gpu.submissions.store(left, Ordering::Relaxed);
        let mut out = vec![0; 40 * p.n];
        let mut known = Known(positions[..40].to_vec());
        let done = program.run(Work { digests: Some(&mut known), ..Work::of(&few) }, &mut [&mut out]);
        assert_eq!(done.is_ok(), left >= 3, "{left}: {done:?}");
        gpu.check_host(here[0].as_ptr() as u64, jobs * size, true);
        gpu.submissions.store(u64::MAX, Ordering::Relaxed);
    }
    drop(reached);
    assert!(!gpu.reaches(here_of(&gpu), 1));
}

/// An address that a freed block began with.
fn here_of(gpu: &Arc<HostGpu>) -> u64 {
    let reached = gpu.alloc_reached(64).unwrap().unwrap();
    let at = reached.bytes().as_ptr() as u64;
    drop(reached);
    at
}

#[test]
fn a_program_for_many_runs_few() {
    let (gpus, device) = device(HostGpu::new(false));
    one(|plan, batch| {
        let sign = |prepared| {
            let mut out = vec![0; TOY_SHA2_16.sig_bytes()];
            let mut program = gpus.prepare(&device, plan, prepared, &Policy::default()).unwrap();
            program.run_batch(batch, &mut out).unwrap();
            out
        };
        assert_eq!(sign(4096), sign(1));
    });
}

/// Signatures that were not checked are not handed out, even if everything else went well.
#[test]
fn a_check_that_did_not_run_is_noticed() {
    for (jobs, kernel) in [(1, Kernel::Links), (40, Kernel::Climb)] {
        let gpu = Arc::new(HostGpu::new(false));
        let (gpus, device) = device(gpu.clone());
        many(jobs, |plan, batch| {
            let mut program = gpus.prepare(&device, plan, jobs, &Policy::default()).unwrap();
            let mut out = vec![0; jobs * TOY_SHA2_16.sig_bytes()];
            program.run_batch(batch, &mut out).unwrap();
            out.fill(0);
            gpu.skip.store(kernel as u32, Ordering::Relaxed);
            assert!(matches!(program.run_batch(batch, &mut out), Err(Error::Inconsistent { .. })), "{kernel:?}");
            assert!(out.iter().all(|byte| *byte == 0), "{kernel:?}");
        });
    }
}

/// With SHA-512 two threads share a hash where rows are few: 40 jobs have 80, and 100 have 200. A device of two units has room for 128.
#[test]
fn few_rows_of_sha_512_climb_in_pairs() {
    let p = &TOY_SHA2_24;
    let keys = [Key::of_seeds(&[1; 24], &[2; 24])];
    let position = Position { fors: [1, 2, 3, 4].into_iter().collect(), idx_tree: TREE, idx_leaf: REVEALED as u32 };
    for (jobs, kernel, other) in [(40, Kernel::ClimbPaired, Kernel::Climb), (100, Kernel::Climb, Kernel::ClimbPaired)] {
        let gpu = Arc::new(HostGpu::new(false));
        let (gpus, device) = device(gpu.clone());
        let (plan, key_of, positions) = (Plan::new(p, Op::Sign), vec![0; jobs], vec![position; jobs]);
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &positions, signatures: &[] };
        let mut program = gpus.prepare(&device, &plan, jobs, &Policy::default()).unwrap();
        let mut without = |skipped: Kernel| {
            gpu.skip.store(skipped as u32, Ordering::Relaxed);
            program.run_batch(&batch, &mut vec![0; jobs * p.sig_bytes()])
        };
        assert!(without(other).is_ok(), "{jobs} jobs do not need {other:?}");
        assert!(matches!(without(kernel), Err(Error::Inconsistent { .. })), "{jobs} jobs need {kernel:?}");
    }
}

/// Stored signatures have the same bytes as signatures that are made. One that is damaged in memory is not handed out, and is made again.
#[test]
fn stored_signatures_are_checked() {
    let p = &TOY_SHA2_16;
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    let run = |plan: &Plan, batch: &Batch<'_>, policy: &[(&'static str, u32)]| {
        let mut program = gpus.prepare(&device, plan, batch.len(), &Policy(policy.to_vec()))?;
        let mut out = vec![0; batch.len() * plan.out_bytes()];
        program.run_batch(batch, &mut out).map(|_| out)
    };
    let cached = p.d;
    for jobs in [2, 17] {
        many(jobs, |plan, batch| {
            let nodes = run(&Plan::cache(p, cached), &Batch { key_of: &[0], positions: &[], ..*batch }, &[]).unwrap();
            let plan = plan.clone().with_cached_layers(cached);
            let sign = |policy: &[_]| {
                let keys = [Key { cached_nodes: &nodes, cached_id: jobs as u64, ..batch.keys[0] }];
                run(&plan, &Batch { keys: &keys, ..*batch }, policy)
            };
            let made = sign(&[("stored", 0)]).unwrap();
            for other in [("replay", 0), ("replay", 1), ("check", 0)] {
                assert!(sign(&[("stored", 2), other]).unwrap() == made, "{jobs} jobs, {other:?}");
            }
            gpu.fault.store(Kernel::Stored as u32, Ordering::Relaxed);
            sign(&[("stored", 2)]).expect("damaged only afterwards");
            assert_eq!(gpu.fault.load(Ordering::Relaxed), u32::MAX, "the stored signatures were used");
            assert!(matches!(sign(&[("stored", 2)]), Err(Error::Inconsistent { .. })), "{jobs} jobs");
            // A signature of a root that was read wrongly is not stored.
            gpu.fault.store(Kernel::Cached as u32, Ordering::Relaxed);
            assert!(matches!(sign(&[("stored", 2)]), Err(Error::Inconsistent { .. })), "{jobs} jobs");
            assert_eq!(gpu.fault.load(Ordering::Relaxed), u32::MAX);
            assert!(sign(&[("stored", 2)]).unwrap() == made, "{jobs} jobs");
        });
    }
}

/// Signatures are stored when making them has cost as much as storing.
#[test]
fn signatures_are_stored_once_that_has_paid() {
    let p = &TOY_SHA2_16;
    let rows = crate::nodes::rows(p, p.d);
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    many(rows.div_ceil(2 * (p.d - 1)), |plan, batch| {
        let cache = Plan::cache(p, p.d);
        let mut nodes = vec![0; cache.out_bytes()];
        let one = Batch { key_of: &[0], positions: &[], ..*batch };
        gpus.prepare(&device, &cache, 1, &Policy::default()).unwrap().run_batch(&one, &mut nodes).unwrap();
        let keys = [Key { cached_nodes: &nodes, cached_id: 1, ..batch.keys[0] }];
        let plan = plan.clone().with_cached_layers(p.d);
        let mut program = gpus.prepare(&device, &plan, batch.len(), &Policy::default()).unwrap();
        let mut out = vec![0; batch.len() * plan.out_bytes()];
        for paid in [false, true] {
            gpu.fault.store(Kernel::Stored as u32, Ordering::Relaxed);
            program.run_batch(&Batch { keys: &keys, ..*batch }, &mut out).unwrap();
            assert_eq!(gpu.fault.load(Ordering::Relaxed) == u32::MAX, paid);
        }
    });
}

/// A batch holds the nodes of all its keys at once: their signatures are stored if they fit together.
#[test]
fn signatures_are_stored_while_those_of_all_keys_fit() {
    let p = &TOY_SHA2_16;
    let grow = Plan::cache(p, p.d);
    let each = crate::nodes::bytes_with_rows(p, p.d, grow.out_bytes());
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    many(3, |plan, batch| {
        let mut nodes = vec![0; grow.out_bytes()];
        let one = Batch { key_of: &[0], positions: &[], ..*batch };
        gpus.prepare(&device, &grow, 1, &Policy::default()).unwrap().run_batch(&one, &mut nodes).unwrap();
        let plan = plan.clone().with_cached_layers(p.d);
        let keys = [1, 2, 3].map(|cached_id| Key { cached_nodes: &nodes, cached_id, ..batch.keys[0] });
        let sign = |keys: &[Key<'_>], stored| {
            let cache = Arc::new(NodesCache::new(2 * each as u64));
            let policy = GpuPolicy { stored, ..GpuPolicy::default() };
            let mut program = GpuProgram::new(&gpu, &cache, &plan, 3, 1 << 30, policy).unwrap();
            let key_of = [0, 1, keys.len() as u32 - 1];
            let mut out = vec![0; 3 * plan.out_bytes()];
            gpu.skip.store(Kernel::Stored as u32, Ordering::Relaxed);
            let done = program.run(Work::of(&Batch { keys, key_of: &key_of, ..*batch }), &mut [&mut out]);
            let launched = gpu.skip.swap(u32::MAX, Ordering::Relaxed) == u32::MAX;
            (done.map(|_| out), launched)
        };
        let (made, _) = sign(&keys, 0);
        assert!(made.is_ok() && sign(&keys[..2], 2).1, "all fit");
        assert_eq!(sign(&keys, 2), (made, false), "one more does not");
    });
}

#[test]
fn a_batch_beyond_a_programs_share_of_memory_takes_several_passes() {
    many(9, |plan, batch| {
        let run = |gpu: HostGpu| {
            let (gpus, device) = device(gpu);
            let mut program = gpus.prepare(&device, plan, 9, &Policy::default())?;
            let mut out = vec![0; 9 * TOY_SHA2_16.sig_bytes()];
            program.run_batch(batch, &mut out)?;
            Ok::<_, Error>((out, program.read(Slot::XmssRoots)?.is_some()))
        };
        let (whole, is_there) = run(HostGpu::new(false)).unwrap();
        assert!(is_there, "the roots of one pass are on the device");
        let in_passes = Ok((whole, false));
        let all = device_bytes(plan, 9, Default::default(), &HostGpu::new(false).facts);
        let mut small = HostGpu::new(false);
        small.facts.memory = crate::backend::PROGRAM_SHARE * all / 2;
        assert_eq!(run(small), in_passes);
        let mut cut = HostGpu::new(false);
        cut.facts.largest = all / 2;
        assert_eq!(run(cut), in_passes);
        // If other programs hold the memory, it is for the caller to have them make way, or to want less.
        let full = HostGpu::new(false);
        full.most.store(all - 1, Ordering::Relaxed);
        assert!(matches!(run(full), Err(Error::OutOfMemory { .. })));
        let mut tiny = HostGpu::new(false);
        tiny.facts.memory = 1000;
        assert!(matches!(run(tiny), Err(Error::OutOfMemory { .. })));
        let mut narrow = HostGpu::new(false);
        narrow.facts.largest = 1000;
        assert!(matches!(run(narrow), Err(Error::OutOfMemory { needs, has: 1000, .. }) if needs > 1000));
    });
}

#[test]
fn a_cpu_under_a_gpus_driver_gets_less_at_a_time() {
    let jobs = |gpu: HostGpu, op| {
        let (gpus, device) = device(gpu);
        gpus.jobs(&device, &Plan::new(&SLH_DSA_SHA2_128S, op), &Policy::default())
    };
    assert_eq!(jobs(lanes(), Op::Sign), 4);
    assert_eq!(jobs(HostGpu::new(false), Op::Sign), 128);
}

/// A GPU whose threads are lanes of a CPU's vectors.
fn lanes() -> HostGpu {
    let mut gpu = HostGpu::new(false);
    gpu.facts.is_cpu = true;
    gpu.facts.most_iterations = 60_000;
    gpu.facts.defaults = &[("replay", 1)];
    gpu.facts.without =
        &["levels", "block", "blocks", "chains_block", "xmss_block", "fors_block", "select_block", "sort"];
    gpu
}

#[test]
fn threads_that_are_lanes_give_the_same_bytes() {
    let position =
        |p: &Params| Position { fors: (0..p.k as u32).map(|i| i % 60).collect(), idx_tree: TREE, idx_leaf: 3 };
    // With SHAKE, threads go up fewer levels than the policy says: Keccak's rounds are iterations of a loop, and a thread's iterations are limited.
    for p in [&SLH_DSA_SHA2_128F, &SLH_DSA_SHA2_192F, &SLH_DSA_SHA2_256F, &SLH_DSA_SHAKE_128F, &SLH_DSA_SHAKE_192F] {
        let (pk_seed, sk_seed) = (vec![1; p.n], vec![2; p.n]);
        let (positions, mut signature) = ([position(p)], Vec::new());
        let climbs = vec!["climb_solo"; p.d];
        let verify = [&["fors_climb_solo"], &climbs[..]].concat();
        // An axis says how far a thread goes up. Every height is tested, the root's too.
        let ops: [(Op, &[&str], &[u32]); 4] = [
            (Op::Keygen, &["leaf_solo"], &[1, 2, 3, 9]),
            (Op::Cache, &["leaf_solo"], &[1, 3]),
            (Op::Sign, &["fors_solo", "leaf_solo", "climb_solo"], &[2]),
            (Op::Verify, &verify, &[2]),
        ];
        for (op, expected, heights) in ops {
            let plan = Plan::new(p, op);
            let sk_seed = if op == Op::Verify { &[] } else { &sk_seed[..] };
            let keys = [Key::of_seeds(&pk_seed, sk_seed)];
            let positions = if matches!(op, Op::Sign | Op::Verify) { &positions[..] } else { &[] };
            let signatures = [&signature[..]];
            let signatures = if op == Op::Verify { &signatures[..] } else { &[] };
            let run = |gpu, height| {
                let (gpus, device) = device(gpu);
                let policy = Policy(vec![("subtree_height", height), ("stages", 1)]);
                let mut program = gpus.prepare(&device, &plan, 1, &policy).unwrap();
                let mut out = vec![0; plan.out_bytes()];
                let batch = Batch { keys: &keys, key_of: &[0], positions, signatures };
                let stages = program.run_batch(&batch, &mut out).unwrap().stages;
                let for_cpu: Vec<_> =
                    stages.iter().map(|stage| stage.name).filter(|name| name.contains("solo")).collect();
                (out, for_cpu)
            };
            let (right, none) = run(HostGpu::new(false), 2);
            assert!(none.is_empty());
            for height in heights {
                let (out, for_cpu) = run(lanes(), *height);
                // A cache's times are not reported by stage.
                assert!(for_cpu == expected || op == Op::Cache, "{p} {op:?}, {height} levels: {for_cpu:?}");
                assert!(out == right, "{p} {op:?}, {height} levels");
            }
            if op == Op::Sign {
                signature = right;
            }
        }
    }
}

/// The tests cover every leaf and digit, sets with another w, for which there are no such kernels, and keys with cached layers.
#[test]
fn threads_that_are_lanes_do_what_all_backends_do() {
    hypergrove_testkit::suite::toys_exhaustively(&gpus(lanes()));
    hypergrove_testkit::suite::cached_layers_give_the_same_bytes(&gpus(lanes()));
    hypergrove_testkit::suite::every_policy_gives_the_same_bytes(&gpus(lanes()));
}

#[test]
fn a_device_may_lack_axes_and_have_defaults_of_its_own() {
    let mut gpu = HostGpu::new(false);
    gpu.facts.without = &["imad"];
    gpu.facts.defaults = &[("levels", 3), ("block", 32)];
    gpu.facts.fixed_blocks = true;
    let (gpus, device) = device(gpu);
    many(40, |plan, batch| {
        let space = gpus.space(&device, plan).unwrap();
        assert!(space.iter().all(|axis| axis.name != "imad") && space.iter().any(|axis| axis.name == "block"));
        let run = |policy: &[(&'static str, u32)]| {
            let mut program = gpus.prepare(&device, plan, 40, &Policy([policy, &[("stages", 1)]].concat()))?;
            let stages = program.run_batch(batch, &mut vec![0; 40 * TOY_SHA2_16.sig_bytes()])?.stages;
            Ok::<_, Error>(stages.iter().map(|stage| stage.threads).collect::<Vec<_>>())
        };
        assert!(run(&[]).unwrap().iter().all(|threads| *threads == 32));
        assert!(run(&[("block", 64)]).unwrap().iter().all(|threads| *threads == 64));
        assert!(run(&[("imad", 0)]).is_err_and(|why| why.to_string().contains("host:0 has no policy axis")));
    });
    assert!(gpus.sha256().unwrap().prepare(&device, &Policy(vec![("imad", 0)])).is_err());
}

/// The self-test's batch is the smallest whose messages a device hashes: with fewer jobs in it, no device would ever hash messages.
#[test]
fn a_device_hashes_messages_once_it_is_tested() {
    let (gpus, device) = device(HostGpu::new(false));
    let backend = SelfTested::of(Arc::new(gpus));
    let (p, text, jobs, policy) = (&TOY_SHA2_16, text(), 17, Policy(vec![("digest", 512)]));
    let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
    for op in [Op::Sign, Op::Verify] {
        let plan = Plan::new(p, op);
        let mut program = backend.slh_dsa().unwrap().prepare(&device, &plan, jobs, &policy).unwrap();
        let mut digests = DigestJobs::new(p, op, (jobs, 0), &text);
        let keys = digests.keys();
        let mut memory = backend.host_memory().unwrap().allocate(&device, jobs * p.sig_bytes()).unwrap();
        for (job, row) in memory.bytes_mut().chunks_exact_mut(p.sig_bytes()).enumerate() {
            row[..p.n].copy_from_slice(&digests.r(job));
        }
        let all = memory.bytes().chunks_exact(p.sig_bytes());
        let signatures: Vec<&[u8]> = all.filter(|_| op == Op::Verify).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &signatures };
        let [mut by_host, mut by_device] = [(); 2].map(|()| vec![0; jobs * plan.out_bytes()]);
        program.run_batch(&Batch { positions: &digests.positions().unwrap(), ..batch }, &mut by_host).unwrap();
        digests.is_queried = false;
        assert_eq!(program.hashes(), 0, "a device hashes nothing before it is tested");
        program.prove(jobs).unwrap();
        assert!(program.hashes() > 0);
        program.run(Work { digests: Some(&mut digests), ..Work::of(&batch) }, &mut [&mut by_device]).unwrap();
        if op == Op::Sign {
            let rows = by_host.chunks_exact_mut(p.sig_bytes()).enumerate();
            rows.for_each(|(job, row)| row[..p.n].copy_from_slice(&digests.r(job)));
        }
        assert!(by_device == by_host && !digests.is_queried, "{op:?}");
    }
}

/// The digests that the oracle computes.
fn digests(messages: Messages<'_>) -> Vec<[u8; 32]> {
    let device = Reference.devices().unwrap().remove(0);
    let mut digests = vec![[0; 32]; messages.len()];
    Reference.sha256().unwrap().prepare(&device, &Policy::default()).unwrap().run(messages, &mut digests).unwrap();
    digests
}

#[test]
fn messages_in_any_launch_shape() {
    let (gpus, device) = device(HostGpu::new(false));
    let shape = |block, blocks, streams| Policy(vec![("block", block), ("blocks", blocks), ("streams", streams)]);
    let data: Vec<u8> = (0..5 << 20).map(|i: u32| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    for policy in [shape(0, 0, 3), shape(1, 1, 1), shape(64, 2, 2), shape(512, 1, 8)] {
        let policy = Policy([&policy.0[..], &[("piece", 1), ("threads", 2)]].concat());
        let mut hasher = gpus.sha256().unwrap().prepare(&device, &policy).unwrap();
        // Two chunks and more, with messages of one word, of words that are no quads, of odd lengths, of whole blocks and not.
        for (each, count) in [(4, 20_000), (20, 99), (64, 3), (55, 40), (1000, 1100), (1024, 2051)] {
            let messages = Messages::equal(&data[..each * count], each).unwrap();
            let mut got = vec![[0; 32]; count];
            hasher.run(messages, &mut got).unwrap();
            assert!(got == digests(messages), "{count} messages of {each} bytes, {policy:?}");
        }
        let mut ends: Vec<usize> = (0..900).map(|i| i * i * 3 + 1).collect();
        ends.insert(0, 0);
        let messages = Messages::new(&data[..*ends.last().unwrap()], &ends).unwrap();
        let mut got = vec![[0; 32]; ends.len()];
        hasher.run(messages, &mut got).unwrap();
        assert!(got == digests(messages), "{policy:?}");
        let long = Messages::new(&data[..(1 << 20) + 1], &[(1 << 20) + 1]).unwrap();
        assert!(matches!(hasher.run(long, &mut got[..1]), Err(Error::Unsupported { .. })));
        assert!(matches!(hasher.run(long, &mut got), Err(Error::Length { .. })));
    }
}

#[test]
fn messages_are_as_long_as_a_cpus_loops() {
    let (gpus, device) = device(lanes());
    let (hashers, policy) = (gpus.sha256().unwrap(), Policy::default());
    let mut hasher = hashers.prepare(&device, &policy).unwrap();
    let (data, longest) = (vec![7; 1 << 20], hashers.longest(&device, &policy).unwrap());
    assert!((700_000..800_000).contains(&longest));
    let mut run = |bytes: usize| {
        let messages = Messages::equal(&data[..bytes], bytes).unwrap();
        let mut got = [[0; 32]];
        hasher.run(messages, &mut got).map(|_| assert!(got[..] == digests(messages)[..]))
    };
    assert!(run(longest).is_ok());
    assert!(matches!(run(longest + 1), Err(Error::Unsupported { .. })));
}

#[test]
fn messages_in_the_devices_memory() {
    let (gpus, device) = device(HostGpu::new(false));
    let mut hasher = gpus.sha256().unwrap().prepare(&device, &Policy(vec![("piece", 1)])).unwrap();
    let data: Vec<u8> = (0..1024).map(|i| i as u8).collect();
    let messages = Messages::equal(&data, 128).unwrap();
    let mut got = vec![[0; 32]; 8];
    assert_eq!(hasher.resident(messages, 5, 2, &mut got).unwrap().map(|times| times.len()), Some(2));
    assert!(hasher.link().unwrap().is_some_and(|rate| rate > 0.0));
    assert_eq!(got, digests(messages));
    assert!(hasher.resident(Messages::equal(&data[..1022], 2).unwrap(), 1, 1, &mut [[0; 32]; 511]).is_err());
    assert!(
        hasher.resident(Messages::equal(&data[..16], 16).unwrap(), 1 << 30, 1, &mut [[0; 32]]).is_err(),
        "too many"
    );
}

#[test]
fn a_device_that_fails_says_so_and_goes_on() {
    let gpu = Arc::new(HostGpu::new(false));
    let (gpus, device) = device(gpu.clone());
    let mut hasher = gpus.sha256().unwrap().prepare(&device, &Policy(vec![("piece", 1)])).unwrap();
    let data = vec![7; 4 << 20];
    let messages = Messages::equal(&data, 4096).unwrap();
    let mut got = vec![[0; 32]; 1024];
    gpu.submissions.store(2, Ordering::Relaxed);
    assert!(matches!(hasher.run(messages, &mut got), Err(Error::Device { .. })));
    gpu.submissions.store(u64::MAX, Ordering::Relaxed);
    hasher.run(messages, &mut got).unwrap();
    assert_eq!(got, digests(messages));
    for axis in [("block", 2048), ("occupancy", 0), ("imad", 4096), ("streams", 0), ("piece", 0), ("tile", 1)] {
        assert!(matches!(gpus.sha256().unwrap().prepare(&device, &Policy(vec![axis])), Err(Error::Value { .. })));
    }
}

#[test]
fn stages_are_timed_alone_in_the_shape_that_was_asked_for() {
    let (gpus, device) = device(HostGpu::new(false));
    for jobs in [1, 40] {
        many(jobs, |plan, batch| {
            let run = |policy: &[(&'static str, u32)]| {
                let mut program = gpus.prepare(&device, plan, jobs, &Policy(policy.to_vec())).unwrap();
                let mut out = vec![0; jobs * TOY_SHA2_16.sig_bytes()];
                let timing = program.run_batch(batch, &mut out).unwrap();
                (out, timing)
            };
            let (right, plain) = run(&[]);
            assert!(plain.stages.is_empty());
            let (out, timing) = run(&[("stages", 1), ("blocks", 3), ("block", 32)]);
            assert!(out == right);
            assert!(timing.stages.iter().all(|stage| stage.blocks <= 3 && stage.threads <= 96), "{:?}", timing.stages);
            for name in ["chains", "fors"] {
                assert!(timing.stages.iter().any(|stage| stage.name == name), "{name}: {:?}", timing.stages);
            }
            assert_eq!(timing.execute, timing.stages.iter().map(|stage| stage.time).sum());
        });
    }
    one(|plan, _| {
        let refused = gpus.prepare(&device, plan, 1, &Policy(vec![("block", 512)]));
        assert!(refused.is_err_and(|why| why.to_string().contains("at most 256 threads")));
    });
}

/// If this fails, the tables that come with the tool were measured with other kernels or defaults, and GPUs get the defaults. If no
/// measured step has changed, the tables' `space` may be written anew. Otherwise they must be measured again.
#[test]
fn tables_that_come_along_are_of_these_kernels() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tuning"));
    let of_drivers = [
        ("cuda", hypergrove_cuda::WITHOUT, hypergrove_cuda::DEFAULTS),
        ("vulkan", hypergrove_vulkan::WITHOUT, hypergrove_vulkan::DEFAULTS),
    ];
    for (name, without, defaults) in of_drivers {
        let mut gpu = HostGpu::new(false);
        (gpu.facts.without, gpu.facts.defaults) = (without, defaults);
        let gpus = Gpus::new(name, Ok(vec![Arc::new(gpu)]), None);
        let space = hypergrove_tables::space::checksum(&gpus, &gpus.devices().unwrap()[0]).unwrap();
        let files: Vec<_> = std::fs::read_dir(folder.join(name)).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let table = std::fs::read_to_string(&file).unwrap();
            assert!(table.contains(&format!("\nspace = {space:?}\n")), "{}: space = {space:?}", file.display());
        }
    }
}
