//! The conformance suite on the first GPU, where there is one.

use hypergrove_engine::{Backend, Error, Policy, ZkDilithium};
use hypergrove_testkit::{backend_tests, suite, zk_tests};
use std::sync::Arc;

fn cuda() -> Option<Arc<dyn Backend>> {
    let cuda = hypergrove_cuda::backend(Some(&std::env::temp_dir().join("hypergrove-test-kernels")));
    match cuda.absent() {
        None => Some(cuda),
        Some(why) => {
            println!("skipped: cuda: {why}");
            None
        }
    }
}

backend_tests!(on_cuda, cuda());

#[test]
fn known_answers_of_every_set() {
    if let Some(cuda) = cuda() {
        suite::known_answers_of_every_set(&*cuda);
    }
}

/// A program with the named policy, if the device has its form of Poseidon.
fn zkdilithium(policy: &[(&'static str, u32)]) -> Option<Box<dyn ZkDilithium>> {
    let cuda = cuda()?;
    match cuda.zkdilithium()?.prepare(&cuda.devices().ok()?[0], &Policy(policy.to_vec())) {
        Ok(program) => Some(program),
        Err(why @ Error::Value { .. }) => {
            println!("skipped: zkDilithium with {policy:?}: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

zk_tests!(zk_in_integers_on_cuda, zkdilithium(&[("tensor", 0), ("fp64", 0)]));
zk_tests!(zk_in_doubles_on_cuda, zkdilithium(&[("tensor", 0), ("fp64", 1)]));
zk_tests!(zk_on_tensor_cores_by_warps, zkdilithium(&[("tensor", 1)]));
zk_tests!(zk_on_tensor_cores_by_warpgroups, zkdilithium(&[("tensor", 2)]));
