//! Devices that do what a script says.

use hypergrove::backend::{Reference, SelfTest, capabilities, forward};
use hypergrove::{Backend, Device, Engine, EngineBuilder, Error};
use std::sync::Arc;

/// The way in which a device behaves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    Computes,
    Fails,
    Lies,
}

/// The numbers of the devices.
pub(crate) const COMPUTES: u32 = Answer::Computes as u32;
pub(crate) const FAILS: u32 = Answer::Fails as u32;
pub(crate) const LIES: u32 = Answer::Lies as u32;

pub(crate) fn script_of(device: &Device) -> Answer {
    [Answer::Computes, Answer::Fails, Answer::Lies][device.index as usize]
}

struct Scripted;

impl Backend for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        let one = Reference.devices()?.remove(0);
        Ok((0..3)
            .map(|index| Device { backend: "scripted", index, queue: 2, memory: 1 << 30, ..one.clone() })
            .collect())
    }
    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    forward!(self => Reference; absent, notices, rates, clock, fingerprint, free);
    capabilities!();
}

/// Begins an engine on these devices.
pub(crate) fn on(devices: &[u32]) -> EngineBuilder {
    let backend: Arc<dyn Backend> = Arc::new(Scripted);
    Engine::builder().devices(devices.iter().map(|index| (backend.clone(), *index)).collect()).threads(2)
}
