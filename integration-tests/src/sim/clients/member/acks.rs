//! Acknowledgements that a member has not sent yet, and their form in a request.

use std::collections::BTreeMap;

use coordinator::command::{AckRange, DeliveryNumber};

/// Acknowledgement types on the wire.
pub(in crate::sim::clients) const ACCEPT: i8 = 1;
pub(in crate::sim::clients) const RELEASE: i8 = 2;
pub(in crate::sim::clients) const REJECT: i8 = 3;
pub(in crate::sim::clients) const RENEW: i8 = 4;

/// By partition and offset, at most one each.
#[derive(Debug, Default)]
pub(in crate::sim::clients) struct Acks {
    waiting: BTreeMap<(i32, i64), (DeliveryNumber, i8)>,
}

impl Acks {
    pub(in crate::sim::clients) fn put(
        &mut self,
        index: i32,
        offset: i64,
        delivery: DeliveryNumber,
        kind: i8,
    ) {
        self.waiting.insert((index, offset), (delivery, kind));
    }

    pub(in crate::sim::clients) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::sim::clients) fn has_renewals(&self) -> bool {
        self.waiting.values().any(|(_, kind)| *kind == RENEW)
    }

    pub(in crate::sim::clients) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Everything, as ascending ranges by partition: adjacent offsets in one, with a type each where they differ (as
    /// Java sends them); with delivery numbers only what has number and type in common.
    pub(in crate::sim::clients) fn take(&mut self, numbered: bool) -> BTreeMap<i32, Vec<AckRange>> {
        let mut parts: BTreeMap<i32, Vec<AckRange>> = BTreeMap::new();
        for ((index, offset), (delivery, kind)) in std::mem::take(&mut self.waiting) {
            let ranges = parts.entry(index).or_default();
            let delivery = numbered.then_some(delivery);
            match ranges.last_mut() {
                Some(range)
                    if range.last + 1 == offset
                        && (!numbered || (range.delivery == delivery && range.types[0] == kind)) =>
                {
                    range.last = offset;
                    range.types.push(kind);
                }
                _ => ranges.push(AckRange {
                    first: offset,
                    last: offset,
                    types: vec![kind],
                    delivery,
                    delay_ms: None,
                    reason: None,
                }),
            }
        }
        for range in parts.values_mut().flatten() {
            if range.types.iter().all(|kind| *kind == range.types[0]) {
                range.types.truncate(1);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_offsets_share_a_range() {
        let mut acks = Acks::default();
        for (offset, kind) in [(3, ACCEPT), (4, ACCEPT), (5, RELEASE), (9, ACCEPT)] {
            acks.put(0, offset, DeliveryNumber(7), kind);
        }
        let parts = acks.take(false);
        let ranges: Vec<_> =
            parts[&0].iter().map(|range| (range.first, range.last, &range.types[..])).collect();
        assert_eq!(ranges, [(3, 5, &[1, 1, 2][..]), (9, 9, &[1][..])]);
        assert!(acks.is_empty());
    }

    #[test]
    fn with_numbers_a_range_has_one_number_and_one_type() {
        let mut acks = Acks::default();
        for (offset, number, kind) in [(1, 7, ACCEPT), (2, 7, ACCEPT), (3, 8, ACCEPT), (4, 8, RELEASE)] {
            acks.put(0, offset, DeliveryNumber(number), kind);
        }
        let parts = acks.take(true);
        let ranges: Vec<_> = parts[&0].iter().map(|range| (range.first, range.last)).collect();
        assert_eq!(ranges, [(1, 2), (3, 3), (4, 4)]);
    }
}
