//! The measurements of runs, as one page with pictures.

mod best;
mod charts;
mod page;

use self::page::PagePart;
use crate::plot::{self, Room};
use crate::runs::Run;

/// Runs and the pictures of them.
pub struct Report<'a> {
    runs: &'a [Run],
    parts: Vec<PagePart>,
}

impl<'a> Report<'a> {
    /// Draws the runs, and each but the first against the first.
    pub fn new(runs: &'a [Run]) -> Report<'a> {
        Report { runs, parts: page::parts(runs) }
    }

    /// The page. It needs no other file.
    pub fn page(&self) -> String {
        page::page(self.runs, &self.parts)
    }

    /// Every picture as a file of its own: its name without the extension, and its text.
    pub fn pictures(&self) -> impl Iterator<Item = (String, String)> {
        self.parts.iter().flat_map(|part| {
            let figures = part.sections.iter().flat_map(|section| &section.groups).flat_map(|group| &group.figures);
            figures.map(|figure| (format!("{}{}", part.prefix, figure.name), plot::file(&figure.drawing, Room::HALF)))
        })
    }
}
