//! Integers beyond 64 bits, which the JSON reader hands over as floats.

/// An integer with this many digits may exceed 64 bits.
const DIGITS_MIN: usize = 19;

/// The numbers of a text that the reader hands over as floats, in order. Looked for only if the text has a long integer.
pub(super) struct Numbers<'a> {
    /// What is not looked through yet; `None`: no long integer is in it.
    rest: Option<&'a [u8]>,
}

impl<'a> Numbers<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        Self { rest: has_long_number(text).then_some(text) }
    }

    /// The text of the next float if it is an integer. An error if that is not this value.
    pub(super) fn next_as(&mut self, value: f64) -> Result<Option<&'a [u8]>, ()> {
        if self.rest.is_none() {
            return Ok(None);
        }
        loop {
            let number = std::str::from_utf8(self.next_number().ok_or(())?).map_err(|_| ())?;
            if !is_float(number) {
                continue;
            }
            if number.parse::<f64>().map_err(|_| ())?.to_bits() != value.to_bits() {
                return Err(());
            }
            let is_integer = number != "-0" && !number.contains(['.', 'e', 'E']);
            return Ok(is_integer.then_some(number.as_bytes()));
        }
    }

    /// The next number outside strings.
    fn next_number(&mut self) -> Option<&'a [u8]> {
        let text = self.rest?;
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => at = end_of_string(text, at + 1),
                b'-' | b'0'..=b'9' => {
                    let length = text[at..].iter().take_while(|byte| is_of_number(**byte)).count();
                    self.rest = Some(&text[at + length..]);
                    return Some(&text[at..at + length]);
                }
                _ => at += 1,
            }
        }
        None
    }
}

/// Whether the reader hands it over as a float.
fn is_float(number: &str) -> bool {
    match number.strip_prefix('-') {
        Some("0") => true,
        Some(_) => number.parse::<i64>().is_err(),
        None => number.parse::<u64>().is_err(),
    }
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// The place behind the quote that ends a string.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

fn has_long_number(text: &[u8]) -> bool {
    let mut digits = 0;
    text.iter().any(|byte| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits >= DIGITS_MIN
    })
}
