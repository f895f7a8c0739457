//! Sets of rows that wait together share launches. Each set has its own result, whatever becomes of the others.

use crate::common::{Call, Mock, OnMock, P, PURE, job, key, mock};
use crate::tickets::at_rest;
use hypergrove::rows::{Column, RowCall, RowSet, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::*;
use hypergrove_gpu::Gpus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(600);

/// Lets runs of a device end one by one. Without it, all go on.
struct Turnstile {
    /// The first field: an engine that is dropped waits for its runs.
    go: Option<Sender<()>>,
    engine: Engine,
    device: Mock,
    came: Receiver<u32>,
}

impl Turnstile {
    /// Waits until a run has computed, and gives its device.
    fn wait(&self) -> u32 {
        self.came.recv_timeout(SOON).unwrap()
    }
    /// Lets a run end.
    fn pass(&self) {
        self.go.as_ref().unwrap().send(()).unwrap();
    }
    fn open(&mut self) {
        self.go = None;
    }
    /// Jobs of each run.
    fn runs(&self) -> Vec<usize> {
        self.device.log.runs.lock().unwrap().iter().map(|(_, jobs)| *jobs).collect()
    }
}

/// An engine of such devices, whose self-test is over. A run ends as `end` says.
fn turnstile(
    mock: Mock,
    build: impl Fn(EngineBuilder) -> EngineBuilder,
    end: impl Fn(Call<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Turnstile {
    let ((here, came), (go, passes)) = (channel(), channel());
    let (here, passes, is_armed) = (Mutex::new(here), Mutex::new(passes), Arc::new(AtomicBool::new(false)));
    let armed = is_armed.clone();
    let device = Mock { jobs: 64, memory: 1 << 30, ..mock }.answering(move |call| {
        if armed.load(SeqCst) {
            here.lock().unwrap().send(call.device).unwrap();
            let _ = passes.lock().unwrap().recv();
            return end(call);
        }
        Ok(())
    });
    let engine = build(device.builder()).build().unwrap();
    let (known, public) = (key(9), key(9).verifying_key());
    engine.sign_batch((0..16).map(|i| job(&known, i)), |_, signature| drop(signature.unwrap())).unwrap();
    let signature = engine.sign(&known, PURE, b"first", Randomizer::Hedged).unwrap();
    engine.verify(&public, PURE, b"first", signature.as_bytes()).unwrap();
    engine.generate(P).unwrap();
    device.log.runs.lock().unwrap().clear();
    is_armed.store(true, SeqCst);
    Turnstile { go: Some(go), engine, device, came }
}

/// The inputs, and the memory for outputs, that a caller lends to its set.
#[derive(Clone)]
struct Letters {
    keys: Vec<SigningKey>,
    public: Vec<VerifyingKey>,
    encoded: Vec<u8>,
    of: Vec<u32>,
    /// Without a context, messages are signed by the internal functions.
    context: Option<Vec<u8>>,
    given: Option<Vec<u8>>,
    is_hedged: bool,
    messages: Vec<u8>,
    signatures: Vec<u8>,
    statuses: Vec<RowStatus>,
    gone: Arc<AtomicUsize>,
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.gone.fetch_add(1, SeqCst);
    }
}

/// Of each number other keys, messages, modes and randomizers.
fn letters(number: usize, rows: usize) -> Letters {
    let keys = [number as u8, number as u8 + 100].map(key);
    let of: Vec<u32> = (0..rows).map(|row| (row % 2) as u32).collect();
    let public = keys.each_ref().map(SigningKey::verifying_key);
    Letters {
        encoded: of.iter().flat_map(|of| public[*of as usize].to_bytes()).collect(),
        keys: keys.into(),
        public: public.into(),
        of,
        context: number.is_multiple_of(2).then(|| vec![number as u8; number]),
        given: (number % 3 == 1).then(|| (0..rows * P.n).map(|i| (i + number) as u8).collect()),
        is_hedged: number % 3 == 2,
        messages: (0..4 * rows).map(|i| (i * number) as u8).collect(),
        signatures: vec![1; rows * P.sig_bytes()],
        statuses: vec![RowStatus::default(); rows],
        gone: Arc::default(),
    }
}

fn mode(context: &Option<Vec<u8>>) -> Mode<'_> {
    context.as_ref().map_or(Mode::Internal, |context| Mode::Pure { context })
}

fn to_sign(it: &mut Letters) -> RowCall<'_> {
    RowCall::Sign {
        rows: SignRows {
            keys: match it.given {
                Some(_) => RowSigningKeys::One(&it.keys[0]),
                None => RowSigningKeys::Table { keys: &it.keys, of: &it.of },
            },
            mode: mode(&it.context),
            messages: Column::packed(&it.messages, 4),
            randomizer: match &it.given {
                Some(given) => Randomizer::Given(given),
                None if it.is_hedged => Randomizer::Hedged,
                None => Randomizer::Deterministic,
            },
        },
        signatures: &mut it.signatures,
        statuses: &mut it.statuses,
    }
}

/// With keys of each form.
fn to_verify(it: &mut Letters) -> RowCall<'_> {
    RowCall::Verify {
        rows: VerifyRows {
            keys: match (&it.given, it.is_hedged) {
                (Some(_), _) => RowVerifyingKeys::One(&it.public[0]),
                (None, true) => {
                    RowVerifyingKeys::Encoded { params: P, keys: Column::packed(&it.encoded, P.pk_bytes()) }
                }
                (None, false) => RowVerifyingKeys::Table { keys: &it.public, of: &it.of },
            },
            mode: mode(&it.context),
            messages: Column::packed(&it.messages, 4),
            signatures: Column::packed(&it.signatures, P.sig_bytes()),
        },
        statuses: &mut it.statuses,
    }
}

/// Does the work of a set by calls without a ticket.
fn directly(engine: &Engine, it: &mut Letters, lend: fn(&mut Letters) -> RowCall<'_>) {
    match lend(it) {
        RowCall::Sign { rows, signatures, statuses } => engine.sign_rows(&rows, signatures, statuses).unwrap(),
        RowCall::Verify { rows, statuses } => engine.verify_rows(&rows, statuses).unwrap(),
        _ => unreachable!(),
    }
}

/// Signatures are those of direct calls; hedged ones are valid.
fn are_signed(mut it: Letters, was: &Letters) {
    let (direct, mut expected) = (mock(1, 1).engine(), was.clone());
    directly(&direct, &mut expected, to_sign);
    assert_eq!(it.statuses, expected.statuses);
    if it.is_hedged {
        let signed = it.statuses.clone();
        directly(&direct, &mut it, to_verify);
        let is_right = |(status, verdict)| status != &RowStatus::Signed || verdict == &RowStatus::Valid;
        assert!(signed.iter().zip(&it.statuses).all(is_right));
    } else {
        assert!(it.signatures == expected.signatures, "the bytes of a direct call");
    }
}

fn submit(at: &Turnstile, sets: &[Letters], lend: fn(&mut Letters) -> RowCall<'_>) -> Vec<Ticket<Letters>> {
    sets.iter().map(|it| at.engine.submit(RowSet::new(it.clone(), lend)).unwrap()).collect()
}

type Build = fn(EngineBuilder) -> EngineBuilder;

/// Engines whose devices hand signatures out themselves, or whose signatures are checked first.
const BUILDS: [Build; 3] = [|it| it, |it| it.verify_signatures(true), |it| it.redundant(true)];

/// Submits the first set, and the others while the device computes it.
fn together(at: &mut Turnstile, sets: &[Letters], lend: fn(&mut Letters) -> RowCall<'_>) -> Vec<Ticket<Letters>> {
    let mut tickets = submit(at, &sets[..1], lend);
    at.wait();
    tickets.extend(submit(at, &sets[1..], lend));
    at.open();
    tickets
}

#[test]
fn sets_of_several_callers_share_a_launch() {
    for (number, build) in BUILDS.into_iter().enumerate() {
        let mut at = turnstile(mock(1, 1), build, |_| Ok(()));
        let mut sets: Vec<Letters> = (0..8).map(|set| letters(set, [3, 1, 5, 0, 7, 2, 4, 6][set])).collect();
        // A row without a key, and columns whose rows all are bad.
        sets[2].of[1] = 9;
        sets[6].of.fill(7);
        let tickets = together(&mut at, &sets, to_sign);
        for (ticket, was) in tickets.into_iter().zip(&sets) {
            are_signed(ticket.wait().unwrap(), was);
        }
        if number == 0 {
            assert_eq!(at.runs(), [3, 1 + 4 + 7 + 2 + 6]);
        }
        // By powers of two: 3 rows, and 25.
        assert_eq!(at.engine.stats().tickets.batch_sizes, [0, 1, 0, 0, 1], "{number}");
    }
}

#[test]
fn sets_that_verify_share_a_launch() {
    for (number, build) in BUILDS.into_iter().enumerate() {
        let mut at = turnstile(mock(1, 1), build, |_| Ok(()));
        let signer = mock(1, 1).engine();
        let mut sets: Vec<Letters> = (0..8).map(|set| letters(set, 3 + set)).collect();
        for (set, it) in sets.iter_mut().enumerate() {
            directly(&signer, it, to_sign);
            it.signatures[(set + 1) * P.sig_bytes() - 1] ^= 1;
        }
        let tickets = together(&mut at, &sets, to_verify);
        for (set, ticket) in tickets.into_iter().enumerate() {
            let mut expected = vec![RowStatus::Valid; 3 + set];
            expected[set] = RowStatus::Invalid;
            assert_eq!(ticket.wait().unwrap().statuses, expected, "{number}, {set}");
        }
        if number < 2 {
            assert_eq!(at.runs(), [3, (4..=10).sum()]);
        }
    }
}

#[test]
fn sets_of_new_keys_share_a_launch() {
    type Keys = (Option<Vec<u8>>, Vec<u8>, Vec<u8>);
    let set = |seeds: Option<Vec<u8>>, rows: usize| {
        let keys: Keys = (seeds, vec![0; rows * P.sk_bytes()], vec![0; rows * P.pk_bytes()]);
        RowSet::new(keys, |(seeds, private, public)| RowCall::Keygen {
            params: P,
            seeds: seeds.as_deref(),
            private,
            public: Some(public),
        })
    };
    let mut at = turnstile(mock(1, 1), |it| it, |_| Ok(()));
    let first = at.engine.submit(set(None, 2)).unwrap();
    at.wait();
    let seeds = |rows: usize| Some((0..rows * 3 * P.n).map(|i| (i * rows) as u8).collect::<Vec<u8>>());
    let others = [(None, 3), (seeds(4), 4), (None, 1), (seeds(5), 5)];
    let others = others.map(|(seeds, rows)| at.engine.submit(set(seeds, rows)).unwrap());
    at.open();
    let direct = mock(1, 1).engine();
    for ticket in [first].into_iter().chain(others) {
        let (seeds, private, public) = ticket.wait().unwrap();
        if let Some(seeds) = seeds {
            let mut right = (vec![0; private.len()], vec![0; public.len()]);
            direct.keygen_rows_from_seeds(P, &seeds, &mut right.0, Some(&mut right.1)).unwrap();
            assert!((&private, &public) == (&right.0, &right.1));
        }
        for (private, public) in private.chunks(P.sk_bytes()).zip(public.chunks(P.pk_bytes())) {
            let key = SigningKey::from_bytes_unchecked(P, private).unwrap();
            assert!(direct.check(&key).is_ok() && key.verifying_key().to_bytes() == public);
        }
    }
    assert_eq!(at.runs(), [2, 13]);
}

/// The rows of the key alone fail.
#[test]
fn a_damaged_key_of_one_set_harms_no_other() {
    let mut bytes = key(1).as_ref().to_bytes().to_vec();
    bytes[3 * P.n] ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(P, &bytes).unwrap();
    for build in BUILDS {
        let mut at = turnstile(mock(1, 1), build, |_| Ok(()));
        let mut sets: Vec<Letters> = (0..5).map(|set| letters(2 * set, 4)).collect();
        sets[3].keys[1] = damaged.clone();
        let tickets = together(&mut at, &sets, to_sign);
        for (set, (ticket, was)) in tickets.into_iter().zip(&sets).enumerate() {
            let it = ticket.wait().unwrap();
            if set == 3 {
                use RowStatus::{KeyDamaged, Signed};
                assert_eq!(it.statuses, [Signed, KeyDamaged, Signed, KeyDamaged]);
                let zeros = |row: usize| it.signatures[row * P.sig_bytes()..][..P.sig_bytes()].iter().all(|b| *b == 0);
                assert_eq!([0, 1, 2, 3].map(zeros), [false, true, false, true]);
            }
            are_signed(it, was);
        }
    }
}

/// A device refuses a batch because of one set's rows: each set runs by itself then, and that set alone has the error.
#[test]
fn an_error_of_one_set_ends_no_other() {
    let (log, rows) = channel();
    let log = Mutex::new(log);
    let mut at = turnstile(
        mock(1, 1),
        |it| it,
        move |call| {
            let count = call.out.len() / P.sig_bytes();
            log.lock().unwrap().send(count).unwrap();
            // The set of six rows, also among others.
            match count {
                6 | 9.. => Err(Error::Value { what: "a message is too long".into() }),
                _ => Ok(()),
            }
        },
    );
    let sets: Vec<Letters> = [4, 4, 6, 3].into_iter().enumerate().map(|(set, rows)| letters(2 * set, rows)).collect();
    let tickets = together(&mut at, &sets, to_sign);
    for (set, (ticket, was)) in tickets.into_iter().zip(&sets).enumerate() {
        match (set, ticket.wait()) {
            (2, it) => assert_eq!(it.map(drop).unwrap_err().to_string(), "a message is too long"),
            (_, it) => are_signed(it.unwrap(), was),
        }
    }
    assert_eq!((rows.try_iter().collect(), at.engine.faults()), (vec![4, 13, 4, 6, 3], Vec::new()));
}

/// Another device does what the failed one had of all sets; without another one, each set gets the error.
#[test]
fn no_set_is_lost_with_a_device() {
    for all_fail in [false, true] {
        let mut at = turnstile(
            // So long that the devices count as equally fast, whatever else the machine does.
            Mock { delay: [Duration::from_millis(20); 4], ..mock(2, 1) },
            |it| it,
            move |call| {
                if call.device == 1 && !all_fail { Ok(()) } else { call.fails("no answer") }
            },
        );
        let sets: Vec<Letters> = (0..9).map(|set| letters(set, 5)).collect();
        let mut tickets = submit(&at, &sets[..2], to_sign);
        [at.wait(), at.wait()].sort_unstable();
        tickets.extend(submit(&at, &sets[2..], to_sign));
        at.open();
        for (ticket, was) in tickets.into_iter().zip(&sets) {
            match (all_fail, ticket.wait()) {
                (false, it) => are_signed(it.unwrap(), was),
                (true, it) => assert_eq!(it.map(drop).unwrap_err().kind(), ErrorKind::DeviceFailed),
            }
        }
        assert!(!at.engine.faults().is_empty());
        let stats = at_rest(&at.engine);
        assert_eq!((stats.queued, stats.running), (0, 0));
    }
}

/// A batch of several chunks whose third one fails: sets that the first two complete are done.
#[test]
fn sets_that_are_done_outlive_the_device() {
    let runs = AtomicUsize::new(0);
    let third = move |call: Call<'_>| if runs.fetch_add(1, SeqCst) < 2 { Ok(()) } else { call.fails("no answer") };
    let mut at = turnstile(mock(1, 1), |it| it.max_delay(Duration::from_millis(300)), third);
    let sets: Vec<Letters> = (0..4).map(|set| letters(set, 40)).collect();
    let tickets = submit(&at, &sets, to_sign);
    at.open();
    let results: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    assert_eq!(at.runs(), [64, 64], "the sets are one batch");
    for (set, (result, was)) in results.into_iter().zip(&sets).enumerate() {
        match (set, result) {
            (..3, it) => are_signed(it.unwrap(), was),
            (_, it) => assert_eq!(it.map(drop).unwrap_err().kind(), ErrorKind::DeviceFailed),
        }
    }
}

/// Those of the others are as if it were not there.
#[test]
fn a_set_may_be_dropped_out_of_a_batch() {
    let mut at = turnstile(mock(1, 1), |it| it, |_| Ok(()));
    let sets: Vec<Letters> = (0..7).map(|set| letters(set, 2 + set)).collect();
    let first = submit(&at, &sets[..1], to_sign);
    at.wait();
    let mut others = submit(&at, &sets[1..], to_sign);
    // One waits, the other one runs.
    drop(others.remove(1));
    assert_eq!(sets[2].gone.load(SeqCst), 1);
    at.pass();
    at.wait();
    let running = others.remove(2);
    let cancelled = others.remove(3);
    cancelled.canceller().cancel();
    drop(running);
    assert_eq!(cancelled.wait().map(drop).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!([4, 6].map(|set| sets[set].gone.load(SeqCst)), [0; 2], "the device has them");
    at.open();
    for (ticket, set) in first.into_iter().chain(others).zip([0, 1, 3, 5]) {
        are_signed(ticket.wait().unwrap(), &sets[set]);
    }
    at.engine.drain(std::time::Instant::now() + SOON).unwrap();
    assert_eq!([4, 6].map(|set| sets[set].gone.load(SeqCst)), [1; 2]);
    assert_eq!(at.runs(), [2, 3 + 5 + 6 + 7 + 8]);
}

/// The chunk that runs is its last one, however many rows are left, and whichever way its ticket ends.
#[test]
fn a_set_that_nobody_wants_ends_with_its_chunk() {
    let ends: [fn(Ticket<Letters>); 3] = [
        drop,
        |ticket| {
            ticket.canceller().cancel();
            assert_eq!(ticket.wait().map(drop).unwrap_err().kind(), ErrorKind::Cancelled);
        },
        |ticket| {
            let ticket = ticket.deadline(std::time::Instant::now());
            assert_eq!(ticket.wait().map(drop).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        },
    ];
    for (build, end) in BUILDS.into_iter().flat_map(|build| ends.map(|end| (build, end))) {
        let mut at = turnstile(mock(1, 1), build, |_| Ok(()));
        let sets = [letters(0, 500), letters(2, 5)];
        let mut tickets = submit(&at, &sets[..1], to_sign);
        at.wait();
        tickets.extend(submit(&at, &sets[1..], to_sign));
        end(tickets.remove(0));
        at.open();
        are_signed(tickets.remove(0).wait().unwrap(), &sets[1]);
        at.engine.drain(std::time::Instant::now() + SOON).unwrap();
        assert_eq!(sets[0].gone.load(SeqCst), 1);
        // One chunk has 64 rows, which may run twice: to be computed again, or to be verified.
        assert!(at.runs().iter().sum::<usize>() < 300, "{:?}", at.runs());
    }
}

#[test]
fn unwanted_sets_to_verify_and_of_new_keys_end_with_their_chunk() {
    fn to_generate(it: &mut Letters) -> RowCall<'_> {
        RowCall::Keygen { params: P, seeds: None, private: &mut it.signatures[..500 * P.sk_bytes()], public: None }
    }
    for lend in [to_verify, to_generate] as [fn(&mut Letters) -> RowCall<'_>; 2] {
        let mut at = turnstile(mock(1, 1), BUILDS[0], |_| Ok(()));
        let sets = [letters(0, 500), letters(2, 500)];
        let mut tickets = submit(&at, &sets, lend);
        at.wait();
        // The last one does not begin.
        tickets.clear();
        at.open();
        at.engine.drain(std::time::Instant::now() + SOON).unwrap();
        assert_eq!(sets.each_ref().map(|set| set.gone.load(SeqCst)), [1, 1]);
        assert_eq!(at.runs().len(), 1, "{:?}", at.runs());
    }
}

/// A set of more rows than a batch is a batch of its own, in its turn. Smaller ones share those before and after it.
#[test]
fn a_large_set_is_a_batch() {
    let mut at = turnstile(mock(1, 1), |it| it, |_| Ok(()));
    let sets: Vec<Letters> =
        [4, 5, 6, 100, 7, 8].into_iter().enumerate().map(|(set, rows)| letters(set, rows)).collect();
    let tickets = together(&mut at, &sets, to_sign);
    for (ticket, was) in tickets.into_iter().zip(&sets) {
        are_signed(ticket.wait().unwrap(), was);
    }
    assert_eq!(at.runs(), [4, 11, 64, 36, 15]);
}

/// Rows of several sets, in memory that the device reaches by itself: it copies each from where it is and to where it belongs.
#[test]
fn a_gpu_copies_rows_of_several_sets() {
    struct Pinned {
        keys: [SigningKey; 2],
        of: Vec<u32>,
        messages: rows::Memory,
        signatures: rows::Memory,
        statuses: Vec<RowStatus>,
    }
    fn lend_to_sign(it: &mut Pinned) -> RowCall<'_> {
        RowCall::Sign {
            rows: SignRows {
                keys: RowSigningKeys::Table { keys: &it.keys, of: &it.of },
                mode: PURE,
                messages: Column::packed(&it.messages, 4),
                randomizer: Randomizer::Deterministic,
            },
            signatures: &mut it.signatures,
            statuses: &mut it.statuses,
        }
    }
    // With a row that has no key, signatures go to a buffer of the engine first.
    for has_gap in [false, true] {
        let gpus = vec![Arc::new(crate::host::HostGpu::new(false))];
        let backend: Arc<dyn Backend> = Arc::new(Gpus::new("host", Ok(gpus), None));
        let builder = Engine::builder().devices(vec![(backend, 0)]).threads(2).max_delay(Duration::from_millis(300));
        let engine = builder.build().unwrap();
        let sizes = [20, 1, 30, 7, 16];
        let set = |(number, rows): (usize, &usize)| {
            let messages: Vec<u8> = (0..4 * rows).map(|i| (i * (number + 1)) as u8).collect();
            let mut memory = [messages.len(), rows * P.sig_bytes()].map(|bytes| engine.memory(bytes).unwrap());
            assert!(!memory[0].devices().is_empty());
            memory[0].copy_from_slice(&messages);
            let [messages, signatures] = memory;
            let of = (0..*rows as u32).map(|row| if row == 13 && has_gap { 2 } else { row % 2 }).collect();
            let keys = [number as u8, number as u8 + 100].map(key);
            Pinned { keys, of, messages, signatures, statuses: vec![RowStatus::default(); *rows] }
        };
        let sets: Vec<Pinned> = sizes.iter().enumerate().map(set).collect();
        let tickets: Vec<_> =
            sets.into_iter().map(|it| engine.submit(RowSet::new(it, lend_to_sign)).unwrap()).collect();
        for ticket in tickets {
            let it = ticket.wait().unwrap();
            for (row, signature) in it.signatures.chunks(P.sig_bytes()).enumerate() {
                match it.keys.get(it.of[row] as usize) {
                    None => {
                        assert!(it.statuses[row] == RowStatus::NoSuchKey && signature.iter().all(|byte| *byte == 0));
                    }
                    Some(key) => {
                        let message = &it.messages[4 * row..][..4];
                        let expected =
                            hypergrove_fips205::reference::slh_sign(message, b"", key.as_ref(), None).unwrap();
                        assert!(it.statuses[row] == RowStatus::Signed && signature == expected.as_bytes(), "row {row}");
                    }
                }
            }
        }
        let sizes = engine.stats().tickets.batch_sizes;
        assert_eq!(sizes, [0, 0, 0, 0, 0, 0, 1], "the sets are one batch");
    }
}
