//! Computes results of jobs of one group: once, or in two places of a device, whose results are compared.
//!
//! How a range of jobs is computed follows from facts that are known before: what the group's programs do by themselves, and the options of the work.
//! Two outcomes follow from no fact: a device's memory does not suffice, or a key turns out to be damaged. Only this module computes a range again
//! because of them.

use super::{Failed, Place, Run};
use crate::scheme::bucket;
use crate::{Error, Places};
use std::ops::Range;
use zeroize::{Zeroize, optimization_barrier};

/// The fewest jobs whose results one thread compares, copies or makes objects of: for this many, handing them to the thread costs little.
pub const RESULTS_OF_A_THREAD: usize = 64;

/// Memory for the results of jobs, in their order, in one part or several. Each part has room for whole results.
pub type Parts<'p, 'o> = &'p mut [&'o mut [u8]];

/// The outcome of a range of jobs.
pub enum Computed {
    /// The results are there, but for those of jobs that are to blame themselves. The memory of these jobs' results is left as it was.
    All(Failed),
    /// Keys of these jobs turned out to be damaged when the others' results were to leave the device. No results are there. The range is to be
    /// computed again without these jobs.
    Damaged(Failed),
}

/// Computes a range of jobs, without those whose errors are known already, into memory for all of the range. Errors are numbered from the range's
/// start. Any other error concerns all jobs.
pub type Compute<'w> = &'w (dyn Fn(&Run<'_>, Range<usize>, &Failed, Parts<'_, '_>) -> Result<Computed, Error> + Sync);
/// Checks a range of results. Returns the jobs that are to blame.
type Check<'w> = &'w (dyn Fn(&Run<'_>, Range<usize>, &Failed, &[u8]) -> Result<Failed, Error> + Sync);

/// The results of jobs of one group.
pub struct Output<'w> {
    /// The number of jobs.
    pub jobs: usize,
    /// Bytes of a result.
    pub size: usize,
    /// The result, as errors name it.
    pub what: &'w str,
    /// The bytes of a result that the host may compute in place of the device: R of a signature.
    pub by_host: Range<usize>,
    /// Whether nobody but the engine sees the memory for the results before the call has ended.
    pub is_private: bool,
    /// Computes results.
    pub compute: Compute<'w>,
    /// Checks results once more, if the engine does so.
    pub check: Option<Check<'w>>,
}

/// Computes results into `out`, and wipes the results of jobs that failed. Redundant work computes them in two places and compares them. After an
/// error, `out` holds nothing of these jobs. `memory` is kept between chunks.
pub fn compute(run: &Run<'_>, output: &Output<'_>, out: Parts<'_, '_>, memory: &mut Vec<u8>) -> Result<Failed, Error> {
    let (Output { jobs, size, .. }, Run { place, facts }) = (output, run);
    let mut withheld = Withheld { out, memory, is_wiped: true };
    let Withheld { out, memory, is_wiped } = &mut withheld;
    let (mut start, mut most, mut has_room, mut all) = (0, *jobs, true, Failed::new());
    while start < *jobs {
        let range = start..*jobs.min(&(start + most));
        let plan = output.plan(run, range.len(), out.len(), has_room);
        let mut parts = parts_of(out, range.start * size..range.end * size);
        let done = if plan.is_staged {
            let staged = room(memory, range.len() * size);
            range_of(run, output, plan, range.clone(), &mut [&mut *staged]).and_then(|failed| {
                // Results reach the caller only now, after the checks have passed.
                let mut left = &*staged;
                let copies = parts.iter_mut().map(|part| {
                    let from = left.split_off(..part.len()).expect("results for all parts");
                    (&mut **part, from)
                });
                place.each_of(copies.collect(), &|(to, from): (&mut [u8], &[u8])| {
                    to.copy_from_slice(from);
                    Ok(())
                })?;
                Ok(failed)
            })
        } else {
            range_of(run, output, plan, range.clone(), &mut parts)
        };
        match done {
            Ok(failed) => {
                all.extend(failed.into_iter().map(|(job, why)| (range.start + job, why)));
                start = range.end;
            }
            // The host compares, then.
            Err(Error::OutOfMemory { .. }) if plan.places == Places::Both => has_room = false,
            // Programs that are not sized wait for memory by themselves.
            Err(Error::OutOfMemory { .. }) if range.len() > 1 && place.worker.has_memory() && facts.habits.is_sized => {
                facts.limit(bucket(range.len()) / 2);
                most = facts.most();
            }
            Err(why) => return Err(why),
        }
    }
    *is_wiped = false;
    if place.scheduler.work.checks.redundant {
        place.scheduler.counters.twice.add(*jobs as u64);
    }
    Ok(all)
}

/// Memory with results that nobody may see before they have passed their checks. It is wiped after a panic, too.
struct Withheld<'p, 'o, 'm> {
    out: Parts<'p, 'o>,
    memory: &'m mut Vec<u8>,
    is_wiped: bool,
}

impl Drop for Withheld<'_, '_, '_> {
    fn drop(&mut self) {
        if self.is_wiped {
            self.out.iter_mut().for_each(|part| part.zeroize());
            self.memory.zeroize();
        }
    }
}

/// Secret bytes that are wiped on drop: with the widest stores there are, because `zeroize` would write byte by byte.
pub struct Wiped(pub Vec<u8>);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.fill(0);
        optimization_barrier(&self.0[..]);
    }
}

/// Returns this many bytes of memory that is kept between chunks. They may hold an earlier chunk's output, which programs overwrite.
pub fn room(memory: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if memory.len() < bytes {
        // The operating system provides zeros, so nothing is written here.
        *memory = vec![0; bytes];
    }
    &mut memory[..bytes]
}

/// How a range is computed.
#[derive(Clone, Copy)]
struct Plan {
    /// Whether the results go to memory of their own until all checks have passed.
    is_staged: bool,
    /// Where the device computes first.
    places: Places,
    /// Whether the host compares the results with those from other places.
    is_compared: bool,
}

impl Output<'_> {
    /// How so many jobs are computed into so many parts of memory. `has_room` says that the device is not known to lack the memory for both results.
    fn plan(&self, Run { place, facts }: &Run<'_>, jobs: usize, parts: usize, has_room: bool) -> Plan {
        let is_twice = place.scheduler.work.checks.redundant;
        let compares = is_twice && has_room && self.check.is_none() && jobs >= facts.abilities.compares;
        let is_compared = is_twice && !compares;
        let leaves_early = is_compared || self.check.is_some() || !facts.abilities.holds;
        let is_staged = !self.is_private && leaves_early || self.check.is_some() && parts > 1;
        Plan { is_staged, places: if compares { Places::Both } else { Places::Usual }, is_compared }
    }
}

/// Computes one range by its plan, without jobs whose keys turn out to be damaged. Wipes the results of jobs that failed.
fn range_of(
    run: &Run<'_>,
    output: &Output<'_>,
    plan: Plan,
    range: Range<usize>,
    parts: Parts<'_, '_>,
) -> Result<Failed, Error> {
    let place = Place { places: plan.places, ..run.place };
    let mut left_out = Failed::new();
    let mut failed = loop {
        match (output.compute)(&Run { place, facts: run.facts }, range.clone(), &left_out, parts)? {
            Computed::All(failed) => break failed,
            Computed::Damaged(failed) if failed.keys().all(|job| left_out.contains_key(job)) => {
                let what = "it found damaged keys of jobs that it did not compute".into();
                return Err(Error::Inconsistent { device: place.worker.device().id(), what });
            }
            Computed::Damaged(failed) => left_out.extend(failed),
        }
    };
    failed.extend(left_out);
    if plan.is_compared {
        // The second computation begins with the keys and messages, and makes all that follows from them anew.
        let place = Place { places: Places::Other, ..run.place };
        // The results may be private keys.
        let mut second = Wiped(vec![0; range.len() * output.size]);
        let again = (output.compute)(&Run { place, facts: run.facts }, range.clone(), &failed, &mut [&mut second.0])?;
        let (Computed::All(again) | Computed::Damaged(again)) = again;
        failed.extend(again);
        compare(&place, output, &*parts, &second.0, &failed)?;
    }
    if let Some(check) = output.check {
        let [made] = &*parts else { unreachable!("results that are checked are staged, or in one part") };
        let more = check(&Run { place: run.place, facts: run.facts }, range, &failed, made)?;
        failed.extend(more);
    }
    if !failed.is_empty() {
        let rows = parts.iter_mut().flat_map(|part| part.chunks_exact_mut(output.size)).enumerate();
        rows.filter(|(job, _)| failed.contains_key(job)).for_each(|(_, row)| row.zeroize());
    }
    Ok(failed)
}

/// The parts of memory for a range of bytes.
fn parts_of<'p>(out: &'p mut [&mut [u8]], bytes: Range<usize>) -> Vec<&'p mut [u8]> {
    let mut start = 0;
    let of_range = out.iter_mut().filter_map(|part| {
        let here = bytes.start.max(start) - start..bytes.end.min(start + part.len()).saturating_sub(start);
        start += part.len();
        part.get_mut(here).filter(|part| !part.is_empty())
    });
    of_range.collect()
}

/// Fails if a job that did not fail has other bytes in its second result. The host is blamed for the bytes that it computes, else the device.
fn compare(
    place: &Place<'_>,
    output: &Output<'_>,
    first: &[&mut [u8]],
    second: &[u8],
    failed: &Failed,
) -> Result<(), Error> {
    let (size, by_host) = (output.size, &output.by_host);
    let mut jobs = 0;
    let ends: Vec<usize> = first
        .iter()
        .map(|part| {
            jobs += part.len() / size;
            jobs
        })
        .collect();
    let first = |job: usize| {
        let part = ends.partition_point(|end| *end <= job);
        let from_end = (ends[part] - job) * size;
        &first[part][first[part].len() - from_end..][..size]
    };
    let second = |job: usize| &second[job * size..][..size];
    let differs = |job: usize| first(job) != second(job) && !failed.contains_key(&job);
    let Some(job) = place.find(jobs, RESULTS_OF_A_THREAD, &differs) else { return Ok(()) };
    Err(match first(job)[by_host.clone()] == second(job)[by_host.clone()] {
        true => Error::differs(place.worker.device().id(), output.what, job),
        false => Error::differs("host".into(), "R", job),
    })
}
