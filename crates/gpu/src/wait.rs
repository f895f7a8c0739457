//! How long a queue waits for its device.

use hypergrove_engine::{DEVICE_TIMEOUT, Error};
use std::hint::spin_loop;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A wait begins with a loop without pauses that lasts so long, since a pause takes 0.1 ms at least. (On an H200 nothing is faster without any
/// pauses: docs/lab/2026-11-23-two-h200.md.)
const SPIN: Duration = Duration::from_millis(2);

/// The loop begins with queries without a break for so long: one signature takes about that time. Later it breaks for a microsecond or two
/// between queries, since a query takes a lock of the driver, which other threads want.
const EAGER: Duration = Duration::from_micros(200);
const SPINS: usize = 64;

/// After [`SPIN`], a pause is one part in so many of the time that the wait has taken, within these bounds. So pauses make a long wait longer
/// by a few parts in a thousand.
const PAUSES: u32 = 256;
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);

/// How long a wait for a queue may take, and the queue's work, which errors name.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimit {
    /// The queue's work, in words, such as `signatures`.
    pub work: &'static str,
    /// The limit. Without one, a wait takes as long as the device does.
    pub time: Option<Duration>,
}

impl Default for WaitLimit {
    fn default() -> WaitLimit {
        WaitLimit { work: "its work", time: Some(DEVICE_TIMEOUT) }
    }
}

impl WaitLimit {
    /// The error of a device that did not finish within the limit.
    pub fn error(&self, device: &str) -> Error {
        let time = self.time.unwrap_or_default().as_secs_f64();
        let what = format!(
            "it hangs: it did not finish {} in {time} s; restart the process to use it again, or set a longer device timeout",
            self.work
        );
        Error::Device { device: device.into(), what }
    }

    /// Calls `is_done` until the work is done. Returns `Ok(false)` if the time is over and the last answer was no.
    ///
    /// A pause counts with its intended length. So a process that is stopped in a pause, together with its device, does not give the device up.
    pub fn poll<E>(&self, mut is_done: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let began = Instant::now();
        loop {
            if is_done()? {
                return Ok(true);
            }
            let waited = began.elapsed();
            if waited >= SPIN {
                break;
            }
            (0..if waited < EAGER { 1 } else { SPINS }).for_each(|_| spin_loop());
        }
        let mut waited = SPIN;
        while self.time.is_none_or(|limit| waited < limit) {
            let pause = (waited / PAUSES).clamp(SHORTEST, LONGEST);
            sleep(pause);
            if is_done()? {
                return Ok(true);
            }
            waited += pause;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIFTH: WaitLimit = WaitLimit { work: "a test", time: Some(Duration::from_millis(200)) };

    #[test]
    fn a_wait_ends_with_the_work() {
        let mut polls = 0;
        assert_eq!(FIFTH.poll(|| Ok::<_, ()>(true)), Ok(true));
        let at_third = |polls: &mut usize| {
            *polls += 1;
            *polls == 3
        };
        assert_eq!(FIFTH.poll(|| Ok::<_, ()>(at_third(&mut polls))), Ok(true));
        assert_eq!(FIFTH.poll(|| Err::<bool, _>("lost")), Err("lost"));
        // A wait that is longer than the loop without pauses ends with the work, too.
        let began = Instant::now();
        assert_eq!(FIFTH.poll(|| Ok::<_, ()>(began.elapsed() >= Duration::from_millis(20))), Ok(true));
        assert!(began.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let began = Instant::now();
        assert_eq!(FIFTH.poll(|| Ok::<_, ()>(false)), Ok(false));
        assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
        assert_eq!(
            FIFTH.error("cuda:1").to_string(),
            "cuda:1 failed: it hangs: it did not finish a test in 0.2 s; restart the process to use it again, or set a longer device timeout"
        );
    }

    #[test]
    fn without_a_limit_a_wait_lasts() {
        let mut left = 60;
        let limit = WaitLimit { time: None, ..WaitLimit::default() };
        let done = limit.poll(|| {
            left -= u32::from(left > 0);
            Ok::<_, ()>(left == 0)
        });
        assert_eq!(done, Ok(true));
        assert_eq!(WaitLimit::default().time, Some(DEVICE_TIMEOUT));
    }

    /// A pause that takes longer than intended does not count against the device.
    #[test]
    fn a_process_that_is_stopped_gives_no_device_up() {
        let mut polls = 0;
        let limit = WaitLimit { time: Some(Duration::from_millis(30)), ..WaitLimit::default() };
        let stopped = |polls: &mut u32| {
            *polls += 1;
            // Each of the first three queries takes longer than the whole limit.
            if *polls < 4 {
                sleep(Duration::from_millis(40));
            }
            *polls == 10
        };
        assert_eq!(limit.poll(|| Ok::<_, ()>(stopped(&mut polls))), Ok(true));
    }
}
