//! What a terminal gets that a pipe does not: colour, cut texts, progress.

use super::{House, in_a_terminal, mail};

#[tokio::test]
async fn tables_are_coloured_and_cut_for_a_terminal() {
    let house = House::new().await;
    house.hand.push(mail(&"long-key-".repeat(20))).await;
    house.hand.fail_all("mails", &"it failed and failed ".repeat(20)).await;
    let coloured = in_a_terminal(&house.site, 100, false, "morgue mails");
    assert!(coloured.contains("\u{1b}[31mit failed and"), "{coloured}");
    let plain = in_a_terminal(&house.site, 100, true, "morgue mails");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert!(plain.lines().all(|line| line.chars().count() <= 100), "{plain}");
    assert!(plain.contains("…"), "{plain}");
    let piped = house.text(&["morgue", "mails"]);
    assert!(piped.contains("it failed and failed ".repeat(20).trim()), "{piped}");
}

#[tokio::test]
async fn a_long_push_tells_how_far_it_has_come() {
    let house = House::new().await;
    let lines = "{\"payload\":{\"n\":1},\"key\":\"k\"}\n".repeat(2_500);
    std::fs::write(house.site.path("jobs.ndjson"), lines).unwrap();
    let said = in_a_terminal(&house.site, 100, false, "push mails --file jobs.ndjson");
    assert!(said.contains("1000 jobs, ") && said.contains("/s, 40 %, "), "{said:?}");
    assert!(said.trim_end().ends_with("pushed 2500 jobs"), "{said:?}");
    let piped = house.text(&["push", "mails", "--file", "jobs.ndjson"]);
    assert_eq!(piped, "pushed 2500 jobs\n");
}
