//! What is asked of many shards: one script looks at many of a server, in a cluster too. There a script may read what its keys do not
//! name, as long as the same server has it.

use futures_util::future::join_all;

use super::Redis;
use super::args::Args;
use super::link::Lazy;
use super::reply::{Fields, Shard, corrupt};
use crate::model::{Error, Result};

/// A script that only looks, at the shard of its key and at those whose prefixes are its last arguments. Its answer has a part
/// for each, in this order, and may leave out the last ones.
pub(super) struct Question<'a> {
    pub(super) code: &'a Lazy,
    /// The arguments before the prefixes.
    pub(super) args: Args,
    /// Most shards of a call: a running script blocks all others.
    pub(super) most: usize,
}

/// The answers of shards, in their order; none of a server of a cluster that is away, and why.
pub(super) type Answers<T> = (Vec<Option<T>>, Option<Error>);

impl Redis {
    /// Asks all of these shards, all servers at once. A part of an answer is read by `read`.
    pub(super) async fn ask<T>(
        &self,
        question: &Question<'_>,
        shards: impl IntoIterator<Item = Shard>,
        read: impl Fn(&mut Fields) -> Result<T>,
    ) -> Result<Answers<T>> {
        let keys: Vec<String> = shards.into_iter().map(|shard| self.key(shard, "")).collect();
        let (mut answers, mut away) = ((0..keys.len()).map(|_| None).collect::<Vec<_>>(), None);
        let by_server = self.link.by_server(&keys).await;
        let mut parts: Vec<Vec<usize>> =
            by_server.iter().flat_map(|all| all.chunks(question.most)).map(<[_]>::to_vec).collect();
        while !parts.is_empty() {
            let asked = join_all(parts.iter().map(|part| self.ask_part(question, part, &keys)));
            let mut next = Vec::new();
            for (part, answer) in parts.iter().zip(asked.await) {
                match answer {
                    Ok(mut fields) => {
                        let mut left = part.iter();
                        while !fields.is_empty() {
                            let place = left.next().ok_or_else(corrupt)?;
                            answers[*place] = Some(read(&mut fields)?);
                        }
                        let left = left.as_slice();
                        if left.len() == part.len() {
                            return Err(corrupt());
                        }
                        next.extend((!left.is_empty()).then(|| left.to_vec()));
                    }
                    Err(error) if self.is_of_one_server(&error) => away = away.or(Some(error)),
                    // A slot is on its way, or this server reads only what its keys name.
                    Err(_) if self.link.is_cluster() && part.len() > 1 => {
                        next.extend(part.iter().map(|place| vec![*place]));
                    }
                    Err(error) => return Err(error),
                }
            }
            parts = next;
        }
        Ok((answers, away))
    }

    async fn ask_part(
        &self,
        question: &Question<'_>,
        part: &[usize],
        keys: &[String],
    ) -> Result<Fields> {
        let mut keys = part.iter().filter_map(|place| keys.get(*place));
        let first = keys.next().ok_or_else(corrupt)?;
        let mut args = question.args.clone();
        keys.for_each(|key| {
            args.text(key);
        });
        self.link.call(question.code, first, &args).await
    }
}
