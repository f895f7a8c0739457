//! Licences of the dependencies, as deny.toml allows them: by cargo-deny, or without it by our own reading. cargo-deny takes many
//! minutes to build, and these few lines let every run of CI look at licences.

use crate::process;
use crate::step::Step;
use crate::{disk, supply_chain};
use std::collections::BTreeSet;

/// CI's step: licences, sources, and that somebody vouches for each dependency, in each workspace that is shipped.
pub(crate) fn check() -> Step {
    let of = |workspace| Ok::<_, String>(format!("{}; {}", licences(workspace)?, supply_chain::vetted(workspace)?));
    let notes = supply_chain::WORKSPACES.map(of).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(notes.join("; the server: "))
}

fn licences(workspace: &str) -> Result<String, String> {
    let manifest = format!("{workspace}/Cargo.toml");
    if process::answers("cargo", &["deny", "--version"]) {
        supply_chain::deny(workspace, &["bans", "licenses", "sources"])?;
        return Ok("licences by cargo-deny".into());
    }
    let rules = disk::read_toml("deny.toml")?;
    let allowed = allowed(&rules).ok_or("deny.toml: no `allow = [` in [licenses]")?;
    let tree = ["tree", "--manifest-path", &manifest];
    let words = ["--workspace", "--all-features", "--target", "all", "--prefix", "none", "--format", "{p}\t{l}"];
    let text = process::text(process::cargo(&[&tree[..], &words].concat()))?;
    let packages: BTreeSet<_> =
        text.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('\t')).collect();
    match packages.iter().find(|(_, licence)| !permitted(licence, &allowed)) {
        Some((package, licence)) => Err(format!("{package}: its licence '{licence}' is not allowed by deny.toml")),
        None => Ok(format!("licences of {} packages, without cargo-deny", packages.len())),
    }
}

fn allowed(rules: &toml::Table) -> Option<Vec<&str>> {
    rules.get("licenses")?.get("allow")?.as_array()?.iter().map(toml::Value::as_str).collect()
}

/// An SPDX expression without nesting to the right of AND: OR of ANDs, `/` an old OR.
fn permitted(licence: &str, allowed: &[&str]) -> bool {
    let open = licence.replace('/', " OR ");
    let factors: Vec<&str> = match open.contains('(') {
        // (A OR B) AND C: each factor by itself.
        true => open.split(" AND ").map(|factor| factor.trim_matches(['(', ')'])).collect(),
        false => vec![open.as_str()],
    };
    let one = |term: &str| term.split(" AND ").all(|id| allowed.contains(&id.trim()));
    factors.iter().all(|factor| factor.split(" OR ").any(one))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_licence_expressions() {
        let rules = "[licenses]\nallow = [\n    \"MIT\", # one\n    \"Unicode-3.0\",\n]".parse().unwrap();
        let allowed = allowed(&rules).unwrap();
        assert_eq!(allowed, ["MIT", "Unicode-3.0"]);
        for (licence, good) in [
            ("MIT", true),
            ("Apache-2.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND Zlib", false),
            ("MIT AND Zlib", false),
            ("GPL-3.0", false),
            ("", false),
        ] {
            assert_eq!(permitted(licence, &allowed), good, "{licence}");
        }
    }
}
