//! The server's threads. It needs few, and goes on when the system starts no others (`ulimit -u`, `pids.max`).

use crate::error::Error;
use crate::state::Server;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::{Builder, available_parallelism};
use std::time::Duration;
use tokio::runtime::Runtime;

/// One thread looks after the connections, one runs work that blocks, and one writes the audit log.
const LEAST: usize = 3;

/// Threads that run work that blocks. Most of this work waits for the database, which does one thing at a time.
const BLOCKING: usize = 64;

/// The value behind a lock, even if a thread that held the lock has panicked: each change under a lock of this server replaces whole values, or SQLite rolls it
/// back, so what a panic leaves behind is consistent.
pub(crate) fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// The runtime, with a thread for each core, or with fewer if the system starts fewer.
pub fn runtime() -> Result<Runtime, Error> {
    let failed =
        |why: std::io::Error| Error::internal(format!("the threads of the server could not be started: {why}"));
    let wanted = available_parallelism().map_or(1, usize::from);
    let started = startable(wanted + LEAST - 1);
    if started < LEAST {
        let what = format!(
            "the system starts {started} threads, and the server needs {LEAST}: raise the limit of processes (`ulimit -u`, or `pids.max` of the \
             control group)"
        );
        return Err(Error::internal(what));
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(wanted.min(started - LEAST + 1)).max_blocking_threads(BLOCKING);
    // Tokio panics if there is no thread for work that blocks, and none can be started. So the first one is started here, and none ends.
    let runtime = runtime.thread_keep_alive(Duration::MAX).enable_all().build().map_err(failed)?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// How many threads the system starts now, up to `most`.
fn startable(most: usize) -> usize {
    let start = |_| {
        let (end, ends) = mpsc::channel::<()>();
        Some((end, Builder::new().spawn(move || ends.recv().unwrap_or_default()).ok()?))
    };
    let started: Vec<_> = (0..most).map_while(start).collect();
    let count = started.len();
    for (end, thread) in started {
        drop(end);
        drop(thread.join());
    }
    count
}

/// Logs each notice of the engine once, such as that they lack threads.
pub async fn log_notices(server: Arc<Server>) {
    let mut logged: Vec<String> = Vec::new();
    loop {
        for notice in server.engine.notices() {
            if !logged.contains(&notice) {
                tracing::warn!("{notice}");
                logged.push(notice);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
