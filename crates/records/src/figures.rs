//! Tables of figures in README.md and docs, and pictures of them, rendered from the records in `bench/runs` as `bench/tables.toml` asks.
//!
//! A document has a table between `<!-- table: NAME -->` and `<!-- end of table -->`.

use crate::benchmarks::Files;
use crate::numbers::{counted, per_second, seconds};
use crate::plot::{Axis, Bar, Bars, Room, Scale, file};
use crate::record::{Record, short};
use crate::runs::{RUNS, Run, RunRecord, newest};
use crate::tables::{self, UNKNOWN, share, table};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const TABLES: &str = "bench/tables.toml";
/// At the beginning of a line.
const BEGIN: &str = "\n<!-- table: ";
const END: &str = "<!-- end of table -->";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    table: Vec<Table>,
    #[serde(default)]
    picture: Vec<Picture>,
    #[serde(default)]
    comparison: Vec<Comparison>,
}

/// How many times as fast the OpenSSL provider is as OpenSSL's own code, drawn. `crates/openssl/bench/rate.c` has both take turns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Comparison {
    file: String,
    title: String,
    /// The title of the axis.
    axis: String,
    /// A file of `bench/runs`.
    record: String,
    /// `SLH-DSA-SHA2-128f sign`.
    rows: Vec<String>,
}

/// A turn of a provider. Lines of the tool, which may stand between them, have no provider.
#[derive(Deserialize)]
struct Turn {
    provider: Option<String>,
    #[serde(default)]
    set: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    operations: f64,
    #[serde(default)]
    seconds: f64,
}

impl Comparison {
    fn draw(&self, record: &str) -> Result<String, String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", self.record);
        let turns = record.lines().map(serde_json::from_str).collect::<Result<Vec<Turn>, _>>();
        let turns = turns.map_err(|why| failed(&why))?;
        let rate = |row: &str, provider: &str| {
            let of_row = |turn: &&Turn| {
                turn.provider.as_deref() == Some(provider) && format!("{} {}", turn.set, turn.operation) == row
            };
            median(turns.iter().filter(of_row).map(|turn| turn.operations / turn.seconds).collect())
                .ok_or_else(|| failed(&format!("no rate of '{row}' by the provider {provider}")))
        };
        let bar = |row: &String| {
            let (label, times) = (short(row).to_owned(), rate(row, "hypergrove")? / rate(row, "default")?);
            let (text, tooltip) = (format!("{times:.1}"), format!("{label}: {times:.1} times as fast"));
            Ok(Bar { label, values: vec![(0, times, None)], text, tooltip })
        };
        let rows = self.rows.iter().map(bar).collect::<Result<_, String>>()?;
        let x = Axis { title: self.axis.clone(), scale: Scale::Linear, shown: counted, whole: true };
        Ok(file(&Bars { rule: Some(1.0), ..Bars::new(self.title.clone(), x, rows) }.into(), Room::DOCUMENT))
    }
}

/// The middle of these, or the mean of the two in the middle.
fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    let upper = *rates.get(rates.len() / 2)?;
    Some(if rates.len().is_multiple_of(2) { (rates[rates.len() / 2 - 1] + upper) / 2.0 } else { upper })
}

/// Some rates of a table, drawn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Picture {
    file: String,
    title: String,
    /// The title of the axis.
    axis: String,
    table: String,
    rows: Vec<String>,
    machines: Vec<Machine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    name: String,
    /// The heading of its column.
    column: String,
}

impl Picture {
    fn draw(&self, tables: &[Table], runs: &[Run]) -> Result<String, String> {
        let lacks = |what: &str| format!("{TABLES}: picture {}: there is no {what}", self.file);
        let table = tables.iter().find(|table| table.name == self.table);
        let table = table.ok_or_else(|| lacks(&format!("table '{}'", self.table)))?;
        let empty = |row: &String| {
            let label = short(row).to_owned();
            Bar { tooltip: label.clone(), label, values: Vec::new(), text: String::new() }
        };
        let mut bars: Vec<Bar> = self.rows.iter().map(empty).collect();
        for (number, machine) in self.machines.iter().enumerate() {
            let column = table.columns.iter().find(|column| column.heading == machine.column);
            let found = table.found(column.ok_or_else(|| lacks(&format!("column '{}'", machine.column)))?, runs);
            for (bar, found) in bars.iter_mut().zip(self.rows.iter().map(|row| found.get(row))) {
                let Some(rate) = found.map(|found| found.record.ops_per_s) else { continue };
                bar.values.push((number, rate, None));
                let _ = write!(bar.tooltip, ", {}: {} a second", machine.name, per_second(rate));
            }
        }
        if let Some(bar) = bars.iter().find(|bar| bar.values.is_empty()) {
            return Err(lacks(&format!("rate of '{}'", bar.label)));
        }
        let picture = Bars {
            series: self.machines.iter().map(|machine| machine.name.clone()).collect(),
            dots: true,
            values: Some(per_second),
            ..Bars::new(
                self.title.clone(),
                Axis { title: self.axis.clone(), scale: Scale::Log, shown: counted, whole: false },
                bars,
            )
        };
        Ok(file(&picture.into(), Room::DOCUMENT))
    }
}

/// A row for each set and op, a column for each machine and measure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    /// `SLH-DSA-SHA2-128f sign`.
    rows: Vec<String>,
    columns: Vec<Column>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    heading: String,
    /// How the device's name begins.
    device: String,
    backend: String,
    /// A CPU's instruction set.
    isa: Option<String>,
    /// A CPU's threads.
    threads: Option<usize>,
    /// A CPU that is the host of GPUs, which is busier than one that is not.
    #[serde(default)]
    host_of_gpus: bool,
    /// The memory in which rows lie; jobs come by an iterator if nothing is said. Kernels alone are measured the same way in all cases.
    rows: Option<String>,
    measure: Measure,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    /// Jobs a second, with the share of the peak.
    Rate,
    /// Jobs a second of one engine on several cores, with the share of as many processes with one thread each: the study `cores` measures both.
    Cores,
    /// Jobs a second of the kernels alone, with the share of the peak.
    Kernels,
    /// The time of one job.
    OneJob,
    /// Bytes of messages a second, and those of the kernels alone.
    Bytes,
    KernelBytes,
}

impl Column {
    fn takes(&self, run: &Run, record: &Record) -> bool {
        let plain = record.cached_layers == 0 && !record.redundant && record.devices.len() == 1;
        let isa = self.isa.as_ref().is_none_or(|isa| *isa == record.detail);
        let threads = self.threads.is_none_or(|threads| threads == record.threads);
        let size = (record.batch == 1) == (self.measure == Measure::OneJob);
        let host = record.uses_gpu() || run.has_gpu() == self.host_of_gpus;
        let machine = record.device.starts_with(&self.device) && record.backend == self.backend && host;
        let rows = matches!(self.measure, Measure::Kernels | Measure::KernelBytes) || self.rows == record.rows;
        let cores = self.measure != Measure::Cores || record.process_fraction.is_some();
        plain && machine && isa && threads && size && rows && cores
    }

    fn cell(&self, record: &Record) -> String {
        let bytes =
            |rate: f64| format!("{}B/s", per_second(rate * record.message_bytes as f64).replace(" billion", " G"));
        let known = |rate: Option<f64>, text: &dyn Fn(f64) -> String| rate.map_or(UNKNOWN.into(), text);
        let with_share = |rate: f64, fraction: Option<f64>| match fraction {
            Some(_) => format!("{} ({})", per_second(rate), share(fraction)),
            None => per_second(rate),
        };
        match self.measure {
            Measure::Rate => with_share(record.ops_per_s, record.limit_fraction),
            Measure::Cores => with_share(record.ops_per_s, record.process_fraction),
            Measure::Kernels => known(record.kernels_per_s, &|rate| with_share(rate, record.kernels_limit_fraction)),
            Measure::OneJob => seconds(record.median_s),
            Measure::Bytes => bytes(record.ops_per_s),
            Measure::KernelBytes => known(record.kernels_per_s, &bytes),
        }
    }
}

impl Table {
    /// The newest record of each row in a column.
    fn found<'a>(&self, column: &Column, runs: &'a [Run]) -> BTreeMap<String, RunRecord<'a>> {
        let name = |record: &Record| format!("{} {}", record.set, record.op);
        let is_row = |name: &String| self.rows.contains(name);
        newest(runs, |run, record| column.takes(run, record).then(|| name(record)).filter(is_row))
    }

    /// The table, and the runs that its figures come from; `up` leads from the document to the root.
    fn render(&self, runs: &[Run], up: &str) -> Result<String, String> {
        let found: Vec<_> = self.columns.iter().map(|column| self.found(column, runs)).collect();
        if let Some(name) = self.rows.iter().find(|name| found.iter().all(|column| !column.contains_key(*name))) {
            return Err(format!("{TABLES}: table '{}': no record of '{name}'", self.name));
        }
        let cells: Vec<_> =
            self.columns.iter().map(|column| |found: RunRecord<'_>| column.cell(found.record)).collect();
        let columns: Vec<tables::Column<'_, String>> = (self.columns.iter().zip(&found).zip(&cells))
            .map(|((column, found), cell)| (&*column.heading, found, cell as _))
            .collect();
        let table = table(&[""], &columns, self.rows.iter().map(|name| (vec![short(name).into()], name)));
        let used: BTreeSet<&str> = found.iter().flat_map(BTreeMap::values).map(|found| &*found.run.name).collect();
        let runs: Vec<_> = used.iter().map(|run| format!("[{run}]({up}{RUNS}/{run}/setup.md)")).collect();
        Ok(format!("{table}\nRuns: {}.\n", runs.join(", ")))
    }
}

/// README.md and the pages in `docs` that have tables, with those tables as the records have them; and the pictures.
pub(crate) fn documents(runs: &[Run], files: &impl Files) -> Result<Vec<(String, String)>, String> {
    let text = files.read(TABLES)?;
    let tables: Tables = toml::from_str(&text).map_err(|error| format!("{TABLES}: {error}"))?;
    let draw = |picture: &Picture| Ok::<_, String>((picture.file.clone(), picture.draw(&tables.table, runs)?));
    let mut documents = tables.picture.iter().map(draw).collect::<Result<Vec<_>, _>>()?;
    for comparison in &tables.comparison {
        documents.push((comparison.file.clone(), comparison.draw(&files.read(&comparison.record)?)?));
    }
    for path in files.documents() {
        let text = files.read(&path)?;
        if text.contains(BEGIN) {
            let up = "../".repeat(path.matches('/').count());
            let text = filled(&text, &tables.table, runs, &up).map_err(|why| format!("{path}: {why}"))?;
            documents.push((path, text));
        }
    }
    Ok(documents)
}

/// A document with its tables rendered.
fn filled(text: &str, tables: &[Table], runs: &[Run], up: &str) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").ok_or("a table's first marker has no end")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("the table '{name}' has no `{END}`"))?;
        let table = tables.iter().find(|table| table.name == name);
        let table = table.ok_or_else(|| format!("{TABLES} has no table '{name}'"))?;
        let _ = write!(filled, "{before}{BEGIN}{name} -->\n\n{}\n{END}", table.render(runs, up)?);
        rest = after;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod test {
    use super::*;
    use serde_json::json;

    fn record(set: &str, batch: usize, rate: f64) -> Record {
        let record = json!({
            "scheme": "SLH-DSA", "set": set, "op": "sign", "batch": batch, "backend": "cpu", "device": "A CPU", "detail": "isa",
            "devices": ["cpu:0"], "threads": 1, "median_s": batch as f64 / rate, "min_s": 0.01, "spread": 0.1, "runs": 3,
            "ops_per_s": rate, "ideal_s": 0.1, "limit_fraction": 0.5, "verified": true, "cached_layers": 0, "message_bytes": 32,
            "version": "0.1.0", "commit": "c0ffee",
        });
        serde_json::from_value(record).expect("a record")
    }

    fn tables(rows: &str) -> Vec<Table> {
        let column = "device = \"A\", backend = \"cpu\"";
        let text = format!(
            "[[table]]\nname = \"speed\"\nrows = [{rows}]\ncolumns = [{{ heading = \"rate\", {column}, measure = \"rate\" }}, \
             {{ heading = \"alone\", {column}, threads = 1, isa = \"isa\", measure = \"one-job\" }}]"
        );
        toml::from_str::<Tables>(&text).expect("tables").table
    }

    #[test]
    fn tables_are_put_between_their_markers() {
        let records = vec![record("SLH-DSA-A", 1, 4.0), record("SLH-DSA-A", 8, 2048.0)];
        let runs = [Run { name: "2026-01-02-machine".into(), records, ..Run::default() }];
        let text = "Before.\n\n<!-- table: speed -->\nold\n<!-- end of table -->\n\nAfter.\n";
        let expected = "Before.\n\n<!-- table: speed -->\n\n|  | rate | alone |\n| --- | ---: | ---: |\n\
            | A sign | 2,050 (50 %) | 250 ms |\n\nRuns: [2026-01-02-machine](../bench/runs/2026-01-02-machine/setup.md).\n\n\
            <!-- end of table -->\n\nAfter.\n";
        let filled = |text: &str, rows: &str| filled(text, &tables(rows), &runs, "../");
        assert_eq!(filled(text, "\"SLH-DSA-A sign\"").as_deref(), Ok(expected));
        assert_eq!(filled(expected, "\"SLH-DSA-A sign\"").as_deref(), Ok(expected));
        // Of the study of cores the engine's record counts, not that of the processes.
        let of_cores = |field: &str, value: f64, rate: f64| {
            let mut record =
                serde_json::to_value(self::record("SLH-DSA-A", 8, rate)).expect("a record has a form in JSON");
            record[field] = json!(value);
            serde_json::from_value::<Record>(record).expect("a record")
        };
        let mut processes = of_cores("process_fraction", 1.0, 4096.0);
        processes.processes = Some(16);
        let records = vec![record("SLH-DSA-A", 16, 8192.0), of_cores("process_fraction", 0.875, 2048.0), processes];
        let runs = [Run { name: "2026-01-02-machine".into(), records, ..Run::default() }];
        let mut tables = tables("\"SLH-DSA-A sign\"");
        tables[0].columns.truncate(1);
        tables[0].columns[0].measure = Measure::Cores;
        let rendered = tables[0].render(&runs, "").expect("a table");
        assert!(rendered.contains("| A sign | 2,050 (88 %) |"), "{rendered}");
        for (text, rows, why) in [
            (text, "\"SLH-DSA-B sign\"", "no record of 'SLH-DSA-B sign'"),
            ("\n<!-- table: slow -->\n<!-- end of table -->", "", "has no table 'slow'"),
            ("\n<!-- table: speed -->", "", "has no `<!-- end of table -->`"),
        ] {
            let error = filled(text, rows).expect_err("a fault");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn providers_are_compared_by_their_medians() {
        let turn = |provider: &str, operations: u32, seconds: u32| {
            json!({ "provider": provider, "set": "SLH-DSA-A", "operation": "sign", "operations": operations, "seconds": seconds }).to_string()
        };
        let mut record = vec![json!({ "set": "SLH-DSA-A", "op": "sign", "ops_per_s": 1e9 }).to_string()];
        record.extend([turn("hypergrove", 8, 1), turn("hypergrove", 12, 2), turn("hypergrove", 1, 1)]);
        record.extend([turn("default", 1, 1), turn("default", 6, 2)]);
        let draw = |rows: &[&str]| {
            let rows = rows.iter().map(|row| row.to_string()).collect();
            let (title, axis) = ("t".into(), "times".into());
            let comparison = Comparison { file: "f".into(), title, axis, record: "r".into(), rows };
            comparison.draw(&record.join("\n"))
        };
        let picture = draw(&["SLH-DSA-A sign"]).expect("a picture");
        let texts = [">t<", ">times<", ">A sign<", ">3.0<", "A sign: 3.0 times as fast"];
        assert!(texts.iter().all(|text| picture.contains(text)), "{picture}");
        assert!(draw(&["SLH-DSA-A verify"]).is_err_and(|why| why.starts_with("r: no rate of 'SLH-DSA-A verify'")));
    }
}
