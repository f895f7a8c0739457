//! The constants of zkDilithium's kernels, as headers: generated from the scheme's own, never retyped. The build
//! script, which compiles kernels, has this file too.

use hypergrove_zkdilithium::field::Fe;
use hypergrove_zkdilithium::ntt::ZETAS;
use hypergrove_zkdilithium::params::{BETA, ETA, GAMMA1, GAMMA2, N, Q, RATE, T};
use hypergrove_zkdilithium::poseidon::{ROUND_CONSTANTS, hankel_factors};

/// The headers, by the paths that kernels include.
pub(crate) fn headers() -> [(&'static str, String); 3] {
    [("zk/scheme.h", scheme()), ("zk/zetas.h", zetas()), ("zk/poseidon_constants.h", poseidon())]
        .map(|(path, text)| (path, format!("// Generated from crates/zkdilithium.\n{text}")))
}

/// R of Montgomery's product.
fn radix() -> Fe {
    Fe::new(((1u64 << 32) % u64::from(Q)) as u32)
}

fn scheme() -> String {
    // 1 + 7·2^20 and 1 - 7·2^20 have the product 1 modulo 2^32.
    let inverse = 2u32.wrapping_sub(Q);
    assert_eq!(inverse.wrapping_mul(Q), 1);
    let modulus = format!("#define Q {Q}\n#define Q_INVERSE {inverse}u\n#define DEGREE {N}u\n");
    let bounds = format!("#define ETA {ETA}\n#define BETA {BETA}\n#define GAMMA1 {GAMMA1}\n#define GAMMA2 {GAMMA2}\n");
    modulus + &bounds + &format!("#define CELLS {T}\n#define RATE {RATE}\n")
}

fn zetas() -> String {
    // The inverse transform takes sums of products, which are R times too small; `scale` makes up for that.
    let scale = Fe::new(N as u32).inv() * radix();
    let inverse = |k: usize| if k == 1 { ZETAS[k].inv() * scale } else { ZETAS[k].inv() };
    let words = |xs: Vec<Fe>| scaled(radix(), "", xs);
    let define = format!("#define SCALE {}\n", (scale * radix()).centred());
    define
        + &table("TABLE", "I32", "ZETAS", &words(ZETAS.to_vec()))
        + &table("TABLE", "I32", "INVERSE_ZETAS", &words((0..N).map(inverse).collect()))
}

fn poseidon() -> String {
    // A reduction of sums divides by R. In integers, the factors R make up for that. In doubles, the cells lose R and
    // their denominator does not, which the matrix makes up for.
    let sums = |numerators: Fe, constants: Fe, suffix: &str| {
        let define = |name, x: Fe, suffix| format!("#define {name} {}{suffix}\n", x.centred());
        let round_constants = ROUND_CONSTANTS.as_flattened().to_vec();
        define("UNIT", constants, suffix)
            + &define("UNIT_SQUARED", constants * radix(), "")
            + &define("INVERSE_UNIT", radix() * constants.inv(), "")
            + &table("UNIFORM", "Factor", "ROUND_CONSTANTS", &scaled(constants, suffix, round_constants))
            + &table("UNIFORM", "Factor", "MATRIX", &scaled(numerators, suffix, hankel_factors()))
    };
    let (doubles, integers) = (sums(radix().inv(), Fe::ONE, ".0"), sums(radix(), radix(), ""));
    // Larger than any reduced element.
    format!("#define ONE_FOR_ZERO {}\n#if FP64\n{doubles}#else\n{integers}#endif\n", Q + 1)
}

fn scaled(by: Fe, suffix: &str, xs: Vec<Fe>) -> Vec<String> {
    xs.into_iter().map(|x| format!("{}{suffix}", (x * by).centred())).collect()
}

fn table(kind: &str, element: &str, name: &str, values: &[String]) -> String {
    let lines: Vec<String> = values.chunks(10).map(|line| line.join(", ")).collect();
    format!("{kind}({element}, {name}, {})\n{}\nCONST_END\n", values.len(), lines.join(",\n"))
}
