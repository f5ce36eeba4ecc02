//! Triggers, sessions of the database's own client and programs in Ruby and Python insert tasks while nodes are killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use seriatim::store::{Declare, JobFilter, JobQuery, NoteQuery};
use seriatim::{Queue, SharedStore};

use super::Server;
use crate::site::{QUEUE, Serving, Site, eventually, text};

/// Rows of each table, which are updated again and again; each has a key.
const ROWS: u64 = 400;
/// How often each session updates each row. Every tenth update is rolled back besides.
const ROUNDS: u64 = 2;
/// Sessions that update rows with a trigger.
const BY_TRIGGER: u64 = 2;

/// Each change of a row becomes a job of the row's key with the row's new version, which counts its changes: in the order
/// of the commits.
const POSTGRES_TRIGGER: &str = "
CREATE FUNCTION order_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.inbox (queue, key, payload) VALUES ('orders', 'order-' || NEW.id, to_json(NEW.version));
  RETURN NEW;
END $$;
CREATE TRIGGER order_changed AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION order_changed();";
const MYSQL_TRIGGER: &str = "
CREATE TRIGGER order_changed AFTER UPDATE ON orders FOR EACH ROW
  INSERT INTO seriatim_inbox (queue, `key`, payload) VALUES ('orders', CONCAT('order-', NEW.id), NEW.version);";
const SQLITE_TRIGGER: &str = "
CREATE TRIGGER order_changed AFTER UPDATE ON orders BEGIN
  INSERT INTO seriatim_inbox (queue, key, payload) VALUES ('orders', 'order-' || NEW.id, NEW.version);
END;";

/// A program reads transactions, a line each, and gets the store's URL. Python speaks to PostgreSQL through `psql`.
const POSTGRES_RUBY: &str = r#"
require "pg"
connection = PG.connect(ARGV[0])
STDIN.each_line { |line| connection.exec(line) }
"#;
const POSTGRES_PYTHON: &str = r#"
import subprocess, sys
psql = ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", sys.argv[1]]
session = subprocess.Popen(psql, stdin=subprocess.PIPE, text=True, bufsize=1)
for line in sys.stdin:
    session.stdin.write(line)
session.stdin.close()
sys.exit(session.wait())
"#;
const MYSQL_PYTHON: &str = r#"
import pymysql, sys, urllib.parse
url = urllib.parse.urlparse(sys.argv[1])
connection = pymysql.connect(host=url.hostname, port=url.port, user=url.username, database=url.path[1:])
for line in sys.stdin:
    for statement in line.split(";")[:-1]:
        connection.cursor().execute(statement)
"#;
const SQLITE_PYTHON: &str = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1].removeprefix("sqlite:"), timeout=60, isolation_level=None)
for line in sys.stdin:
    connection.executescript(line)
"#;

/// What differs between the databases.
struct Dialect {
    trigger: &'static str,
    inbox: &'static str,
    key: &'static str,
    leader: &'static str,
    /// Programs that insert the jobs themselves, beside the database's client.
    programs: &'static [[&'static str; 3]],
}

impl Dialect {
    fn of(server: &Server) -> Self {
        match server {
            Server::Postgres(_) => Self {
                trigger: POSTGRES_TRIGGER,
                inbox: "seriatim.inbox",
                key: "key",
                leader: "seriatim.leader",
                programs: &[["ruby", "-e", POSTGRES_RUBY], ["python3", "-c", POSTGRES_PYTHON]],
            },
            Server::Mysql(_) => Self {
                trigger: MYSQL_TRIGGER,
                inbox: "seriatim_inbox",
                key: "`key`",
                leader: "seriatim_leader",
                // The one that has the packages of the system.
                programs: &[["/usr/bin/python3", "-c", MYSQL_PYTHON]],
            },
            Server::Sqlite(_) => Self {
                trigger: SQLITE_TRIGGER,
                inbox: "seriatim_inbox",
                key: "key",
                leader: "leader",
                programs: &[["python3", "-c", SQLITE_PYTHON]],
            },
            Server::Redis(_) => panic!("it has no inbox"),
        }
    }
}

/// The sessions of a database, which all change the same rows.
struct Sessions<'a> {
    server: &'a Server,
    dialect: Dialect,
    site: &'a Site,
}

impl Sessions<'_> {
    /// The tables whose changes become jobs.
    fn prepare(&self) {
        let rows: Vec<String> = (1..=ROWS).map(|id| format!("({id}, 0)")).collect();
        let tables = ["orders", "mails"].map(|table| {
            format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, version int NOT NULL);\n\
                 INSERT INTO {table} VALUES {};\n",
                rows.join(", ")
            )
        });
        self.server.sql(&(tables.concat() + self.dialect.trigger));
    }

    /// Those that insert the jobs themselves.
    fn direct(&self) -> u64 {
        1 + self.dialect.programs.len() as u64
    }

    fn jobs(&self) -> u64 {
        ROWS * (BY_TRIGGER + self.direct()) * ROUNDS
    }

    fn start(&self) -> Vec<Child> {
        let client = || self.server.client();
        let program = |words: &[&str; 3]| {
            let mut program = Command::new(words[0]);
            program.args(&words[1..]).arg(self.server.url());
            program
        };
        let direct = [client()].into_iter().chain(self.dialect.programs.iter().map(program));
        let mut all: Vec<Child> = (0..BY_TRIGGER)
            .map(|number| self.session(client(), &updates(number, by_trigger)))
            .collect();
        for (program, number) in direct.zip(BY_TRIGGER..) {
            all.push(self.session(program, &updates(number, |id| self.update_and_insert(id))));
        }
        all
    }

    /// Runs transactions by this program.
    fn session(&self, mut program: Command, transactions: &str) -> Child {
        let path = self.site.path(&format!("{}.sql", fastrand::u64(..)));
        fs::write(&path, transactions).unwrap();
        program.stdin(File::open(path).unwrap()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn update_and_insert(&self, id: u64) -> String {
        let Dialect { inbox, key, .. } = self.dialect;
        format!(
            "UPDATE mails SET version = version + 1 WHERE id = {id}; \
             INSERT INTO {inbox} (queue, {key}, payload) \
             SELECT '{QUEUE}', 'mail-{id}', version FROM mails WHERE id = {id}"
        )
    }

    /// The process that drains the inbox.
    async fn leader(&self, store: &SharedStore) -> Option<u32> {
        let sql = format!("SELECT node FROM {} WHERE role = 'inbox'", self.dialect.leader);
        let node = self.server.sql(&sql);
        let nodes = store.nodes().await.unwrap();
        nodes.iter().find(|one| &*one.info.id.0 == node.trim()).map(|one| one.info.pid)
    }

    /// Each key has each version once, in the order of the commits.
    fn judge(&self, pushed: &[(String, u64)]) {
        let mut next = BTreeMap::<&str, u64>::new();
        for (key, version) in pushed {
            let next = next.entry(key).or_insert(1);
            assert_eq!(version, next, "{key}: each version once, in the order of the commits");
            *next += 1;
        }
        assert_eq!(next.len() as u64, 2 * ROWS);
        for (key, next) in next {
            let sessions = if key.starts_with("mail-") { self.direct() } else { BY_TRIGGER };
            assert_eq!(next, sessions * ROUNDS + 1, "{key}: none is lost");
        }
    }
}

/// Updates every row, each in a transaction of its own, in an order of its own.
fn updates(session: u64, update: impl Fn(u64) -> String) -> String {
    let mut script = String::new();
    for place in 0..ROWS * ROUNDS {
        let update = update((place * 7 + session * 251) % ROWS + 1);
        if place % 10 == 0 {
            script += &format!("BEGIN; {update}; ROLLBACK;\n");
        }
        script += &format!("BEGIN; {update}; COMMIT;\n");
    }
    script
}

fn by_trigger(id: u64) -> String {
    format!("UPDATE orders SET version = version + 1 WHERE id = {id}")
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

/// Whatever is inserted becomes a job once, in the order of the commits, while the nodes that push it are killed.
async fn each_row_is_pushed_once_in_order_while_nodes_are_killed(server: Server) {
    let url = server.url();
    let store = server.store().await;
    let queues = vec![Queue::fifo(QUEUE)];
    store.declare(Declare { now: None, queues }).await.unwrap();
    let site = Site::new(&format!("[store]\nurl = \"{url}\"\n[queues.{QUEUE}]\nmode = \"fifo\"\n"));
    let sessions = Sessions { server: &server, dialect: Dialect::of(&server), site: &site };
    sessions.prepare();
    let mut nodes: Vec<Serving> = (0..3).map(|n| site.serve(&format!("node-{n}"))).collect();
    let mut running = sessions.start();
    for (kills, least) in [(1, 200), (2, sessions.jobs() / 3)] {
        eventually("some rows are pushed", async || jobs(&store).await >= least).await;
        let leads = sessions.leader(&store).await;
        let place = nodes.iter().position(|node| Some(node.0.id()) == leads).unwrap_or(0);
        nodes.remove(place).kill();
        nodes.push(site.serve(&format!("node-{}", kills + 2)));
    }
    for session in &mut running {
        assert!(session.wait().unwrap().success());
    }
    eventually("all rows are pushed", async || {
        store.inbox().await.unwrap().waits_since.is_none() && jobs(&store).await >= sessions.jobs()
    })
    .await;
    nodes.into_iter().for_each(Serving::stop);
    sessions.judge(&pushed(&store).await);
    assert_eq!(store.inbox().await.unwrap().refused, []);
}

#[tokio::test]
async fn n2_what_triggers_and_programs_insert_is_neither_lost_nor_doubled_nor_inverted_while_nodes_are_killed()
 {
    each_row_is_pushed_once_in_order_while_nodes_are_killed(Server::postgres()).await;
}

#[tokio::test]
async fn n2_what_is_inserted_in_mysql_is_neither_lost_nor_doubled_nor_inverted_while_nodes_are_killed()
 {
    each_row_is_pushed_once_in_order_while_nodes_are_killed(Server::mysql()).await;
}

#[tokio::test]
async fn n2_what_is_inserted_in_sqlite_is_neither_lost_nor_doubled_nor_inverted_while_nodes_are_killed()
 {
    each_row_is_pushed_once_in_order_while_nodes_are_killed(Server::sqlite()).await;
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
    server.sql(&sql);
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
