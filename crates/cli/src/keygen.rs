//! `hypergrove keygen`.

use crate::args::{Bytes, Keygen, MachineOptions};
use crate::failure::{Exit, Failure};
use crate::files::{Access, Target};
use crate::keys::{Encoding, check_encoding, encode_private, encode_public};
use crate::machine;
use crate::printer::Printer;
use hypergrove::{Params, Seeds};
use zeroize::Zeroizing;

pub(crate) fn run(args: &Keygen, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    let (private, public) = (Target::from(args.output.as_path()), args.pubout.as_deref().map(Target::from));
    let (encoding, force) = (args.encoding.encoding(), args.overwrite.force);
    if public.as_ref() == Some(&private) {
        return Err(Failure::new(format!("both keys would go to {private}"))
            .hint("name a file for the private key with --output, and another one with --pubout"));
    }
    let seeds = args.seeds.as_ref().map(|bytes| seeds(args.set, bytes)).transpose()?;
    check_encoding(args.set, encoding)?;
    private.check(encoding != Encoding::Pem, force)?;
    if let Some(public) = &public {
        public.check(encoding != Encoding::Pem, force)?;
    }

    let engine = machine::engine(machine, printer)?;
    let key = match seeds {
        None => engine.generate(args.set)?,
        Some(seeds) => engine.from_seeds(args.set, &[seeds])?.remove(0),
    };
    let private_bytes = encode_private(&key, encoding)?;
    let public_bytes = encode_public(&key.verifying_key(), encoding)?;
    // Both are on the disk before either has its name.
    let private_file = private.prepare(&private_bytes, Access::Private, force)?;
    let public_file = public.as_ref().map(|to| to.prepare(&public_bytes, Access::Public, force)).transpose()?;
    private_file.commit(printer)?;
    if let Some(file) = public_file {
        file.commit(printer)?;
    }
    if let Target::File(_) = &private {
        printer.note(format_args!("wrote {private}: a private key of {}, for its owner's eyes alone", args.set));
    }
    if let Some(public @ Target::File(_)) = &public {
        printer.note(format_args!("wrote {public}: its public key"));
    }
    Ok(Exit::Good)
}

/// SK.seed ‖ SK.prf ‖ PK.seed.
fn seeds(p: &Params, Bytes(bytes): &Bytes) -> Result<Seeds, Failure> {
    if bytes.len() != 3 * p.n {
        let (got, want) = (bytes.len(), 3 * p.n);
        return Err(Failure::new(format!("--seeds has {got} bytes, {p} takes {want}"))
            .hint(format!("give SK.seed, SK.prf and PK.seed, {} bytes each, one after the other", p.n)));
    }
    let part = |i: usize| bytes[i * p.n..(i + 1) * p.n].to_vec();
    Ok(Seeds { sk_seed: Zeroizing::new(part(0)), sk_prf: Zeroizing::new(part(1)), pk_seed: part(2) })
}
