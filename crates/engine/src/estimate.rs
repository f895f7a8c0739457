//! Estimates of times that were not measured: from the device's rates, or from times of other batches.

use crate::{Backend, Choice, Device, Knowledge, Policy, PolicySource};
use hypergrove_fips205::plan::Plan;

/// The largest share of the seconds by which two timings of the same thing differ on a quiet machine. No sample counts as surer than this, so that
/// one lucky timing does not bend a curve.
pub const LEAST_SIGMA: f64 = 0.003;

/// A measured time of some amount of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// The amount of work.
    pub x: f64,
    /// Seconds, the median of several runs.
    pub seconds: f64,
    /// Standard deviation of `seconds`; 0 where it is not known.
    pub sigma: f64,
}

/// A predicted time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Seconds.
    pub seconds: f64,
    /// The standard deviation, from that of the parameters and that of the samples around the law.
    pub sigma: f64,
}

/// A law τ·x + α through points.
struct Law {
    /// The sum of the squares of the points' distances from the law, each in units of the point's standard deviation.
    chi2: f64,
    /// τ and α.
    parameters: [f64; 2],
    /// The variance of τ, the covariance of τ and α, and the variance of α.
    covariance: [f64; 3],
    /// How many of the two parameters are free; the others are 0.
    free: usize,
}

/// Fits T = α + τ·x to points, with neither α nor τ below 0, and gives the time at `x`. `None` without points.
///
/// The fit is by weighted least squares. Of the laws with τ alone, with α alone and with both, it takes the one with the least sum that has no
/// parameter below 0. Another parameter that brings nothing is left out.
pub fn line(points: &[Point], x: f64) -> Option<Estimate> {
    let sigma = |point: &Point| point.sigma.max(LEAST_SIGMA * point.seconds);
    let column = |of: fn(&Point) -> f64| points.iter().map(|point| of(point) / sigma(point)).collect::<Vec<f64>>();
    let (amounts, ones, y) = (column(|point| point.x), column(|_| 1.0), column(|point| point.seconds));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let chi2 = |[tau, alpha]: [f64; 2]| {
        let off = |i: usize| y[i] - tau * amounts[i] - alpha * ones[i];
        (0..y.len()).map(|i| off(i).powi(2)).sum::<f64>()
    };
    let mut best: Option<Law> = None;
    let mut offer = |parameters: [f64; 2], covariance, free| {
        if parameters.iter().any(|parameter| *parameter < 0.0) {
            return;
        }
        let chi2 = chi2(parameters);
        let is_less = |old: &Law| chi2 < old.chi2 * (1.0 - 1e-12) || (chi2 <= old.chi2 && free < old.free);
        if best.as_ref().is_none_or(is_less) {
            best = Some(Law { chi2, parameters, covariance, free });
        }
    };
    let usable = |norm: f64| norm > 0.0 && norm.is_finite();
    // Columns are scaled to length 1, because amounts of work and ones differ by many orders of magnitude.
    let [long, high] = [dot(&amounts, &amounts).sqrt(), dot(&ones, &ones).sqrt()];
    if usable(long) {
        offer([dot(&amounts, &y) / long / long, 0.0], [(long * long).recip(), 0.0, 0.0], 1);
    }
    if usable(high) {
        offer([0.0, dot(&ones, &y) / high / high], [0.0, 0.0, (high * high).recip()], 1);
    }
    if points.len() > 1 && usable(long) && usable(high) {
        let unit = |column: &[f64], norm: f64| column.iter().map(|value| value / norm).collect::<Vec<f64>>();
        let (u, v) = (unit(&amounts, long), unit(&ones, high));
        let along = dot(&u, &v);
        let across: Vec<f64> = v.iter().zip(&u).map(|(v, u)| v - along * u).collect();
        let pivot = dot(&across, &across).sqrt();
        if pivot >= 1e-9 {
            let alpha = dot(&across, &y) / pivot / pivot;
            let tau = dot(&u, &y) - along * alpha;
            let square = (pivot * pivot).recip();
            let covariance = [
                (1.0 + along * along * square) / (long * long),
                -along * square / (long * high),
                square / (high * high),
            ];
            offer([tau / long, alpha / high], covariance, 2);
        }
    }
    let Law { chi2, parameters: [tau, alpha], covariance: [a, b, c], free } = best?;
    let freedom = points.len() - free;
    let widened = if freedom > 0 { (chi2 / freedom as f64).max(1.0) } else { 1.0 };
    let off = |point: &Point| {
        let law = tau * point.x + alpha;
        ((point.seconds - law) / law).powi(2)
    };
    let scatter = (points.iter().map(off).sum::<f64>() / freedom.max(1) as f64).sqrt();
    let seconds = tau * x + alpha;
    let variance = (widened * (a * x * x + 2.0 * b * x + c)).max(0.0);
    Some(Estimate { seconds, sigma: (variance + (scatter * seconds).powi(2)).sqrt() })
}

/// The knowledge about a device whose policies nobody measured.
#[derive(Clone, Copy, Debug)]
pub struct Unmeasured;

impl Knowledge for Unmeasured {
    fn choose(&self, backend: &dyn Backend, device: &Device, plan: &Plan, _: usize) -> Option<Choice> {
        // No program is faster than the device's rates.
        let (work, rates) = (plan.work(), backend.rates(device)?);
        let seconds = work.seconds(&rates);
        let why = "at the device's rates, which nothing exceeds".into();
        let (policy, source) = (Policy::default(), PolicySource::Default);
        Some(Choice { policy, source, seconds: Some((seconds, seconds)), why })
    }

    fn interpolate(&self, times: &[(usize, f64)], jobs: usize) -> Option<f64> {
        let point = |(jobs, seconds): &(usize, f64)| Point { x: *jobs as f64, seconds: *seconds, sigma: 0.0 };
        let points: Vec<Point> = times.iter().map(point).collect();
        line(&points, jobs as f64).map(|estimate| estimate.seconds)
    }
}
