//! Compiles the kernels for devices, where the feature `ready` asks for it.

#[cfg(feature = "ready")]
#[path = "src/defines.rs"]
#[allow(dead_code, unreachable_pub)]
mod defines;
#[cfg(feature = "ready")]
#[path = "src/kernel.rs"]
#[allow(dead_code, unreachable_pub)]
mod kernel;
#[cfg(feature = "ready")]
#[path = "src/zk_constants.rs"]
mod zk_constants;

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for path in ["entry", "hash", "stage", "zk", "dialect.h", "args.h", "family.h", "src/defines.rs", "src/kernel.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rustc-env=HYPERGROVE_KERNELS={}", fingerprint(false));
    println!("cargo::rustc-env=HYPERGROVE_KERNELS_CPU={}", fingerprint(true));
    #[cfg(feature = "ready")]
    if let Err(why) = ready::make() {
        println!("cargo::error={}", why.trim().replace('\n', " / "));
        std::process::exit(1);
    }
}

/// SHA-256 of every file of SLH-DSA and SHA-256, in hexadecimal: of those for lanes of a CPU's vectors, or of the others.
fn fingerprint(for_cpu: bool) -> String {
    let read = |folder: &str| std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let in_folders =
        ["entry", "hash", "stage"].into_iter().flat_map(read).map(|entry| entry.expect("it was listed").path());
    let mut paths: Vec<PathBuf> =
        ["args.h", "dialect.h", "family.h"].into_iter().map(Into::into).chain(in_folders).collect();
    let is_source = |path: &Path| path.extension().is_some_and(|kind| kind == "k" || kind == "h");
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let is_zk = |path: &Path| stem(path).starts_with("zk_");
    paths.retain(|path| is_source(path) && !is_zk(path) && stem(path).ends_with("solo") == for_cpu);
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        hash.update(format!("{} {} ", path.display(), text.len()));
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The folder of generated headers, after writing them.
#[cfg(feature = "ready")]
fn generated() -> std::path::PathBuf {
    let folder = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for (path, text) in zk_constants::headers() {
        let path = folder.join(path);
        let parent = path.parent().expect("it is in a folder");
        let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, text));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    folder
}

/// Fatbins by nvcc, for the configurations of the default policies.
#[cfg(feature = "ready")]
mod ready {
    use crate::defines::{DEFAULTS, Defines, defines};
    use crate::kernel::Kernel;
    use hypergrove_fips205::Family;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Names the compiler; `none` builds the feature without anything ready.
    const VARIABLE: &str = "HYPERGROVE_NVCC";
    /// Architectures, as far as the compiler knows them. Machine code runs on later minor versions too: 8.7 has 8.6's,
    /// 10.3 has 10.0's, 12.1 has 12.0's. All is made from PTX of the oldest that has the kernel's instructions, in a third
    /// of the time: the machine code for 9.0 is the same as from its own. That PTX goes along, for other devices.
    const ARCHITECTURES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

    pub(crate) fn make() -> Result<(), String> {
        println!("cargo::rerun-if-env-changed={VARIABLE}");
        let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
        let mut images = Vec::new();
        if let Some(nvcc) = find()? {
            let known = run(Command::new(&nvcc).arg("--list-gpu-code"))?;
            let mut architectures = ARCHITECTURES.to_vec();
            architectures.retain(|number| known.lines().any(|line| line.trim() == format!("sm_{number}")));
            if architectures.is_empty() {
                return Err(format!("{} makes no code for any of sm_{ARCHITECTURES:?}", nvcc.display()));
            }
            images = configurations()
                .into_iter()
                .map(|(kernel, defines)| (kernel, defines, targets(kernel, &defines, &architectures)))
                .collect();
            images.retain(|(.., targets)| !targets.machine.is_empty());
            compile_all(&nvcc, &options(&nvcc)?, &images, &out)?;
        }
        let mut text = "static IMAGES: &[Image] = &[\n".to_owned();
        for (kernel, defines, Targets { machine, ptx }) in &images {
            let file = format!("/{}", file(*kernel, defines));
            // No path of this machine: a build in another folder gives the same bytes.
            let code = format!("&Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), {file:?})))");
            let ptx = ptx.unwrap_or(u32::MAX);
            text += &format!(
                "    Image {{ kernel: Kernel::{kernel:?}, defines: {defines:?}, architectures: &{machine:?}, ptx: {ptx}, code: {code} }},\n"
            );
        }
        text += "];\n";
        std::fs::write(out.join("ready.rs"), text).map_err(|error| format!("{}: {error}", out.display()))
    }

    /// Every kernel in every default configuration, each once.
    fn configurations() -> Vec<(Kernel, Defines)> {
        let mut found = Vec::new();
        for &family in Family::ALL {
            for n in [16, 24, 32] {
                for choices in DEFAULTS {
                    // The others are for CPUs under a GPU's driver.
                    let kernels = Kernel::ALL.iter().copied().filter(|kernel| !kernel.is_for_cpu());
                    found.extend(kernels.map(|kernel| (kernel, defines(kernel, family, n, &choices))));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn file(kernel: Kernel, defines: &Defines) -> String {
        defines.iter().fold(kernel.name().to_owned(), |name, (_, value)| format!("{name}-{value}")) + ".fatbin"
    }

    /// The devices that an image is for: by machine code, and all later ones by PTX of this architecture.
    struct Targets {
        machine: Vec<u32>,
        ptx: Option<u32>,
    }

    /// Tensor cores multiply bytes from 8.0 on, and together with those of other warps on 9.0 alone.
    fn targets(kernel: Kernel, defines: &Defines, architectures: &[u32]) -> Targets {
        let by_warpgroups = defines.contains(&("TENSOR", 2));
        let runs = |number: u32| match kernel.needs_tensor_cores() {
            true if by_warpgroups => number == 90,
            is_newer => !is_newer || number >= 80,
        };
        let machine: Vec<u32> = architectures.iter().copied().filter(|number| runs(*number)).collect();
        Targets { ptx: machine.first().copied().filter(|_| !by_warpgroups), machine }
    }

    impl Targets {
        fn option(&self) -> String {
            let codes: Vec<String> = self.machine.iter().map(|number| format!("sm_{number}")).collect();
            match self.ptx {
                Some(oldest) => format!("-gencode=arch=compute_{oldest},code=[{},compute_{oldest}]", codes.join(",")),
                None => "-gencode=arch=compute_90a,code=sm_90a".to_owned(),
            }
        }
    }

    fn options(nvcc: &Path) -> Result<Vec<String>, String> {
        let mut options = ["-fatbin", "-std=c++17", "-I."].map(str::to_owned).to_vec();
        options.push(format!("-I{}", crate::generated().display()));
        // A third of the size. CUDA 12.8 is the first to have it.
        if run(Command::new(nvcc).arg("--help"))?.contains("--compress-mode") {
            options.push("--compress-mode=size".to_owned());
        }
        Ok(options)
    }

    /// On all cores that cargo grants.
    fn compile_all(
        nvcc: &Path,
        options: &[String],
        images: &[(Kernel, Defines, Targets)],
        out: &Path,
    ) -> Result<(), String> {
        let jobs = std::env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some((kernel, defines, targets)) = images.get(next.fetch_add(1, Relaxed)) {
                        let options = [options, &[targets.option()]].concat();
                        if let Err(why) = compile(nvcc, &options, *kernel, defines, out) {
                            next.store(images.len(), Relaxed);
                            *failure.lock().expect("no panic") = Some(why);
                        }
                    }
                });
            }
        });
        failure.into_inner().expect("no panic").map_or(Ok(()), Err)
    }

    fn compile(nvcc: &Path, options: &[String], kernel: Kernel, defines: &Defines, out: &Path) -> Result<(), String> {
        let mut command = Command::new(nvcc);
        command.args(options).args(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        command
            .args(["-x", "cu"])
            .arg(format!("entry/{}.k", kernel.name()))
            .arg("-o")
            .arg(out.join(file(kernel, defines)));
        run(&mut command).map(|_| ())
    }

    /// The compiler that is named, or on the path, or in PyPI's wheels of the Python on the path.
    fn find() -> Result<Option<PathBuf>, String> {
        let works = |nvcc: &Path| Command::new(nvcc).arg("--version").output().is_ok_and(|done| done.status.success());
        if let Some(named) = std::env::var_os(VARIABLE) {
            let nvcc = PathBuf::from(&named);
            return match () {
                () if named == "none" => Ok(None),
                () if works(&nvcc) => Ok(Some(nvcc)),
                () => Err(format!("{VARIABLE} is {:?}, which is no nvcc that runs", nvcc.display())),
            };
        }
        let program = if cfg!(windows) { "nvcc.exe" } else { "nvcc" };
        let mut places = vec![PathBuf::from(program)];
        let ask = "import site, sysconfig; print(sysconfig.get_path('purelib')); print(site.getusersitepackages())";
        for python in ["python3", "python"] {
            if let Ok(folders) = run(Command::new(python).args(["-c", ask])) {
                places.extend(folders.lines().map(|line| Path::new(line.trim()).join("nvidia/cu13/bin").join(program)));
            }
        }
        match places.into_iter().find(|nvcc| works(nvcc)) {
            Some(nvcc) => Ok(Some(nvcc)),
            None => Err(format!(
                "the feature `ready` needs CUDA's nvcc: put it on the path, name it in {VARIABLE}, or `pip install \
                 nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt nvidia-nvvm`; with \
                 {VARIABLE}=none nothing is ready and devices' kernels are compiled when they are used"
            )),
        }
    }

    fn run(command: &mut Command) -> Result<String, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let done = command.output().map_err(|error| format!("{program}: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() {
            return Ok(text(&done.stdout));
        }
        Err(format!("{program}: {}\n{}{}", done.status, text(&done.stdout), text(&done.stderr)))
    }
}
