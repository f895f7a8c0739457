//! Results go to standard output; everything said about them goes to standard error.

use crate::failure::Failure;
use hypergrove::quote::Quote;
pub use hypergrove_records::numbers::{grouped, percent, seconds, significant};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(windows)]
use std::os::windows::io::AsHandle;
use std::path::Path;
use std::time::Duration;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Speaks to the user.
pub struct Printer {
    /// Only results and errors.
    pub quiet: bool,
    /// Also what was chosen, and why.
    pub verbose: bool,
    /// Whether results appear among what standard error says.
    pub shared: bool,
    bold: bool,
}

impl Printer {
    /// Colours depend on the terminal and on what its user set.
    pub fn new(quiet: bool, verbose: bool) -> Printer {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Printer { quiet, verbose, shared: io::stdout().is_terminal(), bold: io::stderr().is_terminal() && !plain }
    }

    /// A line of the result.
    pub fn line(&self, line: impl Display) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush()).map_err(lost)
    }

    /// The result itself, as it is. It may be a private key, so it does not go through standard output's buffer.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.flush().and_then(|()| unbuffered(&stdout)?.write_all(bytes)).map_err(lost)
    }

    /// A remark, for people who watch.
    pub fn note(&self, note: impl Display) {
        if !self.quiet {
            say(Visible(note));
        }
    }

    /// A remark for people who asked for more of them.
    pub fn detail(&self, detail: impl Display) {
        if self.verbose {
            say(Visible(detail));
        }
    }

    /// A verdict, where standard output has something else.
    pub fn verdict(&self, verdict: impl Display) {
        say(Visible(verdict));
    }

    /// A problem that does not stop the command.
    pub fn warning(&self, warning: impl Display) {
        let (yellow, off) = if self.bold { ("\x1b[1;33m", "\x1b[0m") } else { ("", "") };
        say(format_args!("{yellow}warning:{off} {}", Visible(warning)));
    }

    /// An error, with the way out.
    pub fn failure(&self, failure: &Failure) {
        let (red, cyan, off) = if self.bold { ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m") } else { ("", "", "") };
        say(format_args!("{red}error:{off} {}", Visible(&failure.message)));
        if let Some(hint) = &failure.hint {
            say(format_args!("{cyan} hint:{off} {}", Visible(hint)));
        }
    }

    /// A finding about something that failed, and the command that would succeed.
    pub fn diagnosis(&self, sentence: impl Display, command: Option<&str>) {
        let (cyan, off) = if self.bold { ("\x1b[1;36m", "\x1b[0m") } else { ("", "") };
        say(format_args!("{cyan}diagnosis:{off} {}", Visible(sentence)));
        if let Some(command) = command {
            say(format_args!("{cyan}  command:{off} {}", Visible(command)));
        }
    }

    /// A bar on a terminal, nothing elsewhere.
    pub fn progress(&self, length: usize, doing: &'static str) -> Bar {
        // One file is done before anybody could read the bar.
        if self.quiet || length < 2 {
            return Bar::hidden();
        }
        let made = Bar::on_terminal(length as u64, "{msg:>9} {wide_bar} {human_pos}/{human_len}, {eta} left");
        Bar(made.map(|bar| bar.with_message(doing)))
    }

    /// A bar of seconds that some work takes at most, on a terminal.
    pub fn progress_of_time(&self, budget: Duration, doing: &'static str) -> Bar {
        if self.quiet {
            return Bar::hidden();
        }
        let made = Bar::on_terminal(budget.as_millis() as u64, "{prefix:>9} {wide_bar} {msg}");
        Bar(made.map(|bar| bar.with_prefix(doing)))
    }
}

/// How far some work is, shown on a terminal; elsewhere nothing.
#[derive(Clone)]
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar that does not show.
    pub fn hidden() -> Bar {
        Bar(None)
    }

    /// `None` without a terminal. Also without randomness: indicatif's hash maps would panic.
    fn on_terminal(length: u64, template: &str) -> Option<ProgressBar> {
        if !io::stderr().is_terminal() || getrandom::u32().is_err() {
            return None;
        }
        let style = ProgressStyle::with_template(template).expect("the template is right");
        let target = ProgressDrawTarget::stderr_with_hz(10);
        Some(ProgressBar::with_draw_target(Some(length), target).with_style(style))
    }

    /// Whether the bar does not show.
    pub fn is_hidden(&self) -> bool {
        self.0.is_none()
    }

    /// Runs `work` while the bar does not show.
    pub fn suspend<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(bar) => bar.suspend(work),
            None => work(),
        }
    }

    /// So many more are done.
    pub fn inc(&self, by: u64) {
        self.0.iter().for_each(|bar| bar.inc(by));
    }

    pub(crate) fn set_position(&self, at: u64) {
        self.0.iter().for_each(|bar| bar.set_position(at));
    }

    pub(crate) fn set_length(&self, length: u64) {
        self.0.iter().for_each(|bar| bar.set_length(length));
    }

    pub(crate) fn inc_length(&self, by: u64) {
        self.0.iter().for_each(|bar| bar.inc_length(by));
    }

    pub(crate) fn set_message(&self, message: String) {
        self.0.iter().for_each(|bar| bar.set_message(message.clone()));
    }

    /// Removes the bar.
    pub fn finish_and_clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Standard output did not take a result.
fn lost(error: io::Error) -> Failure {
    let mut failure = Failure::io("write to", "standard output", &error);
    failure.silent = error.kind() == io::ErrorKind::BrokenPipe;
    failure
}

/// A standard stream without its buffer, which nobody wipes.
#[cfg(unix)]
pub fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// A standard stream without its buffer, which nobody wipes.
#[cfg(windows)]
pub fn unbuffered(stream: impl AsHandle) -> io::Result<File> {
    stream.as_handle().try_clone_to_owned().map(File::from)
}

/// Standard error may be closed; that is no reason to fail.
fn say(line: impl Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// A text with line ends of its own, which may quote what others wrote: other characters that nobody sees are escaped.
pub struct Visible<T>(pub T);

impl<T: Display> Display for Visible<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(&self.0.to_string(), "\n", f)
    }
}

/// Writes the text with the characters escaped that control a terminal, reorder their neighbours or cannot be seen, all of
/// which could forge a verdict; those in `kept` stay.
pub fn escape(text: &str, kept: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|c| match is_unseen(c) && !kept.contains(c) {
        true => write!(f, "{}", c.escape_default()),
        false => f.write_char(c),
    })
}

/// Whether a character controls a terminal, reorders its neighbours or cannot be seen. Spaces can be seen.
fn is_unseen(c: char) -> bool {
    let category = c.general_category();
    let is_of_category = matches!(
        category,
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    // Unicode's Default_Ignorable_Code_Point of other categories, and the blank of Braille.
    let is_ignorable = matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2065}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    is_of_category || is_ignorable
}

/// A path that somebody named, as it is shown: as much of the path as exists. Characters that nobody sees are escaped.
pub struct PathDisplay<'a>(pub &'a Path);

impl fmt::Display for PathDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Name(&Quote::path(self.0).to_string()).fmt(f)
    }
}

/// A name that is shown in full; characters that nobody sees are escaped.
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, "", f)
    }
}

/// A table with a head.
pub struct Table {
    align: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// `align` has a letter for each column: `l` for words, `r` for numbers.
    pub fn new<const N: usize>(align: &'static str, heads: [&str; N]) -> Table {
        Table { align, rows: vec![heads.map(String::from).to_vec()] }
    }
    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).zip(self.align.chars()).map(|((cell, width), align)| match align {
                'l' => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            write!(f, "{}{}", if i > 0 { "\n" } else { "" }, line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_escaped() {
        let hidden = "\u{7}\r\u{85}\u{ad}\u{34f}\u{61c}\u{115f}\u{17b4}\u{180e}\u{200b}\u{202e}\u{2028}\u{2029}\u{2060}\u{2065}\u{2066}\u{2800}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{fff5}\u{e0041}\u{e0100}";
        for c in hidden.chars() {
            let shown = Visible(format!("a{c}b")).to_string();
            assert!(shown.is_ascii() && shown.len() > 3, "{shown:?}");
        }
        for seen in ["a\nb", "Grüße", "e\u{301}", "文件\u{3000}名", "ملف", "🔑", "a b"] {
            assert_eq!(Visible(seen).to_string(), seen);
        }
    }

    #[test]
    fn tables_align() {
        let mut table = Table::new("lr", ["set", "ms"]);
        table.row(["a".into(), "10.0".into()]);
        table.row(["long".into(), "1.0".into()]);
        assert_eq!(table.to_string(), "set     ms\na     10.0\nlong   1.0");
    }
}
