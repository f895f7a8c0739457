//! zkDilithium as a scheme of the engine: how a device runs its operations.

use super::rows::RowMessages;
use super::{Fe, JobMessage, Message, Signature, SigningKey, VerifyingKey, ZkDilithium as Set, params::MUSIZE};
use crate::calls::Calls;
use crate::jobs::{Wiped, owned};
use crate::rows::{Column, RowStatus};
use crate::scheme::{Failed, KeyColumns, Scheme, Signing, Sizes, ToSign, ToVerify, Verifying};
use crate::{Error, Op as EngineOp, random};
use hypergrove_engine::programs::{Group, GroupFacts, typed};
use hypergrove_engine::scheduler::{Options, Place, Run};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Timing, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify};
use hypergrove_zkdilithium::keys::public_parts;
use hypergrove_zkdilithium::params::{NAME, PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKeyBytes};
use std::borrow::Cow;
use std::ops::Range;
use zeroize::Zeroize;

/// The fewest jobs that a thread lists for a program: listing one takes a few nanoseconds.
const JOBS_OF_A_THREAD: usize = 4096;

/// A message that its job owns.
pub enum OwnedMessage {
    /// See [`Message::Bytes`].
    Bytes(Vec<u8>),
    /// See [`Message::Block`].
    Block(Box<[Fe; MUSIZE]>),
    /// See [`Message::Mu`].
    Mu(Box<[Fe; MUSIZE]>),
}

impl Scheme for Set {
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
    type OwnedInput = OwnedMessage;
    const HAS_PLACES_FOR_JOBS: bool = true;

    fn set(self) -> Set {
        self
    }

    fn name(self) -> &'static str {
        NAME
    }

    fn sizes(self) -> Sizes {
        Sizes { seeds: SEED_BYTES, private: SK_BYTES, public: PK_BYTES, signature: SIG_BYTES }
    }

    fn kind(self, op: EngineOp, _: usize) -> Kind {
        Kind::zkdilithium(match op {
            EngineOp::Keygen => Op::Keygen,
            EngineOp::Sign => Op::Sign,
            // Keys have nothing to cache, so there is no such job.
            EngineOp::Verify | EngineOp::Cache => Op::Verify,
        })
    }

    fn of_private(_: &SigningKey) -> Set {
        Set
    }

    fn of_public(_: &VerifyingKey) -> Set {
        Set
    }

    fn check_messages(messages: &RowMessages<'_>, rows: usize) -> Result<(), Error> {
        messages.check(rows)
    }

    fn bytes_of_rows<'m, 'a: 'm>(messages: &RowMessages<'a>) -> Option<Column<'m>> {
        if let RowMessages::Bytes(column) = messages { Some(*column) } else { None }
    }

    fn message_of_row<'m, 'a: 'm>(
        messages: &RowMessages<'a>,
        (): (),
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<Message<'m>, RowStatus> {
        copied.map_or_else(|| messages.get(row), |bytes| Ok(Message::Bytes(bytes)))
    }

    fn size_of_rows(messages: &RowMessages<'_>, (): ()) -> usize {
        messages.size()
    }

    fn shorten_lifetimes<'m, 'a: 'm>((): (), (): ()) -> ((), ()) {
        ((), ())
    }

    fn borrow<'j, 'a: 'j>((): (), message: &'j JobMessage<'a>, (): ()) -> ((), Message<'j>, ()) {
        ((), message.borrowed(), ())
    }

    fn owned_bytes(message: &JobMessage<'_>) -> usize {
        if let JobMessage::Bytes(bytes) = message { owned(bytes) } else { 0 }
    }

    fn into_owned((): (), message: JobMessage<'_>, (): ()) -> OwnedMessage {
        match message {
            JobMessage::Bytes(bytes) => OwnedMessage::Bytes(bytes.into_owned()),
            JobMessage::Block(block) => OwnedMessage::Block(Box::new(*block)),
            JobMessage::Mu(mu) => OwnedMessage::Mu(Box::new(*mu)),
        }
    }

    fn size_of_input((): (), message: &JobMessage<'_>) -> usize {
        match message {
            JobMessage::Bytes(bytes) => bytes.len(),
            JobMessage::Block(fes) | JobMessage::Mu(fes) => size_of_val(*fes),
        }
    }

    fn lend(owned: &OwnedMessage) -> ((), JobMessage<'_>, ()) {
        let message = match owned {
            OwnedMessage::Bytes(bytes) => bytes.into(),
            OwnedMessage::Block(block) => JobMessage::Block(block),
            OwnedMessage::Mu(mu) => JobMessage::Mu(mu),
        };
        ((), message, ())
    }

    fn write_seeds(seed: &[u8; SEED_BYTES], to: &mut [u8]) {
        to.copy_from_slice(seed);
    }

    fn private_key(self, bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(bytes).expect("as many bytes as a key has")
    }

    fn public_key(self, bytes: &[u8]) -> VerifyingKey {
        VerifyingKey::from_bytes(bytes).expect("as many bytes as a key has")
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

    /// A signature that is checked stays in a buffer of its chunk until the check. A redundant engine keeps a second copy of each key.
    fn held(op: EngineOp, _: &GroupFacts, options: &Options) -> usize {
        let checks = options.redundant || options.verify_signatures;
        match op {
            EngineOp::Sign => {
                let signature = if checks { SIG_BYTES } else { 0 };
                signature + size_of::<(u32, ZkSign<'_>, (&SigningKey, u32, Message<'_>), [&[u8]; 2])>()
            }
            EngineOp::Keygen => {
                let again = if options.redundant { SK_BYTES } else { 0 };
                SEED_BYTES + size_of::<(&mut SigningKeyBytes, [u8; SEED_BYTES])>() + again
            }
            _ => size_of::<(u32, ZkVerify<'_>, bool)>(),
        }
    }

    /// Successive jobs whose key lies at the same address share one key and its check.
    fn sign(run: &Run<'_>, work: &Signing<'_, '_, Set>, range: Range<usize>, out: &mut [u8]) -> Result<Failed, Error> {
        sign(run, work, range, out.as_chunks_mut().0.iter_mut().collect())
    }

    /// Signs in place unless the engine checks signatures: without checks a buffer gains nothing. Keys are checked before they sign.
    fn sign_in_place(
        run: &Run<'_>,
        work: &Signing<'_, '_, Set>,
        out: &mut [&mut [u8]],
        _: &mut Vec<u8>,
    ) -> Option<Result<Failed, Error>> {
        let options = run.place.scheduler.options;
        let places = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
        // Otherwise signatures would be the caller's before they are compared and verified.
        (!options.redundant && !options.verify_signatures).then(|| sign(run, work, 0..work.jobs, places))
    }

    /// A redundant engine computes the verdicts twice and compares them.
    fn verify(run: &Run<'_>, work: &Verifying<'_, '_, Set>, _: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let (keys, key_of) = (work.keys)(0..work.jobs);
        let keys: Vec<&VerifyingKey> = keys.iter().map(|key| &**key).collect();
        let job = |i: usize| {
            let ToVerify { message, signature, .. } = (work.of)(i);
            (message, signature)
        };
        let verdicts = judge(run, &keys, &key_of, job)?;
        if let Some(place) = run.place.second() {
            compare(&place, "the verdict", &verdicts, &judge(&Run { place, ..*run }, &keys, &key_of, job)?)?;
        }
        Ok(verdicts)
    }

    /// Writes private keys to their columns, and public keys where there is a column for them. A redundant engine makes the keys twice and compares them.
    fn keygen(self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], _: &mut Vec<u8>) -> Result<(), Error> {
        fn places<'k>(keys: &'k mut [KeyColumns<'_>]) -> Vec<&'k mut SigningKeyBytes> {
            keys.iter_mut().flat_map(|keys| keys.private.as_chunks_mut().0).collect()
        }
        let drawn = seeds(&run.place, keys)?;
        let seeds = drawn.0.as_chunks().0;
        let make = |run: &Run<'_>, mut places: Vec<&mut SigningKeyBytes>| {
            program(run, seeds.len(), |program| program.keygen(seeds, &mut places))
        };
        make(run, places(keys))?;
        if let Some(place) = run.place.second() {
            let mut second = Wiped(vec![0; seeds.len() * SK_BYTES]);
            let second = second.0.as_chunks_mut().0;
            make(&Run { place, ..*run }, second.iter_mut().collect())?;
            compare(&place, "the key", &places(keys), &second.iter_mut().collect::<Vec<_>>())?;
        }
        let with_public = keys.iter_mut().filter(|keys| !keys.public.is_empty());
        let with_public = with_public.map(|keys| (keys.private.as_chunks().0, keys.public.as_chunks_mut().0));
        run.place.each_of(with_public.collect(), &write_public)
    }

    #[inline(never)]
    fn calls() -> &'static Calls<Set> {
        &Calls::OF
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
                sound.push((keys[*key as usize], *key, message));
                signatures.push(signature);
            }
            Err(why) => {
                signature.fill(0);
                failed.insert(i, why.clone());
            }
        }
    }
    if !sound.is_empty() {
        let made = sign_sound(run, &keys, &sound, expands, &mut signatures);
        made.inspect_err(|_| signatures.iter_mut().for_each(|signature| signature.zeroize()))?;
    }
    Ok(failed)
}

/// Signs with keys that passed their check. Each job has its key, the key's index in `keys`, and its message.
fn sign_sound(
    run: &Run<'_>,
    keys: &[&SigningKey],
    jobs: &[(&SigningKey, u32, Message<'_>)],
    expands: bool,
    signatures: &mut [&mut SignatureBytes],
) -> Result<(), Error> {
    let mut requests = Vec::with_capacity(jobs.len());
    for &(key, _, message) in jobs {
        requests.push(ZkSign { key: key.as_ref(), expanded: expands.then(|| key.made()), message });
    }
    program(run, jobs.len(), |program| program.sign(&requests, signatures))?;
    let Run { place, facts } = run;
    if place.scheduler.options.verify_signatures && !place.relocated {
        let group = Group { kind: Kind::zkdilithium(Op::Verify), ..facts.group };
        let run = Run { facts: &place.worker.programs.facts(group)?, ..*run };
        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let of: Vec<u32> = jobs.iter().map(|(_, of, _)| *of).collect();
        let made = |i: usize| (jobs[i].2, &signatures[i][..]);
        // The device that made a wrong signature is blamed.
        if judge(&run, &public.iter().collect::<Vec<_>>(), &of, made)?.contains(&false) {
            return Err(inconsistent(place, "a signature that it made does not verify".into()));
        }
    }
    Ok(())
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
    mut work: impl FnMut(&mut dyn ZkDilithium) -> Result<Timing, Error> + Send,
) -> Result<(), Error> {
    run.place.program(run.facts, (jobs, 1), &mut |program| {
        let ZkDilithiumProgram(program) = typed(program);
        work(&mut **program).map(Some)
    })
}

/// Fails if the second computation of a job gave another result than the first. The device is blamed.
fn compare<T: PartialEq>(place: &Place<'_>, what: &str, first: &[T], second: &[T]) -> Result<(), Error> {
    let differs = first.iter().zip(second).position(|(a, b)| a != b);
    match differs.or((first.len() != second.len()).then_some(0)) {
        None => Ok(()),
        Some(job) => Err(Error::differs(place.worker.device().id(), what, job)),
    }
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
    let requests = place.map(of.len(), JOBS_OF_A_THREAD, &one);
    let mut verdicts = Vec::with_capacity(of.len());
    program(run, of.len(), |program| program.verify(&requests, &mut verdicts))?;
    match verdicts.len() == of.len() {
        true => Ok(verdicts),
        false => Err(inconsistent(place, format!("it gave {} results for {} jobs", verdicts.len(), of.len()))),
    }
}

fn inconsistent(place: &Place<'_>, what: String) -> Error {
    Error::Inconsistent { device: place.worker.device().id(), what }
}
