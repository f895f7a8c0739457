//! All pictures, as SVG that is laid out here: those of reports, and those of documents. A page has each plot for a column, whose text stays
//! readable on a narrow screen, and few plots also for more room. Colours are classes, so that a page's theme reaches them, and marks have
//! texts, which a page shows. A crate such as plotters has neither, nor legends outside of a plot's area: with it, a draft of this file was
//! a tenth longer.

use maud::{Markup, PreEscaped, html};

/// The room for a plot.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Units across.
    width: f64,
    /// Height of the area between the axes.
    area: f64,
    /// Whether the picture is as wide as there is room for it.
    stretches: bool,
}

impl Room {
    /// A column of many, or a narrow screen.
    pub(crate) const COLUMN: Room = Room { width: 360.0, area: 200.0, stretches: false };
    /// Half a page.
    pub(crate) const HALF: Room = Room { width: 560.0, area: 240.0, stretches: false };
    /// The page.
    pub(crate) const WHOLE: Room = Room { width: 1080.0, area: 340.0, stretches: false };
    /// A document, which a telephone shows too.
    pub(crate) const DOCUMENT: Room = Room { width: 480.0, area: 240.0, stretches: true };
}

/// Advance of a character of the smaller text, at most on average; of the fonts that browsers have, Verdana is widest.
const CHARACTER: f64 = 7.0;
/// Radius of a mark, of one of many, and of a ring around others.
const MARK: f64 = 3.2;
const SMALL: f64 = 2.0;
const RING: f64 = 6.5;
/// The numbers between which an axis may end.
const SMALLEST: f64 = 1e-150;
const LARGEST: f64 = 1e150;
/// Series that have colours and marks of their own.
const STYLES: usize = 6;

/// The style sheet of figures: part of the page, and of each figure that is a file of its own.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// How numbers become places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    Log,
}

/// An axis.
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) scale: Scale,
    /// How a number is shown.
    pub(crate) shown: fn(f64) -> String,
    /// Whether only whole numbers make sense.
    pub(crate) whole: bool,
}

/// A value with its quartiles, and what is said of it.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Quartiles of y, if they are known.
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) tooltip: String,
}

/// Points of one kind.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    pub(crate) look: Look,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Marks joined by a line.
    Joined,
    Marks,
    /// A line without marks.
    Curve,
    Dashed,
    /// Large open marks, around others.
    Rings,
}

/// Curves and points over an axis.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Vertical lines: place and name.
    pub(crate) rules: Vec<(f64, String)>,
}

/// The number of a series, a value of it, and its quartiles if they are known.
pub(crate) type BarValue = (usize, f64, Option<(f64, f64)>);

/// A row of a chart of bars or dots.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) values: Vec<BarValue>,
    /// At the right.
    pub(crate) text: String,
    pub(crate) tooltip: String,
}

/// Named rows.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) x: Axis,
    /// Names of series; without, there is one.
    pub(crate) series: Vec<String>,
    pub(crate) rows: Vec<Bar>,
    /// Dots instead of bars.
    pub(crate) dots: bool,
    /// A line to compare with.
    pub(crate) rule: Option<f64>,
    /// The text below each value, if there is one.
    pub(crate) values: Option<fn(f64) -> String>,
}

/// The content of a figure.
pub(crate) enum Drawing {
    Plot(Plot),
    Bars(Bars),
}

impl Plot {
    pub(crate) fn new(title: String, x: Axis, y: Axis, series: Vec<Series>) -> Plot {
        Plot { title, x, y, series, rules: Vec::new() }
    }
}

impl Bars {
    /// Bars of one series.
    pub(crate) fn new(title: String, x: Axis, rows: Vec<Bar>) -> Bars {
        Bars { title, x, series: Vec::new(), rows, dots: false, rule: None, values: None }
    }
}

impl From<Plot> for Drawing {
    fn from(plot: Plot) -> Drawing {
        Drawing::Plot(plot)
    }
}

impl From<Bars> for Drawing {
    fn from(bars: Bars) -> Drawing {
        Drawing::Bars(bars)
    }
}

impl Drawing {
    pub(crate) fn svg(&self, room: Room) -> Markup {
        match self {
            Drawing::Plot(plot) => plot.svg(room),
            Drawing::Bars(bars) => bars.svg(room),
        }
    }
}

/// An axis with its ends and ticks found.
struct Fitted<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl<'a> Fitted<'a> {
    /// Around all values; `least` and `most` ticks are asked for.
    fn new(axis: &'a Axis, values: impl Iterator<Item = f64>, most: usize) -> Fitted<'a> {
        let whole = |tick: &f64| !axis.whole || tick.fract().abs() < 1e-9;
        let values = values.filter(|v| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        // At the ends of what numbers can hold, steps and ratios would be 0 or infinite, and ticks endless.
        let (low, high) = (low.min(LARGEST), high.min(LARGEST));
        match axis.scale {
            Scale::Linear => {
                let high = if high > 0.0 { high.max(SMALLEST) } else { 1.0 };
                let raw = high / most as f64;
                let unit = 10f64.powf(raw.log10().floor());
                let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|f| f * unit).into_iter().find(|s| *s >= raw).unwrap_or(raw);
                let steps = (high / step - 1e-9).ceil().max(1.0);
                let ticks = (0..=steps as usize).map(|i| i as f64 * step).filter(whole).collect();
                Fitted { axis, low: 0.0, high: steps * step, ticks }
            }
            Scale::Log => {
                // A little room, so that no mark lies on an axis.
                let (low, high) = (low.max(SMALLEST) / 1.12, high.max(SMALLEST) * 1.12);
                let decades = (high / low).log10();
                let factors: &[f64] = match decades {
                    d if d < 0.5 => &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
                    d if d < 0.9 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
                    d if d < 2.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let first = low.log10().floor() as i32;
                let mut ticks: Vec<f64> = (first..=high.log10().ceil() as i32)
                    .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)))
                    .filter(|tick| (low..=high).contains(tick) && whole(tick))
                    .collect();
                let every = ticks.len().div_ceil(most.max(1)).max(1);
                ticks = ticks.into_iter().step_by(every).collect();
                Fitted { axis, low, high, ticks }
            }
        }
    }

    /// The labels of an axis from left to right, and their places; the first one begins behind `left`. No two labels touch, and none leaves
    /// the picture.
    fn labels(&self, place: impl Fn(f64) -> f64, left: f64, room: Room) -> Vec<(f64, String)> {
        let mut last = left;
        let label = |tick: &f64| {
            let label = (self.axis.shown)(*tick);
            let (at, half) = (place(*tick), width(&label) / 2.0);
            (at - half > last && at + half <= room.width).then(|| {
                last = at + half + 4.0;
                (at, label)
            })
        };
        self.ticks.iter().filter_map(label).collect()
    }

    /// 0 at the low end, 1 at the high one.
    fn at(&self, value: f64) -> f64 {
        match self.axis.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
        }
        .clamp(0.0, 1.0)
    }
}

/// Characters wide.
fn width(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
}

/// One decimal is a tenth of a pixel.
fn p(value: f64) -> String {
    format!("{value:.1}")
}

/// The shapes of marks, by the style of their series; the radius is 1.
const SHAPES: [&str; STYLES] = [
    DISC,
    "M-1-1h2v2h-2z",
    "M0-1.3l1.3 2.2h-2.6z",
    "M0-1.3l1.3 1.3-1.3 1.3-1.3-1.3z",
    "M0 1.3l1.3-2.2h-2.6z",
    "M-1-.45h2v.9h-2z",
];
const DISC: &str = "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z";

/// The mark of a series.
fn mark(style: usize, x: f64, y: f64, tooltip: &str, r: f64) -> Markup {
    let (ring, shape) = if r >= RING { (" ring", DISC) } else { ("", SHAPES[style % STYLES]) };
    let (class, place) =
        (format!("mark s{}{ring}", style % STYLES), format!("translate({} {}) scale({r})", p(x), p(y)));
    html! { path class=(class) d=(shape) transform=(place) data-text=(tooltip) { title { (tooltip) } } }
}

fn radius(series: &Series) -> f64 {
    match series.look {
        Look::Rings => RING,
        _ if series.points.len() > 40 => SMALL,
        _ => MARK,
    }
}

/// Names of series in rows from `top` on; their height.
fn legend(names: &[(usize, &str, Look)], top: f64, room: Room) -> (Markup, f64) {
    let (mut x, mut y) = (8.0, top);
    let mut items = Vec::new();
    for (style, name, look) in names {
        let taken = 22.0 + width(name);
        if x > 8.0 && x + taken > room.width - 4.0 {
            (x, y) = (8.0, y + 16.0);
        }
        items.push(html! {
            @match look {
                Look::Curve | Look::Dashed => {
                    path class={ "line s" (style % STYLES) @if *look == Look::Dashed { " dashed" } } d={ "M" (p(x - 2.0)) " " (p(y - 3.5)) "h14" } {}
                }
                _ => (mark(*style, x + 5.0, y - 3.5, name, if *look == Look::Rings { RING } else { MARK }))
            }
            text x=(p(x + 15.0)) y=(p(y)) { (name) }
        });
        x += taken + 4.0;
    }
    (html! { g class="legend" { @for item in items { (item) } } }, if names.is_empty() { 0.0 } else { y - top + 22.0 })
}

/// The picture around its parts.
fn svg(title: &str, room: Room, height: f64, inner: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (room.width) " " (p(height)) } width=[(!room.stretches).then_some(room.width)] height=[(!room.stretches).then(|| p(height))] role="img" aria-label=(title) {
            text class="title" x="8" y="15" { (title) }
            (inner)
        }
    }
}

/// The colours that a line of [`STYLE`] names, and the rule of the background.
fn colours(line: &str) -> (Vec<(String, &str)>, String) {
    let (_, all) = line.rsplit_once('{').unwrap_or_default();
    let (named, others): (Vec<&str>, Vec<&str>) =
        all.trim_end_matches('}').split(';').partition(|word| word.starts_with("--"));
    let colours = named.iter().filter_map(|word| word.split_once(':'));
    let background = others.iter().map(|rule| format!(".plot{{{rule}}}\n"));
    (colours.map(|(name, colour)| (format!("var({name})"), colour)).collect(), background.collect())
}

/// The style sheet of a picture that is a file of its own. Many viewers of pictures know no variables of CSS, so each colour stands where it is used:
/// that of light pages, and for dark pages once more.
fn plain_style() -> String {
    let mut lines = STYLE.lines();
    let [(light, background), (dark, _)] = [(); 2].map(|()| colours(lines.next().unwrap_or_default()));
    let rules = lines.fold(background, |rules, line| rules + line + "\n");
    let with = |colours: &[(String, &str)], rules: &str| {
        colours.iter().fold(rules.to_owned(), |rules, (name, colour)| rules.replace(name, colour))
    };
    let coloured: String = rules.lines().filter(|line| line.contains("var(")).collect();
    format!("{}@media (prefers-color-scheme:dark){{{}}}\n", with(&light, &rules), with(&dark, &coloured))
}

/// A picture as a file of its own.
pub(crate) fn file(drawing: &Drawing, room: Room) -> String {
    let picture = drawing.svg(room).0;
    let (head, rest) = picture.split_once('>').unwrap_or((&picture, ""));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{head} class=\"plot\"><style>{}</style>{rest}\n",
        plain_style()
    )
}

impl Plot {
    fn svg(&self, room: Room) -> Markup {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let ys =
            points().flat_map(|point| [Some(point.y), point.range.map(|r| r.0), point.range.map(|r| r.1)]).flatten();
        let x = Fitted::new(&self.x, points().map(|point| point.x), (room.width / 60.0) as usize);
        let y = Fitted::new(&self.y, ys, 6);
        let names: Vec<_> =
            self.series.iter().enumerate().map(|(i, series)| (i, &series.name[..], series.look)).collect();
        let (legend, legend_height) = legend(if names.len() > 1 { &names } else { &[] }, 34.0, room);
        let labels: Vec<(f64, String)> = y.ticks.iter().map(|tick| (*tick, (self.y.shown)(*tick))).collect();
        let left = 14.0 + labels.iter().map(|(_, label)| width(label)).fold(0.0, f64::max);
        let (right, top) = (room.width - 14.0, 40.0 + legend_height);
        let bottom = top + room.area;
        let (px, py) = (|v: f64| left + x.at(v) * (right - left), |v: f64| bottom - y.at(v) * room.area);
        let x_labels = x.labels(px, f64::NEG_INFINITY, room);
        let inner = html! {
            (legend)
            text class="axis" x="8" y=(p(top - 7.0)) { (self.y.title) }
            @for (tick, label) in &labels {
                path class="grid" d={ "M" (p(left)) " " (p(py(*tick))) "H" (p(right)) } {}
                text class="tick end" x=(p(left - 5.0)) y=(p(py(*tick) + 3.5)) { (label) }
            }
            path class="frame" d={ "M" (p(left)) " " (p(top)) "V" (p(bottom)) "H" (p(right)) } {}
            @for (at, label) in &x_labels {
                path class="frame" d={ "M" (p(*at)) " " (p(bottom)) "v4" } {}
                text class="tick middle" x=(p(*at)) y=(p(bottom + 16.0)) { (label) }
            }
            text class="axis end" x=(p(right)) y=(p(bottom + 33.0)) { (self.x.title) }
            @for (at, _) in &self.rules {
                path class="rule" d={ "M" (p(px(*at))) " " (p(top)) "V" (p(bottom)) } {}
            }
            @for (style, series) in self.series.iter().enumerate() {
                @if series.look != Look::Marks && series.look != Look::Rings && series.points.len() > 1 {
                    path class={ "line s" (style % STYLES) @if series.look == Look::Dashed { " dashed" } }
                        d=(series.points.iter().enumerate().map(|(i, at)| format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, p(px(at.x)), p(py(at.y)))).collect::<String>()) {}
                }
            }
            @for (style, series) in self.series.iter().enumerate() {
                @if matches!(series.look, Look::Joined | Look::Marks | Look::Rings) {
                    g {
                        @for point in &series.points {
                            @if let Some((low, high)) = point.range {
                                path class={ "range s" (style % STYLES) } d={ "M" (p(px(point.x))) " " (p(py(low))) "V" (p(py(high))) } {}
                            }
                            (mark(style, px(point.x), py(point.y), &point.tooltip, radius(series)))
                        }
                    }
                }
            }
            @for (i, (at, name)) in self.rules.iter().enumerate() {
                @let (at, flips) = (px(*at), px(*at) + 6.0 + width(name) > right);
                text class={ "note" @if flips { " end" } } x=(p(if flips { at - 4.0 } else { at + 4.0 })) y=(p(top + 10.0 + 13.0 * i as f64)) { (name) }
            }
        };
        svg(&self.title, room, bottom + 40.0, &inner)
    }
}

impl Bars {
    fn svg(&self, room: Room) -> Markup {
        let longest = |of: fn(&Bar) -> &str| self.rows.iter().map(|row| width(of(row))).fold(0.0, f64::max);
        let above = longest(|row| &row.label) > room.width * 0.24;
        let names: Vec<_> = self.series.iter().enumerate().map(|(i, name)| (i, &name[..], Look::Marks)).collect();
        let (legend, legend_height) = legend(&names, 34.0, room);
        let top = 28.0 + legend_height;
        let step = if above || self.values.is_some() { 33.0 } else { 21.0 };
        let left = if above { 10.0 } else { 14.0 + longest(|row| &row.label) };
        let values = self.rows.iter().flat_map(|row| &row.values);
        let half = |shown: fn(f64) -> String| values.clone().map(move |(_, value, _)| width(&shown(*value)) / 2.0);
        let below = self.values.map_or(0.0, |shown| half(shown).fold(0.0, f64::max));
        let right = room.width - 20.0 - longest(|row| &row.text).max(below);
        let bottom = top + step * self.rows.len() as f64 + if below > 0.0 { 10.0 } else { 4.0 };
        let values =
            values.flat_map(|(_, value, range)| [Some(*value), range.map(|r| r.0), range.map(|r| r.1)]).flatten();
        let mut x = Fitted::new(&self.x, values.chain(self.rule), (room.width / 72.0) as usize);
        if self.x.scale == Scale::Log && (!self.dots || self.values.is_some()) {
            // A bar needs a length, and the text below a mark needs room.
            x.low /= 3.0;
        }
        let px = |v: f64| left + x.at(v) * (right - left);
        let ticks = x.labels(px, 0.0, room);
        let inner = html! {
            (legend)
            @for (at, label) in &ticks {
                path class="grid" d={ "M" (p(*at)) " " (p(top)) "V" (p(bottom)) } {}
                text class="tick middle" x=(p(*at)) y=(p(bottom + 14.0)) { (label) }
            }
            @if let Some(rule) = self.rule {
                path class="rule" d={ "M" (p(px(rule))) " " (p(top)) "V" (p(bottom)) } {}
            }
            path class="frame" d={ "M" (p(left)) " " (p(top)) "V" (p(bottom)) } {}
            @for (i, row) in self.rows.iter().enumerate() {
                @let y = top + step * (i as f64 + 1.0) - 8.0;
                @if above {
                    text class="tick" x=(p(left + 2.0)) y=(p(y - 10.0)) { (row.label) }
                } @else {
                    text class="tick end" x=(p(left - 6.0)) y=(p(y + 2.0)) { (row.label) }
                }
                @for (style, value, range) in &row.values {
                    @if self.dots {
                        @if let Some((low, high)) = range {
                            path class={ "range s" (style % STYLES) } d={ "M" (p(px(*low))) " " (p(y - 1.5)) "H" (p(px(*high))) } {}
                        }
                        (mark(*style, px(*value), y - 1.5, &row.tooltip, MARK))
                    } @else {
                        rect class={ "bar mark s" (style % STYLES) } x=(p(left)) y=(p(y - 7.0)) width=(p((px(*value) - left).max(1.0))) height="11" data-text=(row.tooltip) { title { (row.tooltip) } }
                    }
                }
                @if let Some(shown) = self.values {
                    @for (_, value, _) in &row.values {
                        text class="middle value" x=(p(px(*value))) y=(p(y + 14.0)) { (shown(*value)) }
                    }
                }
                text class="tick end value" x=(p(room.width - 8.0)) y=(p(y + 2.0)) { (row.text) }
            }
            text class="axis end" x=(p(right)) y=(p(bottom + 30.0)) { (self.x.title) }
        };
        svg(&self.title, room, bottom + 37.0, &inner)
    }
}

/// Text that is markup already: a style sheet, a script.
pub(crate) fn verbatim(text: &str) -> PreEscaped<&str> {
    PreEscaped(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::counted;

    /// Viewers that know neither variables nor dark pages still show the colours.
    #[test]
    fn a_picture_of_its_own_has_plain_colours() {
        let style = plain_style();
        let (light, dark) = style.split_once("@media (prefers-color-scheme:dark){").unwrap();
        assert!(!style.contains("var(") && !style.contains("--"), "{style}");
        for (page, colours) in
            [(light, ["background:#fff", "fill:#0b62a8"]), (dark, ["background:#14181d", "fill:#6db3f2"])]
        {
            assert!(colours.iter().all(|colour| page.contains(colour)), "{page}");
        }
        assert_eq!(style.matches('{').count(), style.matches('}').count());
        assert!(light.contains("svg .middle{text-anchor:middle}") && !dark.contains("text-anchor"));
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let axis = |scale| Axis { title: String::new(), scale, shown: counted, whole: false };
        let linear = axis(Scale::Linear);
        for high in [0.0007, 1.0, 3.7, 99.0, 101.0, 123_456.0] {
            let fitted = Fitted::new(&linear, [0.0, high].into_iter(), 5);
            assert!(fitted.high >= high && fitted.ticks.len() <= 7, "{high}: {:?}", fitted.ticks);
            assert!((fitted.at(high) - high / fitted.high).abs() < 1e-12);
        }
        let log = axis(Scale::Log);
        for (low, high) in [(1.0, 1.0), (1e-6, 3.0), (0.98, 1.03), (1.0, 65536.0)] {
            let fitted = Fitted::new(&log, [low, high].into_iter(), 6);
            assert!(!fitted.ticks.is_empty() && fitted.ticks.len() <= 6, "{low} to {high}: {:?}", fitted.ticks);
            assert!(fitted.at(low) > 0.0 && fitted.at(high) < 1.0);
        }
        // Nothing to show is no reason to fail.
        Fitted::new(&log, [0.0, f64::NAN].into_iter(), 6);
    }

    /// Where marks stand, or bars end, by the tooltips of their rows.
    fn places(picture: &str, tooltip: &str) -> Vec<f64> {
        let number = |text: &str| text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
        let attribute = format!("data-text=\"{tooltip}\"");
        let elements = picture.split('<').filter(|element| element.contains(&attribute));
        let place = |element: &str| {
            let (mark, bar) = (element.split_once("translate("), element.split_once(" width=\""));
            number(mark.or(bar).expect("a mark or a bar").1).parse().expect("a number")
        };
        elements.map(place).collect()
    }

    fn row(label: &str, values: &[(usize, f64)]) -> Bar {
        let values = values.iter().map(|(style, value)| (*style, *value, None)).collect();
        Bar { label: label.into(), values, text: String::new(), tooltip: label.into() }
    }

    #[test]
    fn a_mark_stands_where_its_rate_is() {
        let x = Axis { title: "jobs a second".into(), scale: Scale::Log, shown: counted, whole: false };
        let rows = vec![row("sign", &[(0, 10.0)]), row("verify", &[(0, 1e3), (1, 1e5)])];
        let series = vec!["one".into(), "two".into()];
        let bars = Bars { series, dots: true, values: Some(counted), ..Bars::new("rates".into(), x, rows) };
        let picture = file(&bars.into(), Room::DOCUMENT);
        let (sign, verify) = (places(&picture, "sign"), places(&picture, "verify"));
        let hundredfold = [verify[0] - sign[0], verify[1] - verify[0]];
        assert!(hundredfold[0] > 50.0 && (hundredfold[0] - hundredfold[1]).abs() < 0.3, "{hundredfold:?}");
        assert!(
            ["rates", "jobs a second", "one", "two", "10", "1000", "100k"]
                .iter()
                .all(|it| picture.contains(&format!(">{it}<")))
        );
        assert!(!picture.contains(" height="), "it is as wide as there is room");
    }

    #[test]
    fn a_bar_is_as_long_as_its_number() {
        let x = Axis { title: String::new(), scale: Scale::Linear, shown: counted, whole: true };
        let rows = vec![row("sign", &[(0, 4.0)]), row("verify", &[(0, 2.04)])];
        let picture = file(&Bars { rule: Some(1.0), ..Bars::new("times".into(), x, rows) }.into(), Room::HALF);
        let (sign, verify) = (places(&picture, "sign")[0], places(&picture, "verify")[0]);
        assert!((verify / sign - 2.04 / 4.0).abs() < 0.001, "{sign} {verify}");
        assert_eq!(picture.matches("class=\"grid\"").count(), 5);
    }
}
