//! zkDilithium by kernels that run on the host, and tests that need a GPU which fails on command.

use super::{DistinctKeys, Limits, ZkGpu, ZkPolicy, pass};
use crate::gpu::Gpu;
use crate::host::HostGpu;
use hypergrove_engine::{Error, Places, Policy, ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkSign, ZkVerify};
use hypergrove_testkit::zk_suite::{keygen_to_vec, sign_to_vec};
use hypergrove_zkdilithium::params::{SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::sample::expand_a;
use hypergrove_zkdilithium::{Message, Signature, SigningKey};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn on_host(gpu: &Arc<HostGpu>, policy: ZkPolicy) -> Box<ZkGpu<HostGpu>> {
    Box::new(ZkGpu::new(gpu, policy, 1 << 30).unwrap())
}

/// Blocks have few threads, since each thread is a fibre.
fn policy(fp64: u32) -> ZkPolicy {
    ZkPolicy { fp64, block: 8, fill: 16, width: 4, ..ZkPolicy::default() }
}

fn host(fp64: u32) -> Option<Box<ZkGpu<HostGpu>>> {
    Some(on_host(&Arc::new(HostGpu::new(false)), policy(fp64)))
}

hypergrove_testkit::zk_tests!(in_integers, host(0));
hypergrove_testkit::zk_tests!(in_doubles, host(1));

const SEED: [u8; 32] = *b"no one may know where keys begin";

/// A key of the seed, and a signature by it. From then on, the device accepts no submission.
fn made(gpu: &Arc<HostGpu>, policy: ZkPolicy) -> (SigningKey, Signature) {
    let mut zk = on_host(gpu, policy);
    let mut keys = keygen_to_vec(&mut *zk, &[SEED], Places::Usual).unwrap();
    let mut signatures =
        sign_to_vec(&mut *zk, &[ZkSign::new(&keys[0], Message::Bytes(b"message"))], Places::Usual).unwrap();
    // Dropping can wipe nothing now: tests look at what the passes themselves have wiped.
    gpu.submissions.store(0, Relaxed);
    (keys.remove(0), signatures.remove(0))
}

#[test]
fn secrets_are_wiped_on_the_device_and_in_pinned_memory() {
    let gpu = Arc::new(HostGpu::new(true));
    let (key, _) = made(&gpu, policy(0));
    let matrix = expand_a(key.rho());
    let matrix: Vec<_> = matrix.as_flattened().iter().flat_map(|a| a.0).flat_map(|x| x.value().to_le_bytes()).collect();
    let freed = gpu.freed.lock().unwrap();
    // Both passes had device memory and host memory; the first pass's were too small for the second.
    assert!(freed.iter().filter(|memory| memory.len() >= 1 << 16).count() >= 3);
    for memory in freed.iter().filter(|memory| memory.len() >= 1 << 16) {
        // Memory that was never used still has the poison that the host puts into fresh memory.
        let poison = 0xa5a5_5a5a_dead_beefu64.to_le_bytes();
        let is_wiped = |word: &[u8; 8]| *word == [0; 8] || *word == poison;
        let words = memory.as_chunks::<8>().0;
        let used = words.iter().rposition(|word| *word != poison).map_or(0, |last| last + 1);
        // Key generation leaves Â, which is public, at the end.
        let used = words[..used].as_flattened();
        let used = used.strip_suffix(&matrix[..]).unwrap_or(used);
        assert!(used.as_chunks().0.iter().all(is_wiped));
    }
}

#[test]
fn a_message_that_kernels_cannot_count_is_refused_by_its_length() {
    let gpu = Arc::new(HostGpu::new(false));
    let (key, _) = made(&gpu, policy(0));
    gpu.submissions.store(u64::MAX, Relaxed);
    // Nothing reads the message, so it takes no physical memory.
    let message = vec![0; (1 << 31) + 1];
    let job = ZkSign::new(&key, Message::Bytes(&message));
    let why = sign_to_vec(&mut *on_host(&gpu, policy(0)), &[job], Places::Usual).unwrap_err();
    assert!(matches!(&why, Error::Value { what } if what.contains("host:0 takes 2147483648")), "{why}");
}

#[test]
fn a_lost_device_is_an_error_with_its_name_and_gives_nothing() {
    let gpu = Arc::new(HostGpu::new(false));
    let (key, signature) = made(&gpu, policy(0));
    let message = Message::Bytes(b"message");
    let public = key.verifying_key();
    for left in 0..8 {
        let mut zk = on_host(&gpu, policy(0));
        gpu.submissions.store(left, Relaxed);
        let mut verdicts = Vec::new();
        let lost = |why: Error| assert!(matches!(&why, Error::Device { device, .. } if device == "host:0"), "{why}");
        let job = ZkVerify::new(&public, message, signature.as_bytes());
        match left {
            0 | 1 => lost(keygen_to_vec(&mut *zk, &[SEED, [1; 32]], Places::Usual).unwrap_err()),
            2 | 3 => lost(sign_to_vec(&mut *zk, &[ZkSign::new(&key, message); 40], Places::Usual).unwrap_err()),
            _ => {
                gpu.submissions.store(left % 2, Relaxed);
                lost(zk.verify(&[job; 40], &mut verdicts, Places::Usual).unwrap_err());
            }
        }
        assert!(verdicts.is_empty());
        gpu.submissions.store(u64::MAX, Relaxed);
        zk.verify(&[job], &mut verdicts, Places::Usual).unwrap();
        assert_eq!(verdicts, [true]);
    }
}

/// Passes of one job, of two keys and of single messages give the same results as one pass.
#[test]
fn passes_are_cut_by_every_limit() {
    let gpu = Arc::new(HostGpu::new(false));
    let texts = [vec![7; 90], vec![8; 3], Vec::new(), vec![9; 200], vec![10; 47]];
    let run = |zk: &mut ZkGpu<HostGpu>| {
        let mut verdicts = Vec::new();
        let keys = keygen_to_vec(zk, &[[1; 32], [2; 32], [3; 32]], Places::Usual).unwrap();
        let jobs: Vec<_> =
            (texts.iter().enumerate()).map(|(i, text)| ZkSign::new(&keys[i % 3], Message::Bytes(text))).collect();
        let signatures = sign_to_vec(zk, &jobs, Places::Usual).unwrap();
        let public: Vec<_> = keys.iter().map(SigningKey::verifying_key).collect();
        let jobs: Vec<_> = (texts.iter().zip(&signatures).enumerate())
            .map(|(i, (text, signature))| ZkVerify {
                expanded: None,
                key: &public[i % 3],
                message: Message::Bytes(text),
                signature: signature.as_bytes(),
            })
            .collect();
        zk.verify(&jobs, &mut verdicts, Places::Usual).unwrap();
        assert_eq!(verdicts, [true; 5]);
        (keys, signatures)
    };
    let whole = run(&mut on_host(&gpu, policy(0)));
    for limits in [
        Limits { jobs: 1, keys: 1, made: 1, attempts: 1, messages: 1 },
        Limits { jobs: 5, keys: 2, made: 2, attempts: 3, messages: 1 << 20 },
        Limits { jobs: 5, keys: 3, made: 3, attempts: 64, messages: 100 },
    ] {
        let mut zk = on_host(&gpu, ZkPolicy { block: 32, width: 1, threads: 2, ..policy(0) });
        zk.limits = limits;
        assert!(run(&mut zk) == whole, "{limits:?}");
    }
}

#[test]
fn memory_that_does_not_suffice_is_an_error() {
    let gpu = Arc::new(HostGpu::new(false));
    let why = ZkGpu::new(&gpu, policy(0), 1000).err().unwrap();
    assert!(matches!(why, Error::OutOfMemory { .. }), "{why}");
    let few = ZkGpu::new(&gpu, policy(0), 8 << 20).ok().unwrap();
    assert!(pass::most_bytes(few.limits) <= 8 << 20 && few.limits.jobs > 1);
    gpu.most.store(1 << 16, Relaxed);
    let mut zk = on_host(&gpu, policy(0));
    let why = keygen_to_vec(&mut *zk, &[SEED; 9], Places::Usual).unwrap_err();
    assert!(matches!(&why, Error::OutOfMemory { .. }), "{why}");
}

/// There are more rows than the ring has room for, and an unwanted one in front: each row is copied while the device writes others.
#[test]
fn rows_are_copied_while_others_are_under_way() {
    const ROW: usize = 1 << 20;
    let mut zk = on_host(&Arc::new(HostGpu::new(false)), policy(0));
    let (rows, pad, mut out) = (50, 1, vec![0; 50 * ROW]);
    let mut places: Vec<&mut [u8; ROW]> = out.as_chunks_mut().0.iter_mut().collect();
    let mut layout = pass::PassLayout::default();
    let all = layout.both((pad + rows) * ROW / 4);
    let way = zk.way(&mut layout, places.iter_mut().map(|place| place.as_mut_ptr() as u64), ROW, pad);
    zk.memory.ensure(&layout).unwrap();
    for (number, row) in zk.memory.bytes(all, (pad + rows) * ROW).chunks_exact_mut(ROW).enumerate() {
        row.fill(number as u8);
    }
    zk.run(&[zk.memory.upload(all, (pad + rows) * ROW)]).unwrap();
    zk.fetch_to(&way, all, (pad, &mut places)).unwrap();
    for (number, row) in out.chunks_exact(ROW).enumerate() {
        assert!(row.iter().all(|byte| usize::from(*byte) == number + pad), "row {number}");
    }
}

/// Rows of callers that a pass copies.
const ROWS: usize = 8;

/// Bytes that go through the program's own pinned memory during `work`, and its result.
fn staged<R>(gpu: &HostGpu, work: impl FnOnce() -> R) -> (u64, R) {
    let before = gpu.staged.load(Relaxed);
    let done = work();
    (gpu.staged.load(Relaxed) - before, done)
}

/// Has `make` write rows to memory of all kinds. The rows are the same everywhere, and the device itself writes memory that it reaches.
fn rows_are_written<const ROW: usize>(gpu: &Arc<HostGpu>, make: &mut dyn FnMut(&mut [&mut [u8; ROW]])) -> Vec<u8> {
    let mut make = |bytes: &mut [u8], stride: usize| {
        bytes.fill(7);
        let mut places: Vec<&mut [u8; ROW]> =
            bytes.chunks_mut(stride).map(|row| row.first_chunk_mut().unwrap()).collect();
        staged(gpu, || make(&mut places)).0
    };
    let size = ROWS * ROW;
    let mut ordinary = vec![0; size];
    let through = make(&mut ordinary, ROW);
    let mut reached = gpu.alloc_reached(size + 16 * ROWS).unwrap().unwrap();
    // All bytes but those of the rows go through pinned memory.
    assert_eq!(make(&mut reached.bytes_mut()[8..size + 8], ROW), through - size as u64);
    assert!(reached.bytes()[8..size + 8] == ordinary && reached.bytes()[size + 8..].iter().all(|byte| *byte == 0));
    // With gaps between rows, the device would need as many copies as there are rows, which would take too long.
    assert_eq!(make(reached.bytes_mut(), ROW + 16), through);
    for (row, expected) in reached.bytes().chunks(ROW + 16).zip(ordinary.chunks(ROW)) {
        assert!(row[..ROW] == *expected && row[ROW..] == [7; 16]);
    }
    ordinary
}

/// The device itself writes memory that it reaches, and writes nothing there before everything is computed.
#[test]
fn results_go_where_the_device_reaches() {
    let gpu = Arc::new(HostGpu::new(false));
    let mut zk = on_host(&gpu, policy(0));
    let seeds: Vec<[u8; 32]> = (1..=ROWS as u8).map(|of| [of; 32]).collect();
    for places in [Places::Usual, Places::Other] {
        let keys = rows_are_written(&gpu, &mut |rows| drop(zk.keygen(&seeds, rows, places).unwrap()));
        let key = SigningKey::from_bytes(&keys[..SK_BYTES]).unwrap();
        assert!(keygen_to_vec(&mut *zk, &seeds[..1], places).unwrap() == [key.clone()]);
        let texts: Vec<[u8; 5]> = (0..ROWS as u8).map(|of| [of; 5]).collect();
        let jobs: Vec<_> = texts.iter().map(|text| ZkSign::new(&key, Message::Bytes(text))).collect();
        let signed = rows_are_written(&gpu, &mut |rows| drop(zk.sign(&jobs, rows, places).unwrap()));
        let expected = sign_to_vec(&mut *zk, &jobs, places).unwrap();
        assert!(signed.chunks(SIG_BYTES).zip(&expected).all(|(signed, expected)| signed == expected.as_bytes()));
    }
    // Rows lie in two kinds of memory.
    let mut reached = gpu.alloc_reached(ROWS * SK_BYTES).unwrap().unwrap();
    let mut ordinary = vec![0; ROWS / 2 * SK_BYTES];
    let here = reached.bytes_mut()[..ROWS / 2 * SK_BYTES].as_chunks_mut().0.iter_mut();
    let mut places: Vec<_> = here.chain(ordinary.as_chunks_mut().0).collect();
    zk.keygen(&seeds, &mut places, Places::Usual).unwrap();
    let expected = keygen_to_vec(&mut *zk, &seeds, Places::Usual).unwrap();
    assert!(places.iter().zip(&expected).all(|(place, key)| **place == *key.secret_bytes()));
    // Two halves in the wrong order are two copies.
    let (first, second) = reached.bytes_mut().split_at_mut(ROWS / 2 * SK_BYTES);
    let mut places: Vec<_> = second.as_chunks_mut().0.iter_mut().chain(first.as_chunks_mut().0).collect();
    let (through, done) = staged(&gpu, || zk.keygen(&seeds, &mut places, Places::Usual));
    done.unwrap();
    assert_eq!(through, (ROWS * SEED.len()) as u64);
    assert!(places.iter().zip(&expected).all(|(place, key)| **place == *key.secret_bytes()));
    // A device that is lost before the last step has written nothing.
    reached.bytes_mut().fill(7);
    for left in [0, 1] {
        let mut zk = on_host(&gpu, policy(0));
        gpu.submissions.store(left, Relaxed);
        let mut rows: Vec<_> = reached.bytes_mut().as_chunks_mut().0.iter_mut().collect();
        zk.keygen(&seeds, &mut rows, Places::Usual).unwrap_err();
        gpu.submissions.store(u64::MAX, Relaxed);
        assert!(reached.bytes().iter().all(|byte| *byte == 7), "{left}");
    }
}

/// The device itself reads signatures, and messages of whole words, from memory that it reaches.
#[test]
fn jobs_are_read_where_the_device_reaches() {
    let gpu = Arc::new(HostGpu::new(false));
    let (key, _) = made(&gpu, policy(0));
    gpu.submissions.store(u64::MAX, Relaxed);
    let mut zk = on_host(&gpu, policy(0));
    let public = key.verifying_key();
    for (text, is_whole) in [(32, true), (31, false)] {
        let mut texts = gpu.alloc_reached(ROWS * text).unwrap().unwrap();
        texts.bytes_mut().chunks_mut(text).enumerate().for_each(|(of, text)| text.fill(of as u8));
        let copied = texts.bytes().to_vec();
        fn jobs<'a>(key: &'a SigningKey, texts: &'a [u8], text: usize) -> Vec<ZkSign<'a>> {
            texts.chunks(text).map(|text| ZkSign::new(key, Message::Bytes(text))).collect()
        }
        let (through, expected) =
            staged(&gpu, || sign_to_vec(&mut *zk, &jobs(&key, &copied, text), Places::Usual).unwrap());
        let (less, again) =
            staged(&gpu, || sign_to_vec(&mut *zk, &jobs(&key, texts.bytes(), text), Places::Usual).unwrap());
        assert!(again == expected);
        // The word behind the messages is saved, too.
        let saved = if is_whole { (ROWS * text + 4) as u64 } else { 0 };
        assert_eq!(through - less, saved);

        let mut signatures = gpu.alloc_reached(ROWS * SIG_BYTES).unwrap().unwrap();
        let rows = signatures.bytes_mut().chunks_mut(SIG_BYTES).zip(&expected);
        rows.for_each(|(to, from)| to.copy_from_slice(from.as_bytes()));
        // One signature is not valid.
        signatures.bytes_mut()[3 * SIG_BYTES + 100] ^= 1;
        let ordinary = signatures.bytes().to_vec();
        let verdicts: Vec<bool> = (0..ROWS).map(|row| row != 3).collect();
        for places in [Places::Usual, Places::Other] {
            let mut judge = |signatures: &[&[u8]], texts: &[u8], verdicts: &[bool]| {
                let jobs = signatures.iter().zip(texts.chunks(text));
                let jobs: Vec<_> =
                    jobs.map(|(signature, text)| ZkVerify::new(&public, Message::Bytes(text), signature)).collect();
                let mut out = Vec::new();
                let (through, done) = staged(&gpu, || zk.verify(&jobs, &mut out, places));
                done.unwrap();
                assert_eq!(out, verdicts);
                through
            };
            let there: Vec<&[u8]> = ordinary.chunks(SIG_BYTES).collect();
            let here: Vec<&[u8]> = signatures.bytes().chunks(SIG_BYTES).collect();
            let through = judge(&there, &copied, &verdicts);
            let pad = super::pad(places) as u64;
            let all = (ROWS as u64 + pad) * SIG_BYTES as u64;
            assert_eq!(through - judge(&here, &copied, &verdicts), all);
            let with_texts = if is_whole { (ROWS as u64 + pad) * text as u64 + 4 } else { 0 };
            assert_eq!(through - judge(&here, texts.bytes(), &verdicts), all + with_texts);
            // Rows lie in two kinds of memory, and then one is no signature.
            let mut mixed = here.clone();
            mixed[5] = there[5];
            assert_eq!(judge(&mixed, &copied, &verdicts), through);
            mixed[5] = &there[5][1..];
            let verdicts: Vec<bool> = (0..ROWS).map(|row| row != 3 && row != 5).collect();
            judge(&mixed, texts.bytes(), &verdicts);
        }
    }
}

/// Several threads lay out the same bytes as one thread.
#[test]
fn many_jobs_are_laid_out_by_several_threads() {
    let gpu = Arc::new(HostGpu::new(false));
    let keys = [1, 2].map(|of| hypergrove_zkdilithium::reference::keygen(&[of; 32]));
    let texts: Vec<Vec<u8>> = (0..3 * ZK_JOBS_OF_A_THREAD + 5).map(|of| vec![of as u8; of % 11]).collect();
    let messages: Vec<_> = texts.iter().map(|text| Message::Bytes(text)).collect();
    let of: Vec<u32> = (0..texts.len() as u32).map(|of| of % 2).collect();
    let laid_out = |threads: usize| {
        let mut zk = on_host(&gpu, ZkPolicy { threads, ..policy(0) });
        let (mut layout, mut table) = (pass::PassLayout::default(), DistinctKeys::new());
        for key in &keys {
            table.number(key);
        }
        let at = zk.inputs(&mut layout, (2, SK_BYTES), &messages).unwrap();
        zk.memory.ensure(&layout).unwrap();
        zk.lay_out(&at, (&table, &of), SK_BYTES, |key, to| to.copy_from_slice(key.secret_bytes()), &messages);
        let words = texts.iter().map(|text| text.len().div_ceil(4)).sum::<usize>();
        [(at.raw, 2 * SK_BYTES), (at.jobs, 12 * texts.len()), (at.messages, 4 * words)]
            .map(|(part, bytes)| zk.memory.bytes(part, bytes).to_vec())
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let [raw, jobs, bytes] = pool.install(|| laid_out(3));
    assert!([raw, jobs.clone(), bytes.clone()] == laid_out(1));
    // Each message is where its job says.
    for (text, job) in texts.iter().zip(jobs.as_chunks::<12>().0) {
        let [_, at, length] =
            [0, 4, 8].map(|word| u32::from_le_bytes(job[word..word + 4].try_into().unwrap()) as usize);
        assert!(bytes[4 * at..][..length] == text[..]);
    }
}

/// Memory that verification used is not wiped. If memory could not grow, there is none to wipe.
#[test]
fn memory_that_does_not_grow_is_an_error() {
    let gpu = Arc::new(HostGpu::new(false));
    let (key, signature) = made(&gpu, policy(0));
    let (public, message) = (key.verifying_key(), Message::Bytes(b"message"));
    let job = ZkVerify::new(&public, message, signature.as_bytes());
    let longer = ZkVerify::new(&public, Message::Bytes(&[0; 1 << 17]), signature.as_bytes());
    gpu.submissions.store(u64::MAX, Relaxed);
    for most in [&gpu.most, &gpu.most_locked] {
        let (mut zk, mut verdicts) = (on_host(&gpu, policy(0)), Vec::new());
        zk.verify(&[job], &mut verdicts, Places::Usual).unwrap();
        assert_eq!(verdicts, [true]);
        most.store(0, Relaxed);
        let why = zk.verify(&[longer], &mut verdicts, Places::Usual).unwrap_err();
        assert!(matches!(&why, Error::OutOfMemory { .. }), "{why}");
        most.store(u64::MAX, Relaxed);
        verdicts.clear();
        zk.verify(&[job; 3], &mut verdicts, Places::Usual).unwrap();
        assert_eq!(verdicts, [true; 3]);
    }
}

#[test]
fn policies_are_checked() {
    let with = |name, value| ZkPolicy::default().with(&Policy(vec![(name, value)]));
    assert_eq!(with("fp64", 1).unwrap().fp64, 1);
    assert_eq!(with("tensor", 2).unwrap().tensor, 2);
    for (name, value) in [("fp64", 2), ("tensor", 3), ("block", 0), ("block", 512), ("width", 0), ("blocks", 1)] {
        assert!(with(name, value).is_err(), "{name}");
    }
}
