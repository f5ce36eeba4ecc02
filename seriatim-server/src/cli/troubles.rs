//! Problems that nodes report, printed below nodes and queues.

use seriatim::Timestamp;
use seriatim::store::{NodeView, Trouble};

use super::output::say;
use crate::app::troubles::{line, of};
use crate::base::text::one_line;

/// Prints problems below a table; of one queue, or all.
pub(crate) fn say_all(nodes: &[NodeView], now: Timestamp, queue: Option<&str>) {
    for line in lines(nodes, now, queue) {
        say(line);
    }
}

/// Problems, one per line.
pub(crate) fn lines(
    nodes: &[NodeView],
    now: Timestamp,
    queue: Option<&str>,
) -> impl Iterator<Item = String> {
    let wanted = move |trouble: &Trouble| queue.is_none() || trouble.queue.as_deref() == queue;
    let of_queue = of(nodes, now).filter(move |(_, trouble)| wanted(trouble));
    of_queue.map(move |(node, trouble)| {
        format!("{}: {}", one_line(&node.info.id.0), one_line(&line(trouble, now)))
    })
}
