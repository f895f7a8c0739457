//! A picture of rates, for the first page: a line for each operation, and a mark on it for each machine, over a logarithmic axis.
//!
//! The reports' plots need the library, without which xtask is built. This is an SVG that brings its colours for light and dark screens, so it is the same file in the repository and in the site.

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
    let height = bottom + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    for (i, machine) in machines.iter().enumerate() {
        let y = ENTRY * (i + 1) as f64;
        let _ = writeln!(out, "{}<text x=\"{}\" y=\"{}\">{machine}</text>", mark(i, LEFT, y - 4.0), LEFT + 14.0, y);
    }
    for power in first as i32..=last as i32 {
        let rate = 10_f64.powi(power);
        let _ = writeln!(
            out,
            "<path class=\"line\" d=\"M{0:.1} {1}V{bottom}\"/><text class=\"soft middle\" x=\"{0:.1}\" y=\"{2}\">{3}</text>",
            x(rate),
            top - 10.0,
            bottom + 16.0,
            match power {
                ..0 => rate.to_string(),
                0..6 => grouped(rate as u64),
                _ => format!("{} million", grouped((rate / 1e6) as u64)),
            }
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"soft middle\" x=\"{}\" y=\"{}\">{title}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 35.0
    );
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
}
