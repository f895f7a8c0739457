//! The return values of sinks.

use hypergrove_engine::Error;
use std::ops::ControlFlow;

/// The return value of a sink: `()`, or a [`ControlFlow`] whose `Break` ends the call.
pub trait Flow {
    /// Whether the call goes on.
    fn flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

/// Gets the number of completed rows. Its `Break` ends the call.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// The [`Progress`] of callers that do not ask for it.
pub(crate) fn no_progress(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A sink that gets the index of each job instead.
pub(crate) fn indexed<T, F: Flow>(
    mut sink: impl FnMut(usize, Result<T, Error>) -> F,
) -> impl FnMut(usize, Result<T, Error>) -> ControlFlow<()> {
    let mut indices = 0..;
    move |_, result| sink(indices.next().expect("they do not end"), result).flow()
}
