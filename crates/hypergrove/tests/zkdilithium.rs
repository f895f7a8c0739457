//! zkDilithium's engine through its public interface.

use hypergrove::signature::Signer;
use hypergrove::zkdilithium::{Engine, Message, Op, SignJob, Signature, SigningKey, SigningKeys, VerifyJob};
use hypergrove::{Axis, Backend, Device, Error, ErrorKind, Policy, Reference, Timing};
use hypergrove_engine::{ZkDilithium, ZkDilithiumPrograms, ZkSign, ZkVerify, capabilities, forward};
use hypergrove_zkdilithium::{SigningKeyWords, Trace, reference};
use std::sync::Arc;

const MESSAGE: Message<'static> = Message::Bytes(b"m");

/// A device that signs whatever it is given, as the reference does.
struct Gpu;

impl Backend for Gpu {
    fn name(&self) -> &'static str {
        "gpu"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device { backend: "gpu", ..Reference.devices()?.remove(0) }])
    }
    forward!(self => Reference; self_test, absent, notices, rates, clock, fingerprint, free);
    capabilities!(has zkdilithium; lacks slh_dsa, sha256;);
}

impl ZkDilithiumPrograms for Gpu {
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(Box::new(Gpu))
    }
}

impl ZkDilithium for Gpu {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn poseidon_rate(&self, _: Option<f64>) -> Option<f64> {
        None
    }
    fn uses_expanded_keys(&self) -> bool {
        false
    }
    fn queue(&self, _: Op) -> u32 {
        2
    }
    fn bytes(&self) -> u64 {
        0
    }
    fn jobs(&self, _: Op) -> usize {
        4
    }
    /// The reference has one place.
    fn elsewhere(&mut self, _: bool) {}

    fn keygen(&mut self, _: &[[u8; 32]], _: &mut dyn FnMut(&[SigningKeyWords])) -> Result<Timing, Error> {
        unimplemented!("no test makes keys here")
    }
    fn sign(&mut self, jobs: &[ZkSign<'_>], out: &mut Vec<Signature>) -> Result<Timing, Error> {
        out.extend(jobs.iter().map(|job| reference::sign(&job.key.expand(), job.message, &mut Trace::default())));
        Ok(Timing::default())
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>) -> Result<Timing, Error> {
        let judge = |job: &ZkVerify<'_>| {
            reference::verify(&job.key.expand(), job.message, job.signature, &mut Trace::default())
        };
        out.extend(jobs.iter().map(judge));
        Ok(Timing::default())
    }
}

/// Engines on the calling thread, on a pool, on a GPU, and on both.
fn engines() -> Vec<Engine> {
    let gpu: Arc<dyn Backend> = Arc::new(Gpu);
    let cpu: Arc<dyn Backend> = Arc::new(hypergrove::Cpu::new());
    let builders = [
        Engine::builder().threads(1),
        Engine::builder().threads(2).verify_signatures(true),
        Engine::builder().threads(1).devices(vec![(gpu.clone(), 0)]),
        Engine::builder().threads(2).devices(vec![(gpu, 0), (cpu, 0)]).verify_signatures(true),
    ];
    builders.map(|builder| builder.build().unwrap()).into()
}

fn is_damaged(error: &Error) -> bool {
    error.kind() == ErrorKind::KeyDamaged
}

/// Of 9 jobs, those of the damaged key fail, and no others.
fn fails_alone(engine: &Engine, good: &SigningKey, damaged: &SigningKey, what: &str) {
    let key_of = |i: usize| if i == 1 || i > 5 { damaged } else { good };
    let jobs: Vec<_> = (0..9).map(|i| SignJob::new(key_of(i), MESSAGE)).collect();
    let expected = good.sign_message(MESSAGE).unwrap();
    for (i, signature) in engine.sign_batch(&jobs).unwrap().into_iter().enumerate() {
        match std::ptr::eq(key_of(i), damaged) {
            true => assert!(signature.as_ref().is_err_and(is_damaged), "{what}, {engine:?}: {signature:?}"),
            false => assert!(signature.as_ref() == Ok(&expected), "{what}, {engine:?}"),
        }
    }
    assert!(engine.faults().is_empty(), "no device is to blame");
}

/// Were it signed with, a flipped bit in ρ would put the same masks under another challenge.
#[test]
fn keys_from_bytes_are_checked_before_they_sign() {
    let good = SigningKey::from_seed(&[7; 32]);
    let engines = engines();
    for (what, at) in [("rho", 0), ("tr", 64), ("s1", 100), ("s2", 500), ("t", 1000), ("the last byte of t", 3935)] {
        let mut bytes = good.to_bytes();
        bytes[at] ^= 1;
        let damaged = || SigningKey::from_bytes(&bytes).unwrap();
        assert!(damaged().sign_message(MESSAGE).as_ref().is_err_and(is_damaged), "{what}");
        assert!(damaged().expanded().as_ref().is_err_and(is_damaged), "{what}");
        assert!(damaged().try_sign(b"m").is_err(), "{what}");
        engines.iter().for_each(|engine| fails_alone(engine, &good, &damaged(), what));
        // Not only the first time.
        let known = damaged();
        (0..3).for_each(|_| assert!(known.sign_message(MESSAGE).is_err(), "{what}"));
        engines.iter().for_each(|engine| fails_alone(engine, &good, &known, what));
    }
    // A wrong `key` cannot be told from a right one: it gives other masks, and valid signatures.
    let mut bytes = good.to_bytes();
    bytes[40] ^= 1;
    let other = SigningKey::from_bytes(&bytes).unwrap();
    assert!(good.verifying_key().is_valid(MESSAGE, other.sign_message(MESSAGE).unwrap().as_bytes()));
}

/// Flips a bit of what lies in memory, as a fault of the memory would.
#[cfg(target_os = "linux")]
fn corrupt(address: u64) {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut byte = [0];
    memory.read_exact_at(&mut byte, address).unwrap();
    memory.write_all_at(&[byte[0] ^ 2], address).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_key_that_changes_in_memory_signs_nothing() {
    type Place = fn(&SigningKey) -> u64;
    let raw: [Place; 3] = [
        |key| key.as_ref().rho().as_ptr() as u64,
        |key| key.as_ref().key().as_ptr() as u64,
        |key| key.as_ref().secret_bytes()[3000..].as_ptr() as u64,
    ];
    let expanded: [Place; 6] = [
        |key| &raw const key.expanded().unwrap().a_hat()[2][1].0[77] as u64,
        |key| &raw const key.expanded().unwrap().s1_hat()[0].0[0] as u64,
        |key| &raw const key.expanded().unwrap().s2_hat()[3].0[255] as u64,
        |key| &raw const key.expanded().unwrap().state_after_tr()[34] as u64,
        |key| key.expanded().unwrap().key().as_ptr() as u64,
        |key| key.expanded().unwrap().tr().as_ptr() as u64,
    ];
    let (engines, good) = (engines(), SigningKey::from_seed(&[7; 32]));
    let places = raw.into_iter().zip(std::iter::repeat(true)).chain(expanded.into_iter().zip(std::iter::repeat(false)));
    for (i, (place, is_raw)) in places.enumerate() {
        let key = SigningKey::from_seed(&[8; 32]);
        assert!(key.sign_message(MESSAGE).is_ok());
        corrupt(place(&key));
        let key = std::hint::black_box(&key);
        assert!(key.sign_message(MESSAGE).as_ref().is_err_and(is_damaged), "place {i}");
        assert!(key.clone().try_sign(b"m").is_err());
        // GPUs expand the key's bytes themselves.
        let engines = engines.iter().filter(|engine| is_raw || engine.devices()[0].backend == "cpu");
        engines.for_each(|engine| fails_alone(engine, &good, key, &format!("place {i}")));
    }
}

#[test]
fn a_memory_budget_is_asked_and_cuts_batches() {
    let free = Engine::builder().threads(1).build().unwrap();
    let within = |bytes| Engine::builder().threads(1).memory_budget(bytes).build().unwrap();
    let (key, fixed) = (SigningKey::from_seed(&[7; 32]), free.bytes(Op::Sign, 0));
    let (signature, public) = (key.sign_message(MESSAGE).unwrap(), key.verifying_key());
    let job = SignJob::new(&key, MESSAGE);
    let check = VerifyJob::new(&public, MESSAGE, signature.as_bytes());
    let is_refused = |error: Error| error.kind() == ErrorKind::OutOfMemory;

    // Not even the lanes of a thread.
    let poor = within(fixed / 2);
    let mut keys = SigningKeys::new();
    assert!(poor.sign_batch(&[job]).is_err_and(is_refused));
    assert!(poor.verify_batch(&[check]).is_err_and(is_refused));
    assert!(poor.keygen_batch(&[[1; 32]]).is_err_and(is_refused));
    assert!(poor.keygen_into(&[[1; 32]], &mut keys).is_err_and(is_refused) && keys.is_empty());

    let tight = within(fixed + 100_000);
    for op in [Op::Keygen, Op::Sign] {
        let fit = tight.jobs_to_fill(op).unwrap();
        assert!((10..free.jobs_to_fill(op).unwrap()).contains(&fit), "{op:?}: {fit}");
        assert!(tight.bytes(op, fit) <= fixed + 100_000 && tight.bytes(op, fit + 1) > fixed + 100_000);
    }
    let fit = tight.jobs_to_fill(Op::Sign).unwrap();
    assert_eq!(tight.sign_batch(&vec![job; fit]).unwrap(), vec![Ok(signature.clone()); fit]);
    assert!(tight.sign_batch(&vec![job; fit + 1]).is_err_and(is_refused));
    assert!(tight.keygen_batch(&[[1; 32]; 100]).is_err_and(is_refused));
    assert_eq!(tight.verify_batch(&[check; 3]).unwrap(), [true; 3]);
}
