//! Sums of files, checked against the machine's own sha256sum where there is one; records and their tree.
#![cfg(unix)]

use crate::place::Place;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::process::{Command, Stdio};

fn sum(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[test]
fn files_of_all_lengths() {
    let place = Place::new();
    let lengths = [0, 1, 55, 56, 63, 64, 65, 128, 131_072, 400_000];
    let bytes = |length: usize| (0..length).map(|at| (at * 7 + length) as u8).collect::<Vec<_>>();
    let names = lengths.map(|length| length.to_string());
    names.iter().zip(lengths).for_each(|(name, length)| place.write(name, bytes(length)));
    let want: String =
        names.iter().zip(lengths).map(|(name, length)| sum(&bytes(length)) + "  " + name + "\n").collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for threads in ["1", "3"] {
        assert_eq!(place.run(&[&["hash", "--threads", threads], &names[..]].concat()).good().text(), want);
    }
    let run = place.run(&["hash", "1", "missing", "0"]).exits(1).says(&["cannot read missing"]);
    assert_eq!(run.text().lines().count(), 2);
}

/// The output of this machine's sha256sum, and its exit code.
fn theirs(place: &Place, args: &[&str], stdin: &[u8]) -> (Vec<u8>, i32) {
    let mut command = Command::new("sha256sum");
    command.args(args).current_dir(place.path(".")).env("LC_ALL", "C").stderr(Stdio::null());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It need not read.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let done = child.wait_with_output().unwrap();
    (done.stdout, done.status.code().unwrap())
}

/// Whether there is a sha256sum to compare with; if not, that is printed.
fn can_compare() -> bool {
    let version = Command::new("sha256sum").arg("--version").output().ok();
    let is_gnu = version.is_some_and(|done| String::from_utf8_lossy(&done.stdout).contains("GNU coreutils"));
    if !is_gnu {
        println!("skipped: comparison with sha256sum: it is not GNU coreutils' here");
    }
    is_gnu
}

fn same_with(place: &Place, args: &[&str], stdin: &[u8]) {
    let ours = place.run_with(&[&["hash"], args].concat(), stdin);
    let (stdout, code) = theirs(place, args, stdin);
    // Later versions than 9.1 escape more names in verdicts.
    let plain = |line: &str| line.strip_prefix('\\').unwrap_or(line).replace("\\\\", "\\");
    let shown = |bytes: &[u8]| match args.first() {
        Some(&"-c") => String::from_utf8_lossy(bytes).split('\n').map(plain).collect::<Vec<_>>().join("\n"),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    assert_eq!((shown(&ours.stdout), ours.code), (shown(&stdout), Some(code)), "{args:?}: {}", ours.stderr);
}

fn same(place: &Place, args: &[&str]) {
    same_with(place, args, b"abc");
}

/// Files by all names that lines can have trouble with, and what each holds.
fn odd_files(place: &Place) -> Vec<(&'static str, Vec<u8>)> {
    let names = [
        "a",
        "b",
        "two words",
        " *led",
        "*star",
        " sp",
        "back\\slash",
        "new\nline",
        "car\rriage",
        "end\r",
        "both\\\n",
        "a)b",
        "SHA256 (x",
        "-dash",
        "x = y",
        "\\lead",
        "tab\tname",
        "#hash",
    ];
    let files = names.into_iter().enumerate().map(|(i, name)| (name, vec![i as u8; i])).collect::<Vec<_>>();
    files.iter().for_each(|(name, bytes)| place.write(name, bytes));
    files
}

#[test]
fn sums_are_printed_as_by_sha256sum() {
    if !can_compare() {
        return;
    }
    let place = Place::new();
    let names: Vec<&str> = odd_files(&place).into_iter().map(|(name, _)| name).collect();
    let options: [&[&str]; 16] = [
        &[],
        &["-b"],
        &["-t"],
        &["--binary"],
        &["-z"],
        &["--tag"],
        &["--tag", "-z"],
        &["--tag", "-b"],
        &["-b", "--tag"],
        &["-b", "-b"],
        &["-t", "-b"],
        &["-b", "-t"],
        &["-z", "-b"],
        &["--tag", "--tag"],
        &["--tag", "-t", "-b"],
        &["-z", "-z", "-t"],
    ];
    for options in options {
        same(&place, &[options, &["--"], &names].concat());
        same(&place, &[options, &["a", "missing", ".", "-"]].concat());
        same(&place, options);
    }
}

/// Lists of sums, right and wrong in every way.
fn lists(files: &[(&str, Vec<u8>)]) -> Vec<Vec<u8>> {
    let of = |name: &str| sum(&files.iter().find(|(other, _)| *other == name).unwrap().1);
    let (a, b) = (of("a"), of("b"));
    let escaped = |name: &str| name.replace('\\', "\\\\").replace('\n', "\\n");
    let without_returns = files.iter().filter(|(name, _)| !name.contains('\r'));
    let all = without_returns.map(|(name, bytes)| {
        let mark = if name.contains(['\\', '\n']) { "\\" } else { "" };
        format!("{mark}{}  {}\n", sum(bytes), escaped(name))
    });
    let star = of("*star");
    let texts = [
        all.collect(),
        format!("{a}  a\n{b} *b\n"),
        format!("{a}  a"),
        format!("{a}  a\r\n{b} *b\r\n"),
        format!("{a}  a\r\n{b} *b\n"),
        format!("# remark\r\n\r\n{a}  a\r\n"),
        format!("{b}  a\n{b}  b\n"),
        format!("{a}  missing\n{b}  b\n"),
        format!("{a}  missing\n"),
        format!("\\{a}  gone\\nx\n"),
        format!("{a}  a\ngarbage\n"),
        format!("{b}  a\n{a}  b\njunk\n{a}  missing\n"),
        "garbage\nx\n".into(),
        String::new(),
        "\n\n".into(),
        " \n\t\n".into(),
        format!("# remark\n # none\n{a}  a\n"),
        "# remark\n".into(),
        format!("SHA256 (a) = {a}\n"),
        format!("SHA256 (a) = {a}\r\n"),
        format!("SHA256(a)= {a}\n"),
        format!("SHA256 (a)b) = {}\n", of("a)b")),
        format!("\\SHA256 (new\\nline) = {}\n", of("new\nline")),
        format!("SHA512 (a) = {a}{a}\nMD5 (a) = {}\n", &a[..32]),
        format!("  SHA256 (a)  =   {a}\n"),
        format!("SHA256 (a) = {a} \n"),
        format!("SHA256 (a) = {}\n", &a[1..]),
        format!("sha256 (a) = {a}\n"),
        format!("SHA2-256 (a) = {a}\n"),
        format!("SHA256 (a) = {a}\n{b}  b\n"),
        format!("{}  a\n", a.to_uppercase()),
        format!("  {a}  a\n\t{b}  b\n"),
        format!("{a}  .\n"),
        format!("{a} a\n{b} b\n"),
        format!("{a} a\n{b}  b\n"),
        format!("{a}  a\n{b} b\n"),
        format!("{a}\ta\n"),
        format!("{a}a\n"),
        format!("{a}  \n{a} \n{a}\n{b}  b\n"),
        format!("{a} \n{b} *b\n"),
        format!("SHA256 () = {a}\n"),
        format!("{a}00  a\n"),
        format!("{}  a\n", &a[2..]),
        format!("g{}  a\n", &a[1..]),
        format!("\\{a}  a\\x\n\\{a}  a\\\n{b}  b\n"),
        format!("\\{a}  a\n"),
        format!("{}  back\\slash\n", of("back\\slash")),
        format!("{a}  a\n{a}  a\n"),
        format!("{star}  *star\n{star} **star\n"),
        format!("{}   sp\n{} * sp\n", of(" sp"), of(" sp")),
        format!("{}  -\n", sum(b"abc")),
        format!("{a}  \u{fffd}\n"),
    ];
    let mut lists: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    lists.push([a.as_bytes(), b"  \xff\n"].concat());
    lists
}

#[test]
fn sums_are_checked_as_by_sha256sum() {
    let place = Place::new();
    let files = odd_files(&place);
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    // Printed sums are checked, whatever a name is.
    for options in [&[][..], &["-b"], &["--tag"]] {
        place.write("sums", place.run(&[&["hash"], options, &["--"], &names].concat()).good().stdout);
        place.run(&["hash", "-c", "--strict", "sums"]).good();
    }
    if !can_compare() {
        return;
    }
    let lists = lists(&files);
    for list in &lists {
        place.write("list", list);
        for options in [&[][..], &["--strict", "--quiet"], &["--ignore-missing", "--status"]] {
            same(&place, &[&["-c"], options, &["list"]].concat());
        }
    }
    // Of --quiet, --status and --warn the last one counts; the list that has something of everything.
    place.write("list", &lists[11]);
    place.write("good", &lists[1]);
    let run = place.run(&["hash", "-c", "list"]).exits(1).says(&["cannot read missing"]);
    for words in ["1 line is improperly formatted", "1 listed file could not", "2 computed checksums did NOT match"] {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    let options: [&[&str]; 9] = [
        &["-w"],
        &["-w", "--strict"],
        &["--status", "--warn"],
        &["--warn", "--status"],
        &["--status", "--quiet"],
        &["--quiet", "--status"],
        &["--quiet", "--warn"],
        &["--ignore-missing", "--status"],
        &["--ignore-missing", "--quiet"],
    ];
    for options in options {
        for lists in [&["list"][..], &["good"], &["good", "list"], &["nowhere", "good"], &["."], &[]] {
            same_with(&place, &[&["-c"], options, lists].concat(), b"no sum\n");
        }
    }
}

/// Where this tool differs from sha256sum on purpose, as its help says.
#[test]
fn differences_from_sha256sum() {
    let place = Place::new();
    place.write("a", "1");
    place.write("car\rriage", "2");
    let good = format!("{}  a\n", sum(b"1"));
    place.write("good", &good);
    // A byte order mark is no part of the first line, which would not be checked.
    place.write("marked", format!("\u{feff}{good}"));
    assert_eq!(place.run(&["hash", "-c", "marked"]).good().text(), "a: OK\n");
    place.write("marked", format!("\u{feff}{}  a\n", sum(b"2")));
    assert_eq!(place.run(&["hash", "-c", "marked"]).exits(1).text(), "a: FAILED\n");
    // Private keys are no names of files.
    place.run(&["keygen", "--set", "sha2-128f", "--count", "1", "--table", "keys"]).good();
    let run = place.run(&["hash", "-c", "keys", "good"]).exits(1);
    assert_eq!(run.text(), "a: OK\n");
    run.says(&["keys: line 2, column ", "looks like a private key"]);
    // Wrong usage is told from a wrong sum.
    let wrong: [&[&str]; 9] = [
        &["--nonsense"],
        &["--status", "a"],
        &["--strict", "a"],
        &["--warn", "a"],
        &["--ignore-missing", "a"],
        &["-c", "-b", "good"],
        &["-c", "-t", "good"],
        &["-c", "--tag", "good"],
        &["-c", "-z", "good"],
    ];
    for args in wrong.into_iter().chain([&["--tag", "-t", "a"][..], &[""]]) {
        place.run(&[&["hash"], args].concat()).refuses(&[]);
    }
    assert_eq!(place.run(&["hash", "--quiet", "a"]).good().text(), good);
    place.run_with(&["hash", "-", "-"], b"abc").refuses(&["standard input is given twice"]);
    // A carriage return could overwrite a verdict.
    place.write("list", format!("{}  car\rriage\n", sum(b"2")));
    assert_eq!(place.run(&["hash", "-c", "list"]).good().text(), "\\car\\rriage: OK\n");
    // The output of `-z` is no list: all of its lines but the first would be passed over.
    place.write("zero", place.run(&["hash", "-z", "a", "good"]).good().stdout);
    place.run(&["hash", "-c", "zero"]).exits(1).says(&["no properly formatted SHA-256 lines"]);
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
    let data: Vec<u8> = (0..100_000_u64).map(|i| (i * i / 7) as u8).collect();
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
