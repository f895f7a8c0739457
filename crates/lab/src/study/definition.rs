//! The definition of a study: `bench/definitions/*.toml`.

use super::list::{DEFINITIONS, names};
use crate::args::{OpName, RowMemory};
use crate::failure::Failure;
use hypergrove::backend::{Plan, Policy};
use hypergrove::quote::Quote;
use hypergrove_tune::trial;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A study.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// Its heading.
    pub(crate) title: String,
    /// The question that it answers.
    pub(crate) asks: String,
    pub(super) rows: Vec<Row>,
}

/// One kind of measurement of a study.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Row {
    /// A prepared program of one device under explicit policies.
    Program(ProgramRow),
    /// Calls of the library, host's share included.
    Engine(EngineRow),
    /// Callers that bring one job each.
    Callers(CallersRow),
    /// Threads of one engine, and as many processes.
    Cores(CoresRow),
    /// How fast devices hash at all.
    Rates(RatesRow),
    /// SHA-256 of many messages of equal length.
    Hash(HashRow),
}

/// Devices with memory of their own, or without.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Cpu,
    Gpu,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramRow {
    pub(super) on: Kind,
    pub(super) sets: Vec<String>,
    pub(super) ops: Vec<OpName>,
    pub(super) batches: Numbers,
    #[serde(default = "no_layers")]
    pub(super) cached_layers: Vec<usize>,
    #[serde(default)]
    pub(super) policies: Vec<Choice>,
    /// All combinations of these values.
    #[serde(default)]
    pub(super) grid: BTreeMap<String, Vec<Value>>,
    /// Whether each stage is timed alone as well.
    #[serde(default)]
    pub(super) stages: bool,
    /// Time for each measurement.
    pub(super) seconds: f64,
    /// Larger batches are left out once a run takes longer.
    #[serde(default = "endless")]
    pub(super) longest: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineRow {
    /// Both, if not given.
    pub(super) on: Option<Kind>,
    /// Numbers of devices that work together.
    #[serde(default = "one_device")]
    pub(super) devices: Vec<usize>,
    pub(super) sets: Vec<String>,
    pub(super) ops: Vec<OpName>,
    /// As many as fill the devices, if not given.
    pub(super) batches: Option<Numbers>,
    #[serde(default = "no_layers")]
    pub(super) cached_layers: Vec<usize>,
    /// How jobs reach the engine.
    #[serde(default = "as_jobs")]
    pub(super) through: Vec<JobInput>,
    pub(super) seconds: f64,
    #[serde(default = "endless")]
    pub(super) longest: f64,
}

/// How jobs reach the engine.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JobInput {
    /// An iterator gives them.
    Jobs,
    /// Rows in ordinary memory.
    Host,
    /// Rows in memory that devices reach.
    Device,
}

impl JobInput {
    pub(super) fn memory(self) -> Option<RowMemory> {
        match self {
            JobInput::Jobs => None,
            JobInput::Host => Some(RowMemory::Host),
            JobInput::Device => Some(RowMemory::Device),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallersRow {
    /// Both, if not given.
    pub(super) on: Option<Kind>,
    pub(super) sets: Vec<String>,
    pub(super) ops: Vec<OpName>,
    pub(super) callers: Vec<usize>,
    /// Numbers of threads that hold all tickets, in addition to a thread for each caller.
    pub(super) held: Vec<usize>,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoresRow {
    pub(super) sets: Vec<String>,
    pub(super) ops: Vec<OpName>,
    /// Turns in which every number of threads and of processes is measured.
    pub(super) turns: usize,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatesRow {
    pub(super) on: Option<Kind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HashRow {
    pub(super) on: Kind,
    /// Of a message.
    pub(super) bytes: Numbers,
    pub(super) messages: usize,
    /// Concurrent streams of work; none where the device has no such choice.
    #[serde(default)]
    pub(super) streams: Vec<u32>,
    pub(super) policies: Vec<Choice>,
}

fn endless() -> f64 {
    f64::INFINITY
}
fn no_layers() -> Vec<usize> {
    vec![0]
}
fn as_jobs() -> Vec<JobInput> {
    vec![JobInput::Jobs]
}
fn one_device() -> Vec<usize> {
    vec![1]
}

/// A row of numbers.
#[derive(Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Numbers {
    List(Vec<usize>),
    Steps {
        first: usize,
        last: usize,
        step: usize,
    },
    /// Powers of two.
    Doubling {
        from: usize,
        to: usize,
    },
    /// This part of what fills the device.
    Filling {
        filling: usize,
    },
}

impl Numbers {
    /// Ascending; `full` jobs fill the device.
    pub(super) fn all(&self, full: impl FnOnce() -> usize) -> Vec<usize> {
        match *self {
            Numbers::List(ref all) => all.clone(),
            Numbers::Steps { first, last, step } => (first..=last).step_by(step.max(1)).collect(),
            Numbers::Doubling { from, to } => {
                std::iter::successors(Some(from.max(1)), |n| n.checked_mul(2)).take_while(|n| *n <= to).collect()
            }
            Numbers::Filling { filling } => vec![(full() / filling.max(1)).max(1)],
        }
    }
}

/// A value of an axis.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    Number(u32),
    /// `cores`, or `1..cores`.
    Of(String),
}

impl Value {
    /// The numbers that are meant, the largest last.
    pub(super) fn all(&self, cores: u32) -> Vec<u32> {
        match self {
            Value::Number(number) => vec![*number],
            Value::Of(text) if text == "cores" => vec![cores],
            Value::Of(_) => (1..=cores).collect(),
        }
    }
}

/// A named policy.
#[derive(Clone, Deserialize)]
pub(super) struct Choice {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) axes: BTreeMap<String, Value>,
}

/// The definition of this name.
pub(crate) fn definition(name: &str) -> Result<Definition, Failure> {
    let Some((_, text)) = DEFINITIONS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = names().collect();
        return Err(Failure::new(format!("there is no study {}", Quote::name(name, names())))
            .hint(format!("the studies are {}", known.join(", "))));
    };
    toml::from_str(text).map_err(|why| Failure::new(format!("bench/definitions/{name}.toml: {why}")))
}

/// A policy by name and values; without values, the planner's for each batch.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) values: Vec<(String, u32)>,
}

impl Named {
    /// As the backend knows it; or why it does not.
    pub(super) fn on(&self, place: trial::Place<'_>, plan: &Plan) -> Result<Policy, String> {
        let programs = place.backend.slh_dsa_on(place.device);
        let space = programs.and_then(|of| of.space(place.device, plan)).map_err(|why| why.to_string())?;
        let known = |(name, value): &(String, u32)| {
            let axis = space.iter().find(|axis| axis.name == name);
            let shown = || Quote::name(name, space.iter().map(|axis| axis.name));
            axis.map(|axis| (axis.name, *value))
                .ok_or_else(|| format!("{} has no policy axis {}", place.device.id(), shown()))
        };
        self.values.iter().map(known).collect::<Result<_, _>>().map(Policy)
    }
}

/// A row's policies: those with a name, then the grid's.
pub(super) fn choices(row: &ProgramRow, cores: u32) -> Vec<Named> {
    let named = row.policies.iter().map(|choice| Named {
        name: choice.name.clone(),
        values: choice.axes.iter().flat_map(|(axis, value)| Some((axis.clone(), *value.all(cores).last()?))).collect(),
    });
    let mut grid = vec![Vec::new()];
    for (axis, values) in &row.grid {
        let values: Vec<u32> = values.iter().flat_map(|value| value.all(cores)).collect();
        let with = |point: &Vec<(String, u32)>| {
            let point = point.clone();
            values
                .iter()
                .map(move |value| point.iter().cloned().chain([(axis.clone(), *value)]).collect())
                .collect::<Vec<_>>()
        };
        grid = grid.iter().flat_map(with).collect();
    }
    let grid = grid.into_iter().filter(|values: &Vec<_>| !values.is_empty()).map(|values| Named {
        name: values.iter().map(|(axis, value)| format!("{axis} {value}")).collect::<Vec<_>>().join(", "),
        values,
    });
    named.chain(grid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::Params;

    #[test]
    fn every_definition_is_sound_and_listed() {
        for (name, _) in DEFINITIONS {
            let definition = definition(name).unwrap_or_else(|why| panic!("{}", why.message));
            assert!(definition.asks.ends_with('.') && !definition.rows.is_empty(), "{name}");
            for row in &definition.rows {
                let sets = match row {
                    Row::Program(row) => {
                        assert!(!choices(row, 8).is_empty(), "{name}: a row without policies");
                        &row.sets
                    }
                    Row::Engine(row) => &row.sets,
                    Row::Callers(row) => &row.sets,
                    Row::Cores(row) => &row.sets,
                    Row::Rates(_) | Row::Hash(_) => continue,
                };
                assert!(sets.iter().all(|name| name == "all" || name.parse::<&Params>().is_ok()), "{name}");
            }
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/definitions");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), DEFINITIONS.len(), "a definition that is not listed");
        let misspelt = ["kind = \"program\"\nset = []", "kind = \"abacus\"", "kind = \"rates\"\nof = \"gpu\""];
        for row in misspelt {
            let text = format!("title = \"\"\nasks = \"\"\n[[rows]]\n{row}\n");
            assert!(toml::from_str::<Definition>(&text).is_err(), "{row}");
        }
        let unknown = definition("abacus").err().unwrap();
        assert!(unknown.hint.unwrap().contains("throughput, ladder"));
    }

    #[test]
    fn numbers_and_grids() {
        let steps = Numbers::Steps { first: 1024, last: 65536, step: 1024 };
        assert_eq!((steps.all(|| 0).len(), steps.all(|| 0)[63]), (64, 65536));
        assert_eq!(Numbers::Doubling { from: 1, to: 9 }.all(|| 0), [1, 2, 4, 8]);
        assert_eq!(Numbers::Filling { filling: 16 }.all(|| 4096), [256]);
        assert_eq!(Numbers::Filling { filling: 16 }.all(|| 4), [1]);
        let row: ProgramRow = toml::from_str(
            r#"on = "gpu"
               sets = ["all"]
               ops = ["sign"]
               batches = [1]
               seconds = 1.0
               policies = [{ name = "one", blocks = "cores" }]
               grid = { blocks = [1, "cores"], threads = ["1..cores"] }"#,
        )
        .unwrap();
        let choices = choices(&row, 3);
        assert_eq!(choices.len(), 1 + 2 * 3);
        assert_eq!((&choices[0].name[..], &choices[0].values[..]), ("one", &[("blocks".to_string(), 3)][..]));
        assert_eq!(choices[6].name, "blocks 3, threads 3");
    }
}
