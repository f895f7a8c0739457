//! `cargo xtask dist`: a release for Linux that people install without a compiler. Everything is built of the source archive of HEAD, in
//! `target`, and `dist` is replaced at the end: it has a whole release or the one before.

pub(crate) mod check;

use crate::capi::{self, RELEASE};
use crate::deb::{self, Edition};
use crate::process::{self, answers};
use crate::step::ensure;
use crate::toolchain::{GLIBC, Release, Toolchain};
use crate::wheels::{self, Wheel};
use crate::{disk, install, python, server, supply_chain};
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];
/// Who answers for a release: SECURITY.md and Debian's packages name this contact.
const CONTACT: &str = "CONTACT";
/// The contact of a candidate, if the file has none.
const DEVELOPERS: &str = "hypergrove developers <hypergrove@users.noreply.github.com>";
const SUMS: &str = "SHA256SUMS";
const ENVELOPE: &str = "SHA256SUMS.envelope";
/// The set of a throwaway key: candidates are signed for the sake of trying it.
const THROWAWAY_SET: &str = "SLH-DSA-SHA2-128f";
const WHEEL: &Wheel = &Wheel { what: "Zig", name: "zig", pinned: "xtask/dist.txt", megabytes: 110 };
/// Programs, and Debian's packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("git", "git"),
    ("tar", "tar"),
    ("gzip", "gzip"),
    ("dpkg-deb", "dpkg"),
    ("readelf", "binutils"),
    ("cc", "build-essential"),
];
/// The libraries of glibc. GPUs' drivers are loaded at run time, so no program needs them to start.
const LIBRARIES: &str =
    "libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1";
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The Python projects: that of the package and that of the tool.
const PROJECTS: [&str; 2] = [".", "crates/cli"];
/// Python's stable ABI does not cover it, so that it needs a wheel of its own. maturin knows its settings: it need not be installed.
const FREE_THREADED: &str = "python3.14t";

/// Where an architecture is expected: each of them.
const ALL: &str = "all";

/// The arguments of `cargo xtask dist`.
#[derive(clap::Args, Debug)]
pub(crate) struct Request {
    /// Make a candidate for trying it, with the version marked and a throwaway key
    #[arg(long = "candidate")]
    is_candidate: bool,
    /// The architecture of the files
    #[arg(long, default_value = ALL, value_parser = [ARCHITECTURES[0], ARCHITECTURES[1], ALL])]
    target: String,
    /// The file of the key that signs the release, by its whole path
    #[arg(long, required_unless_present = "is_candidate", value_parser = key_file)]
    key: Option<PathBuf>,
}

impl Request {
    fn architectures(&self) -> impl Iterator<Item = &'static str> {
        ARCHITECTURES.into_iter().filter(|name| [*name, ALL].contains(&&*self.target))
    }
}

fn key_file(path: &str) -> Result<PathBuf, &'static str> {
    install::whole_path(path).and_then(|path| if path.is_file() { Ok(path) } else { Err("no such file") })
}

/// A version, as each kind of file writes it.
struct Versions {
    files: String,
    debian: String,
    python: String,
}

impl Versions {
    fn new(release: &str, is_candidate: bool) -> Versions {
        let [files, debian, python] = if is_candidate { ["-candidate", "~candidate", "rc0"] } else { [""; 3] };
        let with = |end| format!("{release}{end}");
        Versions { files: with(files), debian: with(debian), python: with(python) }
    }
}

/// The contact of a release, as Debian's packages have it: a name and an address.
fn contact(text: &str) -> Result<&str, String> {
    let line = text.trim();
    let address = line.strip_suffix('>').and_then(|line| line.split_once(" <"));
    match address {
        Some((name, address)) if !name.is_empty() && address.contains('@') && !line.contains('\n') => Ok(line),
        _ => Err(format!(
            "{CONTACT} says '{line}': a release needs a contact there, such as 'Jane Doe <jane@example.org>'; without one, make a --candidate"
        )),
    }
}

/// `cargo xtask dist`.
pub(crate) fn run(request: Request) -> Result<bool, String> {
    let to = disk::workspace().join("dist");
    Build::prepare(request, "dist-build")?.make(&to)?;
    println!("{}", to.display());
    Ok(true)
}

/// A release that can be built: what it needs was found.
struct Build {
    request: Request,
    versions: Versions,
    maintainer: String,
    release: Release,
    /// For whatever is no part of the release.
    work: PathBuf,
}

impl Build {
    /// Looks for everything that could stop the build later.
    fn prepare(request: Request, folder: &str) -> Result<Build, String> {
        if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !answers(program, &["--version"])) {
            return Err(format!("there is no {program}: install Debian's package {package}"));
        }
        if let Some(change) = git(&["status", "--porcelain"])?.lines().next() {
            return Err(format!(
                "git status says '{change}': a release is built of HEAD alone; commit the change or stash it"
            ));
        }
        let tag = format!("v{RELEASE}");
        if !git(&["tag", "--list", &tag])?.is_empty() {
            return Err(format!("git has the tag {tag} already: raise `version` in Cargo.toml for another release"));
        }
        let maintainer = match contact(&disk::read(CONTACT)?) {
            Err(_) if request.is_candidate => DEVELOPERS.into(),
            contact => contact?.to_owned(),
        };
        for architecture in request.architectures() {
            process::ensure_target(&format!("{architecture}-unknown-linux-gnu"))?;
        }
        process::ensure_command(supply_chain::CYCLONEDX)?;
        let work = process::target().join(folder);
        let release = Release {
            wheels: wheels::ensure(WHEEL)?,
            source: work.join("source"),
            target: work.join("target"),
            epoch: git(&["log", "-1", "--format=%ct"])?,
        };
        Ok(Build { versions: Versions::new(RELEASE, request.is_candidate), request, maintainer, release, work })
    }

    /// Builds the release, and puts it in the place of what is in the folder `to`.
    fn make(&self, to: &Path) -> Result<(), String> {
        let new = disk::workspace().join("target/dist-new");
        disk::make_anew(&new)?;
        let name = format!("hypergrove-{}-source", self.versions.files);
        self.release.archive(&name, &new.join(format!("{name}.tar.gz")))?;
        // HEAD and files may change during the build: from here on, paths lead into the source that was archived.
        enter(&self.release.source)?;
        let filled = self.fill(&new);
        enter(disk::workspace())?;
        filled?;
        disk::remove(to)?;
        fs::rename(&new, to).map_err(disk::failed(to))?;
        for file in disk::entries(to)? {
            println!("{:>10}  {}", size(&file)?, name_of(&file));
        }
        Ok(())
    }

    fn fill(&self, new: &Path) -> Result<(), String> {
        let stage = self.stage();
        disk::make_anew(&stage)?;
        self.prepare_wheels()?;
        server::widen_workspace(&self.release.source)?;
        let native = install::build(&Toolchain::of_release(self.release.clone(), ARCH, None))?;
        // Later builds replace the file.
        let tool = self.work.join("tool");
        disk::copy(native, &tool)?;
        let (key, public) = self.keys(&tool)?;
        for architecture in self.request.architectures() {
            let native_tool = (architecture != ARCH).then(|| tool.clone());
            let toolchain = Toolchain::of_release(self.release.clone(), architecture, native_tool);
            self.fill_for(&toolchain, &stage.join(architecture), new)?;
        }
        let (sbom, _) = supply_chain::make_sbom(Some(&self.release.epoch))?;
        disk::copy(sbom, new.join(format!("hypergrove-{}.cdx.json", self.versions.files)))?;
        self.sign(&tool, &key, &public, new)
    }

    /// The folder with the files of all packages.
    fn stage(&self) -> PathBuf {
        self.work.join("stage")
    }

    /// Files for one architecture.
    fn fill_for(&self, toolchain: &Toolchain, stage: &Path, new: &Path) -> Result<(), String> {
        let of = |name: &str| format!("{name}-{}-linux-{}", self.versions.files, toolchain.architecture);
        for (name, fill) in
            [("hypergrove", install::tool as fn(&Path, &Toolchain) -> _), ("libhypergrove", capi::install)]
        {
            let folder = stage.join(of(name));
            fill(&folder, toolchain)?;
            LICENCES.iter().chain(&["README.md"]).try_for_each(|file| disk::copy(file, folder.join(file)))?;
            self.release.pack(&folder, &new.join(of(name) + ".tar.gz"))?;
        }
        let Build { versions, maintainer, release, .. } = self;
        let edition = Edition { toolchain, version: &versions.debian, maintainer, epoch: &release.epoch };
        for package in deb::PACKAGES {
            package.build(stage, new, &edition)?;
        }
        let wheels = stage.join("wheels");
        for project in PROJECTS {
            toolchain.wheel(&self.release.source.join(project), None, &wheels)?;
        }
        toolchain.wheel(&self.release.source, Some(FREE_THREADED), &wheels)?;
        let python = python::interpreter()?;
        for wheel in disk::entries(&wheels)? {
            disk::copy(&wheel, new.join(name_of(&wheel)))?;
            let mut unpack = Command::new(python);
            unpack.args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(stage.join(name_of(&wheel)));
            process::run(unpack)?;
        }
        self.inspect(stage)
    }

    /// Gives the Python projects the version, and the licences where they look for them.
    fn prepare_wheels(&self) -> Result<(), String> {
        const DYNAMIC: &str = "dynamic = [\"version\"]";
        for project in PROJECTS {
            let path = Path::new(project).join("pyproject.toml");
            let text = disk::read(&path)?;
            ensure!(text.contains(DYNAMIC), "{}: it lacks the line '{DYNAMIC}'", path.display());
            disk::write(&path, text.replace(DYNAMIC, &format!("version = \"{}\"", self.versions.python)))?;
        }
        LICENCES.iter().try_for_each(|file| disk::copy(file, Path::new(PROJECTS[1]).join(file)))
    }

    /// Every program and library starts with the old glibc, and no file contains a path of this machine.
    fn inspect(&self, stage: &Path) -> Result<(), String> {
        let home = supply_chain::cargo_home()?;
        let folders = [&*self.work.to_string_lossy(), &*disk::workspace().to_string_lossy(), &*home].map(str::to_owned);
        let mut newest = (0, 0);
        for file in deb::files(stage)?.iter().filter(|file| !file.is_symlink()) {
            let bytes = fs::read(file).map_err(disk::failed(file))?;
            let is_in = |folder: &&String| bytes.windows(folder.len()).any(|window| window == folder.as_bytes());
            if let Some(folder) = folders.iter().find(is_in) {
                return Err(format!("{} contains the path {folder}", file.display()));
            }
            if !bytes.starts_with(b"\x7fELF") {
                continue;
            }
            let mut readelf = Command::new("readelf");
            readelf.args(["--wide", "--dynamic", "--version-info"]).arg(file).env("LC_ALL", "C");
            let needed = needed_glibc(&process::text(readelf)?).map_err(|why| format!("{} {why}", file.display()))?;
            newest = newest.max(needed);
        }
        match newest {
            (0, 0) => Err(format!("{}: no program there names a version of glibc", stage.display())),
            (major, minor) => {
                println!("programs and libraries in {} need glibc {major}.{minor}", stage.display());
                Ok(())
            }
        }
    }

    /// The key and its public key. A key that cannot be read stops the build early.
    fn keys(&self, tool: &Path) -> Result<(PathBuf, PathBuf), String> {
        let (throwaway, public) = (self.work.join("throwaway.pem"), self.work.join("public.pem"));
        for old in [&throwaway, &public] {
            let _ = fs::remove_file(old);
        }
        let mut command = Command::new(tool);
        match &self.request.key {
            Some(key) => command.arg("pubkey").arg(key).arg("-o").arg(&public),
            None => command.args(["keygen", "--set", THROWAWAY_SET, "-o"]).arg(&throwaway).arg("--pubout").arg(&public),
        };
        process::run(command)?;
        Ok((self.request.key.clone().unwrap_or(throwaway), public))
    }

    /// Lists the sums of all files, and signs the list: by a bare signature as manifests have it, and in an envelope, which names the key and
    /// the version.
    fn sign(&self, tool: &Path, key: &Path, public: &Path, new: &Path) -> Result<(), String> {
        let (sums, envelope) = (new.join(SUMS), new.join(ENVELOPE));
        let comment = format!("hypergrove {}", self.versions.files);
        let mut manifest = Command::new(tool);
        manifest.args(["sign", "--key"]).arg(key).arg("--manifest").arg(new).arg("-o").arg(&sums);
        process::run(manifest)?;
        let mut sign = Command::new(tool);
        sign.args(["sign", "--armor", "--comment", &comment, "--key"]).arg(key).arg("-o").arg(&envelope).arg(&sums);
        process::run(sign)?;
        verify(tool, public, new)?;
        match self.request.key {
            Some(_) => Ok(()),
            None => {
                fs::remove_file(key).map_err(disk::failed(key))?;
                disk::copy(public, new.join(throwaway_public(&self.versions)))
            }
        }
    }
}

/// The name of a throwaway key's public key, which is not among the sums: each build has another one.
fn throwaway_public(versions: &Versions) -> String {
    format!("hypergrove-{}-throwaway.pub.pem", versions.files)
}

/// The tool verifies both signatures of the sums, and all files.
fn verify(tool: &Path, public: &Path, folder: &Path) -> Result<(), String> {
    let mut verify = Command::new(tool);
    verify.args(["verify", "--quiet", "--key"]).arg(public).arg("--manifest").arg(folder.join(SUMS));
    process::run(verify)?;
    let mut verify = Command::new(tool);
    verify.args(["verify", "--quiet", "--key"]).arg(public).arg("--signature").arg(folder.join(ENVELOPE));
    verify.arg(folder.join(SUMS));
    process::run(verify)
}

/// The newest version of glibc that a program needs, by `readelf --dynamic --version-info`; or why the program is not for a release.
fn needed_glibc(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let mut newest = (0, 0);
    for line in text.lines() {
        if let Some((_, library)) = line.split_once("(NEEDED)").and_then(|(_, rest)| rest.split_once('[')) {
            let library = library.trim_end_matches(']');
            if !LIBRARIES.split(' ').any(|known| known == library) {
                return Err(format!("needs the library {library}: a release needs those of glibc alone"));
            }
        }
        let name = line.split_once("Name: ").and_then(|(_, rest)| rest.split_whitespace().next());
        if let Some(version) = name.and_then(|name| name.strip_prefix("GLIBC_")) {
            match number(version) {
                Some(found) if found <= GLIBC => newest = newest.max(found),
                _ => {
                    let (major, minor) = GLIBC;
                    return Err(format!("needs GLIBC_{version}: a release needs GLIBC_{major}.{minor} at most"));
                }
            }
        }
    }
    Ok(newest)
}

fn git(words: &[&str]) -> Result<String, String> {
    Ok(process::text(Command::new("git").args(words))?.trim_end().to_owned())
}

fn enter(folder: &Path) -> Result<(), String> {
    std::env::set_current_dir(folder).map_err(disk::failed(folder))
}

fn size(file: &Path) -> Result<u64, String> {
    Ok(fs::metadata(file).map_err(disk::failed(file))?.len())
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod test {
    use super::*;
    use clap::Parser;

    fn read(line: &str) -> Result<Request, String> {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            request: Request,
        }
        let typed = Typed::try_parse_from(["dist"].into_iter().chain(line.split_whitespace()));
        typed.map(|typed| typed.request).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        for (line, architectures) in [
            ("--candidate", &ARCHITECTURES[..]),
            ("--candidate --target all", &ARCHITECTURES),
            ("--target aarch64 --candidate", &["aarch64"]),
        ] {
            let request = read(line).expect(line);
            assert!(request.is_candidate && request.key.is_none(), "{request:?}");
            assert_eq!(request.architectures().collect::<Vec<_>>(), architectures);
        }
        for (wrong, why) in [
            ("", "--key <KEY>"),
            ("--target x86_64", "--key <KEY>"),
            ("--candidates", "unexpected argument '--candidates'"),
            ("--candidate --target arm", "invalid value 'arm' for '--target"),
            ("--candidate --target", "a value is required for '--target"),
            ("--key", "a value is required for '--key"),
            ("--key /no/key.pem", "/no/key.pem' for '--key <KEY>': no such file"),
            ("--key Cargo.toml", "by its whole path"),
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn each_kind_of_file_marks_a_candidate() {
        let versions = Versions::new("1.2.3", true);
        assert_eq!(
            [&*versions.files, &*versions.debian, &*versions.python],
            ["1.2.3-candidate", "1.2.3~candidate", "1.2.3rc0"]
        );
        assert_eq!(Versions::new("1.2.3", false).python, "1.2.3");
    }

    #[test]
    fn a_placeholder_is_no_contact() {
        assert_eq!(contact("A B <a@b.example>\n"), Ok("A B <a@b.example>"));
        for wrong in ["", "NAME <ADDRESS>\n", "<a@b.example>", "A B a@b.example", "A <a@b.example>\nB <b@c.example>"] {
            assert!(contact(wrong).is_err_and(|why| why.contains(CONTACT)), "{wrong}");
        }
    }

    #[test]
    fn newer_glibcs_and_other_libraries_are_refused() {
        let text = |version: &str, library: &str| {
            format!(
                " 0x0000000000000001 (NEEDED)             Shared library: [{library}]\n\
                 Version needs section '.gnu.version_r' contains 2 entries:\n  000000: Version: 1  File: libc.so.6  Cnt: 2\n  \
                 0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 3\n  0x0020:   Name: {version}  Flags: none  Version: 2\n"
            )
        };
        assert_eq!(needed_glibc(&text("GLIBC_2.28", "libc.so.6")), Ok((2, 28)));
        assert_eq!(needed_glibc(&text("HYPERGROVE_0.1", "libc.so.6")), Ok((2, 2)));
        for (version, library, named) in [
            ("GLIBC_2.29", "libc.so.6", "GLIBC_2.29"),
            ("GLIBC_3.0", "libc.so.6", "GLIBC_3.0"),
            ("GLIBC_PRIVATE", "libc.so.6", "GLIBC_PRIVATE"),
            ("GLIBC_ABI_DT_RELR", "libc.so.6", "GLIBC_ABI_DT_RELR"),
            ("GLIBC_2.28", "libcuda.so.1", "libcuda.so.1"),
            ("GLIBC_2.28", "libgcc_s.so.1", "libgcc_s.so.1"),
        ] {
            let why = needed_glibc(&text(version, library)).expect_err(version);
            assert!(why.contains(named), "{why}");
        }
    }
}
