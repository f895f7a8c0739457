//! A device: its facts, its context, its events, its kernels.

use super::library::Driver;
use super::lock;
use super::nvrtc::Nvrtc;
use crate::compile::{Capability, Compiler};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUevent, CUfunction, CUfunction_attribute, CUmodule, CUresult};
use hypergrove_engine::Error;
use hypergrove_fips205::plan::Rates;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::steps::{Access, Allocations, accesses, check_order};
use hypergrove_gpu::{Facts, Step, WaitLimit};
use hypergrove_kernels::{Config, Kernel};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Policy axes that mean nothing to CUDA's devices: none.
pub const WITHOUT: &[&str] = &[];
/// Values that are better for CUDA's devices than the defaults. The device hashes messages: docs/lab/2026-11-23-digests.md and
/// 2026-11-24-h200.md have the measurements.
pub const DEFAULTS: &[(&str, u32)] = &[("digest", 256)];

/// All devices of the driver, at least one. The error says why there is none, in a sentence without its full stop. No device is touched before
/// its first use. `cache` keeps compiled kernels.
pub(crate) fn devices(cache: Option<&Arc<Cache>>) -> Result<Vec<Arc<CudaGpu>>, String> {
    let driver = Arc::new(Driver::open()?);
    let compiler = Arc::new(Compiler::new(cache.cloned(), Nvrtc::open));
    let failed = |code| format!("the NVIDIA driver does not list its devices: {}", driver.describe(code));
    let mut count = 0;
    // SAFETY: it writes one number.
    match unsafe { (driver.cuDeviceGetCount)(&mut count) } {
        0 if count > 0 => {}
        0 => return Err("the NVIDIA driver finds no GPU here".to_owned()),
        code => return Err(failed(code)),
    }
    let reached = Arc::default();
    let open = |index| CudaGpu::open(&driver, &compiler, &reached, index).map(Arc::new).map_err(failed);
    (0..count).map(open).collect()
}

/// Lanes of an SM's integer pipe (docs/cuda.md).
const LANES: f64 = 64.0;

/// A device. Its context is the process's primary context for the device, made at the first use.
pub(crate) struct CudaGpu {
    pub(super) facts: Facts,
    pub(super) driver: Arc<Driver>,
    compiler: Arc<Compiler>,
    device: CUdevice,
    pub(super) capability: Capability,
    /// Whether host memory has the same address on the device.
    unified: bool,
    context: OnceLock<Result<Context, Error>>,
    /// The end of the last launches that fill the device: the next launches that fill it wait for this event.
    pub(super) last_computed: Mutex<Weak<Event>>,
    /// The error after which the device does nothing any more.
    lost: OnceLock<Error>,
    /// The error with which the device was given up: it may still use all memory that it was given.
    pub(super) hung: OnceLock<Error>,
    /// Loaded kernels, which are kept until the device is dropped.
    pub(super) modules: Mutex<HashMap<(Config, Kernel), Slot>>,
    pub(super) allocations: Mutex<Allocations<()>>,
    pub(super) reached: Arc<Reached>,
}

/// Callers' memory, which all devices reach.
#[derive(Default)]
pub(super) struct Reached {
    pub(super) allocations: Mutex<Allocations<()>>,
    /// Whether one of the devices hangs and may still use callers' memory, which is never freed then.
    pub(super) is_kept: AtomicBool,
}

struct Context(CUcontext);
// SAFETY: a context is a handle that any thread may use, several at once too.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[derive(Clone, Copy)]
pub(super) struct Module {
    module: CUmodule,
    pub(super) function: Function,
}
// SAFETY: modules are handles that any thread may use.
unsafe impl Send for Module {}

/// A slot is locked while its kernel is compiled and loaded, so that other threads wait for that kernel.
pub(super) type Slot = Arc<Mutex<Option<Module>>>;

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) handle: CUfunction,
    /// Bytes of a block's memory that each launch asks for.
    pub(super) memory: c_uint,
}
// SAFETY: functions are handles that any thread may launch, several at once too; nothing here changes their attributes.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Whether no call works in the context any more after this error.
pub(super) fn is_final(code: u32) -> bool {
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

pub(super) const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;

impl CudaGpu {
    fn open(
        driver: &Arc<Driver>,
        compiler: &Arc<Compiler>,
        reached: &Arc<Reached>,
        index: c_int,
    ) -> Result<CudaGpu, u32> {
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
        let compute_units = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let clock = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map_or(0, |kilohertz| u64::from(kilohertz) * 1000);
        let integers = clock as f64 * f64::from(compute_units) * LANES;
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
            compute_units,
            memory: memory as u64,
            clock,
            rates: (clock > 0).then(|| Rates::of_integers(integers)),
            ecc: attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)? != 0,
            largest: u64::MAX,
            fixed_blocks: false,
            without: WITHOUT,
            defaults: DEFAULTS,
            uuid: Some(uuid),
            is_cpu: false,
            most_iterations: usize::MAX,
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
            hung: OnceLock::new(),
            modules: Mutex::default(),
            allocations: Mutex::default(),
            reached: reached.clone(),
        })
    }

    pub(super) fn error(&self, what: String) -> Error {
        Error::Device { device: self.facts.id.clone(), what }
    }

    /// Turns CUDA's answer to a call into a result. `doing` is for the error.
    pub(super) fn check(&self, code: u32, doing: &str) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let error = self.error(format!("{} while {doing}", self.driver.describe(code)));
        if is_final(code) {
            return Err(self.lost.get_or_init(|| error).clone());
        }
        Err(error)
    }

    /// Gives the device up: a wait has taken longer than its limit.
    pub(super) fn give_up(&self, limit: WaitLimit) -> Error {
        // `hung` is set first: whoever is refused because the device is lost must find that it hangs.
        let why = self.hung.get_or_init(|| limit.error(&self.facts.id));
        self.reached.is_kept.store(true, Release);
        self.lost.get_or_init(|| why.clone()).clone()
    }

    /// Makes the device's context the calling thread's. If an error has ended the context, fails with that error.
    pub(super) fn bind(&self) -> Result<(), Error> {
        match self.lost.get() {
            Some(why) => Err(why.clone()),
            None => self.make_current(),
        }
    }

    /// Makes the device's context the calling thread's, even after an error that ended it.
    pub(super) fn make_current(&self) -> Result<(), Error> {
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

    /// Gives a resource back, even on a lost device, and ignores CUDA's answer. A hung device keeps its resources: it may still use them, and the
    /// driver would wait for that.
    pub(super) fn release(&self, give_back: impl FnOnce(&Driver) -> u32) {
        if self.hung.get().is_some() {
            return;
        }
        if let Some(Ok(context)) = self.context.get() {
            // SAFETY: the context is retained until this device is dropped.
            if unsafe { (self.driver.cuCtxSetCurrent)(context.0) } == 0 {
                let _ = self.check(give_back(&self.driver), "giving back");
            }
        }
    }

    pub(super) fn check_steps(&self, steps: &[Step]) -> Result<(), Error> {
        check_order(steps).map_err(|why| self.error(format!("a program {why}")))?;
        self.check_accesses(steps.iter().flat_map(accesses))
    }

    pub(super) fn check_accesses(&self, accesses: impl Iterator<Item = Access>) -> Result<(), Error> {
        let allocations = lock(&self.allocations);
        for access in accesses {
            if allocations.find(access).is_none() && lock(&self.reached.allocations).find(access).is_none() {
                return Err(self.error(format!("a program uses memory that it does not have: {access:x?}")));
            }
        }
        Ok(())
    }

    /// The slot of a kernel, which may not be loaded yet.
    pub(super) fn slot(&self, config: &Config, kernel: Kernel) -> Slot {
        lock(&self.modules).entry((config.clone(), kernel)).or_default().clone()
    }

    /// Loads a kernel, unless another thread did in the meantime.
    pub(super) fn load(&self, config: &Config, kernel: Kernel) -> Result<Function, Error> {
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
        let memory = hypergrove_kernels::launch_memory(kernel, config);
        let mut new = Module { module: null_mut(), function: Function { handle: null_mut(), memory } };
        // SAFETY: the image is a whole cubin or fat binary, or text with a NUL behind it; the driver copies it.
        let code = unsafe { (self.driver.cuModuleLoadData)(&mut new.module, words.as_ptr().cast()) };
        self.check(code, &doing)?;
        // SAFETY: the module was loaded just now, and the name ends with NUL.
        let code = unsafe { (self.driver.cuModuleGetFunction)(&mut new.function.handle, new.module, name.as_ptr()) };
        let found = self.check(code, &doing).and_then(|()| {
            let mut registers = 0;
            let registers_of = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
            // If modules are loaded lazily, this call loads the function, which must not happen while steps are recorded.
            // SAFETY: it writes one number; the function was found just now.
            let code = unsafe { (self.driver.cuFuncGetAttribute)(&mut registers, registers_of, new.function.handle) };
            self.check(code, &doing)?;
            if memory == 0 {
                return Ok(());
            }
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found just now, and nothing launches it yet.
            let code = unsafe { (self.driver.cuFuncSetAttribute)(new.function.handle, most, memory as c_int) };
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
        if self.hung.get().is_some() {
            return;
        }
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

pub(super) struct Event {
    gpu: Arc<CudaGpu>,
    pub(super) event: CUevent,
}
// SAFETY: events are handles that any thread may use.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(gpu: &Arc<CudaGpu>, flags: c_uint) -> Result<Event, Error> {
        let mut event = null_mut();
        // SAFETY: it writes one handle; the context is current.
        gpu.check(unsafe { (gpu.driver.cuEventCreate)(&mut event, flags) }, "making an event")?;
        Ok(Event { gpu: gpu.clone(), event })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; CUDA keeps an event for which something still waits.
        self.gpu.release(|driver| unsafe { (driver.cuEventDestroy_v2)(self.event) });
    }
}

/// Loaded kernels of one device.
pub(crate) struct CudaKernels {
    pub(super) gpu: Arc<CudaGpu>,
    pub(super) functions: Vec<(Kernel, Function)>,
}
