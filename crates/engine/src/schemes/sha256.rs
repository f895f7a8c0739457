//! SHA-256 of messages, as the scheduler knows it.

use crate::Error;
use crate::device::{Abilities, Policy, THREADS};
use crate::hash::Hasher;
use crate::scheme::{Facts, Group, GroupFacts, Habits, Kind, NO_SET, Prepared, ProgramFactory, Scheme, Site};

/// The assumed compressions of a block until one was hashed: so many that the real cost is measured soon.
const COMPRESSIONS: f64 = 1000.0;

/// Blocks of 64 bytes that fill a device: a hasher takes any number, and results come out now and then. A device with memory of its own computes while
/// it copies, and needs many.
const FULL: usize = (256 << 20) / 64;

/// The binary logarithm of the length up to which all messages are of one kind. Nearly all messages are.
const SHORT: u32 = 16;

/// SHA-256 of messages.
static SHA256: Scheme = Scheme { name: "SHA-256", factory: &Hashers };

impl Kind {
    /// SHA-256 of messages, of which the longest has so many bytes. Its unit of work is a block of 64 bytes. The operation is the binary logarithm of a
    /// length that no message exceeds, so that devices decline messages that are too long for them.
    pub fn sha256(longest: usize) -> Kind {
        let op = longest.next_power_of_two().ilog2().max(SHORT) as u8;
        Kind { scheme: &SHA256, set: &NO_SET, op, variant: 0 }
    }
}

/// A program of SHA-256.
pub struct HashProgram(pub Box<dyn Hasher>);

impl Prepared for HashProgram {
    crate::forward!(self => self.0; time_limit);
}

struct Hashers;

impl ProgramFactory for Hashers {
    fn habits(&self, _: Kind) -> Habits {
        Habits { comes_alone: true, serves_all_ops: true, ..Habits::default() }
    }

    fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error> {
        let default = site.policy.with(THREADS, group.threads as u32);
        let (longest, most) =
            (1 << group.kind.op, site.backend.sha256_on(site.device)?.longest(site.device, &default)?);
        if longest > most {
            let what = format!("SHA-256 of messages of {longest} bytes: it takes up to {most}");
            return Err(Error::Unsupported { device: site.device.id(), what });
        }
        let (jobs, queue, space, compressions) = (FULL, 1, Vec::new(), COMPRESSIONS);
        let abilities = Abilities { holds: true, ..Abilities::NONE };
        let (own, predicted) = (Box::new(()), None);
        Ok(Facts { jobs, queue, abilities, default, space, compressions, predicted, own, program: None })
    }

    fn bytes(&self, _: &Site<'_>, _: &GroupFacts, _: usize, _: &Policy) -> u64 {
        0
    }

    fn prepare(&self, site: &Site<'_>, _: &GroupFacts, _: usize, policy: &Policy) -> Result<Box<dyn Prepared>, Error> {
        Ok(Box::new(HashProgram(site.backend.sha256_on(site.device)?.prepare(site.device, policy)?)))
    }
}
