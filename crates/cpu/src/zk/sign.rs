//! Signing: attempts in all lanes until no message is left.

use super::Sign;
use super::lanes::{Lanes, VECTOR, Y_BLOCKS, column, shake};
use crate::share::{Next, Offer};
use hypergrove_lanes::{Rows, Shake};
use hypergrove_taint::{declassified, declassify};
use hypergrove_zkdilithium::SignatureBytes;
use hypergrove_zkdilithium::pack::{pack_codes, pack_fes, unpack_codes};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::State;
use std::collections::VecDeque;
use zeroize::Zeroizing;

/// A message without its signature.
pub(super) struct OpenJob<'a> {
    job: &'a Sign<'a>,
    signature: &'a mut SignatureBytes,
    /// Poseidon's state after μ, and the seed of the masks.
    after_mu: State,
    rho2: Box<Zeroizing<[u8; 64]>>,
    /// The κ to try next.
    kappa: u16,
    is_signed: bool,
}

/// A lane's attempt: at which open job, with which κ.
#[derive(Clone, Copy)]
struct Attempt {
    at: usize,
    kappa: u16,
}

/// Jobs, and the places of their signatures.
type Group<'a, 's> = (&'a [Sign<'a>], &'a mut [&'s mut SignatureBytes]);

/// Messages that a thread signs.
pub(super) enum SignTask<'a, 's> {
    /// Messages that nobody has begun to sign.
    Group(Group<'a, 's>),
    /// Messages that another thread has begun to sign.
    Open(Vec<OpenJob<'a>>),
}

impl Lanes<'_> {
    /// Signs groups of jobs until there is no next one. The first jobs of a group fill lanes while the last ones of the group before are open. Before
    /// each round of attempts, half of the jobs are offered to other threads. Gives the number of jobs that this thread signed.
    pub(super) fn sign<'a, 's: 'a>(
        &mut self,
        next: Next<'_, SignTask<'a, 's>>,
        offer: Offer<'_, SignTask<'a, 's>>,
    ) -> usize {
        let (mut count, mut queue, mut open) = (0, VecDeque::new(), Vec::with_capacity(self.lanes));
        let (mut held, mut keys) = (Vec::new(), Vec::with_capacity(self.lanes));
        let mut lanes = Vec::with_capacity(self.lanes);
        loop {
            while open.len() < self.lanes {
                if queue.is_empty() {
                    match next() {
                        Some(SignTask::Group(group)) => queue.extend(self.start(group)),
                        Some(SignTask::Open(jobs)) => queue.extend(jobs),
                        None => {}
                    }
                }
                let Some(first) = queue.pop_front() else { break };
                open.push(first);
            }
            let half = (queue.len() + open.len()) / 2;
            if half > 0 {
                offer(&mut || {
                    let mut jobs: Vec<_> = queue.split_off(queue.len().saturating_sub(half)).into();
                    jobs.extend(open.split_off(open.len() - (half - jobs.len())));
                    SignTask::Open(jobs)
                });
            }
            if open.is_empty() {
                return count;
            }
            lanes.clear();
            for lane in 0..self.lanes {
                let at = lane % open.len();
                lanes.push(Attempt { at, kappa: open[at].kappa });
                open[at].kappa += L as u16;
            }
            lanes.rotate_right(self.turn % self.lanes);
            keys.clear();
            keys.extend(lanes.iter().map(|lane| open[lane.at].job.key));
            let same = self.load_keys(&mut held, &keys, |key| {
                key.a_hat().as_flattened().iter().chain(key.s1_hat()).chain(key.s2_hat()).map(|a| (a, 1.0))
            });
            self.attempt(same, &lanes, &mut open);
            let before = open.len();
            open.retain(|open| !open.is_signed);
            count += before - open.len();
        }
    }

    /// Makes jobs ready for their attempts.
    fn start<'a>(&mut self, (jobs, signatures): Group<'a, '_>) -> Vec<OpenJob<'a>> {
        let after_mu = self.after_mu(jobs.len(), |job| (jobs[job].key.state_after_tr(), jobs[job].message));
        let of_jobs = jobs.iter().zip(signatures).zip(after_mu);
        let open = of_jobs.map(|((job, signature), (mu, after_mu))| {
            let rho2 = job.message.rho2(job.key.key(), job.key.tr(), &mu);
            OpenJob { job, signature, after_mu, rho2, kappa: 0, is_signed: false }
        });
        open.collect()
    }

    /// Makes one attempt in each lane. A message's lanes have rising κ: the first attempt that passes gives its signature.
    fn attempt(&mut self, same: bool, lanes: &[Attempt], open: &mut [OpenJob<'_>]) {
        self.expand_y(lanes, open);
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
        self.com(self.lanes, |lane| &open[lanes[lane].at].after_mu);
        // Nobody learns the w₁ of an attempt that fails, and c̃ is a hash of w₁.
        declassify(&*self.s.c_tilde);
        self.ball(self.lanes);
        self.lattice.ntt(&mut self.s.challenge);
        // ‖LowPart(w − c·s₂)‖, and z = y + c·s₁ with its norm
        self.times_challenge(same, K * VECTOR + VECTOR);
        self.lattice.low_norms(&self.s.w, &self.s.values[..size], &mut self.s.r0_norms);
        self.times_challenge(same, K * VECTOR);
        self.lattice.add_norms(&mut self.s.values[..size], &self.s.y, &mut self.s.z_norms);
        for lane in (0..self.lanes).map(|i| self.lane(i)) {
            let open = &mut open[lanes[lane].at];
            // The test that an attempt fails is public: it depends on masks that are discarded then.
            let passes = !self.s.failed[lane]
                && declassified(self.s.r0_norms[lane] < f64::from(GAMMA2 - BETA))
                && declassified(self.s.z_norms[lane] < f64::from(GAMMA1 - BETA));
            if passes && !open.is_signed {
                let bytes = &mut *open.signature;
                let (c_packed, z_packed) = bytes.split_at_mut(C_TILDE_BYTES);
                pack_fes(&self.c_tilde(lane), c_packed);
                let z: Vec<i32> = column(&self.s.values[..size], self.lanes, lane).map(|x| x as i32).collect();
                pack_codes::<18>(&z, |x| GAMMA1.wrapping_sub(x as u32), z_packed);
                // z passed both tests, so it reveals nothing of s₁.
                declassify(&bytes[..]);
                open.is_signed = true;
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
    fn expand_y(&mut self, lanes: &[Attempt], open: &[OpenJob<'_>]) {
        const INPUT: usize = 66;
        const OUTPUT: usize = Y_BLOCKS * Shake::Shake256.rate();
        let (rows, s) = (N * self.lanes, &mut *self.s);
        let inputs = &mut s.inputs[..lanes.len() * L * INPUT];
        let masks = (0..L as u16).flat_map(|i| lanes.iter().map(move |lane| (lane, lane.kappa.wrapping_add(i))));
        for (input, (lane, kappa)) in inputs.as_chunks_mut::<INPUT>().0.iter_mut().zip(masks) {
            let (rho2, last) = input.split_at_mut(INPUT - 2);
            rho2.copy_from_slice(&open[lane.at].rho2[..]);
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
