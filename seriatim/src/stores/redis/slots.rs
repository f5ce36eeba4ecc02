//! Which server of a cluster has which hash slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::Value;

pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key, or of its hash tag.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key).unwrap_or(key)) % SLOTS
}

/// What is between the first braces, if that is not empty.
pub(super) fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let begin = key.iter().position(|b| *b == b'{')? + 1;
    let length = key[begin..].iter().position(|b| *b == b'}')?;
    (length > 0).then(|| &key[begin..begin + length])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

/// The master of each slot, as `host:port`.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Vec<(u16, u16, Arc<str>)>);

impl Slots {
    /// Reads an answer to `CLUSTER SLOTS`; `asked` is the host that gave it, and may name itself by nothing.
    pub(super) fn read(answer: Value, asked: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut slots = Vec::new();
        for range in ranges {
            let Value::Array(fields) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &fields[..]
            else {
                return None;
            };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            let host = match host {
                Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
                Value::SimpleString(host) if !host.is_empty() => host,
                _ => asked,
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            slots.push((first, last, format!("{host}:{port}").into()));
        }
        (!slots.is_empty()).then_some(Self(slots))
    }

    pub(super) fn master(&self, slot: u16) -> Option<Arc<str>> {
        let has = |(first, last, _): &&(u16, u16, Arc<str>)| (*first..=*last).contains(&slot);
        // The last ranges are the newest.
        self.0.iter().rev().find(has).map(|(_, _, master)| master.clone())
    }

    /// Takes note that a slot has moved.
    pub(super) fn moved(&mut self, slot: u16, master: &str) {
        self.0.retain(|(first, last, _)| (*first, *last) != (slot, slot));
        self.0.push((slot, slot, master.into()));
    }

    pub(super) fn masters(&self) -> BTreeSet<Arc<str>> {
        self.0.iter().map(|(_, _, master)| master.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Slots, slot_of};

    #[test]
    fn slots_are_those_that_redis_computes() {
        for (key, slot) in [("", 0), ("123456789", 12_739), ("foo", 12_182), ("a{foo}b", 12_182)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"{}foo"), slot_of(b"{}foo"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b"{}bar"));
    }

    #[test]
    fn a_slot_belongs_to_its_master_until_it_moves() {
        let master = |host: &[u8], port| {
            Value::Array(vec![Value::BulkString(host.to_vec()), Value::Int(port)])
        };
        let range =
            |first, last, master| Value::Array(vec![Value::Int(first), Value::Int(last), master]);
        let answer = Value::Array(vec![
            range(0, 99, master(b"", 1)),
            range(100, 16_383, master(b"10.0.0.2", 2)),
        ]);
        let mut slots = Slots::read(answer, "10.0.0.1").unwrap();
        let of = |slots: &Slots, slot| slots.master(slot).unwrap().to_string();
        assert_eq!((of(&slots, 99), of(&slots, 100)), ("10.0.0.1:1".into(), "10.0.0.2:2".into()));
        slots.moved(99, "10.0.0.3:3");
        slots.moved(99, "10.0.0.4:4");
        assert_eq!((of(&slots, 98), of(&slots, 99)), ("10.0.0.1:1".into(), "10.0.0.4:4".into()));
        assert_eq!(slots.masters().len(), 3);
        assert!(
            Slots::read(Value::Nil, "").is_none()
                && Slots::read(Value::Array(vec![]), "").is_none()
        );
    }
}
