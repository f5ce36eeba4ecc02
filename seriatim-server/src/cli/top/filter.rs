//! The filter of the tables: a text that a row must contain.

use ratatui::crossterm::event::KeyCode;

use super::sample::Shown;
use crate::app::figures::Figures;

/// Longest text, in characters.
const CHARACTERS_MAX: usize = 60;

/// Applied at each character that is typed.
#[derive(Default)]
pub(super) struct Filter {
    text: String,
    /// Keys go to the text.
    pub(super) is_typed: bool,
}

impl Filter {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_set(&self) -> bool {
        !self.text.is_empty()
    }

    /// Enter keeps the text, Esc removes it.
    pub(super) fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.text.chars().count() < CHARACTERS_MAX => {
                self.text.push(letter);
            }
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Enter => self.is_typed = false,
            KeyCode::Esc => *self = Self::default(),
            _ => {}
        }
    }

    pub(super) fn queue(&self, of: &Figures) -> bool {
        self.is_in(&of.stats.queue)
    }

    /// By queue, key or error; what is listed of a queue stays with it.
    pub(super) fn lane(&self, shown: &Shown) -> bool {
        let lane = &shown.one.lane;
        let texts = [Some(&shown.one.queue), lane.key.as_ref(), lane.error.as_ref()];
        texts.into_iter().flatten().any(|text| self.is_in(text))
    }

    /// Capital letters make no difference.
    fn is_in(&self, text: &str) -> bool {
        self.text.is_empty() || text.to_lowercase().contains(&self.text.to_lowercase())
    }
}
