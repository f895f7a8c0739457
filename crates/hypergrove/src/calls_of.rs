//! The calls of every scheme: what [`Calls`] points to.

use crate::calls::{Calls, submit};
use crate::jobs::GenerateJob;
use crate::rows::run_calls;
use crate::run::{Sign, Verify, one_of};
use crate::scheme::Scheme;

/// Runs the jobs of an iterator.
macro_rules! all {
    ($job:ident) => {
        |scheduler, jobs, sink, may_block| {
            let mut jobs = jobs.map($job::from);
            match may_block && scheduler.pulls_ahead(jobs.size_hint().1) {
                true => scheduler.run_blocking(&mut jobs, sink),
                false => scheduler.run(None, None, &mut jobs, sink),
            }
        }
    };
}

impl<S: Scheme> Calls<S> {
    /// The calls of the scheme `S`.
    pub const OF: Calls<S> = Calls {
        sign: |scheduler, job| scheduler.one(None, Sign::from(job)),
        verify: |scheduler, job| scheduler.one(None, Verify::from(job)),
        generate: |scheduler, job| scheduler.one(None, job),
        sign_all: all!(Sign),
        verify_all: all!(Verify),
        generate_all: all!(GenerateJob),
        submit_sign: |queue, scheduler, job| {
            let size = one_of(S::size_of_input(job.mode, &job.message));
            submit(queue, scheduler, job, size, Sign::owned)
        },
        submit_verify: |queue, scheduler, job| {
            let size = one_of(S::size_of_input(job.mode, &job.message) + job.signature.len());
            submit(queue, scheduler, job, size, Verify::owned)
        },
        submit_generate: |queue, scheduler, job| {
            let size = one_of(job.size());
            submit(queue, scheduler, job, size, |job| job)
        },
        rows: run_calls,
    };
}
