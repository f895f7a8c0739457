//! WOTS as the scheduler knows it: data about its work, and its programs on doubles of devices.

use crate::doubles::double_of;
use crate::wots;
use hypergrove::backend::Policy;
use hypergrove::{Error, Op};
use hypergrove_engine::Abilities;
use hypergrove_engine::scheme::{Facts, Habits, Kind, Prepared, ProgramFactory, Scheme, Site};
use hypergrove_engine::scheme::{Group, GroupFacts};
use hypergrove_testkit::mock::Running;
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

    fn facts(&self, site: &Site<'_>, _: Group) -> Result<Facts, Error> {
        let double = double_of(site.device);
        Ok(Facts {
            jobs: double.jobs,
            queue: double.queue as usize,
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

    fn prepare(
        &self,
        site: &Site<'_>,
        _: &GroupFacts,
        jobs: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Prepared>, Error> {
        Ok(Box::new(Program(double_of(site.device).begin(site.device, None, jobs, policy)?)))
    }
}

/// A program of a double.
pub(crate) struct Program(pub(crate) Running);

impl Prepared for Program {
    fn time_limit(&mut self, limit: Option<Duration>) {
        self.0.set_limit(limit);
    }
}
