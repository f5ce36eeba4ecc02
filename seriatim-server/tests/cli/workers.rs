//! Command workers.

use std::time::Duration;

use seriatim::store::JobState;
use seriatim::{Client, Job, Queue};

use crate::site::{QUEUE, Site, wait_until};

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
