//! Elements of Redis under fuzz.
#![allow(clippy::unwrap_used)]

use seriatim::RunAt;
use seriatim_testkit::fuzz::Surface;

use super::element::Element;
use super::route::Routes;
use crate::base::text::check_message;

fn routes(routes: &str) -> Routes {
    let text = format!(
        "name = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"R\"\nqueues = [\"default\"]\n{routes}"
    );
    Routes::new(&toml::from_str(&text).unwrap(), "default")
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
