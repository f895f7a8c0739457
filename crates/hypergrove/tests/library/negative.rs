//! The negative corpus through the engine: every instruction set of the CPU and the first device of each GPU driver give its
//! verdicts, one at a time, in rows, in batches and in batches of several sets.

use hypergrove::rows::{Column, RowStatus, RowVerifyingKeys, VerifyRows};
use hypergrove::{Cpu, Engine, Isa, VerifyJob, VerifyingKey};
use hypergrove_testkit::negative::{self, Case};
use std::sync::Arc;

/// The CPU's instruction sets, the fastest first, and GPUs; a CPU under a GPU's driver takes part with HYPERGROVE_TESTS=all.
fn engines() -> Vec<(String, Engine)> {
    let fastest = Isa::fastest();
    let others = Isa::available().into_iter().filter(|isa| *isa != fastest);
    let mut all = Vec::new();
    for isa in std::iter::once(fastest).chain(others) {
        let cpu = Cpu::with(isa).expect("it is there");
        all.push((isa.name().into(), Engine::builder().backend(Arc::new(cpu)).build().expect("an engine")));
    }
    for entry in hypergrove::BACKENDS.iter().filter(|entry| entry.name != "cpu") {
        let backend = (entry.make)(Some(&std::env::temp_dir().join("hypergrove-test-kernels")));
        if let Some(why) = backend.absent() {
            println!("skipped: {}: negative corpus: {why}", entry.name);
        } else if !backend.devices().expect("devices")[0].automatic && !hypergrove_testkit::all() {
            println!(
                "skipped: {}: negative corpus: a CPU under a GPU's driver takes minutes: HYPERGROVE_TESTS=all",
                entry.name
            );
        } else {
            all.push((entry.name.into(), Engine::builder().backend(backend).build().expect("an engine")));
        }
    }
    all
}

/// Where the key can be read: what is left to verify.
fn readable(cases: &[Case]) -> Vec<(&Case, VerifyingKey)> {
    let key = |case: &Case| VerifyingKey::from_bytes(case.params, &case.key);
    for case in cases.iter().filter(|case| key(case).is_err()) {
        assert!(!case.is_valid, "{}: its key is refused", case.name);
    }
    cases.iter().filter_map(|case| Some((case, key(case).ok()?))).collect()
}

/// In one batch, valid and invalid ones, sets and modes mixed: an error of a job is a refusal.
fn in_a_batch(engine: &Engine, cases: &[(&Case, VerifyingKey)], what: &str) {
    let jobs = cases.iter().map(|(case, key)| VerifyJob::new(key, &case.message, &case.signature).mode(case.mode()));
    let mut next = 0;
    engine
        .verify_batch(jobs, |index, verdict| {
            let case = cases[index].0;
            assert_eq!((index, verdict.unwrap_or(false)), (next, case.is_valid), "{what}: {}", case.name);
            next += 1;
        })
        .expect("a batch");
    assert_eq!(next, cases.len());
}

/// Rows of one set and mode at a time, with the keys as they are, be they readable or not.
fn in_rows(engine: &Engine, cases: &[Case], what: &str) {
    for alike in cases.chunk_by(|a, b| a.params == b.params && a.mode() == b.mode()) {
        let column = |of: fn(&Case) -> &[u8]| alike.iter().map(of).collect::<Vec<_>>();
        let (keys, messages) = (column(|case| &case.key), column(|case| &case.message));
        let signatures = column(|case| &case.signature);
        let rows = VerifyRows {
            keys: RowVerifyingKeys::Encoded { params: alike[0].params, keys: Column::Slices(&keys) },
            mode: alike[0].mode(),
            messages: Column::Slices(&messages),
            signatures: Column::Slices(&signatures),
        };
        let mut statuses = vec![RowStatus::default(); alike.len()];
        if let Err(why) = engine.verify_rows(&rows, &mut statuses) {
            // The call's own: nothing is valid then.
            assert!(why.to_string().contains("the context has"), "{what}: {why}");
        }
        for (case, status) in alike.iter().zip(statuses) {
            assert_eq!(status == RowStatus::Valid, case.is_valid, "{what}, in rows: {}: {status:?}", case.name);
        }
    }
}

/// The fastest instruction set and GPUs take all sets, the others those of category 1 that SHA2 is in; with
/// HYPERGROVE_TESTS=all all take all.
#[test]
fn every_engine_gives_the_verdicts() {
    let groups = negative::signatures(|_| true);
    for (number, (name, engine)) in engines().iter().enumerate() {
        let is_quick = number > 0 && Isa::by_name(name).is_some() && !hypergrove_testkit::all();
        let mut mixed = Vec::new();
        let mut done = 0;
        for (p, cases) in groups.iter().filter(|(p, _)| !is_quick || p.name.starts_with("SLH-DSA-SHA2-128")) {
            in_rows(engine, cases, &format!("{name}, {p}"));
            let cases = readable(cases);
            in_a_batch(engine, &cases, &format!("{name}, {p}"));
            // Alone: other ways through lanes and threads.
            for (case, key) in cases.iter().step_by(9) {
                let verdict = engine.verify(key, case.mode(), &case.message, &case.signature).unwrap_or(false);
                assert_eq!(verdict, case.is_valid, "{name}, alone: {}", case.name);
            }
            done += cases.len();
            mixed.extend(cases.into_iter().step_by(5));
        }
        // All sets in turns.
        mixed.sort_by_key(|(case, _)| (case.message.len() + case.signature.len() * 7919) % 1009);
        in_a_batch(engine, &mixed, &format!("{name}, mixed"));
        println!("checked: negative corpus: {done} verdicts by {name}");
    }
}

/// The comparison fails where a verdict is wrong: a case that claims to be valid, and is not.
#[test]
#[should_panic(expected = "a wrong claim")]
fn a_wrong_verdict_is_seen() {
    let mut groups = negative::signatures(|set| set == "SLH-DSA-SHA2-128s");
    let case = groups[0].1.iter_mut().find(|case| !case.is_valid && case.name.ends_with("R, first byte"));
    let case = case.expect("a flipped bit of R");
    (case.is_valid, case.name) = (true, "a wrong claim".into());
    in_a_batch(&Engine::new().expect("an engine"), &readable(&groups[0].1), "the fastest");
}
