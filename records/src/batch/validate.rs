//! What a produced batch must be before it may be appended: one streaming pass, under a bound.
//!
//! Follows Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`, in
//! their order. Where Kafka is careless (offset deltas that do not count up, bytes behind the batch, negative
//! lengths other than −1) the batch is refused, since an offset is a record's name. The same pass hashes the keys.
//! Sequence numbers against the producer's state are the log's affair, not this module's.

use std::fmt;

use thiserror::Error;

use super::records::Scan;
use super::{BatchView, NO_TIMESTAMP, Record, TimestampType};
use crate::RecordError;
use crate::compression::Codec;
use crate::ids::{KeyHash, Offset};
use crate::key_hash;

/// The most records of one batch: bounds what the key hashes of a batch take.
pub const RECORDS_MAX: i32 = 1 << 20;
/// The most record faults that one refusal names; the rest is left out.
pub const RECORD_FAULTS_MAX: usize = 1000;
/// What a payload may inflate to unless told otherwise, in bytes.
pub const INFLATED_BYTES_MAX: usize = 64 << 20;
/// Kafka's default of `max.message.bytes`.
pub const BATCH_BYTES_MAX: usize = 1_048_588;
/// Kafka's default of `message.timestamp.after.max.ms`: one hour.
pub const AFTER_MS_MAX: i64 = 3_600_000;

/// What a topic demands of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The most bytes that the records may take when inflated.
    pub bytes_max: usize,
    /// The most bytes of one record of a compressed batch, without the length in front of it
    /// (`max.decompressed.message.bytes`; what comes uncompressed is bounded by `batch_bytes_max`).
    pub record_bytes_max: usize,
    /// The most bytes of the batch as sent (`max.message.bytes`).
    pub batch_bytes_max: usize,
    /// Whether records without a key are refused, as on a compacted topic.
    pub keys_required: bool,
    /// The topic's `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// How far a record's timestamp may lie before `now_ms` (`message.timestamp.before.max.ms`).
    pub before_ms: i64,
    /// How far it may lie behind `now_ms` (`message.timestamp.after.max.ms`).
    pub after_ms: i64,
    /// The time of the request, in ms since 1970.
    pub now_ms: i64,
    /// Whether the keys are to be hashed.
    pub hash_keys: bool,
    /// Whether a control batch passes: never from a client.
    pub control_allowed: bool,
    /// Whether zstd passes: not in Produce requests below version 7 (KIP-110).
    pub zstd_allowed: bool,
}

impl Rules {
    /// The rules of a topic that nobody configured, for a client's batch at `now_ms`.
    #[must_use]
    pub const fn new(now_ms: i64) -> Self {
        Self {
            bytes_max: INFLATED_BYTES_MAX,
            record_bytes_max: usize::MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            keys_required: false,
            timestamp_type: TimestampType::Create,
            before_ms: i64::MAX,
            after_ms: AFTER_MS_MAX,
            now_ms,
            hash_keys: false,
            control_allowed: false,
            zstd_allowed: true,
        }
    }
}

/// What the pass over a good batch found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// How many records there are: at least one, and exactly what the header says.
    pub record_count: i32,
    /// The highest timestamp of the records, whatever the header says, in ms since 1970; −1 when none has any.
    pub max_timestamp: i64,
    /// The offset delta of the first record with that timestamp; −1 when none has any.
    pub max_timestamp_offset_delta: i32,
    /// The key hash of every record in order, `None` for a null key; only where [`Rules::hash_keys`] asked.
    pub key_hashes: Option<Vec<Option<KeyHash>>>,
    /// The idempotent producer's id, −1 for none.
    pub producer_id: i64,
    /// The idempotent producer's epoch, −1 for none.
    pub producer_epoch: i16,
    /// The sequence number of the first record: not negative where there is a producer id.
    pub base_sequence: i32,
    /// Whether the batch is part of a transaction.
    pub is_transactional: bool,
}

/// Why a batch was refused. Nothing of a refused batch may be stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValidationError {
    /// The bytes were damaged on the way: the producer may send them again (CORRUPT_MESSAGE, 2).
    #[error("the batch is damaged: {0}")]
    Damaged(&'static str),
    /// The batch can never be stored (INVALID_RECORD, 87).
    #[error("the batch is invalid: {0}")]
    Invalid(&'static str),
    /// The records do not decode, or not within the bound (INVALID_RECORD, 87).
    #[error("the batch is invalid: {0}")]
    Undecodable(RecordError),
    /// The batch is larger than the topic allows (MESSAGE_TOO_LARGE, 10).
    #[error("the batch has {size} bytes, at most {limit} are allowed here")]
    TooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The topic's limit.
        limit: usize,
    },
    /// Packed with the topic's codec the batch would be larger than the topic allows (MESSAGE_TOO_LARGE, 10).
    #[error(
        "packed with the codec of this topic the batch has more than the {limit} bytes that are allowed here"
    )]
    TooLargePacked {
        /// The topic's limit.
        limit: usize,
    },
    /// The batch has more than [`RECORDS_MAX`] records (MESSAGE_TOO_LARGE, 10: producers answer it by splitting).
    #[error("the batch has {0} records, at most {RECORDS_MAX} are allowed")]
    TooManyRecords(i32),
    /// Single records are refused, and with them the whole batch (INVALID_RECORD, 87).
    #[error("{} record(s) of the batch are refused, the first: {}", .0.len(), .0[0])]
    Records(Vec<RecordFault>),
    /// As [`ValidationError::Records`], a timestamp among the reasons (INVALID_TIMESTAMP, 32).
    #[error("{} record(s) of the batch are refused, at least one for its timestamp, the first: {}", .0.len(), .0[0])]
    Timestamps(Vec<RecordFault>),
    /// The codec is not allowed in this version of Produce (UNSUPPORTED_COMPRESSION_TYPE, 76).
    #[error("zstd needs a produce request of version 7 or later")]
    CodecNotAllowed,
}

impl ValidationError {
    /// The single records that were refused, in order, [`RECORD_FAULTS_MAX`] at most; empty for other reasons.
    #[must_use]
    pub fn record_errors(&self) -> &[RecordFault] {
        match self {
            Self::Records(faults) | Self::Timestamps(faults) => faults,
            Self::Damaged(_)
            | Self::Invalid(_)
            | Self::Undecodable(_)
            | Self::TooLarge { .. }
            | Self::TooLargePacked { .. }
            | Self::TooManyRecords(_)
            | Self::CodecNotAllowed => &[],
        }
    }
}

impl From<RecordError> for ValidationError {
    fn from(error: RecordError) -> Self {
        Self::Undecodable(error)
    }
}

/// One refused record; its message is its `Display` form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// Which record of the batch, from 0.
    pub batch_index: i32,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a single record that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no key, on a compacted topic.
    NullKey,
    /// Its timestamp lies outside of what the topic takes; times in ms since 1970.
    TimestampOutOfRange {
        /// The record's timestamp.
        timestamp: i64,
        /// The lowest that is taken.
        from: i64,
        /// The highest that is taken.
        to: i64,
    },
    /// The producer claims that the broker set its timestamp.
    AppendTimeFromProducer,
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.batch_index;
        match self.fault {
            Fault::NullKey => write!(f, "record {index} has no key, which a compacted topic needs"),
            Fault::TimestampOutOfRange { timestamp, from, to } => {
                write!(f, "record {index} has timestamp {timestamp}, only {from} to {to} are taken here")
            }
            Fault::AppendTimeFromProducer => {
                write!(f, "record {index} claims log-append time, send it with create time")
            }
        }
    }
}

/// Checks that `bytes` are exactly one batch that may be appended under `rules`, in one pass over its records.
///
/// The payload is opened once, inflated at most to [`Rules::bytes_max`], and never held whole.
pub fn validate(bytes: &[u8], rules: &Rules) -> Result<Validated, ValidationError> {
    let batch = the_one_batch(bytes)?;
    check_header(&batch, rules)?;
    let mut scan = Scan::open(&batch, rules.bytes_max, rules.record_bytes_max)?;
    let mut pass = Pass::new(&batch, rules);
    for index in 0..batch.record_count() {
        pass.take(index, &scan.next()?)?;
    }
    scan.finish()?;
    pass.finish(&batch)
}

fn the_one_batch(bytes: &[u8]) -> Result<BatchView<'_>, ValidationError> {
    use ValidationError::{Damaged, Invalid};
    let batch = BatchView::parse(bytes).map_err(|error| match error {
        RecordError::Corrupt(why) => Damaged(why),
        RecordError::Incomplete { .. } => Invalid("exactly one whole record batch is needed"),
        other => ValidationError::Undecodable(other),
    })?;
    if batch.size() != bytes.len() {
        return Err(Invalid("exactly one record batch is needed, more bytes follow it"));
    }
    Ok(batch)
}

fn check_header(batch: &BatchView<'_>, rules: &Rules) -> Result<(), ValidationError> {
    use ValidationError::{CodecNotAllowed, Damaged, Invalid, TooLarge, TooManyRecords};
    let attributes = batch.attributes();
    if attributes.codec() == Ok(Codec::Zstd) && !rules.zstd_allowed {
        return Err(CodecNotAllowed);
    }
    if batch.base_offset() != Offset::ZERO {
        return Err(Invalid("the base offset of a produced batch must be 0"));
    }
    if batch.size() > rules.batch_bytes_max {
        return Err(TooLarge { size: batch.size(), limit: rules.batch_bytes_max });
    }
    if !batch.crc_is_valid() {
        return Err(Damaged("the crc does not match"));
    }
    let count = batch.record_count();
    if count < 1 {
        return Err(Invalid("a produced batch needs at least one record"));
    }
    if batch.last_offset_delta() != count - 1 {
        return Err(Invalid("the last offset delta does not match the record count"));
    }
    if count > RECORDS_MAX {
        return Err(TooManyRecords(count));
    }
    if attributes.is_control() && !rules.control_allowed {
        return Err(Invalid("only the broker writes control batches"));
    }
    if batch.producer_id() >= 0 && batch.base_sequence() < 0 {
        return Err(Invalid("an idempotent producer's batch needs a sequence number"));
    }
    Ok(())
}

/// The state of one pass over the records.
struct Pass<'r> {
    rules: &'r Rules,
    base_timestamp: i64,
    claims_append_time: bool,
    max_timestamp: i64,
    max_timestamp_offset_delta: i32,
    key_hashes: Option<Vec<Option<KeyHash>>>,
    faults: Vec<RecordFault>,
    timestamp_faulty: bool,
}

impl<'r> Pass<'r> {
    fn new(batch: &BatchView<'_>, rules: &'r Rules) -> Self {
        Self {
            rules,
            base_timestamp: batch.base_timestamp(),
            claims_append_time: batch.attributes().is_log_append_time(),
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_offset_delta: -1,
            // Grows with the records that are really there: the count is a claim.
            key_hashes: rules.hash_keys.then(Vec::new),
            faults: Vec::new(),
            timestamp_faulty: false,
        }
    }

    fn take(&mut self, index: i32, record: &Record<'_>) -> Result<(), ValidationError> {
        if record.offset_delta != index {
            return Err(ValidationError::Invalid("the offset deltas must count up from 0"));
        }
        let timestamp = self
            .base_timestamp
            .checked_add(record.timestamp_delta)
            .ok_or(ValidationError::Invalid("a timestamp delta leads past the end of time"))?;
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_offset_delta = index;
        }
        if let Some(fault) = self.fault(record, timestamp) {
            self.timestamp_faulty |= fault != Fault::NullKey;
            if self.faults.len() < RECORD_FAULTS_MAX {
                self.faults.push(RecordFault { batch_index: index, fault });
            }
        }
        if let Some(hashes) = &mut self.key_hashes {
            hashes.push(record.key.map(key_hash));
        }
        Ok(())
    }

    /// One fault a record is named, the key's first, as in `LogValidator.validateRecord`.
    fn fault(&self, record: &Record<'_>, timestamp: i64) -> Option<Fault> {
        let rules = self.rules;
        if rules.keys_required && record.key.is_none() {
            return Some(Fault::NullKey);
        }
        if rules.timestamp_type == TimestampType::Create && timestamp != NO_TIMESTAMP {
            let from = rules.now_ms.saturating_sub(rules.before_ms);
            let to = rules.now_ms.saturating_add(rules.after_ms);
            // The default of `before` is i64::MAX, which must take every old timestamp.
            let too_old = rules.before_ms != i64::MAX && timestamp < from;
            return (too_old || timestamp > to).then_some(Fault::TimestampOutOfRange { timestamp, from, to });
        }
        self.claims_append_time.then_some(Fault::AppendTimeFromProducer)
    }

    fn finish(self, batch: &BatchView<'_>) -> Result<Validated, ValidationError> {
        if self.timestamp_faulty {
            return Err(ValidationError::Timestamps(self.faults));
        }
        if !self.faults.is_empty() {
            return Err(ValidationError::Records(self.faults));
        }
        Ok(Validated {
            record_count: batch.record_count(),
            max_timestamp: self.max_timestamp,
            max_timestamp_offset_delta: self.max_timestamp_offset_delta,
            key_hashes: self.key_hashes,
            producer_id: batch.producer_id(),
            producer_epoch: batch.producer_epoch(),
            base_sequence: batch.base_sequence(),
            is_transactional: batch.attributes().is_transactional(),
        })
    }
}
