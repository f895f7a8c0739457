//! Key generation: a key pair a lane.

use super::lanes::{A_BLOCKS, KEY, Lanes, S_BLOCKS, VECTOR, column, element, plain, set};
use hypergrove_lanes::{Factors, Rows, Shake};
use hypergrove_zkdilithium::SigningKey;
use hypergrove_zkdilithium::pack::pack_eta;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::ring::RingElement;
use hypergrove_zkdilithium::sample::{expand_a, expand_s};
use zeroize::{Zeroize, Zeroizing};

impl Lanes<'_> {
    pub(super) fn keygen(&mut self, seeds: &[[u8; SEED_BYTES]], out: &mut Vec<SigningKey>) {
        for group in seeds.chunks(self.lanes) {
            self.keygen_group(group, out);
        }
    }

    fn keygen_group(&mut self, seeds: &[[u8; SEED_BYTES]], out: &mut Vec<SigningKey>) {
        let (lanes, count) = (self.lanes, seeds.len());
        // ρ ‖ ρ′ ‖ key
        let mut e = Zeroizing::new(vec![0; count * Shake::Shake256.rate()]);
        self.lattice.shake(Shake::Shake256, seeds.as_flattened(), SEED_BYTES, &mut e, 1);
        let seeds: Vec<&[u8]> = e.chunks_exact(Shake::Shake256.rate()).collect();
        let (rho, rho_prime, key) = (0..32, 32..96, 96..128);
        if self.s.each.is_empty() {
            self.s.each = Rows::new(KEY, lanes);
        }
        self.s.inputs.clear();
        for seed in &seeds {
            for (i, j) in (0..K as u8).flat_map(|i| (0..L as u8).map(move |j| (i, j))) {
                self.s.inputs.extend_from_slice(&seed[rho.clone()]);
                self.s.inputs.extend_from_slice(&[j, i]);
            }
        }
        let a_bytes = A_BLOCKS * Shake::Shake128.rate();
        self.s.bytes.resize(count * K * L * a_bytes, 0);
        self.lattice.shake(Shake::Shake128, &self.s.inputs, 34, &mut self.s.bytes, A_BLOCKS);
        for (lane, bytes) in self.s.bytes.chunks_exact(K * L * a_bytes).enumerate() {
            let polynomials = self.s.each.chunks_exact_mut(N * lanes);
            let mut complete = true;
            for (bytes, rows) in bytes.chunks_exact(a_bytes).zip(polynomials) {
                complete &= uniform(bytes, rows, lanes, lane);
            }
            if !complete {
                let a = expand_a(&seeds[lane][rho.clone()]);
                set(&mut self.s.each, lanes, lane, plain(a.as_flattened()));
            }
        }
        // s₁ to y, s₂ to w1
        self.s.inputs.clear();
        for seed in &seeds {
            for m in 0..(K + L) as u8 {
                self.s.inputs.extend_from_slice(&seed[rho_prime.clone()]);
                self.s.inputs.extend_from_slice(&[m, 0]);
            }
        }
        let s_bytes = S_BLOCKS * Shake::Shake256.rate();
        self.s.bytes.resize(count * (K + L) * s_bytes, 0);
        let streams = &mut self.s.bytes[..count * (K + L) * s_bytes];
        self.lattice.shake(Shake::Shake256, &self.s.inputs, 66, streams, S_BLOCKS);
        for (lane, bytes) in streams.chunks_exact((K + L) * s_bytes).enumerate() {
            let polynomials = self.s.y.chunks_exact_mut(N * lanes).chain(self.s.w1.chunks_exact_mut(N * lanes));
            let mut complete = true;
            for (bytes, rows) in bytes.chunks_exact(s_bytes).zip(polynomials) {
                complete &= short(bytes, rows, lanes, lane);
            }
            if !complete {
                let (s1, s2) = expand_s(&seeds[lane][rho_prime.clone()]);
                let centred = |s: &[RingElement]| {
                    Zeroizing::new(s.iter().flat_map(|s| s.0).map(|x| f64::from(x.centred())).collect::<Vec<_>>())
                };
                set(&mut self.s.y, lanes, lane, centred(&s1).iter().copied());
                set(&mut self.s.w1, lanes, lane, centred(&s2).iter().copied());
            }
        }
        // t = INTT(Â·NTT(s₁)) + s₂
        let size = VECTOR * lanes;
        self.s.values[..size].copy_from_slice(&self.s.y);
        self.lattice.ntt(&mut self.s.values[..size]);
        for (i, w) in self.s.w.chunks_exact_mut(N * lanes).enumerate() {
            let factors = Factors::Each(&self.s.each[i * size..(i + 1) * size]);
            self.lattice.dot(factors, &self.s.values[..size], w);
        }
        self.lattice.intt(&mut self.s.w);
        self.lattice.add(&mut self.s.w, &self.s.w1);
        // pk = ρ ‖ fe24(t);  tr = H(pk)
        let public = &mut self.s.inputs;
        public.clear();
        for (lane, seed) in seeds.iter().enumerate() {
            public.extend_from_slice(&seed[rho.clone()]);
            for t in column(&self.s.w, lanes, lane) {
                public.extend_from_slice(&(t as u32).to_le_bytes()[..FE_BYTES]);
            }
        }
        let trs = &mut self.s.bytes[..count * Shake::Shake256.rate()];
        self.lattice.shake(Shake::Shake256, public, PK_BYTES, trs, 1);
        for (lane, seed) in seeds.iter().enumerate() {
            let mut sk = Zeroizing::new(Vec::with_capacity(SK_BYTES));
            sk.extend_from_slice(&seed[rho.clone()]);
            sk.extend_from_slice(&seed[key.clone()]);
            sk.extend_from_slice(&trs[lane * Shake::Shake256.rate()..][..HASH_BYTES]);
            for rows in [&self.s.y, &self.s.w1] {
                let mut s = column(rows, lanes, lane);
                for _ in 0..K {
                    let at = sk.len();
                    sk.resize(at + ETA_BYTES, 0);
                    let mut s = element(&mut s);
                    pack_eta(&s, &mut sk[at..]);
                    s.zeroize();
                }
            }
            sk.extend_from_slice(&public[lane * PK_BYTES + HASH_BYTES..][..T_BYTES]);
            out.push(SigningKey::from_bytes(&sk).expect("a private key has its length"));
        }
    }
}

/// A polynomial of Â from its stream; whether there were enough candidates.
fn uniform(stream: &[u8], rows: &mut [f64], lanes: usize, lane: usize) -> bool {
    // Every candidate is written, and counted if it is below Q.
    let mut kept = [0u32; A_BLOCKS * Shake::Shake128.rate() / 3];
    let mut count = 0;
    for (at, b) in stream.as_chunks::<3>().0.iter().enumerate() {
        let d = u32::from_le_bytes([b[0], b[1], b[2] & 0x7f, 0]);
        kept[count.min(at)] = d;
        count += usize::from(d < Q);
    }
    set(rows, lanes, lane, kept[..N].iter().map(|x| f64::from(*x)));
    count >= N
}

/// A polynomial of s₁ or s₂ likewise. How many nibbles are 15 says nothing of the others.
fn short(stream: &[u8], rows: &mut [f64], lanes: usize, lane: usize) -> bool {
    let mut kept = [0u8; S_BLOCKS * Shake::Shake256.rate() * 2];
    let mut count = 0;
    for (at, nibble) in stream.iter().flat_map(|byte| [byte & 15, byte >> 4]).enumerate() {
        kept[count.min(at)] = nibble;
        count += usize::from(nibble < 15);
    }
    // ⌊d/5⌋ = ⌊13·d/64⌋ below 15: no division of a secret.
    let small = |d: u8| f64::from(ETA) - f64::from(d - 5 * (((13 * u16::from(d)) >> 6) as u8));
    set(rows, lanes, lane, kept[..N].iter().map(|d| small(*d)));
    kept.zeroize();
    count >= N
}
