//! The script of docs/ci-signing.md, run as a workflow runs it.

use crate::place::{Place, Run};
use std::fs;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A folder with an encrypted key and two files of a release.
fn release() -> Place {
    let place = Place::new();
    place.write("pp", "correct horse\n");
    let keygen = ["keygen", "--set", "SLH-DSA-SHA2-128f", "--encrypt", "--passphrase-file", "pp"];
    place.run(&[&keygen[..], &["-o", "release.key", "--pubout", "release.pub"]].concat()).good();
    fs::create_dir(place.path("dist")).unwrap();
    place.write("dist/program", "program");
    place.write("dist/manual", "manual");
    place
}

/// Runs the script with this passphrase; `hypergrove` on the path is the tool.
fn sign(place: &Place, passphrase: &str) -> Run {
    fs::create_dir_all(place.path("bin")).unwrap();
    let script = format!(
        "ln -sf \"$H\" bin/hypergrove; export PATH=\"$PWD/bin:$PATH\" RELEASE_KEY=\"$(cat release.key)\" RELEASE_PASSPHRASE='{passphrase}'\n\
         sh '{ROOT}/crates/cli/examples/sign-release.sh' dist 'myproject v1.2' release.pub"
    );
    place.shell(&script)
}

const VERIFY: [&str; 7] = ["verify", "--key", "release.pub", "--manifest", "dist/SHA256SUMS", "--extra", "--context"];

#[test]
fn the_script_signs_a_release() {
    let place = release();
    let run = sign(&place, "correct horse").good();
    assert!(run.text().contains("SHA256SUMS: OK") && run.text().contains("program: OK"), "{}", run.text());
    let verify = |context| place.run(&[&VERIFY[..], &[context]].concat());
    verify("myproject v1.2").good();
    assert_eq!(verify("myproject v1.3").code, Some(1));
    place.write("dist/program", "changed");
    assert_eq!(verify("myproject v1.2").code, Some(1));
    // Nothing secret is left behind.
    assert_eq!(place.names(), ["bin", "dist", "pp", "release.key", "release.pub"]);
    assert_eq!(fs::read_dir(place.path("dist")).unwrap().count(), 4);
}

#[test]
fn the_script_fails_with_a_wrong_secret() {
    let place = release();
    assert_eq!(sign(&place, "another horse").code, Some(2));
    assert_eq!(fs::read_dir(place.path("dist")).unwrap().count(), 2);
    let run = sign(&place, "");
    assert!(run.code != Some(0) && run.stderr.contains("RELEASE_PASSPHRASE"), "{}", run.stderr);
    // A key that is not the published one signs, and the script says so.
    place.run(&["keygen", "--set", "SLH-DSA-SHA2-128f", "-o", "k", "--pubout", "release.pub", "--force"]).good();
    assert_eq!(sign(&place, "correct horse").code, Some(1));
}

#[test]
fn the_page_shows_the_script_and_the_workflow() {
    let read = |path: &str| fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    let page = read("docs/ci-signing.md");
    for name in ["sign-release.sh", "sign-release.yml"] {
        assert!(page.contains(&read(&format!("crates/cli/examples/{name}"))), "docs/ci-signing.md lacks {name}");
    }
}
