//! A backend: its devices, and its capabilities, by which callers ask for programs.

use crate::Error;
use crate::device::Device;
use crate::hash::Sha256Programs;
use crate::slh_dsa::SlhDsaPrograms;
use crate::zkdilithium::ZkDilithiumPrograms;
use hypergrove_fips205::plan::Rates;

/// Which known answers a backend's devices must give before an engine uses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelfTest {
    /// One answer for each parameter set: code is compiled for the set, so that one set's answer says little of another's.
    EverySet,
    /// One answer for each hash family and n, by a set so small that the test takes a millisecond: all sets share the code.
    SharedCode,
    /// No answers: for a test double, or for a backend that was tested already.
    Off,
}

/// The devices of one kind: facts about them, and their capabilities, by which callers ask for programs. By default a backend lacks a capability, and
/// knows no more of its devices than it must. A backend that wraps another one forwards each method.
pub trait Backend: Send + Sync {
    /// The backend's name: `cpu`, `cuda`, `vulkan`, `reference`.
    fn name(&self) -> &'static str;
    /// The devices that are there now.
    fn devices(&self) -> Result<Vec<Device>, Error>;
    /// Which known answers an engine asks for before it uses a device.
    fn self_test(&self) -> SelfTest;
    /// Why there are no devices: no driver, no hardware. `None` if there are devices, or if no reason is known.
    fn absent(&self) -> Option<String> {
        None
    }
    /// Notices for the user about what the backend has done and left out so far, one line each. For example, it did not read a cache of compiled code that
    /// other users can write to.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
    /// The most compressions a second that the whole device can compute, which no plan can exceed. They are measured by this call, or follow from the
    /// device's model. `None` if they are not known.
    fn rates(&self, _device: &Device) -> Option<Rates> {
        None
    }
    /// Cycles a second of the device, at most; `None` if the number is not known.
    fn clock(&self, _device: &Device) -> Option<f64> {
        None
    }
    /// Names what measured times depend on, apart from the choices that a policy can make: the kernels' sources, and the default policy. A tuning table with
    /// another fingerprint is stale.
    fn fingerprint(&self, device: &Device) -> String;
    /// Bytes of the device's own memory that are free now; `None` if it has none, or does not report them.
    fn free(&self, _device: &Device) -> Option<u64> {
        None
    }

    /// Plans of SLH-DSA.
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        None
    }
    /// SHA-256 of messages.
    fn sha256(&self) -> Option<&dyn Sha256Programs> {
        None
    }
    /// zkDilithium.
    fn zkdilithium(&self) -> Option<&dyn ZkDilithiumPrograms> {
        None
    }
    /// Memory of the host that devices reach by themselves.
    fn host_memory(&self) -> Option<&dyn HostMemory> {
        None
    }
}

/// Allocates memory of the host that devices of a backend reach by themselves, because it is pinned and mapped by them. No thread has to
/// copy the contents. The memory keeps the driver's objects that it needs for as long as it lives.
pub trait HostMemory: Send + Sync {
    /// Allocates zeroed memory that this device reaches. `Err(Unsupported)` if it reaches no memory of the host but what its programs allocate.
    fn allocate(&self, device: &Device, bytes: usize) -> Result<Box<dyn ReachableMemory>, Error>;
    /// Whether a device of the backend reaches memory that was allocated for one of them.
    fn reaches(&self, device: &Device, memory: &dyn ReachableMemory) -> bool;
}

/// Memory from a [`HostMemory`]. Dropping it does not wipe it: whoever drops it must have wiped it.
pub trait ReachableMemory: Send + Sync {
    /// All of the memory, to read.
    fn bytes(&self) -> &[u8];
    /// All of the memory, to change.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Programs of zkDilithium that a device with a queue has in flight, at most.
const MOST_IN_FLIGHT: usize = 4;

/// Gives a capability or the error that a device lacks it, and the number of programs that a device has in flight.
impl<'b> dyn Backend + 'b {
    /// [`Backend::slh_dsa`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn slh_dsa_on(&self, device: &Device) -> Result<&dyn SlhDsaPrograms, Error> {
        supported(self.slh_dsa(), device, "SLH-DSA")
    }
    /// [`Backend::sha256`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn sha256_on(&self, device: &Device) -> Result<&dyn Sha256Programs, Error> {
        supported(self.sha256(), device, "SHA-256 of messages")
    }
    /// [`Backend::zkdilithium`] for a device; `Err(Unsupported)` where the backend lacks it.
    pub fn zkdilithium_on(&self, device: &Device) -> Result<&dyn ZkDilithiumPrograms, Error> {
        supported(self.zkdilithium(), device, "zkDilithium")
    }

    /// The most programs in flight that any scheme needs to keep a device busy: [`Device::queue`], or more where a scheme needs more.
    pub(crate) fn most_in_flight(&self, device: &Device) -> usize {
        let of_zkdilithium = if self.zkdilithium().is_some() && device.queue > 1 { MOST_IN_FLIGHT } else { 1 };
        (device.queue.max(1) as usize).max(of_zkdilithium)
    }
}

fn supported<T>(capability: Option<T>, device: &Device, what: &str) -> Result<T, Error> {
    capability.ok_or_else(|| Error::Unsupported { device: device.id(), what: what.into() })
}
