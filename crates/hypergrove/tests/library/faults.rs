//! One bit flipped between two stages of signing, on every kind of device: what each check catches, and what leaves. And
//! places of a device that are always wrong.
//!
//! `HYPERGROVE_FLIPS` says how many flips that change a signature each device with `redundant` must catch, and how many flips
//! each of the other checks is tried with; otherwise [`FLIPS`]. With fewer flips than these, lanes of one instruction
//! set alone are tried: under ThreadSanitizer a signature takes a tenth of a second.

use hypergrove::backend::*;
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::zkdilithium;
use hypergrove::*;
use hypergrove_cpu::{Cpu, Lattice};
use hypergrove_engine::{Program, SelfTested, ZkDilithium, forward};
use hypergrove_gpu::{Gpus, Wrapper};
use hypergrove_testkit::faults::{Faults, FaultyHash, FaultyLattice, Site, WithFaults, random};
use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHA2_24, TOY_SHA2_32, TOY_SHAKE_24};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Flips of a quick run.
const FLIPS: usize = 40;

fn flips() -> usize {
    std::env::var("HYPERGROVE_FLIPS").map_or(FLIPS, |flips| flips.parse().expect("HYPERGROVE_FLIPS is a number"))
}

/// Those whose lanes are tried.
fn isas() -> Vec<Isa> {
    if flips() < FLIPS { vec![Isa::fastest()] } else { Isa::available() }
}

const TOYS: [&Params; 4] = [&TOY_SHA2_16, &TOY_SHAKE_24, &TOY_SHA2_24, &TOY_SHA2_32];

/// The CPU with faults in its hashes and in zkDilithium's arithmetic.
struct FaultyCpu(Cpu, Arc<Faults>);

impl Backend for FaultyCpu {
    forward!(self => self.0; name, devices, self_test, absent, notices, rates, clock, fingerprint, free);
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        Some(self)
    }
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms> {
        Some(self)
    }
}

impl ZkDilithiumPrograms for FaultyCpu {
    fn prepare(&self, _: &Device, policy: &Policy) -> Result<Box<dyn ZkDilithium>, Error> {
        let faults = self.1.clone();
        let over = move |lattice| Box::new(FaultyLattice { lattice, faults: faults.clone() }) as Box<dyn Lattice>;
        self.0.zkdilithium_over(Arc::new(over), policy)
    }
}

impl SlhDsaPrograms for FaultyCpu {
    forward!(self => self.0; space, jobs, compile, queue, abilities, bytes);

    fn prepare(&self, _: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let hash = hypergrove_lanes::tweakable_hash(self.0.isa(), plan.params.family, plan.params.n).expect("detected");
        Cpu::program(Arc::new(FaultyHash { hash, faults: self.1.clone() }), plan, batch, policy)
    }
}

/// A GPU's backend whose programs compare no layer's root with the one that the signature leads to.
struct Unchecked(Arc<dyn Backend>);

impl Backend for Unchecked {
    forward!(self => self.0; name, devices, self_test, absent, notices, rates, clock, fingerprint, free);
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        Some(self)
    }
}

impl SlhDsaPrograms for Unchecked {
    forward!(self => self.0.slh_dsa().expect("a GPU has SLH-DSA"); space, jobs, compile, queue, abilities, bytes);

    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        self.0.slh_dsa_on(device)?.prepare(device, plan, batch, &policy.with("check", 0))
    }
}

/// A kind of device, with faults.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    backend: Arc<dyn Backend>,
    faults: Arc<Faults>,
}

fn cpu(isa: Isa) -> Kind {
    let faults = Arc::<Faults>::default();
    let cpu = Cpu::with(isa).expect("detected");
    Kind { name: isa.name(), backend: Arc::new(FaultyCpu(cpu, faults.clone())), faults }
}

/// Kernels on the host.
fn double() -> Kind {
    double_with(&[])
}

/// A double of a GPU whose policy has other defaults.
fn double_with(defaults: &'static [(&'static str, u32)]) -> Kind {
    let faults = Arc::<Faults>::default();
    let mut gpu = crate::host::HostGpu::new(false);
    gpu.facts.defaults = defaults;
    let gpu = WithFaults(faults.clone()).wrap(Arc::new(gpu));
    // All engines on this device share the results of its self-test, which signs with whole sets.
    let backend = SelfTested::of(Arc::new(Gpus::new("host", Ok(vec![Arc::new(gpu)]), None)));
    Kind { name: "kernels on the host", backend, faults }
}

fn present(name: &'static str, backend: impl Backend + 'static, faults: Arc<Faults>) -> Option<Kind> {
    match backend.absent() {
        None => Some(Kind { name, backend: Arc::new(backend), faults }),
        Some(why) => {
            println!("skipped: {name}: {why}");
            None
        }
    }
}

#[cfg(feature = "vulkan")]
fn vulkan() -> Option<Kind> {
    let (faults, cache) = (Arc::<Faults>::default(), std::env::temp_dir().join("hypergrove-test-kernels"));
    let calls = hypergrove_vulkan::Calls::Trusted;
    let backend = hypergrove_vulkan::backend_with(Some(&cache), calls, &WithFaults(faults.clone()));
    present("vulkan", backend, faults)
}

#[cfg(feature = "cuda")]
fn cuda() -> Option<Kind> {
    let (faults, cache) = (Arc::<Faults>::default(), std::env::temp_dir().join("hypergrove-test-kernels"));
    present("cuda", hypergrove_cuda::backend_with(Some(&cache), &WithFaults(faults.clone())), faults)
}

/// A check of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Nothing,
    /// Checks that cannot be switched off, or need not be switched on.
    AlwaysOn,
    Verify,
    Redundant,
}

/// The signatures of a case's messages.
type Signed = Result<Vec<Vec<u8>>, Error>;
type Sign = Box<dyn Fn(usize) -> Signed>;
type IsValid = Box<dyn Fn(usize, usize, &[u8]) -> bool>;

/// Something that signs: the messages of a case under its key.
struct Subject {
    sign: Sign,
    /// Whether a signature of a case's message verifies.
    is_valid: IsValid,
    /// The right signatures of each case.
    right: Vec<Vec<Vec<u8>>>,
}

const PURE: Mode<'static> = Mode::Pure { context: b"" };

fn bytes(count: usize, state: &mut u64) -> Vec<u8> {
    (0..count).map(|_| random(state) as u8).collect()
}

/// A key and messages.
type Case = (SigningKey, Vec<Vec<u8>>);

/// SLH-DSA: one message and three, under keys of each set. Neighbours have other keys: what a run leaves in memory shall not be
/// what the next one writes.
fn slh_dsa(kind: &Kind, check: Check) -> Subject {
    let backend: Arc<dyn Backend> = match kind.backend.name() {
        "cpu" => kind.backend.clone(),
        _ if check != Check::Nothing => kind.backend.clone(),
        _ => Arc::new(Unchecked(kind.backend.clone())),
    };
    let engine = Engine::builder()
        .backend(backend)
        .threads(1)
        .check_roots(check != Check::Nothing)
        .verify_signatures(check == Check::Verify)
        .redundant(check == Check::Redundant)
        .build()
        .unwrap();
    let sound = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
    let mut state = 1;
    let cases: Vec<Case> = (0..32)
        .map(|case| {
            let (p, n) = (TOYS[case % 4], TOYS[case % 4].n);
            let [sk_seed, sk_prf, pk_seed] = [(); 3].map(|()| bytes(n, &mut state));
            let seeds = Seeds { sk_seed: sk_seed.into(), sk_prf: sk_prf.into(), pk_seed };
            let messages = (0..if case % 3 == 2 { 3 } else { 1 }).map(|_| bytes(20, &mut state)).collect();
            (sound.from_seeds(p, &[seeds]).unwrap().remove(0), messages)
        })
        .collect();
    let cases = Arc::new(cases);
    let sign = move |engine: &Engine, (key, messages): &Case| {
        if let [message] = &messages[..] {
            let signature = engine.sign(key, PURE, message, Randomizer::Deterministic)?;
            return Ok(vec![signature.as_bytes().to_vec()]);
        }
        let jobs = messages.iter().map(|message| SignJob::new(key, message).deterministic());
        let mut all = Vec::new();
        engine.sign_batch(jobs, |_, signature| all.push(signature.map(|signature| signature.as_bytes().to_vec())))?;
        all.into_iter().collect()
    };
    let right = cases.iter().map(|case| sign(&sound, case).unwrap()).collect();
    let of = cases.clone();
    Subject {
        sign: Box::new(move |case| sign(&engine, &cases[case])),
        is_valid: Box::new(move |case, message, signature| {
            let (key, messages) = &of[case];
            sound.verify(&key.verifying_key(), PURE, &messages[message], signature).unwrap()
        }),
        right,
    }
    .warmed()
}

/// Rows of SLH-DSA in each kind of memory, so many that a GPU holds their signatures back: these sets in turn, two keys each.
fn slh_dsa_rows(kind: &Kind, check: Check, sets: &'static [&'static Params]) -> Subject {
    let builder = Engine::builder().backend(kind.backend.clone()).threads(1);
    let engine = builder.redundant(check == Check::Redundant).build().unwrap();
    let sound = Engine::builder().backend(Arc::new(Cpu::new())).threads(1).build().unwrap();
    let (mut state, rows) = (1, 18);
    let of: Arc<Vec<u32>> = Arc::new((0..rows as u32).map(|row| row * row % 3 % 2).collect());
    let cases = sets.iter().map(|p| {
        let seeds = [(); 2].map(|()| {
            let [sk_seed, sk_prf, pk_seed] = [(); 3].map(|()| bytes(p.n, &mut state));
            Seeds { sk_seed: sk_seed.into(), sk_prf: sk_prf.into(), pk_seed }
        });
        (sound.from_seeds(*p, &seeds).unwrap(), bytes(rows * 20, &mut state))
    });
    let cases: Vec<_> = cases.collect();
    let sign = move |engine: &Engine, (keys, messages): &(Vec<SigningKey>, Vec<u8>), of: &[u32], to: &mut [u8]| {
        let (keys, randomizer) = (RowSigningKeys::Table { keys, of }, Randomizer::Deterministic);
        let columns = SignRows { keys, mode: PURE, messages: Column::packed(messages, 20), randomizer };
        engine.sign_rows(&columns, to, &mut vec![RowStatus::default(); rows])
    };
    let set = |case: usize| sets[case % sets.len()];
    let each = move |case: usize, all: &[u8]| all.chunks(set(case).sig_bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let right = cases.iter().enumerate().map(|(case, columns)| {
        let mut all = vec![0; rows * set(case).sig_bytes()];
        sign(&sound, columns, &of, &mut all).unwrap();
        each(case, &all)
    });
    // Each once in memory that the device reaches, and once in other memory.
    let right: Vec<_> = right.collect();
    let (right, cases) = ([right.clone(), right].concat(), Arc::new(cases));
    let (columns, key_of) = (cases.clone(), of.clone());
    Subject {
        sign: Box::new(move |case| {
            let (p, case_of_set) = (set(case), &cases[case % sets.len()]);
            let (mut reached, mut ordinary) = (engine.memory(rows * p.sig_bytes())?, vec![0; rows * p.sig_bytes()]);
            let to = if case < sets.len() { &mut reached[..] } else { &mut ordinary };
            let done = sign(&engine, case_of_set, &of, to);
            if done.is_err() {
                assert!(to.iter().all(|byte| *byte == 0), "nothing of it leaves");
                // The failed program is gone. The first batch of a new one is not held back.
                sign(&engine, case_of_set, &of, to).expect("there are no faults now");
            }
            done.map(|()| each(case, to))
        }),
        is_valid: Box::new(move |case, row, signature| {
            let (keys, messages) = &columns[case % sets.len()];
            let key = keys[key_of[row] as usize].verifying_key();
            sound.verify(&key, PURE, &messages[row * 20..][..20], signature).unwrap()
        }),
        right,
    }
    .warmed()
}

/// zkDilithium on the CPU's lanes, or on a GPU.
fn zk_dilithium(kind: &Kind, check: Check) -> Subject {
    let builder = Engine::builder().threads(1).verify_signatures(check == Check::Verify);
    let builder = builder.redundant(check == Check::Redundant).devices(vec![(kind.backend.clone(), 0)]);
    let engine = builder.build().unwrap();
    let keys: Vec<_> = (1..7).map(|key| zkdilithium::SigningKey::from_seed(&[key; 32])).collect();
    let keys = Arc::new(keys);
    let messages = |case: usize| (0..1 + 2 * (case % 2) as u8).map(move |i| vec![i; 5 + case]).collect::<Vec<_>>();
    let right = (0..keys.len()).map(|case| {
        let sign = |message: &Vec<u8>| keys[case].sign_message(zkdilithium::Message::Bytes(message)).unwrap();
        messages(case).iter().map(|message| sign(message).into_bytes()).collect()
    });
    let right = right.collect();
    let of = keys.clone();
    Subject {
        sign: Box::new(move |case| {
            let messages = messages(case);
            let job = |message| zkdilithium::SignJob::new(&keys[case], message);
            let signatures = engine.sign_batch_to_vec(messages.iter().map(job))?;
            signatures.into_iter().map(|signature| signature.map(|signature| signature.into_bytes())).collect()
        }),
        is_valid: Box::new(move |case, message, signature| {
            let message = &messages(case)[message];
            of[case].verifying_key().is_valid(zkdilithium::Message::Bytes(message), signature)
        }),
        right,
    }
    .warmed()
}

/// Counts of flips by their outcome.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    flips: usize,
    harmless: usize,
    caught: usize,
    /// Wrong signatures that left: such as verify, and others.
    valid: usize,
    invalid: usize,
}

impl Row {
    fn left(&self) -> usize {
        self.valid + self.invalid
    }
}

impl Subject {
    /// Signs each case once. Devices have given their known answers then, without a fault.
    fn warmed(self) -> Subject {
        for (case, right) in self.right.iter().enumerate() {
            assert!((self.sign)(case).unwrap() == *right, "case {case} without a fault");
        }
        self
    }

    fn judge(&self, case: usize, result: Signed, row: &mut Row) {
        row.flips += 1;
        let Ok(signatures) = result else {
            row.caught += 1;
            return;
        };
        let wrong: Vec<usize> = (0..signatures.len()).filter(|i| signatures[*i] != self.right[case][*i]).collect();
        assert_eq!(signatures.len(), self.right[case].len());
        match wrong.iter().any(|i| !(self.is_valid)(case, *i, &signatures[*i])) {
            _ if wrong.is_empty() => row.harmless += 1,
            true => row.invalid += 1,
            false => row.valid += 1,
        }
    }

    /// Flips, as many of each stage, until there are enough.
    fn flip(&self, faults: &Faults, enough: impl Fn(usize, usize) -> bool) -> (BTreeMap<&'static str, Row>, usize) {
        let (mut rows, mut changed, mut state, mut flips) = (BTreeMap::<_, Row>::new(), 0, 7, 0);
        let surveys: Vec<BTreeMap<&str, Vec<Site>>> = (0..self.right.len())
            .map(|case| {
                let (sites, signed) = faults.survey(|| (self.sign)(case));
                assert!(signed.unwrap() == self.right[case], "case {case} without a fault");
                let mut stages = BTreeMap::<&str, Vec<Site>>::new();
                before_release(sites).into_iter().for_each(|site| stages.entry(site.stage).or_default().push(site));
                stages
            })
            .collect();
        while !enough(flips, changed) {
            let case = flips % surveys.len();
            let stages: Vec<_> = surveys[case].values().collect();
            let stage = stages[(flips + flips / surveys.len()) % stages.len()];
            let site = stage[random(&mut state) as usize % stage.len()];
            let (done, result) = faults.flip(site, random(&mut state), || (self.sign)(case));
            flips += 1;
            // Where nothing was written there is nothing to flip.
            if done {
                changed += usize::from(result.as_ref().is_err_and(|why| why.to_string().contains("computed again")));
                self.judge(case, result, rows.entry(site.stage).or_default());
            }
        }
        (rows, changed)
    }
}

/// Without the copies of signatures to their rows, which come after a comparison on the device and the copy of what that found: nothing looks
/// at signatures after these.
fn before_release(mut sites: Vec<Site>) -> Vec<Site> {
    if let Some(compared) = sites.iter().rposition(|site| site.stage == "compare") {
        sites.truncate(compared + 2);
    }
    sites
}

fn sum(rows: &BTreeMap<&'static str, Row>) -> Row {
    rows.values().fold(Row::default(), |sum, row| Row {
        flips: sum.flips + row.flips,
        harmless: sum.harmless + row.harmless,
        caught: sum.caught + row.caught,
        valid: sum.valid + row.valid,
        invalid: sum.invalid + row.invalid,
    })
}

/// With each check: a table by stage. Nothing wrong leaves with `redundant`; without checks something does.
fn table(name: &str, kind: &Kind, subject: impl Fn(&Kind, Check) -> Subject, checks: &[Check], flips: usize) {
    let mut text = String::new();
    for check in checks {
        let subject = subject(kind, *check);
        let (rows, changed) = match check {
            // A device that answers nothing any more would have it go on for ever.
            Check::Redundant => subject.flip(&kind.faults, |done, changed| changed >= flips || done > 100 * flips),
            _ => subject.flip(&kind.faults, |done, _| done >= flips),
        };
        let all = sum(&rows);
        writeln!(text, "{name} on {}, {check:?}: flips, harmless, caught, wrong but valid, invalid", kind.name)
            .unwrap();
        for (stage, row) in rows.iter().chain([(&"all", &all)]) {
            let Row { flips, harmless, caught, valid, invalid } = row;
            writeln!(text, "  {stage:<18}{flips:>7}{harmless:>7}{caught:>7}{valid:>7}{invalid:>7}").unwrap();
        }
        match check {
            // Faults that a device itself notices, such as signing that finds no end, are caught even so.
            Check::Nothing => assert!(all.left() > all.caught, "flips are seen\n{text}"),
            Check::AlwaysOn => {}
            Check::Verify => assert!(all.invalid == 0 && all.caught > 0, "{text}"),
            Check::Redundant => {
                writeln!(text, "  {changed} of these changed a signature, {} left", all.left()).unwrap();
                assert_eq!(all.left(), 0, "{text}");
                assert!(changed >= flips, "{text}");
            }
        }
    }
    text.lines().for_each(|line| println!("checked: {line}"));
}

const SLH_DSA: [Check; 4] = [Check::Nothing, Check::AlwaysOn, Check::Verify, Check::Redundant];
/// Nothing is always on but the check of the key.
const ZK: [Check; 3] = [Check::Nothing, Check::Verify, Check::Redundant];

#[test]
fn slh_dsa_on_the_cpu() {
    table("SLH-DSA", &cpu(Isa::fastest()), slh_dsa, &SLH_DSA, flips());
}

#[test]
fn slh_dsa_on_the_double_of_a_gpu() {
    table("SLH-DSA", &double(), slh_dsa, &SLH_DSA, flips());
}

/// Signatures that the device compares; and what a flip in a copy after that does: the signature does not verify.
#[test]
fn rows_that_the_double_of_a_gpu_compares() {
    // A device that hashes messages proves that with 17 whole signatures of each set. With few flips, that device has a set of each hash family alone. The
    // tests of `gpu` hash messages for every set.
    let hashed = if flips() > FLIPS { &TOYS[..] } else { &TOYS[..2] };
    for (digest, sets) in [(0, &TOYS[..]), (256, hashed)] {
        let kind = double_with(if digest > 0 { &[("digest", 256)] } else { &[] });
        let rows = |kind: &Kind, check| slh_dsa_rows(kind, check, sets);
        table("rows of SLH-DSA", &kind, rows, &[Check::Redundant], flips().div_ceil(10));
        let (subject, mut row, mut state) = (rows(&kind, Check::Redundant), Row::default(), 5);
        // With few flips, each set in one kind of memory, by turns.
        let is_turn = |case: &usize| flips() > FLIPS || (case + case / sets.len()).is_multiple_of(2);
        for case in (0..subject.right.len()).filter(is_turn) {
            let (sites, _) = kind.faults.survey(|| (subject.sign)(case));
            assert!(sites.iter().any(|site| site.stage == "compare"), "the device compares");
            assert_eq!(sites.iter().filter(|site| site.stage == "digest").count(), if digest > 0 { 2 } else { 0 });
            let after = &sites[before_release(sites.clone()).len()..];
            // A few of a case, as far apart as can be; all with many flips.
            for site in after.iter().step_by(after.len().div_ceil(flips().div_ceil(10)).max(1)) {
                let (_, result) = kind.faults.flip(*site, random(&mut state), || (subject.sign)(case));
                subject.judge(case, result, &mut row);
            }
        }
        assert!(row.valid == 0 && row.invalid > 0, "{row:?}");
    }
}

#[test]
fn zkdilithium_on_the_cpu() {
    table("zkDilithium", &cpu(Isa::fastest()), zk_dilithium, &ZK, flips());
}

#[test]
fn zkdilithium_on_the_double_of_a_gpu() {
    table("zkDilithium", &double(), zk_dilithium, &ZK, flips().div_ceil(20));
}

#[cfg(feature = "vulkan")]
#[test]
fn slh_dsa_on_vulkan() {
    // lavapipe makes pipelines anew after each error.
    vulkan().inspect(|kind| table("SLH-DSA", kind, slh_dsa, &SLH_DSA, flips().div_ceil(10)));
}

#[cfg(feature = "cuda")]
#[test]
fn slh_dsa_on_cuda() {
    cuda().inspect(|kind| table("SLH-DSA", kind, slh_dsa, &SLH_DSA, flips()));
}

#[cfg(feature = "cuda")]
#[test]
fn zkdilithium_on_cuda() {
    cuda().inspect(|kind| table("zkDilithium", kind, zk_dilithium, &ZK, flips().div_ceil(10)));
}

/// A lane that is always wrong gives no key and no signature with `redundant`, a single one neither.
#[test]
fn a_lane_that_is_always_wrong_lets_nothing_out() {
    for isa in isas() {
        let kind = cpu(isa);
        let (mut wrong, mut caught) = (0, 0);
        for check in [Check::Nothing, Check::Redundant] {
            let subject = slh_dsa(&kind, check);
            for (lanes, lane) in [2, 8, 16].into_iter().flat_map(|lanes| (0..lanes).map(move |lane| (lanes, lane))) {
                for case in 0..12 {
                    let mut row = Row::default();
                    let result = kind.faults.stuck(lane, lanes, || (subject.sign)(case));
                    subject.judge(case, result, &mut row);
                    match check {
                        Check::Redundant => {
                            assert_eq!(row.caught, 1, "{}: lane {lane} of {lanes}, case {case}", isa.name());
                            caught += row.caught;
                        }
                        _ => wrong += row.left(),
                    }
                }
            }
        }
        assert_eq!((wrong, caught), (26 * 12, 26 * 12), "{}", isa.name());
        let engine = |redundant| {
            let builder = Engine::builder().backend(kind.backend.clone()).threads(1).redundant(redundant);
            builder.build().unwrap()
        };
        let seeds = Seeds { sk_seed: vec![1; 16].into(), sk_prf: vec![2; 16].into(), pk_seed: vec![3; 16] };
        let [plain, redundant] = [false, true].map(engine);
        let make = |engine: &Engine| engine.from_seeds(&TOY_SHA2_16, std::slice::from_ref(&seeds));
        // The devices give their known answers.
        let right = make(&plain).unwrap();
        assert!(make(&redundant).unwrap() == right);
        for lane in 0..8 {
            assert!(kind.faults.stuck(lane, 8, || make(&plain)).unwrap() != right);
            let why = kind.faults.stuck(lane, 8, || make(&redundant)).unwrap_err();
            assert!(matches!(why, Error::Inconsistent { .. }), "{why}");
        }
    }
}

/// A lane of zkDilithium that is always wrong lets nothing out; a lane that makes nobody's signature does no harm.
#[test]
fn a_lane_of_zkdilithium_that_is_always_wrong_lets_nothing_out() {
    for isa in isas() {
        let kind = cpu(isa);
        let lanes = hypergrove_cpu::zk::ZkDilithium::with(isa).expect("detected").lanes();
        if lanes == 1 {
            println!("skipped: {}: zkDilithium has one lane there", isa.name());
            continue;
        }
        let seeds = [[1; 32], [2; 32], [3; 32]];
        for check in [Check::Nothing, Check::Redundant] {
            let subject = zk_dilithium(&kind, check);
            let builder = Engine::builder().threads(1).devices(vec![(kind.backend.clone(), 0)]);
            let engine = builder.redundant(check == Check::Redundant).build().unwrap();
            // The self-test is over before there are faults.
            engine.from_seeds(zkdilithium::ZkDilithium, &seeds).unwrap();
            let mut row = Row::default();
            let mut keys = (0, 0);
            for lane in 0..lanes {
                for case in 0..subject.right.len() {
                    let result = kind.faults.stuck(lane, lanes, || (subject.sign)(case));
                    subject.judge(case, result, &mut row);
                }
                for count in [1, 3] {
                    match kind
                        .faults
                        .stuck(lane, lanes, || engine.from_seeds(zkdilithium::ZkDilithium, &seeds[..count]))
                    {
                        Ok(made) => {
                            keys.0 += usize::from(
                                made != engine.from_seeds(zkdilithium::ZkDilithium, &seeds[..count]).unwrap(),
                            )
                        }
                        Err(_) => keys.1 += 1,
                    }
                }
            }
            match check {
                Check::Redundant => {
                    assert_eq!((row.left(), keys.0), (0, 0), "{}", isa.name());
                    assert!(row.caught > 0 && keys.1 > 0, "{}", isa.name());
                }
                _ => assert!(row.left() > 0 && keys.0 > 0, "{}: faults are seen", isa.name()),
            }
        }
    }
}

/// A place in a GPU's memory that some kernel, or a copy, always writes wrongly.
#[test]
fn a_place_of_a_gpu_that_is_always_wrong_lets_nothing_out() {
    let (kind, mut state) = (double(), 3);
    for check in [Check::Nothing, Check::Redundant] {
        let (subject, mut row) = (slh_dsa(&kind, check), Row::default());
        let stages = (0..subject.right.len()).map(|case| {
            let (sites, _) = kind.faults.survey(|| (subject.sign)(case));
            sites.into_iter().map(|site| site.stage).collect::<Vec<_>>()
        });
        let stages: Vec<_> = stages.collect();
        for round in 0..flips().min(1000) {
            let case = round % subject.right.len();
            let stage = stages[case][random(&mut state) as usize % stages[case].len()];
            let (done, result) = kind.faults.cell(stage, random(&mut state), || (subject.sign)(case));
            if done {
                subject.judge(case, result, &mut row);
            }
        }
        match check {
            Check::Redundant => assert!(row.left() == 0 && row.caught > 0),
            _ => assert!(row.left() > 0, "faults are seen"),
        }
        println!(
            "{check:?}: of {} places {} caught, {} harmless, {} left",
            row.flips,
            row.caught,
            row.harmless,
            row.left()
        );
    }
}

/// Backends without lanes, threads or places have none to change.
#[test]
fn the_reference_has_one_place() {
    let engine = Engine::builder().backend(Arc::new(Reference)).threads(1).redundant(true).build().unwrap();
    let key = engine.generate(&TOY_SHA2_16).unwrap();
    let signature = engine.sign(&key, PURE, b"m", Randomizer::Hedged).unwrap();
    assert!(engine.verify(&key.verifying_key(), PURE, b"m", signature.as_bytes()).unwrap());
}
