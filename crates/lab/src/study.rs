//! `hypergrove bench --study`: what is measured is data, `bench/definitions/*.toml`.

pub(crate) mod cores;
mod definition;
pub(crate) mod list;
mod under_way;

use self::definition::{
    CallersRow, EngineRow, HashRow, JobInput, Kind, Named, Numbers, ProgramRow, RatesRow, Row, Value, choices,
    definition,
};
use self::under_way::{Study, StudyDevice, describe, row};
use crate::args::{Bench, IsaName, MachineOptions, RowMemory};
use crate::failure::{Exit, Failure};
use crate::machine::{self, Limits};
use crate::printer::{Bar, Printer, grouped, seconds};
use crate::sha256::{Point, sha256_point, space_and_bounds};
use crate::stopwatch::callers::{self, CallerKind};
use crate::stopwatch::{LEAST_RUNS, Question, Times, distinct, measure, record_of, record_of_op, until_used_up};
use hypergrove::backend::{Plan, Policy};
use hypergrove::{Engine, Isa, SlhDsa, cache_bytes};
use hypergrove_engine::{STAGES, THREADS, scheme::bucket};
use hypergrove_records::record::{Record, StageRecord};
use hypergrove_tune::trial::{self, Trial, TrialJobs};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Runs that a measurement of the library consists of, about: answers are made and checked, three are timed, and kernels.
const MEASURED_BY: f64 = 8.0;
/// Runs by which stages are timed alone: so many at least, and more if they are short.
const STAGE_RUNS: RangeInclusive<usize> = 3..=9;
const STAGE_TIME: Duration = Duration::from_millis(100);
/// How long messages of one length are hashed in one shape, and how many of them in a quick run.
const HASH_SECONDS: f64 = 0.2;
const QUICK_MESSAGES: usize = 1024;
/// How long the rates of one instruction set are measured.
const RATES_TIME: Duration = Duration::from_millis(300);

/// Batches in an order whose every beginning covers them all: each sixteenth of them, then each eighth, and so on.
fn spread(batches: &[usize]) -> Vec<usize> {
    let mut numbered: Vec<(usize, usize)> = (1..).zip(batches.iter().copied()).collect();
    numbered.sort_by_key(|(number, _)| std::cmp::Reverse(number.trailing_zeros().min(4)));
    numbered.into_iter().map(|(_, batch)| batch).collect()
}

/// One kind, or both.
fn kinds(on: Option<Kind>) -> Vec<Kind> {
    on.map_or(vec![Kind::Cpu, Kind::Gpu], |kind| vec![kind])
}

/// How many of so many devices of a kind can work together: the host is one.
fn most(kind: Kind, there: usize) -> usize {
    if kind == Kind::Cpu { there.min(1) } else { there }
}

pub(crate) fn run(name: &str, args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let definition = definition(name)?;
    let (places, absent) = places(options)?;
    let mut study = Study {
        name,
        args,
        options,
        printer,
        places,
        absent,
        bar: Bar::hidden(),
        start: Instant::now(),
        turns: 0,
        until: f64::INFINITY,
        skipped: 0,
    };
    study.turns = definition.rows.iter().map(|row| study.turns(row)).sum::<Result<_, _>>()?;
    printer.note(format_args!("{}: {}", definition.title, definition.asks));
    if !args.json {
        printer.line(row(["set", "op", "batch", "shape", "median", "spread", "per second", "% of peak"]))?;
    }
    for row in &definition.rows {
        match row {
            Row::Program(row) => study.programs(row)?,
            Row::Engine(row) => study.engines(row)?,
            Row::Callers(row) => study.callers(row)?,
            Row::Cores(row) => study.cores(row)?,
            Row::Rates(row) => study.rates(row)?,
            Row::Hash(row) => study.hashes(row)?,
        }
    }
    study.bar.finish_and_clear();
    if study.skipped > 0 {
        printer.note(format_args!("{} left out", study.skipped));
    }
    Ok(Exit::Good)
}

/// All devices that were asked for, or that there are; and why there is no more.
fn places(options: &MachineOptions) -> Result<(Vec<StudyDevice>, String), Failure> {
    let mut absent = Vec::new();
    let chosen = match machine::devices(options)? {
        Some(chosen) => {
            absent.push("none was named".to_string());
            chosen.into_iter().map(|(backend, index)| (backend, Some(index))).collect()
        }
        None => machine::backends().into_iter().map(|backend| (backend, None)).collect::<Vec<_>>(),
    };
    let mut places = Vec::new();
    for (backend, index) in chosen {
        let there = match backend.devices() {
            Ok(there) => there,
            Err(why) => {
                absent.push(format!("{}: {why}", backend.name()));
                continue;
            }
        };
        if let Some(why) = backend.absent().filter(|_| there.is_empty()) {
            absent.push(format!("{}: {why}", backend.name()));
        }
        let these = there.into_iter().filter(|device| index.map_or(device.automatic, |index| index == device.index));
        let timeout = options.device_timeout;
        places.extend(these.map(|device| StudyDevice { backend: backend.clone(), device, timeout }));
    }
    Ok((places, absent.join("; ")))
}

/// An engine on these devices.
fn engine_on(places: &[StudyDevice], options: &MachineOptions) -> Result<Engine, Failure> {
    let devices = places.iter().map(|place| (place.backend.clone(), place.device.index)).collect();
    Ok(machine::builder(options).devices(devices).build()?)
}

impl Study<'_> {
    /// The turns of a row.
    fn turns(&self, row: &Row) -> Result<usize, Failure> {
        let places = |kind| self.places.iter().filter(|place| place.kind() == kind).count();
        Ok(match row {
            Row::Program(row) => match self.places.iter().find(|place| place.kind() == row.on) {
                Some(place) => {
                    let subjects = self.subjects(&row.sets, &row.ops, &row.cached_layers)?;
                    subjects.len() * self.choices(row, place).len()
                }
                None => 0,
            },
            Row::Engine(row) => {
                let of = |kind| row.devices.iter().filter(|number| **number <= most(kind, places(kind))).count();
                let numbers: usize = kinds(row.on).into_iter().map(of).sum();
                self.subjects(&row.sets, &row.ops, &row.cached_layers)?.len() * numbers * row.through.len()
            }
            Row::Hash(row) if places(row.on) > 0 => {
                self.args.some(&row.policies).len() * self.args.some(&row.streams).len().max(1)
            }
            Row::Callers(row) => {
                let there = kinds(row.on).into_iter().filter(|kind| places(*kind) > 0).count();
                self.subjects(&row.sets, &row.ops, &[0])?.len() * self.ways(row).len() * there
            }
            Row::Cores(row) if places(Kind::Cpu) > 0 => self.subjects(&row.sets, &row.ops, &[0])?.len(),
            Row::Hash(_) | Row::Rates(_) | Row::Cores(_) => 0,
        })
    }

    /// The policies of a row on a device.
    fn choices(&self, row: &ProgramRow, place: &StudyDevice) -> Vec<Named> {
        let cores = if row.on == Kind::Cpu { self.threads() as u32 } else { place.device.cores };
        self.args.some(&choices(row, cores))
    }

    fn programs(&mut self, row: &ProgramRow) -> Result<(), Failure> {
        let Some(place) = self.place(row.on)? else { return Ok(()) };
        let subjects = self.subjects(&row.sets, &row.ops, &row.cached_layers)?;
        let choices = self.choices(row, &place);
        let programs = place.backend.slh_dsa_on(&place.device)?;
        let mut parts = Vec::new();
        for (p, op, layers) in subjects {
            let plan = Plan::new(p, op);
            let plan = if layers > 0 { plan.with_cached_layers(layers) } else { plan };
            let full = || programs.jobs(&place.device, &plan, &Policy::default());
            parts.push((self.batches(&row.batches, full), plan));
        }
        self.begin(parts.iter().map(|(batches, _)| batches.len() * choices.len()).sum());
        let limits = Limits::of(vec![(place.device.clone(), place.backend.rates(&place.device))], self.options);
        for (batches, plan) in parts {
            let Some(most) = batches.iter().copied().max() else { continue };
            let of_op = record_of_op(&place.device, plan.params, plan.op);
            let base = Record { cached_layers: plan.cached_layers, threads: self.threads(), ..of_op };
            if self.args.within.is_some_and(|within| self.start.elapsed().as_secs_f64() >= within) {
                self.skip_many(base, "time is up".into(), batches.len() * choices.len())?;
                continue;
            }
            let different = distinct(place.kind() == Kind::Gpu, SlhDsa::from(plan.params), most);
            let jobs =
                match TrialJobs::new(place.trials(), plan, most, different, self.threads()).map_err(Failure::from) {
                    Ok(jobs) => jobs,
                    Err(why) if why.is_memory => {
                        self.turns = self.turns.saturating_sub(choices.len());
                        self.skip_many(base, why.message, batches.len() * choices.len())?;
                        continue;
                    }
                    Err(why) => return Err(why.of(format_args!("{} {}", base.set, base.op))),
                };
            for choice in &choices {
                let base = Record { shape: Some(choice.name.clone()), ..base.clone() };
                self.turn();
                self.program(row, &place, &jobs, choice, &batches, &limits, base)?;
            }
        }
        Ok(())
    }

    /// One policy over all batches.
    #[expect(clippy::too_many_arguments, reason = "a row, where it is measured, and the column of its table")]
    #[expect(clippy::too_many_lines, reason = "a loop over a row's values, whose records name all of them")]
    fn program(
        &mut self,
        row: &ProgramRow,
        place: &StudyDevice,
        jobs: &TrialJobs,
        choice: &Named,
        batches: &[usize],
        limits: &Limits,
        base: Record,
    ) -> Result<(), Failure> {
        let (trials, plan) = (place.trials(), jobs.plan());
        let engine = engine_on(std::slice::from_ref(place), self.options)?;
        let mut trial: Option<(usize, Policy, Trial)> = None;
        let mut to_come = VecDeque::from(if self.args.within.is_some() { spread(batches) } else { batches.to_vec() });
        while let Some(batch) = to_come.pop_front() {
            let base = Record { batch, ..base.clone() };
            let left = to_come.len() + 1;
            if self.is_over() {
                let why = format!("time is up, {left} of {} batches", batches.len());
                return self.skip_many(base, why, left);
            }
            let policy = if choice.values.is_empty() {
                engine.explain(plan.params, plan.op, batch)?.policy
            } else {
                match choice.on(trials, plan) {
                    Ok(policy) => policy,
                    Err(why) => return self.skip_many(base, why, left),
                }
            };
            let policy = trials.with_threads(plan, &policy, self.threads())?;
            let staged = Policy(policy.0.iter().copied().chain([(STAGES, 1)]).collect());
            let base = Record {
                policy: policy.0.iter().map(|(axis, value)| ((*axis).into(), *value)).collect(),
                threads: policy.get(THREADS).map_or(1, |threads| threads as usize),
                ..base
            };
            if trial.as_ref().is_none_or(|(most, of, _)| *most != bucket(batch) || *of != policy) {
                // Two programs at a time could exceed the device's memory.
                drop(trial.take());
                let made = Trial::new(trials, plan, bucket(batch), &policy).map_err(Failure::from);
                let mut made = match made {
                    Ok(made) => made,
                    // A batch that is too large for the device's memory says nothing of smaller batches.
                    Err(why) if why.is_memory => {
                        to_come.push_front(batch);
                        self.skip_larger(base, why.message, batch - 1, &mut to_come)?;
                        continue;
                    }
                    Err(why) => return self.skip_many(base, why.message, left),
                };
                made.run(jobs, batch).map_err(|why| Failure::from(why).of(describe(&base)))?;
                trial = Some((bucket(batch), policy.clone(), made));
            }
            let Some((.., program)) = &mut trial else { continue };
            let mut execute = Vec::new();
            let times = until_used_up(LEAST_RUNS, self.args.budget(row.seconds), || {
                let (time, timing) = program.run(jobs, batch)?;
                execute.push(timing.execute.as_secs_f64());
                Ok(time)
            })
            .map_err(|why| why.of(describe(&base)))?;
            let longest = times.median() > row.longest;
            let execute = Times::new(execute);
            let mut stages = Vec::new();
            if row.stages {
                drop(trial.take());
                stages = timed_alone(trials, jobs, batch, &staged).map_err(|why| why.of(describe(&base)))?;
            }
            let is_gpu = place.kind() == Kind::Gpu;
            let ideal = limits.seconds(&plan.work(), base.threads).map(|ideal| ideal * batch as f64);
            let kernels = is_gpu.then(|| execute.median());
            let record = Record {
                ops_per_s: batch as f64 / times.median(),
                ideal_s: ideal,
                limit_fraction: ideal.map(|ideal| ideal / times.median()),
                kernels_per_s: kernels.map(|kernels| batch as f64 / kernels),
                kernels_limit_fraction: ideal.zip(kernels).map(|(ideal, kernels)| ideal / kernels),
                execute_s: execute.all().to_vec(),
                verified: true,
                stages,
                clock_hz: place.clock(),
                rates: limits.core.map(Into::into),
                limit: limits.all(base.threads).map(Into::into),
                ..base.clone().timed(&times)
            };
            self.emit(record)?;
            if longest && to_come.iter().any(|other| *other > batch) {
                let took = seconds(times.median());
                let why = format!("{} jobs took {took}, more than {} s", grouped(batch as u64), row.longest);
                self.skip_larger(base, why, batch, &mut to_come)?;
            }
        }
        Ok(())
    }

    fn engines(&mut self, row: &EngineRow) -> Result<(), Failure> {
        for kind in kinds(row.on) {
            if self.place(kind)?.is_none() {
                continue;
            }
            let places: Vec<StudyDevice> = self.places.iter().filter(|place| place.kind() == kind).cloned().collect();
            let most = most(kind, places.len());
            for number in row.devices.iter().copied() {
                if number > most {
                    let why = format!(
                        "{number} devices are needed, there {}",
                        if most == 1 { "is 1".into() } else { format!("are {most}") }
                    );
                    self.skip(record_of(&places[0].device), why)?;
                    continue;
                }
                let engine = engine_on(&places[..number], self.options)?;
                for through in row.through.iter().copied() {
                    if through == JobInput::Device && engine.memory(1)?.devices().is_empty() {
                        self.skip(record_of(&places[0].device), "no device reaches memory of the host".into())?;
                        continue;
                    }
                    self.engine(row, &places[..number], &engine, through.memory())?;
                }
            }
        }
        Ok(())
    }

    fn engine(
        &mut self,
        row: &EngineRow,
        places: &[StudyDevice],
        engine: &Engine,
        rows: Option<RowMemory>,
    ) -> Result<(), Failure> {
        let subjects = self.subjects(&row.sets, &row.ops, &row.cached_layers)?;
        let batches = match &row.batches {
            Some(numbers) => self.batches(numbers, || 1).into_iter().map(Some).collect(),
            None => vec![self.args.batch],
        };
        self.begin(subjects.len() * batches.len());
        for (params, op, cached_layers) in subjects {
            self.turn();
            let mut before: Option<(usize, f64)> = None;
            for (i, batch) in batches.iter().copied().enumerate() {
                let base = Record {
                    batch: batch.unwrap_or(0),
                    cached_layers,
                    rows: rows.map(|memory| memory.name().into()),
                    ..record_of_op(&places[0].device, params, op)
                };
                let predicted = before.zip(batch).map_or(0.0, |((of, took), batch)| took * batch as f64 / of as f64);
                if self.start.elapsed().as_secs_f64() + MEASURED_BY * predicted >= self.until {
                    self.skip_many(base, "time is up, and larger batches".into(), batches.len() - i)?;
                    break;
                }
                let budget = self.args.budget(row.seconds);
                let question = Question { params: SlhDsa::from(params), op, batch, cached_layers, budget, rows };
                let measured = match measure(engine, question, self.options) {
                    Ok(measured) => measured,
                    Err(why) if why.is_memory => {
                        self.skip_many(base, why.message, batches.len() - i)?;
                        break;
                    }
                    Err(why) => return Err(why.of(describe(&base))),
                };
                let record = Record {
                    cache_bytes: (cached_layers > 0).then(|| cache_bytes(params, cached_layers)).flatten(),
                    clock_hz: places[0].clock(),
                    ..measured.record(engine, question)
                };
                self.emit(record)?;
                let took = measured.times.median();
                before = Some((measured.batch, took));
                if took > row.longest && i + 1 < batches.len() {
                    let why = format!(
                        "{} jobs took {}, more than {} s",
                        grouped(measured.batch as u64),
                        seconds(took),
                        row.longest
                    );
                    self.skip_many(Record { batch: batches[i + 1].unwrap_or(0), ..base }, why, batches.len() - i - 1)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// How callers bring their jobs.
    fn ways(&self, row: &CallersRow) -> Vec<CallerKind> {
        let held = self.args.some(&row.held).into_iter().map(CallerKind::Held);
        [CallerKind::Direct, CallerKind::Waiting].into_iter().chain(held).collect()
    }

    fn callers(&mut self, row: &CallersRow) -> Result<(), Failure> {
        let subjects = self.subjects(&row.sets, &row.ops, &[0])?;
        let (ways, numbers) = (self.ways(row), self.batches(&Numbers::List(row.callers.clone()), || 1));
        for kind in kinds(row.on) {
            let Some(place) = self.place(kind)? else { continue };
            let engine = engine_on(std::slice::from_ref(&place), self.options)?;
            self.begin(subjects.len() * ways.len() * numbers.len());
            for (params, op, cached_layers) in subjects.iter().copied() {
                for way in ways.iter().copied() {
                    self.turn();
                    for (i, callers) in numbers.iter().copied().enumerate() {
                        let base = Record { batch: callers, ..record_of_op(&place.device, params, op) };
                        if self.is_over() {
                            self.skip_many(base, "time is up, and more callers".into(), numbers.len() - i)?;
                            break;
                        }
                        let budget = self.args.budget(row.seconds);
                        let question = callers::CallersQuestion { params, op, cached_layers, callers, way, budget };
                        let record = callers::measure(&engine, question).map_err(|why| why.of(describe(&base)))?;
                        self.emit(Record { clock_hz: place.clock(), ..record })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn rates(&mut self, row: &RatesRow) -> Result<(), Failure> {
        for kind in kinds(row.on) {
            let Some(place) = self.place(kind)? else { continue };
            let base =
                Record { op: "rates".into(), clock_hz: place.clock(), verified: true, ..record_of(&place.device) };
            if kind == Kind::Gpu {
                match place.backend.rates(&place.device) {
                    Some(rates) => {
                        self.emit(Record { shape: Some("limit".into()), limit: Some(rates.into()), ..base })?;
                    }
                    None => self.skip(base, "its rates are not known".into())?,
                }
                continue;
            }
            let sets = match self.options.isa {
                IsaName(Some(isa)) => vec![isa],
                IsaName(None) => Isa::available(),
            };
            self.begin(sets.len());
            for isa in sets {
                let base = Record { shape: Some(isa.name().into()), threads: 1, ..base.clone() };
                match hypergrove::backend::rates(isa, RATES_TIME) {
                    Some(rates) => self.emit(Record { rates: Some(rates.into()), ..base })?,
                    None => self.skip_many(base, "this CPU lacks it".into(), 1)?,
                }
            }
        }
        Ok(())
    }

    /// End to end; `kernels_per_s` is of messages in the device's own memory.
    fn hashes(&mut self, row: &HashRow) -> Result<(), Failure> {
        let Some(place) = self.place(row.on)? else { return Ok(()) };
        let StudyDevice { backend, device, timeout } = &place;
        let (space, bounds) = space_and_bounds(&**backend, device, self.options)?;
        let name = |axis: &str| space.iter().find(|known| known.name == axis).map(|known| known.name);
        let sizes = self.args.some(&row.bytes.all(|| 1));
        let streams = if row.streams.is_empty() { vec![None] } else { row.streams.iter().copied().map(Some).collect() };
        let (streams, policies) = (self.args.some(&streams), self.args.some(&row.policies));
        self.begin(policies.len() * streams.len() * sizes.len());
        for choice in &policies {
            for &streams in &streams {
                self.turn();
                let shape =
                    streams.map_or(choice.name.clone(), |streams| format!("{}, {streams} streams", choice.name));
                let base = Record { op: "hash".into(), shape: Some(shape), ..record_of(device) };
                let threads = self.threads() as u32;
                let number = |(axis, value): (&'_ String, &Value)| Some((axis.clone(), *value.all(threads).last()?));
                let requested = choice.axes.iter().filter_map(number);
                let requested: Vec<(String, u32)> =
                    requested.chain(streams.map(|streams| ("streams".into(), streams))).collect();
                let threads = (!choice.axes.contains_key(THREADS)).then_some((THREADS, threads));
                if let Some((axis, _)) = requested.iter().find(|(axis, _)| name(axis).is_none()) {
                    self.skip_many(base, format!("there is no axis '{axis}'"), sizes.len())?;
                    continue;
                }
                let policy = requested.iter().filter_map(|(axis, value)| Some((name(axis)?, *value))).chain(threads);
                let policy = Policy(policy.collect());
                for &size in &sizes {
                    let base = Record { message_bytes: size, ..base.clone() };
                    if self.is_over() {
                        self.skip_many(base, "time is up".into(), 1)?;
                        continue;
                    }
                    let budget = self.args.budget(HASH_SECONDS);
                    let count = Some(if self.args.quick { row.messages.min(QUICK_MESSAGES) } else { row.messages });
                    let point = Point { size, count, policy: policy.clone(), budget, timeout: *timeout };
                    let record = sha256_point(&**backend, device, bounds, &point)?;
                    self.emit(Record { shape: base.shape, clock_hz: place.clock(), ..record })?;
                }
            }
        }
        Ok(())
    }
}

/// Each stage of a batch alone; of the launches of a kernel, their sum.
fn timed_alone(
    place: trial::Place<'_>,
    jobs: &TrialJobs,
    batch: usize,
    policy: &Policy,
) -> Result<Vec<StageRecord>, Failure> {
    let mut trial = Trial::new(place, jobs.plan(), bucket(batch), policy)?;
    trial.run(jobs, batch)?;
    let mut stages = Vec::<(StageRecord, Duration)>::new();
    let start = Instant::now();
    for run in 0..*STAGE_RUNS.end() {
        if run >= *STAGE_RUNS.start() && start.elapsed() > STAGE_TIME {
            break;
        }
        let (_, timing) = trial.run(jobs, batch)?;
        for time in timing.stages {
            let at = stages.iter().position(|(stage, _)| stage.name == time.name).unwrap_or_else(|| {
                let (name, times_s) = (time.name.into(), Vec::new());
                stages.push((StageRecord { name, blocks: 0, threads: 0, launches: 0, times_s }, Duration::ZERO));
                stages.len() - 1
            });
            let (record, longest) = &mut stages[at];
            record.times_s.resize(run + 1, 0.0);
            record.times_s[run] += time.time.as_secs_f64();
            record.launches += usize::from(run == 0);
            if time.time > *longest {
                (record.blocks, record.threads, *longest) = (time.blocks, time.threads, time.time);
            }
        }
    }
    Ok(stages
        .into_iter()
        .map(|(stage, _)| StageRecord { times_s: Times::new(stage.times_s).all().to_vec(), ..stage })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_the_batches_covers_them() {
        let steps = Numbers::Steps { first: 1024, last: 65536, step: 1024 };
        let spread = spread(&steps.all(|| 0));
        assert_eq!((spread.len(), &spread[..6]), (64, &[16384, 32768, 49152, 65536, 8192, 24576][..]));
    }
}
