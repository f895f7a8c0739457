//! Known answers of zkDilithium: reads cases and computes their answers.

use hypergrove::Engine;
use hypergrove::quote::{self, Quote};
use hypergrove::zkdilithium::params::SEED_BYTES;
use hypergrove::zkdilithium::{SignJob, VerifyJob, VerifyingKey, ZkDilithium};
use hypergrove_files::text::without_mark;
use hypergrove_lab::failure::Failure;
use hypergrove_vectors::hexadecimal;
use hypergrove_vectors::zkdilithium::{Alter, Target};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

type Hex = hexadecimal::Hex<false>;

/// A file of cases.
#[derive(Deserialize)]
pub struct Questions {
    /// The cases.
    pub cases: Vec<Case>,
}

/// A case: a seed, a message, and ways to alter the signature.
#[derive(Deserialize)]
pub struct Case {
    id: String,
    seed: Hex,
    msg: Hex,
    #[serde(default)]
    verify_mutations: Vec<Mutation>,
}

/// A change before verification.
#[derive(Deserialize)]
struct Mutation {
    name: String,
    target: Target,
    #[serde(flatten)]
    alter: Alter,
}

/// A file of answers.
#[derive(Serialize)]
pub struct Answers<'a> {
    /// The name of the scheme.
    pub scheme: &'static str,
    /// The answers, in the order of the cases.
    pub cases: Vec<Answer<'a>>,
}

/// The answer to a case.
#[derive(Serialize)]
pub struct Answer<'a> {
    id: &'a str,
    seed: &'a Hex,
    msg: &'a Hex,
    pk: Hex,
    sk: Hex,
    sig: Hex,
    verify: bool,
    verify_mutations: Vec<MutationVerdict<'a>>,
}

#[derive(Serialize)]
struct MutationVerdict<'a> {
    name: &'a str,
    verify: bool,
}

/// Reads the cases of a file. Errors name the file as `source`.
pub fn parse(source: impl Display, bytes: &[u8]) -> Result<Questions, Failure> {
    serde_json::from_slice(without_mark(bytes)).map_err(|error| {
        let why = quote::message(&error.to_string());
        Failure::new(format!("{source} is no file of zkDilithium's cases: {why}"))
            .hint("it is an object like that of vectors/zkdilithium/e2e_public.json")
    })
}

/// Computes the answers to some cases, each step for all of them.
pub fn answers<'a>(engine: &Engine, cases: &'a [Case]) -> Result<Vec<Answer<'a>>, Failure> {
    let seed = |case: &Case| {
        <[u8; SEED_BYTES]>::try_from(&case.seed.0[..]).map_err(|_| {
            let (id, got) = (Quote::new(&case.id), case.seed.0.len());
            Failure::new(format!("the seed of case {id} has {got} bytes, not {SEED_BYTES}"))
        })
    };
    let seeds = cases.iter().map(seed).collect::<Result<Vec<_>, _>>()?;
    let keys = engine.from_seeds(ZkDilithium, &seeds)?;
    let jobs = cases.iter().zip(&keys).map(|(case, key)| SignJob::new(key, &case.msg.0));
    let signatures = engine.sign_batch_to_vec(jobs)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut answers = Vec::with_capacity(cases.len());
    // All signatures to verify: first of each case the signature itself, then its mutations.
    let mut inputs = Vec::new();
    for ((case, key), signature) in cases.iter().zip(&keys).zip(signatures) {
        let (public, sig) = (key.verifying_key(), signature.into_bytes());
        let unaltered = [public.as_bytes(), &case.msg.0, &sig].map(<[u8]>::to_vec);
        inputs.push(unaltered.clone());
        for mutation in &case.verify_mutations {
            let mut altered = unaltered.clone();
            let target = &mut altered[mutation.target as usize];
            *target = mutation.alter.apply(target).ok_or_else(|| {
                let (name, id) = (Quote::new(&mutation.name), Quote::new(&case.id));
                Failure::new(format!("the mutation {name} of case {id} is beyond the end"))
            })?;
            inputs.push(altered);
        }
        answers.push(Answer {
            id: &case.id,
            seed: &case.seed,
            msg: &case.msg,
            pk: hexadecimal::Hex(public.as_bytes().to_vec()),
            sk: hexadecimal::Hex(key.to_bytes().to_vec()),
            sig: hexadecimal::Hex(sig),
            verify: false,
            verify_mutations: Vec::new(),
        });
    }
    let mut verdicts = verdicts(engine, &inputs)?.into_iter();
    let mut next = || verdicts.next().expect("a verdict for each input");
    for (answer, case) in answers.iter_mut().zip(cases) {
        answer.verify = next();
        answer.verify_mutations = case
            .verify_mutations
            .iter()
            .map(|mutation| MutationVerdict { name: &mutation.name, verify: next() })
            .collect();
    }
    Ok(answers)
}

/// The verdicts on public keys, messages and signatures of any lengths.
fn verdicts(engine: &Engine, inputs: &[[Vec<u8>; 3]]) -> Result<Vec<bool>, Failure> {
    let keys: Vec<_> = inputs.iter().map(|[pk, ..]| VerifyingKey::from_bytes(pk).ok()).collect();
    let jobs =
        (inputs.iter().zip(&keys)).filter_map(|([_, msg, sig], key)| Some(VerifyJob::new(key.as_ref()?, msg, sig)));
    let mut judged = engine.verify_batch_to_vec(jobs)?.into_iter();
    let verdict = |key: &Option<_>| key.as_ref().and_then(|_| judged.next()).unwrap_or(Ok(false));
    Ok(keys.iter().map(verdict).collect::<Result<_, _>>()?)
}
