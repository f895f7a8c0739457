//! Why a batch is executed as it is.

use crate::engine::Engine;
use crate::jobs::GenerateJob;
use crate::keys::SigningKey;
use hypergrove_engine::planner::{Block, SubBatch, SubBatches};
use hypergrove_engine::scheduler::{Scale, Worker, slots};
use hypergrove_engine::scheme::{Group, Kind};
use hypergrove_engine::{Device, Error, Policy, PolicySource};
use hypergrove_fips205::plan::{Op, Plan, Work};
use hypergrove_fips205::{PARAMETER_SETS, Params};
use std::ops::ControlFlow;
use std::time::Duration;

/// How a batch shares the memory; see [`Explanation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// The memory budget in bytes.
    pub budget: u64,
    /// Bytes of the program for one sub-batch.
    pub program: u64,
    /// Bytes of each job's result.
    pub output: u64,
    /// Jobs of the first sub-batch. The engine adapts later ones to the time that it took.
    pub sub_batch: usize,
}

/// How the engine would compute a batch; see [`Engine::explain`](crate::Engine::explain).
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The plan: the stages and their work.
    pub plan: Plan,
    /// The device that would compute it.
    pub device: Device,
    /// The number of CPU threads.
    pub threads: usize,
    /// The policy: what differs from the backend's defaults.
    pub policy: Policy,
    /// Where the policy comes from.
    pub policy_source: PolicySource,
    /// The table and row of the policy, or what was measured instead; empty if there is nothing to report.
    pub policy_why: String,
    /// Why the engine chose this device; empty if the caller chose it.
    pub device_why: String,
    /// The smallest batch for which another device is faster than the CPU, as far as is known.
    pub crossover: Option<usize>,
    /// Free bytes of the device's own memory; `None` if it has none.
    pub device_free: Option<u64>,
    /// Compressions of one job.
    pub work: Work,
    /// The predicted time of the whole batch. `None` if neither runs of this engine, nor a table, nor the device's rates allow a prediction.
    pub predicted: Option<Duration>,
    /// The source of the prediction in words, for example `runs of this engine`.
    pub predicted_by: &'static str,
    /// How a batch shares the memory; see [`Explanation`].
    pub memory: MemoryUse,
}

impl Engine {
    /// Explains how the engine would compute a batch, and predicts the time if runs of this engine, a table or the device's rates allow it.
    pub fn explain(&self, params: &'static Params, op: Op, batch: usize) -> Result<Explanation, Error> {
        let cached_layers = usize::from(op == Op::Cache);
        let scheduler = &self.0.scheduler;
        let kind = Kind::slh_dsa(params, op, cached_layers);
        let of = |worker: &Worker| Group { kind, threads: scheduler.threads_for(worker, kind, batch) };
        let of_all_threads = Group { kind, threads: scheduler.options.threads };
        let suited = scheduler.suited((batch > 1).then_some(of_all_threads), Some(batch));
        let (live, device_why) = (suited.workers, suited.why);
        let worker = match scheduler.suited_alone(kind).filter(|_| batch == 1) {
            Some(other) => other,
            None if batch == 1 || live.is_empty() => scheduler.first(),
            None => live[0],
        };
        let group = of(worker);
        let facts = worker.programs.facts(group)?;
        let scale = Scale { scheduler, worker };
        let memory = scheduler.memory_budget() / slots(live.iter().map(|worker| worker.queue() as u64));
        let held = (scheduler.work.checks.copies() * facts.plan().out_bytes()) as u64;
        let all = Block { group: Ok(group), held: held.saturating_mul(batch as u64), count: batch };
        let mut jobs = SubBatches::new(Some(all).filter(|_| batch > 0).into_iter());
        let others = live.iter().filter(|other| !std::ptr::eq(**other, worker)).copied();
        let bounds = scale.bounds(memory, Some(group), others);
        let sub_batch = match jobs.cut(&scale, &|_, block, rows| Some(block.split(rows)), bounds) {
            Some(SubBatch::Run(blocks, _)) => blocks.iter().map(|(_, block)| block.count).sum(),
            Some(SubBatch::TooLarge(.., needs)) if needs > scheduler.memory_budget() => {
                return Err(scheduler.out_of_memory(worker, needs));
            }
            Some(SubBatch::TooLarge(..)) => 1,
            None => 0,
        };
        // A single job runs on one device.
        let sharing = if batch > 1 { &live[..] } else { &[worker][..] };
        let predicted: Option<Vec<(f64, &'static str)>> =
            sharing.iter().filter(|w| w.takes(group)).map(|w| jobs_a_second(w, group, sub_batch.max(1))).collect();
        let times = f64::from(1 + u8::from(scheduler.work.checks.redundant));
        let speed = predicted.as_ref().map(|all| all.iter().map(|(speed, _)| speed).sum::<f64>() / times);
        let choice = worker.programs.choice(&facts, sub_batch.max(1));
        Ok(Explanation {
            plan: facts.plan().clone(),
            device: worker.device().clone(),
            threads: group.threads,
            policy: choice.policy,
            policy_source: choice.source,
            policy_why: choice.why,
            device_why,
            crossover: scheduler.crossover(group),
            device_free: worker.programs.backend().free(worker.device()),
            work: *facts.work(),
            predicted: speed.and_then(|speed| Duration::try_from_secs_f64(batch as f64 / speed).ok()),
            predicted_by: predicted.and_then(|all| Some(all.first()?.1)).unwrap_or("nothing"),
            memory: MemoryUse {
                budget: scheduler.memory_budget(),
                program: worker.programs.bytes(&facts, sub_batch.max(1)),
                output: facts.plan().out_bytes() as u64,
                sub_batch,
            },
        })
    }

    /// Takes measurements for [`explain`](Engine::explain): generates some keys of the cheapest set with the same hash and n.
    pub fn calibrate(&self, params: &'static Params) -> Result<(), Error> {
        let alike = PARAMETER_SETS.iter().copied().filter(|p| (p.family, p.n) == (params.family, params.n));
        let cheapest = [params].into_iter().chain(alike).min_by_key(|p| p.hp).unwrap_or(params);
        let scheduler = self.0.scheduler.of_call();
        for worker in scheduler.live() {
            let group = Group { kind: Kind::slh_dsa(cheapest, Op::Keygen, 0), threads: self.threads() };
            let count = match worker.programs.facts(group) {
                Ok(facts) if worker.has_memory() => facts.most(),
                _ => 16 * self.threads(),
            };
            // The first run prepares the program.
            for _ in 0..3 {
                let mut lost = Ok(());
                let mut jobs = (0..count).map(|_| GenerateJob::new(cheapest));
                let mut take = |_, key: Result<SigningKey, Error>| {
                    lost = std::mem::replace(&mut lost, Ok(())).and(key.map(drop));
                    ControlFlow::Continue(())
                };
                scheduler.run(Some(worker), None, &mut jobs, &mut take)?;
                lost?;
            }
        }
        Ok(())
    }
}

/// Jobs a second in sub-batches of this size, and their source: runs of this engine, a table's row or its model, jobs with the same hash and
/// n, or the device's rates.
fn jobs_a_second(worker: &Worker, group: Group, sub_batch: usize) -> Option<(f64, &'static str)> {
    let facts = worker.programs.facts(group).ok()?;
    if facts.measured_at(sub_batch).is_some() {
        return worker.seconds(group, sub_batch).map(|s| (sub_batch as f64 / s, "runs of this engine"));
    }
    let choice = worker.programs.choice(&facts, sub_batch);
    if let (Some((seconds, _)), true) = (choice.seconds, choice.source != PolicySource::Default) {
        let by = if choice.source == PolicySource::Table { "a table's row" } else { "a model of a table's rows" };
        return Some((1.0 / seconds, by));
    }
    if let Some(seconds) = facts.measured(sub_batch) {
        return Some((1.0 / seconds, "runs of this engine"));
    }
    let (known, work) = (worker.programs.known(), facts.work());
    let alike = known.iter().filter(|other| {
        let sets = (other.group.kind.as_slh_dsa(), group.kind.as_slh_dsa());
        let (Some((a, _)), Some((b, _))) = sets else { return false };
        (a.family, a.n, other.group.threads) == (b.family, b.n, group.threads)
    });
    let each = alike.filter_map(|other| Some(other.measured(sub_batch)? / other.work().compressions()));
    let by_work = each.reduce(f64::min).map(|seconds| seconds * work.compressions());
    let by_rates = || choice.seconds.map(|(seconds, _)| (1.0 / seconds, "the device's rates alone"));
    by_work.map(|seconds| (1.0 / seconds, "keys generated now")).or_else(by_rates)
}
