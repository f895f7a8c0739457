//! Runs the fuzz targets, which are tests named `fuzz_…` next to the parsers: whatever clients, operators or the database give, a property holds.
//! `HYPERGROVE_SERVER_FUZZ` gives each target so many seconds, and other inputs in each run. Without it, a target has the same inputs each time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Bytes of an input beyond the longest seed.
const GROWTH: usize = 256;
/// Inputs that are kept.
const CORPUS: usize = 4096;
/// Parts of all formats, which single bytes would hardly build.
const WORDS: &str = "null true false \
    [] {} \"\" , : = / // . .. * + { } [ ] \" \\ \\u0000 \\ud800 %2f %00 é \u{202e} \t \r \n";

/// Numbers at the bounds of types.
const NUMBERS: &str = "0 1 2 0.5 64 255 256 65536 1e9 4294967295 4294967296 9223372036854775807 18446744073709551615 18446744073709551616";

/// A source of the same numbers for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A place of the input where the letter is one that was wanted.
    fn place(&mut self, input: &[u8], is_wanted: impl Fn(&u8) -> bool) -> Option<usize> {
        let from = self.below(input.len());
        let after = input.iter().skip(from).position(&is_wanted).map(|at| from + at);
        after.or_else(|| input.iter().position(is_wanted))
    }

    /// Changes a number: to another one, or to another way to write it.
    fn change_number(&mut self, input: &mut Vec<u8>) {
        let Some(digit) = self.place(input, u8::is_ascii_digit) else { return };
        let from = input[..digit].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |before| before + 1);
        let digits = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        match self.below(3) {
            0 => input.insert(from, *self.of(b"0+- 1")),
            _ => drop(input.splice(from..from + digits, self.of(&NUMBERS.split(' ').collect::<Vec<_>>()).bytes())),
        }
    }

    /// Removes or doubles what stands between brackets or quotes.
    fn change_part(&mut self, input: &mut Vec<u8>) {
        let Some(open) = self.place(input, |byte| b"[{\"'".contains(byte)) else { return };
        let close = match input[open] {
            b'[' => b']',
            b'{' => b'}',
            quote => quote,
        };
        let mut depth = 0;
        let end = input[open + 1..].iter().position(|byte| {
            depth += i32::from(*byte == input[open] && input[open] != close) - i32::from(*byte == close);
            depth < 0
        });
        let Some(inside) = end.map(|end| open + 1..open + 1 + end) else { return };
        match self.below(3) {
            0 => drop(input.splice(inside, [])),
            1 => drop(input.splice(open..=inside.end, [])),
            _ => {
                let part = input[open..=inside.end].to_vec();
                drop(input.splice(inside.end + 1..=inside.end, [b",".to_vec(), part].concat()));
            }
        }
    }

    /// Changes an input in one place.
    fn change(&mut self, input: &mut Vec<u8>, words: &[&str], corpus: &[Vec<u8>]) {
        match self.below(6) {
            0 => return self.change_number(input),
            1 => return self.change_part(input),
            _ => {}
        }
        let at = self.below(input.len() + 1);
        let end = at + self.below((input.len() - at).min(16) + 1);
        let new = match self.below(8) {
            0 if at < input.len() => vec![input[at] ^ 1 << self.below(8)],
            1 => vec![self.below(256) as u8],
            2 => vec![b' ' + self.below(95) as u8],
            3 => Vec::new(),
            4 => [&input[at..end], &input[at..end]].concat(),
            5 => {
                let other = self.of(corpus);
                let from = self.below(other.len() + 1);
                other[from..from + self.below(other.len() - from + 1)].to_vec()
            }
            _ => self.of(words).as_bytes().to_vec(),
        };
        // Between two bytes, or in place of as many, or of all up to `end`.
        let end = *self.of(&[at, end, (at + new.len()).min(input.len())]);
        input.splice(at..end, new);
    }
}

/// The outcome without numbers: an input with a new one is changed further.
fn class(outcome: &str) -> String {
    outcome.chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect()
}

/// Runs a target over its seeds and what becomes of them, for `runs` inputs. The target panics at a fault, and otherwise returns the outcome, such as an error.
pub(crate) fn fuzz(runs: u64, seeds: &[&[u8]], words: &str, mut target: impl FnMut(&[u8]) -> String) {
    let seconds = std::env::var("HYPERGROVE_SERVER_FUZZ")
        .ok()
        .map(|seconds| seconds.parse::<u64>().expect("HYPERGROVE_SERVER_FUZZ is a number of seconds"));
    let start = seconds.map_or(1, |_| RandomState::new().hash_one(0) | 1);
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let words: Vec<&str> = words.split(' ').chain(WORDS.split(' ')).collect();
    let longest = seeds.iter().map(|seed| seed.len()).max().unwrap_or(0) + GROWTH;
    let (mut random, mut done, mut seen) = (Random(start), 0, HashSet::new());
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    while done < runs || Instant::now() < until {
        let input = match seeds.get(done as usize) {
            Some(seed) => seed.to_vec(),
            None => {
                let mut input = random.of(&corpus).clone();
                for _ in 0..=random.below(4) {
                    random.change(&mut input, &words, &corpus);
                }
                input.truncate(longest);
                input
            }
        };
        match catch_unwind(AssertUnwindSafe(|| target(&input))) {
            Ok(outcome) if corpus.len() < CORPUS && seen.insert(class(&outcome)) => corpus.push(input),
            Ok(_) => {}
            Err(_) => panic!("execution {done} fails with the input b\"{}\"", input.escape_ascii()),
        }
        done += 1;
    }
    println!("{done} executions, {} outcomes", seen.len());
}

/// The search finds a fault that it has to approach byte by byte.
#[test]
#[should_panic = "fails with the input b\"fault"]
fn fuzz_control() {
    fuzz(1_000_000, &[b"a seed"], "word", |input| {
        let right = input.iter().zip(b"fault").take_while(|(byte, letter)| byte == letter).count();
        assert!(right < 5, "the planted fault");
        "x".repeat(right)
    });
}
