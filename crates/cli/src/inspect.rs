//! `hypergrove inspect`.

use crate::args::{self, Inspect, KeyKind};
use crate::files::Source;
use crate::keys::KeyFile;
use crate::layout::{EnvelopeFields, Layout, Value, signature};
use crate::schemes::{InTool, of_scheme};
use crate::x509;
use hypergrove_files::envelope::{self, Envelope};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::{Printer, Table, Visible, grouped};

/// Bytes of a value that a table shows.
const SHOWN: usize = 32;

pub(crate) fn run(args: &Inspect, printer: &Printer) -> Result<Exit, Failure> {
    args::one_stdin([Some(args.file.as_path()), args.passphrase.path().as_deref()].into_iter().flatten())?;
    let source = Source::from(args.file.as_path());
    let file = KeyFile::read_as("a file for `inspect`", source.clone(), Some(&args.passphrase))?;
    // A raw private key needs --set, and is not searched for anything else.
    if args.of.set.is_none()
        && let Some(exit) = x509::inspect(args, &source, &file.bytes, printer)?
    {
        return Ok(exit);
    }
    let report = report(&file, &args.of, args.show_secrets)?;
    if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| Failure::new(error.to_string()))?;
        printer.line(json)?;
        return Ok(Exit::Good);
    }
    printer.line(format_args!("file    {source}"))?;
    // A public key next to an encrypted one need not be its own.
    let is_open = report.encryption.is_none() || !report.parts.is_empty();
    let sets = report.sets.join(" or ");
    match (is_open, &sets[..]) {
        (true, sets) => printer.line(format_args!("kind    {} of {sets}", report.kind))?,
        (false, "") => printer.line(format_args!("kind    {}; its passphrase reveals its set", report.kind))?,
        (false, sets) => {
            printer.line(format_args!("kind    {}, of {sets} by the public key next to it", report.kind))?
        }
    }
    printer.line(format_args!("format  {}, {} bytes", report.format, grouped(report.bytes as u64)))?;
    if let Some(fingerprint) = &report.fingerprint {
        printer.line(format_args!("key     {fingerprint}"))?;
    }
    if let Some(hash) = &report.prehash {
        printer.line(format_args!("mode    HashSLH-DSA with {hash}, no other"))?;
    }
    if let Some(EnvelopeFields { mode, context, context_text, comment, signed_context }) = &report.envelope {
        printer.line(format_args!("mode    {mode}"))?;
        match context_text {
            Some(text) => printer.line(format_args!("context '{}'", Visible(text)))?,
            None if context.is_empty() => printer.line("context empty")?,
            None => printer.line(format_args!("context {context} in hexadecimal"))?,
        }
        printer.line(format_args!("signed  {signed_context}, a context over all that the envelope says"))?;
        if let Some(comment) = comment {
            printer.line(format_args!("comment {}", Visible(comment)))?;
        }
    }
    if let Some(encryption) = &report.encryption {
        let rest =
            if is_open { "what follows is decrypted" } else { "--passphrase-file or --show-secrets decrypts the rest" };
        printer.line(format_args!("cipher  PBES2: {encryption}; {rest}"))?;
    }
    if !is_open {
        return Ok(Exit::Good);
    }
    printer.line("")?;
    let mut table = Table::new("rrll", ["offset", "bytes", "part", "value"]);
    for part in &report.parts {
        let value = match &part.value {
            Value::Whole {} => String::new(),
            Value::Means(meaning) => meaning.clone(),
            Value::Hex(digits) if digits.len() > 2 * SHOWN => format!("{}…", &digits[..2 * SHOWN]),
            Value::Hex(digits) => digits.clone(),
            Value::Hidden { .. } => "hidden; --show-secrets shows it".into(),
        };
        table.row([part.offset.to_string(), part.length.to_string(), part.name.clone(), value]);
    }
    printer.line(table)?;
    Ok(Exit::Good)
}

/// Reports the kind of a file, its properties and its parts.
pub(crate) fn report(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Layout, Failure> {
    if envelope::looks_like_it(&file.bytes) {
        return of_envelope(file, of);
    }
    of_scheme!(file.scheme(of)?, S => S::inspect(file, of, show_secrets))
}

/// A signature with what its envelope says; the parts are those of the bare signature.
fn of_envelope(file: &KeyFile<'_>, of: &KeyKind) -> Result<Layout, Failure> {
    let envelope = Envelope::parse(&file.bytes).map_err(|error| {
        Failure::new(error.to_string())
            .of(&file.source)
            .hint("copy the envelope again; docs/envelope.md has its format")
    })?;
    let header = envelope.header();
    if let Some(p) = of.set.filter(|p| *p != header.params()) {
        return Err(Failure::new(format!("{} is an envelope of {}, --set says {p}", file.source, header.params()))
            .hint("leave --set out"));
    }
    let mode = header.prehash().map_or("pure".into(), |hash| format!("pre-hash {hash}"));
    let said = EnvelopeFields {
        mode,
        context: hex::encode(header.context()),
        context_text: header.context_text().map(str::to_owned),
        comment: header.comment().map(str::to_owned),
        signed_context: hex::encode(header.signed_context()),
    };
    Ok(Layout {
        envelope: Some(said),
        fingerprint: Some(header.key().to_string()),
        format: "envelope",
        ..signature(envelope.signature(), &[header.params()])
    })
}
