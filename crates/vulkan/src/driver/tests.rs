//! TEMP
use super::*;
use hypergrove_gpu::Gpu;
use hypergrove_fips205::Family;
use hypergrove_kernels::{Config, Kernel};

#[test]
fn time_pipelines() {
    let instance = Instance::open(false).unwrap();
    let gpus = devices(&instance, None).unwrap();
    let gpu = &gpus[0];
    println!("{:?}", gpu.facts());
    for (family, n) in [(Family::Sha2, 16), (Family::Shake, 16), (Family::Sha2, 32)] {
        for kernel in Kernel::ALL.iter().filter(|k| !k.is_wide()) {
            if family == Family::Shake && n != 16 { continue; }
            let start = std::time::Instant::now();
            gpu.kernels(&Config { family, n, defines: vec![] }, &[(*kernel, 64)]).unwrap();
            println!("{family:?}{n} {} {:.0} ms", kernel.name(), start.elapsed().as_secs_f64() * 1e3);
        }
    }
}
