//! Key generation: a key pair a lane.

use super::lanes::{A_BLOCKS, Lanes, S_BLOCKS, VECTOR};
use hypergrove_lanes::{Factors, Shake};
use hypergrove_zkdilithium::SigningKey;
use hypergrove_zkdilithium::pack::pack_codes;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::sample::{expand_a, expand_s};
use zeroize::{Zeroize, Zeroizing};

/// Where the parts of H(seed, 128) lie.
const RHO: std::ops::Range<usize> = 0..32;
const RHO_PRIME: std::ops::Range<usize> = 32..96;
const KEY: std::ops::Range<usize> = 96..128;

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
        // sk = ρ ‖ key ‖ tr ‖ eta3(s₁) ‖ eta3(s₂) ‖ fe24(t), part by part.
        let mut sks: Vec<_> = (0..count).map(|_| Zeroizing::new(Vec::with_capacity(SK_BYTES))).collect();
        for (sk, seed) in sks.iter_mut().zip(&seeds) {
            sk.extend_from_slice(&seed[RHO]);
            sk.extend_from_slice(&seed[KEY]);
            sk.extend_from_slice(&[0; HASH_BYTES]);
        }
        self.expand_s(&seeds, &mut sks);
        // t = INTT(Â·NTT(s₁)) + s₂, a row of Â at a time: all of it would leave the cache.
        let size = VECTOR * lanes;
        self.lattice.ntt(&mut self.s.values[..size]);
        for i in 0..K {
            self.expand_a_row(&seeds, i);
            let w = &mut self.s.w[i * N * lanes..(i + 1) * N * lanes];
            self.lattice.dot(Factors::Each(&self.s.y), &self.s.values[..size], w);
        }
        self.lattice.intt(&mut self.s.w);
        self.lattice.add(&mut self.s.w, &self.s.w1);
        // pk = ρ ‖ fe24(t);  tr = H(pk)
        let public = &mut self.s.inputs;
        public.clear();
        public.resize(count * PK_BYTES, 0);
        for (public, seed) in public.chunks_exact_mut(PK_BYTES).zip(&seeds) {
            public[..HASH_BYTES].copy_from_slice(&seed[RHO]);
        }
        for (i, w) in self.s.w.chunks_exact(N * lanes).enumerate() {
            let columns = &mut self.s.columns[..N * lanes];
            self.lattice.columns(w, columns);
            for (public, t) in public.chunks_exact_mut(PK_BYTES).zip(columns.chunks_exact(N)) {
                const BYTES: usize = N * FE_BYTES;
                pack_codes::<24>(t, |x| x as u32, &mut public[HASH_BYTES + i * BYTES..][..BYTES]);
            }
        }
        let trs = &mut self.s.bytes[..count * Shake::Shake256.rate()];
        self.lattice.shake(Shake::Shake256, public, PK_BYTES, trs, 1);
        let publics = public.chunks_exact(PK_BYTES).zip(trs.chunks_exact(Shake::Shake256.rate()));
        for (mut sk, (public, tr)) in sks.into_iter().zip(publics) {
            sk[2 * HASH_BYTES..3 * HASH_BYTES].copy_from_slice(&tr[..HASH_BYTES]);
            sk.extend_from_slice(&public[HASH_BYTES..]);
            out.push(SigningKey::from_owned(sk).expect("a private key has its length"));
        }
    }

    /// s₁ to `values` and s₂ to `w1`, and both to the private keys.
    fn expand_s(&mut self, seeds: &[&[u8]], sks: &mut [Zeroizing<Vec<u8>>]) {
        const BYTES: usize = S_BLOCKS * Shake::Shake256.rate();
        let (rows, s) = (N * self.lanes, &mut *self.s);
        s.inputs.clear();
        for m in 0..(K + L) as u8 {
            for seed in seeds {
                s.inputs.extend_from_slice(&seed[RHO_PRIME]);
                s.inputs.extend_from_slice(&[m, 0]);
            }
        }
        let streams = &mut s.bytes[..seeds.len() * (K + L) * BYTES];
        self.lattice.shake(Shake::Shake256, &s.inputs, 66, streams, S_BLOCKS);
        let polynomials = s.values[..L * rows].chunks_exact_mut(rows).chain(s.w1.chunks_exact_mut(rows));
        for (m, (streams, polynomial)) in streams.chunks_exact(seeds.len() * BYTES).zip(polynomials).enumerate() {
            for (lane, stream) in streams.chunks_exact(BYTES).enumerate() {
                let column = &mut s.columns[lane * N..];
                if !self.lattice.short(stream, column) {
                    let (mut s1, mut s2) = expand_s(&seeds[lane][RHO_PRIME]);
                    let polynomial = s1.iter().chain(&s2).nth(m).expect("eight polynomials");
                    column[..N].copy_from_slice(&*Zeroizing::new(polynomial.centred()));
                    s1.zeroize();
                    s2.zeroize();
                }
                let at = sks[lane].len();
                sks[lane].resize(at + ETA_BYTES, 0);
                pack_codes::<3>(&column[..N], |x| ETA.wrapping_sub(x as u32), &mut sks[lane][at..]);
            }
            self.lattice.rows(&s.columns[..rows], polynomial);
        }
    }

    /// A row of Â to `y`.
    fn expand_a_row(&mut self, seeds: &[&[u8]], i: usize) {
        const BYTES: usize = A_BLOCKS * Shake::Shake128.rate();
        let (rows, s) = (N * self.lanes, &mut *self.s);
        s.inputs.clear();
        for j in 0..L as u8 {
            for seed in seeds {
                s.inputs.extend_from_slice(&seed[RHO]);
                s.inputs.extend_from_slice(&[j, i as u8]);
            }
        }
        let streams = &mut s.bytes[..seeds.len() * L * BYTES];
        self.lattice.shake(Shake::Shake128, &s.inputs, 34, streams, A_BLOCKS);
        let polynomials = s.y.chunks_exact_mut(rows);
        for (j, (streams, polynomial)) in streams.chunks_exact(seeds.len() * BYTES).zip(polynomials).enumerate() {
            for (lane, stream) in streams.chunks_exact(BYTES).enumerate() {
                let column = &mut s.columns[lane * N..];
                if !self.lattice.uniform(stream, column) {
                    let a = &expand_a(&seeds[lane][RHO])[i][j];
                    column.iter_mut().zip(&a.0).for_each(|(out, x)| *out = x.value() as i32);
                }
            }
            self.lattice.rows(&s.columns[..rows], polynomial);
        }
    }
}
