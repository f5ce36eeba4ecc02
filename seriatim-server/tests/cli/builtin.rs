//! Ready-made workers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim::store::{Cancel, Declare, JobState, JobView, Push};
use seriatim::{Client, Job, JobId, Mode, Queue, SharedStore};

use crate::receiver::{Receiver, answer, read};
use crate::site::{QUEUE, Serving, Site, eventually, kill, text, wait_until};

/// A site with one worker, and its store.
pub(crate) struct Ready {
    pub(crate) site: Site,
    pub(crate) store: SharedStore,
}

impl Ready {
    /// For a ready-made one.
    pub(crate) async fn new(mode: &str, queue: &str, worker: &str) -> Self {
        let node = "lease = \"2s\"\nshutdown_timeout = \"1s\"";
        let queue = format!("backoff = {{ kind = \"constant\", base = \"10ms\" }}\n{queue}");
        Self::on(node, mode, &queue, worker).await
    }

    /// The lines of its node, of its queue and of its worker.
    pub(crate) async fn on(node: &str, mode: &str, queue: &str, worker: &str) -> Self {
        let site = Site::new(&format!(
            "[node]\nheartbeat = \"300ms\"\n{node}\n\
             [queues.{QUEUE}]\nmode = \"{mode}\"\nretain_completed = \"1h\"\n{queue}\n\
             [[workers]]\nqueue = \"{QUEUE}\"\n{worker}\n"
        ));
        let store = site.store().await;
        let queue = Queue::new(QUEUE, Mode::from_name(mode).unwrap());
        let queue = queue.retain_completed(Duration::from_secs(3_600));
        store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
        Self { site, store }
    }

    pub(crate) async fn push(&self, key: &str, payload: Value) -> JobId {
        let job = Job::new(QUEUE, &payload).unwrap().key(key);
        Client::new(self.store.clone()).push(job).await.unwrap().job_id
    }

    pub(crate) fn serve(&self) -> Serving {
        self.site.serve("history.ndjson")
    }

    pub(crate) async fn job(&self, id: JobId) -> JobView {
        self.store.job(id).await.unwrap().unwrap()
    }

    pub(crate) async fn ends(&self, id: JobId) -> JobView {
        let has_ended =
            async || !matches!(self.job(id).await.state, JobState::Queued | JobState::Running);
        eventually("a job ends", has_ended).await;
        self.job(id).await
    }

    pub(crate) async fn fails(&self, id: JobId, why: &str) {
        let job = self.ends(id).await;
        let error = job.error.as_deref().unwrap_or_default();
        assert!(job.state == JobState::Dead && error.contains(why), "{why}: {job:?}");
    }

    pub(crate) async fn cancel(&self, id: JobId) {
        self.store.cancel(Cancel { now: None, jobs: vec![id] }).await.unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.site.path("history.ndjson.log")).unwrap()
    }

    pub(crate) async fn logs(&self, text: &str) {
        eventually(text, async || self.log().contains(text)).await;
    }

    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.site.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.site.path(name).parent().unwrap()).unwrap();
        fs::write(self.site.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.site.path(name)).unwrap_or_default()
    }
}

fn webhook(receiver: &Receiver) -> String {
    format!(
        "builtin = \"http\"\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer x\" }}",
        receiver.url
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_reads_secret_headers_from_a_variable_and_a_file() {
    let receiver = Receiver::start(|_, _| answer("204 No Content", "", ""));
    let headers = "{ Authorization = { env = \"HOOK_TOKEN\" }, X-Key = { file = \"key\" } }";
    let worker = format!("builtin = \"http\"\nurl = \"{}\"\nheaders = {headers}", receiver.url);
    let ready = Ready::new("fifo", "", &worker).await;
    ready.write("key", "4711\n");
    let lacking = ready.site.run(&["config", "check"]);
    assert!(text(&lacking).contains("variable HOOK_TOKEN is not set"), "{}", text(&lacking));
    let mut check = ready.site.command(&["config", "check"]);
    let empty = check.env("HOOK_TOKEN", "\n").output().unwrap();
    assert!(text(&empty).contains("variable HOOK_TOKEN is empty"), "{}", text(&empty));
    let job = ready.push("k", json!({})).await;
    let mut command = ready.site.command(&["serve", "--no-http"]);
    let serving = Serving(command.env("HOOK_TOKEN", "Bearer x").spawn().unwrap());
    assert_eq!(ready.ends(job).await.state, JobState::Succeeded);
    serving.stop();
    let request = &receiver.received()[0];
    assert_eq!((request.header("authorization"), request.header("x-key")), ("Bearer x", "4711"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_sends_each_job_in_order_with_what_tells_repeats_apart() {
    let receiver = Receiver::start(|_, _| answer("204 No Content", "", ""));
    let ready = Ready::new("fifo", "", &webhook(&receiver)).await;
    let first = ready.push("order 42/ü", json!({"n": 1})).await;
    let second = ready.push("order 42/ü", json!({"n": 2})).await;
    let serving = ready.serve();
    assert_eq!(ready.ends(second).await.state, JobState::Succeeded);
    serving.stop();
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    for (place, id) in [first, second].into_iter().enumerate() {
        let request = &received[place];
        assert_eq!(request.line, "POST /hook HTTP/1.1");
        assert_eq!(request.body, format!("{{\"n\":{}}}", place + 1));
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("authorization"), "Bearer x");
        assert_eq!(request.header("idempotency-key"), id.to_string());
        assert_eq!(request.header("seriatim-job-id"), id.to_string());
        assert_eq!(request.header("seriatim-key"), "order%2042%2F%C3%BC");
        assert_eq!(request.header("seriatim-attempt"), "1");
    }
    let token = |place: usize| -> i64 { received[place].header("seriatim-token").parse().unwrap() };
    assert!(token(0) < token(1), "tokens of a key only grow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn l13_a_webhook_hears_of_jobs_that_died_with_their_payloads() {
    let receiver = Receiver::start(|_, _| answer("204 No Content", "", ""));
    let hook = webhook(&receiver);
    let workers = format!(
        "command = [\"sh\", \"-c\", \"echo no stock >&2; exit 65\"]\n\
         [[workers]]\nqueue = \"seriatim.exhausted\"\n{hook}"
    );
    let ready = Ready::new("fifo", "", &workers).await;
    let id = ready.push("order-42", json!({"status": "paid"})).await;
    let serving = ready.serve();
    eventually("the webhook hears of it", async || !receiver.received().is_empty()).await;
    serving.stop();
    let told: Value = serde_json::from_str(&receiver.received()[0].body).unwrap();
    assert_eq!((&told["job_id"], &told["key"]), (&json!(id.to_string()), &json!("order-42")));
    assert_eq!((&told["error"], &told["queue"]), (&json!("no stock"), &json!(QUEUE)));
    assert_eq!(told["payload"], json!({"status": "paid"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_sends_what_waits_for_a_key_as_one_list_under_the_same_name_at_each_try() {
    let receiver = Receiver::start(|_, before| match before {
        0 => answer("500 Internal Server Error", "", "not now"),
        _ => answer("200 OK", "", "fine"),
    });
    let ready = Ready::new("accumulate", "", &webhook(&receiver)).await;
    for number in [1, 2, 3] {
        ready.push("a", json!({ "n": number })).await;
    }
    let serving = ready.serve();
    wait_until(&ready.store, |stats| stats.jobs == 0).await;
    serving.stop();
    let received = receiver.received();
    let bodies: Vec<&str> = received.iter().map(|request| request.body.as_str()).collect();
    assert_eq!(bodies, [r#"[{"n":1},{"n":2},{"n":3}]"#; 2]);
    let names = received.iter().map(|request| request.header("idempotency-key"));
    let names: Vec<&str> = names.collect();
    assert!(names[0] == names[1] && names[0].len() == 64, "{names:?}");
    assert_eq!(received[1].header("seriatim-attempt"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_answers_decide() {
    let receiver = Receiver::start(|request, _| match request.body.trim_matches('"') {
        "busy" => answer("429 Too Many Requests", "retry-after: 3600\r\n", ""),
        "down" => answer("503 Service Unavailable", "", "back soon"),
        "gone" => answer("404 Not Found", "", "no such order"),
        "moved" => answer("302 Found", "location: http://127.0.0.1:1/\r\n", ""),
        "endless" => answer("500 Oops", "", &"x".repeat(10_000_000)),
        "garbage" => "this is not HTTP\r\n\r\n".to_owned(),
        _ => answer("200 OK", "", ""),
    });
    let ready = Ready::new("fifo", "max_retries = 1", &webhook(&receiver)).await;
    let serving = ready.serve();
    let busy = ready.push("busy", json!("busy")).await;
    for (body, error) in [
        ("down", "503 Service Unavailable: back soon"),
        ("gone", "the server answered 404 Not Found: no such order"),
        ("moved", "302 Found (redirects are not followed)"),
        ("endless", "the server answered 500 Internal Server Error: xxxxx"),
        ("garbage", "client error"),
    ] {
        let id = ready.push(body, json!(body)).await;
        ready.fails(id, error).await;
    }
    let calls = |body: &str| {
        let of = receiver.received().into_iter().filter(|r| r.body == format!("\"{body}\""));
        of.count()
    };
    assert_eq!((calls("down"), calls("gone")), (2, 1), "what is refused is not tried again");
    let put_off = async || {
        let job = ready.job(busy).await;
        calls("busy") == 1 && job.state == JobState::Queued
    };
    eventually("it is put off", put_off).await;
    serving.stop();
    let job = ready.job(busy).await;
    let wait = job.run_at.as_micros() - seriatim::Timestamp::of_this_machine().as_micros();
    assert!(job.retry_count == -1 && wait > 3_000_000_000, "{job:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_does_not_put_a_job_off_for_ever() {
    let receiver = Receiver::start(|_, _| {
        answer("503 Service Unavailable", "retry-after: 3600\r\n", "in repair")
    });
    let ready = Ready::new("fifo", "max_retries = 0", &webhook(&receiver)).await;
    let now = ready.store.now().await.unwrap();
    let mut pushed = Vec::new();
    for (key, age_s) in [("new", 0), ("old", 25 * 3_600)] {
        let jobs = vec![Job::new(QUEUE, &json!({})).unwrap().key(key)];
        let now = Some(now - Duration::from_secs(age_s));
        pushed.push(ready.store.push(Push { now, jobs }).await.unwrap()[0].job_id);
    }
    let serving = ready.serve();
    ready
        .fails(pushed[1], "postponed for longer than 1d after the push: the server answered 503")
        .await;
    eventually("it is put off", async || ready.job(pushed[0]).await.run_at > now).await;
    serving.stop();
    let job = ready.job(pushed[0]).await;
    assert_eq!((job.state, job.retry_count), (JobState::Queued, -1), "{job:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_keeps_what_was_answered_before_a_stop() {
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let receiver = Receiver::start(move |_, before| {
        if before > 0 {
            // Answers when the test ends.
            let _ = held.recv();
        }
        answer("200 OK", "", "")
    });
    let ready = Ready::new("fifo", "take = 2", &webhook(&receiver)).await;
    let ids = [ready.push("a", json!(1)).await, ready.push("a", json!(2)).await];
    let serving = ready.serve();
    eventually("the first has ended", async || !receiver.received().is_empty()).await;
    serving.stop();
    drop(let_go);
    assert_eq!(ready.job(ids[0]).await.state, JobState::Succeeded, "it was answered");
    let second = ready.job(ids[1]).await;
    assert_eq!((second.state, second.retry_count), (JobState::Queued, -1), "{second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_without_an_answer_is_tried_again() {
    // Nobody listens on port 1; the other one listens and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/", silent.local_addr().unwrap());
    for (url, timeout, why) in [
        ("http://127.0.0.1:1/", "1m", "refused"),
        (silent_url.as_str(), "300ms", "no answer within 300ms"),
    ] {
        let worker = format!("builtin = \"http\"\nurl = \"{url}\"\ntimeout = \"{timeout}\"");
        let ready = Ready::new("fifo", "max_retries = 1", &worker).await;
        let serving = ready.serve();
        let id = ready.push("a", json!(1)).await;
        ready.fails(id, why).await;
        assert_eq!(ready.job(id).await.attempt, 2);
        serving.stop();
    }
}

/// Sends each request the same head and the beginning of a body, and no more; counts them.
fn that_stalls(head: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (count, head) = (Arc::<AtomicUsize>::default(), head.to_owned());
    let counted = count.clone();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            // A request that is not read would be reset with the answer.
            let _ = stream.read(&mut [0; 4_096]);
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = write!(stream, "HTTP/1.1 {head}\r\ncontent-length: 100\r\n\r\nthe beginning");
            open.push(stream);
        }
    });
    (url, count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_an_answer_decides_whose_body_does_not_end() {
    for (head, state) in [("200 OK", JobState::Succeeded), ("404 Not Found", JobState::Dead)] {
        let (url, requests) = that_stalls(head);
        let worker = format!("builtin = \"http\"\nurl = \"{url}\"\ntimeout = \"500ms\"");
        let ready = Ready::new("fifo", "max_retries = 1", &worker).await;
        let serving = ready.serve();
        let job = ready.ends(ready.push("a", json!(1)).await).await;
        serving.stop();
        assert_eq!((job.state, job.attempt, requests.load(Ordering::SeqCst)), (state, 1, 1));
        let told =
            job.error.as_deref().map(|error| error.ends_with("404 Not Found: the beginning"));
        assert_eq!(told, (state == JobState::Dead).then_some(true), "{:?}", job.error);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_a_refusal_whose_body_does_not_end_counts_when_the_call_must_end() {
    let (url, requests) = that_stalls("404 Not Found");
    let worker = format!("builtin = \"http\"\nurl = \"{url}\"");
    let ready = Ready::new("fifo", "max_retries = 1\ntimeout = \"1s\"", &worker).await;
    let serving = ready.serve();
    let job = ready.ends(ready.push("a", json!(1)).await).await;
    serving.stop();
    assert_eq!((job.state, job.attempt, requests.load(Ordering::SeqCst)), (JobState::Dead, 1, 1));
    assert_eq!(job.error.as_deref(), Some("the server answered 404 Not Found"));
}

/// The requests that a server has at once.
#[derive(Default)]
struct AtOnce {
    now: usize,
    most: usize,
    /// They are answered.
    is_open: bool,
}

/// Holds all requests until it is told to answer.
fn that_holds() -> (String, Arc<(Mutex<AtOnce>, Condvar)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let shared = Arc::<(Mutex<AtOnce>, Condvar)>::default();
    let held = shared.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let held = held.clone();
            std::thread::spawn(move || {
                if read(&stream).is_none() {
                    return;
                }
                let mut at_once = held.0.lock().unwrap();
                at_once.now += 1;
                at_once.most = at_once.most.max(at_once.now);
                let mut at_once = held.1.wait_while(at_once, |at_once| !at_once.is_open).unwrap();
                // Before the answer, after which its client may send the next.
                at_once.now -= 1;
                drop(at_once);
                let _ = write!(stream, "HTTP/1.1 {}", answer("204 No Content", "", ""));
            });
        }
    });
    (url, shared)
}

/// With the jobs of a call of 300 lanes.
async fn with_many_lanes(url: &str, queue: &str) -> Ready {
    let worker = format!("builtin = \"http\"\nurl = \"{url}\"");
    let ready = Ready::new("fifo", &format!("batch_size = 300\n{queue}"), &worker).await;
    let jobs: Vec<Job> =
        (0..300).map(|key| Job::new(QUEUE, &1).unwrap().key(key.to_string())).collect();
    ready.store.push(Push { now: None, jobs }).await.unwrap();
    ready
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_lanes_that_only_waited_for_a_place_go_back_uncounted() {
    let (url, held) = that_holds();
    let ready = with_many_lanes(&url, "max_retries = 0\ntimeout = \"2s\"").await;
    let serving = ready.serve();
    wait_until(&ready.store, |stats| stats.dead >= 256).await;
    held.0.lock().unwrap().is_open = true;
    held.1.notify_all();
    wait_until(&ready.store, |stats| stats.jobs == 0 && stats.dead == 256).await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn http_sends_at_most_256_requests_of_a_call_at_once() {
    let (url, held) = that_holds();
    let ready = with_many_lanes(&url, "").await;
    let serving = ready.serve();
    eventually("256 requests", async || held.0.lock().unwrap().most >= 256).await;
    held.0.lock().unwrap().is_open = true;
    held.1.notify_all();
    wait_until(&ready.store, |stats| stats.jobs == 0).await;
    serving.stop();
    assert_eq!(held.0.lock().unwrap().most, 256);
}

const FFMPEG: &str =
    "builtin = \"ffmpeg\"\nffmpeg = \"./ffmpeg\"\nffprobe = \"./ffprobe\"\nroots = [\".\"]";
/// A file says itself how long it is. As the real one it opens its input by the name that it is told.
const FFPROBE: &str = "for last; do :; done; last=${last#file:}; name=$(readlink /proc/$$/fd/0)
    echo \"probe $(basename \"$name\")\" >> calls; echo \"$@\" >> options
    case $name in *transcoded*) test -e hold && { touch held; while test -e hold; do :; done; } ;; esac
    test -s \"$last\" || { echo 'Invalid data found' >&2; exit 1; }
    sed -n 's/^duration=//p' \"$last\"";
const TRANSCODER: &str = "for last; do :; done; last=${last#file:}; echo transcode \"$@\" >> calls
    echo \"$@\" >> options
    while test \"$1\" != -i; do shift; done
    echo out_time_us=N/A; echo out_time_us=4000000; echo progress=continue
    while test -e wait; do :; done
    if test -e cut; then rm cut; echo duration=3 > \"$last\"; else cat \"${2#file:}\" > \"$last\"; fi";

async fn with_ffmpeg(queue: &str, worker: &str) -> Ready {
    let ready = Ready::new("fifo", queue, &format!("{FFMPEG}\n{worker}")).await;
    ready.program("ffprobe", FFPROBE);
    ready.program("ffmpeg", TRANSCODER);
    ready.write("film.mov", "duration=10\n");
    ready
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_ffmpeg_tells_its_progress_and_publishes_all_at_once() {
    let ready = with_ffmpeg("", "args = [\"-preset\", \"fast\"]\npayload_args = true").await;
    ready.write("wait", "");
    let serving = ready.serve();
    let order = json!({"input": "film.mov", "output": "film.mp4", "args": ["-crf", "23"]});
    let id = ready.push("film.mp4", order).await;
    let told = async || {
        ready.job(id).await.progress.as_deref() == Some(r#"{"percent":40.0,"step":"transcode"}"#)
    };
    eventually("progress", told).await;
    assert!(!ready.site.path("film.mp4").exists(), "nobody sees a part of it");
    fs::remove_file(ready.site.path("wait")).unwrap();
    assert_eq!(ready.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    assert_eq!(ready.read("film.mp4"), "duration=10\n");
    assert!(
        ready.read("calls").contains("-i file:/proc/self/fd/0 -preset fast -crf 23 file:/"),
        "{}",
        ready.read("calls")
    );
    let names = fs::read_dir(ready.site.folder.path()).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.starts_with(".film.mp4")), "nothing is left behind");
}

/// Transcodes until the result is verified, where the node is killed.
async fn killed_while_it_verifies(ready: &Ready) -> JobId {
    ready.write("hold", "");
    let serving = ready.serve();
    let id = ready.push("film.mp4", json!({"input": "film.mov", "output": "film.mp4"})).await;
    let held = ready.site.path("held");
    eventually("it verifies", async || held.exists()).await;
    serving.kill();
    fs::remove_file(ready.site.path("hold")).unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_ffmpeg_goes_on_at_the_step_where_it_was_killed() {
    let ready = with_ffmpeg("", "").await;
    let id = killed_while_it_verifies(&ready).await;
    let serving = ready.serve();
    assert_eq!(ready.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    let calls = ready.read("calls");
    let steps: Vec<&str> = calls.lines().map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!(steps, ["probe", "transcode", "probe", "probe"], "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_ffmpeg_verifies_again_if_what_it_published_was_moved_away_after_a_crash() {
    let ready = with_ffmpeg("", "").await;
    let id = killed_while_it_verifies(&ready).await;
    // As after a crash between the last rename and the end, if nothing is at the output any more.
    let folder = format!(".film.mp4.seriatim-{id}");
    ready.write(&format!("{folder}/verified"), "");
    fs::remove_file(ready.site.path(&folder).join("transcoded.mp4")).unwrap();
    ready.write("cut", "");
    let serving = ready.serve();
    assert_eq!(ready.ends(id).await.state, JobState::Succeeded);
    serving.stop();
    assert_eq!(ready.read("film.mp4"), "duration=10\n", "what is cut short is not published");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_ffmpeg_does_not_publish_what_is_cut_short() {
    let ready = with_ffmpeg("max_retries = 1", "").await;
    ready.write("cut", "");
    ready.write("empty.mov", "");
    let serving = ready.serve();
    let id = ready.push("film.mp4", json!({"input": "film.mov", "output": "film.mp4"})).await;
    let job = ready.ends(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 2), "{job:?}");
    assert_eq!(ready.read("film.mp4"), "duration=10\n");
    for (order, error) in [
        (json!({"input": "empty.mov", "output": "x.mp4"}), "Invalid data found"),
        (json!({"input": "missing.mov", "output": "x.mp4"}), "missing.mov: No such file"),
        (json!({"input": "/etc/passwd", "output": "x.mp4"}), "is not within the worker's `roots`"),
        (json!({"input": "film.mov", "output": "../x.mp4"}), "is not within the worker's `roots`"),
        (json!({"input": "film.mov", "output": "film"}), "has no extension"),
        (json!({"input": "film.mov", "output": "film.%d"}), "extension must be of ASCII letters"),
        (json!({"input": "film.mov"}), "payload: cannot be decoded"),
    ] {
        let id = ready.push(error, order).await;
        ready.fails(id, error).await;
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n13_a_missing_ffmpeg_pauses_the_worker_and_counts_nothing() {
    let ready = with_ffmpeg("", "").await;
    fs::remove_file(ready.site.path("ffprobe")).unwrap();
    let serving = ready.serve();
    let id = ready.push("film.mp4", json!({"input": "film.mov", "output": "film.mp4"})).await;
    eventually("a pause", async || ready.log().contains("went back uncounted")).await;
    wait_until(&ready.store, |stats| stats.claimed == 0).await;
    serving.stop();
    let job = ready.job(id).await;
    assert_eq!((job.state, job.retry_count, job.crashes), (JobState::Queued, -1, 0));
    assert!(ready.log().contains("./ffprobe: there is no such file"), "{}", ready.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ffmpeg_does_not_wait_for_what_a_program_leaves_behind() {
    let ready = with_ffmpeg("", "").await;
    // It is in a group of its own before its parent ends.
    let leave = "test -e left && exit
        setsid sh -c 'echo $$ > left; exec tail -f /dev/null' &
        while ! test -s left; do :; done";
    ready.program("ffprobe", &format!("{FFPROBE}\n{leave}"));
    let serving = ready.serve();
    let id = ready.push("film.mp4", json!({"input": "film.mov", "output": "film.mp4"})).await;
    let job = ready.ends(id).await;
    for pid in ready.read("left").lines() {
        kill(pid.parse().unwrap(), Signal::KILL);
    }
    assert_eq!((job.state, job.attempt), (JobState::Succeeded, 1), "{job:?}");
    serving.stop();
    assert_eq!(ready.read("film.mp4"), "duration=10\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_that_were_done_before_a_stop_are_not_done_again() {
    let ready = with_ffmpeg("take = 2", "").await;
    ready.program(
        "ffmpeg",
        &format!("case $* in *slow*) exec tail -f slow.mov ;; esac\n{TRANSCODER}"),
    );
    ready.write("slow.mov", "duration=10\n");
    let mut ids = Vec::new();
    for name in ["film", "slow"] {
        let order = json!({ "input": format!("{name}.mov"), "output": format!("{name}.mp4") });
        ids.push(ready.push("a", order).await);
    }
    let serving = ready.serve();
    eventually("the first has ended", async || ready.read("calls").contains("probe slow.mov"))
        .await;
    serving.stop();
    assert_eq!(ready.job(ids[0]).await.state, JobState::Succeeded, "it was done");
    let second = ready.job(ids[1]).await;
    assert_eq!((second.state, second.retry_count), (JobState::Queued, -1), "{second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ffmpeg_takes_no_options_from_payloads_unless_told() {
    let ready = with_ffmpeg("max_retries = 0", "").await;
    let serving = ready.serve();
    let args = ["-f", "data", "-i", "/proc/self/environ", "-map", "1", "-f", "data", "out.txt"];
    let order = json!({"input": "film.mov", "output": "film.mp4", "args": args});
    let id = ready.push("film.mp4", order).await;
    ready.fails(id, "not allowed in payloads").await;
    serving.stop();
    assert_eq!(ready.read("calls"), "", "nothing was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_of_files_are_neither_options_nor_addresses_and_no_input_may_name_other_files() {
    let ready = with_ffmpeg("max_retries = 0", "").await;
    let names = ["-f.mov", "concat:film.mov|x.mov", "http:x", "file:film.mov", "film%03d.mov"];
    for name in names {
        ready.write(name, "duration=10\n");
    }
    let serving = ready.serve();
    for name in names {
        let output = format!("{name}.mp4");
        let id = ready.push(name, json!({"input": name, "output": &output})).await;
        assert_eq!(ready.ends(id).await.state, JobState::Succeeded, "{name}");
        assert_eq!(ready.read(&output), "duration=10\n", "{name}");
    }
    for address in ["concat:film.mov|film.mov", "https://127.0.0.1/x.mov", "file:///etc/passwd"] {
        let id = ready.push(address, json!({"input": address, "output": "x.mp4"})).await;
        ready.fails(id, "No such file").await;
    }
    ready.write("takes%03d/.keep", "");
    let id = ready.push("p", json!({"input": names[0], "output": "takes%03d/x.png"})).await;
    ready.fails(id, "`%d` in its folder would be a pattern").await;
    serving.stop();
    let options = ready.read("options");
    assert_eq!(options.lines().count(), 3 * names.len(), "{options}");
    for line in options.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let after = |option: &str| words[1 + words.iter().position(|w| *w == option).unwrap()];
        assert_eq!(after("-protocol_whitelist"), "file", "{line}");
        assert!(!line.contains('%'), "no pattern: {line}");
        let formats: Vec<&str> = after("-format_whitelist").split(',').collect();
        assert!(formats.contains(&"mov") && formats.contains(&"matroska"), "{line}");
        let nested =
            ["hls", "dash", "concat", "imf", "vobsub", "sdp", "image2", "lavfi", "svg_pipe"];
        assert!(nested.iter().all(|format| !formats.contains(format)), "{line}");
        assert_eq!(words.iter().filter(|word| word.starts_with("file:/")).count(), {
            // Its input, and of a transcoder its output.
            1 + usize::from(words.contains(&"-i"))
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn files_of_the_kernel_devices_and_pipes_are_not_read_whatever_the_roots() {
    let replicate = "builtin = \"replicate\"\nroots = [\"/\"]";
    let ready = Ready::new("fifo", "max_retries = 0", replicate).await;
    ready.write("copies/.keep", "");
    let made = std::process::Command::new("mkfifo").arg(ready.site.path("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/proc/self/environ", ready.site.path("link")).unwrap();
    let serving = ready.serve();
    for (source, error) in [
        ("/proc/self/environ", "a file of the kernel"),
        ("link", "a file of the kernel"),
        ("/proc/self/fd/0", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("pipe", "is not a regular file"),
    ] {
        let order = json!({"source": source, "targets": ["copies"]});
        let id = ready.push(source, order).await;
        ready.fails(id, error).await;
    }
    serving.stop();
    let copies = fs::read_dir(ready.site.path("copies")).unwrap();
    assert_eq!(copies.count(), 1, "nothing was copied");
}
