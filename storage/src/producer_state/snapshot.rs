//! Producer state on disk: Kafka's `.snapshot` (`ProducerSnapshot` schema, version 1), which knows one batch a
//! producer, and our `.producers` sidecar with all five. The sidecar can be deleted: then one is known.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{Buf, BufMut};
use records::ids::Offset;

use super::{Producer, ProducerState, StoredBatch};
use crate::options::PRODUCER_BATCHES_MAX;

/// Suffix of Kafka's file.
pub(crate) const SNAPSHOT: &str = ".snapshot";
/// Suffix of our sidecar.
pub(crate) const SIDECAR: &str = ".producers";

const VERSION: i16 = 1;
const SIDECAR_MAGIC: u32 = 0x534c_5001;
/// Version and CRC; the CRC covers what follows.
const HEADER_BYTES: usize = 6;
const ENTRY_BYTES: usize = 46;
const STORED_BATCH_BYTES: usize = 24;
const NO_TRANSACTION: i64 = -1;

/// The `.snapshot` file: of each producer the last batch and the open transaction.
pub(crate) fn encode(state: &ProducerState) -> Vec<u8> {
    let mut body = Vec::with_capacity(4 + state.producers.len() * ENTRY_BYTES);
    body.put_i32(state.producers.len() as i32);
    for (id, producer) in sorted(state) {
        let last = producer.batches.back();
        body.put_i64(id);
        body.put_i16(producer.epoch);
        body.put_i32(last.map_or(-1, |batch| batch.last_sequence));
        body.put_i64(last.map_or(-1, |batch| batch.last.0));
        body.put_i32(last.map_or(0, |batch| batch.delta));
        body.put_i64(producer.timestamp);
        body.put_i32(producer.coordinator_epoch);
        body.put_i64(producer.txn_first.map_or(NO_TRANSACTION, Offset::get));
    }
    let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
    file.put_i16(VERSION);
    file.put_u32(crc32c::crc32c(&body));
    file.extend_from_slice(&body);
    file
}

/// Reads a `.snapshot` file; `None` when it is damaged or of another version.
pub(crate) fn decode(mut file: &[u8]) -> Option<ProducerState> {
    if file.len() < HEADER_BYTES + 4 || file.get_i16() != VERSION {
        return None;
    }
    if file.get_u32() != crc32c::crc32c(file) {
        return None;
    }
    let count = usize::try_from(file.get_i32()).ok()?;
    if file.len() != count.checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let mut producers = HashMap::with_capacity(count);
    let mut open = BTreeMap::new();
    for _ in 0..count {
        let id = file.get_i64();
        let epoch = file.get_i16();
        let last_sequence = file.get_i32();
        let last = Offset(file.get_i64());
        let delta = file.get_i32();
        let timestamp = file.get_i64();
        let coordinator_epoch = file.get_i32();
        let txn_first = Some(file.get_i64()).filter(|first| *first >= 0).map(Offset);
        let mut batches = VecDeque::new();
        if last_sequence >= 0 && delta >= 0 {
            batches.push_back(StoredBatch { last_sequence, last, delta, timestamp });
        }
        open.extend(txn_first.map(|first| (first, id)));
        producers.insert(id, Producer { epoch, coordinator_epoch, timestamp, batches, txn_first });
    }
    Some(ProducerState { producers, open, ..ProducerState::default() })
}

/// The `.producers` file: of each producer all remembered batches.
pub(crate) fn encode_sidecar(state: &ProducerState) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(state.producers.len() as u32);
    for (id, producer) in sorted(state) {
        body.put_i64(id);
        body.put_i16(producer.epoch);
        body.put_u8(producer.batches.len() as u8);
        for batch in &producer.batches {
            body.put_i32(batch.last_sequence);
            body.put_i64(batch.last.0);
            body.put_i32(batch.delta);
            body.put_i64(batch.timestamp);
        }
    }
    let mut file = Vec::with_capacity(8 + body.len());
    file.put_u32(SIDECAR_MAGIC);
    file.put_u32(crc32c::crc32c(&body));
    file.extend_from_slice(&body);
    file
}

/// Adds to a state read from a `.snapshot` what its sidecar knows besides; a damaged sidecar adds nothing, and of a
/// producer only what ends with the batch that the snapshot knows.
pub(crate) fn decode_sidecar(state: &mut ProducerState, mut file: &[u8]) -> Option<()> {
    if file.len() < 12 || file.get_u32() != SIDECAR_MAGIC || file.get_u32() != crc32c::crc32c(file) {
        return None;
    }
    for _ in 0..file.get_u32() {
        if file.len() < 11 {
            return None;
        }
        let id = file.get_i64();
        let epoch = file.get_i16();
        let count = usize::from(file.get_u8());
        if count > PRODUCER_BATCHES_MAX || file.len() < count * STORED_BATCH_BYTES {
            return None;
        }
        let batches: VecDeque<StoredBatch> = (0..count)
            .map(|_| StoredBatch {
                last_sequence: file.get_i32(),
                last: Offset(file.get_i64()),
                delta: file.get_i32(),
                timestamp: file.get_i64(),
            })
            .collect();
        if let Some(producer) = state.producers.get_mut(&id)
            && producer.epoch == epoch
            && producer.batches.back().map(|batch| batch.last) == batches.back().map(|batch| batch.last)
        {
            producer.batches = batches;
        }
    }
    Some(())
}

/// In the order of their ids, so that the same state gives the same file.
fn sorted(state: &ProducerState) -> Vec<(i64, &Producer)> {
    let mut producers: Vec<_> = state.producers.iter().map(|(id, producer)| (*id, producer)).collect();
    producers.sort_unstable_by_key(|(id, _)| *id);
    producers
}
