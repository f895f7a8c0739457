//! Private keys under a passphrase: OpenSSL's are read, what is written is read again, and what would take for ever is refused.
#![cfg(feature = "encryption")]

use hypergrove_fips205::{EncryptedSigningKey, KeyError, PassphraseKdf, SLH_DSA_SHA2_128F, SigningKey};
use hypergrove_testkit::forms::forms;
use pkcs8::der::Encode;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::pkcs5::pbes2::{EncryptionScheme, Kdf, Parameters, Pbkdf2Params, Pbkdf2Prf, Salt, ScryptParams};
use pkcs8::{DecodePrivateKey, EncryptedPrivateKeyInfoRef, LineEnding};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PASSPHRASE: &[u8] = b"correct_horse";

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/slh-dsa/encrypted").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every form of PEM is read or refused as that of a plain key is, and nobody takes it for a plain key.
#[test]
fn forms_of_pem_are_read_or_refused() {
    let (plain, pem) = (SigningKey::read_pkcs8(&file("key.pem")).unwrap(), file("scrypt-aes-256.pem"));
    let public = plain.verifying_key().write_spki().unwrap().to_pem("PUBLIC KEY", LineEnding::LF).unwrap();
    for form in forms(str::from_utf8(&pem).unwrap(), &public) {
        let (read, as_plain) = (EncryptedSigningKey::read(&form.file), SigningKey::read_pkcs8(&form.file).unwrap_err());
        match form.refused {
            None => {
                assert!(EncryptedSigningKey::looks_like_it(&form.file), "{}", form.name);
                assert_eq!(
                    (read.unwrap().decrypt(PASSPHRASE), as_plain),
                    (Ok(plain.clone()), KeyError::Encrypted),
                    "{}",
                    form.name
                );
            }
            Some(why) => {
                assert!(
                    [read.unwrap_err(), as_plain].iter().all(|error| error.to_string().contains(why)),
                    "{}",
                    form.name
                );
            }
        }
    }
    let mut bytes = plain.to_bytes();
    bytes[60] ^= 1;
    let other = SigningKey::from_bytes(plain.params(), &bytes).unwrap().verifying_key();
    let other = other.write_spki().unwrap().to_pem("PUBLIC KEY", LineEnding::LF).unwrap();
    let mixed = EncryptedSigningKey::read(&[&pem[..], other.as_bytes()].concat()).unwrap();
    assert_eq!(mixed.decrypt(PASSPHRASE), Err(KeyError::PublicKeyMismatch { set: plain.params().name }));
    let both = EncryptedSigningKey::read(&[pem, file("key.pem")].concat());
    assert!(both.unwrap_err().to_string().contains("a private key and an encrypted one"));
}

#[test]
fn keys_that_others_encrypted_are_read() {
    let plain = SigningKey::read_pkcs8(&file("key.pem")).unwrap();
    for (name, scheme) in [
        ("scrypt-aes-256.pem", "scrypt (N = 16384, r = 8, p = 1), AES-256-CBC"),
        ("scrypt-aes-128.der", "scrypt (N = 1024, r = 4, p = 2), AES-128-CBC"),
        ("pbkdf2-sha256-aes-192.pem", "PBKDF2 (HMAC-SHA-256, 2048 iterations), AES-192-CBC"),
        ("pbkdf2-sha512-aes-256.pem", "PBKDF2 (HMAC-SHA-512, 10000 iterations), AES-256-CBC"),
        ("pbkdf2-sha384-aes-128.der", "PBKDF2 (HMAC-SHA-384, 2048 iterations), AES-128-CBC"),
        ("empty-passphrase.pem", "PBKDF2 (HMAC-SHA-256, 2048 iterations), AES-256-CBC"),
        ("bouncycastle-scrypt-aes-256.pem", "scrypt (N = 16384, r = 8, p = 1), AES-256-CBC"),
        ("bouncycastle-pbkdf2-sha512-aes-128.pem", "PBKDF2 (HMAC-SHA-512, 10000 iterations), AES-128-CBC"),
    ] {
        let bytes = file(name);
        assert!(EncryptedSigningKey::looks_like_it(&bytes), "{name}");
        let encrypted = EncryptedSigningKey::read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(encrypted.to_string(), scheme);
        let passphrase = if name.starts_with("empty") { b"" } else { PASSPHRASE };
        assert_eq!(encrypted.decrypt(passphrase).as_ref(), Ok(&plain), "{name}");
        assert_eq!(encrypted.decrypt(b"correct_horse\n"), Err(KeyError::Passphrase), "{name}");
        // Read and written again, it is the same.
        let der = encrypted.to_der().unwrap();
        if name.ends_with(".der") {
            assert_eq!(der.as_bytes(), bytes, "{name}");
        } else {
            assert_eq!(encrypted.to_pem(LineEnding::LF).unwrap().into_bytes(), bytes, "{name}");
        }
    }
    for name in ["key.pem", "key.pub.pem", "README.md"] {
        assert!(!EncryptedSigningKey::looks_like_it(&file(name)), "{name}");
        assert!(EncryptedSigningKey::read(&file(name)).is_err(), "{name}");
    }
}

#[test]
fn schemes_that_are_not_read_are_named() {
    for (name, scheme) in [
        ("refused-pbkdf2-sha1.pem", "PBKDF2 with HMAC-SHA-1"),
        ("refused-des3.pem", "DES-EDE3-CBC"),
        ("refused-camellia.pem", "the algorithm 1.2.392.200011.61.1.1.1.4"),
        ("refused-pkcs12-3des.pem", "PKCS#12's SHA-1 and 3DES"),
    ] {
        assert!(EncryptedSigningKey::looks_like_it(&file(name)), "{name}");
        let refused = EncryptedSigningKey::read(&file(name)).unwrap_err();
        assert_eq!(refused, KeyError::Encryption { scheme: scheme.into() }, "{name}");
    }
}

#[test]
fn what_is_encrypted_is_read_again() {
    let key = SigningKey::read_pkcs8(&file("key.pem")).unwrap();
    for kdf in [PassphraseKdf::Scrypt, PassphraseKdf::Pbkdf2] {
        let encrypt = |salt| EncryptedSigningKey::encrypt(&key, PASSPHRASE, kdf, &[salt; 16], [2; 16]).unwrap();
        let encrypted = encrypt(1);
        assert_ne!(encrypt(3), encrypted);
        let der = encrypted.to_der().unwrap();
        let pem = encrypted.to_pem(LineEnding::LF).unwrap();
        assert_eq!(EncryptedSigningKey::read(der.as_bytes()).as_ref(), Ok(&encrypted));
        assert_eq!(EncryptedSigningKey::read(pem.as_bytes()).as_ref(), Ok(&encrypted));
        assert_eq!(encrypted.decrypt(PASSPHRASE).as_ref(), Ok(&key));
        // The crate `pkcs8` reads it through its trait.
        assert_eq!(SigningKey::from_pkcs8_encrypted_pem(&pem, PASSPHRASE).as_ref(), Ok(&key));
        assert_eq!(SigningKey::read_pkcs8(pem.as_bytes()), Err(KeyError::Encrypted));
        for wrong in [&b""[..], b"correct_hors", b"Correct_horse"] {
            assert_eq!(encrypted.decrypt(wrong), Err(KeyError::Passphrase));
        }
        // No prefix is taken for a whole, and no end of another length.
        for end in 0..der.as_bytes().len() {
            assert!(EncryptedSigningKey::read(&der.as_bytes()[..end]).is_err(), "the first {end} bytes");
        }
        assert!(EncryptedSigningKey::read(&[der.as_bytes(), &[0]].concat()).is_err());
        // Data that were changed are no key, whatever the padding says.
        let mut bytes = der.as_bytes().to_vec();
        let at = bytes.len() - 33;
        bytes[at] ^= 1;
        assert_ne!(EncryptedSigningKey::read(&bytes).unwrap().decrypt(PASSPHRASE), Ok(key.clone()));
    }
}

/// The DER of a key with these parameters, and data that nobody can decrypt.
fn with_kdf(kdf: Kdf) -> Vec<u8> {
    let parameters = Parameters { kdf, encryption: EncryptionScheme::Aes256Cbc { iv: [0; 16] } };
    let data = OctetStringRef::new(&[7; 96]).unwrap();
    EncryptedPrivateKeyInfoRef { encryption_algorithm: parameters.into(), encrypted_data: data }.to_der().unwrap()
}

fn scrypt(cost_parameter: u64, block_size: u16, parallelization: u16) -> Vec<u8> {
    let salt = Salt::new([1; 16]).unwrap();
    with_kdf(ScryptParams { salt, cost_parameter, block_size, parallelization, key_length: None }.into())
}

fn pbkdf2(iteration_count: u32) -> Vec<u8> {
    let salt = Salt::new([1; 16]).unwrap();
    let prf = Pbkdf2Prf::HmacWithSha256;
    with_kdf(Pbkdf2Params { salt, iteration_count, key_length: None, prf }.into())
}

/// As [`with_kdf`], with numbers that have no room in the types above: `kdf` is a function's identifier, and `numbers` follow the salt.
fn with_numbers(kdf: &[u8], numbers: &[&[u8]]) -> Vec<u8> {
    let tlv = |tag: u8, parts: &[&[u8]]| {
        let value = parts.concat();
        let length = u8::try_from(value.len()).unwrap();
        let header = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
        [header, value].concat()
    };
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| tlv(2, &[number])).collect();
    let salt = tlv(4, &[&[1; 16]]);
    let kdf = tlv(0x30, &[&tlv(6, &[kdf]), &tlv(0x30, &[&salt, &numbers])]);
    let cipher = tlv(0x30, &[b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x01\x2a", &tlv(4, &[&[0; 16]])]);
    let scheme = tlv(0x30, &[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d", &tlv(0x30, &[&kdf, &cipher])]);
    tlv(0x30, &[&scheme, &tlv(4, &[&[7; 96]])])
}

const SCRYPT: &[u8] = b"\x2b\x06\x01\x04\x01\xda\x47\x04\x0b";
const PBKDF2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c";

/// They are within N·r and N·r·p, or far above: both times it is the number that is refused, and not the file.
#[test]
fn costs_without_room_are_named() {
    assert_eq!(with_numbers(SCRYPT, &[&[2], &[1], &[1]]), scrypt(2, 1, 1));
    for (kdf, numbers, cost, limit) in [
        (SCRYPT, &[&[2][..], &[1, 0, 0], &[1]][..], "scrypt with r = 65536", "r = 65535"),
        (SCRYPT, &[&[2], &[1], &[1, 0, 0]], "scrypt with p = 65536", "p = 65535"),
        (SCRYPT, &[&[2], &[1], &[0x20, 0, 0]], "scrypt with p = 2097152", "p = 65535"),
        (SCRYPT, &[&[1, 0, 0, 0, 0, 0, 0, 0, 0], &[8], &[1]], "scrypt with N = 18446744073709551616", "N·r = 2097152"),
        (SCRYPT, &[&[2], &[1; 17], &[1]], "scrypt with r = a number above 2^128", "r = 65535"),
        (PBKDF2, &[&[1, 0, 0, 0, 0]], "PBKDF2 with iterations = 4294967296", "10000000"),
    ] {
        let refused = EncryptedSigningKey::read(&with_numbers(kdf, numbers)).unwrap_err();
        assert_eq!(refused, KeyError::Costly { cost: cost.into(), limit: limit.into() });
        let text = format!("this encrypted private key asks for {cost}, at most {limit} is computed");
        assert_eq!(refused.to_string(), text);
    }
    assert!(EncryptedSigningKey::read(&with_numbers(SCRYPT, &[&[2], &[0, 0xff, 0xff], &[16]])).is_ok());
}

/// A file decides how long its reader computes: hostile ones are refused before anything is computed.
#[test]
fn costs_are_bounded() {
    let start = Instant::now();
    for hostile in [
        scrypt(1 << 63, 8, 1),
        scrypt(1 << 30, 8, 1),
        scrypt(1 << 19, 8, 1),
        scrypt(2, u16::MAX, u16::MAX),
        scrypt(1 << 18, 8, 5),
        scrypt(1 << 10, 8, u16::MAX),
        pbkdf2(10_000_001),
        pbkdf2(u32::MAX),
    ] {
        let refused = EncryptedSigningKey::read(&hostile).unwrap_err();
        assert!(matches!(refused, KeyError::Costly { .. }), "{refused}");
        assert!(refused.to_string().contains("at most"), "{refused}");
    }
    for nonsense in [scrypt(0, 8, 1), scrypt(1, 8, 1), scrypt(3, 8, 1), scrypt(16, 0, 1), scrypt(16, 8, 0), pbkdf2(0)] {
        let refused = EncryptedSigningKey::read(&nonsense).unwrap_err();
        assert!(matches!(refused, KeyError::Malformed { .. }), "{refused}");
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    for allowed in [scrypt(1 << 18, 8, 4), scrypt(1 << 17, 8, 1), pbkdf2(10_000_000)] {
        assert!(EncryptedSigningKey::read(&allowed).is_ok());
    }
    // The smallest are computed.
    for small in [scrypt(2, 1, 1), pbkdf2(1)] {
        assert_eq!(EncryptedSigningKey::read(&small).unwrap().decrypt(PASSPHRASE), Err(KeyError::Passphrase));
    }
}

/// A key that decrypts and is another scheme's is called that, and no wrong passphrase.
#[test]
fn what_was_encrypted_is_judged_as_a_key() {
    let key = SigningKey::read_pkcs8(&file("key.pem")).unwrap();
    let mut der = key.write_pkcs8().unwrap().as_bytes().to_vec();
    let at = der.windows(8).position(|bytes| bytes == [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03]).unwrap() + 8;
    der[at] = 99;
    let parameters: Parameters = Parameters {
        kdf: ScryptParams {
            salt: Salt::new([1; 16]).unwrap(),
            cost_parameter: 2,
            block_size: 1,
            parallelization: 1,
            key_length: None,
        }
        .into(),
        encryption: EncryptionScheme::Aes128Cbc { iv: [0; 16] },
    };
    let data = parameters.encrypt(PASSPHRASE, &der).unwrap();
    let encrypted_data = OctetStringRef::new(&data).unwrap();
    let bytes =
        EncryptedPrivateKeyInfoRef { encryption_algorithm: parameters.into(), encrypted_data }.to_der().unwrap();
    let refused = EncryptedSigningKey::read(&bytes).unwrap().decrypt(PASSPHRASE).unwrap_err();
    assert_eq!(refused, KeyError::UnknownOid { oid: "2.16.840.1.101.3.4.3.99".into() });
    // Some of these give bytes that end as padding does.
    for wrong in 0..1000 {
        let refused = EncryptedSigningKey::read(&bytes).unwrap().decrypt(format!("{wrong}").as_bytes());
        assert_eq!(refused, Err(KeyError::Passphrase), "{wrong}");
    }
    assert_eq!(key.params(), &SLH_DSA_SHA2_128F);
}
