//! What a measurement leaves behind: one line of JSON, which reports read again.

use crate::stopwatch::{MESSAGE_BYTES, Times};
use hypergrove::Device;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One measurement. What a kind of measurement does not have is null or left out.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub(crate) struct Record {
    /// The study that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) study: Option<String>,
    pub(crate) scheme: String,
    pub(crate) set: String,
    pub(crate) op: String,
    pub(crate) batch: usize,
    pub(crate) backend: String,
    pub(crate) device: String,
    pub(crate) detail: String,
    /// All that worked.
    pub(crate) devices: Vec<String>,
    /// Host threads.
    pub(crate) threads: usize,
    /// What the study calls the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<String>,
    /// What of the policy differs from the backend's defaults.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) policy: BTreeMap<String, u32>,
    pub(crate) median_s: f64,
    pub(crate) min_s: f64,
    /// From the first quartile to the third, as a share of the median.
    pub(crate) spread: f64,
    pub(crate) runs: usize,
    /// Every run, ascending.
    pub(crate) times_s: Vec<f64>,
    /// Of each run what the device alone took, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) execute_s: Vec<f64>,
    pub(crate) ops_per_s: f64,
    /// At the limit; null where that is not known.
    pub(crate) ideal_s: Option<f64>,
    pub(crate) limit_fraction: Option<f64>,
    /// Of a GPU's kernels alone; null elsewhere.
    pub(crate) kernels_per_s: Option<f64>,
    pub(crate) kernels_limit_fraction: Option<f64>,
    /// What the link to a device with memory of its own carries, where that is the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link_bytes_per_s: Option<f64>,
    /// Poseidon permutations in that time, on average; with the device's bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poseidon_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poseidon_limit: Option<f64>,
    /// Always: a wrong answer ends a measurement with an error.
    pub(crate) verified: bool,
    pub(crate) cached_layers: usize,
    pub(crate) message_bytes: usize,
    /// Whether everything was computed twice and compared.
    pub(crate) redundant: bool,
    /// Where the rows lay, if it was rows: "host", ordinary memory; "device", memory that devices reach by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<String>,
    /// Each stage alone, in runs of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stages: Vec<StageRecord>,
    /// Seconds that growing the cached nodes took, and their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) build_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_bytes: Option<usize>,
    /// Cores, or multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cores: Option<u32>,
    /// Cycles a second: a GPU's highest, a CPU's now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock_hz: Option<f64>,
    /// Compressions a second of one core, measured before and after; null where no cores were used.
    pub(crate) rates: Option<Value>,
    /// Compressions a second of all devices together.
    pub(crate) limit: Option<Value>,
    /// Instead of a measurement: why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    pub(crate) version: String,
    pub(crate) commit: String,
}

/// A stage of a measurement.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct StageRecord {
    pub(crate) name: String,
    /// Of the launch that took longest.
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) launches: usize,
    /// Of every run the sum over launches, ascending.
    pub(crate) times_s: Vec<f64>,
}

impl Record {
    /// With what every record has.
    pub(crate) fn of(device: &Device) -> Record {
        Record {
            scheme: "SLH-DSA".into(),
            backend: device.backend.into(),
            device: device.name.clone(),
            detail: device.detail.clone(),
            devices: vec![device.id()],
            message_bytes: MESSAGE_BYTES,
            cores: Some(device.cores),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("HYPERGROVE_COMMIT").into(),
            ..Record::default()
        }
    }

    /// With what was timed.
    #[must_use]
    pub(crate) fn timed(self, times: &Times) -> Record {
        let (median_s, min_s, spread, runs) = (times.median(), times.min(), times.spread(), times.all().len());
        Record { median_s, min_s, spread, runs, times_s: times.all().to_vec(), ..self }
    }

    /// One line. What was left out says no more than it has to.
    pub(crate) fn line(&self) -> String {
        let text = |record: &Record| serde_json::to_string(record).expect("numbers and texts have a form in JSON");
        if self.skipped.is_none() {
            return text(self);
        }
        let parsed = |record: &Record| serde_json::from_str::<Value>(&text(record)).expect("it was written just now");
        let (mut value, nothing) = (parsed(self), parsed(&Record::default()));
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|field, value| nothing.get(field) != Some(value));
        }
        value.to_string()
    }
}
