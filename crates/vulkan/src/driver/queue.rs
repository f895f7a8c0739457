//! Streams of work: command buffers, ordered by a timeline semaphore, with barriers inside.

use super::device::{Families, VulkanGpu};
use super::kernels::Kernels;
use ash::vk;
use hypergrove_engine::scheduler::lock;
use hypergrove_engine::{Error, Timing};
use hypergrove_gpu::steps::{self, Access};
use hypergrove_gpu::{Gpu, Launch, Queue, SLOTS, Step, WaitLimit};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Copies of so many bytes run concurrently with other streams' launches, on a queue that only copies. Fewer bytes are copied sooner than two
/// queues have synchronised.
const CONCURRENT_COPY: usize = 1 << 20;

/// Time stamps of each submission that is timed: before and after all its steps, and before and after its launches.
const STAMPS: u32 = 4;

/// A wait calls the driver for so long at a time. If the process is stopped together with its device, the time counts as no more than that.
const AT_A_TIME: Duration = Duration::from_secs(1);

/// A semaphore that counts the submissions that are done.
struct Timeline {
    gpu: Arc<VulkanGpu>,
    semaphore: vk::Semaphore,
}

impl Timeline {
    fn new(gpu: &Arc<VulkanGpu>) -> Result<Arc<Timeline>, Error> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the structure is whole; `drop` gives the semaphore back.
        let made = unsafe { gpu.open()?.device.create_semaphore(&info, None) };
        Ok(Arc::new(Timeline { gpu: gpu.clone(), semaphore: gpu.check(made, "making a semaphore")? }))
    }

    /// Waits until submission `value` is done, or gives the device up. A wait without a limit also waits for a device that was given up.
    fn wait(&self, value: u64, limit: WaitLimit) -> Result<(), Error> {
        let gpu = &self.gpu;
        if let (Some(_), Some(why)) = (limit.time, gpu.hung()) {
            return Err(why);
        }
        let info = vk::SemaphoreWaitInfo::default();
        let info = info.semaphores(std::slice::from_ref(&self.semaphore)).values(std::slice::from_ref(&value));
        let mut left = limit.time;
        loop {
            let now = left.map_or(u64::MAX, |left| left.min(AT_A_TIME).as_nanos() as u64);
            // SAFETY: the semaphore lives as long as this.
            match unsafe { gpu.opened().device.wait_semaphores(&info, now) } {
                Err(vk::Result::TIMEOUT) => {}
                answer => return gpu.check(answer, "working"),
            }
            left = left.map(|left| left.saturating_sub(AT_A_TIME));
            if left == Some(Duration::ZERO) {
                return Err(gpu.give_up(limit));
            }
        }
    }

    /// The last submission that is done now.
    fn now(&self) -> Result<u64, vk::Result> {
        // SAFETY: as above.
        unsafe { self.gpu.opened().device.get_semaphore_counter_value(self.semaphore) }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if self.gpu.is_hung() {
            return;
        }
        let opened = self.gpu.opened();
        if self.gpu.facts().is_cpu {
            // Mesa's thread still writes to a semaphore whose value it has reported already (seen with 22.3), but no more once
            // the queue is idle.
            let queue = lock(&opened.compute);
            // SAFETY: the lock is the queue's.
            let _ = unsafe { opened.device.queue_wait_idle(*queue) };
        }
        // SAFETY: made by `new`, destroyed once; whoever signals it has waited for that.
        unsafe { opened.device.destroy_semaphore(self.semaphore, None) };
    }
}

/// Command buffers for queues of one family.
struct Commands {
    gpu: Arc<VulkanGpu>,
    pool: vk::CommandPool,
    /// Command buffers that may be under way, each with the submission after which it is not.
    used: VecDeque<(u64, vk::CommandBuffer)>,
}
// SAFETY: a pool is used by one thread at a time: whoever has it mutably.
unsafe impl Send for Commands {}

impl Commands {
    fn new(gpu: &Arc<VulkanGpu>, family: u32) -> Result<Commands, Error> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the structure is whole; `drop` gives the pool back.
        let made = unsafe { gpu.open()?.device.create_command_pool(&info, None) };
        Ok(Commands { gpu: gpu.clone(), pool: gpu.check(made, "making a command pool")?, used: VecDeque::new() })
    }

    /// A command buffer that is not under way.
    fn next(&mut self, timeline: &Timeline) -> Result<vk::CommandBuffer, Error> {
        let gpu = &self.gpu;
        let done = gpu.check(timeline.now(), "asking what is done")?;
        if let Some((_, buffer)) = self.used.pop_front_if(|(value, _)| *value <= done) {
            return Ok(buffer);
        }
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is this one's.
        let made = unsafe { gpu.open()?.device.allocate_command_buffers(&info) };
        Ok(gpu.check(made, "making a command buffer")?[0])
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if self.gpu.is_hung() {
            return;
        }
        // SAFETY: made by `new`, destroyed once, with its buffers; whoever owns it has waited for them.
        unsafe { self.gpu.opened().device.destroy_command_pool(self.pool, None) };
    }
}

/// Time stamps of several submissions.
struct Stamps {
    gpu: Arc<VulkanGpu>,
    pool: vk::QueryPool,
}

impl Stamps {
    /// Time stamps for so many submissions. `None` if the queue has no clock.
    fn new(gpu: &Arc<VulkanGpu>, submissions: u32) -> Result<Option<Stamps>, Error> {
        if gpu.families.stamps == 0 {
            return Ok(None);
        }
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(STAMPS * submissions);
        // SAFETY: the structure is whole; `drop` gives the pool back.
        let made = unsafe { gpu.open()?.device.create_query_pool(&info, None) };
        Ok(Some(Stamps { gpu: gpu.clone(), pool: gpu.check(made, "making time stamps")? }))
    }

    /// The times of a submission that is done: before the first launch, during the launches, and after the last one.
    fn read(&self, submission: u32) -> Result<[Duration; 3], Error> {
        let mut ticks = [0u64; STAMPS as usize];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: as many results as the slice has were written by the submission.
        let read = unsafe {
            self.gpu.opened().device.get_query_pool_results(self.pool, STAMPS * submission, &mut ticks, flags)
        };
        self.gpu.check(read, "measuring")?;
        let mask = u64::MAX >> (64 - self.gpu.families.stamps.min(64));
        let time = |from: usize| {
            let ticks = ticks[from + 1].wrapping_sub(ticks[from]) & mask;
            Duration::try_from_secs_f64(ticks as f64 * self.gpu.tick / 1e9).unwrap_or_default()
        };
        Ok([0, 1, 2].map(time))
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        if self.gpu.is_hung() {
            return;
        }
        // SAFETY: made by `new`, destroyed once; whoever owns it has waited for what writes to it.
        unsafe { self.gpu.opened().device.destroy_query_pool(self.pool, None) };
    }
}

/// The queue that a submission goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueKind {
    /// The queue that launches, and copies too.
    Compute,
    /// A queue that only copies: 0 to the device, 1 to the host.
    Copies(usize),
}

/// Timed submissions between two waits, at most.
const TIMED: u32 = 16;

/// Submissions in order. Each waits for the one before it, whatever queues of the device they go to; launches of several
/// streams take turns on the one queue that launches.
pub(crate) struct VulkanQueue {
    timeline: Arc<Timeline>,
    /// The last submission, and the last one that [`Queue::wait`] waits for.
    last: u64,
    awaited: u64,
    marks: [Option<u64>; SLOTS],
    launching: Commands,
    copying: Option<Commands>,
    stamps: Option<Arc<Stamps>>,
    /// The submissions that were timed since the last wait: their stamps, and the number of the submission among these.
    timed: Vec<(Arc<Stamps>, u32)>,
    /// When the first submission since the last wait began.
    began: Option<Instant>,
    limit: WaitLimit,
    gpu: Arc<VulkanGpu>,
}

/// Steps in a command buffer of their own. Their memory is checked at each replay.
pub(crate) struct VulkanRecording {
    /// The timeline of the stream that the recording was submitted to last, and the submission of that stream. It must be done, within the limit,
    /// before the recording may be submitted again.
    under_way: Mutex<Option<(Arc<Timeline>, u64, WaitLimit)>>,
    buffer: vk::CommandBuffer,
    accesses: Vec<Access>,
    stamps: Option<Arc<Stamps>>,
    _commands: Commands,
    gpu: Arc<VulkanGpu>,
}

impl VulkanRecording {
    /// Waits until the recording is not under way.
    fn settle(&self) -> Result<(), Error> {
        lock(&self.under_way).take().map_or(Ok(()), |(timeline, value, limit)| timeline.wait(value, limit))
    }
}

impl Drop for VulkanRecording {
    fn drop(&mut self) {
        // An error does not matter, as in the drop of a queue.
        let _ = self.settle();
    }
}

impl VulkanQueue {
    pub(super) fn new(gpu: &Arc<VulkanGpu>) -> Result<VulkanQueue, Error> {
        let Families { compute, copies, .. } = gpu.families;
        Ok(VulkanQueue {
            timeline: Timeline::new(gpu)?,
            last: 0,
            awaited: 0,
            marks: [None; SLOTS],
            launching: Commands::new(gpu, compute)?,
            copying: copies.map(|(family, _)| Commands::new(gpu, family)).transpose()?,
            stamps: Stamps::new(gpu, TIMED)?.map(Arc::new),
            timed: Vec::new(),
            began: None,
            limit: WaitLimit::default(),
            gpu: gpu.clone(),
        })
    }

    fn check_gpu(&self, other: &Arc<VulkanGpu>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.gpu, other) {
            return Ok(());
        }
        Err(self.gpu.error(format!("it was given what belongs to {}", other.name())))
    }

    /// Steps and the queues that they go to. Large copies go to queues that only copy, if there are any. Downloads behind launches stay in the
    /// launches' queue. A queue that only copies goes through its work in order, too: a copy that waits for launches would hold up the copies of
    /// streams whose launches are done.
    fn parts<'a>(&self, steps: &'a [Step]) -> Vec<(QueueKind, &'a [Step])> {
        let launches = steps::launches(steps);
        let bytes = |steps: &[Step]| steps.iter().flat_map(steps::accesses).map(|access| access.bytes).sum::<usize>();
        let is_concurrent = |steps: &[Step]| self.copying.is_some() && bytes(steps) >= CONCURRENT_COPY;
        let (first, rest) = steps.split_at(launches.start);
        if launches.is_empty() {
            let up = !matches!(steps.first(), Some(Step::Download { .. }));
            // Memory is cleared after the launches that used it.
            let clears = steps.iter().any(|step| matches!(step, Step::Zero { .. }));
            let on =
                if is_concurrent(steps) && !clears { QueueKind::Copies(usize::from(!up)) } else { QueueKind::Compute };
            vec![(on, steps)]
        } else if is_concurrent(first) {
            vec![(QueueKind::Copies(0), first), (QueueKind::Compute, rest)]
        } else {
            vec![(QueueKind::Compute, steps)]
        }
    }

    /// Submits steps, which must have been checked.
    fn enqueue(&mut self, kernels: &Kernels, steps: &[Step], timed: bool) -> Result<(), Error> {
        for (on, steps) in self.parts(steps) {
            let commands = match (on, &mut self.copying) {
                (QueueKind::Copies(_), Some(copying)) => copying,
                _ => &mut self.launching,
            };
            let buffer = commands.next(&self.timeline)?;
            // Whatever becomes of the buffer, it may be used again when the next submission is done.
            commands.used.push_back((self.last + 1, buffer));
            // Only launches are timed: a ring's many small copies would leave no stamps for them.
            let launches = !steps::launches(steps).is_empty();
            let room = (self.timed.len() as u32) < TIMED && timed && launches;
            let stamps = self.stamps.clone().filter(|_| room).map(|stamps| (stamps, self.timed.len() as u32));
            encode(kernels, buffer, steps, on, stamps.as_ref())?;
            self.send(buffer, on)?;
            self.timed.extend(stamps);
        }
        Ok(())
    }

    fn send(&mut self, buffer: vk::CommandBuffer, on: QueueKind) -> Result<(), Error> {
        let opened = self.gpu.open()?;
        let next = self.last + 1;
        let semaphores = [self.timeline.semaphore];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(std::slice::from_ref(&self.last))
            .signal_semaphore_values(std::slice::from_ref(&next));
        let info = vk::SubmitInfo::default()
            .command_buffers(std::slice::from_ref(&buffer))
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
            .signal_semaphores(&semaphores)
            .push_next(&mut values);
        let queue = match on {
            QueueKind::Copies(way) => opened.copies[way].as_deref().unwrap_or(&opened.compute),
            QueueKind::Compute => &opened.compute,
        };
        let queue = lock(queue);
        // SAFETY: the lock is the queue's; the buffer is not under way, and what its steps use is allocated: whoever drops
        // that waits before.
        let done = self.gpu.call(|| unsafe { opened.device.queue_submit(*queue, &[info], vk::Fence::null()) });
        drop(queue);
        self.gpu.check(done, "submitting work")?;
        self.last = next;
        Ok(())
    }

    /// Calls `submit`. After an error nothing is under way.
    fn measured(&mut self, submit: impl FnOnce(&mut VulkanQueue) -> Result<(), Error>) -> Result<(), Error> {
        self.began.get_or_insert_with(Instant::now);
        let done = submit(self);
        self.awaited = self.last;
        if done.is_err() {
            self.began = None;
            self.timed.clear();
            // The caller reports the first error.
            let _ = self.timeline.wait(self.last, self.limit);
        }
        done
    }
}

/// Writes steps to a command buffer: groups whose steps may overlap, and barriers between the groups.
fn encode(
    kernels: &Kernels,
    buffer: vk::CommandBuffer,
    steps: &[Step],
    on: QueueKind,
    stamps: Option<&(Arc<Stamps>, u32)>,
) -> Result<(), Error> {
    let gpu = &kernels.gpu;
    let opened = gpu.open()?;
    let device = &opened.device;
    // SAFETY: the buffer is not under way. An error may have left it half written, which beginning alone does not end.
    let begun = unsafe {
        device
            .reset_command_buffer(buffer, vk::CommandBufferResetFlags::empty())
            .and_then(|()| device.begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default()))
    };
    gpu.check(begun, "writing commands")?;
    let stamp = |number: u32| {
        if let Some((stamps, submission)) = stamps {
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            // SAFETY: the pool has room for as many as are numbered, and is reset below.
            unsafe { device.cmd_write_timestamp(buffer, stage, stamps.pool, submission * STAMPS + number) };
        }
    };
    if let Some((stamps, submission)) = stamps {
        // SAFETY: the submissions that wrote to these stamps before were waited for.
        unsafe { device.cmd_reset_query_pool(buffer, stamps.pool, submission * STAMPS, STAMPS) };
    }
    let (stages, written, used) = match on {
        QueueKind::Compute => (
            vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER,
            vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE,
            vk::AccessFlags::SHADER_READ
                | vk::AccessFlags::SHADER_WRITE
                | vk::AccessFlags::TRANSFER_READ
                | vk::AccessFlags::TRANSFER_WRITE,
        ),
        QueueKind::Copies(_) => (
            vk::PipelineStageFlags::TRANSFER,
            vk::AccessFlags::TRANSFER_WRITE,
            vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE,
        ),
    };
    let barrier = |to: vk::PipelineStageFlags, access: vk::AccessFlags| {
        let memory = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(access);
        // SAFETY: the buffer is being written, for a queue that has these stages.
        unsafe {
            device.cmd_pipeline_barrier(buffer, stages, to, vk::DependencyFlags::empty(), &[memory], &[], &[]);
        }
    };
    let launches = steps::launches(steps);
    if !launches.is_empty() {
        let (pipelines, tables) = (&opened.pipelines, lock(&opened.tables).set);
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the set lives as long as the device.
        unsafe { device.cmd_bind_descriptor_sets(buffer, point, pipelines.layout, 0, &[tables], &[]) };
    }
    stamp(0);
    for (number, part) in
        [&steps[..launches.start], &steps[launches.clone()], &steps[launches.end..]].iter().enumerate()
    {
        for group in steps::groups(part) {
            // The first barrier is for the work that other streams have under way on the same queue: launches take turns.
            barrier(stages, used);
            for step in group {
                write(kernels, buffer, step)?;
            }
        }
        stamp(number as u32 + 1);
    }
    barrier(vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ);
    // SAFETY: it was begun above.
    gpu.check(unsafe { device.end_command_buffer(buffer) }, "writing commands")
}

/// Writes one step to a command buffer.
fn write(kernels: &Kernels, buffer: vk::CommandBuffer, step: &Step) -> Result<(), Error> {
    let gpu = &kernels.gpu;
    let opened = gpu.open()?;
    let device = &opened.device;
    let places = |step: &Step| {
        let found: Option<Vec<_>> = steps::accesses(step).map(|access| gpu.find(access)).collect();
        found.ok_or_else(|| gpu.error("a program uses memory that it does not have".to_owned()))
    };
    match *step {
        Step::Upload { bytes, .. } | Step::Download { bytes, .. } => {
            let places = places(step)?;
            let [device_at, host_at] = places[..] else { return Ok(()) };
            let ((from, src), (to, dst)) = match step {
                Step::Upload { .. } => (host_at, device_at),
                _ => (device_at, host_at),
            };
            let region = vk::BufferCopy { src_offset: src, dst_offset: dst, size: bytes as u64 };
            // SAFETY: both ranges are inside their buffers.
            unsafe { device.cmd_copy_buffer(buffer, from, to, &[region]) };
        }
        Step::UploadColumns { width: 0, .. } | Step::UploadColumns { rows: 0, .. } => {}
        Step::UploadColumns { width, pitch, rows, .. } => {
            let places = places(step)?;
            let [(to, dst), (from, src)] = places[..] else { return Ok(()) };
            let region = |row: usize| {
                let offset = (row * pitch) as u64;
                vk::BufferCopy { src_offset: src + offset, dst_offset: dst + offset, size: width as u64 }
            };
            let regions: Vec<_> = (0..rows).map(region).collect();
            // SAFETY: all rows are inside their buffers, and there is one at least.
            unsafe { device.cmd_copy_buffer(buffer, from, to, &regions) };
        }
        Step::Zero { at, bytes } => {
            let places = places(step)?;
            let [(to, offset)] = places[..] else { return Ok(()) };
            if at % 4 != 0 || bytes % 4 != 0 {
                return Err(gpu.error(format!("{bytes} bytes at {at:x} are not whole words")));
            }
            // SAFETY: the range is inside its buffer, and in words.
            unsafe { device.cmd_fill_buffer(buffer, to, offset, bytes as u64, 0) };
        }
        Step::Launch(Launch { kernel, blocks, threads, ref args })
        | Step::SideLaunch(Launch { kernel, blocks, threads, ref args }) => {
            let pipeline = kernels.pipeline(kernel, threads)?;
            // Any shape gives the same bytes. Memory ends before a thread has so many jobs that it reaches Mesa's end of loops.
            let blocks = blocks.saturating_mul(threads.div_ceil(gpu.most.0)).clamp(1, gpu.most.1);
            // SAFETY: plain numbers without gaps.
            let args = unsafe { std::slice::from_raw_parts((&raw const *args).cast::<u8>(), size_of_val(args)) };
            let layout = opened.pipelines.layout;
            // SAFETY: the pipeline is the device's and kept by it; every kernel takes these arguments. The program is
            // responsible for what the kernel does with the addresses in them.
            unsafe {
                device.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, pipeline);
                device.cmd_push_constants(buffer, layout, vk::ShaderStageFlags::COMPUTE, 0, args);
                device.cmd_dispatch(buffer, blocks, 1, 1);
            }
        }
        Step::Fork | Step::Join => {}
    }
    Ok(())
}

impl Queue for VulkanQueue {
    type Kernels = Kernels;
    type Recording = VulkanRecording;

    fn submit(&mut self, kernels: &Kernels, steps: &[Step]) -> Result<(), Error> {
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        self.measured(|queue| queue.enqueue(kernels, steps, true))
    }

    fn record(&mut self, kernels: &Kernels, steps: &[Step]) -> Result<VulkanRecording, Error> {
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let mut commands = Commands::new(&self.gpu, self.gpu.families.compute)?;
        let buffer = commands.next(&self.timeline)?;
        let stamps = Stamps::new(&self.gpu, 1)?.map(|stamps| (Arc::new(stamps), 0));
        encode(kernels, buffer, steps, QueueKind::Compute, stamps.as_ref())?;
        Ok(VulkanRecording {
            under_way: Mutex::default(),
            buffer,
            accesses: steps.iter().flat_map(steps::accesses).collect(),
            stamps: stamps.map(|(stamps, _)| stamps),
            _commands: commands,
            gpu: self.gpu.clone(),
        })
    }

    fn replay(&mut self, recording: &VulkanRecording) -> Result<(), Error> {
        self.check_gpu(&recording.gpu)?;
        self.gpu.check_accesses(recording.accesses.iter().copied())?;
        recording.settle()?;
        self.measured(|queue| {
            queue.send(recording.buffer, QueueKind::Compute)?;
            *lock(&recording.under_way) = Some((queue.timeline.clone(), queue.last, queue.limit));
            queue.timed.extend(recording.stamps.clone().map(|stamps| (stamps, 0)));
            Ok(())
        })
    }

    fn mark(&mut self, slot: usize) -> Result<(), Error> {
        self.marks[slot] = Some(self.last);
        Ok(())
    }

    fn wait_for(&mut self, slot: usize) -> Result<(), Error> {
        match self.marks[slot].take() {
            Some(value) => self.timeline.wait(value, self.limit),
            None => Ok(()),
        }
    }

    fn follow(&mut self, kernels: &Kernels, steps: &[Step]) -> Result<(), Error> {
        self.check_gpu(&kernels.gpu)?;
        self.gpu.check_steps(steps)?;
        let done = self.enqueue(kernels, steps, false);
        if done.is_err() {
            let _ = self.timeline.wait(self.last, self.limit);
        }
        done
    }

    /// This has no effect: launches of a device's one queue run in the order in which they come.
    fn takes_turns(&mut self, _: bool) {}

    fn limit(&mut self, limit: WaitLimit) {
        self.limit = limit;
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        // Whatever has become of the device: a copy may be under way to memory that a caller has lent.
        let until = if self.began.is_some() { self.awaited } else { self.last };
        let waited = self.timeline.wait(until, self.limit);
        if self.limit.time.is_some() || !self.gpu.is_hung() {
            self.gpu.open()?;
        }
        let timed = std::mem::take(&mut self.timed);
        let Some(began) = self.began.take() else {
            return waited.map(|()| None);
        };
        waited?;
        let mut timing = Timing::default();
        for (stamps, submission) in &timed {
            let [upload, execute, download] = stamps.read(*submission)?;
            timing.upload += upload;
            timing.execute += execute;
            timing.download += download;
        }
        if self.stamps.is_none() {
            timing.execute = began.elapsed();
        }
        Ok(Some(timing))
    }
}

impl Drop for VulkanQueue {
    fn drop(&mut self) {
        // An error does not matter: a lost device has nothing under way, and nothing of a hung device is freed.
        let _ = self.timeline.wait(self.last, self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that a test holds up.
    pub(in crate::driver) struct Held(Arc<Timeline>, u64);

    impl Held {
        /// Lets the device do the work.
        pub(in crate::driver) fn release(self) {
            let info = vk::SemaphoreSignalInfo::default().semaphore(self.0.semaphore).value(self.1);
            // SAFETY: the semaphore lives, and its value is the one before.
            unsafe { self.0.gpu.opened().device.signal_semaphore(&info) }.unwrap();
        }
    }

    impl VulkanQueue {
        /// Holds up all later submissions until a test releases them. All earlier submissions must be done.
        pub(in crate::driver) fn hold(&mut self) -> Held {
            self.last += 1;
            Held(self.timeline.clone(), self.last)
        }
    }
}
