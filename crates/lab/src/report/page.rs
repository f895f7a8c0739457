//! The report as one page that needs nothing else.

use crate::report::charts::{Group, Section, compared, sections};
use crate::report::plot::{STYLE, verbatim};
use crate::report::read::Run;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What a run or a comparison shows.
pub(crate) struct Part {
    /// Distinguishes it among anchors and files.
    pub(crate) prefix: String,
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
}

/// Of each run, and of each but the first beside the first.
pub(crate) fn parts(runs: &[Run]) -> Vec<Part> {
    let several = runs.len() > 1;
    let mut parts: Vec<Part> = runs[1..]
        .iter()
        .enumerate()
        .map(|(i, run)| Part {
            prefix: format!("c{}-", i + 1),
            title: format!("{} beside {}", run.name, runs[0].name),
            sections: vec![compared(&runs[0], run)].into_iter().filter(|section| !section.groups.is_empty()).collect(),
        })
        .collect();
    parts.extend(runs.iter().enumerate().map(|(i, run)| Part {
        prefix: if several { format!("r{}-", i + 1) } else { String::new() },
        title: run.name.clone(),
        sections: sections(run),
    }));
    parts
}

pub(crate) fn page(runs: &[Run], parts: &[Part]) -> String {
    let title = runs.iter().map(|run| &run.name[..]).collect::<Vec<_>>().join(" · ");
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
                    section.runs aria-label="Runs" { @for run in runs { (about(run)) } }
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

/// Where a run comes from, and what is not in it.
fn about(run: &Run) -> Markup {
    let records = run.records.iter();
    let clock = run.records.iter().filter_map(|record| record.clock_hz).fold(0.0, f64::max);
    html! {
        article {
            h2 { (run.name) }
            @for paragraph in run.setup.split("\n\n").filter(|text| !text.trim().is_empty()) { p { (paragraph) } }
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
                                ": " (record.skipped.as_deref().unwrap_or_default())
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

fn content(group: &Group) -> Markup {
    html! {
        @if !group.figures.is_empty() {
            div.figures {
                @for figure in &group.figures {
                    figure tabindex="0" { (PreEscaped(&figure.picture.0)) figcaption aria-live="polite" {} }
                }
            }
        }
        @if let Some(table) = &group.table {
            @if group.figures.is_empty() {
                div.table tabindex="0" role="region" aria-label=(group.title) { (table.html()) }
            } @else {
                details { summary { "The figures as a table" } div.table tabindex="0" role="region" aria-label="table" { (table.html()) } }
            }
        }
    }
}
