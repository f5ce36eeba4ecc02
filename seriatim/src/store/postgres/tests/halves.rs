//! Large claims, which two sessions carry out at once.

use std::collections::HashSet;

use super::*;
use crate::Error;
use crate::store::postgres::claim::together;

const LANES: usize = 1_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_claim_takes_each_lane_once_and_the_most_urgent_first() {
    let schema = new_schema();
    let store = open(&schema).await;
    let job = |i: usize| Job::new("q", &i).unwrap().priority((i % 3) as u16);
    push(&store, (0..LANES).map(job).collect()).await;
    let (mut lanes, mut tokens) = (HashSet::new(), HashSet::new());
    while lanes.len() < LANES {
        let Claimed { turns, next_due } = claim(&store, "q", 1_000).await;
        assert!(!turns.is_empty() && turns.len() <= 1_000);
        let urgent: Vec<u16> = turns.iter().map(|turn| turn.jobs[0].priority).collect();
        assert!(urgent.is_sorted(), "{urgent:?}");
        for turn in &turns {
            assert!(lanes.insert(turn.lane) && tokens.insert(turn.token), "it was taken twice");
        }
        assert!(next_due.is_some() || lanes.len() == LANES, "it is told to look again");
    }
    assert!(claim(&store, "q", 1_000).await.turns.is_empty());
}

#[tokio::test]
async fn what_half_of_a_claim_took_is_looked_for_when_the_other_half_failed() {
    let schema = new_schema();
    let store = open(&schema).await;
    push(&store, vec![job("k", 1)]).await;
    let took = claim(&store, "q", 1).await;
    let failed = || Err(Error::new(ErrorKind::Internal, "broken"));
    // Of this kind alone the engine looks for lanes that it was not told of.
    for error in [together(Ok(took.clone()), failed()), together(failed(), Ok(took))] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let nothing = || Ok(Claimed::default());
    for error in [together(nothing(), failed()), together(failed(), nothing())] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Internal);
    }
}
