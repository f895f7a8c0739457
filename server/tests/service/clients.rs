//! Clients that nobody here wrote: hvac, node-vault, spring-vault-core, schemathesis, and OpenSSL for TLS.

use crate::deployment::{Client, Server, is_full};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a program. `None`, with the reason printed, if it fails or is not there.
fn ran(program: &Path, arguments: &[&str]) -> Option<()> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Some(()),
        other => {
            println!("skipped: {} {arguments:?} does not work here: {other:?}", program.display());
            // In CI a client that cannot be installed is an error.
            let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
            assert!(!is_ci, "{} {arguments:?}: {other:?}", program.display());
            None
        }
    }
}

/// Whether a test of the full run runs. If not, its name is among what was skipped.
fn runs(client: &str) -> bool {
    if !is_full() {
        println!("skipped: {client}: it runs with HYPERGROVE_SERVER_TESTS=all");
    }
    is_full()
}

/// A file of the folder `tests`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A new virtual environment of Python in this folder with this package. Returns the folder of its programs.
fn python_with(folder: &Path, package: &str) -> Option<PathBuf> {
    let venv = folder.join("venv");
    ran(Path::new("python3"), &["-m", "venv", text(&venv)])?;
    ran(&venv.join("bin/python"), &["-m", "pip", "install", "--quiet", package])?;
    Some(venv.join("bin"))
}

/// A client's program, which is to succeed.
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{errors}");
    println!("{out}");
}

#[test]
fn hvac_drives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(programs) = python_with(folder.path(), "hvac==2.4.0") else { return };
    let server = Server::new("");
    let arguments = [&server.address, &server.root];
    succeeds(Command::new(programs.join("python")).arg(file("with_hvac.py")).args(arguments));
}

#[test]
fn node_vault_drives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let install = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
    let install = [&install[..], &[text(folder.path()), "node-vault@0.12.0"]].concat();
    if !runs("node-vault") || ran(Path::new("npm"), &install).is_none() {
        return;
    }
    let server = Server::new("");
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.path().join("node_modules")).arg(file("with_node_vault.js"));
    succeeds(node.args([&server.address, &server.root]));
}

#[test]
fn spring_vault_drives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let project = file("spring-vault/pom.xml");
    let target = format!("-DoutputDirectory={}", folder.path().display());
    let fetch = ["--batch-mode", "--quiet", "--file", text(&project), "dependency:copy-dependencies", &target];
    if !runs("spring-vault-core") || ran(Path::new("mvn"), &fetch).is_none() {
        return;
    }
    let server = Server::new("");
    let mut java = Command::new("java");
    java.arg("-cp").arg(folder.path().join("*")).arg(file("spring-vault/WithSpringVault.java"));
    succeeds(java.args([&server.address, &server.root]));
}

/// The description that the server serves, with PUT where it has POST, as its text says.
fn description(server: &Server) -> String {
    let mut description = Client::new(server, "").get("sys/internal/specs/openapi").1;
    for path in description["paths"].as_object_mut().unwrap().values_mut() {
        let path = path.as_object_mut().unwrap();
        if let Some(mut put) = path.get("post").cloned() {
            put["operationId"] = Value::String(format!("{}-put", put["operationId"].as_str().unwrap()));
            path.insert("put".into(), put);
        }
    }
    description.to_string()
}

/// Requests that the description allows, and requests that it does not: no answer is one of 500, and all are as described.
#[test]
fn schemathesis_finds_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    if !runs("schemathesis") {
        return;
    }
    let Some(programs) = python_with(folder.path(), "schemathesis==4.32.5") else { return };
    let server = Server::new("");
    server.root().make_key("release");
    let policy = json!({ "path": { "transit/sign/release": { "capabilities": ["update"] } } });
    let nobody = server.with_policy("release", policy);
    let served = folder.path().join("openapi.json");
    std::fs::write(&served, description(&server)).unwrap();
    let run = |token: &str, seconds: &str, more: &[&str]| {
        let mut command = Command::new(programs.join("schemathesis"));
        command.current_dir(folder.path()).arg("--config-file").arg(file("schemathesis.toml")).arg("--no-color");
        command.arg("run").arg(&served).args(["--url", &format!("http://{}/v1", server.address)]);
        command.args(["--header", &format!("X-Vault-Token: {token}"), "--max-time", seconds]).args(more);
        succeeds(&mut command);
    };
    // The server must stay unsealed, and the token must stay: other tokens try what ends them.
    run(&server.root, "120", &["--exclude-operation-id-regex", "^(seal|token-revoke.*)(-put)?$"]);
    run(&nobody.token, "30", &[]);
    let (_, made) = server.root().post("auth/token/create", json!({ "policies": ["root"] }));
    let other = made["auth"]["client_token"].as_str().unwrap();
    run(other, "10", &["--include-operation-id-regex", "^token-revoke"]);
    // The requests did not all fail before they reached a key.
    let metrics = server.root().request("GET", "sys/metrics", None, &[]).text;
    for operation in ["key-create", "key-rotate", "key-config", "key-export", "sign", "verify"] {
        let counted = format!("hypergrove_requests_total{{operation=\"{operation}\",status=\"200\"}}");
        assert!(metrics.contains(&counted), "{counted}: {metrics}");
    }
}

fn openssl(folder: &Path, arguments: &str) -> Output {
    let mut child = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    drop(stdin.write_all(b"GET /v1/sys/seal-status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    // `s_client` goes on when its input ends, with -ign_eof.
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn tls_is_of_version_1_3_and_may_need_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    if ran(Path::new("openssl"), &["version"]).is_none() {
        return;
    }
    let run = |arguments: &str| {
        let output = openssl(folder.path(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost";
    run(&format!("req -x509 {new} -keyout ca.key -out ca.pem -days 2"));
    for name in ["server", "client"] {
        run(&format!("req {new} -keyout {name}.key -out {name}.csr"));
        std::fs::write(folder.path().join("ext"), "subjectAltName=DNS:localhost\n").unwrap();
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"
        ));
    }
    let path = |name: &str| folder.path().join(name);
    let settings = |client_ca: &str| {
        format!("[tls]\ncertificate = {:?}\nkey = {:?}\n{client_ca}", path("server.pem"), path("server.key"))
    };
    let talk = |server: &Server, more: &str| {
        let arguments = format!(
            "s_client -connect {} -servername localhost -CAfile ca.pem -verify_return_error -ign_eof -quiet {more}",
            server.address
        );
        String::from_utf8_lossy(&openssl(folder.path(), &arguments).stdout).into_owned()
    };
    let mut server = Server::stopped(&settings(""));
    server.start();
    assert!(talk(&server, "-tls1_3").contains("\"sealed\":true"), "{}", talk(&server, "-tls1_3"));
    assert_eq!(talk(&server, "-tls1_2"), "");
    let mut server = Server::stopped(&settings(&format!("client_ca = {:?}\n", path("ca.pem"))));
    server.start();
    assert_eq!(talk(&server, ""), "");
    assert!(talk(&server, "-cert client.pem -key client.key").contains("\"sealed\":true"));
    // Without TLS there is no answer of HTTP.
    assert!(
        !server.raw(b"GET /v1/sys/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").contains("HTTP/1.1 200")
    );
}
