//! The report as one page that needs nothing else.

use crate::numbers::{grouped, seconds, significant};
use crate::plot::{Room, STYLE, verbatim};
use crate::record::short;
use crate::report::best::{Headline, HeadlineRate, headlines};
use crate::report::charts::elements::{FigureGroup, Section, through};
use crate::report::charts::{compared, sections};
use crate::runs::Run;
use maud::{DOCTYPE, Markup, html};

/// The definition of the headline.
const HEADLINE: &str = "The headline is the fastest measurement of each operation on one device, in whatever way the jobs came. Small batches, \
    cached layers and redundancy do not count, and studies and trials count only where there is no plain benchmark.";
/// How headlines are compared.
const HEADLINES: &str = "Two headlines of a device are compared as they stand, whatever the way of their jobs. The comparison below pairs \
    measurements of one way only.";

/// The part of the page for one run or one comparison.
pub(crate) struct PagePart {
    /// Distinguishes it among anchors and files.
    pub(crate) prefix: String,
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
}

/// A part for each run, and a comparison of each other run with the first.
pub(crate) fn parts(runs: &[Run]) -> Vec<PagePart> {
    let several = runs.len() > 1;
    let mut parts: Vec<PagePart> = runs[1..]
        .iter()
        .enumerate()
        .map(|(i, run)| PagePart {
            prefix: format!("c{}-", i + 1),
            title: format!("{} compared with {}", run.name, runs[0].name),
            sections: vec![compared(&runs[0], run)].into_iter().filter(|section| !section.groups.is_empty()).collect(),
        })
        .collect();
    parts.extend(runs.iter().enumerate().map(|(i, run)| PagePart {
        prefix: if several { format!("r{}-", i + 1) } else { String::new() },
        title: run.name.clone(),
        sections: sections(run),
    }));
    parts
}

pub(crate) fn page(runs: &[Run], parts: &[PagePart]) -> String {
    let title = runs.iter().map(|run| &run.name[..]).collect::<Vec<_>>().join(" · ");
    let all = headlines(runs);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "hypergrove " (env!("CARGO_PKG_VERSION")) };
                title { "hypergrove: " (title) }
                link rel="icon" href="data:,";
                style { (verbatim(STYLE)) (verbatim(include_str!("page.css"))) }
            }
            body.plot {
                a.skip href="#content" { "To the figures" }
                header {
                    h1 { "hypergrove " span { (title) } }
                    button #theme type="button" hidden { "Theme: system" }
                }
                nav aria-label="Sections" {
                    @for part in parts {
                        @if !part.sections.is_empty() {
                            ul {
                                @if parts.len() > 1 { li.of { (part.title) } }
                                @for section in &part.sections {
                                    li { a href={ "#" (part.prefix) (section.id) } { (section.title) } }
                                }
                            }
                        }
                    }
                }
                main #content {
                    @for (i, (run, headlines)) in runs.iter().zip(&all).enumerate() {
                        (headline(run, headlines, (i > 0).then(|| (&runs[0], &all[0][..])), runs.len() > 1))
                    }
                    @if !all.iter().all(Vec::is_empty) { p.reading { (HEADLINE) @if runs.len() > 1 { " " (HEADLINES) } } }
                    section.runs aria-label=(if runs.len() > 1 { "Runs" } else { "The run" }) { @for run in runs { (about(run, runs.len() > 1)) } }
                    @for part in parts {
                        @if parts.len() > 1 { h2.part { (part.title) } }
                        @if part.sections.is_empty() { p { "Nothing that could be drawn." } }
                        @for section in &part.sections { (whole(section, &part.prefix)) }
                    }
                }
                footer {
                    p { "Every measurement verified its own answers. Marks are medians, lines through them quartiles. On a figure, the \
                        arrow keys go from mark to mark." }
                }
                script { (verbatim(include_str!("page.js"))) }
            }
        }
    };
    markup.into_string()
}

fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for value in values.filter(|value| !value.is_empty()) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    let more = all.len().saturating_sub(4);
    all.truncate(4);
    all.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// Devices in the headline.
const DEVICES: usize = 4;

/// The headline of a run: devices, sets, rates and % of peak. A run after the first also shows how many times as fast its headline is.
fn headline(run: &Run, headlines: &[Headline<'_>], first: Option<(&Run, &[Headline<'_>])>, several: bool) -> Markup {
    html! {
        @if !headlines.is_empty() {
            section.headline aria-label="Headline" {
                @for headline in headlines.iter().take(DEVICES) {
                    h2 {
                        (headline.device)
                        span {
                            @if !headline.detail.is_empty() { ", " (headline.detail) }
                            ": " (short(&headline.set))
                            @if several { " (" (run.name) ")" }
                        }
                    }
                    div.tiles {
                        @for rate in &headline.rates {
                            @let ratio = first.and_then(|(first, others)| Some((&first.name[..], headline.ratio(rate, others)?)));
                            (tile(rate, ratio))
                        }
                    }
                }
            }
        }
    }
}

/// One rate of the headline, and how many times it is that of another run.
fn tile(rate: &HeadlineRate<'_>, ratio: Option<(&str, f64)>) -> Markup {
    html! {
        div.tile {
            @if let Some(record) = rate.many {
                p.rate { (significant(record.ops_per_s)) }
                p { (rate.noun) " a second" }
                @if let Some(fraction) = record.limit_fraction {
                    div.near { i style={ "width:" (format!("{:.0}", (100.0 * fraction).clamp(0.0, 100.0))) "%" } {} }
                    p.how { (format!("{:.0} %", 100.0 * fraction)) " of peak" }
                }
                p.how { "batches of " (grouped(record.batch as u64)) " by " (through(record)) }
                @if let Some((first, ratio)) = ratio { p.how { (format!("{ratio:.2}×")) " the headline of " (first) } }
            }
            @if let Some(record) = rate.one {
                @if rate.many.is_none() {
                    p.rate { (seconds(record.median_s)) }
                    p { (rate.noun) ", one alone" }
                } @else {
                    p.how { "one alone: " (seconds(record.median_s)) }
                }
            }
        }
    }
}

/// Text with `code` in it, as notes have it.
fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // One at the end without another before it is a character like all others.
    let last = parts.len() - 1;
    html! {
        @for (i, part) in parts.iter().enumerate() {
            @if i % 2 == 0 { (part) } @else if i == last { "`" (part) } @else { code { (part) } }
        }
    }
}

/// Where a run comes from, and what is not in it.
fn about(run: &Run, several: bool) -> Markup {
    let records = run.records.iter();
    let clock = run.records.iter().filter_map(|record| record.clock_hz).fold(0.0, f64::max);
    html! {
        article {
            @if several { h2 { (run.name) } }
            @for paragraph in run.setup.split("\n\n").filter(|text| !text.trim().is_empty()) { p { (prose(paragraph)) } }
            dl {
                dt { "records" } dd { (run.records.len()) }
                dt { "device" } dd { (distinct(records.clone().map(|record| &record.device[..]))) }
                dt { "by" } dd { (distinct(records.clone().map(|record| &record.detail[..]))) }
                dt { "commit" } dd { (distinct(records.clone().map(|record| &record.commit[..]))) }
                @if clock > 0.0 { dt { "clock" } dd { (format!("up to {:.2} GHz", clock / 1e9)) } }
            }
            @if !run.bad.is_empty() {
                details open {
                    summary { (run.bad.len()) @if run.bad.len() == 1 { " line is" } @else { " lines are" } " no record, and left out" }
                    ul { @for bad in &run.bad { li { (bad) } } }
                }
            }
            @if !run.skipped.is_empty() {
                details {
                    summary { (run.skipped.len()) " left out when measuring" }
                    ul {
                        @for record in &run.skipped {
                            li {
                                (distinct([record.study.as_deref().unwrap_or(""), &record.set, &record.op, record.shape.as_deref().unwrap_or("")].into_iter()))
                                ": " (prose(record.skipped.as_deref().unwrap_or_default()))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn whole(section: &Section, prefix: &str) -> Markup {
    // Of many groups only the first is open: twelve sets of curves are long.
    let folded = section.groups.len() > 3;
    html! {
        section id={ (prefix) (section.id) } {
            h2 { (section.title) }
            p.reading { (section.reading) }
            @for (i, group) in section.groups.iter().enumerate() {
                @if folded && i > 1 {
                    details.group { summary { h3 { (group.title) } } (content(group)) }
                } @else {
                    @if !group.title.is_empty() { h3 { (group.title) } }
                    (content(group))
                }
            }
        }
    }
}

fn content(group: &FigureGroup) -> Markup {
    html! {
        @if !group.figures.is_empty() {
            @let larger = match group.figures.len() { 1 => Some(Room::WHOLE), 2 | 3 => Some(Room::HALF), _ => None };
            div.figures.few[group.figures.len() < 3] {
                @for figure in &group.figures {
                    figure tabindex="0" {
                        div.narrow[larger.is_some()] { (figure.drawing.svg(Room::COLUMN)) }
                        @if let Some(room) = larger { div.large { (figure.drawing.svg(room)) } }
                        figcaption aria-live="polite" {}
                    }
                }
            }
        }
        @if group.figures.is_empty() {
            div.table tabindex="0" role="region" aria-label=(group.title) { (group.table.html()) }
        } @else {
            details { summary { "The figures as a table" } div.table tabindex="0" role="region" aria-label="table" { (group.table.html()) } }
        }
    }
}
