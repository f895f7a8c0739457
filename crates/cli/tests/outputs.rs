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
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const TOOL: &str = env!("CARGO_BIN_EXE_hypergrove");
/// Names that SIGKILL may leave, and that the next run removes.
const TEMPORARIES: [&str; 3] = [".hypergrove-private.tmp", ".hypergrove-public.tmp", ".hypergrove-replaced.tmp"];
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

/// What goes wrong at a call.
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
    /// What it is called in the report.
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
        for folder in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
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

    /// What is wrong after a run that began with the files `old` and would end with `new`.
    fn judge(&self, old: &Files, new: &Files, call: &str, fault: Option<Fault>, ended: &Ended) -> Result<(), String> {
        let found = files(&self.root());
        let killed = matches!(fault, Some(Fault::Signal("SIGKILL")));
        let is = |name: &str, of: &Files| found.get(name) == of.get(name);
        for name in old.keys().chain(new.keys()) {
            if is(name, old) || is(name, new) {
                continue;
            }
            // A kill may part a pair: the public key that makes way is kept, or follows from the new private key.
            let parted = self.pair.is_some_and(|(private, public)| {
                let kept = killed && found.get(TEMPORARIES[2]) == old.get(public);
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
        // What cannot be removed stays; a kill leaves temporaries.
        let may_stay = killed || call.starts_with("unlink");
        if let Some(name) = left.iter().find(|name| !may_stay || !TEMPORARIES.contains(&name.as_str())) {
            return Err(format!("{name} is left behind"));
        }
        let is_done = new.keys().all(|name| is(name, new));
        match (ended.code, ended.signal, fault) {
            (Some(0), ..) if !is_done => Err("it reports success, and its files are not there".into()),
            (Some(0), ..) => Ok(()),
            (Some(2), ..) if !ended.stderr.contains("error: ") => Err(format!("it gives no reason: {}", ended.stderr)),
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

    /// Every fault at every call; reports how many, and returns what was wrong.
    fn faults(&self, extent: Extent) -> Vec<String> {
        let old = files(&self.root());
        let calls = self.calls();
        let new = files(&self.root());
        assert_ne!(old, new, "{} writes nothing", self.name);
        let is_writing = |call: &&Call| {
            let makes =
                call.name.starts_with("open") && (call.line.contains("O_CREAT") || call.line.contains("O_TMPFILE"));
            extent == Extent::Full || makes || WRITING.contains(&call.name.as_str())
        };
        let faults = if extent == Extent::Full { &ALL[..] } else { &USUAL };
        let (mut wrong, mut injected, mut count) = (Vec::new(), 0, 0);
        for call in calls.iter().filter(is_writing) {
            count += 1;
            for fault in faults {
                restore(&self.root(), &old);
                let Some(ended) = self.injected(call, *fault) else { continue };
                injected += 1;
                let judged = self.judge(&old, &new, &call.name, Some(*fault), &ended);
                let judged = judged.and_then(|()| self.judge_next(&new));
                wrong.extend(judged.err().map(|why| format!("{}: {fault:?} at {}: {why}", self.name, call.line)));
            }
        }
        println!("{}: {injected} faults at {count} system calls", self.name);
        assert!(injected * 10 >= count * faults.len() * 9, "{}: calls were not met", self.name);
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
        println!("{}: {cut} short writes", self.name);
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

    #[test]
    fn sign_one_file() {
        none(sign("sign", &[], "@/m", "").faults(Extent::Usual));
        none(sign("sign --force", &["m.sig"], "@/m", "--force").faults(Extent::Usual));
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
        // What is half because the system cuts it short.
        let command = "cp @/source @/target || { echo error: >&2; exit 2; }";
        let wrong = Run::program("a script", place(), "sh", &["-c", command]).short_writes(0..9);
        assert!(wrong.iter().any(|why| why.contains("target is half: 4 bytes")), "{wrong:#?}");
    }
}
