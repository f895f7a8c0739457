//! zkDilithium by kernels that run on the host, and what only a GPU that obeys can show.

use super::{ZkGpu, ZkPolicy};
use crate::host::HostGpu;
use std::sync::Arc;

fn on_host(gpu: &Arc<HostGpu>, policy: ZkPolicy) -> Box<ZkGpu<HostGpu>> {
    Box::new(ZkGpu::new(gpu, policy, 1 << 30).unwrap())
}

/// Few threads: each is a fibre.
fn policy(fp64: u32) -> ZkPolicy {
    ZkPolicy { fp64, block: 8, fill: 16, width: 4, ..ZkPolicy::default() }
}

fn host(fp64: u32) -> Option<Box<ZkGpu<HostGpu>>> {
    Some(on_host(&Arc::new(HostGpu::new(false)), policy(fp64)))
}

hypergrove_testkit::zk_tests!(in_integers, host(0));
hypergrove_testkit::zk_tests!(in_doubles, host(1));
