//! Compares the server with the library, in one process on loopback, and verifies what the server signed. Standard output gets a line of JSON for
//! each comparison: medians with the lowest and the highest value, in seconds or in signatures a second.
//!
//! `cargo run --release --manifest-path server/Cargo.toml --example bench [ROUNDS [gpu]]`
#![allow(clippy::unwrap_used, reason = "a measurement")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F, SignJob, SigningKey, VerifyJob, VerifyingKey};
use hypergrove_server::audit::Fsync;
use hypergrove_server::config::Config;
use hypergrove_server::serve::serve;
use hypergrove_server::state::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const BATCH: usize = 256;
const MESSAGE: &[u8] = b"a message of thirty-two bytes...";

/// A connection that is kept open.
struct Connection {
    reader: BufReader<TcpStream>,
    token: String,
}

impl Connection {
    fn new(address: SocketAddr, token: &str) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { reader: BufReader::new(stream), token: token.into() }
    }

    /// The body of an answer, unparsed.
    fn post(&mut self, path: &str, body: &str) -> Vec<u8> {
        let head = format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: a\r\nX-Vault-Token: {}\r\nContent-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        self.reader.get_mut().write_all((head + body).as_bytes()).unwrap();
        let (mut line, mut length, mut first) = (String::new(), 0, String::new());
        loop {
            line.clear();
            self.reader.read_line(&mut line).unwrap();
            if first.is_empty() {
                first = line.clone();
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).unwrap();
        assert!(first.starts_with("HTTP/1.1 200"), "{first}{}", String::from_utf8_lossy(&body));
        body
    }
}

struct Bench {
    address: SocketAddr,
    token: String,
    engine: Engine,
    key: Arc<SigningKey>,
    public: VerifyingKey,
}

/// A server on threads of its own, until the process ends.
fn start(fsync: Fsync) -> Bench {
    let folder = tempfile::tempdir().unwrap().keep();
    let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::of_folder(folder) };
    config.audit.fsync = fsync;
    let token = Server::init(&config, b"secret").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = Server::start(config).unwrap();
            server.unseal(Zeroizing::new(b"secret".to_vec())).await.unwrap();
            let listener = hypergrove_server::serve::listen(&server).await.unwrap();
            sender.send((listener.local_addr().unwrap(), server.engine.clone())).unwrap();
            serve(server, listener, std::future::pending()).await.unwrap();
        });
    });
    let (address, engine) = receiver.recv().unwrap();
    let mut connection = Connection::new(address, &token);
    let make = json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" }).to_string();
    let made: Value = serde_json::from_slice(&connection.post("transit/keys/bench", &make)).unwrap();
    let public = VerifyingKey::from_pem(made["data"]["keys"]["1"]["public_key"].as_str().unwrap()).unwrap();
    // The library signs with a key of its own: the server's never leaves it.
    let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F).unwrap());
    Bench { address, token: token.to_string(), engine, key, public }
}

/// Values of the library and of the server, measured by turns.
type Values = [Vec<f64>; 2];

/// Median, lowest and highest.
fn spread(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    json!({ "median": values[values.len() / 2], "min": values[0], "max": values[values.len() - 1] })
}

fn report(comparison: &str, unit: &str, devices: &str, [library, server]: Values) {
    let runs = library.len();
    let line = json!({
        "comparison": comparison, "set": "SLH-DSA-SHA2-128f", "unit": unit, "devices": devices, "runs": runs,
        "library": spread(library), "server": spread(server), "verified": true,
    });
    println!("{line}");
}

impl Bench {
    fn verify(&self, items: &[Value]) {
        let jobs = items.iter().map(|item| {
            let text = item["signature"].as_str().unwrap().strip_prefix("vault:v1:").unwrap();
            VerifyJob::new(&self.public, MESSAGE, STANDARD.decode(text).unwrap())
        });
        let verdicts = self.engine.verify_batch_to_vec(jobs.collect::<Vec<_>>()).unwrap();
        assert!(!verdicts.is_empty() && verdicts.into_iter().all(|valid| valid.unwrap()));
    }

    /// One request after the other, and calls of the library in between.
    fn single(&self, rounds: usize) -> Values {
        let mut connection = Connection::new(self.address, &self.token);
        let body = json!({ "input": STANDARD.encode(MESSAGE) }).to_string();
        let (mut library, mut server) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let begun = Instant::now();
            self.engine.sign(&self.key, Mode::default(), MESSAGE, Randomizer::Hedged).unwrap();
            library.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            let answer = connection.post("transit/sign/bench", &body);
            server.push(begun.elapsed().as_secs_f64());
            if round % 50 == 0 {
                self.verify(&[serde_json::from_slice::<Value>(&answer).unwrap()["data"].clone()]);
            }
        }
        [library, server]
    }

    /// Signatures a second of a call of rows, and of as many items in the `batch_input` of some connections at once.
    fn batches(&self, clients: usize, items: usize, rounds: usize) -> Values {
        let mut connections: Vec<Connection> =
            (0..clients).map(|_| Connection::new(self.address, &self.token)).collect();
        let item = json!({ "input": STANDARD.encode(MESSAGE) });
        let body = json!({ "batch_input": vec![item; items] }).to_string();
        let rows = clients * items;
        let messages = MESSAGE.repeat(rows);
        let mut signatures = vec![0; rows * SLH_DSA_SHA2_128F.sig_bytes()];
        let (mut library, mut server) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut statuses = vec![RowStatus::default(); rows];
            let begun = Instant::now();
            let columns = SignRows {
                keys: RowSigningKeys::One(&self.key),
                mode: Mode::default(),
                messages: Column::packed(&messages, MESSAGE.len()),
                randomizer: Randomizer::Hedged,
            };
            self.engine.sign_rows(&columns, &mut signatures, &mut statuses).unwrap();
            library.push(rows as f64 / begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            let answers: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let body = &body;
                let post = |connection: &'_ mut Connection| connection.post("transit/sign/bench", body);
                let threads: Vec<_> =
                    connections.iter_mut().map(|connection| scope.spawn(move || post(connection))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            server.push(rows as f64 / begun.elapsed().as_secs_f64());
            for answer in answers.iter().take(4) {
                let answer: Value = serde_json::from_slice(answer).unwrap();
                let results = answer["data"]["batch_results"].as_array().unwrap();
                assert_eq!(results.len(), items);
                self.verify(results);
            }
        }
        [library, server]
    }

    /// Signatures a second of 256 tickets, which one thread holds, and of 256 connections with a request each.
    fn callers(&self, seconds: u64, rounds: usize) -> Values {
        let body = json!({ "input": STANDARD.encode(MESSAGE) }).to_string();
        let mut connections: Vec<Connection> = (0..BATCH).map(|_| Connection::new(self.address, &self.token)).collect();
        let (mut library, mut server) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let submit = || self.engine.submit(SignJob::new(self.key.clone(), MESSAGE)).unwrap();
            let begun = Instant::now();
            let until = begun + Duration::from_secs(seconds);
            let mut tickets: std::collections::VecDeque<_> = (0..BATCH).map(|_| submit()).collect();
            let mut done = 0;
            while let Some(ticket) = tickets.pop_front() {
                ticket.wait().unwrap();
                done += 1;
                if Instant::now() < until {
                    tickets.push_back(submit());
                }
            }
            library.push(done as f64 / begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            let until = begun + Duration::from_secs(seconds);
            let done: usize = std::thread::scope(|scope| {
                let body = &body;
                let threads: Vec<_> = connections
                    .iter_mut()
                    .map(|connection| {
                        scope.spawn(move || {
                            let mut done = 0;
                            while Instant::now() < until {
                                let answer = connection.post("transit/sign/bench", body);
                                done += 1;
                                if done == 1 {
                                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                                    self.verify(&[answer["data"].clone()]);
                                }
                            }
                            done
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            server.push(done as f64 / begun.elapsed().as_secs_f64());
        }
        [library, server]
    }
}

fn main() {
    let devices =
        Engine::new().unwrap().devices().iter().map(|device| device.name.clone()).collect::<Vec<_>>().join(", ");
    let rounds: usize = std::env::args().nth(1).map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let report = |comparison: &str, unit, values| report(comparison, unit, &devices, values);
    for (fsync, name) in
        [(Fsync::Second, "each second"), (Fsync::Batch, "each batch"), (Fsync::Request, "each request")]
    {
        let bench = start(fsync);
        bench.single(50);
        let comparison = format!("one request over an open connection, fsync {name}, against one signature");
        report(&comparison, "s", bench.single(rounds * 100));
        if fsync != Fsync::Second {
            continue;
        }
        let rate = "signatures/s";
        report("batch_input of 256, against a call of rows", rate, bench.batches(1, BATCH, rounds * 4));
        report("256 connections, against 256 tickets", rate, bench.callers(4, rounds.min(5)));
        if std::env::args().nth(2).as_deref() == Some("gpu") {
            report("256 connections with batch_input of 64, against rows", rate, bench.batches(BATCH, 64, rounds));
        }
    }
}
