//! The life cycle of a private MariaDB.

use std::process::Command;

use seriatim_testkit::{Mysql, MysqlOptions, find_program, mysql_url};

/// Runs `sql` with `mariadb` and returns what it prints.
fn query(mysql: &Mysql, sql: &str) -> Result<String, String> {
    let client = find_program("mariadb", "mariadb-client")?;
    let output = Command::new(client)
        .args(["--no-defaults", "--host=127.0.0.1", "--user=seriatim", "--skip-column-names"])
        .arg(format!("--port={}", mysql.port()))
        .args(["--database=seriatim", "--execute", sql])
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn a_killed_mariadb_restarts_on_its_port_with_its_data() {
    let options = MysqlOptions { durable: false, ..MysqlOptions::default() };
    let mut mysql = Mysql::start_with(options).unwrap();
    let url = mysql.url();
    query(&mysql, "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (7)").unwrap();

    mysql.kill().unwrap();
    assert!(query(&mysql, "SELECT 1").is_err());
    mysql.restart().unwrap();

    assert_eq!(mysql.url(), url);
    assert_eq!(query(&mysql, "SELECT n FROM kept").unwrap(), "7");
}

#[test]
fn a_stopped_mariadb_restarts_and_stopping_twice_is_fine() {
    let mut mysql = Mysql::start().unwrap();
    mysql.stop().unwrap();
    mysql.stop().unwrap();
    assert!(query(&mysql, "SELECT 1").is_err());
    mysql.restart().unwrap();
    assert_eq!(query(&mysql, "SELECT 1").unwrap(), "1");
}

#[test]
fn durability_is_on_unless_it_is_turned_off() {
    let settings =
        "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@max_connections";
    let durable = Mysql::start().unwrap();
    assert_eq!(query(&durable, settings).unwrap(), "1\t1\t300");

    let options = MysqlOptions { durable: false, connections_max: 20, ..MysqlOptions::default() };
    let fast = Mysql::start_with(options).unwrap();
    assert_eq!(query(&fast, settings).unwrap(), "2\t0\t20");
}

#[test]
fn the_shared_server_has_an_address() {
    assert!(mysql_url().unwrap().starts_with("mysql://"));
}
