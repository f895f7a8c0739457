//! Manifests: lines that are read and written, and those that are refused. crates/cli/tests/cli/trees.rs compares them with sha256sum's.

use hypergrove_files::manifest::{Manifest, ManifestError, escape, unescape};
use std::path::Path;

fn text(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| format!("{}  {name}\n", "0a".repeat(32)).into_bytes()).collect()
}

#[test]
fn lines_are_read_and_written() {
    let manifest = Manifest::parse(&text(&["b", "./a//c/", " led", "*star"])).unwrap();
    let paths: Vec<_> = manifest.entries().iter().map(|entry| entry.path().to_str().unwrap()).collect();
    assert_eq!(paths, ["b", "a/c", " led", "*star"]);
    assert!(manifest.entries().iter().all(|entry| entry.sum() == &[10; 32]));
    assert_eq!(manifest.to_bytes(), text(&["b", "a/c", " led", "*star"]));
    assert_eq!(Manifest::parse(&manifest.to_bytes()).unwrap(), manifest);
    assert_eq!(Manifest::parse(&text(&["-"])).unwrap().to_bytes(), text(&["./-"]));
    let odd = format!("\\{}  new\\nline\\\\\n{} *binary", "00".repeat(32), "FF".repeat(32));
    let manifest = Manifest::parse(odd.as_bytes()).unwrap();
    assert_eq!(manifest.entries()[0].path(), Path::new("new\nline\\"));
    let written = format!("\\{}  new\\nline\\\\\n{}  binary\n", "00".repeat(32), "ff".repeat(32));
    assert_eq!(manifest.to_bytes(), written.as_bytes());
}

#[test]
fn a_wrong_line_refuses_the_whole() {
    let sum = "0a".repeat(32);
    let wrong = |line: &str, words: &str| {
        let text = [&text(&["good"])[..], line.replace("SUM", &sum).as_bytes()].concat();
        let error = Manifest::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2: ") && error.contains(words) && error.len() < 400, "{line}: {error}");
    };
    for line in ["SUM", "SUM a", "SUM\ta", "zSUM  a", "sum  a", "# a", "\n", "SHA256 (a) = SUM", "SUM"] {
        wrong(line, "no line of sha256sum");
    }
    wrong(&format!("+{}  a", &sum[1..]), "no line of sha256sum");
    for line in ["SUM  ", "SUM *", "SUM  .", "SUM  ./"] {
        wrong(line, "the name is empty");
    }
    wrong("SUM  ../a", "'../a' has '..' in it");
    wrong("SUM  a/../b", "'..'");
    wrong("SUM  /etc/passwd", "'…' (11 characters, not shown) is absolute");
    wrong("SUM  ./good", "'good' is listed twice");
    wrong("SUM  a\0b", "NUL");
    let marked = Manifest::parse(format!("\u{feff}{}  a\n", "0".repeat(64)).as_bytes()).unwrap_err();
    assert_eq!(marked.to_string(), "line 1: it begins with a byte order mark, which sha256sum does not skip");
    wrong("SUM  a\r", "CR LF");
    wrong("\\SUM  a\\t", "no escapes");
    wrong("\\SUM  a\\", "no escapes");
    wrong(&format!("SUM  ../{}", "x".repeat(10_000)), "…");
    for empty in ["", "\n"] {
        assert!(Manifest::parse(empty.as_bytes()).is_err());
    }
    assert!(matches!(Manifest::parse(b""), Err(ManifestError::Empty)));
}

#[test]
fn names_are_escaped_and_back() {
    for name in ["", "plain", "a\\b", "a\nb", "a\rb", "\\", "\n\\n"] {
        let (mark, escaped) = escape(name.as_bytes());
        assert_eq!(mark.is_empty(), escaped == name.as_bytes(), "{name:?}");
        assert!(!escaped.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
        assert_eq!(unescape(&escaped).unwrap(), name.as_bytes());
    }
    assert_eq!(escape(b"a\nb"), (&b"\\"[..], b"a\\nb".to_vec()));
    assert_eq!((unescape(b"a\\t"), unescape(b"a\\")), (None, None));
}
