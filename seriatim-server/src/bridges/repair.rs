//! What people decide: refused jobs go back, batches in doubt are pushed again or dropped.

use seriatim::Timestamp;
use seriatim::names::did_you_mean;
use seriatim::store::Store;

use super::link::{DECIDE, GIVE_BACK, GIVE_BACK_IDS, GIVE_BACK_MORGUE};
use super::still::{moves, still};
use super::{Batch, Call, Fault, Keys, Link, Source};
use crate::app::bridges::pauses;
use crate::config::BridgeConfig;

/// Elements that one step of the script moves.
const STEP: u64 = 1_000;

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is pushed by the routes as they are. If it is in doubt, what is here already and no longer known runs twice.
    Again,
    /// If it is in doubt, it is forgotten; what is not here is lost.
    Drop,
}

/// Puts the refused jobs of a source back into it, while no node takes from it: it would take the first page, the newest,
/// before the others are there. How many.
pub(crate) async fn give_back(
    store: &dyn Store,
    bridge: &BridgeConfig,
    url: &str,
    name: &str,
) -> Result<u64, String> {
    let source = source(bridge, name)?;
    let known = pauses(store, &bridge.name).await.map_err(|error| error.to_string())?;
    if !known.holds(&source.name()) && moves(store, &bridge.name, &source.name()).await?.is_some() {
        let bridge = &bridge.name;
        return Err(format!(
            "bridge {bridge} would take the newest first: pause it, `seriatim bridge pause {bridge} {name}`, and resume it afterwards"
        ));
    }
    still(store, &bridge.name, &[source.name()]).await?;
    let wrong = |fault: Fault| fault.to_string();
    let (mut link, keys) = (Link::open(url).await.map_err(wrong)?, Keys::of(bridge));
    let mut all = 0;
    loop {
        let moved: u64 = match &source {
            Source::Ids { queue, .. } => {
                let mut script = Call::of(&GIVE_BACK_IDS);
                script.key(keys.rejected(&source)).prefix(keys.lowkiq(queue)).arg(STEP);
                link.call(&script).await.map_err(wrong)?
            }
            Source::Morgue(queue) => {
                let mut script = Call::of(&GIVE_BACK_MORGUE);
                script.key(keys.source(&source)).key(keys.rejected(&source));
                script.prefix(keys.morgue(queue)).arg(STEP);
                link.call(&script).await.map_err(wrong)?
            }
            _ => {
                let mut script = Call::of(&GIVE_BACK);
                script.key(keys.source(&source)).key(keys.rejected(&source));
                script.arg(source.kind()).arg(STEP);
                link.call(&script).await.map_err(wrong)?
            }
        };
        all += moved;
        if moved < STEP {
            return Ok(all);
        }
    }
}

/// Carries a decision out. How many jobs it concerned; `None` if there is nothing to decide.
pub(crate) async fn decide(
    bridge: &BridgeConfig,
    url: &str,
    name: &str,
    decision: Decision,
) -> Result<Option<u64>, String> {
    let source = source(bridge, name)?;
    let wrong = |fault: Fault| fault.to_string();
    let (mut link, keys) = (Link::open(url).await.map_err(wrong)?, Keys::of(bridge));
    let now = Timestamp::of_this_machine();
    let batch = Batch::read(&mut link, &keys, &source).await.map_err(wrong)?;
    let may = |batch: &Batch| decision == Decision::Again || batch.is_in_doubt(now);
    let Some(batch) = batch.filter(may) else { return Ok(None) };
    if decision == Decision::Drop {
        let done = batch.settle(&mut link, (&keys, &source), &[]).await.map_err(wrong)?;
        return Ok(done.then_some(batch.len() as u64));
    }
    let mut script = Call::of(&DECIDE);
    script.key(keys.in_flight(&source)).arg(batch.id());
    let taken_at = if batch.is_in_doubt(now) { now } else { batch.taken_at() };
    script.arg(taken_at.as_micros() / 1_000);
    let done: u64 = link.call(&script).await.map_err(wrong)?;
    Ok((done > 0).then_some(batch.len() as u64))
}

/// The source of this name: that of a queue, a set, or a morgue.
fn source(bridge: &BridgeConfig, name: &str) -> Result<Source, String> {
    let all = Source::of(bridge);
    let queue = format!("queue:{name}");
    let known = |wanted: &str| all.iter().find(|source| source.name() == wanted).cloned();
    known(&queue).or_else(|| known(name)).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(Source::name).collect();
        let near = names.iter().map(|name| name.strip_prefix("queue:").unwrap_or(name));
        format!("bridge {:?} has no queue {name:?}{}", bridge.name, did_you_mean(name, near))
    })
}
