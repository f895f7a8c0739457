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

const USAGE: &str = "cargo xtask install [--openssl] --prefix P: name the folder that gets bin, include, lib and share";

pub(crate) fn run(arguments: &[String]) -> Result<bool, String> {
    let (is_provider, arguments) = match arguments {
        [first, rest @ ..] if first == "--openssl" => (true, rest),
        all => (false, all),
    };
    let [option, prefix] = arguments else { return Err(USAGE.into()) };
    if option != "--prefix" {
        return Err(format!("unknown option '{option}': {USAGE}"));
    }
    let prefix = Path::new(prefix);
    // This program runs in the repository's folder, wherever it was called.
    if !prefix.is_absolute() {
        return Err(format!("{}: name a folder by its whole path", prefix.display()));
    }
    let toolchain = Toolchain::of_machine();
    if is_provider {
        return openssl::install(prefix).map(|()| true);
    }
    tool(prefix, &toolchain)?;
    match cfg!(target_os = "linux") {
        true => capi::install(prefix, &toolchain)?,
        false => println!(
            "the C library is not installed: its shared library is linked by linkers for ELF; install it on Linux"
        ),
    }
    Ok(true)
}

/// The tool's part.
pub(crate) fn tool(prefix: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let placed = place(prefix, &format!("bin/{}", file_name()))?;
    disk::copy(build(toolchain)?, &placed)?;
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
