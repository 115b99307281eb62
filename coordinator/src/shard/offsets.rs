//! ListOffsets and DeleteRecords: answered from known facts where they say enough, else by the executor.

use std::collections::BTreeMap;

use records::ids::{Offset, PartitionId};

use super::tally::Tally;
use crate::command::{DeleteTo, ListOffsets, ListOffsetsPart, OffsetQuery, Ticket};
use crate::io::{DeleteError, FoundRecord, IoError, OpId, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::plan::fetch::{check_epoch, upper};
use crate::reply::{FetchError, FoundOffset, Reply};

/// No timestamp (`ListOffsetsResponse.UNKNOWN_TIMESTAMP`).
const NO_TIMESTAMP: i64 = -1;
/// No leader epoch (`ListOffsetsResponse.UNKNOWN_EPOCH`).
const NO_EPOCH: i32 = -1;

/// Questions about offsets and cuts that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    questions: BTreeMap<Ticket, Tally<Result<FoundOffset, FetchError>>>,
    searches: BTreeMap<OpId, Search>,
    cuts: BTreeMap<Ticket, Tally<Result<Offset, DeleteError>>>,
    deletions: BTreeMap<OpId, Deletion>,
}

#[derive(Clone, Copy, Debug)]
struct Search {
    ticket: Ticket,
    index: usize,
    /// A record at or beyond this offset is not shown.
    upper: Offset,
}

#[derive(Clone, Copy, Debug)]
struct Deletion {
    ticket: Ticket,
    index: usize,
    partition: PartitionId,
}

impl Offsets {
    /// Starts a question.
    pub(super) fn list<S>(
        &mut self,
        ticket: Ticket,
        request: &ListOffsets,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let mut tally = Tally::new(request.parts.len());
        for (index, part) in request.parts.iter().enumerate() {
            match answer_from_facts(request, part, logs) {
                Ok(Known::Offset(found)) => tally.put(index, Ok(found)),
                Ok(Known::Search { upper }) => {
                    let ListOffsetsPart { partition, query, .. } = *part;
                    let op = out.submit(Owner::Logs, |op| Submission::FindOffset { op, partition, query });
                    self.searches.insert(op, Search { ticket, index, upper });
                }
                Err(error) => tally.put(index, Err(error)),
            }
        }
        if tally.is_complete() {
            out.reply(ticket, Reply::Offsets(tally.into_results()));
        } else {
            self.questions.insert(ticket, tally);
        }
    }

    /// A search is over.
    pub(super) fn found<S>(
        &mut self,
        op: OpId,
        result: Result<Option<FoundRecord>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(search) = self.searches.remove(&op) else { return };
        let answer = match result {
            Ok(Some(FoundRecord { offset, timestamp, leader_epoch })) if offset < search.upper => {
                Ok(FoundOffset { offset: Some(offset), timestamp, leader_epoch })
            }
            Ok(_) => Ok(nothing()),
            Err(IoError::NotOpen) => Err(FetchError::UnknownPartition),
            Err(IoError::OutOfRange | IoError::Corrupt | IoError::Storage) => Err(FetchError::Storage),
        };
        let tally = self.questions.get_mut(&search.ticket).expect("a search has its question");
        tally.put(search.index, answer);
        if tally.is_complete() {
            let tally = self.questions.remove(&search.ticket).expect("looked up above");
            out.reply(search.ticket, Reply::Offsets(tally.into_results()));
        }
    }

    /// Starts to cut logs.
    pub(super) fn delete<S>(
        &mut self,
        ticket: Ticket,
        parts: &[(PartitionId, DeleteTo)],
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let mut tally = Tally::new(parts.len());
        for (index, &(partition, to)) in parts.iter().enumerate() {
            match (logs.get(&partition), to) {
                (None, _) => tally.put(index, Err(DeleteError::Io(IoError::NotOpen))),
                (Some(facts), DeleteTo::Offset(to)) if to < Offset::ZERO || to > facts.end => {
                    tally.put(index, Err(DeleteError::OutOfRange));
                }
                (Some(facts), DeleteTo::Offset(to)) if to <= facts.log_start => {
                    tally.put(index, Ok(facts.log_start));
                }
                (Some(_), to) => {
                    let op = out.submit(Owner::Logs, |op| Submission::DeleteRecords { op, partition, to });
                    self.deletions.insert(op, Deletion { ticket, index, partition });
                }
            }
        }
        if tally.is_complete() {
            out.reply(ticket, Reply::RecordsDeleted(tally.into_results()));
        } else {
            self.cuts.insert(ticket, tally);
        }
    }

    /// A log was cut, or not. Tells the partition and its new start, so that the shard can note it.
    pub(super) fn deleted<S>(
        &mut self,
        op: OpId,
        result: Result<Offset, DeleteError>,
        out: &mut Outbox<S>,
    ) -> Option<(PartitionId, Offset)> {
        let deletion = self.deletions.remove(&op)?;
        let tally = self.cuts.get_mut(&deletion.ticket).expect("a deletion has its request");
        tally.put(deletion.index, result);
        if tally.is_complete() {
            let tally = self.cuts.remove(&deletion.ticket).expect("looked up above");
            out.reply(deletion.ticket, Reply::RecordsDeleted(tally.into_results()));
        }
        result.ok().map(|log_start| (deletion.partition, log_start))
    }
}

/// What the facts say to a question.
enum Known {
    Offset(FoundOffset),
    Search { upper: Offset },
}

fn answer_from_facts(
    request: &ListOffsets,
    part: &ListOffsetsPart,
    logs: &LogTable,
) -> Result<Known, FetchError> {
    let facts = logs.get(&part.partition).ok_or(FetchError::UnknownPartition)?;
    check_epoch(part.current_leader_epoch, facts)?;
    let upper = upper(request.isolation, facts);
    Ok(match part.query {
        // Known but for the epoch (case R04); shown even where there is no record.
        OffsetQuery::Earliest | OffsetQuery::EpochEnd(_) => Known::Search { upper: Offset::MAX },
        OffsetQuery::Latest => Known::Offset(FoundOffset {
            offset: Some(upper),
            timestamp: NO_TIMESTAMP,
            leader_epoch: facts.leader_epoch,
        }),
        OffsetQuery::Tiered => Known::Offset(nothing()),
        // Where no record is left there is none to be found, whatever the indexes remember.
        OffsetQuery::MaxTimestamp | OffsetQuery::At(_) if facts.log_start >= upper => {
            Known::Offset(nothing())
        }
        OffsetQuery::MaxTimestamp | OffsetQuery::At(_) => Known::Search { upper },
    })
}

fn nothing() -> FoundOffset {
    FoundOffset { offset: None, timestamp: NO_TIMESTAMP, leader_epoch: NO_EPOCH }
}
