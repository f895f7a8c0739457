//! A search, the lab that it gets times from, and the times themselves.

use hypergrove_engine::{Axis, Error, Policy};

/// A search that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// As it is typed.
    pub name: &'static str,
    /// Its method, in a few words.
    pub what: &'static str,
    /// Does it.
    pub run: SearchFn,
    /// Whether what makes no difference is left out of the policy that it finds.
    pub prunes: bool,
}

/// Looks for the fastest policy of a space, from some that are tried first. It ends early when the lab stops.
pub type SearchFn = fn(&[Axis], &[Policy], &mut dyn Lab, &mut PolicyTimes) -> Result<(), Stop>;

/// Times policies.
pub trait Lab {
    /// Seconds of one more run by this policy; `None` if it cannot be had, for want of memory or because the device
    /// declines it.
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop>;
    /// These come next: whatever they need beforehand may be made for all of them at once.
    fn expect(&mut self, policies: &[Policy]) {
        let _ = policies;
    }
}

/// Why a search ended early.
#[derive(Clone, PartialEq, Debug)]
pub enum Stop {
    /// Its time is over.
    Budget,
    /// A device failed, or gave a wrong answer.
    Failed(Error),
}

/// All times, by policy, in the order in which policies came up.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct PolicyTimes(pub Vec<(Policy, Vec<f64>)>);

impl PolicyTimes {
    /// One more run.
    pub(super) fn time(&mut self, policy: &Policy, lab: &mut dyn Lab) -> Result<bool, Stop> {
        let took = lab.run(policy)?;
        let at = self.0.iter().position(|(other, _)| same(other, policy)).unwrap_or_else(|| {
            self.0.push((policy.clone(), Vec::new()));
            self.0.len() - 1
        });
        self.0[at].1.extend(took);
        Ok(took.is_some())
    }

    /// The times of a policy.
    pub fn of(&self, policy: &Policy) -> &[f64] {
        self.0.iter().find(|(other, _)| same(other, policy)).map_or(&[], |(_, times)| times)
    }

    /// The fastest run of a policy: whatever else a machine does can only slow one down.
    pub fn least(&self, policy: &Policy) -> f64 {
        self.of(policy).iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Timed runs.
    pub fn runs(&self) -> usize {
        self.0.iter().map(|(_, times)| times.len()).sum()
    }

    /// The policy whose times are best by their median, of those that were timed at least `runs` times; of fewer, where
    /// none was.
    pub fn best(&self, runs: usize) -> Option<&Policy> {
        let timed = || self.0.iter().filter(|(_, times)| !times.is_empty());
        let enough = timed().any(|(_, times)| times.len() >= runs);
        let sure = timed().filter(|(_, times)| !enough || times.len() >= runs);
        sure.min_by(|a, b| median(&a.1).total_cmp(&median(&b.1))).map(|(policy, _)| policy)
    }
}

/// The middle of some times; NaN of none.
pub fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => times[n / 2],
        n => (times[n / 2 - 1] + times[n / 2]) / 2.0,
    }
}

/// Standard deviation of the median, as a share of it: 1.4826 · median |x − median|, over √n, as for normal noise.
pub fn spread(times: &[f64]) -> f64 {
    let middle = median(times);
    let off: Vec<f64> = times.iter().map(|time| (time - middle).abs()).collect();
    if times.len() < 2 { 0.0 } else { 1.4826 * median(&off) / middle / (times.len() as f64).sqrt() }
}

/// Whether two policies choose the same, in whatever order.
pub fn same(a: &Policy, b: &Policy) -> bool {
    a.0.len() == b.0.len() && a.0.iter().all(|(name, value)| b.get(name) == Some(*value))
}

/// Policies without those that came up before.
pub(crate) fn distinct(policies: impl IntoIterator<Item = Policy>) -> Vec<Policy> {
    let mut out: Vec<Policy> = Vec::new();
    for policy in policies {
        if !out.iter().any(|other| same(other, &policy)) {
            out.push(policy);
        }
    }
    out
}
