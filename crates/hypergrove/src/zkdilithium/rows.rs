//! Rows of zkDilithium: batches as columns.

use super::blocks;
use super::{Engine, Message, SigningKey, VerifyingKey};
use crate::Error;
use crate::flow::Flow;
use crate::jobs::check_length;
use crate::rows::{
    Column, KeyCall, KeyColumns, KeySet, RowSigningKeys, RowStatus, Rows, check_table, index_in, no_progress, of_calls,
    of_table, run_one, run_rows,
};
use crate::run::{Run, room};
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheduler::{Memory, Options, Place};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{ZkSign, ZkVerify};
use hypergrove_zkdilithium::params::{MUSIZE, PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Fe, Op, SignatureBytes, SigningKeyBytes};
use std::borrow::Cow;

/// One message for each row.
#[derive(Clone, Copy, Debug)]
pub enum RowMessages<'a> {
    /// Any number of bytes.
    Bytes(Column<'a>),
    /// See [`Message::Block`].
    Blocks(&'a [[Fe; MUSIZE]]),
    /// See [`Message::Mu`].
    Mus(&'a [[Fe; MUSIZE]]),
}

impl<'a> From<Column<'a>> for RowMessages<'a> {
    fn from(bytes: Column<'a>) -> RowMessages<'a> {
        RowMessages::Bytes(bytes)
    }
}

impl<'a> RowMessages<'a> {
    fn check(&self, rows: usize) -> Result<(), Error> {
        match self {
            RowMessages::Bytes(column) => column.check("messages", rows),
            RowMessages::Blocks(all) | RowMessages::Mus(all) => check_length("the list of messages", rows, all.len()),
        }
    }

    /// Bytes of memory that the messages are in.
    pub(crate) fn size(&self) -> usize {
        match self {
            RowMessages::Bytes(column) => column.size(),
            RowMessages::Blocks(all) | RowMessages::Mus(all) => size_of_val(*all),
        }
    }

    fn get(&self, row: usize) -> Result<Message<'a>, RowStatus> {
        let message = match self {
            RowMessages::Bytes(column) => column.get(row).map(Message::Bytes),
            RowMessages::Blocks(all) => all.get(row).map(Message::Block),
            RowMessages::Mus(all) => all.get(row).map(Message::Mu),
        };
        message.ok_or(RowStatus::BadOffsets)
    }
}

/// The public keys of [`Engine::verify_rows`].
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
    /// One public key for each row, ρ ‖ t. If the key differs from that of the row before, the engine prepares it anew, which takes
    /// memory.
    Encoded(Column<'a>),
}

/// Messages to be signed; see [`Engine::sign_rows`].
#[derive(Clone, Copy, Debug)]
pub struct SignRows<'a> {
    /// The keys.
    pub keys: RowSigningKeys<'a, SigningKey>,
    /// One message for each row.
    pub messages: RowMessages<'a>,
}

/// Signatures to be verified; see [`Engine::verify_rows`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyRows<'a> {
    /// The keys.
    pub keys: RowVerifyingKeys<'a>,
    /// One message for each row.
    pub messages: RowMessages<'a>,
    /// One signature for each row.
    pub signatures: Column<'a>,
}

impl Engine {
    /// Memory for rows that devices copy from and to by themselves: see [`Engine::memory`](crate::Engine::memory) of SLH-DSA.
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        self.scheduler().memory(bytes)
    }

    /// Signs one message for each row. The signature of row i goes to `signatures[i * SIG_BYTES..]`, its status to `statuses[i]`. All
    /// else is as in [`Engine::sign_rows`](crate::Engine::sign_rows) of SLH-DSA.
    ///
    /// ```
    /// use hypergrove::rows::{Column, RowSigningKeys, RowStatus};
    /// use hypergrove::zkdilithium::params::SIG_BYTES;
    /// use hypergrove::zkdilithium::{Engine, SignRows};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate()?;
    /// // Two messages of eight bytes.
    /// let rows = SignRows { keys: RowSigningKeys::One(&key), messages: Column::packed(b"message1message2", 8).into() };
    /// let mut signatures = vec![0; 2 * SIG_BYTES];
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

    /// As the call without progress; `progress` is as in [`Engine::sign_rows_with_progress`](crate::Engine::sign_rows_with_progress) of
    /// SLH-DSA.
    pub fn sign_rows_with_progress<F: Flow>(
        &self,
        rows: &SignRows<'_>,
        signatures: &mut [u8],
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        run_rows(self.scheduler(), rows, signatures, statuses, &mut |done| progress(done).flow())
    }

    /// Verifies one signature for each row. The verdict on row i goes to `statuses[i]`: see
    /// [`Engine::verify_rows`](crate::Engine::verify_rows) of SLH-DSA. A signature of another length has the status
    /// [`RowStatus::SignatureLength`].
    ///
    /// ```
    /// use hypergrove::rows::{Column, RowStatus};
    /// use hypergrove::zkdilithium::params::SIG_BYTES;
    /// use hypergrove::zkdilithium::{Engine, RowVerifyingKeys, VerifyRows};
    ///
    /// let engine = Engine::new()?;
    /// let key = engine.generate()?;
    /// let mut signatures = engine.sign(&key, b"message1")?.into_bytes();
    /// signatures.extend(vec![0; SIG_BYTES]);
    /// let public = key.verifying_key();
    /// let rows = VerifyRows {
    ///     keys: RowVerifyingKeys::One(&public),
    ///     messages: Column::packed(b"message1message2", 8).into(),
    ///     signatures: Column::packed(&signatures, SIG_BYTES),
    /// };
    /// let mut statuses = [RowStatus::default(); 2];
    /// engine.verify_rows(&rows, &mut statuses)?;
    /// assert_eq!(statuses, [RowStatus::Valid, RowStatus::Invalid]);
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn verify_rows(&self, rows: &VerifyRows<'_>, statuses: &mut [RowStatus]) -> Result<(), Error> {
        self.verify_rows_with_progress(rows, statuses, |_| ())
    }

    /// As the call without progress; `progress` is as in [`Engine::sign_rows_with_progress`](crate::Engine::sign_rows_with_progress) of
    /// SLH-DSA.
    pub fn verify_rows_with_progress<F: Flow>(
        &self,
        rows: &VerifyRows<'_>,
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        run_rows(self.scheduler(), rows, &mut [], statuses, &mut |done| progress(done).flow())
    }

    /// New keys from the operating system's randomness, as many as the columns have room for: private keys
    /// (ρ ‖ key ‖ tr ‖ s₁ ‖ s₂ ‖ t, 3,936 bytes each) and, if there is a column for them, public keys (ρ ‖ t, 3,104 bytes each). Private
    /// keys contain ρ and t: without a column of public keys, less memory is written. After an error both columns are zero. The caller
    /// wipes `private` in the end.
    ///
    /// ```
    /// use hypergrove::zkdilithium::params::{PK_BYTES, SK_BYTES};
    /// use hypergrove::zkdilithium::{Engine, SigningKey};
    ///
    /// let (mut private, mut public) = (vec![0; 2 * SK_BYTES], vec![0; 2 * PK_BYTES]);
    /// Engine::new()?.keygen_rows(&mut private, Some(&mut public))?;
    /// let first = SigningKey::from_bytes(&private[..SK_BYTES])?;
    /// assert_eq!(first.verifying_key().as_bytes(), &public[..PK_BYTES]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keygen_rows(&self, private: &mut [u8], public: Option<&mut [u8]>) -> Result<(), Error> {
        self.keygen_rows_with_progress(private, public, |_| ())
    }

    /// As [`Engine::keygen_rows`]; `progress` is as in [`Engine::keygen_rows_with_progress`](crate::Engine::keygen_rows_with_progress)
    /// of SLH-DSA.
    pub fn keygen_rows_with_progress<F: Flow>(
        &self,
        private: &mut [u8],
        public: Option<&mut [u8]>,
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        let columns = KeyColumns { seeds: None, private, public };
        run_one(self.scheduler(), KeyCall::new(Keys, columns)?, &mut |done| progress(done).flow())
    }

    /// As [`Engine::keygen_rows`], from seeds of 32 bytes for each row.
    pub fn keygen_rows_from_seeds(
        &self,
        seeds: &[[u8; SEED_BYTES]],
        private: &mut [u8],
        public: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let columns = KeyColumns { seeds: Some(seeds.as_flattened()), private, public };
        run_one(self.scheduler(), KeyCall::new(Keys, columns)?, &mut no_progress)
    }
}

/// Key pairs, as columns have them.
#[derive(Clone, Copy)]
pub(crate) struct Keys;

impl KeySet for Keys {
    fn kind(&self) -> Kind {
        Kind::zkdilithium(Op::Keygen)
    }

    fn sizes(&self) -> [usize; 3] {
        [SEED_BYTES, SK_BYTES, PK_BYTES]
    }

    /// The seed, and what a redundant engine compares with.
    fn held(_: &GroupFacts, options: &Options) -> usize {
        let again = if options.redundant { SK_BYTES } else { 0 };
        SEED_BYTES + size_of::<(&mut SigningKeyBytes, [u8; SEED_BYTES])>() + again
    }

    fn make(&self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], _: &mut Vec<u8>) -> Result<(), Error> {
        blocks::keygen_into(&run.place, keys)
    }
}

/// A row to be signed.
#[derive(Clone, Copy)]
pub(crate) struct SignRow<'a> {
    /// The columns that have it.
    of: &'a SignRows<'a>,
    /// Which of a table's keys signs.
    key: u32,
    message: Message<'a>,
}

impl<'a> SignRow<'a> {
    fn distinct_keys(rows: &[SignRow<'a>]) -> (Vec<&'a SigningKey>, Vec<u32>) {
        of_calls(rows, |row| row.of, |of, rows| of.keys.distinct(rows.iter().map(|row| row.key)))
    }
}

impl<'a> Rows for &'a SignRows<'a> {
    type Row = SignRow<'a>;
    type Answers<'m> = Signed<'m>;

    fn kind(&self) -> Kind {
        Kind::zkdilithium(Op::Sign)
    }

    fn out_bytes(&self) -> usize {
        SIG_BYTES
    }

    fn check_columns(&self, rows: usize) -> Result<(), Error> {
        self.messages.check(rows)?;
        self.keys.check(rows)
    }

    fn read(&self, row: usize) -> Result<SignRow<'a>, RowStatus> {
        Ok(SignRow { of: self, key: self.keys.index(row)?, message: self.messages.get(row)? })
    }

    fn compute<'m>(
        place: &Place<'_>,
        _: Group,
        rows: &[SignRow<'a>],
        memory: &'m mut Vec<u8>,
    ) -> Result<Signed<'m>, Error> {
        let (keys, of) = SignRow::distinct_keys(rows);
        let signatures = room(memory, rows.len() * SIG_BYTES).as_chunks_mut().0;
        let keys = blocks::sign(place, &keys, &of, |i| rows[i].message, signatures.iter_mut().collect())?;
        Ok(Signed { signatures, keys, of })
    }

    const TAKES_GAPS: bool = true;

    /// Without checks of signatures, nothing is gained by a buffer. Keys are checked before they sign.
    fn compute_held(
        place: &Place<'_>,
        _: Group,
        rows: &[SignRow<'a>],
        out: &mut [&mut [u8]],
        _: &mut Vec<u8>,
    ) -> Option<Result<Vec<RowStatus>, Error>> {
        if checks_signatures(&place.scheduler.options) {
            return None;
        }
        let (keys, of) = SignRow::distinct_keys(rows);
        let places: Vec<_> = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
        assert_eq!(places.len(), rows.len(), "each row has its place");
        let keys = blocks::sign(place, &keys, &of, |i| rows[i].message, places);
        let status = |keys: &[Result<(), Error>], of: u32| match keys[of as usize] {
            Ok(()) => RowStatus::Signed,
            Err(_) => RowStatus::KeyDamaged,
        };
        Some(keys.map(|keys| of.iter().map(|of| status(&keys, *of)).collect()))
    }

    fn finish(signed: &Signed<'_>, nth: usize, _: &SignRow<'a>, to: &mut [u8]) -> RowStatus {
        if signed.keys[signed.of[nth] as usize].is_err() {
            return RowStatus::KeyDamaged;
        }
        to.copy_from_slice(&signed.signatures[nth]);
        RowStatus::Signed
    }

    fn held(_: &GroupFacts, options: &Options) -> usize {
        let signature = if checks_signatures(options) { SIG_BYTES } else { 0 };
        signature + size_of::<(SignRow<'_>, RowStatus, u32, ZkSign<'_>, (&SigningKey, u32, Message<'_>), [&[u8]; 2])>()
    }
}

/// Whether signatures are checked before the caller gets them: until then, they are in a buffer of their chunk.
fn checks_signatures(options: &Options) -> bool {
    options.redundant || options.verify_signatures
}

/// Rows that are signed, but for those of damaged keys.
pub(crate) struct Signed<'m> {
    signatures: &'m [SignatureBytes],
    /// Whether each key is sound.
    keys: Vec<Result<(), Error>>,
    /// Which of them each row has.
    of: Vec<u32>,
}

/// A row to be verified.
#[derive(Clone, Copy)]
pub(crate) struct VerifyRow<'a> {
    /// The columns that have it.
    of: &'a VerifyRows<'a>,
    /// Which of a table's keys it is, if there is a table.
    index: u32,
    /// The row's own key, if there is a column of keys.
    encoded: &'a [u8],
    message: Message<'a>,
    signature: &'a [u8],
}

impl<'a> Rows for &'a VerifyRows<'a> {
    type Row = VerifyRow<'a>;
    type Answers<'m> = Vec<bool>;

    fn kind(&self) -> Kind {
        Kind::zkdilithium(Op::Verify)
    }

    fn check_columns(&self, rows: usize) -> Result<(), Error> {
        self.messages.check(rows)?;
        self.signatures.check("signatures", rows)?;
        match self.keys {
            RowVerifyingKeys::One(_) => Ok(()),
            RowVerifyingKeys::Table { keys, of } => check_table(keys, of, rows),
            RowVerifyingKeys::Encoded(keys) => keys.check("public keys", rows),
        }
    }

    fn read(&self, row: usize) -> Result<VerifyRow<'a>, RowStatus> {
        let (index, encoded) = match self.keys {
            RowVerifyingKeys::One(_) => (0, &[][..]),
            RowVerifyingKeys::Table { keys, of } => (index_in(keys, of, row)?, &[][..]),
            RowVerifyingKeys::Encoded(keys) => (0, keys.get_exact(row, PK_BYTES, RowStatus::KeyLength)?),
        };
        let signature = self.signatures.get_exact(row, SIG_BYTES, RowStatus::SignatureLength)?;
        Ok(VerifyRow { of: self, index, encoded, message: self.messages.get(row)?, signature })
    }

    fn compute(place: &Place<'_>, _: Group, rows: &[VerifyRow<'a>], _: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let (keys, of) = of_calls(
            rows,
            |row| row.of,
            |of, rows| match of.keys {
                RowVerifyingKeys::One(key) => (vec![Cow::Borrowed(key)], vec![0; rows.len()]),
                RowVerifyingKeys::Table { keys, .. } => {
                    let (keys, of) = of_table(keys, rows.iter().map(|row| row.index));
                    (keys.into_iter().map(Cow::Borrowed).collect(), of)
                }
                // Copies: what is written to one row's key meanwhile is to change no other row's verdict.
                RowVerifyingKeys::Encoded(_) => {
                    let mut copies = Vec::<Cow<'_, VerifyingKey>>::new();
                    let number = |row: &VerifyRow<'_>| {
                        if copies.last().is_none_or(|last| last.as_bytes() != row.encoded) {
                            let copy = VerifyingKey::from_bytes(row.encoded).expect("its length was checked");
                            copies.push(Cow::Owned(copy));
                        }
                        copies.len() as u32 - 1
                    };
                    let of = rows.iter().map(number).collect();
                    (copies, of)
                }
            },
        );
        let keys: Vec<&VerifyingKey> = keys.iter().map(|key| &**key).collect();
        blocks::verify(place, &keys, &of, |i| (rows[i].message, rows[i].signature))
    }

    fn finish(verdicts: &Vec<bool>, nth: usize, _: &VerifyRow<'a>, _: &mut [u8]) -> RowStatus {
        if verdicts[nth] { RowStatus::Valid } else { RowStatus::Invalid }
    }

    fn held(_: &GroupFacts, _: &Options) -> usize {
        size_of::<(VerifyRow<'_>, RowStatus, u32, ZkVerify<'_>, bool)>()
    }
}
