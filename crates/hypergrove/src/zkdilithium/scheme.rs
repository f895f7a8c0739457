//! zkDilithium as a scheme of the engine: how a device runs its operations.

use super::rows::RowMessages;
use super::{Fe, JobMessage, Message, Signature, SigningKey, VerifyingKey, ZkDilithium as Set, params::MUSIZE};
use crate::calls::Calls;
use crate::jobs::owned;
use crate::rows::RowStatus;
use crate::scheme::{Failed, MessageColumn, Scheme, SignBatch, Sizes, ToSign, ToVerify, VerifyBatch};
use crate::types::{SchemeKey, SchemeTypes};
use crate::{Error, Op as EngineOp};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Checks, Computed, Parts, Place, Run};
use hypergrove_engine::scheme::{GroupFacts, Kind};
use hypergrove_engine::{Places, Timing, ZK_JOBS_OF_A_THREAD, ZkDilithium, ZkDilithiumProgram, ZkSign, ZkVerify};
use hypergrove_zkdilithium::keys::public_parts;
use hypergrove_zkdilithium::params::{NAME, PK_BYTES, SEED_BYTES, SIG_BYTES, SK_BYTES};
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKeyBytes};
use std::borrow::Cow;

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
        Sizes {
            seeds: SEED_BYTES,
            private: SK_BYTES,
            public: PK_BYTES,
            signature: SIG_BYTES,
            random: 0,
            verdict: 1,
            r: 0,
        }
    }

    fn kind(self, op: EngineOp, _: usize) -> Kind {
        Kind::zkdilithium(match op {
            EngineOp::Keygen => Op::Keygen,
            EngineOp::Sign => Op::Sign,
            // Keys have nothing to cache, so there is no such job.
            EngineOp::Verify | EngineOp::Cache => Op::Verify,
        })
    }

    fn message_column<'m, 'a: 'm>(messages: &RowMessages<'a>) -> MessageColumn<'m> {
        match messages {
            RowMessages::Bytes(column) => MessageColumn::Bytes(*column),
            RowMessages::Blocks(all) | RowMessages::Mus(all) => MessageColumn::Own(all.len(), size_of_val(*all)),
        }
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

    fn shorten<'m, 'a: 'm>((): ()) {}

    fn input<'a>((): (), message: JobMessage<'a>, (): ()) -> Input<'a>
    where
        'a: 'a,
    {
        Input::Message(message)
    }

    fn own_input((): (), message: JobMessage<'_>, (): ()) -> Input<'static> {
        match message {
            JobMessage::Bytes(bytes) => Input::Message(JobMessage::Bytes(bytes.into_owned().into())),
            JobMessage::Block(block) => Input::Block(Box::new(*block)),
            JobMessage::Mu(mu) => Input::Mu(Box::new(*mu)),
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
                size_of::<&mut SigningKeyBytes>() + again
            }
            _ => size_of::<(u32, ZkVerify<'_>, bool)>(),
        }
    }

    /// To expand a key checks it, too.
    fn check_signer(run: &Run<'_>, key: &SigningKey) -> Result<(), Error> {
        if run.facts.uses_expanded_keys() { key.expanded().map(drop) } else { key.check_again() }
    }

    fn sign(run: &Run<'_>, work: &SignBatch<'_, '_, Set>, out: Parts<'_, '_>) -> Result<Computed, Error> {
        let expands = run.facts.uses_expanded_keys();
        let request = |(i, key): (usize, &u32)| {
            let (key, ToSign { message, .. }) = (work.keys[*key as usize], (work.of)(i));
            ZkSign { key: key.as_ref(), expanded: expands.then(|| key.made()), message }
        };
        let requests: Vec<ZkSign<'_>> = work.key_of.iter().enumerate().map(request).collect();
        let mut signatures: Vec<&mut SignatureBytes> = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
        program(run, requests.len(), |program, places| program.sign(&requests, &mut signatures, places))?;
        Ok(Computed::All(Failed::new()))
    }

    /// The device that made a wrong signature is blamed: the key was checked before.
    fn blame(run: &Run<'_>, _: &SigningKey, _: usize) -> Result<Error, Error> {
        Err(inconsistent(&run.place, "a signature that it made does not verify".into()))
    }

    fn verify(run: &Run<'_>, work: &VerifyBatch<'_, '_, '_, Set>, out: Parts<'_, '_>) -> Result<(), Error> {
        let (place, expands, jobs) = (&run.place, run.facts.uses_expanded_keys(), work.key_of.len());
        if expands {
            place.map(work.keys.len(), 1, &|key| {
                work.keys[key].expanded();
            });
        }
        let one = |i: usize| {
            let (key, ToVerify { message, signature, .. }) = (&work.keys[work.key_of[i] as usize], (work.of)(i));
            ZkVerify { key: (**key).as_ref(), expanded: expands.then(|| key.expanded()), message, signature }
        };
        let requests = place.map(jobs, ZK_JOBS_OF_A_THREAD, &one);
        let mut verdicts = Vec::with_capacity(jobs);
        program(run, jobs, |program, places| program.verify(&requests, &mut verdicts, places))?;
        if verdicts.len() != jobs {
            return Err(inconsistent(place, format!("it gave {} results for {jobs} jobs", verdicts.len())));
        }
        let to = out.iter_mut().flat_map(|part| part.iter_mut());
        to.zip(verdicts).for_each(|(to, verdict)| *to = u8::from(verdict));
        Ok(())
    }

    fn judge(_: &ToVerify<'_, '_, Set>, verdict: &[u8]) -> bool {
        verdict == [1]
    }

    fn keygen(run: &Run<'_>, seeds: &[u8], out: Parts<'_, '_>) -> Result<(), Error> {
        let mut to: Vec<&mut SigningKeyBytes> = out.iter_mut().flat_map(|part| part.as_chunks_mut().0).collect();
        program(run, to.len(), |program, places| program.keygen(seeds.as_chunks().0, &mut to, places))
    }

    fn write_public(private: &[u8], public: &mut [u8]) {
        let [rho, t] = public_parts(private);
        let (to_rho, to_t) = public.split_at_mut(rho.len());
        to_rho.copy_from_slice(rho);
        to_t.copy_from_slice(t);
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

fn inconsistent(place: &Place<'_>, what: String) -> Error {
    Error::Inconsistent { device: place.worker.device().id(), what }
}
