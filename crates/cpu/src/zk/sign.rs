//! Signing: attempts in all lanes until no message is left.

use super::Sign;
use super::lanes::{Lanes, VECTOR, Y_BLOCKS, column, shake};
use hypergrove_lanes::{Rows, Shake};
use hypergrove_taint::{declassified, declassify};
use hypergrove_zkdilithium::SignatureBytes;
use hypergrove_zkdilithium::pack::{pack_codes, pack_fes, unpack_codes};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::State;
use zeroize::Zeroizing;

/// The start of a message's attempts: Poseidon's state after μ, and the seed of the masks.
struct Start {
    after_mu: State,
    rho2: Box<Zeroizing<[u8; 64]>>,
}

/// A message without its signature, and the κ to try next.
#[derive(Clone, Copy)]
struct OpenJob {
    job: usize,
    kappa: u16,
}

impl Lanes<'_> {
    pub(super) fn sign(&mut self, jobs: &[Sign<'_>], out: &mut [&mut SignatureBytes]) {
        let after_mu = self.after_mu(jobs.len(), |job| (jobs[job].key.state_after_tr(), jobs[job].message));
        let starts: Vec<Start> = jobs
            .iter()
            .zip(after_mu)
            .map(|(job, (mu, after_mu))| Start { after_mu, rho2: job.message.rho2(job.key.key(), job.key.tr(), &mu) })
            .collect();
        let mut signed = vec![false; jobs.len()];
        let (mut held, mut keys) = (Vec::new(), Vec::with_capacity(self.lanes));
        let (mut open, mut lanes): (Vec<OpenJob>, _) = (Vec::new(), Vec::with_capacity(self.lanes));
        let mut queue = 0..jobs.len();
        loop {
            let free = self.lanes - open.len();
            open.extend(queue.by_ref().take(free).map(|job| OpenJob { job, kappa: 0 }));
            if open.is_empty() {
                break;
            }
            lanes.clear();
            for lane in 0..self.lanes {
                let at = lane % open.len();
                lanes.push(open[at]);
                open[at].kappa += L as u16;
            }
            lanes.rotate_right(self.turn % self.lanes);
            keys.clear();
            keys.extend(lanes.iter().map(|lane| jobs[lane.job].key));
            let same = self.load_keys(&mut held, &keys, |key| {
                key.a_hat().as_flattened().iter().chain(key.s1_hat()).chain(key.s2_hat()).map(|a| (a, 1.0))
            });
            self.attempt(same, &lanes, &starts, &mut signed, out);
            open.retain(|open| !signed[open.job]);
        }
    }

    /// Makes one attempt in each lane. A message's lanes have rising κ: the first attempt that passes gives its signature.
    fn attempt(
        &mut self,
        same: bool,
        lanes: &[OpenJob],
        starts: &[Start],
        signed: &mut [bool],
        out: &mut [&mut SignatureBytes],
    ) {
        self.expand_y(lanes, starts);
        // w = INTT(Â·NTT(y))
        let size = VECTOR * self.lanes;
        self.s.values[..size].copy_from_slice(&self.s.y);
        self.lattice.ntt(&mut self.s.values[..size]);
        let mut w = std::mem::replace(&mut self.s.w, Rows::new(0, 1));
        for (i, w) in w.chunks_exact_mut(N * self.lanes).enumerate() {
            self.lattice.dot(self.factors(same, i * VECTOR, VECTOR), &self.s.values[..size], w);
        }
        self.lattice.intt(&mut w);
        self.s.w = w;
        // c̃ = com(μ, w₁);  c = Ball(c̃)
        self.com(self.lanes, |lane| &starts[lanes[lane].job].after_mu);
        // Nobody learns the w₁ of an attempt that fails, and c̃ is a hash of w₁.
        declassify(&*self.s.c_tilde);
        self.ball(self.lanes);
        self.lattice.ntt(&mut self.s.challenge);
        // ‖LowPart(w − c·s₂)‖, and z = y + c·s₁ with its norm
        self.times_challenge(same, K * VECTOR + VECTOR);
        self.lattice.low_norms(&self.s.w, &self.s.values[..size], &mut self.s.r0_norms);
        self.times_challenge(same, K * VECTOR);
        self.lattice.add_norms(&mut self.s.values[..size], &self.s.y, &mut self.s.z_norms);
        for (lane, open) in (0..self.lanes).map(|i| self.lane(i)).map(|lane| (lane, &lanes[lane])) {
            // The test that an attempt fails is public: it depends on masks that are discarded then.
            let passes = !self.s.failed[lane]
                && declassified(self.s.r0_norms[lane] < f64::from(GAMMA2 - BETA))
                && declassified(self.s.z_norms[lane] < f64::from(GAMMA1 - BETA));
            if passes && !signed[open.job] {
                let bytes = &mut *out[open.job];
                let (c_packed, z_packed) = bytes.split_at_mut(C_TILDE_BYTES);
                pack_fes(&self.c_tilde(lane), c_packed);
                let z: Vec<i32> = column(&self.s.values[..size], self.lanes, lane).map(|x| x as i32).collect();
                pack_codes::<18>(&z, |x| GAMMA1.wrapping_sub(x as u32), z_packed);
                // z passed both tests, so it reveals nothing of s₁.
                declassify(&bytes[..]);
                signed[open.job] = true;
            }
        }
    }

    /// Multiplies four factors from row `first` on by the challenge, and leaves the products as polynomials in `values`.
    fn times_challenge(&mut self, same: bool, first: usize) {
        let size = VECTOR * self.lanes;
        let mut values = std::mem::replace(&mut self.s.values, Rows::new(0, 1));
        for (i, out) in values[..size].chunks_exact_mut(N * self.lanes).enumerate() {
            self.lattice.dot(self.factors(same, first + i * N, N), &self.s.challenge, out);
        }
        self.lattice.intt(&mut values[..size]);
        self.s.values = values;
    }

    /// Computes y of each lane's κ.
    fn expand_y(&mut self, lanes: &[OpenJob], starts: &[Start]) {
        const INPUT: usize = 66;
        const OUTPUT: usize = Y_BLOCKS * Shake::Shake256.rate();
        let (rows, s) = (N * self.lanes, &mut *self.s);
        let inputs = &mut s.inputs[..lanes.len() * L * INPUT];
        let masks = (0..L as u16).flat_map(|i| lanes.iter().map(move |lane| (lane, lane.kappa.wrapping_add(i))));
        for (input, (lane, kappa)) in inputs.as_chunks_mut::<INPUT>().0.iter_mut().zip(masks) {
            let (rho2, last) = input.split_at_mut(INPUT - 2);
            rho2.copy_from_slice(&starts[lane.job].rho2[..]);
            last.copy_from_slice(&kappa.to_le_bytes());
        }
        let streams = &mut s.bytes[..lanes.len() * L * OUTPUT];
        shake(self.lattice, self.turn, Shake::Shake256, inputs, INPUT, streams, Y_BLOCKS);
        let columns = &mut s.columns[..rows];
        for (streams, y) in streams.chunks_exact(lanes.len() * OUTPUT).zip(s.y.chunks_exact_mut(rows)) {
            for (stream, column) in streams.chunks_exact(OUTPUT).zip(columns.chunks_exact_mut(N)) {
                unpack_codes::<18>(&stream[..GAMMA1_BYTES], |code| GAMMA1 as i32 - code as i32, column);
            }
            self.lattice.rows(columns, y);
        }
    }
}
