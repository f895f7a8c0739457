//! Links between documents: what a relative link names is there, and has the heading that the link names.
//!
//! lychee checks links too, but compiling it takes minutes, and CI reads no document of another host. No checker knows which pages the site has.

use crate::markdown::{anchors, links, target};
use crate::step::Step;
use crate::{disk, site, sources};
use std::fs;
use std::path::Path;

/// All links of all Markdown files, and the site's list of pages. Links to other hosts are not followed.
pub(crate) fn check() -> Step {
    let files = sources::files()?;
    let (mut faults, mut count) = (Vec::new(), 0);
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = disk::read(path)?;
        for link in links(&text) {
            let Some((target, anchor)) = target(path, link) else { continue };
            count += 1;
            if !Path::new(&target).exists() {
                faults.push(format!("{path}: {link}: there is no {target}"));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor)
            {
                faults.push(format!("{path}: {link}: {target} has no such heading"));
            }
        }
    }
    let listed = site::pages()?;
    let is_page = |path: &&String| {
        path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/")) && **path != site::SUMMARY
    };
    let unlisted = files.iter().filter(is_page).filter(|path| !listed.contains(*path));
    faults.extend(unlisted.map(|path| format!("{path} is not in the site's summary, {}", site::SUMMARY)));
    let (moved, dead) = site::links_of_pages()?;
    faults.extend(dead);
    sources::verdict(&faults, &format!("{count} links; {} pages of the site, with {moved}", listed.len()))
}
