//! Readers without membership (K68): key ranges, commits of offset ranges, fencing, and one way at a time.

use std::sync::Arc;

use coordinator::command::{
    KeyRange, KeyShareTerms, ShareAcknowledge, ShareFetch, ShareFetchPart, StandaloneCommit, StandaloneFetch,
    Ticket,
};
use coordinator::reply::Reply;
use coordinator::share::admin::{AdminError, KeyAction};
use coordinator::share::{LeftBy, ShareAssignment, ShareCommand, ShareConfig, ShareError};
use records::ids::{KeyHash, Offset};

use crate::common::{
    ACCEPT, Got, RELEASE, World, got, group, key, key_config, none_config, offsets, partition, range, want,
};
use crate::hand::of;

/// The made-up hashes of `a` to `m` lie below, those of `n` to `z` behind it.
const MIDDLE: u64 = 2 * 1_000_003 + b'm' as u64;
const LOW: KeyRange = KeyRange { first: KeyHash(0), last: KeyHash(MIDDLE) };
const HIGH: KeyRange = KeyRange { first: KeyHash(MIDDLE + 1), last: KeyHash(u64::MAX) };

/// One reader as a test sees it; its connection goes by its name.
struct Reader {
    name: &'static str,
    ranges: Vec<KeyRange>,
    epoch: i32,
    per_key_max: u32,
}

fn reader(name: &'static str, ranges: &[KeyRange]) -> Reader {
    Reader { name, ranges: ranges.to_vec(), epoch: 0, per_key_max: 0 }
}

impl Reader {
    fn send(&mut self, w: &mut World, max: i32, wait_ms: i32) -> Ticket {
        let epoch = self.epoch;
        self.epoch += 1;
        self.send_at(w, epoch, max, wait_ms)
    }

    fn send_at(&self, w: &mut World, epoch: i32, max: i32, wait_ms: i32) -> Ticket {
        self.send_naming(w, epoch, epoch == 0, max, wait_ms)
    }

    fn send_naming(&self, w: &mut World, epoch: i32, names: bool, max: i32, wait_ms: i32) -> Ticket {
        let parts =
            if names { vec![ShareFetchPart { partition: partition(0), acks: vec![] }] } else { vec![] };
        let named = parts.iter().map(|part| (part.partition, self.ranges.clone())).collect();
        let fetch = ShareFetch {
            connection: w.connection(self.name),
            group: group(),
            member: Arc::from(""),
            epoch,
            wait_max_ms: wait_ms,
            bytes_min: 1,
            bytes_max: 50 << 20,
            records_max: max,
            batch_size: i32::MAX,
            strict: true,
            renew: false,
            parts,
            forgotten: vec![],
            key_share: Some(KeyShareTerms {
                keys_max: 0,
                records_per_key_max: self.per_key_max,
                stops_at_disconnect: true,
            }),
        };
        w.command(ShareCommand::StandaloneFetch(StandaloneFetch { fetch, ranges: named }))
    }

    fn try_fetch(&mut self, w: &mut World, max: i32) -> Result<Vec<Got>, ShareError> {
        let ticket = self.send(w, max, 0);
        let fetched = w.fetched(self.name, ticket).expect("the fetch is answered");
        if fetched.is_err() {
            self.epoch -= 1;
        }
        fetched.map(|fetched| got(&fetched))
    }

    fn fetch(&mut self, w: &mut World, max: i32) -> Vec<i64> {
        offsets(&self.try_fetch(w, max).unwrap())
    }

    /// Reads other ranges from now on, within its session; fetches nothing.
    fn turn_to(&mut self, w: &mut World, ranges: &[KeyRange]) {
        self.ranges = ranges.to_vec();
        let ticket = self.send_naming(w, self.epoch, true, 0, 0);
        self.epoch += 1;
        assert!(w.fetched(self.name, ticket).unwrap().is_ok());
    }

    fn close(&mut self, w: &mut World) {
        let ticket = self.send_at(w, -1, 0, 0);
        assert!(w.fetched(self.name, ticket).unwrap().is_ok());
        self.epoch = 0;
    }

    /// Commits ranges: the start offset afterwards.
    fn commit(&self, w: &mut World, ranges: &[(i64, i64)]) -> Result<i64, ShareError> {
        let connection = w.connection(self.name);
        let parts = vec![(partition(0), ranges.to_vec())];
        let ticket =
            w.command(ShareCommand::StandaloneCommit(StandaloneCommit { connection, group: group(), parts }));
        match w.replies.remove(&ticket).expect("the commit is answered") {
            Reply::ShareAcknowledged(Ok(mut reply)) => {
                let part = reply.parts.remove(0);
                match part.error {
                    None => Ok(part.start_offset.unwrap().get()),
                    Some(error) => Err(error),
                }
            }
            Reply::ShareAcknowledged(Err(error)) => Err(error),
            other => panic!("not the answer of a commit: {other:?}"),
        }
    }
}

/// Letters whose made-up hashes lie in the lower and in the upper half.
fn halves() -> (Vec<String>, Vec<String>) {
    let letters = ('a'..='z').map(|letter| letter.to_string());
    letters.partition(|letter| key(letter).unwrap() <= LOW.last)
}

/// A log of records of both halves: their words, and which offsets are low.
fn mixed(w: &mut World, records: usize) -> Vec<bool> {
    let (low, high) = halves();
    let mut is_low = Vec::new();
    for number in 0..records {
        let from = if number * 7 % 3 == 0 { &low } else { &high };
        w.log(&from[number % from.len()]);
        is_low.push(key(&from[number % from.len()]).unwrap() <= LOW.last);
    }
    is_low
}

#[test]
fn k68_each_reader_gets_the_keys_of_its_ranges_in_order() {
    let mut w = World::keyed();
    let is_low = mixed(&mut w, 60);
    let of = |low: bool| -> Vec<i64> { (0..60).filter(|&at| is_low[at as usize] == low).collect() };
    let (mut a, mut b) = (reader("A", &[LOW]), reader("B", &[HIGH]));
    assert_eq!(a.fetch(&mut w, 1_000), of(true));
    assert_eq!(b.fetch(&mut w, 1_000), of(false));
    assert_eq!(a.fetch(&mut w, 1_000), [0; 0], "what is in its hands is not sent again");
    assert_eq!(a.commit(&mut w, &[(0, 59)]), Ok(of(false)[0]), "up to the first record that is not A's");
    assert_eq!(b.commit(&mut w, &[(0, 59)]), Ok(60), "what lies between is passed over, and the gaps close");
}

#[test]
fn o7_a_reader_gets_the_keys_that_have_waited_longest_first() {
    let mut w = World::keyed();
    w.log("z y x w v u t s r q p o n m l k j i h g f e d c b a");
    let mut a = reader("A", &[]);
    let answers: Vec<i64> = (0..13).flat_map(|_| a.fetch(&mut w, 2)).collect();
    assert_eq!(answers, (0..26).collect::<Vec<i64>>(), "though the hashes ascend the other way");
    w.log("c a b a");
    let mut a = reader("A", &[LOW]);
    assert_eq!(a.fetch(&mut w, 3), [13, 14, 15], "of its own ranges");
    assert_eq!(a.fetch(&mut w, 100)[..], (16..30).collect::<Vec<i64>>());
}

#[test]
fn o7_what_failed_often_keeps_no_other_key_of_a_reader_waiting() {
    let mut w = World::keyed();
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    w.log(&letters.join(" "));
    let mut a = reader("A", &[]);
    let mut first = Vec::new();
    for _ in 0..12 {
        let offset = a.fetch(&mut w, 1)[0];
        if offset == 0 {
            let delivery = Some(w.deliveries[&("A".to_owned(), 0)]);
            let again = coordinator::command::AckRange { delivery, ..range(0, 0, RELEASE) };
            let connection = w.connection("A");
            w.command(ShareCommand::StandaloneAcknowledge(ShareAcknowledge {
                connection,
                group: group(),
                member: Arc::from(""),
                epoch: a.epoch,
                renew: true,
                parts: vec![(partition(0), vec![again])],
                key_share: true,
            }));
            a.epoch += 1;
        }
        first.push(offset);
    }
    assert_eq!(
        first,
        [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        "tired after three deliveries, it goes out now and then"
    );
}

#[test]
fn a_reader_has_no_more_records_of_a_key_than_its_last_fetch_names() {
    let mut w = World::keyed();
    w.log("a a a b b b");
    let mut a = Reader { per_key_max: 2, ..reader("A", &[]) };
    assert_eq!(a.fetch(&mut w, 1), [0]);
    a.per_key_max = 1;
    assert_eq!(a.fetch(&mut w, 10), [3], "of a key in its hands nothing, though the fetch before allowed it");
    a.per_key_max = 2;
    w.log("c");
    assert_eq!(a.fetch(&mut w, 10), [1, 4, 6]);
}

#[test]
fn what_comes_again_goes_to_the_reader_of_its_range_also_where_assignment_is_sticky() {
    let mut w = World::new(ShareConfig { assignment: ShareAssignment::Sticky, ..key_config() });
    let is_low = mixed(&mut w, 20);
    let (mut a, mut b) = (reader("A", &[LOW]), reader("B", &[HIGH]));
    a.fetch(&mut w, 100);
    b.fetch(&mut w, 100);
    assert!(a.commit(&mut w, &[(0, 19)]).is_ok() && b.commit(&mut w, &[(0, 19)]).is_ok());
    let (low, high) = halves();
    for key in low.iter().chain(&high) {
        // Not each of these keys is among the twenty.
        let again = w.alter(of(key), KeyAction::Replay(Offset(0), Offset(19)));
        assert!(again.is_ok() || again == Err(AdminError::NothingToReplay), "{again:?}");
    }
    let got = a.fetch(&mut w, 100);
    assert!(!got.is_empty() && got.iter().all(|&offset| is_low[offset as usize]), "{got:?}");
    let mut all = [got, b.fetch(&mut w, 100)].concat();
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<i64>>());
}

#[test]
fn k68_commits_lie_anywhere_and_survive_a_restart() {
    let mut w = World::keyed();
    w.log("a b c d e f");
    let mut a = reader("A", &[]);
    assert_eq!(a.fetch(&mut w, 10), [0, 1, 2, 3, 4, 5]);
    assert_eq!(a.commit(&mut w, &[(4, 4), (1, 2)]), Ok(0));
    assert_eq!(a.commit(&mut w, &[(1, 1), (2, 2), (2, 2)]), Ok(0), "again is no fault");
    w.restart(0);
    let mut a = reader("A", &[]);
    assert_eq!(a.fetch(&mut w, 10), [0, 3, 5], "what is committed is not sent again");
    assert_eq!(a.commit(&mut w, &[(0, 0)]), Ok(3), "the gap is closed");
    assert_eq!(a.commit(&mut w, &[(3, 5)]), Ok(6));
    for bad in [(6, 6), (5, 4), (-1, 2), (0, i64::MAX)] {
        assert_eq!(a.commit(&mut w, &[(5, 5), bad]), Err(ShareError::InvalidRequest), "{bad:?}");
    }
}

#[test]
fn k68_what_a_reader_holds_it_may_commit_whatever_its_ranges_are_now() {
    let mut w = World::keyed();
    let is_low = mixed(&mut w, 40);
    let low: Vec<i64> = (0..40).filter(|&at| is_low[at as usize]).collect();
    let (mut a, mut b) = (reader("A", &[LOW]), reader("B", &[LOW]));
    assert_eq!(a.fetch(&mut w, 1_000), low);
    a.turn_to(&mut w, &[HIGH]);
    assert_eq!(b.fetch(&mut w, 1_000), [0; 0], "its keys are still with A");
    w.log("a");
    let last = low.len() - 1;
    let singles: Vec<(i64, i64)> = low[..last].iter().map(|&at| (at, at)).collect();
    a.commit(&mut w, &singles).unwrap();
    assert_eq!(w.view().out, 1, "but for the last one it is settled, and out of its hands");
    a.commit(&mut w, &[(low[last], low[last])]).unwrap();
    assert_eq!(b.fetch(&mut w, 1_000), [40]);
    // What another one holds outside of its ranges is passed over.
    assert_eq!(a.fetch(&mut w, 1_000).len(), 40 - low.len());
    assert_eq!(a.commit(&mut w, &[(0, 40)]), Ok(40));
    assert_eq!(b.commit(&mut w, &[(40, 40)]), Ok(41));
}

#[test]
fn k68_one_group_id_one_way() {
    let mut w = World::keyed();
    w.log("a b");
    // Members: standalone use is refused, and nothing changes.
    w.live(&["M"]);
    let mut a = reader("A", &[]);
    assert_eq!(a.try_fetch(&mut w, 10), Err(ShareError::NonEmptyGroup));
    assert_eq!(offsets(&w.fetch("M", 1)), [0]);
    w.live(&[]);
    assert_eq!(a.try_fetch(&mut w, 10), Err(ShareError::NonEmptyGroup), "its session is open");
    w.left("M", LeftBy::Heartbeat);
    w.pass_ms(1_000);
    assert_eq!(a.fetch(&mut w, 10), [0, 1]);
    assert!(w.machine.has_readers("g") && !w.machine.has_readers("h"));
    // A reader: members are refused, and it goes on undisturbed.
    let terms = KeyShareTerms { keys_max: 0, records_per_key_max: 1, stops_at_disconnect: false };
    for key_share in [None, Some(terms)] {
        let refused = w.fetch_with("M", &crate::common::Want { epoch: Some(0), key_share, ..want(10) });
        assert_eq!(refused, Err(ShareError::NonEmptyGroup));
    }
    w.log("c");
    assert_eq!(a.fetch(&mut w, 10), [2]);
    assert_eq!(a.commit(&mut w, &[(0, 1)]), Ok(2));
    a.close(&mut w);
    assert!(!w.machine.has_readers("g"));
    w.reopen("M");
    assert_eq!(offsets(&w.fetch("M", 10)), [2], "what was committed is not delivered to members");
}

#[test]
fn k68_the_newest_reader_of_a_range_has_it() {
    let mut w = World::keyed();
    mixed(&mut w, 12);
    let mut a = reader("A", &[LOW]);
    let held = a.fetch(&mut w, 100);
    let mut b = reader("B", &[HIGH]);
    assert!(!b.fetch(&mut w, 1).is_empty());
    assert_eq!(a.fetch(&mut w, 100), [0; 0], "ranges that do not overlap disturb nobody");
    // The upper end of A's range is enough.
    let top = KeyRange { first: LOW.last, last: LOW.last };
    let mut c = reader("C", &[top]);
    assert_eq!(c.fetch(&mut w, 100), [0; 0]);
    let before = w.start();
    for _ in 0..2 {
        assert_eq!(a.try_fetch(&mut w, 100), Err(ShareError::Fenced));
        assert_eq!(a.commit(&mut w, &[(held[0], held[0])]), Err(ShareError::Fenced));
        let ticket = w.command(ShareCommand::Acknowledge(ShareAcknowledge {
            connection: w.connections["A"],
            group: group(),
            member: Arc::from("\u{0}standalone/1/1"),
            epoch: 2,
            renew: false,
            parts: vec![(partition(0), vec![range(held[0], held[0], ACCEPT)])],
            key_share: true,
        }));
        assert!(matches!(w.replies.remove(&ticket), Some(Reply::ShareAcknowledged(Err(_)))));
    }
    assert_eq!(w.start(), before, "nothing was changed");
    // The range is free for who begins anew, A included; what it held comes again.
    c.close(&mut w);
    a.epoch = 0;
    assert_eq!(a.fetch(&mut w, 100), held);
    assert!(b.try_fetch(&mut w, 1).is_ok());
}

#[test]
fn k68_a_reader_ends_with_its_connection() {
    let mut w = World::keyed();
    w.log("a a b");
    let mut a = reader("A", &[]);
    assert_eq!(a.fetch(&mut w, 10), [0, 1, 2]);
    w.lose("A");
    assert!(!w.machine.has_readers("g"));
    let mut b = reader("B", &[]);
    assert_eq!(b.try_fetch(&mut w, 10).unwrap(), [(0, 2, 2)], "at once, no grace: and it had them");
    // A restart is nobody's failure: what was out returns uncounted.
    w.restart(0);
    let mut c = reader("C", &[]);
    assert_eq!(c.try_fetch(&mut w, 10).unwrap(), [(0, 2, 2)]);
    // A session of before is unknown, whatever its connection is numbered.
    assert_eq!(b.commit(&mut w, &[(0, 0)]), Err(ShareError::SessionNotFound));
}

#[test]
fn k68_standalone_acknowledgements_carry_delivery_numbers() {
    let mut w = World::keyed();
    w.log("a a b");
    let mut a = reader("A", &[]);
    assert_eq!(a.fetch(&mut w, 10), [0, 1, 2]);
    let acknowledge = |w: &mut World, epoch: i32, offset: i64, kind: i8, number| {
        let range = coordinator::command::AckRange { delivery: number, ..range(offset, offset, kind) };
        let connection = w.connection("A");
        let ticket = w.command(ShareCommand::StandaloneAcknowledge(ShareAcknowledge {
            connection,
            group: group(),
            member: Arc::from(""),
            epoch,
            renew: true,
            parts: vec![(partition(0), vec![range])],
            key_share: true,
        }));
        match w.replies.remove(&ticket).unwrap() {
            Reply::ShareAcknowledged(reply) => reply.map(|reply| reply.parts[0].results[0]),
            other => panic!("{other:?}"),
        }
    };
    let number = w.deliveries[&("A".to_owned(), 2)];
    assert_eq!(acknowledge(&mut w, 1, 2, ACCEPT, Some(number)), Ok(Ok(())));
    assert_eq!(acknowledge(&mut w, 1, 0, RELEASE, Some(number)), Err(ShareError::InvalidSessionEpoch));
    assert_eq!(acknowledge(&mut w, 2, 0, RELEASE, Some(number)), Ok(Ok(())));
    a.epoch = 3;
    assert_eq!(a.fetch(&mut w, 10), [0, 1], "1 was recalled, and comes again behind 0");
}

#[test]
fn k68_a_waiting_reader_is_woken_by_what_is_its_own_alone() {
    let mut w = World::keyed();
    let (low, high) = halves();
    let mut a = reader("A", &[LOW]);
    assert_eq!(a.fetch(&mut w, 10), [0; 0]);
    let ticket = a.send(&mut w, 10, 60_000);
    w.log(&high[0]);
    assert!(w.fetched("A", ticket).is_none(), "of another range");
    w.log(&low[0]);
    assert_eq!(offsets(&got(&w.fetched("A", ticket).unwrap().unwrap())), [1]);
    // A commit behind its own parked fetch makes that give way.
    let ticket = a.send(&mut w, 10, 60_000);
    assert!(w.fetched("A", ticket).is_none());
    assert_eq!(a.commit(&mut w, &[(1, 1)]), Ok(0));
    assert_eq!(got(&w.fetched("A", ticket).unwrap().unwrap()), []);
}

#[test]
fn k68_what_others_do_not_read_does_not_keep_a_reader_from_reading_on() {
    let mut w = World::keyed();
    let (low, high) = halves();
    // Far more of the other half than is looked ahead for a group of members.
    let keys = vec![key(&high[0]); 1_000];
    let sizes = vec![10; 1_000];
    for _ in 0..20 {
        w.batch(0, &keys, &sizes);
    }
    let many: Vec<Option<KeyHash>> =
        (0..20_000).map(|number| Some(KeyHash(HIGH.first.0 + 1 + number))).collect();
    w.batch(0, &many, &vec![10; many.len()]);
    w.log(&low[0]);
    let mut a = reader("A", &[LOW]);
    assert_eq!(a.fetch(&mut w, 10), [40_000]);
    assert_eq!(a.commit(&mut w, &[(40_000, 40_000)]), Ok(0));
}

#[test]
fn k68_without_order_there_is_nothing_to_share_by() {
    let mut w = World::new(none_config());
    assert_eq!(reader("A", &[]).try_fetch(&mut w, 10), Err(ShareError::InvalidRequest));
    let mut w = World::keyed();
    let backwards = KeyRange { first: KeyHash(5), last: KeyHash(4) };
    assert_eq!(reader("A", &[backwards]).try_fetch(&mut w, 10), Err(ShareError::InvalidRequest));
    assert!(!w.machine.has_readers("g"), "nothing was opened");
    let named = "\u{0}standalone/1/9";
    assert_eq!(w.fetch_with(named, &want(10)), Err(ShareError::InvalidRequest), "a name that no member has");
}

#[test]
fn k68_a_reader_keeps_its_ranges_when_the_group_gives_up_its_order() {
    let mut w = World::keyed();
    let is_low = mixed(&mut w, 20);
    let of = |low: bool, from: i64| -> Vec<i64> {
        (from..20).filter(|&at| is_low[usize::try_from(at).unwrap()] == low).collect()
    };
    let (mut a, mut b) = (reader("A", &[LOW]), reader("B", &[HIGH]));
    assert_eq!(a.fetch(&mut w, 1), of(true, 0)[..1]);
    w.config = none_config();
    w.configure();
    assert_eq!(a.fetch(&mut w, 100), of(true, 0)[1..]);
    assert_eq!(b.try_fetch(&mut w, 100), Err(ShareError::InvalidRequest), "no new one begins");
    w.config = key_config();
    w.configure();
    assert_eq!(b.fetch(&mut w, 100), of(false, 0));
}

#[test]
fn k68_sessions_of_readers_are_bounded_with_all_others() {
    let mut w = World::new(ShareConfig { ..key_config() });
    w.limits.sessions_max = 2;
    w.restart(0);
    let range = |number: u64| [KeyRange { first: KeyHash(number), last: KeyHash(number) }];
    assert!(reader("A", &range(1)).try_fetch(&mut w, 1).is_ok());
    assert!(reader("B", &range(2)).try_fetch(&mut w, 1).is_ok());
    assert_eq!(reader("C", &range(3)).try_fetch(&mut w, 1), Err(ShareError::SessionLimit));
    w.lose("A");
    assert!(reader("C", &range(3)).try_fetch(&mut w, 1).is_ok());
}

#[test]
fn keyless_records_are_each_in_one_range() {
    let mut w = World::keyed();
    w.log("- - - - - - - -");
    let half = u64::MAX / 2;
    let lower = KeyRange { first: KeyHash(0), last: KeyHash(half) };
    let upper = KeyRange { first: KeyHash(half + 1), last: KeyHash(u64::MAX) };
    let (mut a, mut b) = (reader("A", &[lower]), reader("B", &[upper]));
    let (mine, theirs) = (a.fetch(&mut w, 100), b.fetch(&mut w, 100));
    assert_eq!((mine, theirs), (vec![0, 2, 4, 6], vec![1, 3, 5, 7]));
    assert_eq!(a.commit(&mut w, &[(0, 7)]), Ok(1));
    assert_eq!(b.commit(&mut w, &[(0, 7)]), Ok(8));
    assert_eq!(w.view().start, Offset(8));
}
