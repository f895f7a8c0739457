//! Transit: what keys are asked to do.

use crate::access::Capability;
use crate::api::{Call, Reply};
use crate::audit::Audit;
use crate::error::Error;
use crate::fields::{Foreign, NoFields, Object, named, parse};
use crate::keys::{Key, Version, set_of};
use crate::limits;
use crate::paths::is_version;
use crate::state::Opened;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hypergrove::quote::Quote;
use hypergrove::rows::{Column, Offsets, RowCall, RowSet, RowSigningKeys, RowStatus, SignRows};
use hypergrove::{
    Engine, ErrorKind, Job, MAX_CONTEXT, Mode, PreHash, Randomizer, SignJob, SigningKey, Ticket, VerifyJob, known_sets,
};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Bodies and results that are longer are decoded and encoded outside of the threads that serve connections.
const LARGE: usize = 64 << 10;
/// From this many items on, a batch is signed as rows.
const ROWS: usize = 16;
/// A signature that takes fewer microseconds may hold up the thread that waits for all connections' requests.
const SHORT: u64 = 2000;
/// Rows of one job. Other requests' jobs take turns with these, so a large batch does not hold them up for long.
const ROWS_AT_A_TIME: usize = 256;

/// A number or a truth value, which some clients send as text. An empty text is nothing for a field of Vault's alone.
struct Lenient<T>(bool, PhantomData<T>);

impl<T: FromStr> Visitor<'_> for Lenient<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or true or false")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Option<T>, E> {
        self.visit_str(if value { "true" } else { "false" })
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Option<T>, E> {
        self.visit_str(&value.to_string())
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<T>, E> {
        let wrong = |_| E::custom("a value is not the number, or true or false, that belongs there");
        if text.is_empty() && self.0 { Ok(None) } else { text.parse().map(Some).map_err(wrong) }
    }
}

fn lenient<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(Lenient(true, PhantomData))
}

fn own<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(Lenient(false, PhantomData))
}

/// The most items of a batch, whatever the settings say: each takes memory before anybody can count them.
pub const MOST_ITEMS: usize = 1 << 16;

/// Reads the items of a batch, no more than [`MOST_ITEMS`].
struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Option<Vec<RequestItem>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of items")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Object(OF_ITEM, PhantomData))? {
            if items.len() == MOST_ITEMS {
                return Err(de::Error::custom(format!("batch_input has more than {MOST_ITEMS} items")));
            }
            items.push(item);
        }
        Ok(Some(items))
    }
}

fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<RequestItem>>, D::Error> {
    deserializer.deserialize_any(Items)
}

/// Runs work that may take long where it holds nobody up.
async fn aside<T: Send + 'static>(is_large: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    if is_large { Ok(tokio::task::spawn_blocking(work).await?) } else { Ok(work()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateRequest {
    #[serde(rename = "type")]
    kind: Option<String>,
    parameter_set: Option<String>,
    #[serde(default, deserialize_with = "own")]
    max_signatures: Option<u64>,
    #[serde(default, deserialize_with = "own")]
    redundant: Option<bool>,
}

const NOT_EXPORTED: &str = "this server's private keys never leave it, and it derives none";
const NOT_MANAGED: &str = "this server keeps its keys itself";
const NOT_ROTATED: &str = "this server does not rotate keys by itself; call the path rotate from a scheduler";
/// Settings of Vault's keys that these do not have.
const OF_CREATE: &[Foreign] = &[
    (&["exportable", "allow_plaintext_backup", "derived", "convergent_encryption", "context"], &[], NOT_EXPORTED),
    (&["auto_rotate_period"], &[], NOT_ROTATED),
    (&["managed_key_name", "managed_key_id"], &[], NOT_MANAGED),
    (&["key_size", "hybrid_key_type_pqc", "hybrid_key_type_ec"], &[], "a parameter set of SLH-DSA says all of the key"),
];

/// The engine for a request with this key.
fn engine<'a>(call: &'a Call, key: &Key) -> &'a Engine {
    if key.record.redundant || call.grant.redundant { &call.server.redundant } else { &call.server.engine }
}

fn unknown_key(name: &str) -> Error {
    Error::bad(format!("there is no key {}; make it with POST /v1/transit/keys/NAME", Quote::new(name)))
}

/// `POST transit/keys/NAME`
pub async fn create(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let name = call.new_name()?;
    let request: CreateRequest = parse(&call.body, &named(OF_CREATE, &[&name]))?;
    match request.kind.as_deref() {
        Some("slh-dsa") => {}
        kind => {
            let kind = kind.map_or("is missing".into(), |kind| Quote::name(kind, ["slh-dsa"]).to_string());
            return Err(Error::bad(format!("type {kind}: this server makes keys of the type \"slh-dsa\" alone")));
        }
    }
    let set =
        request.parameter_set.ok_or_else(|| Error::bad("parameter_set is missing; \"slh-dsa-sha2-128s\" is one"))?;
    let set = set_of(&set).ok_or_else(|| {
        let set = Quote::name(&set, known_sets().map(|set| set.name));
        Error::bad(format!("parameter_set {set}: there is no such set; \"slh-dsa-sha2-128s\" is one"))
    })?;
    if set.signature_limit().is_some() && !call.server.config.draft_sets {
        return Err(Error::bad(format!(
            "parameter_set: {} is a draft; draft_sets = true in the server's settings allows it",
            set.name
        )));
    }
    if request.max_signatures == Some(0) {
        return Err(Error::bad("max_signatures must be at least 1"));
    }
    call.grant.check_set(set)?;
    let existing = |key: &Key| match key.set.name == set.name {
        true => Ok(format!("key {name} existed already; nothing was changed")),
        false => Err(Error::bad(format!("key {name} exists, and is of the set {}", key.set.name))),
    };
    if let Some(key) = open.key(&name) {
        return Ok(Reply::data(key.describe().await?).warn(existing(&key)?));
    }
    // Not in the change: a key of some sets takes seconds.
    let mut new = Key::new(&name, set, request.max_signatures);
    new.record.redundant = request.redundant == Some(true);
    let signing = generate(call, &new).await?;
    let new = new.with_version(signing, false, &open.master)?;
    let (key, is_new) = {
        let (name, open) = (name.clone(), open.clone());
        call.server
            .change(move |server| match open.key(&name) {
                Some(key) => Ok((key, false)),
                None => Ok((server.put_key(&open, new)?, true)),
            })
            .await?
    };
    let reply = Reply::data(key.describe().await?);
    if is_new { Ok(reply) } else { Ok(reply.warn(existing(&key)?)) }
}

/// `GET transit/keys/NAME`
pub async fn read(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let key = open.key(&call.name()?).ok_or_else(Error::missing)?;
    call.grant.check_set(key.set)?;
    Ok(Reply::data(key.describe().await?))
}

/// `LIST transit/keys`
pub async fn list(_: &mut Call, open: &Opened) -> Result<Reply, Error> {
    Reply::list(open.keys().iter().map(|key| key.record.name().to_string()).collect())
}

const OF_ROTATE: &[Foreign] = &[(&["managed_key_name", "managed_key_id"], &[], NOT_MANAGED)];

/// `POST transit/keys/NAME/rotate`
pub async fn rotate(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let name = call.name()?;
    let NoFields {} = parse(&call.body, &named(OF_ROTATE, &[&name]))?;
    let key = open.key(&name).ok_or_else(|| unknown_key(&name))?;
    call.grant.check_set(key.set)?;
    let (signing, set) = (generate(call, &key).await?, key.set);
    let open = open.clone();
    let key = call
        .server
        .change(move |server| {
            let key = open.key(&name).filter(|now| now.set.name == set.name).ok_or_else(|| unknown_key(&name))?;
            server.put_key(&open, key.with_version(signing, false, &open.master)?)
        })
        .await?;
    Ok(Reply::data(key.describe().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigRequest {
    #[serde(default, deserialize_with = "own")]
    min_signing_version: Option<u32>,
    #[serde(default, deserialize_with = "lenient")]
    min_decryption_version: Option<u32>,
    #[serde(default, deserialize_with = "lenient")]
    deletion_allowed: Option<bool>,
    #[serde(default, deserialize_with = "own")]
    redundant: Option<bool>,
    #[serde(default, deserialize_with = "own")]
    max_signatures: Option<u64>,
}

const OF_CONFIG: &[Foreign] = &[
    (&["min_encryption_version"], &[], "keys here do not encrypt; min_signing_version is for signatures"),
    (&["exportable", "allow_plaintext_backup"], &[], NOT_EXPORTED),
    (&["auto_rotate_period"], &[], NOT_ROTATED),
];

/// `POST transit/keys/NAME/config`
pub async fn configure(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let name = call.name()?;
    let request: ConfigRequest = parse(&call.body, &named(OF_CONFIG, &[&name]))?;
    let may_raise = call.may(&[Capability::Update, Capability::Sudo]);
    let (grant, open) = (call.grant.clone(), open.clone());
    let key = call
        .server
        .change(move |server| {
            let key = open.key(&name).ok_or_else(|| unknown_key(&name))?;
            grant.check_set(key.set)?;
            let mut record = key.record.clone();
            let check = |field: &str, version: u32, least: u32| match (least..=key.latest()).contains(&version) {
                true => Ok(version),
                false => {
                    Err(Error::bad(format!("{field} must be from {least} to {}, the latest version", key.latest())))
                }
            };
            if let Some(version) = request.min_signing_version {
                record.min_signing_version = check("min_signing_version", version, 0)?;
            }
            if let Some(version) = request.min_decryption_version {
                record.min_verification_version = check("min_decryption_version", version, 1)?;
            }
            if let Some(allowed) = request.deletion_allowed {
                record.deletion_allowed = allowed;
            }
            if let Some(redundant) = request.redundant {
                if record.redundant && !redundant && !may_raise {
                    return Err(Error::bad("taking redundant back needs the capability sudo"));
                }
                record.redundant = redundant;
            }
            if let Some(most) = request.max_signatures {
                let is_lower = record.max_signatures.is_none_or(|now| most <= now);
                if most == 0 || (!is_lower && !may_raise) {
                    return Err(Error::bad(
                        "max_signatures must be at least 1, and raising it needs the capability sudo",
                    ));
                }
                record.max_signatures = Some(most);
            }
            server.put_key(&open, key.with_record(record))
        })
        .await?;
    Ok(Reply::data(key.describe().await?))
}

/// `DELETE transit/keys/NAME`
pub async fn delete(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let name = call.name()?;
    let (grant, open) = (call.grant.clone(), open.clone());
    let change = move |server: &crate::state::Server| {
        let key = open.key(&name).ok_or_else(|| unknown_key(&name))?;
        grant.check_set(key.set)?;
        if !key.record.deletion_allowed {
            return Err(Error::bad(format!(
                "key {name} may not be deleted; POST /v1/transit/keys/{name}/config with \"deletion_allowed\": true allows it"
            )));
        }
        server.delete_key(&open, &key)
    };
    call.server.change(change).await?;
    Ok(Reply::empty())
}

/// `GET transit/export/public-key/NAME`, or one version of it.
pub async fn export(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let key = open.key(&call.name()?).ok_or_else(Error::missing)?;
    call.grant.check_set(key.set)?;
    let only = match call.wild.get(1).map(String::as_str) {
        None => None,
        Some("latest") => Some(key.latest()),
        Some(version) => {
            let version = version.parse().ok().filter(|_| is_version(version));
            Some(version.ok_or_else(|| Error::bad("the version must be a number or \"latest\""))?)
        }
    };
    let keys = key.public_keys(only)?;
    if keys.is_empty() {
        return Err(Error::missing());
    }
    Ok(Reply::data(json!({"name": key.record.name(), "type": "slh-dsa", "keys": keys})))
}

/// The body of `sign` and `verify`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    input: Option<String>,
    signature: Option<String>,
    signature_context: Option<String>,
    context: Option<String>,
    reference: Option<String>,
    hmac: Option<String>,
    cmac: Option<String>,
    #[serde(default, deserialize_with = "items")]
    batch_input: Option<Vec<RequestItem>>,
    #[serde(default, deserialize_with = "lenient")]
    prehashed: Option<bool>,
    /// `algorithm` is Vault's older name.
    #[serde(alias = "algorithm")]
    hash_algorithm: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    key_version: Option<u32>,
}

/// Fields that ask for another signature in Vault.
const OF_SIGN: &[Foreign] = &[
    (&["signature_algorithm"], &["pss"], "it is for keys of other types"),
    (&["salt_length", "mac_length"], &["auto"], "it is for keys of other types"),
    (&["marshaling_algorithm"], &["asn1"], "signatures here are standard base64"),
];

/// Fields that a request has for all of its items.
const OF_ITEM: &[Foreign] = &[(
    &["hash_algorithm", "algorithm", "prehashed", "key_version"],
    &[],
    "this field holds for all items; send it next to batch_input",
)];

/// An item of a batch. A request without a batch has the same fields itself: serde's `flatten` would keep all that it does not know in memory first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestItem {
    input: Option<String>,
    signature: Option<String>,
    signature_context: Option<String>,
    context: Option<String>,
    reference: Option<String>,
    hmac: Option<String>,
    cmac: Option<String>,
}

impl Request {
    /// Refuses what would have no effect.
    fn check(&self, verifies: bool) -> Result<(), Error> {
        if verifies && self.key_version.is_some_and(|version| version > 0) {
            return Err(Error::bad("key_version: a signature that is verified names its version itself"));
        }
        let of_items = [&self.input, &self.signature, &self.hmac, &self.cmac, &self.reference];
        let is_given = |field: &&Option<String>| field.as_ref().is_some_and(|text| !text.is_empty());
        match self.batch_input.is_some() && of_items.iter().any(is_given) {
            true => Err(Error::bad(
                "send input or batch_input, not both; signature, hmac, cmac and reference belong into the items too",
            )),
            false => Ok(()),
        }
    }
}

/// An item of a request, decoded.
struct Item {
    message: Vec<u8>,
    /// FIPS 205's context string. `None`: that of the request.
    context: Option<Vec<u8>>,
    /// The version and the bytes of a signature to be verified.
    signature: Option<(u32, Vec<u8>)>,
}

/// A request, decoded.
struct Decoded {
    items: Vec<Result<Item, Error>>,
    references: Vec<Option<String>>,
    is_batch: bool,
    version: Option<u32>,
    /// The HMAC of each message for the audit log.
    messages: Vec<String>,
    how: How,
}

impl Decoded {
    /// For the audit log: the context of all items, if it is not empty, and the contexts of items that have their own.
    fn contexts(&self) -> (Option<String>, Vec<Option<String>>) {
        let mut own = self.items.iter().map(|item| Some(STANDARD.encode(item.as_ref().ok()?.context.as_ref()?)));
        let of_all = if self.is_batch { Some(STANDARD.encode(&self.how.context)) } else { own.next().flatten() };
        let own: Vec<_> = own.collect();
        let has_own = own.iter().any(Option::is_some);
        (of_all.filter(|context| !context.is_empty()), if has_own { own } else { Vec::new() })
    }
}

/// How the messages of a request are signed.
#[derive(Clone)]
struct How {
    context: Vec<u8>,
    /// HashSLH-DSA's function, and whether the client has hashed the message.
    hash: Option<(PreHash, bool)>,
}

impl How {
    /// The mode of an item that this key signs.
    fn of_item<'a>(&'a self, key: &SigningKey, item: &'a Item) -> Mode<'a> {
        let context = item.context.as_deref().unwrap_or(&self.context);
        self.mode(key.mode(context), context)
    }

    /// The mode. Without a hash function it is the key's own.
    fn mode<'a>(&self, own: Mode<'a>, context: &'a [u8]) -> Mode<'a> {
        match self.hash {
            None => own,
            Some((hash, true)) => Mode::Digest { context, hash },
            Some((hash, false)) => Mode::PreHash { context, hash },
        }
    }
}

/// The name that Vault would give a hash function.
fn spelled(hash: &PreHash) -> String {
    hash.name().to_ascii_lowercase().replace('/', "-")
}

/// The hash function of a name.
fn hash_of(name: &str) -> Result<Option<PreHash>, Error> {
    let name = name.to_ascii_lowercase();
    if name == "none" {
        return Ok(None);
    }
    PreHash::ALL.into_iter().find(|hash| spelled(hash) == name).map(Some).ok_or_else(|| {
        let known: Vec<String> = PreHash::ALL.iter().map(spelled).collect();
        let name = Quote::name(&name, known.iter().map(String::as_str));
        Error::bad(format!("hash_algorithm {name}: HashSLH-DSA has none, {}", known.join(", ")))
    })
}

fn decode64(field: &str, text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|why| Error::bad(format!("{field} is not base64: {why}")))
}

fn decode_context(text: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    let Some(text) = text else { return Ok(None) };
    let context = decode64("signature_context", text)?;
    match context.len() <= MAX_CONTEXT {
        true => Ok(Some(context)),
        false => {
            Err(Error::bad(format!("signature_context has {} bytes; FIPS 205 allows {MAX_CONTEXT}", context.len())))
        }
    }
}

/// Refuses the `context` of Vault, which is something else than that of FIPS 205.
fn check_derivation(context: Option<&String>) -> Result<(), Error> {
    match context.is_some_and(|context| !context.is_empty()) {
        false => Ok(()),
        true => Err(Error::bad(
            "context derives keys in Vault, and this server derives none; FIPS 205's context string is signature_context",
        )),
    }
}

impl RequestItem {
    fn decode(&self, verifies: bool) -> Result<Item, Error> {
        check_derivation(self.context.as_ref())?;
        if [&self.hmac, &self.cmac].into_iter().flatten().any(|mac| !mac.is_empty()) {
            return Err(Error::bad("hmac and cmac cannot be verified here; send signature"));
        }
        if !verifies && self.signature.as_ref().is_some_and(|signature| !signature.is_empty()) {
            return Err(Error::bad("signature: this path makes signatures; transit/verify verifies them"));
        }
        let input = self.input.as_deref().ok_or_else(|| Error::bad("input is missing"))?;
        let signature = match verifies {
            false => None,
            true => {
                let shape = || Error::bad("signature is missing, or has not the form vault:v1:BASE64");
                let text = self.signature.as_deref().and_then(|text| text.strip_prefix("vault:v")).ok_or_else(shape)?;
                let (version, text) = text.split_once(':').ok_or_else(shape)?;
                let is_number = |number: &u32| *number > 0 && number.to_string() == version;
                let version = version.parse().ok().filter(is_number).ok_or_else(shape)?;
                Some((version, decode64("signature", text)?))
            }
        };
        let context = decode_context(self.signature_context.as_deref())?;
        Ok(Item { message: decode64("input", input)?, context, signature })
    }
}

fn decode(
    body: &[u8],
    (name, path_hash): (&str, Option<&str>),
    verifies: bool,
    most: usize,
    audit: &Audit,
) -> Result<Decoded, Error> {
    let it: Request = parse(body, &named(OF_SIGN, &[name]))?;
    it.check(verifies)?;
    let hash = path_hash.map(String::from).or(it.hash_algorithm).filter(|hash| !hash.is_empty());
    let hash = hash.map(|hash| hash_of(&hash)).transpose()?.flatten().map(|hash| (hash, it.prehashed == Some(true)));
    if it.prehashed == Some(true) && hash.is_none() {
        return Err(Error::bad(
            "prehashed needs hash_algorithm: the signature names the function that made the digest",
        ));
    }
    let is_batch = it.batch_input.is_some();
    let (inputs, context) = match it.batch_input {
        None => {
            let Request { input, signature, signature_context, context, reference, hmac, cmac, .. } = it;
            (vec![RequestItem { input, signature, signature_context, context, reference, hmac, cmac }], None)
        }
        Some(batch) if batch.is_empty() => return Err(Error::bad("batch_input has no items")),
        Some(batch) if batch.len() > most => {
            return Err(Error::new(413, format!("batch_input has {} items; this server takes {most}", batch.len())));
        }
        Some(batch) => {
            check_derivation(it.context.as_ref())?;
            (batch, decode_context(it.signature_context.as_deref())?)
        }
    };
    let items: Vec<_> = inputs.iter().map(|input| input.decode(verifies)).collect();
    let message = |item: &Result<Item, _>| item.as_ref().map_or(String::new(), |item| audit.message(&item.message));
    Ok(Decoded {
        messages: items.iter().map(message).collect(),
        references: inputs.into_iter().map(|input| input.reference).collect(),
        items,
        is_batch,
        version: it.key_version,
        how: How { context: context.unwrap_or_default(), hash },
    })
}

/// The key of `sign` or `verify`, and the decoded body.
async fn begin(call: &mut Call, open: &Opened, verifies: bool) -> Result<(Arc<Key>, Decoded), Error> {
    let name = call.name()?;
    let key = open.key(&name).ok_or_else(|| unknown_key(&name))?;
    call.entry.set = Some(key.set.name);
    call.grant.check_set(key.set)?;
    let (body, hash, open) = (call.body.clone(), call.wild.get(1).cloned(), open.clone());
    let most = call.server.config.limits.max_batch;
    let work = move || {
        let decoded = decode(&body, (&name, hash.as_deref()), verifies, most, &open.audit)?;
        Ok::<_, Error>((decoded.contexts(), decoded))
    };
    let (contexts, mut decoded) = aside(call.body.len() > LARGE, work).await??;
    call.body.clear();
    call.entry.messages = std::mem::take(&mut decoded.messages);
    call.entry.hash_algorithm = decoded.how.hash.map(|(hash, _)| spelled(&hash));
    call.entry.prehashed = decoded.how.hash.is_some_and(|(_, is_digest)| is_digest);
    (call.entry.signature_context, call.entry.signature_contexts) = contexts;
    call.spend(decoded.items.len())?;
    Ok((key, decoded))
}

/// Room for the items of a request, until this is dropped.
type Admitted = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Takes room for jobs and their results, or refuses the request.
fn admit(call: &Call, jobs: usize, bytes: usize) -> Result<Admitted, Error> {
    let (server, kib) = (&call.server, bytes.div_ceil(1024));
    if kib > server.config.limits.memory >> 10 {
        return Err(Error::new(413, "the request's results do not fit this server's memory; send fewer items"));
    }
    let full = |_| Error::busy("the queue is full; try again later", 1);
    let jobs = server.jobs.clone().try_acquire_many_owned(jobs as u32).map_err(full)?;
    let bytes = server.memory.clone().try_acquire_many_owned(kib as u32).map_err(full)?;
    Ok((jobs, bytes))
}

/// Queues a job.
async fn submit<J: Job>(engine: &Engine, mut job: J, deadline: Option<Instant>) -> Result<Ticket<J::Out>, Error> {
    loop {
        match engine.submit(job) {
            Ok(ticket) => {
                return Ok(match deadline {
                    Some(at) => ticket.deadline(at),
                    None => ticket,
                });
            }
            // The server's own bounds come first, so this is rare.
            Err(refused) if refused.why.kind() == ErrorKind::QueueFull => {
                job = refused.job;
                engine.ready().await?;
            }
            Err(refused) => return Err(refused.why.into()),
        }
    }
}

/// Makes a private key. It waits for no batch in the queue, which may take a minute.
async fn generate(call: &Call, key: &Key) -> Result<SigningKey, Error> {
    let (engine, set, server) = (engine(call, key).clone(), key.set, &call.server);
    let made = async {
        let permit = server.new_keys.clone().acquire_owned().await;
        let work = move || (engine.generate(set), permit).0;
        Ok(tokio::task::spawn_blocking(work).await??)
    };
    server.unless_sealed(made).await
}

/// Rows of one request.
struct Rows {
    key: Arc<SigningKey>,
    how: How,
    messages: Vec<u8>,
    offsets: Vec<i64>,
    signatures: Vec<u8>,
    statuses: Vec<RowStatus>,
}

impl Rows {
    fn new(key: &Arc<SigningKey>, how: &How, items: &[&Item]) -> Rows {
        let messages: Vec<u8> = items.iter().flat_map(|item| &item.message).copied().collect();
        let mut offsets = vec![0];
        offsets.extend(items.iter().scan(0, |end, item| {
            *end += item.message.len() as i64;
            Some(*end)
        }));
        let signatures = vec![0; items.len() * key.params().signature_bytes()];
        let statuses = vec![RowStatus::default(); items.len()];
        Rows { key: key.clone(), how: how.clone(), messages, offsets, signatures, statuses }
    }

    fn into_set(self) -> RowSet<Rows> {
        RowSet::new(self, |rows| RowCall::Sign {
            rows: SignRows {
                keys: RowSigningKeys::One(&rows.key),
                mode: rows.how.mode(rows.key.mode(&rows.how.context), &rows.how.context),
                messages: Column::Variable { bytes: &rows.messages, offsets: Offsets::I64(&rows.offsets) },
                randomizer: Randomizer::Hedged,
            },
            signatures: &mut rows.signatures,
            statuses: &mut rows.statuses,
        })
    }

    /// The signature of each row, or why there is none.
    fn results(self) -> impl Iterator<Item = Result<Signed, Error>> {
        let rows = Arc::new(self);
        (0..rows.statuses.len()).map(move |row| match rows.statuses[row] {
            RowStatus::Signed => Ok(Signed::Row(rows.clone(), row)),
            RowStatus::DigestLength => Err(Error::bad("input has not the length of a digest of this hash_algorithm")),
            RowStatus::KeyDamaged => Err(Error::internal("the private key was damaged in memory; restart the server")),
            status => Err(Error::internal(format!("not signed: {status:?}"))),
        })
    }
}

/// A signature.
enum Signed {
    Alone(Vec<u8>),
    Row(Arc<Rows>, usize),
}

impl Signed {
    fn bytes(&self) -> &[u8] {
        match self {
            Signed::Alone(bytes) => bytes,
            Signed::Row(rows, row) => {
                let length = rows.key.params().signature_bytes();
                &rows.signatures[row * length..][..length]
            }
        }
    }
}

/// Signs the items that could be decoded. The results are in their order.
async fn signatures(
    call: &Call,
    engine: &Engine,
    version: &Version,
    how: &How,
    items: &[&Item],
) -> Result<Vec<Result<Signed, Error>>, Error> {
    let deadline = call.deadline;
    let mut results = Vec::with_capacity(items.len());
    // A request that is alone is signed on this thread: waking another one, and being woken by it, takes a good part of a fast signature.
    let is_alone = call.server.jobs.available_permits() + 1 == call.server.config.limits.queue_jobs;
    if let ([item], true, None) = (items, is_alone, deadline) {
        let job = SignJob::new(version.signing.clone(), &*item.message).mode(how.of_item(&version.signing, item));
        let begun = Instant::now();
        // `block_in_place` wakes a thread that looks after the connections meanwhile. A client that sends one request after the other needs none
        // for a short signature. Of several clients that sign at a time, each finds that the latest request was another one's.
        let is_short = call.is_same_connection && version.took.load(Relaxed) < SHORT && item.message.len() <= LARGE;
        let signature = if is_short { engine.share(job) } else { tokio::task::block_in_place(|| engine.share(job)) };
        version.took.store(begun.elapsed().as_micros() as u64, Relaxed);
        return Ok(vec![signature.map(|signature| Signed::Alone(signature.into_bytes())).map_err(Error::from)]);
    }
    if items.len() >= ROWS && items.iter().all(|item| item.context.is_none()) {
        let mut tickets = Vec::new();
        for items in items.chunks(ROWS_AT_A_TIME) {
            let set = Rows::new(&version.signing, how, items).into_set();
            tickets.push((items.len(), submit(engine, set, deadline).await?));
        }
        for (count, ticket) in tickets {
            match ticket.await {
                Ok(rows) => results.extend(rows.results()),
                Err(why) => results.extend((0..count).map(|_| Err(why.clone().into()))),
            }
        }
        return Ok(results);
    }
    let mut tickets = Vec::with_capacity(items.len());
    for item in items {
        let job = SignJob::new(version.signing.clone(), item.message.clone()).mode(how.of_item(&version.signing, item));
        tickets.push(submit(engine, job, deadline).await?);
    }
    for ticket in tickets {
        results.push(ticket.await.map(|signature| Signed::Alone(signature.into_bytes())).map_err(Error::from));
    }
    Ok(results)
}

/// Verifies the items that could be decoded. The results are in their order.
async fn verdicts(
    call: &Call,
    key: &Key,
    how: &How,
    items: Vec<Result<Item, Error>>,
) -> Result<Vec<Result<bool, Error>>, Error> {
    let mut tickets = Vec::with_capacity(items.len());
    for item in items {
        tickets.push(match item {
            Err(why) => Err(why),
            Ok(Item { message, context, signature }) => {
                let context = context.as_ref().unwrap_or(&how.context);
                let (number, signature) = signature.unwrap_or_default();
                match key.version(Some(number), key.record.min_verification_version) {
                    Err(why) => Err(why),
                    Ok((_, version)) => {
                        let mode = how.mode(version.verifying.mode(context), context);
                        let job = VerifyJob::new(version.verifying.clone(), message, signature).mode(mode);
                        Ok(submit(engine(call, key), job, call.deadline).await?)
                    }
                }
            }
        });
    }
    let mut verdicts = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        verdicts.push(match ticket {
            Err(why) => Err(why),
            Ok(ticket) => ticket.await.map_err(Error::from),
        });
    }
    Ok(verdicts)
}

/// The result of an item.
enum Done {
    Signature(u32, Signed),
    Verdict(bool),
}

/// The answer: the fields of the single item, or `batch_results`. It is written as text, because signatures are long, and nothing in them is escaped.
fn answer(
    items: impl Iterator<Item = Result<Done, Error>>,
    references: Vec<Option<String>>,
    is_batch: bool,
    bytes: usize,
) -> Result<(Reply, usize), Error> {
    let quoted = |text: String| Value::String(text).to_string();
    let mut text = Reply::begin(bytes);
    text += if is_batch { "{\"batch_results\":[" } else { "" };
    let mut failed = 0;
    for (index, (item, reference)) in items.zip(references).enumerate() {
        text += if index > 0 { ",{" } else { "{" };
        match item {
            Err(why) if !is_batch => return Err(why),
            Err(why) => {
                failed += 1;
                text += &format!("\"error\":{}", quoted(why.to_string()));
            }
            Ok(Done::Verdict(valid)) => text += &format!("\"valid\":{valid}"),
            Ok(Done::Signature(version, signed)) => {
                text += &format!("\"key_version\":{version},\"signature\":\"vault:v{version}:");
                STANDARD.encode_string(signed.bytes(), &mut text);
                text.push('"');
            }
        }
        if let Some(reference) = reference {
            text += &format!(",\"reference\":{}", quoted(reference));
        }
        text.push('}');
    }
    text += if is_batch { "]}" } else { "" };
    Ok((Reply::begun(text), failed))
}

/// `POST transit/sign/NAME`, or with the name of a hash function behind it.
pub async fn sign(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let (key, decoded) = begin(call, open, false).await?;
    let (number, version) = key.version(decoded.version, key.record.min_signing_version)?;
    call.entry.version = Some(number);
    // A key of HashSLH-DSA has a function of its own.
    if let Mode::PreHash { hash, .. } | Mode::Digest { hash, .. } = decoded.how.mode(version.signing.mode(&[]), &[]) {
        call.entry.hash_algorithm = Some(spelled(&hash));
    }
    let good: Vec<&Item> = decoded.items.iter().flatten().collect();
    // Three times, for the signature, its base64 and the answer's text.
    let bytes = good.len() * key.set.signature_bytes();
    let _admitted = admit(call, good.len(), bytes * 3)?;
    let limit = key.limit();
    let (count, is_large) = (good.len() as u64, good.len() > 2);
    let used = version.counter.take(&call.server.storage, count, limit).await?;
    let signed = signatures(call, engine(call, &key), version, &decoded.how, &good);
    let mut signed = match call.server.unless_sealed(signed).await {
        Ok(signed) => signed.into_iter(),
        Err(why) => {
            version.counter.put_back(count).await;
            return Err(why);
        }
    };
    let Decoded { items, references, is_batch, .. } = decoded;
    let encode = move || {
        let done = items.into_iter().map(|item| {
            item?;
            let signed = signed.next().unwrap_or_else(|| Err(Error::internal("a result is missing")));
            signed.map(|signed| Done::Signature(number, signed))
        });
        answer(done, references, is_batch, bytes)
    };
    let (reply, failed) = aside(is_large, encode).await??;
    call.entry.failed_items = failed;
    crate::telemetry::items("sign", call.entry.messages.len());
    Ok(match limit.and_then(|limit| limits::warning(key.record.name(), used, limit)) {
        Some(warning) => reply.warn(warning),
        None => reply,
    })
}

/// `POST transit/verify/NAME`, or with the name of a hash function behind it.
pub async fn verify(call: &mut Call, open: &Opened) -> Result<Reply, Error> {
    let (key, decoded) = begin(call, open, true).await?;
    let Decoded { items, references, is_batch, how, .. } = decoded;
    let bytes: usize = items.iter().flatten().map(|item| item.message.len()).sum();
    let _admitted = admit(call, items.len(), bytes)?;
    let verdicts = call.server.unless_sealed(verdicts(call, &key, &how, items)).await?;
    let verdicts = verdicts.into_iter().map(|valid| valid.map(Done::Verdict));
    let (reply, failed) = answer(verdicts, references, is_batch, 0)?;
    call.entry.failed_items = failed;
    crate::telemetry::items("verify", call.entry.messages.len());
    Ok(reply)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::audit::Fsync;
    use crate::audit::tests::Fixture;
    use crate::fuzz::fuzz;

    /// Items are those of the body, written back equal, and the answer is JSON with their references in order.
    #[test]
    fn fuzz_bodies_of_signing() {
        let log = Fixture::new();
        let audit = log.open(Fsync::Second).unwrap();
        let seeds: [&[u8]; 5] = [
            br#"{"input": "bWVzc2FnZQ==", "signature": "vault:v1:c2lnbmF0dXJl", "signature_context": "YQ==", "reference": "S3cr3t-S3cr3t", "key_version": 0}"#,
            br#"{"batch_input": [{"input": "bQ==", "signature": "vault:v2:cw==", "reference": "\u0000\"\\"}, {"input": "S3cr3t-S3cr3t"}, {"input": ""}], "signature_context": ""}"#,
            br#"{"input": "bQ==", "signature": "vault:v+1:cw=="}"#,
            br#"{"input": "bQ==", "hash_algorithm": "sha2-256", "prehashed": true, "key_version": "", "context": null, "hmac": null}"#,
            b"",
        ];
        let words = "vault:v0: vault:v01: vault:v+1: vault:v1: \"signature\": \"input\": \"batch_input\": \"reference\": \"prehashed\": AA== AA= AB== \"S3cr3t-S3cr3t\" shake-128";
        fuzz(20_000, &seeds, words, |input| {
            let Decoded { items, references, is_batch, how, messages, .. } =
                match decode(input, ("a", None), true, 8, &audit) {
                    Ok(decoded) => decoded,
                    Err(why) => {
                        assert!([400, 413].contains(&why.status) && !why.what.contains("S3cr3t-S3cr3t"), "{why:?}");
                        return why.what;
                    }
                };
            let Ok(body) = serde_json::from_slice::<Value>(input) else {
                return "numbers that no JSON value holds".into();
            };
            let given = if is_batch { body["batch_input"].as_array().unwrap().clone() } else { vec![body.clone()] };
            assert_eq!([items.len(), references.len(), messages.len()], [given.len(); 3]);
            assert!(given.len() <= 8);
            if let Some((hash, _)) = how.hash {
                assert_eq!(hash_of(body["hash_algorithm"].as_str().unwrap()).unwrap(), Some(hash));
            }
            let expected: Vec<Value> = items
                .iter()
                .zip(&given)
                .map(|(item, given)| {
                    let mut expected = match item {
                        Ok(item) => {
                            let (version, signature) = item.signature.as_ref().unwrap();
                            let signature = format!("vault:v{version}:{}", STANDARD.encode(signature));
                            assert_eq!(
                                (&json!(STANDARD.encode(&item.message)), &json!(signature)),
                                (&given["input"], &given["signature"])
                            );
                            assert_eq!(
                                json!(item.context.as_ref().map(|context| STANDARD.encode(context))),
                                given["signature_context"]
                            );
                            json!({ "key_version": version, "signature": signature })
                        }
                        Err(why) => {
                            assert!(why.what.len() < 200 && !why.what.contains("S3cr3t-S3cr3t"), "{why:?}");
                            json!({ "error": why.what })
                        }
                    };
                    if let Some(reference) = given["reference"].as_str() {
                        expected["reference"] = json!(reference);
                    }
                    expected
                })
                .collect();
            let failed = expected.iter().filter(|item| item.get("error").is_some()).count();
            let outcome =
                format!("{is_batch} {}", expected.iter().map(|item| item["error"].to_string()).collect::<String>());
            let done = items.into_iter().map(|item| {
                item.map(|item| {
                    item.signature.map(|(version, bytes)| Done::Signature(version, Signed::Alone(bytes))).unwrap()
                })
            });
            match answer(done, references, is_batch, 0) {
                Err(why) => assert!(!is_batch && expected[0]["error"] == why.what),
                Ok((reply, count)) => {
                    assert_eq!(count, failed);
                    let data = if is_batch { json!({ "batch_results": expected }) } else { expected[0].clone() };
                    assert_eq!(reply.value()["data"], data);
                }
            }
            outcome
        });
    }

    /// Settings of keys are those of the body, as numbers and truth values or as their text.
    #[test]
    fn fuzz_bodies_of_keys() {
        let seeds: [&[u8]; 3] = [
            br#"{"type": "slh-dsa", "parameter_set": "slh-dsa-sha2-128s", "max_signatures": "10", "exportable": false, "derived": "false", "auto_rotate_period": "0s"}"#,
            br#"{"min_signing_version": 1, "min_decryption_version": "2", "min_encryption_version": 0, "deletion_allowed": true, "max_signatures": 5}"#,
            br#"{"type": "S3cr3t-S3cr3t", "deletion_allowed": "", "auto_rotate_period": 0}"#,
        ];
        let words =
            "\"S3cr3t-S3cr3t\" \"max_signatures\": \"deletion_allowed\": \"min_signing_version\": \"true\" \"7\"";
        fuzz(20_000, &seeds, words, |input| {
            let value: Value = serde_json::from_slice(input).unwrap_or_default();
            let is = |field: &str, read: Option<String>| {
                let given = match &value[field] {
                    Value::Null => None,
                    Value::String(text) if text.is_empty() => None,
                    Value::String(text) => Some(text.trim_start_matches('+').to_string()),
                    other => Some(other.to_string()),
                };
                let is_number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit());
                let given =
                    given.map(|text| if is_number(&text) { text.parse::<u64>().unwrap().to_string() } else { text });
                assert!(value.is_null() || given == read, "{field}: {read:?}, not {given:?}");
            };
            let made = parse::<CreateRequest>(input, OF_CREATE).map(|it| {
                assert!(
                    value.is_null()
                        || json!(it.kind) == value["type"] && json!(it.parameter_set) == value["parameter_set"]
                );
                is("max_signatures", it.max_signatures.map(|most| most.to_string()));
                assert!([json!(true), json!("true"), json!(1)].iter().all(|yes| value["derived"] != *yes), "{value}");
                is("redundant", it.redundant.map(|flag| flag.to_string()));
            });
            let configured = parse::<ConfigRequest>(input, OF_CONFIG).map(|it| {
                is("min_signing_version", it.min_signing_version.map(|version| version.to_string()));
                is("min_decryption_version", it.min_decryption_version.map(|version| version.to_string()));
                is("deletion_allowed", it.deletion_allowed.map(|flag| flag.to_string()));
                is("max_signatures", it.max_signatures.map(|most| most.to_string()));
            });
            let errors =
                [made, configured].map(|read| read.err().map_or(String::new(), |why| why.to_string())).concat();
            assert!(!errors.contains("S3cr3t-S3cr3t"), "{errors}");
            errors
        });
    }
}
