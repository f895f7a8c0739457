//! Where the test vectors are.

use std::path::{Path, PathBuf};

/// Suites and what they read under the folder of vectors, named as testkit names them. NIST's ACVP cases are in the workspace.
const SUITES: &[(&str, &str)] = &[
    ("Botan", "slh-dsa/slh_dsa.vec"),
    ("SPHINCS+ WOTS+", "slh-dsa/sphincsplus_wots.vec"),
    ("SPHINCS+ FORS", "slh-dsa/sphincsplus_fors.vec"),
    ("BoringSSL HashSLH-DSA", "slh-dsa/slhdsa_sha2_128s_prehash.txt"),
    ("draft SP 800-230", "slh-dsa/sp800-230-draft-kat.json"),
    ("RFC 9909", "slh-dsa/rfc9909"),
    ("OpenSSL trust anchors", "slh-dsa/ossl35_artifacts_certs_r5"),
    ("CMS, OpenSSL", "slh-dsa/ossl35_artifacts_cms_v3"),
    ("CMS, Bouncy Castle", "slh-dsa/bc_artifacts_cms_v3"),
];

/// HYPERGROVE_VECTORS, or `shared/vectors` next to the workspace.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("HYPERGROVE_VECTORS")
        .map_or_else(|| crate::workspace().parent().unwrap_or(Path::new("/")).join("shared/vectors"), PathBuf::from)
}

/// Prints which suites have their vectors. Missing ones are no failure: their tests skip by name.
pub(crate) fn print() {
    let folder = folder();
    println!("\n=== vectors at {} (HYPERGROVE_VECTORS names another folder)", folder.display());
    for (suite, path) in SUITES {
        let found = if folder.join(path).exists() { "found" } else { "missing, skipped" };
        println!("{suite:<33} {found:<17} {path}");
    }
}
