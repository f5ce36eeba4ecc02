//! The connection to the Redis of the other system.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, Script, ScriptInvocation};
use seriatim::store::Redis;

use super::fault::Fault;

/// A script; the server keeps it by its hash.
pub(super) type Code = LazyLock<Script>;

pub(super) static TAKE: Code = LazyLock::new(|| Script::new(include_str!("lua/take.lua")));
pub(super) static TAKE_SET: Code = LazyLock::new(|| Script::new(include_str!("lua/take_set.lua")));
pub(super) static SETTLE: Code = LazyLock::new(|| Script::new(include_str!("lua/settle.lua")));
pub(super) static UNWAKE: Code = LazyLock::new(|| Script::new(include_str!("lua/unwake.lua")));
pub(super) static GIVE_BACK: Code =
    LazyLock::new(|| Script::new(include_str!("lua/give_back.lua")));
pub(super) static EXPORT: Code = LazyLock::new(|| Script::new(include_str!("lua/export.lua")));
pub(super) static DECIDE: Code = LazyLock::new(|| Script::new(include_str!("lua/decide.lua")));

pub(super) static TAKE_IDS: Code = LazyLock::new(|| Script::new(include_str!("lua/take_ids.lua")));
pub(super) static READ_IDS: Code = LazyLock::new(|| Script::new(include_str!("lua/read_ids.lua")));
pub(super) static SETTLE_IDS: Code =
    LazyLock::new(|| Script::new(include_str!("lua/settle_ids.lua")));
pub(super) static GIVE_BACK_IDS: Code =
    LazyLock::new(|| Script::new(include_str!("lua/give_back_ids.lua")));

pub(super) struct Link {
    connection: MultiplexedConnection,
    /// Another one after each start of the server.
    pub(super) run: String,
}

impl Link {
    pub(super) async fn open(url: &str) -> Result<Self, Fault> {
        let wrong = |error: seriatim::Error| Fault::Source(error.to_string());
        let mut connection = Redis::dial(url).await.map_err(wrong)?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
        Ok(Self { run: run.trim().to_owned(), connection })
    }

    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Fault> {
        Ok(command.query_async(&mut self.connection).await?)
    }

    /// The answers of several commands.
    pub(super) async fn ask_all<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
    ) -> Result<T, Fault> {
        Ok(commands.query_async(&mut self.connection).await?)
    }

    pub(super) async fn call<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, Fault> {
        Ok(script.invoke_async(&mut self.connection).await?)
    }
}
