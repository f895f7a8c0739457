//! Memory of a pass, on the device and pinned on the host, and the copies between the two.

use super::{DistinctKeys, Limits, ZkGpu, message_words};
use crate::gpu::{BYTES_OF_A_THREAD, Gpu, Queue, Step, WaitLimit, put_words, wipe};
use crate::parts::{Part, Parts};
use crate::ring::{Ring, Slots, each_row, in_threads};
use crate::runs::{ByteRun, reached};
use hypergrove_engine::{Error, ZK_JOBS_OF_A_THREAD};
use hypergrove_kernels::zk::*;
use hypergrove_zkdilithium::Message;
use hypergrove_zkdilithium::params::{SIG_BYTES, SK_BYTES};
use rayon::prelude::*;
use std::sync::Arc;

/// How rows get to their places in the caller's memory, or how signatures get to the device.
pub(super) enum Way {
    /// The device copies the rows by itself.
    Reached(Vec<ByteRun>),
    /// Threads copy the rows to or from this ring of pinned memory.
    Staged(Part, Slots),
}

/// Messages that one thread lays out, the keys' numbers, and the word where the messages begin.
type ThreadJobs<'a> = (&'a [Message<'a>], &'a [u32], usize);

/// Lays the parts of a pass out.
#[derive(Default)]
pub(super) struct PassLayout {
    parts: Parts,
    /// Bytes of the device's memory at its end that hold no secret.
    public: usize,
}

impl PassLayout {
    /// A part of the device's memory alone.
    pub(super) fn device(&mut self, words: usize) -> Part {
        self.parts.add(4 * words, 0)
    }
    /// The device's last part, of which nothing is secret: it need not be wiped.
    pub(super) fn public(&mut self, words: usize) -> Part {
        let part = self.device(words);
        self.public = self.parts.device - part.at;
        part
    }
    /// A part of both memories.
    pub(super) fn both(&mut self, words: usize) -> Part {
        self.parts.add(4 * words, 4 * words)
    }
}

/// Bytes of the device's memory for the largest pass of any kind; real parts are a little larger.
pub(super) fn most_bytes(limits: Limits) -> usize {
    let Limits { jobs, keys, made, attempts, messages } = limits;
    let keys = keys.max(made);
    // Private keys are the longest, both as input and as what key generation makes.
    let of_keys = keys * (SK_BYTES + 4 * (KEY_SIZE + SEED_SIZE + 8 * SHORT_SIZE + 8));
    let of_jobs = jobs * (4 * (JOB_SIZE + START_SIZE) + SIG_BYTES);
    of_keys + of_jobs + attempts * (4 * (TRY_SIZE + MADE_SIZE + 1) + SIG_BYTES) + messages + (1 << 16)
}

pub(super) struct Memory<G: Gpu> {
    gpu: Arc<G>,
    // The queue comes first, so that it is dropped before the memory that it works on.
    pub(super) queue: G::Queue,
    device: G::Memory,
    host: G::HostMemory,
    /// Bytes of the device's memory and of the host's.
    room: (usize, usize),
    /// Bytes from the start of either memory that may hold secrets.
    secret: (usize, usize),
    /// Whether the device may still be overwriting its secrets.
    is_wiping: bool,
}

impl<G: Gpu> Memory<G> {
    pub(super) fn new(gpu: &Arc<G>) -> Result<Memory<G>, Error> {
        let (device, host) = (gpu.alloc(0)?, gpu.alloc_host(0)?);
        Ok(Memory {
            gpu: gpu.clone(),
            queue: gpu.queue()?,
            device,
            host,
            room: (0, 0),
            secret: (0, 0),
            is_wiping: false,
        })
    }
    /// Makes room for a pass. Earlier secrets in the memory are overwritten before anything else of the pass happens. If that fails, the pass's
    /// first wait reports the error.
    pub(super) fn ensure(&mut self, layout: &PassLayout) -> Result<(), Error> {
        let grown = |bytes: usize| bytes.next_multiple_of(1 << 16);
        let Parts { device, host } = layout.parts;
        if device > self.room.0 {
            self.wait_for_wipe()?;
            (self.room.0, self.secret.0) = (0, 0);
            self.device = self.gpu.alloc(0)?;
            self.device = self.gpu.alloc(grown(device))?;
            self.room.0 = grown(device);
        }
        if host > self.room.1 {
            (self.room.1, self.secret.1) = (0, 0);
            self.host = self.gpu.alloc_host(0)?;
            self.host = self.gpu.alloc_host(grown(host))?;
            self.room.1 = grown(host);
        }
        self.secret.0 = self.secret.0.max(device - layout.public);
        self.secret.1 = self.secret.1.max(host);
        Ok(())
    }
    pub(super) fn at(&self, part: Part) -> u64 {
        G::address(&self.device) + part.at as u64
    }
    fn on_host(&self, part: Part) -> u64 {
        G::host_address(&self.host) + part.on_host as u64
    }
    pub(super) fn bytes(&mut self, part: Part, bytes: usize) -> &mut [u8] {
        G::host_bytes(&mut self.host, part.on_host..part.on_host + bytes)
    }
    pub(super) fn upload(&self, part: Part, bytes: usize) -> Step {
        Step::Upload { to: self.at(part), from: self.on_host(part), bytes }
    }
    pub(super) fn download(&self, part: Part, bytes: usize) -> Step {
        Step::Download { to: self.on_host(part), from: self.at(part), bytes }
    }
    /// Waits until the device has done the overwriting that [`wipe`](Memory::wipe) submitted.
    pub(super) fn wait_for_wipe(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_wiping) {
            self.queue.wait()?;
        }
        Ok(())
    }
    /// Overwrites secrets on the device and on the host. The threads of the current pool do the host's part if `parallel`, else this thread does.
    /// If it `waits`, the device has overwritten its secrets when this returns. If not, the device does so before it does anything else with this
    /// memory; to wait may take milliseconds while other programs copy much to the host.
    pub(super) fn wipe(&mut self, kernels: &G::Kernels, parallel: bool, waits: bool) -> Result<(), Error> {
        // The driver overwrites memory that a hung device may still use.
        self.gpu.hung().filter(|_| waits).map_or(Ok(()), Err)?;
        let (device, host) = self.secret;
        let zero = Step::Zero { at: G::address(&self.device), bytes: device };
        let mut done = if device > 0 { self.queue.submit(kernels, &[zero]) } else { Ok(()) };
        self.is_wiping = !waits && device > 0 && done.is_ok();
        if waits {
            // This waits even if the submission failed: earlier copies may still write to the host's memory.
            let waited = self.queue.wait().map(|_| ());
            done = done.and(waited);
        }
        if done.is_ok() {
            self.secret.0 = 0;
        }
        if waits && self.gpu.hung().is_some() {
            return done;
        }
        let host = G::host_bytes(&mut self.host, 0..host);
        if parallel {
            host.par_chunks_mut(BYTES_OF_A_THREAD).for_each(wipe)
        } else {
            wipe(host)
        }
        self.secret.1 = 0;
        done
    }
}

/// Where a pass's keys and messages are.
pub(super) struct Inputs {
    pub(super) raw: Part,
    pub(super) keys: Part,
    pub(super) jobs: Part,
    pub(super) messages: Part,
    pub(super) starts: Part,
    message_words: usize,
    /// The messages' runs in the caller's memory, if the device reads them there.
    reached: Option<Vec<ByteRun>>,
}

/// Words of a message, at most: kernels count bytes by 32 bits, where the largest two numbers mean something else.
const LONGEST: usize = 1 << 29;

fn put_messages((mut words, messages): (&mut [u8], &[Message<'_>])) {
    for message in messages {
        let to = words.split_off_mut(..4 * message_words(message)).expect("room for all messages");
        match message {
            Message::Bytes(bytes) => to[..bytes.len()].copy_from_slice(bytes),
            Message::Block(elements) | Message::Mu(elements) => put_words(to, elements.iter().map(|x| x.value())),
        }
    }
}

impl<G: Gpu> ZkGpu<G> {
    /// Lays out the parts for a pass's keys and messages. Fails if a message is too long.
    pub(super) fn inputs(
        &self,
        layout: &mut PassLayout,
        (keys, raw_bytes): (usize, usize),
        messages: &[Message<'_>],
    ) -> Result<Inputs, Error> {
        // One word more, since a part of no words would have no address.
        let words = messages.iter().map(message_words).sum::<usize>() + 1;
        let longest = messages.iter().map(message_words).max().unwrap_or(0);
        if longest > LONGEST {
            let device = &self.gpu.facts().id;
            let what = format!("a message of {} bytes, of which {device} takes {}", 4 * longest, 4 * LONGEST);
            return Err(Error::Value { what: format!("{what}; have the CPU sign and verify it") });
        }
        let reached = self.reached_messages(messages);
        Ok(Inputs {
            raw: layout.both(keys * raw_bytes / 4),
            keys: layout.device(keys * KEY_SIZE),
            jobs: layout.both(messages.len() * JOB_SIZE),
            messages: if reached.is_some() { layout.device(words) } else { layout.both(words) },
            starts: layout.device(messages.len() * START_SIZE),
            message_words: words,
            reached,
        })
    }

    /// Runs of messages that lie in the caller's memory as they shall lie on the device: each has whole words.
    fn reached_messages(&self, messages: &[Message<'_>]) -> Option<Vec<ByteRun>> {
        let is_whole = |message: &Message<'_>| matches!(message, Message::Bytes(bytes) if bytes.len() % 4 == 0);
        if !messages.iter().all(is_whole) {
            return None;
        }
        let place = |message: &Message<'_>| match message {
            Message::Bytes(bytes) => (bytes.as_ptr() as u64, bytes.len()),
            Message::Block(_) | Message::Mu(_) => (0, 0),
        };
        reached(&*self.gpu, messages.iter().map(place), 0)
    }

    /// Steps that copy these runs to a part of the device's memory.
    fn uploads(&self, runs: &[ByteRun], to: Part) -> Vec<Step> {
        let to = self.memory.at(to);
        runs.iter().map(|run| run.upload(to)).collect()
    }

    /// Lays out keys, jobs and messages. Returns the steps that upload them.
    pub(super) fn lay_out<K: Sync>(
        &mut self,
        at: &Inputs,
        (keys, of): (&DistinctKeys<'_, K>, &[u32]),
        raw_bytes: usize,
        raw: impl Fn(&K, &mut [u8]) + Sync,
        messages: &[Message<'_>],
    ) -> Vec<Step> {
        let keys_bytes = self.memory.bytes(at.raw, keys.keys.len() * raw_bytes);
        let keys = &keys.keys;
        each_row(keys_bytes, raw_bytes, in_threads(self.policy.threads).then_some(1), |key, to| raw(keys[key], to));
        let parallel = in_threads(self.policy.threads) && messages.len() > ZK_JOBS_OF_A_THREAD;
        // Where each thread's messages begin.
        let mut words = 0;
        let tasks = messages.chunks(ZK_JOBS_OF_A_THREAD).zip(of.chunks(ZK_JOBS_OF_A_THREAD)).map(|(messages, of)| {
            let from = words;
            words += messages.iter().map(message_words).sum::<usize>();
            (messages, of, from)
        });
        let tasks: Vec<ThreadJobs<'_>> = tasks.collect();
        let table = self.memory.bytes(at.jobs, 4 * JOB_SIZE * messages.len());
        let put_jobs = |(rows, (messages, of, from)): (&mut [u8], &ThreadJobs<'_>)| {
            let mut from = *from as u32;
            for ((row, message), key) in rows.chunks_exact_mut(4 * JOB_SIZE).zip(*messages).zip(*of) {
                let kind = match message {
                    Message::Bytes(bytes) => bytes.len() as u32,
                    Message::Block(_) => IS_BLOCK,
                    Message::Mu(_) => IS_MU,
                };
                put_words(row, [*key, from, kind]);
                from += message_words(message) as u32;
            }
        };
        match parallel {
            true => table.par_chunks_mut(4 * JOB_SIZE * ZK_JOBS_OF_A_THREAD).zip(&tasks).for_each(put_jobs),
            false => table.chunks_mut(4 * JOB_SIZE * ZK_JOBS_OF_A_THREAD).zip(&tasks).for_each(put_jobs),
        }
        let mut steps = vec![
            self.memory.upload(at.raw, keys.len() * raw_bytes),
            self.memory.upload(at.jobs, 4 * JOB_SIZE * messages.len()),
        ];
        if let Some(runs) = &at.reached {
            steps.extend(self.uploads(runs, at.messages));
            return steps;
        }
        let mut left = self.memory.bytes(at.messages, 4 * at.message_words);
        let places = tasks.iter().map(|(messages, ..)| {
            let words: usize = messages.iter().map(message_words).sum();
            (left.split_off_mut(..4 * words).expect("room for all messages"), *messages)
        });
        let places: Vec<_> = places.collect();
        match parallel {
            true => places.into_par_iter().for_each(put_messages),
            false => places.into_iter().for_each(put_messages),
        }
        steps.push(self.memory.upload(at.messages, 4 * at.message_words));
        steps
    }

    /// How rows of `row` bytes, which begin at these addresses, get to the device or from there. On the device, `pad` unwanted rows are in front of them.
    pub(super) fn way(
        &self,
        layout: &mut PassLayout,
        rows: impl ExactSizeIterator<Item = u64>,
        row: usize,
        pad: usize,
    ) -> Way {
        let slots = Slots::new(rows.len(), row);
        match reached(&*self.gpu, rows.map(|at| (at, row)), pad * row) {
            Some(runs) => Way::Reached(runs),
            None => Way::Staged(layout.parts.add(0, slots.all_bytes()), slots),
        }
    }

    /// Sends signatures to the device. If the device reads them from the caller's memory, no reading is under way after an error here. If the pass
    /// fails later, it waits for the queue, unless the device is lost or hangs.
    pub(super) fn send(&mut self, way: &Way, rows: &[&[u8]], to: Part) -> Result<(), Error> {
        match way {
            Way::Reached(runs) => {
                let uploads = self.uploads(runs, to);
                self.memory.wait_for_wipe()?;
                self.memory.queue.submit(&self.kernels, &uploads)
            }
            Way::Staged(part, slots) => {
                let to = self.memory.at(to);
                self.ring(*part, *slots).send(rows, to)
            }
        }
    }

    fn ring(&mut self, part: Part, slots: Slots) -> Ring<'_, G> {
        let (parallel, kernels) = (in_threads(self.policy.threads), &self.kernels);
        let Memory { queue, host, .. } = &mut self.memory;
        Ring { queue, kernels, host, at: part.on_host, slots, parallel }
    }

    /// Fetches rows from the device to their places, once everything is computed. On the device, `pad` unwanted rows are in front of them.
    pub(super) fn fetch_to<const ROW: usize>(
        &mut self,
        way: &Way,
        from: Part,
        (pad, places): (usize, &mut [&mut [u8; ROW]]),
    ) -> Result<(), Error> {
        let from = self.memory.at(from);
        let waited = match way {
            Way::Reached(runs) => {
                let steps: Vec<Step> = runs.iter().map(|run| run.download(from)).collect();
                // The wait has no limit: if it ended early, the device could write to memory that is the caller's again. Only copies are left to do.
                self.memory.queue.limit(WaitLimit { time: None, ..self.limit });
                let submitted = self.memory.queue.submit(&self.kernels, &steps);
                let waited = self.memory.queue.wait();
                self.memory.queue.limit(self.limit);
                submitted.and(waited)
            }
            Way::Staged(part, slots) => {
                let places = places.iter_mut().map(|place| place.as_mut_slice());
                self.ring(*part, *slots).receive(places, 0, from + (pad * ROW) as u64)?;
                self.memory.queue.wait()
            }
        };
        waited.map(drop)
    }
}
