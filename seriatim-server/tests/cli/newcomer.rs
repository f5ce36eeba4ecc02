//! What somebody meets who begins: slips, half a configuration, an empty folder.

use std::process::Stdio;

use seriatim::store::QueueStats;

use crate::faults::Server;
use crate::site::{QUEUE, Site, eventually, text, wait_until};

/// What a `serve` that refuses to start says.
fn refused(config: &str, arguments: &[&str]) -> String {
    let site = Site::new(config);
    let output = site.run(&[&["serve", "--no-http"], arguments].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(!site.path("seriatim.db").exists(), "nothing was made");
    text(&output)
}

const ID: &str = "0198d6a4-7c51-7000-8000-000100000001";

/// All that reads or repairs, on a store that was never used.
const READING: [&[&str]; 23] = [
    &["stats"],
    &["queues"],
    &["queues", "show", "a"],
    &["queues", "pause", "a"],
    &["queues", "resume", "a"],
    &["queues", "reshard", "a", "2"],
    &["lanes", "a"],
    &["lanes", "a", "show", "k"],
    &["lanes", "a", "pause", "k"],
    &["lanes", "a", "delete", "k", "--yes"],
    &["jobs"],
    &["jobs", "show", ID],
    &["jobs", "cancel", ID],
    &["jobs", "retry", ID],
    &["jobs", "delete", ID, "--yes"],
    &["morgue", "a"],
    &["morgue", "a", "requeue", "--all"],
    &["nodes"],
    &["nodes", "show", "n"],
    &["nodes", "quiet", "n"],
    &["top", "--once"],
    &["cron"],
    &["doctor"],
];

fn reads_nothing(site: &Site, shown: &str) {
    for arguments in READING {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
        let said = text(&output);
        let expected = format!(
            "no Seriatim store at {shown}: create one with `seriatim serve` or `seriatim migrate`"
        );
        assert!(said.contains(&expected), "{arguments:?}: {said}");
    }
}

fn files(site: &Site) -> Vec<String> {
    let files = std::fs::read_dir(site.folder.path()).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn reading_changes_no_file_that_is_no_store() {
    let site = Site::new("");
    std::fs::write(site.path("seriatim.db"), "").unwrap();
    reads_nothing(&site, "sqlite:seriatim.db");
    assert_eq!(std::fs::read(site.path("seriatim.db")).unwrap(), b"");
    for arguments in [&["openapi"][..], &["completions", "bash"]] {
        assert!(site.run(arguments).status.success());
    }
    assert_eq!(files(&site).len(), 2, "{:?}", files(&site));
}

#[test]
fn reading_makes_nothing_on_a_server() {
    for server in Server::each() {
        let url = server.url();
        let site = Site::new(&format!("[store]\nurl = \"{url}\"\n"));
        let shown = match url.split_once('@') {
            Some((_, place)) => format!("{}://{place}", url.split_once(':').unwrap().0),
            None => url.clone(),
        };
        reads_nothing(&site, &shown);
        if url.starts_with("redis") {
            assert!(server.asked(&["DBSIZE"]).starts_with(":0\r"), "no key was made");
        }
        assert!(site.run(&["migrate"]).status.success());
        assert!(site.run(&["stats"]).status.success());
        assert!(site.run(&["queues"]).status.success());
    }
}

#[test]
fn reading_makes_no_store_and_says_what_does() {
    let site = Site::new("");
    reads_nothing(&site, "sqlite:seriatim.db");
    assert_eq!(files(&site), ["seriatim.toml"]);
    for arguments in
        [&["stats", "--store", "memory:"][..], &["push", "a", "1", "--store", "memory:"]]
    {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("memory: is lost when a process ends"));
    }
}

#[test]
fn a_push_that_makes_a_queue_says_of_which_mode() {
    let site = Site::new("");
    let said = text(&site.run(&["push", "plain", "1"]));
    assert!(
        said.contains(
            "created queue plain with mode parallel, the default for a push without a key"
        ),
        "{said}"
    );
    let said = text(&site.run(&["push", "orders", "1", "--key", "k"]));
    assert!(
        said.contains(
            "created queue orders with mode exclusive, the default for a push with a key"
        ),
        "{said}"
    );
    assert!(!text(&site.run(&["push", "orders", "1", "--key", "k"])).contains("created queue"));
    let shown = text(&site.run(&["queues", "show", "orders"]));
    assert!(shown.contains("max_retries = 25") && !shown.contains("merge"), "{shown}");
    assert!(shown.contains("backoff = { kind = \"polynomial\" }"), "{shown}");
}

#[test]
fn one_of_several_payloads_is_named_by_its_place() {
    let site = Site::new("");
    let said = text(&site.run(&["push", "orders", "1", "{oops"]));
    assert!(said.contains("payload 2: is not a JSON document"), "{said}");
    let said = text(&site.run(&["push", "orders", "hello"]));
    assert!(said.contains("seriatim: payload: is not") && said.contains("'\"text\"'"), "{said}");
    std::fs::write(site.path("one.ndjson"), "{\"payload\":1}\n").unwrap();
    let said = site.run(&["push", "orders", "--file", "one.ndjson"]);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "pushed 1 job\n");
    std::fs::write(site.path("bad.ndjson"), "{\"priority\":\"high\"}\n").unwrap();
    let said = text(&site.run(&["push", "orders", "--file", "bad.ndjson"]));
    assert!(
        said.contains("bad.ndjson:1: priority: found the string \"high\"; write a whole number"),
        "{said}"
    );
    assert!(said.contains("(nothing was pushed)"), "{said}");
}

#[test]
fn a_mistake_in_a_push_is_named_with_what_is_valid_and_creates_no_store() {
    let site = Site::new("");
    std::fs::write(site.path("list.ndjson"), "[\"a\"]\n").unwrap();
    std::fs::write(site.path("key.ndjson"), "{\"key\":5.5}\n").unwrap();
    std::fs::write(site.path("cut.ndjson"), "{\"key\":\"b\",\n").unwrap();
    for (arguments, expected) in [
        (&["{status: paid}"][..], "need double quotes, as in '{\"status\":\"paid\"}'"),
        (&["{}", "--key", ""], "key: must not be empty"),
        (&["{}", "--priority", "high"], "write a whole number from 0 to 32767"),
        (&["{}", "--priority", "-1"], "write a whole number from 0 to 32767"),
        (&["{}", "--score", "last"], "write a number, as in 7 or -1.5"),
        (&["--file", "none.ndjson"], "cannot read none.ndjson"),
    ] {
        let said = site.run(&[&["push", "orders"], arguments].concat());
        assert!(!said.status.success() && text(&said).contains(expected), "{}", text(&said));
        assert!(!site.path("seriatim.db").exists(), "{}", text(&said));
    }
    for (file, expected) in [
        ("list.ndjson", "list.ndjson:1: is not a JSON object"),
        ("key.ndjson", "key.ndjson:1: key: must be a string or a whole number"),
        ("cut.ndjson", "cut.ndjson:1: EOF while parsing a value, at column 11"),
    ] {
        let said = text(&site.run(&["push", "orders", "--file", file]));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_dry_run_checks_all_jobs_and_opens_no_store() {
    let site = Site::new("");
    std::fs::write(site.path("good.ndjson"), "{\"payload\":1}\n\n{\"key\":\"k\"}\n").unwrap();
    std::fs::write(site.path("bad.ndjson"), "{\"payload\":1}\n{\"kye\":\"k\"}\n").unwrap();
    let run = |arguments: &[&str]| {
        let said = site.run(&[&["push", "orders", "--dry-run"][..], arguments].concat());
        (said.status.success(), text(&said))
    };
    let both = "checked 2 jobs, pushed none\n".to_owned();
    assert_eq!(run(&["--file", "good.ndjson"]), (true, both.clone()));
    assert_eq!(run(&["1", "2", "--key", "k"]), (true, both));
    let (is_right, said) = run(&["--file", "bad.ndjson"]);
    assert!(!is_right && said.contains("bad.ndjson:2: unknown key `kye`"), "{said}");
    let (is_right, said) = run(&["--file", "good.ndjson", "--key", ""]);
    assert!(!is_right && said.contains("good.ndjson:1: key: must not be empty"), "{said}");
    assert!(!site.path("seriatim.db").exists());
}

#[tokio::test]
async fn a_push_may_say_who_takes_the_job_how_often_and_until_when() {
    let site = Site::new("");
    std::fs::write(site.path("own.ndjson"), "{\"max_retries\":7,\"node\":\"b\"}\n").unwrap();
    let flags = [
        "--max-retries",
        "2",
        "--node",
        "a",
        "--consumer-group",
        "eu",
        "--timeout",
        "5m",
        "--expires-in",
        "1h",
    ];
    let given = site.run(&[&["push", "orders", "1"][..], &flags].concat());
    assert!(given.status.success(), "{}", text(&given));
    let read = site.run(&[&["push", "orders", "--file", "own.ndjson"][..], &flags].concat());
    assert!(read.status.success(), "{}", text(&read));
    let store = site.store().await;
    let query = seriatim::store::JobQuery::new("orders", seriatim::store::JobState::Queued);
    let mut told = Vec::new();
    for job in store.jobs(query).await.unwrap().rows {
        let options = store.job(job.id).await.unwrap().unwrap().options.unwrap();
        let left = options.expires_at.unwrap().since(job.id.created_at()).as_secs();
        assert!((3_590..=3_600).contains(&left), "{left}");
        assert_eq!(options.consumer_group.as_deref(), Some("eu"));
        assert_eq!(options.timeout, Some(std::time::Duration::from_secs(300)));
        told.push((options.max_retries, options.node.clone()));
    }
    told.sort();
    // What a line says itself stands.
    assert_eq!(told, [(Some(2), Some("a".to_owned())), (Some(7), Some("b".to_owned()))]);
}

#[test]
fn a_queue_that_nothing_defines_is_refused() {
    let config = "[queues.orders]\nmode = \"fifo\"\n";
    let said = refused(config, &["--queues", "ordres"]);
    assert!(
        said.contains("--queues ordres") && said.contains("did you mean \"orders\"?"),
        "{said}"
    );
    let said = refused("", &["--queues", "mails"]);
    assert!(said.contains("add [queues.mails] with a mode and [[workers]]"), "{said}");
    let said = refused("", &["--queues", "mails.eu"]);
    assert!(
        said.contains("add [queues.\"mails.eu\"] with a mode"),
        "a dot would divide it: {said}"
    );
}

#[test]
fn settings_that_contradict_each_other_are_refused_before_anything_is_made() {
    let said = refused("[node]\nheartbeat = \"30s\"\nlease = \"1m\"\n", &[]);
    assert!(said.contains("lease: is 1m: it must be at least 90s"), "{said}");
    let queue = "[node]\nheartbeat = \"20s\"\n[queues.orders]\nmode = \"fifo\"\nlease = \"30s\"\n";
    let said = refused(queue, &[]);
    assert!(said.contains("queues.orders.lease: is 30s"), "{said}");
    let said = refused("[queues.orders]\nmode = \"fifo\"\nmax_crashes = 0\n", &[]);
    assert!(said.contains("queues.orders.max_crashes"), "{said}");
    let said = refused("", &["--concurrency", "0"]);
    assert!(said.contains("concurrency: must be 1 to"), "{said}");
}

#[test]
fn a_cron_entry_without_the_key_that_its_queue_needs_is_refused() {
    let entry = "[[cron]]\nname = \"n\"\nschedule = \"@daily\"\nqueue = \"orders\"\n";
    let config = format!("[queues.orders]\nmode = \"fifo\"\n{entry}");
    let said = refused(&config, &[]);
    assert!(said.contains("seriatim.toml: cron[0] (name \"n\"): `key` is missing"), "{said}");
    let twice = format!("{entry}{entry}");
    assert!(refused(&twice, &[]).contains("cron[1] (name \"n\"): `name`: cron[0] has the same"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_without_workers_says_what_it_does_and_ends_with_a_sentence() {
    let site = Site::new("");
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    site.said("history.ndjson", "this node runs no jobs, it only does maintenance", &store).await;
    serving.stop();
    let log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    assert!(log.contains("stopped: 0 calls: 0 jobs processed; turns: 0 done, 0 failed"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failures_and_burials_are_logged_and_a_history_without_pushes_is_not_blamed() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\nmax_retries = 1\nbackoff = {{ kind = \"constant\", base = \"100ms\" }}\n\
         [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"-c\", \"echo no stock >&2; exit 1\"]\n"
    ));
    let store = site.store().await;
    let serving = site.serve("history.ndjson");
    let pushed = site
        .command(&["push", QUEUE, "1", "--key", "order-42", "--json"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let pushed: serde_json::Value = serde_json::from_slice(&pushed.stdout).unwrap();
    let job = pushed["jobs"][0]["job_id"].as_str().unwrap();
    wait_until(&store, |stats: &QueueStats| stats.dead == 1).await;
    site.said("history.ndjson", "dead", &store).await;
    serving.stop();
    let log = std::fs::read_to_string(site.path("history.ndjson.log")).unwrap();
    let line = |level: &str, end: &str| {
        let start = format!("queue {QUEUE}, key \"order-42\", job {job}: attempt");
        log.lines().any(|line| line.contains(level) && line.contains(&start) && line.ends_with(end))
    };
    assert!(line("WARN", " 1 failed: no stock; tried again in 0.1s"), "{log}");
    let buried = format!(" 2 failed: no stock; dead: `seriatim morgue {QUEUE}` shows it");
    assert!(line("ERROR", &buried), "{log}");
    let history = std::fs::read_to_string(site.path("history.ndjson")).unwrap();
    assert!(history.contains("{\"type\":\"lease\","), "{history}");
    let judged = site.run(&["check", "history.ndjson"]);
    let said = text(&judged);
    assert_eq!(judged.status.code(), Some(1), "{said}");
    assert!(
        said.contains("not judged: no pushes recorded") && !said.contains("VIOLATED"),
        "{said}"
    );
    assert!(said.contains("no violation was found, but the history is incomplete"), "{said}");
}

const FIFO: &str = "[queues.orders]\nmode = \"fifo\"\nmax_retries = 4\n";

#[test]
fn a_push_knows_the_queues_of_the_configuration() {
    let site = Site::new(FIFO);
    let refused = site.run(&["push", "orders", "{}"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(
        text(&refused).contains("key: is needed: the jobs of this queue are ordered by key"),
        "{}",
        text(&refused)
    );
    let pushed = text(&site.run(&["push", "orders", "1", "--key", "k"]));
    assert!(pushed.contains("queued") && !pushed.contains("created queue"), "{pushed}");
    let shown = text(&site.run(&["queues", "show", "orders"]));
    assert!(shown.contains("mode = \"fifo\"") && shown.contains("max_retries = 4"), "{shown}");
    // What was declared keeps its settings.
    std::fs::write(site.path("other.toml"), FIFO.replace('4', "9")).unwrap();
    let pushed = site.run(&["push", "orders", "1", "--key", "k", "--config", "other.toml"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    assert!(text(&site.run(&["queues", "show", "orders"])).contains("max_retries = 4"));
    std::fs::write(site.path("other.toml"), FIFO.replace("fifo", "exclusive")).unwrap();
    let refused = site.run(&["push", "orders", "1", "--key", "k", "--config", "other.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("\"orders\" was declared as fifo"), "{}", text(&refused));
    // A configuration of another store says nothing of this one.
    let elsewhere = format!("[store]\nurl = \"sqlite:elsewhere.db\"\n{FIFO}");
    std::fs::write(site.path("other.toml"), elsewhere).unwrap();
    let here = ["push", "orders", "{}", "--store", "sqlite:b.db", "--config", "other.toml"];
    assert!(text(&site.run(&here)).contains("created queue orders with mode parallel"));
}

/// The mode of queue `orders` in the store.
fn mode_of(site: &Site) -> String {
    let shown = text(&site.run(&["queues", "show", "orders"]));
    let mode = shown.lines().find_map(|line| line.split_once("mode = \"")?.1.split('"').next());
    mode.unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[tokio::test]
async fn a_service_starts_beside_jobs_that_were_pushed_before_it_was_configured() {
    let site = Site::new("");
    let pushed = site.run(&["push", "orders", "{}"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let job = text(&pushed).split(' ').next().unwrap().to_owned();
    let other = "[queues.other]\nmode = \"parallel\"\n[[workers]]\nqueue = \"other\"\ncommand = [\"touch\", \"other.done\"]\n";
    let worker = "[[workers]]\nqueue = \"orders\"\ncommand = [\"touch\", \"orders.done\"]\n";
    std::fs::write(site.path("seriatim.toml"), format!("{FIFO}{other}{worker}")).unwrap();
    let found = text(&site.run(&["doctor"]));
    assert!(
        found.contains("serious  queue orders:") && found.contains("its jobs have no key"),
        "{found}"
    );
    assert!(found.contains("`seriatim jobs delete ID --yes`"), "{found}");
    let serving = site.serve("node");
    let log = || std::fs::read_to_string(site.path("node.log")).unwrap();
    eventually("it says so", async || log().contains("a push made queue \"orders\" parallel"))
        .await;
    assert!(site.run(&["push", "other", "1"]).status.success());
    eventually("it works on its other queue", async || site.path("other.done").exists()).await;
    assert!(!site.path("orders.done").exists() && mode_of(&site) == "parallel");
    assert!(site.run(&["jobs", "delete", &job, "--yes"]).status.success());
    eventually("it is fifo", async || mode_of(&site) == "fifo").await;
    assert!(site.run(&["push", "orders", "1", "--key", "k"]).status.success());
    eventually("it is worked on", async || site.path("orders.done").exists()).await;
    serving.stop();
    assert_eq!(log().lines().filter(|line| line.contains("made queue \"orders\"")).count(), 1);
}

#[tokio::test]
async fn names_that_nothing_declares_are_told_with_the_near_match() {
    let entry = "[[cron]]\nname = \"n\"\nschedule = \"0 0 * * *\"\nqueue = \"ordres\"\n";
    let site = Site::new(&format!("{FIFO}{entry}"));
    let serving = site.serve("node");
    let log = || std::fs::read_to_string(site.path("node.log")).unwrap();
    let says = "pushes to queue \"ordres\", which nothing declares and no worker is for (did you mean \"orders\"?)";
    eventually("it warns", async || log().contains(says)).await;
    serving.stop();
}
