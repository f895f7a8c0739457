//! How a kernel's time depends on its parallelism: laws that are linear in their parameters, fitted to samples.
//!
//! A model is one file in this folder with its features. All models share the code here:
//! weighted least squares with parameters that cannot be negative, covariance, R², and [`regret`].

pub mod adaptive;
mod qr;
pub mod staircase;

use hypergrove_engine::estimate::{Estimate, LEAST_SIGMA};
use qr::{Solution, dot, norm, solve};

/// A launch shape. On a CPU, whose threads are scheduled one by one, a thread is a block of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
}

impl Shape {
    /// So many threads, of a CPU or wherever blocks do not matter.
    pub fn threads(threads: u32) -> Shape {
        Shape { blocks: threads, threads: 1 }
    }
    /// All threads: the t of T(g, t).
    pub fn total(self) -> f64 {
        f64::from(self.blocks) * f64::from(self.threads)
    }
}

/// A kernel and its problem size: what a model may know in addition to samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kernel {
    /// Independent units of work, each of which one thread can do: chains, leaves, nodes, signatures.
    pub units: u64,
    /// Cores; of a GPU, SMs or compute units.
    pub cores: u32,
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// How the kernel was launched.
    pub shape: Shape,
    /// Seconds, the median of several runs.
    pub seconds: f64,
    /// Standard deviation of `seconds`; 0 where it is not known.
    pub sigma: f64,
}

/// A law of time: Σ parameter · feature(kernel, shape), no parameter below 0.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The names of the parameters.
    pub parameters: &'static [&'static str],
    /// One feature a parameter.
    pub features: fn(&Kernel, Shape) -> Vec<f64>,
}

impl Model {
    /// The law for these samples.
    pub fn fit(&'static self, kernel: Kernel, samples: &[Sample]) -> Result<Fit, FitError> {
        if samples.is_empty() {
            return Err(FitError::Few { has: 0, needs: 1 });
        }
        if let Some(bad) = samples.iter().find(|s| !(s.seconds > 0.0 && s.seconds.is_finite() && s.sigma >= 0.0)) {
            return Err(FitError::Sample(*bad));
        }
        let rows: Vec<Vec<f64>> = samples.iter().map(|s| (self.features)(&kernel, s.shape)).collect();
        let sigmas: Vec<f64> = samples.iter().map(|s| s.sigma.max(LEAST_SIGMA * s.seconds)).collect();
        let few = FitError::Few { has: samples.len(), needs: 1 + self.parameters.len() };
        let LeastSquares { parameters, covariance, r2, scatter } = least_squares(&rows, samples, &sigmas).ok_or(few)?;
        Ok(Fit { model: self, kernel, parameters, covariance, r2, scatter })
    }
}

/// Why a model has no law for a kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FitError {
    /// Not enough samples of different shapes.
    Few {
        /// Samples that there are.
        has: usize,
        /// Samples of different shapes that would do.
        needs: usize,
    },
    /// A time that cannot be.
    Sample(Sample),
}

impl std::fmt::Display for FitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FitError::Few { has, needs } => write!(f, "{has} samples, {needs} of different shapes are needed"),
            FitError::Sample(Sample { shape, seconds, sigma }) => {
                write!(f, "a sample of {seconds} ± {sigma} s at {}×{}", shape.blocks, shape.threads)
            }
        }
    }
}

impl std::error::Error for FitError {}

/// A model with its parameters.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The model.
    pub model: &'static Model,
    /// The kernel that it was fitted to.
    pub kernel: Kernel,
    /// One a name in [`Model::parameters`]. One that is 0 lies at its bound: samples alone would have it negative or
    /// cannot tell, and its row of the covariance is 0.
    pub parameters: Vec<f64>,
    /// Of the parameters, widened where the samples scatter around the law by more than their own deviations.
    pub covariance: Vec<Vec<f64>>,
    /// Share of the samples' weighted variance that the law explains; NaN without samples, or if all have one time.
    pub r2: f64,
    /// Weighted root mean square of the samples' distances from the law, as a share of its seconds.
    pub scatter: f64,
}

impl Fit {
    /// The parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<f64> {
        Some(self.parameters[self.model.parameters.iter().position(|other| *other == name)?])
    }

    /// Time at a shape.
    pub fn predict(&self, shape: Shape) -> Estimate {
        let features = (self.model.features)(&self.kernel, shape);
        let seconds = dot(&features, &self.parameters);
        let rows = self.covariance.iter().map(|row| dot(row, &features));
        let variance = features.iter().zip(rows).map(|(f, row)| f * row).sum::<f64>().max(0.0);
        Estimate { seconds, sigma: (variance + (self.scatter * seconds).powi(2)).sqrt() }
    }

    /// The shape of these that takes least time by this law; of equal ones that with the fewest threads.
    pub fn best(&self, shapes: impl IntoIterator<Item = Shape>) -> Option<Shape> {
        let timed = shapes.into_iter().map(|shape| (self.predict(shape).seconds, shape));
        timed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total().total_cmp(&b.1.total()))).map(|(_, shape)| shape)
    }
}

/// How good a model's choice is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Regret {
    /// The shape that the model takes for the fastest.
    pub chosen: Shape,
    /// The fastest.
    pub best: Shape,
    /// How much longer the chosen one takes, measured, as a share of the best time.
    pub excess: f64,
}

/// How far a model's choice is from the best of an exhaustive sweep. `None` for an empty sweep.
pub fn regret(fit: &Fit, sweep: &[Sample]) -> Option<Regret> {
    let chosen = fit.best(sweep.iter().map(|s| s.shape))?;
    let fastest = |shape: Option<Shape>| {
        let these = sweep.iter().filter(|s| shape.is_none_or(|shape| s.shape == shape));
        these.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    };
    let (best, of_chosen) = (fastest(None)?, fastest(Some(chosen))?);
    Some(Regret { chosen, best: best.shape, excess: of_chosen.seconds / best.seconds - 1.0 })
}

/// The result of least squares; see [`Fit`].
struct LeastSquares {
    parameters: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    r2: f64,
    scatter: f64,
}

/// The least sum with some of the parameters, the others being 0.
struct Minimum {
    chi2: f64,
    of: Vec<usize>,
    found: Vec<f64>,
    covariance: Vec<Vec<f64>>,
}

/// min Σ ((yᵢ − Σⱼ xᵢⱼ pⱼ) / σᵢ)² for pⱼ ≥ 0. With three parameters at most, the bounds that hold are found by trying:
/// of all subsets of parameters whose own minimum has none below 0, the one with the least sum. `None` if the samples
/// cannot tell even one parameter.
fn least_squares(rows: &[Vec<f64>], samples: &[Sample], sigmas: &[f64]) -> Option<LeastSquares> {
    let (count, all) = (rows.len(), rows[0].len());
    let y: Vec<f64> = samples.iter().zip(sigmas).map(|(s, sigma)| s.seconds / sigma).collect();
    let mut best: Option<Minimum> = None;
    for subset in 1u32..1 << all {
        let of: Vec<usize> = (0..all).filter(|j| subset >> j & 1 == 1).collect();
        if of.len() > count {
            continue;
        }
        let column = |j: &usize| rows.iter().zip(sigmas).map(|(row, sigma)| row[*j] / sigma).collect();
        let columns: Vec<Vec<f64>> = of.iter().map(column).collect();
        // Columns of length 1: seconds, reciprocals and threads differ by many orders of magnitude.
        let scale: Vec<f64> = columns.iter().map(|column| norm(column)).collect();
        if scale.iter().any(|norm| !(*norm > 0.0 && norm.is_finite())) {
            continue;
        }
        let scaled = columns.iter().zip(&scale).map(|(column, norm)| column.iter().map(|x| x / norm).collect());
        let Some(Solution { x, inverse }) = solve(scaled.collect(), y.clone()) else { continue };
        let parameters: Vec<f64> = x.iter().zip(&scale).map(|(x, norm)| x / norm).collect();
        if parameters.iter().any(|p| p.is_nan() || *p < 0.0) {
            continue;
        }
        let law = |i: usize| columns.iter().zip(&parameters).map(|(column, p)| column[i] * p).sum::<f64>();
        let chi2 = y.iter().enumerate().map(|(i, y)| (y - law(i)).powi(2)).sum();
        // A parameter more always brings the sum down; one that brings nothing is left out.
        let is_less = |old: &Minimum| chi2 < old.chi2 * (1.0 - 1e-12) || (chi2 <= old.chi2 && of.len() < old.of.len());
        if best.as_ref().is_none_or(is_less) {
            // (RᵀR)⁻¹ = R⁻¹ R⁻ᵀ.
            let product = |i: usize, j: usize| dot(&inverse[i], &inverse[j]) / (scale[i] * scale[j]);
            let row = |i| (0..of.len()).map(|j| product(i, j)).collect();
            best = Some(Minimum { chi2, covariance: (0..of.len()).map(row).collect(), found: parameters, of });
        }
    }
    let Minimum { chi2, of, found, covariance } = best?;
    let mut parameters = vec![0.0; all];
    let mut whole = vec![vec![0.0; all]; all];
    let freedom = count.saturating_sub(of.len());
    let widened = if freedom > 0 { (chi2 / freedom as f64).max(1.0) } else { 1.0 };
    for (i, to) in of.iter().enumerate() {
        parameters[*to] = found[i];
        for (j, other) in of.iter().enumerate() {
            whole[*to][*other] = widened * covariance[i][j];
        }
    }
    let weights: Vec<f64> = sigmas.iter().map(|sigma| sigma.powi(-2)).collect();
    let total: f64 = weights.iter().sum();
    let mean = samples.iter().zip(&weights).map(|(s, w)| s.seconds * w).sum::<f64>() / total;
    let variance: f64 = samples.iter().zip(&weights).map(|(s, w)| w * (s.seconds - mean).powi(2)).sum();
    let off = |(row, s): (&Vec<f64>, &Sample)| {
        let law = dot(row, &parameters);
        ((s.seconds - law) / law).powi(2)
    };
    let scatter = (rows.iter().zip(samples).map(off).sum::<f64>() / freedom.max(1) as f64).sqrt();
    let r2 = if variance > 0.0 { 1.0 - chi2 / variance } else { f64::NAN };
    Some(LeastSquares { parameters, covariance: whole, r2, scatter })
}

#[cfg(test)]
mod tests {
    use super::adaptive::optimum;
    use super::*;
    use hypergrove_engine::estimate::{Point, line};

    const KERNEL: Kernel = Kernel { units: 6160, cores: 132 };
    /// Pseudo-random deviates, nearly normal: the sum of twelve uniform ones.
    fn normal(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    fn samples(law: impl Fn(f64) -> f64, noise: f64, seed: u64) -> Vec<Sample> {
        let mut state = seed;
        let threads = (0..=13).map(|log| 1u32 << log);
        let sample = |threads| {
            let seconds = law(f64::from(threads)) * (1.0 + noise * normal(&mut state));
            Sample { shape: Shape::threads(threads), seconds, sigma: noise * seconds }
        };
        threads.map(sample).collect()
    }

    #[test]
    fn exact_samples_give_exact_parameters() {
        let (alpha, beta, gamma) = (3e-5, 2e-2, 8e-9);
        let fit = adaptive::MODEL.fit(KERNEL, &samples(|t| alpha + beta / t + gamma * t, 0.0, 1)).unwrap();
        for (found, want) in fit.parameters.iter().zip([alpha, beta, gamma]) {
            assert!((found / want - 1.0).abs() < 1e-6, "{found} for {want}");
        }
        assert!(fit.r2 > 0.999_999 && fit.scatter < 1e-6);
        let best = optimum(&fit, (1.0, 8192.0)).unwrap();
        assert!(best.inside && (best.threads / (beta / gamma).sqrt() - 1.0).abs() < 1e-6);
    }

    /// 200 fits of noisy samples: parameters lie around the true ones by as much as the covariance says.
    #[test]
    fn the_covariance_is_that_of_the_noise() {
        let truth = [3e-5, 2e-2, 8e-9];
        let mut off = [0.0; 3];
        let (mut of_optimum, rounds) = (0.0, 200);
        for seed in 0..rounds {
            let seen = samples(|t| truth[0] + truth[1] / t + truth[2] * t, 0.02, seed + 1);
            let fit = adaptive::MODEL.fit(KERNEL, &seen).unwrap();
            for j in 0..fit.parameters.len() {
                let variance = fit.covariance[j][j];
                off[j] += (fit.parameters[j] - truth[j]).powi(2) / variance;
            }
            let best = optimum(&fit, (1.0, 8192.0)).unwrap();
            of_optimum += ((best.threads - (truth[1] / truth[2]).sqrt()) / best.sigma).powi(2);
            assert!(fit.r2 > 0.99, "{}", fit.r2);
        }
        for square in off.into_iter().chain([of_optimum]) {
            let deviations = (square / rounds as f64).sqrt();
            assert!((0.75..1.25).contains(&deviations), "{deviations} standard deviations");
        }
    }

    #[test]
    fn what_falls_or_rises_all_the_way_is_said_to() {
        let falling = adaptive::MODEL.fit(KERNEL, &samples(|t| 1e-5 + 2e-2 / t, 0.0, 1)).unwrap();
        assert_eq!(falling.parameter("γ"), Some(0.0));
        let best = optimum(&falling, (1.0, 8192.0)).unwrap();
        assert_eq!((best.threads, best.inside), (8192.0, false));
        // Faster than 1/t: without bounds γ would be negative and t* no number.
        let steep = adaptive::MODEL.fit(KERNEL, &samples(|t| 1e-2 / t - 1e-10 * t, 0.0, 1)).unwrap();
        assert!(steep.parameters.iter().all(|p| *p >= 0.0), "{:?}", steep.parameters);
        assert_eq!(optimum(&steep, (1.0, 8192.0)).unwrap().threads, 8192.0);
        let rising = adaptive::MODEL.fit(KERNEL, &samples(|t| 1e-5 + 1e-7 * t, 0.0, 1)).unwrap();
        let best = optimum(&rising, (1.0, 8192.0)).unwrap();
        assert_eq!((best.threads, best.inside), (1.0, false));
        let turned = adaptive::MODEL.fit(KERNEL, &samples(|t| 1e-2 / t + 1e-12 * t, 0.0, 1)).unwrap();
        assert_eq!(optimum(&turned, (1.0, 64.0)).unwrap().threads, 64.0);
    }

    #[test]
    fn the_staircase_is_found_again() {
        let shapes = [32u32, 64, 128, 256]
            .into_iter()
            .flat_map(|threads| (1..=48u32).map(move |blocks| Shape { blocks: 16 * blocks, threads }));
        let kernel = Kernel { units: 40_000, ..KERNEL };
        let law = |shape| {
            let s = staircase::steps(&kernel, shape);
            5e-6 + 2e-6 * s + 4e-9 * staircase::waves(&kernel, shape) * f64::from(shape.threads) * s
        };
        let sweep: Vec<Sample> =
            shapes.map(|shape| Sample { shape, seconds: law(shape), sigma: 0.01 * law(shape) }).collect();
        let fit = staircase::MODEL.fit(kernel, &sweep).unwrap();
        for (found, want) in fit.parameters.iter().zip([5e-6, 2e-6, 4e-9]) {
            assert!((found / want - 1.0).abs() < 1e-6, "{found} for {want}");
        }
        let exact = regret(&fit, &sweep).unwrap();
        assert_eq!((exact.excess, exact.chosen), (0.0, exact.best));
        // A smooth curve cannot follow steps; its choice is no better than the staircase's, and its regret is reported.
        let smooth = adaptive::MODEL.fit(kernel, &sweep).unwrap();
        assert!(smooth.r2 < fit.r2 && regret(&smooth, &sweep).unwrap().excess >= 0.0);
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        assert_eq!(adaptive::MODEL.fit(KERNEL, &[]).unwrap_err(), FitError::Few { has: 0, needs: 1 });
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let bad = Sample { shape: Shape::threads(1), seconds, sigma: 0.0 };
            assert!(matches!(adaptive::MODEL.fit(KERNEL, &[bad]), Err(FitError::Sample(_))), "{seconds}");
        }
        // One shape tells one parameter.
        let alone = adaptive::MODEL.fit(KERNEL, &samples(|_| 1e-3, 0.0, 1)[..1]).unwrap();
        assert!((alone.predict(Shape::threads(1)).seconds - 1e-3).abs() < 1e-15);
    }

    /// The engine's own fit of a line, which has no matrices, gives what the general one gives: also where a bound holds.
    #[test]
    fn lines_are_fitted_alike() {
        static LINE: Model = Model { parameters: &["τ", "α"], features: |_, shape| vec![shape.total(), 1.0] };
        let laws: [fn(f64) -> f64; 4] = [|t| 1e-3 + 2e-6 * t, |t| 2e-6 * t, |t| 1e-3 + 1e-4 / t, |t| 1e-9 * t * t];
        let (mut bounds, mut both) = (0, 0);
        for (seed, law) in (1..).zip(laws.into_iter().cycle().take(40)) {
            let noise = [0.0, 0.02, 0.3][seed as usize % 3];
            let all = samples(law, noise, seed);
            for seen in [&all[..], &all[..1], &all[..2], &all[5..9]] {
                let fit = LINE.fit(KERNEL, seen).unwrap();
                if fit.parameters.contains(&0.0) {
                    bounds += 1
                } else {
                    both += 1
                }
                let of = |s: &Sample| Point { x: s.shape.total(), seconds: s.seconds, sigma: s.sigma };
                let points: Vec<Point> = seen.iter().map(of).collect();
                for threads in [1, 100, 50_000] {
                    let (general, own) =
                        (fit.predict(Shape::threads(threads)), line(&points, f64::from(threads)).unwrap());
                    assert!((own.seconds / general.seconds - 1.0).abs() < 1e-9, "{own:?} {general:?}");
                    assert!((own.sigma - general.sigma).abs() <= 1e-6 * general.seconds, "{own:?} {general:?}");
                }
            }
        }
        assert!(bounds > 10 && both > 10, "{bounds} {both}");
        assert_eq!(line(&[], 1.0), None);
    }
}
