//! `hypergrove explain`.

use crate::args::{Explain, MachineOptions};
use hypergrove::backend::{Forest, Size, Stage};
use hypergrove::{PolicySource, Work};
use hypergrove_lab::args::op_name;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine::{self, Limits, work_json};
use hypergrove_lab::printer::{Printer, grouped, seconds, significant};
use serde_json::json;

pub(crate) fn run(args: &Explain, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let engine = machine::engine(options, printer)?;
    engine.calibrate(args.set)?;
    let told = engine.explain(args.set, args.op.op(), args.batch)?;
    let limits = Limits::measure(&engine, options);
    let ideal = limits.seconds(&told.work, told.threads).map(|seconds| seconds * args.batch as f64);
    let used = engine.devices();
    let predicted = told.predicted.map(|time| time.as_secs_f64());
    let source = match told.policy_source {
        PolicySource::Default => "the backend's defaults",
        PolicySource::Table => "measured, from a table",
        PolicySource::Model => "a model's estimate",
        PolicySource::Adjusted => "adjusted to what was measured now",
        _ => "elsewhere",
    };
    let why = if told.policy_why.is_empty() { String::new() } else { format!(" ({})", told.policy_why) };
    let p = args.set;
    if args.json {
        let stages: Vec<_> = told.plan.stages.iter().map(|stage| format!("{stage:?}")).collect();
        let policy: serde_json::Map<_, _> =
            told.policy.0.iter().map(|(axis, value)| ((*axis).into(), (*value).into())).collect();
        printer.line(json!({
            "scheme": "SLH-DSA", "set": p.name, "op": op_name(told.plan.op), "batch": args.batch,
            "backend": told.device.backend, "device": told.device.name, "detail": told.device.detail,
            "devices": used.iter().map(hypergrove::Device::id).collect::<Vec<_>>(),
            "threads": told.threads, "stages": stages, "policy": policy, "policy_source": source,
            "policy_why": told.policy_why, "device_why": told.device_why, "crossover": told.crossover,
            "device_free": told.device_free, "predicted_by": told.predicted_by,
            "work": work_json(&told.work), "rates": limits.core.as_ref().map(work_json),
            "ideal_s": ideal, "predicted_s": predicted,
            "memory": {
                "budget": told.memory.budget, "program": told.memory.program, "output_a_job": told.memory.output,
                "sub_batch": told.memory.sub_batch,
            },
        }))?;
        return Ok(Exit::Good);
    }
    let line = |name: &str, value: String| printer.line(format_args!("{name:<10} {value}"));
    line("set", format!("{p}: n {}, h {}, d {}, h′ {}, a {}, k {}, w {}", p.n, p.h, p.d, p.hp, p.a, p.k, p.w()))?;
    line("op", format!("{}, {} jobs", op_name(told.plan.op), grouped(args.batch as u64)))?;
    for (i, device) in used.iter().enumerate() {
        line(if i == 0 { "device" } else { "" }, format!("{} {}", device.id(), device.name))?;
    }
    if !told.device_why.is_empty() {
        line("", told.device_why.clone())?;
    }
    if let Some(jobs) = told.crossover {
        line("", format!("from {} jobs on another device is faster than the host, as measured", grouped(jobs as u64)))?;
    }
    line("by", format!("{}, {} threads", told.device.detail, told.threads))?;
    for (i, stage) in told.plan.stages.iter().enumerate() {
        line(if i == 0 { "plan" } else { "" }, format!("{}. {}", i + 1, describe(stage)))?;
    }
    let policy: Vec<_> = told.policy.0.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
    line(
        "policy",
        match (told.policy_source, &policy[..]) {
            (PolicySource::Default, []) => source.into(),
            (PolicySource::Default, policy) => format!("{}; otherwise {source}", policy.join(", ")),
            (_, policy) => format!("{}: {source}{why}", policy.join(", ")),
        },
    )?;
    line("memory", {
        let (budget, program) = (Size(told.memory.budget), Size(told.memory.program));
        let (jobs, output) = (grouped(told.memory.sub_batch as u64), grouped(told.memory.output));
        format!("{program} of {budget} for {jobs} jobs at a time, which put out {output} bytes each")
    })?;
    if let Some(free) = told.device_free {
        line("", format!("{} of {} of the device are free", Size(free), Size(told.device.memory)))?;
    }
    line("work", format!("{} compressions a job", shown(&told.work, |calls| grouped(calls.round() as u64), "")))?;
    let millions = |rates: &Work| {
        let rates = rates.zip(&told.work, |rate, calls| if calls > 0.0 { rate } else { 0.0 });
        shown(&rates, |rate| significant(rate / 1e6), " M/s")
    };
    let rates = match (&limits.core, &limits.all(told.threads)) {
        (Some(core), _) if used.len() == 1 => format!("{} of one core, measured now", millions(core)),
        (_, Some(all)) => format!("{} of all devices, measured now", millions(all)),
        (_, None) => "not known of these devices".into(),
    };
    line("rates", rates)?;
    line("ideal", ideal.map_or("-".into(), |ideal| format!("{} for all jobs at these rates", seconds(ideal))))?;
    let predicted = predicted.map_or("nothing is known of this machine yet".into(), |time| {
        let share = ideal.map_or(String::new(), |ideal| format!(", {:.0} % of the ideal", 100.0 * ideal / time));
        format!("{} for all jobs{share}, from {}", seconds(time), told.predicted_by)
    });
    line("predicted", predicted)?;
    Ok(Exit::Good)
}

/// The hashes that take part.
fn shown(work: &Work, number: impl Fn(f64) -> String, unit: &str) -> String {
    let used = work.each().into_iter().filter(|(_, calls)| *calls > 0.0);
    used.map(|(hash, calls)| format!("{} {hash}{unit}", number(calls))).collect::<Vec<_>>().join(", ")
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
