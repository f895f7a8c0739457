//! Markdown as the documents have it: links, which `site` moves and lychee follows, the anchors of headings, and the lines outside code.

use crate::step::Stop;
use crate::{disk, process, wheels};
use std::process::Command;

/// Where this repository is read: the rustdoc front pages, which stand elsewhere, link to its documents so.
const REPOSITORY: &str = "https://github.com/hypergrove/hypergrove/(?:blob|tree)/main/";

/// Follows the links of documents or of pages in HTML by lychee, with the settings of lychee.toml: each leads to a file, and to a heading if it
/// names one. Links to other hosts are not followed.
pub(crate) fn follow(files: &[String]) -> Result<(), Stop> {
    let (list, root) = (process::target().join("links.txt"), disk::workspace().display());
    disk::write(&list, files.join("\n"))?;
    let mut command = Command::new(wheels::tool("lychee").map_err(Stop::Skipped)?);
    command.args(["--root-dir", &root.to_string(), "--remap", &format!("{REPOSITORY} file://{root}/")]);
    Ok(process::run(command.arg("--files-from").arg(list))?)
}

/// The file and the heading that a link in the document `path` names: a path from the root, and a heading or nothing. None for another host.
pub(crate) fn target<'a>(path: &str, link: &'a str) -> Option<(String, &'a str)> {
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
    }
}
