//! A release is signed and verified. The file may be longer than memory: it is hashed in chunks, and its digest is signed.
//!
//! `cargo run --release --example release -- FILE` signs FILE; without an argument, this source.

use hypergrove::{Engine, Mode, PreHash, Randomizer, SLH_DSA_SHA2_128S};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

/// SHA2-512 of a file.
fn digest(path: &Path) -> io::Result<Vec<u8>> {
    let mut hasher = hypergrove::pre_hasher(HASH);
    io::copy(&mut BufReader::new(File::open(path)?), &mut hasher)?;
    Ok(hasher.finish().to_vec())
}

const HASH: PreHash = PreHash::Sha512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/release.rs");
    let path = std::env::args_os().nth(1).map_or(source, Into::into);
    // A release is signed once and verified often: the set 128s has short signatures and fast verification.
    let engine = Engine::new()?;
    let key = engine.generate(&SLH_DSA_SHA2_128S)?;
    let mode = Mode::Digest { context: b"release 1.0", hash: HASH };
    let signature = engine.sign(&key, mode, &digest(&path)?, Randomizer::Hedged)?;
    println!("{}: signed, {} bytes", path.display(), signature.as_bytes().len());

    // Whoever downloads the file has the public key, and knows it by its fingerprint.
    let public = key.verifying_key();
    let valid = engine.verify(&public, mode, &digest(&path)?, signature.as_bytes())?;
    println!("{}: {} by {}", path.display(), if valid { "OK" } else { "INVALID" }, public.fingerprint());
    if valid { Ok(()) } else { Err("the release is not what was signed".into()) }
}
