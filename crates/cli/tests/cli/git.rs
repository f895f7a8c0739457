//! Git signs and verifies by `hypergrove-git`, which is the tool by another name.

use crate::place::{Place, Run};
use std::process::Command;

/// With a repository `r` and the settings that sign and verify by the key `k.pem`; none without Git.
fn place() -> Option<Place> {
    if Command::new("git").arg("--version").output().is_err() {
        println!("skipped: signatures of Git: there is no git");
        return None;
    }
    let place = Place::with_key();
    let list = "mkdir bin; ln -s \"$H\" bin/hypergrove-git; $H pubkey k.pem --line > line; echo \"alice@example.org $(cat line)\" > signers";
    place.shell(list).good();
    place.write("settings", SETTINGS);
    git(&place, "git init -q ../r").good();
    Some(place)
}

const SETTINGS: &str = "[user]\n\tname = A\n\temail = a@example.org\n[gpg]\n\tformat = x509\n[gpg \"x509\"]\n\tprogram = hypergrove-git\n\
                        [hypergrove]\n\tkey = ../k.pem\n\tallowedSigners = ../signers\n";

/// Runs a script in the repository `r`, or before it is made in the folder `bin`.
fn git(place: &Place, script: &str) -> Run {
    let settings =
        "export PATH=\"$PWD/bin:$PATH\" HOME=\"$PWD\" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=\"$PWD/settings\"";
    place.shell(&format!("{settings}; cd r 2>/dev/null || cd bin; {script}"))
}

/// The verdict on the last commit, as one letter of Git's, is not that it is good; `verify-commit` fails and says all of these words.
fn refuses(place: &Place, letter: &str, words: &[&str]) {
    let run = git(place, "git verify-commit HEAD; test $? = 1 && git log -1 --format='%G?'").good();
    assert_eq!(run.text(), format!("{letter}\n"), "{}", run.stderr);
    words.iter().for_each(|word| assert!(run.stderr.contains(word), "{word:?} is not in: {}", run.stderr));
}

#[test]
fn commits_and_tags_are_signed_and_verified() {
    let Some(place) = place() else { return };
    let key = place.run(&["inspect", "k.pem"]).good();
    let key = key.text().lines().find_map(|line| line.strip_prefix("key     ")).unwrap().to_owned();
    git(&place, "git commit -qS --allow-empty -m one && git tag -s v1 -m v1 && git verify-tag v1 && git tag -v v1")
        .good();
    let run = git(&place, "git verify-commit HEAD").good();
    assert!(
        run.stderr.contains(&format!("Good signature by alice@example.org with the key {key} of SLH-DSA-SHA2-128f")),
        "{}",
        run.stderr
    );
    let shown = git(&place, "git log -1 --show-signature --format='%G?|%GS|%GK|%GF|%GP|%GT'").good();
    let line = format!("G|alice@example.org|{key}|{key}|{key}|fully");
    assert!(shown.text().contains("Good signature by alice") && shown.text().contains(&line), "{}", shown.text());
    // Wherever Git is called, and where Git asks for a signature by itself.
    for script in [
        "mkdir -p a/b && cd a/b && git commit -qS --allow-empty -m two && git verify-commit HEAD",
        "GIT_DIR=.git git verify-commit HEAD && cd .. && git --git-dir=r/.git --work-tree=r verify-commit HEAD",
        "git worktree add -q ../other && cd ../other && git commit -qS --allow-empty -m three && git verify-commit HEAD",
        "git clone -q --bare . ../bare && cd ../bare && git verify-commit HEAD && git tag -s v2 -m v2 && git verify-tag v2",
        "git checkout -q -b side && git commit -qS --allow-empty -m side && git checkout -q - && git merge -q --no-ff --verify-signatures -S \
         -m merged side && git verify-commit HEAD",
        "git init -q --object-format=sha256 ../long && cd ../long && git commit -qS --allow-empty -m one && git tag -s v1 -m v1 && \
         git verify-commit HEAD && git verify-tag v1",
        "git -c hypergrove.redundant=true commit -qS --allow-empty -m twice && git verify-commit HEAD",
        "git -c gpg.minTrustLevel=fully verify-commit HEAD",
    ] {
        git(&place, script).good();
    }
    // The key that was asked for is the one that signs.
    git(&place, &format!("git commit -q -S{key} --allow-empty -m mine")).good();
    let other = format!("git commit -q -SSHA256:{} --allow-empty -m theirs", "A".repeat(43));
    git(&place, &other).exits(128);
    // Other sets, and a key that names its hash function.
    for (set, more) in [("sha2-128s", ""), ("sha2-128f", "--hash-slh-dsa")] {
        let make = format!(
            "$H keygen --set {set} {more} --force -o ../n.pem && echo \"new $($H pubkey ../n.pem --line)\" > ../new"
        );
        let settings = "git config hypergrove.key ../n.pem && git config hypergrove.allowedSigners ../new";
        git(&place, &format!("{make} && {settings} && git commit -qS --allow-empty -m new && git verify-commit HEAD"))
            .good();
    }
}

#[test]
fn nothing_else_is_good() {
    let Some(place) = place() else { return };
    git(&place, "echo one > file && git add file && git commit -qS -m one").good();
    let line = String::from_utf8(place.read("line")).unwrap();
    let list = |conditions: &str| place.write("signers", format!("alice {conditions} {line}"));
    // The times of the list are compared with the commit's own.
    list("namespace=git valid-after=2020-01-01");
    git(&place, "git verify-commit HEAD").good();
    list("valid-before=2020-01-01");
    refuses(&place, "Y", &["alice may not sign this: the key was valid only before 2020-01-01"]);
    git(&place, "GIT_COMMITTER_DATE=2019-06-01T00:00:00Z git commit -q --amend --no-edit -S && git verify-commit HEAD")
        .good();
    list("valid-after=2020-01-01");
    refuses(&place, "E", &["alice may not sign this: the key is valid only from 2020-01-01 on"]);
    list("namespace=release");
    refuses(&place, "E", &["alice may not sign this: the key is only for the context 'release'"]);
    // One of several lines suffices.
    place.write("signers", format!("old valid-before=2001-01-01 {line}new {line}"));
    git(&place, "git verify-commit HEAD").good();
    // Whose key the list does not have has not signed.
    place.run(&["keygen", "--set", "sha2-128f", "-o", "o.pem"]).good();
    place.shell("echo \"bob $($H pubkey o.pem --line)\" > signers").good();
    refuses(&place, "E", &["nobody in ", "signers has the key SHA256:"]);
    // Changed commits and signatures.
    place.write("signers", format!("alice {line}"));
    git(&place, "git cat-file commit HEAD > ../commit && git rev-parse HEAD > ../good").good();
    let changed = |script: &str, letter: &str, words: &[&str]| {
        git(&place, &format!("git reset -q --soft $(cat ../commit | {script} | git hash-object -t commit -w --stdin)"))
            .good();
        refuses(&place, letter, words);
    };
    changed("sed '$s/one/two/'", "B", &["BAD signature by alice: changed content"]);
    changed("sed 's/^author A/author B/'", "B", &["BAD signature"]);
    changed("sed '/^ Context: git/s/git/get/'", "B", &["BAD signature by alice: wrong context"]);
    changed("sed 's/^ Mode: pure/ Mode: pre-hash SHA2-256/'", "B", &["BAD signature"]);
    changed("sed '/^ *$/,/END/y/ab/ba/'", "B", &["BAD signature"]);
    changed("sed '/^ Key:/d'", "E", &["the signature cannot be read: ", "without the field 'Key'"]);
    changed("sed '/^ -----END/d'", "E", &["the signature cannot be read: ", "cut short"]);
    changed("sed '/^ -----END/a\\ more'", "E", &["the signature cannot be read: ", "there is more after the end"]);
    // A signature of the same key for something else is no commit's signature.
    let other = "sed '/^gpgsig/,/END/d' ../commit > ../payload; $H sign --armor --key ../k.pem --context release ../payload; \
                 sed 's/HYPERGROVE SIGNATURE/SIGNED MESSAGE/;s/^Context: release/Context: git/;s/^/ /;1s/^/gpgsig/' ../payload.sig > ../sig; \
                 (sed '/^$/,$d' ../payload; cat ../sig; sed -n '/^$/,$p' ../payload) > ../forged; \
                 git reset -q --soft $(git hash-object -t commit -w ../forged)";
    git(&place, other).good();
    refuses(&place, "B", &["BAD signature by alice: changed content"]);
    git(&place, "git reset -q --soft $(cat ../good) && git verify-commit HEAD").good();
    // Without a signature, and with one that was copied from another commit.
    git(&place, "git commit -q --allow-empty -m unsigned; git verify-commit HEAD").exits(1);
    let moved = "git tag -s v1 -m v1 && git cat-file tag v1 | sed 's/^tag v1/tag v2/' > ../tag && git update-ref refs/tags/v2 \
                 $(git hash-object -t tag -w ../tag) && git verify-tag v1 && git verify-tag v2";
    assert!(git(&place, moved).exits(1).stderr.contains("BAD signature by alice"));
}

#[test]
fn settings_that_are_missing_or_wrong_are_named() {
    let Some(place) = place() else { return };
    let sign = "echo payload | hypergrove-git --status-fd=2 -bsau 'A <a@example.org>'";
    let signed = |settings: &str| git(&place, &format!("{settings}; {sign}"));
    let verified = |settings: &str| git(&place, &format!("{settings} git verify-commit HEAD"));
    git(&place, "git commit -qS --allow-empty -m one").good();
    let run = signed("true").good();
    assert!(
        run.stderr.starts_with("[GNUPG:] BEGIN_SIGNING H0\n[GNUPG:] SIG_CREATED D ")
            && run.text().starts_with("-----BEGIN SIGNED MESSAGE-----\nVersion: 1\n")
    );
    signed("git config hypergrove.key ''").refuses(&[
        "setting hypergrove.key is missing",
        "git config hypergrove.key FILE",
        "docs/git.md",
    ]);
    signed("git config hypergrove.key ../no.pem").refuses(&[
        "cannot read ",
        "no.pem: there is no such file",
        "hypergrove.key names",
    ]);
    place.write("raw", [7; 64]);
    signed("git config hypergrove.key ../raw")
        .refuses(&["do not name their set", "hypergrove.key names a private key"]);
    signed("git config hypergrove.key ../p.pem").refuses(&["is a public key"]);
    place.run(&["keygen", "--scheme", "zkdilithium", "-o", "z.pem"]).good();
    signed("git config hypergrove.key ../z.pem").refuses(&["z.pem is a key of zkDilithium"]);
    // Nothing was signed, and Git made no commit.
    git(&place, "git commit -qS --allow-empty -m two").exits(128);
    git(&place, "test $(git rev-list --count HEAD) = 1").good();
    let run = verified("git config --global --unset hypergrove.allowedSigners;").exits(1);
    assert!(run.stderr.contains("setting hypergrove.allowedSigners is missing"), "{}", run.stderr);
    place.write("settings", SETTINGS);
    for (list, words) in
        [("no", "there is no such file"), ("k.pem", "looks like a private key"), ("settings", "settings: line 1: ")]
    {
        let run = verified(&format!("git config hypergrove.allowedSigners ../{list};")).exits(1);
        assert!(run.stderr.contains(words), "{list}: {}", run.stderr);
        assert_eq!(git(&place, "git log -1 --format='%G?'").good().text(), "E\n");
    }
    // A key that others may read signs, with a warning.
    git(
        &place,
        "git config hypergrove.key ../k.pem && git config --unset hypergrove.allowedSigners && chmod 644 ../k.pem",
    )
    .good();
    let run = signed("true").good();
    assert!(
        run.stderr.contains("warning: others may read the private key ")
            && run.stderr.contains("\n[GNUPG:] SIG_CREATED D ")
    );
    git(&place, "git commit -qS --allow-empty -m open && git verify-commit HEAD").good();
    // A key under a passphrase, which is in a file or is asked for.
    place.write("pass", "correct horse\n");
    place.run(&["keygen", "--set", "sha2-128f", "-o", "e.pem", "--encrypt", "--passphrase-file", "pass"]).good();
    signed("git config hypergrove.key ../e.pem")
        .says(&["this private key is encrypted", "hypergrove.passphraseFile names"])
        .exits(2);
    signed("git config hypergrove.passphraseFile ../pass").good();
    place.write("pass", "battery staple\n");
    signed("true").refuses(&["the passphrase is wrong"]);
    // Whoever calls the program by hand, or the tool by Git's arguments, learns how it is meant.
    git(&place, "hypergrove-git").refuses(&["--verify", "Git calls this program", "hypergrove-git --help"]);
    git(&place, "hypergrove-git sign --key ../k.pem file").refuses(&["Git calls this program"]);
    let shown = git(&place, "hypergrove-git --help").good();
    assert!(shown.text().contains("git config gpg.x509.program hypergrove-git"), "{}", shown.text());
    git(&place, "$H --status-fd=2 -bsau x").refuses(&["make a link of that name", "gpg.x509.program"]);
}

/// Git before 2.41 does not show why its program has not signed.
#[cfg(target_os = "linux")]
#[test]
fn who_waits_at_the_terminal_learns_why_nothing_was_signed() {
    let Some(place) = place() else { return };
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: messages of hypergrove-git on a terminal: no script(1) (util-linux)");
        return;
    }
    let commit = "script -qec 'git commit -S --allow-empty -m one' ../typescript";
    let run = git(&place, &format!("git config hypergrove.key ../no.pem; {commit}; cat ../typescript")).good();
    assert!(run.text().contains("no.pem: there is no such file or directory"), "{}", run.text());
    place.write("pass", "correct horse\n");
    place.run(&["keygen", "--set", "sha2-128f", "-o", "e.pem", "--encrypt", "--passphrase-file", "pass"]).good();
    let typed = format!(
        "git config hypergrove.key ../e.pem; (sleep 1; echo 'correct horse') | {commit} && git cat-file -p HEAD"
    );
    assert!(git(&place, &typed).good().text().contains("gpgsig -----BEGIN SIGNED MESSAGE-----"));
}
