//! Jobs of every version of Sidekiq, and what is none.

use std::time::Duration;

use serde_json::value::RawValue;
use seriatim::store::{Cancel, JobQuery, JobState, JobView, Memory, Push};
use seriatim::{Client, Job, RunAt, SharedStore, Timestamp};

use super::batch::of_set;
use super::element::Retries;
use super::returned::Returned;
use super::route::of_bridge;
use super::{Element, Reason, Refusal, Routes};
use crate::config::BridgeConfig;

/// Elements as the versions write them: the corpus of the fuzzer.
const JOBS: &str = include_str!("../../../testkit/corpus/sidekiq/jobs.lines");
/// What the versions' own clients and servers wrote: above each element its version, its place, and its score.
const RECORDED: &str = include_str!("../../../testkit/corpus/sidekiq/recorded.lines");

fn bridge(routes: &str) -> BridgeConfig {
    let text = format!(
        "name = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"R\"\nqueues = [\"critical\", \"default\"]\n{routes}"
    );
    toml::from_str(&text).unwrap()
}

fn routes(routes: &str) -> Routes {
    Routes::new(&bridge(routes), "default", None)
}

fn job(routes: &Routes, bytes: &str) -> Result<Job, Refusal> {
    routes.job(bytes.as_bytes(), RunAt::Now, || "run-7".to_owned())
}

/// The corpus' job with this id.
fn of(jid: &str) -> &'static str {
    JOBS.lines().find(|line| line.contains(jid)).unwrap()
}

#[test]
fn a_job_of_every_version_is_read() {
    let lines = || JOBS.lines().filter(|line| !line.starts_with("##"));
    let read = lines().filter(|line| Element::read(line.as_bytes()).is_ok()).count();
    assert_eq!((read, lines().count() - read), (14, 9));
    let class = |jid: &str| Element::read(of(jid).as_bytes()).unwrap().class;
    assert_eq!(class("b4a577edbccf1d805744efa9"), "OrderSync");
    // What ActiveJob wraps counts, in both kinds of wrapper.
    assert_eq!(class("2c3f9ab3e2d5b2f46b3b5c5e"), "OrderSyncJob");
    assert_eq!(class("6c3f9ab3e2d5b2f46b3b5c62"), "OrderSyncJob");
}

#[test]
fn times_are_seconds_or_milliseconds_by_their_size() {
    let since = |jid: &str| Element::read(of(jid).as_bytes()).unwrap().since().unwrap();
    let at = |micros: i64| Timestamp::from_micros(micros);
    assert_eq!(since("5c3f9ab3e2d5b2f46b3b5c61"), at(1_769_860_800_251_000));
    assert_eq!(since("9c3f9ab3e2d5b2f46b3b5c65"), at(1_769_860_800_000_000));
    assert_eq!(since("3c3f9ab3e2d5b2f46b3b5c5f"), at(1_769_860_800_250_000));
}

#[test]
fn retries_are_those_of_the_job_and_its_failures_count_in_them() {
    let retries = |jid: &str| Element::read(of(jid).as_bytes()).unwrap().retries();
    assert_eq!(retries("b4a577edbccf1d805744efa9"), Retries::Default);
    assert_eq!(retries("aa8d8a4e3f3f4f5ab1c1a1d1"), Retries::Most(0));
    assert_eq!(retries("b4a577edbccf1d805744efaa"), Retries::Most(3));
    let past = |jid: &str| job(&routes(""), of(jid)).unwrap().past;
    assert_eq!(past("b4a577edbccf1d805744efa9"), None);
    let failed = past("b4a577edbccf1d805744efaa").unwrap();
    assert_eq!((failed.failures, failed.error.as_deref()), (1, Some("RuntimeError: no")));
    let at = |micros: i64| Some(Timestamp::from_micros(micros));
    assert_eq!(failed.started_at, at(1_479_913_846_100_000));
    assert_eq!((failed.created_at, failed.dead_at), (at(1_479_913_845_678_900), None));
}

#[test]
fn what_is_odd_in_a_past_is_left_out_and_the_job_is_taken() {
    let odd = r#"{"class":"A","args":[],"retry_count":4000000000,"failed_at":-7,"created_at":1e300,"error_class":7,"error_message":"a\u0000b"}"#;
    let past = job(&routes(""), odd).unwrap().past.unwrap();
    assert_eq!((past.failures, past.error.as_deref()), (1_000_000, Some("a\u{fffd}b")));
    assert_eq!((past.started_at, past.created_at), (None, None));
    for none in ["-1", "null", "\"2\"", "1.5"] {
        let text = format!(r#"{{"class":"A","args":[],"retry_count":{none}}}"#);
        assert_eq!(job(&routes(""), &text).unwrap().past, None, "{none}");
    }
    let died = Timestamp::from_micros(7);
    let dead = routes("").dead(br#"{"class":"A","args":[]}"#, died, || "n".to_owned()).unwrap();
    assert_eq!(dead.past.unwrap().dead_at, Some(died));
}

#[test]
fn the_whole_job_is_the_payload_byte_by_byte_unless_a_route_says_otherwise() {
    let line = JOBS.lines().find(|line| line.contains("98765432109876543210987")).unwrap();
    let whole = job(&routes(""), line).unwrap();
    assert_eq!((whole.queue.as_str(), whole.task.as_deref()), ("default", Some("Mail")));
    assert_eq!(whole.payload.as_bytes(), line.as_bytes());
    let part = routes("[[routes]]\nqueue = \"mails\"\npayload = \"/args\"\npriority = 5");
    let part = job(&part, line).unwrap();
    assert_eq!((part.queue.as_str(), part.priority), ("mails", 5));
    let args = br#"[98765432109876543210987,"a\u0000b",1.50,null,true,{"a":{"a":1,"a":2}}]"#;
    assert_eq!(part.payload.as_bytes(), args);
}

#[test]
fn keys_are_texts_whole_numbers_of_any_length_or_globalids() {
    let routes = routes("[[routes]]\nqueue = \"orders\"\nkey = \"/args/0\"");
    let key = |args: &str| {
        let told = format!("{{\"class\":\"A\",\"args\":{args}}}");
        job(&routes, &told).map(|job| job.key.unwrap()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(key("[\"o1\"]").unwrap(), "o1");
    assert_eq!(key("[\"\\u00fc\"]").unwrap(), "ü");
    assert_eq!(key("[-98765432109876543210987]").unwrap(), "-98765432109876543210987");
    assert_eq!(key("[{\"_aj_globalid\":\"gid://shop/Order/42\"}]").unwrap(), "gid://shop/Order/42");
    let long = format!("[\"{}\"]", "x".repeat(513));
    for wrong in [
        "[]",
        "[null]",
        "[1.5]",
        "[1e3]",
        "[true]",
        "[{}]",
        "[[1]]",
        "[\"\"]",
        "[\"\\u0000\"]",
        &long,
    ] {
        assert_eq!(key(wrong).unwrap_err(), Reason::Key, "{wrong}");
    }
    let active = of("2c3f9ab3e2d5b2f46b3b5c5e");
    let routes = self::routes(
        "[[routes]]\nclass = \"*Job\"\nqueue = \"orders\"\nkey = \"/args/0/arguments/0\"\nscore = \"/args/0/arguments/1/version\"",
    );
    let active = job(&routes, active).unwrap();
    assert_eq!((active.key.as_deref(), active.score), (Some("gid://shop/Order/42"), Some(3.0)));
}

#[test]
fn a_missing_key_is_refused_or_a_fixed_one_but_a_wrong_one_is_always_refused() {
    let fixed = routes("[[routes]]\nkey = \"/args/0\"\nmissing_key = \"none\"");
    assert_eq!(job(&fixed, r#"{"class":"A","args":[]}"#).unwrap().key.as_deref(), Some("none"));
    assert_eq!(job(&fixed, r#"{"class":"A","args":[1.5]}"#).unwrap_err().reason, Reason::Key);
}

#[test]
fn a_score_that_is_no_number_or_would_be_rounded_is_refused() {
    let routes = routes("[[routes]]\nkey = \"/args/0\"\nscore = \"/args/1\"");
    let score = |text: &str| {
        let told = format!("{{\"class\":\"A\",\"args\":[\"k\"{text}]}}");
        job(&routes, &told).map(|job| job.score.unwrap()).map_err(|refusal| refusal.reason)
    };
    assert!((score(",-1.5").unwrap() + 1.5).abs() < f64::EPSILON);
    for wrong in ["", ",null", ",\"7\"", ",9007199254740994", ",true"] {
        assert_eq!(score(wrong).unwrap_err(), Reason::Score, "{wrong}");
    }
}

#[test]
fn b4_one_id_pushed_again_is_another_job_and_the_same_bytes_are_the_same() {
    let name = |bytes: &str| job(&routes(""), bytes).unwrap().options.idempotency_key.unwrap();
    let first = r#"{"class":"A","args":[],"jid":"j","enqueued_at":1.5}"#;
    assert_eq!(name(first), name(first));
    assert_ne!(name(first), name(&first.replace("1.5", "1.6")));
    assert!(name(first).starts_with("j-"));
    // Without an id, its place is: the server's run and the number of the job.
    assert_eq!(name(r#"{"class":"A","args":[]}"#), "run-7");
    // An id that cannot be shown.
    let odd = format!(r#"{{"class":"A","args":[],"jid":"a\u0000{}"}}"#, "x".repeat(300));
    assert_eq!(name(&odd).len(), 32);
}

#[test]
fn jobs_that_differ_only_in_ids_and_times_merge_in_accumulate() {
    let digest = |bytes: &str| job(&routes(""), bytes).unwrap().payload_digest();
    let one = digest(r#"{"class":"A","args":[1],"jid":"a","enqueued_at":1}"#);
    assert_eq!(one, digest(r#"{"class":"A","args":[ 1 ],"jid":"b","enqueued_at":2}"#));
    assert_ne!(one, digest(r#"{"class":"B","args":[1],"jid":"a","enqueued_at":1}"#));
    let big = |n: u8| digest(&format!(r#"{{"class":"A","args":[9876543210987654321098{n}]}}"#));
    assert_ne!(big(1), big(2));
}

#[test]
fn the_first_route_that_matches_class_and_queue_counts() {
    let routes = routes(
        "[[routes]]\nclass = \"Order*\"\nqueue = \"orders\"\n[[routes]]\nfrom = \"critical\"\nqueue = \"urgent\"\n[[routes]]\nclass = \"OrderSync\"\nqueue = \"never\"",
    );
    let queue =
        |class: &str| job(&routes, &format!(r#"{{"class":"{class}","args":[]}}"#)).unwrap().queue;
    assert_eq!((queue("OrderSync").as_str(), queue("Mail").as_str()), ("orders", "default"));
}

#[tokio::test]
async fn a_job_that_is_given_back_twice_is_another_one_each_time_wherever_it_goes() {
    let store: SharedStore = std::sync::Arc::new(Memory::new());
    let now = Timestamp::of_this_machine();
    let bytes = r#"{"args":[1],"class":"A","created_at":1.5,"jid":"a","queue":"q","retry":true}"#;
    let payload: serde_json::Value = serde_json::from_str(bytes).unwrap();
    for delay in [0, 3_600] {
        let job = Job::new("q", &payload).unwrap().run_at(now + Duration::from_secs(delay));
        Client::new(store.clone()).push(job).await.unwrap();
    }
    for job in store.jobs(JobQuery::new("q", JobState::Queued)).await.unwrap().rows {
        let at = |seconds| Returned::of(&job, "q", now + Duration::from_secs(seconds)).unwrap();
        assert_ne!(at(0).element, bytes.as_bytes());
        assert_ne!(at(0).element, at(1).element, "{:?}", at(0).place);
    }
}

#[tokio::test]
async fn a_job_of_a_batch_is_not_given_back() {
    let store: SharedStore = std::sync::Arc::new(Memory::new());
    let (client, now) = (Client::new(store.clone()), Timestamp::of_this_machine());
    client.open_batch("import", Job::new("ends", &1).unwrap()).await.unwrap();
    let payload = serde_json::json!({ "class": "A", "args": [1] });
    client.push(Job::new("q", &payload).unwrap().batch("import")).await.unwrap();
    let job = async |queue: &str| {
        store.jobs(JobQuery::new(queue, JobState::Queued)).await.unwrap().rows.remove(0)
    };
    let refused = |job: &JobView| Returned::of(job, "q", now).err();
    let mut of_batch = job("q").await;
    assert_eq!(
        refused(&of_batch).as_deref(),
        Some("it belongs to a batch, which would end without it: run or cancel it here first")
    );
    of_batch.state = JobState::Dead;
    assert_eq!(refused(&of_batch), None, "its batch has counted it");
    store.cancel(Cancel { now: None, jobs: vec![of_batch.id] }).await.unwrap();
    client.seal_batch("import").await.unwrap();
    let said = refused(&job("ends").await).unwrap();
    assert!(said.contains("the callback of a batch") && said.contains("run it here"), "{said}");
}

#[tokio::test]
async fn equal_jobs_go_back_as_several_members_of_a_set_with_and_without_an_id() {
    let store: SharedStore = std::sync::Arc::new(Memory::new());
    let now = Timestamp::of_this_machine();
    let none = r#"{"class":"A","args":[1]}"#;
    let texts =
        [none, r#"{"class":"A","args":[1],"jid":""}"#, r#"{"class":"A","args":[1],"jid":"a"}"#];
    for text in [texts, texts].concat() {
        let payload: serde_json::Value = serde_json::from_str(text).unwrap();
        let job = Job::new("q", &payload).unwrap().run_at(now + Duration::from_secs(3_600));
        Client::new(store.clone()).push(job).await.unwrap();
    }
    let jobs = store.jobs(JobQuery::new("q", JobState::Queued)).await.unwrap().rows;
    let back = || -> Vec<Vec<u8>> {
        jobs.iter().map(|job| Returned::of(job, "q", now).unwrap().element).collect()
    };
    assert_eq!(back(), back());
    let jid = |bytes: &Vec<u8>| Element::read(bytes).unwrap().jid.unwrap();
    let jids: std::collections::BTreeSet<String> = back().iter().map(jid).collect();
    assert_eq!(jids.len(), 5, "four are made: {jids:?}");
    let members: std::collections::BTreeSet<Vec<u8>> = back().into_iter().collect();
    assert_eq!(members.len(), 6);
}

/// An element that a version wrote.
struct Recorded {
    version: &'static str,
    place: &'static str,
    score: &'static str,
    element: &'static str,
}

fn recorded() -> Vec<Recorded> {
    let lines: Vec<&str> = RECORDED.split('\n').skip(1).filter(|line| !line.is_empty()).collect();
    let read = |pair: &[&'static str]| {
        let words: Vec<&str> = pair[0].split(' ').collect();
        let [_, version, place, score] = words[..] else { panic!("{}", pair[0]) };
        Recorded { version, place, score, element: pair[1] }
    };
    lines.chunks(2).map(read).collect()
}

impl Recorded {
    fn job(&self) -> Job {
        let mut bridge = bridge("");
        bridge.queues = ["default", "bad", "low"].map(str::to_owned).to_vec();
        let routes = of_bridge(&bridge).unwrap();
        let queue = Element::read(self.element.as_bytes()).unwrap().queue();
        let of = (self.score.as_bytes(), self.element.as_bytes());
        match self.place {
            "queue" => routes[&queue].job(of.1, RunAt::Now, || "run-7".to_owned()).unwrap(),
            set => of_set(&routes, set, of, || "run-7".to_owned()).unwrap(),
        }
    }

    fn has(&self, field: &str) -> bool {
        Element::read(self.element.as_bytes()).unwrap().has(field)
    }
}

#[test]
fn what_each_version_wrote_itself_becomes_the_same_jobs() {
    let mut of_versions = std::collections::BTreeMap::<&str, Vec<String>>::new();
    for one in recorded() {
        let job = one.job();
        assert_eq!(job.payload.as_bytes(), one.element.as_bytes());
        let past = job.past.clone().unwrap_or_default();
        let at = |seconds: f64| Timestamp::from_secs_f64(seconds);
        let (from, until) = (at(1_795_890_800.0), at(1_795_890_850.0));
        let times = [past.created_at, past.started_at, past.dead_at].into_iter().flatten();
        let times: Vec<Timestamp> = times.collect();
        assert!(times.iter().all(|time| (from..until).contains(time)), "{times:?}");
        assert!(times.is_sorted(), "{times:?}");
        if let RunAt::At(due) = job.run_at {
            assert_eq!(due, at(one.score.parse().unwrap()));
        }
        let told = (one.place, &job.queue, job.task.unwrap(), job.options.max_retries);
        let failed = (past.failures, past.error, times.len());
        // The other versions do not have it.
        if !one.has("retry_for") {
            of_versions.entry(one.version).or_default().push(format!("{told:?} {failed:?}"));
        }
    }
    assert_eq!(of_versions.len(), 6);
    let wanted = [
        r#"("dead", "bad", "Dies", Some(0)) (1, Some("RuntimeError: hopeless"), 3)"#,
        r#"("queue", "default", "Mail", None) (0, None, 0)"#,
        r#"("queue", "default", "Mail", None) (0, None, 0)"#,
        r#"("queue", "default", "Once", Some(0)) (0, None, 0)"#,
        r#"("queue", "default", "OrderSyncJob", None) (0, None, 0)"#,
        r#"("retry", "bad", "Fails", Some(5)) (2, Some("ArgumentError: on purpose: ü \u{2028} �"), 2)"#,
        r#"("retry", "low", "Elsewhere", Some(3)) (1, Some("RuntimeError: elsewhere"), 2)"#,
        r#"("schedule", "default", "Mail", None) (0, None, 0)"#,
        r#"("schedule", "default", "OrderSyncJob", None) (0, None, 0)"#,
    ];
    for (version, mut jobs) in of_versions {
        jobs.sort();
        assert_eq!(jobs, wanted, "{version}");
    }
}

#[tokio::test]
async fn what_each_version_wrote_itself_goes_back_as_it_was_written() {
    for one in recorded() {
        let store: SharedStore = std::sync::Arc::new(Memory::new());
        let job = one.job();
        let (queue, state) = match one.place {
            "dead" => (job.queue.clone(), JobState::Dead),
            _ => (job.queue.clone(), JobState::Queued),
        };
        // The time of the recording.
        let now = Timestamp::from_secs_f64(1_795_890_850.0);
        store.push(Push { now: Some(now), jobs: vec![job] }).await.unwrap();
        let view = store.jobs(JobQuery::new(&*queue, state)).await.unwrap().rows.remove(0);
        let back = Returned::of(&view, "q", now).unwrap();
        let fields = |bytes: &[u8]| {
            serde_json::from_slice::<std::collections::BTreeMap<String, Box<RawValue>>>(bytes)
                .unwrap()
        };
        let (mut there, mut back_there) = (fields(one.element.as_bytes()), fields(&back.element));
        assert!(back_there.remove("seriatim_returned_at").is_some());
        let (before, since) = (there.remove("enqueued_at"), back_there.remove("enqueued_at"));
        if one.place == "queue" {
            let is_in_ms = |time: Option<Box<RawValue>>| !time.unwrap().get().contains('.');
            assert_eq!(is_in_ms(since), is_in_ms(before), "{}", one.version);
        } else {
            assert!(
                (back.score - one.score.parse::<f64>().unwrap()).abs() < 0.001,
                "{}",
                one.element
            );
        }
        let text = |fields: std::collections::BTreeMap<String, Box<RawValue>>| {
            fields.into_iter().map(|(name, raw)| format!("{name} {raw}")).collect::<Vec<_>>()
        };
        assert_eq!(text(back_there), text(there), "{}", one.version);
    }
}
