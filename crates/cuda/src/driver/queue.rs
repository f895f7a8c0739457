//! Streams, and graphs of recorded steps.

use super::device::{CudaGpu, CudaKernels, Event};
use super::library::Driver;
use super::lock;
use cudarc::driver::sys::{self, CUDA_MEMCPY2D, CUgraphExec, CUmemorytype, CUresult, CUstream, CUstreamCaptureMode};
use hypergrove_engine::{Error, Timing};
use hypergrove_gpu::steps::{self, Access, accesses};
use hypergrove_gpu::{Launch, Queue, SLOTS, Step, WaitLimit};
use std::ffi::{c_uint, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads per SM of launches that take turns with those of other queues: concurrently they would end together, and leave the device idle while
/// all queues copy. Several smaller launches fit concurrently. An SM holds so many threads.
const FULL: u64 = 2048;

/// The start of a measurement of the device's time.
#[derive(Clone, Copy)]
enum Began {
    /// The event `start`.
    Start,
    /// A time of the host's clock. For a small recording, an event and the query for its time cost almost as much as the recording.
    Clock {
        began: Instant,
        /// When the host first noticed that some work was done.
        noticed: Option<Instant>,
    },
}

/// A stream, which its queue destroys after it has waited for it.
struct Stream {
    gpu: Arc<CudaGpu>,
    stream: CUstream,
}
// SAFETY: streams are handles that any thread may use.
unsafe impl Send for Stream {}

impl Stream {
    fn new(gpu: &Arc<CudaGpu>) -> Result<Stream, Error> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: it writes one handle; the context is current.
        gpu.check(unsafe { (gpu.driver.cuStreamCreate)(&mut stream, flags) }, "making a stream")?;
        Ok(Stream { gpu: gpu.clone(), stream })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        self.gpu.release(|driver| unsafe { (driver.cuStreamDestroy_v2)(self.stream) });
    }
}

/// A queue has two streams: the main stream and the side stream. After an error nothing is under way in either, unless the device hangs.
pub(crate) struct CudaQueue {
    main: Stream,
    side: Stream,
    fork: Event,
    join: Event,
    /// `start` and `end` are around all steps that were submitted since the last wait.
    start: Event,
    /// `launched` and `computed` are before the first launch and after the last one. They count if launches were submitted only once since the
    /// last wait.
    launched: Event,
    computed: Arc<Event>,
    slots: Vec<Event>,
    marked: [bool; SLOTS],
    end: Event,
    /// The start of the current measurement, if anything was submitted since the last wait.
    began: Option<Began>,
    /// Submissions with launches since the last wait.
    launches: u32,
    takes_turns: bool,
    limit: WaitLimit,
    gpu: Arc<CudaGpu>,
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Steps as a CUDA graph. Their host and device memory is checked at each replay.
pub(crate) struct CudaRecording {
    gpu: Arc<CudaGpu>,
    graph: CUgraphExec,
    accesses: Vec<Access>,
    /// Whether the recording takes turns with other work that fills the device.
    fills: bool,
}
// SAFETY: an instantiated graph is a handle that any thread may launch; queues launch it one at a time by `&mut self`,
// and CUDA orders launches of one graph in different streams.
unsafe impl Send for CudaRecording {}

impl Drop for CudaRecording {
    fn drop(&mut self) {
        // SAFETY: made by `record`, destroyed once; CUDA keeps one that runs until it is done.
        self.gpu.release(|driver| unsafe { (driver.cuGraphExecDestroy)(self.graph) });
    }
}

impl CudaQueue {
    pub(super) fn new(gpu: &Arc<CudaGpu>) -> Result<CudaQueue, Error> {
        gpu.bind()?;
        let stream = || Stream::new(gpu);
        let event = |flags| Event::new(gpu, flags);
        let order = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
        Ok(CudaQueue {
            main: stream()?,
            side: stream()?,
            fork: event(order)?,
            join: event(order)?,
            start: event(0)?,
            launched: event(0)?,
            computed: Arc::new(event(0)?),
            slots: (0..SLOTS).map(|_| event(order)).collect::<Result<_, _>>()?,
            marked: [false; SLOTS],
            end: event(0)?,
            began: None,
            launches: 0,
            takes_turns: true,
            limit: WaitLimit::default(),
            gpu: gpu.clone(),
        })
    }

    fn check_gpu(&self, other: &Arc<CudaGpu>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.gpu, other) {
            return Ok(());
        }
        Err(self.gpu.error(format!("it was given what belongs to {}", other.facts.id)))
    }

    fn mark_event(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: both handles are this queue's.
        let code = unsafe { (self.gpu.driver.cuEventRecord)(event.event, self.main.stream) };
        self.gpu.check(code, "recording an event")
    }

    /// The device's time from one event to another. Both must have passed.
    fn between(&self, from: &Event, to: &Event) -> Result<Duration, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are this queue's and were recorded; one number is written.
        let code = unsafe { (self.gpu.driver.cuEventElapsedTime)(&mut milliseconds, from.event, to.event) };
        self.gpu.check(code, "measuring")?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// Calls `submit` between the events that measure time.
    fn measured(&mut self, submit: impl FnOnce(&CudaQueue) -> Result<(), Error>) -> Result<(), Error> {
        let began = match self.began {
            Some(began) => began,
            None => self.mark_event(&self.start).map(|()| Began::Start)?,
        };
        self.measured_since(began, submit)
    }

    fn measured_since(
        &mut self,
        began: Began,
        submit: impl FnOnce(&CudaQueue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = submit(self).and_then(|()| self.mark_event(&self.end));
        self.began = done.is_ok().then_some(began);
        if done.is_err() {
            self.settle();
        }
        done
    }

    /// Makes the context current for a wait. A wait without a limit queries the driver in any case, since a device that another queue gave up, or
    /// found lost, may still write to callers' memory.
    fn bind_to_wait(&self) -> Result<(), Error> {
        match self.limit.time {
            None => self.gpu.make_current(),
            Some(_) => self.gpu.bind(),
        }
    }

    /// Queries the driver until the work is done, or gives the device up.
    fn wait_until(&self, query: impl Fn(&Driver) -> u32) -> Result<(), Error> {
        const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
        let is_done = self.limit.poll(|| match query(&self.gpu.driver) {
            NOT_READY => Ok(false),
            code => self.gpu.check(code, "working").map(|()| true),
        })?;
        if is_done { Ok(()) } else { Err(self.gpu.give_up(self.limit)) }
    }

    /// Waits for all work of a stream, or gives the device up.
    fn wait_for_stream(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the stream is this queue's.
        self.wait_until(|driver| unsafe { (driver.cuStreamQuery)(stream.stream) })
    }

    /// Waits for all work before an event, which must have been recorded, or gives the device up.
    fn wait_for_event(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: the event is this queue's.
        self.wait_until(|driver| unsafe { (driver.cuEventQuery)(event.event) })
    }

    /// Waits for all work that is under way, after something else failed.
    fn settle(&self) {
        for stream in [&self.main, &self.side] {
            // The caller reports the first error.
            let _ = self.bind_to_wait().and_then(|()| self.wait_for_stream(stream));
        }
    }

    fn launch(&self, kernels: &CudaKernels, launch: &Launch, stream: &Stream) -> Result<(), Error> {
        let Launch { kernel, blocks, threads, args } = *launch;
        let Some((_, function)) = kernels.functions.iter().find(|(loaded, _)| *loaded == kernel) else {
            return Err(self.gpu.error(format!("kernel {} was launched and not loaded", kernel.name())));
        };
        let mut parameters = [(&raw const args).cast_mut().cast::<c_void>()];
        // SAFETY: every kernel has one parameter, an `Args` by value, which CUDA copies before it returns. The function
        // is kept by the device. The program is responsible for what the kernel does with the addresses in it.
        let code = unsafe {
            (self.gpu.driver.cuLaunchKernel)(
                function.handle,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                function.memory,
                stream.stream,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        };
        if code == 0 {
            return Ok(());
        }
        self.gpu.check(code, &format!("launching {} ({blocks} blocks of {threads} threads)", kernel.name()))
    }

    /// Lets `to` go on only when all work that `from` has so far is done.
    fn follow(&self, to: &Stream, event: &Event, from: &Stream) -> Result<(), Error> {
        let driver = &self.gpu.driver;
        // SAFETY: all handles are this queue's.
        let code = unsafe {
            match (driver.cuEventRecord)(event.event, from.stream) {
                0 => (driver.cuStreamWaitEvent)(to.stream, event.event, 0),
                code => code,
            }
        };
        self.gpu.check(code, "ordering its streams")
    }

    /// Whether these steps leave no room on the device for steps of other queues, and so take turns with them.
    fn fills(&self, steps: &[Step]) -> bool {
        let threads = |step: &Step| match step {
            Step::Launch(launch) | Step::SideLaunch(launch) => u64::from(launch.blocks) * u64::from(launch.threads),
            _ => 0,
        };
        self.takes_turns && steps.iter().any(|step| threads(step) >= FULL * u64::from(self.gpu.facts.compute_units))
    }

    /// Calls `launch`. If its launches fill the device, they wait for those of other queues that fill it.
    fn in_turn(&self, fills: bool, launch: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut last_computed = lock(&self.gpu.last_computed);
        if let (true, Some(computed)) = (fills, last_computed.upgrade()) {
            // SAFETY: the stream is this queue's, the event another's or its own, which lives.
            let code = unsafe { (self.gpu.driver.cuStreamWaitEvent)(self.main.stream, computed.event, 0) };
            self.gpu.check(code, "taking turns")?;
        }
        self.mark_event(&self.launched)?;
        launch()?;
        self.mark_event(&self.computed)?;
        if fills {
            *last_computed = Arc::downgrade(&self.computed);
        }
        Ok(())
    }

    /// Submits steps, which must have been checked.
    fn enqueue(&self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        let (driver, main) = (&self.gpu.driver, self.main.stream);
        for step in steps {
            match *step {
                Step::Upload { bytes: 0, .. } | Step::Download { bytes: 0, .. } | Step::Zero { bytes: 0, .. } => {}
                Step::UploadColumns { width: 0, .. } | Step::UploadColumns { rows: 0, .. } => {}
                Step::Upload { to, from, bytes } => {
                    // SAFETY: both ranges are allocated; whoever drops them waits before.
                    let code = unsafe { (driver.cuMemcpyHtoDAsync_v2)(to, from as *const c_void, bytes, main) };
                    self.gpu.check(code, "uploading")?;
                }
                Step::UploadColumns { to, from, width, pitch, rows } => {
                    let copy = CUDA_MEMCPY2D {
                        srcXInBytes: 0,
                        srcY: 0,
                        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
                        srcHost: from as *const c_void,
                        srcDevice: 0,
                        srcArray: null_mut(),
                        srcPitch: pitch,
                        dstXInBytes: 0,
                        dstY: 0,
                        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                        dstHost: null_mut(),
                        dstDevice: to,
                        dstArray: null_mut(),
                        dstPitch: pitch,
                        WidthInBytes: width,
                        Height: rows,
                    };
                    // SAFETY: all rows are inside both ranges, which are allocated; whoever drops them waits before. The driver has
                    // read the description when it returns.
                    let code = unsafe { (driver.cuMemcpy2DAsync_v2)(&copy, main) };
                    self.gpu.check(code, "uploading columns")?;
                }
                Step::Download { to, from, bytes } => {
                    // SAFETY: both ranges are allocated; whoever drops or reads them waits before.
                    let code = unsafe { (driver.cuMemcpyDtoHAsync_v2)(to as *mut c_void, from, bytes, main) };
                    self.gpu.check(code, "downloading")?;
                }
                Step::Zero { at, bytes } => {
                    // SAFETY: the range is allocated, and in words where words are cleared.
                    let code = unsafe {
                        if at % 4 == 0 && bytes % 4 == 0 {
                            (driver.cuMemsetD32Async)(at, 0, bytes / 4, main)
                        } else {
                            (driver.cuMemsetD8Async)(at, 0, bytes, main)
                        }
                    };
                    self.gpu.check(code, "clearing memory")?;
                }
                Step::Launch(ref launch) => self.launch(kernels, launch, &self.main)?,
                Step::SideLaunch(ref launch) => self.launch(kernels, launch, &self.side)?,
                Step::Fork => self.follow(&self.side, &self.fork, &self.main)?,
                Step::Join => self.follow(&self.main, &self.join, &self.side)?,
            }
        }
        Ok(())
    }
}

impl Queue for CudaQueue {
    type Kernels = CudaKernels;
    type Recording = CudaRecording;

    fn submit(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let Range { start: first, end: last } = steps::launches(steps);
        if first == last {
            return self.measured(|queue| queue.enqueue(kernels, steps));
        }
        self.launches += 1;
        let fills = self.fills(steps);
        self.measured(|queue| {
            queue.enqueue(kernels, &steps[..first])?;
            queue.in_turn(fills, || queue.enqueue(kernels, &steps[first..last]))?;
            queue.enqueue(kernels, &steps[last..])
        })
    }

    fn record(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<CudaRecording, Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let (gpu, main) = (&self.gpu, self.main.stream);
        let driver = &gpu.driver;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this queue's, which is borrowed until the capture has ended below.
        gpu.check(unsafe { (driver.cuStreamBeginCapture_v2)(main, mode) }, "recording")?;
        let enqueued = self.enqueue(kernels, steps);
        let mut graph = null_mut();
        // SAFETY: it ends the capture, which this thread began, and writes one handle.
        let ended = unsafe { (driver.cuStreamEndCapture)(main, &mut graph) };
        let made = enqueued.and_then(|()| gpu.check(ended, "recording")).and_then(|()| {
            let mut executable = null_mut();
            // SAFETY: the graph was captured just now; one handle is written.
            let code = unsafe { (driver.cuGraphInstantiateWithFlags)(&mut executable, graph, 0) };
            gpu.check(code, "preparing a recording").map(|()| executable)
        });
        if !graph.is_null() {
            // SAFETY: the executable graph that was instantiated from it does not need it.
            let _ = unsafe { (driver.cuGraphDestroy)(graph) };
        }
        if made.is_err() {
            self.settle();
        }
        let accesses = steps.iter().flat_map(accesses).collect();
        made.map(|graph| CudaRecording { gpu: gpu.clone(), graph, accesses, fills: self.fills(steps) })
    }

    fn replay(&mut self, recording: &CudaRecording) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&recording.gpu)?;
        self.gpu.check_accesses(recording.accesses.iter().copied())?;
        let replay = |queue: &CudaQueue| {
            // SAFETY: the graph lives as long as the recording, and CUDA keeps it while it runs; its memory is allocated.
            let code = unsafe { (queue.gpu.driver.cuGraphLaunch)(recording.graph, queue.main.stream) };
            queue.gpu.check(code, "replaying a recording")
        };
        // A small recording makes no more calls of the driver than it must.
        match recording.fills {
            true => self.measured(|queue| queue.in_turn(true, || replay(queue))),
            false => {
                let clock = || Began::Clock { began: Instant::now(), noticed: None };
                self.measured_since(self.began.unwrap_or_else(clock), replay)
            }
        }
    }

    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.gpu.bind()?;
        self.mark_event(&self.slots[slot])?;
        self.marked[slot] = true;
        Ok(())
    }

    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        self.bind_to_wait()?;
        if !std::mem::take(&mut self.marked[slot]) {
            return Ok(());
        }
        self.wait_for_event(&self.slots[slot])?;
        if let Some(Began::Clock { noticed, .. }) = &mut self.began {
            noticed.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn follow(&mut self, kernels: &CudaKernels, steps: &[Step]) -> Result<(), Error> {
        self.gpu.bind()?;
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let done = self.enqueue(kernels, steps);
        if done.is_err() {
            self.settle();
        }
        done
    }

    fn takes_turns(&mut self, takes_turns: bool) {
        self.takes_turns = takes_turns;
    }

    fn limit(&mut self, limit: WaitLimit) {
        self.limit = limit;
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        self.bind_to_wait()?;
        let Some(began) = self.began.take() else {
            // The side stream was joined into the main stream.
            return self.wait_for_stream(&self.main).map(|()| None);
        };
        // `end` was recorded after all work that this waits for.
        self.wait_for_event(&self.end)?;
        let launches = std::mem::take(&mut self.launches);
        if let Began::Clock { began, noticed } = began {
            let now = Instant::now();
            let done = noticed.unwrap_or(now);
            return Ok(Some(Timing { execute: done - began, download: now - done, ..Timing::default() }));
        }
        let (start, end) = (&self.start, &self.end);
        if launches != 1 {
            return Ok(Some(Timing { execute: self.between(start, end)?, ..Timing::default() }));
        }
        Ok(Some(Timing {
            upload: self.between(start, &self.launched)?,
            execute: self.between(&self.launched, &self.computed)?,
            download: self.between(&self.computed, end)?,
            ..Timing::default()
        }))
    }
}
