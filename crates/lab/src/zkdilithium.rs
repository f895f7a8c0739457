//! zkDilithium at the command line: how it is measured, and options that it does not know.

use crate::args::{Bench, MachineOptions, SECONDS, op_name};
use crate::failure::{Exit, Failure};
use crate::lines::{head, tell};
use crate::machine::{self, Limits};
use crate::printer::{Printer, significant};
use crate::sha256;
use crate::stopwatch::{Question, Timed};
use crate::study::cores;
use crate::trace::{Recorded, observed};
use hypergrove::backend::Policy;
use hypergrove::zkdilithium::params::{NAME, SEED_BYTES};
use hypergrove::zkdilithium::{self, KeyError, Message, SigningKey, VerifyingKey, ZkDilithium};
use hypergrove::{Engine, Error, Op, Work};
use hypergrove_records::record::Record;
use hypergrove_zkdilithium::{Op as ZkOp, Trace, Work as ZkWork, reference};

/// Refuses options that are another scheme's.
pub fn refuse(options: &[(bool, &str)]) -> Result<(), Failure> {
    match options.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::new(format!("{NAME} knows no {option}")).hint("leave it out")),
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl Timed for ZkDilithium {
    const AT_ONCE: bool = true;
    const DISTINCT_BYTES: usize = 1 << 29;

    fn seeds(self, number: usize) -> [u8; SEED_BYTES] {
        let mut seed = [1; SEED_BYTES];
        seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
        seed
    }

    fn deterministic<'a>()
    where
        'a: 'a,
    {
    }

    fn public(key: &SigningKey) -> VerifyingKey {
        key.verifying_key()
    }

    fn is_made_from(key: &SigningKey, seed: &[u8; SEED_BYTES]) -> bool {
        reference::keygen(seed).to_bytes() == key.to_bytes()
    }

    fn is_valid(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
        reference::verify(key.expanded(), Message::Bytes(message), signature, &mut Trace::default())
    }

    fn work(question: &Question<ZkDilithium>) -> Work {
        Work { keccak: work(question.op).keccak, ..Work::default() }
    }

    fn threads(self, engine: &Engine, _: Op, batch: usize) -> Result<usize, Error> {
        Ok(engine.threads().min(batch))
    }

    /// As many as the devices have in flight.
    fn filling(question: &Question<ZkDilithium>, engine: &Engine, _: &Limits) -> Result<usize, Error> {
        Ok(engine.jobs_to_fill(ZkDilithium, question.op, 0)? / 2)
    }
}

fn work(op: Op) -> ZkWork {
    let op = match op {
        Op::Keygen => ZkOp::Keygen,
        Op::Sign => ZkOp::Sign,
        Op::Verify | Op::Cache => ZkOp::Verify,
    };
    op.work()
}

/// Measures what the arguments of `bench` ask for.
pub(crate) fn bench(
    args: &Bench,
    options: &MachineOptions,
    printer: &Printer,
    into: Recorded<'_>,
) -> Result<Exit, Failure> {
    refuse(&[(args.cache_layers > 0, "--cache-layers"), (args.redundancy.redundant, "--redundant")])?;
    let space = zkdilithium::space(&*machine::engine(options, printer)?)?;
    for policy in sha256::policies(&args.axes, &space)? {
        let build = |builder| observed(builder, into).policy(Policy(policy.clone()));
        let engine = machine::engine_with(options, printer, build)?;
        let said: Vec<_> = policy.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        head(args, printer, &format!("{}{}", machine::describe(&engine), said.concat()))?;
        for op in args.op.iter().flat_map(|ops| ops.0.iter().copied()) {
            let (batch, budget, rows) = (args.batch, args.budget(SECONDS), args.rows);
            let question = Question { params: ZkDilithium, op, batch, cached_layers: 0, budget, rows };
            let clock = machine::clock();
            let mut measured = cores::measure(args, &engine, question, options, printer)
                .map_err(|failure| failure.of(format_args!("{NAME} {}", op_name(op))))?;
            // The highest clock that was seen: the bound is that of the cycles there were.
            let clock = clock.zip(machine::clock()).map(|(before, after)| before.max(after));
            // Of a CPU, that of the threads which had jobs.
            let share = measured.kernels.map_or(measured.threads as f64 / engine.threads() as f64, |_| 1.0);
            // Key pairs need no permutations.
            let each = Some(work(op).poseidon).filter(|each| *each > 0.0);
            let poseidon_limit = zkdilithium::poseidon_rate(&engine, clock)?.map(|rate| rate * share);
            let poseidon_limit = poseidon_limit.filter(|_| each.is_some());
            if let Some(each) = each {
                let permuting = poseidon_limit.map(|limit| measured.batch as f64 * each / limit);
                measured.ideal = measured.ideal.zip(permuting).map(|(hashing, permuting)| hashing + permuting);
            }
            let rate = measured.kernels_per_s().unwrap_or(measured.ops_per_s());
            let record = Record {
                scheme: NAME.into(),
                policy: policy.iter().map(|(axis, value)| ((*axis).into(), *value)).collect(),
                poseidon_per_s: each.map(|each| each * rate),
                poseidon_limit,
                rates: None,
                limit: None,
                clock_hz: machine::clock(),
                ..measured.record(&engine, question)
            };
            tell(args, printer, &record)?;
            if let (false, Some(rate)) = (args.json, record.poseidon_per_s) {
                let of = poseidon_limit.map(|limit| format!(", {:.1} % of the bound", 100.0 * rate / limit));
                let rate = significant(rate);
                printer.line(format!("{:<27} {rate} Poseidon permutations a second{}", "", of.unwrap_or_default()))?;
            }
        }
    }
    Ok(Exit::Good)
}
