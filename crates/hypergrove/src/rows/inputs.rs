//! The columns of a call: what there is to compute, row by row.

use super::columns::{MessageRows, RowSigningKeys, RowVerifyingKeys, SignatureRows};
use super::foreign::{ForeignColumn, ForeignColumns};
use super::status::RowStatus;
use crate::scheme::{MessageColumn, ParameterSet, PublicKey, Scheme, Sizes, ToSign, ToVerify, check_given};
use crate::types::{SchemeKey, SchemeTypes, copied, in_succession};
use crate::{Error, Op};
use hypergrove_engine::scheduler::Checks;
use hypergrove_engine::scheme::{GroupFacts, Kind};
use std::borrow::Cow;
use std::{ptr, slice};

/// Copies of a row's values in foreign columns.
pub(super) type Copies<'m> = [Option<&'m [u8]>; 3];

/// The columns of a call, without the memory for its results.
pub(super) enum RowInputs<'a, S: SchemeTypes> {
    Sign(MessageRows<'a, S>),
    Verify(SignatureRows<'a, S>),
    /// Such a call reads no rows and has no statuses, and the caller gets all keys or none.
    Keygen {
        set: S,
        seeds: Option<&'a [u8]>,
    },
}

impl<'a, S: Scheme> RowInputs<'a, S> {
    /// The bytes of a row's signature that the call makes; 0 if it does not sign.
    pub(super) fn signature(&self) -> usize {
        if let RowInputs::Sign(rows) = self { rows.set().sizes().signature } else { 0 }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            RowInputs::Sign(rows) => rows.set().kind(Op::Sign, rows.keys.table().keys[0].cached_layers()),
            RowInputs::Verify(rows) => rows.set().kind(Op::Verify, 0),
            RowInputs::Keygen { set, .. } => set.kind(Op::Keygen, 0),
        }
    }

    /// Checks the columns of a call with this number of rows. Errors of a single row are found by its reader instead.
    pub(super) fn check(&self, count: usize) -> Result<(), Error> {
        match self {
            RowInputs::Sign(rows) => {
                S::message_column(&rows.messages).check(count)?;
                rows.keys.table().check(rows.mode, count)?;
                check_given(rows.set(), rows.randomizer, count)
            }
            RowInputs::Verify(rows) => {
                S::message_column(&rows.messages).check(count)?;
                rows.signatures.check("signatures", count)?;
                if let RowVerifyingKeys::Encoded { keys, .. } = rows.keys {
                    keys.check("public keys", count)?;
                    return S::check_mode(rows.mode);
                }
                rows.keys.table().check(rows.mode, count)
            }
            RowInputs::Keygen { set, seeds } => {
                let wanted = count * set.sizes().seeds;
                seeds.map_or(Ok(()), |seeds| Error::check_length("the seeds", wanted, seeds.len()))
            }
        }
    }

    /// The bytes of memory that the columns occupy.
    pub(super) fn size(&self) -> usize {
        match self {
            RowInputs::Sign(rows) => {
                let given = S::given(rows.randomizer).map_or(0, <[u8]>::len);
                S::message_column(&rows.messages).size() + given + rows.keys.table().size()
            }
            RowInputs::Verify(rows) => {
                let keys = if let RowVerifyingKeys::Encoded { keys, .. } = rows.keys { keys.size() } else { 0 };
                S::message_column(&rows.messages).size() + rows.signatures.size() + keys + rows.keys.table().size()
            }
            RowInputs::Keygen { seeds, .. } => seeds.map_or(0, <[u8]>::len),
        }
    }

    /// The foreign columns, whose rows are copied before they are read.
    pub(super) fn foreign(&self) -> ForeignColumns<'a> {
        let messages = |of: &S::RowMessages<'a>| match S::message_column(of) {
            MessageColumn::Bytes(column) => ForeignColumn::of(&column, None),
            MessageColumn::Own(..) => None,
        };
        match self {
            RowInputs::Sign(rows) => [None, messages(&rows.messages), None],
            RowInputs::Verify(rows) => {
                let Sizes { public, signature, .. } = rows.set().sizes();
                let keys = match &rows.keys {
                    RowVerifyingKeys::Encoded { keys, .. } => ForeignColumn::of(keys, Some(public)),
                    _ => None,
                };
                [ForeignColumn::of(&rows.signatures, Some(signature)), messages(&rows.messages), keys]
            }
            RowInputs::Keygen { .. } => [None; 3],
        }
    }

    /// The bytes of memory that a row needs in addition to the caller's. They include what is kept of a row that was read, and the seeds of a key.
    pub(super) fn held(&self, facts: &GroupFacts, checks: Checks) -> usize {
        let (op, read) = match self {
            RowInputs::Sign(_) => (Op::Sign, size_of::<(SignRow<'_, '_, S>, RowStatus)>()),
            RowInputs::Verify(_) => (Op::Verify, size_of::<(VerifyRow<'_, '_, S>, RowStatus)>()),
            RowInputs::Keygen { set, .. } => (Op::Keygen, set.sizes().seeds),
        };
        read + S::held(op, facts, checks)
    }
}

/// Keys that are objects, not bytes, and the index of each row's key. Without indices all rows have one key.
struct KeyTable<'a, K> {
    keys: &'a [K],
    of: Option<&'a [u32]>,
}

impl<'a, K> RowSigningKeys<'a, K> {
    fn table(&self) -> KeyTable<'a, K> {
        match *self {
            RowSigningKeys::One(key) => KeyTable { keys: slice::from_ref(key), of: None },
            RowSigningKeys::Table { keys, of } => KeyTable { keys, of: Some(of) },
        }
    }
}

impl<'a, K, P> RowVerifyingKeys<'a, K, P> {
    /// The table of keys; an empty one if they are bytes.
    fn table(&self) -> KeyTable<'a, K> {
        match *self {
            RowVerifyingKeys::One(key) => KeyTable { keys: slice::from_ref(key), of: None },
            RowVerifyingKeys::Table { keys, of } => KeyTable { keys, of: Some(of) },
            RowVerifyingKeys::Encoded { .. } => KeyTable { keys: &[], of: None },
        }
    }
}

impl<'a, K> KeyTable<'a, K> {
    fn size(&self) -> usize {
        self.of.map_or(0, size_of_val)
    }

    /// Checks that the table has a key, and that each row has an index; the mode of a call; and that one program serves all keys.
    fn check<S: Scheme>(&self, mode: S::Mode<'_>, rows: usize) -> Result<(), Error>
    where
        K: SchemeKey<S>,
    {
        let Some(first) = self.keys.first() else {
            return Err(Error::Value { what: "a table without keys; give one at least".into() });
        };
        self.of.map_or(Ok(()), |of| Error::check_length("the list of key indices", rows, of.len()))?;
        S::check_mode(mode)?;
        for key in self.keys {
            key.check_mode(mode)?;
            let [(set, layers), (of_first, layers_of_first)] =
                [key, first].map(|key| (key.scheme(), key.cached_layers()));
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

    /// A row's index into the table.
    fn index(&self, row: usize) -> Result<u32, RowStatus> {
        let Some(of) = self.of else { return Ok(0) };
        of.get(row).copied().filter(|key| (*key as usize) < self.keys.len()).ok_or(RowStatus::NoSuchKey)
    }

    /// The keys that some rows use, given the rows' indices into the table, and the index of each row's key among these keys.
    fn used(&self, of: impl ExactSizeIterator<Item = u32>) -> (Vec<&'a K>, Vec<u32>) {
        let keys = self.keys;
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
}

/// A row to be signed.
pub(super) struct SignRow<'l, 'a, S: SchemeTypes> {
    /// The columns of the row.
    pub(super) of: &'l MessageRows<'a, S>,
    /// The index of the key in its table; 0 for a single key.
    key: u32,
    message: S::Message<'l>,
    randomizer: S::Randomizer<'l>,
}

impl<'l, S: Scheme> SignRow<'l, '_, S> {
    pub(super) fn to_sign(self) -> ToSign<'l, S> {
        let SignRow { of, key, message, randomizer } = self;
        ToSign { key: &of.keys.table().keys[key as usize], mode: S::shorten(of.mode), message, randomizer }
    }
}

impl<'a, S: Scheme> MessageRows<'a, S> {
    pub(super) fn set(&self) -> S {
        self.keys.table().keys[0].scheme()
    }

    /// Returns the function that reads a row, given its number and its copies from foreign columns. The function returns a status for a row that cannot
    /// be computed. Only readers check lengths and offsets.
    pub(super) fn reader<'l>(&'l self) -> impl Fn(usize, Copies<'l>) -> Result<SignRow<'l, 'a, S>, RowStatus> + Sync {
        let (table, set) = (self.keys.table(), self.set());
        move |row, [_, copied, _]| {
            let key = table.index(row)?;
            let (message, randomizer) = set.row(&self.messages, self.mode, self.randomizer, row, copied)?;
            Ok(SignRow { of: self, key, message, randomizer })
        }
    }

    /// The keys of some rows, and the index of each row's key.
    pub(super) fn keys_of(&self, rows: &[SignRow<'_, 'a, S>]) -> (Vec<&'a S::SigningKey>, Vec<u32>) {
        self.keys.table().used(rows.iter().map(|row| row.key))
    }
}

/// A row to be verified.
pub(super) struct VerifyRow<'l, 'a, S: SchemeTypes> {
    /// The columns of the row.
    pub(super) of: &'l SignatureRows<'a, S>,
    /// The index of the key in its table; 0 if there is no table.
    index: u32,
    key: PublicKey<'l, S>,
    message: S::Message<'l>,
    signature: &'l [u8],
}

impl<'l, S: Scheme> VerifyRow<'l, '_, S> {
    pub(super) fn to_verify(self) -> ToVerify<'l, 'l, S> {
        let VerifyRow { of, key, message, signature, .. } = self;
        ToVerify { key, mode: S::shorten(of.mode), message, signature }
    }
}

impl<'a, S: Scheme> SignatureRows<'a, S> {
    pub(super) fn set(&self) -> S {
        match self.keys {
            RowVerifyingKeys::Encoded { params, .. } => params.scheme(),
            _ => self.keys.table().keys[0].scheme(),
        }
    }

    /// Returns the function that reads a row, as [`MessageRows::reader`] does.
    pub(super) fn reader<'l>(&'l self) -> impl Fn(usize, Copies<'l>) -> Result<VerifyRow<'l, 'a, S>, RowStatus> + Sync {
        let (table, set) = (self.keys.table(), self.set());
        let Sizes { public, signature, .. } = set.sizes();
        move |row, [of_signature, of_message, of_key]| {
            let index = table.index(row)?;
            let key = match self.keys {
                RowVerifyingKeys::Encoded { keys, .. } => {
                    PublicKey::Bytes(keys.get_exact(row, of_key, public, RowStatus::KeyLength)?)
                }
                _ => PublicKey::Key(&table.keys[index as usize]),
            };
            let signature = self.signatures.get_exact(row, of_signature, signature, RowStatus::SignatureLength)?;
            let (message, _) = set.row(&self.messages, self.mode, S::Randomizer::default(), row, of_message)?;
            Ok(VerifyRow { of: self, index, key, message, signature })
        }
    }

    /// The keys of some rows, and the index of each row's key. Of encoded keys only neighbours that are equal count as one, so a key may come again.
    pub(super) fn keys_of(&self, rows: &[VerifyRow<'_, 'a, S>]) -> (Vec<Cow<'a, S::VerifyingKey>>, Vec<u32>) {
        let RowVerifyingKeys::Encoded { params, .. } = self.keys else {
            let (keys, key_of) = self.keys.table().used(rows.iter().map(|row| row.index));
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

copied! {
    ['l 'a] SignRow<'l, 'a, S>;
    ['l 'a] VerifyRow<'l, 'a, S>;
}
