//! Files of text with a structure: the tuner's tables and journal, records of measurements, and ACVP's prompts.

use crate::checks::{Extent, brief, of_tool};
use hypergrove::backend::{Axis, Plan, THREADS};
use hypergrove::{Backend, Cpu, Device, Engine, Op};
use hypergrove_engine::Knowledge;
use hypergrove_fips205::PARAMETER_SETS;
use hypergrove_kat::acvp as prompts;
use hypergrove_lab::machine::Watched;
use hypergrove_lab::printer::Printer;
use hypergrove_records::report::Report;
use hypergrove_records::runs::{Run, record};
use hypergrove_tables::table::{Source as TableSource, Table, TableKnowledge};
use hypergrove_testkit::mock::{Mock, mock};
use hypergrove_tune::journal::{Head, Samples};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::str;

/// The name of an input in errors.
pub(super) const SOURCE: &str = "the input";

/// A device that tables of the corpus are of: every machine has it.
fn measured() -> Mock {
    let facts = |of| Device { name: "fuzzed".into(), detail: "lanes".into(), ..of };
    let axis = |name, tuned| Axis { name, values: Cow::Borrowed(&[0, 1, 2]), tuned };
    Mock { name: Cpu::NAME, facts, ..mock(1, 1) }
        .with_space(move |_, _| Ok(vec![axis(THREADS, true), axis("chunk", true), axis("check", false)]))
}

/// A table that is read is written and read again; whatever it says, choices by it are sound.
pub(super) fn tables(data: &[u8], _: Extent) {
    let Ok(text) = str::from_utf8(data) else { return };
    let backend = measured();
    let device = backend.devices().expect("one").remove(0);
    let sources = [TableSource { name: "table".into(), text: text.into() }];
    let known = TableKnowledge::new(&sources, &backend, &device);
    known.notices.iter().for_each(|notice| brief(notice));
    known.in_use().iter().for_each(|table| assert!(table.rows > 0));
    if known.rows() > 0 {
        for p in PARAMETER_SETS.iter().step_by(5) {
            let plans = [Op::Keygen, Op::Sign, Op::Verify].map(|op| Plan::new(p, op));
            for (plan, jobs) in plans.iter().flat_map(|plan| [0, 1, 100, usize::MAX].map(|jobs| (plan, jobs))) {
                let Some(choice) = known.choose(&backend, &device, plan, jobs) else { continue };
                let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
                let sound = choice.seconds.is_none_or(|(seconds, sigma)| is_time(seconds) && is_time(sigma));
                assert!(sound, "{jobs} jobs of {p} in {:?}", choice.seconds);
                assert_eq!(choice.policy.get("check"), None, "a table switches a check off");
            }
        }
    }
    if let Ok(table) = Table::parse(text) {
        assert_eq!(Table::parse(&table.text()), Ok(table.clone()));
        for ladder in [false, true] {
            let mut whole = table.clone();
            whole.take_over(table.rows.clone(), ladder);
            assert_eq!(Table::parse(&whole.text()), Ok(whole));
        }
    }
}

/// The samples of a journal are written and read again.
pub(super) fn journal(data: &[u8], _: Extent) {
    let Ok(text) = str::from_utf8(data) else { return };
    // Where the first line is a head, of that one.
    let first = text.split_inclusive('\n').next().and_then(|line| serde_json::from_str(line).ok());
    let head: Head = first.unwrap_or_else(|| Head {
        backend: Cpu::NAME.into(),
        device: "fuzzed".into(),
        detail: "lanes".into(),
        space: String::new(),
        threads: 1,
    });
    let mut samples = Samples::read(text, &head);
    assert!(samples.found + samples.damaged <= text.lines().count());
    let text = format!("{}\n{}", serde_json::to_string(&head).expect("texts and a number"), samples.lines);
    samples.damaged = 0;
    assert_eq!(Samples::read(&text, &head), samples);
}

/// A record that is read is written and read again; used, all of them make a page in which nothing that they say is markup.
pub(super) fn records(data: &[u8], extent: Extent) {
    let mut run = Run { name: "<run>".into(), setup: "<setup>".into(), ..Run::default() };
    for line in data.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        match record(line) {
            Ok(read) => {
                assert_eq!(record(read.line().as_bytes()), Ok(read.clone()));
                if read.skipped.is_some() { &mut run.skipped } else { &mut run.records }.push(read);
            }
            Err(why) => {
                brief(&why);
                run.bad.push(why);
            }
        }
    }
    if extent == Extent::Use && !run.records.is_empty() {
        let runs = [run];
        let shown = Report::new(&runs).page();
        // The corpus has names with these words in them.
        for markup in ["<run", "<setup", "<fuzz", "\"fuzz\""] {
            assert!(!shown.contains(markup), "{markup} is in the page");
        }
    }
}

/// Answers, by their numbers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    test_groups: Vec<AnsweredGroup>,
}

#[derive(Deserialize)]
struct AnsweredGroup {
    tests: Vec<IgnoredAny>,
}

/// A prompt is read; used, it is answered, test by test.
pub(super) fn acvp(data: &[u8], extent: Extent) {
    let Some((version, prompt)) = of_tool(prompts::parse(SOURCE, data)) else { return };
    let groups: Vec<usize> = prompt.test_groups.iter().map(|group| group.tests.len()).collect();
    // Every test is milliseconds of work.
    if extent == Extent::Read || groups.iter().sum::<usize>() > 8 {
        return;
    }
    assert!(version.is_none_or(|version| version.get().len() <= data.len()));
    let printer = Printer::new(true, false);
    let engine = || {
        let builder = Engine::builder().backend(std::sync::Arc::new(hypergrove::Cpu::new())).threads(1);
        Ok(Watched::new(builder.build()?, &printer))
    };
    let Some(results) = of_tool(prompts::answer(prompt, engine, &printer)) else { return };
    let text = serde_json::to_string(&results).expect("answers have a form in JSON");
    let answered: Answered = serde_json::from_str(&text).expect("they are answers");
    let answered = answered.test_groups.iter().map(|group| group.tests.len());
    assert!(answered.eq(groups), "an answer for each test");
}
