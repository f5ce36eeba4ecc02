//! The command line at its edges: what is misspelt, what is cut short, what is not text.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use seriatim::{Client, Job, Queue, SharedStore};

use crate::faults::Server;
use crate::hand::Hand;
use crate::site::{QUEUE, Serving, Site, eventually, kill, text, wait_until};

/// Of a run that was asked wrongly, what it says.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", text(output));
    text(output)
}

#[test]
fn a_log_level_that_is_none_is_refused_wherever_it_is_written() {
    let valid = "write off, error, warn, info, debug, trace";
    let site = Site::new("");
    let flag = refused(&site.run(&["serve", "--log-level", "wran"]));
    assert!(flag.contains("--log-level") && flag.contains(valid), "{flag}");
    assert!(flag.contains("did you mean warn?"), "{flag}");
    let variable = site.command(&["serve"]).env("SERIATIM_LOG", "inf").output().unwrap();
    let variable = refused(&variable);
    assert!(variable.contains("variable SERIATIM_LOG: \"inf\" is not a log level"), "{variable}");
    assert!(variable.contains(valid), "{variable}");
    let part = site.command(&["serve"]).env("SERIATIM_LOG", "info,seriatim=loud").output().unwrap();
    assert!(refused(&part).contains("\"loud\" is not a log level"), "{}", text(&part));
    let site = Site::new("[log]\nlevel = \"inf\"\n");
    let file = refused(&site.run(&["serve"]));
    assert!(file.contains("seriatim.toml: ") && file.contains("line 2, column"), "{file}");
    assert!(
        file.contains("log.level: this value is not a log level (did you mean info?)")
            && file.contains(valid),
        "{file}"
    );
    assert!(!site.path("seriatim.db").exists(), "nothing was made");
}

#[test]
fn a_variable_that_is_not_text_is_named_and_not_shown() {
    let site = Site::new(
        "[http]\ntokens = [{ name = \"ci\", token_env = \"CI_TOKEN\", role = \"reader\" }]\n",
    );
    let spoilt = OsStr::from_bytes(b"sesame-\xff-sesame-sesame");
    for variable in ["SERIATIM_STORE", "SERIATIM_NODE__ID", "SERIATIM_TOKEN", "CI_TOKEN"] {
        let mut command = site.command(&["serve"]);
        let said = refused(
            &command.env("CI_TOKEN", "x".repeat(20)).env(variable, spoilt).output().unwrap(),
        );
        assert!(said.contains(&format!("variable {variable}: its value is not UTF-8")), "{said}");
        assert!(!said.contains("sesame") && !said.contains("panic"), "{said}");
    }
    let other = site.command(&["migrate"]).env("SOMETHING_ELSE", spoilt).output().unwrap();
    assert!(other.status.success(), "{}", text(&other));
}

#[test]
fn with_json_errors_are_json_too() {
    let site = Site::new("");
    let error = |arguments: &[&str], code: i32| -> Value {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(output.stdout.is_empty(), "{}", text(&output));
        let said: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(said["error"]["exit_code"], code);
        said["error"].clone()
    };
    let missing = error(&["stats", "--json"], 1);
    assert_eq!(missing["kind"], "not_found");
    assert!(missing["message"].as_str().unwrap().starts_with("no Seriatim store at "), "{missing}");
    let field = error(&["push", "a", "1", "--priority", "40000", "--json"], 2);
    assert_eq!((&field["kind"], &field["field"]), (&json!("invalid"), &json!("jobs[0].priority")));
    let misused = error(&["stats", "--json", "--stoer", "x"], 2);
    assert_eq!(misused["message"], "unexpected argument '--stoer' found");
    assert_eq!(misused["hint"], "a similar argument exists: '--store'");
    let payload = text(&site.run(&["push", "a", "{", "--", "--json"]));
    assert!(payload.starts_with("seriatim: payload"), "behind -- it is a payload: {payload}");
}

/// A push of standard input that has read this many lines and waits for more.
fn pushing(site: &Site, lines: usize) -> Child {
    let arguments = ["push", QUEUE, "--file", "-"];
    let mut child = site
        .command(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(jobs(lines).as_bytes()).unwrap();
    child
}

fn jobs(lines: usize) -> String {
    (1..=lines)
        .fold(String::new(), |all, number| all + &json!({ "payload": number }).to_string() + "\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_interrupted_push_says_what_is_pushed_and_goes_on_from_there() {
    let site = Site::new("");
    let store = site.store().await;
    let child = pushing(&site, 2_500);
    wait_until(&store, |stats| stats.jobs == 2_000).await;
    kill(i32::try_from(child.id()).unwrap(), Signal::INT);
    // Its input stays open: only the signal can end it.
    let mut child = Serving(child);
    let input = child.0.stdin.take();
    let status = child.0.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(child.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted: 2000 jobs pushed; continue with --from-line 2001"),
        "{said}"
    );
    drop(input);
    std::fs::write(site.path("jobs.ndjson"), jobs(2_500)).unwrap();
    let rest = site.run(&["push", QUEUE, "--file", "jobs.ndjson", "--from-line", "2001"]);
    assert!(text(&rest).contains("pushed 500 jobs"), "{}", text(&rest));
    wait_until(&store, |stats| stats.jobs == 2_500).await;
    let beyond = site.run(&["push", QUEUE, "--file", "jobs.ndjson", "--from-line", "2502"]);
    assert_eq!(beyond.status.code(), Some(1), "{}", text(&beyond));
    assert!(text(&beyond).contains("the file has only 2500 lines"), "{}", text(&beyond));
}

/// A command that sends twenty dead jobs back at this rate, when the first is sent.
async fn replaying(site: &Site, rate: &str) -> (Serving, SharedStore) {
    replaying_in(site.store().await, site, rate).await
}

async fn replaying_in(store: SharedStore, site: &Site, rate: &str) -> (Serving, SharedStore) {
    let queue = Queue::fifo(QUEUE).max_retries(0);
    let hand = Hand::new(store, vec![queue]).await;
    for i in 0..20 {
        hand.push(Job::new(QUEUE, &i).unwrap().key(i.to_string())).await;
    }
    hand.fail_all(QUEUE, "no stock").await;
    let mut command = site.command(&["operations", "start", "requeue", QUEUE, "--rate", rate]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    wait_until(&hand.store, |stats| stats.dead < 20).await;
    (Serving(child.unwrap()), hand.store)
}

/// How the command ends, and what it says.
fn said(mut command: Serving) -> (Option<i32>, String) {
    let code = command.0.wait().unwrap().code();
    let mut said = String::new();
    std::io::Read::read_to_string(command.0.stdout.as_mut().unwrap(), &mut said).unwrap();
    std::io::Read::read_to_string(command.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    (code, said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_operation_is_not_done_does_not_say_that_it_succeeded() {
    let site = Site::new("");
    let (interrupted, store) = replaying(&site, "1/h").await;
    kill(i32::try_from(interrupted.0.id()).unwrap(), Signal::INT);
    let (code, told) = said(interrupted);
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("stopped") && told.contains("what is done stays done"), "{told}");
    drop(store);
    let site = Site::new("");
    let (failing, store) = replaying(&site, "1/s").await;
    seriatim::store::delete_queue(&*store, QUEUE, true).await.unwrap();
    let (code, told) = said(failing);
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("failed") && told.contains("seriatim: ") && told.contains(QUEUE),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_interrupt_ends_a_command_whose_operation_cannot_be_stopped_without_its_store() {
    let mut server = Server::redis();
    let site = Site::new(&format!("[store]\nurl = \"{}\"\n", server.url()));
    let (mut command, store) = replaying_in(server.store().await, &site, "1/h").await;
    server.stop();
    drop(store);
    let interrupt = |command: &Serving| {
        kill(i32::try_from(command.0.id()).unwrap(), Signal::INT);
    };
    interrupt(&command);
    // It goes on, and says how it can be left.
    let mut lines = BufReader::new(command.0.stderr.take().unwrap()).lines();
    let first = lines.find_map(|line| line.ok().filter(|line| line.contains("Ctrl-C again")));
    assert!(first.unwrap().contains("cannot stop it"));
    interrupt(&command);
    assert_eq!(command.0.wait().unwrap().code(), Some(130));
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let last = rest.last().unwrap();
    assert!(last.contains("has not ended: a server of this store continues it"), "{rest:?}");
}

#[test]
fn one_pair_of_brackets_too_few_is_told() {
    for list in ["workers", "cron"] {
        let site = Site::new(&format!("[{list}]\nqueue = \"a\"\n"));
        let said = refused(&site.run(&["config", "check"]));
        assert!(said.contains("line 1") && said.contains(&format!("write [[{list}]]")), "{said}");
    }
}

#[test]
fn what_serve_would_refuse_is_no_valid_configuration_and_leaves_no_store() {
    let worker = "[[workers]]\nqueue = \"q\"\ncommand = [\"true\"]\n";
    let queue = "[queues.q]\nmode = \"parallel\"\n";
    let cron = "[[cron]]\nname = \"n\"\nschedule = \"0 3 * * *\"\nqueue = \"q\"\n";
    let webhook =
        "[[workers]]\nqueue = \"q\"\nbuiltin = \"http\"\nurl = \"https://example.org/\"\n";
    let periodic = |number: u32| {
        format!("[[periodic]]\nname = \"p{number}\"\ncommand = [\"true\"]\npause = \"1h\"\n")
    };
    for (config, why) in [
        (format!("{queue}{worker}{worker}"), "queue \"q\" has two without a task"),
        (format!("{queue}{worker}task = \"\"\n"), "task: is empty"),
        (format!("{queue}{worker}weight = 0\n"), "weight: must be 1 to 1000"),
        (format!("{queue}idempotency_ttl = \"1s\"\n{cron}"), "idempotency_ttl"),
        (format!("{queue}timeout = \"0\"\n"), "queues.q.timeout: must be more than zero"),
        (format!("{queue}lease = \"0\"\n"), "queues.q.lease: must be more than zero"),
        ((0..=100).map(periodic).collect(), "periodic: has 101: at most 100"),
        (format!("{queue}{webhook}"), "builtin = \"http\": the system has no certificate"),
    ] {
        let site = Site::new(&config);
        for command in [&["config", "check"][..], &["serve", "--no-http"]] {
            let mut command = site.command(command);
            // A system without certificate authorities.
            command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
            let said = refused(&command.output().unwrap());
            assert!(said.contains(why), "{command:?}: {said}");
        }
        assert!(!site.path("seriatim.db").exists(), "{why}");
    }
}

#[test]
fn an_audit_log_that_cannot_be_written_is_found_before_the_store_is_opened() {
    let site = Site::new("[http]\naudit_file = \"missing/audit.ndjson\"\n");
    let said = text(&site.run(&["serve", "--no-http"]));
    assert!(said.contains("http.audit_file: cannot write to missing/audit.ndjson"), "{said}");
    assert!(!site.path("seriatim.db").exists(), "{said}");
}

#[cfg(feature = "otlp")]
#[test]
fn settings_of_traces_that_serve_would_refuse_are_no_valid_configuration() {
    for command in [&["config", "check"][..], &["serve", "--no-http"]] {
        let site = Site::new("");
        let mut command = site.command(command);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        let output = command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").output().unwrap();
        assert!(refused(&output).contains("\"grpc\" is not supported"), "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_queue_that_cannot_become_what_the_configuration_says_is_called_by_its_name() {
    let config = "[queues.mails]\nmode = \"parallel\"\n[queues.orders]\nmode = \"fifo\"\n";
    let site = Site::new(config);
    let store = site.store().await;
    let client = Client::new(store.clone()).queues([Queue::parallel("orders")]);
    client.push(Job::new("orders", &1).unwrap()).await.unwrap();
    let output = site.run(&["serve", "--no-http"]);
    assert!(text(&output).contains("queues.orders.mode: "), "{}", text(&output));
    let engine = seriatim::Engine::builder(store)
        .queue(Queue::parallel("mails"))
        .queue(Queue::fifo("orders"));
    let error = engine.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.field(), Some("queues.orders.mode"));
}

#[test]
fn a_name_to_listen_on_is_looked_up_and_what_is_none_is_told() {
    for address in ["localhost:0", "[::1]:0", "127.0.0.1:0"] {
        let site = Site::new(&format!("[http]\nlisten = \"{address}\"\n"));
        let checked = site.run(&["config", "check"]);
        assert!(checked.status.success(), "{}", text(&checked));
        assert!(text(&checked).contains(address), "{}", text(&checked));
    }
    for (wrong, why) in [
        ("7117", "names no port"),
        ("localhost", "names no port"),
        ("localhost:http", "has \"http\" as port"),
        (":7117", "names no host"),
    ] {
        let site = Site::new("");
        let said = refused(&site.run(&["serve", "--listen", wrong]));
        let begin = format!("seriatim: --listen: {wrong:?} {why}");
        assert!(said.starts_with(&begin) && said.contains("localhost:7117"), "{said}");
    }
}

#[test]
fn n5_config_check_lists_periodic_programs_and_bridges() {
    let site = Site::new(
        "[queues.orders]\nmode = \"parallel\"\n\
         [[periodic]]\nname = \"cleaner\"\ncommand = [\"true\"]\npause = \"10m\"\n\
         [[bridges]]\nname = \"shop\"\nkind = \"sidekiq\"\nurl_env = \"SIDEKIQ_REDIS\"\nqueues = [\"orders\"]\n",
    );
    let check = |arguments: &[&str]| {
        let mut command = site.command(&[&["config", "check"], arguments].concat());
        command.env("SIDEKIQ_REDIS", "redis://localhost").output().unwrap()
    };
    let said = text(&check(&[]));
    for part in ["cleaner (true)", "shop"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shown: Value = serde_json::from_slice(&check(&["--json"]).stdout).unwrap();
    assert_eq!((&shown["periodic"], &shown["bridges"]), (&json!(["cleaner"]), &json!(["shop"])));
}

#[test]
fn config_check_says_what_serve_would_do_and_makes_nothing() {
    let site = Site::new(
        "[store]\nurl = \"postgres://me:sesame@nowhere/db\"\n[queues.orders]\nmode = \"fifo\"\n\
         [[workers]]\nqueue = \"orders\"\ncommand = [\"./sync\", \"x\"]\n\
         [[cron]]\nname = \"nightly\"\nschedule = \"0 3 * * *\"\nqueue = \"orders\"\nkey = \"k\"\n\
         [[cron]]\nname = \"hourly\"\nschedule = \"0 * * * *\"\nqueue = \"oders\"\n",
    );
    let said = site.run(&["config", "check"]);
    assert!(said.status.success(), "{}", text(&said));
    let said = text(&said);
    for part in [
        "seriatim.toml is valid",
        "postgres://nowhere/db",
        "orders (fifo)",
        "orders (./sync x)",
        "nightly",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("sesame"), "{said}");
    assert!(said.contains("warning: the ") && said.contains("cannot start: ./sync"), "{said}");
    let slip = "warning: cron \"hourly\" pushes to queue \"oders\", which has no [queues] entry (did you mean \"orders\"?)";
    assert!(said.contains(slip), "{said}");
    let misspelt =
        "[queues.orders]\nmode = \"fifo\"\n[[workers]]\nqueue = \"ordres\"\ncommand = [\"true\"]\n";
    std::fs::write(site.path("other.toml"), misspelt).unwrap();
    let wrong = site.run(&["config", "check", "--config", "other.toml"]);
    assert!(refused(&wrong).contains("(did you mean \"orders\"?)"), "{}", text(&wrong));
    let shown: Value =
        serde_json::from_slice(&site.run(&["config", "check", "--json"]).stdout).unwrap();
    assert_eq!(shown["queues"], json!([{ "queue": "orders", "mode": "fifo" }]));
    std::fs::write(site.path("other.toml"), "[node]\nheartbeat = \"30s\"\nlease = \"1m\"\n")
        .unwrap();
    let wrong = site.run(&["config", "check", "--config", "other.toml"]);
    assert!(refused(&wrong).contains("lease: is 1m"), "{}", text(&wrong));
    let mut open = site.command(&["config", "check"]);
    let open = open.env("SERIATIM_HTTP__LISTEN", "0.0.0.0:1").output().unwrap();
    assert!(refused(&open).contains("no token is configured"), "{}", text(&open));
    assert_eq!(std::fs::read_dir(site.folder.path()).unwrap().count(), 2, "two configurations");
}

#[test]
fn d11_e6_what_is_imported_from_dataloader_is_valid_once_the_token_is_set_that_it_asks_for() {
    let site = Site::new("");
    let variables = "APP_HOST=0.0.0.0\nAPP_PORT=8081\nDL_HEARTBEAT_SEC=30\n\
        WORKERS_JSON=[{\"queue\":\"etl.default\",\"concurrency\":2}]\n";
    std::fs::write(site.path(".env"), variables).unwrap();
    let made = site.run(&["import", "dataloader", ".env"]);
    let hints = String::from_utf8_lossy(&made.stderr);
    assert!(hints.contains("SERIATIM_TOKEN"), "{hints}");
    assert!(hints.contains("the lease is 90s instead of 60s"), "{hints}");
    std::fs::write(site.path("seriatim.toml"), &made.stdout).unwrap();
    let open = site.run(&["config", "check"]);
    assert!(refused(&open).contains("SERIATIM_TOKEN"), "{}", text(&open));
    let mut checked = site.command(&["config", "check"]);
    let checked = checked.env("SERIATIM_TOKEN", "sesame-sesame-sesame").output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
}

#[test]
fn the_manual_says_how_it_is_used_what_it_reads_and_how_it_ends() {
    let site = Site::new("");
    for arguments in [&["man"][..], &["man", "push"]] {
        let page = text(&site.run(arguments));
        let places = ["EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS"].map(|title| {
            page.find(&format!(".SH \"{title}\"")).unwrap_or_else(|| panic!("{title}"))
        });
        assert!(places.is_sorted(), "{page}");
        assert!(page.contains("SERIATIM_STORE") && page.contains("seriatim.toml"), "{page}");
    }
    let help = text(&site.run(&["push", "--help"]));
    assert!(help.contains("Examples:\n  seriatim push orders"), "{help}");
}

#[tokio::test]
async fn e6_the_log_goes_to_a_file_of_limited_size_if_the_configuration_names_one() {
    let site = Site::new("[log]\nfile = \"seriatim.log\"\nkeep = 2\n");
    let serving = site.serve("h");
    let logged = || std::fs::read_to_string(site.path("seriatim.log")).unwrap_or_default();
    eventually("it serves", async || logged().contains("serving")).await;
    serving.stop();
    assert!(logged().contains("stopped: "), "{}", logged());
    let stderr = std::fs::read_to_string(site.path("h.log")).unwrap();
    assert!(!stderr.contains("serving"), "{stderr}");
    for (config, says) in [
        ("[log]\nkeep = 2\n", "log.keep: write `file` too"),
        ("[log]\nfile = \"a\"\nbytes_max = 7\n", "log.bytes_max: 7 is too small"),
        ("[log]\nfile = \"a\"\nkeep = 0\n", "log.keep: 0 files"),
        ("[log]\nfile = \"no/such/folder/a\"\n", "log.file: cannot write to no/such/folder/a"),
    ] {
        let said = refused(&Site::new(config).run(&["serve", "--no-http"]));
        assert!(said.contains(says), "{config}: {said}");
    }
}

#[tokio::test]
async fn a_process_goes_on_with_the_history_that_a_killed_one_has_torn() {
    let site = Site::new(&format!(
        "[queues.{QUEUE}]\nmode = \"fifo\"\n[[workers]]\nqueue = \"{QUEUE}\"\ncommand = [\"true\"]\n"
    ));
    std::fs::write(site.path("one.ndjson"), "{\"type\":\"died\",\"at\":1,\"act").unwrap();
    let pushed = site.run(&["push", QUEUE, "1", "--key", "k"]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let (store, serving) = (site.store().await, site.serve("one.ndjson"));
    wait_until(&store, |stats| stats.processed == 1).await;
    serving.stop();
    let said = text(&site.run(&["check", "one.ndjson"]));
    assert!(said.contains("deliveries") && said.contains("no violation"), "{said}");
}
