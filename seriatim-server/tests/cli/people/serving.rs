//! A serving process, and what surrounds it: nodes, the log, files to push, completions.

use std::io::Write;
use std::process::{Command, Stdio};

use super::House;
use crate::site::{QUEUE, Site, eventually, text};

fn working() -> Site {
    Site::new(&format!(
        "[store]\nurl = \"sqlite:here.db\"\n[node]\nid = \"n\"\nheartbeat = \"100ms\"\nlease = \"60s\"\n\
         [log]\nformat = \"json\"\nlevel = \"debug\"\n\
         [queues.{QUEUE}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"-c\", \"echo up > up; read x < gate\"]\n"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s9_nodes_are_listed_with_what_they_run_and_stopped() {
    let site = working();
    for pipe in ["gate", "up"] {
        assert!(Command::new("mkfifo").arg(site.path(pipe)).status().unwrap().success());
    }
    assert!(site.run(&["push", QUEUE, "1", "--key", "k"]).status.success());
    let mut serving = site.serve("history.ndjson");
    // Returns when the command runs.
    std::fs::read_to_string(site.path("up")).unwrap();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = site.run(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    let node = || json(&["nodes"])["nodes"][0].clone();
    // Its last heartbeat may be from before the turn began.
    eventually("a heartbeat says that a turn runs", async || node()["running"] == 1).await;
    let node = node();
    assert_eq!((&node["name"], &node["state"]), (&"n".into(), &"alive".into()));
    assert_eq!(json(&["nodes", "show", "n"])["lanes"][0]["key"], "k");
    let shown = text(&site.run(&["nodes", "show", "n"]));
    assert!(shown.contains("claimed:") && shown.contains("state       alive"), "{shown}");
    let table = text(&site.run(&["nodes"]));
    assert!(table.contains("alive") && table.contains(QUEUE), "{table}");
    assert!(text(&site.run(&["nodes", "quiet", "n"])).contains("will claim no more work"));
    assert_eq!(json(&["nodes"])["nodes"][0]["state"], "quiet");
    assert!(text(&site.run(&["nodes", "resume", "n"])).contains("will claim work again"));
    assert_eq!(json(&["nodes"])["nodes"][0]["state"], "alive");
    assert!(site.run(&["queues", "pause", QUEUE]).status.success());
    let table = text(&site.run(&["nodes"]));
    assert!(table.contains(&format!("{QUEUE} (paused)")), "{table}");
    assert_eq!(json(&["nodes", "stop", "n"])["command"], "stop");
    // The handler ends when something comes through its gate.
    std::fs::write(site.path("gate"), "go\n").unwrap();
    assert!(serving.0.wait().unwrap().success());
    assert_eq!(json(&["nodes"])["nodes"][0]["state"], "stopped");
    let log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    let first: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert!(first["level"].is_string(), "the log is JSON, as the configuration says: {log}");
}

#[test]
fn l18_the_log_is_as_flags_say() {
    let site = Site::new("[log]\nformat = \"json\"\n");
    let wrong = site.run(&["serve", "--log-level", "seriatim=loud"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong).contains("\"loud\" is not a log level") && text(&wrong).contains("debug"),
        "{}",
        text(&wrong)
    );
    let wrong = site.run(&["serve", "--log-format", "xml"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    let mut quiet = site.command(&["serve", "--log-format", "pretty", "--log-level", "error"]);
    let child = quiet.stderr(Stdio::piped()).env("SERIATIM_STORE", "nonsense:x").spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output).starts_with("seriatim: store: there is no kind"), "{}", text(&output));
}

#[tokio::test]
async fn a_bad_line_is_named_and_what_stands_before_it_is_pushed() {
    let house = House::new().await;
    let good = "{\"payload\":1,\"key\":\"k\"}\n";
    let push = |lines: &str| {
        let mut child = house
            .site
            .command(&["push", "mails", "--file", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        text(&output)
    };
    let said = push(&format!("{good}\n{good}{{\"payload\":2,\"kye\":\"k\"}}\n{good}"));
    assert!(
        said.contains("standard input, line 4: unknown key `kye` (did you mean `key`?)"),
        "{said}"
    );
    assert!(said.contains("(2 jobs were pushed before it; continue with --from-line 4)"), "{said}");
    // A key is wanted: only the store knows. Its batch is refused as a whole.
    let said = push(&format!("{}{{\"payload\":2}}\n{good}", good.repeat(1_200)));
    assert!(said.contains("standard input, line 1201: key: is needed"), "{said}");
    assert!(
        said.contains("(1000 jobs were pushed before it; continue with --from-line 1001)"),
        "{said}"
    );
    assert_eq!(house.json(&["queues", "show", "mails"])["jobs"], 1_002);
}

#[test]
fn the_store_is_migrated_and_the_shell_and_man_are_served() {
    let site = Site::new("");
    let said = text(&site.run(&["migrate"]));
    assert!(said.starts_with("sqlite:seriatim.db is ready for seriatim "), "{said}");
    assert!(site.path("seriatim.db").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&site.run(&["completions", shell]));
        assert!(script.contains("morgue") && script.contains("requeue"), "{shell}");
    }
    let page = text(&site.run(&["man"]));
    assert!(page.contains(".TH seriatim 1") && page.contains("seriatim\\-doctor(1)"), "{page}");
    assert!(text(&site.run(&["man", "morgue"])).contains("seriatim morgue"));
    assert_eq!(site.run(&["man", "nothing"]).status.code(), Some(2));
}
