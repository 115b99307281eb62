//! Judges the event logs of a key-ordered share group: who worked on what, when, and what came of it.
//!
//! Input: the records that were produced and the events of all members. Output: a report. Pure: no clock, no file,
//! the same input gives the same report. It holds the group to what an application sees of O1, O2 and O5 with one
//! record of a key in flight (`sluice.share.key.max.inflight=1`):
//! - exclusive: two members never work on one key at once;
//! - order: work on a record begins only when all earlier records of its key have succeeded;
//! - no stale end: the last success of a record never comes after that of a later one of its key, which would leave an
//!   old state behind;
//! - no loss: every record succeeds at least once; and none shows up that was not produced.
//!
//! A record that succeeds twice is no violation (at least once), but is counted, and so is a key that is worked on once
//! more from an earlier record. Keyless records have no order.

pub mod redeliveries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::event_log::{Event, What};

/// How many violations of a kind a report prints; all are kept.
const VIOLATIONS_PRINTED_MAX: usize = 10;

/// A record that was produced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducedRecord {
    /// Partition that holds it.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its key; `None` for a keyless one.
    pub key: Option<String>,
}

/// What a key-ordered group must never do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// `second` began work on a key while `first` was still at work on it.
    Overlap {
        /// Partition and key.
        key: KeyName,
        /// Member and offset that were at work.
        first: (String, i64),
        /// Member and offset that began too early.
        second: (String, i64),
    },
    /// Work on `offset` began while `earlier`, of the same key, had not succeeded.
    Overtake {
        /// Partition and key.
        key: KeyName,
        /// The record that had to wait for.
        earlier: i64,
        /// The record that did not wait.
        offset: i64,
        /// The member that worked on it.
        member: String,
    },
    /// The last success of `offset` came after the last one of `later`, of the same key: an old state stayed behind.
    StaleEnd {
        /// Partition and key.
        key: KeyName,
        /// The record that came late.
        offset: i64,
        /// The record that should have come after it.
        later: i64,
    },
    /// A produced record never succeeded.
    Lost(ProducedRecord),
    /// A member worked on a record that was never produced, or whose key was another.
    Unknown {
        /// The record as the member saw it.
        record: ProducedRecord,
        /// The member.
        member: String,
    },
}

/// A key of one partition, as violations name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName {
    /// The partition.
    pub partition: i32,
    /// The key.
    pub key: String,
}

/// A success of `offset` after one of `later`, of the same key. No violation by itself: where acknowledgements are lost
/// with a broker, all that a member had worked off is worked off once more, in order. But a member that held one record
/// of the key at a time cannot have worked on the later one before the earlier one was acknowledged for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// Partition and key.
    pub key: KeyName,
    /// The record that succeeded once more.
    pub offset: i64,
    /// The record that had succeeded before.
    pub later: i64,
    /// The member that had first worked on the later one.
    pub later_member: String,
}

/// What the logs show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All violations, by kind in the order of [`Violation`], then by partition, key and time.
    pub violations: Vec<Violation>,
    /// Records produced.
    pub records: usize,
    /// Different keys among them, counted per partition.
    pub keys: usize,
    /// Times that work on a record began.
    pub starts: usize,
    /// Times that it was released.
    pub releases: usize,
    /// Successes of a record that had succeeded before.
    pub duplicates: usize,
    /// Records that were worked on again although a later one of their key had succeeded.
    pub rewinds: Vec<Rewind>,
    /// Successes of each member.
    pub successes: BTreeMap<String, usize>,
}

/// Checks the events of all members, in any order, against what was produced.
pub fn check(produced: &[ProducedRecord], events: &[Event]) -> Report {
    let mut report = Report { records: produced.len(), ..Report::default() };
    let mut attempts_of = attempts(events, &mut report);

    let mut keys: BTreeMap<KeyName, Vec<i64>> = BTreeMap::new();
    let mut known: HashMap<(i32, i64), &ProducedRecord> = HashMap::new();
    for record in produced {
        known.insert((record.partition, record.offset), record);
        if let Some(key) = &record.key {
            keys.entry(KeyName { partition: record.partition, key: key.clone() })
                .or_default()
                .push(record.offset);
        }
    }
    report.keys = keys.len();

    let mut unknown = Vec::new();
    let mut by_key: HashMap<KeyName, Vec<Attempt>> = HashMap::new();
    let mut succeeded: HashMap<(i32, i64), usize> = HashMap::new();
    attempts_of.sort_by(|a, b| (a.start_ns, &a.member, a.offset).cmp(&(b.start_ns, &b.member, b.offset)));
    for attempt in attempts_of {
        let place = (attempt.partition, attempt.offset);
        if known.get(&place).is_none_or(|record| record.key != attempt.key) {
            let record = ProducedRecord { partition: place.0, offset: place.1, key: attempt.key.clone() };
            unknown.push(Violation::Unknown { record, member: attempt.member.clone() });
            continue;
        }
        if attempt.succeeded {
            *succeeded.entry(place).or_default() += 1;
            *report.successes.entry(attempt.member.clone()).or_default() += 1;
        }
        if let Some(key) = &attempt.key {
            let name = KeyName { partition: attempt.partition, key: key.clone() };
            by_key.entry(name).or_default().push(attempt);
        }
    }
    report.duplicates = succeeded.values().map(|times| times - 1).sum();

    let (mut overlaps, mut overtakes, mut stale_ends) = (Vec::new(), Vec::new(), Vec::new());
    for (key, mut offsets) in keys {
        let attempts = by_key.remove(&key).unwrap_or_default();
        offsets.sort_unstable();
        find_overlaps(&key, &attempts, &mut overlaps);
        let successes = successes(&offsets, &attempts);
        find_overtakes(&key, &offsets, &successes, &attempts, &mut overtakes);
        find_stale_ends(&key, &offsets, &successes, &mut stale_ends);
        find_rewinds(&key, &offsets, &successes, &attempts, &mut report.rewinds);
    }
    let mut lost: Vec<&ProducedRecord> = produced
        .iter()
        .filter(|record| !succeeded.contains_key(&(record.partition, record.offset)))
        .collect();
    lost.sort();
    report.violations = overlaps;
    report.violations.extend(overtakes);
    report.violations.extend(stale_ends);
    report.violations.extend(lost.into_iter().cloned().map(Violation::Lost));
    report.violations.extend(unknown);
    report
}

/// What happened to a record and to the one that it is at odds with: their events in order of time, one a line, for
/// the first `violations_max` violations of order.
pub fn explain(report: &Report, events: &[Event], violations_max: usize) -> String {
    let mut text = String::new();
    for violation in
        report.violations.iter().filter(|violation| violation.places().is_some()).take(violations_max)
    {
        let (key, offsets) = violation.places().expect("others were filtered out");
        let mut about: Vec<&Event> = events
            .iter()
            .filter(|event| event.partition == key.partition && offsets.contains(&event.offset))
            .collect();
        about.sort_by_key(|event| event.at_ns);
        let begin = about.first().map_or(0, |event| event.at_ns);
        text.push_str(&format!("{violation:?}\n"));
        for event in about {
            let ms = (event.at_ns - begin) as f64 / 1e6;
            let Event { member, what, offset, deliveries, .. } = event;
            text.push_str(&format!("  {ms:>9.3} ms {member}: {what:?} of {offset}, delivery {deliveries}\n"));
        }
    }
    text
}

impl Violation {
    /// Partition and offset of each record that it is about.
    pub fn records(&self) -> Vec<(i32, i64)> {
        match (self, self.places()) {
            (_, Some((key, offsets))) => offsets.map(|offset| (key.partition, offset)).to_vec(),
            (Self::Lost(record) | Self::Unknown { record, .. }, _) => vec![(record.partition, record.offset)],
            (_, None) => Vec::new(),
        }
    }

    /// The key and the offsets that are at odds, where order is what was broken.
    fn places(&self) -> Option<(&KeyName, [i64; 2])> {
        match self {
            Self::Overlap { key, first, second } => Some((key, [first.1, second.1])),
            Self::Overtake { key, earlier, offset, .. } => Some((key, [*earlier, *offset])),
            Self::StaleEnd { key, offset, later } => Some((key, [*offset, *later])),
            Self::Lost(_) | Self::Unknown { .. } => None,
        }
    }
}

impl Report {
    /// Number of violations that concern order: all but losses and unknown records.
    pub fn order_violations(&self) -> usize {
        self.violations
            .iter()
            .filter(|v| !matches!(v, Violation::Lost(_) | Violation::Unknown { .. }))
            .count()
    }

    /// Number of records that never succeeded.
    pub fn lost(&self) -> usize {
        self.violations.iter().filter(|v| matches!(v, Violation::Lost(_))).count()
    }

    /// Panics, with the whole report, when there is a violation.
    #[track_caller]
    pub fn expect_clean(&self) -> &Self {
        assert!(self.violations.is_empty(), "{self}");
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} records, {} keys, {} starts, {} releases, {} duplicates, {} rewinds, {} order violations, {} lost",
            self.records,
            self.keys,
            self.starts,
            self.releases,
            self.duplicates,
            self.rewinds.len(),
            self.order_violations(),
            self.lost()
        )?;
        for (member, successes) in &self.successes {
            writeln!(f, "  {member}: {successes} records")?;
        }
        let mut printed: HashMap<std::mem::Discriminant<Violation>, usize> = HashMap::new();
        for violation in &self.violations {
            let count = printed.entry(std::mem::discriminant(violation)).or_default();
            *count += 1;
            if *count <= VIOLATIONS_PRINTED_MAX {
                writeln!(f, "  {violation:?}")?;
            }
        }
        Ok(())
    }
}

/// One member's work on one record, from its start to its success, its release or the member's end.
#[derive(Clone, Debug)]
struct Attempt {
    member: String,
    partition: i32,
    offset: i64,
    key: Option<String>,
    start_ns: i64,
    end_ns: i64,
    succeeded: bool,
}

fn attempts(events: &[Event], report: &mut Report) -> Vec<Attempt> {
    let mut ordered: Vec<&Event> = events.iter().collect();
    // Within one member the order of the log is the order of events, also where two bear the same time.
    ordered.sort_by_key(|event| event.at_ns);
    let mut open: HashMap<(&str, i32, i64), Attempt> = HashMap::new();
    let mut killed: HashSet<&str> = HashSet::new();
    let mut done = Vec::new();
    for event in ordered {
        let place = (event.member.as_str(), event.partition, event.offset);
        match event.what {
            What::Start => {
                report.starts += 1;
                let attempt = Attempt {
                    member: event.member.clone(),
                    partition: event.partition,
                    offset: event.offset,
                    key: event.key.clone(),
                    start_ns: event.at_ns,
                    end_ns: i64::MAX,
                    succeeded: false,
                };
                // Starting anew ends what the same member had begun and never settled.
                if let Some(before) = open.insert(place, attempt) {
                    done.push(Attempt { end_ns: event.at_ns, ..before });
                }
            }
            What::Success | What::Release | What::Abandoned => {
                report.releases += usize::from(event.what == What::Release);
                if let Some(attempt) = open.remove(&place) {
                    let succeeded = event.what == What::Success;
                    done.push(Attempt { end_ns: event.at_ns, succeeded, ..attempt });
                }
            }
            What::End | What::Killed => {
                if event.what == What::Killed {
                    killed.insert(&event.member);
                }
                let ended: Vec<_> =
                    open.keys().filter(|(member, ..)| *member == event.member).copied().collect();
                for place in ended {
                    let attempt = open.remove(&place).expect("the key was just read from the map");
                    done.push(Attempt { end_ns: event.at_ns, ..attempt });
                }
            }
            What::Produced | What::Consumed | What::Ready | What::AckFailed => {}
        }
    }
    // What a member began between the test's look at the clock and its death.
    done.extend(open.into_values().map(|attempt| {
        let end_ns = if killed.contains(attempt.member.as_str()) { attempt.start_ns } else { attempt.end_ns };
        Attempt { end_ns, ..attempt }
    }));
    done
}

/// `attempts` are sorted by start. Compares each with the one of another member that ends last among those before.
fn find_overlaps(key: &KeyName, attempts: &[Attempt], found: &mut Vec<Violation>) {
    // The attempt that ends last, and the one that ends last among other members' than that one's.
    let (mut last, mut other): (Option<&Attempt>, Option<&Attempt>) = (None, None);
    for attempt in attempts {
        let rival = if last.is_some_and(|l| l.member == attempt.member) { other } else { last };
        if let Some(rival) = rival.filter(|rival| rival.end_ns > attempt.start_ns) {
            found.push(Violation::Overlap {
                key: key.clone(),
                first: (rival.member.clone(), rival.offset),
                second: (attempt.member.clone(), attempt.offset),
            });
        }
        if last.is_none_or(|l| l.end_ns <= attempt.end_ns) {
            if last.is_some_and(|l| l.member != attempt.member) {
                other = last;
            }
            last = Some(attempt);
        } else if last.is_some_and(|l| l.member != attempt.member)
            && other.is_none_or(|o| o.end_ns <= attempt.end_ns)
        {
            other = Some(attempt);
        }
    }
}

/// When a record succeeded, and who was the first.
#[derive(Clone, Copy, Debug)]
struct Successes<'a> {
    first_ns: i64,
    first_member: &'a str,
    last_ns: i64,
}

/// The successes of each of `offsets`; `i64::MAX` for never.
fn successes<'a>(offsets: &[i64], attempts: &'a [Attempt]) -> Vec<Successes<'a>> {
    let never = Successes { first_ns: i64::MAX, first_member: "", last_ns: i64::MAX };
    let mut found = vec![never; offsets.len()];
    for attempt in attempts.iter().filter(|attempt| attempt.succeeded) {
        let of = &mut found[index_of(offsets, attempt)];
        if attempt.end_ns < of.first_ns {
            of.first_ns = attempt.end_ns;
            of.first_member = &attempt.member;
        }
        of.last_ns = if of.last_ns == i64::MAX { attempt.end_ns } else { of.last_ns.max(attempt.end_ns) };
    }
    found
}

fn find_overtakes(
    key: &KeyName,
    offsets: &[i64],
    successes: &[Successes<'_>],
    attempts: &[Attempt],
    found: &mut Vec<Violation>,
) {
    // For each record the earlier one that succeeded last.
    let mut slowest_before: Vec<Option<usize>> = Vec::with_capacity(offsets.len());
    let mut slowest: Option<usize> = None;
    for (index, of) in successes.iter().enumerate() {
        slowest_before.push(slowest);
        if slowest.is_none_or(|s| successes[s].first_ns < of.first_ns) {
            slowest = Some(index);
        }
    }
    for attempt in attempts {
        let before = slowest_before[index_of(offsets, attempt)];
        if let Some(earlier) = before.filter(|&earlier| successes[earlier].first_ns > attempt.start_ns) {
            found.push(Violation::Overtake {
                key: key.clone(),
                earlier: offsets[earlier],
                offset: attempt.offset,
                member: attempt.member.clone(),
            });
        }
    }
}

fn find_stale_ends(key: &KeyName, offsets: &[i64], successes: &[Successes<'_>], found: &mut Vec<Violation>) {
    // The later record whose last success came first.
    let mut fastest: Option<usize> = None;
    for index in (0..offsets.len()).rev().filter(|&index| successes[index].last_ns != i64::MAX) {
        if let Some(later) = fastest.filter(|&later| successes[later].last_ns < successes[index].last_ns) {
            found.push(Violation::StaleEnd {
                key: key.clone(),
                offset: offsets[index],
                later: offsets[later],
            });
        }
        if fastest.is_none_or(|f| successes[index].last_ns < successes[f].last_ns) {
            fastest = Some(index);
        }
    }
}

fn find_rewinds(
    key: &KeyName,
    offsets: &[i64],
    successes: &[Successes<'_>],
    attempts: &[Attempt],
    found: &mut Vec<Rewind>,
) {
    // For each record the later one that succeeded first.
    let mut fastest_after: Vec<Option<usize>> = vec![None; offsets.len()];
    let mut fastest: Option<usize> = None;
    for index in (0..offsets.len()).rev() {
        fastest_after[index] = fastest;
        if fastest.is_none_or(|f| successes[index].first_ns < successes[f].first_ns) {
            fastest = Some(index);
        }
    }
    for attempt in attempts.iter().filter(|attempt| attempt.succeeded) {
        let after = fastest_after[index_of(offsets, attempt)];
        if let Some(later) = after.filter(|&later| successes[later].first_ns < attempt.end_ns) {
            found.push(Rewind {
                key: key.clone(),
                offset: attempt.offset,
                later: offsets[later],
                later_member: successes[later].first_member.to_owned(),
            });
        }
    }
}

fn index_of(offsets: &[i64], attempt: &Attempt) -> usize {
    offsets
        .binary_search(&attempt.offset)
        .expect("attempts on records that were not produced are sorted out before")
}

#[cfg(test)]
mod tests;
