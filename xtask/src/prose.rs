//! How documents are written: sentences that are read once, and the field's words.

use crate::links;

/// Words that a sentence has at most, on average over a document.
const AVERAGE: f64 = 25.0;
/// A sentence with more words is long; of a document's sentences, this share may be.
const LONG: usize = 30;
const LONG_SHARE: f64 = 0.05;

/// Words of ours for which the field has its own.
const WORDS: &[(&str, &str)] = &[
    ("page-locked", "pinned"),
    ("multiprocessor", "SM (CUDA) or compute unit (Vulkan)"),
    ("foreseen", "predicted"),
    ("foretold", "predicted"),
    ("side by side", "concurrently"),
    ("thousand million", "billion"),
    ("from host to host", "end to end"),
    ("of limit", "% of peak"),
];

/// What a document does against these rules.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let sentences = sentences(text);
    let lengths: Vec<usize> = sentences.iter().map(|sentence| words(sentence)).filter(|words| *words > 0).collect();
    let count = lengths.len().max(1) as f64;
    let average = lengths.iter().sum::<usize>() as f64 / count;
    if average > AVERAGE {
        faults.push(format!("{average:.1} words a sentence; at most {AVERAGE}"));
    }
    let long: Vec<_> = sentences.iter().filter(|sentence| words(sentence) > LONG).collect();
    if let Some(first) = long.first().filter(|_| long.len() as f64 > LONG_SHARE * count) {
        let begin: String = first.chars().take(60).collect();
        faults.push(format!(
            "{} of {} sentences have more than {LONG} words; at most {:.0} % may. The first: {begin}…",
            long.len(),
            lengths.len(),
            100.0 * LONG_SHARE
        ));
    }
    faults.extend(foreign_words(&sentences.join(" ")));
    faults
}

/// Words of ours in a text.
fn foreign_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let found = WORDS.iter().filter(|(ours, _)| lower.contains(ours));
    found.map(|(ours, theirs)| format!("instead of '{ours}' write {theirs}")).collect()
}

/// The same in the comments of a source.
pub(crate) fn faults_of_comments(source: &str) -> Vec<String> {
    let comments = source.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
    let text: Vec<&str> = comments.map(|line| line.trim_start_matches(['/', '!']).trim()).collect();
    // Keys of limited sets have a name of their own.
    foreign_words(&text.join(" ").replace("of limited", ""))
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
    let code = |(i, part): (usize, &str)| if i % 2 == 0 { part.to_string() } else { "code".into() };
    let plain = paragraphs.iter().map(|paragraph| paragraph.split('`').enumerate().map(code).collect::<String>());
    plain.flat_map(|paragraph| split(&paragraph)).collect()
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
            faults_of_comments("/// Memory that is page-\nlet foreseen = 1;\n//! Two side by\n    // side.\n"),
            ["instead of 'side by side' write concurrently"]
        );
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
