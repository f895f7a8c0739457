//! Studies: what is measured as data says.

use crate::place::Place;
use serde_json::Value;

fn records(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn studies_measure_and_name_what_they_leave_out() {
    let place = Place::new();
    let few = ["--quick", "--json", "--seconds", "0.001", "--set", "sha2-128f", "--device", "cpu", "--threads", "2"];
    let study = |name: &str, more: &[&str]| {
        let run = place.run(&[&["bench", "--study", name][..], &few, more].concat()).good();
        let records = records(run.text());
        assert!(records.iter().all(|record| record["study"] == name));
        let (skipped, measured): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| !record["skipped"].is_null());
        for record in &measured {
            assert_eq!(record["verified"], true);
            let times = record["times_s"].as_array().unwrap();
            assert!(times.len() >= 3 || record["op"] == "rates");
            assert!(times.iter().all(|time| time.as_f64().unwrap() > 0.0));
        }
        assert!(
            skipped.iter().all(|record| run.stderr.contains(record["skipped"].as_str().unwrap())),
            "{}",
            run.stderr
        );
        (measured, skipped)
    };
    let (measured, skipped) = study("throughput", &["--op", "verify", "--batch", "3"]);
    let shapes: Vec<&str> = measured.iter().map(|record| record["shape"].as_str().unwrap()).collect();
    assert_eq!(shapes, ["one thread", "all threads"]);
    assert_eq!((&measured[1]["policy"]["threads"], &measured[1]["batch"]), (&2.into(), &3.into()));
    assert_eq!(skipped[0]["skipped"], "there is no GPU (none was named)");
    assert!(skipped[0].get("median_s").is_none(), "what was left out has no time");

    let (measured, _) = study("functions", &["--op", "sign"]);
    assert_eq!(measured.len(), 2);
    for (record, threads) in measured.iter().zip(1u32..) {
        let stages = record["stages"].as_array().unwrap();
        let names: Vec<&str> = stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["fors", "xmss", "fors_pk", "wots_select"]);
        assert!(
            stages.iter().all(|stage| stage["threads"] == threads && stage["times_s"].as_array().unwrap().len() >= 3)
        );
    }
    let (measured, _) = study("cache-depth", &["--batch", "4"]);
    assert!(measured.iter().any(|record| record["cached_layers"] == 3 && record["cache_bytes"].as_u64().unwrap() > 0));
    let (measured, skipped) = study("limits", &["--op", "keygen", "--batch", "64"]);
    assert!(measured.iter().any(|record| record["op"] == "rates" && record["rates"]["sha256"].as_f64().unwrap() > 1e5));
    assert_eq!(skipped.len(), 2);
    for of_gpus in ["multi-gpu", "host"] {
        let (measured, skipped) = study(of_gpus, &[]);
        assert!(measured.is_empty() && skipped.len() == 1, "{of_gpus}");
    }
    let (measured, skipped) = study("callers", &["--op", "verify", "--batch", "16"]);
    let shapes: Vec<&str> = measured.iter().map(|record| record["shape"].as_str().unwrap()).collect();
    let ways = ["without tickets", "a thread each", "held by 1 thread", "held by 8 threads"];
    let all: Vec<String> = ways.iter().map(|way| format!("16 callers, {way}")).collect();
    assert_eq!(shapes, all);
    assert!(measured.iter().all(|record| record["p99_s"].as_f64() >= record["median_s"].as_f64()));
    assert_eq!(skipped[0]["skipped"], "there is no GPU (none was named)");
    let (measured, skipped) = study("cores", &["--op", "verify", "--batch", "16"]);
    let shapes: Vec<&str> = measured.iter().map(|record| record["shape"].as_str().unwrap()).collect();
    assert_eq!((shapes, skipped.len()), (vec!["1 thread", "2 threads", "2 processes"], 0));
    let batches: Vec<u64> = measured.iter().map(|record| record["batch"].as_u64().unwrap()).collect();
    let number = |record: usize, field: &str| measured[record][field].as_f64().unwrap_or(f64::NAN);
    assert_eq!(
        (batches, &measured[2]["processes"], &measured[1]["rows"]),
        (vec![16, 32, 32], &2.into(), &"host".into())
    );
    for record in 0..3 {
        let rate = number(record, "batch") / number(record, "median_s");
        assert!((number(record, "ops_per_s") / rate - 1.0).abs() < 1e-6, "{measured:?}");
        assert!(
            (number(record, "limit_fraction") - number(record, "ideal_s") / number(record, "median_s")).abs() < 1e-9
        );
        assert_eq!((number(record, "threads"), number(record, "runs")), (f64::from(1 + (record > 0) as u8), 9.0));
    }
    assert!(number(0, "process_fraction").is_nan() && number(1, "process_fraction") > 0.0);
    let (measured, skipped) = study("crossover", &["--op", "verify", "--within", "0.000001"]);
    assert!(
        measured.is_empty() && skipped.iter().any(|record| record["skipped"].as_str().unwrap().contains("time is up"))
    );

    let table =
        place.run(&["bench", "--study", "ladder", "--quick", "--set", "sha2-128f", "--op", "keygen", "-q"]).good();
    assert!(table.text().lines().count() >= 3 && table.text().contains("lanes"), "{}", table.text());
    place.run(&["bench", "--study", "abacus"]).refuses(&["'abacus'", "throughput, ladder, functions, sha256"]);
    place.run(&["bench", "--study", "ladder", "--redundant"]).refuses(&["--redundant"]);
}
