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
