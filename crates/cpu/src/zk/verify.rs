//! Verification: one signature in each lane.

use super::Verify;
use super::lanes::{Lanes, VECTOR, set};
use hypergrove_lanes::Rows;
use hypergrove_zkdilithium::keys::DecodedSignature;
use hypergrove_zkdilithium::params::*;

impl Lanes<'_> {
    /// Writes the verdicts of valid signatures to places that are all `false`.
    pub(super) fn verify(&mut self, jobs: &[Verify<'_>], verdicts: &mut [bool]) {
        let after_mu = self.after_mu(jobs.len(), |job| (jobs[job].key.state_after_tr(), jobs[job].message));
        let opened: Vec<_> = jobs.iter().map(|job| DecodedSignature::new(job.signature)).collect();
        let candidates: Vec<usize> = (0..jobs.len()).filter(|job| opened[*job].is_some()).collect();
        let mut held = Vec::new();
        for group in candidates.chunks(self.lanes) {
            // Lanes that are left over repeat the last job.
            let instances: Vec<usize> = (0..self.lanes).map(|lane| self.instance(lane).min(group.len() - 1)).collect();
            let count = self.count(group.len());
            let job = |lane: usize| group[instances[lane]];
            let open = |lane: usize| opened[job(lane)].as_ref().expect("a candidate");
            let keys: Vec<_> = (0..self.lanes).map(|lane| jobs[job(lane)].key).collect();
            let same = self.load_keys(&mut held, &keys, |key| {
                (0..K).flat_map(|i| key.a_hat()[i].iter().map(|a| (a, 1.0)).chain([(&key.t_hat()[i], -1.0)]))
            });
            for lane in 0..self.lanes {
                let c_tilde = open(lane).c_tilde.iter().map(|x| f64::from(x.value()));
                set(&mut self.s.c_tilde, self.lanes, lane, c_tilde);
            }
            let columns = &mut self.s.columns[..N * self.lanes];
            for (i, z) in self.s.values[..VECTOR * self.lanes].chunks_exact_mut(N * self.lanes).enumerate() {
                for (lane, column) in columns.chunks_exact_mut(N).enumerate() {
                    column.copy_from_slice(&open(lane).z[i]);
                }
                self.lattice.rows(columns, z);
            }
            self.ball(count);
            // w = INTT(Â·NTT(z) − NTT(c)·NTT(t))
            self.s.values[VECTOR * self.lanes..].copy_from_slice(&self.s.challenge);
            self.lattice.ntt(&mut self.s.values);
            let mut w = std::mem::replace(&mut self.s.w, Rows::new(0, 1));
            for (i, w) in w.chunks_exact_mut(N * self.lanes).enumerate() {
                self.lattice.dot(self.factors(same, i * (VECTOR + N), VECTOR + N), &self.s.values, w);
            }
            self.lattice.intt(&mut w);
            self.s.w = w;
            self.com(count, |lane| &after_mu[job(lane)].1);
            for (i, job) in group.iter().enumerate() {
                let lane = self.lane(i);
                verdicts[*job] = !self.s.failed[lane] && self.c_tilde(lane) == open(lane).c_tilde;
            }
        }
    }
}
