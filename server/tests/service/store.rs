//! The database and the files that the server trusts: what somebody else exchanges, removes or may write.

use crate::deployment::{Server, encode, error};
use serde_json::json;
use std::fs::{Permissions, copy, create_dir, remove_file, rename, set_permissions, write};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn chmod(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The errors of a command that must end by itself, and fail.
fn refusal(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hypergrove-server"));
    let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    drop(child.kill());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(status.is_some_and(|status| !status.success()), "{arguments:?} was not refused: {errors}");
    errors
}

fn copy_record(server: &Server, kind: &str, from: &str, to: &str) {
    let database = rusqlite::Connection::open(server.path("data/server.db")).unwrap();
    let sql = "INSERT INTO records SELECT kind, ?3, value FROM records WHERE kind = ?1 AND id = ?2";
    assert_eq!(database.execute(sql, [kind, from, to]).unwrap(), 1);
}

#[test]
fn a_record_is_good_in_its_own_place_alone() {
    let mut server = Server::new("");
    server.root().make_key("a");
    server.stop();
    copy_record(&server, "key", "a", "b");
    server.start();
    server.unseal_fails("the key b in the database is damaged: its record is that of the key a");
    assert_eq!(server.root().post("transit/sign/b", json!({ "input": "" })).0, 503);
    server.stop();
    let database = rusqlite::Connection::open(server.path("data/server.db")).unwrap();
    database.execute("DELETE FROM records WHERE id = 'b'", []).unwrap();
    drop(database);
    server.start();
    server.unseal();
    server.root().sign("a", b"m");
    server.stop();
    // A token's copy would outlive its revocation.
    copy_record(&server, "token", server.root.split('.').nth(1).unwrap(), "0123");
    let config = server.path("server.toml");
    let why = refusal(&["run", "--config", config.to_str().unwrap()]);
    assert!(why.contains("the token 0123"), "{why}");
}

#[test]
fn one_server_writes_the_database_whatever_was_removed_and_others_read_it() {
    let server = Server::new("");
    let root = server.root();
    root.make_key("a");
    let path = |name: &str| server.path(name);
    let is_refused = || {
        let second = server.command(&["root-token"]);
        let why = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(!second.status.success() && why.contains("a server uses this database"), "{why}");
    };
    is_refused();
    remove_file(path("data/server.lock")).unwrap();
    is_refused();
    // The database alone is locked, too.
    #[cfg(target_os = "linux")]
    {
        create_dir(path("elsewhere")).unwrap();
        std::os::unix::fs::symlink(path("data/server.db"), path("elsewhere/server.db")).unwrap();
        let toml = format!("data = {:?}\n", path("elsewhere"));
        write(path("elsewhere.toml"), toml).unwrap();
        let why = refusal(&["run", "--config", path("elsewhere.toml").to_str().unwrap()]);
        assert!(why.contains("a server uses this database"), "{why}");
    }
    // Readers are let in, and do not hold the server up.
    let reader = rusqlite::Connection::open(path("data/server.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM records;").unwrap();
    reader.query_row("SELECT count(*) FROM records", [], |row| row.get::<_, i64>(0)).unwrap();
    root.make_key("b");
    reader.execute_batch("COMMIT").unwrap();
    reader.execute("VACUUM INTO ?1", [path("backup.db").to_str().unwrap()]).unwrap();
    drop(reader);
    let verified = server.command(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    root.sign("b", b"m");
    // Nothing is written to a database that is gone.
    rename(path("data/server.db"), path("moved.db")).unwrap();
    let create = || root.post("transit/keys/c", json!({ "type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128f" }));
    assert!([500, 503].contains(&create().0));
    copy(path("backup.db"), path("data/server.db")).unwrap();
    is_refused();
    let (status, body) = create();
    assert!([500, 503].contains(&status) && !error(&body).is_empty(), "{body}");
    remove_file(path("data/server.db")).unwrap();
    rename(path("moved.db"), path("data/server.db")).unwrap();
    assert_eq!(create().0, 200);
    // A change is in the log of changes at first, so nothing is written without it, or next to another one.
    for name in ["data/server.db-wal", "data/server.db-shm"] {
        rename(path(name), path("moved")).unwrap();
        let sign = || root.post("transit/sign/a", json!({ "input": encode("m") })).0;
        let is_refused = || [create().0, sign()].iter().all(|status| [500, 503].contains(status));
        assert!(is_refused(), "{name}");
        copy(path("moved"), path(name)).unwrap();
        assert!(is_refused(), "{name}");
        rename(path("moved"), path(name)).unwrap();
        assert_eq!((create().0, sign()), (200, 200), "{name}");
    }
}

#[test]
fn files_that_others_may_change_are_refused() {
    // `dev` makes its own secret, so nobody else may read this one.
    for (folder, secret) in [(0o700, 0o666), (0o700, 0o644), (0o777, 0o600), (0o770, 0o600), (0o1777, 0o600)] {
        let outer = tempfile::tempdir().unwrap();
        let data = outer.path().join("dev");
        create_dir(&data).unwrap();
        write(data.join("unseal.key"), "known to others\n").unwrap();
        chmod(&data.join("unseal.key"), secret);
        chmod(&data, folder);
        let why = refusal(&["dev", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
        assert!(why.contains("chmod"), "{why}");
    }
    let data = tempfile::tempdir().unwrap();
    chmod(data.path(), 0o700);
    let key = data.path().join("unseal.key");
    for (kind, make) in [("a pipe", "mkfifo -m 600"), ("a device", "ln -s /dev/zero"), ("a folder", "mkdir")] {
        let made = Command::new("sh").args(["-c", &format!("{make} \"$0\"")]).arg(&key).status().unwrap();
        assert!(made.success(), "{kind}");
        let why = refusal(&["dev", "--listen", "127.0.0.1:0", "--data", data.path().to_str().unwrap()]);
        assert!(why.contains("unseal.key: it is not a file"), "{kind}: {why}");
        remove_file(&key).or_else(|_| std::fs::remove_dir(&key)).unwrap();
    }
    let server = Server::stopped("");
    // Of files of the deployment, with what would be right otherwise.
    for (name, mode, right) in [
        ("passphrase", 0o666, 0o600),
        ("passphrase", 0o620, 0o600),
        ("data", 0o777, 0o700),
        ("data/server.db", 0o602, 0o600),
        ("server.toml", 0o666, 0o644),
    ] {
        chmod(&server.path(name), mode);
        let command = server.command(&["root-token"]);
        let why = String::from_utf8_lossy(&command.stderr).into_owned();
        assert!(!command.status.success() && why.contains("chmod") && why.contains(name), "{name}: {why}");
        chmod(&server.path(name), right);
    }
    assert!(server.command(&["root-token"]).status.success());
    let [key, certificate] = ["server.key", "server.pem"].map(|name| server.path(name));
    let mut toml = std::fs::read_to_string(server.path("server.toml")).unwrap();
    toml += &format!("[tls]\nkey = {key:?}\ncertificate = {certificate:?}\n");
    write(server.path("server.toml"), toml).unwrap();
    for name in ["server.key", "server.pem"] {
        write(server.path(name), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    }
    for name in ["server.key", "server.pem"] {
        // Each is checked before anything reads it.
        chmod(&server.path(name), 0o666);
        let why = refusal(&["run", "--config", server.path("server.toml").to_str().unwrap()]);
        assert!(why.contains("chmod") && why.contains(name), "{why}");
        chmod(&server.path(name), 0o600);
    }
}
