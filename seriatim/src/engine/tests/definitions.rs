//! Queues that an engine or a client declares, while the store has them differently.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rig::{Log, Rig, Running, engine, pass, secs};
use crate::contract::{Amend, Change, Declare, QueueView, Settle, Trouble, TroubleKind, Wrapper};
use crate::store::Settlement;
use crate::*;

fn job(queue: &str, number: u32) -> Job {
    Job::new(queue, &number).unwrap()
}

/// An engine whose handlers log the queue and the payloads of each call.
fn written(rig: &Rig, queues: [Queue; 2], log: &Log) -> EngineBuilder {
    queues.into_iter().fold(engine(rig), |engine, queue| {
        let (name, log) = (queue.name.clone(), log.clone());
        engine.queue(queue).worker(name, move |batch: Batch<u32>| {
            log.add(format!("{} {:?}", batch.queue(), batch.lanes()[0].payloads()));
            async {}
        })
    })
}

async fn view(rig: &Rig, queue: &str) -> QueueView {
    let views = rig.queues().await.unwrap();
    views.into_iter().find(|view| view.queue.name == queue).unwrap()
}

/// The troubles of the only living node.
async fn troubles(rig: &Rig) -> Vec<Trouble> {
    let nodes = rig.nodes().await.unwrap();
    let living = nodes.into_iter().filter(|node| node.info.id.0.starts_with("node-"));
    living.flat_map(|node| node.info.troubles).collect()
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_a_push_made_is_converted_while_the_engine_runs_when_nothing_runs_there() {
    let (rig, log) = (Rig::new(), Log::default());
    for number in 1..=3 {
        rig.push(job("orders", number).key("k").score(f64::from(10 - number))).await;
    }
    let held = rig.claim_as("other", "orders", secs(600)).await;
    rig.push(job("mails", 7)).await;
    let queues = [Queue::fifo("orders"), Queue::parallel("mails")];
    let running = Running::start(written(&rig, queues, &log));
    log.reaches(1).await;
    pass(secs(20)).await;
    assert_eq!(log.lines(), ["mails [7]"], "it works on its other queue");
    let reported = troubles(&rig).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!((reported[0].kind, &*reported[0].about), (TroubleKind::QueueNotApplied, "orders"));
    assert!(
        reported[0].text.contains("becomes fifo as soon as none of its jobs runs"),
        "{reported:?}"
    );
    let turns = vec![Settlement::done(held[0].lane, held[0].token)];
    rig.settle(Settle::now(turns)).await.unwrap();
    log.reaches(3).await;
    assert_eq!(log.lines()[1..], ["orders [3]", "orders [2]"], "in the order of fifo");
    let orders = view(&rig, "orders").await;
    assert_eq!((orders.queue.mode, orders.declared), (Mode::Fifo, true));
    pass(secs(20)).await;
    assert_eq!(troubles(&rig).await, []);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_without_a_key_stand_in_the_way_until_they_are_gone() {
    let (rig, log) = (Rig::new(), Log::default());
    let stray = rig.push(job("orders", 1)).await;
    let queues = [Queue::fifo("orders"), Queue::parallel("mails")];
    let running = Running::start(written(&rig, queues, &log));
    rig.push(job("mails", 7)).await;
    log.reaches(1).await;
    pass(secs(20)).await;
    let reported = troubles(&rig).await;
    for part in ["parallel", "have no key", "`seriatim jobs delete ID --yes`"] {
        assert!(reported[0].text.contains(part), "{reported:?}");
    }
    rig.amend(Amend { now: None, job: stray, change: Change::Delete }).await.unwrap();
    pass(secs(20)).await;
    assert_eq!(view(&rig, "orders").await.queue.mode, Mode::Fifo);
    rig.push(job("orders", 2).key("k")).await;
    log.reaches(2).await;
    assert_eq!(log.lines(), ["mails [7]", "orders [2]"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_declared_in_another_mode_refuses_the_start() {
    let rig = Rig::new();
    rig.store_declared(Queue::exclusive("orders")).await;
    rig.push(job("orders", 1).key("k")).await;
    let queues = [Queue::fifo("orders"), Queue::parallel("mails")];
    let refused = written(&rig, queues, &Log::default()).run_until(pass(secs(1))).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.field()),
        (ErrorKind::Conflict, Some("queues.orders.mode"))
    );
    assert_eq!(view(&rig, "orders").await.queue.mode, Mode::Exclusive);
}

#[tokio::test(start_paused = true)]
async fn a_client_declares_its_queues_before_its_first_push_and_once() {
    let rig = Rig::new();
    rig.push(job("mails", 1)).await;
    rig.store_declared(Queue::parallel("files").max_retries(3)).await;
    let before = rig.faults.declares.load(Ordering::SeqCst);
    let queues = [Queue::fifo("orders"), Queue::parallel("mails"), Queue::parallel("files")];
    let client = Client::new(rig.shared()).queues(queues);
    let pushes = (0..20).map(|i| client.push(job("orders", i).key("k")));
    for pushed in futures_util::future::join_all(pushes).await {
        pushed.unwrap();
    }
    let orders = view(&rig, "orders").await;
    assert_eq!((orders.queue.mode, orders.declared), (Mode::Fifo, true));
    assert!(view(&rig, "mails").await.declared, "what only a push made is declared");
    assert_eq!(
        view(&rig, "files").await.queue.max_retries,
        3,
        "what others declared is left alone"
    );
    assert_eq!(rig.faults.declares.load(Ordering::SeqCst) - before, 1);
    let refused = client.push(job("orders", 1)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::Invalid, Some("key")));
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_queue_is_another_is_told_at_each_push() {
    let rig = Rig::new();
    rig.store_declared(Queue::exclusive("orders")).await;
    let client = Client::new(rig.shared()).queues([Queue::fifo("orders")]);
    for _ in 0..2 {
        let refused = client.push(job("orders", 1).key("k")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains("was declared as exclusive"), "{refused}");
    }
    assert_eq!(view(&rig, "orders").await.queue.mode, Mode::Exclusive, "also while it is empty");
    Client::new(rig.shared()).declare([Queue::fifo("orders")]).await.unwrap();
    client.push(job("orders", 1).key("k")).await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_told_of_more_queues_knows_the_earlier_ones_too() {
    let rig = Rig::new();
    let client = Client::new(rig.shared())
        .queues([Queue::fifo("orders").max_retries(1), Queue::fifo("mails")])
        .queues([Queue::fifo("orders").max_retries(2), Queue::parallel("reports")]);
    for queue in ["orders", "mails"] {
        let refused = client.push(job(queue, 1)).await.unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::Invalid, Some("key")));
    }
    client.push(job("reports", 1)).await.unwrap();
    assert_eq!(view(&rig, "mails").await.queue.mode, Mode::Fifo);
    assert_eq!(view(&rig, "orders").await.queue.max_retries, 2, "the later one");
}

#[tokio::test]
async fn a_worker_of_a_queue_that_nothing_declares_is_told_with_the_near_match() {
    let rig = Rig::new();
    let idle = |_: Batch<u32>| async {};
    let nothing_is_declared = engine(&rig).worker("ordres", idle).build().unwrap();
    assert_eq!(nothing_is_declared.slips(), [""; 0]);
    let engine = engine(&rig).queue(Queue::fifo("orders")).worker("ordres", idle);
    let engine = engine.worker("orders", idle);
    let reported = engine.build().unwrap().slips();
    let expected =
        "a worker is for queue \"ordres\", which nothing declares (did you mean \"orders\"?)";
    assert_eq!(reported, [expected]);
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn a_cron_entry_of_a_queue_that_nothing_declares_is_told_with_the_near_match() {
    let cron = |queue| Cron::new(queue, "0 0 * * *", job(queue, 1)).unwrap();
    let engine = engine(&Rig::new()).queue(Queue::parallel("mails"));
    let reported = engine.cron(cron("mials")).cron(cron("mails")).build().unwrap().slips();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains(
            "queue \"mials\", which nothing declares and no worker is for (did you mean \"mails\"?)"
        ),
        "{reported:?}"
    );
}

/// A store in which an engine declares a queue at the moment when a client does, and just before it.
struct JustBefore(SharedStore, Queue);

impl JustBefore {
    async fn declare_its(&self) -> Result<()> {
        self.0.declare(Declare { now: None, queues: vec![self.1.clone()] }).await
    }
}

impl Wrapper for JustBefore {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.declare_its().await?;
        self.0.declare(request).await
    }

    async fn declare_new(&self, request: Declare) -> Result<()> {
        self.declare_its().await?;
        self.0.declare_new(request).await
    }
}

#[tokio::test]
async fn what_an_engine_declares_at_the_same_moment_as_a_client_stands() {
    let rig = Rig::new();
    let of_engine = Queue::fifo("orders").max_retries(1);
    let store = Arc::new(JustBefore(rig.shared(), of_engine.clone()));
    let client = Client::new(store).queues([Queue::fifo("orders").max_retries(2)]);
    client.push(job("orders", 1).key("k")).await.unwrap();
    assert_eq!(view(&rig, "orders").await.queue, of_engine);
}
