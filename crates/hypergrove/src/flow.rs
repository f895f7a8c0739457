//! The return values of sinks.

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
