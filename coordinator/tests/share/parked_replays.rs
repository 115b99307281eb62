//! What fails again in a replay under `park`.

use coordinator::share::admin::{KeyAction, Why};
use coordinator::share::{Poison, ShareConfig};
use records::ids::Offset;

use crate::common::{ACCEPT, REJECT, World, key_config};
use crate::hand::{at, of};

/// 0 to 2 of a are done, 4 is not; the replay of them has parked 1.
fn parked_in_a_replay() -> World {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a a a b a");
    for offset in 0..=3 {
        assert_eq!(world.fetch("A", 1), [(offset, offset, 1)]);
        assert_eq!(world.ack("A", offset, offset, ACCEPT), None);
    }
    assert!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(2))) > 0);
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(world.fetch("A", 1), [(1, 1, 1)]);
    assert_eq!(world.ack("A", 1, 1, REJECT), None);
    world
}

#[test]
fn k31_what_fails_again_is_parked_again_with_its_key() {
    for restarts in [false, true] {
        let parked = || {
            let mut world = parked_in_a_replay();
            if restarts {
                world.restart(0);
                world.reopen("A");
            }
            assert_eq!(world.fetch("A", 9), [], "2 and 4 wait behind it");
            assert!(matches!(world.why(of("a")), Why::Parked { .. }), "{:?}", world.why(of("a")));
            assert!(matches!(world.why(at(1)), Why::Parked { .. }));
            assert_eq!(world.why(at(4)), Why::BehindReplay);
            let told = world.describe(&[]).unwrap();
            assert_eq!((told.parked, told.stopped.len(), told.stopped[0].offset), (1, 1, Offset(1)));
            world
        };
        let mut world = parked();
        assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
        assert_eq!(world.describe(&[]).unwrap().parked, 0);
        assert_eq!(world.fetch("A", 1), [(1, 1, 1)], "with all of its deliveries");
        assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
        assert_eq!(world.fetch("A", 1), [(2, 2, 1)]);
        assert_eq!(world.ack("A", 2, 2, ACCEPT), None);
        assert_eq!(world.fetch("A", 1), [(4, 4, 1)]);

        for by in [of("a"), at(1)] {
            let mut world = parked();
            assert_eq!(world.alters(by, KeyAction::Skip), 1);
            assert_eq!(world.describe(&[]).unwrap().parked, 0);
            assert_eq!(world.fetch("A", 1), [(2, 2, 1)]);
        }

        let mut world = parked();
        assert_eq!(world.alters(of("a"), KeyAction::Drop(Some(Offset(2)))), 2);
        assert_eq!(world.fetch("A", 1), [(4, 4, 1)]);
    }
}

#[test]
fn k64_a_key_that_its_replay_has_parked_stays_so_when_all_of_that_has_left_the_log() {
    let mut world = parked_in_a_replay();
    world.log_start(3);
    for _ in 0..2 {
        assert_eq!(world.fetch("A", 9), []);
        assert!(matches!(world.why(of("a")), Why::Parked { .. }), "{:?}", world.why(of("a")));
        world.restart(0);
        world.reopen("A");
    }
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.fetch("A", 9), [(4, 4, 1)]);
}
