//! The C library: how it is linked and installed, and its programs under sanitizers and Valgrind.

use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop, ensure};
use crate::toolchain::Toolchain;
use crate::{disk, threads};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that programs are bound to. A release that may break programs gets another: before 1.0 each 0.x, from then on each
/// major release. 1.0 gets `libhypergrove.so.1` whatever its ABI is, so that no program runs with a candidate by accident.
const SONAME: &str = "libhypergrove.so.0.9";
/// The version of its symbols: the node of hypergrove.map.
const VERSION: &str = "HYPERGROVE_0.9";
pub(crate) const CRATE: &str = "hypergrove-capi";
/// The library as Cargo calls it.
const TARGET: &str = "hypergrove_capi";
const FOLDER: &str = "crates/capi";
/// The workspace's release.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// The system's libraries that Rust's standard library needs: `rustc --print native-static-libs`, without `-lgcc_s`. Compilers add that library by
/// themselves where it is used, and with `-static` they add `-lgcc_eh` in its place.
const SYSTEM: [&str; 5] = ["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
/// The files for pkg-config, for the shared library and for the static one, and those for CMake; and their folders below `lib`.
const PAGES: [(&str, &str); 4] = [
    ("hypergrove.pc", "pkgconfig"),
    ("hypergrove-static.pc", "pkgconfig"),
    ("hypergrove-config.cmake", "cmake/hypergrove"),
    ("hypergrove-config-version.cmake", "cmake/hypergrove"),
];
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// A program that passes if it exits with 0.
struct Program {
    source: &'static str,
    standard: &'static str,
    arguments: &'static [&'static str],
    /// Whether Valgrind runs it, too: that takes long.
    is_for_valgrind: bool,
}

const PROGRAMS: [Program; 5] = [
    Program { source: "examples/sign.c", standard: "-std=c99", arguments: &[], is_for_valgrind: false },
    Program { source: "examples/sign.cpp", standard: "-std=c++17", arguments: &[], is_for_valgrind: false },
    Program { source: "examples/node.c", standard: "-std=c99", arguments: &[], is_for_valgrind: false },
    // Under sanitizers a signature takes long.
    Program { source: "examples/server.c", standard: "-std=c99", arguments: &["600"], is_for_valgrind: false },
    Program {
        source: "tests/misuse.c",
        standard: "-std=c99",
        arguments: &["vectors/pem/forms.tsv"],
        is_for_valgrind: true,
    },
];

/// The library's part of `cargo xtask install`, and what CI tests.
pub(crate) fn install(prefix: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let archive = archive(toolchain.build(&["-p", CRATE], TARGET)?)?;
    place(&archive, prefix, toolchain)?;
    println!("libhypergrove in {}: pkg-config finds it with PKG_CONFIG_PATH={0}/lib/pkgconfig", prefix.display());
    Ok(())
}

/// The static library among the files that Cargo has made.
fn archive(made: Vec<PathBuf>) -> Result<PathBuf, String> {
    let archive = made.into_iter().find(|file| file.extension().is_some_and(|it| it == "a"));
    archive.ok_or_else(|| format!("Cargo names no static library of {CRATE}"))
}

/// Links the shared library, and puts all that a C program needs below `prefix`.
fn place(archive: &Path, prefix: &Path, toolchain: &Toolchain) -> Result<(), String> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    disk::make(&include)?;
    disk::make(&lib)?;
    disk::copy(Path::new(FOLDER).join("include/hypergrove.h"), include.join("hypergrove.h"))?;
    disk::copy(archive, lib.join("libhypergrove.a"))?;

    let shared = lib.join(format!("libhypergrove.so.{RELEASE}"));
    // `nodelete`: threads of an engine that was freed may still be about to end when a program closes the library.
    let (mut link, libraries) = toolchain.cc();
    link.args(["-shared", "-o"]).arg(&shared).arg(format!("-Wl,-soname,{SONAME}"));
    link.arg(format!("-Wl,--version-script={FOLDER}/hypergrove.map"));
    link.args(["-Wl,--gc-sections,--strip-debug,--no-undefined,-z,relro,-z,now,-z,nodelete", "-Wl,--whole-archive"]);
    link.arg(archive).arg("-Wl,--no-whole-archive").args(libraries).args(SYSTEM);
    process::run(link)?;
    for (link, to) in [(SONAME, shared.file_name().expect("a name")), ("libhypergrove.so", SONAME.as_ref())] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        symlink(to.as_ref(), &link).map_err(disk::failed(&link))?;
    }
    PAGES.iter().try_for_each(|(name, folder)| {
        disk::make(lib.join(folder))?;
        let text = read(name)?.replace("@VERSION@", RELEASE).replace("@SONAME@", SONAME);
        let separator = if name.ends_with(".cmake") { ";" } else { " " };
        disk::write(lib.join(folder).join(name), text.replace("@SYSTEM@", &SYSTEM.join(separator)))
    })
}

#[cfg(unix)]
fn symlink(to: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// CI's step: the library is built and installed as users do it, into the target folder; its programs run with it, under sanitizers and
/// under Valgrind.
pub(crate) fn check(extent: Extent) -> Step {
    if !cfg!(target_os = "linux") {
        return Err(Stop::Skipped("the C library is linked on Linux alone".into()));
    }
    let tools = || ["cc", "c++", "nm", "readelf", "pkg-config"].iter().all(|tool| answers(tool, &["--version"]));
    process::ensure_packages(&["gcc", "g++", "libc6-dev", "binutils", "pkg-config"], tools).map_err(Stop::Skipped)?;
    let prefix = process::target().join("capi");
    install(&prefix, &Toolchain::of_machine())?;

    let functions = functions()?;
    exports(&prefix, &functions)?;
    let mut header = Command::new("cc");
    header.args(["-std=c11", "-fsyntax-only", "-Icrates/capi/include"]).args(WARNINGS).arg("crates/capi/abi.c");
    process::run(header)?;
    let misuse = read("tests/misuse.c")?;
    if let Some(forgotten) = functions.iter().find(|function| !misuse.contains(&format!("{function}("))) {
        return Err(format!("{FOLDER}/tests/misuse.c: it calls {forgotten} nowhere").into());
    }

    let shared = shared(&prefix)?;
    // AddressSanitizer sees what the library frees twice or never, too.
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"];
    for flags in [&[][..], &sanitizers] {
        for program in &PROGRAMS {
            let made = compile(program, &prefix, flags, &shared)?;
            run(process::limited(5, &made.to_string_lossy(), program.arguments))?;
        }
    }
    statically(&prefix)?;
    let mut how = vec!["alone".to_string(), "statically linked".into(), "under ASan and UBSan".into()];
    match process::ensure_packages(&["valgrind"], || answers("valgrind", &["--version"])) {
        Err(why) => how.push(format!("not under Valgrind ({why})")),
        Ok(()) => {
            for program in PROGRAMS.iter().filter(|program| program.is_for_valgrind || extent == Extent::Full) {
                let made = compile(program, &prefix, &["-g"], &shared)?;
                let known = format!("--suppressions={FOLDER}/tests/valgrind.supp");
                let words = ["--quiet", "--error-exitcode=9", &known, &made.to_string_lossy()];
                run(process::limited(10, "valgrind", &[&words[..], program.arguments].concat()))?;
            }
            how.push("under Valgrind".into());
        }
    }
    how.push(cmake(&prefix)?);
    if extent == Extent::Full {
        how.extend([thread_sanitizer(&prefix)?, go(&prefix)?, java(&prefix)?]);
    }
    Ok(format!("{} functions; {} programs {}", functions.len(), PROGRAMS.len(), how.join(", ")))
}

fn read(file: &str) -> Result<String, String> {
    disk::read(Path::new(FOLDER).join(file))
}

/// The functions that abi.c declares.
fn functions() -> Result<BTreeSet<String>, String> {
    let text = read("abi.c")?;
    let name = |line: &str| {
        let (before, _) = line.strip_suffix(");")?.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("hg_").then(|| name.to_string())
    };
    Ok(text.lines().filter_map(name).collect())
}

/// The shared library has these functions under their version, and nothing else.
fn exports(prefix: &Path, functions: &BTreeSet<String>) -> Result<(), String> {
    let library = prefix.join("lib").join(SONAME);
    let list = process::text(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
    // `ADDRESS T NAME@@VERSION`; the version itself is an absolute symbol.
    let symbols = list.lines().filter(|line| !line.contains(" A ")).filter_map(|line| line.split(' ').nth(2));
    let exported: BTreeSet<String> = symbols.map(String::from).collect();
    let expected: BTreeSet<String> = functions.iter().map(|name| format!("{name}@@{VERSION}")).collect();
    match exported.symmetric_difference(&expected).next() {
        None => Ok(()),
        Some(other) => Err(format!("{}: {other} is exported, or declared in abi.c, but not both", library.display())),
    }
}

/// The answer of pkg-config about the library below `prefix`.
fn flags(prefix: &Path, query: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new("pkg-config");
    command.args(query).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    Ok(process::text(command)?.split_whitespace().map(String::from).collect())
}

/// How a program is linked with the shared library.
fn shared(prefix: &Path) -> Result<Vec<String>, String> {
    let mut flags = flags(prefix, &["--libs", "hypergrove"])?;
    flags.extend(["-pthread".into(), format!("-Wl,-rpath,{}", prefix.join("lib").display())]);
    Ok(flags)
}

/// The ways of `docs/c.md` to link a program without the shared library: the compiler's flags, and the query to pkg-config.
const STATICALLY: [(&[&str], &[&str]); 4] = [
    (&[], &["--libs", "hypergrove-static"]),
    (&["-Wl,--gc-sections"], &["--libs", "hypergrove-static"]),
    (&["-static"], &["--libs", "hypergrove-static"]),
    (&["-static"], &["--static", "--libs", "hypergrove"]),
];

/// A program runs in each of these ways, and loads no library that it was to contain.
fn statically(prefix: &Path) -> Result<(), String> {
    let [program, ..] = &PROGRAMS;
    let mut sizes = Vec::new();
    for (flags_of_compiler, query) in STATICALLY {
        let made = compile(program, prefix, flags_of_compiler, &flags(prefix, query)?)?.to_string_lossy().into_owned();
        let list = process::output("readelf", &["--dynamic", &made]).ok_or_else(|| format!("readelf: {made}"))?;
        let forbidden = if flags_of_compiler.contains(&"-static") { "NEEDED" } else { "libhypergrove" };
        if let Some(line) = list.lines().find(|line| line.contains("NEEDED") && line.contains(forbidden)) {
            return Err(format!("{made}, linked by {flags_of_compiler:?} and {query:?}, needs {}", line.trim()));
        }
        run(process::limited(5, &made, &[]))?;
        sizes.push(fs::metadata(&made).map_err(|error| format!("{made}: {error}"))?.len());
    }
    ensure!(sizes[1] < sizes[0], "-Wl,--gc-sections makes no smaller program: {sizes:?} bytes");
    Ok(())
}

impl Program {
    fn compiler(&self) -> &'static str {
        if self.source.ends_with(".cpp") { "c++" } else { "cc" }
    }

    /// Where it is made.
    fn place(&self, folder: &Path) -> PathBuf {
        let name = Path::new(self.source).file_name().expect("a name").to_string_lossy().replace('.', "-");
        folder.join(name)
    }

    /// The compiler with its flags and the source, and the header below `prefix`.
    fn command(&self, prefix: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(self.compiler());
        command.arg(self.standard).args(WARNINGS).args(flags).arg("-I").arg(prefix.join("include"));
        command.arg(Path::new(FOLDER).join(self.source));
        command
    }
}

/// The program, linked with the library below `prefix`.
fn compile(program: &Program, prefix: &Path, flags: &[&str], library: &[String]) -> Result<PathBuf, String> {
    let made = program.place(prefix);
    process::run(program.command(prefix, flags).args(library).arg("-o").arg(&made))?;
    Ok(made)
}

/// CMake finds the library below `prefix`, and builds programs with both of its targets that run, if there is a CMake.
fn cmake(prefix: &Path) -> Result<String, String> {
    if !answers("cmake", &["--version"]) {
        return Ok("NOT by CMake: there is none".into());
    }
    let (source, build) = (prefix.join("cmake-source"), prefix.join("cmake-build"));
    disk::remove(&build)?;
    disk::make(&source)?;
    disk::copy(Path::new(FOLDER).join("examples/sign.c"), source.join("sign.c"))?;
    let (major_minor, _) = RELEASE.rsplit_once('.').unwrap_or((RELEASE, ""));
    let text = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(sign C)\nfind_package(hypergrove {major_minor} REQUIRED)\n\
         foreach(kind hypergrove static)\n  add_executable(${{kind}} sign.c)\n  \
         target_link_libraries(${{kind}} hypergrove::${{kind}})\nendforeach()\n"
    );
    disk::write(source.join("CMakeLists.txt"), text)?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&build).arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    process::run(configure)?;
    process::run(Command::new("cmake").arg("--build").arg(&build))?;
    for kind in ["hypergrove", "static"] {
        run(process::limited(5, &build.join(kind).to_string_lossy(), &[]))?;
    }
    Ok("by CMake".into())
}

/// A library that was installed below `prefix`, from a release: it exports its functions alone, and programs link with it in each way.
pub(crate) fn check_installed(prefix: &Path) -> Result<String, String> {
    let [program, ..] = &PROGRAMS;
    exports(prefix, &functions()?)?;
    run(process::limited(5, &compile(program, prefix, &[], &shared(prefix)?)?.to_string_lossy(), &[]))?;
    statically(prefix)?;
    Ok(format!("C programs linked in {} ways, {}", 1 + STATICALLY.len(), cmake(prefix)?))
}

/// A program in which two threads race: one in C writes what another one has the library read.
const RACE: Program = Program { source: "tests/race.c", standard: "-std=c99", arguments: &[], is_for_valgrind: false };

/// The programs and the library under ThreadSanitizer, both compiled for it. A planted race must be reported.
fn thread_sanitizer(prefix: &Path) -> Result<String, String> {
    if let Err(why) = threads::ensure_sanitizer() {
        return Ok(format!("NOT under ThreadSanitizer: {why}"));
    }
    let archive = archive(process::made(threads::sanitized("build", &["-p", CRATE]), TARGET)?)?;
    let root = process::output("rustup", &["run", "nightly", "rustc", "--print", "sysroot"]).unwrap_or_default();
    let library = format!("{}/lib/rustlib/{}/lib/librustc-nightly_rt.tsan.a", root.trim(), threads::TARGET);
    let folder = prefix.join("tsan");
    disk::make(&folder)?;
    let made = |program: &Program| -> Result<Command, String> {
        let made = program.place(&folder);
        let object = made.with_extension("o");
        let mut command = program.command(prefix, &["-fsanitize=thread", "-fPIE", "-g", "-O1", "-c"]);
        command.arg("-o").arg(&object);
        process::run(command)?;
        // The compiler's own ThreadSanitizer may be older than that of Rust, which has all that both call.
        let mut link = Command::new(program.compiler());
        link.args(["-pie", "-rdynamic", "-Wl,--gc-sections"]).arg(&object).arg(&archive);
        link.args(["-Wl,--whole-archive", &library, "-Wl,--no-whole-archive"]).args(SYSTEM).arg("-o").arg(&made);
        process::run(link)?;
        let mut command = process::limited(20, &made.to_string_lossy(), program.arguments);
        // A child that starts threads is one of the tests.
        command.env("TSAN_OPTIONS", "die_after_fork=0:allocator_may_return_null=1");
        Ok(command)
    };
    PROGRAMS.iter().try_for_each(|program| run(made(program)?))?;
    let output = made(&RACE)?.output().map_err(|error| format!("the planted race: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !text.contains(threads::REPORT) {
        return Err(format!("ThreadSanitizer did not report the planted race of {}:\n{text}", RACE.source));
    }
    Ok("under ThreadSanitizer, which reported a planted race".into())
}

/// The example in Go, if there is a Go.
fn go(prefix: &Path) -> Result<String, String> {
    let Some(go) = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| answers(go, &["version"])) else {
        return Ok("NOT from Go: there is none".into());
    };
    let lib = prefix.join("lib");
    let mut command = process::limited(10, go, &["run", "crates/capi/examples/sign.go"]);
    command.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).env("LD_LIBRARY_PATH", &lib).env("GO111MODULE", "off");
    command.env("GOCACHE", prefix.join("go"));
    run(command)?;
    Ok("from Go".into())
}

/// The example in Java, if there is a JDK that has the interface to C.
fn java(prefix: &Path) -> Result<String, String> {
    let release = |java: &PathBuf| -> Option<u32> {
        let text = process::output(&java.to_string_lossy(), &["--version"])?;
        text.split_whitespace().nth(1)?.split('.').next()?.parse().ok()
    };
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|jdk| jdk.path().join("bin/java"));
    let mut all = home.into_iter().chain([PathBuf::from("java")]).chain(installed);
    let Some(java) = all.find(|java| release(java).is_some_and(|release| release >= 22)) else {
        return Ok("NOT from Java: there is no JDK 22 or newer".into());
    };
    let library = prefix.join("lib/libhypergrove.so");
    let arguments =
        ["--enable-native-access=ALL-UNNAMED", "crates/capi/examples/Sign.java", &library.to_string_lossy()];
    run(process::limited(5, &java.to_string_lossy(), &arguments))?;
    Ok("from Java".into())
}

/// Runs a program that uses the library; without Vulkan's drivers, which keep memory when they are unloaded.
fn run(mut command: Command) -> Result<(), String> {
    command.env("VK_ICD_FILENAMES", "none");
    // A size that no machine has is refused, as malloc does outside the sanitizer.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    process::run(command)
}

#[cfg(test)]
mod test {
    use super::*;

    /// The releases that have one ABI, as names have it: `0.9` before 1.0, then `1`.
    fn series(release: &str) -> String {
        let mut numbers = release.split('.');
        match (numbers.next(), numbers.next()) {
            (Some("0"), Some(minor)) => format!("0.{minor}"),
            (major, _) => major.unwrap_or_default().into(),
        }
    }

    #[test]
    fn the_soname_and_the_symbols_versions_are_those_of_the_release() {
        assert_eq!((&*series("0.9.3"), &*series("1.4.0")), ("0.9", "1"));
        let series = series(RELEASE);
        assert_eq!(SONAME, format!("libhypergrove.so.{series}"));
        // Functions of a later 1.x have nodes of their own, which begin so too.
        assert_eq!(VERSION, format!("HYPERGROVE_{series}"));
        let read = |file: &str| disk::read(disk::workspace().join(file)).unwrap();
        assert!(read("crates/capi/hypergrove.map").contains(&format!("\n{VERSION} {{\n")));
        let page = read("docs/c.md");
        assert!(page.contains(&format!("`{SONAME}`")) && page.contains(&format!("`{VERSION}`")));
    }
}
