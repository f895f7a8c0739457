//! SHA-256 of many messages. Chunks of messages go through several streams of work, so that copies and launches overlap.

use crate::gpu::{BYTES_OF_A_THREAD, Facts, Gpu, Launch, Queue, Step, WaitLimit, put_words};
use crate::policy::Accepted::Between;
use crate::policy::{PolicyAxis, axis, with_threads, with_values};
use crate::program::wait_limit;
use hypergrove_engine::{Axis, Error, Hasher, Messages, Policy, Timing};
use hypergrove_fips205::Family;
use hypergrove_kernels::arguments::{Arguments, HashRows, HashSpans};
use hypergrove_kernels::{Config, HASH_BLOCKS, IMAD, Kernel, MAX_THREADS};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that the table locates begin at multiples of so many bytes.
const ALIGNMENT: usize = 16;
/// Words of the table for a message.
const SPAN_WORDS: usize = 3;
/// Bytes of a chunk for each message that it has room for. Shorter messages fill a chunk by their number.
const ROOM: usize = 64;
/// Threads of a block, at most.
const MOST_THREADS: u32 = 1024;

/// Choices for hashing that change time and memory, never bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashPolicy {
    /// Host threads that lay messages out.
    pub threads: usize,
    /// Threads of a block; 0: as many as spread the messages over all compute units.
    pub block: u32,
    /// Blocks; 0: a thread for each message.
    pub blocks: u32,
    /// Blocks of 256 threads a compute unit that the kernel's registers must leave room for; 64 registers where blocks
    /// are larger.
    pub occupancy: u32,
    /// The places of additions and shifts of a compression that go to the multiply-add pipe, as a mask.
    pub imad: u32,
    /// Streams of work, each with memory of its own.
    pub streams: u32,
    /// MiB of messages that one stream takes at a time, as a chunk.
    pub piece: u32,
}

impl Default for HashPolicy {
    fn default() -> HashPolicy {
        HashPolicy { threads: 1, block: 0, blocks: 0, occupancy: HASH_BLOCKS, imad: IMAD, streams: 3, piece: 32 }
    }
}

static AXES: [PolicyAxis<HashPolicy>; 6] = [
    axis!(block, [0, 1, 32, 64, 128, 256, 512, 1024], Between(0, MOST_THREADS)),
    axis!(blocks, [0, 1, 82, 128, 132, 256, 264, 528, 1056], Between(0, i32::MAX as u32)),
    axis!(occupancy, [2, 3, 4, 5, 6], Between(1, 8)),
    axis!(imad, [0, IMAD, 0x3ff, 0xfff], Between(0, 0xfff)),
    axis!(streams, [1, 2, 3, 4, 6, 8], Between(1, 64)),
    axis!(piece, [1, 4, 16, 32, 64, 256], Between(1, 4096)),
];

impl HashPolicy {
    /// The policy with the named values, and defaults for the rest.
    pub fn of(policy: &Policy) -> Result<HashPolicy, Error> {
        with_values(HashPolicy::default(), |out| &mut out.threads, &AXES, policy, "hashing on a GPU")
    }

    fn config(&self, imad: u32) -> Config {
        let (threads, blocks) =
            if self.block > MAX_THREADS { (MOST_THREADS, 1) } else { (MAX_THREADS, self.occupancy) };
        let defines = vec![("IMAD", imad), ("MAX_THREADS", threads), ("MIN_BLOCKS", blocks)];
        Config { family: Family::Sha2, n: 16, defines }
    }

    /// Bytes that a message may have on a device: a chunk has room for it, and a thread's loop is not too long. A block's rounds are four iterations,
    /// and the block is one.
    pub(crate) fn longest(&self, facts: &Facts) -> usize {
        ((self.piece as usize) << 20).min((facts.most_iterations / 5).saturating_mul(64))
    }

    /// Blocks and threads for so many messages.
    fn shape(&self, messages: usize, facts: &Facts) -> (u32, u32) {
        let share = messages.div_ceil(facts.compute_units as usize).next_multiple_of(32);
        let threads = match self.block {
            0 if facts.fixed_blocks => MAX_THREADS,
            0 => share.min(MAX_THREADS as usize) as u32,
            block => block,
        };
        let blocks = if self.blocks > 0 { self.blocks } else { messages.div_ceil(threads as usize).max(1) as u32 };
        (blocks, threads)
    }
}

/// Bytes of a run that measures the link, and how many runs there are.
const LINK_BYTES: usize = 512 << 20;
const LINK_RUNS: usize = 5;

/// Where the parts of a chunk lie in both memories, from the start.
#[derive(Clone, Copy)]
struct PieceLayout {
    bytes: usize,
    table: usize,
    digests: usize,
    all: usize,
}

/// A stream of work and its memory. The queue comes first: its drop waits for the work before the memory is freed.
struct Row<G: Gpu> {
    queue: G::Queue,
    device: G::Memory,
    host: G::HostMemory,
    /// The messages that are under way.
    busy: Option<Range<usize>>,
}

pub(crate) struct GpuHasher<G: Gpu> {
    gpu: Arc<G>,
    policy: HashPolicy,
    layout: PieceLayout,
    /// Kernels for many messages, and for few: with few, an addition's latency counts.
    kernels: [G::Kernels; 2],
    rows: Vec<Row<G>>,
}

impl<G: Gpu> GpuHasher<G> {
    pub(crate) fn new(gpu: &Arc<G>, policy: HashPolicy) -> Result<GpuHasher<G>, Error> {
        let bytes = (policy.piece as usize) << 20;
        let messages = bytes / ROOM;
        let (table, digests) = (bytes, bytes + 4 * SPAN_WORDS * messages);
        let layout = PieceLayout { bytes, table, digests, all: digests + 32 * messages };
        let threads = if policy.block > 0 { policy.block } else { MAX_THREADS };
        let kernels = |imad| gpu.kernels(&policy.config(imad), &[(Kernel::Sha256, threads)]);
        let row = |_| {
            let (device, host) = (gpu.alloc(layout.all)?, gpu.alloc_host(layout.all)?);
            Ok(Row { queue: gpu.queue()?, device, host, busy: None })
        };
        let rows = (0..policy.streams).map(row).collect::<Result<_, Error>>()?;
        let kernels = [kernels(policy.imad)?, kernels(0)?];
        let mut hasher = GpuHasher { gpu: gpu.clone(), policy, layout, kernels, rows };
        hasher.time_limit(WaitLimit::default().time);
        Ok(hasher)
    }

    /// Fails if the device was given up: then its memory may not be used.
    fn check_device(&self) -> Result<(), Error> {
        self.gpu.hung().map_or(Ok(()), Err)
    }

    fn longest(&self) -> usize {
        self.policy.longest(self.gpu.facts())
    }

    /// How many messages a chunk has room for.
    fn room(&self) -> usize {
        self.layout.bytes / ROOM
    }

    /// The messages of the chunk that begins with message `from`.
    fn piece(&self, messages: Messages<'_>, from: usize) -> Range<usize> {
        let most = messages.len().min(from + self.room());
        if let Some(each) = messages.each() {
            let room = self.layout.bytes / packed(messages.each(), each);
            return from..most.min(from + room);
        }
        let (mut to, mut left) = (from, self.layout.bytes);
        while to < most {
            match left.checked_sub(packed(None, messages.get(to).len())) {
                Some(less) => left = less,
                None => break,
            }
            to += 1;
        }
        from..to
    }

    /// A launch for so many messages on the device.
    fn launch<A: Arguments>(&self, messages: usize, arguments: A) -> Launch {
        let (blocks, threads) = self.policy.shape(messages, self.gpu.facts());
        Launch { kernel: A::KERNEL, blocks, threads, args: arguments.args(messages as u32) }
    }

    /// The index of the kernels for so many messages: 1 for few.
    fn kernels_index(&self, messages: usize) -> usize {
        usize::from(messages < (MAX_THREADS * self.gpu.facts().compute_units) as usize)
    }

    /// Lays out a chunk and submits it.
    fn submit(&mut self, row: usize, messages: Messages<'_>, piece: Range<usize>) -> Result<(), Error> {
        let (layout, part) = (self.layout, messages.range(piece.clone()));
        let host = G::host_bytes(&mut self.rows[row].host, 0..layout.digests);
        let (bytes, rest) = host.split_at_mut(layout.bytes);
        let straight = part.each().filter(|each| each.is_multiple_of(4));
        let used = match straight {
            Some(_) => copy(self.policy.threads, part.bytes(), bytes),
            None => pack(self.policy.threads, part, bytes, &mut rest[..4 * SPAN_WORDS * part.len()]),
        };
        let (device, host) = (G::address(&self.rows[row].device), G::host_address(&self.rows[row].host));
        let upload = |at, bytes| Step::Upload { to: device + at as u64, from: host + at as u64, bytes };
        let table = (device + layout.table as u64, 4 * SPAN_WORDS * part.len());
        let outs = device + layout.digests as u64;
        let launch = match straight {
            Some(bytes) => self.launch(part.len(), HashRows { messages: device, bytes: bytes as u32, digests: outs }),
            None => self.launch(part.len(), HashSpans { messages: device, table: table.0, digests: outs }),
        };
        let steps = [
            upload(0, used),
            upload(layout.table, if straight.is_none() { table.1 } else { 0 }),
            Step::Launch(launch),
            Step::Download { to: host + layout.digests as u64, from: outs, bytes: 32 * part.len() },
        ];
        self.rows[row].busy = Some(piece);
        let index = self.kernels_index(part.len());
        self.rows[row].queue.submit(&self.kernels[index], &steps)
    }

    /// Waits for a stream, and takes its digests.
    fn collect(&mut self, row: usize, digests: &mut [[u8; 32]], timing: &mut Timing) -> Result<(), Error> {
        let (layout, row) = (self.layout, &mut self.rows[row]);
        let Some(piece) = row.busy.take() else { return Ok(()) };
        if let Some(took) = row.queue.wait()? {
            *timing += &took;
        }
        let from = G::host_view(&row.host, layout.digests..layout.digests + 32 * piece.len());
        copy(self.policy.threads, from, digests[piece].as_flattened_mut());
        Ok(())
    }

    /// Waits until nothing is under way.
    fn settle(&mut self) {
        for row in &mut self.rows {
            row.busy = None;
            // The caller reports the first error.
            let _ = row.queue.wait();
        }
    }

    fn run_all(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let (mut timing, mut from, mut turn) = (Timing::default(), 0, 0);
        while from < messages.len() {
            let (row, piece) = (turn % self.rows.len(), self.piece(messages, from));
            if piece.is_empty() {
                return Err(self.too_long(messages.get(from).len()));
            }
            self.collect(row, digests, &mut timing)?;
            from = piece.end;
            self.submit(row, messages, piece)?;
            turn += 1;
        }
        for later in 0..self.rows.len() {
            self.collect((turn + later) % self.rows.len(), digests, &mut timing)?;
        }
        Ok(timing)
    }

    fn too_long(&self, bytes: usize) -> Error {
        let what = format!("a message of {bytes} bytes: it takes up to {}", self.longest());
        Error::Unsupported { device: self.gpu.facts().id.clone(), what }
    }
}

/// Bytes of a chunk that a message takes.
fn packed(each: Option<usize>, bytes: usize) -> usize {
    if each.is_some_and(|each| each.is_multiple_of(4)) { bytes } else { bytes.next_multiple_of(ALIGNMENT) }
}

/// Copies bytes, by all threads if there are many, even a chunk's digests. Returns how many.
fn copy(threads: usize, from: &[u8], to: &mut [u8]) -> usize {
    let to = &mut to[..from.len()];
    if threads > 1 && from.len() > BYTES_OF_A_THREAD {
        to.par_chunks_mut(BYTES_OF_A_THREAD)
            .zip(from.par_chunks(BYTES_OF_A_THREAD))
            .for_each(|(to, from)| to.copy_from_slice(from));
    } else {
        to.copy_from_slice(from);
    }
    from.len()
}

/// Lays out messages, each at a multiple of 16 bytes, and writes their places to the table. The longest messages come first, so that threads
/// that run concurrently end together. Returns the bytes used.
fn pack(threads: usize, messages: Messages<'_>, to: &mut [u8], table: &mut [u8]) -> usize {
    let (mut spans, mut used) = (Vec::with_capacity(messages.len()), 0);
    for number in 0..messages.len() {
        let bytes = messages.get(number).len();
        spans.push([(used / ALIGNMENT) as u32, bytes as u32, number as u32]);
        used += bytes.next_multiple_of(ALIGNMENT);
    }
    let start = |number: usize| spans.get(number).map_or(used, |span| span[0] as usize * ALIGNMENT);
    let some = |range: Range<usize>, to: &mut [u8]| {
        let base = start(range.start);
        for number in range {
            let message = messages.get(number);
            to[start(number) - base..][..message.len()].copy_from_slice(message);
        }
    };
    if threads > 1 && used > BYTES_OF_A_THREAD {
        let task = messages.len().div_ceil(4 * threads);
        let (mut tasks, mut rest) = (Vec::new(), &mut to[..used]);
        for first in (0..messages.len()).step_by(task) {
            let range = first..(first + task).min(messages.len());
            let mine = rest.split_off_mut(..start(range.end) - start(range.start)).expect("room for all messages");
            tasks.push((range, mine));
        }
        tasks.into_par_iter().for_each(|(range, to)| some(range, to));
    } else {
        some(0..messages.len(), to);
    }
    if messages.each().is_none() {
        let key = |span: &[u32; 3]| (!span[1], span[2]);
        if threads > 1 { spans.par_sort_unstable_by_key(key) } else { spans.sort_unstable_by_key(key) }
    }
    put_words(table, spans.into_flattened());
    used
}

impl<G: Gpu> Hasher for GpuHasher<G> {
    fn space(&self) -> Vec<Axis> {
        with_threads(&AXES).filter(|axis| self.gpu.facts().has(axis.name)).collect()
    }

    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        messages.check(digests)?;
        self.check_device()?;
        // A chunk may have room for a message that is too long for a thread.
        if self.longest() < self.layout.bytes && messages.longest() > self.longest() {
            return Err(self.too_long(messages.longest()));
        }
        let done = self.run_all(messages, digests);
        if done.is_err() {
            self.settle();
        }
        done
    }

    fn link(&mut self) -> Result<Option<f64>, Error> {
        if self.gpu.facts().is_cpu {
            return Ok(None);
        }
        self.check_device()?;
        let (bytes, row) = (self.layout.bytes, &mut self.rows[0]);
        let (to, from) = (G::address(&row.device), G::host_address(&row.host));
        let copies = LINK_BYTES.div_ceil(bytes);
        let steps = vec![Step::Upload { to, from, bytes }; copies];
        let mut least = f64::INFINITY;
        for _ in 0..LINK_RUNS {
            let start = Instant::now();
            row.queue.submit(&self.kernels[0], &steps)?;
            row.queue.wait()?;
            least = least.min(start.elapsed().as_secs_f64());
        }
        Ok(Some((copies * bytes) as f64 / least))
    }

    fn resident(
        &mut self,
        messages: Messages<'_>,
        copies: usize,
        runs: usize,
        digests: &mut [[u8; 32]],
    ) -> Result<Option<Vec<Duration>>, Error> {
        messages.check(digests)?;
        self.check_device()?;
        let (count, bytes) = (messages.len(), messages.bytes().len());
        let each = messages
            .each()
            .filter(|each| each.is_multiple_of(4) && *each <= self.longest() && bytes <= self.layout.bytes);
        let (all_messages, all_bytes) = (copies.saturating_mul(count), copies.saturating_mul(bytes));
        // Kernels number the words of messages and of digests by 32 bits.
        let is_numbered = all_bytes / 4 < 1 << 32 && all_messages < 1 << 29;
        let (Some(each), true) = (each, copies > 0 && bytes > 0 && count <= self.room() && is_numbered) else {
            let what = format!(
                "{copies} copies of {count} messages, {bytes} bytes a copy: in the device's memory only messages of one length, a multiple of 4 bytes, \
                 are measured, with fewer than 2^32 words in all"
            );
            return Err(Error::Unsupported { device: self.gpu.facts().id.clone(), what });
        };
        copy(self.policy.threads, messages.bytes(), G::host_bytes(&mut self.rows[0].host, 0..bytes));
        let (memory, outs) = (self.gpu.alloc(all_bytes)?, self.gpu.alloc(32 * all_messages)?);
        let (at, out) = (G::address(&memory), G::address(&outs));
        let launch = self.launch(all_messages, HashRows { messages: at, bytes: each as u32, digests: out });
        let index = self.kernels_index(all_messages);
        let (kernels, row) = (&self.kernels[index], &mut self.rows[0]);
        let host = G::host_address(&row.host);
        let timed = |row: &mut Row<G>, steps: &[Step]| {
            let start = Instant::now();
            row.queue.submit(kernels, steps)?;
            Ok::<_, Error>(row.queue.wait()?.map_or(start.elapsed(), |timing| timing.execute))
        };
        let mut measure = || {
            let upload = |copy| Step::Upload { to: at + (copy * bytes) as u64, from: host, bytes };
            timed(row, &(0..copies).map(upload).collect::<Vec<_>>())?;
            let times = (0..runs).map(|_| timed(row, &[Step::Launch(launch)])).collect::<Result<Vec<_>, Error>>()?;
            let to = host + self.layout.digests as u64;
            let from = out + 32 * (all_messages - count) as u64;
            timed(row, &[Step::Download { to, from, bytes: 32 * count }])?;
            Ok(times)
        };
        let times: Result<_, Error> = measure();
        if times.is_err() {
            // The memory is freed only when nothing uses it any more.
            let _ = row.queue.wait();
        }
        let times = times?;
        let from = G::host_view(&row.host, self.layout.digests..self.layout.digests + 32 * count);
        digests.as_flattened_mut().copy_from_slice(from);
        Ok(Some(times))
    }

    fn time_limit(&mut self, limit: Option<Duration>) {
        let limit = wait_limit("SHA-256 of messages", limit, self.gpu.facts());
        self.rows.iter_mut().for_each(|row| row.queue.limit(limit));
    }
}
