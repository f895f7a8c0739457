//! A million verifications from rows: keys, messages and signatures are columns of records, as a file or a database has them.
//!
//! `cargo run --release --example verify_rows -- 1000000`; without a number, 200.

use hypergrove::rows::{Column, RowSigningKeys, RowStatus, RowVerifyingKeys, SignRows, VerifyRows};
use hypergrove::{Engine, Mode, Randomizer, SLH_DSA_SHA2_128F};
use std::time::Instant;

/// Bytes of a message.
const MESSAGE: usize = 32;
/// Distinct signatures that are made; rows repeat them.
const SIGNED: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(200), |count| count.parse())?;
    let (engine, p) = (Engine::new()?, &SLH_DSA_SHA2_128F);
    let key = engine.generate(p)?;

    // Records to verify: messages that are numbered, and their signatures.
    let messages: Vec<u8> = (0..SIGNED as u64).flat_map(|i| [i; MESSAGE / 8]).flat_map(u64::to_le_bytes).collect();
    let mut signatures = vec![0; SIGNED * p.sig_bytes()];
    let mut signed = vec![RowStatus::default(); SIGNED];
    let rows = SignRows {
        keys: RowSigningKeys::One(&key),
        mode: Mode::default(),
        messages: Column::packed(&messages, MESSAGE),
        randomizer: Randomizer::Hedged,
    };
    engine.sign_rows(&rows, &mut signatures, &mut signed)?;
    assert!(signed.iter().all(|status| *status == RowStatus::Signed));
    // Row 1 is a forgery.
    signatures[p.sig_bytes()] ^= 1;

    // No object is made for a row, and values lie where they are: a row refers to a slice.
    let messages: Vec<&[u8]> = messages.chunks_exact(MESSAGE).cycle().take(count).collect();
    let signatures: Vec<&[u8]> = signatures.chunks_exact(p.sig_bytes()).cycle().take(count).collect();
    let rows = VerifyRows {
        keys: RowVerifyingKeys::One(&key.verifying_key()),
        mode: Mode::default(),
        messages: Column::Slices(&messages),
        signatures: Column::Slices(&signatures),
    };
    let mut statuses = vec![RowStatus::default(); count];
    let start = Instant::now();
    engine.verify_rows(&rows, &mut statuses)?;
    let seconds = start.elapsed().as_secs_f64();

    let invalid = statuses.iter().filter(|status| **status == RowStatus::Invalid).count();
    assert_eq!(invalid, (0..count).filter(|row| row % SIGNED == 1).count());
    println!("{count} rows, {invalid} of them forged: {:.0} a second", count as f64 / seconds);
    Ok(())
}
