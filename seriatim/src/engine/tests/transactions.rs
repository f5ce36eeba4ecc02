//! Handlers that settle in their own transactions.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Push, Pushed, Settle, Settled, Store, Transaction};
use crate::engine::Observer;
use crate::store::{Settlement, Turn};
use crate::*;

/// What is done in it takes effect at once.
struct AtOnce;

#[async_trait]
impl Transaction for AtOnce {
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>> {
        store.push(request).await
    }

    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>> {
        store.settle(request).await
    }

    async fn commit(self, _: &dyn Store) -> Result<()> {
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        Ok(())
    }
}

/// When the last settlement was sent, as an observer hears it.
#[derive(Default)]
struct LastSent(Mutex<Option<Timestamp>>);

impl Observer for LastSent {
    fn settled(&self, _: &Turn, _: &Settlement, _: &Settled, sent_at: Timestamp) {
        *self.0.lock().unwrap() = Some(sent_at);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_when_a_handler_committed_however_long_it_goes_on() {
    let (rig, log, sent) = (Rig::new(), Log::default(), Arc::new(LastSent::default()));
    rig.push(Job::new("mail", &1).unwrap()).await;
    let committed = Arc::<Mutex<Option<Timestamp>>>::default();
    let (written, at) = (log.clone(), committed.clone());
    let worker = move |_: Batch<u32>, context: Context| {
        let (log, at) = (written.clone(), at.clone());
        async move {
            context.commit_with(AtOnce).await?;
            *at.lock().unwrap() = Some(Timestamp::of_this_machine());
            log.add("committed");
            pass(secs(5)).await;
            Ok::<_, Failure>(())
        }
    };
    let running = Running::start(engine(&rig).observer(sent.clone()).worker("mail", worker));
    log.reaches(1).await;
    assert_eq!(running.stop().await.done, 1);
    let sent_at = sent.0.lock().unwrap().expect("it hears of it");
    let committed = committed.lock().unwrap().expect("it commits");
    assert!(sent_at <= committed, "{sent_at:?} is after {committed:?}");
}
