//! Samples as they come in, a line of JSON each: a tuning that was interrupted goes on from them.

use crate::search::{Lab, Stop};
use hypergrove_engine::{Error, Policy};
use hypergrove_tables::table::is_plausible;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The first line: the conditions of the samples. Samples of another head are of no use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Name of the backend.
    pub backend: String,
    /// The maker's name for the device.
    pub device: String,
    /// Instruction set or driver.
    pub detail: String,
    /// [`hypergrove_tables::space::checksum`].
    pub space: String,
    /// Host threads.
    pub threads: usize,
}

/// A question: which policy is best for this?
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Question {
    /// The set.
    pub set: String,
    /// `keygen`, `sign` or `verify`.
    pub op: String,
    /// Jobs of the batch.
    pub jobs: usize,
}

/// A line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    question: Question,
    axes: BTreeMap<String, u32>,
    /// Of the whole batch; none if the policy cannot be had.
    seconds: Option<f64>,
}

/// The subject of a measurement: a policy for a question.
type Sampled = (Question, BTreeMap<String, u32>);

/// Times of one policy for one question, in order.
type Times = VecDeque<Option<f64>>;

/// The samples in a journal's text, as far as they are of use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    known: BTreeMap<Sampled, Times>,
    /// How many there are.
    pub found: usize,
    /// Lines that are no samples of any measurement.
    pub damaged: usize,
    /// The lines of the samples.
    pub lines: String,
}

impl Samples {
    /// Reads a text: its first line is its head, and samples of another head are of no use. A last line that is torn is
    /// left out.
    pub fn read(text: &str, head: &Head) -> Samples {
        let mut samples = Samples::default();
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let old = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
        if old.is_none_or(|old| old != *head) {
            return samples;
        }
        for line in lines {
            let read = serde_json::from_str(line).ok();
            let is_sample = |line: &Line| line.seconds.is_none_or(|took| is_plausible(took, line.question.jobs));
            let Some(Line { question, axes, seconds }) = read.filter(is_sample) else {
                samples.damaged += 1;
                continue;
            };
            samples.known.entry((question, axes)).or_default().push_back(seconds);
            samples.lines.push_str(line);
            samples.found += 1;
        }
        samples
    }
}

/// A file of samples.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Samples that nobody has read yet, and those that somebody has.
    known: BTreeMap<Sampled, Times>,
    read: BTreeMap<Sampled, Times>,
    /// Samples that were there already, as far as they are of use.
    pub found: usize,
    /// Lines that were there and are no samples of any measurement: they are dropped.
    pub damaged: usize,
}

fn named(policy: &Policy) -> BTreeMap<String, u32> {
    policy.0.iter().map(|(axis, value)| ((*axis).to_string(), *value)).collect()
}

impl Journal {
    /// Goes on with a file of the same head, or begins it anew.
    pub fn open(path: &Path, head: &Head) -> io::Result<Journal> {
        let text = match std::fs::read_to_string(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            // Bytes that are no text are no samples either.
            Err(why) if why.kind() == io::ErrorKind::InvalidData => String::new(),
            text => text?,
        };
        let Samples { known, found, damaged, lines } = Samples::read(&text, head);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // Samples of use are written once more, so that no torn line stays in the middle.
        let next = path.with_extension("next");
        std::fs::write(&next, format!("{}\n{lines}", serde_json::to_string(head)?))?;
        std::fs::rename(&next, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Journal { path: path.into(), file, known, read: BTreeMap::new(), found, damaged })
    }

    fn take(&mut self, question: &Question, policy: &Policy) -> Option<Option<f64>> {
        let sampled = (question.clone(), named(policy));
        let seconds = self.known.get_mut(&sampled)?.pop_front()?;
        self.read.entry(sampled).or_default().push_back(seconds);
        Some(seconds)
    }

    /// Gives all samples of a question once more, from the first one on: the question is retried.
    pub fn again(&mut self, question: &Question) {
        for (sampled, mut times) in self.read.extract_if(.., |(of, _), _| of == question) {
            let unread = self.known.entry(sampled).or_default();
            times.append(unread);
            *unread = times;
        }
    }

    fn put(&mut self, question: &Question, policy: &Policy, seconds: Option<f64>) -> io::Result<()> {
        let (question, axes) = (question.clone(), named(policy));
        self.read.entry((question.clone(), axes.clone())).or_default().push_back(seconds);
        let line = Line { question, axes, seconds };
        // One write a line: nobody else writes here, and a torn one is known by its missing end.
        self.file.write_all(format!("{}\n", serde_json::to_string(&line)?).as_bytes())
    }

    /// The table is written: the next tuning measures anew. The samples stay, next to the file.
    pub fn close(self) -> io::Result<()> {
        drop(self.file);
        std::fs::rename(&self.path, self.path.with_extension("last.jsonl"))
    }
}

/// A lab whose runs are written down, and which first tells those that are.
pub struct Recorded<'a, L> {
    /// The file.
    pub journal: &'a mut Journal,
    /// The question.
    pub question: Question,
    /// Who measures.
    pub lab: L,
}

impl<L: Lab> Lab for Recorded<'_, L> {
    fn run(&mut self, policy: &Policy) -> Result<Option<f64>, Stop> {
        if let Some(known) = self.journal.take(&self.question, policy) {
            return Ok(known);
        }
        let seconds = self.lab.run(policy)?;
        self.journal.put(&self.question, policy, seconds).map_err(|why| {
            let what = format!("{} cannot be written: {why}", self.journal.path.display());
            Stop::Failed(Error::Value { what })
        })?;
        Ok(seconds)
    }

    fn expect(&mut self, policies: &[Policy]) {
        let unread = |policy: &&Policy| {
            let times = self.journal.known.get(&(self.question.clone(), named(policy)));
            times.is_none_or(VecDeque::is_empty)
        };
        self.lab.expect(&policies.iter().filter(unread).cloned().collect::<Vec<_>>());
    }
}
