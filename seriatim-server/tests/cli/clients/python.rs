//! The client for Python.

use super::Language;

const LANGUAGE: Language = Language { program: "python3", package: "python3", script: "worker.py" };

super::tests!(LANGUAGE);

#[tokio::test]
async fn d12_a_generator_yields_between_its_steps() {
    let api = super::Api::start(super::QUEUE);
    let worker = LANGUAGE.works(&api, 3);
    let ids = super::push(&api, &[("f", "1", "yields")]);
    assert_eq!(super::becomes(&api, &ids[0], "succeeded").await["attempt"], 2);
    super::sees(&api.site, "f", &["1 1", "one 1", "1 2", "two after one 2"]).await;
    worker.stop();
}
