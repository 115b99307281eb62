//! K21: members restart one by one while everything goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coordinator::share::LeftBy;

use crate::common::{ACCEPT, World, each, key};

const KEYS: usize = 200;
const RECORDS: i64 = 20_000;
const MEMBERS: usize = 4;
/// So many records come at a time, every so many milliseconds: for 20 s, so that there is work whoever is away.
const COME: i64 = 40;
const COME_MS: i64 = 40;
/// How many a member asks for at a time; each takes it a millisecond.
const ASKED: i32 = 5;
const GRACE_MS: i64 = 7_500;
/// Until a member that has room asks, and is answered: the others work off what they have before.
const AT_ONCE_MS: i64 = 2 * ASKED as i64;

fn key_of(offset: i64) -> usize {
    usize::try_from(offset).unwrap() * 7 % KEYS
}

/// What is known of a record from outside.
#[derive(Clone, Default)]
struct Record {
    holder: Option<String>,
    failed: i16,
    accepted: u32,
    /// It has to be granted again by then.
    due: Option<i64>,
    /// … and not before.
    not_before: Option<i64>,
}

struct Deployment {
    world: World,
    records: Vec<Record>,
    by_key: BTreeMap<usize, BTreeSet<i64>>,
    /// Names and what is in their buffers; `None`: that one is down.
    members: Vec<Option<(String, VecDeque<i64>)>>,
    starts: usize,
    now_ms: i64,
    accepted_at: i64,
    gap_max: i64,
}

impl Deployment {
    fn new() -> Self {
        Self {
            world: World::keyed(),
            records: Vec::new(),
            by_key: BTreeMap::new(),
            members: vec![None; MEMBERS],
            starts: 0,
            now_ms: 0,
            accepted_at: 0,
            gap_max: 0,
        }
    }

    /// A member's process starts: with another member id each time, as every client does.
    fn start(&mut self, place: usize) {
        self.starts += 1;
        self.members[place] = Some((format!("m{}", self.starts), VecDeque::new()));
    }

    /// It closes its consumer: session first, then the leave.
    fn close(&mut self, place: usize) {
        let (name, _) = self.members[place].take().expect("it is up");
        self.world.close_session(&name, vec![]).unwrap();
        self.world.left(&name, LeftBy::Heartbeat);
        self.world.lose(&name);
        self.comes_back(&name, 0);
    }

    /// kill -9: its connection is gone, and nobody says a word.
    fn kill(&mut self, place: usize) {
        let (name, _) = self.members[place].take().expect("it is up");
        self.world.lose(&name);
        self.comes_back(&name, GRACE_MS);
    }

    fn comes_back(&mut self, name: &str, after_ms: i64) {
        let held = |record: &&mut Record| record.holder.as_deref() == Some(name);
        let mut any = false;
        for record in self.records.iter_mut().filter(held) {
            any = true;
            record.not_before = Some(self.now_ms + after_ms);
            record.due = Some(self.now_ms + after_ms + AT_ONCE_MS);
        }
        assert!(any, "{name} had something in its hands");
    }

    fn produce(&mut self, count: i64) {
        let from = self.records.len() as i64;
        let keys: Vec<_> = (from..from + count).map(|offset| key(&format!("k{}", key_of(offset)))).collect();
        self.world.batch(0, &keys, &vec![100; keys.len()]);
        self.world.grew(0);
        for offset in from..from + count {
            self.records.push(Record::default());
            self.by_key.entry(key_of(offset)).or_default().insert(offset);
        }
    }

    /// The check at the moment of the grant (O1 to O3).
    fn granted(&mut self, name: &str, offset: i64, count: i16) {
        let now = self.now_ms;
        for &other in &self.by_key[&key_of(offset)] {
            let record = &self.records[usize::try_from(other).unwrap()];
            let free = record.not_before.is_some_and(|at| at <= now);
            let mine = record.holder.as_deref() == Some(name);
            assert!(
                record.holder.is_none() || mine || free,
                "O1: {offset} goes to {name}, {other} is at {:?}",
                record.holder
            );
            assert!(other >= offset || record.accepted > 0 || mine, "O2: {other} is before {offset}");
        }
        let record = &mut self.records[usize::try_from(offset).unwrap()];
        assert_eq!(record.accepted, 0, "{offset} was accepted");
        if record.not_before.is_some() {
            record.failed += 1;
        }
        assert_eq!(count, record.failed + 1, "O3: {offset}");
        assert!(record.due.is_none_or(|due| now <= due), "O4: {offset} was to come by {:?}", record.due);
        *record = Record { holder: Some(name.into()), failed: record.failed, ..Record::default() };
    }

    /// A millisecond passes: every member that has nothing asks, and works off one record.
    fn step(&mut self) {
        for place in 0..MEMBERS {
            let Some((name, mut buffer)) = self.members[place].take() else { continue };
            if buffer.is_empty() {
                for (offset, count) in each(&self.world.fetch(&name, ASKED)) {
                    self.granted(&name, offset, count);
                    buffer.push_back(offset);
                }
            }
            if let Some(offset) = buffer.pop_front() {
                assert_eq!(self.world.ack(&name, offset, offset, ACCEPT), None);
                let record = &mut self.records[usize::try_from(offset).unwrap()];
                (record.holder, record.accepted) = (None, record.accepted + 1);
                let of_key = self.by_key.get_mut(&key_of(offset)).unwrap();
                of_key.remove(&offset);
                self.gap_max = self.gap_max.max(self.now_ms - self.accepted_at);
                self.accepted_at = self.now_ms;
            }
            self.members[place] = Some((name, buffer));
        }
        self.world.pass_ms(1);
        self.now_ms += 1;
        let now = self.now_ms;
        let late = self.records.iter().position(|record| record.due.is_some_and(|due| due < now));
        assert_eq!(late, None, "O4: it is free, and nobody got it");
    }
}

#[test]
fn k21_rolling_restart() {
    let mut all = Deployment::new();
    (0..MEMBERS).for_each(|place| all.start(place));
    let place_at = |from: i64, every: i64, now: i64| {
        let place = (now - from) / every;
        (now >= from && (now - from) % every == 0 && place < MEMBERS as i64).then_some(place as usize)
    };
    while all.records.iter().any(|record| record.accepted == 0) || (all.records.len() as i64) < RECORDS {
        let now = all.now_ms;
        assert!(now < 2 * RECORDS, "it never ends");
        if now % COME_MS == 0 && (all.records.len() as i64) < RECORDS {
            all.produce(COME);
        }
        // One by one, in the middle of their work: closed from 0.5 s on, killed from 4.5 s on, up again 300 ms later.
        place_at(482, 1_000, now).into_iter().for_each(|place| all.close(place));
        place_at(782, 1_000, now).into_iter().for_each(|place| all.start(place));
        place_at(4_482, 2_000, now).into_iter().for_each(|place| all.kill(place));
        place_at(4_782, 2_000, now).into_iter().for_each(|place| all.start(place));
        all.step();
    }
    assert_eq!(all.starts, 3 * MEMBERS, "each was closed, and killed");
    assert!(all.gap_max < 1_000, "the group stood still for {} ms", all.gap_max);
    assert!(all.records.iter().all(|record| record.accepted == 1));
    assert!(
        all.records.iter().filter(|record| record.failed > 0).count() >= 2 * MEMBERS,
        "what was in hands"
    );
    assert_eq!(all.world.start(), RECORDS);
}
