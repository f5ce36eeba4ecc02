//! `[[cron]]` entries, and a look into a running process.

use rustix::process::Signal;

use crate::site::{QUEUE, Site, eventually, text, wait_until};

fn config(schedule: &str, missed: &str) -> String {
    format!(
        "[queues.{QUEUE}]\nmode = \"parallel\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"-c\", \"cat > call.json\"]\n\
         [[cron]]\nname = \"tick\"\nschedule = \"{schedule}\"\ntime_zone = \"Europe/Berlin\"\n\
         queue = \"{QUEUE}\"\ntask = \"sales\"\npayload = {{ days = 1 }}\nmissed = \"{missed}\"\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tick_of_the_configuration_is_pushed_and_run() {
    // The latest tick of the last day has been missed by everybody.
    let site = Site::new(&config("* * * * *", "latest"));
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    wait_until(&store, |stats| stats.processed > 0).await;
    serving.stop();
    let call: serde_json::Value =
        serde_json::from_slice(&std::fs::read(site.path("call.json")).unwrap()).unwrap();
    let lane = &call["lanes"][0];
    assert_eq!(lane["task"], "sales");
    assert_eq!(lane["jobs"][0]["payload"], serde_json::json!({"days": 1}));
}

#[test]
fn the_entries_are_listed_with_their_next_ticks() {
    let site = Site::new(&config("0 3 * * *", "skip"));
    let listed = text(&site.run(&["cron"]));
    for told in ["tick", "no node has it", "at 03:00 Europe/Berlin (0 3 * * *)", "orders"] {
        assert!(listed.contains(told), "{told}: {listed}");
    }
    assert!(listed.contains("only the configuration was read"), "there is no store: {listed}");
    let json: serde_json::Value =
        serde_json::from_slice(&site.run(&["cron", "--json"]).stdout).unwrap();
    assert_eq!(json["cron"][0]["next"].as_array().unwrap().len(), 3);
    let wrong = Site::new(&config("0 25 * * *", "skip"));
    let refused = wrong.run(&["cron"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("cron (name \"tick\"): schedule:"), "{}", text(&refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_entry_is_paused_run_and_resumed_from_the_command_line_and_that_is_audited() {
    let more = "[http]\naudit_file = \"audit.ndjson\"\n";
    let site = Site::new(&format!("{more}{}", config("0 3 * * *", "skip")));
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    eventually("the node notes its entry", async || {
        !seriatim::store::schedules(&*store).await.unwrap().is_empty()
    })
    .await;
    let paused = text(&site.run(&["cron", "pause", "tick", "--reason", "deploy"]));
    assert!(paused.contains("tick is paused"), "{paused}");
    let listed = text(&site.run(&["cron"]));
    assert!(listed.contains("paused by cli:") && listed.contains("(deploy)"), "{listed}");
    let run = site.run(&["cron", "run", "tick", "--json"]);
    let run: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    wait_until(&store, |stats| stats.processed > 0).await;
    assert!(text(&site.run(&["cron", "resume", "tick"])).contains("is resumed"));
    let json: serde_json::Value =
        serde_json::from_slice(&site.run(&["cron", "--json"]).stdout).unwrap();
    let entry = &json["cron"][0];
    assert_eq!(entry["last"]["job_id"], run["job_id"]);
    assert_eq!(entry["last"]["outcome"], "ended", "its queue keeps no finished jobs");
    assert!(entry["paused"].is_null());
    let unknown = site.run(&["cron", "pause", "tock"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown).contains("did you mean \"tick\"?"), "{}", text(&unknown));
    let audit = std::fs::read_to_string(site.path("audit.ndjson")).unwrap();
    for action in ["cron pause", "cron run", "cron resume"] {
        assert!(audit.contains(&format!("\"action\":\"{action}\"")), "{audit}");
    }
    serving.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn l18_e3_what_runs_is_dumped_to_the_log_and_to_a_file_when_asked() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"-c\", \"touch begun; exec sleep 60\"]\n"
    ));
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    let pushed = site.run(&["push", QUEUE, "1", "--key", "order-7"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    site.appears("begun", &store).await;
    // The program may run a moment before its handler waits for it, and a dump names only calls that wait.
    let mut log = String::new();
    for asked in 1..=100 {
        serving.signal(Signal::TTIN);
        site.said_times("history.ndjson", "dump written to ", asked, &store).await;
        log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
        if log.contains("dump: running calls: 1") {
            break;
        }
    }
    assert!(log.contains("dump: running calls: 1") && log.contains("order-7"), "{log}");
    let mut dump = String::new();
    for said in log.split("dump written to ").skip(1) {
        let path = said.split_whitespace().next().unwrap();
        dump = std::fs::read_to_string(path).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    assert!(dump.contains("\"order-7\"") && dump.contains("waits for the program sh"), "{dump}");
    assert!(dump.lines().any(|line| line.starts_with("program ")), "{dump}");
}
