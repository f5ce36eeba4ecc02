//! The connection, the scripts, and the server's errors in our words.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, ErrorKind as Driver, RedisError, ServerErrorKind as Server, Value};

use super::reply::Fields;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};

/// How long to wait for an answer; a push of the largest batch takes a fraction of it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often a lost connection is tried again before the call fails, and after what time.
const RECONNECTS: usize = 2;
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// Oldest server with all the commands that the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);

/// A Lua script, known to the server by its hash.
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

/// The scripts of one shard begin with what they share.
macro_rules! shard_scripts {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(super) static $name: Lazy = LazyLock::new(|| {
            Code::new([include_str!("lua/shard.lua"), include_str!($file)].concat())
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
    MORGUE = "lua/morgue.lua",
    PAUSE = "lua/pause.lua",
    PUSH = "lua/push.lua",
    RESCUE = "lua/rescue.lua",
    SETTLE = "lua/settle.lua",
    STATS = "lua/stats.lua",
    SWEEP = "lua/sweep.lua",
    TURN = "lua/turn.lua",
    VIEW = "lua/view.lua",
}

global_scripts! {
    GLOBAL_BEAT = "lua/global_beat.lua",
    GLOBAL_COMMAND = "lua/global_command.lua",
    GLOBAL_DYING = "lua/global_dying.lua",
    GLOBAL_FLAG = "lua/global_flag.lua",
    GLOBAL_LEAD = "lua/global_lead.lua",
    GLOBAL_MIGRATE = "lua/global_migrate.lua",
    GLOBAL_REGISTER = "lua/global_register.lua",
    GLOBAL_SWEEP = "lua/global_sweep.lua",
    GLOBAL_UNFLAG = "lua/global_unflag.lua",
}

/// What a script is called with.
#[derive(Clone, Default)]
pub(super) struct Args(pub Vec<Vec<u8>>);

impl Args {
    /// Begins with a time; empty is the server's own.
    pub(super) fn at(now: Option<Timestamp>) -> Self {
        let mut args = Self::default();
        args.now(now);
        args
    }

    pub(super) fn now(&mut self, now: Option<Timestamp>) -> &mut Self {
        match now {
            Some(now) => self.time(now),
            None => self.text(""),
        }
    }

    pub(super) fn bytes(&mut self, bytes: impl Into<Vec<u8>>) -> &mut Self {
        self.0.push(bytes.into());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text)
    }

    /// Nothing is the empty text.
    pub(super) fn name(&mut self, name: Option<&str>) -> &mut Self {
        self.text(name.unwrap_or(""))
    }

    /// `-` for nothing, `+` in front of a text, which may be empty.
    pub(super) fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.bytes(format!("+{text}")),
            None => self.text("-"),
        }
    }

    pub(super) fn int(&mut self, number: impl Into<i128>) -> &mut Self {
        self.bytes(number.into().to_string())
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.text(if flag { "1" } else { "0" })
    }

    /// A time in the range that every store keeps exactly.
    pub(super) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.int(time.clamp(Timestamp::default(), Timestamp::MAX).as_micros())
    }

    pub(super) fn micros(&mut self, length: Duration) -> &mut Self {
        self.int(micros(length))
    }
}

/// A length in whole microseconds, at most what every store keeps exactly.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).min((1 << 53) - 1)
}

/// The way to the server; reconnects by itself.
pub(super) struct Link {
    manager: ConnectionManager,
    closed: Arc<AtomicBool>,
}

impl Link {
    pub(super) async fn open(client: redis::Client) -> Result<Self> {
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(CONNECT_WITHIN))
            // The callers wait and try again by themselves; here it only bridges a restart.
            .set_number_of_retries(RECONNECTS)
            .set_min_delay(RECONNECT_AFTER);
        let manager = ConnectionManager::new_with_config(client, config).await;
        let manager = manager.map_err(translate)?;
        let link = Self { manager, closed: Arc::default() };
        link.check_server().await?;
        Ok(link)
    }

    /// Refuses servers that lack commands, and tells of those that may forget jobs.
    async fn check_server(&self) -> Result<()> {
        let info = self.text(redis::cmd("INFO").arg("everything")).await?;
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
        };
        let version = field("redis_version");
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        let known = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if known < VERSION_MIN {
            let message = format!(
                "the server is Redis {version}; at least {}.{} is needed",
                VERSION_MIN.0, VERSION_MIN.1
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if field("redis_mode") == "cluster" {
            let message = "this Redis is a cluster, which this store cannot use yet";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if field("maxmemory") != "0" && field("maxmemory_policy").starts_with("allkeys") {
            tracing::warn!(
                policy = field("maxmemory_policy"),
                "this Redis deletes jobs when its memory is full: set maxmemory-policy noeviction"
            );
        }
        Ok(())
    }

    /// Later calls fail as `Unavailable`; the connection ends with the store.
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
        self.send(cmd).await.map_err(translate)
    }

    async fn send(&self, cmd: &Cmd) -> Result<Value, RedisError> {
        cmd.query_async(&mut self.manager.clone()).await
    }

    async fn text(&self, cmd: &Cmd) -> Result<String> {
        cmd.query_async(&mut self.manager.clone()).await.map_err(translate)
    }

    pub(super) async fn fields(&self, cmd: &Cmd) -> Result<Fields> {
        Fields::of(self.query(cmd).await?)
    }

    /// Runs a script. One that the server does not know (restarted, flushed, failed over) is sent as a whole: that is
    /// one command too, so nothing lies between.
    pub(super) async fn run(&self, code: &Lazy, key: &str, args: &Args) -> Result<Value> {
        self.check_open()?;
        let call = |command: &str, script: &str| {
            let mut cmd = redis::cmd(command);
            cmd.arg(script).arg(1).arg(key).arg(&args.0);
            cmd
        };
        match self.send(&call("EVALSHA", &code.hash)).await {
            Err(error) if error.kind() == Driver::Server(Server::NoScript) => {
                self.send(&call("EVAL", &code.text)).await.map_err(translate)
            }
            other => other.map_err(translate),
        }
    }

    pub(super) async fn call(&self, code: &Lazy, key: &str, args: &Args) -> Result<Fields> {
        Fields::of(self.run(code, key, args).await?)
    }
}

/// What a driver's error means for the caller. Neither the address nor the password is in it.
pub(super) fn translate(error: RedisError) -> Error {
    let text = error.to_string();
    let says = |code: &str| error.code() == Some(code) || text.contains(&format!("{code} "));
    let (kind, message) = if says("OOM") {
        (ErrorKind::Full, "the server's memory limit is reached: nothing was written")
    } else if says("MISCONF") {
        (ErrorKind::Full, "the server cannot write to its disk and refuses writes")
    } else if says("READONLY") || says("NOPERM") {
        (
            ErrorKind::ReadOnly,
            "the server may not be written: it is a replica, or the user lacks permission",
        )
    } else if says("WRONGPASS") || says("NOAUTH") || error.kind() == Driver::AuthenticationFailed {
        (ErrorKind::Invalid, "the server refuses the user name or the password")
    } else {
        match error.kind() {
            Driver::InvalidClientConfig => (ErrorKind::Invalid, "the address is not a Redis URL"),
            Driver::Parse | Driver::UnexpectedReturnType => {
                (ErrorKind::Corrupt, "the server's answer cannot be understood")
            }
            Driver::Extension if !is_busy(&text) => (ErrorKind::Internal, "a script failed"),
            Driver::Server(Server::ResponseError) => (ErrorKind::Internal, "a script failed"),
            _ => (ErrorKind::Unavailable, "the Redis server cannot be reached or is busy"),
        }
    };
    Error::new(kind, message).because(error)
}

fn is_busy(text: &str) -> bool {
    ["BUSY", "NOREPLICAS", "MASTERDOWN", "LOADING"].iter().any(|code| text.contains(code))
}
