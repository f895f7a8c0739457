//! Sums of files, checked against the machine's own sha256sum where there is one; records and their tree.
#![cfg(unix)]

use crate::place::Place;
use sha2::{Digest, Sha256};
use std::process::Command;

fn sum(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Files with all that names and lengths can have.
fn files(place: &Place) -> Vec<&'static str> {
    let names = ["empty", "a", "two words", " *led", "back\\slash", "new\nline", "both\\\n", "block", "long", "é"];
    for (i, name) in names.iter().enumerate() {
        let length = [0, 1, 55, 56, 63, 64, 65, 128, 400_000, 131_072][i];
        place.write(name, (0..length).map(|at: usize| (at * 7 + i) as u8).collect::<Vec<_>>());
    }
    names.to_vec()
}

/// What sha256sum of this machine says, and its exit code; `None` where there is none, which is said.
fn theirs(place: &Place, args: &[&str]) -> Option<(Vec<u8>, i32)> {
    let version = Command::new("sha256sum").arg("--version").output().ok();
    if !version.is_some_and(|done| String::from_utf8_lossy(&done.stdout).contains("GNU coreutils")) {
        println!("skipped: comparison with sha256sum: it is not GNU coreutils' here");
        return None;
    }
    let mut command = Command::new("sha256sum");
    let done = command.args(args).current_dir(place.path(".")).env("LC_ALL", "C").output().unwrap();
    Some((done.stdout, done.status.code().unwrap()))
}

fn same(place: &Place, args: &[&str]) {
    let ours = place.run(&[&["hash"], args].concat());
    if let Some((stdout, code)) = theirs(place, args) {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!((shown(&ours.stdout), ours.code), (shown(&stdout), Some(code)), "{args:?}: {}", ours.stderr);
    }
}

#[test]
fn lines_are_those_of_sha256sum() {
    let place = Place::new();
    let names = files(&place);
    for options in [&[][..], &["-b"], &["-t"], &["-z"], &["--tag"], &["--tag", "-z"]] {
        same(&place, &[options, &names].concat());
        same(&place, &[options, &["a", "missing", ".", "long"]].concat());
    }
    let all = |threads: &'static str| place.run(&[&["hash", "--threads", threads], &names[..]].concat()).good().stdout;
    assert_eq!(all("1"), all("3"));
    assert_eq!(place.run(&["hash", "a"]).good().text(), format!("{}  a\n", sum(&[1])));
    let run = place.run(&["hash", "a", "missing", "empty"]).exits(1).says(&["cannot read missing"]);
    assert_eq!(run.text().lines().count(), 2);
}

/// Threads read many files each, and a process may open few.
#[test]
fn more_files_than_may_be_open() {
    let place = Place::new();
    for i in 0..400 {
        place.write(&format!("f{i:03}"), i.to_string());
    }
    let want: String = (0..400).map(|i| format!("{}  f{i:03}\n", sum(i.to_string().as_bytes()))).collect();
    for most in [12, 50, 1000] {
        let run = place.shell(&format!("ulimit -n {most}; \"$H\" hash --threads 32 f*"));
        assert_eq!(run.good().text(), want, "{most} files");
        let run = place
            .shell(&format!("ulimit -n {most}; \"$H\" hash --threads 32 f* | \"$H\" hash -c --quiet --threads 32"));
        assert_eq!(run.good().text(), "", "{most} files");
    }
}

#[test]
fn standard_input_is_a_file() {
    let place = Place::new();
    for args in [&["hash"][..], &["hash", "-"]] {
        assert_eq!(place.run_with(args, b"abc").good().text(), format!("{}  -\n", sum(b"abc")));
    }
    place.run_with(&["hash", "-", "-"], b"abc").refuses(&["standard input is given twice"]);
    place.write("list", "a\nb\n");
    place.write("a", "1");
    place.write("b", "2");
    assert_eq!(place.run(&["hash", "--list", "list"]).good().text().lines().count(), 2);
}

#[test]
fn sums_are_checked_as_by_sha256sum() {
    let place = Place::new();
    let names = files(&place);
    for options in [&[][..], &["-b"], &["--tag"]] {
        let sums = place.run(&[&["hash"], options, &names].concat()).good().stdout;
        place.write("sums", sums);
        for check in [&["-c"][..], &["-c", "--quiet"], &["-c", "--status"], &["-c", "--strict"]] {
            same(&place, &[check, &["sums"]].concat());
            place.run(&[&["hash"], check, &["sums"]].concat()).good();
        }
    }
    let mut mixed = String::from_utf8(place.read("sums")).unwrap();
    mixed += &format!("# a remark\n\nno sum\n{}  missing\n{} *a\r\n{} a\n", sum(b"m"), "0".repeat(64), sum(&[1]));
    mixed += &format!("{}  a\n{}a\n\\{}  bad\\escape\n", sum(&[1]).to_uppercase(), sum(&[1]), sum(&[1]));
    place.write("mixed", mixed);
    for check in ["", "--quiet", "--status", "--strict", "--ignore-missing", "--warn"] {
        let options: Vec<&str> = ["-c", check, "mixed"].into_iter().filter(|option| !option.is_empty()).collect();
        same(&place, &options);
    }
    let run = place.run(&["hash", "-c", "--ignore-missing", "mixed"]).exits(1);
    assert!(
        run.stderr.contains("lines are improperly formatted") && run.stderr.contains("1 computed checksum did NOT")
    );

    place.write("none", "nothing\n");
    place.write("gone", format!("{}  missing\n", sum(b"")));
    place.write("odd", format!("{}  a\nodd\n", sum(&[1])));
    for args in [&["-c", "none"][..], &["-c", "gone"], &["-c", "--ignore-missing", "gone"], &["-c", "nowhere", "sums"]]
    {
        same(&place, args);
        place.run(&[&["hash"], args].concat()).exits(1).says(&[]);
    }
    same(&place, &["-c", "odd"]);
    same(&place, &["-c", "--strict", "odd"]);
    place.run(&["hash", "-c", "-z", "sums"]).exits(2);
    place.run(&["hash", "--strict", "sums"]).exits(2);
}

fn records(records: &[&[u8]]) -> Vec<u8> {
    records.iter().flat_map(|record| [&(record.len() as u32).to_be_bytes()[..], record].concat()).collect()
}

/// RFC 9162, 2.1.1, to the letter.
fn tree(entries: &[&[u8]]) -> Vec<u8> {
    match entries {
        [] => Sha256::digest([]).to_vec(),
        [entry] => Sha256::digest([&[0], *entry].concat()).to_vec(),
        _ => {
            let (left, right) = entries.split_at(entries.len().next_power_of_two() / 2);
            Sha256::digest([vec![1], tree(left), tree(right)].concat()).to_vec()
        }
    }
}

#[test]
fn records_and_their_tree() {
    let place = Place::new();
    let data: Vec<u8> = (0..100_000).map(|i| (i * i / 7) as u8).collect();
    for count in [0, 1, 2, 3, 7, 8, 33, 300] {
        let entries: Vec<&[u8]> = (0..count).map(|i| &data[i..][..i * 331 % 977]).collect();
        let want: String = entries.iter().map(|entry| sum(entry) + "\n").collect();
        let run = place.run_with(&["hash", "--records"], &records(&entries)).good();
        assert_eq!(run.text(), want, "{count}");
        let run = place.run_with(&["hash", "--records", "--merkle-root"], &records(&entries)).good();
        assert_eq!(run.text(), hex::encode(tree(&entries)) + "\n", "{count}");
    }
    // Longer than any batch with this little memory.
    place.write("r", records(&[b"short", &data, &[], &vec![9; 900_000], b"end"]));
    let run = place.run(&["hash", "--records", "--memory", "1M", "r", "r"]).good();
    let once = [b"short", &data[..], &[], &vec![9; 900_000], b"end"].map(|record| sum(record) + "\n").concat();
    assert_eq!(run.text(), once.repeat(2));
}

#[test]
fn records_that_are_cut_short_are_refused() {
    let place = Place::new();
    let whole = records(&[b"one", b"three"]);
    for (cut, part) in [(1, "bytes"), (5, "bytes"), (6, "length"), (8, "length")] {
        let input = &whole[..whole.len() - cut];
        let run = place.run_with(&["hash", "--records"], input).exits(2);
        let run = run.says(&[&format!("standard input: record 1, counted from 0, ends within its {part}")]);
        assert_eq!(run.text(), sum(b"one") + "\n");
        assert!(place.run_with(&["hash", "--records", "--merkle-root"], input).exits(2).stdout.is_empty());
    }
    place.run(&["hash", "--records", "missing"]).exits(2).says(&["cannot read missing"]);
    place.run(&["hash", "--merkle-root", "missing"]).exits(2);
}

#[test]
fn a_measurement_checks_its_answers() {
    let place = Place::new();
    let run = place.run(&["bench", "--sha256", "4,1K", "--seconds", "0.01", "--batch", "100", "--json"]).good();
    let records: Vec<serde_json::Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sizes: Vec<_> = records.iter().map(|record| record["message_bytes"].as_u64()).collect();
    assert_eq!(sizes, [Some(4), Some(1024)]);
    for record in &records {
        assert!(record["op"] == "hash" && record["verified"] == true && record["batch"] == 100, "{record}");
        assert!(record["ops_per_s"].as_f64().unwrap() > 0.0 && record["runs"].as_u64().unwrap() >= 5, "{record}");
        let [ideal, median, share] =
            ["ideal_s", "median_s", "limit_fraction"].map(|name| record[name].as_f64().unwrap());
        assert!(ideal > 0.0 && (share * median / ideal - 1.0).abs() < 1e-9, "{record}");
    }
    // The study asks the same of its own sizes.
    let run =
        place.run(&["bench", "--study", "sha256", "--quick", "--within", "5", "--json", "--device", "cpu"]).good();
    let hashed =
        run.text().lines().filter(|line| line.contains("\"op\":\"hash\"") && line.contains("\"shape\":\"one core\""));
    assert!(hashed.count() >= 1, "{}", run.text());
    let bad = place.run(&["bench", "--sha256", "64", "--axes", "block=2"]).exits(2);
    bad.says(&["there is no axis 'block' here", "threads"]);
}
