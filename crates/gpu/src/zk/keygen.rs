//! Key generation: a pass is one row of launches.

use super::ZkGpu;
use super::pass::Layout;
use crate::gpu::Gpu;
use hypergrove_engine::Error;
use hypergrove_kernels::zk::*;
use hypergrove_kernels::{Args, Kernel};
use hypergrove_zkdilithium::SigningKeyBytes;
use hypergrove_zkdilithium::params::{SEED_BYTES, SK_BYTES};

impl<G: Gpu> ZkGpu<G> {
    pub(super) fn keygen_pass(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys_to: &mut [&mut SigningKeyBytes],
    ) -> Result<(), Error> {
        let pad = self.pad;
        let (count, mut layout) = (pad + seeds.len(), Layout::default());
        let input = layout.both(count * SEED_BYTES / 4);
        let grown = layout.device(count * SEED_SIZE);
        let short = layout.device(count * 8 * SHORT_SIZE);
        let private = layout.device(count * SK_BYTES / 4);
        let pieces = layout.pieces(count, SK_BYTES);
        let keys = layout.public(count * KEY_SIZE);
        self.memory.ensure(&layout)?;
        let (padding, rest) = self.memory.bytes(input, count * SEED_BYTES).split_at_mut(pad * SEED_BYTES);
        padding.copy_from_slice(seeds[..pad].as_flattened());
        rest.copy_from_slice(seeds.as_flattened());
        let [input_at, grown, keys, short, outs] =
            [input, grown, keys, short, private].map(|part| self.memory.at(part));
        let matrix = Args { keys, jobs: grown, count: SEED_SIZE as u32, ..Args::default() };
        let words = (SK_BYTES / 4) as u32;
        let tr = Args {
            jobs: outs,
            outs,
            count: words,
            skip: SK_T as u32,
            rows: words,
            first: SK_TR as u32,
            ..Args::default()
        };
        self.run(&[
            self.memory.upload(input, count * SEED_BYTES),
            self.threads(Kernel::ZkSeed, count, Args { jobs: input_at, outs: grown, ..Args::default() }),
            self.threads(Kernel::ZkMatrix, 16 * count, matrix),
            self.threads(Kernel::ZkShort, 8 * count, Args { jobs: grown, outs: short, ..Args::default() }),
            self.blocks(Kernel::ZkPublic, count, Args { keys, jobs: grown, nodes: short, outs, ..Args::default() }),
            self.threads(Kernel::ZkTr, count, tr),
        ])?;
        self.fetch_to(pieces, private, (pad, keys_to))
    }
}
