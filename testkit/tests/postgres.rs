//! The life cycle of a private PostgreSQL.

use seriatim_testkit::{Postgres, PostgresOptions, Proxy};

const TABLES: &str = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";

#[test]
fn a_killed_postgres_restarts_at_once_on_its_port_with_its_data() {
    // A durable one syncs all its files first, which is not under test here.
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let mut postgres = Postgres::start_with(options).unwrap();
    let url = postgres.url();
    postgres.query("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)").unwrap();

    postgres.kill().unwrap();
    assert!(postgres.query("SELECT 1").is_err());
    postgres.restart().unwrap();

    assert_eq!(postgres.url(), url);
    assert_eq!(postgres.query("SELECT n FROM kept").unwrap(), "7");
}

#[test]
fn a_stopped_postgres_restarts_and_stopping_twice_is_fine() {
    let mut postgres = Postgres::start().unwrap();
    postgres.stop().unwrap();
    postgres.stop().unwrap();
    assert!(postgres.query("SELECT 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.query("SELECT 1").unwrap(), "1");
}

#[test]
fn durability_is_on_unless_it_is_turned_off() {
    let settings = "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN \
                    ('fsync', 'full_page_writes', 'max_connections', 'synchronous_commit')";
    let durable = Postgres::start().unwrap();
    assert_eq!(durable.query(settings).unwrap(), "on on 200 on");

    let options =
        PostgresOptions { durable: false, connections_max: 20, ..PostgresOptions::default() };
    let fast = Postgres::start_with(options).unwrap();
    assert_eq!(fast.query(settings).unwrap(), "off off 20 on");
}

#[test]
fn texts_are_sorted_by_bytes_unless_a_locale_is_given() {
    let sorted = "SELECT string_agg(t, ' ' ORDER BY t) FROM unnest('{b,A,á,Z}'::text[]) t";
    let by_bytes = Postgres::start().unwrap();
    assert_eq!(by_bytes.query(sorted).unwrap(), "A Z b á");
    let shared = Postgres::start_with(PostgresOptions::shared()).unwrap();
    assert_eq!(shared.query(sorted).unwrap(), "A á b Z");
}

#[test]
fn a_dropped_postgres_leaves_neither_a_listener_nor_its_directory() {
    let postgres = Postgres::start().unwrap();
    let port = postgres.port();
    let directory = postgres.query("SHOW data_directory").unwrap();
    assert!(std::path::Path::new(&directory).is_dir());

    drop(postgres);

    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!std::path::Path::new(&directory).exists());
}

#[test]
fn a_promoted_standby_has_what_reached_it() {
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let mut primary = Postgres::start_with(options).unwrap();
    let cable = Proxy::start(primary.port()).unwrap();
    let standby = primary.start_standby(cable.port()).unwrap();
    primary.query("CREATE TABLE kept (n int)").unwrap();
    assert!(standby.query("CREATE TABLE other (n int)").unwrap_err().contains("read-only"));
    while standby.query("SELECT to_regclass('kept')").unwrap().is_empty() {}
    cable.unplug();
    primary.query("CREATE TABLE lost (n int)").unwrap();

    primary.kill().unwrap();
    standby.promote().unwrap();

    assert_eq!(standby.query(TABLES).unwrap(), "kept");
    standby.query("INSERT INTO kept VALUES (1)").unwrap();
}

#[test]
fn a_commit_of_a_synchronous_primary_waits_for_its_standby() {
    let options =
        PostgresOptions { durable: false, synchronous: true, ..PostgresOptions::default() };
    let mut primary = Postgres::start_with(options).unwrap();
    let cable = Proxy::start(primary.port()).unwrap();
    let standby = primary.start_standby(cable.port()).unwrap();
    primary.query("CREATE TABLE kept (n int)").unwrap();
    cable.unplug();
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| primary.query("CREATE TABLE waits (n int)"));
        while primary.query(&format!("SELECT count(*) {waiting}")).unwrap() == "0" {
            assert!(!commit.is_finished(), "it waits for nobody");
        }
        primary.query(&format!("SELECT pg_terminate_backend(pid) {waiting}")).unwrap();
        assert!(commit.join().unwrap().is_err());
    });
    primary.kill().unwrap();
    standby.promote().unwrap();
    assert_eq!(standby.query(TABLES).unwrap(), "kept");
}
