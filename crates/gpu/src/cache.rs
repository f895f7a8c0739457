//! Compiled code on disk: a file for each, whole or not there, with a checksum.

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The first bytes of a cached file. A change of the format changes them.
pub const MAGIC: &[u8; 16] = b"hypergrove-code1";
/// Bytes of the checksum that follows them.
pub const CHECKSUM: usize = 32;

fn file(cache: &Path, key: &[u8; 32]) -> PathBuf {
    let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    cache.join(name + ".bin")
}

/// Over the key too: a file under another's name is not taken for it.
fn checksum(key: &[u8; 32], code: &[u8]) -> [u8; CHECKSUM] {
    Sha256::new().chain_update(key).chain_update(code).finalize().into()
}

/// The code in a cached file; `None` if there is none or it is damaged.
pub fn load(cache: &Path, key: &[u8; 32]) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file(cache, key)).ok()?;
    let (sum, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(CHECKSUM)?;
    (sum == checksum(key, code)).then(|| code.to_vec())
}

/// Another process sees the whole file or none.
pub fn store(cache: &Path, key: &[u8; 32], code: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(cache)?;
    let mut new = tempfile::NamedTempFile::new_in(cache)?;
    for part in [MAGIC, &checksum(key, code)[..], code] {
        new.write_all(part)?;
    }
    new.persist(file(cache, key))?;
    Ok(())
}
