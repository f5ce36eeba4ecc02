//! Warnings about server settings that may lose jobs, logged when the store is opened.

use super::address::Options;
use super::info::{Info, collect, infos};
use super::wire::Wire;
use crate::model::{Error, ErrorKind, Result};

/// Oldest server version with all commands that the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);
/// Oldest server version with `WAITAOF`.
const VERSION_OF_WAITAOF: (u32, u32) = (7, 2);

/// A server's description of itself.
struct Server {
    info: Info,
    /// `appendfsync`, if the server reveals it (managed ones may not).
    fsync: Option<String>,
}

/// Refuses servers that lack commands, and warns of settings that may lose jobs.
pub(super) async fn check(wire: &Wire, options: &Options) -> Result<()> {
    let mut warnings = Vec::new();
    let fsync = fsync_of(wire).await;
    for info in infos(wire).await? {
        let server = Server { info, fsync: fsync.clone() };
        server.check(wire, options)?;
        warnings.extend(server.warnings());
    }
    warnings.sort_unstable();
    warnings.dedup();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(())
}

async fn fsync_of(wire: &Wire) -> Option<String> {
    let mut cmd = redis::cmd("CONFIG");
    let (_, answer) = wire.send_each(cmd.arg("GET").arg("appendfsync")).await.pop()?;
    let mut texts = Vec::new();
    collect(answer.ok()?, &mut texts);
    let at = texts.iter().position(|text| text == "appendfsync")?;
    texts.get(at + 1).cloned()
}

impl Server {
    fn check(&self, wire: &Wire, options: &Options) -> Result<()> {
        let version = self.info.field("redis_version");
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        let known = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if known < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            return unsupported(format!(
                "the server is Redis {version}; at least {major}.{minor} is needed"
            ));
        }
        if options.wait_fsync && known < VERSION_OF_WAITAOF {
            let (major, minor) = VERSION_OF_WAITAOF;
            return unsupported(format!(
                "wait_fsync needs Redis {major}.{minor}, and the server is Redis {version}: set \
                 appendfsync always there instead"
            ));
        }
        if self.info.field("redis_mode") == "cluster" && !wire.is_cluster() {
            return unsupported(
                "this Redis is a cluster: name it as redis-cluster://HOST:PORT,HOST:PORT".into(),
            );
        }
        Ok(())
    }

    /// One sentence per setting that may lose jobs, with what to do.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let policy = self.info.field("maxmemory_policy");
        if self.info.field("maxmemory") != "0" && policy != "noeviction" {
            let what = match policy.starts_with("allkeys") {
                true => "jobs",
                // Only `given_up0` and `given_up1` of a shard expire.
                false => "what keeps late claims from being granted",
            };
            warnings.push(format!(
                "this Redis deletes {what} when its memory is full (maxmemory-policy {policy}): set \
                 maxmemory-policy noeviction"
            ));
        }
        if self.info.field("aof_enabled") != "1" {
            warnings.push(
                "this Redis keeps no append-only file: a crash or restart loses every job since \
                 its last snapshot, and finished ones run again; set appendonly yes"
                    .into(),
            );
        } else if self.fsync.as_deref() == Some("no") {
            warnings.push(
                "this Redis leaves syncing to the system (appendfsync no): a crash of the machine \
                 loses about the last 30 seconds; set appendfsync everysec or always"
                    .into(),
            );
        }
        warnings
    }
}

fn unsupported(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::{Info, Server};

    fn warnings(info: &str, fsync: &str) -> Vec<String> {
        Server { info: Info(info.into()), fsync: Some(fsync.into()) }.warnings()
    }

    #[test]
    fn what_a_server_would_lose_is_said() {
        let safe = "aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(warnings(safe, "everysec"), Vec::<String>::new());
        assert_eq!(warnings(safe, "always"), Vec::<String>::new());
        assert!(warnings(safe, "no")[0].contains("appendfsync everysec"));
        let forgetful = "aof_enabled:0\r\nmaxmemory:99\r\nmaxmemory_policy:allkeys-lru\r\n";
        let volatile =
            safe.replace("maxmemory:0", "maxmemory:99").replace("noeviction", "volatile-ttl");
        assert!(warnings(&volatile, "everysec")[0].contains("late claims"));
        let text = warnings(forgetful, "everysec").join("\n");
        assert!(text.contains("appendonly yes") && text.contains("noeviction"), "{text}");
    }
}
