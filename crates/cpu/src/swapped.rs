//! Hashes in other lanes than usual: every job of a batch changes places with its neighbour.

use hypergrove_lanes::{AdrsWords, Keys, Primitive, Steps, Trace, TweakableHash};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A hash whose jobs take the lanes of their neighbours: job 2i the lane of job 2i + 1, and job 2i + 1 that of job 2i. If their number is odd,
/// the last job comes once more, so that it has a neighbour.
pub(crate) struct Swapped(pub(crate) Arc<dyn TweakableHash>);

/// The number of jobs, rounded up to an even number.
fn even(jobs: usize) -> usize {
    jobs.next_multiple_of(2)
}

/// Rows of `row` items, each in its neighbour's place.
fn swapped<T: Copy>(rows: &[T], row: usize) -> Vec<T> {
    let jobs = rows.len() / row;
    let mut out = Vec::with_capacity(even(jobs) * row);
    for job in 0..even(jobs) {
        let from = (job ^ 1).min(jobs - 1);
        out.extend_from_slice(&rows[from * row..][..row]);
    }
    out
}

/// Puts rows back to their own places.
fn put_back(rows: &[u8], row: usize, out: &mut [u8]) {
    for (job, out) in out.chunks_exact_mut(row).enumerate() {
        out.copy_from_slice(&rows[(job ^ 1) * row..][..row]);
    }
}

impl Swapped {
    /// Calls a function with the jobs' keys and addresses in their neighbours' places.
    fn with(&self, keys: Keys<'_>, adrs: &[AdrsWords], call: impl FnOnce(&dyn TweakableHash, Keys<'_>, &[AdrsWords])) {
        let adrs = swapped(adrs, 1);
        match keys {
            Keys::One(key) => call(&*self.0, Keys::One(key), &adrs),
            Keys::Of { keys, of } => call(&*self.0, Keys::Of { keys, of: &swapped(of, 1) }, &adrs),
        }
    }
}

impl TweakableHash for Swapped {
    fn n(&self) -> usize {
        self.0.n()
    }
    fn lanes(&self) -> usize {
        self.0.lanes()
    }
    fn prf(&self, keys: Keys<'_>, adrs: &[AdrsWords], out: &mut [u8]) {
        let mut rows = Zeroizing::new(vec![0; even(adrs.len()) * self.n()]);
        self.with(keys, adrs, |hash, keys, adrs| hash.prf(keys, adrs, &mut rows));
        put_back(&rows, self.n(), out);
    }
    fn f(&self, keys: Keys<'_>, adrs: &[AdrsWords], nodes: &mut [u8]) {
        let mut rows = Zeroizing::new(swapped(nodes, self.n()));
        self.with(keys, adrs, |hash, keys, adrs| hash.f(keys, adrs, &mut rows));
        put_back(&rows, self.n(), nodes);
    }
    fn t_l(&self, keys: Keys<'_>, adrs: &[AdrsWords], l: usize, nodes: &[u8], out: &mut [u8]) {
        let lists = Zeroizing::new(swapped(nodes, l * self.n()));
        let mut rows = Zeroizing::new(vec![0; even(adrs.len()) * self.n()]);
        self.with(keys, adrs, |hash, keys, adrs| hash.t_l(keys, adrs, l, &lists, &mut rows));
        put_back(&rows, self.n(), out);
    }
    fn chain(
        &self,
        keys: Keys<'_>,
        adrs: &[AdrsWords],
        w: usize,
        steps: Steps<'_>,
        nodes: &mut [u8],
        trace: Option<Trace<'_>>,
    ) {
        let mut rows = Zeroizing::new(swapped(nodes, self.n()));
        let digits = match steps {
            Steps::All => Vec::new(),
            Steps::From(digits) | Steps::To(digits) => swapped(digits, 1),
        };
        let steps = match steps {
            Steps::All => Steps::All,
            Steps::From(_) => Steps::From(&digits),
            Steps::To(_) => Steps::To(&digits),
        };
        let chains = trace.as_ref().map(|trace| {
            let mut chains = swapped(trace.chains, 1);
            if adrs.len() % 2 == 1 {
                // The last job's values are kept once, from its neighbour's lane.
                chains[adrs.len() - 1] = Trace::NONE;
            }
            chains
        });
        let trace = chains.as_deref().zip(trace).map(|(chains, trace)| Trace { chains, out: trace.out });
        self.with(keys, adrs, |hash, keys, adrs| hash.chain(keys, adrs, w, steps, &mut rows, trace));
        put_back(&rows, self.n(), nodes);
    }
    fn primitive(&self, which: Primitive, calls: u64) -> u64 {
        self.0.primitive(which, calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_leaves_its_place_and_comes_back() {
        for jobs in [0, 1, 2, 3, 8, 17] {
            let rows: Vec<u8> = (0..3 * jobs as u8).collect();
            let moved = swapped(&rows, 3);
            assert!((0..jobs).all(|job| moved[3 * (job ^ 1)..][..3] == rows[3 * job..][..3]), "{jobs} jobs");
            let mut back = vec![0; rows.len()];
            put_back(&moved, 3, &mut back);
            assert_eq!(back, rows);
        }
    }
}
