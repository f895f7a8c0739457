//! Standard error: the server's own log, and what its commands report. Standard error may be closed, full, or a pipe that nobody reads. No request
//! fails or waits because of that: a thread of its own writes the lines, and lines that could not be written are counted.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait for standard error. More are lost.
const WAITING: usize = 1024;
/// How long [`drain`] waits for a standard error that takes nothing.
const DRAIN: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<SyncSender<Message>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    /// All lines before this were written.
    Drained(SyncSender<()>),
}

fn write(line: &[u8]) {
    if io::stderr().write_all(line).is_err() {
        LOST.fetch_add(1, Relaxed);
    }
}

/// Starts the thread that writes. Without it, whoever has a line writes it.
pub fn start() {
    let (queue, lines) = sync_channel(WAITING);
    let started = std::thread::Builder::new().name("log".into()).spawn(move || {
        for message in lines {
            match message {
                Message::Line(line) => write(&line),
                Message::Drained(waiter) => drop(waiter.try_send(())),
            }
        }
    });
    if started.is_ok() {
        drop(QUEUE.set(queue));
    }
}

/// Writes a line, as soon as standard error takes it.
pub fn say(line: impl Display) {
    send(format!("{line}\n").into_bytes());
}

fn send(line: Vec<u8>) {
    let Some(queue) = QUEUE.get() else { return write(&line) };
    if queue.try_send(Message::Line(line)).is_err() {
        LOST.fetch_add(1, Relaxed);
    }
}

/// Waits until the lines so far are written, but not for ever.
pub fn drain() {
    let (waiter, drained) = sync_channel(1);
    if QUEUE.get().is_some_and(|queue| queue.try_send(Message::Drained(waiter)).is_ok()) {
        let _ = drained.recv_timeout(DRAIN);
    }
}

/// How many lines could not be written.
pub fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// The writer for `tracing`, which never fails.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
