//! Several devices share a batch: all GPUs that may be used without being named, and the CPU.

use hypergrove::{Engine, Error, SLH_DSA_SHA2_128F, SignJob, backends};
use std::sync::Arc;

fn main() -> Result<(), Error> {
    let mut devices = Vec::new();
    for backend in backends() {
        for device in backend.devices()? {
            println!("{}: {}, {}", device.id(), device.name, device.detail);
            // Two backends may reach one GPU; the first in the list is the preferred one.
            let known = |(other, index): &(Arc<dyn hypergrove::Backend>, u32)| {
                let others = other.devices().unwrap_or_default();
                device.uuid.is_some() && others.iter().any(|it| it.index == *index && it.uuid == device.uuid)
            };
            if device.automatic && !devices.iter().any(known) {
                devices.push((backend.clone(), device.index));
            }
        }
        if let Some(why) = backend.absent() {
            println!("{}: {why}", backend.name());
        }
    }

    // Each device takes jobs by its measured speed. If one fails, the others do its jobs, and `faults` names it.
    let engine = Engine::builder().devices(devices).build()?;
    let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    let jobs = (0..256_u32).map(|i| SignJob::new(&key, i.to_le_bytes().to_vec()));
    let mut signed = 0;
    engine.sign_batch(jobs, |_, signature| signed += usize::from(signature.is_ok()))?;
    println!("{signed} signatures by {} devices; faults: {:?}", engine.devices().len(), engine.faults());
    assert_eq!(signed, 256);
    Ok(())
}
