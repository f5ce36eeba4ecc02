//! What the doctor finds.

use std::time::Duration;

use serde_json::Value;
use seriatim::store::{Heartbeat, NodeInfo, OpenBatch, SealBatch, Trouble, TroubleKind};
use seriatim::{Exhaustion, Outcome, Queue};

use super::{House, mail, order};
use crate::hand::Hand;
use crate::site::{Site, text};

fn findings(site: &Site, code: i32) -> Vec<Value> {
    let output = site.run(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["healthy"], code == 0);
    report["findings"].as_array().unwrap().clone()
}

#[track_caller]
fn assert_found(findings: &[Value], severity: &str, parts: &[&str]) {
    let fits = |finding: &&Value| {
        let said = format!("{} {} {}", finding["about"], finding["found"], finding["advice"]);
        finding["severity"] == severity && parts.iter().all(|part| said.contains(part))
    };
    assert!(findings.iter().any(|finding| fits(&finding)), "{severity} {parts:?}: {findings:#?}");
}

#[tokio::test]
async fn d18_a_healthy_store_passes() {
    let house = House::new().await;
    house.hand.push(order(1, 1)).await;
    let found = findings(&house.site, 0);
    assert!(
        found
            .iter()
            .all(|finding| finding["about"] == "store"
                || finding["found"].to_string().contains("tmpfs")),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_key_that_waits_long_for_its_retry_while_others_wait_behind_is_named() {
    let site = Site::new("");
    let queues = vec![Queue::fifo("mails"), Queue::exclusive("calls")];
    let hand = Hand::new(site.store().await, queues).await;
    for name in ["mails", "calls"] {
        for number in 0..2 {
            hand.push(seriatim::Job::new(name, &number).unwrap().key("ann")).await;
        }
        let retry_in = Some(Duration::from_secs(3 * 3_600));
        let later = Outcome::Retry { error: "smtp is down".into(), retry_in };
        hand.end(&hand.claim(name).await[0], later).await;
    }
    hand.push(mail("bob")).await;
    let said = findings(&site, 0);
    assert_found(
        &said,
        "warning",
        &[
            "queue mails",
            "\\\"ann\\\" waits for a retry in",
            "and 1 other job waits for it",
            "lanes retry mails ann",
        ],
    );
    assert!(!said.iter().any(|finding| finding["queue"] == "calls"), "others pass it: {said:?}");
}

#[tokio::test]
async fn d18_what_is_stuck_slow_or_failing_is_named_with_what_to_do() {
    let site = Site::new("");
    let hold = Queue::fifo("mails").max_retries(0).exhausted(Exhaustion::Hold);
    let queues = vec![Queue::accumulate("orders"), hold, Queue::fifo("bills").max_retries(0)];
    let mut hand = Hand::new(site.store().await, queues).await;
    let start = hand.now;
    hand.now = start - Duration::from_secs(7_200);
    hand.push(order(1, 1)).await;
    assert_eq!(hand.claim("orders").await.len(), 1);
    hand.now = start;
    hand.push(mail("ann")).await;
    hand.fail_all("mails", "smtp is down").await;
    hand.push(seriatim::Job::new("bills", &1).unwrap().key("b")).await;
    hand.fail_all("bills", "no\nprinter").await;
    let said = findings(&site, 1);
    assert_found(
        &said,
        "warning",
        &["queue orders", "\\\"order-1\\\" runs far longer", "jobs cancel"],
    );
    assert_found(
        &said,
        "serious",
        &["queue mails", "\\\"ann\\\" is held, all retries used up", "lanes retry mails ann"],
    );
    assert_found(&said, "warning", &["queue bills", "1 job died in the last hour", "morgue bills"]);
    let told = text(&site.run(&["doctor"]));
    assert!(told.starts_with("serious  queue mails: \"ann\" is held"), "{told}");
    assert!(told.contains("no\\nprinter"), "{told}");
}

#[tokio::test]
async fn a_small_morgue_is_nearly_full_from_four_fifths_of_its_limit_on() {
    let site = Site::new("");
    let mut small = Queue::parallel("mails").max_retries(0);
    small.retain_dead_max = 5;
    let hand = Hand::new(site.store().await, vec![small]).await;
    for dead in 1..=4 {
        hand.push(seriatim::Job::new("mails", &dead).unwrap()).await;
        hand.fail_all("mails", "smtp is down").await;
        let said = text(&site.run(&["doctor"]));
        assert_eq!(said.contains("of at most 5 dead jobs"), dead == 4, "{said}");
    }
}

#[tokio::test]
async fn d18_what_fails_again_and_again_lags_or_is_paused_is_a_warning() {
    let site = Site::new("");
    let mut cap = Queue::fifo("mails").max_retries(0);
    cap.retain_dead_max = 1;
    let mut hand = Hand::new(site.store().await, vec![Queue::exclusive("orders"), cap]).await;
    hand.push(order(1, 1)).await;
    for _ in 0..6 {
        for turn in hand.claim("orders").await {
            let outcome =
                Outcome::Retry { error: "no stock".into(), retry_in: Some(Duration::ZERO) };
            hand.end(&turn, outcome).await;
        }
    }
    hand.push(mail("ann")).await;
    hand.fail_all("mails", "smtp is down").await;
    let start = hand.now;
    hand.now = start - Duration::from_secs(600);
    hand.push(order(2, 1)).await;
    hand.push(order(3, 1)).await;
    hand.now = start;
    let pause = ["lanes", "pause", "orders", "order-3", "--reason", "wrong price"];
    assert!(site.run(&pause).status.success());
    let said = findings(&site, 1);
    assert_found(
        &said,
        "warning",
        &["\\\"order-1\\\" failed 6 times; no stock", "lanes retry orders order-1"],
    );
    assert_found(
        &said,
        "warning",
        &["queue orders", "its oldest due lane has been waiting for 10m0", "the logs of its nodes"],
    );
    let paused = ["\\\"order-3\\\" is paused (", ": wrong price)", "lanes resume orders order-3"];
    assert_found(&said, "warning", &paused);
    assert_found(&said, "serious", &["has 1 of at most 1 dead jobs"]);
}

#[tokio::test]
async fn e2_a_queue_that_lags_is_told_whether_slots_or_keys_are_missing() {
    let site = Site::new("");
    let mut hand = Hand::new(site.store().await, vec![Queue::fifo("mails")]).await;
    let start = hand.now;
    hand.now = start - Duration::from_secs(600);
    hand.push(mail("ann")).await;
    hand.push(mail("bob")).await;
    hand.claim("mails").await;
    hand.push(mail("eve")).await;
    hand.now = start;
    (hand.node.concurrency, hand.node.busy) = (4, 4);
    hand.beat().await;
    assert_found(
        &findings(&site, 0),
        "warning",
        &["queue mails", "all 4 slots of 1 node are busy"],
    );
    hand.node.busy = 1;
    hand.beat().await;
    let few_keys = ["queue mails", "3 of 4 slots of 1 node are free", "more keys"];
    assert_found(&findings(&site, 0), "warning", &few_keys);
    // A remote worker reports no slots.
    (hand.node.concurrency, hand.node.busy) = (0, 0);
    hand.beat().await;
    assert_found(&findings(&site, 0), "warning", &["queue mails", "remote workers work on it"]);
}

#[tokio::test]
async fn d18_a_node_that_is_gone_with_its_work_is_serious() {
    let site = Site::new("");
    let mut hand = Hand::new(site.store().await, vec![Queue::accumulate("orders")]).await;
    hand.node.id = "gone-1".into();
    hand.now = hand.now - Duration::from_secs(600);
    hand.beat().await;
    hand.push(order(1, 1)).await;
    hand.claim("orders").await;
    hand.push(order(2, 1)).await;
    hand.node.id = "hand-1".into();
    let said = findings(&site, 1);
    assert_found(&said, "serious", &["node gone-1", "past its lease", "still has 1 lane claimed"]);
    // The living node has been told to take nothing.
    assert!(site.run(&["nodes", "quiet", "hand-1"]).status.success());
    assert_found(&findings(&site, 1), "serious", &["queue orders", "no node works on it"]);
    assert!(site.run(&["queues", "pause", "orders", "--reason", "a deploy"]).status.success());
    // The lane that is claimed does not wait.
    let paused = ["queue orders", "is paused (", ": a deploy), with 1 lane waiting"];
    assert_found(&findings(&site, 1), "warning", &paused);
}

#[tokio::test]
async fn a_paused_queue_in_which_nothing_waits_is_no_finding() {
    let site = Site::new("");
    let hand = Hand::new(site.store().await, vec![Queue::fifo("mails")]).await;
    hand.push(mail("ann")).await;
    assert_eq!(hand.claim("mails").await.len(), 1);
    assert!(site.run(&["queues", "pause", "mails"]).status.success());
    let said = findings(&site, 0);
    assert!(!said.iter().any(|finding| finding["queue"] == "mails"), "it runs: {said:?}");
}

#[tokio::test]
async fn what_a_failover_lost_is_a_warning() {
    let mut house = House::new().await;
    let now = house.hand.now;
    house.hand.node.troubles.push(Trouble {
        kind: TroubleKind::WritesLost,
        queue: None,
        about: "the store".into(),
        text: "claims that this node had ended or never got: 2".into(),
        times: 1,
        since: now,
        last_at: now,
    });
    house.hand.beat().await;
    let lost =
        ["the store lost writes: claims that this node had ended or never got: 2", "wait_replicas"];
    assert_found(&findings(&house.site, 0), "warning", &lost);
}

#[tokio::test]
async fn d18_a_job_bound_to_a_node_that_is_not_there_is_serious() {
    let house = House::new().await;
    let bound = |node: &str, number| {
        let mut job = order(number, 1);
        job.options.node = Some(node.to_owned());
        job
    };
    house.hand.push(bound("hand-1", 1)).await;
    assert!(
        findings(&house.site, 0)
            .iter()
            .all(|finding| !finding["found"].to_string().contains("bound"))
    );
    let lost = house.hand.push(bound("nowhere", 2)).await.to_string();
    let advice = format!("jobs reassign {lost} --anyone");
    let said = findings(&house.site, 1);
    assert_found(&said, "serious", &["1 waiting job is bound", "nowhere", "not known", &advice]);
    assert!(house.site.run(&["jobs", "reassign", &lost, "--anyone"]).status.success());
    findings(&house.site, 0);
    // A node of this name that works on other queues is of no use either.
    house.hand.push(bound("elsewhere", 3)).await;
    let mut other = NodeInfo::new("elsewhere-1".into(), Duration::from_secs(60));
    (other.name, other.queues) = ("elsewhere".into(), vec!["mails".to_owned()]);
    let beat = Heartbeat { now: Some(house.hand.now), node: other, beats: Vec::new() };
    house.hand.store.heartbeat(beat).await.unwrap();
    assert_found(&findings(&house.site, 1), "serious", &["elsewhere", "not work on this queue"]);
}

#[tokio::test]
async fn d18_the_first_of_several_jobs_of_a_key_that_lags_is_told_if_no_node_may_run_it() {
    let mut house = House::new().await;
    house.hand.now = house.hand.now - Duration::from_secs(120);
    for version in [1, 2] {
        let mut job = order(1, version);
        job.options.node = Some("nowhere".to_owned());
        house.hand.push(job).await;
    }
    let said = findings(&house.site, 1);
    assert_found(&said, "serious", &["1 waiting job is bound", "nowhere", "not known"]);
}

#[tokio::test]
async fn d13_a_job_of_a_group_that_no_node_serves_is_serious() {
    let house = House::new().await;
    let mut job = order(1, 1);
    job.options.consumer_group = Some("eu".to_owned());
    let waits = house.hand.push(job).await.to_string();
    let said = findings(&house.site, 1);
    assert_found(&said, "serious", &["group", "eu", "which no node of this queue serves", &waits]);
    let mut node = NodeInfo::new("eu-1".into(), Duration::from_secs(60));
    (node.groups, node.queues) = (vec!["eu".to_owned()], vec!["orders".to_owned()]);
    let beat = Heartbeat { now: Some(house.hand.now), node, beats: Vec::new() };
    house.hand.store.heartbeat(beat).await.unwrap();
    findings(&house.site, 0);
}

#[tokio::test]
async fn d18_definitions_that_differ_are_told() {
    let house = House::new().await;
    let config = "[queues.orders]\nmode = \"accumulate\"\nmax_retries = 3\n[queues.mails]\nmode = \"exclusive\"\n[queues.new]\nmode = \"fifo\"\n";
    std::fs::write(house.site.path("seriatim.toml"), config).unwrap();
    house.hand.push(seriatim::Job::new("stray", &1).unwrap()).await;
    house.hand.push(mail("ann")).await;
    let said = findings(&house.site, 1);
    assert_found(
        &said,
        "serious",
        &["queue mails", "mode \\\"exclusive\\\", in the store \\\"fifo\\\""],
    );
    assert_found(&said, "notice", &["queue orders", "max_retries 3, in the store 2"]);
    assert_found(&said, "notice", &["queue new", "not in the store"]);
    assert_found(&said, "notice", &["queue stray", "it is not declared"]);
}

#[tokio::test]
async fn the_doctor_says_of_a_queue_that_a_push_made_what_serve_does_with_it() {
    let site = Site::new("");
    let mut hand = Hand::new(site.store().await, vec![Queue::exclusive("declared")]).await;
    for queue in ["converted", "waiting", "declared"] {
        hand.push(seriatim::Job::new(queue, &1).unwrap().key("k")).await;
    }
    hand.push(seriatim::Job::new("stuck", &1).unwrap()).await;
    assert_eq!(hand.claim("waiting").await.len(), 1);
    let names = ["converted", "waiting", "declared", "stuck", "new"];
    let config = names.map(|name| format!("[queues.{name}]\nmode = \"fifo\"\n")).concat();
    std::fs::write(site.path("seriatim.toml"), &config).unwrap();
    let said = findings(&site, 1);
    assert_found(&said, "notice", &["queue new", "creates it"]);
    assert_found(&said, "notice", &["queue converted", "converts it to fifo and keeps its jobs"]);
    assert_found(&said, "warning", &["queue waiting", "as soon as none of its jobs runs"]);
    assert_found(&said, "serious", &["queue stuck", "claims nothing from it"]);
    assert_found(&said, "serious", &["queue declared", "refuses to start"]);
    let refused = text(&site.run(&["serve", "--no-http"]));
    assert!(refused.contains("queues.declared.mode: queue \"declared\" is exclusive"), "{refused}");
    // Without that one it starts, and does what was said.
    let config = config.replace("[queues.declared]\nmode = \"fifo\"\n", "");
    std::fs::write(site.path("seriatim.toml"), config).unwrap();
    let serving = site.serve("node");
    site.said("node", "serving store=", &hand.store).await;
    let views = hand.store.queues().await.unwrap();
    let modes: Vec<String> =
        views.iter().map(|view| format!("{} {}", view.queue.name, view.queue.mode)).collect();
    let expected =
        ["converted fifo", "declared exclusive", "new fifo", "stuck parallel", "waiting exclusive"];
    assert_eq!(modes, expected);
    hand.now = seriatim::Timestamp::of_this_machine();
    serving.stop();
}

#[tokio::test]
async fn a_batch_that_nobody_seals_and_one_without_its_callback_are_named() {
    let site = Site::new("");
    let reports = Queue::fifo("reports").throttle(Duration::from_secs(3_600));
    let hand = Hand::new(site.store().await, vec![reports]).await;
    let open = async |id: &str, ago: u64, job: seriatim::Job| {
        let now = Some(hand.now - Duration::from_secs(ago));
        hand.store.open_batch(OpenBatch { now, id: id.into(), callback: job }).await.unwrap();
    };
    let report = |n: u32| seriatim::Job::new("reports", &n).unwrap().key("daily");
    open("forgotten", 2 * 86_400, report(1)).await;
    open("fresh", 60, report(2)).await;
    for id in ["first", "second"] {
        open(id, 60, report(3)).await;
        let seal = SealBatch { now: Some(hand.now), id: id.into() };
        hand.store.seal_batch(seal).await.unwrap();
    }
    let said = findings(&site, 0);
    let unsealed = ["1 batch not sealed", "forgotten was opened 2d", "batches seal forgotten"];
    assert_found(&said, "notice", &unsealed);
    assert_found(&said, "warning", &["1 batch ended without a callback", "second", "throttled"]);
}
