//! Slim batches: chosen records of stored batches as a batch of their own.
//!
//! Within one stored batch the chosen records' bytes go over as they are, under the original base offset and base
//! timestamp; only the last offset delta is cut to the last chosen record, the count is exact and the CRC is new.
//! Records of further stored batches get their deltas rewritten against the first one's bases. Stock clients read
//! all of these forms; what sticks them for good is a count that is too high.

use bytes::Bytes;

use super::build::{Fields, write_record};
use super::{Attributes, BatchView, NO_PRODUCER, NO_TIMESTAMP, Record};
use crate::RecordError;
use crate::compression::Codec;
use crate::ids::Offset;

/// Makes one batch of chosen records, pushed in ascending offset order.
#[derive(Clone, Debug)]
pub struct SlimBuilder {
    payload: Vec<u8>,
    fields: Fields,
    /// Whether records now come from a stored batch other than the first.
    joined: bool,
    last_pushed: Option<Offset>,
}

impl SlimBuilder {
    /// A builder for records of `first`; no record is chosen yet.
    #[must_use]
    pub fn new(first: &BatchView<'_>) -> Self {
        let attributes = first.attributes();
        // The delete horizon is the cleaner's affair and means nothing to a reader.
        let kept =
            attributes.0 & (Attributes::LOG_APPEND_TIME | Attributes::TRANSACTIONAL | Attributes::CONTROL);
        let append_time = attributes.is_log_append_time();
        let fields = Fields {
            base_offset: first.base_offset(),
            leader_epoch: first.leader_epoch(),
            attributes: kept,
            base_timestamp: first.base_timestamp(),
            // With append time every record's timestamp is the max timestamp, so it must stay.
            max_timestamp: if append_time { first.max_timestamp() } else { NO_TIMESTAMP },
            producer_id: first.producer_id(),
            producer_epoch: first.producer_epoch(),
            base_sequence: first.base_sequence(),
            ..Fields::default()
        };
        Self { payload: Vec::new(), fields, joined: false, last_pushed: None }
    }

    /// Goes on with records of `next`, a stored batch behind the one before. `false` when they cannot stand in one
    /// batch with the earlier ones: finish this builder and start another.
    ///
    /// Batches join when both have the same timestamp type (and, with append time, the same time), neither is
    /// transactional or a control batch (readers match the producer id against aborted transactions), and all
    /// offsets lie within reach of the first base offset.
    #[must_use]
    pub fn join(&mut self, next: &BatchView<'_>) -> bool {
        let ours = Attributes(self.fields.attributes);
        let theirs = next.attributes();
        let apart = |bits: Attributes| bits.is_transactional() || bits.is_control();
        let in_reach = next
            .last_offset()
            .0
            .checked_sub(self.fields.base_offset.0)
            .is_some_and(|delta| (0..=i64::from(i32::MAX)).contains(&delta));
        let behind = self.last_pushed.is_none_or(|last| next.base_offset() > last);
        if apart(ours)
            || apart(theirs)
            || ours.timestamp_type() != theirs.timestamp_type()
            || (ours.is_log_append_time() && self.fields.max_timestamp != next.max_timestamp())
            || !in_reach
            || !behind
        {
            return false;
        }
        self.joined = true;
        self.fields.producer_id = NO_PRODUCER;
        self.fields.producer_epoch = -1;
        self.fields.base_sequence = -1;
        true
    }

    /// Chooses a record of the batch that was named last. Fails when its offset is not above the last chosen one.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        if self.last_pushed.is_some_and(|last| record.offset <= last) {
            return Err(RecordError::Corrupt("the offsets of chosen records do not ascend"));
        }
        let delta = record.offset - self.fields.base_offset;
        let delta = i32::try_from(delta)
            .ok()
            .filter(|delta| *delta >= 0)
            .ok_or(RecordError::Corrupt("a chosen record lies outside of its batch"))?;
        let append_time = Attributes(self.fields.attributes).is_log_append_time();
        if self.joined {
            // With append time the stored delta says nothing any more.
            let timestamp_delta =
                if append_time { 0 } else { record.timestamp.wrapping_sub(self.fields.base_timestamp) };
            write_record(&mut self.payload, timestamp_delta, delta, record.tail);
        } else {
            self.payload.extend_from_slice(record.raw);
        }
        if !append_time {
            self.fields.max_timestamp = self.fields.max_timestamp.max(record.timestamp);
        }
        self.fields.last_offset_delta = delta;
        self.fields.count += 1;
        self.last_pushed = Some(record.offset);
        Ok(())
    }

    /// How many records were chosen.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.fields.count
    }

    /// Bytes of the chosen records, before compression, without the batch header.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// The batch, with a valid CRC; `None` when no record was chosen, as empty batches disturb several clients.
    #[must_use]
    pub fn finish(mut self, codec: Codec) -> Option<Bytes> {
        if self.fields.count == 0 {
            return None;
        }
        self.fields.codec = codec;
        Some(self.fields.assemble(&self.payload))
    }
}
