//! What was asked, and whether the answer keeps what it promises.

use std::collections::BTreeSet;
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::{Acks, ConnectionId, Produce, Ticket};
use coordinator::group::{GroupReply, OffsetCommit};
use coordinator::reply::{FetchedPart, Reply};
use coordinator::share::ShareError;
use coordinator::time::Mono;
use records::ids::PartitionId;

use super::members::all_sure;
use super::readers::Claims;
use super::share::Word;
use super::state::Tri;
use super::{Model, Rule, Violation};
use crate::sim::content::{self, Batch};

/// Acknowledgements of one partition in one request, and what they did.
#[derive(Clone, Debug)]
pub(super) struct Acked {
    pub(super) partition: PartitionId,
    /// Each range has an outcome of its own.
    pub(super) numbered: bool,
    /// By range.
    pub(super) words: Vec<Vec<(i64, Word)>>,
    /// Everything up to this change must be written before the answer.
    pub(super) position: u64,
}

/// A command that waits for its answer.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// The batches, and whether the answer waits for a sync.
    Produce {
        parts: Vec<(PartitionId, Option<Batch>)>,
        synced: bool,
    },
    ShareFetch {
        connection: ConnectionId,
        group: Arc<str>,
        member: Arc<str>,
        since: Mono,
        records_max: Option<i32>,
        per_key_max: usize,
        numbered: bool,
        /// Those of a reader without membership.
        ranges: Option<Claims>,
        acked: Vec<Acked>,
    },
    ShareAcknowledge {
        connection: ConnectionId,
        group: Arc<str>,
        acked: Vec<Acked>,
    },
    Commit {
        group: Arc<str>,
        number: u64,
    },
    Offsets {
        group: Arc<str>,
        at_least: u64,
    },
    /// A plain fetch, perhaps of committed records.
    Fetch {
        committed: bool,
    },
    Beat {
        group: Arc<str>,
        member: Arc<str>,
        epoch: i32,
    },
    /// An operator's, kept elsewhere.
    Hand,
    Other,
}

impl Asked {
    pub(super) fn produce(produce: &Produce) -> Self {
        let parsed = |bytes: &bytes::Bytes| {
            content::batches(std::slice::from_ref(bytes)).ok().and_then(|batches| batches.into_iter().next())
        };
        let parts =
            produce.parts.iter().map(|(partition, batch)| (*partition, parsed(&batch.bytes))).collect();
        Self::Produce { parts, synced: produce.acks == Acks::Synced }
    }

    pub(super) fn commit(commit: &OffsetCommit) -> Self {
        let number = commit.offsets.first().and_then(|part| part.metadata.parse().ok()).unwrap_or(0);
        Self::Commit { group: Arc::clone(&commit.group), number }
    }

    /// Whether nobody need answer it any more.
    pub(super) fn is_void(&self, closed: &BTreeSet<ConnectionId>) -> bool {
        match self {
            Self::ShareFetch { connection, .. } | Self::ShareAcknowledge { connection, .. } => {
                closed.contains(connection)
            }
            Self::Produce { .. } | Self::Commit { .. } | Self::Offsets { .. } | Self::Hand => false,
            // A plain fetch dies with its connection, which is not kept here.
            Self::Fetch { .. } | Self::Beat { .. } | Self::Other => true,
        }
    }
}

impl Model {
    pub(super) fn answered(
        &mut self,
        now: Mono,
        ticket: Ticket,
        reply: &Reply<Data>,
    ) -> Result<(), Violation> {
        let Some(asked) = self.tickets.remove(&ticket) else {
            return Err(Violation::new(Rule::Reply, format!("{ticket:?} is answered, and nobody asks")));
        };
        match (asked, reply) {
            (Asked::Produce { parts, synced }, Reply::Produced(results)) => {
                for ((partition, batch), result) in parts.into_iter().zip(results) {
                    if let (Ok(appended), Some(batch)) = (result, batch) {
                        self.produced(partition, &batch.at(appended.base_offset.get()), synced)?;
                    }
                }
                Ok(())
            }
            (
                Asked::ShareFetch {
                    connection,
                    group,
                    member,
                    since,
                    records_max,
                    per_key_max,
                    numbered,
                    ranges,
                    acked,
                },
                Reply::ShareFetched(fetched),
            ) => {
                self.wakeups.answered(ticket);
                let view = self.member(&group, &member);
                view.answered(ticket, fetched.is_ok());
                let over = view.has_no_session();
                let Ok(fetched) = fetched else { return Ok(()) };
                self.all_acked(&group, &acked, |partition| {
                    let part = fetched.parts.iter().find(|part| part.partition == partition)?;
                    Some((part.ack_error, &part.ack_results[..]))
                })?;
                let terms = super::grants::Terms {
                    ticket,
                    group,
                    member,
                    since,
                    records_max,
                    per_key_max,
                    numbered,
                    ranges,
                    doubt: over || self.closed.contains(&connection),
                };
                self.granted(now, &terms, fetched)
            }
            (Asked::ShareAcknowledge { group, acked, .. }, Reply::ShareAcknowledged(outcome)) => {
                let Ok(outcome) = outcome else { return Ok(()) };
                self.all_acked(&group, &acked, |partition| {
                    let part = outcome.parts.iter().find(|part| part.partition == partition)?;
                    Some((part.error, &part.results[..]))
                })
            }
            (Asked::Commit { group, number }, Reply::Group(GroupReply::Committed(results))) => {
                if results.iter().all(Result::is_ok) {
                    let known = self.committed.entry(group).or_default();
                    *known = number.max(*known);
                }
                Ok(())
            }
            (Asked::Offsets { group, at_least }, Reply::Group(GroupReply::Offsets(Ok(parts)))) => {
                let number: u64 = parts.first().and_then(|part| part.metadata.parse().ok()).unwrap_or(0);
                if number < at_least {
                    let text = format!("commit {at_least} of {group} was answered, {number} is told");
                    return Err(Violation::new(Rule::Commit, text));
                }
                Ok(())
            }
            (Asked::Hand, Reply::KeyAltered(result)) => {
                self.altered(now, ticket, result);
                Ok(())
            }
            (Asked::Hand, Reply::ShareOffsetsReset(results)) => {
                self.reset_answered(ticket, results);
                Ok(())
            }
            (Asked::Hand, Reply::ShareKeys(_)) => Ok(()),
            (Asked::Fetch { committed }, Reply::Fetched(parts)) => {
                parts.iter().flatten().try_for_each(|part| self.fetched(part, committed))
            }
            (Asked::Beat { group, member, epoch }, Reply::Group(GroupReply::ShareHeartbeat(answer))) => {
                self.beat_answered(now, &group, &member, epoch, answer.is_ok());
                Ok(())
            }
            (_, Reply::Group(_) | Reply::RecordsDeleted(_) | Reply::Offsets(_)) => Ok(()),
            (asked, reply) => Err(Violation::new(Rule::Reply, format!("{asked:?} is answered by {reply:?}"))),
        }
    }

    fn produced(&mut self, partition: PartitionId, batch: &Batch, synced: bool) -> Result<(), Violation> {
        let Some(log) = self.logs.get_mut(&partition) else { return Ok(()) };
        for seen in &batch.records {
            let stored = log.records.get(&seen.offset);
            if stored != Some(seen) && seen.offset >= log.start_asked {
                let text = format!("{seen:?} is told to be where {stored:?} is");
                return Err(Violation::new(Rule::Produce, text));
            }
        }
        let end = batch.last + 1;
        if synced {
            log.promised.extend(batch.base..end);
        }
        if synced && log.synced < end {
            let text = format!("acks=all answers up to {end}, synced is {}", log.synced);
            return Err(Violation::new(Rule::Produce, text));
        }
        Ok(())
    }

    fn fetched(&self, part: &FetchedPart<Data>, committed: bool) -> Result<(), Violation> {
        let Some(data) = &part.data else { return Ok(()) };
        // Which partition it is is not in the answer: its records are found in one of the logs.
        let batches = content::bytes(data)
            .and_then(|bytes| content::batches(&bytes))
            .map_err(|text| Violation::new(Rule::Content, text))?;
        let in_one = self.logs.values().any(|log| {
            batches
                .iter()
                .flat_map(|batch| &batch.records)
                .all(|seen| log.records.get(&seen.offset) == Some(seen) || seen.offset >= log.end)
        });
        if !in_one {
            return Err(Violation::new(Rule::Content, "a fetch shows what no log holds"));
        }
        if committed { self.logs.reads_committed(&batches, &part.aborted) } else { Ok(()) }
    }

    /// Every partition that was acknowledged has an outcome, which `outcome` finds in the answer.
    fn all_acked<'a>(
        &mut self,
        group: &Arc<str>,
        acked: &[Acked],
        outcome: impl Fn(PartitionId) -> Option<(Option<ShareError>, &'a [Result<(), ShareError>])>,
    ) -> Result<(), Violation> {
        for acked in acked {
            let Some((error, results)) = outcome(acked.partition) else {
                return Err(Violation::new(Rule::Reply, "acknowledgements are not answered"));
            };
            self.acked(group, acked, error, results)?;
        }
        Ok(())
    }

    fn acked(
        &mut self,
        group: &Arc<str>,
        acked: &Acked,
        error: Option<ShareError>,
        results: &[Result<(), ShareError>],
    ) -> Result<(), Violation> {
        let id = (Arc::clone(group), acked.partition);
        let Some(share) = self.shares.get_mut(&id) else { return Ok(()) };
        let outcomes: Vec<(Vec<_>, Option<ShareError>)> = if acked.numbered {
            let errors = results.iter().map(|result| result.err()).chain(std::iter::repeat(error));
            acked.words.iter().cloned().zip(errors).collect()
        } else {
            vec![(acked.words.concat(), error)]
        };
        for (words, error) in outcomes {
            match error {
                None => {
                    let ends = |word: &Word| word.settles || word.stops;
                    let surely = words.iter().any(|word| ends(&word.1) && word.1.held == Tri::Yes);
                    if surely && !share.is_written_to(acked.position) {
                        let text = format!("{words:?} of {group} are answered before they are written");
                        return Err(Violation::new(Rule::Reply, text));
                    }
                    for (offset, word) in words.into_iter().filter(|(_, word)| word.settles) {
                        let record = share.record(offset);
                        let again = |hold: super::state::Hold| hold.delivery != word.delivery && !hold.doubt;
                        if record.hold.is_some_and(again) && !record.may_return {
                            let text =
                                format!("{offset} of {group} was granted again and its accept is taken");
                            return Err(Violation::new(Rule::Redelivery, text));
                        }
                        share.surely_settled(offset);
                    }
                }
                Some(ShareError::InvalidRecordState) => {
                    if all_sure(&words) && !words.is_empty() {
                        let text = format!("{words:?} of {group} are held, and their word is refused");
                        return Err(Violation::new(Rule::Redelivery, text));
                    }
                }
                Some(_) => words.iter().for_each(|(offset, _)| share.unsettle(*offset)),
            }
        }
        Ok(())
    }
}
