//! The checks of the roots of SLH-DSA that a device computes, and the instruction set with which the host computes them itself.

use crate::keys::SigningKey;
use crate::scheme::Failed;
use hypergrove_cpu::{Cpu, Isa};
use hypergrove_engine::scheduler::{Run, Scheduler};
use hypergrove_engine::{Backend, Batch, Error, Key, Policy, SlhDsaPrograms, THREADS};
use hypergrove_fips205::plan::{Op, Plan};
use rayon::ThreadPool;
use std::sync::OnceLock;

/// The instruction set of the engine's CPU, or the fastest of this host if the engine has no CPU.
pub(crate) fn host_isa(scheduler: &Scheduler) -> Isa {
    static FASTEST: OnceLock<Isa> = OnceLock::new();
    let named = scheduler.workers().iter().find(|worker| worker.device().backend == Cpu::NAME);
    let isa = named.and_then(|worker| Isa::by_name(&worker.device().detail));
    isa.unwrap_or_else(|| *FASTEST.get_or_init(Isa::fastest))
}

/// Compares the root that the device found for each job with PK.root of the job's key. Returns the jobs whose keys are damaged.
pub(super) fn compare_roots<'r, 'k>(
    run: &Run<'_>,
    roots: impl Iterator<Item = &'r [u8]>,
    keys: impl Iterator<Item = &'k SigningKey>,
    what: &str,
) -> Result<Failed, Error> {
    let mut failed = Failed::new();
    for (job, (root, key)) in roots.zip(keys).enumerate() {
        if root != key.as_ref().pk_root() {
            failed.insert(job, blame(run, key, what, job)?);
        }
    }
    Ok(failed)
}

/// Finds out why `what` the device computed for a job is not PK.root of the job's key. Returns the error of a damaged key. If the key is sound, the
/// device is wrong: that is an error of the run.
pub(super) fn blame(run: &Run<'_>, key: &SigningKey, what: &str, job: usize) -> Result<Error, Error> {
    let set = key.params().name;
    if !key.is_unchanged() {
        return Ok(Error::changed(set));
    }
    if key.is_sound(|| root_on_host(run, key))? {
        let what = format!("{what} of job {job} is not its key's PK.root, which the host computes");
        return Err(Error::Inconsistent { device: run.place.worker.device().id(), what });
    }
    Ok(Error::KeyDamaged {
        what: format!(
            "PK.root of this {set} private key does not follow from its seeds; the key is damaged: read it again from a copy"
        ),
    })
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
