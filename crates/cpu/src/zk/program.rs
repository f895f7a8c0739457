//! The lanes as a program of the engine. It expands keys if the caller has not done so, and with redundancy it computes everything once more in
//! other lanes.

use super::{MOST, ZkDilithium};
use crate::{Cpu, CpuPolicy};
use hypergrove_engine::{
    Axis, Device, Error, Places, Policy, THREADS, Timing, ZkDilithiumPrograms, ZkSign, ZkVerify, wiped,
};
use hypergrove_lanes::{Isa, Lattice};
use hypergrove_zkdilithium::params::SEED_BYTES;
use hypergrove_zkdilithium::{Op, SignatureBytes, SigningKeyBytes};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Jobs of one call for each thread, enough to keep lanes filled.
const JOBS_OF_A_THREAD: usize = 2 * MOST;

/// A function that wraps the lanes' arithmetic in another.
pub type LatticeWrapper = Arc<dyn Fn(Box<dyn Lattice>) -> Box<dyn Lattice> + Send + Sync>;

impl Cpu {
    /// zkDilithium over other arithmetic than the instruction set's own: for tests that put faults in.
    #[doc(hidden)]
    pub fn zkdilithium_over(
        &self,
        over: LatticeWrapper,
        policy: &Policy,
    ) -> Result<Box<dyn hypergrove_engine::ZkDilithium>, Error> {
        Ok(Box::new(CpuZk::new(self.isa, Some(over), policy)?))
    }
}

impl ZkDilithiumPrograms for Cpu {
    fn prepare(&self, _: &Device, policy: &Policy) -> Result<Box<dyn hypergrove_engine::ZkDilithium>, Error> {
        Ok(Box::new(CpuZk::new(self.isa, None, policy)?))
    }
}

pub(crate) struct CpuZk {
    threads: usize,
    lanes: ZkDilithium,
}

impl CpuZk {
    /// A program for this instruction set, which the CPU must have.
    pub(crate) fn new(isa: Isa, over: Option<LatticeWrapper>, policy: &Policy) -> Result<CpuZk, Error> {
        if let Some((other, _)) = policy.0.iter().find(|(name, _)| *name != THREADS) {
            return Err(Error::Value { what: format!("zkDilithium on the CPU has no policy axis {other:?}") });
        }
        let threads = CpuPolicy::of(policy)?.threads;
        let lanes = ZkDilithium::with(isa).expect("the CPU has the instruction set");
        let lanes = over.iter().fold(lanes, |lanes, over| lanes.over(&**over));
        Ok(CpuZk { threads, lanes: if threads == 1 { lanes.alone() } else { lanes } })
    }

    /// The lanes for these places. In other places than usual, every instance is in the next lane.
    fn lanes(&mut self, places: Places) -> &ZkDilithium {
        self.lanes.turn = usize::from(places != Places::Usual);
        &self.lanes
    }

    /// Expands these keys, each once. Keys are identified by their places in memory.
    fn expanded<'a, K: Sync + 'a, E: Send>(
        &self,
        keys: impl Iterator<Item = &'a K>,
        expand: impl Fn(&K) -> Box<E> + Send + Sync,
    ) -> BTreeMap<*const K, Box<E>> {
        let (mut last, mut distinct) = (None, BTreeMap::new());
        for key in keys {
            let place = std::ptr::from_ref(key);
            // Many jobs with one key are the usual case, so the last key is found without a search.
            if last.replace(place) != Some(place) {
                distinct.insert(place, key);
            }
        }
        let keys: Vec<&K> = distinct.values().copied().collect();
        let made: Vec<Box<E>> = match self.threads {
            1 => keys.into_iter().map(expand).collect(),
            _ => keys.into_par_iter().map(expand).collect(),
        };
        distinct.into_keys().zip(made).collect()
    }
}

impl hypergrove_engine::ZkDilithium for CpuZk {
    fn space(&self) -> Vec<Axis> {
        vec![Axis::threads()]
    }
    fn poseidon_rate(&self, clock: Option<f64>) -> Option<f64> {
        let (clock, cycles) = clock.zip(self.lanes.poseidon_cycles())?;
        Some(self.threads as f64 * clock / cycles)
    }
    fn uses_expanded_keys(&self) -> bool {
        true
    }
    fn jobs(&self, _: Op) -> usize {
        JOBS_OF_A_THREAD * self.threads
    }
    fn queue(&self, _: Op) -> u32 {
        1
    }
    fn bytes(&self) -> u64 {
        (self.lanes.thread_bytes() * self.threads) as u64
    }
    fn time_limit(&mut self, _: Option<Duration>) {}

    fn keygen(
        &mut self,
        seeds: &[[u8; SEED_BYTES]],
        keys: &mut [&mut SigningKeyBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        self.lanes(places).keygen_into(seeds, keys);
        Ok(since(start))
    }
    fn sign(
        &mut self,
        jobs: &[ZkSign<'_>],
        signatures: &mut [&mut SignatureBytes],
        places: Places,
    ) -> Result<Timing, Error> {
        let start = Instant::now();
        // Elsewhere a key is expanded anew: with redundancy, the first expansion is compared as well.
        let given = |job: &ZkSign<'_>| job.expanded.is_some() && places == Places::Usual;
        let lacking = jobs.iter().filter(|job| !given(job)).map(|job| job.key);
        let made = self.expanded(lacking, |key| wiped(|| Box::new(key.expand())));
        let job = |job| {
            let &ZkSign { key, expanded, message } = job;
            let key = expanded.filter(|_| given(job)).unwrap_or_else(|| &made[&std::ptr::from_ref(key)]);
            super::Sign { key, message }
        };
        self.lanes(places).sign_into(&jobs.iter().map(job).collect::<Vec<_>>(), signatures);
        Ok(since(start))
    }
    fn verify(&mut self, jobs: &[ZkVerify<'_>], out: &mut Vec<bool>, places: Places) -> Result<Timing, Error> {
        let start = Instant::now();
        let lacking = jobs.iter().filter(|job| job.expanded.is_none()).map(|job| job.key);
        let made = self.expanded(lacking, |key| Box::new(key.expand()));
        let job = |job| {
            let &ZkVerify { key, expanded, message, signature } = job;
            let key = expanded.unwrap_or_else(|| &made[&std::ptr::from_ref(key)]);
            super::Verify { key, message, signature }
        };
        out.extend(self.lanes(places).verify(&jobs.iter().map(job).collect::<Vec<_>>()));
        Ok(since(start))
    }
}

fn since(start: Instant) -> Timing {
    Timing { execute: start.elapsed(), ..Timing::default() }
}
