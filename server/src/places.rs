//! Places for connections: how many an address may have, and which connection gives way when all places are taken.

use crate::config::Config;
use crate::error::Error;
use crate::threads::unpoisoned;
use hyper::header::HeaderMap;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;
use tokio::sync::Notify;

/// File descriptors that connections leave: for the database, the logs and the local socket, and for connections that gave way.
const OTHER_FILES: u64 = 64;

/// The work of a connection. Earlier stages give way before later ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// No request is being answered, and none had a valid token.
    Stranger,
    /// A request without a token is being answered.
    Asking,
    /// No request is being answered, and an earlier one had a valid token.
    Known,
    /// A request with a valid token is being answered. Such a connection gives way to none.
    Answering,
    /// Another connection has its place.
    Gone,
}

/// The place of a connection.
pub struct Place {
    /// The address at its other end.
    pub address: IpAddr,
    /// Notified when the connection has to give way.
    pub given: Notify,
    state: Mutex<(Stage, Instant)>,
    freed: Arc<Notify>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

impl Place {
    /// The place of a connection from this address.
    pub fn new(address: IpAddr, freed: Arc<Notify>) -> Arc<Place> {
        let state = Mutex::new((Stage::Stranger, Instant::now()));
        Arc::new(Place { address, given: Notify::new(), state, freed })
    }

    fn change(&self, to: impl FnOnce(Stage) -> Stage) -> Stage {
        let mut state = lock(&self.state);
        *state = (to(state.0), Instant::now());
        state.0
    }

    /// A request begins.
    pub fn begin(&self) {
        self.change(|stage| stage.max(Stage::Asking));
    }

    /// The request has a valid token.
    pub fn admit(&self) -> Result<(), Error> {
        match self.change(|stage| stage.max(Stage::Answering)) {
            Stage::Gone => Err(Error::new(503, "the server has too many connections, and closes this one; try again")),
            _ => Ok(()),
        }
    }

    /// The request was answered.
    pub fn end(&self) {
        self.change(|stage| match stage {
            Stage::Asking => Stage::Stranger,
            Stage::Answering => Stage::Known,
            stage => stage,
        });
        self.freed.notify_one();
    }

    /// Makes the connection give way, unless a request with a valid token is being answered.
    fn give(&self) -> bool {
        let is_gone = self.change(|stage| if stage < Stage::Answering { Stage::Gone } else { stage }) == Stage::Gone;
        if is_gone {
            self.given.notify_one();
        }
        is_gone
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.freed.notify_one();
    }
}

/// All places.
pub struct Places {
    most: usize,
    per_address: usize,
    trusted: Vec<IpAddr>,
    held: Mutex<Vec<Weak<Place>>>,
    /// The requests of each address that come through proxies. Each of them, and this map, holds the `Arc` of the address.
    requests: Mutex<HashMap<IpAddr, Arc<()>>>,
    freed: Arc<Notify>,
}

/// The part of an address by which clients are counted: of IPv6, the 64 bits that a provider gives to each customer at least.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The address in a part of `X-Forwarded-For`, which may have a port.
fn forwarded(part: &str) -> Option<IpAddr> {
    let bare = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')).unwrap_or(part);
    let address = bare.parse().or_else(|_| part.parse().map(|address: SocketAddr| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

/// How many connections the process can have, with as many file descriptors as the system allows.
fn possible(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(connections as u64 + OTHER_FILES);
    let current = limit.current.unwrap_or(u64::MAX);
    let is_raised = current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok();
    let files = if is_raised { wanted } else { current };
    connections.min(files.saturating_sub(OTHER_FILES).max(1) as usize)
}

impl Places {
    /// The places that these settings allow.
    pub fn new(config: &Config) -> Places {
        let limits = &config.limits;
        let most = possible(limits.connections);
        if most < limits.connections {
            tracing::warn!("the system allows file descriptors for {most} connections; raise LimitNOFILE or ulimit -n");
        }
        let trusted = config.trusted_proxies.iter().map(IpAddr::to_canonical).collect();
        let (held, requests, freed) = Default::default();
        Places { most, per_address: limits.per_address, trusted, held, requests, freed }
    }

    /// A place for a new connection, when there is one. `None` if its address has as many as it may, and none of them gives way.
    pub async fn take(&self, address: IpAddr) -> Option<Arc<Place>> {
        loop {
            if let Some(taken) = self.try_take(address.to_canonical()) {
                return taken;
            }
            self.freed.notified().await;
        }
    }

    /// `None` if there is no place now.
    fn try_take(&self, address: IpAddr) -> Option<Option<Arc<Place>>> {
        if !address.is_loopback() && !self.trusted.contains(&address) {
            let mut own = self.all();
            own.retain(|place| network(place.address) == network(address));
            if own.len() >= self.per_address && !give_way(&own) {
                return Some(None);
            }
        }
        let all = self.all();
        let is_full = all.len() >= self.most && !give_way(&all);
        // Those that gave way still have their file descriptors for a moment.
        if is_full || lock(&self.held).len() >= self.most + OTHER_FILES as usize / 4 {
            return None;
        }
        let place = Place::new(address, self.freed.clone());
        lock(&self.held).push(Arc::downgrade(&place));
        Some(Some(place))
    }

    fn all(&self) -> Vec<Arc<Place>> {
        let mut held = lock(&self.held);
        held.retain(|place| place.strong_count() > 0);
        let places = held.iter().filter_map(Weak::upgrade);
        places.filter(|place| lock(&place.state).0 != Stage::Gone).collect()
    }

    /// Makes one connection give way, because there are no file descriptors left.
    pub fn give_one(&self) {
        give_way(&self.all());
    }

    /// Closes the connections on which no request with a valid token is being answered.
    pub fn give_all(&self) {
        while give_way(&self.all()) {}
    }

    /// Whose request it is, and, if a trusted proxy sends it, a count of this request for as long as it is held. Proxies append to
    /// `X-Forwarded-For`, so it is read from its end, and only while a trusted proxy wrote what is read. A client can put anything before that, which
    /// changes nothing.
    pub fn client(&self, mut address: IpAddr, headers: &HeaderMap) -> Result<(IpAddr, Option<Arc<()>>), Error> {
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let mut parts = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        if !self.trusted.contains(&address) {
            return Ok((address, None));
        }
        while self.trusted.contains(&address) {
            // A proxy's own request has no limit. Those whose client cannot be read share the limit of one client.
            let Some(part) = parts.next() else { return Ok((address, None)) };
            let Some(before) = forwarded(part.trim()) else { break };
            address = before;
        }
        let mut requests = lock(&self.requests);
        requests.retain(|_, held| Arc::strong_count(held) > 1);
        let held = requests.entry(network(address)).or_default();
        match Arc::strong_count(held) <= self.per_address {
            true => Ok((address, Some(held.clone()))),
            false => Err(Error::busy("the address has too many requests at a time; try again later", 1)),
        }
    }
}

/// Makes the connection give way that comes first by its stage, and of these the one that has done nothing for the longest time. False if there is
/// none.
fn give_way(places: &[Arc<Place>]) -> bool {
    let state = |place: &&Arc<Place>| *lock(&place.state);
    let is_free = |place: &&Arc<Place>| state(place).0 < Stage::Answering;
    while let Some(first) = places.iter().filter(is_free).min_by_key(state) {
        // A request may have begun meanwhile.
        if first.give() {
            return true;
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn places(connections: usize, per_address: usize) -> Places {
        let mut config = Config::of_folder("none".into());
        (config.limits.connections, config.limits.per_address) = (connections, per_address);
        config.trusted_proxies = ["10.0.0.1", "::ffff:10.0.0.2"].map(|proxy| proxy.parse().unwrap()).into();
        Places::new(&config)
    }

    fn taken(places: &Places, address: &str) -> Option<Option<Arc<Place>>> {
        places.try_take(address.parse::<IpAddr>().unwrap().to_canonical())
    }

    fn is_gone(place: &Place) -> bool {
        lock(&place.state).0 == Stage::Gone
    }

    #[test]
    fn the_oldest_idle_connection_gives_way_and_strangers_come_first() {
        let places = places(4, 4);
        let held: Vec<_> = (0..4).map(|_| taken(&places, "127.0.0.1").unwrap().unwrap()).collect();
        // Of these, one has an answered token, one is being answered, one asks, and one is silent.
        held[0].admit().unwrap();
        held[0].end();
        held[1].admit().unwrap();
        held[2].begin();
        for (next, expected) in [3, 2, 0].into_iter().enumerate() {
            let new = taken(&places, "127.0.0.1").unwrap().unwrap();
            assert!(is_gone(&held[expected]), "{next}");
            new.admit().unwrap();
            std::mem::forget(new);
        }
        // Now a request with a valid token is being answered on each.
        assert!(taken(&places, "127.0.0.1").is_none() && !is_gone(&held[1]));
        assert!(held[3].admit().is_err() && is_gone(&held[3]), "what gave way begins nothing");
        held[1].end();
        assert!(taken(&places, "127.0.0.1").unwrap().is_some() && is_gone(&held[1]));
    }

    #[test]
    fn an_address_has_a_share_of_the_places_and_no_more() {
        let places = places(100, 2);
        for (one, other, third) in [
            ("192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"),
            ("2001:db8:1:2::3", "2001:db8:1:2:ffff::", "2001:db8:1:2:4:5:6:7"),
        ] {
            let held = [one, other].map(|address| taken(&places, address).unwrap().unwrap());
            let new = taken(&places, third).unwrap().unwrap();
            assert!(is_gone(&held[0]) && !is_gone(&held[1]));
            held[1].admit().and(new.admit()).unwrap();
            assert!(taken(&places, third).unwrap().is_none(), "each of its connections is being answered");
            drop(new);
            assert!(taken(&places, third).unwrap().is_some());
        }
        assert!(taken(&places, "192.0.2.2").unwrap().is_some() && taken(&places, "2001:db8:1:3::").unwrap().is_some());
        for exempt in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1"] {
            let held: Vec<_> = (0..5).map(|_| taken(&places, exempt).unwrap().unwrap()).collect();
            assert!(!held.iter().any(|place| is_gone(place)), "{exempt}");
        }
        assert_eq!(places.all().len(), 0, "what was dropped has no place");
    }

    #[tokio::test]
    async fn who_gives_way_is_notified_and_who_waits_gets_the_place() {
        let places = Arc::new(places(1, 1));
        let first = places.take("127.0.0.1".parse().unwrap()).await.unwrap();
        let second = places.take("127.0.0.1".parse().unwrap()).await.unwrap();
        first.given.notified().await;
        second.admit().unwrap();
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take("127.0.0.1".parse().unwrap()).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn only_trusted_proxies_say_whose_request_it_is() {
        let places = places(100, 2);
        let client = |address: &str, lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", hyper::header::HeaderValue::from_bytes(line).unwrap());
            }
            let (address, held) = places.client(address.parse().unwrap(), &headers).unwrap();
            (address.to_string(), held.is_some())
        };
        let expect = |address: &str, lines: &[&[u8]], expected: &str, is_forwarded: bool| {
            assert_eq!(client(address, lines), (expected.into(), is_forwarded), "{address} {lines:?}");
        };
        for (lines, expected) in [
            (&[&b"192.0.2.1"[..]][..], "192.0.2.1"),
            (&[b"1.1.1.1, 192.0.2.1"], "192.0.2.1"),
            (&[b"1.1.1.1, 192.0.2.1,10.0.0.2"], "192.0.2.1"),
            (&[b"1.1.1.1", b"192.0.2.1 , 10.0.0.1"], "192.0.2.1"),
            (&[b"10.0.0.1, 192.0.2.1:4711"], "192.0.2.1"),
            (&[b"::ffff:192.0.2.1"], "192.0.2.1"),
            (&[b"[2001:db8::1]:4711"], "2001:db8::1"),
            (&[b"[2001:db8::1]"], "2001:db8::1"),
            // A client that cannot be read has the last proxy's address, with a limit.
            (&[b"192.0.2.1, nonsense"], "10.0.0.1"),
            (&[b"192.0.2.1,"], "10.0.0.1"),
            (&[b"192.0.2.1, \xff"], "10.0.0.1"),
            (&[b""], "10.0.0.1"),
            (&[b"\xff, 10.0.0.2"], "10.0.0.1"),
            (&[b"192.0.2.1, bad, 10.0.0.2"], "10.0.0.2"),
        ] {
            expect("10.0.0.1", lines, expected, true);
            expect("192.0.2.9", lines, "192.0.2.9", false);
            expect("127.0.0.1", lines, "127.0.0.1", false);
        }
        expect("10.0.0.1", &[], "10.0.0.1", false);
        expect("10.0.0.1", &[b"10.0.0.2"], "10.0.0.2", false);
        // A share of the requests, as of the connections.
        let of = |address: &str| {
            let headers = [("x-forwarded-for".parse().unwrap(), address.parse().unwrap())].into_iter().collect();
            places.client("10.0.0.1".parse().unwrap(), &headers)
        };
        let held = [of("2001:db8::1").unwrap(), of("2001:db8::2").unwrap()];
        assert_eq!(of("2001:db8::3").unwrap_err().status, 429);
        assert!(of("2001:db8:0:1::").is_ok());
        drop(held);
        assert!(of("2001:db8::3").unwrap().1.is_some());
        assert_eq!(places.requests.lock().unwrap().len(), 1, "addresses without a request are forgotten");
    }
}
