//! Tokens: numbers that only grow.

use super::error::Try;
use super::pool::Answer;
use super::sql::{CLOCK, Columns};
use super::work::Work;
use crate::contract::Claim;
use crate::model::{Timestamp, Turn};

/// A token, and the server's time when it was drawn.
pub(super) type Drawn = (i64, Timestamp);

/// The next token, higher than any before and not below the clock. It is drawn while the lanes are locked, so it is
/// also higher than any of theirs, and no session waits for the counter.
pub(super) async fn draw_token(work: &mut Work<'_>) -> Try<Drawn> {
    Ok(draw_token_after(work, String::new()).await?.1)
}

/// The same after other statements, in their round trip. Also returns their answers.
pub(super) async fn draw_token_after(
    work: &mut Work<'_>,
    mut sql: String,
) -> Try<(Vec<Answer>, Drawn)> {
    if !sql.is_empty() {
        sql.push(';');
    }
    let mut answers = work.run(&(sql + &draw_statements())).await?;
    let drawn = answers.split_off(answers.len().saturating_sub(DRAW_STATEMENTS));
    Ok((answers, high_enough(work, drawn).await?))
}

const DRAW_STATEMENTS: usize = 3;

fn draw_statements() -> String {
    format!(
        "INSERT INTO seriatim_token (tok) VALUES (NULL); DELETE FROM seriatim_token WHERE tok = LAST_INSERT_ID(); \
         SELECT {CLOCK}"
    )
}

/// The drawn token, or a new one if the counter was below the clock.
async fn high_enough(work: &mut Work<'_>, answers: Vec<Answer>) -> Try<Drawn> {
    let (token, clock) = drawn(answers)?;
    let now = work.now.as_micros();
    if token >= now {
        return Ok((token, clock));
    }
    // If another session raises it concurrently, the row already exists and the counter is beyond.
    let lift = format!(
        "INSERT IGNORE INTO seriatim_token (tok) VALUES ({}); DELETE FROM seriatim_token WHERE tok = {}",
        now - 1,
        now - 1
    );
    work.run(&lift).await?;
    drawn(work.run(&draw_statements()).await?)
}

fn drawn(mut answers: Vec<Answer>) -> Try<Drawn> {
    let token = answers.first().map(|answer| answer.first_id as i64).filter(|id| *id > 0);
    let clock = answers.pop().and_then(|mut answer| answer.rows.pop());
    let clock = clock.ok_or_else(super::sql::corrupt)?;
    let clock = Timestamp::from_micros(Columns::of(clock).int()?);
    Ok((token.ok_or_else(super::sql::corrupt)?, clock))
}

/// A lane may have been freed after this call began: the time of its claim is when it was locked.
pub(super) fn note_time_of_claim(
    work: &mut Work<'_>,
    turns: &mut [Turn],
    request: &Claim,
    locked_at: Timestamp,
) {
    let claimed_at = if request.now.is_some() { work.now } else { locked_at };
    for turn in turns {
        turn.claimed_at = claimed_at;
        let lane = work.state.lanes.get_mut(&turn.lane.number);
        if let Some(hold) = lane.and_then(|lane| lane.hold.as_mut()) {
            hold.claimed_at = claimed_at;
        }
    }
}
