//! The servers' own figures: `INFO`.

use redis::Value;

use super::fault::translate;
use super::line::Failure;
use super::wire::Wire;
use crate::contract::Vitals;
use crate::model::Result;

/// A server's description of itself.
pub(super) struct Info(pub(super) String);

impl Info {
    /// The value of a field; empty if there is none.
    pub(super) fn field(&self, name: &str) -> &str {
        let of_line = |line: &'_ str| -> Option<usize> {
            line.strip_prefix(name)?.strip_prefix(':').map(str::len)
        };
        let line = self.0.lines().find_map(|line| Some((line, of_line(line)?)));
        line.map_or("", |(line, length)| &line[line.len() - length..])
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name).parse().ok()
    }
}

/// `INFO` of the server; in a cluster, of each master that answers.
pub(super) async fn infos(wire: &Wire) -> Result<Vec<Info>> {
    let mut cmd = redis::cmd("INFO");
    let (mut texts, mut failed) = (Vec::new(), None);
    for (_, answer) in wire.send_each(cmd.arg("everything")).await {
        match answer {
            Ok(answer) => collect(answer, &mut texts),
            Err(Failure::Sent(error) | Failure::Unsent(error)) => failed = Some(error),
            Err(Failure::Unconfirmed { .. }) => {}
        }
    }
    texts.retain(|text| text.contains("redis_version:"));
    match failed.filter(|_| texts.is_empty()) {
        Some(error) => Err(translate(error)),
        None => Ok(texts.into_iter().map(Info).collect()),
    }
}

/// Of all masters together.
pub(super) async fn vitals(wire: &Wire) -> Result<Vitals> {
    let infos = infos(wire).await?;
    let sum = |name: &str| infos.iter().map(|info| info.number(name)).sum::<Option<u64>>();
    Ok(Vitals {
        bytes: sum("used_memory"),
        // 0: unlimited.
        bytes_max: sum("maxmemory").filter(|bytes| *bytes > 0),
        connections: sum("connected_clients"),
        connections_max: sum("maxclients"),
        operations: sum("total_commands_processed"),
    })
}

/// The texts in an answer with any nesting.
pub(super) fn collect(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => texts.push(text),
        Value::Array(list) => list.into_iter().for_each(|value| collect(value, texts)),
        Value::Map(pairs) => pairs.into_iter().for_each(|(name, value)| {
            collect(name, texts);
            collect(value, texts);
        }),
        _ => {}
    }
}
