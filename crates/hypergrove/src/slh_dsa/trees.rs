//! The growing of trees from seeds alone, for new keys, cached layers and checks of keys.

use super::run::compare_roots;
use crate::keys::SigningKey;
use crate::run::results;
use crate::scheme::compute_private;
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Job, Outcomes, Parts, Run, room};
use hypergrove_engine::scheme::GroupFacts;
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::{Batch, Error, Key, SlhDsaProgram, Work};
use hypergrove_fips205::plan::Op;
use hypergrove_taint::declassify;
use std::ops::Range;

/// Computes the nodes of a key's top layers and compares their root with PK.root. With 0 layers, the output is the root alone, for that check.
pub(crate) struct NodesJob<'a>(pub(crate) &'a SigningKey, pub(crate) usize);

impl Job for NodesJob<'_> {
    type Out = Vec<u8>;
    const JOINS: bool = true;

    fn kind(&self) -> Result<Kind, Error> {
        let NodesJob(key, layers) = *self;
        Ok(Kind::slh_dsa(key.params(), if layers == 0 { Op::Keygen } else { Op::Cache }, layers))
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, facts: &GroupFacts) -> usize {
        facts.plan().out_bytes()
    }

    fn run(run: &Run<'_>, jobs: &mut [&mut Self], memory: &mut Vec<u8>) -> Result<Outcomes<Vec<u8>>, Error> {
        let plan = run.facts.plan();
        let (p, size) = (plan.params, plan.out_bytes());
        // The root of the top tree follows that tree's other nodes.
        let root =
            if jobs.first().is_none_or(|NodesJob(_, layers)| *layers == 0) { 0 } else { ((2 << p.hp) - 2) * p.n };
        let keys: Vec<&SigningKey> = jobs.iter().map(|NodesJob(key, _)| *key).collect();
        let compute = |run: &Run<'_>, range: Range<usize>, out: Parts<'_, '_>| {
            let keys = &keys[range];
            grow(run, keys.iter().map(|key| (key.as_ref().sk_seed(), key.as_ref().pk_seed())), out)?;
            let rows = out.iter().flat_map(|part| part.chunks_exact(size));
            let roots = rows.map(|out| &out[root..][..p.n]);
            let mut failed = compare_roots(run, roots, keys.iter().copied(), "the top tree's root")?;
            let changed = keys.iter().enumerate().filter(|(_, key)| !key.is_unchanged());
            failed.extend(changed.map(|(job, _)| (job, Error::changed(p.name))));
            Ok(failed)
        };
        let what = format!("the output of {:?}", plan.op);
        let out = room(memory, keys.len() * size);
        let failed = compute_private(run, (&what, keys.len(), size), &compute, &mut [out])?;
        Ok(Outcomes { results: results(run, (keys.len(), size), memory, &|nodes| nodes.into_owned()), failed })
    }
}

/// Runs a program that computes nodes of trees from SK.seed and PK.seed alone. Every job has a key of its own.
pub(super) fn grow<'k>(
    run: &Run<'_>,
    seeds: impl Iterator<Item = (&'k [u8], &'k [u8])>,
    out: Parts<'_, '_>,
) -> Result<(), Error> {
    let keys: Vec<Key<'_>> = seeds.map(|(sk_seed, pk_seed)| Key::of_seeds(pk_seed, sk_seed)).collect();
    let key_of: Vec<u32> = (0..keys.len() as u32).collect();
    let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };
    run.place.program(run.facts, batch.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        let timing = program.run(Work { places, ..Work::of(&batch) }, out)?;
        // Nodes and roots are public; those that fail a check are wiped before anyone sees them.
        out.iter().for_each(|part| declassify(&**part));
        Ok(timing)
    })
}
