//! Sets of rows as jobs. Sets own their memory, because callers of tickets may go on before the rows are done.

use super::call::{CallOfRows, caught};
use super::columns::CallColumns;
use crate::calls::submit;
use crate::flow::no_progress;
use crate::jobs::Refused;
use crate::scheme::Scheme;
use crate::tickets::Job;
use crate::{Engine, Error, ErrorKind, SlhDsa};
use hypergrove_engine::scheduler::{IsWanted, Queued, Scheduler, Size, Ticket};
use hypergrove_engine::scheme::Kind;
use std::fmt;
use std::slice::from_mut;

/// SLH-DSA's [`CallColumns`].
pub type RowCall<'a> = CallColumns<'a, 'a, SlhDsa>;

/// Checks the columns of a call. Returns the kind of its program, and the size that it takes in a queue.
fn check<S: Scheme>(call: &mut CallColumns<'_, '_, S>) -> Result<(Kind, Size), Error> {
    let call = CallOfRows::of(call, None);
    let jobs = call.check()?;
    Ok((call.columns.kind(), Size { jobs, bytes: call.size() as u64 }))
}

/// Rows that own their memory, for [`Engine::submit`](crate::Engine::submit). The memory may be anything: `Vec`, `Arc`, `Bytes`,
/// [`Memory`](super::Memory). The ticket gives it back with the results in it. If the ticket is dropped, the rows that no device has begun are
/// not computed, and the memory is dropped when no device uses it any more.
///
/// In a queue a set counts as its rows, and as the bytes of its columns. Columns that do not fit each other make `submit` refuse the set. Sets
/// of one type `T` and one kind that wait at the same time run together, and their rows share launches; so callers do best to use one type. Kind
/// means the parameter set, the operation and the number of cached layers. Keys, modes and randomizers may differ. If a ticket ends with an
/// error, the memory is dropped with the results in it. The engine wipes only its own memory: keep private keys in `Zeroizing` or in `Memory`.
///
/// ```
/// use hypergrove::rows::{Column, RowCall, RowSet, RowSigningKeys, RowStatus, SignRows};
/// use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F, SigningKey};
/// use std::sync::Arc;
///
/// struct Letters {
///     key: Arc<SigningKey>,
///     messages: Vec<u8>,
///     signatures: Vec<u8>,
///     statuses: Vec<RowStatus>,
/// }
///
/// let (engine, p) = (Engine::new()?, &SLH_DSA_SHA2_128F);
/// // Two messages of eight bytes.
/// let letters = Letters {
///     key: Arc::new(engine.generate(p)?),
///     messages: b"message1message2".to_vec(),
///     signatures: vec![0; 2 * p.sig_bytes()],
///     statuses: vec![RowStatus::default(); 2],
/// };
/// let set = RowSet::new(letters, |letters| RowCall::Sign {
///     rows: SignRows {
///         keys: RowSigningKeys::One(&letters.key),
///         mode: Mode::default(),
///         messages: Column::packed(&letters.messages, 8),
///         randomizer: Randomizer::Hedged,
///     },
///     signatures: &mut letters.signatures,
///     statuses: &mut letters.statuses,
/// });
/// let letters = engine.submit(set)?.wait()?;
/// assert_eq!(letters.statuses, [RowStatus::Signed; 2]);
/// # Ok::<(), hypergrove::Error>(())
/// ```
pub struct RowSet<T, S: Scheme = SlhDsa> {
    /// The memory.
    pub memory: T,
    lend: for<'a> fn(&'a mut T) -> CallColumns<'a, 'a, S>,
    /// The kind and the size that were found when the set was submitted.
    checked: Option<(Kind, Size)>,
}

/// Leaves the memory out, because it may hold keys.
impl<T, S: Scheme> fmt::Debug for RowSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSet").finish_non_exhaustive()
    }
}

impl<T, S: Scheme> RowSet<T, S> {
    /// Makes a set of rows. `lend` says where the columns are in the memory; it is called when the set is submitted and when it is run, and
    /// must give the same columns.
    pub fn new(memory: T, lend: for<'a> fn(&'a mut T) -> CallColumns<'a, 'a, S>) -> RowSet<T, S> {
        RowSet { memory, lend, checked: None }
    }

    /// Lends the columns that were checked when the set was submitted. If the caller's function panics or lends other columns, only this set fails.
    fn lend(&mut self) -> Result<CallColumns<'_, '_, S>, Error> {
        let wrong = |what: &str| Error::Value { what: format!("the function that lends a set of rows {what}") };
        let RowSet { memory, lend, checked } = self;
        let mut call = caught(move || lend(memory)).map_err(|_| wrong("panicked"))?;
        match *checked == Some(check(&mut call)?) {
            true => Ok(call),
            false => Err(wrong("gave other columns than before; it must always give the same")),
        }
    }
}

impl<T: Send + 'static, S: Scheme> Job for RowSet<T, S> {
    type Out = T;

    fn run(mut self, engine: &Engine) -> Result<T, Error> {
        let call = (self.lend)(&mut self.memory);
        engine.run_rows(call, None, &mut no_progress)?;
        Ok(self.memory)
    }

    fn submit(mut self, engine: &Engine) -> Result<Ticket<T>, Refused<Self>> {
        match check(&mut (self.lend)(&mut self.memory)) {
            Ok((kind, size)) => {
                self.checked = Some((kind, size));
                submit(&engine.0.queue, &engine.0.scheduler, self, size, |set| set)
            }
            Err(why) => Err(Refused { job: self, why }),
        }
    }
}

impl<T: Send + 'static, S: Scheme> Queued for RowSet<T, S> {
    type Out = T;
    const BY_ALL_THREADS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(self.checked.expect("it was checked when it was submitted").0)
    }

    fn run(
        scheduler: &Scheduler,
        mut sets: Vec<RowSet<T, S>>,
        is_wanted: IsWanted<'_>,
        sink: &mut dyn FnMut(usize, Result<T, Error>),
    ) -> Result<(), Error> {
        let run_calls = S::calls().rows;
        let mut lent: Vec<_> = sets.iter_mut().map(RowSet::lend).collect();
        let mut results = run_calls(scheduler, &mut lent, None, is_wanted, None);
        if lent.len() > 1 {
            // An error of one set's rows ended the call of all sets, so sets with such an error run again alone.
            let is_of_a_set = |why: &Error| matches!(why.kind(), ErrorKind::BadInput | ErrorKind::OutOfMemory);
            for (lent, result) in lent.iter_mut().zip(&mut results) {
                if lent.is_ok() && result.as_ref().is_err_and(is_of_a_set) {
                    *result = run_calls(scheduler, from_mut(lent), None, is_wanted, None).remove(0);
                }
            }
        }
        drop(lent);
        for (index, (RowSet { memory, .. }, result)) in sets.into_iter().zip(results).enumerate() {
            match result {
                Ok(()) => sink(index, Ok(memory)),
                Err(why) => {
                    let _ = caught(|| drop(memory));
                    sink(index, Err(why));
                }
            }
        }
        Ok(())
    }

    fn discard(memory: T) {
        drop(memory);
    }
}
