//! Known answers that a device must compute rightly before it is used.
//!
//! The first time that a device is to execute an op, it gets one job whose answer is known. A wrong answer is an error, then and ever after: no
//! result of that op is handed out.

mod zkdilithium;

pub use zkdilithium::test_known_answers;

use crate::scheduler::{lock, outside_pools};
use crate::trace::{self, Step, TraceContext};
use crate::{
    Backend, Batch, Device, Digests, Error, Hasher, Key, Messages, Policy, Program, SelfTest, Sha256Programs,
    SlhDsaPrograms, THREADS, Timing, Work, ZkDilithiumPrograms, forward,
};
use hypergrove_fips205::digest::prf_msg;
use hypergrove_fips205::params::*;
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::{Family, MPrime, Mode, Params, Position, SetStatus};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};

/// A set that nobody can ask for by name: two layers of 16 leaves.
const fn small(name: &'static str, family: Family, n: usize) -> Params {
    Params { name, family, n, h: 8, d: 2, hp: 4, a: 6, k: 4, lg_w: 4, m: 5, status: SetStatus::Toy }
}

/// A set, and the first half of SHA-256 of what each op puts out for the known job: key generation, signing, verification.
type KnownAnswer = (&'static Params, [u128; 3]);

/// The known answers of the small sets, one for each hash family and n, as the reference computes them.
#[rustfmt::skip]
static SMALL_SETS: [KnownAnswer; 6] = [
    (&small("SHA2 with n = 16", Family::Sha2, 16),     [0xed4378011e0078126e963d7e59f8683a, 0x97294bd61330713dbff5d5f044234024, 0x072d7ce1035f54237fd7f602881d0d34]),
    (&small("SHA2 with n = 24", Family::Sha2, 24),     [0xfe3631c6fe4008882de3b4e90c87c998, 0x5435315eef9dc4261ea69cf6d130022d, 0xfe9cd0bff8ff4b44d1f13e36168e3694]),
    (&small("SHA2 with n = 32", Family::Sha2, 32),     [0x84ad6b1a4b0c88e5709de35054d31c55, 0xa7d13f1cec977b2409181b1bc510af53, 0x5a1436d284e928bc8c089288d0450faf]),
    (&small("SHAKE with n = 16", Family::Shake, 16),   [0xd5368511babf53e04b34974944e341bd, 0xb0e274ff7219a335a7095709bc45a682, 0x6238c1562809687ad95488af1fec8d9d]),
    (&small("SHAKE with n = 24", Family::Shake, 24),   [0x5c970adf4a346054e3cb09e956dcacdd, 0xe5091f67993fffbb5b869daac099b10c, 0x56d48e2680e6ea5b85dde962fbcdb72f]),
    (&small("SHAKE with n = 32", Family::Shake, 32),   [0x377d342d108489602be998c5422f0fc3, 0xd4146b8852a3229cd150b91ac4a036c4, 0x292fb44ad05c6997ae5ad6acb7d2cfcd]),
];

/// The known answers of whole sets, as the reference computes them. The first set of a family and n answers for sets that are not here.
#[rustfmt::skip]
static WHOLE_SETS: [KnownAnswer; 12] = [
    (&SLH_DSA_SHA2_128F,  [0x87295215eacb354f89175ebce19ee721, 0x33305e1b61bb81af890ac8c6073825c7, 0x38e82ee4aa88c0bd9a0266b3cc2b30a9]),
    (&SLH_DSA_SHAKE_128F, [0xe589d8ea388fc39486b5c33cd7214436, 0x754c224ed4ce062c12ec8f731c16e64c, 0x4a23a0a1ce0ea955c8d550985449bd84]),
    (&SLH_DSA_SHA2_192F,  [0xf84b292581e22aefa06f3bc3f237787c, 0xaeff38aaedc17a802f7cf2e2645e2b40, 0xdc9af9133b2d3ee90b030f6323f91060]),
    (&SLH_DSA_SHAKE_192F, [0x8356790b063d8da4f308583a0c5d2a9b, 0x680ab3e34cc595ddcc058c1c173ec550, 0x953b95c9a6267a3d479b7af5a9a593bb]),
    (&SLH_DSA_SHA2_256F,  [0xb7e6ac204badb22c48b54dea47dfcfe2, 0x15c95fd2f608c23277522522a25319c1, 0xdc2c56f467e69eaaed1cda2cd0cde378]),
    (&SLH_DSA_SHAKE_256F, [0x454d15936ca8773b61b6767bf0d5411e, 0xb5011ff881a924922735e17d998cfba7, 0x1d535d87ec160bb93a278dc290353974]),
    (&SLH_DSA_SHA2_128S,  [0xc2c63ce0b4727b266cb83baac0bbd5e0, 0xdd5830e53a226e8657bbd7f31ef4d71a, 0x50c0f9e279c4cb649310715488bd4d9b]),
    (&SLH_DSA_SHAKE_128S, [0x27d538b5f476cc7d8c376ad315311fae, 0x96f18802ac5714edb232c2fa4fd8c78f, 0xbe9fe3f56cc2de11720330f81e1ce84f]),
    (&SLH_DSA_SHA2_192S,  [0xb12daf9e2582245e362f301652b60c71, 0xdaf36bc62d20e95ab952fedab6cacd92, 0x70ff6d9f79e607bf6d0d777d95c556ff]),
    (&SLH_DSA_SHAKE_192S, [0x2ce46b5fa26f1c75a25da10d8c914de0, 0x8fafd3f7a5a0fb801f2a159a8103a880, 0xb1ed2ee27ce9cc640b3a522364dda5f6]),
    (&SLH_DSA_SHA2_256S,  [0x9f663922abdddb926f0a462705960a88, 0xe4f64c8472c03749d787e5a0007f301d, 0x7eeb333399bf7cb76831474aa7662941]),
    (&SLH_DSA_SHAKE_256S, [0x71e78ff74be1ddf3b9ef869ef9e2a3c6, 0x15f656d1ad3a10f2f683007791d73612, 0xc97f607b24f463f8a110b317fd96c260]),
];

/// The known answers that stand for a set.
fn known(mode: SelfTest, p: &Params) -> &'static KnownAnswer {
    let alike = |known: &&KnownAnswer| (known.0.family, known.0.n) == (p.family, p.n);
    let all = if mode == SelfTest::SharedCode { &SMALL_SETS[..] } else { &WHOLE_SETS };
    let same = all.iter().find(|known| std::ptr::eq(known.0, p));
    same.or_else(|| all.iter().find(alike)).expect("every set has a family and an n of these")
}

/// The op whose known answer tests `op`: caching grows the same trees as key generation.
fn tested(op: Op) -> Op {
    if op == Op::Cache { Op::Keygen } else { op }
}

fn title(op: Op) -> &'static str {
    match op {
        Op::Keygen | Op::Cache => "key generation",
        Op::Sign => "signing",
        Op::Verify => "verification",
    }
}

/// The known job's bytes: no two neighbours are equal.
fn bytes(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(167).wrapping_add(first)).collect()
}

/// Runs the known job on a program, and gives the first half of the output's SHA-256.
fn answer(program: &mut dyn Program) -> Result<u128, Error> {
    let Plan { params: p, op, .. } = program.plan().clone();
    let (pk_seed, sk_seed) = (bytes(p.n, 1), if op == Op::Verify { Vec::new() } else { bytes(p.n, 2) });
    let key = Key::of_seeds(&pk_seed, &sk_seed);
    let at = Position::split(p, &bytes(p.m, 3));
    // The signature leads to some root, which only right hashes find.
    let signature = bytes(p.sig_bytes(), 4);
    let batch = Batch {
        keys: &[key],
        key_of: &[0],
        positions: if matches!(op, Op::Sign | Op::Verify) { &[at] } else { &[] },
        signatures: if op == Op::Verify { &[&signature] } else { &[] },
    };
    let mut out = vec![0; program.plan().out_bytes()];
    program.run_batch(&batch, &mut out)?;
    Ok(half_digest(&out))
}

/// Jobs of a batch whose messages a program must hash rightly: the smallest whose messages a GPU hashes. With fewer jobs no GPU would pass the
/// test, and with more a GPU that gets smaller batches would not be tested.
const HASHED: usize = 17;

/// Messages that a program hashes by itself, and the values that the host computes from them.
struct KnownMessages {
    p: &'static Params,
    /// PK.seed, PK.root, and when signing SK.seed, SK.prf and opt_rand.
    parts: [Vec<u8>; 5],
    text: Vec<u8>,
    /// R of each job.
    rs: Vec<Vec<u8>>,
}

impl KnownMessages {
    /// The messages of these signatures, or of jobs to sign if there are none.
    fn new(p: &'static Params, signatures: &[u8], longest: usize) -> KnownMessages {
        let secret = |first| if signatures.is_empty() { bytes(p.n, first) } else { Vec::new() };
        let parts = [bytes(p.n, 1), bytes(p.n, 5), secret(2), secret(6), secret(7)];
        let mut known = KnownMessages { p, parts, text: bytes(longest, 8), rs: Vec::new() };
        known.rs = match signatures.is_empty() {
            false => signatures.chunks_exact(p.sig_bytes()).map(|signature| signature[p.r_range()].to_vec()).collect(),
            true => (0..HASHED).map(|job| known.random(job)).collect(),
        };
        known
    }
    fn random(&self, job: usize) -> Vec<u8> {
        let mut r = vec![0; self.p.n];
        prf_msg(self.p, &self.parts[3], self.opt_rand(job), &self.m_prime(job), &mut r);
        r
    }
    /// The message of a job. The jobs' messages have many lengths, the longest too.
    fn message(&self, job: usize) -> &[u8] {
        &self.text[..self.text.len() * job / (HASHED - 1)]
    }
}

/// The key of known messages.
fn key([pk_seed, pk_root, sk_seed, sk_prf, _]: &[Vec<u8>; 5]) -> Key<'_> {
    Key { pk_root, sk_prf, ..Key::of_seeds(pk_seed, sk_seed) }
}

impl Digests for KnownMessages {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        let of = |(job, r): (usize, &Vec<u8>)| self.position(self.p, job, r, &key(&self.parts));
        Ok(self.rs.iter().enumerate().map(of).collect())
    }
    fn longest(&self) -> usize {
        self.text.len()
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        MPrime::new(Mode::Internal, self.message(job)).expect("any message has an internal form")
    }
    fn opt_rand(&self, _: usize) -> &[u8] {
        &self.parts[4]
    }
}

/// Whether a program that hashes messages gives the same output as if the host had hashed them.
fn hashes_messages(program: &mut dyn Program) -> Result<bool, Error> {
    let (Plan { params: p, op, .. }, longest) = (program.plan().clone(), program.hashes());
    let (size, each) = (p.sig_bytes(), program.plan().out_bytes());
    let (mut by_device, mut by_host) = (vec![0; HASHED * each], vec![0; HASHED * each]);
    let rows = if op == Op::Verify { bytes(HASHED * size, 4) } else { Vec::new() };
    let signatures: Vec<&[u8]> = rows.chunks_exact(size).collect();
    let mut known = KnownMessages::new(p, &rows, longest);
    let (positions, rs, parts) = (known.positions()?, known.rs.clone(), known.parts.clone());
    let batch = Batch { keys: &[key(&parts)], key_of: &[0; HASHED], positions: &[], signatures: &signatures };
    program.run(Work { digests: Some(&mut known), ..Work::of(&batch) }, &mut [&mut by_device])?;
    program.run_batch(&Batch { positions: &positions, ..batch }, &mut by_host)?;
    if op == Op::Sign {
        by_host.chunks_exact_mut(size).zip(&rs).for_each(|(row, r)| row[p.r_range()].copy_from_slice(r));
    }
    Ok(by_device == by_host)
}

pub(crate) fn half_digest(bytes: &[u8]) -> u128 {
    let digest = Sha256::digest(bytes);
    u128::from_be_bytes(digest[..16].try_into().expect("16 bytes"))
}

pub(crate) fn wrong(device: &str, what: &str) -> Error {
    Error::Inconsistent { device: device.into(), what: format!("its self-test, {what}, gave a wrong answer") }
}

/// An example of FIPS 180-4, which has two blocks with its padding, and the first half of its SHA-256.
const MESSAGE: &[u8; 56] = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
const MESSAGE_SHA256: u128 = 0x248d6a61d20638b8e5c026930c3e6039;
/// As many messages as fill any lanes.
const MESSAGES: usize = 40;

/// Whether a device hashes copies of the known message rightly.
fn hashes(hasher: &mut dyn Hasher) -> Result<bool, Error> {
    let mut digests = [[0; 32]; MESSAGES];
    hasher.run(Messages::equal(&MESSAGE.repeat(MESSAGES), MESSAGE.len())?, &mut digests)?;
    let first = |digest: &[u8; 32]| u128::from_be_bytes(digest[..16].try_into().expect("16 bytes"));
    Ok(digests.iter().all(|digest| first(digest) == MESSAGE_SHA256))
}

/// The work that is tested, as errors name it, and the policy: another policy may run other code.
#[derive(Clone, PartialEq)]
pub(crate) struct Subject {
    what: String,
    policy: Policy,
}

impl Subject {
    /// Leaves out the number of threads, which changes no code.
    pub(crate) fn new(what: impl Into<String>, policy: &Policy) -> Subject {
        let others = policy.0.iter().copied().filter(|(axis, _)| *axis != THREADS);
        Subject { what: what.into(), policy: Policy(others.collect()) }
    }

    /// An op, by a set that stands for others.
    fn of_op(op: Op, p: &Params, policy: &Policy) -> Subject {
        Subject::new(format!("{} by {p}", title(op)), policy)
    }

    /// Messages that a program of this op hashes by itself.
    fn of_messages(op: Op, p: &Params, policy: &Policy) -> Subject {
        Subject::new(format!("hashing messages for {} by {p}", title(op)), policy)
    }
}

/// The results of a device's tests so far.
pub(crate) struct Results {
    device: String,
    settled: Mutex<Vec<(Subject, Result<(), Error>)>>,
}

impl Results {
    /// Tests a subject that was not tested yet; a wrong answer is remembered as well as a right one. Other threads wait for the result meanwhile. A
    /// device that fails without an answer is asked again the next time. `is_alone` says that the test uses no thread but its own. `ask` says whether
    /// the answer is right.
    pub(crate) fn settle(
        &self,
        subject: &Subject,
        is_alone: bool,
        ask: impl FnOnce() -> Result<bool, Error> + Send,
    ) -> Result<(), Error> {
        let mut settled = lock(&self.settled);
        if let Some((_, result)) = settled.iter().find(|(known, _)| known == subject) {
            return result.clone();
        }
        // The steps of the test are no steps of the caller's jobs.
        let test = || outside_pools(is_alone, |_| TraceContext::default().enter(ask));
        let result = match trace::step(Step::SelfTest, 0, test) {
            Ok(true) => Ok(()),
            Ok(false) => Err(wrong(&self.device, &subject.what)),
            Err(why) => Err(why),
        };
        if matches!(result, Ok(()) | Err(Error::Inconsistent { .. })) {
            settled.push((subject.clone(), result.clone()));
        }
        result
    }

    fn has_passed(&self, subject: &Subject) -> bool {
        lock(&self.settled).contains(&(subject.clone(), Ok(())))
    }
}

/// A backend whose devices are tested at their first use.
pub struct SelfTested {
    pub(crate) subject: Arc<dyn Backend>,
    pub(crate) mode: SelfTest,
    devices: Mutex<Vec<(u32, Arc<Results>)>>,
}

impl SelfTested {
    /// This backend, with devices that are tested as [`Backend::self_test`] says.
    pub fn of(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match backend.self_test() {
            SelfTest::Off => backend,
            mode => Arc::new(SelfTested { subject: backend, mode, devices: Mutex::default() }),
        }
    }

    pub(crate) fn results(&self, device: &Device) -> Arc<Results> {
        let mut devices = lock(&self.devices);
        match devices.iter().find(|(index, _)| *index == device.index) {
            Some((_, results)) => results.clone(),
            None => {
                let results = Results { device: device.id(), settled: Mutex::default() };
                devices.push_mut((device.index, Arc::new(results))).1.clone()
            }
        }
    }
}

/// Gives a program the known job, and says whether its answer is right.
fn ask(known: &KnownAnswer, program: &mut dyn Program) -> Result<bool, Error> {
    let op = program.plan().op;
    Ok(answer(program)? == known.1[op as usize])
}

/// A program of a device that was not tested fully yet.
struct TestedProgram {
    program: Box<dyn Program>,
    known: &'static KnownAnswer,
    subject: Subject,
    results: Arc<Results>,
    has_passed: bool,
    /// Needed to test the messages that the program hashes; `None` if they need no test.
    messages: Option<Untested>,
}

/// The values from which a program of the known answer's plan is prepared.
struct Untested {
    backend: Arc<dyn Backend>,
    device: Device,
    policy: Policy,
}

impl TestedProgram {
    /// Tests whether the device hashes messages rightly. A program of the known answer's plan is asked instead: this one may need keys with
    /// cached nodes.
    fn prove_messages(&mut self, Untested { backend, device, policy }: &Untested) -> Result<(), Error> {
        let op = self.program.plan().op;
        self.results.settle(&Subject::of_messages(op, self.known.0, policy), false, || {
            let programs = backend.slh_dsa_on(device)?;
            let plan = Plan::new(self.known.0, op);
            let mut program = programs.prepare(device, &plan, HASHED, &policy.with(THREADS, 1))?;
            hashes_messages(&mut *program)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default says nothing of the program")]
impl Program for TestedProgram {
    fn plan(&self) -> &Plan {
        self.program.plan()
    }
    /// Messages whose hashing was not tested are the host's.
    fn hashes(&self) -> usize {
        if self.messages.is_some() { 0 } else { self.program.hashes() }
    }
    fn prove(&mut self, jobs: usize) -> Result<(), Error> {
        if !self.has_passed {
            self.results.settle(&self.subject, false, || ask(self.known, &mut *self.program))?;
            self.has_passed = true;
        }
        let Some(untested) = self.messages.take_if(|_| jobs >= HASHED) else { return Ok(()) };
        let tested = self.prove_messages(&untested);
        if tested.is_err() {
            self.messages = Some(untested);
        }
        // If there is no memory for another program, the host hashes this batch, and the next one asks again.
        if matches!(tested, Err(Error::OutOfMemory { .. })) { Ok(()) } else { tested }
    }
    /// Callers that did not ask for tests get the one of the op. Whoever lets the device hash messages must have asked.
    fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        self.prove(0)?;
        if self.messages.is_some() && work.digests.as_ref().is_some_and(|digests| digests.longest() < usize::MAX) {
            return Err(Error::Value { what: "messages for a device whose hashing was not tested".into() });
        }
        self.program.run(work, out)
    }
    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        self.program.read(slot)
    }
    forward!(self => self.program; time_limit);
}

#[deny(clippy::missing_trait_methods, reason = "a default says nothing of the subject")]
impl Backend for SelfTested {
    forward!(self => self.subject; name, devices, absent, notices, rates, clock, fingerprint, free, host_memory);

    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        self.subject.slh_dsa().map(|_| self as _)
    }
    fn sha256(&self) -> Option<&dyn Sha256Programs> {
        self.subject.sha256().map(|_| self as _)
    }
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms> {
        self.subject.zkdilithium().map(|_| self as _)
    }
}

/// Used only if the subject has the capability: otherwise [`Backend::slh_dsa`] gives `None`.
#[deny(clippy::missing_trait_methods, reason = "a default says nothing of the subject")]
impl SlhDsaPrograms for SelfTested {
    forward!(self => self.subject.slh_dsa().expect("the subject has SLH-DSA"); space, jobs, compile, queue, abilities, bytes);

    /// A program of the known answer's own plan is tested itself, by one more job, so that no program is prepared for the test.
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let programs = self.subject.slh_dsa_on(device)?;
        let (known, op, results) = (known(self.mode, plan.params), tested(plan.op), self.results(device));
        let subject = Subject::of_op(op, known.0, policy);
        let mut has_passed = results.has_passed(&subject);
        let is_known_plan = std::ptr::eq(known.0, plan.params) && op == plan.op && plan.cached_layers == 0;
        if !has_passed && !is_known_plan {
            results.settle(&subject, self.mode == SelfTest::SharedCode, || {
                let mut program = programs.prepare(device, &Plan::new(known.0, op), 1, &policy.with(THREADS, 1))?;
                ask(known, &mut *program)
            })?;
            has_passed = true;
        }
        let program = programs.prepare(device, plan, batch, policy)?;
        let hashes = (1..usize::MAX).contains(&program.hashes())
            && !results.has_passed(&Subject::of_messages(plan.op, known.0, policy));
        if has_passed && !hashes {
            return Ok(program);
        }
        let (backend, policy) = (self.subject.clone(), policy.clone());
        let untested = || Untested { backend, device: device.clone(), policy };
        let messages = hashes.then(untested);
        Ok(Box::new(TestedProgram { program, known, subject, results, has_passed, messages }))
    }
}

impl Sha256Programs for SelfTested {
    fn longest(&self, device: &Device, policy: &Policy) -> Result<usize, Error> {
        self.subject.sha256_on(device)?.longest(device, policy)
    }

    /// Tests with few messages of one length: a GPU's own hasher needs no thread of a pool for them.
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        let hashers = self.subject.sha256_on(device)?;
        let mut hasher = hashers.prepare(device, policy)?;
        let is_alone = self.mode == SelfTest::SharedCode;
        self.results(device).settle(&Subject::new("SHA-256 of messages", policy), is_alone, || match self.mode {
            SelfTest::SharedCode => hashes(&mut *hashers.prepare(device, &policy.with(THREADS, 1))?),
            _ => hashes(&mut *hasher),
        })?;
        Ok(hasher)
    }
}

/// Tests one op of one set of FIPS 205 on a device, by the backend's default policy. [`SelfTested`] does this for a backend with
/// [`SelfTest::EverySet`] when it prepares that set. The other sets are tested by their family's and n's f set.
pub fn known_answer(backend: &dyn Backend, device: &Device, params: &'static Params, op: Op) -> Result<(), Error> {
    let known = known(SelfTest::EverySet, params);
    let programs = backend.slh_dsa_on(device)?;
    let mut program = programs.prepare(device, &Plan::new(known.0, tested(op)), 1, &Policy::default())?;
    let is_right = ask(known, &mut *program)?;
    if is_right { Ok(()) } else { Err(wrong(&device.id(), &format!("{} by {}", title(op), known.0))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Reference};
    use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHAKE_24, every_set};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const OPS: [Op; 3] = [Op::Keygen, Op::Sign, Op::Verify];

    /// Tests the small sets and the f sets; the CPU's own test asks all twelve.
    #[test]
    fn known_answers_are_the_references() {
        let device = &Reference.devices().unwrap()[0];
        let mut wrong = Vec::new();
        for (p, answers) in SMALL_SETS.iter().chain(&WHOLE_SETS[..6]) {
            let made = OPS.map(|op| {
                let programs = Reference.slh_dsa().unwrap();
                let mut program = programs.prepare(device, &Plan::new(p, op), 1, &Policy::default()).unwrap();
                answer(&mut *program).unwrap()
            });
            if made != *answers {
                wrong.push(format!("{p}: {}", made.map(|half| format!("{half:#034x}")).join(", ")));
            }
        }
        assert!(wrong.is_empty(), "the reference computes\n{}", wrong.join("\n"));
    }

    #[test]
    fn every_set_has_known_answers_of_its_family_and_n() {
        for p in every_set() {
            for mode in [SelfTest::SharedCode, SelfTest::EverySet] {
                let (stands_for, _) = known(mode, p);
                assert_eq!((stands_for.family, stands_for.n), (p.family, p.n), "{p}");
            }
        }
    }

    /// Replaces a program that was prepared, or gives an error.
    type Make = dyn Fn(Box<dyn Program>) -> Result<Box<dyn Program>, Error> + Send + Sync;

    /// The reference, with a function that replaces its programs, and with hashers that lie.
    struct Double(SelfTest, Box<Make>);

    fn double(
        mode: SelfTest,
        make: impl Fn(Box<dyn Program>) -> Result<Box<dyn Program>, Error> + Send + Sync + 'static,
    ) -> Arc<dyn Backend> {
        SelfTested::of(Arc::new(Double(mode, Box::new(make))))
    }

    impl Backend for Double {
        fn name(&self) -> &'static str {
            "double"
        }
        fn self_test(&self) -> SelfTest {
            self.0
        }
        forward!(self => Reference; devices, absent, notices, rates, clock, fingerprint, free);
        fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
            Some(self)
        }
        fn sha256(&self) -> Option<&dyn Sha256Programs> {
            Some(self)
        }
    }

    impl SlhDsaPrograms for Double {
        forward!(self => Reference; space, jobs, compile, queue, abilities, bytes);

        fn prepare(
            &self,
            device: &Device,
            plan: &Plan,
            batch: usize,
            policy: &Policy,
        ) -> Result<Box<dyn Program>, Error> {
            (self.1)(SlhDsaPrograms::prepare(&Reference, device, plan, batch, policy)?)
        }
    }

    impl Sha256Programs for Double {
        fn longest(&self, _: &Device, _: &Policy) -> Result<usize, Error> {
            Ok(usize::MAX)
        }
        fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
            Ok(Box::new(LyingHasher(Sha256Programs::prepare(&Reference, device, policy)?)))
        }
    }

    /// A hasher of whose digests all are right but one.
    struct LyingHasher(Box<dyn Hasher>);

    impl Hasher for LyingHasher {
        fn space(&self) -> Vec<Axis> {
            self.0.space()
        }
        fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
            self.0.run(messages, digests)?;
            digests[MESSAGES - 1][0] ^= 1;
            Ok(Timing::default())
        }
        forward!(self => self.0; time_limit);
    }

    /// Both tasks of the pool's only thread want the device's results. The first begins the other while it prepares a program, as a thread that waits
    /// for a pool may.
    #[test]
    fn a_test_begins_no_other_task_of_a_pool() {
        let (sender, done) = channel();
        // The thread is not joined: if the test hangs, so does the thread.
        std::thread::spawn(move || {
            let backend = double(SelfTest::SharedCode, |program| {
                rayon::yield_now();
                Ok(program)
            });
            let (device, policy) = (backend.devices().unwrap().remove(0), Policy::default());
            let prepare = |p| {
                let programs = backend.slh_dsa().unwrap();
                programs.prepare(&device, &Plan::new(p, Op::Verify), 1, &policy).map(drop).unwrap();
            };
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.scope(|scope| {
                scope.spawn(|_| prepare(&TOY_SHAKE_24));
                prepare(&TOY_SHA2_16);
            });
            sender.send(()).unwrap();
        });
        assert_eq!(done.recv_timeout(Duration::from_secs(60)), Ok(()));
    }

    /// A program that gives the answer of another op or set is found out.
    #[test]
    fn every_answer_differs_from_the_others() {
        let all: Vec<u128> = SMALL_SETS.iter().chain(&WHOLE_SETS).flat_map(|known| known.1).collect();
        assert!((0..all.len()).all(|i| !all[..i].contains(&all[i])));
    }

    /// A backend whose programs put out wrong bytes for an op, `times` times.
    fn lying(mode: SelfTest, op: Op, times: Arc<AtomicUsize>) -> Arc<dyn Backend> {
        double(mode, move |program| Ok(Box::new(Liar(program, op, times.clone()))))
    }

    struct Liar(Box<dyn Program>, Op, Arc<AtomicUsize>);

    impl Program for Liar {
        fn plan(&self) -> &Plan {
            self.0.plan()
        }
        fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
            let timing = self.0.run(work, out)?;
            if self.plan().op == self.1 && self.2.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                *out[0].last_mut().expect("it has bytes") ^= 0x80;
            }
            Ok(timing)
        }
        fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
            self.0.read(slot)
        }
        forward!(self => self.0; hashes, prove, time_limit);
    }

    /// A program that hashes messages by itself. It flips a bit in R, or in a message's position, as often as its counter says.
    struct HashingProgram(Box<dyn Program>, Arc<AtomicUsize>);

    impl HashingProgram {
        fn is_wrong(&self) -> bool {
            self.1.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        }
    }

    impl Program for HashingProgram {
        fn plan(&self) -> &Plan {
            self.0.plan()
        }
        fn hashes(&self) -> usize {
            100
        }
        fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
            let p = self.plan().params;
            let (batch, jobs) = (work.batch, work.batch.len());
            let Some(digests) = work.digests.as_deref().filter(|digests| digests.longest() <= self.hashes()) else {
                return self.0.run(work, out);
            };
            let key = |job: usize| &batch.keys[batch.key_of[job] as usize];
            let mut rs = vec![vec![0; p.n]; jobs];
            for (job, r) in rs.iter_mut().enumerate() {
                match batch.signatures.get(job) {
                    Some(signature) => r.copy_from_slice(&signature[p.r_range()]),
                    None => prf_msg(p, key(job).sk_prf, digests.opt_rand(job), &digests.m_prime(job), r),
                }
            }
            let of = |(job, r): (usize, &Vec<u8>)| digests.position(p, job, r, key(job));
            let mut positions: Vec<_> = rs.iter().enumerate().map(of).collect();
            let is_wrong = self.is_wrong();
            let signs = self.plan().op == Op::Sign;
            rs[jobs - 1][0] ^= u8::from(is_wrong && signs);
            positions[jobs - 1].idx_leaf ^= u32::from(is_wrong && !signs);
            let timing = self.0.run_batch(&Batch { positions: &positions, ..batch }, out[0])?;
            if signs {
                out[0]
                    .chunks_exact_mut(p.sig_bytes())
                    .zip(&rs)
                    .for_each(|(row, r)| row[p.r_range()].copy_from_slice(r));
            }
            Ok(timing)
        }
        fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
            self.0.read(slot)
        }
        forward!(self => self.0; prove, time_limit);
    }

    /// Known messages that count how often the host computed their positions.
    struct Counted(KnownMessages, usize);

    impl Digests for Counted {
        fn positions(&mut self) -> Result<Vec<Position>, Error> {
            self.1 += 1;
            self.0.positions()
        }
        fn longest(&self) -> usize {
            self.0.longest()
        }
        fn m_prime(&self, job: usize) -> MPrime<'_> {
            self.0.m_prime(job)
        }
        fn opt_rand(&self, job: usize) -> &[u8] {
            self.0.opt_rand(job)
        }
    }

    /// A device that hashes a message wrongly is not asked to hash another, whichever program asks.
    #[test]
    fn messages_that_are_hashed_wrongly_are_the_end() {
        let p = &SLH_DSA_SHA2_128F;
        for (op, wrong) in [Op::Sign, Op::Verify].into_iter().flat_map(|op| [(op, 0), (op, 1)]) {
            let (left, is_full) = (Arc::new(AtomicUsize::new(wrong)), Arc::new(AtomicBool::new(false)));
            let (lies, fills) = (left.clone(), is_full.clone());
            let backend = double(SelfTest::EverySet, move |program| match fills.load(Relaxed) {
                true => Err(Error::OutOfMemory { device: "reference:0".into(), needs: 2, has: 1 }),
                false => Ok(Box::new(HashingProgram(program, lies.clone()))),
            });
            let (device, policy) = (backend.devices().unwrap().remove(0), Policy::default());
            let prepare = || backend.slh_dsa().unwrap().prepare(&device, &Plan::new(p, op), 1, &policy).unwrap();
            let (mut first, mut second) = (prepare(), prepare());
            let memory = vec![3; HASHED * p.sig_bytes()];
            let messages = KnownMessages::new(p, if op == Op::Verify { &memory } else { &[] }, 10);
            let (parts, mut known) = (messages.parts.clone(), Counted(messages, 0));
            let keys = [Key { sk_seed: if op == Op::Verify { &[] } else { &parts[2] }, ..key(&parts) }];
            let signatures: Vec<&[u8]> = memory.chunks(p.sig_bytes()).filter(|_| op == Op::Verify).collect();
            let batch = Batch { keys: &keys, key_of: &[0; HASHED], positions: &[], signatures: &signatures };
            let mut out = vec![0; HASHED * first.plan().out_bytes()];
            // The outcome, and how often the host computed the positions.
            let mut hash = |program: &mut dyn Program| {
                let work = Work { digests: Some(&mut known), ..Work::of(&batch) };
                let done = program.run(work, &mut [&mut out]).map(drop);
                (done, std::mem::take(&mut known.1))
            };
            is_full.store(true, Relaxed);
            assert_eq!(
                (first.prove(HASHED), first.hashes()),
                (Ok(()), 0),
                "without memory for the test the host hashes"
            );
            assert!(matches!(hash(&mut *first), (Err(Error::Value { .. }), 0)), "no caller may take the untested way");
            is_full.store(false, Relaxed);
            first.prove(HASHED - 1).unwrap();
            assert_eq!((left.load(Relaxed), first.hashes()), (wrong, 0), "no batch needs the test yet");
            let what = format!("its self-test, hashing messages for {} by {p}, gave a wrong answer", title(op));
            let why = Error::Inconsistent { device: "reference:0".into(), what };
            let expected = || if wrong == 1 { Err(why.clone()) } else { Ok(()) };
            for program in [&mut first, &mut second] {
                assert_eq!(program.prove(HASHED), expected(), "{op:?}");
                match wrong {
                    0 => assert_eq!((program.hashes(), hash(&mut **program)), (100, (Ok(()), 0)), "{op:?}"),
                    _ => assert_eq!(program.hashes(), 0, "{op:?}"),
                }
                assert_eq!(left.load(Relaxed), 0);
            }
            // A set that was tested.
            let mut third = prepare();
            assert_eq!(third.prove(HASHED), expected(), "{op:?}");
        }
    }

    /// After one wrong bit in one answer, nothing of that op and family is prepared, then or later; all else is.
    #[test]
    fn a_wrong_answer_is_the_end() {
        for wrong in OPS {
            let lies = Arc::new(AtomicUsize::new(1));
            let backend = lying(SelfTest::SharedCode, wrong, lies.clone());
            let (device, policy) = (backend.devices().unwrap().remove(0), Policy::default());
            let programs = backend.slh_dsa().unwrap();
            let prepare = |p, op| programs.prepare(&device, &Plan::new(p, op), 1, &policy).map(drop);
            for op in OPS.into_iter().chain(OPS) {
                let prepared = prepare(&TOY_SHA2_16, op);
                assert_eq!(prepared.is_err(), op == wrong, "{op:?}");
                if let Err(why) = prepared {
                    let what = format!("its self-test, {} by SHA2 with n = 16, gave a wrong answer", title(op));
                    assert_eq!(why, Error::Inconsistent { device: "reference:0".into(), what });
                }
            }
            assert_eq!(lies.load(Relaxed), 0, "it would answer rightly now, and is not asked");
            assert_eq!(prepare(&TOY_SHAKE_24, wrong), Ok(()), "another family");
            let cache = programs.prepare(&device, &Plan::cache(&TOY_SHA2_16, 1), 1, &policy);
            assert_eq!(cache.is_err(), wrong == Op::Keygen);
            let why = backend.sha256().unwrap().prepare(&device, &policy).err().expect("a wrong digest").to_string();
            assert!(why.contains("reference:0") && why.contains("its self-test, SHA-256 of messages"), "{why}");
        }
    }

    /// If each set is tested, its own program is tested before its first batch, whatever other programs there are.
    #[test]
    fn a_program_that_answers_wrongly_runs_no_batch() {
        for wrong in OPS {
            let lies = Arc::new(AtomicUsize::new(1));
            let backend = lying(SelfTest::EverySet, wrong, lies);
            let (device, policy, p) = (backend.devices().unwrap().remove(0), Policy::default(), &SLH_DSA_SHA2_128F);
            let programs = backend.slh_dsa().unwrap();
            for op in OPS.into_iter().chain(OPS) {
                let mut program = programs.prepare(&device, &Plan::new(p, op), 3, &policy).unwrap();
                let mut other = programs.prepare(&device, &Plan::new(p, op), 1, &policy).unwrap();
                for program in [&mut program, &mut other] {
                    match answer(&mut **program) {
                        Ok(right) => assert!(op != wrong && right == WHOLE_SETS[0].1[op as usize], "{op:?}"),
                        Err(why) => {
                            let what =
                                format!("its self-test, {} by SLH-DSA-SHA2-128f, gave a wrong answer", title(op));
                            assert_eq!((op, why), (wrong, Error::Inconsistent { device: "reference:0".into(), what }));
                        }
                    }
                }
            }
            // Sets without a known answer of their own, and other plans, are tested at once.
            let prepare = |plan: &Plan| programs.prepare(&device, plan, 1, &policy).is_err();
            assert!(prepare(&Plan::new(&TOY_SHA2_16, wrong)));
            assert_eq!(prepare(&Plan::new(p, Op::Sign).with_cached_layers(1)), wrong == Op::Sign);
            assert_eq!(prepare(&Plan::cache(p, 1)), wrong == Op::Keygen);
        }
    }
}
