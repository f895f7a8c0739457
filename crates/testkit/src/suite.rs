//! The conformance suite: what every backend must pass. A backend proves itself by one line,
//! [`backend_tests!`](crate::backend_tests).

use crate::negative;
use crate::toys::TOYS;
use hypergrove_engine::nodes::CachedNodes;
use hypergrove_engine::self_test::known_answer;
use hypergrove_engine::{Backend, Batch, Error, Key, Places, Policy, Reference, Work};
use hypergrove_fips205::digest::MPrime;
use hypergrove_fips205::plan::{Op, Plan, Slot, cache_bytes};
use hypergrove_fips205::{PARAMETER_SETS, Params, Position};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// Makes a module of tests that all call this suite; `$backend` is an `Option` of a pointer to a backend, `None` where the machine
/// cannot run it, which is said by name.
#[macro_export]
macro_rules! backend_tests {
    ($name:ident, $backend:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::backend_tests!(@each $name, $backend,
                odd_batches_and_mixed_keys every_set toys_exhaustively every_policy_gives_the_same_bytes
                cached_layers_give_the_same_bytes other_places_give_the_same_bytes bad_batches_are_refused
                negative_corpus messages_are_hashed_by_devices);
        }
    };
    (@each $name:ident, $backend:expr, $($test:ident)*) => { $(
        #[test]
        fn $test() {
            match $backend {
                Some(backend) => $crate::suite::$test(&*backend),
                None => println!("skipped: {}: {}: not on this machine", stringify!($name), stringify!($test)),
            }
        }
    )* };
}

pub use crate::digests::check as messages_are_hashed_by_devices;

/// Seeds, positions and what a program of the reference makes of them.
struct Case {
    p: &'static Params,
    seeds: Vec<(Vec<u8>, Vec<u8>)>,
    key_of: Vec<u32>,
    positions: Vec<Position>,
}

/// Bytes without structure.
fn noise(len: usize, salt: u64) -> Vec<u8> {
    let mut x = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .collect()
}

/// The result of a run: the output, and the slots that are kept.
type Ran = (Vec<u8>, [Option<Vec<u8>>; 3]);

fn run(backend: &dyn Backend, plan: &Plan, batch: &Batch<'_>, policy: &Policy) -> Ran {
    let device = &backend.devices().expect("devices")[0];
    let programs = backend.slh_dsa_on(device).expect("SLH-DSA");
    let mut program = programs.prepare(device, plan, batch.len(), policy).expect("prepared");
    // Poisoned: every byte must be written.
    let mut out = vec![0xa5; batch.len() * plan.out_bytes()];
    program.run_batch(batch, &mut out).expect("runs");
    if plan.op == Op::Sign {
        let n = plan.params.n;
        for signature in out.chunks_mut(plan.params.sig_bytes()) {
            assert_eq!(signature[..n], vec![0xa5; n], "R is the host's");
        }
    }
    let slots = [Slot::ForsRoots, Slot::ForsPk, Slot::XmssRoots];
    (out, slots.map(|slot| program.read(slot).expect("it is read")))
}

/// A function that runs batches on this backend by this policy.
fn by(backend: &dyn Backend, policy: &Policy) -> impl Fn(&Plan, &Batch<'_>) -> Ran {
    move |plan, batch| run(backend, plan, batch, policy)
}

/// The reference's result for a batch. It takes most of the time, and every instruction set of a CPU asks it for the same
/// batches: this process computes each once.
fn reference(plan: &Plan, batch: &Batch<'_>) -> Arc<Ran> {
    type Once = Arc<OnceLock<Arc<Ran>>>;
    static KNOWN: LazyLock<Mutex<HashMap<u64, Once>>> = LazyLock::new(Mutex::default);
    let keys: Vec<_> = batch.keys.iter().map(|key| (key.pk_seed, key.sk_seed, key.cached_nodes)).collect();
    let positions: Vec<_> = batch.positions.iter().map(|at| (&*at.fors, at.idx_tree, at.idx_leaf)).collect();
    let batch_id = identity(&(plan, keys, batch.key_of, positions, batch.signatures));
    let known = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(batch_id).or_default().clone()
    };
    known.get_or_init(|| Arc::new(run(&Reference, plan, batch, &Policy::default()))).clone()
}

/// A number that things share with their equals alone, except by a chance of 2^−64 or so.
fn identity(thing: &impl Hash) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    thing.hash(&mut hasher);
    hasher.finish().max(1)
}

impl Case {
    fn new(p: &'static Params, keys: usize, jobs: usize) -> Case {
        let seeds = (0..keys as u64).map(|k| (noise(p.n, 2 * k), noise(p.n, 2 * k + 1))).collect();
        let key_of = (0..jobs).map(|j| (j * 7 % keys) as u32).collect();
        let positions = (0..jobs as u64).map(|j| Position::split(p, &noise(p.m, j + 1000))).collect();
        Case { p, seeds, key_of, positions }
    }
    fn keys<'a>(&'a self, secret: bool, cached: &'a [Vec<u8>]) -> Vec<Key<'a>> {
        let key = |(i, (pk_seed, sk_seed)): (usize, &'a (Vec<u8>, Vec<u8>))| Key {
            cached_nodes: cached.get(i).map_or(&[], |nodes| nodes),
            cached_id: cached.get(i).map_or(0, identity),
            ..Key::of_seeds(pk_seed, if secret { sk_seed } else { &[] })
        };
        self.seeds.iter().enumerate().map(key).collect()
    }
    fn keygen<R>(&self, run: impl Fn(&Plan, &Batch<'_>) -> R) -> R {
        let batch = Batch { keys: &self.keys(true, &[]), key_of: &self.key_of, positions: &[], signatures: &[] };
        run(&Plan::new(self.p, Op::Keygen), &batch)
    }
    fn sign<R>(&self, run: impl Fn(&Plan, &Batch<'_>) -> R) -> R {
        self.sign_with(&Plan::new(self.p, Op::Sign), &[], run)
    }
    fn sign_with<R>(&self, plan: &Plan, cached: &[Vec<u8>], run: impl Fn(&Plan, &Batch<'_>) -> R) -> R {
        let keys = self.keys(true, cached);
        run(plan, &Batch { keys: &keys, key_of: &self.key_of, positions: &self.positions, signatures: &[] })
    }
    fn verify<R>(&self, signatures: &[u8], run: impl Fn(&Plan, &Batch<'_>) -> R) -> R {
        let keys = self.keys(false, &[]);
        let signatures: Vec<&[u8]> = signatures.chunks(self.p.sig_bytes()).collect();
        let batch = Batch { keys: &keys, key_of: &self.key_of, positions: &self.positions, signatures: &signatures };
        run(&Plan::new(self.p, Op::Verify), &batch)
    }
    /// Keygen, sign and verify against the reference, slots and all; gives the signatures.
    fn check(&self, backend: &dyn Backend, policy: &Policy) -> Vec<u8> {
        let jobs = self.key_of.len();
        let p = self.p;
        let roots = self.keygen(by(backend, policy)).0;
        assert_eq!(roots, self.keygen(reference).0, "{p}, {jobs} key pairs");
        let signed = self.sign(by(backend, policy));
        same(p, "sign", &signed, &self.sign(reference));
        let verified = self.verify(&signed.0, by(backend, policy));
        same(p, "verify", &verified, &self.verify(&signed.0, reference));
        assert_eq!(verified.0, roots, "{p}: {jobs} signatures lead to their keys' roots");
        signed.0
    }
}

fn same(p: &Params, what: &str, got: &Ran, want: &Ran) {
    for (name, (got, want)) in ["FORS roots", "PK_FORS", "XMSS roots"].iter().zip(got.1.iter().zip(&want.1)) {
        if let (Some(got), Some(want)) = (got, want) {
            assert!(got == want, "{p}: {what}: {name} differ from the reference's");
        }
    }
    let at = got.0.iter().zip(&want.0).position(|(got, want)| got != want);
    assert!(got.0 == want.0, "{p}: {what}: byte {at:?} differs from the reference's");
}

fn toys() -> impl Iterator<Item = &'static Params> {
    TOYS.iter().copied()
}

/// Batch sizes around every lane width, one key and several: each size with both numbers of keys if all is tested, and otherwise with
/// one of them, by turns.
pub fn odd_batches_and_mixed_keys(backend: &dyn Backend) {
    for (turn, p) in toys().enumerate() {
        for (at, jobs) in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65].into_iter().enumerate() {
            let keys: &[usize] = if crate::all() { &[1, 3] } else { &[[1, 3][(turn + at) % 2]] };
            for keys in keys {
                Case::new(p, *keys, jobs).check(backend, &Policy::default());
            }
        }
    }
    Case::new(&hypergrove_fips205::SLH_DSA_SHA2_128F, 2, 5).check(backend, &Policy::default());
    Case::new(&hypergrove_fips205::SLH_DSA_SHAKE_192F, 3, 4).check(backend, &Policy::default());
}

/// The known answers of the twelve sets of the standard, which an engine requires of a device before it uses the device.
pub fn known_answers_of_every_set(backend: &dyn Backend) {
    let device = &backend.devices().expect("devices")[0];
    for p in PARAMETER_SETS {
        for op in [Op::Keygen, Op::Sign, Op::Verify] {
            known_answer(backend, device, p, op).unwrap_or_else(|why| panic!("{p}: {op:?}: {why}"));
        }
    }
}

/// The twelve sets of the standard if all is tested, and otherwise the f sets and the s set with the fewest hashes; two keys in a batch for
/// the f sets. The known answers of all twelve are in [`known_answers_of_every_set`].
pub fn every_set(backend: &dyn Backend) {
    let is_fast = |p: &Params| p.name.ends_with('f');
    for p in PARAMETER_SETS.iter().filter(|p| crate::all() || is_fast(p) || p.name == "SLH-DSA-SHA2-128s") {
        let jobs = if is_fast(p) { 2 } else { 1 };
        Case::new(p, jobs, jobs).check(backend, &Policy::default());
    }
}

/// Every leaf signs what the reference signs there, every value of a digit occurs, and no signature with one changed
/// byte leads to the root.
pub fn toys_exhaustively(backend: &dyn Backend) {
    let default = Policy::default();
    for p in toys() {
        let leaves = 1u64 << p.h;
        let mut case = Case::new(p, 1, leaves as usize);
        for (leaf, position) in case.positions.iter_mut().enumerate() {
            position.idx_tree = leaf as u64 >> p.hp;
            position.idx_leaf = leaf as u32 & ((1 << p.hp) - 1);
            for (i, index) in position.fors.iter_mut().enumerate() {
                *index = (leaf + i) as u32 % (1 << p.a);
            }
        }
        let signatures = case.check(backend, &default);
        let root = case.keygen(by(backend, &default)).0[..p.n].to_vec();

        let signature = &signatures[..p.sig_bytes()];
        let flips: Vec<u8> = (p.n..p.sig_bytes())
            .flat_map(|at| {
                let mut wrong = signature.to_vec();
                wrong[at] ^= 1 << (at % 8);
                wrong
            })
            .collect();
        let jobs = p.sig_bytes() - p.n;
        let wrong =
            Case { p, seeds: case.seeds.clone(), key_of: vec![0; jobs], positions: vec![case.positions[0]; jobs] };
        let roots = wrong.verify(&flips, by(backend, &default)).0;
        for (at, found) in roots.chunks(p.n).enumerate() {
            assert!(found != root, "{p}: a signature with byte {} changed was accepted", at + p.n);
        }
    }
}

/// All of a list, if all is tested. Otherwise every fourth entry, from another one for each of the four toy sets: some set has each.
fn by_turns<T>(list: Vec<T>, turn: usize) -> impl Iterator<Item = T> {
    let step = if crate::all() { 1 } else { TOYS.len() };
    list.into_iter().skip(turn % step).step_by(step)
}

/// The theorem that makes tuning safe: a policy changes time, never bytes. Unless all is tested, the toy sets have policies by turns, and the
/// set of the standard has the last value of each axis.
pub fn every_policy_gives_the_same_bytes(backend: &dyn Backend) {
    for (turn, p) in toys().chain([&hypergrove_fips205::SLH_DSA_SHA2_128F]).enumerate() {
        let is_toy = p.h <= 8;
        let case = Case::new(p, 2, if is_toy { 21 } else { 2 });
        let (signed, generated) = (case.sign(reference), case.keygen(reference));
        let (want, roots) = (&signed.0, &generated.0);
        let mut policies = policies(backend, p);
        if !is_toy && !crate::all() {
            policies.reverse();
            policies.dedup_by_key(|(policy, _)| policy.0[0].0);
        }
        if is_toy {
            policies = by_turns(policies, turn).collect();
        }
        for (policy, what) in policies {
            assert!(case.keygen(by(backend, &policy)).0 == *roots, "keygen, {what}");
            assert!(case.sign(by(backend, &policy)).0 == *want, "sign, {what}");
            assert!(case.verify(want, by(backend, &policy)).0 == *roots, "verify, {what}");
        }
    }
}

/// Signing with the nodes of any number of top layers at hand; by policies as in
/// [`every_policy_gives_the_same_bytes`].
pub fn cached_layers_give_the_same_bytes(backend: &dyn Backend) {
    let f = &hypergrove_fips205::SLH_DSA_SHA2_128F;
    for (turn, (p, most)) in toys().map(|p| (p, p.d)).chain([(f, 3)]).enumerate() {
        let case = Case::new(p, 2, 5);
        let want = case.sign(reference);
        for layers in 1..=most {
            for threads in [1, 2] {
                let policy = threads_policy(backend, p, threads);
                let keys = case.keys(true, &[]);
                let batch = Batch { keys: &keys, key_of: &[0, 1], positions: &[], signatures: &[] };
                let plan = Plan::cache(p, layers);
                let nodes = run(backend, &plan, &batch, &policy).0;
                let each = cache_bytes(p, layers).expect("small");
                if p.h <= 8 {
                    assert!(nodes == reference(&plan, &batch).0, "{p}: nodes of {layers} layers");
                }
                let cached: Vec<Vec<u8>> = nodes.chunks(each).map(<[u8]>::to_vec).collect();
                CachedNodes::new(p, layers, &cached[0]).expect("the right length");
                let plan = Plan::new(p, Op::Sign).with_cached_layers(layers);
                for again in [false, true] {
                    let signed = case.sign_with(&plan, &cached, by(backend, &policy));
                    let what = if again { "seen before" } else { "at first sight" };
                    assert!(signed.0 == want.0, "{p}: {layers} cached layers, {threads} threads, {what}");
                }
                if threads == 1 && layers == most && p.h <= 8 {
                    for (policy, what) in by_turns(policies(backend, p), turn) {
                        let signed = case.sign_with(&plan, &cached, by(backend, &policy));
                        assert!(signed.0 == want.0, "{what}, {layers} cached layers");
                    }
                }
            }
        }
    }
}

/// A program computes the same in other places of the device: around every lane width, with one key and several.
pub fn other_places_give_the_same_bytes(backend: &dyn Backend) {
    let relocated = |plan: &Plan, batch: &Batch<'_>| {
        let device = &backend.devices().expect("devices")[0];
        let programs = backend.slh_dsa_on(device).expect("SLH-DSA");
        let mut program = programs.prepare(device, plan, batch.len().max(2), &Policy::default()).expect("prepared");
        let [moved, back] = [Places::Other, Places::Usual].map(|places| {
            let mut out = vec![0; batch.len() * plan.out_bytes()];
            program.run(Work { places, ..Work::of(batch) }, &mut [&mut out]).expect("runs");
            out
        });
        assert!(moved == back, "{:?} of {} jobs, {}", plan.op, batch.len(), plan.params);
        moved
    };
    let f = &hypergrove_fips205::SLH_DSA_SHA2_128F;
    for (p, jobs) in toys().flat_map(|p| [1, 2, 3, 5, 17, 33].map(|jobs| (p, jobs))).chain([(f, 1)]) {
        for keys in [1, 3] {
            let case = Case::new(p, keys, jobs);
            let roots = case.keygen(relocated);
            assert!(case.verify(&case.sign(relocated), relocated) == roots, "{p}: {jobs} signatures, {keys} keys");
            if (jobs, keys) == (1, 1) {
                let batch = Batch { keys: &case.keys(true, &[]), key_of: &[0], positions: &[], signatures: &[] };
                let cached = [relocated(&Plan::cache(p, 1), &batch)];
                let plan = Plan::new(p, Op::Sign).with_cached_layers(1);
                assert!(case.sign_with(&plan, &cached, relocated) == case.sign(relocated), "{p}: a cached layer");
            }
        }
    }
}

/// The roots that the negative corpus' signatures lead to are right where a case is valid, and wrong elsewhere; where lengths
/// or context are wrong, there is no plan. One set, or with HYPERGROVE_TESTS=all all twelve.
pub fn negative_corpus(backend: &dyn Backend) {
    for (p, cases) in negative::signatures(|set| crate::all() || set == "SLH-DSA-SHA2-128s") {
        let mut all = Vec::new();
        for case in cases.iter().filter(|case| case.params == p) {
            let fits = case.key.len() == p.pk_bytes() && case.signature.len() == p.sig_bytes();
            let m_prime = MPrime::new(case.mode(), &case.message);
            let Some(m_prime) = m_prime.ok().filter(|_| fits) else {
                assert!(!case.is_valid, "{}", case.name);
                continue;
            };
            let (pk_seed, pk_root) = case.key.split_at(p.n);
            all.push((case, Position::of(p, &case.signature[p.r_range()], pk_seed, pk_root, &m_prime)));
        }
        let keys: Vec<_> = all.iter().map(|(case, _)| &case.key[..p.n]).collect();
        let keys: Vec<_> = keys.iter().map(|pk_seed| Key::of_seeds(pk_seed, &[])).collect();
        let key_of: Vec<u32> = (0..all.len() as u32).collect();
        let positions: Vec<_> = all.iter().map(|(_, at)| *at).collect();
        let signatures: Vec<_> = all.iter().map(|(case, _)| &case.signature[..]).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &positions, signatures: &signatures };
        let roots = by(backend, &Policy::default())(&Plan::new(p, Op::Verify), &batch).0;
        for ((case, _), root) in all.iter().zip(roots.chunks(p.n)) {
            assert_eq!(root == &case.key[p.n..], case.is_valid, "{}", case.name);
        }
    }
}

/// All policies that name one axis, and what to call them.
fn policies(backend: &dyn Backend, p: &'static Params) -> Vec<(Policy, String)> {
    let device = &backend.devices().expect("devices")[0];
    let mut all = Vec::new();
    let programs = backend.slh_dsa_on(device).expect("SLH-DSA");
    for axis in programs.space(device, &Plan::new(p, Op::Sign)).expect("a space") {
        let more = (axis.name == hypergrove_engine::THREADS).then_some(3);
        for value in axis.values.iter().copied().chain(more) {
            all.push((Policy(vec![(axis.name, value)]), format!("{p}, {} = {value}", axis.name)));
        }
    }
    all
}

fn threads_policy(backend: &dyn Backend, p: &'static Params, threads: u32) -> Policy {
    let device = &backend.devices().expect("devices")[0];
    let programs = backend.slh_dsa_on(device).expect("SLH-DSA");
    let space = programs.space(device, &Plan::new(p, Op::Sign)).expect("a space");
    let has = space.iter().any(|axis| axis.name == hypergrove_engine::THREADS);
    Policy(if has { vec![(hypergrove_engine::THREADS, threads)] } else { Vec::new() })
}

/// Wrong lengths and numbers are errors that name them; a program lives on after one.
pub fn bad_batches_are_refused(backend: &dyn Backend) {
    for p in toys() {
        let case = Case::new(p, 1, 2);
        let keys = case.keys(true, &[]);
        let device = &backend.devices().expect("devices")[0];
        let plan = Plan::new(p, Op::Sign);
        let programs = backend.slh_dsa_on(device).expect("SLH-DSA");
        let mut program = programs.prepare(device, &plan, 2, &Policy::default()).expect("prepared");
        let good = Batch { keys: &keys, key_of: &case.key_of, positions: &case.positions, signatures: &[] };
        let mut out = vec![0; 2 * p.sig_bytes()];
        let mut refused = |batch: &Batch<'_>, out: &mut [u8]| program.run_batch(batch, out).expect_err("a bad batch");
        let short = [Key { sk_seed: &keys[0].sk_seed[1..], ..keys[0] }];
        let expected = Error::Length { what: "SK.seed", want: p.n, got: p.n - 1 };
        assert_eq!(refused(&Batch { keys: &short, ..good }, &mut out), expected);
        assert!(matches!(refused(&Batch { key_of: &[0, 1], ..good }, &mut out), Error::Value { .. }));
        assert!(matches!(refused(&Batch { positions: &case.positions[1..], ..good }, &mut out), Error::Length { .. }));
        assert!(matches!(refused(&good, &mut out[1..]), Error::Length { .. }));
        program.run_batch(&good, &mut out).expect("a good batch after bad ones");
        let unknown = Policy(vec![("no such axis", 1)]);
        assert!(programs.prepare(device, &plan, 2, &unknown).is_err(), "an unknown axis is refused");
    }
}
