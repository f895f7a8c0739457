//! One question answered: a search, and then its winner against the defaults once more.

use crate::search::halving::halve;
use crate::search::{Lab, PolicyTimes, Search, Stop, median, same, spread};
use hypergrove_engine::{Axis, Error, Policy};

/// Runs of winner and defaults in turn, by which the one is preferred to the other: it has to be faster in all of these
/// pairs but one, which chance alone makes of 2 % of equals, and by [`GAIN`].
const CONFIRMED_BY: usize = 9;
/// Runs after which a policy may win.
const SURE: usize = 4;
/// The gain by which a policy is preferred to the defaults: less is not worth a row.
const GAIN: f64 = 0.005;

/// The best policy that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The policy: the defaults, where nothing was faster.
    pub policy: Policy,
    /// Median of its times, and its standard deviation as a share.
    pub seconds: f64,
    /// See `seconds`.
    pub spread: f64,
    /// Median of the defaults' times, and its standard deviation as a share.
    pub default_seconds: f64,
    /// See `default_seconds`.
    pub default_spread: f64,
    /// Runs that were timed.
    pub samples: usize,
    /// Policies that were timed.
    pub policies: usize,
    /// Whether the search came to its end, and not its time.
    pub complete: bool,
}

impl Outcome {
    /// How many times as fast as by the defaults, and the standard deviation of that.
    pub fn gain(&self) -> (f64, f64) {
        let gain = self.default_seconds / self.seconds;
        (gain, gain * (self.spread.powi(2) + self.default_spread.powi(2)).sqrt())
    }
}

/// Leaves out what makes no difference: a row should say what matters.
fn prune(best: &mut Policy, base: &Policy, lab: &mut dyn Lab, seen: &mut PolicyTimes) -> Result<(), Stop> {
    for (axis, _) in best.0.clone() {
        let others = best.0.iter().copied().filter(|(other, _)| *other != axis);
        let without = Policy(others.chain(base.get(axis).map(|value| (axis, value))).collect());
        if !same(&without, best) {
            *best = halve(&[without, best.clone()], lab, seen)?.unwrap_or_else(|| best.clone());
        }
    }
    Ok(())
}

/// Looks for the best policy. `base` are the defaults, `seeds` policies that were best elsewhere. When the lab's time is
/// over, `confirm` gives the lab for the last few runs.
pub fn find<L: Lab>(
    search: &Search,
    space: &[Axis],
    base: &Policy,
    seeds: &[Policy],
    lab: &mut L,
    confirm: impl FnOnce(&mut L),
) -> Result<(Outcome, PolicyTimes), Error> {
    let mut seen = PolicyTimes::default();
    let start: Vec<Policy> = std::iter::once(base.clone()).chain(seeds.iter().cloned()).collect();
    let done = (search.run)(space, &crate::search::distinct(start), lab, &mut seen);
    let mut best = seen.best(SURE).cloned().unwrap_or_else(|| base.clone());
    let pruned = done.and_then(|()| if search.prunes { prune(&mut best, base, lab, &mut seen) } else { Ok(()) });
    let complete = match pruned {
        Ok(()) => true,
        Err(Stop::Budget) => false,
        Err(Stop::Failed(why)) => return Err(why),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    confirm(lab);
    for _ in 0..CONFIRMED_BY {
        for (policy, times) in [(base, &mut theirs), (&best, &mut ours)] {
            match lab.run(policy) {
                Ok(seconds) => times.extend(seconds),
                Err(Stop::Budget) => {}
                Err(Stop::Failed(why)) => return Err(why),
            }
        }
    }
    // The search's own times of the two count where there is no more time.
    for (policy, times) in [(base, &mut theirs), (&best, &mut ours)] {
        if times.len() < 2 {
            times.extend(seen.of(policy));
        }
    }
    if theirs.is_empty() || ours.is_empty() {
        let what = "the time was over before the defaults had run once; give more with --budget".into();
        return Err(Error::Value { what });
    }
    let pairs = ours.len().min(theirs.len());
    let won = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours < theirs).count();
    let faster = won + 1 >= pairs && median(&ours) < median(&theirs) * (1.0 - GAIN) && !same(&best, base);
    let of_theirs = spread(&theirs);
    let (policy, times) = if faster { (best, &ours) } else { (base.clone(), &theirs) };
    let outcome = Outcome {
        policy,
        seconds: median(times),
        spread: spread(times),
        default_seconds: median(&theirs),
        default_spread: of_theirs,
        samples: seen.runs() + ours.len() + theirs.len(),
        policies: seen.0.len(),
        complete,
    };
    Ok((outcome, seen))
}
