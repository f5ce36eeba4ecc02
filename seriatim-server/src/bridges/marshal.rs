//! What Ruby's `Marshal.dump` wrote (version 4.8), as JSON: plain data alone. An object of any class is refused, so nothing
//! that is read here can run code.
//!
//! The text is written while it is read. A link to an object that was there before copies its text, so that shared objects
//! cost their length each time, up to the limit.

use std::collections::BTreeSet;
use std::ops::Range;

use seriatim::limits::PAYLOAD_BYTES_MAX;

use crate::base::text::one_line;

/// The version with which all dumps begin.
const VERSION: &[u8] = &[4, 8];
/// Most lists and maps inside each other, as in Ruby's own JSON.
const DEPTH_MAX: usize = 100;
/// Longest whole number, in bytes: some 2,400 digits.
const INTEGER_BYTES_MAX: usize = 1_024;
/// Decimal digits of a whole number that are converted per step.
const DIGITS: usize = 9;
const DIGITS_BASE: u64 = 1_000_000_000;
/// Longest name in a reason, in characters.
const NAME_CHARS_MAX: usize = 80;

/// The JSON of a dump. The error says why it has none.
pub(super) fn to_json(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() > PAYLOAD_BYTES_MAX {
        return Err(format!("has {} bytes: at most {PAYLOAD_BYTES_MAX}", bytes.len()));
    }
    let rest = bytes.strip_prefix(VERSION).ok_or("is not of Marshal 4.8")?;
    let mut reader = Reader {
        rest,
        json: String::with_capacity(bytes.len()),
        depth: 0,
        symbols: Vec::new(),
        objects: Vec::new(),
    };
    reader.value()?;
    match reader.rest.len() {
        0 => Ok(reader.json),
        more => Err(format!("has {more} bytes behind its end")),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    json: String,
    depth: usize,
    symbols: Vec<String>,
    /// The texts of all objects, in their order, which links count; `None` while one is being read.
    objects: Vec<Option<Range<usize>>>,
}

/// An object that is being read: its number, and where its text begins.
struct Begun {
    number: usize,
    from: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<(), String> {
        match self.byte()? {
            b'0' => self.json.push_str("null"),
            b'T' => self.json.push_str("true"),
            b'F' => self.json.push_str("false"),
            b'i' => {
                let number = self.long()?;
                self.json.push_str(&number.to_string());
            }
            b'l' => self.integer()?,
            b'f' => self.float()?,
            b'"' => {
                let begun = self.begin();
                let text = ascii(self.chunk()?)?;
                self.text(text);
                self.end(&begun);
            }
            b'I' => self.encoded()?,
            b':' => {
                let name = ascii(self.chunk()?)?;
                self.symbols.push(name.to_owned());
                self.text(name);
            }
            b';' => {
                let name = self.known_symbol()?;
                self.text(&name);
            }
            b'[' => self.nested(Self::list)?,
            b'{' => self.nested(|reader| reader.map(false))?,
            b'}' => self.nested(|reader| reader.map(true))?,
            b'@' => self.link()?,
            tag => return Err(self.foreign(tag)),
        }
        match self.json.len() {
            0..=PAYLOAD_BYTES_MAX => Ok(()),
            _ => Err(format!("is longer than {PAYLOAD_BYTES_MAX} bytes as JSON")),
        }
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.rest.split_first().ok_or("ends early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or("ends early")?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A whole number in one to five bytes. The first one is the number, moved away from zero by 5, or how many follow; if it
    /// is negative, what follows is a complement.
    fn long(&mut self) -> Result<i64, String> {
        let first = self.byte()?.cast_signed();
        let follow = usize::from(first.unsigned_abs());
        if first == 0 || follow > 4 {
            return Ok(i64::from(first) - 5 * i64::from(first.signum()));
        }
        let mut number: i64 = if first < 0 { -1 << (8 * follow) } else { 0 };
        for (place, byte) in self.bytes(follow)?.iter().enumerate() {
            number |= i64::from(*byte) << (8 * place);
        }
        Ok(number)
    }

    /// How many follow: each has a byte at least.
    fn length(&mut self) -> Result<usize, String> {
        let length = usize::try_from(self.long()?).map_err(|_| "has a negative length")?;
        if length > self.rest.len() { Err("ends early".to_owned()) } else { Ok(length) }
    }

    fn chunk(&mut self) -> Result<&'a [u8], String> {
        let length = self.length()?;
        self.bytes(length)
    }

    fn begin(&mut self) -> Begun {
        self.objects.push(None);
        Begun { number: self.objects.len() - 1, from: self.json.len() }
    }

    fn end(&mut self, begun: &Begun) {
        self.objects[begun.number] = Some(begun.from..self.json.len());
    }

    fn text(&mut self, text: &str) {
        self.json.push_str(&serde_json::Value::from(text).to_string());
    }

    /// A whole number of any length: a sign, and its bytes in pairs, the lowest first.
    fn integer(&mut self) -> Result<(), String> {
        let begun = self.begin();
        let is_negative = match self.byte()? {
            b'+' => false,
            b'-' => true,
            _ => return Err("has a whole number without a sign".to_owned()),
        };
        let bytes = self.length()?.saturating_mul(2);
        if bytes > INTEGER_BYTES_MAX {
            return Err(format!(
                "has a whole number of {bytes} bytes: at most {INTEGER_BYTES_MAX}"
            ));
        }
        let digits = decimal(self.bytes(bytes)?);
        if is_negative && digits != "0" {
            self.json.push('-');
        }
        self.json.push_str(&digits);
        self.end(&begun);
        Ok(())
    }

    fn float(&mut self) -> Result<(), String> {
        let begun = self.begin();
        let text = ascii(self.chunk()?)?;
        let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
        let number =
            number.ok_or_else(|| format!("has {}, which is not a JSON number", shown(text)))?;
        self.json.push_str(&serde_json::Value::from(number).to_string());
        self.end(&begun);
        Ok(())
    }

    /// A text or symbol whose encoding follows it.
    fn encoded(&mut self) -> Result<(), String> {
        match self.byte()? {
            b'"' => {
                let begun = self.begin();
                let bytes = self.chunk()?;
                let text = if self.is_utf8()? { utf8(bytes)? } else { ascii(bytes)? };
                self.text(text);
                self.end(&begun);
            }
            b':' => {
                let name = self.encoded_symbol()?;
                self.text(&name);
            }
            tag => return Err(self.foreign(tag)),
        }
        Ok(())
    }

    fn encoded_symbol(&mut self) -> Result<String, String> {
        let bytes = self.chunk()?;
        let number = self.symbols.len();
        // It is counted before those of its encoding.
        self.symbols.push(String::new());
        let name = if self.is_utf8()? { utf8(bytes)? } else { ascii(bytes)? };
        name.clone_into(&mut self.symbols[number]);
        Ok(name.to_owned())
    }

    /// Whether what was before is in UTF-8; otherwise it has no bytes beyond ASCII.
    fn is_utf8(&mut self) -> Result<bool, String> {
        match (self.length()?, self.symbol()?.as_str()) {
            (1, "E") => match self.byte()? {
                b'T' => Ok(true),
                b'F' => Ok(false),
                _ => Err("has a string in an unknown encoding".to_owned()),
            },
            (1, "encoding") => {
                let name = match self.byte()? {
                    b'"' => shown(&String::from_utf8_lossy(self.chunk()?)),
                    _ => "another encoding".to_owned(),
                };
                Err(format!("has a string in {name}: only UTF-8 is read"))
            }
            _ => Err("has a string with instance variables".to_owned()),
        }
    }

    fn symbol(&mut self) -> Result<String, String> {
        match self.byte()? {
            b':' => {
                let name = ascii(self.chunk()?)?;
                self.symbols.push(name.to_owned());
                Ok(name.to_owned())
            }
            b';' => self.known_symbol(),
            b'I' if self.byte()? == b':' => self.encoded_symbol(),
            _ => Err("has a name that is not a symbol".to_owned()),
        }
    }

    fn known_symbol(&mut self) -> Result<String, String> {
        let number = usize::try_from(self.long()?).ok();
        let known = number.and_then(|number| self.symbols.get(number));
        known.cloned().ok_or_else(|| "names a symbol that is not there".to_owned())
    }

    /// A list or map: an object, inside of which others are.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<(), String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("is nested more than {DEPTH_MAX} deep"));
        }
        self.depth += 1;
        let begun = self.begin();
        read(self)?;
        self.end(&begun);
        self.depth -= 1;
        Ok(())
    }

    fn list(&mut self) -> Result<(), String> {
        self.json.push('[');
        for place in 0..self.length()? {
            if place > 0 {
                self.json.push(',');
            }
            self.value()?;
        }
        self.json.push(']');
        Ok(())
    }

    fn map(&mut self, has_default: bool) -> Result<(), String> {
        let mut keys = BTreeSet::new();
        self.json.push('{');
        for place in 0..self.length()? {
            if place > 0 {
                self.json.push(',');
            }
            let from = self.json.len();
            self.key()?;
            if !keys.insert(self.json[from..].to_owned()) {
                return Err(format!("has a map with two keys {}", shown(&self.json[from..])));
            }
            self.json.push(':');
            self.value()?;
        }
        self.json.push('}');
        if has_default {
            self.skip_default()?;
        }
        Ok(())
    }

    /// Texts, symbols and whole numbers become texts.
    fn key(&mut self) -> Result<(), String> {
        let (tag, from) = (self.rest.first().copied(), self.json.len());
        self.value()?;
        let is_text = self.json[from..].starts_with('"');
        let digits = self.json[from..].strip_prefix('-').unwrap_or(&self.json[from..]);
        if is_text {
            return Ok(());
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(
                "has a map with a key that is not a string, symbol or whole number".to_owned()
            );
        }
        self.json.insert(from, '"');
        self.json.push('"');
        if let (Some(b'l'), Some(Some(number))) = (tag, self.objects.last_mut()) {
            // Its own text has no quotes.
            *number = number.start + 1..number.end + 1;
        }
        Ok(())
    }

    /// JSON has no defaults, so Ruby's own leaves them out too.
    fn skip_default(&mut self) -> Result<(), String> {
        let until = self.json.len();
        match self.rest.first() {
            // No object, which a link may name later.
            Some(b'0' | b'T' | b'F' | b'i') => self.value()?,
            _ => return Err("has a map with a default value that is not a plain number".to_owned()),
        }
        self.json.truncate(until);
        Ok(())
    }

    fn link(&mut self) -> Result<(), String> {
        let number = usize::try_from(self.long()?).ok();
        let known = number.and_then(|number| self.objects.get(number));
        let text = known.ok_or("names an object that is not there")?;
        let text = text.clone().ok_or("contains itself")?;
        if self.json.len() + text.len() <= PAYLOAD_BYTES_MAX {
            self.json.extend_from_within(text);
            return Ok(());
        }
        Err(format!("is longer than {PAYLOAD_BYTES_MAX} bytes as JSON"))
    }

    /// Why this is no plain data.
    fn foreign(&mut self, tag: u8) -> String {
        let what = match tag {
            b'o' | b'u' | b'U' | b'S' | b'e' | b'C' => {
                let class = self.symbol().unwrap_or_default();
                return format!(
                    "has an object of class {}: only plain data is read",
                    shown(&class)
                );
            }
            b'/' => "a regular expression",
            b'c' | b'm' | b'M' => "a class",
            b'd' => "an object of a C extension",
            _ => return format!("has an unknown type {}", tag.escape_ascii()),
        };
        format!("has {what}: only plain data is read")
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "has a string that is not UTF-8".to_owned())
}

/// A text without an encoding, as Ruby's binary ones.
fn ascii(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    text.ok_or_else(|| "has a binary string, which JSON cannot hold".to_owned())
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(NAME_CHARS_MAX).collect();
    format!("{:?}", one_line(&cut))
}

/// The decimal digits of a number whose lowest byte is the first.
fn decimal(bytes: &[u8]) -> String {
    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    };
    let mut words: Vec<u32> = bytes.chunks(4).map(word).collect();
    let mut groups = Vec::new();
    while words.iter().any(|word| *word > 0) {
        let mut rest = 0_u64;
        for word in words.iter_mut().rev() {
            let number = (rest << 32) | u64::from(*word);
            *word = u32::try_from(number / DIGITS_BASE).unwrap_or(u32::MAX);
            rest = number % DIGITS_BASE;
        }
        groups.push(rest);
    }
    let Some(first) = groups.pop() else { return "0".to_owned() };
    let mut digits = first.to_string();
    for group in groups.into_iter().rev() {
        digits += &format!("{group:0DIGITS$}");
    }
    digits
}
