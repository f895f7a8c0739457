//! Time by the work alone: κ · ideal, shared by the cores that have anything to do.
//!
//! The ideal is `Plan::work` at the device's rates. Without samples κ = 1: the start from which a device that was never
//! measured is judged. κ⁻¹ is the fraction of the limit that a kernel reaches.

use super::{Kernel, Model, Shape};

/// Its row.
pub const MODEL: Model = Model {
    name: "roofline",
    law: "κ · ideal · cores / min(blocks, cores)",
    parameters: &["κ"],
    features: |kernel: &Kernel, shape: Shape| {
        let cores = f64::from(kernel.cores.max(1));
        Some(vec![kernel.ideal? * cores / f64::from(shape.blocks.max(1)).min(cores)])
    },
    // Kernels of this engine reach 17 to 99 % of the limit (docs/cuda.md, BENCHMARKS.md).
    known: Some(&[(1.0, 1.0)]),
};
