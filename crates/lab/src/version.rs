//! Which tool this is.

/// The version of the tool.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that the tool is built from.
pub const COMMIT: &str = env!("HYPERGROVE_COMMIT");
/// The tool's version and commit, as `--version` shows them.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HYPERGROVE_COMMIT"), ")");
