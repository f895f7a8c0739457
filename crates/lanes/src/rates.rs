//! The machine's own rates of primitives, of which every other figure is a fraction.

use crate::{AdrsWords, Isa, KeyState, Keys, Primitive, Steps, tweakable_hash};
use hypergrove_fips205::{Family, Rates};
use std::time::{Duration, Instant};

/// Compressions a second of one core, by the widest implementation of an instruction set. Measures all primitives for about `budget` together,
/// in registers, with next to no loads and stores. The best of many short runs counts, since everything else on the machine can only slow
/// a run down. `None` if the CPU lacks the set.
pub fn rates(isa: Isa, budget: Duration) -> Option<Rates> {
    let sha2 = tweakable_hash(isa, Family::Sha2, 16)?;
    let shake = tweakable_hash(isa, Family::Shake, 16)?;
    let best = |run: &dyn Fn(u64) -> u64| {
        let (mut calls, mut best) = (1, 0.0f64);
        let until = Instant::now() + budget / 4;
        loop {
            let start = Instant::now();
            let compressions = run(calls) as f64;
            let taken = start.elapsed();
            best = best.max(compressions / taken.as_secs_f64());
            if taken < Duration::from_micros(500) {
                calls *= 2;
            } else if Instant::now() > until {
                return best;
            }
        }
    };
    // A chain's step leaves out parts of a compression. The faster of both counts.
    let key = KeyState::new(&[1; 16], &[]);
    let jobs = 4 * sha2.lanes();
    let adrs: Vec<AdrsWords> = (0..jobs as u32).map(|i| [0, 0, 0, 0, 0, 0, i, 0]).collect();
    let chain = |calls: u64| {
        let mut nodes = vec![2; jobs * 16];
        for _ in 0..calls {
            sha2.chain(Keys::One(&key), &adrs, 256, Steps::All, &mut nodes, None);
        }
        calls * 255 * jobs as u64
    };
    Some(Rates {
        sha256: best(&|calls| sha2.primitive(Primitive::Sha256, calls)).max(best(&chain)),
        sha512: best(&|calls| sha2.primitive(Primitive::Sha512, calls)),
        keccak: best(&|calls| shake.primitive(Primitive::Keccak, calls)),
        ..Rates::default()
    })
}
