//! The judgement of limits: no queue and no group runs more turns at once, or starts more in a time, than it may.

use std::collections::BTreeMap;

use seriatim::{Limit, Rate};

use super::facts::{Facts, Shared, Turn};
use super::report::{Judgement, Report};
use super::settles::Settles;

/// What a limit is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'f> {
    /// The whole queue.
    All,
    /// One of its groups. Jobs without a group are one too.
    Group(Option<&'f str>),
}

/// Of a queue.
type Limited<'f> = (&'f str, Part<'f>);

pub(super) fn exceeded(facts: &Facts<'_>, settles: &Settles<'_>, report: &mut Report) {
    let mut turns: BTreeMap<Limited<'_>, Vec<&Turn<'_>>> = BTreeMap::new();
    for turn in &facts.turns {
        let queue = turn.entity.0.as_str();
        let Some(known) = facts.shared.get(queue) else { continue };
        turns.entry((queue, Part::All)).or_default().push(turn);
        if known.iter().any(|(_, groups)| groups.is_some()) {
            turns.entry((queue, Part::Group(turn.group))).or_default().push(turn);
        }
    }
    for (limited, turns) in turns {
        let (running, rate) = loosest(&facts.shared[limited.0], limited.1);
        if let Some(most) = running {
            at_once(limited, &turns, settles, most, report);
        }
        if let Some((rate, burst)) = rate {
            let mut claims: Vec<i64> = turns.iter().map(|turn| turn.claimed_at).collect();
            claims.sort_unstable();
            if let Some(at) = too_fast(&claims, rate, burst) {
                report.violate(Judgement::Limit, || {
                    format!("{}: more than {rate} turns start, first at {at}", name(limited))
                });
            }
        }
    }
}

/// A history does not show when a limit was changed: so the largest one applies, and a rate only if it never changed.
fn loosest(known: &[Shared<'_>], part: Part<'_>) -> (Option<u32>, Option<(Rate, u32)>) {
    let limits: Vec<Limit> = known
        .iter()
        .map(|(limit, groups)| match (part, groups) {
            (Part::All, _) => *limit,
            (Part::Group(group), Some(groups)) => groups.share(group).limit,
            (Part::Group(_), None) => Limit::default(),
        })
        .collect();
    let running: Option<Vec<u32>> = limits.iter().map(|limit| limit.running).collect();
    let first = limits.first().copied().unwrap_or_default();
    let alike = limits.iter().all(|limit| (limit.rate, limit.burst) == (first.rate, first.burst));
    let rate = first.rate.filter(|_| alike).map(|rate| (rate, first.burst()));
    (running.and_then(|all| all.into_iter().max()), rate)
}

/// The first of these claims that comes too early: the rule of the stores, `Usage` in `seriatim/src/model/flow.rs`. They are
/// in ascending order, whatever the clock did in between: a store whose clock goes back starts nothing until it is where it
/// was.
pub(crate) fn too_fast(claims: &[i64], rate: Rate, burst: u32) -> Option<i64> {
    let interval = rate.time_of(1).as_nanos() as i128;
    let mut paced = 0;
    claims.iter().copied().find(|at| {
        let now = i128::from(*at) * 1_000;
        paced = paced.max(now) + interval;
        paced - now > i128::from(burst) * interval
    })
}

fn name((queue, part): Limited<'_>) -> String {
    match part {
        Part::All => format!("queue {queue}"),
        Part::Group(None) => format!("queue {queue}, jobs without a group"),
        Part::Group(Some(group)) => format!("queue {queue}, group {group}"),
    }
}

/// Counts the turns that hold a place: from when their handler starts, which is after the claim, until it ends, or until
/// their claim may have been settled, by them or by those who took them over. A turn whose claim ended unseen holds none.
fn at_once(
    limited: Limited<'_>,
    turns: &[&Turn<'_>],
    settles: &Settles<'_>,
    most: u32,
    report: &mut Report,
) {
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for turn in turns {
        let settled = settles.own_or_later(&turn.entity, turn.token).or(turn.died_at);
        let Some(settled) = settled else { continue };
        let until = turn.until.min(settled);
        if until > turn.at {
            changes.extend([(turn.at, 1), (until, -1)]);
        }
    }
    // Those that end at a time make place for those that start then.
    changes.sort_unstable();
    let mut running = 0;
    for (at, change) in changes {
        running += change;
        if change > 0 && running > i64::from(most) {
            report.violate(Judgement::Limit, || {
                format!("{}: {running} turns run at {at}, where {most} may", name(limited))
            });
        }
    }
}
