//! Tasks of one thread: a ticket is a future, and needs nothing of the runtime.

use hypergrove::{Engine, Error, ErrorKind, SLH_DSA_SHA2_128F, SignJob, Signature, SigningKey};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Signs as soon as the queue has room.
async fn sign(engine: Engine, key: Arc<SigningKey>, message: Vec<u8>) -> Result<Signature, Error> {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A small queue, so that tasks have to wait for room.
    let engine = Engine::builder().queue(8, 1 << 20).build()?;
    let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F)?);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for request in 0..32 {
            tasks.spawn(sign(engine.clone(), key.clone(), format!("request {request}").into_bytes()));
        }
        while let Some(signature) = tasks.join_next().await {
            println!("{} bytes", signature??.as_bytes().len());
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    engine.drain(Instant::now() + Duration::from_secs(10))?;
    println!("{:?}", engine.stats().tickets);
    Ok(())
}
