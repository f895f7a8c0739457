//! The trait with all that a signature scheme has of its own at the command line.

use crate::args::{Encoding, Kdf, KeyKind, Keygen, MachineOptions, MessageOptions, Scheme, Sign, Verify};
use crate::files::Source;
use crate::keys::{KeyFile, LoadedKey};
use crate::layout::Layout;
use hypergrove::schemes::{SignJob, VerifyJob};
use hypergrove::{Engine, Fingerprint, Mode, Params, ReadError, VerifyingKey};
use hypergrove_lab::failure::Failure;
use hypergrove_lab::printer::Printer;
use hypergrove_lab::stopwatch::Timed;
use std::fs::File;
use std::io::Read;
use zeroize::Zeroizing;

/// A key set and the seeds that are given for a key of it.
pub(crate) type Wanted<S> = (S, Option<Zeroizing<<S as hypergrove::schemes::SchemeTypes>::Seeds>>);

/// The content of a private key's file.
pub(crate) type Secret = Zeroizing<Vec<u8>>;
/// A passphrase, and how the key that encrypts comes from it.
pub(crate) type Passphrase<'p> = Option<(&'p [u8], Kdf)>;
/// The arguments of `sign`, and how many files there are.
pub(crate) type Signing<'a> = (&'a Sign, usize, &'a Printer);

/// A signature scheme at the command line.
pub(crate) trait InTool: for<'a> Timed<JobMessage<'a>: From<Vec<u8>>> {
    /// The scheme's name.
    const NAME: &str;
    /// As it is named by --scheme.
    const SCHEME: Scheme;

    /// The fingerprint by which people and programs recognise a public key.
    fn fingerprint(key: &Self::VerifyingKey) -> Fingerprint;
    /// The key in a file.
    fn read(file: &KeyFile<'_>, set: Option<&'static Params>) -> Result<LoadedKey<Self>, Failure>;
    /// Checks a private key, where reading it did not.
    fn check(_: &Self::SigningKey, _: &Source, _: &MachineOptions, _: &Printer) -> Result<(), Failure> {
        Ok(())
    }
    /// The report of `inspect` on a key or a signature.
    fn inspect(file: &KeyFile<'_>, of: &KeyKind, show_secrets: bool) -> Result<Layout, Failure>;

    /// The key set and the seeds for `keygen`. Refuses, before any work is done, keys that cannot be made or written.
    fn wanted(args: &Keygen) -> Result<Wanted<Self>, Failure>;
    /// The key as --hash-slh-dsa makes it.
    fn hashing(key: Self::SigningKey) -> Self::SigningKey {
        key
    }
    /// The bytes of a private key file, under a passphrase if there is one.
    fn encode_private(
        key: &Self::SigningKey,
        encoding: Encoding,
        passphrase: Passphrase<'_>,
    ) -> Result<Secret, Failure>;
    /// The bytes of a public key file.
    fn encode_public(key: &Self::VerifyingKey, encoding: Encoding) -> Result<Vec<u8>, Failure>;

    /// Refuses options that the scheme does not know.
    fn refuse(_: &[(bool, &str)]) -> Result<(), Failure> {
        Ok(())
    }
    /// Refuses options of `sign` and `verify` that turn a message into another.
    fn check_message(options: &MessageOptions) -> Result<(), Failure> {
        Self::refuse(&[
            (options.context.is_some(), "--context"),
            (options.context_hex.is_some(), "--context-hex"),
            (options.prehash.is_some(), "--prehash"),
            (options.internal, "--internal"),
        ])
    }
    /// Refuses --strict where it says nothing.
    fn check_strict(_: &Verify) -> Result<(), Failure> {
        Ok(())
    }
    /// How a key signs messages.
    fn mode<'a>(options: &'a MessageOptions, _: &Self::VerifyingKey) -> Result<Mode<'a>, Failure> {
        options.mode()
    }
    /// The key with the nodes of its top layers, if that is asked for or worth it.
    fn with_nodes(_: &Engine, key: Self::SigningKey, _: Signing<'_>) -> Result<Self::SigningKey, Failure> {
        Ok(key)
    }
    /// Whether a key and a signature are encoded as the tool writes them.
    fn is_canonical(_: &Self::VerifyingKey, _signature: &[u8]) -> bool {
        true
    }

    /// A key of SLH-DSA, for what only that has: envelopes, ledgers and the like.
    fn as_slh_dsa(_: &Self::VerifyingKey) -> Option<&VerifyingKey> {
        None
    }
    /// The reverse.
    fn of_slh_dsa(_: VerifyingKey) -> Option<Self::VerifyingKey> {
        None
    }

    /// Whether messages can be read in pieces.
    const IN_PIECES: bool = false;
    /// The job that signs what is read.
    fn read_to_sign<'a>(
        _: &Engine,
        _: &'a Self::SigningKey,
        _mode_and_whether_deterministic: (Mode<'a>, bool),
        _: &mut File,
    ) -> Result<SignJob<'a, Self>, ReadError> {
        unreachable!("messages of this scheme are in memory")
    }
    /// The jobs that verify a signature of what is read, one for each key.
    fn read_to_verify<'a>(
        _: &Engine,
        _: &[&'a Self::VerifyingKey],
        _mode_and_signature: (Mode<'a>, &[u8]),
        _: &mut dyn Read,
    ) -> Result<Vec<VerifyJob<'a, Self>>, ReadError> {
        unreachable!("messages of this scheme are in memory")
    }
    /// A message to be signed in this mode.
    fn signed<'a>(job: SignJob<'a, Self>, _: Mode<'a>, _deterministic: bool) -> SignJob<'a, Self> {
        job
    }
    /// A signature to be verified in this mode.
    fn verified<'a>(job: VerifyJob<'a, Self>, _: Mode<'a>) -> VerifyJob<'a, Self> {
        job
    }
}
