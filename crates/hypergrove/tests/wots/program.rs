//! WOTS as the scheduler knows it: data about its work, and its programs on scripted devices.

use crate::script::{Answer, script_of};
use crate::wots;
use hypergrove::backend::Policy;
use hypergrove::{Error, Op, Timing};
use hypergrove_engine::Abilities;
use hypergrove_engine::programs::{Group, GroupFacts};
use hypergrove_engine::scheme::{Facts, Habits, Kind, Prepared, ProgramFactory, Scheme, Site};
use std::time::Duration;

static WOTS: Scheme = Scheme { name: "WOTS", factory: &Factory };
static SET: () = ();

/// An operation of WOTS.
pub(crate) fn kind(op: Op) -> Kind {
    Kind { scheme: &WOTS, set: &SET, op: op as u8, variant: 0 }
}

struct Factory;

impl ProgramFactory for Factory {
    fn habits(&self, kind: Kind) -> Habits {
        Habits { is_chain: kind.op == Op::Verify as u8, comes_alone: true, is_sized: true, ..Habits::default() }
    }

    fn facts(&self, _: &Site<'_>, _: Group) -> Result<Facts, Error> {
        Ok(Facts {
            jobs: 4,
            queue: 1,
            abilities: Abilities { holds: true, ..Abilities::NONE },
            default: Policy::default(),
            space: Vec::new(),
            compressions: 1000.0,
            predicted: None,
            own: Box::new(()),
            program: None,
        })
    }

    fn bytes(&self, _: &Site<'_>, _: &GroupFacts, jobs: usize, _: &Policy) -> u64 {
        (jobs * wots::SIGNATURE) as u64
    }

    fn prepare(&self, site: &Site<'_>, _: &GroupFacts, _: usize, _: &Policy) -> Result<Box<dyn Prepared>, Error> {
        Ok(Box::new(Program { answer: script_of(site.device), device: site.device.id() }))
    }
}

/// A device made ready, which does what its script says.
pub(crate) struct Program {
    answer: Answer,
    device: String,
}

impl Prepared for Program {
    fn time_limit(&mut self, _: Option<Duration>) {}
}

impl Program {
    /// Runs jobs that write their results to these places.
    pub(crate) fn run(&mut self, places: &mut [&mut [u8]], job: impl Fn(usize, &mut [u8])) -> Result<Timing, Error> {
        for (i, place) in places.iter_mut().enumerate() {
            job(i, place);
            place[0] ^= u8::from(self.answer == Answer::Lies);
        }
        match self.answer {
            Answer::Fails => Err(Error::Device { device: self.device.clone(), what: "the script says so".into() }),
            _ => Ok(Timing { execute: Duration::from_micros(1), ..Timing::default() }),
        }
    }
}
