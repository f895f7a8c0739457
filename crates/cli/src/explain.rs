//! `hypergrove explain`.

use crate::args::{Explain, MachineOptions};
use hypergrove::backend::{Forest, Size, Stage};
use hypergrove::{Engine, Explanation, PolicySource, Rates, SlhDsa};
use hypergrove_lab::args::op_name;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine::{self, Limits, Waits, work_json};
use hypergrove_lab::printer::{Printer, grouped, percent, seconds, significant};
use hypergrove_lab::stopwatch::{Question, measure};
use hypergrove_records::record::HashRates;
use serde_json::json;
use std::time::Duration;

/// Seconds that the jobs which are tried out take together, or one job if it takes longer: a longer run says no more.
const TIMED: f64 = 0.1;
/// Seconds that the hashes of one job may take for it to be tried out.
const LONGEST: f64 = 2.0;
/// Time for the timed runs; at least three are timed.
const BUDGET: Duration = Duration::from_millis(200);
/// The machine is busy if threads wait this part of their time for a core. On an idle machine it is a hundredth.
const BUSY: f64 = 0.1;

#[expect(clippy::too_many_lines, reason = "the lines of one answer, in their order")]
pub(crate) fn run(args: &Explain, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let engine = machine::engine(options, printer)?;
    // Before anything ran: what runs teach the engine is not what a command begins with.
    let explanation = engine.explain(args.set, args.op.op(), args.batch)?;
    let before = Waits::now();
    let limits = try_out(args, &explanation, &engine, options)?;
    let waited = Waits::share_since(before);
    let Explanation { predicted, predicted_by, .. } = engine.explain(args.set, args.op.op(), args.batch)?;
    let ideal = limits.seconds(&explanation.work, explanation.threads).map(|seconds| seconds * args.batch as f64);
    let used = engine.devices();
    let predicted = predicted.map(|time| time.as_secs_f64());
    let source = match explanation.policy_source {
        PolicySource::Default => "the backend's defaults",
        PolicySource::Table => "measured, from a table",
        PolicySource::Model => "a model's estimate",
        PolicySource::Adjusted => "adjusted to what was measured now",
        _ => "elsewhere",
    };
    let why = if explanation.policy_why.is_empty() { String::new() } else { format!(" ({})", explanation.policy_why) };
    let p = args.set;
    if args.json {
        let stages: Vec<_> = explanation.plan.stages.iter().map(|stage| format!("{stage:?}")).collect();
        let policy: serde_json::Map<_, _> =
            explanation.policy.0.iter().map(|(axis, value)| ((*axis).into(), (*value).into())).collect();
        printer.line(json!({
            "scheme": "SLH-DSA", "set": p.name, "op": op_name(explanation.plan.op), "batch": args.batch,
            "backend": explanation.device.backend, "device": explanation.device.name, "detail": explanation.device.detail,
            "devices": used.iter().map(hypergrove::Device::id).collect::<Vec<_>>(),
            "threads": explanation.threads, "stages": stages, "policy": policy, "policy_source": source,
            "policy_why": explanation.policy_why, "device_why": explanation.device_why, "crossover": explanation.crossover,
            "device_free": explanation.device_free, "predicted_by": predicted_by,
            "work": work_json(&explanation.work), "rates": limits.core.map(HashRates::from),
            "ideal_s": ideal, "predicted_s": predicted, "waited": waited,
            "memory": {
                "budget": explanation.memory.budget, "program": explanation.memory.program, "output_a_job": explanation.memory.output,
                "sub_batch": explanation.memory.sub_batch,
            },
        }))?;
        return Ok(Exit::Good);
    }
    let line = |name: &str, value: String| printer.line(format_args!("{name:<10} {value}"));
    line("set", format!("{p}: n {}, h {}, d {}, h′ {}, a {}, k {}, w {}", p.n, p.h, p.d, p.hp, p.a, p.k, p.w()))?;
    line("op", format!("{}, {} jobs", op_name(explanation.plan.op), grouped(args.batch as u64)))?;
    for (i, device) in used.iter().enumerate() {
        line(if i == 0 { "device" } else { "" }, format!("{} {}", device.id(), device.name))?;
    }
    if !explanation.device_why.is_empty() {
        line("", explanation.device_why.clone())?;
    }
    if let Some(jobs) = explanation.crossover {
        line("", format!("from {} jobs on another device is faster than the host, as measured", grouped(jobs as u64)))?;
    }
    line("by", format!("{}, {} threads", explanation.device.detail, explanation.threads))?;
    for (i, stage) in explanation.plan.stages.iter().enumerate() {
        line(if i == 0 { "plan" } else { "" }, format!("{}. {}", i + 1, describe(stage)))?;
    }
    let policy: Vec<_> = explanation.policy.0.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
    line(
        "policy",
        match (explanation.policy_source, &policy[..]) {
            (PolicySource::Default, []) => source.into(),
            (PolicySource::Default, policy) => format!("{}; otherwise {source}", policy.join(", ")),
            (_, policy) => format!("{}: {source}{why}", policy.join(", ")),
        },
    )?;
    line("memory", {
        let (budget, program) = (Size(explanation.memory.budget), Size(explanation.memory.program));
        let (jobs, output) = (grouped(explanation.memory.sub_batch as u64), grouped(explanation.memory.output));
        format!("{program} of {budget} for {jobs} jobs at a time, which put out {output} bytes each")
    })?;
    if let Some(free) = explanation.device_free {
        line("", format!("{} of {} of the device are free", Size(free), Size(explanation.device.memory)))?;
    }
    line(
        "work",
        format!("{} compressions a job", shown(explanation.work.each(), |calls| grouped(calls.round() as u64), "")),
    )?;
    let millions = |rates: &Rates| {
        let used = rates.each().into_iter().zip(explanation.work.each()).filter(|(_, (_, calls))| *calls > 0.0);
        shown(used.map(|(rate, _)| rate), |rate| significant(rate / 1e6), " M/s")
    };
    let rates = match (&limits.core, &limits.all(explanation.threads)) {
        (Some(core), _) if used.len() == 1 => format!("{} of one core, measured now", millions(core)),
        (_, Some(all)) => format!("{} of all devices, measured now", millions(all)),
        (_, None) => "not known of these devices".into(),
    };
    line("rates", rates)?;
    line("ideal", ideal.map_or("-".into(), |ideal| format!("{} for all jobs at these rates", seconds(ideal))))?;
    let predicted = predicted.map_or("nothing is known of this machine yet".into(), |time| {
        let share = ideal.map_or(String::new(), |ideal| format!(", {:.0} % of the ideal", 100.0 * ideal / time));
        format!("{} for all jobs{share}, from {predicted_by}", seconds(time))
    });
    line("predicted", predicted)?;
    if let Some(waited) = waited.filter(|waited| *waited > BUSY) {
        let share = percent(waited);
        line(
            "",
            format!("the machine is busy: threads waited {share} of their time for a core; it is faster when idle"),
        )?;
    }
    Ok(Exit::Good)
}

/// Has the engine do what is explained, so that it can predict the time; measures how fast the devices hash.
fn try_out(
    args: &Explain,
    explanation: &Explanation,
    engine: &Engine,
    options: &MachineOptions,
) -> Result<Limits, Failure> {
    let (params, op) = (args.set, args.op.op());
    if explanation.device.memory > 0 {
        // A table has the times of such a device, or keys tell them: kernels of the operation would have to be compiled first.
        engine.calibrate(params)?;
        return Ok(Limits::measure(engine, options));
    }
    let limits = Limits::measure(engine, options);
    let ideal = limits.seconds(&explanation.work, explanation.threads).unwrap_or(TIMED);
    // Of the draft's sets, a signature takes minutes.
    if ideal > LONGEST {
        engine.calibrate(params)?;
        return Ok(limits);
    }
    let jobs = ((TIMED / ideal) as usize).clamp(1, explanation.memory.sub_batch.max(1));
    let question =
        Question { params: SlhDsa::from(params), op, batch: Some(jobs), cached_layers: 0, budget: BUDGET, rows: None };
    match measure(engine, question, options) {
        Ok(measured) => Ok(measured.limits),
        // The operation is explained all the same.
        Err(why) if why.is_memory => Ok(limits),
        Err(why) => Err(why),
    }
}

/// The hashes that take part.
fn shown(each: impl IntoIterator<Item = (&'static str, f64)>, number: impl Fn(f64) -> String, unit: &str) -> String {
    let used = each.into_iter().filter(|(_, often)| *often > 0.0);
    used.map(|(hash, often)| format!("{} {hash}{unit}", number(often))).collect::<Vec<_>>().join(", ")
}

fn describe(stage: &Stage) -> String {
    match *stage {
        Stage::Treehash { forest, trees, height, reveal } => {
            let whose = match forest {
                Forest::Fors => "FORS".into(),
                Forest::Xmss { layers: (from, to) } if to == from + 1 => format!("layer {from}"),
                Forest::Xmss { layers: (from, to) } => format!("layers {from} to {}", to - 1),
            };
            let kept = if reveal { ", keeping what the signature shows" } else { "" };
            format!("grow {trees} trees of {whose}, {height} levels{kept}")
        }
        Stage::ForsPk => "hash the FORS roots".into(),
        Stage::WotsSelect { layers } => format!("select the WOTS+ signatures of {layers} layers"),
        Stage::WotsSign { layers: (from, to) } => format!("sign with WOTS+ in the cached layers {from} to {}", to - 1),
        Stage::ForsRoots { trees, height } => format!("climb {trees} FORS trees, {height} levels"),
        Stage::XmssRoot { layer } => format!("finish the WOTS+ chains of layer {layer} and climb to its root"),
    }
}
