//! Elements of Redis under fuzz.

use seriatim::RunAt;
use seriatim_testkit::fuzz::Surface;

use super::form::Form;
use super::marshal::to_json;
use super::marshal_tests::bytes;
use super::member::Member;
use super::{Element, Routes};
use crate::base::text::check_message;

fn routes(routes: &str) -> Routes {
    let text = format!(
        "name = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"R\"\nqueues = [\"default\"]\n{routes}"
    );
    Routes::new(&toml::from_str(&text).unwrap(), "default", None)
}

#[test]
fn whatever_is_in_redis_is_a_job_or_refused_with_a_reason() {
    let all = [
        routes(""),
        routes("[[routes]]\nkey = \"/args/0\"\nscore = \"/args/1\"\npayload = \"/args/1\""),
        routes("[[routes]]\nclass = \"*Job\"\nkey = \"/args/0/arguments/0\"\nmissing_key = \"x\""),
    ];
    let (mut taken, mut refused) = (0, 0);
    Surface::new("sidekiq").inputs(8_000).attack(|input| {
        if let Ok(element) = Element::read(input) {
            let _ = (element.since(), element.queue(), element.retries());
        }
        for routes in &all {
            match routes.job(input, RunAt::Now, || "run-7".to_owned()) {
                Ok(job) => {
                    taken += 1;
                    job.validate().unwrap();
                    // A repetition is recognised.
                    let again = routes.job(input, RunAt::Now, || "run-7".to_owned()).unwrap();
                    assert_eq!(job, again);
                }
                Err(refusal) => {
                    refused += 1;
                    check_message(&refusal.to_string());
                }
            }
        }
    });
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
}

#[test]
fn whatever_marshal_wrote_becomes_json_or_is_refused_with_a_reason() {
    let (mut read, mut refused) = (0, 0);
    Surface::made("marshal", |line| vec![bytes(line)]).inputs(20_000).attack(
        |input| match to_json(input) {
            Ok(json) => {
                read += 1;
                assert!(json.len() <= seriatim::limits::PAYLOAD_BYTES_MAX);
                let _: &serde_json::value::RawValue = serde_json::from_str(&json).unwrap();
                assert_eq!(to_json(input).unwrap(), json);
            }
            Err(why) => {
                refused += 1;
                check_message(&why);
            }
        },
    );
    assert!(read > 100 && refused > 100, "{read} {refused}");
}

#[test]
fn whatever_lowkiq_has_is_a_job_or_refused_with_a_reason() {
    let text = "name = \"shop\"\nkind = \"lowkiq\"\nurl_env = \"R\"\nqueues = [\"Shop::Sync\"]\nshards_count = 5";
    let bridge = toml::from_str(text).unwrap();
    let forms = [Form::Plain, Form::signed(b"a key").unwrap()];
    let all = forms.map(|form| Routes::new(&bridge, "Shop::Sync", Some(form)));
    let made = |line: &str| vec![[b"3 1.5 -1 2.5 2 42", &*bytes(line)].concat()];
    let (mut taken, mut refused) = (0, 0);
    Surface::made("marshal", made).attack(|input| {
        let Some(member) = Member::read(input) else { return };
        for routes in &all {
            match member.job(routes, "run-7".to_owned()) {
                Ok(job) => {
                    taken += 1;
                    job.validate().unwrap();
                }
                Err(refusal) => {
                    refused += 1;
                    check_message(&refusal.to_string());
                }
            }
        }
    });
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
}
