//! The machine's primitive rates, by instruction set: `cargo bench -p hypergrove-lanes`. `chain` is F along WOTS+
//! chains of 255 steps, which loads and stores next to nothing.

use hypergrove_fips205::Family;
use hypergrove_lanes::{Isa, KeyState, Keys, Steps, block_hash, rates, sha256, tweakable_hash};
use std::time::{Duration, Instant};

/// The shortest of many runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let until = Instant::now() + Duration::from_millis(300);
    let mut best = f64::INFINITY;
    while Instant::now() < until {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// SHA-256 of 256 messages, by their bytes: GB/s, and the share of the bare compression's rate; then of lengths from 0 to
/// twice as many.
fn messages(isa: Isa, compressions: f64) {
    let (hash, count) = (sha256(isa).expect("available"), 256);
    let mut digests = vec![[0; 32]; count];
    for bytes in [4, 64, 256, 1024, 16 << 10] {
        let data: Vec<u8> = (0..2 * count * bytes).map(|i| i as u8).collect();
        let equal: Vec<&[u8]> = data.chunks_exact(bytes).take(count).collect();
        let mixed: Vec<&[u8]> = (0..count).map(|i| &data[i * bytes..][..i * 157 % (2 * bytes)]).collect();
        let rate = |messages: &[&[u8]], digests: &mut [[u8; 32]]| {
            let seconds = best(|| hash.hash(messages, digests));
            let blocks: usize = messages.iter().map(|message| (message.len() + 72) / 64).sum();
            let all: usize = messages.iter().map(|message| message.len()).sum();
            (all as f64 / seconds / 1e9, 100.0 * blocks as f64 / seconds / compressions)
        };
        let ((equal, of), (mixed, share)) = (rate(&equal, &mut digests), rate(&mixed, &mut digests));
        println!("  messages of {bytes:5} bytes: {equal:6.3} GB/s, {of:3.0} %; mixed {mixed:6.3} GB/s, {share:3.0} %");
    }
}

/// SHA-512 and SHA3-256 of one message of 1 MiB: MB/s.
fn one_message(isa: Isa) {
    let (hash, data) = (block_hash(isa).expect("available"), vec![5; 1 << 20]);
    let rate = |seconds: f64| data.len() as f64 / seconds / 1e6;
    let sha512 = rate(best(|| hash.sha512(&mut [1; 8], data.as_chunks().0)));
    let sha3 = rate(best(|| hash.keccak(&mut [1; 25], 136, &data)));
    println!("  one message: SHA-512 {sha512:.0} MB/s, SHA3-256 {sha3:.0} MB/s");
}

fn main() {
    println!("million a second, one core: compressions, then PRF, F, H, T_35 and chain steps");
    println!("{:12} {:>8} {:>8} {:>8}   by family and n", "", "SHA-256", "SHA-512", "Keccak");
    for isa in Isa::available() {
        let r = rates(isa, Duration::from_millis(900)).expect("available");
        println!("{:12} {:8.2} {:8.2} {:8.2}", isa.name(), r.sha256 / 1e6, r.sha512 / 1e6, r.keccak / 1e6);
        messages(isa, r.sha256);
        one_message(isa);
        for (family, n) in
            [(Family::Sha2, 16), (Family::Sha2, 24), (Family::Sha2, 32), (Family::Shake, 16), (Family::Shake, 32)]
        {
            let hash = tweakable_hash(isa, family, n).expect("available");
            let key = KeyState::new(&vec![3; n], &vec![4; n]);
            let jobs = 512;
            let adrs: Vec<_> = (0..jobs).map(|i| [1, 0, 2, 3, 4, 5, i, 0]).collect();
            let mut nodes = vec![5; jobs as usize * n];
            let wide = vec![6; 35 * jobs as usize * n];
            let million = |calls: u32, seconds: f64| f64::from(calls) / seconds / 1e6;
            let prf = best(|| hash.prf(Keys::One(&key), &adrs, &mut nodes));
            let f = best(|| hash.f(Keys::One(&key), &adrs, &mut nodes));
            let h = best(|| hash.t_l(Keys::One(&key), &adrs, 2, &wide[..2 * jobs as usize * n], &mut nodes));
            let t = best(|| hash.t_l(Keys::One(&key), &adrs, 35, &wide, &mut nodes));
            let chain = best(|| hash.chain(Keys::One(&key), &adrs, 16, Steps::All, &mut nodes, None));
            let long = best(|| hash.chain(Keys::One(&key), &adrs, 256, Steps::All, &mut nodes, None));
            println!(
                "  {:5} {n}: prf {:7.2}  f {:7.2}  h {:7.2}  t_35 {:6.3}  chain w=16 {:7.2}  w=256 {:7.2}",
                format!("{family:?}"),
                million(jobs, prf),
                million(jobs, f),
                million(jobs, h),
                million(jobs, t),
                million(jobs * 15, chain),
                million(jobs * 255, long),
            );
        }
    }
}
