//! The connection and the scripts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Arg, Client, Cmd, ErrorKind as Driver, ServerErrorKind as Server, Value};

use super::address::{self, Options};
use super::args::Args;
use super::confirming::CONFIRM_WITHIN;
use super::durability;
use super::fault::translate;
use super::info::{self, Info};
use super::line::{ANSWER_WITHIN, Failure};
use super::marks::Servers;
use super::reply::Fields;
use super::slots::tag_of;
use super::wire::{Safety, Wire};
use crate::contract::Vitals;
use crate::model::{Error, ErrorKind, Result};

/// The hash tag of what belongs to no shard. It also stands for commands without a key.
const GLOBAL_TAG: &[u8] = b"{g}";

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

/// The common part of shard scripts, followed by these. All but its beginning is one function: to make a function, Lua looks
/// for each local name that it uses of the function around it in a list of all of them, but finds those of a function
/// further out at once. That was a tenth of a small script.
fn of_shard(parts: &[&str]) -> Code {
    let shared = [
        FIRST_DUE,
        include_str!("lua/shard.lua"),
        "return (function()\n",
        include_str!("lua/compact.lua"),
        include_str!("lua/any_job.lua"),
        include_str!("lua/lane.lua"),
        include_str!("lua/any_lane.lua"),
    ];
    Code::new([&shared[..], parts, &["\nend)()"]].concat().concat())
}

const FIRST_DUE: &str = include_str!("lua/first_due.lua");
const NAMES: &str = include_str!("lua/names.lua");
const SCAN: &str = include_str!("lua/scan.lua");

/// Scripts outside all shards that go on when memory is full; with `clock`, they take the time.
macro_rules! global_scripts {
    ($($name:ident = $($file:literal)*),* $(,)?) => {
        $(pub(super) static $name: Lazy = LazyLock::new(|| {
            Code::new([include_str!("lua/global.lua"), $(include_str!($file)),*].concat())
        });)*
    };
}

shard_scripts! {
    ACT = "lua/act.lua",
    AMEND = "lua/amend.lua",
    BEAT = "lua/beat.lua",
    CANCEL = "lua/cancel.lua",
    CHANGE = "lua/change.lua",
    DECLARE = "lua/declare.lua",
    DIGEST = "lua/digest.lua",
    LANES = "lua/lanes.lua",
    MORGUE = "lua/morgue.lua",
    MOVED = "lua/moved.lua",
    PASS_ON = "lua/pass_on.lua",
    TAKE_IN = "lua/take_in.lua",
    TURN = "lua/turn.lua",
    VIEW = "lua/view.lua",
    WIPE = "lua/wipe.lua",
}

pub(super) static PUSH: Lazy = LazyLock::new(|| of_shard(&[NAMES, include_str!("lua/push.lua")]));
pub(super) static SWEEP: Lazy = LazyLock::new(|| of_shard(&[NAMES, include_str!("lua/sweep.lua")]));
pub(super) static CLAIM: Lazy = LazyLock::new(|| {
    let (turns, share) = (include_str!("lua/turns.lua"), include_str!("lua/share.lua"));
    of_shard(&[turns, share, include_str!("lua/claim.lua")])
});
pub(super) static SETTLE: Lazy =
    LazyLock::new(|| of_shard(&[include_str!("lua/turns.lua"), include_str!("lua/settle.lua")]));
pub(super) static RESCUE: Lazy = LazyLock::new(|| {
    of_shard(&[include_str!("lua/take_over.lua"), include_str!("lua/rescue.lua")])
});
pub(super) static RELEASE: Lazy = LazyLock::new(|| {
    of_shard(&[include_str!("lua/take_over.lua"), SCAN, include_str!("lua/release.lua")])
});
pub(super) static INDEX: Lazy = LazyLock::new(|| of_shard(&[SCAN, include_str!("lua/index.lua")]));
pub(super) static PARK: Lazy = LazyLock::new(|| of_shard(&[SCAN, include_str!("lua/park.lua")]));

global_scripts! {
    GIVE_UP = "lua/give_up.lua",
    GLOBAL_BEAT = "lua/clock.lua" "lua/global_beat.lua",
    GLOBAL_CHANGED = "lua/clock.lua" "lua/global_changed.lua",
    GLOBAL_COMMAND = "lua/global_command.lua",
    GLOBAL_DYING = "lua/clock.lua" "lua/global_dying.lua",
    GLOBAL_FLAG = "lua/global_flag.lua",
    GLOBAL_FREE = "lua/global_free.lua",
    GLOBAL_GONE = "lua/clock.lua" "lua/global_gone.lua",
    GLOBAL_LEAD = "lua/clock.lua" "lua/global_lead.lua",
    GLOBAL_MIGRATE = "lua/raise.lua" "lua/global_migrate.lua",
    GLOBAL_SWEEP = "lua/clock.lua" "lua/names.lua" "lua/raise.lua" "lua/global_sweep.lua",
    GLOBAL_UNFLAG = "lua/global_unflag.lua",
    GLOBAL_UNREGISTER = "lua/global_unregister.lua",
}

/// Scripts that are whole.
macro_rules! whole_scripts {
    ($($name:ident = $($file:literal)*),* $(,)?) => {
        $(pub(super) static $name: Lazy =
            LazyLock::new(|| Code::new([$(include_str!($file)),*].concat()));)*
    };
}

whole_scripts! {
    DUE = "lua/first_due.lua" "lua/due.lua",
    HAVING = "lua/having.lua",
    STATS = "lua/first_due.lua" "lua/stats.lua",
    GLOBAL_NOTES = "lua/global_notes.lua",
    GLOBAL_REGISTER = "lua/global_register.lua",
    GLOBAL_RUN = "lua/global_run.lua",
}

/// The connection to the server; reconnects automatically.
pub(super) struct Link {
    wire: Wire,
    options: Options,
    closed: Arc<AtomicBool>,
    /// Names the channel on which this process is woken; empty if it does not listen.
    listener: String,
}

impl Link {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let link = Self::open_again(url, ANSWER_WITHIN).await?;
        Box::pin(durability::check(&link.wire, &link.options)).await?;
        Ok(link)
    }

    /// Opens another connection to a server that was checked before. Its answers take at most so long, if it is alone.
    pub(super) async fn open_again(url: &str, within: Duration) -> Result<Self> {
        let (place, options) = address::read(url)?;
        // Boxed, because the driver's futures are deep.
        let wire = Box::pin(Wire::open(place, &options, within)).await?;
        Ok(Self { wire, options, closed: Arc::default(), listener: String::new() })
    }

    /// Makes scripts wake this process on a channel of its own.
    pub(super) fn listen(&mut self) -> &str {
        self.listener = format!("{:016x}", fastrand::u64(..));
        &self.listener
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
        let key = cmd.args_iter().find_map(|arg| match arg {
            Arg::Simple(arg) => tag_of(arg).is_some().then_some(arg),
            _ => None,
        });
        let key = key.unwrap_or(GLOBAL_TAG);
        self.wire.send(key, cmd, Safety::Written).await.map_err(failed)
    }

    pub(super) async fn fields(&self, cmd: &Cmd) -> Result<Fields> {
        Fields::of(self.query(cmd).await?)
    }

    /// Runs a script.
    pub(super) async fn run(&self, code: &Lazy, key: &str, args: &Args) -> Result<Value> {
        self.run_with(code, key, None, args, Safety::Written).await
    }

    /// Runs a script that may also read a key with another hash tag, if both are on one server. If the server does not
    /// have the script (restarted, flushed, failed over), sends the whole text: also a single command, so still atomic.
    async fn run_with(
        &self,
        code: &Lazy,
        key: &str,
        other: Option<&str>,
        args: &Args,
        safety: Safety,
    ) -> Result<Value> {
        self.check_open()?;
        let call = |command, script: &str| self.command(command, script, key, other, args);
        let by_hash = call("EVALSHA", &code.hash);
        let answer = match self.wire.send(key.as_bytes(), &by_hash, safety).await {
            Err(Failure::Sent(error)) if error.kind() == Driver::Server(Server::NoScript) => {
                let whole = call("EVAL", &code.text);
                self.wire.send(key.as_bytes(), &whole, safety).await
            }
            answer => answer,
        };
        answer.map_err(failed)
    }

    /// The servers that answer, with the ids of their replication. If one of them is no master that answers, another may have taken
    /// over, and the next call asks that one.
    pub(super) async fn marks(&self) -> Servers {
        let answers = self.wire.send_each(redis::cmd("INFO").arg("replication")).await;
        let mut servers = Servers::new();
        for (server, answer) in answers {
            let info: String =
                answer.ok().and_then(|info| redis::from_redis_value(info).ok()).unwrap_or_default();
            let info = Info(info);
            if info.field("role") != "master" {
                self.wire.doubt_masters();
            }
            let id = info.field("master_replid");
            servers.extend((!id.is_empty()).then(|| (server, id.to_owned())));
        }
        servers
    }

    /// The places of these keys, by the servers that have them.
    pub(super) async fn by_server(&self, keys: &[String]) -> Vec<Vec<usize>> {
        self.wire.by_server(keys).await
    }

    pub(super) async fn vitals(&self) -> Result<Vitals> {
        info::vitals(&self.wire).await
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
        let mut keys = vec![key.to_owned()];
        // While a slot moves between servers, both refuse a command with two keys of which one is missing: so no script
        // sees half of a shard.
        keys.extend(self.is_cluster().then(|| format!("{key}meta")));
        keys.extend(other.map(str::to_owned));
        if !self.listener.is_empty() {
            // No key; but all that is in a shard's slot may stand here.
            keys.push(format!("{key}to:{}", self.listener));
        }
        cmd.arg(keys.len()).arg(keys);
        cmd.arg(&args.0);
        cmd
    }

    /// Runs a script and waits until its writes are as durable as the URL requires.
    pub(super) async fn run_durably(
        &self,
        code: &Lazy,
        key: &str,
        other: Option<&str>,
        args: &Args,
    ) -> Result<Value> {
        let waits = self.options.waits();
        let safety = if waits { Safety::Confirmed } else { Safety::Written };
        self.run_with(code, key, other, args, safety).await
    }

    /// The same, for a script that answers with fields.
    pub(super) async fn call_durably(&self, code: &Lazy, key: &str, args: &Args) -> Result<Fields> {
        Fields::of(self.run_durably(code, key, None, args).await?)
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

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Unsent(error) | Failure::Sent(error) => translate(error),
        Failure::Unconfirmed { written } => unconfirmed(written),
    }
}

fn unconfirmed(written: bool) -> Error {
    let message = match written {
        true => format!(
            "the server has written it, but within {} s not as many copies were confirmed as wait_replicas and \
             wait_fsync ask for: whether it outlives a failover is unknown",
            CONFIRM_WITHIN.as_secs()
        ),
        false => "nothing was written: not as many copies confirm what was written before as wait_replicas and \
                  wait_fsync ask for"
            .to_owned(),
    };
    Error::new(ErrorKind::Unavailable, message)
}
