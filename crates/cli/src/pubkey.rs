//! `hypergrove pubkey`.

use crate::args::{MachineOptions, Pubkey, Scheme};
use crate::failure::{Exit, Failure};
use crate::files::{Access, Source, Sources, Target};
use crate::keys::{Encoding, Key, KeyFile, encode_public};
use crate::printer::Printer;
use crate::{machine, zkdilithium};
use hypergrove::zkdilithium::params::NAME;

pub(crate) fn run(args: &Pubkey, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let (source, target) = (Source::from(args.key.as_path()), Target::from(args.output.as_path()));
    let (encoding, force) = (args.encoding.encoding(), args.overwrite.force);
    target.check(Access::Public, encoding != Encoding::Pem, force)?;
    target.spare(&Sources::new([&source]))?;
    let file = KeyFile::read(source)?;
    let (name, bytes) = match file.scheme(&args.of)? {
        Scheme::SlhDsa => {
            let key = file.key(args.of.set)?;
            if let Key::Private(key) = &key {
                // A wrong root would be handed on as a public key that verifies nothing.
                machine::engine(machine, printer)?.check(key).map_err(|error| Failure::from(error).of(&file.source))?;
            }
            (key.params().name, encode_public(&key.public(), encoding)?)
        }
        Scheme::ZkDilithium => {
            zkdilithium::check_encoding(encoding)?;
            (NAME, zkdilithium::encode_public(&zkdilithium::key(&file)?.public(), encoding))
        }
    };
    target.write(&bytes, Access::Public, force, printer)?;
    if let Target::File(_) = &target {
        printer.note(format_args!("wrote {target}: a public key of {name}"));
    }
    Ok(Exit::Good)
}
