//! Key generation: a key pair a lane.

use super::lanes::{A_BLOCKS, Lanes, S_BLOCKS, VECTOR};
use hypergrove_lanes::{Factors, Shake};
use hypergrove_zkdilithium::SigningKeyWords;
use hypergrove_zkdilithium::pack::pack_codes;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::sample::{expand_a, expand_s};
use zeroize::{Zeroize, Zeroizing};

/// Where the parts of H(seed, 128) lie.
const RHO: std::ops::Range<usize> = 0..32;
const RHO_PRIME: std::ops::Range<usize> = 32..96;
const KEY: std::ops::Range<usize> = 96..128;

/// Where s₁ and s₂, and t, begin in a private key.
const S_PACKED: usize = 3 * HASH_BYTES;
const T_PACKED: usize = S_PACKED + (L + K) * ETA_BYTES;

impl Lanes<'_> {
    pub(super) fn keygen(&mut self, seeds: &[[u8; SEED_BYTES]], keys: &mut [SigningKeyWords]) {
        for (seeds, keys) in seeds.chunks(self.lanes).zip(keys.chunks_mut(self.lanes)) {
            self.keygen_group(seeds, keys);
        }
    }

    /// As many keys as there are lanes, at most.
    fn keygen_group(&mut self, seeds: &[[u8; SEED_BYTES]], keys: &mut [SigningKeyWords]) {
        let (lanes, count) = (self.lanes, seeds.len());
        // ρ ‖ ρ′ ‖ key
        let mut e = Zeroizing::new(vec![0; count * Shake::Shake256.rate()]);
        self.lattice.shake(Shake::Shake256, seeds.as_flattened(), SEED_BYTES, &mut e, 1);
        let seeds: Vec<&[u8]> = e.chunks_exact(Shake::Shake256.rate()).collect();
        // sk = ρ ‖ key ‖ tr ‖ eta3(s₁) ‖ eta3(s₂) ‖ fe24(t), part by part.
        let sks = bytemuck::cast_slice_mut(keys.as_flattened_mut()).as_chunks_mut::<SK_BYTES>().0;
        for (sk, seed) in sks.iter_mut().zip(&seeds) {
            sk[..HASH_BYTES].copy_from_slice(&seed[RHO]);
            sk[HASH_BYTES..2 * HASH_BYTES].copy_from_slice(&seed[KEY]);
        }
        self.expand_s(&seeds, sks);
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
        for (sk, (public, tr)) in sks.iter_mut().zip(publics) {
            sk[2 * HASH_BYTES..][..HASH_BYTES].copy_from_slice(&tr[..HASH_BYTES]);
            sk[T_PACKED..].copy_from_slice(&public[HASH_BYTES..]);
        }
    }

    /// s₁ to `values` and s₂ to `w1`, and both to the private keys.
    fn expand_s(&mut self, seeds: &[&[u8]], sks: &mut [[u8; SK_BYTES]]) {
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
                let packed = &mut sks[lane][S_PACKED + m * ETA_BYTES..][..ETA_BYTES];
                pack_codes::<3>(&column[..N], |x| ETA.wrapping_sub(x as u32), packed);
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
