//! Messages for programs that hash them by themselves, and what the host makes of them.

use crate::toys::{TOY_SHA2_16, TOY_SHA2_32, TOY_SHAKE_24};
use hypergrove_engine::{Backend, Batch, Digests, Error, Key, Policy};
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
    /// Whether jobs of one key have other roots.
    pub roots_differ: bool,
}

impl<'a> DigestJobs<'a> {
    /// So many jobs; the first message has `first` bytes.
    pub fn new(p: &'static Params, op: Op, (jobs, first): (usize, usize), text: &'a [u8]) -> DigestJobs<'a> {
        DigestJobs { p, op, jobs, first, text, is_queried: false, roots_differ: false }
    }
    fn part(&self, of: usize, job: usize) -> &'a [u8] {
        &self.text[of * 100 + job % KEYS..][..self.p.n]
    }
    /// PK.seed of a key.
    pub fn pk_seed(&self, key: usize) -> &'a [u8] {
        self.part(0, key)
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
            prf_msg(self.p, self.sk_prf(job), self.opt_rand(job), &self.m_prime(job), &mut r);
        }
        r
    }
}

/// Keys that jobs take in turn.
pub const KEYS: usize = 3;

impl Digests for DigestJobs<'_> {
    fn positions(&mut self) -> Vec<Position> {
        self.is_queried = true;
        let of = |job| Position::of(self.p, &self.r(job), self.pk_seed(job), self.pk_root(job), &self.m_prime(job));
        (0..self.jobs).map(of).collect()
    }
    fn positions_again(&mut self) -> Result<Vec<Position>, Error> {
        Ok(self.positions())
    }
    fn hashed_bytes(&self, job: usize) -> usize {
        let (mode, message) = self.mode(job);
        MPrime::bytes(mode, message)
    }
    fn m_prime(&self, job: usize) -> MPrime<'_> {
        let (mode, message) = self.mode(job);
        MPrime::new(mode, message).unwrap()
    }
    fn opt_rand(&self, job: usize) -> &[u8] {
        if self.op == Op::Sign { &self.text[500 + job..][..self.p.n] } else { &[] }
    }
    fn pk_root(&self, job: usize) -> &[u8] {
        self.part(1, if self.roots_differ { job / KEYS } else { job })
    }
    fn sk_prf(&self, job: usize) -> &[u8] {
        if self.op == Op::Sign { self.part(2, job) } else { &[] }
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
        let seeds: Vec<[&[u8]; 2]> = (0..KEYS).map(|key| [digests.pk_seed(key), &text[3000 + key..][..n]]).collect();
        let key = |[pk_seed, sk_seed]: [_; 2]| Key { pk_seed, sk_seed, cached_nodes: &[], cached_id: 0 };
        let keys: Vec<_> = seeds.iter().map(|seeds| key(*seeds)).collect();
        let key_of: Vec<u32> = (0..jobs).map(|job| (job % KEYS) as u32).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &[] };

        // The host's digests, and its R.
        let mut expected = vec![0; jobs * size];
        let positions = digests.positions();
        prepare(&plan, 0).run(&Batch { positions: &positions, ..batch }, &mut expected).expect("signed");
        expected.chunks_exact_mut(size).enumerate().for_each(|(job, row)| row[..n].copy_from_slice(&digests.r(job)));

        digests.is_queried = false;
        let mut signs = prepare(&plan, 512);
        // The second time as a recording; and of both kinds in turn.
        for twice in [false, false, true, true, true, false, true] {
            let mut got = vec![7; jobs * size];
            let (first, last) = got.split_at_mut(7 * size);
            let done = signs.run_held(&batch, &mut digests, &mut [first, last], &mut |_| Ok(()), twice);
            done.expect("held").expect("signed");
            assert!(got == expected && !digests.is_queried, "{p}");
        }
        for twice in [false, true] {
            // A message that is too long for it has the host hash all.
            let mut again = vec![7; jobs * size];
            let done =
                prepare(&plan, 128).run_held(&batch, &mut digests, &mut [&mut again[..]], &mut |_| Ok(()), twice);
            done.expect("held").expect("signed");
            let rest = |bytes: &[u8]| bytes.chunks_exact(size).flat_map(|row| row[n..].to_vec()).collect::<Vec<u8>>();
            assert!(digests.is_queried && rest(&again) == rest(&expected) && again[..n] == vec![7; n], "{p}");

            // And one whose key has another root than before. The device has R of earlier batches, and does not compare it.
            (digests.is_queried, digests.roots_differ) = (false, true);
            let done = signs.run_held(&batch, &mut digests, &mut [&mut again[..]], &mut |_| Ok(()), twice);
            done.expect("held").expect("signed");
            assert!(digests.is_queried, "{p}");
            (digests.is_queried, digests.roots_differ) = (false, false);
        }

        let Some(memory) = backend.host_memory() else { continue };
        let Ok(mut reached) = memory.allocate(device, jobs * size) else { continue };
        reached.bytes_mut().copy_from_slice(&expected);
        let mut digests = DigestJobs::new(p, Op::Verify, (jobs, 0), &text);
        for (job, row) in reached.bytes_mut().chunks_exact_mut(size).enumerate() {
            row[..n].copy_from_slice(&digests.r(job));
        }
        let signatures: Vec<&[u8]> = reached.bytes().chunks_exact(size).collect();
        let keys: Vec<_> = seeds.iter().map(|[pk_seed, _]| key([pk_seed, &[]])).collect();
        let batch = Batch { keys: &keys, key_of: &key_of, positions: &[], signatures: &signatures };
        let plan = Plan::new(p, Op::Verify);
        let [mut by_host, mut by_device] = [(); 2].map(|()| vec![0; jobs * n]);
        let positions = digests.positions();
        prepare(&plan, 0).run(&Batch { positions: &positions, ..batch }, &mut by_host).expect("verified");
        digests.is_queried = false;
        prepare(&plan, 512).run_fetched(&batch, &mut digests, &mut by_device).expect("fetched").expect("verified");
        assert!(by_device == by_host && !digests.is_queried, "{p}");
    }
}
