use protocol::StrBytes;
use protocol::messages::fetch::{FetchTopic, ForgottenTopic};

use super::*;

fn topic() -> TopicRef {
    TopicRef::Name(StrBytes::from("t"))
}

fn request(session_id: i32, session_epoch: i32, parts: &[(i32, i64)]) -> FetchRequest {
    let partitions = parts
        .iter()
        .map(|(index, offset)| FetchPartition {
            index: *index,
            current_leader_epoch: -1,
            fetch_offset: Offset(*offset),
            last_fetched_epoch: -1,
            log_start_offset: Offset(-1),
            partition_max_bytes: 1,
        })
        .collect();
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1,
        isolation_level: 0,
        session_id,
        session_epoch,
        topics: if parts.is_empty() { Vec::new() } else { vec![FetchTopic { topic: topic(), partitions }] },
        forgotten_topics: Vec::new(),
        rack_id: StrBytes::default(),
    }
}

fn news(high_watermark: i64, has_records: bool) -> News {
    News { high_watermark: Offset(high_watermark), log_start: Offset(0), has_records, must_tell: false }
}

fn indexes(turn: &Turn) -> Vec<i32> {
    turn.wanted.iter().map(|wanted| wanted.partition.index).collect()
}

const NOW: Mono = Mono(0);

#[test]
fn f07_a_session_lives_and_ends_as_in_kafka() {
    let sessions = FetchSessions::new(10);
    let first = sessions.begin(NOW, &request(0, 0, &[(0, 9), (1, 2)]), false).unwrap();
    assert!(first.session_id > 0 && !first.incremental);
    assert_eq!(first.end(&[news(9, false), news(9, true)]), [true, true]);

    let id = first.session_id;
    let second = sessions.begin(NOW, &request(id, 1, &[]), false).unwrap();
    assert_eq!(indexes(&second), [0, 1]);
    assert_eq!(second.end(&[news(9, false), news(9, false)]), [false, false]);

    assert_eq!(
        sessions.begin(NOW, &request(id, 5, &[]), false).unwrap_err(),
        ErrorCode::InvalidFetchSessionEpoch
    );
    let mut forgetting = request(id, 2, &[]);
    forgetting.forgotten_topics = vec![ForgottenTopic { topic: topic(), partitions: vec![0] }];
    let third = sessions.begin(NOW, &forgetting, false).unwrap();
    assert_eq!(indexes(&third), [1]);
    assert_eq!(third.end(&[news(9, false)]), [false]);

    let fourth = sessions.begin(NOW, &request(id, 3, &[]), false).unwrap();
    assert_eq!(fourth.end(&[news(12, true)]), [true]);

    assert_eq!(
        sessions.begin(NOW, &request(12_345, 1, &[]), false).unwrap_err(),
        ErrorCode::FetchSessionIdNotFound
    );
    assert_eq!(
        sessions.begin(NOW, &request(id, 4, &[]), true).unwrap_err(),
        ErrorCode::FetchSessionTopicIdError
    );
    let closing = sessions.begin(NOW, &request(id, -1, &[]), false).unwrap();
    assert_eq!(closing.session_id, 0);
    assert_eq!(
        sessions.begin(NOW, &request(id, 4, &[]), false).unwrap_err(),
        ErrorCode::FetchSessionIdNotFound
    );
    assert_eq!(sessions.count(), 0);
}

#[test]
fn f06_a_partition_that_sent_records_goes_to_the_back() {
    let sessions = FetchSessions::new(10);
    let parts: Vec<(i32, i64)> = (0..5).map(|index| (index, 0)).collect();
    let first = sessions.begin(NOW, &request(0, 0, &parts), false).unwrap();
    let served = |turn: &Turn| {
        let all: Vec<News> = (0..5).map(|place| news(6, place == 0)).collect();
        let _ = turn.end(&all);
        indexes(turn)[0]
    };
    let mut order = vec![served(&first)];
    for epoch in 1..=5 {
        order.push(served(&sessions.begin(NOW, &request(first.session_id, epoch, &[]), false).unwrap()));
    }
    assert_eq!(order, [0, 0, 1, 2, 3, 4]);
}

#[test]
fn errors_are_told_and_their_end_too() {
    let sessions = FetchSessions::new(10);
    let first = sessions.begin(NOW, &request(0, 0, &[(0, 0)]), false).unwrap();
    assert_eq!(first.end(&[news(5, false)]), [true]);
    let turn = |epoch, news| {
        let turn = sessions.begin(NOW, &request(first.session_id, epoch, &[]), false).unwrap();
        turn.end(&[news])[0]
    };
    let error =
        News { high_watermark: Offset(-1), log_start: Offset(-1), has_records: false, must_tell: true };
    assert!(turn(1, error));
    assert!(turn(2, error));
    assert!(turn(3, news(5, false)));
    assert!(!turn(4, news(5, false)));
}

#[test]
fn a_full_cache_keeps_what_is_in_use() {
    let sessions = FetchSessions::new(1);
    let first = sessions.begin(NOW, &request(0, 0, &[(0, 0)]), false).unwrap();
    let refused = sessions.begin(Mono(1), &request(0, 0, &[(0, 0)]), false).unwrap();
    assert_eq!(refused.session_id, 0);
    assert_eq!(indexes(&refused), [0]);
    let later = Mono(EVICTABLE_AFTER.0);
    let second = sessions.begin(later, &request(0, 0, &[(0, 0)]), false).unwrap();
    assert!(second.session_id > 0 && second.session_id != first.session_id);
    assert_eq!(sessions.count(), 1);
}

#[test]
fn a_session_without_partitions_ends() {
    let sessions = FetchSessions::new(10);
    let first = sessions.begin(NOW, &request(0, 0, &[(0, 0)]), false).unwrap();
    let mut forgetting = request(first.session_id, 1, &[]);
    forgetting.forgotten_topics = vec![ForgottenTopic { topic: topic(), partitions: vec![0] }];
    assert_eq!(sessions.begin(NOW, &forgetting, false).unwrap().session_id, 0);
    assert_eq!(sessions.count(), 0);
}
