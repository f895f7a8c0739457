//! A scheme as the scheduler knows it: data about its kinds of work, and one trait that makes programs for them. The scheduler, and
//! [`programs`](crate::programs), name no scheme.

use crate::programs::{Group, GroupFacts};
use crate::{Abilities, Axis, Backend, Choice, Device, Error, Knowledge, Policy};
use std::any::Any;
use std::fmt;
use std::ptr;
use std::time::Duration;

/// A signature scheme, or another source of work for devices. Each is a static.
pub struct Scheme {
    /// The scheme's name, for people.
    pub name: &'static str,
    /// The factory that makes the scheme's programs.
    pub factory: &'static dyn ProgramFactory,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A kind of work, for which a program is prepared.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// The parameter set, a static of the scheme's.
    pub set: &'static (dyn Any + Send + Sync),
    /// The number of the operation.
    pub op: u8,
    /// Any other difference between programs: for SLH-DSA, the number of layers whose nodes are known or asked for.
    pub variant: usize,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.is_alike(other) && self.op == other.op
    }
}

impl Kind {
    /// The habits of this kind, by which the scheduler decides.
    pub fn habits(&self) -> Habits {
        self.scheme.factory.habits(*self)
    }

    /// Whether the kinds differ by their operation, if at all.
    fn is_alike(&self, other: &Kind) -> bool {
        ptr::eq(self.scheme, other.scheme) && ptr::addr_eq(self.set, other.set) && self.variant == other.variant
    }

    /// Whether a program for the one serves the other.
    pub(crate) fn shares_programs(&self, other: &Kind) -> bool {
        self == other || (self.is_alike(other) && self.habits().serves_all_ops)
    }
}

/// The parameter set of schemes that have only one.
pub(crate) static NO_SET: () = ();

/// Properties of a kind of work by which the scheduler decides, whatever the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// A job is a chain of dependent steps: alone it is no faster with more threads.
    pub is_chain: bool,
    /// Jobs share the lanes of a CPU. If not, each job fills them by itself.
    pub shares_lanes: bool,
    /// How large the first chunks of a long call are.
    pub first_chunks: FirstChunks,
    /// All jobs of a call are of one kind.
    pub comes_alone: bool,
    /// A program is prepared for a number of jobs. If not, it takes any number, and a smaller one needs no less memory.
    pub is_sized: bool,
    /// A program serves all operations of its set.
    pub serves_all_ops: bool,
    /// The kind of work that verifies results of this kind, if an engine verifies them.
    pub verified_by: Option<Kind>,
}

/// How large the first chunks of a long call are, if its jobs keep a device busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FirstChunks {
    /// As large as later ones.
    #[default]
    Full,
    /// Small on a device with memory of its own, and each twice as large as the one before. The device computes once it has a small chunk's inputs,
    /// and fetches larger chunks meanwhile.
    Doubling,
    /// Each chunk in flight is larger than the one before by the same amount. Chunks of one size that began together would also fetch together, and
    /// the device would wait.
    Staggered,
}

/// A device, and the knowledge about it before anything runs there.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The device's backend.
    pub backend: &'a dyn Backend,
    /// The device.
    pub device: &'a Device,
    /// The knowledge from measurements.
    pub knowledge: &'a dyn Knowledge,
    /// The policy of schemes for which nothing is measured.
    pub policy: &'a Policy,
}

/// A factory's facts about a kind of work on a device.
pub struct Facts {
    /// Jobs that fill the device.
    pub jobs: usize,
    /// Programs in flight that keep the device busy.
    pub queue: usize,
    /// The abilities of its programs.
    pub abilities: Abilities,
    /// The policy where nothing is known.
    pub default: Policy,
    /// The axes that a policy can choose.
    pub space: Vec<Axis>,
    /// Compressions that a job takes, exactly or about: its time is guessed from them.
    pub compressions: f64,
    /// Seconds a job of a full program, if they are known.
    pub predicted: Option<f64>,
    /// Facts that only the scheme itself reads.
    pub own: Box<dyn Any + Send + Sync>,
    /// A program, if one had to be prepared to collect the facts: the first jobs use it.
    pub program: Option<Box<dyn Prepared>>,
}

/// Makes the programs of a scheme.
pub trait ProgramFactory: Send + Sync {
    /// The habits of this kind of work, by which the scheduler decides.
    fn habits(&self, kind: Kind) -> Habits;
    /// The facts about a group's work on a device. `Unsupported` if the device declines it.
    fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error>;
    /// The policy for programs of so many jobs, if anything is known.
    fn choose(&self, _site: &Site<'_>, _facts: &GroupFacts, _jobs: usize) -> Option<Choice> {
        None
    }
    /// Bytes of the host's memory that a program for so many jobs holds.
    fn bytes(&self, site: &Site<'_>, facts: &GroupFacts, jobs: usize, policy: &Policy) -> u64;
    /// Prepares a program for up to so many jobs.
    fn prepare(
        &self,
        site: &Site<'_>,
        facts: &GroupFacts,
        jobs: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Prepared>, Error>;
}

/// A prepared program of some scheme, which knows its type.
pub trait Prepared: Any + Send {
    /// Sets how long a wait for the device may take from now on: see [`Program::time_limit`](crate::Program::time_limit).
    fn time_limit(&mut self, limit: Option<Duration>);
    /// Makes tests of the device that were not made yet: see [`Program::prove`](crate::Program::prove). Other schemes test a device when they
    /// prepare a program.
    fn prove(&mut self, _jobs: usize) -> Result<(), Error> {
        Ok(())
    }
}
