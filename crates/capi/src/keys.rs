//! Private and public keys.

use crate::failure::{Failure, Status, call, value};
use crate::pointers::{Handle, In, Out, OutHandle, c_structs, made, put_bytes};
use crate::schemes::{Format, InC, Key, KeyRef, PrivateKey, PublicKey, Set, of_scheme};
use hypergrove::pkcs8::LineEnding;
use hypergrove::{EncryptedSigningKey, Engine, PassphraseKdf, SigningKey};
use zeroize::Zeroizing;

c_structs! {
    /// `hg_cache_options`.
    CacheOptions is "hg_cache_options" {
        size: usize,
        memory: u64,
        layers: u32,
        reserved: u32,
    }
}

/// A key as C asks for it. The keys of a set without an object identifier have no DER.
fn encoded<S: InC>(set: S, key: KeyRef<'_, S>, format: u32) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let encoded = S::encoded(key, Format::of(format)?);
    let why = || format!("{}: its keys have no encoding in DER; use HG_RAW or HG_PEM", set.name());
    encoded.ok_or_else(|| Failure::unsupported(why()))
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_generate(engine: In<Engine>, set: u32, key: OutHandle<PrivateKey>) -> Status {
    made(key, "key", || {
        let engine = engine.get("engine")?;
        Ok(of_scheme!(Set::of(set)?, set => Any(Key::new(set, engine.generate(set)?))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_read(data: In<u8>, length: usize, key: OutHandle<PrivateKey>) -> Status {
    made(key, "key", || PrivateKey::read(data.slice(length, "data")?))
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_read_encrypted(
    data: In<u8>,
    length: usize,
    passphrase: In<u8>,
    passphrase_length: usize,
    key: OutHandle<PrivateKey>,
) -> Status {
    made(key, "key", || {
        let encrypted = EncryptedSigningKey::read(data.slice(length, "data")?)?;
        let passphrase = passphrase.slice(passphrase_length, "passphrase")?;
        Ok(SigningKey::decrypt(&encrypted, passphrase)?.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_read(data: In<u8>, length: usize, key: OutHandle<PublicKey>) -> Status {
    made(key, "key", || PublicKey::read(data.slice(length, "data")?))
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_from_raw(set: u32, data: In<u8>, length: usize, key: OutHandle<PrivateKey>) -> Status {
    made(key, "key", || {
        let data = data.slice(length, "data")?;
        Ok(of_scheme!(Set::of(set)?, set => Any(Key::new(set, set.private_from_raw(data)?))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_from_raw(set: u32, data: In<u8>, length: usize, key: OutHandle<PublicKey>) -> Status {
    made(key, "key", || {
        let data = data.slice(length, "data")?;
        Ok(of_scheme!(Set::of(set)?, set => Any(Key::new(set, set.public_from_raw(data)?))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_public_key_of(private_key: In<PrivateKey>, key: OutHandle<PublicKey>) -> Status {
    made(key, "key", || {
        Ok(of_scheme!(private_key.get("private_key")?, of => Any(Key::new(of.set, of.key.verifying_key()))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_check(engine: In<Engine>, key: In<PrivateKey>) -> Status {
    call(|| {
        let engine = engine.get("engine")?;
        of_scheme!(key.get("key")?, of => of.set.check_key(&of.key, engine))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_cache(
    engine: In<Engine>,
    key: In<PrivateKey>,
    options: In<CacheOptions>,
    cached: OutHandle<PrivateKey>,
) -> Status {
    made(cached, "cached", || {
        let (engine, key, options) = (engine.get("engine")?, key.get("key")?, options.versioned("options")?);
        let Some(Key { key, .. }) = key.slh_dsa() else {
            let set = key.set().name();
            let text = format!("{set}: its keys have no layers that could be cached; sign with the key as it is");
            return Err(Failure::unsupported(text));
        };
        if options.reserved != 0 {
            return Err(Failure::unsupported(format!("reserved: it is {}; it must be 0", options.reserved)));
        }
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
        Ok(cached.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hg_private_key_cached_layers(key: In<PrivateKey>) -> u32 {
    // No set has more layers than a u32 counts.
    let layers = |key: &PrivateKey| key.slh_dsa().map_or(0, |of| of.key.cached_layers() as u32);
    value(0, || key.get("key").map_or(0, layers))
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
        let bytes = of_scheme!(key, of => encoded(of.set, KeyRef::Private(&*of.key), format)?);
        put_bytes(&bytes, &mut out, room, &mut length)
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
        let format = Format::of(format)?;
        if matches!(format, Format::Raw) {
            return Err(Failure::bad_input("format: use HG_DER or HG_PEM".into()));
        }
        let Some(Key { key, .. }) = key.slh_dsa() else {
            let text = format!("{}: no encoding of its keys has a passphrase", key.set().name());
            return Err(Failure::unsupported(text));
        };
        let encrypted = key.encrypt(passphrase, PassphraseKdf::Scrypt)?;
        let encrypted = match format {
            Format::Pem => encrypted.to_pem(LineEnding::LF)?.into_bytes(),
            _ => encrypted.to_der()?.into_vec(),
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
        let bytes = of_scheme!(key, of => encoded(of.set, KeyRef::Public(&*of.key), format)?);
        put_bytes(&bytes, &mut out, room, &mut length)
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
