//! Problems that nodes report, printed below nodes and queues.

use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble};

use super::output::say;
use crate::app::troubles::{line, of};
use crate::base::text::one_line;

/// Prints problems below a table, one per line; of one queue, or all.
pub(crate) fn say_all(nodes: &[NodeView], now: Timestamp, queue: Option<&str>) {
    let wanted = |trouble: &Trouble| queue.is_none() || trouble.queue.as_deref() == queue;
    for (node, trouble) in of(nodes, now).filter(|(_, trouble)| wanted(trouble)) {
        say(format!("{}: {}", one_line(&node.info.id.0), one_line(&line(trouble, now))));
    }
}
