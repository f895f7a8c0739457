//! Who may do what: tokens, and the policies that they name.

use crate::api::{Op, Route};
use crate::error::Error;
use crate::fields::{Foreign, Object, read};
use crate::keys::set_of;
use crate::paths;
use crate::seal::random;
use crate::threads::unpoisoned;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hypergrove::quote::Quote;
use hypergrove::{Params, known_sets};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;
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
        let mut rates = unpoisoned(self.rates.lock());
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
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The rules by their paths in one form.
    rules: BTreeMap<String, Rule>,
    /// The policy, as it was written.
    pub text: String,
    /// The faults of a policy that an older version of the server accepted.
    pub faults: Vec<String>,
    /// Whether a fault may concern a rule that forbids something: the policy's tokens may do nothing then.
    pub is_closed: bool,
}

/// A policy in JSON, with each rule as often as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(deserialize_with = "rules")]
    path: Vec<(String, Rule)>,
}

fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Rule)>, D::Error> {
    struct Rules;
    impl<'de> Visitor<'de> for Rules {
        type Value = Vec<(String, Rule)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of rules")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut rules = Vec::new();
            while let Some(path) = map.next_key()? {
                rules.push((path, map.next_value_seed(Object(OF_RULE, PhantomData))?));
            }
            Ok(rules)
        }
    }
    deserializer.deserialize_map(Rules)
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

const OF_RULE: &[Foreign] = &[(
    &["allowed_parameters", "denied_parameters", "required_parameters", "min_wrapping_ttl", "max_wrapping_ttl"],
    &[],
    "policies here do not have this restriction of Vault's",
)];

impl Rule {
    /// Refuses what has no effect on the requests of these routes.
    fn check(&self, routes: &[&Route]) -> Result<(), Error> {
        if self.rate_limit == Some(0) {
            return Err(Error::bad("rate_limit must be at least 1; use \"deny\""));
        }
        if let Some(set) = self.allowed_sets.iter().flatten().find(|set| set_of(set).is_none()) {
            let set = Quote::name(set, known_sets().map(|set| set.name));
            return Err(Error::bad(format!("allowed_sets: there is no parameter set {set}")));
        }
        let uses = |ops: &[Op]| routes.iter().any(|route| ops.contains(&route.op));
        let signs = uses(&[Op::Sign, Op::Verify]);
        let computes = signs || uses(&[Op::CreateKey, Op::Rotate]);
        let has_set = computes || uses(&[Op::ReadKey, Op::DeleteKey, Op::Configure, Op::Export]);
        for (field, is_vain) in [
            ("rate_limit", self.rate_limit.is_some() && !signs),
            ("allowed_sets", self.allowed_sets.is_some() && !has_set),
            ("redundant", self.redundant && !computes),
        ] {
            if is_vain {
                return Err(Error::bad(format!("{field} has no effect on the requests of its path; remove it")));
            }
        }
        let mut needs: BTreeSet<_> = routes.iter().flat_map(|route| route.needs).collect();
        if uses(&[Op::Configure, Op::CreateToken]) {
            needs.insert(&Capability::Sudo);
        }
        needs.insert(&Capability::Deny);
        if self.capabilities.iter().any(|capability| needs.contains(capability)) {
            return Ok(());
        }
        let needs: Vec<String> = needs.iter().map(|need| format!("{need:?}").to_lowercase()).collect();
        Err(Error::bad(format!("it allows nothing; capabilities that count for its path are {}", needs.join(", "))))
    }
}

impl Policy {
    /// Reads a policy. Its language is JSON.
    pub fn parse(text: &str) -> Result<Policy, Error> {
        Policy::read(text, true)
    }

    /// A policy of the database, which an older version may have accepted although some rules can match no request. Such a rule allows nothing. If it
    /// was to forbid something, or if it is not clear which of two rules holds, the policy's tokens may do nothing.
    pub fn stored(text: &str) -> Policy {
        let closed =
            |why: Error| Policy { faults: vec![why.what], is_closed: true, text: text.into(), ..Policy::default() };
        Policy::read(text, false).unwrap_or_else(closed)
    }

    fn read(text: &str, is_strict: bool) -> Result<Policy, Error> {
        let written: Written = read(text.as_bytes(), &[]).map_err(|why| {
            Error::bad(format!("the policy is not JSON of the form {{\"path\": {{\"transit/sign/NAME\": {{\"capabilities\": [\"update\"]}}}}}}: {why}"))
        })?;
        let mut policy = Policy { text: text.into(), ..Policy::default() };
        for (index, (path, rule)) in written.path.into_iter().enumerate() {
            let path = paths::normal(&path);
            let routes = paths::of_rule(&path);
            let (fault, is_kept) = match rule.check(&routes) {
                _ if routes.is_empty() => (Some(paths::why_none(&path)), false),
                _ if policy.rules.contains_key(&path) => (Some("an earlier rule has the same path".into()), false),
                checked => (checked.err().map(|why| why.what), true),
            };
            if let Some(fault) = fault {
                let fault = format!("rule {} of the policy: {fault}", index + 1);
                if is_strict {
                    return Err(Error::bad(fault));
                }
                policy.faults.push(fault);
                policy.is_closed |= !is_kept && (rule.capabilities.contains(&Capability::Deny) || !routes.is_empty());
            }
            if is_kept {
                policy.rules.insert(path, rule);
            }
        }
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

/// Whether a path of a policy covers the path of a request. Exact paths come before those with `*`, and longer paths before shorter ones. Only a path
/// with `*` sees the '/' at the end of a list.
fn covers(pattern: &str, path: &str) -> Option<(bool, usize)> {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix).then_some((false, prefix.len())),
        None => (pattern == path.strip_suffix('/').unwrap_or(path)).then_some((true, pattern.len())),
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
    if token.is_root() {
        return Ok(Grant::default());
    }
    let own: Vec<&Policy> = token.record.policies.iter().filter_map(|name| policies.get(name)).collect();
    let rules = own.iter().flat_map(|policy| &policy.rules);
    let covering: Vec<_> = rules.filter_map(|(pattern, rule)| Some((covers(pattern, path)?, pattern, rule))).collect();
    let best = covering.iter().map(|(specific, ..)| *specific).max();
    let rules: Vec<_> = covering.into_iter().filter(|(specific, ..)| Some(*specific) == best).collect();
    let has = |capability: &Capability| rules.iter().any(|(.., rule)| rule.capabilities.contains(capability));
    if has(&Capability::Deny) {
        return Err(Error::denied());
    }
    if DEFAULT_PATHS.contains(&path) {
        return Ok(Grant::default());
    }
    if own.iter().any(|policy| policy.is_closed) || rules.is_empty() || !needs.iter().all(has) {
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
    use crate::api::Verb;
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

    /// The requests of an operation: a method, a path as it is sent, what it is called in policies, and what it needs.
    struct Sent(Verb, String, String, &'static [Capability]);

    /// Requests to each path that needs a token, in the ways that clients write them, found without the code that reads rules.
    fn requests(names: &[&str]) -> Vec<Sent> {
        use Capability::{Create, Delete, List, Read, Sudo, Update};
        use Verb::{List as Lists, Read as Reads, Write};
        let mut sent = Vec::new();
        let mut push = |verb, path: String, called: &str, needs| {
            sent.push(Sent(verb, path.clone() + "/", called.into(), needs));
            sent.push(Sent(verb, path, called.into(), needs));
        };
        for (verb, path, needs) in [
            (Write, "sys/seal", &[Update, Sudo][..]),
            (Write, "sys/audit/rotate", &[Update, Sudo]),
            (Reads, "sys/metrics", &[Read]),
            (Lists, "sys/policies/acl", &[List]),
            (Lists, "transit/keys", &[List]),
            (Write, "auth/token/create", &[Update]),
            (Reads, "auth/token/lookup-self", &[Read]),
            (Write, "auth/token/revoke-self", &[Update]),
            (Write, "auth/token/revoke", &[Update]),
            (Write, "auth/token/revoke-accessor", &[Update]),
        ] {
            push(verb, path.into(), path, needs);
        }
        push(Reads, "sys/policy".into(), "sys/policies/acl", &[List]);
        for name in names {
            for (verb, needs) in [(Reads, &[Read][..]), (Write, &[Update]), (Verb::Delete, &[Delete])] {
                let called = format!("sys/policies/acl/{name}");
                push(verb, called.clone(), &called, needs);
                push(verb, format!("sys/policy/{name}"), &called, needs);
            }
            for (verb, path, needs) in [
                (Write, format!("transit/keys/{name}"), &[Create][..]),
                (Reads, format!("transit/keys/{name}"), &[Read]),
                (Verb::Delete, format!("transit/keys/{name}"), &[Delete]),
                (Write, format!("transit/keys/{name}/rotate"), &[Update]),
                (Write, format!("transit/keys/{name}/config"), &[Update]),
                (Reads, format!("transit/export/public-key/{name}"), &[Read]),
                (Reads, format!("transit/export/public-key/{name}/1"), &[Read]),
                (Reads, format!("transit/export/public-key/{name}/latest"), &[Read]),
                (Write, format!("transit/sign/{name}"), &[Update]),
                (Write, format!("transit/verify/{name}"), &[Update]),
            ] {
                push(verb, path.clone(), &path, needs);
                if needs == [Update] && !path.contains("keys") {
                    push(verb, format!("{path}/SHA2-256"), &path, needs);
                }
            }
        }
        sent
    }

    /// The rule that decides about a request, found by a second reader: as Vault does it, where the older path of a policy is its newer one.
    fn deciding<'a>(rules: &'a [(String, &Value)], request: &Sent) -> Option<&'a Value> {
        let Sent(_, _, called, needs) = request;
        let newer = |path: &str| match path {
            "sys/policy" => "sys/policies/acl".to_string(),
            "sys/policy*" => "sys/policies/acl*".to_string(),
            path => path.replacen("sys/policy/", "sys/policies/acl/", 1),
        };
        let seen = if needs.contains(&Capability::List) { format!("{called}/") } else { called.clone() };
        let rank = |path: &str| match newer(path) {
            exact if exact == *called || exact == format!("{called}/") => Some(usize::MAX),
            path => path.strip_suffix('*').filter(|begin| seen.starts_with(begin)).map(str::len),
        };
        let ranked = rules.iter().filter_map(|(path, rule)| Some((rank(path)?, *rule)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, rule)| rule)
    }

    fn decides(rules: &[(String, &Value)], request: &Sent) -> bool {
        let is_own = DEFAULT_PATHS.contains(&request.2.as_str());
        let Some(rule) = deciding(rules, request) else { return is_own };
        let has = |name: &str| rule["capabilities"].as_array().unwrap().contains(&json!(name));
        !has("deny") && (is_own || request.3.iter().all(|need| has(&format!("{need:?}").to_lowercase())))
    }

    /// The server's decision about a request, from its path as it is sent.
    fn server_decides(policies: &BTreeMap<String, Policy>, request: &Sent) -> Result<Grant, Error> {
        let Sent(verb, path, ..) = request;
        let path = path.strip_suffix('/').unwrap_or(path);
        let (route, _) = crate::api::find(Some(*verb), path).unwrap();
        authorise(&token(&["p"]), policies, &paths::governed(route, path), route.needs)
    }

    /// Paths of rules: those of the requests, and what an administrator might write in their place.
    fn rule_paths(requests: &[Sent]) -> BTreeSet<String> {
        let right: BTreeSet<&String> = requests.iter().flat_map(|Sent(_, path, called, _)| [path, called]).collect();
        let right: BTreeSet<String> = right.into_iter().map(|path| path.trim_end_matches('/').to_string()).collect();
        let few = "|*|/|/*|**|+|transit/*|transit/keys*|sys/pol*|sys/policy*|auth/*|nothing/*|transit/sign/re*|transit/sign/.*|transit/keys/+/rotate";
        let others = "transit/*/a|sys/health|sys/internal/*|sys/unseal|auth/token/lookup*";
        let mut paths: BTreeSet<String> = few.split('|').chain(others.split('|')).map(String::from).collect();
        for path in &right {
            let (head, tail) = path.rsplit_once('/').unwrap();
            for shape in [
                "P",
                "P/",
                "P//",
                "/P",
                "v1/P",
                "/v1/P",
                "P*",
                "P/*",
                "P/*/",
                "P**",
                "P+",
                "P ",
                " P",
                "P\0",
                "P?list=true",
                "P/.",
                "H/%61",
            ] {
                paths.insert(shape.replace('P', path).replace('H', head));
            }
            paths.extend([
                format!("{head}//{tail}"),
                format!("{head}/./{tail}"),
                format!("{head}/../{tail}"),
                format!("{head}%2f{tail}"),
            ]);
            paths.extend([
                path.to_uppercase(),
                path.replace('a', "\u{430}"),
                path.replace('k', "\u{212a}"),
                path.replace('/', "\u{2215}"),
            ]);
        }
        paths
    }

    /// The attack, repeated: more than 300 paths of rules, right ones and wrong ones, and all requests. A rule that is accepted decides about a request,
    /// and as the second reader says. A rule that is refused would decide about none.
    #[test]
    fn every_rule_that_is_accepted_decides_about_a_request() {
        let requests = requests(&["a", "re.lease-1_"]);
        for route in crate::api::ROUTES.iter().filter(|route| !route.needs.is_empty()) {
            let find = |sent: &Sent| crate::api::find(Some(sent.0), sent.1.trim_end_matches('/')).unwrap().0;
            let is_of = |sent: &Sent| (find(sent).verb, find(sent).path) == (route.verb, route.path);
            assert!(requests.iter().any(is_of), "no request of {}", route.path);
        }
        let paths = rule_paths(&requests);
        assert!(paths.len() > 300, "{}", paths.len());
        let (deny, all) = (json!(["deny"]), json!(["create", "read", "update", "delete", "list", "sudo"]));
        let (deny, allow) = (json!({ "capabilities": deny }), json!({ "capabilities": all }));
        let mut accepted = Vec::new();
        for path in &paths {
            let rules = [&deny, &allow].map(|rule| [(path.clone(), rule)]);
            let read =
                rules.each_ref().map(|[(path, rule)]| Policy::parse(&json!({ "path": { path: rule } }).to_string()));
            let is_useful = requests.iter().any(|request| decides(&rules[0], request) != decides(&rules[1], request));
            let read: Vec<Policy> = match read {
                [Ok(forbids), Ok(allows)] => vec![forbids, allows],
                [Err(why), Err(_)] => {
                    assert!(why.status == 400 && why.what.contains("rule 1 of the policy"), "{path:?}: {why}");
                    assert!(!is_useful, "{path:?}: {why}");
                    continue;
                }
                _ => panic!("{path:?} depends on the capabilities"),
            };
            assert!(is_useful, "no request has the path {path:?}");
            for (policy, rules) in read.into_iter().zip(&rules) {
                let policies = BTreeMap::from([("p".to_string(), policy)]);
                for request in &requests {
                    let decision = server_decides(&policies, request).is_ok();
                    assert_eq!(decision, decides(rules, request), "{rules:?} {}", request.1);
                }
            }
            accepted.push(path);
        }
        assert!((50..paths.len() / 2).contains(&accepted.len()), "{} of {}", accepted.len(), paths.len());
        // Pairs: the more specific rule decides, and a rule that forbids is never lost.
        for (at, first) in accepted.iter().enumerate() {
            for second in accepted.iter().skip(at % 7).step_by(7) {
                let rules = [((*first).clone(), &deny), ((*second).clone(), &allow)];
                let written = rules.each_ref().map(|(path, rule)| format!("{}: {rule}", json!(path))).join(", ");
                let Ok(policy) = Policy::parse(&format!("{{\"path\": {{{written}}}}}")) else {
                    let forbids = [(rules[1].0.clone(), &deny)];
                    let is_same = |request: &Sent| decides(&rules[..1], request) == decides(&forbids, request);
                    assert!(requests.iter().all(is_same), "{first:?} {second:?}");
                    continue;
                };
                let policies = BTreeMap::from([("p".to_string(), policy)]);
                for request in &requests {
                    let decision = server_decides(&policies, request).is_ok();
                    assert_eq!(decision, decides(&rules, request), "{first:?} {second:?} {}", request.1);
                }
            }
        }
    }

    /// A policy that is read decides as its JSON says, has no field that the server does not know, and has no rule twice.
    #[test]
    fn fuzz_policies() {
        let seeds: [&[u8]; 5] = [
            br#"{"path": {"transit/sign/a": {"capabilities": ["update"], "allowed_sets": ["slh-dsa-sha2-128s"], "rate_limit": 100, "redundant": true}}}"#,
            br#"{"path": {"transit/*": {"capabilities": ["read", "list"]}, "transit/keys*": {"capabilities": ["deny"]}, "transit/keys/a/": {"capabilities": ["read"]}}}"#,
            br#"{"path": {"*": {"capabilities": ["create", "read", "update", "delete", "list", "sudo"], "allowed_parameters": {}}}}"#,
            br#"{"path": {"sys/policy/a": {"capabilities": ["read"]}, "sys/policies/acl": {"capabilities": ["list"]}}}"#,
            br#"{"path": {}}"#,
        ];
        let words = "\"path\" \"transit/keys/\" sys/policy/ sys/policies/acl {\"capabilities\": \"create\" \"sudo\" \"deny\" \"allowed_sets\" \"rate_limit\":";
        let requests = requests(&["a", "b"]);
        crate::fuzz::fuzz(10_000, &seeds, words, |input| {
            let text = String::from_utf8_lossy(input);
            let policy = match Policy::parse(&text) {
                Ok(policy) => policy,
                Err(why) => return why.to_string(),
            };
            assert_eq!((&*policy.text, policy.is_closed), (&*text, false));
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.as_object().unwrap().len(), 1);
            let rules = value["path"].as_object().unwrap();
            assert_eq!(rules.len(), policy.rules.len());
            for rule in rules.values() {
                let known = |field: &&String| {
                    let own = ["capabilities", "allowed_sets", "rate_limit", "redundant"];
                    own.contains(&field.as_str()) || OF_RULE.iter().any(|(names, ..)| names.contains(&field.as_str()))
                };
                assert_eq!(rule.as_object().unwrap().keys().find(|field| !known(field)), None);
            }
            let rules: Vec<(String, &Value)> = rules.iter().map(|(path, rule)| (path.clone(), rule)).collect();
            let policies = BTreeMap::from([("p".to_string(), policy)]);
            for request in &requests {
                let grant = server_decides(&policies, request);
                assert_eq!(grant.is_ok(), decides(&rules, request), "{}", request.1);
                let is_own = DEFAULT_PATHS.contains(&request.2.as_str());
                if let (Ok(grant), false, Some(rule)) = (grant, is_own, deciding(&rules, request)) {
                    assert_eq!(json!(grant.sets), rule["allowed_sets"]);
                    assert_eq!(grant.redundant, rule["redundant"] == true);
                    assert_eq!(json!(grant.rate.map(|rate| rate.per_second)), rule["rate_limit"]);
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
        let read = r#"{"capabilities": ["read"]}"#;
        for (wrong, says) in [
            (r#"path "a" {}"#.to_string(), "JSON"),
            (
                r#"{"path": {"transit/keys/a": {"capabilities": ["fly"]}}}"#.into(),
                "unknown variant 'fly', expected one of `create`",
            ),
            (r#"{"path": {"transit/keys/a": {"capabilities": []}}}"#.into(), "create, read, delete, deny"),
            (r#"{"path": {"transit/keys/a": {"capabilities": ["list", "update"]}}}"#.into(), "allows nothing"),
            (r#"{"path": {"transit/keys/a": {"capabilities": ["sudo"]}}}"#.into(), "allows nothing"),
            (
                r#"{"path": {"transit/keys/a": {"capabilities": ["read"], "allowed_set": []}}}"#.into(),
                "did you mean 'allowed_sets'?",
            ),
            (r#"{"path": {"transit/keys/a": {"capabilities": ["read"], "allowed_sets": ["rsa"]}}}"#.into(), "'rsa'"),
            (r#"{"path": {"transit/sign/a": {"capabilities": ["update"], "rate_limit": 0}}}"#.into(), "at least 1"),
            (
                r#"{"path": {"transit/keys/*": {"capabilities": ["update"], "rate_limit": 1}}}"#.into(),
                "rate_limit has no effect",
            ),
            (
                r#"{"path": {"sys/*": {"capabilities": ["read"], "allowed_sets": []}}}"#.into(),
                "allowed_sets has no effect",
            ),
            (
                r#"{"path": {"transit/keys/a/config": {"capabilities": ["update"], "redundant": true}}}"#.into(),
                "redundant has no effect",
            ),
            (
                r#"{"path": {"transit/sign/a": {"capabilities": ["update"], "denied_parameters": {"prehashed": []}}}}"#
                    .into(),
                "Vault's",
            ),
            (r#"{"path": {"transit/keys/a": [["read"]]}}"#.into(), "expected an object"),
            (format!(r#"[{{"transit/keys/a": {read}}}]"#), "expected an object"),
            (
                r#"{"path": {"transit/keys/a": {"capabilities": ["read"], "capabilities": ["deny"]}}}"#.into(),
                "duplicate field",
            ),
            (format!(r#"{{"path": {{}}, "path": {{"transit/keys/a": {read}}}}}"#), "duplicate field"),
            (
                format!(r#"{{"path": {{"transit/keys/a": {{"capabilities": ["deny"]}}, "transit/keys/a": {read}}}}}"#),
                "same path",
            ),
            (format!(r#"{{"path": {{"transit/keys/a": {read}, "transit/keys/a/": {read}}}}}"#), "same path"),
            (
                format!(r#"{{"path": {{"sys/policy/a": {read}, "sys/policies/acl/a": {read}}}}}"#),
                "rule 2 of the policy: an earlier rule",
            ),
            (format!(r#"{{"path": {{"/transit/keys/a": {read}}}}}"#), "\"transit/keys/NAME\""),
            (format!(r#"{{"path": {{"v1/Transit/keys/a": {read}}}}}"#), "\"transit/keys/NAME\""),
            (format!(r#"{{"path": {{"transit/keys/+/rotate": {read}}}}}"#), "\"transit/keys/NAME/rotate\""),
            (format!(r#"{{"path": {{"transit/sign/a/sha2-256": {read}}}}}"#), "\"transit/sign/NAME\""),
            (format!(r#"{{"path": {{"sys/metric": {read}}}}}"#), "sys/metric; the nearest path is \"sys/metrics\""),
            (format!(r#"{{"path": {{"sys/health": {read}}}}}"#), "needs no token"),
        ] {
            let why = Policy::parse(&wrong).unwrap_err();
            assert!(why.status == 400 && why.what.contains(says), "{wrong}: {why}");
        }
        let secret = "hgs.0123456789abcdef.S3cr3t-S3cr3t-S3cr3t";
        for wrong in [
            format!(r#"{{"path": {{"{secret}": {read}}}}}"#),
            format!(r#"{{"path": {{"sys/metrics": {{"{secret}": 1}}}}}}"#),
        ] {
            let why = Policy::parse(&wrong).unwrap_err().what;
            assert!(why.contains("(41 characters, not shown)") && !why.contains("S3cr3t"), "{why}");
        }
    }

    /// A policy that an older server accepted is read: a rule without effect is reported, and one that was to forbid something closes the policy.
    #[test]
    fn policies_of_an_older_server_do_not_fail_open() {
        let all = r#""*": {"capabilities": ["create", "read", "update", "delete", "list", "sudo"]}"#;
        let read = |rules: &str| {
            let policy = Policy::stored(&format!("{{\"path\": {{{all}{rules}}}}}"));
            let (faults, policies) = (policy.faults.len(), BTreeMap::from([("p".to_string(), policy)]));
            let may = |path: &str, need| authorise(&token(&["p"]), &policies, path, &[need]).is_ok();
            (faults, may("transit/sign/a", Capability::Update), may("auth/token/lookup-self", Capability::Read))
        };
        assert_eq!(read(""), (0, true, true));
        assert_eq!(read(r#", "transit/sign/a/": {"capabilities": ["deny"]}"#), (0, false, true));
        for rule in
            [r#""v1/a": {"capabilities": ["read"]}"#, r#""sys/metrics": {"capabilities": ["read"], "rate_limit": 1}"#]
        {
            assert_eq!(read(&format!(", {rule}")), (1, true, true), "{rule}");
        }
        for rules in [
            r#""v1/transit/sign/a": {"capabilities": ["deny"]}"#,
            r#""transit/keys": {"capabilities": ["deny"]}, "transit/keys": {"capabilities": ["list"]}"#,
            r#""transit/keys": {"capabilities": ["deny"]}, "transit/keys/": {"capabilities": ["list"]}"#,
            r#""sys/metrics": {"capabilities": ["hover"]}"#,
        ] {
            assert_eq!(read(&format!(", {rules}")), (1, false, true), "{rules}");
        }
    }
}
