//! Chosen records as batches: what a share answer is made of.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use records::batch::SlimBuilder;
use records::ids::{Offset, PartitionId};
use records::{BatchView, Batches, Codec};

use crate::batch_cache::DecodedBatch;
use crate::error::{ReadError, SelectError};
use crate::logs::Logs;
use crate::options::{SELECT_READ_BYTES, SLIM_BATCH_BYTES_MAX, SLIM_PLAIN_BYTES_MAX};

/// A stored batch goes out whole when at least this share of its records is chosen: 3 of 4.
const WHOLE_CHOSEN: i64 = 3;
const WHOLE_OF: i64 = 4;

impl Logs {
    /// The records in `ranges` (inclusive, ascending, disjoint) as batches in ascending order, none twice, none
    /// without a chosen record: the stored batch as it is when most of it is chosen, else slim ones. Every CRC was
    /// checked. Served from the batch cache, else read in one pass.
    ///
    /// # Errors
    /// [`SelectError`] names the offsets that stand in the way; nothing is delivered then.
    pub fn select(
        &mut self,
        id: PartitionId,
        ranges: &[(Offset, Offset)],
    ) -> Result<Vec<Bytes>, SelectError> {
        let log_start = self.readable(id)?.facts().log_start;
        let mut answer = Answer::default();
        let mut ranges = ranges.to_vec();
        let mut index = 0;
        while index < ranges.len() {
            let (first, _) = ranges[index];
            if first < log_start {
                return Err(SelectError::Gone { log_start });
            }
            let upper = ranges[ranges.len() - 1].1;
            let batch = self.decoded(id, first, upper)?;
            let last_here = batch.view().last_offset();
            let inside = ranges[index..].partition_point(|(first, _)| *first <= last_here);
            let mut chosen = ranges[index..index + inside].to_vec();
            index += inside;
            // The range that goes on behind this batch is split at its end.
            let (_, last) = chosen.last_mut().expect("the batch holds the first chosen offset");
            if *last > last_here {
                index -= 1;
                ranges[index].0 = last_here.next();
                *last = last_here;
            }
            answer.add(&batch, &chosen)?;
        }
        answer.flush();
        Ok(answer.batches)
    }

    /// The decoded batch that holds `offset`; reads ahead up to `last` when it is not cached.
    pub(crate) fn decoded(
        &mut self,
        id: PartitionId,
        offset: Offset,
        last: Offset,
    ) -> Result<Arc<DecodedBatch>, SelectError> {
        if let Some(batch) = self.cache.get(id, offset) {
            return Ok(batch);
        }
        let inflated_max = self.options.inflated_bytes_max;
        let read = self.readable(id)?.read(offset, SELECT_READ_BYTES, last.next(), true);
        let slice = match read {
            Err(ReadError::Damaged { .. }) => {
                return Err(self.corrupt(id, offset, "no valid batch header")?);
            }
            slice => slice?,
        };
        let bytes = slice.read().map_err(ReadError::from)?;
        let mut wanted = None;
        for batch in Batches::new(&bytes) {
            let decoded = batch.and_then(|batch| DecodedBatch::new(&batch, inflated_max));
            match decoded {
                Ok(decoded) => {
                    let decoded = Arc::new(decoded);
                    self.cache.insert(id, &decoded);
                    wanted.get_or_insert(decoded);
                }
                // What lies behind the wanted batch is another call's affair.
                Err(_) if wanted.is_some() => break,
                Err(reason) => return Err(self.corrupt(id, offset, &reason.to_string())?),
            }
        }
        wanted.filter(|batch| batch.view().base_offset() <= offset).ok_or(SelectError::Missing(offset))
    }

    fn corrupt(&mut self, id: PartitionId, offset: Offset, reason: &str) -> Result<SelectError, ReadError> {
        let damage = self.readable(id)?.damage_at(offset)?;
        Ok(match damage {
            Some(damage) => {
                SelectError::Corrupt { first: offset, last: damage.next - 1, reason: reason.to_owned() }
            }
            None => SelectError::Missing(offset),
        })
    }
}

/// The batches made so far, and the slim one that is being filled.
#[derive(Default)]
struct Answer {
    batches: Vec<Bytes>,
    slim: Option<SlimBuilder>,
    compressed: bool,
}

impl Answer {
    /// Adds the chosen records of one stored batch.
    fn add(&mut self, batch: &DecodedBatch, chosen: &[(Offset, Offset)]) -> Result<(), SelectError> {
        let view = batch.view();
        let asked: i64 = chosen.iter().map(|(first, last)| *last - *first + 1).sum();
        let held = i64::from(view.record_count());
        let dense = i64::from(view.last_offset_delta()) + 1 == held;
        if !dense || asked < held {
            check_all_there(batch, chosen)?;
        }
        if asked * WHOLE_OF >= held * WHOLE_CHOSEN {
            self.flush();
            self.batches.push(batch.bytes().clone());
            return Ok(());
        }
        let slim = self.open_slim(&view);
        let mut ranges = chosen.iter().peekable();
        for record in &batch.records() {
            let record = record.map_err(|error| corrupt(&view, &error.to_string()))?;
            while ranges.next_if(|(_, last)| *last < record.offset).is_some() {}
            let Some((first, _)) = ranges.peek() else { break };
            if *first <= record.offset {
                slim.push(&record).map_err(|error| corrupt(&view, &error.to_string()))?;
            }
        }
        self.compressed |= batch.is_compressed();
        Ok(())
    }

    /// The slim batch that records of `view` can go into.
    fn open_slim(&mut self, view: &BatchView<'_>) -> &mut SlimBuilder {
        let joins = self
            .slim
            .as_mut()
            .is_some_and(|slim| slim.payload_len() < SLIM_BATCH_BYTES_MAX && slim.join(view));
        if !joins {
            self.flush();
        }
        self.slim.get_or_insert_with(|| SlimBuilder::new(view))
    }

    fn flush(&mut self) {
        let Some(slim) = self.slim.take() else { return };
        let again = std::mem::take(&mut self.compressed) && slim.payload_len() > SLIM_PLAIN_BYTES_MAX;
        self.batches.extend(slim.finish(if again { Codec::Lz4 } else { Codec::None }));
    }
}

/// Every chosen offset must name a record: a client takes what is missing for a gap.
fn check_all_there(batch: &DecodedBatch, chosen: &[(Offset, Offset)]) -> Result<(), SelectError> {
    let view = batch.view();
    let mut wanted = chosen.iter().flat_map(|(first, last)| (first.0..=last.0).map(Offset)).peekable();
    for record in &batch.records() {
        let record = record.map_err(|error| corrupt(&view, &error.to_string()))?;
        match wanted.peek() {
            Some(offset) if *offset < record.offset => break,
            Some(offset) if *offset == record.offset => {
                wanted.next();
            }
            Some(_) => {}
            None => break,
        }
    }
    wanted.next().map_or(Ok(()), |offset| Err(SelectError::Missing(offset)))
}

fn corrupt(view: &BatchView<'_>, reason: &str) -> SelectError {
    SelectError::Corrupt { first: view.base_offset(), last: view.last_offset(), reason: reason.to_owned() }
}
