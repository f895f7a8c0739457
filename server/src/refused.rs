//! Requests without a valid token: a few lines of the logs stand for any number of them, so that nobody fills a disk without a token.

use crate::audit::Entry;
use crate::state::Open;
use crate::system::request_id;
use crate::threads::unpoisoned;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Addresses, and paths, that a line names at most.
const MOST_NAMES: usize = 8;
/// Characters of a path that such a line names.
const MOST_PATH: usize = 100;
/// Seconds between two lines of a kind, at most.
const MOST_WAIT: u64 = 64;

/// The requests that a line sums up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Why they were refused.
    why: &'static str,
    /// How many there were.
    pub requests: u64,
    /// The time of the first.
    since: String,
    /// Some of their addresses.
    addresses: Vec<IpAddr>,
    /// Some of their paths.
    paths: Vec<String>,
}

/// Requests that were refused for one reason.
struct Kind {
    /// The line that is not written yet.
    held: Option<Entry>,
    /// No line is written before.
    next: Instant,
    /// Seconds from the latest line to the next one.
    wait: u64,
}

/// The refused requests that no line stands for yet.
#[derive(Default)]
pub struct Refused(Mutex<BTreeMap<&'static str, Kind>>);

fn add<T: PartialEq>(names: &mut Vec<T>, more: Vec<T>) {
    for name in more {
        if names.len() < MOST_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
}

impl Refused {
    /// Counts a request. `entry` would be its line.
    pub fn note(&self, why: &'static str, entry: Entry, address: IpAddr) {
        let paths = vec![entry.path.chars().take(MOST_PATH).collect()];
        let since = jiff::Timestamp::now().to_string();
        let sum = Summary { why, requests: 1, since, addresses: vec![address], paths };
        self.hold(Entry { refused: Some(sum), ..entry });
    }

    fn hold(&self, entry: Entry) {
        let Some(sum) = entry.refused.clone() else { return };
        let mut kinds = unpoisoned(self.0.lock());
        let kind = kinds.entry(sum.why).or_insert(Kind { held: None, next: Instant::now(), wait: 0 });
        let Some(held) = &mut kind.held else {
            kind.held = Some(entry);
            return;
        };
        (held.operation, held.path) = ("refused", String::new());
        if let Some(held) = &mut held.refused {
            held.requests += sum.requests;
            held.since = sum.since.min(std::mem::take(&mut held.since));
            add(&mut held.addresses, sum.addresses);
            add(&mut held.paths, sum.paths);
        }
    }

    /// The lines whose time has come, or all. The first request of a kind has its line at once. While others follow, lines become rarer.
    fn due(&self, now: Instant, all: bool) -> Vec<Entry> {
        let mut kinds = unpoisoned(self.0.lock());
        let due = kinds.values_mut().filter(|kind| all || kind.next <= now).filter_map(|kind| {
            let entry = kind.held.take()?;
            let is_quiet = now.saturating_duration_since(kind.next) > Duration::from_secs(MOST_WAIT);
            kind.wait = if is_quiet { 1 } else { (kind.wait * 2).clamp(1, MOST_WAIT) };
            kind.next = now + Duration::from_secs(kind.wait);
            Some(Entry { request: request_id().unwrap_or_default(), ..entry })
        });
        due.collect()
    }

    /// Writes the lines whose time has come, or all because the server is being sealed. If the log cannot be written, they are kept.
    pub fn write(&self, open: &Open, all: bool) {
        for entry in self.due(Instant::now(), all) {
            if !open.audit.note(&entry) {
                self.hold(entry);
            }
        }
    }
}

/// An event that the server's own log names once a minute at most.
pub struct Rare(Mutex<Option<Instant>>);

impl Rare {
    /// An event that was not named yet.
    pub(crate) const fn new() -> Rare {
        Rare(Mutex::new(None))
    }

    /// Names the event, if it is time to.
    pub fn warn(&self, what: impl Display) {
        if self.is_due() {
            tracing::warn!("{what} (this is logged once a minute at most)");
        }
    }

    fn is_due(&self) -> bool {
        let mut last = unpoisoned(self.0.lock());
        let is_due = last.is_none_or(|last| last.elapsed() >= Duration::from_secs(60));
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn line(refused: &Refused, number: u64) {
        let entry = Entry { path: format!("transit/sign/{number:0150}"), operation: "sign", ..Entry::default() };
        refused.note("unknown", entry, std::net::Ipv4Addr::from_bits(number as u32).into());
    }

    fn requests(due: &[Entry]) -> Vec<u64> {
        due.iter().map(|entry| entry.refused.as_ref().unwrap().requests).collect()
    }

    #[test]
    fn a_flood_has_few_lines_and_none_of_its_requests_is_lost() {
        let (refused, begun) = (Refused::default(), Instant::now());
        line(&refused, 0);
        let first = refused.due(begun + Duration::from_secs(1), false);
        assert_eq!((first[0].operation, &first[0].path[..13]), ("sign", "transit/sign/"));
        // An hour with ten requests a second: a line at most every minute in the end.
        let (mut lines, mut sum, mut longest) = (1, 1, 0);
        for tenth in 0..36_000 {
            line(&refused, tenth);
            let due = refused.due(begun + Duration::from_secs(1) + Duration::from_millis(tenth * 100), false);
            lines += due.len();
            sum += requests(&due).iter().sum::<u64>();
            longest = due.iter().map(|entry| serde_json::to_string(entry).unwrap().len()).fold(longest, usize::max);
        }
        let rest = refused.due(begun, true);
        assert_eq!(sum + requests(&rest).iter().sum::<u64>(), 36_001);
        assert!(lines < 70 && longest < 2000, "{lines} lines, the longest of {longest} bytes");
        assert!(refused.due(begun, true).is_empty());
        // After a while without any, the first one has its line at once, and the next one after a second.
        let later = begun + Duration::from_secs(3600 + 200);
        for (number, at, expected) in [(1, 0, &[1][..]), (2, 500, &[]), (3, 1000, &[2])] {
            line(&refused, number);
            let due = refused.due(later + Duration::from_millis(at), false);
            assert_eq!(requests(&due), expected, "{at}");
        }
    }

    #[test]
    fn an_event_is_named_once_a_minute() {
        let rare = Rare::new();
        assert_eq!([rare.is_due(), rare.is_due()], [true, false]);
        *rare.0.lock().unwrap() = Instant::now().checked_sub(Duration::from_secs(61));
        assert_eq!([rare.is_due(), rare.is_due()], [true, false]);
    }
}
