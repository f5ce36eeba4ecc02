//! Makes nearly valid inputs: entries of a corpus, changed at a few places.

use std::collections::BTreeSet;
use std::ops::Range;

use fastrand::Rng;

/// Most changes of one input.
const CHANGES_MAX: usize = 8;
/// Longest word that replaces another.
const WORD_BYTES_MAX: usize = 60;
/// Longest piece that is removed, copied or moved, unless a change takes the rest of the input.
const PIECE_BYTES_MAX: usize = 64;

/// Numbers that parsers often handle wrong.
const NUMBERS: [&str; 26] = [
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "+1",
    "0.1",
    "1e999",
    "-1e999",
    "1e-999",
    "1e18",
    "9e18",
    "NaN",
    "inf",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];
/// Bytes that they often handle wrong: not text, half a character, line ends, escapes, text directions.
const BYTES: [&[u8]; 26] = [
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf0\x9f",
    b"\xe2\x82",
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\t",
    b" ",
    b"\x1b[2J",
    b"\x7f",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"%00",
    b"%",
    b"'",
    b"\xcc\x81",
];
/// Nesting: opening and closing.
const NESTS: [(&str, &str); 6] =
    [("[", "]"), ("{\"a\":", "}"), ("{a=", "}"), ("(", ")"), ("\"", "\""), ("[{\"a\":[", "]}]")];

/// Makes inputs from a corpus.
pub(super) struct Mutator<'a> {
    entries: &'a [Vec<u8>],
    /// All words of the corpus.
    words: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl<'a> Mutator<'a> {
    pub(super) fn new(entries: &'a [Vec<u8>], bytes_max: usize) -> Self {
        let mut words = BTreeSet::new();
        for entry in entries {
            let of_entry = entry.split(|byte| !is_of_word(*byte));
            words.extend(of_entry.filter(|word| (1..=WORD_BYTES_MAX).contains(&word.len())));
        }
        let words = words.into_iter().map(<[u8]>::to_vec).collect();
        Self { entries, words, bytes_max }
    }

    /// The input with this number. It depends only on the corpus, the seed and the number.
    pub(super) fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        let mut chance = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut input = self.entry(&mut chance).to_vec();
        let changes = chance.usize(1..=CHANGES_MAX).min(chance.usize(1..=CHANGES_MAX));
        for _ in 0..changes {
            self.change(&mut input, &mut chance);
            input.truncate(self.bytes_max);
        }
        input
    }

    fn entry(&self, chance: &mut Rng) -> &[u8] {
        chance.choice(self.entries).map_or(&[], Vec::as_slice)
    }

    fn word(&self, chance: &mut Rng) -> &[u8] {
        match chance.u8(..4) {
            0 => chance.choice(NUMBERS).unwrap_or_default().as_bytes(),
            _ => chance.choice(&self.words).map_or(&[], Vec::as_slice),
        }
    }

    fn change(&self, input: &mut Vec<u8>, chance: &mut Rng) {
        let at = chance.usize(..=input.len());
        match chance.u8(..18) {
            0 => flip(input, at, chance),
            1 => put(input, at..at, chance.choice(BYTES).unwrap_or_default()),
            2 | 3 => drop(input.drain(piece(input, at, chance))),
            4 => {
                let copy = input[piece(input, at, chance)].to_vec();
                put(input, at..at, &copy);
            }
            5 => put(input, at..at, self.word(chance)),
            6..=9 => put(input, word_at(input, at), self.word(chance)),
            10 => {
                let place = number_at(input, at);
                let number = chance.choice(NUMBERS).unwrap_or_default();
                put(input, place, number.as_bytes());
            }
            11 => {
                let other = self.entry(chance);
                let from = chance.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            12 => {
                let other = self.entry(chance);
                let from = chance.usize(..=other.len());
                let piece = other[piece(other, from, chance)].to_vec();
                put(input, at..at, &piece);
            }
            13 => input.truncate(at),
            14 => self.repeat(input, at, chance),
            15 => self.nest(input, at, chance),
            16 => swap(input, at, chance),
            _ => self.exchange_line(input, at, chance),
        }
    }

    /// Repeats a piece many times.
    fn repeat(&self, input: &mut Vec<u8>, at: usize, chance: &mut Rng) {
        let copy = input[piece(input, at, chance)].to_vec();
        let times = self.times(copy.len(), chance);
        put(input, at..at, &copy.repeat(times));
    }

    /// Nests brackets, closed or not.
    fn nest(&self, input: &mut Vec<u8>, at: usize, chance: &mut Rng) {
        let Some((open, close)) = chance.choice(NESTS) else { return };
        let times = self.times(open.len() + close.len(), chance);
        if chance.bool() {
            let end = piece(input, at, chance).end;
            put(input, end..end, close.repeat(times).as_bytes());
        }
        put(input, at..at, open.repeat(times).as_bytes());
    }

    /// How often to repeat something of this length: mostly a few times.
    fn times(&self, bytes: usize, chance: &mut Rng) -> usize {
        let most = self.bytes_max / bytes.max(1);
        let most = if chance.u8(..4) == 0 { most } else { most.min(4) };
        chance.usize(..=most)
    }

    /// Replaces a line by one of another entry.
    fn exchange_line(&self, input: &mut Vec<u8>, at: usize, chance: &mut Rng) {
        let other = self.entry(chance);
        let from = line_at(other, chance.usize(..=other.len()));
        let line = other[from].to_vec();
        put(input, line_at(input, at), &line);
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'+') || byte >= 0x80
}

fn flip(input: &mut [u8], at: usize, chance: &mut Rng) {
    if let Some(byte) = input.get_mut(at) {
        *byte = if chance.bool() { *byte ^ (1 << chance.u8(..8)) } else { chance.u8(..) };
    }
}

/// Replaces bytes by others.
fn put(input: &mut Vec<u8>, place: Range<usize>, bytes: &[u8]) {
    input.splice(place, bytes.iter().copied());
}

/// Some bytes starting at `at`.
fn piece(input: &[u8], at: usize, chance: &mut Rng) -> Range<usize> {
    let most = (input.len() - at).min(PIECE_BYTES_MAX);
    at..at + chance.usize(..=most)
}

/// The range around `at` in which all bytes match `is`.
fn around(input: &[u8], at: usize, is: impl Fn(u8) -> bool) -> Range<usize> {
    let begins = input[..at].iter().rposition(|byte| !is(*byte)).map_or(0, |place| place + 1);
    let length = input[at..].iter().position(|byte| !is(*byte)).unwrap_or(input.len() - at);
    begins..at + length
}

fn word_at(input: &[u8], at: usize) -> Range<usize> {
    around(input, at, is_of_word)
}

fn line_at(input: &[u8], at: usize) -> Range<usize> {
    around(input, at, |byte| byte != b'\n')
}

/// The next number from `at` on; if there is none, an empty range at `at`.
fn number_at(input: &[u8], at: usize) -> Range<usize> {
    match input[at..].iter().position(u8::is_ascii_digit) {
        Some(digit) => around(input, at + digit, |byte| byte.is_ascii_digit() || byte == b'.'),
        None => at..at,
    }
}

/// Swaps two words.
fn swap(input: &mut Vec<u8>, at: usize, chance: &mut Rng) {
    let one = word_at(input, at);
    let other = word_at(input, chance.usize(one.end..=input.len()));
    if one.end < other.start {
        let (first, second) = (input[one.clone()].to_vec(), input[other.clone()].to_vec());
        put(input, other, &first);
        put(input, one, &second);
    }
}
