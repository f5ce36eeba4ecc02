//! How many lanes a claim asks the store for at once: a store reads all of them, also those without room in the answer.

use super::super::limits::CLAIM_STEP_BYTES;

/// Lanes of the first step, when nothing is known of their size.
const FIRST: usize = 32;
/// How many times more a step may ask for than the one before.
const GROWTH: usize = 8;

pub(super) struct Stride(usize);

impl Default for Stride {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Stride {
    /// Most lanes of the next step, if this many are still wanted.
    pub(super) fn lanes(&self, room: usize) -> usize {
        self.0.min(room)
    }

    /// The next lanes are likely to be as large as those that came.
    pub(super) fn learn(&mut self, came: usize, bytes: usize) {
        let fit = (CLAIM_STEP_BYTES * came).checked_div(bytes).unwrap_or(usize::MAX);
        self.0 = if came == 0 { 1 } else { fit.clamp(1, self.0 * GROWTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::limits::CLAIM_BYTES_MAX;
    use super::*;

    /// Claims from a store whose lanes all have this size, which reads all lanes that it is asked for. Returns how
    /// many lanes it read, how many came, and in how many steps.
    fn claimed(lane_bytes: usize, limit: usize) -> (usize, usize, usize) {
        let (mut read, mut taken, mut steps, mut stride) = (0, 0, 0, Stride::default());
        while taken < limit && taken * lane_bytes < CLAIM_BYTES_MAX {
            let asked = stride.lanes(limit - taken);
            let came = asked.min(CLAIM_STEP_BYTES / lane_bytes);
            stride.learn(came, came * lane_bytes);
            (read, taken, steps) = (read + asked, taken + came, steps + 1);
        }
        (read, taken, steps)
    }

    #[test]
    fn a_claim_of_many_large_lanes_reads_little_more_than_it_takes() {
        for lane_bytes in [10_000, 60_000, 100_000, 300_000] {
            let (read, taken, _) = claimed(lane_bytes, 1_000);
            assert!(taken > 40, "{lane_bytes}");
            assert!(read <= taken + FIRST, "{lane_bytes}: {read} read, {taken} taken");
        }
    }

    #[test]
    fn a_claim_of_many_small_lanes_takes_few_steps() {
        let (read, taken, steps) = claimed(100, 1_000);
        assert_eq!((read, taken), (1_000, 1_000));
        assert!(steps <= 3, "{steps}");
    }

    #[test]
    fn a_lane_that_fits_in_no_step_is_followed_by_single_ones() {
        let mut stride = Stride::default();
        stride.learn(0, 0);
        assert_eq!(stride.lanes(1_000), 1);
        stride.learn(1, CLAIM_STEP_BYTES * 5);
        assert_eq!(stride.lanes(1_000), 1);
    }
}
