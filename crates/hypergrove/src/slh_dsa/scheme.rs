//! SLH-DSA as the facade's trait `Scheme`.

use super::digests::{SignDigests, VerifyDigests};
use super::distinct::distinct;
use super::inputs::{Input, JobMessage, Message, Randomizer, Seeds, SlhDsa, context};
use super::run::{blame, compare_roots};
use super::trees::grow;
use crate::calls::Calls;
use crate::jobs;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::rows::{Column, RowStatus};
use crate::run::KEYS_OF_A_THREAD;
use crate::scheme::{Failed, MessageColumn, PublicKey, Scheme, SignBatch, Sizes, ToVerify, VerifyBatch};
use crate::types::{SchemeKey, SchemeTypes};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Checks, Computed, Parts, Run};
use hypergrove_engine::scheme::{GroupFacts, Kind};
use hypergrove_engine::{Accept, Batch, Error, Key, Places, SlhDsaProgram, Work};
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{MessageError, Mode, Params, Position};
use hypergrove_taint::{declassified, declassify};
use std::borrow::Cow;
use std::sync::OnceLock;

impl SchemeTypes for SlhDsa {
    type Set = &'static Params;
    type SigningKey = SigningKey;
    type VerifyingKey = VerifyingKey;
    type Signature = Signature;
    type Seeds = Seeds;
    type Mode<'a> = Mode<'a>;
    type Randomizer<'a> = Randomizer<'a>;
    type Message<'a> = Message<'a>;
    type JobMessage<'a> = JobMessage<'a>;
    type RowMessages<'a> = Column<'a>;
    type Input<'a> = Input<'a>;
}

impl Scheme for SlhDsa {
    fn set(self) -> &'static Params {
        self.0
    }

    fn name(self) -> &'static str {
        self.0.name
    }

    /// A private key is SK.seed ‖ SK.prf ‖ PK.seed ‖ PK.root. The seeds are the first three of these.
    fn sizes(self) -> Sizes {
        let (seeds, r) = (3 * self.n, self.r_range().end);
        Sizes {
            seeds,
            private: self.sk_bytes(),
            public: self.pk_bytes(),
            signature: self.sig_bytes(),
            random: self.n,
            verdict: self.n,
            r,
        }
    }

    fn kind(self, op: Op, cached_layers: usize) -> Kind {
        Kind::slh_dsa(self.0, op, cached_layers)
    }

    fn check_mode(mode: Mode<'_>) -> Result<(), Error> {
        // Only the context concerns the whole call, so no message is needed here. A digest of the wrong length is an error of its message alone.
        match mode.check(b"") {
            Err(why @ MessageError::Context { .. }) => Err(why.into()),
            _ => Ok(()),
        }
    }

    fn given<'a>(randomizer: Randomizer<'a>) -> Option<&'a [u8]>
    where
        'a: 'a,
    {
        if let Randomizer::Given(bytes) = randomizer { Some(bytes) } else { None }
    }

    fn is_fresh(randomizer: Randomizer<'_>) -> bool {
        randomizer == Randomizer::Hedged
    }

    fn message_column<'m, 'a: 'm>(messages: &Column<'a>) -> MessageColumn<'m> {
        MessageColumn::Bytes(*messages)
    }

    fn row<'m, 'a: 'm>(
        self,
        messages: &Column<'a>,
        mode: Mode<'_>,
        randomizer: Randomizer<'a>,
        row: usize,
        copied: Option<&'m [u8]>,
    ) -> Result<(Message<'m>, Randomizer<'m>), RowStatus> {
        let message = copied.or_else(|| messages.get(row)).ok_or(RowStatus::BadOffsets)?;
        mode.check(message).map_err(|_| RowStatus::DigestLength)?;
        let randomizer = match randomizer {
            Randomizer::Given(bytes) => Randomizer::Given(&bytes[row * self.n..][..self.n]),
            other => other,
        };
        Ok((Message::Bytes(message), randomizer))
    }

    fn shorten<'m, 'a: 'm>(mode: Mode<'a>) -> Mode<'m> {
        mode
    }

    fn input<'a>(mode: Mode<'a>, message: JobMessage<'a>, randomizer: Randomizer<'a>) -> Input<'a>
    where
        'a: 'a,
    {
        Input { mode, message, randomizer, own: None }
    }

    fn own_input(mode: Mode<'_>, message: JobMessage<'_>, randomizer: Randomizer<'_>) -> Input<'static> {
        Input::owned(mode, message, randomizer)
    }

    fn borrow<'j>(input: &'j Input<'_>) -> (Mode<'j>, Message<'j>, Randomizer<'j>) {
        input.read()
    }

    fn owned_bytes(input: &Input<'_>) -> usize {
        if let JobMessage::Bytes(bytes) = &input.message { jobs::owned(bytes) } else { 0 }
    }

    fn size_of_input(mode: Mode<'_>, message: &JobMessage<'_>) -> usize {
        let message = if let JobMessage::Bytes(bytes) = message { bytes.len() } else { 0 };
        message + context(&mode).len()
    }

    fn check_seeds(self, Seeds { sk_seed, sk_prf, pk_seed }: &Seeds) -> Result<(), Error> {
        let parts = [("SK.seed", &**sk_seed), ("SK.prf", &**sk_prf), ("PK.seed", pk_seed)];
        parts.into_iter().try_for_each(|(what, seed)| Error::check_length(what, self.n, seed.len()))
    }

    fn write_seeds(Seeds { sk_seed, sk_prf, pk_seed }: &Seeds, to: &mut [u8]) {
        for (to, part) in to.chunks_exact_mut(pk_seed.len()).zip([&**sk_seed, &**sk_prf, pk_seed]) {
            to.copy_from_slice(part);
        }
    }

    fn signature(self, bytes: Cow<'_, [u8]>) -> Signature {
        Signature::from_bytes(self.0, bytes).expect("as many bytes as a signature has")
    }

    fn output(self, _: Op, facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn held(op: Op, facts: &GroupFacts, _: Checks) -> usize {
        let meanwhile = match op {
            Op::Keygen => size_of::<(&[u8], Key<'_>, u32)>(),
            _ => size_of::<(Position, &[u8], u32)>(),
        };
        facts.plan().out_bytes() + meanwhile
    }

    const KEYS_OF_A_CHECK: usize = 512;

    fn check_signer(_: &Run<'_>, key: &SigningKey) -> Result<(), Error> {
        if key.is_unchanged() { Ok(()) } else { Err(Error::changed(key.params().name)) }
    }

    /// Signs jobs whose keys are unchanged. `fresh` has n bytes for each job if any is hedged.
    ///
    /// FIPS 205, Algorithm 19: lines 1–10 in `ToSign::randomized`, the others in the program.
    ///
    /// Where the program grows the top trees, their roots must be PK.root of the keys, before any signature leaves the device: one-time keys sign the
    /// roots of the lower layers, and a wrong root now and the right one later would use such a key twice.
    fn sign(run: &Run<'_>, work: &SignBatch<'_, '_, SlhDsa>, out: Parts<'_, '_>) -> Result<Computed, Error> {
        let SignBatch { of, keys, key_of, fresh } = *work;
        let (plan, n) = (run.facts.plan(), run.facts.plan().params.n);
        let mut digests = SignDigests { run, of, fresh, jobs: key_of.len(), longest: OnceLock::new(), made: None };
        let of_key = |key: &u32| keys[*key as usize];
        let batch = Batch { keys: &parts_of(keys), key_of, positions: &[], signatures: &[] };
        // The bytes of a second computation must equal those of the first, which was checked.
        let is_second = run.place.places == Places::Other;
        let compares = run.place.scheduler.work.checks.check_roots && plan.cached_layers == 0 && !is_second;
        let (mut damaged, holds) = (Failed::new(), run.facts.abilities.holds);
        // A wrong device is blamed at once, even if its next attempt would be right.
        let mut accept = |first: usize, roots: &[u8]| {
            declassify(roots);
            let of_jobs = key_of[first..].iter().map(of_key);
            let found = compare_roots(run, roots.chunks_exact(n), of_jobs, "the top tree's root")?;
            damaged.extend(found.into_iter().map(|(job, why)| (first + job, why)));
            match holds && !damaged.is_empty() {
                true => Err(Error::Value { what: "the top tree's root is not its key's PK.root".into() }),
                false => Ok(()),
            }
        };
        let done = run.place.program(run.facts, key_of.len(), &mut |program, places| {
            let SlhDsaProgram(program) = typed(program);
            if program.hashes() == 0 {
                let _ = digests.longest.set(usize::MAX);
            }
            let accept: Option<Accept<'_>> = if compares { Some(&mut accept) } else { None };
            program.run(Work { batch, digests: Some(&mut digests), accept, places }, out)
        });
        match done {
            Ok(()) => digests.put_rs(out).map(|()| Computed::All(damaged)),
            Err(_) if !damaged.is_empty() && holds => Ok(Computed::Damaged(damaged)),
            Err(why) => Err(why),
        }
    }

    fn blame(run: &Run<'_>, key: &SigningKey, job: usize) -> Result<Error, Error> {
        blame(run, key, "the root implied by the signature", job)
    }

    /// Computes the root that each signature implies, n bytes each: PK.root if the signature is valid.
    ///
    /// FIPS 205, Algorithm 20: lines 4–11 in `VerifyDigests`, the others in the program.
    fn verify(run: &Run<'_>, work: &VerifyBatch<'_, '_, '_, SlhDsa>, roots: Parts<'_, '_>) -> Result<(), Error> {
        let VerifyBatch { of, keys, key_of } = *work;
        let parts = keys.iter().map(|key| {
            let key = (**key).as_ref();
            Key { pk_root: key.pk_root(), ..Key::of_seeds(key.pk_seed(), &[]) }
        });
        let keys: Vec<Key<'_>> = parts.collect();
        let signatures: Vec<&[u8]> = (0..key_of.len()).map(|i| of(i).signature).collect();
        let batch = Batch { keys: &keys, key_of, positions: &[], signatures: &signatures };
        let mut digests = VerifyDigests { run, of, keys: &keys, key_of, longest: OnceLock::new() };
        run.place.program(run.facts, key_of.len(), &mut |program, places| {
            let SlhDsaProgram(program) = typed(program);
            if program.hashes() == 0 {
                let _ = digests.longest.set(usize::MAX);
            }
            let done = program.run(Work { batch, digests: Some(&mut digests), accept: None, places }, roots);
            roots.iter().for_each(|roots| declassify(&**roots));
            done
        })
    }

    fn judge(ToVerify { key, message, signature, .. }: &ToVerify<'_, '_, SlhDsa>, root: &[u8]) -> bool {
        // A message that was read has the digest of one R.
        let of_this_r = if let Message::Read(read) = message { signature.starts_with(read.r()) } else { true };
        of_this_r && root == key.parts()[1]
    }

    /// FIPS 205, Algorithm 18.
    fn keygen(run: &Run<'_>, mut seeds: &[u8], out: Parts<'_, '_>) -> Result<(), Error> {
        let n = run.facts.plan().params.n;
        let mut roots = vec![0; seeds.len() / 3];
        // PK.seed is the first half of the public key.
        seeds.chunks_exact(3 * n).for_each(|seeds| declassify(&seeds[2 * n..]));
        grow(run, seeds.chunks_exact(3 * n).map(|seeds| (&seeds[..n], &seeds[2 * n..])), &mut [&mut roots])?;
        let mut roots = &roots[..];
        let keys = out.iter_mut().flat_map(|part| part.chunks_mut(4 * n * KEYS_OF_A_THREAD)).map(|keys| {
            let seeds = seeds.split_off(..keys.len() / 4 * 3).expect("seeds for each key");
            let roots = roots.split_off(..keys.len() / 4).expect("a root for each key");
            (keys, seeds, roots)
        });
        run.place.each_of(keys.collect(), &|(keys, seeds, roots): (&mut [u8], &[u8], &[u8])| {
            for ((key, seeds), root) in
                keys.chunks_exact_mut(4 * n).zip(seeds.chunks_exact(3 * n)).zip(roots.chunks_exact(n))
            {
                key[..3 * n].copy_from_slice(seeds);
                key[3 * n..].copy_from_slice(root);
            }
            Ok(())
        })
    }

    fn write_public(private: &[u8], public: &mut [u8]) {
        public.copy_from_slice(&private[private.len() / 2..]);
    }

    #[inline(never)]
    fn calls() -> &'static Calls<SlhDsa> {
        &Calls::OF
    }
}

impl SchemeKey<SlhDsa> for SigningKey {
    fn scheme(&self) -> SlhDsa {
        SlhDsa(self.params())
    }

    fn of_bytes(scheme: SlhDsa, bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(scheme.0, bytes).expect("as many bytes as a key has")
    }

    fn cached_layers(&self) -> usize {
        self.cached_layers()
    }

    fn usual_mode<'a>(&self) -> Mode<'a>
    where
        'a: 'a,
    {
        self.mode(&[])
    }

    fn check_mode(&self, mode: Mode<'_>) -> Result<(), Error> {
        Ok(self.as_ref().check_mode(mode)?)
    }

    fn check_job(&self, mode: Mode<'_>, message: Message<'_>) -> Result<(), Error> {
        match message {
            Message::Bytes(message) => mode.check(message)?,
            Message::Read(read) => read.check(&self.verifying_key(), true, mode)?,
        }
        self.check_mode(mode)
    }

    fn distinct<'k>(keys: &mut dyn Iterator<Item = &'k SigningKey>) -> (Vec<&'k SigningKey>, Vec<u32>) {
        let public = |key: &'k SigningKey| (key.as_ref().pk_seed(), key.as_ref().pk_root(), key.cached_id());
        // The result is public: only a damaged key makes a difference.
        distinct(keys, public, |a, b| declassified(a == b))
    }
}

impl SchemeKey<SlhDsa> for VerifyingKey {
    fn scheme(&self) -> SlhDsa {
        SlhDsa(self.params())
    }

    fn of_bytes(scheme: SlhDsa, bytes: &[u8]) -> VerifyingKey {
        VerifyingKey::from_bytes(scheme.0, bytes).expect("as many bytes as a key has")
    }

    fn usual_mode<'a>(&self) -> Mode<'a>
    where
        'a: 'a,
    {
        self.mode(&[])
    }

    fn check_mode(&self, mode: Mode<'_>) -> Result<(), Error> {
        Ok(self.as_ref().check_mode(mode)?)
    }

    fn check_job(&self, mode: Mode<'_>, message: Message<'_>) -> Result<(), Error> {
        match message {
            Message::Bytes(message) => mode.check(message)?,
            Message::Read(read) => read.check(self, false, mode)?,
        }
        self.check_mode(mode)
    }

    fn distinct<'k>(keys: &mut dyn Iterator<Item = &'k VerifyingKey>) -> (Vec<&'k VerifyingKey>, Vec<u32>) {
        distinct(keys, |key| (key.as_ref().pk_seed(), key.as_ref().pk_root(), 0), |_, _| true)
    }
}

/// The parts of the keys that a batch needs.
fn parts_of<'k>(keys: &'k [&SigningKey]) -> Vec<Key<'k>> {
    let parts = keys.iter().map(|key| Key {
        pk_root: key.as_ref().pk_root(),
        sk_prf: key.as_ref().sk_prf(),
        cached_nodes: key.cached_nodes(),
        cached_id: key.cached_id(),
        ..Key::of_seeds(key.as_ref().pk_seed(), key.as_ref().sk_seed())
    });
    parts.collect()
}

impl<'m> PublicKey<'m, SlhDsa> {
    /// PK.seed and PK.root.
    fn parts(self) -> [&'m [u8]; 2] {
        match self {
            PublicKey::Key(key) => [key.as_ref().pk_seed(), key.as_ref().pk_root()],
            PublicKey::Bytes(bytes) => bytes.split_at(bytes.len() / 2).into(),
        }
    }
}
