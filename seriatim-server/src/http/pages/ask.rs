//! The page before a deed on many: how many, which, and what follows; and its start.

use std::time::Duration;

use askama::Template;
use axum::extract::{RawForm, RawQuery};
use axum::http::StatusCode;
use axum::response::Response;

use super::super::operations::meant;
use super::super::operator;
use super::super::{Access, Problem, Result, Shared};
use super::deeds::{UNDO_WAIT, back_to, pairs, say, told_later};
use super::row::SampleRow;
use super::visit::see_other;
use super::ways::{Ways, post};
use super::{Frame, Visit, link, page};
use crate::app::error::Error;
use crate::app::operations::{ALL_QUEUES, LOOKED_MAX, Wish, preview};
use crate::base::text::{grouped, json_plain, shell_word};

/// Fields of the form that are not of the wish.
const OTHERS: [&str; 4] = ["deed", "mark", "back", "confirm"];

#[derive(Template)]
#[template(path = "ask.html", blocks = ["live"])]
struct Ask<'a> {
    frame: &'a Frame,
    /// Why it was not begun.
    refused: Option<String>,
    button: &'static str,
    which: String,
    /// Whether it names a cause, whose marks are explained.
    has_cause: bool,
    /// Whether the queue of each is shown.
    has_queues: bool,
    objects: &'static str,
    count: String,
    /// Of lanes, how many jobs they have.
    jobs: Option<String>,
    /// Whether one of the samples has an error.
    has_errors: bool,
    /// Whether the samples are all.
    which_samples: &'static str,
    is_none: bool,
    /// Rows that were looked at, if none of them fits and there are others.
    unseen: Option<u64>,
    /// The number to type.
    confirm: Option<u64>,
    /// At what rate, if that can be chosen.
    rate: Option<String>,
    consequence: &'static str,
    deletes: bool,
    samples: Vec<SampleRow>,
    fields: Vec<(&'static str, String)>,
    back: String,
    ways: Ways,
}

page!(Ask);

/// The fields of a form.
struct Fields(Vec<(String, String)>);

impl Fields {
    fn read(text: &[u8]) -> Self {
        Self(pairs(text))
    }

    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// What is to be done; fields of the same name are a list.
    fn wish(&self) -> Result<Wish> {
        let mut wished: Vec<(&str, String)> = Vec::new();
        for (name, value) in &self.0 {
            if OTHERS.contains(&name.as_str()) || value.is_empty() {
                continue;
            }
            match wished.iter_mut().find(|(known, _)| known == name) {
                Some((_, list)) => {
                    list.push(',');
                    list.push_str(value);
                }
                None => wished.push((name, value.clone())),
            }
        }
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(wished);
        serde_urlencoded::from_str(&text.finish())
            .map_err(|error| Problem::invalid("", error.to_string()))
    }
}

pub(super) async fn by_link(
    app: Shared,
    visit: Visit,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    ask(&app, &visit, &Fields::read(query.unwrap_or_default().as_bytes()), None).await
}

/// Asks about rows that were ticked, which are too many for a link.
pub(super) async fn by_form(app: Shared, visit: Visit, RawForm(body): RawForm) -> Result<Response> {
    let fields = Fields::read(&body);
    visit.check(fields.text("mark"))?;
    if fields.text("jobs").is_empty() && fields.text("lanes").is_empty() {
        // Without rows it would be about all.
        return Err(Problem::invalid("", "no row is selected: go back and select some"));
    }
    ask(&app, &visit, &fields, None).await
}

/// `refused`: the number that it needs, if it was not begun without.
async fn ask(
    app: &Shared,
    visit: &Visit,
    fields: &Fields,
    refused: Option<u64>,
) -> Result<Response> {
    let mut wish = fields.wish()?;
    let counted = preview(&*app.store, &admitted(app, visit, wish.clone()).await?).await?;
    // In the words of the request: the heading need not say that later rows are left out.
    let which = wish.in_words();
    wish.before = Some(counted.before);
    let mut response = visit.show(&Ask {
        frame: &visit.frame,
        refused: refused
            .map(|count| format!("Nothing was done: to do it, type {}.", grouped(count))),
        button: wish.action.button(),
        which,
        has_cause: wish.cause.is_some(),
        has_queues: wish.queues.is_some(),
        objects: wish.action.objects_of(match counted.count.more {
            true => u64::MAX,
            false => counted.count.count,
        }),
        jobs: counted.jobs.map(|jobs| {
            let most = if counted.count.more { "at least " } else { "" };
            format!("{most}{} {}", grouped(jobs), if jobs == 1 { "job" } else { "jobs" })
        }),
        has_errors: counted.samples.iter().any(|one| one.error.is_some()),
        which_samples: match counted.count.count == counted.samples.len() as u64 {
            true if !counted.count.more => "All of them",
            _ => "Some of them",
        },
        count: counted.count.to_string(),
        is_none: counted.count.is_none(),
        unseen: (counted.count.more && counted.count.count == 0).then_some(LOOKED_MAX),
        confirm: counted.confirm,
        rate: wish.takes_rate().then(|| wish.rate.map(|rate| rate.to_string()).unwrap_or_default()),
        consequence: wish.action.consequence(),
        deletes: wish.action.deletes(),
        samples: counted.samples.iter().map(|one| SampleRow::new(visit, &wish, one)).collect(),
        back: back_to(visit, fields.text("back")),
        ways: Ways::new(curl(&wish, counted.confirm), &command(&wish, counted.confirm)),
        fields: hidden(&wish),
    })?;
    if refused.is_some() {
        *response.status_mut() = StatusCode::CONFLICT;
    }
    Ok(response)
}

pub(super) async fn start(app: Shared, visit: Visit, RawForm(body): RawForm) -> Result<Response> {
    let fields = Fields::read(&body);
    visit.check(fields.text("mark"))?;
    let wish = fields.wish()?;
    let named = admitted(&app, &visit, wish.clone()).await;
    // With the queues that `*` stands for: by them the entry is found.
    let told = named.as_ref().unwrap_or(&wish);
    let mut on = vec![told.place()];
    on.extend(told.sent_filters());
    visit.doing().is(format!("operation {}", wish.action.name()), on);
    let wish = named?;
    let confirm = match fields.text("confirm").replace([',', ' '], "") {
        said if said.is_empty() => None,
        said => Some(said.parse().map_err(|_| Problem::invalid("confirm", "is not a number"))?),
    };
    let deletes = wish.action.deletes();
    let waits = if deletes { UNDO_WAIT } else { Duration::ZERO };
    let (which, done) = (wish.in_words(), wish.action.done());
    let who = visit.who().name().to_owned();
    let operation = match operator::begin(&app, wish, &who, confirm, waits).await {
        Err(Error::Unconfirmed { count, .. }) => {
            return ask(&app, &visit, &fields, Some(count)).await;
        }
        begun => begun?,
    };
    let mut response = see_other(&link::operation(&visit.frame.base, &operation.id));
    if deletes {
        let text = format!("{which}: will be {done} in {} s", UNDO_WAIT.as_secs());
        say(&visit, &mut response, &told_later(&text, operation.id));
    }
    Ok(response)
}

/// Refuses what the visitor's role or queues do not allow. The wish, with the names of its queues.
async fn admitted(app: &Shared, visit: &Visit, wish: Wish) -> Result<Wish> {
    let access = if wish.action.needs_admin() { Access::Admin } else { Access::Operate };
    visit.who().admit(access)?;
    meant(&*app.store, &visit.scope, wish).await
}

/// The fields of the form that begins it.
fn hidden(wish: &Wish) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("deed", "operation.start".to_owned()),
        ("action", wish.action.name().to_owned()),
        wish.place(),
    ];
    // The rate has a field to type in.
    fields.extend(wish.sent_filters().into_iter().filter(|(name, _)| *name != "rate"));
    link::carried(fields)
}

/// The same as a request.
fn curl(wish: &Wish, confirm: Option<u64>) -> String {
    let body = serde_json::to_string(wish).unwrap_or_default();
    let query = confirm.map(|count| format!("?confirm={count}")).unwrap_or_default();
    post(&format!("/api/v1/operations{query}"), &shell_word(&json_plain(&body)))
}

/// The same at a command line. A push may make a queue whose name begins like an option: it stands behind all of them.
fn command(wish: &Wish, confirm: Option<u64>) -> String {
    let queues = match wish.names() {
        [all] if all == ALL_QUEUES => "--all-queues".to_owned(),
        names => names.join(" "),
    };
    let is_odd = wish.named_queues().any(|name| name.starts_with('-'));
    let (first, last) = match is_odd {
        true => (String::new(), format!(" -- {queues}")),
        false => (format!(" {queues}"), String::new()),
    };
    let mut line = format!("seriatim operations start {}{first}", wish.action);
    for (name, value) in wish.sent_filters() {
        line += &match name {
            "untasked" => " --untasked".to_owned(),
            name => format!(" --{}={}", name.replace('_', "-"), shell_word(&value)),
        };
    }
    match confirm {
        Some(count) => line += &format!(" --confirm {count}"),
        None if wish.action.deletes() => line += " --yes",
        None => {}
    }
    line + &last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::operations::Action;

    #[test]
    fn a_queue_that_is_named_like_an_option_is_none_in_the_command() {
        let of = |queue: &str| command(&Wish::new(Action::DeleteDead, queue), None);
        assert_eq!(of("orders"), "seriatim operations start delete_dead orders --yes");
        let odd = "seriatim operations start delete_dead --yes -- --all-queues";
        assert_eq!(of("--all-queues"), odd);
    }
}
