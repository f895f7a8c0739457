//! Fuzz targets that reach the tool's private decoders, and all others: those of `hypergrove-fuzz-targets`.
//!
//! The tests of stable Rust replay the corpus through the same functions (`replay.rs`).

mod keys;
mod lists;
#[cfg(test)]
mod replay;

pub use hypergrove_fuzz_targets::Target;

/// The targets of the tool.
#[rustfmt::skip]
static OF_TOOL: &[Target] = &[
    Target { name: "key_file", run: keys::key_file, heap: Some(64) },
    Target { name: "x509",     run: keys::x509,     heap: Some(128) },
    Target { name: "lists",    run: lists::lists,   heap: Some(64) },
];

/// Every target.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    hypergrove_fuzz_targets::TARGETS.iter().chain(OF_TOOL)
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets().find(|target| target.name == name)
}
