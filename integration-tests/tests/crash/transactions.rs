//! Transactional records beside those of live producers: written through `storage` while the broker is down, since clients
//! cannot write them yet, and read by the broker's readers of committed records.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use integration_tests::api_client::ApiClient;
use integration_tests::sim::random::Random;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::{BatchBuilder, Batches, EndMarker};
use records::ids::{Offset, PartitionId};
use records::{BatchView, TimestampType};
use storage::{DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk};

use crate::{Life, Place, VALUE_BYTES};

/// Above every id that the broker hands out.
const PRODUCER_FIRST: i64 = 1_000_000;
const PRODUCERS: u64 = 3;
/// Things done while the broker is down, at most.
const STEPS_MAX: u64 = 30;
const NOW: i64 = 1_700_000_000_000;
/// Segments of this session are small, so that transactions reach over several.
const SEGMENT_BYTES: u64 = 20_000;
const FETCH_BYTES: i32 = 4 << 20;

/// One partition's transactions, as they were written.
#[derive(Debug)]
pub(crate) struct Transactions {
    place: Place,
    random: Random,
    next: i64,
    sequences: BTreeMap<i64, i32>,
    /// Offset and value of the records of each open transaction.
    open: BTreeMap<i64, Vec<(i64, i64)>>,
    /// Value by offset.
    committed: BTreeMap<i64, i64>,
    aborted: u64,
    reader: Reader,
}

/// Opens the data directory of a stopped broker and goes on with the transactions; with `end_all` none stays open.
pub(crate) fn go_on(data_dir: &Path, all: &mut [Transactions], end_all: bool) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(data_dir).expect("the directory is there"));
    let directory = DataDir::open(Arc::clone(&disk)).expect("nobody else has it");
    let metadata = Metadata::open(&disk).expect("it survives every kill");
    let boot = metadata.begin_boot(directory.was_clean()).expect("writable");
    let cluster_id = metadata.cluster_id([1; 16]).expect("readable");
    let options = Options { cluster_id, ..Options::default() };
    let mut logs = Logs::open(directory, options, boot).expect("it can be opened");
    let topics = metadata.topics().expect("readable");
    for transactions in all {
        let Place { topic, index, life, .. } = transactions.place;
        let known = topics.iter().find(|known| known.name == topic).expect("created");
        let partition = PartitionId { topic: known.id, index };
        let config = LogConfig {
            segment_bytes: SEGMENT_BYTES,
            retention_ms: -1,
            compact: life == Life::Compacts,
            ..LogConfig::default()
        };
        logs.open_partition(partition, topic, config).expect("it recovers");
        transactions.go_on(&mut logs, partition, end_all);
        if let Some(job) = logs.sync_job(partition).expect("open") {
            logs.sync_done(job.run()).expect("synced");
        }
    }
    // It is left as a kill leaves it: the broker recovers.
}

impl Transactions {
    pub(crate) fn new(place: Place, seed: u64) -> Self {
        Self {
            place,
            random: Random::new(seed),
            next: 0,
            sequences: BTreeMap::new(),
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
            aborted: 0,
            reader: Reader::default(),
        }
    }

    fn go_on(&mut self, logs: &mut Logs, partition: PartitionId, end_all: bool) {
        for _ in 0..self.random.between(1, STEPS_MAX) {
            let producer = PRODUCER_FIRST + i64::try_from(self.random.below(PRODUCERS)).expect("few");
            match self.random.below(10) {
                0..6 => self.data(logs, partition, producer),
                6..8 => self.end(logs, partition, producer, true),
                _ => self.end(logs, partition, producer, false),
            }
        }
        if end_all {
            for producer in self.open.keys().copied().collect::<Vec<_>>() {
                let commit = self.random.percent(50);
                self.end(logs, partition, producer, commit);
            }
        }
    }

    fn data(&mut self, logs: &mut Logs, partition: PartitionId, producer: i64) {
        let sequence = self.sequences.entry(producer).or_default();
        let count = i64::try_from(self.random.between(1, 10)).expect("few");
        let mut batch = BatchBuilder::new(self.place.codec, TimestampType::Create)
            .producer(producer, 0, *sequence)
            .transactional();
        for value in self.next..self.next + count {
            // No key comes twice: compaction takes what was aborted and nothing else.
            let key = format!("transactional {value}");
            batch.append(NOW, Some(key.as_bytes()), Some(&value.to_be_bytes()), &[]);
        }
        *sequence += i32::try_from(count).expect("few");
        let base = append(logs, partition, &batch.build(Offset(0), -1), Origin::Client);
        let records = (0..count).map(|number| (base + number, self.next + number));
        self.open.entry(producer).or_default().extend(records);
        self.next += count;
    }

    fn end(&mut self, logs: &mut Logs, partition: PartitionId, producer: i64, commit: bool) {
        let marker = EndMarker { commit, coordinator_epoch: 0 }.batch(producer, 0, NOW);
        append(logs, partition, &marker, Origin::Coordinator);
        let records = self.open.remove(&producer).unwrap_or_default();
        if commit {
            self.committed.extend(records);
        } else {
            self.aborted += u64::from(!records.is_empty());
        }
    }

    /// Reads on, and checks that committed records are there, aborted ones are not shown, and open ones hold the rest
    /// back. How many records of the live producer are shown.
    pub(crate) fn check(&mut self, client: &mut ApiClient) -> i64 {
        self.reader.read(client, self.place);
        let reader = &self.reader;
        let first_open = self.open.values().filter_map(|records| records.first()).min();
        let stable = first_open.map_or(reader.end, |(offset, _)| *offset);
        assert_eq!(reader.stable, stable, "{:?}: the last stable offset", self.place);
        let expected: BTreeMap<i64, i64> =
            self.committed.range(..stable).map(|(at, value)| (*at, *value)).collect();
        assert_eq!(reader.shown, expected, "{:?}: committed records below {stable}", self.place);
        reader.live_next
    }

    /// Reads all of it once more: compaction has taken nothing that was committed. How many records were committed and
    /// how many transactions aborted.
    pub(crate) fn check_all(&mut self, client: &mut ApiClient) -> (usize, u64) {
        let live_next = self.reader.live_next;
        self.reader = Reader::default();
        assert_eq!(self.check(client), live_next, "{:?}", self.place);
        (self.committed.len(), self.aborted)
    }
}

fn append(logs: &mut Logs, partition: PartitionId, batch: &Bytes, origin: Origin) -> i64 {
    let batch = BytesMut::from(&batch[..]);
    logs.append(partition, batch, origin, NOW).expect("it can be appended").base_offset.0
}

/// A reader of committed records.
#[derive(Debug, Default)]
struct Reader {
    next_offset: i64,
    /// Value by offset of the transactional records that were shown.
    shown: BTreeMap<i64, i64>,
    /// The number behind that of the last record of the live producer.
    live_next: i64,
    stable: i64,
    end: i64,
}

impl Reader {
    fn read(&mut self, client: &mut ApiClient, place: Place) {
        loop {
            let part = fetch(client, place, self.next_offset);
            (self.stable, self.end) = (part.last_stable_offset, part.high_watermark);
            let records = part.records.unwrap_or_default();
            if records.is_empty() {
                assert_eq!(self.next_offset, self.stable, "{place:?}: it is shown all that is stable");
                return;
            }
            let mut aborted: Vec<(i64, i64)> = part
                .aborted_transactions
                .expect("a list, be it empty")
                .iter()
                .map(|txn| (txn.first_offset, txn.producer_id.0))
                .collect();
            aborted.sort_unstable();
            self.take(place, &records, &aborted);
        }
    }

    /// Takes batches in as Kafka's consumer does (`CompletedFetch`).
    fn take(&mut self, place: Place, records: &Bytes, aborted: &[(i64, i64)]) {
        let mut aborted = aborted.iter().peekable();
        let mut void = Vec::new();
        for batch in Batches::new(records) {
            let batch = batch.expect("whole batches");
            assert!(batch.crc_is_valid());
            assert!(batch.base_offset().0 < self.stable, "{place:?}: nothing is shown that is not stable");
            let producer = batch.producer_id();
            while let Some((_, id)) = aborted.next_if(|(first, _)| *first <= batch.last_offset().0) {
                void.push(*id);
            }
            if batch.attributes().is_control() {
                if EndMarker::of(&batch).is_some_and(|marker| !marker.commit) {
                    void.retain(|id| *id != producer);
                }
            } else if !(batch.attributes().is_transactional() && void.contains(&producer)) {
                self.show(place, &batch);
            }
            self.next_offset = batch.next_offset().0;
        }
    }

    fn show(&mut self, place: Place, batch: &BatchView<'_>) {
        for record in batch.records(16 << 20).expect("readable").iter() {
            let record = record.expect("readable");
            let value = record.value.expect("a value");
            let number = i64::from_be_bytes(value[..8].try_into().expect("8 bytes"));
            if batch.attributes().is_transactional() {
                self.shown.insert(record.offset.0, number);
                continue;
            }
            assert_eq!(value.len(), VALUE_BYTES);
            let follows = if place.life == Life::Compacts {
                number >= self.live_next
            } else {
                number == self.live_next
            };
            assert!(follows, "{place:?} at {}: {number} behind {}", record.offset, self.live_next);
            self.live_next = number + 1;
        }
    }
}

fn fetch(client: &mut ApiClient, place: Place, offset: i64) -> PartitionData {
    let partition = FetchPartition::default()
        .with_partition(place.index)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(FETCH_BYTES);
    let topic = FetchTopic::default()
        .with_topic(TopicName(StrBytes::from_static_str(place.topic)))
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(FETCH_BYTES)
        .with_isolation_level(1)
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    let part = client.call(11, &request).responses.remove(0).partitions.remove(0);
    assert_eq!(part.error_code, 0, "{place:?}: {part:?}");
    part
}
