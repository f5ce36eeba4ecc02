//! The documentation and the router say the same.

use serde_json::json;

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
    for name in ["task", "lock_key", "partition_key", "producer", "idempotency_key"] {
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
