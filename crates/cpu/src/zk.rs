//! zkDilithium by the batch: as many instances side by side as there are lanes.
//!
//! A lane of signing is one attempt at a signature. With many messages open, each has one; with fewer than lanes, the
//! others run ahead with the later κ of the same messages, and the smallest κ that passes is the signature. A message
//! that is done makes room for the next at once.

use hypergrove_lanes::{Constants, Factors, Isa, Lattice, Rows, Shake, Width, lattice};
use hypergrove_zkdilithium::digest::Message;
use hypergrove_zkdilithium::keys::Opened;
use hypergrove_zkdilithium::pack::{bytes_to_fes, pack_eta, pack_fes, pack_gamma1};
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::{ANTIDIAGONALS, ROUND_CONSTANTS, State};
use hypergrove_zkdilithium::ring::{NttElement, RingElement};
use hypergrove_zkdilithium::sample::{expand_a, expand_s};
use hypergrove_zkdilithium::{ExpandedSigningKey, ExpandedVerifyingKey, Fe, Signature, SigningKey};
use rayon::prelude::*;
use std::array;
use std::sync::{Mutex, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// zkDilithium by one instruction set.
pub struct ZkDilithium {
    isa: Isa,
    /// For few jobs, and for many.
    narrow: Box<dyn Lattice>,
    wide: Box<dyn Lattice>,
    scratch: [Pool; 2],
}

type Pool = Mutex<Vec<Scratch>>;

/// A signature to be made.
#[derive(Clone, Copy)]
pub struct Sign<'a> {
    /// Whose.
    pub key: &'a ExpandedSigningKey,
    /// Of what.
    pub message: Message<'a>,
}

/// A signature to be judged.
#[derive(Clone, Copy)]
pub struct Verify<'a> {
    /// Whose it should be.
    pub key: &'a ExpandedVerifyingKey,
    /// Of what.
    pub message: Message<'a>,
    /// The signature, of any length.
    pub signature: &'a [u8],
}

/// Rows of a polynomial, and of four.
const VECTOR: usize = L * N;
/// Poseidon's cells and their denominator.
const STATE: usize = T + 1;
/// Blocks of SHAKE256 that a mask polynomial takes.
const Y_BLOCKS: usize = GAMMA1_BYTES.div_ceil(136);
/// Blocks that give a polynomial of Â but once in 10⁹ times, and of s₁ or s₂ but once in 10¹⁰⁰. Else the reference is asked.
const A_BLOCKS: usize = 6;
const S_BLOCKS: usize = 2;
/// Rows of Â, ŝ₁ and ŝ₂, or of Â and −t̂, as factors.
const KEY: usize = K * L * N + 2 * VECTOR;

impl ZkDilithium {
    /// By this instruction set; `None` if the CPU lacks it.
    pub fn with(isa: Isa) -> Option<ZkDilithium> {
        let round_constants: Vec<u32> = ROUND_CONSTANTS.iter().flatten().map(|x| x.value()).collect();
        let hankel = ANTIDIAGONALS.map(Fe::value);
        let constants = Constants { zeta: ZETA, round_constants: &round_constants, hankel: &hankel };
        Some(ZkDilithium {
            isa,
            narrow: lattice(isa, Width::Narrow, &constants)?,
            wide: lattice(isa, Width::Wide, &constants)?,
            scratch: Default::default(),
        })
    }
    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The keys of these seeds, in their order.
    pub fn keygen(&self, seeds: &[[u8; SEED_BYTES]]) -> Vec<SigningKey> {
        self.chunks(seeds, |lanes, seeds, out| lanes.keygen(seeds, out))
    }
    /// The signatures, in the order of the jobs.
    pub fn sign(&self, jobs: &[Sign<'_>]) -> Vec<Signature> {
        self.chunks(jobs, |lanes, jobs, out| lanes.sign(jobs, out))
    }
    /// The verdicts, in the order of the jobs.
    pub fn verify(&self, jobs: &[Verify<'_>]) -> Vec<bool> {
        self.chunks(jobs, |lanes, jobs, out| lanes.verify(jobs, out))
    }

    /// A chunk of jobs for each thread of the current pool, in lanes of the width that suits their number.
    fn chunks<J: Sync, R: Send>(&self, jobs: &[J], run: impl Fn(&mut Lanes<'_>, &[J], &mut Vec<R>) + Sync) -> Vec<R> {
        /// More add nothing to a chunk, but keep threads waiting for its end.
        const MOST: usize = 256;
        let chunk = jobs.len().div_ceil(rayon::current_num_threads()).clamp(1, MOST);
        let one = |jobs: &[J]| {
            let wide = jobs.len() >= self.wide.lanes();
            let (lattice, pool) = if wide { (&self.wide, &self.scratch[1]) } else { (&self.narrow, &self.scratch[0]) };
            let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
            let mut scratch = lock().pop().unwrap_or_else(|| Scratch::new(lattice.lanes()));
            let mut out = Vec::with_capacity(jobs.len());
            run(&mut Lanes { lattice: &**lattice, lanes: lattice.lanes(), s: &mut scratch }, jobs, &mut out);
            lock().push(scratch);
            out
        };
        if jobs.len() <= chunk {
            return one(jobs);
        }
        jobs.par_chunks(chunk).map(one).collect::<Vec<_>>().into_iter().flatten().collect()
    }
}

/// What a thread works in: columns of lanes. Wiped on drop.
struct Scratch {
    /// Factors of each lane's key, and of the one that all have.
    each: Rows,
    same: Rows,
    /// y or z; its values, and what comes of them; w.
    y: Rows,
    values: Rows,
    w: Rows,
    w1: Rows,
    challenge: Rows,
    /// The lanes where c̃ gives no challenge.
    failed: Vec<bool>,
    c_tilde: Rows,
    states: Rows,
    cells: Rows,
    r0_norms: Rows,
    z_norms: Rows,
    inputs: Vec<u8>,
    bytes: Vec<u8>,
}

impl Scratch {
    fn new(lanes: usize) -> Scratch {
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
            inputs: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.inputs.zeroize();
        self.bytes.zeroize();
    }
}

/// What an attempt starts from: Poseidon's state after μ, and the seed of its masks.
struct Start {
    after_mu: State,
    rho2: Zeroizing<[u8; 64]>,
}

/// A message without its signature, and the κ to try next.
#[derive(Clone, Copy)]
struct Open {
    job: usize,
    kappa: u16,
}

struct Lanes<'a> {
    lattice: &'a dyn Lattice,
    lanes: usize,
    s: &'a mut Scratch,
}

/// An instance's column.
fn column(rows: &[f64], lanes: usize, lane: usize) -> impl Iterator<Item = f64> {
    rows[lane..].iter().step_by(lanes).copied()
}
fn column_mut(rows: &mut [f64], lanes: usize, lane: usize) -> impl Iterator<Item = &mut f64> {
    rows[lane..].iter_mut().step_by(lanes)
}
fn set(rows: &mut [f64], lanes: usize, lane: usize, values: impl Iterator<Item = f64>) {
    for (row, value) in column_mut(rows, lanes, lane).zip(values) {
        *row = value;
    }
}
fn canonical(x: f64) -> Fe {
    Fe::new(x as u32)
}
fn element(column: &mut impl Iterator<Item = f64>) -> RingElement {
    RingElement(array::from_fn(|_| Fe::from_centred(column.next().expect("256 rows") as i32)))
}
fn plain(values: &[NttElement]) -> impl Iterator<Item = f64> {
    values.iter().flat_map(|a| a.0).map(|x| f64::from(x.value()))
}

impl Lanes<'_> {
    /// States for lanes, from cells.
    fn load_state(&mut self, lane: usize, cells: &State) {
        let cells = cells.iter().map(|x| f64::from(x.value())).chain([1.0]);
        set(&mut self.s.states, self.lanes, lane, cells);
    }

    /// μ of each message, and Poseidon's state after it has been absorbed: what com starts from.
    fn after_mu<'m>(
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
            for (lane, job) in group.iter().enumerate() {
                let (state, message) = of(*job);
                self.load_state(lane, state);
                done[*job].0 = match message {
                    Message::Mu(mu) => *mu,
                    _ => array::from_fn(|i| state[i]),
                };
            }
            for block in 0..group.last().map_or(0, |job| blocks(&of(*job).1)) {
                let elements = &mut self.s.w1[..RATE * self.lanes];
                for (lane, job) in group.iter().enumerate() {
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
                self.lattice.absorb(&mut self.s.states, elements);
                if !group.iter().any(|job| blocks(&of(*job).1) == block + 1) {
                    continue;
                }
                self.lattice.squeeze(&self.s.states, &mut self.s.cells[..MUSIZE * self.lanes]);
                for (lane, job) in group.iter().enumerate().filter(|(_, job)| blocks(&of(**job).1) == block + 1) {
                    let mut cells = column(&self.s.cells, self.lanes, lane);
                    done[*job].0 = array::from_fn(|_| canonical(cells.next().expect("24 rows")));
                }
            }
            for (lane, job) in group.iter().enumerate() {
                self.load_state(lane, &[Fe::ZERO; T]);
                set(&mut self.s.w1, self.lanes, lane, done[*job].0.iter().map(|x| f64::from(x.value())));
            }
            self.lattice.absorb(&mut self.s.states, &self.s.w1[..MUSIZE * self.lanes]);
            self.lattice.squeeze(&self.s.states, &mut self.s.cells);
            for (lane, job) in group.iter().enumerate() {
                let mut cells = column(&self.s.cells, self.lanes, lane);
                done[*job].1 = array::from_fn(|_| canonical(cells.next().expect("35 rows")));
            }
        }
        done
    }

    /// Writes the factors of the lanes' keys; whether all have the same.
    fn load_keys<'k, Key: 'k, I: Iterator<Item = f64>>(
        &mut self,
        held: &mut Vec<Option<&'k Key>>,
        keys: &[&'k Key],
        factors: impl Fn(&'k Key) -> I,
    ) -> bool {
        let same = keys.iter().all(|key| std::ptr::eq(*key, keys[0]));
        // The last place is that of the key that all have.
        held.resize(self.lanes + 1, None);
        let is = |held: &Option<&Key>, key: &Key| held.is_some_and(|held| std::ptr::eq(held, key));
        if same {
            if !is(&held[self.lanes], keys[0]) {
                held[self.lanes] = Some(keys[0]);
                set(&mut self.s.same, 1, 0, factors(keys[0]));
            }
            return true;
        }
        if self.s.each.is_empty() {
            self.s.each = Rows::new(KEY, self.lanes);
        }
        for (lane, key) in keys.iter().enumerate() {
            if !is(&held[lane], key) {
                held[lane] = Some(key);
                set(&mut self.s.each, self.lanes, lane, factors(key));
            }
        }
        false
    }

    fn factors(&self, same: bool, first: usize, rows: usize) -> Factors<'_> {
        if same {
            Factors::Same(&self.s.same[first..first + rows])
        } else {
            Factors::Each(&self.s.each[first * self.lanes..(first + rows) * self.lanes])
        }
    }

    /// c of c̃, and the lanes where there is none.
    fn ball(&mut self) {
        let (lanes, s) = (self.lanes, &mut *self.s);
        const GROUP: usize = 8;
        s.failed.fill(false);
        s.states.fill(0.0);
        s.states[..lanes].fill(2.0);
        s.states[lanes..(1 + CSIZE) * lanes].copy_from_slice(&s.c_tilde);
        s.states[T * lanes..].fill(1.0);
        s.challenge.fill(0.0);
        for group in 0..TAU / GROUP {
            self.lattice.permute(&mut s.states);
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

    /// c̃ = com(μ, w₁), from the states after μ and w.
    fn com<'m>(&mut self, after_mu: impl Fn(usize) -> &'m State) {
        self.lattice.high_parts(&self.s.w, &mut self.s.w1);
        for lane in 0..self.lanes {
            self.load_state(lane, after_mu(lane));
        }
        self.lattice.absorb(&mut self.s.states, &self.s.w1);
        self.lattice.squeeze(&self.s.states, &mut self.s.c_tilde);
    }

    fn c_tilde(&self, lane: usize) -> [Fe; CSIZE] {
        let mut cells = column(&self.s.c_tilde, self.lanes, lane);
        array::from_fn(|_| canonical(cells.next().expect("12 rows")))
    }

    fn sign(&mut self, jobs: &[Sign<'_>], out: &mut Vec<Signature>) {
        let after_mu = self.after_mu(jobs.len(), |job| (jobs[job].key.state_after_tr(), jobs[job].message));
        let starts: Vec<Start> = jobs
            .iter()
            .zip(after_mu)
            .map(|(job, (mu, after_mu))| Start { after_mu, rho2: job.message.rho2(job.key.key(), job.key.tr(), &mu) })
            .collect();
        let mut signatures: Vec<Option<Signature>> = vec![None; jobs.len()];
        let (mut held, mut keys) = (Vec::new(), Vec::with_capacity(self.lanes));
        let (mut open, mut lanes): (Vec<Open>, _) = (Vec::new(), Vec::with_capacity(self.lanes));
        let mut queue = 0..jobs.len();
        loop {
            let free = self.lanes - open.len();
            open.extend(queue.by_ref().take(free).map(|job| Open { job, kappa: 0 }));
            if open.is_empty() {
                break;
            }
            lanes.clear();
            for lane in 0..self.lanes {
                let at = lane % open.len();
                lanes.push(open[at]);
                open[at].kappa += L as u16;
            }
            keys.clear();
            keys.extend(lanes.iter().map(|lane| jobs[lane.job].key));
            let same = self.load_keys(&mut held, &keys, |key| {
                plain(key.a_hat().as_flattened()).chain(plain(key.s1_hat())).chain(plain(key.s2_hat()))
            });
            self.attempt(same, &lanes, &starts, &mut signatures);
            open.retain(|open| signatures[open.job].is_none());
        }
        out.extend(signatures.into_iter().map(|signature| signature.expect("no message is left open")));
    }

    /// One attempt in each lane. Lanes of a message come with rising κ: the first that passes is its signature.
    fn attempt(&mut self, same: bool, lanes: &[Open], starts: &[Start], signatures: &mut [Option<Signature>]) {
        self.expand_y(lanes, starts);
        // w = INTT(Â·NTT(y))
        let size = VECTOR * self.lanes;
        self.s.values[..size].copy_from_slice(&self.s.y);
        self.lattice.ntt(&mut self.s.values[..size]);
        let mut w = std::mem::replace(&mut self.s.w, Rows::new(0, 1));
        for (i, w) in w.chunks_exact_mut(N * self.lanes).enumerate() {
            self.lattice.dot(self.factors(same, i * VECTOR, VECTOR), &self.s.values[..size], w);
        }
        self.lattice.intt(&mut w);
        self.s.w = w;
        // c̃ = com(μ, w₁);  c = Ball(c̃)
        self.com(|lane| &starts[lanes[lane].job].after_mu);
        self.ball();
        self.lattice.ntt(&mut self.s.challenge);
        // ‖LowPart(w − c·s₂)‖, and z = y + c·s₁ with its norm
        self.times_challenge(same, K * VECTOR + VECTOR);
        self.lattice.low_norms(&self.s.w, &self.s.values[..size], &mut self.s.r0_norms);
        self.times_challenge(same, K * VECTOR);
        self.lattice.add_norms(&mut self.s.values[..size], &self.s.y, &mut self.s.z_norms);
        for (lane, open) in lanes.iter().enumerate() {
            let passes = !self.s.failed[lane]
                && self.s.r0_norms[lane] < f64::from(GAMMA2 - BETA)
                && self.s.z_norms[lane] < f64::from(GAMMA1 - BETA);
            if passes && signatures[open.job].is_none() {
                let mut bytes = vec![0; SIG_BYTES];
                let (c_packed, z_packed) = bytes.split_at_mut(C_TILDE_BYTES);
                pack_fes(&self.c_tilde(lane), c_packed);
                let mut z = column(&self.s.values[..size], self.lanes, lane);
                for out in z_packed.chunks_exact_mut(GAMMA1_BYTES) {
                    pack_gamma1(&element(&mut z), out);
                }
                signatures[open.job] = Some(Signature::from_bytes(bytes).expect("a signature has its length"));
            }
        }
    }

    /// Four factors from row `first` on by the challenge, back as polynomials in `values`.
    fn times_challenge(&mut self, same: bool, first: usize) {
        let size = VECTOR * self.lanes;
        let mut values = std::mem::replace(&mut self.s.values, Rows::new(0, 1));
        for (i, out) in values[..size].chunks_exact_mut(N * self.lanes).enumerate() {
            self.lattice.dot(self.factors(same, first + i * N, N), &self.s.challenge, out);
        }
        self.lattice.intt(&mut values[..size]);
        self.s.values = values;
    }

    /// y of each lane's κ.
    fn expand_y(&mut self, lanes: &[Open], starts: &[Start]) {
        let Scratch { inputs, bytes, y, .. } = &mut *self.s;
        const INPUT: usize = 66;
        const OUTPUT: usize = Y_BLOCKS * Shake::Shake256.rate();
        inputs.clear();
        for lane in lanes {
            for i in 0..L as u16 {
                inputs.extend_from_slice(&starts[lane.job].rho2[..]);
                inputs.extend_from_slice(&lane.kappa.wrapping_add(i).to_le_bytes());
            }
        }
        bytes.resize(lanes.len() * L * OUTPUT, 0);
        self.lattice.shake(Shake::Shake256, inputs, INPUT, bytes, Y_BLOCKS);
        for (lane, bytes) in bytes.chunks_exact(L * OUTPUT).enumerate() {
            let codes = bytes.chunks_exact(OUTPUT).flat_map(|bytes| {
                // Four codes of 18 bits in nine bytes.
                bytes[..GAMMA1_BYTES].as_chunks::<9>().0.iter().flat_map(|bytes| {
                    let low = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                    let high = low >> 54 | u64::from(bytes[8]) << 10;
                    [low, low >> 18, low >> 36, high]
                })
            });
            let coefficient = |code: u64| f64::from(GAMMA1) - (code & ((1 << 18) - 1)) as u32 as f64;
            set(y, self.lanes, lane, codes.map(coefficient));
        }
    }

    fn verify(&mut self, jobs: &[Verify<'_>], out: &mut Vec<bool>) {
        let after_mu = self.after_mu(jobs.len(), |job| (jobs[job].key.state_after_tr(), jobs[job].message));
        let opened: Vec<_> = jobs.iter().map(|job| Opened::new(job.signature)).collect();
        let mut verdicts = vec![false; jobs.len()];
        let candidates: Vec<usize> = (0..jobs.len()).filter(|job| opened[*job].is_some()).collect();
        let mut held = Vec::new();
        for group in candidates.chunks(self.lanes) {
            // Lanes that are left over repeat the last job.
            let job = |lane: usize| group[lane.min(group.len() - 1)];
            let open = |lane: usize| opened[job(lane)].as_ref().expect("a candidate");
            let keys: Vec<_> = (0..self.lanes).map(|lane| jobs[job(lane)].key).collect();
            let same = self.load_keys(&mut held, &keys, |key| {
                (0..K).flat_map(|i| plain(&key.a_hat()[i]).chain(plain(&key.t_hat()[i..=i]).map(|x| -x)))
            });
            for lane in 0..self.lanes {
                let c_tilde = open(lane).c_tilde.iter().map(|x| f64::from(x.value()));
                set(&mut self.s.c_tilde, self.lanes, lane, c_tilde);
                let z = open(lane).z.iter().flat_map(|z| z.0).map(|x| f64::from(x.centred()));
                set(&mut self.s.values, self.lanes, lane, z);
            }
            self.ball();
            // w = INTT(Â·NTT(z) − NTT(c)·NTT(t))
            self.s.values[VECTOR * self.lanes..].copy_from_slice(&self.s.challenge);
            self.lattice.ntt(&mut self.s.values);
            let mut w = std::mem::replace(&mut self.s.w, Rows::new(0, 1));
            for (i, w) in w.chunks_exact_mut(N * self.lanes).enumerate() {
                self.lattice.dot(self.factors(same, i * (VECTOR + N), VECTOR + N), &self.s.values, w);
            }
            self.lattice.intt(&mut w);
            self.s.w = w;
            self.com(|lane| &after_mu[job(lane)].1);
            for (lane, job) in group.iter().enumerate() {
                verdicts[*job] = !self.s.failed[lane] && self.c_tilde(lane) == open(lane).c_tilde;
            }
        }
        out.extend(verdicts);
    }

    fn keygen(&mut self, seeds: &[[u8; SEED_BYTES]], out: &mut Vec<SigningKey>) {
        for group in seeds.chunks(self.lanes) {
            self.keygen_group(group, out);
        }
    }

    fn keygen_group(&mut self, seeds: &[[u8; SEED_BYTES]], out: &mut Vec<SigningKey>) {
        let (lanes, count) = (self.lanes, seeds.len());
        // ρ ‖ ρ′ ‖ key
        let mut e = Zeroizing::new(vec![0; count * Shake::Shake256.rate()]);
        self.lattice.shake(Shake::Shake256, seeds.as_flattened(), SEED_BYTES, &mut e, 1);
        let seeds: Vec<&[u8]> = e.chunks_exact(Shake::Shake256.rate()).collect();
        let (rho, rho_prime, key) = (0..32, 32..96, 96..128);
        if self.s.each.is_empty() {
            self.s.each = Rows::new(KEY, lanes);
        }
        self.s.inputs.clear();
        for seed in &seeds {
            for (i, j) in (0..K as u8).flat_map(|i| (0..L as u8).map(move |j| (i, j))) {
                self.s.inputs.extend_from_slice(&seed[rho.clone()]);
                self.s.inputs.extend_from_slice(&[j, i]);
            }
        }
        let a_bytes = A_BLOCKS * Shake::Shake128.rate();
        self.s.bytes.resize(count * K * L * a_bytes, 0);
        self.lattice.shake(Shake::Shake128, &self.s.inputs, 34, &mut self.s.bytes, A_BLOCKS);
        for (lane, bytes) in self.s.bytes.chunks_exact(K * L * a_bytes).enumerate() {
            let polynomials = self.s.each.chunks_exact_mut(N * lanes);
            let mut complete = true;
            for (bytes, rows) in bytes.chunks_exact(a_bytes).zip(polynomials) {
                complete &= uniform(bytes, rows, lanes, lane);
            }
            if !complete {
                let a = expand_a(&seeds[lane][rho.clone()]);
                set(&mut self.s.each, lanes, lane, plain(a.as_flattened()));
            }
        }
        // s₁ to y, s₂ to w1
        self.s.inputs.clear();
        for seed in &seeds {
            for m in 0..(K + L) as u8 {
                self.s.inputs.extend_from_slice(&seed[rho_prime.clone()]);
                self.s.inputs.extend_from_slice(&[m, 0]);
            }
        }
        let s_bytes = S_BLOCKS * Shake::Shake256.rate();
        self.s.bytes.resize(count * (K + L) * s_bytes, 0);
        let streams = &mut self.s.bytes[..count * (K + L) * s_bytes];
        self.lattice.shake(Shake::Shake256, &self.s.inputs, 66, streams, S_BLOCKS);
        for (lane, bytes) in streams.chunks_exact((K + L) * s_bytes).enumerate() {
            let polynomials = self.s.y.chunks_exact_mut(N * lanes).chain(self.s.w1.chunks_exact_mut(N * lanes));
            let mut complete = true;
            for (bytes, rows) in bytes.chunks_exact(s_bytes).zip(polynomials) {
                complete &= short(bytes, rows, lanes, lane);
            }
            if !complete {
                let (s1, s2) = expand_s(&seeds[lane][rho_prime.clone()]);
                let centred = |s: &[RingElement]| {
                    Zeroizing::new(s.iter().flat_map(|s| s.0).map(|x| f64::from(x.centred())).collect::<Vec<_>>())
                };
                set(&mut self.s.y, lanes, lane, centred(&s1).iter().copied());
                set(&mut self.s.w1, lanes, lane, centred(&s2).iter().copied());
            }
        }
        // t = INTT(Â·NTT(s₁)) + s₂
        let size = VECTOR * lanes;
        self.s.values[..size].copy_from_slice(&self.s.y);
        self.lattice.ntt(&mut self.s.values[..size]);
        for (i, w) in self.s.w.chunks_exact_mut(N * lanes).enumerate() {
            let factors = Factors::Each(&self.s.each[i * size..(i + 1) * size]);
            self.lattice.dot(factors, &self.s.values[..size], w);
        }
        self.lattice.intt(&mut self.s.w);
        self.lattice.add(&mut self.s.w, &self.s.w1);
        // pk = ρ ‖ fe24(t);  tr = H(pk)
        let public = &mut self.s.inputs;
        public.clear();
        for (lane, seed) in seeds.iter().enumerate() {
            public.extend_from_slice(&seed[rho.clone()]);
            for t in column(&self.s.w, lanes, lane) {
                public.extend_from_slice(&(t as u32).to_le_bytes()[..FE_BYTES]);
            }
        }
        let trs = &mut self.s.bytes[..count * Shake::Shake256.rate()];
        self.lattice.shake(Shake::Shake256, public, PK_BYTES, trs, 1);
        for (lane, seed) in seeds.iter().enumerate() {
            let mut sk = Zeroizing::new(Vec::with_capacity(SK_BYTES));
            sk.extend_from_slice(&seed[rho.clone()]);
            sk.extend_from_slice(&seed[key.clone()]);
            sk.extend_from_slice(&trs[lane * Shake::Shake256.rate()..][..HASH_BYTES]);
            for rows in [&self.s.y, &self.s.w1] {
                let mut s = column(rows, lanes, lane);
                for _ in 0..K {
                    let at = sk.len();
                    sk.resize(at + ETA_BYTES, 0);
                    let mut s = element(&mut s);
                    pack_eta(&s, &mut sk[at..]);
                    s.zeroize();
                }
            }
            sk.extend_from_slice(&public[lane * PK_BYTES + HASH_BYTES..][..T_BYTES]);
            out.push(SigningKey::from_bytes(&sk).expect("a private key has its length"));
        }
    }
}

/// A polynomial of Â from its stream; whether there were enough candidates.
fn uniform(stream: &[u8], rows: &mut [f64], lanes: usize, lane: usize) -> bool {
    // Every candidate is written, and counted if it is below Q.
    let mut kept = [0u32; A_BLOCKS * Shake::Shake128.rate() / 3];
    let mut count = 0;
    for (at, b) in stream.as_chunks::<3>().0.iter().enumerate() {
        let d = u32::from_le_bytes([b[0], b[1], b[2] & 0x7f, 0]);
        kept[count.min(at)] = d;
        count += usize::from(d < Q);
    }
    set(rows, lanes, lane, kept[..N].iter().map(|x| f64::from(*x)));
    count >= N
}

/// A polynomial of s₁ or s₂ likewise. How many nibbles are 15 says nothing of the others.
fn short(stream: &[u8], rows: &mut [f64], lanes: usize, lane: usize) -> bool {
    let mut kept = [0u8; S_BLOCKS * Shake::Shake256.rate() * 2];
    let mut count = 0;
    for (at, nibble) in stream.iter().flat_map(|byte| [byte & 15, byte >> 4]).enumerate() {
        kept[count.min(at)] = nibble;
        count += usize::from(nibble < 15);
    }
    // ⌊d/5⌋ = ⌊13·d/64⌋ below 15: no division of a secret.
    let small = |d: u8| f64::from(ETA) - f64::from(d - 5 * ((13 * u16::from(d) >> 6) as u8));
    set(rows, lanes, lane, kept[..N].iter().map(|d| small(*d)));
    kept.zeroize();
    count >= N
}
