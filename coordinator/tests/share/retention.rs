//! K64: what waits long and retention.

use coordinator::io::RetentionDue;
use coordinator::reply::Effect;
use coordinator::share::admin::{KeyAction, Why};
use coordinator::share::{Poison, ShareConfig};
use records::ids::Offset;

use crate::common::{ACCEPT, REJECT, RELEASE, World, group, key_config, offsets, partition};
use crate::hand::{at, of};

fn due(world: &World, until: i64, ms: i64) -> Option<RetentionDue> {
    Some(RetentionDue { until: Offset(until), at_ms: world.now.wall_ms + ms, length_ms: 60_000 })
}

fn warnings(world: &World) -> Vec<(i64, i64)> {
    let told = |effect: &Effect| match effect {
        Effect::RetentionWarning { group: g, partition: p, offset, left_ms, .. } => {
            assert_eq!((&**g, *p), (&*group(), partition(0)));
            Some((offset.get(), *left_ms))
        }
        _ => None,
    };
    world.effects.iter().filter_map(told).collect()
}

#[test]
fn k64_a_parked_record_is_told_of_before_retention_takes_it_and_its_key_stays_parked() {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a b c b c a");
    assert_eq!(offsets(&world.fetch("A", 10)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.ack("A", 1, 4, ACCEPT), None);
    assert_eq!(world.ack("A", 5, 5, RELEASE), None);
    world.retention = due(&world, 3, 60_000);
    world.pass_ms(40_000);
    assert_eq!(warnings(&world), [], "20 s are left");
    world.pass_ms(15_000);
    let told = warnings(&world);
    assert_eq!(told.len(), 1, "once");
    assert!(told[0].0 == 0 && (5_000..=10_000).contains(&told[0].1), "{told:?}");
    let described = world.describe(&[]).unwrap();
    let warning = described.retention.unwrap();
    assert_eq!((warning.offset, warning.at_ms), (Offset(0), world.now.wall_ms + 5_000));
    world.pass_ms(5_000);
    world.log_start(3);
    world.retention = None;
    assert_eq!(world.view().counters.left_log, 1);
    world.pass_ms(10_000);
    let described = world.describe(&[at(5)]).unwrap();
    assert_eq!((described.start, described.retention), (Offset(5), None));
    assert!(matches!(described.answers[0], Why::Parked { offset: Offset(0), .. }), "a stays parked");
    assert_eq!(world.fetch("B", 10), []);
    world.log("b");
    assert_eq!(world.fetch("B", 10), [(6, 6, 1)], "others flow");
    world.restart(0);
    world.reopen("B");
    assert_eq!(world.fetch("B", 0), []);
    let waits = world.park("C", 10);
    assert_eq!(world.woken("C", waits), None);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(offsets(&world.woken("C", waits).unwrap()), [5]);
}

#[test]
fn k64_in_a_backoff_the_next_is_ready_at_once() {
    let mut world =
        World::new(ShareConfig { backoff_ms: 3_600_000, backoff_max_ms: 3_600_000, ..key_config() });
    world.log("a b a");
    assert_eq!(offsets(&world.fetch("A", 1)), [0]);
    assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    world.retention = due(&world, 1, 60_000);
    world.pass_ms(55_000);
    assert_eq!(warnings(&world).len(), 1);
    assert_eq!(world.fetch("B", 10), [(1, 1, 1)]);
    let waits = world.park("C", 10);
    assert_eq!(world.woken("C", waits), None);
    world.log_start(1);
    assert_eq!(world.woken("C", waits), Some(vec![(2, 2, 1)]));
    assert_eq!(world.view().counters.left_log, 1);
}

#[test]
fn k64_records_that_were_never_read_are_counted_as_lost_too() {
    let mut world = World::keyed();
    world.log("a");
    assert_eq!(world.fetch("A", 10), [(0, 0, 1)]);
    drop(world.close_session("A", vec![]));
    world.log("a b c");
    world.log_start(3);
    assert_eq!(world.view().counters.left_log, 3);
}

#[test]
fn a_warning_that_is_not_due_any_more_goes() {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a");
    assert_eq!(world.fetch("A", 10), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    world.retention = due(&world, 1, 5_000);
    world.pass_ms(6_000);
    assert!(world.describe(&[]).unwrap().retention.is_some());
    world.retention = due(&world, 1, 500_000);
    world.pass_ms(3_000);
    assert!(world.describe(&[]).unwrap().retention.is_none());
    assert_eq!(warnings(&world).len(), 1);
}

#[test]
fn a_warning_names_nothing_that_is_done() {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a b c");
    assert_eq!(world.fetch("A", 10), [(0, 2, 1)]);
    world.retention = due(&world, 2, 5_000);
    world.pass_ms(5_000);
    assert_eq!(world.describe(&[]).unwrap().retention.unwrap().offset, Offset(0));
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(world.describe(&[]).unwrap().retention.unwrap().offset, Offset(1));
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(world.describe(&[]).unwrap().retention, None, "retention does not take 2 yet");
}
