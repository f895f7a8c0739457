//! The constants of zkDilithium's kernels, as `zk/constants.h`: generated from the scheme's own, never retyped. The build
//! script, which compiles kernels, has this file too.

use hypergrove_zkdilithium::field::Fe;
use hypergrove_zkdilithium::ntt::ZETAS;
use hypergrove_zkdilithium::params::{N, Q};
use hypergrove_zkdilithium::poseidon::{ROUND_CONSTANTS, hankel_factors};

/// The header's path, as kernels include it.
pub(crate) const PATH: &str = "zk/constants.h";

/// The header.
pub(crate) fn header() -> String {
    let radix = Fe::new((1u64 << 32).rem_euclid(u64::from(Q)) as u32);
    let tables = |radix: Fe, suffix: &str| {
        let scaled = |xs: &mut dyn Iterator<Item = Fe>| -> Vec<String> {
            xs.map(|x| format!("{}{suffix}", (x * radix).centred())).collect()
        };
        let round_constants = scaled(&mut ROUND_CONSTANTS.iter().flatten().copied());
        let define = |name, x: Fe| format!("#define {name} Fe({})\n", x.centred());
        define("UNIT", radix)
            + &define("UNIT_SQUARED", radix * radix)
            + &table("UNIFORM", "Fe", "ROUND_CONSTANTS", &round_constants)
            + &table("UNIFORM", "Fe", "MATRIX", &scaled(&mut hankel_factors().into_iter()))
    };
    let words = |xs: Vec<Fe>| -> Vec<String> { xs.iter().map(|x| (*x * radix).centred().to_string()).collect() };
    // What leaves a product is R times too small: before the inverse transform that happens once more.
    let scale = Fe::new(N as u32).inv() * radix;
    let inverse = |k: usize| if k == 1 { ZETAS[k].inv() * scale } else { ZETAS[k].inv() };
    // 1 + 7·2^20 and 1 - 7·2^20 have the product 1 modulo 2^32.
    let inverse_of_q = 2u32.wrapping_sub(Q);
    assert_eq!(inverse_of_q.wrapping_mul(Q), 1);
    [
        "// Generated from crates/zkdilithium.\n".to_owned(),
        format!("#define Q {Q}\n#define Q_INVERSE {inverse_of_q}u\n"),
        // Larger than any reduced element.
        format!("#define ONE_FOR_ZERO Fe({})\n", Q + 1),
        format!("#define SCALE {}\n", (scale * radix).centred()),
        format!("#if FP64\n{}#else\n{}#endif\n", tables(Fe::ONE, ".0"), tables(radix, "")),
        table("TABLE", "I32", "ZETAS", &words(ZETAS.to_vec())),
        table("TABLE", "I32", "INVERSE_ZETAS", &words((0..N).map(inverse).collect())),
    ]
    .concat()
}

fn table(kind: &str, element: &str, name: &str, values: &[String]) -> String {
    let lines: Vec<String> = values.chunks(10).map(|line| line.join(", ")).collect();
    format!("{kind}({element}, {name}, {})\n{}\nCONST_END\n", values.len(), lines.join(",\n"))
}
