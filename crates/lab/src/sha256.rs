//! SHA-256 of equal messages, measured: `hypergrove bench --sha256`.

use crate::args::{Bench, MachineOptions, SECONDS};
use crate::failure::{Exit, Failure};
use crate::machine::{self, Limits};
use crate::printer::{Printer, percent, seconds, significant};
use crate::stopwatch::{Times, record_of, until_used_up, wrong};
use hypergrove::backend::{Axis, Hasher, Messages, Policy, Sha256Programs, THREADS};
use hypergrove::quote::Quote;
use hypergrove::{Backend, Cpu, Device, Work};
use hypergrove_engine::time_limit;
use hypergrove_records::record::{Record, SHA256_BLOCK, SHA256_BYTES, sha256_blocks};
use std::time::{Duration, Instant};

/// The parameters of a measurement.
#[derive(Clone)]
pub(crate) struct Point {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Messages; `None`: as many as keep the device busy.
    pub(crate) count: Option<usize>,
    /// Threads, launch shape, streams: what [`Hasher::space`] lists.
    pub(crate) policy: Policy,
    /// Time for the timed runs.
    pub(crate) budget: Duration,
    /// How long a wait for the device may take, at least.
    pub(crate) timeout: Duration,
}

/// Upper bounds of a device: how fast it hashes, and the bytes a second of the link to it, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    hashes: Limits,
    link: Option<f64>,
}

/// The axes of a policy for hashing on a device, and the bounds of the device, which are measured.
pub(crate) fn space_and_bounds(
    backend: &dyn Backend,
    device: &Device,
    options: &MachineOptions,
) -> Result<(Vec<Axis>, Bounds), Failure> {
    let mut hasher = backend.sha256_on(device)?.prepare(device, &Policy::default())?;
    let hashes = Limits::of(vec![(device.clone(), backend.rates(device))], options);
    Ok((hasher.space(), Bounds { hashes, link: hasher.link()? }))
}

/// Runs that are timed at least.
const LEAST_RUNS: usize = 5;
/// A wrong answer.
const OTHER_SUM: &str = "SHA-256 differs from the host's";
/// Messages that fill the largest devices several times over.
const MANY: usize = 1 << 20;
/// Bytes of a run, end to end.
const BYTES: usize = 1 << 30;
/// Bytes of a run in the device's memory: as many as 32-bit numbers of words tell apart.
const RESIDENT_BYTES: usize = (16 << 30) - 4;
/// Bytes for a thread of a fixed launch shape: a GPU's thread alone hashes about 50 MB a second.
const THREAD_BYTES: usize = 8 << 20;
/// Bytes for each of the host's threads.
const CORE_BYTES: usize = 16 << 20;

/// Measures one point on a device: end to end, and in the device's own memory where there is such a figure. A wrong sum is an error.
pub(crate) fn sha256_point(
    backend: &dyn Backend,
    device: &Device,
    bounds: Bounds,
    point: &Point,
) -> Result<Record, Failure> {
    let Point { size, ref policy, budget, timeout, .. } = *point;
    let hashers = backend.sha256_on(device)?;
    let mut hasher = hashers.prepare(device, policy)?;
    let longest = hashers.longest(device, policy)?;
    let most = most_bytes(device, policy);
    let count = point.count.unwrap_or((most.min(BYTES) / size.max(64)).clamp(1, 4 * MANY));
    // Some policies are very slow: the guess is what a slow device takes.
    let blocks = count * sha256_blocks(size);
    let threads = policy.get(THREADS).unwrap_or(1) as usize;
    let seconds = blocks.max(most / SHA256_BLOCK) as f64 / device.guessed_rate(threads);
    hasher.time_limit(time_limit(seconds, timeout));
    let mut bytes = vec![0; size * count];
    // A message tells its number where it is long enough, and no two pages are alike.
    for (number, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *word = (number as u32).wrapping_mul(0x9e37_79b9).to_le_bytes();
    }
    let messages = Messages::equal(&bytes, size)?;
    let want = wanted(messages)?;
    let mut digests = vec![[0; 32]; count];
    // The first run is not timed: memory is touched for the first time.
    hasher.run(messages, &mut digests)?;
    let times = until_used_up(LEAST_RUNS, budget, || {
        digests.fill([0; 32]);
        let start = Instant::now();
        hasher.run(messages, &mut digests)?;
        let time = start.elapsed();
        if digests == want { Ok(time) } else { Err(wrong(OTHER_SUM)) }
    })?;
    let resident = resident(&mut *hasher, (device, longest), messages, &want, most)?;
    // The machine's own rate gives the seconds of so many messages.
    let hashing = |count: usize| {
        let compressions = (count * sha256_blocks(size)) as f64;
        bounds.hashes.seconds(&Work { sha256: compressions, ..Work::default() }, threads)
    };
    // At the limit, messages go to a device with memory of its own over a link, sums come back concurrently, and it hashes meanwhile.
    let sending = bounds.link.map(|link| (count * size.max(SHA256_BYTES)) as f64 / link);
    let ideal = sending.into_iter().chain(hashing(count)).reduce(f64::max);
    Ok(Record {
        scheme: "SHA-256".into(),
        set: "SHA-256".into(),
        op: "hash".into(),
        batch: count,
        message_bytes: size,
        threads,
        policy: policy.0.iter().map(|(axis, value)| ((*axis).into(), *value)).collect(),
        ops_per_s: count as f64 / times.median(),
        ideal_s: ideal,
        limit_fraction: ideal.map(|ideal| ideal / times.median()),
        kernels_per_s: resident.map(|(count, seconds)| count as f64 / seconds),
        kernels_limit_fraction: resident.and_then(|(count, seconds)| Some(hashing(count)? / seconds)),
        link_bytes_per_s: bounds.link,
        rates: bounds.hashes.core.map(Into::into),
        limit: bounds.hashes.all(threads).map(Into::into),
        verified: true,
        ..record_of(device).timed(&times)
    })
}

/// Bytes of messages that a policy's threads are busy with for a while.
fn most_bytes(device: &Device, policy: &Policy) -> usize {
    let axis = |name| policy.get(name).unwrap_or(0) as usize;
    match (device.memory, axis("blocks") * axis("block")) {
        (0, _) => CORE_BYTES * axis(THREADS).max(1),
        (_, 0) => RESIDENT_BYTES,
        (_, threads) => THREAD_BYTES.saturating_mul(threads),
    }
}

/// The sums by the host, on all its threads.
fn wanted(messages: Messages<'_>) -> Result<Vec<[u8; 32]>, Failure> {
    let (cpu, mut want) = (Cpu::new(), vec![[0; 32]; messages.len()]);
    let device = cpu.devices()?.remove(0);
    let threads = Policy(vec![(THREADS, device.cores)]);
    cpu.prepare(&device, &threads)?.run(messages, &mut want)?;
    Ok(want)
}

/// Messages of a run in the device's memory, and the seconds of a run, by the median.
fn resident(
    hasher: &mut dyn Hasher,
    (device, longest): (&Device, usize),
    messages: Messages<'_>,
    want: &[[u8; 32]],
    most: usize,
) -> Result<Option<(usize, f64)>, Failure> {
    let size = messages.start(1.min(messages.len()));
    if device.memory == 0 || !size.is_multiple_of(4) || size > longest {
        return Ok(None);
    }
    // The number of messages that are uploaded once and copied: a chunk of those that ran end to end.
    let part = messages.len().min(longest / size.max(64)).max(1);
    let room = most.min(RESIDENT_BYTES).min((device.memory / 2) as usize);
    let copies = (MANY.div_ceil(part)).min(room / (part * size)).max(1);
    let mut digests = vec![[0; 32]; part];
    let times = hasher.resident(messages.range(0..part), copies, LEAST_RUNS, &mut digests)?;
    if digests != want[..part] {
        return Err(wrong(OTHER_SUM));
    }
    let median = |times: Vec<Duration>| Times::new(times.iter().map(Duration::as_secs_f64).collect()).median();
    Ok(times.map(|times| (part * copies, median(times))))
}

/// Every size with every policy that was asked for.
pub(crate) fn run(args: &Bench, options: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    if !args.json {
        let heads =
            ["device", "size", "messages", "median", "MB/s", "% of peak", "resident MB/s", "% of peak", "policy"];
        printer.line(row(heads))?;
    }
    for (backend, device) in machine::chosen(options)? {
        let (space, bounds) = space_and_bounds(&*backend, &device, options)?;
        let threads = match device.memory {
            0 => options.threads.map_or(device.cores, u32::from),
            _ => machine::host_threads(options) as u32,
        };
        for policy in policies(&args.axes, &space)? {
            let threads = [(THREADS, threads)];
            let all = if policy.iter().any(|(name, _)| *name == THREADS) { &[][..] } else { &threads };
            let policy = Policy([all, &policy].concat());
            for size in args.some(&args.sha256) {
                let (size, budget, timeout) = (size as usize, args.budget(SECONDS), options.device_timeout);
                let point = Point { size, count: args.batch, policy: policy.clone(), budget, timeout };
                let record = sha256_point(&*backend, &device, bounds, &point)?;
                if args.json {
                    printer.line(record.line())?;
                    continue;
                }
                let megabytes = |rate: f64| significant(rate * size as f64 / 1e6);
                let policy: Vec<_> = policy.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
                printer.line(row([
                    &device.id(),
                    &size.to_string(),
                    &record.batch.to_string(),
                    &seconds(record.median_s),
                    &megabytes(record.ops_per_s),
                    &record.limit_fraction.map_or("-".into(), percent),
                    &record.kernels_per_s.map_or("-".into(), megabytes),
                    &record.kernels_limit_fraction.map_or("-".into(), percent),
                    &policy.join(","),
                ]))?;
            }
        }
        machine::warn(&*backend, printer);
    }
    Ok(Exit::Good)
}

fn row([device, size, count, median, rate, of_peak, resident, resident_of_peak, policy]: [&str; 9]) -> String {
    let whole = format!("{device:<8} {size:>8} {count:>9} {median:>9} {rate:>10} {of_peak:>8}");
    format!("{whole} {resident:>14} {resident_of_peak:>8}  {policy}")
}

/// The policies that were asked for, the default alone if none was.
pub(crate) fn policies(requested: &[String], space: &[Axis]) -> Result<Vec<Vec<(&'static str, u32)>>, Failure> {
    if requested.is_empty() { Ok(vec![Vec::new()]) } else { requested.iter().map(|text| axes(text, space)).collect() }
}

/// `block=256,imad=0xfff` as a policy.
fn axes(text: &str, space: &[Axis]) -> Result<Vec<(&'static str, u32)>, Failure> {
    let known = || space.iter().map(|axis| axis.name).collect::<Vec<_>>().join(", ");
    text.split(',')
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = match value.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => value.parse(),
            };
            let axis = space.iter().find(|axis| axis.name == name);
            let axis = axis.ok_or_else(|| {
                let name = Quote::name(name, space.iter().map(|axis| axis.name));
                Failure::new(format!("there is no axis {name} here")).hint(format!("use {}", known()))
            })?;
            let number =
                number.map_err(|_| Failure::new(format!("{} is no value of the axis {name}", Quote::new(value))))?;
            Ok((axis.name, number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::options;
    use hypergrove::DEVICE_TIMEOUT;
    use hypergrove_testkit::mock::{Capability, Mock, mock};

    #[test]
    fn a_device_that_hangs_ends_the_measurement() {
        let hung = Mock { name: "hung", has: &[Capability::Sha256], ..mock(1, 1) };
        let hung = hung
            .answering(|call| call.fails(&format!("no answer in {:?}", call.limit.expect("nobody waits for ever"))));
        let device = hung.devices().unwrap().remove(0);
        let bounds = Bounds { hashes: Limits::of(Vec::new(), &options(&[])), link: None };
        for (timeout, limit) in [(DEVICE_TIMEOUT, "60s"), (Duration::ZERO, "2.62144s")] {
            let point = Point { size: 64, count: Some(10), policy: Policy::default(), budget: Duration::ZERO, timeout };
            let why = sha256_point(&hung, &device, bounds, &point).err().map(|why| why.message).unwrap_or_default();
            assert!(why.starts_with(&format!("hung:0 failed: no answer in {limit}")), "{why}");
        }
    }
}
