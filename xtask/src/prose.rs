//! How documents are written: sentences that are read once, and the field's words.

use crate::markdown;
use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A sentence with more words is long; of all words of a text, this share may stand in long sentences.
///
/// No program sees whether a sentence has a verb, so none can tell a short sentence from a fragment. Therefore words are counted, and not
/// sentences: a text that adds fragments, or splits sentences that are not long, has as many words in long sentences as before. An average
/// over sentences, or a share of them, would become better.
const LONG: usize = 30;
const LONG_SHARE: f64 = 0.1;

/// How a sentence of a comment must not begin: such sentences mostly lack a verb, or do not name the thing. Questions may.
pub(crate) const BEGINNINGS: [&str; 2] = ["The same", "What"];

/// Words of ours, in tables of xtask/words.toml.
#[derive(Deserialize)]
struct Vocabulary {
    words: BTreeMap<String, Word>,
    names: BTreeMap<String, Word>,
}

#[derive(Deserialize)]
struct Word {
    write: String,
    #[serde(default)]
    allowed: Vec<String>,
}

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| toml::from_str(include_str!("../words.toml")).expect("words.toml has the form of a vocabulary"));

/// A document's faults against these rules.
pub(crate) fn faults(text: &str) -> Vec<String> {
    length_faults(text).into_iter().chain(foreign_words(&sentences(text).join(" "))).collect()
}

/// Whether too much of a text stands in long sentences.
pub(crate) fn length_faults(text: &str) -> Option<String> {
    let all = sentences(text);
    let long: Vec<&String> = all.iter().filter(|sentence| words(sentence) > LONG).collect();
    let count = |of: &mut dyn Iterator<Item = &String>| of.map(|sentence| words(sentence)).sum::<usize>() as f64;
    let share = count(&mut long.iter().copied()) / count(&mut all.iter());
    (share > LONG_SHARE).then(|| {
        let (percent, most) = (100.0 * share, 100.0 * LONG_SHARE);
        let first: String = long[0].chars().take(60).collect();
        format!(
            "{percent:.1} % of the words stand in {} sentences of more than {LONG} words; at most {most:.0} % may. The first: {first}…",
            long.len()
        )
    })
}

/// Words of ours in a text.
fn foreign_words(text: &str) -> Vec<String> {
    faults_of(text, &VOCABULARY.words)
}

fn faults_of(text: &str, words: &BTreeMap<String, Word>) -> Vec<String> {
    let lower = text.to_lowercase();
    let is_there = |(ours, word): &(&String, &Word)| {
        let kept = word.allowed.iter().fold(lower.clone(), |text, phrase| text.replace(phrase, ""));
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        kept.match_indices(*ours)
            .any(|(at, _)| !is_part(kept[..at].chars().next_back()) && !is_part(kept[at + ours.len()..].chars().next()))
    };
    let found = words.iter().filter(is_there);
    found.map(|(ours, Word { write, .. })| format!("instead of '{ours}' write {write}")).collect()
}

/// Words of ours in the comments of a source, and in its texts of several words: errors, help and reports.
pub(crate) fn faults_of_source(source: &str) -> Vec<String> {
    let is_comment = |line: &&str| line.starts_with("//") || line.starts_with("/*") || line.starts_with("* ");
    let (comments, code): (Vec<&str>, Vec<&str>) = source.lines().map(str::trim).partition(is_comment);
    let text: Vec<&str> = comments.iter().map(|line| line.trim_start_matches(['/', '!', '*']).trim()).collect();
    let mut faults = foreign_words(&without_code(&text.join(" ")));
    for line in code {
        // Every second part is a text, as far as a line shows.
        let texts = line.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
        faults.extend(texts.flat_map(|text| foreign_words(&without_names(text))));
    }
    faults
}

/// All names in a Rust source.
pub(crate) fn names(source: &str) -> Result<BTreeSet<String>, String> {
    fn collect(tokens: TokenStream, found: &mut BTreeSet<String>) {
        for token in tokens {
            match token {
                TokenTree::Ident(name) => drop(found.insert(name.to_string())),
                TokenTree::Group(group) => collect(group.stream(), found),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(source.parse().map_err(|error| format!("{error}"))?, &mut found);
    Ok(found)
}

/// Words of ours in a name.
pub(crate) fn faults_of_name(name: &str) -> Vec<String> {
    let (mut text, mut last) = (String::new(), '_');
    for letter in name.chars() {
        if letter.is_uppercase() && last.is_alphanumeric() && !last.is_uppercase() {
            text.push(' ');
        }
        text.push(if letter == '_' { ' ' } else { letter });
        last = letter;
    }
    let faults = [&VOCABULARY.words, &VOCABULARY.names].map(|words| faults_of(&text, words)).concat();
    faults.into_iter().map(|fault| format!("{name}: {fault}")).collect()
}

/// The sentences of a Rust source's comments that begin like this.
pub(crate) fn beginning(source: &str, words: &str) -> Vec<String> {
    let all = sentences(&comments(source, &["///", "//!", "//"]));
    let is_found = |sentence: &String| {
        let rest = sentence.strip_prefix(words).filter(|rest| !rest.starts_with(char::is_alphanumeric));
        rest.is_some_and(|rest| !rest.trim_end().ends_with('?'))
    };
    all.into_iter().filter(is_found).map(|sentence| format!("a comment begins so: {sentence}")).collect()
}

/// The text without what braces hold: the names of variables.
fn without_names(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).collect()
}

/// The documentation that rustdoc makes of a source, as Markdown.
pub(crate) fn documentation(source: &str) -> String {
    comments(source, &["///", "//!"])
}

/// The comments of a source that begin with one of these marks, as Markdown.
fn comments(source: &str, marks: &[&str]) -> String {
    let mut text = String::new();
    for line in source.lines().map(str::trim_start) {
        match marks.iter().find_map(|mark| line.strip_prefix(mark)) {
            Some(comment) => text += comment.strip_prefix(' ').unwrap_or(comment),
            // The first line without one ends the comment, and its last sentence.
            None if !text.ends_with("\n\n") => {}
            None => continue,
        }
        text += "\n";
    }
    text
}

/// The comments of a C header, as Markdown. A line that is indented under a word at its margin continues the word's paragraph.
pub(crate) fn comments_of_header(source: &str) -> String {
    let mut text = String::new();
    let mut is_inside = false;
    for line in source.lines().map(str::trim) {
        let begins = line.starts_with("/*");
        if is_inside || begins {
            is_inside = !line.ends_with("*/");
            let line = line.trim_start_matches("/*").trim_end_matches("*/").trim_start_matches('*').trim();
            // A heading between rules.
            text += if line.starts_with("----") { "" } else { line };
            text += if is_inside { "\n" } else { "\n\n" };
        }
    }
    text
}

/// The docstrings and comments of a Python source, as Markdown, without the examples that doctest runs.
pub(crate) fn comments_of_python(source: &str) -> String {
    const QUOTES: &str = "\"\"\"";
    let mut text = String::new();
    // The indentation of the docstring, where a line is inside one.
    let mut inside: Option<usize> = None;
    let mut is_example = false;
    for line in source.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let (begins, content) = match (inside, code.strip_prefix(QUOTES)) {
            (None, Some(rest)) => (true, rest),
            (None, None) => {
                // Comments of neighbouring lines are one text.
                text += code.strip_prefix("# ").unwrap_or("");
                text += if code.starts_with("# ") || text.ends_with("\n\n") { "\n" } else { "\n\n" };
                continue;
            }
            (Some(margin), _) => (false, line.get(margin.min(indent)..).unwrap_or("")),
        };
        let ends = content.contains(QUOTES);
        let content = content.split(QUOTES).next().unwrap_or("");
        is_example = content.starts_with(">>>") || is_example && !content.trim().is_empty();
        text += if is_example { "" } else { content };
        text += if ends { "\n\n" } else { "\n" };
        inside = match () {
            () if ends => None,
            () if begins => Some(indent),
            () => inside,
        };
        is_example &= !ends;
    }
    text
}

/// Inline code is a word.
fn without_code(text: &str) -> String {
    text.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "code" }).collect()
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The sentences outside code, tables and headings; inline code is a word.
fn sentences(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in markdown::prose_lines(text) {
        let (indented, line) = (line.starts_with("    "), line.trim());
        if line.is_empty() || line.starts_with(['#', '|', '<']) {
            paragraphs.push(String::new());
        } else if let Some(item) = line.strip_prefix("* ").or_else(|| line.strip_prefix("- ")) {
            paragraphs.push(item.into());
        } else if let Some(last) = paragraphs.last_mut().filter(|last| !indented || !last.is_empty()) {
            *last += " ";
            *last += line;
        }
    }
    paragraphs.iter().flat_map(|paragraph| split(&without_code(paragraph))).collect()
}

/// The sentences of a paragraph.
fn split(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in paragraph.split_whitespace() {
        // A link's target is no word.
        let (word, ends) = match word.split_once("](") {
            Some((text, target)) => (text, target),
            None => (word, word),
        };
        if let Some(last) = sentences.last_mut() {
            *last += word;
            *last += " ";
        }
        if ends.trim_end_matches([')', '*', '"', '”']).ends_with(['.', '!', '?']) {
            sentences.push(String::new());
        }
    }
    sentences
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn counts_the_words_of_sentences() {
        let text = "# A heading\n\nOne `two words` three. Four [five](https://six.seven).\nEight\n\n* Nine\n  ten.\n* Eleven\n\n\
            | a | table |\n\n```\ncode here\n```\n";
        let lengths: Vec<_> = sentences(text).iter().map(|it| words(it)).filter(|words| *words > 0).collect();
        assert_eq!(lengths, [3, 2, 1, 2, 1]);
    }

    #[test]
    fn comments_have_the_fields_words() {
        assert_eq!(
            faults_of_source("/// Memory that is page-\nlet foreseen = 1;\n//! Two side by\n    // side.\n"),
            ["instead of 'side by side' write concurrently"]
        );
        assert_eq!(faults_of_source("format!(\"{told} of limited memory\", \"beside\")"), Vec::<String>::new());
        assert_eq!(faults_of_source("error(\"a device set aside\")"), ["instead of 'set aside' write disabled"]);
        assert_eq!(faults_of_source("// Four in flight; besides, told apart.\n// `beside`"), Vec::<String>::new());
        assert_eq!(faults_of_source("// A flight is in flight.").len(), 1);
    }

    #[test]
    fn documentation_is_what_rustdoc_shows() {
        let source = "//! The crate\n//! a.\n\nuse b;\n\n/// An item.\n///\n/// ```\n/// code. here.\n/// ```\nfn c() {}\n/// Another\nfn d() {}\n// No doc.\n";
        let lengths: Vec<_> =
            sentences(&documentation(source)).iter().map(|it| words(it)).filter(|words| *words > 0).collect();
        assert_eq!(lengths, [3, 2, 1]);
        let header = "/*\n * Two words. And\n * three more.\n */\n#define A 1 /* not this */\n/* ---- A heading ---- */\n/* One. */\n";
        let lengths: Vec<_> =
            sentences(&comments_of_header(header)).iter().map(|it| words(it)).filter(|words| *words > 0).collect();
        assert_eq!(lengths, [2, 3, 1]);
    }

    #[test]
    fn documentation_of_python_is_docstrings_and_comments() {
        let source = "\"\"\"Two words.\n\n>>> code()\nits. output. here.\n\n    a command\n\nThree more words.\n\"\"\"\n\nimport a\n\
            # A comment\n# of five words.\nTEXT = \"# none. here\"\n\ndef f():\n    \"\"\"One.\"\"\"\n    \"\"\"Not\n    two.\n    \"\"\"\n\
            x = 1  # not this. one\n";
        let text = comments_of_python(source);
        let lengths: Vec<_> = sentences(&text).iter().map(|it| words(it)).filter(|words| *words > 0).collect();
        assert_eq!(lengths, [2, 3, 5, 1, 2], "{text}");
    }

    #[test]
    fn names_are_split_into_words() {
        for (name, ours) in [
            ("XmssWide", Some("wide")),
            ("SOLO_LEVELS", Some("solo")),
            ("is_beside_others", Some("beside")),
            ("most_in_flight", None),
            ("MOST_IN_FLIGHT", None),
            ("widest", None),
            ("supply_chain", None),
            ("Sha256Wide", Some("wide")),
        ] {
            let faults = faults_of_name(name);
            assert_eq!(faults.len(), usize::from(ours.is_some()), "{faults:?}");
            assert!(ours.is_none_or(|ours| faults[0].starts_with(&format!("{name}: instead of '{ours}' write"))));
        }
        let found = names("fn a<'b>(c: D) { \"e f\"; // g\n r#\"h\"#; 'i' }").expect("a source");
        assert_eq!(Vec::from_iter(found), ["D", "a", "b", "c", "fn"]);
    }

    #[test]
    fn beginnings_of_sentences_are_found() {
        let source = "/// What it holds. What is\n/// that? And what.\nlet a = \"What now.\";\n// The same\n// again.\n//! The sames.\n\n// The same: all.\n";
        assert_eq!(
            beginning(source, BEGINNINGS[0]),
            ["a comment begins so: The same again. ", "a comment begins so: The same: all. "]
        );
        assert_eq!(beginning(source, BEGINNINGS[1]), ["a comment begins so: What it holds. "]);
    }

    #[test]
    fn long_sentences_and_words_of_ours_are_faults() {
        let sentence = |words: usize| format!("{}. ", vec!["word"; words].join(" "));
        let of = |lengths: &[usize]| faults(&lengths.iter().map(|words| sentence(*words)).collect::<String>()).len();
        assert_eq!(of(&[30; 20]), 0);
        assert_eq!(of(&[&[20; 14][..], &[31]].concat()), 0);
        assert_eq!(of(&[&[20; 13][..], &[31]].concat()), 1);
        // The words that matter are as many after other sentences were split.
        assert_eq!(of(&[&[5; 4 * 13][..], &[31]].concat()), 1);
        assert_eq!(faults("Two run side by\nside."), ["instead of 'side by side' write concurrently"]);
        assert_eq!(faults("`of limit` is code."), Vec::<String>::new());
    }
}
