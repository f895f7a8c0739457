//! Large copies between rows of the caller's and a device: through a ring of pinned slots, which threads fill or
//! empty while the device copies others.

use crate::gpu::{Gpu, Queue, SLOTS, Step};
use hypergrove_engine::Error;
use rayon::{Scope, Yield, in_place_scope, yield_now};
use std::sync::mpsc::{Receiver, channel};

/// Bytes of one slot, at most: little enough for all slots to stay in the host's cache until they are read. (With 4 MiB an H200 verifies
/// 786,000 signatures of 192f a second from ordinary memory, with 2 MiB 803,000; of 128s 3.06 and 3.29 million.)
const SLOT_BYTES: usize = 2 << 20;

/// Whether the host's share is done by the threads of a pool: a caller that is in none has little to do.
pub(crate) fn in_threads(threads: usize) -> bool {
    threads > 1 && rayon::current_thread_index().is_some()
}

/// Bytes of a ring for `bytes` bytes.
pub(crate) fn ring_bytes(bytes: usize) -> usize {
    SLOTS * bytes.div_ceil(SLOTS).min(SLOT_BYTES)
}

/// What copies go through, and how.
pub(crate) struct Ring<'a, G: Gpu> {
    pub queue: &'a mut G::Queue,
    pub kernels: &'a G::Kernels,
    pub host: &'a G::HostMemory,
    /// Where the ring begins in the host's memory.
    pub at: usize,
    /// Bytes of it.
    pub bytes: usize,
    /// Bytes of a row; a slot holds one at least.
    pub row: usize,
    /// Whether the threads of the current pool share the copying; else the calling one does all.
    pub parallel: bool,
}

impl<G: Gpu> Ring<'_, G> {
    fn slot(&self) -> usize {
        self.bytes / SLOTS
    }
    fn rows(&self) -> usize {
        (self.slot() / self.row).max(1)
    }
    /// Where the slot of a chunk begins in the host's memory.
    fn slot_of(&self, chunk: usize) -> usize {
        self.at + chunk % SLOTS * self.slot()
    }
    fn address(&self, chunk: usize) -> u64 {
        G::host_address(self.host) + self.slot_of(chunk) as u64
    }

    /// Copies rows to the device; returns when the last copies are under way.
    pub(crate) fn send(&mut self, rows: &[&[u8]], to: u64) -> Result<(), Error> {
        let (row, host) = (self.row, self.host);
        let chunks: Vec<&[&[u8]]> = rows.chunks(self.rows()).collect();
        copiers(self.parallel, |copiers| {
            let (sender, filled) = channel();
            let mut is_being_filled = [false; SLOTS];
            for i in 0..chunks.len() + SLOTS {
                // All that is full goes to the device before this thread waits: the device is to have some to copy meanwhile.
                // And a slot goes there before anything else is copied into it.
                loop {
                    let full: usize = match is_being_filled[i % SLOTS] {
                        true => next(&filled),
                        false => match filled.try_recv() {
                            Ok(full) => full,
                            Err(_) => break,
                        },
                    };
                    is_being_filled[full % SLOTS] = false;
                    let (to, from) = (to + (full * self.rows() * row) as u64, self.address(full));
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
                    // Nobody waits for it after an error.
                    let _ = sender.send(i);
                });
            }
            Ok(())
        })
    }

    /// Copies rows from the device, all but the first `skip` bytes of each.
    pub(crate) fn receive(&mut self, out: &mut [u8], skip: usize, from: u64) -> Result<(), Error> {
        /// Slots that the device may fill while threads empty the others.
        const AHEAD: usize = SLOTS / 2;
        let (row, size, host) = (self.row, self.rows() * self.row, self.host);
        copiers(self.parallel, |copiers| {
            let (sender, emptied) = channel();
            let (total, chunks, mut free) = (out.len(), out.len().div_ceil(size), [true; SLOTS]);
            let mut out = out.chunks_mut(size).enumerate();
            for i in 0..chunks + AHEAD {
                if i < chunks {
                    while !free[i % SLOTS] {
                        free[next(&emptied)] = true;
                    }
                    free[i % SLOTS] = false;
                    let (to, from) = (self.address(i), from + (i * size) as u64);
                    let bytes = size.min(total - i * size);
                    self.queue.submit(self.kernels, &[Step::Download { to, from, bytes }])?;
                    self.queue.mark(i % SLOTS)?;
                }
                if i < AHEAD {
                    continue;
                }
                let Some((done, to)) = out.next() else { break };
                self.queue.wait_for(done % SLOTS)?;
                let (slot, sender) = (self.slot_of(done), sender.clone());
                copiers.run(move || {
                    // The task's own reference, to its slot alone: the device fills others meanwhile, and this one after
                    // the message below.
                    let from = G::host_view(host, slot..slot + to.len());
                    for (to, from) in to.chunks_exact_mut(row).zip(from.chunks_exact(row)) {
                        to[skip..].copy_from_slice(&from[skip..]);
                    }
                    // As above.
                    let _ = sender.send(done % SLOTS);
                });
            }
            Ok(())
        })
    }
}

/// Who does tasks: the threads of a pool, or the calling one.
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

/// Returns when all tasks are done.
fn copiers<'s, R>(parallel: bool, work: impl FnOnce(&Copiers<'_, 's>) -> R) -> R {
    if parallel { in_place_scope(|scope| work(&Copiers::Pool(scope))) } else { work(&Copiers::Alone) }
}

/// What a task sends. Until then this thread, if it is one of the pool's, does tasks too.
fn next<T>(tasks: &Receiver<T>) -> T {
    loop {
        match tasks.try_recv() {
            Ok(sent) => return sent,
            Err(_) if yield_now() == Some(Yield::Executed) => {}
            Err(_) => return tasks.recv().expect("a sender is held until all tasks are done"),
        }
    }
}
