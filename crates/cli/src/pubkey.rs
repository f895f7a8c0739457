//! `hypergrove pubkey`.

use crate::args::Pubkey;
use crate::failure::{Exit, Failure};
use crate::files::{Access, Source, Target};
use crate::keys::{self, Encoding, encode_public};
use crate::printer::Printer;

pub(crate) fn run(args: &Pubkey, printer: &Printer) -> Result<Exit, Failure> {
    let (source, target) = (Source::from(args.key.as_path()), Target::from(args.output.as_path()));
    let (encoding, force) = (args.encoding.encoding(), args.overwrite.force);
    target.check(encoding != Encoding::Pem, force)?;
    target.spare(&source)?;
    let key = keys::read(&source, args.set.set)?.public();
    target.write(&encode_public(&key, encoding)?, Access::Public, force, printer)?;
    if let Target::File(_) = &target {
        printer.note(format_args!("wrote {target}: a public key of {}", key.params()));
    }
    Ok(Exit::Good)
}
