//! NVIDIA's compiler, as a library.

use super::library::Rtc;
use crate::compile::{Output, Toolchain};
use cudarc::nvrtc::sys::nvrtcProgram;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

/// The loaded compiler.
pub(super) struct Nvrtc {
    rtc: Rtc,
    pub(super) version: (u32, u32),
    architectures: Vec<u32>,
}

impl Nvrtc {
    /// Loads the compiler. The error's text follows "the device cannot execute".
    pub(super) fn open() -> Result<Box<dyn Toolchain>, String> {
        Ok(Box::new(Nvrtc::load()?))
    }

    pub(super) fn load() -> Result<Nvrtc, String> {
        // SAFETY: it loads the library and lets it go again.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err(
                "the kernels, for want of NVRTC, which compiles them: install the CUDA toolkit's libnvrtc, or \
                        `pip install nvidia-cuda-nvrtc` and add its folder to the library path; a build with ready \
                        kernels needs none"
                    .to_owned(),
            );
        }
        let rtc = Rtc::load()
            .map_err(|name| format!("the kernels: libnvrtc lacks {name}; install CUDA 12's or a newer one"))?;
        let failed = |code| format!("the kernels: NVRTC does not start: {}", rtc.describe(code));
        let ok = |code| if code == 0 { Ok(()) } else { Err(failed(code)) };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each number is written once.
        unsafe {
            ok((rtc.nvrtcVersion)(&mut major, &mut minor))?;
            ok((rtc.nvrtcGetNumSupportedArchs)(&mut count))?;
        }
        let mut architectures: Vec<c_int> = vec![0; count.max(0) as usize];
        // SAFETY: it writes as many numbers as it said.
        ok(unsafe { (rtc.nvrtcGetSupportedArchs)(architectures.as_mut_ptr()) })?;
        let architectures = architectures.into_iter().map(|known| known.max(0) as u32).collect();
        Ok(Nvrtc { version: (major.max(0) as u32, minor.max(0) as u32), architectures, rtc })
    }

    /// Compiles a source. Returns the code, and the compiler's log, which has its warnings.
    pub(super) fn build(&self, source: &str, options: &[String], output: Output) -> Result<(Vec<u8>, String), String> {
        let rtc = &self.rtc;
        let c = |text: &str| CString::new(text).map_err(|_| "a NUL in the source or an option".to_owned());
        let source = c(source)?;
        let options = options.iter().map(|option| c(option)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = null_mut();
        // SAFETY: the source ends with NUL and outlives the program; it has no name and no headers.
        match unsafe { (rtc.nvrtcCreateProgram)(&mut program, source.as_ptr(), null(), 0, null(), null()) } {
            0 => {}
            code => return Err(rtc.describe(code)),
        }
        let program = Program { rtc, program };
        // SAFETY: the program lives, and the list has as many options as it says, each ending with NUL.
        let done = unsafe { (rtc.nvrtcCompileProgram)(program.program, options.len() as c_int, options.as_ptr()) };
        let log = program.get(rtc.nvrtcGetProgramLogSize, rtc.nvrtcGetProgramLog).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        if done != 0 {
            return Err(format!("{}\n{log}", rtc.describe(done)));
        }
        let code = match output {
            Output::Cubin => program.get(rtc.nvrtcGetCUBINSize, rtc.nvrtcGetCUBIN)?,
            Output::Ptx => program.get(rtc.nvrtcGetPTXSize, rtc.nvrtcGetPTX)?,
        };
        if code.is_empty() { Err("NVRTC made no code".to_owned()) } else { Ok((code, log)) }
    }
}

/// A source given to NVRTC.
struct Program<'a> {
    rtc: &'a Rtc,
    program: nvrtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { (self.rtc.nvrtcDestroyProgram)(&mut self.program) };
    }
}

type SizeOf = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> u32;
type Get = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> u32;

impl Program<'_> {
    /// One of NVRTC's results for this program, by a pair of functions: `size` gives its length, `get` writes it.
    fn get(&self, size: SizeOf, get: Get) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program lives; one number is written.
        let code = unsafe { size(self.program, &mut bytes) };
        let mut out = vec![0; if code == 0 { bytes } else { 0 }];
        if code == 0 && bytes != 0 {
            // SAFETY: the partner of `size` writes as many bytes as that said.
            match unsafe { get(self.program, out.as_mut_ptr().cast()) } {
                0 => {}
                code => return Err(self.rtc.describe(code)),
            }
        }
        if code == 0 { Ok(out) } else { Err(self.rtc.describe(code)) }
    }
}

impl Toolchain for Nvrtc {
    fn version(&self) -> (u32, u32) {
        self.version
    }

    fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    fn compile(&self, source: &str, options: &[String], output: Output) -> Result<Vec<u8>, String> {
        self.build(source, options, output).map(|(code, _)| code)
    }
}
