//! The rows of a scheme's columns, and how they are computed.

use super::block::{Computed, Copies, Lent, RowBlock, Rows, of_calls};
use super::columns::{MessageRows, RowVerifyingKeys, SignatureRows};
use super::foreign::{ForeignColumn, ForeignColumns};
use super::status::RowStatus;
use crate::run::KEYS_OF_A_THREAD;
use crate::scheme::{Failed, KeyColumns, ParameterSet, PublicKey, Scheme, Signing, Sizes, ToSign, ToVerify, Verifying};
use crate::types::{SchemeKey, SchemeTypes, copied, in_succession};
use crate::{Error, Op};
use hypergrove_engine::scheduler::Checks;
use hypergrove_engine::scheme::{GroupFacts, Kind};
use std::borrow::Cow;
use std::ops::Range;
use std::{ptr, slice};

impl<'a, P: ParameterSet> RowVerifyingKeys<'a, <P::Scheme as SchemeTypes>::VerifyingKey, P> {
    /// The keys that are objects, not bytes.
    fn all(&self) -> &'a [<P::Scheme as SchemeTypes>::VerifyingKey] {
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

copied! {
    ['r 'a 'm] SignRow<'r, 'a, 'm, S>;
    ['r 'a 'm] VerifyRow<'r, 'a, 'm, S>;
}

/// Checks that a table has a key, and that each row has an index.
fn check_table<K>(keys: &[K], of: Option<&[u32]>, rows: usize) -> Result<(), Error> {
    if keys.is_empty() {
        return Err(Error::Value { what: "a table without keys; give one at least".into() });
    }
    of.map_or(Ok(()), |of| Error::check_length("the list of key indices", rows, of.len()))
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
pub(crate) struct SignRow<'r, 'a, 'm, S: SchemeTypes> {
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
pub(crate) struct VerifyRow<'r, 'a, 'm, S: SchemeTypes> {
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
pub(super) struct KeyRows<'a, S> {
    pub(super) set: S,
    pub(super) seeds: Option<&'a [u8]>,
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
        self.seeds.map_or(Ok(()), |seeds| Error::check_length("the seeds", wanted, seeds.len()))
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
        let Sizes { seeds: of_seeds, private: of_private, public: of_public, .. } = set.sizes();
        // A device's threads share the keys of a chunk.
        let columns = lent.blocks.iter_mut().flat_map(|RowBlock { columns, rows, out, .. }| {
            let mut seeds = columns.seeds.map(|seeds| &seeds[rows.start * of_seeds..rows.end * of_seeds]);
            let [private, public] = &mut out.columns;
            let mut public = &mut **public;
            private.chunks_mut(KEYS_OF_A_THREAD * of_private).map(move |private| {
                let keys = private.len() / of_private;
                let seeds = seeds.as_mut().map(|seeds| seeds.split_off(..keys * of_seeds).expect("seeds for all"));
                let public =
                    public.split_off_mut(..public.len().min(keys * of_public)).expect("no more than there are");
                KeyColumns { seeds, private, public }
            })
        });
        set.keygen(lent.run, &mut columns.collect::<Vec<_>>(), memory)?;
        // The caller gets no statuses of keys.
        Ok(Computed { refused: Vec::new(), computed: Vec::new() })
    }
}
