//! SHA-256 of whole messages (FIPS 180-4, 6.2), many in parallel and of any lengths.
//!
//! A lane takes a message from the queue, and hashes its whole blocks where they lie. Then it hashes one or two blocks of its own with the
//! padding, and takes the next message. All lanes run as many blocks as the lane that is nearest to an end has left, without any check
//! in between. The longest messages come first, so that lanes end together, and the last messages leave few lanes idle.

use crate::sha2::{compress256, compress256_alone};
use crate::simd::{Lanes, MOST_LANES, Sha256Streams, Simd, array, vectorize};
use hypergrove_fips205::sha2::IV256;

/// The state before any block, as [`MessagePart::state`] has it.
pub const SHA256_START: [u8; 32] = {
    let (mut out, mut i) = ([0; 32], 0);
    while i < 32 {
        out[i] = IV256[i / 4].to_be_bytes()[i % 4];
        i += 1;
    }
    out
};

/// A part of a message.
pub struct MessagePart<'a> {
    /// The state with big-endian words: before the part, or after the part if it was absorbed. The state after a message's end is the message's
    /// SHA-256.
    pub state: [u8; 32],
    /// The bytes; whole blocks of 64, unless the message ends with them.
    pub bytes: &'a [u8],
    /// The whole message's length, if the message ends with this part.
    pub end: Option<u64>,
}

/// SHA-256 over batches of messages. Running time depends on lengths alone.
pub trait Sha256: Send + Sync {
    /// Messages that fill the widest group of lanes. Fewer messages take as long.
    fn lanes(&self) -> usize;
    /// The hash of each message. There must be as many digests as messages.
    fn hash(&self, messages: &[&[u8]], digests: &mut [[u8; 32]]);
    /// Absorbs every part into its state.
    fn absorb(&self, parts: &mut [MessagePart<'_>]);
}

/// Messages that SHA-256 instructions hash in parallel.
const STREAMS: usize = 2;

/// The rest of a lane's message.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// Whole blocks, where they lie.
    body: &'a [[u8; 64]],
    /// The last of these blocks hold the end of the message and its padding.
    padding: [[u8; 64]; 2],
    /// How many of these blocks are left: 0 if the message goes on in another part.
    padded: usize,
    /// The message length for which `padding` is right, except for the message's own bytes.
    length: Option<u64>,
    /// The message's number.
    job: usize,
}

impl<'a> Lane<'a> {
    const IDLE: Lane<'static> = Lane { body: &[], padding: [[0; 64]; 2], padded: 0, length: None, job: 0 };

    #[inline(always)]
    fn take(&mut self, job: usize, bytes: &'a [u8], end: Option<u64>) {
        let (body, rest) = bytes.as_chunks::<64>();
        (self.body, self.job, self.padded) = (body, job, 0);
        let Some(length) = end else {
            assert!(rest.is_empty(), "a message that goes on has whole blocks");
            return;
        };
        // The end mark and the length take nine bytes.
        self.padded = 1 + usize::from(rest.len() + 9 > 64);
        let first = 2 - self.padded;
        if self.length != Some(length) {
            self.length = Some(length);
            self.padding = [[0; 64]; 2];
            self.padding[first][rest.len()] = 0x80;
            self.padding[1][56..].copy_from_slice(&length.wrapping_mul(8).to_be_bytes());
        }
        self.padding[first][..rest.len()].copy_from_slice(rest);
    }

    /// Where the next blocks begin, and how many follow each other there: none at the message's end.
    #[inline(always)]
    fn next(&self) -> (*const u8, usize) {
        match self.body {
            [] => (self.padding[2 - self.padded..].as_ptr().cast(), self.padded),
            body => (body.as_ptr().cast(), body.len()),
        }
    }

    #[inline(always)]
    fn skip(&mut self, blocks: usize) {
        match self.body {
            [] => self.padded -= blocks,
            body => self.body = &body[blocks..],
        }
    }
}

/// The messages or parts to hash, and where results go. With closures instead, the drivers would be compiled once more for each.
enum HashInputs<'j, 'a> {
    Messages(&'j [&'a [u8]], &'j mut [[u8; 32]]),
    Parts(&'j mut [MessagePart<'a>]),
}

impl<'a> HashInputs<'_, 'a> {
    #[inline(always)]
    fn len(&self) -> usize {
        match self {
            HashInputs::Messages(messages, _) => messages.len(),
            HashInputs::Parts(parts) => parts.len(),
        }
    }
    /// A job's state, bytes, and end of the message.
    #[inline(always)]
    fn get(&self, job: usize) -> ([u8; 32], &'a [u8], Option<u64>) {
        match self {
            HashInputs::Messages(messages, _) => (SHA256_START, messages[job], Some(messages[job].len() as u64)),
            HashInputs::Parts(parts) => (parts[job].state, parts[job].bytes, parts[job].end),
        }
    }
    #[inline(always)]
    fn done(&mut self, job: usize, state: &[u8; 32]) {
        match self {
            HashInputs::Messages(_, digests) => digests[job] = *state,
            HashInputs::Parts(parts) => parts[job].state = *state,
        }
    }
    /// Jobs by length, the longest first. Complements of lengths stand above jobs' numbers, so that plain words are sorted. Empty if all lengths
    /// are equal.
    fn order(&self) -> Vec<u64> {
        let length = |job| self.get(job).1.len() as u64;
        if (1..self.len()).all(|job| length(job) == length(0)) {
            return Vec::new();
        }
        let key = |job| !length(job).min((1 << 40) - 1) << 24 | job as u64;
        let mut keys: Vec<u64> = (0..self.len()).map(key).collect();
        keys.sort_unstable();
        keys
    }
}

/// Jobs, at most, whose numbers fit the words of [`HashInputs::order`].
const AT_A_TIME: usize = 1 << 24;

/// Messages that were not taken yet, and those under way. States are rows, as digests are.
struct InFlight<'j, 'a> {
    jobs: HashInputs<'j, 'a>,
    order: Vec<u64>,
    next: usize,
    lanes: [Lane<'a>; MOST_LANES],
    states: [[u8; 32]; MOST_LANES],
    active: usize,
}

impl<'j, 'a> InFlight<'j, 'a> {
    fn new(jobs: HashInputs<'j, 'a>) -> Self {
        let (lanes, states) = ([Lane::IDLE; MOST_LANES], [[0; 32]; MOST_LANES]);
        InFlight { order: jobs.order(), jobs, next: 0, lanes, states, active: 0 }
    }

    /// Gives a lane the next message, if there is one.
    #[inline(always)]
    fn refill(&mut self, lane: usize) -> bool {
        if self.next == self.jobs.len() {
            return false;
        }
        let job = self.order.get(self.next).map_or(self.next, |key| *key as usize % AT_A_TIME);
        self.next += 1;
        let (state, bytes, end) = self.jobs.get(job);
        self.states[lane] = state;
        self.lanes[lane].take(job, bytes, end);
        true
    }

    /// Hashes until no more than `few` messages are left. `run` gets the lanes' states, the address of each lane's blocks, how many blocks to hash,
    /// and how many of the `width` lanes are in use.
    #[inline(always)]
    fn drive(
        &mut self,
        width: usize,
        few: usize,
        mut run: impl FnMut(&mut [[u8; 32]; MOST_LANES], &[*const u8; MOST_LANES], usize, usize),
    ) {
        loop {
            while self.active < width && self.refill(self.active) {
                self.active += 1;
            }
            if self.active <= few {
                return;
            }
            let used = self.active.min(width);
            let (first, mut blocks) = self.lanes[0].next();
            // Lanes without a message repeat the first one's.
            let mut rows = [first; MOST_LANES];
            for lane in 1..used {
                let (row, left) = self.lanes[lane].next();
                rows[lane] = row;
                blocks = blocks.min(left);
            }
            if blocks > 0 {
                run(&mut self.states, &rows, blocks, used);
            }
            // From the last lane on, so that a lane that moves into a free place was looked at already.
            for lane in (0..used).rev() {
                self.lanes[lane].skip(blocks);
                if self.lanes[lane].next().1 > 0 {
                    continue;
                }
                self.jobs.done(self.lanes[lane].job, &self.states[lane]);
                if !self.refill(lane) {
                    self.active -= 1;
                    self.lanes[lane] = self.lanes[self.active];
                    self.states[lane] = self.states[self.active];
                }
            }
        }
    }
}

/// Compresses `blocks` blocks of each lane of a vector.
#[inline(always)]
fn vectors<V: Lanes<u32>>(
    states: &mut [[u8; 32]; MOST_LANES],
    rows: &[*const u8; MOST_LANES],
    blocks: usize,
    compress: impl Fn(&mut [V; 8], &mut [V; 16]),
) {
    let mut s: [V; 8] = V::load_rows::<8, true>(states.as_flattened(), 32, 0, MOST_LANES);
    for block in 0..blocks {
        // SAFETY: `drive` gives as many blocks as follow each other at every row.
        let mut w = unsafe {
            V::load_from::<16, true>(
                #[inline(always)]
                |lane| rows[lane].add(64 * block),
            )
        };
        compress(&mut s, &mut w);
    }
    V::store_rows::<8, true>(&s, states.as_flattened_mut(), 32, 0, MOST_LANES);
}

/// Compresses `blocks` blocks of each of S streams by SHA-256 instructions.
#[inline(always)]
fn streams<T: Sha256Streams, const S: usize>(
    states: &mut [[u8; 32]; MOST_LANES],
    rows: &[*const u8; MOST_LANES],
    blocks: usize,
) {
    let mut s: [T::State; S] = array!(|i| T::load(&array!(|j| u32::from_be_bytes(states[i].as_chunks::<4>().0[j]))));
    for block in 0..blocks {
        // SAFETY: `drive` gives as many blocks as follow each other at every row.
        let at: [&[u8; 64]; S] = array!(|i| unsafe { &*rows[i].add(64 * block).cast() });
        T::compress::<S>(&mut s, at);
    }
    for i in 0..S {
        let words = T::store(s[i]);
        for (bytes, word) in states[i].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
    }
}

/// SHA-256 by one instruction set.
pub(crate) struct Messages<T>(pub(crate) T);

impl<T: Simd> Messages<T> {
    fn run(&self, jobs: HashInputs<'_, '_>) {
        let few = T::STREAMS_UP_TO;
        let mut in_flight = InFlight::new(jobs);
        if few < in_flight.jobs.len() {
            in_lanes(self.0.plain(), few, &mut in_flight);
        }
        if few > 0 {
            in_streams::<T::Streams>(&mut in_flight);
        }
    }
}

/// Hashes messages in lanes until no more than `few` are left.
#[inline(never)]
fn in_lanes<T: Simd>(token: T, few: usize, in_flight: &mut InFlight<'_, '_>) {
    // A function that is given by its name would lack the shell's instructions.
    macro_rules! drive {
        ($v:ty, $lanes:expr, $few:expr, |$state:ident, $w:ident| $compress:expr) => {
            in_flight.drive(
                $lanes,
                $few,
                #[inline(always)]
                |states, rows, blocks, _| {
                    vectors::<$v>(
                        states,
                        rows,
                        blocks,
                        #[inline(always)]
                        |$state, $w| $compress,
                    )
                },
            )
        };
    }
    vectorize!(token, || {
        let (wide, narrow) = (T::Sha256Wide::LANES, T::U32s::LANES);
        if const { T::Sha256Wide::LANES > T::U32s::LANES } {
            drive!(T::Sha256Wide, wide, narrow.max(few), |state, w| compress256(state, w));
        }
        // One message alone is faster in plain registers.
        drive!(T::U32s, narrow, few.max(usize::from(narrow > 1)), |state, w| compress256(state, w));
        if const { T::U32s::LANES > 1 } && few == 0 {
            drive!(u32, 1, 0, |state, w| compress256_alone(token, state, w));
        }
    });
}

#[inline(never)]
fn in_streams<T: Sha256Streams>(in_flight: &mut InFlight<'_, '_>) {
    T::vectorize(
        #[inline(always)]
        || {
            // Two streams hide each other's latency and stay in the sixteen registers; three and four do not. Two hash
            // 47.4 M blocks a second, three 36.1, four 42.3, and one 25.1 (1 kB messages, Zen 3).
            in_flight.drive(
                STREAMS,
                0,
                #[inline(always)]
                |states, rows, blocks, used| match used {
                    1 => streams::<T, 1>(states, rows, blocks),
                    _ => streams::<T, STREAMS>(states, rows, blocks),
                },
            );
        },
    );
}

impl<T: Simd> Sha256 for Messages<T> {
    fn lanes(&self) -> usize {
        if T::STREAMS_UP_TO == usize::MAX { STREAMS } else { T::Sha256Wide::LANES }
    }

    fn hash(&self, messages: &[&[u8]], digests: &mut [[u8; 32]]) {
        assert_eq!(messages.len(), digests.len(), "a digest for each message");
        for (messages, digests) in messages.chunks(AT_A_TIME).zip(digests.chunks_mut(AT_A_TIME)) {
            self.run(HashInputs::Messages(messages, digests));
        }
    }

    fn absorb(&self, parts: &mut [MessagePart<'_>]) {
        parts.chunks_mut(AT_A_TIME).for_each(|parts| self.run(HashInputs::Parts(parts)));
    }
}
