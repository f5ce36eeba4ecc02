//! Errors that several stores share.

use crate::model::limits::{QUEUES_MAX, ROUTES_MAX};
use crate::model::{Error, ErrorKind, NodeId, Result};

/// A queue that does not exist.
pub(crate) fn no_queue(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no queue {name:?}")).in_field("queue")
}

/// A queue that only a push created, where a declared one is required.
pub(crate) fn undeclared(name: &str) -> Error {
    let message = format!("queue {name:?} is not declared: a push made it");
    Error::new(ErrorKind::NotFound, message).in_field("queue")
}

/// A node that never sent a heartbeat or was declared dead.
pub(crate) fn node_gone(node: &NodeId) -> Error {
    let message = format!("node {node} has not registered or was declared dead: take a new id");
    Error::new(ErrorKind::NodeGone, message)
}

/// A node that is dead, has stopped or is unknown.
pub(crate) fn no_living_node(node: &NodeId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no live node {node}"))
}

/// One queue more than a store can have.
pub(crate) fn too_many_queues() -> Error {
    Error::invalid("queue", format!("the store has {QUEUES_MAX} queues, which is the maximum"))
}

/// One more pair of node and consumer group than a store has numbers for.
pub(crate) fn too_many_routes() -> Error {
    let message = format!(
        "jobs were bound to {ROUTES_MAX} different nodes and consumer groups, which is the maximum: bind them to names that \
         do not change with each start"
    );
    Error::invalid("node", message)
}

/// A job that cannot be changed because it does not wait.
pub(crate) fn no_waiting_job() -> Error {
    Error::new(ErrorKind::NotFound, "no waiting job has this id").in_field("job_id")
}

/// A pushed job with another route (node or group) than the jobs that wait for its key.
pub(crate) fn other_route(key: &str, place: usize) -> Error {
    let message = format!(
        "key {key:?} is bound to another node, consumer group or group by its waiting jobs, and can go to one place only"
    );
    Error::new(ErrorKind::Conflict, message).in_field("key").in_field(format!("jobs[{place}]"))
}

/// Refuses a claim or rescue that its node gave up.
pub(crate) fn check_ticket(ticket: u64, given_up: u64) -> Result<()> {
    if ticket == 0 || ticket > given_up {
        return Ok(());
    }
    Err(was_given_up())
}

/// A claim or rescue that arrives after its node gave it up.
pub(crate) fn was_given_up() -> Error {
    let message =
        "the node has given this call up, since its answer seemed lost: nothing was taken";
    Error::new(ErrorKind::Conflict, message).in_field("ticket")
}

/// A queue that is being deleted, for pushes to it and declarations of it.
pub(crate) fn is_closing(queue: &str) -> Error {
    let message = format!(
        "queue {queue:?} is being deleted: wait until it is gone; if the deletion was broken off, delete it again"
    );
    Error::new(ErrorKind::Conflict, message).in_field("queue")
}

/// A queue that cannot be deleted: some of its lanes are claimed.
pub(crate) fn is_claimed(queue: &str, lanes: u64) -> Error {
    let message = format!(
        "lanes of queue {queue:?} are claimed ({lanes}): release them or wait until they end; with force they are \
         released first"
    );
    Error::new(ErrorKind::Conflict, message).in_field("queue")
}
