//! BENCHMARKS.md, rendered from the records in `bench/runs`: no figure in prose is typed by hand.

use crate::figures;
use crate::numbers::{grouped, per_second, seconds};
use crate::peak::at_peak;
use crate::record::{OPS, Record, short};
use crate::runs::{RUNS, Run, RunRecord, newest};
use crate::tables::{Column, Shown, UNKNOWN, share, table};
use hypergrove_fips205::Rates;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const PAGE: &str = "BENCHMARKS.md";

const INTRODUCTION: &str = "# Benchmarks\n\n\
    `cargo xtask benchmarks` renders this page from the records in `bench/runs`, which `hypergrove bench --json` writes. Every measurement\n\
    verified its own answers. Each row is the median of at least three runs. It comes from the newest day on which the operation was measured on\n\
    that machine, and from the fastest run of that day. The last column links to that run's notes. Older records stay in `bench/runs`,\n\
    and `hypergrove report` compares them.\n\n\
    * `jobs` is the number of jobs in one call. `spread` is the distance between the quartiles, as a fraction of the median. A dash stands for an unknown figure.\n\
    * `per second` is the rate of a call. On a CPU it is the rate of one thread. On a GPU it is end to end: from the host's memory to the host's memory, including the digests of messages. `kernels per second` is\n  \
    the rate of one device with one program at a time and with inputs in its own memory.\n\
    * `one job` is the time of a call with a single job.\n\
    * `% of peak` is the time that the operation's hash compressions or permutations take at the peak rate, over the median time. The peak is:\n  \
    * on a CPU, the best rate of one core in the whole run, with everything in registers, times the number of threads;\n  \
    * on a GPU, a computed rate: all integer pipes of all SMs at the highest clock, with the fewest integer operations that the operation needs\n    \
    ([what limits](docs/cuda.md#what-limits)). The rates of whole compressions above each table are lower, because an operation saves parts of them;\n  \
    * for a verification and for SHA-256 of messages, end to end, the lower of that rate and the link's, if a run measured the device's link;\n  \
    * for devices that work together, the sum of their peaks.\n\
    * `rows in … memory` marks calls of rows, in the host's ordinary memory or in pinned memory (`Engine::memory`). Other calls bring jobs by an iterator or a list.\n\
    * With `redundant` the engine computes everything twice and compares it. The figure of the kernels counts both computations.\n\n\
    Machines:\n";

/// A folder of [`RUNS`]: its name, and the text of `raw.jsonl`. A run without this file has records of another kind, such as the
/// instructions of kernels.
pub type Folder = (String, Option<String>);

/// The runs of these folders, each record compared with the peak of its device.
pub fn runs(folders: impl IntoIterator<Item = Folder>) -> Result<Vec<Run>, String> {
    let run = |(name, raw): Folder| match raw {
        Some(raw) => Run::whole(&name, &raw).map_err(|why| format!("{RUNS}/{name}/raw.jsonl: {why}")),
        None => Ok(Run { name, ..Run::default() }),
    };
    let mut runs = folders.into_iter().map(run).collect::<Result<Vec<_>, _>>()?;
    at_peak(&mut runs)?;
    Ok(runs)
}

/// The workspace's files, as far as rendering needs them.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &str) -> Result<String, String>;
    /// The paths of documents that may have tables.
    fn documents(&self) -> Vec<String>;
    /// The anchor of a heading in Markdown.
    fn anchor(&self, heading: &str) -> String;
}

/// All files with figures, as the records have them: paths and texts.
pub fn rendered(runs: &[Run], files: &impl Files) -> Result<Vec<(String, String)>, String> {
    let mut all = figures::documents(runs, files)?;
    all.push((PAGE.into(), page(runs, |heading| files.anchor(heading))));
    Ok(all)
}

/// The operation that a row of the page is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    set: String,
    /// With its place in [`OPS`].
    op: (usize, String),
    /// Rows, cached layers, redundancy or several devices. Empty if there is none of them.
    variant: String,
}

fn subject(record: &Record) -> Subject {
    let mut variant = String::new();
    if let Some(memory) = &record.rows {
        // `Engine::memory`, which a record calls the device's.
        let memory = if memory == "device" { "pinned" } else { memory };
        let _ = write!(variant, ", rows in {memory} memory");
    }
    if record.cached_layers > 0 {
        let plural = if record.cached_layers == 1 { "" } else { "s" };
        let _ = write!(variant, ", {} layer{plural} cached", record.cached_layers);
    }
    if record.redundant {
        variant += ", redundant";
    }
    if record.devices.len() > 1 {
        let _ = write!(variant, ", by {}", record.devices.join(" and "));
    }
    let op = OPS.iter().position(|op| *op == record.op).unwrap_or(OPS.len());
    Subject { set: short(&record.set).into(), op: (op, record.op.clone()), variant }
}

/// A section of the page is about one of these.
#[derive(Clone, Copy, PartialEq)]
struct Machine<'a> {
    kind: Kind,
    device: &'a str,
    detail: &'a str,
}

/// In the page's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Gpu,
    Host,
    HostOfGpus,
}

impl<'a> Machine<'a> {
    fn of(run: &Run, record: &'a Record) -> Self {
        let kind = match (record.uses_gpu(), run.has_gpu()) {
            (true, _) => Kind::Gpu,
            (false, true) => Kind::HostOfGpus,
            (false, false) => Kind::Host,
        };
        Self { kind, device: &record.device, detail: &record.detail }
    }

    fn title(&self) -> String {
        let host = if self.kind == Kind::HostOfGpus { ", host of GPUs" } else { "" };
        format!("{}, {}{host}", self.device, self.detail)
    }

    /// The peak, if a record knows it, and the table.
    fn section<'r>(&self, runs: &'r [Run], used: &mut BTreeSet<&'r str>) -> String {
        let is_gpu = self.kind == Kind::Gpu;
        let here = |run: &Run, record: &Record| Machine::of(run, record) == *self;
        let records = runs.iter().flat_map(|run| run.records.iter().filter(move |record| here(run, record)));
        let peaks = records.clone().filter_map(|record| match is_gpu {
            true => record.limit.filter(|_| record.devices.len() == 1),
            false => record.rates.filter(|_| record.threads == 1),
        });
        let peak = peaks.map(Rates::from).reduce(|a, b| a.zip(&b, f64::max)).map_or(String::new(), |rates| {
            let [sha256, sha512, keccak] = rates.each().map(|(_, rate)| per_second(rate));
            format!("Peak a second: SHA-256 {sha256}, SHA-512 {sha512}, Keccak {keccak}.\n\n")
        });

        let find = |is_single: bool, threads: Option<usize>| {
            newest(runs, |run, record| {
                let fits = (record.batch == 1) == is_single && threads.is_none_or(|threads| threads == record.threads);
                (here(run, record) && fits).then(|| subject(record))
            })
        };
        // Of a host: one thread, and as many as were tried.
        let own_threads = (!is_gpu).then_some(1);
        let (many, one) = (find(false, own_threads), find(true, own_threads));
        let most = records.map(|record| record.threads).max().filter(|most| !is_gpu && *most > 1);
        let all = most.map_or(BTreeMap::new(), |_| find(false, most));
        let mut any = one.clone();
        any.extend(all.iter().chain(&many).map(|(subject, found)| (subject.clone(), *found)));
        used.extend(any.values().map(|found| &*found.run.name));

        let rate = |found: RunRecord<'_>| per_second(found.record.ops_per_s);
        let spread = |found: RunRecord<'_>| format!("{:.1} %", 100.0 * found.record.spread);
        let of_peak = |found: RunRecord<'_>| share(found.record.limit_fraction);
        let all_threads = format!("{} threads, per second", most.unwrap_or_default());
        let mut columns: Vec<Column<'_, Subject>> = vec![
            ("jobs", &many, &|found| grouped(found.record.batch as u64)),
            ("per second", &many, &rate),
            ("spread", &many, &spread),
            ("% of peak", &many, &of_peak),
        ];
        if is_gpu {
            let kernels: &Shown = &|found| found.record.kernels_per_s.map_or(UNKNOWN.into(), per_second);
            columns.push(("kernels per second", &many, kernels));
            columns.push(("% of peak", &many, &|found| share(found.record.kernels_limit_fraction)));
        }
        columns.push(("one job", &one, &|found| seconds(found.record.median_s)));
        if !all.is_empty() {
            columns.extend([
                (&*all_threads, &all, &rate as &Shown),
                ("spread", &all, &spread),
                ("% of peak", &all, &of_peak),
            ]);
        }
        columns.push(("run", &any, &|found| format!("[{}]", found.run.name)));
        let words = |subject: &Subject| vec![subject.set.clone(), format!("{}{}", subject.op.1, subject.variant)];
        peak + &table(&["set", "op"], &columns, any.keys().map(|subject| (words(subject), subject)))
    }
}

/// The page: its contents, then one section a machine.
fn page(runs: &[Run], anchor: impl Fn(&str) -> String) -> String {
    let mut machines = Vec::<Machine<'_>>::new();
    for (run, record) in runs.iter().flat_map(|run| run.records.iter().map(move |record| (run, record))) {
        let machine = Machine::of(run, record);
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    machines.sort_by_key(|machine| (machine.kind, machine.device));
    let (mut contents, mut sections, mut used) = (String::new(), String::new(), BTreeSet::new());
    for machine in machines {
        let title = machine.title();
        let _ = writeln!(contents, "* [{title}](#{})", anchor(&title));
        let _ = write!(sections, "\n## {title}\n\n{}", machine.section(runs, &mut used));
    }
    let mut page = format!("{INTRODUCTION}\n{contents}{sections}\n");
    for run in used {
        let _ = writeln!(page, "[{run}]: {RUNS}/{run}/setup.md");
    }
    page
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::runs::test::{cpu, gpu, one, run, with};
    use serde_json::json;

    /// The page behind its introduction.
    fn rendered(runs: &[Run]) -> String {
        let page = page(runs, |heading| heading.to_lowercase().replace(',', "").replace(' ', "-"));
        page.strip_prefix(INTRODUCTION).expect("the introduction").into()
    }

    #[test]
    fn a_host_has_one_thread_and_all() {
        let single = |changes| with(with(cpu(), json!({ "threads": 1 })), changes);
        let alone = single(json!({ "batch": 1, "ops_per_s": 2.0 }));
        let cached = single(json!({ "cached_layers": 2, "ideal_s": null, "limit_fraction": null }));
        assert_eq!(
            rendered(&[run("2026-01-02-machine", &[cpu(), single(json!({})), alone, cached])]),
            "\n* [A CPU, isa](#a-cpu-isa)\n\n## A CPU, isa\n\n\
            Peak a second: SHA-256 80.0 million, SHA-512 30.0 million, Keccak 20.0 million.\n\n\
            | set | op | jobs | per second | spread | % of peak | one job | 2 threads, per second | spread | % of peak | run |\n\
            | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n\
            | A | sign | 4 | 8.00 | 12.5 % | 50 % | 500 ms | 8.00 | 12.5 % | 50 % | [2026-01-02-machine] |\n\
            | A | sign, 2 layers cached | 4 | 8.00 | 12.5 % | – | – | – | – | – | [2026-01-02-machine] |\n\
            \n[2026-01-02-machine]: bench/runs/2026-01-02-machine/setup.md\n"
        );
        let page = rendered(&[run("2026-01-02-machine", &[single(json!({}))])]);
        assert!(page.contains("| one job | run |") && !page.contains("threads"), "{page}");
    }

    #[test]
    fn a_gpu_has_a_row_of_each_kind() {
        let pair = json!({ "devices": ["cuda:0", "cuda:1"], "kernels_per_s": null, "kernels_limit_fraction": null });
        let all = [
            one(gpu()),
            gpu(),
            with(gpu(), json!({ "redundant": true, "rows": "host", "ideal_s": null, "limit_fraction": null })),
            with(gpu(), pair),
            with(one(gpu()), json!({ "cached_layers": 1 })),
        ];
        let page = rendered(&[run("2026-01-02-machine", &all)]);
        let (_, rows) = page.split_once("| --- |\n").unwrap();
        assert_eq!(
            rows,
            "| A | sign | 65,536 | 131,000 | 12.5 % | 50 % | 140,000 | 75 % | 1.00 ms | [2026-01-02-machine] |\n\
             | A | sign, 1 layer cached | – | – | – | – | – | – | 1.00 ms | [2026-01-02-machine] |\n\
             | A | sign, by cuda:0 and cuda:1 | 65,536 | 131,000 | 12.5 % | 50 % | – | – | – | [2026-01-02-machine] |\n\
             | A | sign, rows in host memory, redundant | 65,536 | 131,000 | 12.5 % | – | 140,000 | 75 % | – | [2026-01-02-machine] |\n\
             \n[2026-01-02-machine]: bench/runs/2026-01-02-machine/setup.md\n"
        );
        assert!(page.contains("Peak a second: SHA-256 16.3 billion, SHA-512 5.08 billion, Keccak 3.40 billion.\n"));
    }
}
