//! Rows: batches as columns. No object is made for a job, and results go into the caller's memory.

mod block;
mod column;
mod foreign;
mod set;
mod status;

pub(crate) use block::{Progress, Results, no_progress};
pub use column::{Column, Offsets};
pub(crate) use foreign::{ForeignColumn, copies_at_a_time, copy_columns};
pub use foreign::{ForeignMemory, ForeignRows, RowMemory};
pub use hypergrove_engine::scheduler::Memory;
pub(crate) use set::run_calls;
pub use set::{CallColumns, RowCall, RowSet};
pub use status::RowStatus;

use crate::flow::Flow;
use crate::scheme::{
    Failed, KeyColumns, ParameterSet, PublicKey, Scheme, SchemeKey, Signing, Sizes, ToSign, ToVerify, Verifying,
    copied, in_succession,
};
use crate::{Engine, Error, Op, check_length};
use block::{Computed, Copies, Lent, RowBlock, Rows, of_calls};
use foreign::ForeignColumns;
use hypergrove_engine::scheduler::Checks;
use hypergrove_engine::scheme::GroupFacts;
use hypergrove_engine::scheme::Kind;
use std::borrow::Cow;
use std::ops::Range;
use std::{ptr, slice};

/// The private keys of [`Engine::sign_rows`]. All keys of SLH-DSA must be of one set and have the same number of cached layers.
#[derive(Debug)]
pub enum RowSigningKeys<'a, K = crate::SigningKey> {
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
    /// The keys: at least one, once the call was checked.
    fn all(&self) -> &'a [K] {
        match self {
            RowSigningKeys::One(key) => slice::from_ref(key),
            RowSigningKeys::Table { keys, .. } => keys,
        }
    }

    fn indices(&self) -> Option<&'a [u32]> {
        if let RowSigningKeys::Table { of, .. } = self { Some(of) } else { None }
    }
}

/// The public keys of [`Engine::verify_rows`], keys `K` of a scheme `S`. All must be of one set.
#[derive(Debug)]
pub enum RowVerifyingKeys<'a, K = crate::VerifyingKey, P = &'static crate::Params> {
    /// One key for all rows.
    One(&'a K),
    /// Row i is verified with `keys[of[i]]`.
    Table {
        /// The keys, at least one.
        keys: &'a [K],
        /// The index of each row's key.
        of: &'a [u32],
    },
    /// One public key for each row, in bytes. A key that differs from the key of the row before is prepared anew, which may take memory.
    Encoded {
        /// The set of the keys.
        params: P,
        /// The keys.
        keys: Column<'a>,
    },
}

impl<K, P: Copy> Clone for RowVerifyingKeys<'_, K, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P: Copy> Copy for RowVerifyingKeys<'_, K, P> {}

impl<'a, P: ParameterSet> RowVerifyingKeys<'a, <P::Scheme as Scheme>::VerifyingKey, P> {
    /// The keys that are objects, not bytes.
    fn all(&self) -> &'a [<P::Scheme as Scheme>::VerifyingKey] {
        match self {
            RowVerifyingKeys::One(key) => slice::from_ref(key),
            RowVerifyingKeys::Table { keys, .. } => keys,
            RowVerifyingKeys::Encoded { .. } => &[],
        }
    }

    fn set(&self) -> P::Scheme {
        match self {
            RowVerifyingKeys::Encoded { params, .. } => params.scheme(),
            _ => self.all()[0].scheme(),
        }
    }
}

/// Messages to be signed, with a scheme `S`; see [`Engine::sign_rows`]. [`SignRows`] is SLH-DSA's.
#[derive(Debug)]
pub struct MessageRows<'a, S: Scheme> {
    /// The keys.
    pub keys: RowSigningKeys<'a, S::SigningKey>,
    /// How messages are signed.
    pub mode: S::Mode<'a>,
    /// One message for each row.
    pub messages: S::RowMessages<'a>,
    /// Where the randomness comes from. [`Randomizer::Given`](crate::Randomizer::Given) must have n bytes for each row.
    pub randomizer: S::Randomizer<'a>,
}

/// Signatures to be verified, with a scheme `S`; see [`Engine::verify_rows`]. [`VerifyRows`] is SLH-DSA's.
#[derive(Debug)]
pub struct SignatureRows<'a, S: Scheme> {
    /// The keys.
    pub keys: RowVerifyingKeys<'a, S::VerifyingKey, S::Set>,
    /// How messages were signed.
    pub mode: S::Mode<'a>,
    /// One message for each row.
    pub messages: S::RowMessages<'a>,
    /// One signature for each row.
    pub signatures: Column<'a>,
}

/// SLH-DSA's [`MessageRows`].
pub type SignRows<'a> = MessageRows<'a, crate::SlhDsa>;
/// SLH-DSA's [`SignatureRows`].
pub type VerifyRows<'a> = SignatureRows<'a, crate::SlhDsa>;

impl Engine {
    /// Allocates memory for rows that devices can read and write by themselves, so that no thread copies the signatures, messages and keys in
    /// it. Without such a device the memory is ordinary, and works as well: [`Memory::devices`] says which it is. Rows need not lie in it.
    /// Allocating such memory takes long, and dropping it takes the time to wipe it: use it for many calls.
    ///
    /// A call that writes results into such memory returns when no device writes there any more. If a GPU hangs just then, the call hangs too,
    /// whatever [`device_timeout`](crate::EngineBuilder::device_timeout) says. If a GPU hangs while it may still read such memory, the memory
    /// stays allocated until the process ends.
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
    /// Nothing may change the columns during the call, not even another process that shares the memory: the checks of the results read the
    /// columns again, and blame the device for a difference.
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
    pub fn sign_rows<S: Scheme>(
        &self,
        rows: &MessageRows<'_, S>,
        signatures: &mut [u8],
        statuses: &mut [RowStatus],
    ) -> Result<(), Error> {
        self.run_rows(CallColumns::Sign { rows: *rows, signatures, statuses }, None, &mut no_progress)
    }

    /// Signs as [`Engine::sign_rows`] does. `progress` gets the number of completed rows, on this thread, whenever it grows. It may stop the
    /// call by [`ControlFlow::Break`](std::ops::ControlFlow::Break): the other rows are then [`RowStatus::NotComputed`].
    pub fn sign_rows_with_progress<S: Scheme, F: Flow>(
        &self,
        rows: &MessageRows<'_, S>,
        signatures: &mut [u8],
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let call = CallColumns::Sign { rows: *rows, signatures, statuses };
        self.run_rows(call, None, &mut |done| progress(done).flow())
    }

    /// Signs as [`Engine::sign_rows_with_progress`] does, into memory that only the call uses or into memory that others may use.
    pub fn sign_rows_into<S: Scheme, F: Flow>(
        &self,
        rows: &MessageRows<'_, S>,
        signatures: RowMemory<'_>,
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let call = CallColumns::Sign { rows: *rows, signatures: &mut [], statuses };
        self.run_rows(call, Some(signatures), &mut |done| progress(done).flow())
    }

    /// Verifies one signature for each row. The verdict on row i goes to `statuses[i]`. A row that cannot be verified, because its
    /// signature has the wrong length for example, has a status that says why. An error concerns the whole call, as in
    /// [`Engine::sign_rows`].
    ///
    /// If another process that shares the memory changes a signature, message or encoded key during the call, the verdict on that row
    /// may be wrong. An engine with [`redundant`](crate::EngineBuilder::redundant) then finds two verdicts that differ, and blames the device. If many
    /// rows have the same key, use [`RowVerifyingKeys::Table`], or sort the rows by key: neighbours share a decoded key.
    pub fn verify_rows<S: Scheme>(&self, rows: &SignatureRows<'_, S>, statuses: &mut [RowStatus]) -> Result<(), Error> {
        self.verify_rows_with_progress(rows, statuses, |_| ())
    }

    /// Verifies as [`Engine::verify_rows`] does, with `progress` as in [`Engine::sign_rows_with_progress`].
    pub fn verify_rows_with_progress<S: Scheme, F: Flow>(
        &self,
        rows: &SignatureRows<'_, S>,
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let call = CallColumns::Verify { rows: *rows, statuses };
        self.run_rows(call, None, &mut |done| progress(done).flow())
    }

    /// Makes as many keys as the columns have room for, from the operating system's randomness. Private keys of SLH-DSA are SK.seed ‖ SK.prf ‖
    /// PK.seed ‖ PK.root, 4n bytes, and public keys are the last half of these; the module of another scheme says what its keys are. The column of
    /// public keys may be empty, since private keys contain them. After an error, both columns are zero. The caller has to wipe `private` in the end.
    ///
    /// For SLH-DSA, FIPS 205, Algorithm 21.
    ///
    /// ```
    /// use hypergrove::{Engine, SLH_DSA_SHA2_128F as P, SigningKey};
    ///
    /// let (mut private, mut public) = (vec![0; 2 * P.sk_bytes()], vec![0; 2 * P.pk_bytes()]);
    /// Engine::new()?.keygen_rows(&P, &mut private, Some(&mut public))?;
    /// let first = SigningKey::from_bytes(&P, &private[..P.sk_bytes()])?;
    /// assert_eq!(first.verifying_key().to_bytes(), &public[..P.pk_bytes()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keygen_rows(
        &self,
        set: impl ParameterSet,
        private: &mut [u8],
        public: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        self.keygen_rows_with_progress(set, private, public, |_| ())
    }

    /// Makes keys as [`Engine::keygen_rows`] does. `progress` gets the number of completed rows, on this thread, whenever it grows. If it stops
    /// the call by [`ControlFlow::Break`](std::ops::ControlFlow::Break), both columns are zero.
    pub fn keygen_rows_with_progress<P: ParameterSet, F: Flow>(
        &self,
        set: P,
        private: &mut [u8],
        public: Option<&mut [u8]>,
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let call = CallColumns::Keygen { params: set.scheme().set(), seeds: None, private, public };
        self.run_rows::<P::Scheme>(call, None, &mut |done| progress(done).flow())
    }

    /// Makes keys as [`Engine::keygen_rows`] does, from seeds. For each row, SLH-DSA takes SK.seed ‖ SK.prf ‖ PK.seed, 3n bytes; the module of
    /// another scheme says what its seeds are.
    ///
    /// FIPS 205, Algorithm 18.
    pub fn keygen_rows_from_seeds<P: ParameterSet>(
        &self,
        set: P,
        seeds: &[u8],
        private: &mut [u8],
        public: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let call = CallColumns::Keygen { params: set.scheme().set(), seeds: Some(seeds), private, public };
        self.run_rows::<P::Scheme>(call, None, &mut no_progress)
    }

    /// Runs one call of rows. Signatures go to the memory `into`, if there is one, in place of the call's.
    pub(crate) fn run_rows<S: Scheme>(
        &self,
        call: CallColumns<'_, '_, S>,
        into: Option<RowMemory<'_>>,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        (S::calls().rows)(&self.0.scheduler, &mut [Ok(call)], into, &|| true, Some(progress)).remove(0)
    }
}

copied! {
    ['a] MessageRows<'a, S>;
    ['a] SignatureRows<'a, S>;
    ['r 'a 'm] SignRow<'r, 'a, 'm, S>;
    ['r 'a 'm] VerifyRow<'r, 'a, 'm, S>;
}

/// Checks that a table has a key, and that each row has an index.
fn check_table<K>(keys: &[K], of: Option<&[u32]>, rows: usize) -> Result<(), Error> {
    if keys.is_empty() {
        return Err(Error::Value { what: "a table without keys; give one at least".into() });
    }
    of.map_or(Ok(()), |of| check_length("the list of key indices", rows, of.len()))
}

/// Checks the mode of a call, and that one program serves all its keys.
fn check_keys<S: Scheme, K: SchemeKey<S>>(keys: &[K], mode: S::Mode<'_>) -> Result<(), Error> {
    S::check_mode(mode)?;
    for key in keys {
        key.check_mode(mode)?;
        let [(set, layers), (of_first, layers_of_first)] =
            [key, &keys[0]].map(|key| (key.scheme(), key.cached_layers()));
        let what = if set != of_first {
            format!("a table with keys of {} and of {}; make a call for each set", of_first.name(), set.name())
        } else if layers != layers_of_first {
            format!(
                "a table whose keys have {layers_of_first} and {layers} cached layers; give all keys the same number"
            )
        } else {
            continue;
        };
        return Err(Error::Value { what });
    }
    Ok(())
}

/// A row's index into a table of keys.
fn index_in<K>(keys: &[K], of: &[u32], row: usize) -> Result<u32, RowStatus> {
    of.get(row).copied().filter(|key| (*key as usize) < keys.len()).ok_or(RowStatus::NoSuchKey)
}

/// The keys of a table that some rows use, given the rows' indices into the table, and the index of each row's key among these keys.
fn of_table<K>(keys: &[K], of: impl ExactSizeIterator<Item = u32>) -> (Vec<&K>, Vec<u32>) {
    if let [only] = keys {
        return (vec![only], vec![0; of.len()]);
    }
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

/// The statuses of rows: signed, or with a damaged key if the row is in `failed`.
fn signed(rows: usize, failed: &Failed) -> Vec<RowStatus> {
    let mut statuses = vec![RowStatus::Signed; rows];
    failed.keys().for_each(|row| statuses[*row] = RowStatus::KeyDamaged);
    statuses
}

/// The messages of rows, if their column is foreign.
fn messages<'a, S: Scheme>(messages: &S::RowMessages<'a>) -> Option<ForeignColumn<'a>> {
    S::bytes_of_rows(messages).and_then(|column| ForeignColumn::of(&column, None))
}

/// A row to be signed.
pub(crate) struct SignRow<'r, 'a, 'm, S: Scheme> {
    /// The columns of the row.
    of: &'r MessageRows<'a, S>,
    /// The index of the key in its table; 0 for a single key.
    key: u32,
    message: S::Message<'m>,
    randomizer: S::Randomizer<'m>,
}

impl<'r, 'a, S: Scheme> Rows for &'r MessageRows<'a, S> {
    type Row<'m>
        = SignRow<'r, 'a, 'm, S>
    where
        Self: 'm;

    fn kind(&self) -> Kind {
        let key = &self.keys.all()[0];
        key.scheme().kind(Op::Sign, key.cached_layers())
    }

    fn widths(&self) -> [usize; 2] {
        [self.keys.all()[0].scheme().sizes().signature, 0]
    }

    fn check(&self, rows: usize) -> Result<(), Error> {
        let keys = self.keys.all();
        S::check_messages(&self.messages, rows)?;
        check_table(keys, self.keys.indices(), rows)?;
        check_keys(keys, self.mode)?;
        keys[0].scheme().check_randomizer(self.randomizer, rows)
    }

    fn inputs(&self) -> usize {
        S::size_of_rows(&self.messages, self.randomizer) + self.keys.indices().map_or(0, size_of_val)
    }

    fn foreign<'m>(self) -> ForeignColumns<'m>
    where
        Self: 'm,
    {
        [None, messages::<S>(&self.messages), None]
    }

    fn held(&self, facts: &GroupFacts, checks: Checks) -> usize {
        size_of::<(SignRow<'_, '_, '_, S>, RowStatus)>() + S::held(Op::Sign, facts, checks)
    }

    fn reader<'m>(self) -> impl Fn(usize, Copies<'m>) -> Result<Self::Row<'m>, RowStatus> + Sync
    where
        Self: 'm,
    {
        let (keys, indices) = (self.keys.all(), self.keys.indices());
        let set = keys[0].scheme();
        move |row, [_, copied, _]| {
            let key = indices.map_or(Ok(0), |of| index_in(keys, of, row))?;
            let (message, randomizer) = set.row(&self.messages, self.mode, self.randomizer, row, copied)?;
            Ok(SignRow { of: self, key, message, randomizer })
        }
    }

    fn compute<'l>(lent: &mut Lent<'l, Self>, memory: &mut Vec<u8>) -> Result<Computed, Error>
    where
        Self: 'l,
    {
        let (run, (rows, refused)) = (lent.run, lent.read());
        if rows.is_empty() {
            return Ok(Computed { refused, computed: Vec::new() });
        }
        let of = |i: usize| {
            let SignRow { of, key, message, randomizer } = rows[i];
            ToSign { key: &of.keys.all()[key as usize], mode: S::shorten(of.mode), message, randomizer }
        };
        let keys = |range: Range<usize>| {
            of_calls(&rows[range], |row| row.of, |of, rows| of_table(of.keys.all(), rows.iter().map(|row| row.key)))
        };
        let fresh = S::draw(&run.place, rows.len(), &of)?;
        let work = Signing { jobs: rows.len(), of: &of, keys: &keys, fresh: &fresh };
        let mut out = lent.parts(&refused);
        let mut parts: Vec<&mut [u8]> = out.iter_mut().map(|part| &mut *part.columns[0]).collect();
        let failed = work.sign(run, of(0).key.scheme(), false, &mut parts, memory)?;
        Ok(Computed { refused, computed: signed(rows.len(), &failed) })
    }
}

/// A row to be verified.
pub(crate) struct VerifyRow<'r, 'a, 'm, S: Scheme> {
    /// The columns of the row.
    of: &'r SignatureRows<'a, S>,
    /// The index of the key in its table; 0 if there is no table.
    index: u32,
    key: PublicKey<'m, S>,
    message: S::Message<'m>,
    signature: &'m [u8],
}

impl<'a: 'm, 'm, S: Scheme> VerifyRow<'_, 'a, 'm, S> {
    /// The keys of rows of one call, and the index of each row's key. Of encoded keys only neighbours that are equal count as one, so a key may come again.
    fn keys(of: &SignatureRows<'a, S>, rows: &[Self]) -> (Vec<Cow<'m, S::VerifyingKey>>, Vec<u32>) {
        let RowVerifyingKeys::Encoded { params, .. } = of.keys else {
            let (keys, key_of) = of_table(of.keys.all(), rows.iter().map(|row| row.index));
            return (keys.into_iter().map(Cow::Borrowed).collect(), key_of);
        };
        let bytes = rows.iter().map(|row| if let PublicKey::Bytes(bytes) = row.key { bytes } else { &[] });
        // The keys are copied, so that a write to one row's key during the call changes no other row's verdict.
        let (mut last, mut copies) = (Vec::new(), Vec::new());
        let number = |bytes: &[u8]| {
            if copies.is_empty() || last != bytes {
                last.clear();
                last.extend_from_slice(bytes);
                copies.push(Cow::Owned(S::VerifyingKey::of_bytes(params.scheme(), &last)));
            }
            copies.len() as u32 - 1
        };
        let key_of = bytes.map(number).collect();
        (copies, key_of)
    }
}

impl<'r, 'a, S: Scheme> Rows for &'r SignatureRows<'a, S> {
    type Row<'m>
        = VerifyRow<'r, 'a, 'm, S>
    where
        Self: 'm;

    fn kind(&self) -> Kind {
        self.keys.set().kind(Op::Verify, 0)
    }

    fn widths(&self) -> [usize; 2] {
        [0, 0]
    }

    fn check(&self, rows: usize) -> Result<(), Error> {
        S::check_messages(&self.messages, rows)?;
        self.signatures.check("signatures", rows)?;
        match self.keys {
            RowVerifyingKeys::One(_) => {}
            RowVerifyingKeys::Table { keys, of } => check_table(keys, Some(of), rows)?,
            RowVerifyingKeys::Encoded { keys, .. } => keys.check("public keys", rows)?,
        }
        check_keys(self.keys.all(), self.mode)
    }

    fn inputs(&self) -> usize {
        let keys = match self.keys {
            RowVerifyingKeys::One(_) => 0,
            RowVerifyingKeys::Table { of, .. } => size_of_val(of),
            RowVerifyingKeys::Encoded { keys, .. } => keys.size(),
        };
        S::size_of_rows(&self.messages, S::Randomizer::default()) + self.signatures.size() + keys
    }

    fn foreign<'m>(self) -> ForeignColumns<'m>
    where
        Self: 'm,
    {
        let Sizes { public, signature, .. } = self.keys.set().sizes();
        let keys = if let RowVerifyingKeys::Encoded { keys, .. } = &self.keys { Some(keys) } else { None };
        let keys = keys.and_then(|keys| ForeignColumn::of(keys, Some(public)));
        [ForeignColumn::of(&self.signatures, Some(signature)), messages::<S>(&self.messages), keys]
    }

    fn held(&self, facts: &GroupFacts, checks: Checks) -> usize {
        size_of::<(VerifyRow<'_, '_, '_, S>, RowStatus)>() + S::held(Op::Verify, facts, checks)
    }

    fn reader<'m>(self) -> impl Fn(usize, Copies<'m>) -> Result<Self::Row<'m>, RowStatus> + Sync
    where
        Self: 'm,
    {
        let set = self.keys.set();
        let Sizes { public, signature, .. } = set.sizes();
        move |row, [of_signature, of_message, of_key]| {
            let (index, key) = match self.keys {
                RowVerifyingKeys::One(key) => (0, PublicKey::Key(key)),
                RowVerifyingKeys::Table { keys, of } => {
                    let index = index_in(keys, of, row)?;
                    (index, PublicKey::Key(&keys[index as usize]))
                }
                RowVerifyingKeys::Encoded { keys, .. } => {
                    (0, PublicKey::Bytes(keys.get_exact(row, of_key, public, RowStatus::KeyLength)?))
                }
            };
            let signature = self.signatures.get_exact(row, of_signature, signature, RowStatus::SignatureLength)?;
            let (message, _) = set.row(&self.messages, self.mode, S::Randomizer::default(), row, of_message)?;
            Ok(VerifyRow { of: self, index, key, message, signature })
        }
    }

    fn compute<'l>(lent: &mut Lent<'l, Self>, memory: &mut Vec<u8>) -> Result<Computed, Error>
    where
        Self: 'l,
    {
        let (run, (rows, refused)) = (lent.run, lent.read());
        if rows.is_empty() {
            return Ok(Computed { refused, computed: Vec::new() });
        }
        let of = |i: usize| {
            let VerifyRow { of, key, message, signature, .. } = rows[i];
            ToVerify { key, mode: S::shorten(of.mode), message, signature }
        };
        let keys = |range: Range<usize>| of_calls(&rows[range], |row| row.of, |of, rows| VerifyRow::keys(of, rows));
        let verdicts = S::verify(run, &Verifying { jobs: rows.len(), of: &of, keys: &keys }, memory)?;
        let computed = verdicts.iter().map(|valid| if *valid { RowStatus::Valid } else { RowStatus::Invalid });
        Ok(Computed { refused, computed: computed.collect() })
    }
}

/// Keys to be made, and their seeds, if they are given.
#[derive(Clone, Copy)]
pub(crate) struct KeyRows<'a, S> {
    set: S,
    seeds: Option<&'a [u8]>,
}

impl<S: Scheme> Rows for KeyRows<'_, S> {
    const ARE_KEYS: bool = true;
    /// Keys are made by the block: a row has nothing to read.
    type Row<'m>
        = ()
    where
        Self: 'm;

    fn kind(&self) -> Kind {
        self.set.kind(Op::Keygen, 0)
    }

    fn widths(&self) -> [usize; 2] {
        let Sizes { private, public, .. } = self.set.sizes();
        [private, public]
    }

    fn check(&self, rows: usize) -> Result<(), Error> {
        let wanted = rows * self.set.sizes().seeds;
        self.seeds.map_or(Ok(()), |seeds| check_length("the seeds", wanted, seeds.len()))
    }

    fn inputs(&self) -> usize {
        self.seeds.map_or(0, <[u8]>::len)
    }

    fn held(&self, facts: &GroupFacts, checks: Checks) -> usize {
        S::held(Op::Keygen, facts, checks)
    }

    fn reader<'m>(self) -> impl Fn(usize, Copies<'m>) -> Result<(), RowStatus> + Sync
    where
        Self: 'm,
    {
        |_, _| Ok(())
    }

    fn compute<'l>(lent: &mut Lent<'l, Self>, memory: &mut Vec<u8>) -> Result<Computed, Error>
    where
        Self: 'l,
    {
        let set = lent.blocks[0].columns.set;
        let columns = lent.blocks.iter_mut().map(|RowBlock { columns, rows, out, .. }| {
            let size = set.sizes().seeds;
            let seeds = columns.seeds.map(|seeds| &seeds[rows.start * size..rows.end * size]);
            let [private, public] = &mut out.columns;
            KeyColumns { seeds, private, public }
        });
        set.keygen(lent.run, &mut columns.collect::<Vec<_>>(), memory)?;
        // The caller gets no statuses of keys.
        Ok(Computed { refused: Vec::new(), computed: Vec::new() })
    }
}
