//! Ends handlers before their lease expires, if heartbeats fail.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::core::Core;
use crate::handler::control::Stop;

/// The longest time between two checks.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// Watches the monotonic clock while handlers wait, until the engine ends. A separate task, because the heartbeat may
/// hang in the very store call that lets the lease expire.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    loop {
        core.running.any().await;
        tokio::time::sleep(step(&core)).await;
        let now = Instant::now();
        let stopped =
            core.running.stop(Stop::LeaseLost, |call| core.lease.end(core.ttl(&call.queue)) <= now);
        if stopped > 0 {
            tracing::warn!(
                calls = stopped,
                "no heartbeat succeeded for too long: handlers are asked to stop before their lease expires"
            );
        }
    }
}

fn step(core: &Core) -> Duration {
    (core.shortest_lease() / 20).clamp(Duration::from_millis(1), LOOK_EVERY_MAX)
}
