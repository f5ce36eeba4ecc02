//! Aligned tables.

use std::fmt::{self, Display, Write};

use super::Terminal;
use crate::base::text::{columns, cut, one_line};

/// Least width of a cut column.
const CUT_COLUMNS_MIN: usize = 8;
const GAP: &str = "  ";

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// Right-aligned.
    Number,
    /// Never cut: names to copy.
    Name,
    /// Cut when the terminal is too narrow.
    Text,
}

/// The meaning of a cell, shown as colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Warn,
    Bad,
    Faint,
}

pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    pub(crate) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: one_line(text.as_ref()), tone }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A table with a head, and a row for each of some things.
pub(crate) struct Table<'a, T> {
    of: &'a [T],
    heads: Vec<(&'static str, Column)>,
    rows: Vec<Vec<Cell>>,
    none: String,
}

impl<'a, T> Table<'a, T> {
    /// Without columns yet.
    pub(crate) fn of(of: &'a [T]) -> Self {
        let rows = of.iter().map(|_| Vec::new()).collect();
        Self { of, heads: Vec::new(), rows, none: String::new() }
    }

    /// The text if there are no rows.
    pub(crate) fn or(self, none: impl Into<String>) -> Self {
        Self { none: none.into(), ..self }
    }

    fn column(mut self, head: &'static str, column: Column, cell: impl Fn(&'a T) -> Cell) -> Self {
        self.heads.push((head, column));
        for (row, one) in self.rows.iter_mut().zip(self.of) {
            row.push(cell(one));
        }
        self
    }

    pub(crate) fn name<C: Into<Cell>>(self, head: &'static str, cell: impl Fn(&'a T) -> C) -> Self {
        self.column(head, Column::Name, |one| cell(one).into())
    }

    pub(crate) fn text<C: Into<Cell>>(self, head: &'static str, cell: impl Fn(&'a T) -> C) -> Self {
        self.column(head, Column::Text, |one| cell(one).into())
    }

    /// Of errors, where there are some.
    pub(crate) fn error<C: AsRef<str>>(
        self,
        head: &'static str,
        error: impl Fn(&'a T) -> Option<C>,
    ) -> Self {
        let cell = |error: C| Cell::toned(error, Tone::Bad);
        self.text(head, |one| error(one).map_or_else(|| "".into(), cell))
    }

    pub(crate) fn number<N: Display>(
        self,
        head: &'static str,
        number: impl Fn(&'a T) -> N,
    ) -> Self {
        self.figure(head, |one| number(one).to_string().into())
    }

    /// Of numbers that are bad unless they are 0.
    pub(crate) fn trouble(
        self,
        head: &'static str,
        tone: Tone,
        number: impl Fn(&'a T) -> u64,
    ) -> Self {
        self.figure(head, |one| match number(one) {
            0 => Cell::toned("0", Tone::Faint),
            number => Cell::toned(number.to_string(), tone),
        })
    }

    /// Of numbers with tones of their own.
    pub(crate) fn figure(self, head: &'static str, cell: impl Fn(&'a T) -> Cell) -> Self {
        self.column(head, Column::Number, cell)
    }

    /// The whole table, without a last newline.
    pub(crate) fn render(&self, terminal: Terminal) -> String {
        if self.rows.is_empty() && !self.none.is_empty() {
            return self.none.clone();
        }
        let widths = self.widths(terminal.columns);
        let mut text = String::new();
        let heads: Vec<Cell> =
            self.heads.iter().map(|(name, _)| Cell::toned(name, Tone::Faint)).collect();
        for cells in std::iter::once(&heads).chain(&self.rows) {
            if !text.is_empty() {
                text.push('\n');
            }
            self.line(&mut text, cells, &widths, terminal.colour);
        }
        text
    }

    fn line(&self, text: &mut String, cells: &[Cell], widths: &[usize], colour: bool) {
        let start = text.len();
        for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let shown = cut(&cell.text, *width);
            let blank = " ".repeat(width - columns(&shown));
            let shown = if colour { coloured(&shown, cell.tone) } else { shown };
            let gap = if i == 0 { "" } else { GAP };
            let _ = match self.heads[i].1 {
                Column::Number => write!(text, "{gap}{blank}{shown}"),
                Column::Name | Column::Text => write!(text, "{gap}{shown}{blank}"),
            };
        }
        text.truncate(start + text[start..].trim_end().len());
    }

    /// The width of each column; on a narrow terminal the widest texts are cut.
    fn widths(&self, columns_max: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heads.iter().map(|(name, _)| columns(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(&cell.text));
            }
        }
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let Some(room) = columns_max.map(|most| most.saturating_sub(gaps)) else { return widths };
        while widths.iter().sum::<usize>() > room {
            let over = widths.iter().sum::<usize>() - room;
            let texts = (0..widths.len()).filter(|i| self.heads[*i].1 == Column::Text);
            let Some(widest) = texts.max_by_key(|i| widths[*i]) else { break };
            let next = (0..widths.len())
                .filter(|i| *i != widest && self.heads[*i].1 == Column::Text)
                .map(|i| widths[i])
                .max();
            // Down to the next widest, or as far as is needed.
            let target =
                next.unwrap_or(0).min(widths[widest] - 1).max(widths[widest].saturating_sub(over));
            let target = target.max(CUT_COLUMNS_MIN);
            if target >= widths[widest] {
                break;
            }
            widths[widest] = target;
        }
        widths
    }
}

/// As the terminal of this process shows it.
impl<T> Display for Table<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Terminal::of_stdout()))
    }
}

/// The text in its tone's colour.
pub(crate) fn coloured(text: &str, tone: Tone) -> String {
    let code = match tone {
        _ if text.is_empty() => return String::new(),
        Tone::Plain => return text.to_owned(),
        Tone::Warn => "33",
        Tone::Bad => "31",
        Tone::Faint => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (&'static str, u64, &'static str, Option<&'static str>);

    const ROWS: [Row; 2] =
        [("orders", 12, "k", Some("it\nfailed")), ("q", 3, "a longer key", None)];

    fn table() -> Table<'static, Row> {
        Table::of(&ROWS)
            .name("queue", |row| row.0)
            .number("jobs", |row| row.1)
            .text("key", |row| row.2)
            .error("error", |row| row.3)
    }

    #[test]
    fn columns_are_aligned() {
        let text = table().render(Terminal { columns: None, colour: false });
        assert_eq!(
            text,
            "queue   jobs  key           error\n\
             orders    12  k             it\\nfailed\n\
             q          3  a longer key"
        );
    }

    #[test]
    fn the_widest_texts_give_way_and_names_never_do() {
        let text = table().render(Terminal { columns: Some(34), colour: false });
        assert!(text.lines().all(|line| columns(line) <= 34), "{text}");
        assert!(text.contains("orders    12  k          it\\nfail…"), "{text}");
        let narrow = table().render(Terminal { columns: Some(5), colour: false });
        assert!(narrow.contains("orders"), "{narrow}");
    }

    #[test]
    fn colour_is_outside_of_the_alignment() {
        let text = table().render(Terminal { columns: None, colour: true });
        assert!(text.contains("\u{1b}[31mit\\nfailed\u{1b}[0m"), "{text}");
        assert!(
            text.contains("\n\u{1b}[2m") || text.starts_with("\u{1b}[2mqueue\u{1b}[0m"),
            "{text}"
        );
    }
}
