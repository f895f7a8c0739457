//! Sets of rows as jobs of tickets: they own their memory, since their callers may go on before they are done.

use super::KeySet;
use super::keys::check_keys;
use super::{
    KeyCall, KeyColumns, ResultCall, RowSigningKeys, RowStatus, RowVerifyingKeys, Rows, RowsCall, SignRows, VerifyRows,
    caught, no_progress,
};
use crate::tickets::Submit;
#[cfg(feature = "zkdilithium")]
use crate::zkdilithium::{self, params::SEED_BYTES};
use crate::{Error, ErrorKind, Params, Randomizer};
use hypergrove_engine::scheduler::{Queued, Scheduler, Size};
use hypergrove_engine::scheme::Kind;
use std::fmt;
use std::slice::from_mut;

/// A call of rows: what [`Engine::sign_rows`](crate::Engine::sign_rows) and its like take.
#[non_exhaustive]
pub enum RowCall<'a> {
    /// [`Engine::sign_rows`](crate::Engine::sign_rows).
    Sign {
        /// The keys and messages.
        rows: SignRows<'a>,
        /// Memory for the signatures.
        signatures: &'a mut [u8],
        /// Memory for the status of each row.
        statuses: &'a mut [RowStatus],
    },
    /// [`Engine::verify_rows`](crate::Engine::verify_rows).
    Verify {
        /// The keys, messages and signatures.
        rows: VerifyRows<'a>,
        /// Memory for the status of each row.
        statuses: &'a mut [RowStatus],
    },
    /// [`Engine::keygen_rows`](crate::Engine::keygen_rows), or with seeds
    /// [`Engine::keygen_rows_from_seeds`](crate::Engine::keygen_rows_from_seeds).
    Keygen {
        /// The set of the keys.
        params: &'static Params,
        /// The seeds. Without them the keys come from the operating system's randomness.
        seeds: Option<&'a [u8]>,
        /// Memory for the private keys.
        private: &'a mut [u8],
        /// Memory for the public keys.
        public: &'a mut [u8],
    },
    /// [`zkdilithium::Engine::sign_rows`].
    #[cfg(feature = "zkdilithium")]
    ZkDilithiumSign {
        /// The keys and messages.
        rows: zkdilithium::SignRows<'a>,
        /// Memory for the signatures.
        signatures: &'a mut [u8],
        /// Memory for the status of each row.
        statuses: &'a mut [RowStatus],
    },
    /// [`zkdilithium::Engine::verify_rows`].
    #[cfg(feature = "zkdilithium")]
    ZkDilithiumVerify {
        /// The keys, messages and signatures.
        rows: zkdilithium::VerifyRows<'a>,
        /// Memory for the status of each row.
        statuses: &'a mut [RowStatus],
    },
    /// [`zkdilithium::Engine::keygen_rows`], or with seeds [`zkdilithium::Engine::keygen_rows_from_seeds`].
    #[cfg(feature = "zkdilithium")]
    ZkDilithiumKeygen {
        /// The seeds. Without them the keys come from the operating system's randomness.
        seeds: Option<&'a [[u8; SEED_BYTES]]>,
        /// Memory for the private keys.
        private: &'a mut [u8],
        /// Memory for the public keys, if they are wanted.
        public: Option<&'a mut [u8]>,
    },
}

/// Without the columns: they may hold seeds and private keys.
impl fmt::Debug for RowCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowCall").finish_non_exhaustive()
    }
}

impl RowCall<'_> {
    /// What kind of program does it, and what it takes of a queue; or what is wrong with its columns.
    fn check(&self) -> Result<(Kind, Size), Error> {
        let (kind, rows, bytes) = match self {
            RowCall::Sign { rows, signatures, statuses } => {
                rows.check(signatures.len(), statuses.len())?;
                let given = if let Randomizer::Given(bytes) = rows.randomizer { bytes.len() } else { 0 };
                let inputs = rows.messages.size() + indices(&rows.keys) + given;
                (rows.kind(), statuses.len(), inputs + signatures.len() + statuses.len())
            }
            RowCall::Verify { rows, statuses } => {
                rows.check(0, statuses.len())?;
                let keys = match rows.keys {
                    RowVerifyingKeys::One(_) => 0,
                    RowVerifyingKeys::Table { of, .. } => size_of_val(of),
                    RowVerifyingKeys::Encoded { keys, .. } => keys.size(),
                };
                let inputs = rows.messages.size() + rows.signatures.size() + keys;
                (rows.kind(), statuses.len(), inputs + statuses.len())
            }
            RowCall::Keygen { params, seeds, private, public } => {
                let columns = [seeds.map(<[u8]>::len), Some(private.len()), Some(public.len())];
                let (rows, bytes) = check_keys(*params, columns)?;
                (params.kind(), rows, bytes)
            }
            #[cfg(feature = "zkdilithium")]
            RowCall::ZkDilithiumSign { rows, signatures, statuses } => {
                rows.check(signatures.len(), statuses.len())?;
                let inputs = rows.messages.size() + indices(&rows.keys);
                (rows.kind(), statuses.len(), inputs + signatures.len() + statuses.len())
            }
            #[cfg(feature = "zkdilithium")]
            RowCall::ZkDilithiumVerify { rows, statuses } => {
                rows.check(0, statuses.len())?;
                let keys = match rows.keys {
                    zkdilithium::RowVerifyingKeys::One(_) => 0,
                    zkdilithium::RowVerifyingKeys::Table { of, .. } => size_of_val(of),
                    zkdilithium::RowVerifyingKeys::Encoded(keys) => keys.size(),
                };
                let inputs = rows.messages.size() + rows.signatures.size() + keys;
                (rows.kind(), statuses.len(), inputs + statuses.len())
            }
            #[cfg(feature = "zkdilithium")]
            RowCall::ZkDilithiumKeygen { seeds, private, public } => {
                let columns = [seeds.map(size_of_val), Some(private.len()), public.as_ref().map(|public| public.len())];
                let (rows, bytes) = check_keys(zkdilithium::Keys, columns)?;
                (zkdilithium::Keys.kind(), rows, bytes)
            }
        };
        Ok((kind, Size { jobs: rows, bytes: bytes as u64 }))
    }
}

/// Runs calls of rows of one kind as one call of the scheduler. Gives the result of each; those that were not lent have one.
fn run_together(scheduler: &Scheduler, lent: &mut [Result<RowCall<'_>, Error>]) -> Vec<Result<(), Error>> {
    /// Runs those that match.
    macro_rules! run {
        ($lent:pat => $call:expr) => {
            run_all(scheduler, lent, |lent| {
                let $lent = lent else { unreachable!("its kind was checked") };
                $call
            })
        };
    }
    match lent.iter().find_map(|lent| lent.as_ref().ok()) {
        None => lent.iter().map(|lent| lent.as_ref().map(drop).map_err(Clone::clone)).collect(),
        Some(RowCall::Sign { .. }) => {
            run!(RowCall::Sign { rows, signatures, statuses } => ResultCall::new(&*rows, signatures, statuses))
        }
        Some(RowCall::Verify { .. }) => {
            run!(RowCall::Verify { rows, statuses } => ResultCall::new(&*rows, &mut [], statuses))
        }
        Some(RowCall::Keygen { .. }) => run!(RowCall::Keygen { params, seeds, private, public } => {
            KeyCall::new(*params, KeyColumns { seeds: *seeds, private, public: Some(public) })
        }),
        #[cfg(feature = "zkdilithium")]
        Some(RowCall::ZkDilithiumSign { .. }) => {
            run!(RowCall::ZkDilithiumSign { rows, signatures, statuses } => ResultCall::new(&*rows, signatures, statuses))
        }
        #[cfg(feature = "zkdilithium")]
        Some(RowCall::ZkDilithiumVerify { .. }) => {
            run!(RowCall::ZkDilithiumVerify { rows, statuses } => ResultCall::new(&*rows, &mut [], statuses))
        }
        #[cfg(feature = "zkdilithium")]
        Some(RowCall::ZkDilithiumKeygen { .. }) => run!(RowCall::ZkDilithiumKeygen { seeds, private, public } => {
            let seeds = seeds.map(<[_]>::as_flattened);
            KeyCall::new(zkdilithium::Keys, KeyColumns { seeds, private, public: public.as_deref_mut() })
        }),
    }
}

fn run_all<'c, 'a, C: RowsCall>(
    scheduler: &Scheduler,
    lent: &'c mut [Result<RowCall<'a>, Error>],
    call: impl Fn(&'c mut RowCall<'a>) -> Result<C, Error>,
) -> Vec<Result<(), Error>> {
    let mut calls = Vec::with_capacity(lent.len());
    let lent = lent.iter_mut().map(|lent| {
        calls.push(call(lent.as_mut().map_err(|why| why.clone())?)?);
        Ok(())
    });
    let lent: Vec<Result<(), Error>> = lent.collect();
    let done = caught(|| C::run(scheduler, &mut calls, &mut no_progress));
    let done = done.unwrap_or_else(|_| Err(scheduler.panicked("this set of rows")));
    let mut calls = calls.into_iter();
    let mut result = |()| calls.next().expect("a call for each that was lent").result(&done);
    lent.into_iter().map(|lent| lent.and_then(&mut result)).collect()
}

/// Bytes of a table's key indices.
fn indices<K>(keys: &RowSigningKeys<'_, K>) -> usize {
    match keys {
        RowSigningKeys::One(_) => 0,
        RowSigningKeys::Table { of, .. } => size_of_val(*of),
    }
}

/// Rows that own their memory, for [`Engine::submit`](crate::Engine::submit). The memory may be anything: `Vec`, `Arc`, `Bytes`,
/// [`Memory`](super::Memory). The ticket gives it back with the results in it. If the ticket is dropped, the memory is dropped when no
/// device uses it any more.
///
/// In a queue a set counts as its rows, and as the bytes of its columns. Columns that do not fit each other make `submit` refuse the set.
/// Sets of one type `T` and one kind that wait at the same time run together, and their rows share launches; so callers do best to use one type. Kind
/// means the parameter set, the operation and the number of cached layers. Keys, modes and randomizers may differ.
/// A ticket's error drops the memory, and the results that it has by then. The engine wipes no other memory than its own: keep private
/// keys in `Zeroizing` or in `Memory`.
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
pub struct RowSet<T> {
    /// The memory.
    pub memory: T,
    lend: for<'a> fn(&'a mut T) -> RowCall<'a>,
    /// What was checked when the set was submitted.
    checked: Option<(Kind, Size)>,
}

/// Without the memory: it may hold keys.
impl<T> fmt::Debug for RowSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSet").finish_non_exhaustive()
    }
}

impl<T> RowSet<T> {
    /// Makes a set of rows. `lend` says where the columns are in the memory; it is called when the set is submitted and when it is run, and
    /// must give the same columns.
    pub fn new(memory: T, lend: for<'a> fn(&'a mut T) -> RowCall<'a>) -> RowSet<T> {
        RowSet { memory, lend, checked: None }
    }

    /// The columns that were checked when the set was submitted. Not to lend them is an error of this set alone, also if that is by a panic.
    fn lend(&mut self) -> Result<RowCall<'_>, Error> {
        let wrong = |what: &str| Error::Value { what: format!("the function that lends a set of rows {what}") };
        let RowSet { memory, lend, checked } = self;
        let call = caught(move || lend(memory)).map_err(|_| wrong("panicked"))?;
        match *checked == Some(call.check()?) {
            true => Ok(call),
            false => Err(wrong("gave other columns than before; it must always give the same")),
        }
    }
}

impl<T: Send + 'static> Submit for RowSet<T> {
    type Out = T;
    type Owned = RowSet<T>;

    fn size(&mut self) -> Result<Size, Error> {
        let (kind, size) = (self.lend)(&mut self.memory).check()?;
        self.checked = Some((kind, size));
        Ok(size)
    }

    fn own(self) -> RowSet<T> {
        self
    }
}

impl<T: Send + 'static> Queued for RowSet<T> {
    type Out = T;
    const BY_ALL_THREADS: bool = true;

    fn ask(&self) -> Result<Kind, Error> {
        Ok(self.checked.expect("it was checked when it was submitted").0)
    }

    fn run(
        scheduler: &Scheduler,
        mut sets: Vec<RowSet<T>>,
        sink: &mut dyn FnMut(usize, Result<T, Error>),
    ) -> Result<(), Error> {
        let mut lent: Vec<_> = sets.iter_mut().map(RowSet::lend).collect();
        let mut results = run_together(scheduler, &mut lent);
        if lent.len() > 1 {
            // An error of one set's rows ended the call of all.
            let is_of_a_set = |why: &Error| matches!(why.kind(), ErrorKind::BadInput | ErrorKind::OutOfMemory);
            for (lent, result) in lent.iter_mut().zip(&mut results) {
                if lent.is_ok() && result.as_ref().is_err_and(is_of_a_set) {
                    *result = run_together(scheduler, from_mut(lent)).remove(0);
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
