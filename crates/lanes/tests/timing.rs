//! Running times that do not depend on secrets, as dudect measures them (Reparaz, Balasch and Verbauwhede, "Dude, is my code
//! constant time?", 2017), for instruction sets that Valgrind does not know. `cargo xtask ci full secrets` runs it.
//!
//! A function is timed with one fixed secret and with random ones, in random order. Welch's t says whether the means differ;
//! t beyond ±10 is no chance. Interrupts hide small differences, so that t is also taken of the fastest measurements alone.
//! A t near 0 proves nothing: it finds no difference in so many measurements.

use hypergrove_fips205::Family;
use hypergrove_lanes::{
    AdrsWords, Constants, Factors, Isa, KeyState, Keys, Lattice, Rows, Shake, Steps, Trace, TweakableHash, Width,
    lattice, tweakable_hash,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Measurements of each function.
const MEASUREMENTS: usize = 100_000;
/// Shares of all measurements, the fastest first, of which t is taken.
const CROPS: [f64; 6] = [0.25, 0.5, 0.75, 0.9, 0.99, 1.0];
/// The value of t from which dudect is certain of a difference.
const CERTAIN: f64 = 10.0;
/// q of zkDilithium.
const Q: u32 = 7_340_033;

/// xorshift64*: the order of measurements and the secrets need be no better.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&self.next().to_le_bytes()[..bytes.len()]));
    }
}

/// A secret that random ones are compared with. Not zeros: CPUs store lines of zeros faster than others.
fn fixed(bytes: usize) -> Vec<u8> {
    let mut fixed = vec![0; bytes];
    Random(0x0123_4567_89ab_cdef).fill(&mut fixed);
    fixed
}

/// The largest |t| of a function, which makes ready for a secret and then times itself.
fn largest_t(fixed: &[u8], mut timed: impl FnMut(&[u8]) -> Duration) -> f64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut drawn, mut secret) = (vec![0; fixed.len()], vec![0; fixed.len()]);
    let mut times: Vec<(f64, bool)> = (0..MEASUREMENTS)
        .map(|_| {
            // Both kinds of secrets come to the same place in the same way.
            random.fill(&mut drawn);
            let is_random = random.next() >> 63 == 1;
            // Hidden from the compiler, which else copies one of the two and leaves the other out of the cache.
            let mask = black_box(0u8.wrapping_sub(is_random.into()));
            for ((secret, drawn), fixed) in secret.iter_mut().zip(&drawn).zip(fixed) {
                *secret = drawn & mask | fixed & !mask;
            }
            (timed(&secret).as_nanos() as f64, is_random)
        })
        .skip(MEASUREMENTS / 20)
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let t = |share: f64| welch(&times[..(times.len() as f64 * share) as usize]).abs();
    CROPS.into_iter().map(t).fold(0.0, f64::max)
}

/// Welch's t.
fn welch(times: &[(f64, bool)]) -> f64 {
    let [(mean_a, error_a), (mean_b, error_b)] = [false, true].map(|kind| {
        let of_kind = || times.iter().filter(|(_, of)| *of == kind).map(|(time, _)| *time);
        let count = of_kind().count().max(2) as f64;
        let mean = of_kind().sum::<f64>() / count;
        (mean, of_kind().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0) / count)
    });
    (mean_a - mean_b) / (error_a + error_b).sqrt().max(1e-3)
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Sets that Valgrind does not know.
fn instruction_sets() -> impl Iterator<Item = Isa> {
    Isa::available().into_iter().filter(|isa| !["portable", "avx2"].contains(&isa.name()))
}

/// Prints each t, and fails if one is certain.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn row(&mut self, what: String, t: f64) {
        println!("checked: t = {t:5.2} of {MEASUREMENTS} measurements: {what}");
        if t > CERTAIN {
            self.0.push(what);
        }
    }
    fn judge(self) {
        assert!(self.0.is_empty(), "running time depends on secrets: {}", self.0.join("; "));
    }
}

fn hash_rows(table: &mut Table, isa: Isa, hash: &dyn TweakableHash, family: Family) {
    const W: usize = 16;
    let (n, jobs) = (hash.n(), hash.lanes() + 1);
    let adrs: Vec<AdrsWords> = (0..jobs as u32).map(|i| [0, 0, 0, 0, 0, 0, i, 0]).collect();
    let (mut nodes, mut values) = (vec![0; 2 * jobs * n], vec![0; jobs * W * n]);
    let chains: Vec<u32> = (0..jobs as u32).collect();
    let mut row = |what: &str, work: &mut dyn FnMut(Keys<'_>, &mut [u8])| {
        let t = largest_t(&fixed((1 + 2 * jobs) * n), |secret| {
            let (seed, secret) = secret.split_at(n);
            let key = KeyState::new(&vec![1; n], seed);
            nodes.copy_from_slice(secret);
            time(|| work(Keys::One(&key), &mut nodes))
        });
        table.row(format!("{}, {family:?}, n = {n}: {what}", isa.name()), t);
    };
    row("PRF", &mut |keys, nodes| hash.prf(keys, &adrs, &mut nodes[..jobs * n]));
    row("F", &mut |keys, nodes| hash.f(keys, &adrs, &mut nodes[..jobs * n]));
    let mut out = vec![0; jobs * n];
    row("H", &mut |keys, nodes| hash.t_l(keys, &adrs, 2, nodes, &mut out));
    row("chains with their values", &mut |keys, nodes| {
        let trace = Trace { chains: &chains, out: &mut values };
        hash.chain(keys, &adrs, W, Steps::All, &mut nodes[..jobs * n], Some(trace));
    });
}

#[test]
fn hashing_takes_as_long_for_every_secret() {
    let mut table = Table::default();
    for isa in instruction_sets() {
        for (family, n) in [(Family::Sha2, 16), (Family::Sha2, 32), (Family::Shake, 16)] {
            hash_rows(&mut table, isa, &*tweakable_hash(isa, family, n).expect("available"), family);
        }
    }
    table.judge();
}

fn lattice_rows(table: &mut Table, isa: Isa, lattice: &dyn Lattice) {
    const N: usize = 256;
    let (lanes, row) = (lattice.lanes(), N * lattice.lanes());
    let (mut a, mut b) = (Rows::new(4 * N, lanes), Rows::new(4 * N, lanes));
    let mut out = Rows::new(4 * N, lanes);
    let mut line = |what: &str, fixed: &[u8], work: &mut dyn FnMut(&mut [f64], &[f64], &mut [f64])| {
        let t = largest_t(fixed, |secret| {
            for (i, bytes) in secret.as_chunks::<4>().0.iter().enumerate() {
                a[i] = f64::from(u32::from_le_bytes(*bytes) % Q) - f64::from(Q / 2) * f64::from(bytes[0] & 1);
            }
            b.copy_from_slice(&a);
            time(|| work(&mut a, &b, &mut out))
        });
        table.row(format!("{}, {lanes} lanes: {what}", isa.name()), t);
    };
    let four = fixed(4 * 4 * row);
    line("transform", &four, &mut |a, _, _| lattice.ntt(&mut a[..row]));
    line("transform back", &four, &mut |a, _, _| lattice.intt(&mut a[..row]));
    line("products", &four, &mut |a, b, out| lattice.dot(Factors::Each(&b[..row]), &a[..row], &mut out[..row]));
    line("sums", &four, &mut |a, b, _| lattice.add(a, b));
    line("norms of sums", &four, &mut |a, b, out| lattice.add_norms(a, b, &mut out[..lanes]));
    line("high parts", &four, &mut |a, _, out| lattice.high_parts(a, out));
    line("norms of low parts", &four, &mut |a, b, out| lattice.low_norms(a, &b[..4 * row], &mut out[..lanes]));
    // Poseidon inverts cells, and takes another number where one is zero.
    let state = 36 * lanes;
    for (what, fixed) in [("Poseidon", &four[..4 * state]), ("Poseidon of zeros", &vec![0; 4 * state])] {
        line(what, fixed, &mut |a, _, _| {
            lattice.permute(lanes, &mut a[..state]);
        });
    }
    let (mut columns, mut packed) = (vec![0; N], vec![0; N * 3 / 8]);
    let t = largest_t(&fixed(N), |secret| {
        columns.iter_mut().zip(secret).for_each(|(x, secret)| *x = i32::from(secret % 5) - 2);
        time(|| lattice.pack_short(&columns, &mut packed))
    });
    table.row(format!("{}, {lanes} lanes: packing s1 and s2", isa.name()), t);
    let mut stream = vec![0; lanes * 2 * Shake::Shake256.rate()];
    let t = largest_t(&fixed(66 * lanes), |secret| time(|| lattice.shake(Shake::Shake256, secret, 66, &mut stream, 2)));
    table.row(format!("{}, {lanes} lanes: SHAKE256", isa.name()), t);
}

#[test]
fn arithmetic_takes_as_long_for_every_secret() {
    let constants =
        Constants { zeta: 3_483_618, round_constants: &[1; 735], matrix: &[2; 270], antidiagonals: &[3; 69] };
    let mut table = Table::default();
    for isa in instruction_sets() {
        for width in [Width::Narrow, Width::Wide] {
            lattice_rows(&mut table, isa, &*lattice(isa, width, &constants).expect("available"));
        }
    }
    table.judge();
}

/// The control: a comparison that ends at the first byte that differs, and a branch that costs a few cycles.
#[test]
fn planted_differences_are_found() {
    let fixed = fixed(256);
    let compared = largest_t(&fixed, |secret| {
        time(|| {
            black_box(fixed.iter().zip(secret).take_while(|(a, b)| a == b).count());
        })
    });
    let branched = largest_t(&[0], |secret| {
        let steps = |secret: &[u8]| if secret[0] > 127 { 400 } else { 300 };
        time(|| {
            (0..steps(secret)).fold(0u64, |sum, step| black_box(sum) + step);
        })
    });
    println!("checked: t = {compared:.2} of a comparison, t = {branched:.2} of a branch; both are planted");
    assert!(compared > CERTAIN && branched > CERTAIN);
}
