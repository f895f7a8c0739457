//! Files that somebody else can have put where the tool looks for code.

use crate::place::{Place, Run};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whatever the loader finds in such a directory it executes, before anybody can look at it.
#[test]
fn no_driver_is_loaded_from_where_others_may_write() {
    let place = Place::new();
    let run = |list: &str, args: &[&str]| -> Run {
        place.command(args).env("LD_LIBRARY_PATH", list).output().unwrap().into()
    };
    let absent = |list: &str| -> Vec<Value> {
        let report: Value = serde_json::from_slice(&run(list, &["devices", "--json"]).good().stdout).unwrap();
        report["absent"].as_array().unwrap().iter().map(|absent| absent["reason"].clone()).collect()
    };
    let refuses = |list: &str, why: &str| {
        let reasons = absent(list);
        let said = |reason: &Value| reason.as_str().is_some_and(|reason| reason.contains(why));
        assert!(reasons.len() == 2 && reasons.iter().all(said), "{list}: {reasons:?}");
        run(list, &["keygen", "--set", "sha2-128f", "--device", "cuda:0"]).refuses(&["no device 'cuda:0'", why]);
        run(list, &["keygen", "--set", "sha2-128f", "--device", "cpu"]).good();
    };
    let directory = |name: &str, mode| {
        let path = place.path(name);
        fs::create_dir(&path).unwrap();
        set_mode(&path, mode);
        path.to_str().unwrap().to_owned()
    };
    let (own, open, sticky) = (directory("own", 0o755), directory("open", 0o777), directory("sticky", 0o1777));
    let trusts = |list: &str| {
        let reasons = absent(list);
        assert!(reasons.iter().all(|reason| !reason.as_str().unwrap().contains("LD_LIBRARY_PATH")), "{reasons:?}");
    };
    trusts("");
    trusts(&own);
    refuses(&open, "another user may write");
    refuses(&format!("{own}:{open}"), &open);
    refuses(&sticky, "another user may write");
    refuses(&format!("{open}/lib/none/yet"), "another user may write");
    refuses(&format!("{own}:"), "current directory");
    refuses(&format!("lib:{own}"), "current directory");
    fs::create_dir(place.path("sticky/mine")).unwrap();
    set_mode(&place.path("sticky/mine"), 0o755);
    trusts(&format!("{sticky}/mine"));
    if chown(&own, Some(12_345), None).is_err() {
        return println!("skipped: a library path of another user: only root can give directories away");
    }
    refuses(&own, "another user may write");
}

/// With any device that Vulkan has: its driver would be given what lies in the cache.
#[test]
fn a_cache_of_compiled_kernels_that_others_may_write_is_left_out_with_a_line() {
    let place = Place::new();
    let report: Value = serde_json::from_slice(&place.run(&["devices", "--json"]).good().stdout).unwrap();
    if !report["devices"].as_array().unwrap().iter().any(|device| device["backend"] == "vulkan") {
        return println!("skipped: a planted cache: there is no Vulkan device");
    }
    place.write("file", "message");
    let cache = place.path("cache/hypergrove");
    let hash = || -> Run {
        let mut command = place.command(&["hash", "--device", "vulkan:0", "file"]);
        Run::from(command.env("XDG_CACHE_HOME", place.path("cache")).output().unwrap()).good()
    };
    let digest = hash();
    assert!(!digest.stderr.contains("warning"), "{}", digest.stderr);
    set_mode(&cache, 0o777);
    let says = |why: &str| {
        let run = hash();
        let lines: Vec<_> = run.stderr.lines().filter(|line| line.contains("warning")).collect();
        let said = |line: &&str| line.contains(cache.to_str().unwrap()) && line.contains(why);
        assert!(lines.len() == 1 && lines.iter().all(said), "{why}: {}", run.stderr);
        assert_eq!(run.stdout, digest.stdout);
    };
    says("mode 777");
    set_mode(&cache, 0o700);
    fs::rename(&cache, place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), &cache).unwrap();
    says("symbolic link");
}
