//! Calls with keys, written once for all schemes. PyO3's classes cannot be generic: each scheme has its own, whose methods call these.

use crate::columns::{Bytes, Rows, Signals, Target, booleans, check_statuses, keys_of, run_rows, verdicts};
use crate::engine::{Engine, engine_of};
use crate::error::{Failure, RowFault, bad, exception};
use crate::exit::detach;
use crate::foreign::array::Array;
use crate::foreign::arrow::NO_VALUE;
use crate::foreign::memory::Element;
use crate::held::Held;
use crate::labels;
use crate::pending::{Answer, Pending, invalid};
use crate::policy::RowPolicy;
use crate::room::{size, too_many, zeros};
use hypergrove::rows::{Column, RowMemory, RowSigningKeys, RowStatus};
use hypergrove::schemes::{MessageRows, RowVerifyingKeys, Scheme, SchemeKey, SignJob, SignatureRows, VerifyJob};
use hypergrove::{Error, PreHash};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};
use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A signature of a longer message takes long to verify.
const MESSAGE_OF_A_SHORT_JOB: usize = 1 << 16;

pub(crate) type Object<'py> = Bound<'py, PyAny>;
/// An argument that may be left out.
pub(crate) type Given<'a, T = PyAny> = Option<&'a Bound<'a, T>>;

/// A scheme of the package: what its calls have of their own, and all calls.
pub(crate) trait PyScheme:
    for<'a> Scheme<
        Signature: AsRef<[u8]> + Into<Vec<u8>>,
        JobMessage<'a>: From<&'a [u8]>,
        RowMessages<'a>: From<Column<'a>>,
    >
{
    /// The class of public keys.
    type PublicKey: PyTypeInfo;
    /// Whether the keys of a dictionary-encoded column become a table: what the engine computes of a table's keys may stay in memory until
    /// the call ends.
    const MAKES_TABLES: bool;

    fn key<'a>(object: &'a Bound<'_, Self::PublicKey>) -> &'a Self::VerifyingKey;

    /// The mode of a call, and its randomness.
    fn mode(_call: &Call) -> (Self::Mode<'_>, Self::Randomizer<'_>) {
        Default::default()
    }

    fn sign_one<'py>(key: &Self::SigningKey, data: &Object<'py>, how: How<'_>) -> PyResult<Bound<'py, PyBytes>> {
        let (message, call) = (Bytes::of(data, "data")?, how.call()?);
        let (mode, randomizer) = Self::mode(&call);
        let job = SignJob { mode, randomizer, ..SignJob::<Self>::new(key, &message[..]) };
        let signature = detach(data.py(), || call.engine.run(job)).map_err(|why| exception(&why))?;
        Ok(PyBytes::new(data.py(), signature.as_ref()))
    }

    fn sign_later<'py>(key: &Arc<Self::SigningKey>, data: &Object<'py>, how: How<'_>) -> PyResult<Object<'py>> {
        let (message, call) = (Bytes::of(data, "data")?, how.call()?);
        let (mode, randomizer) = Self::mode(&call);
        let job = SignJob { mode, randomizer, ..SignJob::<Self>::new(key.clone(), &message[..]) };
        Pending::start(data.py(), &call.engine, job, false, |signature| Answer::Signature(signature.into()))
    }

    fn sign_many<'py>(
        key: &Self::SigningKey,
        messages: &Object<'py>,
        out: Option<&Object<'py>>,
        how: How<'_>,
    ) -> PyResult<Object<'py>> {
        let width = key.scheme().sizes().signature;
        results(messages, out, width, how, RowStatus::Signed, |call, messages, out, statuses, check| {
            let (mode, randomizer) = Self::mode(call);
            let (keys, messages) = (RowSigningKeys::One(key), messages.into());
            let rows = MessageRows::<Self> { keys, mode, messages, randomizer };
            call.engine.sign_rows_into(&rows, out, statuses, |_| check())
        })
    }

    fn is_valid(key: &Self::VerifyingKey, signature: &Object<'_>, data: &Object<'_>, how: How<'_>) -> PyResult<bool> {
        let (signature, message, py) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?, data.py());
        let call = how.call()?;
        let job = VerifyJob { mode: Self::mode(&call).0, ..VerifyJob::<Self>::new(key, &message[..], &signature[..]) };
        detach(py, || call.engine.run(job)).map_err(|why| exception(&why))
    }

    fn verify_one(key: &Self::VerifyingKey, signature: &Object<'_>, data: &Object<'_>, how: How<'_>) -> PyResult<()> {
        let is_valid = Self::is_valid(key, signature, data, how)?;
        if is_valid { Ok(()) } else { Err(invalid(key.scheme().name())) }
    }

    fn verify_later<'py>(
        key: &Self::VerifyingKey,
        signature: &Object<'_>,
        data: &Object<'py>,
        how: How<'_>,
    ) -> PyResult<Object<'py>> {
        let (signature, message) = (Bytes::of(signature, "signature")?, Bytes::of(data, "data")?);
        let (call, set) = (how.call()?, key.scheme().name());
        let job = VerifyJob { mode: Self::mode(&call).0, ..VerifyJob::<Self>::new(key, &message[..], &signature[..]) };
        // A fault of the mode alone is an exception of the call, not of the future.
        Self::check_mode(job.mode).map_err(|why| exception(&why))?;
        let is_short = message.len() <= MESSAGE_OF_A_SHORT_JOB;
        Pending::start(data.py(), &call.engine, job, is_short, move |is_valid| Answer::Verdict(is_valid, set))
    }

    fn verify_many<'py>(
        [public_keys, signatures, messages]: [&Object<'py>; 3],
        set: Option<Self>,
        how: How<'_>,
    ) -> PyResult<Bound<'py, Array>> {
        labels::check([("public_keys", public_keys), ("signatures", signatures), ("messages", messages)])?;
        let (py, mut keys) = (messages.py(), VerifyKeys::of(public_keys, set)?);
        let (signatures, messages) = (Rows::of(signatures, "signatures")?, Rows::of(messages, "messages")?);
        let call = how.call()?;
        keys.check(&signatures, messages.count, how.policy)?;
        let Some(set) = keys.set() else { return booleans(py, Vec::new(), None) };
        let packed = keys.packed().map(|rows| (rows, Some(set.sizes().public)));
        let columns: Vec<_> = [(&signatures, None), (&messages, None)].into_iter().chain(packed).collect();
        let gaps = how.policy.gaps(py, &columns)?;
        keys.prepare(py, gaps.as_ref().map(|gaps| &gaps.picked[..]))?;
        let given: Vec<&Rows> = [&signatures, &messages].into_iter().chain(keys.packed()).collect();
        let verdicts = detach(py, || {
            let gaps = gaps.as_ref();
            let held = given.iter().map(|rows| rows.hold(gaps)).collect::<PyResult<Vec<_>>>()?;
            let rows = SignatureRows::<Self> {
                keys: keys.column(held.get(2)),
                mode: Self::mode(&call).0,
                messages: held[1].column().into(),
                signatures: held[0].column(),
            };
            let count = gaps.map_or(messages.count, |gaps| gaps.picked.len());
            let verify = |statuses: &mut [RowStatus], check: Check<'_>| {
                call.engine.verify_rows_with_progress(&rows, statuses, |_| check())
            };
            let statuses = run_rows(count, verify)?;
            verdicts(&statuses, gaps)
        });
        booleans(py, verdicts.map_err(|why| Rows::name(&given, why))?, gaps)
    }

    /// Makes keys, and an array of the public keys' bytes.
    fn make_many(
        self,
        py: Python<'_>,
        count: usize,
        engine: Given<'_, Engine>,
    ) -> PyResult<(PrivateRows<Self>, Array)> {
        let (engine, sizes) = (engine_of(engine)?, self.sizes());
        let mut private = Zeroizing::new(zeros(size(count, sizes.private)?)?);
        let mut public = zeros(size(count, sizes.public)?)?;
        detach(py, || {
            let mut signals = Signals::new();
            engine.keygen_rows_with_progress(self, &mut private, Some(&mut public), |_| signals.check())?;
            signals.finish().map_err(Failure::from)
        })?;
        let public = Array::new(public, Element::Byte, &[count, sizes.public]);
        Ok((PrivateRows { set: self, bytes: private }, public))
    }
}

/// Arguments that say how a call is done.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'a> {
    pub(crate) context: Given<'a>,
    pub(crate) prehash: Option<&'a str>,
    pub(crate) deterministic: bool,
    pub(crate) engine: Given<'a, Engine>,
    pub(crate) policy: RowPolicy,
}

/// The arguments of [`How`], after they were read.
pub(crate) struct Call {
    pub(crate) context: Option<Bytes>,
    pub(crate) hash: Option<PreHash>,
    pub(crate) deterministic: bool,
    pub(crate) engine: hypergrove::Engine,
}

impl<'a> How<'a> {
    pub(crate) fn with(engine: Given<'a, Engine>) -> How<'a> {
        How { engine, ..How::default() }
    }

    pub(crate) fn call(self) -> PyResult<Call> {
        let context = self.context.map(|context| Bytes::of(context, "context")).transpose()?;
        let hash = self.prehash.map(|name| name.parse().map_err(bad)).transpose()?;
        Ok(Call { context, hash, deterministic: self.deterministic, engine: engine_of(self.engine)? })
    }
}

/// Says whether a call goes on.
pub(crate) type Check<'c> = &'c mut dyn FnMut() -> ControlFlow<()>;

/// Makes a result of `width` bytes of each message, as `compute` does it, in `out` or in a new array. `done` is the status of a row that has a
/// result.
pub(crate) fn results<'py>(
    messages: &Object<'py>,
    out: Option<&Object<'py>>,
    width: usize,
    how: How<'_>,
    done: RowStatus,
    compute: impl FnOnce(&Call, Column<'_>, RowMemory<'_>, &mut [RowStatus], Check<'_>) -> Result<(), Error> + Send,
) -> PyResult<Object<'py>> {
    let (py, messages, call) = (messages.py(), Rows::of(messages, "messages")?, how.call()?);
    how.policy.check_out(out)?;
    let gaps = how.policy.gaps(py, &[(&messages, None)])?;
    Target::of(out, messages.count, width)?.fill(py, (messages.count, width), gaps, |out, gaps| {
        let (held, count) = (messages.hold(gaps)?, gaps.map_or(messages.count, |gaps| gaps.picked.len()));
        let statuses = out.write(&held, |out| {
            run_rows(count, |statuses, check| compute(&call, held.column(), out, statuses, check))
        })??;
        check_statuses(&statuses, done, gaps).map_err(|why| Rows::name(&[&messages], why))
    })
}

/// The keys of a call that verifies.
enum VerifyKeys<S: PyScheme> {
    One(S::VerifyingKey),
    /// Each key once, and the number of each row's.
    Table(Vec<S::VerifyingKey>, Vec<u32>),
    Packed(S, Rows),
}

impl<S: PyScheme> VerifyKeys<S> {
    fn of(object: &Object<'_>, set: Option<S>) -> PyResult<VerifyKeys<S>> {
        let fits = |key: &S::VerifyingKey, what: fmt::Arguments<'_>| match (set, key.scheme()) {
            (Some(set), other) if set != other => {
                Err(bad(format!("{what} is of the set {}, and set is {}", other.name(), set.name())))
            }
            _ => Ok(()),
        };
        if let Ok(key) = object.cast::<S::PublicKey>() {
            let key = S::key(key);
            fits(key, format_args!("the public key"))?;
            return Ok(VerifyKeys::One(key.clone()));
        }
        if let Some(items) = keys_of::<S::PublicKey>(object)? {
            // Objects that are alive have addresses of their own.
            let (mut keys, mut numbers, mut of) = (Vec::<S::VerifyingKey>::new(), HashMap::new(), Vec::new());
            of.try_reserve_exact(items.len()).map_err(|_| too_many(items.len()))?;
            for (row, item) in items.iter().enumerate() {
                let key = S::key(item);
                fits(key, format_args!("public_keys: row {row}"))?;
                let number = *numbers.entry(item.as_ptr() as usize).or_insert(keys.len() as u32);
                if number as usize == keys.len() {
                    keys.push(key.clone());
                    let (first, other) = (keys[0].scheme().name(), key.scheme().name());
                    if first != other {
                        return Err(bad(format!(
                            "public_keys: row {row} is of the set {other}, row 0 of {first}; make a call for each set"
                        )));
                    }
                }
                of.push(number);
            }
            return Ok(VerifyKeys::Table(keys, of));
        }
        match set {
            Some(set) => Ok(VerifyKeys::Packed(set, Rows::of(object, "public_keys")?)),
            None if object.cast::<PySequence>().is_ok_and(|rows| rows.len().is_ok_and(|count| count == 0)) => {
                Ok(VerifyKeys::Table(Vec::new(), Vec::new()))
            }
            None => Err(PyTypeError::new_err(
                "public_keys: give a PublicKey, a sequence of PublicKey, or keys as bytes with set=\"SLH-DSA-…\"",
            )),
        }
    }

    /// The set, if there is a key.
    fn set(&self) -> Option<S> {
        match self {
            VerifyKeys::One(key) => Some(key.scheme()),
            VerifyKeys::Table(keys, _) => keys.first().map(SchemeKey::scheme),
            VerifyKeys::Packed(set, _) => Some(*set),
        }
    }

    /// Refuses keys and signatures that do not fit each other or the messages.
    fn check(&self, signatures: &Rows, messages: usize, policy: RowPolicy) -> PyResult<()> {
        if let VerifyKeys::Packed(set, rows) = self
            && !policy.permits_malformed
        {
            rows.check_width(set.sizes().public, &format!("a public key of {}", set.name()))?;
        }
        if let Some(set) = self.set() {
            signatures.check_width(set.sizes().signature, &format!("a signature of {}", set.name()))?;
        }
        signatures.check_count(messages, "messages")?;
        match self {
            VerifyKeys::Table(_, of) if of.len() != messages => {
                let count = of.len();
                Err(bad(format!("public_keys has {count} rows, messages has {messages}; give one for each row")))
            }
            VerifyKeys::Packed(_, rows) => rows.check_count(messages, "messages"),
            _ => Ok(()),
        }
    }

    /// Takes the keys of a dictionary-encoded column out of its dictionary, each once, if the scheme makes tables, and leaves the rows of a
    /// table out that are not `picked`.
    fn prepare(&mut self, py: Python<'_>, picked: Option<&[usize]>) -> PyResult<()> {
        if S::MAKES_TABLES
            && let VerifyKeys::Packed(set, rows) = &*self
            && let Some((values, of)) = rows.table(py, set.sizes().public)?
        {
            if picked.is_none()
                && let Some(row) = of.iter().position(|number| *number == NO_VALUE)
            {
                let fault = rows.lengths().nth(row).and_then(Result::err);
                return Err(rows.is_wrong(row, fault.unwrap_or(RowFault::KeyLength)));
            }
            // The engine wants a key in its table.
            if !values.is_empty() {
                *self =
                    VerifyKeys::Table(values.iter().map(|value| S::VerifyingKey::of_bytes(*set, value)).collect(), of);
            }
        }
        if let (VerifyKeys::Table(_, of), Some(picked)) = (self, picked) {
            *of = picked.iter().map(|row| of[*row]).collect();
        }
        Ok(())
    }

    /// The column of keys that are bytes.
    fn packed(&self) -> Option<&Rows> {
        if let VerifyKeys::Packed(_, rows) = self { Some(rows) } else { None }
    }

    /// The keys as a column; `packed` are those that are bytes.
    fn column<'a>(&'a self, packed: Option<&'a Held<'_>>) -> RowVerifyingKeys<'a, S::VerifyingKey, S::Set> {
        match (self, packed) {
            (VerifyKeys::One(key), _) => RowVerifyingKeys::One(key),
            (VerifyKeys::Table(keys, of), _) => RowVerifyingKeys::Table { keys, of },
            (VerifyKeys::Packed(set, _), packed) => RowVerifyingKeys::Encoded {
                params: set.set(),
                keys: packed.expect("packed keys are a column").column(),
            },
        }
    }
}

/// The private keys of a batch.
pub(crate) struct PrivateRows<S> {
    pub(crate) set: S,
    bytes: Zeroizing<Vec<u8>>,
}

impl<S: PyScheme> PrivateRows<S> {
    pub(crate) fn count(&self) -> usize {
        self.bytes.len() / self.set.sizes().private
    }

    /// The key that an index of Python means.
    pub(crate) fn get(&self, index: isize) -> PyResult<Arc<S::SigningKey>> {
        let (rows, width) = (self.count(), self.set.sizes().private);
        let row = if index < 0 { index + rows as isize } else { index };
        let row = usize::try_from(row).ok().filter(|row| *row < rows);
        let row = row.ok_or_else(|| PyIndexError::new_err(format!("index {index}, of {rows}")))?;
        Ok(S::SigningKey::of_bytes(self.set, &self.bytes[row * width..][..width]).into())
    }
}
