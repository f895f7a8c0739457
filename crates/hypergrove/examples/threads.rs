//! A thread for each caller: their signatures share batches.

use hypergrove::{Engine, Error, SLH_DSA_SHA2_128F, SignJob};
use std::sync::Arc;
use std::thread::scope;

fn main() -> Result<(), Error> {
    let engine = Engine::new()?;
    let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F)?);
    scope(|scope| {
        for caller in 0..32 {
            let (engine, key) = (&engine, &key);
            scope.spawn(move || {
                let message = format!("request {caller}").into_bytes();
                let signature = engine.submit(SignJob::new(key.clone(), message))?.wait()?;
                println!("request {caller}: {} bytes", signature.as_bytes().len());
                Ok::<(), Error>(())
            });
        }
    });
    println!("jobs by the size of their batch, in powers of two: {:?}", engine.stats().tickets.batch_sizes);
    Ok(())
}
