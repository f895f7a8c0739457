//! The engine's calls for SLH-DSA alone: one message, and all that concerns a key's trees.

use super::inputs::{Randomizer, SignJob, VerifyJob};
use super::trees::NodesJob;
use crate::engine::Engine;
use crate::keys::{Signature, SigningKey, VerifyingKey};
use crate::run::{Sign, Verify};
use hypergrove_engine::Error;
use hypergrove_engine::scheduler::Worker;
use hypergrove_fips205::Mode;
use hypergrove_fips205::plan::{cache_bytes, most_cached_layers};

impl Engine {
    /// Computes PK.root from the seeds. If it is not the key's own, the error is [`Error::KeyDamaged`]. A program may check a key once
    /// after it has read the key from a file. Signing finds a wrong root, too.
    pub fn check(&self, key: &SigningKey) -> Result<(), Error> {
        self.0.scheduler.one(None, NodesJob(key, 0)).map(drop)
    }

    /// Signs one message with SLH-DSA; [`run`](Engine::run) signs with any scheme. The error is [`Error::KeyDamaged`] for a damaged key, and
    /// [`Error::Value`] for a message that does not fit the mode.
    ///
    /// FIPS 205, Algorithms 22 and 23; with [`Mode::Internal`] Algorithm 19.
    pub fn sign(
        &self,
        key: &SigningKey,
        mode: Mode<'_>,
        message: &[u8],
        randomizer: Randomizer<'_>,
    ) -> Result<Signature, Error> {
        self.0.scheduler.one(None, Sign::from(SignJob::new(key, message).mode(mode).randomizer(randomizer)))
    }

    /// Verifies one signature of SLH-DSA: `true` if the key signed this message in this mode, `false` also for a signature of the wrong length.
    /// [`run`](Engine::run) verifies with any scheme.
    ///
    /// FIPS 205, Algorithms 24 and 25; with [`Mode::Internal`] Algorithm 20.
    pub fn verify(&self, key: &VerifyingKey, mode: Mode<'_>, message: &[u8], signature: &[u8]) -> Result<bool, Error> {
        self.0.scheduler.one(None, Verify::from(VerifyJob::new(key, message, signature).mode(mode)))
    }

    /// Returns this key with the nodes of its top `layers` layers, which makes the same signatures with less work. One layer is the usual
    /// choice; 0 drops the nodes. [`cache_bytes`] gives their size.
    pub fn cache(&self, key: &SigningKey, layers: usize) -> Result<SigningKey, Error> {
        if layers == 0 {
            return Ok(key.without_nodes());
        }
        let scheduler = self.0.scheduler.of_call();
        let nodes = scheduler.one(None, NodesJob(key, layers))?;
        // A wrong node below the top tree would be signed with a one-time key that signs the right node elsewhere.
        let is_discrete = scheduler.live().any(Worker::is_discrete);
        if is_discrete && scheduler.one(None, NodesJob(key, layers))? != nodes {
            let what = format!("the nodes of {layers} layers differ when they are computed again");
            return Err(Error::Inconsistent { device: self.device().id(), what });
        }
        Ok(key.with_nodes(layers, nodes))
    }

    /// Returns this key with the nodes of as many top layers as fit into `bytes`, and at most of as many as can be cached; see
    /// [`Engine::cache`]. If the layers need more memory than the engine has, that is an error.
    pub fn cache_within(&self, key: &SigningKey, bytes: usize) -> Result<SigningKey, Error> {
        let p = key.params();
        let fits = |layers: &usize| cache_bytes(p, *layers).is_some_and(|needs| needs <= bytes);
        let layers = (1..=most_cached_layers(p)).take_while(fits).count();
        self.cache(key, layers)
    }
}
