//! Large copies between a caller's rows and a device. They go through a ring of pinned slots, which threads fill or empty while the device
//! copies other slots.

use crate::gpu::{Gpu, Queue, SLOTS, Step};
use hypergrove_engine::Error;
use rayon::prelude::*;
use rayon::{Scope, Yield, in_place_scope, yield_now};
use std::sync::mpsc::{Receiver, channel};

/// Bytes of one slot, at most: so few that all slots stay in the host's cache until they are read. (An H200 verifies 3.84 to 3.93
/// million signatures of 128s a second from ordinary memory; 3.01 to 3.72 with slots of 4 MiB, 3.39 with 1 MiB, 2.50 with 512 KiB.)
const MOST_OF_SLOT: usize = if cfg!(test) { 100 } else { 2 << 20 };

/// Bytes of one slot, at least: handing a slot over takes some 13 µs. (An H200 makes 76,000 to 81,000 signatures of 128f a second in calls of
/// 64 rows in ordinary memory; 71,000 with a sixteenth of the rows in each slot.) In tests of this crate a slot has one row, or a few.
const LEAST_OF_SLOT: usize = if cfg!(test) { 1 } else { 256 << 10 };

/// Whether a pool's threads do the host's work: a caller outside of every pool has little to do.
pub(crate) fn in_threads(threads: usize) -> bool {
    threads > 1 && rayon::current_thread_index().is_some()
}

/// Calls `put` with the number and the `row` bytes of each row. The threads of the current pool do so if `parallel`, each for this many rows or more.
pub(crate) fn each_row(
    bytes: &mut [u8],
    row: usize,
    parallel: Option<usize>,
    put: impl Fn(usize, &mut [u8]) + Send + Sync,
) {
    let put = |(number, bytes): (usize, &mut [u8])| put(number, bytes);
    match parallel {
        Some(least) => bytes.par_chunks_exact_mut(row).enumerate().with_min_len(least).for_each(put),
        None => bytes.chunks_exact_mut(row).enumerate().for_each(put),
    }
}

/// The slots of a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slots {
    /// Bytes of a row.
    row: usize,
    /// Rows of a slot.
    rows: usize,
    /// How many slots.
    count: usize,
}

impl Slots {
    /// Slots for so many rows of `row` bytes.
    pub(crate) fn new(rows: usize, row: usize) -> Slots {
        let bytes = (rows * row).div_ceil(SLOTS).clamp(LEAST_OF_SLOT, MOST_OF_SLOT);
        let of_slot = (bytes / row).max(1);
        Slots { row, rows: of_slot, count: rows.div_ceil(of_slot).min(SLOTS) }
    }

    /// Bytes of a slot.
    fn bytes(&self) -> usize {
        self.rows * self.row
    }

    /// Bytes of all slots.
    pub(crate) fn all_bytes(&self) -> usize {
        self.count * self.bytes()
    }
}

/// A ring of slots in pinned memory, and the queue that copies from and to it.
pub(crate) struct Ring<'a, G: Gpu> {
    pub queue: &'a mut G::Queue,
    pub kernels: &'a G::Kernels,
    pub host: &'a G::HostMemory,
    /// Where the ring begins in the host's memory.
    pub at: usize,
    /// Slots for at least as many rows as are copied at a time.
    pub slots: Slots,
    /// Whether the threads of the current pool share the copying. If not, the calling thread does all of it.
    pub parallel: bool,
}

impl<G: Gpu> Ring<'_, G> {
    /// Where the slot of a chunk begins in the host's memory.
    fn slot_of(&self, chunk: usize) -> usize {
        self.at + chunk % SLOTS * self.slots.bytes()
    }
    fn address(&self, chunk: usize) -> u64 {
        G::host_address(self.host) + self.slot_of(chunk) as u64
    }

    /// Copies rows to the device; returns when the last copies are under way.
    pub(crate) fn send(&mut self, rows: &[&[u8]], to: u64) -> Result<(), Error> {
        let (Slots { row, rows: of_slot, .. }, host) = (self.slots, self.host);
        let chunks: Vec<&[&[u8]]> = rows.chunks(of_slot).collect();
        copiers(self.parallel, |copiers| {
            let (sender, filled) = channel();
            let mut is_being_filled = [false; SLOTS];
            for i in 0..chunks.len() + SLOTS {
                // All full slots go to the device before this thread waits, so that the device has slots to copy meanwhile. And a slot
                // goes there before other rows are copied into it.
                loop {
                    let full: usize = match is_being_filled[i % SLOTS] {
                        true => next(&filled),
                        false => match filled.try_recv() {
                            Ok(full) => full,
                            Err(_) => break,
                        },
                    };
                    is_being_filled[full % SLOTS] = false;
                    let (to, from) = (to + (full * of_slot * row) as u64, self.address(full));
                    self.queue.submit(self.kernels, &[Step::Upload { to, from, bytes: chunks[full].len() * row }])?;
                    self.queue.mark(full % SLOTS)?;
                }
                let Some(&chunk) = chunks.get(i) else { continue };
                self.queue.wait_for(i % SLOTS)?;
                is_being_filled[i % SLOTS] = true;
                let (slot, sender) = (self.slot_of(i), sender.clone());
                copiers.run(move || {
                    for (number, bytes) in chunk.iter().enumerate() {
                        G::host_write(host, slot + number * row, bytes);
                    }
                    // After an error nobody waits for this message.
                    let _ = sender.send(i);
                });
            }
            Ok(())
        })
    }

    /// Copies rows from the device to `places`, except for the first `skip` bytes of each row. Each place has room for whole rows.
    pub(crate) fn receive<'p>(
        &mut self,
        places: impl IntoIterator<Item = &'p mut [u8]>,
        skip: usize,
        from: u64,
    ) -> Result<(), Error> {
        /// Slots that the device may fill while threads empty the others.
        const AHEAD: usize = SLOTS / 2;
        let (row, size, host) = (self.slots.row, self.slots.bytes(), self.host);
        let chunks = chunks(places, size);
        if chunks.is_empty() {
            return Ok(());
        }
        copiers(self.parallel, |copiers| {
            let (sender, emptied) = channel();
            let (sizes, mut free): (Vec<usize>, _) = (chunks.iter().map(|chunk| chunk.bytes).collect(), [true; SLOTS]);
            let mut chunks = chunks.into_iter().enumerate();
            for i in 0..sizes.len() + AHEAD {
                if let Some(&bytes) = sizes.get(i) {
                    while !free[i % SLOTS] {
                        free[next(&emptied)] = true;
                    }
                    free[i % SLOTS] = false;
                    let (to, from) = (self.address(i), from + (i * size) as u64);
                    self.queue.submit(self.kernels, &[Step::Download { to, from, bytes }])?;
                    self.queue.mark(i % SLOTS)?;
                }
                if i < AHEAD {
                    continue;
                }
                let Some((done, chunk)) = chunks.next() else { break };
                self.queue.wait_for(done % SLOTS)?;
                let (slot, sender) = (self.slot_of(done), sender.clone());
                copiers.run(move || {
                    // The task refers to its own slot alone. The device fills other slots meanwhile, and this one only
                    // after the message below.
                    copy_rows(chunk.places, G::host_view(host, slot..slot + chunk.bytes), row, skip);
                    // After an error nobody waits for this message.
                    let _ = sender.send(done % SLOTS);
                });
            }
            Ok(())
        })
    }
}

/// Copies rows of `row` bytes to places, except for the first `skip` bytes of each row.
pub(crate) fn copy_rows(places: Vec<&mut [u8]>, mut from: &[u8], row: usize, skip: usize) {
    for to in places {
        let rows = from.split_off(..to.len()).expect("bytes for all places");
        if skip == 0 {
            to.copy_from_slice(rows);
            continue;
        }
        for (to, from) in to.chunks_exact_mut(row).zip(rows.chunks_exact(row)) {
            to[skip..].copy_from_slice(&from[skip..]);
        }
    }
}

/// Places that take one chunk of bytes: those of a slot, or of a pass.
#[derive(Default)]
pub(crate) struct Chunk<'p> {
    pub bytes: usize,
    pub places: Vec<&'p mut [u8]>,
}

/// Cuts places into chunks of `size` bytes; the last one may be smaller.
pub(crate) fn chunks<'p>(places: impl IntoIterator<Item = &'p mut [u8]>, size: usize) -> Vec<Chunk<'p>> {
    let mut chunks: Vec<Chunk<'p>> = Vec::new();
    for mut place in places {
        while !place.is_empty() {
            let mut chunk = chunks.pop_if(|chunk| chunk.bytes < size).unwrap_or_default();
            let first = place.split_off_mut(..place.len().min(size - chunk.bytes)).expect("no more than the place");
            chunk.bytes += first.len();
            chunk.places.push(first);
            chunks.push(chunk);
        }
    }
    chunks
}

/// The threads that do tasks: those of a pool, or the calling thread alone.
enum Copiers<'a, 's> {
    Pool(&'a Scope<'s>),
    Alone,
}

impl<'s> Copiers<'_, 's> {
    fn run(&self, task: impl FnOnce() + Send + 's) {
        match self {
            Copiers::Pool(scope) => scope.spawn(move |_| task()),
            Copiers::Alone => task(),
        }
    }
}

/// Calls `work`, and returns when all its tasks are done.
fn copiers<'s, R>(parallel: bool, work: impl FnOnce(&Copiers<'_, 's>) -> R) -> R {
    if parallel { in_place_scope(|scope| work(&Copiers::Pool(scope))) } else { work(&Copiers::Alone) }
}

/// Waits for the next message of a task. Until then this thread does tasks too, if it belongs to the pool.
fn next<T>(tasks: &Receiver<T>) -> T {
    loop {
        match tasks.try_recv() {
            Ok(sent) => return sent,
            Err(_) if yield_now() == Some(Yield::Executed) => {}
            Err(_) => return tasks.recv().expect("a sender is held until all tasks are done"),
        }
    }
}
