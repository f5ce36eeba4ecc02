//! What `deploy/` names exists.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::Api;

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The metrics that a text names, without what histograms add to theirs.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.match_indices("seriatim_").map(|(at, _)| {
        let word = &text[at..];
        word[..word.find(|c| !is_part(c)).unwrap_or(word.len())].to_owned()
    });
    let bare = |word: String| {
        let ends = ["_bucket", "_sum", "_count"];
        let end = ends.iter().find_map(|end| word.strip_suffix(end));
        end.map_or(word.clone(), str::to_owned)
    };
    words.map(bare).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_is_there() {
    let api = Api::start("[queues.orders]\nmode = \"fifo\"\n");
    api.post("/api/v1/queues/orders/jobs", &json!({ "key": "k" })).done();
    api.settle(&api.claim("orders")[0], json!({ "outcome": "done" })).done();
    let text = api.get("/metrics").text();
    let there = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let there: BTreeSet<String> = there.map(str::to_owned).collect();
    assert!(there.len() > 15, "{there:?}");
    let dashboard = file("grafana-dashboard.json");
    serde_json::from_str::<Value>(&dashboard).unwrap();
    for (name, text) in [
        ("grafana-dashboard.json", dashboard),
        ("alerts.yaml", file("alerts.yaml")),
        ("keda.yaml", file("keda.yaml")),
    ] {
        let named = named(&text);
        assert!(named.len() > 3, "{name}: {named:?}");
        let missing: Vec<&String> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{name} names what /metrics does not have: {missing:?}");
    }
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for sample in [
        "seriatim_handler_seconds_count{queue=\"orders\"} 1",
        "seriatim_store_up 1",
        "seriatim_nodes{state=\"alive\"} 2",
        "seriatim_queue_processed_total{queue=\"orders\"} 1",
    ] {
        assert!(samples.contains(&sample), "{sample}\n{text}");
    }
    assert!(samples.iter().any(|line| line.starts_with("seriatim_store_wakeups_total ")), "{text}");
}

/// Where no node answers there are no series, and a rule about their values is silent.
#[test]
fn an_alert_fires_if_no_node_answers() {
    let alerts = file("alerts.yaml");
    assert!(alerts.contains("expr: absent(seriatim_store_up)"), "{alerts}");
}

#[test]
fn keda_counts_the_slots_that_the_manifests_give_a_node() {
    let own = ["kubernetes.yaml", "helm-values.yaml"].map(file);
    assert!(own.iter().all(|text| !text.contains("concurrency")), "a node has the default");
    let reference = file("../docs/config.md");
    let default = reference.lines().find_map(|line| line.strip_prefix("| `concurrency` | `"));
    let default = default.and_then(|rest| rest.split('`').next()).unwrap();
    let slots: u32 = default.parse().unwrap();
    let keda = file("keda.yaml");
    assert!(keda.contains(&format!("(here {slots}, the default)")), "{keda}");
    assert!(keda.contains(&format!("threshold: \"{}\"", slots * 8 / 10)), "{keda}");
}

#[test]
fn e7_the_alert_events_of_dataloader_have_a_metric_and_an_alert() {
    let api = Api::start("");
    let (metrics, alerts) = (api.get("/metrics").text(), file("alerts.yaml"));
    let moving = file("../docs/moving.md");
    let events = ["worker.claim.backoff", "worker.complete.failed", "reaper.requeued", "api.error"];
    for event in events {
        let row = moving.lines().find(|line| line.starts_with(&format!("| `{event}`"))).unwrap();
        let metrics_of_it = named(row);
        assert!(!metrics_of_it.is_empty(), "{row}");
        for metric in metrics_of_it {
            assert!(metrics.contains(&format!("# TYPE {metric} ")), "{event}: {metric}");
        }
        let names = row.split('`').filter(|word| word.starts_with("Seriatim"));
        assert!(names.clone().count() > 0, "{row}");
        for name in names {
            assert!(alerts.contains(&format!("- alert: {name}\n")), "{event}: {name}");
        }
    }
}

#[test]
fn the_configuration_of_a_package_is_understood() {
    let text = file("seriatim.toml");
    let site = crate::site::Site::new(&text);
    let checked = site.run(&["config", "check"]);
    assert!(checked.status.success(), "{}", crate::site::text(&checked));
    // What it shows in comments is understood too.
    let uncommented = text.replace("\n# [", "\n[").replace("\n# mode", "\nmode");
    let uncommented =
        uncommented.replace("\n# queue", "\nqueue").replace("\n# command", "\ncommand");
    let site = crate::site::Site::new(&uncommented.replace("/usr/local/bin/sync-order", "true"));
    let checked = site.run(&["config", "check"]);
    assert!(checked.status.success(), "{}", crate::site::text(&checked));
}

#[test]
fn the_probes_of_kubernetes_are_endpoints() {
    let api = Api::start("");
    let manifests = file("kubernetes.yaml");
    let paths = manifests.lines().filter_map(|line| line.trim().strip_prefix("path: "));
    let paths: BTreeSet<&str> = paths.collect();
    assert_eq!(paths, ["/health", "/ready"].into());
    for path in paths {
        assert_eq!(api.get(path).status, 200, "{path}");
    }
}

#[test]
fn the_values_of_helm_say_what_the_manifests_say() {
    let configuration = |name: &str| {
        let text = file(name);
        let (_, block) = text.split_once("seriatim.toml: |\n").unwrap();
        let first = block.lines().next().unwrap();
        let margin = &first[..first.len() - first.trim_start().len()];
        let lines: Vec<String> =
            block.lines().map_while(|line| line.strip_prefix(margin)).map(str::to_owned).collect();
        lines.join("\n")
    };
    let (ours, theirs) = (configuration("kubernetes.yaml"), configuration("helm-values.yaml"));
    assert!(ours.contains("shutdown_timeout"), "{ours}");
    assert_eq!(ours, theirs);
    let values = file("helm-values.yaml");
    for said in ["path: /health", "path: /ready", "terminationGracePeriodSeconds: 60", "key: store"]
    {
        assert!(values.contains(said) && file("kubernetes.yaml").contains(said), "{said}");
    }
}
