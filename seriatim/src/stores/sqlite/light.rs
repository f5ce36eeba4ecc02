//! Light claims: the claim's row alone holds a lane, whose own row stays as it was when the lane was ready.
//!
//! A lane is claimed lightly if its row says "ready", it is not in `ready`, and a claim above its token names it. Push,
//! claim and the settle of done turns know this form. Every other operation loads the lane with [`Tx::lane`], which
//! writes the claim into the lane's row first: it *unfolds* the claim.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use rusqlite::params;

use super::lane::Work;
use super::row::{TAKEN, flag, state};
use super::tx::Tx;
use crate::model::{Mode, Result};

/// The lanes of a claim, as stored: JSON with a space on both sides of each id, so that a text search finds one.
pub(super) fn lanes_text(lanes: &[i64]) -> String {
    let mut text = String::with_capacity(2 + lanes.len() * 10);
    for id in lanes {
        let between = if text.is_empty() { "[ " } else { " , " };
        text.push_str(between);
        text.push_str(&id.to_string());
    }
    text.push_str(if text.is_empty() { "[]" } else { " ]" });
    text
}

/// The lanes of a stored claim.
pub(super) fn lanes_in(text: &str) -> impl Iterator<Item = i64> {
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok())
}

/// The lanes of the claims that a settle ends.
#[derive(Default)]
pub(super) struct Named {
    claims: BTreeMap<i64, (i64, HashSet<i64>)>,
}

impl Named {
    /// When the claim was made, if it names the lane.
    pub(super) fn made_at(&mut self, tx: &Tx<'_>, token: i64, lane: i64) -> Result<Option<i64>> {
        let (at, lanes) = match self.claims.entry(token) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let sql = "SELECT at, lanes FROM claim WHERE tok = ?1 AND until IS NULL";
                let found = tx.first(sql, [token], |row| {
                    let lanes = lanes_in(row.get_ref(1)?.as_str()?).collect();
                    Ok((row.get(0)?, lanes))
                })?;
                unknown.insert(found.unwrap_or_default())
            }
        };
        Ok(lanes.contains(&lane).then_some(*at))
    }
}

impl Tx<'_> {
    /// Shows a lane that is claimed lightly as claimed, without writing it. Such a lane is not in `ready`, although
    /// its row says so.
    pub(super) fn show_light(&self, work: &mut Work) -> Result<()> {
        let mode = work.definition().mode;
        let row = &mut work.row;
        let sql = "SELECT tok, at FROM claim
                   WHERE q = ?1 AND tok > ?2 AND until IS NULL AND instr(lanes, ?3) > 0";
        let values = params![row.head.queue, row.head.token, format!(" {} ", row.head.id)];
        let claim = self.first(sql, values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((token, at)) = claim else { return Ok(()) };
        let head = &mut row.head;
        (head.st, head.token, head.wake) = (state::CLAIMED, token, None);
        (head.claimed_at, head.beat_at) = (Some(at), Some(at));
        match (mode, &mut row.slot) {
            (Mode::Accumulate, _) => {
                (head.open, head.next_due) = (token, None);
                head.flags |= if head.items > 0 { flag::CLOSED_ITEMS } else { 0 };
            }
            (_, Some(slot)) => slot.gen_ = TAKEN,
            (_, None) => {}
        }
        work.is_light = true;
        Ok(())
    }

    /// Writes the light claim of a lane into the lane's row.
    pub(super) fn unfold(&self, work: &mut Work) -> Result<()> {
        let head = &work.row.head;
        if std::mem::take(&mut work.is_light)
            && let Some(at) = head.claimed_at
        {
            self.unfold_lanes(work.definition().mode, (head.token, at), &lanes_text(&[head.id]))?;
        }
        Ok(())
    }

    /// Writes a claim (its token, when it was made) into the rows of those of its lanes that it holds lightly.
    pub(super) fn unfold_lanes(
        &self,
        mode: Mode,
        (token, at): (i64, i64),
        lanes: &str,
    ) -> Result<()> {
        let sql = match mode {
            Mode::Accumulate => include_str!("sql/unfold_lanes.sql"),
            _ => include_str!("sql/unfold_slots.sql"),
        };
        self.execute(sql, params![token, at, lanes]).map(drop)
    }
}
