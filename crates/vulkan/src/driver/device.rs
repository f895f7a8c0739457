//! Devices: their drivers' descriptions, and the objects that are made for each device at its first use.

use super::imports::imports;
use super::instance::Instance;
use super::pipelines::{Identity, Pipelines};
use super::tables::Tables;
use ash::{amd, ext, khr, nv, vk};
use gpu_allocator::AllocationSizes;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::lock;
use hypergrove_gpu::cache::Cache;
use hypergrove_gpu::steps::{self, Access, Allocations};
use hypergrove_gpu::{Facts, Step, WaitLimit};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock};

/// The oldest Vulkan version that a device's driver may have. Drivers of this and later versions report whether a device lacks a feature.
const OLDEST: u32 = vk::API_VERSION_1_2;

/// Axes that NVIDIA's GPUs lack: one for CUDA's compiler, and the levels of parallelism, whose blocks of one thread would be compiled anew.
pub const WITHOUT: &[&str] = &["occupancy", "levels"];
/// Axes that other GPUs lack. Their multiplications are slower than additions, or nothing is known about them.
const WITHOUT_ON_OTHERS: &[&str] = &["occupancy", "imad", "levels"];
/// NVIDIA's number among the makers of devices.
const NVIDIA: u32 = 0x10de;
/// Axes that a CPU lacks. The size of blocks is among them: a CPU goes through blocks vector after vector. So is their number: more jobs in a
/// thread make more iterations. Mesa counts the iterations of all loops of a thread, and after 65,535 it ends every loop at its first. And
/// so is the sorting of a batch's chains: a thread sorts its own.
const WITHOUT_ON_CPU: &[&str] = &[
    "occupancy",
    "imad",
    "levels",
    "block",
    "blocks",
    "chains_block",
    "xmss_block",
    "fors_block",
    "select_block",
    "sort",
];

/// Levels of parallelism: trees, nodes and chains. Kernels of the fourth level need more memory for a block than every device has.
const LEVELS: u32 = 3;

/// Iterations that all loops of a thread may have on a CPU: somewhat fewer than Mesa's 65,535.
const CPU_ITERATIONS: usize = 60_000;

/// Threads of a block on a CPU (docs/vulkan.md).
const CPU_BLOCK: u32 = 64;

/// Threads of a block on a GPU, as many as every device supports.
const GPU_BLOCK: u32 = 128;

/// Values that are better on a GPU than the defaults.
pub const DEFAULTS: &[(&str, u32)] = &[("levels", LEVELS), ("block", GPU_BLOCK)];

/// Values that are better on a CPU than the defaults. Chain values are not kept, since they would be stored lane by lane, for each step.
const DEFAULTS_ON_CPU: &[(&str, u32)] = &[("levels", LEVELS), ("block", CPU_BLOCK), ("replay", 1)];

/// Compute units (SMs of CUDA) of a GPU that does not report their number.
const COMPUTE_UNITS: u32 = 16;

/// Bytes of the driver's allocations from which small ones are cut.
const POOLED: u64 = 8 << 20;

/// All devices that plans can run on, at least one. The error says why there is none, in a sentence without its full stop. No device is opened
/// before its first use.
pub(crate) fn devices(instance: &Arc<Instance>, cache: Option<&Arc<Cache>>) -> Result<Vec<Arc<VulkanGpu>>, String> {
    // SAFETY: it asks for a list.
    let all = unsafe { instance.instance.enumerate_physical_devices() };
    let all = all.map_err(|code| format!("the Vulkan drivers do not list their devices: {code}"))?;
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for physical in all {
        match VulkanGpu::new(instance, physical, found.len(), cache) {
            Ok(gpu) => found.push(Arc::new(gpu)),
            Err(why) => refused.push(why),
        }
    }
    match (found.is_empty(), refused.is_empty()) {
        (true, true) => Err("the Vulkan drivers find no device here".to_owned()),
        (true, false) => Err(format!("no device has all that is needed: {}", refused.join("; "))),
        (false, _) => Ok(found),
    }
}

/// A device.
pub(crate) struct VulkanGpu {
    pub(super) facts: Facts,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) families: Families,
    pub(super) extensions: Vec<&'static CStr>,
    /// Nanoseconds of a tick of the device's clock.
    pub(super) tick: f64,
    /// Threads of a block, and blocks of a launch, at most.
    pub(super) most: (u32, u32),
    identity: Identity,
    cache: Option<Arc<Cache>>,
    opened: OnceLock<Result<LogicalDevice, Error>>,
    /// The error after which the device does nothing any more.
    lost: OnceLock<Error>,
    /// The error with which the device was given up: it may still use all memory that it was given.
    pub(super) hung: OnceLock<Error>,
    /// All allocations, each with its buffer.
    pub(super) allocations: Mutex<Allocations<vk::Buffer>>,
    /// Callers' memory that the device has imported, by the host's addresses. It overlaps with no allocation.
    pub(super) reached: Mutex<Allocations<vk::Buffer>>,
    /// The alignment of pages that the device imports; `None` if it imports none.
    pub(super) import_alignment: Option<usize>,
    /// The driver's answer to the next submission or allocation, if a test has set it.
    #[cfg(test)]
    pub(super) fault: Mutex<Option<vk::Result>>,
    /// The instance is dropped last.
    pub(super) instance: Arc<Instance>,
}

/// The families of queues that are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Families {
    pub(super) compute: u32,
    /// A family that only copies, concurrently with launches, and the number of its queues.
    pub(super) copies: Option<(u32, u32)>,
    /// Bits of a time stamp of a launching queue; 0 if it has none.
    pub(super) stamps: u32,
}

/// The objects that are made at a device's first use.
pub(super) struct LogicalDevice {
    pub(super) device: ash::Device,
    pub(super) allocator: Mutex<Option<Allocator>>,
    pub(super) tables: Mutex<Tables>,
    pub(super) pipelines: Pipelines,
    /// The queue that launches, and the queues that copy to the device and to the host. Each has one caller at a time.
    pub(super) compute: Mutex<vk::Queue>,
    pub(super) copies: [Option<Arc<Mutex<vk::Queue>>>; 2],
}

/// The first feature that programs need and the device lacks.
fn missing_feature(vulkan: &ash::Instance, physical: vk::PhysicalDevice) -> Option<&'static str> {
    let mut features12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut features12);
    // SAFETY: the device is the instance's; the chain holds structures that Vulkan 1.2 knows.
    unsafe { vulkan.get_physical_device_features2(physical, &mut features) };
    let features = features.features;
    let needed = [
        (features.shader_int64, "64-bit integers"),
        (features12.buffer_device_address, "buffer addresses"),
        (features12.scalar_block_layout, "scalar layouts"),
        (features12.timeline_semaphore, "timeline semaphores"),
    ];
    needed.into_iter().find(|(there, _)| *there == vk::FALSE).map(|(_, what)| what)
}

/// Properties of a device that Vulkan's later structures report.
struct Extended {
    uuid: [u8; 16],
    driver: String,
    /// Bytes of the largest allocation that the device allows.
    largest: u64,
    /// The alignment of pages that the device imports, if it can.
    import_alignment: u64,
    /// Compute units, if NVIDIA's or AMD's extension reports them.
    compute_units: Option<u32>,
}

impl Extended {
    fn of(vulkan: &ash::Instance, physical: vk::PhysicalDevice, newer: bool, has: &dyn Fn(&CStr) -> bool) -> Extended {
        let mut vulkan11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut vulkan12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut maintenance = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut imports = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
        let mut nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
        let mut chain = vk::PhysicalDeviceProperties2::default().push_next(&mut vulkan11).push_next(&mut vulkan12);
        if newer || has(khr::maintenance4::NAME) {
            chain = chain.push_next(&mut maintenance);
        }
        if has(ext::external_memory_host::NAME) {
            chain = chain.push_next(&mut imports);
        }
        if has(nv::shader_sm_builtins::NAME) {
            chain = chain.push_next(&mut nvidia);
        }
        if has(amd::shader_core_properties::NAME) {
            chain = chain.push_next(&mut amd);
        }
        // SAFETY: the device is the instance's; the chain holds structures that it knows.
        unsafe { vulkan.get_physical_device_properties2(physical, &mut chain) };
        let cores = amd.shader_engine_count * amd.shader_arrays_per_engine_count * amd.compute_units_per_shader_array;
        let words =
            |text: Result<&CStr, _>| text.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
        Extended {
            uuid: vulkan11.device_uuid,
            driver: format!("{} {}", words(vulkan12.driver_name_as_c_str()), words(vulkan12.driver_info_as_c_str())),
            largest: match maintenance.max_buffer_size {
                0 => vulkan11.max_memory_allocation_size,
                most => most.min(vulkan11.max_memory_allocation_size),
            },
            import_alignment: imports.min_imported_host_pointer_alignment.max(1),
            compute_units: [nvidia.shader_sm_count, cores].into_iter().find(|known| *known > 0),
        }
    }
}

fn kind(device: vk::PhysicalDeviceType) -> &'static str {
    match device {
        vk::PhysicalDeviceType::CPU => "a CPU",
        vk::PhysicalDeviceType::INTEGRATED_GPU => "integrated GPU",
        vk::PhysicalDeviceType::DISCRETE_GPU => "discrete GPU",
        vk::PhysicalDeviceType::VIRTUAL_GPU => "virtual GPU",
        _ => "device",
    }
}

impl VulkanGpu {
    fn new(
        instance: &Arc<Instance>,
        physical: vk::PhysicalDevice,
        index: usize,
        cache: Option<&Arc<Cache>>,
    ) -> Result<VulkanGpu, String> {
        let vulkan = &instance.instance;
        // SAFETY: the device is the instance's.
        let properties = unsafe { vulkan.get_physical_device_properties(physical) };
        let name = properties.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
        let lacks = |what: &str| format!("{name} lacks {what}");
        if properties.api_version < OLDEST {
            return Err(lacks("Vulkan 1.2"));
        }
        // SAFETY: as above.
        let extensions = unsafe { vulkan.enumerate_device_extension_properties(physical) }.unwrap_or_default();
        let has = |name: &CStr| extensions.iter().any(|one| one.extension_name_as_c_str() == Ok(name));
        let newer = properties.api_version >= vk::API_VERSION_1_3;

        if let Some(feature) = missing_feature(vulkan, physical) {
            return Err(lacks(feature));
        }
        let extended = Extended::of(vulkan, physical, newer, &has);
        let is_cpu = properties.device_type == vk::PhysicalDeviceType::CPU;
        let compute_units = extended.compute_units.unwrap_or_else(|| match is_cpu {
            true => std::thread::available_parallelism().map_or(1, usize::from) as u32,
            false => COMPUTE_UNITS,
        });

        // SAFETY: the device is the instance's.
        let families = unsafe { vulkan.get_physical_device_queue_family_properties(physical) };
        let mut families = Families::of(&families).ok_or_else(|| lacks("a queue that computes"))?;
        if is_cpu {
            // lavapipe takes time stamps when it hands work to its threads, so they measure nothing.
            families.stamps = 0;
        }
        // SAFETY: as above.
        let memory = unsafe { vulkan.get_physical_device_memory_properties(physical) };
        let heaps = memory.memory_heaps_as_slice().iter();
        let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let version = properties.api_version;
        let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
        let limits = properties.limits;
        let block = limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]);
        let block = if is_cpu { block.min(CPU_BLOCK) } else { block };
        let facts = Facts {
            id: format!("vulkan:{index}"),
            name,
            detail: format!("{}, Vulkan {major}.{minor} by {}", kind(properties.device_type), extended.driver.trim()),
            compute_units,
            memory: local.map(|heap| heap.size).max().unwrap_or(0),
            clock: 0,
            rates: None,
            // Vulkan does not report this.
            ecc: true,
            largest: extended.largest,
            fixed_blocks: true,
            without: match properties.vendor_id {
                _ if is_cpu => WITHOUT_ON_CPU,
                NVIDIA => WITHOUT,
                _ => WITHOUT_ON_OTHERS,
            },
            defaults: if is_cpu { DEFAULTS_ON_CPU } else { DEFAULTS },
            uuid: Some(extended.uuid),
            is_cpu,
            most_iterations: if is_cpu { CPU_ITERATIONS } else { usize::MAX },
        };
        let used = [khr::portability_subset::NAME, ext::memory_budget::NAME, ext::external_memory_host::NAME];
        Ok(VulkanGpu {
            facts,
            physical,
            families,
            extensions: used.into_iter().filter(|name| has(name)).collect(),
            tick: f64::from(limits.timestamp_period),
            most: (block, limits.max_compute_work_group_count[0]),
            identity: Identity {
                vendor: properties.vendor_id,
                device: properties.device_id,
                uuid: properties.pipeline_cache_uuid,
                driver: format!("{} {}", properties.driver_version, extended.driver),
            },
            cache: cache.cloned(),
            opened: OnceLock::new(),
            lost: OnceLock::new(),
            hung: OnceLock::new(),
            allocations: Mutex::default(),
            reached: Mutex::default(),
            import_alignment: (has(ext::external_memory_host::NAME) && imports(vulkan, physical))
                .then_some(extended.import_alignment as usize),
            #[cfg(test)]
            fault: Mutex::default(),
            instance: instance.clone(),
        })
    }

    /// Opens the device, at the first call. If an error has ended the device, fails with that error.
    pub(super) fn open(&self) -> Result<&LogicalDevice, Error> {
        if let Some(why) = self.lost.get() {
            return Err(why.clone());
        }
        if let Some(remark) = self.instance.remarks().first() {
            return Err(self.error(format!("the validation layer says: {remark}")));
        }
        self.opened.get_or_init(|| LogicalDevice::new(self)).as_ref().map_err(Error::clone)
    }

    /// The opened device, even if it is lost. Only objects that were made of the device may call this: it panics if the device was never opened.
    pub(super) fn opened(&self) -> &LogicalDevice {
        self.opened.get().and_then(|opened| opened.as_ref().ok()).expect("something was made of it")
    }

    pub(super) fn name(&self) -> String {
        self.facts.id.clone()
    }

    pub(super) fn error(&self, what: String) -> Error {
        Error::Device { device: self.facts.id.clone(), what }
    }

    /// Gives the device up: a wait has taken longer than its limit.
    pub(super) fn give_up(&self, limit: WaitLimit) -> Error {
        // `hung` is set first: whoever is refused because the device is lost must find that it hangs.
        let why = self.hung.get_or_init(|| limit.error(&self.facts.id));
        self.lost.get_or_init(|| why.clone()).clone()
    }

    /// Whether the device was given up. Then nothing of it is destroyed or freed.
    pub(super) fn is_hung(&self) -> bool {
        self.hung.get().is_some()
    }

    /// Turns Vulkan's answer to a call into a result. `doing` is for the error.
    pub(super) fn check<T>(&self, answer: Result<T, vk::Result>, doing: &str) -> Result<T, Error> {
        answer.map_err(|code| {
            let error = self.error(format!("{code} while {doing}"));
            match code {
                vk::Result::ERROR_DEVICE_LOST => self.lost.get_or_init(|| error).clone(),
                _ => error,
            }
        })
    }

    /// Makes a call, which a test may have fail.
    pub(super) fn call<T>(&self, call: impl FnOnce() -> Result<T, vk::Result>) -> Result<T, vk::Result> {
        #[cfg(test)]
        if let Some(code) = lock(&self.fault).take() {
            return Err(code);
        }
        call()
    }

    /// Fails unless steps are in order, and use memory that is allocated.
    pub(super) fn check_steps(&self, steps: &[Step]) -> Result<(), Error> {
        steps::check_order(steps).map_err(|why| self.error(format!("a program {why}")))?;
        self.check_accesses(steps.iter().flat_map(steps::accesses))
    }

    pub(super) fn check_accesses(&self, accesses: impl Iterator<Item = Access>) -> Result<(), Error> {
        for access in accesses {
            if self.find(access).is_none() {
                return Err(self.error(format!("a program uses memory that it does not have: {access:x?}")));
            }
        }
        Ok(())
    }

    /// The buffer that contains the whole access, and the access's offset in it.
    pub(super) fn find(&self, access: Access) -> Option<(vk::Buffer, u64)> {
        let find = |all: &Mutex<Allocations<vk::Buffer>>| lock(all).find(access).map(|(buffer, at)| (*buffer, at));
        find(&self.allocations).or_else(|| find(&self.reached))
    }

    /// A kind of memory among these (a bit each) that the host and the device see without flushing, through the host's caches if there is one.
    pub(super) fn coherent(&self, kinds: u32) -> Option<u32> {
        use vk::MemoryPropertyFlags as Flags;
        // SAFETY: the device is the instance's.
        let memory = unsafe { self.instance.instance.get_physical_device_memory_properties(self.physical) };
        let all = memory.memory_types_as_slice();
        let with = |flags: Flags| {
            (0..all.len()).find(|kind| kinds >> kind & 1 == 1 && all[*kind].property_flags.contains(flags))
        };
        let visible = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        with(visible | Flags::HOST_CACHED).or_else(|| with(visible)).map(|kind| kind as u32)
    }
}

impl Families {
    /// Each family once.
    pub(super) fn all(&self) -> Vec<u32> {
        [self.compute].into_iter().chain(self.copies.map(|(copies, _)| copies)).collect()
    }

    /// A family that computes, if possible one that does not draw; and a family that only copies, if there is one.
    fn of(families: &[vk::QueueFamilyProperties]) -> Option<Families> {
        use vk::QueueFlags as Flags;
        let find = |with: Flags, without: Flags| {
            families
                .iter()
                .position(|f| f.queue_count > 0 && f.queue_flags.contains(with) && !f.queue_flags.intersects(without))
        };
        let compute = find(Flags::COMPUTE, Flags::GRAPHICS).or_else(|| find(Flags::COMPUTE, Flags::empty()))?;
        let copies = find(Flags::TRANSFER, Flags::COMPUTE | Flags::GRAPHICS);
        Some(Families {
            compute: compute as u32,
            copies: copies.map(|copies| (copies as u32, families[copies].queue_count.min(2))),
            stamps: families[compute].timestamp_valid_bits,
        })
    }
}

impl LogicalDevice {
    fn new(gpu: &VulkanGpu) -> Result<LogicalDevice, Error> {
        let vulkan = &gpu.instance.instance;
        let Families { compute, copies, .. } = gpu.families;
        let priorities = [1.0; 2];
        let mut queues = vec![(compute, 1)];
        queues.extend(copies);
        let queue = |(family, count): (u32, u32)| {
            let info = vk::DeviceQueueCreateInfo::default().queue_family_index(family);
            info.queue_priorities(&priorities[..count as usize])
        };
        let queues: Vec<_> = queues.into_iter().map(queue).collect();
        let extensions: Vec<_> = gpu.extensions.iter().map(|name| name.as_ptr()).collect();
        let features = vk::PhysicalDeviceFeatures::default().shader_int64(true);
        let mut features12 = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(true)
            .scalar_block_layout(true)
            .timeline_semaphore(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .enabled_features(&features)
            .push_next(&mut features12);
        // SAFETY: all that the structure points to lives, and the device said that it has all of it.
        let device = unsafe { vulkan.create_device(gpu.physical, &info, None) };
        let device = gpu.check(device, "opening the device")?;
        #[cfg(test)]
        let device = super::tests::with_faults(&device);
        let description = AllocatorCreateDesc {
            instance: vulkan.clone(),
            device: device.clone(),
            physical_device: gpu.physical,
            debug_settings: Default::default(),
            buffer_device_address: true,
            allocation_sizes: AllocationSizes::new(POOLED, POOLED),
        };
        // SAFETY: the queues were asked for above.
        let queue = |family, index| Mutex::new(unsafe { device.get_device_queue(family, index) });
        let copies = match copies {
            Some((family, 1)) => {
                let both = Arc::new(queue(family, 0));
                [Some(both.clone()), Some(both)]
            }
            Some((family, _)) => [0, 1].map(|index| Some(Arc::new(queue(family, index)))),
            None => [None, None],
        };
        let compute = queue(compute, 0);
        let made = Allocator::new(&description).map_err(|why| why.to_string()).and_then(|mut allocator| {
            let mut tables = Tables::new(&device, &mut allocator)?;
            match Pipelines::new(&device, tables.layout, gpu.cache.as_ref(), &gpu.identity) {
                Ok(pipelines) => Ok((allocator, tables, pipelines)),
                Err(code) => {
                    tables.destroy(&device, &mut allocator);
                    Err(format!("{code} while preparing for pipelines"))
                }
            }
        });
        match made {
            Ok((allocator, tables, pipelines)) => {
                let (allocator, tables) = (Mutex::new(Some(allocator)), Mutex::new(tables));
                Ok(LogicalDevice { device, allocator, tables, pipelines, compute, copies })
            }
            Err(why) => {
                // SAFETY: nothing of the device is left.
                unsafe { device.destroy_device(None) };
                Err(gpu.error(why))
            }
        }
    }
}

impl Drop for VulkanGpu {
    fn drop(&mut self) {
        if self.is_hung() {
            std::mem::forget((self.opened.take(), self.instance.clone()));
        }
        if let Some(Ok(opened)) = self.opened.get() {
            opened.pipelines.destroy(&opened.device);
            if let Some(mut allocator) = lock(&opened.allocator).take() {
                lock(&opened.tables).destroy(&opened.device, &mut allocator);
            }
            // SAFETY: whatever was made of the device held it, so that nothing is left.
            unsafe { opened.device.destroy_device(None) };
        }
    }
}
