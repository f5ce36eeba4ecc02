//! Looks through a set of jobs that are not due, or of dead ones, and takes those of the bridge's queues.

use seriatim::Timestamp;
use seriatim::limits::TURN_BYTES_MAX;
use tokio::time::{Duration, Instant};

use super::batch::of_set;
use super::link::TAKE_SET;
use super::{ByQueue, Call, DEAD, Element, Fault, Keys, Link, Source, consumers};
use crate::config::Sets;

/// Members of one page, and of one batch: who pushes waits for the script that takes them, 1 ms with these.
const PAGE: usize = 250;
/// How often a set is looked through, at most: Sidekiq itself does it every few seconds.
const EVERY: Duration = Duration::from_secs(1);
/// Looking takes at most 1/SHARE of the time.
const SHARE: u32 = 10;

/// How far the present look through a set has come.
pub(super) struct Look {
    sets: Sets,
    /// Members that were left where they are: of other queues, or refused.
    passed: usize,
    ours: u64,
    refused: u64,
    begun: Instant,
    /// No look before this time.
    next: Instant,
}

/// What a step of a look found.
pub(super) enum Found {
    Taken(u64),
    /// A batch is in flight.
    Held,
    /// The look is over: how many of the set are left to this bridge, and how many of them are refused.
    Over {
        ours: u64,
        refused: u64,
        rests: Duration,
    },
    /// It is not time to look.
    Rests(Duration),
}

impl Look {
    pub(super) fn new(source: &Source, sets: Sets) -> Self {
        let now = Instant::now();
        // Nothing of Sidekiq's takes from the dead ones.
        let sets = if *source == Source::Set(DEAD) { Sets::All } else { sets };
        Self { sets, passed: 0, ours: 0, refused: 0, begun: now, next: now }
    }

    /// Looks at the next members.
    pub(super) async fn step(
        &mut self,
        link: &mut Link,
        (keys, source): (&Keys, &Source),
        (routes, mark): (&ByQueue, &str),
    ) -> Result<Found, Fault> {
        let now = Instant::now();
        if now < self.next {
            return Ok(Found::Rests(self.next - now));
        }
        if self.passed == 0 {
            (self.begun, self.ours, self.refused) = (now, 0, 0);
        }
        // Sidekiq's own pollers feed the queues.
        let is_theirs = self.sets == Sets::Due && !consumers::living(link, keys).await?.is_empty();
        let here = Timestamp::of_this_machine();
        let most =
            if self.sets == Sets::All { "+inf".to_owned() } else { here.as_secs_f64().to_string() };
        let mut look = redis::cmd("ZRANGEBYSCORE");
        look.arg(keys.source(source)).arg("-inf").arg(most).arg("WITHSCORES");
        look.arg("LIMIT").arg(self.passed).arg(PAGE);
        let page: Vec<(Vec<u8>, Vec<u8>)> =
            if is_theirs { Vec::new() } else { link.ask(&look).await? };
        let is_last = page.len() < PAGE;
        let members = self.wanted(routes, &source.name(), page);
        let taken = if members.is_empty() {
            0
        } else {
            let mut script = Call::of(&TAKE_SET);
            script.key(keys.source(source)).key(keys.in_flight(source)).key(keys.sequence(source));
            script.arg(here.as_micros() / 1_000).arg(mark).arg(keys.run(source, &link.run));
            members.iter().for_each(|member| {
                script.arg(member);
            });
            let (word, taken): (String, u64) = link.call(&script).await?;
            if word == "held" {
                return Ok(Found::Held);
            }
            taken
        };
        if taken > 0 {
            self.ours = self.ours.saturating_sub(taken);
            return Ok(Found::Taken(taken));
        }
        if !is_last {
            return Ok(Found::Rests(Duration::ZERO));
        }
        let rests = EVERY.max(self.begun.elapsed() * SHARE);
        self.next = Instant::now() + rests;
        self.passed = 0;
        Ok(Found::Over { ours: self.ours, refused: self.refused, rests })
    }

    /// Those of a page that this bridge takes.
    fn wanted(
        &mut self,
        routes: &ByQueue,
        set: &str,
        page: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Vec<Vec<u8>> {
        let (mut members, mut bytes) = (Vec::new(), 0);
        for (member, score) in page {
            let queue = Element::read(&member).map(|element| element.queue());
            let is_ours = queue.is_ok_and(|queue| routes.contains_key(&queue));
            self.ours += u64::from(is_ours);
            if !is_ours {
                self.passed += 1;
                continue;
            }
            if let Err(refusal) =
                of_set(routes, set, (score.as_slice(), member.as_slice()), || "-".to_owned())
            {
                tracing::debug!(%refusal, "a job stays in its set");
                self.refused += 1;
                self.passed += 1;
                continue;
            }
            bytes += member.len();
            if bytes > TURN_BYTES_MAX && !members.is_empty() {
                break;
            }
            members.push(member);
        }
        members
    }
}
