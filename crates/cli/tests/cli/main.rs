//! The tool as a user meets it: run as a process, judged by its exit code, its output and the files it leaves.

mod acvp;
mod automation;
#[cfg(unix)]
mod canary;
mod diagnose;
mod envelope;
mod files;
#[cfg(unix)]
mod git;
mod hash;
mod identity;
mod keys;
mod ledger;
mod measure;
mod memory;
mod passphrase;
mod place;
#[cfg(unix)]
mod release;
mod report;
mod schema;
mod sign_verify;
mod studies;
mod system;
#[cfg(unix)]
mod trees;
#[cfg(unix)]
mod trust;
#[cfg(windows)]
mod windows;
mod x509;
mod zkdilithium;
