//! What a page does, as a request and as a command, to copy.

use super::{Deed, On, link};
use crate::app::lanes::OneLane;
use crate::app::limits::{Limits, Whose};
use crate::base::text::{json_plain, one_line, operand, shell_word};

/// Longest limits that a request has, in bytes: the page stays small.
const LIMITS_BYTES_MAX: usize = 2 << 10;

/// The same by other ways, for a template.
pub(super) struct Ways {
    pub(super) curl: String,
    /// The command with what hides in it told.
    pub(super) command: String,
    /// The command itself, as an attribute.
    pub(super) copied: String,
}

impl Ways {
    pub(super) fn new(curl: String, command: &str) -> Self {
        Self { curl, command: one_line(command), copied: attribute(command) }
    }

    /// Of a list of this order, if it has several, with these filters, which are options of the command too.
    pub(super) fn of_list(
        path: &str,
        command: &str,
        order: Option<&str>,
        filters: &[(&str, &str)],
    ) -> Self {
        let set = filters.iter().filter(|(_, value)| !value.is_empty());
        let option =
            |name: &str, value| format!(" --{}={}", name.replace('_', "-"), shell_word(value));
        let mut command = format!("seriatim {command}");
        command.extend(order.map(|order| option("by", order)));
        command.extend(set.clone().map(|(name, value)| option(name, value)));
        let query: Vec<_> =
            order.map(|order| ("order", order)).into_iter().chain(set.copied()).collect();
        let curl = request("", &link::with(&format!("/api/v1/{path}"), &query));
        Self::new(curl, &command)
    }

    /// Of a deed that asks first.
    pub(super) fn of(deed: &Deed) -> Option<Self> {
        deed.kind.warning?;
        let verb = deed.kind.name.split_once('.')?.1;
        let yes = if verb == "delete" { " --yes" } else { "" };
        let (path, body, command) = match &deed.on {
            On::Lane { queue, lane } => {
                let (field, name, word) = match lane {
                    OneLane::Key(key) => ("key", key.clone(), operand(key)),
                    OneLane::Lane(lane) => ("lane", lane.to_string(), format!("--lane={lane}")),
                };
                let path = format!("queues/{}/lane/{verb}", link::encoded(queue));
                let path = link::with(&path, &[(field, &name)]);
                (path, String::new(), format!("lanes {verb} {queue}{yes} {word}"))
            }
            On::Job(job) => {
                (format!("jobs/{job}/{verb}"), String::new(), format!("jobs {verb}{yes} {job}"))
            }
            On::Dead { queue, job, .. } => (
                format!("queues/{}/morgue/{verb}", link::encoded(queue)),
                format!("'{{\"jobs\":[\"{job}\"]}}'"),
                format!("morgue {verb} {queue}{yes} {job}"),
            ),
            On::Node(node) => (
                format!("nodes/{}/{verb}", link::encoded(node)),
                String::new(),
                format!("nodes {verb} {}", operand(node)),
            ),
            On::Batch(batch) => (
                format!("batches/{}/{verb}", link::encoded(batch)),
                String::new(),
                format!("batches {verb} {}", operand(batch)),
            ),
            _ => return None,
        };
        let curl = post(&format!("/api/v1/{path}"), &body);
        Some(Self::new(curl, &format!("seriatim {command}")))
    }

    /// Of removing what groups have of their own; `then` is what is left, which the request sets. None if that is long.
    pub(super) fn of_ungrouping(queue: &str, whose: &Whose, then: &Limits) -> Option<Self> {
        let body = Some(then.text()).filter(|text| text.len() <= LIMITS_BYTES_MAX)?;
        let path = format!("/api/v1/queues/{}/limits", link::encoded(queue));
        let curl = with_body("-X PUT ", &path, &shell_word(&json_plain(&body)));
        let groups = match whose {
            Whose::Group(name) => format!("--group={}", shell_word(name)),
            _ => "--groups".to_owned(),
        };
        Some(Self::new(curl, &format!("seriatim queues limits {queue} {groups} --none")))
    }
}

/// A request with this body, which is a word of the shell, or with none.
pub(super) fn post(path: &str, body: &str) -> String {
    with_body("-X POST ", path, body)
}

fn with_body(method: &str, path: &str, body: &str) -> String {
    let body = match body {
        "" => String::new(),
        body => format!(" -H 'Content-Type: application/json' -d {body}"),
    };
    format!("{}{body}", request(method, path))
}

fn request(method: &str, path: &str) -> String {
    format!("curl {method}\"$SERIATIM_URL{path}\" -H \"Authorization: Bearer $SERIATIM_TOKEN\"")
}

/// A text as the value of an attribute, with the ends of its lines: a browser reads `\r` as `\n` where it stands as it is.
pub(super) fn attribute(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' | '\r' | '\n' => value += &format!("&#{};", u32::from(c)),
            c => value.push(c),
        }
    }
    value
}
