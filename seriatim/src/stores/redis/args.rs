//! What scripts are called with.

use std::time::Duration;

use crate::model::clock::Timestamp;

/// What a script is called with.
#[derive(Clone, Default)]
pub(super) struct Args(pub Vec<Vec<u8>>);

impl Args {
    /// Begins with a time; empty is the server's own.
    pub(super) fn at(now: Option<Timestamp>) -> Self {
        let mut args = Self::default();
        args.now(now);
        args
    }

    pub(super) fn now(&mut self, now: Option<Timestamp>) -> &mut Self {
        match now {
            Some(now) => self.time(now),
            None => self.text(""),
        }
    }

    pub(super) fn bytes(&mut self, bytes: impl Into<Vec<u8>>) -> &mut Self {
        self.0.push(bytes.into());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text)
    }

    /// Nothing is the empty text.
    pub(super) fn name(&mut self, name: Option<&str>) -> &mut Self {
        self.text(name.unwrap_or(""))
    }

    /// `-` for nothing, `+` in front of a text, which may be empty.
    pub(super) fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.bytes(format!("+{text}")),
            None => self.text("-"),
        }
    }

    pub(super) fn int(&mut self, number: impl Into<i128>) -> &mut Self {
        self.bytes(number.into().to_string())
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.text(if flag { "1" } else { "0" })
    }

    /// A time in the range that every store keeps exactly.
    pub(super) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.int(time.clamp(Timestamp::default(), Timestamp::MAX).as_micros())
    }

    pub(super) fn micros(&mut self, length: Duration) -> &mut Self {
        self.int(micros(length))
    }
}

/// A length in whole microseconds, at most what every store keeps exactly.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min((1 << 53) - 1)
}
