//! A server as a child process, and a client for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const PASSPHRASE: &str = "correct horse battery staple";

/// Whether the tests that take many minutes run too, as in `cargo xtask ci full server`.
pub(crate) fn is_full() -> bool {
    std::env::var("HYPERGROVE_SERVER_TESTS").is_ok_and(|tests| tests == "all")
}

/// A number of an environment variable, which says how much a test does.
pub(crate) fn amount(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |amount| amount.parse().unwrap())
}

/// A deployment in a folder of its own, and its server while it runs.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    child: Option<Child>,
    /// The lines of standard error after the one that says where the server listens.
    pub(crate) logged: Arc<Mutex<Vec<String>>>,
    pub(crate) address: String,
    pub(crate) root: String,
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

/// The bytes of `vault:vN:BASE64`.
pub(crate) fn signature_bytes(value: &Value) -> Vec<u8> {
    decode(value.as_str().unwrap().splitn(3, ':').nth(2).unwrap())
}

impl Server {
    /// A server that is unsealed by a passphrase, with more settings.
    pub(crate) fn new(settings: &str) -> Server {
        let server = Server::stopped(settings);
        let mut server = server;
        server.start();
        server.unseal();
        server
    }

    pub(crate) fn stopped(settings: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let config = format!("data = {data:?}\nlisten = '127.0.0.1:0'\n{settings}");
        std::fs::write(folder.path().join("server.toml"), config).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let mut passphrase =
            options.write(true).create(true).mode(0o600).open(folder.path().join("passphrase")).unwrap();
        passphrase.write_all(PASSPHRASE.as_bytes()).unwrap();
        let logged = Arc::default();
        let mut server = Server { folder, child: None, logged, address: String::new(), root: String::new() };
        let made = server.command(&["init"]);
        assert!(made.status.success(), "{made:?}");
        server.root = String::from_utf8(made.stdout).unwrap().trim().into();
        server
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.path("data/audit.log")
    }

    /// Runs a command of the server on this deployment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
        command.args(arguments).arg("--config").arg(self.path("server.toml"));
        command.arg("--passphrase-file").arg(self.path("passphrase"));
        command.output().unwrap()
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
        command.args(["run", "--config"]).arg(self.path("server.toml"));
        self.spawn(command);
    }

    pub(crate) fn spawn(&mut self, mut command: Command) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some((_, address)) = line.split_once("listening on ") {
                self.address = address.split_once("://").unwrap().1.into();
                break;
            }
            seen += &line;
        }
        assert!(!self.address.is_empty(), "{seen}");
        let logged = self.logged.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| logged.lock().unwrap().push(line)));
        self.child = Some(child);
    }

    /// Starts the server with a standard error on which it cannot say where it listens.
    pub(crate) fn start_unheard(&mut self, stderr: Stdio) {
        self.start_unheard_by("exec \"$0\" \"$@\"", stderr);
    }

    /// Starts the server without a standard error.
    pub(crate) fn start_closed(&mut self) {
        self.start_unheard_by("exec \"$0\" \"$@\" 2>&-", Stdio::null());
    }

    fn start_unheard_by(&mut self, shell: &str, stderr: Stdio) {
        // A port that was free a moment ago.
        self.address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = std::fs::read_to_string(self.path("server.toml")).unwrap();
        let mut lines: Vec<&str> = config.lines().collect();
        let listen = format!("listen = '{}'", self.address);
        lines[1] = &listen;
        std::fs::write(self.path("server.toml"), lines.join("\n")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", shell, env!("CARGO_BIN_EXE_hypergrove-server"), "run", "--config"]);
        command.arg(self.path("server.toml")).stderr(stderr);
        self.child = Some(command.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&self.address).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn unseal(&self) {
        let (status, body) = Client::new(self, "").post("sys/unseal", json!({ "key": PASSPHRASE }));
        assert_eq!((status, &body["sealed"]), (200, &json!(false)), "{body}");
    }

    /// Asks the server to unseal itself, which it refuses with an error that contains `why`.
    pub(crate) fn unseal_fails(&self, why: &str) {
        let (status, body) = self.root().post("sys/unseal", json!({ "key": PASSPHRASE }));
        assert!(status == 500 && error(&body).contains(why), "{body}");
    }

    /// As kill -9.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// As SIGTERM. Returns the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.terminate();
        self.child.take().unwrap().wait().unwrap().code()
    }

    pub(crate) fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().unwrap().success());
    }

    /// A client with the root token.
    pub(crate) fn root(&self) -> Client {
        Client::new(self, &self.root)
    }

    /// A client with a new token of this policy.
    pub(crate) fn with_policy(&self, name: &str, policy: Value) -> Client {
        let root = self.root();
        let (status, body) = root.post(&format!("sys/policies/acl/{name}"), json!({ "policy": policy.to_string() }));
        assert_eq!(status, 204, "{body}");
        let (status, body) = root.post("auth/token/create", json!({ "policies": [name], "ttl": "1h" }));
        assert_eq!(status, 200, "{body}");
        Client::new(self, body["auth"]["client_token"].as_str().unwrap())
    }

    /// The answer of a raw connection to these bytes.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may refuse before it has read all.
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A client with a token.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    pub(crate) token: String,
}

impl Client {
    pub(crate) fn new(server: &Server, token: &str) -> Client {
        let config = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
        let agent = config.timeout_global(Some(Duration::from_secs(60))).build().new_agent();
        Client { agent, base: format!("http://{}/v1/", server.address), token: token.into() }
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&[u8]>, headers: &[(&str, &str)]) -> Answer {
        self.try_request(method, path, body, headers).unwrap()
    }

    /// An error if the server is not there, or does not answer.
    pub(crate) fn try_request(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        headers: &[(&str, &str)],
    ) -> Result<Answer, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header("X-Vault-Token", &self.token).header("X-Vault-Request", "true");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = match body {
            Some(body) => self.agent.run(request.body(body).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        }?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string()?;
        let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_string());
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status: answer.status().as_u16(), body, text, retry_after })
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.request("GET", path, None, &[]);
        (answer.status, answer.body)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.request("POST", path, Some(body.to_string().as_bytes()), &[]);
        (answer.status, answer.body)
    }

    pub(crate) fn delete(&self, path: &str) -> (u16, Value) {
        let answer = self.request("DELETE", path, None, &[]);
        (answer.status, answer.body)
    }

    pub(crate) fn make_key(&self, name: &str) {
        let (status, body) = self
            .post(&format!("transit/keys/{name}"), json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" }));
        assert_eq!(status, 200, "{body}");
    }

    /// Signs a message, and returns `data`.
    pub(crate) fn sign(&self, name: &str, message: &[u8]) -> Value {
        let (status, body) = self.post(&format!("transit/sign/{name}"), json!({ "input": encode(message) }));
        assert_eq!(status, 200, "{body}");
        body["data"].clone()
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) text: String,
    pub(crate) retry_after: Option<String>,
}

pub(crate) fn error(body: &Value) -> &str {
    body["errors"][0].as_str().unwrap_or_else(|| panic!("no error in {body}"))
}

pub(crate) fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
