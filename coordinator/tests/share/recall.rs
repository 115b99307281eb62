//! What a holder that acknowledges with delivery numbers is told of records that were taken from it.

use crate::common::{ACCEPT, RELEASE, Want, World, range, want};
use coordinator::command::{AckRange, KeyShareTerms};
use coordinator::reply::RecalledRange;
use records::ids::Offset;

fn numbered(max: i32) -> Want {
    Want { key_share: Some(KeyShareTerms::default()), ..want(max) }
}

fn ranges(recalled: &[RecalledRange]) -> Vec<(i64, i64)> {
    recalled.iter().map(|range| (range.first.get(), range.last.get())).collect()
}

#[test]
fn the_acknowledgement_that_recalls_tells_it_with_the_delivery() {
    let mut w = World::keyed();
    w.log("a a a b");
    assert_eq!(w.fetch_with("A", &numbered(10)).unwrap(), [(0, 3, 1)]);
    let delivery = w.deliveries[&("A".to_owned(), 0)];
    let release = AckRange { delivery: Some(delivery), ..range(0, 0, RELEASE) };
    let answer = w.acknowledge("A", vec![release], None, true).unwrap();
    let part = &answer.parts[0];
    assert_eq!(part.results, [Ok(())]);
    assert_eq!(part.start_offset, Some(Offset(0)));
    assert_eq!(ranges(&part.recalled), [(1, 2)]);
    assert_eq!(part.recalled[0].delivery, delivery);
    let accept = AckRange { delivery: Some(delivery), ..range(3, 3, ACCEPT) };
    let answer = w.acknowledge("A", vec![accept], None, true).unwrap();
    assert_eq!(answer.parts[0].recalled, [], "it is told once");
}

#[test]
fn a_fetch_tells_what_nobody_told_before() {
    let mut w = World::keyed();
    w.log("a a b");
    assert_eq!(w.fetch_with("A", &numbered(10)).unwrap(), [(0, 2, 1)]);
    let delivery = w.deliveries[&("A".to_owned(), 0)];
    let release = AckRange { delivery: Some(delivery), ..range(0, 0, RELEASE) };
    let ticket = w.send("A", &Want { acks: vec![(0, release)], ..numbered(0) });
    let answer = w.fetched("A", ticket).expect("a fetch that acknowledges is answered at once").unwrap();
    let part = &answer.parts[0];
    assert_eq!(part.ack_results, [Ok(())]);
    assert_eq!(ranges(&part.recalled), [(1, 1)]);
    assert_eq!(part.recalled[0].delivery, delivery);
    assert_eq!(part.high_watermark, Offset(3));
}

/// A holds both records of a key, and its share-partition was just loaded anew: nobody knows yet whose key they are.
fn reloaded(want: &Want) -> World {
    let mut w = World::keyed();
    w.log("a b a");
    assert_eq!(w.fetch_with("A", want).unwrap(), [(0, 2, 1)]);
    w.disk_full = true;
    w.slow_disk = true;
    let failed = w.send_acks(
        "A",
        vec![AckRange { delivery: delivery(&w, want), ..range(1, 1, RELEASE) }],
        None,
        want.key_share.is_some(),
    );
    w.serve_next();
    w.disk_full = false;
    assert!(w.replies.contains_key(&failed), "the append failed");
    w.serve_next();
    w
}

fn delivery(w: &World, want: &Want) -> Option<coordinator::command::DeliveryNumber> {
    want.key_share.map(|_| w.deliveries[&("A".to_owned(), 0)])
}

#[test]
fn k04_a_release_before_a_reload_has_found_the_keys_recalls_too() {
    for want in [want(10), numbered(10)] {
        let mut w = reloaded(&want);
        let release = AckRange { delivery: delivery(&w, &want), ..range(0, 0, RELEASE) };
        w.send_acks("A", vec![release], None, want.key_share.is_some());
        w.slow_disk = false;
        w.serve();
        let accept = AckRange { delivery: delivery(&w, &want), ..range(2, 2, ACCEPT) };
        let late = w.acknowledge("A", vec![accept], None, want.key_share.is_some());
        assert!(late.is_ok());
        let got = w.fetch_with("A", &want).unwrap();
        assert!(
            got.contains(&(0, 0, 2)) && got.iter().any(|got| got.1 == 2),
            "both come again, in order: {got:?}"
        );
    }
}
