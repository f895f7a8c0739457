//! What is drawn of a run: each study's records as plots and tables.

use crate::printer::{grouped, seconds, significant};
use crate::record::{Record, StageRecord};
use crate::report::plot::{Axis, Bar, Bars, Look, Plot, Point, Scale, Series, Value, counted, ratio, share, timed};
use crate::report::read::Run;
use crate::stopwatch::Times;
use hypergrove::{PARAMETER_SETS, Params};
use hypergrove_tune::model::adaptive::optimum;
use hypergrove_tune::model::{Fit, Kernel, Model, Sample, Shape, regret};
use maud::{Markup, html};

/// Part of a report.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// How to read it.
    pub(crate) reading: &'static str,
    pub(crate) groups: Vec<Group>,
}

/// Figures under one heading, which may be folded.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) table: Option<Table>,
}

/// A picture and its name as a file.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) picture: Markup,
}

/// Columns that hold numbers are set to the right.
pub(crate) struct Table {
    pub(crate) heads: Vec<&'static str>,
    /// How many columns hold words, from the left.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

const UNKNOWN: &str = "–";

/// What studies call the planner's own policy.
const TUNED: &str = "tuned";

/// How much longer something takes.
fn more(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

/// All sections that a run has records for.
pub(crate) fn sections(run: &Run) -> Vec<Section> {
    let all = [
        throughput(run),
        crossover(run),
        ladder(run),
        functions(run),
        roofline(run),
        cache_depth(run),
        multi_gpu(run),
        hashing(run),
    ];
    all.into_iter().filter(|section| !section.groups.is_empty()).collect()
}

/// Values in the order of their first appearance, with all that have them.
fn by<T, K: PartialEq>(all: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups = Vec::<(K, Vec<T>)>::new();
    for one in all {
        let key = key(&one);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(one),
            None => groups.push((key, vec![one])),
        }
    }
    groups
}

fn of_study<'a>(run: &'a Run, name: &'a str) -> impl Iterator<Item = &'a Record> {
    run.records.iter().filter(move |record| record.study.as_deref() == Some(name) && record.op != "rates")
}

/// SLH-DSA-SHA2-128f → `SHA2-128f`.
pub(crate) fn short(set: &str) -> &str {
    set.strip_prefix("SLH-DSA-").unwrap_or(set)
}

/// Letters and figures of a name, for files.
fn slug(parts: &[&str]) -> String {
    let part = |text: &&str| -> String {
        let kept = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        kept.collect::<String>().trim_matches('-').to_string()
    };
    parts.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn axis(title: &str, scale: Scale, shown: fn(f64) -> String) -> Axis {
    Axis { title: title.into(), scale, shown, whole: false }
}

/// Of things that there is no half of.
fn counts(title: &str, scale: Scale) -> Axis {
    Axis { whole: true, ..axis(title, scale, counted) }
}

/// Quartiles of times.
fn quartiles(times: &[f64]) -> Option<(f64, f64)> {
    let last = times.len().checked_sub(1)?;
    Some((times[last / 4], times[last * 3 / 4]))
}

/// Jobs a second, with quartiles.
fn rate(record: &Record, x: f64) -> Point {
    let range = quartiles(&record.times_s).map(|(low, high)| (record.batch as f64 / high, record.batch as f64 / low));
    let told = format!(
        "batch {}: {} a second, {} a job, spread {:.1} %",
        grouped(record.batch as u64),
        significant(record.ops_per_s),
        seconds(record.median_s / record.batch as f64),
        100.0 * record.spread
    );
    Point { x, y: record.ops_per_s, range, told }
}

fn shape_name(record: &Record) -> String {
    record.shape.clone().unwrap_or_else(|| record.devices.join(", "))
}

fn throughput(run: &Run) -> Section {
    let mut groups = Vec::new();
    for (device, records) in by(of_study(run, "throughput"), |record| record.device.clone()) {
        let mut group = Group { title: device.clone(), ..Group::default() };
        let mut rows = Vec::new();
        for ((set, op), mut records) in by(records, |record| (record.set.clone(), record.op.clone())) {
            // A study whose time was bounded goes through its batches in another order.
            records.sort_by_key(|record| record.batch);
            let series = by(records.iter().copied(), |record| shape_name(record));
            let peak = |records: &[&Record]| records.iter().map(|record| record.ops_per_s).fold(0.0, f64::max);
            let best_fixed =
                series.iter().filter(|(name, _)| name != TUNED).map(|(_, records)| peak(records)).fold(0.0, f64::max);
            for (name, records) in &series {
                let most = records.iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)).expect("not empty");
                let gain =
                    if name == TUNED && best_fixed > 0.0 { ratio(most.ops_per_s / best_fixed) } else { UNKNOWN.into() };
                let kernels = most.kernels_per_s.map_or(UNKNOWN.into(), significant);
                let limit = most.limit_fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.0} %", 100.0 * fraction));
                let batch = grouped(most.batch as u64);
                rows.push(vec![
                    short(&set).into(),
                    op.clone(),
                    name.clone(),
                    batch,
                    significant(most.ops_per_s),
                    kernels,
                    limit,
                    gain,
                ]);
            }
            let (from, to) =
                records.iter().fold((usize::MAX, 0), |(low, high), r| (low.min(r.batch), high.max(r.batch)));
            // Equal steps are seen best on an even axis, doublings on a logarithmic one.
            let steps = from * 4 >= to || records.iter().any(|record| !record.batch.is_power_of_two());
            let scale = if steps { Scale::Linear } else { Scale::Log };
            let series = series.into_iter().map(|(name, records)| {
                let points: Vec<Point> = records.iter().map(|record| rate(record, record.batch as f64)).collect();
                Series { name, look: Look::Joined, points }
            });
            let plot = Plot {
                title: format!("{} {op}", short(&set)),
                x: counts("jobs of a batch", scale),
                y: axis("per second", Scale::Linear, counted),
                series: series.collect(),
                rules: Vec::new(),
            };
            group.figures.push(Figure { name: slug(&["throughput", &device, &set, &op]), picture: plot.svg() });
        }
        group.table = Some(Table {
            heads: vec![
                "set",
                "op",
                "shape",
                "best batch",
                "per second",
                "kernels alone",
                "of limit",
                "over the best fixed",
            ],
            words: 3,
            rows,
        });
        groups.push(group);
    }
    Section {
        id: "throughput",
        title: "Throughput over batch size",
        reading: "Each mark is one batch size, with its quartiles. Where a curve saws, the last wave of blocks is part empty: \
            the staircase. The distance between the tuned shape and the others is what tuning gains.",
        groups,
    }
}

/// Messages a second, if that is known.
type Rate = fn(&Record) -> Option<f64>;

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or(UNKNOWN.into(), |fraction| format!("{:.1} %", 100.0 * fraction))
}

/// Bytes a second over the size of messages: from host to host, and in the device's own memory.
fn hashing(run: &Run) -> Section {
    let mut groups = Vec::new();
    let bytes_a_second = |record: &Record, rate: f64| rate * record.message_bytes as f64;
    let y = || axis("bytes a second", Scale::Log, counted);
    for (device, records) in by(of_study(run, "sha256"), |record| record.device.clone()) {
        let mut group = Group { title: device.clone(), ..Group::default() };
        let mut draw = |kind: &str, x: Axis, series: Vec<(String, Vec<Point>)>| {
            let series: Vec<Series> = series
                .into_iter()
                .filter(|(_, points)| !points.is_empty())
                .map(|(name, points)| Series { name, look: Look::Joined, points })
                .collect();
            if !series.is_empty() {
                let plot = Plot { title: format!("SHA-256, {kind}"), x, y: y(), series, rules: Vec::new() };
                group.figures.push(Figure { name: slug(&["sha256", &device, kind]), picture: plot.svg() });
            }
        };
        let (streams, shapes): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|record| record.policy.contains_key("streams"));
        let kinds: [(&str, Rate); 2] = [
            ("end to end", |record| Some(record.ops_per_s)),
            ("in the device's memory", |record| record.kernels_per_s),
        ];
        for (kind, rate) in kinds {
            let point = |record: &&Record| {
                let (x, y) = (record.message_bytes as f64, bytes_a_second(record, rate(record)?));
                let told =
                    format!("{} B, {} messages: {}B/s", record.message_bytes, grouped(record.batch as u64), counted(y));
                Some(Point { x, y, range: None, told })
            };
            let series = by(shapes.iter().copied(), |record| shape_name(record));
            let series = series.into_iter().map(|(name, records)| (name, records.iter().filter_map(point).collect()));
            draw(kind, counts("bytes of a message", Scale::Log), series.collect());
        }
        let point = |record: &&Record| {
            let y = bytes_a_second(record, record.ops_per_s);
            let x = record.policy["streams"];
            Point { x: x.into(), y, range: None, told: format!("{x} streams: {}B/s", counted(y)) }
        };
        // Pieces of other sizes are in the table.
        let plain = streams.iter().copied().filter(|record| !record.policy.contains_key("piece"));
        let series = by(plain, |record| record.message_bytes).into_iter();
        let series = series.map(|(bytes, of)| (format!("{} B", grouped(bytes as u64)), of.iter().map(point).collect()));
        draw("end to end by streams", counts("streams", Scale::Linear), series.collect());

        let row = |record: &&Record| {
            let rate = |rate: Option<f64>| {
                rate.map_or(UNKNOWN.into(), |rate| format!("{}B/s", counted(bytes_a_second(record, rate))))
            };
            vec![
                shape_name(record),
                grouped(record.message_bytes as u64),
                grouped(record.batch as u64),
                rate(Some(record.ops_per_s)),
                percent(record.limit_fraction),
                rate(record.kernels_per_s),
                percent(record.kernels_limit_fraction),
            ]
        };
        group.table = Some(Table {
            heads: vec!["shape", "bytes", "messages", "end to end", "of limit", "in the device's memory", "of limit"],
            words: 1,
            rows: records.iter().map(row).collect(),
        });
        groups.push(group);
    }
    Section {
        id: "sha256",
        title: "SHA-256 of many messages",
        reading: "Short messages are mostly padding; long ones leave few for as many threads. The limit is the rate at which the machine \
                  hashes, and from host to host what the link to the device carries.",
        groups,
    }
}

/// Where one row of rates comes to lie above another, between two batch sizes.
fn crossing(below: &[(f64, f64)], above: &[(f64, f64)]) -> Option<f64> {
    let both: Vec<(f64, f64)> = below
        .iter()
        .filter_map(|(x, a)| above.iter().find(|(other, _)| other == x).map(|(_, b)| (*x, (b / a).ln())))
        .collect();
    // From there on to the end.
    let last = both.iter().rposition(|(_, ahead)| *ahead <= 0.0);
    match last {
        None => both.first().map(|(x, _)| *x),
        Some(at) => {
            let ((x0, d0), (x1, d1)) = (both[at], *both.get(at + 1)?);
            Some((x0.ln() + (x1 / x0).ln() * d0 / (d0 - d1)).exp())
        }
    }
}

fn crossover(run: &Run) -> Section {
    let mut group = Group::default();
    let mut rows = Vec::new();
    for ((set, op), records) in by(of_study(run, "crossover"), |record| (record.set.clone(), record.op.clone())) {
        let devices = by(records, |record| record.devices.join(", "));
        let curve = |wanted: bool| {
            let found = devices.iter().find(|(name, _)| name.starts_with("cpu") == wanted);
            found.map(|(_, records)| {
                records.iter().map(|record| (record.batch as f64, record.ops_per_s)).collect::<Vec<_>>()
            })
        };
        let at = curve(true).zip(curve(false)).map(|(cpu, gpu)| crossing(&cpu, &gpu));
        rows.push(vec![
            short(&set).into(),
            op.clone(),
            match at {
                None => "only one of the two was measured".into(),
                Some(None) => "the CPU is faster as far as was measured".into(),
                Some(Some(at)) => plural(at.ceil() as usize, "job"),
            },
        ]);
        let series = devices.into_iter().map(|(name, records)| {
            let points: Vec<Point> = records.iter().map(|record| rate(record, record.batch as f64)).collect();
            Series { name, look: Look::Joined, points }
        });
        let plot = Plot {
            title: format!("{} {op}", short(&set)),
            x: counts("jobs of a batch", Scale::Log),
            y: axis("per second, end to end", Scale::Log, counted),
            series: series.collect(),
            rules: at.flatten().map(|at| (at, plural(at.ceil() as usize, "job"))).into_iter().collect(),
        };
        group.figures.push(Figure { name: slug(&["crossover", &set, &op]), picture: plot.svg() });
    }
    let groups = if group.figures.is_empty() {
        Vec::new()
    } else {
        group.table = Some(Table { heads: vec!["set", "op", "the GPU is faster from"], words: 2, rows });
        vec![group]
    };
    Section {
        id: "crossover",
        title: "The crossover",
        reading: "Left of the line the host's threads are faster, right of it the GPU, end to end. The planner goes by it.",
        groups,
    }
}

fn ladder(run: &Run) -> Section {
    let mut groups = Vec::new();
    for (device, records) in by(of_study(run, "ladder"), |record| record.device.clone()) {
        let mut group = Group { title: device.clone(), ..Group::default() };
        let mut rows = Vec::new();
        for ((set, op), records) in by(records, |record| (record.set.clone(), record.op.clone())) {
            let slowest = records.iter().map(|record| record.median_s).fold(0.0, f64::max);
            let bars = records.iter().map(|record| {
                let widest =
                    record.stages.iter().max_by_key(|stage| u64::from(stage.blocks) * u64::from(stage.threads));
                let launch = widest
                    .map_or(UNKNOWN.into(), |stage| format!("{} × {}", grouped(stage.blocks.into()), stage.threads));
                let milliseconds = format!("{:.3}", 1e3 * record.median_s);
                rows.push(vec![
                    short(&set).into(),
                    op.clone(),
                    shape_name(record),
                    launch.clone(),
                    milliseconds,
                    format!("{:.1} %", 100.0 * record.spread),
                    ratio(slowest / record.median_s),
                ]);
                Bar {
                    label: shape_name(record),
                    values: vec![(0, record.median_s, None)],
                    text: seconds(record.median_s),
                    told: format!(
                        "levels {}: {}, widest launch {launch}",
                        shape_name(record),
                        seconds(record.median_s)
                    ),
                }
            });
            let bars = Bars {
                title: format!("{}, one {}", short(&set), noun(&op)),
                rows: bars.collect(),
                x: axis("time, logarithmic", Scale::Log, timed),
                series: Vec::new(),
                dots: false,
                rule: None,
            };
            group.figures.push(Figure { name: slug(&["ladder", &device, &set, &op]), picture: bars.svg() });
        }
        let heads = vec!["set", "op", "levels", "widest launch", "ms", "spread", "against the slowest"];
        group.table = Some(Table { heads, words: 3, rows });
        groups.push(group);
    }
    Section {
        id: "ladder",
        title: "The ladder of parallelism",
        reading: "One job alone. Levels: 0 one thread, 1 a thread a tree, 2 and a block's threads over nodes, 3 and chains, 4 and \
            the parts of one hash. The widest launch is blocks × threads.",
        groups,
    }
}

fn noun(op: &str) -> &str {
    match op {
        "keygen" => "key pair",
        "sign" => "signature",
        "verify" => "verification",
        op => op,
    }
}

/// 1 job, 2 jobs.
fn plural(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

/// A stage in words.
fn stage_title(name: &str, backend: &str) -> String {
    match name {
        "keys" => "keys laid out",
        "chains" => "WOTS+ chains",
        "complete" => "WOTS+ chains of a signature",
        "xmss" if backend == "cpu" => "XMSS: chains, leaves, trees",
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
    Some(each * batch)
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

fn functions(run: &Run) -> Section {
    let mut groups = Vec::new();
    let records = of_study(run, "functions");
    let mut gains = Vec::new();
    for ((device, set), records) in by(records, |record| (record.device.clone(), record.set.clone())) {
        let mut group = Group { title: format!("{} on {device}", short(&set)), ..Group::default() };
        let mut rows = Vec::new();
        for (op, records) in by(records, |record| record.op.clone()) {
            gains.extend(gain(&device, &set, &op, &records));
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
                    .push(Figure { name: slug(&["functions", &device, &set, &op, &name]), picture: figure.svg() });
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
        group.table = Some(Table { heads, words: 2, rows });
        groups.push(group);
    }
    if !gains.is_empty() {
        let heads = vec![
            "device",
            "set",
            "op",
            "one shape for all",
            "time",
            "a shape for each stage",
            "gain",
            "tuned",
            "over a shape for each",
            "kernels in a run, over the best",
        ];
        let table = Table { heads, words: 3, rows: gains };
        groups.insert(
            0,
            Group { title: "What choosing for each stage gains".into(), figures: Vec::new(), table: Some(table) },
        );
    }
    Section {
        id: "functions",
        title: "Each stage over its threads",
        reading: "Time of one stage alone over all its threads, both logarithmic. Curve: T(t) = α + β/t + γ·t; dashed, where a \
            launch has a fixed number of units: the staircase of waves. The ring is the best measured, the line t* = √(β/γ). A \
            choice's percentage is how much longer it takes than the best measured; that of the tuned policy counts \
            all launches of a stage's trees together.",
        groups,
    }
}

/// The picture of a stage, and its row in the table. `None` for samples of one number of threads.
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
    let set = PARAMETER_SETS.iter().find(|p| p.name == record.set);
    let units = set.and_then(|p| units(p, &record.op, name, record.batch as u64));
    let kernel = Kernel { units: units.unwrap_or(0), cores: record.cores.unwrap_or(1), ideal: None };
    let adaptive = Model::by_name("adaptive").and_then(|model| model.fit(kernel, &samples).ok());
    let gpu = samples.iter().any(|s| s.shape.blocks > 1);
    let staircase = units.filter(|_| gpu).and_then(|_| Model::by_name("staircase")?.fit(kernel, &samples).ok());
    let star = adaptive.as_ref().and_then(|fit| optimum(fit, ends));
    let told = |m: &Measured| {
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
            told: told(m),
        }
    };
    let curve = |fit: &Fit| {
        let at = |i: u32| {
            let total = (ends.0.ln() + (ends.1 / ends.0).ln() * f64::from(i) / 60.0).exp();
            // The staircase depends on both; 128 threads a block are what is drawn.
            let threads = if gpu { 128.0f64.min(total) } else { 1.0 };
            let shape = Shape { blocks: (total / threads).round().max(1.0) as u32, threads: threads as u32 };
            Point { x: shape.total(), y: fit.predict(shape).seconds, range: None, told: String::new() }
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

/// What a stage is part of: how many levels the launches of a tree go up, and so how many launches there are, is a choice.
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

/// What a set's operation gains from choosing for each stage. `None` with a single shape.
fn gain(device: &str, set: &str, op: &str, records: &[&Record]) -> Option<Vec<String>> {
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
        device.into(),
        short(set).into(),
        op.into(),
        shape_name(one),
        seconds(*time),
        seconds(each),
        ratio(time / each),
        tuned.map_or(UNKNOWN.into(), |(_, time)| seconds(*time)),
        tuned.map_or(UNKNOWN.into(), |(_, time)| more(time / each)),
        tuned_run.unwrap_or(UNKNOWN.into()),
    ])
}

fn roofline(run: &Run) -> Section {
    let mut groups = Vec::new();
    for record in run.records.iter().filter(|record| record.op == "rates") {
        let Some(rates) = record.rates.as_ref().or(record.limit.as_ref()) else { continue };
        let of = |hash: &str| rates[hash].as_f64().map_or(UNKNOWN.into(), |rate| significant(rate / 1e6));
        let row = vec![record.device.clone(), shape_name(record), of("sha256"), of("sha512"), of("keccak")];
        if groups.is_empty() {
            let heads = vec!["device", "by", "SHA-256, million a second", "SHA-512", "Keccak"];
            let table = Some(Table { heads, words: 2, rows: Vec::new() });
            groups.push(Group {
                title: "Compressions of one core, or of a whole GPU at its limit".into(),
                table,
                ..Group::default()
            });
        }
        groups[0].table.iter_mut().for_each(|table| table.rows.push(row.clone()));
    }
    let plain = |record: &&Record| {
        let of_all = record.study.as_deref().is_none_or(|study| study == "limits");
        of_all && record.batch > 1 && record.cached_layers == 0 && !record.redundant && record.limit_fraction.is_some()
    };
    let key = |record: &&Record| {
        let mut parts = vec![record.device.clone(), record.detail.clone()];
        parts.extend((record.backend == "cpu").then(|| plural(record.threads, "thread")));
        parts.extend((record.devices.len() > 1).then(|| format!("{} devices", record.devices.len())));
        parts.join(", ")
    };
    for (title, records) in by(run.records.iter().filter(plain), key) {
        let series: Vec<String> =
            by(records.iter().copied(), |record| record.op.clone()).into_iter().map(|(op, _)| op).collect();
        let chart = |heading: &str, of: fn(&Record) -> Option<f64>| {
            let rows = by(records.iter().copied(), |record| record.set.clone()).into_iter().map(|(set, records)| {
                let known = || records.iter().filter_map(|record| Some((*record, of(record)?)));
                let at = |op: &str| series.iter().position(|other| other == op).unwrap_or(0);
                let values: Vec<Value> = known().map(|(record, fraction)| (at(&record.op), fraction, None)).collect();
                let told: Vec<String> =
                    known().map(|(r, fraction)| format!("{} {:.0} %", r.op, 100.0 * fraction)).collect();
                Bar {
                    label: short(&set).into(),
                    values,
                    text: String::new(),
                    told: format!("{}: {}", short(&set), told.join(", ")),
                }
            });
            let rows: Vec<Bar> = rows.filter(|row| !row.values.is_empty()).collect();
            let bars = Bars {
                title: format!("{heading}, as a share of the limit"),
                rows,
                x: axis("of the limit", Scale::Linear, share),
                series: series.clone(),
                dots: true,
                rule: Some(1.0),
            };
            let name = slug(&["roofline", &title, heading]);
            (!bars.rows.is_empty()).then(|| Figure { name, picture: bars.svg() })
        };
        let figures = [
            chart("end to end", |record| record.limit_fraction),
            chart("kernels alone", |record| record.kernels_limit_fraction),
        ];
        let rows = records.iter().map(|record| {
            let of = percent;
            vec![
                short(&record.set).into(),
                record.op.clone(),
                grouped(record.batch as u64),
                seconds(record.median_s / record.batch as f64),
                significant(record.ops_per_s),
                format!("{:.1} %", 100.0 * record.spread),
                of(record.limit_fraction),
                of(record.kernels_limit_fraction),
            ]
        });
        let heads = vec!["set", "op", "batch", "a job", "per second", "spread", "of limit", "kernels, of limit"];
        let table = Some(Table { heads, words: 2, rows: rows.collect() });
        groups.push(Group { title, figures: figures.into_iter().flatten().collect(), table });
    }
    Section {
        id: "roofline",
        title: "Fractions of the limit",
        reading: "The limit is the time that an operation's hash compressions take at the machine's own rates: measured on a CPU \
            in the same run, computed from the integer pipes and the clock of a GPU. A share above 100 % means that the rate, \
            measured before and after, was disturbed.",
        groups,
    }
}

fn cache_depth(run: &Run) -> Section {
    let mut groups = Vec::new();
    for (device, records) in by(of_study(run, "cache-depth"), |record| record.device.clone()) {
        let mut group = Group { title: device.clone(), ..Group::default() };
        let mut rows = Vec::new();
        for (set, records) in by(records, |record| record.set.clone()) {
            let none = records.iter().find(|record| record.cached_layers == 0).map(|record| record.ops_per_s);
            let bars: Vec<Bar> = records
                .iter()
                .map(|record| {
                    let bytes = record.cache_bytes.map_or("none".into(), bytes);
                    let gain = none.map_or(UNKNOWN.into(), |none| ratio(record.ops_per_s / none));
                    rows.push(vec![
                        short(&set).into(),
                        record.cached_layers.to_string(),
                        bytes.clone(),
                        record.build_s.map_or(UNKNOWN.into(), seconds),
                        significant(record.ops_per_s),
                        gain,
                    ]);
                    Bar {
                        label: format!("{}", record.cached_layers),
                        values: vec![(0, record.ops_per_s, None)],
                        text: bytes.clone(),
                        told: format!(
                            "{} layers, {bytes}: {} a second",
                            record.cached_layers,
                            significant(record.ops_per_s)
                        ),
                    }
                })
                .collect();
            let x = axis("signatures a second", Scale::Linear, counted);
            let title = format!("{} by cached layers, and their memory", short(&set));
            let bars = Bars { title, rows: bars, x, series: Vec::new(), dots: false, rule: None };
            group.figures.push(Figure { name: slug(&["cache-depth", &device, &set]), picture: bars.svg() });
        }
        let heads = vec!["set", "layers", "memory", "built in", "per second", "gain"];
        group.table = Some(Table { heads, words: 1, rows });
        groups.push(group);
    }
    Section {
        id: "cache-depth",
        title: "Cached layers",
        reading: "Bars are signatures a second with so many of a key's top layers kept, the memory of their nodes beside them. Each \
            layer down costs 2^h′ times the memory of the one above and saves one of d trees.",
        groups,
    }
}

fn bytes(count: usize) -> String {
    match count as f64 {
        b if b >= 1e9 => format!("{} GB", significant(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", significant(b / 1e6)),
        b if b >= 1e3 => format!("{} kB", significant(b / 1e3)),
        b => format!("{b} B"),
    }
}

fn multi_gpu(run: &Run) -> Section {
    let mut group = Group::default();
    let mut rows = Vec::new();
    for ((set, op), records) in by(of_study(run, "multi-gpu"), |record| (record.set.clone(), record.op.clone())) {
        let Some(one) = records.iter().find(|record| record.devices.len() == 1).map(|record| record.ops_per_s) else {
            continue;
        };
        let points: Vec<Point> = records.iter().map(|record| rate(record, record.devices.len() as f64)).collect();
        let most = records.iter().map(|record| record.devices.len()).max().unwrap_or(1);
        for record in &records {
            let devices = record.devices.len();
            let (times, each) = (record.ops_per_s / one, record.ops_per_s / one / devices as f64);
            rows.push(vec![
                short(&set).into(),
                op.clone(),
                devices.to_string(),
                significant(record.ops_per_s),
                ratio(times),
                format!("{:.0} %", 100.0 * each),
            ]);
        }
        let ideal = (1..=most).map(|n| Point { x: n as f64, y: one * n as f64, range: None, told: String::new() });
        let plot = Plot {
            title: format!("{} {op}", short(&set)),
            x: counts("GPUs", Scale::Linear),
            y: axis("per second", Scale::Linear, counted),
            series: vec![
                Series { name: "measured".into(), look: Look::Joined, points },
                Series { name: "in proportion".into(), look: Look::Dashed, points: ideal.collect() },
            ],
            rules: Vec::new(),
        };
        group.figures.push(Figure { name: slug(&["multi-gpu", &set, &op]), picture: plot.svg() });
    }
    let groups = if rows.is_empty() {
        Vec::new()
    } else {
        group.table = Some(Table {
            heads: vec!["set", "op", "GPUs", "per second", "of one", "a GPU's share of that"],
            words: 2,
            rows,
        });
        vec![group]
    };
    Section {
        id: "multi-gpu",
        title: "Several GPUs",
        reading: "The dashed line is what as many GPUs would do if none waited for another or for the host.",
        groups,
    }
}

/// What two runs have in common.
fn key(record: &Record) -> String {
    let shape = record.shape.clone().unwrap_or_default();
    let study = record.study.clone().unwrap_or_default();
    // A plain benchmark's batch fills its machine, whatever that takes; or is one job.
    let batch = match (record.study.is_some(), record.batch) {
        (true, batch) => grouped(batch as u64),
        (false, 1) => "1".into(),
        (false, _) => String::new(),
    };
    let batch = if batch.is_empty() { batch } else { format!("batch {batch}") };
    let cached = if record.cached_layers > 0 { format!("{} cached", record.cached_layers) } else { String::new() };
    let redundant = if record.redundant { "redundant" } else { "" };
    let several = if record.devices.len() > 1 { format!("{} devices", record.devices.len()) } else { String::new() };
    let parts = [short(&record.set), &record.op, &batch, &shape, &cached, redundant, &several, &study];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Rows of a comparison that one picture shows.
const MOST_ROWS: usize = 28;

/// Two runs: how many times as fast the second is.
pub(crate) fn compared(first: &Run, second: &Run) -> Section {
    let fastest = |run: &Run| {
        let measured = run.records.iter().filter(|record| record.op != "rates").cloned();
        by(measured, key).into_iter().map(|(key, records)| {
            let best = records.into_iter().max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s)).expect("not empty");
            (key, best)
        })
    };
    let (a, b): (Vec<_>, Vec<_>) = (fastest(first).collect(), fastest(second).collect());
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for (key, one) in &a {
        let Some((_, two)) = b.iter().find(|(other, _)| other == key) else { continue };
        let times = two.ops_per_s / one.ops_per_s;
        let spread = one.spread.hypot(two.spread);
        let told = format!(
            "{key}: {} against {} a second, {:.2} ± {:.1} %",
            significant(two.ops_per_s),
            significant(one.ops_per_s),
            times,
            50.0 * spread
        );
        rows.push(vec![
            key.clone(),
            significant(one.ops_per_s),
            significant(two.ops_per_s),
            format!("{times:.2}×"),
            format!("± {:.1} %", 50.0 * spread),
        ]);
        let range = Some((times * (1.0 - spread / 2.0).max(0.05), times * (1.0 + spread / 2.0)));
        bars.push(Bar { label: key.clone(), values: vec![(0, times, range)], text: format!("{times:.2}×"), told });
    }
    let mut group = Group { title: format!("{} against {}", second.name, first.name), ..Group::default() };
    while !bars.is_empty() {
        let rest = bars.split_off(bars.len().min(MOST_ROWS));
        let part = group.figures.len() + 1;
        let chart = Bars {
            title: if part == 1 && rest.is_empty() {
                "times as fast".into()
            } else {
                format!("times as fast, part {part}")
            },
            rows: std::mem::replace(&mut bars, rest),
            x: axis(&format!("{} over {}", clipped(&second.name), clipped(&first.name)), Scale::Log, ratio),
            series: Vec::new(),
            dots: true,
            rule: Some(1.0),
        };
        group.figures.push(Figure {
            name: slug(&["compared", &second.name, &first.name, &part.to_string()]),
            picture: chart.svg(),
        });
    }
    let groups = if rows.is_empty() {
        Vec::new()
    } else {
        let heads = vec!["measurement", "first, per second", "second, per second", "ratio", "spread"];
        group.table = Some(Table { heads, words: 1, rows });
        vec![group]
    };
    Section {
        id: "compared",
        title: "Two runs side by side",
        reading: "Right of the line the second run is faster. Of measurements that a run has several times, such as by several \
            instruction sets, the fastest counts. A whisker is half the quartile spread of both together: a ratio whose whisker \
            crosses the line is no difference.",
        groups,
    }
}

/// A name for an axis.
fn clipped(name: &str) -> String {
    if name.chars().count() <= 22 { name.into() } else { name.chars().take(21).chain(['…']).collect() }
}

impl Table {
    pub(crate) fn html(&self) -> Markup {
        html! {
            table {
                thead { tr { @for (i, head) in self.heads.iter().enumerate() { th scope="col" class=[(i >= self.words).then_some("number")] { (head) } } } }
                tbody {
                    @for row in &self.rows {
                        tr { @for (i, cell) in row.iter().enumerate() { td class=[(i >= self.words).then_some("number")] { (cell) } } }
                    }
                }
            }
        }
    }
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
        assert_eq!(row[3..], ["whole trees", "3.00 s", "2.90 s", "1.034×", "2.96 s", "+2.1 %", "-3.4 %"]);
        assert_eq!(gain("a GPU", "", "sign", &[&all[0], &all[1]]), None, "a sweep of one shape");
    }
}
