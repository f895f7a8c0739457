//! Successive halving: all candidates run a little, the better half runs more, until one is left.

use super::lab::{Lab, PolicyTimes, Search, Stop};
use hypergrove_engine::{Axis, Policy};

/// Nothing is looked for: one of the policies that were best elsewhere.
pub const CANDIDATES: Search =
    Search { name: "candidates", what: "the best of those that are given", run, prunes: false };

/// Runs that the first round gives to each candidate; every round doubles them.
const FIRST: usize = 2;
/// Runs of one candidate, at most.
const MOST: usize = 16;
/// A challenger has to be faster by this share than the candidate that comes first.
const GAIN: f64 = 0.003;
/// A candidate whose first run takes so many times the best's is out at once.
const HOPELESS: f64 = 1.5;

fn run(_: &[Axis], start: &[Policy], lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<(), Stop> {
    halve(start, lab, seen).map(drop)
}

/// The best of these. The first one is kept unless another is faster by more than chance. Rounds go through all
/// candidates in turn, so that a machine that slows down slows all.
pub fn halve(candidates: &[Policy], lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<Option<Policy>, Stop> {
    lab.expect(candidates);
    let mut left: Vec<Policy> = candidates.to_vec();
    let mut runs = FIRST;
    let mut round = 0;
    while left.len() > 1 || round == 0 {
        let mut lost = Vec::new();
        for turn in 0..runs {
            for policy in &left {
                if lost.contains(policy) || seen.of(policy).len() > turn && seen.of(policy).len() >= runs {
                    continue;
                }
                let best = left.iter().map(|other| seen.least(other)).fold(f64::INFINITY, f64::min);
                let hopeless = seen.least(policy) > HOPELESS * best && seen.least(policy).is_finite();
                if hopeless || !seen.time(policy, lab)? {
                    lost.push(policy.clone());
                }
            }
        }
        left.retain(|policy| !lost.contains(policy));
        left.sort_by(|a, b| seen.least(a).total_cmp(&seen.least(b)));
        left.truncate(left.len().div_ceil(2));
        round += 1;
        if left.len() <= 1 || runs >= MOST {
            break;
        }
        runs = (2 * runs).min(MOST);
    }
    let (Some(winner), Some(first)) = (left.first(), candidates.first()) else { return Ok(None) };
    if winner == first || seen.of(first).is_empty() {
        return Ok(Some(winner.clone()));
    }
    // The two of them once more, in turn.
    for _ in 0..FIRST {
        seen.time(first, lab)?;
        seen.time(winner, lab)?;
    }
    let faster = seen.least(winner) < seen.least(first) * (1.0 - GAIN);
    Ok(Some(if faster { winner } else { first }.clone()))
}
