//! The checked jobs of a call, and how they are cut into groups of lanes.

use crate::simd::{Lanes, MOST_LANES, Simd, array};
use crate::{AdrsWords, KeyState, Keys, Steps, Trace, Width};
use core::ops::Range;

/// Panics unless a slice of `len` is that of `jobs` jobs with `rows` rows of `size` items each. A product that no `usize`
/// holds is no slice's length.
#[inline]
pub(crate) fn check_rows(len: usize, jobs: usize, rows: usize, size: usize) {
    let all = jobs.checked_mul(rows).and_then(|all| all.checked_mul(size));
    assert!(all == Some(len), "{jobs} jobs with {rows} rows of {size} each, in {len}");
}

impl<'a> Keys<'a> {
    /// Panics unless there is a key for each job. With fewer keys, the last one would be repeated unnoticed.
    #[inline]
    fn check(&self, jobs: usize) {
        if let Keys::Of { of, .. } = self {
            assert_eq!(of.len(), jobs, "a key for each address");
        }
    }
    #[inline(always)]
    pub(crate) fn get(&self, job: usize) -> &'a KeyState {
        match self {
            Keys::One(key) => key,
            Keys::Of { keys, of } => &keys[of[job.min(of.len() - 1)] as usize],
        }
    }
    /// The keys of a group's lanes. This is a function of its own, since few groups span several keys, and many places load from keys.
    #[inline(never)]
    fn group(&self, first: usize) -> [&'a KeyState; MOST_LANES] {
        array!(|lane| self.get(first + lane))
    }
    /// The first N words of a field of each lane's key.
    #[inline(always)]
    pub(crate) fn load<W: Lanes<W>, V: Lanes<W>, F: Copy, const N: usize, const BE: bool>(
        &self,
        first: usize,
        field: impl Fn(&KeyState) -> &F,
    ) -> [V; N] {
        const { assert!(size_of::<F>() >= N * size_of::<W>()) };
        match self {
            Keys::One(key) => {
                // SAFETY: N words lie in the field, as asserted.
                let words = unsafe { W::load_from::<N, BE>(|_| (&raw const *field(key)).cast()) };
                array!(|i| V::splat(words[i]))
            }
            Keys::Of { .. } => {
                let keys = self.group(first);
                // SAFETY: see above.
                unsafe {
                    V::load_from::<N, BE>(
                        #[inline(always)]
                        |lane| (&raw const *field(keys[lane])).cast(),
                    )
                }
            }
        }
    }
}

/// Where the first value of a chain comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Nodes,
    SkSeed,
}

/// Steps of chains, one or many: F and PRF are chains of one step.
pub(crate) struct ChainBatch<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) adrs: &'a [AdrsWords],
    pub(crate) source: Source,
    /// Values of a chain.
    w: usize,
    steps: Steps<'a>,
    pub(crate) nodes: &'a mut [u8],
    trace: Option<Trace<'a>>,
}

impl<'a> ChainBatch<'a> {
    #[inline(always)]
    pub(crate) fn one_step(
        n: usize,
        keys: Keys<'a>,
        adrs: &'a [AdrsWords],
        source: Source,
        nodes: &'a mut [u8],
    ) -> ChainBatch<'a> {
        check_rows(nodes.len(), adrs.len(), 1, n);
        keys.check(adrs.len());
        ChainBatch { keys, adrs, source, w: 2, steps: Steps::All, nodes, trace: None }
    }

    pub(crate) fn chains(
        n: usize,
        keys: Keys<'a>,
        adrs: &'a [AdrsWords],
        w: usize,
        steps: Steps<'a>,
        nodes: &'a mut [u8],
        trace: Option<Trace<'a>>,
    ) -> ChainBatch<'a> {
        let jobs = adrs.len();
        assert!((1..=256).contains(&w), "chains of {w} values: a digit is a byte, and none has no first value");
        if let Steps::From(digits) | Steps::To(digits) = steps {
            assert_eq!(digits.len(), jobs, "a digit for each address");
            assert!(digits.iter().all(|digit| usize::from(*digit) < w), "digits below w = {w}");
        }
        if let Some(Trace { chains, out }) = &trace {
            assert_eq!(chains.len(), jobs, "a chain's number, or none, for each address");
            let room = out.len() / (w * n);
            let fits = |chain: &u32| *chain == Trace::NONE || (*chain as usize) < room;
            assert!(chains.iter().all(fits), "numbers of the {room} chains that there is room for");
        }
        let mut batch = ChainBatch { w, steps, trace, ..ChainBatch::one_step(n, keys, adrs, Source::Nodes, nodes) };
        if let Some(trace) = &mut batch.trace {
            match n {
                16 => keep(trace, w, 0, 0, batch.nodes.as_chunks::<16>().0),
                24 => keep(trace, w, 0, 0, batch.nodes.as_chunks::<24>().0),
                _ => keep(trace, w, 0, 0, batch.nodes.as_chunks::<32>().0),
            }
        }
        batch
    }

    /// The number of a chain's last value, which is also the number of steps of a whole chain.
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.w as u32 - 1
    }

    /// The steps that a job takes.
    #[inline]
    pub(crate) fn steps(&self, job: usize) -> Range<u32> {
        match self.steps {
            Steps::All => 0..self.last(),
            Steps::From(start) => u32::from(start[job])..self.last(),
            Steps::To(end) => 0..u32::from(end[job]),
        }
    }

    /// The range of all steps that any of the jobs takes, and the range of the steps that all of them take. Without jobs, steps begin with 0.
    #[inline(never)]
    pub(crate) fn hull(&self, first: usize, rows: usize) -> (Range<u32>, Range<u32>) {
        let least_and_most = |digits: &[u8]| {
            let digits = &digits[first..first + rows];
            [digits.iter().min(), digits.iter().max()].map(|digit| digit.copied().map_or(0, u32::from))
        };
        match self.steps {
            Steps::All => (0..self.last(), 0..self.last()),
            Steps::From(start) => {
                let [least, most] = least_and_most(start);
                (least..self.last(), most..self.last())
            }
            Steps::To(end) => {
                let [least, most] = least_and_most(end);
                (0..most, 0..least)
            }
        }
    }

    /// The first steps that a group's jobs take, and the ends of their steps.
    #[inline(always)]
    pub(crate) fn bounds_in_lanes<W: Copy + From<u32>, V: Lanes<W>>(&self, first: usize) -> [V; 2] {
        let bounds = self.bounds(first);
        array!(|i| {
            V::from_fn(
                #[inline(always)]
                |lane| bounds[i][lane].into(),
            )
        })
    }

    /// The values of [`bounds_in_lanes`](Self::bounds_in_lanes).
    #[inline(never)]
    fn bounds(&self, first: usize) -> [[u32; MOST_LANES]; 2] {
        let of = |digits: &[u8]| {
            let mut bounds = [0; MOST_LANES];
            bounds.iter_mut().zip(&digits[first..]).for_each(|(bound, digit)| *bound = u32::from(*digit));
            bounds
        };
        match self.steps {
            Steps::All => [[0; MOST_LANES], [self.last(); MOST_LANES]],
            Steps::From(start) => [of(start), [self.last(); MOST_LANES]],
            Steps::To(end) => [[0; MOST_LANES], of(end)],
        }
    }

    /// Whether values of any of these jobs are kept.
    #[inline]
    pub(crate) fn keeps(&self, first: usize, rows: usize) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.chains[first..first + rows].iter().any(|c| *c != Trace::NONE))
    }

    /// Copies values number `value` to the chains that are kept.
    #[inline(never)]
    pub(crate) fn keep<const N: usize>(&mut self, value: u32, first: usize, rows: usize, values: &[[u8; N]]) {
        if let Some(trace) = &mut self.trace {
            keep(trace, self.w, value as usize, first, &values[..rows]);
        }
    }
}

fn keep<const N: usize>(trace: &mut Trace<'_>, w: usize, value: usize, first: usize, values: &[[u8; N]]) {
    for (row, chain) in values.iter().zip(&trace.chains[first..]) {
        if *chain != Trace::NONE {
            trace.out[(*chain as usize * w + value) * N..][..N].copy_from_slice(row);
        }
    }
}

/// The inputs and outputs of T_l; H is T_2.
pub(crate) struct ListBatch<'a> {
    pub(crate) n: usize,
    pub(crate) keys: Keys<'a>,
    pub(crate) adrs: &'a [AdrsWords],
    pub(crate) l: usize,
    pub(crate) nodes: &'a [u8],
    pub(crate) out: &'a mut [u8],
}

impl<'a> ListBatch<'a> {
    #[inline(always)]
    pub(crate) fn new(
        n: usize,
        keys: Keys<'a>,
        adrs: &'a [AdrsWords],
        l: usize,
        nodes: &'a [u8],
        out: &'a mut [u8],
    ) -> ListBatch<'a> {
        assert!(l > 0, "lists of no nodes");
        check_rows(nodes.len(), adrs.len(), l, n);
        check_rows(out.len(), adrs.len(), 1, n);
        keys.check(adrs.len());
        ListBatch { n, keys, adrs, l, nodes, out }
    }
}

/// Splits jobs into groups of lanes, and a rest of up to `few` jobs that the caller computes in another way. Returns the number of the rest's
/// first job. The last group may be short.
#[inline(always)]
pub(crate) fn groups(
    jobs: usize,
    few: usize,
    wide: usize,
    narrow: usize,
    mut run: impl FnMut(Width, usize, usize),
) -> usize {
    let mut at = 0;
    while jobs - at > few {
        let left = jobs - at;
        let (width, lanes) = if left > narrow { (Width::Wide, wide) } else { (Width::Narrow, narrow) };
        run(width, at, left.min(lanes));
        at += left.min(lanes);
    }
    at
}

/// How many jobs of 64-bit words are left to plain registers. One job alone takes 816 cycles of Keccak there, and 1,388 in four lanes; of
/// SHA-512 it takes 900 and 1,250 cycles (Zen 5). Eight lanes beat both.
pub(crate) const fn alone<T: Simd>() -> usize {
    matches!(T::U64s::LANES, 2 | 4) as usize
}

/// The bytes of address words, in the machine's own order.
#[inline(always)]
pub(crate) fn adrs_bytes(adrs: &[AdrsWords]) -> &[u8] {
    // SAFETY: u32 has no padding and any alignment suits u8; the length is that of the slice in bytes.
    unsafe { core::slice::from_raw_parts(adrs.as_ptr().cast(), size_of_val(adrs)) }
}
