//! The output of jobs of one group. A redundant engine computes it twice and compares. If a device's memory does not suffice, the jobs run in parts.

use crate::Op;
use crate::scheme::Failed;
use hypergrove_engine::Error;
use hypergrove_engine::planner::bucket;
use hypergrove_engine::scheduler::{Place, Run};
use std::ops::Range;
use zeroize::Zeroize;

/// The fewest jobs whose outputs one thread compares.
const SHARE: usize = 64;

/// Computes a range of jobs into their output. A job that is to blame itself fails alone; an error is that of all jobs.
pub(crate) type Compute<'w> = &'w dyn Fn(&Run<'_>, Range<usize>, &mut [u8]) -> Result<Failed, Error>;

/// Computes the output of so many jobs, and wipes what a failed run or job left there. A redundant engine computes it twice and compares both. If
/// the device's memory does not suffice for all jobs, they run in parts. `r` is the range of R in a job's output, if it has one.
pub(crate) fn output(
    run: &Run<'_>,
    (op, jobs, r): (Op, usize, Range<usize>),
    compute: Compute<'_>,
    out: &mut [u8],
) -> Result<Failed, Error> {
    let (Run { place, facts }, size) = (*run, out.len() / jobs.max(1));
    let (mut start, mut most, mut all) = (0, jobs, Failed::new());
    while start < jobs {
        let part = start..jobs.min(start + most);
        let first = &mut out[part.start * size..part.end * size];
        let done = compute(run, part.clone(), first).and_then(|mut failed| {
            // The second computation begins with the keys and messages, and makes all that follows from them anew.
            if let Some(place) = place.second() {
                let mut second = vec![0; first.len()];
                let again = compute(&Run { place, facts }, part.clone(), &mut second);
                let compared = again.and_then(|again| {
                    failed.extend(again);
                    compare(&place, (op, size, r.clone()), (first, &second), &failed)
                });
                second.zeroize();
                compared?;
            }
            Ok(failed)
        });
        match done {
            Ok(failed) => {
                failed.keys().for_each(|job| first[job * size..(job + 1) * size].zeroize());
                all.extend(failed.into_iter().map(|(job, why)| (part.start + job, why)));
                start = part.end;
            }
            // Programs that are not sized wait for memory by themselves.
            Err(Error::OutOfMemory { .. }) if part.len() > 1 && place.worker.has_memory() && facts.habits.is_sized => {
                first.zeroize();
                facts.limit(bucket(part.len()) / 2);
                most = facts.most();
            }
            Err(why) => {
                out.zeroize();
                return Err(why);
            }
        }
    }
    Ok(all)
}

/// Fails if a job that did not fail gave other bytes in its second computation. The host is blamed for R, else the device.
fn compare(
    place: &Place<'_>,
    (op, size, r): (Op, usize, Range<usize>),
    (first, second): (&[u8], &[u8]),
    failed: &Failed,
) -> Result<(), Error> {
    let of = |job: usize| job * size..(job + 1) * size;
    let differs = |job: usize| first[of(job)] != second[of(job)] && !failed.contains_key(&job);
    let Some(job) = place.find(first.len() / size, SHARE, &differs) else { return Ok(()) };
    Err(match first[of(job)][r.clone()] == second[of(job)][r] {
        true => Error::differs(place.worker.device().id(), &format!("the output of {op:?}"), job),
        false => Error::differs("host".into(), "R", job),
    })
}
