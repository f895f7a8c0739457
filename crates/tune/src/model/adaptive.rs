//! T(g, t) = α + β/t + γ·t: what is there for any number of threads, work that they share, and what each of them costs.

use super::{Fit, Kernel, Model, Shape};

/// The model.
pub static MODEL: Model = Model {
    parameters: &["α", "β", "γ"],
    features: |_: &Kernel, shape: Shape| vec![1.0, shape.total().recip(), shape.total()],
};

/// The number of threads with the least time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Optimum {
    /// Threads.
    pub threads: f64,
    /// Its standard deviation, from the covariance of β and γ; 0 at an end of the range.
    pub sigma: f64,
    /// Whether √(β/γ) lies between the ends. Otherwise `threads` is an end of the range. By the samples, time then falls all the way (γ = 0),
    /// rises all the way (β = 0), or turns outside of the range.
    pub inside: bool,
}

/// t* = √(β/γ), within `least..=most` threads. `None` for a fit of another model.
pub fn optimum(fit: &Fit, (least, most): (f64, f64)) -> Option<Optimum> {
    let (beta, gamma) = (fit.parameter("β")?, fit.parameter("γ")?);
    let free = if gamma > 0.0 { (beta / gamma).sqrt() } else { f64::INFINITY };
    let inside = least <= free && free <= most;
    let sigma = match inside && beta > 0.0 {
        // d t*/dβ = t*/2β, d t*/dγ = −t*/2γ.
        true => {
            let (of_beta, of_gamma, c) = (free / (2.0 * beta), -free / (2.0 * gamma), &fit.covariance);
            let both = 2.0 * of_beta * of_gamma * c[1][2];
            (of_beta.powi(2) * c[1][1] + of_gamma.powi(2) * c[2][2] + both).max(0.0).sqrt()
        }
        false => 0.0,
    };
    // Where neither term is there, every number is as good: the fewest.
    let threads = if beta == 0.0 { least } else { free.clamp(least, most) };
    Some(Optimum { threads, sigma, inside })
}
