//! `hypergrove keygen`.

use crate::args::{Bytes, Keygen, MachineOptions, Scheme};
use crate::files::{Access, Prepared, Replace, Sources, Target, commit_pair};
use crate::json::{Counts, KeyLine, Line, TableLine};
use crate::keys::{Encoding, check_encoding, encode_encrypted, encode_private, encode_public};
use crate::zkdilithium;
use hypergrove::zkdilithium::params::NAME;
use hypergrove::{Fingerprint, Params, Seeds, SigningKey};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::ops::ControlFlow;
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

pub(crate) fn run(args: &Keygen, read: &Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    if let (false, Some(path)) = (args.encrypt, args.passphrase.path()) {
        return Err(Failure::new(format!("{} holds a passphrase, and no key is to be encrypted", PathDisplay(&path)))
            .hint("encrypt the private key with --encrypt, or leave the passphrase out"));
    }
    if let (Some(count), Some(path)) = (args.count, &args.table) {
        return table(args, count.get(), path, read, machine, printer);
    }
    let (private, public) = (Target::from(args.output.as_path()), args.pubout.as_deref().map(Target::from));
    let (encoding, replace) = (args.encoding.encoding(), Replace { force: args.overwrite.force, read });
    if public.as_ref().is_some_and(|public| public.is(&private)) {
        return Err(Failure::new(format!("both keys would go to {private}"))
            .hint("name a file for the private key with --output, and another one with --pubout"));
    }
    if args.json && [Some(&private), public.as_ref()].contains(&Some(&Target::Stdout)) {
        return Err(Failure::new("a key and JSON would both go to standard output")
            .hint("name a file for the private key with --output, and for the public key with --pubout"));
    }
    let wanted = KeyRequest::new(args)?;
    private.check(Access::Private, encoding != Encoding::Pem, replace)?;
    if let Some(public) = &public {
        public.check(Access::Public, encoding != Encoding::Pem, replace)?;
    }
    let passphrase = args.encrypt.then(|| args.passphrase.choose(&private)).transpose()?;

    let pair = KeyPair::new(wanted, args, passphrase, machine, printer)?;
    // Both are on the disk before either has its name.
    let private_file = private.prepare(&pair.private, Access::Private, replace)?;
    match &public {
        Some(public) => {
            let public_file = public.prepare(&pair.public, Access::Public, replace)?;
            commit_pair(private_file, public_file, public_is_missing, printer)?;
        }
        None => private_file.commit(printer)?,
    }
    if let Target::File(_) = &private {
        let readers = if cfg!(unix) { "for its owner's eyes alone" } else { "for whom its directory lets read it" };
        let kind = if args.encrypt { "an encrypted private key" } else { "a private key" };
        printer.note(format_args!("wrote {private}: {kind} of {}, {readers}", pair.set));
    }
    if let Some(public @ Target::File(_)) = &public {
        printer.note(format_args!("wrote {public}: its public key"));
    }
    printer.note(format_args!("its fingerprint is {}", pair.fingerprint));
    if args.set.is_some_and(|p| p.signature_limit().is_some()) {
        printer.note(
            "it makes a limited number of signatures: make its ledger with `hypergrove ledger init` before it signs",
        );
    }
    if args.json {
        let key = KeyLine {
            private_key: private.path_text(),
            public_key: public.as_ref().map(Target::path_text),
            set: pair.set,
            key: pair.fingerprint.to_string(),
            encrypted: args.encrypt,
        };
        Line::Key(key).print(printer)?;
        summary(1, printer)?;
    }
    Ok(Exit::Good)
}

/// Bytes of a table that are written together, and room for one more line.
const TOGETHER: usize = 256 << 10;
const LINE: usize = 4 << 10;

/// What a table of private keys begins with. A reader that takes each line for a key, or for files, stops here.
const COLUMNS: &str = "# fingerprint\tpublic key\tprivate key\n";

/// Many keys, in a table: all of them or none.
fn table(
    args: &Keygen,
    count: usize,
    path: &Path,
    read: &Sources,
    machine: &MachineOptions,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let KeyRequest::SlhDsa(p, _) = KeyRequest::new(args)? else {
        return Err(Failure::new(format!("--count makes keys of SLH-DSA, and --scheme says {NAME}"))
            .hint("make keys of this scheme one by one"));
    };
    let (private, public) = (Target::from(path), args.pubout.as_deref().map(Target::from));
    let replace = Replace { force: args.overwrite.force, read };
    if public.as_ref().is_some_and(|public| public.is(&private)) {
        return Err(Failure::new(format!("both tables would go to {private}"))
            .hint("name another file for the public keys with --pubout"));
    }
    if args.json && [Some(&private), public.as_ref()].contains(&Some(&Target::Stdout)) {
        return Err(Failure::new("a table and JSON would both go to standard output")
            .hint("name a file for the private keys with --table, and for the public keys with --pubout"));
    }
    let mut secret = Table::new(&private, Access::Private, replace)?;
    secret.add(&[COLUMNS])?;
    let mut shown = public.as_ref().map(|public| Table::new(public, Access::Public, replace)).transpose()?;
    let engine = machine::engine(machine, printer)?;
    let (bar, mut written) = (printer.progress(count, "making"), Ok(()));
    engine.generate_batch(p, count, |_, key| {
        bar.inc(1);
        let key = if args.hash_slh_dsa { key.into_hash_slh_dsa() } else { key };
        written = line(&key, &mut secret, shown.as_mut());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    bar.finish_and_clear();
    written?;
    let secret = secret.finish()?;
    match shown {
        Some(shown) => commit_pair(secret, shown.finish()?, public_table_is_missing, printer)?,
        None => secret.commit(printer)?,
    }
    printer.note(format_args!("wrote {private}: {} private keys of {}", grouped(count as u64), p.name));
    if let Some(public) = &public {
        printer.note(format_args!("wrote {public}: their public keys"));
    }
    if args.json {
        let table = TableLine {
            table: private.path_text(),
            public_table: public.as_ref().map(Target::path_text),
            set: p.name,
            keys: count as u64,
        };
        Line::Table(table).print(printer)?;
        summary(count as u64, printer)?;
    }
    Ok(Exit::Good)
}

/// The last line of JSON.
fn summary(made: u64, printer: &Printer) -> Result<(), Failure> {
    Line::summary(Counts { made, ..Counts::default() }, Exit::Good).print(printer)
}

/// What to do where a table of private keys was replaced and that of their public keys was not.
fn public_table_is_missing(private: &Target) -> String {
    format!(
        "{private} has the new keys; without its first line, its first two columns are the table of their public keys"
    )
}

/// A key's lines.
fn line(key: &SigningKey, secret: &mut Table, shown: Option<&mut Table>) -> Result<(), Failure> {
    let public = key.verifying_key();
    let (fingerprint, word) = (public.fingerprint().to_string(), public.to_base64()?);
    if let Some(shown) = shown {
        shown.add(&[&fingerprint, "\t", &word, "\n"])?;
    }
    secret.add(&[&fingerprint, "\t", &word, "\t", &key.to_base64()?, "\n"])
}

/// A table on its way to a file. Its buffer never grows: that would leave keys behind.
struct Table {
    file: Prepared,
    waiting: Zeroizing<Vec<u8>>,
}

impl Table {
    fn new(target: &Target, access: Access, replace: Replace<'_>) -> Result<Table, Failure> {
        Ok(Table { file: target.begin(access, replace)?, waiting: Zeroizing::new(Vec::with_capacity(TOGETHER + LINE)) })
    }
    fn add(&mut self, parts: &[&str]) -> Result<(), Failure> {
        debug_assert!(parts.iter().map(|part| part.len()).sum::<usize>() <= LINE, "a line has room");
        parts.iter().for_each(|part| self.waiting.extend_from_slice(part.as_bytes()));
        if self.waiting.len() < TOGETHER { Ok(()) } else { self.flush() }
    }
    fn flush(&mut self) -> Result<(), Failure> {
        self.file.append(&self.waiting)?;
        self.waiting.zeroize();
        Ok(())
    }
    fn finish(mut self) -> Result<Prepared, Failure> {
        self.flush()?;
        Ok(self.file)
    }
}

/// What to do where a private key was replaced and its public key was not.
pub(crate) fn public_is_missing(private: &Target) -> String {
    format!("{private} has the new private key; `hypergrove pubkey {private}` makes its public key")
}

/// The kind of key, with the seeds that were given.
enum KeyRequest {
    SlhDsa(&'static Params, Option<Seeds>),
    ZkDilithium(Option<Zeroizing<Vec<u8>>>),
}

impl KeyRequest {
    /// Refuses, before any work is done, what cannot be made or written.
    fn new(args: &Keygen) -> Result<KeyRequest, Failure> {
        let encoding = args.encoding.encoding();
        match (args.scheme, args.set) {
            (None | Some(Scheme::SlhDsa), Some(p)) => {
                let seeds = args.seeds.as_ref().map(|bytes| seeds(p, bytes)).transpose()?;
                check_encoding(p, encoding)?;
                Ok(KeyRequest::SlhDsa(p, seeds))
            }
            (Some(Scheme::ZkDilithium), None) => {
                zkdilithium::check_encoding(encoding)?;
                zkdilithium::refuse(&[(args.encrypt, "--encrypt"), (args.hash_slh_dsa, "--hash-slh-dsa")])?;
                Ok(KeyRequest::ZkDilithium(args.seeds.as_ref().map(|Bytes(seed)| seed.clone())))
            }
            (Some(Scheme::ZkDilithium), Some(p)) => Err(zkdilithium::has_no_sets(p)),
            (_, None) => Err(Failure::new("SLH-DSA has many parameter sets, and none is named")
                .hint("name one with --set, for example --set SLH-DSA-SHA2-128f")),
        }
    }
}

/// A new pair of keys, as it is written.
struct KeyPair {
    /// The set's name, or the scheme's.
    set: &'static str,
    fingerprint: Fingerprint,
    private: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

impl KeyPair {
    fn new(
        wanted: KeyRequest,
        args: &Keygen,
        passphrase: Option<Zeroizing<Vec<u8>>>,
        machine: &MachineOptions,
        printer: &Printer,
    ) -> Result<KeyPair, Failure> {
        let encoding = args.encoding.encoding();
        match wanted {
            KeyRequest::SlhDsa(p, seeds) => {
                let engine = machine::engine(machine, printer)?;
                let key = match seeds {
                    None => engine.generate(p)?,
                    Some(seeds) => engine.from_seeds(p, &[seeds])?.remove(0),
                };
                let key = if args.hash_slh_dsa { key.into_hash_slh_dsa() } else { key };
                let private = match &passphrase {
                    Some(passphrase) => encode_encrypted(&key.encrypt(passphrase, args.kdf.into())?, encoding)?,
                    None => encode_private(&key, encoding)?,
                };
                let public = key.verifying_key();
                let (fingerprint, public) = (public.fingerprint(), encode_public(&public, encoding)?);
                Ok(KeyPair { set: p.name, fingerprint, private, public })
            }
            KeyRequest::ZkDilithium(seed) => {
                let key = zkdilithium::generate(seed.as_deref(), machine, printer)?;
                let private = zkdilithium::encode_private(&key, encoding);
                let public = key.verifying_key();
                let (fingerprint, public) = (public.fingerprint(), zkdilithium::encode_public(&public, encoding));
                Ok(KeyPair { set: NAME, fingerprint, private, public })
            }
        }
    }
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
