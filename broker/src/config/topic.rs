//! Settings of topics, as Apache Kafka 4.4 lists them (`LogConfig`, `TopicConfig`).

use super::broker::FLUSH_POLICY;
use super::definition::{Definition, InvalidValue, Kind, broker, on};
use super::{Config, Overrides};

const I64_FROM_0: Kind = Kind::Long(0, i64::MAX);
const FOREVER: Option<&str> = Some("9223372036854775807");

/// The settings that a topic may have, in Kafka's order (by name).
#[rustfmt::skip] // one setting a line
pub const TOPIC: &[Definition] = &[
    on("cleanup.policy", Kind::List(&["compact", "delete"]), None, broker!["log.cleanup.policy"], "How old records leave: delete by age and size, compact by key, both, or neither where it is empty. Where it holds compact, records without a key are refused; where it holds nothing else, DeleteRecords is too."),
    on("compression.gzip.level", Kind::MinusOneOr(1, 9), None, broker!["compression.gzip.level"], "Level of gzip where the broker compresses; -1: zlib's own."),
    on("compression.lz4.level", Kind::Int(1, 17), None, broker!["compression.lz4.level"], "Kept and shown, without effect: the broker's lz4 has one level."),
    on("compression.type", Kind::Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), None, broker!["compression.type"], "Codec of stored batches; producer keeps what was sent. A batch of another codec is packed anew, which costs the broker time; max.message.bytes holds for what was sent and for what is stored."),
    on("compression.zstd.level", Kind::Int(-131_072, 22), None, broker!["compression.zstd.level"], "Level of zstd where the broker compresses."),
    on("delete.retention.ms", I64_FROM_0, None, broker!["log.cleaner.delete.retention.ms"], "How long deletion marks and transaction markers stay in a compacted topic once compaction has seen them."),
    on("errors.deadletterqueue.group.enable", Kind::Boolean, Some("false"), &[], "Whether share groups may use this topic for dead letters. It must not be compacted too (cleanup.policy): most dead letters have no key."),
    on("file.delete.delay.ms", I64_FROM_0, None, broker!["log.segment.delete.delay.ms"], "How long the files of deleted records stay under another name."),
    on("flush.messages", Kind::Long(1, i64::MAX), None, broker!["log.flush.interval.messages"], "Shown to tools; what acks=all answers is synced already."),
    on("flush.ms", I64_FROM_0, FOREVER, broker!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"], "With flush.policy=interval: how long after a write it is synced, at most a second."),
    on("follower.replication.throttled.replicas", Kind::Replicas, Some(""), &[], "Shown to tools; there is one replica."),
    on("index.interval.bytes", Kind::Int(0, i32::MAX), None, broker!["log.index.interval.bytes"], "Bytes of log per entry of the offset index."),
    on("leader.replication.throttled.replicas", Kind::Replicas, Some(""), &[], "Shown to tools; there is one replica."),
    on("local.retention.bytes", Kind::Long(-2, i64::MAX), None, broker!["log.local.retention.bytes"], "Shown to tools; there is no tiered storage."),
    on("local.retention.ms", Kind::Long(-2, i64::MAX), None, broker!["log.local.retention.ms"], "Shown to tools; there is no tiered storage."),
    on("max.compaction.lag.ms", Kind::Long(1, i64::MAX), None, broker!["log.cleaner.max.compaction.lag.ms"], "Older records are compacted in any case; a log file is closed at this age where records are compacted."),
    on("max.decompressed.message.bytes", Kind::Int(1, i32::MAX), None, broker!["max.decompressed.message.bytes"], "Largest record of a compressed batch that is taken. A batch unpacks to 64 MiB at most, whatever is set."),
    on("max.message.bytes", Kind::Int(0, i32::MAX), None, broker!["message.max.bytes"], "Largest batch that is taken, as sent."),
    on("message.timestamp.after.max.ms", I64_FROM_0, None, broker!["log.message.timestamp.after.max.ms"], "How far a producer's timestamp may lie in the future."),
    on("message.timestamp.before.max.ms", I64_FROM_0, None, broker!["log.message.timestamp.before.max.ms"], "How far a producer's timestamp may lie in the past."),
    on("message.timestamp.type", Kind::Choice(&["CreateTime", "LogAppendTime"]), None, broker!["log.message.timestamp.type"], "Whose clock stamps records: the producer's or the broker's."),
    on("min.cleanable.dirty.ratio", Kind::Double(0.0, 1.0), None, broker!["log.cleaner.min.cleanable.ratio"], "Share of uncompacted bytes above which a log is compacted."),
    on("min.compaction.lag.ms", I64_FROM_0, None, broker!["log.cleaner.min.compaction.lag.ms"], "Younger records are not compacted."),
    on("min.insync.replicas", Kind::Int(1, i32::MAX), None, broker!["min.insync.replicas"], "Shown to tools; there is one replica."),
    on("preallocate", Kind::Boolean, None, broker!["log.preallocate"], "Shown to tools; files grow as they are written."),
    on("remote.copy.lag.bytes", Kind::Long(-1, i64::MAX), None, broker!["log.remote.copy.lag.bytes"], "Shown to tools; there is no tiered storage."),
    on("remote.copy.lag.ms", Kind::Long(-1, i64::MAX), None, broker!["log.remote.copy.lag.ms"], "Shown to tools; there is no tiered storage."),
    on("remote.log.copy.disable", Kind::Boolean, Some("false"), &[], "Shown to tools; there is no tiered storage."),
    on("remote.log.delete.on.disable", Kind::Boolean, Some("false"), &[], "Shown to tools; there is no tiered storage."),
    on("remote.storage.enable", Kind::Off("there is no tiered storage"), Some("false"), &[], "There is no tiered storage."),
    on("retention.bytes", Kind::Long(i64::MIN, i64::MAX), None, broker!["log.retention.bytes"], "The partition may be cut to this size; -1: no bound."),
    on("retention.ms", Kind::Long(-1, i64::MAX), None, broker!["log.retention.ms", "log.retention.minutes" * 60_000, "log.retention.hours" * 3_600_000], "Older records may be deleted; -1: never."),
    on("segment.bytes", Kind::Int(1 << 20, i32::MAX), None, broker!["log.segment.bytes"], "A log file is closed at this size."),
    on("segment.index.bytes", Kind::Int(4, i32::MAX), None, broker!["log.index.size.max.bytes"], "Largest offset index of a log file."),
    on("segment.jitter.ms", I64_FROM_0, None, broker!["log.roll.jitter.ms", "log.roll.jitter.hours" * 3_600_000], "Each log file is closed by up to so much earlier than segment.ms says, so that not all are at once."),
    on("segment.ms", Kind::Long(1, i64::MAX), None, broker!["log.roll.ms", "log.roll.hours" * 3_600_000], "A log file is closed at this age."),
    on("unclean.leader.election.enable", Kind::Boolean, None, broker!["unclean.leader.election.enable"], "Shown to tools; there is one replica."),
];

/// Checks settings that must fit each other, the broker's included (`LogConfig.validate`).
///
/// # Errors
/// With the name of one of them.
pub fn check_together(config: &Config, overrides: &Overrides) -> Result<(), InvalidValue> {
    let (least, most) = ("min.compaction.lag.ms", "max.compaction.lag.ms");
    let (low, high) = (config.topic_number(least, overrides), config.topic_number(most, overrides));
    if low <= high {
        return Ok(());
    }
    Err(InvalidValue {
        name: least.to_owned(),
        value: low.to_string(),
        reason: format!("it is above {most}, which is {high}"),
    })
}

/// Settings that Kafka's topics do not list: taken, and listed where they are set.
#[rustfmt::skip] // one setting a line
pub const UNLISTED: &[Definition] = &[
    INTERNAL_SEGMENT_BYTES,
    on("flush.policy", FLUSH_POLICY, None, broker!["log.flush.policy"], "When what is appended is synced to disk. acks: before acks=all is answered. interval: flush.ms after it was written, at most a second; os: when a log file is full. With these two acks=all is answered when it is written: a power cut may take the last moments, a crash of the broker takes nothing."),
];

/// Kafka's own test setting: `segment.bytes` without its lower bound.
pub const INTERNAL_SEGMENT_BYTES: Definition = Definition::new(
    "internal.segment.bytes",
    Kind::Int(14, i32::MAX),
    None,
    "As segment.bytes, without its lower bound: for tests.",
);

/// A setting that topics take, listed or not.
#[must_use]
pub fn find(name: &str) -> Option<&'static Definition> {
    super::find(TOPIC, name).or_else(|| super::find(UNLISTED, name))
}
