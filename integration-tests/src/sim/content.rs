//! What record bytes say: offsets, keys, and the numbers by which the simulation knows its records again.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::executor::Data;
use bytes::Bytes;
use records::ids::KeyHash;
use records::{Batches, key_hash};

/// Bytes that a batch may inflate to.
const INFLATED_MAX: usize = 1 << 20;

/// A record as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its offset.
    pub offset: i64,
    /// Its key's hash.
    pub key: Option<KeyHash>,
    /// Its number.
    pub number: u64,
}

/// The batches in some record data, each with its records; or what is wrong with them.
pub fn batches(bytes: &[Bytes]) -> Result<Vec<Vec<Seen>>, String> {
    let mut found = Vec::new();
    for piece in bytes {
        for batch in Batches::new(piece) {
            let batch = batch.map_err(|error| format!("no batch: {error}"))?;
            if !batch.crc_is_valid() {
                return Err(format!("wrong CRC at {}", batch.base_offset()));
            }
            let records = batch.records(INFLATED_MAX).map_err(|error| error.to_string())?;
            let mut seen = Vec::new();
            for record in &records {
                let record = record.map_err(|error| error.to_string())?;
                let number = record.value.and_then(|value| value.first_chunk::<8>());
                seen.push(Seen {
                    offset: record.offset.get(),
                    key: record.key.map(key_hash),
                    number: number.map_or(0, |bytes| u64::from_be_bytes(*bytes)),
                });
            }
            found.push(seen);
        }
    }
    Ok(found)
}

/// A dead letter as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its own offset.
    pub at: i64,
    /// The group whose it is.
    pub group: Arc<str>,
    /// The partition of its record.
    pub index: i32,
    /// The offset of its record.
    pub offset: i64,
    /// Why, in one word.
    pub reason: String,
    /// The number of its record, where that was copied.
    pub number: Option<u64>,
}

/// The dead letters in some record data; or what is wrong with them.
pub fn letters(bytes: &[Bytes]) -> Result<Vec<Letter>, String> {
    let mut found = Vec::new();
    for batch in bytes.iter().flat_map(|piece| Batches::new(piece)) {
        let batch = batch.map_err(|error| format!("no batch: {error}"))?;
        let records = batch.records(INFLATED_MAX).map_err(|error| error.to_string())?;
        for record in &records {
            let record = record.map_err(|error| error.to_string())?;
            let headers: BTreeMap<&[u8], &[u8]> =
                record.headers.iter().filter_map(|header| Some((header.key, header.value?))).collect();
            let text = |name: &str| {
                let value = headers.get(name.as_bytes()).ok_or_else(|| format!("no header {name}"))?;
                std::str::from_utf8(value).map_err(|error| error.to_string())
            };
            let number = |name: &str| text(name)?.parse::<i64>().map_err(|error| error.to_string());
            let value = record.value.and_then(|value| value.first_chunk::<8>());
            found.push(Letter {
                at: record.offset.get(),
                group: Arc::from(text("__dlq.errors.group")?),
                index: i32::try_from(number("__dlq.errors.partition")?).map_err(|error| error.to_string())?,
                offset: number("__dlq.errors.offset")?,
                reason: text("__sluice.dlq.reason")?.to_owned(),
                number: value.map(|bytes| u64::from_be_bytes(*bytes)),
            });
        }
    }
    Ok(found)
}

/// The bytes behind an answer.
pub fn bytes(data: &Data) -> Result<Vec<Bytes>, String> {
    match data {
        Data::Log(slice) => slice.read().map(|bytes| vec![bytes]).map_err(|error| error.to_string()),
        Data::Memory(pieces) => Ok(pieces.clone()),
    }
}

/// The offsets in an answer, as far as it can be read.
pub fn offsets(data: &Data) -> Vec<i64> {
    let batches = bytes(data).and_then(|bytes| batches(&bytes)).unwrap_or_default();
    batches.into_iter().flatten().map(|seen| seen.offset).collect()
}
