//! `[[bridges]]`: what is read, and what is refused with the place and the choices.

use super::*;

fn read(text: &str) -> Result<Config, String> {
    let config = parse(text, [], "test.toml").map_err(|error| error.to_string())?;
    config.validate("test.toml").map_err(|error| error.to_string())?;
    Ok(config)
}

/// A bridge with these lines instead of those with the same names.
fn with(lines: &str) -> Result<Config, String> {
    let has = |name: &str| lines.lines().any(|line| line.starts_with(&format!("{name} = ")));
    let mut text =
        "[queues.orders]\nmode = \"fifo\"\n[queues.default]\nmode = \"parallel\"\n[[bridges]]\n"
            .to_owned();
    for (name, value) in [
        ("name", "\"shop\""),
        ("kind", "\"sidekiq\""),
        ("url_env", "\"SIDEKIQ_REDIS\""),
        ("queues", "[\"default\"]"),
    ] {
        if !has(name) {
            text += &format!("{name} = {value}\n");
        }
    }
    read(&(text + lines))
}

#[test]
fn b_the_example_of_the_design_is_read() {
    let config = with(
        "queues = [\"critical\", \"default\"]\nsets = \"due\"\n[[bridges.routes]]\nclass = \"OrderSync\"\nqueue = \"orders\"\nkey = \"/args/0\"\nscore = \"/args/1/version\"\npayload = \"/args/1\"\nmissing_key = \"refuse\"\n[[bridges.routes]]\nqueue = \"default\"",
    )
    .unwrap();
    let bridge = &config.bridges[0];
    assert_eq!((bridge.sets(), bridge.routes_of("critical").len()), (Sets::Due, 2));
    assert_eq!(with("").unwrap().bridges[0].routes_of("default").len(), 1);
}

#[test]
fn b_a_mistake_in_a_bridge_is_refused_with_its_place_and_the_choices() {
    let route = |line: &str| format!("[[bridges.routes]]\n{line}\n");
    for (lines, said) in [
        ("kind = \"resque\"".to_owned(), "unknown value: write \"sidekiq\", \"lowkiq\""),
        ("shards_count = 5".to_owned(), "`shards_count` is for kind = \"lowkiq\", not \"sidekiq\""),
        ("payloads = \"plain\"".to_owned(), "`payloads` is for kind = \"lowkiq\""),
        ("sets = \"dead\"".to_owned(), "write \"due\", \"all\", \"leave\""),
        ("queue = [\"a\"]".to_owned(), "unknown key `queue` (did you mean `queues`?)"),
        ("queues = []".to_owned(), "`queues` has 0 names: 1 to 100"),
        ("queues = [\"default\", \"default\"]".to_owned(), "\"default\" is given twice"),
        ("queues = [\"a\\u0007\"]".to_owned(), "is not the name of a queue"),
        ("queues = [\"defualt\"]".to_owned(), "did you mean \"default\"?"),
        ("url_env = \"redis://:secret@host\"".to_owned(), "`url_env` names the variable"),
        ("name = \"a b\"".to_owned(), "`name` must be 1 to 64"),
        ("name = \"..\"".to_owned(), "and not . or .."),
        (route("clas = \"A\""), "unknown key `clas` (did you mean `class`?)"),
        (route("queue = \"order\""), "no [queues] entry is called \"order\""),
        (route("queue = \"seriatim.exhausted\""), "are reserved"),
        (route("queue = \"orders\""), "`key` is missing: queue \"orders\" is fifo"),
        (route("key = \"/args/0\""), "`key` contradicts queue \"default\", which is parallel"),
        (route("score = \"/args/0\""), "`score` contradicts queue \"default\""),
        (route("payload = \"args\""), "is not a JSON Pointer"),
        (route("missing_key = \"x\""), "`missing_key` needs `key`"),
        (route("priority = 40000"), "`priority` must be 0 to 32767"),
        (route("from = \"defualt\""), "no queue of this bridge is \"defualt\""),
        (route("class = \"\""), "`class` must have 1 to"),
    ] {
        let told = with(&lines).unwrap_err();
        assert!(told.contains(said), "{lines}: {told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn b_bridges_that_would_take_each_others_jobs_are_refused() {
    let two = |name: &str, more: &str| {
        let one = |name: &str, more: &str| {
            format!(
                "[[bridges]]\nname = \"{name}\"\nkind = \"sidekiq\"\nurl_env = \"R\"\nqueues = [\"a\"]\n{more}\n"
            )
        };
        read(&format!("[queues.a]\nmode = \"parallel\"\n{}{}", one("x", ""), one(name, more)))
    };
    assert!(two("x", "namespace = \"n\"").unwrap_err().contains("`name`: bridges[0] has it too"));
    assert!(two("y", "").unwrap_err().contains("bridges[0] takes \"a\" too"));
    assert!(two("y", "namespace = \"n\"").is_ok());
}

#[test]
fn b_a_queue_that_forgets_too_soon_what_was_pushed_is_refused() {
    let text = "[queues.a]\nmode = \"parallel\"\nidempotency_ttl = \"30m\"\n[[bridges]]\nname = \"x\"\nkind = \"sidekiq\"\nurl_env = \"R\"\nqueues = [\"a\"]\n";
    assert!(read(text).unwrap_err().contains("idempotency_ttl of queue \"a\" must be at least 1h"));
    assert!(read(&text.replace("30m", "1h")).is_ok());
}

#[test]
fn b_a_bridge_to_lowkiq_names_its_shards_and_what_becomes_of_payloads() {
    let config = |queue: &str, lines: &str| {
        read(&format!(
            "[queues.\"Shop::Sync\"]\nmode = \"{queue}\"\n[[bridges]]\nname = \"x\"\nkind = \"lowkiq\"\nurl_env = \"R\"\nqueues = [\"Shop::Sync\"]\n{lines}\n"
        ))
    };
    let key = "mac_key_env = \"K\"";
    for shards in ["24", "{ \"Shop::Sync\" = 24 }"] {
        let read = config("accumulate", &format!("shards_count = {shards}\n{key}")).unwrap();
        let lowkiq = read.bridges[0].lowkiq().unwrap();
        assert_eq!((lowkiq.shards.of("Shop::Sync"), lowkiq.mac_key_env), (Some(24), Some("K")));
    }
    let plain = config("fifo", "shards_count = 1\npayloads = \"plain\"").unwrap();
    assert_eq!(plain.bridges[0].lowkiq().unwrap().mac_key_env, None);
    for (lines, said) in [
        (key.to_owned(), "`shards_count` is missing: write that of the modules"),
        (format!("shards_count = 0\n{key}"), "`shards_count` is 0: 1 to 1000"),
        (format!("shards_count = -1\n{key}"), "`shards_count` is -1: 1 to 1000"),
        (format!("shards_count = \"5\"\n{key}"), "a whole number such as 5, or a table"),
        (format!("shards_count = {{ Sync = 5 }}\n{key}"), "no queue of this bridge is \"Sync\""),
        (format!("shards_count = {{}}\n{key}"), "lacks queue \"Shop::Sync\""),
        ("shards_count = 5".to_owned(), "`mac_key_env` names the variable"),
        (
            "shards_count = 5\nmac_key_env = \"a-secret\"".to_owned(),
            "`mac_key_env` names the variable",
        ),
        (
            "shards_count = 5\nmac_key_env = \"SERIATIM_K\"".to_owned(),
            "are reserved for Seriatim's",
        ),
        (format!("shards_count = 5\npayloads = \"plain\"\n{key}"), "contradicts payloads"),
        (format!("shards_count = 5\npayloads = \"json\"\n{key}"), "write \"marshal\", \"plain\""),
        (format!("shards_count = 5\nsets = \"all\"\n{key}"), "`sets` is for kind = \"sidekiq\""),
        (
            format!("shards_count = 5\n{key}\n[[bridges.routes]]\nkey = \"/id\""),
            "routes[0]: `key` is not for kind = \"lowkiq\"",
        ),
    ] {
        let told = config("accumulate", &lines).unwrap_err();
        assert!(told.contains(said), "{lines}: {told}");
        assert!(!told.contains("a-secret"), "{told}");
    }
    let told = config("parallel", &format!("shards_count = 5\n{key}")).unwrap_err();
    assert!(
        told.contains("ids of Lowkiq are keys, and queue \"Shop::Sync\" is parallel"),
        "{told}"
    );
}
