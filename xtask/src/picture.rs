//! Pictures for the pages: rates, with a line for each operation and a mark on it for each machine, over a logarithmic axis; and a comparison, with a
//! bar for each operation, over a linear axis.
//!
//! The reports' plots need the library, without which xtask is built. These are SVGs that bring their colours for light and dark screens, so a picture is the same file in the repository and in the site.

use crate::tables::per_second;
use hypergrove_lab::record::grouped;
use std::fmt::Write as _;

/// Those that have a mark of their own.
pub(crate) const MACHINES: usize = 3;

/// In units of the picture. A telephone shows it at two thirds of its size.
const WIDTH: f64 = 600.0;
const LEFT: f64 = 140.0;
const RIGHT: f64 = 45.0;
/// Of a machine in the legend.
const ENTRY: f64 = 20.0;
const LINE: f64 = 46.0;
/// Of a bar, with the room to the next one.
const BAR: f64 = 32.0;
const BOTTOM: f64 = 44.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1b1f24}.soft{fill:#57606a}.middle{text-anchor:middle}.end{text-anchor:end}\
    .value{paint-order:stroke;stroke:#fff;stroke-width:4px}.back{fill:#fff}.line{stroke:#c3c9d0}.s0{fill:#b3410b}.s1{fill:#0b62a8}.s2{fill:#08704d}\
    @media(prefers-color-scheme:dark){text{fill:#e8eaed}.soft{fill:#a5adb7}.value{stroke:#14181d}.back{fill:#14181d}.line{stroke:#3c454f}\
    .s0{fill:#ff9a66}.s1{fill:#6db3f2}.s2{fill:#4fd1a1}}";

/// Draws the rates of each line: one for each of the `machines`, if it is known. There are at most [`MACHINES`]. The texts are XML.
pub(crate) fn draw(title: &str, machines: &[&str], lines: &[(&str, Vec<Option<f64>>)]) -> String {
    let rates = || lines.iter().flat_map(|(_, rates)| rates.iter().flatten());
    let first = rates().fold(f64::MAX, |least, rate| least.min(*rate)).log10().floor();
    let last = rates().fold(1.0, |most: f64, rate| most.max(*rate)).log10().ceil().max(first + 1.0);
    let x = |rate: f64| LEFT + (rate.log10() - first) / (last - first) * (WIDTH - LEFT - RIGHT);
    let top = ENTRY * machines.len() as f64 + 26.0;
    let bottom = top + LINE * lines.len() as f64;
    let mut out = begin(title, bottom + BOTTOM);
    for (i, machine) in machines.iter().enumerate() {
        let y = ENTRY * (i + 1) as f64;
        let _ = writeln!(out, "{}<text x=\"{}\" y=\"{}\">{machine}</text>", mark(i, LEFT, y - 4.0), LEFT + 14.0, y);
    }
    for power in first as i32..=last as i32 {
        let rate = 10_f64.powi(power);
        out += &tick(
            x(rate),
            top - 10.0,
            bottom,
            &match power {
                ..0 => rate.to_string(),
                0..6 => grouped(rate as u64),
                _ => format!("{} million", grouped((rate / 1e6) as u64)),
            },
        );
    }
    out += &caption(title, bottom);
    for (i, (name, rates)) in lines.iter().enumerate() {
        let y = top + LINE * i as f64 + 8.0;
        let _ = writeln!(out, "<text class=\"end\" x=\"{}\" y=\"{}\">{name}</text>", LEFT - 14.0, y + 4.0);
        for (machine, rate) in rates.iter().enumerate().filter_map(|(machine, rate)| Some((machine, (*rate)?))) {
            let text = per_second(rate);
            let _ = writeln!(
                out,
                "{}<text class=\"middle value\" x=\"{:.1}\" y=\"{}\">{text}</text>",
                mark(machine, x(rate), y),
                x(rate),
                y + 20.0
            );
        }
    }
    out + "</svg>\n"
}

/// Draws how many times as fast each line is as the one that it is compared with, which has the mark 1. The texts are XML.
pub(crate) fn bars(title: &str, lines: &[(&str, f64)]) -> String {
    let most = lines.iter().fold(1.0, |most: f64, (_, times)| most.max(*times)).ceil();
    let x = |times: f64| LEFT + times / most * (WIDTH - LEFT - RIGHT);
    let bottom = BAR * lines.len() as f64 + 20.0;
    let mut out = begin(title, bottom + BOTTOM);
    for times in 0..=most as u32 {
        out += &tick(x(times.into()), 10.0, bottom, &times.to_string());
    }
    out += &caption(title, bottom);
    for (i, (name, times)) in lines.iter().enumerate() {
        let (y, end) = (BAR * i as f64 + 20.0, x(*times));
        let _ = writeln!(
            out,
            "<text class=\"end\" x=\"{}\" y=\"{}\">{name}</text><path class=\"s1\" d=\"M{LEFT} {y}H{end:.1}v18H{LEFT}Z\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{}\">{times:.1}</text>",
            LEFT - 14.0,
            y + 14.0,
            end + 6.0,
            y + 14.0
        );
    }
    out + "</svg>\n"
}

fn begin(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    )
}

/// A line of the grid, and its number.
fn tick(x: f64, top: f64, bottom: f64, number: &str) -> String {
    let y = bottom + 16.0;
    format!(
        "<path class=\"line\" d=\"M{x:.1} {top}V{bottom}\"/><text class=\"soft middle\" x=\"{x:.1}\" y=\"{y}\">{number}</text>\n"
    )
}

/// The axis says what it counts.
fn caption(title: &str, bottom: f64) -> String {
    let (x, y) = ((LEFT + WIDTH - RIGHT) / 2.0, bottom + 35.0);
    format!("<text class=\"soft middle\" x=\"{x}\" y=\"{y}\">{title}</text>\n")
}

/// Each machine has a colour and a shape: a circle, a square, a diamond.
fn mark(machine: usize, x: f64, y: f64) -> String {
    let shape = match machine {
        0 => format!("M{:.1} {y}a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z", x - 5.0),
        1 => format!("M{:.1} {}h9v9h-9Z", x - 4.5, y - 4.5),
        _ => format!("M{x:.1} {}l6 6l-6 6l-6-6Z", y - 6.0),
    };
    format!("<path class=\"s{machine}\" d=\"{shape}\"/>")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_mark_stands_where_its_rate_is() {
        let lines = [("sign", vec![Some(10.0), None]), ("verify", vec![Some(1e3), Some(1e5)])];
        let picture = draw("jobs a second", &["one", "two"], &lines);
        let area = WIDTH - LEFT - RIGHT;
        for (rate, machine, line) in [(10.0, 0, 0), (1e3, 0, 1), (1e5, 1, 1)] {
            let (place, y) =
                (LEFT + area * (f64::log10(rate) - 1.0) / 4.0, 2.0 * ENTRY + 26.0 + LINE * f64::from(line) + 8.0);
            assert!(picture.contains(&mark(machine, place, y)), "{rate}: {picture}");
        }
        // Two are of the legend.
        assert_eq!(picture.matches("<path class=\"s").count(), 5);
        assert!(["10", "100", "1,000", "10,000", "100,000"].iter().all(|tick| picture.contains(&format!(">{tick}<"))));
    }

    #[test]
    fn a_bar_is_as_long_as_its_number() {
        let picture = bars("times as fast", &[("sign", 4.0), ("verify", 2.04)]);
        let area = WIDTH - LEFT - RIGHT;
        for (times, text, line) in [(4.0, "4.0", 0.0), (2.04, "2.0", 1.0)] {
            let (y, end) = (BAR * line + 20.0, LEFT + area * times / 4.0);
            assert!(picture.contains(&format!("M{LEFT} {y}H{end:.1}v18")), "{times}: {picture}");
            assert!(picture.contains(&format!(">{text}</text>")), "{times}: {picture}");
        }
        assert_eq!(picture.matches("<path class=\"line\"").count(), 5);
    }
}
