//! Rates of lattice arithmetic, by instruction set and width: `cargo bench -p hypergrove-lanes --bench lattice`.

use hypergrove_lanes::{Constants, Isa, Rows, Width, lattice};
use std::time::{Duration, Instant};

/// The shortest of many runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let until = Instant::now() + Duration::from_millis(500);
    let mut best = f64::INFINITY;
    while Instant::now() < until {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    // Any constants take as long.
    let round_constants: Vec<u32> = (0..735).map(|i| 3_333_333 + i * i).collect();
    let matrix: Vec<u32> = (0..270).map(|i| 1_234_567 + 18_765 * i).collect();
    let antidiagonals: Vec<u32> = (0..69).map(|i| 2_345_678 + 17_654 * i).collect();
    let constants = Constants {
        zeta: 3_483_618,
        round_constants: &round_constants,
        matrix: &matrix,
        antidiagonals: &antidiagonals,
    };
    println!(
        "{:12} {:>6} {:>6} {:>14} {:>8} {:>10} {:>10}",
        "", "", "lanes", "permutations/s", "alone/s", "ns/NTT", "ns/INTT"
    );
    for isa in Isa::available() {
        for width in [Width::Narrow, Width::Wide] {
            let lattice = lattice(isa, width, &constants).expect("available");
            let lanes = lattice.lanes();
            let mut state = Rows::new(36, lanes);
            state.fill(1.0);
            let permute = best(|| (0..8).for_each(|_| lattice.permute(lanes, &mut state)));
            let alone = best(|| (0..8).for_each(|_| lattice.permute(1, &mut state)));
            let mut polynomials = Rows::new(256, lanes);
            polynomials.fill(3.0);
            let ntt = best(|| {
                polynomials.fill(3.0);
                lattice.ntt(&mut polynomials)
            });
            let intt = best(|| {
                polynomials.fill(3.0);
                lattice.intt(&mut polynomials)
            });
            println!(
                "{:12} {:>6} {lanes:6} {:14.0} {:8.0} {:10.1} {:10.1}",
                isa.name(),
                format!("{width:?}"),
                (8 * lanes) as f64 / permute,
                8.0 / alone,
                ntt * 1e9 / lanes as f64,
                intt * 1e9 / lanes as f64
            );
        }
    }
}
