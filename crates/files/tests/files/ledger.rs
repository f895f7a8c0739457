//! Ledgers of keys of limited sets: no number twice, whatever is written in part, put back or done concurrently.

use hypergrove::{SLH_DSA_SHA2_128_24, SLH_DSA_SHA2_128F, VerifyingKey, known_sets};
use hypergrove_files::ledger::{Blocks, FileLedger, Ledger, LedgerError, LedgerState, MemoryLedger, witnessed};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

const LIMIT: u64 = 1 << 24;

fn key(byte: u8) -> VerifyingKey {
    VerifyingKey::from_bytes(&SLH_DSA_SHA2_128_24, &[byte; 32]).unwrap()
}

/// A new ledger of `key(7)` in a directory of its own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let directory = std::env::temp_dir().join(format!("hypergrove-ledger-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let place = Place(directory);
        FileLedger::create(&place.ledger(), &LedgerState::new(&key(7)).unwrap()).unwrap();
        place
    }
    fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }
    fn witness(&self) -> PathBuf {
        self.0.join("notes/witness")
    }
    fn open(&self) -> FileLedger {
        FileLedger::open(&self.ledger(), key(7).fingerprint()).unwrap()
    }
    fn open_with_witness(&self) -> Result<FileLedger, LedgerError> {
        let opened = FileLedger::open_with_witness(&self.ledger(), key(7).fingerprint(), |_| Some(self.witness()));
        opened.map(|(ledger, _)| ledger)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn limited_sets_are_those_of_the_draft() {
    let limited: Vec<&str> = known_sets().filter(|p| p.signature_limit().is_some()).map(|p| p.name).collect();
    assert_eq!(limited.len(), 6, "{limited:?}");
    assert!(limited.iter().all(|name| name.starts_with("SLH-DSA-SH") && name.ends_with("-24")));
    let other = VerifyingKey::from_bytes(&SLH_DSA_SHA2_128F, &[7; 32]).unwrap();
    assert!(matches!(LedgerState::new(&other), Err(LedgerError::Unlimited { set: "SLH-DSA-SHA2-128f" })));
    assert_eq!(LedgerState::new(&key(7)).unwrap().left(), LIMIT);
}

#[test]
fn numbers_end_at_the_limit() {
    let place = Place::new("limit");
    let state = LedgerState::new(&key(7)).unwrap();
    let memory = MemoryLedger::new(state);
    let file = place.open();
    for ledger in [&memory as &dyn Ledger, &file] {
        assert_eq!(ledger.reserve(10).unwrap().numbers, 0..10);
        assert_eq!(ledger.reserve(LIMIT / 2).unwrap().state.percent(), 50);
        let state = ledger.state().unwrap();
        assert_eq!((state.used(), state.left(), state.generation), (LIMIT / 2 + 10, LIMIT / 2 - 10, 3));
        let error = ledger.reserve(LIMIT / 2).unwrap_err();
        assert!(matches!(error, LedgerError::Spent { left, .. } if left == LIMIT / 2 - 10), "{error}");
        assert!(ledger.reserve(u64::MAX).is_err());
        assert_eq!(ledger.reserve(LIMIT / 2 - 10).unwrap().numbers.end, LIMIT);
        assert_eq!(ledger.state().unwrap().percent(), 100);
        assert!(matches!(ledger.reserve(1), Err(LedgerError::Spent { wanted: 1, left: 0, limit: LIMIT })));
    }
    // Blocks give all numbers, the last of them one by one.
    let state = LedgerState { start: 5, next: 5, end: 30, ..LedgerState::new(&key(7)).unwrap() };
    let blocks = Blocks::new(MemoryLedger::new(state), 10);
    assert_eq!((0..25).map(|_| blocks.next().unwrap()).collect::<Vec<_>>(), (5..30).collect::<Vec<_>>());
    assert!(matches!(blocks.next(), Err(LedgerError::Spent { .. })));
    assert_eq!(blocks.ledger().state().unwrap().generation, 4);
}

/// Wherever the write of a record is cut off, the record before it counts, whose numbers go on after those that were handed out.
#[test]
fn a_record_that_is_written_in_part_does_not_count() {
    let place = Place::new("parts");
    let ledger = place.open();
    for round in 0..3 {
        let old = fs::read(place.ledger()).unwrap();
        let before = ledger.state().unwrap();
        let reserved = ledger.reserve(100 + round).unwrap();
        assert_eq!(reserved.numbers.start, before.next);
        let new = fs::read(place.ledger()).unwrap();
        let changed: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        let slot = changed[0] / 512;
        assert!(changed.iter().all(|at| at / 512 == slot), "one record is written");
        for cut in slot * 512..=(slot + 1) * 512 {
            let mixed = [&new[..cut.max(slot * 512)], &old[cut..]].concat();
            let state = LedgerState::from_bytes(&mixed).unwrap();
            let is_whole = mixed == new;
            assert_eq!(state, if is_whole { reserved.state.clone() } else { before.clone() }, "cut at {cut}");
        }
        // Nor does one with a flipped bit.
        for at in changed {
            let mut flipped = new.clone();
            flipped[at] ^= 1;
            assert_eq!(LedgerState::from_bytes(&flipped).unwrap(), before);
        }
    }
}

#[test]
fn wrong_ledgers_are_refused() {
    let place = Place::new("wrong");
    let error = FileLedger::open(&place.ledger(), key(8).fingerprint()).unwrap_err();
    assert!(matches!(error, LedgerError::OtherKey { .. }), "{error}");
    let state = LedgerState::new(&key(7)).unwrap();
    assert!(matches!(FileLedger::create(&place.ledger(), &state), Err(LedgerError::Io { .. })));
    let error = FileLedger::open(&place.0.join("absent"), key(7).fingerprint()).unwrap_err();
    assert!(matches!(error, LedgerError::Io { .. }), "{error}");
    let bytes = state.to_bytes();
    assert_eq!(LedgerState::from_bytes(&bytes).unwrap(), state);
    let text = String::from_utf8(bytes.clone()).unwrap();
    for wrong in [
        b"".to_vec(),
        bytes[..1023].to_vec(),
        [&bytes[..], b"\n"].concat(),
        vec![b'\n'; 1024],
        vec![0xff; 1024],
        text.replace("next 0", "next 1").into_bytes(),
        text.replace("ledger 1", "ledger 2").into_bytes(),
        text.replace("next 0", "next +").into_bytes(),
    ] {
        assert!(matches!(LedgerState::from_bytes(&wrong), Err(LedgerError::Damaged)));
        fs::write(place.ledger(), &wrong).unwrap();
        let error = FileLedger::open(&place.ledger(), key(7).fingerprint()).unwrap_err();
        assert!(matches!(error, LedgerError::Damaged), "{error}");
    }
    // A record whose sum is right, and whose numbers cannot be.
    let backwards = LedgerState { next: 3, start: 4, ..state };
    assert!(LedgerState::from_bytes(&backwards.to_bytes()).is_err());
}

#[test]
fn a_copy_that_is_put_back_is_noticed() {
    let place = Place::new("copy");
    let ledger = place.open_with_witness().unwrap();
    ledger.reserve(5).unwrap();
    let copy = fs::read(place.ledger()).unwrap();
    ledger.reserve(5).unwrap();
    assert_eq!(witnessed(&place.witness()).unwrap(), 3);
    fs::write(place.ledger(), &copy).unwrap();
    // By the process that used it, and by others where there is the note.
    let error = ledger.reserve(1).unwrap_err();
    assert!(matches!(error, LedgerError::Restored { generation: 2, known: 3 }), "{error}");
    assert!(matches!(place.open_with_witness(), Err(LedgerError::Restored { .. })));
    // Without the note nobody can know.
    assert_eq!(place.open().reserve(1).unwrap().numbers, 5..6);
    fs::remove_file(place.witness()).unwrap();
    assert_eq!(witnessed(&place.witness()).unwrap(), 0);
    place.open_with_witness().unwrap();
}

/// The note is there before a number is reserved, and a note that says nothing is no note of 0.
#[test]
fn a_note_that_cannot_be_read_or_written_stops_the_ledger() {
    let place = Place::new("notes");
    let ledger = place.open_with_witness().unwrap();
    ledger.reserve(5).unwrap();
    let new = place.0.join("notes/witness.new");
    assert!(!new.exists());
    // As an earlier version wrote it: it is made anew.
    fs::write(place.witness(), "2\n").unwrap();
    fs::create_dir(&new).unwrap();
    let error = ledger.reserve(5).unwrap_err();
    assert!(matches!(&error, LedgerError::Io { path, .. } if *path == new), "{error}");
    assert_eq!((ledger.state().unwrap().next, witnessed(&place.witness()).unwrap()), (5, 2));
    fs::remove_dir(&new).unwrap();
    for bytes in [&b""[..], b"\n", b"two\n", b"-2\n", b"+2\n", b"2 \xff\n", b"18446744073709551616\n"] {
        fs::write(place.witness(), bytes).unwrap();
        let error = ledger.reserve(5).unwrap_err();
        assert!(matches!(&error, LedgerError::DamagedNote { path } if *path == place.witness()), "{error}");
        assert!(
            error.to_string().contains("witness: this note of a ledger's generation is empty or damaged"),
            "{error}"
        );
        assert!(matches!(place.open_with_witness(), Err(LedgerError::DamagedNote { .. })));
    }
    fs::remove_file(place.witness()).unwrap();
    fs::create_dir(place.witness()).unwrap();
    let error = ledger.reserve(5).unwrap_err();
    assert!(error.to_string().contains("it is no regular file"), "{error}");
    fs::remove_dir(place.witness()).unwrap();
    assert_eq!(ledger.reserve(5).unwrap().numbers, 5..10);
    assert_eq!(witnessed(&place.witness()).unwrap(), 3);
}

#[test]
fn concurrent_ledgers_share_no_number() {
    let place = Place::new("concurrent");
    let take = || {
        let blocks = Blocks::new(place.open(), 7);
        (0..200).map(|_| blocks.next().unwrap()).collect::<Vec<_>>()
    };
    let numbers: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 800);
    assert!(place.open().state().unwrap().next >= 800);
}

#[test]
fn a_million_reservations_take_seconds() {
    let place = Place::new("million");
    let blocks = Blocks::new(place.open_with_witness().unwrap(), 1024);
    let start = Instant::now();
    for number in 0..1_000_000 {
        assert_eq!(blocks.next().unwrap(), number);
    }
    let time = start.elapsed().as_secs_f64();
    println!("checked: 1,000,000 reservations in {time:.2} s");
    assert!(time < 10.0, "1,000,000 reservations took {time:.1} s");
    let state = blocks.ledger().state().unwrap();
    assert_eq!((state.next, state.generation), (1_000_448, 978));
}
