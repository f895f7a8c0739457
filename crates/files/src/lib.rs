#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod envelope;
pub mod ledger;
pub mod manifest;
#[cfg(feature = "signers")]
pub mod signers;
pub mod text;
#[cfg(feature = "x509")]
pub mod x509;

/// Threads may share every type of the crate: otherwise this does not compile.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<(envelope::Envelope, envelope::EnvelopeError, envelope::Mismatch)>();
    is_shared::<(manifest::Manifest, manifest::ManifestError)>();
    is_shared::<(ledger::FileLedger, ledger::MemoryLedger, ledger::Blocks<ledger::FileLedger>, ledger::LedgerError)>();
    #[cfg(feature = "signers")]
    is_shared::<(signers::AllowedSigners, signers::SignersError)>();
    #[cfg(feature = "x509")]
    is_shared::<(x509::Certificate, x509::Request, x509::SignedData, x509::X509Error)>();
};
