//! Signatures of SLH-DSA that were altered: the reference and every instruction set judge alike, in all modes.

use crate::checks::{Extent, engine};
use arbitrary::Unstructured;
use hypergrove::{Cpu, Engine, Isa, Mode, Params, PreHash, Randomizer, SignJob, SigningKey, VerifyJob, VerifyingKey};
use hypergrove_engine::Reference;
use hypergrove_fips205::{PARAMETER_SETS, reference};
use hypergrove_testkit::toys::TOYS;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Signatures of toy sets; a share of the messages is signed as well.
pub(super) fn toy(data: &[u8], _: Extent) {
    judge(data, TOYS, Cost::Low);
}

/// Signatures of the standard's sets.
pub(super) fn real(data: &[u8], _: Extent) {
    judge(data, PARAMETER_SETS, Cost::High);
}

/// How long a signature of a set takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    Low,
    /// Up to a second: few signatures are made, and then altered.
    High,
}

/// Every instruction set of this CPU, and the reference behind the same engine.
static ENGINES: LazyLock<Vec<(&'static str, Engine)>> = LazyLock::new(|| {
    let cpus = Isa::available().into_iter().filter_map(|isa| Some((isa.name(), Arc::new(Cpu::with(isa)?) as Arc<_>)));
    let backends = cpus.chain([("reference", Arc::new(Reference) as Arc<_>)]);
    let engine = |backend| Engine::builder().backend(backend).threads(1).build().expect("an engine");
    backends.map(|(name, backend)| (name, engine(backend))).collect()
});

/// How a message is signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Interface {
    Internal,
    Pure,
    PreHash(PreHash),
}

impl Interface {
    fn any(input: &mut Unstructured<'_>) -> arbitrary::Result<Interface> {
        Ok(match input.int_in_range(0..=PreHash::ALL.len() + 1)? {
            0 => Interface::Internal,
            1 => Interface::Pure,
            hash => Interface::PreHash(PreHash::ALL[hash - 2]),
        })
    }

    /// The interface of a signature that is made.
    fn made(input: &mut Unstructured<'_>, cost: Cost) -> arbitrary::Result<Interface> {
        match cost {
            Cost::Low => Interface::any(input),
            Cost::High => {
                input.choose(&[Interface::Internal, Interface::Pure, Interface::PreHash(PreHash::ALL[0])]).copied()
            }
        }
    }

    fn mode(self, context: &[u8]) -> Mode<'_> {
        match self {
            Interface::Internal => Mode::Internal,
            Interface::Pure => Mode::Pure { context },
            Interface::PreHash(hash) => Mode::PreHash { context, hash },
        }
    }
}

/// A message that a key has signed.
struct Signed {
    key: SigningKey,
    context: Vec<u8>,
    message: Vec<u8>,
    signature: Vec<u8>,
}

/// The signature of a set by one of its keys through an interface, made once.
fn signed(p: &'static Params, number: u8, interface: Interface) -> Arc<Signed> {
    type Made = HashMap<(&'static str, u8, Interface), Arc<Signed>>;
    static MADE: LazyLock<Mutex<Made>> = LazyLock::new(Mutex::default);
    let make = || {
        let seed = |part: u8| vec![number ^ part; p.n];
        let seeds = hypergrove::Seeds { sk_seed: seed(1).into(), sk_prf: seed(2).into(), pk_seed: seed(4) };
        let key = engine().from_seeds(p, &[seeds]).expect("a key").remove(0);
        let (context, message) = (vec![number; usize::from(number)], b"what is signed".to_vec());
        let signature = engine().sign(&key, interface.mode(&context), &message, Randomizer::Deterministic);
        Arc::new(Signed { key, signature: signature.expect("a signature").into_bytes(), context, message })
    };
    MADE.lock().expect("nobody panics here").entry((p.name, number, interface)).or_insert_with(make).clone()
}

/// One job of a batch.
struct Job {
    key: VerifyingKey,
    interface: Interface,
    context: Vec<u8>,
    message: Vec<u8>,
    signature: Vec<u8>,
    /// Whether the engine gets the message's hash.
    hashed: bool,
    is_altered: bool,
}

fn judge(data: &[u8], sets: &[&'static Params], cost: Cost) {
    let mut input = Unstructured::new(data);
    let mut jobs = Vec::new();
    while jobs.len() < 5 && !input.is_empty() {
        let Ok(job) = job(&mut input, sets, cost) else { break };
        jobs.push(job);
    }
    let wanted: Vec<bool> = jobs.iter().map(verdict).collect();
    agree(&jobs, &wanted);
    if cost == Cost::Low && input.ratio(1, 64).unwrap_or(false) {
        let _ = sign_alike(&mut input, sets);
    }
}

fn job(input: &mut Unstructured<'_>, sets: &[&'static Params], cost: Cost) -> arbitrary::Result<Job> {
    let p = sets[input.choose_index(sets.len())?];
    let interface = Interface::made(input, cost)?;
    let keys = if cost == Cost::Low { 1 } else { 0 };
    let of = signed(p, input.int_in_range(0..=keys)?, interface);
    let Signed { key, context, message, signature } = &*of;
    let mut job = Job {
        key: key.verifying_key(),
        interface,
        context: context.clone(),
        message: message.clone(),
        signature: signature.clone(),
        hashed: input.arbitrary()?,
        is_altered: false,
    };
    for _ in 0..input.int_in_range(0..=3)? {
        job.is_altered = true;
        let at = input.int_in_range(0..=p.sig_bytes() - 1)?;
        match input.int_in_range(0..=9)? {
            0 => job.signature.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
            1 => job.signature.truncate(at),
            2 => job.signature.resize(p.sig_bytes() + at % 40, 0),
            // A value of n bytes is another one, or none.
            3 => job.signature.iter_mut().skip(at / p.n * p.n).take(p.n).for_each(|byte| *byte = 0),
            4 => {
                let other = signed(p, input.int_in_range(0..=keys)?, Interface::made(input, cost)?);
                let end = job.signature.len().min(at + input.int_in_range(0..=p.sig_bytes())?);
                let range = at.min(end)..end.min(p.sig_bytes()).max(at.min(end));
                job.signature[range.clone()].copy_from_slice(&other.signature[range]);
            }
            5 => job.message = input.arbitrary()?,
            6 => job.context = vec![7; input.int_in_range(0..=300)?],
            7 => job.interface = Interface::any(input)?,
            8 => {
                let (of, mut bytes) = (job.key.params(), job.key.to_bytes());
                bytes[at % of.pk_bytes()] ^= 1;
                job.key = VerifyingKey::from_bytes(of, &bytes).expect("a public key's length");
            }
            // The key of another set, whose signatures may be as long.
            _ => job.key = signed(sets[input.choose_index(sets.len())?], 0, interface).key.verifying_key(),
        }
    }
    Ok(job)
}

/// The verdict of the reference.
fn verdict(job: &Job) -> bool {
    let Job { key, interface, context, message, signature, .. } = job;
    let valid = match interface {
        Interface::Internal => reference::slh_verify_internal(message, signature, key.as_ref()),
        Interface::Pure => reference::slh_verify(message, signature, context, key.as_ref()),
        Interface::PreHash(hash) => reference::hash_slh_verify(message, signature, context, *hash, key.as_ref()),
    };
    assert!(valid || job.is_altered, "a signature that nobody has altered");
    valid
}

/// The job as engines take it.
fn verify_job(job: &Job) -> VerifyJob<'_> {
    let Job { key, interface, context, message, signature, hashed, .. } = job;
    let (mode, message) = match *interface {
        Interface::PreHash(hash) if *hashed => (Mode::Digest { context, hash }, Cow::Owned(hash.hash(&[message]))),
        interface => (interface.mode(context), Cow::Borrowed(&message[..])),
    };
    VerifyJob::new(key, message, signature).mode(mode)
}

/// Whether every engine gives these verdicts, in a batch and one at a time.
fn agree(jobs: &[Job], wanted: &[bool]) {
    for (name, engine) in ENGINES.iter() {
        let mut verdicts = Vec::new();
        // Lengths that no signature and no context has are errors, and never valid.
        let judged = engine.verify_batch(jobs.iter().map(verify_job), |_, valid| verdicts.push(valid.unwrap_or(false)));
        assert_eq!((judged, &verdicts[..]), (Ok(()), wanted), "in a batch by {name}");
        if let (Some(job), Some(wanted)) = (jobs.first().map(verify_job), wanted.first()) {
            let alone = engine.run(job.clone());
            assert_eq!(alone.unwrap_or(false), *wanted, "alone by {name}");
        }
    }
}

/// A message is signed by every engine as by the reference.
fn sign_alike(input: &mut Unstructured<'_>, sets: &[&'static Params]) -> arbitrary::Result<()> {
    let p = sets[input.choose_index(sets.len())?];
    let of = signed(p, input.int_in_range(0..=1)?, Interface::Pure);
    let random = input.bytes(p.n)?;
    let message = input.bytes(input.len().min(64))?;
    let (key, context) = (of.key.as_ref(), &of.context[..]);
    let wanted = reference::slh_sign(message, context, key, Some(random)).expect("a short context");
    for (name, engine) in ENGINES.iter() {
        let job = SignJob::new(&of.key, message).context(context).randomizer(Randomizer::Given(random));
        let mut made = Vec::new();
        engine.sign_batch([job], |_, signature| made.push(signature.expect("a signature"))).expect("a batch");
        assert!(made[0].as_bytes() == wanted.as_bytes(), "{p} by {name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict of an engine that differs from the one that is wanted is found.
    #[test]
    #[should_panic(expected = "in a batch by ")]
    fn a_wrong_verdict_is_found() {
        let job =
            job(&mut Unstructured::new(&[0; 16]), &[&hypergrove_testkit::toys::TOY_SHA2_16], Cost::Low).expect("a job");
        agree(std::slice::from_ref(&job), &[verdict(&job)]);
        agree(&[job], &[false]);
    }
}
