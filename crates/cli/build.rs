//! Embeds the commit that the tool is built from, so that every benchmark record names it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=HYPERGROVE_COMMIT={}", commit().unwrap_or_else(|| "unknown".into()));
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

fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo:rerun-if-changed={path}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
