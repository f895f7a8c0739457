//! `hypergrove keygen`.

use crate::args::{Encoding, Keygen, MachineOptions, Scheme};
use crate::files::{Access, Prepared, Replace, Sources, Target, commit_pair};
use crate::json::{Counts, KeyLine, Line, TableLine};
use crate::schemes::{InTool, of_scheme};
use hypergrove::quote::may_be_key;
use hypergrove::{Fingerprint, Params, SigningKey, SlhDsa};
use hypergrove_lab::failure::{Exit, Failure};
use hypergrove_lab::machine;
use hypergrove_lab::printer::{PathDisplay, Printer, grouped};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::{MAIN_SEPARATOR, Path};
use std::slice;
use zeroize::{Zeroize, Zeroizing};

pub(crate) fn run(args: &Keygen, read: &Sources, machine: &MachineOptions, printer: &Printer) -> Result<Exit, Failure> {
    if let (false, Some(path)) = (args.encrypt, args.passphrase.path()) {
        return Err(Failure::new(format!("{} holds a passphrase, and no key is to be encrypted", PathDisplay(&path)))
            .hint("encrypt the private key with --encrypt, or leave the passphrase out"));
    }
    if let (Some(count), Some(path)) = (args.count, &args.table) {
        return table(args, count.get(), path, read, machine, printer);
    }
    let (private, public) = targets(args)?;
    let replace = Replace { force: args.overwrite.force, read };
    if public.as_ref().is_some_and(|public| public.is(&private)) {
        return Err(Failure::new(format!("both keys would go to {private}"))
            .hint("name a file for the private key with --output, and another one with --pubout"));
    }
    if args.json && [Some(&private), public.as_ref()].contains(&Some(&Target::Stdout)) {
        return Err(Failure::new("a key and JSON would both go to standard output")
            .hint("name a file for the private key with --output, and for the public key with --pubout"));
    }
    let targets = (&private, public.as_ref());
    let pair = of_scheme!(scheme(args), S => KeyPair::new::<S>(args, targets, replace, machine, printer))?;
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
    if args.set.is_none() && scheme(args) == Scheme::SlhDsa {
        printer.note(CHOICE);
    }
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

/// When the default set is the wrong one.
const CHOICE: &str = "SLH-DSA-SHA2-128s has small signatures, for files that are signed once and verified often; choose --set SLH-DSA-SHA2-128f \
                      to sign many messages: it signs some twenty times as fast, and its signatures are twice as large";

/// Where the keys go.
fn targets(args: &Keygen) -> Result<(Target, Option<Target>), Failure> {
    let public = args.pubout.as_deref().map(Target::from);
    match (&args.name, &args.output) {
        (Some(name), _) => {
            check_name(name)?;
            let with = |end: &str| -> Result<Target, Failure> {
                let mut file = name.clone().into_os_string();
                file.push(end);
                // --force is for --output.
                match Path::new(&file).symlink_metadata() {
                    Ok(_) => Err(Failure::new(format!("{} exists", PathDisplay(Path::new(&file))))
                        .hint("choose another name, or move the old pair away")),
                    Err(_) => Ok(Target::File(file.into())),
                }
            };
            Ok((with(".key")?, Some(with(".pub")?)))
        }
        (None, Some(output)) => Ok((output.as_path().into(), public)),
        (None, None) if io::stdout().is_terminal() => {
            Err(Failure::new("the private key would be shown on the terminal")
                .hint("name the pair, as in `hypergrove keygen release`, or a file with --output; `-o -` shows the key all the same"))
        }
        (None, None) => Ok((Target::Stdout, public)),
    }
}

/// Refuses a name that somebody meant for something else.
fn check_name(name: &Path) -> Result<(), Failure> {
    let text = name.to_string_lossy();
    if let Ok(p) = text.parse::<&Params>() {
        return Err(Failure::new(format!("{p} is a parameter set, and the name of a pair of keys is wanted"))
            .hint(format!("name the set with --set {p}")));
    }
    let end = name.extension().filter(|end| *end == "key" || *end == "pub");
    if let (Some(_), Some(stem)) = (end, name.file_stem()) {
        return Err(Failure::new(format!(
            "{} is the name of one file, and the ends .key and .pub are added to the name of a pair",
            PathDisplay(name)
        ))
        .hint(format!("name the pair, as in `hypergrove keygen {}`", PathDisplay(Path::new(stem)))));
    }
    match name.file_name() {
        Some(_) if !text.ends_with(['/', MAIN_SEPARATOR]) && text != "-" && !may_be_key(&text) => Ok(()),
        _ => Err(Failure::new(format!("{} is no name of a pair of keys", PathDisplay(name)))
            .hint("name the pair, as in `hypergrove keygen release`, or with its folder, as in `hypergrove keygen keys/release`")),
    }
}

/// Bytes of a table that are written together, and room for one more line.
const TOGETHER: usize = 256 << 10;
const LINE: usize = 4 << 10;

/// The first line of a table of private keys. A reader that takes each line for a key, or for files, stops here.
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
    if scheme(args) != Scheme::SlhDsa {
        let name = of_scheme!(scheme(args), S => S::wanted(args).map(|_| S::NAME))?;
        return Err(Failure::new(format!("--count makes keys of SLH-DSA, and --scheme says {name}"))
            .hint("make keys of this scheme one by one"));
    }
    let (p, _) = SlhDsa::wanted(args)?;
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
    if args.set.is_none() {
        printer.note(CHOICE);
    }
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

/// The hint where a table of private keys was replaced and that of their public keys was not.
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

/// The hint where a private key was replaced and its public key was not.
pub(crate) fn public_is_missing(private: &Target) -> String {
    format!("{private} has the new private key; `hypergrove pubkey {private}` makes its public key")
}

fn scheme(args: &Keygen) -> Scheme {
    args.scheme.unwrap_or(Scheme::SlhDsa)
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
    fn new<S: InTool>(
        args: &Keygen,
        (private, public): (&Target, Option<&Target>),
        replace: Replace<'_>,
        machine: &MachineOptions,
        printer: &Printer,
    ) -> Result<KeyPair, Failure> {
        let encoding = args.encoding.encoding();
        let (set, seeds) = S::wanted(args)?;
        private.check(Access::Private, encoding != Encoding::Pem, replace)?;
        public.map_or(Ok(()), |public| public.check(Access::Public, encoding != Encoding::Pem, replace))?;
        let passphrase = args.encrypt.then(|| args.passphrase.choose(private)).transpose()?;

        let engine = machine::engine(machine, printer)?;
        let key = match &seeds {
            None => engine.generate(set)?,
            Some(seeds) => engine.from_seeds(set, slice::from_ref(&**seeds))?.remove(0),
        };
        let key = if args.hash_slh_dsa { S::hashing(key) } else { key };
        let passphrase = passphrase.as_ref().map(|passphrase| (&passphrase[..], args.kdf));
        let (private, public) = (S::encode_private(&key, encoding, passphrase)?, S::public(&key));
        let (fingerprint, public) = (S::fingerprint(&public), S::encode_public(&public, encoding)?);
        Ok(KeyPair { set: set.name(), fingerprint, private, public })
    }
}
