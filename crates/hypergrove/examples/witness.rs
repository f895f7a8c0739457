//! zkDilithium with a witness: what a proof of possession takes of a signature.

use hypergrove::Engine;
use hypergrove::zkdilithium::{Message, SignJob, SigningKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    let key = SigningKey::generate()?;
    let public = key.verifying_key();
    let statement = &b"I was there"[..];

    let signature = key.sign_message(Message::Bytes(statement))?;
    assert!(public.is_strictly_valid(Message::Bytes(statement), signature.as_bytes()));

    // With A, z, t and c as plain polynomials, A·z − t·c = w + (X²⁵⁶ + 1)·quotient. A circuit checks that, the norm of z, and the hash
    // that makes c of w and the message.
    let witness = public.witness(signature.as_bytes()).ok_or("not a signature by its length or norm")?;
    println!(
        "c̃: {} field elements, z and w: {} and {} polynomials",
        witness.c_tilde.len(),
        witness.z.len(),
        witness.w.len()
    );

    // Many signatures: the engine fills the lanes, or a GPU that is named.
    let jobs = (0..64_u32).map(|i| SignJob::new(&key, i.to_le_bytes().to_vec()));
    let mut witnesses = 0;
    engine.sign_batch(jobs, |_, signature| {
        witnesses += usize::from(signature.is_ok_and(|it| public.witness(it.as_bytes()).is_some()));
    })?;
    println!("{witnesses} more witnesses");
    assert_eq!(witnesses, 64);
    Ok(())
}
