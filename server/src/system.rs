//! The server's own paths: its health, its seal, and its description.

use crate::api::{Call, Reply};
use crate::audit::Entry;
use crate::error::Error;
use crate::fields::parse;
use crate::refused::Rare;
use crate::seal::random;
use crate::state::{Opened, Server};
use serde::Deserialize;
use serde_json::json;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The description of the API, which `GET sys/internal/specs/openapi` gives.
pub const OPEN_API: &str = include_str!("openapi.json");

/// A random identifier for a request, as a UUID.
pub fn request_id() -> Result<String, Error> {
    let mut bytes = random::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(bytes);
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// `GET sys/health`: 200, or 503 while the server is sealed.
pub fn health(server: &Server) -> Reply {
    let sealed = server.is_sealed();
    let body = json!({
        "initialized": true, "sealed": sealed, "standby": false, "performance_standby": false,
        "server_time_utc": crate::access::now(), "version": env!("CARGO_PKG_VERSION"),
    });
    Reply::bare(if sealed { 503 } else { 200 }, body)
}

/// `GET sys/seal-status`
pub fn seal_status(server: &Server) -> Reply {
    let sealed = server.is_sealed();
    Reply::bare(
        200,
        json!({
            "type": "passphrase", "initialized": true, "sealed": sealed, "t": 1, "n": 1, "progress": 0, "nonce": "",
            "version": env!("CARGO_PKG_VERSION"), "migration": false, "recovery_seal": false, "storage_type": "sqlite",
        }),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsealRequest {
    key: Option<String>,
    reset: Option<bool>,
}

/// `POST sys/unseal`
pub async fn unseal(call: Call) -> Result<Reply, Error> {
    let UnsealRequest { key, reset } = parse(&call.body, &[(&["migrate"], &[], "this server has one kind of seal")])?;
    let key = key.map(|key| Zeroizing::new(key.into_bytes()));
    let server: &Arc<Server> = &call.server;
    if reset == Some(true) || !server.is_sealed() {
        return Ok(seal_status(server));
    }
    let key = key.filter(|key| !key.is_empty()).ok_or_else(|| Error::bad("key: the passphrase is missing"))?;
    unseal_in_turn(server, Some(call.client), key, call.entry.clone()).await?;
    Ok(seal_status(server))
}

/// Unseals the server when it is the turn of this address, or of somebody local. From then on this goes on when the client has gone.
pub async fn unseal_in_turn(
    server: &Arc<Server>,
    address: Option<IpAddr>,
    key: Zeroizing<Vec<u8>>,
    entry: Entry,
) -> Result<(), Error> {
    static FAILED: Rare = Rare::new();
    let (turn, server) = (server.turns.wait(address).await, server.clone());
    let unsealed = tokio::spawn(async move {
        let _turn = turn;
        // Somebody else's turn may have come first.
        if !server.is_sealed() {
            return Ok(());
        }
        server.unseal(key).await?;
        tracing::info!("unsealed");
        let entry = Entry { request: request_id()?, status: 200, ..entry };
        server.opened().await?.audit.append(&entry).await
    });
    let result = unsealed.await.unwrap_or_else(|why| Err(why.into()));
    if let Err(why) = &result {
        FAILED.warn(format_args!("unseal: {why}"));
    }
    result
}

/// Ends the audit log's file, and returns its name now, if that is known.
pub async fn end_audit_file(open: &Opened) -> Result<Option<PathBuf>, Error> {
    let open = open.clone();
    tokio::task::spawn_blocking(move || open.audit.rotate()).await?
}

/// Does `POST sys/audit/rotate` for an operator who has the server's process or its files.
pub async fn rotate_audit(server: &Server) -> Result<Option<PathBuf>, Error> {
    let open = server.opened().await?;
    open.audit.append(&Entry { operation: "audit-rotate", status: 200, ..Entry::default() }).await?;
    end_audit_file(&open).await
}
