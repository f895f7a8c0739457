//! Devices that do what a script says.

use hypergrove::{Device, Engine, EngineBuilder};
use hypergrove_testkit::mock::{Mock, mock};

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

/// Begins an engine on these devices.
pub(crate) fn on(devices: &[u32]) -> EngineBuilder {
    let scripted = Mock { name: "scripted", memory: 1 << 30, has: &[], ..mock(3, 2) };
    Engine::builder().devices(scripted.on(devices.iter().copied())).threads(2)
}
