//! The output of `--json` for programs: an object a line, as docs/json.schema.json describes them.

use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::Printer;
use serde::Serialize;

/// A line of the output of `keygen`, `sign`, `verify`, `hash --check` or `ledger show` with `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum Line {
    /// A key pair that was made.
    Key(KeyLine),
    /// A table of key pairs that were made.
    Table(TableLine),
    /// The verdict on a file.
    File(FileLine),
    /// A ledger.
    Ledger(LedgerLine),
    /// The last line.
    Summary(SummaryLine),
}

/// The ledger of a key of a limited set, as `ledger show` reports it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LedgerLine {
    /// Its file.
    pub(crate) ledger: String,
    /// The fingerprint of the key.
    pub(crate) key: String,
    /// The parameter set of the key.
    pub(crate) set: &'static str,
    /// Changes of the ledger so far.
    pub(crate) generation: u64,
    /// Its first number.
    pub(crate) start: u64,
    /// The number of the next signature.
    pub(crate) next: u64,
    /// The number after the last.
    pub(crate) end: u64,
    /// Signatures that numbers were reserved for.
    pub(crate) used: u64,
    /// Signatures that are left.
    pub(crate) left: u64,
}

/// A key pair that `keygen` made.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyLine {
    /// The file of the private key.
    pub(crate) private_key: String,
    /// The file of the public key, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_key: Option<String>,
    /// The parameter set, or the scheme if it has only one.
    pub(crate) set: &'static str,
    /// The public key's fingerprint.
    pub(crate) key: String,
    /// Whether the private key is under a passphrase.
    pub(crate) encrypted: bool,
}

/// A table of key pairs that `keygen --count` made.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TableLine {
    /// The file of the table, which has the private keys.
    pub(crate) table: String,
    /// The file of the table of the public keys, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_table: Option<String>,
    /// The parameter set.
    pub(crate) set: &'static str,
    /// How many key pairs it has.
    pub(crate) keys: u64,
}

/// The verdict on a file.
#[derive(Serialize, Default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FileLine {
    /// Its path as it was given; bytes that are not UTF-8 are replaced by U+FFFD. `-` is standard input.
    pub(crate) file: String,
    /// The verdict.
    pub(crate) verdict: Word,
    /// The file of its signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
    /// The parameter set of the key that signed, or the scheme if it has only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<&'static str>,
    /// The fingerprint of the key that signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The name of that key in the list of signers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signer: Option<String>,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The comment of the signature's envelope, which is signed as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    /// The fault of the envelope of a signature that fails; with `--diagnose`, the mix-ups under which the signature is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diagnosis: Option<String>,
    /// With `--diagnose`: a command of a shell that would succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
}

/// The verdict on a file, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    /// The signature, or the sum, is right.
    Ok,
    /// It was signed.
    Signed,
    /// Its signature was there before, and is right.
    Kept,
    /// The signature, or the sum, is wrong.
    Failed,
    /// The file is there, and the manifest does not list it.
    Extra,
    /// There is no verdict: the file or its signature could not be read or written.
    #[default]
    Error,
}

/// The last line: how many files had which verdict, how many key pairs were made, and the exit code.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SummaryLine {
    pub(crate) summary: Counts,
    /// The exit code.
    pub(crate) exit: u8,
}

/// Files by their verdicts, and key pairs.
#[derive(Clone, Copy, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counts {
    pub(crate) ok: u64,
    pub(crate) signed: u64,
    pub(crate) kept: u64,
    pub(crate) failed: u64,
    pub(crate) extra: u64,
    pub(crate) error: u64,
    /// Lines of a list of sums that are no sums.
    pub(crate) improper: u64,
    /// Key pairs that were made.
    pub(crate) made: u64,
}

impl Counts {
    /// One more.
    pub(crate) fn add(&mut self, word: Word) {
        *match word {
            Word::Ok => &mut self.ok,
            Word::Signed => &mut self.signed,
            Word::Kept => &mut self.kept,
            Word::Failed => &mut self.failed,
            Word::Extra => &mut self.extra,
            Word::Error => &mut self.error,
        } += 1;
    }
}

impl FileLine {
    pub(crate) fn new(file: String, verdict: Word) -> FileLine {
        FileLine { file, verdict, ..FileLine::default() }
    }

    /// With the reason why there is no verdict.
    pub(crate) fn because(self, failure: &Failure) -> FileLine {
        FileLine { error: Some(failure.message.clone()), hint: failure.hint.clone(), ..self }
    }
}

impl Line {
    /// The last line of a command that ends with this code.
    pub(crate) fn summary(summary: Counts, exit: Exit) -> Line {
        Line::Summary(SummaryLine { summary, exit: exit as u8 })
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("a line has a form in JSON")
    }

    pub(crate) fn print(&self, printer: &Printer) -> Result<(), Failure> {
        printer.line(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page describes these types.
    #[test]
    fn the_schema_is_that_of_the_lines() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Line)).unwrap() + "\n";
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.schema.json");
        let written = std::fs::read_to_string(page).unwrap_or_default();
        assert!(written == schema, "docs/json.schema.json should be:\n{schema}");
    }
}
