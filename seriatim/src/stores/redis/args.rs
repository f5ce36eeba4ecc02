//! The arguments of scripts.

use std::time::Duration;

use crate::contract::{Claim, Lease};
use crate::model::Timestamp;
use crate::model::limits::{SERIES_JOBS_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};

/// The arguments of a script.
#[derive(Clone, Default)]
pub(super) struct Args(pub Vec<Vec<u8>>);

impl Args {
    /// Starts with a time; empty means the server's clock.
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

    /// `None` is the empty text.
    pub(super) fn name(&mut self, name: Option<&str>) -> &mut Self {
        self.text(name.unwrap_or(""))
    }

    /// `None` is `-`; a text, which may be empty, gets the prefix `+`.
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

    /// A time, limited to the range that every store represents exactly.
    pub(super) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.int(time.clamp(Timestamp::default(), Timestamp::MAX).as_micros())
    }

    pub(super) fn micros(&mut self, length: Duration) -> &mut Self {
        self.int(micros(length))
    }
}

/// A duration in whole microseconds, at most 2^53 - 1, which every store represents exactly.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min((1 << 53) - 1)
}

/// Who claims and how much a turn may have: `T.begin` of `turns.lua`.
pub(super) fn turn_args(args: &mut Args, request: &Claim, lease_max: Duration) {
    args.text(&request.node.0);
    args.text(match request.lease {
        Lease::Node { .. } => "node",
        Lease::Own { .. } => "own",
    });
    args.micros(request.lease.ttl()).int(TURN_JOBS_MAX as i64).int(TURN_BYTES_MAX as i64);
    args.micros(lease_max).int(request.series_max.min(SERIES_JOBS_MAX));
}

/// The routes that the caller may take besides unbound jobs: node, NUL, group.
pub(super) fn routes(args: &mut Args, request: &Claim) {
    let name = request.node_name.as_deref();
    args.0.extend(name.map(|name| format!("{name}\0").into_bytes()));
    for group in &request.groups {
        args.text(&format!("\0{group}"));
        args.0.extend(name.map(|name| format!("{name}\0{group}").into_bytes()));
    }
}
