//! One connection of a client of Faktory: from its greeting to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use seriatim::store::Command as NodeCommand;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::command::{self, Beat, Command, Failed};
use super::front::Front;
use super::greeting::{Greeting, Hello, WRONG};
use super::held::{Claim, HELD_MAX, Worker};
use super::job::{self, Claimed, Fetched, Pushed, QUEUE_DEFAULT};
use super::places::Place;
use super::reply;
use super::track::{self, Progress};
use crate::base::memory::memory_mb;
use crate::http::{Refusal, Replied, Room, Visitor};

/// Longest line before and after the greeting.
const GREETING_BYTES_MAX: usize = 4 << 10;
const LINE_BYTES_MAX: usize = 4 << 20;
/// A longer line needs room in the memory of its token.
const LINE_BYTES_FREE: usize = 16 << 10;
/// How long a client may take for its greeting, for a line that it has begun, to say anything at all, and to read.
const GREETING_MAX: Duration = Duration::from_secs(10);
const LINE_MAX: Duration = Duration::from_secs(30);
const SILENCE_MAX: Duration = Duration::from_secs(3_600);
const WRITE_MAX: Duration = Duration::from_secs(30);
/// How long a fetch waits for a job. Clients give up at five seconds.
const FETCH_WAIT: Duration = Duration::from_secs(2);
/// How long a claim lasts without a heartbeat. Clients send one every 15 seconds.
const LEASE_SECONDS: u32 = 60;
/// For how long a job may ask for more time, from now.
const RESERVED_MAX: Duration = Duration::from_secs(86_400);

/// Why a connection ends.
pub(super) enum Over {
    /// The client is gone, or has said END.
    Gone,
    /// This is said first.
    Said(String),
}

/// A line without its end, and the memory that it takes.
struct Line {
    bytes: Vec<u8>,
    _room: Option<Room>,
}

/// The answer to a heartbeat.
#[derive(Deserialize)]
struct Beaten {
    lost: Vec<String>,
    command: Option<NodeCommand>,
}

type Ended<T> = Result<T, Over>;

pub(super) struct Conversation {
    front: Arc<Front>,
    visitor: Visitor,
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    closing: watch::Receiver<bool>,
    worker: Option<Worker>,
    /// That of its address, and that of its token.
    place: Place,
    token_place: Option<Place>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            self.front.held.left(worker);
        }
    }
}

impl Conversation {
    pub(super) fn new(
        front: Arc<Front>,
        visitor: Visitor,
        (input, output): (OwnedReadHalf, OwnedWriteHalf),
        closing: watch::Receiver<bool>,
        place: Place,
    ) -> Self {
        Self {
            front,
            visitor,
            input: BufReader::new(input),
            output,
            closing,
            worker: None,
            place,
            token_place: None,
        }
    }

    pub(super) async fn run(mut self) {
        if let Err(Over::Said(why)) = self.talk().await {
            // The client may be gone; nothing is left to tell then.
            let _ = self.write(&reply::error(&why)).await;
        }
    }

    async fn talk(&mut self) -> Ended<()> {
        let greeted = timeout(GREETING_MAX, self.greet()).await;
        greeted.unwrap_or_else(|_| Err(Over::Said("no greeting came in time".to_owned())))?;
        loop {
            let line = self.line(LINE_BYTES_MAX, SILENCE_MAX).await?;
            self.front.commands.fetch_add(1, Ordering::Relaxed);
            let answer = match command::read(&line.bytes) {
                Ok(Command::End) => return Err(Over::Gone),
                // It writes its answer itself: a job that does not arrive goes back.
                Ok(Command::Fetch(queues)) => match self.fetch(queues).await? {
                    Some(answer) => answer,
                    None => continue,
                },
                Ok(command) => self.answer(command).await.unwrap_or_else(|why| reply::error(&why)),
                Err(why) => reply::error(&why),
            };
            self.write(&answer).await?;
        }
    }

    async fn greet(&mut self) -> Ended<()> {
        let greeting = Greeting::new(self.front.api.is_open()).map_err(Over::Said)?;
        self.write(&greeting.line()).await?;
        let line = self.line(GREETING_BYTES_MAX, GREETING_MAX).await?;
        let hello = Hello::read(&line.bytes).map_err(Over::Said)?;
        let token = greeting.check(&hello, &self.front.tokens).map_err(Over::Said)?;
        if self.front.api.is_open() {
            // There is no password.
        } else if !self.front.api.admits(self.visitor.peer, token.as_ref()) {
            return Err(Over::Said("too many wrong passwords from this address".to_owned()));
        } else if token.is_none() {
            return Err(Over::Said(WRONG.to_owned()));
        }
        self.visitor.token = token;
        if let Some(token) = &self.visitor.token {
            let place = self.front.places.greet(token.clone());
            self.token_place = Some(place.map_err(Over::Said)?);
        }
        if !self.place.keep() {
            return Err(Over::Gone);
        }
        // That of a producer is empty, where the client always sends one.
        if let Some(wid) = hello.wid.filter(|wid| !wid.is_empty()) {
            let worker = Worker { token: self.visitor.token.clone(), wid: wid.into() };
            self.front.held.connected(worker.clone());
            self.worker = Some(worker);
        }
        self.write(reply::OK).await
    }

    /// The next line, without its end.
    async fn line(&mut self, bytes_max: usize, silence_max: Duration) -> Ended<Line> {
        let begun = tokio::select! {
            begun = timeout(silence_max, self.input.fill_buf()) => begun,
            _ = self.closing.wait_for(|closing| *closing) => return Err(Over::Gone),
        };
        // To one that was silent for too long nothing is said: it would take that for the answer to its next command.
        if !matches!(begun, Ok(Ok([_, ..]))) {
            return Err(Over::Gone);
        }
        let read = timeout(LINE_MAX, self.rest_of_line(bytes_max)).await;
        read.unwrap_or_else(|_| Err(Over::Said("a line did not end in time".to_owned())))
    }

    async fn rest_of_line(&mut self, bytes_max: usize) -> Ended<Line> {
        let (mut bytes, mut room) = (Vec::new(), None);
        for most in [LINE_BYTES_FREE.min(bytes_max), bytes_max] {
            if bytes.len() >= LINE_BYTES_FREE {
                let taken = self.front.api.room(&self.visitor, bytes_max);
                room = Some(taken.map_err(|refusal| Over::Said(refusal.text))?);
            }
            let left = (most + 1).saturating_sub(bytes.len());
            let mut input = (&mut self.input).take(left as u64);
            input.read_until(b'\n', &mut bytes).await.map_err(|_| Over::Gone)?;
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
                return Ok(Line { bytes, _room: room });
            }
            if bytes.len() <= most {
                return Err(Over::Gone);
            }
        }
        Err(Over::Said(format!("a line has more than {bytes_max} bytes")))
    }

    async fn write(&mut self, text: &str) -> Ended<()> {
        match timeout(WRITE_MAX, self.output.write_all(text.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Over::Gone),
        }
    }

    async fn answer(&mut self, command: Command<'_>) -> Result<String, String> {
        match command {
            Command::Push(text) => {
                self.push(&Pushed::read(text)?).await.map(|()| reply::OK.to_owned())
            }
            Command::PushBulk(text) => self.push_list(text).await,
            Command::Ack(named) => self.done(&named.jid).await,
            Command::Fail(failed) => self.failed(failed).await,
            Command::Beat(beat) => self.beat(beat).await,
            Command::Track(jid) => self.track(jid).await,
            Command::Progress(progress) => self.progress(progress).await,
            Command::Mutate(mutation) => {
                mutation.begin(&self.front.api, &self.visitor).await.map(|()| reply::OK.to_owned())
            }
            Command::Info => self.info().await,
            Command::Pause(queues) => self.queues(&queues, "pause").await,
            Command::Resume(queues) => self.queues(&queues, "resume").await,
            // Where they have been dealt with.
            Command::Fetch(_) | Command::End => Ok(reply::OK.to_owned()),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Replied, Refusal> {
        self.front.api.ask(&self.visitor, method, path, body.to_string()).await
    }

    async fn push(&self, pushed: &Pushed<'_>) -> Result<(), String> {
        let answered = self.post(&pushed.queue, &pushed.body).await?.into_iter().next();
        let id = answered.unwrap_or_else(|| Err("there is no answer about the job".to_owned()))?;
        self.front.recent.note(self.visitor.token.as_ref(), &pushed.jid, id);
        Ok(())
    }

    /// Pushes the jobs of each queue together; one after another if they are refused so, to tell which of them is wrong.
    /// Answers what is wrong, by id.
    async fn push_list(&self, text: &str) -> Result<String, String> {
        let (mut wrong, mut queues) = (BTreeMap::new(), BTreeMap::<String, Vec<Pushed<'_>>>::new());
        for read in job::read_list(text)? {
            match read {
                Ok(pushed) => queues.entry(pushed.queue.clone()).or_default().push(pushed),
                Err((jid, why)) => drop(wrong.insert(jid, why)),
            }
        }
        for (queue, jobs) in queues {
            let bodies: Vec<_> = jobs.iter().map(|job| &job.body).collect();
            if let Ok(answered) = self.post(&queue, &bodies).await {
                for (one, answered) in jobs.into_iter().zip(answered) {
                    match answered {
                        Ok(id) => self.front.recent.note(self.visitor.token.as_ref(), &one.jid, id),
                        Err(why) => drop(wrong.insert(one.jid, why)),
                    }
                }
                continue;
            }
            for one in jobs {
                if let Err(why) = self.push(&one).await {
                    wrong.insert(one.jid, why);
                }
            }
        }
        serde_json::to_string(&wrong).map(|text| reply::text(&text)).map_err(|e| e.to_string())
    }

    /// Pushes one job or several together. Answers for each its id, or why it was refused.
    async fn post(
        &self,
        queue: &str,
        jobs: &impl Serialize,
    ) -> Result<Vec<Result<String, String>>, String> {
        check_queue(queue)?;
        let path = format!("/queues/{queue}/jobs");
        let body = serde_json::to_string(jobs).map_err(|error| error.to_string())?;
        let answer = self.front.api.ask(&self.visitor, Method::POST, &path, body).await;
        job::pushed(&answer.map_err(|refusal| refusal.text)?)
    }

    /// The answer to a fetch; none if a job was handed over.
    async fn fetch(&mut self, queues: Vec<&str>) -> Ended<Option<String>> {
        let Some(worker) = self.worker.clone() else {
            return Ok(Some(reply::error("FETCH: only for workers: name a wid in HELLO")));
        };
        if self.front.held.count(&worker) >= HELD_MAX {
            let why = format!("FETCH: this worker holds {HELD_MAX} jobs: ACK or FAIL some");
            return Ok(Some(reply::error(&why)));
        }
        let queues = if queues.is_empty() { vec![QUEUE_DEFAULT] } else { queues };
        let end = Instant::now() + FETCH_WAIT;
        match self.claim(&worker, &queues).await {
            Ok(Some((lane, room))) => self.hand_over(worker, lane, room).await.map(|()| None),
            Ok(None) => Ok(Some(reply::NOTHING.to_owned())),
            // A client asks again immediately.
            Err(refusal) if refusal.status == StatusCode::SERVICE_UNAVAILABLE => {
                tokio::select! {
                    () = tokio::time::sleep_until(end) => Ok(Some(reply::NOTHING.to_owned())),
                    _ = self.closing.wait_for(|closing| *closing) => Err(Over::Gone),
                }
            }
            Err(refusal) => Ok(Some(reply::error(&refusal.text))),
        }
    }

    /// The queues in their order, and then whichever has a job first.
    async fn claim(
        &self,
        worker: &Worker,
        queues: &[&str],
    ) -> Result<Option<(Claimed, Room)>, Refusal> {
        if queues.len() > 1 {
            for queue in queues {
                if let Some(lane) = self.claim_of(worker, &[queue], Duration::ZERO).await? {
                    return Ok(Some(lane));
                }
            }
        }
        self.claim_of(worker, queues, FETCH_WAIT).await
    }

    async fn claim_of(
        &self,
        worker: &Worker,
        queues: &[&str],
        wait: Duration,
    ) -> Result<Option<(Claimed, Room)>, Refusal> {
        #[derive(Deserialize)]
        struct Lanes {
            lanes: Vec<Claimed>,
        }
        let wish = json!({ "worker": worker.wid, "queues": queues, "limit": 1,
            "lease_ttl_sec": LEASE_SECONDS, "wait_ms": wait.as_millis() as u64 });
        let answer = self.ask(Method::POST, "/work/claim", &wish).await?;
        let room = answer.room();
        let lanes: Result<Lanes, _> = serde_json::from_slice(&answer);
        let wrong = |error: serde_json::Error| Refusal {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            text: error.to_string(),
        };
        let lane = lanes.map_err(wrong)?.lanes.into_iter().next();
        Ok(lane.map(|lane| (lane, room)))
    }

    /// Sends the job of a lane, which takes room until the client has read it. What does not arrive goes back.
    async fn hand_over(&mut self, worker: Worker, lane: Claimed, _room: Room) -> Ended<()> {
        let is_held = |jid: &str| self.front.held.has_other(jid, &lane.lane);
        let Some(mut fetched) = Fetched::of(&lane, is_held) else {
            self.give_back(&worker, lane.named()).await;
            return Err(Over::Said("the job cannot be read".to_owned()));
        };
        let claim = Claim::new(worker, lane, &fetched);
        self.front.held.add(fetched.jid.clone(), claim.clone());
        let text = reply::made_of(std::mem::take(&mut fetched.text));
        let is_gone = matches!(self.input.fill_buf().now_or_never(), Some(Ok([]) | Err(_)));
        if !is_gone && self.write(&text).await.is_ok() {
            return Ok(());
        }
        self.front.held.remove(&fetched.jid, &claim);
        self.give_back(&claim.worker, claim.named()).await;
        Err(Over::Gone)
    }

    /// Lets a job that did not arrive wait again.
    async fn give_back(&self, worker: &Worker, named: Value) {
        let released = self.settle_named(worker, named, json!({ "outcome": "release" })).await;
        if let Err(refusal) = released {
            tracing::warn!("cannot give back a job that did not arrive: {}", refusal.text);
        }
    }

    /// Ends the turn of a claim; whether it still stood.
    async fn settle(&self, claim: &Claim, outcome: Value) -> Result<bool, Refusal> {
        self.settle_named(&claim.worker, claim.named(), outcome).await
    }

    async fn settle_named(
        &self,
        worker: &Worker,
        mut result: Value,
        outcome: Value,
    ) -> Result<bool, Refusal> {
        for (name, value) in outcome.as_object().into_iter().flatten() {
            result[name] = value.clone();
        }
        let body = json!({ "worker": worker.wid, "results": [result] });
        let answer = self.ask(Method::POST, "/work/settle", &body).await?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        Ok(answer["results"][0]["status"] == "ok")
    }

    /// The claim on a job that this worker fetched, perhaps from a process before this one. Another worker's is none: the
    /// job was taken over. Who names no worker may end the jobs of all.
    async fn held(&self, jid: &str) -> Result<Option<Claim>, String> {
        if let Some(claim) = self.known(jid) {
            return Ok(Some(claim));
        }
        self.front.find_claims(&self.visitor).await?;
        Ok(self.known(jid))
    }

    /// The same, of what this process knows.
    fn known(&self, jid: &str) -> Option<Claim> {
        let claim = self.front.held.of(jid, self.visitor.token.as_ref())?;
        let is_its = self.worker.as_ref().is_none_or(|worker| *worker == claim.worker);
        is_its.then_some(claim)
    }

    async fn done(&self, jid: &str) -> Result<String, String> {
        let Some(claim) = self.held(jid).await? else {
            tracing::info!(
                jid,
                "a job was acknowledged that its worker does not hold: it was taken over"
            );
            return Ok(reply::OK.to_owned());
        };
        // The other jobs of its turn are handed over again.
        let result = match claim.jobs {
            1 => json!({ "outcome": "done" }),
            _ => json!({ "outcome": "release", "done": 1 }),
        };
        let stood = self.settle(&claim, result).await.map_err(|refusal| refusal.text)?;
        self.front.held.remove(jid, &claim);
        if !stood {
            tracing::info!(jid, "a job was acknowledged too late: it was taken over");
        }
        Ok(reply::OK.to_owned())
    }

    async fn failed(&self, failed: Failed) -> Result<String, String> {
        let Failed { jid, errtype, message } = failed;
        let Some(claim) = self.held(&jid).await? else {
            return Err(format!("Job not found {jid}"));
        };
        let message = message.unwrap_or_default();
        let error = errtype.map_or_else(|| message.clone(), |kind| format!("{kind}: {message}"));
        let result = match (claim.retry, claim.jobs) {
            (0, 1) => json!({ "outcome": "cancel", "error": error }),
            (0, _) => {
                self.forget(&jid, &claim).await?;
                json!({ "outcome": "release" })
            }
            (..0, 1) => json!({ "outcome": "bury", "error": error }),
            // A burial would take the others along; if it has no tries left, the engine buries it alone.
            _ => json!({ "outcome": "retry", "error": error }),
        };
        let stood = self.settle(&claim, result).await.map_err(|refusal| refusal.text)?;
        self.front.held.remove(&jid, &claim);
        if stood { Ok(reply::OK.to_owned()) } else { Err(format!("Job not found {jid}")) }
    }

    /// Ends only this job of a turn as cancelled, when the others go back. Not one that was taken over.
    async fn forget(&self, jid: &str, claim: &Claim) -> Result<(), String> {
        let beaten = self.extend(&claim.worker, vec![claim.named()]).await?;
        let id = claim.id.parse().ok().filter(|_| beaten.lost.is_empty());
        let id = id.ok_or_else(|| format!("Job not found {jid}"))?;
        self.front.api.flag(id).await.map_err(|refusal| refusal.text)
    }

    async fn beat(&self, beat: Beat) -> Result<String, String> {
        let Beat { wid, current_state } = beat;
        let worker = Worker { token: self.visitor.token.clone(), wid: wid.into() };
        match self.front.held.is_looked_up(&worker) {
            None => return Err(format!("Unknown worker {}", worker.wid)),
            // After a restart it may hold jobs that this process has not handed out.
            Some(false) => {
                self.front.find_claims(&self.visitor).await?;
                self.front.held.looked_up(&worker);
            }
            Some(true) => {}
        }
        let claims = self.front.held.extended(&worker);
        let beaten = self.extend(&worker, claims.iter().map(Claim::named).collect()).await?;
        let state = match beaten.command {
            Some(NodeCommand::Quiet) => "quiet",
            Some(NodeCommand::Stop) => "terminate",
            Some(NodeCommand::Resume) | None => return Ok(reply::OK.to_owned()),
        };
        // One that has ended its work says so until it is gone.
        match current_state.as_deref() {
            Some(known) if known == state || known == "terminate" => Ok(reply::OK.to_owned()),
            _ => Ok(reply::text(&json!({ "state": state }).to_string())),
        }
    }

    /// Extends claims of a worker, and forgets those that it has lost.
    async fn extend(&self, worker: &Worker, claims: Vec<Value>) -> Result<Beaten, String> {
        let body =
            json!({ "worker": worker.wid, "lease_ttl_sec": LEASE_SECONDS, "claims": claims });
        let answer = self.ask(Method::POST, "/work/heartbeat", &body).await;
        let answer = answer.map_err(|refusal| refusal.text)?;
        let beaten: Beaten = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let lost = |claim: &Value| {
            let lane = beaten.lost.iter().find(|lane| claim["lane"] == **lane)?;
            Some((lane.as_str(), claim["token"].as_u64()?))
        };
        self.front.held.lose(worker, &claims.iter().filter_map(lost).collect::<Vec<_>>());
        Ok(beaten)
    }

    /// How far a job is that was fetched or pushed with this token.
    async fn track(&self, jid: &str) -> Result<String, String> {
        let token = self.visitor.token.as_ref();
        let held = self.front.held.of(jid, token).map(|claim| claim.id);
        let Some(id) = held.or_else(|| self.front.recent.id(token, jid)) else {
            return Ok(reply::text(&track::unknown(jid)));
        };
        let job = self.ask(Method::GET, &format!("/jobs/{id}"), &Value::Null).await;
        let told = match job {
            Ok(job) => track::answer(jid, &job)?,
            // Its queue keeps it no longer.
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => track::unknown(jid),
            Err(refusal) => return Err(refusal.text),
        };
        Ok(reply::text(&told))
    }

    async fn progress(&self, progress: Progress) -> Result<String, String> {
        let lost = || format!("Job not found {}", progress.jid);
        let claim = self.held(&progress.jid).await?.ok_or_else(lost)?;
        if let Some(until) = progress.reserve_until {
            let left = until.duration_since(jiff::Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default().min(RESERVED_MAX);
            self.front.held.reserve(&claim, left);
        }
        let mut named = claim.named();
        if let Some(report) = progress.report() {
            named["progress"] = report;
        }
        let beaten = self.extend(&claim.worker, vec![named]).await?;
        if beaten.lost.is_empty() { Ok(reply::OK.to_owned()) } else { Err(lost()) }
    }

    async fn stats(&self) -> Result<Value, String> {
        let stats = self.ask(Method::GET, "/stats", &Value::Null).await;
        let stats = stats.map_err(|refusal| refusal.text)?;
        serde_json::from_slice(&stats).map_err(|error| error.to_string())
    }

    async fn info(&self) -> Result<String, String> {
        let stats = self.stats().await?;
        let queues = stats["by_worker"].as_object().into_iter().flatten();
        let sizes: BTreeMap<&String, &Value> =
            queues.map(|(name, figures)| (name, &figures["jobs"])).collect();
        let total = &stats["total"];
        let now = jiff::Timestamp::now();
        let info = json!({
            "now": now.to_string(),
            "server_utc_time": now.strftime("%H:%M:%S UTC").to_string(),
            "faktory": {
                "queues": sizes, "total_queues": sizes.len(), "total_enqueued": total["jobs"],
                "total_processed": total["processed"], "total_failures": total["failed"],
                "tasks": {
                    "Busy": { "size": total["claimed"] }, "Retries": { "size": total["retrying"] },
                    "Dead": { "size": total["dead"] },
                },
                "sets": {
                    "working": total["claimed"], "retries": total["retrying"], "dead": total["dead"],
                },
            },
            "server": {
                "description": "Seriatim", "faktory_version": env!("CARGO_PKG_VERSION"),
                "uptime": self.front.started_at.elapsed().as_secs(),
                "connections": self.front.places.count(),
                "command_count": self.front.commands.load(Ordering::Relaxed),
                "used_memory_mb": memory_mb("VmRSS").unwrap_or_default().round() as u64,
            },
        });
        Ok(reply::text(&info.to_string()))
    }

    async fn queues(&self, names: &[&str], action: &str) -> Result<String, String> {
        let all = if names == ["*"] { Some(self.stats().await?) } else { None };
        let of_all = all.iter().filter_map(|all| all["by_worker"].as_object());
        let of_all = of_all.flat_map(|queues| queues.keys().map(String::as_str));
        let named = names.iter().copied().filter(|_| all.is_none());
        for name in of_all.chain(named) {
            check_queue(name)?;
            let path = format!("/queues/{name}/{action}");
            let done = self.ask(Method::POST, &path, &Value::Null).await;
            done.map_err(|refusal| refusal.text)?;
        }
        Ok(reply::OK.to_owned())
    }
}

/// Its characters need no escapes in a path.
fn check_queue(name: &str) -> Result<(), String> {
    seriatim::store::validate_queue_name(name).map_err(|error| format!("queue {name:?}: {error}"))
}
