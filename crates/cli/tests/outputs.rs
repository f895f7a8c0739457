//! Faults while files are written: one system call of a run fails, or a signal comes with it, for every call in turn.
//!
//! `strace` injects the faults. It sees every call, whichever library makes it, and is kept by others. A call that does not touch
//! the test's directory changes no file, so the calls that do stand for all moments of a run. A write that the system cuts
//! short comes from a limit on the sizes of files (`prlimit`), for `strace` can only pretend one.
//!
//! `cargo xtask ci outputs` runs the tests in `usual`, `cargo xtask ci full outputs` all.
#![cfg(target_os = "linux")]

#[allow(dead_code)]
#[path = "cli/place.rs"]
mod place;

use place::Place;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const TOOL: &str = env!("CARGO_BIN_EXE_hypergrove");
/// Names that SIGKILL may leave, and that the next run removes.
const TEMPORARIES: [&str; 4] =
    [".hypergrove-private.tmp", ".hypergrove-public.tmp", ".hypergrove-replaced.tmp", ".hypergrove-second.tmp"];
/// Calls that change files or wait for the disk.
const WRITING: [&str; 17] = [
    "write",
    "pwrite64",
    "writev",
    "fsync",
    "fdatasync",
    "ftruncate",
    "flock",
    "link",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "copy_file_range",
];

/// Names the directory of compiled code.
const CACHE: &str = "XDG_CACHE_HOME";

/// A fault at a call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The call fails.
    Once(&'static str),
    /// The call fails, and so do all later ones of its name.
    FromNowOn(&'static str),
    /// The signal comes with the call. SIGKILL keeps the call from being made.
    Signal(&'static str),
}

const USUAL: [Fault; 5] = [
    Fault::Once("ENOSPC"),
    Fault::Once("EIO"),
    Fault::Once("EINTR"),
    Fault::Signal("SIGINT"),
    Fault::Signal("SIGKILL"),
];
const ALL: [Fault; 8] = [
    Fault::Once("ENOSPC"),
    Fault::Once("EIO"),
    Fault::Once("EINTR"),
    Fault::FromNowOn("ENOSPC"),
    Fault::FromNowOn("EIO"),
    Fault::Signal("SIGINT"),
    Fault::Signal("SIGTERM"),
    Fault::Signal("SIGKILL"),
];

/// Which calls and faults a test takes.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    Usual,
    Full,
}

/// The `nth` call of this name in its thread.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    nth: usize,
    line: String,
}

impl Call {
    fn writes(&self) -> bool {
        let makes = self.name.starts_with("open") && (self.line.contains("O_CREAT") || self.line.contains("O_TMPFILE"));
        makes || WRITING.contains(&self.name.as_str())
    }

    /// Whether it closes a directory that was listed. That cannot fail: Linux's file systems have nothing to do then. Rust's standard library
    /// panics if it fails all the same.
    fn closes_directory(&self) -> bool {
        let path = self.line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path);
        self.name == "close" && path.is_some_and(|path| Path::new(path).is_dir())
    }
}

/// How a run ended.
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    stderr: String,
}

/// All files below a directory by their names, directories without bytes.
type Files = BTreeMap<String, Option<Vec<u8>>>;

fn files(root: &Path) -> Files {
    let (mut found, mut open) = (Files::new(), vec![root.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if entry.is_dir() {
                open.push(entry);
                found.insert(name, None);
            } else {
                found.insert(name, Some(fs::read(&entry).unwrap()));
            }
        }
    }
    found
}

fn restore(root: &Path, wanted: &Files) {
    for name in files(root).keys().filter(|name| !wanted.contains_key(*name)) {
        let path = root.join(name);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    for (name, bytes) in wanted {
        match bytes {
            None => fs::create_dir_all(root.join(name)).unwrap(),
            Some(bytes) => fs::write(root.join(name), bytes).unwrap(),
        }
    }
}

/// A run that writes files in a place.
struct Run {
    /// The name of the run in the report.
    name: &'static str,
    place: Place,
    program: String,
    args: Vec<String>,
    /// Added when the command is run again.
    again: &'static [&'static str],
    /// A private key and its public key.
    pair: Option<(&'static str, &'static str)>,
}

impl Run {
    /// A command of the tool, which has an option `--force`. `@` is the place's path.
    fn tool(name: &'static str, place: Place, command: &str) -> Run {
        let words: Vec<&str> = command.split_whitespace().collect();
        let again = if words.contains(&"--force") { &[][..] } else { &["--force"] };
        Run { again, ..Run::program(name, place, TOOL, &words) }
    }

    fn program(name: &'static str, place: Place, program: &str, words: &[&str]) -> Run {
        let root = place.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        let args = words.iter().map(|word| word.replace('@', &root)).collect();
        Run { name, place, program: program.into(), args, again: &[], pair: None }
    }

    fn pair(mut self, private: &'static str, public: &'static str) -> Run {
        self.pair = Some((private, public));
        self
    }

    fn root(&self) -> std::path::PathBuf {
        self.place.path("")
    }

    /// `before` and its words go ahead of the program.
    fn run(&self, before: &[String], more: &[&str]) -> Ended {
        let words = [before, &[self.program.clone()], &self.args].concat();
        let mut command = Command::new(&words[0]);
        // Relative paths would hide which calls are about the place.
        command.args(&words[1..]).args(more).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        for folder in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", CACHE] {
            command.env(folder, self.root().join("xdg"));
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { code: output.status.code(), signal: output.status.signal(), stderr }
    }

    /// Runs it under strace; returns the log too.
    fn traced(&self, options: &[&str]) -> (Ended, String) {
        // Outside the place, whose files are compared.
        let log = tempfile::NamedTempFile::new().unwrap();
        let fixed = ["strace", "-f", "-y", "-qq", "-s", "0", "-o", log.path().to_str().unwrap()];
        let words: Vec<String> = fixed.iter().chain(options).map(|word| word.to_string()).collect();
        let ended = self.run(&words, &[]);
        (ended, fs::read_to_string(log.path()).unwrap())
    }

    /// The calls of a run without a fault that concern the place.
    fn calls(&self) -> Vec<Call> {
        let (ended, log) = self.traced(&["-e", "trace=all"]);
        assert_eq!(ended.code, Some(0), "{}: {}", self.name, ended.stderr);
        let (root, mut counts, mut calls) = (self.root(), BTreeMap::<(&str, &str), usize>::new(), Vec::new());
        let root = root.to_str().unwrap().trim_end_matches('/');
        for line in log.lines() {
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let Some((name, _)) = call.trim_start().split_once('(') else { continue };
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') || name == "execve" {
                continue;
            }
            let nth = counts.entry((thread, name)).or_default();
            *nth += 1;
            if call.contains(root) {
                calls.push(Call { name: name.into(), nth: *nth, line: call.trim_start().into() });
            }
        }
        calls
    }

    /// Runs it with a fault; none if the run came to no such call.
    fn injected(&self, call: &Call, fault: Fault) -> Option<Ended> {
        let Call { name, nth, .. } = call;
        let what = match fault {
            Fault::Once(error) => format!("error={error}:when={nth}"),
            Fault::FromNowOn(error) => format!("error={error}:when={nth}+"),
            Fault::Signal(signal) => format!("signal={signal}:when={nth}"),
        };
        let (trace, inject) = (format!("trace={name}"), format!("inject={name}:{what}"));
        let mut options = vec!["-e", &trace, "-e", &inject];
        let shown = match fault {
            Fault::Signal(signal) => [format!("--- {signal} "), format!("killed by {signal} ")],
            _ => {
                // Twice as fast, but strace 6.1 sends no signals then.
                options.push("--seccomp-bpf");
                ["(INJECTED)".into(), "(INJECTED)".into()]
            }
        };
        let (ended, log) = self.traced(&options);
        shown.iter().any(|shown| log.contains(shown)).then_some(ended)
    }

    /// Judges the files after a run that began with the files `old` and would end with `new`; the error says what is wrong.
    fn judge(&self, old: &Files, new: &Files, call: &str, fault: Option<Fault>, ended: &Ended) -> Result<(), String> {
        let found = files(&self.root());
        let killed = matches!(fault, Some(Fault::Signal("SIGKILL")));
        let persists = matches!(fault, Some(Fault::FromNowOn(_)));
        // A kill leaves temporaries. Files that cannot be removed or renamed back stay.
        let stays = killed || call.starts_with("unlink") || persists && call.starts_with("rename");
        let is = |name: &str, of: &Files| found.get(name) == of.get(name);
        for name in old.keys().chain(new.keys()) {
            if is(name, old) || is(name, new) {
                continue;
            }
            // A pair may be parted: the public key that makes way is kept, or follows from the new private key.
            let parted = self.pair.is_some_and(|(private, public)| {
                let kept = stays && found.get(TEMPORARIES[2]) == old.get(public);
                name == public && !found.contains_key(public) && (is(private, new) || kept)
            });
            match found.get(name) {
                None if parted => {}
                None => return Err(format!("{name} is lost")),
                Some(bytes) => {
                    return Err(format!("{name} is half: {} bytes", bytes.as_ref().map_or(0, Vec::len)));
                }
            }
        }
        if let Some((private, public)) = self.pair {
            let mixed = |a, b| !is(private, b) && is(private, a) && !is(public, a) && is(public, b);
            if found.contains_key(public) && old.contains_key(public) && (mixed(old, new) || mixed(new, old)) {
                return Err(format!("{private} and {public} are of two pairs"));
            }
        }
        let left: Vec<_> = found.keys().filter(|name| !old.contains_key(*name) && !new.contains_key(*name)).collect();
        let is_temporary = |name: &str| TEMPORARIES.contains(&name.rsplit('/').next().unwrap_or(name));
        if let Some(name) = left.iter().find(|name| !stays || !is_temporary(name)) {
            return Err(format!("{name} is left behind"));
        }
        let is_done = new.keys().all(|name| is(name, new));
        match (ended.code, ended.signal, fault) {
            (Some(0), ..) if !is_done => Err("it reports success, and its files are not there".into()),
            (Some(0), ..) => Ok(()),
            // Nor can it give a reason where all writes fail.
            (Some(2), ..) if !ended.stderr.contains("error: ") && !(persists && call == "write") => {
                Err(format!("it gives no reason: {}", ended.stderr))
            }
            (Some(2), ..) => Ok(()),
            (None, Some(_), Some(Fault::Signal(_))) => Ok(()),
            (code, signal, _) => Err(format!("exit code {code:?}, signal {signal:?}: {}", ended.stderr)),
        }
    }

    /// Runs the command again, without a fault: it succeeds and leaves nothing else behind.
    fn judge_next(&self, new: &Files) -> Result<(), String> {
        let ended = self.run(&[], self.again);
        if ended.code != Some(0) {
            return Err(format!("the next run fails: {}", ended.stderr));
        }
        let found = files(&self.root());
        match new.iter().find(|(name, bytes)| found.get(*name) != Some(*bytes)) {
            Some((name, _)) => return Err(format!("the next run writes another {name}")),
            None => {}
        }
        found
            .keys()
            .find(|name| !new.contains_key(*name))
            .map_or(Ok(()), |name| Err(format!("the next run leaves {name}")))
    }

    /// Every fault at every call; returns what was wrong.
    fn faults(&self, extent: Extent) -> Vec<String> {
        let old = files(&self.root());
        assert_eq!(self.run(&[], &[]).code, Some(0), "{}", self.name);
        let new = files(&self.root());
        assert_ne!(old, new, "{} writes nothing", self.name);
        restore(&self.root(), &old);
        let (faults, takes) = match extent {
            Extent::Usual => (&USUAL[..], Call::writes as fn(&Call) -> bool),
            Extent::Full => (&ALL[..], (|_| true) as fn(&Call) -> bool),
        };
        self.each_fault(faults, takes, |call, fault, ended| {
            self.judge(&old, &new, &call.name, Some(fault), ended).and_then(|()| self.judge_next(&new))
        })
    }

    /// These faults at these calls; reports how many, and returns what `judge` says of each.
    fn each_fault(
        &self,
        faults: &[Fault],
        takes: impl Fn(&Call) -> bool,
        mut judge: impl FnMut(&Call, Fault, &Ended) -> Result<(), String>,
    ) -> Vec<String> {
        let old = files(&self.root());
        let calls: Vec<Call> = self.calls().into_iter().filter(takes).collect();
        let (mut wrong, mut injected, mut wanted) = (Vec::new(), 0, 0);
        for call in &calls {
            // A disk that is full or broken from now on fails what writes.
            let applies = |fault: &&Fault| match fault {
                Fault::Once(_) => !call.closes_directory(),
                Fault::FromNowOn(_) => call.writes(),
                Fault::Signal(_) => true,
            };
            for fault in faults.iter().filter(applies) {
                wanted += 1;
                restore(&self.root(), &old);
                let Some(ended) = self.injected(call, *fault) else { continue };
                injected += 1;
                let judged = judge(call, *fault, &ended);
                wrong.extend(judged.err().map(|why| format!("{}: {fault:?} at {}: {why}", self.name, call.line)));
            }
        }
        restore(&self.root(), &old);
        println!("checked: {}: {injected} faults at {} system calls", self.name, calls.len());
        assert!(injected * 10 >= wanted * 9, "{}: calls were not met", self.name);
        wrong
    }

    /// Writes that the system cuts short: no file may be longer than so many bytes.
    fn short_writes(&self, limits: impl Iterator<Item = usize>) -> Vec<String> {
        let old = files(&self.root());
        assert_eq!(self.run(&[], &[]).code, Some(0));
        let new = files(&self.root());
        let (mut wrong, mut cut) = (Vec::new(), 0);
        for limit in limits {
            restore(&self.root(), &old);
            let ended = self.run(&["prlimit".into(), format!("--fsize={limit}")], &[]);
            cut += usize::from(ended.code == Some(2));
            let judged = self.judge(&old, &new, "write", None, &ended).and_then(|()| self.judge_next(&new));
            wrong.extend(judged.err().map(|why| format!("{}: a limit of {limit} bytes: {why}", self.name)));
        }
        println!("checked: {}: {cut} short writes", self.name);
        assert!(cut > 0, "{}: nothing was cut short", self.name);
        wrong
    }
}

const SEEDS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f";

fn keygen(name: &'static str, place: Place, more: &str) -> Run {
    let command = format!("keygen --threads 1 --set sha2-128f --seeds {SEEDS} -o @/k.pem {more}");
    Run::tool(name, place, &command)
}

/// With a pair of other seeds, to be replaced.
fn with_old_pair() -> Place {
    let place = Place::new();
    let seeds = "ff".repeat(48);
    place.run(&["keygen", "--set", "sha2-128f", "--seeds", &seeds, "-o", "k.pem", "--pubout", "p.pem"]).good();
    place
}

fn sign(name: &'static str, old: &[&str], files: &str, more: &str) -> Run {
    let place = Place::with_key();
    for name in files.split_whitespace() {
        place.write(name.trim_start_matches("@/"), name);
    }
    old.iter().for_each(|name| place.write(name, "an old signature"));
    let command = format!("sign --threads 1 --deterministic --key @/k.pem {files} {more}");
    Run::tool(name, place, &command)
}

/// The manifest of a tree and its signature, which replace those of an older tree.
fn manifest(name: &'static str, force: bool) -> Run {
    let place = Place::with_key();
    fs::create_dir(place.path("tree")).unwrap();
    place.write("tree/a", "an old file");
    let words = ["sign", "--deterministic", "--key", "k.pem", "--manifest", "tree", "-o", "sums"];
    if force {
        place.run(&words).good();
    }
    place.write("tree/a", "a file");
    let more = if force { "--force" } else { "" };
    let command = format!("sign --threads 1 --deterministic --key @/k.pem --manifest @/tree -o @/sums {more}");
    Run::tool(name, place, &command).pair("sums", "sums.sig")
}

/// A lease of three numbers, the first of their ledger.
fn lease() -> Run {
    let place = Place::new();
    place.write("p", [7; 32]);
    let set = ["--set", "SHA2-128-24"];
    let mut init = place.command(&[&["ledger", "init", "p"], &set[..]].concat());
    place::Run::from(init.env("XDG_STATE_HOME", place.path("xdg")).output().unwrap()).good();
    Run::tool("ledger lease", place, "ledger lease @/p --set SHA2-128-24 --count 3 -o @/lease")
}

/// The state of a ledger; none if there is no such file.
fn state(run: &Run, name: &str) -> Option<hypergrove_files::ledger::LedgerState> {
    let bytes = fs::read(run.place.path(name)).ok()?;
    Some(hypergrove_files::ledger::LedgerState::from_bytes(&bytes).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Leases numbers of a ledger again and again, and ends the tool at one system call after the other: no number comes twice.
fn leases(kills: usize) {
    let run = lease();
    let (mut calls, mut killed, mut leased, mut end) = (run.calls(), 0, 0, 0);
    let mut take = || {
        // Whoever got a lease has its numbers, whatever became of the tool.
        if let Some(lease) = state(&run, "lease") {
            assert!(lease.start >= end && lease.end == lease.start + 3, "{lease:?} after {end}");
            end = lease.end;
            leased += 1;
            fs::remove_file(run.place.path("lease")).unwrap();
        }
        let ledger = state(&run, "p.ledger").expect("a ledger");
        assert!(ledger.next >= end, "{ledger:?} after {end}");
    };
    take();
    calls.retain(|call| call.name != "exit_group");
    assert!(calls.iter().any(|call| call.line.contains("p.ledger")), "{calls:?}");
    for call in calls.iter().cycle().take(kills) {
        killed += usize::from(run.injected(call, Fault::Signal("SIGKILL")).is_some());
        take();
    }
    let ended = run.run(&[], &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    take();
    println!("checked: ledger lease: {killed} kills at {} system calls, {leased} leases", calls.len());
    assert!(killed * 10 >= kills * 9 && leased > 1, "{killed} kills, {leased} leases");
}

fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} faults of files:\n{}", wrong.len(), wrong.join("\n"));
}

/// Seconds: the calls that write, of the commands that write what is hardest to replace.
mod usual {
    use super::*;

    #[test]
    fn keygen_of_a_pair() {
        none(keygen("keygen", Place::new(), "--pubout @/p.pem").pair("k.pem", "p.pem").faults(Extent::Usual));
    }

    #[test]
    fn keygen_replacing_a_pair() {
        let run = keygen("keygen --force", with_old_pair(), "--pubout @/p.pem --force").pair("k.pem", "p.pem");
        none(run.faults(Extent::Usual));
    }

    /// Keys are new in each run: what is there has to be whole.
    #[test]
    fn a_table_of_keys() {
        let command = "keygen --threads 1 --set sha2-128f --count 3 --table @/t --pubout @/p";
        let run = Run::program("keygen --count", Place::new(), TOOL, &command.split(' ').collect::<Vec<_>>());
        let faults = [Fault::Once("ENOSPC"), Fault::Once("EIO"), Fault::Signal("SIGTERM"), Fault::Signal("SIGKILL")];
        none(run.each_fault(&faults, Call::writes, |_, _, ended| {
            let found = files(&run.root());
            let lines = |name: &str| {
                let text = String::from_utf8(found.get(name)?.clone()?).ok()?;
                Some(text.split_inclusive('\n').filter(|line| line.ends_with('\n')).count())
            };
            // The table of private keys has a line more, which names its columns.
            match (ended.code, lines("t"), lines("p")) {
                (Some(0), Some(4), Some(3)) => Ok(()),
                (Some(2), None, None) if ended.stderr.contains("error: ") => Ok(()),
                // The table is there, and its name was not put on the disk.
                (Some(2), Some(4), Some(3)) => Ok(()),
                (None, None | Some(4), None | Some(3)) => Ok(()),
                (code, private, public) => Err(format!("{code:?}: {private:?} and {public:?} lines: {}", ended.stderr)),
            }
        }));
    }

    /// Another passphrase would make another file each time.
    #[test]
    fn passwd_loses_no_key() {
        let place = Place::with_key();
        place.write("pass", "correct horse\n");
        let keygen =
            ["keygen", "--set", "sha2-128f", "--seeds", SEEDS, "--encrypt", "--passphrase-file", "pass", "-o", "e.pem"];
        place.run(&keygen).good();
        let command = ["passwd", "@/e.pem", "--passphrase-file", "@/pass", "--remove"];
        let run = Run::program("passwd --remove", place, TOOL, &command);
        let old = files(&run.root());
        assert_eq!(run.run(&[], &[]).code, Some(0));
        let new = files(&run.root());
        assert!(old != new && new["e.pem"] == new["k.pem"]);
        restore(&run.root(), &old);
        none(run.each_fault(&USUAL, Call::writes, |call, fault, ended| {
            run.judge(&old, &new, &call.name, Some(fault), ended)
        }));
    }

    #[test]
    fn sign_one_file() {
        none(sign("sign", &[], "@/m", "").faults(Extent::Usual));
        none(sign("sign --force", &["m.sig"], "@/m", "--force").faults(Extent::Usual));
    }

    #[test]
    fn a_ledger_gives_no_number_twice() {
        leases(200);
    }

    /// A full disk, wherever it is noticed: nothing half stays behind, and the error says whether numbers are lost.
    #[test]
    fn a_lease_says_which_numbers_are_lost() {
        let run = lease();
        // So that its note is made, too.
        fs::remove_dir_all(run.place.path("xdg/hypergrove/ledgers")).unwrap();
        none(run.each_fault(&[Fault::Once("ENOSPC"), Fault::Once("EIO")], Call::writes, |call, _, ended| {
            if let Some(name) = files(&run.root()).keys().find(|name| name.ends_with(".new")) {
                return Err(format!("{name} is left behind"));
            }
            let used = state(&run, "p.ledger").map_or(0, |ledger| ledger.used());
            let says = |what: &str| ended.stderr.contains(what);
            match (ended.code, used, state(&run, "lease")) {
                (Some(0), 3, Some(_)) => Ok(()),
                (Some(2), 0, None) if says("no number is lost") => Ok(()),
                // Before anything is written.
                (Some(2), 0, None) if says("error: cannot lock the ledger ") => Ok(()),
                // The name of the lease may not be on the disk.
                (Some(2), 3, _) if says("the numbers 0 to 2 are lost") => Ok(()),
                (code, used, _) => Err(format!("{code:?} and {used} numbers at {}: {}", call.name, ended.stderr)),
            }
        }));
    }

    #[test]
    fn a_manifest_and_its_signature() {
        none(manifest("sign --manifest", false).faults(Extent::Usual));
        none(manifest("sign --manifest --force", true).faults(Extent::Usual));
    }

    #[test]
    fn writes_cut_short() {
        let run = keygen("keygen --force", with_old_pair(), "--pubout @/p.pem --force").pair("k.pem", "p.pem");
        none(run.short_writes((0..168).step_by(12)));
        none(sign("sign", &[], "@/m", "").short_writes((0..17_088).step_by(1_424)));
    }

    /// Programs that write as the tool must not are found out.
    #[test]
    fn other_ways_to_write_are_found() {
        let place = || {
            let place = Place::new();
            place.write("source", "new bytes");
            place.write("target", "old bytes");
            place
        };
        let script = |text: &str, word: &str| {
            let wrong = Run::program("a script", place(), "sh", &["-c", text]).faults(Extent::Usual);
            assert!(wrong.iter().any(|why| why.contains(word)), "{text}: {word:?} is not in {wrong:#?}");
        };
        // In place.
        script("cp @/source @/target || { echo error: >&2; exit 2; }", "target is half: 0 bytes");
        script("rm @/target && cp @/source @/target || { echo error: >&2; exit 2; }", "target is lost");
        // By a temporary.
        script("cp @/source @/new && mv @/new @/target || { echo error: >&2; exit 2; }", "new is left behind");
        script("cp @/source @/new && mv @/new @/target; rm -f @/new", "reports success");
        script("cp @/source @/new && mv @/new @/target || { rm -f @/new; exit 2; }", "gives no reason");
        script("cp @/source @/new && mv @/new @/target || { rm -f @/new; exit 1; }", "exit code Some(1)");
        // A target that is half because the system cuts it short.
        let command = "cp @/source @/target || { echo error: >&2; exit 2; }";
        let wrong = Run::program("a script", place(), "sh", &["-c", command]).short_writes(0..9);
        assert!(wrong.iter().any(|why| why.contains("target is half: 4 bytes")), "{wrong:#?}");
    }
}

/// Minutes: every call that concerns the files, of every command that writes any.
mod full {
    use super::*;
    use hypergrove_gpu::cache::Cache;

    fn every_fault(runs: impl IntoIterator<Item = Run>) {
        none(runs.into_iter().flat_map(|run| run.faults(Extent::Full)).collect());
    }

    /// Another seed's pair is there, and makes way.
    fn zkdilithium(more: &str) -> Run {
        let place = Place::new();
        let pair = ["-o", "k.pem", "--pubout", "p.pem"];
        place.run(&[&["keygen", "--scheme", "zkdilithium"], &pair[..]].concat()).good();
        let seed = &SEEDS[..64];
        let command = format!("keygen --scheme zkdilithium --seeds {seed} -o @/k.pem --pubout @/p.pem {more}");
        Run::tool("keygen --scheme zkdilithium --force", place, &command).pair("k.pem", "p.pem")
    }

    #[test]
    fn keys() {
        every_fault([
            keygen("keygen", Place::new(), "--pubout @/p.pem").pair("k.pem", "p.pem"),
            keygen("keygen --force", with_old_pair(), "--pubout @/p.pem --force").pair("k.pem", "p.pem"),
            keygen("keygen -o", Place::new(), ""),
            keygen("keygen -o --force", with_old_pair(), "--force"),
            zkdilithium("--force"),
            Run::tool("pubkey", with_old_pair(), "pubkey --threads 1 @/k.pem -o @/p2.pem"),
            Run::tool("pubkey --force", with_old_pair(), "pubkey --threads 1 @/k.pem -o @/p.pem --der --force"),
        ]);
    }

    #[test]
    fn a_ledger_gives_no_number_twice_in_10_000_kills() {
        leases(10_000);
    }

    #[test]
    fn signatures() {
        every_fault([
            sign("sign", &[], "@/m", ""),
            sign("sign --force", &["m.sig"], "@/m", "--force"),
            sign("sign of three files", &["b.sig"], "@/a @/b @/c", "--force"),
            manifest("sign --manifest", false),
            manifest("sign --manifest --force", true),
            {
                let run = sign("sign --recursive", &[], "@/a", "--recursive --out-dir @/signatures");
                fs::create_dir(run.place.path("tree")).unwrap();
                fs::create_dir(run.place.path("signatures")).unwrap();
                run.place.write("tree/b", "b");
                Run { args: run.args.iter().map(|word| word.replace("/a", "/tree")).collect(), ..run }
            },
            {
                let place = Place::with_key();
                place.write("m", "a message");
                let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
                place.write("table", [path("k.pem"), path("m"), path("m.sig")].join("\t"));
                Run::tool("sign --table", place, "sign --threads 1 --deterministic --table @/table")
            },
        ]);
    }

    #[test]
    fn answers_and_reports() {
        let place = Place::new();
        let seed = "00".repeat(16);
        let test = format!(r#"{{"tcId":1,"skSeed":"{seed}","skPrf":"{seed}","pkSeed":"{seed}"}}"#);
        let group = format!(r#"{{"tgId":1,"testType":"AFT","parameterSet":"SLH-DSA-SHA2-128f","tests":[{test}]}}"#);
        let head = r#""vsId":1,"algorithm":"SLH-DSA","mode":"keyGen","revision":"FIPS205","isSample":true"#;
        place.write("prompt.json", format!(r#"{{{head},"testGroups":[{group}]}}"#));
        let acvp = Run::tool("acvp", place, "acvp --threads 1 @/prompt.json -o @/answers.json");

        let place = Place::new();
        let study = "bench --study throughput --quick --json --seconds 0.001 --set sha2-128f --device cpu --threads 1";
        let words: Vec<&str> = study.split(' ').chain(["--op", "verify", "--batch", "3"]).collect();
        place.write("run.jsonl", place.run(&words).good().stdout);
        let report = Run::tool("report", place, "report @/run.jsonl -o @/page.html --svg @/svg");
        every_fault([acvp, report]);
    }

    /// As on file systems that have no files without names: the way to give such a file a name, /proc, is hidden.
    #[test]
    fn without_unnamed_files() {
        let mut mounts = Command::new("unshare");
        mounts.args(["-m", "sh", "-c", "mount -t tmpfs none /proc && echo && exec cat"]);
        let spawned = mounts.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut mounts = spawned.expect("unshare is Debian's util-linux");
        if mounts.stdout.as_mut().unwrap().read_exact(&mut [0]).is_err() {
            println!("skipped: faults without unnamed files: this user may not mount");
            return;
        }
        // nsenter becomes the tool: no other process counts calls.
        let hidden = |name: &'static str, run: Run| {
            let before = [format!("--mount=/proc/{}/ns/mnt", mounts.id()), TOOL.into()];
            Run { name, program: "nsenter".into(), args: [&before[..], &run.args].concat(), ..run }
        };
        let pair = |place, more: &str| keygen("", place, more).pair("k.pem", "p.pem");
        every_fault([
            hidden("keygen by temporaries", pair(Place::new(), "--pubout @/p.pem")),
            hidden("keygen --force by temporaries", pair(with_old_pair(), "--pubout @/p.pem --force")),
            hidden("sign by temporaries", sign("", &[], "@/a @/b", "")),
        ]);
        // It ends with its input.
        drop(mounts.stdin.take());
        mounts.wait().unwrap();
    }

    #[test]
    fn every_short_write() {
        let run = keygen("keygen --force", with_old_pair(), "--pubout @/p.pem --force").pair("k.pem", "p.pem");
        none(run.short_writes(0..168));
        none(sign("sign", &[], "@/m", "").short_writes((0..17_088).step_by(89)));
    }

    /// Times differ from run to run: what is there has to be a table, and lines of samples.
    #[test]
    fn a_table_and_its_samples() {
        let command = "tune --device cpu:0 --set sha2-128f --op verify --batch 1 --budget 0.5s -o @/table.toml";
        let run = Run::program("tune", Place::new(), TOOL, &command.split(' ').collect::<Vec<_>>());
        let whole = || {
            for (name, bytes) in files(&run.root()) {
                let text = String::from_utf8(bytes.unwrap_or_default()).unwrap();
                let is_whole = match name.rsplit('.').next() {
                    Some("toml") => {
                        toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("policy"))
                    }
                    Some("jsonl") => text
                        .split_inclusive('\n')
                        .filter(|line| line.ends_with('\n'))
                        .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
                    // Of the next run's making, or what SIGKILL leaves.
                    _ => text.is_empty() || name.ends_with(".next") || TEMPORARIES.contains(&name.as_str()),
                };
                if !is_whole {
                    return Err(format!("{name} is not whole"));
                }
            }
            Ok(())
        };
        let faults = [Fault::Once("ENOSPC"), Fault::Once("EIO"), Fault::Signal("SIGTERM"), Fault::Signal("SIGKILL")];
        none(run.each_fault(
            &faults,
            |call| call.writes() && call.nth < 40,
            |_, _, ended| {
                whole()?;
                match (ended.code, run.place.path("table.toml").exists()) {
                    (Some(0), false) => return Err("it reports success, and there is no table".into()),
                    (Some(2), _) if !ended.stderr.contains("error: ") => return Err("it gives no reason".into()),
                    (Some(0 | 2) | None, _) => {}
                    (code, _) => return Err(format!("exit code {code:?}: {}", ended.stderr)),
                }
                let next = run.run(&[], &[]);
                if next.code != Some(0) || !run.place.path("table.toml").exists() {
                    return Err(format!("the next run fails: {}", next.stderr));
                }
                whole()
            },
        ));
    }

    /// Keys are new in each run: what is kept has to fit together.
    #[test]
    fn what_quickstart_keeps() {
        let place = Place::new();
        fs::create_dir(place.path("in")).unwrap();
        place.write("in/a", "a message");
        place.write("in/b", "another one");
        let command = "quickstart --threads 1 --set sha2-128f @/in --keep @/keep";
        let run = Run::program("quickstart", place, TOOL, &command.split(' ').collect::<Vec<_>>());
        none(run.each_fault(&[Fault::Once("EIO"), Fault::Signal("SIGKILL")], Call::writes, |_, _, ended| {
            let found = files(&run.root());
            let good = |args: &[&str]| run.place.run(args).code == Some(0);
            for name in found.keys().filter(|name| name.starts_with("keep/")) {
                let is_whole = match name.as_str() {
                    "keep/signatures" => true,
                    "keep/private.pem" => good(&["pubkey", name]),
                    "keep/public.pem" => {
                        let public = run.place.run(&["pubkey", "keep/private.pem"]).stdout;
                        found[name].as_deref() == Some(&public[..])
                    }
                    name => {
                        let message = name.replace("keep/signatures", "in").replace(".sig", "");
                        good(&["verify", "--key", "keep/public.pem", &message, "-s", name])
                    }
                };
                if !is_whole {
                    return Err(format!("{name} is not whole"));
                }
            }
            match ended.code {
                Some(0) if found.len() != 9 => Err(format!("it reports success, and keeps {:?}", found.keys())),
                Some(2) if !ended.stderr.contains("error: ") => Err("it gives no reason".into()),
                Some(0 | 2) | None => Ok(()),
                code => Err(format!("exit code {code:?}: {}", ended.stderr)),
            }
        }));
    }

    const KEY: [u8; 32] = [7; 32];

    /// The program that [`compiled_code`] runs.
    #[test]
    fn compiled_code_is_stored() {
        let place = Place::new();
        let directory = std::env::var_os(CACHE).map_or(place.path("cache"), |home| Path::new(&home).join("code"));
        let code = vec![9; 100_000];
        let cache = Cache::new(&directory);
        cache.store(&KEY, &code);
        // Whoever injects a fault looks at the file instead.
        assert!(std::env::var_os(CACHE).is_some() || cache.load(&KEY) == Some(code));
    }

    #[test]
    fn compiled_code() {
        let program = std::env::current_exe().unwrap();
        let words = ["--exact", "full::compiled_code_is_stored"];
        let run = Run::program("a cache of compiled code", Place::new(), program.to_str().unwrap(), &words);
        assert_eq!(run.run(&[], &[]).code, Some(0));
        let new = files(&run.root());
        restore(&run.root(), &Files::new());
        // How the run ends says nothing: the faults meet the test runner's own threads too.
        none(run.each_fault(
            &ALL,
            |_| true,
            |call, fault, _| {
                for (name, bytes) in files(&run.root()) {
                    let may_stay = matches!(fault, Fault::Signal(_)) || call.name.starts_with("unlink");
                    let is_good = if name.contains(".bin.") { may_stay } else { new.get(&name) == Some(&bytes) };
                    if !is_good {
                        return Err(format!("{name} is not whole, or left behind"));
                    }
                }
                Ok(())
            },
        ));
    }
}
