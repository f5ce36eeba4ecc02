//! Buttons of pages: one of the page's form, which does a deed, or a link to the page that asks first.

use super::super::access::Access;
use super::{Deed, On, Visit, link};
use crate::app::operations::{Action, Wish};

/// A button for a template.
#[derive(Clone, Debug)]
pub(super) struct Button {
    pub(super) label: &'static str,
    /// The fields of the deed, as a query.
    pub(super) does: String,
    /// The page that asks first.
    pub(super) asks: Option<String>,
}

/// The buttons among these deeds that the visitor's role allows.
pub(super) fn all(visit: &Visit, names: &[&str], on: &On) -> Vec<Button> {
    names.iter().filter_map(|name| one(visit, name, on.clone())).collect()
}

/// Links to the page that asks before this is done to many, where the visitor's role allows it.
pub(super) fn operations(visit: &Visit, wishes: impl IntoIterator<Item = Wish>) -> Vec<Button> {
    let base = &visit.frame.base;
    let button = |wish: Wish| {
        visit.may(access(wish.action)).then_some(())?;
        let ((place, queues), filters) = (wish.place(), wish.sent_filters());
        let mut query = vec![("action", wish.action.name()), (place, queues.as_str())];
        query.extend(filters.iter().map(|(name, value)| (*name, value.as_str())));
        query.push(("back", &visit.frame.here));
        let asks = Some(link::with(&format!("{base}/operations/new"), &query));
        Some(Button { label: wish.action.button(), does: String::new(), asks })
    };
    wishes.into_iter().filter_map(button).collect()
}

/// What the visitor may do to rows that are ticked.
pub(super) fn on_ticked(visit: &Visit, actions: &[Action]) -> Vec<Action> {
    actions.iter().copied().filter(|action| visit.may(access(*action))).collect()
}

fn access(action: Action) -> Access {
    if action.needs_admin() { Access::Admin } else { Access::Operate }
}

fn one(visit: &Visit, name: &str, on: On) -> Option<Button> {
    let deed = Deed::new(name, on).filter(|deed| visit.may(deed.kind.access))?;
    let fields = deed.fields();
    let mut query: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let does = link::query(&query);
    let asks = deed.kind.warning.map(|_| {
        query.push(("back", &visit.frame.here));
        link::with(&format!("{}/confirm", visit.frame.base), &query)
    });
    Some(Button { label: deed.kind.button, does, asks })
}
