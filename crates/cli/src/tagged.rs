//! Jobs of a batch with what each is of, such as its file.

use std::sync::mpsc;

/// The tags of the jobs of a batch, in their order.
pub(crate) struct Tags<T>(mpsc::Receiver<T>);

impl<T> Tags<T> {
    /// The tag of the next result: an engine hands results out in the order of the jobs.
    pub(crate) fn next(&self) -> T {
        self.0.recv().expect("one result a job")
    }
}

/// The jobs for an engine, and their tags.
pub(crate) fn tagged<T: Send, J>(
    jobs: impl Iterator<Item = (T, J)> + Send,
) -> (impl Iterator<Item = J> + Send, Tags<T>) {
    let (sender, tags) = mpsc::channel();
    let jobs = jobs.filter_map(move |(tag, job)| sender.send(tag).ok().map(|()| job));
    (jobs, Tags(tags))
}
