//! The client for Ruby.

use super::{Language, Site};

const LANGUAGE: Language = Language {
    program: "ruby",
    package: "ruby",
    script: "worker.rb",
    page: include_str!("../../../../clients/ruby/README.md"),
    mark: "ruby",
    install,
};

fn install(site: &Site) {
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/ruby/seriatim.rb");
    std::fs::copy(client, site.path("seriatim.rb")).unwrap();
}

super::tests!(LANGUAGE);

/// Such a lane would end `run` with an error that is none of the client's.
#[test]
fn a_lane_that_ends_while_a_stop_releases_it_is_settled_all_the_same() {
    let output = LANGUAGE.command(&Site::new(""), &["fleeting"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains(r#""secret":"s","outcome":"release""#), "{}", super::text(&output));
}

/// All lanes of the worker need the next one.
#[test]
fn a_heartbeat_that_cannot_be_written_does_not_end_the_others() {
    let output = LANGUAGE.command(&Site::new(""), &["odd"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{}", super::text(&output));
}
