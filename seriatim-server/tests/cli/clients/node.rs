//! The client for Node.

use super::{Language, Site};

const LANGUAGE: Language = Language {
    program: "node",
    package: "nodejs",
    script: "worker.mjs",
    page: include_str!("../../../../clients/node/README.md"),
    mark: "js",
    install,
};

/// As `npm install ./clients/node` does it.
fn install(site: &Site) {
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/node");
    std::fs::create_dir(site.path("node_modules")).unwrap();
    std::os::unix::fs::symlink(client, site.path("node_modules/seriatim")).unwrap();
}

super::tests!(LANGUAGE);

/// Each would wait for those before it, and new lanes for all of them.
#[test]
fn heartbeats_do_not_gather_behind_a_slow_one() {
    let output = LANGUAGE.command(&Site::new(""), &["slow"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "1\n", "{}", super::text(&output));
}
