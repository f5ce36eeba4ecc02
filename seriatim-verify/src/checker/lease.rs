//! How long claims surely lasted, as confirmed heartbeats show.

use std::collections::HashMap;

/// A confirmed heartbeat: when it was answered, and until when claims then lasted.
type Beat = (i64, i64);

/// Until when a claim surely lasted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// When its lease could expire.
    pub until: i64,
    /// Its last heartbeat before that: until then nobody had declared it dead.
    pub seen_at: i64,
}

/// A time for which a process had its lease without a break.
struct Stretch {
    from: i64,
    kept: Kept,
}

/// The heartbeats of each process, by the name under which it claimed.
#[derive(Default)]
pub(super) struct Beats<'h>(HashMap<&'h str, HashMap<&'h str, Vec<Beat>>>);

impl<'h> Beats<'h> {
    pub(super) fn add(&mut self, actor: &'h str, node: &'h str, beat: Beat) {
        self.0.entry(actor).or_default().entry(node).or_default().push(beat);
    }

    pub(super) fn leases(self) -> Leases<'h> {
        let of_actor = |(actor, nodes): (&'h str, HashMap<&str, Vec<Beat>>)| {
            (actor, nodes.into_values().map(stretches).collect())
        };
        Leases(self.0.into_iter().map(of_actor).collect())
    }
}

/// A heartbeat that comes after the end of the lease begins a new one: meanwhile others may have taken claims over.
fn stretches(mut beats: Vec<Beat>) -> Vec<Stretch> {
    beats.sort_unstable();
    let mut all: Vec<Stretch> = Vec::new();
    for (at, until) in beats {
        match all.last_mut().map(|stretch| &mut stretch.kept) {
            Some(kept) if at <= kept.until => {
                *kept = Kept { until: kept.until.max(until), seen_at: at };
            }
            _ => all.push(Stretch { from: at, kept: Kept { until, seen_at: at } }),
        }
    }
    all
}

/// The leases of each process.
pub(super) struct Leases<'h>(HashMap<&'h str, Vec<Vec<Stretch>>>);

impl Leases<'_> {
    /// Until when a claim that `actor` made then surely lasted, if that is known. If it may have been made under several
    /// names, the shortest.
    pub(super) fn kept(&self, actor: &str, claimed_at: i64) -> Option<Kept> {
        let of_node = |stretches: &Vec<Stretch>| {
            let place = stretches.partition_point(|stretch| stretch.from <= claimed_at);
            let kept = stretches.get(place.checked_sub(1)?)?.kept;
            (claimed_at <= kept.until).then_some(kept)
        };
        self.0.get(actor)?.iter().filter_map(of_node).min_by_key(|kept| kept.until)
    }
}
