//! The figures of a run: each study's records as plots and tables, a file a section.

mod cache_depth;
mod callers;
mod compared;
mod cores;
mod crossover;
pub(super) mod elements;
mod functions;
mod hashing;
mod host;
mod ladder;
mod multi_gpu;
mod roofline;
mod throughput;

use crate::runs::Run;
use elements::Section;

pub(crate) use compared::compared;

/// All sections that a run has records for.
pub(crate) fn sections(run: &Run) -> Vec<Section> {
    let all = [
        throughput::THROUGHPUT.section(run),
        crossover::CROSSOVER.section(run),
        callers::CALLERS.section(run),
        cores::CORES.section(run),
        ladder::LADDER.section(run),
        functions::functions(run),
        roofline::roofline(run),
        cache_depth::CACHE_DEPTH.section(run),
        multi_gpu::MULTI_GPU.section(run),
        host::HOST.section(run),
        hashing::HASHING.section(run),
    ];
    all.into_iter().filter(|section| !section.groups.is_empty()).collect()
}
