//! From one page of a list to the others.

use serde_json::json;

use super::client::Request;
use super::pages::{Visitor, guarded, push};

#[test]
fn a_list_leads_to_the_pages_before_and_behind_with_its_filters() {
    let api = guarded();
    for i in 0..60 {
        push(&api, "mails", &json!({ "key": format!("a&b {i:02}"), "payload": 1 }));
    }
    let eyes = Visitor::log_in(&api, "eyes");
    let rows = |page: &str| -> Vec<String> {
        let rows = page.split("<tr id=\"lane-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned()).collect()
    };
    let link = |page: &str, rel: &str| {
        let link = page.split_once(&format!("rel=\"{rel}\" href=\""))?.1;
        Some(link.split('"').next()?.replace("&#38;", "&"))
    };
    let first = eyes.page("/queues/mails/lanes?by=key&prefix=a%26b");
    assert!(link(&first, "prev").is_none() && !first.contains("First page"), "{first}");
    let second = eyes.page(&link(&first, "next").unwrap());
    assert!(!second.contains("First page"), "it is the one before");
    let third = eyes.page(&link(&second, "next").unwrap());
    assert_eq!([&first, &second, &third].map(|page| rows(page).len()), [25, 25, 10]);
    assert!(third.contains("First page") && link(&third, "next").is_none());
    let back = eyes.page(&link(&third, "prev").unwrap());
    assert_eq!(rows(&back), rows(&second));
    let again = eyes.page(&link(&back, "prev").unwrap());
    assert_eq!(rows(&again), rows(&first));
    let part = Request::new("GET", &link(&second, "next").unwrap());
    let part = part.header("Cookie", &eyes.cookie).header("X-Parts", "1").send(&api.address);
    assert_eq!(rows(&part.text()), rows(&third), "its live part is of the same page");
}
