//! Whom a process has to wake, and where it waits itself. See `sql/wake.sql`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::contract::{Bell, Wake};
use crate::model::Job;
use crate::stores::asleep::News;

/// Wake-ups for other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summons {
    /// For all of them.
    all: Wake,
    /// For two that wait; if fewer do, for all.
    two: Wake,
}

impl Default for Summons {
    fn default() -> Self {
        Self { all: Wake::of([]), two: Wake::of([]) }
    }
}

impl Summons {
    pub(super) fn all(wake: &Wake) -> Self {
        Self { all: wake.clone(), ..Self::default() }
    }

    pub(super) fn two(wake: &Wake) -> Self {
        Self { two: wake.clone(), ..Self::default() }
    }

    /// For new jobs. Of those that not every process may take, all are told.
    pub(super) fn of_jobs(jobs: &[Job]) -> Self {
        let is_bound =
            |job: &&Job| job.options.node.is_some() || job.options.consumer_group.is_some();
        let (bound, free): (Vec<_>, Vec<_>) = jobs.iter().partition(is_bound);
        let wake = |jobs: Vec<&Job>| Wake::of(jobs.into_iter().map(|job| &*job.queue));
        Self { all: wake(bound), two: wake(free) }
    }

    /// Wakes the listeners of this process.
    pub(super) fn ring(&self, bell: &Bell) {
        bell.ring(&self.wake());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.two.is_empty()
    }

    /// The queues of both.
    pub(super) fn wake(&self) -> Wake {
        let mut wake = self.all.clone();
        wake.merge(&self.two);
        wake
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.two.merge(&other.two);
    }
}

/// What is not sent yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsent {
    pub summons: Summons,
    pub news: News,
}

/// Of the process that sends: its place in the order of those that wait, and its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Me {
    pub place: i32,
    pub process: i32,
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.summons.is_empty() && self.news.is_empty()
    }

    /// The statement that sends it. The jobs are already on disk, so it need not wait for the disk. Both parts are in one
    /// transaction: the session may be a pooler's, and its next transaction a push.
    pub(super) fn statement(&self, schema: &str, me: Me) -> String {
        let Summons { all, two } = &self.summons;
        let News { enters, leaves, next, passed_on } = &self.news;
        // Names of queues need no quoting.
        let list = |queues: BTreeSet<&Arc<str>>| {
            queues.into_iter().map(|name| &**name).collect::<Vec<_>>().join(",")
        };
        let (all, two, next) = match (all, two) {
            (Wake::Queues(all), Wake::Queues(two)) => {
                let two: BTreeSet<_> =
                    two.iter().chain(passed_on).filter(|queue| !all.contains(*queue)).collect();
                let is_called = |queue: &&Arc<str>| !all.contains(*queue) && !two.contains(queue);
                let next = next.iter().filter(is_called).collect();
                (format!("'{}'", list(all.iter().collect())), two, next)
            }
            // All of them hear of all queues.
            _ => ("NULL".to_owned(), BTreeSet::new(), BTreeSet::new()),
        };
        let [two, next] = [two, next].map(list);
        let [enters, leaves] = [enters, leaves].map(|queues| list(queues.iter().collect()));
        let (channel, Me { place, process }) = (channel(schema), me);
        format!(
            "SET LOCAL synchronous_commit = off; SELECT {schema}.wake('{channel}', {all}, '{two}', '{next}', \
             '{enters}', '{leaves}', {place}, {process})"
        )
    }
}

/// The channel of a schema's wake-ups.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_due")
}

/// The channel of the process with this session.
pub(super) fn own_channel(schema: &str, process: i32) -> String {
    format!("{}_{process}", channel(schema))
}

/// The listeners that a message is for.
pub(super) fn wake_of(payload: &str) -> Wake {
    if payload.is_empty() { Wake::All } else { Wake::of(payload.split(',')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(queues: &[&str]) -> BTreeSet<Arc<str>> {
        queues.iter().map(|queue| Arc::from(*queue)).collect()
    }

    #[test]
    fn a_queue_is_named_once_and_for_the_most() {
        let mut unsent = Unsent {
            summons: Summons { all: Wake::of(["a"]), two: Wake::of(["a", "b"]) },
            news: News {
                enters: names(&["e"]),
                leaves: names(&["l", "m"]),
                next: names(&["a", "b", "c", "d"]),
                passed_on: names(&["c"]),
            },
        };
        let sends = |unsent: &Unsent, arguments: &str| {
            let statement = unsent.statement("s", Me { place: 8, process: 7 });
            let call = format!("s.wake('s_due', {arguments}, 'e', 'l,m', 8, 7)");
            assert!(statement.ends_with(&call), "{statement}");
        };
        sends(&unsent, "'a', 'b,c', 'd'");
        unsent.summons.merge(&Summons::two(&Wake::All));
        sends(&unsent, "NULL, '', ''");
    }

    #[test]
    fn all_are_told_of_jobs_that_not_every_process_may_take() {
        let job = |queue: &str| Job::new(queue, &1).unwrap();
        let jobs = [job("a"), job("b").node("n"), job("b"), job("c").consumer_group("g")];
        let summons = Summons { all: Wake::of(["b", "c"]), two: Wake::of(["a", "b"]) };
        assert_eq!(Summons::of_jobs(&jobs), summons);
    }
}
