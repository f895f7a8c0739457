//! Keys to and from OpenSSL: the same PEM files serve both. OpenSSL 3.5 and newer know SLH-DSA; with an older one, or none, this
//! example writes and reads the files alone.

use hypergrove::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F, SigningKey, VerifyingKey};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, process};

/// Runs OpenSSL in the folder; whether it could do what was asked.
fn openssl(folder: &Path, arguments: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace()).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // For this example alone: a program that keeps private keys makes their files with mode 0600.
    let folder = env::temp_dir().join(format!("hypergrove-openssl-{}", process::id()));
    fs::create_dir(&folder)?;
    let result = exchange(&folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn exchange(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    fs::write(folder.join("key.pem"), key.to_pkcs8_pem(LineEnding::LF)?)?;
    fs::write(folder.join("pub.pem"), key.verifying_key().to_public_key_pem(LineEnding::LF)?)?;
    assert_eq!(SigningKey::read_pkcs8(&fs::read(folder.join("key.pem"))?)?, key);

    let message = b"from one to the other";
    fs::write(folder.join("message"), message)?;
    if !openssl(folder, "genpkey -algorithm SLH-DSA-SHA2-128f -out theirs.pem") {
        println!("the keys are written and read; this machine has no OpenSSL that knows SLH-DSA");
        return Ok(());
    }
    // Ours to OpenSSL: it verifies our signature with our public key.
    let signature = engine.sign(&key, Mode::default(), message, Randomizer::Hedged)?;
    fs::write(folder.join("signature"), signature.as_bytes())?;
    assert!(openssl(folder, "pkeyutl -verify -pubin -inkey pub.pem -rawin -in message -sigfile signature"));
    // OpenSSL's to us: we verify its signature with its public key.
    assert!(openssl(folder, "pkey -in theirs.pem -pubout -out theirs-pub.pem"));
    assert!(openssl(folder, "pkeyutl -sign -inkey theirs.pem -rawin -in message -out theirs.sig"));
    let theirs = VerifyingKey::read_spki(&fs::read(folder.join("theirs-pub.pem"))?)?;
    assert!(engine.verify(&theirs, Mode::default(), message, &fs::read(folder.join("theirs.sig"))?)?);
    println!("OpenSSL and hypergrove verified each other's signatures");
    Ok(())
}
