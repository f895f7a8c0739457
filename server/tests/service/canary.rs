//! A private key that stands in the wrong place is never shown: in any argument, setting, variable, path or field of the service.

use crate::deployment::{Client, Server, is_full};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

#[path = "../../../crates/testkit/src/canary.rs"]
#[expect(unreachable_pub, reason = "a module of another crate")]
mod forms;
use forms::Canaries;

/// The commands; those that would start a server get an address that they refuse.
const COMMANDS: [&[&str]; 9] = [
    &["dev", "--listen", "0.0.0.0:1"],
    &["init"],
    &["run"],
    &["root-token"],
    &["import"],
    &["audit", "verify"],
    &["audit", "rotate"],
    &["audit", "accept-loss"],
    &["unseal"],
];

/// Fields that a client gets back as it gave them.
const RETURNED: [&str; 2] = ["reference", "display_name"];

fn ran(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
    command.args(arguments).stdin(Stdio::null()).current_dir(std::env::temp_dir()).output().unwrap()
}

fn check(canaries: &Canaries, what: &str, output: &Output) {
    canaries.check(what, &[&output.stdout[..], &output.stderr].concat());
}

#[test]
fn no_argument_is_shown() {
    let canaries = Canaries::read();
    let step = if is_full() { 1 } else { 5 };
    for (form, text) in canaries.texts().into_iter().step_by(step) {
        for command in COMMANDS {
            let help =
                ran(&[&command[..command.len().min(if command[0] == "audit" { 2 } else { 1 })], &["--help"]].concat());
            let help = String::from_utf8(help.stdout).unwrap();
            let options: BTreeSet<&str> =
                help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2).collect();
            assert!(options.contains("--help"), "{help}");
            let joined: Vec<String> = options.iter().map(|option| format!("{option}={text}")).collect();
            let after: Vec<Vec<&str>> = options.iter().map(|option| vec![*option, text]).collect();
            let unknown = [format!("--{text}"), format!("-{text}"), text.to_owned()];
            let all = joined.iter().chain(&unknown).map(|word| vec![&**word]).chain(after);
            let all = all.chain([vec!["--dev", text, text, text], vec!["--dev", "missing", "name", text]]);
            for given in all {
                check(&canaries, &format!("{form} after {command:?}"), &ran(&[command, &given].concat()));
            }
        }
        let said = ran(&["import", "--dev", "missing", "name", "file", text]);
        assert!(String::from_utf8_lossy(&said.stderr).contains("other users"), "{form}: {said:?}");
        check(&canaries, form, &ran(&[text]));
        // Otherwise, the server would make a folder of this name, and name it in its log.
        let dev = ran(&["dev", &*format!("--data={text}")]);
        assert!(!dev.status.success(), "{form}: {dev:?}");
        check(&canaries, form, &dev);
    }
}

#[test]
fn no_setting_and_no_file_is_shown() {
    let (canaries, mut server) = (Canaries::read(), Server::stopped(""));
    let settings = std::fs::read_to_string(server.path("server.toml")).unwrap();
    for (form, bytes) in &canaries.forms {
        let text = json!(String::from_utf8_lossy(bytes)).to_string();
        let with = |more: String| [settings.as_bytes(), more.as_bytes()].concat();
        let mut files = vec![bytes.clone(), [b"data = ", &bytes[..]].concat()];
        files.extend(
            ["listen", "data", "socket"].map(|setting| format!("{setting} = {text}\n")).map(String::into_bytes),
        );
        files.push(format!("{text} = 1\n").into_bytes());
        files.extend(
            [
                "[seal]\nkind = ",
                "[seal]\nkind = 'file'\npath = ",
                "[audit]\nfsync = ",
                "[limits]\nmax_body = ",
                "[engine]\nthreads = ",
            ]
            .map(|setting| with(format!("{setting}{text}\n"))),
        );
        files.push(with(format!("[seal]\nkind = 'command'\ncommand = [{text}]\n")));
        files.push(with(format!("[tls]\ncertificate = {text}\nkey = 'k'\n")));
        files.push(with(format!("[limits]\n{text} = 1\n")));
        for file in files {
            std::fs::write(server.path("canary.toml"), file).unwrap();
            let path = server.path("canary.toml");
            for command in [&["root-token", "--config"][..], &["audit", "verify", "--config"]] {
                check(&canaries, &format!("{form} in settings"), &ran(&[command, &[path.to_str().unwrap()]].concat()));
            }
        }
        std::fs::write(server.path("canary"), bytes).unwrap();
        let file = server.path("canary");
        check(&canaries, &format!("{form} in a file"), &server.command(&["import", "name", file.to_str().unwrap()]));
        let tls = with(format!("[tls]\ncertificate = {file:?}\nkey = {file:?}\n"));
        std::fs::write(server.path("canary.toml"), tls).unwrap();
        let refused = ran(&["run", "--config", server.path("canary.toml").to_str().unwrap()]);
        check(&canaries, &format!("{form} as the key of TLS"), &refused);
        // A list of the bytes shows the key, too: these are two dashes.
        assert!(!String::from_utf8_lossy(&refused.stderr).contains("45, 45"), "{form}: {refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("[tls]"), "{form}: {refused:?}");
    }
    let canary = canaries.texts()[2].1;
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
    command.args(["run", "--config"]).arg(server.path("server.toml")).env("HYPERGROVE_SERVER_LOG", canary);
    // Also with such a variable, the server starts, says so, and shows no part of it.
    command.env("HYPERGROVE_SERVER_LOG", format!("info,{canary}=debug"));
    server.spawn(command);
    canaries.check("HYPERGROVE_SERVER_LOG", server.logged.lock().unwrap().join("\n").as_bytes());
}

/// The names of all fields of requests that the description has.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            found.extend(
                object.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()),
            );
            object.values().for_each(|value| fields(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

/// A text in a path.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[test]
fn no_path_and_no_field_is_shown() {
    let canaries = Canaries::read();
    let mut server = Server::stopped("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
    command.args(["run", "--config"]).arg(server.path("server.toml")).env("HYPERGROVE_SERVER_LOG", "trace");
    server.spawn(command);
    server.unseal();
    let root = server.root();
    root.make_key("release");
    let description = root.get("sys/internal/specs/openapi").1;
    let mut names = BTreeSet::new();
    description["paths"].as_object().unwrap().values().for_each(|path| {
        path.as_object().unwrap().values().for_each(|operation| fields(&operation["requestBody"], &mut names));
    });
    fields(&description["components"]["schemas"], &mut names);
    names.retain(|name| !RETURNED.contains(&&**name));
    assert!(names.len() > 15, "{names:?}");
    let texts = canaries.texts();
    let mut next = 0;
    let paths = description["paths"].as_object().unwrap().keys().map(|path| path.trim_start_matches('/').to_owned());
    // Whoever seals the server or revokes the token ends the test.
    let paths: Vec<String> = paths.filter(|path| path != "sys/seal" && !path.ends_with("revoke-self")).collect();
    for path in &paths {
        let known = path.replace("{name}", "release").replace("{version}", "1").replace("{hash_algorithm}", "sha2-256");
        for field in names.iter().map(Some).chain([None]) {
            for _ in 0..if is_full() { texts.len() } else { 1 } {
                let (form, text) = texts[next % texts.len()];
                next += 1;
                let what = format!("{form} in {path}, {field:?}");
                let wrong = |path: &str| {
                    let part = |part: &str| if part.starts_with('{') { escaped(text) } else { part.to_owned() };
                    path.split('/').map(part).collect::<Vec<_>>().join("/")
                };
                let bodies = match field {
                    Some(field) => {
                        vec![
                            json!({ field: text }),
                            json!({ field: [text] }),
                            json!({ "batch_input": [{ field: text }] }),
                            json!({ field: { text: text } }),
                        ]
                    }
                    None => vec![
                        json!({ text: 1 }),
                        json!(text),
                        json!({ "policy": json!({ "path": { text: {} } }).to_string() }),
                    ],
                };
                for body in bodies {
                    let body = body.to_string();
                    let answer = root.request("POST", &known, Some(body.as_bytes()), &[]);
                    canaries.check(&what, answer.text.as_bytes());
                }
                if field.is_none() {
                    let raw = root.request("POST", &known, Some(text.as_bytes()), &[]);
                    canaries.check(&what, raw.text.as_bytes());
                    for method in ["GET", "POST", "DELETE", "LIST", "PATCH"] {
                        for path in [wrong(path), format!("{known}/{}", escaped(text)), escaped(text)] {
                            let answer = root.request(method, &path, None, &[]);
                            canaries.check(&format!("{method} {what}"), answer.text.as_bytes());
                        }
                    }
                    let token = escaped(text);
                    canaries
                        .check(&what, Client::new(&server, &token).request("GET", &known, None, &[]).text.as_bytes());
                }
            }
        }
    }
    server.stop();
    canaries.check("the log", server.logged.lock().unwrap().join("\n").as_bytes());
    let audit = std::fs::read(server.audit_log()).unwrap();
    assert!(audit.len() > 10_000);
    canaries.check("the audit log", &audit);
}
