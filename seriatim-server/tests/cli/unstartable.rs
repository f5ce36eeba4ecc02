//! Workers whose programs cannot be started: seen by people, by every way to look, until they can.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use seriatim::store::Trouble;
use seriatim::{Client, Job, SharedStore};

use crate::site::{PATIENCE, Site, eventually, text};

/// A way in which a program cannot do its work, how it is made, and what is said of it.
const KINDS: [(&str, &str); 7] = [
    ("missing", "there is no such file"),
    ("forbidden", "it is not executable (chmod +x)"),
    ("interpreter", "its first line needs \"/nonexistent\""),
    ("folder", "it is a directory"),
    ("format", "Exec format error"),
    ("ends", "gave up"),
    ("library", "libgone"),
];
/// These start as far as the system is concerned. A command that ends so fails its job.
const START_AND_END: [&str; 2] = ["ends", "library"];

fn program(site: &Site, name: &str, content: impl AsRef<[u8]>, mode: u32) {
    // Never open for writing while it may be started.
    let (path, new) = (site.path(name), site.path("new"));
    write(&new, content).unwrap();
    set_permissions(&new, Permissions::from_mode(mode)).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// A program that needs a library which is gone.
fn without_its_library(site: &Site) {
    write(site.path("gone.c"), "int gone(void) { return 0; }").unwrap();
    write(site.path("main.c"), "int gone(void); int main(void) { return gone(); }").unwrap();
    let cc = |arguments: &[&str]| {
        let output =
            Command::new("cc").args(arguments).current_dir(site.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    };
    cc(&["-shared", "-fPIC", "-o", "libgone.so", "gone.c"]);
    cc(&["-o", "library", "main.c", "-L.", "-lgone"]);
    std::fs::remove_file(site.path("libgone.so")).unwrap();
}

/// A site with a command worker and a process worker for each kind.
fn site() -> Site {
    let node = "[node]\nconcurrency = 20\nheartbeat = \"300ms\"\n";
    let mut config = format!("{node}[defaults]\nmode = \"parallel\"\n");
    for (kind, _) in KINDS {
        for way in ["command", "process"] {
            config += &format!(
                "[queues.{way}-{kind}]\n[[workers]]\nqueue = \"{way}-{kind}\"\n{way} = [\"./{kind}\"]\n"
            );
        }
    }
    let site = Site::new(&config);
    program(&site, "forbidden", "#!/bin/sh\n", 0o644);
    program(&site, "interpreter", "#!/nonexistent\n", 0o755);
    std::fs::create_dir(site.path("folder")).unwrap();
    program(&site, "format", [0, 1, 2, 3], 0o755);
    program(&site, "ends", "#!/bin/sh\necho gave up >&2\nexit 3\n", 0o755);
    without_its_library(&site);
    site
}

/// Waits until the node's troubles are as wanted.
async fn troubles(store: &SharedStore, wanted: impl Fn(&[Trouble]) -> bool) -> Vec<Trouble> {
    let (started, mut wakeups) = (Instant::now(), store.wakeups());
    loop {
        let nodes = store.nodes().await.unwrap();
        let told: Vec<Trouble> = nodes.into_iter().flat_map(|node| node.info.troubles).collect();
        if wanted(&told) {
            return told;
        }
        assert!(started.elapsed() < PATIENCE, "{told:#?}");
        wakeups.wait(Duration::from_millis(50)).await;
    }
}

fn json(site: &Site, arguments: &[&str]) -> Value {
    let output = site.run(&[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_that_cannot_start_is_seen_wherever_people_look_until_it_can() {
    let site = site();
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    site.said("history.ndjson", "serving", &store).await;
    let client = Client::new(store.clone());
    for (kind, _) in KINDS {
        for way in ["command", "process"] {
            let job = Job::new(format!("{way}-{kind}"), &1).unwrap().max_retries(9);
            client.push(job).await.unwrap();
        }
    }
    let expected: Vec<(String, &str)> = KINDS
        .iter()
        .flat_map(|(kind, why)| ["command", "process"].map(|way| (way, *kind, *why)))
        .filter(|(way, kind, _)| *way == "process" || !START_AND_END.contains(kind))
        .map(|(way, kind, why)| (format!("{way}-{kind}"), why))
        .collect();
    let is_told = |told: &[Trouble], queue: &str, why: &str| {
        told.iter().any(|one| one.queue.as_deref() == Some(queue) && one.text.contains(why))
    };
    let all_told = |told: &[Trouble]| expected.iter().all(|(queue, why)| is_told(told, queue, why));
    troubles(&store, all_told).await;

    let findings = json(&site, &["doctor"]);
    assert_eq!(findings["healthy"], false);
    let (nodes, frame) = (json(&site, &["nodes"]), text(&site.run(&["top", "--once"])));
    let (listed, named) = (text(&site.run(&["queues"])), text(&site.run(&["nodes"])));
    for (queue, why) in &expected {
        let found = findings["findings"].as_array().unwrap().iter().any(|one| {
            one["severity"] == "serious"
                && one["about"] == format!("queue {queue}").as_str()
                && one["found"].as_str().unwrap().contains(why)
        });
        assert!(found, "{queue}: {findings:#}");
        let told = nodes["nodes"][0]["troubles"].as_array().unwrap();
        assert!(told.iter().any(|one| one["queue"] == queue.as_str()), "{queue}: {nodes:#}");
        let shown = json(&site, &["queues", "show", queue]);
        assert_eq!(shown["troubles"][0]["kind"], "worker_cannot_start", "{shown:#}");
        let line = format!("worker of {queue} cannot start: ");
        assert!(listed.contains(&line) && named.contains(&line), "{listed}\n{named}");
    }
    assert!(frame.contains("trouble") && frame.contains("worker of "), "{frame}");
    // A command that starts and ends has failed its job, which the store shows as ever.
    for kind in START_AND_END {
        let queue = format!("command-{kind}");
        eventually(&format!("a job of {queue} fails"), async || {
            let stats = store.stats(None).await.unwrap();
            stats.iter().any(|of| *of.queue == *queue && of.failed > 0)
        })
        .await;
        assert!(!is_told(&troubles(&store, |_| true).await, &queue, ""));
    }

    program(&site, "missing", "#!/bin/sh\nwhile read -r line; do :; done\n", 0o755);
    let cured = |told: &[Trouble]| {
        ["command-missing", "process-missing"].iter().all(|queue| !is_told(told, queue, ""))
    };
    troubles(&store, cured).await;
    drop(serving);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn serve_names_programs_that_cannot_be_started_and_refuses_them_when_strict() {
    let site = site();
    let strict = site.run(&["serve", "--no-http", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    let said = text(&strict);
    for kind in ["missing", "forbidden", "interpreter", "folder"] {
        for way in ["command", "process"] {
            let line = format!("the worker of {way}-{kind} cannot start: ./{kind}: ");
            assert!(said.contains(&line), "{line}: {said}");
        }
    }
    assert!(!site.path("seriatim.db").exists(), "nothing was opened: {said}");
    let by_key = site
        .command(&["serve", "--no-http"])
        .env("SERIATIM_NODE__STRICT", "true")
        .output()
        .unwrap();
    assert_eq!(by_key.status.code(), Some(1), "{}", text(&by_key));

    let store = site.store().await;
    let _serving = site.serve("history.ndjson");
    let warned =
        "WARN the worker of command-missing cannot start: ./missing: there is no such file";
    site.said("history.ndjson", "serving", &store).await;
    let log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    assert!(log.contains(warned) || log.contains(&warned[5..]), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_programs_that_a_configuration_names_are_looked_for_not_only_those_of_commands() {
    let worker = |queue: &str, more: &str| {
        format!(
            "[queues.{queue}]\nmode = \"fifo\"\n\
             [[workers]]\nqueue = \"{queue}\"\nroots = [\".\"]\n{more}\n"
        )
    };
    let site = Site::new(
        &[
            worker("films", "builtin = \"ffmpeg\"\nffmpeg = \"true\"\nffprobe = \"./no-ffprobe\""),
            worker(
                "copies",
                "builtin = \"replicate\"\nrsync = [\"./no-rsync\"]\nservers = { b = \"b:/\" }",
            ),
            worker("here", "builtin = \"replicate\"\nrsync = [\"./not-wanted\"]"),
            "[[periodic]]\nname = \"cleaner\"\npause = \"1h\"\ncommand = [\"./no-cleaner\"]\n"
                .to_owned(),
        ]
        .concat(),
    );
    let lines = [
        "the worker of films cannot start: ./no-ffprobe: there is no such file",
        "the worker of copies cannot start: ./no-rsync: there is no such file",
        "the periodic \"cleaner\" cannot start: ./no-cleaner: there is no such file",
    ];
    let strict = site.run(&["serve", "--no-http", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    for said in [text(&strict), text(&site.run(&["config", "check"]))] {
        assert!(lines.iter().all(|line| said.contains(line)), "{said}");
        assert!(!said.contains("not-wanted"), "{said}");
    }
    // Without a job too.
    let store = site.store().await;
    let _serving = site.serve("history.ndjson");
    let told = troubles(&store, |told| told.len() > 1).await;
    let told: Vec<&str> = told.iter().map(|one| one.text.as_str()).collect();
    assert!(
        ["./no-ffprobe: ", "./no-rsync: "]
            .iter()
            .all(|name| told.iter().any(|text| text.starts_with(name))),
        "{told:?}"
    );
}
