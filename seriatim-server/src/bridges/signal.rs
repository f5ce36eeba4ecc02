//! Learns of ids that are pushed, without asking again and again: since Redis 6 a server tells a connection that what it
//! has read has changed. It needs no setting there, and writes nothing.

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult};
use seriatim::store::Redis;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::fault::Fault;

pub(super) struct Signal {
    link: MultiplexedConnection,
    heard: UnboundedReceiver<PushInfo>,
}

impl Signal {
    /// `None` if the server, or what stands before it, cannot do that.
    pub(super) async fn open(url: &str) -> Option<Self> {
        let (tell, heard) = unbounded_channel();
        let mut link = Redis::dial_hearing(url, tell).await.ok()?;
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON");
        let tracked: RedisResult<()> = tracking.query_async(&mut link).await;
        tracked.ok().map(|()| Self { link, heard })
    }

    /// Returns when this set has members, or has changed.
    pub(super) async fn members_of(&mut self, set: &str) -> Result<(), Fault> {
        while self.heard.try_recv().is_ok() {}
        // Redis reports the next change of this set, once.
        let members: u64 = redis::cmd("ZCARD").arg(set).query_async(&mut self.link).await?;
        if members > 0 {
            return Ok(());
        }
        match self.heard.recv().await {
            Some(told) if told.kind != PushKind::Disconnection => Ok(()),
            _ => Err(Fault::Source("the connection has ended".to_owned())),
        }
    }
}
