//! The runs of programs that sign and verify, the checks of the roots of SLH-DSA that a device computes, and the instruction set with which the host
//! computes them itself.

use super::digests::{SignDigests, VerifyDigests};
use super::inputs::SlhDsa;
use crate::keys::{SigningKey, VerifyingKey};
use crate::scheme::{Failed, Of, ToSign, ToVerify};
use hypergrove_cpu::{Cpu, Isa};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Computed, Parts, Run, Scheduler};
use hypergrove_engine::{
    Accept, Backend, Batch, Error, Key, Places, Policy, SlhDsaProgram, SlhDsaPrograms, THREADS, Work,
};
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_taint::declassify;
use rayon::ThreadPool;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The instruction set of the engine's CPU, or the fastest of this host if the engine has no CPU.
pub(crate) fn host_isa(scheduler: &Scheduler) -> Isa {
    static FASTEST: OnceLock<Isa> = OnceLock::new();
    let named = scheduler.workers().iter().find(|worker| worker.device().backend == Cpu::NAME);
    let isa = named.and_then(|worker| Isa::by_name(&worker.device().detail));
    isa.unwrap_or_else(|| *FASTEST.get_or_init(Isa::fastest))
}

/// The parts of the keys that a batch needs.
fn parts_of<'k>(keys: &'k [&SigningKey]) -> Vec<Key<'k>> {
    let parts = keys.iter().map(|key| Key {
        pk_root: key.as_ref().pk_root(),
        sk_prf: key.as_ref().sk_prf(),
        cached_nodes: key.cached_nodes(),
        cached_id: key.cached_id(),
        ..Key::of_seeds(key.as_ref().pk_seed(), key.as_ref().sk_seed())
    });
    parts.collect()
}

/// Signs jobs whose keys are unchanged. `key_of` has the index in `keys` of each job's key, and `fresh` n bytes for each job if any is hedged.
///
/// Where the program grows the top trees, their roots must be PK.root of the keys, before any signature leaves the device: one-time keys sign the
/// roots of the lower layers, and a wrong root now and the right one later would use such a key twice.
pub(super) fn sign(
    run: &Run<'_>,
    of: Of<'_, ToSign<'_, SlhDsa>>,
    (keys, key_of): (&[&SigningKey], &[u32]),
    fresh: &[u8],
    out: Parts<'_, '_>,
) -> Result<Computed, Error> {
    let (plan, n) = (run.facts.plan(), run.facts.plan().params.n);
    if key_of.is_empty() {
        return Ok(Computed::All(Failed::new()));
    }
    let mut digests = SignDigests { run, of, fresh, jobs: key_of.len(), longest: OnceLock::new(), made: None };
    let of_key = |key: &u32| keys[*key as usize];
    let batch = Batch { keys: &parts_of(keys), key_of, positions: &[], signatures: &[] };
    // The bytes of a second computation must equal those of the first, which was checked.
    let is_second = run.place.places == Places::Other;
    let compares = run.place.scheduler.work.checks.check_roots && plan.cached_layers == 0 && !is_second;
    let (mut damaged, holds) = (Failed::new(), run.facts.abilities.holds);
    // A wrong device is blamed at once, even if its next attempt would be right.
    let mut accept = |first: usize, roots: &[u8]| {
        declassify(roots);
        let of_jobs = key_of[first..].iter().map(of_key);
        let found = compare_roots(run, roots.chunks_exact(n), of_jobs, "the top tree's root")?;
        damaged.extend(found.into_iter().map(|(job, why)| (first + job, why)));
        match holds && !damaged.is_empty() {
            true => Err(Error::Value { what: "the top tree's root is not its key's PK.root".into() }),
            false => Ok(()),
        }
    };
    let done = run.place.program(run.facts, key_of.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        if program.hashes() == 0 {
            let _ = digests.longest.set(usize::MAX);
        }
        let accept: Option<Accept<'_>> = if compares { Some(&mut accept) } else { None };
        program.run(Work { batch, digests: Some(&mut digests), accept, places }, out)
    });
    match done {
        Ok(()) => digests.put_rs(out).map(|()| Computed::All(damaged)),
        Err(_) if !damaged.is_empty() && holds => Ok(Computed::Damaged(damaged)),
        Err(why) => Err(why),
    }
}

/// Computes the root that each signature implies, n bytes each: PK.root if the signature is valid. `key_of` has the index in `keys` of each
/// job's key.
///
/// FIPS 205, Algorithm 20: lines 4–11 in [`VerifyDigests`], the others in the program.
pub(super) fn verify(
    run: &Run<'_>,
    of: Of<'_, ToVerify<'_, SlhDsa>>,
    keys: &[Cow<'_, VerifyingKey>],
    key_of: &[u32],
    roots: Parts<'_, '_>,
) -> Result<(), Error> {
    if key_of.is_empty() {
        return Ok(());
    }
    let parts = keys.iter().map(|key| {
        let key = (**key).as_ref();
        Key { pk_root: key.pk_root(), ..Key::of_seeds(key.pk_seed(), &[]) }
    });
    let keys: Vec<Key<'_>> = parts.collect();
    let signatures: Vec<&[u8]> = (0..key_of.len()).map(|i| of(i).signature).collect();
    let batch = Batch { keys: &keys, key_of, positions: &[], signatures: &signatures };
    let mut digests = VerifyDigests { run, of, keys: &keys, key_of, longest: OnceLock::new() };
    run.place.program(run.facts, key_of.len(), &mut |program, places| {
        let SlhDsaProgram(program) = typed(program);
        if program.hashes() == 0 {
            let _ = digests.longest.set(usize::MAX);
        }
        let done = program.run(Work { batch, digests: Some(&mut digests), accept: None, places }, roots);
        roots.iter().for_each(|roots| declassify(&**roots));
        done
    })
}

/// Compares the root that the device found for each job with PK.root of the job's key. Returns the jobs whose keys are damaged. If the key
/// is sound, the device is wrong: that is an error.
pub(super) fn compare_roots<'r, 'k>(
    run: &Run<'_>,
    roots: impl Iterator<Item = &'r [u8]>,
    keys: impl Iterator<Item = &'k SigningKey>,
    what: &str,
) -> Result<Failed, Error> {
    let mut failed = Failed::new();
    for (job, (root, key)) in roots.zip(keys).enumerate() {
        if root == key.as_ref().pk_root() {
            continue;
        }
        if !key.is_unchanged() {
            failed.insert(job, Error::changed(key.params().name));
            continue;
        }
        if key.is_sound(|| root_on_host(run, key))? {
            let what = format!("{what} of job {job} is not its key's PK.root, which the host computes");
            return Err(Error::Inconsistent { device: run.place.worker.device().id(), what });
        }
        failed.insert(job, wrong_root(key));
    }
    Ok(failed)
}

/// Computes PK.root from a key's seeds, with the host's lanes and in a separate program. This decides whether the key or the device is
/// wrong, so the host computes in another way than the device did.
fn root_on_host(run: &Run<'_>, key: &SigningKey) -> Result<Vec<u8>, Error> {
    let cpu = Cpu::with(host_isa(run.place.scheduler)).expect("detected");
    let pool = run.place.pool;
    let (plan, threads) = (Plan::new(key.params(), Op::Keygen), pool.map_or(1, ThreadPool::current_num_threads));
    let policy = Policy(vec![(THREADS, threads as u32)]);
    let mut program = cpu.prepare(&cpu.devices()?[0], &plan, 1, &policy)?;
    let key = key.as_ref();
    let key = Key::of_seeds(key.pk_seed(), key.sk_seed());
    let batch = Batch { keys: &[key], key_of: &[0], positions: &[], signatures: &[] };
    let mut root = vec![0; plan.out_bytes()];
    run.place.install(&mut || program.run_batch(&batch, &mut root).map(drop))?;
    Ok(root)
}

fn wrong_root(key: &SigningKey) -> Error {
    let set = key.params().name;
    Error::KeyDamaged {
        what: format!(
            "PK.root of this {set} private key does not follow from its seeds; the key is damaged: read it again from a copy"
        ),
    }
}
