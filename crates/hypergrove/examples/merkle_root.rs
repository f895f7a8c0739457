//! A Merkle root (RFC 9162, 2.1.1) over many records is signed: one signature for all of them.
//!
//! `cargo run --release --example merkle_root -- 1000000`; without a number, 10,000.

use hypergrove::rows::{Column, RowStatus};
use hypergrove::{Engine, Error, Mode, Randomizer, SLH_DSA_SHA2_128S};

/// The SHA-256 sum of each message.
fn sums(engine: &Engine, messages: Column<'_>) -> Result<Vec<[u8; 32]>, Error> {
    let mut sums = vec![[0; 32]; messages.rows()];
    engine.sha256_rows(messages, sums.as_flattened_mut(), &mut vec![RowStatus::default(); messages.rows()])?;
    Ok(sums)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse())?;
    let engine = Engine::new()?;

    // A leaf is SHA-256(0x00 ‖ record). All leaves are hashed in one call, so that they fill the device.
    let records: Vec<String> = (0..count).map(|record| format!("\0record {record}")).collect();
    let records: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
    let mut level = sums(&engine, Column::Slices(&records))?;
    while level.len() > 1 {
        // A node is SHA-256(0x01 ‖ left ‖ right). A node without a sibling moves up a level.
        let (pairs, alone) = level.as_chunks::<2>();
        let nodes: Vec<u8> = pairs.iter().flat_map(|pair| [&[1], pair.as_flattened()].concat()).collect();
        let parents = sums(&engine, Column::packed(&nodes, 65))?;
        level = [&parents, alone].concat();
    }
    let root = level.first().ok_or("no records")?;

    let key = engine.generate(&SLH_DSA_SHA2_128S)?;
    let mode = Mode::Pure { context: b"records" };
    let signature = engine.sign(&key, mode, root, Randomizer::Hedged)?;
    assert!(engine.verify(&key.verifying_key(), mode, root, signature.as_bytes())?);
    let hex: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{count} records, root {hex}, {} bytes of signature", signature.as_bytes().len());
    Ok(())
}
