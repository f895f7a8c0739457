//! Parts of a program's memory, on the device and on the host.

/// A part of the memory: its offset and bytes on the device and on the host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) on_host: usize,
    pub(crate) host_bytes: usize,
}

/// Bytes of all parts so far on the device and on the host. Each part begins at a multiple of 256 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts {
    pub(crate) device: usize,
    pub(crate) host: usize,
}

impl Parts {
    /// Adds a part with so many bytes on the device and on the host.
    pub(crate) fn add(&mut self, bytes: usize, host_bytes: usize) -> Part {
        let part = Part { at: self.device, bytes, on_host: self.host, host_bytes };
        self.device += bytes.next_multiple_of(256);
        self.host += host_bytes.next_multiple_of(256);
        part
    }
}
