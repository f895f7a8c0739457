//! Devices that compute wrongly, found by their first known answer: nothing of theirs is handed out.

use crate::common::{Capability, Mock, OnMock, mock};
use hypergrove::backend::*;
use hypergrove::rows::{Column, RowStatus};
use hypergrove::zkdilithium;
use hypergrove::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PURE: Mode<'static> = Mode::Pure { context: b"" };

/// The CPU, with a wrong bit in all that it makes by an op, and in all sums. The number counts results of more than the self-test.
fn wrong(op: Op) -> (Mock, Arc<AtomicUsize>) {
    let (cpu, runs) = (Cpu::new(), Arc::<AtomicUsize>::default());
    let (backend, self_test, count) = (Arc::new(cpu), cpu.self_test(), runs.clone());
    let has = &[Capability::SlhDsa, Capability::Sha256, Capability::ZkDilithium];
    let cpu = Mock { name: "wrong", has, backend, self_test, jobs: 1 << 10, delay: [Duration::ZERO; 4], ..mock(1, 1) }
        .with_space(move |device, plan| cpu.space(device, plan));
    let wrong = cpu.answering(move |call| {
        count.fetch_add(usize::from(call.plan.is_some_and(|plan| plan.params.oid_arc().is_some())), Relaxed);
        if call.op.is_none_or(|of| of == op) {
            call.out[call.out.len() / 2] ^= 4;
        }
        Ok(())
    });
    (wrong, runs)
}

fn key(p: &'static Params) -> SigningKey {
    let seeds = Seeds { sk_seed: vec![1; p.n].into(), sk_prf: vec![2; p.n].into(), pk_seed: vec![3; p.n] };
    Engine::new().unwrap().from_seeds(p, &[seeds]).unwrap().remove(0)
}

/// The error names device, op and family.
fn assert_reported(why: &Error, what: &str) {
    assert_eq!(why.kind(), ErrorKind::Withheld);
    let why = why.to_string();
    assert!(
        why.starts_with("wrong:0 ") && why.contains(&format!("its self-test, {what}, gave a wrong answer")),
        "{why}"
    );
}

#[test]
fn a_device_that_is_alone_computes_nothing_of_the_op() {
    for p in [&SLH_DSA_SHA2_128F, &SLH_DSA_SHAKE_256F] {
        let key = key(p);
        let family = if p.family == Family::Sha2 { "SHA2 with n = 16" } else { "SHAKE with n = 32" };
        let right = Engine::new().unwrap().sign(&key, PURE, b"message", Randomizer::Deterministic).unwrap();
        for op in [Op::Keygen, Op::Sign, Op::Verify] {
            let (wrong, runs) = wrong(op);
            let engine = wrong.builder().check_roots(false).build().unwrap();
            for _ in 0..2 {
                let sign = || engine.sign(&key, PURE, b"message", Randomizer::Deterministic).map(|it| it == right);
                let verify = || engine.verify(&key.verifying_key(), PURE, b"message", right.as_bytes());
                let done = [engine.generate(p).map(|_| true), sign(), verify()];
                for (number, (done, title)) in
                    done.into_iter().zip(["key generation", "signing", "verification"]).enumerate()
                {
                    match number == op as usize {
                        true => assert_reported(&done.unwrap_err(), &format!("{title} by {family}")),
                        false => assert_eq!(done, Ok(true), "{title}"),
                    }
                }
            }
            assert_eq!(runs.load(Relaxed), 4, "two others, twice");
        }
    }
}

/// Batches too: the other device does all of it, and the fault is reported.
#[test]
fn others_go_on() {
    let (key, (wrong, runs)) = (key(&SLH_DSA_SHA2_128F), wrong(Op::Sign));
    let devices: Vec<(Arc<dyn Backend>, u32)> = vec![(Arc::new(wrong), 0), (Arc::new(Cpu::new()), 0)];
    let engine = Engine::builder().devices(devices).threads(2).build().unwrap();
    let alone = Engine::new().unwrap();
    let mut next = 0;
    let job = |i: u8| SignJob::new(&key, vec![i; 9]).deterministic();
    engine
        .sign_batch((0..40).map(job), |index, signature| {
            assert_eq!(index, next);
            let right = alone.sign(&key, PURE, &[index as u8; 9], Randomizer::Deterministic).unwrap();
            assert!(signature.unwrap() == right, "signature {index}");
            next += 1;
        })
        .unwrap();
    assert_eq!((next, runs.load(Relaxed)), (40, 0));
    let faults = engine.faults();
    assert!(!faults.is_empty());
    faults.iter().for_each(|fault| assert_reported(&fault.error, "signing by SHA2 with n = 16"));
    assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["cpu:0"]);
}

#[test]
fn wrong_digests_are_withheld() {
    let engine = wrong(Op::Sign).0.engine();
    let mut digests = [0; 96];
    for _ in 0..2 {
        let (messages, mut statuses) = (Column::packed(&[7; 30], 10), [RowStatus::Hashed; 3]);
        let why = engine.sha256_rows(messages, &mut digests, &mut statuses).unwrap_err();
        assert_eq!(statuses, [RowStatus::NotComputed; 3]);
        assert_reported(&why, "SHA-256 of messages");
    }
    assert_eq!(digests, [0; 96]);
}

#[test]
fn wrong_signatures_of_zkdilithium_are_withheld() {
    let wrong: Arc<dyn Backend> = Arc::new(wrong(Op::Sign).0);
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    let key = zkdilithium::SigningKey::from_seed(&[7; 32]);
    let jobs = || [0; 3].map(|_| zkdilithium::SignJob::new(&key, b"m"));
    let builder = || Engine::builder().threads(2);
    let alone = builder().devices(vec![(wrong.clone(), 0)]).build().unwrap();
    for _ in 0..2 {
        for signature in alone.sign_batch_to_vec(jobs()).unwrap() {
            assert_reported(&signature.unwrap_err(), "signing for zkDilithium");
        }
        assert!(alone.from_seeds(zkdilithium::ZkDilithium, &[[1; 32]]).is_err(), "all of it is one test");
    }
    let both = builder().devices(vec![(wrong, 0), (cpu, 0)]).build().unwrap();
    let right = key.sign_message(zkdilithium::Message::Bytes(b"m"));
    assert_eq!(both.sign_batch_to_vec(jobs()).unwrap(), vec![right; 3]);
    both.faults().iter().for_each(|fault| assert_reported(&fault.error, "signing for zkDilithium"));
    assert_eq!(both.faults().len(), 1);
}

/// Reports how long the tests of a CPU that computes correctly take. It does not judge the time.
#[test]
fn a_right_cpu_passes_and_this_is_what_it_takes() {
    let cpu = hypergrove_engine::SelfTested::of(Arc::new(Cpu::new()));
    let (device, policy) = (cpu.devices().unwrap().remove(0), Policy::default());
    let timed = |what: &str, work: &dyn Fn()| {
        let start = Instant::now();
        work();
        println!("checked: self-test on {}: {what}: {:.2} ms", device.detail, 1e3 * start.elapsed().as_secs_f64());
    };
    let sets = [
        &SLH_DSA_SHA2_128F,
        &SLH_DSA_SHA2_192F,
        &SLH_DSA_SHA2_256F,
        &SLH_DSA_SHAKE_128F,
        &SLH_DSA_SHAKE_192F,
        &SLH_DSA_SHAKE_256F,
    ];
    for p in sets {
        for op in [Op::Keygen, Op::Sign, Op::Verify] {
            timed(&format!("{op:?}, {:?}, n = {}", p.family, p.n), &|| {
                cpu.slh_dsa().unwrap().prepare(&device, &Plan::new(p, op), 1, &policy).unwrap();
            });
        }
    }
    timed("SHA-256", &|| drop(cpu.sha256().unwrap().prepare(&device, &policy).unwrap()));
    timed("zkDilithium", &|| drop(cpu.zkdilithium().unwrap().prepare(&device, &policy).unwrap()));
}
