//! The conformance suite on the first GPU, where there is one.

use hypergrove_engine::Backend;
use hypergrove_testkit::backend_tests;

fn cuda() -> Option<impl Backend> {
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
