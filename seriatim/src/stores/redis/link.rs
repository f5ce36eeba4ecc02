//! The connection and the scripts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Client, Cmd, ErrorKind as Driver, RedisError, ServerErrorKind as Server, Value};

use super::address::{self, Options};
use super::args::Args;
use super::durability;
use super::fault::translate;
use super::reply::Fields;
use super::wire::Wire;
use crate::model::error::{Error, ErrorKind, Result};

/// How long replicas or the disk may take to confirm a batch.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// A Lua script; the server caches it by its hash.
pub(super) struct Code {
    text: String,
    hash: String,
}

impl Code {
    fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

pub(super) type Lazy = LazyLock<Code>;

/// Scripts of one shard; they begin with the common part.
macro_rules! shard_scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(super) static $name: Lazy = LazyLock::new(|| of_shard(&[include_str!($file)]));)*
    };
}

/// The common part of shard scripts, followed by these.
fn of_shard(parts: &[&str]) -> Code {
    let shared = [
        include_str!("lua/shard.lua"),
        include_str!("lua/compact.lua"),
        include_str!("lua/lane.lua"),
    ];
    Code::new([&shared, parts].concat().concat())
}

/// Scripts outside all shards that take the time.
macro_rules! timed_scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(super) static $name: Lazy = LazyLock::new(|| {
            Code::new([include_str!("lua/global.lua"), include_str!($file)].concat())
        });)*
    };
}

macro_rules! global_scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(super) static $name: Lazy =
            LazyLock::new(|| Code::new(include_str!($file).to_owned()));)*
    };
}

shard_scripts! {
    ACT = "lua/act.lua",
    AMEND = "lua/amend.lua",
    BEAT = "lua/beat.lua",
    CANCEL = "lua/cancel.lua",
    CLAIM = "lua/claim.lua",
    DECLARE = "lua/declare.lua",
    INDEX = "lua/index.lua",
    LANES = "lua/lanes.lua",
    LAYOUT = "lua/layout.lua",
    MORGUE = "lua/morgue.lua",
    MOVED = "lua/moved.lua",
    PAUSE = "lua/pause.lua",
    PUSH = "lua/push.lua",
    SETTLE = "lua/settle.lua",
    STATS = "lua/stats.lua",
    SWEEP = "lua/sweep.lua",
    TAKE_IN = "lua/take_in.lua",
    TURN = "lua/turn.lua",
    VIEW = "lua/view.lua",
    WIPE = "lua/wipe.lua",
}

pub(super) static RESCUE: Lazy = LazyLock::new(|| {
    of_shard(&[include_str!("lua/take_over.lua"), include_str!("lua/rescue.lua")])
});
pub(super) static RELEASE: Lazy = LazyLock::new(|| {
    of_shard(&[include_str!("lua/take_over.lua"), include_str!("lua/release.lua")])
});

timed_scripts! {
    GLOBAL_BEAT = "lua/global_beat.lua",
    GLOBAL_DYING = "lua/global_dying.lua",
    GLOBAL_GONE = "lua/global_gone.lua",
    GLOBAL_LEAD = "lua/global_lead.lua",
    GLOBAL_SWEEP = "lua/global_sweep.lua",
}

global_scripts! {
    GLOBAL_COMMAND = "lua/global_command.lua",
    GLOBAL_FLAG = "lua/global_flag.lua",
    GLOBAL_MIGRATE = "lua/global_migrate.lua",
    GLOBAL_RUN = "lua/global_run.lua",
    GLOBAL_REGISTER = "lua/global_register.lua",
    GLOBAL_UNFLAG = "lua/global_unflag.lua",
    GLOBAL_UNREGISTER = "lua/global_unregister.lua",
    GIVE_UP = "lua/give_up.lua",
}

/// The connection to the server; reconnects automatically.
pub(super) struct Link {
    wire: Wire,
    options: Options,
    closed: Arc<AtomicBool>,
}

impl Link {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let link = Self::open_again(url).await?;
        if link.is_cluster() && link.options.waits() {
            let message = "a cluster does not support wait_replicas and wait_fsync";
            return Err(Error::new(ErrorKind::Unsupported, message).in_field("store"));
        }
        durability::check(&link.wire, &link.options).await?;
        Ok(link)
    }

    /// Opens another connection to a server that was checked before.
    pub(super) async fn open_again(url: &str) -> Result<Self> {
        let (place, options) = address::read(url)?;
        let wire = Wire::open(place, &options).await?;
        Ok(Self { wire, options, closed: Arc::default() })
    }

    /// Whether keys with different hash tags may be on different servers.
    pub(super) fn is_cluster(&self) -> bool {
        self.wire.is_cluster()
    }

    /// The servers to subscribe to for wake-ups.
    pub(super) fn wake_servers(&self) -> WakeServers {
        WakeServers(self.wire.clone())
    }

    /// Later calls fail with `Unavailable`; the connection ends with the store.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Unavailable, "the store has been closed")),
        }
    }

    pub(super) async fn query(&self, cmd: &Cmd) -> Result<Value> {
        self.check_open()?;
        self.wire.send(cmd).await.map_err(translate)
    }

    pub(super) async fn fields(&self, cmd: &Cmd) -> Result<Fields> {
        Fields::of(self.query(cmd).await?)
    }

    /// Runs a script. If the server does not have it (restarted, flushed, failed over), sends the whole text: also a
    /// single command, so still atomic.
    pub(super) async fn run(&self, code: &Lazy, key: &str, args: &Args) -> Result<Value> {
        self.run_with(code, key, None, args).await
    }

    /// Runs a script that also reads a key with another hash tag, if both are on one server.
    pub(super) async fn run_with(
        &self,
        code: &Lazy,
        key: &str,
        other: Option<&str>,
        args: &Args,
    ) -> Result<Value> {
        self.check_open()?;
        let call = |command, script: &str| self.command(command, script, key, other, args);
        match self.wire.send(&call("EVALSHA", &code.hash)).await {
            Err(error) if is_no_script(&error) => {
                self.wire.send(&call("EVAL", &code.text)).await.map_err(translate)
            }
            other => other.map_err(translate),
        }
    }

    fn command(
        &self,
        command: &str,
        script: &str,
        key: &str,
        other: Option<&str>,
        args: &Args,
    ) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script);
        match other {
            // While a slot moves between servers, both refuse a command with two keys of which one is missing: so no
            // script sees half of a shard.
            None if self.is_cluster() => cmd.arg(2).arg(key).arg(format!("{key}meta")),
            None => cmd.arg(1).arg(key),
            Some(other) => cmd.arg(2).arg(key).arg(other),
        };
        cmd.arg(&args.0);
        cmd
    }

    /// Runs a script and waits until its writes are as durable as the URL requires. `Unavailable` if they were written
    /// but not confirmed within [`CONFIRM_WITHIN`].
    pub(super) async fn run_durably(
        &self,
        code: &Lazy,
        key: &str,
        other: Option<&str>,
        args: &Args,
    ) -> Result<Value> {
        if !self.options.waits() {
            return self.run_with(code, key, other, args).await;
        }
        self.check_open()?;
        let call = |command, script: &str| self.command(command, script, key, other, args);
        let mut answer = self.confirmed(call("EVALSHA", &code.hash)).await;
        if answer.as_ref().is_err_and(is_no_script) {
            answer = self.confirmed(call("EVAL", &code.text)).await;
        }
        let (answer, confirmed) = answer.map_err(translate)?;
        if !confirmed {
            let message = format!(
                "the server has written it, but within {} s not as many copies were confirmed as \
                 wait_replicas and wait_fsync ask for: whether it outlives a failover is unknown",
                CONFIRM_WITHIN.as_secs()
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(answer)
    }

    /// The same, for a script that answers with fields.
    pub(super) async fn call_durably(&self, code: &Lazy, key: &str, args: &Args) -> Result<Fields> {
        Fields::of(self.run_durably(code, key, None, args).await?)
    }

    /// The answer of a command, and whether enough copies of its writes are confirmed.
    async fn confirmed(&self, cmd: Cmd) -> Result<(Value, bool), RedisError> {
        let (replicas, within) = (self.options.wait_replicas, CONFIRM_WITHIN.as_millis() as u64);
        let mut commands = redis::pipe();
        commands.add_command(cmd);
        match self.options.wait_fsync {
            true => commands.cmd("WAITAOF").arg(1).arg(replicas).arg(within),
            false => commands.cmd("WAIT").arg(replicas).arg(within),
        };
        let mut answers = self.wire.send_all(&commands).await?.into_iter();
        let answer = answers.next().unwrap_or(Value::Nil).extract_error()?;
        let enough =
            |number: &Value, least: u32| matches!(number, Value::Int(n) if *n >= i64::from(least));
        let confirmed = match answers.next().unwrap_or(Value::Nil).extract_error()? {
            Value::Array(both) => {
                both.len() == 2 && enough(&both[0], 1) && enough(&both[1], replicas)
            }
            number => enough(&number, replicas),
        };
        Ok((answer, confirmed))
    }

    pub(super) async fn call(&self, code: &Lazy, key: &str, args: &Args) -> Result<Fields> {
        Fields::of(self.run(code, key, args).await?)
    }
}

/// The servers that deliver wake-ups; a failover may change them.
pub(super) struct WakeServers(Wire);

impl WakeServers {
    pub(super) async fn servers(&self) -> redis::RedisResult<Vec<Client>> {
        self.0.listeners().await
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == Driver::Server(Server::NoScript)
}
