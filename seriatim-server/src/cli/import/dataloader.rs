//! Dataloader's variables as a configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use serde::Deserialize;
use seriatim::limits::QUEUES_MAX;
use toml::Value;

type Variables = BTreeMap<String, String>;

/// Most connections that the URL of a PostgreSQL store can ask for.
const CONNECTIONS_MAX: u64 = 200;
/// What Dataloader has if a variable is not set.
const HOST_DEFAULT: &str = "0.0.0.0";
const PORT_DEFAULT: u64 = 8_081;
const TIME_ZONE_DEFAULT: &str = "Europe/Moscow";
/// The lease of a node if nothing is said of it, in seconds.
const LEASE_DEFAULT: u64 = 60;
/// Most seconds of a lease: a queue allows one hour.
const LEASE_MAX: u64 = 3_600;
/// At least this many heartbeats fit into a lease.
const HEARTBEATS: u64 = 3;

/// A configuration, and what it does not contain.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) text: String,
    pub(super) left: Vec<String>,
}

/// Where a variable goes to without a setting, or why it needs none.
const ELSEWHERE: [(&str, &str); 10] = [
    ("PG_PASSWORD", "a secret: set SERIATIM_STORE to the whole URL in the environment"),
    ("PG_SCHEMA_QUEUE", "that schema stays as it is: Seriatim has its own, `seriatim`"),
    ("PG_USE_POOL", "connections are always pooled"),
    ("PG_POOL_RECYCLE", "a connection is replaced when it fails"),
    ("DL_REAPER_PERIOD_SEC", "lost claims are looked for with each heartbeat"),
    ("LOG_FILE_NAME", "part of `file` if LOG_PATH is set"),
    ("LOG_ROTATION", "a log file is full at `bytes_max` bytes, and `keep` of them are kept"),
    ("METRIC_PATH", "metrics are at /metrics, and for 30 days in the store"),
    ("METRIC_FILE_NAME", "see METRIC_PATH"),
    ("AUDIT_LOG_FILE_NAME", "part of `audit_file` if AUDIT_LOG_PATH is set"),
];

/// Those that become settings.
const SETTINGS: [&str; 17] = [
    "APP_HOST",
    "APP_PORT",
    "AUDIT_LOG_PATH",
    "DEBUG",
    "DL_CLAIM_BACKOFF_SEC",
    "DL_DEFAULT_LEASE_TTL_SEC",
    "DL_HEARTBEAT_SEC",
    "LOG_PATH",
    "PG_COMMAND_TIMEOUT",
    "PG_CONNECT_TIMEOUT",
    "PG_DATABASE",
    "PG_HOST",
    "PG_MAX_OVERFLOW",
    "PG_POOL_SIZE",
    "PG_PORT",
    "PG_USER",
    "TIMEZONE",
];

/// An entry of `WORKERS_JSON`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    queue: String,
    concurrency: Option<u32>,
}

/// A variable without a text is as if it were not set.
pub(super) fn configuration(mut variables: Variables) -> Result<Made, String> {
    variables.retain(|_, text| !text.is_empty());
    let variables = &variables;
    let mut text = String::from("# Made by seriatim import.\n");
    let mut table = |name: &str, lines: Vec<(&str, Value)>| {
        if !lines.is_empty() {
            let _ = write!(text, "\n[{name}]\n");
            lines.iter().for_each(|(key, value)| {
                let _ = writeln!(text, "{key} = {value}");
            });
        }
    };
    let mut left = left(variables);
    table("store", store(variables)?);
    table("http", http(variables, &mut left)?);
    table("log", log(variables));
    table("node", node(variables, &mut left)?);
    text.push_str(&workers(variables)?);
    Ok(Made { text, left })
}

/// What became of the other variables.
fn left(variables: &Variables) -> Vec<String> {
    let known = |name: &&String| !SETTINGS.contains(&name.as_str()) && *name != "WORKERS_JSON";
    let told = |name: &String| match ELSEWHERE.iter().find(|(other, _)| other == name) {
        Some((_, why)) => format!("{name}: {why}"),
        None => format!("{name}: not a variable of Dataloader that is known here"),
    };
    variables.keys().filter(known).map(told).collect()
}

fn store(variables: &Variables) -> Result<Vec<(&'static str, Value)>, String> {
    if !variables.keys().any(|name| name.starts_with("PG_")) {
        return Ok(Vec::new());
    }
    let part = |name: &str, usual: &str| {
        let value = variables.get(name).map_or(usual, String::as_str);
        form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>().replace('+', "%20")
    };
    let port = number(variables, "PG_PORT", 1..=65_535)?.unwrap_or(5_432);
    let host = variables.get("PG_HOST").map_or("localhost", String::as_str);
    if host.contains(|c: char| c.is_whitespace() || "@/?#".contains(c)) {
        return Err("PG_HOST: must be the name or the address of a host alone".to_owned());
    }
    let mut url = format!(
        "postgres://{}@{}:{port}/{}",
        part("PG_USER", "postgres"),
        in_address(host),
        part("PG_DATABASE", "postgres")
    );
    let size = number(variables, "PG_POOL_SIZE", 1..=CONNECTIONS_MAX)?;
    let more = number(variables, "PG_MAX_OVERFLOW", 0..=CONNECTIONS_MAX)?;
    let connections = size.map(|size| (size + more.unwrap_or(0)).min(CONNECTIONS_MAX).to_string());
    let connect = number(variables, "PG_CONNECT_TIMEOUT", 1..=3_600)?.map(|s| s.to_string());
    let call = number(variables, "PG_COMMAND_TIMEOUT", 1..=3_600)?.map(|s| format!("{s}s"));
    let mut mark = '?';
    for (name, value) in
        [("connections", connections), ("connect_timeout", connect), ("call_timeout", call)]
    {
        if let Some(value) = value {
            let _ = write!(url, "{mark}{name}={value}");
            mark = '&';
        }
    }
    Ok(vec![("url", url.into())])
}

/// An IPv6 address before a port has brackets.
fn in_address(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host.to_owned(),
    }
}

fn http(
    variables: &Variables,
    left: &mut Vec<String>,
) -> Result<Vec<(&'static str, Value)>, String> {
    let port = number(variables, "APP_PORT", 1..=65_535)?.unwrap_or(PORT_DEFAULT);
    let host = variables.get("APP_HOST").map_or(HOST_DEFAULT, String::as_str);
    let is_local = host.parse().map_or(host == "localhost", |ip: IpAddr| ip.is_loopback());
    if !is_local {
        left.push(format!(
            "http.listen: {host} is reachable from other machines, so `serve` wants a token: set SERIATIM_TOKEN, and let \
             callers send it as `Authorization: Bearer`; or listen on 127.0.0.1"
        ));
    }
    let zone = variables.get("TIMEZONE").map_or(TIME_ZONE_DEFAULT, String::as_str);
    let mut lines =
        vec![("listen", format!("{}:{port}", in_address(host)).into()), ("time_zone", zone.into())];
    let audit = file(variables, "AUDIT_LOG_PATH", "AUDIT_LOG_FILE_NAME", "audit.log");
    lines.extend(audit.map(|file| ("audit_file", file)));
    Ok(lines)
}

fn log(variables: &Variables) -> Vec<(&'static str, Value)> {
    let level =
        variables.get("DEBUG").filter(|debug| is_true(debug)).map(|_| ("level", "debug".into()));
    let file = file(variables, "LOG_PATH", "LOG_FILE_NAME", "app.log").map(|file| ("file", file));
    level.into_iter().chain(file).collect()
}

/// A folder and the name of a file in it.
fn file(variables: &Variables, folder: &str, name: &str, usual: &str) -> Option<Value> {
    let folder = variables.get(folder)?.trim_end_matches('/');
    let name = variables.get(name).map_or(usual, String::as_str);
    Some(format!("{folder}/{name}").into())
}

fn node(
    variables: &Variables,
    left: &mut Vec<String>,
) -> Result<Vec<(&'static str, Value)>, String> {
    let heartbeat = number(variables, "DL_HEARTBEAT_SEC", 1..=LEASE_MAX / HEARTBEATS)?;
    let mut lease = number(variables, "DL_DEFAULT_LEASE_TTL_SEC", 1..=LEASE_MAX)?;
    let poll = number(variables, "DL_CLAIM_BACKOFF_SEC", 1..=86_400)?;
    let (least, wanted) = (heartbeat.unwrap_or(0) * HEARTBEATS, lease.unwrap_or(LEASE_DEFAULT));
    if wanted < least {
        lease = Some(least);
        left.push(format!(
            "DL_HEARTBEAT_SEC: the lease is {least}s instead of {wanted}s: at least {HEARTBEATS} heartbeats"
        ));
    }
    let lines = [("heartbeat", heartbeat), ("lease", lease), ("poll_interval", poll)];
    let line = |(key, seconds): (_, Option<u64>)| Some((key, format!("{}s", seconds?).into()));
    Ok(lines.into_iter().filter_map(line).collect())
}

/// Queues as Dataloader has them: exclusive by `lock_key`, a retry after 30 s times the attempt. It deletes no jobs and
/// forgets no idempotency keys; a month is as good for its callers, and the store does not grow without end.
fn workers(variables: &Variables) -> Result<String, String> {
    let Some(json) = variables.get("WORKERS_JSON") else { return Ok(String::new()) };
    let workers: Vec<Worker> =
        serde_json::from_str(json).map_err(|error| format!("WORKERS_JSON: {error}"))?;
    if workers.len() > QUEUES_MAX as usize {
        return Err(format!("WORKERS_JSON: at most {QUEUES_MAX} entries"));
    }
    let mut text = String::from(
        "\n[defaults]\nmode = \"exclusive\"\nbackoff = { kind = \"linear\", base = \"30s\" }\n\
         retain_completed = \"30d\"\nidempotency_ttl = \"30d\"\n",
    );
    for worker in &workers {
        seriatim::store::validate_queue_name(&worker.queue)
            .map_err(|error| format!("WORKERS_JSON: queue {:?}: {error}", worker.queue))?;
    }
    let mut queues: Vec<&str> = workers.iter().map(|worker| &*worker.queue).collect();
    queues.sort_unstable();
    queues.dedup();
    for queue in &queues {
        let _ = write!(text, "\n[queues.{}]\n", Value::from(*queue));
    }
    for queue in queues {
        let calls = workers.iter().filter(|worker| worker.queue == queue);
        let calls = calls.map(|worker| worker.concurrency.unwrap_or(1).max(1));
        let calls = calls.fold(0_u32, u32::saturating_add);
        let _ = write!(
            text,
            "\n[[workers]]\nqueue = {}\nconcurrency = {calls}\nprocess = [\"python3\", \"worker.py\"]   # yours: see docs/workers.md\n",
            Value::from(queue)
        );
    }
    Ok(text)
}

fn number(
    variables: &Variables,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, String> {
    let Some(text) = variables.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(format!(
            "{name} is {text:?}: a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn is_true(text: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use seriatim::store::{Cancel, Declare, JobState, Push, PushStatus, Sweep};
    use seriatim::{Job, Timestamp};

    use super::*;
    use crate::config::Config;

    fn of(pairs: &[(&str, &str)]) -> Result<Made, String> {
        configuration(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn d11_e6_the_variables_of_dataloader_become_a_configuration() {
        let made = of(&[
            ("APP_PORT", "8081"),
            ("DEBUG", "true"),
            ("DL_HEARTBEAT_SEC", "10"),
            ("LOG_PATH", "/var/log/etl/"),
            ("DL_DEFAULT_LEASE_TTL_SEC", "60"),
            ("DL_CLAIM_BACKOFF_SEC", "15"),
            ("PG_DATABASE", "etl"),
            ("PG_HOST", "db"),
            ("PG_PASSWORD", "hush"),
            ("PG_POOL_SIZE", "10"),
            ("PG_MAX_OVERFLOW", "5"),
            ("PG_USER", "a@b"),
            ("TIMEZONE", "Europe/Moscow"),
            (
                "WORKERS_JSON",
                r#"[{"queue":"etl.default","concurrency":2},{"queue":"etl.default"}]"#,
            ),
        ])
        .unwrap();
        assert!(!format!("{made:?}").contains("hush"), "a secret is shown: {made:?}");
        let table: toml::Table = made.text.parse().unwrap();
        assert_eq!(
            table["store"]["url"].as_str(),
            Some("postgres://a%40b@db:5432/etl?connections=15")
        );
        assert_eq!(table["http"]["listen"].as_str(), Some("0.0.0.0:8081"));
        assert_eq!(table["node"]["lease"].as_str(), Some("60s"));
        assert!(table["queues"].as_table().unwrap().contains_key("etl.default"));
        assert_eq!(table["workers"][0]["concurrency"].as_integer(), Some(3));
        let left: Vec<&str> = made.left.iter().filter_map(|left| left.split(':').next()).collect();
        assert_eq!(left, ["PG_PASSWORD", "http.listen"]);
        assert_eq!(table["http"]["time_zone"].as_str(), Some("Europe/Moscow"));
        assert_eq!(table["log"]["file"].as_str(), Some("/var/log/etl/app.log"));
    }

    #[tokio::test]
    async fn d2_d3_what_ended_days_ago_is_still_found_and_not_run_again() {
        let made = of(&[("WORKERS_JSON", r#"[{"queue":"etl"}]"#)]).unwrap();
        let config: Config = toml::from_str(&made.text).unwrap();
        let store = seriatim::connect("memory:").await.unwrap();
        let queues = config.declared().unwrap();
        store.declare(Declare { now: None, queues }).await.unwrap();
        let trigger = async |now| {
            let job = Job::new("etl", "load").unwrap().key("cbr").idempotency_key("cbr_2025-01-10");
            store.push(Push { now: Some(now), jobs: vec![job] }).await.unwrap()[0]
        };
        let begun = Timestamp::from_secs_f64(1_736_500_000.0);
        let first = trigger(begun).await;
        store.cancel(Cancel { now: Some(begun), jobs: vec![first.job_id] }).await.unwrap();
        let later = Timestamp::from_secs_f64(1_736_500_000.0 + 29.0 * 86_400.0);
        store.sweep(Sweep { now: Some(later), rows_max: 10 }).await.unwrap();
        let again = trigger(later).await;
        assert_eq!((again.status, again.job_id), (PushStatus::Duplicate, first.job_id));
        let job = store.job(first.job_id).await.unwrap();
        assert_eq!(job.map(|job| job.state), Some(JobState::Canceled));
    }

    #[test]
    fn addresses_of_ipv6_have_brackets() {
        let made = of(&[("APP_HOST", "::1"), ("PG_HOST", "fd00::2"), ("PG_PORT", "6432")]).unwrap();
        let table: toml::Table = made.text.parse().unwrap();
        assert_eq!(table["http"]["listen"].as_str(), Some("[::1]:8081"));
        let url = table["store"]["url"].as_str().unwrap();
        assert!(url.starts_with("postgres://postgres@[fd00::2]:6432/"), "{url}");
    }

    #[test]
    fn d11_what_no_variable_says_is_as_dataloader_has_it() {
        let table: toml::Table = of(&[]).unwrap().text.parse().unwrap();
        let http = ["listen", "time_zone"].map(|key| table["http"][key].as_str().unwrap());
        assert_eq!(http, ["0.0.0.0:8081", "Europe/Moscow"]);
    }

    #[test]
    fn a_variable_without_a_text_is_as_if_it_were_not_set() {
        let names = ["APP_HOST", "APP_PORT", "AUDIT_LOG_PATH", "LOG_PATH", "PG_HOST", "TIMEZONE"];
        let empty = names.map(|name| (name, ""));
        let made = of(&empty).unwrap();
        assert_eq!((made.text, made.left), of(&[]).map(|made| (made.text, made.left)).unwrap());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_or_named() {
        assert_eq!(
            of(&[("PG_PORT", "high")]).unwrap_err(),
            "PG_PORT is \"high\": a whole number from 1 to 65535"
        );
        assert!(of(&[("WORKERS_JSON", r#"[{"queu":"a"}]"#)]).unwrap_err().contains("`queu`"));
        assert!(of(&[("APP_PROT", "1")]).unwrap().left[0].starts_with("APP_PROT: not a variable"));
    }
}
