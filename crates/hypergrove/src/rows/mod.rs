//! Rows: batches as columns. No object is made for a job, and results go into the caller's memory. zkDilithium's rows have keys and
//! messages of their own: [`zkdilithium::SignRows`](crate::zkdilithium::SignRows).

mod block;
mod column;
mod keys;
mod set;

pub use column::{Column, Offsets};
pub use hypergrove_engine::scheduler::Memory;
pub use set::{RowCall, RowSet};

use crate::flow::Flow;
use crate::jobs::{ToSign, ToVerify, check_length, random};
use crate::run::{Failed, Run, room};
use crate::{Engine, Error, ErrorKind, Mode, Op, Params, Randomizer, SigningKey, VerifyingKey};
use block::{Output, RowBlock, run_calls};
pub(crate) use block::{Rows, of_calls};
use hypergrove_engine::Key;
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheduler::{Options, Place, Scheduler};
use hypergrove_engine::scheme::Kind;
use hypergrove_fips205::{MAX_N, MessageError};
use hypergrove_taint::declassify;
pub(crate) use keys::{KeyCall, KeyColumns, KeySet};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{ptr, slice};

/// The status of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum RowStatus {
    /// The call ended before this row was computed, or the device's result was withdrawn.
    #[default]
    NotComputed = 0,
    /// The message was signed.
    Signed = 1,
    /// The signature is valid.
    Valid = 2,
    /// The signature is not valid.
    Invalid = 3,
    /// The row's offsets are wrong: they decrease, are negative, or lie beyond the column's bytes.
    BadOffsets = 4,
    /// The signature does not have the length of the set.
    SignatureLength = 5,
    /// The public key does not have the length of the set.
    KeyLength = 6,
    /// The row's index is beyond the table of keys.
    NoSuchKey = 7,
    /// The digest does not have the length of the pre-hash function ([`Mode::Digest`]).
    DigestLength = 8,
    /// The private key is damaged: its PK.root does not follow from its seeds, or it changed in memory.
    KeyDamaged = 9,
    /// The row needs more memory than the engine's budget.
    OutOfMemory = 10,
    /// The message was hashed.
    Hashed = 11,
}

/// The private keys of [`Engine::sign_rows`]. All keys of SLH-DSA must be of one set and have the same number of cached layers.
#[derive(Debug)]
pub enum RowSigningKeys<'a, K = SigningKey> {
    /// One key for all rows.
    One(&'a K),
    /// Row i is signed by `keys[of[i]]`.
    Table {
        /// The keys, at least one.
        keys: &'a [K],
        /// The index of each row's key.
        of: &'a [u32],
    },
}

impl<K> Clone for RowSigningKeys<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for RowSigningKeys<'_, K> {}

impl<'a, K> RowSigningKeys<'a, K> {
    /// Checks that each row has an index, and that there is a key.
    pub(crate) fn check(&self, rows: usize) -> Result<(), Error> {
        match self {
            RowSigningKeys::One(_) => Ok(()),
            RowSigningKeys::Table { keys, of } => check_table(keys, of, rows),
        }
    }

    /// Which of the keys signs a row.
    pub(crate) fn index(&self, row: usize) -> Result<u32, RowStatus> {
        match self {
            RowSigningKeys::One(_) => Ok(0),
            RowSigningKeys::Table { keys, of } => index_in(keys, of, row),
        }
    }

    /// The distinct keys of some rows, given their indices, and which of them each row has.
    pub(crate) fn distinct(&self, of: impl ExactSizeIterator<Item = u32>) -> (Vec<&'a K>, Vec<u32>) {
        match self {
            RowSigningKeys::One(key) => (vec![key], vec![0; of.len()]),
            RowSigningKeys::Table { keys, .. } => of_table(keys, of),
        }
    }
}

/// The public keys of [`Engine::verify_rows`]. All must be of one set.
#[derive(Clone, Copy, Debug)]
pub enum RowVerifyingKeys<'a> {
    /// One key for all rows.
    One(&'a VerifyingKey),
    /// Row i is verified with `keys[of[i]]`.
    Table {
        /// The keys, at least one.
        keys: &'a [VerifyingKey],
        /// The index of each row's key.
        of: &'a [u32],
    },
    /// One public key for each row, PK.seed ‖ PK.root.
    Encoded {
        /// Their set.
        params: &'static Params,
        /// The keys.
        keys: Column<'a>,
    },
}

/// Messages to be signed; see [`Engine::sign_rows`].
#[derive(Clone, Copy, Debug)]
pub struct SignRows<'a> {
    /// The keys.
    pub keys: RowSigningKeys<'a>,
    /// How messages become M′.
    pub mode: Mode<'a>,
    /// One message for each row.
    pub messages: Column<'a>,
    /// Where the randomness comes from. [`Randomizer::Given`] must have n bytes for each row.
    pub randomizer: Randomizer<'a>,
}

/// Signatures to be verified; see [`Engine::verify_rows`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyRows<'a> {
    /// The keys.
    pub keys: RowVerifyingKeys<'a>,
    /// How messages become M′.
    pub mode: Mode<'a>,
    /// One message for each row.
    pub messages: Column<'a>,
    /// One signature for each row.
    pub signatures: Column<'a>,
}

impl Engine {
    /// Memory for rows that devices copy from and to by themselves: signatures, messages and keys that lie in it are not copied by
    /// threads. Without a device that can, it is ordinary memory, and serves as well: [`Memory::devices`] says which it is. Rows need
    /// not lie in it. To get such memory takes long, and to drop it takes the time to wipe it: use it for many calls.
    ///
    /// A call that writes results into such memory returns when no device writes there any more. If a GPU hangs just then, the call hangs too,
    /// whatever [`device_timeout`](crate::EngineBuilder::device_timeout) says. If a GPU hangs that may still read such memory, the
    /// memory stays allocated until the process ends.
    ///
    /// ```
    /// use hypergrove::rows::{Column, RowVerifyingKeys, RowStatus, VerifyRows};
    /// use hypergrove::{Engine, Mode, SLH_DSA_SHA2_128F};
    ///
    /// let (engine, p) = (Engine::new()?, &SLH_DSA_SHA2_128F);
    /// let key = engine.generate(p)?;
    /// let mut signatures = engine.memory(p.sig_bytes())?;
    /// signatures.copy_from_slice(engine.sign(&key, Mode::default(), b"message", Default::default())?.as_bytes());
    /// let rows = VerifyRows {
    ///     keys: RowVerifyingKeys::One(&key.verifying_key()),
    ///     mode: Mode::default(),
    ///     messages: Column::packed(b"message", 7),
    ///     signatures: Column::packed(&signatures, p.sig_bytes()),
    /// };
    /// let mut statuses = [RowStatus::default()];
    /// engine.verify_rows(&rows, &mut statuses)?;
    /// assert_eq!(statuses, [RowStatus::Valid]);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        self.0.scheduler.memory(bytes)
    }

    /// Signs one message for each row. The signature of row i goes to `signatures[i * sig_bytes..]`, its status to `statuses[i]`. The
    /// engine writes a signature after it has checked the device's results. The memory of a row that is not signed is zero.
    ///
    /// A row that cannot be signed has a status that says why. An error concerns the whole call: columns do not fit each other, there
    /// is no randomness, or no device is left. Rows that were signed before the error keep their signatures and statuses.
    ///
    /// Nothing may change the columns during the call, another process that shares the memory included: the checks of the results
    /// read them again, and a difference is blamed on the device.
    ///
    /// ```
    /// use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
    /// use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    /// // Two messages of eight bytes.
    /// let rows = SignRows {
    ///     keys: RowSigningKeys::One(&key),
    ///     mode: Mode::default(),
    ///     messages: Column::packed(b"message1message2", 8),
    ///     randomizer: Randomizer::Hedged,
    /// };
    /// let mut signatures = vec![0; 2 * SLH_DSA_SHA2_128F.sig_bytes()];
    /// let mut statuses = [RowStatus::default(); 2];
    /// engine.sign_rows(&rows, &mut signatures, &mut statuses)?;
    /// assert_eq!(statuses, [RowStatus::Signed; 2]);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn sign_rows(
        &self,
        rows: &SignRows<'_>,
        signatures: &mut [u8],
        statuses: &mut [RowStatus],
    ) -> Result<(), Error> {
        self.sign_rows_with_progress(rows, signatures, statuses, |_| ())
    }

    /// As [`Engine::sign_rows`]. `progress` gets the number of completed rows, on this thread, whenever it grows. It may stop the call
    /// by [`ControlFlow::Break`]: the other rows are then [`RowStatus::NotComputed`].
    pub fn sign_rows_with_progress<F: Flow>(
        &self,
        rows: &SignRows<'_>,
        signatures: &mut [u8],
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        run_rows(&self.0.scheduler, rows, signatures, statuses, &mut |done| progress(done).flow())
    }

    /// Verifies one signature for each row. The verdict on row i goes to `statuses[i]`. A row that cannot be verified, because its
    /// signature has the wrong length for example, has a status that says why. An error concerns the whole call, as in
    /// [`Engine::sign_rows`].
    ///
    /// If another process that shares the memory changes a signature, message or encoded key during the call, the verdict on that row
    /// may be wrong. An engine with [`redundant`](crate::EngineBuilder::redundant) blames the device for the difference. If many
    /// rows have the same key, use [`RowVerifyingKeys::Table`], or sort the rows by key.
    pub fn verify_rows(&self, rows: &VerifyRows<'_>, statuses: &mut [RowStatus]) -> Result<(), Error> {
        self.verify_rows_with_progress(rows, statuses, |_| ())
    }

    /// As [`Engine::verify_rows`], with `progress` as in [`Engine::sign_rows_with_progress`].
    pub fn verify_rows_with_progress<F: Flow>(
        &self,
        rows: &VerifyRows<'_>,
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        run_rows(&self.0.scheduler, rows, &mut [], statuses, &mut |done| progress(done).flow())
    }

    /// Makes as many keys as the columns have room for, from the operating system's randomness. A private key is SK.seed ‖ SK.prf ‖
    /// PK.seed ‖ PK.root, 4n bytes; a public key is PK.seed ‖ PK.root, 2n bytes. After an error, both columns are zero. The caller has
    /// to wipe `private` in the end.
    ///
    /// FIPS 205, Algorithm 21.
    pub fn keygen_rows(&self, params: &'static Params, private: &mut [u8], public: &mut [u8]) -> Result<(), Error> {
        self.keygen_rows_with_progress(params, private, public, |_| ())
    }

    /// As [`Engine::keygen_rows`]. `progress` gets the number of completed rows, on this thread, whenever it grows. If it stops the
    /// call by [`ControlFlow::Break`], both columns are zero.
    pub fn keygen_rows_with_progress<F: Flow>(
        &self,
        params: &'static Params,
        private: &mut [u8],
        public: &mut [u8],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let columns = KeyColumns { seeds: None, private, public: Some(public) };
        run_one(&self.0.scheduler, KeyCall::new(params, columns)?, &mut |done| progress(done).flow())
    }

    /// As [`Engine::keygen_rows`], from seeds: SK.seed ‖ SK.prf ‖ PK.seed, 3n bytes for each row.
    ///
    /// FIPS 205, Algorithm 18.
    pub fn keygen_rows_from_seeds(
        &self,
        params: &'static Params,
        seeds: &[u8],
        private: &mut [u8],
        public: &mut [u8],
    ) -> Result<(), Error> {
        let columns = KeyColumns { seeds: Some(seeds), private, public: Some(public) };
        run_one(&self.0.scheduler, KeyCall::new(params, columns)?, &mut no_progress)
    }
}

/// A private key is SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root, a seed the first three of these.
impl KeySet for &'static Params {
    fn kind(&self) -> Kind {
        Kind::slh_dsa(self, Op::Keygen, 0)
    }

    fn sizes(&self) -> [usize; 3] {
        [3 * self.n, self.sk_bytes(), self.pk_bytes()]
    }

    fn held(facts: &GroupFacts, _: &Options) -> usize {
        facts.plan().out_bytes() + size_of::<(&[u8], Key<'_>, u32)>()
    }

    /// FIPS 205, Algorithm 18.
    fn make(&self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], memory: &mut Vec<u8>) -> Result<(), Error> {
        let (n, place) = (self.n, &run.place);
        // A thread takes a few milliseconds for a full chunk's: the device would wait.
        place.each_of(keys.iter_mut().collect(), &|keys: &mut KeyColumns<'_>| {
            match keys.seeds {
                // One request for all of them: PK.root comes later.
                None => random(keys.private)?,
                Some(seeds) => {
                    for (to, from) in keys.private.chunks_exact_mut(4 * n).zip(seeds.chunks_exact(3 * n)) {
                        to[..3 * n].copy_from_slice(from);
                    }
                }
            }
            // PK.seed is the first half of the public key.
            keys.private.chunks_exact(4 * n).for_each(|key| declassify(&key[2 * n..3 * n]));
            Ok(())
        })?;
        let private: Vec<&[u8]> = keys.iter().flat_map(|keys| keys.private.chunks_exact(4 * n)).collect();
        let roots = room(memory, private.len() * n);
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], roots: &mut [u8]| {
            let seeds = private[range].iter().map(|key| (&key[..n], &key[2 * n..3 * n]));
            run.grow(seeds, roots).map(|()| Failed::new())
        };
        run.output(0..private.len(), false, &compute, roots)?;
        drop(private);
        let mut left = &*roots;
        let with_roots = keys.iter_mut().map(|keys| {
            let (roots, others) = left.split_at(keys.private.len() / 4);
            left = others;
            (keys, roots)
        });
        place.each_of(with_roots.collect(), &|(keys, roots): (&mut KeyColumns<'_>, &[u8])| {
            let public = keys.public.as_deref_mut().unwrap_or_default().chunks_exact_mut(2 * n);
            for (private, root) in keys.private.chunks_exact_mut(4 * n).zip(roots.chunks_exact(n)) {
                private[3 * n..].copy_from_slice(root);
            }
            public
                .zip(keys.private.chunks_exact(4 * n))
                .for_each(|(public, key)| public.copy_from_slice(&key[2 * n..]));
            Ok(())
        })
    }
}

/// A call of rows with the memory for its results. The memory of rows that were not handed out is wiped on drop.
pub(crate) trait RowsCall: Sized {
    /// Runs calls of one kind as one call of the scheduler.
    fn run(scheduler: &Scheduler, calls: &mut [Self], progress: Progress<'_>) -> Result<(), Error>;
    /// What became of this one, given how all ended.
    fn result(self, all: &Result<(), Error>) -> Result<(), Error>;
}

/// Runs what may panic, and leaves nothing behind that others use.
fn caught<R>(work: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(work))
}

/// Runs a call by itself.
pub(crate) fn run_one<C: RowsCall>(scheduler: &Scheduler, call: C, progress: Progress<'_>) -> Result<(), Error> {
    let mut calls = [call];
    let done = C::run(scheduler, &mut calls, progress);
    let [call] = calls;
    call.result(&done)
}

/// Signs or verifies rows, for either scheme. `out` is the caller's memory for signatures.
pub(crate) fn run_rows<R: Rows>(
    scheduler: &Scheduler,
    rows: R,
    out: &mut [u8],
    statuses: &mut [RowStatus],
    progress: Progress<'_>,
) -> Result<(), Error> {
    run_one(scheduler, ResultCall::new(rows, out, statuses)?, progress)
}

/// A call that signs or verifies.
struct ResultCall<'a, R> {
    rows: R,
    results: Results<'a>,
    /// Why rows were not computed.
    lost: Result<(), Error>,
}

impl<'a, R: Rows> ResultCall<'a, R> {
    fn new(rows: R, out: &'a mut [u8], statuses: &'a mut [RowStatus]) -> Result<ResultCall<'a, R>, Error> {
        // A status of an earlier call must not look like one of this call.
        statuses.fill(RowStatus::NotComputed);
        rows.check(out.len(), statuses.len())?;
        Ok(ResultCall { rows, results: Results::new(out, rows.out_bytes(), statuses), lost: Ok(()) })
    }

    /// The scheduler did not compute these rows.
    fn lose(&mut self, rows: Range<usize>, why: Error) {
        let status = match why.kind() {
            ErrorKind::OutOfMemory => RowStatus::OutOfMemory,
            _ => RowStatus::NotComputed,
        };
        if status == RowStatus::NotComputed {
            self.lost = self.lost.clone().and(Err(why));
        }
        self.results.forget(rows, status);
    }
}

impl<R: Rows> RowsCall for ResultCall<'_, R> {
    fn run(scheduler: &Scheduler, calls: &mut [Self], progress: Progress<'_>) -> Result<(), Error> {
        let Some(first) = calls.first() else { return Ok(()) };
        let (kind, options) = (first.rows.kind(), scheduler.options);
        let rows = calls.iter().map(|call| call.results.statuses.len()).sum();
        let block = scheduler.block_size(kind, rows, |facts| R::held(facts, &options))?;
        let lent = calls.iter_mut().enumerate().map(|(call, ResultCall { rows, results, .. })| {
            let Results { out, statuses, handed_out, .. } = results;
            (RowBlock { rows: *rows, call, options, first: 0, statuses, out }, handed_out)
        });
        let (blocks, mut handed_out): (Vec<_>, Vec<_>) = lent.unzip();
        let (mut all, mut refused) = (0, Vec::new());
        let done = caught(|| {
            run_calls(scheduler, blocks, block, &mut |call, count, done| {
                let of_call = &mut *handed_out[call];
                if let Err(why) = done {
                    refused.push((call, *of_call..*of_call + count, why));
                }
                *of_call += count;
                all += count;
                progress(all)
            })
        });
        // Also after a panic: calls that are done are results.
        refused.into_iter().for_each(|(call, rows, why)| calls[call].lose(rows, why));
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn result(self, all: &Result<(), Error>) -> Result<(), Error> {
        let are_done = self.results.handed_out > 0 && self.results.left().is_empty();
        let all = if are_done { Ok(()) } else { all.clone() };
        all.and(self.lost)
    }
}

/// Gets the number of rows that are done.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// Nobody asks how many rows are done.
pub(crate) fn no_progress(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The caller's memory for results. Results that the scheduler did not hand out are not trusted: they are zeroed on drop, also after a
/// panic.
pub(crate) struct Results<'a> {
    out: &'a mut [u8],
    /// Bytes of a row there.
    size: usize,
    statuses: &'a mut [RowStatus],
    /// Rows whose results were handed out.
    handed_out: usize,
}

impl<'a> Results<'a> {
    /// Memory for results of `size` bytes each.
    pub(crate) fn new(out: &'a mut [u8], size: usize, statuses: &'a mut [RowStatus]) -> Results<'a> {
        Results { out, size, statuses, handed_out: 0 }
    }

    /// The rows that have no results yet.
    pub(crate) fn left(&self) -> Range<usize> {
        self.handed_out..self.statuses.len()
    }

    /// The memory of the next rows' results.
    pub(crate) fn memory(&mut self, rows: usize) -> &mut [u8] {
        &mut self.out[self.handed_out * self.size..][..rows * self.size]
    }

    /// Hands out the results of the next rows, which are in their memory.
    pub(crate) fn hand_out(&mut self, rows: usize, status: RowStatus) {
        self.statuses[self.handed_out..][..rows].fill(status);
        self.handed_out += rows;
    }

    fn forget(&mut self, rows: Range<usize>, status: RowStatus) {
        if let Some(out) = self.out.get_mut(rows.start * self.size..rows.end * self.size) {
            out.fill(0);
        }
        self.statuses[rows].fill(status);
    }
}

impl Drop for Results<'_> {
    fn drop(&mut self) {
        self.forget(self.handed_out..self.statuses.len(), RowStatus::NotComputed);
    }
}

/// Checks the context, which all rows share. A digest of the wrong length concerns its row alone.
fn check_mode(mode: Mode<'_>) -> Result<(), Error> {
    match mode.check(b"") {
        Err(why @ MessageError::Context { .. }) => Err(why.into()),
        _ => Ok(()),
    }
}

/// Checks that a table has a key, and that each row has an index.
pub(crate) fn check_table<K>(keys: &[K], of: &[u32], rows: usize) -> Result<(), Error> {
    if keys.is_empty() {
        return Err(Error::Value { what: "a table without keys; give one at least".into() });
    }
    check_length("the list of key indices", rows, of.len())
}

/// Checks that all keys are of one set.
fn check_sets(mut sets: impl Iterator<Item = &'static Params>) -> Result<(), Error> {
    let Some(first) = sets.next() else { return Ok(()) };
    match sets.find(|set| *set != first) {
        Some(other) => {
            let what = format!("a table with keys of {first} and of {other}; make a call for each set");
            Err(Error::Value { what })
        }
        None => Ok(()),
    }
}

/// The distinct keys of some rows, and which of them each row has. Equal keys in succession count once.
pub(crate) fn in_succession<K: Copy>(
    keys: impl Iterator<Item = K>,
    is_same: impl Fn(K, K) -> bool,
) -> (Vec<K>, Vec<u32>) {
    let mut distinct: Vec<K> = Vec::new();
    let key_of = keys
        .map(|key| {
            if distinct.last().is_none_or(|last| !is_same(*last, key)) {
                distinct.push(key);
            }
            distinct.len() as u32 - 1
        })
        .collect();
    (distinct, key_of)
}

/// The keys that some rows take of a table, given their indices, and which of them each row has.
pub(crate) fn of_table<K>(keys: &[K], of: impl ExactSizeIterator<Item = u32>) -> (Vec<&K>, Vec<u32>) {
    if keys.len() > 2 * of.len() {
        return in_succession(of.map(|key| &keys[key as usize]), |a, b| ptr::eq(a, b));
    }
    let (mut distinct, mut numbers) = (Vec::new(), vec![u32::MAX; keys.len()]);
    let key_of = of.map(|key| {
        let number = &mut numbers[key as usize];
        if *number == u32::MAX {
            *number = distinct.len() as u32;
            distinct.push(&keys[key as usize]);
        }
        *number
    });
    let key_of = key_of.collect();
    (distinct, key_of)
}

/// A row's index into a table of keys.
pub(crate) fn index_in<K>(keys: &[K], of: &[u32], row: usize) -> Result<u32, RowStatus> {
    of.get(row).copied().filter(|key| (*key as usize) < keys.len()).ok_or(RowStatus::NoSuchKey)
}

/// A row's message.
fn message<'a>(messages: Column<'a>, mode: Mode<'_>, row: usize) -> Result<&'a [u8], RowStatus> {
    let message = messages.get(row).ok_or(RowStatus::BadOffsets)?;
    mode.check(message).map_err(|_| RowStatus::DigestLength)?;
    Ok(message)
}

/// The message of each of these rows, whose keys are given.
fn message_of<'r, 'a>(
    rows: &'r [SignRow<'a>],
    keys: &'r [&'a SigningKey],
    key_of: &'r [u32],
) -> impl Fn(usize) -> ToSign<'a> + Send + Sync + use<'r, 'a> {
    move |i| {
        let SignRow { of, message, randomizer, .. } = rows[i];
        ToSign { key: keys[key_of[i] as usize], mode: of.mode, message, randomizer }
    }
}

impl<'a> SignRows<'a> {
    fn first_key(&self) -> &'a SigningKey {
        match self.keys {
            RowSigningKeys::One(key) => key,
            RowSigningKeys::Table { keys, .. } => &keys[0],
        }
    }
}

/// A row to be signed.
#[derive(Clone, Copy)]
pub(crate) struct SignRow<'a> {
    /// The columns that have it.
    of: &'a SignRows<'a>,
    /// Which of a table's keys signs.
    key: u32,
    message: &'a [u8],
    randomizer: Randomizer<'a>,
}

impl<'a> SignRow<'a> {
    fn distinct_keys(rows: &[SignRow<'a>]) -> (Vec<&'a SigningKey>, Vec<u32>) {
        of_calls(rows, |row| row.of, |of, rows| of.keys.distinct(rows.iter().map(|row| row.key)))
    }
}

impl<'a> Rows for &'a SignRows<'a> {
    type Row = SignRow<'a>;
    type Answers<'m> = Output<'m>;

    fn kind(&self) -> Kind {
        let key = self.first_key();
        Kind::slh_dsa(key.params(), Op::Sign, key.cached_layers())
    }

    fn out_bytes(&self) -> usize {
        self.first_key().params().sig_bytes()
    }

    fn check_columns(&self, rows: usize) -> Result<(), Error> {
        check_mode(self.mode)?;
        self.messages.check("messages", rows)?;
        self.keys.check(rows)?;
        let keys = match self.keys {
            RowSigningKeys::One(key) => slice::from_ref(key),
            RowSigningKeys::Table { keys, .. } => keys,
        };
        keys.iter().try_for_each(|key| key.as_ref().check_mode(self.mode))?;
        check_sets(keys.iter().map(|key| key.params()))?;
        let layers = keys[0].cached_layers();
        if let Some(other) = keys.iter().find(|key| key.cached_layers() != layers) {
            let what = format!(
                "a table whose keys have {layers} and {} cached layers; give all keys the same number",
                other.cached_layers()
            );
            return Err(Error::Value { what });
        }
        match self.randomizer {
            Randomizer::Given(bytes) => {
                check_length("opt_rand", rows.saturating_mul(self.first_key().params().n), bytes.len())
            }
            _ => Ok(()),
        }
    }

    fn read(&self, row: usize) -> Result<SignRow<'a>, RowStatus> {
        let n = self.first_key().params().n;
        let key = self.keys.index(row)?;
        let randomizer = match self.randomizer {
            Randomizer::Given(bytes) => Randomizer::Given(&bytes[row * n..][..n]),
            other => other,
        };
        Ok(SignRow { of: self, key, message: message(self.messages, self.mode, row)?, randomizer })
    }

    fn compute<'m>(
        place: &Place<'_>,
        group: Group,
        rows: &[SignRow<'a>],
        memory: &'m mut Vec<u8>,
    ) -> Result<Output<'m>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, fresh: &[u8], out: &mut [u8]| {
            let rows = &rows[range];
            let (keys, key_of) = SignRow::distinct_keys(rows);
            crate::jobs::sign(run, message_of(rows, &keys, &key_of), &keys, &key_of, fresh, out)
        };
        let is_hedged = rows.iter().any(|row| row.randomizer == Randomizer::Hedged);
        Output::new(place, group, (rows.len(), is_hedged), memory, &compute)
    }

    fn compute_held(
        place: &Place<'_>,
        group: Group,
        rows: &[SignRow<'a>],
        out: &mut [&mut [u8]],
        memory: &mut Vec<u8>,
    ) -> Option<Result<Vec<RowStatus>, Error>> {
        let facts = match place.worker.programs.facts(group) {
            Ok(facts) => facts,
            Err(why) => return Some(Err(why)),
        };
        let (keys, key_of) = SignRow::distinct_keys(rows);
        let (run, of) = (Run { place: *place, facts: &facts }, message_of(rows, &keys, &key_of));
        let done = crate::jobs::sign_held(&run, of, &keys, &key_of, out, memory)?;
        Some(done.map(|()| vec![RowStatus::Signed; rows.len()]))
    }

    fn finish(output: &Output<'_>, nth: usize, _: &SignRow<'a>, to: &mut [u8]) -> RowStatus {
        match output.of(nth) {
            Ok(signature) => {
                to.copy_from_slice(signature);
                RowStatus::Signed
            }
            Err(why) => why,
        }
    }

    fn held(facts: &GroupFacts, _: &Options) -> usize {
        Output::held::<SignRow<'_>>(facts)
    }
}

/// A row to be verified.
#[derive(Clone, Copy)]
pub(crate) struct VerifyRow<'a> {
    /// The columns that have it.
    of: &'a VerifyRows<'a>,
    /// Which of a table's keys it is, if there is a table.
    index: u32,
    pk_seed: &'a [u8],
    pk_root: &'a [u8],
    message: &'a [u8],
    signature: &'a [u8],
}

/// PK.seed of a key.
enum PkSeed<'a> {
    Of(&'a VerifyingKey),
    /// What is written to one row's key meanwhile is to change no other row's verdict.
    Copy([u8; MAX_N]),
}

impl<'a> VerifyRow<'a> {
    fn distinct_seeds(rows: &[VerifyRow<'a>]) -> (Vec<PkSeed<'a>>, Vec<u32>) {
        of_calls(
            rows,
            |row| row.of,
            |of, rows| match of.keys {
                RowVerifyingKeys::One(key) => (vec![PkSeed::Of(key)], vec![0; rows.len()]),
                RowVerifyingKeys::Table { keys, .. } => {
                    let (keys, key_of) = of_table(keys, rows.iter().map(|row| row.index));
                    (keys.into_iter().map(PkSeed::Of).collect(), key_of)
                }
                RowVerifyingKeys::Encoded { params, .. } => {
                    let copy = |row: &VerifyRow<'_>| {
                        let mut copy = [0; MAX_N];
                        copy[..params.n].copy_from_slice(row.pk_seed);
                        copy
                    };
                    let (distinct, key_of) = in_succession(rows.iter().map(copy), |a, b| a == b);
                    (distinct.into_iter().map(PkSeed::Copy).collect(), key_of)
                }
            },
        )
    }
}

impl VerifyRows<'_> {
    fn params(&self) -> &'static Params {
        match self.keys {
            RowVerifyingKeys::One(key) => key.params(),
            RowVerifyingKeys::Table { keys, .. } => keys[0].params(),
            RowVerifyingKeys::Encoded { params, .. } => params,
        }
    }
}

impl<'a> Rows for &'a VerifyRows<'a> {
    type Row = VerifyRow<'a>;
    type Answers<'m> = Output<'m>;

    fn kind(&self) -> Kind {
        Kind::slh_dsa(self.params(), Op::Verify, 0)
    }

    fn check_columns(&self, rows: usize) -> Result<(), Error> {
        check_mode(self.mode)?;
        self.messages.check("messages", rows)?;
        self.signatures.check("signatures", rows)?;
        match self.keys {
            RowVerifyingKeys::One(key) => Ok(key.as_ref().check_mode(self.mode)?),
            RowVerifyingKeys::Encoded { keys, .. } => keys.check("public keys", rows),
            RowVerifyingKeys::Table { keys, of } => {
                check_table(keys, of, rows)?;
                keys.iter().try_for_each(|key| key.as_ref().check_mode(self.mode))?;
                check_sets(keys.iter().map(|key| key.params()))
            }
        }
    }

    fn read(&self, row: usize) -> Result<VerifyRow<'a>, RowStatus> {
        let parts = |key: &'a VerifyingKey| (key.as_ref().pk_seed(), key.as_ref().pk_root());
        let (index, (pk_seed, pk_root)) = match self.keys {
            RowVerifyingKeys::One(key) => (0, parts(key)),
            RowVerifyingKeys::Table { keys, of } => {
                let index = index_in(keys, of, row)?;
                (index, parts(&keys[index as usize]))
            }
            RowVerifyingKeys::Encoded { params, keys } => {
                (0, keys.get_exact(row, params.pk_bytes(), RowStatus::KeyLength)?.split_at(params.n))
            }
        };
        let signature = self.signatures.get_exact(row, self.params().sig_bytes(), RowStatus::SignatureLength)?;
        let message = message(self.messages, self.mode, row)?;
        Ok(VerifyRow { of: self, index, pk_seed, pk_root, message, signature })
    }

    fn compute<'m>(
        place: &Place<'_>,
        group: Group,
        rows: &[VerifyRow<'a>],
        memory: &'m mut Vec<u8>,
    ) -> Result<Output<'m>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &[u8], roots: &mut [u8]| {
            let rows = &rows[range];
            let (keys, key_of) = VerifyRow::distinct_seeds(rows);
            let pk_seed = |key| match key {
                &PkSeed::Of(key) => key.as_ref().pk_seed(),
                PkSeed::Copy(pk_seed) => &pk_seed[..run.plan().params.n],
            };
            let pk_seeds: Vec<&[u8]> = keys.iter().map(pk_seed).collect();
            let of = |i: usize| {
                let VerifyRow { of, pk_seed, pk_root, message, signature, .. } = rows[i];
                ToVerify { pk_seed, pk_root, mode: of.mode, message, signature }
            };
            crate::jobs::verify(run, of, &pk_seeds, &key_of, roots)?;
            Ok(Failed::new())
        };
        Output::new(place, group, (rows.len(), false), memory, &compute)
    }

    fn finish(output: &Output<'_>, nth: usize, row: &VerifyRow<'a>, _: &mut [u8]) -> RowStatus {
        match output.of(nth) {
            Ok(root) if root == row.pk_root => RowStatus::Valid,
            Ok(_) => RowStatus::Invalid,
            Err(why) => why,
        }
    }

    fn held(facts: &GroupFacts, _: &Options) -> usize {
        Output::held::<VerifyRow<'_>>(facts)
    }
}
