//! The overview: is anything wrong, and where.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;
use seriatim::store::{LaneStage, LaneState};

use super::super::checkup::Checkup;
use super::super::{Query, Result, Shared};
use super::charts::{Charts, Wish};
use super::row::QueueRow;
use super::ways::post;
use super::{Button, Frame, LaneRow, On, Visit, button, link, page};
use crate::app::doctor::{DEAD_MAX, Finding, LANES_MAX, List, Repair, Severity};
use crate::app::history::ALL;
use crate::app::lanes::OneLane;
use crate::app::limits;
use crate::app::operations::{self, Action};
use crate::app::running::age;
use crate::app::why::Around;
use crate::app::{causes, queues};
use crate::base::text::{KEY_COLUMNS, cut, one_line};
use crate::base::time::{absolute, length};

/// Kinds of findings, others of a kind, queues, running lanes and causes of death that the page shows.
const FINDINGS_SHOWN: usize = 10;
const ALIKE_SHOWN: usize = 5;
/// What an empty store is shown how to push, as a word of the shell.
const FIRST_JOB: &str = r#"'{"key":"order-1","payload":{"status":"paid"}}'"#;
const QUEUES_SHOWN: usize = 20;
const LONGEST_SHOWN: usize = 5;
const CAUSES_SHOWN: usize = 5;

/// A finding for the template.
struct Need {
    word: &'static str,
    about: String,
    /// Goes on behind the name.
    found: String,
    /// Text and commands by turns.
    advice: Vec<(String, bool)>,
    href: Option<String>,
    /// What puts it right.
    buttons: Vec<Button>,
    /// Others of the same kind, with their places.
    others: Vec<(String, Option<String>)>,
    /// Others that are not named.
    more: usize,
}

/// A cause of death for the template.
pub(super) struct CauseRow {
    /// Tells it from others whose list is the same.
    pub(super) id: String,
    pub(super) queue: String,
    pub(super) href: String,
    pub(super) task: String,
    pub(super) error: String,
    /// The dead jobs with such an error; the latest if they have nothing in common to filter by.
    pub(super) list: String,
    /// The latest of the jobs.
    pub(super) sample: String,
    pub(super) count: u64,
    /// Whether there may be more: only the latest dead jobs were looked at.
    pub(super) is_cut: bool,
    pub(super) first: super::moment::Moment,
    pub(super) last: super::moment::Moment,
    pub(super) buttons: Vec<Button>,
}

/// Held lanes, and where most of them are.
#[derive(Default)]
struct Held {
    count: usize,
    /// Whether there may be others: they are counted by the check, of the queues and lanes that it reads.
    is_cut: bool,
    href: String,
    /// Where most of them are, if they are in several queues.
    most: Option<(String, usize)>,
}

#[derive(Default)]
struct Totals {
    jobs: u64,
    running: u64,
    retrying: u64,
    held: Held,
    dead: u64,
    nodes: usize,
    lag: String,
    late: Option<(String, String)>,
    queues: usize,
}

#[derive(Template)]
#[template(path = "overview.html", blocks = ["live"])]
struct Overview<'a> {
    frame: &'a Frame,
    totals: Totals,
    needs: Vec<Need>,
    more_needs: usize,
    /// Seconds since the findings were looked for.
    checked: u64,
    /// How to push a first job here.
    first: String,
    charts: Charts,
    queues: Vec<QueueRow>,
    longest: Vec<LaneRow>,
    causes: Vec<CauseRow>,
}

page!(Overview);

pub(super) async fn show(
    app: Shared,
    visit: Visit,
    Query(Wish { span }): Query<Wish>,
) -> Result<Response> {
    let (mut views, nodes) = queues::with_figures(&*app.store).await?;
    views.retain(|(view, _)| visit.scope.has_queue(&view.queue.name));
    let checkup = app.checkup().await?;
    views.sort_by_key(|(_, figures)| Reverse((figures.lag_in_total(), figures.stats.jobs)));
    let base = &visit.frame.base;
    let now = checkup.now();
    let around = (&*nodes, now);
    let rows: Vec<QueueRow> =
        views.iter().map(|(view, figures)| QueueRow::new(base, view, figures, around)).collect();
    let mut totals = totals(&rows, &views, nodes.iter().filter(|node| !node.dead).count());
    totals.held = held(&visit, &checkup);
    let (needs, more_needs) = needs(&visit, &checkup);
    let mut queues: Vec<QueueRow> = rows.into_iter().take(QUEUES_SHOWN).collect();
    QueueRow::add_recent(&*app.store, &mut queues, now).await?;
    let page = Overview {
        frame: &visit.frame,
        totals,
        needs,
        more_needs,
        checked: checkup.at.elapsed().as_secs(),
        first: post("/api/v1/queues/orders/jobs", FIRST_JOB),
        charts: charts(&app, &visit, &span).await?,
        longest: longest(&visit, &checkup),
        causes: newest(&visit, &checkup),
        queues,
    };
    visit.show(&page)
}

/// For all queues, or none for a visitor who may see only some.
async fn charts(app: &Shared, visit: &Visit, span: &str) -> seriatim::Result<Charts> {
    let path = &visit.frame.home;
    let queue = if visit.scope.is_limited() { "" } else { ALL };
    Charts::read(&*app.store, visit, queue, path, span).await
}

fn totals(
    rows: &[QueueRow],
    views: &[(seriatim::store::QueueView, crate::app::figures::Figures)],
    nodes: usize,
) -> Totals {
    let worst = views.first().map(|(_, figures)| figures.lag_in_total()).unwrap_or_default();
    let late = rows.first().filter(|_| worst.as_secs() > 0);
    Totals {
        jobs: rows.iter().map(|row| row.jobs).sum(),
        running: rows.iter().map(|row| row.running).sum(),
        retrying: rows.iter().map(|row| row.retrying).sum(),
        dead: rows.iter().map(|row| row.dead).sum(),
        held: Held::default(),
        nodes,
        lag: length(worst),
        late: late.map(|row| (row.name.clone(), row.href.clone())),
        queues: rows.len(),
    }
}

/// Of each queue at most a thousand are counted.
fn held(visit: &Visit, checkup: &Checkup) -> Held {
    let mut by_queue: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &checkup.seen.troubled {
        if one.lane.state == LaneState::Held && visit.scope.has_queue(&one.queue) {
            *by_queue.entry(&one.queue).or_default() += 1;
        }
    }
    let Some((queue, most)) = by_queue.iter().max_by_key(|(_, count)| **count) else {
        return Held::default();
    };
    Held {
        count: by_queue.values().sum(),
        is_cut: checkup.seen.left_out > 0 || by_queue.values().any(|count| *count >= LANES_MAX),
        href: link::lanes(&visit.frame.base, queue, &[("state", "held")]),
        most: (by_queue.len() > 1).then(|| ((*queue).to_owned(), *most)),
    }
}

/// The parts of a text, and whether each stood between backticks.
fn marked(text: &str) -> Vec<(String, bool)> {
    text.split('`').enumerate().map(|(at, part)| (part.to_owned(), at % 2 == 1)).collect()
}

/// The findings about what the visitor may see: one of each kind with its advice, then the names of the others.
fn needs(visit: &Visit, checkup: &Checkup) -> (Vec<Need>, usize) {
    let may_see = |finding: &&Finding| match finding.queue.as_deref() {
        Some(queue) => visit.scope.has_queue(queue),
        None => !visit.scope.is_limited(),
    };
    // The dead wait for a person, however long ago they died.
    let is_dead = |finding: &Finding| finding.list == Some(List::Morgue);
    let notable = |finding: &&Finding| finding.severity != Severity::Notice || is_dead(finding);
    let mut kinds: Vec<(String, Vec<&Finding>)> = Vec::new();
    for finding in checkup.findings.iter().filter(may_see).filter(notable) {
        let kind = causes::masked(&finding.found);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, alike)) => alike.push(finding),
            None => kinds.push((kind, vec![finding])),
        }
    }
    let shown = kinds.iter().take(FINDINGS_SHOWN).filter_map(|(_, alike)| Need::of(visit, alike));
    (shown.collect(), kinds.len().saturating_sub(FINDINGS_SHOWN))
}

impl Need {
    fn of(visit: &Visit, alike: &[&Finding]) -> Option<Self> {
        let (finding, others) = alike.split_first()?;
        let base = &visit.frame.base;
        let named = |finding: &&Finding| (name(finding), place(base, finding));
        Some(Self {
            word: match finding.severity {
                Severity::Serious => "serious",
                Severity::Warning => "warning",
                Severity::Notice => "notice",
            },
            about: name(finding),
            found: said_of(finding),
            advice: marked(&one_line(&finding.advice)),
            href: place(base, finding),
            buttons: repairs(visit, finding),
            others: others.iter().take(ALIKE_SHOWN).map(named).collect(),
            more: others.len().saturating_sub(ALIKE_SHOWN),
        })
    }
}

/// What is said of it behind its name.
fn said_of(finding: &Finding) -> String {
    let quoted = finding.key.as_ref().map(|key| format!("{:?} ", one_line(key)));
    match quoted.and_then(|key| finding.found.strip_prefix(&key)) {
        Some(rest) => format!(" {}", one_line(rest)),
        None => format!(": {}", one_line(&finding.found)),
    }
}

fn name(finding: &Finding) -> String {
    match (&finding.queue, &finding.key) {
        (Some(queue), Some(key)) => format!("{queue}: {}", cut(&one_line(key), KEY_COLUMNS)),
        _ => one_line(&finding.about),
    }
}

/// One click for a key or a queue; for several keys or jobs, a page that asks.
fn repairs(visit: &Visit, finding: &Finding) -> Vec<Button> {
    let (Some(repair), Some(queue)) = (finding.repair, &finding.queue) else { return Vec::new() };
    let all = |action| {
        let all = operations::Wish::new(action, queue.as_str());
        button::operations(visit, [only(finding.list, all)])
    };
    let of_key = |deed, key: &String| {
        let lane = OneLane::Key(key.clone());
        button::all(visit, &[deed], &On::Lane { queue: queue.clone(), lane })
    };
    match (repair, &finding.key) {
        (Repair::ResumeQueue, _) => {
            button::all(visit, &["queue.resume"], &On::Queue(queue.clone()))
        }
        (Repair::Requeue, _) => all(Action::Requeue),
        (Repair::Retry, Some(key)) => of_key("lane.retry", key),
        (Repair::Resume, Some(key)) => of_key("lane.resume", key),
        (Repair::Retry, None) => all(Action::Retry),
        (Repair::Resume, None) => all(Action::Resume),
    }
}

/// Only what the finding is about: others may wait for good reasons.
fn only(list: Option<List>, all: operations::Wish) -> operations::Wish {
    let retrying = || LaneStage::Retrying.as_str().to_owned();
    match list {
        Some(List::Lanes(stage)) => operations::Wish { state: stage.as_str().to_owned(), ..all },
        Some(List::Failing(least)) => {
            operations::Wish { state: retrying(), retries_min: least.to_string(), ..all }
        }
        Some(List::Blocking(from)) => {
            operations::Wish { state: retrying(), due_from: absolute(from), ..all }
        }
        Some(List::Morgue) | None => all,
    }
}

/// Where one sees it.
fn place(base: &str, finding: &Finding) -> Option<String> {
    let Some(queue) = &finding.queue else {
        return Some(link::node(base, finding.about.strip_prefix("node ")?));
    };
    let failed =
        |name, value: &str| link::lanes(base, queue, &[("by", "retry_count"), (name, value)]);
    Some(match (&finding.key, finding.list) {
        (Some(key), _) => link::key(base, key),
        (None, Some(List::Lanes(stage))) => link::lanes(base, queue, &[("state", stage.as_str())]),
        (None, Some(List::Failing(least))) => failed("retries_min", &least.to_string()),
        (None, Some(List::Blocking(from))) => failed("due_from", &absolute(from)),
        (None, Some(List::Morgue)) => {
            link::with(&format!("{base}/morgue"), &[("view", "causes"), ("queue", queue)])
        }
        (None, None) => link::queue(base, queue),
    })
}

fn longest(visit: &Visit, checkup: &Checkup) -> Vec<LaneRow> {
    let seen = &checkup.seen;
    let mut running: Vec<_> =
        seen.running.iter().filter(|one| visit.scope.has_queue(&one.queue)).collect();
    running.sort_by_key(|one| Reverse(age(one, seen.now)));
    let row = |one: &&crate::app::running::Running| {
        let queue = seen.queues.iter().find(|view| *view.queue.name == *one.queue)?;
        let around =
            Around { queue, usage: &limits::UNKNOWN, nodes: &seen.nodes, now: checkup.now() };
        Some(LaneRow::new(visit, &one.lane, around))
    };
    running.iter().take(LONGEST_SHOWN).filter_map(row).collect()
}

/// The causes of the latest deaths. The page of causes begins with those of most.
fn newest(visit: &Visit, checkup: &Checkup) -> Vec<CauseRow> {
    let of_visitor = checkup.seen.dead.iter().filter(|(queue, _)| visit.scope.has_queue(queue));
    let mut causes = causes::of(of_visitor.flat_map(|(_, jobs)| jobs));
    causes.sort_by_key(|cause| Reverse(cause.last));
    let is_cut = |queue: &str| {
        let of_queue = checkup.seen.dead.iter().find(|(of, _)| **of == *queue);
        of_queue.is_some_and(|(_, jobs)| jobs.len() >= DEAD_MAX)
    };
    let all = operations::Wish::new(Action::Requeue, "");
    let row =
        |cause: causes::Cause| CauseRow::new(visit, is_cut(&cause.queue), cause, Some(&all), &[]);
    causes.into_iter().take(CAUSES_SHOWN).map(row).collect()
}

impl CauseRow {
    /// `filters`: those of the page, which its buttons keep; none if operations do not have them. `listed`: those that its
    /// list keeps.
    pub(super) fn new(
        visit: &Visit,
        is_cut: bool,
        cause: causes::Cause,
        filters: Option<&operations::Wish>,
        listed: &[(&str, &str)],
    ) -> Self {
        let base = &visit.frame.base;
        let both = [Action::Requeue, Action::DeleteDead];
        let of_row = |(filters, action): (&operations::Wish, Action)| operations::Wish {
            action,
            queue: cause.queue.to_string(),
            queues: None,
            cause: Some(cause.error.clone()),
            task: cause.task.as_deref().map(str::to_owned),
            untasked: cause.task.is_none(),
            ..filters.clone()
        };
        let wishes = filters.into_iter().flat_map(|filters| both.map(|action| (filters, action)));
        let of = serde_json::json!([&*cause.queue, cause.task.as_deref(), cause.error]);
        let hash = blake3::hash(of.to_string().as_bytes()).to_hex();
        Self {
            id: hash[..16].to_owned(),
            buttons: button::operations(visit, wishes.map(of_row)),
            href: link::with(&format!("{base}/morgue"), &[("queue", &cause.queue)]),
            queue: cause.queue.to_string(),
            task: cause.task.as_deref().map(seriatim::text::one_line).unwrap_or_default(),
            list: match cause.common() {
                Some(error) => {
                    let task = cause.task.as_deref().unwrap_or_default();
                    let like = [("queue", &*cause.queue), ("task", task), ("error", error)];
                    link::with(&format!("{base}/morgue"), &[&like[..], listed].concat())
                }
                None => link::job(base, cause.sample.id),
            },
            sample: link::job(base, cause.sample.id),
            error: cause.error,
            count: cause.count,
            is_cut,
            first: visit.clock.of(cause.first),
            last: visit.clock.of(cause.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{
        Claim, Consumer, Declare, Fleet, Heartbeat, Lease, Memory, NodeId, NodeInfo, Producer,
        Push, Queues, Settle, plan,
    };
    use seriatim::{Job, Outcome, Queue, Timestamp};

    use super::super::super::router::router;

    async fn page(store: &Arc<Memory>, path: &str) -> String {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let service = TowerToHyperService::new(router(store.clone()));
        let answer = service.call(request).await.unwrap();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_paused_queue_is_not_the_one_that_lags() {
        let store = Arc::new(Memory::new());
        let due = |seconds| Timestamp::of_this_machine() - Duration::from_secs(seconds);
        let job = |name: &str, seconds| Job::new(name, &1).unwrap().run_at(due(seconds));
        let jobs = vec![job("mails", 36_000), job("mails", 36_000), job("orders", 7_200)];
        store.push(Push { now: None, jobs }).await.unwrap();
        store.pause_queue("mails".into(), true).await.unwrap();
        let page = page(&store, "/").await;
        let lag = page.split("<dt>lag</dt>").nth(1).unwrap().split("</dd>").next().unwrap();
        assert!(lag.contains("2h00m") && lag.contains("orders"), "{lag}");
        let row = |name: &str| page.find(&format!("id=\"queue-{name}\"")).unwrap();
        assert!(row("orders") < row("mails"), "{page}");
    }

    /// Pushes this many jobs for each of the keys, claims all that is due, and lets it fail.
    async fn fail(store: &Memory, keys: &[&str], jobs: usize, retry_in: Duration) {
        let job = |key: &&str| Job::new("orders", &1).unwrap().key(*key);
        let jobs = keys.iter().flat_map(|key| (0..jobs).map(move |_| job(key))).collect();
        store.push(Push { now: None, jobs }).await.unwrap();
        let lease = Lease::Node { ttl: Duration::from_secs(60) };
        let claim = Claim::new("orders", NodeId::from("worker-1"), 100, lease);
        let turns = store.claim(claim).await.unwrap().turns;
        assert!(!turns.is_empty());
        let outcome = Outcome::Retry { error: "no stock".into(), retry_in: Some(retry_in) };
        let queue = Queue::fifo("orders");
        let ends =
            turns.iter().map(|turn| plan(turn, &queue, &outcome.clone().into(), &|_| retry_in));
        store.settle(Settle { turns: ends.collect(), ..Settle::default() }).await.unwrap();
    }

    #[tokio::test]
    async fn the_repair_of_a_few_lanes_leaves_the_others_of_their_queue_alone() {
        let store = Arc::new(Memory::new());
        let queues = vec![Queue::fifo("orders")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let mut node = NodeInfo::new(NodeId::from("worker-1"), Duration::from_secs(60));
        node.queues = vec!["orders".to_owned()];
        store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
        let (now, soon) = (Duration::ZERO, Duration::from_secs(600));
        fail(&store, &["many-1", "many-2"], 1, now).await;
        for _ in 0..4 {
            fail(&store, &[], 0, now).await;
        }
        fail(&store, &[], 0, soon).await;
        fail(&store, &["few-1", "few-2", "few-3"], 1, soon).await;
        fail(&store, &["far-1", "far-2"], 2, Duration::from_secs(3 * 3_600)).await;
        let plain = page(&store, "/").await.replace("&#38;", "&").replace("&amp;", "&");
        let links: Vec<&str> =
            plain.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        for (action, filter, key) in [
            ("action=retry&", "retries_min=5", "many-1"),
            ("action=retry&", "due_from=", "far-1"),
            ("by=retry_count&", "retries_min=5", "many-1"),
            ("by=retry_count&", "due_from=", "far-1"),
        ] {
            let fits = |link: &&&str| link.contains(action) && link.contains(filter);
            let link = links.iter().find(fits).unwrap_or_else(|| panic!("{filter}: {plain}"));
            let page = page(&store, link).await;
            assert!(page.contains(key) && !page.contains("few-1"), "{link}: {page}");
            let is_asked = action.starts_with("by=") || page.contains("<strong>2</strong> lanes");
            assert!(is_asked, "{link}: {page}");
        }
    }

    #[tokio::test]
    async fn all_pages_judge_workers_and_tell_times_by_the_clock_of_the_store() {
        let behind = || Timestamp::of_this_machine() - Duration::from_secs(600);
        let store = Arc::new(Memory::with_clock(behind));
        let later = Job::new("orders", &2).unwrap().run_in(Duration::from_secs(5_430));
        let jobs = vec![Job::new("orders", &1).unwrap(), later];
        store.push(Push { now: None, jobs }).await.unwrap();
        let mut node = NodeInfo::new(NodeId::from("worker-1"), Duration::from_secs(60));
        node.queues = vec!["orders".to_owned()];
        let beat = Heartbeat { now: None, node, beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        for path in ["/", "/queues", "/queues/orders"] {
            let page = page(&store, path).await;
            assert!(page.contains("orders") && !page.contains("no workers"), "{path}: {page}");
        }
        for path in ["/scheduled", "/queues/orders/lanes"] {
            let page = page(&store, path).await;
            assert!(page.contains(">in 1h30m</time>"), "{path}: {page}");
        }
    }
}
