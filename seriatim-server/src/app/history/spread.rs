//! How long turns took, as their numbers by length. Each step is twice as long as the one before, so a percentile is right
//! within its step: at most half as long or twice as long as it was.

use std::array;

/// Below 1 ms, 2 ms, 4 ms, …, 70 minutes, and what took longer.
pub(super) const STEPS: usize = 24;

/// Turns by their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread(pub(super) [u64; STEPS]);

impl Spread {
    pub(super) fn add(&mut self, ms: u64) {
        let step = (u64::BITS - ms.leading_zeros()) as usize;
        self.0[step.min(STEPS - 1)] += 1;
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(array::from_fn(|step| self.0[step].saturating_add(other.0[step])))
    }

    /// The time within which this many percent of the turns ended, in ms; `longest` is that of the longest one. None if no
    /// lengths are known.
    pub(super) fn within(&self, percent: u64, longest: u64) -> Option<f64> {
        let all: u64 = self.0.iter().sum();
        let rank = (u128::from(all) * u128::from(percent)).div_ceil(100) as u64;
        let (longest, mut below) = (longest.max(1) as f64, 0);
        for (step, turns) in self.0.iter().enumerate().filter(|(_, turns)| **turns > 0) {
            if below + turns >= rank {
                let from = if step == 0 { 0.0 } else { (1_u64 << (step - 1)) as f64 };
                let to = if step == STEPS - 1 { longest } else { (1_u64 << step) as f64 };
                let part = (rank - below) as f64 / *turns as f64;
                return Some((from + (to.max(from) - from) * part).min(longest));
            }
            below += turns;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths: impl IntoIterator<Item = u64>) -> (Spread, u64) {
        let (mut spread, mut longest) = (Spread::default(), 0);
        for ms in lengths {
            spread.add(ms);
            longest = longest.max(ms);
        }
        (spread, longest)
    }

    #[test]
    fn a_percentile_is_within_a_step_of_the_true_one() {
        for lengths in [
            (0..1_000).collect::<Vec<u64>>(),
            (0..1_000).map(|i| i * i).collect(),
            (0..100).map(|i| if i < 90 { 20 } else { 3_000_000 }).collect(),
            vec![7_200_000; 3],
            vec![1],
        ] {
            let (spread, longest) = of(lengths.clone());
            for percent in [50, 95] {
                let exact = lengths[(lengths.len() * percent).div_ceil(100) - 1] as f64;
                let found = spread.within(percent as u64, longest).unwrap_or_default();
                assert!((exact / 2.0..=exact * 2.0 + 1.0).contains(&found), "{found}, not {exact}");
            }
        }
    }

    #[test]
    fn the_lengths_of_none_are_unknown_and_those_of_two_are_those_of_all() {
        assert_eq!(Spread::default().within(50, 9), None);
        let ((one, _), (other, longest)) = (of([5; 10]), of([700; 30]));
        let both = one.and(other);
        assert_eq!(both, of([5; 10].into_iter().chain([700; 30])).0);
        assert_eq!(both.within(25, longest).map(|ms| ms <= 8.0), Some(true));
        assert_eq!(both.within(95, longest), Some(700.0), "never longer than the longest");
    }
}
