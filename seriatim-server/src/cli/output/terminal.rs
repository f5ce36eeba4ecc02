//! Width and colours of stdout.

use std::io::IsTerminal;

/// Assumed width of a terminal that does not report it.
const COLUMNS_DEFAULT: usize = 80;

/// How text output is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// The width; none for files and pipes, which get the full text.
    pub(crate) columns: Option<usize>,
    /// Whether to colour.
    pub(crate) colour: bool,
}

impl Terminal {
    /// That of this process.
    pub(crate) fn of_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self { columns: None, colour: false };
        }
        let size = ratatui::crossterm::terminal::size();
        let columns = size.map_or(COLUMNS_DEFAULT, |(columns, _)| usize::from(columns));
        let columns = if columns == 0 { COLUMNS_DEFAULT } else { columns };
        Self { columns: Some(columns), colour: may_colour() }
    }
}

/// Whether colours are allowed: no `NO_COLOR` (see no-color.org), no dumb terminal.
pub(super) fn may_colour() -> bool {
    let set =
        |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
