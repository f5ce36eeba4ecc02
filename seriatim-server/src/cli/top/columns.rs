//! The columns of a table: which of them a screen has room for, and how wide they are.

use crate::base::text::{columns, one_line};
use crate::cli::output::Tone;

/// Screens from this width on have all of the usual columns.
pub(super) const WIDE: u16 = 80;
/// Wider ones have room for more.
pub(super) const WIDEST: u16 = 120;
/// To what a column is cut at most where the screen is too narrow.
const LEAST: u16 = 8;
/// Widths of long columns are multiples of this, so that they rarely change from frame to frame.
const STEP: u16 = 8;

#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// The least width of a screen that shows it.
    from: u16,
    pub(super) is_number: bool,
    /// Whether it may be cut.
    is_long: bool,
}

/// What stands in a cell.
pub(super) type Text = (String, Tone);

impl Column {
    /// A word, shown in full.
    pub(super) const fn word(head: &'static str) -> Self {
        Self { head, from: 0, is_number: false, is_long: false }
    }

    /// A number, at the right edge.
    pub(super) const fn number(head: &'static str) -> Self {
        Self { is_number: true, ..Self::word(head) }
    }

    /// A name or text of any length.
    pub(super) const fn long(head: &'static str) -> Self {
        Self { is_long: true, ..Self::word(head) }
    }

    pub(super) const fn from(self, from: u16) -> Self {
        Self { from, ..self }
    }

    pub(super) fn is_on(&self, screen: u16) -> bool {
        screen >= self.from
    }

    /// What it takes if there is room.
    fn wanted(&self, screen: u16, texts: impl Iterator<Item = usize>) -> u16 {
        let head = columns(self.head);
        let widest = texts.max().unwrap_or(0).max(head).min(usize::from(screen));
        let widest = u16::try_from(widest).unwrap_or(screen);
        if self.is_long { widest.next_multiple_of(STEP) } else { widest }
    }
}

/// The widths of those columns that the screen shows: as their texts need, so that numbers stand near names. Where that is too
/// much, the longest one that may be cut gives way.
pub(super) fn widths(screen: u16, all: &[Column], rows: &[Vec<Text>]) -> Vec<u16> {
    let shown = all.iter().enumerate().filter(|(_, column)| column.is_on(screen));
    let wanted = shown.map(|(at, column)| {
        let texts = rows.iter().filter_map(|row| row.get(at));
        let widths = texts.map(|(text, _)| columns(&one_line(text)));
        (column.is_long, column.wanted(screen, widths))
    });
    let mut wanted: Vec<(bool, u16)> = wanted.collect();
    let gaps = wanted.len().saturating_sub(1) as u16;
    loop {
        let sum: u16 = wanted.iter().map(|(_, width)| width).sum();
        let over = (sum + gaps).saturating_sub(screen);
        let can_give = |(is_long, width): &&mut (bool, u16)| *is_long && *width > LEAST;
        match wanted.iter_mut().filter(can_give).max_by_key(|(_, width)| *width) {
            Some((_, width)) if over > 0 => *width -= 1,
            _ => return wanted.into_iter().map(|(_, width)| width).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Column; 3] =
        [Column::long("key"), Column::number("jobs"), Column::long("error").from(WIDE)];

    fn row(key: usize, jobs: &str, error: usize) -> Vec<Text> {
        [&*"k".repeat(key), jobs, &*"e".repeat(error)]
            .map(|text| (text.to_owned(), Tone::Plain))
            .into()
    }

    #[test]
    fn columns_are_as_wide_as_their_texts_and_long_ones_give_way() {
        assert_eq!(widths(200, &ALL, &[row(5, "7", 20), row(9, "1234567", 1)]), [16, 7, 24]);
        assert_eq!(widths(60, &ALL, &[row(90, "7", 20)]), [55, 4]);
        assert_eq!(widths(80, &ALL, &[row(500, "7", 500)]), [37, 4, 37]);
        assert_eq!(widths(10, &ALL, &[row(50, "12345678", 1)]), [8, 8], "numbers are never cut");
    }
}
