//! Reading ahead for a planner: offsets and key hashes of the records, out of one pass over the log.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use records::ids::{KeyHash, Offset, PartitionId};
use records::{BatchView, RecordError, key_hash};

use crate::batch_cache::DecodedBatch;
use crate::error::ReadError;
use crate::logs::Logs;
use crate::transactions::AbortedTransaction;

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// In offset order; offsets between them are gone.
    pub batches: Vec<ScannedBatch>,
    /// Where the next scan begins.
    pub next: Offset,
}

/// One stored batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedBatch {
    /// Its first offset.
    pub base: Offset,
    /// Its last offset.
    pub last: Offset,
    /// Its stored bytes.
    pub bytes: u32,
    /// What it holds.
    pub kind: ScannedKind,
}

/// What a stored batch holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannedKind {
    /// Records, in offset order.
    Data(Vec<ScannedRecord>),
    /// A marker of the broker's.
    Control,
    /// Records of an aborted transaction; told by [`Logs::scan_committed`] alone.
    Aborted,
    /// Damaged, for this reason: never to be delivered.
    Corrupt(String),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its offset.
    pub offset: Offset,
    /// Its key's hash; `None` without a key.
    pub key: Option<KeyHash>,
    /// Its bytes, uncompressed, with the length in front.
    pub bytes: u32,
}

impl Logs {
    /// Reads the records from `from` on, below `upper`, out of about `bytes_max` stored bytes (one batch at least).
    /// Damage ends a scan behind the damaged batch. What was decoded stays at hand for [`Logs::select`].
    pub fn scan(
        &mut self,
        id: PartitionId,
        from: Offset,
        bytes_max: u64,
        upper: Offset,
    ) -> Result<Scan, ReadError> {
        self.scan_as(id, from, bytes_max, upper, false)
    }

    /// As [`Logs::scan`], up to a last stable offset: batches of aborted transactions are told as such.
    pub fn scan_committed(
        &mut self,
        id: PartitionId,
        from: Offset,
        bytes_max: u64,
        upper: Offset,
    ) -> Result<Scan, ReadError> {
        self.scan_as(id, from, bytes_max, upper, true)
    }

    fn scan_as(
        &mut self,
        id: PartitionId,
        from: Offset,
        bytes_max: u64,
        upper: Offset,
        committed: bool,
    ) -> Result<Scan, ReadError> {
        let mut scan = Scan { batches: Vec::new(), next: from };
        let slice = match self.readable(id)?.read(from, bytes_max, upper, true) {
            Err(ReadError::Damaged { .. }) => {
                self.skip_damage(id, &mut scan)?;
                return if scan.next > from { Ok(scan) } else { Err(self.readable(id)?.no_way_behind(from)) };
            }
            slice => slice?,
        };
        if slice.is_empty() {
            // Where compaction has been there may be nothing up to the end.
            let end = self.readable(id)?.facts().end;
            scan.next = from.max(upper.min(end));
            return Ok(scan);
        }
        let aborted = if committed { self.aborted(id, from, &slice)? } else { Vec::new() };
        let bytes = slice.read()?;
        let mut at = 0;
        while at < bytes.len() {
            // The first batch may begin before `from`; the header's offsets are under no CRC.
            let expected = if at == 0 { scan.next.min(slice.base()) } else { scan.next };
            let batch = match BatchView::parse(&bytes[at..]) {
                Ok(batch) if self.readable(id)?.fits(&batch, expected) => batch,
                _ => break,
            };
            match self.decode(id, &batch, &aborted) {
                Ok(kind) => scan.batches.push(ScannedBatch {
                    base: batch.base_offset(),
                    last: batch.last_offset(),
                    bytes: batch.size() as u32,
                    kind,
                }),
                // A header under a wrong CRC cannot be trusted to name the batch's offsets.
                Err(RecordError::Corrupt(_)) if !batch.crc_is_valid() => break,
                Err(reason) => scan.batches.push(ScannedBatch {
                    base: batch.base_offset(),
                    last: batch.last_offset(),
                    bytes: batch.size() as u32,
                    kind: ScannedKind::Corrupt(reason.to_string()),
                }),
            }
            scan.next = batch.next_offset();
            at += batch.size();
        }
        if at < bytes.len() {
            self.skip_damage(id, &mut scan)?;
        }
        // Whoever scans goes on from `next`, and must come to an end, whatever the files say.
        if scan.next <= from {
            return Err(self.readable(id)?.no_way_behind(from));
        }
        Ok(scan)
    }

    fn decode(
        &mut self,
        id: PartitionId,
        batch: &BatchView<'_>,
        aborted: &[AbortedTransaction],
    ) -> Result<ScannedKind, RecordError> {
        let is_control = batch.attributes().is_control();
        let covers = |txn: &AbortedTransaction| txn.covers(batch.producer_id(), batch.base_offset());
        if is_control || (batch.attributes().is_transactional() && aborted.iter().any(covers)) {
            let kind = if is_control { ScannedKind::Control } else { ScannedKind::Aborted };
            return if batch.crc_is_valid() {
                Ok(kind)
            } else {
                Err(RecordError::Corrupt("crc does not match"))
            };
        }
        let decoded = Arc::new(DecodedBatch::new(batch, self.options.inflated_bytes_max)?);
        let mut records = Vec::new();
        for record in &decoded.records() {
            let record = record?;
            records.push(ScannedRecord {
                offset: record.offset,
                key: record.key.map(key_hash),
                bytes: record.raw.len() as u32,
            });
        }
        self.cache.insert(id, &decoded);
        Ok(ScannedKind::Data(records))
    }

    /// Reports the damaged batch at the scan's position, and goes on behind it.
    fn skip_damage(&mut self, id: PartitionId, scan: &mut Scan) -> Result<(), ReadError> {
        let log = self.readable(id)?;
        let Some(damage) = log.damage_at(scan.next)? else { return Ok(()) };
        tracing::error!(
            log = log.directory(), segment = %damage.segment, position = damage.position,
            first = %scan.next, next = %damage.next, "stored batch is damaged"
        );
        scan.batches.push(ScannedBatch {
            base: scan.next,
            last: damage.next - 1,
            bytes: u32::try_from(damage.bytes).unwrap_or(u32::MAX),
            kind: ScannedKind::Corrupt("stored bytes are damaged".into()),
        });
        scan.next = damage.next;
        Ok(())
    }
}
