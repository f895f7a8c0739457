//! Key generation: one key pair in each lane.

use super::lanes::{A_BLOCKS, Lanes, S_BLOCKS, VECTOR, shake};
use hypergrove_lanes::Shake;
use hypergrove_taint::declassify;
use hypergrove_zkdilithium::SigningKeyBytes;
use hypergrove_zkdilithium::pack::pack_codes;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::sample::{expand_a, expand_s};
use zeroize::{Zeroize, Zeroizing};

/// A block of H(seed): ρ ‖ ρ′ ‖ key, and bytes that nobody needs.
type Seeds = [u8; Shake::Shake256.rate()];

/// Where the parts of H(seed, 128) lie.
const RHO: std::ops::Range<usize> = 0..32;
const RHO_PRIME: std::ops::Range<usize> = 32..96;
const KEY: std::ops::Range<usize> = 96..128;

/// Where s₁ and s₂, and t, begin in a private key.
const S_PACKED: usize = 3 * HASH_BYTES;
const T_PACKED: usize = S_PACKED + (L + K) * ETA_BYTES;

impl Lanes<'_> {
    pub(super) fn keygen(&mut self, seeds: &[[u8; SEED_BYTES]], keys: &mut [&mut SigningKeyBytes]) {
        for (seeds, keys) in seeds.chunks(self.lanes).zip(keys.chunks_mut(self.lanes)) {
            self.keygen_group(seeds, keys);
        }
    }

    /// Makes a group of keys: at most as many as there are lanes.
    fn keygen_group(&mut self, seeds: &[[u8; SEED_BYTES]], keys: &mut [&mut SigningKeyBytes]) {
        let (lanes, count) = (self.lanes, seeds.len());
        // ρ ‖ ρ′ ‖ key
        let mut e = Zeroizing::new(vec![[0u64; Shake::Shake256.rate() / 8]; count]);
        let e: &mut [u8] = bytemuck::cast_slice_mut(&mut e);
        shake(self.lattice, self.turn, Shake::Shake256, seeds.as_flattened(), SEED_BYTES, e, 1);
        let seeds: &[Seeds] = e.as_chunks().0;
        // ρ is the first half of the public key.
        seeds.iter().for_each(|seed| declassify(&seed[RHO]));
        // sk = ρ ‖ key ‖ tr ‖ eta3(s₁) ‖ eta3(s₂) ‖ fe24(t), part by part.
        for (sk, seed) in keys.iter_mut().zip(seeds) {
            sk[..HASH_BYTES].copy_from_slice(&seed[RHO]);
            sk[HASH_BYTES..2 * HASH_BYTES].copy_from_slice(&seed[KEY]);
        }
        self.expand_s(seeds, keys);
        // t = INTT(Â·NTT(s₁)) + s₂, a row at a time: all of Â, or of t, would leave the cache.
        let (row, size) = (N * lanes, VECTOR * lanes);
        for i in 0..K {
            self.expand_a_row(seeds, i);
            let t = &mut self.s.w[..row];
            self.lattice.dot_columns(&self.s.columns[..size], &self.s.values[..size], t);
            self.lattice.intt(t);
            self.lattice.add(t, &self.s.w1[i * row..][..row]);
            let columns = &mut self.s.columns[..row];
            self.lattice.columns(t, columns);
            // t is the second half of the public key.
            declassify(columns);
            for (instance, sk) in keys.iter_mut().enumerate() {
                const BYTES: usize = N * FE_BYTES;
                let t = &self.s.columns[self.lane(instance) * N..][..N];
                pack_codes::<24>(t, |x| x as u32, &mut sk[T_PACKED + i * BYTES..][..BYTES]);
            }
        }
        // tr = H(pk), pk = ρ ‖ fe24(t)
        let publics = &mut self.s.inputs[..count * PK_BYTES];
        for (public, sk) in publics.chunks_exact_mut(PK_BYTES).zip(&*keys) {
            public[..HASH_BYTES].copy_from_slice(&sk[..HASH_BYTES]);
            public[HASH_BYTES..].copy_from_slice(&sk[T_PACKED..]);
        }
        let trs = &mut self.s.bytes[..count * Shake::Shake256.rate()];
        shake(self.lattice, self.turn, Shake::Shake256, publics, PK_BYTES, trs, 1);
        for (sk, tr) in keys.iter_mut().zip(trs.chunks_exact(Shake::Shake256.rate())) {
            sk[2 * HASH_BYTES..][..HASH_BYTES].copy_from_slice(&tr[..HASH_BYTES]);
        }
    }

    /// Pairs of a lane and its instance, for all lanes that have one. They are in the lanes' order, since samplers overwrite the beginning of the
    /// next column.
    fn of_lanes(&self, count: usize) -> Vec<(usize, usize)> {
        let pairs = (0..self.lanes).map(|lane| (lane, self.instance(lane)));
        pairs.filter(|(_, instance)| *instance < count).collect()
    }

    /// Writes NTT(s₁) to `values` and s₂ to `w1`, and both vectors to the private keys.
    fn expand_s(&mut self, seeds: &[Seeds], sks: &mut [&mut SigningKeyBytes]) {
        const BYTES: usize = S_BLOCKS * Shake::Shake256.rate();
        let of_lanes = self.of_lanes(seeds.len());
        let (rows, s) = (N * self.lanes, &mut *self.s);
        let inputs = inputs::<66>(&mut s.inputs, seeds, RHO_PRIME, (0..(K + L) as u8).map(|m| [m, 0]));
        let streams = &mut s.bytes[..seeds.len() * (K + L) * BYTES];
        shake(self.lattice, self.turn, Shake::Shake256, inputs, 66, streams, S_BLOCKS);
        let polynomials = s.values[..L * rows].chunks_exact_mut(rows).chain(s.w1.chunks_exact_mut(rows));
        for (m, (streams, polynomial)) in streams.chunks_exact(seeds.len() * BYTES).zip(polynomials).enumerate() {
            for (lane, instance) in of_lanes.iter().copied() {
                let (stream, column) = (&streams[instance * BYTES..][..BYTES], &mut s.columns[lane * N..]);
                if !self.lattice.short(stream, column) {
                    let (mut s1, mut s2) = expand_s(&seeds[instance][RHO_PRIME]);
                    let polynomial = s1.iter().chain(&s2).nth(m).expect("eight polynomials");
                    column[..N].copy_from_slice(&*Zeroizing::new(polynomial.centred()));
                    s1.zeroize();
                    s2.zeroize();
                }
                let packed = &mut sks[instance][S_PACKED + m * ETA_BYTES..][..ETA_BYTES];
                self.lattice.pack_short(&column[..N], packed);
            }
            self.lattice.rows(&s.columns[..rows], polynomial);
            if m < L {
                self.lattice.ntt(polynomial);
            }
        }
    }

    /// Writes a row of Â to `columns`.
    fn expand_a_row(&mut self, seeds: &[Seeds], i: usize) {
        const BYTES: usize = A_BLOCKS * Shake::Shake128.rate();
        let of_lanes = self.of_lanes(seeds.len());
        let s = &mut *self.s;
        let inputs = inputs::<34>(&mut s.inputs, seeds, RHO, (0..L as u8).map(|j| [j, i as u8]));
        let streams = &mut s.bytes[..seeds.len() * L * BYTES];
        shake(self.lattice, self.turn, Shake::Shake128, inputs, 34, streams, A_BLOCKS);
        for (j, streams) in streams.chunks_exact(seeds.len() * BYTES).enumerate() {
            for (lane, instance) in of_lanes.iter().copied() {
                let stream = &streams[instance * BYTES..][..BYTES];
                let column = &mut s.columns[(j * self.lanes + lane) * N..];
                if !self.lattice.uniform(stream, column) {
                    let a = &expand_a(&seeds[instance][RHO])[i][j];
                    column.iter_mut().zip(&a.0).for_each(|(out, x)| *out = x.value() as i32);
                }
            }
        }
    }
}

/// Writes inputs over earlier ones: for each of the ends, the part of every seed followed by that end.
fn inputs<'a, const BYTES: usize>(
    place: &'a mut [u8],
    seeds: &[Seeds],
    part: std::ops::Range<usize>,
    ends: impl ExactSizeIterator<Item = [u8; 2]>,
) -> &'a [u8] {
    let place = &mut place[..ends.len() * seeds.len() * BYTES];
    for (inputs, end) in place.chunks_exact_mut(seeds.len() * BYTES).zip(ends) {
        for (input, seed) in inputs.as_chunks_mut::<BYTES>().0.iter_mut().zip(seeds) {
            input[..BYTES - 2].copy_from_slice(&seed[part.clone()]);
            input[BYTES - 2..].copy_from_slice(&end);
        }
    }
    place
}
