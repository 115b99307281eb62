//! The records of Kafka's metadata log that say what there is to take over (message definitions of type `metadata`,
//! Kafka 4.4). Each is framed by three unsigned varints: frame version, type, version (`MetadataRecordSerde`).

use records::ids::TopicId;

const FRAME_VERSION: u32 = 1;
/// The highest type that Kafka 4.4 has.
const TYPE_MAX: u32 = 29;

/// A resource's kind in a [`Record::Config`] (`ConfigResource.Type`).
pub(super) const TOPIC_CONFIG: i8 = 2;
/// See [`TOPIC_CONFIG`].
pub(super) const BROKER_CONFIG: i8 = 4;
/// See [`TOPIC_CONFIG`].
pub(super) const GROUP_CONFIG: i8 = 32;

/// What is not taken over, as people call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// AccessControlEntryRecord.
    Acls,
    /// UserScramCredentialRecord.
    ScramCredentials,
    /// ClientQuotaRecord.
    Quotas,
    /// DelegationTokenRecord.
    DelegationTokens,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Topic {
        name: String,
        id: TopicId,
    },
    RemoveTopic {
        id: TopicId,
    },
    Partition {
        topic: TopicId,
        index: i32,
        leader_epoch: i32,
    },
    /// Anything of a partition changed: its leader epoch may have gone up by one.
    PartitionChange {
        topic: TopicId,
        index: i32,
    },
    Config {
        kind: i8,
        resource: String,
        name: String,
        value: Option<String>,
    },
    ProducerIds {
        next: i64,
    },
    /// What follows counts only once `End` is read.
    Begin,
    End,
    Abort,
    LeftOut(LeftOut),
    /// Of no interest here.
    Other,
}

impl Record {
    /// Reads a record's value; the reason where it is none that is known.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut from = Reader(bytes);
        let frame = from.varint().ok_or(SHORT)?;
        if frame != FRAME_VERSION {
            return Err(format!("metadata record of frame version {frame} is unknown"));
        }
        let kind = from.varint().ok_or(SHORT)?;
        let version = from.varint().ok_or(SHORT)?;
        if kind > TYPE_MAX {
            return Err(format!(
                "metadata record of type {kind} is unknown: written by a later Kafka than 4.4"
            ));
        }
        if version > version_max(kind) {
            return Err(format!("metadata record of type {kind} has unknown version {version}"));
        }
        from.record(kind).ok_or_else(|| format!("metadata record of type {kind} is malformed"))
    }
}

const SHORT: &str = "metadata record is too short";

/// The highest known version of a type that is read; what is not read may have any.
fn version_max(kind: u32) -> u32 {
    match kind {
        2 | 4 | 9 | 15 | 23 | 24 | 25 => 0,
        3 | 5 => 2,
        _ => u32::MAX,
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn record(&mut self, kind: u32) -> Option<Record> {
        Some(match kind {
            2 => Record::Topic { name: self.string()?, id: self.id()? },
            3 => {
                let (index, topic) = (self.i32()?, self.id()?);
                // Replicas, in-sync ones, those that leave and those that join.
                for _ in 0..4 {
                    self.i32s()?;
                }
                let _leader = self.i32()?;
                Record::Partition { topic, index, leader_epoch: self.i32()? }
            }
            4 => Record::Config {
                kind: i8::from_be_bytes(self.array()?),
                resource: self.string()?,
                name: self.string()?,
                value: self.nullable_string()?,
            },
            5 => {
                let (index, topic) = (self.i32()?, self.id()?);
                Record::PartitionChange { topic, index }
            }
            9 => Record::RemoveTopic { id: self.id()? },
            10 => Record::LeftOut(LeftOut::DelegationTokens),
            11 => Record::LeftOut(LeftOut::ScramCredentials),
            14 => Record::LeftOut(LeftOut::Quotas),
            15 => {
                let (_broker, _epoch) = (self.i32()?, self.i64()?);
                Record::ProducerIds { next: self.i64()? }
            }
            18 => Record::LeftOut(LeftOut::Acls),
            23 => Record::Begin,
            24 => Record::End,
            25 => Record::Abort,
            _ => Record::Other,
        })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn id(&mut self) -> Option<TopicId> {
        self.array().map(TopicId)
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    /// A compact string; `None` inside where it is null.
    fn nullable_string(&mut self) -> Option<Option<String>> {
        let Some(len) = self.varint()?.checked_sub(1) else { return Some(None) };
        let bytes = self.take(usize::try_from(len).ok()?)?;
        String::from_utf8(bytes.to_vec()).ok().map(Some)
    }

    fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    /// Passes over a compact array of 32-bit numbers.
    fn i32s(&mut self) -> Option<()> {
        let count = usize::try_from(self.varint()?.checked_sub(1)?).ok()?;
        self.take(count.checked_mul(4)?).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `kafka-dump-log --cluster-metadata-decoder` showed the records of a real broker's log beside these bytes.
    #[test]
    fn records_are_read_as_kafka_writes_them() {
        let id = [
            0x10_u8, 0xcf, 0x7d, 0x73, 0x6b, 0x93, 0x46, 0x1e, 0x89, 0xa6, 0x28, 0x9e, 0xd5, 0x15, 0xf2, 0xec,
        ];
        let topic = [&[1, 2, 0, 2, b'a'][..], &id, &[0]].concat();
        assert_eq!(Record::decode(&topic), Ok(Record::Topic { name: "a".into(), id: TopicId(id) }));
        let replicas = [2, 0, 0, 0, 1];
        let partition = [
            &[1, 3, 2, 0, 0, 0, 1][..],
            &id,
            &replicas,
            &replicas,
            &[1, 1],
            &[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9],
            &[2],
            &[5; 16],
            &[0],
        ]
        .concat();
        let read = Record::Partition { topic: TopicId(id), index: 1, leader_epoch: 7 };
        assert_eq!(Record::decode(&partition), Ok(read));
        let config = [&[1, 4, 0, 2, 2, b'a', 2, b'n', 0, 0][..]].concat();
        let read = Record::Config { kind: 2, resource: "a".into(), name: "n".into(), value: None };
        assert_eq!(Record::decode(&config), Ok(read));
        assert_eq!(Record::decode(&[1, 20, 0, 0]), Ok(Record::Other));
    }

    #[test]
    fn what_is_unknown_or_cut_short_is_refused() {
        assert!(Record::decode(&[2, 20, 0, 0]).unwrap_err().contains("frame version 2"));
        assert!(Record::decode(&[1, 30, 0, 0]).unwrap_err().contains("later Kafka"));
        assert!(Record::decode(&[1, 2, 1, 0]).unwrap_err().contains("unknown version 1"));
        for bytes in [&[][..], &[1, 2, 0, 200], &[1, 3, 2, 0], &[1, 3, 2, 255, 255, 255, 255, 255, 255]] {
            assert!(Record::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
