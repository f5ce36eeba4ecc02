use seriatim::{Groups, Limit, Rate, Share, Window};

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
fn a_window_is_read_and_what_it_cannot_mean_is_refused() {
    let text = |mode: &str, rest: &str| format!("[queues.a]\nmode = \"{mode}\"\n{rest}\n");
    let whole =
        r#"window = { quiet = "5s", max_wait = "1m", max_jobs = 500, max_bytes = 1000000 }"#;
    let queue = read(&text("accumulate", whole), &[]).unwrap().declared().unwrap().remove(0);
    let window = Window::new(Duration::from_secs(5), Duration::from_secs(60));
    assert_eq!(queue.window, Some(window.max_jobs(500).max_bytes(1_000_000)));
    let variable = ("SERIATIM_QUEUES__A__WINDOW", r#"{ quiet = "1s", max_wait = "2s" }"#);
    let queue = read(&text("accumulate", ""), &[variable]).unwrap().declared().unwrap().remove(0);
    assert_eq!(queue.window, Some(Window::new(Duration::from_secs(1), Duration::from_secs(2))));

    let unknown = r#"window = { quiet = "5s", max_wait = "1m", max_job = 5 }"#;
    let error = read(&text("accumulate", unknown), &[]).unwrap_err();
    assert!(error.contains("did you mean `max_jobs`?"), "{error}");
    let error = read(&text("accumulate", r#"window = { quiet = "5s" }"#), &[]).unwrap_err();
    assert!(error.contains("max_wait"), "{error}");
    for (mode, rest, field) in [
        ("fifo", whole, "window: applies only in mode accumulate"),
        ("accumulate", r#"window = { quiet = "5s", max_wait = "1s" }"#, "window: quiet must be"),
        ("accumulate", &format!("due = \"earliest\"\n{whole}"), "due: cannot be set with a window"),
    ] {
        let error = read(&text(mode, rest), &[]).unwrap().declared().unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn limits_and_groups_are_read_and_what_they_cannot_mean_is_refused() {
    let read = |rest: &str, variables: &[(&str, &str)]| {
        let text =
            format!("[defaults]\nlimit = {{ running = 7 }}\n[queues.a]\nmode = \"fifo\"\n{rest}\n");
        read(&text, variables)
    };
    let first = |config: Config| config.declared().unwrap().remove(0);
    let whole = "limit = { running = 10, rate = \"100/s\", burst = 20 }\n\
        groups = { running = 2, named = { acme = { weight = 3, rate = \"5/m\" }, \"b.c\" = {} } }";
    let queue = first(read(whole, &[]).unwrap());
    let acme = Share::default().weight(3).rate(Rate::per_minute(5));
    let groups = Groups::each(Share::default().running(2)).named("acme", acme);
    let expected = Queue::fifo("a").running(10).rate(Rate::per_second(100)).burst(20);
    assert_eq!(queue, expected.groups(groups.named("b.c", Share::default())));

    // A queue without its own has that of the defaults; an empty one is none.
    assert_eq!(first(read("", &[]).unwrap()), Queue::fifo("a").running(7));
    let none = first(read("limit = {}\ngroups = {}", &[]).unwrap());
    assert_eq!((none.limit, none.groups), (Limit::default(), Some(Groups::default())));
    let variables =
        [("SERIATIM_QUEUES__A__LIMIT__RATE", "30/m"), ("SERIATIM_QUEUES__A__GROUPS__WEIGHT", "2")];
    let queue = first(read("", &variables).unwrap());
    assert_eq!(queue.limit, Queue::fifo("a").rate(Rate::per_minute(30)).limit);
    assert_eq!(queue.groups, Some(Groups::each(Share::default().weight(2))));

    for (rest, said) in [
        ("limit = { runing = 1 }", "did you mean `running`?"),
        ("groups = { named = { acme = { wieght = 1 } } }", "did you mean `weight`?"),
        ("limit = { rate = \"5 per second\" }", "`500/s`"),
        ("limit = { rate = 5 }", "found the number 5; write a rate in quotes: "),
        ("groups = true", "groups"),
    ] {
        let error = read(rest, &[]).unwrap_err();
        assert!(error.contains(said), "{rest}: {error}");
    }
    for (rest, field) in [
        ("limit = { running = 0 }", "queues.a.limit.running: must be 1 to"),
        ("limit = { burst = 5 }", "queues.a.limit.burst: needs a rate"),
        ("groups = { named = { acme = { weight = 1001 } } }", "queues.a.groups.named.acme.weight"),
    ] {
        let error = read(rest, &[]).unwrap().declared().unwrap_err().to_string();
        assert!(error.contains(field), "{rest}: {error}");
    }
}

#[test]
fn l9_a_node_of_a_number_prefers_its_part_of_the_queues() {
    let splitter = |line: &str, variables: &[(&str, &str)]| {
        read(&format!("[node]\n{line}\n"), variables).map(|config| config.node.splitter)
    };
    let numbers = [("SERIATIM_NODE__SPLITTER__NUMBER", "1"), ("SERIATIM_NODE__SPLITTER__OF", "3")];
    let part = splitter("", &numbers).unwrap();
    assert_eq!(part, splitter("splitter = { number = 1, of = 3 }", &[]).unwrap());
    let queues = ["a", "b", "c", "d", "e"].map(str::to_owned);
    let taken = |part: SplitterConfig| -> String {
        queues.iter().filter(|queue| part.takes(&queues, queue)).map(String::as_str).collect()
    };
    assert_eq!(taken(part), "be");
    let all = [0, 1, 2].map(|number| taken(SplitterConfig::Part { number, of: 3 }));
    assert_eq!(all, ["ad", "be", "c"], "each queue is in one part");
    assert_eq!(splitter("splitter = \"by_node\"", &[]).unwrap(), SplitterConfig::ByNode);

    for (line, said) in [
        ("splitter = { number = 3, of = 3 }", "`number` counts from 0"),
        ("splitter = { nummer = 1, of = 3 }", "did you mean `number`?"),
        ("splitter = { number = 1 }", "`of`"),
        ("splitter = \"by_nod\"", "did you mean `by_node`?"),
        ("splitter = 3", "by_node"),
    ] {
        let error = splitter(line, &[]).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
}

#[test]
fn no_text_of_the_file_is_shown() {
    for text in [
        "[store]\nurl = \"postgres://u:HUNTER2@h/db\n",
        "store = \"postgres://u:HUNTER2@h/db\"\n",
        "[payloads]\nkeys = [\"HUNTER2\"]\n",
        "[[bridges]]\nname = \"a\"\nurl=redis://u:HUNTER2@h\n",
        "[node]\nlease = \"HUNTER2\"\n",
        "[http]\ntime_zone = \"HUNTER2\"\n",
        "[log]\nlevel = \"HUNTER2\"\n",
        "[log]\nlevel = \"HUNTER2 x=info\"\n",
        "[queues.a]\nmode = \"HUNTER2\"\n",
        "[queues.a]\nlimit = { rate = \"HUNTER2\" }\n",
        "[queues.a]\nshards = \"HUNTER2\"\n",
    ] {
        let told = read(text, &[]).unwrap_err();
        assert!(!told.contains("HUNTER2") && told.contains(" at line "), "{text}: {told}");
    }
    let told = read("", &[("SERIATIM_NODE__LEASE", "HUNTER2")]).unwrap_err();
    assert!(!told.contains("HUNTER2") && told.contains("SERIATIM_NODE__LEASE"), "{told}");
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
            "node.concurrency: found a string; write a whole number, 0 or more, as in 10",
        ),
        ("[node]\nconcurrency = -1", "node.concurrency: found the number -1"),
        (
            "[node]\nlease = 60",
            "node.lease: found the number 60; write a duration in quotes: \"250ms\", \"10s\"",
        ),
        (
            "[queues.q]\nbackoff = { kind = \"constant\", base = 2 }",
            "found the number 2; write a duration in quotes: \"250ms\", \"10s\"",
        ),
        ("[queues.q]\nmode = fifo", "in quotes"),
        ("[node]\nid = 7", "node.id: found the number 7; write a string in quotes"),
        ("[node]\nconsumer_groups = \"a\"", "node.consumer_groups: found a string; write a list"),
        ("[queues.a]\nmax_retries = 1.5", "queues.a.max_retries: found the number 1.5"),
        (
            "[queues.a]\nshards = 70000",
            "queues.a.shards: found the number 70000; write a whole number from 0 to 65535",
        ),
        (
            "[queues.a]\nbackoff = \"linear\"",
            "queues.a.backoff: found a string; write a table, as in { kind = \"linear\", base = \"30s\" }",
        ),
        ("[queues]\na = \"fifo\"", "queues.a: found a string; write a table"),
        (
            "[[workers]]\nqueue = \"a\"\npayload_args = \"no\"",
            "workers[0].payload_args: found a string; write true or false",
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
        error.contains("variable SERIATIM_NODE__CONCURRENCY: node.concurrency: found a string"),
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
        keyless.contains("cron[0] (name \"one\"): `key` is missing: queue \"a\" is fifo"),
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
    let error = read("", &[("SERIATIM_TOKNE", "a-secret")]).unwrap_err();
    assert!(error.contains("SERIATIM_TOKNE: did you mean SERIATIM_TOKEN?"), "{error}");
    assert!(read("", &[("SERIATIM_TOKEN_OF_CI", "a"), ("SERIATIM_JOB_KEY", "b")]).is_ok());
}

#[test]
fn empty_names_of_a_node_are_refused() {
    for (line, field) in [
        ("id = \"\"", "node.id"),
        ("build = \"\"", "node.build"),
        ("consumer_groups = [\"eu\", \"\"]", "node.consumer_groups"),
        ("id = \"remote:w\"", "node.id"),
    ] {
        let config = read(&format!("[node]\n{line}\n"), &[]).unwrap();
        let refused = config.validate("a.toml").unwrap_err().to_string();
        assert!(refused.starts_with(&format!("a.toml: {field}: ")), "{refused}");
    }
}

#[test]
fn d11_queues_of_any_name_come_from_one_variable_beside_those_of_the_file() {
    let queues = "{ \"etl.default\" = { mode = \"exclusive\" }, orders = { mode = \"fifo\" } }";
    let variables = [("SERIATIM_QUEUES__ORDERS__MAX_RETRIES", "3"), ("SERIATIM_QUEUES", queues)];
    let config = read("[queues.mails]\nmode = \"parallel\"\n", &variables).unwrap();
    let declared = config.declared().unwrap();
    let names: Vec<&str> = declared.iter().map(|queue| &*queue.name).collect();
    assert_eq!(names, ["etl.default", "mails", "orders"]);
    assert_eq!((declared[0].mode, declared[2].max_retries), (Mode::Exclusive, 3));
    let told = read("", &[("SERIATIM_QUEUES", "etl")]).unwrap_err();
    assert!(told.contains("variable SERIATIM_QUEUES: queues: found a string"), "{told}");
}

#[test]
fn d11_queues_workers_and_cron_entries_may_come_from_variables_alone() {
    let variables = [
        ("SERIATIM_QUEUES__ETL__MODE", "exclusive"),
        ("SERIATIM_WORKERS", "[{ queue = \"etl\", command = [\"sh\", \"load.sh\"] }]"),
        (
            "SERIATIM_CRON",
            "[{ name = \"n\", schedule = \"@daily\", queue = \"etl\", key = \"k\" }]",
        ),
    ];
    let config = read("", &variables).unwrap();
    config.validate("the environment").unwrap();
    assert_eq!((config.workers[0].queue.as_str(), config.cron[0].name()), ("etl", "n"));
    let wrong = |name, value| read("", &[(name, value)]).unwrap_err();
    let told = wrong("SERIATIM_WORKERS", "[{ queue = 7 }]");
    assert!(told.contains("SERIATIM_WORKERS") && told.contains("queue"), "{told}");
    let told = wrong("SERIATIM_WORKERS", "etl");
    assert!(told.contains("SERIATIM_WORKERS"), "{told}");
    let told = wrong("SERIATIM_NODE", "x");
    assert!(told.contains("set its keys one by one, as in SERIATIM_NODE__KEY"), "{told}");
}

#[test]
fn n5_a_periodic_program_that_cannot_run_is_refused() {
    let refused = |keys: &str| {
        let text = format!("[[periodic]]\nname = \"a\"\n{keys}\n");
        match read(&text, &[]) {
            Ok(config) => {
                config.validate("test.toml").err().map_or(String::new(), |e| e.to_string())
            }
            Err(told) => told,
        }
    };
    let good = "command = [\"true\"]\npause = \"1s\"";
    assert_eq!(refused(good), "");
    for (keys, message) in [
        ("command = []\npause = \"1s\"", "`command` is empty"),
        ("command = [\"true\"]", "needs `pause`, as in \"10m\""),
        ("command = [\"true\"]\npause = \"10ms\"", "`pause` is too short: at least 1s"),
        ("command = [\"true\"]\npause = \"1s\"\nqueue = \"x\"", "queue"),
        (&format!("{good}\n[[periodic]]\nname = \"a\"\n{good}"), "periodic[0] has it too"),
    ] {
        assert!(refused(keys).contains(message), "{keys}: {}", refused(keys));
    }
}

#[test]
fn a_contradiction_between_keys_of_a_worker_names_both() {
    let cases = [
        ("command = [\"a\"]\nprocess = [\"b\"]", "`command` and `process` contradict"),
        ("command = [\"a\"]\nprocesses = 2", "`processes` needs `process`"),
        ("command = []", "`command` is empty"),
        ("process = [\"a\"]\nprocesses = 0", "`processes` is 0"),
        ("process = [\"a\"]\nconcurrency = 0", "`concurrency` is 0"),
        ("builtin = \"http\"", "needs `url`"),
        ("builtin = \"http\"\nurl = \"ftp://a\"", "must begin with http:// or https://"),
        ("builtin = \"http\"\nurl = \"http://a\"\nmethod = \"GET\"", "`method` is"),
        ("builtin = \"http\"\nurl = \"http://a\"\nroots = []", "`roots` needs"),
        ("builtin = \"http\"\nurl = \"http://a\"\nheaders = { Host = \"b\" }", "set by"),
        (
            "builtin = \"http\"\nurl = \"http://a\"\nheaders = { A = { env = \"Bearer x\" } }",
            "needs the name of a variable",
        ),
        ("builtin = \"ffmpeg\"\ncommand = [\"a\"]", "`command` and `builtin` contradict"),
        ("builtin = \"ffmpeg\"", "needs `roots`: the folders whose files jobs may name, as in"),
        ("builtin = \"replicate\"\nroots = []", "needs `roots`"),
        ("builtin = \"replicate\"\nroots = [\"\"]", "needs `roots`"),
        ("builtin = \"replicate\"\nroots = [\"a\"]\nurl = \"http://a\"", "`url` needs `http`"),
        ("command = [\"a\"]\nurl = \"http://a\"", "`url` needs `http`"),
        ("task = \"x\"", "needs `command`, `process` or `builtin`"),
    ];
    for (keys, message) in cases {
        let text = format!("[queues.a]\nmode = \"fifo\"\n[[workers]]\nqueue = \"a\"\n{keys}\n");
        let error = format!("{:?}", read(&text, &[]).unwrap().validate("test.toml").unwrap_err());
        assert!(error.contains(message) && error.contains("workers[0]"), "{error}");
    }
}

#[test]
fn a_user_or_password_in_the_url_of_a_worker_is_refused_and_not_shown() {
    let refused = |url: &str| {
        let text = format!(
            "[queues.a]\nmode = \"fifo\"\n[[workers]]\nqueue = \"a\"\nbuiltin = \"http\"\nurl = \"{url}\"\n"
        );
        let validated = read(&text, &[]).unwrap().validate("test.toml");
        validated.err().map(|failure| failure.to_string()).unwrap_or_default()
    };
    assert_eq!(refused("https://hook.example/@me?to=a@b"), "");
    for url in ["https://me:my-password@hook.example/a", "http://my-password@hook.example"] {
        let error = refused(url);
        assert!(error.contains("`url` has a user or password, which is not sent"), "{error}");
        assert!(error.contains("workers[0]") && !error.contains("my-password"), "{error}");
    }
}

#[test]
fn a_bucket_has_an_address_a_region_and_keys_that_are_elsewhere() {
    let right = "s3 = \"https://s3.example:9000/films/2026/\", region = \"us-east-1\", \
                 access_key = { env = \"KEY\" }, secret_key = { file = \"secret\" }";
    let refused = |bucket: &str, more: &str| {
        let text = format!(
            "[queues.a]\nmode = \"fifo\"\n[[workers]]\nqueue = \"a\"\nbuiltin = \"replicate\"\nroots = [\"a\"]\n\
             {more}\nservers = {{ films = {bucket} }}"
        );
        let checked = read(&text, &[])
            .and_then(|config| config.validate("test.toml").map_err(|error| error.to_string()));
        checked.err().unwrap_or_default()
    };
    let table = |keys: &str| format!("{{ {keys} }}");
    assert_eq!(refused(&table(right), "env_pass = [\"SECRET\"]"), "");
    for (present, instead, message) in [
        (
            "https://s3.example:9000/films/2026/",
            "https://s3.example",
            "films: `s3`: write https://",
        ),
        ("https://s3.example:9000", "https://me:my-password@s3.example", "films: `s3`: write"),
        ("/2026/", "/a%20b", "films: `s3`: write"),
        ("/2026/", "/../b", "films: `s3`: write"),
        ("https:", "s3:", "films: `s3`: write"),
        ("us-east-1", "", "films: `region`: write that of the bucket"),
        ("{ env = \"KEY\" }", "{ env = \"my/password\" }", "films: `access_key` needs the name of"),
        ("{ file = \"secret\" }", "{}", "films: `secret_key` needs the name of"),
        ("{ file = \"secret\" }", "\"my-password\"", "secret_key: found a string; write { env"),
        ("region", "regio", "unknown key `regio` (did you mean `region`?)"),
        ("region = \"us-east-1\", ", "", "`region` is missing"),
    ] {
        let said = refused(&table(&right.replace(present, instead)), "");
        assert!(said.contains(message) && !said.contains("password"), "{instead}: {said}");
    }
    let said = refused("5", "");
    assert!(said.contains("found the number 5; write ") && said.contains("or for a bucket"));
    let said = refused(&table(right), "env_pass = [\"KEY\"]");
    assert!(
        said.contains("`env_pass` names KEY, a token") && said.contains("of a bucket"),
        "{said}"
    );
}

#[test]
fn no_program_gets_the_store_or_a_token_by_its_environment() {
    let refused = |keys: &str| {
        let text = format!(
            "[http]\ntokens = [{{ name = \"ci\", token_env = \"CI_TOKEN\", role = \"producer\" }}]\n\
             [queues.a]\nmode = \"fifo\"\n[[workers]]\nqueue = \"a\"\ncommand = [\"a\"]\n{keys}\n"
        );
        let validated = read(&text, &[]).unwrap().validate("test.toml");
        validated.err().map(|failure| failure.to_string()).unwrap_or_default()
    };
    assert_eq!(refused("env = { MODE = \"fast\" }\nenv_pass = [\"DATABASE_URL\", \"HOME\"]"), "");
    for (keys, message) in [
        (
            "env_pass = [\"SERIATIM_STORE\"]",
            "`env_pass` names SERIATIM_STORE: variables that begin",
        ),
        ("env_pass = [\"SERIATIM_TOKEN\"]", "`env_pass` names SERIATIM_TOKEN: "),
        ("env = { SERIATIM_ENGINE = \"x\" }", "`env` names SERIATIM_ENGINE: "),
        ("env_pass = [\"CI_TOKEN\"]", "`env_pass` names CI_TOKEN, a token"),
        (
            "env_pass = [\"HOOK\"]\n[[workers]]\nqueue = \"a\"\nbuiltin = \"http\"\nurl = \"http://a\"\n\
             headers = { Authorization = { env = \"HOOK\" } }",
            "`env_pass` names HOOK, a token",
        ),
        ("env_pass = [\"a\", \"b c\"]", "not the name of a variable; write names"),
        ("env = { \"A=B\" = \"x\" }", "not the name of a variable; write names"),
        ("env = { A = \"a\\u0000b\" }", "the value of A contains a zero byte"),
        ("env = { A = \"x\" }\nenv_pass = [\"A\"]", "A is in both `env` and `env_pass`"),
    ] {
        let error = refused(keys);
        assert!(error.contains(message) && error.contains("workers[0]"), "{keys}: {error}");
    }
    let shown = read("[[workers]]\nqueue = \"a\"\nenv = { PIN = 4711 }", &[]).unwrap_err();
    assert!(shown.contains("workers[0].env.PIN: ") && !shown.contains("4711"), "{shown}");
}

#[test]
fn no_secret_is_in_a_variable_that_every_program_gets() {
    let refused = |text: &str| {
        let text = format!("[queues.a]\nmode = \"parallel\"\n{text}\n");
        let validated = read(&text, &[]).unwrap().validate("test.toml");
        validated.err().map(|failure| failure.to_string()).unwrap_or_default()
    };
    let worker = "[[workers]]\nqueue = \"a\"\nbuiltin";
    let bucket = "s3 = \"https://s3.example/b\", region = \"x\", access_key = { env = \"NAME\" }, secret_key";
    for (text, place) in [
        (
            "[http]\ntokens = [{ name = \"ci\", token_env = \"NAME\", role = \"producer\" }]".to_owned(),
            "http.tokens[0]",
        ),
        ("[payloads]\nkeys = [{ file = \"k\" }, { env = \"NAME\" }]".to_owned(), "payloads.keys[1]"),
        (
            format!("{worker} = \"http\"\nurl = \"http://a\"\nheaders = {{ A = {{ env = \"NAME\" }} }}"),
            "workers[0] (queue \"a\")",
        ),
        (
            format!(
                "{worker} = \"replicate\"\nroots = [\"a\"]\nservers = {{ b = {{ {bucket} = {{ file = \"k\" }} }} }}"
            ),
            "workers[0] (queue \"a\")",
        ),
        (
            "[[bridges]]\nname = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"NAME\"\nqueues = [\"a\"]"
                .to_owned(),
            "bridges[0] (name \"shop\")",
        ),
    ] {
        assert_eq!(refused(&text), "");
        for name in ["LC_TOKEN", "LOGNAME"] {
            let error = refused(&text.replace("NAME", name));
            let told = format!("test.toml: {place}: every worker program gets variable {name}, so");
            assert!(error.starts_with(&told), "{error}");
        }
    }
}

#[test]
fn a_contradiction_names_the_queue_and_the_field() {
    let config = read("[queues.a]\nmode = \"parallel\"\ntake = 3\n", &[]).unwrap();
    let error = format!("{:?}", config.declared().unwrap_err());
    assert!(error.contains("queues.a.take"), "{error}");
}

#[test]
fn a_journal_of_an_unknown_queue_or_without_room_is_refused() {
    let wrong = |text: &str| {
        let error = read(text, &[]).unwrap().validate("seriatim.toml").unwrap_err();
        format!("{error:?}")
    };
    assert!(wrong("[journal]\nqueues = [\"ordres\"]").contains("journal.queues"));
    assert!(wrong("[journal]\nbytes_max = 7").contains("journal.bytes_max"));
    assert!(wrong("[journal]\nretention = \"1s\"").contains("journal.retention"));
}

const PAGE: &str = include_str!("../../../docs/config.md");

/// The rows of a section's first table whose first cell names keys: (keys, default).
fn rows(heading: &str) -> Vec<(Vec<&'static str>, &'static str)> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("docs/config.md has no section {heading}"));
    let table = section.split("\n| key | default | |\n").nth(1).unwrap();
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        (quoted(cells[0]), cells[1])
    };
    lines.map(row).collect()
}

/// The text in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The keys that a part of the configuration has, as its own error lists them.
fn keys_of_program(text: &str) -> Vec<String> {
    let error = read(text, &[]).unwrap_err();
    let (_, keys) = error.split_once(" known keys: ").unwrap();
    let keys = keys.split_once("\", kind").map_or(keys, |(keys, _)| keys);
    quoted(keys).into_iter().map(str::to_owned).collect()
}

#[test]
fn the_page_has_every_key_and_no_other() {
    let parts = [
        ("`[store]`", "[store]\nzzz = 1"),
        ("`[http]`", "[http]\nzzz = 1"),
        ("`[faktory]`", "[faktory]\nzzz = 1"),
        ("`http.tokens`", "[[http.tokens]]\nzzz = 1"),
        ("`[http.proxy]`", "[http.proxy]\nzzz = 1"),
        ("`[dashboard]`", "[dashboard]\nzzz = 1"),
        ("`[log]`", "[log]\nzzz = 1"),
        ("`[journal]`", "[journal]\nzzz = 1"),
        ("`[payloads]`", "[payloads]\nzzz = 1"),
        ("`[node]`", "[node]\nzzz = 1"),
        ("`[queues.NAME]`", "[queues.a]\nzzz = 1"),
        ("`[queues.NAME]`", "[defaults]\nzzz = 1"),
        ("`[[workers]]`", "[[workers]]\nzzz = 1"),
        ("`[[cron]]`", "[[cron]]\nzzz = 1"),
        ("`[[periodic]]`", "[[periodic]]\nzzz = 1"),
        ("`[[bridges]]`", "[[bridges]]\nzzz = 1"),
        ("`bridges.routes`", "[[bridges]]\n[[bridges.routes]]\nzzz = 1"),
    ];
    for (heading, text) in parts {
        let mut page: Vec<&str> = rows(heading).into_iter().flat_map(|(keys, _)| keys).collect();
        let mut program = keys_of_program(text);
        page.sort_unstable();
        program.sort_unstable();
        assert_eq!(page, program, "{heading}");
    }
    let sections = keys_of_program("zzz = 1");
    for section in &sections {
        assert!(PAGE.contains(&format!("[{section}")), "there is no section on {section}");
    }
    // Variables know each of them.
    let mut known = [&WHOLE[..], &TABLES[..], &["store", "log"]].concat();
    known.sort_unstable();
    let mut sections = sections;
    sections.sort_unstable();
    assert_eq!(sections, known);
}

/// The first default of a key, as the page has it.
fn default_on_page(heading: &str, key: &str) -> &'static str {
    let rows = rows(heading);
    let row = rows.into_iter().find(|(keys, _)| keys.contains(&key));
    row.unwrap_or_else(|| panic!("{key} is not on the page")).1
}

#[test]
fn the_page_has_the_defaults_of_queues() {
    let queue = serde_json::to_value(Queue::new("a", Mode::Fifo)).unwrap();
    let mut compared = 0;
    for (key, default) in queue.as_object().unwrap() {
        let written = match default {
            // What is not set stands for something that the page says in words.
            serde_json::Value::Null => continue,
            serde_json::Value::Object(fields) if fields.is_empty() => continue,
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Object(_) => "{ kind = \"polynomial\" }".to_owned(),
            other => other.to_string(),
        };
        if ["name", "mode"].contains(&key.as_str()) {
            continue;
        }
        assert_eq!(quoted(default_on_page("`[queues.NAME]`", key)), [written], "{key}");
        compared += 1;
    }
    assert_eq!(compared, 15, "settings with a default: {queue}");
    let retained = quoted(default_on_page("`[queues.NAME]`", "retain_completed"));
    let of = |mode| seriatim::duration::format(Queue::new("a", mode).retention());
    assert_eq!(retained, [of(Mode::Exclusive), "exclusive".to_owned(), of(Mode::Fifo)]);
}

#[test]
fn l6_the_page_has_the_lifetimes_of_the_default_backoff() {
    let table = PAGE.split("| `max_retries` | lifetime |\n").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let (retries, written) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        // Each of the 30 values that chance has.
        let wait = |n: u32| {
            let all = (0..30).map(|k| Backoff::default().wait(n, (f64::from(k) + 0.5) / 30.0));
            all.sum::<Duration>() / 30
        };
        let seconds = (0..retries.parse().unwrap()).map(wait).sum::<Duration>().as_secs_f64();
        let words = match seconds {
            ..60.0 => format!("{seconds:.0} seconds"),
            ..3_600.0 => format!("{:.0} minutes", seconds / 60.0),
            ..86_400.0 => format!("{:.1} hours", seconds / 3_600.0),
            _ => format!("{:.1} days", seconds / 86_400.0),
        };
        assert_eq!(written, words, "{retries} retries");
    }
}

#[tokio::test]
async fn the_page_has_the_defaults_of_a_node() {
    let store: seriatim::SharedStore = std::sync::Arc::new(seriatim::store::Memory::new());
    let engine = seriatim::Engine::builder(store.clone()).build().unwrap();
    let (found, seen) = tokio::sync::oneshot::channel();
    let stop = async move {
        // It beats before it does anything else, and says goodbye at its end.
        let node = loop {
            if let Some(node) = store.nodes().await.unwrap().pop() {
                break node;
            }
            tokio::task::yield_now().await;
        };
        found.send(node.info).unwrap();
    };
    engine.run_until(stop).await.unwrap();
    let info = seen.await.unwrap();
    let concurrency = info.concurrency.to_string();
    let values = [
        ("id", &*info.name),
        ("concurrency", &concurrency),
        ("lease", &seriatim::duration::format(info.lease)),
    ];
    for (key, value) in values {
        assert_eq!(quoted(default_on_page("`[node]`", key)), [value], "{key}");
    }
    let page = |heading, key| quoted(default_on_page(heading, key))[0];
    assert_eq!(page("`[http]`", "listen"), LISTEN_DEFAULT);
    assert_eq!(page("`[store]`", "url"), STORE_DEFAULT);
    assert_eq!(page("`[node]`", "scheduler"), format!("{:?}", Scheduler::default()).to_lowercase());
    assert_eq!(page("`[log]`", "level"), DEFAULT_LEVEL.to_string());
    assert_eq!(page("`[log]`", "format"), format!("{:?}", LogFormat::default()).to_lowercase());
    let retention = seriatim::duration::format(crate::config::JOURNAL_RETENTION);
    assert_eq!(page("`[journal]`", "retention"), retention);
    assert_eq!(page("`[journal]`", "bytes_max"), crate::config::JOURNAL_BYTES.to_string());
    assert_eq!(page("`[[cron]]`", "priority"), seriatim::limits::PRIORITY_DEFAULT.to_string());
}

#[test]
fn every_kind_of_worker_has_a_default_timeout_that_0_switches_off() {
    let worker = |keys: &str| {
        let config = read(&format!("[[workers]]\nqueue = \"a\"\n{keys}"), &[]).unwrap();
        config.workers[0].clone()
    };
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
    for (kind, length) in [
        ("command = [\"x\"]", hours(1)),
        ("process = [\"x\"]", hours(1)),
        ("builtin = \"http\"\nurl = \"http://x/\"", hours(1)),
        ("builtin = \"ffmpeg\"", hours(24)),
        ("builtin = \"replicate\"", hours(24)),
    ] {
        assert_eq!(worker(kind).timeout_default(), length, "{kind}");
        assert_eq!(worker(&format!("{kind}\ntimeout = \"5m\"")).timeout_default(), length);
        assert_eq!(worker(&format!("{kind}\ntimeout = \"0\"")).timeout_default(), None);
    }
    let request = |keys: &str| {
        let http = worker(&format!("builtin = \"http\"\nurl = \"http://x/\"\n{keys}"));
        match http.read_kind(Mode::Fifo) {
            Ok(WorkerKind::Http(settings)) => settings.timeout,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(request(""), Some(Duration::from_secs(30)));
    assert_eq!(request("timeout = \"5m\""), Some(Duration::from_secs(300)));
    assert_eq!(request("timeout = \"0\""), None);
}
