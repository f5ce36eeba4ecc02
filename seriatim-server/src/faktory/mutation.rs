//! What an operator does to many jobs at once: it becomes operations of the API, which are in the audit log and can be
//! stopped.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::job::jid_of;
use crate::http::{Inside, Refusal, Visitor};

/// Most jobs that are named, and that one operation names.
const NAMED_MAX: usize = 1_000;
/// Most jobs that are found one by one, and most pages that are looked through for them.
const FOUND_MAX: usize = 10_000;
const PAGES_MAX: usize = 100;

#[derive(Debug, Deserialize, PartialEq)]
pub(super) struct Mutation {
    cmd: Deed,
    target: Target,
    filter: Option<Filter>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Deed {
    Clear,
    Discard,
    Kill,
    Requeue,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Target {
    Scheduled,
    Retries,
    Dead,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
struct Filter {
    jobtype: Option<String>,
    jids: Option<BTreeSet<String>>,
    #[serde(default, deserialize_with = "narrowing")]
    regexp: Option<String>,
}

/// A pattern, but for the one that all have: so clients for Go name everything.
fn narrowing<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|regexp| regexp != "*"))
}

/// A job of a listing.
#[derive(Deserialize)]
struct Listed {
    job_id: String,
    lane: Option<String>,
    retry_count: i32,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    jobs: Vec<Listed>,
    next: Option<String>,
}

impl Mutation {
    /// Refuses what has no equal here.
    pub(super) fn checked(self) -> Result<Self, String> {
        let no = |why: &str| Err(format!("MUTATE: {why}"));
        let Filter { jobtype, jids, regexp } = self.filter.as_ref().unwrap_or(&NO_FILTER);
        let named = jids.as_ref().map(BTreeSet::len);
        match (self.cmd, self.target) {
            _ if regexp.is_some() => {
                no("regexp is not supported: name jobtype or jids, or search on the dashboard")
            }
            _ if named.is_some_and(|named| named > NAMED_MAX) => {
                no(&format!("name at most {NAMED_MAX} jids"))
            }
            _ if named == Some(0) => no("jids names no job"),
            (Deed::Clear, _) if jobtype.is_some() || named.is_some() => {
                no("clear has no filter: write discard")
            }
            (Deed::Kill, Target::Dead) => {
                no("dead jobs cannot be killed: write requeue or discard")
            }
            (Deed::Kill, Target::Scheduled) => {
                no("only jobs that failed can be killed: write discard")
            }
            _ => Ok(self),
        }
    }

    /// Begins the operations of each queue.
    pub(super) async fn begin(&self, api: &Inside, visitor: &Visitor) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Stats {
            by_worker: BTreeMap<String, Sizes>,
        }
        let office = Office { api, visitor };
        let stats: Stats = office.get("/stats", &[]).await?;
        let mut wishes = Vec::new();
        let (mut found, mut pages) = (0, 0);
        for (queue, sizes) in stats.by_worker {
            let size = match self.target {
                // Failed jobs behind one that has not failed are in no count.
                Target::Scheduled | Target::Retries => sizes.jobs,
                Target::Dead => sizes.dead,
            };
            match self.on_all_of(&queue) {
                _ if size == 0 => {}
                Some(wish) => wishes.push(wish),
                None => {
                    let jobs = self.find(&office, &queue, &mut pages).await?;
                    found += jobs.len();
                    wishes.extend(self.on_these(&queue, &jobs));
                }
            }
            if found > FOUND_MAX || pages > PAGES_MAX {
                return Err("MUTATE: too many jobs to look through: filter them on the dashboard, or with seriatim jobs".to_owned());
            }
        }
        let all = wishes.len();
        for (begun, wish) in wishes.into_iter().enumerate() {
            let told = |why: String| match begun {
                0 => why,
                _ => format!("{why} ({begun} of {all} operations have started)"),
            };
            office.begin(wish).await.map_err(told)?;
        }
        Ok(())
    }

    fn jids(&self) -> Option<&BTreeSet<String>> {
        self.filter.as_ref().and_then(|filter| filter.jids.as_ref())
    }

    fn jobtype(&self) -> Option<&str> {
        self.filter.as_ref().and_then(|filter| filter.jobtype.as_deref())
    }

    /// The operation on a queue, if it need not name the jobs one by one.
    fn on_all_of(&self, queue: &str) -> Option<Wish> {
        let action = self.action(self.jobtype().is_none() && self.jids().is_none());
        let mut wish = json!({ "action": action, "queue": queue });
        match self.target {
            Target::Dead if self.jids().is_none() => {
                if let Some(task) = self.jobtype() {
                    wish["task"] = task.into();
                }
            }
            Target::Retries if self.jids().is_none() && self.jobtype().is_none() => {
                if self.cmd == Deed::Requeue {
                    wish["state"] = "retrying".into();
                }
            }
            _ => return None,
        }
        Some(Wish { body: wish, is_counted: true })
    }

    /// What is done; to jobs that are named one by one, or to all.
    fn action(&self, to_all: bool) -> &'static str {
        match (self.cmd, self.target) {
            (Deed::Requeue, Target::Dead) => "requeue",
            (Deed::Requeue, _) => "retry",
            (Deed::Kill, _) => "bury",
            (_, Target::Dead) => "delete_dead",
            (_, Target::Retries) if to_all => "delete_failed",
            _ => "delete_jobs",
        }
    }

    /// Those that are meant, in one queue.
    async fn find(
        &self,
        office: &Office<'_>,
        queue: &str,
        pages: &mut usize,
    ) -> Result<Vec<Listed>, String> {
        let now = jiff::Timestamp::now().to_string();
        let (mut found, mut after) = (Vec::new(), None);
        while *pages <= PAGES_MAX && found.len() <= FOUND_MAX {
            *pages += 1;
            let mut query = vec![("queue", queue), ("limit", "1000"), ("payload_bytes_max", "0")];
            query.push(("state", if self.target == Target::Dead { "dead" } else { "queued" }));
            query.extend(self.jobtype().map(|task| ("task", task)));
            query.extend((self.target == Target::Scheduled).then_some(("from", &*now)));
            query.extend(after.as_deref().map(|after| ("after", after)));
            let page: Page = office.get("/jobs", &query).await?;
            found.extend(page.jobs.into_iter().filter(|job| self.has(job)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn has(&self, job: &Listed) -> bool {
        let jid = job.idempotency_key.as_deref().and_then(jid_of);
        let is_named = |jids: &BTreeSet<String>| {
            jid.is_some_and(|jid| jids.contains(jid)) || jids.contains(&job.job_id)
        };
        let fits = match self.target {
            Target::Scheduled => job.retry_count < 0,
            Target::Retries => job.retry_count >= 0,
            Target::Dead => true,
        };
        fits && self.jids().is_none_or(is_named)
    }

    /// The operations on these jobs, or on their keys.
    fn on_these(&self, queue: &str, jobs: &[Listed]) -> Vec<Wish> {
        let action = self.action(false);
        let (field, ids): (_, BTreeSet<&String>) = match action {
            "retry" | "bury" => {
                ("lanes", jobs.iter().filter_map(|job| job.lane.as_ref()).collect())
            }
            _ => ("jobs", jobs.iter().map(|job| &job.job_id).collect()),
        };
        let ids: Vec<&String> = ids.into_iter().collect();
        let wish = |ids: &[&String]| json!({ "action": action, "queue": queue, field: ids });
        ids.chunks(NAMED_MAX).map(|ids| Wish { body: wish(ids), is_counted: false }).collect()
    }
}

const NO_FILTER: Filter = Filter { jobtype: None, jids: None, regexp: None };

/// The body of `POST /operations`.
struct Wish {
    body: Value,
    /// Whether it is counted first, as a deletion must be that names no jobs.
    is_counted: bool,
}

#[derive(Deserialize)]
struct Sizes {
    jobs: u64,
    dead: u64,
}

/// Where it is done.
struct Office<'a> {
    api: &'a Inside,
    visitor: &'a Visitor,
}

impl Office<'_> {
    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, String> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let path = format!("{path}?{query}");
        let answer = self.api.ask(self.visitor, Method::GET, &path, String::new()).await;
        let answer = answer.map_err(told)?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    async fn begin(&self, mut wish: Wish) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Counted {
            count: u64,
            confirm: Option<u64>,
            before: String,
        }
        let mut path = "/operations".to_owned();
        if wish.is_counted {
            let query: Vec<(&str, &str)> = wish
                .body
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
                .collect();
            let counted: Counted = self.get("/operations/preview", &query).await?;
            if counted.count == 0 {
                return Ok(());
            }
            path += &counted.confirm.map(|count| format!("?confirm={count}")).unwrap_or_default();
            wish.body["before"] = counted.before.into();
        }
        let begun = self.api.ask(self.visitor, Method::POST, &path, wish.body.to_string()).await;
        begun.map(drop).map_err(told)
    }
}

fn told(refusal: Refusal) -> String {
    format!("MUTATE: {}", refusal.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_equal_here_is_refused_with_what_to_do_instead() {
        let read = |text: &str| serde_json::from_str::<Mutation>(text).unwrap().checked();
        for (text, why) in [
            (r#"{"cmd":"kill","target":"retries","filter":{"regexp":"*a*"}}"#, "regexp is not"),
            (r#"{"cmd":"kill","target":"dead"}"#, "write requeue or discard"),
            (r#"{"cmd":"kill","target":"scheduled"}"#, "write discard"),
            (r#"{"cmd":"discard","target":"dead","filter":{"jids":[]}}"#, "jids names no job"),
            (r#"{"cmd":"clear","target":"dead","filter":{"jobtype":"a"}}"#, "write discard"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("MUTATE: ") && error.contains(why), "{error}");
        }
        let many = vec!["12345678"; 2];
        assert!(
            read(
                &json!({ "cmd": "requeue", "target": "dead", "filter": { "jids": many } })
                    .to_string()
            )
            .is_ok()
        );
        let many: Vec<String> = (0..=NAMED_MAX).map(|n| n.to_string()).collect();
        let many = json!({ "cmd": "requeue", "target": "dead", "filter": { "jids": many } });
        assert!(read(&many.to_string()).unwrap_err().contains("at most 1000"));
        assert!(read(r#"{"cmd":"clear","target":"retries","filter":{}}"#).is_ok());
        // How the client for Go says all.
        let all = |filter: &str| {
            read(&format!(r#"{{"cmd":"discard","target":"dead","filter":{filter}}}"#)).unwrap()
        };
        let (all, jids) = (all(r#"{"regexp":"*"}"#), all(r#"{"regexp":"*","jids":["12345678"]}"#));
        assert_eq!((all.on_all_of("a").is_some(), jids.on_all_of("a").is_some()), (true, false));
    }
}
