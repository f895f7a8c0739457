//! zkDilithium's arithmetic on every instruction set against the scheme's own, instance by instance: few enough for Miri,
//! which is also how sets that this CPU lacks are run.

use hypergrove_lanes::{Constants, Factors, Isa, Lattice, Rows, SLACK, Shake, Width, lattice};
use hypergrove_zkdilithium::Fe;
use hypergrove_zkdilithium::ntt::{intt, ntt};
use hypergrove_zkdilithium::pack::pack_codes;
use hypergrove_zkdilithium::params::{ETA_BYTES, GAMMA2, N, Q, T, ZETA};
use hypergrove_zkdilithium::poseidon::{ANTIDIAGONALS, ROUND_CONSTANTS, hankel_factors, permute};
use hypergrove_zkdilithium::ring::{NttElement, RingElement, decompose};
use hypergrove_zkdilithium::trace::Trace;
use shake::digest::{ExtendableOutput, Update, XofReader};

/// Miri takes a thousand times as long: there one of so many is checked.
const SLOW: usize = if cfg!(miri) { 5 } else { 1 };

fn every_lattice(test: impl Fn(&str, &dyn Lattice)) {
    let round_constants: Vec<u32> = ROUND_CONSTANTS.iter().flatten().map(|x| x.value()).collect();
    let matrix: Vec<u32> = hankel_factors().iter().map(|x| x.value()).collect();
    let antidiagonals: Vec<u32> = ANTIDIAGONALS.iter().map(|x| x.value()).collect();
    let constants =
        Constants { zeta: ZETA, round_constants: &round_constants, matrix: &matrix, antidiagonals: &antidiagonals };
    // The set that few CPUs have, once: the others run where Miri does.
    let of_miri = |isa: &&Isa| !cfg!(miri) || isa.name() == "avx512";
    let widths = if cfg!(miri) { &[Width::Narrow][..] } else { &[Width::Narrow, Width::Wide] };
    for isa in Isa::ALL.iter().filter(of_miri) {
        for &width in widths {
            match lattice(*isa, width, &constants) {
                Some(lattice) => test(isa.name(), &*lattice),
                None => println!("skipped: {}: this CPU lacks it", isa.name()),
            }
        }
    }
}

/// Element i of an instance: no two alike, the field's ends among them.
fn value(instance: usize, i: usize) -> u32 {
    match i % 11 {
        3 => 0,
        7 => Q - 1,
        _ => ((instance * 7_654_321 + i * 123_457 + i * i * 991) % Q as usize) as u32,
    }
}
fn rows(lanes: usize, count: usize, of: impl Fn(usize, usize) -> f64) -> Rows {
    let mut rows = Rows::new(count, lanes);
    for (at, row) in rows.iter_mut().enumerate() {
        *row = of(at % lanes, at / lanes);
    }
    rows
}
/// The element that a number stands for.
fn fe(x: f64) -> Fe {
    assert!(x == x.round());
    Fe::new((x as i64).rem_euclid(i64::from(Q)) as u32)
}

#[test]
fn poseidon_of_every_instruction_set_is_the_schemes() {
    every_lattice(|name, lattice| {
        let lanes = lattice.lanes();
        // Zeros at S-boxes of the first round: none, one, several, all; different ones in each lane.
        let start = |lane: usize, i: usize| match lane % 4 {
            1 if i == lane => -ROUND_CONSTANTS[0][i],
            2 if i.is_multiple_of(3) => -ROUND_CONSTANTS[0][i],
            3 => -ROUND_CONSTANTS[0][i],
            _ => Fe::new(value(lane, i)),
        };
        let begun = |lane: usize, i: usize| if i < T { f64::from(start(lane, i).value()) } else { 1.0 };
        let added = |lane: usize, i: usize| Fe::new(value(lane + 1, 24 + i));
        let expected = |lane: usize| {
            let mut state = std::array::from_fn(|i| start(lane, i));
            let mut trace = Trace::default();
            permute(&mut state, &mut trace);
            assert!(lane.is_multiple_of(4) || trace.zero_inputs > 0);
            for i in 0..2 {
                state[i] = state[i] + added(lane, i);
            }
            permute(&mut state, &mut trace);
            state.map(|x| f64::from(x.value()))
        };
        // A whole block and a short one: the denominator is one at first and another then.
        let mut states = rows(lanes, T + 1, begun);
        let blocks = rows(lanes, 26, |lane, i| if i < 24 { 0.0 } else { f64::from(added(lane, i - 24).value()) });
        lattice.absorb(lanes, &mut states, &blocks);
        let mut cells = Rows::new(T, lanes);
        lattice.squeeze(&states, &mut cells);
        for lane in (0..lanes).step_by(SLOW) {
            for (i, x) in expected(lane).iter().enumerate() {
                assert_eq!(cells[i * lanes + lane], *x, "{name}, {lanes}: lane {lane}, cell {i}");
            }
        }
        // Each of the four kinds alone; what stands in the other lanes is no matter.
        for kind in if cfg!(miri) { 2..3 } else { 0..4 } {
            let mut states = rows(lanes, T + 1, |lane, i| if lane == 0 { begun(kind, i) } else { 1.0 });
            lattice.permute(1, &mut states);
            lattice.absorb(1, &mut states, &rows(lanes, 2, |_, i| f64::from(added(kind, i).value())));
            lattice.squeeze(&states, &mut cells);
            for (i, x) in expected(kind).iter().enumerate() {
                assert_eq!(cells[i * lanes], *x, "{name}, {lanes}: kind {kind} alone, cell {i}");
            }
        }
    });
}

#[test]
fn polynomials_of_every_instruction_set_are_the_schemes() {
    every_lattice(|name, lattice| {
        let lanes = lattice.lanes();
        let polynomial =
            |lane: usize, salt: usize| RingElement(std::array::from_fn(|i| Fe::new(value(lane + salt, i))));
        let mut values = rows(lanes, 2 * N, |lane, i| value(lane + i / N, i % N).into());
        lattice.ntt(&mut values);
        assert!(values.iter().all(|x| x.abs() <= 6.0 * f64::from(Q)));
        for lane in (0..lanes).step_by(SLOW) {
            let expected = [0, 1].map(|salt| ntt(&polynomial(lane, salt)));
            for i in 0..2 * N {
                let x = values[i * lanes + lane];
                assert_eq!(fe(x), expected[i / N].0[i % N], "{name}, {lanes}: lane {lane}, value {i}");
            }
        }
        // Factors that all lanes share, and each lane's own, by rows and by columns.
        let factor = |lane: usize, i: usize| f64::from(value(5 * lane + 3, i));
        let (same, each) = (rows(1, 2 * N, factor), rows(lanes, 2 * N, factor));
        let column =
            |polynomial: usize, lane: usize| (0..N).map(move |i| value(5 * lane + 3, polynomial * N + i) as i32);
        let columns: Vec<i32> = [0, 1].iter().flat_map(|p| (0..lanes).flat_map(|lane| column(*p, lane))).collect();
        let mut out = Rows::new(N, lanes);
        type Product<'a> = &'a dyn Fn(&mut [f64]);
        let products: [(bool, Product<'_>); 3] = [
            (false, &|out| lattice.dot(Factors::Same(&same), &values, out)),
            (true, &|out| lattice.dot(Factors::Each(&each), &values, out)),
            (true, &|out| lattice.dot_columns(&columns, &values, out)),
        ];
        for (mine, dot) in products {
            dot(&mut out);
            lattice.intt(&mut out);
            for lane in (0..lanes).step_by(3 * SLOW) {
                let values = [0, 1].map(|salt| ntt(&polynomial(lane, salt)));
                let term = |i: usize| fe(factor(if mine { lane } else { 0 }, i)) * values[i / N].0[i % N];
                let expected = intt(&NttElement(std::array::from_fn(|i| term(i) + term(N + i))));
                for i in 0..N {
                    let x = out[i * lanes + lane];
                    assert_eq!(fe(x), expected.0[i], "{name}, {lanes}: lane {lane}, coefficient {i}");
                    assert!(x.abs() <= f64::from(Q.div_ceil(2)));
                }
            }
        }
    });
}

#[test]
fn decompose_of_every_instruction_set_is_the_schemes() {
    // Around every border, and the field's ends.
    let edges: Vec<u32> = (0..112)
        .flat_map(|i| (0..5).map(move |k| i * GAMMA2 + k))
        .map(|x| x.saturating_sub(2))
        .chain(Q - 3..Q)
        .filter(|x| *x < Q)
        .collect();
    every_lattice(|name, lattice| {
        let lanes = lattice.lanes();
        for part in edges.chunks(2 * lanes).step_by(50 * SLOW - 49) {
            // Centred or not; minus something that comes to nothing.
            let at = |lane: usize, i: usize| part[(i * lanes + lane) % part.len()];
            let a = rows(lanes, 2 * N, |lane, i| Fe::new(at(lane, i)).centred().into());
            let mut high = Rows::new(2 * N, lanes);
            lattice.high_parts(&a, &mut high);
            for (place, x) in high.iter().enumerate() {
                let (lane, row) = (place % lanes, place / lanes);
                // Column by column: row 2i + p is coefficient i of polynomial p.
                let r = Fe::new(at(lane, row % 2 * N + row / 2));
                assert_eq!(*x, f64::from(decompose(r).1), "{name}, {lanes}: high part of {}", r.value());
            }
            for r in part {
                let a = rows(lanes, 1, |_, _| f64::from(*r) - 5.0);
                let b = rows(lanes, 1, |lane, _| if lane == 0 { -5.0 } else { f64::from(*r) - 5.0 });
                let mut norms = Rows::new(1, lanes);
                lattice.low_norms(&a, &b, &mut norms);
                assert_eq!(norms[0], f64::from(decompose(Fe::new(*r)).0.abs()), "{name}, {lanes}: low part of {r}");
                assert!(norms[1..].iter().all(|norm| *norm == 0.0));
            }
        }
    });
}

/// Where a sampler's streams end, or what they are made of.
const STREAMS: [&str; 6] = ["none", "all", "just enough at the end", "one too few", "mixed", "mixed otherwise"];

/// Checks a sampler of codes: `pack` makes a stream of them, `kept` is what it should keep, and `code` gives the i-th
/// candidate that is kept, or rejected.
fn check_sampler(
    name: &str,
    pack: impl Fn(&[u32]) -> Vec<u8>,
    kept: impl Fn(u32) -> Option<i32>,
    code: impl Fn(usize, bool) -> u32,
    sample: impl Fn(&[u8], &mut [i32]) -> bool,
) {
    const CODES: usize = N + 80;
    let keep = |stream: usize, i: usize| match stream {
        0 => false,
        1 => true,
        2 => i >= CODES - N,
        3 => i > CODES - N,
        _ => (i * i + i / 7 * stream) % 8 != 3,
    };
    for stream in (0..STREAMS.len()).step_by(if cfg!(miri) { 4 } else { 1 }) {
        let codes: Vec<u32> = (0..CODES).map(|i| code(i, keep(stream, i))).collect();
        let expected: Vec<i32> = codes.iter().filter_map(|code| kept(*code)).collect();
        let bytes = pack(&codes);
        let mut out = vec![7; N + SLACK];
        let whole = sample(&bytes, &mut out);
        assert_eq!(whole, expected.len() >= N, "{name}: {}", STREAMS[stream]);
        assert_eq!(whole, ![0, 3].contains(&stream));
        assert!(!whole || out[..N] == expected[..N], "{name}: {}", STREAMS[stream]);
    }
}

#[test]
fn samplers_of_every_instruction_set_are_the_schemes() {
    // Both sides of the border, the ends, and a top bit that counts for nothing.
    let border = |i: usize, keep: bool| match keep {
        true => [Q - 1, 0, value(1, i)][i % 3],
        false => [Q, 0x7f_ffff][i % 2],
    };
    every_lattice(|name, lattice| {
        check_sampler(
            name,
            |codes| codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(3)).collect(),
            |code| Some((code & 0x7f_ffff) as i32).filter(|x| *x < Q as i32),
            |i, keep| border(i, keep) | (i as u32 & 1) << 23,
            |stream, out| lattice.uniform(stream, out),
        );
        check_sampler(
            name,
            |codes| codes.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect(),
            |code| (code < 15).then_some(2 - (code % 5) as i32),
            |i, keep| if keep { value(2, i) % 15 } else { 15 },
            |stream, out| lattice.short(stream, out),
        );
        let numbers: Vec<i32> = (0..N).map(|i| 2 - (value(3, i) % 5) as i32).collect();
        let (mut expected, mut packed) = ([0; ETA_BYTES], [0; ETA_BYTES]);
        pack_codes::<3>(&numbers, |x| (2 - x) as u32, &mut expected);
        lattice.pack_short(&numbers, &mut packed);
        assert_eq!(packed, expected, "{name}");
    });
}

#[test]
fn columns_of_every_instruction_set_are_rows() {
    every_lattice(|name, lattice| {
        let (lanes, count) = (lattice.lanes(), 24);
        let element = |lane: usize, i: usize| (value(lane, i) as i32) * (1 - 2 * (i as i32 & 1));
        let columns: Vec<i32> = (0..lanes * count).map(|at| element(at / count, at % count)).collect();
        let mut out = Rows::new(count, lanes);
        lattice.rows(&columns, &mut out);
        assert_eq!(out[..], rows(lanes, count, |lane, i| element(lane, i).into())[..], "{name}, {lanes}");
        let mut back = vec![0; lanes * count];
        lattice.columns(&out, &mut back);
        assert_eq!(back, columns, "{name}, {lanes}");
    });
}

#[test]
fn sums_and_streams_of_every_instruction_set_are_the_schemes() {
    every_lattice(|name, lattice| {
        let lanes = lattice.lanes();
        let b = rows(lanes, 9, |lane, i| value(lane, i + 1).into());
        let mut a = rows(lanes, 9, |lane, i| Fe::new(value(lane + 2, i)).centred().into());
        let expected: Vec<f64> = a.iter().zip(b.iter()).map(|(a, b)| fe(a + b).value().into()).collect();
        lattice.add(&mut a, &b);
        assert_eq!(a[..], expected[..], "{name}, {lanes}");
        let mut small = rows(lanes, 9, |lane, i| lane as f64 - 3.0 * i as f64);
        let (other, mut norms) = (rows(lanes, 9, |_, i| i as f64), Rows::new(1, lanes));
        lattice.add_norms(&mut small, &other, &mut norms);
        for lane in 0..lanes {
            assert_eq!(small[8 * lanes + lane], lane as f64 - 16.0);
            assert_eq!(norms[lane], (lane as f64).max((lane as f64 - 16.0).abs()), "{name}, {lanes}: lane {lane}");
        }

        // Inputs below, at and beyond a block; groups that are full, short, and of one.
        let inputs = [(34, lanes + 1), (66, 3), (135, 1), (136, 2), (168, 2), (300, 9)];
        for (input_bytes, jobs) in inputs.into_iter().step_by(if cfg!(miri) { 2 } else { 1 }) {
            let inputs: Vec<u8> = (0..input_bytes * jobs).map(|i| (i * i / 7) as u8).collect();
            for shake in [Shake::Shake128, Shake::Shake256] {
                let mut outputs = vec![0; jobs * 2 * shake.rate()];
                lattice.shake(shake, &inputs, input_bytes, &mut outputs, 2);
                for (input, output) in inputs.chunks(input_bytes).zip(outputs.chunks(2 * shake.rate())) {
                    let mut expected = vec![0; output.len()];
                    match shake {
                        Shake::Shake128 => shake::Shake128::default().chain(input).finalize_xof().read(&mut expected),
                        Shake::Shake256 => shake::Shake256::default().chain(input).finalize_xof().read(&mut expected),
                    };
                    assert!(output == expected, "{name}: {shake:?} of {input_bytes} bytes, {jobs} jobs");
                }
            }
        }
    });
}
