//! Compiled code that somebody else can have planted is not read: it would be executed.
#![cfg(unix)]

use hypergrove_gpu::cache::Cache;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

const KEY: [u8; 32] = [7; 32];
const CODE: &[u8] = b"code";

/// The entry that a fresh process reads, and its notices.
fn load(path: &Path) -> (Option<Vec<u8>>, Vec<String>) {
    let cache = Cache::new(path);
    (cache.load(&KEY), cache.notices())
}

/// A directory with code in it, which is read, and the code's file.
fn filled(within: &Path, name: &str) -> (PathBuf, PathBuf) {
    let path = within.join(name);
    Cache::new(&path).store(&KEY, CODE);
    assert_eq!(load(&path), (Some(CODE.to_vec()), vec![]), "{name}");
    let [file] =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
    (path, file)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Nothing is read, and one line says of what and why.
fn refuses(path: &Path, of: &Path, why: &str) {
    let (code, notices) = load(path);
    assert_eq!(code, None, "{why}");
    let [line] = &notices[..] else { panic!("{why}: {notices:?}") };
    assert!(line.starts_with(of.to_str().unwrap()) && line.contains(why), "{line}");
}

#[test]
fn a_new_cache_is_its_users_alone() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = filled(place.path(), "made/on/demand");
    assert_eq!((mode(&path), mode(path.parent().unwrap()), mode(&file)), (0o700, 0o700, 0o600));
}

#[test]
fn a_directory_that_others_may_write_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    for bits in [0o770, 0o707, 0o1777] {
        let (path, file) = filled(place.path(), &format!("{bits:o}"));
        set_mode(&path, bits);
        refuses(&path, &path, &format!("mode {bits:o}"));
        let cache = Cache::new(&path);
        fs::remove_file(&file).unwrap();
        cache.store(&KEY, CODE);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is kept there either");
    }
    // Others may look.
    let (path, _) = filled(place.path(), "open");
    set_mode(&path, 0o755);
    assert_eq!(load(&path), (Some(CODE.to_vec()), vec![]));
}

#[test]
fn a_file_that_others_may_write_is_not_used_but_replaced() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = filled(place.path(), "cache");
    set_mode(&file, 0o620);
    refuses(&path, &file, "mode 620");
    Cache::new(&path).store(&KEY, b"new");
    assert_eq!((load(&path).0, mode(&file)), (Some(b"new".to_vec()), 0o600));
}

#[test]
fn links_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = filled(place.path(), "cache");
    let link = place.path().join("link");
    symlink(&path, &link).unwrap();
    refuses(&link, &link, "symbolic link");
    let target = place.path().join("elsewhere");
    fs::rename(&file, &target).unwrap();
    symlink(&target, &file).unwrap();
    refuses(&path, &file, "symbolic link");
    Cache::new(&path).store(&KEY, b"new");
    assert_eq!(load(&path).0, Some(b"new".to_vec()));
    assert!(fs::read(&target).unwrap().ends_with(CODE), "the link was replaced, not what it names");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = filled(place.path(), "cache");
    fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    if !made.is_ok_and(|status| status.success()) {
        return println!("skipped: a pipe as compiled code: there is no mkfifo");
    }
    set_mode(&file, 0o600);
    refuses(&path, &file, "no file");
}

#[test]
fn what_belongs_to_another_user_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    let (path, file) = filled(place.path(), "cache");
    if chown(&file, Some(12_345), None).is_err() {
        return println!("skipped: compiled code of another user: only root can give files away");
    }
    refuses(&path, &file, "belongs to user 12345");
    fs::remove_file(&file).unwrap();
    let (path, _) = filled(place.path(), "other");
    chown(&path, Some(12_345), None).unwrap();
    refuses(&path, &path, "belongs to user 12345");
}
