//! NIST's ACVP cases in a compact form: `vectors/slh-dsa/acvp`, whose README describes it.

use crate::disk;
use flate2::read::MultiGzDecoder;
use hypergrove_vectors::acvp::compact::compact;
use std::fs;
use std::io::Read;
use std::path::Path;

const FOLDER: &str = "vectors/slh-dsa/acvp";

/// `cargo xtask acvp FILE…`: makes the compact form of each of NIST's files. Whether all were as they are in the workspace.
pub(crate) fn write(files: &[String]) -> Result<bool, String> {
    let mut same = true;
    for file in files {
        let made = read(file).and_then(|json| compact(&json)).map_err(|why| format!("{file}: {why}"))?;
        let path = Path::new(FOLDER).join(made.file);
        let is_same = fs::read(&path).is_ok_and(|old| old == made.bytes);
        if !is_same {
            disk::write(&path, &made.bytes)?;
        }
        same &= is_same;
        let state = if is_same { "is the same" } else { "was written" };
        println!("{file}: {} cases; {} {state}", made.cases, path.display());
    }
    Ok(same)
}

/// JSON, in gzip or not.
fn read(file: &str) -> Result<Vec<u8>, String> {
    let mut text = fs::read(file).map_err(|why| why.to_string())?;
    if text.starts_with(&[0x1f, 0x8b]) {
        let packed = std::mem::take(&mut text);
        MultiGzDecoder::new(&packed[..]).read_to_end(&mut text).map_err(|why| why.to_string())?;
    }
    Ok(text)
}
