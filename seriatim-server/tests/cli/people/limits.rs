//! What people see of limits and groups, and how they change them.

use std::time::Duration;

use seriatim::{Groups, Job, Queue, Rate, Share};

use crate::hand::Hand;
use crate::site::{Site, text};

fn mail(key: &str, group: &str) -> Job {
    Job::new("mails", &1).unwrap().key(key).group(group)
}

/// What a command that succeeds prints.
#[track_caller]
fn says(site: &Site, arguments: &[&str]) -> String {
    let output = site.run(arguments);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn why(site: &Site, key: &str) -> String {
    let shown = says(site, &["lanes", "show", "mails", key]);
    let line = shown.lines().find_map(|line| line.strip_prefix("why"));
    line.unwrap_or_else(|| panic!("{shown}")).trim().to_owned()
}

#[tokio::test]
async fn a_lane_and_the_doctor_say_which_limit_holds_jobs_back() {
    let site = Site::new("");
    let groups = Groups::each(Share::default().running(1));
    let queue = |groups: Groups| Queue::fifo("mails").running(2).groups(groups);
    let mut hand = Hand::new(site.store().await, vec![queue(groups)]).await;
    let start = hand.now;
    hand.now = start - Duration::from_secs(600);
    for (key, group) in [("a", "acme"), ("b", "acme"), ("c", "bolt"), ("d", "core")] {
        hand.push(mail(key, group)).await;
    }
    assert_eq!(hand.claim("mails").await.len(), 2);
    (hand.now, hand.node.concurrency) = (start, 9);
    hand.beat().await;
    assert_eq!(why(&site, "b"), "2 turns of the queue run, and at most 2 may");
    let said = says(&site, &["doctor"]);
    let at_limit = "it is at its limit: 2 turns of the queue run, and at most 2 may. `seriatim queues limits mails --running N`";
    assert!(said.contains(at_limit), "{said}");

    assert_eq!(
        says(&site, &["queues", "limits", "mails", "--running", "5"]),
        "mails has\ngroups = { running = 1 }\nlimit = { running = 5 }\n"
    );
    let (b, d) = (why(&site, "b"), why(&site, "d"));
    let (full, free) = if b.contains("acme run") { (b, d) } else { (d, b) };
    let said = "runs, and at most 1 may";
    assert!(full.starts_with("1 turn of group ") && full.ends_with(said), "{full}");
    assert!(
        free.starts_with("ready for 10m") && free.ends_with("takes turns with others"),
        "{free}"
    );
    let said = says(&site, &["doctor"]);
    assert!(said.contains("groups are at their limit: group "), "{said}");
}

#[tokio::test]
async fn limits_are_changed_one_by_one_and_removed() {
    let site = Site::new("");
    let queue = Queue::fifo("mails").rate(Rate::per_second(5)).burst(3);
    let _hand = Hand::new(site.store().await, vec![queue]).await;
    let limits = |more: &[&str]| says(&site, &[&["queues", "limits", "mails"], more].concat());
    let limit = |of: &str| format!("mails has\nlimit = {of}\n");
    assert_eq!(limits(&["--running", "4"]), limit(r#"{ burst = 3, rate = "5/s", running = 4 }"#));
    assert_eq!(limits(&["--rate", "9/m"]), limit(r#"{ rate = "9/m", running = 4 }"#));
    assert_eq!(limits(&[]), limit(r#"{ rate = "9/m", running = 4 }"#));
    let groups = limits(&["--group", "acme", "--weight", "3", "--running", "2"]);
    assert!(
        groups.contains("groups = { named = { acme = { running = 2, weight = 3 } } }"),
        "{groups}"
    );
    assert!(limits(&["--groups", "--running", "1"]).contains("running = 1 }\n"));
    assert!(says(&site, &["queues", "show", "mails"]).contains("named = { acme = {"));
    assert!(!limits(&["--group", "acme", "--none"]).contains("acme"));
    assert_eq!(limits(&["--groups", "--none"]), limit(r#"{ rate = "9/m", running = 4 }"#));
    assert_eq!(limits(&["--none"]), "mails has no limit and no groups\n");
    for (refused, said) in [
        (&["--group", "acme", "--none"][..], "has no limit of its own"),
        (&["--groups"], "required"),
        (&["--weight", "2"], "required"),
        (&["--group", "a", "--groups", "--running", "2"], "cannot be used with"),
        (&["--running", "0"], "must be 1 to"),
        (&["--burst", "2"], "needs a rate"),
    ] {
        let output = site.run(&[&["queues", "limits", "mails"], refused].concat());
        assert!(!output.status.success() && text(&output).contains(said), "{}", text(&output));
    }
    says(&site, &["queues", "limits", "mails", "--groups", "--weight", "1"]);
    says(&site, &["push", "mails", "1", "--key", "k", "--group", "acme"]);
    assert!(
        says(&site, &["jobs", "list", "--queue", "mails", "--json"]).contains(r#""group":"acme""#)
    );
}
