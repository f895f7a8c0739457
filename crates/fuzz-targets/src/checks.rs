//! How much a target does with an input, and the checks that several targets make.

use hypergrove::{Cpu, Engine};
use hypergrove_lab::failure::Failure;
use std::fmt::Display;
use std::sync::{Arc, OnceLock};

/// How much is done with an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// It is read, and written again.
    Read,
    /// It is used as well: keys sign, questions are answered. That takes milliseconds.
    Use,
}

/// Characters of an error, at most: it quotes a beginning of what was read, never all of it.
const LONGEST_ERROR: usize = 1000;

/// The text of an error is short, whatever was read.
pub fn brief(error: &dyn Display) {
    let text = error.to_string();
    let length = text.chars().count();
    assert!(length <= LONGEST_ERROR, "an error of {length} characters: {}", text.chars().take(200).collect::<String>());
}

/// The thing that was read. The text of an error is short.
pub(crate) fn read<T>(read: Result<T, impl Display>) -> Option<T> {
    read.inspect_err(|error| brief(error)).ok()
}

/// A result of the tool. The texts of an error and of its hint are short.
pub fn of_tool<T>(result: Result<T, Failure>) -> Option<T> {
    let are_brief = |failure: &Failure| {
        brief(&failure.message);
        failure.hint.iter().for_each(|hint| brief(hint));
    };
    result.inspect_err(are_brief).ok()
}

/// An engine on the calling thread.
pub(crate) fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let builder = Engine::builder().backend(Arc::new(Cpu::new())).threads(1);
        builder.build().expect("an engine on the CPU")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "an error of 1001 characters")]
    fn a_long_error_is_found() {
        brief(&"x".repeat(LONGEST_ERROR + 1));
    }
}
