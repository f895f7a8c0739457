//! The functions of both libraries, each found by its name.

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
};
use cudarc::nvrtc::sys::nvrtcProgram;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null;

/// The oldest CUDA version that a driver may have, as the driver spells it.
const OLDEST: c_int = 12000;
const OLDEST_IN_WORDS: &str = "CUDA 12.0 or newer is needed: driver 525 or newer";

/// Functions of a shared library. cudarc's own functions would panic if a symbol is missing, and its enumerations must not hold codes that are
/// newer than cudarc. So every code is a number here.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident in $library:path { $($function:ident($($arg:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(super) struct $name { $(pub(super) $function: unsafe extern "C" fn($($arg),*) -> $result,)* }

        impl $name {
            /// Loads the functions of a library that is known to be there. The error is the function that is missing.
            #[allow(non_snake_case)]
            pub(super) fn load() -> Result<$name, &'static str> {
                // SAFETY: loading the library runs its initialisers, which is what they are for.
                let library = unsafe { $library() };
                $(
                    let symbol = concat!(stringify!($function), "\0").as_bytes();
                    // SAFETY: the type is the function's in CUDA's header; codes are unsigned there or never negative.
                    // The library is never unloaded, so that the address stays good.
                    let $function = *unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> $result>(symbol) }
                        .map_err(|_| stringify!($function))?;
                )*
                Ok($name { $($function,)* })
            }
        }
    };
}

library! {
    /// The driver's functions.
    Driver in sys::culib {
        cuInit(c_uint) -> u32;
        cuDriverGetVersion(*mut c_int) -> u32;
        cuGetErrorName(u32, *mut *const c_char) -> u32;
        cuGetErrorString(u32, *mut *const c_char) -> u32;
        cuDeviceGetCount(*mut c_int) -> u32;
        cuDeviceGet(*mut CUdevice, c_int) -> u32;
        cuDeviceGetName(*mut c_char, c_int, CUdevice) -> u32;
        cuDeviceGetUuid_v2(*mut [u8; 16], CUdevice) -> u32;
        cuDeviceTotalMem_v2(*mut usize, CUdevice) -> u32;
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice) -> u32;
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice) -> u32;
        cuDevicePrimaryCtxRelease_v2(CUdevice) -> u32;
        cuCtxSetCurrent(CUcontext) -> u32;
        cuMemGetInfo_v2(*mut usize, *mut usize) -> u32;
        cuMemAlloc_v2(*mut CUdeviceptr, usize) -> u32;
        cuMemFree_v2(CUdeviceptr) -> u32;
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> u32;
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint) -> u32;
        cuMemFreeHost(*mut c_void) -> u32;
        cuModuleLoadData(*mut CUmodule, *const c_void) -> u32;
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char) -> u32;
        cuModuleUnload(CUmodule) -> u32;
        cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction) -> u32;
        cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int) -> u32;
        cuStreamCreate(*mut CUstream, c_uint) -> u32;
        cuStreamDestroy_v2(CUstream) -> u32;
        cuStreamQuery(CUstream) -> u32;
        cuStreamWaitEvent(CUstream, CUevent, c_uint) -> u32;
        cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) -> u32;
        cuStreamEndCapture(CUstream, *mut CUgraph) -> u32;
        cuEventCreate(*mut CUevent, c_uint) -> u32;
        cuEventDestroy_v2(CUevent) -> u32;
        cuEventRecord(CUevent, CUstream) -> u32;
        cuEventQuery(CUevent) -> u32;
        cuEventElapsedTime(*mut f32, CUevent, CUevent) -> u32;
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> u32;
        cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream) -> u32;
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream) -> u32;
        cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream) -> u32;
        cuMemsetD32Async(CUdeviceptr, c_uint, usize, CUstream) -> u32;
        cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        ) -> u32;
        cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64) -> u32;
        cuGraphLaunch(CUgraphExec, CUstream) -> u32;
        cuGraphDestroy(CUgraph) -> u32;
        cuGraphExecDestroy(CUgraphExec) -> u32;
    }
}

library! {
    /// NVRTC's functions.
    Rtc in cudarc::nvrtc::sys::culib {
        nvrtcVersion(*mut c_int, *mut c_int) -> u32;
        nvrtcGetErrorString(u32) -> *const c_char;
        nvrtcGetNumSupportedArchs(*mut c_int) -> u32;
        nvrtcGetSupportedArchs(*mut c_int) -> u32;
        nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> u32;
        nvrtcDestroyProgram(*mut nvrtcProgram) -> u32;
        nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char) -> u32;
        nvrtcGetProgramLogSize(nvrtcProgram, *mut usize) -> u32;
        nvrtcGetProgramLog(nvrtcProgram, *mut c_char) -> u32;
        nvrtcGetCUBINSize(nvrtcProgram, *mut usize) -> u32;
        nvrtcGetCUBIN(nvrtcProgram, *mut c_char) -> u32;
        nvrtcGetPTXSize(nvrtcProgram, *mut usize) -> u32;
        nvrtcGetPTX(nvrtcProgram, *mut c_char) -> u32;
    }
}

impl Driver {
    /// The initialised driver. The error says what is missing.
    pub(super) fn open() -> Result<Driver, String> {
        // SAFETY: it loads the library and lets it go again.
        if !unsafe { sys::is_culib_present() } {
            return Err("there is no NVIDIA driver: libcuda is not installed".to_owned());
        }
        let driver = Driver::load()
            .map_err(|name| format!("the NVIDIA driver is too old, it lacks {name}: {OLDEST_IN_WORDS}"))?;
        let mut version = 0;
        // SAFETY: it writes one number, before initialisation too.
        match unsafe { (driver.cuDriverGetVersion)(&mut version) } {
            0 if version < OLDEST => {
                let (major, minor) = (version / 1000, version % 1000 / 10);
                return Err(format!("the NVIDIA driver is too old, it has CUDA {major}.{minor}: {OLDEST_IN_WORDS}"));
            }
            _ => {}
        }
        // SAFETY: 0 is the only flag there is.
        match unsafe { (driver.cuInit)(0) } {
            0 => Ok(driver),
            code if code == CUresult::CUDA_ERROR_NO_DEVICE as u32 => {
                Err("the NVIDIA driver finds no GPU here".to_owned())
            }
            code if code == CUresult::CUDA_ERROR_STUB_LIBRARY as u32 => {
                Err("the libcuda that is found first is the CUDA toolkit's stub: the library path must not name stubs"
                    .to_owned())
            }
            code => Err(format!("the NVIDIA driver does not start: {}", driver.describe(code))),
        }
    }

    /// CUDA's name of an error, and CUDA's words about it.
    pub(super) fn describe(&self, code: u32) -> String {
        let text = |get: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| {
            let mut text = null();
            // SAFETY: it writes one pointer, null for unknown codes and else to a text that lasts as long as the library.
            unsafe { (get(code, &mut text) == 0 && !text.is_null()).then(|| CStr::from_ptr(text)) }
                .map(|text| text.to_string_lossy())
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(words)) => format!("{name} ({words})"),
            (Some(name), None) => name.into_owned(),
            _ => format!("CUDA error {code}"),
        }
    }

    pub(super) fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, u32> {
        let mut value = 0;
        // SAFETY: it writes one number.
        match unsafe { (self.cuDeviceGetAttribute)(&mut value, attribute, device) } {
            0 => Ok(value.max(0) as u32),
            code => Err(code),
        }
    }
}

impl Rtc {
    pub(super) fn describe(&self, code: u32) -> String {
        // SAFETY: it takes any code, and the text that it points to is a constant of the library.
        let text = unsafe {
            let text = (self.nvrtcGetErrorString)(code);
            (!text.is_null()).then(|| CStr::from_ptr(text))
        };
        text.map_or_else(|| format!("NVRTC error {code}"), |text| text.to_string_lossy().into_owned())
    }
}
