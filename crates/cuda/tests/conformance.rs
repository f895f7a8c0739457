//! The conformance suite on the first GPU, where there is one.

use hypergrove_engine::{Backend, Policy, ZkDilithium};
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

/// In integers or in doubles.
fn zkdilithium(fp64: u32) -> Option<Box<dyn ZkDilithium>> {
    let (cuda, policy) = (cuda()?, Policy(vec![("fp64", fp64)]));
    Some(cuda.zkdilithium()?.prepare(&cuda.devices().ok()?[0], &policy).expect("made ready"))
}

zk_tests!(zk_in_integers_on_cuda, zkdilithium(0));
zk_tests!(zk_in_doubles_on_cuda, zkdilithium(1));
