//! Produce: one append a part, and an answer when every part is written, or covered by a sync.
//!
//! Appends are submitted in the order of the commands, and an executor serves a partition in order, so pipelined
//! requests of one producer reach the log as they came. A request costs memory until it is answered; the broker
//! bounds how many there are by what it admits.

use std::collections::BTreeMap;

use records::ids::PartitionId;

use super::tally::Tally;
use crate::command::{Acks, Produce, ProducedBatch, Ticket};
use crate::io::{AppendError, Appended, IoError, OpId, Origin, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::{ProduceError, Reply};

type Part = Result<Appended, ProduceError>;

/// Produce requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Produces {
    requests: BTreeMap<Ticket, Request>,
    appends: BTreeMap<OpId, Place>,
    syncs: BTreeMap<OpId, (Place, Appended)>,
}

#[derive(Debug)]
struct Request {
    acks: Acks,
    parts: Tally<Part>,
}

/// One part of one request.
#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: Ticket,
    index: usize,
    partition: PartitionId,
}

impl Produces {
    /// Starts a request. `may_write`: whether clients may write to a partition.
    pub(super) fn start<S>(
        &mut self,
        ticket: Ticket,
        produce: Produce,
        logs: &LogTable,
        may_write: impl Fn(PartitionId) -> bool,
        out: &mut Outbox<S>,
    ) {
        let Produce { acks, parts } = produce;
        let mut request = Request { acks, parts: Tally::new(parts.len()) };
        for (index, (partition, batch)) in parts.into_iter().enumerate() {
            if !logs.contains_key(&partition) {
                request.parts.put(index, Err(ProduceError::UnknownPartition));
            } else if !may_write(partition) {
                request.parts.put(index, Err(ProduceError::Internal));
            } else {
                self.append(Place { ticket, index, partition }, batch, out);
            }
        }
        if request.parts.is_complete() {
            out.reply(ticket, Reply::Produced(request.parts.into_results()));
        } else {
            self.requests.insert(ticket, request);
        }
    }

    /// An append is over. Tells the partition, so that the shard can note what the log looks like now.
    pub(super) fn appended<S>(
        &mut self,
        op: OpId,
        result: Result<Appended, AppendError>,
        out: &mut Outbox<S>,
    ) -> Option<PartitionId> {
        let place = self.appends.remove(&op)?;
        let acks = self.requests.get(&place.ticket).map(|request| request.acks)?;
        match result {
            Ok(appended) if acks == Acks::Synced => {
                let partition = place.partition;
                let op = out.submit(Owner::Logs, |op| Submission::Sync { op, partition });
                self.syncs.insert(op, (place, appended));
            }
            Ok(appended) => self.put(place, Ok(appended), out),
            Err(error) => self.put(place, Err(refused(error)), out),
        }
        Some(place.partition)
    }

    /// A sync that covers an append is over.
    pub(super) fn synced<S>(&mut self, op: OpId, result: Result<(), IoError>, out: &mut Outbox<S>) {
        let Some((place, appended)) = self.syncs.remove(&op) else { return };
        let part = result.map(|()| appended).map_err(|error| refused(AppendError::Io(error)));
        self.put(place, part, out);
    }

    fn append<S>(&mut self, place: Place, batch: ProducedBatch, out: &mut Outbox<S>) {
        let partition = place.partition;
        let ProducedBatch { bytes: batch, keys } = batch;
        let origin = Origin::Client;
        let op = out.submit(Owner::Logs, |op| Submission::Append { op, partition, batch, origin, keys });
        self.appends.insert(op, place);
    }

    fn put<S>(&mut self, place: Place, part: Part, out: &mut Outbox<S>) {
        let request = self.requests.get_mut(&place.ticket).expect("a part that is open has its request");
        request.parts.put(place.index, part);
        if request.parts.is_complete() {
            let request = self.requests.remove(&place.ticket).expect("looked up above");
            out.reply(place.ticket, Reply::Produced(request.parts.into_results()));
        }
    }
}

/// A partition that was deleted meanwhile is an unknown one to the client.
fn refused(error: AppendError) -> ProduceError {
    match error {
        AppendError::Io(IoError::NotOpen) => ProduceError::UnknownPartition,
        other => ProduceError::Append(other),
    }
}
