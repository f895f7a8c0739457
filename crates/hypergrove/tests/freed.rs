//! Secrets are wiped before their memory is freed: a global allocator looks for them in all memory that is given back.

mod common;
include!("common/on_host.rs");

use common::PURE;
use hypergrove::rows::{Column, RowSigningKeys, RowStatus, SignRows};
use hypergrove::zkdilithium::{self, ZkDilithium};
use hypergrove::*;
use hypergrove_engine::{Policy, Program, SlhDsaPrograms, Timing, Work, forward};
use hypergrove_fips205::plan::{Plan, Slot};
use hypergrove_gpu::{Gpus, Wrapper};
use hypergrove_testkit::faults::WithFaultsOfEach;
use hypergrove_testkit::toys::{TOY_SHA2_16, TOY_SHA2_32, TOY_SHAKE_24};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use zeroize::Zeroizing;

/// The system's allocator. It looks for secrets in memory that is given back.
struct Looking;

#[global_allocator]
static ALLOCATOR: Looking = Looking;

// SAFETY: every call is the system's, and memory is only read while it is the caller's to give back.
unsafe impl GlobalAlloc for Looking {
    /// Memory is zeroed, so that no secret of an earlier owner is found, and all of it may be read.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `alloc`, which are those of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the memory was allocated with this layout, and nobody else uses it any more. It was zeroed when it was allocated.
        SECRETS.look((0..layout.size()).map(|offset| unsafe { at.add(offset).read_volatile() }), layout.size());
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The words of all secrets, 4 bytes each, in a hash table. A secret is found by two adjacent words at any place of freed memory, also if lanes hold a
/// word once each, or the words of several keys in turn. So few words are there that random bytes are not taken for a secret.
struct Secrets {
    words: [AtomicU32; SLOTS],
    /// A bit for the low bits of each word: most memory is passed over with one look.
    filter: [AtomicU64; 1 << 10],
    /// Words that are there.
    count: AtomicUsize,
    found: AtomicUsize,
    looked: AtomicU64,
    /// Bytes of the first allocations in which secrets were found, and the first place of one in it.
    sizes: [(AtomicUsize, AtomicUsize); 16],
}

const SLOTS: usize = 1 << 16;

static SECRETS: Secrets = Secrets {
    words: [const { AtomicU32::new(0) }; SLOTS],
    filter: [const { AtomicU64::new(0) }; 1 << 10],
    count: AtomicUsize::new(0),
    found: AtomicUsize::new(0),
    looked: AtomicU64::new(0),
    sizes: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 16],
};

impl Secrets {
    fn slot(word: u32) -> usize {
        (word.wrapping_mul(0x9e37_79b1) >> 16) as usize
    }

    fn add_word(&self, word: u32) {
        // Zeros are everywhere.
        if word == 0 {
            return;
        }
        for slot in (Secrets::slot(word)..SLOTS).chain(0..SLOTS) {
            match self.words[slot].compare_exchange(0, word, Relaxed, Relaxed) {
                Ok(_) => {
                    let many = self.count.fetch_add(1, Relaxed);
                    assert!(many < SLOTS / 2, "there is no room for more secrets");
                    break;
                }
                Err(there) if there == word => return,
                Err(_) => {}
            }
        }
        self.filter[(word & 0xffff) as usize / 64].fetch_or(1 << (word % 64), Relaxed);
    }

    /// Looks for this secret from now on, as it is and in words of the other order of bytes.
    fn add(&self, secret: &[u8]) {
        self.add_padded(secret, &[0]);
    }

    /// Looks for this secret from now on, and for it as the key of an HMAC.
    fn add_key(&self, secret: &[u8]) {
        self.add_padded(secret, &[0, 0x3636_3636, 0x5c5c_5c5c]);
    }

    fn add_padded(&self, secret: &[u8], pads: &[u32]) {
        for word in secret.as_chunks().0 {
            let word = u32::from_le_bytes(*word);
            for pad in pads {
                self.add_word(word ^ pad);
                self.add_word((word ^ pad).swap_bytes());
            }
        }
    }

    /// Looks for no secret any more.
    fn forget(&self) {
        self.filter.iter().for_each(|bits| bits.store(0, Relaxed));
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.count.store(0, Relaxed);
    }

    fn has(&self, word: u32) -> bool {
        let may_have = self.filter[(word & 0xffff) as usize / 64].load(Relaxed) >> (word % 64) & 1 == 1;
        may_have
            && (Secrets::slot(word)..SLOTS)
                .chain(0..SLOTS)
                .map(|slot| self.words[slot].load(Relaxed))
                .take_while(|there| *there != 0)
                .any(|there| there == word)
    }

    fn look(&self, bytes: impl Iterator<Item = u8>, size: usize) {
        self.looked.fetch_add(size as u64, Relaxed);
        let mut last = 0_u64;
        for (at, byte) in bytes.enumerate() {
            last = last >> 8 | u64::from(byte) << 56;
            if at >= 7 && self.has((last >> 32) as u32) && self.has(last as u32) {
                let nth = self.found.fetch_add(1, Relaxed);
                if let Some((of, place)) = self.sizes.get(nth) {
                    of.store(size, Relaxed);
                    place.store(at - 7, Relaxed);
                }
                return;
            }
        }
    }

    /// The number of allocations that were given back with a secret, and where the first ones had it.
    fn take(&self) -> (usize, Vec<(usize, usize)>) {
        let found = self.found.swap(0, Relaxed);
        let sizes = self.sizes.iter().take(found);
        (found, sizes.map(|(size, at)| (size.load(Relaxed), at.load(Relaxed))).collect())
    }
}

#[track_caller]
fn assert_none(of: &str) {
    let (found, sizes) = SECRETS.take();
    assert!(found == 0, "{of}: {found} allocations were freed with secrets, the first with (bytes, offset): {sizes:?}");
}

/// Random bytes.
fn random(bytes: usize) -> Zeroizing<Vec<u8>> {
    let seeds = [Seeds::random(&TOY_SHA2_32).unwrap(), Seeds::random(&TOY_SHA2_32).unwrap()];
    let mut all = Zeroizing::new(vec![0; bytes]);
    let from = seeds.iter().flat_map(|seeds| [&seeds.sk_seed, &seeds.sk_prf]).flat_map(|seed| seed.iter());
    all.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    all
}

/// Secrets that are not wiped are found, in the forms in which computations hold them; those that are wiped are not.
fn planted() {
    let secret = random(16);
    SECRETS.add_key(&secret);
    let word = |i: usize| u32::from_be_bytes(secret[4 * i..][..4].try_into().unwrap());
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let padded = |pad: u8| secret.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let forms = [
        ("as it is", secret.to_vec()),
        ("at an odd place", [&[1; 39], &secret[..], &[2; 3]].concat()),
        ("its half", secret[8..].to_vec()),
        ("its words in lanes", words(&[word(1); 8])),
        ("in words", words(&[word(0), word(1), word(2), word(3)])),
        ("the key of an HMAC", padded(0x36)),
        ("the key of an HMAC, outside", padded(0x5c)),
    ];
    assert_none("secrets that live");
    for (form, bytes) in forms {
        let mut wiped = Zeroizing::new(bytes.clone());
        black_box(&mut *wiped);
        drop(wiped);
        assert_none(form);
        drop(black_box(bytes));
        assert_eq!(SECRETS.take().0, 1, "{form}");
    }
    // A vector that grows leaves its old memory behind.
    let mut grows = Zeroizing::new(Vec::with_capacity(16));
    grows.extend_from_slice(&secret);
    black_box(&mut *grows).extend_from_slice(&[0; 100]);
    assert_eq!(SECRETS.take().0, 1, "a vector that grew");
    drop(grows);
    assert_none("a vector that grew and is wiped");
}

/// A backend whose programs report each opt_rand to the allocator before they run: nobody else knows those that the engine draws.
struct Reporting(Arc<dyn Backend>);

impl Backend for Reporting {
    forward!(self => self.0; name, devices, self_test, absent, notices, rates, clock, fingerprint, free);
    fn slh_dsa(&self) -> Option<&dyn SlhDsaPrograms> {
        self.0.slh_dsa().map(|_| self as _)
    }
    forward!(self => self.0; sha256, zkdilithium, host_memory);
}

impl Reporting {
    fn programs(&self) -> &dyn SlhDsaPrograms {
        self.0.slh_dsa().expect("SLH-DSA")
    }
}

impl SlhDsaPrograms for Reporting {
    forward!(self => self.programs(); space, jobs, compile, queue, bytes, abilities);
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        Ok(Box::new(ReportingProgram(self.programs().prepare(device, plan, batch, policy)?)))
    }
}

struct ReportingProgram(Box<dyn Program>);

/// opt_rands that were reported.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

impl Program for ReportingProgram {
    fn plan(&self) -> &Plan {
        self.0.plan()
    }
    forward!(self => self.0; hashes, prove, time_limit);
    fn run(&mut self, work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        if let (Some(digests), Op::Sign) = (&work.digests, self.plan().op) {
            for (job, key) in work.batch.key_of.iter().enumerate() {
                let opt_rand = digests.opt_rand(job);
                // That of a deterministic signature is public.
                if opt_rand != work.batch.keys[*key as usize].pk_seed {
                    SECRETS.add(opt_rand);
                    REPORTED.fetch_add(1, Relaxed);
                }
            }
        }
        self.0.run(work, out)
    }
    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        self.0.read(slot)
    }
}

/// Sets of parameters.
type Sets = Vec<&'static Params>;

/// Engines of each shape, and sets of parameters for each.
fn engines() -> Vec<(&'static str, Engine, Sets)> {
    let on = |backend: Arc<dyn Backend>, threads| {
        Engine::builder().devices(vec![(Arc::new(Reporting(backend)) as _, 0)]).threads(threads).build().unwrap()
    };
    let gpu = Arc::new(WithFaultsOfEach::default().wrap(Arc::new(host::HostGpu::new(false))));
    vec![
        ("the CPU, one thread", on(Arc::new(Cpu::new()), 1), vec![&TOY_SHA2_16, &TOY_SHAKE_24]),
        ("the CPU, two threads", on(Arc::new(Cpu::new()), 2), vec![&TOY_SHA2_32]),
        ("a GPU", on(Arc::new(Gpus::new("host", Ok(vec![gpu]), None)), 2), vec![&TOY_SHA2_32]),
    ]
}

/// Handles of an engine, one for each kind of checks.
fn with_checks(engine: &Engine) -> [(&'static str, Engine); 3] {
    let with = |redundant, verify_signatures| {
        let mut options = engine.work_options();
        options.checks.redundant = redundant;
        options.checks.verify_signatures = verify_signatures;
        engine.with(options)
    };
    [("once", with(false, false)), ("twice", with(true, false)), ("twice and verified", with(true, true))]
}

const ROWS: usize = 20;

fn message(i: usize) -> Vec<u8> {
    (i as u64).to_le_bytes().to_vec()
}

/// Keys of these seeds, made one by one, as rows and as objects.
fn keys(engine: &Engine, p: &'static Params, seeds: &[Seeds]) -> Vec<SigningKey> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(seeds.len() * 3 * p.n));
    for seeds in seeds {
        [&*seeds.sk_seed, &*seeds.sk_prf, &seeds.pk_seed].into_iter().for_each(|part| bytes.extend_from_slice(part));
    }
    let mut rows = Zeroizing::new(vec![0; seeds.len() * p.sk_bytes()]);
    engine.keygen_rows_from_seeds(p, &bytes, &mut rows, None).unwrap();
    let keys = engine.from_seeds(p, seeds).unwrap();
    let alone = engine.from_seeds(p, &seeds[..1]).unwrap();
    assert!(alone[0] == keys[0] && keys.iter().zip(rows.chunks(p.sk_bytes())).all(|(key, row)| *key.to_bytes() == row));
    keys
}

/// A way to sign with these keys. Gives the number of signatures.
type Way = fn(&Engine, &[SigningKey], Randomizer<'_>) -> usize;

fn one(engine: &Engine, keys: &[SigningKey], randomizer: Randomizer<'_>) -> usize {
    let randomizer = if let Randomizer::Given(bytes) = randomizer {
        Randomizer::Given(&bytes[..keys[0].params().n])
    } else {
        randomizer
    };
    usize::from(engine.sign(&keys[0], PURE, b"m", randomizer).is_ok())
}

/// With one key, with all of them, and with one more that is damaged, whose rows alone fail.
fn rows(engine: &Engine, keys: &[SigningKey], randomizer: Randomizer<'_>) -> usize {
    let p = keys[0].params();
    let bytes: Vec<u8> = (0..ROWS).flat_map(message).collect();
    let mut damaged = keys[0].to_bytes();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = SigningKey::from_bytes_unchecked(p, &damaged).unwrap();
    let with_damaged: Vec<SigningKey> = keys.iter().chain([&damaged]).cloned().collect();
    let of = |count: usize| (0..ROWS).map(|row| (row % count) as u32).collect::<Vec<u32>>();
    let (of_keys, of_all) = (of(keys.len()), of(with_damaged.len()));
    let ways = [
        RowSigningKeys::One(&keys[0]),
        RowSigningKeys::Table { keys, of: &of_keys },
        RowSigningKeys::Table { keys: &with_damaged, of: &of_all },
    ];
    let signed = ways.map(|keys| {
        let rows = SignRows { keys, mode: PURE, messages: Column::packed(&bytes, 8), randomizer };
        let (mut out, mut statuses) = (vec![0; ROWS * p.sig_bytes()], vec![RowStatus::default(); ROWS]);
        engine.sign_rows(&rows, &mut out, &mut statuses).unwrap();
        statuses.iter().filter(|status| **status == RowStatus::Signed).count()
    });
    assert_eq!(signed, [ROWS, ROWS, ROWS - ROWS / with_damaged.len()]);
    signed.iter().sum()
}

/// A job with a key that it owns or shares.
fn job(keys: &[Arc<SigningKey>], i: usize, randomizer: Randomizer<'_>) -> SignJob<'static> {
    let key = &keys[i % keys.len()];
    let job = SignJob::new(
        if i.is_multiple_of(2) { JobKey::from(key.clone()) } else { JobKey::from((**key).clone()) },
        message(i),
    );
    match randomizer {
        Randomizer::Hedged => job,
        _ => job.deterministic(),
    }
}

/// Signs a batch, and a batch of tickets, of which some are dropped.
fn tickets(engine: &Engine, keys: &[SigningKey], randomizer: Randomizer<'_>) -> usize {
    let (n, keys) = (keys[0].params().n, keys.iter().cloned().map(Arc::new).collect::<Vec<_>>());
    let signed = engine.sign_batch_to_vec((0..ROWS).map(|i| job(&keys, i, randomizer))).unwrap();
    let submit = |i: usize| match randomizer {
        Randomizer::Given(bytes) => {
            let given = SignJob { randomizer: Randomizer::Given(&bytes[i * n..][..n]), ..job(&keys, i, randomizer) };
            engine.submit(given).unwrap()
        }
        _ => engine.submit(job(&keys, i, randomizer)).unwrap(),
    };
    let waiting: Vec<_> = (0..ROWS).map(submit).collect();
    drop((0..ROWS).map(submit).collect::<Vec<_>>());
    signed.iter().filter(|signature| signature.is_ok()).count()
        + waiting.into_iter().map(Ticket::wait).filter(Result::is_ok).count()
}

fn add_seeds(seeds: &[Seeds]) {
    seeds.iter().flat_map(|seeds| [&seeds.sk_seed, &seeds.sk_prf]).for_each(|secret| SECRETS.add_key(secret));
}

/// SLH-DSA: SK.seed, SK.prf and opt_rand.
fn slh_dsa(of: &str, engine: &Engine, p: &'static Params, seeds: &[Seeds]) {
    let given = random(ROWS * p.n);
    // The randomness of each signature is looked for while it is made, and keys always.
    let look_for_them = || {
        SECRETS.forget();
        add_seeds(seeds);
        SECRETS.add(&given);
    };
    look_for_them();
    for (checks, engine) in with_checks(engine) {
        let of = format!("{of}, {p}, {checks}");
        let keys = keys(&engine, p, seeds);
        assert_none(&format!("{of}: making keys"));
        for (how, randomizer) in [
            ("hedged", Randomizer::Hedged),
            ("deterministic", Randomizer::Deterministic),
            ("given randomness", Randomizer::Given(&given)),
        ] {
            // The jobs of a way, and how many of them have this randomness.
            let ways: [(&str, Way, usize, usize); 3] = [
                ("one job", one, 1, 1),
                ("rows", rows, 3 * ROWS - ROWS / 4, 3 * ROWS),
                ("tickets", tickets, 2 * ROWS, ROWS),
            ];
            for (what, way, signed, random) in ways {
                look_for_them();
                let before = REPORTED.load(Relaxed);
                assert_eq!(way(&engine, &keys, randomizer), signed, "{of}, {how}: {what}");
                let reported = REPORTED.load(Relaxed) - before;
                let is_random = how != "deterministic";
                assert!(
                    is_random && reported >= random || reported == 0 && !is_random,
                    "{of}, {how}: {what}: {reported}"
                );
                assert_none(&format!("{of}, {how}: {what}"));
            }
        }
        engine.check(&keys[0]).unwrap();
        if p.d > 1 {
            drop(engine.cache(&keys[0], 1).unwrap());
        }
        drop(keys);
        assert_none(&format!("{of}: checking and caching"));
    }
}

/// zkDilithium: the seed, `key`, s1 and s2.
fn zkdilithium(of: &str, engine: &Engine) {
    use hypergrove_zkdilithium::params::{ETA_BYTES, HASH_BYTES, K, L};
    let seeds: Vec<Zeroizing<Vec<u8>>> = (0..3).map(|_| random(32)).collect();
    SECRETS.forget();
    seeds.iter().for_each(|seed| SECRETS.add(seed));
    for (checks, engine) in with_checks(engine) {
        let of = format!("{of}, zkDilithium, {checks}");
        let mut all = Zeroizing::new(Vec::with_capacity(seeds.len() * 32));
        seeds.iter().for_each(|seed| all.extend_from_slice(seed));
        let mut made = Zeroizing::new(vec![0; seeds.len() * zkdilithium::params::SK_BYTES]);
        engine.keygen_rows_from_seeds(ZkDilithium, &all, &mut made, None).unwrap();
        let keys: Vec<_> = made
            .chunks(zkdilithium::params::SK_BYTES)
            .map(|bytes| {
                SECRETS.add(&bytes[HASH_BYTES..2 * HASH_BYTES]);
                SECRETS.add(&bytes[3 * HASH_BYTES..][..(L + K) * ETA_BYTES]);
                zkdilithium::SigningKey::from_bytes_unchecked(bytes).unwrap()
            })
            .collect();
        let bytes: Vec<u8> = (0..ROWS).flat_map(message).collect();
        let of_row: Vec<u32> = (0..ROWS).map(|row| (row % keys.len()) as u32).collect();
        let rows =
            zkdilithium::SignRows::new(RowSigningKeys::Table { keys: &keys, of: &of_row }, Column::packed(&bytes, 8));
        let (mut out, mut statuses) =
            (vec![0; ROWS * zkdilithium::params::SIG_BYTES], vec![RowStatus::default(); ROWS]);
        engine.sign_rows(&rows, &mut out, &mut statuses).unwrap();
        assert_eq!(statuses, [RowStatus::Signed; ROWS]);
        assert_none(&format!("{of}: rows"));
        let of_key = |i: usize| zkdilithium::SignJob::new(keys[i % keys.len()].clone(), message(i));
        engine.run(of_key(0)).unwrap();
        assert_none(&format!("{of}: one job"));
        let tickets: Vec<_> = (0..ROWS).map(|i| engine.submit(of_key(i)).unwrap()).collect();
        assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
        drop((keys, made));
        assert_none(&format!("{of}: tickets"));
    }
}

/// One test, because memory that any thread gives back counts.
#[test]
fn secrets_are_wiped_before_their_memory_is_freed() {
    planted();
    for (of, engine, sets) in engines() {
        let seeds_of = |p: &&'static Params| (*p, (0..3).map(|_| Seeds::random(p).unwrap()).collect::<Vec<_>>());
        let seeds: Vec<_> = sets.iter().map(seeds_of).collect();
        for (p, seeds) in &seeds {
            slh_dsa(of, &engine, p, seeds);
        }
        zkdilithium(of, &engine);
        seeds.iter().for_each(|(_, seeds)| add_seeds(seeds));
        drop(engine);
        // Threads of the engine end.
        std::thread::sleep(Duration::from_millis(200));
        assert_none(&format!("{of}: the engine is dropped"));
    }
    println!("checked: {} bytes of memory that was freed", SECRETS.looked.load(Relaxed));
}
