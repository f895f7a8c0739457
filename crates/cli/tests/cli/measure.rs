//! Commands that measure and explain.

use crate::place::Place;
use serde_json::Value;
use std::fs;

#[test]
fn benchmarks_are_records() {
    let place = Place::new();
    let args = ["bench", "--json", "--set", "sha2-128f", "--seconds", "0.01", "--batch", "3", "--threads", "1"];
    let run = place.run(&args).good();
    let records: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["keygen", "sign", "verify"]);
    for record in &records {
        for (field, value) in [("scheme", "SLH-DSA"), ("set", "SLH-DSA-SHA2-128f"), ("backend", "cpu")] {
            assert_eq!(record[field], value);
        }
        assert_eq!((&record["batch"], &record["threads"]), (&3.into(), &1.into()));
        assert_eq!(record["verified"], true);
        assert!(!record["device"].as_str().unwrap().is_empty());
        assert!(!record["commit"].as_str().unwrap().is_empty());
        let number = |field: &str| record[field].as_f64().unwrap();
        assert!(0.0 < number("min_s") && number("min_s") <= number("median_s"));
        assert!((number("ops_per_s") * number("median_s") - 3.0).abs() < 1e-6);
        assert!((number("limit_fraction") - number("ideal_s") / number("median_s")).abs() < 1e-9);
        assert!(number("limit_fraction") > 0.0);
        assert!(record["rates"]["sha256"].as_f64().unwrap() > 1e5);
        assert!(
            (record["limit"]["sha256"].as_f64().unwrap() - record["rates"]["sha256"].as_f64().unwrap()).abs() < 1.0
        );
        assert_eq!((&record["devices"], &record["redundant"]), (&serde_json::json!(["cpu:0"]), &false.into()));
    }
    let rows = place.run(&[&args[..], &["--rows", "host"]].concat()).good();
    let of_rows: Vec<Value> = rows.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(of_rows.iter().all(|record| record["rows"] == "host" && record["verified"] == true));
    assert!(of_rows.iter().map(|record| record["op"].as_str().unwrap()).eq(ops));
    assert!(records.iter().all(|record| record.get("rows").is_none()));
    place.run(&["bench", "--rows", "moon"]).refuses(&["moon", "host"]);
    let twice = ["--op", "sign", "--redundant", "--device", "cpu,reference", "--batch", "20"];
    let run = place.run(&[&args[..4], &["--seconds", "0.01"], &twice].concat()).good();
    let record: Value = serde_json::from_str(run.text()).unwrap();
    assert_eq!((&record["devices"][1], &record["redundant"]), (&"reference:0".into(), &true.into()));
    let table =
        place.run(&["bench", "--set", "sha2-128f", "--op", "verify", "--seconds", "0.01", "--batch", "1"]).good();
    assert_eq!(table.text().lines().count(), 2);
    assert!(table.text().contains("% of peak"));
    for bad in [["--batch", "0"], ["--seconds", "0"], ["--seconds", "x"], ["--op", "hash"], ["--set", "x"]] {
        place.run(&[&["bench"][..], &bad].concat()).refuses(&[bad[0]]);
    }
    place.run(&["bench", "--set", "sha2-128s", "--cache-layers", "8"]).refuses(&["SLH-DSA-SHA2-128s has 7 layers"]);
}

/// A trace is a whole file or none, and a file that could not be written is refused before anything is measured.
#[test]
fn a_trace_shows_the_steps_of_threads() {
    let place = Place::new();
    let bench = ["bench", "--seconds", "0.01", "--threads", "2", "--device", "cpu", "--trace"];
    let of_set = ["--set", "sha2-128f", "--op", "verify", "--batch", "64"];
    let traced = |more: &[&str]| place.run(&[&bench[..], &["trace.json"], more].concat());
    for (more, sizes) in [
        (&of_set[..], &[16][..]),
        (&["--set", "sha2-128f", "--op", "sign", "--callers", "2"], &[1][..]),
        // A quarter of the jobs, but as many as there are lanes.
        (&["--scheme", "zkdilithium", "--op", "verify", "--batch", "64"], &[16, 32][..]),
    ] {
        let run = traced(&[more, &["--force"]].concat()).good();
        assert!(run.stderr.contains("events in the trace"), "{}", run.stderr);
        let trace: Value = serde_json::from_slice(&place.read("trace.json")).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let (names, steps): (Vec<&Value>, Vec<&Value>) = events.iter().partition(|event| event["ph"] == "M");
        assert!(
            names.iter().any(|name| name["args"]["name"].as_str().unwrap().starts_with("hypergrove-")),
            "{names:?}"
        );
        for step in &steps {
            let number = |field: &str| step[field].as_f64().unwrap();
            assert!(step["ph"] == "X" && number("ts") >= 0.0 && number("dur") >= 0.0, "{step}");
            assert!(names.iter().any(|name| name["tid"] == step["tid"]), "{step}");
        }
        let is_group =
            |step: &&&Value| step["name"] == "group" && sizes.iter().any(|size| step["args"]["jobs"] == *size);
        let mut groups = steps.iter().filter(is_group);
        assert!(groups.any(|step| step["args"]["chunk"].is_u64()), "{more:?}: {steps:?}");
    }
    let before = place.read("trace.json");
    traced(&of_set).refuses(&["trace.json exists", "--force"]);
    assert_eq!(place.read("trace.json"), before);
    place
        .run(&[&bench[..], &["no/trace.json"], &of_set].concat())
        .refuses(&["cannot write to no", "make the directory"]);
    place.run(&[&bench[..], &["."], &of_set].concat()).refuses(&["is a directory", "name a file"]);
    // The measurement fails: nothing is left behind.
    place.run(&[&bench[..], &["other.json", "--cache-layers", "99"], &of_set].concat()).refuses(&["has 22 layers"]);
    place.run(&["bench", "--force"]).refuses(&["--trace"]);
    place.run(&["bench", "--study", "limits", "--trace", "x"]).refuses(&["--trace"]);
    assert_eq!(place.names(), ["trace.json"]);
}

/// Alone, it needs no other option: one set, all operations, a few seconds.
#[test]
fn quick_benchmarks_measure_one_set() {
    let place = Place::new();
    let records = |args: &[&str]| -> Vec<Value> {
        let run = place.run(&[&["bench", "--quick", "--json"], args].concat()).good();
        run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let few = ["--batch", "2"];
    let first = records(&few);
    let ops: Vec<_> = first.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["keygen", "sign", "verify"]);
    assert!(first.iter().all(|record| record["set"] == "SLH-DSA-SHA2-128s"), "{first:?}");
    let named = records(&[&few[..], &["--set", "sha2-128f,sha2-192f", "--op", "verify"]].concat());
    assert!(named.len() == 1 && named[0]["set"] == "SLH-DSA-SHA2-128f", "{named:?}");
    let callers = ["--set", "sha2-128f", "--op", "verify", "--callers", "1,2,3,4,5"];
    let callers: Vec<_> = records(&callers).iter().map(|record| record["callers"].as_u64().unwrap()).collect();
    assert_eq!(callers, [1, 3, 5]);
    let sizes: Vec<_> = records(&["--device", "cpu", "--batch", "16", "--sha256", "64,128,256,512"]);
    assert!(sizes.iter().map(|record| record["message_bytes"].as_u64().unwrap()).eq([64, 256, 512]), "{sizes:?}");
    place.run(&["bench", "--within", "1"]).refuses(&["--study"]);
}

#[test]
fn plans_are_explained() {
    let place = Place::new();
    for op in ["keygen", "sign", "verify"] {
        let run = place.run(&["explain", "--set", "sha2-128f", "--op", op, "--batch", "10", "--json"]).good();
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!((&report["op"], &report["batch"], &report["backend"]), (&op.into(), &10.into(), &"cpu".into()));
        assert!(report["predicted_s"].as_f64().unwrap() > 0.0 && report["ideal_s"].as_f64().unwrap() > 0.0);
        assert!(!report["stages"].as_array().unwrap().is_empty());
        if op == "sign" {
            assert_eq!(report["work"]["sha256"], 106_796.0);
        }
        let text = place.run(&["explain", "--set", "sha2-128f", "--op", op]).good();
        for line in ["set", "op", "device", "plan", "policy", "work", "predicted"] {
            assert!(text.text().lines().any(|l| l.starts_with(line)), "{line}: {}", text.text());
        }
    }
}

/// A prediction comes from the operation itself, on the threads that are used: `bench` measures the same. Where threads had to wait
/// for a core, times say nothing of the machine, and the explanation says so.
#[test]
fn predictions_agree_with_measurements() {
    let place = Place::new();
    let json = |args: &[&str]| serde_json::from_slice::<Value>(&place.run(args).good().stdout).unwrap();
    for (op, batch, threads) in [("sign", "64", "1"), ("keygen", "64", "1"), ("verify", "64", "1"), ("sign", "1", "1")]
    {
        let what = ["--set", "sha2-128f", "--op", op, "--batch", batch, "--threads", threads, "--json"];
        let mut ratios = Vec::new();
        for _ in 0..6 {
            let explained = json(&[&["explain"], &what[..]].concat());
            assert_eq!((&explained["threads"], &explained["predicted_by"]), (&1.into(), &"runs of this engine".into()));
            let measured = json(&[&["bench", "--seconds", "0.2"], &what[..]].concat());
            let ratio = explained["predicted_s"].as_f64().unwrap() / measured["median_s"].as_f64().unwrap();
            let waited = explained["waited"].as_f64().unwrap_or(0.0);
            ratios.push((ratio, waited));
            if (0.75..=1.25).contains(&ratio) {
                break;
            }
        }
        let (last, _) = ratios[ratios.len() - 1];
        let is_busy = ratios.iter().any(|(_, waited)| *waited > 0.1);
        assert!((0.75..=1.25).contains(&last) || is_busy, "{op} {batch}: predicted over measured, waits: {ratios:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_busy_machine_is_named() {
    let place = Place::new();
    if fs::read_to_string("/proc/self/schedstat").is_err() {
        return println!("skipped: waits for a core: this kernel does not report them");
    }
    // More threads than cores wait for each other.
    let threads = (8 * std::thread::available_parallelism().unwrap().get()).to_string();
    let explain = ["explain", "--set", "sha2-128f", "--batch", "256", "--threads", &threads];
    let text = place.run(&explain).good();
    assert!(text.text().contains("the machine is busy: threads waited"), "{}", text.text());
    let report: Value =
        serde_json::from_slice(&place.run(&[&explain[..], &["--json"]].concat()).good().stdout).unwrap();
    assert!((0.1..1.0).contains(&report["waited"].as_f64().unwrap()), "{report}");
}

#[test]
fn devices_are_listed() {
    let place = Place::new();
    let run = place.run(&["devices", "--json"]).good();
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["devices"][0]["backend"], "cpu");
    let portable = report["isas"].as_array().unwrap().iter().find(|isa| isa["name"] == "portable").unwrap();
    assert_eq!(portable["available"], true);
    let device = &report["devices"][0];
    assert!(!device["name"].as_str().unwrap().is_empty());
    assert_eq!((&device["memory"], &device["queue"]), (&0.into(), &1.into()));
    // A backend without a device says why.
    for backend in report["absent"].as_array().unwrap() {
        assert!(!backend["reason"].as_str().unwrap().is_empty());
    }
    let text = place.run(&["devices"]).good();
    for word in ["portable", "cpu:0", "memory", "the host's"] {
        assert!(text.text().contains(word), "{word}: {}", text.text());
    }
}

/// Of each device: nothing; a table of other kernels; one of other drivers; one that holds.
#[test]
fn devices_tell_what_the_tuner_knows() {
    let place = Place::new();
    let run = |args: &[&str]| -> crate::place::Run {
        place.command(args).env("XDG_CONFIG_HOME", place.path("config")).output().unwrap().into()
    };
    let devices = || {
        let report: Value = serde_json::from_slice(&run(&["devices", "--json"]).good().stdout).unwrap();
        report["devices"].as_array().unwrap().clone()
    };
    let has_own = |device: &Value| !device["tuning"]["tables"].as_array().unwrap().is_empty();
    for (i, device) in devices().iter().enumerate() {
        assert_eq!(device["tuning"]["left_out"].as_array().unwrap().len(), 0, "{device}");
        let word = |field: &str| device[field].as_str().unwrap().to_owned();
        let (backend, id) = (word("backend"), format!("{}:{}", word("backend"), device["index"]));
        if !has_own(device) {
            let text = run(&["devices"]).good();
            assert!(text.text().contains(&format!("`hypergrove tune --device {id}` measures")), "{}", text.text());
        }
        let file = place.path("config/hypergrove/tuning").join(&backend).join("own.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let write = |detail: &str, space: &str| {
            let head = format!("backend = {backend:?}\ndevice = {}\ndetail = {detail:?}\n", device["name"]);
            let row = "family = \"SHA2\"\nn = 16\nset = \"SLH-DSA-SHA2-128f\"\nbatch = \"1..\"\njobs = 1\n\
                       seconds = 1e-3\ndefault_seconds = 1e-3\nspread = 0.0\nsamples = 1\n";
            let rows = ["keygen", "sign"].map(|op| format!("[[policy]]\nop = {op:?}\n{row}")).concat();
            fs::write(&file, format!("{head}space = {space:?}\nversion = \"1\"\n{rows}")).unwrap();
            devices()[i]["tuning"].clone()
        };
        let stale = |tuning: Value, words: &[&str]| {
            let said = tuning["left_out"][0].as_str().unwrap().to_owned();
            assert!(words.iter().all(|word| said.contains(word)) && said.contains(file.to_str().unwrap()), "{said}");
            said
        };
        stale(
            write("another driver", ""),
            &["measured with '…' (14 characters, not shown)", &word("detail"), "measures again"],
        );
        let said = stale(write(&word("detail"), "0"), &["have changed since (space '0', here "]);
        let here = said.split("here ").nth(1).unwrap().split(')').next().unwrap();
        let tuning = write(&word("detail"), here);
        assert_eq!(tuning["left_out"].as_array().unwrap().len(), 0, "{tuning}");
        let table = &tuning["tables"][0];
        assert_eq!((&table["rows"], &table["sets"][0]), (&2.into(), &"SLH-DSA-SHA2-128f".into()));
        assert_eq!(table["ops"], serde_json::json!(["keygen", "sign"]));
        let text = run(&["devices"]).good();
        let line = format!("2 rows of SLH-DSA-SHA2-128f, keygen, sign: {}", file.display());
        assert!(text.text().contains(&line) && text.stderr.is_empty(), "{}{}", text.text(), text.stderr);
        let explain = run(&["explain", "--device", &id, "--set", "sha2-128f", "--op", "keygen", "--json"]).good();
        let explain: Value = serde_json::from_slice(&explain.stdout).unwrap();
        assert_eq!(explain["policy_source"], "measured, from a table");
        fs::write(&file, "no table").unwrap();
        let run = run(&["devices"]).good();
        assert!(run.stderr.contains("own.toml is damaged") && !run.text().contains("damaged"), "{}", run.stderr);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn devices_are_chosen_by_name() {
    let place = Place::with_key();
    for i in 0..5 {
        place.write(&format!("m{i}"), format!("message {i}"));
    }
    let sign = |chosen: &[&str]| {
        let files = ["m0", "m1", "m2", "m3", "m4"];
        let args = ["sign", "-v", "--key", "k.pem", "--deterministic", "--force", "--threads", "2"];
        let said = place.run(&[&args[..], &files, chosen].concat()).good().stderr;
        (files.map(|file| fs::read(place.path(&format!("{file}.sig"))).unwrap()), said)
    };
    let (plain, said) = sign(&[]);
    assert!(said.contains("cpu:0"), "{said}");
    for (device, ids) in [
        ("cpu", &["cpu:0"][..]),
        ("CPU:0", &["cpu:0"]),
        ("reference", &["reference:0"]),
        ("cpu,reference:0", &["cpu:0", "reference:0"]),
    ] {
        let (signatures, said) = sign(&["--device", device]);
        assert!(signatures == plain, "{device}");
        assert!(ids.iter().all(|id| said.contains(id)), "{device}: {said}");
    }
    assert!(sign(&["--device", "cpu", "--isa", "portable", "--redundant"]).0 == plain);
    assert!(sign(&["--redundant", "--backend", "reference"]).0 == plain);

    let refuses = |args: &[&str], words: &[&str]| place.run(&[&["devices"][..], args].concat()).refuses(words);
    refuses(&["--device", "tpu:0"], &["no backend 'tpu'", "the devices are cpu:0", "reference:0"]);
    refuses(&["--device", "cpu:1"], &["'cpu:1'", "the devices are cpu:0"]);
    refuses(&["--device", "cpu,cpu:0"], &["cpu:0 is named twice"]);
    refuses(&["--device", "cpu:x"], &["neither a number nor a UUID"]);
    refuses(&["--device", ""], &["no backend ''"]);
    refuses(&["--device", "cpu", "--backend", "cpu"], &["--backend and --device"]);
    refuses(&["--device", "reference", "--isa", "portable"], &["--isa", "reference has none"]);
    refuses(&["--backend", "abacus"], &["abacus", "auto", "cpu", "reference"]);
    let help = place.run(&["sign", "--help"]).good();
    assert!(help.text().contains("SIMD lanes and threads"), "{}", help.text());
}

#[test]
fn quickstart_signs_a_directory_and_leaves_it_alone() {
    let place = Place::new();
    for directory in ["src/deep", "src/target", "src/.git", "src/empty"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    for (name, text) in [("a", "one"), ("deep/b", "two"), ("target/built", "x"), (".git/HEAD", "x"), (".hidden", "x")] {
        place.write(&format!("src/{name}"), text);
    }
    let run = place.run(&["quickstart", "src"]).good();
    for word in [
        "2 files, 6 bytes",
        "2 of 2",
        "one bit of a: its signature is refused",
        "keygen",
        "sign",
        "verify",
        "hash rate",
    ] {
        assert!(run.text().contains(word), "{word}: {}", run.text());
    }
    assert_eq!(place.names(), ["src"]);
    assert_eq!(fs::read_dir(place.path("src")).unwrap().count(), 6);

    place.run(&["quickstart", "src", "--keep", "kept"]).good();
    place.run(&["verify", "--key", "kept/public.pem", "src/a", "-s", "kept/signatures/a.sig"]).good();
    place.run(&["verify", "--key", "kept/private.pem", "src/deep/b", "-s", "kept/signatures/deep/b.sig"]).good();
    place.run(&["quickstart", "src", "--keep", "kept"]).refuses(&["kept", "exist"]);
    place.run(&["quickstart", "src/empty"]).refuses(&["no files to sign in src/empty"]);
    place.run(&["quickstart", "missing"]).refuses(&["missing", "no such"]);
    place.run(&["quickstart", "src/a"]).refuses(&["src/a"]);
}

#[test]
fn policies_are_tuned_kept_and_used() {
    let place = Place::new();
    // A table holds for one instruction set, and on a machine under load another may be the fastest the next time.
    let isa = hypergrove::Isa::fastest().name();
    let run = |args: &[&str]| -> crate::place::Run {
        let mut command = place.command(&[args, &["--isa", isa]].concat());
        command.env("XDG_CONFIG_HOME", place.path("config")).env("XDG_STATE_HOME", place.path("state"));
        command.output().unwrap().into()
    };
    let tune = ["tune", "--device", "cpu", "--set", "sha2-128f", "--op", "keygen", "--threads", "2", "--batch", "4"];
    let few = ["--axis", "threads,xmss_leaves", "--budget", "4s"];
    let text = run(&[&tune[..], &few].concat()).good();
    assert!(text.text().lines().nth(1).unwrap().contains("keygen") && text.text().contains('±'), "{}", text.text());
    let explain = |op: &str| {
        let args = ["explain", "--set", "sha2-128f", "--op", op, "--batch", "4", "--threads", "2", "--json"];
        serde_json::from_slice::<Value>(&run(&args).good().stdout).unwrap()
    };
    assert_eq!(explain("keygen")["policy_source"], "measured, from a table");
    assert_eq!(explain("sign")["policy_source"], "the backend's defaults");

    // Another op's rows are added. A sweep has every policy.
    let sweep = ["--op", "verify", "--axis", "verify_group", "--search", "grid", "--budget", "20s", "--json"];
    let row = run(&[&tune[..5], &["--batch", "8", "--threads", "2"], &sweep].concat()).good();
    let row: Value = serde_json::from_slice(&row.stdout).unwrap();
    assert!(row["samples"].as_u64().unwrap() >= 5 * 7, "{row}");
    let backend = place.path("config/hypergrove/tuning/cpu");
    let tables: Vec<_> = fs::read_dir(&backend).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [table] = &tables[..] else { panic!("{tables:?}") };
    let text = fs::read_to_string(table).unwrap();
    assert_eq!(text.matches("[[policy]]").count(), 2, "{text}");
    assert!(place.path("state/hypergrove/tune").read_dir().unwrap().next().is_some(), "samples are kept");

    // Stale and damaged tables: a line each, and the defaults.
    let row = |axes: &str, seconds: &str| {
        format!(
            "{}[[policy]]\nfamily = \"SHA2\"\nn = 16\nop = \"keygen\"\nbatch = \"1..\"\njobs = 4\naxes = {{ {axes} }}\n\
             seconds = {seconds}\ndefault_seconds = 1.0\nspread = 0.01\nsamples = 9\n",
            &text[..text.find("[[policy]]").unwrap()]
        )
    };
    fs::write(table, row("threads = 1", "0.5")).unwrap();
    assert_eq!(explain("keygen")["policy_source"], "measured, from a table");
    for (damaged, said) in [
        (text.replace("space = \"", "space = \"x"), "changed"),
        (text[..200].into(), "damaged"),
        (row("threads = 0", "0.5"), "threads = 0"),
        (row("check = 0", "0.5"), "no axis 'check'"),
        (row("threads = 1", "1e300"), "no measurement gives 4 jobs"),
    ] {
        fs::write(table, damaged).unwrap();
        let explained = run(&["explain", "--set", "sha2-128f", "--op", "keygen", "--json"]).good();
        let lines: Vec<_> = explained.stderr.lines().filter(|line| line.contains(said)).collect();
        assert!(lines.len() == 1 && lines[0].contains(table.to_str().unwrap()), "{}", explained.stderr);
    }

    // A file that is no table stays as it is.
    let letter = place.path("letter.txt");
    fs::write(&letter, "Dear reader").unwrap();
    let onto_a_letter = [&tune[..], &few, &["--output", letter.to_str().unwrap()]].concat();
    run(&onto_a_letter).refuses(&["letter.txt", "not replaced", "--output"]);
    assert_eq!(fs::read_to_string(&letter).unwrap(), "Dear reader");
    // Nor do the samples make way for their table.
    let samples = place.path("state/hypergrove/tune").read_dir().unwrap().next().unwrap().unwrap().path();
    let samples = samples.to_str().unwrap().replace(".last.jsonl", ".jsonl");
    run(&[&tune[..], &few, &["--output", &samples]].concat()).refuses(&[".jsonl is no table of policies", "--output"]);
    fs::remove_file(table).unwrap();

    run(&["tune", "--axis", "check"]).refuses(&["check", "xmss_leaves"]);
    run(&["tune", "--device", "cpu,reference"]).refuses(&["one is tuned at a time"]);
    run(&["tune", "--budget", "0"]).refuses(&["--budget"]);
    run(&["tune", "--search", "luck"]).refuses(&["luck", "descent", "grid"]);
}

#[test]
fn callers_are_measured_by_their_tickets_and_without() {
    let place = Place::new();
    let args =
        ["bench", "--set", "sha2-128f", "--seconds", "0.01", "--threads", "2", "--device", "cpu", "--callers", "1,8"];
    for (way, shape) in [
        (&[][..], "a thread each"),
        (&["--held"], "held by 1 thread"),
        (&["--held", "4"], "held by 4 threads"),
        (&["--max-delay", "50"], "a thread each, delayed by up to 50 µs"),
        (&["--direct"], "without tickets"),
    ] {
        let run = place.run(&[&args[..], way, &["--json"]].concat()).good();
        let records: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 3 * 2);
        for (record, callers) in records.iter().zip([1, 8].into_iter().cycle()) {
            assert_eq!(record["shape"], format!("{callers} callers, {shape}"));
            assert_eq!((&record["callers"], &record["verified"]), (&callers.into(), &true.into()));
            let [half, p99, p999] = ["median_s", "p99_s", "p999_s"].map(|name| record[name].as_f64().unwrap());
            assert!(0.0 < half && half <= p99 && p99 <= p999 && record["ops_per_s"].as_f64().unwrap() > 0.0);
            assert!(record["batched"].as_f64().unwrap() >= 1.0);
        }
    }
    let run = place.run(&[&args[..], &["--op", "verify"]].concat()).good();
    assert!(run.text().lines().count() == 3 && run.text().contains("99.9 %"), "{}", run.text());
    place.run(&["bench", "--held"]).refuses(&["--callers"]);
    place.run(&["bench", "--callers", "2", "--direct", "--held"]).refuses(&["--direct"]);
}
