//! The engine's calls of rows.

use super::columns::{CallColumns, MessageRows, SignatureRows};
use super::foreign::RowMemory;
use super::status::RowStatus;
use crate::Error;
use crate::engine::Engine;
use crate::flow::{Flow, Progress, no_progress};
use crate::scheme::{ParameterSet, Scheme};
use hypergrove_engine::scheduler::Memory;

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
    /// rows have the same key, use [`RowVerifyingKeys::Table`](super::RowVerifyingKeys::Table), or sort the rows by key: neighbours share a decoded key.
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
