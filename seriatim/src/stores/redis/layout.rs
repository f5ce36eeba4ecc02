//! The present and earlier numbers of shards of a queue, and where a name may be.
//!
//! Waiting jobs never move to another shard. A name (a key, or the idempotency key of a job without one) goes to its
//! new shard as soon as each of its shards by an older number answers that nothing of it is there. That answer is
//! final, because each older shard has adopted the new number first: from then on it accepts, for such a name, only
//! jobs that join an existing lane. So a script that may create a lane names the version of the layout, and a shard
//! with another version refuses it.

use super::reply::{Fields, Shard, corrupt};
use crate::model::Result;

/// Most older numbers: a push asks one shard of each.
pub(super) const OLDER_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of shards.
    pub shards: u16,
    /// Earlier numbers, oldest first, as long as their shards may have entries.
    pub older: Vec<u16>,
    /// The largest number that the queue ever had: ended jobs stay where they are.
    pub span: u16,
    /// Whether the queue ever had another number.
    pub changed: bool,
    /// A token at least as high as any that a key had in a shard of a forgotten older number.
    pub floor: i64,
}

/// Which jobs a shard on a job's path accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Take {
    /// None; it only recognizes a job that it already has. The path visits the shard again.
    Repeated,
    /// Those that join an existing lane.
    Joining,
    All,
}

impl Take {
    /// The argument for scripts.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::All => "0",
            Self::Joining => "1",
            Self::Repeated => "2",
        }
    }
}

/// One step on a job's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub shard: u16,
    pub take: Take,
}

impl Layout {
    /// Reads the fields `older`, `span` and `floor` of `meta` in the first shard.
    pub(super) fn read(shards: u16, fields: &mut Fields) -> Result<Self> {
        let (older, span, floor) = (fields.opt_text()?, fields.opt_int()?, fields.opt_int()?);
        let numbers = older.as_deref().unwrap_or("").split(',').filter(|text| !text.is_empty());
        let older: Vec<u16> =
            numbers.map(|text| text.parse().map_err(|_| corrupt())).collect::<Result<_>>()?;
        let widest = older.iter().copied().max().unwrap_or(0).max(shards);
        let changed = span.is_some();
        let span = span.map_or(widest, |span| widest.max(span as u16));
        Ok(Self { shards, older, span, changed, floor: floor.unwrap_or(0) })
    }

    pub(super) fn older_text(&self) -> String {
        let numbers: Vec<String> = self.older.iter().map(u16::to_string).collect();
        numbers.join(",")
    }

    /// How many shards may have claimable lanes.
    pub(super) fn open(&self) -> u16 {
        self.older.iter().copied().max().unwrap_or(0).max(self.shards)
    }

    /// The shard of a name by the present number.
    pub(super) fn home(&self, name: &str) -> u16 {
        if self.shards == 1 { 0 } else { part(number_of(name), self.shards) }
    }

    /// The `n`th shard where a name may be: oldest number first, the present shard last.
    ///
    /// A shard that two numbers chose, with another one between them, is visited twice. Its lane may be from either
    /// time, and the shard between may remember an idempotency key from after the first: so on the first visit only
    /// remembered jobs count.
    pub(super) fn step(&self, name: &str, n: usize) -> Option<Step> {
        if self.older.is_empty() {
            let last = Step { shard: self.home(name), take: Take::All };
            return (n == 0).then_some(last);
        }
        let number = number_of(name);
        let mut way: Vec<u16> = self.older.iter().map(|shards| part(number, *shards)).collect();
        way.push(part(number, self.shards));
        way.dedup();
        let shard = *way.get(n)?;
        let take = match &way[n + 1..] {
            [] => Take::All,
            later if later.contains(&shard) => Take::Repeated,
            _ => Take::Joining,
        };
        Some(Step { shard, take })
    }

    /// All shards where a name may be, in this order.
    pub(super) fn way(&self, name: &str) -> Vec<Step> {
        (0..).map_while(|n| self.step(name, n)).collect()
    }

    /// The layout with another number of shards. `None` if it already has that number.
    pub(super) fn with(&self, shards: u16) -> Option<Self> {
        if shards == self.shards {
            return None;
        }
        let mut older = self.older.clone();
        older.push(self.shards);
        let span = self.span.max(shards);
        Some(Self { shards, older, span, changed: true, floor: self.floor })
    }

    pub(super) fn shard(queue: u32, step: Step) -> Shard {
        Shard { queue, shard: step.shard }
    }
}

fn number_of(name: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
    u64::from_be_bytes(first)
}

fn part(number: u64, shards: u16) -> u16 {
    (number % u64::from(shards.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::{Layout, Step, Take};

    #[test]
    fn a_name_is_looked_for_where_each_number_put_it_and_opened_where_the_last_does() {
        let first = Layout { shards: 4, older: vec![], span: 4, changed: false, floor: 0 };
        let now = first.with(16).unwrap().with(3).unwrap();
        assert_eq!((now.older_text().as_str(), now.span, now.open()), ("4,16", 16, 16));
        assert!(now.with(3).is_none());
        for name in (0..200).map(|i| format!("key-{i}")) {
            let way = now.way(&name);
            let last = Step { shard: now.home(&name), take: Take::All };
            assert_eq!(way.last(), Some(&last));
            assert!(way[..way.len() - 1].iter().all(|step| step.take != Take::All));
            let shards: Vec<u16> = way.iter().map(|step| step.shard).collect();
            for number in [4, 16] {
                let was = Layout { shards: number, ..first.clone() }.home(&name);
                assert!(shards.contains(&was), "{name}: {shards:?} has no {was}");
            }
        }
    }
}
