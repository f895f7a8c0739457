//! Tests that every device that computes zkDilithium must pass. One line runs them all, [`zk_tests!`](crate::zk_tests).

use crate::zkdilithium::{boundary, public, special, verify_only};
use hypergrove_engine::{Axis, Error, Places, Timing, ZkDilithium, ZkSign, ZkVerify, forward};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{
    Fe, Message, Op, Signature, SignatureBytes, SigningKey, SigningKeyBytes, Trace, VerifyingKey, reference,
};

/// Makes a module of tests that all call this suite; `$zk` is an `Option` of something that computes zkDilithium,
/// `None` where the machine cannot, which is said by name.
#[macro_export]
macro_rules! zk_tests {
    ($name:ident, $zk:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::zk_tests!(@each $name, $zk, vectors batches_of_every_size elements_instead_of_bytes other_places);
        }
    };
    (@each $name:ident, $zk:expr, $($test:ident)*) => { $(
        #[test]
        fn $test() {
            match $zk {
                Some(mut zk) => $crate::zk_suite::$test(&mut *zk),
                None => println!("skipped: {}: {}: not on this machine", stringify!($name), stringify!($test)),
            }
        }
    )* };
}

/// Where bytesToFes and the sponge have edges, and beyond.
pub const LENGTHS: [usize; 17] = [0, 1, 23, 24, 25, 46, 47, 48, 49, 50, 94, 95, 96, 97, 98, 1000, 10000];

/// Bytes that look random.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| byte()).collect()
}

/// Makes the keys of these seeds, each in memory of its own.
pub fn keygen_to_vec(
    program: &mut dyn ZkDilithium,
    seeds: &[[u8; SEED_BYTES]],
    places: Places,
) -> Result<Vec<SigningKey>, Error> {
    let mut keys: Vec<SigningKey> = seeds.iter().map(|_| SigningKey::zeros()).collect();
    let mut to: Vec<_> = keys.iter_mut().map(SigningKey::secret_bytes_mut).collect();
    program.keygen(seeds, &mut to, places)?;
    Ok(keys)
}

/// Signs these jobs, each signature in memory of its own.
pub fn sign_to_vec(
    program: &mut dyn ZkDilithium,
    jobs: &[ZkSign<'_>],
    places: Places,
) -> Result<Vec<Signature>, Error> {
    let mut signatures: Vec<Signature> = jobs.iter().map(|_| Signature::zeros()).collect();
    let mut to: Vec<_> = signatures.iter_mut().map(Signature::bytes_mut).collect();
    program.sign(jobs, &mut to, places)?;
    Ok(signatures)
}

fn keygen(zk: &mut dyn ZkDilithium, seeds: &[[u8; 32]]) -> Vec<SigningKey> {
    keygen_to_vec(zk, seeds, Places::Usual).expect("keys")
}

fn sign(zk: &mut dyn ZkDilithium, jobs: &[ZkSign<'_>]) -> Vec<Signature> {
    sign_to_vec(zk, jobs, Places::Usual).expect("signatures")
}

fn verify(zk: &mut dyn ZkDilithium, jobs: &[ZkVerify<'_>]) -> Vec<bool> {
    let mut verdicts = Vec::new();
    zk.verify(jobs, &mut verdicts, Places::Usual).expect("verdicts");
    verdicts
}

/// All vectors with their mutations, rare branches among them: no challenge, zeros in S-boxes, norms at their bounds, κ
/// beyond a byte.
pub fn vectors(zk: &mut dyn ZkDilithium) {
    let cases: Vec<_> = public().into_iter().chain(special()).chain(boundary()).collect();
    let seeds: Vec<[u8; 32]> = cases.iter().map(|case| case.seed[..].try_into().expect("32 bytes")).collect();
    let keys = keygen(zk, &seeds);
    for (case, key) in cases.iter().zip(&keys) {
        assert!(*key.to_bytes() == case.sk && key.verifying_key().as_bytes() == case.pk, "the key of {}", case.id);
    }
    let jobs: Vec<_> = cases.iter().zip(&keys).map(|(case, key)| ZkSign::new(key, Message::Bytes(&case.msg))).collect();
    for (case, signature) in cases.iter().zip(sign(zk, &jobs)) {
        assert!(signature.as_bytes() == case.sig, "the signature of {}", case.id);
    }
    // Public key, message, signature, verdict.
    let whole = cases.iter().map(|case| ((case.pk.clone(), case.msg.clone(), case.sig.clone()), true));
    let altered = cases.iter().flat_map(|case| case.verify_mutations.iter().map(|m| (m.apply(case), m.expect)));
    let alone = verify_only().into_iter().map(|case| ((case.pk, case.msg, case.sig), case.expect));
    // A key of the wrong length is refused before it comes here.
    let inputs: Vec<_> = whole
        .chain(altered)
        .chain(alone)
        .filter_map(|((pk, msg, sig), expect)| Some((VerifyingKey::from_bytes(&pk).ok()?, msg, sig, expect)))
        .collect();
    let jobs: Vec<_> =
        inputs.iter().map(|(key, msg, signature, _)| ZkVerify::new(key, Message::Bytes(msg), signature)).collect();
    let expected: Vec<bool> = inputs.iter().map(|(.., expect)| *expect).collect();
    assert_eq!(verify(zk, &jobs), expected);
}

/// None, one, few and more; one key and several; messages of every length: signatures and verdicts are the reference's.
pub fn batches_of_every_size(zk: &mut dyn ZkDilithium) {
    for (messages, keys) in [(0, 1), (1, 1), (3, 2), (17, 17), (180, 3)] {
        let first = 1000 * messages as u64;
        let seeds: Vec<[u8; 32]> = (0..keys).map(|i| bytes(first + i, 32).try_into().expect("32 bytes")).collect();
        let pairs = keygen(zk, &seeds);
        for (seed, pair) in seeds.iter().zip(&pairs) {
            assert!(reference::keygen(seed) == *pair, "the key of {seed:02x?}");
        }
        let texts: Vec<_> = (0..messages).map(|i| bytes(first + i as u64, LENGTHS[i % LENGTHS.len()])).collect();
        let of = |i: usize| i % pairs.len();
        let jobs: Vec<_> =
            texts.iter().enumerate().map(|(i, text)| ZkSign::new(&pairs[of(i)], Message::Bytes(text))).collect();
        let mut signatures: Vec<Vec<u8>> = sign(zk, &jobs).into_iter().map(Vec::from).collect();
        let signing: Vec<_> = pairs.iter().map(SigningKey::expand).collect();
        for (i, (job, signature)) in jobs.iter().zip(&signatures).enumerate() {
            let expected = reference::sign(&signing[of(i)], job.message, &mut Trace::default());
            assert!(*signature == expected.as_bytes(), "message {i} of {messages}");
        }
        // One bit of every third is flipped, one in five is cut short.
        for (i, signature) in signatures.iter_mut().enumerate() {
            let at = i * 7919 % signature.len();
            signature[at] ^= u8::from(i % 3 == 2) << (i % 8);
            signature.truncate(if i % 5 == 4 { at } else { signature.len() });
        }
        let public: Vec<_> = pairs.iter().map(SigningKey::verifying_key).collect();
        let jobs: Vec<_> =
            (0..messages).map(|i| ZkVerify::new(&public[of(i)], Message::Bytes(&texts[i]), &signatures[i])).collect();
        let expected: Vec<bool> = (0..messages).map(|i| i % 3 != 2 && i % 5 != 4).collect();
        assert_eq!(verify(zk, &jobs), expected);
    }
}

/// A program whose runs are all in other places.
struct Relocated<'z>(&'z mut dyn ZkDilithium);

impl ZkDilithium for Relocated<'_> {
    fn space(&self) -> Vec<Axis> {
        self.0.space()
    }
    fn poseidon_rate(&self, clock: Option<f64>) -> Option<f64> {
        self.0.poseidon_rate(clock)
    }
    fn uses_expanded_keys(&self) -> bool {
        self.0.uses_expanded_keys()
    }
    fn jobs(&self, op: Op) -> usize {
        self.0.jobs(op)
    }
    fn queue(&self, op: Op) -> u32 {
        self.0.queue(op)
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn keygen(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys: &mut [&mut SigningKeyBytes],
        _: Places,
    ) -> Result<Timing, Error> {
        self.0.keygen(seeds, keys, Places::Other)
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        _: Places,
    ) -> Result<Timing, Error> {
        self.0.sign(jobs, signatures, Places::Other)
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, _: Places) -> Result<Timing, Error> {
        self.0.verify(jobs, out, Places::Other)
    }
    forward!(self => self.0; time_limit);
}

/// The results are the same in other places of the device.
pub fn other_places(zk: &mut dyn ZkDilithium) {
    let zk = &mut Relocated(zk);
    vectors(zk);
    batches_of_every_size(zk);
    elements_instead_of_bytes(zk);
}

/// Blocks of field elements and μ itself, among bytes.
pub fn elements_instead_of_bytes(zk: &mut dyn ZkDilithium) {
    let key = reference::keygen(&[9; 32]);
    let (signing, public) = (key.expand(), key.verifying_key());
    let block = std::array::from_fn(|i| Fe::new(1_000_003 * i as u32));
    let messages = [Message::Block(&block), Message::Bytes(b"between"), Message::Mu(&block), Message::Bytes(b"")];
    let signatures = sign(zk, &messages.map(|message| ZkSign::new(&key, message)));
    for (message, signature) in messages.iter().zip(&signatures) {
        assert!(*signature == reference::sign(&signing, *message, &mut Trace::default()), "{message:?}");
    }
    let jobs: Vec<_> = (messages.iter().zip(&signatures))
        .map(|(message, signature)| ZkVerify::new(&public, *message, signature.as_bytes()))
        .collect();
    assert_eq!(verify(zk, &jobs), [true; 4]);
}
