//! The exhaustive sweep: every policy of a space. Other searches and models are judged by it.

use super::lab::{Lab, PolicyTimes, Search, Stop, distinct};
use hypergrove_engine::{Axis, Policy};

/// Its row.
pub const SEARCH: Search = Search { name: "grid", what: "every policy of the axes that are given", run, prunes: true };

/// Runs of every policy.
const RUNS: usize = 5;

/// All combinations of tuned values, on top of a policy.
pub fn policies(space: &[Axis], on: &Policy) -> Vec<Policy> {
    let mut all = vec![on.clone()];
    for axis in space.iter().filter(|axis| axis.tuned) {
        all = all.iter().flat_map(|policy| axis.values.iter().map(|value| policy.with(axis.name, *value))).collect();
    }
    all
}

fn run(space: &[Axis], start: &[Policy], lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<(), Stop> {
    let on = start.first().cloned().unwrap_or_default();
    let all = distinct(start.iter().cloned().chain(policies(space, &on)));
    let mut had = vec![true; all.len()];
    for _ in 0..RUNS {
        for (policy, had) in all.iter().zip(&mut had) {
            *had = *had && seen.time(policy, lab)?;
        }
    }
    Ok(())
}
