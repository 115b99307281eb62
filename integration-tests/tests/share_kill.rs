//! What a share group knows after kill -9 of the broker, through raw ShareFetch and ShareAcknowledge (K26, S20).

use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::{Stopwatch, pause, wall_clock_ns};
use integration_tests::share_member::{ACCEPT, ALL, Ack, Acknowledged, Acquired, Ask, RELEASE, ShareMember};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

const TOPIC: &str = "orders";
const GROUP: &str = "workers";
/// Earlier than the case says: what lies between the clocks of this test and of the broker.
const EARLY: Duration = Duration::from_millis(300);
/// Later, on a machine that is busy with other things.
const LATE: Duration = Duration::from_millis(2_000);
const LIMIT: Duration = Duration::from_secs(30);

/// A broker, a topic with a record for each key, and a group.
struct World {
    broker: BrokerProcess,
    topic: [u8; 16],
}

impl World {
    fn start(keys: &[&str], configs: &[(&str, &str)]) -> Self {
        let broker = BrokerProcess::start();
        let mut admin = ApiClient::connect(broker.bootstrap());
        let name = || TopicName(StrBytes::from_static_str(TOPIC));
        let topic =
            CreatableTopic::default().with_name(name()).with_num_partitions(1).with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![topic]);
        let created = admin.call(7, &request).topics.remove(0);
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        for key in keys {
            batch.append(wall_clock_ns() / 1_000_000, Some(key.as_bytes()), Some(b"value"), &[]);
        }
        let partition =
            PartitionProduceData::default().with_index(0).with_records(Some(batch.build(Offset(0), -1)));
        let data = TopicProduceData::default().with_name(name()).with_partition_data(vec![partition]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
        assert_eq!(admin.call(9, &request).responses[0].partition_responses[0].error_code, 0);
        let common = [("share.auto.offset.reset", "earliest"), ("sluice.share.hold.target.ms", "0")];
        assert_eq!(admin.configure_group(GROUP, &[&common, configs].concat()), 0);
        Self { broker, topic: created.topic_id.into_bytes() }
    }

    /// A member on a new connection, which has not joined.
    fn connected(&self, name: &str) -> ShareMember {
        ShareMember::connect(self.broker.bootstrap(), GROUP, name, self.topic)
    }

    fn joined(&self, name: &str) -> ShareMember {
        let mut member = self.connected(name);
        member.join(TOPIC);
        member
    }
}

/// Records that are sure to come: which, and when by this stopwatch.
fn comes(member: &mut ShareMember, records: i32, since: Stopwatch) -> (Vec<Acquired>, Duration) {
    loop {
        let got: Vec<_> = member.fetch(Ask { records_max: records, mode: 1, ..ALL }).acquired().collect();
        if !got.is_empty() || since.elapsed() > LIMIT {
            return (got, since.elapsed());
        }
    }
}

/// Whatever is there now.
fn looks(member: &mut ShareMember, records: i32) -> Vec<Acquired> {
    member.fetch(Ask { records_max: records, mode: 1, wait_ms: 0, ..ALL }).acquired().collect()
}

#[track_caller]
fn says(member: &mut ShareMember, acks: &[Ack<'_>]) {
    assert_eq!(member.acknowledge(false, acks), Acknowledged { error: 0, parts: vec![0] });
}

#[track_caller]
fn at(due: Duration, came: Duration) {
    assert!(came + EARLY >= due && came <= due + LATE, "{came:?}, due at {due:?}");
}

fn each(acquired: &[Acquired]) -> Vec<(i64, i16)> {
    acquired.iter().flat_map(|&(first, last, count)| (first..=last).map(move |at| (at, count))).collect()
}

#[test]
fn k26_a_backoff_holds_its_key_only_and_survives_a_kill() {
    let mut world = World::start(
        &["a", "a", "b"],
        &[
            ("sluice.share.order", "key"),
            ("sluice.share.key.max.inflight", "1000"),
            ("sluice.share.retry.backoff.ms", "1000"),
            ("sluice.share.retry.backoff.max.ms", "3000"),
        ],
    );
    let (mut a, mut b) = (world.joined("a"), world.joined("b"));
    let mut released = Stopwatch::start();
    assert_eq!(comes(&mut a, 1, released).0, [(0, 0, 1)]);
    for (wait, count) in [(1, 2), (2, 3)] {
        says(&mut a, &[(0, 0, &[RELEASE])]);
        released = Stopwatch::start();
        // 1 waits behind 0.
        assert_eq!(looks(&mut b, 10), if count == 2 { vec![(2, 2, 1)] } else { vec![] });
        let (got, when) = comes(&mut a, 1, released);
        assert_eq!(got, [(0, 0, count)]);
        at(Duration::from_secs(wait), when);
    }
    says(&mut b, &[(2, 2, &[ACCEPT])]);
    says(&mut a, &[(0, 0, &[RELEASE])]);
    released = Stopwatch::start();
    pause(Duration::from_millis(500));
    world.broker.kill();
    pause(Duration::from_secs(1));
    world.broker.restart();
    let mut c = world.joined("c");
    let (got, when) = comes(&mut c, 10, released);
    assert_eq!(each(&got), [(0, 4), (1, 1)], "1.5 s after the start");
    at(Duration::from_secs(3), when);
}

#[test]
fn s20_crash() {
    for order in ["none", "key"] {
        let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut world = World::start(&keys, &[("sluice.share.order", order)]);
        let mut a = world.joined("a");
        assert_eq!(comes(&mut a, 10, Stopwatch::start()).0, [(0, 9, 1)]);
        says(&mut a, &[(0, 4, &[ACCEPT]), (9, 9, &[RELEASE])]);
        assert_eq!(comes(&mut a, 1, Stopwatch::start()).0, [(9, 9, 2)]);
        let epoch = a.epoch;
        world.broker.kill();
        world.broker.restart();
        let started = Stopwatch::start();
        let mut b = world.joined("b");
        let mut got = each(&comes(&mut b, 100, started).0);
        let mut a = world.connected("a");
        let accept: &[Ack<'_>] = &[(5, 5, &[ACCEPT])];
        assert_eq!(a.acknowledge_at(epoch, false, accept).error, 122);
        assert_eq!(a.fetch_at(epoch, Ask { acks: accept, ..ALL }).error, 122);
        let rest = [(5, 1), (6, 1), (7, 1), (8, 1), (9, 2)];
        let free: Vec<(i64, i16)> = (10..20).map(|offset| (offset, 1)).collect();
        if order == "key" {
            assert_eq!(got, free, "the rest is A's for its grace");
            let (late, when) = comes(&mut b, 100, started);
            assert_eq!(each(&late), rest, "nothing had changed");
            at(Duration::from_millis(7_500), when);
        } else {
            got.extend(each(&looks(&mut b, 100)));
            assert_eq!(got, [&rest[..], &free].concat());
        }
        says(&mut b, &[(5, 19, &[ACCEPT])]);
        assert_eq!(looks(&mut b, 100), [], "0 to 4 never again");
    }
}

#[test]
fn s20_a_new_session_after_a_crash_keeps_what_its_member_held() {
    let mut world = World::start(&["a"], &[("sluice.share.order", "key")]);
    let mut a = world.joined("a");
    assert_eq!(comes(&mut a, 10, Stopwatch::start()).0, [(0, 0, 1)]);
    world.broker.kill();
    world.broker.restart();
    let mut b = world.joined("b");
    assert_eq!(looks(&mut b, 10), []);
    pause(Duration::from_secs(2));
    let mut a = world.connected("a");
    assert_eq!(a.fetch(Ask { wait_ms: 0, ..ALL }).error, 0);
    assert_eq!(a.acknowledge_at(7, false, &[(0, 0, &[ACCEPT])]).error, 123);
    // Longer than the grace.
    pause(Duration::from_secs(7));
    assert_eq!(looks(&mut b, 10), []);
    says(&mut a, &[(0, 0, &[ACCEPT])]);
}
