//! One axis after the other, each by successive halving, until no step on any axis is an improvement.

use super::halving;
use super::lab::{Lab, PolicyTimes, Search, Stop, distinct, same};
use crate::model::{Kernel, Sample, Shape, adaptive};
use hypergrove_engine::{Axis, Policy};

/// Its row.
pub const SEARCH: Search =
    Search { name: "descent", what: "one axis after the other, by successive halving", run, prunes: true };

/// Values of an axis that are all tried; of more, some are, and a model says which others.
const FEW: usize = 8;
/// Rounds over all axes, at most.
const ROUNDS: usize = 4;

fn run(space: &[Axis], start: &[Policy], lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<(), Stop> {
    let Some(mut best) = halving::halve(start, lab, seen)? else { return Ok(()) };
    let axes: Vec<&Axis> = space.iter().filter(|axis| axis.tuned && axis.values.len() > 1).collect();
    // The axis that changed last needs no second look until another one has changed.
    let mut settled = 0;
    for round in 0..ROUNDS {
        for axis in &axes {
            if settled == axes.len() {
                return Ok(());
            }
            let values: Vec<u32> = match round {
                0 if axis.values.len() > FEW => curve(axis, &best, lab, seen)?,
                0 => axis.values.to_vec(),
                _ => neighbours(axis, &best),
            };
            let others = values.into_iter().map(|value| best.with(axis.name, value));
            let candidates = distinct(std::iter::once(best.clone()).chain(others));
            let winner = halving::halve(&candidates, lab, seen)?.unwrap_or_else(|| best.clone());
            settled = if same(&winner, &best) { settled + 1 } else { 1 };
            best = winner;
        }
    }
    Ok(())
}

/// The values next to the one that is chosen.
fn neighbours(axis: &Axis, best: &Policy) -> Vec<u32> {
    let at = best.get(axis.name).and_then(|value| axis.values.iter().position(|other| *other == value));
    let Some(at) = at else { return Vec::new() };
    [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| axis.values.get(at).copied()).collect()
}

/// Of many values the powers of two and the last are timed once; of the law T = α + β/v + γ·v through these times, the
/// values around its least are candidates, and the fastest that was timed.
fn curve(axis: &Axis, best: &Policy, lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<Vec<u32>, Stop> {
    let last = axis.values.len() - 1;
    let some = axis.values.iter().enumerate().filter(|(at, value)| *at == 0 || *at == last || value.is_power_of_two());
    let some: Vec<u32> = some.map(|(_, value)| *value).collect();
    let mut samples = Vec::new();
    for value in &some {
        let policy = best.with(axis.name, *value);
        if seen.of(&policy).is_empty() {
            seen.time(&policy, lab)?;
        }
        let seconds = seen.least(&policy);
        if seconds.is_finite() {
            samples.push(Sample { shape: Shape::threads((*value).max(1)), seconds, sigma: 0.0 });
        }
    }
    let kernel = Kernel { units: 1, cores: 1 };
    let fastest = samples.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).map(|s| s.shape.blocks);
    let (first, last) = (f64::from(axis.values[0].max(1)), f64::from(axis.values[last]));
    let fit = adaptive::MODEL.fit(kernel, &samples).ok();
    let turn = fit.and_then(|fit| adaptive::optimum(&fit, (first, last))).map(|best| best.threads);
    let near = turn.map(|turn| {
        let after = axis.values.partition_point(|value| f64::from(*value) < turn);
        let around = after.saturating_sub(1)..(after + 2).min(axis.values.len());
        axis.values[around].to_vec()
    });
    Ok(near.into_iter().flatten().chain(fastest).collect())
}
