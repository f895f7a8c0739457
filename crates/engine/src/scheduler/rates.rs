//! The measured rates of calls in which discrete devices and the host could take part.

use super::permits::lock;
use crate::scheme::Kind;
use std::sync::Mutex;

/// Calls of a kind after which the slower way is tried again: messages may have become longer.
const AGAIN: u32 = 16;

/// The rates of calls in which discrete devices and the host could take part, by the kind and the power of two of their jobs, without the host and
/// with it. A host that computes takes threads away from copying other devices' results, so the faster way is measured.
#[derive(Default)]
pub(super) struct CallRates(Mutex<Vec<(Kind, u32, [CallRate; 2])>>);

#[derive(Clone, Copy, Default)]
pub(super) struct CallRate {
    pub(super) calls: u32,
    /// Jobs a second of the last call.
    latest: f64,
}

impl CallRates {
    pub(super) fn of<T>(&self, kind: Kind, jobs: usize, look: impl FnOnce(&mut [CallRate; 2]) -> T) -> T {
        let (mut all, log) = (lock(&self.0), jobs.max(1).ilog2());
        let at = all.iter().position(|(known, of, _)| (*known, *of) == (kind, log)).unwrap_or_else(|| {
            all.push((kind, log, Default::default()));
            all.len() - 1
        });
        look(&mut all[at].2)
    }

    /// Records the rate of a call.
    pub(super) fn know(&self, kind: Kind, jobs: usize, with_host: bool, latest: f64) {
        self.of(kind, jobs, |rates| {
            let rate = &mut rates[usize::from(with_host)];
            *rate = CallRate { calls: rate.calls + 1, latest };
        });
    }

    /// Whether the host shall take part.
    pub(super) fn wants_host(&self, kind: Kind, jobs: usize) -> bool {
        let [without, with] = self.of(kind, jobs, |rates| *rates);
        // The first call of each way may have had programs to make.
        if with.calls.min(without.calls) < 2 {
            return with.calls <= without.calls;
        }
        let is_due = (with.calls + without.calls).is_multiple_of(AGAIN);
        (with.latest >= without.latest) != is_due
    }
}
