//! Ids and payloads.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    Job, JobId, Payload, Timestamp,
    store::{NodeId, digest, validate_queue_name},
};

proptest! {
    #[test]
    fn a_job_id_says_where_its_job_lives(
        micros in 0i64..(1 << 53), queue in 0u32..1 << 14, shard in 0u16..1 << 12, seq in 0u64..1 << 48,
    ) {
        let id = JobId::new(Timestamp::from_micros(micros), queue, shard, seq);
        prop_assert_eq!((id.queue(), id.shard(), id.seq()), (queue, shard, seq));
        prop_assert_eq!(id.created_at().as_micros(), micros / 1_000 * 1_000);
        let text = id.to_string();
        prop_assert_eq!(text.parse::<JobId>().unwrap(), id);
        prop_assert_eq!(JobId::from_bytes(id.to_bytes()), id);
        let bytes = text.as_bytes();
        prop_assert!(bytes[14] == b'7' && b"89ab".contains(&bytes[19]), "version and variant: {}", text);
    }

    #[test]
    fn job_ids_are_ordered_as_they_arrived(a in 0i64..1 << 50, b in 0i64..1 << 50) {
        let id = |micros: i64| JobId::new(Timestamp::from_micros(micros), 1, 0, 7);
        prop_assert_eq!(id(a) < id(b), a / 1_000 < b / 1_000);
    }

    #[test]
    fn equal_payloads_have_one_digest(fields in proptest::collection::btree_map("[a-z]{1,4}", any::<i32>(), 0..8)) {
        let pairs = |reversed: bool| {
            let mut pairs: Vec<String> = fields.iter().map(|(k, v)| format!(" \"{k}\" : {v}")).collect();
            if reversed { pairs.reverse(); }
            Payload::from_json_text(&format!("{{{}}}", pairs.join(","))).unwrap()
        };
        prop_assert_eq!(digest(None, &pairs(false)), digest(None, &pairs(true)));
        prop_assert_ne!(digest(None, &pairs(false)), digest(Some(""), &pairs(false)));
    }
}

#[test]
fn the_digest_separates_the_task_from_the_payload() {
    let payload = |text: &str| Payload::from_json_text(text).unwrap();
    assert_ne!(digest(Some("a"), &payload("1")), digest(Some("a1"), &payload("1")));
    assert_ne!(digest(Some("a"), &payload("\"b\"")), digest(Some("ab"), &payload("\"\"")));
    assert_ne!(digest(None, &payload("[1,2]")), digest(None, &payload("[2,1]")));
    assert_eq!(digest(None, &payload("{\"a\":1,\"a\":2}")), digest(None, &payload("{\"a\":2}")));
    let bytes = |bytes: &'static [u8]| digest(None, &Payload::from_bytes(bytes));
    assert_ne!(bytes(b"\x00\x01"), bytes(b"\x00\x02"));
}

#[test]
fn a_payload_is_one_json_document() {
    assert_eq!(Payload::from_json_text(" {\"a\": 1} ").unwrap().to_value(), json!({"a": 1}));
    for wrong in ["", "{", "1 2", "{\"a\":}", "NaN"] {
        let error = Payload::from_json_text(wrong).unwrap_err();
        assert_eq!(error.field(), Some("payload"), "{wrong}");
    }
    let deep = "[".repeat(100_000);
    assert!(Payload::from_json_text(&deep).is_err(), "depth is limited, not the stack");
    assert_eq!(Payload::from_bytes(&b"\xff"[..]).to_value(), Value::String("\u{fffd}".into()));
    assert!(Payload::json(&7).unwrap().decode::<String>().is_err());
}

#[test]
fn queue_names_are_plain() {
    let long = "q".repeat(129);
    for wrong in ["", "a b", "a/b", "a{b}", "é", ".", "..", long.as_str()] {
        assert_eq!(validate_queue_name(wrong).unwrap_err().field(), Some("queue"), "{wrong}");
    }
    for right in ["a", "...", "a..b", "orders:eu.v2_x-1", &"q".repeat(128)] {
        assert!(validate_queue_name(right).is_ok());
    }
}

#[test]
fn a_job_is_built_as_it_reads() {
    let job = Job::new("orders", &json!({"status": "paid"})).unwrap().key_from(42).score(7.0);
    assert_eq!((job.key.as_deref(), job.score), (Some("42"), Some(7.0)));
    assert!(job.validate().is_ok());
}

#[test]
fn every_start_of_a_node_has_an_id_of_its_own() {
    assert_ne!(NodeId::unique("a"), NodeId::unique("a"));
}
