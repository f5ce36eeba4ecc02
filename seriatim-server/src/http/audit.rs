//! The audit log: one line for each request that changes something, written before it
//! is answered, even if the client no longer waits.

mod asked;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use seriatim::limits::QUEUE_NAME_BYTES_MAX;
use seriatim::{SharedStore, Timestamp};
use tokio::time::Instant;

use super::caller::{Peer, REQUEST_ID};
use super::limits::{
    AUDIT_FAILURE_TOLD_EVERY, AUDIT_REFUSED_KEPT_PER_HOUR_MAX, AUDIT_REFUSED_PER_SECOND_MAX,
    off_thread,
};
use super::who::Who;
use crate::app::chain::Chain;
use crate::app::deeds::{self, Deed};
use crate::app::operations::QUEUES_MAX;
use crate::base::lock::lock;
use crate::base::text::one_line;
use crate::base::time::absolute;
use crate::config::{AUDIT, Audited, Role};

/// Longest header that is taken over, in bytes.
const HEADER_BYTES_MAX: usize = 256;
/// Longest name of what something was done to, in bytes: as long as most keys are.
const NAME_BYTES_MAX: usize = 600;
/// Most fields of a query that are taken over.
const NAMES_MAX: usize = 8;
/// Longest path and query that are taken over, in bytes.
const TARGET_BYTES_MAX: usize = 2_000;
/// The same for callers without a token: enough to see what they tried, and too little to fill a disk with.
const STRANGER_NAME_BYTES_MAX: usize = 64;
const STRANGER_TARGET_BYTES_MAX: usize = 200;
/// Whose requests have no token, or one that nobody has.
const UNKNOWN: &str = "unknown";
/// Most callers whose refusals are counted apart. More are possible only behind a proxy that names people.
const CALLERS_MAX: usize = 1_000;

/// Where the lines go.
#[derive(Default)]
pub(crate) struct Audit {
    what: Audited,
    /// Without a file they are lines of the log.
    file: Option<Arc<Mutex<Chain>>>,
    /// Where deeds are also kept, for those who cannot read the file.
    kept: OnceLock<SharedStore>,
    storms: Mutex<Storms>,
}

/// How many lines of refused requests were written lately.
struct Storms {
    lines: Storm,
    kept: Storm,
    /// Lines that could not be written, as the log tells them.
    failures: Storm,
    left_out: u64,
}

/// A number for each caller and length of time.
struct Storm {
    most: u32,
    every: Duration,
    /// When the time of each caller began, and how many there were since.
    of: HashMap<String, (Instant, u32)>,
}

/// One line.
#[derive(Clone, Serialize)]
pub(super) struct Entry {
    at: String,
    who: String,
    role: Option<Role>,
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded_for: Option<String>,
    action: String,
    /// To what: the parts of the path and of the query, by name.
    on: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    method: String,
    target: String,
    request_id: Option<String>,
    status: u16,
    /// How many objects it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Refused requests before this one that have no line.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    /// Whether a known caller changes something; otherwise it is traffic, or a refusal of a stranger.
    #[serde(skip)]
    is_deed: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes it so.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The token with which a visitor logged in or out; travels with the answer.
#[derive(Clone)]
pub(super) struct Signed(pub(super) Who);

/// What a form does, and to what, in the words of who carries it out: a second reading of the form could be misled to say
/// something else. Travels with the request.
#[derive(Clone, Default)]
pub(super) struct Doing(Arc<OnceLock<(String, On)>>);

/// By name.
type On = Vec<(&'static str, String)>;

impl Doing {
    pub(super) fn is(&self, action: String, on: On) {
        let _ = self.0.set((action, on));
    }
}

/// What a request was done to, where only its body says it; travels with the answer.
#[derive(Clone)]
pub(super) struct Named(pub(super) &'static str, pub(super) String);

/// How many objects an action changed; travels with the answer.
#[derive(Clone, Copy)]
pub(super) struct Count(pub(super) u64);

impl Audit {
    /// Appends to a file; without one the lines are the log's.
    pub(crate) fn open(what: Audited, path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(Chain::open).transpose()?;
        let file = file.map(|chain| Arc::new(Mutex::new(chain)));
        Ok(Self { what, file, kept: OnceLock::new(), storms: Mutex::default() })
    }

    /// Keeps deeds in this store too.
    pub(super) fn keep_in(&self, store: SharedStore) {
        let _ = self.kept.set(store);
    }

    /// Keeps a deed in the store: one of a known caller. Of those that were refused only some, because the store keeps a
    /// fixed number, and a caller could push out the deeds of others by what is refused.
    async fn keep(&self, entry: &Entry) {
        let Some(store) = self.kept.get().filter(|_| entry.is_deed) else { return };
        let is_refused = entry.status >= StatusCode::BAD_REQUEST.as_u16();
        if is_refused && !lock(&self.storms).kept.admits(&entry.who) {
            return;
        }
        if let Err(error) = deeds::keep(&**store, &entry.deed()).await {
            tracing::warn!(%error, "cannot keep an audit entry in the store");
        }
    }

    pub(super) fn wants(&self, method: &Method, is_traffic: bool) -> bool {
        !method.is_safe() && (self.what == Audited::All || !is_traffic)
    }

    /// Writes a line. It is in the file when this is ready. Whether it could be written.
    pub(super) async fn write(
        &self,
        mut entry: Entry,
        status: StatusCode,
        count: Option<Count>,
    ) -> bool {
        entry.status = status.as_u16();
        entry.count = count.map(|Count(count)| count);
        entry.left_out = std::mem::take(&mut lock(&self.storms).left_out);
        // Texts and numbers only: nothing of it can fail to be written.
        let line = serde_json::to_string(&entry).unwrap_or_default();
        self.keep(&entry).await;
        let Some(file) = self.file.clone() else {
            tracing::info!(target: AUDIT, "{line}");
            return true;
        };
        // What was done stands in the log at least; of what was refused, and is not in the file, an example will do.
        let is_done = !status.is_client_error();
        let is_told = is_done || lock(&self.storms).failures.admits("");
        let append = move || {
            let written = lock(&file).append(&[&line]);
            if let Err(error) = written.as_ref()
                && is_told
            {
                tracing::error!(%error, "cannot write the audit log: {line}");
            }
            written.is_ok()
        };
        // It can wait for the disk and for other processes, however short the line is.
        off_thread(usize::MAX, append).await.unwrap_or(false)
    }

    /// Writes down a request that was refused, unless its caller has too many of them.
    pub(super) async fn refused(&self, entry: Entry, status: StatusCode) {
        let is_written = {
            let mut storms = lock(&self.storms);
            let is_written = storms.lines.admits(&entry.who);
            storms.left_out += u64::from(!is_written);
            is_written
        };
        if is_written {
            self.write(entry, status, None).await;
        }
    }
}

impl Default for Storms {
    fn default() -> Self {
        let storm = |most, every| Storm { most, every, of: HashMap::new() };
        Self {
            lines: storm(AUDIT_REFUSED_PER_SECOND_MAX, Duration::from_secs(1)),
            kept: storm(AUDIT_REFUSED_KEPT_PER_HOUR_MAX, Duration::from_secs(3_600)),
            failures: storm(1, AUDIT_FAILURE_TOLD_EVERY),
            left_out: 0,
        }
    }
}

impl Storm {
    /// Counts one more of this caller; false if it is one too many.
    fn admits(&mut self, who: &str) -> bool {
        let now = Instant::now();
        if self.of.len() >= CALLERS_MAX && !self.of.contains_key(who) {
            self.of.retain(|_, (since, _)| now - *since < self.every);
            if self.of.len() >= CALLERS_MAX {
                return false;
            }
        }
        let (since, count) = self.of.entry(who.to_owned()).or_insert((now, 0));
        if now - *since >= self.every {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= self.most
    }
}

/// Whether an answer of this status leaves a line, whatever was asked for.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS
    )
}

impl Entry {
    /// `pattern` is the path of the endpoint, with names for its parts.
    pub(super) fn of(request: &Request, who: Option<&Who>, pattern: &str) -> Self {
        let name = who.map_or(UNKNOWN, Who::name).to_owned();
        let (name_max, target_max) = match who {
            Some(_) => (NAME_BYTES_MAX, TARGET_BYTES_MAX),
            None => (STRANGER_NAME_BYTES_MAX, STRANGER_TARGET_BYTES_MAX),
        };
        let role = who.and_then(Who::role);
        let peer = request.extensions().get::<Peer>();
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        Self {
            at: absolute(Timestamp::of_this_machine()),
            who: name,
            role,
            from: peer.map(|Peer(address)| address.ip().to_string()),
            forwarded_for: text(request.headers(), "x-forwarded-for"),
            action: action(request.method(), pattern),
            on: names(request, pattern, name_max),
            asked: None,
            method: request.method().to_string(),
            target: one_line(&target[..target.floor_char_boundary(target_max)]),
            request_id: request_id(request.headers()),
            status: 0,
            count: None,
            left_out: 0,
            is_deed: false,
        }
    }

    /// Names the bearer of the token that a form of the login was about.
    pub(super) fn is_by(&mut self, who: &Who) {
        (self.who, self.role) = (who.name().to_owned(), who.role());
    }

    /// Marks it as a change by a known caller.
    pub(super) fn is_deed(&mut self) {
        self.is_deed = true;
    }

    fn deed(&self) -> Deed {
        Deed {
            at: self.at.clone(),
            who: self.who.clone(),
            role: self.role.map(|role| role.name().to_owned()),
            from: self.from.clone(),
            action: self.action.clone(),
            on: self.on.clone(),
            asked: self.asked.clone(),
            status: self.status,
            count: self.count,
            request_id: self.request_id.clone(),
            noted_at: Timestamp::default(),
        }
    }

    /// Takes over what a form did, and what to.
    pub(super) fn does(&mut self, doing: &Doing) {
        let Some((action, on)) = doing.0.get() else { return };
        self.action.clone_from(action);
        self.on = on.iter().map(|(name, value)| ((*name).to_owned(), told(name, value))).collect();
    }

    /// Adds what the body names.
    pub(super) fn is_on(&mut self, Named(name, value): &Named) {
        self.on.insert((*name).to_owned(), told(name, value));
    }

    /// Adds what the request carries.
    pub(super) fn asks(&mut self, body: &[u8]) {
        self.asked = asked::in_words(body);
    }
}

/// `lane pause`, `morgue delete`, `queue define`, `job push`.
fn action(method: &Method, pattern: &str) -> String {
    let path = pattern.strip_prefix("/api/v1/").unwrap_or(pattern).trim_start_matches('/');
    let mut words: Vec<&str> = path.split('/').filter(|word| !word.starts_with('{')).collect();
    if words == ["login"] {
        return "login".to_owned();
    }
    if words == ["queues", "jobs"] {
        return "job push".to_owned();
    }
    if words == ["operations"] && *method == Method::POST {
        return "operation start".to_owned();
    }
    if words.len() > 2 {
        words.remove(0);
    }
    let noun = words.first().map_or("", |noun| noun.strip_suffix('s').unwrap_or(noun));
    match words.get(1) {
        Some(verb) => format!("{noun} {verb}"),
        None if *method == Method::PUT => format!("{noun} define"),
        None => format!("{noun} {}", method.as_str().to_lowercase()),
    }
}

/// A value as a line has it. Of several queues it has each, because an entry is found by each.
fn told(name: &str, value: &str) -> String {
    match name {
        "queues" => {
            let queues = value.split(',').take(QUEUES_MAX);
            let queues: Vec<String> = queues.map(|one| short(one, QUEUE_NAME_BYTES_MAX)).collect();
            queues.join(",")
        }
        _ => short(value, NAME_BYTES_MAX),
    }
}

fn short(value: &str, bytes_max: usize) -> String {
    let kept = &value[..value.floor_char_boundary(bytes_max)];
    let more = if kept.len() < value.len() { "…" } else { "" };
    one_line(kept) + more
}

/// The parts of the path that have names, and those of the query.
fn names(request: &Request, pattern: &str, bytes_max: usize) -> BTreeMap<String, String> {
    let uri = request.uri();
    // What stands before the pattern is where the API is mounted.
    let parts: Vec<&str> = uri.path().split('/').collect();
    let known: Vec<&str> = pattern.split('/').skip(1).collect();
    let parts = &parts[parts.len().saturating_sub(known.len())..];
    let of_path = known.iter().zip(parts).filter_map(|(name, part)| {
        let name = name.strip_prefix('{')?.strip_suffix('}')?;
        // A part as the value of a query, where a plus stands for itself.
        let pair = format!("{name}={}", part.replace('+', "%2B"));
        form_urlencoded::parse(pair.as_bytes())
            .next()
            .map(|(name, part)| (name.into_owned(), part.into_owned()))
    });
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let of_query = query.map(|(name, value)| (name.into_owned(), value.into_owned()));
    let short = |text: String| one_line(&text[..text.floor_char_boundary(bytes_max)]);
    // The last value of a name counts. The path comes last: a handler may ignore the query, but never the path.
    of_query
        .take(NAMES_MAX)
        .chain(of_path)
        .map(|(name, value)| (short(name), short(value)))
        .collect()
}

/// The id of a request, as a line has it.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    text(headers, REQUEST_ID.as_str())
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.chars().take(HEADER_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_caller_has_its_own_number_of_refusals() {
        let mut storm = Storm { most: 2, every: Duration::from_secs(1), of: HashMap::new() };
        assert_eq!(["a", "a", "a", "b"].map(|who| storm.admits(who)), [true, true, false, true]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(storm.admits("a"));
        for i in 0..CALLERS_MAX * 2 {
            storm.admits(&i.to_string());
        }
        assert_eq!(storm.of.len(), CALLERS_MAX);
    }

    #[tokio::test]
    async fn what_is_refused_pushes_no_deeds_of_others_out_of_the_store() {
        use seriatim::store::Memory;
        let (audit, store) = (Audit::default(), Arc::new(Memory::new()));
        audit.keep_in(store.clone());
        let request = Request::builder().uri("/do").body(Body::empty()).unwrap();
        let mut entry = Entry::of(&request, None, "/do");
        entry.is_deed();
        for _ in 0..AUDIT_REFUSED_KEPT_PER_HOUR_MAX + 50 {
            audit.write(entry.clone(), StatusCode::NOT_FOUND, None).await;
        }
        audit.write(entry, StatusCode::OK, None).await;
        let kept = deeds::latest(&*store, deeds::Wanted::default(), 1_000).await.unwrap().entries;
        assert_eq!(kept.len(), AUDIT_REFUSED_KEPT_PER_HOUR_MAX as usize + 1);
    }

    #[test]
    fn a_line_of_a_stranger_is_short() {
        let target = format!("/logout?{}", "a=1&".repeat(3_000) + &"A".repeat(3_000));
        let request = Request::builder().method("POST").uri(target);
        let request = request.header("x-forwarded-for", "1".repeat(3_000));
        let entry = Entry::of(&request.body(Body::empty()).unwrap(), None, "/logout");
        assert!(serde_json::to_string(&entry).unwrap().len() < 2_000);
    }

    #[test]
    fn an_action_is_told_in_words() {
        let cases = [
            (Method::POST, "/api/v1/queues/{queue}/pause", "queue pause"),
            (Method::POST, "/api/v1/queues/{queue}/lane/delete", "lane delete"),
            (Method::POST, "/api/v1/queues/{queue}/morgue/requeue", "morgue requeue"),
            (Method::POST, "/api/v1/queues/{queue}/jobs", "job push"),
            (Method::POST, "/api/v1/queues/{queue}/lane/release", "lane release"),
            (Method::DELETE, "/api/v1/queues/{queue}", "queue delete"),
            (Method::PUT, "/api/v1/queues", "queue define"),
            (Method::PUT, "/api/v1/queues/{queue}/limits", "queue limits"),
            (Method::PUT, "/api/v1/queues/{queue}", "queue define"),
            (Method::POST, "/api/v1/jobs/{job_id}/retry", "job retry"),
            (Method::POST, "/api/v1/nodes/{node}/stop", "node stop"),
            (Method::POST, "/api/v1/work/settle", "work settle"),
            (Method::POST, "/login", "login"),
        ];
        for (method, pattern, words) in cases {
            assert_eq!(action(&method, pattern), words, "{pattern}");
        }
        let path = "/jobs/api/v1/queues/a%2Fb/lane/pause?key=a+b%0d%E2%80%AE&queue=other";
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let on = names(&request, "/api/v1/queues/{queue}/lane/pause", NAME_BYTES_MAX);
        let expected = [("key", r"a b\r\u{202e}"), ("queue", "a/b")];
        assert_eq!(on, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
