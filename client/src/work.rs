//! What a consumer holds, and what may run: every key in order, keys side by side.
//!
//! Pure: no task, no socket. Invariants: of a lane at most one record runs, and it is the lane's first; a record that
//! is not held any more is never acknowledged; behind a failed record nothing of its lane runs that the broker granted
//! before it heard of the failure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use records::ids::{KeyHash, Offset, PartitionId};
use tokio::time::Instant;

use crate::record::{Outcome, Record};

/// A record's place.
pub(crate) type Place = (PartitionId, Offset);

/// What keeps an order of its own: a key of a partition, or a record without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// The records of one key.
    Key(PartitionId, KeyHash),
    /// One keyless record.
    Alone(PartitionId, Offset),
}

/// One delivered record.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) place: Place,
    pub(crate) lane: Lane,
    pub(crate) number: i64,
    pub(crate) lease_end: Instant,
    pub(crate) record: Record,
}

/// A record that may run now.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) place: Place,
    pub(crate) number: i64,
    pub(crate) record: Record,
}

/// What is to be told to the broker of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) place: Place,
    pub(crate) number: i64,
    pub(crate) verdict: Verdict,
}

/// What is said of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The application's word.
    Done(Outcome),
    /// Given up unworked behind a failed record of its key.
    Withheld,
    /// Still at work: hold the lease.
    Renew,
}

#[derive(Debug)]
struct Held {
    lane: Lane,
    number: i64,
    lease_end: Instant,
    running: bool,
    renewing: bool,
    /// Taken when it starts.
    record: Option<Record>,
}

/// Everything that is held.
#[derive(Debug, Default)]
pub(crate) struct Work {
    held: BTreeMap<Place, Held>,
    lanes: BTreeMap<Lane, VecDeque<Offset>>,
    ready: VecDeque<Lane>,
    /// Lanes in which a record failed or was lost, with the number of the request that first said so (`None`: not sent
    /// yet). Answers to earlier requests may still bring later records of the lane.
    fences: BTreeMap<Lane, Option<u64>>,
}

impl Work {
    /// How many records are held, running ones included.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether something could start.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Request number `request` was sent, with all that was to be told by then.
    pub(crate) fn told(&mut self, request: u64) {
        for fence in self.fences.values_mut().filter(|fence| fence.is_none()) {
            *fence = Some(request);
        }
    }

    /// The answer to request number `request` is here; its deliveries are taken in next.
    pub(crate) fn answered(&mut self, request: u64) {
        self.fences.retain(|_, fence| fence.is_none_or(|told| told > request));
    }

    /// The acknowledgement of a delivery that must not run, because it was granted before the broker heard that an
    /// earlier record of its lane had failed.
    pub(crate) fn refuse(&self, delivery: &Delivery) -> Option<Ack> {
        let fenced = self.fences.contains_key(&delivery.lane);
        fenced.then_some(Ack { place: delivery.place, number: delivery.number, verdict: Verdict::Withheld })
    }

    /// Takes in a delivery. Returns the place of a running record that must stop: an older delivery of the same one.
    pub(crate) fn take(&mut self, delivery: Delivery) -> Option<Place> {
        let Delivery { place, lane, number, lease_end, record } = delivery;
        let stopped = self.held.contains_key(&place).then(|| self.forget(place)).flatten();
        let queue = self.lanes.entry(lane).or_default();
        let at = queue.partition_point(|offset| *offset < place.1);
        queue.insert(at, place.1);
        if queue.len() == 1 {
            self.ready.push_back(lane);
        }
        let held = Held { lane, number, lease_end, running: false, renewing: false, record: Some(record) };
        self.held.insert(place, held);
        stopped
    }

    /// The next record that may run: the lane that has been ready longest.
    pub(crate) fn start(&mut self) -> Option<Start> {
        while let Some(lane) = self.ready.pop_front() {
            let Some(first) = self.lanes.get(&lane).and_then(|queue| queue.front().copied()) else {
                continue;
            };
            let place = (lane.partition(), first);
            let Some(held) = self.held.get_mut(&place).filter(|held| !held.running) else { continue };
            let Some(record) = held.record.take() else { continue };
            held.running = true;
            return Some(Start { place, number: held.number, record });
        }
        None
    }

    /// A record's work ended. What has to be told, in offset order; empty if it is not held any more.
    pub(crate) fn finish(&mut self, place: Place, number: i64, outcome: Outcome) -> Vec<Ack> {
        let Some(held) = self.held.get(&place).filter(|held| held.number == number && held.running) else {
            return Vec::new();
        };
        let lane = held.lane;
        let failed = matches!(outcome, Outcome::Release { .. });
        let mut acks = vec![Ack { place, number, verdict: Verdict::Done(outcome) }];
        self.forget(place);
        if failed {
            self.fence(lane);
            for offset in self.lanes.remove(&lane).unwrap_or_default() {
                let place = (lane.partition(), offset);
                if let Some(held) = self.held.remove(&place) {
                    acks.push(Ack { place, number: held.number, verdict: Verdict::Withheld });
                }
            }
        }
        acks
    }

    /// The broker took these back: running ones that must stop.
    pub(crate) fn recall(
        &mut self,
        partition: PartitionId,
        first: Offset,
        last: Offset,
        number: i64,
    ) -> Vec<Place> {
        let places: Vec<Place> = self
            .held
            .range((partition, first)..=(partition, last))
            .filter(|(_, held)| held.number == number)
            .map(|(place, _)| *place)
            .collect();
        places.into_iter().filter_map(|place| self.forget(place)).collect()
    }

    /// Leases that ran out: how many records were lost, and which running ones must stop. Behind a lost record its
    /// whole lane is lost: somebody else may be at work on it.
    pub(crate) fn expire(&mut self, now: Instant) -> (usize, Vec<Place>) {
        let over: BTreeSet<Lane> =
            self.held.values().filter(|held| held.lease_end <= now).map(|held| held.lane).collect();
        let (before, mut running) = (self.held.len(), Vec::new());
        for lane in over {
            self.fence(lane);
            for offset in self.lanes.remove(&lane).unwrap_or_default() {
                let place = (lane.partition(), offset);
                running.extend(self.held.remove(&place).filter(|held| held.running).map(|_| place));
            }
        }
        (before - self.held.len(), running)
    }

    /// Gives up everything: running ones that must stop.
    pub(crate) fn drop_all(&mut self) -> Vec<Place> {
        let running = self.held.iter().filter(|(_, held)| held.running).map(|(place, _)| *place).collect();
        *self = Self::default();
        running
    }

    /// Gives up what does not run yet (the consumer stops).
    pub(crate) fn drop_waiting(&mut self) {
        let waiting: Vec<Place> =
            self.held.iter().filter(|(_, held)| !held.running).map(|(place, _)| *place).collect();
        for place in waiting {
            self.forget(place);
        }
        self.ready.clear();
    }

    /// What must be renewed now: leases that end within `margin` and are not being renewed yet.
    pub(crate) fn renew(&mut self, now: Instant, margin: Duration) -> Vec<Ack> {
        let mut acks = Vec::new();
        for (place, held) in &mut self.held {
            if !held.renewing && held.lease_end < now + margin {
                held.renewing = true;
                acks.push(Ack { place: *place, number: held.number, verdict: Verdict::Renew });
            }
        }
        acks
    }

    /// The broker renewed this delivery of these until `lease_end`. A newer one of the same record has its own lease.
    pub(crate) fn renewed(
        &mut self,
        (partition, first, last): (PartitionId, Offset, Offset),
        number: i64,
        lease_end: Instant,
    ) {
        let places = (partition, first)..=(partition, last);
        for held in self.held.range_mut(places).map(|(_, held)| held).filter(|held| held.number == number) {
            held.renewing = false;
            held.lease_end = lease_end;
        }
    }

    /// When the first lease is within `margin` of its end, or over.
    pub(crate) fn next_deadline(&self, margin: Duration) -> Option<Instant> {
        self.held
            .values()
            .map(|held| if held.renewing { held.lease_end } else { held.lease_end - margin })
            .min()
    }

    /// Takes a record out; its place if it was running. The lane goes on with its next one.
    fn forget(&mut self, place: Place) -> Option<Place> {
        let held = self.held.remove(&place)?;
        if let Some(queue) = self.lanes.get_mut(&held.lane) {
            let was_first = queue.front() == Some(&place.1);
            queue.retain(|offset| *offset != place.1);
            if queue.is_empty() {
                self.lanes.remove(&held.lane);
            } else if was_first || held.running {
                // An earlier record may have come in while this one ran: the lane waits for its end all the same.
                self.ready.push_back(held.lane);
            }
        }
        held.running.then_some(place)
    }

    fn fence(&mut self, lane: Lane) {
        if matches!(lane, Lane::Key(..)) {
            self.fences.insert(lane, None);
        }
    }
}

impl Lane {
    fn partition(self) -> PartitionId {
        match self {
            Self::Key(partition, _) | Self::Alone(partition, _) => partition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use std::sync::Arc;

    const P: PartitionId = PartitionId { topic: records::ids::TopicId([1; 16]), index: 0 };

    fn delivery(offset: i64, key: Option<u64>, number: i64) -> Delivery {
        let place = (P, Offset(offset));
        let lane = key.map_or(Lane::Alone(P, place.1), |key| Lane::Key(P, KeyHash(key)));
        let record = Record {
            topic: Arc::from("t"),
            partition: 0,
            offset: place.1,
            timestamp: 0,
            key: None,
            value: None,
            headers: Vec::new(),
            delivery_count: 1,
        };
        Delivery { place, lane, number, lease_end: now() + Duration::from_secs(30), record }
    }

    fn started(work: &mut Work) -> Vec<i64> {
        std::iter::from_fn(|| work.start()).map(|start| start.place.1.get()).collect()
    }

    #[test]
    fn keys_run_side_by_side_and_each_in_order() {
        let mut work = Work::default();
        for (offset, key) in [(0, 7), (1, 8), (2, 7), (3, 8)] {
            assert_eq!(work.take(delivery(offset, Some(key), 1)), None);
        }
        assert_eq!(started(&mut work), [0, 1]);
        assert!(started(&mut work).is_empty());
        let acks = work.finish((P, Offset(1)), 1, Outcome::Accept);
        assert_eq!(acks.len(), 1);
        assert_eq!(started(&mut work), [3]);
        work.finish((P, Offset(0)), 1, Outcome::Accept);
        assert_eq!(started(&mut work), [2]);
    }

    #[test]
    fn keyless_records_all_run_at_once() {
        let mut work = Work::default();
        for offset in 0..5 {
            work.take(delivery(offset, None, 1));
        }
        assert_eq!(started(&mut work), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_rest_of_a_failed_key_is_withheld() {
        let mut work = Work::default();
        for offset in 0..3 {
            work.take(delivery(offset, Some(7), 1));
        }
        assert_eq!(started(&mut work), [0]);
        let acks = work.finish((P, Offset(0)), 1, Outcome::release("down"));
        let verdicts: Vec<(i64, bool)> =
            acks.iter().map(|ack| (ack.place.1.get(), ack.verdict == Verdict::Withheld)).collect();
        assert_eq!(verdicts, [(0, false), (1, true), (2, true)]);
        assert_eq!(work.held(), 0);
        assert!(started(&mut work).is_empty());
    }

    #[test]
    fn what_was_granted_before_the_failure_was_told_does_not_run() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        work.told(4);
        assert_eq!(started(&mut work), [0]);
        work.finish((P, Offset(0)), 1, Outcome::release("down"));
        let later = delivery(1, Some(7), 1);
        assert!(work.refuse(&later).is_some(), "the failure was not told yet");
        work.told(6);
        work.answered(5);
        assert_eq!(work.refuse(&later).map(|ack| ack.verdict), Some(Verdict::Withheld));
        assert!(work.refuse(&delivery(2, Some(8), 1)).is_none(), "another key is not concerned");
        work.answered(6);
        assert!(work.refuse(&later).is_none());
    }

    #[test]
    fn an_earlier_record_that_comes_in_while_a_later_one_runs_is_next() {
        let mut work = Work::default();
        work.take(delivery(5, Some(7), 1));
        assert_eq!(started(&mut work), [5]);
        work.take(delivery(3, Some(7), 2));
        assert!(started(&mut work).is_empty());
        work.finish((P, Offset(5)), 1, Outcome::Accept);
        assert_eq!(started(&mut work), [3]);
    }

    #[test]
    fn the_rest_of_a_lost_key_is_lost_with_it() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        let mut later = delivery(1, Some(7), 1);
        later.lease_end += Duration::from_secs(60);
        work.take(later);
        assert_eq!(started(&mut work), [0]);
        let (lost, stop) = work.expire(now() + Duration::from_secs(31));
        assert_eq!((lost, stop), (2, vec![(P, Offset(0))]));
        assert!(started(&mut work).is_empty());
    }

    #[test]
    fn a_rejected_record_lets_its_key_go_on() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        work.take(delivery(1, Some(7), 1));
        assert_eq!(started(&mut work), [0]);
        work.finish((P, Offset(0)), 1, Outcome::reject("bad"));
        assert_eq!(started(&mut work), [1]);
    }

    #[test]
    fn what_is_lost_is_never_acknowledged() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        work.take(delivery(1, Some(7), 1));
        assert_eq!(started(&mut work), [0]);
        let (lost, stop) = work.expire(now() + Duration::from_secs(31));
        assert_eq!((lost, stop.len()), (2, 1));
        assert!(work.finish((P, Offset(0)), 1, Outcome::Accept).is_empty());
    }

    #[test]
    fn an_older_delivery_of_the_same_record_stops() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        assert_eq!(started(&mut work), [0]);
        assert_eq!(work.take(delivery(0, Some(7), 2)), Some((P, Offset(0))));
        assert!(
            work.finish((P, Offset(0)), 1, Outcome::Accept).is_empty(),
            "an old delivery's end says nothing"
        );
        assert_eq!(started(&mut work), [0]);
        assert_eq!(work.finish((P, Offset(0)), 2, Outcome::Accept).len(), 1);
    }

    #[test]
    fn a_recall_stops_exactly_that_delivery() {
        let mut work = Work::default();
        for offset in 0..3 {
            work.take(delivery(offset, Some(7), offset));
        }
        assert_eq!(started(&mut work), [0]);
        assert!(work.recall(P, Offset(1), Offset(2), 1).is_empty());
        assert_eq!(work.held(), 2);
        assert_eq!(work.recall(P, Offset(0), Offset(0), 0), [(P, Offset(0))]);
        assert_eq!(started(&mut work), [2]);
    }

    #[test]
    fn leases_are_renewed_once_until_the_answer() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        let late = now() + Duration::from_secs(20);
        let margin = Duration::from_secs(15);
        assert_eq!(work.renew(late, margin).len(), 1);
        assert!(work.renew(late, margin).is_empty());
        work.renewed((P, Offset(0), Offset(0)), 1, late + Duration::from_secs(30));
        assert!(work.renew(late, margin).is_empty());
        assert_eq!(work.expire(late + Duration::from_secs(29)).0, 0);
    }
    #[test]
    fn a_refused_renewal_of_an_older_delivery_leaves_the_newer_one_its_lease() {
        let mut work = Work::default();
        work.take(delivery(0, Some(7), 1));
        assert_eq!(work.renew(now() + Duration::from_secs(20), Duration::from_secs(15)).len(), 1);
        work.take(delivery(0, Some(7), 2));
        work.renewed((P, Offset(0), Offset(0)), 1, now());
        assert_eq!(work.expire(now()).0, 0);
        assert_eq!(work.held(), 1);
    }
}
