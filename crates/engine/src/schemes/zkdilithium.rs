//! zkDilithium, as the scheduler knows it.

use crate::Error;
use crate::device::{Abilities, Policy, THREADS};
use crate::scheme::{
    Facts, FirstChunks, Group, GroupFacts, Habits, Kind, NO_SET, Prepared, ProgramFactory, Scheme, Site,
};
use crate::zkdilithium::ZkDilithium;
use hypergrove_zkdilithium::Op;

/// A chunk on the host has at most so many times the jobs that fill the host: the end of a chunk, where threads wait for the last one, then
/// costs little.
const CHUNK_OF_HOST: usize = 4;

/// The assumed compressions of a job until one ran: about the cost of signing.
const COMPRESSIONS: f64 = 1000.0;

/// The scheme.
static ZKDILITHIUM: Scheme = Scheme { name: "zkDilithium", factory: &Factory };

const OPS: [Op; 3] = [Op::Keygen, Op::Sign, Op::Verify];

impl Kind {
    /// An operation of zkDilithium.
    pub fn zkdilithium(op: Op) -> Kind {
        Kind { scheme: &ZKDILITHIUM, set: &NO_SET, op: op as u8, variant: 0 }
    }
}

/// Facts that a program reports about itself.
struct OwnFacts {
    uses_expanded_keys: bool,
    bytes: u64,
}

impl GroupFacts {
    /// Whether a program of zkDilithium uses expanded keys.
    pub fn uses_expanded_keys(&self) -> bool {
        self.own::<OwnFacts>().uses_expanded_keys
    }

    /// Bytes of the host's memory that a program of zkDilithium holds, whatever its number of jobs.
    pub fn fixed_bytes(&self) -> u64 {
        self.own::<OwnFacts>().bytes
    }
}

/// A program of zkDilithium.
pub struct ZkDilithiumProgram(pub Box<dyn ZkDilithium>);

impl Prepared for ZkDilithiumProgram {
    crate::forward!(self => self.0; time_limit);
}

struct Factory;

impl ProgramFactory for Factory {
    fn habits(&self, _: Kind) -> Habits {
        Habits {
            shares_lanes: true,
            first_chunks: FirstChunks::Staggered,
            comes_alone: true,
            serves_all_ops: true,
            ..Habits::default()
        }
    }

    /// Prepares a program, because only a program knows its facts.
    fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error> {
        let op = OPS.into_iter().find(|op| *op as u8 == group.kind.op).expect("an operation of zkDilithium");
        let default = site.policy.with(THREADS, group.threads as u32);
        let program = site.backend.zkdilithium_on(site.device)?.prepare(site.device, &default)?;
        // On the host, the time that results take decides when they come out, not their number.
        let times = if site.device.memory == 0 { CHUNK_OF_HOST } else { 1 };
        let (jobs, queue) = (times * program.jobs(op).max(1), program.queue(op).max(1) as usize);
        let own = Box::new(OwnFacts { uses_expanded_keys: program.uses_expanded_keys(), bytes: program.bytes() });
        let (space, compressions, predicted) = (Vec::new(), COMPRESSIONS, None);
        let program: Option<Box<dyn Prepared>> = Some(Box::new(ZkDilithiumProgram(program)));
        // Keys are checked before they sign. The results need no other check.
        let abilities = Abilities { holds: true, ..Abilities::NONE };
        Ok(Facts { jobs, queue, abilities, default, space, compressions, predicted, own, program })
    }

    fn bytes(&self, _: &Site<'_>, facts: &GroupFacts, _: usize, _: &Policy) -> u64 {
        facts.fixed_bytes()
    }

    fn prepare(&self, site: &Site<'_>, _: &GroupFacts, _: usize, policy: &Policy) -> Result<Box<dyn Prepared>, Error> {
        let program = site.backend.zkdilithium_on(site.device)?.prepare(site.device, policy)?;
        Ok(Box::new(ZkDilithiumProgram(program)))
    }
}
