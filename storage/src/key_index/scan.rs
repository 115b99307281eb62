//! Key hashes out of the log itself: to index it, and where it is not indexed.

use records::batch::Record;
use records::ids::Offset;
use records::{BatchView, Codec, RecordError, key_hash};

use super::KeyedRecord;
use crate::error::ReadError;
use crate::log::{KeyBounds, PartitionLog};

/// A piece of the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// A batch, its records in offset order; a marker of the broker's has none.
    Batch { records: &'a [KeyedRecord], next: Offset, leader_epoch: i32 },
    /// Damaged: from the first offset to the last.
    Damaged { first: Offset, last: Offset },
}

impl PartitionLog {
    /// Shows the batches from the one that holds `from` on, below `upper`, out of about `bytes_max` bytes (one batch
    /// at least) of one segment. Where to go on, which is behind `from` where that is below `upper`, and how many bytes
    /// were read. Damage is shown and passed over.
    pub(super) fn scan_keys(
        &mut self,
        from: Offset,
        upper: Offset,
        bytes_max: u64,
        inflated_max: usize,
        mut visit: impl FnMut(Found<'_>),
    ) -> Result<(Offset, u64), ReadError> {
        let upper = upper.min(self.facts().end);
        let slice = match self.read(from, bytes_max, upper, true) {
            Err(ReadError::Damaged { .. }) => {
                let next = self.skip_key_damage(from, upper, &mut visit)?;
                return Ok((self.goes_on(from, next)?, 0));
            }
            slice => slice?,
        };
        if slice.is_empty() {
            return Ok((upper, 0));
        }
        let bytes = slice.read()?;
        let walked = walk(&bytes, (slice.base(), from), self.key_bounds(), inflated_max, |found| {
            visit(found);
            true
        });
        let next = match walked {
            Walked::To(next) => next,
            Walked::Damage(at) => self.skip_key_damage(at, upper, &mut visit)?,
        };
        Ok((self.goes_on(from, next)?, slice.len()))
    }

    /// `next` where it lies behind `from`: whoever reads step by step must come to an end, whatever the files say.
    pub(super) fn goes_on(&self, from: Offset, next: Offset) -> Result<Offset, ReadError> {
        if next > from { Ok(next) } else { Err(self.no_way_behind(from)) }
    }

    /// Shows the damage at `offset`, and where it ends; `upper` where there is none in this segment.
    pub(super) fn skip_key_damage(
        &mut self,
        offset: Offset,
        upper: Offset,
        visit: &mut impl FnMut(Found<'_>),
    ) -> Result<Offset, ReadError> {
        let Some(damage) = self.damage_at(offset)?.filter(|damage| damage.segment <= offset) else {
            return Ok(upper);
        };
        tracing::error!(
            log = self.directory(), segment = %damage.segment, position = damage.position,
            first = %offset, next = %damage.next, "stored batch is damaged, its keys are not known"
        );
        visit(Found::Damaged { first: offset, last: damage.next - 1 });
        Ok(damage.next)
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// Everything below was shown.
    To(Offset),
    /// The same, and the batch that stands there is damaged.
    Damage(Offset),
}

/// Shows the batches of a piece of log which begins with the batch at `base` and is read from `from` on, until `visit`
/// has enough of them.
pub(super) fn walk(
    bytes: &[u8],
    (base, from): (Offset, Offset),
    bounds: KeyBounds,
    inflated_max: usize,
    mut visit: impl FnMut(Found<'_>) -> bool,
) -> Walked {
    let mut records = Vec::new();
    let (mut at, mut next) = (0, from);
    while at < bytes.len() {
        // The first batch may begin before `from`; the header's offsets are under no CRC.
        let expected = if at == 0 { next.min(base) } else { next };
        let batch = match BatchView::parse(&bytes[at..]) {
            Ok(batch) if bounds.fit(&batch, expected) => batch,
            _ => return Walked::Damage(next),
        };
        let goes_on = match keys_of(&batch, inflated_max, true, &mut records) {
            Ok(()) => visit(Found::Batch {
                records: &records,
                next: batch.next_offset(),
                leader_epoch: batch.leader_epoch(),
            }),
            // A header under a wrong CRC cannot be trusted to name the batch's offsets.
            Err(RecordError::Corrupt(_)) if !batch.crc_is_valid() => return Walked::Damage(next),
            Err(_) => visit(Found::Damaged { first: batch.base_offset(), last: batch.last_offset() }),
        };
        next = batch.next_offset();
        at += batch.size();
        if !goes_on {
            break;
        }
    }
    Walked::To(next)
}

/// The records of a batch with their key hashes; none of a control batch.
pub(super) fn keys_of(
    batch: &BatchView<'_>,
    inflated_max: usize,
    check_crc: bool,
    records: &mut Vec<KeyedRecord>,
) -> Result<(), RecordError> {
    records.clear();
    if check_crc && !batch.crc_is_valid() {
        return Err(RecordError::Corrupt("crc does not match"));
    }
    if batch.attributes().is_control() {
        return Ok(());
    }
    let keyed = |record: Record<'_>| KeyedRecord { offset: record.offset, key: record.key.map(key_hash) };
    if batch.attributes().codec()? == Codec::None {
        for record in &batch.records(0)? {
            records.push(keyed(record?));
        }
        return Ok(());
    }
    batch.scan(inflated_max, |record| {
        records.push(keyed(record));
        Ok(())
    })
}
