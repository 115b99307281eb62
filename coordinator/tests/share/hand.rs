//! What operators do in the small world, and the dead letters that come of it.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;

use bytes::Bytes;
use coordinator::reply::Reply;
use coordinator::share::ShareCommand;
use coordinator::share::admin::{
    AdminError, AlterKey, DescribeKeys, KeyAction, KeyAltered, KeyRef, ResetOffsets, ResetTo, ShareKeys, Why,
};
use records::BatchView;
use records::ids::{Offset, PartitionId, TopicId};

use crate::common::{World, group, key, partition};

pub const DLQ: &str = "dlq.t";

/// A dead letter as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub offset: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub timestamp: i64,
    pub headers: BTreeMap<String, String>,
}

impl Letter {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub fn letter_partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([9; 16]), index }
}

/// The key that stands for a letter.
pub fn of(name: &str) -> KeyRef {
    KeyRef::Key(key(name).unwrap())
}

pub fn at(offset: i64) -> KeyRef {
    KeyRef::Offset(Offset(offset))
}

/// The command of an operator.
pub fn alter(key: KeyRef, action: KeyAction) -> ShareCommand {
    ShareCommand::AlterKey(AlterKey { group: group(), partition: partition(0), key, action })
}

impl World {
    pub fn alter(&mut self, key: KeyRef, action: KeyAction) -> Result<KeyAltered, AdminError> {
        let ticket = self.command(alter(key, action));
        match self.replies.remove(&ticket).expect("an alteration is answered") {
            Reply::KeyAltered(reply) => reply,
            other => panic!("not the answer of an alteration: {other:?}"),
        }
    }

    /// Alters key or record, and says of how many records.
    pub fn alters(&mut self, key: KeyRef, action: KeyAction) -> u64 {
        self.alter(key, action).unwrap().records
    }

    pub fn describe(&mut self, questions: &[KeyRef]) -> Result<ShareKeys, AdminError> {
        let questions = questions.to_vec();
        let request = DescribeKeys { group: group(), partition: partition(0), top: 10, questions };
        let ticket = self.command(ShareCommand::DescribeKeys(request));
        match self.replies.remove(&ticket).expect("a question is answered") {
            Reply::ShareKeys(reply) => reply.map(|keys| *keys),
            other => panic!("not the answer of a question: {other:?}"),
        }
    }

    pub fn why(&mut self, question: KeyRef) -> Why {
        self.describe(&[question]).unwrap().answers[0].clone()
    }

    pub fn reset(&mut self, to: ResetTo) -> Result<Offset, AdminError> {
        let request = ResetOffsets { group: group(), parts: vec![(partition(0), to)] };
        let ticket = self.command(ShareCommand::ResetOffsets(request));
        match self.replies.remove(&ticket).expect("a reset is answered") {
            Reply::ShareOffsetsReset(parts) => parts[0].1,
            other => panic!("not the answer of a reset: {other:?}"),
        }
    }

    /// The source topic has its name, and there is a dead-letter topic of this many partitions.
    pub fn dead_letter_topic(&mut self, partitions: i32, enabled: bool) {
        self.topics.topics.insert("t".into(), (partition(0).topic, 1));
        self.topics.topics.insert(DLQ.into(), (letter_partition(0).topic, partitions));
        if enabled {
            self.topics.dead_letter_topics.insert(DLQ.into(), 1 << 20);
        } else {
            self.topics.dead_letter_topics.remove(DLQ);
        }
        for index in 0..partitions {
            self.copies.entry(letter_partition(index)).or_default();
            self.table.entry(letter_partition(index)).or_default();
        }
        self.tell_topics();
    }

    /// What is in the dead-letter topic.
    pub fn letters(&self) -> Vec<Letter> {
        self.copies.values().flat_map(|copies| &copies.batches).flat_map(letters_of).collect()
    }

    /// The source offsets of what is in the dead-letter topic.
    pub fn letter_offsets(&self) -> Vec<i64> {
        self.letters().iter().map(|letter| letter.offset).collect()
    }
}

fn letters_of(batch: &Bytes) -> Vec<Letter> {
    let view = BatchView::parse(batch).unwrap();
    assert!(view.crc_is_valid());
    let records = view.records(1 << 20).unwrap();
    records
        .iter()
        .map(|record| {
            let record = record.unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let headers: BTreeMap<String, String> =
                record.headers.iter().map(|header| (text(header.key), text(header.value.unwrap()))).collect();
            Letter {
                offset: headers["__dlq.errors.offset"].parse().unwrap(),
                key: record.key.map(Bytes::copy_from_slice),
                value: record.value.map(Bytes::copy_from_slice),
                timestamp: record.timestamp,
                headers,
            }
        })
        .collect()
}
