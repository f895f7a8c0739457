//! Many messages in a call.

use crate::engine::Engine;
use crate::failure::{Failure, Status, call};
use crate::keys::{PrivateKey, PublicKey};
use crate::messages::MessageOptions;
use crate::pointers::{In, Out, Span, c_structs};
use crate::sets::Set;
use hypergrove::rows::{Column, Offsets, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{SigningKey, VerifyingKey, zkdilithium as zk};

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
struct Keys<'a, K> {
    one: &'a In<K>,
    table: &'a In<In<K>>,
    length: usize,
    index: &'a In<u32>,
}

/// The keys, and which of them each row has if it is not the only one.
type Table<'a, K> = (Vec<&'a K>, Option<&'a [u32]>);

impl<'a, K> Keys<'a, K> {
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
        Ok((keys, of))
    }

    fn is_absent(&self) -> bool {
        self.one.is_null() && self.table.is_null()
    }

    fn spans(&self, rows: usize) -> [Span; 2] {
        let rows = if self.table.is_null() { 0 } else { rows };
        [self.table.span(self.length, "table"), self.index.span(rows, "key_index")]
    }
}

/// Copies of keys, which are all of one scheme: rows take keys that lie one after the other.
fn copies<K, T: Clone>(keys: &[&K], of_scheme: impl Fn(&K) -> Option<&T>) -> Result<Vec<T>, Failure> {
    let all: Option<Vec<T>> = keys.iter().map(|key| of_scheme(key).cloned()).collect();
    all.ok_or_else(|| Failure::bad_input("table: it has keys of both schemes; make a call for each".into()))
}

impl PrivateKey {
    fn slh_dsa(&self) -> Option<&SigningKey> {
        if let PrivateKey::SlhDsa(key) = self { Some(key) } else { None }
    }

    fn zkdilithium(&self) -> Option<&zk::SigningKey> {
        if let PrivateKey::ZkDilithium(key) = self { Some(key) } else { None }
    }
}

impl PublicKey {
    fn slh_dsa(&self) -> Option<&VerifyingKey> {
        if let PublicKey::SlhDsa(key) = self { Some(key) } else { None }
    }

    fn zkdilithium(&self) -> Option<&zk::VerifyingKey> {
        if let PublicKey::ZkDilithium(key) = self { Some(key) } else { None }
    }
}

fn signing_keys<'a, K>(keys: &'a [K], of: Option<&'a [u32]>) -> RowSigningKeys<'a, K> {
    match of {
        None => RowSigningKeys::One(&keys[0]),
        Some(of) => RowSigningKeys::Table { keys, of },
    }
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
        let keys = Keys { one: &batch.key, table: &batch.table, length: batch.table_length, index: &batch.key_index };
        let mut others = Vec::from(options.spans());
        others.extend(keys.spans(rows));
        others.extend(batch.messages.spans(rows, "messages"));
        let written = signatures.span(signatures_length, "signatures");
        let out = signatures.slice(signatures_length, "signatures", &others)?;
        others.push(written);
        let statuses = statuses.statuses(rows, &others)?;
        let messages = batch.messages.column(rows, "messages")?;
        let (keys, of) = keys.read(rows)?;
        match keys[0] {
            PrivateKey::SlhDsa(_) => {
                let (mode, randomizer) = (options.mode()?, options.randomizer()?);
                let keys = copies(&keys, PrivateKey::slh_dsa)?;
                let rows = SignRows { keys: signing_keys(&keys, of), mode, messages, randomizer };
                engine.slh_dsa.sign_rows(&rows, out, statuses)?;
            }
            PrivateKey::ZkDilithium(_) => {
                options.check_none()?;
                let keys = copies(&keys, PrivateKey::zkdilithium)?;
                let rows = zk::SignRows { keys: signing_keys(&keys, of), messages: messages.into() };
                engine.zkdilithium.sign_rows(&rows, out, statuses)?;
            }
        }
        Ok(())
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
        let keys = Keys { one: &batch.key, table: &batch.table, length: batch.table_length, index: &batch.key_index };
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
            match Set::of(batch.set)? {
                Set::SlhDsa(params) => {
                    let keys = RowVerifyingKeys::Encoded { params, keys: encoded };
                    let rows = VerifyRows { keys, mode: options.mode()?, messages, signatures };
                    engine.slh_dsa.verify_rows(&rows, statuses)?;
                }
                Set::ZkDilithium => {
                    options.check_none()?;
                    let keys = zk::RowVerifyingKeys::Encoded(encoded);
                    let rows = zk::VerifyRows { keys, messages: messages.into(), signatures };
                    engine.zkdilithium.verify_rows(&rows, statuses)?;
                }
            }
            return Ok(());
        }
        if !batch.keys.is_absent() || batch.set != 0 {
            let text = "keys and set: they go together, and without key and table; leave them zero";
            return Err(Failure::bad_input(text.into()));
        }
        let (keys, of) = keys.read(rows)?;
        match keys[0] {
            PublicKey::SlhDsa(_) => {
                let mode = options.mode()?;
                let keys = copies(&keys, PublicKey::slh_dsa)?;
                let keys = match of {
                    None => RowVerifyingKeys::One(&keys[0]),
                    Some(of) => RowVerifyingKeys::Table { keys: &keys, of },
                };
                engine.slh_dsa.verify_rows(&VerifyRows { keys, mode, messages, signatures }, statuses)?;
            }
            PublicKey::ZkDilithium(_) => {
                options.check_none()?;
                let keys = copies(&keys, PublicKey::zkdilithium)?;
                let keys = match of {
                    None => zk::RowVerifyingKeys::One(&keys[0]),
                    Some(of) => zk::RowVerifyingKeys::Table { keys: &keys, of },
                };
                let rows = zk::VerifyRows { keys, messages: messages.into(), signatures };
                engine.zkdilithium.verify_rows(&rows, statuses)?;
            }
        }
        Ok(())
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
        for (what, each, length) in [
            ("private_keys", set.private_key_size(), private_length),
            ("public_keys", set.public_key_size(), public_length),
            ("seeds", if seeds.is_null() { 0 } else { set.seed_size() }, seeds_length),
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
        match (set, is_given) {
            (Set::SlhDsa(p), false) => engine.slh_dsa.keygen_rows(p, private, public)?,
            (Set::SlhDsa(p), true) => engine.slh_dsa.keygen_rows_from_seeds(p, seeds, private, public)?,
            (Set::ZkDilithium, false) => engine.zkdilithium.keygen_rows(private, Some(public))?,
            (Set::ZkDilithium, true) => {
                engine.zkdilithium.keygen_rows_from_seeds(seeds.as_chunks().0, private, Some(public))?;
            }
        }
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
        engine.slh_dsa.sha256_rows(column.column(rows, "messages")?, out, statuses)?;
        Ok(())
    })
}
