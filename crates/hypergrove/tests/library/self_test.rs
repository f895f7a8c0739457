//! Devices that compute wrongly, found by their first known answer: nothing of theirs is handed out.

use hypergrove::backend::*;
use hypergrove::rows::{Column, RowStatus};
use hypergrove::zkdilithium;
use hypergrove::*;
use hypergrove_engine::{Batch, Program, ZkDilithium, ZkSign, ZkVerify, capabilities, forward};
use hypergrove_fips205::plan::Slot;
use hypergrove_zkdilithium::{SignatureBytes, SigningKeyBytes, Trace, reference};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const PURE: Mode<'static> = Mode::Pure { context: b"" };

/// The CPU, with a wrong bit in all that it makes by an op. By zkDilithium it is the reference, with wrong signatures.
#[derive(Clone)]
struct Wrong {
    cpu: Cpu,
    op: Op,
    /// Results of more than the self-test.
    runs: Arc<AtomicUsize>,
}

fn wrong(op: Op) -> Wrong {
    Wrong { cpu: Cpu::new(), op, runs: Arc::default() }
}

impl Backend for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device { backend: "wrong", ..self.cpu.devices()?.remove(0) }])
    }
    forward!(self => self.cpu; self_test, absent, notices, rates, clock, fingerprint, free);
    capabilities!(has slh_dsa, sha256, zkdilithium;);
}

impl SlhDsaPrograms for Wrong {
    forward!(self => self.cpu; space, jobs, compile, queue, bytes);

    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let program = SlhDsaPrograms::prepare(&self.cpu, device, plan, batch, policy)?;
        Ok(Box::new(WrongProgram(program, self.clone())))
    }
}

impl Sha256Programs for Wrong {
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(Box::new(WrongHasher(Sha256Programs::prepare(&self.cpu, device, policy)?)))
    }
}

impl ZkDilithiumPrograms for Wrong {
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(Box::new(self.clone()))
    }
}

struct WrongProgram(Box<dyn Program>, Wrong);

impl Program for WrongProgram {
    fn plan(&self) -> &Plan {
        self.0.plan()
    }
    fn run(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        let timing = self.0.run(batch, out)?;
        self.1.runs.fetch_add(usize::from(self.plan().params.oid_arc().is_some()), Relaxed);
        if self.plan().op == self.1.op {
            out[batch.len() * self.plan().out_bytes() / 2] ^= 4;
        }
        Ok(timing)
    }
    forward!(self => self.0; elsewhere, time_limit, only_run);

    fn read(&self, slot: Slot) -> Option<Vec<u8>> {
        self.0.read(slot)
    }
}

struct WrongHasher(Box<dyn Hasher>);

impl Hasher for WrongHasher {
    fn space(&self) -> Vec<Axis> {
        self.0.space()
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let timing = self.0.run(messages, digests)?;
        digests.iter_mut().for_each(|digest| digest[0] ^= 1);
        Ok(timing)
    }
    forward!(self => self.0; longest, resident, link, time_limit);
}

impl ZkDilithium for Wrong {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
        None
    }
    fn uses_expanded_keys(&self) -> bool {
        false
    }
    fn queue(&self, _: zkdilithium::Op) -> u32 {
        2
    }
    fn bytes(&self) -> u64 {
        0
    }
    fn jobs(&self, _: zkdilithium::Op) -> usize {
        4
    }
    /// The reference has one place.
    fn elsewhere(&mut self, _: bool) {}
    forward!(self => self; no_time_limit);

    fn keygen(&mut self, seeds: &[[u8; 32]], keys: &mut [&mut SigningKeyBytes]) -> Result<Timing, Error> {
        for (seed, key) in seeds.iter().zip(keys) {
            key.copy_from_slice(reference::keygen(seed).secret_bytes());
        }
        Ok(Timing::default())
    }
    fn sign(&mut self, jobs: &[ZkSign<'_>], signatures: &mut [&mut SignatureBytes]) -> Result<Timing, Error> {
        for (job, signature) in jobs.iter().zip(signatures) {
            let right = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
            signature.copy_from_slice(right.as_bytes());
            signature[1000] ^= 1;
        }
        Ok(Timing::default())
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
        out.extend(jobs.iter().map(|_| true));
        Ok(Timing::default())
    }
}

fn key(p: &'static Params) -> SigningKey {
    let seeds = Seeds { sk_seed: vec![1; p.n].into(), sk_prf: vec![2; p.n].into(), pk_seed: vec![3; p.n] };
    Engine::new().unwrap().from_seeds(p, &[seeds]).unwrap().remove(0)
}

/// The error names device, op and family.
fn is_told(why: &Error, what: &str) {
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
            let wrong = wrong(op);
            let engine =
                Engine::builder().backend(Arc::new(wrong.clone())).check_roots(false).threads(2).build().unwrap();
            for _ in 0..2 {
                let sign = || engine.sign(&key, PURE, b"message", Randomizer::Deterministic).map(|it| it == right);
                let verify = || engine.verify(&key.verifying_key(), PURE, b"message", right.as_bytes());
                let done = [engine.generate(p).map(|_| true), sign(), verify()];
                for (number, (done, title)) in
                    done.into_iter().zip(["key generation", "signing", "verification"]).enumerate()
                {
                    match number == op as usize {
                        true => is_told(&done.unwrap_err(), &format!("{title} by {family}")),
                        false => assert_eq!(done, Ok(true), "{title}"),
                    }
                }
            }
            assert_eq!(wrong.runs.load(Relaxed), 4, "two others, twice");
        }
    }
}

/// Batches too: the other device does all of it, and the fault is reported.
#[test]
fn others_go_on() {
    let (key, wrong) = (key(&SLH_DSA_SHA2_128F), wrong(Op::Sign));
    let devices: Vec<(Arc<dyn Backend>, u32)> = vec![(Arc::new(wrong.clone()), 0), (Arc::new(Cpu::new()), 0)];
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
    assert_eq!((next, wrong.runs.load(Relaxed)), (40, 0));
    let faults = engine.faults();
    assert!(!faults.is_empty());
    faults.iter().for_each(|fault| is_told(&fault.error, "signing by SHA2 with n = 16"));
    assert_eq!(engine.devices().iter().map(Device::id).collect::<Vec<_>>(), ["cpu:0"]);
}

#[test]
fn wrong_digests_are_withheld() {
    let engine = Engine::builder().backend(Arc::new(wrong(Op::Sign))).build().unwrap();
    let mut digests = [0; 96];
    for _ in 0..2 {
        let (messages, mut statuses) = (Column::packed(&[7; 30], 10), [RowStatus::Hashed; 3]);
        let why = engine.sha256_rows(messages, &mut digests, &mut statuses).unwrap_err();
        assert_eq!(statuses, [RowStatus::NotComputed; 3]);
        is_told(&why, "SHA-256 of messages");
    }
    assert_eq!(digests, [0; 96]);
}

#[test]
fn wrong_signatures_of_zkdilithium_are_withheld() {
    let wrong: Arc<dyn Backend> = Arc::new(wrong(Op::Sign));
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    let key = zkdilithium::SigningKey::from_seed(&[7; 32]);
    let jobs = || [0; 3].map(|_| zkdilithium::SignJob::new(&key, b"m"));
    let builder = || Engine::builder().threads(2);
    let alone = builder().devices(vec![(wrong.clone(), 0)]).build().unwrap();
    for _ in 0..2 {
        for signature in alone.sign_batch_to_vec(jobs()).unwrap() {
            is_told(&signature.unwrap_err(), "signing for zkDilithium");
        }
        assert!(alone.from_seeds(zkdilithium::ZkDilithium, &[[1; 32]]).is_err(), "all of it is one test");
    }
    let both = builder().devices(vec![(wrong, 0), (cpu, 0)]).build().unwrap();
    let right = key.sign_message(zkdilithium::Message::Bytes(b"m"));
    assert_eq!(both.sign_batch_to_vec(jobs()).unwrap(), vec![right; 3]);
    both.faults().iter().for_each(|fault| is_told(&fault.error, "signing for zkDilithium"));
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
