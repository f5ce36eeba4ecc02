//! The commands of the guides, run as they stand.

use std::fs;
use std::path::Path;
use std::process::Command;

use seriatim::SharedStore;
use seriatim::store::QueueStats;

use crate::faults::Server;
use crate::site::{Site, eventually, text};

const MOVING: &str = include_str!("../../../docs/moving.md");
const RUBY: &str = include_str!("../../../docs/ruby.md");
const START: &str = include_str!("../../../docs/start.md");

/// What cannot run here, and why not.
const NOT_RUN: [(&str, &str); 2] = [
    ("seriatim serve", "it does not end; the test has one running"),
    ("ruby seriatim_worker.rb --require . --describe > describe.json", "an application of Rails"),
];

type Started = fn() -> Server;

/// Servers that the pages name.
const SERVERS: [(&str, Started); 2] = [
    ("mysql://app@db.example/app", Server::mysql),
    ("postgres://app@db.example/app", Server::postgres),
];

/// The queue of the page's examples.
const CONFIG: &str = "[queues.orders]\nmode = \"accumulate\"\n";
/// What the programs of other systems tell of themselves.
const DESCRIBED: &str = r#"{
    "sidekiq": {"version": "6.4.1", "queues": [["orders", null]], "capsules": [], "middleware": []},
    "lowkiq": {"threads_per_node": 2, "workers": [{"name": "OrderSync", "queue": "orders", "shards_count": 5,
        "batch_size": 10, "max_retry_count": 5}]}
}"#;
const VARIABLES: &str = "APP_HOST=0.0.0.0\nAPP_PORT=8081\nWORKERS_JSON=[{\"queue\":\"etl.default\",\"concurrency\":2}]\n";

/// A command of the page as a user types it, in the folder of a site.
fn shell(site: &Site, command: &str) -> Command {
    let mut shell = site.program("sh", &["-ec", command]);
    let programs = Path::new(env!("CARGO_BIN_EXE_seriatim")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}", programs.display()));
    shell
}

fn types(site: &Site, command: &str) -> String {
    let output = shell(site, command).output().unwrap();
    assert!(output.status.success(), "{command}\n{}", text(&output));
    text(&output)
}

/// Those between backticks, and the lines of its blocks for the shell, in the order of the page.
fn commands(page: &str) -> Vec<String> {
    let (mut all, mut is_block) = (Vec::new(), false);
    for line in page.lines() {
        match line {
            "```sh" => is_block = true,
            "```" => is_block = false,
            line if is_block => all.push(line.to_owned()),
            line => {
                let quoted = line.split('`').skip(1).step_by(2);
                all.extend(quoted.filter(|text| text.starts_with("seriatim ")).map(str::to_owned));
            }
        }
    }
    all
}

#[tokio::test]
async fn the_commands_of_the_pages_on_moving_in_do_what_they_say() {
    let site = Site::new(CONFIG);
    for (name, content) in [
        ("describe.json", DESCRIBED),
        (".env", VARIABLES),
        ("seriatim_worker.rb", ""),
        ("worker.py", ""),
    ] {
        fs::write(site.path(name), content).unwrap();
    }
    let (node, store) = (site.serve("node"), site.store().await);
    eventually("it has declared its queue", async || {
        store.queues().await.is_ok_and(|queues| !queues.is_empty())
    })
    .await;
    let servers = SERVERS.map(|(named, start)| (named, start()));
    let mut left: Vec<&str> = NOT_RUN.iter().map(|(command, _)| *command).collect();
    let mut run = 0;
    for command in commands(MOVING).into_iter().chain(commands(RUBY)) {
        if NOT_RUN.iter().any(|(not_run, _)| *not_run == command) {
            left.retain(|not_run| *not_run != command);
            continue;
        }
        let mut here = command.replace("NODE", "node");
        for (named, server) in &servers {
            here = here.replace(named, &server.url());
        }
        let mut shell = shell(&site, &here);
        shell.env("SERIATIM_TOKEN", "sesame-sesame-sesame");
        let output = shell.env("SERIATIM_STORE", "sqlite:seriatim.db").output().unwrap();
        assert!(output.status.success(), "{command}\n{}", text(&output));
        run += 1;
    }
    assert_eq!(left, [""; 0], "no page has these any more");
    assert!(run > 10, "{run} were run");
    for (named, server) in &servers {
        let made = seriatim::connect_existing(&server.url()).await;
        assert!(made.is_ok(), "{named}: {:?}", made.err());
    }
    node.stop();
}

/// A block of the page that is a file of this name.
fn file_in(page: &str, name: &str) -> String {
    let mut blocks = page.split("```").skip(1).step_by(2);
    let begins = format!("# {name}");
    let is_it = |block: &&str| block.lines().nth(1).is_some_and(|line| line.starts_with(&begins));
    let block = blocks.find(is_it).unwrap_or_else(|| panic!("there is no block of {name}"));
    block.split_once('\n').unwrap().1.to_owned()
}

async fn stats(store: &SharedStore) -> QueueStats {
    store.stats(None).await.unwrap().remove(0)
}

/// Types the lines. What a comment says that a file has is what it has, once nothing runs any more.
async fn types_all(site: &Site, store: &SharedStore, lines: &str) {
    for line in lines.lines() {
        if line.starts_with("cat ") || line.starts_with("seriatim stats") {
            eventually("nothing runs", async || stats(store).await.jobs == 0).await;
        }
        let said = types(site, line);
        if let (true, Some((_, comment))) = (line.starts_with("cat "), line.split_once("# ")) {
            let expected = comment.trim_start_matches("then ");
            let has = said.lines().collect::<Vec<_>>().join(", ");
            assert!(has.ends_with(expected), "{line}\n{has}");
        }
    }
}

#[tokio::test]
async fn who_does_what_the_first_page_says_sees_what_it_says() {
    let site = Site::new(&file_in(START, "seriatim.toml"));
    fs::write(site.path("send.sh"), file_in(START, "send.sh")).unwrap();
    let blocks = START.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    let [_from_source, _folder, _send, start, push, requeue, more] = blocks[..] else {
        panic!("{blocks:?}");
    };
    types(&site, start.strip_suffix("seriatim serve\n").unwrap());
    let (node, store) = (site.serve("node"), site.store().await);
    types(&site, push);
    eventually("it is dead", async || stats(&store).await.dead == 1).await;
    let morgue = types(&site, "seriatim morgue mails");
    assert!(morgue.contains("{\"to\":\"ann\"}  no outbox"), "{morgue}");
    types_all(&site, &store, requeue).await;
    let QueueStats { processed, failed, dead, .. } = stats(&store).await;
    assert!(
        requeue.contains(&format!("{processed} processed, {failed} failed turns, {dead} dead"))
    );
    types_all(&site, &store, more).await;
    node.stop();
}
