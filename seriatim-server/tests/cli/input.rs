//! Bad input is told plainly, and nothing comes of it.

use crate::site::{QUEUE, Site, text};

#[test]
fn bad_input_is_told_plainly() {
    let site = Site::new("");
    let ten_megabytes = "x".repeat(10_000_000);
    std::fs::write(site.path("huge.ndjson"), format!("{{\"payload\":\"{ten_megabytes}\"}}\n"))
        .unwrap();
    let huge_key = "k".repeat(5_000);
    let huge = format!("\"{}\"", "x".repeat(100_000));
    let cases: [(&[&str], i32, &str); 9] = [
        (&["push", "orders", "{oops"], 2, "payload: is not a JSON document"),
        (
            &["push", "orders", "1", "--key", &huge_key],
            2,
            "seriatim: key: has 5000 bytes; at most 512",
        ),
        (&["push", "orders", "--file", "huge.ndjson"], 1, "huge.ndjson:1: the line is longer than"),
        (&["push", "orders", "1", "--score", "NaN"], 2, "seriatim: score: must be a finite number"),
        (&["push", "orders", "1", "--in", "-5s"], 2, ""),
        (&["push", "no spaces", "1"], 2, "seriatim: queue: must be"),
        (
            &["push", "orders", &huge, "--store", "nonsense:x"],
            2,
            "there is no kind of store called \"nonsense\"",
        ),
        (
            &["push", "a", "1", "--store", "sqlite:nowhere/x.db"],
            1,
            "there is no folder nowhere: create it",
        ),
        (&["check", "missing.ndjson"], 1, "missing.ndjson: cannot be opened"),
    ];
    for (arguments, code, message) in cases {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(message), "{message}: {}", text(&output));
    }
}

#[test]
fn a_contradicting_configuration_stops_serve_and_names_both_modes() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"true\"]\n"
    ));
    let was = format!("[queues.{QUEUE}]\nmode = \"parallel\"\n");
    std::fs::write(site.path("before.toml"), was).unwrap();
    let pushed = site.run(&["push", QUEUE, "1", "--config", "before.toml"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let output = site.run(&["serve", "--no-http"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("is parallel") && said.contains("fifo"), "{said}");
}

#[test]
fn an_unknown_key_of_the_configuration_is_named() {
    let site = Site::new("[node]\nconcurency = 3\n");
    let output = site.run(&["serve", "--no-http"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output);
    assert!(said.contains("line 2") && said.contains("did you mean `concurrency`?"), "{said}");
}

#[test]
fn files_of_windows_are_read_with_their_mark_and_their_line_ends() {
    let site = Site::new(&format!("\u{feff}[queues.{QUEUE}]\r\nmode = \"fifo\"\r\n"));
    let lines = "\u{feff}{\"key\":\"a\",\"payload\":1}\r\n\r\n{\"key\":\"b\"}\r\n";
    std::fs::write(site.path("jobs.ndjson"), lines).unwrap();
    let pushed = text(&site.run(&["push", QUEUE, "--file", "jobs.ndjson"]));
    assert!(pushed.contains("2 jobs"), "{pushed}");
    std::fs::write(site.path(".env"), "\u{feff}APP_PORT=7\r\nPG_HOST=\"db\"\r\n").unwrap();
    let made = text(&site.run(&["import", "dataloader", ".env"]));
    assert!(made.contains(":7\"") && made.contains("@db:5432/"), "{made}");
    // Within a file it is no white space.
    std::fs::write(site.path("jobs.ndjson"), "{\"key\":\"a\"}\n\u{feff}{\"key\":\"b\"}\n").unwrap();
    let refused = text(&site.run(&["push", QUEUE, "--file", "jobs.ndjson"]));
    assert!(refused.contains("jobs.ndjson:2: "), "{refused}");
}
