//! How transactions end that the source left open.
//!
//! Their coordinator is not taken over, so they would stay open for good, and hide all that follows them from readers of
//! committed records. What the coordinator had decided holds: its log, `__transaction_state`, says whether a commit was
//! prepared, in which case other partitions may have their markers already. Everything else is aborted, as the
//! coordinator itself would have done after `transaction.timeout.ms`.

use std::collections::HashMap;

use bytes::{Buf as _, BytesMut};
use records::batch::EndMarker;
use records::ids::Offset;

use super::cluster::each_batch;
use super::error::ImportError;
use super::source::Source;
use crate::disk::join;
use crate::segment::{base_of, file_name};

const STATE_TOPIC: &str = "__transaction_state";
/// Bytes that one batch of the coordinator's log may inflate to.
const STATE_BATCH_BYTES_MAX: usize = 64 << 20;
/// Versions of `TransactionLogValue` whose first fields are these.
const STATE_VERSION_MAX: i16 = 1;
/// `TransactionState`: a commit is decided.
const PREPARE_COMMIT: i8 = 2;
/// `TransactionState`: every partition has its commit marker, or had.
const COMPLETE_COMMIT: i8 = 4;

/// What coordinators had decided.
#[derive(Clone, Debug, Default)]
pub struct Endings {
    /// Producers whose last transaction is to be committed.
    committed: HashMap<i64, bool>,
}

impl Source {
    /// Reads what the transaction coordinators had decided.
    ///
    /// # Errors
    /// [`ImportError`] where their log is damaged.
    pub fn endings(&self) -> Result<Endings, ImportError> {
        let mut endings = Endings::default();
        let Some(topic) = self.cluster().topics.get(STATE_TOPIC) else { return Ok(endings) };
        for index in self.indexes_of(STATE_TOPIC) {
            let name = (STATE_TOPIC.to_owned(), index);
            let Some(dir) = self.dir_of(&name, topic.id)? else { continue };
            let directory = format!("{STATE_TOPIC}-{index}");
            let entries = dir.list(&directory)?;
            let logs = entries.iter().filter_map(|entry| Some((base_of(&entry.name, ".log")?, entry.len)));
            let mut bases: Vec<Offset> = logs.clone().map(|(base, _)| base).collect();
            let has_records = logs.clone().any(|(_, len)| len > 0);
            let high = dir.high_watermark(&name, has_records)?.unwrap_or_default();
            bases.sort_unstable();
            let last = bases.last().copied();
            for base in bases {
                let path = join(&directory, &file_name(base, ".log"));
                let file = dir.open_file(&path)?;
                let may_end_torn = !dir.is_clean && Some(base) == last;
                each_batch(dir, &path, &file, may_end_torn, |position, batch| {
                    if batch.attributes().is_control() || batch.last_offset() >= high {
                        return Ok(());
                    }
                    let damaged = |reason: String| dir.damaged(&path, Some(position), reason);
                    let records =
                        batch.records(STATE_BATCH_BYTES_MAX).map_err(|error| damaged(error.to_string()))?;
                    for record in records.iter() {
                        let record = record.map_err(|error| damaged(error.to_string()))?;
                        if let Some(value) = record.value {
                            endings.note(value).map_err(damaged)?;
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(endings)
    }
}

impl Endings {
    /// Takes in a `TransactionLogValue`: version, producer id, epoch, timeout and state come first in all versions.
    fn note(&mut self, mut value: &[u8]) -> Result<(), String> {
        if value.len() < 17 {
            return Err("a transaction's state is too short".to_owned());
        }
        let version = value.get_i16();
        if !(0..=STATE_VERSION_MAX).contains(&version) {
            return Err(format!("a transaction's state has unknown version {version}"));
        }
        let producer = value.get_i64();
        let (_epoch, _timeout_ms) = (value.get_i16(), value.get_i32());
        let state = value.get_i8();
        self.committed.insert(producer, state == PREPARE_COMMIT || state == COMPLETE_COMMIT);
        Ok(())
    }

    /// The marker that ends an open transaction. It bears the next epoch, so that the producer that left it open is
    /// fenced (KIP-890).
    pub(super) fn marker(&self, producer: i64, epoch: i16, coordinator_epoch: i32, now_ms: i64) -> BytesMut {
        let commit = self.committed.get(&producer).copied().unwrap_or(false);
        let marker = EndMarker { commit, coordinator_epoch: coordinator_epoch.max(0) };
        BytesMut::from(&marker.batch(producer, epoch.saturating_add(1), now_ms)[..])
    }
}
