//! Who may do what: tokens, and the policies that they name.

use crate::error::Error;
use crate::seal::random;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hypergrove::Params;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The policy that may do everything.
pub const ROOT: &str = "root";
/// The policy that every token has: what it allows concerns the token alone.
pub const DEFAULT: &str = "default";
const DEFAULT_PATHS: [&str; 2] = ["auth/token/lookup-self", "auth/token/revoke-self"];

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A token, as it is stored: its secret half only as a hash.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Names the token. It is no secret.
    pub accessor: String,
    /// SHA-256 of the secret half.
    secret_sha256: String,
    /// Its purpose, in its owner's words.
    pub display_name: String,
    /// The names of its policies.
    pub policies: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it ends. `None`: never.
    pub expires: Option<u64>,
    /// The accessor of the token that made it, which takes it along when it is revoked.
    pub parent: Option<String>,
}

/// A token in use.
pub struct Token {
    /// The stored half.
    pub record: TokenRecord,
    /// For each path of a policy with a rate: the items that the token may still use.
    rates: Mutex<HashMap<String, Allowance>>,
}

struct Allowance {
    left: f64,
    at: Instant,
}

impl Token {
    /// A token that was read from the database.
    pub fn new(record: TokenRecord) -> Token {
        Token { record, rates: Mutex::new(HashMap::new()) }
    }

    /// Whether the token may do everything.
    pub fn is_root(&self) -> bool {
        self.record.policies.iter().any(|policy| policy == ROOT)
    }

    /// Whether the token's time is over.
    pub fn has_expired(&self) -> bool {
        self.record.expires.is_some_and(|expires| now() >= expires)
    }

    /// Counts `items` against a rate. One request may exceed the rate of a second; the next requests then wait longer.
    pub fn spend(&self, rate: &Rate, items: usize) -> Result<(), Error> {
        let per_second = f64::from(rate.per_second);
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let allowance = rates.entry(rate.path.clone()).or_insert(Allowance { left: per_second, at: now });
        let since = now.duration_since(allowance.at).as_secs_f64();
        *allowance = Allowance { left: (allowance.left + since * per_second).min(per_second), at: now };
        if allowance.left < 1.0 {
            let seconds = ((1.0 - allowance.left) / per_second).ceil().max(1.0) as u64;
            let what = format!("the token's policy allows {} items a second on {}", rate.per_second, rate.path);
            return Err(Error::busy(what, seconds));
        }
        allowance.left -= items as f64;
        Ok(())
    }
}

/// Leaves the hash out.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("accessor", &self.record.accessor).finish_non_exhaustive()
    }
}

/// A token, as its holder has it: `hgs.ACCESSOR.SECRET`.
pub struct Bearer {
    accessor: String,
    secret: Zeroizing<Vec<u8>>,
}

impl Bearer {
    /// Reads a token from a header.
    pub fn parse(text: &str) -> Option<Bearer> {
        let (accessor, secret) = text.strip_prefix("hgs.")?.split_once('.')?;
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret).ok()?);
        (secret.len() == 32).then(|| Bearer { accessor: accessor.into(), secret })
    }

    /// The accessor, by which the record is found.
    pub fn accessor(&self) -> &str {
        &self.accessor
    }

    /// Whether the record is this token's. The comparison takes the same time wherever the hashes differ.
    pub fn is_of(&self, record: &TokenRecord) -> bool {
        let hash = hex::encode(Sha256::digest(&self.secret[..]));
        hash.as_bytes().ct_eq(record.secret_sha256.as_bytes()).into()
    }
}

/// Makes a token. Returns its record and the text for its holder, which is stored nowhere.
pub fn make_token(
    display_name: String,
    policies: Vec<String>,
    ttl: Option<u64>,
    parent: Option<&TokenRecord>,
) -> Result<(TokenRecord, Zeroizing<String>), Error> {
    let accessor = hex::encode(random::<16>()?);
    let secret = Zeroizing::new(random::<32>()?);
    let text = Zeroizing::new(format!("hgs.{accessor}.{}", URL_SAFE_NO_PAD.encode(&secret[..])));
    let created = now();
    // A token ends with its parent at the latest.
    let own = ttl.map(|ttl| created.saturating_add(ttl));
    let expires = [own, parent.and_then(|parent| parent.expires)].into_iter().flatten().min();
    let record = TokenRecord {
        accessor,
        secret_sha256: hex::encode(Sha256::digest(&secret[..])),
        display_name,
        policies,
        created,
        expires,
        parent: parent.map(|parent| parent.accessor.clone()),
    };
    Ok((record, text))
}

/// The ways to use a path, in Vault's words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Makes what is not there.
    Create,
    /// Reads.
    Read,
    /// Changes, signs, verifies.
    Update,
    /// Deletes.
    Delete,
    /// Lists.
    List,
    /// Does what needs an administrator.
    Sudo,
    /// Refuses everything else.
    Deny,
}

/// A policy: what is allowed on which paths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    path: BTreeMap<String, Rule>,
    /// The policy, as it was written.
    #[serde(skip)]
    pub text: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    capabilities: Vec<Capability>,
    /// The parameter sets of the keys that may be used. Without it: any.
    allowed_sets: Option<Vec<String>>,
    /// Items a second, for each token.
    rate_limit: Option<u32>,
    /// Whether everything is computed twice and compared.
    #[serde(default)]
    redundant: bool,
}

impl Policy {
    /// Reads a policy. Its language is JSON.
    pub fn parse(text: &str) -> Result<Policy, Error> {
        let mut policy: Policy = serde_json::from_str(text).map_err(|why| {
            Error::bad(format!("the policy is not JSON of the form {{\"path\": {{\"transit/sign/NAME\": {{\"capabilities\": [\"update\"]}}}}}}: {why}"))
        })?;
        for (path, rule) in &policy.path {
            if path.starts_with('/') || path.trim_end_matches('*').contains(['*', '+']) || path.ends_with("**") {
                return Err(Error::bad(format!(
                    "the policy's path {path:?} must have no '/' in front, no '+', and a '*' at its end alone"
                )));
            }
            if rule.rate_limit == Some(0) {
                return Err(Error::bad(format!(
                    "the policy's rate_limit for {path:?} must be at least 1; use \"deny\""
                )));
            }
            for set in rule.allowed_sets.iter().flatten() {
                if crate::keys::set_of(set).is_none() {
                    return Err(Error::bad(format!(
                        "the policy's allowed_sets for {path:?}: no parameter set is {set:?}"
                    )));
                }
            }
        }
        policy.text = text.into();
        Ok(policy)
    }
}

/// The restrictions under which a policy allows the use of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grant {
    /// The parameter sets that may be used. `None`: any.
    pub sets: Option<Vec<String>>,
    /// The rate. `None`: any.
    pub rate: Option<Rate>,
    /// Whether everything is computed twice and compared: one rule that asks for it suffices.
    pub redundant: bool,
}

/// Items a second on a path of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    path: String,
    per_second: u32,
}

impl Grant {
    /// Refuses a parameter set that is not allowed.
    pub fn check_set(&self, set: &Params) -> Result<(), Error> {
        match &self.sets {
            Some(sets) if !sets.iter().any(|allowed| allowed.eq_ignore_ascii_case(set.name)) => Err(Error::denied()),
            _ => Ok(()),
        }
    }
}

/// Whether a path of a policy covers the path of a request. Longer paths come before shorter ones, and exact ones before those with `*`.
fn covers(pattern: &str, path: &str) -> Option<(usize, bool)> {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix).then_some((prefix.len(), false)),
        None => (pattern == path).then_some((pattern.len(), true)),
    }
}

/// Checks that a token's policies allow a path with all of these capabilities, and returns their restrictions. As in Vault, the most specific path alone
/// counts, and where several policies have it, their grants add up, but `deny` wins.
pub fn authorise(
    token: &Token,
    policies: &BTreeMap<String, Policy>,
    path: &str,
    needs: &[Capability],
) -> Result<Grant, Error> {
    if token.is_root() || DEFAULT_PATHS.contains(&path) {
        return Ok(Grant::default());
    }
    let rules = token.record.policies.iter().filter_map(|name| policies.get(name)).flat_map(|policy| &policy.path);
    let covering: Vec<_> = rules.filter_map(|(pattern, rule)| Some((covers(pattern, path)?, pattern, rule))).collect();
    let best = covering.iter().map(|(specific, ..)| *specific).max().ok_or_else(Error::denied)?;
    let rules: Vec<_> = covering.into_iter().filter(|(specific, ..)| *specific == best).collect();
    let has = |capability: &Capability| rules.iter().any(|(.., rule)| rule.capabilities.contains(capability));
    if has(&Capability::Deny) || !needs.iter().all(has) {
        return Err(Error::denied());
    }
    // Restrictions of a rule without the first capability do not concern this request.
    let of_use = || rules.iter().filter(|(.., rule)| rule.capabilities.contains(&needs[0]));
    let sets: Option<Vec<&[String]>> = of_use().map(|(.., rule)| rule.allowed_sets.as_deref()).collect();
    let rates: Option<Vec<u32>> = of_use().map(|(.., rule)| rule.rate_limit).collect();
    let rate = rates.and_then(|rates| rates.into_iter().max());
    Ok(Grant {
        sets: sets.map(|sets| sets.concat()),
        rate: rate.map(|per_second| Rate { path: rules[0].1.clone(), per_second }),
        redundant: of_use().any(|(.., rule)| rule.redundant),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use hypergrove::{SLH_DSA_SHA2_128F, SLH_DSA_SHA2_128S};
    use serde_json::{Value, json};

    fn token(policies: &[&str]) -> Token {
        let policies = policies.iter().map(|policy| (*policy).into()).collect();
        Token::new(make_token("test".into(), policies, None, None).unwrap().0)
    }

    #[test]
    fn a_token_is_known_by_its_secret_alone() {
        let (record, text) = make_token("a".into(), vec![], None, None).unwrap();
        let (other, _) = make_token("b".into(), vec![], None, None).unwrap();
        let bearer = Bearer::parse(&text).unwrap();
        assert!(bearer.is_of(&record) && !bearer.is_of(&other));
        let stored = serde_json::to_string(&record).unwrap();
        assert!(!stored.contains(text.rsplit('.').next().unwrap()));
        let forged = format!("hgs.{}.{}", record.accessor, URL_SAFE_NO_PAD.encode([7; 32]));
        assert!(!Bearer::parse(&forged).unwrap().is_of(&record));
        for wrong in ["", "hgs.", "hgs.a.b", "s.abc", &text[..text.len() - 1], &format!("{}A", *text)] {
            assert!(Bearer::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_child_ends_with_its_parent() {
        let (mut parent, _) = make_token("p".into(), vec![], Some(10), None).unwrap();
        let (child, _) = make_token("c".into(), vec![], Some(1000), Some(&parent)).unwrap();
        assert_eq!(child.expires, parent.expires);
        parent.expires = Some(0);
        assert!(Token::new(parent).has_expired() && !Token::new(child).has_expired());
    }

    #[test]
    fn the_most_specific_path_decides() {
        let policy = |text: &str| Policy::parse(text).unwrap();
        let policies = BTreeMap::from([
            ("all".to_string(), policy(r#"{"path": {"transit/*": {"capabilities": ["update", "read"]}}}"#)),
            ("not".to_string(), policy(r#"{"path": {"transit/sign/secret*": {"capabilities": ["deny"]}}}"#)),
            ("one".to_string(), policy(r#"{"path": {"transit/sign/secret-1": {"capabilities": ["update"]}}}"#)),
            (
                "sets".to_string(),
                policy(
                    r#"{"path": {"transit/*": {"capabilities": ["update"], "allowed_sets": ["SLH-DSA-SHA2-128s"], "rate_limit": 2}}}"#,
                ),
            ),
            ("list".to_string(), policy(r#"{"path": {"transit/*": {"capabilities": ["list"]}}}"#)),
            (
                "twice".to_string(),
                policy(r#"{"path": {"transit/*": {"capabilities": ["update"], "redundant": true}}}"#),
            ),
        ]);
        let may = |names: &[&str], path: &str, needs: &[Capability]| authorise(&token(names), &policies, path, needs);
        let update = &[Capability::Update];
        assert!(may(&["all"], "transit/sign/a", update).is_ok());
        assert!(may(&["all"], "transit/sign/a", &[Capability::Update, Capability::Sudo]).is_err());
        assert!(may(&["all"], "sys/seal", update).is_err());
        assert!(may(&["all", "not"], "transit/sign/secret-2", update).is_err());
        assert!(may(&["all", "not", "one"], "transit/sign/secret-1", update).is_ok());
        assert!(may(&["list"], "transit/sign/a", update).is_err());
        assert!(may(&["list", "all"], "transit/sign/a", &[Capability::List]).is_ok());
        assert!(may(&[], "transit/sign/a", update).is_err() && may(&["gone"], "transit/sign/a", update).is_err());
        assert!(may(&[], "auth/token/lookup-self", &[Capability::Read]).is_ok());
        assert!(may(&[ROOT], "sys/seal", &[Capability::Update, Capability::Sudo]).is_ok());
        let grant = may(&["sets", "list"], "transit/sign/a", update).unwrap();
        assert!(grant.check_set(&SLH_DSA_SHA2_128S).is_ok());
        assert_eq!(grant.check_set(&SLH_DSA_SHA2_128F).unwrap_err().status, 403);
        // A second policy that restricts nothing lifts the restriction.
        assert_eq!(may(&["sets", "all"], "transit/sign/a", update).unwrap(), Grant::default());
        // One that asks for redundancy is not lifted.
        assert!(may(&["all", "twice"], "transit/sign/a", update).unwrap().redundant && !grant.redundant);
        let (token, rate) = (token(&[]), grant.rate.unwrap());
        assert!(token.spend(&rate, 1).is_ok() && token.spend(&rate, 1).is_ok());
        let refused = token.spend(&rate, 1).unwrap_err();
        assert_eq!((refused.status, refused.retry_after), (429, Some(1)));
    }

    /// A rule that decides about a path, found another way than the server does.
    fn deciding<'a>(rules: &'a serde_json::Map<String, Value>, path: &str) -> Option<&'a Value> {
        let covering = rules.iter().filter_map(|(pattern, rule)| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix).then_some((false, prefix.len(), rule)),
            None => (path == pattern).then_some((true, 0, rule)),
        });
        covering.max_by_key(|(is_exact, length, _)| (*is_exact, *length)).map(|(.., rule)| rule)
    }

    /// A policy that is read decides as its JSON says, and has no field that the server does not know.
    #[test]
    fn fuzz_policies() {
        const CAPABILITIES: [(&str, Capability); 6] = [
            ("create", Capability::Create),
            ("read", Capability::Read),
            ("update", Capability::Update),
            ("delete", Capability::Delete),
            ("list", Capability::List),
            ("sudo", Capability::Sudo),
        ];
        let seeds: [&[u8]; 4] = [
            br#"{"path": {"transit/sign/a": {"capabilities": ["update"], "allowed_sets": ["slh-dsa-sha2-128s"], "rate_limit": 100, "redundant": true}}}"#,
            br#"{"path": {"a/*": {"capabilities": ["read", "list"]}, "a/b*": {"capabilities": ["deny"]}, "a/b": {"capabilities": ["read"]}}}"#,
            br#"{"path": {"*": {"capabilities": ["create", "read", "update", "delete", "list", "sudo"]}}}"#,
            br#"{"path": {}}"#,
        ];
        let words = "\"path\" \"a/b\" {\"capabilities\": \"create\" \"sudo\" \"deny\" \"allowed_sets\" \"rate_limit\":";
        crate::fuzz::fuzz(10_000, &seeds, words, |input| {
            let text = String::from_utf8_lossy(input);
            let policy = match Policy::parse(&text) {
                Ok(policy) => policy,
                Err(why) => return why.to_string(),
            };
            assert_eq!(policy.text, text);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.as_object().unwrap().len(), 1);
            let rules = value["path"].as_object().unwrap();
            let (token, policies) = (token(&["p"]), BTreeMap::from([("p".to_string(), policy)]));
            let near = |pattern: &String| [pattern.clone(), pattern.replace('*', ""), pattern.replace('*', "b") + "b"];
            for path in rules.keys().flat_map(near) {
                let rule = deciding(rules, &path);
                let has = |name: &str| {
                    rule.is_some_and(|rule| rule["capabilities"].as_array().unwrap().contains(&json!(name)))
                };
                for (name, capability) in CAPABILITIES {
                    let grant = authorise(&token, &policies, &path, &[capability]);
                    let is_own = DEFAULT_PATHS.contains(&&*path);
                    assert_eq!(grant.is_ok(), is_own || (has(name) && !has("deny")), "{name} {path:?}");
                    if let (Ok(grant), false, Some(rule)) = (grant, is_own, rule) {
                        let known = |field: &&String| {
                            ["capabilities", "allowed_sets", "rate_limit", "redundant"].contains(&field.as_str())
                        };
                        assert_eq!(rule.as_object().unwrap().keys().find(|field| !known(field)), None);
                        assert_eq!(json!(grant.sets), rule["allowed_sets"]);
                        assert_eq!(grant.redundant, rule["redundant"] == true);
                        assert_eq!(json!(grant.rate.map(|rate| rate.per_second)), rule["rate_limit"]);
                    }
                }
            }
            "a policy".into()
        });
    }

    /// A token that is read is written back equal, and is not another token.
    #[test]
    fn fuzz_tokens() {
        let (record, text) = make_token("a".into(), vec![], None, None).unwrap();
        crate::fuzz::fuzz(20_000, &[text.as_bytes(), b"hgs.a.b"], "hgs. -_-_ AAAA", |input| {
            let given = String::from_utf8_lossy(input);
            let Some(bearer) = Bearer::parse(&given) else { return format!("{} dots", given.matches('.').count()) };
            assert_eq!(format!("hgs.{}.{}", bearer.accessor, URL_SAFE_NO_PAD.encode(&bearer.secret[..])), given);
            let is_same_secret = given.rsplit('.').next() == text.rsplit('.').next();
            assert_eq!(bearer.is_of(&record), is_same_secret);
            format!("{is_same_secret}")
        });
    }

    #[test]
    fn wrong_policies_are_refused() {
        for wrong in [
            "path \"a\" {}",
            r#"{"path": {"a": {"capabilities": ["fly"]}}}"#,
            r#"{"path": {"/a": {"capabilities": ["read"]}}}"#,
            r#"{"path": {"a/*/b": {"capabilities": ["read"]}}}"#,
            r#"{"path": {"a/+/b": {"capabilities": ["read"]}}}"#,
            r#"{"path": {"a": {"capabilities": ["read"], "allowed_set": []}}}"#,
            r#"{"path": {"a": {"capabilities": ["read"], "allowed_sets": ["rsa"]}}}"#,
            r#"{"path": {"a": {"capabilities": ["read"], "rate_limit": 0}}}"#,
        ] {
            assert_eq!(Policy::parse(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }
}
