//! The paths of tokens and policies.

use crate::access::{Bearer, Capability, DEFAULT, Policy, ROOT, make_token, now};
use crate::api::{Call, Op, Reply};
use crate::error::Error;
use crate::fields::{Foreign, named, parse};
use crate::keys::check_new;
use crate::state::granted;
use hypergrove::quote::Quote;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A token's life without `ttl`: 32 days, as in Vault.
const TTL: u64 = 32 * 24 * 3600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    policies: Option<Vec<String>>,
    ttl: Option<Value>,
    explicit_max_ttl: Option<Value>,
    display_name: Option<String>,
    no_parent: Option<bool>,
}

const OTHER_TOKENS: &str = "this server's tokens have policies, a ttl and a display_name alone, and ids that it draws";
/// Settings of Vault's tokens that these do not have. No token is renewed here, which the answer says.
const OF_VAULT: &[Foreign] = &[
    (
        &["num_uses", "period", "id", "meta", "no_default_policy", "entity_alias", "role_name", "lease"],
        &[],
        OTHER_TOKENS,
    ),
    (&["renewable"], &["true"], OTHER_TOKENS),
    (&["type"], &["service"], OTHER_TOKENS),
];

/// Seconds of a number, or of a text such as `90`, `30s`, `1h30m` or `2d`.
pub(crate) fn seconds(value: &Value) -> Option<u64> {
    if let Some(seconds) = value.as_u64() {
        return Some(seconds);
    }
    let mut text = value.as_str()?;
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let mut total = 0_u64;
    while !text.is_empty() {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match text.as_bytes().get(digits)? {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 24 * 3600,
            _ => return None,
        };
        total = total.checked_add(text[..digits].parse::<u64>().ok()?.checked_mul(unit)?)?;
        text = &text[digits + 1..];
    }
    Some(total)
}

fn time(unix: u64) -> String {
    jiff::Timestamp::from_second(unix.try_into().unwrap_or(i64::MAX)).unwrap_or(jiff::Timestamp::MAX).to_string()
}

fn with_default(policies: &[String]) -> Vec<String> {
    let default = (!policies.iter().any(|policy| policy == ROOT)).then(|| DEFAULT.to_string());
    default.into_iter().chain(policies.iter().cloned()).collect()
}

/// Refuses names of a token's policies that no policy can have, and those that are another policy's but for capitals: Vault would take that one, and it may
/// forbid something. Returns warnings for policies that are not there.
fn check_names(names: &[String], policies: &BTreeMap<String, Policy>) -> Result<Vec<String>, Error> {
    let known = || policies.keys().map(String::as_str).chain([ROOT, DEFAULT]);
    let mut warnings = Vec::new();
    for name in names.iter().filter(|name| !known().any(|known| known == *name)) {
        check_new(name).map_err(|why| Error::bad(format!("policies: {why}")))?;
        let shown = Quote::name(name, known());
        if let Some(other) = known().find(|known| known.eq_ignore_ascii_case(name)) {
            return Err(Error::bad(format!(
                "policies: there is no policy {shown}; {other} has its name but for capitals"
            )));
        }
        warnings.push(format!("there is no policy {shown}: it allows and forbids nothing until it is written"));
    }
    Ok(warnings)
}

/// `POST auth/token/create`
pub(crate) async fn create_token(call: &mut Call) -> Result<Reply, Error> {
    let request: TokenRequest = parse(&call.body, OF_VAULT)?;
    let parent = call.token()?.clone();
    let mut ttl = None;
    for wanted in [&request.ttl, &request.explicit_max_ttl].into_iter().flatten() {
        let wrong = || Error::bad("ttl, explicit_max_ttl: write seconds, or a text such as \"1h30m\"");
        let wanted = seconds(wanted).ok_or_else(wrong)?;
        ttl = [ttl, (wanted > 0).then_some(wanted)].into_iter().flatten().min();
    }
    let policies = granted(request.policies, &parent)?;
    let warnings = check_names(&policies, &call.server.access().policies)?;
    let is_root = policies.iter().any(|policy| policy == ROOT);
    let no_parent = request.no_parent == Some(true);
    if no_parent && !call.may(&[Capability::Update, Capability::Sudo]) {
        return Err(Error::denied());
    }
    let display_name =
        format!("token-{}", request.display_name.as_deref().unwrap_or("").chars().take(128).collect::<String>());
    let ttl = if is_root { ttl } else { ttl.or(Some(TTL)) };
    let of = (!no_parent).then_some(&parent.record);
    let (record, text) = make_token(display_name.trim_end_matches('-').into(), policies, ttl, of)?;
    let auth = json!({
        "client_token": *text, "accessor": record.accessor, "policies": with_default(&record.policies),
        "token_policies": with_default(&record.policies), "identity_policies": null, "metadata": null,
        "lease_duration": record.expires.map_or(0, |expires| expires.saturating_sub(now())), "renewable": false, "entity_id": "",
        "token_type": "service", "orphan": no_parent, "mfa_requirement": null, "num_uses": 0,
    });
    let accessor = parent.record.accessor.clone();
    call.server
        .change(move |server| {
            // A parent that was revoked meanwhile would never take this token along.
            if !server.access().tokens.contains_key(&accessor) {
                return Err(Error::denied());
            }
            server.put_token(record)
        })
        .await?;
    Ok(warnings.into_iter().fold(Reply::auth(auth), Reply::warn))
}

/// `GET auth/token/lookup-self`
pub(crate) fn lookup_self(call: &Call) -> Result<Reply, Error> {
    let record = &call.token()?.record;
    let ttl = record.expires.map_or(0, |expires| expires.saturating_sub(now()));
    Ok(Reply::data(json!({
        "accessor": record.accessor, "creation_time": record.created, "issue_time": time(record.created),
        "creation_ttl": record.expires.map_or(0, |expires| expires.saturating_sub(record.created)),
        "display_name": record.display_name, "entity_id": "", "expire_time": record.expires.map(time), "explicit_max_ttl": 0,
        "meta": null, "num_uses": 0, "orphan": record.parent.is_none(), "path": "auth/token/create",
        "policies": with_default(&record.policies), "renewable": false, "ttl": ttl, "type": "service",
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeRequest {
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeAccessorRequest {
    accessor: String,
}

/// `POST auth/token/revoke-self`, `revoke` and `revoke-accessor`
pub(crate) async fn revoke(call: &mut Call, op: Op) -> Result<Reply, Error> {
    let unknown = || Error::bad("there is no such token");
    let accessor = match op {
        Op::RevokeSelf => call.token()?.record.accessor.clone(),
        Op::Revoke => {
            let token = zeroize::Zeroizing::new(parse::<RevokeRequest>(&call.body, &[])?.token);
            let bearer = Bearer::parse(&token).ok_or_else(unknown)?;
            let access = call.server.access();
            let token = access.tokens.get(bearer.accessor()).filter(|token| bearer.is_of(&token.record));
            token.ok_or_else(unknown)?.record.accessor.clone()
        }
        _ => {
            let RevokeAccessorRequest { accessor } = parse(&call.body, &[])?;
            if !call.server.access().tokens.contains_key(&accessor) {
                return Err(unknown());
            }
            accessor
        }
    };
    call.server.change(move |server| server.revoke(&accessor)).await?;
    Ok(Reply::empty())
}

/// `LIST sys/policies/acl`, `GET sys/policy`
pub(crate) fn list_policies(call: &Call) -> Result<Reply, Error> {
    let own = [DEFAULT, ROOT].map(String::from);
    let mut names: Vec<String> = call.server.access().policies.keys().cloned().chain(own).collect();
    names.sort();
    Ok(Reply::data(json!({ "keys": names, "policies": names })))
}

/// `GET sys/policies/acl/NAME`, `sys/policy/NAME`: as in Vault, `rules` is the older path's name of the text.
pub(crate) fn read_policy(call: &Call) -> Result<Reply, Error> {
    let name = call.name()?;
    let access = call.server.access();
    let policy = access.policies.get(&name).ok_or_else(Error::missing)?;
    let reply = Reply::data(json!({ "name": name, "policy": policy.text, "rules": policy.text }));
    Ok(policy.faults.iter().cloned().fold(reply, Reply::warn))
}

fn changeable(call: &Call) -> Result<String, Error> {
    let name = call.name()?;
    match name == ROOT || name == DEFAULT {
        true => Err(Error::bad(format!("the policy {name} is the server's own"))),
        false => Ok(name),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRequest {
    /// A text, or an object as it was sent: a value in memory would have lost the first of two rules with one path.
    #[serde(alias = "rules")]
    policy: Box<RawValue>,
}

impl PolicyRequest {
    fn text(&self) -> String {
        serde_json::from_str(self.policy.get()).unwrap_or_else(|_| self.policy.get().into())
    }
}

/// `POST sys/policies/acl/NAME`, `sys/policy/NAME`
pub(crate) async fn write_policy(call: &mut Call) -> Result<Reply, Error> {
    let name = changeable(call)?;
    check_new(&name)?;
    let request: PolicyRequest = parse(&call.body, &named(&[], &[&name]))?;
    let policy = Policy::parse(&request.text())?;
    call.server.change(move |server| server.put_policy(&name, policy)).await?;
    Ok(Reply::empty())
}

/// `DELETE sys/policies/acl/NAME`, `sys/policy/NAME`
pub(crate) async fn delete_policy(call: &mut Call) -> Result<Reply, Error> {
    let name = changeable(call)?;
    call.server.change(move |server| server.delete_policy(&name)).await?;
    Ok(Reply::empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The sum of the parts, without a bound before the end.
    fn sum(text: &str) -> Option<u64> {
        let parts = text.split_inclusive(|letter: char| !letter.is_ascii_digit()).map(|part| {
            let scales = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];
            let (unit, scale) = scales.into_iter().find(|(unit, _)| part.ends_with(*unit))?;
            part.strip_suffix(unit)?.parse::<u128>().ok()?.checked_mul(scale)
        });
        parts.sum::<Option<u128>>()?.try_into().ok()
    }

    #[test]
    fn fuzz_durations() {
        crate::fuzz::fuzz(20_000, &[b"90", b"1h30m", b"2d", b"18446744073709551615s"], "s m h d 1s 59m", |input| {
            let text = String::from_utf8_lossy(input);
            let read = seconds(&json!(text));
            assert_eq!(read, text.parse().ok().or_else(|| sum(&text)));
            format!("{}", read.is_some())
        });
    }

    /// A body is read as another reader of JSON reads it, and an error repeats no value.
    #[test]
    fn fuzz_bodies_of_tokens_and_policies() {
        let seeds: [&[u8]; 4] = [
            br#"{"policies": ["a", "b"], "ttl": "1h", "explicit_max_ttl": 5, "display_name": "S3cr3t-S3cr3t", "no_parent": true, "num_uses": 0, "period": null, "id": "", "renewable": true}"#,
            br#"{"token": "S3cr3t-S3cr3t"}"#,
            br#"{"accessor": "S3cr3t-S3cr3t"}"#,
            br#"{"policy": "S3cr3t-S3cr3t"}"#,
        ];
        let words = "\"S3cr3t-S3cr3t\" \"policies\": \"token\": \"rules\": \"policy\": \"ttl\":";
        crate::fuzz::fuzz(20_000, &seeds, words, |input| {
            let value: Value = serde_json::from_slice(input).unwrap_or_default();
            let is = |field: &str, read: Value| assert!(value.is_null() || value[field] == read, "{field}");
            let has = |fields: &[&str]| {
                let is_known = |field: &String| fields.contains(&field.as_str());
                assert!(value.is_null() || value.as_object().unwrap().keys().all(is_known), "{value}");
            };
            let token = parse::<TokenRequest>(input, OF_VAULT).map(|it| {
                let foreign = OF_VAULT.iter().flat_map(|(fields, ..)| *fields).copied();
                let own = ["policies", "ttl", "explicit_max_ttl", "display_name", "no_parent"];
                has(&foreign.chain(own).collect::<Vec<_>>());
                is("policies", json!(it.policies));
                is("ttl", json!(it.ttl));
                is("explicit_max_ttl", json!(it.explicit_max_ttl));
                is("display_name", json!(it.display_name));
                is("no_parent", json!(it.no_parent));
                assert_ne!(value["id"], json!("S3cr3t-S3cr3t"));
            });
            let revoke = parse::<RevokeRequest>(input, &[]).map(|it| {
                has(&["token"]);
                is("token", json!(it.token));
            });
            let accessor = parse::<RevokeAccessorRequest>(input, &[]).map(|it| {
                has(&["accessor"]);
                is("accessor", json!(it.accessor));
            });
            let policy = parse::<PolicyRequest>(input, &[]).map(|it| {
                has(&["policy", "rules"]);
                let read = serde_json::from_str(it.policy.get()).unwrap_or(json!(it.text()));
                is(if value.get("policy").is_some() { "policy" } else { "rules" }, read);
            });
            let errors =
                [token, revoke, accessor, policy].map(|read| read.err().map_or(String::new(), |why| why.to_string()));
            assert!(!errors.concat().contains("S3cr3t-S3cr3t"), "{errors:?}");
            errors.concat()
        });
    }

    #[test]
    fn times_are_read_as_vault_writes_them() {
        for (text, value) in [("90", 90), ("30s", 30), ("1h30m", 5400), ("2d", 172_800), ("0", 0)] {
            assert_eq!(seconds(&json!(text)), Some(value), "{text}");
        }
        assert_eq!(seconds(&json!(5)), Some(5));
        for wrong in ["h", "1x", "1", "-1s", "1h2", "99999999999999999999s", "9999999999999999d"] {
            assert_eq!(seconds(&json!(wrong)), if wrong == "1" { Some(1) } else { None }, "{wrong}");
        }
        assert_eq!(seconds(&json!(-1)), None);
        assert_eq!([time(0), time(u64::MAX)].map(|text| text[..5].to_string()), ["1970-", "9999-"]);
    }
}
