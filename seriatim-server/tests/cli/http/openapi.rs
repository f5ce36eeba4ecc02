//! The documentation and the router say the same.

use serde_json::{Value, json};

use super::Api;
use super::client::Request;

#[test]
fn every_documented_endpoint_is_there_and_every_other_method_is_not() {
    let api = Api::start("");
    let document = api.get("/openapi.json").done();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = path.replace("{job_id}", "x").replace("{queue}", "q").replace("{node}", "n");
        let mut listed: Vec<String> =
            methods.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        listed.sort();
        let refused = Request::new("PATCH", &filled).send(&api.address);
        refused.refused(405);
        // The router's own word on what it has here.
        let allowed = refused.header("allow").unwrap();
        let mut allowed: Vec<&str> =
            allowed.split(',').filter(|method| *method != "HEAD").collect();
        allowed.sort_unstable();
        assert_eq!(allowed, listed, "{path}");
    }
    let printed = api.site.run(&["openapi"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&printed.stdout).unwrap(), document);
}

#[test]
fn names_of_a_trigger_may_be_as_long_as_the_document_says_and_no_longer() {
    let api = Api::start("");
    let document = api.get("/openapi.json").done();
    let named = document["components"]["schemas"]["Trigger"]["properties"].as_object().unwrap();
    for name in
        ["task", "lock_key", "partition_key", "producer", "consumer_group", "idempotency_key"]
    {
        let longest = named[name]["maxLength"].as_u64().unwrap() as usize;
        let trigger = |length| {
            let mut body = json!({ "queue": "q", "task": "t", "lock_key": "k" });
            body[name] = "x".repeat(length).into();
            api.post("/api/v1/jobs/trigger", &body)
        };
        trigger(longest).done();
        trigger(longest + 1).refused(400);
    }
}

#[test]
fn bounds_of_the_document_are_those_of_the_api() {
    let api = Api::start("[queues.q]\nmode = \"fifo\"\n");
    let document = api.get("/openapi.json").done();
    let schema = |name: &str| document["components"]["schemas"][name]["properties"].clone();
    assert!(
        schema("Claim")["consumer_groups"]["type"].as_array().unwrap().contains(&json!("null"))
    );
    let claim = json!({ "worker": "w", "queues": ["q"], "consumer_groups": null });
    api.post("/api/v1/work/claim", &claim).done();
    api.post("/api/v1/queues/q/jobs", &json!({ "key": "k" })).done();
    let lane = api.claim("q").remove(0);
    for name in ["Claim", "Beat"] {
        let lease = &schema(name)["lease_ttl_sec"];
        assert_eq!(
            (&lease["minimum"], &lease["maximum"]),
            (&json!(1.0), &json!(86_400.0)),
            "{name}"
        );
    }
    let beat = |lease: f64| json!({ "worker": "w", "claims": [], "lease_ttl_sec": lease });
    api.post("/api/v1/work/heartbeat", &beat(0.5)).refused(400);
    let result = |more: Value| {
        let mut result = more;
        result["outcome"] = "retry".into();
        api.settle(&lane, result)
    };
    let (field, detail) = result(json!({ "retry_in": "99999999d" })).refused(400);
    assert_eq!((&*field, &*detail), ("results[0].retry_in", "must be at most 3650d"));
    let settled = result(json!({ "done": null, "retry_in": "3650d" })).done();
    assert_eq!(settled["results"][0]["status"], "ok");
    let due = api.get("/api/v1/queues/q/lane?key=k").done()["due"].clone();
    assert!(due.as_str().unwrap().ends_with('Z'), "{due}");
    assert_eq!(schema("QueueSettings")["weight"]["minimum"], 1);
    api.put("/api/v1/queues/q", &json!({ "weight": 0 })).refused(400);
    let both = json!({ "run_at": "2030-01-01T00:00:00Z", "delay": 5 });
    api.post("/api/v1/queues/q/jobs", &both).refused(400);
    let rules = document["components"]["schemas"]["Job"]["allOf"].to_string();
    assert!(rules.contains("\"delay\"") && rules.contains("\"id\""), "{rules}");
}
