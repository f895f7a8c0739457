//! Whole trees of files: manifests, checked against the machine's own sha256sum; directories, lists that end names with NUL, tables.

use crate::place::{Place, Run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;

/// A tree with names that lines have trouble with, and a key.
fn tree() -> Place {
    let place = Place::with_key();
    fs::create_dir_all(place.path("tree/sub/deep")).unwrap();
    for name in
        ["b", "a", "sub/z", "sub-z", "sub/deep/new\nline", "back\\slash", "car\rriage", " *led", "two words", "-"]
    {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    place
}

fn sign(place: &Place, more: &[&str]) -> Run {
    place.run(&[&["sign", "--key", "k.pem", "--manifest", "tree", "-o", "release.sums"], more].concat())
}

fn verify(place: &Place, more: &[&str]) -> Run {
    place.run(&[&["verify", "--key", "p.pem", "--manifest", "release.sums", "--root", "tree"], more].concat())
}

#[test]
fn names_that_unicode_takes_for_one_are_reported_together() {
    let place = Place::with_key();
    fs::create_dir_all(place.path("tree")).unwrap();
    for name in ["caf\u{e9}", "cafe\u{301}", "\u{212b}", "\u{c5}", "A\u{30a}", "K", "\u{212a}", "cafe", "k"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    let groups = [r"'cafe\u{301}', 'caf\u{e9}'", r"'A\u{30a}', '\u{c5}', '\u{212b}'", r"'K', '\u{212a}'"];
    let reports = |run: Run| {
        let warnings: Vec<_> =
            run.stderr.lines().filter(|line| line.starts_with("warning: names that are equal")).collect();
        assert_eq!(warnings.len(), groups.len(), "{}", run.stderr);
        for group in groups {
            assert!(
                warnings.iter().any(|line| line.ends_with(&format!(": {group}"))),
                "{group} is not in {}",
                run.stderr
            );
        }
    };
    reports(sign(&place, &[]).good());
    reports(verify(&place, &[]).good());
    fs::write(place.path("tree/caf\u{e9}"), "changed").unwrap();
    reports(verify(&place, &[]).exits(1));
    // Where no two names are one, nothing is said.
    for twin in ["cafe\u{301}", "\u{212b}", "A\u{30a}", "\u{212a}"] {
        fs::remove_file(place.path("tree").join(twin)).unwrap();
    }
    assert!(!sign(&place, &["--force"]).good().stderr.contains("warning"));
}

#[test]
fn a_manifest_is_signed_and_checked() {
    let place = tree();
    let run = sign(&place, &[]).good();
    assert!(run.stderr.contains("the sums of 10 files") && run.stdout.is_empty(), "{}", run.stderr);
    // As any file, and as sha256sum's list.
    place.run(&["verify", "--key", "p.pem", "release.sums"]).good();
    place.shell("cd tree && sha256sum --strict -c ../release.sums").good();
    // The order is that of C's sort; the names are sha256sum's, for which `-` is standard input.
    let script = "cd tree && find . -type f ! -name - -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum --";
    let (theirs, ours) = (place.shell(script).good(), place.read("release.sums"));
    let ours = String::from_utf8_lossy(&ours);
    let ours: String = ours.split_inclusive('\n').filter(|line| !line.ends_with("  ./-\n")).collect();
    assert_eq!(String::from_utf8_lossy(&theirs.stdout), ours);
    let run = verify(&place, &["--extra"]).good();
    let text = run.text();
    assert_eq!(text.lines().next(), Some("release.sums: OK"));
    assert!(text.contains("\nsub/deep/new\\nline: OK\n") && text.contains("\n-: OK\n"), "{text}");
    assert_eq!((text.lines().count(), run.stderr.trim()), (11, "11 OK"));
    // sha256sum's own list is taken too, once it is signed.
    place.shell("cd tree && find . -type f -exec sha256sum {} + > ../their.sums").good();
    place.run(&["sign", "--key", "k.pem", "their.sums"]).good();
    place.run(&["verify", "--key", "p.pem", "--manifest", "their.sums", "--root", "tree", "--extra"]).good();
    // Within the tree it does not list itself, and is looked for where it lies.
    for _ in 0..2 {
        let words = ["sign", "--key", "k.pem", "--manifest", "tree", "-o", "tree/SHA256SUMS", "--force"];
        place.run(&words).good();
    }
    assert_eq!(place.read("tree/SHA256SUMS"), place.read("release.sums"));
    place.run(&["verify", "--key", "p.pem", "--manifest", "tree/SHA256SUMS", "--extra"]).good();
    // In other modes, with other keys, and with other places for the signature.
    sign(&place, &["--force", "--context", "c", "--prehash", "sha2-256"]).good();
    verify(&place, &["--context", "c", "--prehash", "sha2-256", "-q"]).exits(0).shows_no("OK");
    verify(&place, &[]).exits(1);
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    place.run(&["sign", "--key", "z.pem", "--manifest", "tree", "-o", "z.sums"]).good();
    fs::rename(place.path("z.sums.sig"), place.path("elsewhere")).unwrap();
    let words = ["verify", "--key", "z.pem", "--manifest", "z.sums", "--root", "tree", "--signature", "elsewhere"];
    place.run(&words).good();
    let left: Vec<String> = place.names().into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A link to the manifest or to its signature cannot be listed: the file that it leads to changes as it is written.
#[test]
fn a_manifest_leaves_out_itself_and_what_leads_to_it() {
    let place = tree();
    place.shell("cd tree && ln -s SUMS latest && ln -s ../latest sub/up && ln -s SUMS.sig latest.sig").good();
    place.shell("ln -s \"$PWD/tree/sub/../SUMS\" tree/whole").good();
    // First they lead nowhere, then to an old manifest, and at last to a new one.
    for round in 0..3 {
        fs::write(place.path("tree/a"), format!("round {round}")).unwrap();
        let words = ["sign", "--key", "k.pem", "--manifest", "tree", "-o", "tree/SUMS", "--force"];
        let run = place.run(&words).good();
        for name in ["latest", "sub/up", "latest.sig", "whole"] {
            let line = format!("tree/{name} is left out: it is a link to the manifest or to its signature\n");
            assert!(run.stderr.contains(&line), "{}", run.stderr);
        }
        let own = "tree/SUMS is left out: a manifest lists neither itself nor its signature\n";
        assert_eq!(run.stderr.contains(own), round > 0, "{}", run.stderr);
        let run = place.run(&["verify", "--key", "p.pem", "--manifest", "tree/SUMS", "--extra"]).good();
        assert_eq!(run.text().lines().count(), 11, "{}", run.text());
    }
    // A link to another file is that file, and the output is none of those that are listed.
    symlink("a", place.path("tree/other")).unwrap();
    place.run(&["sign", "--key", "k.pem", "--manifest", "tree", "-o", "tree/SUMS", "--force"]).good();
    let run = place.run(&["verify", "--key", "p.pem", "--manifest", "tree/SUMS", "--extra"]).good();
    assert!(run.text().contains("\nother: OK\n"), "{}", run.text());
    for link in ["ln", "ln -s"] {
        place.shell(&format!("rm -f sums; {link} tree/a sums")).good();
        let run = place.run(&["sign", "--key", "k.pem", "--manifest", "tree", "-o", "sums", "--force"]);
        run.refuses(&["sums would be replaced, and it is read: tree/a is the same file"]);
    }
}

#[test]
fn every_change_of_a_tree_is_found() {
    let place = tree();
    sign(&place, &[]).good();
    let text = |run: Run| run.text().to_owned();
    fs::write(place.path("tree/a"), "A").unwrap();
    assert!(text(verify(&place, &[]).exits(1)).contains("\na: FAILED\n"));
    fs::write(place.path("tree/a"), "a").unwrap();
    fs::write(place.path("tree/sub/new"), "").unwrap();
    symlink("..", place.path("tree/sub/up")).unwrap();
    verify(&place, &[]).good();
    let run = verify(&place, &["--extra"]).exits(1);
    assert!(
        run.text().ends_with("sub/new: EXTRA\nsub/up: EXTRA\n") && run.stderr.contains("2 EXTRA"),
        "{}",
        run.text()
    );
    let run = verify(&place, &["--extra", "--json"]).exits(1);
    let lines: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["signature"], &lines[0]["verdict"]), (&"release.sums.sig".into(), &"ok".into()));
    assert_eq!((&lines[1]["signature"], &lines[12]["verdict"]), (&Value::Null, &"extra".into()));
    assert_eq!((&lines[13]["summary"]["extra"], &lines[13]["summary"]["ok"]), (&2.into(), &11.into()));
    for name in ["new", "up"] {
        fs::remove_file(place.path("tree/sub").join(name)).unwrap();
    }
    // Whatever its name: a plug-in of that name would be loaded.
    fs::write(place.path("tree/sub/.hypergrove-public.tmp"), "").unwrap();
    assert!(text(verify(&place, &["--extra"]).exits(1)).ends_with("sub/.hypergrove-public.tmp: EXTRA\n"));
    fs::remove_file(place.path("tree/sub/.hypergrove-public.tmp")).unwrap();
    fs::remove_file(place.path("tree/b")).unwrap();
    let run = verify(&place, &[]).exits(2).says(&["cannot read b: there is no such file"]);
    assert!(run.text().contains("\nb: ERROR\n"), "{}", run.text());
    // Links to files of the tree are files; others are refused.
    symlink("a", place.path("tree/b")).unwrap();
    assert!(text(verify(&place, &[]).exits(1)).contains("\nb: FAILED\n"));
    fs::remove_file(place.path("tree/b")).unwrap();
    place.write("b", "b");
    symlink("../b", place.path("tree/b")).unwrap();
    verify(&place, &[]).exits(2).says(&["cannot read b: a link leads out of the tree"]);
    fs::remove_file(place.path("tree/b")).unwrap();
    place.shell("mkfifo tree/b").good();
    place
        .run_for(5, &["verify", "--key", "p.pem", "--manifest", "release.sums", "--root", "tree"])
        .exits(2)
        .says(&["no regular file"]);
    // Of a manifest that was changed, no line is looked at.
    place.write("release.sums", [&place.read("release.sums")[..], b"no line"].concat());
    assert_eq!(text(verify(&place, &[]).exits(1)), "release.sums: FAILED\n");
}

#[test]
fn bad_manifests_and_trees_are_refused() {
    let place = tree();
    let sum = "0".repeat(64);
    let refuses = |line: &str, words: &[&str]| {
        place.write("bad", line.replace("SUM", &sum));
        place.run(&["sign", "--key", "k.pem", "bad", "--force"]).good();
        place.run(&["verify", "--key", "p.pem", "--manifest", "bad", "--root", "tree"]).refuses(words);
    };
    refuses("SUM  ../k.pem\n", &["bad: line 1: '…' (8 characters, not shown) has '..' in it", "hint: "]);
    refuses("SUM  a\nSUM  /etc/passwd\n", &["bad: line 2: '…' (11 characters, not shown) is absolute"]);
    refuses("SUM  a\nSUM  b\nSUM  ./a\n", &["line 3: 'a' is listed twice"]);
    refuses("SUM  a\nrubbish\n", &["line 2: this is no line of sha256sum"]);
    refuses("", &["bad has no files", "make the manifest anew"]);
    let manifest = |tree: &str, more: &[&str]| {
        place.run(&[&["sign", "--key", "k.pem", "--manifest", tree, "-o", "s"], more].concat())
    };
    manifest("absent", &[]).refuses(&["cannot read absent", "check the name"]);
    manifest("k.pem", &[]).refuses(&["k.pem is not a directory", "hint: name a directory\n"]);
    fs::create_dir(place.path("empty")).unwrap();
    manifest("empty", &[]).refuses(&["empty has no files"]);
    let link = |to: &str, words: &[&str]| {
        symlink(to, place.path("tree/link")).unwrap();
        manifest("tree", &[]).refuses(words);
        fs::remove_file(place.path("tree/link")).unwrap();
    };
    link("../k.pem", &["tree/link: this link leads out of the tree", "hint: "]);
    link("sub", &["tree/link: this is a link to a directory"]);
    link("nowhere", &["cannot read tree/link: there is no such file"]);
    place.shell("mkfifo tree/link").good();
    manifest("tree", &[]).refuses(&["tree/link: this is neither a file nor a directory"]);
    fs::remove_file(place.path("tree/link")).unwrap();
    manifest("tree", &["a"]).refuses(&["cannot be used with"]);
    place.run(&["sign", "--key", "k.pem", "--manifest", "tree"]).refuses(&["--output"]);
    place.run(&["sign", "--key", "k.pem", "--manifest", "tree", "-o", "-"]).refuses(&["two files"]);
    place.run(&["sign", "--key", "k.pem", "--manifest", ".", "-o", "k.pem", "--force"]).refuses(&["it is read"]);
    place.write("s.sig", "in the way");
    manifest("tree", &[]).refuses(&["s.sig exists"]);
    assert!(!place.path("s").exists());
    place.run(&["verify", "--key", "p.pem", "--extra", "a"]).refuses(&["--manifest"]);
    sign(&place, &[]).good();
    let run = place.run(&["verify", "--key", "p.pem", "--manifest", "release.sums"]).exits(2);
    run.says(&["cannot read a: ", "name another directory with --root"]);
    // Before anything is verified: nothing is on standard output.
    for (root, words) in [("absent", "cannot read absent"), ("k.pem", "k.pem is not a directory")] {
        place.run(&["verify", "--key", "p.pem", "--manifest", "release.sums", "--root", root]).refuses(&[words]);
    }
    fs::remove_file(place.path("release.sums.sig")).unwrap();
    verify(&place, &[]).refuses(&["cannot read release.sums.sig"]);
}

#[test]
fn directories_are_signed_file_by_file() {
    let place = tree();
    let sign = |out| place.run(&["sign", "--key", "k.pem", "--recursive", "tree", "--out-dir", out]);
    sign("none/signatures").refuses(&["make the directory first"]);
    assert!(!place.path("none").exists());
    let run = sign("signatures").exits(0);
    assert_eq!(run.text().lines().count(), 10);
    assert!(place.path("signatures/sub/deep").join("new\nline.sig").is_file());
    let verify = |more: &[&str]| place.run(&[&["verify", "--key", "p.pem", "-r", "tree"], more].concat());
    verify(&["--signature-dir", "signatures"]).good();
    // Next to the files; signatures are not signed, the second time either.
    for _ in 0..2 {
        place.run(&["sign", "--key", "k.pem", "-r", "tree", "--force"]).good();
    }
    assert!(place.path("tree/a.sig").is_file() && !place.path("tree/a.sig.sig").exists());
    verify(&[]).good();
    // Nor are links to them: those would change with them.
    symlink("../a.sig", place.path("tree/sub/link")).unwrap();
    symlink("new.sig", place.path("tree/sub/nowhere")).unwrap();
    for _ in 0..2 {
        let run = place.run(&["sign", "--key", "k.pem", "-r", "tree", "--force"]).good();
        for name in ["link", "nowhere"] {
            let line = format!("tree/sub/{name} is left out: it is a link to a signature\n");
            assert!(run.stderr.contains(&line), "{}", run.stderr);
        }
    }
    assert_eq!(verify(&[]).good().text().lines().count(), 10);
    fs::write(place.path("tree/sub/z"), "Z").unwrap();
    assert!(verify(&[]).exits(1).text().contains("tree/sub/z: FAILED\n"));
    verify(&["--signature-dir", "tree/sub"]).exits(2);
    place.run(&["sign", "--key", "k.pem", "tree"]).refuses(&["is a directory"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["sign", "--key", "k.pem", "-r", "empty"]).refuses(&["empty has no files"]);
}

#[test]
fn names_in_a_list_may_end_with_nul() {
    let place = tree();
    place.shell("find tree -type f -print0 > list").good();
    place.run(&["sign", "--key", "k.pem", "--list", "list", "-0"]).good();
    let run = place.run(&["verify", "--key", "p.pem", "--list", "list", "--null"]).good();
    assert_eq!(run.text().lines().count(), 10);
    assert_eq!(place.run(&["hash", "--list", "list", "-0"]).good().text().lines().count(), 10);
    for command in [&["sign", "--key", "k.pem"][..], &["verify", "--key", "p.pem"], &["hash"]] {
        place.run(&[command, &["--list", "list"]].concat()).refuses(&["list has a NUL byte", "with -0"]);
    }
    place.run(&["verify", "--key", "p.pem", "-0", "tree/a"]).refuses(&["--list"]);
}

#[test]
fn rows_of_a_table_have_keys_of_their_own() {
    let place = Place::with_key();
    place.keygen("SLH-DSA-SHAKE-128f", "k2.pem", "p2.pem");
    for name in ["a", "b", "c"] {
        place.write(name, name);
    }
    place.write("sign", "k.pem\ta\ta.s\nk2.pem\tb\tb.s\nk.pem\tc\tc.s\n");
    place.write("verify", "p.pem\ta\ta.s\np2.pem\tb\tb.s\np2.pem\tc\tc.s\np.pem\tc\tc.s\nabsent\ta\ta.s\n");
    let run = place.run(&["sign", "--table", "sign"]).good();
    assert_eq!(run.text(), "a: SIGNED\nb: SIGNED\nc: SIGNED\n");
    place.run(&["verify", "--key", "p2.pem", "b", "-s", "b.s"]).good();
    let run = place.run(&["verify", "--table", "verify", "--json"]).exits(2);
    let lines: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<_> = lines.iter().filter_map(|line| line["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["ok", "ok", "failed", "ok", "error"]);
    assert_eq!((&lines[1]["set"], &lines[1]["signature"]), (&"SLH-DSA-SHAKE-128f".into(), &"b.s".into()));
    // An editor's byte order mark is no part of the first name.
    place.write("marked", "\u{feff}p.pem\ta\ta.s\n");
    assert_eq!(place.run(&["verify", "--table", "marked"]).good().text(), "a: OK\n");
    // Bad rows do not stop the others.
    fs::remove_file(place.path("b.s")).unwrap();
    place.write("sign", "k.pem\ta\ta.s\np.pem\ta\tx\nk2.pem\tb\tb.s\nk.pem\tc\t./b.s\nk.pem\tc\tk2.pem\n");
    let run = place.run(&["sign", "--table", "sign", "--force"]).exits(2);
    assert_eq!(run.text(), "a: SIGNED\na: ERROR\nb: SIGNED\nc: ERROR\nc: ERROR\n");
    run.says(&["p.pem is a public key", "which another file has got", "k2.pem would be replaced, and it is read"]);
    let refuses = |table: &str, words: &[&str]| {
        place.write("t", table);
        place.run(&["sign", "--table", "t"]).refuses(words);
    };
    refuses("k.pem\ta\tn\nk.pem a n\n", &["t: line 2: it has 1 cells, a row has 3", "one tab"]);
    refuses("k.pem\t\tn\n", &["line 1: a cell is empty"]);
    refuses("\n", &["t has no rows"]);
    assert!(!place.path("n").exists());
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    place.write("t", "z.pem\ta\tn\n");
    place.run(&["sign", "--table", "t"]).exits(2).says(&["z.pem is a key of zkDilithium"]);
    place.run(&["sign", "a"]).refuses(&["--key"]);
    place.run(&["sign", "--table", "t", "--key", "k.pem"]).refuses(&["cannot be used with"]);
}
