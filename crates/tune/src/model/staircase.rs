//! The chip's own staircase: blocks come in waves of one a core, and the last wave takes as long as a full one.
//!
//! T = α + λ·s + τ·w, where s = ⌈units / t⌉ are the steps of the thread that has most to do, and w = ⌈blocks / cores⌉ ·
//! threads · s the steps of the core that has most to do. λ is the latency of a step, which few threads cannot hide; τ
//! the time that a step takes of a core's throughput.

use super::{Kernel, Model, Shape};

/// The model.
pub static MODEL: Model = Model {
    parameters: &["α", "λ", "τ"],
    features: |kernel: &Kernel, shape: Shape| {
        let (steps, waves) = (steps(kernel, shape), waves(kernel, shape));
        vec![1.0, steps, waves * f64::from(shape.threads) * steps]
    },
};

/// Units that the busiest thread works on, one after the other.
pub fn steps(kernel: &Kernel, shape: Shape) -> f64 {
    (kernel.units as f64 / shape.total().max(1.0)).ceil().max(1.0)
}

/// Blocks that the busiest core gets: ⌈blocks / cores⌉. Blocks without work count for nothing.
pub fn waves(kernel: &Kernel, shape: Shape) -> f64 {
    let with_work = kernel.units.div_ceil(u64::from(shape.threads.max(1))).max(1);
    u64::from(shape.blocks).min(with_work).div_ceil(u64::from(kernel.cores.max(1))) as f64
}
