//! The figures of queues. Each operation adds a row with what it changed, so that no operation waits for another one's;
//! the rows are folded into one for each queue, in the background and by the sweep.

use std::collections::BTreeMap;

use super::error::Try;
use super::lane_row::{LaneRow, st};
use super::sql::{Columns, delete};
use super::work::Work;

/// Rows folded in one step.
const FOLD_ROWS: usize = 5_000;

const COLUMNS: &str = "lanes, jobs, claimed, retrying, dead, processed, failed";
const FIGURES: usize = 7;

/// A column, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    Lanes,
    Jobs,
    Claimed,
    Retrying,
    Dead,
    Processed,
    Failed,
}

/// Figures by queue, or changes of them.
#[derive(Debug, Default)]
pub(super) struct Figures(BTreeMap<u32, [i64; FIGURES]>);

impl Figures {
    pub(super) fn add(&mut self, queue: u32, figure: Figure, count: i64) {
        self.0.entry(queue).or_default()[figure as usize] += count;
    }

    /// Adds a lane, `times` times.
    pub(super) fn add_lane(&mut self, row: &LaneRow, times: i64) {
        self.add(row.q, Figure::Lanes, times);
        self.add(row.q, Figure::Jobs, (row.n + row.c) * times);
        self.add(row.q, Figure::Claimed, i64::from(row.st == st::CLAIMED) * times);
        self.add(row.q, Figure::Retrying, i64::from(row.retry >= 0) * times);
    }

    pub(super) fn get(&self, queue: u32, figure: Figure) -> u64 {
        let value = self.0.get(&queue).map_or(0, |figures| figures[figure as usize]);
        value.max(0) as u64
    }

    /// Reads rows of a queue and its figures.
    fn read(&mut self, row: &mut Columns) -> Try<()> {
        let figures = self.0.entry(row.int()? as u32).or_default();
        for figure in figures {
            *figure += row.int()?;
        }
        Ok(())
    }

    /// Rows of a queue and its figures, without those that change nothing.
    fn values(&self) -> Option<String> {
        let changes = self.0.iter().filter(|(_, figures)| **figures != [0; FIGURES]);
        let row = |(queue, figures): (&u32, &[i64; FIGURES])| {
            let figures = figures.map(|figure| figure.to_string()).join(",");
            format!("({queue},{figures})")
        };
        let rows: Vec<String> = changes.map(row).collect();
        (!rows.is_empty()).then(|| rows.join(","))
    }
}

impl Work<'_> {
    /// Adds a row for each queue of which figures changed.
    pub(super) async fn write_figures(&mut self, changes: &Figures) -> Try<()> {
        let Some(values) = changes.values() else { return Ok(()) };
        self.write(&format!("INSERT INTO seriatim_delta (q, {COLUMNS}) VALUES {values}")).await
    }

    /// The figures of all queues. One statement, so that it sees each change once, folded or not.
    pub(super) async fn figures(&mut self) -> Try<Figures> {
        let each = COLUMNS.split(", ").map(|name| format!("SUM({name})")).collect::<Vec<_>>();
        let sql = format!(
            "SELECT q, {} FROM (SELECT q, {COLUMNS} FROM seriatim_tally UNION ALL \
             SELECT q, {COLUMNS} FROM seriatim_delta) f GROUP BY q",
            each.join(", ")
        );
        let mut figures = Figures::default();
        for row in self.rows(&sql).await? {
            figures.read(&mut Columns::of(row))?;
        }
        Ok(figures)
    }

    /// Folds some rows; those of open transactions stay. Returns whether there may be more.
    pub(super) async fn fold_figures(&mut self) -> Try<bool> {
        let sql = format!(
            "SELECT n, q, {COLUMNS} FROM seriatim_delta ORDER BY n LIMIT {FOLD_ROWS} FOR UPDATE SKIP LOCKED"
        );
        let (mut folded, mut figures) = (Vec::new(), Figures::default());
        for row in self.rows(&sql).await? {
            let mut row = Columns::of(row);
            folded.push(row.int()? as u64);
            figures.read(&mut row)?;
        }
        if !folded.is_empty() {
            self.write(&delete("seriatim_delta", "n", &folded, "")).await?;
        }
        if let Some(values) = figures.values() {
            let add: Vec<String> = COLUMNS
                .split(", ")
                .map(|name| format!("{name} = {name} + VALUES({name})"))
                .collect();
            let sql = format!(
                "INSERT INTO seriatim_tally (q, {COLUMNS}) VALUES {values} ON DUPLICATE KEY UPDATE {}",
                add.join(", ")
            );
            self.write(&sql).await?;
        }
        Ok(folded.len() == FOLD_ROWS)
    }
}
