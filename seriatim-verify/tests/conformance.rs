//! Every store against the one suite. Each case is a test of its own: `memory::a_busy_key_…`.

#[cfg(feature = "redis")]
mod full;

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use seriatim::{SharedStore, store::Memory};
use seriatim_verify::conformance::{Case, SEQUENCES, cases};

type Fresh = Pin<Box<dyn Future<Output = SharedStore>>>;

fn suite(store: &'static str, fresh: fn() -> Fresh) -> Vec<Trial> {
    suite_with(0..SEQUENCES, store, fresh)
}

/// The suite with some of the random sequences.
fn suite_with(sequences: Range<u64>, store: &'static str, fresh: fn() -> Fresh) -> Vec<Trial> {
    let trial = |case: Case| {
        let case = case.with_sequences(sequences.clone());
        Trial::test(format!("{store}::{}", case.name), move || {
            case.run(&fresh);
            Ok(())
        })
    };
    cases().into_iter().map(trial).collect()
}

/// The cases expect less of a store that says that it cannot do something, or lacks a figure: none says so unnoticed.
fn can_all_but(lacking: &'static [&'static str], store: &str, fresh: fn() -> Fresh) -> Trial {
    Trial::test(format!("{store}::it_can_do_what_it_could"), move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (said, is_certain, vitals) = runtime.block_on(async {
            let store = fresh().await;
            store.migrate().await.expect("the store migrates");
            let vitals = store.vitals().await.expect("the store answers");
            (store.capabilities(), store.wakeups().are_certain(), vitals)
        });
        let said = serde_json::to_value(said)?;
        let said = said.as_object().expect("its fields").iter();
        let mut cannot: BTreeSet<&str> =
            said.filter(|(_, can)| can.as_bool() == Some(false)).map(|(name, _)| &**name).collect();
        cannot.extend((!is_certain).then_some("certain wake-ups"));
        cannot.extend(vitals.bytes.is_none().then_some("bytes"));
        cannot.extend(vitals.connections.is_none().then_some("connections"));
        cannot.extend(vitals.operations.is_none().then_some("operations"));
        let lacking: BTreeSet<&str> = lacking.iter().copied().collect();
        assert_eq!(cannot, lacking);
        Ok(())
    })
}

fn memory() -> Fresh {
    Box::pin(async { Arc::new(Memory::new()) as SharedStore })
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Fresh {
    Box::pin(async {
        // Below the target folder, so that nothing is left in the system's.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder").keep();
        let store = seriatim::store::Sqlite::open(folder.join("test.db")).expect("it opens");
        Arc::new(store) as SharedStore
    })
}

/// A name that no other case has, whichever process runs it.
#[cfg(any(feature = "mysql", feature = "redis"))]
fn fresh_name(kind: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, case) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let micros = seriatim::Timestamp::of_this_machine().as_micros();
    format!("{kind}_{micros}_{process}_{case}")
}

/// A schema that no other case uses as long as this process lives, without data. One takes longer to create than most
/// cases take, so those of earlier cases are used again: those that this very program created.
#[cfg(feature = "postgres")]
async fn empty_schema(url: &str, kind: &str) -> String {
    let program = std::env::current_exe().and_then(|program| program.metadata()?.modified());
    let built_at = program.expect("a program").duration_since(std::time::UNIX_EPOCH);
    let built_at = built_at.expect("a time").as_micros();
    let server = seriatim::store::Postgres::connect(url).await.expect("the server can be reached");
    let session = server.session().await.expect("a session");
    let mut schema = String::new();
    for place in 0.. {
        schema = format!("{kind}_{built_at}_{place}");
        let lock = format!("SELECT pg_try_advisory_lock(hashtext('{schema}'))");
        let rows = session.query_typed(&lock, &[]).await.expect("an answer");
        if rows[0].get(0) {
            break;
        }
    }
    // Deleting the rows of a case takes a tenth of the time that truncating all tables takes.
    let empty = format!(
        "DO $$
        DECLARE _table regclass;
        BEGIN
          FOR _table IN SELECT oid FROM pg_class
            WHERE relnamespace = to_regnamespace('{schema}') AND relkind = 'r' AND relname <> 'meta'
          LOOP
            EXECUTE 'DELETE FROM ' || _table;
          END LOOP;
          IF _table IS NOT NULL THEN
            ALTER SEQUENCE {schema}.seq RESTART;
            ALTER SEQUENCE {schema}.token RESTART;
          END IF;
        END $$"
    );
    session.batch_execute(&empty).await.expect("an empty schema");
    // The lock is this session's, which ends with the case.
    std::mem::forget(session);
    schema
}

/// In the database that the variable names.
#[cfg(feature = "postgres")]
fn postgres() -> Fresh {
    Box::pin(async {
        let url = std::env::var("SERIATIM_TEST_POSTGRES").expect(
            "SERIATIM_TEST_POSTGRES names no server: run cargo xtask test, which starts the servers",
        );
        let schema = empty_schema(&url, "case").await;
        let store = seriatim::store::Postgres::connect_in(&url, &schema).await;
        Arc::new(store.expect("the server can be reached")) as SharedStore
    })
}

/// The same in a database where texts are not sorted by their bytes, through a pooler that hands each transaction to any of
/// its connections.
#[cfg(feature = "postgres")]
fn pgbouncer_icu() -> Fresh {
    const DATABASE: &str = "seriatim_conformance_icu";
    Box::pin(async {
        let url = seriatim_testkit::postgres_url().expect("a server");
        let server = seriatim::store::Postgres::connect(&url).await.expect("a server");
        let session = server.session().await.expect("a session");
        let exists = format!("SELECT FROM pg_database WHERE datname = '{DATABASE}'");
        let create = format!(
            "CREATE DATABASE {DATABASE} LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0 ENCODING 'UTF8'"
        );
        while session.query_typed(&exists, &[]).await.expect("an answer").is_empty() {
            // Another case may create it now.
            if let Err(error) = session.batch_execute(&create).await {
                let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
                assert!(["55006", "42P04", "23505"].contains(&&*code), "{error:?}");
            }
        }
        let (base, _) = url.rsplit_once('/').expect("the address ends with a database");
        let schema = empty_schema(&format!("{base}/{DATABASE}"), "pooled").await;
        let bouncer = seriatim_testkit::pgbouncer_port().expect("PgBouncer starts");
        let behind = seriatim_testkit::postgres_port().expect("a port");
        let url = format!(
            "postgres://postgres@127.0.0.1:{bouncer}/{DATABASE}?schema={schema}&listen=127.0.0.1:{behind}"
        );
        let store = seriatim::store::Postgres::connect(&url).await;
        Arc::new(store.expect("the pooler can be reached")) as SharedStore
    })
}

/// A new database for each case, on the server that the variable names.
#[cfg(feature = "mysql")]
fn mysql() -> Fresh {
    use mysql_async::prelude::Queryable;
    Box::pin(async {
        let url = std::env::var("SERIATIM_TEST_MYSQL").expect(
            "SERIATIM_TEST_MYSQL names no server: run cargo xtask test, which starts the servers",
        );
        let database = fresh_name("case");
        let server =
            seriatim::store::Mysql::connect(&url).await.expect("the server can be reached");
        let create =
            format!("CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
        let mut session = server.session().await.expect("a connection");
        session.query_drop(create).await.expect("a database");
        let (server, _) = url.rsplit_once('/').expect("the address ends with a database");
        let store = seriatim::store::Mysql::connect(&format!("{server}/{database}")).await;
        Arc::new(store.expect("the server can be reached")) as SharedStore
    })
}

/// A new prefix for each case, on the server that the variable names.
#[cfg(feature = "redis")]
async fn redis_at(variable: &str) -> SharedStore {
    let url = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} names no server: run cargo xtask test, which starts the servers")
    });
    let store = seriatim::store::Redis::connect_in(&url, &fresh_name("case")).await;
    Arc::new(store.expect("the server can be reached"))
}

#[cfg(feature = "redis")]
fn redis() -> Fresh {
    Box::pin(redis_at("SERIATIM_TEST_REDIS"))
}

#[cfg(feature = "redis")]
fn redis_cluster() -> Fresh {
    Box::pin(redis_at("SERIATIM_TEST_REDIS_CLUSTER"))
}

/// The same on a server of its own whose memory is full: see `full/mod.rs`.
#[cfg(feature = "redis")]
fn redis_full() -> Fresh {
    Box::pin(async {
        let server = seriatim_testkit::Redis::start().expect("Redis starts");
        let store = seriatim::store::Redis::connect(&server.url()).await;
        full::Full::around(Arc::new(store.expect("the server can be reached")), server)
    })
}

#[cfg(feature = "redis")]
fn is_random(trial: &Trial) -> bool {
    trial.name().contains("random_")
}

/// Cases of as many jobs or bytes as there may be.
#[cfg(feature = "postgres")]
fn is_large(trial: &Trial) -> bool {
    let marks = ["_of_most_jobs", "_as_many_priorities", "_at_large_payloads"];
    marks.iter().any(|mark| trial.name().contains(mark))
}

fn main() {
    let mut trials = Vec::new();
    trials.extend(suite("memory", memory));
    #[cfg(feature = "sqlite")]
    trials.extend(suite("sqlite", sqlite));
    // Some of the random sequences run directly, the other ones through the pooler. For large turns only the connection
    // differs.
    #[cfg(feature = "postgres")]
    trials.extend(suite_with(1..SEQUENCES, "postgres", postgres));
    #[cfg(feature = "postgres")]
    trials.extend(
        suite_with(0..1, "pgbouncer_icu", pgbouncer_icu)
            .into_iter()
            .filter(|trial| !is_large(trial)),
    );
    #[cfg(feature = "mysql")]
    trials.extend(suite("mysql", mysql));
    // Random sequences run on a cluster and on a full server: on a single one with free memory they would be the same again.
    #[cfg(feature = "redis")]
    trials.extend(suite("redis", redis).into_iter().filter(|trial| !is_random(trial)));
    #[cfg(feature = "redis")]
    trials.extend(suite("redis_cluster", redis_cluster));
    // A full server has more than its limit, so the case of its figures is left out.
    #[cfg(feature = "redis")]
    trials.extend(
        suite("redis_full", redis_full)
            .into_iter()
            .filter(|trial| !trial.name().contains("e1_the_server")),
    );
    trials.push(can_all_but(
        &["bytes", "certain wake-ups", "connections", "inbox", "operations", "shared"],
        "memory",
        memory,
    ));
    #[cfg(feature = "sqlite")]
    trials.push(can_all_but(&["connections", "operations"], "sqlite", sqlite));
    #[cfg(feature = "postgres")]
    trials.push(can_all_but(&["certain wake-ups"], "postgres", postgres));
    #[cfg(feature = "mysql")]
    trials.push(can_all_but(&["batches", "certain wake-ups", "series"], "mysql", mysql));
    #[cfg(feature = "redis")]
    trials.push(can_all_but(
        &["batches", "certain wake-ups", "finished_by_time", "inbox"],
        "redis",
        redis,
    ));
    #[cfg(feature = "redis")]
    trials.push(can_all_but(
        &["batches", "certain wake-ups", "finished_by_time", "inbox", "store_scope"],
        "redis_cluster",
        redis_cluster,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
