//! How documents are written: sentences that are read once, and the field's words.

use crate::links;

/// Words that a sentence has at most, on average over a document.
const AVERAGE: f64 = 25.0;
/// A sentence with more words is long; of a document's sentences, this share may be.
const LONG: usize = 30;
const LONG_SHARE: f64 = 0.05;

/// A word or phrase of ours for which the field has its own, and phrases in which the word has another, plain meaning.
struct Word {
    ours: &'static str,
    theirs: &'static str,
    allowed: &'static [&'static str],
}

const fn word(ours: &'static str, theirs: &'static str) -> Word {
    Word { ours, theirs, allowed: &[] }
}

/// Words with several common meanings (hand, turn, asked, piece, apart) are left to people who read.
const WORDS: &[Word] = &[
    word("page-locked", "pinned"),
    word("multiprocessor", "SM (CUDA) or compute unit (Vulkan)"),
    word("multiprocessors", "SMs (CUDA) or compute units (Vulkan)"),
    word("foresee", "predict"),
    word("foreseen", "predicted"),
    word("foretell", "predict"),
    word("foretold", "predicted"),
    word("side by side", "concurrently"),
    word("beside", "concurrently with, in addition to, or next to"),
    word("are missed where", "takes … away from"),
    word("thousand million", "billion"),
    word("from host to host", "end to end"),
    word("of limit", "% of peak"),
    word("set aside", "disabled"),
    word("landed", "completed"),
    // What is sent and not completed is in flight.
    Word { ours: "flight", theirs: "batch or chunk", allowed: &["in flight"] },
    word("flights", "batches or chunks"),
    word("flying", "in flight"),
    word("shelf", "queue"),
    word("shelves", "queues"),
    word("crew", "workers"),
    word("paces", "attempts or rates"),
    word("awake", "initialised"),
    word("sleeping", "lazily initialised"),
    word("row of work", "stream"),
    word("rows of work", "streams"),
    word("row of jobs", "stream"),
    word("rows of jobs", "streams"),
    word("main row", "main stream"),
    word("side row", "side stream"),
    word("wide kernel", "cooperative kernel"),
    word("wide kernels", "cooperative kernels"),
    word("solo kernel", "single-job kernel"),
    word("solo kernels", "single-job kernels"),
    word("thin kernel", "low-occupancy kernel"),
    word("thin kernels", "low-occupancy kernels"),
    // To tell one thing from another is plain English, and so is to tell someone who waits.
    Word {
        ours: "told",
        theirs: "reported",
        allowed: &["told apart", "told from", "is told afterwards", "that are told"],
    },
];

/// What a document does against these rules.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let mut faults = length_faults(text);
    faults.extend(foreign_words(&sentences(text).join(" ")));
    faults
}

/// How long a text's sentences are.
pub(crate) struct Lengths {
    pub(crate) sentences: usize,
    /// Words a sentence.
    pub(crate) average: f64,
    /// Sentences with more than [`LONG`] words.
    pub(crate) long: usize,
    /// How the first of these begins.
    first: String,
}

impl Lengths {
    pub(crate) fn of(text: &str) -> Lengths {
        let all = sentences(text);
        let counted: Vec<(usize, &String)> =
            all.iter().map(|sentence| (words(sentence), sentence)).filter(|(count, _)| *count > 0).collect();
        let long = || counted.iter().filter(|(count, _)| *count > LONG);
        Lengths {
            sentences: counted.len(),
            average: counted.iter().map(|(count, _)| count).sum::<usize>() as f64 / counted.len().max(1) as f64,
            long: long().count(),
            first: long().next().map_or(String::new(), |(_, sentence)| sentence.chars().take(60).collect()),
        }
    }
}

/// Where a text's sentences are too long.
pub(crate) fn length_faults(text: &str) -> Vec<String> {
    let Lengths { sentences, average, long, first } = Lengths::of(text);
    let mut faults = Vec::new();
    if average > AVERAGE {
        faults.push(format!("{average:.1} words a sentence; at most {AVERAGE}"));
    }
    if long as f64 > LONG_SHARE * sentences as f64 {
        let most = 100.0 * LONG_SHARE;
        faults.push(format!(
            "{long} of {sentences} sentences have more than {LONG} words; at most {most:.0} % may. The first: {first}…"
        ));
    }
    faults
}

/// Words of ours in a text.
fn foreign_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let is_there = |Word { ours, allowed, .. }: &&Word| {
        let kept = allowed.iter().fold(lower.clone(), |text, phrase| text.replace(phrase, ""));
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        kept.match_indices(ours)
            .any(|(at, _)| !is_part(kept[..at].chars().next_back()) && !is_part(kept[at + ours.len()..].chars().next()))
    };
    WORDS
        .iter()
        .filter(is_there)
        .map(|Word { ours, theirs, .. }| format!("instead of '{ours}' write {theirs}"))
        .collect()
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

/// The text without what braces hold: the names of variables.
fn without_names(text: &str) -> String {
    text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).collect()
}

/// The documentation that rustdoc makes of a source, as Markdown.
pub(crate) fn documentation(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines().map(str::trim_start) {
        match line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            Some(doc) => text += doc.strip_prefix(' ').unwrap_or(doc),
            // The first line without one ends the item's documentation, and its last sentence.
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
    for line in links::prose_lines(text) {
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
    fn long_sentences_and_words_of_ours_are_faults() {
        let sentence = |words: usize| format!("{}. ", vec!["word"; words].join(" "));
        let of = |lengths: &[usize]| faults(&lengths.iter().map(|words| sentence(*words)).collect::<String>()).len();
        assert_eq!(of(&[25; 20]), 0);
        assert_eq!(of(&[26; 20]), 1);
        assert_eq!(of(&[&[5; 19][..], &[31]].concat()), 0);
        assert_eq!(of(&[&[5; 18][..], &[31]].concat()), 1);
        assert_eq!(faults("Two run side by\nside."), ["instead of 'side by side' write concurrently"]);
        assert_eq!(faults("`of limit` is code."), Vec::<String>::new());
    }
}
