//! The site: the documents as a book that can be searched, made by mdBook, with the report of the newest studies.

use crate::process;
use crate::step::{Step, Stop, ensure};
use crate::{disk, markdown, wheels};
use hypergrove_records::runs;
use std::collections::BTreeSet;
use std::env::consts::EXE_EXTENSION;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "docs/book.toml";
const BENCHMARKS: &str = "BENCHMARKS.md";
const REPORT: &str = "report.html";
/// How the names of pictures in `docs` end. They lie next to the pages, here as there.
const PICTURE: &str = "svg";

/// `cargo xtask site`: makes the site and says where.
pub(crate) fn run() -> Result<bool, String> {
    println!("{}", make(&wheels::tool("mdbook")?)?.join("index.html").display());
    Ok(true)
}

/// CI's step: the site is made, each page of it can be found, and so can all that the pages link to.
pub(crate) fn check() -> Step {
    let mdbook = wheels::tool("mdbook").map_err(Stop::Skipped)?;
    let site = make(&mdbook)?;
    let pages = pages()?;
    let mut made = Vec::new();
    for page in &pages {
        let html = site.join(page).with_extension("html");
        let index = html.with_file_name("index.html");
        ensure!(html.is_file() || index.is_file(), "{page} is not in the site: there is no {}", html.display());
        made.push(if html.is_file() { html } else { index }.to_string_lossy().into_owned());
    }
    markdown::follow(&made)?;
    Ok(format!("{} pages", pages.len()))
}

/// The documents that the summary names, as paths from the root.
pub(crate) fn pages() -> Result<BTreeSet<String>, String> {
    let summary = disk::read(SUMMARY)?;
    Ok(markdown::links(&summary)
        .iter()
        .filter_map(|link| markdown::target(SUMMARY, link))
        .map(|(path, _)| path)
        .collect())
}

/// Makes the site; its folder.
fn make(mdbook: &str) -> Result<PathBuf, String> {
    let folder = process::target().join("site");
    report(&prepare(&folder)?)?;
    process::run(process::limited(5, mdbook, &["build"]).arg(&folder))?;
    Ok(folder.join("book"))
}

/// Writes what mdBook reads, but for the report, to the folder; the pages' folder.
fn prepare(folder: &Path) -> Result<PathBuf, String> {
    let pages = pages()?;
    let source = folder.join("src");
    let write = |path: PathBuf, text: &str| {
        disk::make(path.parent().unwrap_or(folder))?;
        disk::write(path, text)
    };
    disk::remove(&source)?;
    let book = disk::read(BOOK)?;
    write(folder.join("book.toml"), &book)?;
    let repository = book.lines().find_map(|line| line.strip_prefix("git-repository-url = "));
    let repository = repository.ok_or_else(|| format!("{BOOK} names no git-repository-url"))?.trim_matches('"');
    // Pages keep their places, so that links between them hold; the summary stands at the root.
    for path in &pages {
        let mut text = with_links(&disk::read(path)?, |link| moved(path, link, &pages, repository));
        if path == BENCHMARKS {
            text += &format!("\n[The newest studies, drawn]({REPORT})\n");
        }
        write(source.join(path), &text)?;
    }
    let from_root = |link: &str| markdown::target(SUMMARY, link).map(|(path, _)| path);
    for path in disk::entries("docs")?.iter().filter(|path| path.extension() == Some(PICTURE.as_ref())) {
        disk::copy(path, source.join(path))?;
    }
    write(source.join("SUMMARY.md"), &with_links(&disk::read(SUMMARY)?, from_root))?;
    Ok(source)
}

/// Where a link of the page `path` leads in the site, if elsewhere: to the file in the repository if it is no page, and to an index
/// instead of a README, as mdBook has it.
fn moved(path: &str, link: &str, pages: &BTreeSet<String>, repository: &str) -> Option<String> {
    let (file, anchor) = markdown::target(path, link)?;
    if file.ends_with(PICTURE) {
        return None;
    }
    if pages.contains(&file) {
        return link.contains("README.md").then(|| link.replace("README.md", "index.md"));
    }
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    let kind = if Path::new(&file).is_dir() { "tree" } else { "blob" };
    Some(format!("{repository}/{kind}/main/{file}{anchor}"))
}

/// A document with other targets where `other` has one.
fn with_links(text: &str, other: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for link in markdown::links(text) {
        let begin = link.as_ptr() as usize - text.as_ptr() as usize;
        out += &text[at..begin];
        out += &other(link).unwrap_or_else(|| link.into());
        at = begin + link.len();
    }
    out + &text[at..]
}

/// Draws the studies of the newest day, of several runs the one with most of them, by the tool.
fn report(source: &Path) -> Result<(), String> {
    let studies = disk::entries(runs::RUNS)?.into_iter().filter_map(|run| {
        let day = run.file_name()?.to_str()?.get(..10)?.to_string();
        Some((day, run.join("studies.jsonl").metadata().ok()?.len(), run))
    });
    let (.., newest) = studies.max().ok_or_else(|| format!("no studies in {}", runs::RUNS))?;
    process::run(process::cargo(&["build", "--release", "--locked", "-p", "hypergrove-cli"]))?;
    let mut command = Command::new(process::target().join("release/hypergrove").with_extension(EXE_EXTENSION));
    command.arg("report").arg(newest).arg("-o").arg(source.join(REPORT)).arg("--force");
    process::run(command)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn links_lead_to_pages_or_to_the_repository() {
        let pages = BTreeSet::from(["docs/a.md".to_string(), "README.md".into()]);
        let text = "[a](a.md#x), [b](../README.md), [c](../b.json), [d](https://example.org), `[e](f)`, [g](../Cargo.toml#L1)\n";
        assert_eq!(
            with_links(text, |link| moved("docs/a.md", link, &pages, "https://example.org/r")),
            "[a](a.md#x), [b](../index.md), [c](https://example.org/r/blob/main/b.json), [d](https://example.org), `[e](f)`, \
             [g](https://example.org/r/blob/main/Cargo.toml#L1)\n"
        );
    }
}
