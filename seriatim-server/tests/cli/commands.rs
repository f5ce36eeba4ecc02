//! What the commands do.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::site::{Serving, Site, text};

#[test]
fn l17_jobs_are_pushed_and_counted() {
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
    assert_eq!(String::from_utf8_lossy(&pushed.stdout), "pushed 1500 jobs\n");
    let stats: serde_json::Value =
        serde_json::from_slice(&site.run(&["stats", "--json"]).stdout).unwrap();
    assert_eq!(stats["total"]["length"], 1_501);
    assert_eq!(stats["by_worker"]["orders"]["mode"], "exclusive");
}

#[test]
fn one_idempotency_key_is_not_taken_for_several_jobs() {
    let site = Site::new("");
    let line = "{\"key\":\"k\",\"idempotency_key\":\"own\"}\n";
    std::fs::write(site.path("jobs.ndjson"), line.repeat(2) + "{\"key\":\"k\"}\n").unwrap();
    let file = ["push", "orders", "--file", "jobs.ndjson"];
    for (arguments, said) in [
        (&file[..], "'--file <FILE>'"),
        (&["push", "orders", "1", "2"][..], "--idempotency-key goes with one payload"),
    ] {
        let refused = site.run(&[arguments, &["--idempotency-key", "once"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
    }
    let pushed = site.run(&file);
    assert!(
        text(&pushed).contains("pushed 3 jobs, 1 of them known already\n"),
        "{}",
        text(&pushed)
    );
    let again = site.run(&[&file[..], &["--json"]].concat());
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        "{\"pushed\":3,\"merged\":0,\"duplicate\":2,\"throttled\":0}\n"
    );
}

#[test]
fn who_pushes_and_waits_sees_the_result() {
    let config = "[queues.sums]\nmode = \"fifo\"\nretain_completed = \"1h\"\nmax_retries = 0\n\
        [[workers]]\nqueue = \"sums\"\ncommand = [\"sh\", \"work.sh\"]\n";
    let site = Site::new(config);
    let script = "if grep -q broken; then echo no memory >&2; exit 1; fi\necho '{\"type\":\"done\",\"result\":{\"sum\":6}}'\n";
    std::fs::write(site.path("work.sh"), script).unwrap();
    let push = |rest: &[&str]| site.run(&[&["push", "sums", "--key", "k"], rest].concat());
    let late = push(&["--wait=50ms"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(text(&late).contains("is queued after 50ms; it continues"), "{}", text(&late));
    let serving = site.serve("a");
    let done = push(&["--wait", "[1,2,3]"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "{\"sum\":6}\n", "{}", text(&done));
    assert!(done.status.success());
    let done = push(&["--wait=60s", "--json"]);
    let job: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&job["status"], &job["result"]["sum"]), (&"succeeded".into(), &6.into()));
    let shown = site.run(&["jobs", "show", job["job_id"].as_str().unwrap()]);
    assert!(text(&shown).contains("{\"sum\":6}"), "{}", text(&shown));
    let dead = push(&["--wait", "\"broken\""]);
    assert_eq!(dead.status.code(), Some(1));
    assert!(
        text(&dead).contains("is dead: ") && text(&dead).contains("no memory"),
        "{}",
        text(&dead)
    );
    serving.kill();
    for (arguments, said) in [
        (&["push", "sums", "1", "2", "--key", "k", "--wait"][..], "one payload"),
        (&["push", "mails", "--wait"][..], "keeps no finished jobs"),
    ] {
        let refused = site.run(arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
    }
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

#[test]
fn an_interrupt_ends_an_endless_demo_with_its_proof() {
    let site = Site::new("");
    let mut command = site.command(&["demo", "--forever", "--orders", "10"]);
    let mut demo = Serving(command.stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let mut said = said.map_while(Result::ok);
    said.find(|line| line.starts_with("pushed ")).unwrap();
    demo.signal(Signal::INT);
    let rest: Vec<String> = said.collect();
    demo.ends();
    assert!(rest.iter().any(|line| line.starts_with("The proof")), "{rest:?}");
}

#[test]
fn the_demo_leaves_a_store_with_trouble_for_the_dashboard() {
    let site = Site::new("");
    let kept = site.run(&["demo", "--keep", "shop"]);
    let said = text(&kept);
    assert!(kept.status.success() && said.contains("http://127.0.0.1:7117/"), "{said}");
    let config = site.path("shop/seriatim.toml").canonicalize().unwrap();
    let config = config.to_str().unwrap();
    assert!(said.contains(&format!("seriatim serve --config {config}")), "{said}");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = site.run(&[arguments, &["--config", config, "--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
    };
    let total = json(&["stats"])["total"].clone();
    assert_eq!((&total["dead"], &total["retrying"]), (&1_207.into(), &2.into()), "{total}");
    let held = json(&["lanes", "show", "orders", "order-17"]);
    assert_eq!((&held["jobs"], &held["retry_count"]), (&4.into(), &0.into()), "{held}");
    let findings = json(&["doctor"])["findings"].to_string();
    for found in ["no node works on it", "order-42", "order-58", "at least 100 jobs died"] {
        assert!(findings.contains(found), "{found}: {findings}");
    }
    let again = site.run(&["demo", "--keep", "shop"]);
    assert!(!again.status.success() && text(&again).contains("already exists"), "{}", text(&again));
}

fn write_lines(path: &Path, lines: &[&str]) {
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn l21_bench_measures_a_store_of_its_own() {
    let site = Site::new("");
    let output =
        site.run(&["bench", "--jobs", "2000", "--mode", "accumulate", "--limit", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = [
        "push_per_s",
        "drain_per_s",
        "start_ms_p50",
        "start_ms_p99",
        "start_across_ms_p50",
        "start_across_ms_p99",
        "rss_mb",
        "cpu_s",
        "limit_per_s",
    ];
    for figure in figures {
        assert!(result[figure].as_f64().unwrap() > 0.0, "{figure}: {result}");
    }
    // What is there is not drained by accident.
    assert!(site.run(&["push", "bench-parallel", "1"]).status.success());
    let refused = site.run(&["bench", "--jobs", "10"]);
    assert!(text(&refused).contains("is not empty"), "{}", text(&refused));
}

#[test]
fn bench_also_measures_claims_beside_a_backlog_one_key_behind_many_jobs_and_a_churn() {
    for (what, figures) in [
        (&["--backlog", "2000"][..], &["ratio_p50", "stats_ms"][..]),
        (
            &["--hot", "1000", "--mode", "fifo"],
            &["ratio_p50", "drain_first_tenth_per_s", "drain_last_tenth_per_s"],
        ),
        (
            &["--churn", "2s", "--mode", "fifo"],
            &["jobs", "last_tenth_per_s", "first_tenth_bytes", "last_tenth_bytes"],
        ),
    ] {
        let output = Site::new("").run(&[&["bench", "--json"], what].concat());
        assert!(output.status.success(), "{}", text(&output));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for figure in figures {
            assert!(result[figure].as_f64().unwrap() > 0.0, "{figure}: {result}");
        }
    }
}

#[test]
fn bench_has_large_payloads_and_refuses_what_no_queue_has() {
    let site = Site::new("");
    let large = ["bench", "--jobs", "20", "--mode", "fifo", "--payload-bytes", "70000"];
    let output = site.run(&large);
    assert!(output.status.success(), "{}", text(&output));
    for (flag, wrong) in [("--keys", "0"), ("--payload-bytes", "4194305")] {
        let output = site.run(&["bench", "--mode", "fifo", flag, wrong]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(flag), "{}", text(&output));
    }
}
