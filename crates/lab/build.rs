//! Embeds the commit that the tool is built from, so that every benchmark record names it, and the tables in `tuning/`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=HYPERGROVE_COMMIT={}", commit().or_else(archived).unwrap_or_else(|| "unknown".into()));
    let tuning = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tuning");
    println!("cargo:rerun-if-changed={}", tuning.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("shipped.rs");
    std::fs::write(out, shipped(&tuning)).expect("the output directory takes files");
}

/// A list of (`backend/device.toml`, text).
fn shipped(tuning: &Path) -> String {
    let entries = |directory: &Path| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    };
    let files = entries(tuning).into_iter().flat_map(|backend| entries(&backend));
    let tables = files.filter(|file| file.extension().is_some_and(|extension| extension == "toml")).map(|file| {
        let name = file.strip_prefix(tuning).expect("it was found there").to_string_lossy().replace('\\', "/");
        // No path of this machine: a build in another folder gives the same bytes.
        let path = format!("/../../tuning/{name}");
        format!("({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),")
    });
    format!("&[{}]", tables.collect::<String>())
}

/// Twelve digits of HEAD, with `-dirty` if a tracked file differs; `None` outside our own repository.
fn commit() -> Option<String> {
    // A source archive that is unpacked inside somebody else's repository is not at that repository's commit.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_else(|| "HEAD".into());
    for name in ["HEAD", "index", "packed-refs", &branch] {
        watch(&git(&["rev-parse", "--git-path", name])?);
    }
    let root = git(&["rev-parse", "--show-toplevel"])?;
    for sources in ["crates", "Cargo.toml", "Cargo.lock"] {
        watch(&format!("{root}/{sources}"));
    }
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(git(&["rev-parse", "--short=12", "HEAD"])? + if dirty { "-dirty" } else { "" })
}

/// Twelve digits of the commit that `git archive` wrote into a source archive; `None` where the file has its pattern still.
fn archived() -> Option<String> {
    const FILE: &str = "commit.txt";
    watch(FILE);
    let text = std::fs::read_to_string(FILE).ok()?;
    let digits = text.trim();
    (digits.len() == 40 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then(|| digits[..12].to_owned())
}

fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo:rerun-if-changed={path}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
