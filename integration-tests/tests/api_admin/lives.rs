//! What a stop, a kill and a deletion leave behind.

use std::thread;
use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::{Deadline, Stopwatch, pause};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteTopicsRequest, FetchRequest, FindCoordinatorRequest, GroupId,
    InitProducerIdRequest, ListGroupsRequest, MetadataRequest, ProduceRequest,
};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};

use super::support::{DELETE, Fixture, GROUP, SET, SET_ON_TOPIC, TOPIC, new_topic, text, topic_name};

const PATIENCE: Duration = Duration::from_secs(60);

fn batch(count: i64, producer: Option<(i64, i32)>) -> bytes::Bytes {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    if let Some((id, sequence)) = producer {
        batch = batch.producer(id, 0, sequence);
    }
    for number in 0..count {
        batch.append(1_700_000_000_000, Some(&number.to_be_bytes()), Some(b"value"), &[]);
    }
    batch.build(Offset(0), -1)
}

fn produce_request(topic: &str, batch: bytes::Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_records(Some(batch));
    let data = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data])
}

fn fetch_request(topic: &str, offset: i64, wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

impl Fixture {
    fn again(&mut self) {
        self.broker.restart();
        self.client = ApiClient::connect(self.broker.bootstrap());
    }

    fn stop_and_restart(&mut self) {
        assert!(self.broker.terminate().success(), "{}", self.broker.log());
        self.again();
    }

    fn metadata(&mut self, topics: Option<&[&str]>) -> Vec<MetadataResponseTopic> {
        let named = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let topics = topics.map(|topics| topics.iter().map(named).collect());
        let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
        self.client.call(12, &request).topics
    }

    fn leader_epoch(&mut self, topic: &str) -> i32 {
        let topic = self.metadata(Some(&[topic])).remove(0);
        assert_eq!((topic.error_code, topic.partitions[0].error_code), (0, 0));
        topic.partitions[0].leader_epoch
    }

    fn send(&mut self, topic: &str, batch: bytes::Bytes) -> (i16, i64) {
        let answer = self.client.call(9, &produce_request(topic, batch)).responses.remove(0);
        let part = &answer.partition_responses[0];
        (part.error_code, part.base_offset)
    }

    fn producer_id(&mut self) -> i64 {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let answer = self.client.call(4, &request);
        assert_eq!(answer.error_code, 0);
        answer.producer_id.0
    }

    fn end(&mut self, topic: &str) -> i64 {
        let (code, end, _) = self.offset(topic, -1);
        assert_eq!(code, 0);
        end
    }

    fn delete_topics(&mut self, names: &[String]) {
        let named = |name: &String| DeleteTopicState::default().with_name(Some(topic_name(name)));
        let request = DeleteTopicsRequest::default()
            .with_topics(names.iter().map(named).collect())
            .with_timeout_ms(10_000);
        let answer = self.client.call(6, &request);
        assert!(answer.responses.iter().all(|topic| topic.error_code == 0), "{answer:?}");
    }
}

#[test]
fn p16_duplicates_are_known_across_kills_and_stops() {
    for lost in ["nothing", ".snapshot", ".producers"] {
        let mut fixture = Fixture::start();
        fixture.topic_with("t", 1, &[("internal.segment.bytes", "300")]);
        let id = fixture.producer_id();
        let (three, one) = (batch(3, Some((id, 0))), batch(1, Some((id, 3))));
        assert_eq!(fixture.send("t", three.clone()), (0, 0));
        fixture.broker.kill();
        let directory = fixture.broker.data_dir().join("t-0");
        for file in std::fs::read_dir(&directory).expect("the partition has a folder") {
            let path = file.expect("a file").path();
            if path.to_str().is_some_and(|path| path.ends_with(lost)) {
                std::fs::remove_file(path).expect("it can be removed");
            }
        }
        fixture.again();
        assert_eq!(fixture.send("t", three.clone()), (0, 0), "{lost}");
        assert_eq!(fixture.end("t"), 3, "{lost}: stored once");
        assert_eq!(fixture.send("t", one.clone()), (0, 3), "{lost}");
        fixture.stop_and_restart();
        assert_eq!(fixture.send("t", three), (0, 0), "{lost}");
        assert_eq!(fixture.send("t", one), (0, 3), "{lost}");
        assert_eq!(fixture.end("t"), 4, "{lost}: stored once");
    }
}

#[test]
fn r02_what_is_deleted_stays_deleted() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    fixture.topic("gone", 1);
    assert_eq!(fixture.send("t", batch(10, None)), (0, 0));
    // The first to ask for a coordinator makes its topic.
    let find = FindCoordinatorRequest::default().with_key(text("g"));
    let deadline = Deadline::after(PATIENCE);
    while fixture.client.call(3, &find).error_code != 0 {
        assert!(!deadline.is_over(), "no coordinator");
    }
    for group in ["g", "stays"] {
        while fixture.commit(group, "t", 7) != 0 {
            assert!(!deadline.is_over(), "no coordinator");
            pause(Duration::from_millis(10));
        }
    }
    assert_eq!(fixture.alter(TOPIC, "t", &[("retention.ms", SET, Some("5000000000"))]).0, 0);
    assert_eq!(fixture.alter(GROUP, "g", &[("share.auto.offset.reset", SET, Some("earliest"))]).0, 0);
    fixture.kill_and_restart();
    assert_eq!((fixture.committed("g", "t"), fixture.committed("stays", "t")), (7, 7));
    assert_eq!(fixture.value(TOPIC, "t", "retention.ms"), ("5000000000".to_owned(), SET_ON_TOPIC));

    let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
    assert_eq!(fixture.client.call(2, &delete).results[0].error_code, 0);
    assert_eq!(fixture.alter(TOPIC, "t", &[("retention.ms", DELETE, None)]).0, 0);
    assert_eq!(fixture.alter(GROUP, "g", &[("share.auto.offset.reset", DELETE, None)]).0, 0);
    fixture.delete_topics(&["gone".to_owned()]);
    for _ in 0..2 {
        fixture.kill_and_restart();
        assert_eq!((fixture.committed("g", "t"), fixture.committed("stays", "t")), (-1, 7));
        let listed = fixture.client.call(4, &ListGroupsRequest::default());
        let names: Vec<&str> = listed.groups.iter().map(|group| group.group_id.as_str()).collect();
        assert_eq!((listed.error_code, names), (0, vec!["stays"]));
        assert_ne!(fixture.value(TOPIC, "t", "retention.ms").1, SET_ON_TOPIC);
        assert_eq!(fixture.value(GROUP, "g", "share.auto.offset.reset").0, "latest");
        assert_eq!(fixture.metadata(Some(&["gone"]))[0].error_code, 3);
        let left = std::fs::read_dir(fixture.broker.data_dir()).expect("the data directory is there");
        let names: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
        assert!(!names.iter().any(|name| name == "gone-0"), "{names:?}");
    }
}

#[test]
fn r04_the_leader_epoch_goes_up_after_a_kill_and_never_back() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let mut epochs = vec![fixture.leader_epoch("t")];
    for (kills, raised) in [(false, 0), (true, 1), (false, 0), (true, 1), (true, 1)] {
        fixture.send("t", batch(1, None));
        if kills {
            fixture.kill_and_restart();
        } else {
            fixture.stop_and_restart();
        }
        let epoch = fixture.leader_epoch("t");
        assert_eq!(epoch, epochs.last().unwrap() + raised, "{epochs:?}, killed: {kills}");
        epochs.push(epoch);
    }
    fixture.send("t", batch(1, None));
    // The oldest record bears the epoch it was written in.
    let part = fixture.client.call(11, &fetch_request("t", 0, 0)).responses.remove(0).partitions.remove(0);
    let bytes = part.records.unwrap();
    let written: Vec<i32> = Batches::new(&bytes).map(|batch| batch.unwrap().leader_epoch()).collect();
    assert_eq!(written, epochs);
}

/// What a client under load is told; `None` once its connection is gone.
fn told(client: &mut ApiClient, round: i64, is_producer: bool) -> Option<i16> {
    if is_producer {
        let answer = client.try_call(9, &produce_request("t", batch(5, None))).ok()?;
        return Some(answer.responses[0].partition_responses[0].error_code);
    }
    // At the end, where it waits, and at the beginning, where there is data.
    let offset = if round % 2 == 0 { i64::from(round > 0) } else { 0 };
    let mut answer = client.try_call(11, &fetch_request("t", offset, 500)).ok()?;
    Some(answer.responses.remove(0).partitions.remove(0).error_code)
}

#[test]
fn r05_a_stop_under_load_is_quick_and_tells_nothing_wrong() {
    for round in 0..3 {
        let mut fixture = Fixture::start();
        fixture.topic("t", 1);
        assert_eq!(fixture.send("t", batch(1, None)), (0, 0));
        let epoch = fixture.leader_epoch("t");
        let address = fixture.broker.bootstrap().to_owned();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let address = address.clone();
                thread::spawn(move || {
                    let mut client = ApiClient::connect(&address);
                    let (mut codes, mut stored) = (Vec::new(), 0);
                    let deadline = Deadline::after(PATIENCE);
                    for round in 0.. {
                        assert!(!deadline.is_over(), "the broker does not stop");
                        let Some(code) = told(&mut client, round, number < 4) else { break };
                        stored += i64::from(number < 4 && code == 0) * 5;
                        codes.push(code);
                    }
                    codes.sort_unstable();
                    codes.dedup();
                    // NOT_LEADER_OR_FOLLOWER is retried by all; REQUEST_TIMED_OUT is for producers alone.
                    let is_right = |code: &i16| matches!(code, 0 | 6) || number < 4 && *code == 7;
                    assert!(codes.iter().all(is_right), "{codes:?}");
                    stored
                })
            })
            .collect();
        // One that waits at the end.
        let waiting = thread::spawn(move || {
            let mut client = ApiClient::connect(&address);
            let mut fetch = fetch_request("t", 1, 60_000);
            fetch.min_bytes = i32::MAX;
            let answer = client.try_call(11, &fetch).ok()?;
            Some(answer.responses[0].partitions[0].error_code)
        });
        pause(Duration::from_millis(200 + 100 * round));
        let watch = Stopwatch::start();
        assert!(fixture.broker.terminate().success(), "{}", fixture.broker.log());
        assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
        let mut stored = 1;
        for client in clients {
            stored += client.join().expect("a client ends in order");
        }
        assert!(matches!(waiting.join().expect("it ends in order"), None | Some(0)));
        fixture.again();
        assert_eq!(fixture.leader_epoch("t"), epoch, "the stop was one in order");
        assert!(fixture.end("t") >= stored, "what was acknowledged is there");
        assert!(!fixture.broker.log().contains("recover"), "{}", fixture.broker.log());
    }
}

#[test]
fn r12_thousands_of_partitions() {
    let mut fixture = Fixture::start();
    let before = fixture.broker.open_files();
    let names: Vec<String> = (0..1_000).map(|number| format!("topic-{number}")).collect();
    for some in names.chunks(100) {
        let created = fixture.create(7, some.iter().map(|name| new_topic(name, 4, 1)).collect());
        assert!(created.iter().all(|topic| topic.error_code == 0));
    }
    let check = |fixture: &mut Fixture| {
        let topics = fixture.metadata(None);
        assert_eq!(topics.len(), 1_000);
        assert!(topics.iter().all(|topic| topic.error_code == 0 && topic.partitions.len() == 4));
        let parts = topics.iter().flat_map(|topic| &topic.partitions);
        assert!(parts.into_iter().all(|part| part.error_code == 0));
        let files = fixture.broker.open_files();
        assert!(files < before + 1_000, "{files} open files");
    };
    check(&mut fixture);
    for name in names.iter().step_by(10) {
        assert_eq!(fixture.send(name, batch(1, None)), (0, 0));
    }
    fixture.stop_and_restart();
    check(&mut fixture);
    let start = fixture.broker.start_time();
    fixture.kill_and_restart();
    check(&mut fixture);
    for start in [start, fixture.broker.start_time()] {
        assert!(start < Duration::from_secs(10), "{start:?}");
    }
    for name in names.iter().step_by(10) {
        assert_eq!(fixture.end(name), 1);
    }
    for some in names.chunks(100) {
        fixture.delete_topics(some);
    }
    assert!(fixture.metadata(None).is_empty());
    fixture.kill_and_restart();
    assert!(fixture.metadata(None).is_empty());
}

#[test]
fn r06_an_empty_broker_answers_at_once() {
    let broker = BrokerProcess::start();
    let watch = Stopwatch::start();
    let mut client = ApiClient::connect(broker.bootstrap());
    let answer = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!((answer.brokers.len(), answer.topics.len()), (1, 0));
    assert!(watch.elapsed() < Duration::from_secs(1), "{:?}", watch.elapsed());
}
