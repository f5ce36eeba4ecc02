//! Masters of a cluster that die, hang, or are replaced: each of them, also the one that has the nodes, and those with the first
//! shards of queues.

use seriatim_testkit::RedisCluster;

use super::outages::pass;
use super::servers::{drain, until};
use super::upkeep::scripts;
use super::*;

/// So many that each master has some.
const SHARDS: u16 = 24;
const LANES: usize = 120;
/// So many queues with one shard that they are on several masters.
const NARROW: usize = 12;
/// The list of all queues is not used for so long.
const LISTED_FOR: Duration = Duration::from_secs(16);

/// How long a call may take if a master does not answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// The same when that is known.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// A cluster that works in part if a master is away, with a store.
struct Site {
    cluster: RedisCluster,
    prefix: String,
    store: Arc<Redis>,
    rounds: u32,
}

impl Site {
    async fn new() -> Self {
        let words = ["--cluster-require-full-coverage", "no", "--appendfsync", "always"];
        let cluster = RedisCluster::start_with(&words).unwrap();
        let prefix = new_prefix();
        let store = open_at(&cluster.url(), &prefix).await;
        for queue in ["q", "r"] {
            declare(&store, in_shards(Queue::fifo(queue), SHARDS)).await;
        }
        assert_eq!(store.queues().await.unwrap().len(), 2);
        Self { cluster, prefix, store, rounds: 0 }
    }

    /// The master that has a key.
    fn place_of(&mut self, name: &str) -> usize {
        let key = format!("{}:{name}", self.prefix);
        let answer = self.cluster.nodes()[0].send(&["CLUSTER", "KEYSLOT", &key]).unwrap();
        let slot = answer.trim_start_matches(':').lines().next().unwrap().parse::<usize>().unwrap();
        (slot * 3 / 16_384).min(2)
    }

    /// The masters that have the nodes, and the first shard of a queue.
    fn of_nodes_and_queue(&mut self) -> (usize, usize) {
        (self.place_of("{g}:meta"), self.place_of_queue(1))
    }

    /// A key of the first shard of a queue.
    async fn meta_of(&self, queue: &str) -> String {
        let all = self.store.queues().await.unwrap();
        let number = all.iter().find(|view| *view.queue.name == *queue).unwrap().number;
        format!("{}:{{q{number}:0}}:meta", self.prefix)
    }

    /// The master that has the first shard of a queue.
    fn place_of_queue(&mut self, number: u32) -> usize {
        self.place_of(&format!("{{q{number}:0}}:meta"))
    }

    /// Queues with one shard, and the master of each.
    async fn narrow_queues(&mut self) -> Vec<(Arc<str>, usize)> {
        let names = (0..NARROW).map(|i| format!("single-{i}"));
        let queues = names.map(Queue::fifo).collect();
        self.store.declare(Declare { now: None, queues }).await.unwrap();
        let all = self.store.queues().await.unwrap().into_iter();
        let narrow = all.filter(|view| view.queue.shards == 1);
        narrow.map(|view| (view.queue.name.into(), self.place_of_queue(view.number))).collect()
    }

    async fn answers(&self) {
        until("all answer", async || self.store.stats(None).await.is_ok()).await;
    }

    /// How many scripts the masters have run.
    async fn scripts(&mut self) -> u64 {
        let mut count = 0;
        for node in self.cluster.nodes() {
            count += scripts(&node.url()).await;
        }
        count
    }

    /// Jobs of new keys, two of each, and claims of half of them; in another queue, claims that have expired.
    async fn work(&mut self) -> Vec<Turn> {
        self.rounds += 1;
        let round = self.rounds;
        let jobs = |queue: &str| -> Vec<Job> {
            let key = |i: usize| format!("{round} {i}");
            let one = |i: usize| Job::new(queue, &(i as u32)).unwrap().key(key(i / 2));
            (0..2 * LANES).map(one).collect()
        };
        push(&self.store, jobs("q")).await;
        let before = self.store.now().await.unwrap().as_micros() - 3_600_000_000;
        let now = Some(Timestamp::from_micros(before));
        self.store.push(Push { now, jobs: jobs("r") }).await.unwrap();
        let lease = Lease::Own { ttl: LEASE };
        let expired = Claim { now, lease, ..claim_request("r", LANES) };
        assert_eq!(self.store.claim(expired).await.unwrap().turns.len(), LANES);
        claim(&self.store, LANES / 2).await
    }

    /// One call of each master tells when all its shards are due.
    async fn is_asked_once(&mut self) {
        // From now on the masters have the script.
        self.store.due(Vec::new()).await.unwrap();
        let before = self.scripts().await;
        assert_eq!(self.store.due(Vec::new()).await.unwrap().len(), 2 + NARROW);
        assert_eq!(self.scripts().await - before, 3);
    }

    /// What is due is known of all queues, although the store asks a master for a shard that is no longer there.
    async fn due_is_known_after_a_move(&mut self) {
        let before = self.scripts().await;
        let due = self.store.due(Vec::new()).await.unwrap();
        assert!(due.iter().all(|one| !one.unanswered), "{due:?}");
        assert_eq!(due.iter().filter(|one| one.due.is_some()).count(), NARROW, "{due:?}");
        assert!(self.scripts().await - before > 3, "each shard of a part is asked for by itself");
        self.is_asked_once().await;
    }

    /// What is due is known of these queues, of which each second one has a job; but of those of a dead master nothing is.
    async fn due_is_known_but_of(&self, dead: usize, narrow: &[(Arc<str>, usize)]) {
        let names = narrow.iter().map(|(name, _)| name.clone()).collect();
        let due = self.store.due(names).await.unwrap();
        assert_eq!(due.len(), narrow.len());
        for (i, (one, (name, place))) in due.iter().zip(narrow).enumerate() {
            assert_eq!((&one.queue, one.unanswered), (name, *place == dead));
            assert_eq!(one.due.is_some(), i.is_multiple_of(2) && *place != dead, "{one:?}");
        }
        // It has shards on all masters.
        let due = self.store.due(vec!["q".into()]).await.unwrap();
        let now = self.store.now().await.unwrap();
        assert!(due[0].unanswered && due[0].may_have_at(now).is_some_and(|due| due <= now));
    }

    /// All answer again, and all is done.
    async fn end(&self) {
        let store = &self.store;
        self.answers().await;
        // It may have to tell that it did not reach all.
        let _ = store.rescue(rescue()).await;
        for queue in ["q", "r"] {
            let claims = ClaimSelection::Queue(queue.into());
            let release = Release { now: None, claims, made_by: None, lanes_max: 1_000 };
            let held = store.release(release).await.unwrap();
            assert!(done(store, &held).await.iter().all(Settled::is_ok));
            loop {
                let turns = store.claim(claim_request(queue, 1_000)).await.unwrap().turns;
                if turns.is_empty() {
                    break;
                }
                assert!(done(store, &turns).await.iter().all(Settled::is_ok));
            }
        }
        assert_eq!(numbers(store).await.jobs, 0);
    }
}

fn rescue() -> Rescue {
    Rescue { now: None, node: "n".into(), lease: LEASE, lanes_max: 1_000, ticket: 0 }
}

fn beat(turns: &[Turn]) -> Heartbeat {
    let node = NodeInfo::new("n".into(), LEASE);
    Heartbeat { now: None, node, beats: turns.iter().map(Beat::of).collect() }
}

fn open_ones(settled: &[Settled]) -> usize {
    settled.iter().filter(|one| one.is_open()).count()
}

/// The master that has the first shard of the queue, unless it has the nodes.
#[tokio::test]
async fn a_dead_master_of_a_cluster_holds_up_no_other() {
    let mut site = Site::new().await;
    let (of_nodes, of_queue) = site.of_nodes_and_queue();
    let dead = if of_queue == of_nodes { (of_nodes + 1) % 3 } else { of_queue };
    let narrow = site.narrow_queues().await;
    let jobs = narrow.iter().step_by(2).map(|(name, _)| Job::new(&**name, &1).unwrap().key("k"));
    push(&site.store, jobs.collect()).await;
    site.is_asked_once().await;
    let before = site.work().await;
    site.cluster.nodes()[dead].kill().unwrap();
    pass(LISTED_FOR).await;
    let store = &site.store;

    let settle = Settle { skip_locked: true, ..settle_done(&before) };
    let settled = store.settle(settle.clone()).await.unwrap();
    let done = settled.iter().filter(|one| one.is_ok()).count();
    assert!(done > 0 && open_ones(&settled) > 0, "{settled:?}");
    let claimed = store.claim(claim_request("q", LANES)).await.unwrap();
    assert!(!claimed.turns.is_empty() && claimed.unanswered);
    let pulse = store.heartbeat(beat(&before)).await.unwrap();
    assert_eq!((pulse.alive, pulse.lost.len()), (true, done), "settled ones are lost");
    let rescued = store.rescue(rescue()).await.unwrap();
    assert!(!rescued.is_empty() && rescued.iter().all(|turn| &*turn.queue == "r"));
    assert!(store.rescue(rescue()).await.is_err(), "some were not reached");
    site.due_is_known_but_of(dead, &narrow).await;

    site.cluster.nodes()[dead].restart().unwrap();
    let repeat = async || open_ones(&site.store.settle(settle.clone()).await.unwrap()) == 0;
    until("the rest is settled", repeat).await;
    site.end().await;
}

#[tokio::test]
async fn a_sweep_reaches_all_but_a_dead_master_whose_definitions_are_read_as_soon_as_it_is_back() {
    let mut site = Site::new().await;
    let (of_nodes, _) = site.of_nodes_and_queue();
    let narrow = site.narrow_queues().await;
    let (name, dead) = narrow.iter().find(|(_, place)| *place != of_nodes).unwrap();
    let (store, hour) = (site.store.clone(), Duration::from_secs(3_600));
    let now = store.now().await.unwrap();
    let expires = |i: u32| job(&i.to_string(), i).expires_at(now + hour);
    push(&store, (0..LANES as u32).map(expires).collect()).await;
    let take = async || {
        let views = store.queues().await.unwrap();
        views.into_iter().find(|view| *view.queue.name == **name).unwrap().queue.take
    };
    let before = take().await;
    let other = open_at(&site.cluster.url(), &site.prefix).await;
    declare(&other, Queue::fifo(&**name).take(before + 1)).await;
    site.cluster.nodes()[*dead].kill().unwrap();
    pass(LISTED_FOR).await;
    let sweep = Sweep { now: Some(now + hour + hour), rows_max: 50 };
    // In the end it tells that some shards were not reached.
    while let Ok(swept) = store.sweep(sweep).await {
        assert!(swept.more);
    }
    assert_eq!(take().await, before, "as it was read last");
    site.cluster.nodes()[*dead].restart().unwrap();
    site.answers().await;
    assert_eq!(take().await, before + 1);
    let left = store.sweep(sweep).await.unwrap().expired;
    assert!(!left.is_empty());
    for job in left {
        let place = site.place_of(&format!("{{q1:{}}}:meta", Shard::of_job(job).shard));
        assert_eq!(place, *dead);
    }
}

/// One script looks at many shards, and its keys name the first of them alone: a master refuses it if another one has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_shard_whose_slot_moves_does_not_tell_what_is_due_and_only_till_it_has_moved() {
    let mut site = Site::new().await;
    let narrow = site.narrow_queues().await;
    let jobs = narrow.iter().map(|(name, _)| Job::new(&**name, &1).unwrap().key("k"));
    push(&site.store, jobs.collect()).await;
    let (last, _) = narrow.last().unwrap();
    let (first, last_key) = (site.meta_of("q").await, site.meta_of(last).await);
    site.is_asked_once().await;

    let on_its_way = site.cluster.begin_move(&last_key).unwrap();
    let due = site.store.due(Vec::new()).await.unwrap();
    let silent: Vec<_> = due.iter().filter(|one| one.unanswered).map(|one| &one.queue).collect();
    assert_eq!(silent, [last]);
    assert_eq!(due.iter().filter(|one| one.due.is_some()).count(), NARROW - 1, "{due:?}");
    site.cluster.end_move(&on_its_way).unwrap();
    site.due_is_known_after_a_move().await;

    // The script follows it to a master that lacks the others of its part.
    site.cluster.move_slot(&first).unwrap();
    site.due_is_known_after_a_move().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_of_a_cluster_that_hangs_holds_up_no_call_for_long() {
    let mut site = Site::new().await;
    let (of_nodes, _) = site.of_nodes_and_queue();
    for hung in [of_nodes, (of_nodes + 1) % 3] {
        let before = site.work().await;
        let store = site.store.clone();
        let go_on = GoOn { claim: claim_request("q", LANES), places: (0..before.len()).collect() };
        let settle = Settle { skip_locked: true, go_on: vec![go_on], ..settle_done(&before) };
        site.cluster.nodes()[hung].hang().unwrap();
        let all = async {
            tokio::join!(
                store.settle(settle),
                store.claim(claim_request("q", LANES / 4)),
                store.rescue(rescue()),
                store.heartbeat(beat(&[])),
                store.due(vec!["q".into()]),
            )
        };
        let all = tokio::time::timeout(ANSWERED_WITHIN, all).await;
        let (settled, claimed, rescued, pulse, due) = all.expect("all are answered soon");
        assert!(due.unwrap()[0].unanswered, "{hung}");
        let settled = settled.unwrap();
        let goes_on = |one: &&Settled| matches!(one, Settled::Ok { next: Some(_), .. });
        assert!(settled.iter().any(|one| goes_on(&one)), "{hung}: {settled:?}");
        assert!(open_ones(&settled) > 0, "{hung}: {settled:?}");
        let claimed = claimed.unwrap();
        assert!(!claimed.turns.is_empty() && claimed.unanswered, "{hung}");
        assert_eq!(rescued.is_ok_and(|turns| !turns.is_empty()), hung != of_nodes);
        assert_eq!(pulse.is_ok_and(|pulse| pulse.alive), hung != of_nodes);
        let again = store.claim(claim_request("q", 1));
        let again = tokio::time::timeout(KNOWN_WITHIN, again).await;
        assert!(again.expect("that it hangs is known").is_ok());
        site.cluster.nodes()[hung].go_on().unwrap();
        site.end().await;
    }
}

/// It takes connections, and answers what is only read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_of_a_cluster_that_runs_no_script_holds_up_one_call_and_no_heartbeat() {
    let mut site = Site::new().await;
    let (of_nodes, _) = site.of_nodes_and_queue();
    let before = site.work().await;
    let store = site.store.clone();
    let hung = (of_nodes + 1) % 3;
    site.cluster.nodes()[hung].send(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
    let both = async {
        tokio::join!(store.claim(claim_request("q", LANES / 4)), store.heartbeat(beat(&before)))
    };
    let both = tokio::time::timeout(ANSWERED_WITHIN, both).await;
    let (claimed, pulse) = both.expect("both are answered soon");
    assert!(claimed.unwrap().unanswered);
    let pulse = pulse.unwrap();
    assert_eq!((pulse.alive, pulse.lost), (true, Vec::new()));
    for _ in 0..5 {
        let again = store.claim(claim_request("q", 1));
        let again = tokio::time::timeout(KNOWN_WITHIN, again).await;
        assert!(again.expect("that it hangs is known").is_ok());
    }
    site.cluster.nodes()[hung].send(&["CLIENT", "UNPAUSE"]).unwrap();
    until("all answer", async || store.stats(None).await.is_ok()).await;
    assert!(done(&store, &before).await.iter().all(Settled::is_ok));
}

/// The node has no turn there that a heartbeat would name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_all_of_a_master_that_died_and_a_heartbeat_finds_it() {
    let mut cluster = RedisCluster::start_with_replicas().unwrap();
    let store = open_at(&cluster.url(), &new_prefix()).await;
    declare(&store, in_shards(Queue::fifo("q"), SHARDS)).await;
    push(&store, (0..60).map(|i| job(&format!("k{}", i % 20), i)).collect()).await;
    let nodes = format!("{}:{{g}}:meta", store.prefix);
    let lacks = |node: &seriatim_testkit::Redis| node.send(&["EXISTS", &nodes]).is_err();
    let dead = cluster.nodes().iter().take(3).position(lacks).unwrap();
    assert!(!store.heartbeat(beat(&[])).await.unwrap().moved);
    cluster.wait_for_replicas().unwrap();
    cluster.nodes()[dead].kill().unwrap();
    until("its replica takes over", async || cluster.masters().len() == 3).await;
    let moved = async || store.heartbeat(beat(&[])).await.unwrap().moved;
    until("a heartbeat finds it", moved).await;
    let mut tags = drain(&store).await;
    tags.sort_unstable();
    assert_eq!(tags, (0..60).collect::<Vec<u32>>());
}
