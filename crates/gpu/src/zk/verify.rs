//! Verification: a pass is one stream of launches.

use super::pass::PassLayout;
use super::{DistinctKeys, ZkGpu, on_side, padded};
use crate::gpu::{Gpu, Step};
use crate::ring::in_threads;
use hypergrove_engine::{Error, ZkVerify};
use hypergrove_kernels::arguments::{
    AbsorbMessage, AbsorbTr, CompareCommitment, DrawOfSignatures, ExpandA, HashPublic, PrepareKeys, Recompute,
};
use hypergrove_kernels::zk::flags::OF_PUBLIC;
use hypergrove_kernels::zk::*;
use hypergrove_zkdilithium::params::{PK_BYTES, SIG_BYTES};
use std::borrow::Cow;

impl<G: Gpu> ZkGpu<G> {
    pub(super) fn verify_pass(&mut self, all: &[ZkVerify<'_>], out: &mut Vec<bool>, pad: usize) -> Result<(), Error> {
        // Bytes of another length are no signature.
        let fits = |job: &ZkVerify<'_>| job.signature.len() == SIG_BYTES;
        let jobs: Cow<'_, [ZkVerify<'_>]> = match all.iter().all(fits) {
            true => Cow::Borrowed(all),
            false => all.iter().copied().filter(fits).collect(),
        };
        let jobs = &*jobs;
        if jobs.is_empty() {
            out.resize(out.len() + all.len(), false);
            return Ok(());
        }
        let parallel = in_threads(self.policy.threads);
        let (count, mut layout) = (pad + jobs.len(), PassLayout::default());
        let mut table = DistinctKeys::padded(pad, jobs[0].key);
        // An unwanted job is a copy of the first.
        let key_of: Vec<u32> = (0..count).map(|i| table.number(jobs[i.saturating_sub(pad)].key)).collect();
        let messages = padded(pad, jobs, parallel, |job| job.message);
        let at = self.inputs(&mut layout, (table.keys.len(), PK_BYTES), &messages)?;
        let (made, signatures) = (layout.device(count * MADE_SIZE), layout.device(count * SIG_BYTES / 4));
        let verdicts = layout.both(count);
        let rows = padded(pad, jobs, parallel, |job| job.signature);
        let way = self.way(&mut layout, rows.iter().map(|row| row.as_ptr() as u64), SIG_BYTES, 0);
        self.memory.ensure(&layout)?;
        self.send(&way, &rows, signatures)?;
        let mut steps =
            self.lay_out(&at, (&table, &key_of), PK_BYTES, |key, to| to.copy_from_slice(key.as_bytes()), &messages);
        let keys = self.memory.at(at.keys);
        let (raw, starts, words) = (self.memory.at(at.raw), self.memory.at(at.starts), (PK_BYTES / 4) as u32);
        let tr = HashPublic {
            raw,
            raw_words: words,
            t_at: PK_T as u32,
            to: keys,
            to_words: KEY_SIZE as u32,
            tr_at: KEY_TR as u32,
        };
        // The addresses of these on the device.
        let [made, signatures, verdicts_at, jobs_at, messages] =
            [made, signatures, verdicts, at.jobs, at.messages].map(|part| self.memory.at(part));
        let keys_count = table.keys.len();
        // μ and w₁ do not depend on each other. Of few jobs, both are long chains that leave the device idle.
        steps.extend([
            Step::Fork,
            on_side(self.threads(keys_count, tr)),
            on_side(self.sponge(keys_count, AbsorbTr { keys })),
            on_side(self.sponge(count, AbsorbMessage { keys, jobs: jobs_at, messages, starts })),
            self.threads(16 * keys_count, ExpandA { raw, raw_words: words, keys }),
            self.blocks(keys_count, PrepareKeys { raw, keys, flags: OF_PUBLIC }),
            self.sponge(count, DrawOfSignatures { made, signatures }),
            self.blocks(count, Recompute { keys, jobs: jobs_at, made, signatures, verdicts: verdicts_at }),
            Step::Join,
            self.sponge(count, CompareCommitment { starts, made, signatures, verdicts: verdicts_at }),
            self.memory.download(verdicts, 4 * count),
        ]);
        self.run(&steps)?;
        let verdicts = self.memory.bytes(verdicts, 4 * count).as_chunks::<4>().0;
        let mut verdicts = verdicts[pad..].iter().map(|verdict| u32::from_le_bytes(*verdict) == 1);
        out.extend(all.iter().map(|job| fits(job) && verdicts.next() == Some(true)));
        Ok(())
    }
}
