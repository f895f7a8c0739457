//! Each stage over its threads, with models fitted.

use super::elements::*;
use crate::record::StageRecord;
use crate::record::Times;
use hypergrove_fips205::{Params, known_sets};
use hypergrove_tune::model::adaptive::optimum;
use hypergrove_tune::model::{Fit, Kernel, Sample, Shape, adaptive, regret, staircase};

/// How much longer something takes.
fn more(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

/// A stage in words.
fn stage_title(name: &str, backend: &str) -> String {
    match name {
        "keys" => "keys laid out",
        "chains" => "WOTS+ chains",
        "complete" => "WOTS+ chains of a signature",
        "xmss" if backend == CPU => "XMSS: chains, leaves, trees",
        "xmss" => "XMSS leaves and lower trees",
        "xmss_above" => "XMSS upper trees",
        "xmss_wide" => "XMSS leaves and trees, wide",
        "fors" => "FORS leaves and trees",
        "fors_above" => "FORS upper trees",
        "fors_pk" | "fors_pk_wide" => "T_k of the FORS roots",
        "wots_select" => "WOTS+ selection",
        "links" => "WOTS+ selection and check",
        "fors_climb" => "climbing FORS",
        "climb" => "T_len and climbing XMSS",
        "leaf_wide" => "revealed leaves again",
        "cached" => "cached layers",
        name => return name.into(),
    }
    .into()
}

/// Units of work that one thread each can do, where the launch of that name has a fixed number of them.
fn units(p: &Params, op: &str, stage: &str, batch: u64) -> Option<u64> {
    let trees = if op == "sign" { p.d as u64 } else { 1 };
    let each = match stage {
        "chains" => (trees << p.hp) * p.len() as u64,
        "xmss" => trees << p.hp,
        "fors" => (p.k as u64) << p.a,
        "fors_pk" => 1,
        "fors_climb" => p.k as u64,
        "wots_select" => trees * p.len() as u64,
        _ => return None,
    };
    Some(each.saturating_mul(batch))
}

fn stage_median(stage: &StageRecord) -> f64 {
    Times::new(stage.times_s.clone()).median()
}

/// A sample of T(g, t), and the record's name of its shape.
struct Measured {
    sample: Sample,
    shape: String,
}

fn sample(stage: &StageRecord, shape: String) -> Option<Measured> {
    let seconds = stage_median(stage);
    let (low, high) = (stage.times_s[0], stage.times_s[stage.times_s.len() - 1]);
    let launched = Shape { blocks: stage.blocks, threads: stage.threads };
    let sample = Sample { shape: launched, seconds, sigma: (high - low) / 2.0 };
    (seconds > 0.0).then_some(Measured { sample, shape })
}

pub(super) fn functions(run: &Run) -> Section {
    let mut groups = Vec::new();
    let records = of_study(run, "functions");
    let mut gains = FigureTable { words: 3, ..FigureTable::default() };
    for ((device, set), records) in by(records, |record| (record.device.clone(), record.set.clone())) {
        let mut group = FigureGroup { title: format!("{} on {device}", short(&set)), ..FigureGroup::default() };
        let mut rows = Vec::new();
        for (op, records) in by(records, |record| record.op.clone()) {
            gain(&device, &set, &op, &records).into_iter().for_each(|row| gains.row(row));
            let stages =
                by(records.iter().flat_map(|r| r.stages.iter().map(move |s| (*r, s))), |(_, s)| s.name.clone());
            for (name, measured) in stages {
                let first = measured[0].0;
                let samples: Vec<Measured> =
                    measured.iter().filter_map(|(r, stage)| sample(stage, shape_name(r))).collect();
                let Some((figure, mut row)) = function(first, &name, &samples) else { continue };
                let tuned = records.iter().find(|record| shape_name(record) == TUNED && part(&name) == name);
                let tuned = tuned.and_then(|record| part_time(record, &name));
                let over = tuned.map(|tuned| more(tuned / least(&name, records.iter().copied())));
                row.push(over.unwrap_or(UNKNOWN.into()));
                group
                    .figures
                    .push(Figure { name: slug(&["functions", &device, &set, &op, &name]), drawing: figure.into() });
                rows.push(row);
            }
        }
        let heads = vec![
            "op",
            "stage",
            "α",
            "β·10⁻³",
            "γ·10⁶",
            "R²",
            "t*",
            "best measured",
            "its time",
            "choice of the fit",
            "of the staircase",
            "tuned",
        ];
        group.table = FigureTable { heads, words: 2, rows };
        groups.push(group);
    }
    if !gains.rows.is_empty() {
        let title = "What choosing for each stage gains".into();
        groups.insert(0, FigureGroup { title, figures: Vec::new(), table: gains });
    }
    Section {
        id: "functions",
        title: "Each stage over its threads",
        reading: "The time of one stage alone, by the number of its threads; both axes are logarithmic. The curve is T(t) = α + β/t + \
            γ·t. The dashed staircase is that of waves, if a launch has a fixed number of units. The ring is the best \
            measurement, the line is t* = √(β/γ). A percentage says how much longer a choice takes than the best measurement; \
            for the tuned policy, all launches of a stage's trees count together.",
        groups,
    }
}

/// The picture of a stage, and its row in the table. `None` for samples of one number of threads.
#[expect(clippy::too_many_lines, reason = "one picture from its data to its caption")]
fn function(record: &Record, name: &str, measured: &[Measured]) -> Option<(Plot, Vec<String>)> {
    let samples: Vec<Sample> = measured.iter().map(|m| m.sample).collect();
    let ends = samples
        .iter()
        .map(|s| s.shape.total())
        .fold((f64::INFINITY, 0.0f64), |(low, high), t| (low.min(t), high.max(t)));
    let best = measured.iter().min_by(|a, b| a.sample.seconds.total_cmp(&b.sample.seconds))?;
    if ends.0 >= ends.1 {
        return None;
    }
    let set = known_sets().find(|p| p.name == record.set);
    let units = set.and_then(|p| units(p, &record.op, name, record.batch as u64));
    let kernel = Kernel { units: units.unwrap_or(0), cores: record.cores.unwrap_or(1) };
    let adaptive = adaptive::MODEL.fit(kernel, &samples).ok();
    let gpu = samples.iter().any(|s| s.shape.blocks > 1);
    let staircase = units.filter(|_| gpu).and_then(|_| staircase::MODEL.fit(kernel, &samples).ok());
    let star = adaptive.as_ref().and_then(|fit| optimum(fit, ends));
    let tooltip = |m: &Measured| {
        let Shape { blocks, threads } = m.sample.shape;
        format!(
            "{}: {} × {threads} = {} threads, {}",
            m.shape,
            grouped(blocks.into()),
            grouped(u64::from(blocks) * u64::from(threads)),
            seconds(m.sample.seconds)
        )
    };
    let point = |m: &Measured| {
        let Sample { shape, seconds, sigma } = m.sample;
        Point {
            x: shape.total(),
            y: seconds,
            range: Some(((seconds - sigma).max(seconds / 2.0), seconds + sigma)),
            tooltip: tooltip(m),
        }
    };
    let curve = |fit: &Fit| {
        let at = |i: u32| {
            let total = (ends.0.ln() + (ends.1 / ends.0).ln() * f64::from(i) / 60.0).exp();
            // The staircase depends on both; 128 threads a block are what is drawn.
            let threads = if gpu { 128.0f64.min(total) } else { 1.0 };
            let shape = Shape { blocks: (total / threads).round().max(1.0) as u32, threads: threads as u32 };
            Point { x: shape.total(), y: fit.predict(shape).seconds, range: None, tooltip: String::new() }
        };
        let mut points: Vec<Point> = (0..=60).map(at).filter(|point| point.y > 0.0).collect();
        points.dedup_by(|a, b| a.x == b.x);
        points
    };
    let mut series =
        vec![Series { name: "measured".into(), look: Look::Marks, points: measured.iter().map(point).collect() }];
    series.extend(adaptive.as_ref().map(|fit| Series {
        name: "α + β/t + γ·t".into(),
        look: Look::Curve,
        points: curve(fit),
    }));
    series.extend(staircase.as_ref().map(|fit| Series {
        name: "staircase".into(),
        look: Look::Dashed,
        points: curve(fit),
    }));
    series.push(Series { name: "best".into(), look: Look::Rings, points: vec![point(best)] });
    let parameter = |name: &str| adaptive.as_ref().and_then(|fit| fit.parameter(name));
    let excess = |fit: Option<&Fit>| {
        fit.and_then(|fit| regret(fit, &samples)).map_or(UNKNOWN.into(), |regret| more(1.0 + regret.excess))
    };
    let number = |value: Option<f64>, scale: f64| value.map_or(UNKNOWN.into(), |value| format!("{:.3}", value * scale));
    let row = vec![
        record.op.clone(),
        stage_title(name, &record.backend),
        parameter("α").map_or(UNKNOWN.into(), seconds),
        number(parameter("β"), 1e3),
        number(parameter("γ"), 1e6),
        number(adaptive.as_ref().map(|fit| fit.r2).filter(|r2| r2.is_finite()), 1.0),
        star.as_ref().map_or(UNKNOWN.into(), |star| {
            format!("{}{}", if star.inside { "" } else { "at an end: " }, grouped(star.threads.round() as u64))
        }),
        format!("{} × {}", grouped(best.sample.shape.blocks.into()), best.sample.shape.threads),
        seconds(best.sample.seconds),
        excess(adaptive.as_ref()),
        excess(staircase.as_ref()),
    ];
    let rules = star
        .filter(|star| star.inside)
        .map(|star| (star.threads, format!("t* {}", grouped(star.threads.round() as u64))));
    let plot = Plot {
        title: format!("{}: {}", record.op, stage_title(name, &record.backend)),
        x: counts("threads", Scale::Log),
        y: axis(&format!("time of {}", plural(record.batch, "job")), Scale::Log, timed),
        series,
        rules: rules.into_iter().collect(),
    };
    Some((plot, row))
}

/// The part that a stage belongs to. How many levels the launches of a tree go up, and so how many launches there are, is a choice.
fn part(stage: &str) -> &str {
    let launches = ["_above", "_wide"];
    launches.iter().find_map(|launch| stage.strip_suffix(launch)).unwrap_or(stage)
}

/// The parts of a measurement.
fn parts(record: &Record) -> Vec<&str> {
    by(&record.stages, |stage| part(&stage.name)).into_iter().map(|(part, _)| part).collect()
}

/// Seconds of a part; `None` if there is none.
fn part_time(record: &Record, wanted: &str) -> Option<f64> {
    record.stages.iter().filter(|stage| part(&stage.name) == wanted).map(stage_median).reduce(|a, b| a + b)
}

/// The shortest that one of these took for a part.
fn least<'a>(wanted: &str, records: impl Iterator<Item = &'a Record>) -> f64 {
    records.filter_map(|record| part_time(record, wanted)).fold(f64::INFINITY, f64::min)
}

/// The table's row for the gain of a set's operation from choosing for each stage. `None` with a single shape.
fn gain(device: &str, set: &str, op: &str, records: &[&Record]) -> Option<TableRow> {
    let staged = records.iter().copied().filter(|record| !record.stages.is_empty());
    let sums = staged.map(|record| (record, record.stages.iter().map(stage_median).sum()));
    let (tuned, fixed): (Vec<(&Record, f64)>, Vec<_>) = sums.partition(|(record, _)| shape_name(record) == TUNED);
    if fixed.len() < 2 {
        return None;
    }
    let (one, time) = fixed.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let each: f64 = parts(one).iter().map(|part| least(part, fixed.iter().map(|(record, _)| *record))).sum();
    let run = |record: &Record| Some(Times::new(record.execute_s.clone())).filter(|t| !t.all().is_empty());
    let best_run = fixed.iter().filter_map(|(record, _)| Some(run(record)?.median())).fold(f64::INFINITY, f64::min);
    let tuned = tuned.first();
    let tuned_run = tuned.and_then(|(record, _)| Some(more(run(record)?.median() / best_run)));
    Some(vec![
        ("device", device.into()),
        ("set", short(set).into()),
        ("op", op.into()),
        ("one shape for all", shape_name(one)),
        ("time", seconds(*time)),
        ("a shape for each stage", seconds(each)),
        ("gain", ratio(time / each)),
        ("tuned", tuned.map_or(UNKNOWN.into(), |(_, time)| seconds(*time))),
        ("over a shape for each", tuned.map_or(UNKNOWN.into(), |(_, time)| more(time / each))),
        ("kernels in a run, over the best", tuned_run.unwrap_or(UNKNOWN.into())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_a_tree_count_together() {
        let record = |shape: &str, kernels: f64, stages: &[(&str, f64)]| {
            let stage = |(name, time): &(&str, f64)| StageRecord {
                name: (*name).into(),
                blocks: 1,
                threads: 32,
                launches: 1,
                times_s: vec![*time],
            };
            let stages = stages.iter().map(stage).collect();
            Record { shape: Some(shape.into()), execute_s: vec![kernels], stages, ..Record::default() }
        };
        let all = [
            record("tuned", 2.8, &[("chains", 1.9), ("xmss", 0.9), ("xmss_above", 0.16)]),
            record("whole trees", 2.9, &[("chains", 2.0), ("xmss", 1.0)]),
            record("half trees", 3.0, &[("chains", 1.9), ("xmss", 0.8), ("xmss_above", 0.4)]),
        ];
        let row = gain("a GPU", "SLH-DSA-SHA2-128f", "sign", &all.iter().collect::<Vec<_>>()).unwrap();
        let cells: Vec<_> = row.iter().map(|(_, cell)| &cell[..]).collect();
        assert_eq!(cells[3..], ["whole trees", "3.00 s", "2.90 s", "1.034×", "2.96 s", "+2.1 %", "-3.4 %"]);
        assert_eq!(gain("a GPU", "", "sign", &[&all[0], &all[1]]), None, "a sweep of one shape");
    }
}
