//! `cargo xtask install --prefix P`: the tool with what shells and man(1) know of it, and the C library. With `--openssl`, the OpenSSL provider alone.

use crate::toolchain::Toolchain;
use crate::{capi, disk, openssl, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where each shell looks for completions, below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/hypergrove"),
    ("zsh", "share/zsh/site-functions/_hypergrove"),
    ("fish", "share/fish/vendor_completions.d/hypergrove.fish"),
];

pub(crate) const CRATE: &str = "hypergrove-cli";

/// The arguments of `cargo xtask install`.
#[derive(clap::Args)]
pub(crate) struct Request {
    /// Install the OpenSSL provider alone
    #[arg(long)]
    openssl: bool,
    /// The folder that gets bin, include, lib and share, by its whole path
    #[arg(long, value_parser = whole_path)]
    prefix: PathBuf,
}

/// This program runs in the repository's folder, wherever it was called.
pub(crate) fn whole_path(path: &str) -> Result<PathBuf, &'static str> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute()).ok_or("name it by its whole path")
}

pub(crate) fn run(request: &Request) -> Result<(), String> {
    let toolchain = Toolchain::of_machine();
    if request.openssl {
        return openssl::install(&request.prefix);
    }
    tool(&request.prefix, &toolchain)?;
    if cfg!(target_os = "linux") {
        return capi::install(&request.prefix, &toolchain);
    }
    println!("the C library is not installed: its shared library is linked by linkers for ELF; install it on Linux");
    Ok(())
}

/// The tool's part.
pub(crate) fn tool(prefix: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let placed = place(prefix, &format!("bin/{}", file_name()))?;
    disk::copy(build(toolchain)?, &placed)?;
    let of_git = place(prefix, &format!("bin/hypergrove-git{}", std::env::consts::EXE_SUFFIX))?;
    let _ = std::fs::remove_file(&of_git);
    link(&placed, &of_git).map_err(disk::failed(&of_git))?;
    let tool = toolchain.native_tool.as_ref().unwrap_or(&placed);
    for (shell, file) in COMPLETIONS {
        let path = place(prefix, file)?;
        let output = Command::new(tool).args(["completions", shell]).output();
        let script =
            output.ok().filter(|output| output.status.success()).ok_or(format!("no completions of {shell}"))?;
        disk::write(&path, script.stdout)?;
        println!("{}", path.display());
    }
    let pages = place(prefix, "share/man/man1/hypergrove.1")?;
    process::run(Command::new(tool).arg("man").args(pages.parent()))?;
    println!("{}\n{}", pages.display(), placed.display());
    Ok(())
}

/// Gives the tool the name by which Git calls it.
#[cfg(unix)]
fn link(_: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(file_name(), link)
}

#[cfg(not(unix))]
fn link(tool: &Path, link: &Path) -> std::io::Result<()> {
    std::fs::hard_link(tool, link)
}

/// Builds the tool; its path.
pub(crate) fn build(toolchain: &Toolchain) -> Result<PathBuf, String> {
    let made = toolchain.build(&["-p", CRATE], "hypergrove")?;
    // The library and the tool have one name.
    let tool = made.into_iter().find(|file| file.file_name().is_some_and(|name| *name == *file_name()));
    tool.ok_or_else(|| format!("Cargo names no program of {CRATE}"))
}

fn file_name() -> String {
    format!("hypergrove{}", std::env::consts::EXE_SUFFIX)
}

/// A path below the prefix, whose folder is made.
pub(crate) fn place(prefix: &Path, file: &str) -> Result<PathBuf, String> {
    let path = prefix.join(file);
    let folder = path.parent().unwrap_or(prefix);
    disk::make(folder)?;
    Ok(path)
}
