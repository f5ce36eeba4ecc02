//! The settings of a Ruby application, of Sidekiq and of Lowkiq, as a configuration.

use std::fmt::Write as _;

use serde::Deserialize as _;
use seriatim::limits::WEIGHT_MAX;
use toml::{Table, Value};

use super::described::{Class, Described, Lowkiq, Module, Sidekiq, Tick, Weighted};
use crate::base::text::one_line;
use crate::config::CronConfig;

/// How many retries a queue of Ruby classes allows: the classes themselves decide.
const RETRIES: u32 = 1_000_000;
/// Sidekiq's threads, if it is not told how many.
const THREADS: u32 = 5;
const THREADS_BEFORE_7: u32 = 10;
/// Most threads of a worker.
const THREADS_MAX: u32 = 1_000;
const PASSED: &str =
    "[\"DATABASE_URL\", \"RAILS_ENV\", \"REDIS_URL\"]   # and what else the application reads";

/// A queue with the worker that serves it.
struct Served<'a> {
    queue: &'a str,
    weight: Option<u32>,
    threads: u32,
}

/// From `--describe` of an application of Sidekiq's.
pub(super) fn of_sidekiq(text: &str) -> Result<String, String> {
    let described = Described::read(text)?;
    let sidekiq = described
        .sidekiq
        .as_ref()
        .ok_or("`sidekiq` is missing: the application did not load it")?;
    let pools = pools(sidekiq)?;
    let threads = pools.iter().map(|(threads, _)| *threads).fold(0, u32::saturating_add);
    let served = served(&pools);
    let version = sidekiq.version.as_deref().unwrap_or("of unknown version");
    let mut made = format!("# Made by seriatim import from Sidekiq {}.\n", one_line(version));
    if !sidekiq.middleware.is_empty() {
        let _ = writeln!(
            made,
            "# The Ruby program runs the middleware of its server: {}.",
            one_line(&sidekiq.middleware.join(", "))
        );
    }
    made.push_str(&node(sidekiq, &served, threads));
    made.push_str(&defaults(sidekiq));
    let mut declared: Vec<&str> = Vec::new();
    for one in &served {
        check_queue(one.queue)?;
        let queue = Value::from(one.queue);
        let _ = write!(made, "\n[queues.{queue}]\n{}", classes(&described.classes, one.queue));
        if let Some(weight) = one.weight {
            let _ = writeln!(made, "weight = {}", weight.clamp(1, WEIGHT_MAX));
        }
        made.push_str(&worker(&described, (one.queue, one.threads), ""));
        declared.push(one.queue);
    }
    for queue in others(&described, &declared) {
        check_queue(queue)?;
        let _ = write!(
            made,
            "\n[queues.{}]\n{}# No worker: this Sidekiq does not serve it.\n",
            Value::from(queue),
            classes(&described.classes, queue)
        );
    }
    described.cron.iter().for_each(|tick| made.push_str(&cron(tick, &described.classes)));
    Ok(made)
}

/// From `--describe` of an application of Lowkiq's.
pub(super) fn of_lowkiq(text: &str) -> Result<String, String> {
    let described = Described::read(text)?;
    let Lowkiq { threads_per_node, workers } =
        described.lowkiq.as_ref().ok_or("`lowkiq` is missing: the application did not load it")?;
    let threads = threads(*threads_per_node, "lowkiq.threads_per_node")?;
    let mut made =
        format!("# Made by seriatim import from Lowkiq.\n\n[node]\nconcurrency = {threads}\n");
    for Module { name, queue, batch_size, max_retry_count, .. } in workers {
        check_queue(queue)?;
        let _ = write!(
            made,
            "\n[queues.{}]\nmode = \"accumulate\"\nbatch_size = {batch_size}\nmax_retries = {max_retry_count}\n{}",
            Value::from(&**queue),
            worker(
                &described,
                (queue, threads),
                &format!(", \"--lowkiq\", {}", Value::from(&**name))
            )
        );
    }
    let (mut queues, mut shards) = (Vec::new(), Vec::new());
    for Module { queue, shards_count, .. } in workers {
        let name = Value::from(&**queue);
        shards.push(format!("{name} = {shards_count}"));
        queues.push(name.to_string());
    }
    let _ = write!(
        made,
        "\n# What waits in Lowkiq can move live (docs/bridges.md); the workers then need --mac-key-env LOWKIQ_MAC_KEY and its env_pass.\n\
         # [[bridges]]\n# name = \"lowkiq\"\n# kind = \"lowkiq\"\n# url_env = \"LOWKIQ_REDIS\"\n# queues = [{}]\n\
         # shards_count = {{ {} }}\n# mac_key_env = \"LOWKIQ_MAC_KEY\"\n",
        queues.join(", "),
        shards.join(", ")
    );
    Ok(made)
}

fn threads(number: u32, place: &str) -> Result<u32, String> {
    match number {
        1..=THREADS_MAX => Ok(number),
        _ => Err(format!("`{place}` is {number}: a number from 1 to {THREADS_MAX}")),
    }
}

fn check_queue(name: &str) -> Result<(), String> {
    seriatim::store::validate_queue_name(name).map_err(|error| format!("queue {name:?}: {error}"))
}

/// The threads and the queues of the server itself, and of each of its capsules.
fn pools(sidekiq: &Sidekiq) -> Result<Vec<(u32, &[Weighted])>, String> {
    let version = sidekiq.version.as_ref();
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let usual = if major.is_some_and(|major| major < 7) { THREADS_BEFORE_7 } else { THREADS };
    let own = threads(sidekiq.concurrency.unwrap_or(usual), "sidekiq.concurrency")?;
    let mut pools = vec![(own, &*sidekiq.queues)];
    for capsule in &sidekiq.capsules {
        let place = format!("sidekiq.capsules: {:?}: concurrency", capsule.name);
        pools.push((threads(capsule.concurrency.unwrap_or(own), &place)?, &*capsule.queues));
    }
    Ok(pools)
}

/// Each queue once.
fn served<'a>(pools: &[(u32, &'a [Weighted])]) -> Vec<Served<'a>> {
    let mut served: Vec<Served<'a>> = Vec::new();
    for (threads, queues) in pools {
        for (queue, weight) in *queues {
            match served.iter_mut().find(|one| one.queue == queue) {
                Some(one) => one.threads = one.threads.saturating_add(*threads),
                None => served.push(Served { queue, weight: *weight, threads: *threads }),
            }
        }
    }
    served
}

fn node(sidekiq: &Sidekiq, served: &[Served<'_>], threads: u32) -> String {
    let scheduler =
        if served.iter().any(|one| one.weight.is_some()) { "weighted" } else { "strict" };
    let mut node = format!("\n[node]\nconcurrency = {threads}\nscheduler = \"{scheduler}\"\n");
    if let Some(timeout) = sidekiq.timeout {
        let _ = writeln!(node, "shutdown_timeout = \"{timeout}s\"");
    }
    node
}

fn defaults(sidekiq: &Sidekiq) -> String {
    let usual = sidekiq
        .max_retries
        .map(|most| format!("; their default, {most}, is in sidekiq.yml, which the program reads"));
    let usual = usual.unwrap_or_default();
    let mut defaults = format!(
        "\n[defaults]\nmode = \"parallel\"\nmax_retries = {RETRIES}   # the classes decide{usual}\n"
    );
    if let Some(seconds) = sidekiq.dead_timeout_in_seconds {
        let _ = writeln!(defaults, "retain_dead = \"{seconds}s\"");
    }
    if let Some(most) = sidekiq.dead_max_jobs {
        let _ = writeln!(defaults, "retain_dead_max = {most}");
    }
    defaults
}

/// The classes of a queue, as comments.
fn classes(classes: &[Class], queue: &str) -> String {
    let mut lines = String::new();
    for class in classes.iter().filter(|class| class.queue.as_deref() == Some(queue)) {
        let options = class.options.iter().map(|(name, value)| format!("{name} {value}"));
        let told: Vec<String> = options.chain(class.hooks.iter().cloned()).collect();
        let told = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
        let _ = writeln!(lines, "# {}", one_line(&format!("{}{told}", class.name)));
    }
    lines
}

fn worker(described: &Described, (queue, threads): (&str, u32), more: &str) -> String {
    let alone = if threads == 1 {
        "# One at a time; `mode = \"fifo\"` with keys would keep each key in order and run others beside it.\n"
    } else {
        ""
    };
    let require = Value::from(described.require.as_deref().unwrap_or("."));
    let config =
        described.config.as_deref().map(|file| format!(", \"--config\", {}", Value::from(file)));
    let config = config.unwrap_or_default();
    let bundle = if described.bundler { "\"bundle\", \"exec\", " } else { "" };
    format!(
        "\n{alone}[[workers]]\nqueue = {}\nconcurrency = {threads}\n\
         process = [{bundle}\"ruby\", \"seriatim_worker.rb\", \"--require\", {require}{config}, \"--threads\", \"{threads}\"{more}]\nenv_pass = {PASSED}\n",
        Value::from(queue)
    )
}

/// Queues that classes and cron entries name, but that are not `declared`.
fn others<'a>(described: &'a Described, declared: &[&str]) -> Vec<&'a str> {
    let of_classes = described.classes.iter().filter_map(|class| class.queue.as_deref());
    let of_cron = described.cron.iter().map(|tick| queue_of(tick, &described.classes));
    let mut others: Vec<&str> =
        of_classes.chain(of_cron).filter(|queue| !declared.contains(queue)).collect();
    others.sort_unstable();
    others.dedup();
    others
}

fn queue_of<'a>(tick: &'a Tick, classes: &'a [Class]) -> &'a str {
    let of_class = || classes.iter().find(|class| class.name == tick.class)?.queue.as_deref();
    tick.queue.as_deref().or_else(of_class).unwrap_or("default")
}

/// A cron entry, or why there is none.
fn cron(tick: &Tick, classes: &[Class]) -> String {
    match entry(tick, queue_of(tick, classes)) {
        Ok(entry) => {
            let lines = entry.iter().map(|(name, value)| format!("{name} = {value}\n"));
            format!("\n[[cron]]\n{}", lines.collect::<String>())
        }
        Err(why) => {
            let when = tick.schedule.as_deref().or(tick.times.as_deref()).unwrap_or_default();
            format!(
                "\n# Not imported: {}\n",
                one_line(&format!("cron {:?} ({when}, {}): {why}", tick.name, tick.class))
            )
        }
    }
}

fn entry(tick: &Tick, queue: &str) -> Result<Table, String> {
    if !tick.enabled {
        return Err("it is disabled".to_owned());
    }
    if tick.date_as_argument {
        return Err("the time of each tick is an argument of its job".to_owned());
    }
    let schedule = tick.schedule.as_deref().ok_or("it has no schedule as of crontab(5)")?;
    let args = Value::try_from(&tick.args).map_err(|error| format!("its arguments: {error}"))?;
    let mut payload = Table::new();
    payload.insert("class".to_owned(), Value::from(&*tick.class));
    payload.insert("args".to_owned(), args);
    let mut entry = Table::new();
    let texts = [
        ("name", Some(&*tick.name)),
        ("schedule", Some(schedule)),
        ("time_zone", tick.time_zone.as_deref()),
        ("queue", Some(queue)),
    ];
    for (name, text) in texts {
        entry.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    }
    entry.insert("payload".to_owned(), payload.into());
    let config =
        CronConfig::deserialize(Value::from(entry.clone())).map_err(|error| error.to_string())?;
    config.entry().map_err(|error| error.to_string())?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIBED: &str = r#"{
        "require": "./app.rb", "config": "sidekiq.yml",
        "sidekiq": {
            "version": "7.2.0", "concurrency": 7, "timeout": 12, "max_retries": 30, "dead_max_jobs": 500,
            "dead_timeout_in_seconds": 86400, "queues": [["critical", 3], ["low", 1]],
            "capsules": [{ "name": "one", "concurrency": 1, "queues": [["serial", null]] }],
            "middleware": ["Noting"]
        },
        "classes": [
            { "name": "Sync", "queue": "critical", "options": { "retry": 5 }, "hooks": ["sidekiq_retry_in"] },
            { "name": "Report", "queue": "reports", "options": {}, "hooks": [] },
            { "name": "Odd\n[queues.x]", "queue": "low", "options": {}, "hooks": [] }
        ],
        "cron": [
            { "name": "nightly", "schedule": "0 3 * * *", "class": "Report", "args": [1], "enabled": true,
              "time_zone": "Europe/Berlin" },
            { "name": "often", "schedule": "every 5 minutes", "class": "Report", "args": [], "enabled": true },
            { "name": "never", "schedule": "0 3 * * *", "class": "Report", "args": [], "enabled": false },
            { "name": "null", "schedule": "0 3 * * *", "class": "Report", "args": [null], "enabled": true },
            { "name": "tick", "times": "{:every=>\"1h\"}", "class": "Sync", "args": [], "enabled": true },
            { "name": "dated", "schedule": "@daily", "class": "Sync", "args": [], "enabled": true,
              "date_as_argument": true }
        ]
    }"#;

    #[test]
    fn the_settings_of_sidekiq_become_a_configuration_and_the_rest_comments() {
        let text = of_sidekiq(DESCRIBED).unwrap();
        let table: Table = text.parse().unwrap();
        assert_eq!(table["node"]["concurrency"].as_integer(), Some(8), "both pools");
        assert_eq!(table["node"]["scheduler"].as_str(), Some("weighted"));
        assert_eq!(table["node"]["shutdown_timeout"].as_str(), Some("12s"));
        assert_eq!(table["defaults"]["retain_dead"].as_str(), Some("86400s"));
        assert_eq!(table["queues"]["critical"]["weight"].as_integer(), Some(3));
        let queues: Vec<&String> = table["queues"].as_table().unwrap().keys().collect();
        assert_eq!(queues, ["critical", "low", "reports", "serial"]);
        let workers = table["workers"].as_array().unwrap();
        let served: Vec<_> = workers
            .iter()
            .map(|one| (one["queue"].as_str(), one["concurrency"].as_integer()))
            .collect();
        assert_eq!(
            served,
            [(Some("critical"), Some(7)), (Some("low"), Some(7)), (Some("serial"), Some(1))]
        );
        let words: Vec<_> =
            workers[0]["process"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let of_described = ["--require", "./app.rb", "--config", "sidekiq.yml", "--threads", "7"];
        assert_eq!(words, [&["ruby", "seriatim_worker.rb"][..], &of_described].concat());
        let bundled = DESCRIBED.replacen('{', r#"{ "bundler": true,"#, 1);
        let bundled = of_sidekiq(&bundled).unwrap();
        assert!(bundled.contains(r#"process = ["bundle", "exec", "ruby", "#), "{bundled}");
        let cron = table["cron"].as_array().unwrap();
        assert_eq!(cron.len(), 1);
        assert_eq!(cron[0]["queue"].as_str(), Some("reports"), "that of its class");
        assert_eq!(cron[0]["payload"]["args"][0].as_integer(), Some(1));
        for said in [
            "# Sync: retry 5, sidekiq_retry_in\n",
            "Noting",
            "cron \"often\" (every 5 minutes, Report): ",
            "(0 3 * * *, Report): it is disabled",
            "cron \"null\"",
            "every=>\"1h\"",
            "cron \"dated\"",
            "default, 30, is in sidekiq.yml",
        ] {
            assert!(text.contains(said), "{said}:\n{text}");
        }
    }

    #[test]
    fn without_weights_the_order_of_queues_is_strict() {
        let strict = DESCRIBED.replace("3]", "null]").replace("1]]", "null]]");
        assert!(of_sidekiq(&strict).unwrap().contains("scheduler = \"strict\""));
    }

    #[test]
    fn the_modules_of_lowkiq_become_queues_with_batches() {
        let text = of_lowkiq(
            r#"{ "lowkiq": { "threads_per_node": 5, "workers": [
                { "name": "Shop::Sync", "queue": "Shop::Sync", "shards_count": 24, "batch_size": 10, "max_retry_count": 2 }
            ] } }"#,
        );
        let text = text.unwrap();
        // Its last lines are a bridge, as a comment.
        let text = text.replace("\n# [[bridges]]", "\n[[bridges]]");
        let (head, bridge) = text.split_once("\n[[bridges]]").unwrap();
        let table: Table =
            format!("{head}\n[[bridges]]{}", bridge.replace("\n# ", "\n")).parse().unwrap();
        let bridge = &table["bridges"][0];
        assert_eq!(bridge["shards_count"]["Shop::Sync"].as_integer(), Some(24));
        assert_eq!(bridge["queues"][0].as_str(), Some("Shop::Sync"));
        let queue = &table["queues"]["Shop::Sync"];
        assert_eq!(queue["mode"].as_str(), Some("accumulate"));
        assert_eq!(
            (queue["batch_size"].as_integer(), queue["max_retries"].as_integer()),
            (Some(10), Some(2))
        );
        let words = table["workers"][0]["process"].as_array().unwrap();
        assert!(words.iter().any(|word| word.as_str() == Some("--lowkiq")));
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_the_place() {
        let wrong = |text: &str| of_sidekiq(text).unwrap_err();
        assert!(wrong(":queues: [a]").contains("--describe --config sidekiq.yml"));
        assert!(wrong("{}").contains("`sidekiq` is missing"));
        assert!(of_lowkiq("{}").unwrap_err().contains("`lowkiq` is missing"));
        assert!(wrong(r#"{ "sidekik": 1 }"#).contains("`sidekik`"));
        let described = |from: &str, to: &str| wrong(&DESCRIBED.replace(from, to));
        assert!(
            described("\"concurrency\": 7", "\"concurrency\": 0")
                .contains("`sidekiq.concurrency` is 0")
        );
        assert!(described("\"low\", 1", "\"l o w\", 1").contains("queue \"l o w\""));
    }
}
