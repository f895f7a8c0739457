//! Numbers as people read them.

/// 1234567 → `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three significant digits of a time.
pub fn seconds(s: f64) -> String {
    let (value, unit) = unit_of_time(s);
    format!("{} {unit}", significant(value))
}

/// A time in the largest unit of which it has at least one.
fn unit_of_time(s: f64) -> (f64, &'static str) {
    match s {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    }
}

/// A share of 1, to a tenth of a percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Three significant digits, all digits before the point.
pub fn significant(value: f64) -> String {
    match value {
        v if v >= 100.0 => grouped(v.round() as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Three digits of a rate, zeros after them, in millions and billions where those suit.
pub(crate) fn per_second(x: f64) -> String {
    let (x, unit) = match x {
        x if x >= 0.9995e9 => (x / 1e9, " billion"),
        x if x >= 0.9995e6 => (x / 1e6, " million"),
        x => (x, ""),
    };
    let rounded = format!("{x:.2e}");
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match rounded.parse::<f64>() {
        Ok(rounded) if exponent > 2 => grouped(rounded as u64) + unit,
        _ => format!("{x:.*}{unit}", (2 - exponent).clamp(0, 4) as usize),
    }
}

/// 12,000 → `12k`.
pub(crate) fn counted(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    brief(value) + unit
}

/// 0.0012 → `1.2 ms`.
#[cfg(feature = "report")]
pub(crate) fn timed(value: f64) -> String {
    match unit_of_time(value) {
        (0.0, _) => "0".into(),
        (value, unit) => format!("{} {unit}", brief(value)),
    }
}

/// 0.5 → `50 %`.
#[cfg(feature = "report")]
pub(crate) fn share(value: f64) -> String {
    format!("{} %", brief(100.0 * value))
}

/// 1.5 → `1.5×`.
#[cfg(feature = "report")]
pub(crate) fn ratio(value: f64) -> String {
    format!("{}×", brief(value))
}

/// No digits that say nothing.
fn brief(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "" | "-0" => "0".into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(17_088), "17,088");
        assert_eq!(grouped(1_000_000), "1,000,000");
        assert_eq!(seconds(0.000_027_3), "27.3 µs");
        assert_eq!(seconds(0.0483), "48.3 ms");
        assert_eq!(seconds(2.0), "2.00 s");
        assert_eq!(significant(1234.5), "1,235");
    }

    #[test]
    fn three_digits() {
        let rates = [0.0123, 1.0, 12.34, 999.6, 1234.5, 131_072.0, 999_400.0, 999_600.0, 2.035e6, 1.63e10];
        let texts = [
            "0.0123",
            "1.00",
            "12.3",
            "1,000",
            "1,230",
            "131,000",
            "999,000",
            "1.00 million",
            "2.04 million",
            "16.3 billion",
        ];
        assert_eq!(rates.map(per_second), texts);
        assert_eq!([7, 4096, 1_048_576].map(grouped), ["7", "4,096", "1,048,576"]);
    }

    #[cfg(feature = "report")]
    #[test]
    fn numbers_are_short() {
        assert_eq!([counted(0.0), counted(950.0), counted(65536.0), counted(2.5e6)], ["0", "950", "65.536k", "2.5M"]);
        assert_eq!([timed(0.0), timed(2e-6), timed(0.0125), timed(3.0)], ["0", "2 µs", "12.5 ms", "3 s"]);
        assert_eq!([share(0.97), ratio(1.5)], ["97 %", "1.5×"]);
    }
}
