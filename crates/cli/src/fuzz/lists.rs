//! Lists of files and of sums, and tables.

use crate::files::{Source, listed};
use crate::hash::{LineFormat, SumLine, line, read_sums};
use crate::table::{self, Row};
use hypergrove_fuzz_targets::{Extent, of_tool};

/// The entries of a list are written and read again, in every form.
pub(super) fn lists(data: &[u8], _: Extent) {
    sums(data);
    paths(data);
    rows(data);
    hypergrove_fuzz_targets::lists(data);
}

fn rows(data: &[u8]) {
    let Some(rows) = of_tool(table::rows(&Source::Stdin, data)) else { return };
    let text =
        |row: &Row| [&row.key, &row.file, &row.signature].map(|path| path.as_os_str().as_encoded_bytes()).join(&b'\t');
    // After an empty line, a byte order mark is part of a name.
    let lines: Vec<Vec<u8>> = std::iter::once(Vec::new()).chain(rows.iter().map(text)).collect();
    let again = table::rows(&Source::Stdin, &lines.join(&b'\n')).unwrap_or_else(|why| panic!("{}", why.message));
    assert_eq!(again.len(), rows.len());
}

fn sums(data: &[u8]) {
    let Some((listed, improper)) = of_tool(read_sums(&Source::Stdin, data)) else { return };
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(listed.len() + improper.len() <= lines && improper.iter().all(|number| (1..=lines).contains(number)));
    for (tag, binary) in [(false, false), (false, true), (true, false)] {
        // No file has an empty name.
        let entries: Vec<&SumLine> = listed.iter().filter(|entry| !entry.path.as_os_str().is_empty()).collect();
        let form = LineFormat { tag, binary, zero: false };
        let text: Vec<u8> = entries.iter().flat_map(|entry| line(&entry.path, &entry.digest, form)).collect();
        let (again, improper) = read_sums(&Source::Stdin, &text).unwrap_or_else(|why| panic!("{}", why.message));
        assert!(
            improper.is_empty() && again.iter().eq(entries),
            "{:?} is read otherwise",
            String::from_utf8_lossy(&text)
        );
    }
}

fn paths(data: &[u8]) {
    let Some(paths) = of_tool(listed(&Source::Stdin, data, false)) else { return };
    // After an empty line, a byte order mark is part of a name.
    let lines = paths.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"].concat());
    let text: Vec<u8> = std::iter::once(b'\n').chain(lines).collect();
    // The CR of a list whose lines all end with CR LF is no part of a name.
    if text.split(|byte| *byte == b'\n').any(|line| !line.is_empty() && !line.ends_with(b"\r")) {
        assert_eq!(listed(&Source::Stdin, &text, false).map_err(|failure| failure.message), Ok(paths));
    }
}
