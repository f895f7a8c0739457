//! A key that signs much keeps the nodes of its top layers: the same signatures with less work.

use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob, SigningKey, cache_bytes};
use std::time::Instant;

/// Signs the same messages; signatures and seconds.
fn sign(engine: &Engine, key: &SigningKey) -> Result<(Vec<Vec<u8>>, f64), hypergrove::Error> {
    let start = Instant::now();
    // Deterministic signatures, so that they can be compared.
    let jobs = (0..64_u32).map(|i| SignJob::new(key, i.to_le_bytes().to_vec()).deterministic());
    let signatures = engine.sign_batch_to_vec(jobs)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok((signatures.into_iter().map(|signature| signature.into_bytes()).collect(), start.elapsed().as_secs_f64()))
}

fn main() -> Result<(), hypergrove::Error> {
    let (engine, p) = (Engine::new()?, &SLH_DSA_SHA2_128F);
    let key = engine.generate(p)?;
    let (plain, seconds) = sign(&engine, &key)?;
    println!("no layer cached: {:.0} signatures a second", 64.0 / seconds);
    for layers in [1, 3] {
        let cached = engine.cache(&key, layers)?;
        let (signatures, seconds) = sign(&engine, &cached)?;
        assert!(signatures == plain, "cached layers change no signature");
        let bytes = cache_bytes(p, layers).unwrap_or_default();
        println!("{layers} cached, {bytes} bytes: {:.0} signatures a second", 64.0 / seconds);
    }
    Ok(())
}
