//! `seriatim top`: a dashboard in the terminal.

mod actions;
mod columns;
mod detail;
mod draw;
mod filter;
mod sample;
mod screen;
mod state;

use std::io::IsTerminal;

use clap::Args;
use ratatui::Terminal as Screen;
use ratatui::backend::TestBackend;

use super::args::Common;
use super::deed::Book;
use crate::cli::output::{Failure, Result, Terminal, say, say_json};
use sample::Sample;
use state::State;

/// The size of a frame without a terminal.
const FRAME: (u16, u16) = (80, 24);

#[derive(Args)]
pub(crate) struct Top {
    /// Print one frame and exit; with --json, its data
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

impl Top {
    pub(crate) async fn run(self) -> Result<()> {
        let shown = self.common.store.shown()?;
        if self.common.json && !self.once {
            return Err(Failure::usage("--json needs --once"));
        }
        let interactive = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if !self.once && !interactive {
            return Err(Failure::usage("top needs a terminal: use --once to print one frame"));
        }
        let (once, json) = (self.once, self.common.json);
        let book = match once {
            true => Book::default(),
            false => Book::of(&self.common.store.config()?),
        };
        self.common
            .store
            .using(async |store| {
                if !once {
                    let terminal = Terminal::of_stdout();
                    return screen::run(store, State::new(shown, terminal.colour), book).await;
                }
                let sample = Sample::take(&*store).await?;
                match json {
                    true => say_json(&sample.document()),
                    false => say(frame(shown, sample)?),
                }
                Ok(())
            })
            .await
    }
}

/// One frame as text.
fn frame(shown: String, sample: Sample) -> Result<String> {
    let size = match std::io::stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().unwrap_or(FRAME),
        false => FRAME,
    };
    let mut state = State::new(shown, false);
    state.show(sample, None);
    let mut screen = Screen::new(TestBackend::new(size.0, size.1)).map_err(Failure::failed)?;
    screen.draw(|frame| draw::draw(frame, &mut state)).map_err(Failure::failed)?;
    let buffer = screen.backend().buffer();
    let lines = buffer.content().chunks(usize::from(size.0)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}
