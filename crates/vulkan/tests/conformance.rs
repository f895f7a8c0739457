//! The conformance suite on the first device, where there is one.

use hypergrove_engine::Backend;
use hypergrove_testkit::backend_tests;

fn vulkan() -> Option<impl Backend> {
    let vulkan = hypergrove_vulkan::backend(Some(&std::env::temp_dir().join("hypergrove-test-kernels")));
    match vulkan.absent() {
        None => Some(vulkan),
        Some(why) => {
            println!("skipped: vulkan: {why}");
            None
        }
    }
}

backend_tests!(on_vulkan, vulkan());
