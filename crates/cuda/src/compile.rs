//! Finds the code of a kernel for a device: in the build, in memory, on disk, or by compiling the kernel's source now.

use hypergrove_engine::Error;
use hypergrove_gpu::cache::Cache;
use hypergrove_kernels::{Config, Kernel};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Compute capability: 9 and 0 of `sm_90`.
pub(crate) type Capability = (u32, u32);

/// The oldest devices that kernels are compiled for and tried on.
const OLDEST: Capability = (7, 5);

/// Options of every compilation, in addition to the architecture.
pub(crate) const OPTIONS: [&str; 2] = ["-std=c++17", "-default-device"];

/// A compiler of kernels: NVRTC, or a test's.
pub(crate) trait Toolchain: Send + Sync {
    fn version(&self) -> (u32, u32);
    /// The architectures that the compiler knows: 90 for compute capability 9.0.
    fn architectures(&self) -> &[u32];
    /// Compiles a source to machine code, or to PTX with its closing NUL. The error is the compiler's log.
    fn compile(&self, source: &str, options: &[String], output: Output) -> Result<Vec<u8>, String>;
}

/// The kind of code that a compilation makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Machine code of one architecture.
    Cubin,
    /// Assembly that the driver compiles for an architecture the compiler does not know yet.
    Ptx,
}

type Opener = dyn Fn() -> Result<Box<dyn Toolchain>, String> + Send + Sync;
/// A slot is locked while its code is compiled, so that a second device waits instead of compiling the same code.
type Slot = Arc<Mutex<Option<Arc<[u8]>>>>;

/// Compiles kernels, each once: code is kept in memory and in the cache. All devices share one compiler.
pub(crate) struct Compiler {
    cache: Option<Arc<Cache>>,
    open: Box<Opener>,
    toolchain: OnceLock<Result<Box<dyn Toolchain>, String>>,
    codes: Mutex<HashMap<[u8; 32], Slot>>,
}

impl Compiler {
    /// A compiler whose toolchain `open` loads, at the first compilation.
    pub(crate) fn new(
        cache: Option<Arc<Cache>>,
        open: impl Fn() -> Result<Box<dyn Toolchain>, String> + Send + Sync + 'static,
    ) -> Compiler {
        Compiler { cache, open: Box::new(open), toolchain: OnceLock::new(), codes: Mutex::default() }
    }

    /// A kernel's code for a device, whose name is for errors.
    pub(crate) fn kernel(
        &self,
        kernel: Kernel,
        config: &Config,
        capability: Capability,
        device: &str,
    ) -> Result<Cow<'static, [u8]>, Error> {
        if capability < OLDEST {
            let ((major, minor), (least, more)) = (capability, OLDEST);
            let what =
                format!("the kernels: it has compute capability {major}.{minor}, they need {least}.{more} or newer");
            return Err(Error::Unsupported { device: device.to_owned(), what });
        }
        match hypergrove_kernels::ready(kernel, config, capability) {
            Some(code) => Ok(Cow::Borrowed(code)),
            None => {
                let source = hypergrove_kernels::source(kernel, config);
                let feature = if hypergrove_kernels::is_by_warpgroups(kernel, config) { "a" } else { "" };
                let code = self.compile((kernel.name(), feature), &source, &OPTIONS, capability, device)?;
                Ok(Cow::Owned(code.to_vec()))
            }
        }
    }

    /// Code for the source called `name`. `feature` follows the architecture's number: "a" for instructions that only this architecture has.
    pub(crate) fn compile(
        &self,
        (name, feature): (&str, &str),
        source: &str,
        options: &[&str],
        capability: Capability,
        device: &str,
    ) -> Result<Arc<[u8]>, Error> {
        let unsupported = |what: String| Error::Unsupported { device: device.to_owned(), what };
        let toolchain =
            self.toolchain.get_or_init(|| (self.open)()).as_ref().map_err(|why| unsupported(why.clone()))?;
        let (major, minor) = toolchain.version();
        let (output, architecture) = target(toolchain.architectures(), capability)
            .map_err(|why| unsupported(format!("the kernels: NVRTC {major}.{minor} {why}")))?;
        let architecture = architecture + feature;
        let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        options.push(format!("--gpu-architecture={architecture}"));

        let key = key(source, &options, (major, minor), capability);
        let slot = self.codes.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let mut code = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = &*code {
            return Ok(code.clone());
        }
        let fresh = match self.cache.as_ref().and_then(|cache| cache.load(&key)) {
            Some(cached) => cached,
            None => {
                let made = toolchain.compile(source, &options, output).map_err(|log| Error::Device {
                    device: device.to_owned(),
                    what: format!("NVRTC {major}.{minor} cannot compile {name} for {architecture}: {}", log.trim()),
                })?;
                if let Some(cache) = &self.cache {
                    cache.store(&key, &made);
                }
                made
            }
        };
        let fresh: Arc<[u8]> = fresh.into();
        *code = Some(fresh.clone());
        Ok(fresh)
    }
}

/// The target of a compilation: machine code of the device itself, or PTX of the newest architecture before it.
fn target(known: &[u32], (major, minor): Capability) -> Result<(Output, String), String> {
    let device = major * 10 + minor;
    match known.iter().copied().filter(|&known| known <= device).max() {
        Some(newest) if newest == device => Ok((Output::Cubin, format!("sm_{device}"))),
        Some(newest) => Ok((Output::Ptx, format!("compute_{newest}"))),
        None => Err(format!("makes no code for compute capability {major}.{minor}; an older CUDA toolkit's does")),
    }
}

/// A hash of everything that the code depends on. Each part is hashed with its length, so that no two lists look alike.
fn key(source: &str, options: &[String], version: (u32, u32), capability: Capability) -> [u8; 32] {
    let numbers = [version.0, version.1, capability.0, capability.1].map(u32::to_le_bytes);
    let mut hash = Sha256::new();
    for part in [numbers.as_flattened(), source.as_bytes()].into_iter().chain(options.iter().map(String::as_bytes)) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove_gpu::cache::{CHECKSUM_BYTES, MAGIC};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A compiler that outputs its arguments, and counts its calls.
    struct Echo {
        version: (u32, u32),
        compiled: Arc<AtomicUsize>,
    }

    impl Toolchain for Echo {
        fn version(&self) -> (u32, u32) {
            self.version
        }
        fn architectures(&self) -> &[u32] {
            &[75, 90, 100]
        }
        fn compile(&self, source: &str, options: &[String], output: Output) -> Result<Vec<u8>, String> {
            self.compiled.fetch_add(1, Relaxed);
            match source {
                "bad" => Err("line 1: bad\n".to_owned()),
                _ => Ok(format!("{output:?} {source} {options:?}").into_bytes()),
            }
        }
    }

    /// A compiler as a fresh process has it, and how often it has compiled.
    fn process(cache: Option<&Path>, version: (u32, u32)) -> (Compiler, Arc<AtomicUsize>) {
        let compiled = Arc::new(AtomicUsize::new(0));
        let count = compiled.clone();
        let open = move || Ok(Box::new(Echo { version, compiled: count.clone() }) as Box<dyn Toolchain>);
        (Compiler::new(cache.map(|path| Arc::new(Cache::new(path))), open), compiled)
    }

    fn compile(cache: Option<&Path>, source: &str, options: &[&str], capability: Capability) -> (Vec<u8>, usize) {
        let (compiler, compiled) = process(cache, (13, 0));
        let code = compiler.compile(("chain", ""), source, options, capability, "cuda:0").unwrap();
        (code.to_vec(), compiled.load(Relaxed))
    }

    fn files(cache: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_second_process_compiles_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path().join("made/on/demand");
        let (code, compiled) = compile(Some(&cache), "x", &["-o"], (9, 0));
        assert_eq!(code, br#"Cubin x ["-o", "--gpu-architecture=sm_90"]"#);
        assert_eq!(compiled, 1);
        assert_eq!(compile(Some(&cache), "x", &["-o"], (9, 0)), (code, 0));
        assert_eq!(files(&cache).len(), 1, "no temporary file stays");
    }

    #[test]
    fn a_second_device_compiles_nothing() {
        let (compiler, compiled) = process(None, (13, 0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| compiler.compile(("chain", ""), "x", &[], (9, 0), "cuda:0").unwrap());
            }
        });
        assert_eq!(compiled.load(Relaxed), 1);
    }

    #[test]
    fn damaged_files_are_ignored_and_rewritten() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        let (code, _) = compile(Some(cache), "x", &[], (9, 0));
        let [file] = files(cache).try_into().unwrap();
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = vec![whole.clone(); 3];
        for (copy, at) in flipped.iter_mut().zip([0, MAGIC.len(), whole.len() - 1]) {
            copy[at] ^= 1;
        }
        let truncated =
            [0, 5, MAGIC.len(), MAGIC.len() + CHECKSUM_BYTES, whole.len() - 1].map(|end| whole[..end].to_vec());
        let longer = [&whole[..], b"\0"].concat();
        for damaged in flipped.into_iter().chain(truncated).chain([longer]) {
            std::fs::write(&file, &damaged).unwrap();
            assert_eq!(compile(Some(cache), "x", &[], (9, 0)), (code.clone(), 1), "{} bytes", damaged.len());
            assert_eq!(std::fs::read(&file).unwrap(), whole);
        }
    }

    #[test]
    fn another_kernels_file_is_not_taken() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        compile(Some(cache), "x", &[], (9, 0));
        let [x] = files(cache).try_into().unwrap();
        let (code, _) = compile(Some(cache), "y", &[], (9, 0));
        for file in files(cache) {
            if file != x {
                std::fs::copy(&x, file).unwrap();
            }
        }
        assert_eq!(compile(Some(cache), "y", &[], (9, 0)), (code, 1));
    }

    /// The planted code has a right checksum: whoever can write the file can make one.
    #[cfg(unix)]
    #[test]
    fn planted_code_is_not_loaded() {
        use std::os::unix::fs::PermissionsExt;
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        let (code, _) = compile(Some(cache), "x", &[], (9, 0));
        let options = ["--gpu-architecture=sm_90".to_owned()];
        Cache::new(cache).store(&key("x", &options, (13, 0), (9, 0)), b"planted");
        assert_eq!(compile(Some(cache), "x", &[], (9, 0)), (b"planted".to_vec(), 0), "it would be found");
        std::fs::set_permissions(cache, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(compile(Some(cache), "x", &[], (9, 0)), (code, 1));
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("file");
        std::fs::write(&taken, "").unwrap();
        for cache in [taken.clone(), taken.join("below")] {
            assert_eq!(compile(Some(&cache), "x", &[], (9, 0)).1, 1);
        }
        assert_eq!(std::fs::read(&taken).unwrap(), b"");
    }

    #[test]
    fn everything_that_matters_names_the_file() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        type Case = (&'static str, &'static [&'static str], Capability, (u32, u32));
        let cases: [Case; 9] = [
            ("x", &[], (9, 0), (13, 0)),
            ("y", &[], (9, 0), (13, 0)),
            ("x", &["-a"], (9, 0), (13, 0)),
            ("x", &["-a", "-b"], (9, 0), (13, 0)),
            ("x", &["-a-b"], (9, 0), (13, 0)),
            ("x", &[], (10, 0), (13, 0)),
            // Both devices get PTX of 10.0.
            ("x", &[], (12, 0), (13, 0)),
            ("x", &[], (12, 1), (13, 0)),
            ("x", &[], (9, 0), (12, 9)),
        ];
        for (number, (source, options, capability, version)) in cases.into_iter().enumerate() {
            let (compiler, _) = process(Some(cache), version);
            compiler.compile(("chain", ""), source, options, capability, "cuda:0").unwrap();
            assert_eq!(files(cache).len(), number + 1, "{source} {options:?} {capability:?} {version:?}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(target(&[75, 90, 100], (9, 0)), Ok((Output::Cubin, "sm_90".to_owned())));
        assert_eq!(target(&[75, 90, 100], (10, 3)), Ok((Output::Ptx, "compute_100".to_owned())));
        assert_eq!(target(&[75, 90, 120], (10, 0)), Ok((Output::Ptx, "compute_90".to_owned())));
        assert!(target(&[75, 90, 100], (7, 0)).unwrap_err().contains("7.0"));
        assert!(target(&[], (9, 0)).is_err());
    }

    #[test]
    fn errors_name_the_device_and_the_cause() {
        let (compiler, compiled) = process(None, (13, 0));
        let text = compiler.compile(("chain", ""), "bad", &[], (9, 0), "cuda:3").unwrap_err().to_string();
        assert_eq!(text, "cuda:3 failed: NVRTC 13.0 cannot compile chain for sm_90: line 1: bad");
        assert!(compiler.compile(("chain", ""), "bad", &[], (9, 0), "cuda:3").is_err());
        assert_eq!(compiled.load(Relaxed), 2, "a failure is not kept");
        let text = compiler.compile(("chain", ""), "x", &[], (5, 0), "cuda:3").unwrap_err().to_string();
        assert!(text.starts_with("cuda:3 cannot execute the kernels: NVRTC 13.0 makes no code"), "{text}");
        let missing = Compiler::new(None, || Err("the kernels without NVRTC".to_owned()));
        let text = missing.compile(("chain", ""), "x", &[], (9, 0), "cuda:3").unwrap_err().to_string();
        assert_eq!(text, "cuda:3 cannot execute the kernels without NVRTC");
    }
}
