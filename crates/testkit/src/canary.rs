//! Private keys in the forms in which people paste them in wrong places, and the search for their secret bytes in all that comes out.
//!
//! The tests of the tool, of the C library, of the OpenSSL provider and of the signing service use this file. Those of the Python package read
//! the same list, `vectors/canary/forms.json`.

use std::collections::HashMap;

/// Characters of a secret that nothing may show in a row.
const WINDOW: usize = 8;

/// A key in all forms.
pub struct Canaries {
    /// The name and the bytes of each form.
    pub forms: Vec<(String, Vec<u8>)>,
    /// Texts that nothing may show, and the names of their spellings.
    windows: HashMap<Vec<u8>, String>,
}

impl Canaries {
    /// Reads the list.
    pub fn read() -> Canaries {
        let list = include_str!("../../../vectors/canary/forms.json");
        let list: serde_json::Value = serde_json::from_str(list).expect("the list is JSON");
        let of = |part: &str| -> Vec<(String, Vec<u8>)> {
            let entries = list[part].as_object().expect("the list has this part");
            let bytes = |value: &serde_json::Value| hex::decode(value.as_str().expect("a text")).expect("hexadecimal");
            entries.iter().map(|(name, value)| (name.clone(), bytes(value))).collect()
        };
        let spelled = of("secrets");
        let windows = spelled.iter().flat_map(|(name, letters)| {
            let all = letters.windows(WINDOW);
            all.map(move |window| (window.to_vec(), name.clone()))
        });
        Canaries { forms: of("forms"), windows: windows.collect() }
    }

    /// The forms that are texts, which arguments, variables and fields can hold.
    pub fn texts(&self) -> Vec<(&str, &str)> {
        self.forms.iter().filter_map(|(name, bytes)| Some((&**name, str::from_utf8(bytes).ok()?))).collect()
    }

    /// Panics if eight characters of the secret are in the output of `what`.
    pub fn check(&self, what: &str, output: &[u8]) {
        if let Some(found) = output.windows(WINDOW).find_map(|window| self.windows.get(window)) {
            panic!("{what}: the secret in {found} is in the output:\n{}", String::from_utf8_lossy(output));
        }
    }
}
