//! The Debian packages of a release: those of the tool, of the C library, of the OpenSSL provider and of the signing service.

use crate::capi;
use crate::step::ensure;
use crate::toolchain::{GLIBC, Toolchain};
use crate::{disk, install, openssl, process, server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    section: &'static str,
    about: &'static str,
    /// Its description, each line begun with a space.
    text: &'static str,
    /// Puts its files below a prefix.
    fill: fn(&Path, &Toolchain) -> Result<(), String>,
    /// Whether it has a shared library, which ldconfig has to know.
    is_library: bool,
    /// The folder of the scripts that dpkg runs, and the package that has the programs for them.
    scripts: Option<(&'static str, &'static str)>,
}

/// The toolchain and the fields that all packages of a build have in common.
pub(crate) struct Edition<'a> {
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) version: &'a str,
    pub(crate) maintainer: &'a str,
    /// The time that files get, in seconds.
    pub(crate) epoch: &'a str,
}

pub(crate) const PACKAGES: [Package; 4] = [
    Package {
        name: "hypergrove",
        section: "utils",
        about: "post-quantum signatures by SLH-DSA (FIPS 205), as fast as the hardware allows",
        text: " Makes keys, signs and verifies with SLH-DSA and zkDilithium, one file or millions,\n \
               on CPUs, and on GPUs by CUDA or Vulkan. Keys and signatures are those of OpenSSL\n \
               3.5 and newer. The tables of measured policies are in the program.",
        fill: install::tool,
        is_library: false,
        scripts: None,
    },
    Package {
        name: "libhypergrove-dev",
        section: "libdevel",
        about: "post-quantum signatures by SLH-DSA (FIPS 205): library for C",
        text: " Header, static and shared library, and the files for pkg-config and CMake.",
        fill: capi::install,
        is_library: true,
        scripts: None,
    },
    Package {
        name: "hypergrove-openssl",
        section: "libs",
        about: "post-quantum signatures by SLH-DSA (FIPS 205): OpenSSL provider",
        text: " Programs that use OpenSSL 3.0 or newer sign and verify with SLH-DSA, on CPUs and GPUs.",
        fill: openssl::install_where_debian_looks,
        is_library: false,
        scripts: None,
    },
    Package {
        name: "hypergrove-server",
        section: "net",
        about: "post-quantum signatures by SLH-DSA (FIPS 205): signing service",
        text: " Signs for others over HTTP, in the shape of Vault's transit engine. The service\n \
               needs settings and a passphrase, so it starts only when somebody enables it.",
        fill: server::install,
        is_library: false,
        scripts: Some(("server/debian", "passwd")),
    },
];

/// Looks at the files that the packages have brought.
pub(crate) fn look_at(installed: &[PathBuf]) -> Result<(), String> {
    for end in [
        "bin/hypergrove-git",
        "bash-completion/completions/hypergrove",
        "zsh/vendor-completions/_hypergrove",
        "fish/vendor_completions.d/hypergrove.fish",
        "man1/hypergrove.1.gz",
        "man1/hypergrove-sign.1.gz",
        "doc/hypergrove/copyright",
        "include/hypergrove.h",
        "/ossl-modules/hypergrove.so",
        "system/hypergrove-server.service",
        ".so",
        ".a",
        ".pc",
        ".cmake",
    ] {
        ensure!(installed.iter().any(|file| file.to_string_lossy().ends_with(end)), "no file {end} was installed");
    }
    match installed.iter().find(|link| !link.exists()) {
        Some(link) => Err(format!("{} leads nowhere", link.display())),
        None => Ok(()),
    }
}

/// In a new folder, the tool makes a key, signs and verifies.
pub(crate) fn sign_and_verify(tool: impl Fn() -> Command, folder: &Path) -> Result<(), String> {
    disk::make_anew(folder)?;
    disk::write(folder.join("message"), "message")?;
    for arguments in [
        &["keygen", "--set", "SLH-DSA-SHA2-128f", "-o", "key", "--pubout", "public"][..],
        &["sign", "--key", "key", "message"],
        &["verify", "--key", "public", "message"],
    ] {
        process::run(tool().args(arguments).current_dir(folder))?;
    }
    disk::remove(folder)
}

/// All files and links below a folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in disk::entries(folder)? {
        match path.is_dir() && !path.is_symlink() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

impl Package {
    /// Stages the package's files in a folder, and packs them into another one.
    pub(crate) fn build(&self, folder: &Path, to: &Path, edition: &Edition<'_>) -> Result<PathBuf, String> {
        let Edition { toolchain, version, epoch, .. } = edition;
        let root = folder.join(self.name);
        let usr = root.join("usr");
        (self.fill)(&usr, toolchain)?;
        self.debianise(&usr)?;
        let size = bytes(&root)?.div_ceil(1024);
        let control = root.join("DEBIAN");
        disk::make(&control)?;
        disk::write(control.join("control"), self.control(edition, size))?;
        if self.is_library {
            disk::write(control.join("triggers"), "activate-noawait ldconfig\n")?;
        }
        let scripts = self.scripts.map_or(Ok(Vec::new()), |(folder, _)| disk::entries(folder))?;
        for script in scripts {
            disk::copy(&script, control.join(script.file_name().expect("a name")))?;
        }
        process::run(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(&root))?;
        let file = to.join(format!("{}_{version}_{}.deb", self.name, toolchain.architecture_of_debian()));
        let mut build = Command::new("dpkg-deb");
        // With more threads, the number of the machine's decides how xz cuts its blocks.
        build.args(["--root-owner-group", "--threads-max=1", "--build"]).arg(&root).arg(&file);
        build.env("SOURCE_DATE_EPOCH", epoch);
        process::run(build)?;
        Ok(file)
    }

    fn control(&self, edition: &Edition<'_>, size: u64) -> String {
        let Package { name, section, about, text, .. } = self;
        let Edition { toolchain, version, maintainer, .. } = edition;
        let (major, minor) = GLIBC;
        let architecture = toolchain.architecture_of_debian();
        let also = self.scripts.map_or(String::new(), |(_, package)| format!(", {package}"));
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
             Installed-Size: {size}\nDepends: libc6 (>= {major}.{minor}){also}\nSection: {section}\nPriority: optional\nHomepage: https://github.com/hypergrove/hypergrove\nDescription: {about}\n{text}\n"
        )
    }

    /// Moves files to where Debian has them, and adds what every package has.
    fn debianise(&self, usr: &Path) -> Result<(), String> {
        let zsh = usr.join("share/zsh");
        if zsh.is_dir() {
            let (from, to) = (zsh.join("site-functions"), zsh.join("vendor-completions"));
            fs::rename(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        }
        let doc = usr.join("share/doc").join(self.name);
        disk::make(&doc)?;
        let [apache, mit] = ["LICENSE-APACHE", "LICENSE-MIT"].map(disk::read);
        let copyright = format!("Apache-2.0 or MIT, at your choice.\n\n{}\n\n{}", mit?, apache?);
        disk::write(doc.join("copyright"), &copyright)?;
        disk::copy("CHANGELOG.md", doc.join("changelog"))?;
        let mut compressed = vec![doc.join("changelog")];
        let pages = usr.join("share/man/man1");
        if pages.is_dir() {
            compressed.extend(disk::entries(&pages)?);
        }
        process::run(Command::new("gzip").args(["-9n"]).args(compressed))
    }
}

/// Bytes of all files below a folder; links are small.
fn bytes(folder: &Path) -> Result<u64, String> {
    files(folder)?.iter().map(|file| Ok(fs::symlink_metadata(file).map_err(disk::failed(file))?.len())).sum()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn control_files_have_what_dpkg_wants() {
        let toolchain = Toolchain::of_machine();
        let edition = Edition { toolchain: &toolchain, version: "1.2.3", maintainer: "A <a@b.example>", epoch: "0" };
        for package in PACKAGES {
            let control = package.control(&edition, 7);
            let field = |name: &str| control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            assert_eq!((field("Package"), field("Version")), (Some(package.name), Some("1.2.3")));
            assert_eq!((field("Installed-Size"), field("Maintainer")), (Some("7"), Some("A <a@b.example>")));
            assert!(field("Depends").is_some_and(|list| list.starts_with("libc6 (>= 2.28)")), "{control}");
            assert!(field("Description").is_some_and(|about| about.len() < 80), "{control}");
            // The description's text is the end, and each of its lines begins with a space.
            let text = control.lines().skip_while(|line| !line.starts_with("Description")).skip(1);
            assert!(text.clone().count() > 0 && text.into_iter().all(|line| line.starts_with(' ') && line.len() < 90));
        }
    }
}
