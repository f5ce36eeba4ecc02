//! What worker programs print, under fuzz.

use seriatim::text::is_plain;
use seriatim_testkit::fuzz::Surface;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::super::lines::Lines;
use super::*;

/// Shorter than in earnest, so that lines are cut.
const BYTES_MAX: usize = 3_000;
/// What is said of a message that cannot be used goes into the error of each job of its call.
const WHY_BYTES_MAX: usize = 2_000;

fn check_why(why: &str) {
    assert!(why.len() <= WHY_BYTES_MAX, "{} bytes: {why}", why.len());
    assert!(why.chars().all(is_plain), "{why:?}");
}

async fn lines_of(output: impl AsyncRead + Unpin) -> Vec<Line> {
    let (mut lines, mut read) = (Lines::new(output, BYTES_MAX), Vec::new());
    while let Some(line) = lines.next().await {
        read.push(line);
    }
    read
}

fn check_line(line: &Line, held: &Held) {
    match read(line) {
        Heard::Output => {}
        Heard::Suspect(why) | Heard::Fault(Fault { why, .. }) => check_why(&why),
        Heard::Progress { batch, lane, progress } => {
            let refused = held.check_name(batch.as_deref()).err();
            let refused = refused.or_else(|| held.check_lane("lane", lane).err());
            refused.iter().for_each(|why| check_why(why));
            assert!(serde_json::from_str::<&RawValue>(progress.get()).is_ok());
        }
        Heard::Step { batch, lane, .. } => {
            let refused = held.check_name(batch.as_deref()).err();
            let refused = refused.or_else(|| held.check_lane("lane", lane).err());
            refused.iter().for_each(|why| check_why(why));
        }
        Heard::Answer { batch, said } => {
            let refused = held.check_name(batch.as_deref()).and_then(|()| held.check(&said));
            match refused {
                Err(why) => check_why(&why),
                Ok(()) => {
                    assert!(held.is_same(&said, &said));
                    let every = said.of_every_lane(held);
                    assert!(every.is_none_or(|every| every.len() == held.lanes.len()));
                    let _ = said.outcomes(held, &Outcome::Done);
                }
            }
        }
    }
}

#[test]
fn whatever_a_worker_prints_is_output_or_a_message_or_explained() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let lane = |number| LaneId { queue: 1, shard: 0, number };
    let held = Held {
        batch: "1-0-7-3".to_owned(),
        lanes: vec![(lane(7), 2), (lane(8), 1)],
        may_release: false,
    };
    Surface::new("worker").inputs(10_000).attack(|input| {
        let lines = runtime.block_on(lines_of(input));
        // However it arrives.
        let (first, rest) = input.split_at(input.len() / 3);
        assert_eq!(lines, runtime.block_on(lines_of(first.chain(rest))));
        assert!(lines.iter().map(|line| line.text.len()).max() <= Some(3 * BYTES_MAX));
        lines.iter().for_each(|line| check_line(line, &held));
    });
}
