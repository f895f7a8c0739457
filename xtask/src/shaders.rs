//! The kernels as SPIR-V modules: made by glslc and kept in git. CI compiles those whose source, or whose module, is not the one that was there when
//! they were made; in full it compiles all.

use crate::disk;
use crate::process::{self, answers};
use crate::step::{Extent, Step, Stop};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hypergrove_fips205::Family;
use hypergrove_kernels::{Kernel, glsl, module_name};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FOLDER: &str = "crates/vulkan/spirv";
/// The compiler that made the modules: all that `glslc --version` says. Other versions make other bytes.
const MADE_BY: &str = "crates/vulkan/spirv/glslc.txt";
/// A line for each module: its name, the SHA-256 of its source, and that of its code. glslc made the code of that source.
const MADE_OF: &str = "crates/vulkan/spirv/sources.txt";
/// Debian's glslc, and what the tests want: lavapipe, which is a Vulkan driver for CPUs, and the validation layer.
const PACKAGES: [&str; 4] = ["glslc", "libvulkan1", "mesa-vulkan-drivers", "vulkan-validationlayers"];

/// CI's step; it comes before the tests, which find a driver then.
pub(crate) fn check(extent: Extent) -> Step {
    let there = || answers("glslc", &["--version"]) && has("icd.d/lvp_icd") && has("explicit_layer.d/VkLayer_khronos");
    let installed = process::ensure_packages(&PACKAGES, there);
    let (Some(version), Ok(made_by)) = (process::output("glslc", &["--version"]), fs::read_to_string(MADE_BY)) else {
        return Err(Stop::Skipped(installed.err().unwrap_or_else(|| format!("no glslc, or no {MADE_BY}"))));
    };
    if version != made_by {
        let name = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        return Err(Stop::Skipped(format!("{} made the modules, here is {}", name(&made_by), name(&version))));
    }
    let sources = sources();
    let known = disk::read(MADE_OF)?;
    let is_listed = |name: &str, code: &[u8]| {
        let line = origin(name, &sources[name], code);
        known.lines().any(|other| other == line)
    };
    let is_known = |name: &str| unpacked(&path(name)).is_ok_and(|code| is_listed(name, &code));
    let unknown: BTreeMap<_, _> =
        sources.clone().into_iter().filter(|(name, _)| extent == Extent::Full || !is_known(name)).collect();
    let mut faults = Vec::new();
    for (name, code) in &compile(&unknown)? {
        // Code that is right lacks a line when somebody changed the source and forgot the line.
        if !is_listed(name, code) || unpacked(&path(name)).as_ref() != Ok(code) {
            faults.push(name.clone());
        }
    }
    faults.extend(kept()?.into_iter().filter(|name| !sources.contains_key(name)));
    match faults.first() {
        None => Ok(format!("{} modules, {} of them compiled", sources.len(), unknown.len())),
        Some(first) => Err(format!("{} modules are stale, first {first}: `cargo xtask shaders`", faults.len()).into()),
    }
}

/// `cargo xtask shaders`: makes the modules anew. One whose code is the same stays as it is.
pub(crate) fn write() -> Result<(), String> {
    let version = process::output("glslc", &["--version"]).ok_or("no glslc: `apt-get install glslc`")?;
    let sources = sources();
    let modules = compile(&sources)?;
    for name in kept()?.into_iter().filter(|name| !modules.contains_key(name)) {
        fs::remove_file(path(&name)).map_err(disk::failed(&path(&name)))?;
    }
    let (mut written, mut bytes) = (0, 0);
    for (name, code) in &modules {
        let path = path(name);
        if unpacked(&path).as_ref() != Ok(code) {
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            let packed = packed.write_all(code).and_then(|()| packed.finish()).map_err(disk::failed(&path))?;
            disk::write(&path, packed)?;
            written += 1;
        }
        bytes += fs::metadata(&path).map_err(disk::failed(&path))?.len();
    }
    let origins = modules.iter().map(|(name, code)| origin(name, &sources[name], code) + "\n");
    disk::write(MADE_OF, origins.collect::<String>())?;
    disk::write(MADE_BY, version)?;
    println!("{} modules, {written} of them written, {} kB", modules.len(), bytes / 1000);
    Ok(())
}

/// Whether the loader finds a file of its own that begins like this.
fn has(beginning: &str) -> bool {
    let (folder, name) = beginning.split_once('/').expect("a folder and a name");
    let files = fs::read_dir(Path::new("/usr/share/vulkan").join(folder)).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(name))
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.spv.gz"))
}

/// The names of the modules that are there.
fn kept() -> Result<Vec<String>, String> {
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.strip_suffix(".spv.gz")?.to_owned());
    Ok(disk::entries(FOLDER)?.iter().filter_map(name).collect())
}

/// Unpacks a module: packed bytes differ between versions of the packer, the code does not.
fn unpacked(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut code = Vec::new();
        GzDecoder::new(fs::File::open(path)?).read_to_end(&mut code).map(|_| code)
    };
    read().map_err(disk::failed(path))
}

/// A module's line in [`MADE_OF`].
fn origin(name: &str, source: &str, code: &[u8]) -> String {
    let [source, code] = [source.as_bytes(), code].map(|bytes| hex::encode(Sha256::digest(bytes)));
    format!("{name} {source} {code}")
}

/// The source of every kernel that fits any device, for both families and every n.
fn sources() -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    for &family in Family::ALL {
        for n in [16, 24, 32] {
            for kernel in Kernel::ALL.iter().copied().filter(|kernel| kernel.has_module()) {
                sources.entry(module_name(kernel, family, n)).or_insert_with(|| glsl(kernel, family, n));
            }
        }
    }
    sources
}

/// Compiles sources by all cores.
fn compile(sources: &BTreeMap<String, String>) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let sources = &Vec::from_iter(sources);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let named = |(name, source): &(&String, &String)| match compile_one(source) {
        Ok(code) => Ok(((*name).clone(), code)),
        Err(why) => Err(format!("{name}: {why}")),
    };
    std::thread::scope(|scope| {
        let of_core =
            |core| scope.spawn(move || sources.iter().skip(core).step_by(cores).map(named).collect::<Vec<_>>());
        let running: Vec<_> = (0..cores).map(of_core).collect();
        running.into_iter().flat_map(|run| run.join().expect("no panic")).collect()
    })
}

/// `-Os` leaves no names; the source has no path.
fn compile_one(source: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("glslc");
    command.args(["--target-env=vulkan1.2", "-fshader-stage=comp", "-Os", "-Werror", "-", "-o", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = || {
        let mut child = command.spawn()?;
        // It reads all before it writes.
        child.stdin.take().expect("it is piped").write_all(source.as_bytes())?;
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("glslc: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
