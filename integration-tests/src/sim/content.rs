//! What record bytes say: offsets, keys, and the numbers by which the simulation knows its records again.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::executor::Data;
use bytes::Bytes;
use records::batch::EndMarker;
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

/// What a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Of no transaction.
    Plain,
    /// Of its producer's open transaction.
    Transactional,
    /// Ends its producer's transaction, well where it says `true`.
    Marker(bool),
}

/// A batch as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// First offset.
    pub base: i64,
    /// Last offset.
    pub last: i64,
    /// Who made it; −1 where that is not said.
    pub producer: i64,
    /// What it is.
    pub kind: BatchKind,
    /// Its records; a marker has none.
    pub records: Vec<Seen>,
}

impl Batch {
    /// The same batch where it is stored from `base` on.
    #[must_use]
    pub fn at(mut self, base: i64) -> Self {
        let by = base - self.base;
        self.base += by;
        self.last += by;
        self.records.iter_mut().for_each(|seen| seen.offset += by);
        self
    }
}

/// The batches in some record data, each with its records; or what is wrong with them.
pub fn batches(bytes: &[Bytes]) -> Result<Vec<Batch>, String> {
    let mut found = Vec::new();
    for piece in bytes {
        for batch in Batches::new(piece) {
            let batch = batch.map_err(|error| format!("no batch: {error}"))?;
            if !batch.crc_is_valid() {
                return Err(format!("wrong CRC at {}", batch.base_offset()));
            }
            let mut kind = BatchKind::Plain;
            let mut seen = Vec::new();
            if batch.attributes().is_control() {
                let marker = EndMarker::of(&batch).ok_or("a control batch that ends nothing")?;
                kind = BatchKind::Marker(marker.commit);
            } else {
                if batch.attributes().is_transactional() {
                    kind = BatchKind::Transactional;
                }
                let records = batch.records(INFLATED_MAX).map_err(|error| error.to_string())?;
                for record in &records {
                    let record = record.map_err(|error| error.to_string())?;
                    let number = record.value.and_then(|value| value.first_chunk::<8>());
                    seen.push(Seen {
                        offset: record.offset.get(),
                        key: record.key.map(key_hash),
                        number: number.map_or(0, |bytes| u64::from_be_bytes(*bytes)),
                    });
                }
            }
            let (base, last) = (batch.base_offset().get(), batch.last_offset().get());
            found.push(Batch { base, last, producer: batch.producer_id(), kind, records: seen });
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

/// The offset behind an answer's last batch, as far as it can be read.
pub fn next_offset(data: &Data) -> Option<i64> {
    let batches = bytes(data).and_then(|bytes| batches(&bytes)).unwrap_or_default();
    batches.last().map(|batch| batch.last + 1)
}
