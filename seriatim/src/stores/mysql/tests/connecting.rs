//! Opening and naming connections, and the tables as SQL clients see them.

use crate::contract::{Producer, Views};
use mysql_async::prelude::Queryable;
use seriatim_testkit::{Authority, Mysql as Server, MysqlOptions};

use super::*;

async fn is_encrypted(url: &str) -> crate::Result<bool> {
    let store = Mysql::connect(url).await?;
    let mut loan = store.inner.pool.lend().await?;
    let rows = loan.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await?;
    let mut row = super::super::sql::Columns::of(rows.into_iter().next().unwrap());
    row.text()?;
    Ok(!row.text()?.is_empty())
}

#[tokio::test]
async fn a_server_must_prove_its_name_where_the_url_asks_for_it() {
    let (ours, strange) = (Authority::new().unwrap(), Authority::new().unwrap());
    let certificate = Some(ours.server().unwrap());
    let options = MysqlOptions { durable: false, certificate, ..MysqlOptions::default() };
    let server = Server::start_with(options).unwrap();
    let url = |parameters: &str| format!("{}?{parameters}", server.url());
    let verified = format!("ssl-mode=verify_identity&ssl-ca={}", ours.roots());
    for parameters in ["ssl-mode=required", "ssl-mode=PREFERRED", &verified, ""] {
        assert!(is_encrypted(&url(parameters)).await.unwrap(), "{parameters}");
    }
    assert!(!is_encrypted(&url("ssl-mode=disabled")).await.unwrap());
    let refused = [
        format!("ssl-mode=verify_identity&ssl-ca={}", strange.roots()),
        // The default authorities have not signed it.
        "ssl-mode=verify_identity".to_owned(),
    ];
    for parameters in refused {
        let error = is_encrypted(&url(&parameters)).await.unwrap_err();
        assert!(error.to_string().contains("ssl-ca"), "{parameters}: {error}");
    }
    let other_name = url(&verified).replace("127.0.0.1", "localhost");
    let error = is_encrypted(&other_name).await.unwrap_err();
    assert!(error.to_string().contains("ssl-mode"), "{error}");
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_the_url_asks_for_it() {
    let required = format!("{}?ssl-mode=required", url());
    let error = Mysql::connect(&required).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("ssl-mode"), "{error}");
    assert!(!is_encrypted(&url()).await.unwrap());
}

#[tokio::test]
async fn a_member_of_a_galera_cluster_is_refused_with_the_reason() {
    let port = seriatim_testkit::free_port().unwrap();
    let arguments = [
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-address=127.0.0.1",
        &format!(
            "--wsrep-provider-options=base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port}"
        ),
        "--binlog-format=ROW",
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    let options = MysqlOptions { durable: false, arguments, ..MysqlOptions::default() };
    let server = Server::start_with(options).unwrap();
    let error = Mysql::connect(&server.url()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("Galera"), "{error}");
}

#[tokio::test]
async fn wrong_options_are_named() {
    let wrong = [
        ("connections=0", "connections", "1 to 200"),
        ("call_timeout=soon", "call_timeout", "30s"),
        ("connect_timeout=0s", "connect_timeout", "30s"),
        ("ssl-mode=on", "ssl-mode", "verify_identity"),
        ("ssl-mode=verify_ca", "ssl-mode", "verify_identity"),
        ("ssl-mode=required&ssl-ca=ca.pem", "ssl-ca", "verify"),
        ("ssl-mode=verify_identity&ssl-ca=/nowhere", "ssl-ca", "/nowhere"),
        ("ssl-ca=%zz", "ssl-ca", "escape"),
        ("sslmode=required", "store", "did you mean ssl-mode?"),
        ("connection=5", "store", "did you mean connections?"),
        ("require_ssl=true", "store", "ssl-mode"),
    ];
    for (options, field, hint) in wrong {
        let url = format!("mysql://me:secret@127.0.0.1:1/db?{options}");
        let error = Mysql::connect(&url).await.map(drop).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some(field)), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l15_a_call_that_takes_too_long_is_given_up_and_undone() {
    let database = new_database().await;
    let store = open(&database).await;
    push(&store, vec![job("k", 1)]).await;
    let mut holder = session(&database).await;
    holder.query_drop("START TRANSACTION; SELECT * FROM seriatim_lane FOR UPDATE").await.unwrap();
    let hasty = format!("{}?call_timeout=500ms&connections=1", address(&database));
    let hasty = Mysql::connect(&hasty).await.unwrap();
    let error = hasty.push(Push { now: None, jobs: vec![job("k", 2)] }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("call_timeout"), "{error}");
    // The pool does not reuse its connection, which is still busy.
    assert_eq!(hasty.queues().await.unwrap().len(), 1);
    // The same lock once more, behind the push.
    let again = "COMMIT; START TRANSACTION; SELECT * FROM seriatim_lane FOR UPDATE";
    holder.query_drop(again).await.unwrap();
    assert_eq!(store.stats(None).await.unwrap()[0].jobs, 1);
}

#[tokio::test]
async fn a_connection_that_has_carried_a_large_payload_is_not_kept() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("small", 1)]).await;
    assert_eq!(store.inner.pool.idle(), 1);
    push(&store, vec![Job::new("q", &"x".repeat(3 << 20)).unwrap().key("large")]).await;
    assert_eq!(store.inner.pool.idle(), 0, "it wrote one");
    let turns = claim(&store, "q", 2).await.turns;
    assert_eq!(
        turns.iter().map(|turn| turn.jobs[0].payload.as_bytes().len()).max(),
        Some((3 << 20) + 2)
    );
    assert_eq!(store.inner.pool.idle(), 0, "it read one");
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    assert_eq!(store.inner.pool.idle(), 1);
}
