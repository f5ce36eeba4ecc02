//! Jobs about jobs that die at remote workers, for those who want to hear of them: see [`Exhausted`].

use std::collections::HashSet;

use futures_util::{StreamExt, stream};
use seriatim::engine::Exhausted;
use seriatim::store::{LaneId, Settlement, Turn, pushes_of};
use seriatim::{ErrorKind, Job};

use super::super::App;
use super::super::seen::Known;
use super::reports::LOOKUPS_MAX;
use crate::app::payloads::Readable;

/// Pushes the jobs about those that end for good with these settlements, which must not reach the store before. Answers
/// the lanes that have to wait, because the store takes no pushes now.
pub(super) async fn announce<'t>(
    app: &App,
    known: &Known,
    ends: impl Iterator<Item = (&'t Turn, &'t Settlement)>,
) -> HashSet<LaneId> {
    if !Exhausted::is_wanted(&known.views) {
        return HashSet::new();
    }
    let deaths: Vec<_> = ends.filter(|(turn, end)| Exhausted::concerns(turn, end)).collect();
    let mut waits = HashSet::new();
    // Not all at once, because they have payloads.
    for some in deaths.chunks(LOOKUPS_MAX) {
        let calls = some.iter().map(|(turn, end)| calls(app, turn, end)).collect::<Vec<_>>();
        let calls: Vec<Vec<Job>> = stream::iter(calls).buffered(LOOKUPS_MAX).collect().await;
        if !push(app, calls.concat()).await {
            waits.extend(some.iter().map(|(turn, _)| turn.lane));
        }
    }
    waits
}

async fn calls(app: &App, turn: &Turn, end: &Settlement) -> Vec<Job> {
    // Without an answer they are told without its payloads.
    let whole = app.store.turn(turn.lane, turn.token).await.ok().flatten();
    Exhausted::calls(whole.as_ref().unwrap_or(turn), end, Some(&Readable), &|_| false)
}

/// Whether the store has answered: refused ones are lost, and logged.
async fn push(app: &App, jobs: Vec<Job>) -> bool {
    for jobs in pushes_of(&jobs) {
        match app.client.push_all(jobs.to_vec()).await {
            Ok(_) => {}
            Err(error) if error.is_transient() || error.kind() == ErrorKind::ReadOnly => {
                tracing::warn!(%error, "cannot push seriatim.exhausted jobs: the results of the dead jobs wait");
                return false;
            }
            Err(error) => {
                tracing::error!(%error, jobs = jobs.len(), "the store refuses seriatim.exhausted jobs");
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};
    use seriatim::store::Memory;
    use seriatim::{Client, Engine, SharedStore};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::super::tests::asked;
    use super::*;

    #[tokio::test]
    async fn l13_the_exhausted_hook_hears_once_of_a_job_that_died_at_a_remote_worker() {
        let store: SharedStore = Arc::new(Memory::new());
        let (told, mut hears) = mpsc::unbounded_channel();
        let engine = Engine::builder(store.clone()).on_retries_exhausted(move |dead: Exhausted| {
            let told = told.clone();
            async move { told.send(dead).map_err(|_| "nobody hears".into()) }
        });
        let engine = tokio::spawn(engine.run_until(std::future::pending::<()>()));
        while !Exhausted::is_wanted(&store.queues().await.unwrap()) {
            tokio::task::yield_now().await;
        }
        let client = Client::new(store.clone());
        for key in ["dies", "lives"] {
            client.push(Job::new("orders", &json!({ "n": key })).unwrap().key(key)).await.unwrap();
        }
        let wish = json!({ "worker": "w", "queues": ["orders"], "limit": 2 });
        let lanes = asked(&store, "claim", wish).await["lanes"].clone();
        let ended = |lane: &Value| {
            let mut end =
                json!({ "lane": lane["lane"], "token": lane["token"], "secret": lane["secret"] });
            match lane["key"] == "dies" {
                true => (end["outcome"], end["error"]) = ("bury".into(), "no stock".into()),
                false => end["outcome"] = "done".into(),
            }
            end
        };
        let results: Vec<Value> = lanes.as_array().unwrap().iter().map(ended).collect();
        let results = json!({ "worker": "w", "results": results });
        // The second time as after a lost answer.
        for status in ["ok", "stale"] {
            let settled = asked(&store, "settle", results.clone()).await;
            assert_eq!(settled["results"][0]["status"], status);
        }
        let dead = timeout(Duration::from_secs(30), hears.recv()).await.unwrap().unwrap();
        assert_eq!((dead.key.as_deref(), dead.error.as_deref()), (Some("dies"), Some("no stock")));
        assert_eq!(dead.payload.unwrap().as_bytes(), br#"{"n":"dies"}"#);
        let all = store.stats(None).await.unwrap();
        let left = all.iter().find(|of| *of.queue == *Exhausted::QUEUE).unwrap();
        // The one that was heard, if it is not settled yet.
        assert!(hears.try_recv().is_err() && left.jobs <= 1, "{left:?}");
        engine.abort();
    }
}
