//! Second successes, and whether what happened meanwhile accounts for them.
//!
//! A record may succeed twice (O5), but only where its acknowledgement can have been lost: the broker was killed, or the
//! member that worked on it first was, while that one's lock was open. Or its lock ran out: a client that stood still
//! for so long is not to blame, and is told of apart. A broker that forgets acknowledgements at leisure is found by
//! this, although it keeps every order.

use std::collections::HashMap;

use crate::event_log::{Event, What};

/// A record that succeeded once more, with nothing that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexplained {
    /// Partition of the record.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Who succeeded first, and when.
    pub first: (String, i64),
    /// Who succeeded next, and when.
    pub second: (String, i64),
}

/// When locks of members ran out that no restart of the broker had cut off from their holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// Times between which a look at the broker found that its counter had risen.
    pub seen_ns: Vec<(i64, i64)>,
    /// How soon a record whose lock ran out is at work again, at most.
    pub soon_ns: i64,
}

impl Expiries {
    /// Whether a record that somebody began to work on at `start_ns` can have come from a lock that had run out.
    pub fn explain(&self, start_ns: i64) -> bool {
        let before = |(from, to): &(i64, i64)| *from <= start_ns && start_ns <= to + self.soon_ns;
        self.seen_ns.iter().any(before)
    }

    /// Whether somebody worked on this record by a delivery that was over: a later one had begun before, and a lock ran
    /// out while the member said nothing. A stock client is not told so.
    pub fn outdated(&self, events: &[Event], (partition, offset): (i32, i64)) -> bool {
        let starts = || {
            events.iter().filter(|event| {
                (event.partition, event.offset, event.what) == (partition, offset, What::Start)
            })
        };
        starts().any(|event| {
            let overtaken =
                starts().any(|other| other.at_ns < event.at_ns && other.deliveries > event.deliveries);
            let of_member = events.iter().filter(|other| other.member == event.member);
            let silent_from = of_member.map(|other| other.at_ns).filter(|at| *at < event.at_ns).max();
            let silent = silent_from.unwrap_or(i64::MIN)..=event.at_ns;
            overtaken && self.seen_ns.iter().any(|(from, to)| silent.contains(from) || silent.contains(to))
        })
    }
}

/// How often records came again after they had succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redeliveries {
    /// Successes of records that had succeeded before.
    pub again: usize,
    /// Those of them that came again when a lock had run out.
    pub expired: usize,
    /// Those of them that nothing explains.
    pub unexplained: Vec<Unexplained>,
}

/// One success.
struct Success<'a> {
    member: &'a str,
    start_ns: i64,
    end_ns: i64,
}

/// Looks at all successes. `broker_kills_ns` are the times at which the broker was killed, `lock_ns` is how long a
/// member may hold a record before it begins to work on it.
pub fn redeliveries(
    events: &[Event],
    broker_kills_ns: &[i64],
    lock_ns: i64,
    expiries: &Expiries,
) -> Redeliveries {
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|event| event.at_ns);
    let mut member_ends: HashMap<&str, Vec<i64>> = HashMap::new();
    let mut begun: HashMap<(&str, i32, i64), i64> = HashMap::new();
    let mut successes: HashMap<(i32, i64), Vec<Success<'_>>> = HashMap::new();
    for event in ordered {
        let member = event.member.as_str();
        let place = (member, event.partition, event.offset);
        match event.what {
            What::Start => {
                begun.insert(place, event.at_ns);
            }
            What::Success => {
                let start_ns = begun.remove(&place).unwrap_or(event.at_ns);
                let success = Success { member, start_ns, end_ns: event.at_ns };
                successes.entry((event.partition, event.offset)).or_default().push(success);
            }
            What::Killed => member_ends.entry(member).or_default().push(event.at_ns),
            _ => {}
        }
    }
    let mut found = Redeliveries::default();
    for ((partition, offset), successes) in successes {
        for pair in successes.windows(2) {
            let [first, second] = pair else { continue };
            found.again += 1;
            let within = |from: i64, at: &i64| (from..=second.start_ns).contains(at);
            let broker = broker_kills_ns.iter().any(|at| within(first.start_ns - lock_ns, at));
            let ends = member_ends.get(first.member);
            // It may have lived, and written, for a moment longer than the test's look at the clock.
            let killed = |at: &i64| within(first.start_ns, at) || *at <= first.start_ns;
            let member = ends.is_some_and(|ends| ends.iter().any(killed));
            if broker || member {
                continue;
            }
            if expiries.explain(second.start_ns) {
                found.expired += 1;
            } else {
                found.unexplained.push(Unexplained {
                    partition,
                    offset,
                    first: (first.member.to_owned(), first.end_ns),
                    second: (second.member.to_owned(), second.end_ns),
                });
            }
        }
    }
    found.unexplained.sort_by_key(|case| (case.partition, case.offset, case.second.1));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Expiries = Expiries { seen_ns: Vec::new(), soon_ns: 0 };

    fn event(at_ns: i64, member: &str, what: What) -> Event {
        let (partition, offset) = if what == What::Killed { (-1, -1) } else { (0, 7) };
        Event { at_ns, member: member.to_owned(), what, partition, offset, key: None, deliveries: 1 }
    }

    fn twice() -> Vec<Event> {
        vec![
            event(100, "a", What::Start),
            event(110, "a", What::Success),
            event(200, "b", What::Start),
            event(210, "b", What::Success),
        ]
    }

    #[test]
    fn a_second_success_needs_a_reason() {
        let found = redeliveries(&twice(), &[], 50, &NONE);
        assert_eq!(found.again, 1);
        let Unexplained { offset, first, second, .. } = &found.unexplained[0];
        assert_eq!((*offset, first.1, second.1), (7, 110, 210));
    }

    #[test]
    fn a_kill_of_the_broker_is_one_while_the_lock_was_open() {
        for (at, explained) in [(49, false), (50, true), (150, true), (200, true), (201, false)] {
            let found = redeliveries(&twice(), &[at], 50, &NONE);
            assert_eq!(found.unexplained.is_empty(), explained, "at {at}");
        }
    }

    #[test]
    fn a_kill_of_the_first_member_is_one() {
        for (at, member, explained) in
            [(150, "a", true), (99, "a", true), (250, "a", false), (150, "b", false)]
        {
            let mut events = twice();
            events.push(event(at, member, What::Killed));
            let found = redeliveries(&events, &[], 50, &NONE);
            assert_eq!(found.unexplained.is_empty(), explained, "{member} at {at}");
        }
    }

    #[test]
    fn a_lock_that_ran_out_just_before_is_one() {
        for (seen, explained) in
            [((120, 190), true), ((120, 180), true), ((120, 179), false), ((201, 202), false)]
        {
            let found = redeliveries(&twice(), &[], 50, &Expiries { seen_ns: vec![seen], soon_ns: 20 });
            assert_eq!(
                (found.unexplained.is_empty(), found.expired == 1),
                (explained, explained),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn a_delivery_is_outdated_when_its_lock_ran_out_in_silence() {
        let start =
            |at_ns, member: &str, deliveries| Event { deliveries, ..event(at_ns, member, What::Start) };
        let seen = |from, to| Expiries { seen_ns: vec![(from, to)], soon_ns: 0 };
        let mut events = vec![event(50, "a", What::Ready), start(100, "b", 2), start(200, "a", 1)];
        assert!(seen(90, 95).outdated(&events, (0, 7)));
        assert!(!seen(90, 95).outdated(&events, (0, 8)), "another record");
        assert!(!seen(40, 45).outdated(&events, (0, 7)), "it was at work when that lock ran out");
        events[2].deliveries = 3;
        assert!(!seen(90, 95).outdated(&events, (0, 7)), "its delivery is the newest");
    }

    #[test]
    fn attempts_that_did_not_succeed_are_none() {
        let events = [
            event(100, "a", What::Start),
            event(110, "a", What::Release),
            event(200, "b", What::Start),
            event(210, "b", What::Success),
        ];
        assert_eq!(redeliveries(&events, &[], 50, &NONE), Redeliveries::default());
    }
}
