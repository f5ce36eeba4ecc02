//! Triggers, `psql` sessions and programs in Ruby and Python insert tasks while nodes are killed.

use std::fs;
use std::process::{Child, Command, Stdio};

use seriatim::store::{Declare, JobFilter, JobQuery, NoteQuery};
use seriatim::{Queue, SharedStore};

use super::Server;
use crate::site::{QUEUE, Serving, Site, eventually, text};

/// Rows of each table, which are updated again and again; each has a key.
const ROWS: u64 = 1_000;
/// Those that update rows with a trigger, and those that insert the jobs themselves.
const BY_TRIGGER: u64 = 2;
const DIRECT: u64 = 3;
/// How often each session updates each row. Every tenth update is rolled back besides.
const ROUNDS: u64 = 2;
const JOBS: u64 = ROWS * (BY_TRIGGER + DIRECT) * ROUNDS;

/// Each change of a row becomes a job of the row's key with the row's new version, which counts its changes: in the order
/// of the commits.
const TRIGGER: &str = "
CREATE TABLE orders (id int PRIMARY KEY, version int NOT NULL);
INSERT INTO orders SELECT id, 0 FROM generate_series(1, 1000) id;
CREATE TABLE mails AS SELECT * FROM orders;
ALTER TABLE mails ADD PRIMARY KEY (id);
CREATE FUNCTION order_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.inbox (queue, key, payload) VALUES ('orders', 'order-' || NEW.id, to_json(NEW.version));
  RETURN NEW;
END $$;
CREATE TRIGGER order_changed AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION order_changed();";

/// A program's script gets a file with statements, a line each, and the store's URL.
const RUBY: &str = r#"
require "pg"
connection = PG.connect(ARGV[1])
File.foreach(ARGV[0]) { |line| connection.exec(line) }
"#;
const PYTHON: &str = r#"
import subprocess, sys
psql = ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", sys.argv[2]]
session = subprocess.Popen(psql, stdin=subprocess.PIPE, text=True, bufsize=1)
with open(sys.argv[1]) as lines:
    for line in lines:
        session.stdin.write(line)
session.stdin.close()
sys.exit(session.wait())
"#;

/// Runs statements by this program.
fn session(site: &Site, url: &str, program: &[&str], statements: &str) -> Child {
    let file = site.path(&format!("{}.sql", fastrand::u64(..)));
    fs::write(&file, statements).unwrap();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(file).arg(url);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// Updates every row, each in a transaction of its own, in an order of its own.
fn updates(session: u64, update: impl Fn(u64) -> String) -> String {
    let mut script = String::new();
    for place in 0..ROWS * ROUNDS {
        let update = update((place * 7 + session * 251) % ROWS + 1);
        if place % 10 == 0 {
            script += &format!("BEGIN; {update}; ROLLBACK;\n");
        }
        script += &format!("{update};\n");
    }
    script
}

fn by_trigger(id: u64) -> String {
    format!("UPDATE orders SET version = version + 1 WHERE id = {id}")
}

fn direct(id: u64) -> String {
    format!(
        "WITH changed AS (UPDATE mails SET version = version + 1 WHERE id = {id} RETURNING *) \
         INSERT INTO seriatim.inbox (queue, key, payload) \
         SELECT 'orders', 'mail-' || id, to_json(version) FROM changed"
    )
}

/// All that insert: in `psql` both ways, and in other languages themselves.
fn sessions(site: &Site, url: &str) -> Vec<Child> {
    let psql = ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file"];
    let mut all: Vec<Child> = (0..BY_TRIGGER)
        .map(|number| session(site, url, &psql, &updates(number, by_trigger)))
        .collect();
    let programs: [&[&str]; DIRECT as usize] =
        [&psql, &["ruby", "-e", RUBY], &["python3", "-c", PYTHON]];
    for (program, number) in programs.iter().zip(BY_TRIGGER..) {
        all.push(session(site, url, program, &updates(number, direct)));
    }
    all
}

fn postgres(server: &Server) -> &seriatim_testkit::Postgres {
    match server {
        Server::Postgres(server) => server,
        _ => panic!("it is PostgreSQL"),
    }
}

/// The process that drains the inbox.
fn leader(server: &Server) -> Option<u32> {
    let sql = "SELECT n.pid FROM seriatim.leader l JOIN seriatim.nodes n ON n.node = l.node WHERE l.role = 'inbox'";
    postgres(server).query(sql).unwrap().trim().parse().ok()
}

async fn jobs(store: &SharedStore) -> u64 {
    store.stats(None).await.unwrap().iter().map(|stats| stats.jobs).sum()
}

/// All jobs, in the order in which they were pushed.
async fn pushed(store: &SharedStore) -> Vec<(String, u64)> {
    let (mut all, mut query) = (Vec::new(), JobQuery::new(QUEUE, JobFilter::Live));
    loop {
        let page = store.jobs(query.clone()).await.unwrap();
        let job = |job: &seriatim::store::JobView| {
            (job.key.as_deref().unwrap().to_owned(), job.payload.decode().unwrap())
        };
        all.extend(page.rows.iter().map(job));
        if page.next.is_none() {
            return all;
        }
        query.after = page.next;
    }
}

#[tokio::test]
async fn n2_what_triggers_and_programs_insert_is_neither_lost_nor_doubled_nor_inverted_while_nodes_are_killed()
 {
    let server = Server::postgres();
    let url = server.url();
    let store = seriatim::connect(&url).await.unwrap();
    let queues = vec![Queue::fifo(QUEUE)];
    store.declare(Declare { now: None, queues }).await.unwrap();
    postgres(&server).query(TRIGGER).unwrap();
    let site = Site::new(&format!("[store]\nurl = \"{url}\"\n[queues.{QUEUE}]\nmode = \"fifo\"\n"));
    let mut nodes: Vec<Serving> = (0..3).map(|n| site.serve(&format!("node-{n}"))).collect();
    let mut sessions = sessions(&site, &url);
    for (kills, least) in [(1, 200), (2, JOBS / 3)] {
        eventually("some rows are pushed", async || jobs(&store).await >= least).await;
        let leads = leader(&server);
        let place = nodes.iter().position(|node| Some(node.0.id()) == leads).unwrap_or(0);
        nodes.remove(place).kill();
        nodes.push(site.serve(&format!("node-{}", kills + 2)));
    }
    for session in &mut sessions {
        assert!(session.wait().unwrap().success());
    }
    eventually("all rows are pushed", async || {
        store.inbox().await.unwrap().waits_since.is_none() && jobs(&store).await >= JOBS
    })
    .await;
    nodes.into_iter().for_each(Serving::stop);
    let mut next = std::collections::BTreeMap::<String, u64>::new();
    for (key, version) in pushed(&store).await {
        let next = next.entry(key.clone()).or_insert(1);
        assert_eq!(version, *next, "{key}: each version once, in the order of the commits");
        *next += 1;
    }
    assert_eq!(next.len() as u64, 2 * ROWS);
    for (key, next) in &next {
        let sessions = if key.starts_with("mail-") { DIRECT } else { BY_TRIGGER };
        assert_eq!(*next, sessions * ROUNDS + 1, "{key}: none is lost");
    }
    assert_eq!(store.inbox().await.unwrap().refused, []);
}

#[tokio::test]
async fn people_hear_of_refused_rows_and_the_audit_log_has_what_sql_asked_for() {
    let server = Server::postgres();
    let url = server.url();
    let store = seriatim::connect(&url).await.unwrap();
    let job = seriatim::Job::new(QUEUE, &1).unwrap().key("order-1");
    let pushed = seriatim::Client::new(store.clone()).push(job).await.unwrap().job_id;
    let config = format!("[store]\nurl = \"{url}\"\n[http]\naudit_file = \"audit.log\"\n");
    let site = Site::new(&config);
    let node = site.serve("node");
    let sql = format!(
        "INSERT INTO seriatim.inbox (queue, key, payload) VALUES ('{QUEUE}', 'order-2', '{{'); \
         INSERT INTO seriatim.inbox (action, job_id, node) VALUES ('reassign', '{pushed}', 'blue'); \
         INSERT INTO seriatim.inbox (action, job_id) VALUES ('cancel', '{pushed}'), ('cancel', '{pushed}')"
    );
    postgres(&server).query(&sql).unwrap();
    eventually("all rows are done", async || {
        let inbox = store.inbox().await.unwrap();
        inbox.waits_since.is_none() && inbox.refused.len() == 2
    })
    .await;
    node.stop();
    let doctor = text(&site.run(&["doctor"]));
    for part in ["2 rows refused", "row 4: nothing changed: the job has ended"] {
        assert!(doctor.contains(part), "{doctor}");
    }
    let kept = store.read_notes(NoteQuery::of("audit/")).await.unwrap();
    let kept: Vec<_> = kept.iter().map(|note| String::from_utf8_lossy(&note.value)).collect();
    let file = fs::read_to_string(site.path("audit.log")).unwrap();
    for part in ["job reassign", "job cancel", "row 2 of the inbox", "\"node\":\"blue\""] {
        let told = |lines: &str| lines.contains(part) && lines.contains("\"who\":\"sql\"");
        assert!(kept.iter().any(|deed| told(deed)), "{part}: {kept:?}");
        assert!(file.lines().any(told), "{part}: {file}");
    }
    assert!(kept.iter().any(|deed| deed.contains("\"status\":409")), "{kept:?}");
}
