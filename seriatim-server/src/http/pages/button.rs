//! Buttons of pages: a form that does a deed, or a link to the page that asks first.

use super::deed::{Deed, On};
use super::link;
use super::visit::Visit;

/// A button for a template.
#[derive(Clone, Debug)]
pub(super) struct Button {
    pub(super) label: &'static str,
    pub(super) fields: Vec<(&'static str, String)>,
    /// The page that asks first.
    pub(super) asks: Option<String>,
}

/// The buttons among these deeds that the visitor's role allows.
pub(super) fn all(visit: &Visit, names: &[&str], on: &On) -> Vec<Button> {
    names.iter().filter_map(|name| one(visit, name, on.clone())).collect()
}

fn one(visit: &Visit, name: &str, on: On) -> Option<Button> {
    let deed = Deed::new(name, on).filter(|deed| visit.may(deed.kind.access))?;
    let fields = deed.fields();
    let asks = deed.kind.warning.map(|_| {
        let mut query: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        query.push(("back", &visit.frame.here));
        link::with(&format!("{}/confirm", visit.frame.base), &query)
    });
    Some(Button { label: deed.kind.button, fields, asks })
}
