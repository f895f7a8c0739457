//! A trace of an engine: what each thread does, when, and for how long. The engine hands every event to the caller's observer and keeps none. Without an
//! observer each chunk and each group of jobs costs one look at a variable of its thread.
//!
//! Events name steps, threads, times and numbers of jobs. They hold nothing of keys, messages or signatures.

use std::cell::RefCell;
use std::mem::replace;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The work or the wait that an [`Event`] is about. A step that several threads share is an event of the thread that waits for the others; the parts
/// of [`Group`](Step::Group) and [`Trees`](Step::Trees) are events of the threads that do them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// A call of the engine, on the thread that calls. Its jobs are those whose results were handed out.
    Call,
    /// A chunk, from its rows or jobs to its results.
    Chunk,
    /// Columns in memory that others may write to are copied.
    CopyRows,
    /// Rows are read: keys, messages and signatures are found and their lengths checked.
    ReadRows,
    /// The host hashes messages, and selects positions in the trees.
    HashMessages,
    /// A device's program runs. Its time without groups is the wait for threads that have not finished theirs.
    Program,
    /// One thread of the CPU signs, verifies or makes keys, one or several jobs together.
    Group,
    /// One thread of the CPU grows subtrees that threads share. The event counts trees instead of jobs.
    Trees,
    /// A device computes a known answer before its first use.
    SelfTest,
    /// A call or a single job waits for its permit on a device.
    WaitForPermit,
    /// The thread that calls waits for chunks.
    WaitForChunks,
    /// The thread that calls waits for a source that gives no job.
    WaitForJobs,
    /// The caller's sink gets results.
    HandOut,
}

impl Step {
    /// The step's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Step::Call => "call",
            Step::Chunk => "chunk",
            Step::CopyRows => "copy rows",
            Step::ReadRows => "read rows",
            Step::HashMessages => "hash messages",
            Step::Program => "program",
            Step::Group => "group",
            Step::Trees => "trees",
            Step::SelfTest => "self-test",
            Step::WaitForPermit => "wait for a permit",
            Step::WaitForChunks => "wait for chunks",
            Step::WaitForJobs => "wait for jobs",
            Step::HandOut => "hand out results",
        }
    }
}

/// A step that a thread has finished. Two events of one thread either follow each other, or one lies within the other. A step that panics has no event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The step.
    pub step: Step,
    /// The thread, which is also the one that calls the observer.
    pub thread: Thread,
    /// The begin of the step.
    pub start: Instant,
    /// The time that the step took.
    pub length: Duration,
    /// The number of the chunk, unique in its engine; `None` if the step belongs to no single chunk.
    pub chunk: Option<u64>,
    /// Jobs of the step.
    pub jobs: usize,
}

/// Takes events, on the threads that they are about. The threads wait for the observer, so it should return soon. It must not call the engine.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

thread_local! {
    /// The context of the work that this thread does.
    static CURRENT: RefCell<TraceContext> = const { RefCell::new(TraceContext(None)) };
}

/// The observer of the work that a thread does, if there is one, and the number of its chunk. Work that a thread leaves to others takes its context along.
#[derive(Clone, Default)]
pub struct TraceContext(pub(crate) Option<(Observer, Option<u64>)>);

/// Puts a thread's context back, also after a panic.
struct Restored(TraceContext);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}

impl TraceContext {
    /// The context of the work that this thread does.
    pub fn current() -> TraceContext {
        CURRENT.with_borrow(TraceContext::clone)
    }

    /// Runs `work` on this thread as a part of the work that has this context.
    pub fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        let _restored = Restored(CURRENT.with_borrow_mut(|current| replace(current, self.clone())));
        work()
    }

    /// Runs `work`, a step with so many jobs, in this context.
    pub fn step<R>(&self, step: Step, jobs: usize, work: impl FnOnce() -> R) -> R {
        self.counted(step, || (jobs, work())).1
    }

    /// Runs `work` as [`step`](TraceContext::step) does. `work` gives its number of jobs, next to its result.
    pub fn counted<R>(&self, step: Step, work: impl FnOnce() -> (usize, R)) -> (usize, R) {
        // Also without an observer: this may be a call that the observed step of another engine makes.
        let Some((observer, chunk)) = &self.0 else { return self.enter(work) };
        let start = Instant::now();
        let (jobs, result) = self.enter(work);
        let length = start.elapsed();
        observer(&Event { step, thread: thread::current(), start, length, chunk: *chunk, jobs });
        (jobs, result)
    }
}

/// Runs `work`, a step with so many jobs, in the context of this thread.
pub fn step<R>(step: Step, jobs: usize, work: impl FnOnce() -> R) -> R {
    TraceContext::current().step(step, jobs, work)
}
