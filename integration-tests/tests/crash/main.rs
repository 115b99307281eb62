//! A loaded broker is killed at random moments, again and again: nothing that was acknowledged is lost, nothing of an
//! idempotent producer is doubled, and every file checks.
//!
//! A few rounds in the ordinary run; `make test-crash` makes it 200 (`SLUICE_CRASH_ROUNDS`). Each partition has one
//! producer that numbers its records, so the log itself says what is missing or doubled. Some hold transactions too, which
//! are written while the broker is down: those that are committed are shown, aborted and open ones are not.

mod transactions;

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::{BrokerProcess, binary};
use integration_tests::real_time::{Deadline, pause};
use integration_tests::sim::random::Random;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::share_fetch_request::{
    FetchPartition as SharePartition, FetchTopic as ShareTopic,
};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, FetchRequest, GroupId, InitProducerIdRequest, ProduceRequest,
    ShareFetchRequest, ShareGroupHeartbeatRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use records::batch::{BatchBuilder, Batches};
use records::ids::Offset;
use records::{Codec, TimestampType};
use transactions::Transactions;

/// Rounds in an ordinary run.
const ROUNDS: u64 = 3;
/// The longest time of work before a kill.
const WORK_MS_MAX: u64 = 700;
/// How often a finding of verify is looked at again.
const VERIFIED_MAX: u32 = 4;
/// Records of a batch, at most.
const BATCH_MAX: u64 = 20;
/// Bytes of a record's value: enough for segments to be rolled while it goes on.
const VALUE_BYTES: usize = 400;
/// Much longer than a start and a retry take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A partition, and the settings of its topic.
#[derive(Clone, Copy, Debug)]
struct Place {
    topic: &'static str,
    index: i32,
    life: Life,
    codec: Codec,
}

/// What becomes of old records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Kept,
    /// They leave by size.
    Shrinks,
    /// Of each key the last one stays.
    Compacts,
}

const PLACES: [Place; 6] = [
    Place { topic: "kept", index: 0, life: Life::Kept, codec: Codec::None },
    Place { topic: "kept", index: 1, life: Life::Kept, codec: Codec::Zstd },
    Place { topic: "shrinks", index: 0, life: Life::Shrinks, codec: Codec::None },
    Place { topic: "shrinks", index: 1, life: Life::Shrinks, codec: Codec::Lz4 },
    Place { topic: "compacts", index: 0, life: Life::Compacts, codec: Codec::None },
    Place { topic: "compacts", index: 1, life: Life::Compacts, codec: Codec::Snappy },
];

/// Here transactions are written between the kills.
const MIXED: [Place; 2] = [
    Place { topic: "mixed", index: 0, life: Life::Kept, codec: Codec::None },
    Place { topic: "mixed-compacts", index: 0, life: Life::Compacts, codec: Codec::Lz4 },
];

/// Compaction is to happen within the short lives of this test, and share groups make the keys indexed.
const SETTINGS: &str =
    "log.cleaner.backoff.ms=50\nlog.retention.check.interval.ms=200\ngroup.sluice.share.order=key\n";
/// Keys of each partition.
const KEYS: i64 = 50;

/// What a producer and the test share.
#[derive(Debug, Default)]
struct Shared {
    /// Nothing is sent while it holds.
    paused: AtomicBool,
    ended: AtomicBool,
    /// Records below this number are acknowledged.
    acknowledged: AtomicI64,
}

#[test]
fn p20_what_is_acknowledged_survives_any_number_of_kills() {
    let rounds =
        std::env::var("SLUICE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut random = Random::new(rounds);
    let settings = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(settings.path(), SETTINGS).expect("it can be written");
    let mut broker = BrokerProcess::start_with(&["--config", settings.path().to_str().expect("plain names")]);
    let topics = create_topics(broker.bootstrap());
    index_keys(broker.bootstrap(), &topics, 0);
    let producers: Vec<(Arc<Shared>, JoinHandle<()>)> = PLACES
        .iter()
        .chain(&MIXED)
        .enumerate()
        .map(|(number, &place)| {
            let shared = Arc::new(Shared::default());
            let (mine, address) = (Arc::clone(&shared), broker.bootstrap().to_owned());
            (shared, thread::spawn(move || produce(place, &address, &mine, number as u64)))
        })
        .collect();
    let mut readers = PLACES.map(|place| Reader { place, next_offset: 0, next_number: 0, seen: Vec::new() });
    let mut mixed = MIXED.map(|place| Transactions::new(place, rounds));
    for round in 0..rounds {
        pause(Duration::from_millis(random.between(20, WORK_MS_MAX)));
        broker.kill();
        producers.iter().for_each(|(shared, _)| shared.paused.store(true, Ordering::SeqCst));
        let is_last = round + 1 == rounds;
        transactions::go_on(broker.data_dir(), &mut mixed, is_last);
        broker.restart();
        wait_for_quiet(&producers);
        verify(&broker, round);
        // In every other life only what stands on the disk says that keys are indexed.
        if round % 2 == 0 {
            index_keys(broker.bootstrap(), &topics, round + 1);
        }
        let mut client = ApiClient::connect(broker.bootstrap());
        for (reader, (shared, _)) in readers.iter_mut().zip(&producers) {
            reader.read(&mut client);
            let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
            assert!(
                reader.next_number >= acknowledged,
                "round {round}, {:?}: {acknowledged} records are acknowledged, {} are there",
                reader.place,
                reader.next_number
            );
        }
        for (transactions, (shared, _)) in mixed.iter_mut().zip(&producers[PLACES.len()..]) {
            let shown = transactions.check(&mut client);
            let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
            assert!(!is_last || shown >= acknowledged, "{acknowledged} are acknowledged, {shown} are shown");
        }
        producers.iter().for_each(|(shared, _)| shared.paused.store(false, Ordering::SeqCst));
    }
    for (shared, producer) in producers {
        shared.ended.store(true, Ordering::SeqCst);
        producer.join().expect("a producer goes on through every crash");
    }
    let mut client = ApiClient::connect(broker.bootstrap());
    readers.iter_mut().for_each(|reader| reader.read(&mut client));
    let compacted: i64 = readers.iter().map(|reader| reader.holds_the_last_of_each_key(&mut client)).sum();
    let told = mixed.iter_mut().map(|transactions| {
        transactions.check(&mut client);
        transactions.check_all(&mut client)
    });
    let (committed, aborted) = told.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(committed > 0 && aborted > 0, "{committed} committed records, {aborted} aborted transactions");
    let sent: i64 = readers.iter().map(|reader| reader.next_number).sum();
    assert!(sent > 100, "only {sent} records were sent");
    assert!(broker.terminate().success(), "{}", broker.log());
    verify(&broker, rounds);
    let indexed = key_index_files(&broker);
    assert!(indexed >= PLACES.len(), "{indexed} key indexes");
    println!("{rounds} kills, {sent} records, none lost, none doubled; {compacted} compacted away");
    println!("{committed} records of committed transactions, {aborted} transactions aborted");
}

/// The whole data directory checks. No client writes meanwhile, but compaction may put new segments in the place of those
/// that are just being read: a finding is believed when it is there again.
fn verify(broker: &BrokerProcess, round: u64) {
    let mut found = String::new();
    for _ in 0..VERIFIED_MAX {
        let mut verify = Command::new(binary());
        verify.args(["log", "verify", "--data-dir"]).arg(broker.data_dir());
        let output = verify.output().expect("the binary runs");
        if output.status.success() {
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        found = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
        pause(Duration::from_millis(WORK_MS_MAX));
    }
    panic!("round {round}:\n{found}\n{}", broker.log());
}

/// How many segments have a key index.
fn key_index_files(broker: &BrokerProcess) -> usize {
    let directories = std::fs::read_dir(broker.data_dir()).expect("the data directory is there").flatten();
    directories
        .filter_map(|entry| std::fs::read_dir(entry.path()).ok())
        .flat_map(Iterator::flatten)
        .filter(|file| file.path().extension().is_some_and(|suffix| suffix == "keyindex"))
        .count()
}

/// Until no producer has a request under way.
fn wait_for_quiet(producers: &[(Arc<Shared>, JoinHandle<()>)]) {
    let numbers = || -> Vec<i64> {
        producers.iter().map(|(shared, _)| shared.acknowledged.load(Ordering::SeqCst)).collect()
    };
    let deadline = Deadline::after(PATIENCE);
    let mut before = numbers();
    loop {
        assert!(!deadline.is_over(), "producers do not pause");
        pause(Duration::from_millis(50));
        let now = numbers();
        if now == before {
            return;
        }
        before = now;
    }
}

/// A member of a key-ordered group asks for records of every partition, and is never seen again.
fn index_keys(address: &str, topics: &[CreatableTopicResult], life: u64) {
    let mut client = ApiClient::connect(address);
    let names = PLACES.iter().map(|place| TopicName(StrBytes::from_static_str(place.topic))).collect();
    let group = || GroupId(StrBytes::from_static_str("keyed"));
    let member = StrBytes::from_string(format!("member of life {life}"));
    let heartbeat = ShareGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(member.clone())
        .with_subscribed_topic_names(Some(names));
    let deadline = Deadline::after(PATIENCE);
    while client.call(1, &heartbeat).error_code != 0 {
        assert!(!deadline.is_over(), "no coordinator");
        pause(Duration::from_millis(10));
    }
    let partitions = || [0, 1].map(|index| SharePartition::default().with_partition_index(index)).to_vec();
    let topics = topics
        .iter()
        .map(|topic| ShareTopic::default().with_topic_id(topic.topic_id).with_partitions(partitions()))
        .collect();
    let fetch = ShareFetchRequest::default()
        .with_group_id(Some(group()))
        .with_member_id(Some(member))
        .with_max_wait_ms(100)
        .with_max_bytes(1)
        .with_max_records(1)
        .with_topics(topics);
    assert_eq!(client.call(1, &fetch).error_code, 0);
}

fn create_topics(address: &str) -> Vec<CreatableTopicResult> {
    let set = |name: &'static str, value: &'static str| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_static_str(value)))
    };
    // The timestamps of the records are old.
    let topic = |name: &'static str, configs: Vec<CreatableTopicConfig>| {
        CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_num_partitions(2)
            .with_replication_factor(1)
            .with_configs([configs, vec![set("retention.ms", "-1")]].concat())
    };
    let segment = || set("segment.bytes", "1048576");
    let topics = vec![
        topic("kept", vec![segment()]),
        topic("mixed", vec![segment()]),
        topic(
            "mixed-compacts",
            vec![segment(), set("cleanup.policy", "compact"), set("min.cleanable.dirty.ratio", "0.01")],
        ),
        topic("shrinks", vec![segment(), set("retention.bytes", "1500000")]),
        topic(
            "compacts",
            vec![segment(), set("cleanup.policy", "compact"), set("min.cleanable.dirty.ratio", "0.01")],
        ),
    ];
    let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(10_000);
    let created = ApiClient::connect(address).call(7, &request).topics;
    for created in &created {
        assert_eq!(created.error_code, 0, "{created:?}");
    }
    created
}

/// Sends numbered records until it is told to end, each batch until it is acknowledged.
fn produce(place: Place, address: &str, shared: &Shared, seed: u64) {
    let mut random = Random::new(seed);
    let mut connection: Option<ApiClient> = None;
    let id = until_done(shared, |shared| {
        let client = connected(&mut connection, address, shared)?;
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let answer = client.try_call(4, &request)?;
        Ok((answer.error_code == 0).then_some(answer.producer_id.0))
    });
    let mut number = 0_i64;
    while !shared.ended.load(Ordering::SeqCst) {
        let count = i64::try_from(random.between(1, BATCH_MAX)).expect("few");
        let request = request(place, id, number, count);
        until_done(shared, |shared| {
            let client = connected(&mut connection, address, shared)?;
            match client.try_call(9, &request) {
                Ok(answer) => {
                    let part = &answer.responses[0].partition_responses[0];
                    // While it starts, or where its answer was lost: once more.
                    assert!(matches!(part.error_code, 0 | 3 | 5 | 6), "{place:?}: {part:?}");
                    Ok((part.error_code == 0).then_some(()))
                }
                Err(error) => {
                    connection = None;
                    Err(error)
                }
            }
        });
        number += count;
        shared.acknowledged.store(number, Ordering::SeqCst);
    }
}

/// Tries until there is an answer, also when it is told to end: its reader counts what is under way.
fn until_done<T>(shared: &Shared, mut attempt: impl FnMut(&Shared) -> io::Result<Option<T>>) -> T {
    let deadline = Deadline::after(PATIENCE * 10);
    loop {
        match attempt(shared) {
            Ok(Some(done)) => return done,
            Ok(None) | Err(_) => {
                assert!(!deadline.is_over(), "no answer");
                pause(Duration::from_millis(10));
            }
        }
    }
}

/// A connection, once nobody wants it quiet.
fn connected<'a>(
    connection: &'a mut Option<ApiClient>,
    address: &str,
    shared: &Shared,
) -> io::Result<&'a mut ApiClient> {
    if shared.paused.load(Ordering::SeqCst) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    if connection.is_none() {
        *connection = Some(ApiClient::try_connect(address)?);
    }
    Ok(connection.as_mut().expect("connected above"))
}

fn request(place: Place, id: i64, number: i64, count: i64) -> ProduceRequest {
    let sequence = i32::try_from(number).expect("a test is short");
    let mut batch = BatchBuilder::new(place.codec, TimestampType::Create).producer(id, 0, sequence);
    for number in number..number + count {
        let key = (number % KEYS).to_be_bytes();
        let mut value = number.to_be_bytes().to_vec();
        value.resize(VALUE_BYTES, b'.');
        batch.append(1_700_000_000_000 + number, Some(&key), Some(&value), &[]);
    }
    let records = batch.build(Offset(0), -1);
    let partition = PartitionProduceData::default().with_index(place.index).with_records(Some(records));
    let data = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str(place.topic)))
        .with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data])
}

/// Reads a partition on from where it has come to.
#[derive(Debug)]
struct Reader {
    place: Place,
    next_offset: i64,
    next_number: i64,
    seen: Vec<i64>,
}

impl Reader {
    fn read(&mut self, client: &mut ApiClient) {
        loop {
            let partition = FetchPartition::default()
                .with_partition(self.place.index)
                .with_fetch_offset(self.next_offset)
                .with_partition_max_bytes(4 << 20);
            let topic = FetchTopic::default()
                .with_topic(TopicName(StrBytes::from_static_str(self.place.topic)))
                .with_partitions(vec![partition]);
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_bytes(4 << 20)
                .with_session_epoch(-1)
                .with_topics(vec![topic]);
            let part = client.call(11, &request).responses.remove(0).partitions.remove(0);
            if part.error_code == 1 && self.place.life == Life::Shrinks {
                self.skip_to_start(client);
                continue;
            }
            assert_eq!(part.error_code, 0, "{:?}: {part:?}", self.place);
            let records = part.records.unwrap_or_default();
            if records.is_empty() {
                return;
            }
            for batch in Batches::new(&records) {
                let batch = batch.expect("whole batches");
                assert!(batch.crc_is_valid());
                for record in batch.records(16 << 20).expect("readable").iter() {
                    let record = record.expect("readable");
                    if record.offset.0 < self.next_offset {
                        continue;
                    }
                    let value = record.value.expect("a value");
                    let number = i64::from_be_bytes(value[..8].try_into().expect("8 bytes"));
                    if self.place.life == Life::Compacts {
                        // Holes are its life; nothing may come twice.
                        assert!(number >= self.next_number, "{:?} at {}", self.place, record.offset);
                    } else {
                        assert_eq!(number, self.next_number, "{:?} at {}", self.place, record.offset);
                    }
                    assert_eq!(record.offset.0, number, "{:?}", self.place);
                    (self.next_number, self.next_offset) = (number + 1, number + 1);
                    if self.place.life == Life::Compacts {
                        self.seen.push(number);
                    }
                }
            }
        }
    }

    /// Reads a compacted partition from its start: of each key the last record must be there. How many are not.
    fn holds_the_last_of_each_key(&self, client: &mut ApiClient) -> i64 {
        if self.place.life != Life::Compacts {
            return 0;
        }
        let mut again = Self { place: self.place, next_offset: 0, next_number: 0, seen: Vec::new() };
        again.read(client);
        assert_eq!(again.next_number, self.next_number, "{:?}", self.place);
        for number in (self.next_number - KEYS).max(0)..self.next_number {
            assert!(again.seen.contains(&number), "{:?}: {number} is the last of its key", self.place);
        }
        self.next_number - i64::try_from(again.seen.len()).expect("few")
    }

    /// Old records have left: the offsets are the numbers, as nothing is doubled.
    fn skip_to_start(&mut self, client: &mut ApiClient) {
        use kafka_protocol::messages::ListOffsetsRequest;
        use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
        let partition = ListOffsetsPartition::default()
            .with_partition_index(self.place.index)
            .with_current_leader_epoch(-1)
            .with_timestamp(-2);
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(self.place.topic)))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let start = client.call(7, &request).topics[0].partitions[0].offset;
        assert!(start > self.next_offset, "{:?}: {start}", self.place);
        (self.next_offset, self.next_number) = (start, start);
    }
}
