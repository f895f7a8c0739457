//! `hypergrove tune`.

use crate::args::{MachineOptions, Tune};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::printer::{Bar, PathDisplay, Printer, grouped, seconds};
use crate::version::{COMMIT, VERSION};
use hypergrove::backend::{Plan, Policy};
use hypergrove::quote::Quote;
use hypergrove::{Backend, Device, Op, Params};
use hypergrove_engine::{Axis, THREADS};
use hypergrove_tables::space;
use hypergrove_tables::table::{Row, Sizes, Table, file_name, op_name, share_out, sizes};
use hypergrove_tune::journal::{Head, Journal, Question, Recorded};
use hypergrove_tune::search::halving::CANDIDATES;
use hypergrove_tune::search::{Lab, Search, Stop, median, same, spread};
use hypergrove_tune::workload::{Timed, Workload};
use hypergrove_tune::{Outcome, find};
use std::fmt;
use std::iter::successors;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for a set, if nothing else is said.
const A_SET: Duration = Duration::from_secs(60);
/// The share of a question's time that is left for winner and defaults in turn.
const CONFIRMED: f64 = 0.15;
/// Batch sizes in addition to the one that fills the device: of those in between none is three times as large or small as one of these.
const LADDER: [usize; 5] = [1, 8, 64, 512, 4096];
/// Runs, end to end, of a policy that was found by its kernels' time, and of those that take no millisecond or seem
/// slower than the defaults.
const WHOLE: [usize; 2] = [5, 25];
/// Kernels that take so long, in seconds, hide what the host does for a batch behind those of the next one. Shorter kernels are
/// waited for, and a policy that has the host submit more must not win by its kernels.
const HIDDEN: f64 = 1e-3;
/// A batch that fills a device weighs more than others: what it gains is gained most often.
const WEIGHT_OF_FULL: f64 = 3.0;
/// Questions whose time was over are retried while so much of the budget is left.
const WORTH: f64 = 0.05;
/// The share of the budget for sizes between those of the ladder.
const BETWEEN: f64 = 0.15;
/// A run of the host, at most: larger batches take the same time a job.
const HOST_RUN: f64 = 0.25;

/// The best policy for what?
struct TuneTarget {
    params: &'static Params,
    op: Op,
    jobs: usize,
    weight: f64,
}

impl fmt::Display for TuneTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {} jobs", self.params, op_name(self.op), self.jobs)
    }
}

impl TuneTarget {
    fn question(&self) -> Question {
        Question { set: self.params.name.into(), op: op_name(self.op).into(), jobs: self.jobs }
    }
}

/// The outcome of a search, and seconds of a batch end to end with their spread: with the policy, and by default.
struct TuningResult {
    outcome: Outcome,
    whole: (f64, f64),
    default: (f64, f64),
}

/// The tuning of one device: its options, its threads and the time that it may take.
struct Tuner<'a> {
    args: &'a Tune,
    backend: Arc<dyn Backend>,
    device: Device,
    /// How long a wait for the device may take, at least.
    timeout: Duration,
    threads: usize,
    printer: &'a Printer,
    bar: Bar,
    start: Instant,
    budget: Duration,
}

/// Writes a text to a file in place of what is there.
pub type Write<'a> = &'a dyn Fn(&Path, &str, &Printer) -> Result<(), Failure>;

/// Tunes. The table is handed to `write` with its path.
pub fn run(args: &Tune, options: &MachineOptions, printer: &Printer, write: Write<'_>) -> Result<Exit, Failure> {
    let (backend, device) = machine::one_device(options)?;
    let sets: Vec<&'static Params> = args.set.iter().flat_map(|sets| sets.0.iter().copied()).collect();
    let threads = machine::host_threads(options);
    let budget = args.budget.unwrap_or(A_SET * sets.len() as u32);
    let head = Head {
        backend: device.backend.into(),
        device: device.name.clone(),
        detail: device.detail.clone(),
        space: space::checksum(&*backend, &device)?,
        threads,
    };
    let target = match (&args.output, machine::tuning()) {
        (Some(path), _) => path.clone(),
        (None, Some(tuning)) => tuning.join(device.backend).join(format!("{}.toml", file_name(&device))),
        (None, None) => {
            return Err(Failure::new("there is no home directory for the table").hint("name a file with --output"));
        }
    };
    let old = rows_of(&target, &head)?;
    let state = machine::state().unwrap_or_else(|| target.with_extension(""));
    let state = state.join(format!("{}-{}.jsonl", device.backend, file_name(&device)));
    let failed = |error: std::io::Error| Failure::io("write", PathDisplay(&state), &error);
    let mut journal = Journal::open(&state, &head).map_err(failed)?;
    // The table would replace the samples if its name led to them.
    rows_of(&target, &head)?;

    printer.note(format_args!("{} {}, {}; {threads} host threads", device.id(), device.name, device.detail));
    if journal.found > 0 {
        printer.note(format_args!(
            "goes on with {} samples of a tuning that was interrupted",
            grouped(journal.found as u64)
        ));
    }
    if journal.damaged > 0 {
        let lines = grouped(journal.damaged as u64);
        printer.warning(format_args!("{}: {lines} lines are no samples and were left out", state.display()));
    }
    let bar = printer.progress_of_time(budget, "tuning");
    let timeout = options.device_timeout;
    let tuner = Tuner { args, backend, device, timeout, threads, printer, bar, start: Instant::now(), budget };
    let rows = tuner.rows(&sets, &mut journal);
    tuner.bar.finish_and_clear();
    machine::warn(&*tuner.backend, printer);
    let rows = rows?;
    if rows.is_empty() {
        return Err(Failure::new("the time was over before anything was known").hint("give more with --budget"));
    }
    let mut table = Table {
        backend: head.backend,
        device: head.device,
        detail: head.detail,
        space: head.space,
        threads: head.threads,
        version: format!("{} at {}", VERSION, COMMIT),
        rows,
    };
    table.take_over(old, args.batch.is_empty());
    if let Some(directory) = target.parent() {
        std::fs::create_dir_all(directory).map_err(|error| Failure::io("make", PathDisplay(directory), &error))?;
    }
    write(&target, &table.text(), printer)?;
    journal.close().map_err(failed)?;
    printer.note(format_args!("{} rows in {}", table.rows.len(), PathDisplay(&target)));
    Ok(Exit::Good)
}

/// The rows of the table that is there, none if it is stale. A file that is no table of this device is not written over.
fn rows_of(target: &Path, head: &Head) -> Result<Vec<Row>, Failure> {
    let text = match std::fs::read_to_string(target) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::io("read", PathDisplay(target), &error)),
    };
    let kept = |what: String| {
        Failure::new(format!("{} {what}", PathDisplay(target))).hint("remove it, or name another file with --output")
    };
    let table =
        Table::parse(&text).map_err(|why| kept(format!("is no table of policies, and is not replaced: {why}")))?;
    if (&table.backend, &table.device) != (&head.backend, &head.device) {
        return Err(kept(format!("is a table of {} {}, and is not replaced", table.backend, table.device)));
    }
    let is_current = (&table.detail, &table.space) == (&head.detail, &head.space);
    Ok(if is_current { table.rows } else { Vec::new() })
}

impl Tuner<'_> {
    /// The space of a plan, as far as it is to be tuned, and its default policy.
    fn space(&self, plan: &Plan) -> Result<(Vec<Axis>, Policy), Failure> {
        let mut axes = self.backend.slh_dsa_on(&self.device)?.space(&self.device, plan)?;
        if let Some(unknown) =
            self.args.axis.iter().find(|name| !axes.iter().any(|axis| axis.tuned && axis.name == **name))
        {
            let names: Vec<_> = axes.iter().filter(|axis| axis.tuned).map(|axis| axis.name).collect();
            return Err(Failure::new(format!(
                "{} has no axis {} to be tuned",
                self.device.id(),
                Quote::name(unknown, names.iter().copied())
            ))
            .hint(format!("there are {}", names.join(", "))));
        }
        let mut base = Policy::default();
        for axis in &mut axes {
            if axis.name == THREADS {
                axis.values = (1..=self.threads as u32).collect();
                base = base.with(THREADS, self.threads as u32);
            }
            axis.tuned &= self.args.axis.is_empty() || self.args.axis.iter().any(|name| name == axis.name);
        }
        Ok((axes, base))
    }

    fn workload(&self, plan: &Plan, jobs: usize, base: &Policy) -> Result<Workload, Failure> {
        Ok(Workload::new(&self.backend, &self.device, self.timeout, plan, jobs, base)?)
    }

    /// Batch sizes of an op, ascending.
    fn batches(&self, plan: &Plan, base: &Policy) -> Result<Vec<usize>, Failure> {
        if !self.args.batch.is_empty() {
            let mut batches = self.args.batch.clone();
            batches.sort_unstable();
            batches.dedup();
            return Ok(batches);
        }
        let mut most = self.backend.slh_dsa_on(&self.device)?.jobs(&self.device, plan, base).max(1);
        if self.device.memory == 0 {
            // One job tells how many take long enough.
            let (one, _) = self.workload(plan, 1, base)?.run(base)?;
            most = most.min(((HOST_RUN / one) as usize).max(self.threads).next_power_of_two());
        }
        Ok(LADDER.into_iter().filter(|jobs| 2 * jobs <= most).chain([most]).collect())
    }

    fn rows(&self, sets: &[&'static Params], journal: &mut Journal) -> Result<Vec<Row>, Failure> {
        let targets = self.questions(sets)?;
        self.head()?;
        let found = self.ladder(&targets, journal)?;
        for (one, _) in targets.iter().zip(&found).filter(|(_, found)| found.is_none()) {
            let what = format_args!("{one}: no time was left; give more with --budget");
            self.bar.suspend(|| self.printer.warning(what));
        }
        let found: Vec<(TuneTarget, TuningResult)> =
            targets.into_iter().zip(found).filter_map(|(one, found)| Some((one, found?))).collect();
        let between = if self.args.batch.is_empty() { self.between(&found, journal)? } else { Vec::new() };
        let mut rows: Vec<Row> = found.iter().chain(&between).map(|(one, found)| self.row(one, found)).collect();
        share_out(&mut rows);
        if self.args.json {
            for row in &rows {
                self.printer.line(serde_json::to_string(row).map_err(|error| Failure::new(error.to_string()))?)?;
            }
        }
        Ok(rows)
    }

    /// Every set and op at the batch sizes of the ladder, the largest first: its winner is a candidate of the others.
    fn questions(&self, sets: &[&'static Params]) -> Result<Vec<TuneTarget>, Failure> {
        let mut targets = Vec::new();
        for params in sets {
            for op in self.args.op.iter().flat_map(|ops| ops.0.iter().copied()) {
                let plan = Plan::new(params, op);
                let of = |failure: Failure| failure.of(format_args!("{params} {}", op_name(op)));
                let (_, base) = self.space(&plan)?;
                let batches = self.batches(&plan, &base).map_err(of)?;
                let most = batches.last().copied();
                targets.extend(batches.into_iter().rev().map(|jobs| {
                    let weight = if Some(jobs) == most { WEIGHT_OF_FULL } else { 1.0 };
                    TuneTarget { params, op, jobs, weight }
                }));
            }
        }
        Ok(targets)
    }

    /// The time that is left of `of`, which began at the start.
    fn left(&self, of: Duration) -> Duration {
        of.saturating_sub(self.start.elapsed())
    }

    /// Searches for the best policy of each question, as far as time suffices.
    fn ladder(&self, targets: &[TuneTarget], journal: &mut Journal) -> Result<Vec<Option<TuningResult>>, Failure> {
        let budget = if self.args.batch.is_empty() { self.budget.mul_f64(1.0 - BETWEEN) } else { self.budget };
        let mut found: Vec<Option<TuningResult>> = targets.iter().map(|_| None).collect();
        let mut winners = Vec::<(Op, Policy)>::new();
        let mut open: Vec<usize> = (0..targets.len()).collect();
        while !open.is_empty() {
            let mut over = Vec::new();
            for (nth, i) in open.iter().copied().enumerate() {
                let one = &targets[i];
                let weights: f64 = open[nth..].iter().map(|i| targets[*i].weight).sum();
                let left = self.left(budget);
                let share = left.mul_f64(one.weight / weights);
                let own = found[i].as_ref().map(|found| found.outcome.policy.clone());
                let others = winners.iter().filter(|(op, _)| *op == one.op).map(|(_, policy)| policy.clone());
                let seeds: Vec<Policy> = own.into_iter().chain(others).collect();
                if left.is_zero() && found[i].is_some() {
                    continue;
                }
                let answer = self.answer(one, self.args.search, &seeds, share, journal, open.len() - nth);
                let Some(now) = answer.map_err(|failure| failure.of(one))? else {
                    over.push(i);
                    continue;
                };
                if !now.outcome.complete {
                    over.push(i);
                }
                // TuneTarget again with less time, it may have ended before it came as far.
                let before = found[i].take().filter(|before| before.outcome.seconds <= now.outcome.seconds);
                let best = found[i].insert(before.unwrap_or(now));
                self.bar.suspend(|| self.show(&self.row(one, best), &best.outcome))?;
                winners.retain(|(op, _)| *op != one.op);
                winners.push((one.op, best.outcome.policy.clone()));
            }
            // Sizes that ran out of time are retried with the time that others did not use; the journal has their samples.
            open = if self.left(budget) > self.budget.mul_f64(WORTH) { over } else { Vec::new() };
            open.iter().for_each(|i| journal.again(&targets[*i].question()));
        }
        Ok(found)
    }

    /// Sizes between two for which different policies are best, each twice the one before: which of the two is best there,
    /// or the defaults. Where that is everywhere the policy of the nearer size, nothing is to be said.
    fn between(
        &self,
        found: &[(TuneTarget, TuningResult)],
        journal: &mut Journal,
    ) -> Result<Vec<(TuneTarget, TuningResult)>, Failure> {
        let mut open = Vec::new();
        for pair in found.windows(2) {
            let [(large, many), (small, few)] = pair else { continue };
            let (many, few) = (&many.outcome.policy, &few.outcome.policy);
            if (large.params.name, large.op) != (small.params.name, small.op) || same(many, few) {
                continue;
            }
            let middle = sizes(&[small.jobs, large.jobs])[0].most;
            let nearer = |jobs: usize| if jobs > middle { many } else { few };
            let inside = successors(Some(2 * small.jobs), |jobs| Some(2 * jobs)).take_while(|jobs| *jobs < large.jobs);
            let (params, op, weight) = (small.params, small.op, 1.0);
            let inside: Vec<_> = inside.map(|jobs| (TuneTarget { params, op, jobs, weight }, nearer(jobs))).collect();
            open.push(([few.clone(), many.clone()], inside));
        }
        let mut questions: usize = open.iter().map(|(_, inside)| inside.len()).sum();
        let mut others = Vec::new();
        for (seeds, inside) in open {
            let (mut answers, mut differ) = (Vec::new(), false);
            for (one, nearer) in inside {
                let left = self.left(self.budget);
                if left.is_zero() {
                    break;
                }
                let answer = self.answer(&one, &CANDIDATES, &seeds, left / questions as u32, journal, questions);
                questions -= 1;
                // A search that did not come to its end decides nothing.
                let Some(best) = answer.map_err(|failure| failure.of(&one))?.filter(|found| found.outcome.complete)
                else {
                    continue;
                };
                differ |= !same(&best.outcome.policy, nearer);
                answers.push((one, best));
            }
            if differ {
                for (one, best) in answers {
                    self.bar.suspend(|| self.show(&self.row(&one, &best), &best.outcome))?;
                    others.push((one, best));
                }
            }
        }
        Ok(others)
    }

    /// Answers one question in its share of time; `None` if there was not enough of it.
    fn answer(
        &self,
        one: &TuneTarget,
        search: &Search,
        seeds: &[Policy],
        share: Duration,
        journal: &mut Journal,
        questions: usize,
    ) -> Result<Option<TuningResult>, Failure> {
        let plan = Plan::new(one.params, one.op);
        let (space, base) = self.space(&plan)?;
        let start = Instant::now();
        let mut workload = self.workload(&plan, one.jobs, &base)?;
        let question = one.question();
        let timed = Timed::new(&mut workload, start + share.mul_f64(1.0 - CONFIRMED));
        let mut lab = Recorded { journal, question, lab: WithBar { lab: timed, tuner: self, one, questions } };
        let found = find(search, &space, &base, seeds, &mut lab, |lab| lab.lab.lab.until = start + share);
        match found {
            Ok((mut outcome, _)) => {
                let Outcome { seconds, spread, default_seconds, default_spread, .. } = outcome;
                let (mut whole, mut default) = ((seconds, spread), (default_seconds, default_spread));
                if self.device.memory > 0 {
                    let short = default_seconds < HIDDEN;
                    let two = [&outcome.policy, &base];
                    let slower =
                        |a: (f64, f64), b: (f64, f64)| a.0 >= b.0 && (short || a.0 - b.0 > a.0 * a.1 + b.0 * b.1);
                    [whole, default] = self.whole(&mut workload, two, WHOLE[usize::from(short)])?;
                    if !short && slower(whole, default) {
                        // Few runs end to end scatter by more than policies differ.
                        [whole, default] = self.whole(&mut workload, two, WHOLE[1])?;
                    }
                    if slower(whole, default) {
                        (outcome.policy, outcome.seconds, outcome.spread) = (base, default_seconds, default_spread);
                        whole = default;
                    }
                }
                Ok(Some(TuningResult { outcome, whole, default }))
            }
            Err(hypergrove::Error::Value { .. }) if start.elapsed() >= share => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Two policies end to end, as a caller waits for them, in turns.
    fn whole(&self, workload: &mut Workload, policies: [&Policy; 2], runs: usize) -> Result<[(f64, f64); 2], Failure> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for (policy, times) in policies.iter().zip(&mut times) {
                times.push(workload.run(policy)?.0);
            }
        }
        Ok(times.map(|times| (median(&times), spread(&times))))
    }

    fn row(&self, one: &TuneTarget, found: &TuningResult) -> Row {
        // As many threads as there are is what holds anyway.
        let all = |(axis, value): &&(&'static str, u32)| *axis == THREADS && *value == self.threads as u32;
        let axes = found.outcome.policy.0.iter().filter(|choice| !all(choice));
        Row {
            family: one.params.family.name().into(),
            n: one.params.n,
            op: op_name(one.op).into(),
            set: Some(one.params.name.into()),
            batch: Sizes { least: one.jobs, most: one.jobs },
            jobs: one.jobs,
            axes: axes.map(|(axis, value)| ((*axis).into(), *value)).collect(),
            seconds: rounded(found.whole.0),
            default_seconds: rounded(found.default.0),
            spread: rounded(found.whole.1),
            samples: found.outcome.samples,
        }
    }

    fn head(&self) -> Result<(), Failure> {
        if self.args.json {
            return Ok(());
        }
        self.printer.line(format!(
            "{:<20} {:<6} {:>7} {:>9} {:>9} {:>16} {:>5} {:>5}  policy",
            "set", "op", "batch", "default", "tuned", "gain", "tried", "runs"
        ))
    }

    fn show(&self, row: &Row, found: &Outcome) -> Result<(), Failure> {
        if self.args.json {
            return Ok(());
        }
        let (gain, sigma) = found.gain();
        let axes: Vec<_> = row.axes.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
        let axes = if axes.is_empty() { "the defaults".into() } else { axes.join(", ") };
        let early = if found.complete { "" } else { " (time was over)" };
        self.printer.line(format!(
            "{:<20} {:<6} {:>7} {:>9} {:>9} {:>16} {:>5} {:>5}  {axes}{early}",
            row.set.as_deref().unwrap_or_default(),
            row.op,
            grouped(row.jobs as u64),
            seconds(found.default_seconds),
            seconds(found.seconds),
            format!("{gain:.3} ± {sigma:.3}"),
            found.policies,
            found.samples
        ))
    }
}

/// Four significant digits: no timing has more.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A lab that moves the bar.
struct WithBar<'a, L> {
    lab: L,
    tuner: &'a Tuner<'a>,
    one: &'a TuneTarget,
    questions: usize,
}

impl<L: Lab> Lab for WithBar<'_, L> {
    fn expect(&mut self, policies: &[Policy]) {
        self.lab.expect(policies);
    }

    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        let took = self.lab.run(policy)?;
        let Tuner { bar, start, budget, .. } = self.tuner;
        let elapsed = start.elapsed().min(*budget);
        bar.set_position(elapsed.as_millis() as u64);
        let left = (*budget - elapsed).as_secs();
        let (op, jobs) = (op_name(self.one.op), grouped(self.one.jobs as u64));
        bar.set_message(format!("{} {op} of {jobs}, {} to do, at most {left} s left", self.one.params, self.questions));
        Ok(took)
    }
}
