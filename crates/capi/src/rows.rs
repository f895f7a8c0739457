//! Many messages in a call.

use crate::failure::{Failure, Status, call};
use crate::options::{MessageOptions, OfOptions};
use crate::pointers::{In, Out, Span, c_structs};
use crate::schemes::{Any, InC, Key, PrivateKey, PublicKey, Set, of_scheme};
use hypergrove::Engine;
use hypergrove::rows::{Column, Offsets, RowSigningKeys, RowStatus};
use hypergrove::schemes::{MessageRows, RowVerifyingKeys, SignatureRows};

c_structs! {
    /// `hg_column`.
    CColumn is "hg_column" {
        bytes: In<u8>,
        length: usize,
        width: usize,
        stride: usize,
        offsets: In<i64>,
    }

    /// `hg_sign_batch`.
    SignBatch is "hg_sign_batch" {
        size: usize,
        rows: usize,
        key: In<PrivateKey>,
        table: In<In<PrivateKey>>,
        table_length: usize,
        key_index: In<u32>,
        messages: CColumn,
    }

    /// `hg_verify_batch`.
    VerifyBatch is "hg_verify_batch" {
        size: usize,
        rows: usize,
        key: In<PublicKey>,
        table: In<In<PublicKey>>,
        table_length: usize,
        key_index: In<u32>,
        keys: CColumn,
        messages: CColumn,
        signatures: CColumn,
        set: u32,
        reserved: u32,
    }
}

impl CColumn {
    fn column(&self, rows: usize, what: &'static str) -> Result<Column<'_>, Failure> {
        let bytes = self.bytes.slice(self.length, what)?;
        if !self.offsets.is_null() {
            let offsets = Offsets::I64(self.offsets.slice(rows.saturating_add(1), what)?);
            return Ok(Column::Variable { bytes, offsets });
        }
        let stride = if self.stride == 0 { self.width } else { self.stride };
        Ok(Column::Packed { bytes, width: self.width, stride, rows })
    }

    fn spans(&self, rows: usize, what: &'static str) -> [Span; 2] {
        let offsets = if self.offsets.is_null() { 0 } else { rows.saturating_add(1) };
        [self.bytes.span(self.length, what), self.offsets.span(offsets, what)]
    }

    fn is_absent(&self) -> bool {
        self.bytes.is_null() && self.length == 0 && self.width == 0 && self.offsets.is_null()
    }
}

/// One key, or a table of keys and an index for each row.
struct KeyColumn<'a, K> {
    one: &'a In<K>,
    table: &'a In<In<K>>,
    length: usize,
    index: &'a In<u32>,
}

/// The keys, and which of them each row has if it is not the only one.
struct Table<'a, K> {
    keys: Vec<&'a K>,
    /// How many keys C gave, those of another scheme included.
    given: usize,
    of: Option<&'a [u32]>,
}

impl<'a, A, B> Table<'a, Any<A, B>> {
    /// Its keys of the first one's scheme.
    fn like_first(self) -> Any<Table<'a, A>, Table<'a, B>> {
        of_scheme!(Any::like_first(&self.keys), keys => Any(Table { keys, given: self.given, of: self.of }))
    }
}

impl<S, K: Clone> Table<'_, Key<S, K>> {
    /// Copies of the keys: rows take keys that lie one after the other.
    fn copies(&self) -> Result<Vec<K>, Failure> {
        match self.keys.len() == self.given {
            true => Ok(self.keys.iter().map(|of| (*of.key).clone()).collect()),
            false => Err(Failure::bad_input("table: it has keys of both schemes; make a call for each".into())),
        }
    }
}

impl<'a, K> KeyColumn<'a, K> {
    fn read(&self, rows: usize) -> Result<Table<'a, K>, Failure> {
        let (keys, of) = match (self.one.is_null(), self.table.is_null()) {
            (true, true) => (Vec::new(), None),
            (false, true) => (vec![self.one.get("key")?], None),
            (true, false) => {
                let keys = self.table.slice(self.length, "table")?;
                let keys = keys.iter().map(|key| key.get("a key of the table")).collect::<Result<_, _>>()?;
                (keys, Some(self.index.slice(rows, "key_index")?))
            }
            (false, false) => {
                return Err(Failure::bad_input("key and table: give one of them, and NULL for the other".into()));
            }
        };
        if keys.is_empty() {
            return Err(Failure::bad_input("there is no key; give one, or a table with one at least".into()));
        }
        Ok(Table { given: keys.len(), keys, of })
    }

    fn is_absent(&self) -> bool {
        self.one.is_null() && self.table.is_null()
    }

    fn spans(&self, rows: usize) -> [Span; 2] {
        let rows = if self.table.is_null() { 0 } else { rows };
        [self.table.span(self.length, "table"), self.index.span(rows, "key_index")]
    }
}

fn sign_rows<S: InC>(
    engine: &Engine,
    table: &Table<'_, Key<S, S::SigningKey>>,
    options: &MessageOptions,
    messages: Column<'_>,
    out: &mut [u8],
    statuses: &mut [RowStatus],
) -> Result<(), Failure> {
    let (mode, randomizer) = (OfOptions::of(options)?, OfOptions::of(options)?);
    let keys = &*table.copies()?;
    let keys = table.of.map_or(RowSigningKeys::One(&keys[0]), |of| RowSigningKeys::Table { keys, of });
    let rows = MessageRows::<S> { keys, mode, messages: messages.into(), randomizer };
    Ok(engine.sign_rows(&rows, out, statuses)?)
}

fn verify_rows<S: InC>(
    engine: &Engine,
    table: &Table<'_, Key<S, S::VerifyingKey>>,
    options: &MessageOptions,
    messages: Column<'_>,
    signatures: Column<'_>,
    statuses: &mut [RowStatus],
) -> Result<(), Failure> {
    let mode = OfOptions::of(options)?;
    let keys = &*table.copies()?;
    let keys = table.of.map_or(RowVerifyingKeys::One(&keys[0]), |of| RowVerifyingKeys::Table { keys, of });
    let rows = SignatureRows::<S> { keys, mode, messages: messages.into(), signatures };
    Ok(engine.verify_rows(&rows, statuses)?)
}

/// Verifies by a column of keys.
fn verify_encoded<S: InC>(
    engine: &Engine,
    set: S,
    keys: Column<'_>,
    options: &MessageOptions,
    messages: Column<'_>,
    signatures: Column<'_>,
    statuses: &mut [RowStatus],
) -> Result<(), Failure> {
    let (keys, mode) = (RowVerifyingKeys::Encoded { params: set.set(), keys }, OfOptions::of(options)?);
    let rows = SignatureRows::<S> { keys, mode, messages: messages.into(), signatures };
    Ok(engine.verify_rows(&rows, statuses)?)
}

#[unsafe(no_mangle)]
extern "C" fn hg_sign_rows(
    engine: In<Engine>,
    batch: In<SignBatch>,
    options: In<MessageOptions>,
    mut signatures: Out<u8>,
    signatures_length: usize,
    mut statuses: Out<RowStatus>,
) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let (batch, options) = (batch.required("batch")?, options.versioned("options")?);
        let rows = batch.rows;
        let keys =
            KeyColumn { one: &batch.key, table: &batch.table, length: batch.table_length, index: &batch.key_index };
        let mut others = Vec::from(options.spans());
        others.extend(keys.spans(rows));
        others.extend(batch.messages.spans(rows, "messages"));
        let written = signatures.span(signatures_length, "signatures");
        let out = signatures.slice(signatures_length, "signatures", &others)?;
        others.push(written);
        let statuses = statuses.statuses(rows, &others)?;
        let messages = batch.messages.column(rows, "messages")?;
        let table = keys.read(rows)?.like_first();
        of_scheme!(table, table => sign_rows(engine, &table, &options, messages, out, statuses))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_verify_rows(
    engine: In<Engine>,
    batch: In<VerifyBatch>,
    options: In<MessageOptions>,
    mut statuses: Out<RowStatus>,
) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let (batch, options) = (batch.required("batch")?, options.versioned("options")?);
        let rows = batch.rows;
        let keys =
            KeyColumn { one: &batch.key, table: &batch.table, length: batch.table_length, index: &batch.key_index };
        let mut others = Vec::from(options.spans());
        others.extend(keys.spans(rows));
        for (column, what) in [(&batch.keys, "keys"), (&batch.messages, "messages"), (&batch.signatures, "signatures")]
        {
            others.extend(column.spans(rows, what));
        }
        let statuses = statuses.statuses(rows, &others)?;
        let messages = batch.messages.column(rows, "messages")?;
        let signatures = batch.signatures.column(rows, "signatures")?;
        if batch.reserved != 0 {
            return Err(Failure::unsupported(format!("reserved: it is {}; it must be 0", batch.reserved)));
        }
        if keys.is_absent() && !batch.keys.is_absent() {
            let encoded = batch.keys.column(rows, "keys")?;
            let set = Set::of(batch.set)?;
            return of_scheme!(set, set => verify_encoded(engine, set, encoded, &options, messages, signatures, statuses));
        }
        if !batch.keys.is_absent() || batch.set != 0 {
            let text = "keys and set: they go together, and without key and table; leave them zero";
            return Err(Failure::bad_input(text.into()));
        }
        let table = keys.read(rows)?.like_first();
        of_scheme!(table, table => verify_rows(engine, &table, &options, messages, signatures, statuses))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_keygen_rows(
    engine: In<Engine>,
    set: u32,
    rows: usize,
    seeds: In<u8>,
    seeds_length: usize,
    mut private_keys: Out<u8>,
    private_length: usize,
    mut public_keys: Out<u8>,
    public_length: usize,
) -> Status {
    call(|| {
        let (engine, set) = (engine.get("engine")?, Set::of(set)?);
        let sizes = set.sizes();
        for (what, each, length) in [
            ("private_keys", sizes.private, private_length),
            ("public_keys", sizes.public, public_length),
            ("seeds", if seeds.is_null() { 0 } else { sizes.seeds }, seeds_length),
        ] {
            let needs = rows.saturating_mul(each);
            if needs != length {
                let text = format!("{what}: {rows} rows of {} have {needs} bytes, {length} are given", set.name());
                return Err(Failure::bad_input(text));
            }
        }
        let of_seeds = || seeds.span(seeds_length, "seeds");
        let written = private_keys.span(private_length, "private_keys");
        let private = private_keys.slice(private_length, "private_keys", &[of_seeds()])?;
        let public = public_keys.slice(public_length, "public_keys", &[of_seeds(), written])?;
        let is_given = !seeds.is_null();
        let seeds = seeds.slice(seeds_length, "seeds")?;
        of_scheme!(set, set => match is_given {
            false => engine.keygen_rows(set, private, Some(public))?,
            true => engine.keygen_rows_from_seeds(set, seeds, private, Some(public))?,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_sha256_rows(
    engine: In<Engine>,
    messages: In<CColumn>,
    rows: usize,
    mut sums: Out<u8>,
    sums_length: usize,
    mut statuses: Out<RowStatus>,
) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        let column = messages.slice(1, "messages")?[0];
        let mut others = Vec::from(column.spans(rows, "messages"));
        others.push(messages.span(1, "messages"));
        let written = sums.span(sums_length, "sums");
        let out = sums.slice(sums_length, "sums", &others)?;
        others.push(written);
        let statuses = statuses.statuses(rows, &others)?;
        engine.sha256_rows(column.column(rows, "messages")?, out, statuses)?;
        Ok(())
    })
}
