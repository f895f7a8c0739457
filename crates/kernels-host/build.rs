//! Compiles the kernels as functions of the host.

use hypergrove_fips205::Family;
use hypergrove_kernels::{family_number, generated_headers, host_headers};
use std::path::{Path, PathBuf};

/// The folder of the kernels' sources.
const KERNELS: &str = "../kernels";

fn main() {
    for path in ["entry", "hash", "stage", "zk", "dialect.h", "args.h", "family.h"] {
        println!("cargo::rerun-if-changed={KERNELS}/{path}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=host");
    let generated = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for (name, text) in generated_headers()
        .iter()
        .map(|(path, text)| (*path, text))
        .chain(host_headers().iter().map(|(name, text)| (*name, text)))
    {
        write(&generated.join(name), text);
    }
    for &family in Family::ALL {
        for n in [16, 24, 32] {
            let name = format!("hypergrove_{}_{n}", family.name().to_ascii_lowercase());
            let mut build = compiler(&generated, "host/kernels.cpp", &name);
            build.define("FAMILY", family_number(family).to_string().as_str()).define("N", n.to_string().as_str());
            build.compile(&name);
        }
    }
    for (fp64, name) in ["integers", "doubles"].iter().enumerate() {
        let name = format!("hypergrove_zk_{name}");
        let mut build = compiler(&generated, "host/zk.cpp", &name);
        build.define("FP64", fp64.to_string().as_str()).define("MAX_THREADS", "256");
        build.compile(&name);
    }
}

fn compiler(generated: &Path, file: &str, name: &str) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .warnings(false)
        .include(KERNELS)
        .include(".")
        .include(generated)
        .file(file);
    // Rotations of one instruction take a quarter off the time of a hash. Tests run where they are built.
    #[cfg(target_arch = "x86_64")]
    if std::env::var("TARGET") == std::env::var("HOST") && std::is_x86_feature_detected!("bmi2") {
        build.flag_if_supported("-mbmi").flag_if_supported("-mbmi2");
    }
    build.define("NAME", name).define("IMAD", "0").define("UNROLLED", "0");
    build
}

fn write(path: &Path, text: &str) {
    let folder = path.parent().expect("it is in a folder");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
