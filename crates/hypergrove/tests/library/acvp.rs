//! All 1,248 ACVP cases through the engine, as jobs and as rows, by the fastest instruction set of the CPU and by the first GPU; the other
//! instruction sets take the cases of the sets called 128f, and with HYPERGROVE_TESTS=all (`cargo xtask ci full`) all as
//! well. The draft sets' known answers; two independent crates.

use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{
    BackendEntry, Cpu, Engine, Isa, Mode, Params, Randomizer, Seeds, SignJob, Signature, SigningKey, VerifyJob,
    VerifyingKey, signature,
};
use hypergrove_testkit::acvp;
use sha2::{Digest, Sha256};
use std::sync::Arc;

fn engine(isa: Isa) -> Option<Engine> {
    let cpu = Cpu::with(isa)?;
    Some(Engine::builder().backend(Arc::new(cpu)).build().expect("an engine"))
}

/// Which cases an engine takes.
#[derive(Clone, Copy, PartialEq)]
enum Share {
    All,
    /// Those of the sets called 128f.
    Fastest,
}

impl Share {
    fn takes(self, p: &Params) -> bool {
        match self {
            Share::All => true,
            Share::Fastest => p.name.ends_with("128f"),
        }
    }
}

/// Every instruction set of this CPU, and the first device of each GPU driver, if there is one.
fn engines() -> impl Iterator<Item = (Engine, &'static str, Share)> {
    let share = |fastest| if fastest || hypergrove_testkit::all() { Share::All } else { Share::Fastest };
    let fastest = Isa::fastest();
    let cpus = Isa::available().into_iter();
    let cpus = cpus.filter_map(move |isa| Some((engine(isa)?, isa.name(), share(isa == fastest))));
    cpus.chain(hypergrove::BACKENDS.iter().filter(|entry| entry.name != "cpu").filter_map(gpu))
}

fn gpu(entry: &BackendEntry) -> Option<(Engine, &'static str, Share)> {
    let backend = (entry.make)(Some(&std::env::temp_dir().join("hypergrove-test-kernels")));
    if let Some(why) = backend.absent() {
        println!("skipped: {}: ACVP: {why}", entry.name);
        return None;
    }
    if !backend.devices().expect("devices")[0].automatic {
        if !hypergrove_testkit::all() {
            println!("skipped: {}: ACVP: a CPU under a GPU's driver takes minutes: HYPERGROVE_TESTS=all", entry.name);
            return None;
        }
        // See the conformance suite of Vulkan.
        hypergrove_testkit::one_at_a_time();
    }
    Some((Engine::builder().backend(backend).build().expect("an engine"), entry.name, Share::All))
}

#[test]
fn keygen() {
    let cases = acvp::keygen();
    assert_eq!(cases.len(), 120);
    for (engine, isa, share) in engines() {
        let mut done = 0;
        for (p, case) in cases.iter().filter(|(p, _)| share.takes(p)) {
            let seeds = Seeds {
                sk_seed: case.sk_seed.clone().into(),
                sk_prf: case.sk_prf.clone().into(),
                pk_seed: case.pk_seed.clone(),
            };
            let key = engine.from_seeds(*p, &[seeds]).expect("a key").remove(0);
            assert_eq!(*key.to_bytes(), case.sk, "{p}, {isa}");
            assert_eq!(key.verifying_key().to_bytes(), case.pk, "{p}, {isa}");
            done += 1;
        }
        println!("checked: ACVP keyGen: {done} cases by {isa}");
    }
}

#[test]
fn siggen_and_every_signature_verified() {
    let cases = acvp::siggen();
    assert_eq!(cases.len(), 624);
    for (engine, isa, share) in engines() {
        let cases: Vec<_> = cases.iter().filter(|(group, _)| share.takes(group.params)).collect();
        let keys: Vec<SigningKey> = cases.iter().map(|(group, case)| case.key(group).into()).collect();
        let jobs = cases.iter().zip(&keys).map(|((group, case), key)| {
            let randomness = case.additional_randomness.as_deref();
            let randomizer = randomness.map_or(Randomizer::Deterministic, Randomizer::Given);
            SignJob::new(key, &case.message).mode(group.mode()).randomizer(randomizer)
        });
        let mut signatures = Vec::new();
        engine.sign_batch(jobs, |_, signature| signatures.push(signature.expect("a signature"))).expect("a batch");
        assert_eq!(signatures.len(), cases.len());
        for ((group, case), signature) in cases.iter().zip(&signatures) {
            let what = format!("case {}, {}, {isa}", case.tc_id, group.params);
            assert_eq!(Sha256::digest(signature.as_bytes())[..], case.signature_sha256, "{what}");
        }
        let public: Vec<VerifyingKey> = keys.iter().map(SigningKey::verifying_key).collect();
        let jobs = cases.iter().zip(&public).zip(&signatures).map(|(((group, case), key), signature)| {
            VerifyJob::new(key, &case.message, signature.as_bytes()).mode(group.mode())
        });
        let mut verdicts = Vec::new();
        engine.verify_batch(jobs, |_, verdict| verdicts.push(verdict.expect("a verdict"))).expect("a batch");
        assert_eq!(verdicts, vec![true; cases.len()], "{isa}");
        let mut in_rows = 0;
        for alike in cases.chunk_by(|(a, case_a), (b, case_b)| {
            let is_given = |case: &acvp::SigGen| case.additional_randomness.is_some();
            (a.params, a.mode(), is_given(case_a)) == (b.params, b.mode(), is_given(case_b))
        }) {
            let at = in_rows..in_rows + alike.len();
            let (group, p) = (&alike[0].0, alike[0].0.params);
            in_rows = at.end;
            // Signed again in rows: the cheap sets alone.
            let randomness: Option<Vec<&[u8]>> =
                alike.iter().map(|(_, case)| case.additional_randomness.as_deref()).collect();
            let randomness = randomness.map(|all| all.concat());
            if Share::Fastest.takes(p) {
                let of: Vec<u32> = (0..alike.len() as u32).collect();
                let texts: Vec<&[u8]> = alike.iter().map(|(_, case)| &case.message[..]).collect();
                let rows = SignRows {
                    keys: RowSigningKeys::Table { keys: &keys[at.clone()], of: &of },
                    mode: group.mode(),
                    messages: Column::Slices(&texts),
                    randomizer: randomness.as_deref().map_or(Randomizer::Deterministic, Randomizer::Given),
                };
                let (mut bytes, mut statuses) =
                    (vec![0; alike.len() * p.sig_bytes()], vec![RowStatus::default(); alike.len()]);
                engine.sign_rows(&rows, &mut bytes, &mut statuses).expect("rows");
                let expected: Vec<u8> = signatures[at.clone()].iter().flat_map(|it| it.as_bytes().to_vec()).collect();
                assert!(bytes == expected, "{p}, {isa}");
            }
        }
        assert_eq!(in_rows, cases.len());
        println!("checked: ACVP sigGen: {} cases made and verified by {isa}", cases.len());
    }
}

#[test]
fn sigver() {
    let cases = acvp::sigver();
    assert_eq!(cases.len(), 504);
    let keys: Vec<VerifyingKey> = cases.iter().map(|(group, case)| case.key(group).into()).collect();
    for (engine, isa, _) in engines() {
        let jobs = cases
            .iter()
            .zip(&keys)
            .map(|((group, case), key)| VerifyJob::new(key, &case.message, &case.signature).mode(group.mode()));
        let (mut valid, mut alone) = (0, 0);
        engine
            .verify_batch(jobs, |index, verdict| {
                let (group, case) = &cases[index];
                // A signature of a wrong length is not valid.
                let verdict = verdict.expect("a verdict");
                assert_eq!(verdict, case.test_passed, "case {}, {}, {isa}", case.tc_id, group.params);
                valid += usize::from(verdict);
            })
            .expect("a batch");
        assert_eq!(valid, 72);
        // Sets and modes of a call of rows are one each.
        let mut in_rows = 0;
        for alike in cases.chunk_by(|(a, _), (b, _)| (a.params, a.mode()) == (b.params, b.mode())) {
            let group = &alike[0].0;
            let encoded: Vec<Vec<u8>> =
                keys[in_rows..in_rows + alike.len()].iter().map(VerifyingKey::to_bytes).collect();
            let encoded: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
            let messages: Vec<&[u8]> = alike.iter().map(|(_, case)| &case.message[..]).collect();
            let signatures: Vec<&[u8]> = alike.iter().map(|(_, case)| &case.signature[..]).collect();
            let rows = VerifyRows {
                keys: RowVerifyingKeys::Encoded { params: group.params, keys: Column::Slices(&encoded) },
                mode: group.mode(),
                messages: Column::Slices(&messages),
                signatures: Column::Slices(&signatures),
            };
            let mut statuses = vec![RowStatus::default(); alike.len()];
            engine.verify_rows(&rows, &mut statuses).expect("rows");
            for ((_, case), status) in alike.iter().zip(statuses) {
                assert_eq!(status == RowStatus::Valid, case.test_passed, "case {} in rows, {isa}", case.tc_id);
                in_rows += 1;
            }
        }
        assert_eq!(in_rows, cases.len());
        // One at a time as well: another way through lanes and threads.
        for ((group, case), key) in cases.iter().zip(&keys).step_by(7) {
            let verdict = engine.verify(key, group.mode(), &case.message, &case.signature).expect("a verdict");
            assert_eq!(verdict, case.test_passed, "case {} alone", case.tc_id);
            alone += 1;
        }
        println!("checked: ACVP sigVer: {} cases in a batch, {alone} alone, by {isa}", cases.len());
    }
}

/// The draft sets' known answers. 2^22 leaves a key and up to 2^28 in FORS: minutes on one core.
#[test]
#[ignore = "about 2^31 compressions a set: minutes"]
fn draft_sets() {
    let Some(cases) = hypergrove_testkit::vectors::sp800_230_draft() else { return };
    let engine = Engine::new().expect("an engine");
    for case in cases {
        let p: &Params = case.parameter_set.parse().expect("a draft set");
        let seeds = Seeds {
            sk_seed: case.sk_seed.clone().into(),
            sk_prf: case.sk_prf.clone().into(),
            pk_seed: case.pk_seed.clone(),
        };
        let start = std::time::Instant::now();
        let key = engine.from_seeds(p, &[seeds]).expect("a key").remove(0);
        let made = start.elapsed();
        if case.signature_digest.is_some() {
            assert_eq!(key.verifying_key().to_bytes(), case.pk, "{p}");
        }
        // With its one tree cached, signing is FORS alone.
        let start = std::time::Instant::now();
        let cached = engine.cache(&key, 1).expect("the tree");
        let cache = start.elapsed();
        let start = std::time::Instant::now();
        let randomizer = Randomizer::Given(&case.additional_randomness);
        let signature = engine.sign(&cached, Mode::Internal, &case.message, randomizer).expect("a signature");
        println!("checked: {p}: key {made:.1?}, cache {cache:.1?}, signature {:.1?}", start.elapsed());
        assert_eq!(signature.as_bytes()[..p.n], case.r, "{p}");
        if let Some(want) = &case.signature_digest {
            let digest = match p.family {
                hypergrove::Family::Sha2 => Sha256::digest(signature.as_bytes()).to_vec(),
                hypergrove::Family::Shake => {
                    use shake::digest::{ExtendableOutput, Update};
                    let mut out = vec![0; 32];
                    shake::Shake256::default().chain(signature.as_bytes()).finalize_xof_into(&mut out);
                    out
                }
            };
            assert_eq!(digest, *want, "{p}");
        }
        let public = key.verifying_key();
        assert!(engine.verify(&public, Mode::Internal, &case.message, signature.as_bytes()).expect("a verdict"));
    }
}

/// Signatures made here are accepted by the independent crate `slh-dsa`, whose own are accepted here.
#[test]
fn an_independent_crate_agrees() {
    use slh_dsa::signature::{Keypair as _, Signer as _, Verifier as _};
    let engine = Engine::new().expect("an engine");
    fn check<P: slh_dsa::ParameterSet>(engine: &Engine, p: &'static hypergrove::Params) {
        let key = engine.generate(p).expect("a key");
        let theirs = slh_dsa::SigningKey::<P>::try_from(&key.to_bytes()[..]).expect("their key");
        for message in [&b""[..], b"a", &[7; 5000]] {
            let ours = engine.sign(&key, Mode::Pure { context: b"" }, message, Randomizer::Hedged).expect("ours");
            let read = slh_dsa::Signature::<P>::try_from(ours.as_bytes()).expect("a signature");
            theirs.verifying_key().verify(message, &read).unwrap_or_else(|_| panic!("{p}: they refuse ours"));
            let made: Signature = Signature::from_bytes(p, theirs.sign(message).to_vec()).expect("a signature");
            signature::Verifier::verify(&key.verifying_key(), message, &made)
                .unwrap_or_else(|_| panic!("{p}: we refuse theirs"));
        }
    }
    check::<slh_dsa::Sha2_128f>(&engine, &hypergrove::SLH_DSA_SHA2_128F);
    check::<slh_dsa::Shake128f>(&engine, &hypergrove::SLH_DSA_SHAKE_128F);
    check::<slh_dsa::Sha2_192f>(&engine, &hypergrove::SLH_DSA_SHA2_192F);
    check::<slh_dsa::Sha2_256f>(&engine, &hypergrove::SLH_DSA_SHA2_256F);
    check::<slh_dsa::Shake256f>(&engine, &hypergrove::SLH_DSA_SHAKE_256F);
    check::<slh_dsa::Sha2_128s>(&engine, &hypergrove::SLH_DSA_SHA2_128S);
}
