//! `cargo xtask sass`: the instructions of the kernels' innermost loops by pipe, as the pinned NVRTC compiles them for an H100. No GPU is needed.

use crate::wheels::{self, Wheel};
use crate::{disk, kernels, process};
use hypergrove_fips205::Family;
use hypergrove_kernels::{CHAINS_BLOCKS, Config, IMAD, Kernel, UNROLLED, source};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Command;

const NVDISASM: &Wheel = &Wheel { what: "nvdisasm", name: "nvdisasm", pinned: "xtask/nvdisasm.txt", megabytes: 5 };
const KERNELS: [Kernel; 5] = [Kernel::Chains, Kernel::Complete, Kernel::Fors, Kernel::Xmss, Kernel::Climb];
/// Instructions of a loop that hashes, at least.
const LEAST: usize = 100;

/// A program in Python that compiles each source whose path follows that of NVRTC.
const COMPILE: &str = "xtask/nvrtc.py";

/// Prints a line of JSON for each innermost loop of each kernel, of each family and n, under the default policy.
pub(crate) fn run() -> Result<(), String> {
    let (nvrtc, nvdisasm) = (kernels::ensure_nvrtc()?, wheels::ensure(NVDISASM)?.join("nvidia/cu13/bin/nvdisasm"));
    let folder = process::target().join("sass");
    disk::make(&folder)?;
    let mut compiled = Vec::new();
    for (name, family) in [("sha2", Family::Sha2), ("shake", Family::Shake)] {
        for (n, kernel) in [16, 24, 32].into_iter().flat_map(|n| KERNELS.map(|kernel| (n, kernel))) {
            let defines = vec![("CHAINS_BLOCKS", CHAINS_BLOCKS), ("IMAD", IMAD), ("UNROLLED", UNROLLED)];
            let path = folder.join(format!("{}-{name}-{n}.cu", kernel.name()));
            disk::write(&path, source(kernel, &Config { family, n, defines }))?;
            compiled.push((kernel.name(), name, n, path));
        }
    }
    let mut python = Command::new("python3");
    python.arg(COMPILE).env("LD_LIBRARY_PATH", &nvrtc).arg(nvrtc.join("libnvrtc.so.13"));
    python.args(compiled.iter().map(|(.., path)| path));
    process::run(python)?;
    for (kernel, family, n, path) in compiled {
        let text = process::text(Command::new(&nvdisasm).arg("-c").arg(path.with_extension("cubin")))?;
        for (number, pipes) in loops(&text).into_iter().enumerate() {
            let mut line = json!(pipes);
            line["architecture"] = json!("sm_90");
            line["kernel"] = json!(kernel);
            line["family"] = json!(family);
            line["n"] = json!(n);
            line["loop"] = json!(number);
            println!("{line}");
        }
    }
    Ok(())
}

/// The pipe of an instruction. Of multiplications, those for high words take a turn of the integer pipe as well.
fn pipe(name: &str) -> &'static str {
    const INTEGER: &str =
        "BMSK FLO IABS IADD IADD3 IMNMX ISETP LEA LOP3 MOV PLOP3 POPC PRMT SEL SGXT SHF VIADD VIADDMNMX VIMNMX VOTE";
    let (first, modifiers) = name.split_once('.').unwrap_or((name, ""));
    match first {
        "IMAD" if modifiers.starts_with("HI") || modifiers.starts_with("WIDE") => "both",
        "IMAD" => "multiply_add",
        _ if INTEGER.split(' ').any(|integer| integer == first) => "integer",
        _ if ["LD", "ST", "ATOM", "RED"].iter().any(|begin| first.starts_with(begin)) => "memory",
        _ => "other",
    }
}

/// Instructions by pipe of each loop of a listing that has no other loop in it.
fn loops(listing: &str) -> Vec<BTreeMap<&'static str, usize>> {
    let (mut names, mut labels, mut ends) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for line in listing.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix(".L_x_").and_then(|rest| rest.strip_suffix(':')) {
            labels.insert(label, names.len());
        }
        let Some((_, text)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) else { continue };
        let mut words = text.split([' ', ';']).filter(|word| !word.is_empty() && !word.starts_with('@'));
        let Some(name) = words.next() else { continue };
        if let Some(target) =
            words.find_map(|word| word.strip_prefix("`(.L_x_")?.strip_suffix(')')).filter(|_| name.starts_with("BRA"))
        {
            // To an earlier label: the loop's end is its last branch.
            labels.get(target).map(|begin| ends.insert(*begin, names.len() + 1));
        }
        names.push(name);
    }
    let long: Vec<_> = ends.into_iter().filter(|(begin, end)| end - begin >= LEAST).collect();
    let has_another =
        |(begin, end): (usize, usize)| long.iter().any(|(b, e)| (*b, *e) != (begin, end) && *b >= begin && *e <= end);
    let count = |(begin, end): (usize, usize)| {
        let mut pipes = BTreeMap::from([("integer", 0), ("multiply_add", 0), ("both", 0), ("memory", 0), ("other", 0)]);
        names[begin..end].iter().for_each(|name| *pipes.entry(pipe(name)).or_default() += 1);
        pipes
    };
    long.iter().copied().filter(|each| !has_another(*each)).map(count).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn innermost_loops_are_counted_by_pipe() {
        let body = "  /*0010*/  LOP3.LUT R1, R2, R3, RZ, 0x3c, !PT ;\n  /*0020*/  @!P0 IMAD.IADD R1, R1, 0x1, R2 ;\n"
            .repeat(LEAST / 2);
        let more = "  /*0030*/  IMAD.HI.U32 R1, R2, R3, R4 ;\n  /*0040*/  LDG.E R1, desc[UR4][R2.64] ;\n";
        let listing = format!(
            ".text.chains:\n.L_x_0:\n  /*0000*/  NOP ;\n.L_x_1:\n{body}{more}  /*0050*/  @P1 BRA `(.L_x_1) ;\n\
             \x20 /*0060*/  BRA `(.L_x_2) ;\n.L_x_2:\n  /*0070*/  @P2 BRA `(.L_x_0) ;\n.L_x_3:\n  /*0080*/  BRA `(.L_x_3) ;\n"
        );
        let half = LEAST / 2;
        let counts = [("integer", half), ("multiply_add", half), ("both", 1), ("memory", 1), ("other", 1)];
        assert_eq!(loops(&listing), [BTreeMap::from(counts)]);
        assert_eq!(
            ["SHF.R.U32.HI", "IMAD.MOV.U32", "IMAD.WIDE.U32", "UIADD3", "STS.64"].map(pipe),
            ["integer", "multiply_add", "both", "other", "memory"]
        );
    }
}
