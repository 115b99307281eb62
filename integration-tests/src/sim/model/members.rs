//! What the model knows of members: connections, sessions, and when what they hold may come back (O4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::command::{AckRange, ConnectionId, ShareAcknowledge, ShareFetch, Ticket};
use coordinator::share::{ShareAssignment, ShareConfig, ShareOrder};
use coordinator::time::{Micros, Mono};
use records::ids::PartitionId;

use super::Model;
use super::answers::{Acked, Asked};
use super::state::Tri;

/// A member that left by heartbeat may settle for so long (O4).
const LEFT_MAX: Micros = Micros(1_000_000);
/// Records of one key that a key-share client may have in flight where it names no number.
const PER_KEY_DEFAULT: u32 = 16;

/// How a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    /// No fetch was out.
    Idle,
    /// One was parked, or its answer not written whole.
    FetchOut,
}

/// A member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberView {
    connections: BTreeSet<ConnectionId>,
    /// The connection of its session's last request.
    session: Option<ConnectionId>,
    pub(super) loss: Option<Loss>,
    gone_since: Option<Mono>,
    left_at: Option<Mono>,
    beat_at: Option<Mono>,
    /// Its session is open, and the group knows it, since then at the latest.
    opened_at: Option<Mono>,
    joined_at: Option<Mono>,
    stops_at_disconnect: bool,
    /// Share fetches that are not answered, and answers that are not written, by connection.
    parked: BTreeMap<Ticket, ConnectionId>,
    pub(super) unwritten: BTreeMap<Ticket, ConnectionId>,
}

impl MemberView {
    pub(super) fn seen(&mut self, connection: ConnectionId) {
        self.connections.insert(connection);
        self.gone_since = None;
    }

    fn heard(&mut self, connection: ConnectionId) {
        self.seen(connection);
        self.loss = None;
        self.session = Some(connection);
    }

    /// It may be at work.
    pub(super) fn may_be_resident(&self) -> bool {
        self.session.is_some()
    }

    /// The answer to a share fetch went out.
    pub(super) fn answered(&mut self, ticket: Ticket, well: bool) {
        if let Some(connection) = self.parked.remove(&ticket)
            && well
        {
            self.unwritten.insert(ticket, connection);
        }
    }

    pub(super) fn has_no_session(&self) -> bool {
        self.session.is_none()
    }

    pub(super) fn broker_died(&mut self, now: Mono) {
        *self = Self {
            loss: Some(Loss::FetchOut),
            gone_since: Some(now),
            beat_at: self.beat_at,
            ..Self::default()
        };
    }
}

impl Model {
    pub(super) fn member(&mut self, group: &Arc<str>, member: &Arc<str>) -> &mut MemberView {
        self.members.entry((Arc::clone(group), Arc::clone(member))).or_default()
    }

    pub(super) fn share_fetch(
        &mut self,
        now: Mono,
        ticket: Ticket,
        fetch: &ShareFetch,
        taken: bool,
    ) -> Asked {
        let mut acked = Vec::new();
        if taken {
            if fetch.epoch == 0 {
                self.member(&fetch.group, &fetch.member).opened_at = Some(now);
                let stops = fetch.key_share.is_some_and(|terms| terms.stops_at_disconnect);
                self.session_opens(&fetch.group, &fetch.member, stops);
            }
            let view = self.member(&fetch.group, &fetch.member);
            view.heard(fetch.connection);
            view.parked.insert(ticket, fetch.connection);
            self.wakeups.asked(now, ticket, fetch);
            let view = self.member(&fetch.group, &fetch.member);
            if let Some(terms) = fetch.key_share {
                view.stops_at_disconnect = terms.stops_at_disconnect;
            }
            for part in fetch.parts.iter().filter(|part| !part.acks.is_empty()) {
                let who = (&fetch.group, &fetch.member);
                acked.push(self.apply_acks(now, who, part.partition, &part.acks, fetch.key_share.is_some()));
            }
            if fetch.epoch == -1 {
                self.session_closed(&fetch.group, &fetch.member);
            }
        }
        let config = self.configs.get(&fetch.group);
        let per_key_max = match fetch.key_share {
            Some(terms) if terms.records_per_key_max > 0 => terms.records_per_key_max,
            Some(_) => PER_KEY_DEFAULT,
            None => config.map_or(1, |config| config.key_inflight_max),
        };
        let keyed = config.is_some_and(|config| config.order == ShareOrder::Key);
        Asked::ShareFetch {
            connection: fetch.connection,
            group: Arc::clone(&fetch.group),
            member: Arc::clone(&fetch.member),
            since: now,
            records_max: (fetch.strict || keyed).then_some(fetch.records_max),
            per_key_max: per_key_max as usize,
            numbered: fetch.key_share.is_some(),
            ranges: None,
            acked,
        }
    }

    pub(super) fn share_acknowledge(&mut self, now: Mono, acks: &ShareAcknowledge, taken: bool) -> Asked {
        let mut acked = Vec::new();
        if taken {
            self.member(&acks.group, &acks.member).heard(acks.connection);
            for (partition, ranges) in &acks.parts {
                let who = (&acks.group, &acks.member);
                acked.push(self.apply_acks(now, who, *partition, ranges, acks.key_share));
            }
            if acks.epoch == -1 {
                self.session_closed(&acks.group, &acks.member);
            }
        }
        Asked::ShareAcknowledge { connection: acks.connection, group: Arc::clone(&acks.group), acked }
    }

    fn apply_acks(
        &mut self,
        now: Mono,
        (group, member): (&Arc<str>, &Arc<str>),
        partition: PartitionId,
        ranges: &[AckRange],
        numbered: bool,
    ) -> Acked {
        let id = (Arc::clone(group), partition);
        let mut sure = self.open.contains(&id);
        let mut acked = Acked { partition, numbered, words: Vec::new(), position: 0 };
        let Some((share, log)) = self.shares.get_mut(&id).zip(self.logs.of(&id)) else {
            return acked;
        };
        if share.config.order == ShareOrder::None && !numbered {
            // All or nothing: sure only where all are.
            sure &= ranges.iter().flat_map(|range| range.first..=range.last).all(|offset| {
                let hold = share.record(offset).hold;
                hold.is_some_and(|hold| !hold.doubt && hold.member == *member)
            });
        }
        for range in ranges {
            let mut words = Vec::new();
            for (place, offset) in (range.first..=range.last).enumerate() {
                let kind = range.types.get(place).or(range.types.first()).copied().unwrap_or(0);
                let number = range.delivery.map(|number| number.0).filter(|_| numbered);
                words.push((offset, share.acknowledged(now, member, offset, kind, number, sure, log)));
            }
            acked.words.push(words);
        }
        acked.position = share.position();
        acked
    }

    /// Epoch 0: what a member held comes back where its last connection was lost with no fetch out, or where it stops
    /// its work whenever it loses a session.
    fn session_opens(&mut self, group: &Arc<str>, member: &Arc<str>, stops: bool) {
        let keyed = self.configs.get(group).is_some_and(|config| config.order == ShareOrder::Key);
        if keyed && (stops || self.member(group, member).loss == Some(Loss::Idle)) {
            self.session_ends(group, member, true);
        }
    }

    /// The final epoch.
    pub(super) fn session_closed(&mut self, group: &Arc<str>, member: &Arc<str>) {
        self.session_ends(group, member, true);
        if self.configs.get(group).is_some_and(|config| config.assignment == ShareAssignment::Sticky) {
            self.wakeups.homes_moved(group);
        }
        let view = self.member(group, member);
        view.session = None;
        view.opened_at = None;
        view.loss = None;
        view.left_at = None;
    }

    pub(super) fn session_ends(&mut self, group: &Arc<str>, member: &Arc<str>, surely: bool) {
        for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.0 == *group) {
            share.session_ended(member, surely);
        }
    }

    /// A heartbeat; says whether the session may end at once.
    pub(super) fn heartbeat(&mut self, now: Mono, group: &Arc<str>, member: &Arc<str>, epoch: i32) -> bool {
        let view = self.member(group, member);
        view.beat_at = Some(now);
        if epoch <= 0 {
            view.joined_at = None;
        }
        if epoch == -1 {
            view.left_at = Some(now);
        }
        epoch == -1 && view.session.is_none()
    }

    /// A heartbeat was answered: from now on the group knows the member, or does not.
    pub(super) fn beat_answered(
        &mut self,
        now: Mono,
        group: &Arc<str>,
        member: &Arc<str>,
        epoch: i32,
        well: bool,
    ) {
        let view = self.member(group, member);
        match epoch {
            _ if !well => view.joined_at = None,
            -1 => {}
            _ => drop(view.joined_at.get_or_insert(now)),
        }
    }

    /// Whether a member was at work for sure since before `since`.
    pub(super) fn is_resident(&self, now: Mono, group: &Arc<str>, member: &Arc<str>, since: Mono) -> bool {
        let Some(view) = self.members.get(&(Arc::clone(group), Arc::clone(member))) else { return false };
        let before = |at: Option<Mono>| at.is_some_and(|at| at < since);
        before(view.opened_at)
            && before(view.joined_at)
            && view.loss.is_none()
            && view.gone_since.is_none()
            && view.left_at.is_none()
            && !self.is_doubtful(now, group, member)
    }

    pub(super) fn connection_closed(&mut self, now: Mono, connection: ConnectionId) {
        self.closed.insert(connection);
        if !self.stopping {
            self.readers.closed(connection);
        }
        let mut lost = Vec::new();
        let mut ended = Vec::new();
        for ((group, member), view) in &mut self.members {
            let parked: Vec<Ticket> = of(&view.parked, connection);
            let unwritten: Vec<Ticket> = of(&view.unwritten, connection);
            let fetch_out = !parked.is_empty() || !unwritten.is_empty();
            view.parked.retain(|_, id| *id != connection);
            view.unwritten.retain(|_, id| *id != connection);
            lost.extend(unwritten);
            if !view.connections.remove(&connection) || self.stopping {
                continue;
            }
            let of_session = view.session == Some(connection);
            if of_session || fetch_out {
                let loss = if fetch_out { Loss::FetchOut } else { Loss::Idle };
                view.loss = view.loss.max(Some(loss));
            }
            if view.connections.is_empty() {
                view.gone_since = Some(now);
            }
            let Some(config) = self.configs.get(group) else { continue };
            let ends = match config.order {
                ShareOrder::None => of_session,
                ShareOrder::Key => of_session && grace(view, config) == Micros::ZERO,
            };
            if ends {
                ended.push((Arc::clone(group), Arc::clone(member)));
            }
        }
        for ticket in lost {
            self.answer_lost(ticket);
        }
        for (group, member) in ended {
            self.session_closed(&group, &member);
        }
    }

    /// Sessions that may be over by now: what their members hold may have come back.
    pub(super) fn doubtful_sessions(&mut self, now: Mono) {
        let mut doubtful = Vec::new();
        for ((group, member), view) in &self.members {
            let Some(config) = self.configs.get(group) else { continue };
            let past = |since: Option<Mono>, wait: Micros| since.is_some_and(|since| since + wait <= now);
            let timeout = Micros::from_ms(i64::from(config.session_timeout_ms));
            if past(view.gone_since, grace(view, config))
                || past(view.left_at, LEFT_MAX)
                || past(view.beat_at, timeout)
            {
                doubtful.push((Arc::clone(group), Arc::clone(member)));
            }
        }
        for (group, member) in doubtful {
            self.session_ends(&group, &member, false);
        }
    }

    /// Whether what this member is granted may have come back already.
    pub(super) fn is_doubtful(&self, now: Mono, group: &Arc<str>, member: &Arc<str>) -> bool {
        let Some(view) = self.members.get(&(Arc::clone(group), Arc::clone(member))) else { return true };
        let Some(config) = self.configs.get(group) else { return true };
        let past = |since: Option<Mono>, wait: Micros| since.is_some_and(|since| since + wait <= now);
        view.session.is_none()
            || past(view.gone_since, grace(view, config))
            || past(view.left_at, LEFT_MAX)
            || past(view.beat_at, Micros::from_ms(i64::from(config.session_timeout_ms)))
    }
}

fn grace(view: &MemberView, config: &ShareConfig) -> Micros {
    Micros::from_ms(if view.stops_at_disconnect { 0 } else { config.grace_ms() })
}

fn of(tickets: &BTreeMap<Ticket, ConnectionId>, connection: ConnectionId) -> Vec<Ticket> {
    tickets.iter().filter(|(_, id)| **id == connection).map(|(ticket, _)| *ticket).collect()
}

/// Whether all words were sure.
pub(super) fn all_sure(words: &[(i64, super::share::Word)]) -> bool {
    words.iter().all(|(_, word)| word.held == Tri::Yes)
}
