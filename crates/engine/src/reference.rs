//! The oracle as a backend. It is slow, and the other backends are compared with it.

use crate::nodes::CachedNodes;
use crate::{
    Axis, Backend, Batch, Device, Error, Hasher, Messages, Policy, Program, SelfTest, Sha256Programs, SlhDsaPrograms,
    Timing, Work,
};
use hypergrove_fips205::plan::{Op, Plan, Slot};
use hypergrove_fips205::reference::{Implied, implied_by, pk_root, sign_at, xmss_node};
use hypergrove_fips205::{Adrs, AdrsType};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// Executes plans with [`hypergrove_fips205::reference`], one job after the other on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        Ok(vec![Device {
            backend: self.name(),
            index: 0,
            name: "reference".into(),
            detail: "FIPS 205 to the letter".into(),
            cores: 1,
            memory: 0,
            queue: 1,
            uuid: None,
            automatic: true,
        }])
    }
    /// No answers, because the reference itself computes the known answers of other backends.
    fn self_test(&self) -> SelfTest {
        SelfTest::Off
    }
    /// Empty, because the reference has no space.
    fn fingerprint(&self, _: &Device) -> String {
        String::new()
    }
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        Some(self)
    }
    fn sha256(&self) -> Option<&dyn Sha256Programs> {
        Some(self)
    }
}

impl SlhDsaPrograms for Reference {
    fn space(&self, _: &Device, _: &Plan) -> Result<Vec<Axis>, Error> {
        Ok(Vec::new())
    }
    fn bytes(&self, _: &Device, plan: &Plan, batch: usize, _: &Policy) -> u64 {
        let (p, jobs) = (plan.params, batch as u64);
        let slots = ((p.k + 1 + p.d) * p.n) as u64;
        jobs.saturating_mul(slots).saturating_add(2 * p.sig_bytes() as u64)
    }
    fn prepare(&self, _: &Device, plan: &Plan, _: usize, _: &Policy) -> Result<Box<dyn Program>, Error> {
        Ok(Box::new(ReferenceProgram { plan: plan.clone(), kept: Vec::new() }))
    }
}

impl Sha256Programs for Reference {
    fn longest(&self, _: &Device, _: &Policy) -> Result<usize, Error> {
        Ok(usize::MAX)
    }
    fn prepare(&self, _: &Device, _: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(Box::new(ReferenceHasher))
    }
}

/// Hashes with `sha2`, an independent crate.
struct ReferenceHasher;

impl Hasher for ReferenceHasher {
    fn space(&self) -> Vec<Axis> {
        Vec::new()
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        messages.check(digests)?;
        let start = Instant::now();
        for (i, digest) in digests.iter_mut().enumerate() {
            *digest = Sha256::digest(messages.get(i)).into();
        }
        Ok(Timing { execute: start.elapsed(), ..Timing::default() })
    }
    fn time_limit(&mut self, _: Option<Duration>) {}
}

struct ReferenceProgram {
    plan: Plan,
    /// The intermediate values of each job of the last run that signed or verified.
    kept: Vec<Implied>,
}

impl Program for ReferenceProgram {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    /// All jobs have one place.
    fn run(&mut self, mut work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        let positions = work.positions()?;
        let batch = Batch { positions: &positions, ..work.batch };
        batch.check(&self.plan, out.iter().map(|part| part.len()).sum())?;
        let (start, p, layers) = (Instant::now(), self.plan.params, self.plan.cached_layers);
        self.kept.clear();
        let size = self.plan.out_bytes();
        for (job, out) in out.iter_mut().flat_map(|part| part.chunks_exact_mut(size)).enumerate() {
            let key = &batch.keys[batch.key_of[job] as usize];
            match self.plan.op {
                Op::Keygen => out.copy_from_slice(&pk_root(p, key.sk_seed, key.pk_seed)),
                Op::Sign => {
                    let position = &batch.positions[job];
                    out[p.n..].copy_from_slice(&sign_at(p, position, key.sk_seed, key.pk_seed));
                    let nodes = CachedNodes::new(p, layers, key.cached_nodes)?;
                    for layer in nodes.layers() {
                        let (tree, leaf) = position.at_layer(p, layer);
                        let path = &mut out[p.xmss_range(layer)][p.len() * p.n..];
                        path.chunks_exact_mut(p.n)
                            .zip(nodes.auth(layer, tree, leaf))
                            .for_each(|(to, node)| to.copy_from_slice(node));
                    }
                    self.kept.push(implied_by(p, position, out, key.pk_seed));
                }
                Op::Verify => {
                    let implied = implied_by(p, &batch.positions[job], batch.signatures[job], key.pk_seed);
                    out.copy_from_slice(&implied.xmss_roots[(p.d - 1) * p.n..]);
                    self.kept.push(implied);
                }
                Op::Cache => {
                    for layer in p.d - layers..p.d {
                        for tree in 0..1u64 << (p.hp * (p.d - 1 - layer)) {
                            let adrs = Adrs::new(layer as u32, tree, AdrsType::WotsHash);
                            for (height, index) in (0..=p.hp).flat_map(|z| (0..1 << (p.hp - z)).map(move |i| (z, i))) {
                                let at = CachedNodes::offset(p, layer, tree, height, index);
                                let node = xmss_node(p, key.sk_seed, index as u32, height as u32, key.pk_seed, adrs);
                                out[at..at + p.n].copy_from_slice(&node);
                            }
                        }
                    }
                }
            }
        }
        if self.plan.op == Op::Sign
            && let Some(roots) = self.read(Slot::XmssRoots)?
        {
            work.accept_top_roots(p, &roots)?;
        }
        Ok(Timing { execute: start.elapsed(), ..Timing::default() })
    }

    fn time_limit(&mut self, _: Option<Duration>) {}

    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        let (p, op) = (self.plan.params, self.plan.op);
        if !matches!(op, Op::Sign | Op::Verify) {
            return Ok(None);
        }
        let grown = (p.d - self.plan.cached_layers) * p.n;
        let values = self.kept.iter().flat_map(|implied| match slot {
            Slot::ForsRoots => &implied.fors_roots[..],
            Slot::ForsPk => &implied.fors_pk[..],
            Slot::XmssRoots => &implied.xmss_roots[..grown],
        });
        Ok(Some(values.copied().collect()))
    }
}
