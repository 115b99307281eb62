//! What a scenario is, and how one is played against a broker: any broker, the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::real_time::{Stopwatch, pause, wait_until, wall_clock_ns};
use integration_tests::share_member::{
    ACCEPT, ALL, Ack, Acknowledged, Acquired, Ask, Fetched, Part, RELEASE, ShareMember,
};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, DeleteRecordsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::{BatchBuilder, Batches};
use records::ids::Offset;
use records::{Codec, TimestampType};

/// A topic that was made just now becomes known to the partition's leader.
const PRODUCE_LIMIT: Duration = Duration::from_secs(30);
/// A share-partition is initialised at its first fetch, a lock lasts 15 s at least: what is due comes within this.
const TAKE_LIMIT: Duration = Duration::from_secs(6);

/// A script and what is to come of it.
pub(crate) struct Scenario {
    /// Begins with the id of its case. Names the topic and the group too.
    pub(crate) name: &'static str,
    /// Settings of the group before anybody joins.
    pub(crate) group: &'static [(&'static str, &'static str)],
    /// Whether the batches that come along are compared, too. Where a part of a stored batch is acquired, Kafka sends
    /// all of it and Sluice a slim one.
    pub(crate) data: bool,
    /// Steps, each with what Apache Kafka 4.4 answers.
    pub(crate) steps: &'static [(Step, &'static str)],
    /// Where Sluice answers otherwise, on purpose.
    pub(crate) differs: &'static [Difference],
}

/// A difference that is meant (decision 0008).
pub(crate) struct Difference {
    /// Index of the step.
    pub(crate) step: usize,
    /// What Sluice answers.
    pub(crate) ours: &'static str,
    /// Why that is better, or does no harm.
    pub(crate) why: &'static str,
}

/// One step of one member, or of nobody in particular.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Appends batches of so many records.
    Produce(&'static [usize]),
    /// Appends one batch of so many records whose timestamps are so many hours old.
    ProduceAged(usize, i64),
    /// Deletes what lies below this offset.
    DeleteRecords(i64),
    /// Sets settings of the group; the answer is its error.
    Configure(&'static [(&'static str, &'static str)]),
    /// Joins and waits for an assignment.
    Join(&'static str),
    /// One heartbeat at this epoch, with or without the topic.
    Heartbeat(&'static str, i32, bool),
    /// Closes the member's connection.
    Disconnect(&'static str),
    /// A fetch at the session's next epoch.
    Fetch(&'static str, Ask<'static>),
    /// A fetch at this epoch.
    FetchAt(&'static str, i32, Ask<'static>),
    /// Fetches until something is acquired.
    Take(&'static str, Ask<'static>),
    /// An acknowledgement at the session's next epoch.
    Acknowledge(&'static str, &'static [Ack<'static>]),
    /// An acknowledgement at this epoch.
    AcknowledgeAt(&'static str, i32, &'static [Ack<'static>]),
    /// An acknowledgement that may renew.
    Renew(&'static str, &'static [Ack<'static>]),
    /// Takes and accepts until nothing comes, all but this offset.
    Drain(&'static str, i64),
    /// Takes and releases all of it, at most so often.
    Bounce(&'static str, usize),
    /// Waits until so many ms have passed since the scenario first acquired anything.
    Until(u64),
    /// Waits so many ms.
    Wait(u64),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What the scenario says of it.
    pub(crate) text: String,
    /// What is compared beside it.
    pub(crate) detail: String,
}

/// Plays a scenario; one outcome for each step.
pub(crate) fn play(bootstrap: &str, scenario: &Scenario) -> Vec<Outcome> {
    let mut player = Player {
        bootstrap,
        scenario,
        admin: ApiClient::connect(bootstrap),
        topic: create_topic(bootstrap, scenario.name),
        members: BTreeMap::new(),
        since: None,
    };
    if !scenario.group.is_empty() {
        assert_eq!(
            player.admin.configure_group(scenario.name, scenario.group),
            0,
            "{}: its settings",
            scenario.name
        );
    }
    scenario.steps.iter().map(|(step, _)| player.step(step)).collect()
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn create_topic(bootstrap: &str, topic: &str) -> [u8; 16] {
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(topic)))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_timeout_ms(30_000).with_topics(vec![topic]);
    let answer = ApiClient::connect(bootstrap).call(7, &request);
    assert_eq!(answer.topics[0].error_code, 0, "{bootstrap}: {:?}", answer.topics[0].error_message);
    *answer.topics[0].topic_id.as_bytes()
}

struct Player<'a> {
    bootstrap: &'a str,
    scenario: &'a Scenario,
    admin: ApiClient,
    topic: [u8; 16],
    members: BTreeMap<&'static str, ShareMember>,
    since: Option<Stopwatch>,
}

impl Player<'_> {
    fn step(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Produce(batches) => {
                for records in batches {
                    self.produce(*records, 0);
                }
                plain(String::new())
            }
            Step::ProduceAged(records, hours) => {
                self.produce(records, hours);
                plain(String::new())
            }
            Step::DeleteRecords(below) => plain(self.delete_records(below).to_string()),
            Step::Configure(configs) => {
                plain(self.admin.configure_group(self.scenario.name, configs).to_string())
            }
            Step::Join(who) => {
                let topic = self.scenario.name;
                self.member(who).join(topic);
                plain(String::new())
            }
            Step::Heartbeat(who, epoch, with_topic) => {
                let topics = [self.scenario.name];
                let answer = self.member(who).heartbeat(epoch, with_topic.then_some(&topics[..]));
                // A member's epoch is the group's: how far that has come depends on when assignments are computed.
                let left = if answer.error_code == 0 && answer.member_epoch < 0 { ", left" } else { "" };
                plain(format!("{}{left}", answer.error_code))
            }
            Step::Disconnect(who) => {
                self.members.remove(who);
                plain(String::new())
            }
            Step::Fetch(who, ask) => {
                let fetched = self.member(who).fetch(ask);
                self.fetched(&fetched, &ask)
            }
            Step::FetchAt(who, epoch, ask) => {
                let fetched = self.member(who).fetch_at(epoch, ask);
                if epoch == 0 && fetched.error == 0 {
                    self.member(who).epoch = 1;
                }
                self.fetched(&fetched, &ask)
            }
            Step::Take(who, ask) => {
                let fetched = self.take(who, ask);
                self.fetched(&fetched, &ask)
            }
            Step::Acknowledge(who, acks) => acknowledged(&self.member(who).acknowledge(false, acks)),
            Step::AcknowledgeAt(who, epoch, acks) => {
                acknowledged(&self.member(who).acknowledge_at(epoch, false, acks))
            }
            Step::Renew(who, acks) => acknowledged(&self.member(who).acknowledge(true, acks)),
            Step::Drain(who, keep) => plain(self.drain(who, keep)),
            Step::Bounce(who, times) => plain(self.bounce(who, times)),
            Step::Until(ms) => {
                let since =
                    self.since.expect("a scenario acquires something before it waits for what follows");
                pause(Duration::from_millis(ms).saturating_sub(since.elapsed()));
                plain(String::new())
            }
            Step::Wait(ms) => {
                pause(Duration::from_millis(ms));
                plain(String::new())
            }
        }
    }

    fn member(&mut self, who: &'static str) -> &mut ShareMember {
        let (bootstrap, group, topic) = (self.bootstrap, self.scenario.name, self.topic);
        self.members.entry(who).or_insert_with(|| ShareMember::connect(bootstrap, group, who, topic))
    }

    fn take(&mut self, who: &'static str, ask: Ask<'static>) -> Fetched {
        let mut fetched = Fetched::default();
        wait_until(TAKE_LIMIT, || {
            fetched = self.member(who).fetch(ask);
            fetched.error != 0 || fetched.count() > 0
        });
        fetched
    }

    fn fetched(&mut self, fetched: &Fetched, ask: &Ask<'_>) -> Outcome {
        if fetched.count() > 0 {
            self.since.get_or_insert_with(Stopwatch::start);
        }
        if fetched.error != 0 {
            return plain(format!("error {}", fetched.error));
        }
        let mut told = Vec::new();
        let mut detail = format!("lock {} ms", fetched.lock_ms);
        for part in &fetched.parts {
            if !ask.acks.is_empty() {
                told.push(format!("ack {}", part.ack_error));
            }
            if part.error != 0 {
                told.push(format!("partition error {}", part.error));
            }
            told.extend(part.acquired.iter().map(range));
            let (batches, offsets) = batches(part);
            if self.scenario.data {
                let _ = write!(detail, ", batches {batches}");
            }
            let acquired = part.acquired.iter().flat_map(|(first, last, _)| *first..=*last);
            let missing = acquired.filter(|offset| !offsets.contains(offset)).count();
            if missing > 0 {
                told.push(format!("{missing} records missing"));
            }
        }
        if told.is_empty() {
            told.push("nothing".to_owned());
        }
        Outcome { text: told.join(", "), detail }
    }

    /// How many came, and from where to where.
    fn drain(&mut self, who: &'static str, keep: i64) -> String {
        let mut seen: BTreeSet<i64> = BTreeSet::new();
        loop {
            let fetched = self.take(who, Ask { wait_ms: 1_000, ..ALL });
            if fetched.error != 0 {
                return format!("error {}", fetched.error);
            }
            let ranges: Vec<Acquired> = fetched.acquired().collect();
            if ranges.is_empty() {
                break;
            }
            let mut acks: Vec<Ack<'_>> = Vec::new();
            for (first, last, _) in ranges {
                seen.extend(first..=last);
                if (first..=last).contains(&keep) {
                    acks.push((first, keep - 1, &[ACCEPT]));
                    acks.push((keep + 1, last, &[ACCEPT]));
                } else {
                    acks.push((first, last, &[ACCEPT]));
                }
            }
            acks.retain(|(first, last, _)| first <= last);
            let answer = self.member(who).acknowledge(false, &acks);
            if answer != (Acknowledged { error: 0, parts: vec![0] }) {
                return format!("refused: {answer:?}");
            }
        }
        let ends = seen.first().zip(seen.last());
        ends.map_or("nothing".to_owned(), |(first, last)| {
            format!("{} records, {first} to {last}", seen.len())
        })
    }

    fn bounce(&mut self, who: &'static str, times: usize) -> String {
        let mut told: Vec<String> = Vec::new();
        for _ in 0..times {
            let fetched = self.take(who, ALL);
            told.push(self.fetched(&fetched, &ALL).text);
            let acks: Vec<Ack<'_>> =
                fetched.acquired().map(|(first, last, _)| (first, last, &[RELEASE][..])).collect();
            if acks.is_empty() {
                break;
            }
            let answer = self.member(who).acknowledge(false, &acks);
            if answer != (Acknowledged { error: 0, parts: vec![0] }) {
                told.push(format!("refused: {answer:?}"));
                break;
            }
        }
        told.join("; ")
    }

    fn produce(&mut self, records: usize, age_hours: i64) {
        let now_ms = wall_clock_ns() / 1_000_000;
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        for number in 0..records {
            let key = format!("key-{number}");
            batch.append(now_ms - age_hours * 3_600_000, Some(key.as_bytes()), Some(b"value"), &[]);
        }
        let partition =
            PartitionProduceData::default().with_index(0).with_records(Some(batch.build(Offset(0), -1)));
        let topic = TopicProduceData::default()
            .with_name(TopicName(text(self.scenario.name)))
            .with_partition_data(vec![partition]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic]);
        let mut error = 0;
        let done = wait_until(PRODUCE_LIMIT, || {
            error = self.admin.call(9, &request).responses[0].partition_responses[0].error_code;
            error == 0
        });
        assert!(done, "{}: produce answers {error}", self.scenario.name);
    }

    fn delete_records(&mut self, below: i64) -> i16 {
        let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(below);
        let topic = DeleteRecordsTopic::default()
            .with_name(TopicName(text(self.scenario.name)))
            .with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_timeout_ms(10_000).with_topics(vec![topic]);
        self.admin.call(2, &request).topics[0].partitions[0].error_code
    }
}

fn plain(text: String) -> Outcome {
    Outcome { text, detail: String::new() }
}

fn acknowledged(answer: &Acknowledged) -> Outcome {
    if answer.error != 0 {
        return plain(format!("error {}", answer.error));
    }
    let parts: Vec<String> = answer.parts.iter().map(ToString::to_string).collect();
    plain(parts.join(", "))
}

fn range((first, last, count): &Acquired) -> String {
    if first == last { format!("[{first}]x{count}") } else { format!("[{first}-{last}]x{count}") }
}

/// The batches of an answer in words, and the offsets of the records in them.
fn batches(part: &Part) -> (String, BTreeSet<i64>) {
    let (mut told, mut offsets) = (Vec::new(), BTreeSet::new());
    for batch in Batches::new(&part.records) {
        let batch = batch.expect("answers hold whole batches");
        assert!(batch.crc_is_valid(), "the checksum of what was sent");
        told.push(format!("{}-{}", batch.base_offset().get(), batch.last_offset().get()));
        let records = batch.records(1 << 20).expect("records of a valid batch");
        for record in records.iter() {
            offsets.insert(record.expect("records of a valid batch").offset.get());
        }
    }
    (told.join(" "), offsets)
}
