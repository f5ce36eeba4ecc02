//! The life cycle of a private PostgreSQL.

use std::process::Command;

use seriatim_testkit::{Postgres, PostgresOptions, find_program};

/// Runs `sql` with `psql` and returns what it prints.
fn query(postgres: &Postgres, sql: &str) -> Result<String, String> {
    let psql = find_program("psql", "postgresql-client").map_err(|e| e.to_string())?;
    let output = Command::new(psql)
        .args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", sql])
        .arg(postgres.url())
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn a_killed_postgres_restarts_at_once_on_its_port_with_its_data() {
    // A durable one syncs all its files first, which is not under test here.
    let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
    let mut postgres = Postgres::start_with(options).unwrap();
    let url = postgres.url();
    query(&postgres, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)").unwrap();

    postgres.kill().unwrap();
    assert!(query(&postgres, "SELECT 1").is_err());
    postgres.restart().unwrap();

    assert_eq!(postgres.url(), url);
    assert_eq!(query(&postgres, "SELECT n FROM kept").unwrap(), "7");
}

#[test]
fn a_stopped_postgres_restarts_and_stopping_twice_is_fine() {
    let mut postgres = Postgres::start().unwrap();
    postgres.stop().unwrap();
    postgres.stop().unwrap();
    assert!(query(&postgres, "SELECT 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(query(&postgres, "SELECT 1").unwrap(), "1");
}

#[test]
fn durability_is_on_unless_it_is_turned_off() {
    let settings = "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN \
                    ('fsync', 'full_page_writes', 'max_connections', 'synchronous_commit')";
    let durable = Postgres::start().unwrap();
    assert_eq!(query(&durable, settings).unwrap(), "on on 200 on");

    let options =
        PostgresOptions { durable: false, connections_max: 20, ..PostgresOptions::default() };
    let fast = Postgres::start_with(options).unwrap();
    assert_eq!(query(&fast, settings).unwrap(), "off off 20 on");
}

#[test]
fn a_dropped_postgres_leaves_neither_a_listener_nor_its_directory() {
    let postgres = Postgres::start().unwrap();
    let port = postgres.port();
    let directory = query(&postgres, "SHOW data_directory").unwrap();
    assert!(std::path::Path::new(&directory).is_dir());

    drop(postgres);

    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!std::path::Path::new(&directory).exists());
}
