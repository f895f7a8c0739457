//! Sets of rows as jobs. Sets own their memory, because callers of tickets may go on before the rows are done.

use super::block::{self, CallOfRows, Progress, Rows, caught, check_keys, check_rows, no_progress};
use super::columns::CallColumns;
use super::foreign::RowMemory;
use super::of_scheme::KeyRows;
use crate::calls::submit;
use crate::jobs::Refused;
use crate::scheme::{ParameterSet, Scheme};
use crate::tickets::Job;
use crate::{Engine, Error, ErrorKind, SlhDsa};
use hypergrove_engine::scheduler::{IsWanted, Queued, Scheduler, Size, Ticket};
use hypergrove_engine::scheme::Kind;
use std::fmt;
use std::slice::from_mut;

/// SLH-DSA's [`CallColumns`].
pub type RowCall<'a> = CallColumns<'a, 'a, SlhDsa>;

impl<S: Scheme> CallColumns<'_, '_, S> {
    /// Checks the columns of the call. Returns the kind of its program, and the size that it takes in a queue.
    fn check(&self) -> Result<(Kind, Size), Error> {
        let (kind, jobs, bytes) = match self {
            CallColumns::Sign { rows, signatures, statuses } => {
                check_rows(rows, signatures.len(), statuses.len())?;
                (rows.kind(), statuses.len(), rows.inputs() + signatures.len() + statuses.len())
            }
            CallColumns::Verify { rows, statuses } => {
                check_rows(rows, 0, statuses.len())?;
                (rows.kind(), statuses.len(), rows.inputs() + statuses.len())
            }
            CallColumns::Keygen { params, seeds, private, public } => {
                let (rows, public) =
                    (KeyRows { set: params.scheme(), seeds: *seeds }, public.as_ref().map(|public| public.len()));
                let count = check_keys(rows, private.len(), public)?;
                (rows.kind(), count, rows.inputs() + private.len() + public.unwrap_or(0))
            }
        };
        Ok((kind, Size { jobs, bytes: bytes as u64 }))
    }
}

/// Runs calls of one kind as one call of the scheduler; see [`block::run_calls`]. A call that was not lent keeps its error. Signatures go to the memory
/// `into`, if there is one, in place of the call's.
pub(crate) fn run_calls<S: Scheme>(
    scheduler: &Scheduler,
    lent: &mut [Result<CallColumns<'_, '_, S>, Error>],
    mut into: Option<RowMemory<'_>>,
    is_wanted: IsWanted<'_>,
    progress: Option<Progress<'_>>,
) -> Vec<Result<(), Error>> {
    /// Runs the calls, all of which match the pattern.
    macro_rules! run {
        ($columns:pat => $call:expr) => {{
            let made = lent.iter_mut().map(|lent| {
                let $columns = lent.as_mut().map_err(|why| why.clone())? else { unreachable!("its kind was checked") };
                $call
            });
            let made = made.collect();
            block::run_calls(scheduler, made, is_wanted, progress)
        }};
    }
    match lent.iter().find_map(|lent| lent.as_ref().ok()) {
        Some(CallColumns::Sign { .. }) => run!(CallColumns::Sign { rows, signatures, statuses } => {
            CallOfRows::new(&*rows, into.take().unwrap_or(RowMemory::Own(signatures)), statuses)
        }),
        Some(CallColumns::Verify { .. }) => run!(CallColumns::Verify { rows, statuses } => {
            CallOfRows::new(&*rows, RowMemory::Own(&mut []), statuses)
        }),
        // No call was lent, or all of them make keys.
        _ => run!(CallColumns::Keygen { params, seeds, private, public } => {
            CallOfRows::of_keys(KeyRows { set: params.scheme(), seeds: *seeds }, private, public.as_deref_mut())
        }),
    }
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
        let call = caught(move || lend(memory)).map_err(|_| wrong("panicked"))?;
        match *checked == Some(call.check()?) {
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
        match (self.lend)(&mut self.memory).check() {
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
