//! The paths of rules and of requests: both are brought into one form, and a rule must have a path that a request can have.

use crate::access::Capability;
use crate::api::{ROUTES, Route};
use crate::keys::check_name;
use hypergrove::quote::Quote;

/// The one form of a path. As in a request, one '/' at the end is nothing, and Vault's older paths of policies are those of the newer ones.
pub(crate) fn normal(path: &str) -> String {
    let path = path.strip_suffix('/').filter(|rest| !rest.ends_with('*')).unwrap_or(path);
    match path.strip_prefix("sys/policy") {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '*']) => format!("sys/policies/acl{rest}"),
        _ => path.into(),
    }
}

/// The path by which policies decide about a request. With the name of a hash function behind it, it is the same key. As in Vault, a list has a
/// '/' at its end, which a rule with '*' sees.
pub(crate) fn governed(route: &Route, path: &str) -> String {
    let path = normal(path);
    match path.rsplit_once('/') {
        Some((key, _)) if names_hash(route) => key.into(),
        _ if lists(route) => path + "/",
        _ => path,
    }
}

fn names_hash(route: &Route) -> bool {
    route.path.ends_with("/{hash_algorithm}")
}

fn lists(route: &Route) -> bool {
    route.needs.contains(&Capability::List)
}

/// Whether this is a version of a key, written in the one way that counts.
pub(crate) fn is_version(text: &str) -> bool {
    text == "latest" || text.parse().is_ok_and(|version: u32| version > 0 && version.to_string() == text)
}

/// Whether a part of a rule's path, or the beginning of one, fits this part of a route's path.
fn fits(expected: &str, part: &str, is_beginning: bool) -> bool {
    match expected {
        "{name}" => check_name(part).is_ok() || (is_beginning && part.is_empty()),
        "{version}" => is_version(part) || (is_beginning && "latest".starts_with(part)),
        _ => part == expected || (is_beginning && expected.starts_with(part)),
    }
}

/// Whether a rule with this path decides about a request of this route.
fn reaches(rule: &str, route: &Route) -> bool {
    let prefix = rule.strip_suffix('*');
    let parts: Vec<&str> = prefix.unwrap_or(rule).split('/').collect();
    let end = (prefix.is_some() && lists(route)).then_some("");
    let expected: Vec<&str> = route.path.split('/').chain(end).collect();
    let is_whole = parts.len() == expected.len();
    let is_beginning = |at: usize| prefix.is_some() && at + 1 == parts.len();
    (is_whole || (prefix.is_some() && parts.len() < expected.len()))
        && parts.iter().zip(&expected).enumerate().all(|(at, (part, of))| fits(of, part, is_beginning(at)))
}

/// The routes whose paths policies name as they are.
fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| !names_hash(route) && normal(route.path) == route.path)
}

/// The routes about which a rule with this path, in its one form, decides.
pub(crate) fn of_rule(rule: &str) -> Vec<&'static Route> {
    routes().filter(|route| !route.needs.is_empty() && reaches(rule, route)).collect()
}

/// The sentence for a rule's path that no request with a token has.
pub(crate) fn why_none(rule: &str) -> String {
    let rule = normal(rule);
    if let Some(route) = routes().find(|route| route.needs.is_empty() && reaches(&rule, route)) {
        return format!("the path {} needs no token, so no policy can allow or forbid it", route.path);
    }
    let lower = rule.trim_end_matches('*').to_lowercase();
    let parts: Vec<&str> = lower.split('/').map(str::trim).filter(|part| !["", "v1"].contains(part)).collect();
    // A name is as near as any other. A part that is missing or too much is as far as a part of four other letters.
    let distance = |route: &&Route| {
        let expected: Vec<&str> = route.path.split('/').collect();
        let fixed = parts.iter().zip(&expected).filter(|(_, of)| !of.starts_with('{'));
        fixed.map(|(part, of)| strsim::levenshtein(part, of)).sum::<usize>() + 4 * parts.len().abs_diff(expected.len())
    };
    let nearest = routes().filter(|route| !route.needs.is_empty()).min_by_key(distance).map_or("", |route| route.path);
    let nearest = nearest.replace("{name}", "NAME").replace("{version}", "VERSION");
    let shown = Quote::name(&rule, [&*nearest]).bare();
    format!(
        "no request has the path {shown}; the nearest path is {nearest:?}, and a '*' may stand at its end alone (Vault's '+' for a part is not known here)"
    )
}
