//! BENCHMARKS.md, rendered from the records in `bench/runs`: no figure in prose is typed by hand.

use crate::process::{Outcome, Step};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

const RUNS: &str = "bench/runs";
const PAGE: &str = "BENCHMARKS.md";

/// `cargo xtask benchmarks`: writes the page.
pub(crate) fn write() -> Result<(), String> {
    fs::write(PAGE, render()?).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

/// CI's step: the page is what the records say.
pub(crate) fn current() -> Step {
    let page = fs::read_to_string(PAGE).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    if page != render()? {
        return Err(format!("{PAGE} is not what {RUNS} says: `cargo xtask benchmarks` renders it"));
    }
    Ok(Outcome::Passed(format!("{} runs", runs()?.len())))
}

/// The folders of runs, the newest first.
fn runs() -> Result<Vec<PathBuf>, String> {
    let list = |path: &Path| -> io::Result<Vec<PathBuf>> {
        let mut found: Vec<_> = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        found.sort();
        found.reverse();
        Ok(found)
    };
    list(Path::new(RUNS)).map_err(|error| format!("cannot read {RUNS}: {error}"))
}

fn render() -> Result<String, String> {
    let mut page = String::from(
        "# Benchmarks\n\n\
         Rendered by `cargo xtask benchmarks` from the records in `bench/runs`, JSON lines of `hypergrove bench --json`; every\n\
         measurement verified its own answers. `of limit` is the time that the operation's hash compressions take at the\n\
         machine's own primitive rates, measured in the same run, everything in registers, over the median time. One row is\n\
         the median of at least three runs.\n",
    );
    for run in runs()? {
        let name = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let read = |file: &str| {
            fs::read_to_string(run.join(file)).map_err(|error| format!("cannot read {RUNS}/{name}/{file}: {error}"))
        };
        let _ = write!(page, "\n## {name}\n\n{}\n", read("setup.md")?.trim());
        let records: Vec<Value> = read("raw.jsonl")?
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("{RUNS}/{name}/raw.jsonl: {error}")))
            .collect::<Result<_, _>>()?;
        let mut heading = String::new();
        for record in &records {
            let text = |field: &str| record[field].as_str().unwrap_or("?");
            let number = |field: &str| record[field].as_f64().unwrap_or(f64::NAN);
            let rate = |field: &str| record["rates"][field].as_f64().unwrap_or(f64::NAN) / 1e6;
            let under = format!("{}, {}, threads {}", text("device"), text("detail"), number("threads"));
            if under != heading {
                let _ = write!(
                    page,
                    "\n### {under}\n\nCommit {}. One core: SHA-256 {:.1}, SHA-512 {:.1}, Keccak {:.1} million a second.\n\n\
                     | set | op | batch | median | per second | spread | of limit |\n\
                     | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
                    text("commit"),
                    rate("sha256"),
                    rate("sha512"),
                    rate("keccak"),
                );
                heading = under;
            }
            let cached = match number("cached_layers") as u32 {
                0 => String::new(),
                layers => format!(", {layers} cached"),
            };
            let _ = writeln!(
                page,
                "| {} | {}{cached} | {} | {} | {} | {:.1} % | {:.0} % |",
                text("set"),
                text("op"),
                number("batch"),
                time(number("median_s") / number("batch")),
                significant(number("ops_per_s")),
                100.0 * number("spread"),
                100.0 * number("limit_fraction"),
            );
        }
    }
    Ok(page)
}

/// Seconds a job, in a unit that suits.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} µs", significant(s * 1e6)),
        s if s < 1.0 => format!("{} ms", significant(s * 1e3)),
        s => format!("{} s", significant(s)),
    }
}

/// Three digits, or all of a large whole number.
fn significant(x: f64) -> String {
    let digits = (2 - x.log10().floor() as i32).clamp(0, 4);
    format!("{x:.*}", digits as usize)
}
