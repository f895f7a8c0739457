//! SHA-256 of many messages (FIPS 180-4), which a backend may compute in addition to plans.

use crate::Error;
use crate::device::{Axis, Device, Policy, Timing};
use std::ops::Range;
use std::time::Duration;

/// Messages that lie one after the other in memory.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    spans: Spans<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Spans<'a> {
    /// Each has so many bytes.
    Equal(usize),
    /// Where each message ends in a larger buffer, in which the first message begins at `base`.
    Ends { ends: &'a [usize], base: usize },
}

impl<'a> Messages<'a> {
    /// Messages that have `each` bytes; `each` is at least 1.
    pub fn equal(bytes: &'a [u8], each: usize) -> Result<Messages<'a>, Error> {
        if each == 0 || !bytes.len().is_multiple_of(each) {
            let what = format!("{} bytes are no whole messages of {each} bytes each", bytes.len());
            return Err(Error::Value { what });
        }
        Ok(Messages { bytes, spans: Spans::Equal(each) })
    }

    /// Message i ends before byte `ends[i]` and begins where the previous message ends; the last message ends with the bytes.
    pub fn new(bytes: &'a [u8], ends: &'a [usize]) -> Result<Messages<'a>, Error> {
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != bytes.len() {
            let what = format!("the ends of {} messages do not ascend to {}, the end of all", ends.len(), bytes.len());
            return Err(Error::Value { what });
        }
        Ok(Messages { bytes, spans: Spans::Ends { ends, base: 0 } })
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        match self.spans {
            Spans::Equal(each) => self.bytes.len() / each,
            Spans::Ends { ends, .. } => ends.len(),
        }
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes, one message after the other.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The length of every message, if it is known that all have the same.
    pub fn each(&self) -> Option<usize> {
        match self.spans {
            Spans::Equal(each) => Some(each),
            Spans::Ends { .. } => None,
        }
    }

    /// The length of the longest message; 0 if there are none.
    pub fn longest(&self) -> usize {
        self.each().unwrap_or_else(|| (0..self.len()).map(|i| self.get(i).len()).max().unwrap_or(0))
    }

    /// How many messages end at byte `end` or before, in order.
    pub fn ended_by(&self, end: usize) -> usize {
        match self.spans {
            Spans::Equal(each) => self.len().min(end / each),
            Spans::Ends { ends, base } => ends.partition_point(|at| at - base <= end),
        }
    }

    /// Where message i begins among the bytes; for i = [`len`](Messages::len), where the last message ends.
    pub fn start(&self, i: usize) -> usize {
        match self.spans {
            Spans::Equal(each) => i * each,
            Spans::Ends { .. } if i == 0 => 0,
            Spans::Ends { ends, base } => ends[i - 1] - base,
        }
    }

    /// Message i.
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.start(i)..self.start(i + 1)]
    }

    /// The messages whose indices are in `range`.
    pub fn range(&self, range: Range<usize>) -> Messages<'a> {
        let (start, end) = (self.start(range.start), self.start(range.end));
        let spans = match self.spans {
            Spans::Equal(each) => Spans::Equal(each),
            Spans::Ends { ends, base } => Spans::Ends { ends: &ends[range], base: base + start },
        };
        Messages { bytes: &self.bytes[start..end], spans }
    }

    /// Checks that there is a digest for each message.
    pub fn check(&self, digests: &[[u8; 32]]) -> Result<(), Error> {
        match 32 * self.len() {
            want if want == 32 * digests.len() => Ok(()),
            want => Err(Error::Length { what: "the list of digests", want, got: 32 * digests.len() }),
        }
    }
}

/// Computes SHA-256 on one device.
pub trait Hasher: Send {
    /// The axes that can be tuned for [`Sha256Programs::prepare`].
    fn space(&self) -> Vec<Axis>;
    /// Writes the hash of each message to `digests`.
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error>;
    /// Measures the device's time for `copies` copies of the messages in its own memory, once for each of `runs`. The digests are those of the last
    /// copy. `None` if the device has no memory of its own.
    fn resident(
        &mut self,
        _messages: Messages<'_>,
        _copies: usize,
        _runs: usize,
        _digests: &mut [[u8; 32]],
    ) -> Result<Option<Vec<Duration>>, Error> {
        Ok(None)
    }
    /// Measures the bytes a second from the host's memory to the device's while nothing else is done: no messages from the host's memory are hashed
    /// faster. `None` if the device has no memory of its own.
    fn link(&mut self) -> Result<Option<f64>, Error> {
        Ok(None)
    }
    /// Sets how long a wait for the device may take from now on: see [`Program::time_limit`](crate::Program::time_limit).
    fn time_limit(&mut self, limit: Option<Duration>);
}

/// Prepares the devices of a backend for SHA-256 of messages. There is no plan, because hashing has no stages, keys, slots or checks.
pub trait Sha256Programs: Send + Sync {
    /// Bytes that a message may have; `usize::MAX` if there is no limit.
    fn longest(&self, device: &Device, policy: &Policy) -> Result<usize, Error>;
    /// Prepares a hasher on a device. `Err(Unsupported)` declines the device.
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_they_end() {
        let bytes = b"abcdefgh";
        let ends = [0, 3, 3, 8];
        let all = Messages::new(bytes, &ends).unwrap();
        let texts = |messages: Messages<'_>| -> Vec<String> {
            (0..messages.len()).map(|i| String::from_utf8(messages.get(i).to_vec()).unwrap()).collect()
        };
        assert_eq!(texts(all), ["", "abc", "", "defgh"]);
        assert_eq!(texts(all.range(1..4).range(1..3)), ["", "defgh"]);
        let equal = Messages::equal(bytes, 2).unwrap();
        assert_eq!(texts(equal.range(1..4)), ["cd", "ef", "gh"]);
        assert_eq!((equal.each(), all.each(), equal.range(1..2).bytes()), (Some(2), None, &b"cd"[..]));
        assert_eq!([equal.longest(), all.longest(), all.range(0..0).longest()], [2, 5, 0]);
        assert_eq!([0, 3, 5, 9].map(|end| (equal.ended_by(end), all.ended_by(end))), [(0, 1), (1, 3), (2, 3), (4, 4)]);
        assert_eq!(all.range(1..4).ended_by(5), 2);
        assert!(Messages::new(&[], &[]).unwrap().is_empty() && Messages::equal(&[], 4).unwrap().is_empty());
        assert!(all.check(&[[0; 32]; 4]).is_ok() && all.check(&[[0; 32]; 3]).is_err());
    }

    #[test]
    fn messages_that_do_not_fit_the_bytes_are_refused() {
        for ends in [&[][..], &[1], &[3], &[2, 1, 2]] {
            assert!(Messages::new(b"ab", ends).is_err(), "{ends:?}");
        }
        assert!(Messages::equal(b"abc", 2).is_err() && Messages::equal(b"abc", 0).is_err());
    }
}
