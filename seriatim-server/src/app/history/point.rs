//! Points, and rows of them as they are stored.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::spread::{STEPS, Spread};

/// What a row keeps of an interval: numbers, and how those of two intervals become one.
pub(crate) trait Interval: Copy {
    fn numbers(self) -> [u64; NUMBERS];
    fn of(numbers: [u64; NUMBERS]) -> Self;
    /// One interval with this one behind it.
    fn then(self, next: Self) -> Self;
}

/// Numbers of an interval. They are stored in parts, and parts of zeros are left out.
pub(crate) const NUMBERS: usize = PARTS * PART;
const PARTS: usize = 4;
const PART: usize = 7;
/// Points of a row: minutes of an hour, or hours of a day.
const SLOTS_MAX: usize = 60;
/// Each part of a point is stored as one with its slot and a multiple of this. Builds that know the first part only take the
/// others for slots that do not exist.
const SLOTS: usize = 64;

/// The figures of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Point {
    /// Jobs done in the interval
    pub(crate) done: u64,
    /// Turns failed in the interval
    pub(crate) failed: u64,
    /// The longest that the oldest due lane had waited, in seconds
    pub(crate) lag: u64,
    /// The others are those at the end of the interval
    pub(crate) jobs: u64,
    pub(crate) running: u64,
    pub(crate) retrying: u64,
    pub(crate) dead: u64,
}

/// The figures of the store's server; zero if it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorePoint {
    /// At the end of the interval
    pub(crate) bytes: u64,
    /// The most in the interval
    pub(crate) connections: u64,
    /// Transactions, statements or commands in the interval
    pub(crate) operations: u64,
}

/// Turns in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskPoint {
    pub(crate) turns: u64,
    pub(crate) failed: u64,
    /// Of all turns together.
    pub(crate) took_ms: u64,
    pub(crate) longest_ms: u64,
    /// Empty if an earlier build wrote it.
    pub(crate) spread: Spread,
}

/// The numbers of an interval that has one part.
fn first(part: [u64; PART]) -> [u64; NUMBERS] {
    let mut numbers = [0; NUMBERS];
    numbers[..PART].copy_from_slice(&part);
    numbers
}

impl Interval for StorePoint {
    fn numbers(self) -> [u64; NUMBERS] {
        first([self.bytes, self.connections, self.operations, 0, 0, 0, 0])
    }

    fn of([bytes, connections, operations, ..]: [u64; NUMBERS]) -> Self {
        Self { bytes, connections, operations }
    }

    fn then(self, next: Self) -> Self {
        Self {
            bytes: next.bytes,
            connections: self.connections.max(next.connections),
            operations: self.operations + next.operations,
        }
    }
}

impl Interval for Point {
    fn numbers(self) -> [u64; NUMBERS] {
        first([self.done, self.failed, self.lag, self.jobs, self.running, self.retrying, self.dead])
    }

    fn of([done, failed, lag, jobs, running, retrying, dead, ..]: [u64; NUMBERS]) -> Self {
        Self { done, failed, lag, jobs, running, retrying, dead }
    }

    fn then(self, next: Self) -> Self {
        Self {
            done: self.done + next.done,
            failed: self.failed + next.failed,
            lag: self.lag.max(next.lag),
            ..next
        }
    }
}

impl Interval for TaskPoint {
    fn numbers(self) -> [u64; NUMBERS] {
        let mut numbers = [0; NUMBERS];
        let (first, spread) = numbers.split_at_mut(NUMBERS - STEPS);
        first.copy_from_slice(&[self.turns, self.failed, self.took_ms, self.longest_ms]);
        spread.copy_from_slice(&self.spread.0);
        numbers
    }

    fn of(numbers: [u64; NUMBERS]) -> Self {
        let [turns, failed, took_ms, longest_ms, spread @ ..] = numbers;
        Self { turns, failed, took_ms, longest_ms, spread: Spread(spread) }
    }

    fn then(self, next: Self) -> Self {
        Self {
            turns: self.turns + next.turns,
            failed: self.failed + next.failed,
            took_ms: self.took_ms + next.took_ms,
            longest_ms: self.longest_ms.max(next.longest_ms),
            spread: self.spread.and(next.spread),
        }
    }
}

impl Point {
    /// Two queues in the same interval.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            failed: self.failed + other.failed,
            lag: self.lag.max(other.lag),
            jobs: self.jobs + other.jobs,
            running: self.running + other.running,
            retrying: self.retrying + other.retrying,
            dead: self.dead + other.dead,
        }
    }

    /// Nothing was done and nothing waits.
    pub(crate) fn is_idle(self) -> bool {
        (self.done, self.failed, self.jobs) == (0, 0, 0)
    }
}

impl TaskPoint {
    pub(crate) fn add(&mut self, took: Duration, has_failed: bool) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.turns += 1;
        self.failed += u64::from(has_failed);
        self.took_ms = self.took_ms.saturating_add(ms);
        self.longest_ms = self.longest_ms.max(ms);
        self.spread.add(ms);
    }
}

/// Some points of an hour or a day.
#[derive(Clone, Debug)]
pub(super) struct Row<P>([Option<P>; SLOTS_MAX]);

impl<P: Interval> Default for Row<P> {
    fn default() -> Self {
        Self([None; SLOTS_MAX])
    }
}

impl<P: Interval> Row<P> {
    pub(super) fn set(&mut self, slot: usize, point: P) {
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(point);
        }
    }

    pub(super) fn points(&self) -> impl Iterator<Item = (usize, P)> {
        self.0.iter().enumerate().filter_map(|(slot, point)| Some((slot, (*point)?)))
    }

    /// All points as one.
    pub(super) fn together(&self) -> Option<P> {
        self.points().map(|(_, point)| point).reduce(P::then)
    }

    /// Of each part of a point its slot and its numbers, 7 bits in a byte, the lowest first.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (slot, point) in self.points() {
            for (part, numbers) in point.numbers().chunks(PART).enumerate() {
                if part > 0 && numbers.iter().all(|number| *number == 0) {
                    continue;
                }
                bytes.push((slot + part * SLOTS) as u8);
                numbers.iter().for_each(|number| pack(*number, &mut bytes));
            }
        }
        bytes
    }

    /// What cannot be read is left out: it is history only.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut points = vec![None; SLOTS_MAX];
        let mut bytes = bytes.iter().copied();
        while let Some(place) = bytes.next().map(usize::from) {
            let mut numbers = [0; PART];
            if !numbers
                .iter_mut()
                .all(|number| unpack(&mut bytes).map(|read| *number = read).is_some())
            {
                break;
            }
            if let Some(point) = points.get_mut(place % SLOTS) {
                let from = place / SLOTS * PART;
                point.get_or_insert([0; NUMBERS])[from..from + PART].copy_from_slice(&numbers);
            }
        }
        let mut row = Self::default();
        for (slot, numbers) in points.into_iter().enumerate() {
            if let Some(numbers) = numbers {
                row.set(slot, P::of(numbers));
            }
        }
        row
    }
}

fn pack(mut number: u64, bytes: &mut Vec<u8>) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn unpack(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        shift += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_stored_in_few_bytes_and_read_as_it_was() {
        let mut row = Row::default();
        for slot in 0..SLOTS_MAX {
            let done = slot as u64 * 1_000;
            row.set(slot, Point { done, lag: 7, jobs: u64::MAX, dead: 128, ..Point::default() });
        }
        let read = Row::<Point>::read(&row.packed());
        assert!(read.points().eq(row.points()));
        assert_eq!(
            row.together().map(|all| (all.done, all.lag, all.dead)),
            Some((1_770_000, 7, 128))
        );
        let mut busy = Row::default();
        (0..SLOTS_MAX).for_each(|slot| {
            busy.set(
                slot,
                Point {
                    done: 100_000,
                    failed: 900,
                    lag: 60,
                    jobs: 9_000,
                    running: 50,
                    retrying: 90,
                    dead: 9,
                },
            );
        });
        assert!(busy.packed().len() <= 2_048, "{}", busy.packed().len());
    }

    #[test]
    fn what_is_no_row_is_read_without_harm() {
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|i: u32| (i * 37 + length) as u8).collect();
            assert!(Row::<Point>::read(&bytes).points().count() <= SLOTS_MAX);
        }
    }
}
