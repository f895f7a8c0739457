//! Engines on mocks, keys, and columns of every kind.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

use hypergrove::backend::*;
use hypergrove::rows::{Column, Offsets};
use hypergrove::*;
use hypergrove_fips205::reference::{slh_keygen_internal, slh_sign};
pub(crate) use hypergrove_testkit::mock::{Call, Capability, Mock, mock};
use hypergrove_testkit::toys::TOY_SHA2_16;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const P: &Params = &TOY_SHA2_16;
pub(crate) const PURE: Mode<'static> = Mode::Pure { context: b"" };

pub(crate) fn key(of: u8) -> SigningKey {
    slh_keygen_internal(P, &[of; 16], &[of ^ 0x55; 16], &[of ^ 0xaa; 16]).into()
}

pub(crate) fn message(i: usize) -> Vec<u8> {
    format!("message {i}").into_bytes()
}

pub(crate) fn job(key: &SigningKey, i: usize) -> SignJob<'_> {
    SignJob::new(key, message(i)).deterministic()
}

/// Engines on the devices of a mock.
pub(crate) trait OnMock {
    fn builder(&self) -> EngineBuilder;
    fn engine(&self) -> Engine {
        self.builder().build().unwrap()
    }
}

impl OnMock for Mock {
    fn builder(&self) -> EngineBuilder {
        Engine::builder().devices(self.on(0..self.count)).threads(2)
    }
}

/// The reference's device, for which the lanes of a CPU compute.
struct ByLanes(Cpu);

impl Backend for ByLanes {
    forward!(self => Reference; name, devices, self_test, absent, notices, rates, clock, fingerprint, free);
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        Some(self)
    }
}

impl SlhDsaPrograms for ByLanes {
    forward!(self => Reference; space, jobs, compile, queue, abilities, bytes);

    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, _: &Policy) -> Result<Box<dyn Program>, Error> {
        SlhDsaPrograms::prepare(&self.0, device, plan, batch, &Policy(vec![(THREADS, 1)]))
    }
}

/// Devices for tests with many rows. Lanes compute for them, since the reference takes milliseconds for a signature.
pub(crate) fn quick_mock(count: u32, queue: u32) -> Mock {
    Mock { backend: Arc::new(ByLanes(Cpu::new())), ..mock(count, queue) }
}

/// Devices for zkDilithium that compute what the reference does, and take no longer than that.
pub(crate) fn zk_mock(count: u32, queue: u32) -> Mock {
    Mock { has: &[Capability::ZkDilithium], delay: [Duration::ZERO; 4], ..mock(count, queue) }
}

/// Signs messages 0 to `count`, deterministically; every signature that comes out is right, and in its place.
pub(crate) fn sign(engine: &Engine, key: &SigningKey, count: usize) -> (Result<(), Error>, usize) {
    let mut next = 0;
    let done = engine.sign_batch((0..count).map(|i| job(key, i)), |index, signature| {
        assert_eq!(index, next, "results in order, each once");
        let expected = slh_sign(&message(index), b"", key.as_ref(), None).unwrap();
        assert!(signature.unwrap().as_bytes() == expected.as_bytes(), "signature {index}");
        next += 1;
    });
    (done, next)
}

/// Prints what the way of a job to a device that computes nothing and back costs, three times. Each way verifies so many
/// signatures and gives the number of valid ones: there are none.
pub(crate) fn tell_the_way(count: i32, ways: &[(&str, &dyn Fn() -> usize)]) {
    for (way, verify) in [ways; 3].concat() {
        let began = Instant::now();
        assert_eq!(verify(), 0);
        println!("checked: {way}: {:.0} ns", began.elapsed().as_secs_f64() * 1e9 / f64::from(count));
    }
}

/// Values as a column of every kind: packed if they have one length, with room between them, with offsets, and as slices.
pub(crate) fn columns<T>(values: &[Vec<u8>], mut with: impl FnMut(&str, Column<'_>) -> T) -> Vec<T> {
    let (bytes, rows) = (values.concat(), values.len());
    let mut ends = vec![0];
    for value in values {
        ends.push(ends[ends.len() - 1] + value.len());
    }
    let small: Vec<i32> = ends.iter().map(|end| *end as i32).collect();
    let large: Vec<i64> = ends.iter().map(|end| *end as i64).collect();
    let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let mut done = vec![
        with("offsets of 32 bits", Column::Variable { bytes: &bytes, offsets: Offsets::I32(&small) }),
        with("offsets of 64 bits", Column::Variable { bytes: &bytes, offsets: Offsets::I64(&large) }),
        with("slices", Column::Slices(&slices)),
    ];
    let width = values.first().map_or(1, Vec::len);
    if values.iter().all(|value| value.len() == width) {
        done.push(with("packed", Column::Packed { bytes: &bytes, width, stride: width, rows }));
        // The bytes between the values identify the row to its owner, say; the last one needs nothing after it.
        let mut spaced: Vec<u8> = values.iter().flat_map(|value| [&value[..], &[0xff; 5]].concat()).collect();
        spaced.truncate(spaced.len().saturating_sub(5));
        done.push(with("spaced", Column::Packed { bytes: &spaced, width, stride: width + 5, rows }));
    }
    done
}
