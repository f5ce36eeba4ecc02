//! Definitions are shared, not copied.

use super::*;
use crate::stores::state::queues;

#[tokio::test]
async fn work_takes_as_long_however_many_queues_there_are() {
    let store = open(&new_database().await).await;
    queues::tests::work_takes_as_long_however_many_queues_there_are(&*store).await;
}
