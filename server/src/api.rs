//! The HTTP API: from a request to an operation, and from its result to an answer in Vault's shape.

use crate::access::{Bearer, Capability, Grant, Token, authorise};
use crate::audit::Entry;
use crate::error::Error;
use crate::fields::{NoFields, parse};
use crate::keys::{LONGEST_NAME, check_name, check_new};
use crate::places::Place;
use crate::state::{Opened, Server};
use crate::{auth, paths, system, telemetry, transit};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use hypergrove::quote::{Quote, may_be_key};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// GET or HEAD.
    Read,
    /// LIST, or GET with `list=true` or `list=1`.
    List,
    /// POST or PUT.
    Write,
    /// DELETE.
    Delete,
}

/// Operations, by the names that the audit log and the metrics have for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it, and ROUTES has their paths")]
pub enum Op {
    Health,
    SealStatus,
    Initialized,
    Unseal,
    OpenApi,
    Seal,
    RotateAudit,
    Metrics,
    ListPolicies,
    ReadPolicy,
    WritePolicy,
    DeletePolicy,
    CreateToken,
    LookupSelf,
    RevokeSelf,
    Revoke,
    RevokeAccessor,
    ListKeys,
    CreateKey,
    ReadKey,
    DeleteKey,
    Rotate,
    Configure,
    Export,
    Sign,
    Verify,
}

/// A path of the API.
#[derive(Debug)]
pub struct Route {
    /// The kind of request.
    pub verb: Verb,
    /// The path below `/v1/`. A part in braces stands for any one part.
    pub path: &'static str,
    /// The operation.
    pub op: Op,
    /// Its name.
    pub name: &'static str,
    /// The capabilities that the token needs. Without any, no token is needed.
    pub needs: &'static [Capability],
}

impl Route {
    /// Whether the database is changed.
    fn is_change(&self) -> bool {
        matches!(self.verb, Verb::Write | Verb::Delete) && !matches!(self.op, Op::Sign | Op::Verify | Op::Seal)
    }
}

const fn route(verb: Verb, path: &'static str, op: Op, name: &'static str, needs: &'static [Capability]) -> Route {
    Route { verb, path, op, name, needs }
}

/// All paths.
pub const ROUTES: &[Route] = {
    use Capability::{Create, Delete, List, Read, Sudo, Update};
    &[
        route(Verb::Read, "sys/health", Op::Health, "health", &[]),
        route(Verb::Read, "sys/seal-status", Op::SealStatus, "seal-status", &[]),
        route(Verb::Read, "sys/init", Op::Initialized, "init", &[]),
        route(Verb::Write, "sys/unseal", Op::Unseal, "unseal", &[]),
        route(Verb::Read, "sys/internal/specs/openapi", Op::OpenApi, "openapi", &[]),
        route(Verb::Write, "sys/seal", Op::Seal, "seal", &[Update, Sudo]),
        route(Verb::Write, "sys/audit/rotate", Op::RotateAudit, "audit-rotate", &[Update, Sudo]),
        route(Verb::Read, "sys/metrics", Op::Metrics, "metrics", &[Read]),
        route(Verb::List, "sys/policies/acl", Op::ListPolicies, "policy-list", &[List]),
        route(Verb::Read, "sys/policies/acl/{name}", Op::ReadPolicy, "policy-read", &[Read]),
        route(Verb::Write, "sys/policies/acl/{name}", Op::WritePolicy, "policy-write", &[Update]),
        route(Verb::Delete, "sys/policies/acl/{name}", Op::DeletePolicy, "policy-delete", &[Delete]),
        // Vault's older paths of the same, which its clients' typed methods use.
        route(Verb::Read, "sys/policy", Op::ListPolicies, "policy-list", &[List]),
        route(Verb::Read, "sys/policy/{name}", Op::ReadPolicy, "policy-read", &[Read]),
        route(Verb::Write, "sys/policy/{name}", Op::WritePolicy, "policy-write", &[Update]),
        route(Verb::Delete, "sys/policy/{name}", Op::DeletePolicy, "policy-delete", &[Delete]),
        route(Verb::Write, "auth/token/create", Op::CreateToken, "token-create", &[Update]),
        route(Verb::Read, "auth/token/lookup-self", Op::LookupSelf, "token-lookup-self", &[Read]),
        route(Verb::Write, "auth/token/revoke-self", Op::RevokeSelf, "token-revoke-self", &[Update]),
        route(Verb::Write, "auth/token/revoke", Op::Revoke, "token-revoke", &[Update]),
        route(Verb::Write, "auth/token/revoke-accessor", Op::RevokeAccessor, "token-revoke-accessor", &[Update]),
        route(Verb::List, "transit/keys", Op::ListKeys, "key-list", &[List]),
        route(Verb::Write, "transit/keys/{name}", Op::CreateKey, "key-create", &[Create]),
        route(Verb::Read, "transit/keys/{name}", Op::ReadKey, "key-read", &[Read]),
        route(Verb::Delete, "transit/keys/{name}", Op::DeleteKey, "key-delete", &[Delete]),
        route(Verb::Write, "transit/keys/{name}/rotate", Op::Rotate, "key-rotate", &[Update]),
        route(Verb::Write, "transit/keys/{name}/config", Op::Configure, "key-config", &[Update]),
        route(Verb::Read, "transit/export/public-key/{name}", Op::Export, "key-export", &[Read]),
        route(Verb::Read, "transit/export/public-key/{name}/{version}", Op::Export, "key-export", &[Read]),
        route(Verb::Write, "transit/sign/{name}", Op::Sign, "sign", &[Update]),
        route(Verb::Write, "transit/sign/{name}/{hash_algorithm}", Op::Sign, "sign", &[Update]),
        route(Verb::Write, "transit/verify/{name}", Op::Verify, "verify", &[Update]),
        route(Verb::Write, "transit/verify/{name}/{hash_algorithm}", Op::Verify, "verify", &[Update]),
    ]
};

/// The parts of a path that stand where the route has braces, if it fits.
fn wild(route: &str, path: &str) -> Option<Vec<String>> {
    let (mut parts, mut wild) = (path.split('/'), Vec::new());
    for expected in route.split('/') {
        let part = parts.next()?;
        match expected.starts_with('{') {
            true if part.is_empty() => return None,
            true => wild.push(part.to_string()),
            false if part == expected => {}
            false => return None,
        }
    }
    parts.next().is_none().then_some(wild)
}

/// The methods that a path takes; none if there is no such path.
fn methods(path: &str) -> String {
    let routes = ROUTES.iter().filter(|route| wild(route.path, path).is_some());
    let methods = routes.map(|route| match route.verb {
        Verb::Read => "GET, HEAD",
        Verb::List => "LIST",
        Verb::Write => "POST, PUT",
        Verb::Delete => "DELETE",
    });
    methods.collect::<Vec<_>>().join(", ")
}

pub(crate) fn find(verb: Option<Verb>, path: &str) -> Result<(&'static Route, Vec<String>), Error> {
    let mut routes = ROUTES.iter().filter(|route| Some(route.verb) == verb);
    let found = routes.find_map(|route| Some((route, wild(route.path, path)?)));
    found.ok_or_else(|| match methods(path) {
        none if none.is_empty() => {
            Error::new(404, format!("there is no path {}; /v1/sys/internal/specs/openapi lists all", Quote::new(path)))
        }
        methods => Error::new(405, format!("this path takes the methods {methods}")),
    })
}

/// A request whose token may do what it asks for.
pub struct Call {
    /// The server.
    pub server: Arc<Server>,
    /// The path below `/v1/`, as policies name it.
    pub path: String,
    /// The token; none if the path needs none.
    pub token: Option<Arc<Token>>,
    /// The restrictions of its policies.
    pub grant: Grant,
    /// The parts of the path that the route leaves open.
    pub wild: Vec<String>,
    /// The body.
    pub body: Bytes,
    /// When the client stops waiting.
    pub deadline: Option<Instant>,
    /// Whether the request before this one came over the same connection.
    pub is_same_connection: bool,
    /// The line of the audit log.
    pub entry: Entry,
    /// The address whose request it is.
    pub client: IpAddr,
    /// The place of its connection.
    place: Arc<Place>,
    /// Why there is no valid token.
    refused: &'static str,
    /// The memory that the body takes.
    room: Option<OwnedSemaphorePermit>,
    /// The server while signatures are made or verified: if the client goes away then, the audit log gets its line all the same.
    unanswered: Option<Opened>,
}

/// The status in the audit log of a request whose client went away before the answer.
const GONE: u16 = 499;

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(open) = self.unanswered.take() {
            self.entry.status = GONE;
            open.audit.note(&self.entry);
        }
    }
}

impl Call {
    /// The name in the path.
    pub fn name(&self) -> Result<String, Error> {
        let name = self.wild.first().map_or("", String::as_str);
        check_name(name)?;
        Ok(name.into())
    }

    /// The name in the path, of a thing that is made.
    pub fn new_name(&self) -> Result<String, Error> {
        self.name().and_then(|name| check_new(&name).map(|()| name))
    }

    /// Whether the token's policies allow this too.
    pub fn may(&self, needs: &[Capability]) -> bool {
        let allows = |token| authorise(token, &self.server.access().policies, &self.path, needs).is_ok();
        self.token.as_deref().is_some_and(allows)
    }

    /// Counts items against the rate of the token's policies.
    pub fn spend(&self, items: usize) -> Result<(), Error> {
        match (&self.token, &self.grant.rate) {
            (Some(token), Some(rate)) => token.spend(rate, items),
            _ => Ok(()),
        }
    }

    /// The token, where the route needs one.
    pub fn token(&self) -> Result<&Arc<Token>, Error> {
        self.token.as_ref().ok_or_else(Error::denied)
    }
}

/// The result of an operation.
#[derive(Default)]
pub struct Reply {
    status: u16,
    body: Payload,
    warnings: Vec<String>,
}

#[derive(Default)]
enum Payload {
    #[default]
    Empty,
    /// The beginning of Vault's envelope, as text.
    Envelope(String),
    /// A text without Vault's envelope, and its type.
    Text(&'static str, Bytes),
}

const JSON: &str = "application/json";

impl Reply {
    /// 200 with `data`.
    pub fn data(data: Value) -> Reply {
        Reply::begun(format!("{{\"auth\":null,\"data\":{data}"))
    }

    /// 200 with `auth`.
    pub fn auth(auth: Value) -> Reply {
        Reply::begun(format!("{{\"auth\":{auth},\"data\":null"))
    }

    /// The beginning of an answer, behind which its data is written as text, with room for the base64 of so many bytes.
    pub fn begin(bytes: usize) -> String {
        let mut text = String::with_capacity(bytes / 3 * 4 + bytes / 64 + 1024);
        text.push_str("{\"auth\":null,\"data\":");
        text
    }

    /// 200 with a text that [`Reply::begin`] began.
    pub fn begun(text: String) -> Reply {
        Reply { status: 200, body: Payload::Envelope(text), ..Reply::default() }
    }

    /// An answer without Vault's envelope.
    pub fn bare(status: u16, value: Value) -> Reply {
        Reply::text(status, JSON, value.to_string())
    }

    fn text(status: u16, kind: &'static str, text: impl Into<Bytes>) -> Reply {
        Reply { status, body: Payload::Text(kind, text.into()), ..Reply::default() }
    }

    /// 204.
    pub fn empty() -> Reply {
        Reply { status: 204, ..Reply::default() }
    }

    /// The names of a list, or 404 if there are none, as in Vault.
    pub fn list(names: Vec<String>) -> Result<Reply, Error> {
        if names.is_empty() { Err(Error::missing()) } else { Ok(Reply::data(json!({ "keys": names }))) }
    }

    /// Adds a warning.
    #[must_use]
    pub fn warn(mut self, warning: String) -> Reply {
        self.warnings.push(warning);
        self
    }

    /// The envelope of the answer.
    #[cfg(test)]
    pub(crate) fn value(self) -> Value {
        let Payload::Envelope(text) = self.body else { panic!("an answer without an envelope") };
        serde_json::from_str(&(text + "}")).expect("the answer is JSON")
    }

    fn into_response(self, request: &str) -> Response {
        let mut text = match self.body {
            Payload::Empty => return response(self.status, None, Bytes::new()),
            Payload::Text(kind, text) => return response(self.status, Some(kind), text),
            Payload::Envelope(text) => text,
        };
        let warnings = if self.warnings.is_empty() { Value::Null } else { json!(self.warnings) };
        text += &format!(
            ",\"lease_duration\":0,\"lease_id\":\"\",\"renewable\":false,\"request_id\":\"{request}\",\"warnings\":{warnings},\"wrap_info\":null}}"
        );
        response(self.status, Some(JSON), text.into())
    }
}

fn response(status: u16, kind: Option<&'static str>, body: Bytes) -> Response {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A path, as the audit log has it. A private key may have been pasted in place of a name.
fn shown(path: &str) -> String {
    let part = |part: &str| match part.len() > LONGEST_NAME || may_be_key(part) {
        true => Quote::new(part).bare(),
        false => part.to_string(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn refusal(why: &Error) -> Response {
    let errors = if why.what.is_empty() { json!([]) } else { json!([why.what]) };
    let mut response = response(why.status, Some(JSON), json!({ "errors": errors }).to_string().into());
    if let Some(seconds) = why.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The body of a request, of which nothing was read.
pub type Body = UnsyncBoxBody<Bytes, hyper::Error>;
/// An answer.
pub type Response = hyper::Response<Full<Bytes>>;

/// Answers a request.
pub async fn handle(server: Arc<Server>, request: hyper::Request<Body>) -> Response {
    let begun = Instant::now();
    let (mut parts, mut body) = request.into_parts();
    let alone = || Place::new(Ipv4Addr::LOCALHOST.into(), Arc::default());
    let place = parts.extensions.remove::<Arc<Place>>().unwrap_or_else(alone);
    place.begin();
    let (name, mut response) = match server.places.client(place.address, &parts.headers) {
        Ok((client, _held)) => answer(server, parts, &mut body, client, place.clone()).await,
        Err(why) => ("none", refusal(&why)),
    };
    place.end();
    // hyper closes a connection with the unread rest of a body. The client must know, or its next request is lost.
    if !body.is_end_stream() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    telemetry::request(name, response.status().as_u16(), begun.elapsed());
    response
}

/// The parameters of a request's query.
fn parameters(parts: &Parts) -> impl Iterator<Item = &str> {
    parts.uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty())
}

/// Refuses parameters of a query that the server does not know: `version` behind a path of Vault's, for example.
fn check_parameters(parts: &Parts) -> Result<(), Error> {
    match parameters(parts).find(|part| !["list=true", "list=1", "list=false", "list=0"].contains(part)) {
        None => Ok(()),
        Some(part) => Err(Error::bad(format!(
            "the parameter {}: this server knows list=true alone",
            Quote::name(part, ["list=true"])
        ))),
    }
}

async fn answer(
    server: Arc<Server>,
    parts: Parts,
    body: &mut Body,
    client: IpAddr,
    place: Arc<Place>,
) -> (&'static str, Response) {
    let is_list = parameters(&parts).any(|part| matches!(part, "list=true" | "list=1"));
    let verb = match parts.method {
        Method::GET if is_list => Some(Verb::List),
        Method::GET | Method::HEAD => Some(Verb::Read),
        Method::POST | Method::PUT => Some(Verb::Write),
        Method::DELETE => Some(Verb::Delete),
        ref method if method.as_str() == "LIST" => Some(Verb::List),
        _ => None,
    };
    let path = parts.uri.path();
    let Some(path) = path.strip_prefix("/v1/") else {
        return ("none", refusal(&Error::new(404, "every path begins with /v1/")));
    };
    let path = path.strip_suffix('/').unwrap_or(path);
    let (route, wild) = match find(verb, path) {
        Ok(found) => found,
        Err(why) => {
            let mut response = refusal(&why);
            if let (405, Ok(methods)) = (why.status, HeaderValue::from_str(&methods(path))) {
                response.headers_mut().insert(header::ALLOW, methods);
            }
            return ("none", response);
        }
    };
    let entry = Entry { operation: route.name, path: shown(path), ..Entry::default() };
    let mut call = Call {
        is_same_connection: server.note_connection(),
        server,
        path: paths::governed(route, path),
        token: None,
        grant: Grant::default(),
        wild,
        body: Bytes::new(),
        deadline: None,
        entry,
        client,
        place,
        refused: "a malformed token",
        room: None,
        unanswered: None,
    };
    if route.needs.is_empty() {
        return (route.name, public(call, route, &parts.headers, body).await);
    }
    if call.server.is_sealed() {
        return (route.name, refusal(&Error::sealed()));
    }
    let admitted = admit(&mut call, route, &parts, body).await;
    // From here on the server is not sealed before the request is answered.
    let open = match call.server.opened().await {
        Ok(open) => open,
        Err(why) => return (route.name, refusal(&why)),
    };
    // Without a token, a request has no line of its own.
    if let (Err(why), None) = (&admitted, &call.entry.accessor) {
        let entry = Entry { status: why.status, error: Some(why.what.clone()), ..call.entry.clone() };
        call.server.refused.note(call.refused, entry, call.client);
        call.server.refused.write(&open, false);
        return (route.name, refusal(why));
    }
    let work = perform(call, route, open, admitted);
    let response = match route.op {
        // When its client goes away, this is dropped, and with it the tickets of what has not begun.
        Op::Sign | Op::Verify => work.await,
        // A change is completed all the same, and is in the audit log.
        _ => tokio::spawn(work).await.unwrap_or_else(|why| refusal(&why.into())),
    };
    (route.name, response)
}

/// Paths without a token. They are not in the audit log, except for a server that was unsealed.
async fn public(mut call: Call, route: &Route, headers: &HeaderMap, body: &mut Body) -> Response {
    if let Err(why) = check_headers(headers) {
        return refusal(&why);
    }
    let reply = match route.op {
        Op::Health => Ok(system::health(&call.server)),
        Op::SealStatus => Ok(system::seal_status(&call.server)),
        Op::Initialized => Ok(Reply::bare(200, json!({ "initialized": true }))),
        Op::OpenApi => Ok(Reply::text(200, JSON, system::OPEN_API)),
        _ => match read_body(&mut call, headers, body, Size::Anybody).await {
            Ok(()) => system::unseal(call).await,
            Err(why) => Err(why),
        },
    };
    match reply {
        Ok(reply) => reply.into_response(""),
        Err(why) => refusal(&why),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Error> {
    let Some(value) = headers.get(HeaderName::from_static(name)) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Error::bad(format!("the header {name} has other characters than ASCII")))
}

/// The header of a client that stops waiting.
const DEADLINE: &str = "x-hypergrove-deadline-ms";

/// Refuses headers without which the request has another meaning: those of Vault's that ask for what this server does not do, and unknown ones of its
/// own.
fn check_headers(headers: &HeaderMap) -> Result<(), Error> {
    let asks = |name, is_nothing: fn(&str) -> bool| {
        headers.get_all(name).iter().any(|value| !value.to_str().is_ok_and(|text| is_nothing(text.trim())))
    };
    let is_unknown = |name: &HeaderName| name.as_str().starts_with("x-hypergrove-") && name != DEADLINE;
    let why = if asks("x-vault-namespace", |text| ["", "root"].contains(&text.trim_matches('/'))) {
        "x-vault-namespace: this server has no namespaces"
    } else if asks("x-vault-wrap-ttl", |text| auth::seconds(&json!(text)) == Some(0)) {
        "x-vault-wrap-ttl: this server wraps no answers"
    } else if headers.keys().any(is_unknown) {
        "x-hypergrove-…: this server knows x-hypergrove-deadline-ms alone"
    } else {
        return Ok(());
    };
    Err(Error::bad(format!("the header {why}; leave it out")))
}

/// Whose token it is, and what it may do now.
fn identify(call: &mut Call, route: &Route, bearer: &Bearer) -> Result<(), Error> {
    let found = call.server.access().tokens.get(bearer.accessor()).cloned();
    let token = found.filter(|token| bearer.is_of(&token.record) && !token.has_expired()).ok_or_else(Error::denied)?;
    call.entry.accessor = Some(token.record.accessor.clone());
    call.grant = authorise(&token, &call.server.access().policies, &call.path, route.needs)?;
    call.token = Some(token);
    Ok(())
}

/// Whose token it is, what it may do, and the body.
async fn admit(call: &mut Call, route: &Route, parts: &Parts, body: &mut Body) -> Result<(), Error> {
    let headers = &parts.headers;
    let bearer = || Ok::<_, Error>(header(headers, "authorization")?.and_then(|value| value.strip_prefix("Bearer ")));
    let text = header(headers, "x-vault-token")?.map_or_else(bearer, |text| Ok(Some(text)))?;
    call.refused = if text.is_some() { call.refused } else { "no token" };
    let bearer = text.and_then(Bearer::parse).ok_or_else(Error::denied)?;
    call.refused = "an unknown or expired token";
    identify(call, route, &bearer)?;
    call.place.admit()?;
    check_headers(headers).and_then(|()| check_parameters(parts))?;
    if let Some(text) = header(headers, DEADLINE)? {
        let wrong = || Error::bad(format!("the header {DEADLINE} must be a number of milliseconds"));
        let milliseconds = text.parse().map_err(|_| wrong())?;
        call.deadline = Some(Instant::now().checked_add(Duration::from_millis(milliseconds)).ok_or_else(wrong)?);
    }
    let size = if matches!(route.op, Op::Sign | Op::Verify) { Size::Work } else { Size::Change };
    read_body(call, headers, body, size).await?;
    // The token may have ended meanwhile, or its policies may have changed.
    identify(call, route, &bearer)
}

/// How long a body may be.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    /// Without a token. It is so short that it needs none of the memory that others share.
    Anybody,
    /// Of a policy, a token or the settings of a key.
    Change,
    /// Of messages and signatures: as the settings say.
    Work,
}

async fn read_body(call: &mut Call, headers: &HeaderMap, body: &mut Body, size: Size) -> Result<(), Error> {
    let limits = &call.server.config.limits;
    let most = match size {
        Size::Anybody => 8 << 10,
        Size::Change => limits.max_body.min(256 << 10),
        Size::Work => limits.max_body,
    };
    let too_long = || Error::new(413, format!("the body is longer than {most} bytes, which this server takes"));
    let announced = header(headers, "content-length")?.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    if announced > most {
        return Err(too_long());
    }
    let read = async {
        let mut bytes = Vec::with_capacity(announced.min(1 << 20));
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| Error::bad("the body ended early, or is not in the form that its headers say"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most {
                return Err(too_long());
            }
            // In KiB: what is left of the last one that was taken comes first.
            let more = match size {
                Size::Anybody => 0,
                _ => (bytes.len() + data.len()).div_ceil(1024) - bytes.len().div_ceil(1024),
            };
            let more = call.server.memory.clone().try_acquire_many_owned(more as u32);
            let more =
                more.map_err(|_| Error::busy("the server's memory for requests is in use; try again later", 1))?;
            match &mut call.room {
                Some(room) => room.merge(more),
                room => *room = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    let time = Duration::from_secs(limits.body_seconds);
    let late = |_| Error::new(408, format!("the body did not come within {} seconds", time.as_secs()));
    let bytes = tokio::time::timeout(time, read).await.map_err(late)??;
    call.body = bytes.into();
    *body = Body::default();
    Ok(())
}

/// Does what was asked, writes the audit log, and only then answers.
async fn perform(mut call: Call, route: &'static Route, open: Opened, admitted: Result<(), Error>) -> Response {
    let (is_change, is_seal) = (route.is_change(), route.op == Op::Seal);
    // Sealing needs but one line, for which there is a reserve.
    let ready = || if is_seal { Ok(()) } else { open.audit.ready() };
    let ready = system::request_id().map(|id| call.entry.request = id).and_then(|()| ready());
    let reply = async {
        admitted.and(ready)?;
        match is_change {
            // Whatever happens next, the log has this line before anything is changed.
            true => open.audit.append(&Entry { begun: true, ..call.entry.clone() }).await?,
            false => call.unanswered = Some(open.clone()),
        }
        call.entry.is_vital = is_change || is_seal;
        let reply = operate(&mut call, route, &open).await;
        call.unanswered = None;
        reply
    }
    .await;
    call.entry.status = reply.as_ref().map_or_else(|why| why.status, |reply| reply.status);
    call.entry.error = reply.as_ref().err().map(|why| why.what.clone());
    let logged = open.audit.append(&call.entry).await;
    drop(open);
    let is_sealing = is_seal && reply.is_ok();
    // Nothing keeps private keys in memory whose operator wants them gone, not even a log that cannot be written.
    if is_sealing && let Err(why) = call.server.seal().await {
        return refusal(&why);
    }
    if let Err(why) = logged {
        let done = match is_sealing {
            true => {
                "the server is sealed, but the audit log cannot be written and lacks this request; make room on its disk"
            }
            false => {
                "the change was made, but the audit log cannot be written and lacks its result; ask the server's operator"
            }
        };
        return refusal(&if (is_change || is_sealing) && reply.is_ok() { Error::new(503, done) } else { why });
    }
    match reply {
        Ok(reply) => reply.into_response(&call.entry.request),
        Err(why) => refusal(&why),
    }
}

async fn operate(call: &mut Call, route: &Route, open: &Opened) -> Result<Reply, Error> {
    if route.verb != Verb::Write || matches!(route.op, Op::Seal | Op::RotateAudit | Op::RevokeSelf) {
        let NoFields {} = parse(&call.body, &[])?;
    }
    match route.op {
        Op::Sign => transit::sign(call, open).await,
        Op::Verify => transit::verify(call, open).await,
        Op::CreateKey => transit::create(call, open).await,
        Op::ReadKey => transit::read(call, open).await,
        Op::ListKeys => transit::list(call, open).await,
        Op::DeleteKey => transit::delete(call, open).await,
        Op::Rotate => transit::rotate(call, open).await,
        Op::Configure => transit::configure(call, open).await,
        Op::Export => transit::export(call, open).await,
        Op::Metrics => Ok(Reply::text(200, "text/plain; version=0.0.4", telemetry::render(&call.server, open).await)),
        Op::ListPolicies => auth::list_policies(call),
        Op::ReadPolicy => auth::read_policy(call),
        Op::WritePolicy => auth::write_policy(call).await,
        Op::DeletePolicy => auth::delete_policy(call).await,
        Op::CreateToken => auth::create_token(call).await,
        Op::LookupSelf => auth::lookup_self(call),
        Op::RevokeSelf | Op::Revoke | Op::RevokeAccessor => auth::revoke(call, route.op).await,
        Op::RotateAudit => {
            let file = system::end_audit_file(open).await?;
            Ok(Reply::data(json!({ "file": file.map(|file| file.display().to_string()) })))
        }
        // `perform` seals when the audit log has this request.
        Op::Seal => Ok(Reply::empty()),
        Op::Health | Op::SealStatus | Op::Initialized | Op::Unseal | Op::OpenApi => {
            Err(Error::internal("this path needs no token"))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_has_the_routes() {
        let description: Value = serde_json::from_str(system::OPEN_API).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let verb = match method.as_str() {
                    "get" if operation["x-vault-list"] == json!(true) => Verb::List,
                    "get" => Verb::Read,
                    "post" => Verb::Write,
                    "delete" => Verb::Delete,
                    other => panic!("{other}"),
                };
                let is_public = operation["security"] == json!([]);
                assert!(operation["responses"].as_object().unwrap().len() > 1, "{path}");
                described.insert((verb, path.clone(), is_public));
            }
        }
        let routes = ROUTES.iter().map(|route| (route.verb, format!("/{}", route.path), route.needs.is_empty()));
        assert_eq!(described, routes.collect());
    }

    /// A path fits at most one route of a kind, whose open parts put back make the path.
    #[test]
    fn fuzz_paths() {
        let seeds: Vec<&[u8]> = ROUTES.iter().map(|route| route.path.as_bytes()).collect();
        crate::fuzz::fuzz(20_000, &seeds, "transit/ sys/ keys/ sign/ /config /rotate {name}", |input| {
            let path = String::from_utf8_lossy(input);
            let mut outcome = String::new();
            for verb in [Verb::Read, Verb::List, Verb::Write, Verb::Delete] {
                match find(Some(verb), &path) {
                    Ok((route, parts)) => {
                        let mut parts = parts.into_iter();
                        let part = |part: &str| if part.starts_with('{') { parts.next().unwrap() } else { part.into() };
                        assert_eq!(route.path.split('/').map(part).collect::<Vec<String>>().join("/"), path);
                        let fits = |other: &&Route| other.verb == verb && wild(other.path, &path).is_some();
                        assert_eq!(ROUTES.iter().filter(fits).count(), 1);
                        outcome += route.name;
                    }
                    Err(why) => assert_eq!(why.status, if methods(&path).is_empty() { 404 } else { 405 }),
                }
            }
            outcome
        });
    }

    /// Bytes of a request: the method and the path, headers, an empty line, the body. `None` if hyper would refuse it.
    fn request_of(input: &[u8]) -> Option<hyper::Request<Body>> {
        let split = input.windows(2).position(|pair| pair == b"\n\n")?;
        let mut lines = input[..split].split(|byte| *byte == b'\n');
        let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
        let mut request = hyper::Request::builder().method(first.next()?).uri(first.next()?);
        for line in lines {
            let mut parts = line.splitn(2, |byte| *byte == b':');
            request = request.header(parts.next()?, parts.next()?.trim_ascii());
        }
        let body = Full::from(input[split + 2..].to_vec()).map_err(|never| match never {});
        request.body(body.boxed_unsync()).ok()
    }

    /// Whatever a client with some rights sends, the answer is no failure of the server, has JSON, and repeats no secret.
    #[test]
    fn fuzz_requests() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = crate::config::Config::of_folder(folder.path().into());
        config.audit.fsync = crate::audit::Fsync::Second;
        let (runtime, server, open) = crate::state::tests::unsealed(config);
        let rules = r#"{"path": {
            "transit/verify/*": {"capabilities": ["update"]}, "transit/sign/none": {"capabilities": ["update"]},
            "transit/export/*": {"capabilities": ["read"]}, "transit/keys/*": {"capabilities": ["read"]}, "transit/keys": {"capabilities": ["list"]},
            "sys/policies/acl*": {"capabilities": ["list", "read"]}, "sys/metrics": {"capabilities": ["read"]}}}"#;
        server.put_policy("p", crate::access::Policy::parse(rules).unwrap()).unwrap();
        let (record, token) = crate::access::make_token("t".into(), vec!["p".into()], None, None).unwrap();
        server.put_token(record).unwrap();
        crate::state::tests::make_key(&server, &open, "a", None);
        drop(open);
        let head = format!("x-vault-token: {}", *token);
        let seeds = [
            format!(
                "POST /v1/transit/verify/a\n{head}\ncontent-length: 5\n\n{{\"input\":\"bQ==\",\"signature\":\"vault:v1:AA==\"}}"
            ),
            format!(
                "POST /v1/transit/verify/a/sha2-256\n{head}\nx-hypergrove-deadline-ms: 60000\n\n{{\"batch_input\":[{{\"input\":\"\",\"signature\":\"vault:v1:\"}}]}}"
            ),
            format!("POST /v1/transit/sign/none\n{head}\n\n{{\"input\":\"bQ==\"}}"),
            format!("GET /v1/transit/export/public-key/a/latest\nauthorization: Bearer {}\n\n", *token),
            format!("GET /v1/transit/keys?list=true\n{head}\n\n"),
            format!("LIST /v1/sys/policies/acl\n{head}\n\n"),
            format!("GET /v1/sys/policy/p\n{head}\n\n"),
            "POST /v1/sys/unseal\ncontent-type: application/json\n\n{\"key\":\"S3cr3t-S3cr3t\"}".into(),
            format!("GET /v1/sys/metrics\n{head}\n\n"),
            format!("DELETE /v1/auth/token/lookup-self\n{head}\n\n"),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        let words = "/v1/ transit/ verify/ sign/ keys/a ?list=true HEAD PUT PATCH x-vault-token: content-length: \n\n Bearer \"signature\": vault:v1:";
        crate::fuzz::fuzz(3_000, &seeds, words, |input| {
            let Some(request) = request_of(input) else { return "no request".into() };
            // An error names the path, whatever is in it.
            let secrets = ["S3cr3t-S3cr3t", token.rsplit('.').next().unwrap()]
                .map(|secret| (secret, request.uri().path().contains(secret)));
            let (is_head, response) =
                (request.method() == Method::HEAD, runtime.block_on(handle(server.clone(), request)));
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
            let text = std::str::from_utf8(&body).unwrap();
            for (secret, is_in_path) in secrets {
                assert!(is_in_path || !text.contains(secret), "{text}");
            }
            assert!(status < 500 || (status == 504 && text.contains("deadline")), "{status} {text}");
            if status >= 400 {
                let body: Value = serde_json::from_str(text).unwrap();
                let errors: Vec<&str> =
                    body["errors"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
                assert!(
                    status == 404 && errors.is_empty()
                        || errors.len() == 1 && (1..=520).contains(&errors[0].chars().count()),
                    "{text}"
                );
            } else if !is_head && headers.get("content-type").is_some_and(|kind| kind == JSON) {
                serde_json::from_str::<Value>(text).unwrap();
            }
            format!(
                "{status} {}",
                text.chars().filter(|letter| letter.is_ascii_alphabetic()).take(40).collect::<String>()
            )
        });
    }

    #[test]
    fn paths_fit_as_they_are() {
        assert_eq!(wild("transit/sign/{name}/{hash}", "transit/sign/a/b").unwrap(), ["a", "b"]);
        for wrong in ["transit/sign/a/b/c", "transit/sign/a/../b", "Transit/sign/a", "transit//sign/a"] {
            assert!(find(Some(Verb::Write), wrong).is_err(), "{wrong}");
        }
        assert_eq!(find(Some(Verb::Delete), "transit/sign/a").unwrap_err().status, 405);
    }
}
