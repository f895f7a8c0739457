//! Engines and devices.

use crate::failure::{Failure, Status, call, value};
use crate::pointers::{Handle, In, Out, OutHandle, c_structs, made, put_bytes};
use hypergrove::{BACKENDS, CancelToken, Device, Engine, devices};
use std::ffi::c_char;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const VERIFY_SIGNATURES: u32 = 1;
pub(crate) const REDUNDANT: u32 = 2;

c_structs! {
    /// `hg_engine_options`.
    EngineOptions is "hg_engine_options" since 48 {
        size: usize,
        devices: In<In<c_char>>,
        device_count: usize,
        memory: u64,
        cache: In<c_char>,
        threads: u32,
        flags: u32,
        device_timeout: u64,
    }
}

c_structs! {
    /// `hg_work_options`.
    WorkOptions is "hg_work_options" since 24 {
        size: usize,
        timeout: u64,
        flags: u32,
        reserved: u32,
    }
}

/// Refuses flags that this release does not know.
pub(crate) fn check_flags(flags: u32, known: u32) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::bad_input(format!("flags: {unknown:#x} means nothing here"))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_new(options: In<EngineOptions>, engine: OutHandle<Engine>) -> Status {
    made(engine, "engine", || built(&options.versioned("options")?))
}

fn built(options: &EngineOptions) -> Result<Engine, Failure> {
    check_flags(options.flags, VERIFY_SIGNATURES | REDUNDANT)?;
    let mut builder = Engine::builder()
        .verify_signatures(options.flags & VERIFY_SIGNATURES != 0)
        .redundant(options.flags & REDUNDANT != 0);
    let cache = match options.cache.is_null() {
        true => None,
        false => Some(PathBuf::from(options.cache.text("cache")?)),
    };
    if options.device_count > 0 {
        let names = options.devices.slice(options.device_count, "devices")?;
        let names = names.iter().map(|name| name.text("the name of a device")).collect::<Result<Vec<_>, _>>()?;
        builder = builder.devices(devices::named(names, |name| devices::backend(name, cache.as_deref()))?);
    } else if !options.devices.is_null() {
        return Err(Failure::bad_input("devices: none are named; name one or more, or give NULL".into()));
    } else if let Some(cache) = cache {
        builder = builder.cache(cache);
    }
    if options.memory > 0 {
        builder = builder.memory_budget(options.memory);
    }
    if options.threads > 0 {
        builder = builder.threads(options.threads as usize);
    }
    builder = match options.device_timeout {
        0 => builder,
        u64::MAX => builder.device_timeout(Duration::MAX),
        milliseconds => builder.device_timeout(Duration::from_millis(milliseconds)),
    };
    Ok(builder.build()?)
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_with(engine: In<Engine>, options: In<WorkOptions>, with: OutHandle<Engine>) -> Status {
    made(with, "with", || {
        let (engine, options) = (engine.get("engine")?, options.versioned("options")?);
        check_flags(options.flags, VERIFY_SIGNATURES | REDUNDANT)?;
        if options.reserved != 0 {
            return Err(Failure::unsupported(format!("reserved: it is {}; it must be 0", options.reserved)));
        }
        let mut work = engine.work_options();
        work.checks.verify_signatures |= options.flags & VERIFY_SIGNATURES != 0;
        work.checks.redundant |= options.flags & REDUNDANT != 0;
        if options.timeout > 0 {
            work.timeout = Some(Duration::from_millis(options.timeout));
        }
        work.cancel = Some(CancelToken::default());
        Ok(engine.with(work))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_cancel(engine: In<Engine>) -> Status {
    call(|| match engine.get("engine")?.work_options().cancel {
        Some(work) => {
            work.cancel();
            Ok(())
        }
        None => Err(Failure::bad_input("engine: cancel one of hg_engine_with, and only its work ends".into())),
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_free(engine: Handle<Engine>) {
    value((), || engine.free());
}

/// Lines as a string of C.
fn put_lines(lines: &[String], text: Out<c_char>, room: usize, length: &mut Out<usize>) -> Result<(), Failure> {
    let mut bytes = lines.join("\n").replace('\0', "\\0").into_bytes();
    bytes.push(0);
    put_bytes(&bytes, &mut text.bytes(), room, length)
}

fn lines_of(devices: &[Device]) -> Vec<String> {
    devices.iter().map(|device| format!("{} {}", device.id(), device.name)).collect()
}

#[unsafe(no_mangle)]
extern "C" fn hg_devices(text: Out<c_char>, room: usize, mut length: Out<usize>) -> Status {
    call(|| {
        // A backend whose driver is missing has no devices.
        let backends = BACKENDS.iter().map(|entry| (entry.make)(None));
        let all: Vec<Device> = backends.flat_map(|backend| backend.devices().unwrap_or_default()).collect();
        put_lines(&lines_of(&all), text, room, &mut length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_devices(engine: In<Engine>, text: Out<c_char>, room: usize, mut length: Out<usize>) -> Status {
    call(|| {
        let devices = engine.get("engine")?.devices();
        put_lines(&lines_of(&devices), text, room, &mut length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_engine_notices(engine: In<Engine>, text: Out<c_char>, room: usize, mut length: Out<usize>) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let mut lines = engine.notices();
        let faults = engine.faults();
        lines.extend(faults.iter().map(|fault| format!("{}: {}", fault.device.id(), fault.error)));
        put_lines(&lines, text, room, &mut length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::DEVICE_TIMEOUT;

    #[test]
    fn device_timeouts_reach_the_engine() {
        let none = In::<EngineOptions>::NULL.versioned("options").unwrap_or_else(|_| panic!("NULL is all zeros"));
        let hour = Duration::from_secs(3600);
        for (milliseconds, timeout) in [(0, DEVICE_TIMEOUT), (3_600_000, hour), (u64::MAX, Duration::MAX)] {
            let engine = built(&EngineOptions { device_timeout: milliseconds, ..none });
            let engine = engine.unwrap_or_else(|why| panic!("{:?}", why.text()));
            assert_eq!(engine.device_timeout(), timeout);
        }
    }
}
