//! The client for Python.

use super::{Language, Site};

const LANGUAGE: Language = Language {
    program: "python3",
    package: "python3",
    script: "worker.py",
    page: include_str!("../../../../clients/python/README.md"),
    mark: "python",
    // It is in PYTHONPATH.
    install: |_| {},
};

super::tests!(LANGUAGE);

#[tokio::test]
async fn the_example_of_the_first_page_pushes_and_works() {
    let page = include_str!("../../../../README.md");
    super::example(&LANGUAGE, page, 1, &["order-42 is paid"]).await;
}

#[tokio::test]
async fn d12_a_generator_yields_between_its_steps() {
    let api = super::Api::start(super::QUEUE);
    let worker = LANGUAGE.works(&api, 3);
    let ids = super::push(&api, &[("f", "1", "yields")]);
    assert_eq!(super::becomes(&api, &ids[0], "succeeded").await["attempt"], 2);
    super::sees(&api.site, "f", &["1 1", "one 1", "1 2", "two after one 2"]).await;
    worker.stop();
}

/// Python runs the handler of a signal in the main thread, which such a signal does not wake.
#[tokio::test]
async fn a_signal_that_reaches_another_thread_stops_the_worker_too() {
    let api = super::Api::start(super::QUEUE);
    let worker = LANGUAGE.works(&api, 60);
    let ids = super::push(&api, &[("a", "1", "wait"), ("b", "1", "signal")]);
    super::sees(&api.site, "b", &["1 1"]).await;
    let released = super::becomes(&api, &ids[1], "queued").await;
    assert_eq!(released["attempt"], 0, "{released}");
    std::fs::write(api.site.path("go"), "").unwrap();
    worker.ends();
    assert_eq!(super::becomes(&api, &ids[0], "succeeded").await["attempt"], 1);
}

/// As JSON it would fail the other calls of the process too.
#[tokio::test]
async fn what_is_not_a_number_fails_its_own_lane_and_says_why() {
    let api = super::process_api(&LANGUAGE);
    let told = ["nan result", "nan progress", "nan step"];
    let jobs = told.map(|told| (told, "1", told));
    for id in super::push(&api, &jobs) {
        let error = super::becomes(&api, &id, "dead").await["error"].to_string();
        assert!(error.starts_with("\"ValueError") && error.contains("JSON compliant"), "{error}");
    }
}

/// It would end the thread of the heartbeats, and so all claims of the worker.
#[test]
fn a_refusal_whose_connection_breaks_is_a_refusal_all_the_same() {
    let output = LANGUAGE.command(&Site::new(""), &["torn"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "503\n", "{}", super::text(&output));
}

/// All lanes of the worker need the next one.
#[test]
fn a_heartbeat_that_cannot_be_written_does_not_end_the_others() {
    let output = LANGUAGE.command(&Site::new(""), &["odd"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{}", super::text(&output));
}
