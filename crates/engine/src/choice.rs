//! The choice of a batch's policy, its source, and its adjustment when the measured time is far off the prediction.

use crate::backend::Backend;
use crate::device::{Axis, Device, Policy, THREADS};
use hypergrove_fips205::plan::Plan;
use std::mem::replace;

/// The source of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicySource {
    /// The backend's defaults and the engine's number of threads.
    Default,
    /// A table's row: measured for this op and about this number of jobs.
    Table,
    /// A model's estimate, from rows for other sets or other numbers of jobs.
    Model,
    /// Measured by this engine after the time was far off the prediction.
    Adjusted,
}

/// A policy for batches of about one size.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The policy.
    pub policy: Policy,
    /// The source of the policy.
    pub source: PolicySource,
    /// Predicted seconds of one job, and their standard deviation.
    pub seconds: Option<(f64, f64)>,
    /// The table's row, or the measured times; empty if there is nothing to say.
    pub why: String,
}

/// Chooses policies and predicts times before anything runs.
pub trait Knowledge: Send + Sync {
    /// The policy for batches of `jobs` jobs. `None` if nothing is known of such plans on this device.
    fn choose(&self, backend: &dyn Backend, device: &Device, plan: &Plan, jobs: usize) -> Option<Choice>;
    /// Seconds of a batch of `jobs` jobs, interpolated from the measured (jobs, seconds) of other batches, the smallest first. `None` if these do not
    /// suffice.
    fn interpolate(&self, times: &[(usize, f64)], jobs: usize) -> Option<f64>;
}

/// A measured time is far off if it is more than this many times the predicted one.
const FAR: f64 = 1.5;
/// Runs after which a policy is judged by the fastest of them, because other work can only slow a run down.
const RUNS: u32 = 3;
/// The most neighbours of a policy that are tried: the program of each is prepared while work waits.
const MOST_TRIALS: usize = 3;
/// A neighbour has to be faster than the policy by this share of the time.
const GAIN: f64 = 0.03;

/// The policy in use for one number of jobs, and the neighbours that are tried in its place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    /// Bytes of a program with this policy, once they are known.
    pub(crate) bytes: Option<u64>,
    /// Neighbours that were not tried yet.
    untried: Vec<Policy>,
    /// Runs that were not judged, because other programs shared the device.
    overlapped: u32,
    /// Runs of the policy that is measured, and the seconds a job of the fastest of them.
    runs: u32,
    least: f64,
    state: State,
}

#[derive(Clone, PartialEq, Debug)]
enum State {
    /// The policy is measured.
    Watched,
    /// A neighbour is measured: the choice, and the seconds a job, that it must beat.
    Trial(Choice, f64),
    /// No policy is tried any more.
    Settled,
}

impl Chosen {
    /// Keeps `choice` until its time is found to be far off. A neighbour is tried only if `fits` accepts it.
    pub(crate) fn new(choice: Choice, space: &[Axis], fits: impl Fn(&Policy) -> bool) -> Chosen {
        let predicted = matches!(choice.source, PolicySource::Table | PolicySource::Model) && choice.seconds.is_some();
        let mut untried: Vec<Policy> = if predicted { neighbours(&choice.policy, space) } else { Vec::new() };
        untried.retain(fits);
        untried.truncate(MOST_TRIALS);
        untried.reverse();
        let state = if predicted { State::Watched } else { State::Settled };
        Chosen { choice, bytes: None, untried, overlapped: 0, runs: 0, least: f64::INFINITY, state }
    }

    /// The choice, whose `why` also counts the runs that were not judged.
    pub(crate) fn reported(&self) -> Choice {
        let mut choice = self.choice.clone();
        if self.overlapped > 0 && self.state != State::Settled {
            choice.why = join(
                &choice.why,
                &format!("runs that overlapped with other programs, not judged: {}", self.overlapped),
            );
        }
        choice
    }

    /// Records a run, and gives whether the choice changed. A run concurrent with other programs is not judged: they have a share of the device, so a
    /// long time is no fault of the policy.
    pub(crate) fn record(&mut self, seconds: f64, overlapped: bool) -> bool {
        if overlapped {
            self.overlapped = self.overlapped.saturating_add(1);
            return false;
        }
        (self.runs, self.least) = (self.runs.saturating_add(1), self.least.min(seconds));
        if self.runs < RUNS {
            return false;
        }
        let least = self.least;
        match replace(&mut self.state, State::Settled) {
            State::Settled => false,
            State::Watched => {
                let Some((predicted, sigma)) = self.choice.seconds else { return false };
                if least <= FAR * predicted || least <= predicted + 3.0 * sigma {
                    return false;
                }
                let far = format!("measured {} a job, predicted {}", time(least), time(predicted));
                let measured = Choice {
                    source: PolicySource::Adjusted,
                    seconds: Some((least, 0.0)),
                    why: join(&self.choice.why, &far),
                    policy: self.choice.policy.clone(),
                };
                self.next(measured, least)
            }
            State::Trial(before, old) => {
                let differs = self.choice.policy.0.iter().find(|(axis, v)| before.policy.get(axis) != Some(*v));
                let (axis, value) = differs.copied().unwrap_or(("policy", 0));
                let attempt = format!("{axis} = {value} takes {}", time(least));
                let why = join(&before.why, &attempt);
                let faster = least < old * (1.0 - GAIN);
                let (policy, seconds) = if faster { (&self.choice.policy, least) } else { (&before.policy, old) };
                let source = PolicySource::Adjusted;
                let kept = Choice { policy: policy.clone(), source, seconds: Some((seconds, 0.0)), why };
                self.next(kept, seconds)
            }
        }
    }

    /// Tries the next neighbour of `best`; without one, `best` stays.
    fn next(&mut self, best: Choice, seconds: f64) -> bool {
        (self.bytes, self.runs, self.least) = (None, 0, f64::INFINITY);
        match self.untried.pop() {
            Some(policy) => {
                self.choice = Choice { policy, ..best.clone() };
                self.state = State::Trial(best, seconds);
            }
            None => self.choice = best,
        }
        true
    }
}

/// The policies that are one step away on one of the tuned axes that the policy names. The number of threads stays, because the engine sets it.
fn neighbours(policy: &Policy, space: &[Axis]) -> Vec<Policy> {
    let tuned = || space.iter().filter(|axis| axis.tuned && axis.name != THREADS);
    let step = |axis: &Axis, value: u32| {
        let at = axis.values.iter().position(|other| *other == value);
        let near = at.map(|at| [at.checked_sub(1), Some(at + 1)]).unwrap_or_default();
        let values: Vec<u32> = near.into_iter().flatten().filter_map(|at| axis.values.get(at).copied()).collect();
        let name = axis.name;
        values.into_iter().map(move |value| policy.with(name, value))
    };
    tuned()
        .filter_map(|axis| Some((axis, policy.get(axis.name)?)))
        .flat_map(|(axis, value)| step(axis, value))
        .collect()
}

fn join(before: &str, more: &str) -> String {
    if before.is_empty() { more.into() } else { format!("{before}; {more}") }
}

fn time(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.2} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    const SPACE: &[Axis] = &[
        Axis { name: THREADS, values: Cow::Borrowed(&[1, 2]), tuned: true },
        Axis { name: "block", values: Cow::Borrowed(&[32, 64, 128]), tuned: true },
        Axis { name: "check", values: Cow::Borrowed(&[0, 1]), tuned: false },
    ];

    fn chosen(source: PolicySource, policy: &[(&'static str, u32)]) -> Chosen {
        let policy = Policy(policy.to_vec());
        Chosen::new(Choice { policy, source, seconds: Some((1e-3, 1e-5)), why: "a row".into() }, SPACE, |_| true)
    }

    /// Records runs until the choice is settled; `law` gives the seconds a job for a block.
    fn settle(chosen: &mut Chosen, law: impl Fn(u32) -> f64) {
        for _ in 0..20 {
            let block = chosen.choice.policy.get("block").unwrap_or(0);
            chosen.record(law(block), false);
        }
        assert_eq!(chosen.state, State::Settled);
    }

    #[test]
    fn a_good_prediction_is_left_alone() {
        let mut good = chosen(PolicySource::Table, &[("block", 64)]);
        settle(&mut good, |_| 1.4e-3);
        assert_eq!((good.choice.source, good.choice.policy.get("block")), (PolicySource::Table, Some(64)));
        // Slow runs change nothing if one run is as fast as predicted.
        let mut busy = chosen(PolicySource::Table, &[("block", 64)]);
        for seconds in [9e-3, 1e-3, 9e-3, 9e-3] {
            assert!(!busy.record(seconds, false));
        }
        assert_eq!(busy.choice.source, PolicySource::Table);
    }

    #[test]
    fn a_neighbour_is_measured_when_the_time_is_far_off() {
        let mut off = chosen(PolicySource::Table, &[(THREADS, 2), ("block", 64), ("check", 1)]);
        settle(&mut off, |block| if block == 128 { 2e-3 } else { 4e-3 });
        let Choice { policy, source, seconds, why } = &off.choice;
        assert_eq!((policy.get("block"), policy.get(THREADS), policy.get("check")), (Some(128), Some(2), Some(1)));
        assert_eq!((*source, *seconds), (PolicySource::Adjusted, Some((2e-3, 0.0))));
        assert_eq!(
            why,
            "a row; measured 4.00 ms a job, predicted 1.00 ms; block = 32 takes 4.00 ms; block = 128 takes 2.00 ms"
        );
        let mut worse = chosen(PolicySource::Model, &[("block", 64)]);
        settle(&mut worse, |block| if block == 64 { 3e-3 } else { 4e-3 });
        assert_eq!((worse.choice.policy.get("block"), worse.choice.source), (Some(64), PolicySource::Adjusted));
        assert_eq!(worse.choice.seconds, Some((3e-3, 0.0)));
    }

    #[test]
    fn defaults_are_not_doubted_and_policies_that_do_not_fit_are_not_measured() {
        let mut plain = chosen(PolicySource::Default, &[("block", 64)]);
        assert!(!plain.record(1.0, false));
        let policy = Policy(vec![("block", 64)]);
        let choice = Choice { policy, source: PolicySource::Table, seconds: Some((1e-3, 0.0)), why: String::new() };
        let mut tight = Chosen::new(choice, SPACE, |policy| policy.get("block") != Some(128));
        settle(&mut tight, |block| if block == 128 { 1e-3 } else { 4e-3 });
        assert_eq!(tight.choice.policy.get("block"), Some(64));
    }
}
