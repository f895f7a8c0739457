//! Signing: rounds of attempts until no job is open.

use super::pass::PassLayout;
use super::{DistinctKeys, ZkGpu, on_side, padded};
use crate::gpu::{Gpu, Step, put_words};
use crate::ring::in_threads;
use hypergrove_engine::{Error, ZkSign};
use hypergrove_kernels::arguments::{
    AbsorbMessage, AbsorbTr, Commit, Draw, ExpandA, ExpandY, HashCommitment, PrepareKeys, Respond, SeedMasks, Select,
};
use hypergrove_kernels::zk::*;
use hypergrove_zkdilithium::SignatureBytes;
use hypergrove_zkdilithium::params::{L, SIG_BYTES, SK_BYTES};

/// Attempts at a signature after which no more are begun: about one in seven passes, so the device is faulty. (The scheme allows 16,384
/// attempts, which take minutes if the device has nothing else to do.)
const MOST_ATTEMPTS: u32 = 1024;

/// A job without its signature, and the κ to try next.
#[derive(Clone, Copy)]
struct OpenJob {
    job: u32,
    kappa: u32,
}

/// Attempts at one signature in a round that leaves the device idle. All of them fail with a probability of 2^-15.
const WIDEST: usize = 64;

/// The attempts of a round: those of a job run concurrently, with rising κ. `fill` attempts fill the device, and a quarter of them takes as long as
/// one.
fn round(open: &mut [OpenJob], most: usize, fill: usize, width: usize) -> Vec<[u32; TRY_SIZE]> {
    let mut jobs = open.len().min(most);
    if jobs > fill {
        jobs -= jobs % fill;
    }
    // If there are fewer jobs than `fill`, further attempts go ahead with later κ. Those of few jobs are often in vain, so half of the device has to do.
    let ahead = (if 2 * jobs <= fill { fill / 2 } else { fill }).min(jobs * width);
    let idle = (fill / 4).min(jobs * width.max(WIDEST));
    let total = jobs.max(ahead).max(idle).min(most);
    let mut attempts = Vec::with_capacity(total);
    for (i, open) in open[..jobs].iter_mut().enumerate() {
        for _ in 0..total / jobs + usize::from(i < total % jobs) {
            attempts.push([open.job, open.kappa]);
            open.kappa += L as u32;
        }
    }
    attempts
}

impl<G: Gpu> ZkGpu<G> {
    pub(super) fn sign_pass(
        &mut self,
        jobs: &[ZkSign<'_>],
        out: &mut [&mut SignatureBytes],
        pad: usize,
    ) -> Result<(), Error> {
        let parallel = in_threads(self.policy.threads);
        let (count, mut layout) = (pad + jobs.len(), PassLayout::default());
        let mut table = DistinctKeys::padded(pad, jobs[0].key);
        let of: Vec<u32> = (0..count).map(|i| table.number(jobs[i.saturating_sub(pad)].key)).collect();
        let messages = padded(pad, jobs, parallel, |job| job.message);
        let fill = (self.gpu.facts().compute_units * self.policy.fill) as usize;
        let width = self.policy.width as usize;
        let most = self.limits.attempts.min(count * width.max(WIDEST)) + pad;
        let at = self.inputs(&mut layout, (table.keys.len(), SK_BYTES), &messages)?;
        let (made, signatures) = (layout.device(most * MADE_SIZE), layout.device(count * SIG_BYTES / 4));
        let (tries, flags) = (layout.both(most * TRY_SIZE), layout.both(most));
        let way = self.way(&mut layout, out.iter_mut().map(|place| place.as_mut_ptr() as u64), SIG_BYTES, pad);
        self.memory.ensure(&layout)?;
        let mut steps =
            self.lay_out(&at, (&table, &of), SK_BYTES, |key, to| to.copy_from_slice(key.secret_bytes()), &messages);
        let (keys, raw) = (self.memory.at(at.keys), self.memory.at(at.raw));
        let (starts, jobs_at) = (self.memory.at(at.starts), self.memory.at(at.jobs));
        let messages = self.memory.at(at.messages);
        let (keys_count, words) = (table.keys.len(), (SK_BYTES / 4) as u32);
        steps.extend([
            self.blocks(keys_count, PrepareKeys { raw, keys, flags: 0 }),
            Step::Fork,
            on_side(self.threads(16 * keys_count, ExpandA { raw, raw_words: words, keys })),
            self.sponge(keys_count, AbsorbTr { keys }),
            self.sponge(count, AbsorbMessage { keys, jobs: jobs_at, messages, starts }),
            self.threads(count, SeedMasks { keys, jobs: jobs_at, messages, starts }),
            Step::Join,
        ]);
        self.run(&steps)?;
        let [made, attempts_at, signatures_at, passes] =
            [made, tries, signatures, flags].map(|part| self.memory.at(part));
        let mut open: Vec<OpenJob> = (pad as u32..count as u32).map(|job| OpenJob { job, kappa: 0 }).collect();
        let mut signed = vec![false; count];
        while !open.is_empty() {
            if let Some(OpenJob { kappa, .. }) = open.iter().find(|open| open.kappa >= MOST_ATTEMPTS * L as u32) {
                let failed = kappa / L as u32;
                let what = format!("a message of which {failed} attempts failed, which has a probability below 2^-241");
                return Err(Error::Inconsistent { device: self.gpu.facts().id.clone(), what });
            }
            let mut attempts = vec![[0; TRY_SIZE]; pad];
            attempts.extend(round(&mut open, most - pad, fill, width));
            let bytes = self.memory.bytes(tries, 4 * TRY_SIZE * attempts.len());
            put_words(bytes, attempts.as_flattened().iter().copied());
            let total = attempts.len();
            self.run(&[
                self.memory.upload(tries, 4 * TRY_SIZE * total),
                self.threads(L * total, ExpandY { attempts: attempts_at, starts, made }),
                self.blocks(total, Commit { keys, jobs: jobs_at, attempts: attempts_at, made }),
                self.sponge(total, HashCommitment { attempts: attempts_at, starts, made }),
                self.sponge(total, Draw { made }),
                self.blocks(total, Respond { keys, jobs: jobs_at, attempts: attempts_at, made, passes }),
                self.blocks(total, Select { attempts: attempts_at, made, passes, signatures: signatures_at }),
                self.memory.download(flags, 4 * total),
            ])?;
            let passed = self.memory.bytes(flags, 4 * total).as_chunks::<4>().0;
            for ([job, _], flag) in attempts.iter().zip(passed) {
                signed[*job as usize] |= u32::from_le_bytes(*flag) == 1;
            }
            open.retain(|open| !signed[open.job as usize]);
        }
        self.fetch_to(&way, signatures, (pad, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_full_and_in_order() {
        let open = |jobs: u32| -> Vec<OpenJob> { (0..jobs).map(|job| OpenJob { job, kappa: 8 * job }).collect() };
        assert_eq!(round(&mut open(3), 8, 4, 16), [[0, 0], [0, 4], [1, 8], [2, 16]]);
        assert_eq!(round(&mut open(5), 2, 4, 16), [[0, 0], [1, 8]]);
        assert_eq!(round(&mut open(5), 8, 2, 16).len(), 4);
        assert_eq!(round(&mut open(1), 8, 8, 3), [[0, 0], [0, 4], [0, 8]]);
        assert_eq!(round(&mut open(4), 64, 8, 16).len(), 4, "half of the device");
        assert_eq!(round(&mut open(5), 64, 8, 16).len(), 8);
        let mut later = open(2);
        round(&mut later, 8, 3, 16);
        assert_eq!(round(&mut later, 8, 3, 16), [[0, 8], [0, 12], [1, 12]]);
        // A round that leaves the device idle is as wide as a quarter of it, and no wider than `WIDEST`.
        assert_eq!(round(&mut open(2), 4096, 400, 16).len(), 100);
        assert_eq!(round(&mut open(2), 4096, 4000, 16).len(), 2 * WIDEST);
        assert_eq!(round(&mut open(20), 4096, 400, 16).len(), 200);
        assert_eq!(round(&mut open(8), 4096, 400, 16).len(), 128);
    }
}
