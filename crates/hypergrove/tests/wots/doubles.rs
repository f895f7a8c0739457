//! Doubles of devices that run WOTS.

use hypergrove::{Device, EngineBuilder};
use hypergrove_testkit::mock::{Mock, mock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The doubles that have engines. A program knows its device's name, and finds the double by it.
static DOUBLES: Mutex<Vec<Mock>> = Mutex::new(Vec::new());

/// Doubles with a name of their own.
pub(crate) fn double(count: u32, queue: u32) -> Mock {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("double{}", MADE.fetch_add(1, SeqCst)).leak();
    Mock { name, memory: 1 << 30, has: &[], delay: [Duration::ZERO; 4], ..mock(count, queue) }
}

/// Begins an engine on doubles.
pub(crate) fn on(double: &Mock) -> EngineBuilder {
    DOUBLES.lock().unwrap().push(double.clone());
    crate::common::OnMock::builder(double)
}

pub(crate) fn double_of(device: &Device) -> Mock {
    let doubles = DOUBLES.lock().unwrap();
    doubles.iter().rfind(|double| double.name == device.backend).expect("a double with an engine").clone()
}
