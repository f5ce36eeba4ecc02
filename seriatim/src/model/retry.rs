//! Backoff between retries, and what happens when they are used up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::limits::DELAY_MAX;
use crate::model::{Error, Result};

/// How long to wait before retry number `retry_count` (0 for the first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", from = "Written")]
pub enum Backoff {
    /// Lowkiq's and Sidekiq's formula (L6, S4), in seconds: `retry_count^4 + 15 + rand(0..30) * (retry_count + 1)`.
    /// 25 retries take about 20 days.
    #[default]
    Polynomial,
    /// Always `base`.
    Constant {
        /// The wait.
        #[serde(with = "crate::model::duration")]
        base: Duration,
    },
    /// `base * (retry_count + 1)`: Dataloader's 30 s × attempt (D9), node-daemons' 300 s × attempts (N6).
    Linear {
        /// The wait before the first retry.
        #[serde(with = "crate::model::duration")]
        base: Duration,
    },
    /// `base * 2^retry_count`, at most `cap`, less a random part of up to `jitter` percent.
    Exponential {
        /// The wait before the first retry.
        #[serde(with = "crate::model::duration")]
        base: Duration,
        /// The longest wait.
        #[serde(with = "crate::model::duration")]
        cap: Duration,
        /// The most percent by which a wait is shortened, 0 to 100.
        #[serde(default)]
        jitter: u8,
    },
}

/// The form in which it is read. A variant without fields would accept any field and hide a typo.
#[derive(Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "a table, as in { kind = \"linear\", base = \"30s\" }"
)]
enum Written {
    Polynomial {},
    Constant {
        #[serde(with = "crate::model::duration")]
        base: Duration,
    },
    Linear {
        #[serde(with = "crate::model::duration")]
        base: Duration,
    },
    Exponential {
        #[serde(with = "crate::model::duration")]
        base: Duration,
        #[serde(with = "crate::model::duration")]
        cap: Duration,
        #[serde(default)]
        jitter: u8,
    },
}

impl From<Written> for Backoff {
    fn from(written: Written) -> Self {
        match written {
            Written::Polynomial {} => Self::Polynomial,
            Written::Constant { base } => Self::Constant { base },
            Written::Linear { base } => Self::Linear { base },
            Written::Exponential { base, cap, jitter } => Self::Exponential { base, cap, jitter },
        }
    }
}

impl Backoff {
    /// `Invalid` if a length is longer than any wait may be.
    pub(crate) fn validate(self) -> Result<()> {
        let longest = match self {
            Self::Polynomial => return Ok(()),
            Self::Constant { base } | Self::Linear { base } => base,
            Self::Exponential { base, cap, .. } => base.max(cap),
        };
        if longest > DELAY_MAX {
            return Err(Error::invalid("backoff", "its lengths must be at most ten years"));
        }
        Ok(())
    }

    /// The wait before retry `retry_count`. `random` lies in 0..1 and is the only source of chance.
    pub fn wait(&self, retry_count: u32, random: f64) -> Duration {
        let random = random.clamp(0.0, 1.0);
        let times = |base: Duration, n: f64| seconds(base.as_secs_f64() * n);
        match *self {
            Self::Polynomial => {
                let n = f64::from(retry_count);
                // rand(0..30) is a whole number below 30, like Ruby's rand(30).
                seconds(n.powi(4) + 15.0 + (random * 30.0).floor().min(29.0) * (n + 1.0))
            }
            Self::Constant { base } => base.min(DELAY_MAX),
            Self::Linear { base } => times(base, f64::from(retry_count) + 1.0),
            Self::Exponential { base, cap, jitter } => {
                let full = times(base, 2f64.powi(retry_count.min(1_000) as i32)).min(cap);
                times(full, 1.0 - random * f64::from(jitter.min(100)) / 100.0)
            }
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(DELAY_MAX).min(DELAY_MAX)
}

/// What happens when a job has failed `max_retries` times after its first try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhaustion {
    /// The lane's head (in `accumulate`, the payload with the lowest score) is buried; the rest restarts, due now.
    #[default]
    Bury,
    /// The lane is held until an operator acts.
    Hold,
    /// The lane's head (in `accumulate`, the payload with the lowest score) is deleted; the rest restarts, due now.
    Drop,
}
