//! The constants of zkDilithium's kernels, as headers: generated from the scheme's own, never retyped. The build
//! script, which compiles kernels, has this file too.

use hypergrove_zkdilithium::field::Fe;
use hypergrove_zkdilithium::ntt::ZETAS;
use hypergrove_zkdilithium::params::{BETA, ETA, GAMMA1, GAMMA2, N, Q, RATE, ROUNDS, T};
use hypergrove_zkdilithium::poseidon::{ANTIDIAGONALS, ROUND_CONSTANTS, hankel_factors};

/// The headers, by the paths that kernels include.
pub(crate) fn headers() -> [(&'static str, String); 4] {
    let (scheme, poseidon) = (("zk/scheme.h", scheme()), ("zk/poseidon_constants.h", poseidon()));
    [scheme, ("zk/zetas.h", zetas()), poseidon, ("zk/tensor_constants.h", tensor())]
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
    modulus + &bounds + &format!("#define CELLS {T}\n#define RATE {RATE}\n#define ROUNDS {ROUNDS}u\n")
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

/// Tiles of eight columns, and words of a lane's bytes: `zk/tensor.h` says what they are.
const TILES: usize = 14;
const WORDS: usize = 7;

/// The word of the matrix that a lane holds for a word of bytes: one column of a tile. Constants of `round` are in the row of d.
fn operand(tile: usize, word: usize, lane: usize, round: usize) -> u32 {
    let (column, quarter) = (lane / 4, lane % 4);
    let sum = 2 * tile + column % 2;
    if sum >= 27 {
        return 0;
    }
    let out = 9 * (column / 2) + sum / 3;
    let entry = |cell: usize| match (out < T, cell < T) {
        (true, true) => ANTIDIAGONALS[out + cell],
        (true, false) => ROUND_CONSTANTS[round][out],
        (false, is_cell) => Fe::new(u32::from(!is_cell)),
    };
    let shifted = |cell: usize, byte: usize| entry(9 * quarter + cell) * Fe::new(1 << (8 * byte));
    let factor = |byte: usize| match (word, byte) {
        (6, 3) if quarter == 0 => Fe::new(Q / 2),
        (6, 3) => Fe::ZERO,
        (6, _) => shifted(8, byte),
        (_, 3) => shifted(word / 3 * 4 + 3, word % 3),
        _ => shifted(word / 3 * 4 + word % 3, byte),
    };
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| digits(factor(byte))[sum % 3] as u8))
}

/// An element in three digits from -128 to 127, by powers of 256.
fn digits(x: Fe) -> [i8; 3] {
    let mut left = x.centred();
    [0, 1, 2].map(|_| {
        let digit = left as i8;
        left = (left - i32::from(digit)) >> 8;
        digit
    })
}

fn tensor() -> String {
    let lanes = |count: usize, of: &dyn Fn(usize, usize) -> u32| -> Vec<String> {
        let all = (0..32 * count).map(|i| [0, 1, 2, 3].map(|word| of(i / 32 * 4 + word, i % 32)));
        all.map(|[x, y, z, w]| format!("{{{x}u,{y}u,{z}u,{w}u}}")).collect()
    };
    let quads = |name: &str, values: &[String]| {
        let lines: Vec<String> = values.chunks(4).map(|line| line.join(", ")).collect();
        format!("static __device__ const uint4 {name}[{}] = {{\n{}\n}};\n", values.len(), lines.join(",\n"))
    };
    // Words 0 to 3 of each tile, words 4 and 5 of two tiles, word 6 of four tiles in each round.
    let front = lanes(TILES, &|i, lane| operand(i / 4, i % 4, lane, 0));
    let middle = lanes(TILES / 2, &|i, lane| operand(i / 2, 4 + i % 2, lane, 0));
    let end = lanes(4 * ROUNDS, &|i, lane| operand(i % 16, WORDS - 1, lane, i / 16));
    let half = (Q / 2).wrapping_mul(2u32.wrapping_sub(Q)) as i32;
    let reciprocal = (1u64 << 40) / u64::from(Q);
    let define = |name, x| format!("#define {name} {x}\n");
    define("R_SQUARED", i64::from((radix() * radix()).centred()))
        + &define("HALF_QUOTIENT", i64::from(half))
        + &define("RECIPROCAL", reciprocal as i64)
        + &table("TABLE", "I32", "FIRST", &scaled(Fe::ONE, "", ROUND_CONSTANTS[0].to_vec()))
        + &quads("FRONT", &front)
        + &quads("MIDDLE", &middle)
        + &quads("END", &end)
}

fn scaled(by: Fe, suffix: &str, xs: Vec<Fe>) -> Vec<String> {
    xs.into_iter().map(|x| format!("{}{suffix}", (x * by).centred())).collect()
}

fn table(kind: &str, element: &str, name: &str, values: &[String]) -> String {
    let lines: Vec<String> = values.chunks(10).map(|line| line.join(", ")).collect();
    format!("{kind}({element}, {name}, {})\n{}\nCONST_END\n", values.len(), lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product with the operands of tensor cores, as lanes compute it, is that with the matrix and a round's constants.
    #[test]
    fn operands_are_the_matrix() {
        let word = |cell: usize| 1 + (cell as u32 * 0x0009_8765) % (2 * Q);
        let bytes = |quarter: usize, i: usize| -> u32 {
            let u = |cell: usize| word(9 * quarter + cell);
            match i {
                6 => u(8) | 1 << 24,
                _ => u(i / 3 * 4 + i % 3) | (u(i / 3 * 4 + 3) >> (8 * (i % 3)) & 255) << 24,
            }
        };
        let dot = |a: u32, b: u32| -> i64 {
            let signed = b.to_le_bytes().map(|byte| i64::from(byte as i8));
            a.to_le_bytes().into_iter().zip(signed).map(|(a, b)| i64::from(a) * b).sum()
        };
        let class = |x: i64| Fe::new(x.rem_euclid(i64::from(Q)) as u32);
        for round in [0, 1, ROUNDS - 1] {
            for out in 0..=T {
                let sums = [0, 1, 2].map(|digit| {
                    let sum = 3 * (out % 9) + digit;
                    let column = out / 9 * 2 + sum % 2;
                    let lanes = (0..4 * WORDS)
                        .map(|i| dot(bytes(i % 4, i / 4), operand(sum / 2, i / 4, 4 * column + i % 4, round)));
                    lanes.sum::<i64>()
                });
                assert!(sums.iter().all(|sum| sum.abs() <= 108 * 255 * 128 + 128), "{sums:?}");
                let cells = (0..T).map(|cell| ANTIDIAGONALS[out % T + cell] * Fe::new(word(cell) % Q));
                let expected = match out {
                    T => Fe::new(word(T) % Q),
                    _ => cells.sum::<Fe>() + ROUND_CONSTANTS[round][out] * Fe::new(word(T) % Q),
                };
                let found = class(sums[0] + (sums[1] << 8) + (sums[2] << 16) - i64::from(Q / 2));
                assert_eq!(found, expected, "output {out} of round {round}");
            }
        }
    }
}
