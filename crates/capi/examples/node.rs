//! The check of `node.c` by the Rust interface, to compare the rates: `node [RECORDS [SECONDS]]`.

use hypergrove::rows::{Column, RowStatus, RowVerifyingKeys, VerifyRows};
use hypergrove::{Engine, Mode, SLH_DSA_SHA2_128F, SignJob};
use std::time::Instant;

fn main() -> Result<(), hypergrove::Error> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|it| it.parse().ok()).unwrap_or(40);
    let seconds: f64 = arguments.next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let (engine, params) = (Engine::new()?, &SLH_DSA_SHA2_128F);
    let mut keys = Vec::new();
    engine.generate_batch(params, 8, |_, key| keys.push(key))?;

    // Public key, message, signature and eight bytes of the caller's.
    let (width, message) = (params.sig_bytes(), 32);
    let stride = params.pk_bytes() + message + width + 8;
    let mut records = vec![0; count * stride];
    let mut signatures = Vec::new();
    let messages: Vec<[u8; 32]> = (0..count).map(|i| std::array::from_fn(|at| (i >> (8 * (at % 4))) as u8)).collect();
    let jobs = messages.iter().enumerate().map(|(i, message)| SignJob::new(&keys[i % keys.len()], message.as_slice()));
    engine.sign_batch(jobs, |_, signed| signatures.push(signed))?;
    for (i, (record, signature)) in records.chunks_mut(stride).zip(signatures).enumerate() {
        record[..32].copy_from_slice(&keys[i % keys.len()].verifying_key().to_bytes());
        record[32..64].copy_from_slice(&messages[i]);
        record[64..64 + width].copy_from_slice(signature?.as_bytes());
    }

    let column = |from, width| Column::Packed { bytes: &records[from..], width, stride, rows: count };
    let rows = VerifyRows {
        keys: RowVerifyingKeys::Encoded { params, keys: column(0, 32) },
        mode: Mode::default(),
        messages: column(32, message),
        signatures: column(64, width),
    };
    let mut statuses = vec![RowStatus::default(); count];
    engine.verify_rows(&rows, &mut statuses)?;
    assert!(statuses.iter().all(|status| *status == RowStatus::Valid));
    if seconds > 0.0 {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < seconds {
            engine.verify_rows(&rows, &mut statuses)?;
            calls += 1;
        }
        println!("{:.0} verifications/s", (calls * count) as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}
