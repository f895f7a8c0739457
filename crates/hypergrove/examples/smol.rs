//! Tasks of smol's executor, on two threads: a ticket is a future, and needs nothing of the runtime.

use async_executor::Executor;
use futures_lite::future::block_on;
use hypergrove::{Engine, Error, ErrorKind, SLH_DSA_SHA2_128F, SignJob, Signature, SigningKey};
use std::ops::Range;
use std::sync::Arc;
use std::thread::scope;
use std::time::{Duration, Instant};

/// Signs as soon as the queue has room.
async fn sign(engine: &Engine, key: Arc<SigningKey>, message: Vec<u8>) -> Result<Signature, Error> {
    let mut job = SignJob::new(key, message);
    loop {
        match engine.submit(job) {
            Ok(ticket) => return ticket.await,
            Err(refused) if refused.why.kind() == ErrorKind::QueueFull => {
                job = refused.job;
                engine.ready().await?;
            }
            Err(refused) => return Err(refused.why),
        }
    }
}

fn main() -> Result<(), Error> {
    // A small queue, so that tasks have to wait for room.
    let engine = Engine::builder().queue(8, 1 << 20).build()?;
    let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F)?);
    let executor = Executor::new();
    let sign = |request: usize| sign(&engine, key.clone(), format!("request {request}").into_bytes());
    // Each thread runs tasks of both until its own are done.
    let run = |requests: Range<usize>| {
        let tasks: Vec<_> = requests.map(|request| executor.spawn(sign(request))).collect();
        block_on(executor.run(async {
            for task in tasks {
                println!("{} bytes", task.await?.as_bytes().len());
            }
            Ok::<(), Error>(())
        }))
    };
    scope(|scope| {
        let other = scope.spawn(|| run(0..16));
        run(16..32)?;
        other.join().expect("the thread does not panic")
    })?;
    engine.drain(Instant::now() + Duration::from_secs(10))?;
    println!("{:?}", engine.stats().tickets);
    Ok(())
}
