//! `hypergrove pubkey`.

use crate::args::{self, Encoding, KeyKind, MachineOptions, Pubkey};
use crate::files::{Access, Replace, Source, Sources, Target};
use crate::keys::{Key, KeyFile};
use crate::schemes::{InTool, of_scheme};
use hypergrove::schemes::SchemeKey;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::printer::Printer;

pub(crate) fn run(args: &Pubkey, read: &Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    args::one_stdin([Some(args.key.as_path()), args.passphrase.path().as_deref()].into_iter().flatten())?;
    let (source, target) = (Source::from(args.key.as_path()), Target::from(args.output.as_path()));
    let (encoding, replace) = (args.encoding.encoding(), Replace { force: args.overwrite.force, read });
    // That the key itself is there needs no comparison.
    target.spare(read)?;
    let checked = target.check(Access::Public, encoding != Encoding::Pem, replace);
    checked.map_err(|failure| compared(failure, &source, &target, &args.of))?;
    let file = KeyFile::read(source, Some(&args.passphrase))?;
    let (name, bytes) = of_scheme!(file.scheme(&args.of)?, S => public::<S>(args, &file, machine, printer))?;
    target.write(&bytes, Access::Public, replace, printer)?;
    if let Target::File(_) = &target {
        printer.note(format_args!("wrote {target}: a public key of {name}"));
    }
    Ok(Exit::Good)
}

/// The name of the set, and the bytes that are written.
fn public<S: InTool>(
    args: &Pubkey,
    file: &KeyFile<'_>,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<(&'static str, Vec<u8>), Failure> {
    S::refuse(&[(args.line, "--line")])?;
    let key = S::read(file, args.of.set)?.key;
    if let Key::Private(key) = &key {
        S::check(key, &file.source, machine, printer)?;
    }
    let public = key.public();
    let bytes = match S::as_slh_dsa(&public) {
        Some(public) if args.line => format!("{}\n", public.to_base64()?).into_bytes(),
        _ => S::encode_public(&public, args.encoding.encoding())?,
    };
    Ok((public.scheme().name(), bytes))
}

/// A refusal because a key is there, which also says whether both are halves of one pair.
fn compared(failure: Failure, source: &Source, target: &Target, of: &KeyKind) -> Failure {
    let public = |source: Source| -> Result<Vec<u8>, Failure> {
        let file = KeyFile::read(source, None)?;
        of_scheme!(file.scheme(of)?, S => S::encode_public(&file.public::<S>(of.set)?, Encoding::Raw))
    };
    let there = match target {
        Target::File(path) => public(Source::File(path.clone())),
        Target::Stdout => return failure,
    };
    let relation = match (there, public(source.clone())) {
        (Ok(there), Ok(wanted)) if there == wanted => "and is of this pair",
        (Ok(_), Ok(_)) => "and is a key of another pair",
        _ => return failure,
    };
    Failure { message: format!("{}, {relation}", failure.message), ..failure }
}
