//! SLH-DSA as a scheme of the engine: its jobs' modes, randomness and seeds, and how a backend runs each operation.

mod digests;
mod distinct;
mod engine;
mod inputs;
mod read_message;
mod run;
mod scheme;
mod trees;

pub use inputs::{JobMessage, Message, Randomizer, Seeds, SignJob, SlhDsa, VerifyJob};
pub use read_message::ReadMessage;
pub(crate) use run::host_isa;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{SigningKey, VerifyingKey};
    use crate::types::SchemeKey;
    use hypergrove_fips205::Mode;
    use hypergrove_testkit::toys::TOY_SHA2_16;
    use std::ptr;
    use std::sync::Arc;

    fn signing(bytes: &[u8]) -> SigningKey {
        SigningKey::from_bytes_unchecked(&TOY_SHA2_16, bytes).unwrap()
    }

    #[test]
    fn keys_are_told_apart_by_their_content() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let key = signing(&bytes);
        let with_nodes = key.with_nodes(1, vec![0; 7 * 16]);
        let others: Vec<SigningKey> = [0, 31, 32, 63]
            .map(|at| {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                signing(&bytes)
            })
            .into();
        let copies = [key.clone(), with_nodes.clone(), signing(&bytes), others[0].clone()];
        let keys = [
            &key,
            &copies[0],
            &others[0],
            &key,
            &with_nodes,
            &copies[2],
            &others[1],
            &copies[1],
            &others[2],
            &others[3],
            &copies[3],
        ];
        let (distinct, key_of) = SigningKey::distinct(&mut keys.into_iter());
        assert_eq!(key_of, [0, 0, 1, 0, 2, 0, 3, 2, 4, 5, 1]);
        let first = [&key, &others[0], &with_nodes, &others[1], &others[2], &others[3]];
        assert!(std::iter::zip(&distinct, first).all(|(a, b)| ptr::eq(*a, b)) && distinct.len() == 6);

        let public: Vec<VerifyingKey> = keys.iter().map(|key| key.verifying_key()).collect();
        let (distinct, key_of) = VerifyingKey::distinct(&mut public.iter());
        // The secret part makes no difference.
        assert_eq!((distinct.len(), &key_of[..]), (3, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0][..]));
    }

    #[test]
    fn a_job_borrows_owns_or_shares_its_key() {
        let key = signing(&[7; 64]);
        let shared = Arc::new(key.clone());
        for job in [SignJob::new(&key, b"m"), SignJob::new(key.clone(), b"m"), SignJob::new(shared.clone(), b"m")] {
            assert_eq!((&*job.key, job.mode), (&key, Mode::default()));
            assert!(matches!(job.message, JobMessage::Bytes(message) if *message == *b"m"));
        }
        let job = SignJob::new(shared, b"m").mode(Mode::Internal).context(b"c").deterministic();
        assert_eq!((job.mode, job.randomizer), (Mode::Pure { context: b"c" }, Randomizer::Deterministic));
        let public = key.verifying_key();
        let job = VerifyJob::new(public.clone(), b"m", vec![1]).context(b"c").mode(Mode::Internal);
        assert_eq!((&*job.key, job.mode), (&public, Mode::Internal));
    }
}
