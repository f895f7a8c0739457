//! NVIDIA's driver and NVRTC. Both are loaded when they are first asked for; where they are missing, that is said. All of
//! the crate's `unsafe` is here: CUDA is called through C functions, and knows memory by addresses.

use crate::compile::{Capability, Compiler, Output, Toolchain};
use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
};
use cudarc::nvrtc::sys::nvrtcProgram;
use hypergrove_engine::{Error, Timing};
use hypergrove_fips205::plan::Work;
use hypergrove_gpu::steps::{self, Access, Allocations, Place, accesses, check_order};
use hypergrove_gpu::{Facts, Gpu, Launch, Queue, SLOTS, Step};
use hypergrove_kernels::{Config, Kernel};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The oldest CUDA version of a driver that is used, as the driver spells it.
const OLDEST: c_int = 12000;
const OLDEST_IN_WORDS: &str = "CUDA 12.0 or newer is needed: driver 525 or newer";

/// Functions of a shared library. cudarc's own would panic where a symbol is missing, and its enumerations must not hold
/// codes that are newer than they are: here every code is a number.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident in $library:path { $($function:ident($($arg:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        struct $name { $($function: unsafe extern "C" fn($($arg),*) -> $result,)* }

        impl $name {
            /// The error is the function that is missing. Only to be called once the library is known to be there.
            #[allow(non_snake_case)]
            fn load() -> Result<$name, &'static str> {
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
        cuStreamCreate(*mut CUstream, c_uint) -> u32;
        cuStreamDestroy_v2(CUstream) -> u32;
        cuStreamSynchronize(CUstream) -> u32;
        cuStreamWaitEvent(CUstream, CUevent, c_uint) -> u32;
        cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) -> u32;
        cuStreamEndCapture(CUstream, *mut CUgraph) -> u32;
        cuEventCreate(*mut CUevent, c_uint) -> u32;
        cuEventDestroy_v2(CUevent) -> u32;
        cuEventRecord(CUevent, CUstream) -> u32;
        cuEventSynchronize(CUevent) -> u32;
        cuEventElapsedTime(*mut f32, CUevent, CUevent) -> u32;
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> u32;
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
    /// The driver, initialised; or what is missing.
    fn open() -> Result<Driver, String> {
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

    /// CUDA's name of an error, and what it says about it.
    fn describe(&self, code: u32) -> String {
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

    fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, u32> {
        let mut value = 0;
        // SAFETY: it writes one number.
        match unsafe { (self.cuDeviceGetAttribute)(&mut value, attribute, device) } {
            0 => Ok(value.max(0) as u32),
            code => Err(code),
        }
    }
}

/// All devices of the driver, at least one, or why there is none: a sentence without its full stop. None is touched before
/// its first use. `cache` is where compiled kernels are kept: see [`Compiler::new`].
pub(crate) fn devices(cache: Option<&Path>) -> Result<Vec<Arc<CudaGpu>>, String> {
    let driver = Arc::new(Driver::open()?);
    let compiler = Arc::new(Compiler::new(cache, Nvrtc::open));
    let failed = |code| format!("the NVIDIA driver does not list its devices: {}", driver.describe(code));
    let mut count = 0;
    // SAFETY: it writes one number.
    match unsafe { (driver.cuDeviceGetCount)(&mut count) } {
        0 if count > 0 => {}
        0 => return Err("the NVIDIA driver finds no GPU here".to_owned()),
        code => return Err(failed(code)),
    }
    (0..count).map(|index| CudaGpu::open(&driver, &compiler, index).map(Arc::new).map_err(failed)).collect()
}

/// Cycles of one multiprocessor for a compression, at least: 64 lanes of the integer pipe a cycle, all additions moved
/// elsewhere. SHA-256 has 1,024 rotations, shifts and logic operations that only that pipe can do. The other two are
/// from the best rates reached on an H200 (docs/cuda.md).
const SHA256: f64 = 16.0;
const SHA512: f64 = 51.4;
const KECCAK: f64 = 76.9;

/// Threads a multiprocessor of launches that take turns with those of other queues: side by side they would end together,
/// and leave the device idle while all copy. Smaller ones have room beside each other.
const FULL: u64 = 256;

/// A device. Its context is the process's one for it (the primary one), made at the first use.
pub(crate) struct CudaGpu {
    facts: Facts,
    driver: Arc<Driver>,
    compiler: Arc<Compiler>,
    device: CUdevice,
    capability: Capability,
    /// Whether host memory has its address on the device too.
    unified: bool,
    context: OnceLock<Result<Context, Error>>,
    /// When the launches that were submitted last are done: whoever launches next waits for it.
    last_computed: Mutex<Weak<Event>>,
    /// The error after which the device answers nothing any more.
    lost: OnceLock<Error>,
    /// Loaded kernels, kept until the device goes.
    modules: Mutex<HashMap<(Config, Kernel), Slot>>,
    allocations: Mutex<Allocations<()>>,
}

struct Context(CUcontext);
// SAFETY: a context is a handle that any thread may use, several at once too.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[derive(Clone, Copy)]
struct Module {
    module: CUmodule,
    function: Function,
}
// SAFETY: modules are handles that any thread may use.
unsafe impl Send for Module {}

/// Held while the kernel is compiled and loaded: whoever wants it too waits.
type Slot = Arc<Mutex<Option<Module>>>;

#[derive(Clone, Copy)]
struct Function(CUfunction);
// SAFETY: functions are handles that any thread may launch, several at once too; nothing here changes their attributes.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Whether nothing works in the context any more after this error.
fn is_final(code: u32) -> bool {
    use CUresult::*;
    const FINAL: [CUresult; 19] = [
        CUDA_ERROR_DEINITIALIZED,
        CUDA_ERROR_DEVICE_UNAVAILABLE,
        CUDA_ERROR_INVALID_CONTEXT,
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_CONTAINED,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_TENSOR_MEMORY_LEAK,
        CUDA_ERROR_EXTERNAL_DEVICE,
        CUDA_ERROR_UNKNOWN,
    ];
    FINAL.iter().any(|&last| last as u32 == code)
}

const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;

/// Nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaGpu {
    fn open(driver: &Arc<Driver>, compiler: &Arc<Compiler>, index: c_int) -> Result<CudaGpu, u32> {
        use sys::CUdevice_attribute_enum::*;
        let ok = |code| if code == 0 { Ok(()) } else { Err(code) };
        let (mut device, mut name, mut memory, mut version, mut uuid) = (0, [0u8; 256], 0, 0, [0; 16]);
        // SAFETY: each writes one value, or no more bytes of the name than its length.
        unsafe {
            ok((driver.cuDeviceGet)(&mut device, index))?;
            ok((driver.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
            ok((driver.cuDeviceTotalMem_v2)(&mut memory, device))?;
            ok((driver.cuDeviceGetUuid_v2)(&mut uuid, device))?;
            ok((driver.cuDriverGetVersion)(&mut version))?;
        }
        let attribute = |attribute| driver.attribute(device, attribute);
        let capability = (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let clock = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map_or(0, |kilohertz| u64::from(kilohertz) * 1000);
        let rate = |cycles: f64| clock as f64 * f64::from(multiprocessors) / cycles;
        let facts = Facts {
            id: format!("cuda:{index}"),
            name: CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned(),
            detail: format!(
                "compute capability {}.{}, driver for CUDA {}.{}",
                capability.0,
                capability.1,
                version / 1000,
                version % 1000 / 10
            ),
            multiprocessors,
            memory: memory as u64,
            clock,
            rates: (clock > 0).then(|| Work { sha256: rate(SHA256), sha512: rate(SHA512), keccak: rate(KECCAK) }),
            ecc: attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)? != 0,
            largest: u64::MAX,
            fixed_blocks: false,
            without: &[],
            defaults: Vec::new(),
            uuid: Some(uuid),
            is_cpu: false,
        };
        let unified = attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? != 0
            && attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0;
        Ok(CudaGpu {
            facts,
            driver: driver.clone(),
            compiler: compiler.clone(),
            device,
            capability,
            unified,
            context: OnceLock::new(),
            last_computed: Mutex::default(),
            lost: OnceLock::new(),
            modules: Mutex::default(),
            allocations: Mutex::default(),
        })
    }

    fn error(&self, what: String) -> Error {
        Error::Device { device: self.facts.id.clone(), what }
    }

    /// CUDA's answer to something that was being done.
    fn check(&self, code: u32, doing: &str) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let error = self.error(format!("{} while {doing}", self.driver.describe(code)));
        if is_final(code) {
            return Err(self.lost.get_or_init(|| error).clone());
        }
        Err(error)
    }

    /// Makes the device's context the calling thread's. After an error that ended the context, that error.
    fn bind(&self) -> Result<(), Error> {
        if let Some(why) = self.lost.get() {
            return Err(why.clone());
        }
        let context = self.context.get_or_init(|| self.retain()).as_ref().map_err(Error::clone)?;
        // SAFETY: the context is retained until this device is dropped.
        self.check(unsafe { (self.driver.cuCtxSetCurrent)(context.0) }, "taking the device")
    }

    fn retain(&self) -> Result<Context, Error> {
        if !self.unified {
            let what = "plans: host memory does not have the same address on it (unified addressing)".to_owned();
            return Err(Error::Unsupported { device: self.facts.id.clone(), what });
        }
        let mut context = null_mut();
        // SAFETY: it writes one handle.
        let code = unsafe { (self.driver.cuDevicePrimaryCtxRetain)(&mut context, self.device) };
        self.check(code, "opening the device")?;
        Ok(Context(context))
    }

    /// Gives something back: also on a lost device, and whatever CUDA says about it.
    fn release(&self, give_back: impl FnOnce(&Driver) -> u32) {
        if let Some(Ok(context)) = self.context.get() {
            // SAFETY: the context is retained until this device is dropped.
            if unsafe { (self.driver.cuCtxSetCurrent)(context.0) } == 0 {
                let _ = self.check(give_back(&self.driver), "giving back");
            }
        }
    }

    fn check_steps(&self, steps: &[Step]) -> Result<(), Error> {
        check_order(steps).map_err(|why| self.error(format!("a program {why}")))?;
        self.check_accesses(steps.iter().flat_map(accesses))
    }

    fn check_accesses(&self, accesses: impl Iterator<Item = Access>) -> Result<(), Error> {
        let allocations = lock(&self.allocations);
        for access in accesses {
            if allocations.find(access).is_none() {
                return Err(self.error(format!("a program uses memory that it does not have: {access:x?}")));
            }
        }
        Ok(())
    }

    /// A kernel that is loaded, or where it will be.
    fn slot(&self, config: &Config, kernel: Kernel) -> Slot {
        lock(&self.modules).entry((config.clone(), kernel)).or_default().clone()
    }

    /// Loads a kernel, unless another thread did in the meantime.
    fn load(&self, config: &Config, kernel: Kernel) -> Result<Function, Error> {
        let slot = self.slot(config, kernel);
        let mut module = lock(&slot);
        if let Some(module) = *module {
            return Ok(module.function);
        }
        let code = self.compiler.kernel(kernel, config, self.capability, &self.facts.id)?;
        // The driver reads an ELF header at the start; PTX ends at the first NUL.
        let words: Vec<u64> = code
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .chain([0])
            .collect();
        let name = CString::new(kernel.name()).map_err(|_| self.error("a kernel's name has a NUL".to_owned()))?;
        let doing = format!("loading kernel {}", kernel.name());

        self.bind()?;
        let mut new = Module { module: null_mut(), function: Function(null_mut()) };
        // SAFETY: the image is a whole cubin or fat binary, or text with a NUL behind it; the driver copies it.
        let code = unsafe { (self.driver.cuModuleLoadData)(&mut new.module, words.as_ptr().cast()) };
        self.check(code, &doing)?;
        // SAFETY: the module was loaded just now, and the name ends with NUL.
        let code = unsafe { (self.driver.cuModuleGetFunction)(&mut new.function.0, new.module, name.as_ptr()) };
        let found = self.check(code, &doing).and_then(|()| {
            let mut registers = 0;
            let registers_of = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
            // Where modules are loaded lazily this loads the function, which must not happen while steps are recorded.
            // SAFETY: it writes one number; the function was found just now.
            let code = unsafe { (self.driver.cuFuncGetAttribute)(&mut registers, registers_of, new.function.0) };
            self.check(code, &doing)
        });
        if let Err(why) = found {
            // SAFETY: nothing of the module was handed out.
            self.release(|driver| unsafe { (driver.cuModuleUnload)(new.module) });
            return Err(why);
        }
        *module = Some(new);
        Ok(new.function)
    }
}

impl Drop for CudaGpu {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut *lock(&self.modules)).into_values() {
            if let Some(loaded) = lock(&slot).take() {
                // SAFETY: whatever could launch its function holds this device, so nothing does.
                self.release(|driver| unsafe { (driver.cuModuleUnload)(loaded.module) });
            }
        }
        if let Some(Ok(_)) = self.context.get() {
            // SAFETY: it was retained once, and whatever used it held this device.
            let _ = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}

/// Device memory. Whoever drops it has waited for the queues that use it. It comes as the last owner left it, and is not
/// wiped when it goes: programs do that, by [`Step::Zero`].
pub(crate) struct CudaMemory {
    gpu: Arc<CudaGpu>,
    address: CUdeviceptr,
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        lock(&self.gpu.allocations).remove(self.address);
        // SAFETY: allocated by `alloc` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}

/// Page-locked host memory. Whoever drops it has waited for the queues that use it, and has wiped it.
pub(crate) struct CudaHostMemory {
    gpu: Arc<CudaGpu>,
    start: *mut u8,
    bytes: usize,
}
// SAFETY: it owns its memory, which lasts until it is dropped, in whatever thread; bytes are handed out by `&mut` alone.
unsafe impl Send for CudaHostMemory {}
// SAFETY: as above; through `&` there is only the address.
unsafe impl Sync for CudaHostMemory {}

impl Drop for CudaHostMemory {
    fn drop(&mut self) {
        lock(&self.gpu.allocations).remove(self.start as u64);
        // SAFETY: allocated by `alloc_host` and freed once; from now on no step is accepted that uses it.
        self.gpu.release(|driver| unsafe { (driver.cuMemFreeHost)(self.start.cast()) });
    }
}

/// Kernels of one device, loaded.
pub(crate) struct CudaKernels {
    gpu: Arc<CudaGpu>,
    functions: Vec<(Kernel, Function)>,
}

impl Gpu for CudaGpu {
    type Memory = CudaMemory;
    type HostMemory = CudaHostMemory;
    type Kernels = CudaKernels;
    type Queue = CudaQueue;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn free(&self) -> Result<u64, Error> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        self.check(unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) }, "asking for free memory")?;
        Ok(free as u64)
    }

    fn alloc(self: &Arc<Self>, bytes: usize) -> Result<CudaMemory, Error> {
        self.bind()?;
        // CUDA refuses to allocate nothing.
        let bytes = bytes.max(1);
        let mut address = 0;
        // SAFETY: it writes one address.
        match unsafe { (self.driver.cuMemAlloc_v2)(&mut address, bytes) } {
            OUT_OF_MEMORY => {
                let has = self.free().unwrap_or(0);
                Err(Error::OutOfMemory { device: self.facts.id.clone(), needs: bytes as u64, has })
            }
            code => {
                self.check(code, "allocating memory")?;
                lock(&self.allocations).insert(address, bytes, Place::Device, ());
                Ok(CudaMemory { gpu: self.clone(), address })
            }
        }
    }

    fn address(memory: &CudaMemory) -> u64 {
        memory.address
    }

    fn alloc_host(self: &Arc<Self>, bytes: usize) -> Result<CudaHostMemory, Error> {
        self.bind()?;
        let bytes = bytes.max(1);
        let mut start = null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it writes one address.
        let code = unsafe { (self.driver.cuMemHostAlloc)(&mut start, bytes, flags) };
        if code == OUT_OF_MEMORY {
            let device = format!("{} (page-locked host memory)", self.facts.id);
            return Err(Error::OutOfMemory { device, needs: bytes as u64, has: 0 });
        }
        self.check(code, "allocating page-locked host memory")?;
        lock(&self.allocations).insert(start as u64, bytes, Place::Host, ());
        let memory = CudaHostMemory { gpu: self.clone(), start: start.cast(), bytes };
        let mut seen = 0;
        // SAFETY: the memory was allocated just now, as mapped; one address is written.
        let code = unsafe { (self.driver.cuMemHostGetDevicePointer_v2)(&mut seen, start, 0) };
        self.check(code, "mapping host memory")?;
        if seen != start as u64 {
            return Err(self.error("host memory does not have the same address on the device".to_owned()));
        }
        // SAFETY: the memory was allocated just now with this many bytes, and nothing else knows of it.
        unsafe { memory.start.write_bytes(0, bytes) };
        Ok(memory)
    }

    fn host_address(memory: &CudaHostMemory) -> u64 {
        memory.start as u64
    }

    fn host_bytes(memory: &mut CudaHostMemory) -> &mut [u8] {
        // SAFETY: the bytes were zeroed when they were allocated and live as long as `memory`, which is borrowed; while
        // a queue works on them nobody asks for them, as the trait demands.
        unsafe { std::slice::from_raw_parts_mut(memory.start, memory.bytes) }
    }

    fn host_view(memory: &CudaHostMemory) -> &[u8] {
        // SAFETY: as in `host_bytes`; what is borrowed is not written.
        unsafe { std::slice::from_raw_parts(memory.start, memory.bytes) }
    }

    fn kernels(self: &Arc<Self>, config: &Config, kernels: &[(Kernel, u32)]) -> Result<CudaKernels, Error> {
        self.bind()?;
        let (mut functions, mut missing) = (Vec::new(), Vec::new());
        // Any launch shape suits them.
        for &(kernel, _) in kernels {
            match *lock(&self.slot(config, kernel)) {
                Some(loaded) => functions.push((kernel, loaded.function)),
                None => missing.push(kernel),
            }
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut functions = Vec::new();
            while let Some(&kernel) = missing.get(next.fetch_add(1, Relaxed)) {
                functions.push((kernel, self.load(config, kernel)?));
            }
            Ok(functions)
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        let loaded: Vec<Result<Vec<(Kernel, Function)>, Error>> = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            // Without a thread that cannot be had, the others do its share.
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let own = work();
            let panicked = |_| Err(self.error("a thread that loaded kernels panicked".to_owned()));
            others.into_iter().map(|other| other.join().unwrap_or_else(panicked)).chain([own]).collect()
        });
        for part in loaded {
            functions.extend(part?);
        }
        Ok(CudaKernels { gpu: self.clone(), functions })
    }

    /// What is made for computing centres: 8.0, 9.0, 10.0.
    fn has_fast_doubles(&self) -> bool {
        matches!(self.capability, (8..=10, 0))
    }
    fn queue(self: &Arc<Self>) -> Result<CudaQueue, Error> {
        self.bind()?;
        let stream = || Stream::new(self);
        let event = |flags| Event::new(self, flags);
        let order = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
        Ok(CudaQueue {
            main: stream()?,
            side: stream()?,
            fork: event(order)?,
            join: event(order)?,
            start: event(0)?,
            launched: event(0)?,
            computed: Arc::new(event(0)?),
            slots: (0..SLOTS).map(|_| event(order)).collect::<Result<_, _>>()?,
            marked: [false; SLOTS],
            end: event(0)?,
            started: false,
            launches: 0,
            gpu: self.clone(),
        })
    }
}

/// Destroyed once what was submitted to it is done.
struct Stream {
    gpu: Arc<CudaGpu>,
    stream: CUstream,
}
// SAFETY: streams are handles that any thread may use.
unsafe impl Send for Stream {}

impl Stream {
    fn new(gpu: &Arc<CudaGpu>) -> Result<Stream, Error> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: it writes one handle; the context is current.
        gpu.check(unsafe { (gpu.driver.cuStreamCreate)(&mut stream, flags) }, "making a stream")?;
        Ok(Stream { gpu: gpu.clone(), stream })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.gpu.release(|driver| {
            // SAFETY: made by `new`, destroyed once.
            unsafe {
                let code = (driver.cuStreamSynchronize)(self.stream);
                (driver.cuStreamDestroy_v2)(self.stream);
                code
            }
        });
    }
}

struct Event {
    gpu: Arc<CudaGpu>,
    event: CUevent,
}
// SAFETY: events are handles that any thread may use.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn new(gpu: &Arc<CudaGpu>, flags: c_uint) -> Result<Event, Error> {
        let mut event = null_mut();
        // SAFETY: it writes one handle; the context is current.
        gpu.check(unsafe { (gpu.driver.cuEventCreate)(&mut event, flags) }, "making an event")?;
        Ok(Event { gpu: gpu.clone(), event })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; CUDA keeps what still waits for it.
        self.gpu.release(|driver| unsafe { (driver.cuEventDestroy_v2)(self.event) });
    }
}

/// Two streams: the main row and the side row. After an error nothing is under way in it.
pub(crate) struct CudaQueue {
    main: Stream,
    side: Stream,
    fork: Event,
    join: Event,
    /// Around all that was submitted since the last wait.
    start: Event,
    /// Before the first launch and after the last, of steps that were submitted once since the last wait.
    launched: Event,
    computed: Arc<Event>,
    slots: Vec<Event>,
    marked: [bool; SLOTS],
    end: Event,
    started: bool,
    /// Submissions with launches since the last wait.
    launches: u32,
    gpu: Arc<CudaGpu>,
}

/// Steps as a CUDA graph. Their host and device memory is checked at each replay.
pub(crate) struct CudaRecording {
    gpu: Arc<CudaGpu>,
    graph: CUgraphExec,
    accesses: Vec<Access>,
}
// SAFETY: an instantiated graph is a handle that any thread may launch; queues launch it one at a time by `&mut self`,
// and CUDA orders launches of one graph in different streams.
unsafe impl Send for CudaRecording {}

impl Drop for CudaRecording {
    fn drop(&mut self) {
        // SAFETY: made by `record`, destroyed once; CUDA keeps one that runs until it is done.
        self.gpu.release(|driver| unsafe { (driver.cuGraphExecDestroy)(self.graph) });
    }
}

impl CudaQueue {
    fn check_gpu(&self, other: &Arc<CudaGpu>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.gpu, other) {
            return Ok(());
        }
        Err(self.gpu.error(format!("it was given what belongs to {}", other.facts.id)))
    }

    fn mark_event(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: both handles are this queue's.
        let code = unsafe { (self.gpu.driver.cuEventRecord)(event.event, self.main.stream) };
        self.gpu.check(code, "recording an event")
    }

    /// The device's time from one mark to another, both passed.
    fn between(&self, from: &Event, to: &Event) -> Result<Duration, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are this queue's and were recorded; one number is written.
        let code = unsafe { (self.gpu.driver.cuEventElapsedTime)(&mut milliseconds, from.event, to.event) };
        self.gpu.check(code, "measuring")?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// Runs what submits, between the events that measure.
    fn measured(&mut self, submit: impl FnOnce(&CudaQueue) -> Result<(), Error>) -> Result<(), Error> {
        if !self.started {
            self.mark_event(&self.start)?;
        }
        let done = submit(self).and_then(|()| self.mark_event(&self.end));
        self.started = done.is_ok();
        if done.is_err() {
            self.settle();
        }
        done
    }

    /// Waits for whatever runs, after something else failed.
    fn settle(&self) {
        for stream in [&self.main, &self.side] {
            // SAFETY: the stream is this queue's.
            self.gpu.release(|driver| unsafe { (driver.cuStreamSynchronize)(stream.stream) });
        }
    }

    fn launch(&self, kernels: &CudaKernels, launch: &Launch, stream: &Stream) -> Result<(), Error> {
        let Launch { kernel, blocks, threads, args } = *launch;
        let Some((_, function)) = kernels.functions.iter().find(|(loaded, _)| *loaded == kernel) else {
            return Err(self.gpu.error(format!("kernel {} was launched and not loaded", kernel.name())));
        };
        let mut parameters = [(&raw const args).cast_mut().cast::<c_void>()];
        // SAFETY: every kernel has one parameter, an `Args` by value, which CUDA copies before it returns. The function
        // is kept by the device. What the kernel does with the addresses in it is the program's business.
        let code = unsafe {
            (self.gpu.driver.cuLaunchKernel)(
                function.0,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.stream,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        };
        if code == 0 {
            return Ok(());
        }
        self.gpu.check(code, &format!("launching {} ({blocks} blocks of {threads} threads)", kernel.name()))
    }

    /// `to` goes on when all is done that `from` has so far.
    fn follow(&self, to: &Stream, event: &Event, from: &Stream) -> Result<(), Error> {
        let driver = &self.gpu.driver;
        // SAFETY: all handles are this queue's.
        let code = unsafe {
            match (driver.cuEventRecord)(event.event, from.stream) {
                0 => (driver.cuStreamWaitEvent)(to.stream, event.event, 0),
                code => code,
            }
        };
        self.gpu.check(code, "ordering its streams")
    }

    /// The steps must have been checked.
    fn enqueue(&self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        let (driver, main) = (&self.gpu.driver, self.main.stream);
        for step in steps {
            match *step {
                Step::Upload { bytes: 0, .. } | Step::Download { bytes: 0, .. } | Step::Zero { bytes: 0, .. } => {}
                Step::Upload { to, from, bytes } => {
                    // SAFETY: both ranges are allocated; whoever drops them waits before.
                    let code = unsafe { (driver.cuMemcpyHtoDAsync_v2)(to, from as *const c_void, bytes, main) };
                    self.gpu.check(code, "uploading")?;
                }
                Step::Download { to, from, bytes } => {
                    // SAFETY: both ranges are allocated; whoever drops or reads them waits before.
                    let code = unsafe { (driver.cuMemcpyDtoHAsync_v2)(to as *mut c_void, from, bytes, main) };
                    self.gpu.check(code, "downloading")?;
                }
                Step::Zero { at, bytes } => {
                    // SAFETY: the range is allocated, and in words where words are cleared.
                    let code = unsafe {
                        if at % 4 == 0 && bytes % 4 == 0 {
                            (driver.cuMemsetD32Async)(at, 0, bytes / 4, main)
                        } else {
                            (driver.cuMemsetD8Async)(at, 0, bytes, main)
                        }
                    };
                    self.gpu.check(code, "clearing memory")?;
                }
                Step::Launch(ref launch) => self.launch(kernels, launch, &self.main)?,
                Step::Beside(ref launch) => self.launch(kernels, launch, &self.side)?,
                Step::Fork => self.follow(&self.side, &self.fork, &self.main)?,
                Step::Join => self.follow(&self.main, &self.join, &self.side)?,
            }
        }
        Ok(())
    }
}

impl Queue for CudaQueue {
    type Kernels = CudaKernels;
    type Recording = CudaRecording;

    fn submit(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let Range { start: first, end: last } = steps::launches(steps);
        if first == last {
            return self.measured(|queue| queue.enqueue(kernels, steps));
        }
        self.launches += 1;
        let threads = |step: &Step| match step {
            Step::Launch(launch) | Step::Beside(launch) => u64::from(launch.blocks) * u64::from(launch.threads),
            _ => 0,
        };
        let fills = steps.iter().any(|step| threads(step) >= FULL * u64::from(self.gpu.facts.multiprocessors));
        self.measured(|queue| {
            queue.enqueue(kernels, &steps[..first])?;
            let mut last_computed = lock(&queue.gpu.last_computed);
            if let (true, Some(computed)) = (fills, last_computed.upgrade()) {
                // SAFETY: the stream is this queue's, the event another's or its own, which lives.
                let code = unsafe { (queue.gpu.driver.cuStreamWaitEvent)(queue.main.stream, computed.event, 0) };
                queue.gpu.check(code, "taking turns")?;
            }
            queue.mark_event(&queue.launched)?;
            queue.enqueue(kernels, &steps[first..last])?;
            queue.mark_event(&queue.computed)?;
            if fills {
                *last_computed = Arc::downgrade(&queue.computed);
            }
            drop(last_computed);
            queue.enqueue(kernels, &steps[last..])
        })
    }

    fn record(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<CudaRecording, Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let (gpu, main) = (&self.gpu, self.main.stream);
        let driver = &gpu.driver;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this queue's, which is borrowed until the capture has ended below.
        gpu.check(unsafe { (driver.cuStreamBeginCapture_v2)(main, mode) }, "recording")?;
        let enqueued = self.enqueue(kernels, steps);
        let mut graph = null_mut();
        // SAFETY: it ends the capture, which this thread began, and writes one handle.
        let ended = unsafe { (driver.cuStreamEndCapture)(main, &mut graph) };
        let made = enqueued.and_then(|()| gpu.check(ended, "recording")).and_then(|()| {
            let mut executable = null_mut();
            // SAFETY: the graph was captured just now; one handle is written.
            let code = unsafe { (driver.cuGraphInstantiateWithFlags)(&mut executable, graph, 0) };
            gpu.check(code, "preparing a recording").map(|()| executable)
        });
        if !graph.is_null() {
            // SAFETY: what was instantiated from it does not need it.
            let _ = unsafe { (driver.cuGraphDestroy)(graph) };
        }
        if made.is_err() {
            self.settle();
        }
        let accesses = steps.iter().flat_map(accesses).collect();
        made.map(|graph| CudaRecording { gpu: gpu.clone(), graph, accesses })
    }

    fn replay(&mut self, recording: &CudaRecording) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&recording.gpu)?;
        self.gpu.check_accesses(recording.accesses.iter().copied())?;
        self.measured(|queue| {
            // SAFETY: the graph lives as long as the recording, and CUDA keeps it while it runs; its memory is allocated.
            let code = unsafe { (queue.gpu.driver.cuGraphLaunch)(recording.graph, queue.main.stream) };
            queue.gpu.check(code, "replaying a recording")
        })
    }

    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.gpu.bind()?;
        self.mark_event(&self.slots[slot])?;
        self.marked[slot] = true;
        Ok(())
    }

    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        self.gpu.bind()?;
        if !std::mem::take(&mut self.marked[slot]) {
            return Ok(());
        }
        // SAFETY: the event is this queue's and was recorded.
        self.gpu.check(unsafe { (self.gpu.driver.cuEventSynchronize)(self.slots[slot].event) }, "working")
    }

    fn follow(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let done = self.enqueue(kernels, steps);
        if done.is_err() {
            self.settle();
        }
        done
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.gpu.bind()?;
        let started = std::mem::take(&mut self.started);
        let driver = &self.gpu.driver;
        if !started {
            // SAFETY: the stream is this queue's. The side row was joined into it.
            self.gpu.check(unsafe { (driver.cuStreamSynchronize)(self.main.stream) }, "working")?;
            return Ok(None);
        }
        // SAFETY: the event is this queue's and was recorded after all that is waited for.
        self.gpu.check(unsafe { (driver.cuEventSynchronize)(self.end.event) }, "working")?;
        let launches = std::mem::take(&mut self.launches);
        let (start, end) = (&self.start, &self.end);
        if launches != 1 {
            return Ok(Some(Timing { execute: self.between(start, end)?, ..Timing::default() }));
        }
        Ok(Some(Timing {
            upload: self.between(start, &self.launched)?,
            execute: self.between(&self.launched, &self.computed)?,
            download: self.between(&self.computed, end)?,
            ..Timing::default()
        }))
    }
}

/// NVIDIA's compiler, as a library.
struct Nvrtc {
    rtc: Rtc,
    version: (u32, u32),
    architectures: Vec<u32>,
}

impl Nvrtc {
    /// The compiler; or what an error says that a device cannot execute.
    fn open() -> Result<Box<dyn Toolchain>, String> {
        Ok(Box::new(Nvrtc::load()?))
    }

    fn load() -> Result<Nvrtc, String> {
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

    /// The code, and the compiler's log, which holds its warnings.
    fn build(&self, source: &str, options: &[String], output: Output) -> Result<(Vec<u8>, String), String> {
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

impl Rtc {
    fn describe(&self, code: u32) -> String {
        // SAFETY: it takes any code, and what it points to is a constant of the library.
        let text = unsafe {
            let text = (self.nvrtcGetErrorString)(code);
            (!text.is_null()).then(|| CStr::from_ptr(text))
        };
        text.map_or_else(|| format!("NVRTC error {code}"), |text| text.to_string_lossy().into_owned())
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
    /// What NVRTC has for this program, by a pair of its functions.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::OPTIONS;
    use hypergrove_fips205::Family;
    use hypergrove_kernels::Args;
    use std::collections::HashSet;

    fn launch() -> Launch {
        Launch { kernel: Kernel::ALL[0], blocks: 1, threads: 1, args: Args::default() }
    }

    #[test]
    fn out_of_memory_does_not_end_a_context() {
        assert!(is_final(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as u32));
        assert!(!is_final(OUT_OF_MEMORY) && !is_final(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES as u32));
    }

    /// Here or nowhere: a device, or the reason why there is none.
    fn device() -> Option<Arc<CudaGpu>> {
        match devices(None) {
            Ok(devices) => devices.into_iter().next(),
            Err(why) => {
                assert!(!why.to_string().is_empty());
                println!("skipped: cuda driver: {why}");
                None
            }
        }
    }

    #[test]
    fn bytes_go_to_the_device_and_back() {
        let Some(gpu) = device() else { return };
        let facts = gpu.facts();
        assert!(facts.id == "cuda:0" && !facts.name.is_empty() && facts.multiprocessors > 0 && facts.memory > 0);
        let bytes = 1 << 20;
        let (memory, mut host) = (gpu.alloc(bytes).unwrap(), gpu.alloc_host(2 * bytes).unwrap());
        assert!(gpu.free().unwrap() < facts.memory);
        assert!(CudaGpu::host_bytes(&mut host).iter().all(|&byte| byte == 0));
        CudaGpu::host_bytes(&mut host)[..bytes].fill(7);
        let (at, from) = (CudaGpu::address(&memory), CudaGpu::host_address(&host));
        let to = from + bytes as u64;
        let config = Config { family: hypergrove_fips205::Family::Sha2, n: 16, defines: Vec::new() };
        let none = gpu.kernels(&config, &[]).unwrap();
        let mut queue = gpu.queue().unwrap();
        assert_eq!(queue.wait().unwrap(), None);
        let steps = [
            Step::Upload { to: at, from, bytes },
            Step::Zero { at, bytes: 4 },
            Step::Fork,
            Step::Join,
            Step::Zero { at: at + 9, bytes: 1 },
            Step::Download { to, from: at, bytes },
        ];
        let recording = queue.record(&none, &steps).unwrap();
        let mut want = vec![7; bytes];
        want[..4].fill(0);
        want[9] = 0;
        for replayed in [false, true] {
            CudaGpu::host_bytes(&mut host)[bytes..].fill(1);
            match replayed {
                true => queue.replay(&recording).unwrap(),
                false => queue.submit(&none, &steps).unwrap(),
            }
            assert!(
                queue.wait().unwrap().is_some_and(|time| time.upload + time.execute + time.download > Duration::ZERO)
            );
            assert!(CudaGpu::host_bytes(&mut host)[bytes..] == want, "replayed: {replayed}");
        }
        let failures = [
            [Step::Download { to, from: at, bytes: bytes + 1 }],
            [Step::Zero { at: from, bytes: 1 }],
            [Step::Launch(launch())],
            [Step::Fork],
        ];
        for steps in &failures {
            assert!(matches!(queue.submit(&none, steps), Err(Error::Device { device, .. }) if device == "cuda:0"));
            assert!(queue.record(&none, steps).is_err());
        }
        queue.submit(&none, &steps).unwrap();
        queue.wait().unwrap();
        drop(host);
        assert!(queue.replay(&recording).is_err(), "its memory is gone");
        let much = gpu.alloc(1 << 50);
        assert!(matches!(much, Err(Error::OutOfMemory { needs, has, .. }) if needs == 1 << 50 && has > 0));
        drop(gpu.alloc(0).unwrap());
    }

    #[test]
    fn kernels_are_loaded_once() {
        let Some(gpu) = device() else { return };
        let config = Config { family: hypergrove_fips205::Family::Sha2, n: 16, defines: Vec::new() };
        let all = Kernel::ALL.iter().filter(|kernel| !kernel.is_solo());
        let all: Vec<_> = all.map(|kernel| (*kernel, 256)).collect();
        match gpu.kernels(&config, &all) {
            Ok(kernels) => assert_eq!(kernels.functions.len(), all.len()),
            Err(why @ Error::Unsupported { .. }) => return println!("skipped: cuda kernels: {why}"),
            Err(why) => panic!("{why}"),
        }
        let modules = lock(&gpu.modules).len();
        let start = std::time::Instant::now();
        gpu.kernels(&config, &all).unwrap();
        assert!(lock(&gpu.modules).len() == modules && start.elapsed() < Duration::from_millis(100));
    }

    #[test]
    fn nvrtc_compiles() {
        let nvrtc = match Nvrtc::open() {
            Ok(nvrtc) => nvrtc,
            Err(why) => return println!("skipped: nvrtc: a device without ready code cannot execute {why}"),
        };
        assert!(nvrtc.version().0 >= 12 && nvrtc.architectures().contains(&90));
        let compile = |options: &[&str], source, output| {
            nvrtc.compile(source, &options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>(), output)
        };
        let source = "extern \"C\" __global__ void none() {}";
        assert!(compile(&["--gpu-architecture=sm_90"], source, Output::Cubin).unwrap().starts_with(b"\x7fELF"));
        let ptx = compile(&["--gpu-architecture=compute_90"], source, Output::Ptx).unwrap();
        assert!(ptx.ends_with(b"\0") && String::from_utf8_lossy(&ptx).contains(".target sm_90"));
        let log = compile(&["--gpu-architecture=sm_90"], "nonsense", Output::Cubin).unwrap_err();
        assert!(log.contains("nonsense") && !log.contains('\0'), "{log}");
        let log = compile(&["--no-such-option"], source, Output::Cubin).unwrap_err();
        assert!(log.contains("no-such-option") || log.contains("OPTION"), "{log}");

        let compiler = Compiler::new(None, Nvrtc::open);
        let newest = nvrtc.architectures().iter().max().unwrap();
        for (capability, start) in [((9, 0), &b"\x7fELF"[..]), ((newest / 10 + 1, 0), &b"//"[..])] {
            let config = Config { family: hypergrove_fips205::Family::Sha2, n: 16, defines: Vec::new() };
            let code = compiler.kernel(Kernel::ALL[0], &config, capability, "cuda:0").unwrap();
            let words = String::from_utf8_lossy(&code);
            assert!(words.trim_start().starts_with(&*String::from_utf8_lossy(start)), "{capability:?}");
            assert!(words.contains(Kernel::ALL[0].name()), "{capability:?}");
        }
    }

    /// For the architectures that CI is to cover, by all cores: no GPU is needed. Secrets that a kernel spills would lie in
    /// local memory, which nothing wipes.
    #[test]
    fn nvrtc_compiles_every_kernel_without_a_warning_or_a_spilled_secret() {
        const ARCHITECTURES: [u32; 4] = [75, 80, 90, 120];
        /// Those that read keys, or chain values that no signature shows, or what attempts at signatures are made of.
        const SECRET: [Kernel; 13] = [
            Kernel::Keys,
            Kernel::Chains,
            Kernel::Fors,
            Kernel::Select,
            Kernel::ZkSeed,
            Kernel::ZkShort,
            Kernel::ZkPublic,
            Kernel::ZkKeys,
            Kernel::ZkSponge,
            Kernel::ZkRho2,
            Kernel::ZkMask,
            Kernel::ZkCommit,
            Kernel::ZkRespond,
        ];
        // No kernel uses all functions of a header, nor all that a macro sets.
        let harmless = ["#177-D: function", "#550-D: variable", "Remark: The warnings can be suppressed"];
        let warns = |line: &str| line.contains("warning") && !harmless.iter().any(|known| line.contains(known));
        let spills = |kernel, line: &str| {
            let stack = line.split_once(" bytes stack frame").and_then(|(head, _)| head.rsplit(' ').next());
            SECRET.contains(&kernel) && stack.is_some_and(|bytes| bytes != "0")
        };
        // Poseidon in doubles is for those that have fast ones.
        let runs = |config: &Config, kernel, number| {
            let doubles = kernel == Kernel::ZkSponge && config.defines.contains(&("FP64", 1));
            !doubles || [80, 90].contains(&number)
        };
        let nvrtc = match Nvrtc::load() {
            Ok(nvrtc) => nvrtc,
            Err(why) => return println!("skipped: nvrtc for all architectures: a device cannot execute {why}"),
        };
        let (mut wanted, mut seen) = (Vec::new(), HashSet::new());
        for family in [Family::Sha2, Family::Shake] {
            for config in [16, 24, 32].into_iter().flat_map(|n| hypergrove_kernels::default_configs(family, n)) {
                for &kernel in Kernel::ALL.iter().filter(|kernel| !kernel.is_solo()) {
                    let source = hypergrove_kernels::source(kernel, &config);
                    if seen.insert(source.clone()) {
                        let numbers = ARCHITECTURES.into_iter().filter(|number| runs(&config, kernel, *number));
                        wanted.extend(numbers.map(|number| (kernel, config.clone(), number, source.clone())));
                    }
                }
            }
        }
        let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some((kernel, config, number, source)) = wanted.get(next.fetch_add(1, Relaxed)) {
                        let mut options = OPTIONS.map(str::to_owned).to_vec();
                        options.extend([format!("--gpu-architecture=sm_{number}"), "--ptxas-options=-v".to_owned()]);
                        // What comes from its cache says nothing of spills.
                        options.extend((nvrtc.version >= (13, 0)).then(|| "--no-cache".to_owned()));
                        let log = match nvrtc.build(source, &options, Output::Cubin) {
                            Ok((_, log)) if !log.contains(" bytes stack frame") => format!("does it spill? {log}"),
                            Ok((_, log)) => {
                                let lines = log.lines().filter(|line| warns(line) || spills(*kernel, line));
                                lines.collect::<Vec<_>>().join("\n")
                            }
                            Err(log) => log,
                        };
                        if !log.is_empty() {
                            lock(&faults).push(format!("{kernel:?} for sm_{number} with {config:?}:\n{log}"));
                        }
                    }
                });
            }
        });
        let faults = lock(&faults);
        assert!(faults.is_empty(), "{} of {} builds:\n{}", faults.len(), wanted.len(), faults.join("\n\n"));
        println!("{} builds of {} kernels by NVRTC {:?}", wanted.len(), Kernel::ALL.len(), nvrtc.version);
    }
}
