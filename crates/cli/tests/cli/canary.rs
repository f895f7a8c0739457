//! A private key that stands in the wrong place is never shown: in any argument, file, line of a list, or variable.

use crate::place::Place;
use hypergrove_testkit::canary::Canaries;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

/// The commands, with arguments that let them read the others. Those that measure end before they do so.
const COMMANDS: [(&[&str], &[&str]); 19] = [
    (&["keygen"], &["--set", "SLH-DSA-SHA2-128f", "-o", "k2.pem"]),
    (&["pubkey"], &["k.pem"]),
    (&["sign"], &["--key", "k.pem", "m", "--force"]),
    (&["verify"], &["--key", "p.pem", "m"]),
    (&["inspect"], &["m"]),
    (&["devices"], &[]),
    (&["explain"], &["sign", "--device", "cpu:9"]),
    (&["bench"], &["--device", "cpu:9"]),
    (&["hash"], &["m"]),
    (&["tune"], &["--device", "cpu:9"]),
    (&["report"], &["m"]),
    (&["acvp"], &["m"]),
    (&["kat"], &["m"]),
    (&["quickstart"], &["--device", "cpu:9"]),
    (&["ledger", "init"], &["k.pem"]),
    (&["ledger", "show"], &["k.pem"]),
    (&["ledger", "lease"], &["k.pem"]),
    (&["completions"], &[]),
    (&["man"], &["--device", "cpu:9"]),
];

struct Plants {
    place: Place,
    canaries: Canaries,
    next: usize,
}

impl Plants {
    /// Each form in turn; with `HYPERGROVE_TESTS=all` all of them.
    fn each(&mut self, mut run: impl FnMut(&Plants, &str, &[u8])) {
        let forms = self.canaries.forms.len();
        let count = if hypergrove_testkit::all() { forms } else { 1 };
        for _ in 0..count {
            let (name, bytes) = self.canaries.forms[self.next % forms].clone();
            self.next += 1;
            run(self, &name, &bytes);
        }
    }

    fn run(&self, args: &[&OsStr], stdin: Option<&[u8]>, form: &str) {
        self.run_in(self.place.command(&[]), args, stdin, form);
    }

    fn run_in(&self, mut command: std::process::Command, args: &[&OsStr], stdin: Option<&[u8]>, form: &str) {
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin.unwrap_or_default());
        let out = child.wait_with_output().unwrap();
        let shown: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().chars().take(20).collect::<String>()).collect();
        let what = format!("{form} in {shown:?}");
        self.canaries.check(&what, &[out.stdout, out.stderr].concat());
    }

    /// The command with arguments that it needs, and one more.
    fn try_after(&self, path: &[&str], needed: &[&str], given: &[&OsStr], stdin: Option<&[u8]>, form: &str) {
        let args: Vec<&OsStr> = path.iter().chain(needed).map(OsStr::new).chain(given.iter().copied()).collect();
        self.run(&args, stdin, form);
    }
}

/// The options of a command that take a value, and whether it is a path.
fn options(place: &Place, path: &[&str]) -> Vec<(String, bool)> {
    let help = place.run(&[&["help"], path].concat()).good();
    let option = |line: &str| {
        let (name, value) = line.trim_start().rsplit_once("--")?.1.split_once([' ', '['])?;
        let is_option = line.trim_start().starts_with('-') && (value.starts_with('<') || line.contains("[<"));
        let is_path = value.contains("FILE") || value.contains("DIR");
        is_option.then(|| (name.trim_end_matches('=').to_owned(), is_path))
    };
    let mut found: Vec<(String, bool)> = help.text().lines().filter_map(option).collect();
    let of_machine = ["threads", "memory", "backend", "device", "isa", "device-timeout"];
    found.extend(of_machine.map(|option| (option.to_owned(), false)));
    found.sort();
    found.dedup();
    found
}

fn plants() -> Plants {
    let place = Place::with_key();
    place.write("m", "message");
    Plants { place, canaries: Canaries::read(), next: 0 }
}

/// Whether the operating system passes these bytes as an argument.
fn fits(bytes: &[u8]) -> bool {
    !bytes.contains(&0)
}

#[test]
fn no_argument_is_shown() {
    let mut plants = plants();
    let mut count = 0;
    for (path, needed) in COMMANDS {
        let options = options(&plants.place, path);
        for (option, _) in &options {
            count += 1;
            plants.each(|plants, form, bytes| {
                let (long, value) = (format!("--{option}"), OsStr::from_bytes(bytes));
                if fits(bytes) {
                    plants.try_after(path, needed, &[OsStr::new(&long), value], None, form);
                    let joined = [long.as_bytes(), b"=", bytes].concat();
                    plants.try_after(path, &[], &[OsStr::from_bytes(&joined)], None, form);
                }
            });
        }
        plants.each(|plants, form, bytes| {
            if fits(bytes) {
                plants.try_after(path, needed, &[OsStr::from_bytes(bytes)], None, form);
                plants.try_after(path, &[], &[OsStr::from_bytes(bytes)], None, form);
                let (first, second) = bytes.split_at(bytes.len() / 2);
                plants.try_after(path, needed, &[first, second].map(OsStr::from_bytes), None, form);
                for start in [&b"--"[..], b"-", b"--key="] {
                    let option = [start, bytes].concat();
                    plants.try_after(path, needed, &[OsStr::from_bytes(&option)], None, form);
                }
            }
        });
    }
    assert!(count > 150, "{count} options");
    for (form, bytes) in plants.canaries.forms.iter().filter(|(_, bytes)| fits(bytes)) {
        for args in [&[][..], &["help"], &["--quiet"], &["--threads"], &["ledger"]] {
            let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([OsStr::from_bytes(bytes)]).collect();
            plants.run(&args, None, form);
        }
    }
}

#[test]
fn no_file_and_no_input_is_shown() {
    let mut plants = plants();
    for (path, needed) in COMMANDS {
        let options = options(&plants.place, path);
        let named = options.iter().filter(|(_, is_path)| *is_path).map(|(option, _)| Some(format!("--{option}")));
        for option in named.chain([None]) {
            plants.each(|plants, form, bytes| {
                for (file, stdin, needed) in
                    [("canary", None, &[][..]), ("canary", None, needed), ("-", Some(bytes), &[])]
                {
                    // Some options name a file to be written.
                    plants.place.write("canary", bytes);
                    let given: Vec<&OsStr> = option.as_deref().into_iter().chain([file]).map(OsStr::new).collect();
                    plants.try_after(path, needed, &given, stdin, form);
                }
            });
        }
    }
}

/// Files that hold a key where a word, a name or a number belongs.
fn documents(place: &Place, form: &[u8]) -> Vec<(Vec<u8>, Vec<Vec<&'static str>>)> {
    let word =
        place.run(&["pubkey", "--line", "k.pem"]).text().split_whitespace().last().unwrap_or_default().to_owned();
    let sum = "ab".repeat(32);
    let line = |before: &str, after: &str| [before.as_bytes(), form, after.as_bytes()].concat();
    let json = |before: &str, after: &str| {
        let text = format!("{:?}", String::from_utf8_lossy(form)).replace("\\'", "'").replace("\\u{", "\\\\u{");
        format!("{before}{text}{after}").into_bytes()
    };
    let verify = |option: &'static str| vec!["verify", option, "canary", "m"];
    let acvp = "{\"algorithm\":\"SLH-DSA\",\"revision\":\"FIPS205\",\"mode\":\"sigGen\",";
    let group = format!("{acvp}\"testGroups\":[{{\"tgId\":1,");
    vec![
        (line("", &format!(" {word}\n")), vec![verify("--allowed-signers")]),
        (line("alice ", "\n"), vec![verify("--allowed-signers")]),
        (line("alice valid-after=", &format!(" {word}\n")), vec![verify("--allowed-signers")]),
        (line("alice ", &format!("=1 {word}\n")), vec![verify("--allowed-signers")]),
        // `sign` would write a file of this name.
        (line("k.pem\tm\t", "\n"), vec![vec!["verify", "--table", "canary"]]),
        (line("", "\tm\tm.sig\n"), vec![vec!["sign", "--table", "canary"], vec!["verify", "--table", "canary"]]),
        (
            line("m\n", "\n"),
            vec![vec!["sign", "--key", "k.pem", "--list", "canary", "--force"], vec!["hash", "--list", "canary"]],
        ),
        (
            line(&format!("{sum}  "), "\n"),
            vec![vec!["hash", "--check", "canary"], vec!["hash", "--check", "--json", "canary"]],
        ),
        (
            line("-----BEGIN ", "-----\nAAAA\n-----END X-----\n"),
            vec![vec!["pubkey", "canary"], vec!["inspect", "canary"]],
        ),
        (line("-----BEGIN HYPERGROVE SIGNATURE-----\nVersion: 1\nSet: ", "\n\n"), vec![vec!["inspect", "canary"]]),
        (line("-----BEGIN HYPERGROVE SIGNATURE-----\nVersion: 1\n", ": a\n\n"), vec![vec!["inspect", "canary"]]),
        (json(acvp, ":1}"), vec![vec!["acvp", "canary"]]),
        (
            json("{\"algorithm\":", ",\"revision\":\"FIPS205\",\"mode\":\"sigGen\",\"testGroups\":[]}"),
            vec![vec!["acvp", "canary"]],
        ),
        (json("{\"vsId\":", "}"), vec![vec!["acvp", "canary"]]),
        (json(&group, ":1}]}"), vec![vec!["acvp", "canary"]]),
        (json(&format!("{group}\"parameterSet\":"), ",\"tests\":[]}]}"), vec![vec!["acvp", "canary"]]),
        (json(&format!("{group}\"tests\":"), "}]}"), vec![vec!["acvp", "canary"]]),
        (json("{\"cases\":", "}"), vec![vec!["kat", "canary"]]),
        (json("{\"cases\":[{\"seed\":\"00\",\"msg\":\"\",\"id\":", "}]}"), vec![vec!["kat", "canary"]]),
        (json("{\"cases\":[{\"id\":\"a\",\"msg\":\"\",\"seed\":", "}]}"), vec![vec!["kat", "canary"]]),
        (json("{\"set\":", "}\n"), vec![vec!["report", "canary"]]),
        (json("{\"batch\":", "}\n"), vec![vec!["report", "canary"]]),
        (json("{", ":1}\n"), vec![vec!["report", "canary"]]),
    ]
}

#[test]
fn no_word_of_a_document_is_shown() {
    let plants = plants();
    for (form, bytes) in &plants.canaries.forms {
        for (document, commands) in documents(&plants.place, bytes) {
            plants.place.write("canary", document);
            for command in commands {
                plants.run(&command.iter().map(OsStr::new).collect::<Vec<_>>(), None, form);
            }
        }
    }
}

#[test]
fn no_variable_and_no_table_of_policies_is_shown() {
    let plants = plants();
    for (form, bytes) in plants.canaries.forms.iter().filter(|(_, bytes)| fits(bytes)) {
        for name in [
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "HOME",
            "NO_COLOR",
            "TERM",
            "LD_LIBRARY_PATH",
            "KEY",
        ] {
            for args in [
                &["devices", "--verbose"][..],
                &["ledger", "show", "k.pem"],
                &["sign", "--key", "k.pem", "m", "--force"],
            ] {
                let mut command = plants.place.command(&[]);
                command.env(name, OsStr::from_bytes(bytes));
                let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
                plants.run_in(command, &args, None, &format!("{form} in {name}"));
            }
        }
        let folder = plants.place.path("config/hypergrove/tuning/cpu");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("table.toml"), bytes).unwrap();
        let mut command = plants.place.command(&["devices", "--verbose"]);
        command.env("XDG_CONFIG_HOME", plants.place.path("config"));
        plants.run_in(command, &[], None, form);
    }
}

#[test]
fn who_may_have_read_a_key_in_the_arguments_is_said() {
    let plants = plants();
    for (name, text) in plants.canaries.texts() {
        let run = plants.place.run(&["sign", "--key", text, "m"]).exits(2);
        for said in ["other users", "--key FILE", "printenv KEY"] {
            assert!(run.stderr.contains(said), "{name}: {}", run.stderr);
        }
    }
    let run = plants.place.run(&["sign", "--key", "missing-key.pem", "m"]).exits(2);
    assert!(!run.stderr.contains("other users"), "{}", run.stderr);
}
