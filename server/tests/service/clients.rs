//! Clients that nobody here wrote: hvac, and OpenSSL for TLS.

use crate::deployment::Server;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program. `None`, with the reason printed, if it fails or is not there.
fn ran(program: &Path, arguments: &[&str]) -> Option<()> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Some(()),
        other => {
            println!("skipped: {} {arguments:?} does not work here: {other:?}", program.display());
            None
        }
    }
}

#[test]
fn hvac_drives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let venv = folder.path().join("venv");
    let python = venv.join("bin/python");
    let installed = ran(Path::new("python3"), &["-m", "venv", &venv.display().to_string()])
        .and_then(|()| ran(&python, &["-m", "pip", "install", "--quiet", "hvac==2.4.0"]));
    if installed.is_none() {
        // In CI a client that cannot be installed is an error.
        assert!(std::env::var_os("HYPERGROVE_SERVER_HVAC").is_none(), "hvac could not be installed");
        return;
    }
    let server = Server::new("");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with_hvac.py");
    let output = Command::new(&python).arg(script).args([&server.address, &server.root]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout));
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
