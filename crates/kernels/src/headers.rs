//! Definitions that kernels and Rust both need are written once, in the kernels' files. Rust reads them from there while it
//! compiles: tables of measured times belong to those files, so the files are not generated.

/// The number that follows `before` where `before` begins a line, spaces aside: decimal, or hexadecimal after `0x`.
pub(crate) const fn number_after(text: &str, before: &str) -> u32 {
    let at = line_after(text, 0, before);
    assert!(at < text.len(), "the file lacks it");
    let text = text.as_bytes();
    let is_hexadecimal = text[at] == b'0' && text[at + 1] == b'x';
    let (radix, start) = if is_hexadecimal { (16, at + 2) } else { (10, at) };
    let (mut number, mut at) = (0u32, start);
    while let Some(digit) = (text[at] as char).to_digit(radix) {
        number = number * radix + digit;
        at += 1;
    }
    assert!(at > start, "no number is there");
    number
}

/// Whether the macro `ARGS` of a header lists these fields in this order: `PTR(name)` of 64 bits, `VAL(name)` of 32.
pub(crate) const fn lists_fields(header: &str, fields: &[(&str, usize)]) -> bool {
    let (mut at, mut field) = (line_after(header, 0, "ARGS("), 0);
    loop {
        let (pointer, value) = (line_after(header, at, "PTR("), line_after(header, at, "VAL("));
        at = if pointer < value { pointer } else { value };
        if field == fields.len() || at == header.len() {
            return field == fields.len() && at == header.len();
        }
        let (name, bytes) = fields[field];
        let ends = at + name.len() < header.len() && header.as_bytes()[at + name.len()] == b')';
        if !(begins(header, at, name) && ends && bytes == if pointer < value { 8 } else { 4 }) {
            return false;
        }
        field += 1;
    }
}

/// Where the first line from `from` on that begins with `before`, spaces aside, goes on after it; the text's end if no line does.
const fn line_after(text: &str, from: usize, before: &str) -> usize {
    let (mut at, mut is_first) = (from, true);
    while at < text.len() {
        if is_first && begins(text, at, before) {
            return at + before.len();
        }
        let byte = text.as_bytes()[at];
        is_first = byte == b'\n' || is_first && byte == b' ';
        at += 1;
    }
    text.len()
}

/// Whether `part` stands at `at`.
const fn begins(text: &str, at: usize, part: &str) -> bool {
    let (text, part, mut i) = (text.as_bytes(), part.as_bytes(), 0);
    while i < part.len() && at + i < text.len() && text[at + i] == part[i] {
        i += 1;
    }
    i == part.len()
}

/// Constants that a file of the kernels defines under the same names.
macro_rules! defined {
    ($file:literal: $($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        const FILE: &str = include_str!(concat!("../", $file));
        $($(#[$doc])* pub const $name: $kind =
            $crate::headers::number_after(FILE, concat!("#define ", stringify!($name), " ")) as $kind;)*
    };
}
pub(crate) use defined;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_where_a_line_begins() {
        let text = "// #define A 1\n#define AB 2u\n  #define A 0x1fu  // 3\n#define A 4\nSHARED(tile, 96)\n";
        assert_eq!(number_after(text, "#define A "), 31);
        assert_eq!(number_after(text, "#define AB "), 2);
        assert_eq!(number_after(text, "SHARED(tile, "), 96);
    }

    #[test]
    #[should_panic(expected = "the file lacks it")]
    fn what_is_not_defined_is_refused() {
        number_after("// #define A 1\n", "#define A ");
    }

    #[test]
    fn fields_are_compared_by_name_order_and_size() {
        let header = "ARGS(\n  PTR(keys)  // VAL(no)\n  VAL(total)\n)\n";
        assert!(lists_fields(header, &[("keys", 8), ("total", 4)]));
        for wrong in [
            &[("keys", 8)][..],
            &[("total", 4), ("keys", 8)],
            &[("keys", 8), ("total", 8)],
            &[("key", 8), ("total", 4)],
            &[("keys", 8), ("total", 4), ("one", 4)],
        ] {
            assert!(!lists_fields(header, wrong), "{wrong:?}");
        }
    }
}
