//! Private and public keys of both schemes.

use crate::engine::Engine;
use crate::failure::{Failure, Status, call, value};
use crate::pointers::{Handle, In, Out, OutHandle, c_structs, put_bytes};
use crate::sets::Set;
use hypergrove::pkcs8::spki::EncodePublicKey;
use hypergrove::pkcs8::{EncodePrivateKey, LineEnding};
use hypergrove::{EncryptedSigningKey, Error, KeyError, PassphraseKdf, SigningKey, VerifyingKey, zkdilithium as zk};
use std::sync::Arc;

c_structs! {
    /// `hg_cache_options`.
    CacheOptions is "hg_cache_options" {
        size: usize,
        memory: u64,
        layers: u32,
        reserved: u32,
    }
}

/// `hg_private_key`. Queued jobs share it.
pub(crate) enum PrivateKey {
    SlhDsa(Arc<SigningKey>),
    ZkDilithium(Arc<zk::SigningKey>),
}

/// `hg_public_key`. Queued jobs share it.
pub(crate) enum PublicKey {
    SlhDsa(Arc<VerifyingKey>),
    ZkDilithium(Arc<zk::VerifyingKey>),
}

impl PrivateKey {
    pub(crate) fn set(&self) -> Set {
        match self {
            PrivateKey::SlhDsa(key) => Set::SlhDsa(key.params()),
            PrivateKey::ZkDilithium(_) => Set::ZkDilithium,
        }
    }
}

impl PublicKey {
    pub(crate) fn set(&self) -> Set {
        match self {
            PublicKey::SlhDsa(key) => Set::SlhDsa(key.params()),
            PublicKey::ZkDilithium(_) => Set::ZkDilithium,
        }
    }
}

/// How a key is written.
enum Format {
    Raw,
    Der,
    Pem,
}

impl Format {
    fn of(number: u32) -> Result<Format, Failure> {
        match number {
            1 => Ok(Format::Raw),
            2 => Ok(Format::Der),
            3 => Ok(Format::Pem),
            _ => Err(Failure::bad_input(format!("format {number}: it is none of HG_RAW, HG_DER and HG_PEM"))),
        }
    }
}

/// The keys of a set without an object identifier have no such encoding.
fn no_encoding(set: Set) -> Failure {
    Failure::unsupported(format!("{}: its keys have no encoding in DER; use HG_RAW or HG_PEM", set.name()))
}

/// Whether the data begin as PEM with this label. Nothing else of them is looked at: they may be secret.
fn begins_as(data: &[u8], label: &str) -> bool {
    let begin = data.trim_ascii_start().strip_prefix(b"-----BEGIN ");
    begin.is_some_and(|rest| rest.starts_with(label.as_bytes()))
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_generate(engine: In<Engine>, set: u32, mut key: OutHandle<PrivateKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let engine = engine.get("engine")?;
        place.fill(match Set::of(set)? {
            Set::SlhDsa(p) => PrivateKey::SlhDsa(engine.slh_dsa.generate(p)?.into()),
            Set::ZkDilithium => PrivateKey::ZkDilithium(engine.zkdilithium.generate()?.into()),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_read(data: In<u8>, length: usize, mut key: OutHandle<PrivateKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let data = data.slice(length, "data")?;
        place.fill(match begins_as(data, zk::PRIVATE_LABEL) {
            true => PrivateKey::ZkDilithium(zk::SigningKey::read_pem(data)?.into()),
            false => match SigningKey::read_pkcs8(data) {
                Ok(key) => PrivateKey::SlhDsa(key.into()),
                Err(_) if EncryptedSigningKey::looks_like_it(data) => return Err(KeyError::Encrypted.into()),
                Err(why) => return Err(why.into()),
            },
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_read_encrypted(
    data: In<u8>,
    length: usize,
    passphrase: In<u8>,
    passphrase_length: usize,
    mut key: OutHandle<PrivateKey>,
) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let encrypted = EncryptedSigningKey::read(data.slice(length, "data")?)?;
        let passphrase = passphrase.slice(passphrase_length, "passphrase")?;
        place.fill(PrivateKey::SlhDsa(SigningKey::decrypt(&encrypted, passphrase)?.into()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_read(data: In<u8>, length: usize, mut key: OutHandle<PublicKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let data = data.slice(length, "data")?;
        place.fill(match begins_as(data, zk::PUBLIC_LABEL) {
            true => PublicKey::ZkDilithium(zk::VerifyingKey::read_pem(data)?.into()),
            false => PublicKey::SlhDsa(VerifyingKey::read_spki(data)?.into()),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_from_raw(set: u32, data: In<u8>, length: usize, mut key: OutHandle<PrivateKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let data = data.slice(length, "data")?;
        place.fill(match Set::of(set)? {
            Set::SlhDsa(p) => PrivateKey::SlhDsa(SigningKey::from_bytes(p, data)?.into()),
            Set::ZkDilithium => PrivateKey::ZkDilithium(zk::SigningKey::from_bytes(data)?.into()),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_from_raw(set: u32, data: In<u8>, length: usize, mut key: OutHandle<PublicKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        let data = data.slice(length, "data")?;
        place.fill(match Set::of(set)? {
            Set::SlhDsa(p) => PublicKey::SlhDsa(VerifyingKey::from_bytes(p, data)?.into()),
            Set::ZkDilithium => PublicKey::ZkDilithium(zk::VerifyingKey::from_bytes(data)?.into()),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_of(private_key: In<PrivateKey>, mut key: OutHandle<PublicKey>) -> Status {
    call(|| {
        let place = key.clear("key")?;
        place.fill(match private_key.get("private_key")? {
            PrivateKey::SlhDsa(key) => PublicKey::SlhDsa(key.verifying_key().into()),
            PrivateKey::ZkDilithium(key) => PublicKey::ZkDilithium(key.verifying_key().into()),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_check(engine: In<Engine>, key: In<PrivateKey>) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        match key.get("key")? {
            PrivateKey::SlhDsa(key) => Ok(engine.slh_dsa.check(key)?),
            PrivateKey::ZkDilithium(key) => {
                Ok(key.check().map_err(|why| Error::KeyDamaged { what: why.to_string() })?)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_cache(
    engine: In<Engine>,
    key: In<PrivateKey>,
    options: In<CacheOptions>,
    mut cached: OutHandle<PrivateKey>,
) -> Status {
    call(|| {
        let place = cached.clear("cached")?;
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let PrivateKey::SlhDsa(key) = key else {
            let text = "zkDilithium: its keys have no layers that could be cached; sign with the key as it is";
            return Err(Failure::unsupported(text.into()));
        };
        if options.reserved != 0 {
            return Err(Failure::unsupported(format!("reserved: it is {}; it must be 0", options.reserved)));
        }
        let engine = &engine.slh_dsa;
        let cached = match (options.layers, options.memory) {
            (0, 0) => engine.cache(key, 1)?,
            (layers, 0) => engine.cache(key, layers as usize)?,
            (0, memory) => engine.cache_within(key, usize::try_from(memory).unwrap_or(usize::MAX))?,
            (layers, memory) => {
                let text =
                    format!("layers and memory: they are {layers} and {memory}; give one of them, and 0 for the other");
                return Err(Failure::bad_input(text));
            }
        };
        place.fill(PrivateKey::SlhDsa(cached.into()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_cached_layers(key: In<PrivateKey>) -> u32 {
    value(0, || match key.get("key") {
        // No set has more layers than a u32 counts.
        Ok(PrivateKey::SlhDsa(key)) => key.cached_layers() as u32,
        Ok(PrivateKey::ZkDilithium(_)) | Err(_) => 0,
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_write(
    key: In<PrivateKey>,
    format: u32,
    mut out: Out<u8>,
    room: usize,
    mut length: Out<usize>,
) -> Status {
    call(|| {
        let key = key.get("key")?;
        let mut put = |bytes: &[u8]| put_bytes(bytes, &mut out, room, &mut length);
        let no_der = |_| no_encoding(key.set());
        match (Format::of(format)?, key) {
            (Format::Raw, PrivateKey::SlhDsa(key)) => put(&key.to_bytes()),
            (Format::Der, PrivateKey::SlhDsa(key)) => put(key.to_pkcs8_der().map_err(no_der)?.as_bytes()),
            (Format::Pem, PrivateKey::SlhDsa(key)) => put(key.to_pkcs8_pem(LineEnding::LF).map_err(no_der)?.as_bytes()),
            (Format::Raw, PrivateKey::ZkDilithium(key)) => put(&key.to_bytes()),
            (Format::Der, PrivateKey::ZkDilithium(_)) => Err(no_encoding(Set::ZkDilithium)),
            (Format::Pem, PrivateKey::ZkDilithium(key)) => put(key.to_pem().as_bytes()),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_write_encrypted(
    key: In<PrivateKey>,
    passphrase: In<u8>,
    passphrase_length: usize,
    format: u32,
    mut out: Out<u8>,
    room: usize,
    mut length: Out<usize>,
) -> Status {
    call(|| {
        let passphrase = passphrase.slice(passphrase_length, "passphrase")?;
        if passphrase.is_empty() {
            return Err(Failure::bad_input("passphrase: it is empty; give one".into()));
        }
        let key = key.get("key")?;
        let encrypted = match (Format::of(format)?, key) {
            (Format::Raw, _) => return Err(Failure::bad_input("format: use HG_DER or HG_PEM".into())),
            (_, PrivateKey::ZkDilithium(_)) => {
                return Err(Failure::unsupported("zkDilithium: no encoding of its keys has a passphrase".into()));
            }
            (Format::Der, PrivateKey::SlhDsa(key)) => {
                key.encrypt(passphrase, PassphraseKdf::Scrypt)?.to_der()?.into_vec()
            }
            (Format::Pem, PrivateKey::SlhDsa(key)) => {
                key.encrypt(passphrase, PassphraseKdf::Scrypt)?.to_pem(LineEnding::LF)?.into_bytes()
            }
        };
        put_bytes(&encrypted, &mut out, room, &mut length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_write(
    key: In<PublicKey>,
    format: u32,
    mut out: Out<u8>,
    room: usize,
    mut length: Out<usize>,
) -> Status {
    call(|| {
        let key = key.get("key")?;
        let mut put = |bytes: &[u8]| put_bytes(bytes, &mut out, room, &mut length);
        let no_der = |_| no_encoding(key.set());
        match (Format::of(format)?, key) {
            (Format::Raw, PublicKey::SlhDsa(key)) => put(&key.to_bytes()),
            (Format::Der, PublicKey::SlhDsa(key)) => put(key.to_public_key_der().map_err(no_der)?.as_bytes()),
            (Format::Pem, PublicKey::SlhDsa(key)) => {
                put(key.to_public_key_pem(LineEnding::LF).map_err(no_der)?.as_bytes())
            }
            (Format::Raw, PublicKey::ZkDilithium(key)) => put(key.as_bytes()),
            (Format::Der, PublicKey::ZkDilithium(_)) => Err(no_encoding(Set::ZkDilithium)),
            (Format::Pem, PublicKey::ZkDilithium(key)) => put(key.to_pem().as_bytes()),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_set(key: In<PrivateKey>) -> u32 {
    value(0, || key.get("key").map_or(0, |key| key.set().number()))
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_set(key: In<PublicKey>) -> u32 {
    value(0, || key.get("key").map_or(0, |key| key.set().number()))
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_free(key: Handle<PrivateKey>) {
    value((), || key.free());
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_free(key: Handle<PublicKey>) {
    value((), || key.free());
}
