//! Jobs of one queue with the same bytes. Sidekiq 8 has times in milliseconds, so an id that is pushed again within one is
//! written as it was before; yet each push is a job. They are told apart by how many came before.

use std::collections::{BTreeMap, HashMap, VecDeque};

use blake3::Hash;

/// How many jobs are remembered: those of one millisecond stand close together.
const REMEMBERED: usize = 1_000;

/// The last jobs of a queue.
#[derive(Default)]
pub(super) struct Twins {
    /// The start of the server: one that crashed may hand out again what it had forgotten it gave.
    run: String,
    numbers: HashMap<Hash, Vec<u64>>,
    recent: VecDeque<(Hash, u64)>,
}

impl Twins {
    /// Remembers these jobs, which have numbers that grow. How many with the same bytes came before, of those that have any:
    /// the same however often it is asked.
    pub(super) fn number<'a>(
        &mut self,
        run: &str,
        jobs: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> BTreeMap<u64, usize> {
        if self.run != run {
            *self = Self { run: run.to_owned(), ..Self::default() };
        }
        let mut before = BTreeMap::new();
        for (number, bytes) in jobs {
            let hash = blake3::hash(bytes);
            let same = self.numbers.entry(hash).or_default();
            let earlier = same.iter().filter(|one| **one < number).count();
            if earlier > 0 {
                before.insert(number, earlier);
            }
            if !same.contains(&number) {
                same.push(number);
                self.recent.push_back((hash, number));
            }
        }
        while self.recent.len() > REMEMBERED {
            self.forget();
        }
        before
    }

    /// Forgets the oldest one.
    fn forget(&mut self) {
        let Some((hash, number)) = self.recent.pop_front() else { return };
        if let Some(same) = self.numbers.get_mut(&hash) {
            same.retain(|one| *one != number);
            if same.is_empty() {
                self.numbers.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(twins: &mut Twins, run: &str, jobs: &[(u64, &str)]) -> Vec<(u64, usize)> {
        let jobs = jobs.iter().map(|(number, bytes)| (*number, bytes.as_bytes()));
        twins.number(run, jobs).into_iter().collect()
    }

    #[test]
    fn the_same_bytes_are_counted_within_a_batch_and_across_batches_as_often_as_they_are_asked_for()
    {
        let mut twins = Twins::default();
        assert_eq!(number(&mut twins, "a", &[(1, "x"), (2, "y"), (3, "x")]), [(3, 1)]);
        for _ in 0..2 {
            assert_eq!(number(&mut twins, "a", &[(4, "x"), (5, "z"), (6, "x")]), [(4, 2), (6, 3)]);
        }
        // A server that has crashed may hand out what came before the crash.
        assert_eq!(number(&mut twins, "b", &[(4, "x")]), []);
    }

    #[test]
    fn it_remembers_the_last_thousand() {
        let mut twins = Twins::default();
        let texts: Vec<String> = (0..3 * REMEMBERED).map(|n| n.to_string()).collect();
        let jobs: Vec<(u64, &str)> = (1..).zip(texts.iter().map(String::as_str)).collect();
        assert_eq!(number(&mut twins, "a", &jobs), []);
        assert_eq!((twins.recent.len(), twins.numbers.len()), (REMEMBERED, REMEMBERED));
    }
}
