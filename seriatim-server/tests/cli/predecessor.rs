//! A process that was killed, and the one that is started in its place, with the settings that
//! nobody touched: what the first held goes on at once, and nothing of the first works beside it.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim::store::{Declare, NodeState};
use seriatim::{Client, Job, Queue, SharedStore, Timestamp};
use seriatim_verify::checker::check_files;

use crate::site::{QUEUE, Site, eventually, is_alive, kill, text, wait_until};

/// How soon after the restart the key must run again, where its lease is a minute.
const SOON: Duration = Duration::from_secs(2);
/// A command that notes its start, and would run for an hour the first time. What it was when the
/// second one starts stands in the second one's note.
const WORKER: &str = "#!/bin/sh
if test -s first; then
  # One that has ended and that nobody has waited for still has a number.
  case \"$(sed 's/.*) //' /proc/$(cat first)/stat 2> /dev/null)\" in
    Z*|'') echo alone > second.new ;;
    *) echo overlaps > second.new ;;
  esac
  mv second.new second
else
  echo $$ > first.new; mv first.new first
  sleep 3600
fi
";

struct Scene {
    site: Site,
    store: SharedStore,
}

impl Scene {
    async fn new(url: &str, more: &str) -> Self {
        let store_url = match url {
            "" => String::new(),
            url => format!("[store]\nurl = \"{url}\"\n"),
        };
        let site = Site::new(&format!(
            "{store_url}{more}[queues.{QUEUE}]\nmode = \"fifo\"\n\
             [[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"sh\", \"worker.sh\"]\n"
        ));
        fs::write(site.path("worker.sh"), WORKER).unwrap();
        let store = match url {
            "" => site.store().await,
            url => seriatim::connect(url).await.unwrap(),
        };
        store.declare(Declare { now: None, queues: vec![Queue::fifo(QUEUE)] }).await.unwrap();
        Self { site, store }
    }

    /// Starts a node, sees it run the one job, and kills it.
    async fn kill_while_it_runs(&self) -> (i32, String) {
        let first = self.site.serve("first.ndjson");
        eventually("the job runs", async || self.site.path("first").exists()).await;
        let actor = first.kill();
        let pid = fs::read_to_string(self.site.path("first")).unwrap().trim().parse().unwrap();
        assert!(is_alive(pid), "the program has outlived its node");
        (pid, actor)
    }
}

async fn goes_on(url: &str) {
    let scene = Scene::new(url, "").await;
    let recorder = scene.site.recorder(&Queue::fifo(QUEUE));
    let job = Job::new(QUEUE, &1).unwrap().key("a");
    let sent_at = Timestamp::of_this_machine();
    let answer = Client::new(scene.store.clone()).push(job.clone()).await;
    recorder.pushed(sent_at, &job, Some(&answer));
    let (left, actor) = scene.kill_while_it_runs().await;
    recorder.died(&actor);
    let nodes = text(&scene.site.run(&["nodes"]));
    assert!(nodes.contains(" gone ") && !nodes.contains(" alive "), "{nodes}");

    let restarted = Instant::now();
    let second = scene.site.serve("second.ndjson");
    eventually("the key runs again", async || scene.site.path("second").exists()).await;
    let after = restarted.elapsed();
    let log = || fs::read_to_string(scene.site.path("second.ndjson.log")).unwrap();
    assert!(after < SOON, "it took {after:?}: {}", log());
    let seen = fs::read_to_string(scene.site.path("second")).unwrap();
    assert_eq!(seen, "alone\n", "what was left behind has ended: {}", log());
    assert!(!is_alive(left));
    wait_until(&scene.store, |stats| stats.jobs == 0).await;
    second.stop();
    recorder.finish(&*scene.store).await.unwrap();
    let histories = ["pushes.ndjson", "first.ndjson", "second.ndjson"];
    let report = check_files(&histories.map(|name| scene.site.path(name))).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.pushes, report.rescued), (1, 1), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn after_kill_9_the_key_runs_again_within_two_seconds_of_the_restart_on_sqlite() {
    goes_on("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn after_kill_9_the_key_runs_again_within_two_seconds_of_the_restart_on_postgresql() {
    let url = seriatim_testkit::postgres_url().unwrap();
    let between = if url.contains('?') { '&' } else { '?' };
    goes_on(&format!("{url}{between}schema=predecessor_{}", std::process::id())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_it_is_switched_off_the_lease_decides() {
    let scene = Scene::new("", "[node]\ntakeover = false\n").await;
    let job = Job::new(QUEUE, &1).unwrap().key("a");
    Client::new(scene.store.clone()).push(job).await.unwrap();
    let (left, _) = scene.kill_while_it_runs().await;
    let second = scene.site.serve("second.ndjson");
    let alive = async || {
        let (nodes, now) = (scene.store.nodes().await.unwrap(), scene.store.now().await.unwrap());
        nodes.iter().filter(|node| node.state(now) == NodeState::Alive).count()
    };
    // The second has beaten, and has looked for nodes that are gone before it took another job.
    Client::new(scene.store.clone()).push(Job::new(QUEUE, &2).unwrap().key("b")).await.unwrap();
    eventually("the other job runs", async || scene.site.path("second").exists()).await;
    assert_eq!(alive().await, 2, "the first counts as alive until its lease has run out");
    assert!(is_alive(left), "and what it started is left alone");
    second.stop();
    kill(left, Signal::KILL);
}
