//! SLH-DSA as the facade's trait `Scheme`.

use super::distinct::distinct;
use super::inputs::{Input, JobMessage, Message, Randomizer, Seeds, SlhDsa, context};
use super::run::{compare_roots, sign, verify};
use super::trees::grow;
use crate::calls::Calls;
use crate::jobs;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::random::{random, random_by_threads};
use crate::rows::{Column, RowStatus};
use crate::scheme::{
    Failed, KeyColumns, Of, PublicKey, Scheme, Signing, Sizes, ToSign, ToVerify, Verifying, compute_private,
};
use crate::types::{SchemeKey, SchemeTypes};
use hypergrove_engine::scheduler::{Checks, Computed, Parts, Place, Run, room};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::scheme::{Group, GroupFacts};
use hypergrove_engine::{Error, Key};
use hypergrove_fips205::plan::Op;
use hypergrove_fips205::{MessageError, Mode, Params, Position};
use hypergrove_taint::{declassified, declassify};
use std::borrow::Cow;
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

/// The fewest roots that one thread compares.
const VERDICTS_OF_A_THREAD: usize = 1024;

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
        Sizes { seeds, private: self.sk_bytes(), public: self.pk_bytes(), signature: self.sig_bytes(), r }
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

    fn check_randomizer(self, randomizer: Randomizer<'_>, messages: usize) -> Result<(), Error> {
        match randomizer {
            Randomizer::Given(bytes) => Error::check_length("opt_rand", messages.saturating_mul(self.n), bytes.len()),
            _ => Ok(()),
        }
    }

    fn check_messages(messages: &Column<'_>, rows: usize) -> Result<(), Error> {
        messages.check("messages", rows)
    }

    fn bytes_of_rows<'m, 'a: 'm>(messages: &Column<'a>) -> Option<Column<'m>> {
        Some(*messages)
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

    fn size_of_rows(messages: &Column<'_>, randomizer: Randomizer<'_>) -> usize {
        messages.size() + if let Randomizer::Given(bytes) = randomizer { bytes.len() } else { 0 }
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

    fn into_owned(input: Input<'_>) -> Input<'static> {
        input.into_owned()
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

    fn discard(signature: Signature) {
        signature.into_bytes().zeroize();
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

    fn draw(place: &Place<'_>, jobs: usize, of: Of<'_, ToSign<'_, SlhDsa>>) -> Result<Zeroizing<Vec<u8>>, Error> {
        let hedged = (0..jobs).map(of).find(|job| job.randomizer == Randomizer::Hedged);
        let mut fresh = Zeroizing::new(vec![0; hedged.map_or(0, |job| jobs * job.key.params().n)]);
        random_by_threads(place, &mut fresh)?;
        Ok(fresh)
    }

    /// FIPS 205, Algorithm 19: lines 1–10 in `ToSign::randomized`, the others in the program.
    fn sign(
        run: &Run<'_>,
        work: &Signing<'_, '_, SlhDsa>,
        range: Range<usize>,
        left_out: &Failed,
        out: Parts<'_, '_>,
    ) -> Result<Computed, Error> {
        let p = run.facts.plan().params;
        let (keys, key_of) = (work.keys)(range.clone());
        let fresh = work.fresh.get(range.start * p.n..range.end * p.n).unwrap_or_default();
        let of = |job: usize| (work.of)(range.start + job);
        if left_out.is_empty() && keys.iter().all(|key| key.is_unchanged()) {
            return sign(run, &of, (&keys, &key_of), fresh, out);
        }
        let changed: Vec<bool> = keys.iter().map(|key| !key.is_unchanged()).collect();
        let of_changed = key_of.iter().enumerate().filter(|(_, key)| changed[**key as usize]);
        let mut failed: Failed = of_changed.map(|(job, _)| (job, Error::changed(p.name))).collect();
        let sound: Vec<usize> =
            (0..key_of.len()).filter(|job| !failed.contains_key(job) && !left_out.contains_key(job)).collect();
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let mut of_sound = Zeroizing::new(Vec::with_capacity(fresh.len()));
        for job in sound.iter().filter(|_| !fresh.is_empty()) {
            of_sound.extend_from_slice(&fresh[job * p.n..][..p.n]);
        }
        let rows = out.iter_mut().flat_map(|part| part.chunks_exact_mut(p.sig_bytes())).enumerate();
        let mut rows: Vec<&mut [u8]> =
            rows.filter(|(job, _)| sound.binary_search(job).is_ok()).map(|(_, row)| row).collect();
        let computed = sign(run, &|i| of(sound[i]), (&keys, &key_of), &of_sound, &mut rows)?;
        let of_range = |more: Failed| more.into_iter().map(|(i, why)| (sound[i], why));
        Ok(match computed {
            Computed::All(more) => {
                failed.extend(of_range(more));
                Computed::All(failed)
            }
            Computed::Damaged(more) => Computed::Damaged(of_range(more).collect()),
        })
    }

    /// Verifies signatures that were just made.
    fn check_signatures(
        run: &Run<'_>,
        work: &Signing<'_, '_, SlhDsa>,
        range: Range<usize>,
        failed: &Failed,
        signatures: &[u8],
    ) -> Result<Failed, Error> {
        let p = run.facts.plan().params;
        let group = Group { kind: Kind::slh_dsa(p, Op::Verify, 0), ..run.facts.group };
        let facts = run.place.worker.programs.facts(group)?;
        let (keys, key_of) = (work.keys)(range.clone());
        let sound: Vec<usize> = (0..range.len()).filter(|job| !failed.contains_key(job)).collect();
        let key_of: Vec<u32> = sound.iter().map(|job| key_of[*job]).collect();
        let public: Vec<Cow<'_, VerifyingKey>> = keys.iter().map(|key| Cow::Owned(key.verifying_key())).collect();
        let mut roots = vec![0; key_of.len() * p.n];
        let of = |i: usize| {
            let ToSign { mode, message, .. } = (work.of)(range.start + sound[i]);
            let key = PublicKey::Key(&*public[key_of[i] as usize]);
            ToVerify { key, mode, message, signature: &signatures[sound[i] * p.sig_bytes()..][..p.sig_bytes()] }
        };
        verify(&Run { place: run.place, facts: &facts }, &of, &public, &key_of, &mut [&mut roots])?;
        let of_key = key_of.iter().map(|key| keys[*key as usize]);
        let refused = compare_roots(run, roots.chunks_exact(p.n), of_key, "the root implied by the signature")?;
        Ok(refused.into_iter().map(|(i, why)| (sound[i], why)).collect())
    }

    fn verify(run: &Run<'_>, work: &Verifying<'_, '_, SlhDsa>, memory: &mut Vec<u8>) -> Result<Vec<bool>, Error> {
        let n = run.facts.plan().params.n;
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, roots: Parts<'_, '_>| {
            let (keys, key_of) = (work.keys)(range.clone());
            verify(run, &|i| (work.of)(range.start + i), &keys, &key_of, roots)?;
            Ok(Computed::All(Failed::new()))
        };
        let roots = room(memory, work.jobs * n);
        compute_private(run, ("the output of Verify", work.jobs, n), &compute, &mut [&mut *roots])?;
        let roots = &*roots;
        let is_valid = |i: usize| {
            let ToVerify { key, message, signature, .. } = (work.of)(i);
            // A message that was read has the digest of one R.
            let of_this_r = if let Message::Read(read) = message { signature.starts_with(read.r()) } else { true };
            of_this_r && roots[i * n..][..n] == *key.parts()[1]
        };
        Ok(run.place.map_in_place(work.jobs, VERDICTS_OF_A_THREAD, &is_valid))
    }

    /// FIPS 205, Algorithm 18.
    fn keygen(self, run: &Run<'_>, keys: &mut [KeyColumns<'_>], memory: &mut Vec<u8>) -> Result<(), Error> {
        let (n, place) = (self.n, &run.place);
        // One thread takes a few milliseconds for the seeds of a full chunk, and the device would wait for them.
        place.each_of(keys.iter_mut().collect(), &|keys: &mut KeyColumns<'_>| {
            match keys.seeds {
                // One request fills the whole column, because PK.root is written later.
                None => random(keys.private)?,
                Some(seeds) => {
                    for (to, from) in keys.private.chunks_exact_mut(4 * n).zip(seeds.chunks_exact(3 * n)) {
                        to[..3 * n].copy_from_slice(from);
                    }
                }
            }
            // PK.seed is the first half of the public key.
            keys.private.chunks_exact(4 * n).for_each(|key| declassify(&key[2 * n..3 * n]));
            Ok(())
        })?;
        let private: Vec<&[u8]> = keys.iter().flat_map(|keys| keys.private.chunks_exact(4 * n)).collect();
        let roots = room(memory, private.len() * n);
        let compute = |run: &Run<'_>, range: Range<usize>, _: &Failed, roots: Parts<'_, '_>| {
            let seeds = private[range].iter().map(|key| (&key[..n], &key[2 * n..3 * n]));
            grow(run, seeds, roots).map(|()| Computed::All(Failed::new()))
        };
        compute_private(run, ("the output of Keygen", private.len(), n), &compute, &mut [&mut *roots])?;
        drop(private);
        let mut left = &*roots;
        let with_roots = keys.iter_mut().map(|keys| {
            let roots = left.split_off(..keys.private.len() / 4).expect("a root for each key");
            (keys, roots)
        });
        place.each_of(with_roots.collect(), &|(keys, roots): (&mut KeyColumns<'_>, &[u8])| {
            for (private, root) in keys.private.chunks_exact_mut(4 * n).zip(roots.chunks_exact(n)) {
                private[3 * n..].copy_from_slice(root);
            }
            for (public, key) in keys.public.chunks_exact_mut(2 * n).zip(keys.private.chunks_exact(4 * n)) {
                public.copy_from_slice(&key[2 * n..]);
            }
            Ok(())
        })
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

impl<'m> PublicKey<'m, SlhDsa> {
    /// PK.seed and PK.root.
    fn parts(self) -> [&'m [u8]; 2] {
        match self {
            PublicKey::Key(key) => [key.as_ref().pk_seed(), key.as_ref().pk_root()],
            PublicKey::Bytes(bytes) => bytes.split_at(bytes.len() / 2).into(),
        }
    }
}
