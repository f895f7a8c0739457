//! Markdown as the documents have it: links, headings with their anchors, and the lines outside code. The step `links` checks links with
//! these functions, and `site` moves links with them.

use std::collections::BTreeSet;

/// Where this repository is read: the rustdoc front pages, which stand elsewhere, link to its documents so.
const REPOSITORY: &str = "https://github.com/hypergrove/hypergrove/blob/main/";

/// The file and the heading that a link in the document `path` names: a path from the root, and a heading or nothing. None for another host.
pub(crate) fn target<'a>(path: &str, link: &'a str) -> Option<(String, &'a str)> {
    if let Some(link) = link.strip_prefix(REPOSITORY) {
        return target("", link);
    }
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return Some((path.into(), anchor));
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some((if parts.is_empty() { ".".into() } else { parts.join("/") }, anchor))
}

/// The targets of a document's links: `[text](target)` and `[name]: target`, code left out.
pub(crate) fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose_lines(text) {
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push(target.trim());
        }
        // Every second part is code.
        let mut at = 0;
        for (i, part) in line.split('`').enumerate() {
            for (begin, _) in part.match_indices("](").filter(|_| i % 2 == 0) {
                let rest = &line[at + begin + 2..];
                found.extend(rest.split_once(')').map(|(target, _)| target));
            }
            at += part.len() + 1;
        }
    }
    found
}

/// The lines outside fenced code.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors of a document's headings, as GitHub and mdBook name them.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose_lines(text).filter(|line| line.starts_with('#')) {
        let slug = slug(heading.trim_start_matches('#'));
        let twice = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(twice).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// A heading's anchor.
pub(crate) fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn finds_links_outside_code() {
        let text = "A [b](c.md) and [`d`](e.md#f), not `[g](h)`.\n```\n[i](j)\n```\n[k]: l.md\n";
        assert_eq!(links(text), ["c.md", "e.md#f", "l.md"]);
    }

    #[test]
    fn targets_start_from_the_root() {
        let of = |path, link| target(path, link).map(|(file, anchor)| (file, anchor.to_string()));
        let named = |file: &str, anchor: &str| Some((file.to_string(), anchor.to_string()));
        assert_eq!(of("docs/a.md", "b.md#c"), named("docs/b.md", "c"));
        assert_eq!(of("docs/a.md", "../README.md"), named("README.md", ""));
        assert_eq!(of("docs/a.md", "#c"), named("docs/a.md", "c"));
        assert_eq!(of("a.md", "../../b"), named("../../b", ""));
        assert_eq!(of("a.md", "https://example.org/b"), None);
        assert_eq!(of("crates/a/b.md", &format!("{REPOSITORY}docs/a.md#c")), named("docs/a.md", "c"));
    }

    #[test]
    fn headings_have_anchors() {
        let text = "# A b, c\n## `D` (e)\n```\n# not this\n```\n## A b, c\n";
        assert_eq!(Vec::from_iter(anchors(text)), ["a-b-c", "a-b-c-1", "d-e"]);
    }
}
