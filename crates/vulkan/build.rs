//! Lists the modules in `spirv`, so that they can be found by name.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=spirv");
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says")).join("spirv");
    let mut files = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    let mut text = "static MODULES: &[(&str, &[u8])] = &[\n".to_owned();
    for path in files {
        let name = path.file_name().expect("a file").to_string_lossy();
        if let Some(name) = name.strip_suffix(".spv.gz") {
            // No path of this machine: a build in another folder gives the same bytes.
            let file = format!("/spirv/{name}.spv.gz");
            text += &format!("    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),\n");
        }
    }
    text += "];\n";
    std::fs::write(PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says")).join("modules.rs"), text)
}
