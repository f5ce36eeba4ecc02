//! The numbers of nodes and consumer groups that jobs are bound to.

use super::*;
use crate::limits::ROUTES_MAX;
use crate::stores::route;

#[tokio::test]
async fn the_last_number_of_a_route_is_given_out_and_no_further_one() {
    let store = open(&new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let meta = store.key(Shard { queue: 1, shard: 0 }, "meta");
    let mut link = linked(&url()).await;
    let mut cmd = ::redis::cmd("HSET");
    cmd.arg(meta).arg("routes").arg(ROUTES_MAX - 1);
    cmd.query_async::<()>(&mut link).await.unwrap();
    route::tests::the_last_number_is_given_out_and_no_further_one(&*store).await;
}
