//! What happens to the world: requests and answers travel, connections break, members come and go, the broker stops,
//! is killed, loses power, and starts again.

use std::collections::BTreeMap;

use broker::executor::Data;
use bytes::Bytes;
use coordinator::command::{Command, ConnectionId, DeleteTo, Fact, Ticket};
use coordinator::reply::Reply;
use coordinator::shard::Input;
use coordinator::time::Micros;
use records::ids::{Offset, PartitionId};
use storage::{Disk, Logs, StorageError};

use super::{Client, End, World, address};
use crate::sim::clients::{Member, Socket, Wish};
use crate::sim::content::{self, Letter};
use crate::sim::event::{Event, RequestId};
use crate::sim::model::{Found, Rule, Violation};
use crate::sim::node::{Node, letter_partition, partition};

/// How long the broker is down.
const DOWN_US: [u64; 3] = [10_000, 1_000_000, 12_000_000];
/// Bytes of a log read at once when it is looked through.
const READ_BYTES: u64 = 1 << 20;

impl World {
    // ---- requests and answers --------------------------------------------------------------------------------

    pub(super) fn send_request(&mut self, socket: Socket, request: RequestId, mut command: Command) {
        let Some(&connection) = self.sockets.get(&socket) else { return };
        address(&mut command, connection);
        let way = Micros(self.random.between(1, self.plan.net_us_max));
        let now = self.clock.mono();
        let Some(state) = self.net.get_mut(connection) else { return };
        state.arrives_until = state.arrives_until.max(now + way);
        let at = state.arrives_until;
        self.clock.at(at, Event::Arrives { connection, request, command: Box::new(command) });
    }

    pub(super) fn arrives(&mut self, connection: ConnectionId, request: RequestId, command: Command) {
        let now = self.clock.mono();
        let refused = self.node.as_ref().is_none_or(|node| node.stopping);
        let Some(state) = self.net.get_mut(connection) else { return };
        if state.broken_at.is_some_and(|at| at <= now) {
            return;
        }
        if refused || !state.broker_open {
            return self.break_connection(connection);
        }
        if let Some((ticket, seen)) = self.net.arrive(connection, request, &command) {
            if let Some(seen) = seen {
                self.tell(Input::Fact(seen));
            }
            self.tell(Input::Command(ticket, command));
        }
    }

    pub(super) fn send_answer(&mut self, ticket: Ticket, reply: Reply<Data>) {
        let Some(connection) = self.net.connection_of(ticket) else { return };
        let way = Micros(self.random.between(1, self.plan.net_us_max));
        let now = self.clock.mono();
        let Some(state) = self.net.get_mut(connection) else { return };
        state.writes_until = state.writes_until.max(now).max(state.stalled_until);
        let written = state.writes_until;
        state.receives_until = state.receives_until.max(written + way);
        let received = state.receives_until;
        self.clock.at(written, Event::Written { connection, ticket });
        if let Some(request) = state.request_of(ticket) {
            let reply = Box::new(reply);
            self.clock.at(received, Event::Receives { connection, request, reply });
        }
    }

    pub(super) fn written(&mut self, connection: ConnectionId, ticket: Ticket) {
        if let Some((_, true)) = self.net.written(connection, ticket) {
            self.tell(Input::Fact(Fact::AnswerWritten(ticket)));
        }
    }

    pub(super) fn receives(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        reply: Reply<Data>,
    ) -> Result<(), Violation> {
        let now = self.clock.mono();
        let Some(state) = self.net.get_mut(connection) else { return Ok(()) };
        if !state.client_open || state.broken_at.is_some_and(|at| at <= now) {
            return Ok(());
        }
        let client = state.client;
        self.turn(client, |client, turn| client.receives(turn, request, reply))
    }

    // ---- connections -----------------------------------------------------------------------------------------

    /// Nothing travels on it any more; each side notices in its time.
    pub(super) fn break_connection(&mut self, connection: ConnectionId) {
        let now = self.clock.mono();
        let Some(state) = self.net.get_mut(connection) else { return };
        if state.broken_at.is_some() {
            return;
        }
        state.broken_at = Some(now);
        self.trace.note(now, format_args!("connection {} breaks", connection.0));
        let broker = Micros(self.random.pick(&[0, 100, 100_000, 2_000_000]));
        let client = Micros(self.random.pick(&[0, 100, 50_000, 1_000_000]));
        self.clock.after(broker, Event::BrokerNotices { connection });
        self.clock.after(client, Event::ClientNotices { connection });
    }

    pub(super) fn broker_notices(&mut self, connection: ConnectionId) {
        for fact in self.net.broker_closes(connection) {
            self.tell(Input::Fact(fact));
        }
    }

    pub(super) fn client_notices(&mut self, connection: ConnectionId) -> Result<(), Violation> {
        let Some(client) = self.net.client_closes(connection) else { return Ok(()) };
        let Some(socket) = self.sockets_back.remove(&connection) else { return Ok(()) };
        self.sockets.remove(&socket);
        self.turn(client, |client, turn| client.loses(turn, socket))
    }

    pub(super) fn client_closes(&mut self, socket: Socket) {
        let Some(connection) = self.sockets.remove(&socket) else { return };
        self.sockets_back.remove(&connection);
        self.break_connection(connection);
        self.net.client_closes(connection);
    }

    // ---- lives of the broker ---------------------------------------------------------------------------------

    pub(super) fn start(&mut self) -> Result<(), Violation> {
        if self.node.is_some() {
            return Ok(());
        }
        self.life += 1;
        let mut node = Node::start(&self.disk, &self.plan, &self.configs, self.letters)
            .map_err(|error| Violation::new(Rule::Life, format!("the broker does not start: {error}")))?;
        let now = self.clock.mono();
        let power_cut = self.dirty_end == End::PowerCut;
        let mut found = BTreeMap::new();
        for index in 0..self.plan.partitions {
            let id = partition(index);
            let log = look_through(&mut node.logs, id).map_err(|error| {
                Violation::new(Rule::Produce, format!("log {index} cannot be read: {error}"))
            })?;
            found.insert(id, log);
        }
        let mut letters = BTreeMap::new();
        for index in 0..if self.letters.made { self.plan.dead_letters.partitions } else { 0 } {
            let id = letter_partition(index);
            let log =
                read_letters(&mut node.logs, id).map_err(|text| Violation::new(Rule::DeadLetter, text))?;
            letters.insert(id, log);
        }
        if self.started {
            self.model.restarted(now, power_cut, &found, &letters)?;
        }
        self.started = true;
        let ends: Vec<_> = found.values().map(|log| (log.start, log.last_stable, log.end)).collect();
        self.trace.note(now, format_args!("start of life {}, logs {ends:?}", self.life));
        node.round_at = Some(now);
        self.node = Some(node);
        self.clock.at(now, Event::Round { life: self.life });
        Ok(())
    }

    /// The broker is asked to stop in order.
    fn stop(&mut self) {
        let Some(node) = &mut self.node else { return };
        if node.stopping {
            return;
        }
        self.trace.note(self.clock.mono(), format_args!("stop"));
        self.tell(Input::Fact(Fact::Stopping));
        let wait = Micros(self.random.pick(&[20_000, 300_000]));
        self.clock.after(wait, Event::Stop { life: self.life });
    }

    /// Connections go first, then what is under way ends, then the logs close.
    pub(super) fn try_stop(&mut self) -> Result<(), Violation> {
        let Some(node) = &mut self.node else { return Ok(()) };
        if !node.stopping {
            node.stopping = true;
            for connection in self.net.alive() {
                self.break_connection(connection);
                self.broker_notices(connection);
            }
        }
        let Some(node) = &self.node else { return Ok(()) };
        if node.is_idle() {
            self.end(End::Clean);
        } else {
            self.clock.after(Micros(5_000), Event::Stop { life: self.life });
        }
        Ok(())
    }

    /// The broker ends, in one way or another, and starts again after a while.
    pub(super) fn end(&mut self, end: End) {
        let Some(node) = self.node.take() else { return };
        self.trace.note(self.clock.mono(), format_args!("end of life {}: {end:?}", self.life));
        self.counts.restarts[end as usize] += 1;
        self.disk.fail_syncs(0);
        match end {
            // Where the disk is full, or a log is closed for writing, the next start recovers.
            End::Clean => {
                if node.logs.close().is_ok() {
                    self.model.closed_in_order();
                }
            }
            End::Kill | End::PowerCut => drop(node),
        }
        self.note_files();
        if end == End::PowerCut {
            self.disk.crash();
        }
        self.note_files();
        self.dirty_end = end;
        self.life += 1;
        for connection in self.net.broker_dies() {
            let wait = Micros(self.random.between(0, 300_000));
            if let Some(state) = self.net.get_mut(connection) {
                state.broken_at = Some(self.clock.mono());
            }
            self.clock.after(wait, Event::ClientNotices { connection });
        }
        let down = Micros(self.random.pick(&DOWN_US));
        // The disk is given room before a start: without any the broker rightly refuses.
        self.disk.set_capacity(u64::MAX);
        self.clock.after(down, Event::Start);
    }

    fn note_files(&mut self) {
        for index in 0..self.plan.partitions {
            let entries = self.disk.list(&format!("t-{index}")).unwrap_or_default();
            let files: Vec<_> = entries.iter().map(|entry| format!("{} {}", entry.name, entry.len)).collect();
            self.trace.note(self.clock.mono(), format_args!("files of {index}: {files:?}"));
        }
    }

    pub(super) fn perhaps_kill_behind_reply(&mut self) {
        if self.peace_at.is_none() && self.random.one_in(self.plan.faults.kill_behind_reply) {
            let end = if self.random.percent(70) { End::Kill } else { End::PowerCut };
            self.end(end);
        }
    }

    // ---- what goes wrong -------------------------------------------------------------------------------------

    pub(super) fn happening(&mut self) -> Result<(), Violation> {
        if self.peace_at.is_some() {
            return Ok(());
        }
        let every = self.plan.faults.every_ms * 1_000;
        let wait = Micros(self.random.between(every / 10, every * 2));
        self.clock.after(wait, Event::Happening);
        let weights = self.plan.faults.weights;
        let sum: u64 = weights.iter().sum();
        if sum == 0 || self.node.as_ref().is_none_or(|node| node.stopping) {
            return Ok(());
        }
        let mut draw = self.random.below(sum);
        let mut kind = 0;
        for (index, weight) in weights.iter().enumerate() {
            if draw < *weight {
                kind = index;
                break;
            }
            draw -= weight;
        }
        match kind {
            0 => self.break_some_connection(),
            1 => self.stall_some_connection(),
            2 => return self.some_member(Member::leave),
            3 => return self.some_member(Member::die),
            4 => self.stop(),
            5 => self.end(End::Kill),
            6 => self.end(End::PowerCut),
            7 => {
                self.trace.note(self.clock.mono(), format_args!("the next sync fails"));
                self.disk.fail_syncs(1);
                // Whoever syncs next, storage itself perhaps: some log may be closed for writing from then on.
                if let Some(node) = &mut self.node {
                    node.poisoned = true;
                }
            }
            8 => {
                self.disk.set_capacity(0);
                let wait = Micros(self.random.between(1_000, 3_000_000));
                self.trace.note(self.clock.mono(), format_args!("disk full for {wait:?}"));
                self.clock.after(wait, Event::DiskHasRoom);
            }
            9 => {
                let ms = self.random.pick(&[-3_600_000, -5_000, 5_000, 3_600_000]);
                self.trace.note(self.clock.mono(), format_args!("wall clock steps {ms} ms"));
                self.clock.step_wall(ms);
                self.model.wall_stepped(self.clock.mono());
            }
            10 => self.delete_records(),
            _ => self.change_settings(),
        }
        // A log that is closed for writing is of no use: someone restarts the broker.
        if self.node.as_ref().is_some_and(|node| node.poisoned) && self.random.percent(50) {
            let end = if self.random.percent(50) { End::Kill } else { End::PowerCut };
            self.end(end);
        }
        Ok(())
    }

    fn break_some_connection(&mut self) {
        let alive = self.net.alive();
        if !alive.is_empty() {
            let connection = alive[self.random.index(alive.len())];
            self.break_connection(connection);
        }
    }

    /// A client does not read for a while; its connection may break before it does again.
    fn stall_some_connection(&mut self) {
        let alive = self.net.alive();
        if alive.is_empty() {
            return;
        }
        let connection = alive[self.random.index(alive.len())];
        let length_us = self.random.pick(&[500_000, 5_000_000, 40_000_000]);
        let until = self.clock.mono() + Micros(length_us);
        if self.random.percent(60) {
            let wait = Micros(self.random.between(1, length_us));
            self.clock.after(wait, Event::Breaks { connection });
        }
        self.trace
            .note(self.clock.mono(), format_args!("connection {} stalls until {until:?}", connection.0));
        if let Some(state) = self.net.get_mut(connection) {
            state.stalled_until = until;
        }
    }

    fn some_member(
        &mut self,
        act: impl FnOnce(&mut crate::sim::clients::Member, &mut crate::sim::clients::Turn<'_>),
    ) -> Result<(), Violation> {
        let members: Vec<usize> = (0..self.clients.len())
            .filter(|client| matches!(self.clients[*client], Client::Member(_)))
            .collect();
        if members.is_empty() {
            return Ok(());
        }
        let client = members[self.random.index(members.len())];
        self.turn(client, |client, turn| {
            if let Client::Member(member) = client {
                act(member, turn);
                turn.wishes.push(Wish::Note(format!("client {} is told to go", turn.client)));
            }
        })
    }

    fn delete_records(&mut self) {
        let index = i32::try_from(self.random.below(u64::from(self.plan.partitions.unsigned_abs())))
            .expect("below the number of partitions");
        let id = partition(index);
        let end = self.model.log_end(id);
        if end == 0 {
            return;
        }
        let to = i64::try_from(self.random.below(end.unsigned_abs())).expect("below an offset");
        // On a connection of its own that nobody looks at.
        let connection = self.net.connect(0);
        let command = Command::DeleteRecords(vec![(id, DeleteTo::Offset(Offset(to)))]);
        if let Some((ticket, _)) = self.net.arrive(connection, 0, &command) {
            self.tell(Input::Command(ticket, command));
        }
        self.net.client_closes(connection);
    }
}

/// What is in a log.
fn look_through(logs: &mut Logs, id: PartitionId) -> Result<Found, String> {
    let facts = logs.facts(id).ok_or_else(|| StorageError::UnknownPartition.to_string())?;
    let (start, end, last_stable) = (facts.log_start.get(), facts.end.get(), facts.last_stable.get());
    let mut found = Found { start, end, last_stable, batches: Vec::new() };
    let mut from = start;
    while from < end {
        let Some(bytes) = read_from(logs, id, from, end)? else { break };
        let batches = content::batches(&[bytes])?;
        let Some(last) = batches.last() else { return Err(format!("nothing at {from}")) };
        from = last.last + 1;
        found.batches.extend(batches);
    }
    for batch in &mut found.batches {
        batch.records.retain(|seen| seen.offset >= start);
    }
    Ok(found)
}

/// The dead letters of a log.
fn read_letters(logs: &mut Logs, id: PartitionId) -> Result<Vec<Letter>, String> {
    let end = logs.facts(id).ok_or_else(|| StorageError::UnknownPartition.to_string())?.end.get();
    let mut found: Vec<Letter> = Vec::new();
    let mut from = 0;
    while from < end {
        let Some(bytes) = read_from(logs, id, from, end)? else { break };
        let letters = content::letters(&[bytes])?;
        let Some(last) = letters.last() else { return Err(format!("no letter at {from}")) };
        from = last.at + 1;
        found.extend(letters);
    }
    Ok(found)
}

fn read_from(logs: &mut Logs, id: PartitionId, from: i64, end: i64) -> Result<Option<Bytes>, String> {
    let read = logs.read(id, Offset(from), READ_BYTES, Offset(end), true);
    let slice = read.map_err(|error| error.to_string())?;
    if slice.is_empty() {
        return Ok(None);
    }
    slice.read().map(Some).map_err(|error| error.to_string())
}
