//! The ready-made `http` worker: sends payloads to a URL.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use seriatim::limits::DELAY_MAX;
use seriatim::{Batch, Context, Failure, Lane, Outcome, Outcomes, Payload, store::TurnJob};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::stopped::given_up;
use crate::base::outgoing::{self, with_causes};
use crate::config::{HTTP_TIMEOUT, HttpSettings};
use crate::trace;

/// Most bytes read of an answer, which is only for the error text.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most bytes of an answer in the error.
const ERROR_BYTES_MAX: usize = 512;
/// A server that answers "retry after 0 seconds" is not asked again without a pause.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// How long after its push a job is put off without counting a failure: a server that is never ready
/// must not keep it for ever.
const PUT_OFF_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Most requests of a worker at once: each is a connection, and a call may have thousands of lanes.
const REQUESTS_MAX: usize = 256;
const GIVEN_UP: &str = "the request was aborted";

/// A client with its settings.
pub(crate) struct Webhook {
    client: outgoing::Client,
    settings: HttpSettings,
    /// Those of the settings.
    headers: HeaderMap,
    /// A place for each request. Never closed.
    places: Semaphore,
}

/// What one request carries.
struct Letter<'a> {
    body: Bytes,
    jobs: &'a [&'a TurnJob],
    lane: &'a Lane<Payload>,
    /// The trace context of the call, where calls have one.
    call: Option<&'a str>,
    context: &'a Context,
}

/// What the heads of answers have decided about a lane. It counts also if the rest of an answer is given up.
#[derive(Default)]
struct Heard {
    /// How many jobs were accepted.
    done: usize,
    /// The outcome of the next one, if it was not.
    outcome: Option<Outcome>,
    /// The next one has not been sent: it waits for a place.
    waits: bool,
}

impl Letter<'_> {
    /// How long ago its oldest job was pushed.
    fn age(&self) -> Duration {
        let oldest = self.jobs.iter().map(|job| job.id.created_at()).min();
        oldest.map_or(Duration::ZERO, |oldest| self.lane.turn().claimed_at.since(oldest))
    }
}

impl Webhook {
    /// Fails when a header is missing, or when the URL is https and the system has no list of certificate authorities.
    pub(crate) fn new(settings: HttpSettings) -> Result<Arc<Self>, String> {
        let client = outgoing::client(settings.url.scheme_str() == Some("https"))?;
        let mut headers = HeaderMap::new();
        for (name, header) in &settings.headers {
            let value = header.value().map_err(|why| format!("`headers`: {name}: {why}"))?;
            headers.insert(name, value);
        }
        let places = Semaphore::new(REQUESTS_MAX);
        Ok(Arc::new(Self { client, settings, headers, places }))
    }

    /// Runs one call: its lanes side by side, the jobs of each in order.
    pub(crate) async fn run(
        self: Arc<Self>,
        batch: Batch<Payload>,
        context: Context,
    ) -> Result<Outcomes, Failure> {
        let mut lanes = JoinSet::new();
        let call = trace::of_call();
        for lane in batch.into_lanes() {
            let (webhook, call, context) = (self.clone(), call.clone(), context.clone());
            lanes.spawn(async move {
                let mut heard = Heard { waits: true, ..Heard::default() };
                let ended = tokio::select! {
                    outcome = webhook.lane(&lane, call.as_deref(), &context, &mut heard) => {
                        Some(outcome)
                    }
                    // Running requests are given up with the connection.
                    () = context.cancelled() => None,
                };
                let Heard { done, outcome, waits } = heard;
                let is_all_done = done == lane.payloads().len();
                let heard = outcome.or(is_all_done.then_some(Outcome::Done));
                let heard = heard.or(waits.then_some(Outcome::Release));
                (lane.id(), done, ended.or(heard))
            });
        }
        let (mut outcomes, mut has_ended) = (Outcomes::new(), false);
        while let Some(ended) = lanes.join_next().await {
            let (lane, done, outcome) = ended?;
            has_ended |= done > 0 || outcome.is_some();
            outcomes.set_after(lane, done, outcome.unwrap_or_else(|| given_up(&context, GIVEN_UP)));
        }
        if has_ended { Ok(outcomes) } else { Err(GIVEN_UP.into()) }
    }

    /// The outcome of a lane after those of its jobs that are done.
    async fn lane(
        &self,
        lane: &Lane<Payload>,
        call: Option<&str>,
        context: &Context,
        heard: &mut Heard,
    ) -> Outcome {
        let jobs: Vec<&TurnJob> = lane.jobs().map(|(job, _)| job).collect();
        if self.settings.sends_lists {
            let texts: Vec<&[u8]> = lane.payloads().iter().map(Payload::as_bytes).collect();
            let body = [b"[", texts.join(&b","[..]).as_slice(), b"]"].concat().into();
            return self.send(&Letter { body, jobs: &jobs, lane, call, context }, heard).await;
        }
        for (place, payload) in lane.payloads().iter().enumerate() {
            let (body, jobs) = (payload.to_bytes(), &jobs[place..=place]);
            match self.send(&Letter { body, jobs, lane, call, context }, heard).await {
                Outcome::Done => {}
                outcome => return outcome,
            }
        }
        Outcome::Done
    }

    /// What the receiver makes of its jobs is `heard` as soon as it has decided. The wait for a place is the call's time,
    /// not the request's.
    async fn send(&self, letter: &Letter<'_>, heard: &mut Heard) -> Outcome {
        heard.waits = true;
        let _place = self.places.acquire().await;
        if letter.context.is_cancelled() {
            // The place is of a request that was given up, as this one would be.
            return Outcome::Release;
        }
        heard.waits = false;
        let retry = |error: String| Outcome::Retry { error: error.into(), retry_in: None };
        let request = match self.request(letter) {
            Ok(request) => request,
            Err(error) => return Outcome::Bury { error: error.to_string().into() },
        };
        let (began, limit) = (Instant::now(), self.settings.timeout);
        let answer = self.client.request(request);
        let answer = match limit {
            Some(limit) => timeout(limit, answer).await.map_err(|_| limit),
            None => Ok(answer.await),
        };
        let (head, body) = match answer {
            Ok(Ok(answer)) => answer.into_parts(),
            Ok(Err(error)) => return retry(with_causes(&error)),
            Err(limit) => {
                return retry(format!("no answer within {}", seriatim::duration::format(limit)));
            }
        };
        match self.judge(&head, &[], letter) {
            Outcome::Done => heard.done += letter.jobs.len(),
            outcome => heard.outcome = Some(outcome),
        }
        // The head decides. The rest is for the error, and read to its end so that the receiver is not cut off.
        let until = limit.map_or_else(|| Instant::now() + HTTP_TIMEOUT, |limit| began + limit);
        let text = beginning(body, until).await;
        self.judge(&head, &text, letter)
    }

    fn request(&self, letter: &Letter<'_>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::new(Full::new(letter.body.clone()));
        *request.method_mut() = self.settings.method.clone();
        *request.uri_mut() = self.settings.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(outgoing::USER_AGENT));
        headers.extend(self.headers.clone());
        for (name, value) in own_headers(letter)? {
            headers.insert(name, value);
        }
        Ok(request)
    }

    /// The text is for the error alone.
    fn judge(&self, head: &Parts, text: &[u8], letter: &Letter<'_>) -> Outcome {
        let status = head.status;
        if status.is_success() {
            return Outcome::Done;
        }
        let later =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(length) = retry_after(&head.headers).filter(|_| later) {
            if letter.age() <= PUT_OFF_MAX {
                return Outcome::Snooze { length };
            }
            let (limit, told) = (seriatim::duration::format(PUT_OFF_MAX), told(status, text));
            let error = format!("postponed for longer than {limit} after the push: {told}").into();
            return Outcome::Retry { error, retry_in: Some(length) };
        }
        let error: Arc<str> = told(status, text).into();
        let is_refused = status.is_client_error() && !later;
        if is_refused && self.settings.is_refusal_final {
            Outcome::Bury { error }
        } else {
            Outcome::Retry { error, retry_in: None }
        }
    }
}

/// What arrives of a body until then.
async fn beginning(mut body: Incoming, until: Instant) -> Vec<u8> {
    let mut text = Vec::new();
    let reading = async {
        while text.len() < ANSWER_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    };
    let _ = timeout_at(until, reading).await;
    text
}

/// What the receiver can tell repeats and stale requests by.
fn own_headers(letter: &Letter<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidHeaderValue> {
    let lane = letter.lane;
    let first = letter.jobs.first().map(|job| job.id.to_string()).unwrap_or_default();
    let attempt = letter.jobs.first().map_or(0, |job| job.attempt);
    let repeat = match letter.jobs {
        [_] => first.clone(),
        several => name_of(several),
    };
    let mut headers = vec![
        (HeaderName::from_static("idempotency-key"), HeaderValue::try_from(repeat)?),
        (HeaderName::from_static("seriatim-job-id"), HeaderValue::try_from(first)?),
        (HeaderName::from_static("seriatim-token"), HeaderValue::from(lane.token().0)),
        (HeaderName::from_static("seriatim-attempt"), HeaderValue::from(attempt)),
    ];
    if let Some(key) = &lane.turn().key {
        let key = HeaderValue::try_from(percent_encoded(key))?;
        headers.push((HeaderName::from_static("seriatim-key"), key));
    }
    let of_jobs = || letter.jobs.iter().find_map(|job| trace::of_job(job));
    if let Some(traceparent) = letter.call.or_else(of_jobs) {
        headers.push((HeaderName::from_static("traceparent"), HeaderValue::try_from(traceparent)?));
    }
    Ok(headers)
}

/// The same for the same jobs, however often they are sent together.
fn name_of(jobs: &[&TurnJob]) -> String {
    let mut hash = Sha256::new();
    jobs.iter().for_each(|job| hash.update(job.id.to_bytes()));
    crate::base::text::hex(&hash.finalize())
}

/// RFC 3986: what is neither a letter, a digit nor one of `-._~` as `%` and its byte.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// RFC 9110, section 10.2.3: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let length = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            let length = date.duration_since(Timestamp::now());
            Duration::try_from(length).unwrap_or_default()
        }
    };
    Some(length.clamp(RETRY_AFTER_MIN, DELAY_MAX))
}

/// The status, and the beginning of the text.
fn told(status: StatusCode, text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let text = &text[..text.floor_char_boundary(ERROR_BYTES_MAX)];
    let hint = if status.is_redirection() { " (redirects are not followed)" } else { "" };
    let colon = if text.is_empty() { "" } else { ": " };
    format!("the server answered {status}{hint}{colon}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_forms_and_never_spins() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("0"), Some(RETRY_AFTER_MIN));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(RETRY_AFTER_MIN));
        assert!(read("Fri, 06 Nov 2082 08:49:37 GMT").unwrap() > Duration::from_secs(86_400));
        assert_eq!(read("99999999999999999"), Some(DELAY_MAX));
        for wrong in ["-1", "soon", "", "1.5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn any_key_fits_into_a_header() {
        assert_eq!(percent_encoded("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(percent_encoded("ключ 1\r\nx: y"), "%D0%BA%D0%BB%D1%8E%D1%87%201%0D%0Ax%3A%20y");
    }
}
