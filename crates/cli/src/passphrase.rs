//! Passphrases: from a terminal, a file or a file descriptor. Never from the command line or the environment, which others can read.

use crate::files::Source;
use clap::Args;
use hypergrove_files::text::without_mark;
use hypergrove_lab::failure::Failure;
use std::fmt::Display;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Bytes of a passphrase at most.
const LONGEST: usize = 1024;
const WAY_OUT: &str =
    "name a file that holds it with --passphrase-file, or an open file descriptor with --passphrase-fd";

/// Where the passphrase of a private key comes from.
#[derive(Args, Clone, Default)]
pub(crate) struct PassphraseOptions {
    /// Read the passphrase of the private key from this file, whose only line it is; `-` is standard input. By default, the tool asks
    /// on the terminal if the key is encrypted
    #[arg(long, value_name = "FILE", help_heading = "Passphrase")]
    passphrase_file: Option<PathBuf>,
    /// Read the passphrase from this open file descriptor, for example that of a pipe
    #[cfg(unix)]
    #[arg(long, value_name = "N", conflicts_with = "passphrase_file", help_heading = "Passphrase")]
    passphrase_fd: Option<u16>,
}

impl PassphraseOptions {
    /// The passphrase is in this file, or is asked for.
    pub(crate) fn of_file(passphrase_file: Option<PathBuf>) -> PassphraseOptions {
        PassphraseOptions {
            passphrase_file,
            #[cfg(unix)]
            passphrase_fd: None,
        }
    }

    /// The file to read the passphrase from: standard input can be read once.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        #[cfg(unix)]
        let descriptor = self.passphrase_fd.map(descriptor);
        #[cfg(not(unix))]
        let descriptor = None;
        self.passphrase_file.clone().or(descriptor)
    }

    /// The passphrase of a key that is encrypted.
    pub(crate) fn get(&self, key: impl Display) -> Result<Zeroizing<Vec<u8>>, Failure> {
        match self.path() {
            Some(path) => line(&path.as_path().into()),
            None => ask(format_args!("Passphrase of {key}: "), "this private key is encrypted"),
        }
    }

    /// A new passphrase; on a terminal it is typed twice.
    pub(crate) fn choose(&self, key: impl Display) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let passphrase = match self.path() {
            Some(path) => {
                let source = path.as_path().into();
                let line = line(&source)?;
                // Nobody can type it. A key that others encrypted with such a passphrase is still read.
                if without_mark(&line).len() < line.len() {
                    return Err(Failure::new(format!(
                        "{source} begins with a byte order mark, which is no passphrase"
                    ))
                    .hint("save the file as UTF-8 without a byte order mark"));
                }
                line
            }
            None => {
                let why = "the private key is to be encrypted";
                let first = ask("New passphrase of the private key: ", why)?;
                if first.is_empty() || ask("The same again: ", why)? == first {
                    first
                } else {
                    return Err(Failure::new("the two passphrases differ").hint("run the command again"));
                }
            }
        };
        if passphrase.is_empty() {
            return Err(Failure::new(format!("the passphrase of {key} is empty, so it would protect nothing"))
                .hint("choose a passphrase, or leave the key unencrypted"));
        }
        Ok(passphrase)
    }
}

/// The path of an open file descriptor.
#[cfg(unix)]
pub(crate) fn descriptor(number: u16) -> PathBuf {
    match number {
        0 => "-".into(),
        number => format!("/dev/fd/{number}").into(),
    }
}

/// The only line of a file, without its end.
fn line(source: &Source) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // As for keys: nothing of it is left behind in another buffer.
    let mut bytes = source.read_key("the file of a passphrase")?;
    if bytes.ends_with(b"\n") {
        let end = bytes.len() - if bytes.ends_with(b"\r\n") { 2 } else { 1 };
        bytes.truncate(end);
    }
    if bytes.contains(&b'\n') {
        return Err(Failure::new(format!("{source} has more than one line, a passphrase is one"))
            .hint("put the passphrase alone into a file"));
    }
    if bytes.len() > LONGEST {
        return Err(Failure::new(format!("{source} has {} bytes, a passphrase has at most {LONGEST}", bytes.len()))
            .hint("name the file that holds the passphrase"));
    }
    Ok(bytes)
}

/// Asks for a passphrase at the terminal, which does not show it.
fn ask(prompt: impl Display, why: impl Display) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let typed = rpassword::prompt_password(prompt).map_err(|_| {
        Failure::new(format!("{why}, and no terminal is there to ask for the passphrase")).hint(WAY_OUT)
    })?;
    Ok(Zeroizing::new(typed.into_bytes()))
}
