//! The lanes of one thread, which signing, verification and key generation share.

use hypergrove_lanes::{Factors, Lattice, Rows, SLACK, Shake};
use hypergrove_zkdilithium::Fe;
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::pack::bytes_to_fes;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::State;
use hypergrove_zkdilithium::ring::NttElement;
use std::array;
use zeroize::{Zeroize, Zeroizing, optimization_barrier};

/// Rows of a vector of four polynomials.
pub(super) const VECTOR: usize = L * N;
/// Poseidon's cells and their denominator.
pub(super) const STATE: usize = T + 1;
/// Blocks of SHAKE256 that a mask polynomial takes.
pub(super) const Y_BLOCKS: usize = GAMMA1_BYTES.div_ceil(136);
/// Blocks that are too few for a polynomial of Â once in 10⁹ times, and of s₁ or s₂ once in 10¹⁰⁰. Then the reference computes it.
pub(super) const A_BLOCKS: usize = 6;
pub(super) const S_BLOCKS: usize = 2;
/// Rows of Â, ŝ₁ and ŝ₂, or of Â and −t̂, as factors.
pub(super) const KEY: usize = K * L * N + 2 * VECTOR;

/// Hashes inputs, each `turn` lanes later than usual, as its instance is: `turn` inputs of zeros go first.
pub(super) fn shake(
    lattice: &dyn Lattice,
    turn: usize,
    shake: Shake,
    inputs: &[u8],
    input_bytes: usize,
    outputs: &mut [u8],
    blocks: usize,
) {
    if turn == 0 {
        return lattice.shake(shake, inputs, input_bytes, outputs, blocks);
    }
    let before = turn * blocks * shake.rate();
    let all = Zeroizing::new([&vec![0; turn * input_bytes], inputs].concat());
    let mut out = Zeroizing::new(vec![0; before + outputs.len()]);
    lattice.shake(shake, &all, input_bytes, &mut out, blocks);
    outputs.copy_from_slice(&out[before..]);
}

/// The buffers of a thread: columns of lanes. They are wiped on drop.
pub(super) struct Scratch {
    /// Factors of each lane's key, and of the key that all lanes have.
    pub(super) each: Rows,
    pub(super) same: Rows,
    /// y; its NTT values, and results that replace them, such as z; w.
    pub(super) y: Rows,
    pub(super) values: Rows,
    pub(super) w: Rows,
    pub(super) w1: Rows,
    pub(super) challenge: Rows,
    /// The lanes where c̃ gives no challenge.
    pub(super) failed: Vec<bool>,
    pub(super) c_tilde: Rows,
    pub(super) states: Rows,
    pub(super) cells: Rows,
    pub(super) r0_norms: Rows,
    pub(super) z_norms: Rows,
    /// Inputs of streams: never more bytes than public keys have.
    pub(super) inputs: Vec<u8>,
    /// Streams: for each lane those of four polynomials, at most.
    pub(super) bytes: Vec<u8>,
    /// Four polynomials of each lane, one after the other, and room for samplers to write beyond the last.
    pub(super) columns: Vec<i32>,
}

impl Scratch {
    /// Bytes of one scratch when each lane has a key of its own.
    pub(super) const fn bytes(lanes: usize) -> usize {
        let rows = KEY + 4 * VECTOR + 2 * N + CSIZE + STATE + T + 2;
        let streams = PK_BYTES + L * A_BLOCKS * Shake::Shake128.rate();
        8 * (KEY + rows * lanes) + lanes * streams + 4 * (lanes * VECTOR + SLACK) + lanes
    }

    pub(super) fn new(lanes: usize) -> Scratch {
        let rows = |rows| Rows::new(rows, lanes);
        Scratch {
            each: Rows::new(0, lanes),
            same: Rows::new(KEY, 1),
            y: rows(VECTOR),
            values: rows(VECTOR + N),
            w: rows(VECTOR),
            w1: rows(VECTOR),
            challenge: rows(N),
            failed: vec![false; lanes],
            c_tilde: rows(CSIZE),
            states: rows(STATE),
            cells: rows(T),
            r0_norms: rows(1),
            z_norms: rows(1),
            inputs: vec![0; lanes * PK_BYTES],
            columns: vec![0; lanes * VECTOR + SLACK],
            bytes: vec![0; lanes * L * A_BLOCKS * Shake::Shake128.rate()],
        }
    }
}

impl Zeroize for Scratch {
    fn zeroize(&mut self) {
        // All fields are named, so that a field that is added cannot be forgotten.
        let Scratch {
            each,
            same,
            y,
            values,
            w,
            w1,
            challenge,
            failed,
            c_tilde,
            states,
            cells,
            r0_norms,
            z_norms,
            inputs,
            bytes,
            columns,
        } = self;
        for rows in [each, same, y, values, w, w1, challenge, c_tilde, states, cells, r0_norms, z_norms] {
            rows.zeroize();
        }
        failed.fill(false);
        wipe(inputs);
        wipe(bytes);
        wipe(columns);
    }
}

/// Writes zeros by the widest stores there are. `zeroize` would write one element after the other.
fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    optimization_barrier(values);
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.zeroize();
    }
}
pub(super) struct Lanes<'a> {
    pub(super) lattice: &'a dyn Lattice,
    pub(super) lanes: usize,
    /// Instances are moved by so many lanes.
    pub(super) turn: usize,
    pub(super) s: &'a mut Scratch,
}

/// An instance's column.
pub(super) fn column(rows: &[f64], lanes: usize, lane: usize) -> impl Iterator<Item = f64> {
    rows[lane..].iter().step_by(lanes).copied()
}
pub(super) fn set(rows: &mut [f64], lanes: usize, lane: usize, values: impl Iterator<Item = f64>) {
    for (row, value) in rows[lane..].iter_mut().step_by(lanes).zip(values) {
        *row = value;
    }
}
pub(super) fn canonical(x: f64) -> Fe {
    Fe::new(x as u32)
}

impl Lanes<'_> {
    /// The lane of a group's instance.
    pub(super) fn lane(&self, instance: usize) -> usize {
        (instance + self.turn) % self.lanes
    }
    /// The instance of a lane, whether a group is large enough to have it or not.
    pub(super) fn instance(&self, lane: usize) -> usize {
        (lane + self.lanes - self.turn % self.lanes) % self.lanes
    }
    /// Lanes, from the first on, that hold all of a group's instances.
    pub(super) fn count(&self, instances: usize) -> usize {
        (instances + self.turn).min(self.lanes)
    }

    /// Loads a lane's state from cells.
    pub(super) fn load_state(&mut self, lane: usize, cells: &State) {
        let cells = cells.iter().map(|x| f64::from(x.value())).chain([1.0]);
        set(&mut self.s.states, self.lanes, lane, cells);
    }

    /// μ of each message, and Poseidon's state after it has absorbed μ, from which com starts.
    pub(super) fn after_mu<'m>(
        &mut self,
        count: usize,
        of: impl Fn(usize) -> (&'m State, Message<'m>),
    ) -> Vec<([Fe; MUSIZE], State)> {
        let blocks = |message: &Message<'_>| match message {
            Message::Bytes(bytes) => bytes.len().div_ceil(2 * RATE),
            Message::Block(_) => 1,
            Message::Mu(_) => 0,
        };
        let mut done = vec![([Fe::ZERO; MUSIZE], [Fe::ZERO; T]); count];
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&job| blocks(&of(job).1));
        for group in order.chunks(self.lanes) {
            let count = self.count(group.len());
            for (i, job) in group.iter().enumerate() {
                let (state, message) = of(*job);
                self.load_state(self.lane(i), state);
                done[*job].0 = match message {
                    Message::Mu(mu) => *mu,
                    _ => array::from_fn(|i| state[i]),
                };
            }
            for block in 0..group.last().map_or(0, |job| blocks(&of(*job).1)) {
                for (i, job) in group.iter().enumerate() {
                    let lane = self.lane(i);
                    let elements = &mut self.s.w1[..RATE * self.lanes];
                    let zeros = std::iter::repeat(0.0);
                    match of(*job).1 {
                        Message::Bytes(bytes) => {
                            let rest = bytes.get(2 * RATE * block..).unwrap_or_default();
                            let fes = bytes_to_fes(rest).map(|x| f64::from(x.value()));
                            set(elements, self.lanes, lane, fes.chain(zeros));
                        }
                        Message::Block(fes) => {
                            set(elements, self.lanes, lane, fes.iter().map(|x| f64::from(x.value())))
                        }
                        Message::Mu(_) => set(elements, self.lanes, lane, zeros),
                    }
                }
                self.lattice.absorb(count, &mut self.s.states, &self.s.w1[..RATE * self.lanes]);
                if !group.iter().any(|job| blocks(&of(*job).1) == block + 1) {
                    continue;
                }
                self.lattice.squeeze(&self.s.states, &mut self.s.cells[..MUSIZE * self.lanes]);
                for (i, job) in group.iter().enumerate().filter(|(_, job)| blocks(&of(**job).1) == block + 1) {
                    let mut cells = column(&self.s.cells, self.lanes, self.lane(i));
                    done[*job].0 = array::from_fn(|_| canonical(cells.next().expect("24 rows")));
                }
            }
            for (i, job) in group.iter().enumerate() {
                let lane = self.lane(i);
                self.load_state(lane, &[Fe::ZERO; T]);
                set(&mut self.s.w1, self.lanes, lane, done[*job].0.iter().map(|x| f64::from(x.value())));
            }
            self.lattice.absorb(count, &mut self.s.states, &self.s.w1[..MUSIZE * self.lanes]);
            self.lattice.squeeze(&self.s.states, &mut self.s.cells);
            for (i, job) in group.iter().enumerate() {
                let mut cells = column(&self.s.cells, self.lanes, self.lane(i));
                done[*job].1 = array::from_fn(|_| canonical(cells.next().expect("35 rows")));
            }
        }
        done
    }

    /// Writes the factors of the lanes' keys, each times 1 or −1. Returns whether all lanes have the same key.
    pub(super) fn load_keys<'k, Key: 'k, I: Iterator<Item = (&'k NttElement, f64)>>(
        &mut self,
        held: &mut Vec<Option<&'k Key>>,
        keys: &[&'k Key],
        factors: impl Fn(&'k Key) -> I,
    ) -> bool {
        let same = keys.iter().all(|key| std::ptr::eq(*key, keys[0]));
        // The last place is for the key that all lanes have.
        held.resize(self.lanes + 1, None);
        let is = |held: &Option<&Key>, key: &Key| held.is_some_and(|held| std::ptr::eq(held, key));
        let write = |rows: &mut [f64], lanes: usize, lane: usize, key| {
            for ((a, sign), rows) in factors(key).zip(rows.chunks_exact_mut(N * lanes)) {
                let values = a.0.iter().map(|x| sign * f64::from(x.value() as i32));
                set(rows, lanes, lane, values);
            }
        };
        if same {
            if !is(&held[self.lanes], keys[0]) {
                held[self.lanes] = Some(keys[0]);
                write(&mut self.s.same, 1, 0, keys[0]);
            }
            return true;
        }
        if self.s.each.is_empty() {
            self.s.each = Rows::new(KEY, self.lanes);
        }
        for (lane, key) in keys.iter().enumerate() {
            if !is(&held[lane], key) {
                held[lane] = Some(key);
                write(&mut self.s.each, self.lanes, lane, key);
            }
        }
        false
    }

    pub(super) fn factors(&self, same: bool, first: usize, rows: usize) -> Factors<'_> {
        if same {
            Factors::Same(&self.s.same[first..first + rows])
        } else {
            Factors::Each(&self.s.each[first * self.lanes..(first + rows) * self.lanes])
        }
    }

    /// Computes c of c̃ in the first `count` lanes, and marks the lanes where c̃ gives no challenge.
    pub(super) fn ball(&mut self, count: usize) {
        let (lanes, s) = (self.lanes, &mut *self.s);
        const GROUP: usize = 8;
        s.failed.fill(false);
        s.states.fill(0.0);
        s.states[..lanes].fill(2.0);
        s.states[lanes..(1 + CSIZE) * lanes].copy_from_slice(&s.c_tilde);
        s.states[T * lanes..].fill(1.0);
        s.challenge.fill(0.0);
        for group in 0..TAU / GROUP {
            self.lattice.permute(count, &mut s.states);
            self.lattice.squeeze(&s.states, &mut s.cells[..(GROUP + 1) * lanes]);
            for lane in 0..lanes {
                let cell = |i: usize| s.cells[i * lanes + lane] as u32;
                let signs = cell(GROUP);
                s.failed[lane] |= signs / 256 == Q / 256;
                for b in 0..GROUP {
                    let base = N - TAU + GROUP * group + b;
                    let d = base as u32 + 1;
                    s.failed[lane] |= cell(b) / d == Q / d;
                    let p = (cell(b) % d) as usize;
                    s.challenge[base * lanes + lane] = s.challenge[p * lanes + lane];
                    s.challenge[p * lanes + lane] = if signs >> b & 1 == 0 { 1.0 } else { -1.0 };
                }
            }
        }
    }

    /// Computes c̃ = com(μ, w₁) in the first `count` lanes, from w and the states after μ.
    pub(super) fn com<'m>(&mut self, count: usize, after_mu: impl Fn(usize) -> &'m State) {
        self.lattice.high_parts(&self.s.w, &mut self.s.w1);
        for lane in 0..self.lanes {
            self.load_state(lane, after_mu(lane));
        }
        self.lattice.absorb(count, &mut self.s.states, &self.s.w1);
        self.lattice.squeeze(&self.s.states, &mut self.s.c_tilde);
    }

    pub(super) fn c_tilde(&self, lane: usize) -> [Fe; CSIZE] {
        let mut cells = column(&self.s.c_tilde, self.lanes, lane);
        array::from_fn(|_| canonical(cells.next().expect("12 rows")))
    }
}
