//! Files that cannot be read or written.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Output};

use crate::site::{Site, text};

/// Runs a script with `$SERIATIM`, in a mount namespace of its own so that it may mount.
fn in_a_namespace(site: &Site, script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-euc", script]).current_dir(site.folder.path());
    command.env("SERIATIM", env!("CARGO_BIN_EXE_seriatim")).env_remove("SERIATIM_STORE");
    command.output().unwrap()
}

fn without_the_rights_of_root(site: &Site, arguments: &[&str]) -> Output {
    if !rustix::process::geteuid().is_root() {
        return site.run(arguments);
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", env!("CARGO_BIN_EXE_seriatim")]).args(arguments);
    command.current_dir(site.folder.path()).env_remove("SERIATIM_STORE").output().unwrap()
}

fn length(site: &Site) -> u64 {
    let stats = site.run(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    stats["total"]["length"].as_u64().unwrap()
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let site = Site::new("");
    let garbage = "this is a letter, not a database. ".repeat(500);
    std::fs::write(site.path("letter.txt"), &garbage).unwrap();
    let output = site.run(&["stats", "--store", "sqlite:letter.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("not an SQLite database"), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(site.path("letter.txt")).unwrap(), garbage);
}

#[test]
fn a_full_disk_is_told_and_what_was_there_stays() {
    let site = Site::new("");
    std::fs::write(site.path("jobs.ndjson"), "{\"payload\":1}\n".repeat(30_000)).unwrap();
    let script = "
        mkdir small && mount -t tmpfs -o size=3m tmpfs small
        export SERIATIM_STORE=sqlite:small/seriatim.db
        head -c 1500000 /dev/zero > small/filler
        \"$SERIATIM\" push orders --file jobs.ndjson && exit 90
        rm small/filler
        \"$SERIATIM\" stats --json
        \"$SERIATIM\" push orders 2
        \"$SERIATIM\" stats --json";
    let output = in_a_namespace(&site, script);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the disk is full: nothing was written; free some space"), "{said}");
    let (_, rest) = said.split_once("ndjson:").unwrap();
    let (before, _) = rest.split_once(" jobs were pushed before it").unwrap();
    let pushed: u64 = before.rsplit('(').next().unwrap().parse().unwrap();
    let lengths: Vec<u64> = said
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|stats| stats["total"]["length"].as_u64())
        .collect();
    assert_eq!(lengths, [pushed, pushed + 1], "{said}");
    assert!(pushed > 0, "{said}");
}

#[test]
fn a_file_that_may_not_be_written_is_told_and_left_as_it_is() {
    let site = Site::new("");
    assert!(site.run(&["push", "orders", "1"]).status.success());
    let permissions = |name: &str, mode: u32| {
        std::fs::set_permissions(site.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    permissions("seriatim.db", 0o444);
    permissions("", 0o555);
    let output = without_the_rights_of_root(&site, &["push", "orders", "2"]);
    permissions("", 0o755);
    permissions("seriatim.db", 0o644);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("check the permissions"), "{}", text(&output));
    assert_eq!(length(&site), 1);
}

#[test]
fn a_damaged_file_is_told_and_nothing_panics() {
    let site = Site::new("");
    std::fs::write(site.path("jobs.ndjson"), "{\"payload\":1}\n".repeat(5_000)).unwrap();
    assert!(site.run(&["push", "orders", "--file", "jobs.ndjson"]).status.success());
    let path = site.path("seriatim.db");
    // What is still in the log would be read from there.
    assert!(!site.path("seriatim.db-wal").exists(), "the last to close has moved it");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let bytes = file.metadata().unwrap().len();
    // All but the first page, which says that this is a database.
    for at in (4_096..bytes).step_by(4_096) {
        file.write_all_at(&[0xA5; 4_096], at).unwrap();
    }
    for arguments in [&["push", "orders", "2"][..], &["stats"]] {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("the database file is damaged"), "{}", text(&output));
        assert!(text(&output).contains(".recover"), "{}", text(&output));
    }
}
