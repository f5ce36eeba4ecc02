//! The order of a lane's open jobs.

use crate::model::Timestamp;

/// The place of a job: (score, seq), or (priority, `run_at`, seq) in `exclusive`.
pub(in crate::stores) type Rank = (i64, i64, u64);

/// Behind every job.
pub(in crate::stores) const LAST: Rank = (i64::MAX, i64::MAX, u64::MAX);
/// Behind every job that is not due.
pub(in crate::stores) const LAST_PLACE: (Timestamp, u64) = (Timestamp::MAX, u64::MAX);

/// Converts a score to an integer with the same order.
pub(in crate::stores) fn score_rank(score: f64) -> i64 {
    let bits = (score + 0.0).to_bits() as i64;
    if bits < 0 { bits ^ i64::MAX } else { bits }
}
