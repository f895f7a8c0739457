//! A data race, planted in the threads of an engine. `cargo xtask ci threads` runs this test under ThreadSanitizer, which must
//! report the race: a run over the other tests that reports nothing would prove nothing otherwise. No other command runs it.

mod common;

use common::{OnMock, key, mock, sign};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A counter that nothing protects.
#[derive(Default)]
struct Unprotected(UnsafeCell<usize>);

// SAFETY: it is not true, on purpose: two threads write at the same time. The race is what the test is for.
unsafe impl Sync for Unprotected {}

impl Unprotected {
    fn add(&self) {
        // SAFETY: as above. The pointer itself is valid.
        unsafe { *self.0.get() += 1 }
    }
}

#[test]
fn two_devices_race() {
    let (counter, inside) = (Unprotected::default(), AtomicUsize::new(0));
    let racing = mock(2, 1).answering(move |call| {
        if call.nth == 0 {
            inside.fetch_add(1, Relaxed);
            // Both devices are here before either goes on, and nothing orders what they do.
            while inside.load(Relaxed) < 2 {
                std::thread::yield_now();
            }
            // Once is missed now and then.
            (0..1000).for_each(|_| counter.add());
        }
        Ok(())
    });
    assert_eq!(sign(&racing.engine(), &key(1), 100), (Ok(()), 100));
}
