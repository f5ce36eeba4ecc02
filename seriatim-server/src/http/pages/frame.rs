//! What all pages share: navigation, environment, visitor, clock.

use super::turns::Turns;

/// The frame around a page.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// What stands before every address.
    pub(super) base: String,
    /// The overview. A router that is nested in another one has no address that ends with a slash.
    pub(super) home: String,
    pub(super) environment: String,
    /// The visitor's name and role; none if no login is needed.
    pub(super) visitor: Option<(String, &'static str)>,
    /// Whether the visitor has logged in here, and so can log out.
    pub(super) logs_out: bool,
    /// `12:04:07 UTC`.
    pub(super) clock: String,
    pub(super) theme: &'static str,
    /// The mark of forms.
    pub(super) mark: String,
    /// This page.
    pub(super) here: String,
    /// The same with the pages of its list that the visitor came through: see [`Turns`].
    pub(super) address: String,
    /// What the visitor's last deed did.
    pub(super) said: Option<Said>,
    /// How many jobs are dead, if that is known; empty if none is.
    pub(super) dead: Option<String>,
    pub(super) places: &'static [Place],
    /// The names of style sheet, script and icon.
    pub(super) style: &'static str,
    pub(super) script: &'static str,
    pub(super) icon: &'static str,
    pub(super) may_operate: bool,
    pub(super) may_all: bool,
}

/// The result of a deed, and how to undo it.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) undo: Option<Vec<(String, String)>>,
}

impl Said {
    /// Whether it can be undone only until a deletion begins: then the page does not offer it for longer.
    pub(super) fn is_brief(&self) -> bool {
        self.undo.iter().flatten().any(|(_, value)| value == "operation.stop")
    }
}

/// A link of the navigation.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: &'static str,
    pub(super) name: &'static str,
}

pub(super) const PLACES: [Place; 9] = [
    Place { path: "/", name: "Overview" },
    Place { path: "/queues", name: "Queues" },
    Place { path: "/morgue", name: "Morgue" },
    Place { path: "/scheduled", name: "Scheduled" },
    Place { path: "/cron", name: "Cron" },
    Place { path: "/batches", name: "Batches" },
    Place { path: "/nodes", name: "Nodes" },
    Place { path: "/operations", name: "Operations" },
    Place { path: "/audit", name: "Audit" },
];

impl Frame {
    /// The address of a place.
    pub(super) fn way(&self, place: &Place) -> String {
        match place.path {
            "/" => self.home.clone(),
            path => format!("{}{path}", self.base),
        }
    }

    /// The links to other pages of the list; `place` is the field that says where a page begins.
    pub(super) fn turns(&self, place: &str, next: Option<&String>) -> Turns {
        Turns::new(&self.address, place, next)
    }

    /// Whether the page is this place, or below it.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        let path = self.here.split('?').next().unwrap_or_default();
        let path = path.strip_prefix(&self.base).unwrap_or(path);
        match place.path {
            "/" => path.is_empty() || path == "/",
            place => path
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}
