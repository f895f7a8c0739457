//! Turns to unseal, and the local way to do it: a Unix socket that its owner alone may use.

use crate::audit::Entry;
use crate::config::Config;
use crate::error::Error;
use crate::places::network;
use crate::seal::MAX_SECRET;
use crate::state::Server;
use crate::system::unseal_in_turn;
use crate::threads::unpoisoned;
use hypergrove::quote::Quote;
use std::collections::HashMap;
use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OwnedMutexGuard;
use zeroize::Zeroizing;

/// For the passphrase to come through the socket.
const TIME: Duration = Duration::from_secs(10);

type Lock = Arc<tokio::sync::Mutex<()>>;

/// Turns to unseal: one attempt at a time, because each takes memory and time. Addresses take turns, and of an address its requests. Those that are
/// local wait for nothing but the attempt that runs.
#[derive(Default)]
pub struct Turns {
    one: Lock,
    /// The request whose turn is next, of all that come over the network. Tokio's locks are given in the order in which they were asked for.
    network: Lock,
    addresses: Mutex<HashMap<IpAddr, Lock>>,
}

/// A turn, until it is dropped.
pub type Turn = Vec<OwnedMutexGuard<()>>;

impl Turns {
    /// Waits for the turn of an address, or of somebody local. Who stops waiting leaves the queue.
    pub async fn wait(&self, address: Option<IpAddr>) -> Turn {
        let mut turn = Vec::new();
        if let Some(address) = address {
            let own = {
                let mut addresses = unpoisoned(self.addresses.lock());
                addresses.retain(|_, lock| Arc::strong_count(lock) > 1);
                addresses.entry(network(address)).or_default().clone()
            };
            turn.push(own.lock_owned().await);
            turn.push(self.network.clone().lock_owned().await);
        }
        turn.push(self.one.clone().lock_owned().await);
        turn
    }
}

/// The socket, and its file, which is removed when this is dropped.
pub struct Socket(UnixListener, PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.1));
    }
}

impl Socket {
    /// Makes the socket. The folder's lock is held, so one that is there already is left of a server that was killed.
    pub fn open(config: &Config) -> Result<Socket, Error> {
        let path = config.socket();
        let failed = |why: std::io::Error| Error::at(&path, why);
        if std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket()) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Socket(listener, path))
    }

    /// Answers those who send the passphrase.
    pub async fn serve(self, server: Arc<Server>) {
        loop {
            let Ok((stream, _)) = self.0.accept().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            // Until the file had its mode, others may have connected.
            let uid = stream.peer_cred().map(|peer| peer.uid());
            if uid.is_ok_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw()) {
                tokio::spawn(answer(stream, server.clone()));
            }
        }
    }
}

async fn answer(mut stream: UnixStream, server: Arc<Server>) {
    // So large that the passphrase is not moved, which would leave a copy.
    let mut secret = Zeroizing::new(Vec::with_capacity(2 * MAX_SECRET));
    let mut bounded = (&mut stream).take(MAX_SECRET as u64 + 1);
    let result = match tokio::time::timeout(TIME, bounded.read_to_end(&mut secret)).await {
        Ok(Ok(1..=MAX_SECRET)) => {
            let entry = Entry { operation: "unseal", path: "local socket".into(), ..Entry::default() };
            unseal_in_turn(&server, None, secret, entry).await
        }
        _ => Err(Error::bad(format!("the passphrase must have 1 to {MAX_SECRET} bytes, and come at once"))),
    };
    let text = result.map_or_else(|why| why.to_string(), |()| DONE.into());
    drop(stream.write_all(text.as_bytes()).await);
}

const DONE: &str = "unsealed";

/// Unseals the running server of a deployment.
pub async fn unseal(config: &Config, secret: &[u8]) -> Result<(), Error> {
    let path = config.socket();
    let no_server = |why| Error::at(&path, format_args!("{why}; is the server running, and are you its user or root?"));
    let mut stream = UnixStream::connect(&path).await.map_err(no_server)?;
    let failed = |why: std::io::Error| Error::at(&path, why);
    let (peer, data) = (stream.peer_cred().map_err(failed)?, std::fs::metadata(&config.data).map_err(failed)?);
    if peer.uid() != 0 && peer.uid() != data.uid() {
        let what = format!("{}: a process of user {} listens there", Quote::path(path), peer.uid());
        return Err(Error::bad(format!("{what}, which does not own {}", Quote::path(&config.data))));
    }
    stream.write_all(secret).await.map_err(failed)?;
    stream.shutdown().await.map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(failed)?;
    match answer.as_str() {
        DONE => Ok(()),
        "" => Err(Error::internal("the server has not answered; its log may say why")),
        why => Err(Error::bad(why)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Waits until all that was spawned waits.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn addresses_take_turns_and_who_is_local_is_next() {
        let (turns, order) = (Arc::new(Turns::default()), Arc::new(Mutex::new(Vec::new())));
        let held = turns.wait(None).await;
        let ask = |who: &'static str, address: Option<&str>| {
            let (turns, order, address) = (turns.clone(), order.clone(), address.map(|text| text.parse().unwrap()));
            tokio::spawn(async move {
                let _turn = turns.wait(address).await;
                order.lock().unwrap().push(who);
            })
        };
        let mut tasks = vec![];
        for (who, address) in [
            ("flood 1", Some("2001:db8::1")),
            ("flood 2", Some("2001:db8::2")),
            ("flood 3", Some("2001:db8::3")),
            ("operator", Some("192.0.2.1")),
            ("local", None),
        ] {
            tasks.push(ask(who, address));
            settle().await;
        }
        // Who goes away takes no turn, and no room.
        for address in ["198.51.100.1", "2001:db8::4", "198.51.100.1"] {
            let gone = ask("gone", Some(address));
            settle().await;
            gone.abort();
            drop(gone.await);
        }
        assert_eq!(turns.addresses.lock().unwrap().len(), 3);
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap().join(", ");
        // The first of the network waited for the running attempt already when the local one came.
        assert_eq!(order, "flood 1, local, operator, flood 2, flood 3");
        drop(turns.wait(Some("192.0.2.1".parse().unwrap())).await);
        assert_eq!(turns.addresses.lock().unwrap().len(), 1);
    }
}
