//! Devices by their names: `cuda`, `cuda:1`, `vulkan:GPU-5c01d2e7-…`.

use crate::hexadecimal::to_hex;
use crate::quote::Quote;
use crate::{BACKENDS, Backend, Device, Error};
use std::path::Path;
use std::sync::Arc;

/// A backend, and the number of one of its devices.
pub type Chosen = (Arc<dyn Backend>, u32);

/// The hex digits of a UUID.
const UUID_DIGITS: usize = 32;
/// The fewest digits of a UUID that name a device. Fewer digits are a device's number.
const FEWEST_DIGITS: usize = 8;

/// The devices with these names, in their order, as [`EngineBuilder::devices`](crate::EngineBuilder::devices) takes them. A name is that of a backend,
/// with a colon and a device: its number (`cuda:1`), or its UUID, of which the first 8 digits are enough (`cuda:GPU-5c01d2e7`). A backend's name alone
/// means those of its devices that an engine may choose by itself: see [`Device::automatic`]. `make` gets a backend's name in lower case, once for each,
/// and gives the backend, or `None` if there is none of this name: [`backend`] knows those of this build.
///
/// ```
/// use hypergrove::{Engine, devices};
///
/// let chosen = devices::named(["cpu:0"], |name| devices::backend(name, None))?;
/// assert_eq!(Engine::builder().devices(chosen).build()?.devices()[0].id(), "cpu:0");
/// # Ok::<(), hypergrove::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Value`] if a name means nothing, or if there is no such device; and the error of a backend that cannot list its devices.
pub fn named<N: AsRef<str>>(
    names: impl IntoIterator<Item = N>,
    mut make: impl FnMut(&str) -> Option<Arc<dyn Backend>>,
) -> Result<Vec<Chosen>, Error> {
    let (mut made, mut all) = (Vec::<Arc<dyn Backend>>::new(), Vec::new());
    for name in names {
        let name = name.as_ref();
        let (of, which) = match name.split_once(':') {
            Some((of, which)) => (of.to_ascii_lowercase(), Some(which)),
            None => (name.to_ascii_lowercase(), None),
        };
        let backend = match made.iter().find(|backend| backend.name() == of) {
            Some(backend) => backend.clone(),
            None => {
                let backend = make(&of).ok_or_else(|| {
                    let known = list(BACKENDS.iter().map(|entry| entry.name.into()));
                    let of = Quote::name(&of, BACKENDS.iter().map(|entry| entry.name));
                    bad(format!("there is no backend {of}; there are {known}"))
                })?;
                made.push(backend.clone());
                backend
            }
        };
        let there = backend.devices()?;
        let numbers = numbers(name, which, &there).map_err(|why| match backend.absent() {
            Some(absent) => bad(format!("there is no device {}: {absent}", shown(name, &there))),
            None => bad(why),
        })?;
        all.extend(numbers.into_iter().map(|number| (backend.clone(), number)));
    }
    Ok(all)
}

/// Makes the backend of this build with this name, which may keep compiled kernels in a directory.
pub fn backend(name: &str, cache: Option<&Path>) -> Option<Arc<dyn Backend>> {
    let entry = BACKENDS.iter().find(|entry| entry.name == name)?;
    Some((entry.make)(cache))
}

/// The name of a device, as errors show it.
fn shown(name: &str, there: &[Device]) -> Quote {
    let ids: Vec<String> = there.iter().map(Device::id).collect();
    Quote::name(name, ids.iter().map(|id| &**id))
}

fn bad(what: String) -> Error {
    Error::Value { what }
}

/// The UUID of a device as NVIDIA's tools write it: `GPU-`, and 32 hexadecimal digits in five groups.
pub fn uuid(device: &Device) -> Option<String> {
    let hex = digits(device)?;
    Some(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn digits(device: &Device) -> Option<String> {
    Some(to_hex(&device.uuid?))
}

/// The numbers of the devices that a name means, of those that its backend has. `which` follows the colon in the name; without it, these are
/// all devices that need not be named one by one.
fn numbers(name: &str, which: Option<&str>, there: &[Device]) -> Result<Vec<u32>, String> {
    let found = match which {
        None => numbers_if(there, |device| device.automatic),
        Some(which) => match number(which) {
            Some(number) => numbers_if(there, |device| device.index == number),
            None => return by_uuid(name, which, there),
        },
    };
    match found.is_empty() {
        true => {
            let one_by_one = if which.is_none() && !there.is_empty() { "; name these one by one" } else { "" };
            let known = list(there.iter().map(Device::id));
            Err(format!("there is no device {}; the devices are {known}{one_by_one}", shown(name, there)))
        }
        false => Ok(found),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

fn numbers_if(there: &[Device], is_meant: impl Fn(&Device) -> bool) -> Vec<u32> {
    there.iter().filter(|device| is_meant(device)).map(|device| device.index).collect()
}

fn number(which: &str) -> Option<u32> {
    which.parse().ok().filter(|_| which.len() < FEWEST_DIGITS)
}

fn by_uuid(name: &str, which: &str, there: &[Device]) -> Result<Vec<u32>, String> {
    let lower = which.to_ascii_lowercase();
    // A part of a GPU (MIG) has a UUID of its own.
    let hex = ["gpu-", "mig-"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower).replace('-', "");
    if !(FEWEST_DIGITS..=UUID_DIGITS).contains(&hex.len()) || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(format!(
            "device {}: this is neither a number nor a UUID; a UUID is GPU-…, and its first {FEWEST_DIGITS} digits are enough",
            shown(name, there)
        ));
    }
    let is_meant = |device: &Device| digits(device).is_some_and(|digits| digits.starts_with(&hex));
    let uuids = |is_listed: &dyn Fn(&Device) -> bool| {
        let listed = there.iter().filter(|device| is_listed(device));
        list(listed.filter_map(|device| Some(format!("{} ({})", uuid(device)?, device.id()))))
    };
    match &numbers_if(there, is_meant)[..] {
        [] if there.iter().all(|device| device.uuid.is_none()) => {
            let name = shown(name, there);
            Err(format!("there is no device {name}: none of the backend's devices has a UUID; give a number"))
        }
        [] => Err(format!("there is no device {}; the UUIDs are {}", shown(name, there), uuids(&|_| true))),
        [only] => Ok(vec![*only]),
        _ => Err(format!("device {}: the UUIDs {} begin so; give more digits", shown(name, there), uuids(&is_meant))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, uuid: Option<u128>) -> Device {
        Device {
            backend: "cuda",
            index,
            name: String::new(),
            detail: String::new(),
            cores: 1,
            memory: 1,
            queue: 1,
            uuid: uuid.map(u128::to_be_bytes),
            automatic: index < 3,
        }
    }

    const FIRST: u128 = 0x5c01d2e7_1234_5678_9abc_def012345678;

    fn all() -> Vec<Device> {
        let uuids = [Some(FIRST), Some(0x5c01d2e7_1234_5678_9abc_def012345679), Some(0x1234567890), None];
        uuids.into_iter().enumerate().map(|(index, uuid)| device(index as u32, uuid)).collect()
    }

    fn of(which: &str) -> Result<Vec<u32>, String> {
        numbers(&format!("cuda:{which}"), Some(which), &all())
    }

    #[test]
    fn numbers_and_backends() {
        assert_eq!(numbers("cuda", None, &all()), Ok(vec![0, 1, 2]));
        assert_eq!((of("0"), of("3")), (Ok(vec![0]), Ok(vec![3])));
        let why = of("4").unwrap_err();
        assert!(why.starts_with("there is no device 'cuda:4' ") && why.contains("; the devices are cuda:0, cuda:1, "));
        assert!(numbers("cuda", None, &[]).unwrap_err().ends_with("the devices are none"));
    }

    #[test]
    fn names_of_backends() {
        let named = |names: &[&str]| named(names, |name| backend(name, None));
        let names =
            |found: Vec<Chosen>| found.iter().map(|(of, number)| format!("{}:{number}", of.name())).collect::<Vec<_>>();
        assert_eq!(named(&["cpu", "CPU:0"]).map(names), Ok(vec!["cpu:0".into(), "cpu:0".into()]));
        assert_eq!(named(&[]).map(names), Ok(vec![]));
        for (name, says) in [
            ("gpu:0", "there is no backend 'gpu' (did you mean 'cpu'?); there are cpu"),
            ("", "there is no backend"),
            ("cpu:1", "there is no device 'cpu:1' (did you mean 'cpu:0'?); the devices are cpu:0"),
            ("cpu:x", "neither a number nor a UUID"),
        ] {
            let why = named(&["cpu", name]).map(names).unwrap_err().to_string();
            assert!(why.contains(says), "{name}: {why}");
        }
    }

    #[test]
    fn devices_that_are_named_one_by_one() {
        let why = numbers("vulkan", None, &[device(3, None)]).unwrap_err();
        assert!(why.ends_with("the devices are cuda:3; name these one by one"), "{why}");
    }

    #[test]
    fn uuids_whole_and_by_their_first_digits() {
        assert_eq!(uuid(&all()[0]).as_deref(), Some("GPU-5c01d2e7-1234-5678-9abc-def012345678"));
        assert_eq!(uuid(&all()[3]), None);
        for which in [
            "GPU-5c01d2e7-1234-5678-9abc-def012345678",
            "5c01d2e7-1234-5678-9abc-def012345678",
            "5c01d2e7123456789abcdef012345678",
            "gpu-5C01D2E7123456789ABCDEF012345678",
            "MIG-5c01d2e7-1234-5678-9abc-def012345678",
        ] {
            assert_eq!(of(which), Ok(vec![0]), "{which}");
        }
        // Eight digits are no number, though they may all be decimal.
        assert_eq!((of("00000000"), of("GPU-00000000-0000-00")), (Ok(vec![2]), Ok(vec![2])));
    }

    #[test]
    fn uuids_that_mean_no_device() {
        let unknown = of("GPU-ffffffff").unwrap_err();
        assert!(unknown.contains(
            "'…' (17 characters, not shown); the UUIDs are GPU-5c01d2e7-1234-5678-9abc-def012345678 (cuda:0), GPU-"
        ));
        let ambiguous = of("GPU-5c01d2e7-1234").unwrap_err();
        assert!(ambiguous.contains("(cuda:0), ") && ambiguous.contains("(cuda:1) begin so; give more digits"));
        for which in
            ["", "-1", "x", "GPU-5c01d2e", "5c01d2e", "5c01d2ex", "GPU-5c01d2e7123456789abcdef0123456780", "Ä5c01d2e7"]
        {
            assert!(of(which).unwrap_err().contains("neither a number nor a UUID"), "{which}");
        }
        let nameless = numbers("cpu:12345678", Some("12345678"), &[device(0, None)]).unwrap_err();
        assert!(nameless.contains("has a UUID; give a number"));
    }
}
