//! zkDilithium as a scheme of the engine: how a device runs its operations.

use super::rows::RowMessages;
use super::{Fe, JobMessage, Message, Signature, SigningKey, VerifyingKey, ZkDilithium as Set, params::MUSIZE};
use crate::calls::Calls;
use crate::jobs::owned;
use crate::random::random;
use crate::rows::{Column, RowStatus};
use crate::scheme::{Failed, KeyColumns, Scheme, Signing, Sizes, ToSign, ToVerify, Verifying, compute_private};
use crate::types::{SchemeKey, SchemeTypes};
use crate::{Error, Op as EngineOp};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Checks, Computed, Parts, Place, Run, Wiped, room};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::scheme::{Group, GroupFacts};
use hypergrove_engine::{Places, Timing, ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify};
use hypergrove_zkdilithium::keys::public_parts;
use hypergrove_zkdilithium::params::{NAME, PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKeyBytes};
use std::borrow::Cow;
use std::ops::Range;
use zeroize::Zeroize;

/// The message of a job, which the job may own.
pub enum Input<'a> {
    /// A message that is borrowed, or bytes.
    Message(JobMessage<'a>),
    /// See [`Message::Block`].
    Block(Box<[Fe; MUSIZE]>),
    /// See [`Message::Mu`].
    Mu(Box<[Fe; MUSIZE]>),
}

impl SchemeTypes for Set {
    type Set = Set;
    type SigningKey = SigningKey;
    type VerifyingKey = VerifyingKey;
    type Signature = Signature;
    type Seeds = [u8; SEED_BYTES];
    type Mode<'a> = ();
    type Randomizer<'a> = ();
    type Message<'a> = Message<'a>;
    type JobMessage<'a> = JobMessage<'a>;
    type RowMessages<'a> = RowMessages<'a>;
    type Input<'a> = Input<'a>;
}

impl Scheme for Set {
    const HAS_PLACES_FOR_JOBS: bool = true;

    fn set(self) -> Set {
        self
    }

    fn name(self) -> &'static str {
        NAME
    }

    fn sizes(self) -> Sizes {
        Sizes { seeds: SEED_BYTES, private: SK_BYTES, public: PK_BYTES, signature: SIG_BYTES, r: 0 }
    }

    fn kind(self, op: EngineOp, _: usize) -> Kind {
        Kind::zkdilithium(match op {
            EngineOp::Keygen => Op::Keygen,
            EngineOp::Sign => Op::Sign,
            // Keys have nothing to cache, so there is no such job.
            EngineOp::Verify | EngineOp::Cache => Op::Verify,
        })
    }

    fn check_messages(messages: &RowMessages<'_>, rows: usize) -> Result<(), Error> {
        messages.check(rows)
    }

    fn bytes_of_rows<'m, 'a: 'm>(messages: &RowMessages<'a>) -> Option<Column<'m>> {
        if let RowMessages::Bytes(column) = messages { Some(*column) } else { None }
    }

    fn row<'m, 'a: 'm>(
        self,
        messages: &RowMessages<'a>,
        (): (),
        (): (),
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<(Message<'m>, ()), RowStatus> {
        let message = copied.map_or_else(|| messages.get(row), |bytes| Ok(Message::Bytes(bytes)))?;
        Ok((message, ()))
    }

    fn size_of_rows(messages: &RowMessages<'_>, (): ()) -> usize {
        messages.size()
    }

    fn shorten<'m, 'a: 'm>((): ()) {}

    fn input<'a>((): (), message: JobMessage<'a>, (): ()) -> Input<'a>
    where
        'a: 'a,
    {
        Input::Message(message)
    }

    fn into_owned(input: Input<'_>) -> Input<'static> {
        match input {
            Input::Message(JobMessage::Bytes(bytes)) => Input::Message(JobMessage::Bytes(bytes.into_owned().into())),
            Input::Message(JobMessage::Block(block)) => Input::Block(Box::new(*block)),
            Input::Message(JobMessage::Mu(mu)) => Input::Mu(Box::new(*mu)),
            Input::Block(block) => Input::Block(block),
            Input::Mu(mu) => Input::Mu(mu),
        }
    }

    fn borrow<'j>(input: &'j Input<'_>) -> ((), Message<'j>, ()) {
        let message = match input {
            Input::Message(message) => message.borrowed(),
            Input::Block(block) => Message::Block(block),
            Input::Mu(mu) => Message::Mu(mu),
        };
        ((), message, ())
    }

    fn owned_bytes(input: &Input<'_>) -> usize {
        if let Input::Message(JobMessage::Bytes(bytes)) = input { owned(bytes) } else { 0 }
    }

    fn size_of_input((): (), message: &JobMessage<'_>) -> usize {
        match message {
            JobMessage::Bytes(bytes) => bytes.len(),
            JobMessage::Block(fes) | JobMessage::Mu(fes) => size_of_val(*fes),
        }
    }

    fn write_seeds(seed: &[u8; SEED_BYTES], to: &mut [u8]) {
        to.copy_from_slice(seed);
    }

    fn signature(self, bytes: Cow<'_, [u8]>) -> Signature {
        Signature::from_bytes(bytes).expect("as many bytes as a signature has")
    }

    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
    }

    fn output(self, op: EngineOp, _: &GroupFacts) -> usize {
        if op == EngineOp::Sign { SIG_BYTES } else { size_of::<Result<SigningKey, Error>>() }
    }

    /// A signature that is checked stays in a buffer of its chunk until the check. Redundant work keeps a second copy of each key.
    fn held(op: EngineOp, _: &GroupFacts, checks: Checks) -> usize {
        let is_staged = checks.redundant || checks.verify_signatures;
        match op {
            EngineOp::Sign => {
                let signature = if is_staged { SIG_BYTES } else { 0 };
                signature + size_of::<(u32, ZkSign<'_>, (&SigningKey, Message<'_>), [&[u8]; 2])>()
            }
            EngineOp::Keygen => {
                let again = if checks.redundant { SK_BYTES } else { 0 };
                SEED_BYTES + size_of::<(&mut SigningKeyBytes, [u8; SEED_BYTES])>() + again
            }
            _ => size_of::<(u32, ZkVerify<'_>, bool)>(),
        }
    }

    /// Successive jobs whose key lies at the same address share one key and its check. Keys are checked before they sign.
    fn sign(
        run: &Run<'_>,
        work: &Signing<'_, '_, Set>,
        range: Range<usize>,
        _: &Failed,
        out: Parts<'_, '_>,
    ) -> Result<Computed, Error> {
        let places = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
        sign(run, work, range, places).map(Computed::All)
    }

    fn check_signatures(
        run: &Run<'_>,
        work: &Signing<'_, '_, Set>,
        range: Range<usize>,
        failed: &Failed,
        signatures: &[u8],
    ) -> Result<Failed, Error> {
        let group = Group { kind: Kind::zkdilithium(Op::Verify), ..run.facts.group };
        let run = Run { facts: &run.place.worker.programs.facts(group)?, ..*run };
        let (keys, of) = (work.keys)(range.clone());
        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let sound: Vec<usize> = (0..range.len()).filter(|job| !failed.contains_key(job)).collect();
        let of: Vec<u32> = sound.iter().map(|job| of[*job]).collect();
        let signatures: &[SignatureBytes] = signatures.as_chunks().0;
        let made = |i: usize| ((work.of)(range.start + sound[i]).message, &signatures[sound[i]][..]);
        // The device that made a wrong signature is blamed.
        if judge(&run, &public.iter().collect::<Vec<_>>(), &of, made)?.contains(&false) {
            return Err(inconsistent(&run.place, "a signature that it made does not verify".into()));
        }
        Ok(Failed::new())
    }

    fn verify(run: &Run<'_>, work: &Verifying<'_, '_, Set>, memory: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, out: Parts<'_, '_>| {
            let (keys, key_of) = (work.keys)(range.clone());
            let keys: Vec<&VerifyingKey> = keys.iter().map(|key| &**key).collect();
            let verdicts = judge(run, &keys, &key_of, |i: usize| {
                let ToVerify { message, signature, .. } = (work.of)(range.start + i);
                (message, signature)
            })?;
            let to = out.iter_mut().flat_map(|part| part.iter_mut());
            to.zip(verdicts).for_each(|(to, verdict)| *to = u8::from(verdict));
            Ok(Computed::All(Failed::new()))
        };
        let verdicts = room(memory, work.jobs);
        compute_private(run, ("the verdict", work.jobs, 1), &compute, &mut [&mut *verdicts])?;
        Ok(verdicts.iter().map(|verdict| *verdict == 1).collect())
    }

    /// Writes private keys to their columns, and public keys where there is a column for them.
    fn keygen(self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], _: &mut Vec<u8>) -> Result<(), Error> {
        let drawn = seeds(&run.place, keys)?;
        let seeds = drawn.0.as_chunks().0;
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, out: Parts<'_, '_>| {
            let mut to: Vec<&mut SigningKeyBytes> = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
            program(run, range.len(), |program, places| program.keygen(&seeds[range.clone()], &mut to, places))?;
            Ok(Computed::All(Failed::new()))
        };
        let mut private: Vec<&mut [u8]> = keys.iter_mut().map(|keys| &mut *keys.private).collect();
        compute_private(run, ("the key", seeds.len(), SK_BYTES), &compute, &mut private)?;
        let with_public = keys.iter_mut().filter(|keys| !keys.public.is_empty());
        let with_public = with_public.map(|keys| (keys.private.as_chunks().0, keys.public.as_chunks_mut().0));
        run.place.each_of(with_public.collect(), &write_public)
    }

    #[inline(never)]
    fn calls() -> &'static Calls<Set> {
        &Calls::OF
    }
}

impl SchemeKey<Set> for SigningKey {
    fn scheme(&self) -> Set {
        Set
    }

    fn of_bytes(_: Set, bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(bytes).expect("as many bytes as a key has")
    }
}

impl SchemeKey<Set> for VerifyingKey {
    fn scheme(&self) -> Set {
        Set
    }

    fn of_bytes(_: Set, bytes: &[u8]) -> VerifyingKey {
        VerifyingKey::from_bytes(bytes).expect("as many bytes as a key has")
    }
}

/// Signs each message of a range into its place. The place is zero after an error and for a damaged key. Returns the jobs whose keys are damaged.
fn sign(
    run: &Run<'_>,
    work: &Signing<'_, '_, Set>,
    range: Range<usize>,
    places: Vec<&mut SignatureBytes>,
) -> Result<Failed, Error> {
    assert_eq!(places.len(), range.len(), "each message has its place");
    let (keys, key_of) = (work.keys)(range.clone());
    let expands = run.facts.uses_expanded_keys();
    // To expand a key checks it, too.
    let checked = each(&run.place, &keys, |key| match expands {
        true => key.expanded().map(drop),
        false => key.check_again(),
    });
    let (mut sound, mut signatures) = (Vec::with_capacity(key_of.len()), Vec::with_capacity(key_of.len()));
    let mut failed = Failed::new();
    for ((i, key), signature) in key_of.iter().enumerate().zip(places) {
        match &checked[*key as usize] {
            Ok(()) => {
                let ToSign { message, .. } = (work.of)(range.start + i);
                sound.push((keys[*key as usize], message));
                signatures.push(signature);
            }
            Err(why) => {
                signature.fill(0);
                failed.insert(i, why.clone());
            }
        }
    }
    if !sound.is_empty() {
        let made = sign_sound(run, &sound, expands, &mut signatures);
        made.inspect_err(|_| signatures.iter_mut().for_each(|signature| signature.zeroize()))?;
    }
    Ok(failed)
}

/// Signs with keys that passed their check.
fn sign_sound(
    run: &Run<'_>,
    jobs: &[(&SigningKey, Message<'_>)],
    expands: bool,
    signatures: &mut [&mut SignatureBytes],
) -> Result<(), Error> {
    let mut requests = Vec::with_capacity(jobs.len());
    for &(key, message) in jobs {
        requests.push(ZkSign { key: key.as_ref(), expanded: expands.then(|| key.made()), message });
    }
    program(run, jobs.len(), |program, places| program.sign(&requests, signatures, places))
}

/// The seeds of all keys: the caller's, or from the operating system, drawn only now that a device is about to use them.
fn seeds(place: &Place<'_>, keys: &[KeyColumns<'_>]) -> Result<Wiped, Error> {
    let seed_bytes = |keys: &KeyColumns<'_>| keys.private.len() / SK_BYTES * SEED_BYTES;
    let mut all = Wiped(vec![0; keys.iter().map(seed_bytes).sum()]);
    let mut left = &mut all.0[..];
    let parts = keys.iter().map(|keys| {
        let to = left.split_off_mut(..seed_bytes(keys)).expect("memory for all seeds");
        (to, keys.seeds)
    });
    // For a full chunk, one thread would take longer to write the seeds than a GPU takes for the keys.
    place.each_of(parts.collect(), &|(to, seeds): (&mut [u8], Option<&[u8]>)| match seeds {
        None => random(to),
        Some(seeds) => {
            to.copy_from_slice(seeds);
            Ok(())
        }
    })?;
    Ok(all)
}

/// Writes the public key of each private key.
fn write_public((private, public): (&[SigningKeyBytes], &mut [[u8; PK_BYTES]])) -> Result<(), Error> {
    for (public, private) in public.iter_mut().zip(private) {
        let [rho, t] = public_parts(private);
        let (to_rho, to_t) = public.split_at_mut(rho.len());
        to_rho.copy_from_slice(rho);
        to_t.copy_from_slice(t);
    }
    Ok(())
}

/// Applies `work` to each item, on the threads of `place`. Returns the results in order.
fn each<T: Sync, R: Send>(place: &Place<'_>, items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    place.map(items.len(), 1, &|i| work(&items[i]))
}

fn program(
    run: &Run<'_>,
    jobs: usize,
    mut work: impl FnMut(&mut dyn ZkDilithium, Places) -> Result<Timing, Error> + Send,
) -> Result<(), Error> {
    run.place.program(run.facts, jobs, &mut |program, places| {
        let ZkDilithiumProgram(program) = typed(program);
        work(&mut **program, places)
    })
}

/// Computes each verdict once, without the engine's checks.
fn judge<'m>(
    run: &Run<'_>,
    keys: &[&VerifyingKey],
    of: &[u32],
    job: impl Fn(usize) -> (Message<'m>, &'m [u8]) + Sync,
) -> Result<Vec<bool>, Error> {
    let (place, expands) = (&run.place, run.facts.uses_expanded_keys());
    if expands {
        each(place, keys, |key| {
            key.expanded();
        });
    }
    let one = |i: usize| {
        let (key, (message, signature)) = (keys[of[i] as usize], job(i));
        ZkVerify { key: key.as_ref(), expanded: expands.then(|| key.expanded()), message, signature }
    };
    let requests = place.map(of.len(), ZK_JOBS_OF_A_THREAD, &one);
    let mut verdicts = Vec::with_capacity(of.len());
    program(run, of.len(), |program, places| program.verify(&requests, &mut verdicts, places))?;
    match verdicts.len() == of.len() {
        true => Ok(verdicts),
        false => Err(inconsistent(place, format!("it gave {} results for {} jobs", verdicts.len(), of.len()))),
    }
}

fn inconsistent(place: &Place<'_>, what: String) -> Error {
    Error::Inconsistent { device: place.worker.device().id(), what }
}
