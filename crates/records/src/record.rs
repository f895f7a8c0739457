//! The record of a measurement: one line of JSON, which reports read again.

use hypergrove_fips205::Rates;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The backend that computes with all instructions of the host.
pub(crate) const CPU: &str = "cpu";
/// Backends that compute on the host's cores; all others are GPUs.
const HOSTS: &[&str] = &[CPU, "reference"];
/// The operations of signature schemes. Pages have them in this order; others follow.
pub(crate) const OPS: &[&str] = &["keygen", "sign", "verify"];

/// One measurement. Fields that a kind of measurement does not have are null or left out.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Record {
    /// The study that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study: Option<String>,
    /// The trial that it is, where versions of the code were compared: `bench` writes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// The signature scheme, or SHA-256.
    pub scheme: String,
    /// The parameter set.
    pub set: String,
    /// The operation, as it is typed.
    pub op: String,
    /// Jobs that were submitted together.
    pub batch: usize,
    /// Of the first device.
    pub backend: String,
    /// The first device.
    pub device: String,
    /// The instruction set or driver of the first device.
    pub detail: String,
    /// All that worked.
    pub devices: Vec<String>,
    /// Host threads.
    pub threads: usize,
    /// The study's name for the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Values of the policy's axes; the backend's defaults hold for the others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, u32>,
    /// Seconds of a run.
    pub median_s: f64,
    /// Seconds of the shortest run.
    pub min_s: f64,
    /// From the first quartile to the third, as a share of the median.
    pub spread: f64,
    /// Runs that were timed.
    pub runs: usize,
    /// Every run, ascending.
    pub times_s: Vec<f64>,
    /// Of each run what the device alone took, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execute_s: Vec<f64>,
    /// Jobs a second, by the median.
    pub ops_per_s: f64,
    /// At the limit; null where that is not known.
    pub ideal_s: Option<f64>,
    /// The ideal time over the median.
    pub limit_fraction: Option<f64>,
    /// Of a GPU's kernels alone; null elsewhere.
    pub kernels_per_s: Option<f64>,
    /// The ideal time over the kernels' time.
    pub kernels_limit_fraction: Option<f64>,
    /// Bytes a second of the link to a device with memory of its own, where the link can be the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// Poseidon permutations in that time, on average; with the device's bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poseidon_per_s: Option<f64>,
    /// The device's bound of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poseidon_limit: Option<f64>,
    /// Always: a wrong answer ends a measurement with an error.
    pub verified: bool,
    /// Top layers of the keys whose nodes were kept.
    pub cached_layers: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Whether everything was computed twice and compared.
    pub redundant: bool,
    /// Where the rows lay, if it was rows: "host", ordinary memory; "device", memory that devices reach by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// Callers that brought one job each, if it was callers: times are how long each waited for a result, and `runs` counts the results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callers: Option<usize>,
    /// Jobs of a batch on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batched: Option<f64>,
    /// Seconds that 99 % of callers wait at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_s: Option<f64>,
    /// Seconds that 99.9 % wait at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_s: Option<f64>,
    /// Processes with one thread each that ran together, if it was processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// The rate over that of as many processes as there are threads, by the median of the turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_fraction: Option<f64>,
    /// Each stage alone, in runs of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRecord>,
    /// Seconds that growing the cached nodes took, and their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_s: Option<f64>,
    /// Bytes of the cached nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<usize>,
    /// Cores; of a GPU, SMs or compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Cycles a second: a GPU's highest, a CPU's now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Compressions a second of one core, measured before and after; null where no cores were used.
    pub rates: Option<HashRates>,
    /// Compressions a second of all devices together.
    pub limit: Option<HashRates>,
    /// Instead of a measurement: why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The version of the tool.
    pub version: String,
    /// The commit that the tool was built from.
    pub commit: String,
}

/// Seconds of some runs, ascending; at least one.
#[derive(Clone)]
pub struct Times(Vec<f64>);

impl Times {
    /// Of runs in any order.
    pub fn new(mut seconds: Vec<f64>) -> Times {
        seconds.sort_by(f64::total_cmp);
        Times(seconds)
    }
    /// All of them.
    pub fn all(&self) -> &[f64] {
        &self.0
    }
    /// Half of the runs take longer.
    pub fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        if self.0.len() % 2 == 1 { self.0[middle] } else { (self.0[middle - 1] + self.0[middle]) / 2.0 }
    }
    /// The mean of the runs.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
    /// The shortest run.
    pub fn min(&self) -> f64 {
        self.0[0]
    }
    /// From the first quartile to the third, as a share of the median.
    pub fn spread(&self) -> f64 {
        let last = self.0.len() - 1;
        (self.0[last * 3 / 4] - self.0[last / 4]) / self.median()
    }
}

/// Compressions or permutations a second, by hash.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct HashRates {
    /// Of SHA-256.
    pub sha256: f64,
    /// Of SHA-512.
    pub sha512: f64,
    /// Of Keccak.
    pub keccak: f64,
}

impl From<Rates> for HashRates {
    fn from(Rates { sha256, sha512, keccak, .. }: Rates) -> HashRates {
        HashRates { sha256, sha512, keccak }
    }
}

impl From<HashRates> for Rates {
    fn from(HashRates { sha256, sha512, keccak }: HashRates) -> Rates {
        Rates { sha256, sha512, keccak, integers: 0.0 }
    }
}

/// A stage of a measurement.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct StageRecord {
    /// The stage.
    pub name: String,
    /// Of the launch that took longest.
    pub blocks: u32,
    /// Of each of these blocks.
    pub threads: u32,
    /// Launches of a run.
    pub launches: usize,
    /// Of every run the sum over launches, ascending.
    pub times_s: Vec<f64>,
}

/// Seconds, rates and shares that a machine can have. Sums, products and quotients of a few of them are finite.
const SENSIBLE: RangeInclusive<f64> = 1e-30..=1e30;

impl Record {
    /// One line. The record of a measurement that was left out has no fields with default values.
    pub fn line(&self) -> String {
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

    /// With what was timed.
    #[must_use]
    pub fn timed(self, times: &Times) -> Record {
        let (median_s, min_s, spread, runs) = (times.median(), times.min(), times.spread(), times.all().len());
        Record { median_s, min_s, spread, runs, times_s: times.all().to_vec(), ..self }
    }

    /// Whether a GPU worked.
    pub(crate) fn uses_gpu(&self) -> bool {
        let backend = |id: &String| id.split(':').next().is_some_and(|name| HOSTS.contains(&name));
        !self.devices.iter().all(backend)
    }

    /// Whether the fields of a measurement make sense, each by itself; or which one does not.
    pub fn check(&self) -> Result<(), String> {
        if !self.verified {
            return Err("what was not verified does not count".into());
        }
        let positive = |value: f64| SENSIBLE.contains(&value);
        let share = |value: f64| value == 0.0 || positive(value);
        let known = |value: Option<f64>| value.is_none_or(share);
        let stage = |stage: &StageRecord| !stage.times_s.is_empty() && stage.times_s.iter().all(|s| share(*s));
        let of_all = [
            ("op", !self.op.is_empty()),
            ("spread", share(self.spread)),
            ("limit_fraction", known(self.limit_fraction)),
            ("kernels_per_s", known(self.kernels_per_s)),
            ("kernels_limit_fraction", known(self.kernels_limit_fraction)),
            ("build_s", known(self.build_s)),
        ];
        let of_jobs = [
            ("set", !self.set.is_empty()),
            ("batch", self.batch > 0),
            ("median_s", positive(self.median_s)),
            ("ops_per_s", positive(self.ops_per_s)),
            ("times_s", self.times_s.iter().chain(&self.execute_s).all(|s| positive(*s))),
            ("stages", self.stages.iter().all(stage)),
        ];
        let of_jobs = if self.op == "rates" { &[][..] } else { &of_jobs };
        match of_all.iter().chain(of_jobs).find(|(_, makes_sense)| !makes_sense) {
            Some((field, _)) => Err(format!("`{field}` is missing or makes no sense")),
            None => Ok(()),
        }
    }
}

/// Bytes of a digest of SHA-256.
pub const SHA256_BYTES: usize = 32;
/// Bytes of a block.
pub const SHA256_BLOCK: usize = 64;

/// Blocks of a message with its padding, which takes nine bytes of the last one at least.
pub fn sha256_blocks(bytes: usize) -> usize {
    (bytes + 9).div_ceil(SHA256_BLOCK)
}

/// SLH-DSA-SHA2-128f → `SHA2-128f`.
pub fn short(set: &str) -> &str {
    set.strip_prefix("SLH-DSA-").unwrap_or(set)
}
