//! Command workers.

use std::time::Duration;

use rustix::process::Signal;
use seriatim::store::{JobState, QueueStats};
use seriatim::{Client, Job, JobId, Queue};

use crate::http::Api;
use crate::site::{QUEUE, Serving, Site, eventually, is_alive, text, wait_until};

/// A queue whose command does something that the test can see.
fn with_command(script: &str) -> Site {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\nretain_completed = \"1h\"\n[node]\nlease = \"30s\"\n\
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
        run_one(&with_command("echo first >&2; echo 'the reason' >&2; exit 3"), JobState::Dead)
            .await;
    assert_eq!(failed.error.as_deref(), Some("first\nthe reason"));
    let buried = run_one(&with_command("echo poison >&2; exit 65"), JobState::Dead).await;
    assert_eq!(buried.error.as_deref(), Some("poison"));
    let said = r#"lane=$(sed 's/.*"lane":"\([^"]*\)".*/\1/'); echo log; echo "{\"type\":\"result\",\"results\":[{\"lane\":\"$lane\",\"outcome\":\"cancel\",\"error\":\"not needed\"}]}""#;
    let cancelled = run_one(&with_command(said), JobState::Canceled).await;
    assert_eq!(cancelled.error.as_deref(), Some("not needed"));
}

/// A queue with one job that is running, and the way to wait for files that the command writes.
async fn with_one_job(settings: &str, script: &str) -> (Site, seriatim::SharedStore, JobId) {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\nretain_completed = \"1h\"\n\
         [node]\nlease = \"30s\"\nheartbeat = \"300ms\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"worker.sh\"]\n{settings}\n"
    ));
    std::fs::write(site.path("worker.sh"), script).unwrap();
    let store = site.store().await;
    let queues = vec![Queue::fifo(QUEUE).retain_completed(Duration::from_secs(3_600))];
    store.declare(seriatim::store::Declare { now: None, queues }).await.unwrap();
    let job = Job::new(QUEUE, &serde_json::json!({})).unwrap().key("a").max_retries(0);
    let id = Client::new(store.clone()).push(job).await.unwrap().job_id;
    (site, store, id)
}

fn pid_in(site: &Site, name: &str) -> i32 {
    std::fs::read_to_string(site.path(name)).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_timeout_ends_the_whole_process_group_politely_first() {
    // The command ends at SIGTERM; what it has started does not, and holds no pipe of ours.
    let script = "
        trap 'echo asked to end >&2; exit 1' TERM
        sh -c 'trap \"\" TERM; echo $$ > grandchild; exec tail -f /dev/null' < /dev/null > /dev/null 2>&1 &
        while ! test -s grandchild; do :; done
        tail -f /dev/null & wait $!";
    let (site, store, id) = with_one_job("timeout = \"2s\"", script).await;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    let job = store.job(id).await.unwrap().unwrap();
    // Some shells also say that what they waited for was terminated.
    let error = job.error.unwrap_or_default();
    assert!(error.starts_with("timed out (limit 2s): "), "{error}");
    assert!(error.ends_with("asked to end"), "{error}");
    let grandchild = pid_in(&site, "grandchild");
    eventually("it has ended", async || !is_alive(grandchild)).await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_command_that_ends_with_0_because_it_was_asked_to_end_has_not_done_its_job() {
    // As programs do that handle SIGTERM in the usual way.
    let asked = "trap 'exit 0' TERM; cat > /dev/null; tail -f /dev/null & wait $!";
    let done = asked.replace("exit 0", r#"echo "{\"type\":\"done\"}"; exit 0"#);
    for (script, state) in [(asked, JobState::Dead), (&done, JobState::Succeeded)] {
        let (site, store, id) = with_one_job("timeout = \"1s\"", script).await;
        let serving = site.serve("history.ndjson");
        wait_until(&store, |stats| stats.jobs == 0).await;
        serving.stop();
        let job = store.job(id).await.unwrap().unwrap();
        assert_eq!(job.state, state, "{script}: {job:?}");
        let error = job.error.unwrap_or_default();
        assert_eq!(error.starts_with("timed out"), state == JobState::Dead, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_command_that_gives_up_with_cancel_at_a_stop_or_timeout_loses_no_job() {
    let script = r#"trap 'echo "{\"type\":\"result\",\"results\":[{\"lane\":\"$lane\",\"outcome\":\"cancel\"}]}"; exit 0' TERM
        lane=$(sed 's/.*"lane":"\([^"]*\)".*/\1/'); touch started; tail -f /dev/null & wait $!"#;
    let (site, store, id) = with_one_job("", script).await;
    let mut command = site.command(&["serve", "--no-http"]);
    command.env("SERIATIM_NODE__SHUTDOWN_TIMEOUT", "1s");
    let serving = Serving(command.spawn().unwrap());
    eventually("it runs", async || site.path("started").exists()).await;
    serving.stop();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.retry_count), (JobState::Queued, -1), "{job:?}");

    let (site, store, id) = with_one_job("timeout = \"1s\"", script).await;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    serving.stop();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Dead, "{job:?}");
    assert!(job.error.as_ref().is_some_and(|error| error.contains("timed out")), "{job:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_cancelled_command_that_ignores_it_is_killed() {
    let script = "trap '' TERM; echo $$ > pid.part; mv pid.part pid; while :; do :; done";
    let (site, store, id) = with_one_job("", script).await;
    let serving = site.serve("history.ndjson");
    eventually("it runs", async || site.path("pid").exists()).await;
    let cancel = seriatim::store::Cancel { now: None, jobs: vec![id] };
    store.cancel(cancel).await.unwrap();
    wait_until(&store, |stats| stats.jobs == 0).await;
    assert_eq!(store.job(id).await.unwrap().unwrap().state, JobState::Canceled);
    assert!(!is_alive(pid_in(&site, "pid")));
    let stats = store.stats(None).await.unwrap().remove(0);
    assert_eq!((stats.processed, stats.failed, stats.dead), (0, 0, 0));
    serving.stop();
    let log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    let end = "1 call: 0 jobs processed; turns: 0 done, 0 failed, 1 cancelled or expired";
    assert!(log.contains(end) && !log.contains("tried again"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_node_that_is_told_twice_to_stop_leaves_no_command_behind() {
    let script = "echo $$ > pid.part; mv pid.part pid; exec tail -f /dev/null";
    let (site, _store, _) = with_one_job("", script).await;
    let serving = std::cell::RefCell::new(site.serve("history.ndjson"));
    eventually("it runs", async || site.path("pid").exists()).await;
    let log = || std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    serving.borrow().signal(Signal::TERM);
    eventually("it stops", async || log().contains("a second signal stops immediately")).await;
    // The same signal again within a moment is none of its own.
    eventually("it ends at once", async || {
        let has_ended = serving.borrow_mut().0.try_wait().unwrap().is_some();
        if !has_ended {
            serving.borrow().signal(Signal::TERM);
        }
        has_ended
    })
    .await;
    assert_eq!(serving.into_inner().0.wait().unwrap().code(), Some(1));
    eventually("it has ended", async || !is_alive(pid_in(&site, "pid"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_signal_that_comes_twice_in_a_moment_is_one() {
    let (site, store, id) = with_one_job("", "touch started; while ! test -e go; do :; done").await;
    let mut serving = site.serve("history.ndjson");
    eventually("it runs", async || site.path("started").exists()).await;
    // As `timeout` sends it to a process, and to its group.
    serving.signal(Signal::TERM);
    serving.signal(Signal::TERM);
    std::fs::write(site.path("go"), "").unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let state = store.job(id).await.unwrap().unwrap().state;
    assert_eq!(state, JobState::Succeeded, "it was let finish");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_what_a_command_leaves_behind_does_not_outlive_its_call() {
    let script = "cat > /dev/null; sh -c 'echo $$ > left; exec tail -f /dev/null' & \
                  while ! test -s left; do :; done";
    let (site, store, id) = with_one_job("", script).await;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    assert_eq!(store.job(id).await.unwrap().unwrap().state, JobState::Succeeded);
    eventually("it has ended", async || !is_alive(pid_in(&site, "left"))).await;
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_a_command_that_cannot_start_pauses_its_worker_and_its_jobs_stay_uncounted() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"./missing\"]\n"
    ));
    let store = site.store().await;
    let queues = vec![Queue::fifo(QUEUE)];
    store.declare(seriatim::store::Declare { now: None, queues }).await.unwrap();
    let mut ids = Vec::new();
    for key in ["a", "b", "c"] {
        let job = Job::new(QUEUE, &1).unwrap().key(key);
        ids.push(Client::new(store.clone()).push(job).await.unwrap().job_id);
    }
    let serving = site.serve("history.ndjson");
    let log = || std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    eventually("a pause", async || log().contains("went back uncounted")).await;
    wait_until(&store, |stats| stats.claimed == 0).await;
    serving.stop();
    for id in ids {
        let job = store.job(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.retry_count, job.crashes), (JobState::Queued, -1, 0));
    }
    let line = "this worker cannot start: ./missing: there is no such file";
    assert_eq!(log().matches(line).count(), 1, "one clear line: {}", log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_later_is_no_failure() {
    let (site, store, id) = with_one_job("", "cat > /dev/null; echo ran > ran; exit 75").await;
    let serving = site.serve("history.ndjson");
    let is_later = async || {
        let job = store.job(id).await.unwrap().unwrap();
        site.path("ran").exists() && job.state == JobState::Queued
    };
    eventually("it is put off", is_later).await;
    serving.stop();
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!((job.retry_count, job.crashes), (-1, 0));
    let wait = job.run_at.as_micros() - seriatim::Timestamp::of_this_machine().as_micros();
    assert!((20_000_000..=30_000_000).contains(&wait), "{wait}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_endless_output_is_bounded() {
    let script = "cat > /dev/null; head -c 50000000 /dev/zero | tr '\\0' x; \
                  head -c 50000000 /dev/zero | tr '\\0' y >&2; exit 1";
    let (site, store, id) = with_one_job("", script).await;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    serving.stop();
    let error = store.job(id).await.unwrap().unwrap().error.unwrap();
    assert!(error.starts_with("…yyy") && error.len() <= seriatim::limits::ERROR_BYTES_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n6_the_shell_example_does_what_the_guide_says() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/workers/sync-order.sh");
    let script = std::fs::read_to_string(example).unwrap();
    let (site, store, id) = with_one_job("", &script).await;
    std::fs::create_dir(site.path("orders")).unwrap();
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.jobs == 0).await;
    let refused = store.job(id).await.unwrap().unwrap();
    assert_eq!(refused.error.as_deref(), Some("an order update needs a status"));
    let job = Job::new(QUEUE, &serde_json::json!({"status": "paid"})).unwrap().key("order/42");
    let id = Client::new(store.clone()).push(job).await.unwrap().job_id;
    wait_until(&store, |stats| stats.jobs == 0).await;
    assert_eq!(store.job(id).await.unwrap().unwrap().state, JobState::Succeeded);
    let written = std::fs::read_to_string(site.path("orders/order_42.json")).unwrap();
    assert!(written.contains(r#""payload":{"status":"paid"}"#), "{written}");
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn l6_l13_a_worker_sets_retries_for_its_task_and_a_command_hears_of_jobs_that_died() {
    let tell = "[[workers]]\nqueue = \"seriatim.exhausted\"\ncommand = [\"sh\", \"-c\", \"cat > dead.json\"]\n";
    let site = Site::new(&format!(
        "[queues.mails]\nmode = \"parallel\"\nmax_retries = 9\n{tell}\
         [[workers]]\nqueue = \"mails\"\ntask = \"welcome\"\nmax_retries = 1\n\
         backoff = {{ kind = \"constant\", base = \"10ms\" }}\ncommand = [\"sh\", \"-c\", \"echo no address >&2; exit 1\"]\n"
    ));
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    let pushed = site.run(&["push", "mails", r#"{"to":"ada"}"#, "--task", "welcome"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    eventually("the command has ended", async || {
        let of_queue =
            |stats: &QueueStats| &*stats.queue == "seriatim.exhausted" && stats.processed > 0;
        store.stats(None).await.unwrap().iter().any(of_queue)
    })
    .await;
    serving.stop();
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(site.path("dead.json")).unwrap()).unwrap();
    let dead = &told["lanes"][0]["jobs"][0]["payload"];
    assert_eq!((&dead["queue"], &dead["task"]), (&"mails".into(), &"welcome".into()), "{told}");
    assert_eq!((&dead["attempts"], &dead["error"]), (&2.into(), &"no address".into()));
    assert_eq!(dead["payload"], serde_json::json!({"to": "ada"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn n5_periodic_programs_run_pause_and_run_again_and_their_node_shows_them() {
    let api = Api::start(
        "[node]\nheartbeat = \"200ms\"\nlease = \"1s\"\n\
         [[periodic]]\nname = \"count\"\npause = \"1s\"\nonce_in_fleet = true\n\
         command = [\"sh\", \"-c\", \"echo run >> runs; echo no rows >&2; exit 1\"]\n\
         [[periodic]]\nname = \"long\"\npause = \"1h\"\ncommand = [\"sh\", \"-c\", \"exec sleep 600\"]\n\
         [[periodic]]\nname = \"late\"\npause = \"1h\"\ntimeout = \"1s\"\n\
         command = [\"sh\", \"-c\", \"trap 'exit 0' TERM; sleep 600 & wait $!\"]\n",
    );
    let node = || api.get("/api/v1/nodes").done()["nodes"][0].clone();
    let failures = |place: usize| node()["periodic"][place]["failures"].as_u64().unwrap_or(0);
    eventually("two runs", async || failures(0) > 1).await;
    eventually("a run takes too long", async || failures(2) == 1).await;
    let late = node()["periodic"][2]["error"].clone();
    assert!(late.as_str().is_some_and(|why| why.starts_with("timed out (limit 1s)")), "{late}");
    let [count, long] = [0, 1].map(|place| node()["periodic"][place].clone());
    assert_eq!((&count["name"], &count["error"]), (&"count".into(), &"no rows".into()));
    assert_eq!(
        (&long["name"], &long["state"], &long["runs"]),
        (&"long".into(), &"work".into(), &0.into())
    );
    let id = node()["node"].as_str().unwrap().to_owned();
    let page = api.get(&format!("/nodes/{id}")).text();
    let shown = text(&api.site.run(&["nodes", "show", &id]));
    for shown in [shown, page] {
        assert!(shown.contains("last error: no rows"), "{shown}");
        assert!(shown.contains("long runs; 0 runs"), "{shown}");
    }
    let site = api.stopped();
    let runs = std::fs::read_to_string(site.path("runs")).unwrap();
    assert!(runs.lines().count() > 1, "{runs}");
}
