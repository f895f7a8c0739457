//! The mode of a case, as the files of cases name it.

use hypergrove_fips205::{Mode, PreHash};

/// An interface, the hash function that it names if it is the pre-hash one, and a context.
#[derive(Clone, Debug)]
pub(crate) struct CaseMode {
    interface: String,
    hash: Option<PreHash>,
    context: Vec<u8>,
}

impl CaseMode {
    /// The name of the hash function is empty where there is none.
    pub(crate) fn new(interface: &str, hash: &str, context: &[u8]) -> CaseMode {
        let hash = Some(hash).filter(|name| !name.is_empty());
        let hash = hash.map(|name| name.parse().unwrap_or_else(|why| panic!("{why}")));
        CaseMode { interface: interface.into(), hash, context: context.into() }
    }
    pub(crate) fn mode(&self) -> Mode<'_> {
        match (&self.interface[..], self.hash) {
            ("pure", None) => Mode::Pure { context: &self.context },
            ("preHash", Some(hash)) => Mode::PreHash { context: &self.context, hash },
            ("internal", None) => Mode::Internal,
            other => panic!("the interface {other:?}"),
        }
    }
}
