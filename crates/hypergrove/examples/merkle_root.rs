//! A Merkle root (RFC 9162, 2.1.1) over many records is signed: one signature for all of them.
//!
//! `cargo run --release --example merkle_root -- 1000000`; without a number, 10,000.

use hypergrove::{Engine, MerkleTree, Mode, Randomizer, SLH_DSA_SHA2_128S};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse())?;
    let engine = Engine::new()?;

    // A leaf is SHA-256(0x00 ‖ record). The stream hashes records as they come, in batches that fill the device.
    let mut tree = MerkleTree::new(&engine);
    let mut pushed = Ok(());
    let mut leaves =
        engine.sha256_stream(|_, leaf| pushed = std::mem::replace(&mut pushed, Ok(())).and(tree.push(leaf)));
    for record in 0..count {
        let text = format!("record {record}");
        leaves.push(&[&[MerkleTree::LEAF], text.as_bytes()].concat())?;
    }
    leaves.finish()?;
    pushed?;
    let root = tree.root()?;

    let key = engine.generate(&SLH_DSA_SHA2_128S)?;
    let mode = Mode::Pure { context: b"records" };
    let signature = engine.sign(&key, mode, &root, Randomizer::Hedged)?;
    assert!(engine.verify(&key.verifying_key(), mode, &root, signature.as_bytes())?);
    let hex: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{count} records, root {hex}, {} bytes of signature", signature.as_bytes().len());
    Ok(())
}
