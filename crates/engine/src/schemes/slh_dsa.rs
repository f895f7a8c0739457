//! SLH-DSA, as the scheduler knows it: plans, and programs for them.

use crate::scheme::{Facts, FirstChunks, Habits, Kind, Prepared, ProgramFactory, Scheme, Site};
use crate::scheme::{Group, GroupFacts};
use crate::{Choice, Error, Policy, PolicySource, Program, THREADS};
use hypergrove_fips205::Params;
use hypergrove_fips205::plan::{Op, Plan, Work, cache_bytes, most_cached_layers};

/// The scheme.
static SLH_DSA: Scheme = Scheme { name: "SLH-DSA", factory: &Plans };

const OPS: [Op; 4] = [Op::Keygen, Op::Sign, Op::Verify, Op::Cache];

impl Kind {
    /// A plan of SLH-DSA. `cached_layers` is the number of top layers whose nodes come with the keys, or are to be cached.
    pub fn slh_dsa(params: &'static Params, op: Op, cached_layers: usize) -> Kind {
        Kind { scheme: &SLH_DSA, set: params, op: op as u8, variant: cached_layers }
    }

    /// The set and the operation, if the scheme is SLH-DSA.
    pub fn as_slh_dsa(&self) -> Option<(&'static Params, Op)> {
        Some((self.set.downcast_ref()?, OPS.into_iter().find(|op| *op as u8 == self.op)?))
    }
}

/// A plan and its work, which are the same on any device.
struct PlanFacts {
    plan: Plan,
    work: Work,
}

impl GroupFacts {
    /// The plan of a group of SLH-DSA.
    pub fn plan(&self) -> &Plan {
        &self.own::<PlanFacts>().plan
    }

    /// The work of one job of a group of SLH-DSA, in compressions.
    pub fn work(&self) -> &Work {
        &self.own::<PlanFacts>().work
    }
}

/// A program of SLH-DSA.
pub struct SlhDsaProgram(pub Box<dyn Program>);

impl Prepared for SlhDsaProgram {
    crate::forward!(self => self.0; time_limit, prove);
}

struct Plans;

impl ProgramFactory for Plans {
    fn habits(&self, kind: Kind) -> Habits {
        let (params, op) = kind.as_slh_dsa().expect("a kind of SLH-DSA");
        Habits {
            is_chain: op == Op::Verify,
            shares_lanes: op == Op::Verify,
            first_chunks: if op == Op::Verify { FirstChunks::Doubling } else { FirstChunks::Full },
            comes_alone: false,
            is_sized: true,
            serves_all_ops: false,
            verified_by: (op == Op::Sign).then(|| Kind::slh_dsa(params, Op::Verify, 0)),
        }
    }

    fn facts(&self, site: &Site<'_>, group: Group) -> Result<Facts, Error> {
        let plan = plan(group.kind)?;
        let programs = site.backend.slh_dsa_on(site.device)?;
        let space = programs.space(site.device, &plan)?;
        let threads = space.iter().any(|axis| axis.name == THREADS).then_some((THREADS, group.threads as u32));
        let default = Policy(threads.into_iter().collect());
        let jobs = programs.jobs(site.device, &plan, &default).max(1);
        let queue = programs.queue(site.device, &plan).clamp(1, site.device.queue.max(1)) as usize;
        let known_already = site.knowledge.choose(site.backend, site.device, &plan, jobs);
        let measured_once = known_already.filter(|choice| choice.source != PolicySource::Default);
        let predicted = measured_once.and_then(|choice| choice.seconds).map(|(seconds, _)| seconds);
        let work = plan.work();
        let (compressions, abilities) = (work.compressions(), programs.abilities(site.device, &plan));
        let own = Box::new(PlanFacts { plan, work });
        Ok(Facts { jobs, queue, abilities, default, space, compressions, predicted, own, program: None })
    }

    fn choose(&self, site: &Site<'_>, facts: &GroupFacts, jobs: usize) -> Option<Choice> {
        site.knowledge.choose(site.backend, site.device, facts.plan(), jobs)
    }

    fn bytes(&self, site: &Site<'_>, facts: &GroupFacts, jobs: usize, policy: &Policy) -> u64 {
        site.backend.slh_dsa().map_or(0, |programs| programs.bytes(site.device, facts.plan(), jobs, policy))
    }

    fn prepare(
        &self,
        site: &Site<'_>,
        facts: &GroupFacts,
        jobs: usize,
        policy: &Policy,
    ) -> Result<Box<dyn Prepared>, Error> {
        let program = site.backend.slh_dsa_on(site.device)?.prepare(site.device, facts.plan(), jobs, policy)?;
        Ok(Box::new(SlhDsaProgram(program)))
    }
}

fn plan(kind: Kind) -> Result<Plan, Error> {
    let (p, op) = kind.as_slh_dsa().expect("a kind of SLH-DSA");
    let (layers, most) = (kind.variant, most_cached_layers(p));
    let possible = match op {
        Op::Sign => layers == 0 || layers <= p.d && cache_bytes(p, layers).is_some(),
        Op::Cache => (1..=most).contains(&layers),
        Op::Keygen | Op::Verify => layers == 0,
    };
    if !possible {
        let what =
            format!("{layers} cached layers of {p}, of which at most {most} can be cached; ask for so many or fewer");
        return Err(Error::Value { what });
    }
    Ok(match op {
        Op::Cache => Plan::cache(p, layers),
        Op::Sign => Plan::new(p, op).with_cached_layers(layers),
        Op::Keygen | Op::Verify => Plan::new(p, op),
    })
}
