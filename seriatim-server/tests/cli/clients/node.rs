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
