//! The master key: what it seals, and how it is itself sealed under a secret of the operator.

use crate::error::Error;
use crate::files::{Readers, read_trusted};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit};
use argon2::{Algorithm, Argon2, Params, Version};
use hmac::{Hmac, Mac};
use hypergrove::quote::Quote;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

/// A secret of 256 bits, wiped when it is dropped.
pub type Secret = Zeroizing<[u8; 32]>;

/// Bytes of AES-GCM's nonce, which precedes the ciphertext.
const NONCE: usize = 12;
/// Argon2id's memory in KiB and its passes: above what OWASP recommends (19 MiB, two passes), and still a fraction of a second.
const COST: (u32, u32) = (64 * 1024, 3);
/// The most memory that a stored cost may ask for, in KiB.
const MAX_MEMORY: u32 = 1 << 20;
/// The most passes that a stored cost may ask for.
const MAX_PASSES: u32 = 64;
/// The longest secret that a file or a command may give.
pub const MAX_SECRET: usize = 4096;

/// Fresh bytes of the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|why| Error::internal(format!("the operating system gave no randomness: {why}")))?;
    Ok(bytes)
}

/// HMAC-SHA-256 of `parts`, one after the other.
pub fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // Shorter than a block of SHA-256, so any length of key is taken.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else { unreachable!("HMAC takes any key") };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// The key that seals everything that the server stores in secret. One key for each purpose is derived from it.
pub struct Master(Secret);

/// Leaves the key out.
impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Master(..)")
    }
}

impl Master {
    /// A fresh master key.
    pub fn random() -> Result<Master, Error> {
        Ok(Master(Zeroizing::new(random()?)))
    }

    /// The key for one purpose.
    pub fn subkey(&self, purpose: &str) -> Secret {
        Zeroizing::new(hmac(&self.0, &[b"hypergrove-server ", purpose.as_bytes()]))
    }

    /// Seals a private key. `bound` says what it is, and opens it again.
    pub fn seal(&self, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, Error> {
        seal_under(&self.subkey("private keys"), bound, plain)
    }

    /// Opens what [`Master::seal`] sealed with the same `bound`.
    pub fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        open_under(&self.subkey("private keys"), bound, sealed)
    }
}

fn seal_under(key: &Secret, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce = random::<NONCE>()?;
    let failed = || Error::internal("a secret could not be sealed");
    let cipher = Aes256Gcm::new_from_slice(&key[..]).map_err(|_| failed())?;
    let sealed = cipher.encrypt(&nonce.into(), Payload { msg: plain, aad: bound }).map_err(|_| failed())?;
    Ok([&nonce[..], &sealed].concat())
}

fn open_under(key: &Secret, bound: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let cipher = Aes256Gcm::new_from_slice(&key[..]).ok()?;
    cipher.decrypt(&(*nonce).into(), Payload { msg: sealed, aad: bound }).ok().map(Zeroizing::new)
}

/// The master key under the operator's secret, as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub struct SealedMaster {
    salt: String,
    memory_kib: u32,
    passes: u32,
    sealed: String,
}

const MASTER: &[u8] = b"hypergrove-server master key";

impl SealedMaster {
    /// Seals a master key under a secret.
    pub fn new(master: &Master, secret: &[u8]) -> Result<SealedMaster, Error> {
        let salt = random::<16>()?;
        let sealed = seal_under(&stretch(secret, &salt, COST)?, MASTER, &master.0[..])?;
        Ok(SealedMaster { salt: hex::encode(salt), memory_kib: COST.0, passes: COST.1, sealed: hex::encode(sealed) })
    }

    /// Whether the cost is one that this server would take: otherwise whoever writes the database could occupy it for years.
    fn is_affordable(&self) -> bool {
        self.memory_kib <= MAX_MEMORY && self.passes <= MAX_PASSES
    }

    /// Opens the master key. A wrong secret and damaged bytes cannot be distinguished.
    pub fn open(&self, secret: &[u8]) -> Result<Master, Error> {
        let damaged = || Error::internal("the sealed master key in the database is damaged; restore a backup");
        let salt = hex::decode(&self.salt).map_err(|_| damaged())?;
        let sealed = hex::decode(&self.sealed).map_err(|_| damaged())?;
        if !self.is_affordable() {
            return Err(damaged());
        }
        let plain = open_under(&stretch(secret, &salt, (self.memory_kib, self.passes))?, MASTER, &sealed)
            .ok_or_else(|| Error::bad("the secret does not unseal this server; check the passphrase"))?;
        let key = <[u8; 32]>::try_from(&plain[..]).map_err(|_| damaged())?;
        Ok(Master(Zeroizing::new(key)))
    }
}

/// Argon2id of a secret.
fn stretch(secret: &[u8], salt: &[u8], (memory, passes): (u32, u32)) -> Result<Secret, Error> {
    let failed = |why: argon2::Error| Error::internal(format!("Argon2 failed: {why}"));
    let params = Params::new(memory, passes, 1, Some(32)).map_err(failed)?;
    let mut key = Secret::default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(secret, salt, &mut key[..])
        .map_err(failed)?;
    Ok(key)
}

/// Where the secret that unseals comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// An operator sends a passphrase to `sys/unseal`. The braces make serde refuse other fields.
    Passphrase {},
    /// The server reads a file at its start.
    File {
        /// The file.
        path: PathBuf,
    },
    /// The server runs a command at its start, and reads its output: a client of a KMS or an HSM, for example.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

impl Default for Source {
    fn default() -> Source {
        Source::Passphrase {}
    }
}

impl Source {
    /// The secret without the end of its line, or `None` for a passphrase.
    pub fn secret(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        match self {
            Source::Passphrase {} => Ok(None),
            Source::File { path } => read_secret(path, Readers::Warned).map(Some),
            Source::Command { command } => {
                let (program, arguments) =
                    command.split_first().ok_or_else(|| Error::bad("[seal] command: the list is empty"))?;
                let failed = |why: &dyn fmt::Display| {
                    Error::internal(format!("[seal] command: {}: {why}", Quote::path(program)))
                };
                let output = Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stderr(Stdio::inherit())
                    .output()
                    .map_err(|why| failed(&why))?;
                let secret = Zeroizing::new(output.stdout);
                match output.status.success() {
                    true => one_line(secret, &Quote::path(program).to_string()).map(Some),
                    false => Err(failed(&output.status)),
                }
            }
        }
    }
}

/// A secret of one line from a file.
pub fn read_secret(path: &std::path::Path, readers: Readers) -> Result<Zeroizing<Vec<u8>>, Error> {
    one_line(read_trusted(path, readers)?, &Quote::path(path).to_string())
}

/// The passphrase of a key from a file, which may be empty: others may have encrypted a key with such a one. The file is read once, since it may be a pipe.
pub fn read_passphrase(path: &std::path::Path, readers: Readers) -> Result<Zeroizing<Vec<u8>>, Error> {
    let passphrase = read_trusted(path, readers)?;
    match &passphrase[..] {
        [] | [b'\n'] | [b'\r', b'\n'] => Ok(Zeroizing::default()),
        _ => one_line(passphrase, &Quote::path(path).to_string()),
    }
}

fn one_line(secret: Zeroizing<Vec<u8>>, of: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let line = secret.strip_suffix(b"\n").unwrap_or(&secret);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.is_empty() || line.len() > MAX_SECRET || line.contains(&b'\n') {
        true => Err(Error::internal(format!("{of}: the secret must be one line of 1 to {MAX_SECRET} bytes"))),
        false => Ok(Zeroizing::new(line.to_vec())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_key_opens_only_as_what_it_was_sealed() {
        let master = Master::random().unwrap();
        let sealed = master.seal(b"release 1 128s", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(&master.open(b"release 1 128s", &sealed).unwrap()[..], b"secret");
        assert!(master.open(b"release 2 128s", &sealed).is_none());
        assert!(Master::random().unwrap().open(b"release 1 128s", &sealed).is_none());
        for bit in 0..sealed.len() * 8 {
            let mut other = sealed.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(master.open(b"release 1 128s", &other).is_none(), "bit {bit}");
        }
        assert!(master.open(b"release 1 128s", &sealed[..11]).is_none());
    }

    #[test]
    fn only_the_right_secret_opens_the_master_key() {
        let master = Master::random().unwrap();
        let sealed = SealedMaster::new(&master, b"correct horse").unwrap();
        assert_eq!(*sealed.open(b"correct horse").unwrap().0, *master.0);
        assert_eq!(sealed.open(b"correct hors").unwrap_err().status, 400);
        assert_eq!(format!("{master:?}"), "Master(..)");
    }

    /// Only the bytes that were sealed open, and a damaged cost cannot occupy the server.
    #[test]
    fn fuzz_sealed_secrets() {
        let master = Master::random().unwrap();
        let sealed = master.seal(b"a", b"secret").unwrap();
        crate::fuzz::fuzz(20_000, &[&sealed], "", |input| {
            let opened = master.open(b"a", input);
            assert_eq!(opened.as_ref().map(|plain| &plain[..]), (input == sealed).then_some(&b"secret"[..]));
            String::new()
        });
        let (salt, cost) = ([7; 16], (8, 1));
        let sealed = seal_under(&stretch(b"word", &salt, cost).unwrap(), MASTER, &master.0[..]).unwrap();
        let stored =
            SealedMaster { salt: hex::encode(salt), memory_kib: cost.0, passes: cost.1, sealed: hex::encode(sealed) };
        let stored = serde_json::to_vec(&stored).unwrap();
        crate::fuzz::fuzz(5_000, &[&stored], "\"memory_kib\": \"passes\": 1048577 65", |input| {
            let damaged: SealedMaster = match serde_json::from_slice(input) {
                Ok(damaged) => damaged,
                Err(why) => return why.to_string(),
            };
            let work = u64::from(damaged.memory_kib) * u64::from(damaged.passes);
            assert!(!damaged.is_affordable() || work <= u64::from(MAX_MEMORY) * 64);
            if damaged.is_affordable() && work > 1 << 12 {
                return "too slow for this test".into();
            }
            match damaged.open(b"word") {
                Ok(opened) => assert_eq!(*opened.0, *master.0),
                Err(why) => return why.to_string(),
            }
            String::new()
        });
    }

    #[test]
    fn fuzz_secrets_of_files() {
        crate::fuzz::fuzz(20_000, &[b"word\r\n", &[b'a'; MAX_SECRET]], "\r\n", |input| {
            let line = match one_line(Zeroizing::new(input.to_vec()), "file") {
                Ok(line) => line,
                Err(why) => return why.to_string(),
            };
            let rest = input.strip_prefix(&line[..]).unwrap();
            assert!([&b""[..], b"\n", b"\r", b"\r\n"].contains(&rest), "{rest:?}");
            assert!((1..=MAX_SECRET).contains(&line.len()) && !line.contains(&b'\n'));
            format!("{}", rest.len())
        });
    }

    #[test]
    fn a_secret_is_one_line() {
        let read = |text: &[u8]| one_line(Zeroizing::new(text.to_vec()), "file");
        assert_eq!(&read(b"word\r\n").unwrap()[..], b"word");
        assert!(read(b"").is_err() && read(b"\n").is_err() && read(b"two\nlines\n").is_err());
    }
}
