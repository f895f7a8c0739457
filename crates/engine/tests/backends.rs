//! The oracle as a backend against the oracle itself, and the check of one backend by another.

use hypergrove_engine::nodes::CachedNodes;
use hypergrove_engine::programs::{Group, Programs, typed};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{
    Abilities, Axis, Backend, Batch, Checked, Choice, Device, Error, Hasher, Key, Knowledge, Messages, Places, Policy,
    PolicySource, Program, Reference, SelfTest, Sha256Programs, SlhDsaProgram, SlhDsaPrograms, Timing, ZkDilithium,
    ZkDilithiumPrograms, ZkSign, ZkVerify, capabilities,
};
use hypergrove_fips205::plan::{Op, Plan, Rates, Slot, cache_bytes};
use hypergrove_fips205::reference::{implied_by, pk_root, sign_at, xmss_node};
use hypergrove_fips205::{Adrs, AdrsType, Params, Position};
use hypergrove_testkit::mock::{Mock, mock};
use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHAKE_24, TOYS};
use hypergrove_zkdilithium::{
    Message, Op as ZkOp, Signature, SignatureBytes, SigningKey, SigningKeyBytes, Trace, reference,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn toys() -> impl Iterator<Item = &'static Params> {
    TOYS.iter().copied()
}

const SK_SEED: [u8; 32] = [0x5a; 32];
const PK_SEED: [u8; 32] = [0xc3; 32];

fn position(p: &Params, of: u8) -> Position {
    let digest: Vec<u8> = (0..p.m).map(|i| of.wrapping_mul(91).wrapping_add(i as u8 * 57)).collect();
    Position::split(p, &digest)
}

fn run(backend: &dyn Backend, plan: &Plan, batch: &Batch<'_>) -> Result<(Vec<u8>, Box<dyn Program>), Error> {
    let device = &backend.devices()?[0];
    let mut program = backend.slh_dsa_on(device)?.prepare(device, plan, batch.len(), &Policy::default())?;
    let mut out = vec![0; batch.len() * plan.out_bytes()];
    program.run_batch(batch, &mut out).map(|_| (out, program))
}

fn key(p: &Params) -> Key<'static> {
    Key::of_seeds(&PK_SEED[..p.n], &SK_SEED[..p.n])
}

fn signing<'a>(keys: &'a [Key<'a>], positions: &'a [Position]) -> Batch<'a> {
    static FIRST: [u32; 8] = [0; 8];
    Batch { keys, key_of: &FIRST[..positions.len()], positions, signatures: &[] }
}

#[test]
fn the_reference_program_is_the_reference() {
    for p in toys() {
        let (keys, positions) = ([key(p)], [1, 2, 3].map(|i| position(p, i)));
        let alone = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
        let (root, _) = run(&Reference, &Plan::new(p, Op::Keygen), &alone).unwrap();
        assert_eq!(root, pk_root(p, &SK_SEED[..p.n], &PK_SEED[..p.n]));

        let (signatures, mut signer) = run(&Reference, &Plan::new(p, Op::Sign), &signing(&keys, &positions)).unwrap();
        let signatures: Vec<&[u8]> = signatures.chunks(p.sig_bytes()).collect();
        for (signature, position) in signatures.iter().zip(&positions) {
            assert_eq!(signature[p.n..], sign_at(p, position, &SK_SEED[..p.n], &PK_SEED[..p.n]));
        }

        let keys = [Key { sk_seed: &[], ..key(p) }];
        let batch = Batch { keys: &keys, key_of: &[0, 0, 0], positions: &positions, signatures: &signatures };
        let (roots, mut verifier) = run(&Reference, &Plan::new(p, Op::Verify), &batch).unwrap();
        assert_eq!(roots, root.repeat(3));
        for slot in [Slot::ForsRoots, Slot::ForsPk, Slot::XmssRoots] {
            assert_eq!(signer.read(slot).unwrap(), verifier.read(slot).unwrap());
        }
        let fors = implied_by(p, &positions[1], signatures[1], &PK_SEED[..p.n]).fors_pk;
        assert_eq!(signer.read(Slot::ForsPk).unwrap().unwrap()[p.n..2 * p.n], fors);
    }
}

#[test]
fn cached_nodes_are_where_they_belong_and_are_used() {
    for p in toys() {
        let (keys, positions) = ([key(p)], [4, 5].map(|i| position(p, i)));
        let (whole, _) = run(&Reference, &Plan::new(p, Op::Sign), &signing(&keys, &positions)).unwrap();
        for layers in 1..=p.d {
            let alone = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
            let (mut bytes, _) = run(&Reference, &Plan::cache(p, layers), &alone).unwrap();
            assert_eq!(Some(bytes.len()), cache_bytes(p, layers));
            let nodes = CachedNodes::new(p, layers, &bytes).unwrap();
            assert_eq!(nodes.root(p.d - 1, 0), pk_root(p, &SK_SEED[..p.n], &PK_SEED[..p.n]));
            for layer in nodes.layers() {
                let (tree, leaf) = positions[0].at_layer(p, layer);
                let adrs = Adrs::new(layer as u32, tree, AdrsType::WotsHash);
                for (z, node) in nodes.auth(layer, tree, leaf).enumerate() {
                    let index = (leaf >> z) ^ 1;
                    let grown = xmss_node(p, &SK_SEED[..p.n], index, z as u32, &PK_SEED[..p.n], adrs);
                    assert_eq!(node, grown, "{p}, layer {layer}, height {z}");
                }
            }
            let plan = Plan::new(p, Op::Sign).with_cached_layers(layers);
            let cached = [Key { cached_nodes: &bytes, ..key(p) }];
            let (signatures, mut program) = run(&Reference, &plan, &signing(&cached, &positions)).unwrap();
            assert_eq!(signatures, whole, "{p}, {layers} layers");
            assert_eq!(program.read(Slot::XmssRoots).unwrap().unwrap().len(), 2 * (p.d - layers) * p.n);

            bytes.fill(0);
            let wrong = [Key { cached_nodes: &bytes, ..key(p) }];
            assert_ne!(run(&Reference, &plan, &signing(&wrong, &positions)).unwrap().0, whole);
        }
    }
}

#[test]
fn bad_batches_are_refused() {
    let p = &TOY_SHA2_16;
    let (plan, positions) = (Plan::new(p, Op::Sign), [position(p, 1)]);
    let short = [Key { sk_seed: &SK_SEED[..15], ..key(p) }];
    let refused = run(&Reference, &plan, &signing(&short, &positions)).map(drop);
    assert_eq!(refused, Err(Error::Length { what: "SK.seed", want: 16, got: 15 }));
    let keys = [key(p)];
    let unknown = Batch { keys: &keys, key_of: &[1], positions: &positions, signatures: &[] };
    assert!(matches!(run(&Reference, &plan, &unknown).map(drop), Err(Error::Value { .. })));
}

/// The reference with a fault: every value that it puts out or keeps passes through a function.
fn faulty(fault: fn(Option<Slot>, &mut [u8])) -> Mock {
    let kept = Arc::new(move |slot, value: &mut [u8]| fault(Some(slot), value));
    Mock { kept, ..mock(1, 1) }.answering(move |call| {
        fault(None, call.out);
        Ok(())
    })
}

#[test]
fn checked_passes_what_agrees_and_withholds_what_differs() {
    let p = &TOY_SHAKE_24;
    let (plan, keys, positions) = (Plan::new(p, Op::Sign), [key(p)], [6, 7, 8].map(|i| position(p, i)));
    let batch = signing(&keys, &positions);
    let check = |fault| {
        let checked = Checked { subject: Arc::new(faulty(fault)), reference: Arc::new(Reference) };
        let device = &checked.devices().unwrap()[0];
        let mut program = checked.slh_dsa().unwrap().prepare(device, &plan, 3, &Policy::default()).unwrap();
        let mut out = vec![0; 3 * plan.out_bytes()];
        (program.run_batch(&batch, &mut out).map(drop), out)
    };
    let (outcome, out) = check(|_, _| {});
    assert_eq!((outcome, out), (Ok(()), run(&Reference, &plan, &batch).unwrap().0));

    for (fault, said) in [
        (
            (|_, out| *out.last_mut().unwrap() ^= 1) as fn(Option<Slot>, &mut [u8]),
            "ForsRoots of job 2 differs at byte 95",
        ),
        (|slot, out| out[25] ^= u8::from(slot == Some(Slot::ForsPk)), "ForsPk of job 1 differs at byte 1"),
        (|slot, out| out[0] ^= u8::from(slot == Some(Slot::XmssRoots)), "XmssRoots of job 0 differs at byte 0"),
        (|slot, out| out[30] ^= u8::from(slot.is_none()), "the output of Sign of job 0 differs at byte 30"),
    ] {
        let (outcome, out) = check(fault);
        assert_eq!(outcome, Err(Error::Inconsistent { device: "reference".into(), what: said.into() }));
        assert!(out.iter().all(|byte| *byte == 0), "a faulty signature was left behind");
    }
}

/// A backend whose every answer is its own. The number is a bit that it gets wrong.
struct Telling(u8);

/// Calls of [`SlhDsaPrograms::compile`], which answers nothing.
static COMPILED: AtomicUsize = AtomicUsize::new(0);
/// Limits that hashers and programs of zkDilithium were given.
static LIMITED: AtomicUsize = AtomicUsize::new(0);

impl Backend for Telling {
    fn name(&self) -> &'static str {
        "telling"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device { name: "teller".into(), ..Reference.devices()?.remove(0) }])
    }
    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    fn absent(&self) -> Option<String> {
        Some("absent on purpose".into())
    }
    fn notices(&self) -> Vec<String> {
        vec![format!("notice {}", self.0)]
    }
    fn rates(&self, _: &Device) -> Option<Rates> {
        Some(Rates { sha256: 79.0, sha512: 80.0, keccak: 81.0, integers: 0.0 })
    }
    fn clock(&self, _: &Device) -> Option<f64> {
        Some(82.0)
    }
    fn fingerprint(&self, _: &Device) -> String {
        "a fingerprint".into()
    }
    fn free(&self, _: &Device) -> Option<u64> {
        Some(83)
    }
    capabilities!(has slh_dsa, sha256, zkdilithium;);
}

impl SlhDsaPrograms for Telling {
    fn space(&self, _: &Device, _: &Plan) -> Result<Vec<Axis>, Error> {
        Ok(vec![Axis::new("given", &[7])])
    }
    fn jobs(&self, _: &Device, _: &Plan, _: &Policy) -> usize {
        77
    }
    fn compile(&self, _: &Device, _: &Plan, _: usize, _: &Policy) {
        COMPILED.fetch_add(1, Ordering::Relaxed);
    }
    fn queue(&self, _: &Device, _: &Plan) -> u32 {
        78
    }
    fn abilities(&self, _: &Device, _: &Plan) -> Abilities {
        Abilities { holds: true, compares: 1 }
    }
    fn bytes(&self, _: &Device, _: &Plan, _: usize, _: &Policy) -> u64 {
        84
    }
    fn prepare(&self, _: &Device, _: &Plan, _: usize, _: &Policy) -> Result<Box<dyn Program>, Error> {
        Err(Error::Value { what: "refuses on purpose".into() })
    }
}

impl Sha256Programs for Telling {
    fn longest(&self, _: &Device, _: &Policy) -> Result<usize, Error> {
        Ok(90)
    }
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(Box::new(Telling(self.0)))
    }
}

impl ZkDilithiumPrograms for Telling {
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        Ok(Box::new(Telling(self.0)))
    }
}

impl Hasher for Telling {
    fn space(&self) -> Vec<Axis> {
        vec![Axis::new("hashed", &[8])]
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let device = &Reference.devices()?[0];
        let timing = Sha256Programs::prepare(&Reference, device, &Policy::default())?.run(messages, digests)?;
        digests[0][0] ^= self.0;
        Ok(timing)
    }
    fn resident(
        &mut self,
        messages: Messages<'_>,
        _: usize,
        _: usize,
        digests: &mut [[u8; 32]],
    ) -> Result<Option<Vec<Duration>>, Error> {
        Hasher::run(self, messages, digests)?;
        Ok(Some(vec![Duration::from_secs(91)]))
    }
    fn link(&mut self) -> Result<Option<f64>, Error> {
        Ok(Some(92.0))
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        LIMITED.fetch_add(usize::from(limit.is_some()), Ordering::Relaxed);
    }
}

impl ZkDilithium for Telling {
    fn space(&self) -> Vec<Axis> {
        vec![Axis::new("signed", &[9])]
    }
    fn poseidon_rate(&self, clock: Option<f64>) -> Option<f64> {
        clock.map(|clock| 2.0 * clock)
    }
    fn uses_expanded_keys(&self) -> bool {
        self.0 == 0
    }
    fn jobs(&self, op: ZkOp) -> usize {
        94 + usize::from(op == ZkOp::Verify)
    }
    fn queue(&self, op: ZkOp) -> u32 {
        96 + u32::from(op == ZkOp::Verify)
    }
    fn bytes(&self) -> u64 {
        98
    }
    fn time_limit(&mut self, limit: Option<Duration>) {
        LIMITED.fetch_add(usize::from(limit.is_some()), Ordering::Relaxed);
    }
    fn keygen(
        &mut self,
        seeds: &[[u8; 32]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        assert_eq!(places, Places::Other, "the places reach the program");
        for (i, (seed, key)) in seeds.iter().zip(keys).enumerate() {
            key.copy_from_slice(reference::keygen(seed).secret_bytes());
            key[0] ^= if i == 1 { self.0 } else { 0 };
        }
        Ok(Timing::default())
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        assert_eq!(places, Places::Other, "the places reach the program");
        for (i, (job, signature)) in jobs.iter().zip(signatures).enumerate() {
            let made = reference::sign(&job.key.expand(), job.message, &mut Trace::default());
            signature.copy_from_slice(made.as_bytes());
            signature[0] ^= if i == 1 { self.0 } else { 0 };
        }
        Ok(Timing::default())
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error> {
        assert_eq!(places, Places::Other, "the places reach the program");
        out.extend((0..jobs.len()).map(|i| i == 1 && self.0 != 0));
        Ok(Timing::default())
    }
}

/// All answers are the subject's.
#[test]
fn checked_answers_what_its_subject_answers() {
    let checked = Checked { subject: Arc::new(Telling(0)), reference: Arc::new(Telling(0)) };
    let (plan, policy) = (Plan::new(&TOY_SHA2_16, Op::Sign), Policy::default());
    let (device, programs) = (&checked.devices().unwrap()[0], checked.slh_dsa().unwrap());
    assert_eq!((checked.name(), &*device.name), ("telling", "teller"));
    assert_eq!(programs.space(device, &plan), Ok(vec![Axis::new("given", &[7])]));
    assert_eq!(checked.self_test(), SelfTest::Off);
    assert_eq!(checked.absent().as_deref(), Some("absent on purpose"));
    assert_eq!(checked.notices(), ["notice 0", "notice 0"], "of both");
    assert_eq!(programs.jobs(device, &plan, &policy), 77);
    programs.compile(device, &plan, 1, &policy);
    assert_eq!(COMPILED.load(Ordering::Relaxed), 1, "the reference need not be ready");
    assert_eq!(programs.queue(device, &plan), 78);
    assert_eq!(checked.rates(device), Some(Rates { sha256: 79.0, sha512: 80.0, keccak: 81.0, integers: 0.0 }));
    assert_eq!(checked.clock(device), Some(82.0));
    assert_eq!(checked.fingerprint(device), "a fingerprint");
    assert_eq!(checked.free(device), Some(83));
    assert_eq!(programs.abilities(device, &plan), Abilities::NONE, "results are compared where both have written them");
    assert_eq!(programs.bytes(device, &plan, 2, &policy), 2 * 84 + 2 * plan.out_bytes() as u64);
    assert!(
        programs.prepare(device, &plan, 1, &policy).is_err_and(|why| why.to_string().contains("refuses on purpose"))
    );
    let hashers = checked.sha256().unwrap();
    assert_eq!(hashers.longest(device, &policy), Ok(90));
    let mut hasher = hashers.prepare(device, &policy).unwrap();
    assert_eq!((hasher.space(), hasher.link()), (vec![Axis::new("hashed", &[8])], Ok(Some(92.0))));
    let mut zk = checked.zkdilithium().unwrap().prepare(device, &policy).unwrap();
    for limit in [None, Some(Duration::from_secs(1))] {
        hasher.time_limit(limit);
        zk.time_limit(limit);
    }
    assert_eq!(LIMITED.load(Ordering::Relaxed), 2, "one limit each, for the subject");
    assert_eq!((zk.space(), zk.poseidon_rate(Some(4.0))), (vec![Axis::new("signed", &[9])], Some(8.0)));
    assert_eq!((zk.queue(ZkOp::Sign), zk.queue(ZkOp::Verify), zk.bytes()), (96, 97, 2 * 98));
    assert!(zk.uses_expanded_keys());
    assert_eq!((zk.jobs(ZkOp::Sign), zk.jobs(ZkOp::Verify)), (94, 95));
    let unchecked = Checked { subject: Arc::new(Telling(0)), reference: Arc::new(Reference) };
    let why = unchecked.zkdilithium().unwrap().prepare(device, &policy).err().unwrap().to_string();
    assert_eq!(why, "reference:0 cannot execute zkDilithium", "nothing is given out unchecked");
}

#[test]
fn checked_compares_hashes_keys_signatures_and_verdicts() {
    let policy = Policy::default();
    for wrong in [0, 1] {
        let checked = Checked { subject: Arc::new(Telling(wrong)), reference: Arc::new(Telling(0)) };
        let device = &checked.devices().unwrap()[0];
        let says = |done: Result<(), Error>, what: &str| {
            let expected = Err(Error::Inconsistent { device: "teller".into(), what: what.into() });
            assert_eq!(done, if wrong == 0 { Ok(()) } else { expected });
        };
        let (messages, mut digests) = (Messages::equal(b"abcd", 2).unwrap(), [[0; 32]; 2]);
        let mut hasher = checked.sha256().unwrap().prepare(device, &policy).unwrap();
        says(hasher.run(messages, &mut digests).map(drop), "SHA-256 of message 0 differs");
        let resident = hasher.resident(messages, 1, 1, &mut digests);
        says(
            resident.map(|times| assert_eq!(times, Some(vec![Duration::from_secs(91)]))),
            "SHA-256 of message 0 differs",
        );

        let mut zk = checked.zkdilithium().unwrap().prepare(device, &policy).unwrap();
        let (mut signatures, mut verdicts) = ([(); 2].map(|()| Signature::zeros()), Vec::new());
        let mut keys = [(); 3].map(|()| SigningKey::zeros());
        let seeds = [[1; 32], [2; 32], [3; 32]];
        says(
            zk.keygen(&seeds, &mut keys.each_mut().map(SigningKey::secret_bytes_mut), Places::Other).map(drop),
            "the key of seed 1 differs",
        );
        let job = ZkSign::new(&keys[0], Message::Bytes(b"message"));
        says(
            zk.sign(&[job; 2], &mut signatures.each_mut().map(Signature::bytes_mut), Places::Other).map(drop),
            "the signature of job 1 differs",
        );
        let is_wiped = |signature: &Signature| signature.as_bytes().iter().all(|byte| *byte == 0);
        assert!(signatures.iter().all(|signature| is_wiped(signature) == (wrong != 0)));
        let public = keys[0].verifying_key();
        let job = ZkVerify::new(&public, job.message, &[]);
        says(zk.verify(&[job; 2], &mut verdicts, Places::Other).map(drop), "the verdict of job 1 differs");
        assert_eq!(verdicts.len(), if wrong == 0 { 2 } else { 0 });
    }
}

/// Says of every plan that a job takes a nanosecond.
struct Hopeful;

impl Knowledge for Hopeful {
    fn choose(&self, _: &dyn Backend, _: &Device, _: &Plan, _: usize) -> Option<Choice> {
        let (policy, source) = (Policy::default(), PolicySource::Table);
        Some(Choice { policy, source, seconds: Some((1e-9, 0.0)), why: "a row".into() })
    }

    fn interpolate(&self, _: &[(usize, f64)], _: usize) -> Option<f64> {
        None
    }
}

#[test]
fn what_other_programs_take_of_a_device_is_not_blamed_on_a_policy() {
    let p = &TOY_SHA2_16;
    let device = Reference.devices().unwrap().remove(0);
    let programs = Programs::new(Arc::new(Reference), device, 0, Arc::new(Hopeful), Policy::default());
    let facts = |op| programs.facts(Group { kind: Kind::slh_dsa(p, op, 0), threads: 1 }).unwrap();
    let (keygen, sign) = (facts(Op::Keygen), facts(Op::Sign));
    let keys = [key(p)];
    let batch = Batch { keys: &keys, key_of: &[0], positions: &[], signatures: &[] };
    let run = |meanwhile: &dyn Fn()| {
        let mut lent = programs.lend(&keygen, 1, (u64::MAX, u64::MAX)).unwrap();
        meanwhile();
        let SlhDsaProgram(program) = typed(&mut *lent.program);
        program.run_batch(&batch, &mut vec![0; p.n]).unwrap();
        lent.give_back(Places::Usual, &Timing::default());
        let Choice { source, why, .. } = programs.choice(&keygen, 1);
        (source, why)
    };
    let signing =
        || programs.lend(&sign, 1, (u64::MAX, u64::MAX)).unwrap().give_back(Places::Usual, &Timing::default());
    for runs in 1..=5 {
        let why = format!("a row; runs that overlapped with other programs, not judged: {runs}");
        assert_eq!(run(&signing), (PolicySource::Table, why));
    }
    // One of its own group is how transfers hide; three runs show that the row is wrong.
    run(&|| drop(run(&|| ())));
    let (source, why) = run(&|| ());
    assert_eq!(source, PolicySource::Adjusted);
    assert!(why.starts_with("a row; measured ") && why.ends_with(" predicted 0.00 µs"), "{why}");
}
