use super::device::{CudaGpu, OUT_OF_MEMORY, devices, is_final};
use super::lock;
use super::nvrtc::Nvrtc;
use crate::compile::{Compiler, OPTIONS, Output};
use cudarc::driver::sys::CUresult;
use hypergrove_engine::Error;
use hypergrove_fips205::Family;
use hypergrove_gpu::{Gpu, Launch, Queue, Step, WaitLimit};
use hypergrove_kernels::arguments::{AbsorbMessage, Arguments};
use hypergrove_kernels::zk::{IS_BLOCK, JOB_SIZE, KEY_SIZE, START_SIZE};
use hypergrove_kernels::{Args, Config, Kernel, is_by_warpgroups};
use hypergrove_zkdilithium::params::{K, L, N, RATE, T};
use hypergrove_zkdilithium::poseidon::{ROUND_CONSTANTS, State, permute};
use hypergrove_zkdilithium::{Fe, Trace};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn launch() -> Launch {
    Launch { kernel: Kernel::ALL[0], blocks: 1, threads: 1, args: Args::default() }
}

#[test]
fn out_of_memory_does_not_end_a_context() {
    assert!(is_final(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as u32));
    assert!(!is_final(OUT_OF_MEMORY) && !is_final(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES as u32));
}

/// The first device. If there is none, prints the reason.
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

/// A device does not hang, but takes longer than a limit of no time. It completes its work in memory that stays.
#[test]
fn a_device_that_is_given_up_keeps_its_memory() {
    let Some(gpu) = device() else { return };
    let bytes = 64 << 20;
    let (memory, host) = (gpu.alloc(bytes).unwrap(), gpu.alloc_host(bytes).unwrap());
    let lent = gpu.alloc_reached(bytes).unwrap().unwrap();
    let config = Config { family: Family::Sha2, n: 16, defines: Vec::new() };
    let (kernels, mut queue) = (gpu.kernels(&config, &[]).unwrap(), gpu.queue().unwrap());
    CudaGpu::host_write(&host, 0, &[5]);
    let (to, from) = (CudaGpu::address(&memory), lent.bytes().as_ptr() as u64);
    // These copies take some tenths of a second.
    let steps = vec![Step::Upload { to, from, bytes }; 256];
    let limit = WaitLimit { work: "a test", time: Some(Duration::ZERO) };
    queue.limit(limit);
    queue.submit(&kernels, &steps).unwrap();
    let why = queue.wait().unwrap_err();
    assert_eq!((gpu.hung(), &why), (Some(why.clone()), &limit.error("cuda:0")));
    assert_eq!((queue.wait(), gpu.alloc(4).err()), (Err(why.clone()), Some(why)));
    let (of_program, of_caller) = (CudaGpu::host_view(&host, 0..1).as_ptr(), lent.bytes().as_ptr());
    // A wait without a limit lasts until the device is done.
    queue.limit(WaitLimit { time: None, ..limit });
    queue.wait().unwrap();
    drop((memory, host, lent, queue, kernels, gpu));
    // SAFETY: both stay mapped for ever, of which this is the test; the device is done with them.
    assert_eq!(unsafe { (of_program.read_volatile(), of_caller.read_volatile()) }, (0, 0), "wiped, and there");
}

#[test]
fn bytes_go_to_the_device_and_back() {
    let Some(gpu) = device() else { return };
    let facts = gpu.facts();
    assert!(facts.id == "cuda:0" && !facts.name.is_empty() && facts.compute_units > 0 && facts.memory > 0);
    let bytes = 1 << 20;
    let (memory, mut host) = (gpu.alloc(bytes).unwrap(), gpu.alloc_host(2 * bytes).unwrap());
    assert!(gpu.free().unwrap() < facts.memory);
    assert!(CudaGpu::host_view(&host, 0..2 * bytes).iter().all(|&byte| byte == 0));
    CudaGpu::host_write(&host, 0, &vec![7; bytes]);
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
        CudaGpu::host_bytes(&mut host, bytes..2 * bytes).fill(1);
        match replayed {
            true => queue.replay(&recording).unwrap(),
            false => queue.submit(&none, &steps).unwrap(),
        }
        assert!(queue.wait().unwrap().is_some_and(|time| time.upload + time.execute + time.download > Duration::ZERO));
        assert!(CudaGpu::host_view(&host, bytes..2 * bytes) == want, "replayed: {replayed}");
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
    let all = Kernel::ALL.iter().filter(|kernel| !kernel.is_for_cpu() && !kernel.needs_tensor_cores());
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

/// The test compiles for the architectures that CI covers, on all cores, and needs no GPU. Secrets that a kernel spills would lie in local
/// memory, which nothing wipes. Each source is compiled for one architecture, by turns; in a full run for all.
#[test]
fn nvrtc_compiles_every_kernel_without_a_warning_or_a_spilled_secret() {
    const ARCHITECTURES: [u32; 4] = [75, 80, 90, 120];
    /// Kernels that read keys, chain values that no signature shows, or secrets of attempts at signatures.
    const SECRET: [Kernel; 16] = [
        Kernel::Digest,
        Kernel::Keys,
        Kernel::Chains,
        Kernel::Fors,
        Kernel::Select,
        Kernel::ZkSeed,
        Kernel::ZkShort,
        Kernel::ZkPublic,
        Kernel::ZkKeys,
        Kernel::ZkSponge,
        Kernel::ZkTensor,
        Kernel::ZkTensorFew,
        Kernel::ZkRho2,
        Kernel::ZkMask,
        Kernel::ZkCommit,
        Kernel::ZkRespond,
    ];
    // No kernel uses all functions of a header, nor all variables that a macro sets.
    let harmless = ["#177-D: function", "#550-D: variable", "Remark: The warnings can be suppressed"];
    let warns = |line: &str| line.contains("warning") && !harmless.iter().any(|known| line.contains(known));
    let spills = |kernel, line: &str| {
        let stack = line.split_once(" bytes stack frame").and_then(|(head, _)| head.rsplit(' ').next());
        SECRET.contains(&kernel) && stack.is_some_and(|bytes| bytes != "0")
    };
    // Poseidon in doubles is only for architectures with fast doubles, and its forms with tensor cores need these.
    let runs = |config: &Config, kernel, number| match kernel {
        Kernel::ZkSponge if config.defines.contains(&("FP64", 1)) => [80, 90].contains(&number),
        _ if is_by_warpgroups(kernel, config) => number == 90,
        _ if kernel.needs_tensor_cores() => number >= 80,
        _ => true,
    };
    let nvrtc = match Nvrtc::load() {
        Ok(nvrtc) => nvrtc,
        Err(why) => return println!("skipped: nvrtc for all architectures: a device cannot execute {why}"),
    };
    let (mut wanted, mut seen) = (Vec::new(), HashSet::new());
    for &family in Family::ALL {
        for config in [16, 24, 32].into_iter().flat_map(|n| hypergrove_kernels::default_configs(family, n)) {
            for &kernel in Kernel::ALL.iter().filter(|kernel| !kernel.is_for_cpu()) {
                let source = hypergrove_kernels::source(kernel, &config);
                if seen.insert(source.clone()) {
                    let numbers = ARCHITECTURES.into_iter().filter(|number| runs(&config, kernel, *number));
                    let mut numbers: Vec<u32> = numbers.collect();
                    if !hypergrove_testkit::all() {
                        numbers = vec![numbers[seen.len() % numbers.len()]];
                    }
                    wanted.extend(numbers.into_iter().map(|number| (kernel, config.clone(), number, source.clone())));
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
                    let feature = if is_by_warpgroups(*kernel, config) { "a" } else { "" };
                    options
                        .extend([format!("--gpu-architecture=sm_{number}{feature}"), "--ptxas-options=-v".to_owned()]);
                    // Code from NVRTC's cache comes without a report on spills.
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
    println!("checked: {} builds of {} kernels by NVRTC {:?}", wanted.len(), Kernel::ALL.len(), nvrtc.version);
}

/// States that let zeros enter the first round: at each cell alone, at neighbours, at all cells, at all but one, at none; and their blocks.
fn states_with_zeros() -> Vec<(State, [Fe; RATE])> {
    let mut random = 1u64;
    let mut element = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Fe::new((random >> 33) as u32 % hypergrove_zkdilithium::params::Q)
    };
    let mut state = |is_zero: &dyn Fn(usize) -> bool| {
        let block: [Fe; RATE] = std::array::from_fn(|_| element());
        let zero = |cell: usize| -(ROUND_CONSTANTS[0][cell] + block.get(cell).copied().unwrap_or(Fe::ZERO));
        (std::array::from_fn(|cell| if is_zero(cell) { zero(cell) } else { element() }), block)
    };
    let mut states = vec![state(&|_| true), state(&|_| false)];
    for of in 0..T {
        states.extend([
            state(&|cell| cell == of),
            state(&|cell| cell == of || cell == of + 1),
            state(&|cell| cell != of),
        ]);
        states.push(state(&|cell| (cell * 7 + of * 3) % 11 < 4));
    }
    states
}

/// Poseidon's forms with tensor cores compute what the reference does, for numbers of states that fill no warp and no block.
#[test]
fn tensor_cores_compute_poseidon() {
    let Some(gpu) = device() else { return };
    const STATE: usize = (K + 2) * L * N;
    let states = states_with_zeros();
    let (mut keys, mut jobs, mut blocks, mut wanted) = (vec![0u32; states.len() * KEY_SIZE], vec![], vec![], vec![]);
    for (i, (state, block)) in states.iter().enumerate() {
        keys[i * KEY_SIZE + STATE..][..T].copy_from_slice(&state.map(Fe::value));
        jobs.extend([i as u32, (i * RATE) as u32, IS_BLOCK]);
        blocks.extend(block.map(Fe::value));
        let mut state = *state;
        state.iter_mut().zip(block).for_each(|(cell, element)| *cell = *cell + *element);
        permute(&mut state, &mut Trace::default());
        wanted.extend(state[..RATE].iter().map(|x| x.value()));
        let mut start = [Fe::ZERO; T];
        start[..RATE].copy_from_slice(&state[..RATE]);
        permute(&mut start, &mut Trace::default());
        wanted.extend(start.map(Fe::value));
    }
    assert_eq!((jobs.len(), keys.len()), (states.len() * JOB_SIZE, states.len() * KEY_SIZE));
    let all: Vec<u8> = [keys, jobs, blocks].concat().iter().flat_map(|word| word.to_le_bytes()).collect();
    let outs = 4 * START_SIZE * states.len();
    let (memory, mut host) = (gpu.alloc(all.len() + outs).unwrap(), gpu.alloc_host(all.len() + outs).unwrap());
    CudaGpu::host_write(&host, 0, &all);
    let (at, from) = (CudaGpu::address(&memory), CudaGpu::host_address(&host));
    let (keys, starts) = (at, at + all.len() as u64);
    let jobs = keys + (4 * KEY_SIZE * states.len()) as u64;
    let messages = jobs + (4 * JOB_SIZE * states.len()) as u64;
    for &tensor in &gpu.tensor_forms()[1..] {
        let config = Config { family: Family::Shake, n: 16, defines: vec![("TENSOR", tensor)] };
        let kernels = gpu.kernels(&config, &[(Kernel::ZkTensor, 128), (Kernel::ZkTensorFew, 128)]).unwrap();
        let mut queue = gpu.queue().unwrap();
        let shapes = [(1, 1, 128), (states.len(), 1, 128), (states.len(), 2, 256), (77, 3, 128), (16, 2, 128)];
        let both = [Kernel::ZkTensor, Kernel::ZkTensorFew].into_iter();
        for (kernel, (count, blocks, threads)) in both.flat_map(|kernel| shapes.map(|shape| (kernel, shape))) {
            let args = AbsorbMessage { keys, jobs, messages, starts }.args(count as u32);
            let steps = [
                Step::Upload { to: at, from, bytes: all.len() },
                Step::Zero { at: starts, bytes: outs },
                Step::Launch(Launch { kernel, blocks, threads, args }),
                Step::Download { to: from + all.len() as u64, from: starts, bytes: outs },
            ];
            queue.submit(&kernels, &steps).unwrap();
            queue.wait().unwrap();
            let words = CudaGpu::host_bytes(&mut host, all.len()..all.len() + outs).as_chunks::<4>().0;
            let found: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            for (i, (found, wanted)) in found.chunks(START_SIZE).zip(wanted.chunks(RATE + T)).enumerate() {
                let right = if i < count { found[..RATE + T] == *wanted } else { found.iter().all(|word| *word == 0) };
                assert!(right, "form {tensor}, {kernel:?}, state {i} of {count}, {blocks} blocks of {threads}");
            }
        }
    }
}
