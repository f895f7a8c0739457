//! NIST's ACVP tests of SLH-DSA, revision FIPS205: reads prompts and answers them.

use hypergrove::quote::{self, Quote};
use hypergrove::{
    Engine, Error, Mode, Params, Randomizer, Seeds, SignJob, SigningKey, UnknownHash, UnknownSet, VerifyJob,
    VerifyingKey,
};
use hypergrove_files::text::without_mark;
use hypergrove_lab::failure::Failure;
use hypergrove_lab::machine::Watched;
use hypergrove_lab::printer::{Bar, Printer, grouped};
use hypergrove_vectors::acvp::prompt::{Answer, AnsweredGroup, AnsweredTest, Hex, Prompt, Results, Test, TestGroup};
use hypergrove_vectors::hexadecimal::Hex as Bytes;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Display;

/// The prompt, and the object before it in the protocol's array, which holds the version alone.
pub type VersionedPrompt = (Option<Box<RawValue>>, Prompt);

/// Reads the prompt of a file. Errors name the file as `source`.
pub fn parse(source: impl Display, bytes: &[u8]) -> Result<VersionedPrompt, Failure> {
    let bytes = without_mark(bytes);
    let is_array = bytes.trim_ascii_start().starts_with(b"[");
    let read = match is_array {
        true => serde_json::from_slice(bytes),
        false => serde_json::from_slice(bytes).map(|prompt| (None, prompt)),
    };
    read.map_err(|error| {
        let what = if error.is_data() { "is no ACVP prompt" } else { "is not JSON" };
        Failure::new(format!("{source} {what}: {}", quote::message(&error.to_string())))
            .hint("name the server's prompt.json")
    })
}

/// Answers a prompt, with an engine that is made when the prompt is known to be one for us.
pub fn answer<'p>(
    prompt: Prompt,
    engine: impl FnOnce() -> Result<Watched<'p>, Failure>,
    printer: &Printer,
) -> Result<Results, Failure> {
    let Prompt { vs_id, algorithm, mode, revision, is_sample, test_groups } = prompt;
    if algorithm != "SLH-DSA" || revision != "FIPS205" {
        return Err(Failure::new({
            let (algorithm, revision) = (Quote::name(&algorithm, ["SLH-DSA"]), Quote::name(&revision, ["FIPS205"]));
            format!("these are tests of {algorithm}, revision {revision}")
        })
        .hint("hypergrove answers those of SLH-DSA, revision FIPS205"));
    }
    let compute = match mode.as_str() {
        "keyGen" => key_gen,
        "sigGen" => sig_gen,
        "sigVer" => sig_ver,
        mode => {
            return Err(Failure::new(format!(
                "there is no mode {}",
                Quote::name(mode, ["keyGen", "sigGen", "sigVer"])
            ))
            .hint("hypergrove answers keyGen, sigGen and sigVer"));
        }
    };
    let mut cases = Vec::new();
    for group in &test_groups {
        let unknown =
            |error: UnknownSet| Failure::new(error.to_string()).of(format_args!("test group {}", group.tg_id));
        let params = group.parameter_set.parse().map_err(unknown)?;
        cases.extend(group.tests.iter().map(|test| TestCase { group, params, test }));
    }
    let bar = printer.progress(cases.len(), "answering");
    let mut answers = compute(&*engine()?, &cases, &bar)?.into_iter();
    bar.finish_and_clear();
    printer.detail(format_args!("answered {} tests", grouped(cases.len() as u64)));
    let answered = |group: &TestGroup| AnsweredGroup {
        tg_id: group.tg_id.clone(),
        tests: std::iter::zip(&group.tests, answers.by_ref())
            .map(|(test, answer)| AnsweredTest { tc_id: test.tc_id.clone(), answer })
            .collect(),
    };
    let test_groups = test_groups.iter().map(answered).collect();
    Ok(Results { vs_id, algorithm, mode, revision, is_sample, test_groups })
}

/// A test, with what its group says of it.
struct TestCase<'p> {
    group: &'p TestGroup,
    params: &'static Params,
    test: &'p Test,
}

impl<'p> TestCase<'p> {
    fn failed(&self, failure: impl Into<Failure>) -> Failure {
        failure.into().of(format_args!("test group {}, test {}", self.group.tg_id, self.test.tc_id))
    }

    fn need(&self, name: &str, field: impl Fn(&'p Test) -> &'p Option<Hex>) -> Result<&'p [u8], Failure> {
        match field(self.test) {
            Some(Bytes(bytes)) => Ok(bytes),
            None => Err(self.failed(Failure::new(format!("{name} is missing")))),
        }
    }

    fn message(&self) -> Result<Cow<'p, [u8]>, Failure> {
        Ok(Cow::Borrowed(self.need("message", |test| &test.message)?))
    }

    fn mode(&self) -> Result<Mode<'p>, Failure> {
        let context: &[u8] = self.test.context.as_ref().map_or(&[], |Bytes(bytes)| bytes);
        match (self.group.signature_interface.as_deref(), self.group.pre_hash.as_deref()) {
            // The first prompts of this revision knew the internal interface alone.
            (None | Some("internal"), _) => Ok(Mode::Internal),
            (Some("external"), Some("preHash")) => {
                let name = self.test.hash_alg.as_deref().unwrap_or("");
                let hash = name.parse().map_err(|error: UnknownHash| self.failed(Failure::new(error.to_string())))?;
                Ok(Mode::PreHash { context, hash })
            }
            (Some("external"), None | Some("pure")) => Ok(Mode::Pure { context }),
            (Some("external"), Some(other)) => {
                Err(self
                    .failed(Failure::new(format!("there is no preHash {}", Quote::name(other, ["preHash", "pure"])))))
            }
            (Some(other), _) => Err(self.failed(Failure::new({
                let other = Quote::name(other, ["internal", "external"]);
                format!("there is no signatureInterface {other}")
            }))),
        }
    }
}

fn key_gen(engine: &Engine, cases: &[TestCase<'_>], bar: &Bar) -> Result<Vec<Answer>, Failure> {
    let mut answers = Vec::with_capacity(cases.len());
    for of_a_set in cases.chunk_by(|a, b| a.params == b.params) {
        let mut seeds = Vec::new();
        for case in of_a_set {
            let part = |name: &str, field: fn(&Test) -> &Option<Hex>| {
                let seed = case.need(name, field)?;
                let (got, want) = (seed.len(), case.params.n);
                if got == want {
                    Ok(seed.to_vec())
                } else {
                    Err(case.failed(Failure::new(format!("{name} has {got} bytes, not {want}"))))
                }
            };
            seeds.push(Seeds {
                sk_seed: part("skSeed", |test| &test.sk_seed)?.into(),
                sk_prf: part("skPrf", |test| &test.sk_prf)?.into(),
                pk_seed: part("pkSeed", |test| &test.pk_seed)?,
            });
        }
        for key in engine.from_seeds(of_a_set[0].params, &seeds)? {
            answers
                .push(Answer::KeyGen { sk: Bytes(key.to_bytes().to_vec()), pk: Bytes(key.verifying_key().to_bytes()) });
            bar.inc(1);
        }
    }
    Ok(answers)
}

fn sig_gen(engine: &Engine, cases: &[TestCase<'_>], bar: &Bar) -> Result<Vec<Answer>, Failure> {
    let key = |case: &TestCase<'_>| {
        SigningKey::from_bytes_unchecked(case.params, case.need("sk", |test| &test.sk)?)
            .map_err(|error| case.failed(error))
    };
    let keys = cases.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let job = |(case, key)| -> Result<SignJob<'_>, Failure> {
        let case: &TestCase<'_> = case;
        let randomizer = match (case.group.deterministic, &case.test.additional_randomness) {
            (None | Some(false), Some(Bytes(bytes))) => Randomizer::Given(bytes),
            (Some(false), None) => Randomizer::Hedged,
            _ => Randomizer::Deterministic,
        };
        Ok(SignJob::new(key, case.message()?).mode(case.mode()?).randomizer(randomizer))
    };
    let jobs = std::iter::zip(cases, &keys).map(job).collect::<Result<Vec<_>, _>>()?;
    let mut answers = Vec::with_capacity(cases.len());
    engine.sign_batch(jobs, |index, signature| {
        let answer = signature.map(|signature| Answer::SigGen { signature: Bytes(signature.into_bytes()) });
        answers.push(answer.map_err(|error| cases[index].failed(error)));
        bar.inc(1);
    })?;
    answers.into_iter().collect()
}

fn sig_ver(engine: &Engine, cases: &[TestCase<'_>], bar: &Bar) -> Result<Vec<Answer>, Failure> {
    let key = |case: &TestCase<'_>| {
        VerifyingKey::from_bytes(case.params, case.need("pk", |test| &test.pk)?).map_err(|error| case.failed(error))
    };
    let keys = cases.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let job = |(case, key)| -> Result<VerifyJob<'_>, Failure> {
        let case: &TestCase<'_> = case;
        let signature = case.need("signature", |test| &test.signature)?;
        Ok(VerifyJob::new(key, case.message()?, signature).mode(case.mode()?))
    };
    let jobs = std::iter::zip(cases, &keys).map(job).collect::<Result<Vec<_>, _>>()?;
    let mut answers = Vec::with_capacity(cases.len());
    engine.verify_batch(jobs, |index, verdict| {
        let test_passed = match verdict {
            // A signature of the wrong length, or a context too long, is the test's point.
            Err(Error::Key(_) | Error::Length { .. } | Error::Value { .. }) => Ok(false),
            verdict => verdict.map_err(|error| cases[index].failed(error)),
        };
        answers.push(test_passed.map(|test_passed| Answer::SigVer { test_passed }));
        bar.inc(1);
    })?;
    answers.into_iter().collect()
}
