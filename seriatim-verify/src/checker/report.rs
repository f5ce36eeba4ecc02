//! The result of a check.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use seriatim::text::one_line;

/// Most violations kept with their text; the others are only counted.
const KEPT_MAX: usize = 20;

/// One of the judgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// No two concurrent handlers of one key.
    Overlap,
    /// Nothing overtaken.
    Order,
    /// Nothing lost.
    Loss,
    /// Nothing invented.
    Phantom,
    /// Nothing delivered more often than explained.
    Duplicate,
    /// No settle with an old token accepted.
    Fence,
    /// No limit exceeded, and none of a throttled key.
    Limit,
}

impl Judgement {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Overlap,
        Self::Order,
        Self::Loss,
        Self::Phantom,
        Self::Duplicate,
        Self::Fence,
        Self::Limit,
    ];

    /// The plural noun for its violations.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Overlap => "overlaps",
            Self::Order => "inversions",
            Self::Loss => "lost",
            Self::Phantom => "never pushed",
            Self::Duplicate => "unexplained duplicates",
            Self::Fence => "stale settles accepted",
            Self::Limit => "limits exceeded",
        }
    }
}

/// The result of one judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How often it was violated.
    pub violations: u64,
    /// The first violations, as text.
    pub examples: Vec<String>,
    /// Why it could not be judged.
    pub not_judged: Option<String>,
}

/// The result of checking a history.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Pushes that the store acknowledged.
    pub pushes: u64,
    /// How many of them merged into a waiting job.
    pub merged: u64,
    /// How many of them were recognized by their idempotency key.
    pub repeated: u64,
    /// How many of them changed nothing, as their keys were throttled: merged or refused.
    pub throttled: u64,
    /// Pushes that may or may not be stored.
    pub unknown: u64,
    /// Turns delivered to a handler.
    pub turns: u64,
    /// Jobs in them.
    pub deliveries: u64,
    /// Jobs delivered again, by the cause that sent them back.
    pub duplicates: BTreeMap<String, u64>,
    /// Claims taken over from dead or paused nodes.
    pub rescued: u64,
    /// For each turn whose process died: milliseconds until the key's next turn started. In ascending order.
    pub recoveries_ms: Vec<u64>,
    /// Settles refused because the claim had been taken over.
    pub refused: u64,
    /// Incomplete lines of the history.
    pub torn_lines: u64,
    /// The judgements.
    pub verdicts: BTreeMap<Judgement, Verdict>,
}

impl Report {
    /// Whether everything could be judged and nothing was violated.
    pub fn is_clean(&self) -> bool {
        Judgement::ALL.iter().all(|judgement| {
            let verdict = self.verdicts.get(judgement);
            verdict.is_some_and(|v| v.violations == 0 && v.not_judged.is_none())
        })
    }

    /// Whether nothing was violated, ignoring judgements that could not be made.
    pub fn is_unbroken(&self) -> bool {
        self.verdicts.values().all(|verdict| verdict.violations == 0)
    }

    /// The number of violations of one judgement.
    pub fn violations(&self, judgement: Judgement) -> u64 {
        self.verdicts.get(&judgement).map_or(0, |verdict| verdict.violations)
    }

    /// This part of the recoveries took at most this many milliseconds; 0 if there were none.
    pub fn recovery_ms(&self, part: f64) -> u64 {
        let last = self.recoveries_ms.len().saturating_sub(1);
        let place = (last as f64 * part).round() as usize;
        self.recoveries_ms.get(place).copied().unwrap_or(0)
    }

    pub(super) fn violate(&mut self, judgement: Judgement, what: impl FnOnce() -> String) {
        let verdict = self.verdicts.entry(judgement).or_default();
        verdict.violations += 1;
        if verdict.examples.len() < KEPT_MAX {
            // It quotes keys and other text from the history.
            verdict.examples.push(one_line(&what()));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pushed = format!("{} merged, {} repeated", self.merged, self.repeated);
        if self.throttled > 0 {
            pushed = format!("{pushed}, {} throttled", self.throttled);
        }
        writeln!(
            f,
            "pushes acknowledged      {:>9}   ({pushed}; {} unknown)",
            self.pushes, self.unknown
        )?;
        writeln!(f, "deliveries               {:>9}   (in {} turns)", self.deliveries, self.turns)?;
        let again: u64 = self.duplicates.values().sum();
        let causes: Vec<String> = self
            .duplicates
            .iter()
            .map(|(cause, count)| format!("{count} after {}", one_line(cause)))
            .collect();
        let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
        writeln!(f, "delivered again          {again:>9}   ({causes})")?;
        writeln!(
            f,
            "claims taken over        {:>9}   ({} late settles refused)",
            self.rescued, self.refused
        )?;
        writeln!(
            f,
            "recoveries               {:>9}   (from death to the key's next turn: median {} ms, 99 % within {} ms)",
            self.recoveries_ms.len(),
            self.recovery_ms(0.5),
            self.recovery_ms(0.99)
        )?;
        for judgement in Judgement::ALL {
            let verdict = self.verdicts.get(&judgement).cloned().unwrap_or_default();
            let mark = match &verdict.not_judged {
                Some(why) => format!("not judged: {why}"),
                None if verdict.violations == 0 => "ok".to_owned(),
                None => "VIOLATED".to_owned(),
            };
            writeln!(f, "{:<24} {:>9}   {mark}", judgement.noun(), verdict.violations)?;
            for example in &verdict.examples {
                writeln!(f, "    {example}")?;
            }
        }
        Ok(())
    }
}
