//! Keys with more jobs than a turn takes.

use super::reading::{Watched, open_at};
use crate::stores::behind;

#[tokio::test]
async fn a_turn_of_a_deep_key_reads_its_own_jobs() {
    let options = seriatim_testkit::PostgresOptions { durable: false, ..Default::default() };
    let server = seriatim_testkit::Postgres::start_with(options).unwrap();
    let store = open_at(&format!("{}?connections=1", server.url())).await;
    behind::a_turn_of_a_deep_key_reads_its_own_jobs(&Watched::new(store)).await;
}
