//! Forms of PEM, which all readers of keys take or refuse alike: `vectors/pem/forms.tsv`.

const TABLE: &str = include_str!("../../../vectors/pem/forms.tsv");

/// A PEM file.
pub struct Form {
    /// The name of the form.
    pub name: &'static str,
    /// `None` if the file is read, else a part of the error.
    pub refused: Option<&'static str>,
    /// The bytes.
    pub file: Vec<u8>,
}

/// All forms of a PEM file with one block. `other` is the PEM of the pair's other key.
pub fn forms(pem: &str, other: &str) -> Vec<Form> {
    let form = |row: &'static str| {
        let [name, refused, template] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("three cells: {row}") };
        let file = encoded(name, &filled(template, pem, other));
        Form { name, refused: Some(refused).filter(|refused| *refused != "read"), file }
    };
    TABLE.lines().filter(|row| !row.starts_with('#')).map(form).collect()
}

fn filled(template: &str, pem: &str, other: &str) -> String {
    let lines: Vec<&str> = pem.trim_end().lines().collect();
    let [begin, body @ .., end] = &lines[..] else { panic!("PEM") };
    let mut file = String::new();
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' && letter != '\\' {
            file.push(letter);
            continue;
        }
        file += &match (letter, letters.next().expect("a letter")) {
            ('\\', 'n') => "\n".into(),
            ('\\', 'r') => "\r".into(),
            ('\\', 't') => "\t".into(),
            ('\\', 'u') => "\u{feff}".into(),
            ('\\', other) => other.to_string(),
            (_, 'B') => (*begin).to_owned(),
            (_, 'E') => (*end).to_owned(),
            (_, 'L') => body.join("\n"),
            (_, '1') => body.concat(),
            (_, 'W') => body.join(" \n"),
            (_, 'S') => body.join(" "),
            (_, 'C') => body.join("\r"),
            (_, 'D') => body.join("\r\n"),
            (_, 'N') => body.join("\\n"),
            (_, 'O') => other.to_owned(),
            (_, letter) => panic!("%{letter}"),
        };
    }
    file
}

fn encoded(name: &str, file: &str) -> Vec<u8> {
    let units = || format!("\u{feff}{file}").encode_utf16().collect::<Vec<_>>();
    match () {
        () if name.ends_with("16LE") => units().into_iter().flat_map(u16::to_le_bytes).collect(),
        () if name.ends_with("16BE") => units().into_iter().flat_map(u16::to_be_bytes).collect(),
        () => file.into(),
    }
}
