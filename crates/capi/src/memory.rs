//! Memory that devices reach.

use crate::failure::{Status, value};
use crate::pointers::{Handle, In, Out, OutHandle, Shared, made};
use hypergrove::{Engine, rows};
use std::ffi::c_void;
use zeroize::Zeroize;

/// `hg_memory`.
pub(crate) struct Memory {
    memory: rows::Memory,
    /// Where it is, and how long: there is no reference to the bytes until they are wiped.
    bytes: Shared,
    length: usize,
}

#[unsafe(no_mangle)]
extern "C" fn hg_memory_new(engine: In<Engine>, length: usize, memory: OutHandle<Memory>) -> Status {
    made(memory, "memory", || {
        let mut memory = engine.get("engine")?.memory(length)?;
        let bytes = Shared::new(&mut memory);
        Ok(Memory { memory, bytes, length })
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_memory_bytes(memory: In<Memory>) -> Out<c_void> {
    value(Out::NULL, || memory.get("memory").map_or(Out::NULL, |memory| memory.bytes.given()))
}

#[unsafe(no_mangle)]
extern "C" fn hg_memory_length(memory: In<Memory>) -> usize {
    value(0, || memory.get("memory").map_or(0, |memory| memory.length))
}

#[unsafe(no_mangle)]
extern "C" fn hg_memory_is_reached(memory: In<Memory>) -> i32 {
    value(0, || memory.get("memory").map_or(0, |memory| i32::from(!memory.memory.devices().is_empty())))
}

#[unsafe(no_mangle)]
extern "C" fn hg_memory_free(memory: Handle<Memory>) {
    value((), || memory.free());
}

#[unsafe(no_mangle)]
extern "C" fn hg_wipe(bytes: Out<c_void>, length: usize) {
    value((), || {
        if let Ok(bytes) = bytes.bytes().slice(length, "bytes", &[]) {
            bytes.zeroize();
        }
    });
}
