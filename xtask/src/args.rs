//! Arguments of commands that take several: `--name VALUE`, `--name`.

use std::str::FromStr;

use crate::Failure;

/// Those that are not read yet.
pub(crate) struct Args<'a> {
    left: Vec<&'a str>,
    usage: &'static str,
}

impl<'a> Args<'a> {
    pub(crate) fn new(args: &[&'a str], usage: &'static str) -> Self {
        Self { left: args.to_vec(), usage }
    }

    pub(crate) fn wrong(&self) -> Failure {
        Failure::Usage(self.usage.into())
    }

    /// Whether a switch is given.
    pub(crate) fn has(&mut self, name: &str) -> bool {
        let given = self.left.len();
        self.left.retain(|arg| *arg != name);
        self.left.len() < given
    }

    /// The value of this name, the last if it has several.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str, if_unset: T) -> Result<T, Failure> {
        let Some(text) = self.values(name)?.pop() else { return Ok(if_unset) };
        text.parse().map_err(|_| self.wrong())
    }

    /// Those whose ids are values of this name; all if it has none.
    pub(crate) fn chosen<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        id: fn(&T) -> &str,
    ) -> Result<Vec<T>, Failure> {
        let ids = self.values(name)?;
        if ids.is_empty() {
            return Ok(all.to_vec());
        }
        let find = |wanted: &&str| all.iter().find(|one| id(one) == *wanted).copied();
        ids.iter().map(|id| find(id).ok_or_else(|| self.wrong())).collect()
    }

    /// Refuses what has no meaning, and what cannot be done.
    pub(crate) fn end(self, is_possible: bool) -> Result<(), Failure> {
        if is_possible && self.left.is_empty() { Ok(()) } else { Err(self.wrong()) }
    }

    fn values(&mut self, name: &str) -> Result<Vec<&'a str>, Failure> {
        let mut values = Vec::new();
        while let Some(at) = self.left.iter().position(|arg| *arg == name) {
            if at + 1 == self.left.len() {
                return Err(self.wrong());
            }
            values.extend(self.left.drain(at..at + 2).nth(1));
        }
        Ok(values)
    }
}
