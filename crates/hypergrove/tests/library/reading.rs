//! Messages that are read in pieces: the same signatures and verdicts as those of messages in memory.

use crate::common::{OnMock, PURE, key, mock};
use hypergrove::*;
use hypergrove_testkit::toys::{TOY_SHA2_32, TOY_SHAKE_24};
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// Bytes of a piece that the library reads.
const PIECE: usize = 1 << 20;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

fn engine() -> Engine {
    Engine::builder().threads(2).build().unwrap()
}

/// A file that another program writes to: each reading but the first has a byte changed.
struct Changing {
    bytes: Cursor<Vec<u8>>,
    changed: usize,
    readings: usize,
}

impl Changing {
    fn new(length: usize, changed: usize) -> Changing {
        Changing { bytes: Cursor::new(bytes(length)), changed, readings: 0 }
    }
}

impl Read for Changing {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(to)
    }
}

impl Seek for Changing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to == SeekFrom::Start(0) {
            self.readings += 1;
            self.bytes.get_mut()[self.changed] ^= u8::from(self.readings > 1);
        }
        self.bytes.seek(to)
    }
}

/// A pipe whose writer dies after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let now = to.len().min(self.0);
        self.0 -= now;
        if now == 0 { Err(io::Error::other("the writer died")) } else { Ok(now) }
    }
}

impl Seek for Failing {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}

#[test]
fn read_messages_have_the_signatures_of_messages_in_memory() {
    let engine = engine();
    let context = b"files";
    let modes = [
        Mode::Pure { context },
        Mode::PreHash { context, hash: PreHash::Sha512 },
        Mode::Digest { context, hash: PreHash::Sha256 },
        Mode::Internal,
    ];
    // How a message is hashed depends on the family and on n, not on the trees: so one set of the standard and two toys have each of both families
    // and of three n.
    for set in [&SLH_DSA_SHA2_128F, &TOY_SHAKE_24, &TOY_SHA2_32] {
        let key = engine.generate(set).unwrap();
        let public = key.verifying_key();
        for mode in modes {
            for length in [0, 1, PIECE - 1, PIECE, 3 * PIECE + 5] {
                let length = if matches!(mode, Mode::Digest { .. }) { 32 } else { length };
                let message = bytes(length);
                // The message begins where the reader is.
                let mut reader = Cursor::new([b"skipped", &message[..]].concat());
                reader.set_position(7);
                let random = vec![0xa5; set.n];
                for randomizer in [Randomizer::Deterministic, Randomizer::Given(&random)] {
                    let expected = engine.sign(&key, mode, &message, randomizer).unwrap();
                    reader.set_position(7);
                    let signature = engine.sign_reader(&key, mode, &mut reader, randomizer).unwrap();
                    assert!(signature == expected, "{set}, {mode:?}, {length} bytes");
                }
                let (mut hedged, mut altered) = (Vec::new(), message.clone());
                for _ in 0..2 {
                    reader.set_position(7);
                    let signature = engine.sign_reader(&key, mode, &mut reader, Randomizer::Hedged).unwrap();
                    assert!(engine.verify(&public, mode, &message, signature.as_bytes()).unwrap());
                    reader.set_position(7);
                    assert!(engine.verify_reader(&public, mode, &mut reader, signature.as_bytes()).unwrap());
                    hedged.push(signature);
                }
                assert!(hedged[0] != hedged[1], "fresh randomness each time");
                if let Some(last) = altered.last_mut() {
                    *last ^= 1;
                    let mut altered = &altered[..];
                    assert!(!engine.verify_reader(&public, mode, &mut altered, hedged[0].as_bytes()).unwrap());
                }
                if length == 32 {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_message_that_changes_while_it_is_read_is_not_signed() {
    let (engine, key) = (engine(), key(1));
    for (length, changed) in [(1, 0), (PIECE + 1, PIECE), (3 * PIECE, 0), (3 * PIECE, 2 * PIECE - 1)] {
        let failed = engine.sign_reader(&key, PURE, &mut Changing::new(length, changed), Randomizer::Hedged);
        assert!(matches!(failed, Err(ReadError::Changed)), "{length} bytes: {failed:?}");
    }
    // The readings of a pre-hash are compared where everything is computed twice.
    let redundant = Engine::builder().threads(1).redundant(true).build().unwrap();
    let mode = Mode::PreHash { context: b"", hash: PreHash::Sha256 };
    let mut once = Changing { readings: 1, ..Changing::new(PIECE, 3) };
    assert!(redundant.sign_reader(&key, mode, &mut once, Randomizer::Hedged).is_err());
}

#[test]
fn redundant_engines_and_those_that_verify_read_again() {
    for (redundant, verifies) in [(false, false), (true, false), (false, true)] {
        let builder = Engine::builder().threads(2).redundant(redundant).verify_signatures(verifies);
        let (engine, key) = (builder.build().unwrap(), key(2));
        let mut reader = Counting(Cursor::new(bytes(2 * PIECE + 1)), 0);
        let signature = engine.sign_reader(&key, PURE, &mut reader, Randomizer::Hedged).unwrap();
        assert_eq!(reader.1, if redundant || verifies { 4 } else { 2 }, "readings");
        reader.0.set_position(0);
        assert!(engine.verify_reader(&key.verifying_key(), PURE, &mut reader.0, signature.as_bytes()).unwrap());
    }
}

/// Counts how often it is rewound.
struct Counting(Cursor<Vec<u8>>, usize);

impl Read for Counting {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

impl Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.1 += usize::from(to == SeekFrom::Start(0));
        self.0.seek(to)
    }
}

#[test]
fn what_cannot_be_read_or_signed_is_an_error() {
    let (engine, key) = (engine(), key(3));
    let public = key.verifying_key();
    for length in [0, 100, PIECE, 3 * PIECE + 1] {
        let io = |error: &ReadError| matches!(error, ReadError::Io(why) if why.to_string() == "the writer died");
        assert!(
            engine.sign_reader(&key, PURE, &mut Failing(length), Randomizer::Hedged).is_err_and(|error| io(&error))
        );
        let signature = vec![0; key.params().sig_bytes()];
        assert!(engine.verify_reader(&public, PURE, &mut Failing(length), &signature).is_err_and(|error| io(&error)));
    }
    let long = Mode::Pure { context: &[0; 256] };
    for mode in [long, Mode::PreHash { context: &[0; 256], hash: PreHash::Sha256 }] {
        let failed = engine.sign_reader(&key, mode, &mut Cursor::new(b"m"), Randomizer::Hedged).unwrap_err();
        assert!(failed.to_string().contains("the context has 256 bytes"), "{failed}");
        let failed = engine.verify_reader(&public, mode, &mut &b"m"[..], &[]).unwrap_err();
        assert!(failed.to_string().contains("the context has 256 bytes"), "{failed}");
    }
    let short = engine.sign_reader(&key, PURE, &mut Cursor::new(b"m"), Randomizer::Given(&[1])).unwrap_err();
    assert!(matches!(short, ReadError::Engine(Error::Length { what: "opt_rand", .. })));
    // A signature of the wrong length is invalid, as elsewhere.
    assert!(!engine.verify_reader(&public, PURE, &mut &b"m"[..], b"short").unwrap());
    let digest = Mode::Digest { context: b"", hash: PreHash::Sha256 };
    assert!(engine.sign_reader(&key, digest, &mut Cursor::new([0; 33]), Randomizer::Hedged).is_err());
}

/// Such a message serves one key, one mode, one operation and one R.
#[test]
fn a_read_message_is_bound_to_its_key_and_signature() {
    let (engine, key, other) = (engine(), key(4), key(5));
    let public = key.verifying_key();
    let message = bytes(100);
    let mut job = engine.read_to_sign(&key, PURE, &mut Cursor::new(&message), Randomizer::Deterministic).unwrap();
    let signature = engine.run(job.clone()).unwrap();
    job.key = (&other).into();
    let refused = engine.run(job.clone()).unwrap_err();
    assert!(refused.to_string().starts_with("the message was read for another key, another operation"), "{refused}");
    let job = engine.read_to_sign(&key, PURE, &mut Cursor::new(&message), Randomizer::Deterministic).unwrap();
    assert!(
        engine.run(job.clone().context(b"another")).is_err() && engine.run(job.clone().mode(Mode::Internal)).is_err()
    );
    let to_verify = VerifyJob::new(&public, job.message.clone(), signature.as_bytes());
    assert!(engine.run(to_verify).is_err(), "it was read to be signed");
    let mut jobs = engine.read_to_verify([&public], PURE, &mut &message[..], signature.as_bytes()).unwrap();
    assert!(engine.run(jobs[0].clone()).unwrap());
    assert!(engine.run(jobs[0].clone().context(b"another")).is_err(), "the verdict would be on another context");
    // The digest is that of the R that was there: with another one the signature is another.
    let mut altered = signature.as_bytes().to_vec();
    altered[0] ^= 1;
    jobs[0].signature = altered.into();
    assert!(!engine.run(jobs[0].clone()).unwrap());
    let shown = format!("{job:?}");
    assert!(shown.contains("ReadMessage { set"), "{shown}");
}

/// In lists among other jobs, as tickets, and on a device that hashes messages by itself.
#[test]
fn read_messages_go_wherever_messages_go() {
    let device = mock(1, 1);
    let (key, message) = (key(6), bytes(PIECE + 3));
    let public = key.verifying_key();
    for engine in [engine(), device.engine()] {
        let read = || {
            let mut reader = Cursor::new(&message);
            engine.read_to_sign(&key, PURE, &mut reader, Randomizer::Deterministic).unwrap()
        };
        let expected = engine.run(SignJob::new(&key, &message).deterministic()).unwrap();
        let jobs = [read(), SignJob::new(&key, b"short").deterministic(), read()];
        let signed = engine.sign_batch_to_vec(jobs).unwrap();
        let signed: Vec<_> = signed.into_iter().map(Result::unwrap).collect();
        assert!(signed[0] == expected && signed[2] == expected && signed[1] != expected);
        assert!(engine.submit(read()).unwrap().wait().unwrap() == expected);
        // Several keys take one reading.
        let keys = [crate::common::key(7).verifying_key(), public.clone()];
        let jobs = engine.read_to_verify(&keys, PURE, &mut &message[..], expected.as_bytes()).unwrap();
        let valid = engine.verify_batch_to_vec(jobs.clone()).unwrap();
        assert_eq!(valid.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [false, true]);
        assert!(engine.submit(jobs[1].clone()).unwrap().wait().unwrap());
    }
}
