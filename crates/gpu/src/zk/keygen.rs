//! Key generation: a pass is one stream of launches.

use super::ZkGpu;
use super::pass::PassLayout;
use crate::gpu::Gpu;
use hypergrove_engine::Error;
use hypergrove_kernels::arguments::{ComputeT, ExpandA, ExpandS, Grow, HashPublic};
use hypergrove_kernels::zk::*;
use hypergrove_zkdilithium::SigningKeyBytes;
use hypergrove_zkdilithium::params::{SEED_BYTES, SK_BYTES};

impl<G: Gpu> ZkGpu<G> {
    pub(super) fn keygen_pass(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys_to: &mut [&mut SigningKeyBytes],
        pad: usize,
    ) -> Result<(), Error> {
        let (count, mut layout) = (pad + seeds.len(), PassLayout::default());
        let input = layout.both(count * SEED_BYTES / 4);
        let grown = layout.device(count * SEED_SIZE);
        let short = layout.device(count * 8 * SHORT_SIZE);
        let private = layout.device(count * SK_BYTES / 4);
        let way = self.way(&mut layout, keys_to.iter_mut().map(|key| key.as_mut_ptr() as u64), SK_BYTES, pad);
        let keys = layout.public(count * KEY_SIZE);
        self.memory.ensure(&layout)?;
        let (padding, rest) = self.memory.bytes(input, count * SEED_BYTES).split_at_mut(pad * SEED_BYTES);
        padding.copy_from_slice(seeds[..pad].as_flattened());
        rest.copy_from_slice(seeds.as_flattened());
        let [seeds_at, grown, keys, short, private_at] =
            [input, grown, keys, short, private].map(|part| self.memory.at(part));
        let words = (SK_BYTES / 4) as u32;
        let tr = HashPublic {
            raw: private_at,
            raw_words: words,
            t_at: SK_T as u32,
            to: private_at,
            to_words: words,
            tr_at: SK_TR as u32,
        };
        self.run(&[
            self.memory.upload(input, count * SEED_BYTES),
            self.threads(count, Grow { seeds: seeds_at, grown }),
            self.threads(16 * count, ExpandA { raw: grown, raw_words: SEED_SIZE as u32, keys }),
            self.threads(8 * count, ExpandS { grown, short }),
            self.blocks(count, ComputeT { keys, grown, short, private: private_at }),
            self.threads(count, tr),
        ])?;
        self.fetch_to(&way, private, (pad, keys_to))
    }
}
