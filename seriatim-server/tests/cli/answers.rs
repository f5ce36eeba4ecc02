//! What worker programs answer, and what happens to invalid answers.

use std::fs;
use std::ops::Deref;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use seriatim::store::{JobState, JobView};
use seriatim::{Client, Job, JobId};

use crate::builtin::Ready;
use crate::site::{Serving, eventually, kill, text};

/// A command that prints what its payload says, with `LANE` and `BATCH` filled in, and ends with its code.
const COMMAND: &str = "
import json, sys
call = json.load(sys.stdin)
lane = call['lanes'][0]
order = lane['jobs'][0]['payload']
sys.stdout.write(order['print'].replace('LANE', lane['lane']).replace('BATCH', call['batch']))
sys.exit(order.get('exit', 0))
";

/// The same as a process; it prints nothing else.
const PROCESS: &str = "
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if call['type'] == 'perform':
        lane = call['lanes'][0]
        text = lane['jobs'][0]['payload']['print']
        sys.stdout.write(text.replace('LANE', lane['lane']).replace('BATCH', call['batch']))
        sys.stdout.flush()
";

/// A site with a program, whose jobs are not tried again.
struct Shop(Ready);

impl Deref for Shop {
    type Target = Ready;

    fn deref(&self) -> &Ready {
        &self.0
    }
}

impl Shop {
    async fn new(worker: &str, program: &str) -> Self {
        Self::with("", worker, program).await
    }

    async fn with(queue: &str, worker: &str, program: &str) -> Self {
        let queue = format!("max_retries = 0\n{queue}");
        let ready = Ready::on("lease = \"5s\"", "fifo", &queue, worker).await;
        ready.write("worker.py", program);
        Self(ready)
    }

    /// The job when its call has ended: gone from the queue, or waiting for later.
    async fn ends(&self, id: JobId) -> JobView {
        let has_ended = async || {
            let job = self.job(id).await;
            let is_later = job.run_at > seriatim::Timestamp::of_this_machine();
            !matches!(job.state, JobState::Queued | JobState::Running) || is_later
        };
        eventually("a job ends", has_ended).await;
        self.job(id).await
    }

    async fn fails(&self, id: JobId, what: &str, parts: &[&str]) {
        let job = self.ends(id).await;
        let error = job.error.clone().unwrap_or_default();
        let says = parts.iter().all(|part| error.contains(part));
        assert!(job.state == JobState::Dead && says, "{what}\n{parts:?}\n{job:?}");
    }
}

fn result(rest: &str) -> String {
    format!(
        "{{\"type\":\"result\",\"batch\":\"BATCH\",\"results\":[{{\"lane\":\"LANE\",{rest}}}]}}\n"
    )
}

/// What cannot be used, by whatever kind of program; the rest of the list stands with the reader.
fn malformed() -> Vec<(String, [&'static str; 2])> {
    let retry = r#""outcome":"retry""#;
    vec![
        (result(&format!("{retry},\"retry_in\":\"10s\"")), ["`results[0].retry_in`", "\"10s\""]),
        (result(&format!("{retry},\"retry_in\":-1")), ["`results[0].retry_in`", "is -1"]),
        (result(&format!("{retry},\"done\":99")), ["`results[0].done` is 99", "the lane has 1"]),
        (result("\"outcom\":\"retry\""), ["`results[0].outcom`", "did you mean `outcome`?"]),
        (
            result("\"outcome\":\"explode\""),
            ["\"explode\"", "done, retry, snooze, bury, cancel or release"],
        ),
        (result(&format!("{retry},{retry}")), ["`results[0].outcome`", "twice"]),
        (
            result(retry).replace("\"result\"", "\"results\""),
            ["`type` is \"results\"", "\"result\"?"],
        ),
        (result(retry).replace("LANE", "1-0-999999"), ["`results[0].lane`", "\"1-0-999999\""]),
        (result(retry).replace("\"results\"", "\"reslts\""), ["`reslts`", "`results`?"]),
        (
            "{\"type\":\"result\",\"batch\":\"BATCH\",\"results\":[]}\n".into(),
            ["`results`", "lane"],
        ),
        ("{\"type\":\"metrics\",\"batch\":\"BATCH\"}\n".into(), ["`type` is \"metrics\"", "done"]),
        (result(retry) + &result("\"outcome\":\"done\""), ["two different answers"; 2]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_whose_answer_cannot_be_used_has_failed_whatever_its_exit_code() {
    let shop = Shop::new("command = [\"python3\", \"worker.py\"]", COMMAND).await;
    let serving = shop.serve();
    let mut cases = malformed();
    let retry = result(r#""outcome":"retry""#);
    cases.push((
        retry[..retry.len() - 9].into(),
        ["looks like the start of an answer", "is not a JSON object"],
    ));
    cases.push((retry.replace("BATCH", "other"), ["`batch` is \"other\"", "this call is"]));
    cases.push(("{\n  \"type\": \"result\",\n".into(), ["on one line", "\"type\""]));
    for (number, (print, parts)) in cases.iter().enumerate() {
        let id = shop.push(&number.to_string(), json!({ "print": print })).await;
        shop.fails(id, print, &["invalid answer of the command", parts[0], parts[1]]).await;
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_command_prints_beside_its_answer_changes_nothing() {
    let shop = Shop::new("command = [\"python3\", \"worker.py\"]", COMMAND).await;
    let serving = shop.serve();
    let bury = result(r#""outcome":"bury","error":"as it said""#);
    let beside = "{\"level\":\"info\",\"message\":\"hello\"}\n[1]\nbye\n";
    for after in ["\n", "\n\n   \n", beside, bury.as_str(), ""] {
        let print = format!("{beside}{bury}{after}");
        let id = shop.push("a", json!({ "print": print })).await;
        assert_eq!(shop.ends(id).await.error.as_deref(), Some("as it said"), "{print}");
    }
    let id = shop.push("unended", json!({ "print": bury.trim_end() })).await;
    shop.fails(id, "without an end of line", &["as it said"]).await;
    let id = shop.push("output", json!({ "print": beside })).await;
    assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_exit_code_that_no_lane_bears_out_contradicts_the_answer() {
    let shop = Shop::new("command = [\"python3\", \"worker.py\"]", COMMAND).await;
    let serving = shop.serve();
    let (failed, later) = (JobState::Dead, JobState::Queued);
    for (exit, outcome, state, error) in [
        (0, "done", JobState::Succeeded, ""),
        (0, "bury", failed, "no reason given"),
        (0, "snooze", later, ""),
        (1, "done", failed, "means \"a failure\""),
        (1, "bury", failed, "no reason given"),
        (1, "cancel", JobState::Canceled, "no reason given"),
        (75, "snooze", later, ""),
        (75, "done", failed, "means \"later\""),
        (75, "bury", failed, "means \"later\""),
        (65, "bury", failed, "no reason given"),
        (65, "done", failed, "means \"to the morgue\""),
        (65, "snooze", failed, "means \"to the morgue\""),
    ] {
        let print = result(&format!("\"outcome\":\"{outcome}\""));
        let key = format!("{exit} {outcome}");
        let job = shop.push(&key, json!({ "print": print, "exit": exit })).await;
        let job = shop.ends(job).await;
        assert_eq!(job.state, state, "{key}: {job:?}");
        assert!(job.error.unwrap_or_default().contains(error), "{key}");
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_read_counts_although_something_keeps_the_output_open() {
    let answer = r#"'{"type":"result","results":[{"lane":"'$lane'","outcome":"bury","error":"as it said"}]}'"#;
    for end in ["\\n", ""] {
        let script = format!(
            "lane=$(sed 's/.*\"lane\":\"\\([^\"]*\\)\".*/\\1/')\n\
             setsid sh -c 'echo $$ > daemon; exec tail -f /dev/null' &\n\
             while ! test -s daemon; do :; done\nprintf '%s{end}' {answer}\n"
        );
        let shop = Shop::new("command = [\"sh\", \"worker.py\"]", &script).await;
        let serving = shop.serve();
        let id = shop.push("a", json!({})).await;
        let job = shop.ends(id).await;
        let daemon = fs::read_to_string(shop.site.path("daemon")).unwrap();
        kill(daemon.trim().parse().unwrap(), Signal::KILL);
        assert_eq!((job.state, job.error.as_deref()), (JobState::Dead, Some("as it said")));
        serving.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_whose_answer_cannot_be_used_has_failed_that_call() {
    let shop = Shop::new("process = [\"python3\", \"worker.py\"]", PROCESS).await;
    let serving = shop.serve();
    for (number, (print, parts)) in malformed().iter().enumerate() {
        let id = shop.push(&number.to_string(), json!({ "print": print })).await;
        shop.fails(id, print, &["invalid answer of the worker", parts[0], parts[1]]).await;
    }
    let id = shop.push("good", json!({ "print": result("\"outcome\":\"done\"") })).await;
    assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lane_that_an_answer_leaves_out_is_never_done_by_it() {
    let command = "
import json, sys
call = json.load(sys.stdin)
lanes = [lane['lane'] for lane in call['lanes'] if lane['key'] == 'named']
print(json.dumps({'type': 'result', 'results': [{'lane': lane, 'outcome': 'done'} for lane in lanes]}))
sys.exit('the exit code is of the other')
";
    let process = "
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    lanes = [lane['lane'] for lane in call.get('lanes', []) if lane['key'] == 'named']
    results = [{'lane': lane, 'outcome': 'done'} for lane in lanes]
    if results: print(json.dumps({'type': 'result', 'batch': call['batch'], 'results': results}))
";
    for (kind, program, error) in [
        ("command", command, "the exit code is of the other"),
        ("process", process, "`results` must name each lane of the call"),
    ] {
        let worker = format!("{kind} = [\"python3\", \"worker.py\"]");
        let shop = Shop::with("batch_size = 2", &worker, program).await;
        let (named, other) = (shop.push("named", json!({})).await, shop.push("b", json!({})).await);
        let serving = shop.serve();
        assert_eq!(shop.ends(named).await.state, JobState::Succeeded, "{kind}");
        shop.fails(other, kind, &[error]).await;
        serving.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_broken_line_that_names_no_call_fails_all_that_the_process_holds() {
    // It speaks when it holds two calls, and never answers one.
    let program = "
import json, sys
held = 0
for line in sys.stdin:
    held += json.loads(line)['type'] == 'perform'
    if held == 2: print('{\"type\":\"res', flush=True)
";
    let worker = "process = [\"python3\", \"worker.py\"]\nconcurrency = 2";
    let shop = Shop::new(worker, program).await;
    let ids = [shop.push("a", json!({})).await, shop.push("b", json!({})).await];
    let serving = shop.serve();
    for id in ids {
        shop.fails(id, "both", &["is not a JSON object", "{\"type\":\"res"]).await;
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_python_program_need_not_flush() {
    let program = PROCESS.replace("        sys.stdout.flush()\n", "");
    let shop = Shop::new("process = [\"python3\", \"worker.py\"]", &program).await;
    let serving = shop.serve();
    let id = shop.push("a", json!({ "print": result("\"outcome\":\"done\"") })).await;
    assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_process_prints_is_bounded_in_the_log_and_its_last_words_are_kept() {
    let program = "
import os, sys
line = 'x' * 90 + '\\n'
for _ in range(200): os.write(2, (line * 1_000).encode())
os.write(2, b'\\x1b[2J\\r\\xc2\\x9b\\xe2\\x80\\xaefaked\\n' + b'the reason\\n')
for line in sys.stdin: os._exit(3)
";
    let shop = Shop::new("process = [\"python3\", \"worker.py\"]", program).await;
    let serving = shop.serve();
    shop.push("a", json!({})).await;
    shop.logs("a worker process died").await;
    serving.stop();
    let log = shop.log();
    assert!(log.len() < 1_000_000, "{} bytes of log", log.len());
    assert!(log.contains("left out "), "what is left out is counted");
    assert!(log.contains("the reason"), "the last words are kept");
    let moves = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!log.contains(moves), "nothing that moves a cursor");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_that_orphans_come_to_asks_how_they_ended() {
    let script = "
        cat > /dev/null; test -e orphan && exit
        setsid sh -c 'echo $$ > orphan.part; mv orphan.part orphan; exec tail -f /dev/null' < /dev/null > /dev/null 2>&1 &
        while ! test -s orphan; do :; done";
    let shop = Shop::new("command = [\"sh\", \"worker.py\"]", script).await;
    // As process 1 has it: what loses its parent comes to this process.
    let adopt = "import ctypes, os, sys\n\
                 assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n\
                 os.execv(sys.argv[1], sys.argv[1:])";
    let serving = Serving(
        shop.site
            .program(
                "python3",
                &["-c", adopt, env!("CARGO_BIN_EXE_seriatim"), "serve", "--no-http"],
            )
            .stderr(fs::File::create(shop.site.path("history.ndjson.log")).unwrap())
            .spawn()
            .unwrap(),
    );
    let id = shop.push("a", json!({})).await;
    assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    let orphan: i32 = fs::read_to_string(shop.site.path("orphan")).unwrap().trim().parse().unwrap();
    kill(orphan, Signal::KILL);
    let is_gone = async || !fs::exists(format!("/proc/{orphan}")).unwrap();
    eventually("it is reaped", is_gone).await;
    // Our own children are not taken from those who wait for them.
    for key in ["b", "c", "d"] {
        let id = shop.push(key, json!({})).await;
        assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    }
    serving.stop();
}

/// Says nothing of its call until it is told to, through a pipe.
const SILENT: &str = "
import json, os, sys
os.mkfifo('go')
for line in sys.stdin:
    call = json.loads(line)
    if call['type'] == 'perform':
        open('go').read()
        print(json.dumps({'type': 'done', 'batch': call['batch']}))
";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_says_nothing_of_its_call_is_warned_about_and_seen_until_it_does() {
    let shop = Shop::new("process = [\"python3\", \"worker.py\"]", SILENT).await;
    let serving = shop.serve();
    let id = shop.push("a", json!({})).await;
    shop.logs("flushed line of JSON").await;
    let log = shop.log();
    let warning = log.lines().find(|line| line.contains("flushed line of JSON")).unwrap();
    let said = ["WARN", "no message about call", "for 10s"];
    assert!(said.iter().all(|part| warning.contains(part)), "{warning}");
    let found = || text(&shop.site.run(&["doctor"]));
    eventually("doctor shows it", async || found().contains("does not answer: no message")).await;
    assert!(found().contains("does it flush its output?"), "{}", found());
    fs::write(shop.site.path("go"), "").unwrap();
    assert_eq!(shop.ends(id).await.state, JobState::Succeeded);
    eventually("it is over", async || !found().contains("does not answer")).await;
    drop(serving);
}

/// Prints empty lines for ever, faster than anybody reads them.
const FLOODS: [&str; 2] = ["command = [\"yes\", \"\"]", "process = [\"yes\", \"\"]\nprocesses = 3"];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn programs_that_print_without_end_are_timed_out_and_hold_nothing_else_up() {
    for flood in FLOODS {
        let flood = format!(
            "timeout = \"1s\"\n{flood}\n[queues.other]\nmode = \"parallel\"\n\
             [[workers]]\nqueue = \"other\"\ncommand = [\"true\"]\n"
        );
        let shop = Shop::new(&flood, "").await;
        let serving = shop.serve();
        let mut floods = Vec::new();
        for key in ["a", "b", "c"] {
            floods.push(shop.push(key, json!({})).await);
        }
        for id in floods {
            let job = shop.ends(id).await;
            let took = job.finished_at.unwrap().since(job.started_at.unwrap());
            assert!(took < Duration::from_secs(10), "{took:?}: {job:?}");
            assert_eq!(job.state, JobState::Dead);
        }
        let other = Job::new("other", &json!({})).unwrap();
        let other = Client::new(shop.store.clone()).push(other).await.unwrap().job_id;
        let is_done = async || {
            shop.store.job(other).await.unwrap().is_none_or(|job| job.state == JobState::Succeeded)
        };
        eventually("others work on", is_done).await;
        drop(serving);
    }
}
