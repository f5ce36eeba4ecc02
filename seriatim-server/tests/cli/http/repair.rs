//! *Needs you* on the overview: a click repairs what it lists.

use serde_json::json;

use super::pages::{Visitor, bury, guarded, push};

/// The buttons of *Needs you*: what each does or where it leads, and its label.
fn repairs(page: &str) -> Vec<(String, String)> {
    let plain = |text: &str| text.replace("&#38;", "&").replace("&amp;", "&");
    let each = page.split("class=\"mend\">").skip(1).map(|button| {
        let does = button.split("value=\"").nth(1).or(button.split("href=\"").nth(1)).unwrap();
        let label = button.split_once('>').unwrap().1.split('<').next().unwrap();
        (plain(does.split('"').next().unwrap()), label.to_owned())
    });
    each.collect()
}

#[test]
fn a_finding_is_repaired_from_the_overview_by_a_click_or_a_page_that_asks() {
    let api = guarded();
    let (boss, hands) = (Visitor::log_in(&api, "boss"), Visitor::log_in(&api, "hands"));
    push(&api, "mails", &json!({ "key": "dead" }));
    bury(&api, "mails", "no stamps");
    for (queue, key) in [("orders", "a &<b>"), ("mails", "one"), ("mails", "two")] {
        push(&api, queue, &json!({ "key": key }));
        assert_eq!(boss.does("lane.pause", &[("queue", queue), ("key", key)]).status, 303);
    }
    assert_eq!(repairs(&Visitor::log_in(&api, "eyes").page("/")), []);
    let page = hands.page("/");
    let found = repairs(&page);
    let labels: Vec<&str> = found.iter().map(|(_, label)| &**label).collect();
    assert_eq!(labels, ["Requeue…", "Resume…", "Resume"], "{page}");
    let asks = hands.page(&found[0].0);
    assert!(asks.contains("Requeue") && asks.contains("mails"), "{asks}");
    let asks = hands.page(&found[1].0);
    assert!(asks.contains("state paused") || asks.contains("state=paused"), "{asks}");
    let click = [("do", &*found[2].0), ("mark", &hands.mark()), ("back", "/")];
    let done = hands.submit("/do", &click);
    assert_eq!((done.status, done.header("location")), (303, Some("/")), "{}", done.text());
    let said = done.header("set-cookie").unwrap().split(';').next().unwrap();
    let cookie = format!("{}; {said}", hands.cookie);
    let next = Visitor { api: &api, cookie }.page("/");
    assert!(
        next.contains("key a &#38;&#60;b&#62; of orders: resumed") && next.contains("Undo"),
        "{next}"
    );
    assert_eq!(repairs(&next).len(), 2, "what is repaired needs nobody: {next}");
}
