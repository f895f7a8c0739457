//! Starting programs, and reading what test runners say.

use crate::disk;
use crate::step::{Tally, ensure};
use std::borrow::BorrowMut;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Which lines of a test binary are shown. Tests that pass print for whoever looks into them, by the thousand lines where
/// they provoke panics; of that only `checked: what` is shown, and `skipped: what: why` at the end of the run.
#[derive(Default)]
struct View {
    in_successes: bool,
}

impl View {
    fn shows(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ if line.starts_with("test result: ") => self.in_successes = false,
            _ => {}
        }
        !self.in_successes || line.starts_with("checked: ")
    }
}

/// The cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = running_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// A program that runs Cargo. Without nvcc, "all features" are all but the ready kernels.
pub(crate) fn running_cargo(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if std::env::var_os("HYPERGROVE_NVCC").is_none() {
        command.env("HYPERGROVE_NVCC", "none");
    }
    command
}

/// Runs a command of Cargo's that compiles this target; the files that it makes of it.
pub(crate) fn made(mut command: Command, target: &str) -> Result<Vec<PathBuf>, String> {
    let line = shown(&command);
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("`{line}`: {error}"))?;
    ensure!(output.status.success(), "`{line}`: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let files = messages
        .filter(|message| message["target"]["name"] == target)
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    Ok(files.filter_map(|file| file.as_str().map(PathBuf::from)).collect())
}

/// The CPU time of all programs that this process has started and that have ended. Unlike the time on a clock, it says little about what
/// else the machine did meanwhile. Zero where the system does not report it in Linux's way.
pub(crate) fn cpu_time() -> Duration {
    std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| children_time(&stat)).unwrap_or_default()
}

/// The fields `cutime` and `cstime` of `/proc/PID/stat`, which count hundredths of a second (proc_pid_stat(5)).
fn children_time(stat: &str) -> Option<Duration> {
    // The second field, the program's name in parentheses, may contain spaces; the 16th and 17th fields are the times.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    disk::workspace().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// `program arguments…`, ended with all its children after so many minutes where coreutils' `timeout` is to be had.
pub(crate) fn limited(minutes: u32, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    if answers("timeout", &["--version"]) {
        command = Command::new("timeout");
        command.args(["--kill-after=10s", &format!("{minutes}m"), program]);
    }
    command.args(arguments);
    command
}

/// Whether the program is there and ends well; it prints nothing.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    output(program, arguments).is_some()
}

/// The program's standard output, if it succeeds.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the command: its standard output. If it fails, the error has its standard error.
pub(crate) fn text(mut command: impl BorrowMut<Command>) -> Result<String, String> {
    let command = command.borrow_mut();
    let line = shown(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("`{line}`: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{line}`: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Runs the command in view.
pub(crate) fn run(mut command: impl BorrowMut<Command>) -> Result<(), String> {
    let command = command.borrow_mut();
    let line = shown(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("`{line}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}`: {status}")) }
}

/// Runs a command that fetches from the network, which may fail once or twice: up to three times, ten seconds apart.
pub(crate) fn fetch(command: impl Fn() -> Command) -> Result<(), String> {
    for _ in 0..2 {
        match run(command()) {
            Ok(()) => return Ok(()),
            Err(why) => eprintln!("{why}; trying again in ten seconds"),
        }
        std::thread::sleep(Duration::from_secs(10));
    }
    run(command()).inspect_err(|why| eprintln!("{why}"))
}

/// Runs test binaries in view, counting what they report on either stream: how many tests passed.
pub(crate) fn run_tests(mut command: Command, tally: &mut Tally) -> Result<u64, String> {
    let before = tally.passed;
    let line = shown(&command);
    let failed = |error: std::io::Error| format!("`{line}`: {error}");
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = child.stdout.take().zip(child.stderr.take()).expect("both are piped");
    let counts = Mutex::new(&mut *tally);
    let read = |line: &str| counts.lock().expect("no reader panics").read(line);
    std::thread::scope(|scope| {
        let errors = scope.spawn(|| pass_on(stderr, std::io::stderr(), &read));
        pass_on(stdout, std::io::stdout(), &read).and(errors.join().expect("no reader panics"))
    })
    .map_err(failed)?;
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(tally.passed - before),
        status if status.code() == Some(124) => Err(format!("`{line}`: out of time")),
        status => Err(format!("`{line}`: {status}")),
    }
}

/// Runs test binaries at the same time: how many tests passed, or the first failure, once all have ended.
pub(crate) fn run_tests_concurrently(commands: Vec<Command>, tally: &mut Tally) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let run = |command| {
            scope.spawn(move || {
                let mut own = Tally::default();
                (run_tests(command, &mut own), own)
            })
        };
        let running: Vec<_> = commands.into_iter().map(run).collect();
        let mut result = Ok(0);
        for run in running {
            let (ended, own) = run.join().expect("no reader panics");
            tally.add(own);
            result = result.and_then(|passed| Ok(passed + ended?));
        }
        result
    })
}

/// Copies those lines of a stream that [`View`] shows, and gives each line to `read`.
fn pass_on(from: impl Read, mut to: impl Write, read: &impl Fn(&str)) -> std::io::Result<()> {
    let (mut from, mut bytes, mut view) = (BufReader::new(from), Vec::new(), View::default());
    while from.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes);
        if view.shows(line.trim_end()) {
            to.write_all(&bytes)?;
        }
        read(line.trim_end());
        bytes.clear();
    }
    to.flush()
}

fn shown(command: &Command) -> String {
    let words: Vec<OsString> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(Into::into).collect();
    let line = words.join(" ".as_ref()).to_string_lossy().into_owned();
    std::env::var("CARGO").map_or(line.clone(), |cargo| line.replace(&cargo, "cargo"))
}

/// Whether missing tools may be fetched: CI's machines are its own, a developer's are not.
pub(crate) fn may_install() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

/// Only one process of this workspace installs at a time: neither apt-get nor rustup can run twice. The lock ends with what is returned.
fn installing() -> Option<File> {
    let target = disk::workspace().join("target");
    std::fs::create_dir_all(&target).ok()?;
    let file = File::create(target.join("installing.lock")).ok()?;
    file.lock().ok().map(|()| file)
}

/// Whether root runs this.
pub(crate) fn is_root() -> bool {
    output("id", &["-u"]).is_some_and(|id| id.trim() == "0")
}

/// Sees that something is there: installs it, if that may be, or says how to. `install` returns whether it succeeded.
pub(crate) fn ensure(
    there: impl Fn() -> bool,
    install: impl FnOnce() -> bool,
    how: impl FnOnce() -> String,
) -> Result<(), String> {
    if there() {
        return Ok(());
    }
    let _alone = installing();
    if there() || may_install() && install() && there() { Ok(()) } else { Err(how()) }
}

/// Sees to Debian's packages, where what is asked for is not there; or says how to get it.
pub(crate) fn ensure_packages(packages: &[&str], there: impl Fn() -> bool) -> Result<(), String> {
    let apt = |arguments: &[&str]| {
        fetch(|| {
            let mut command = limited(5, "apt-get", arguments);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        })
    };
    let install = || {
        let install = ["-qq", "install", "--yes", "--no-install-recommends"];
        is_root()
            && answers("apt-get", &["--version"])
            && apt(&["-qq", "update"]).and_then(|()| apt(&[&install[..], packages].concat())).is_ok()
    };
    ensure(there, install, || format!("not all is there of what `apt-get install {}` would bring", packages.join(" ")))
}

/// Sees to a command of Cargo's that crates.io has, or says how to get it.
pub(crate) fn ensure_command(name: &str) -> Result<(), String> {
    let package = format!("cargo-{name}");
    let install = ["install", "--locked", &package];
    let fetch = || fetch(|| limited(20, "cargo", &[&install[..], &["--quiet", "--debug"]].concat())).is_ok();
    ensure(|| answers("cargo", &[name, "--version"]), fetch, || format!("no {package}: `cargo {}`", install.join(" ")))
}

/// Sees to the standard library of a target, or says how to get it.
pub(crate) fn ensure_target(target: &str) -> Result<(), String> {
    let there =
        || output("rustup", &["target", "list", "--installed"]).is_some_and(|list| list.lines().any(|t| t == target));
    let how = || format!("no standard library for {target}: `rustup target add {target}`");
    ensure(there, || answers("rustup", &["target", "add", target]), how)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_time_of_children_is_read_behind_the_programs_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 80000 0 5 3 4 1250 75 20 0 1 0 100 2000 300";
        assert_eq!(children_time(stat), Some(Duration::from_millis(13_250)));
        assert_eq!(children_time("7 (a) S 1"), None);
    }

    #[test]
    fn tests_that_pass_are_not_heard() {
        let output = "test a ... FAILED\n\nsuccesses:\n\n---- b stdout ----\nthread 'b' panicked\nchecked: 3 cases\n\
                      skipped: gpu: none\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout ----\nthread 'a' panicked\n\n\
                      test result: FAILED. 1 passed; 1 failed\n\nsuccesses:\n\nsuccesses:\n\ntest result: ok. 0 passed; 0 failed\n";
        let (mut shown, tally) = (Vec::new(), Mutex::new(Tally::default()));
        pass_on(output.as_bytes(), &mut shown, &|line: &str| tally.lock().unwrap().read(line)).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        let shown: Vec<_> = shown.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            shown,
            [
                "test a ... FAILED",
                "checked: 3 cases",
                "failures:",
                "---- a stdout ----",
                "thread 'a' panicked",
                "test result: FAILED. 1 passed; 1 failed",
                "test result: ok. 0 passed; 0 failed",
            ]
        );
        assert_eq!(tally.into_inner().unwrap().skipped.len(), 1);
    }
}
