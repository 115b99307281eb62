//! How long a job of keyed records took, beside how long it had to take.
//!
//! Pure: it sees the events that workers wrote down, and nothing else. The ideal is the larger of all work divided by
//! the workers and the work of the heaviest key, from the durations as they were measured: what a perfect scheduler
//! without any overhead takes, about.

use std::collections::HashMap;

use integration_tests::event_log::{Event, What};
use integration_tests::order_checker::{ProducedRecord, check};

use crate::mixes::Mix;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Makespan {
    /// From the first record's start to the last one's end, in seconds.
    pub took_s: f64,
    /// What it had to take, in seconds.
    pub ideal_s: f64,
    /// Times that order was broken: two workers at one key, or a later record before an earlier one.
    pub violations: usize,
    /// Records that were worked on more than once.
    pub again: usize,
    /// Records that were never worked off.
    pub lost: usize,
}

impl Makespan {
    /// Judges a run of this mix by so many workers.
    #[must_use]
    pub fn of(mix: &Mix, workers: usize, events: &[Event]) -> Self {
        let produced: Vec<ProducedRecord> = (0..)
            .zip(&mix.records)
            .map(|(offset, (key, _))| ProducedRecord { partition: 0, offset, key: key.clone() })
            .collect();
        let report = check(&produced, events);
        let mut begun: HashMap<(&str, i64), i64> = HashMap::new();
        let mut by_key: HashMap<&str, i64> = HashMap::new();
        let (mut total_ns, mut first_ns, mut last_ns) = (0, i64::MAX, i64::MIN);
        for event in events {
            let place = (event.member.as_str(), event.offset);
            match event.what {
                What::Start => {
                    begun.insert(place, event.at_ns);
                    first_ns = first_ns.min(event.at_ns);
                }
                What::Success => {
                    let work_ns = begun.remove(&place).map_or(0, |from| event.at_ns - from);
                    total_ns += work_ns;
                    last_ns = last_ns.max(event.at_ns);
                    if let Some(key) = &event.key {
                        *by_key.entry(key).or_default() += work_ns;
                    }
                }
                _ => {}
            }
        }
        let heaviest_ns = by_key.values().copied().max().unwrap_or(0);
        Self {
            took_s: (last_ns - first_ns) as f64 / 1e9,
            ideal_s: (total_ns as f64 / workers as f64).max(heaviest_ns as f64) / 1e9,
            violations: report.order_violations(),
            again: report.duplicates,
            lost: report.lost(),
        }
    }

    /// How many times the ideal.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.took_s / self.ideal_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: i64, member: &str, what: What, offset: i64, key: &str) -> Event {
        Event {
            at_ns: at_ms * 1_000_000,
            member: member.to_owned(),
            what,
            partition: 0,
            offset,
            key: Some(key.to_owned()),
            deliveries: 1,
        }
    }

    fn mix() -> Mix {
        let record = |key: &str| (Some(key.to_owned()), String::new());
        Mix { name: "test", records: vec![record("a"), record("b"), record("a")] }
    }

    #[test]
    fn the_heaviest_key_bounds_the_ideal() {
        let events = [
            event(0, "x", What::Start, 0, "a"),
            event(0, "y", What::Start, 1, "b"),
            event(10, "x", What::Success, 0, "a"),
            event(10, "y", What::Success, 1, "b"),
            event(20, "y", What::Start, 2, "a"),
            event(30, "y", What::Success, 2, "a"),
        ];
        let run = Makespan::of(&mix(), 2, &events);
        assert_eq!((run.violations, run.again, run.lost), (0, 0, 0));
        // 30 ms of work by 2 workers would be 15, but a alone has 20.
        assert!((run.took_s - 0.030).abs() < 1e-9 && (run.ideal_s - 0.020).abs() < 1e-9, "{run:?}");
        let run = Makespan::of(&mix(), 1, &events);
        assert!((run.ratio() - 1.0).abs() < 1e-9, "{run:?}");
    }

    #[test]
    fn what_goes_wrong_is_counted() {
        let events = [
            event(0, "x", What::Start, 2, "a"),
            event(5, "y", What::Start, 0, "a"),
            event(10, "x", What::Success, 2, "a"),
            event(12, "y", What::Success, 0, "a"),
        ];
        let run = Makespan::of(&mix(), 2, &events);
        assert!(run.violations > 0);
        assert_eq!(run.lost, 1);
    }
}
