//! Devices, the policies that divide their work, the abilities of their programs, and the times of runs.

use std::borrow::Cow;
use std::ops::AddAssign;
use std::time::Duration;

/// A device that computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// The name of its backend, for example `cuda`.
    pub backend: &'static str,
    /// The device's number among the devices of its backend, from 0.
    pub index: u32,
    /// The name that its maker gave it.
    pub name: String,
    /// The instruction set of a CPU, or the driver of a GPU.
    pub detail: String,
    /// The number of cores of a CPU, or of SMs or compute units of a GPU.
    pub cores: u32,
    /// Bytes of the device's own memory; 0 if it uses the host's memory.
    pub memory: u64,
    /// The most programs in flight that keep the device busier than fewer would; 1 if one program uses all of it.
    pub queue: u32,
    /// A number that no other device has, if the device has such a number. It shows whether two backends reach the same device.
    pub uuid: Option<[u8; 16]>,
    /// Whether the engine may choose the device by itself. A caller must name a CPU that a GPU's driver offers as a device.
    pub automatic: bool,
}

impl Device {
    /// The backend and the index, as errors and command lines name the device: `cuda:0`.
    pub fn id(&self) -> String {
        format!("{}:{}", self.backend, self.index)
    }

    /// Compressions a second that the engine assumes until it has measured a run; `threads` are the host's threads. The number is low on purpose, so
    /// that the first results come soon.
    pub fn guessed_rate(&self, threads: usize) -> f64 {
        match self.memory {
            0 => RATE_OF_A_THREAD * threads as f64,
            _ => RATE_OF_A_UNIT * f64::from(self.cores.max(1)),
        }
    }
}

/// Compressions a second of a host's thread, and of a compute unit; see [`Device::guessed_rate`].
const RATE_OF_A_THREAD: f64 = 1e7;
const RATE_OF_A_UNIT: f64 = 5e7;

/// The name of the axis that the engine itself sets, if a backend's space has it: the host threads that a program may use. With 1 a program runs on
/// the calling thread and touches no thread pool; with more, `run` is called inside a pool. Programs of the host itself share that pool. On any other
/// device each run in flight has a pool of its own, which may be smaller.
pub const THREADS: &str = "threads";

/// The name of the axis that makes a program time each of its stages alone, if its backend can: 1 for yes. No space has this axis, because with it
/// nothing runs concurrently, and a run takes longer than necessary.
pub const STAGES: &str = "stages";

/// How long a wait for a device may take, at least, before the device counts as hung: see [`Program::time_limit`](crate::Program::time_limit).
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);

/// A device is hung when a wait for it takes more than this many times the predicted time of its jobs. The prediction may be a guess, and other
/// programs may use the device too.
const HUNG: f64 = 100.0;

/// How long a wait for a device may take if its jobs are predicted to take `seconds`, and never less than `least`. `None` means no limit, as does
/// `Duration::MAX`. For [`Program::time_limit`](crate::Program::time_limit).
pub fn time_limit(seconds: f64, least: Duration) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(HUNG * seconds).unwrap_or(Duration::MAX);
    Some(limit.max(least)).filter(|limit| *limit < Duration::MAX)
}

/// One choice of a policy, and its possible values. The tuner does not know the meaning of the values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Axis {
    /// The name of the axis.
    pub name: &'static str,
    /// The values that the axis may have, in order.
    pub values: Cow<'static, [u32]>,
    /// Whether a tuner may choose the value. It may not if a value gives up a check, or exists only for comparison.
    pub tuned: bool,
}

impl Axis {
    /// An axis whose value a tuner may choose.
    pub fn new(name: &'static str, values: &'static [u32]) -> Axis {
        Axis { name, values: Cow::Borrowed(values), tuned: true }
    }
    /// The axis [`THREADS`], with values from 1 to the number of the host's cores.
    pub fn threads() -> Axis {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Axis { name: THREADS, values: Cow::Owned((1..=cores).collect()), tuned: true }
    }
}

/// How a device divides the work: a value for some axes. The other axes have the backend's defaults.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Policy(pub Vec<(&'static str, u32)>);

impl Policy {
    /// The value chosen for an axis.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.iter().find(|(axis, _)| *axis == name).map(|(_, value)| *value)
    }

    /// This policy, with `value` for the axis `name`.
    #[must_use]
    pub fn with(&self, name: &'static str, value: u32) -> Policy {
        let others = self.0.iter().copied().filter(|(axis, _)| *axis != name);
        Policy(others.chain([(name, value)]).collect())
    }
}

/// Where on a device the jobs of a run are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Places {
    /// Every job in its usual place.
    #[default]
    Usual,
    /// Every job in another place than usual, a single job too: another lane of a vector, another thread. A batch that is run both ways gives
    /// different bytes if one place is faulty. [`Program::read`](crate::Program::read) means nothing after such a run. The error is `OutOfMemory` if there is no room for
    /// another place. If there is only one place, it is the usual one: in the reference, for cached nodes on a GPU, and for a key that all jobs share.
    Other,
    /// First in the usual places, then in others, both times from the keys and messages on. The device compares the results, and none leaves it
    /// unless all agree; [`Error::differs`](crate::Error::differs) names the result that differs. Only for programs with this [ability](Abilities::compares). The error is
    /// `OutOfMemory` if there is no room for both results.
    Both,
}

/// The abilities of the programs of a kind of work on a device, which the scheduler knows before a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Whether a program may write straight to the caller's memory: no result gets there before the checks that the run makes of it have passed. A
    /// run of several passes makes them pass by pass.
    pub holds: bool,
    /// The fewest jobs that a program computes in [`Places::Both`]; `usize::MAX` if it does not.
    pub compares: usize,
}

impl Abilities {
    /// Those of a program that writes results as it computes them, and leaves comparisons to the host.
    pub const NONE: Abilities = Abilities { holds: false, compares: usize::MAX };
}

/// The times of the parts of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timing {
    /// The time of copying to the device.
    pub upload: Duration,
    /// The time of computing on the device. For a few jobs it may last from their submission until the host noticed that they were done.
    pub execute: Duration,
    /// The time of copying from the device.
    pub download: Duration,
    /// The time of each stage alone, in the order in which the stages ran; empty unless the policy asked for the times by [`STAGES`].
    pub stages: Vec<StageTime>,
    /// Whether the device had all signatures before the host had computed the positions; `None` unless the device fetched many signatures by
    /// itself.
    pub host_was_late: Option<bool>,
}

/// Adds up the times. The other fields belong to one run, and stay.
impl AddAssign<&Timing> for Timing {
    fn add_assign(&mut self, more: &Timing) {
        self.upload += more.upload;
        self.execute += more.execute;
        self.download += more.download;
    }
}

/// How long a stage of a run took by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageTime {
    /// The name of the GPU's kernel or of the CPU's stage.
    pub name: &'static str,
    /// Blocks of threads; 1 on a CPU.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The time from the stage's begin to its end.
    pub time: Duration,
}
