//! The binary as its users have it: real processes on a real file.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seriatim::checker::{Recorder, Report, check_files};
use seriatim::store::JobState;
use seriatim::{Client, Job, Queue, SharedStore, Timestamp};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);
const QUEUE: &str = "orders";
const KEYS: u32 = 50;

/// A folder with a database and a configuration.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("seriatim.toml"), config).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("SERIATIM_STORE");
        command
    }

    fn serve(&self, history: &str) -> Serving {
        let log = File::create(self.path(&format!("{history}.log"))).unwrap();
        let child = self
            .command(&["serve", "--no-http", "--history", history])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Serving(child)
    }

    async fn store(&self) -> SharedStore {
        let url = format!("sqlite:{}", self.path("seriatim.db").display());
        seriatim::connect(&url).await.unwrap()
    }

    fn recorder(&self, queue: &Queue) -> Arc<Recorder<BufWriter<File>>> {
        let file = File::create(self.path("pushes.ndjson")).unwrap();
        let recorder = Arc::new(Recorder::new("pusher", BufWriter::new(file)));
        recorder.queue(queue);
        recorder
    }
}

/// A running `seriatim serve`; killed when it is dropped.
struct Serving(Child);

impl Serving {
    fn actor(&self) -> String {
        format!("pid-{}", self.0.id())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn kill(mut self) -> String {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        self.actor()
    }

    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn config(mode: &str) -> String {
    // A command of its own for each call, of which some fail.
    format!(
        r#"
        [node]
        id = "the-same"
        concurrency = 8
        lease = "2s"
        heartbeat = "300ms"
        [queues.{QUEUE}]
        mode = "{mode}"
        backoff = {{ kind = "constant", base = "20ms" }}
        [[workers]]
        queue = "{QUEUE}"
        command = ["sh", "-c", "cat > /dev/null; test $(($$ % 23)) -ne 0"]
        "#
    )
}

fn queue(mode: &str) -> Queue {
    Queue::new(QUEUE, seriatim::Mode::from_name(mode).unwrap())
}

async fn push(site: &Site, recorder: &Arc<Recorder<BufWriter<File>>>, jobs: u32) {
    let mut pushers = Vec::new();
    for pusher in 0..4 {
        let (client, recorder) = (Client::new(site.store().await), recorder.clone());
        pushers.push(tokio::spawn(async move {
            for number in (pusher..jobs).step_by(4) {
                let payload = serde_json::json!({ "number": number });
                let job = Job::new(QUEUE, &payload).unwrap().key(format!("key-{}", number % KEYS));
                let job = job.score(f64::from(number));
                let sent_at = Timestamp::of_this_machine();
                let answer = client.push(job.clone()).await;
                recorder.pushed(sent_at, &job, Some(&answer));
                answer.unwrap();
            }
        }));
    }
    for pusher in pushers {
        pusher.await.unwrap();
    }
}

async fn wait_until(store: &SharedStore, what: impl Fn(&seriatim::store::QueueStats) -> bool) {
    let started = Instant::now();
    let mut wakeups = store.wakeups();
    loop {
        let stats = store.stats(None).await.unwrap();
        if stats.iter().any(|stats| &*stats.queue == QUEUE && what(stats)) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "it did not happen in time: {stats:?}");
        wakeups.wait(Duration::from_millis(100)).await;
    }
}

async fn judge(site: &Site, recorder: &Recorder<BufWriter<File>>, histories: &[&str]) -> Report {
    recorder.finish(&*site.store().await).await.unwrap();
    let mut files = vec![site.path("pushes.ndjson")];
    files.extend(histories.iter().map(|name| site.path(name)));
    let report = check_files(&files).unwrap();
    assert!(report.is_clean(), "{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_and_keeps_the_order() {
    for mode in ["accumulate", "fifo"] {
        let site = Site::new(&config(mode));
        let recorder = site.recorder(&queue(mode));
        let store = site.store().await;
        let declare = seriatim::store::Declare { now: None, queues: vec![queue(mode)] };
        store.declare(declare).await.unwrap();
        let first = site.serve("first.ndjson");
        let pushing = push(&site, &recorder, 2_000);
        let killing = async {
            wait_until(&store, |stats| stats.processed > 100 && stats.running > 0).await;
            recorder.died(&first.kill());
        };
        tokio::join!(pushing, killing);
        let second = site.serve("second.ndjson");
        wait_until(&store, |stats| stats.jobs == 0).await;
        second.stop();
        let report = judge(&site, &recorder, &["first.ndjson", "second.ndjson"]).await;
        assert_eq!(report.pushes, 2_000, "{mode}");
        assert!(report.rescued > 0, "{mode}: what the dead process held was taken over\n{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_one_node_id_do_not_overlap() {
    let site = Site::new(&config("fifo"));
    let recorder = site.recorder(&queue("fifo"));
    let store = site.store().await;
    let declare = seriatim::store::Declare { now: None, queues: vec![queue("fifo")] };
    store.declare(declare).await.unwrap();
    let (one, two) = (site.serve("one.ndjson"), site.serve("two.ndjson"));
    push(&site, &recorder, 1_000).await;
    wait_until(&store, |stats| stats.jobs == 0).await;
    one.stop();
    two.stop();
    judge(&site, &recorder, &["one.ndjson", "two.ndjson"]).await;
    let sizes =
        ["one.ndjson", "two.ndjson"].map(|name| std::fs::metadata(site.path(name)).unwrap().len());
    assert!(sizes.iter().all(|bytes| *bytes > 1_000), "both have worked: {sizes:?}");
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn jobs_are_pushed_and_counted() {
    let site = Site::new("");
    let pushed =
        site.run(&["push", "orders", r#"{"a":1}"#, "--key", "k", "--score", "-1.5", "--json"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    assert!(text(&pushed).contains(r#""status":"queued""#), "{}", text(&pushed));
    let mut lines = File::create(site.path("jobs.ndjson")).unwrap();
    for i in 0..1_500 {
        writeln!(lines, r#"{{"payload":{{"n":{i}}},"priority":5}}"#).unwrap();
    }
    let pushed = site.run(&["push", "plain", "--file", "jobs.ndjson"]);
    assert_eq!(text(&pushed), "pushed 1500 jobs\n");
    let stats: serde_json::Value =
        serde_json::from_slice(&site.run(&["stats", "--json"]).stdout).unwrap();
    assert_eq!(stats["total"]["length"], 1_501);
    assert_eq!(stats["by_worker"]["orders"]["mode"], "exclusive");
}

#[test]
fn bad_input_is_told_plainly() {
    let site = Site::new("");
    let huge_key = "k".repeat(5_000);
    let huge = format!("\"{}\"", "x".repeat(100_000));
    let cases: [(&[&str], i32, &str); 8] = [
        (&["push", "orders", "{oops"], 2, "payload: is not a JSON document"),
        (
            &["push", "orders", "1", "--key", &huge_key],
            2,
            "jobs[0].key: has 5000 bytes; at most 512",
        ),
        (&["push", "orders", "1", "--score", "NaN"], 2, "jobs[0].score: must be a finite number"),
        (&["push", "orders", "1", "--in", "-5s"], 2, ""),
        (&["push", "no spaces", "1"], 2, "jobs[0].queue: must be"),
        (
            &["push", "orders", &huge, "--store", "nonsense:x"],
            2,
            "there is no kind of store called \"nonsense\"",
        ),
        (&["stats", "--store", "sqlite:nowhere/x.db"], 1, "does its folder exist"),
        (&["check", "missing.ndjson"], 1, "missing.ndjson: cannot be opened"),
    ];
    for (arguments, code, message) in cases {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(message), "{message}: {}", text(&output));
    }
    let nothing = site.run(&["stats", "--json"]);
    assert!(text(&nothing).contains(r#""length":0"#), "{}", text(&nothing));
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let site = Site::new("");
    let garbage = "this is a letter, not a database. ".repeat(500);
    std::fs::write(site.path("letter.txt"), &garbage).unwrap();
    let output = site.run(&["stats", "--store", "sqlite:letter.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("not an SQLite database"), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(site.path("letter.txt")).unwrap(), garbage);
}

#[test]
fn a_contradicting_configuration_stops_serve_and_names_both_modes() {
    let site = Site::new(&config("fifo"));
    let pushed = site.run(&["push", QUEUE, "1"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let output = site.run(&["serve", "--no-http"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("is parallel") && said.contains("fifo"), "{said}");
}

#[test]
fn an_unknown_key_of_the_configuration_is_named() {
    let site = Site::new("[node]\nconcurency = 3\n");
    let output = site.run(&["serve", "--no-http"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output);
    assert!(said.contains("line 2") && said.contains("did you mean `concurrency`?"), "{said}");
}

/// A queue whose command does something that the test can see.
fn with_command(script: &str) -> Site {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\nretain_completed = \"1h\"\n[node]\nlease = \"2s\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"worker.sh\"]\n"
    ));
    std::fs::write(site.path("worker.sh"), script).unwrap();
    site
}

async fn run_one(site: &Site, ends: JobState) -> seriatim::store::JobView {
    let store = site.store().await;
    let declare = seriatim::store::Declare {
        now: None,
        queues: vec![Queue::fifo(QUEUE).retain_completed(Duration::from_secs(3_600))],
    };
    store.declare(declare).await.unwrap();
    let job = Job::new(QUEUE, &serde_json::json!({"a": 1})).unwrap().key("k 1").max_retries(0);
    let id = Client::new(store.clone()).push(job).await.unwrap().job_id;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| {
        stats.jobs == 0 || ends == JobState::Queued && stats.processed + stats.failed > 0
    })
    .await;
    serving.stop();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.state, ends, "{job:?}");
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_gets_the_call_and_its_exit_code_decides() {
    let site = with_command(
        "cat > call.json; echo \"$SERIATIM_JOB_QUEUE|$SERIATIM_JOB_KEY|$SERIATIM_JOB_ATTEMPT\" > variables",
    );
    run_one(&site, JobState::Succeeded).await;
    let call: serde_json::Value =
        serde_json::from_slice(&std::fs::read(site.path("call.json")).unwrap()).unwrap();
    let lane = &call["lanes"][0];
    assert_eq!(
        (&call["queue"], &lane["key"], &lane["attempt"]),
        (&QUEUE.into(), &"k 1".into(), &1.into())
    );
    assert_eq!(lane["jobs"][0]["payload"], serde_json::json!({"a": 1}));
    assert!(
        lane["token"].as_i64().unwrap() > 0 && lane["retry_count"] == -1 && lane["task"].is_null()
    );
    assert_eq!(std::fs::read_to_string(site.path("variables")).unwrap(), "orders|k 1|1\n");

    let failed =
        run_one(&with_command("echo first >&2; echo 'the reason' >&2; exit 3"), JobState::Failed)
            .await;
    assert_eq!(failed.error.as_deref(), Some("first\nthe reason"));
    let buried = run_one(&with_command("echo poison >&2; exit 65"), JobState::Failed).await;
    assert_eq!(buried.error.as_deref(), Some("poison"));
    let said = r#"lane=$(sed 's/.*"lane":"\([^"]*\)".*/\1/'); echo log; echo "{\"type\":\"result\",\"results\":[{\"lane\":\"$lane\",\"outcome\":\"cancel\",\"error\":\"not needed\"}]}""#;
    let cancelled = run_one(&with_command(said), JobState::Canceled).await;
    assert_eq!(cancelled.error.as_deref(), Some("not needed"));
}

#[test]
fn the_demo_proves_what_it_says() {
    let site = Site::new("");
    let output = site.run(&["demo", "--orders", "60", "--history", "demo.ndjson"]);
    assert!(output.status.success(), "{}", text(&output));
    let checked = site.run(&["check", "demo.ndjson", "--json"]);
    assert!(checked.status.success(), "{}", text(&checked));
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(report["rescued"].as_u64().unwrap() > 0, "{report}");
    // The same history with its first push left out does not pass.
    let history = std::fs::read_to_string(site.path("demo.ndjson")).unwrap();
    let kept: Vec<&str> = history
        .lines()
        .filter(|line| {
            !line.contains("\"tag\":\"")
                || !line.contains("order-7\"")
                || !line.contains("\"type\":\"push\"")
        })
        .collect();
    write_lines(&site.path("forged.ndjson"), &kept);
    assert_eq!(site.run(&["check", "forged.ndjson"]).status.code(), Some(1));
}

fn write_lines(path: &Path, lines: &[&str]) {
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}
