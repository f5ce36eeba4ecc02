//! The connection to the Redis of the other system.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, FromRedisValue, Pipeline, Script, ScriptInvocation, ToRedisArgs};
use seriatim::store::Redis;

use super::fault::Fault;

/// Keys of a script that an error names.
const SHOWN_KEYS_MAX: usize = 5;

/// A script; the server keeps it by its hash.
pub(super) type Code = LazyLock<Script>;

pub(super) static TAKE: Code = LazyLock::new(|| Script::new(include_str!("lua/take.lua")));
pub(super) static OLDEST: Code = LazyLock::new(|| Script::new(include_str!("lua/oldest.lua")));
pub(super) static TAKE_SET: Code = LazyLock::new(|| Script::new(include_str!("lua/take_set.lua")));
pub(super) static SETTLE: Code = LazyLock::new(|| Script::new(include_str!("lua/settle.lua")));
pub(super) static UNWAKE: Code = LazyLock::new(|| Script::new(include_str!("lua/unwake.lua")));
pub(super) static GIVE_BACK: Code =
    LazyLock::new(|| Script::new(include_str!("lua/give_back.lua")));
pub(super) static EXPORT: Code = LazyLock::new(|| Script::new(include_str!("lua/export.lua")));
pub(super) static NOTE: Code = LazyLock::new(|| Script::new(include_str!("lua/note.lua")));
pub(super) static DECIDE: Code = LazyLock::new(|| Script::new(include_str!("lua/decide.lua")));

pub(super) static TAKE_IDS: Code = LazyLock::new(|| Script::new(include_str!("lua/take_ids.lua")));
pub(super) static READ_IDS: Code = LazyLock::new(|| Script::new(include_str!("lua/read_ids.lua")));
pub(super) static SETTLE_IDS: Code =
    LazyLock::new(|| Script::new(include_str!("lua/settle_ids.lua")));
pub(super) static GIVE_BACK_IDS: Code =
    LazyLock::new(|| Script::new(include_str!("lua/give_back_ids.lua")));
pub(super) static TAKE_MORGUE: Code =
    LazyLock::new(|| Script::new(include_str!("lua/take_morgue.lua")));
pub(super) static GIVE_BACK_MORGUE: Code =
    LazyLock::new(|| Script::new(include_str!("lua/give_back_morgue.lua")));

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
        let answer = command.query_async(&mut self.connection).await;
        answer.map_err(|error| Fault::of_redis(&error, &key_of(command)))
    }

    /// The answers of several commands.
    pub(super) async fn ask_all<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
    ) -> Result<T, Fault> {
        let answers = commands.query_async(&mut self.connection).await;
        let first = || commands.cmd_iter().next().map(key_of).unwrap_or_default();
        answers.map_err(|error| Fault::of_redis(&error, &first()))
    }

    pub(super) async fn call<T: FromRedisValue>(&mut self, call: &Call) -> Result<T, Fault> {
        let answer = call.script.invoke_async(&mut self.connection).await;
        answer.map_err(|error| Fault::of_redis(&error, &call.keys.join(", ")))
    }
}

fn key_of(command: &Cmd) -> String {
    match command.args_iter().nth(1) {
        Some(Arg::Simple(key)) => String::from_utf8_lossy(key).into_owned(),
        _ => String::new(),
    }
}

pub(super) struct Call {
    script: ScriptInvocation<'static>,
    /// The first of its keys, for what goes wrong.
    keys: Vec<String>,
}

impl Call {
    pub(super) fn of(code: &'static Code) -> Self {
        Self { script: code.prepare_invoke(), keys: Vec::new() }
    }

    pub(super) fn key(&mut self, key: String) -> &mut Self {
        if self.keys.len() < SHOWN_KEYS_MAX {
            self.keys.push(key.clone());
        }
        self.script.key(key);
        self
    }

    pub(super) fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        self.script.arg(value);
        self
    }

    /// What the names of further keys begin with.
    pub(super) fn prefix(&mut self, prefix: String) -> &mut Self {
        self.keys.push(format!("{prefix}*"));
        self.arg(prefix)
    }
}
