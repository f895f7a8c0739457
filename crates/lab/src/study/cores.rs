//! One engine with several threads next to as many processes with one thread each. The tool starts itself for each of them, so that all are measured by
//! the same code (`bench --turns`), and asks them in turns.

use super::definition::{CoresRow, Kind};
use super::under_way::{Study, StudyDevice, describe};
use crate::args::{Bench, MachineOptions, RowMemory, op_name};
use crate::failure::Failure;
use crate::machine::{self, Limits};
use crate::printer::Printer;
use crate::stopwatch::{
    self, LEAST_RUNS, Measurement, Question, Timed, Times, measure_at, record_of_op, until_used_up,
};
use hypergrove::{Engine, Op, Params, SlhDsa};
use hypergrove_records::record::Record;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Memory of the rows, which is where most callers have them.
const ROWS: RowMemory = RowMemory::Host;

/// The timed runs of a process that measures in turns. It prints `null` once its jobs are prepared. Each line of standard input begins a turn, and standard
/// output gets the mean of its runs. A process's median would leave out runs in which its core did other work; an engine's run cannot, because it ends with
/// the slowest core. The result has the runs of all turns.
fn in_turns(
    budget: Duration,
    printer: &Printer,
    run: &mut dyn FnMut() -> Result<Duration, Failure>,
) -> Result<Times, Failure> {
    let mut all = Vec::new();
    printer.line("null")?;
    for line in stdin().lines() {
        line.map_err(|error| Failure::io("read", "standard input", &error))?;
        let times = until_used_up(LEAST_RUNS, budget, &mut *run)?;
        printer.line(times.mean())?;
        all.extend_from_slice(times.all());
    }
    if all.is_empty() { until_used_up(LEAST_RUNS, budget, run) } else { Ok(Times::new(all)) }
}

/// Measures as `bench` does; with `--turns`, in turns that standard input begins.
pub(crate) fn measure<S: Timed>(
    args: &Bench,
    engine: &Engine,
    question: Question<S>,
    options: &MachineOptions,
    printer: &Printer,
) -> Result<Measurement, Failure> {
    let budget = question.budget;
    match args.turns {
        true => measure_at(engine, question, options, &|run| in_turns(budget, printer, run)),
        false => stopwatch::measure(engine, question, options),
    }
}

/// A process that measures in turns. It ends with its standard input.
struct Process {
    child: Child,
    turns: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may compute for long before it reads on.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Process, Failure> {
        let failed = |error: io::Error| Failure::io("start", "another process of this tool", &error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        let piped = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().map_err(failed)?;
        let (turns, answers) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Ok(Process { child, turns, answers: BufReader::new(answers).lines() })
    }

    /// The next line of its output: `()` once it is ready, the seconds of a turn, or the record of all turns.
    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.answers.next().and_then(Result::ok);
        line.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(|| {
            Failure::new("a process that was measured ended early")
                .hint("standard error has the reason; fewer processes take less memory: --threads")
        })
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let sent = self.turns.as_mut().map_or(Ok(()), |turns| turns.write_all(b"\n"));
        sent.map_err(|error| Failure::io("write to", "another process of this tool", &error))
    }
}

/// 1, 2, 4 and so on, and all.
fn doubling(all: usize) -> Vec<usize> {
    let below = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < all);
    below.chain([all]).collect()
}

impl Study<'_> {
    /// The numbers of threads.
    fn numbers(&self) -> Vec<usize> {
        self.args.some(&doubling(self.threads()))
    }

    pub(super) fn cores(&mut self, row: &CoresRow) -> Result<(), Failure> {
        let Some(place) = self.place(Kind::Cpu)? else { return Ok(()) };
        let subjects = self.subjects(&row.sets, &row.ops, &[0])?;
        let points = (2 * self.numbers().len() - 1) * row.turns;
        self.begin(subjects.len() * points);
        for (params, op, _) in subjects {
            self.turn();
            let base = record_of_op(&place.device, params, op);
            if self.is_over() {
                self.skip_many(base, "time is up".into(), points)?;
                continue;
            }
            let named = describe(&base);
            self.every_core(row, &place, params, op).map_err(|why| why.of(named))?;
        }
        Ok(())
    }

    /// Starts the tool with so many threads and so many jobs for each of them.
    fn process(
        &self,
        question: &Question,
        place: &StudyDevice,
        threads: usize,
        each: usize,
    ) -> Result<Process, Failure> {
        let [threads, batch, seconds] =
            [threads.to_string(), (threads * each).to_string(), question.budget.as_secs_f64().to_string()];
        let (device, memory) = (place.device.id(), self.options.memory.map(|memory| memory.to_string()));
        let mut options = vec![
            ("--set", question.params.name),
            ("--op", op_name(question.op)),
            ("--rows", ROWS.name()),
            ("--threads", &threads),
            ("--batch", &batch),
            ("--seconds", &seconds),
            ("--device", &device),
        ];
        options.extend(self.options.isa.0.map(|isa| ("--isa", isa.name())));
        options.extend(memory.as_ref().map(|memory| ("--memory", &memory[..])));
        let options = options.into_iter().flat_map(|(option, value)| [option, value]);
        Process::start(["bench", "--turns", "--json", "--quiet"].into_iter().chain(options))
    }

    fn every_core(
        &mut self,
        row: &CoresRow,
        place: &StudyDevice,
        params: &'static Params,
        op: Op,
    ) -> Result<(), Failure> {
        let budget = self.args.budget(row.seconds);
        let (batch, rows) = (self.args.batch, Some(ROWS));
        let question = Question { params: SlhDsa::from(params), op, batch, cached_layers: 0, budget, rows };
        let one = machine::builder(self.options).devices(vec![(place.backend.clone(), place.device.index)]).threads(1);
        let one = one.build()?;
        let fill = || SlhDsa::filling(&question, &one, &Limits::measure(&one, self.options));
        // A call has as many jobs for each thread, whatever the number of threads.
        let each = batch.map_or_else(fill, Ok)?;
        let numbers = self.numbers();
        let most = numbers.last().copied().unwrap_or(1);
        let mut singles = (1..most).map(|_| self.process(&question, place, 1, each)).collect::<Result<Vec<_>, _>>()?;
        singles.iter_mut().try_for_each(Process::answer::<()>)?;
        let mut engines = Vec::new();
        for threads in &numbers {
            // One after the other: each measures the rates of a core.
            let mut process = self.process(&question, place, *threads, each)?;
            process.answer::<()>()?;
            engines.push(process);
        }
        let mut times = vec![(Vec::new(), Vec::new()); numbers.len()];
        for turn in 0..row.turns {
            // The records move the bar for the last turn.
            let step = u64::from(turn + 1 < row.turns);
            for (nth, (threads, (of_engine, of_processes))) in numbers.iter().zip(&mut times).enumerate() {
                of_engine.push(together(&mut [&mut engines[nth]])?);
                self.bar.inc(step);
                if nth > 0 {
                    let mut all: Vec<_> = engines.iter_mut().take(1).chain(&mut singles).take(*threads).collect();
                    of_processes.push(together(&mut all)?);
                    self.bar.inc(step);
                }
            }
        }
        drop(singles);
        for ((threads, (of_engine, of_processes)), mut process) in numbers.into_iter().zip(times).zip(engines) {
            process.turns = None;
            let measured: Record = process.answer()?;
            let record = |shape: &str, times: &[f64]| {
                let plural = if threads == 1 { shape.trim_end_matches('s') } else { shape };
                let record = measured.clone().timed(&Times::new(times.to_vec()));
                let limit_fraction = record.ideal_s.map(|ideal| ideal / record.median_s);
                let (shape, ops_per_s) = (Some(format!("{threads} {plural}")), record.batch as f64 / record.median_s);
                Record { shape, ops_per_s, limit_fraction, ..record }
            };
            let ratios: Vec<f64> = of_processes.iter().zip(&of_engine).map(|(all, one)| all / one).collect();
            let process_fraction = (threads > 1).then(|| Times::new(ratios).median());
            self.emit(Record { process_fraction, ..record("threads", &of_engine) })?;
            if threads > 1 {
                self.emit(Record { processes: Some(threads), ..record("processes", &of_processes) })?;
            }
        }
        Ok(())
    }
}

/// Has processes take a turn together. They do their jobs at the sum of their rates: gives the seconds of a call of each.
fn together(processes: &mut [&mut Process]) -> Result<f64, Failure> {
    processes.iter_mut().try_for_each(|process| process.begin())?;
    let rates =
        processes.iter_mut().map(|process| Ok(1.0 / process.answer::<f64>()?)).collect::<Result<Vec<_>, Failure>>()?;
    Ok(rates.len() as f64 / rates.iter().sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all_of_them() {
        assert_eq!([1, 2, 6, 8].map(doubling), [vec![1], vec![1, 2], vec![1, 2, 4, 6], vec![1, 2, 4, 8]]);
    }
}
