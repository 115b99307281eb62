//! The virtual world of one run: clients, network, broker, disk and time, all driven by one queue of events.

mod breaks;
mod disk;
mod happenings;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::{Command, ConnectionId};
use coordinator::reply::{Effect, Output, Reply};
use coordinator::shard::Input;
use coordinator::share::ShareConfig;
use coordinator::time::Micros;
use storage::SimDisk;

use super::breakage::Breakage;
use super::clients::{
    Client, Committer, Member, Names, Operator, Producer, Reader, Socket, Standalone, Transactor, Turn, Wish,
    address, wake_event,
};
use super::clock::Clock;
use super::event::Event;
use super::model::{Model, Rule, ShareId, Violation, reader_name};
use super::net::Net;
use super::node::{Letters, Node, partition};
use super::plan::Plan;
use super::random::Random;
use super::trace::Trace;
use breaks::Breaker;

/// Virtual time from peace on within which everything must be done.
const PEACE_MAX: Micros = Micros(20 * 60 * 1_000_000);
/// How often it is looked whether all is done.
const LOOK_EVERY: Micros = Micros(500_000);
/// How often it is looked whether anything waits needlessly.
const WATCH_EVERY: Micros = Micros(400_000);
/// Events of a run at most: one that makes more goes round in circles.
const EVENTS_MAX: u64 = 3_000_000;

/// What a run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Rounds of the shard.
    pub rounds: u64,
    /// Records in the logs at the end.
    pub records: u64,
    /// Records handed out.
    pub grants: u64,
    /// Clean stops, kills, power cuts.
    pub restarts: [u64; 3],
    /// Appends, events and syncs that were made to fail.
    pub failed: [u64; 3],
}

/// How the broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Kill,
    PowerCut,
}

/// See the module.
pub struct World {
    plan: Plan,
    clock: Clock<Event>,
    random: Random,
    trace: Trace,
    counts: Counts,
    disk: Arc<SimDisk>,
    node: Option<Node>,
    life: u64,
    net: Net,
    sockets: BTreeMap<Socket, ConnectionId>,
    sockets_back: BTreeMap<ConnectionId, Socket>,
    clients: Vec<Client>,
    names: Names,
    model: Model,
    configs: Vec<(Arc<str>, Arc<ShareConfig>)>,
    breaker: Breaker,
    peace_at: Option<coordinator::time::Mono>,
    started: bool,
    dirty_end: End,
    letters: Letters,
}

impl World {
    /// The world that `seed` stands for.
    #[must_use]
    pub fn new(seed: u64, breakage: Option<Breakage>) -> Self {
        let plan = Plan::draw(seed);
        let mut random = Random::new(seed);
        let partitions: Vec<_> = (0..plan.partitions).map(partition).collect();
        let configs: Vec<(Arc<str>, Arc<ShareConfig>)> =
            plan.groups.iter().map(|group| (Arc::clone(&group.name), Arc::clone(&group.config))).collect();
        let mut clients = Vec::new();
        for producer in &plan.producers {
            let producer = Producer::new(*producer, plan.keys, plan.keyless_percent, plan.partitions);
            clients.push(Client::Producer(producer));
        }
        for transactor in &plan.transactors {
            let transactor = Transactor::new(*transactor, plan.keys, plan.keyless_percent, plan.partitions);
            clients.push(Client::Transactor(transactor));
        }
        for group in &plan.groups {
            for (place, manners) in group.members.iter().enumerate() {
                let member = Member::new(place, *manners, &group.name, &group.config, &plan);
                clients.push(Client::Member(member));
            }
            for (lane, standalone) in (0..).zip(&group.standalone) {
                let lane = (lane, group.standalone.len() as u64);
                let lock_ms = group.config.lock_ms;
                let reader = Standalone::new(lane, &group.name, lock_ms, *standalone, &plan);
                clients.push(Client::Standalone(reader));
            }
        }
        clients.extend((0..plan.readers).map(|_| Client::Reader(Reader::new(0))));
        let committer = |index| Client::Committer(Committer::new(Arc::from(format!("c{index}"))));
        clients.extend((0..plan.committers).map(committer));
        let groups = configs.iter().map(|config| Arc::clone(&config.0)).collect();
        clients.push(Client::Operator(Operator::new(groups, &plan)));
        Self {
            disk: Arc::new(SimDisk::new(random.bits())),
            model: Model::new(&partitions, &configs),
            breaker: Breaker::new(breakage, &mut random),
            clock: Clock::default(),
            random,
            trace: Trace::default(),
            counts: Counts::default(),
            node: None,
            life: 0,
            net: Net::default(),
            sockets: BTreeMap::new(),
            sockets_back: BTreeMap::new(),
            clients,
            names: Names::default(),
            configs,
            peace_at: None,
            started: false,
            dirty_end: End::Clean,
            letters: Letters::default(),
            plan,
        }
    }

    /// Runs to the end, or to the first broken promise.
    ///
    /// # Errors
    /// The promise.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.trace.note(self.clock.mono(), format_args!("plan {:?}", self.plan));
        self.plan_letters();
        self.start()?;
        self.clock.after(WATCH_EVERY, Event::Watch);
        for client in 0..self.clients.len() {
            self.turn(client, Client::begin)?;
        }
        if self.plan.faults.every_ms > 0 {
            self.clock.after(Micros::from_ms(100), Event::Happening);
        }
        let chaos = Micros(self.plan.chaos_ms * 1_000);
        self.clock.after(chaos, Event::Peace);
        while let Some(event) = self.clock.pass() {
            self.counts.events += 1;
            if self.counts.events > EVENTS_MAX {
                return Err(Violation::new(Rule::Life, "the run does not come to an end"));
            }
            if matches!(event, Event::Look) && self.look()? {
                break;
            }
            self.happens(event)?;
        }
        self.counts.grants = self.model.grants;
        Ok(())
    }

    /// What happened.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn happens(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Round { life } if life == self.life => self.round(),
            Event::Serve { life, submission } if life == self.life => self.serve(&submission),
            Event::ServeLate { life, submission } if life == self.life => {
                self.serve_late(*submission);
                Ok(())
            }
            Event::Completed { life, completion } if life == self.life => {
                if let Some(node) = &mut self.node {
                    node.under_way -= 1;
                }
                self.tell(Input::Completion(*completion));
                Ok(())
            }
            Event::SyncEnds { life, job } if life == self.life => {
                self.sync_ends(job);
                Ok(())
            }
            Event::ServeLate { .. }
            | Event::Round { .. }
            | Event::Serve { .. }
            | Event::Completed { .. }
            | Event::SyncEnds { .. } => Ok(()),
            Event::Arrives { connection, request, command } => {
                self.arrives(connection, request, *command);
                Ok(())
            }
            Event::Written { connection, ticket } => {
                self.written(connection, ticket);
                Ok(())
            }
            Event::Receives { connection, request, reply } => self.receives(connection, request, *reply),
            Event::Breaks { connection } => {
                self.break_connection(connection);
                Ok(())
            }
            Event::BrokerNotices { connection } => {
                self.broker_notices(connection);
                Ok(())
            }
            Event::ClientNotices { connection } => self.client_notices(connection),
            Event::Wakes { client, token } => self.turn(client, |client, turn| client.wakes(turn, token)),
            Event::Happening => self.happening(),
            Event::Stop { life } if life == self.life => self.try_stop(),
            Event::Stop { .. } => Ok(()),
            Event::Start => self.start(),
            Event::Letters { enabled } => self.change_letters(enabled),
            Event::Watch => self.watch(),
            Event::DiskHasRoom => {
                self.disk.set_capacity(u64::MAX);
                Ok(())
            }
            Event::Peace => self.peace(),
            Event::Look => Ok(()),
        }
    }

    // ---- the broker ------------------------------------------------------------------------------------------

    /// Something for the shard's next round.
    fn tell(&mut self, input: Input<Data>) {
        let wait = self.random.between(0, self.plan.round_us_max);
        let Some(node) = &mut self.node else { return };
        node.inbox.push(input);
        let at = self.clock.mono() + Micros(wait);
        if node.round_at.is_none_or(|planned| planned > at) {
            node.round_at = Some(at);
            self.clock.at(at, Event::Round { life: self.life });
        }
    }

    fn round(&mut self) -> Result<(), Violation> {
        let now = self.clock.now();
        let Some(node) = &mut self.node else { return Ok(()) };
        if node.round_at.is_some_and(|at| at > now.mono) {
            return Ok(());
        }
        let due = node.shard.next_deadline().is_some_and(|deadline| deadline <= now.mono);
        if node.inbox.is_empty() && !due {
            node.round_at = None;
            self.plan_round();
            return Ok(());
        }
        node.round_at = None;
        self.counts.rounds += 1;
        let inputs = std::mem::take(&mut node.inbox);
        let open: BTreeSet<ShareId> = self
            .model
            .share_ids()
            .into_iter()
            .filter(|id| node.shard.share_partition(&id.0, id.1).is_some())
            .collect();
        for input in &inputs {
            note_input(&mut self.trace, now.mono, input);
        }
        let told = self.breaker.inputs(inputs.clone());
        let outputs = node.shard.round(now, told);
        let outputs = self.breaker.outputs(outputs, &inputs);
        self.model.round(now, &inputs, &outputs, &open)?;
        for id in open {
            let view = self.node.as_ref().and_then(|node| node.shard.share_partition(&id.0, id.1));
            if let Some(view) = view {
                self.model.start_is(&id, view.start.get())?;
            }
        }
        for output in outputs {
            self.carry_out(output);
        }
        self.plan_round();
        Ok(())
    }

    /// The shard's own deadlines.
    fn plan_round(&mut self) {
        let late = self.random.between(0, self.plan.round_us_max);
        let Some(node) = &mut self.node else { return };
        if self.breaker.is(Breakage::WakeUpDropped) {
            return;
        }
        let Some(deadline) = node.shard.next_deadline() else { return };
        let at = deadline.max(self.clock.mono()) + Micros(late);
        if node.round_at.is_none_or(|planned| planned > at) {
            node.round_at = Some(at);
            self.clock.at(at, Event::Round { life: self.life });
        }
    }

    fn carry_out(&mut self, output: Output<Data>) {
        match output {
            Output::Submit(submission) => self.submit(submission),
            Output::Reply(ticket, reply) => {
                self.trace.note(self.clock.mono(), format_args!("  reply {} {}", ticket.0, describe(&reply)));
                if matches!(reply, Reply::ShareFetched(_) | Reply::ShareAcknowledged(_)) {
                    self.perhaps_kill_behind_reply();
                }
                self.send_answer(ticket, reply);
            }
            Output::Effect(Effect::CloseConnection(connection)) => {
                self.trace.note(self.clock.mono(), format_args!("  close connection {}", connection.0));
                self.break_connection(connection);
            }
            Output::Effect(
                Effect::GroupDeleted(_)
                | Effect::RetentionWarning { .. }
                | Effect::CreateDeadLetterTopic(_)
                | Effect::DeadLettersWait { .. },
            ) => {}
            Output::Effect(Effect::IndexKeys(partition)) => {
                if let Some(node) = &mut self.node {
                    node.index_keys(partition);
                }
            }
        }
    }

    // ---- clients ---------------------------------------------------------------------------------------------

    fn turn(&mut self, client: usize, act: impl FnOnce(&mut Client, &mut Turn<'_>)) -> Result<(), Violation> {
        let mut wishes = Vec::new();
        let mut turn = Turn {
            now: self.clock.now(),
            client,
            peace: self.peace_at.is_some(),
            random: &mut self.random,
            wishes: &mut wishes,
            names: &mut self.names,
        };
        act(&mut self.clients[client], &mut turn);
        for wish in wishes {
            match wish {
                Wish::Connect(socket) => {
                    let connection = self.net.connect(client);
                    self.sockets.insert(socket, connection);
                    self.sockets_back.insert(connection, socket);
                }
                Wish::Send(socket, request, command) => self.send_request(socket, request, *command),
                Wish::Close(socket) => self.client_closes(socket),
                Wish::Wake(wait, token) => self.clock.after(wait, wake_event(client, token)),
                Wish::Works(mut work) => {
                    if let Some(socket) = work.reader {
                        let Some(connection) = self.sockets.get(&socket) else { continue };
                        work.member = reader_name(*connection);
                    }
                    self.model.works(&work)?;
                }
                Wish::Note(text) => self.trace.note(self.clock.mono(), format_args!("{text}")),
            }
        }
        Ok(())
    }

    /// Whether anything waits needlessly.
    fn watch(&mut self) -> Result<(), Violation> {
        self.clock.after(WATCH_EVERY, Event::Watch);
        let Some(node) = self.node.as_ref().filter(|node| !node.stopping) else { return Ok(()) };
        let is_open = |id: &ShareId| node.shard.share_partition(&id.0, id.1).is_some();
        let open: Vec<ShareId> = self.model.share_ids().into_iter().filter(is_open).collect();
        self.model.nothing_waits(self.clock.mono(), &open).inspect_err(|_| {
            for id in &open {
                let view = node.shard.share_partition(&id.0, id.1);
                self.trace.note(self.clock.mono(), format_args!("{} stands at {view:?}", id.0));
            }
        })
    }

    // ---- the end ---------------------------------------------------------------------------------------------

    fn peace(&mut self) -> Result<(), Violation> {
        self.trace.note(self.clock.mono(), format_args!("peace"));
        self.peace_at = Some(self.clock.mono());
        self.disk.set_capacity(u64::MAX);
        self.disk.fail_syncs(0);
        self.change_letters(false)?;
        self.change_letters(true)?;
        self.order_for_readers();
        for client in 0..self.clients.len() {
            self.turn(client, |client, turn| {
                if let Client::Member(member) = client {
                    member.hears_of_peace(turn);
                }
            })?;
        }
        if self.node.as_ref().is_some_and(|node| node.poisoned) {
            self.end(End::Kill);
        }
        self.clock.after(LOOK_EVERY, Event::Look);
        Ok(())
    }

    /// Whether all is done.
    fn look(&mut self) -> Result<bool, Violation> {
        let since = self.peace_at.expect("one looks in peace only");
        let undone = self.what_is_undone();
        if undone.is_none() {
            self.counts.records = (0..self.plan.partitions)
                .map(|index| self.model.log_end(partition(index)))
                .sum::<i64>()
                .unsigned_abs();
            return Ok(true);
        }
        if self.clock.mono() - since > PEACE_MAX {
            let unanswered = self.model.unanswered();
            let rule = if unanswered.is_some() { Rule::Reply } else { Rule::Lost };
            let text = unanswered.or(undone).unwrap_or_default();
            return Err(Violation::new(rule, format!("not done in time: {text}")));
        }
        self.clock.after(LOOK_EVERY, Event::Look);
        Ok(false)
    }

    fn what_is_undone(&self) -> Option<String> {
        let Some(node) = &self.node else { return Some("the broker is down".to_owned()) };
        if self.clients.iter().any(|client| !client.is_done()) {
            return Some("records are to be produced yet".to_owned());
        }
        for id in self.model.share_ids() {
            let end = self.model.log_end(id.1);
            let view = node.shard.share_partition(&id.0, id.1);
            match view {
                _ if end == 0 => {}
                None => return Some(format!("{} is not in memory", id.0)),
                Some(view) if view.start.get() < end || view.out > 0 => {
                    return Some(format!(
                        "{} {} stands at {view:?}, the log ends at {end}",
                        id.0, id.1.index
                    ));
                }
                Some(_) => {}
            }
        }
        self.model.undone().or_else(|| self.model.unanswered())
    }
}

fn note_input(trace: &mut Trace, now: coordinator::time::Mono, input: &Input<Data>) {
    match input {
        Input::Command(ticket, command) => match command {
            Command::Produce(produce) => {
                let parts: Vec<_> =
                    produce.parts.iter().map(|(id, batch)| (id.index, batch.bytes.len())).collect();
                trace.note(now, format_args!("command {} produce {:?} {parts:?}", ticket.0, produce.acks));
            }
            Command::ShareFetch(fetch) => {
                let acks: Vec<_> =
                    fetch.parts.iter().map(|part| (part.partition.index, ranges(&part.acks))).collect();
                trace.note(
                    now,
                    format_args!(
                        "command {} fetch {} epoch {} on {} wait {} max {} acks {acks:?}",
                        ticket.0,
                        fetch.member,
                        fetch.epoch,
                        fetch.connection.0,
                        fetch.wait_max_ms,
                        fetch.records_max,
                    ),
                );
            }
            Command::ShareAcknowledge(request) => {
                let acks: Vec<_> = request.parts.iter().map(|(id, acks)| (id.index, ranges(acks))).collect();
                trace.note(
                    now,
                    format_args!(
                        "command {} acknowledge {} epoch {} on {} {acks:?}",
                        ticket.0, request.member, request.epoch, request.connection.0
                    ),
                );
            }
            Command::StandaloneFetch(request) => {
                let fetch = &request.fetch;
                let acks: Vec<_> =
                    fetch.parts.iter().map(|part| (part.partition.index, ranges(&part.acks))).collect();
                let keys: Vec<_> = request.ranges.iter().map(|part| (part.0.index, &part.1)).collect();
                trace.note(
                    now,
                    format_args!(
                        "command {} read {} epoch {} on {} wait {} max {} keys {keys:?} acks {acks:?}",
                        ticket.0,
                        fetch.group,
                        fetch.epoch,
                        fetch.connection.0,
                        fetch.wait_max_ms,
                        fetch.records_max,
                    ),
                );
            }
            other => trace.note(now, format_args!("command {} {other:?}", ticket.0)),
        },
        Input::Completion(completion) => {
            trace.note(now, format_args!("completion {}", disk::describe_completion(completion)));
        }
        Input::Fact(fact) => trace.note(now, format_args!("fact {fact:?}")),
    }
}

fn ranges(acks: &[coordinator::command::AckRange]) -> Vec<(i64, i64, Vec<i8>)> {
    acks.iter().map(|range| (range.first, range.last, range.types.clone())).collect()
}

/// A reply in a few words.
fn describe(reply: &Reply<Data>) -> String {
    match reply {
        Reply::ShareFetched(Ok(fetched)) => {
            let parts: Vec<String> = fetched
                .parts
                .iter()
                .map(|part| {
                    let acquired: Vec<_> = part
                        .acquired
                        .iter()
                        .map(|range| (range.first.get(), range.last.get(), range.count))
                        .collect();
                    format!(
                        "{}: {acquired:?} start {} error {:?} acks {:?}{:?} recalled {:?}",
                        part.partition.index,
                        part.start_offset,
                        part.error,
                        part.ack_error,
                        part.ack_results,
                        part.recalled
                    )
                })
                .collect();
            format!("fetched {parts:?}")
        }
        Reply::ShareAcknowledged(Ok(outcome)) => {
            let parts: Vec<_> =
                outcome.parts.iter().map(|part| (part.partition.index, part.error, &part.results)).collect();
            format!("acknowledged {parts:?}")
        }
        Reply::Produced(results) => {
            let told: Vec<_> =
                results.iter().map(|result| result.map(|appended| appended.base_offset.get())).collect();
            format!("produced {told:?}")
        }
        Reply::Fetched(parts) => format!("fetched {} parts", parts.len()),
        other => format!("{other:?}"),
    }
}
