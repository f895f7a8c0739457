//! Compares each kernel alone with the reference, so that a failure names the kernel that is wrong.

use crate::gpu::{Gpu, Launch, Queue, Step};
use crate::host::HostGpu;
use hypergrove_fips205::Family;
use hypergrove_kernels::Config;
use hypergrove_kernels::arguments::{
    AbsorbMessage, AbsorbTr, Arguments, Draw, ExpandA, ExpandS, ExpandY, HashPublic, PrepareKeys,
};
use hypergrove_kernels::zk::flags::OF_PUBLIC;
use hypergrove_kernels::zk::*;
use hypergrove_zkdilithium::digest::state_after_tr;
use hypergrove_zkdilithium::keys::SigningKey;
use hypergrove_zkdilithium::ntt::ntt;
use hypergrove_zkdilithium::params::*;
use hypergrove_zkdilithium::poseidon::{ROUND_CONSTANTS, permute};
use hypergrove_zkdilithium::sample::{expand_a, expand_s, expand_y};
use hypergrove_zkdilithium::{Fe, Message, Trace, reference};
use std::sync::Arc;

/// Memory for kernels that tests launch one by one.
struct Bench {
    gpu: Arc<HostGpu>,
    fp64: u32,
}

type Memory = <HostGpu as Gpu>::Memory;

impl Bench {
    /// Runs a test with both ways to compute Poseidon.
    fn each(test: impl Fn(&Bench)) {
        (0..2).for_each(|fp64| test(&Bench { gpu: Arc::new(HostGpu::new(false)), fp64 }));
    }
    /// Memory that begins with these words.
    fn words(&self, words: &[u32], room: usize) -> Memory {
        let memory = self.gpu.alloc(4 * room.max(words.len())).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        HostGpu::host_write(&memory, 0, &bytes);
        memory
    }
    fn launch<A: Arguments>(&self, total: u32, arguments: A) {
        let config = Config { family: Family::Shake, n: 16, defines: vec![("FP64", self.fp64)] };
        let kernels = self.gpu.kernels(&config, &[(A::KERNEL, 5)]).unwrap();
        let launch = Launch { kernel: A::KERNEL, blocks: 3, threads: 5, args: arguments.args(total) };
        self.gpu.queue().unwrap().submit(&kernels, &[Step::Launch(launch)]).unwrap();
    }
}

fn at(memory: &Memory) -> u64 {
    HostGpu::address(memory)
}

fn read(memory: &Memory, from: usize, count: usize) -> Vec<u32> {
    words_of(HostGpu::host_view(memory, 4 * from..4 * (from + count)))
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

fn key(number: u8) -> SigningKey {
    reference::keygen(&[number; 32])
}

/// The class of a signed word.
fn class(word: u32) -> Fe {
    Fe::new((word as i32).rem_euclid(Q as i32) as u32)
}

#[test]
fn samplers() {
    Bench::each(|bench| {
        let keys = [key(1), key(2)];
        let raw = bench.words(&keys.each_ref().map(|key| words_of(&key.to_bytes())).concat(), 0);
        let expanded = bench.words(&[], 2 * KEY_SIZE);
        bench.launch(32, ExpandA { raw: at(&raw), raw_words: (SK_BYTES / 4) as u32, keys: at(&expanded) });
        for (i, key) in keys.iter().enumerate() {
            let a: Vec<u32> = expand_a(key.rho()).as_flattened().iter().flat_map(|a| a.0).map(Fe::value).collect();
            assert!(read(&expanded, i * KEY_SIZE, K * L * N) == a);
        }

        // rho' is words 8 to 23.
        let grown = [[7u32; 8], [0x0102_0304; 8], [0xfffe_fdfc; 8], [9; 8]].concat();
        let (seeds, short) = (bench.words(&grown, 0), bench.words(&[], 8 * SHORT_SIZE));
        bench.launch(8, ExpandS { grown: at(&seeds), short: at(&short) });
        let rho_prime: Vec<u8> = grown[8..24].iter().flat_map(|word| word.to_le_bytes()).collect();
        let (s1, s2) = expand_s(&rho_prime);
        let codes = s1.iter().chain(&s2).flat_map(|s| s.0).map(|x| (2 - x.centred()) as u32);
        let found = read(&short, 0, 8 * SHORT_SIZE);
        assert!(codes.enumerate().all(|(i, code)| found[i / 8] >> (4 * (i % 8)) & 15 == code));

        // rho'' follows mu and the state after it; the second attempt's kappa goes beyond a byte.
        let start: Vec<u32> = (0..2 * START_SIZE as u32).map(|i| i * 0x0101_0101).collect();
        let tries = [[1, 0], [0, 254]];
        let (starts, tries_at) = (bench.words(&start, 0), bench.words(tries.as_flattened(), 0));
        let made = bench.words(&[], 2 * MADE_SIZE);
        bench.launch(8, ExpandY { attempts: at(&tries_at), starts: at(&starts), made: at(&made) });
        for (i, [job, kappa]) in tries.into_iter().enumerate() {
            let rho2 = &start[job as usize * START_SIZE + 59..][..16];
            let rho2: Vec<u8> = rho2.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut packed = [0; L * GAMMA1_BYTES];
            for (y, out) in expand_y(&rho2, kappa as u16).iter().zip(packed.chunks_exact_mut(GAMMA1_BYTES)) {
                hypergrove_zkdilithium::pack::pack_gamma1(y, out);
            }
            assert!(read(&made, i * MADE_SIZE, L * GAMMA1_BYTES / 4) == words_of(&packed), "{kappa}");
        }
    });
}

#[test]
fn keys_made_ready() {
    Bench::each(|bench| {
        let key = key(3);
        let (raw, expanded) = (bench.words(&words_of(&key.to_bytes()), 0), bench.words(&[], KEY_SIZE));
        bench.launch(1, PrepareKeys { raw: at(&raw), keys: at(&expanded), flags: 0 });
        let hats = key.s1().iter().chain(key.s2().iter()).flat_map(|s| ntt(s).0).collect::<Vec<Fe>>();
        assert!(read(&expanded, KEY_A_WORDS, 2 * L * N).into_iter().map(class).eq(hats));
        assert!(read(&expanded, KEY_TR, 8) == words_of(key.tr()));
        bench.launch(1, AbsorbTr { keys: at(&expanded) });
        let state = state_after_tr(key.tr(), &mut Trace::default()).map(Fe::value);
        assert_eq!(read(&expanded, KEY_A_WORDS + 2 * L * N, T), state);

        let public = key.verifying_key();
        let raw = bench.words(&words_of(public.as_bytes()), 0);
        bench.launch(1, PrepareKeys { raw: at(&raw), keys: at(&expanded), flags: OF_PUBLIC });
        let t_hat = public.expand().t_hat().iter().flat_map(|t| t.0).collect::<Vec<Fe>>();
        assert!(read(&expanded, KEY_A_WORDS, K * N).into_iter().map(class).eq(t_hat));
        let (raw_words, to_words) = ((PK_BYTES / 4) as u32, KEY_SIZE as u32);
        let (t_at, tr_at) = (PK_T as u32, KEY_TR as u32);
        bench.launch(1, HashPublic { raw: at(&raw), raw_words, t_at, to: at(&expanded), to_words, tr_at });
        assert!(read(&expanded, KEY_TR, 8) == words_of(&public.tr()));
    });
}

/// The words of A, before s1.
const KEY_A_WORDS: usize = K * L * N;

#[test]
fn sponge() {
    Bench::each(|bench| {
        let expanded = key(4).expand();
        let mut key_words = vec![0; KEY_SIZE];
        for (word, cell) in key_words[KEY_A_WORDS + 2 * L * N..].iter_mut().zip(expanded.state_after_tr()) {
            *word = cell.value();
        }
        // A block that has a zero enter every S-box of the rate, in the first round.
        let zeros: [Fe; RATE] = std::array::from_fn(|i| -(expanded.state_after_tr()[i] + ROUND_CONSTANTS[0][i]));
        let texts: Vec<Vec<u8>> = [0, 1, 2, 47, 48, 49, 96, 100].map(|bytes| vec![0xff; bytes]).to_vec();
        let messages: Vec<Message<'_>> = texts
            .iter()
            .map(|text| Message::Bytes(text))
            .chain([Message::Block(&zeros), Message::Mu(&zeros)])
            .collect();
        let (mut table, mut words) = (Vec::new(), Vec::new());
        for message in &messages {
            let (kind, more) = match message {
                Message::Bytes(bytes) => {
                    let mut padded = bytes.to_vec();
                    padded.resize(bytes.len().next_multiple_of(4), 0xaa);
                    (bytes.len() as u32, words_of(&padded))
                }
                Message::Block(elements) => (IS_BLOCK, elements.map(Fe::value).to_vec()),
                Message::Mu(elements) => (IS_MU, elements.map(Fe::value).to_vec()),
            };
            table.extend([0, words.len() as u32, kind]);
            words.extend(more);
        }
        let (keys, jobs) = (bench.words(&key_words, 0), bench.words(&table, 0));
        let (words, starts) = (bench.words(&words, 1), bench.words(&[], messages.len() * START_SIZE));
        let total = messages.len() as u32;
        let (keys, jobs, messages_at) = (at(&keys), at(&jobs), at(&words));
        bench.launch(total, AbsorbMessage { keys, jobs, messages: messages_at, starts: at(&starts) });
        for (i, message) in messages.iter().enumerate() {
            let mut trace = Trace::default();
            let mu = message.mu(expanded.state_after_tr(), &mut trace);
            assert_eq!(trace.zero_inputs, if i == 8 { RATE as u64 } else { 0 });
            assert_eq!(read(&starts, i * START_SIZE, RATE), mu.map(Fe::value), "{message:?}");
            let mut state = [Fe::ZERO; T];
            state[..RATE].copy_from_slice(&mu);
            permute(&mut state, &mut trace);
            assert_eq!(read(&starts, i * START_SIZE + RATE, T), state.map(Fe::value), "{message:?}");
        }

        // Ball's draws of c~ = 1, 2, …
        let mut made_words = vec![0; MADE_SIZE];
        let c: Vec<u32> = (1..=CSIZE as u32).collect();
        made_words[MADE_C..][..CSIZE].copy_from_slice(&c);
        let made = bench.words(&made_words, 0);
        bench.launch(1, Draw { made: at(&made) });
        let mut state = [Fe::ZERO; T];
        state[0] = Fe::new(2);
        state[1..=CSIZE].copy_from_slice(&std::array::from_fn::<_, CSIZE, _>(|i| Fe::new(c[i])));
        for group in 0..5 {
            permute(&mut state, &mut Trace::default());
            assert_eq!(read(&made, MADE_C + CSIZE + 9 * group, 9), state.map(Fe::value)[..9]);
        }
    });
}
