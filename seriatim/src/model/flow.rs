//! Limits of queues and groups: turns at once, turns per time. And the shares of groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::job::validate_text;
use crate::model::limits::{GROUPS_NAMED_MAX, NAME_BYTES_MAX, RUNNING_LIMIT_MAX, WEIGHT_MAX};
use crate::model::rate::Rate;

/// By default, as many turns may start at once as the rate allows in this part of a second: a claim that comes a little
/// late loses nothing.
const BURSTS_PER_SECOND: u32 = 10;

/// How many turns may run at once, and how many may start per second, minute or hour, on all nodes together. A turn is
/// one call of the handler for one key, or for one job without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limit {
    /// Most turns at once, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// How many turns may start per second, minute or hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many turns may start at once after a pause, 1 to 1,000,000; needs a `rate`. Default: what the rate allows in
    /// a tenth of a second, at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// The share of a group: its weight beside other groups, and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Share {
    /// How many turns it gets for one turn of a group with weight 1; 1 to 1,000. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Its limit.
    #[serde(flatten)]
    pub limit: Limit,
}

/// The groups of a queue, such as its tenants: they take turns, however many jobs each has waiting.
///
/// ```
/// use seriatim::{Groups, Queue, Rate, Share};
/// let groups = Groups::each(Share::default().running(2)).named("acme", Share::default().weight(3));
/// let mails = Queue::fifo("mails").groups(groups).rate(Rate::per_second(100));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Groups {
    /// The share of each group. Jobs without a group form a group too.
    #[serde(flatten)]
    pub each: Share,
    /// The shares of single groups instead; unset values are those of `each`. At most 1,000.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, Share>,
}

impl Limit {
    /// Whether it limits anything.
    pub fn is_set(&self) -> bool {
        self.running.is_some() || self.rate.is_some()
    }

    /// This limit, and what it leaves unset as in `base`. A burst belongs to its rate.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let burst = if self.rate.is_some() { self.burst } else { self.burst.or(base.burst) };
        Self { running: self.running.or(base.running), rate: self.rate.or(base.rate), burst }
    }

    /// How many turns may start at once after a pause.
    pub fn burst(&self) -> u32 {
        let tenth =
            |rate: Rate| rate.count_in(std::time::Duration::from_secs(1) / BURSTS_PER_SECOND);
        self.burst.unwrap_or_else(|| self.rate.map_or(1, |rate| tenth(rate) as u32))
    }

    /// Refuses a contradictory limit; the error names the field.
    pub(crate) fn validate(&self) -> Result<()> {
        for (field, value) in [("running", self.running), ("burst", self.burst)] {
            if value.is_some_and(|value| !(1..=RUNNING_LIMIT_MAX).contains(&value)) {
                return Err(Error::invalid(field, format!("must be 1 to {RUNNING_LIMIT_MAX}")));
            }
        }
        if self.burst.is_some() && self.rate.is_none() {
            return Err(Error::invalid(
                "burst",
                "needs a rate: it is how many turns may start at once after a pause",
            ));
        }
        self.rate.map_or(Ok(()), Rate::validate)
    }
}

impl Share {
    /// Sets the weight, 1 to 1,000.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Sets the most turns at once, 1 to 1,000,000.
    #[must_use]
    pub fn running(mut self, turns: u32) -> Self {
        self.limit.running = Some(turns);
        self
    }

    /// Sets how many turns may start per second, minute or hour.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limit.rate = Some(rate);
        self
    }

    /// Sets how many turns may start at once after a pause, 1 to 1,000,000; needs a rate.
    #[must_use]
    pub fn burst(mut self, turns: u32) -> Self {
        self.limit.burst = Some(turns);
        self
    }

    fn over(self, each: Self) -> Self {
        Self { weight: self.weight.or(each.weight), limit: self.limit.over(each.limit) }
    }

    fn validate(&self) -> Result<()> {
        if self.weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
            return Err(Error::invalid("weight", format!("must be 1 to {WEIGHT_MAX}")));
        }
        self.limit.validate()
    }
}

impl Groups {
    /// Groups that each get this share.
    pub fn each(share: Share) -> Self {
        Self { each: share, named: BTreeMap::new() }
    }

    /// Sets the share of one group; unset values are those of `each`.
    #[must_use]
    pub fn named(mut self, group: impl Into<String>, share: Share) -> Self {
        self.named.insert(group.into(), share);
        self
    }

    /// The share of this group.
    pub fn share(&self, group: Option<&str>) -> Share {
        let own = group.and_then(|group| self.named.get(group));
        own.map_or(self.each, |own| own.over(self.each))
    }

    /// Refuses contradictory settings; the error names the field.
    pub(crate) fn validate(&self) -> Result<()> {
        self.each.validate().map_err(|e| e.in_field("groups"))?;
        if self.named.len() > GROUPS_NAMED_MAX {
            let message = format!(
                "has {} groups; at most {GROUPS_NAMED_MAX} may have settings",
                self.named.len()
            );
            return Err(Error::invalid("groups.named", message));
        }
        for (name, share) in &self.named {
            validate_text("groups.named", name, NAME_BYTES_MAX)?;
            let checked = share.over(self.each).validate();
            checked.map_err(|e| e.in_field(format!("groups.named.{name}")))?;
        }
        Ok(())
    }
}

/// The number of a group in the stores: 42 bits of a hash of its name. 0: no group. Two groups with the same number, of
/// which there is a pair among 100,000 groups with a probability of 0.1 %, would share one share.
pub(crate) fn group_number(group: Option<&str>) -> u64 {
    const BITS: u32 = 42;
    let Some(group) = group else { return 0 };
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(group.as_bytes()).as_bytes()[..8]);
    (u64::from_le_bytes(first) >> (u64::BITS - BITS)).max(1)
}

/// How much of its limit a queue or group uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Turns that run.
    pub running: u32,
    /// When all turns that started would have started at the pace of the rate, in nanoseconds since 1970.
    pub paced: i64,
}

/// Why no turn may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// As many turns run as may: one must end.
    Running,
    /// The rate: the next may start then.
    Until(Timestamp),
}

impl Usage {
    /// How many turns may start now.
    pub(crate) fn free(&self, limit: &Limit, now: Timestamp) -> std::result::Result<usize, Spent> {
        let running = limit.running.map_or(u32::MAX, |most| most.saturating_sub(self.running));
        if running == 0 {
            return Err(Spent::Running);
        }
        let Some(rate) = limit.rate else { return Ok(running as usize) };
        let (interval, now) = (rate.interval(), nanos(now));
        let ahead = self.paced.max(now) - now;
        let room = i64::from(limit.burst()).saturating_mul(interval) - ahead;
        if room < interval {
            let wait = now.saturating_add(interval - room);
            return Err(Spent::Until(Timestamp::from_micros(
                wait / 1_000 + i64::from(wait % 1_000 > 0),
            )));
        }
        Ok((running as usize).min((room / interval) as usize))
    }

    pub(crate) fn start(&mut self, limit: &Limit, now: Timestamp, turns: usize) {
        self.running += turns as u32;
        if let Some(rate) = limit.rate {
            let length = rate.interval().saturating_mul(turns as i64);
            self.paced = self.paced.max(nanos(now)).saturating_add(length);
        }
    }
}

fn nanos(time: Timestamp) -> i64 {
    time.as_micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(1_000 * SECOND + micros)
    }

    #[test]
    fn a_rate_lets_turns_start_at_its_pace_after_a_burst() {
        let limit = Limit { rate: Some(Rate::per_second(10)), burst: Some(3), running: None };
        let mut usage = Usage::default();
        assert_eq!(usage.free(&limit, at(0)), Ok(3));
        usage.start(&limit, at(0), 3);
        assert_eq!(usage.free(&limit, at(0)), Err(Spent::Until(at(SECOND / 10))));
        assert_eq!(usage.free(&limit, at(SECOND / 10)), Ok(1));
        usage.start(&limit, at(SECOND / 10), 1);
        assert_eq!(usage.free(&limit, at(SECOND / 10 + 1)), Err(Spent::Until(at(SECOND / 5))));
        assert_eq!(usage.free(&limit, at(10 * SECOND)), Ok(3));
    }

    #[test]
    fn a_claim_that_comes_a_little_late_keeps_the_rate() {
        let limit = Limit { rate: Some(Rate::per_second(500)), ..Limit::default() };
        let (mut usage, mut started) = (Usage::default(), 0);
        for step in 0..200 {
            let now = at(step * 50_000 + step % 7 * 3_000);
            if let Ok(free) = usage.free(&limit, now) {
                usage.start(&limit, now, free);
                started += free;
            }
        }
        assert!((4_975..=5_050).contains(&started), "{started} in ten seconds");
    }

    #[test]
    fn no_turn_starts_while_as_many_run_as_may() {
        let limit = Limit { running: Some(2), ..Limit::default() };
        let mut usage = Usage::default();
        usage.start(&limit, at(0), 2);
        assert_eq!(usage.free(&limit, at(0)), Err(Spent::Running));
        usage.running -= 1;
        assert_eq!(usage.free(&limit, at(0)), Ok(1));
    }

    #[test]
    fn a_named_group_has_what_each_has_unless_it_says_otherwise() {
        let groups = Groups::each(Share::default().running(2).rate(Rate::per_second(5)).burst(3))
            .named("acme", Share::default().weight(3).rate(Rate::per_minute(1)));
        assert_eq!(groups.share(Some("other")), groups.each);
        let acme = groups.share(Some("acme"));
        assert_eq!((acme.weight, acme.limit.running, acme.limit.burst()), (Some(3), Some(2), 1));
        groups.validate().unwrap();
    }

    #[test]
    fn group_numbers_differ_and_leave_room_for_a_route() {
        let numbers: std::collections::BTreeSet<u64> =
            (0..10_000).map(|i| group_number(Some(&format!("tenant-{i}")))).collect();
        assert_eq!(numbers.len(), 10_000);
        assert!(numbers.iter().all(|number| *number < 1 << 42));
        assert_eq!(group_number(None), 0);
    }
}
