//! Tests of the driver on the first device, if there is one.

use super::device::{VulkanGpu, devices};
use super::instance::Instance;
use ash::vk;
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, Program, SlhDsaPrograms};
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::{Family, Position};
use hypergrove_gpu::{Gpu, Gpus, Launch, Queue, Step, WaitLimit};
use hypergrove_kernels::{Args, Config, Kernel};
use hypergrove_testkit::toys::TOY_SHA2_16;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A connection under the validation layer, if that is installed.
fn instance() -> Option<Arc<Instance>> {
    hypergrove_testkit::one_at_a_time();
    match Instance::open(true).or_else(|_| Instance::open(false)) {
        Ok(instance) => Some(instance),
        Err(why) => {
            assert!(!why.is_empty());
            println!("skipped: vulkan driver: {why}");
            None
        }
    }
}

fn device() -> Option<(Arc<Instance>, Arc<VulkanGpu>)> {
    let instance = instance()?;
    match devices(&instance, None) {
        Ok(devices) => Some((instance, devices[0].clone())),
        Err(why) => {
            println!("skipped: vulkan driver: {why}");
            None
        }
    }
}

fn config() -> Config {
    Config { family: Family::Sha2, n: 16, defines: Vec::new() }
}

#[test]
fn bytes_go_to_the_device_and_back() {
    let Some((instance, gpu)) = device() else { return };
    let facts = gpu.facts();
    assert!(facts.id == "vulkan:0" && !facts.name.is_empty() && facts.compute_units > 0 && facts.memory > 0);
    // Copies of that size run concurrently with launches, if the device can do that.
    let bytes = 2 << 20;
    let (memory, mut host) = (gpu.alloc(bytes).unwrap(), gpu.alloc_host(2 * bytes).unwrap());
    assert!(gpu.free().unwrap() > 0 && VulkanGpu::host_view(&host, 0..2 * bytes).iter().all(|&byte| byte == 0));
    VulkanGpu::host_write(&host, 0, &vec![7; bytes]);
    let (at, from) = (VulkanGpu::address(&memory), VulkanGpu::host_address(&host));
    let to = from + bytes as u64;
    let kernels = gpu.kernels(&config(), &[(Kernel::Cached, 64)]).unwrap();
    let mut queue = gpu.queue().unwrap();
    assert_eq!(queue.wait().unwrap(), None);
    // A launch with nothing to do.
    let idle = Launch { kernel: Kernel::Cached, blocks: 1, threads: 64, args: Args::default() };
    let steps = [
        Step::Upload { to: at, from, bytes },
        Step::Zero { at, bytes: 4 },
        Step::Fork,
        Step::SideLaunch(idle),
        Step::Launch(Launch { blocks: 1 << 20, ..idle }),
        Step::Join,
        Step::Zero { at: at + 8, bytes: 8 },
        Step::Download { to, from: at, bytes },
    ];
    let recording = queue.record(&kernels, &steps).unwrap();
    let mut want = vec![7; bytes];
    want[..4].fill(0);
    want[8..16].fill(0);
    for replayed in [false, true, true] {
        VulkanGpu::host_bytes(&mut host, bytes..2 * bytes).fill(1);
        match replayed {
            true => (0..2).for_each(|_| queue.replay(&recording).unwrap()),
            false => queue.submit(&kernels, &steps).unwrap(),
        }
        queue.mark(3).unwrap();
        queue.wait_for(3).unwrap();
        assert!(queue.wait().unwrap().is_some());
        assert!(VulkanGpu::host_view(&host, bytes..2 * bytes) == want, "replayed: {replayed}");
    }
    let failures = [
        [Step::Download { to, from: at, bytes: bytes + 1 }],
        [Step::Zero { at: from, bytes: 4 }],
        [Step::Zero { at: at + 1, bytes: 4 }],
        [Step::Launch(Launch { kernel: Kernel::Chains, ..idle })],
        [Step::Fork],
    ];
    for steps in &failures {
        assert!(matches!(queue.submit(&kernels, steps), Err(Error::Device { device, .. }) if device == "vulkan:0"));
        assert!(queue.record(&kernels, steps).is_err());
    }
    queue.submit(&kernels, &steps).unwrap();
    queue.follow(&kernels, &[Step::Zero { at, bytes }]).unwrap();
    queue.wait().unwrap();
    queue.wait().unwrap();
    drop(host);
    assert!(queue.replay(&recording).is_err(), "its memory is gone");
    let much = gpu.alloc(1 << 50);
    assert!(matches!(much, Err(Error::OutOfMemory { needs, has, .. }) if needs == 1 << 50 && has > 0));
    drop((gpu.alloc(0).unwrap(), memory, queue, recording, kernels));
    drop(gpu);
    assert_eq!(instance.remarks(), Vec::<String>::new());
}

#[test]
fn a_callers_memory_is_copied_without_staging() {
    let Some((instance, gpu)) = device() else { return };
    // Two buffers: one has 64 KiB in tests.
    let (bytes, first) = (100_000, 64 << 10);
    let Some(reached) = gpu.alloc_reached(bytes) else {
        println!("skipped: vulkan driver: {} imports no memory of the host", gpu.facts().name);
        return;
    };
    let mut reached = reached.unwrap();
    assert!(reached.bytes().len() == bytes && reached.bytes().iter().all(|byte| *byte == 0));
    reached.bytes_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    let at = reached.bytes().as_ptr() as u64;
    let (end, second) = (at + bytes as u64, at + first as u64);
    assert!(gpu.reaches(at, first) && gpu.reaches(at + 7, 1) && gpu.reaches(second, bytes - first));
    assert!(!gpu.reaches(at, first + 1) && !gpu.reaches(at - 1, 2) && !gpu.reaches(end, 1));

    let memory = gpu.alloc(2 * first).unwrap();
    let (to, kernels) = (VulkanGpu::address(&memory), gpu.kernels(&config(), &[(Kernel::Cached, 64)]).unwrap());
    let mut queue = gpu.queue().unwrap();
    let steps = [
        Step::Upload { to, from: at + 1000, bytes: 3000 },
        Step::UploadColumns { to: to + 4096, from: at + 8192, width: 16, pitch: 64, rows: 100 },
        Step::Download { to: second, from: to, bytes: 3000 },
        Step::Download { to: second + 4096, from: to + 4096 + 64, bytes: 16 },
    ];
    queue.submit(&kernels, &steps).unwrap();
    queue.wait().unwrap();
    let got = reached.bytes();
    assert!(got[first..first + 3000] == got[1000..4000]);
    assert!(got[first + 4096..first + 4112] == got[8192 + 64..8192 + 80]);
    assert!(queue.submit(&kernels, &[Step::Upload { to, from: second - 1, bytes: 2 }]).is_err(), "two buffers");
    drop(reached);
    assert!(!gpu.reaches(at, 1) && queue.submit(&kernels, &steps).is_err(), "it is gone");
    let much = gpu.alloc_reached(usize::MAX).unwrap();
    assert!(matches!(much, Err(Error::OutOfMemory { device, .. }) if device.contains("host memory")));
    *lock(&gpu.fault) = Some(vk::Result::ERROR_OUT_OF_HOST_MEMORY);
    assert!(matches!(gpu.alloc_reached(1).unwrap(), Err(Error::OutOfMemory { .. })));
    drop((memory, queue, kernels, gpu));
    assert_eq!(instance.remarks(), Vec::<String>::new());
}

#[test]
fn pipelines_are_made_once_for_each_size() {
    let Some((_, gpu)) = device() else { return };
    let small: Vec<_> = Kernel::ALL.iter().filter(|kernel| kernel.has_module()).map(|kernel| (*kernel, 64)).collect();
    gpu.kernels(&config(), &small).unwrap();
    let start = Instant::now();
    let kernels = gpu.kernels(&config(), &small).unwrap();
    assert!(start.elapsed().as_millis() < 100);
    let of = |kernel, threads| kernels.pipeline(kernel, threads);
    assert_eq!(of(Kernel::Keys, 64).unwrap(), of(Kernel::Keys, 64).unwrap());
    assert!(of(Kernel::Keys, 1 << 20).is_ok(), "as many as the device takes");
    let cooperative = gpu.kernels(&config(), &[(Kernel::XmssWide, 96)]);
    assert!(matches!(cooperative, Err(Error::Unsupported { .. })));
}

/// A signature of the first toy set.
fn sign(program: &mut dyn Program) -> Result<Vec<u8>, Error> {
    let p = &TOY_SHA2_16;
    let keys = [Key::of_seeds(&[1; 16], &[2; 16])];
    let positions = [Position { fors: [1, 2, 3, 4].into_iter().collect(), idx_tree: 2, idx_leaf: 3 }];
    let mut out = vec![0; p.sig_bytes()];
    let batch = Batch { keys: &keys, key_of: &[0], positions: &positions, signatures: &[] };
    match program.run_batch(&batch, &mut out) {
        Ok(_) => Ok(out),
        Err(why) => {
            assert!(out.iter().all(|byte| *byte == 0), "no part of a signature");
            Err(why)
        }
    }
}

#[test]
fn a_lost_device_says_so_from_then_on() {
    let Some((_, gpu)) = device() else { return };
    let gpus = Gpus::new("vulkan", Ok(vec![gpu.clone()]), None);
    let device = gpus.devices().unwrap().remove(0);
    let plan = Plan::new(&TOY_SHA2_16, Op::Sign);
    let mut program = gpus.prepare(&device, &plan, 1, &Policy::default()).unwrap();
    let right = sign(&mut *program).unwrap();
    *lock(&gpu.fault) = Some(vk::Result::ERROR_OUT_OF_HOST_MEMORY);
    assert!(matches!(sign(&mut *program), Err(Error::Device { .. })));
    assert!(sign(&mut *program).unwrap() == right, "what is no loss passes");
    *lock(&gpu.fault) = Some(vk::Result::ERROR_DEVICE_LOST);
    let why = sign(&mut *program).unwrap_err();
    assert!(matches!(&why, Error::Device { device, .. } if device == "vulkan:0"), "{why}");
    assert_eq!(sign(&mut *program).unwrap_err(), why);
    assert_eq!(gpus.prepare(&device, &plan, 1, &Policy::default()).err(), Some(why));
}

/// This limit is short, since a test waits for it.
const LIMIT: WaitLimit = WaitLimit { work: "a test", time: Some(Duration::from_millis(200)) };

/// Memory that a device uses after it was given up is still there.
#[test]
fn a_device_that_hangs_is_given_up_and_keeps_its_memory() {
    let Some((_, gpu)) = device() else { return };
    let bytes = 4096;
    let (memory, mut host) = (gpu.alloc(bytes).unwrap(), gpu.alloc_host(bytes).unwrap());
    let (kernels, mut queue, mut other) =
        (gpu.kernels(&config(), &[]).unwrap(), gpu.queue().unwrap(), gpu.queue().unwrap());
    let (there, here) = (VulkanGpu::address(&memory), VulkanGpu::host_address(&host));
    let download = [Step::Download { to: here, from: there, bytes }];
    let recording = queue.record(&kernels, &download).unwrap();
    VulkanGpu::host_write(&host, 0, &vec![7; bytes]);
    queue.submit(&kernels, &[Step::Upload { to: there, from: here, bytes }]).unwrap();
    queue.wait().unwrap();
    VulkanGpu::host_bytes(&mut host, 0..bytes).fill(5);
    assert_eq!(gpu.hung(), None);

    let held = queue.hold();
    queue.limit(LIMIT);
    queue.replay(&recording).unwrap();
    queue.mark(3).unwrap();
    let began = Instant::now();
    let why = queue.wait_for(3).unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(why, LIMIT.error("vulkan:0"));
    // From now on nothing waits.
    let began = Instant::now();
    assert_eq!((gpu.hung(), queue.wait()), (Some(why.clone()), Err(why.clone())));
    assert_eq!(other.submit(&kernels, &download), Err(why.clone()));
    assert_eq!((other.wait(), gpu.alloc(4).err()), (Err(why.clone()), Some(why.clone())));
    assert!(gpu.queue().is_err() && began.elapsed() < Duration::from_millis(100));

    let first = VulkanGpu::host_view(&host, 0..0).as_ptr();
    // SAFETY: the memory stays mapped for ever, as this test shows. The device writes to it.
    let read = || unsafe { first.read_volatile() };
    assert_eq!(read(), 5);
    drop((memory, host, queue, other, recording, kernels, gpu));
    assert_eq!(read(), 0, "overwritten, as it may hold secrets");
    held.release();
    let began = Instant::now();
    while read() != 7 {
        assert!(began.elapsed() < Duration::from_secs(20), "the device does not go on");
        std::thread::yield_now();
    }
}

/// A wait without a limit is for memory that a caller has lent.
#[test]
fn a_wait_without_a_limit_lasts_until_the_device_is_done() {
    let Some((_, gpu)) = device() else { return };
    let (memory, kernels) = (gpu.alloc(64).unwrap(), gpu.kernels(&config(), &[]).unwrap());
    let (mut queue, mut other) = (gpu.queue().unwrap(), gpu.queue().unwrap());
    let zero = [Step::Zero { at: VulkanGpu::address(&memory), bytes: 64 }];
    let (held, others) = (queue.hold(), other.hold());
    for (queue, limit) in [(&mut queue, WaitLimit { time: None, ..LIMIT }), (&mut other, LIMIT)] {
        queue.limit(limit);
        queue.submit(&kernels, &zero).unwrap();
        queue.mark(0).unwrap();
    }
    // Another wait gives the device up meanwhile.
    assert!(other.wait().is_err() && gpu.hung().is_some());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| queue.wait_for(0).and_then(|()| queue.wait()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!wait.is_finished());
        held.release();
        assert!(wait.join().unwrap().is_ok());
    });
    others.release();
}

/// Another thread may learn first that the device is lost, while a copy is still under way to memory that a caller has lent.
#[test]
fn a_wait_lasts_until_the_work_is_done_though_the_device_is_lost() {
    let Some((_, gpu)) = device() else { return };
    let (memory, kernels) = (gpu.alloc(64).unwrap(), gpu.kernels(&config(), &[]).unwrap());
    let mut queue = gpu.queue().unwrap();
    let held = queue.hold();
    queue.limit(WaitLimit { time: Some(Duration::from_secs(20)), ..LIMIT });
    queue.submit(&kernels, &[Step::Zero { at: VulkanGpu::address(&memory), bytes: 64 }]).unwrap();
    let lost = gpu.check::<()>(Err(vk::Result::ERROR_DEVICE_LOST), "a test").unwrap_err();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| queue.wait());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!wait.is_finished());
        held.release();
        assert_eq!(wait.join().unwrap(), Err(lost));
    });
}

#[test]
fn memory_that_is_not_there_is_an_error_with_its_size() {
    let Some((_, gpu)) = device() else { return };
    for code in [vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, vk::Result::ERROR_OUT_OF_HOST_MEMORY] {
        *lock(&gpu.fault) = Some(code);
        assert!(matches!(gpu.alloc(1 << 20), Err(Error::OutOfMemory { needs, .. }) if needs == 1 << 20));
        *lock(&gpu.fault) = Some(code);
        assert!(
            matches!(gpu.alloc_host(12), Err(Error::OutOfMemory { needs: 12, device, .. }) if device.contains("host"))
        );
    }
    // These faults are below the allocator, which calls the driver for each buffer only from that size on.
    for code in [vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, vk::Result::ERROR_OUT_OF_HOST_MEMORY] {
        ALLOCATING.store(code.as_raw(), Ordering::Relaxed);
        assert!(matches!(gpu.alloc(1 << 20), Err(Error::OutOfMemory { needs, .. }) if needs == 1 << 20), "{code:?}");
        for fault in [&ALLOCATING, &MAPPING] {
            fault.store(code.as_raw(), Ordering::Relaxed);
            assert!(matches!(gpu.alloc_host(1 << 20), Err(Error::OutOfMemory { .. })), "{code:?}");
        }
    }
    ALLOCATING.store(vk::Result::ERROR_INITIALIZATION_FAILED.as_raw(), Ordering::Relaxed);
    assert!(matches!(gpu.alloc(1 << 20), Err(Error::Device { .. })), "no memory would help");
    gpu.alloc(1 << 20).unwrap();
    gpu.alloc_host(12).unwrap();
}

/// Answers for the next calls of `vkAllocateMemory` and `vkMapMemory`, which are not made then; 0 lets them be made.
static ALLOCATING: AtomicI32 = AtomicI32::new(0);
static MAPPING: AtomicI32 = AtomicI32::new(0);

/// A device whose allocator meets the faults above.
pub(super) fn with_faults(device: &ash::Device) -> ash::Device {
    static REAL: Mutex<Option<(vk::PFN_vkAllocateMemory, vk::PFN_vkMapMemory)>> = Mutex::new(None);
    fn faulty(fault: &AtomicI32) -> Option<vk::Result> {
        Some(vk::Result::from_raw(fault.swap(0, Ordering::Relaxed))).filter(|code| *code != vk::Result::SUCCESS)
    }
    unsafe extern "system" fn allocate(
        device: vk::Device,
        info: *const vk::MemoryAllocateInfo<'_>,
        callbacks: *const vk::AllocationCallbacks<'_>,
        memory: *mut vk::DeviceMemory,
    ) -> vk::Result {
        let (call, _) = lock(&REAL).expect("written below");
        // SAFETY: the arguments are passed on as they came.
        faulty(&ALLOCATING).unwrap_or_else(|| unsafe { call(device, info, callbacks, memory) })
    }
    unsafe extern "system" fn map(
        device: vk::Device,
        memory: vk::DeviceMemory,
        offset: vk::DeviceSize,
        size: vk::DeviceSize,
        flags: vk::MemoryMapFlags,
        to: *mut *mut c_void,
    ) -> vk::Result {
        let (_, call) = lock(&REAL).expect("written below");
        // SAFETY: the arguments are passed on as they came.
        faulty(&MAPPING).unwrap_or_else(|| unsafe { call(device, memory, offset, size, flags, to) })
    }
    let mut first = device.fp_v1_0().clone();
    *lock(&REAL) = Some((first.allocate_memory, first.map_memory));
    (first.allocate_memory, first.map_memory) = (allocate, map);
    let later = (device.fp_v1_1().clone(), device.fp_v1_2().clone(), device.fp_v1_3().clone());
    ash::Device::from_parts_1_3(device.handle(), first, later.0, later.1, later.2)
}

#[test]
fn what_is_done_wrong_is_remarked_on() {
    hypergrove_testkit::one_at_a_time();
    let Ok(instance) = Instance::open(true) else { return println!("skipped: vulkan driver: no validation layer") };
    let Ok(devices) = devices(&instance, None) else { return println!("skipped: vulkan driver: no device") };
    let gpu = &devices[0];
    // SAFETY: no driver here refuses a buffer of no bytes, and the buffer is given back.
    unsafe {
        let vulkan = &gpu.open().unwrap().device;
        let buffer = vulkan.create_buffer(&vk::BufferCreateInfo::default(), None);
        buffer.iter().for_each(|buffer| vulkan.destroy_buffer(*buffer, None));
    }
    assert!(!instance.remarks().is_empty());
    assert!(matches!(gpu.alloc(4), Err(Error::Device { what, .. }) if what.contains("validation layer")));
}
