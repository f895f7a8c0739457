//! Links of the documents, and that no page lacks in the site: no checker of links knows which pages the site is to have.

use crate::step::Step;
use crate::{markdown, site, sources};

/// CI's step: all links of all Markdown files, and the site's list of pages.
pub(crate) fn check() -> Step {
    let mut files = sources::files()?;
    files.retain(|path| path.ends_with(".md"));
    let listed = site::pages()?;
    let is_page = |path: &&String| (!path.contains('/') || path.starts_with("docs/")) && **path != site::SUMMARY;
    let unlisted = files.iter().filter(is_page).filter(|path| !listed.contains(*path));
    let faults: Vec<_> =
        unlisted.map(|path| format!("{path} is not in the site's summary, {}", site::SUMMARY)).collect();
    sources::verdict(&faults, "")?;
    markdown::follow(&files)?;
    Ok(format!("{} documents; {} pages of the site", files.len(), listed.len()))
}
