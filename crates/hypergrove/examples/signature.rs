//! One signature: a key, a message, a verdict. The reader gets the public key as PEM.

use hypergrove::pkcs8::{EncodePublicKey, LineEnding};
use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F, VerifyingKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    let key = engine.generate(&SLH_DSA_SHA2_128F)?;
    let pem = key.verifying_key().to_public_key_pem(LineEnding::LF)?;

    // Signer and reader agree on a context: a signature for one purpose is not valid for another.
    let mode = Mode::Pure { context: b"letters" };
    let signature = engine.sign(&key, mode, b"Dear reader", Randomizer::Hedged)?;

    let public = VerifyingKey::from_pem(&pem)?;
    assert!(engine.verify(&public, mode, b"Dear reader", signature.as_bytes())?);
    assert!(!engine.verify(&public, mode, b"Dear writer", signature.as_bytes())?);
    println!("{}: {} bytes, valid", public.params().name, signature.as_bytes().len());
    Ok(())
}
