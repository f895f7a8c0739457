//! The conformance suite on the first device, where there is one; under Khronos' validation layer, where that is installed.

use hypergrove_engine::Backend;
use hypergrove_testkit::backend_tests;
use hypergrove_vulkan::Calls;
use std::sync::Arc;

fn vulkan() -> Option<Arc<dyn Backend>> {
    // Mesa 22.3 crashes now and then where several devices of lavapipe compute in one process.
    hypergrove_testkit::one_at_a_time();
    let cache = std::env::temp_dir().join("hypergrove-test-kernels");
    for calls in [Calls::Checked, Calls::Trusted] {
        let vulkan = hypergrove_vulkan::backend(Some(&cache), calls);
        match vulkan.absent() {
            None => return Some(vulkan),
            Some(why) => println!("skipped: vulkan: calls {calls:?}: {why}"),
        }
    }
    None
}

backend_tests!(on_vulkan, vulkan());

#[test]
fn zkdilithium_is_refused_by_its_name() {
    let Some(vulkan) = vulkan() else { return };
    let device = vulkan.devices().unwrap().remove(0);
    let why = vulkan.zkdilithium().unwrap().prepare(&device, &Default::default()).err().unwrap().to_string();
    assert_eq!(why, "vulkan:0 cannot execute zkDilithium: there are no modules of its kernels");
}
