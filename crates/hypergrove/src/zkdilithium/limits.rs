//! Properties of an engine's devices, for measurements.

use super::ZkDilithium;
use crate::scheme::Scheme;
use crate::{Engine, Error, Op};
use hypergrove_engine::scheduler::Worker;
use hypergrove_engine::scheme::Group;
use hypergrove_engine::{Axis, THREADS, ZkDilithium as Program, ZkDilithiumProgram};

/// Calls `ask` with the zkDilithium program of a device, and returns the answer.
fn ask<T: Send>(engine: &Engine, worker: &Worker, ask: impl Fn(&dyn Program) -> T + Send + Sync) -> Result<T, Error> {
    let group = Group { kind: ZkDilithium.kind(Op::Sign, 0), threads: engine.threads() };
    worker.programs.ask(group, |ZkDilithiumProgram(program)| ask(&**program))
}

/// The axes of a policy for GPUs; empty on the CPU. See [`EngineBuilder::policy`](crate::EngineBuilder::policy).
pub fn space(engine: &Engine) -> Result<Vec<Axis>, Error> {
    let of = |worker: &Worker| {
        let space = ask(engine, worker, |program| program.space())?;
        Ok(space.into_iter().filter(|axis| axis.name != THREADS).collect::<Vec<_>>())
    };
    let spaces = engine.0.scheduler.live().map(of).collect::<Result<Vec<_>, Error>>()?;
    Ok(spaces.into_iter().find(|space| !space.is_empty()).unwrap_or_default())
}

/// The Poseidon permutations a second that the arithmetic of an engine's devices allows, summed over all devices. `clock` is the cycles a second
/// of the CPU's threads. `None` if the rate of a device is not known.
pub fn poseidon_rate(engine: &Engine, clock: Option<f64>) -> Result<Option<f64>, Error> {
    let of = |worker: &Worker| ask(engine, worker, |program| program.poseidon_rate(clock));
    engine.0.scheduler.live().map(of).sum()
}
