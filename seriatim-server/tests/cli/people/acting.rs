//! What is done to queues, lanes and jobs.

use std::time::Duration;

use seriatim::store::Push;
use seriatim::{Job, Outcome};

use super::{House, all, mail, order};

#[tokio::test]
async fn l7_the_morgue_is_listed_edited_and_requeued() {
    let house = House::new().await;
    let mut ids = Vec::new();
    for to in ["bob", "ann", "cat", "dan"] {
        ids.push(house.hand.push(mail(to).priority(3)).await.to_string());
    }
    house.hand.fail_all("mails", "no such address").await;
    let by_key = house.json(&["morgue", "mails", "--by", "key"]);
    assert_eq!(all(&by_key["jobs"], "key"), ["ann", "bob", "cat", "dan"]);
    assert_eq!(by_key["jobs"][0]["error"], "no such address");
    let shown = house.text(&["morgue", "mails", "show", &ids[0]]);
    assert!(shown.contains("no such address") && shown.contains("dead"), "{shown}");

    let edited =
        house.json(&["morgue", "mails", "edit", &ids[0], "--payload", r#"{"to":"bob@b"}"#]);
    let again = house.json(&["jobs", "show", edited["job_id"].as_str().unwrap()]);
    assert_eq!(again["payload"], serde_json::json!({ "to": "bob@b" }));
    assert_eq!(
        (&again["key"], &again["priority"], &again["status"]),
        (&"bob".into(), &3.into(), &"queued".into())
    );
    let gone = house.refused(&["morgue", "mails", "edit", &ids[0], "--payload", "1"], 1);
    assert!(gone.contains("unknown job") || gone.contains("not in the morgue"), "{gone}");

    assert_eq!(house.text(&["morgue", "mails", "requeue", &ids[1]]), "1 job requeued\n");
    assert_eq!(house.json(&["jobs", "show", &ids[1]])["retry_count"], -1);
    let missing = house.refused(&["morgue", "mails", "requeue", &ids[1]], 1);
    assert!(missing.contains("1 id is not in the morgue"), "{missing}");
    let unsaid = house.refused(&["morgue", "mails", "delete", "--key", "cat"], 2);
    assert!(unsaid.contains("confirm with --yes"), "{unsaid}");
    assert_eq!(house.json(&["morgue", "mails", "delete", "--key", "cat", "--yes"])["count"], 1);
    assert_eq!(house.json(&["morgue", "mails", "requeue", "--all"])["count"], 1);
    assert!(house.text(&["morgue", "mails"]).contains("no dead jobs of mails"));
}

#[tokio::test]
async fn l7_an_edit_that_was_interrupted_is_said_again() {
    let house = House::new().await;
    let id = house.hand.push(mail("ann")).await.to_string();
    house.hand.fail_all("mails", "no such address").await;
    // As far as it came: pushed, and the dead one still there.
    let pushed = house.hand.push(mail("ann").idempotency_key(format!("edit-{id}"))).await;
    let other = ["morgue", "mails", "edit", &id, "--payload", r#"{"to":"bob"}"#];
    let refused = house.refused(&other, 1);
    assert!(refused.contains(&format!("pushed job {pushed} with another payload")), "{refused}");
    let edit = ["morgue", "mails", "edit", &id, "--payload", r#"{"to":"ann"}"#];
    let edited = house.json(&edit);
    assert_eq!(edited["status"], "duplicate");
    assert_eq!(edited["job_id"], pushed.to_string());
    let queue = house.json(&["queues", "show", "mails"]);
    assert_eq!((&queue["jobs"], &queue["dead"]), (&1.into(), &0.into()));
}

#[tokio::test]
async fn l16_a_queue_is_paused_and_its_failed_jobs_are_buried_or_deleted() {
    let house = House::new().await;
    let pause = ["queues", "pause", "orders", "--reason", "stocktaking"];
    assert!(house.text(&pause).contains("orders is paused"));
    house.hand.push(order(1, 1)).await;
    assert!(house.hand.claim("orders").await.is_empty());
    assert!(house.text(&["queues"]).contains("paused"));
    assert_eq!(house.json(&["queues", "resume", "orders"])["paused"], false);
    house.hand.push(order(2, 1)).await;
    house.hand.push(order(3, 1).run_in(Duration::from_secs(900))).await;
    house.hand.fail_all("orders", "no stock").await;
    assert_eq!(house.json(&["queues", "show", "orders"])["retrying"], 2);
    assert_eq!(house.text(&["queues", "perform-all-now", "orders"]), "3 lanes are due now\n");
    let unsaid = house.refused(&["queues", "delete-failed", "orders"], 2);
    assert!(unsaid.contains("deletes the failed jobs in 2 lanes of orders"), "{unsaid}");
    assert_eq!(house.json(&["queues", "bury-failed", "orders"])["count"], 2);
    assert_eq!(house.json(&["queues", "show", "orders"])["dead"], 2);
    house.json(&["morgue", "orders", "requeue", "--key", "order-1"]);
    assert_eq!(house.json(&["queues", "delete-failed", "orders", "--yes"])["count"], 0);
    // What is not there needs no --yes.
    let nothing = house.text(&["queues", "delete-failed", "orders"]);
    assert_eq!(nothing, "no job of orders waits for a retry\n");
    let nothing = house.text(&["morgue", "mails", "delete", "--all"]);
    assert_eq!(nothing, "no dead jobs of mails: nothing to delete\n");
}

#[tokio::test]
async fn l16_a_queue_of_more_lanes_than_one_call_reaches_is_made_due() {
    const LANES: u32 = 10_050;
    let house = House::new().await;
    let later = |number| order(number, 1).run_in(Duration::from_secs(3_600));
    for numbers in [0..5_000, 5_000..LANES] {
        let jobs = numbers.map(later).collect();
        house.hand.store.push(Push { now: None, jobs }).await.unwrap();
    }
    assert_eq!(house.json(&["queues", "perform-all-now", "orders"])["count"], LANES);
    let from = ["lanes", "orders", "--by", "key", "--from", "order-9997", "--limit", "2"];
    let page = house.json(&from);
    assert_eq!(all(&page["lanes"], "key"), ["order-9997", "order-9998"]);
    let page = house.json(&[&from[..], &["--after", page["next"].as_str().unwrap()]].concat());
    assert_eq!(all(&page["lanes"], "key"), ["order-9999"]);
    let last = format!("order-{}", LANES - 1);
    let lane = house.json(&["lanes", "orders", "show", &last]);
    let now = seriatim::Timestamp::of_this_machine() + Duration::from_secs(60);
    let due: jiff::Timestamp = lane["due"].as_str().unwrap().parse().unwrap();
    assert!(due.as_microsecond() < now.as_micros(), "{lane}");
}

#[tokio::test]
async fn l16_one_lane_is_paused_retried_and_deleted() {
    let house = House::new().await;
    house.hand.push(order(1, 1)).await;
    house.hand.fail_all("orders", "no stock").await;
    assert!(house.hand.claim("orders").await.is_empty(), "it waits for its retry");
    assert!(house.text(&["lanes", "orders", "retry", "order-1"]).contains("1 lane is due now"));
    house.text(&["lanes", "orders", "pause", "order-1", "--reason", "wrong price"]);
    let shown = house.text(&["key", "order-1"]);
    assert!(shown.contains("ago by ") && shown.contains(": wrong price"), "{shown}");
    assert_eq!(house.json(&["lanes", "orders"])["lanes"][0]["state"], "paused");
    house.text(&["lanes", "orders", "resume", "order-1"]);
    let turn = house.hand.claim("orders").await.remove(0);
    let runs = house.refused(&["lanes", "orders", "delete", "order-1", "--yes"], 1);
    assert!(runs.contains("is claimed") && runs.contains("jobs cancel"), "{runs}");
    house.hand.end(&turn, Outcome::Release).await;
    house.text(&["lanes", "orders", "delete", "order-1", "--yes"]);
    assert_eq!(house.json(&["lanes", "orders"])["lanes"], serde_json::json!([]));
    house.hand.push(Job::new("plain", &1).unwrap().run_in(Duration::from_secs(60))).await;
    let lane = house.json(&["lanes", "plain"])["lanes"][0]["lane"].as_str().unwrap().to_owned();
    house.text(&["lanes", "plain", "retry", "--lane", &lane]);
    assert!(house.json(&["queues", "show", "plain"])["lag"].as_f64().is_some());
}

#[tokio::test]
async fn d4_jobs_are_canceled_at_once_or_flagged() {
    let house = House::new().await;
    let waiting = house.hand.push(mail("ann")).await.to_string();
    let running = house.hand.push(order(1, 1)).await.to_string();
    house.hand.claim("orders").await;
    let canceled = house.json(&["jobs", "cancel", &waiting, &running]);
    assert_eq!(all(&canceled["jobs"], "result"), ["now", "flagged"]);
    assert_eq!(house.json(&["jobs", "show", &running])["cancel_requested"], true);
    let unknown = "01a1fd4b-3421-7000-8002-0000000000ff";
    let told = house.refused(&["jobs", "cancel", unknown], 1);
    assert!(told.contains("is unknown"), "{told}");
    let told = house.refused(&["jobs", "show", unknown], 1);
    assert!(told.contains("unknown job 01a1fd4b-3421-7000-8002-0000000000ff"), "{told}");
    assert!(house.refused(&["jobs", "show", "42"], 2).contains("a job id is a UUID"));
}

#[tokio::test]
async fn n12_a_job_is_rescheduled_reassigned_retried_and_deleted() {
    let house = House::new().await;
    let id = house.hand.push(mail("ann")).await.to_string();
    let at = "2030-01-31T12:00:00Z";
    assert_eq!(house.json(&["jobs", "reschedule", &id, "--at", at])["run_at"], at);
    assert!(house.hand.claim("mails").await.is_empty());
    assert_eq!(house.json(&["jobs", "reassign", &id, "--node", "b"])["node"], "b");
    assert!(house.json(&["jobs", "reassign", &id, "--anyone"])["node"].is_null());
    assert_ne!(house.json(&["jobs", "retry", &id])["run_at"], at);
    house.text(&["lanes", "mails", "pause", "ann"]);
    let paused = house.refused(&["jobs", "retry", &id], 1);
    assert!(paused.contains("`seriatim lanes resume mails ann`"), "{paused}");
    assert!(house.refused(&["jobs", "delete", &id], 2).contains("--yes"));
    assert_eq!(house.json(&["jobs", "delete", &id, "--yes"])["deleted"], true);
    let dead = house.hand.push(order(1, 1).max_retries(0)).await.to_string();
    house.hand.fail_all("orders", "no stock").await;
    let refused = house.refused(&["jobs", "reschedule", &dead, "--in", "5m"], 1);
    assert!(
        refused.contains("but dead: requeue it with `seriatim morgue requeue orders"),
        "{refused}"
    );
    assert_eq!(house.json(&["jobs", "retry", &dead])["status"], "queued");
}

#[tokio::test]
async fn who_is_not_there_is_told_and_what_to_do() {
    let house = House::new().await;
    let cases: [(&[&str], &str); 7] = [
        (&["queues", "show", "ordres"], "did you mean \"orders\"?"),
        (&["queues", "pause", "nowhere"], "`seriatim queues` lists them"),
        (&["lanes", "nowhere"], "no queue \"nowhere\""),
        (&["morgue", "nowhere"], "no queue \"nowhere\""),
        (&["jobs", "--queue", "nowhere"], "no queue \"nowhere\""),
        (&["lanes", "orders", "retry", "x"], "no waiting or claimed jobs with key \"x\""),
        (&["nodes", "stop", "x"], "`seriatim nodes` lists them"),
    ];
    for (arguments, told) in cases {
        let said = house.refused(arguments, 1);
        assert!(said.contains(told), "{told}: {said}");
    }
}

#[tokio::test]
async fn a_job_that_is_rescheduled_in_accumulate_takes_its_key_along_and_that_is_said() {
    let house = House::new().await;
    let id = house.hand.push(order(1, 1)).await.to_string();
    house.hand.push(order(1, 2)).await;
    let moved = house.json(&["jobs", "reschedule", &id, "--in", "1h"]);
    let due: jiff::Timestamp = moved["lane_due"].as_str().unwrap().parse().unwrap();
    let soonest = seriatim::Timestamp::of_this_machine() + Duration::from_secs(3_000);
    assert!(due.as_microsecond() > soonest.as_micros(), "{moved}");
    let said = house.text(&["jobs", "reschedule", &id, "--in", "2h"]);
    assert!(said.contains("all 2 of \"order-1\" are due in "), "{said}");
    house.hand.push(order(2, 1)).await;
    assert_eq!(house.hand.claim("orders").await.len(), 1);
    let behind = house.hand.push(order(2, 2)).await.to_string();
    let moved = house.json(&["jobs", "reschedule", &behind, "--in", "1h"]);
    assert!(moved["lane_due"].is_null(), "that is when the running turn was due: {moved}");
    let said = house.text(&["jobs", "reschedule", &behind, "--in", "1h"]);
    assert!(said.contains("what waits for \"order-2\" is due at that time"), "{said}");
    let mail = house.hand.push(mail("ann")).await.to_string();
    let moved = house.json(&["jobs", "reschedule", &mail, "--in", "1h"]);
    assert!(moved["lane_due"].is_null() && moved["run_at"].is_string(), "{moved}");
}
