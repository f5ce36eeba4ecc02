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
