//! What nodes tell of what is wrong with them, below what is shown of nodes and queues.

use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble};

use super::output::say;
use crate::app::troubles::{line, of};
use crate::base::text::one_line;

/// Says what is wrong below a table, one line for each; of one queue, or all.
pub(crate) fn say_all(nodes: &[NodeView], now: Timestamp, queue: Option<&str>) {
    let wanted = |trouble: &Trouble| queue.is_none() || trouble.queue.as_deref() == queue;
    for (node, trouble) in of(nodes, now).filter(|(_, trouble)| wanted(trouble)) {
        say(format!("{}: {}", one_line(&node.info.id.0), one_line(&line(trouble, now))));
    }
}
