//! Dead letters on their way: read, copied to the group's dead-letter topic, synced, and only then archived (O5).
//!
//! One batch of a share-partition is under way at a time, in offset order, so that the records of a followed key keep
//! theirs. Nothing is lost where it fails: the records wait, and are tried again in a while, and at once when topics or
//! settings change. A crash between the copy and the archiving makes one copy twice at most.
//!
//! The copy is Apache Kafka 4.4's (`ShareGroupDLQStateManager`): the partition with the source's index modulo the topic's
//! count, uncompressed, stamped with the time of the copy, headers in its order and texts, the record's own headers not
//! copied; key and value are left out where they are not asked for, cannot be read, or do not fit. Two headers are ours.

use std::sync::Arc;

use bytes::Bytes;
use records::batch::{BatchBuilder, Header, TimestampType};
use records::ids::{KeyHash, Offset, PartitionId};
use records::{Codec, key_hash};

use super::{Op, ShareMachine, Timer};
use crate::command::TopicImage;
use crate::io::{
    AppendError, Appended, IoError, OpId, Origin, READ_RECORDS_MAX, ReadRecord, Slice, Submission,
    WholeRecord,
};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::Effect;
use crate::share::ShareConfig;
use crate::share::admin::{DeadLetterTrouble, StopReason};
use crate::share::event::TEXT_BYTES_MAX;
use crate::share::poison::DeadLetter;
use crate::time::{Micros, Now};

/// Records of one copy.
const LETTERS_MAX: usize = READ_RECORDS_MAX;
/// Bytes of keys and values that are read for one copy, about.
const READ_BYTES_MAX: u64 = 1 << 20;
/// What a dead letter takes beside key, value, group and topic name: its headers, with room to spare.
const LETTER_OVERHEAD: usize = 512 + TEXT_BYTES_MAX;
/// A topic that is to be made and does not come is asked for again after this long.
const CREATE_AGAIN: Micros = Micros(1_000_000);
/// A copy that failed is tried again after this long, doubled with each failure …
const RETRY_MIN: Micros = Micros(100_000);
/// … up to this.
const RETRY_MAX: Micros = Micros(30_000_000);

const _: () = assert!(LETTERS_MAX <= READ_RECORDS_MAX, "one read brings the records of a copy");

/// What is under way for the dead letters of one share-partition.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// Those of the copy under way; empty: there is none.
    letters: Vec<DeadLetter>,
    /// It begins when so many appends of events have succeeded: what stopped the records is stored then.
    begins_after: Option<u64>,
    failures: u32,
    trouble: Option<DeadLetterTrouble>,
    /// What of it the operator was told.
    told: Option<DeadLetterTrouble>,
}

impl Copying {
    /// Why dead letters wait, where they do.
    pub(super) fn trouble(&self) -> Option<DeadLetterTrouble> {
        self.trouble
    }
}

/// Where a copy goes.
struct Target {
    partition: PartitionId,
    /// A batch of its topic may have so many bytes.
    bytes_max: u64,
}

impl<S: Slice> ShareMachine<S> {
    /// Begins the next copy of a share-partition, where there is something to be copied and nothing hinders it.
    pub(super) fn copy_dead_letters(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        if !part.copying.letters.is_empty() {
            if part.copying.begins_after.is_some_and(|appends| appends <= part.appends) {
                part.copying.begins_after = None;
                self.begin_copy(now, number, logs, out);
            }
            return;
        }
        if part.open().is_none_or(|open| !open.has_dead_letters()) {
            part.copying = Copying::default();
            return;
        }
        if !self.may_append || self.timers.is_set(Timer::Letters(number)) {
            return;
        }
        let (partition, group) = (part.id, part.group);
        let config = self.config(group);
        if let Err(trouble) = target(&self.topics, &config, partition, logs) {
            if let Some(name) = config.dead_letter_topic.as_ref().filter(|name| {
                trouble == DeadLetterTrouble::Missing
                    && self.topics.dead_letter_create
                    && !self.topics.topics.contains_key(*name)
            }) {
                out.effect(Effect::CreateDeadLetterTopic(Arc::clone(name)));
                self.timers.set(Timer::Letters(number), Some(now.mono + CREATE_AGAIN));
            }
            // While it is being made for the first time there is nothing to do for anybody.
            let makes = self.timers.is_set(Timer::Letters(number));
            if let Some(part) =
                self.parts.get_mut(&number).filter(|part| makes && part.copying.trouble.is_none())
            {
                part.copying.trouble = Some(trouble);
                return;
            }
            return self.dead_letters_wait(number, trouble, out);
        }
        let Some(part) = self.parts.get_mut(&number) else { return };
        let letters = part.open_mut().map_or(Vec::new(), |open| open.next_dead_letters(LETTERS_MAX, now));
        if letters.is_empty() {
            return;
        }
        part.copying.letters = letters;
        part.copying.begins_after = part.appends_under_way();
        if part.copying.begins_after.is_none() {
            self.begin_copy(now, number, logs, out);
        }
    }

    /// Reads the letters that were chosen, where what they say is to be copied.
    fn begin_copy(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let part = &self.parts[&number];
        let (partition, generation) = (part.id, part.generation);
        let config = self.config(part.group);
        let offsets = part.copying.letters.iter().map(|letter| Offset(letter.offset)).collect();
        if config.dead_letter_copy {
            let bytes_max = READ_BYTES_MAX;
            let op =
                out.submit(Owner::Share, |op| Submission::ReadRecords { op, partition, offsets, bytes_max });
            self.ops.insert(op, Op::Letters { part: number, generation });
        } else {
            self.append_letters(now, number, &[], logs, out);
        }
    }

    pub(super) fn records_read(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Vec<ReadRecord>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        match self.ops.remove(&op) {
            Some(Op::Oldest { part, generation, offset }) => {
                let found = result.ok().and_then(|records| records.into_iter().next()?.record);
                self.oldest_read(part, generation, offset, found.map(|record| record.timestamp));
            }
            Some(Op::Letters { part: number, generation }) => {
                let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation)
                else {
                    return;
                };
                match result {
                    Ok(records) => {
                        // What did not fit into the read is the next copy's.
                        part.copying.letters.truncate(records.len());
                        self.append_letters(now, number, &records, logs, out);
                    }
                    Err(_) => self.copy_failed(now, number, DeadLetterTrouble::ReadFailed, out),
                }
            }
            Some(Op::Replay { part, generation, key }) => {
                self.replay_read(now, part, generation, key, result);
            }
            Some(Op::Sources { part, generation, admin, offsets }) => {
                self.sources_read((part, generation, admin), &offsets, result, out);
            }
            _ => {}
        }
    }

    /// Appends the copy. `records`: what was read of the letters, in their order; empty where nothing is copied.
    fn append_letters(
        &mut self,
        now: Now,
        number: u32,
        records: &[ReadRecord],
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(part) = self.parts.get(&number) else { return };
        let (source, generation) = (part.id, part.generation);
        let config = self.config(part.group);
        let target = match target(&self.topics, &config, source, logs) {
            Ok(target) => target,
            Err(trouble) => return self.dead_letters_wait(number, trouble, out),
        };
        let group = Arc::clone(&self.group(part.group).name);
        let topic = topic_name(&self.topics, source);
        let mut copy = Copy::new(&topic, source.index, &group, now.wall_ms, target.bytes_max);
        for (index, letter) in part.copying.letters.iter().enumerate() {
            let record = records.get(index).and_then(|read| read.record.as_ref());
            if !copy.add(letter, record) {
                break;
            }
        }
        let (batch, keys) = copy.finish();
        let partition = target.partition;
        let count = keys.len();
        let op = out.submit(Owner::Share, |op| Submission::Append {
            op,
            partition,
            batch,
            origin: Origin::Coordinator,
            keys: Some(keys),
        });
        self.ops.insert(op, Op::Copy { part: number, generation, target: partition });
        if let Some(part) = self.parts.get_mut(&number) {
            part.copying.letters.truncate(count);
        }
    }

    pub(super) fn letters_appended(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Appended, AppendError>,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Copy { part: number, generation, target: partition }) = self.ops.remove(&op) else {
            return;
        };
        if self.parts.get(&number).is_none_or(|part| part.generation != generation) {
            return;
        }
        let trouble = match result {
            Ok(_) => {
                let op = out.submit(Owner::Share, |op| Submission::SyncNow { op, partition });
                self.ops.insert(op, Op::CopySync { part: number, generation });
                return;
            }
            Err(AppendError::TooLarge) => DeadLetterTrouble::TooLarge,
            Err(AppendError::Io(IoError::NotOpen)) => DeadLetterTrouble::Missing,
            Err(_) => DeadLetterTrouble::WriteFailed,
        };
        self.copy_failed(now, number, trouble, out);
    }

    /// The copy is durable, or not.
    pub(super) fn letters_synced(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        result: Result<(), IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        if result.is_err() {
            return self.copy_failed(now, number, DeadLetterTrouble::WriteFailed, out);
        }
        let letters = std::mem::take(&mut part.copying).letters;
        if let Some(open) = part.open_mut() {
            open.dead_lettered(&letters);
        }
        self.dirty.insert(number);
    }

    /// Tries again in a while.
    fn copy_failed(&mut self, now: Now, number: u32, trouble: DeadLetterTrouble, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        let rest = Micros(RETRY_MIN.0 << part.copying.failures.min(20)).min(RETRY_MAX);
        part.copying.failures += 1;
        self.timers.set(Timer::Letters(number), Some(now.mono + rest));
        self.dead_letters_wait(number, trouble, out);
    }

    /// Dead letters wait for something; the operator is told once.
    fn dead_letters_wait(&mut self, number: u32, trouble: DeadLetterTrouble, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        part.copying.letters.clear();
        part.copying.trouble = Some(trouble);
        if part.copying.told.replace(trouble) != Some(trouble) {
            let (partition, group) = (part.id, part.group);
            let group = self.group(group);
            let (group, topic) = (Arc::clone(&group.name), group.config.dead_letter_topic.clone());
            out.effect(Effect::DeadLettersWait { group, partition, topic, trouble });
        }
    }

    pub(super) fn topics_changed(&mut self, topics: &Arc<TopicImage>) {
        self.topics = Arc::clone(topics);
        self.retry_dead_letters();
    }

    /// Something has changed that dead letters may wait for.
    pub(super) fn retry_dead_letters(&mut self) {
        let waiting: Vec<u32> = self
            .parts
            .iter()
            .filter(|(_, part)| part.copying.trouble.is_some())
            .map(|(&number, _)| number)
            .collect();
        for number in waiting {
            self.timers.set(Timer::Letters(number), None);
            self.dirty.insert(number);
        }
    }
}

/// The partition that takes the dead letters of `source`.
fn target(
    topics: &TopicImage,
    config: &ShareConfig,
    source: PartitionId,
    logs: &LogTable,
) -> Result<Target, DeadLetterTrouble> {
    let name = config.dead_letter_topic.as_ref().ok_or(DeadLetterTrouble::NotNamed)?;
    if name.starts_with("__") || !name.starts_with(&topics.dead_letter_prefix) {
        return Err(DeadLetterTrouble::BadName);
    }
    let &(topic, count) = topics.topics.get(name).ok_or(DeadLetterTrouble::Missing)?;
    let &bytes_max = topics.dead_letter_topics.get(name).ok_or_else(|| {
        let is_compacted = topics.dead_letter_compacted.contains(name);
        if is_compacted { DeadLetterTrouble::Compacted } else { DeadLetterTrouble::NotEnabled }
    })?;
    let partition = PartitionId { topic, index: source.index % count.max(1) };
    if !logs.contains_key(&partition) {
        return Err(DeadLetterTrouble::Missing);
    }
    Ok(Target { partition, bytes_max })
}

/// The source topic's name; its id where it is not known, as in Kafka.
fn topic_name(topics: &TopicImage, partition: PartitionId) -> String {
    let named = topics.topics.iter().find(|(_, (id, _))| *id == partition.topic);
    named.map_or_else(|| format!("{:?}", partition.topic), |(name, _)| name.to_string())
}

/// One batch of dead letters.
struct Copy<'a> {
    builder: BatchBuilder,
    keys: Vec<Option<KeyHash>>,
    topic: &'a str,
    index: String,
    group: &'a str,
    now_ms: i64,
    bytes_max: usize,
}

impl<'a> Copy<'a> {
    fn new(topic: &'a str, index: i32, group: &'a str, now_ms: i64, bytes_max: u64) -> Self {
        Self {
            builder: BatchBuilder::new(Codec::None, TimestampType::Create),
            keys: Vec::new(),
            topic,
            index: index.to_string(),
            group,
            now_ms,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
        }
    }

    /// Adds a letter; `false` where it belongs into another batch. The first one always goes in.
    fn add(&mut self, letter: &DeadLetter, record: Option<&WholeRecord>) -> bool {
        let overhead = LETTER_OVERHEAD + self.topic.len() + self.group.len();
        let record = record.filter(|record| overhead + record.size() <= self.bytes_max);
        let size = overhead + record.map_or(0, WholeRecord::size);
        if !self.builder.is_empty() && self.builder.payload_len() + size > self.bytes_max {
            return false;
        }
        let key = record.and_then(|record| record.key.as_deref());
        let value = record.and_then(|record| record.value.as_deref());
        let (offset, deliveries) = (letter.offset.to_string(), letter.deliveries.to_string());
        let hash = letter.key.map(|key| format!("{:016x}", key.0));
        let mut headers = vec![
            header("__dlq.errors.topic", self.topic),
            header("__dlq.errors.partition", &self.index),
            header("__dlq.errors.offset", &offset),
            header("__dlq.errors.group", self.group),
            header("__dlq.errors.delivery.count", &deliveries),
        ];
        let message = message(letter.reason);
        headers.push(header("__dlq.errors.message", &message));
        let reason = reason(letter);
        headers.push(header("__sluice.dlq.reason", &reason));
        if let Some(hash) = &hash {
            headers.push(header("__sluice.dlq.key.hash", hash));
        }
        self.builder.append(self.now_ms, key, value, &headers);
        self.keys.push(key.map(key_hash));
        true
    }

    /// The batch, and the hash of each record's own key.
    fn finish(self) -> (Bytes, Vec<Option<KeyHash>>) {
        (self.builder.build(Offset::ZERO, -1), self.keys)
    }
}

fn header<'a>(name: &'a str, value: &'a str) -> Header<'a> {
    Header { key: name.as_bytes(), value: Some(value.as_bytes()) }
}

/// What Kafka's own header says (`ShareGroupDLQ`), and in its manner what Kafka does not know.
fn message(reason: StopReason) -> String {
    match reason {
        StopReason::Rejected => "Offset rejected by client.".into(),
        StopReason::LimitReached => "Offset delivery count exceeded the threshold.".into(),
        StopReason::Corrupt => "Offset part of a batch that cannot be read.".into(),
        StopReason::Follows(first) => format!("Offset follows offset {first} of its key."),
        StopReason::Operator => "Offset stopped by an operator.".into(),
    }
}

/// A word for programs, what belongs to it, and behind a colon what the last holder said.
fn reason(letter: &DeadLetter) -> String {
    let word = match letter.reason {
        StopReason::Rejected => "rejected".into(),
        StopReason::LimitReached => "delivery-limit".into(),
        StopReason::Corrupt => "corrupt".into(),
        StopReason::Follows(first) => format!("follows {first}"),
        StopReason::Operator => "operator".into(),
    };
    match &letter.text {
        Some(text) => format!("{word}: {text}"),
        None => word,
    }
}
