//! Traces: events nest, lie within their call, and count its jobs. An engine without an observer has none.

use crate::common::{OnMock, P, PURE, job, key, message, mock};
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::trace::{Event, Step};
use hypergrove::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Instant;

type Events = Arc<Mutex<Vec<Event>>>;

/// An engine, and its events so far.
fn traced(builder: EngineBuilder) -> (Engine, Events) {
    let events = Events::default();
    let kept = events.clone();
    let observed = builder.observer(Arc::new(move |event| kept.lock().unwrap().push(event.clone())));
    (observed.build().unwrap(), events)
}

fn cpu(threads: usize) -> EngineBuilder {
    Engine::builder().backend(Arc::new(Cpu::new())).threads(threads)
}

fn of(events: &[Event], step: Step) -> impl Iterator<Item = &Event> {
    events.iter().filter(move |event| event.step == step)
}

fn jobs(events: &[Event], step: Step) -> usize {
    of(events, step).map(|event| event.jobs).sum()
}

/// Two steps of a thread follow each other, or one lies within the other.
fn nest(events: &[Event]) {
    let mut threads: Vec<ThreadId> = events.iter().map(|event| event.thread.id()).collect();
    threads.dedup();
    for thread in threads {
        let mut all: Vec<_> = events.iter().filter(|event| event.thread.id() == thread).collect();
        all.sort_by_key(|event| (event.start, Reverse(event.length)));
        let mut open: Vec<Instant> = Vec::new();
        for event in all {
            let end = event.start + event.length;
            open.retain(|outer| *outer > event.start);
            assert!(open.iter().all(|outer| end <= *outer), "{event:?}");
            open.push(end);
        }
    }
}

/// The events of a call with so many jobs.
fn check(what: &str, events: &Events, count: usize, call: impl FnOnce()) -> Vec<Event> {
    events.lock().unwrap().clear();
    let before = Instant::now();
    call();
    let after = Instant::now();
    let events = events.lock().unwrap().clone();
    nest(&events);
    let calls: Vec<&Event> = of(&events, Step::Call).collect();
    let [whole] = &calls[..] else { panic!("{what}: {} calls", calls.len()) };
    let end = whole.start + whole.length;
    assert!((whole.chunk, whole.jobs) == (None, count) && before <= whole.start && end <= after, "{what}: {whole:?}");
    assert_eq!(whole.thread.id(), std::thread::current().id(), "{what}");
    let lies_within = |event: &Event| event.start >= whole.start && event.start + event.length <= end;
    assert!(events.iter().all(lies_within), "{what}: {events:?}");
    assert_eq!(jobs(&events, Step::Chunk), count, "{what}");
    let numbers: BTreeSet<_> = of(&events, Step::Chunk).map(|chunk| chunk.chunk).collect();
    assert!(!numbers.contains(&None) && numbers.len() == of(&events, Step::Chunk).count(), "{what}: {numbers:?}");
    let is_of_chunk = |event: &Event| event.chunk.is_none() || numbers.contains(&event.chunk);
    assert!(events.iter().all(is_of_chunk), "{what}");
    events
}

#[test]
fn events_of_every_kind_of_call() {
    let key = key(1);
    let texts: Vec<Vec<u8>> = (0..300).map(message).collect();
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let engines = [
        ("one thread", cpu(1), true, 1),
        ("two threads", cpu(2), true, 1),
        ("redundant", cpu(2).redundant(true), true, 2),
        ("devices", mock(2, 2).builder(), false, 1),
    ];
    for (what, builder, is_cpu, times) in engines {
        let (engine, events) = traced(builder);
        let groups = |events: &[Event], count: usize| {
            let is_right = !is_cpu || jobs(events, Step::Group) == times * count;
            assert!(is_right, "{what}: {} of {count} jobs in groups", jobs(events, Step::Group));
            assert_eq!(jobs(events, Step::Program), times * count, "{what}");
        };
        let (mut signatures, mut statuses) = (vec![0; 300 * P.sig_bytes()], vec![RowStatus::default(); 300]);
        let messages = Column::Slices(&slices);
        let rows =
            SignRows { keys: RowSigningKeys::One(&key), mode: PURE, messages, randomizer: Randomizer::Deterministic };
        let signed = check(what, &events, 300, || engine.sign_rows(&rows, &mut signatures, &mut statuses).unwrap());
        groups(&signed, 300);
        let public = key.verifying_key();
        let (keys, column) = (RowVerifyingKeys::One(&public), Column::packed(&signatures, P.sig_bytes()));
        let rows = VerifyRows { keys, mode: PURE, messages, signatures: column };
        let verified = check(what, &events, 300, || engine.verify_rows(&rows, &mut statuses).unwrap());
        groups(&verified, 300);
        for events in [&signed, &verified] {
            let steps = [Step::ReadRows, Step::HandOut].map(|step| jobs(events, step));
            assert_eq!(steps, [300, 300], "{what}");
        }
        assert_eq!(jobs(&signed, Step::HashMessages), times * 300, "{what}");
        let mut private = vec![0; 40 * P.sk_bytes()];
        let made = check(what, &events, 40, || engine.keygen_rows(P, &mut private, None).unwrap());
        groups(&made, 40);
        let listed = check(what, &events, 70, || {
            engine.sign_batch((0..70).map(|i| job(&key, i)), |_, signature| drop(signature.unwrap())).unwrap();
        });
        groups(&listed, 70);
        let alone = check(what, &events, 1, || {
            engine.sign(&key, PURE, b"alone", Randomizer::Deterministic).unwrap();
        });
        groups(&alone, 1);
    }
}

/// Steps of the calling thread fill its call: whatever takes time has a name.
#[test]
fn steps_cover_the_call() {
    for threads in [1, 2] {
        let (engine, events) = traced(cpu(threads));
        let key = engine.generate(&SLH_DSA_SHA2_128F).unwrap();
        let texts: Vec<Vec<u8>> = (0..40).map(message).collect();
        let sign = || {
            let jobs = texts.iter().map(|text| SignJob::new(&key, &text[..]).deterministic());
            engine.sign_batch(jobs, |_, signature| drop(signature.unwrap())).unwrap();
        };
        sign();
        let events = check("40 signatures", &events, 40, sign);
        let whole = of(&events, Step::Call).next().unwrap();
        let steps = [Step::WaitForPermit, Step::WaitForChunks, Step::WaitForJobs, Step::Chunk, Step::HandOut];
        let is_here = |event: &&Event| event.thread.id() == whole.thread.id() && steps.contains(&event.step);
        let covered: f64 = events.iter().filter(is_here).map(|event| event.length.as_secs_f64()).sum();
        assert!(covered >= 0.5 * whole.length.as_secs_f64(), "{threads} threads: {covered} s of {whole:?}");
        let workers: BTreeSet<_> = of(&events, Step::Group).map(|group| format!("{:?}", group.thread.id())).collect();
        assert!(workers.len() <= threads, "{workers:?}");
    }
}

#[test]
fn an_engine_without_an_observer_has_no_events() {
    let (engine, events) = traced(cpu(2));
    let (other, key) = (cpu(2).build().unwrap(), key(1));
    let seen = check("with another engine", &events, 20, || {
        let jobs = (0..20).map(|i| job(&key, i));
        engine
            .sign_batch(jobs, |i, signature| {
                let again = other.sign_batch_to_vec([job(&key, i), job(&key, i + 1)]).unwrap();
                assert_eq!(again.into_iter().next().unwrap().unwrap(), signature.unwrap());
                other.verify(&key.verifying_key(), PURE, b"", b"").unwrap();
            })
            .unwrap();
    });
    assert_eq!((jobs(&seen, Step::Group), jobs(&seen, Step::HandOut)), (20, 20));
}

#[test]
fn tickets_have_chunks() {
    let (engine, events) = traced(cpu(2));
    let key = Arc::new(key(1));
    let tickets: Vec<_> =
        (0..50).map(|i| engine.submit(SignJob::new(key.clone(), message(i)).deterministic()).unwrap()).collect();
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    drop(engine);
    let events = events.lock().unwrap();
    nest(&events);
    assert_eq!((jobs(&events, Step::Chunk), jobs(&events, Step::Group)), (50, 50));
}
