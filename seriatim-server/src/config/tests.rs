#![allow(clippy::unwrap_used)]
use super::*;

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    parse(text, variables, "test.toml").map_err(|failure| format!("{failure:?}"))
}

#[test]
fn d11_the_example_of_the_design_is_read() {
    let config = read(
        r#"
        [store]
        url = "sqlite:x.db"
        [node]
        id = "a"
        concurrency = 10
        scheduler = "lag"
        lease = "60s"
        [defaults]
        max_crashes = 4
        [queues.orders]
        mode = "accumulate"
        batch_size = 10
        backoff = { kind = "linear", base = "30s" }
        retain_completed = "1h"
        [[workers]]
        queue = "orders"
        command = ["./sync-order"]
        "#,
        &[],
    )
    .unwrap();
    let queue = &config.declared().unwrap()[0];
    assert_eq!((queue.mode, queue.batch_size, queue.max_crashes), (Mode::Accumulate, 10, 4));
    assert_eq!(queue.backoff, Backoff::Linear { base: Duration::from_secs(30) });
    assert!(config.validate("test.toml").is_ok());
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_a_suggestion() {
    let error = read("[node]\nconcurency = 3\n", &[]).unwrap_err();
    assert!(error.contains("line 2") && error.contains("did you mean `concurrency`?"), "{error}");
    let misspelt = "[[workers]]\nqueue = \"a\"\nbuiltin = \"htpp\"\n";
    let error = read(misspelt, &[]).unwrap_err();
    assert!(error.contains("line 3") && error.contains("did you mean `http`?"), "{error}");
    let error = read("[queues.a]\nmode = \"fifoo\"\n", &[]).unwrap_err();
    assert!(error.contains("did you mean `fifo`?"), "{error}");
}

#[test]
fn a_value_of_another_kind_is_told_with_its_key_and_an_example() {
    let cases = [
        (
            "[node]\nconcurrency = \"ten\"",
            "node.concurrency: the text \"ten\" is given; write a whole number from 0 on, as in 10",
        ),
        ("[node]\nconcurrency = -1", "node.concurrency: the number -1 is given"),
        (
            "[node]\nlease = 60",
            "node.lease: the number 60 is given; write a length in quotes: \"250ms\", \"10s\"",
        ),
        ("[node]\nid = 7", "node.id: the number 7 is given; write a text in quotes"),
        ("[node]\ngroups = \"a\"", "node.groups: the text \"a\" is given; write a list"),
        ("[queues.a]\nmax_retries = 1.5", "queues.a.max_retries: the number 1.5 is given"),
        (
            "[queues.a]\nshards = 70000",
            "queues.a.shards: the number 70000 is given; write a whole number from 0 to 65535",
        ),
        ("[queues]\na = \"fifo\"", "queues.a: the text \"fifo\" is given; write a table"),
        (
            "[[workers]]\nqueue = \"a\"\npayload_args = \"no\"",
            "workers[0].payload_args: the text \"no\" is given; write true or false",
        ),
        ("[[cron]]\nname = \"a\"\nschedule = \"@daily\"", "cron[0]: `queue` is missing"),
        ("[node]\nlease = \"soon\"", "node.lease: "),
    ];
    for (text, message) in cases {
        let error = read(text, &[]).unwrap_err();
        let error = error.replace("\\\"", "\"");
        assert!(error.contains(message) && error.contains("at line"), "{message}: {error}");
    }
    let error = read("", &[("SERIATIM_NODE__CONCURRENCY", "ten")]).unwrap_err();
    assert!(
        error.contains("variable SERIATIM_NODE__CONCURRENCY: node.concurrency: the"),
        "{error}"
    );
}

#[test]
fn a_cron_entry_that_could_never_push_is_refused() {
    let queue = "[queues.a]\nmode = \"fifo\"\n[queues.b]\nmode = \"parallel\"\n";
    let entry = |name: &str, rest: &str| {
        format!("[[cron]]\nname = \"{name}\"\nschedule = \"@daily\"\n{rest}\n")
    };
    let refused = |entries: &str| {
        let config = read(&format!("{queue}{entries}"), &[]).unwrap();
        config.validate("test.toml").err().map(|failure| failure.to_string())
    };
    let good = entry("one", "queue = \"a\"\nkey = \"k\"");
    assert_eq!(refused(&(good.clone() + &entry("two", "queue = \"b\""))), None);
    let twice = refused(&(good.clone() + &good)).unwrap();
    assert!(twice.starts_with("test.toml: cron[1] (name \"one\"): `name`: cron[0]"), "{twice}");
    let keyless = refused(&entry("one", "queue = \"a\"")).unwrap();
    assert!(
        keyless.contains("cron[0] (name \"one\"): `key` is missing, and queue \"a\" is fifo"),
        "{keyless}"
    );
    let keyed = refused(&entry("one", "queue = \"b\"\nkey = \"k\"")).unwrap();
    assert!(keyed.contains("`key` contradicts queue \"b\", which is parallel"), "{keyed}");
}

#[test]
fn variables_win_over_the_file() {
    let variables = [
        ("SERIATIM_NODE__CONCURRENCY", "7"),
        ("SERIATIM_NODE__ID", "b"),
        ("SERIATIM_STORE", "memory:"),
        ("PATH", "x"),
    ];
    let config = read("[node]\nconcurrency = 3\nid = \"a\"\n", &variables).unwrap();
    assert_eq!((config.node.concurrency, config.node.id.as_deref()), (Some(7), Some("b")));
    assert!(read("", &[("SERIATIM_NODE__CONCURENCY", "7")]).is_err());
}

#[test]
fn a_contradiction_between_keys_of_a_worker_names_both() {
    let cases = [
        ("command = [\"a\"]\nprocess = [\"b\"]", "`command` and `process` contradict"),
        ("command = [\"a\"]\nprocesses = 2", "`processes` belongs to `process`"),
        ("command = []", "`command` is empty"),
        ("process = [\"a\"]\nprocesses = 0", "`processes` is 0"),
        ("process = [\"a\"]\nconcurrency = 0", "`concurrency` is 0"),
        ("builtin = \"http\"", "needs `url`"),
        ("builtin = \"http\"\nurl = \"ftp://a\"", "must begin with http:// or https://"),
        ("builtin = \"http\"\nurl = \"http://a\"\nmethod = \"GET\"", "`method` is"),
        ("builtin = \"http\"\nurl = \"http://a\"\nroots = []", "`roots` belongs to"),
        ("builtin = \"http\"\nurl = \"http://a\"\nheaders = { Host = \"b\" }", "set by"),
        ("builtin = \"ffmpeg\"\ncommand = [\"a\"]", "`command` and `builtin` contradict"),
        ("command = [\"a\"]\nurl = \"http://a\"", "`url` belongs to `http`"),
        ("task = \"x\"", "needs `command`, `process` or `builtin`"),
    ];
    for (keys, message) in cases {
        let text = format!("[queues.a]\nmode = \"fifo\"\n[[workers]]\nqueue = \"a\"\n{keys}\n");
        let error = format!("{:?}", read(&text, &[]).unwrap().validate("test.toml").unwrap_err());
        assert!(error.contains(message) && error.contains("workers[0]"), "{error}");
    }
}

#[test]
fn a_contradiction_names_the_queue_and_the_field() {
    let config = read("[queues.a]\nmode = \"parallel\"\ntake = 3\n", &[]).unwrap();
    let error = format!("{:?}", config.declared().unwrap_err());
    assert!(error.contains("queues.a.take"), "{error}");
}
