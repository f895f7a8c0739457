//! How long functions are: a long one is listed here with its reason, and a list that is longer than it has to be is a fault. Clippy's
//! `too_many_lines` would spread the reasons over the sources, and sees no code of other systems.

use crate::process::{Outcome, Step};
use crate::sources::{self, files};
use std::fs;

/// Lines of a function, its signature and its last brace included, that need no reason.
const MOST: usize = 80;

/// Longer functions, and why they stay whole.
const LONGER: &[(&str, &str, &str)] = &[
    ("xtask/src/negative.rs", "cases", "a list of bad signatures"),
    ("xtask/src/negative.rs", "keys", "a list of bad keys"),
    ("crates/cpu/src/verify.rs", "roots_n", "the stages of verification, in one scratch"),
    ("crates/lab/src/study.rs", "program", "a loop over a row's values, whose records name all of them"),
    ("crates/lab/src/report/charts/functions.rs", "function", "one picture from its data to its caption"),
    ("crates/vulkan/src/driver/device.rs", "new", "what is asked of a device, in the order of Vulkan's structures"),
    ("crates/cli/src/explain.rs", "run", "the lines of one answer, in their order"),
    ("crates/cpu/src/program.rs", "execute", "the stages of an operation, in their order"),
    ("crates/cpu/src/forest.rs", "grow", "one chunk from its leaves to its root, in one scratch"),
];

/// CI's step.
pub(crate) fn check() -> Step {
    let Some(files) = files() else { return Ok(Outcome::Skipped("this is no git repository".into())) };
    let (mut faults, mut count, mut found) = (Vec::new(), 0, Vec::new());
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    for path in files.iter().filter(|path| path.ends_with(".rs") && !is_test(path)) {
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        for (name, lines) in functions(&text) {
            count += 1;
            if lines <= MOST {
                continue;
            }
            match LONGER.iter().any(|(known, function, _)| known == path && *function == name) {
                true => found.push((path.as_str(), name.to_owned())),
                false => faults.push(format!(
                    "{path}: {name} has {lines} lines, at most {MOST}, or a reason in xtask/src/lengths.rs"
                )),
            }
        }
    }
    let is_found = |path: &str, name: &str| found.iter().any(|(known, function)| *known == path && function == name);
    let idle = LONGER.iter().filter(|(path, name, _)| !is_found(path, name));
    faults.extend(
        idle.map(|(path, name, _)| format!("{path}: {name} has a reason in xtask/src/lengths.rs and is short")),
    );
    sources::verdict(&faults, &format!("{count} functions, {} of them longer than {MOST} lines", found.len()))
}

/// Functions of a file that rustfmt has formatted, each with its lines; without those of tests at the end.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    let mut found = Vec::new();
    for (first, line) in lines[..end].iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = name(code) else { continue };
        let indent = &line[..line.len() - code.len()];
        let closes = |line: &&str| {
            line.strip_prefix(indent).is_some_and(|rest| rest == "}" || rest.ends_with(';') && !rest.starts_with(' '))
        };
        // A body in the same line, or none: a trait's function.
        if line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        if let Some(last) = lines[first + 1..].iter().position(closes) {
            found.push((name, last + 2));
        }
    }
    found
}

/// The name of the function that begins in this line.
fn name(code: &str) -> Option<&str> {
    let (before, rest) = code.split_once("fn ")?;
    let is_word = |word: &str| {
        ["pub", "const", "async", "unsafe", "extern", "\"C\""].contains(&word)
            || word.starts_with("pub(")
            || word == "super)"
    };
    let is_function = before.split_whitespace().all(is_word) && (before.is_empty() || before.ends_with(' '));
    let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric())?;
    (is_function && end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn functions_are_counted_from_their_names_to_their_last_brace() {
        let text = "\
pub(crate) fn one(a: u8) -> u8 {
    a
}
trait It {
    fn none(&self);
    fn long(
        &self,
    ) -> u8;
    const fn two(&self) {
        let f = |x| {
            x
        };
    }
}
// a fn three() {
fn empty() {}
#[cfg(test)]
mod tests {
    fn four() {
    }
}
";
        assert_eq!(functions(text), [("one", 3), ("long", 3), ("two", 5)]);
    }
}
