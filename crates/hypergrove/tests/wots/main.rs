//! A third scheme: what a scheme costs, and that jobs, rows, sets, tickets, checks, faults and counters serve any. Nothing outside this folder
//! knows it.

mod program;
mod scheme;
mod script;
mod wots;

use hypergrove::rows::{Column, RowSet, RowSigningKeys, RowStatus};
use hypergrove::scheme::CallColumns;
use hypergrove::{Engine, Error, GenerateJob};
use scheme::{Keys, Private, Public, Rows, Sign, Signatures, Verify, Wots};
use script::{COMPUTES, FAILS, LIES, on};
use std::ops::ControlFlow;
use wots::{N, SIGNATURE};

const JOBS: usize = 23;

fn engine(devices: &[u32]) -> Engine {
    on(devices).build().unwrap()
}

fn seeds() -> Vec<[u8; N]> {
    (0..JOBS as u8).map(|i| [i; N]).collect()
}

fn key(seed: [u8; N]) -> Private {
    Private(seed, wots::public(&seed))
}

fn keys() -> Vec<Private> {
    seeds().into_iter().map(key).collect()
}

/// A message of two bytes for each job, and the right signatures.
fn messages() -> Vec<u8> {
    (0..2 * JOBS as u8).collect()
}

fn signatures(keys: &[Private]) -> Vec<u8> {
    let (mut all, messages) = (vec![0; JOBS * SIGNATURE], messages());
    let each = keys.iter().zip(messages.chunks(2)).zip(all.chunks_mut(SIGNATURE));
    each.for_each(|((key, message), to)| wots::sign(&key.0, message, to));
    all
}

#[test]
fn jobs_and_their_counters() {
    let (engine, keys, messages) = (engine(&[COMPUTES]), keys(), messages());
    assert_eq!(engine.from_seeds(Wots, &seeds()).unwrap(), keys);
    assert_eq!(engine.generate(Wots).unwrap(), key([7; N]));
    let right = signatures(&keys);
    let jobs = || keys.iter().zip(messages.chunks(2)).map(|(key, message)| Sign::new(key, message));
    let made = engine.sign_batch_to_vec(jobs()).unwrap();
    assert!(made.iter().zip(right.chunks(SIGNATURE)).all(|(made, right)| made.as_deref() == Ok(right)));
    let mut indices = Vec::new();
    engine.sign_batch(jobs(), |index, signature| indices.push((index, signature.is_ok()))).unwrap();
    assert_eq!(indices, (0..JOBS).map(|index| (index, true)).collect::<Vec<_>>());
    let public = Public(keys[3].1);
    let signature = &right[3 * SIGNATURE..][..SIGNATURE];
    let verdict = |message: &[u8], signature: &[u8]| engine.run(Verify::new(&public, message, signature)).unwrap();
    assert_eq!((verdict(&[6, 7], signature), verdict(&[6, 8], signature)), (true, false));
    assert!(!verdict(&[6, 7], &signature[1..]), "another length is not valid");
    let stats = engine.stats();
    assert!(stats.jobs as usize >= 3 * JOBS, "{stats:?}");
    assert!(engine.faults().is_empty());
}

#[test]
fn rows_sets_and_tickets() {
    let (engine, keys, messages) = (engine(&[COMPUTES]), keys(), messages());
    let right = signatures(&keys);
    let of: Vec<u32> = (0..JOBS as u32).collect();
    let (mut out, mut statuses) = (vec![0; JOBS * SIGNATURE], [RowStatus::default(); JOBS]);
    let (keys_of_rows, column) = (RowSigningKeys::Table { keys: &keys, of: &of }, Column::packed(&messages, 2));
    let rows = Rows { keys: keys_of_rows, mode: (), messages: column, randomizer: () };
    engine.sign_rows(&rows, &mut out, &mut statuses).unwrap();
    assert_eq!((&out, statuses), (&right, [RowStatus::Signed; JOBS]));
    let (mut private, mut public) = (vec![0; JOBS * 2 * N], vec![0; JOBS * N]);
    engine.keygen_rows_from_seeds(Wots, seeds().as_flattened(), &mut private, Some(&mut public)).unwrap();
    assert!(public.chunks(N).zip(&keys).all(|(public, key)| public == key.1));
    out[2 * SIGNATURE] ^= 1;
    let rows = Signatures {
        keys: Keys::Encoded { params: Wots, keys: Column::packed(&public, N) },
        mode: (),
        messages: column,
        signatures: Column::packed(&out, SIGNATURE),
    };
    engine.verify_rows(&rows, &mut statuses).unwrap();
    let valid = |row| if row == 2 { RowStatus::Invalid } else { RowStatus::Valid };
    assert!(statuses.iter().enumerate().all(|(row, status)| *status == valid(row)));
    assert!(engine.verify_rows(&rows, &mut statuses[1..]).is_err(), "columns do not fit");
    // Tickets of jobs, and of a set of rows.
    let jobs = keys.iter().zip(messages.chunks(2)).map(|(key, message)| Sign::new(key, message.to_vec()));
    let tickets: Vec<_> = jobs.map(|job| engine.submit(job).unwrap()).collect();
    for (ticket, right) in tickets.into_iter().zip(right.chunks(SIGNATURE)) {
        assert_eq!(ticket.wait().unwrap(), right);
    }
    let made = engine.submit(GenerateJob::from_seeds(Wots, [5; N])).unwrap();
    assert_eq!(made.wait().unwrap(), key([5; N]));
    let set = RowSet::new((keys[0].clone(), vec![0; SIGNATURE], [RowStatus::default()]), |it| CallColumns::Sign {
        rows: Rows { keys: RowSigningKeys::One(&it.0), mode: (), messages: Column::packed(&[0, 1], 2), randomizer: () },
        signatures: &mut it.1,
        statuses: &mut it.2,
    });
    let (_, signed, status) = engine.submit(set).unwrap().wait().unwrap();
    assert_eq!((&signed[..], status), (&right[..SIGNATURE], [RowStatus::Signed]));
    assert_eq!(engine.stats().tickets.submitted as usize, JOBS + 2);
}

#[test]
fn faults_are_found_and_their_work_is_done_again() {
    let (keys, messages) = (keys(), messages());
    let right = signatures(&keys);
    let jobs = || keys.iter().zip(messages.chunks(2)).map(|(key, message)| Sign::new(key, message));
    for (devices, builder) in [(FAILS, on(&[FAILS, COMPUTES])), (LIES, on(&[LIES, COMPUTES]).verify_signatures(true))] {
        let engine = builder.build().unwrap();
        let made = engine.sign_batch_to_vec(jobs()).unwrap();
        assert!(made.iter().zip(right.chunks(SIGNATURE)).all(|(made, right)| made.as_deref() == Ok(right)));
        let faults = engine.faults();
        assert!(!faults.is_empty() && faults.iter().all(|fault| fault.device.index == devices), "{faults:?}");
        assert_eq!(engine.devices().len(), 1);
    }
    let last = engine(&[FAILS]);
    assert!(matches!(last.sign_batch_to_vec(jobs()), Err(Error::Device { .. })));
    assert!(matches!(last.run(Sign::new(&keys[0], b"m")), Err(Error::Device { .. })));
    // A right result is right twice.
    let twice = on(&[COMPUTES]).redundant(true).build().unwrap();
    assert!(twice.sign_batch_to_vec(jobs()).unwrap().iter().all(Result::is_ok));
    let (mut out, mut statuses) = (vec![1; JOBS * SIGNATURE], [RowStatus::Signed; JOBS]);
    let rows =
        Rows { keys: RowSigningKeys::One(&keys[0]), mode: (), messages: Column::packed(&messages, 2), randomizer: () };
    assert!(last.sign_rows(&rows, &mut out, &mut statuses).is_err());
    assert!(out.iter().all(|byte| *byte == 0) && statuses == [RowStatus::NotComputed; JOBS]);
    engine(&[COMPUTES]).sign_rows_with_progress(&rows, &mut out, &mut statuses, |_| ControlFlow::Break(())).unwrap();
    assert!(statuses.contains(&RowStatus::Signed));
}
