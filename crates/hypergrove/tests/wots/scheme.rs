//! WOTS as a scheme of the engine.

use crate::program::{Program, kind};
use crate::wots::{self, N, SIGNATURE};
use hypergrove::rows::{Column, RowStatus};
use hypergrove::schemes::{
    Calls, Failed, MessageColumn, PublicKey, Scheme, SchemeKey, SchemeTypes, SignBatch, Sizes, ToSign, ToVerify,
    VerifyBatch,
};
use hypergrove::signature::Keypair;
use hypergrove::{Error, Op};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Checks, Computed, Parts, Place, Run};
use hypergrove_engine::scheme::GroupFacts;
use hypergrove_engine::scheme::Kind;
use std::borrow::Cow;

/// The only parameter set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Wots;

/// A seed, and the public key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Private(pub(crate) [u8; N], pub(crate) [u8; N]);
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Public(pub(crate) [u8; N]);

pub(crate) type Sign<'a> = hypergrove::schemes::SignJob<'a, Wots>;
pub(crate) type Verify<'a> = hypergrove::schemes::VerifyJob<'a, Wots>;

fn wrong(place: &Place<'_>, what: &str) -> Error {
    Error::Inconsistent { device: place.worker.device().id(), what: what.into() }
}

/// Has a device write a result of so many bytes for each job of a range.
fn once(
    Run { place, facts }: &Run<'_>,
    (op, out, size): (Op, Parts<'_, '_>, usize),
    job: &(impl Fn(usize, &mut [u8]) + Send + Sync),
) -> Result<Computed, Error> {
    let mut to: Vec<&mut [u8]> = out.iter_mut().flat_map(|part| part.chunks_exact_mut(size)).collect();
    place.program(facts, to.len(), &mut |program, places| {
        typed::<Program>(program).0.write((op, places), &mut to, job)
    })?;
    Ok(Computed::All(Failed::new()))
}

impl SchemeTypes for Wots {
    type Set = Wots;
    type SigningKey = Private;
    type VerifyingKey = Public;
    type Signature = Vec<u8>;
    type Seeds = [u8; N];
    type Mode<'a> = ();
    type Randomizer<'a> = ();
    type Message<'a> = &'a [u8];
    type JobMessage<'a> = Cow<'a, [u8]>;
    type RowMessages<'a> = Column<'a>;
    type Input<'a> = Cow<'a, [u8]>;
}

impl Scheme for Wots {
    fn set(self) -> Wots {
        self
    }
    fn name(self) -> &'static str {
        "WOTS+"
    }
    fn sizes(self) -> Sizes {
        Sizes { seeds: N, private: 2 * N, public: N, signature: SIGNATURE, random: 0, verdict: 1, r: 0 }
    }
    fn kind(self, op: Op, _: usize) -> Kind {
        kind(op)
    }
    fn message_column<'m, 'a: 'm>(messages: &Column<'a>) -> MessageColumn<'m> {
        MessageColumn::Bytes(*messages)
    }
    fn row<'m, 'a: 'm>(
        self,
        messages: &Column<'a>,
        (): (),
        (): (),
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<(&'m [u8], ()), RowStatus> {
        Ok((copied.or_else(|| messages.get(row)).ok_or(RowStatus::BadOffsets)?, ()))
    }
    fn shorten<'m, 'a: 'm>((): ()) {}
    fn input<'a>((): (), message: Cow<'a, [u8]>, (): ()) -> Cow<'a, [u8]>
    where
        'a: 'a,
    {
        message
    }
    fn own_input((): (), message: Cow<'_, [u8]>, (): ()) -> Cow<'static, [u8]> {
        message.into_owned().into()
    }
    fn borrow<'j>(message: &'j Cow<'_, [u8]>) -> ((), &'j [u8], ()) {
        ((), message, ())
    }
    fn owned_bytes(_: &Cow<'_, [u8]>) -> usize {
        0
    }
    fn size_of_input((): (), message: &Cow<'_, [u8]>) -> usize {
        message.len()
    }
    fn write_seeds(seed: &[u8; N], to: &mut [u8]) {
        to.copy_from_slice(seed);
    }
    fn signature(self, bytes: Cow<'_, [u8]>) -> Vec<u8> {
        bytes.into_owned()
    }
    fn output(self, _: Op, _: &GroupFacts) -> usize {
        SIGNATURE
    }
    fn held(_: Op, _: &GroupFacts, _: Checks) -> usize {
        SIGNATURE
    }

    fn sign(run: &Run<'_>, work: &SignBatch<'_, '_, Wots>, out: Parts<'_, '_>) -> Result<Computed, Error> {
        once(run, (Op::Sign, out, SIGNATURE), &|i, to| {
            let ToSign { key, message, .. } = (work.of)(i);
            wots::sign(&key.0, message, to);
        })
    }
    fn blame(run: &Run<'_>, _: &Private, _: usize) -> Result<Error, Error> {
        Err(wrong(&run.place, "a signature does not verify"))
    }
    fn verify(run: &Run<'_>, work: &VerifyBatch<'_, '_, '_, Wots>, out: Parts<'_, '_>) -> Result<(), Error> {
        let done = once(run, (Op::Verify, out, 1), &|i, to| {
            let ToVerify { key, message, signature, .. } = (work.of)(i);
            let public = match key {
                PublicKey::Key(Public(bytes)) => bytes,
                PublicKey::Bytes(bytes) => bytes,
            };
            to[0] = u8::from(wots::verify(public, message, signature));
        });
        done.map(drop)
    }
    fn judge(_: &ToVerify<'_, '_, Wots>, verdict: &[u8]) -> bool {
        verdict == [1]
    }
    fn keygen(run: &Run<'_>, seeds: &[u8], out: Parts<'_, '_>) -> Result<(), Error> {
        let seeds: &[[u8; N]] = seeds.as_chunks().0;
        let done = once(run, (Op::Keygen, out, 2 * N), &|i, to| {
            to[..N].copy_from_slice(&seeds[i]);
            to[N..].copy_from_slice(&wots::public(&seeds[i]));
        });
        done.map(drop)
    }
    fn write_public(private: &[u8], public: &mut [u8]) {
        public.copy_from_slice(&private[N..]);
    }
    #[inline(never)]
    fn calls() -> &'static Calls<Wots> {
        &Calls::OF
    }
}

impl Keypair for Private {
    type VerifyingKey = Public;
    fn verifying_key(&self) -> Public {
        Public(self.1)
    }
}

impl SchemeKey<Wots> for Private {
    fn scheme(&self) -> Wots {
        Wots
    }
    fn of_bytes(_: Wots, bytes: &[u8]) -> Private {
        Private(bytes[..N].try_into().unwrap(), bytes[N..].try_into().unwrap())
    }
}

impl SchemeKey<Wots> for Public {
    fn scheme(&self) -> Wots {
        Wots
    }
    fn of_bytes(_: Wots, bytes: &[u8]) -> Public {
        Public(bytes.try_into().unwrap())
    }
}
