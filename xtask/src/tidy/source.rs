//! A file for the rules.

use std::fs;
use std::path::Path;

/// A text file of the repository.
#[derive(Debug)]
pub(super) struct Source {
    /// From the root of the repository.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// `None` if the file is not text, or is deleted although git still lists it.
    pub(super) fn read(root: &Path, path: String) -> Option<Self> {
        let text = fs::read_to_string(root.join(&path)).ok()?;
        (!text.contains('\0')).then_some(Self { path, text })
    }

    pub(super) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether the file has only tests, by its name.
    pub(super) fn is_test(&self) -> bool {
        let in_tests = self.path.split('/').rev().skip(1).any(|part| part == "tests");
        self.is_rust() && (in_tests || self.path.ends_with("tests.rs"))
    }

    /// Lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        // Unlike `str::lines`, this keeps a carriage return visible.
        self.text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
    }
}
