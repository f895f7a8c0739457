//! `hypergrove pubkey`.

use crate::args::{self, KeyKind, MachineOptions, Pubkey, Scheme};
use crate::files::{Access, Replace, Source, Sources, Target};
use crate::keys::{Encoding, Key, KeyFile, encode_public};
use crate::zkdilithium;
use hypergrove::zkdilithium::params::NAME;
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
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
    let (name, bytes) = match file.scheme(&args.of)? {
        Scheme::SlhDsa => {
            let key = file.key(args.of.set)?;
            if let Key::Private(key) = &key {
                // A wrong root would be handed on as a public key that verifies nothing.
                machine::engine(machine, printer)?.check(key).map_err(|error| Failure::from(error).of(&file.source))?;
            }
            let public = key.public();
            let bytes = match args.line {
                true => format!("{}\n", public.to_base64()?).into_bytes(),
                false => encode_public(&public, encoding)?,
            };
            (key.params().name, bytes)
        }
        Scheme::ZkDilithium => {
            zkdilithium::check_encoding(encoding)?;
            zkdilithium::refuse(&[(args.line, "--line")])?;
            (NAME, zkdilithium::encode_public(&zkdilithium::key(&file)?.public(), encoding))
        }
    };
    target.write(&bytes, Access::Public, replace, printer)?;
    if let Target::File(_) = &target {
        printer.note(format_args!("wrote {target}: a public key of {name}"));
    }
    Ok(Exit::Good)
}

/// What is refused because a key is there: says whether both are halves of one pair.
fn compared(failure: Failure, source: &Source, target: &Target, of: &KeyKind) -> Failure {
    let public = |source: Source| -> Result<Vec<u8>, Failure> {
        let file = KeyFile::read(source, None)?;
        Ok(match file.scheme(of)? {
            Scheme::SlhDsa => file.key(of.set)?.public().to_bytes(),
            Scheme::ZkDilithium => zkdilithium::key(&file)?.public().as_bytes().to_vec(),
        })
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
