//! Both signature schemes, as C sees them. The other modules are written once, over [`InC`]; only this one names the schemes.

use crate::engine::check_flags;
use crate::failure::Failure;
use crate::options::{FLAGS, MessageOptions, OfOptions};
use hypergrove::pkcs8::spki::EncodePublicKey;
use hypergrove::pkcs8::{EncodePrivateKey, LineEnding};
use hypergrove::rows::Column;
use hypergrove::schemes::{Scheme, Sizes};
use hypergrove::zkdilithium::{self as zk, ZkDilithium};
use hypergrove::{Engine, Error, PARAMETER_SETS, SigningKey, SlhDsa, UnknownSet, VerifyingKey};
use std::mem::take;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A key of either kind.
pub(crate) enum KeyRef<'k, S: Scheme> {
    Private(&'k S::SigningKey),
    Public(&'k S::VerifyingKey),
}

/// Something of either scheme.
#[derive(Clone, Copy)]
pub(crate) enum Any<A, B> {
    SlhDsa(A),
    ZkDilithium(B),
}

/// Does the same with something of either scheme. The result is one type, or with `Any` the scheme's.
macro_rules! of_scheme {
    ($any:expr, $it:ident => Any($body:expr)) => {
        match $any {
            $crate::schemes::Any::SlhDsa($it) => $crate::schemes::Any::SlhDsa($body),
            $crate::schemes::Any::ZkDilithium($it) => $crate::schemes::Any::ZkDilithium($body),
        }
    };
    ($any:expr, $it:ident => $body:expr) => {
        match $any {
            $crate::schemes::Any::SlhDsa($it) => $body,
            $crate::schemes::Any::ZkDilithium($it) => $body,
        }
    };
}
pub(crate) use of_scheme;

/// A key and its set. Queued jobs share the key.
pub(crate) struct Key<S, K> {
    pub(crate) set: S,
    pub(crate) key: Arc<K>,
}

/// `hg_private_key`.
pub(crate) type PrivateKey = Any<Key<SlhDsa, SigningKey>, Key<ZkDilithium, zk::SigningKey>>;
/// `hg_public_key`.
pub(crate) type PublicKey = Any<Key<SlhDsa, VerifyingKey>, Key<ZkDilithium, zk::VerifyingKey>>;
/// The set of keys and signatures: a parameter set of SLH-DSA, or zkDilithium.
pub(crate) type Set = Any<SlhDsa, ZkDilithium>;

/// How a key is written, by its number in C.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Raw = 1,
    Der = 2,
    Pem = 3,
}

impl Format {
    /// Each, with its name in C.
    pub(crate) const ALL: [(Format, &str); 3] =
        [(Format::Raw, "HG_RAW"), (Format::Der, "HG_DER"), (Format::Pem, "HG_PEM")];

    pub(crate) fn of(number: u32) -> Result<Format, Failure> {
        let found = Format::ALL.into_iter().find(|(format, _)| *format as u32 == number);
        let why = || format!("format {number}: it is none of HG_RAW, HG_DER and HG_PEM");
        found.map(|(format, _)| format).ok_or_else(|| Failure::bad_input(why()))
    }
}

/// The part of a scheme that C sees.
pub(crate) trait InC:
    for<'a> Scheme<
        Signature: AsRef<[u8]>,
        Mode<'a>: OfOptions<'a>,
        Randomizer<'a>: OfOptions<'a>,
        JobMessage<'a>: From<&'a [u8]>,
        RowMessages<'a>: From<Column<'a>>,
    >
{
    /// The set's number; 0 if it has none.
    fn number(self) -> u32;
    fn private_from_raw(self, bytes: &[u8]) -> Result<Self::SigningKey, Failure>;
    fn public_from_raw(self, bytes: &[u8]) -> Result<Self::VerifyingKey, Failure>;
    /// A key in a format; `None` if it has no such encoding.
    fn encoded(key: KeyRef<'_, Self>, format: Format) -> Option<Zeroizing<Vec<u8>>>;
    fn check_key(self, key: &Self::SigningKey, engine: &Engine) -> Result<(), Failure>;
}

impl InC for SlhDsa {
    fn number(self) -> u32 {
        self.oid_arc().map_or(0, u32::from)
    }

    fn private_from_raw(self, bytes: &[u8]) -> Result<SigningKey, Failure> {
        Ok(SigningKey::from_bytes(self.set(), bytes)?)
    }

    fn public_from_raw(self, bytes: &[u8]) -> Result<VerifyingKey, Failure> {
        Ok(VerifyingKey::from_bytes(self.set(), bytes)?)
    }

    fn encoded(key: KeyRef<'_, SlhDsa>, format: Format) -> Option<Zeroizing<Vec<u8>>> {
        Some(match (key, format) {
            (KeyRef::Private(key), Format::Raw) => key.to_bytes(),
            (KeyRef::Private(key), Format::Der) => key.to_pkcs8_der().ok()?.to_bytes(),
            (KeyRef::Private(key), Format::Pem) => {
                take(&mut *key.to_pkcs8_pem(LineEnding::LF).ok()?).into_bytes().into()
            }
            (KeyRef::Public(key), Format::Raw) => key.to_bytes().into(),
            (KeyRef::Public(key), Format::Der) => key.to_public_key_der().ok()?.into_vec().into(),
            (KeyRef::Public(key), Format::Pem) => key.to_public_key_pem(LineEnding::LF).ok()?.into_bytes().into(),
        })
    }

    fn check_key(self, key: &SigningKey, engine: &Engine) -> Result<(), Failure> {
        Ok(engine.check(key)?)
    }
}

impl InC for ZkDilithium {
    /// `HG_ZKDILITHIUM`.
    fn number(self) -> u32 {
        1000
    }

    fn private_from_raw(self, bytes: &[u8]) -> Result<zk::SigningKey, Failure> {
        Ok(zk::SigningKey::from_bytes(bytes)?)
    }

    fn public_from_raw(self, bytes: &[u8]) -> Result<zk::VerifyingKey, Failure> {
        Ok(zk::VerifyingKey::from_bytes(bytes)?)
    }

    fn encoded(key: KeyRef<'_, ZkDilithium>, format: Format) -> Option<Zeroizing<Vec<u8>>> {
        Some(match (key, format) {
            (KeyRef::Private(key), Format::Raw) => key.to_bytes(),
            (KeyRef::Private(key), Format::Pem) => take(&mut *key.to_pem()).into_bytes().into(),
            (KeyRef::Public(key), Format::Raw) => key.as_bytes().to_vec().into(),
            (KeyRef::Public(key), Format::Pem) => key.to_pem().into_bytes().into(),
            (_, Format::Der) => return None,
        })
    }

    fn check_key(self, key: &zk::SigningKey, _: &Engine) -> Result<(), Failure> {
        Ok(key.check().map_err(|why| Error::KeyDamaged { what: why.to_string() })?)
    }
}

/// zkDilithium has no options: nothing is asked for.
impl OfOptions<'_> for () {
    fn of(options: &MessageOptions) -> Result<(), Failure> {
        check_flags(options.flags, FLAGS)?;
        let MessageOptions { context_length, randomizer_length, prehash, flags, .. } = *options;
        match (context_length, randomizer_length, prehash, flags, options.randomizer.is_null()) {
            (0, 0, 0, 0, true) => Ok(()),
            _ => Err(Failure::unsupported("zkDilithium has no message options; give NULL".into())),
        }
    }
}

impl From<zk::KeyError> for Failure {
    fn from(why: zk::KeyError) -> Failure {
        match why {
            zk::KeyError::OutOfRange | zk::KeyError::PublicKeyMismatch => {
                Error::KeyDamaged { what: why.to_string() }.into()
            }
            why => Failure::bad_input(why.to_string()),
        }
    }
}

impl<A, B> Any<A, B> {
    /// The value of SLH-DSA; `None` for zkDilithium.
    pub(crate) fn slh_dsa(&self) -> Option<&A> {
        if let Any::SlhDsa(it) = self { Some(it) } else { None }
    }

    /// Those that are of the first one's scheme.
    pub(crate) fn like_first<'k>(all: &[&'k Any<A, B>]) -> Any<Vec<&'k A>, Vec<&'k B>> {
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        all.iter().for_each(|any| match any {
            Any::SlhDsa(it) => ours.push(it),
            Any::ZkDilithium(it) => others.push(it),
        });
        if all[0].slh_dsa().is_some() { Any::SlhDsa(ours) } else { Any::ZkDilithium(others) }
    }
}

impl<A, B> Any<Key<SlhDsa, A>, Key<ZkDilithium, B>> {
    pub(crate) fn set(&self) -> Set {
        of_scheme!(self, key => Any(key.set))
    }
}

impl<S, K> Key<S, K> {
    pub(crate) fn new(set: S, key: K) -> Key<S, K> {
        Key { set, key: Arc::new(key) }
    }
}

impl PrivateKey {
    pub(crate) fn read(data: &[u8]) -> Result<PrivateKey, Failure> {
        match zk::is_pem_of_zkdilithium(data)? {
            true => Ok(Any::ZkDilithium(Key::new(ZkDilithium, zk::SigningKey::read_pem(data)?))),
            false => Ok(SigningKey::read_pkcs8(data)?.into()),
        }
    }
}

impl From<SigningKey> for PrivateKey {
    fn from(key: SigningKey) -> PrivateKey {
        Any::SlhDsa(Key::new(key.params().into(), key))
    }
}

impl PublicKey {
    pub(crate) fn read(data: &[u8]) -> Result<PublicKey, Failure> {
        if zk::is_pem_of_zkdilithium(data)? {
            return Ok(Any::ZkDilithium(Key::new(ZkDilithium, zk::VerifyingKey::read_pem(data)?)));
        }
        let key = VerifyingKey::read_spki(data)?;
        Ok(Any::SlhDsa(Key::new(key.params().into(), key)))
    }
}

impl Set {
    /// The sets that C has numbers for: those with an object identifier, and zkDilithium.
    pub(crate) fn all() -> impl Iterator<Item = Set> {
        let numbered = PARAMETER_SETS.iter().filter(|p| p.oid_arc().is_some());
        numbered.map(|p| Any::SlhDsa((*p).into())).chain([Any::ZkDilithium(ZkDilithium)])
    }

    /// The set of a number.
    pub(crate) fn of(number: u32) -> Result<Set, Failure> {
        let known = Set::all().find(|set| set.number() == number);
        known.ok_or_else(|| Failure::bad_input(format!("set {number}: there is no such set")))
    }

    /// The set of a name, also if it has no number.
    pub(crate) fn named(name: &str) -> Result<Set, Failure> {
        match name.eq_ignore_ascii_case(ZkDilithium.name()) {
            true => Ok(Any::ZkDilithium(ZkDilithium)),
            false => {
                let params: &hypergrove::Params =
                    name.parse().map_err(|why: UnknownSet| Failure::bad_input(why.to_string()))?;
                Ok(Any::SlhDsa(params.into()))
            }
        }
    }

    pub(crate) fn number(self) -> u32 {
        of_scheme!(self, set => set.number())
    }

    pub(crate) fn name(self) -> &'static str {
        of_scheme!(self, set => set.name())
    }

    pub(crate) fn sizes(self) -> Sizes {
        of_scheme!(self, set => set.sizes())
    }
}
