//! A third scheme: what a scheme costs, and that jobs, rows, sets, tickets, checks, faults and counters serve any. Nothing outside this folder
//! knows it.

#[path = "../common/mod.rs"]
mod common;
mod doubles;
mod program;
#[path = "../common/rows_suite.rs"]
#[allow(dead_code, reason = "the suite has tests that this scheme cannot run")]
mod rows_suite;
mod scheme;
mod wots;

use common::Mock;
use doubles::{double, on};
use hypergrove::rows::Column;
use hypergrove::{Engine, EngineBuilder, GenerateJob};
use rows_suite::{Tested, rows_suite};
use scheme::{Private, Public, Sign, Verify, Wots};
use std::borrow::Cow;
use wots::{N, SIGNATURE};

impl Tested for Wots {
    fn tested() -> Wots {
        Wots
    }
    fn double(count: u32, queue: u32) -> Mock {
        double(count, queue)
    }
    fn on(double: &Mock) -> EngineBuilder {
        on(double)
    }
    fn seeds(of: u8) -> [u8; N] {
        [of; N]
    }
    fn key(of: u8) -> Private {
        Private([of; N], wots::public(&[of; N]))
    }
    fn bytes(Private(seed, public): &Private) -> [Vec<u8>; 2] {
        [[*seed, *public].concat(), public.to_vec()]
    }
    fn is_sound(_: &Engine, key: &Private) -> bool {
        key.1 == wots::public(&key.0)
    }
    fn reference(key: &Private, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; SIGNATURE];
        wots::sign(&key.0, message, &mut signature);
        signature
    }
    fn column(messages: Column<'_>) -> Column<'_> {
        messages
    }
    fn message(message: &[u8]) -> Cow<'_, [u8]> {
        message.into()
    }
}

// Without `a_damaged_key_damages_its_rows_alone`: a key of WOTS is not checked before it signs.
rows_suite! { Wots:
    rows_are_signed_and_verified_as_jobs_are,
    keys_are_made_in_rows,
    progress_counts_rows_and_stops_a_call,
    each_bad_row_has_a_status_of_its_own,
    calls_that_do_not_fit_are_errors,
    devices_that_fail_lose_no_row_and_no_job,
    without_a_device_what_was_not_done_says_so,
    sets_of_rows_give_what_their_calls_give,
}

#[test]
fn jobs_and_their_counters() {
    let (engine, key) = (on(&double(1, 1)).build().unwrap(), Wots::key(3));
    let made = engine.generate(Wots).unwrap();
    assert!(Wots::is_sound(&engine, &made) && engine.generate(Wots).unwrap() != made);
    let (public, signature) = (Public(key.1), Wots::reference(&key, b"m"));
    let verdict = |message: &[u8], signature: &[u8]| engine.run(Verify::new(&public, message, signature)).unwrap();
    assert_eq!((verdict(b"m", &signature), verdict(b"n", &signature)), (true, false));
    assert!(!verdict(b"m", &signature[1..]), "another length is not valid");
    assert!(engine.stats().jobs >= 4 && engine.faults().is_empty());
}

#[test]
fn tickets() {
    let engine = on(&double(1, 2)).build().unwrap();
    let keys: Vec<Private> = (0..23).map(Wots::key).collect();
    let jobs = keys.iter().map(|key| Sign::new(key, vec![key.0[0], 1]));
    let tickets: Vec<_> = jobs.map(|job| engine.submit(job).unwrap()).collect();
    for (key, ticket) in keys.iter().zip(tickets) {
        assert_eq!(ticket.wait().unwrap(), Wots::reference(key, &[key.0[0], 1]));
    }
    let made = engine.submit(GenerateJob::from_seeds(Wots, [5; N])).unwrap();
    assert_eq!(made.wait().unwrap(), keys[5]);
    assert_eq!(engine.stats().tickets.submitted, 24);
}
