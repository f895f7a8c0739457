//! Messages for programs that hash them by themselves, and what the host makes of them.

use crate::toys::{TOY_SHA2_16, TOY_SHA2_32, TOY_SHAKE_24};
use hypergrove_engine::Places::{Both, Other, Usual};
use hypergrove_engine::{Backend, Batch, Digests, Error, Key, Policy, Work};
use hypergrove_fips205::digest::prf_msg;
use hypergrove_fips205::plan::{Op, Plan};
use hypergrove_fips205::{MPrime, Mode, Params, Position, PreHash};

/// Jobs with messages of many lengths in every mode, in turn under three keys.
pub struct DigestJobs<'a> {
    p: &'static Params,
    op: Op,
    jobs: usize,
    first: usize,
    text: &'a [u8],
    /// Whether the host was queried for positions.
    pub is_queried: bool,
}

impl<'a> DigestJobs<'a> {
    /// So many jobs; the first message has `first` bytes.
    pub fn new(p: &'static Params, op: Op, (jobs, first): (usize, usize), text: &'a [u8]) -> DigestJobs<'a> {
        DigestJobs { p, op, jobs, first, text, is_queried: false }
    }
    fn part(&self, of: usize, key: usize) -> &'a [u8] {
        &self.text[of..][key % KEYS..][..self.p.n]
    }
    /// A key, with its private parts if the jobs sign.
    pub fn key(&self, key: usize) -> Key<'a> {
        let secret = |of| if self.op == Op::Sign { self.part(of, key) } else { &[] };
        let (pk_root, sk_prf) = (self.part(100, key), secret(200));
        Key { pk_root, sk_prf, ..Key::of_seeds(self.part(0, key), secret(3000)) }
    }
    /// The keys of all jobs.
    pub fn keys(&self) -> [Key<'a>; KEYS] {
        std::array::from_fn(|key| self.key(key))
    }
    fn mode(&self, job: usize) -> (Mode<'_>, &[u8]) {
        let (context, bytes) = (&self.text[..job * 7 % 256], self.first + job);
        let mode = match job % 4 {
            0 => Mode::Internal,
            1 => Mode::Pure { context: &[] },
            2 => Mode::Pure { context },
            _ => Mode::PreHash { context, hash: PreHash::ALL[job % 12] },
        };
        (mode, &self.text[job..][..bytes])
    }
    /// R, as a signature has it.
    pub fn r(&self, job: usize) -> Vec<u8> {
        let mut r = self.text[900 + job..][..self.p.n].to_vec();
        if self.op == Op::Sign {
            prf_msg(self.p, self.key(job).sk_prf, self.opt_rand(job), &self.m_prime(job), &mut r);
        }
        r
    }
}

/// Keys that jobs take in turn.
pub const KEYS: usize = 3;

impl Digests for DigestJobs<'_> {
    fn positions(&mut self) -> Result<Vec<Position>, Error> {
        self.is_queried = true;
        Ok((0..self.jobs).map(|job| self.position(self.p, job, &self.r(job), &self.key(job))).collect())
    }
    fn longest(&self) -> usize {
        let bytes = |job| {
            let (mode, message) = self.mode(job);
            MPrime::bytes(mode, message)
        };
        (0..self.jobs).map(bytes).max().unwrap_or(0)
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let (mode, message) = self.mode(job);
        MPrime::new(mode, message).unwrap()
    }
    fn opt_rand(&self, job: usize) -> &[u8] {
        if self.op == Op::Sign { &self.text[500 + job..][..self.p.n] } else { &[] }
    }
}

/// The bytes that messages, keys and all else are cut out of.
pub fn text() -> Vec<u8> {
    (0..4000u32).map(|i| (i.wrapping_mul(i).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Whole signatures, R too, from messages that the device hashes, into one and into several parts; and their verification.
pub fn check(backend: &dyn Backend) {
    let device = &backend.devices().expect("devices")[0];
    let (programs, text, jobs) = (backend.slh_dsa_on(device).expect("SLH-DSA"), text(), 20);
    for p in [&TOY_SHA2_16, &TOY_SHAKE_24, &TOY_SHA2_32] {
        let (plan, n, size) = (Plan::new(p, Op::Sign), p.n, p.sig_bytes());
        if !programs.space(device, &plan).expect("a space").iter().any(|axis| axis.name == "digest") {
            return;
        }
        let prepare = |plan: &Plan, most| {
            programs.prepare(device, plan, jobs, &Policy(vec![("digest", most)])).expect("prepared")
        };
        let mut digests = DigestJobs::new(p, Op::Sign, (jobs, 0), &text);
        let keys = digests.keys();
        let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };

        // The host's digests, and its R.
        let mut expected = vec![0; jobs * size];
        let positions = digests.positions().expect("positions");
        let with_positions = Batch { positions: &positions, ..batch };
        prepare(&plan, 0).run_batch(&with_positions, &mut expected).expect("signed");
        expected.chunks_exact_mut(size).enumerate().for_each(|(job, row)| row[..n].copy_from_slice(&digests.r(job)));

        digests.is_queried = false;
        let mut signs = prepare(&plan, 512);
        // The second time as a recording; and of both kinds in turn.
        for places in [Usual, Usual, Both, Both, Both, Usual, Both, Other, Usual] {
            let mut got = vec![7; jobs * size];
            let (first, last) = got.split_at_mut(7 * size);
            let work = Work { digests: Some(&mut digests), places, ..Work::of(&batch) };
            signs.run(work, &mut [first, last]).expect("signed");
            assert!(got == expected && !digests.is_queried, "{p} {places:?}");
        }
        for places in [Usual, Both] {
            // A message that is too long for it has the host hash all.
            let mut again = vec![7; jobs * size];
            let work = Work { digests: Some(&mut digests), places, ..Work::of(&batch) };
            prepare(&plan, 128).run(work, &mut [&mut again]).expect("signed");
            let rest = |bytes: &[u8]| bytes.chunks_exact(size).flat_map(|row| row[n..].to_vec()).collect::<Vec<u8>>();
            assert!(digests.is_queried && rest(&again) == rest(&expected), "{p} {places:?}");
            digests.is_queried = false;
        }

        let Some(memory) = backend.host_memory() else { continue };
        let Ok(mut reached) = memory.allocate(device, jobs * size) else { continue };
        reached.bytes_mut().copy_from_slice(&expected);
        let mut digests = DigestJobs::new(p, Op::Verify, (jobs, 0), &text);
        for (job, row) in reached.bytes_mut().chunks_exact_mut(size).enumerate() {
            row[..n].copy_from_slice(&digests.r(job));
        }
        let signatures: Vec<&[u8]> = reached.bytes().chunks_exact(size).collect();
        let keys = digests.keys();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &signatures };
        let plan = Plan::new(p, Op::Verify);
        let [mut by_host, mut by_device] = [(); 2].map(|()| vec![0; jobs * n]);
        let positions = digests.positions().expect("positions");
        prepare(&plan, 0).run_batch(&Batch { positions: &positions, ..batch }, &mut by_host).expect("verified");
        digests.is_queried = false;
        let work = Work { digests: Some(&mut digests), ..Work::of(&batch) };
        prepare(&plan, 512).run(work, &mut [&mut by_device]).expect("verified");
        assert!(by_device == by_host && !digests.is_queried, "{p}");
    }
}
