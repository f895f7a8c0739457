//! The list of studies.

macro_rules! definitions {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../../../bench/definitions/", $name, ".toml"))),)*] };
}

/// All studies. The one place where they are listed.
pub(super) static DEFINITIONS: &[(&str, &str)] = definitions! {
    "throughput" "ladder" "functions" "sha256" "crossover" "callers" "cores" "cache-depth" "multi-gpu" "host" "limits"
};

/// The names of all studies.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.iter().map(|(name, _)| *name)
}
