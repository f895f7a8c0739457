//! A directory to run the tool in.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A directory of one test's own. The tool's settings and notes lie in another, so no test sees those of the user or of a test before.
pub(crate) struct Place {
    directory: TempDir,
    home: TempDir,
}

/// The output of a run, and its exit code.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        let [directory, home] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Place { directory, home }
    }

    /// With a SHA2-128f key from fixed seeds: `k.pem` and `p.pem`.
    pub(crate) fn with_key() -> Place {
        let place = Place::new();
        place.keygen("SLH-DSA-SHA2-128f", "k.pem", "p.pem");
        place
    }

    /// A key of a set from seeds that are counted up.
    pub(crate) fn keygen(&self, set: &str, private: &str, public: &str) {
        let n = set.split('-').next_back().unwrap()[..3].parse::<usize>().unwrap() / 8;
        let seeds: String = (0..3 * n).map(|i| format!("{i:02x}")).collect();
        self.run(&["keygen", "--set", set, "--seeds", &seeds, "-o", private, "--pubout", public]).good();
    }

    /// With the system's own separators, as the tool shows it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        name.split('/').fold(self.directory.path().into(), |path: PathBuf, part| path.join(part))
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// All that is in the directory, hidden files too.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove"));
        command.args(args);
        self.enter(&mut command);
        command
    }

    fn enter(&self, command: &mut Command) {
        command.current_dir(self.directory.path());
        command.env("XDG_CONFIG_HOME", self.home.path()).env("XDG_STATE_HOME", self.home.path());
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.command(args).stdin(Stdio::null()).output().unwrap().into()
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Run {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A tool that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap().into()
    }

    /// Ends a run that takes more than so many seconds. It prints little: nobody reads meanwhile.
    pub(crate) fn run_for(&self, seconds: u64, args: &[&str]) -> Run {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(seconds) {
                child.kill().unwrap();
            }
            sleep(Duration::from_millis(1));
        }
        child.wait_with_output().unwrap().into()
    }

    /// Runs a shell script; `$H` is the tool.
    #[cfg(unix)]
    pub(crate) fn shell(&self, script: &str) -> Run {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("H", env!("CARGO_BIN_EXE_hypergrove"));
        self.enter(&mut shell);
        shell.stdin(Stdio::null()).output().unwrap().into()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Run { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn good(self) -> Run {
        self.exits(0)
    }

    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", String::from_utf8_lossy(&self.stdout), self.stderr);
        self
    }

    /// Ended with exit code 2, nothing on standard output, and an error with all of these words.
    pub(crate) fn refuses(self, words: &[&str]) -> Run {
        let run = self.exits(2);
        assert!(run.stdout.is_empty(), "{}", String::from_utf8_lossy(&run.stdout));
        run.says(words)
    }

    /// This is on neither output, but for the ends of lines.
    pub(crate) fn shows_no(&self, text: &str) {
        let shown = [self.text(), &self.stderr].concat();
        let lines = shown.lines().filter(|line| line.starts_with('b')).count();
        assert!(lines == 0 && (text == "\n" || !shown.contains(text)), "{text:?} is in {shown:?}");
    }

    /// There is an error with all of these words.
    pub(crate) fn says(self, words: &[&str]) -> Run {
        assert!(self.stderr.lines().any(|line| line.starts_with("error: ")), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
        self
    }
}
