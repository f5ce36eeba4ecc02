//! What a search for jobs asks for: `queue:orders task:render error:time out payload:order-7`.

use seriatim::store::JobQuery;

const NAMES: [&str; 4] = ["queue", "task", "error", "payload"];

/// All of them hold. A value ends where the next term begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) queue: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) error: Option<String>,
    /// In the payload or the error.
    pub(crate) payload: Option<String>,
}

impl Terms {
    /// None if the text does not begin with a term that has a value: then it is a key, or the beginning of one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut terms = Self::default();
        let mut last: Option<&mut Option<String>> = None;
        for word in text.split_whitespace() {
            match word.split_once(':').filter(|(name, _)| NAMES.contains(name)) {
                Some((name, value)) => {
                    let term = terms.named(name);
                    *term = (!value.is_empty()).then(|| value.to_owned());
                    last = Some(term);
                }
                None => {
                    let value = last.as_mut()?.get_or_insert_default();
                    if !value.is_empty() {
                        value.push(' ');
                    }
                    value.push_str(word);
                }
            }
        }
        (terms != Self::default()).then_some(terms)
    }

    /// Without the payloads, which the asker may not read.
    pub(crate) fn in_errors(mut self) -> Self {
        let text = self.payload.take();
        Self { error: self.error.or(text), ..self }
    }

    fn named(&mut self, name: &str) -> &mut Option<String> {
        match name {
            "queue" => &mut self.queue,
            "task" => &mut self.task,
            "error" => &mut self.error,
            _ => &mut self.payload,
        }
    }

    /// The same of jobs of its queue.
    pub(super) fn of(&self, query: JobQuery) -> JobQuery {
        let (task, error, text) = (self.task.clone(), self.error.clone(), self.payload.clone());
        JobQuery { task, error, text, ..query }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_the_next_term_begins() {
        let terms = Terms::read(" payload:a b:c  d task:t queue:q error:").unwrap();
        assert_eq!(terms.payload.as_deref(), Some("a b:c d"));
        assert_eq!((terms.task.as_deref(), terms.queue.as_deref()), (Some("t"), Some("q")));
        assert_eq!(terms.error, None);
    }

    #[test]
    fn what_does_not_begin_with_a_term_is_a_key() {
        for text in ["order-42", "order task:t", "task:", "", "key:a", "a:b c"] {
            assert_eq!(Terms::read(text), None, "{text:?}");
        }
    }
}
