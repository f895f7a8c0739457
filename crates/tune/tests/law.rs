//! Searches and tables on a device whose time follows a known law.

use hypergrove_engine::{
    Axis, Backend, Choice, DEVICE_TIMEOUT, Device, Error, Knowledge, Policy, PolicySource, THREADS,
};
use hypergrove_fips205::plan::{Op, Plan, Rates};
use hypergrove_fips205::{SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S, SLH_DSA_SHAKE_192F};
use hypergrove_tables::space;
use hypergrove_tables::table::{Row, Sizes, Source, Table, TableKnowledge, sizes};
use hypergrove_testkit::mock::{Mock, mock};
use hypergrove_testkit::toys::TOY_SHA2_16;
use hypergrove_tune::journal::{Head, Journal, Question, Recorded};
use hypergrove_tune::model::{Kernel, Sample, Shape, adaptive, regret};
use hypergrove_tune::search::halving::CANDIDATES;
use hypergrove_tune::search::{Lab, PolicyTimes, SEARCHES, Search, Stop, grid, same};
use hypergrove_tune::workload::{Timed, Workload};
use hypergrove_tune::{Outcome, find};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn axis(name: &'static str, values: &'static [u32]) -> Axis {
    Axis { name, values: Cow::Borrowed(values), tuned: true }
}

fn axes() -> Vec<Axis> {
    vec![
        Axis { name: THREADS, values: (1..=64).collect::<Vec<_>>().into(), tuned: true },
        axis("block", &[32, 64, 128, 256]),
        axis("tile", &[5, 7, 9, 10]),
        axis("nothing", &[0, 1]),
        Axis { tuned: false, ..axis("check", &[0, 1]) },
    ]
}

/// T = α + β/t + γ·t, times what blocks and tiles cost; no policy without its check is faster in vain.
fn law(policy: &Policy) -> f64 {
    let t = f64::from(policy.get(THREADS).unwrap_or(1));
    let block = match policy.get("block").unwrap_or(128) {
        32 => 1.4,
        64 => 1.05,
        128 => 1.02,
        _ => 1.0,
    };
    let tile = match policy.get("tile").unwrap_or(9) {
        5 => 1.3,
        7 => 0.9,
        9 => 1.0,
        _ => 1.1,
    };
    let check = if policy.get("check") == Some(0) { 0.5 } else { 1.0 };
    (1e-3 + 0.1 / t + 1e-4 * t) * block * tile * check
}

/// Answers by the law, with noise that only ever slows down, as on a busy machine.
struct Fake {
    noise: f64,
    state: u64,
    runs: usize,
    most: usize,
}

impl Fake {
    fn new(noise: f64, most: usize) -> Fake {
        Fake { noise, state: 7, runs: 0, most }
    }
}

impl Lab for Fake {
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        if self.runs == self.most {
            return Err(Stop::Budget);
        }
        self.runs += 1;
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        // Blocks of 256 need more memory than tiles of 10 leave.
        if policy.get("block") == Some(256) && policy.get("tile") == Some(10) {
            return Ok(None);
        }
        Ok(Some(law(policy) * (1.0 + self.noise * uniform * uniform)))
    }
}

fn base() -> Policy {
    Policy(vec![(THREADS, 64)])
}

fn search(name: &str) -> &'static Search {
    SEARCHES.iter().find(|search| search.name == name).unwrap()
}

fn answer(name: &str, noise: f64, most: usize) -> (Outcome, PolicyTimes) {
    find(search(name), &axes(), &base(), &[], &mut Fake::new(noise, most), |lab| lab.most += 10).unwrap()
}

fn best_of_all() -> f64 {
    grid::policies(&axes(), &base()).iter().map(law).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_search_finds_the_best_of_the_sweep() {
    for noise in [0.0, 0.02, 0.05] {
        let (found, _) = answer("descent", noise, usize::MAX);
        assert!(found.complete);
        let excess = law(&found.policy) / best_of_all() - 1.0;
        assert!(excess <= 0.03, "noise {noise}: {excess} over the best by {:?}", found.policy);
        assert!(found.samples < 600, "{} of 2,048 policies in {} runs", found.policies, found.samples);
        assert_eq!(found.policy.get("check"), None, "no tuner gives a check up");
        assert!(noise > 0.02 || found.policy.get("nothing").is_none(), "what makes no difference is left out");
        let (gain, sigma) = found.gain();
        assert!((gain - law(&base()) / law(&found.policy)).abs() < 0.05 * gain + 3.0 * sigma, "{gain} ± {sigma}");
    }
}

#[test]
fn a_sweep_sees_everything() {
    let few = [axis("block", &[32, 64, 128, 256]), axis("tile", &[5, 7, 9, 10])];
    let mut lab = Fake::new(0.01, usize::MAX);
    let (found, seen) = find(search("grid"), &few, &base(), &[], &mut lab, |_| {}).unwrap();
    assert_eq!((found.policy.get("block"), found.policy.get("tile")), (Some(256), Some(7)));
    let timed = seen.0.iter().filter(|(_, times)| times.len() >= 5).count();
    assert_eq!(timed, 16, "one policy cannot be had, the defaults are there under their own name");
}

#[test]
fn time_that_is_over_leaves_the_best_so_far() {
    for most in [1, 3, 30, 50] {
        let (found, _) = answer("descent", 0.01, most);
        assert!(!found.complete && law(&found.policy) <= law(&base()), "after {most} runs");
    }
    let none = find(search("descent"), &axes(), &base(), &[], &mut Fake::new(0.0, 0), |_| {});
    assert!(none.is_err_and(|why| why.to_string().contains("--budget")));
}

#[test]
fn where_nothing_is_faster_the_defaults_stay() {
    struct Flat(u64);
    impl Lab for Flat {
        fn run(&mut self, _: &Policy) -> Result<Option<f64>, Stop> {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Ok(Some(1e-3 * (1.0 + 0.02 * (self.0 >> 40) as f64 / (1 << 24) as f64)))
        }
    }
    let mut fooled = 0;
    for seed in 0..100 {
        let (found, _) = find(search("descent"), &axes(), &base(), &[], &mut Flat(seed), |_| {}).unwrap();
        fooled += usize::from(!same(&found.policy, &base()));
    }
    assert!(fooled <= 3, "chance is no gain: {fooled} of 100");
}

#[test]
fn the_model_of_a_sweep_over_threads_finds_its_optimum() {
    let mut lab = Fake::new(0.02, usize::MAX);
    let sweep: Vec<Sample> = (1..=64)
        .map(|threads| {
            let seconds = lab.run(&Policy(vec![(THREADS, threads)])).unwrap().unwrap();
            Sample { shape: Shape::threads(threads), seconds, sigma: 0.01 * seconds }
        })
        .collect();
    let kernel = Kernel { units: 100, cores: 64 };
    let fit = adaptive::MODEL.fit(kernel, &sweep).unwrap();
    let best = adaptive::optimum(&fit, (1.0, 64.0)).unwrap();
    // √(0.1 / 1e-4) = 31.6.
    assert!(best.inside && (best.threads - 31.6).abs() < 3.0 * best.sigma.max(0.5), "{best:?}");
    assert!(regret(&fit, &sweep).unwrap().excess < 0.03);
}

fn head(space: &str) -> Head {
    let [backend, device, detail] = ["fake", "Fake 1", "law"].map(String::from);
    Head { backend, device, detail, space: space.into(), threads: 64 }
}

#[test]
fn an_interrupted_search_loses_no_sample_and_ends_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/fake.jsonl");
    let question = || Question { set: "SLH-DSA-SHA2-128f".into(), op: "sign".into(), jobs: 64 };
    let (whole, _) = answer("descent", 0.0, usize::MAX);
    let mut runs = 0;
    // Every 20 runs the power goes, the last time in the middle of a line.
    for round in 0.. {
        let mut journal = Journal::open(&path, &head("a")).unwrap();
        assert_eq!(journal.found, runs, "all that was measured is there");
        let mut lab = Recorded { journal: &mut journal, question: question(), lab: Fake::new(0.0, 20) };
        let mut seen = PolicyTimes::default();
        let ended = (search("descent").run)(&axes(), &[base()], &mut lab, &mut seen);
        runs += lab.lab.runs;
        drop(journal);
        let torn = std::fs::read_to_string(&path).unwrap() + "{\"set\":\"SLH-DSA-SHA";
        std::fs::write(&path, torn).unwrap();
        if ended.is_ok() {
            let declined = std::fs::read_to_string(&path).unwrap().matches("null").count();
            assert_eq!(seen.runs() + declined, runs);
            assert!(same(seen.best(4).unwrap(), &whole.policy), "{:?}", seen.best(4));
            assert!(round >= 3);
            break;
        }
    }
    let journal = Journal::open(&path, &head("a")).unwrap();
    assert_eq!(journal.found, runs);
    journal.close().unwrap();
    assert!(!path.exists() && path.with_extension("last.jsonl").exists());
    // Samples of other kernels are of no use.
    assert_eq!(Journal::open(&path.with_extension("last.jsonl"), &head("b")).unwrap().found, 0);
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    assert_eq!(Journal::open(&path, &head("a")).unwrap().found, 0);
}

#[test]
fn where_sizes_meet_the_better_of_two_policies_is_taken_as_it_is() {
    let few = base().with("tile", 7).with("block", 32);
    let many = base().with("tile", 7);
    let (found, seen) =
        find(&CANDIDATES, &axes(), &base(), &[few, many.clone()], &mut Fake::new(0.05, usize::MAX), |_| {}).unwrap();
    assert!(same(&found.policy, &many) && found.complete);
    assert_eq!(seen.0.len(), 3, "the two and the defaults");
}

/// A lab that knows what comes next.
struct Predicted {
    lab: Fake,
    expected: Vec<Policy>,
}

impl Lab for Predicted {
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        assert!(self.expected.iter().any(|expected| same(expected, policy)), "{policy:?}");
        self.lab.run(policy)
    }
    fn expect(&mut self, policies: &[Policy]) {
        self.expected.extend_from_slice(policies);
    }
}

#[test]
fn what_comes_next_is_announced_unless_its_times_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fake.jsonl");
    let question = || Question { set: "SLH-DSA-SHA2-128f".into(), op: "sign".into(), jobs: 64 };
    let candidates = [base(), base().with("tile", 7), base().with("tile", 10)];
    let mut announced = Vec::new();
    for _ in 0..2 {
        let mut journal = Journal::open(&path, &head("a")).unwrap();
        let lab = Predicted { lab: Fake::new(0.0, usize::MAX), expected: Vec::new() };
        let mut lab = Recorded { journal: &mut journal, question: question(), lab };
        (CANDIDATES.run)(&axes(), &candidates, &mut lab, &mut PolicyTimes::default()).unwrap();
        announced.push(lab.lab.expected.len());
    }
    assert_eq!(announced, [3, 0]);
}

/// A backend with the axes above, whose programs sleep by the law, answer as the reference, and report a time without the host. By policy
/// `tile = 5` they answer wrong; by `tile = 10` the device hangs.
fn device(fingerprint: &'static str, kernels: Duration) -> Mock {
    let rates = Some(Rates { sha256: 1e9, sha512: 0.0, keccak: 2e8, integers: 0.0 });
    let facts = |of| Device { name: "Fake 1".into(), detail: "law".into(), cores: 64, ..of };
    Mock { name: "fake", facts, fingerprint, rates, jobs: 1 << 10, delay: [Duration::ZERO; 4], ..mock(1, 1) }
        .with_space(|_, _| Ok(axes()))
        .preparing(|it| match it.policy.get("block") {
            Some(256) => Err(Error::OutOfMemory { device: it.device.id(), needs: 2, has: 1 }),
            _ => Ok(()),
        })
        .answering(move |call| {
            let tile = call.policy.get("tile");
            if tile == Some(10) {
                return call.fails(&format!("no answer in {:?}", call.limit.expect("nobody waits for ever")));
            }
            *call.out.last_mut().unwrap() ^= u8::from(tile == Some(5));
            std::thread::sleep(Duration::from_secs_f64(law(call.policy) / 30.0));
            call.timing.execute = kernels;
            Ok(())
        })
}

fn fake(fingerprint: &'static str) -> Mock {
    device(fingerprint, Duration::from_millis(7))
}

#[test]
fn every_answer_is_compared_and_what_does_not_fit_is_passed_over() {
    let backend: Arc<dyn Backend> = Arc::new(fake(""));
    let device = backend.devices().unwrap().remove(0);
    for op in [Op::Keygen, Op::Sign, Op::Verify] {
        let plan = Plan::new(&TOY_SHA2_16, op);
        let mut workload = Workload::new(&backend, &device, DEVICE_TIMEOUT, &plan, 5, &base()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut lab = Timed::new(&mut workload, until);
        assert_eq!(lab.run(&base().with("block", 256)), Ok(None));
        assert!(lab.run(&base().with("block", 64)).unwrap().is_some());
        let wrong = lab.run(&base().with("tile", 5)).unwrap_err();
        assert!(
            matches!(&wrong, Stop::Failed(Error::Inconsistent { what, .. }) if what.contains("tile = 5")),
            "{wrong:?}"
        );
        lab.until = Instant::now();
        assert_eq!(lab.run(&base()), Err(Stop::Budget));
    }
}

/// The limit of a wait is the caller's, or 100 times what a guess predicts.
#[test]
fn a_device_that_hangs_ends_the_search() {
    let backend: Arc<dyn Backend> = Arc::new(fake(""));
    let device = backend.devices().unwrap().remove(0);
    let plan = Plan::new(&TOY_SHA2_16, Op::Verify);
    let guess = 100.0 * (plan.work().compressions() * 5.0 / device.guessed_rate(64));
    for (timeout, limit) in [(DEVICE_TIMEOUT, DEVICE_TIMEOUT), (Duration::ZERO, Duration::from_secs_f64(guess))] {
        let mut workload = Workload::new(&backend, &device, timeout, &plan, 5, &base()).unwrap();
        let mut lab = Timed::new(&mut workload, Instant::now() + Duration::from_secs(60));
        let seeds = [base().with("tile", 10)];
        let why = find(search("descent"), &axes(), &base(), &seeds, &mut lab, |_| {}).err();
        let what = format!("no answer in {limit:?}");
        assert_eq!(why, Some(Error::Device { device: "fake:0".into(), what }));
    }
}

#[test]
fn a_question_that_is_retried_goes_on_where_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fake.jsonl");
    let question = || Question { set: "SLH-DSA-SHA2-128f".into(), op: "sign".into(), jobs: 64 };
    let mut journal = Journal::open(&path, &head("a")).unwrap();
    let (whole, _) = answer("descent", 0.0, usize::MAX);
    let (mut runs, mut rounds) = (0, 0);
    // Each time there is time for 20 runs.
    let found = loop {
        journal.again(&question());
        let mut lab = Recorded { journal: &mut journal, question: question(), lab: Fake::new(0.0, 20) };
        let mut seen = PolicyTimes::default();
        let ended = (search("descent").run)(&axes(), &[base()], &mut lab, &mut seen);
        (runs, rounds) = (runs + lab.lab.runs, rounds + 1);
        assert!(rounds < 100, "what was measured is measured again");
        if ended.is_ok() {
            break seen;
        }
    };
    assert!(rounds >= 3 && same(found.best(4).unwrap(), &whole.policy));
    drop(journal);
    assert_eq!(Journal::open(&path, &head("a")).unwrap().found, runs, "each sample is written once");
}

#[test]
fn a_device_with_memory_is_judged_by_its_kernels() {
    let time = |kernels: Duration, memory: u64| {
        let backend: Arc<dyn Backend> = Arc::new(device("", kernels));
        let device = Device { memory, ..backend.devices().unwrap().remove(0) };
        let plan = Plan::new(&TOY_SHA2_16, Op::Keygen);
        let mut workload = Workload::new(&backend, &device, DEVICE_TIMEOUT, &plan, 1, &base()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        Duration::from_secs_f64(Timed::new(&mut workload, until).run(&base()).unwrap().unwrap())
    };
    let kernels = Duration::from_micros(7);
    assert_eq!(time(kernels, 1 << 30), kernels);
    let whole = Duration::from_secs_f64(law(&base()) / 30.0);
    assert!(time(kernels, 0) >= whole && time(Duration::ZERO, 1 << 30) >= whole);
}

fn row(set: Option<&str>, op: &str, batch: Sizes, jobs: usize, block: u32) -> Row {
    Row {
        family: "SHA2".into(),
        n: 16,
        op: op.into(),
        set: set.map(Into::into),
        batch,
        jobs,
        axes: BTreeMap::from([("block".into(), block)]),
        seconds: 1e-4 + 1e-5 * jobs as f64,
        default_seconds: 2e-4 + 1e-5 * jobs as f64,
        spread: 0.01,
        samples: 40,
    }
}

fn table(backend: &Mock) -> Table {
    let device = backend.devices().unwrap().remove(0);
    let [few, many] = sizes(&[16, 4096])[..] else { panic!() };
    Table {
        backend: "fake".into(),
        device: device.name.clone(),
        detail: device.detail.clone(),
        space: space::checksum(backend, &device).unwrap(),
        threads: 2,
        version: "0".into(),
        rows: vec![
            row(None, "sign", Sizes { least: 1, most: usize::MAX }, 64, 32),
            row(Some("SLH-DSA-SHA2-128f"), "sign", few, 16, 64),
            row(Some("SLH-DSA-SHA2-128f"), "sign", many, 4096, 128),
            row(Some("SLH-DSA-SHA2-128f"), "verify", many, 4096, 256),
        ],
    }
}

fn source(name: &str, text: String) -> Source {
    Source { name: name.into(), text }
}

fn choose(known: &TableKnowledge, plan: &Plan, jobs: usize) -> Option<Choice> {
    let backend = fake("");
    known.choose(&backend, &backend.devices().unwrap()[0], plan, jobs)
}

#[test]
fn the_most_specific_row_wins_and_the_callers_before_the_shipped() {
    let backend = fake("");
    let device = &backend.devices().unwrap()[0];
    let shipped = table(&backend);
    let text = shipped.text();
    assert_eq!(Table::parse(&text).unwrap(), shipped, "{text}");
    let mut own = table(&backend);
    own.rows = vec![row(None, "sign", Sizes { least: 1, most: 1 }, 1, 256)];
    let known = TableKnowledge::new(&[source("own", own.text()), source("shipped", text)], &backend, device);
    assert_eq!((known.rows(), &known.notices[..]), (5, &[][..]));
    let in_use = known.in_use();
    let tables: Vec<_> = in_use.iter().map(|table| (&*table.table, table.rows)).collect();
    assert_eq!(tables, [("own", 1), ("shipped", 4)]);
    assert_eq!((&in_use[0].sets[..], &in_use[0].ops[..]), (&["SHA2, n = 16".to_owned()][..], &["sign".to_owned()][..]));
    let sign = |p| Plan::new(p, Op::Sign);
    let (f, s) = (&SLH_DSA_SHA2_128F, &SLH_DSA_SHA2_128S);
    let block = |choice: &Option<Choice>| choice.as_ref().and_then(|choice| choice.policy.get("block"));
    for (plan, jobs, want, from) in [
        (sign(f), 1, 256, PolicySource::Table),
        (sign(f), 2, 64, PolicySource::Table),
        (sign(f), 255, 64, PolicySource::Table),
        (sign(f), 1024, 128, PolicySource::Table),
        (sign(f), 1 << 20, 128, PolicySource::Table),
        (sign(s), 4096, 32, PolicySource::Table),
        (Plan::new(f, Op::Verify), 1, 256, PolicySource::Model),
        (Plan::new(s, Op::Verify), 4096, 256, PolicySource::Model),
        (sign(f).with_cached_layers(2), 4096, 128, PolicySource::Model),
    ] {
        let choice = choose(&known, &plan, jobs);
        assert_eq!(
            (block(&choice), choice.as_ref().unwrap().source),
            (Some(want), from),
            "{plan:?} of {jobs}: {choice:?}"
        );
        assert!(choice.unwrap().seconds.is_some_and(|(seconds, sigma)| seconds > 0.0 && sigma >= 0.0));
    }
    // A measured row's own time; for a size far from it what the law of all rows says.
    let (near, far) = (choose(&known, &sign(f), 4096).unwrap(), choose(&known, &sign(f), 1 << 20).unwrap());
    assert_eq!(near.seconds.unwrap().0, (1e-4 + 1e-5 * 4096.0) / 4096.0);
    assert!((far.seconds.unwrap().0 / 1e-5 - 1.0).abs() < 0.2, "{far:?}");
    // Nothing measured: the roofline, with a deviation as large as itself.
    let shake = choose(&known, &Plan::new(&SLH_DSA_SHAKE_192F, Op::Sign), 8).unwrap();
    assert_eq!((shake.source, &shake.policy), (PolicySource::Default, &Policy::default()));
    let (seconds, sigma) = shake.seconds.unwrap();
    assert!(seconds == sigma && (seconds - Plan::new(&SLH_DSA_SHAKE_192F, Op::Sign).work().keccak / 2e8).abs() < 1e-12);
}

#[test]
fn an_older_tables_rows_stay_for_other_batch_sizes() {
    let mut new = table(&fake(""));
    let (set, all) = (Some("SLH-DSA-SHA2-128f"), Sizes { least: 1, most: usize::MAX });
    let old = vec![
        row(set, "sign", all, 256, 1),
        row(set, "sign", all, 16, 2),
        row(set, "keygen", all, 1, 3),
        row(set, "keygen", all, 1, 4),
    ];
    let mut ladder = Table { rows: new.rows.clone(), ..new.clone() };
    ladder.rows.push(row(set, "sign", all, 4096, 64));
    ladder.take_over(old.clone(), true);
    let of_sign = ladder.rows.iter().filter(|row| row.set.is_some() && row.op == "sign");
    assert_eq!(
        of_sign.map(|row| row.jobs).collect::<Vec<_>>(),
        [16, 4096],
        "what lies between two rungs was asked again"
    );
    new.take_over(old, false);
    let shown = |row: &Row| (row.set.is_some(), row.op.clone(), row.jobs, row.axes["block"], row.batch.to_string());
    let shown: Vec<_> = new.rows.iter().map(shown).collect();
    let row = |own, op: &str, jobs, block, batch: &str| (own, op.to_string(), jobs, block, batch.to_string());
    assert_eq!(
        shown,
        [
            row(false, "sign", 64, 32, "1.."),
            row(true, "keygen", 1, 3, "1.."),
            row(true, "sign", 16, 64, "1..=64"),
            row(true, "sign", 256, 1, "65..=1024"),
            row(true, "sign", 4096, 128, "1025.."),
            row(true, "verify", 4096, 256, "1.."),
        ]
    );
}

#[test]
fn stale_and_damaged_tables_are_left_out_with_a_line_each() {
    let old = fake("old kernels");
    let backend = fake("");
    let device = &backend.devices().unwrap()[0];
    let good = table(&backend);
    let driver = Table { detail: "another driver".into(), ..good.clone() };
    let other = Table { device: "Fake 2".into(), ..good.clone() };
    let with = |axis: &str, value| {
        let mut table = good.clone();
        table.rows[0].axes.insert(axis.into(), value);
        table.text()
    };
    let changed = |change: fn(&mut Row)| {
        let mut table = good.clone();
        change(&mut table.rows[0]);
        table.text()
    };
    let tables = [
        source("stale", table(&old).text()),
        source("driver", driver.text()),
        source("other device", other.text()),
        source("garbage", "policy = 3 [".into()),
        source("half", good.text()[..good.text().len() / 2].into()),
        source("value", with("block", 512)),
        source("check", with("check", 0)),
        source("check1", with("check", 1)),
        source("threads", with(THREADS, 0)),
        source("threads-", with(THREADS, u32::MAX)),
        source("axis", with("tyle", 9)),
        source("big", good.text().replacen("block = 32", "block = 4294967328", 1)),
        source("time", changed(|row| row.seconds = -row.seconds)),
        source("long", changed(|row| row.seconds = 1e300)),
        source("short", changed(|row| row.seconds = 1e-300)),
        source("inf", changed(|row| row.seconds = f64::INFINITY)),
        source("nan", changed(|row| row.seconds = f64::NAN)),
        source("default", changed(|row| row.default_seconds = 1e300)),
        source("spread", changed(|row| row.spread = 1e300)),
        source("jobs", changed(|row| row.jobs = i64::MAX as usize)),
        source("none", changed(|row| (row.jobs, row.batch.least) = (0, 0))),
        source("good", good.text()),
    ];
    let known = TableKnowledge::new(&tables, &backend, device);
    assert_eq!(known.rows(), good.rows.len());
    let starts: Vec<&str> = known.notices.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let left_out: Vec<&str> = tables.iter().map(|table| &*table.name).collect();
    let left_out = left_out.into_iter().filter(|name| !["other", "good"].contains(&name.split(' ').next().unwrap()));
    assert_eq!(starts, left_out.collect::<Vec<_>>(), "{:#?}", known.notices);
    assert!(known.notices.iter().all(|line| !line.contains('\n')), "{:#?}", known.notices);
    for (name, said) in [
        ("value", "block = 512: it is one of [32, 64, 128, 256]"),
        ("check", "it sets check, which is not tuned"),
        ("threads", "threads = 0: it is 1 to"),
        ("long", "no measurement gives 64 jobs in 1"),
    ] {
        let line = known.notices.iter().find(|line| line.split(' ').next() == Some(name)).unwrap();
        assert!(line.contains(said) && line.contains("the row of 'sign'"), "{line}");
    }
    assert!(known.notices[0].contains("hypergrove tune"));
}

/// The searches would get a sample that no measurement gives.
#[test]
fn a_journals_damaged_lines_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fake.jsonl");
    let question = Question { set: "SLH-DSA-SHA2-128f".into(), op: "sign".into(), jobs: 64 };
    let mut journal = Journal::open(&path, &head("a")).unwrap();
    Recorded { journal: &mut journal, question: question.clone(), lab: Fake::new(0.0, 1) }.run(&base()).unwrap();
    drop(journal);
    let whole = std::fs::read_to_string(&path).unwrap();
    let (first, sample) = whole.split_once('\n').unwrap();
    let (start, rest) = sample.split_once("\"seconds\":").unwrap();
    let end = &rest[rest.find([',', '}']).unwrap()..];
    let with = |seconds: &str| format!("{start}\"seconds\":{seconds}{end}");
    let good = [sample.to_owned(), with("null")];
    let bad = ["-1.0", "0.0", "1e300", "1e-300", "1e999", "nan", "\"1\""].map(with);
    let jobs = sample.replace("\"jobs\":64", "\"jobs\":0");
    let text = [&[first.to_owned() + "\n"], &good[..], &bad, &[jobs, "garbage\n".into()]].concat().concat();
    std::fs::write(&path, text).unwrap();
    let journal = Journal::open(&path, &head("a")).unwrap();
    assert_eq!((journal.found, journal.damaged), (2, bad.len() + 2));
    drop(journal);
    let again = Journal::open(&path, &head("a")).unwrap();
    assert_eq!((again.found, again.damaged), (2, 0), "they are gone from the file");
}

#[test]
fn sizes_follow_each_other_without_a_gap() {
    for measured in [&[1][..], &[1, 2, 3], &[1, 16, 256, 4096], &[7, 65_536]] {
        let sizes = sizes(measured);
        let (mut next, last) = (1, sizes.len() - 1);
        for (i, size) in sizes.iter().enumerate() {
            assert_eq!(size.least, next);
            assert!((size.least..=size.most).contains(&measured[i]));
            assert_eq!(Sizes::try_from(String::from(*size)), Ok(*size));
            assert_eq!(size.most == usize::MAX, i == last);
            next = size.most.wrapping_add(1);
        }
    }
    for wrong in ["", "1", "..", "3..=2", "a..", "1..2"] {
        assert!(Sizes::try_from(wrong.to_string()).is_err(), "{wrong}");
    }
}

/// 300 rows, more than any device has; the bound is of the product, a thousand times what it takes.
#[test]
fn looking_up_takes_microseconds() {
    let backend = fake("");
    let device = backend.devices().unwrap().remove(0);
    let mut large = table(&backend);
    let rows = (0..300).map(|i| row(Some("SLH-DSA-SHA2-128s"), "sign", Sizes { least: 1 + i, most: 1 + i }, 1 + i, 64));
    large.rows.splice(0..0, rows);
    let known = TableKnowledge::new(&[source("large", large.text())], &backend, &device);
    let plan = Plan::new(&SLH_DSA_SHA2_128F, Op::Sign);
    let fastest = (0..200).map(|_| {
        let start = Instant::now();
        let found = known.choose(&backend, &device, &plan, 4096);
        let took = start.elapsed();
        assert_eq!(found.unwrap().policy.get("block"), Some(128));
        took
    });
    let fastest = fastest.min().unwrap();
    println!("checked: a row of {}: {fastest:?}", known.rows());
    assert!(fastest < Duration::from_millis(5), "{fastest:?}");
}
