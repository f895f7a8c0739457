//! The signature schemes at the command line, and the choice between them. Each has a file of its own.

mod in_tool;
mod slh_dsa;
mod zkdilithium;

pub(crate) use in_tool::InTool;

use crate::args::{KeyKind, Scheme};
use crate::keys::{Key, KeyFile};
use hypergrove::zkdilithium::ZkDilithium;
use hypergrove::zkdilithium::params::SIG_BYTES;
use hypergrove::{Params, known_sets};
use hypergrove_lab::failure::Failure;

/// Does the work with `$S` as the type of the scheme, whichever it is.
macro_rules! of_scheme {
    ($scheme:expr, $S:ident => $work:expr) => {
        match $scheme {
            $crate::args::Scheme::SlhDsa => {
                type $S = hypergrove::SlhDsa;
                $work
            }
            $crate::args::Scheme::ZkDilithium => {
                type $S = hypergrove::zkdilithium::ZkDilithium;
                $work
            }
        }
    };
}
pub(crate) use of_scheme;

impl KeyFile<'_> {
    /// The scheme of the key: the one that was named, or the one that the file looks like.
    pub(crate) fn scheme(&self, of: &KeyKind) -> Result<Scheme, Failure> {
        let looks = || zkdilithium::looks_like_it(&self.bytes).map_err(|failure| failure.of(&self.source));
        let scheme = match of.scheme {
            Some(scheme) => scheme,
            None if looks()? => Scheme::ZkDilithium,
            None => Scheme::SlhDsa,
        };
        match (scheme, of.set) {
            (Scheme::ZkDilithium, Some(p)) => Err(zkdilithium::has_no_sets(p).of(&self.source)),
            (scheme, _) => Ok(scheme),
        }
    }

    /// A key that signs.
    pub(crate) fn private<S: InTool>(&self, set: Option<&'static Params>) -> Result<S::SigningKey, Failure> {
        match S::read(self, set)?.key {
            Key::Private(key) => Ok(key),
            Key::Public(_) => {
                Err(Failure::new(format!("{} is a public key, signing takes the private key", self.source))
                    .hint("name the file that `keygen` wrote with --output"))
            }
        }
    }

    /// A public key, or that of a private one.
    pub(crate) fn public<S: InTool>(&self, set: Option<&'static Params>) -> Result<S::VerifyingKey, Failure> {
        Ok(S::read(self, set)?.key.public())
    }
}

/// The sets, or schemes, whose signatures are known, and the bytes of a signature.
pub(crate) fn signatures() -> impl Iterator<Item = (&'static str, usize)> {
    known_sets().map(|p| (p.name, p.sig_bytes())).chain([(ZkDilithium::NAME, SIG_BYTES)])
}

/// The error where keys are of several schemes.
pub(crate) fn mixed() -> Failure {
    Failure::new("the keys are of SLH-DSA and of zkDilithium, one run takes one scheme's")
        .hint("verify twice, with the keys of one scheme each")
}
