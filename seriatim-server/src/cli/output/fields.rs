//! One thing in full: a name and a value on each line.

use crate::base::text::lines;

/// Names and values, aligned.
#[derive(Default)]
pub(crate) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// Adds a line. The lines of a value stay together.
    pub(crate) fn add(&mut self, name: &'static str, value: impl AsRef<str>) -> &mut Self {
        self.0.push((name, lines(value.as_ref())));
        self
    }

    /// Adds a line if there is a value.
    pub(crate) fn maybe(
        &mut self,
        name: &'static str,
        value: Option<impl AsRef<str>>,
    ) -> &mut Self {
        if let Some(value) = value {
            self.add(name, value);
        }
        self
    }

    /// All of them, without a last newline.
    pub(crate) fn render(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let indent = format!("\n{:width$}  ", "");
        let line = |(name, value): &(&str, String)| {
            format!("{name:<width$}  {}", value.replace('\n', &indent)).trim_end().to_owned()
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_lines_are_indented() {
        let mut fields = Fields::default();
        fields.add("key", "k").maybe("none", None::<&str>).add("error", "first\nsecond\u{1b}");
        assert_eq!(fields.render(), "key    k\nerror  first\n       second\\u{1b}");
    }
}
