//! Changed settings hold from their answer on.

use records::Codec;

use super::support::{Fixture, SET, TOPIC};

#[test]
fn the_largest_batch_changes_at_once() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let value = vec![b'v'; 2_000];
    assert_eq!(fixture.produce_values("t", &[1], Codec::None, &value), (0, 0));
    assert_eq!(fixture.alter(TOPIC, "t", &[("max.message.bytes", SET, Some("1000"))]).0, 0);
    assert_eq!(fixture.produce_values("t", &[1], Codec::None, &value).0, 10);
    assert_eq!(fixture.alter(TOPIC, "t", &[("max.message.bytes", SET, Some("3000"))]).0, 0);
    assert_eq!(fixture.produce_values("t", &[1], Codec::None, &value), (0, 1));
}

#[test]
fn f19_time_queries_on_log_append_time() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.alter(TOPIC, "t", &[("message.timestamp.type", SET, Some("LogAppendTime"))]).0, 0);
    assert_eq!(fixture.produce("t", &[1; 10], Codec::None), (0, 0));
    let (code, offset, appended) = fixture.offset("t", -3);
    assert_eq!((code, offset), (0, 0));
    assert!(appended > 1_600_000_000_000, "the broker's clock, not the producer's: {appended}");
    assert_eq!(fixture.offset("t", appended), (0, 0, appended));
    assert_eq!(fixture.offset("t", appended + 1), (0, -1, -1));
}

#[test]
fn log_files_roll_at_their_new_size() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let value = vec![b'v'; 600];
    let segments = |fixture: &Fixture| {
        let dir = fixture.broker.data_dir().join("t-0");
        let files = std::fs::read_dir(dir).expect("the partition has a folder");
        files
            .filter(|file| file.as_ref().expect("a file").path().extension().is_some_and(|e| e == "log"))
            .count()
    };
    for _ in 0..4 {
        fixture.produce_values("t", &[1], Codec::None, &value);
    }
    assert_eq!(segments(&fixture), 1);
    assert_eq!(fixture.alter(TOPIC, "t", &[("internal.segment.bytes", SET, Some("1000"))]).0, 0);
    for _ in 0..4 {
        fixture.produce_values("t", &[1], Codec::None, &value);
    }
    assert!(segments(&fixture) >= 4, "{} segments", segments(&fixture));
}
