//! SHA-256 of many messages (FIPS 180-4).

use crate::engine::{Engine, Inner};
use crate::flow::{Flow, Progress};
use crate::rows::{CallOfRows, Column, ForeignColumn, Results, RowMemory, RowStatus, copies_at_a_time, copy_columns};
use crate::slh_dsa::host_isa;
use hypergrove_cpu::{Cpu, MessagePart, SHA256_START, Sha256, sha256};
use hypergrove_engine::programs::typed;
use hypergrove_engine::scheduler::{Job, Outcomes, Run, Scheduler, Worker, lock};
use hypergrove_engine::scheme::Kind;
use hypergrove_engine::scheme::{Group, GroupFacts};
use hypergrove_engine::{Backend, Error, HashProgram, Messages, Policy, SelfTested, Sha256Programs, THREADS};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::iter::from_fn;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Up to about so many bytes, or for one message, the host hashes by itself: that takes less time than asking a driver.
const FEW_BYTES: usize = 1 << 20;
/// The most bytes of messages that are put together.
const MOST_PUT_TOGETHER: usize = 256 << 20;
/// The bytes of a message that are read at a time.
const PIECE: usize = 128 << 10;
/// The pause before a thread tries again to open a file that there was no room for.
const PAUSE: Duration = Duration::from_millis(1);
/// About how long a thread of the engine reads and hashes before other calls may have it.
const SLICE: Duration = Duration::from_millis(2);
/// The bytes that the padding adds to a message on average: end mark, length, and half a block.
const PADDING: usize = 40;

/// Bytes of a sum.
const SUM: usize = 32;

/// Bytes of a block: the unit of work.
const BLOCK: usize = 64;

/// Successive messages of about so many bytes together, or one longer message.
fn parts(messages: Messages<'_>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    from_fn(move || {
        let start = from;
        from = messages.ended_by(messages.start(start) + bytes).max(start + 1);
        (start < messages.len()).then_some(start..from)
    })
}

/// Messages to be hashed, and the memory for their digests. A row is a block of 64 bytes, because messages may differ in length.
struct HashJob<'a> {
    kind: Kind,
    messages: Messages<'a>,
    digests: &'a mut [[u8; 32]],
    blocks: usize,
}

/// The blocks that messages have with their padding.
fn blocks_of(messages: Messages<'_>) -> usize {
    (messages.start(messages.len()) + PADDING * messages.len()).div_ceil(BLOCK).max(1)
}

impl Job for HashJob<'_> {
    type Out = ();

    const JOINS: bool = false;

    fn kind(&self) -> Result<Kind, Error> {
        Ok(self.kind)
    }

    fn count(&self) -> usize {
        self.blocks
    }

    /// A message stays whole. So the front may have more blocks, if they are those of its first message.
    fn cut(&mut self, rows: usize) -> Option<Self> {
        let all = self.messages.len();
        if all < 2 || self.blocks < 2 {
            return None;
        }
        let (mut count, mut too_many) = (1, all);
        while too_many - count > 1 {
            let middle = count.midpoint(too_many);
            if blocks_of(self.messages.range(0..middle)) <= rows { count = middle } else { too_many = middle }
        }
        let messages = self.messages.range(0..count);
        let blocks = blocks_of(messages).min(self.blocks - 1);
        let digests = self.digests.split_off_mut(..count).expect("a digest for each message");
        (self.messages, self.blocks) = (self.messages.range(count..all), self.blocks - blocks);
        Some(HashJob { kind: self.kind, messages, digests, blocks })
    }

    fn owned(&self) -> usize {
        0
    }

    fn output(&self, _: &GroupFacts) -> usize {
        0
    }

    fn run(Run { place, facts }: &Run<'_>, jobs: &mut [&mut Self], _: &mut Vec<u8>) -> Result<Outcomes<()>, Error> {
        for HashJob { messages, digests, blocks, .. } in jobs.iter_mut().map(|job| &mut **job) {
            place.program(facts, *blocks, &mut |program, _| {
                let HashProgram(hasher) = typed(program);
                hasher.run(*messages, digests)
            })?;
        }
        Ok(vec![(); jobs.len()].into())
    }
}

impl Inner {
    /// Tests once whether the host's lanes hash correctly.
    fn test_host(&self) -> Result<(), Error> {
        let test = || {
            let cpu = SelfTested::of(Arc::new(Cpu::with(host_isa(&self.scheduler)).expect("detected")));
            let device = &cpu.devices()?[0];
            cpu.sha256_on(device)?.prepare(device, &Policy::default()).map(drop)
        };
        self.host_hashing.get_or_init(test).clone()
    }

    fn lanes(&self) -> Box<dyn Sha256> {
        sha256(host_isa(&self.scheduler)).expect("detected")
    }

    /// The host, if it is one of the devices that work.
    fn host(&self) -> Option<&Worker> {
        self.scheduler.live().find(|worker| !worker.is_discrete())
    }

    /// Hashes messages that no device takes with the host's lanes.
    fn hash_on_host(
        &self,
        scheduler: &Scheduler,
        messages: Messages<'_>,
        digests: &mut [[u8; 32]],
    ) -> Result<(), Error> {
        self.test_host()?;
        let (cpu, place) = (Cpu::with(host_isa(&self.scheduler)).expect("detected"), scheduler.host_place(usize::MAX)?);
        let threads = place.pool.map_or(1, |pool| pool.current_num_threads());
        let policy = Policy(vec![(THREADS, threads as u32)]);
        let mut hasher = Sha256Programs::prepare(&cpu, &cpu.devices()?[0], &policy)?;
        parts(messages, self.room()).try_for_each(|part| {
            scheduler.check()?;
            place.install(&mut || hasher.run(messages.range(part.clone()), &mut digests[part.clone()]).map(drop))
        })
    }

    fn hash(&self, scheduler: &Scheduler, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<(), Error> {
        if messages.is_empty() {
            return Ok(());
        }
        let kind = Kind::sha256(messages.longest());
        let group = Group { kind, threads: scheduler.options.threads };
        if !scheduler.live().any(|worker| worker.takes(group)) {
            return self.hash_on_host(scheduler, messages, digests);
        }
        let blocks = blocks_of(messages);
        let job = HashJob { kind, messages, digests, blocks };
        if let (None, Some(host)) = (parts(messages, FEW_BYTES).nth(1), self.host()) {
            return scheduler.one(Some(host), job);
        }
        let mut done = Ok(());
        scheduler.run(None, Some(blocks), &mut std::iter::once(job), &mut |_, hashed| {
            done = hashed;
            if done.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        done
    }

    /// The most bytes of messages that are put together. The bytes, their ends and the digests each take at most a quarter of the memory budget.
    fn room(&self) -> usize {
        usize::try_from(self.scheduler.memory_budget() / 4).unwrap_or(usize::MAX).clamp(PIECE, MOST_PUT_TOGETHER)
    }

    /// Hashes rows whose column was checked, in batches that fit the memory.
    fn hash_rows(&self, mut call: CallOfRows<'_, Column<'_>>, progress: Progress<'_>) -> Result<(), Error> {
        let column = call.columns;
        let scheduler = self.scheduler.of_call();
        if let (Column::Packed { width: width @ 1.., .. }, Some(span)) = (column, column.span(call.left())) {
            let (rows, messages) = (call.left().len(), Messages::equal(span, width)?);
            call.hand_out(rows, RowStatus::Hashed, |sums| self.hash(&scheduler, messages, sums.as_chunks_mut().0))?;
            let _ = progress(rows);
            return Ok(());
        }
        let foreign = ForeignColumn::of(&column, None);
        let place = foreign.map(|_| scheduler.host_place(usize::MAX)).transpose()?;
        let most = place.map_or(usize::MAX, |place| copies_at_a_time(place.worker.has_memory(), place.threads));
        let length = |row| match &foreign {
            Some(foreign) => Some(foreign.length(row)),
            None => column.get(row).map(<[u8]>::len),
        };
        let room = self.room().min(most);
        let (mut ends, mut copies, mut memory) = (Vec::new(), Vec::new(), None);
        while !call.left().is_empty() {
            let Range { start, end } = call.left();
            ends.clear();
            let mut bytes = 0;
            let most = end.min(start + room / size_of::<usize>());
            for length in (start..most).map_while(length) {
                if !ends.is_empty() && bytes + length > room {
                    break;
                }
                bytes += length;
                ends.push(bytes);
            }
            let rows = start..start + ends.len();
            let bytes = match (column.get(start), column.span(rows.clone())) {
                _ if let (Some(_), Some(place)) = (foreign, &place) => {
                    copy_columns(place, vec![([None, foreign, None], rows.clone())], &mut memory)?;
                    &memory.as_deref().unwrap_or_default()[..bytes]
                }
                (None, _) => {
                    call.hand_out(1, RowStatus::BadOffsets, |sum| {
                        sum.fill(0);
                        Ok(())
                    })?;
                    continue;
                }
                (_, Some(span)) => span,
                // A single message may have any length: it is not copied.
                (Some(message), None) if rows.len() == 1 => message,
                _ => {
                    copies.clear();
                    rows.clone()
                        .filter_map(|row| column.get(row))
                        .for_each(|message| copies.extend_from_slice(message));
                    &copies
                }
            };
            let messages = Messages::new(bytes, &ends)?;
            call.hand_out(rows.len(), RowStatus::Hashed, |sums| {
                self.hash(&scheduler, messages, sums.as_chunks_mut().0)
            })?;
            if progress(rows.end).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Computes SHA-256 of one message for each row. The sum of row i goes to `sums[32 * i..]`, its status to `statuses[i]`:
    /// [`RowStatus::Hashed`], or why there is no sum. A row without a sum has zeros in its place. An error concerns the whole call. Rows that
    /// were hashed before the error keep their sums.
    ///
    /// Messages that lie one after the other are hashed where they are. Other messages are copied together first, in bounded memory. Several devices
    /// share the messages. The CPU hashes few bytes, and messages that are too long for all other devices.
    ///
    /// ```
    /// use hypergrove::Engine;
    /// use hypergrove::rows::{Column, Offsets, RowStatus};
    ///
    /// // As Arrow has them: three messages, the second of which is empty.
    /// let messages = Column::Variable { bytes: b"abcdefgh", offsets: Offsets::I32(&[0, 3, 3, 8]) };
    /// let (mut sums, mut statuses) = ([0; 3 * 32], [RowStatus::default(); 3]);
    /// Engine::new()?.sha256_rows(messages, &mut sums, &mut statuses)?;
    /// assert_eq!((statuses, sums[32]), ([RowStatus::Hashed; 3], 0xe3));
    /// # Ok::<(), hypergrove::Error>(())
    /// ```
    pub fn sha256_rows(&self, messages: Column<'_>, sums: &mut [u8], statuses: &mut [RowStatus]) -> Result<(), Error> {
        self.sha256_rows_into(messages, sums.into(), statuses, |_| ())
    }

    /// Hashes as [`Engine::sha256_rows`] does, into memory that only the call uses or into memory that others may use. `progress` gets the
    /// number of completed rows now and then, as in [`Engine::sign_rows_with_progress`].
    pub fn sha256_rows_into<F: Flow>(
        &self,
        messages: Column<'_>,
        sums: RowMemory<'_>,
        statuses: &mut [RowStatus],
        mut progress: impl FnMut(usize) -> F,
    ) -> Result<(), Error> {
        // A status of an earlier call must not look like one of this call.
        statuses.fill(RowStatus::NotComputed);
        messages.check("messages", statuses.len())?;
        Error::check_length("the memory for sums", statuses.len().saturating_mul(SUM), sums.size())?;
        let call = CallOfRows::new(messages, statuses.len(), Results::new(sums, SUM, statuses));
        self.0.hash_rows(call, &mut |done| progress(done).flow())
    }

    /// Computes SHA-256 of `count` files or other readers, of any lengths. `open` opens number i, on any of the engine's threads. `sink` gets
    /// the sums in order, on this thread. If a reader cannot be opened or read, `sink` gets the error, and the others go on.
    ///
    /// The engine's threads hash many files concurrently, each where it was read. Devices do so only if the engine has no CPU. The engine
    /// opens no more files than the process may open. If the rest of the program leaves too few, the call waits until it can close
    /// files of its own. While a reader blocks, it keeps a thread of the engine. So no reader may wait for another call of this engine.
    pub fn sha256_each<R: Read + Send>(
        &self,
        count: usize,
        open: impl Fn(usize) -> io::Result<R> + Sync,
        mut sink: impl FnMut(usize, io::Result<[u8; 32]>),
    ) -> Result<(), Error> {
        let scheduler = self.0.scheduler.of_call();
        if self.0.host().is_none() {
            return self.0.gather(&scheduler, count, open, &mut sink);
        }
        self.0.test_host()?;
        let (source, most) = (Source::new(count, open), most_files());
        let tasks = scheduler.options.threads.min(count).min(most);
        let share = count.div_ceil(tasks.max(1)).min(most / tasks.max(1));
        let lanes: Vec<_> = (0..tasks).map(|_| Mutex::new(FileLanes::new(self.0.lanes()))).collect();
        let slice = |task: usize, done: &mut dyn FnMut(Done)| {
            if scheduler.check().is_err() {
                return ControlFlow::Break(());
            }
            // Each task runs one slice at a time. After a panic there is no further slice.
            let mut lanes = lock(&lanes[task]);
            lanes.slice(&source, share, done)
        };
        let mut order = Order::default();
        scheduler.host_place(tasks)?.in_slices(tasks, &slice, &mut |done| order.add(done, &mut sink));
        // Without an end, there are all sums.
        if order.next < count { scheduler.check() } else { Ok(()) }
    }
}

/// The number of a message, and its sum or why it could not be read.
type Done = (usize, io::Result<[u8; 32]>);

/// Results that wait for the results of earlier numbers.
#[derive(Default)]
struct Order {
    next: usize,
    waiting: BTreeMap<usize, io::Result<[u8; 32]>>,
}

impl Order {
    fn add(&mut self, (index, digest): Done, sink: &mut impl FnMut(usize, io::Result<[u8; 32]>)) {
        self.waiting.insert(index, digest);
        while let Some(digest) = self.waiting.remove(&self.next) {
            sink(self.next, digest);
            self.next += 1;
        }
    }
}

/// The most files that this call may have open. A quarter of the files that the process may open are for the rest of the program.
fn most_files() -> usize {
    #[cfg(unix)]
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    #[cfg(unix)]
    if let Some((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(limit, _)| *limit != RLIM_INFINITY) {
        return usize::try_from(limit / 4 * 3).unwrap_or(usize::MAX).max(1);
    }
    usize::MAX
}

/// Whether the process, or the system, has no room for another open file.
fn is_full(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        // EMFILE and ENFILE: the same numbers on every Unix.
        matches!(error.raw_os_error(), Some(24 | 23))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// The readers of a call, which tasks take by number and open.
struct Source<O> {
    open: O,
    count: usize,
    /// The first number that no task has taken yet.
    next: AtomicUsize,
    /// How many readers are open.
    opened: AtomicUsize,
    /// Locked by threads that open a reader: shared at first, and exclusively by a thread that tries again because there was no room.
    opening: RwLock<()>,
}

/// Counts an open reader until it is closed.
struct OpenCount<'s>(&'s AtomicUsize);

impl Drop for OpenCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl<O> Source<O> {
    fn new(count: usize, open: O) -> Source<O> {
        Source { open, count, next: AtomicUsize::new(0), opened: AtomicUsize::new(0), opening: RwLock::default() }
    }

    /// Opens number `index`. `None` if there is no room, and there will be once a reader of this call is closed. `is_idle` says that the caller has
    /// no reader open.
    fn open<R>(&self, index: usize, is_idle: bool) -> Option<io::Result<(R, OpenCount<'_>)>>
    where
        O: Fn(usize) -> io::Result<R>,
    {
        let open = || {
            let reader = (self.open)(index)?;
            self.opened.fetch_add(1, Relaxed);
            Ok((reader, OpenCount(&self.opened)))
        };
        let first = {
            let _shared = self.opening.read().unwrap_or_else(PoisonError::into_inner);
            open()
        };
        match first {
            // A task with open readers closes them before it tries again.
            Err(error) if is_full(&error) && !is_idle => return None,
            Err(error) if is_full(&error) => {}
            opened => return Some(opened),
        }
        // Nobody waits for a lock: a thread may take long to open its reader, and the others read on.
        let _exclusive = match self.opening.try_write() {
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(exclusive) => exclusive,
        };
        // No other thread opens a reader now. If none was open before, none is open now, and the failure is final.
        let others = self.opened.load(Relaxed) > 0;
        Some(open()).filter(|opened| !others || opened.as_ref().err().is_none_or(|error| !is_full(error)))
    }
}

/// A reader whose message is being hashed.
struct Reading<'s, R> {
    index: usize,
    // Fields drop in order: the reader is closed before it counts as closed.
    reader: R,
    _opened: OpenCount<'s>,
    state: [u8; 32],
    length: u64,
    buffer: Vec<u8>,
    filled: usize,
}

/// Reads until the buffer is full or the reader has no more.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// One task of a call: readers whose messages are hashed together.
struct FileLanes<'s, R> {
    hash: Box<dyn Sha256>,
    reading: Vec<Reading<'s, R>>,
    spare: Vec<Vec<u8>>,
    /// A number that was taken, but not opened for want of room.
    kept: Option<usize>,
}

impl<'s, R: Read> FileLanes<'s, R> {
    fn new(hash: Box<dyn Sha256>) -> FileLanes<'s, R> {
        FileLanes { hash, reading: Vec::new(), spare: Vec::new(), kept: None }
    }

    /// Takes numbers from the source, at most `share` at a time, and hashes [`PIECE`] bytes of each in turn. Continues until a [`SLICE`] of time is
    /// over, and breaks when there are no more numbers.
    fn slice<O: Fn(usize) -> io::Result<R>>(
        &mut self,
        source: &'s Source<O>,
        share: usize,
        done: &mut dyn FnMut(Done),
    ) -> ControlFlow<()> {
        let FileLanes { hash, reading, spare, kept } = self;
        let begun = Instant::now();
        while begun.elapsed() < SLICE {
            while reading.len() < hash.lanes().min(share) {
                let index = kept.take().unwrap_or_else(|| source.next.fetch_add(1, Relaxed));
                if index >= source.count {
                    break;
                }
                match source.open(index, reading.is_empty()) {
                    Some(Ok((reader, _opened))) => {
                        let buffer = spare.pop().unwrap_or_else(|| vec![0; PIECE]);
                        let (state, length, filled) = (SHA256_START, 0, 0);
                        reading.push(Reading { index, reader, _opened, state, length, buffer, filled });
                    }
                    Some(Err(error)) => done((index, Err(error))),
                    None => {
                        *kept = Some(index);
                        break;
                    }
                }
            }
            if reading.is_empty() {
                if kept.is_none() {
                    return ControlFlow::Break(());
                }
                // Other tasks close their readers. They may need this thread for that.
                sleep(PAUSE);
                break;
            }
            for i in (0..reading.len()).rev() {
                let it = &mut reading[i];
                match fill(&mut it.reader, &mut it.buffer) {
                    Ok(filled) => (it.filled, it.length) = (filled, it.length + filled as u64),
                    Err(error) => {
                        let it = reading.swap_remove(i);
                        spare.push(it.buffer);
                        done((it.index, Err(error)));
                    }
                }
            }
            let ends = |it: &Reading<'_, R>| it.filled < PIECE;
            let mut parts: Vec<MessagePart<'_>> = reading
                .iter()
                .map(|it| MessagePart {
                    state: it.state,
                    bytes: &it.buffer[..it.filled],
                    end: ends(it).then_some(it.length),
                })
                .collect();
            hash.absorb(&mut parts);
            let states: Vec<[u8; 32]> = parts.iter().map(|part| part.state).collect();
            for (i, state) in states.into_iter().enumerate().rev() {
                reading[i].state = state;
                if ends(&reading[i]) {
                    let it = reading.swap_remove(i);
                    spare.push(it.buffer);
                    done((it.index, Ok(state)));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Inner {
    /// Hashes everything on the devices, in batches, for an engine without the host.
    fn gather<R: Read>(
        &self,
        scheduler: &Scheduler,
        count: usize,
        open: impl Fn(usize) -> io::Result<R>,
        sink: &mut impl FnMut(usize, io::Result<[u8; 32]>),
    ) -> Result<(), Error> {
        let (room, mut order) = (self.room(), Order::default());
        let (mut bytes, mut ends, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            scheduler.check()?;
            let start = bytes.len();
            // A message is too long if it has one byte more than a batch has room for.
            let most = room + 1;
            let read = open(index).and_then(|mut reader| {
                let read = reader.by_ref().take(most as u64).read_to_end(&mut bytes)?;
                Ok((read, reader))
            });
            match read {
                Ok((read, _)) if read < most => {
                    ends.push(bytes.len());
                    numbers.push(index);
                }
                long_or_failed => {
                    let digest = match long_or_failed {
                        Ok((_, rest)) => self.hash_long(scheduler, bytes[start..].chain(rest))?,
                        Err(error) => Err(error),
                    };
                    bytes.truncate(start);
                    order.add((index, digest), sink);
                }
            }
            // An end and a digest count as bytes too, because messages may be empty.
            if index + 1 == count || bytes.len() + PADDING * ends.len() >= room {
                let mut digests = vec![[0; 32]; ends.len()];
                self.hash(scheduler, Messages::new(&bytes, &ends)?, &mut digests)?;
                numbers.drain(..).zip(digests).for_each(|(index, digest)| order.add((index, Ok(digest)), sink));
                bytes.clear();
                ends.clear();
            }
        }
        Ok(())
    }

    /// Hashes a message that no batch has room for, in pieces, on the host.
    fn hash_long(&self, scheduler: &Scheduler, reader: impl Read) -> Result<io::Result<[u8; 32]>, Error> {
        self.test_host()?;
        let (reader, mut sum) = (RefCell::new(Some(reader)), None);
        let source = Source::new(1, |_| Ok(reader.take().expect("it is opened once")));
        let mut lanes = FileLanes::new(self.lanes());
        while lanes.slice(&source, 1, &mut |(_, digest)| sum = Some(digest)).is_continue() {
            scheduler.check()?;
        }
        drop(lanes);
        Ok(sum.expect("one message has one sum"))
    }
}
