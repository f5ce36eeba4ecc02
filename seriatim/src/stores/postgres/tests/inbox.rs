//! What people do with SQL: the inbox and the views.

use async_trait::async_trait;
use tokio_postgres::SimpleQueryMessage;

use super::*;
use crate::contract::{DrainInbox, Drained, EndedDeed, Inbox, SharedStore};
use crate::stores::sql_session::Database;
use crate::stores::{inbox, sql_views};

/// A separate schema.
#[derive(Clone)]
struct Schema(String);

#[async_trait]
impl Database for Schema {
    async fn open(&self) -> SharedStore {
        open(&self.0).await
    }

    async fn run(&self, sql: &str, commits: bool) {
        let session = session().await;
        let sql = self.sql(sql);
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        session.batch_execute(&format!("SET timezone = 'UTC'; BEGIN; {sql}; {end}")).await.unwrap();
    }

    async fn rows(&self, sql: &str) -> (Vec<String>, Vec<Vec<Option<String>>>) {
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for message in session().await.simple_query(&self.sql(sql)).await.unwrap() {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    names = columns.iter().map(|column| column.name().to_owned()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
                }
                _ => {}
            }
        }
        (names, rows)
    }

    fn micros(&self, column: &str) -> String {
        format!("(extract(epoch FROM {column}) * 1000000)::bigint")
    }

    fn numbering(&self) -> &'static str {
        "OVERRIDING SYSTEM VALUE"
    }
}

impl Schema {
    fn sql(&self, sql: &str) -> String {
        sql.replace("@key", "key").replace('@', &format!("{}.", self.0))
    }
}

async fn drained(store: &Postgres) -> Drained {
    store.drain_inbox(DrainInbox { rows_max: 1_000, ..Default::default() }).await.unwrap()
}

inbox::tests::cases!(Schema(new_schema()));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_an_earlier_version_are_pushed_after_the_upgrade() {
    let before = "ALTER TABLE @inbox DROP COLUMN max_retries, DROP COLUMN key_group; DROP TABLE @sleeper; UPDATE @meta SET version = 39";
    let case = inbox::tests::rows_of_an_earlier_version_are_pushed_after_the_upgrade;
    case(Schema(new_schema()), before).await;
}

#[tokio::test]
async fn a_row_that_commits_late_is_not_lost_and_follows_those_before_it() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    let insert = |number: u32| {
        schema
            .sql(&format!("INSERT INTO @inbox (queue, key, payload) VALUES ('q', 'k', '{number}')"))
    };
    let (late, soon) = (session().await, session().await);
    late.batch_execute(&format!("BEGIN; {}", insert(1))).await.unwrap();
    soon.batch_execute(&insert(2)).await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 2, "it does not wait for others");
    late.batch_execute("COMMIT").await.unwrap();
    soon.batch_execute(&insert(3)).await.unwrap();
    let rest: Vec<_> =
        drained(&store).await.jobs.iter().map(|job| job.payload.to_value()).collect();
    assert_eq!(rest, [1, 3], "in the order of the commits");
}

#[tokio::test]
async fn who_may_insert_needs_no_other_right() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    assert!(drained(&store).await.pushed.is_empty(), "the next insert sends a NOTIFY");
    let sql = schema.sql("INSERT INTO @inbox (queue, key, payload) VALUES ('q', 'k', '1')");
    let (name, role) = (&schema.0, format!("{}_app", schema.0));
    let session = session().await;
    let grants = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {name} TO {role}; GRANT INSERT ON {name}.inbox TO {role}; \
         SET ROLE {role}; {sql}; RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"
    );
    session.batch_execute(&grants).await.unwrap();
    assert_eq!(drained(&store).await.pushed.len(), 1);
}

#[tokio::test]
async fn a_row_that_a_transaction_has_locked_is_passed_by() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    let two = schema
        .sql("INSERT INTO @inbox (queue, key, payload) VALUES ('q', 'a', '1'), ('q', 'b', '2')");
    let session = session().await;
    session.batch_execute(&two).await.unwrap();
    let locked = schema.sql("BEGIN; DELETE FROM @inbox WHERE key = 'a'");
    session.batch_execute(&locked).await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 2);
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 1);
}

/// Otherwise it would keep all nodes from draining, and its session, idle for the pool, the next call of this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_nobody_waits_for_any_more_ends_on_the_server_too() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    push(&store, vec![job("k", 1)]).await;
    schema.run("INSERT INTO @inbox (queue, key, payload) VALUES ('q', 'k', '2')", true).await;
    let holder = session().await;
    holder.batch_execute(&schema.sql("BEGIN; SELECT FROM @lane FOR UPDATE")).await.unwrap();
    let mark = if url().contains('?') { '&' } else { '?' };
    let hasty = format!("{}{mark}schema={}&connections=1&call_timeout=500ms", url(), schema.0);
    let hasty = Postgres::connect(&hasty).await.unwrap();
    let request = DrainInbox { rows_max: 10, ..Default::default() };
    let error = hasty.drain_inbox(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let (watcher, alone) =
        (session().await, schema.sql("SELECT pg_try_advisory_xact_lock(hashtext('inbox @'))"));
    let others_may = async {
        while !watcher.query_one(&alone, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, others_may).await.expect("it holds up no other node");
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 2, "nothing of it has happened");
}

/// It may be that of a step that was given up, until the server has ended it.
#[tokio::test]
async fn the_answer_to_a_deed_is_kept_while_another_session_drains() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    push(&store, vec![job("k", 1)]).await;
    let cancel = "INSERT INTO @inbox (action, job_id) SELECT 'cancel', job_id FROM @jobs";
    schema.run(cancel, true).await;
    let deed = drained(&store).await.deeds.remove(0);
    let (other, drains) = (session().await, schema.sql("hashtext('inbox @')"));
    other.batch_execute(&format!("SELECT pg_advisory_lock({drains})")).await.unwrap();
    let ended = vec![EndedDeed { row: deed.row, refused: None }];
    let request = DrainInbox { rows_max: 10, ended, ..Default::default() };
    assert!(!store.drain_inbox(request).await.unwrap().more);
    other.batch_execute(&format!("SELECT pg_advisory_unlock({drains})")).await.unwrap();
    assert!(drained(&store).await.deeds.is_empty(), "it would be carried out again, in vain");
}

#[tokio::test]
async fn inserts_notify_only_while_nodes_wait() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    let notify = async || {
        let sql = format!("SELECT count(*) FROM {}.inbox_asleep", schema.0);
        session().await.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 1
    };
    assert!(!notify().await);
    drained(&store).await;
    assert!(notify().await, "there was nothing");
    schema.run("INSERT INTO @inbox (queue, key) VALUES ('q', 'k')", true).await;
    drained(&store).await;
    assert!(!notify().await, "the node looks again soon");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_the_views_show_every_job_lane_and_node_as_the_store_does() {
    sql_views::the_views_show_every_job_lane_and_node_as_the_store_does(Schema(new_schema())).await;
}

#[tokio::test]
async fn every_example_of_the_page_runs() {
    let schema = Schema(new_schema());
    let store = open(&schema.0).await;
    let (name, role) = (&schema.0, format!("{}_app", schema.0));
    let mut session = session().await;
    let before = format!(
        "CREATE ROLE {role}; SET search_path = {name}; CREATE TABLE orders (id int PRIMARY KEY, status text)"
    );
    session.batch_execute(&before).await.unwrap();
    let page = include_str!("../../../../../docs/sql.md");
    let examples = page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for example in examples {
        let sql = example.replace("seriatim", name).replace("TO app", &format!("TO {role}"));
        session.batch_execute(&sql).await.unwrap_or_else(|e| panic!("{sql}\n{e:?}"));
        count += 1;
    }
    assert!(count >= 6, "{count}");
    session.batch_execute("INSERT INTO orders VALUES (42, 'new')").await.unwrap();
    let both: Vec<_> = drained(&store).await.jobs.iter().map(|job| job.key.clone()).collect();
    assert_eq!(both, [Some("order-42".to_owned()), Some("order-42".to_owned())]);
    let after = session.transaction().await.unwrap();
    after.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
    after.commit().await.unwrap();
}
